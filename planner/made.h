/* planner/made.h: the plan of a candidate, made by a second core while others are looked for.
 *     made = vp_made_offer(arena, &request, &best);
 *     ...
 *     VP_TRY(vp_made_take(made, &request, &candidate, &cost, &plan, err));
 *     vp_made_drop(made); */
#ifndef VP_PLANNER_MADE_H
#define VP_PLANNER_MADE_H

#include "planner/planner.h"

typedef struct vp_made vp_made;

/* It may be begun from now on, the request borrowed until it is dropped. NULL: out of memory. */
vp_made *vp_made_offer(vp_arena *arena, const vp_plan_request *request, const vp_candidate *of);

/* What vp_assemble() makes of a candidate: what was begun, if it is of this one, else made here. made: NULL, or what was
 * offered. */
vp_status vp_made_take(vp_made *made, const vp_plan_request *request, const vp_candidate *of,
                       vp_cost *cost, vp_plan **out, vp_err *err);

/* Before the arena goes; NULL: nothing. */
void vp_made_drop(vp_made *made);

#endif
