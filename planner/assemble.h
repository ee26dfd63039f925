/* planner/assemble.h: one choice made into a whole plan.
 *
 *     memory "device":  control | tokens, labels | parameters | gradients | optimizer states | activation stack
 *
 * Everything below the stack is persistent. Instance i's base in the stack is the sum of the kept bytes of the
 * instances before it, so the arena's height is
 *
 *     peak = persistent + max over i of (sum of kept_j, j < i) + max(forward height_i, backward height_i)
 *
 * the fold of the instances in chain order. */
#ifndef VP_PLANNER_ASSEMBLE_H
#define VP_PLANNER_ASSEMBLE_H

#include "core/plan.h"
#include "models/model.h"
#include "planner/cost.h"

typedef enum vp_recompute {
    VP_RECOMPUTE_NONE,
    VP_RECOMPUTE_ATTENTION, /* norm, QKV and attention of every block         */
    VP_RECOMPUTE_MLP,       /* norm, up-projection and activation             */
    VP_RECOMPUTE_FULL,      /* a block keeps only its input                   */
    VP_N_RECOMPUTES
} vp_recompute;

const char  *vp_recompute_name(vp_recompute r);
vp_recompute vp_recompute_by_name(const char *name); /* VP_N_RECOMPUTES if none */

/* One configuration: what is asked for and what is chosen. */
typedef struct vp_scenario {
    vp_recipe    recipe;
    int64_t      seq, global_batch;
    int64_t      micro_batch;      /* divides global_batch */
    vp_recompute recompute;
    int64_t      loss_chunk;       /* tokens, a multiple of 256; 0: all at once */
} vp_scenario;

/* A checked plan of exactly this scenario, whatever it needs: budget_bytes is set to its device_bytes. The plan is the
 * caller's; device, profile and model are borrowed for the call. VP_ERR_INPUT: more bytes than 64 bits count. */
vp_status vp_assemble(const vp_model *model, const vp_scenario *scenario, vp_cost *cost, vp_plan **out, vp_err *err);

/* The same without building the plan: its peak and step time. Cheap; for search. */
typedef struct vp_figures {
    int64_t peak_bytes, device_bytes;
    double  step_time_s;
} vp_figures;
vp_status vp_assemble_figures(const vp_model *model, const vp_scenario *scenario, vp_cost *cost, vp_figures *out, vp_err *err);

#endif
