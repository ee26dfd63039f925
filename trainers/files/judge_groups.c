/* trainers/files/judge_groups.c: completions of one prompt are a group, and GRPOConfig wants whole groups in what a step learns from:
 * per_device_train_batch_size x gradient_accumulation_steps x processes is a multiple of num_generations. Read in
 * trl/trainer/grpo_config.py of 1.16, __post_init__(). */
#include "trainers/files/check_internal.h"

#include <stdlib.h>
#include <string.h>

static int64_t number(const vp_checked *c, vp_setting setting)
{
    const char *text = c->settings.value[setting];

    return text && !c->unread[setting] ? strtoll(text, NULL, 10) : 0;
}

static void judge_file(vp_checked *c, const vp_checked_file *file)
{
    char            text[64];
    const char     *said  = vp_effective(c, file, "num_generations", text, sizeof text);
    const vp_value *at    = vp_value_at(file->doc->root, "num_generations");
    int64_t         group = said ? strtoll(said, NULL, 10) : 0;
    int64_t micro = number(c, VP_SETTING_MICRO_BATCH), times = number(c, VP_SETTING_ACCUMULATION),
            world = number(c, VP_SETTING_WORLD);
    bool is_said  = c->world || (world > 0 && !c->by_default[VP_SETTING_WORLD]);

    world = world ? world : 1;
    if (group < 2 || micro < 1 || times < 1 || micro > 1000000 || times > 1000000 ||
        world > 1000000 || micro * times * world % group == 0)
        return;
    if (!at)
        at = vp_value_at(file->doc->root, "per_device_train_batch_size");
    if (is_said)
        vp_find(c, file, VP_ERROR, at, "num_generations", NULL,
                "%lld completions of a prompt are no part of the %lld of a step (%lld x "
                "accumulation %lld x processes %lld): GRPOConfig refuses it",
                (long long)group, (long long)(micro * times * world), (long long)micro,
                (long long)times, (long long)world);
    else
        vp_find(c, file, VP_NOTE, at, "num_generations", NULL,
                "%lld completions of a prompt are no part of the %lld of a step on one card (%lld "
                "x accumulation %lld), which GRPOConfig refuses; --world N says on how many",
                (long long)group, (long long)(micro * times), (long long)micro, (long long)times);
}

void vp_judge_groups(vp_checked *c)
{
    const char *method = c->settings.value[VP_SETTING_METHOD];

    for (int f = 0; method && strcmp(method, "grpo") == 0 && f < c->n_files; f++) {
        const vp_checked_file *file = &c->files[f];
        if (file->doc && file->dialect == &vp_dialect_trl && !file->yields_to &&
            !vp_value_at(file->doc->root, "steps_per_generation") &&
            !vp_value_at(file->doc->root, "generation_batch_size"))
            judge_file(c, file);
    }
}
