/* planner/remake.h: a plan that was edited, against the one that its own model, recipe and decisions
 * make.
 *     if (!plan->is_signed)
 *         VP_TRY(vp_plan_check_remade(plan, &root, err));
 *
 * The plan's checker knows kernels and no model: a step of another epsilon, a weight read the other
 * way round, a residual taken from elsewhere are steps to it. Here the plan's config is read, its
 * recipe and decisions lowered anew, and whatever is executed must be the same. What may differ moves
 * no bit: offsets, seconds, budget, prediction, proof, presets. So a recipe can be changed by hand
 * where the whole plan follows. */
#ifndef VP_PLANNER_REMAKE_H
#define VP_PLANNER_REMAKE_H

#include "base/json.h"
#include "plan/plan.h"
#include "planner/scenario.h"

/* The scenario of this model that a plan says it is. root: an object with its decisions, settings and
 * fixed buffers, where errors are located. VP_ERR_INPUT: the model cannot have it. */
vp_status vp_plan_scenario(const vp_plan *plan, const vp_json_node *root, const vp_model *model,
                           vp_scenario *out, vp_err *err);

/* A checked plan of the same config, recipe, decisions and settings; the caller's. VP_ERR_INPUT,
 * located in the document that plan was read from (root): these make no plan. */
vp_status vp_plan_remake(const vp_plan *plan, const vp_json_node *root, vp_plan **out, vp_err *err);

/* VP_ERR_INPUT, located likewise: the first value that executes otherwise. */
vp_status vp_plan_check_remade(const vp_plan *plan, const vp_json_node *root, vp_err *err);

#endif
