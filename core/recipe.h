/* core/recipe.h: what the person wants trained, independent of how. A plan carries a copy and never
 * changes it.
 *     vp_recipe recipe = vp_recipe_default();
 *     VP_TRY(vp_recipe_read("recipe.json", &recipe, err));
 */
#ifndef VP_CORE_RECIPE_H
#define VP_CORE_RECIPE_H

#include "core/err.h"
#include "core/json.h"

#include <stdint.h>

typedef enum vp_optimizer { VP_OPT_ADAMW, VP_OPT_SGD, VP_N_OPTIMIZERS } vp_optimizer;
typedef enum vp_precision { VP_PREC_FP32, VP_N_PRECISIONS } vp_precision;
typedef enum vp_schedule { VP_SCHED_CONSTANT, VP_SCHED_LINEAR, VP_SCHED_COSINE, VP_N_SCHEDULES } vp_schedule;
typedef enum vp_data_kind { VP_DATA_BYTES, VP_DATA_TOKENS_U16, VP_DATA_TOKENS_I32, VP_N_DATA_KINDS } vp_data_kind;

/* AdamW is decoupled (Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2, as PyTorch orders it);
 * SGD has no momentum and PyTorch's coupled decay. Decay applies to parameters with two or more
 * dimensions. Gradients are the mean over all targets of the global batch, then scaled by
 * min(1, clip_norm / (norm + 1e-6)); clip_norm 0: no clipping. */
typedef struct vp_recipe {
    vp_optimizer optimizer;
    double       lr, beta1, beta2, eps, weight_decay;
    double       clip_norm;
    vp_schedule  schedule;
    int64_t      warmup_steps, total_steps; /* total 0: the run's own number of steps */
    double       min_lr_ratio;
    int64_t      seed;
    vp_precision precision;
    double       dropout;
    vp_data_kind data_kind;
} vp_recipe;

vp_recipe vp_recipe_default(void);

/* Replace *recipe by the file's; a key left out keeps its default, an unknown one is VP_ERR_INPUT. */
vp_status vp_recipe_read(const char *path, vp_recipe *recipe, vp_err *err);
vp_status vp_recipe_from_json(const vp_json_node *node, vp_recipe *recipe, vp_err *err);
json_t   *vp_recipe_to_json(const vp_recipe *recipe); /* a new reference, or NULL: out of memory */

/* Learning rate of optimizer step `step` (from 0): linear warm-up over warmup_steps to lr, then constant,
 * or falling linearly or as a half cosine to lr * min_lr_ratio at total_steps. n_steps stands in for a
 * total of 0. */
double vp_recipe_lr(const vp_recipe *recipe, int64_t step, int64_t n_steps);

/* Words of the file and the command line. The *_by_name calls return the count for an unknown word. */
const char  *vp_optimizer_name(vp_optimizer o);
const char  *vp_precision_name(vp_precision p);
vp_optimizer vp_optimizer_by_name(const char *name);
vp_precision vp_precision_by_name(const char *name);

/* Optimizer states per parameter, each of four bytes: AdamW has two moments, SGD none. */
int         vp_optimizer_n_states(vp_optimizer o);
const char *vp_optimizer_state_name(vp_optimizer o, int state); /* "exp_avg" */

#endif
