/* planner/parts.h: integer programs of scenarios taken in parts, where these say more of what a step takes than one does
 * for all chains (planner/streamed_space.h); the others as they are. */
#ifndef VP_PLANNER_PARTS_H
#define VP_PLANNER_PARTS_H

#include "planner/planner.h"
#include "planner/streamed_space.h"

/* As vp_dp_solve(), of the integer program of a scenario or the best of its parts. */
vp_status vp_parts_solve(const vp_plan_request *request, const vp_plan_answer *answer,
                         int64_t scenario_idx, int64_t arena_bytes, int64_t upper_ns,
                         int64_t max_states, int64_t *counts, vp_dp_end *end, vp_err *err);

/* What chains of an integer program take at least that has the items and constant of a scenario's, as a whole or the
 * least of its parts: as vp_dp_bound() says, or upper_ns where going through *n_states_left partial chains (from which
 * they are counted off) proves that much. INT64_MAX: none fits. */
vp_status vp_parts_bound(const vp_plan_request *request, const vp_plan_answer *answer,
                         int64_t scenario_idx, const vp_ilp *ilp, int64_t arena_bytes,
                         int64_t upper_ns, int64_t *n_states_left, int64_t *bound_ns, vp_err *err);

/* The answer's problem with parts in place of programs that are in such and may hold something below
 * upper_ns. sources[i]: of which scenario ilps[i] is, and which part. Lives in arena. */
typedef struct vp_ilp_source {
    int64_t     scenario_idx;
    vp_ilp_part part;
} vp_ilp_source;

vp_status vp_parts_problem(vp_arena *arena, const vp_plan_request *request,
                           const vp_plan_answer *answer, vp_ilp_problem *out,
                           vp_ilp_source **sources, vp_err *err);

#endif
