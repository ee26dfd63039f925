/* planner/frontier.h: what more or less memory would buy, and what would make an infeasible
 * request fit. */
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
    vp_frontier_point *points; /* ascending budget; step times never rise */
    int64_t            n;
} vp_frontier;

/* From the least budget to what the device has, or to where nothing more is gained, in equal
 * steps of bytes. Release in any case. */
vp_status vp_frontier_trace(const vp_plan_request *request, const vp_plan_answer *answer,
                            vp_frontier *out, vp_err *err);
void      vp_frontier_release(vp_frontier *frontier);

/* ---- what would make an infeasible request fit ---- */

typedef enum vp_change_kind {
    VP_CHANGE_UNPIN,     /* only what frees_pins says          */
    VP_CHANGE_SEQ,       /* shorter sequences                  */
    VP_CHANGE_OPTIMIZER, /* another recipe, by its optimizer   */
    VP_CHANGE_PRECISION  /* another recipe, by its precision   */
} vp_change_kind;

typedef struct vp_change {
    vp_change_kind kind;
    bool           frees_pins;  /* and micro-batch, recompute kind and loss chunk are left free */
    int64_t        seq;         /* of VP_CHANGE_SEQ       */
    vp_optimizer   optimizer;   /* of VP_CHANGE_OPTIMIZER */
    vp_precision   precision;   /* of VP_CHANGE_PRECISION */
    int64_t        needs_bytes; /* least device_bytes with the change */
} vp_change;

enum { VP_MAX_CHANGES = 3 };

/* Why the request does not fit, and changes with which it does, each verified by planning it; the
 * ones that change least first. Where precision, optimizer or attention are free, other changes are
 * tried with those of the plan that needs the fewest bytes. */
typedef struct vp_changes {
    /* parameters, gradients, optimizer states and the batch, which no choice makes smaller; and
     * what the leanest choice needs for activations above them, and outside the arena */
    int64_t   persistent_bytes, activation_bytes, outside_bytes;
    bool      persistent_alone; /* is more than the budget */
    vp_change changes[VP_MAX_CHANGES];
    int64_t   n;
} vp_changes;

vp_status vp_changes_find(const vp_plan_request *request, const vp_plan_answer *answer,
                          vp_changes *out, vp_err *err);

#endif
