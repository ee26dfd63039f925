/* planner/space_settings.h: micro-batch, loss chunk and what lies in host memory: the settings of one semantics that
 * a request leaves free, with what lies outside the blocks in each. */
#ifndef VP_PLANNER_SPACE_SETTINGS_H
#define VP_PLANNER_SPACE_SETTINGS_H

#include "planner/blocks.h"
#include "planner/space.h"

typedef struct vp_setting {
    int64_t    micro_batch, loss_chunk;
    vp_offload offload;
    vp_blocks *blocks;
    vp_figures figures[VP_N_OPTIMIZERS]; /* by recipe */
} vp_setting;

typedef struct vp_settings {
    vp_setting *at;
    int64_t     n, cap;
} vp_settings;

/* The recipes of one precision and dtype of gradients: the one asked for, or every optimizer's. */
typedef struct vp_recipes {
    vp_recipe of[VP_N_OPTIMIZERS];
    int64_t   n;
} vp_recipes;

/* All that there are, in the answer's arena, with their blocks; like, extent and answer->cut as for
 * vp_space_list(). */
vp_status vp_settings_list(const vp_plan_request *request, const vp_plan_answer *like,
                           vp_plan_answer *answer, vp_cost *cost, vp_space_extent extent,
                           const vp_recipes *from, vp_attention_kind attention, vp_settings *out,
                           vp_err *err);

/* Those of one recipe and micro-batch, in few chunks. */
vp_status vp_settings_of(const vp_plan_request *request, vp_plan_answer *answer, vp_cost *cost,
                         const vp_recipe *recipe, vp_attention_kind attention, vp_blocks *blocks,
                         vp_settings *out, vp_err *err);

/* A setting with one of its recipes, every block as the request's pins have it. */
void vp_setting_scenario(const vp_plan_request *request, const vp_setting *setting,
                         const vp_recipe *recipe, vp_attention_kind attention, vp_scenario *out);

/* What lies outside the blocks of a setting, with each recipe. */
vp_status vp_setting_figures(const vp_plan_request *request, vp_cost *cost, const vp_recipes *from,
                             vp_attention_kind attention, vp_setting *setting, vp_err *err);

/* The integer program of single blocks alone, or with segments. */
vp_ilp vp_setting_ilp(const vp_plan_request *request, const vp_figures *figures,
                      const vp_blocks *blocks, bool alone);

#endif
