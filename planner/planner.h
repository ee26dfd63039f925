/* planner/planner.h: choose the fastest plan that fits a budget.
 *     vp_plan_request request = { .model = model, .device = &device, .recipe = recipe, .seq = 256, .global_batch = 8,
 *                                 .budget_bytes = 2 * VP_GIB, .loss_chunk = VP_CHUNK_ANY, .recompute = VP_RECOMPUTE_ANY };
 *     VP_TRY(vp_planner_run(&request, &answer, err));
 *
 * The space: recompute {none, attention, mlp, full} x micro-batch (every divisor of the global batch) x tokens a loss chunk
 * (all, or 256 times a power of two), all lowered and priced, none left out. Ties go to fewer bytes, then the larger
 * micro-batch, then the first in that order. The answer is the best of this space, but nothing proves that no plan
 * outside it is better: its proof status is "fallback". Same inputs, same plan, byte for byte. */
#ifndef VP_PLANNER_PLANNER_H
#define VP_PLANNER_PLANNER_H

#include "planner/assemble.h"

#define VP_RECOMPUTE_ANY VP_N_RECOMPUTES
#define VP_CHUNK_ANY (-1)
#define VP_CHUNK_CHUNKED (-2)   /* some chunk: anything but all at once */

typedef struct vp_plan_request {
    const vp_model   *model;
    const vp_device  *device;
    const vp_profile *profile;      /* or NULL */
    vp_recipe         recipe;
    int64_t           seq, global_batch;
    int64_t           budget_bytes; /* of device_bytes */
    /* pins */
    int64_t           micro_batch;  /* 0: free */
    vp_recompute      recompute;    /* VP_RECOMPUTE_ANY: free */
    int64_t           loss_chunk;   /* tokens; 0: all at once; VP_CHUNK_ANY, VP_CHUNK_CHUNKED */
} vp_plan_request;

typedef struct vp_candidate {
    vp_scenario scenario;
    vp_figures  figures;
    bool        fits;
} vp_candidate;

typedef struct vp_plan_answer {
    vp_arena     *arena;
    vp_candidate *candidates;       /* fastest first; those that do not fit behind those that do */
    int64_t       n_candidates;
    int64_t       n_fit;
    int64_t       least_budget_bytes;
    const vp_candidate *least;      /* the candidate that needs it */
    vp_preset_result *presets;      /* for each recompute kind, the loss all at once: the fastest that fits, else the smallest */
    int64_t           n_presets;
} vp_plan_answer;

/* VP_OK: the space was searched, n_fit says with what result. VP_ERR_USAGE: a pin outside the space (micro-batch does not
 * divide the global batch, sequence longer than the model's positions). Release the answer in any case. */
vp_status vp_planner_run(const vp_plan_request *request, vp_plan_answer *answer, vp_err *err);
void      vp_plan_answer_release(vp_plan_answer *answer);

/* The whole plan of one candidate, with the answer's presets and least budget in it, for request->budget_bytes. */
vp_status vp_planner_make(const vp_plan_request *request, const vp_plan_answer *answer, const vp_candidate *candidate, vp_plan **out,
                          vp_err *err);

#endif
