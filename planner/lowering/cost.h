/* planner/lowering/cost.h: seconds of a kernel call.
 *
 * Measured, where the profile has the very call; else scaled from the nearest call it has
 * (plan/profile.h); without a profile what the device's stated rates give, derated by the table of
 * devices/efficiency.h: its times are marked assumed. */
#ifndef VP_PLANNER_LOWERING_COST_H
#define VP_PLANNER_LOWERING_COST_H

#include "devices/devices.h"
#include "models/graph.h"
#include "plan/profile.h"

typedef struct vp_cost {
    const vp_device  *device;
    const vp_profile *profile; /* or NULL */
    /* set to true by the caller, to false by any call not found in the profile, a copy whose link and an
     * update by a card's host whose rate nobody measured */
    bool all_measured;
    /* planner/lowered_store.h: what was lowered and priced at these costs; NULL: nothing is kept */
    struct vp_lowered_store *store;
} vp_cost;

/* A whole number of nanoseconds, so that sums of seconds and the solver's integer costs agree.
 * lacks: vp_kernel_lacks(). */
double vp_cost_seconds(vp_cost *cost, vp_kernel kernel, vp_dtype dtype, const int64_t *ints,
                       uint32_t lacks);

/* Seconds of a lowered step, of whose graph windows are read. An attention whose window is its instance's is priced at the mean
 * over the graph's blocks: blocks stay alike to the planner, and the sum over the chain is
 * right. */
double vp_cost_step(vp_cost *cost, const vp_graph *graph, const vp_step *step);

/* Seconds that kernels lose to a copy_start's copy, where their own processors make it; 0 of all other steps. */
double vp_cost_lost(const vp_cost *cost, const vp_step *step);

#endif
