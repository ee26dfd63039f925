/* runtime/compare.h: plans trained side by side in one process, a step of each in turns.
 *     vp_compare_opts opts = { .n_rounds = 20, .seed = -1 };
 *     VP_TRY(vp_compare(plans, n, backend, &opts, lanes, err));
 *     vp_lanes_release(lanes, n);
 *
 * On a machine that others use too, two runs of one plan can differ by far more than two plans
 * do. What disturbs the machine for longer than a step disturbs all lanes of a round alike:
 * within a round, steps can be compared. */
#ifndef VP_RUNTIME_COMPARE_H
#define VP_RUNTIME_COMPARE_H

#include "runtime/call_times.h"

/* rounds that do not count: the first meets every page, on a device the second is recorded */
enum { VP_COMPARE_WARM_UP = 2 };

typedef struct vp_compare_opts {
    int64_t n_rounds; /* that count, 1 at least                        */
    int64_t seed;     /* for drawing parameters, -1: each recipe's     */
} vp_compare_opts;

typedef struct vp_lane {
    vp_runtime     *runtime;
    int64_t         executed_bytes;
    vp_step_result *steps;    /* VP_COMPARE_WARM_UP + n_rounds                 */
    double          median_s; /* of the rounds that count                      */
    vp_call_times   times;    /* of these rounds                               */
    /* step / the first lane's step of the same round: median and quartiles */
    double over_first, low, high;
} vp_lane;

/* Train n plans on random tokens, all alive at once: lanes (n) are the caller's, released with
 * vp_lanes_release() whatever this returns. Errors as of vp_runtime_new() and vp_runtime_step();
 * the plan's number, from 1, stands before the message. */
vp_status vp_compare(vp_plan *const *plans, int64_t n, const vp_backend *backend,
                     const vp_compare_opts *opts, vp_lane *lanes, vp_err *err);
void      vp_lanes_release(vp_lane *lanes, int64_t n);

#endif
