/* planner/reprice.h: what a plan's steps take by another profile than the one it was made with.
 *     VP_TRY(vp_plan_reprice(plan, "there.json", profile, err));
 *     printf("%g s, %s\n", plan->step_time_s, plan->time_class); */
#ifndef VP_PLANNER_REPRICE_H
#define VP_PLANNER_REPRICE_H

#include "plan/plan.h"
#include "plan/profile.h"

/* Sets seconds of every step, step_time_s and time_class: "measured" where the profile has every
 * call, and the link's rate where there are copies, "assumed" where one is scaled from a call of its kernel.
 * A link or host that it has not measured, or that of another device, leaves the plan's own seconds. Proof, bound and presets stay
 * those of the times that the plan was made with. VP_ERR_INPUT, naming path: the plan calls a
 * kernel of which the profile has no call in that dtype; times are then half set. */
vp_status vp_plan_reprice(vp_plan *plan, const char *path, const vp_profile *profile, vp_err *err);

#endif
