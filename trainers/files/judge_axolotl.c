/* trainers/files/judge_axolotl.c: what axolotl refuses of more than two keys together, which no rule can say. Read in 0.21
 * (axolotl/utils/schemas/validation.py). */
#include "trainers/files/check_internal.h"

#include <string.h>

#define QUANTISED_PAIRS "axolotl refuses pairs over quantised weights under FSDP2"

static const struct {
    const char *key, *is, *other, *other_is, *third, *third_is;
    bool        of_several; /* cards */
    const char *message, *instead;
} refused[] = {
    /* check_fsdp2_base_model_quant_rl() */
    {"load_in_4bit", "=true", "rl", "=dpo|kto|orpo|ipo", "fsdp_config", "set", false,
     QUANTISED_PAIRS, "deepspeed"},
    {"load_in_8bit", "=true", "rl", "=dpo|kto|orpo|ipo", "fsdp_config", "set", false,
     QUANTISED_PAIRS, "deepspeed"},
    /* check_rl_config_gradient_checkpointing() */
    {"gradient_checkpointing_kwargs.use_reentrant", "=true", "rl", "set", "adapter", "=qlora", true,
     "axolotl refuses it for pairs beside qlora on several cards", "use_reentrant: false"},
};

static bool holds(const vp_checked *c, const vp_checked_file *file, size_t i)
{
    const char *world = c->settings.value[VP_SETTING_WORLD];

    return vp_check_holds(c, file, refused[i].key, refused[i].is) &&
           vp_check_holds(c, file, refused[i].other, refused[i].other_is) &&
           vp_check_holds(c, file, refused[i].third, refused[i].third_is) &&
           (!refused[i].of_several || (world && strcmp(world, "1") != 0));
}

void vp_judge_axolotl(vp_checked *c)
{
    for (int f = 0; f < c->n_files; f++)
        for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
            if (c->files[f].doc && c->files[f].dialect == &vp_dialect_axolotl &&
                holds(c, &c->files[f], i))
                vp_find(c, &c->files[f], VP_ERROR,
                        vp_value_at(c->files[f].doc->root, refused[i].key), refused[i].key,
                        refused[i].instead, "%s", refused[i].message);
}
