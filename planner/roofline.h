/* planner/roofline.h: where a plan's seconds go, by what its kernel calls do, and what share of the
 * device's peak that makes.
 *     vp_plan_roofline r;
 *     vp_plan_roofline_make(plan, &device, &r);
 *     printf("%.0f %% MFU\n", 100 * r.mfu);
 *
 * MFU (Chowdhery et al. 2022, arXiv:2204.02311, appendix B): the operations that the model asks for,
 * over what the device could have done in the step. Asked for are a product's forward and the same
 * for each of its two gradients (one, where its weight is frozen), and of attention's two products with the keys a query sees three
 * times the forward; what a plan computes again does not count. For a decoder
 * 6 N + 6 L C T a token, N with the head and without the embedding's look-up. */
#ifndef VP_PLANNER_ROOFLINE_H
#define VP_PLANNER_ROOFLINE_H

#include "devices/efficiency.h"
#include "plan/plan.h"

typedef struct vp_roofline_sum {
    int64_t n_calls;
    double  flop, bytes;
    double  seconds;                       /* as the plan's steps say */
    double  compute_s, memory_s, launch_s; /* as devices/efficiency.h has them */
} vp_roofline_sum;

typedef struct vp_plan_roofline {
    vp_roofline_sum works[VP_N_WORKS]; /* of one optimizer step */
    double          seconds;           /* all of them; copies run beside the others */
    double          model_flop;
    double peak_flop_per_s; /* at the recipe's precision; 0: a CPU, whose peak nobody states */
    double mfu;             /* 0 without a peak */
} vp_plan_roofline;

/* device: the plan's. */
void vp_plan_roofline_make(const vp_plan *plan, const vp_device *device, vp_plan_roofline *out);

/* What most of a sum's seconds are spent on: "compute", "memory", "launch", or "link". */
const char *vp_roofline_bound(const vp_plan_roofline *r, vp_work work);

#endif
