/* planner/planner_internal.h: a block between emission (lower.c) and placement (place.c). */
#ifndef VP_PLANNER_INTERNAL_H
#define VP_PLANNER_INTERNAL_H

#include "planner/lower.h"

/* A value of the lowered block. Several values share one storage where a kernel works in place. */
typedef struct vp_value {
    const char  *name;
    vp_component component;
    vp_dtype     dtype;
    int64_t      bytes;
    vp_place     place;
    bool         forward;      /* made in the forward pass (or the block's input) */
    int64_t      storage;      /* set by place.c */
} vp_value;

/* A step whose operands are values, or arguments outside the block. */
typedef struct vp_flow_step {
    vp_step     step;          /* args filled for operands outside the block                */
    const char *micro_op;      /* for a simulated step                                      */
    int         n_operands;
    int64_t     value[VP_MAX_OPERANDS];   /* -1: none, or outside the block                 */
    vp_access   access[VP_MAX_OPERANDS];
} vp_flow_step;

typedef struct vp_flow {
    vp_arena     *arena;
    vp_value     *values;
    int64_t       n_values, cap_values;
    vp_flow_step *steps[2];    /* VP_PASS_FORWARD, VP_PASS_BACKWARD */
    int64_t       n_steps[2], cap_steps[2];
    int64_t       in, out, grad_out, grad_in; /* values; -1: none */
} vp_flow;

/* Drop forward steps nobody needs, let values share storage, find lifetimes, choose offsets (bounds_only: but for what stays between the
 * passes), and write program, heights and saved values into *out. */
vp_status vp_place_flow(vp_flow *flow, const vp_semantics *semantics, bool bounds_only, vp_lowered *out, vp_err *err);

#endif
