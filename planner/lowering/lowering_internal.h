/* planner/lowering/lowering_internal.h: a block between emission (lower.c) and its two consumers:
 * placement in an arena (place.c), and a whole step in allocation order (tests/lowering/). */
#ifndef VP_PLANNER_LOWERING_INTERNAL_H
#define VP_PLANNER_LOWERING_INTERNAL_H

#include "planner/lowering/lower.h"

/* A value of the lowered block. Several values share one storage where a kernel works in place. */
typedef struct vp_value {
    const char  *name;
    vp_component component;
    vp_dtype     dtype;
    int64_t      bytes;
    vp_place     place;
    bool         forward; /* made in the forward pass (or the block's input) */
    int          maker;   /* 1 + the op whose first output it is; 0: none    */
    int64_t      storage; /* set by place.c */
} vp_value;

/* A step whose operands are values, or arguments outside the block. */
typedef struct vp_flow_step {
    vp_step     step;      /* args filled for operands outside the block                */
    const char *micro_op;  /* for a simulated step                                      */
    bool        in_middle; /* of the chunk that stands for others                       */
    int         n_operands;
    int64_t     value[VP_MAX_OPERANDS]; /* -1: none, or outside the block                 */
    vp_access   access[VP_MAX_OPERANDS];
} vp_flow_step;

typedef struct vp_flow {
    vp_arena     *arena;
    vp_value     *values;
    int64_t       n_values, cap_values;
    vp_flow_step *steps[2]; /* VP_PASS_FORWARD, VP_PASS_BACKWARD */
    int64_t       n_steps[2], cap_steps[2];
    int64_t       in, out, grad_out, grad_in; /* values; -1: none */
    vp_dtype      out_dtype;
    const bool   *again; /* per op: its forward stands in the backward pass, too */
    int64_t n_middle;    /* chunks that the one of steps in_middle stands for; 0: there is none */
} vp_flow;

/* Emission alone: the steps of one template in order, their values without places. */
vp_status vp_lower_flow(vp_arena *arena, const vp_graph *graph, int template_idx,
                        const vp_semantics *semantics, const vp_lower_opts *opts, vp_flow *out,
                        vp_err *err);

/* Leaves out the steps whose results neither a later step nor anybody outside needs; in backward these
 * are parts of what is made again. */
vp_status vp_flow_drop_dead(vp_flow *f, vp_err *err);

/* Let values share storage, find lifetimes, choose offsets (but for what is kept, not where
 * opts->heights), and write program, heights and saved values into *out. */
vp_status vp_place_flow(vp_flow *flow, const vp_semantics *semantics, const vp_lower_opts *opts,
                        vp_lowered *out, vp_err *err);

/* ---- a lowering at work: lower.c on lower_gradients.c on lower_steps.c ---- */

typedef struct vp_lowering {
    vp_flow              flow;
    const vp_graph      *graph;
    const vp_template   *t;
    int                  template_idx;
    const vp_semantics  *sem;
    const vp_lower_opts *opts;
    vp_arena            *arena;

    vp_dtype *dtype;                        /* of each tensor                               */
    int64_t  *made[2];                      /* value of a tensor in forward, in backward; -1 */
    int64_t (*local[2])[VP_SEM_MAX_LOCALS]; /* value of an op's local                       */
    bool    *wanted;                        /* of each tensor: vp_wanted_gradients()        */
    bool    *again;                         /* ops whose forward was emitted in backward    */
    int64_t *grad;                          /* value holding a tensor's gradient so far; -1 */
    /* that value is this tensor's alone: more may be added into it */
    bool *own_grad;
    bool *wrote_grad; /* own parameters whose gradient has been written */
    /* what an op sums of its parameters' gradients apart from them, see vp_gradient_sums_apart(); -1 */
    int64_t (*grad_sum)[VP_OP_MAX_PARAMS];
    int64_t row_first, n_rows; /* the chunk at hand; all rows outside chunks   */
    int64_t n_tokens;
    bool    overflow;
} vp_lowering;

typedef struct vp_operand {
    int64_t value; /* -1: arg */
    vp_arg  arg;
} vp_operand;

#define VP_ABSENT ((vp_operand){.value = -1, .arg = {.space = VP_SPACE_NONE}})

int64_t         vp_lowering_value(vp_lowering *l, vp_pass pass, vp_value v); /* a new one */
vp_flow_step   *vp_lowering_step(vp_lowering *l, vp_pass pass);
const vp_param *vp_lowering_param(const vp_lowering *l, const vp_param_ref *p);
bool            vp_lowering_trains(const vp_lowering *l, const vp_param_ref *p);
vp_operand      vp_lowering_param_operand(const vp_graph_op *op, int k, bool gradient);
void            vp_lowering_set_operand(vp_flow_step *f, int k, vp_operand o, vp_access access);

/* The dtype of a call of a kernel. apart: with gradients of parameters in fp32 whatever the semantics
 * says. */
vp_dtype vp_lowering_dtype(const vp_lowering *l, vp_kernel kernel, bool apart);

/* Whether an op sums its parameters' gradients apart from them, and where: then added by
 * vp_gradient_add_sums(), after its last chunk. */
bool       vp_gradient_sums_apart(const vp_lowering *l, const vp_graph_op *op);
vp_operand vp_gradient_sum(vp_lowering *l, int op_idx, int k);
void       vp_gradient_add_sums(vp_lowering *l, int op_idx);

/* What an op only ever adds to begins as zero; so do gradients of parameters that no op uses. */
void          vp_gradient_zeros(vp_lowering *l, int op_idx);
void          vp_gradient_of_unused(vp_lowering *l);
vp_accumulate vp_gradient_accumulation(vp_lowering *l, const vp_graph_op *op, const vp_sem_row *row,
                                       const vp_param_ref *p);

#endif
