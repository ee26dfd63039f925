/* planner/lowering/semantics.h: what a trainer does with a graph, as data.
 *
 * A *semantics* is a table of rows, one for each graph op (and precision policy where that
 * matters). A row lists the micro-ops of the op's forward and backward: which values each reads and
 * writes, which temporaries exist. What is saved for backward is not written down anywhere: it is
 * what backward steps read. lower() works from rows alone and never asks whose they are.
 *
 *     gelu, vplan:    forward  activation_fwd(x -> y)        backward  activation_bwd(dy, x -> dx)
 *     gelu, eager:    forward  pow, mul, add, mul, tanh, ... backward  many steps that read four
 *                     values
 *
 * The micro-ops of the semantics "vplan" are kernels (plan/op.h) that the runtime executes;
 * those of other trainers are simulated only. */
#ifndef VP_PLANNER_LOWERING_SEMANTICS_H
#define VP_PLANNER_LOWERING_SEMANTICS_H

#include "models/graph.h"
#include "plan/op.h"

#include <stdbool.h>

/* A value as seen from one op. */
typedef enum vp_ref {
    VP_REF_NONE,
    VP_REF_IN0,
    VP_REF_IN1,
    VP_REF_IN2,
    VP_REF_IN3, /* its inputs                              */
    VP_REF_OUT0,
    VP_REF_OUT1,
    VP_REF_OUT2, /* its outputs                                    */
    VP_REF_P0,
    VP_REF_P1,
    VP_REF_P2,
    VP_REF_P3, /* its parameters                                 */
    /* the row's locals */
    VP_REF_L0,
    VP_REF_L1,
    VP_REF_L2,
    VP_REF_L3,
    VP_REF_L4,
    VP_REF_L5,
    VP_REF_L6,
    VP_REF_L7,
    VP_REF_G_OUT0, /* gradient of out 0                              */
    VP_REF_G_IN0,
    VP_REF_G_IN1,
    VP_REF_G_IN2, /* gradients of inputs, made by this op          */
    /* gradient of in 0 made so far by others; absent if none */
    VP_REF_ADD_IN0,
    VP_REF_ADDED, /* in a row's forward_added: what the addition behind it adds */
    VP_REF_G_P0,
    VP_REF_G_P1,
    VP_REF_G_P2,
    VP_REF_G_P3,    /* gradients of parameters that are trained       */
    VP_REF_CONTROL, /* the control block                              */
    /* in rows of what happens to a parameter behind the last backward: it, its gradient, ... */
    VP_REF_PARAM,
    VP_REF_GRAD,
    VP_REF_MASTER,
    VP_REF_STATE0,
    VP_REF_STATE1,
    VP_REF_SCRATCH, /* the optimizer's working memory */
    VP_REF_ANGLES   /* the op's rotary angles                         */
} vp_ref;

/* How a dtype follows from the op's surroundings. */
typedef enum vp_dtype_rule {
    VP_RULE_SAME,    /* as in 0                                    */
    VP_RULE_PROMOTE, /* the wider of in 0 and in 1                 */
    VP_RULE_COMPUTE, /* the semantics' compute type                */
    VP_RULE_F32,
    VP_RULE_BF16,
    VP_RULE_U8
} vp_dtype_rule;

/* A value the op makes for itself. cast_of: it is the referenced value in dtype; where that has
 * the dtype already they are one, and the step that would write it is left out. dropped_of: it is
 * the referenced value with or without dropout; where the op drops nothing they are one, and the
 * step between them is left out. */
typedef struct vp_sem_local {
    const char   *name;
    vp_ref        like;    /* same elements as this value             */
    bool          per_key; /* times the sequence: an attention matrix */
    vp_dtype_rule dtype;
    vp_ref        cast_of, dropped_of;
} vp_sem_local;

enum { VP_SEM_MAX_LOCALS = 8, VP_SEM_MAX_STEPS = 10 };

/* One micro-op. For a kernel, operands are in the kernel's order and it says which are written;
 * for a simulated one, name says what it is and operands before n_reads are read, the others
 * written. */
typedef struct vp_sem_step {
    vp_kernel   kernel; /* VP_N_KERNELS: simulated only */
    const char *name;
    int         n_reads; /* simulated only               */
    vp_ref      operands[VP_MAX_OPERANDS];
} vp_sem_step;

