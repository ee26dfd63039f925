/* planner/lowering/lowering_internal.h: a block between emission (lower.c) and its two consumers:
 * placement in an arena (place.c), and a whole step in allocation order (training_step.c). */
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
    vp_step     step;     /* args filled for operands outside the block                */
    const char *micro_op; /* for a simulated step                                      */
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
    uint64_t      again; /* ops (bit i: op i) whose forward stands in the backward pass */
} vp_flow;

/* Emission alone: the steps of one template in order, their values without places. */
vp_status vp_lower_flow(vp_arena *arena, const vp_graph *graph, int template_idx,
                        const vp_semantics *semantics, const vp_lower_opts *opts, vp_flow *out,
                        vp_err *err);

/* Let values share storage, find lifetimes, choose offsets (but for what is kept, not where
 * opts->bounds_only), and write program, heights and saved values into *out. */
vp_status vp_place_flow(vp_flow *flow, const vp_semantics *semantics, const vp_lower_opts *opts,
                        vp_lowered *out, vp_err *err);

#endif
