/* trainers/torch/optimizer_settings.h: an optimizer and what it is told, in one word.
 *     VP_TRY(vp_optimizer_settings_parse("apollo_adamw:rank=256,targets=attn+mlp", &settings, err));
 *     if (vp_optimizer_projects(&settings, "model.layers.0.mlp.up_proj")) ...
 *
 * Keys are those of transformers' optim_args, and targets, its optim_target_modules. */
#ifndef VP_TRAINERS_TORCH_OPTIMIZER_SETTINGS_H
#define VP_TRAINERS_TORCH_OPTIMIZER_SETTINGS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VP_OPTIMIZER_NAME = 40, VP_OPTIMIZER_TARGETS = 160 };

/* Which side of a matrix is projected: std the longer one, so that the projection is small. */
typedef enum vp_projection {
    VP_PROJECT_STD,
    VP_PROJECT_REVERSE,
    VP_PROJECT_LEFT,
    VP_PROJECT_RIGHT
} vp_projection;

typedef struct vp_optimizer_settings {
    char          name[VP_OPTIMIZER_NAME];
    int64_t       rank; /* 0: of an optimizer that projects nothing */
    vp_projection projection;
    bool          by_svd;    /* GaLore: a projection is singular vectors of the gradient */
    bool          by_tensor; /* APOLLO: one scale a matrix, not one a channel */
    char          targets[VP_OPTIMIZER_TARGETS]; /* "all-linear", or modules joined by '+' */
} vp_optimizer_settings;

/* VP_ERR_INPUT: a key or value that the optimizer does not take, or what was not counted; targets are missing. The name is not
 * looked at. */
vp_status vp_optimizer_settings_parse(const char *word, vp_optimizer_settings *out, vp_err *err);

/* Of "galore_adamw:rank=8" the letters of its name. */
size_t vp_optimizer_name_length(const char *word);

/* Whether a linear layer of this name is among the targets, as transformers' check_target_module_exists() finds: a target is a
 * part of the name, or a pattern that all of it matches. */
bool vp_optimizer_projects(const vp_optimizer_settings *settings, const char *module);

#endif