/* What the attributes of an op's kernels follow from. */
typedef struct vp_sem_shape {
    const vp_graph_op *op;
    const vp_sem_step *step; /* of the row */
    int64_t            batch, seq;
    int64_t            rows;              /* tokens: of a chunk where the op runs by chunks */
    int64_t            cols_in, cols_out; /* of in 0 and out 0                              */
    int64_t            cols_out1;         /* of out 1                                       */
    int64_t            ids;               /* rows of the table, or the vocabulary           */
    bool               padded;            /* rows of logits                                 */
} vp_sem_shape;

typedef struct vp_sem_row {
    vp_op op;
    /* gives a call of one of the row's kernels all its attributes, by name; where micro-ops are
     * simulated only NULL */
    void (*attributes)(const vp_sem_shape *x, vp_step *call);
    /* dtypes of outputs (statistics are F32) */
    vp_dtype_rule out[3];
    vp_sem_local  locals[VP_SEM_MAX_LOCALS];
    /* ends at the first step without operands */
    vp_sem_step forward[VP_SEM_MAX_STEPS];
    vp_sem_step backward[VP_SEM_MAX_STEPS];
    /* one step in place of its forward and of an addition behind it that alone reads its out 0, where
     * the addition's result stands for that; ends as the others, and may be absent */
    vp_sem_step forward_added[2];
    /* gradient of every input = gradient of out 0 */
    bool grad_passes;
    /* the backward kernel turns in 0 into its gradient */
    bool grad_replaces_in0;
    /* its parameter gradients are only ever added to */
    bool zero_grads_first;
} vp_sem_row;

/* What happens to a parameter behind the last backward: the terms of the gradients' norm, or the
 * update by its optimizer, for which the kernel of vplan's own stands whoever's the row is. */
typedef struct vp_sem_param_row {
    vp_kernel    update; /* VP_N_KERNELS: no update */
    vp_sem_local locals[VP_SEM_MAX_LOCALS];
    vp_sem_step  steps[VP_SEM_MAX_STEPS]; /* ends at the first step without operands */
} vp_sem_param_row;

/* When gradients of parameters and states of the optimizer have memory. */
typedef enum vp_sem_life {
    VP_SEM_HELD, /* from the start: gradients are written by the first micro-step that has one */
    VP_SEM_MADE  /* gradients from the backward that makes them until they are zeroed, states from
                     * the first update on */
} vp_sem_life;

typedef struct vp_semantics {
    const char *name;
    /* its micro-ops are kernels */
    bool executable;
    /* may run chunked ops over chunks of rows */
    bool chunks;
    /* dtypes of parameters, embedding output, ids */
    vp_dtype          param, compute, index;
    const vp_sem_row *rows;
    int               n_rows;
    /* behind the last backward, in this order; NULL: no clipping */
    const vp_sem_param_row *norm; /* for each parameter                                           */
    const vp_sem_param_row *clip; /* once                                                         */
    const vp_sem_param_row *updates;
    int                     n_updates;
    bool foreach; /* each micro-op of an update for all parameters before its next micro-op   */
    vp_sem_life grads, states;
    /* of parameters' gradients, where they are not fp32 beside every compute type: VP_DTYPE_BF16 */
    vp_dtype gradients;
    bool
        like_param; /* gradients and states are tensors like their parameter; else plan/recipe.h says */
    const struct vp_semantics *base;
} vp_semantics;

const vp_sem_row *vp_semantics_row(const vp_semantics *s, vp_op op);

/* Give a call, whose kernel is set, its attributes by its row. NULL, or the name of one that the
 * row left out. */
const char *vp_sem_attributes(const vp_sem_row *row, const vp_sem_shape *x, vp_step *call);

/* How a micro-op uses operand k, how many it has, and whether it only ends its list. */
vp_access vp_sem_step_access(const vp_sem_step *s, int k);
int       vp_sem_step_n_operands(const vp_sem_step *s);
bool      vp_sem_step_is_end(const vp_sem_step *s);

/* NULL: this trainer has no such optimizer. */
const vp_sem_param_row *vp_semantics_update(const vp_semantics *s, vp_kernel update);

/* vplan's own runtime: parameters and activations in fp32 (multiplied as TF32 or not), bf16 or fp16, gradients of parameters fp32 or
 * beside bf16 bf16 too; attention as flash, or keeping the attention matrix. */
extern const vp_semantics vp_semantics_vplan_fp32, vp_semantics_vplan_fp32_math,
    vp_semantics_vplan_bf16, vp_semantics_vplan_bf16_math, vp_semantics_vplan_bf16_grads,
    vp_semantics_vplan_bf16_grads_math, vp_semantics_vplan_fp16, vp_semantics_vplan_fp16_math,
    vp_semantics_vplan_tf32, vp_semantics_vplan_tf32_math;

#endif
