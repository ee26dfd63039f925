/* planner/semantics.h: what a trainer does with a graph, as data.
 *
 * A *semantics* is a table of rows, one for each graph op (and precision policy where that matters). A row lists
 * the micro-ops of the op's forward and backward: which values each reads and writes, which temporaries exist.
 * What is saved for backward is not written down anywhere: it is what backward steps read. lower() works from
 * rows alone and never asks whose they are.
 *
 *     gelu, vplan:    forward  activation_fwd(x -> y)        backward  activation_bwd(dy, x -> dx)
 *     gelu, eager:    forward  pow, mul, add, mul, tanh, ... backward  many steps that read four values
 *
 * The micro-ops of the semantics "vplan" are kernels (core/op.h) that the runtime executes; those of other
 * trainers are simulated only. */
#ifndef VP_PLANNER_SEMANTICS_H
#define VP_PLANNER_SEMANTICS_H

#include "core/op.h"
#include "models/graph.h"

#include <stdbool.h>

/* A value as seen from one op. */
typedef enum vp_ref {
    VP_REF_NONE,
    VP_REF_IN0, VP_REF_IN1, VP_REF_IN2, VP_REF_IN3, /* its inputs                              */
    VP_REF_OUT0, VP_REF_OUT1, VP_REF_OUT2,   /* its outputs                                    */
    VP_REF_P0, VP_REF_P1,                    /* its parameters                                 */
    VP_REF_L0, VP_REF_L1, VP_REF_L2, VP_REF_L3, VP_REF_L4, VP_REF_L5, VP_REF_L6, VP_REF_L7, /* the row's locals */
    VP_REF_G_OUT0,                           /* gradient of out 0                              */
    VP_REF_G_IN0, VP_REF_G_IN1, VP_REF_G_IN2, /* gradients of inputs, made by this op          */
    VP_REF_ADD_IN0,                          /* gradient of in 0 made so far by others; absent if none */
    VP_REF_G_P0, VP_REF_G_P1,                /* gradients of parameters                        */
    VP_REF_CONTROL,                          /* the control block                              */
    VP_REF_ANGLES                            /* the op's rotary angles                         */
} vp_ref;

/* How a dtype follows from the op's surroundings. */
typedef enum vp_dtype_rule {
    VP_RULE_SAME,       /* as in 0                                    */
    VP_RULE_PROMOTE,    /* the wider of in 0 and in 1                 */
    VP_RULE_COMPUTE,    /* the semantics' compute type                */
    VP_RULE_F32,
    VP_RULE_BF16,
    VP_RULE_U8
} vp_dtype_rule;

/* A value the op makes for itself. cast_of: it is the referenced value in dtype; where that has the dtype already
 * they are one, and the step that would write it is left out. */
typedef struct vp_sem_local {
    const char   *name;
    vp_ref        like;      /* same elements as this value             */
    bool          per_key;   /* times the sequence: an attention matrix */
    vp_dtype_rule dtype;
    vp_ref        cast_of;
} vp_sem_local;

enum { VP_SEM_MAX_LOCALS = 8, VP_SEM_MAX_STEPS = 10 };

/* One micro-op. For a kernel, operands are in the kernel's order and it says which are written; for a
 * simulated one, name says what it is and operands before n_reads are read, the others written. */
typedef struct vp_sem_step {
    vp_kernel   kernel;      /* VP_N_KERNELS: simulated only */
    const char *name;
    int         n_reads;     /* simulated only               */
    vp_ref      operands[VP_MAX_OPERANDS];
} vp_sem_step;

typedef struct vp_sem_row {
    vp_op         op;
    vp_dtype_rule out[3];                           /* dtypes of outputs (statistics are F32)       */
    vp_sem_local  locals[VP_SEM_MAX_LOCALS];
    vp_sem_step   forward[VP_SEM_MAX_STEPS];        /* ends at the first step without operands      */
    vp_sem_step   backward[VP_SEM_MAX_STEPS];
    bool          grad_passes;                      /* gradient of every input = gradient of out 0  */
    bool          grad_replaces_in0;                /* the backward kernel turns in 0 into its gradient */
    bool          zero_grads_first;                 /* its parameter gradients are only ever added to */
} vp_sem_row;

typedef struct vp_semantics {
    const char       *name;
    bool              executable;                   /* its micro-ops are kernels                     */
    bool              chunks;                       /* may run chunked ops over chunks of rows       */
    vp_dtype          param, compute, index;        /* dtypes of parameters, embedding output, ids   */
    const vp_sem_row *rows;
    int               n_rows;
    const struct vp_semantics *base;                /* has the rows that are not here; or NULL       */
} vp_semantics;

const vp_sem_row *vp_semantics_row(const vp_semantics *s, vp_op op);

/* vplan's own runtime: parameters and activations in fp32 or bf16; attention as flash, or keeping the attention matrix. */
extern const vp_semantics vp_semantics_vplan_fp32, vp_semantics_vplan_fp32_math, vp_semantics_vplan_bf16, vp_semantics_vplan_bf16_math;

/* A small subset of transformers' eager GPT-2 with flash attention, in pure bf16 and under autocast to bf16: proof that
 * the interface carries a second meaning. Not offered by --trainer. */
extern const vp_semantics vp_semantics_hf_proof_bf16, vp_semantics_hf_proof_autocast;

#endif
