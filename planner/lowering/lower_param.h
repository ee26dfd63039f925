/* planner/lowering/lower_param.h: what a trainer does with one parameter behind the last backward,
 * as steps.
 *     vp_param_opts opts = {.recipe = &recipe, .control_idx = 0, .scratch_idx = -1};
 *     vp_lower_param(semantics, VP_PHASE_UPDATE, &t->params[k], k, &opts, &steps);
 *
 * The rows say which micro-ops there are, a kernel's attributes follow from the parameter. An operand
 * that the recipe or the parameter's shape does not have is left out. */
#ifndef VP_PLANNER_LOWERING_LOWER_PARAM_H
#define VP_PLANNER_LOWERING_LOWER_PARAM_H

#include "plan/plan.h"
#include "planner/lowering/semantics.h"

typedef enum vp_param_phase {
    VP_PHASE_NORM,   /* the terms of its gradient's norm        */
    VP_PHASE_CLIP,   /* once, of no parameter                   */
    VP_PHASE_UPDATE, /* by its optimizer                        */
    VP_N_PARAM_PHASES
} vp_param_phase;

typedef struct vp_param_opts {
    const vp_recipe *recipe;
    int64_t          control_idx, scratch_idx; /* of the plan's fixed buffers */
    /* parameters of one block: random numbers do not depend on how blocks are grouped */
    int64_t params_per_block;
} vp_param_opts;

/* A value that a row makes for itself. */
typedef struct vp_param_local {
    const char *name;
    vp_dtype    dtype;
    int64_t     bytes;
} vp_param_local;

typedef struct vp_param_steps {
    int     n;
    vp_step steps[VP_SEM_MAX_STEPS]; /* operands outside the row are arguments of these           */
    const char
             *micro_ops[VP_SEM_MAX_STEPS]; /* of simulated steps                                  */
    int       n_operands[VP_SEM_MAX_STEPS];
    vp_access access[VP_SEM_MAX_STEPS][VP_MAX_OPERANDS];
    int local[VP_SEM_MAX_STEPS][VP_MAX_OPERANDS]; /* which of the row's; -1: an argument      */
    vp_param_local locals[VP_SEM_MAX_LOCALS];
} vp_param_steps;

/* param: NULL in VP_PHASE_CLIP; idx: its place in the template. False: the semantics has no such row,
 * and *out is empty. */
bool vp_lower_param(const vp_semantics *semantics, vp_param_phase phase, const vp_param *param,
                    int64_t idx, const vp_param_opts *opts, vp_param_steps *out);

#endif
