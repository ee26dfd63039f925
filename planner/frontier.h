/* planner/frontier.h: what more or less memory would buy, and what would make an infeasible request fit. */
#ifndef VP_PLANNER_FRONTIER_H
#define VP_PLANNER_FRONTIER_H

#include "core/text.h"
#include "planner/planner.h"

typedef struct vp_frontier_point {
    int64_t budget_bytes, peak_bytes;
    double  step_time_s;
} vp_frontier_point;

typedef struct vp_frontier {
    vp_arena          *arena;
    vp_frontier_point *points;  /* ascending budget; step times never rise */
    int64_t            n;
} vp_frontier;

/* From the least budget to what the device has, or to where nothing more is gained, in equal steps of bytes. Release in any case. */
vp_status vp_frontier_trace(const vp_plan_request *request, const vp_plan_answer *answer, vp_frontier *out, vp_err *err);
void      vp_frontier_release(vp_frontier *frontier);

/* A picture of it: step time over budget, the request's budget marked. False: out of memory. */
bool vp_frontier_svg(const vp_plan_request *request, const vp_frontier *frontier, vp_text *out);

/* Changes that make an infeasible request fit its budget, each verified by planning it; the ones that change least first. */
typedef struct vp_change {
    const char *text;         /* "--optimizer sgd" */
    int64_t     needs_bytes;  /* least device_bytes with the change */
} vp_change;

enum { VP_MAX_CHANGES = 3 };

typedef struct vp_changes {
    vp_arena   *arena;
    const char *binding;      /* the row that is violated, in words */
    vp_change   changes[VP_MAX_CHANGES];
    int64_t     n;
} vp_changes;

vp_status vp_changes_find(const vp_plan_request *request, const vp_plan_answer *answer, vp_changes *out, vp_err *err);
void      vp_changes_release(vp_changes *changes);

#endif
