/* planner/frontier.h: what more or less memory would buy. */
#ifndef VP_PLANNER_FRONTIER_H
#define VP_PLANNER_FRONTIER_H

#include "planner/planner.h"

typedef struct vp_frontier_point {
    int64_t budget_bytes;
    int64_t peak_bytes, device_bytes; /* of the arena; and with what lies outside it */
    double  step_time_s;
} vp_frontier_point;

typedef struct vp_frontier {
    vp_arena          *arena;
    vp_frontier_point *points; /* distinct plans, ascending budget; step times never rise */
    int64_t            n;
} vp_frontier;

/* From the least budget to what the device has, or to where nothing more is gained, in equal
 * steps of bytes; budgets of one plan are one point, the least of them. Release in any case. */
vp_status vp_frontier_trace(const vp_plan_request *request, const vp_plan_answer *answer,
                            vp_frontier *out, vp_err *err);
void      vp_frontier_release(vp_frontier *frontier);

#endif
