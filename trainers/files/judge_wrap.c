/* trainers/files/judge_wrap.c: in which pieces FSDP gathers the model. Its file, the launcher's options and Trainer's arguments name a
 * policy, and one of them counts. Read in accelerate 1.15 (commands/launch.py, utils/dataclasses.py), transformers 4.57 and 5.17
 * (training_args.py, trainer.py) and peft 0.19 (utils/other.py). */
#include "trainers/files/check_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LAYERS "TRANSFORMER_BASED_WRAP"
#define SIZES  "SIZE_BASED_WRAP"
#define NONE   "NO_WRAP"

typedef struct wrap {
    const char            *policy; /* NULL: nobody says one and nobody asks for FSDP */
    const vp_checked_file *file;
    const vp_value        *at; /* NULL: it is a default */
    const char            *key;
    bool                   of_launcher; /* an option */
} wrap;

static const vp_value *value_at(const vp_checked_file *file, const char *key)
{
    return file->doc ? vp_value_at(file->doc->root, key) : NULL;
}

static bool is_of(const vp_checked_file *file, const vp_dialect *d)
{
    return file->doc && file->dialect == d;
}

const vp_value *vp_launch_option(const vp_checked *c, const char *key, int *f)
{
    for (int i = 0; i < c->n_files; i++) {
        const vp_document *launch = c->files[i].doc ? c->files[i].doc->launch : NULL;
        const vp_value    *v      = launch ? vp_value_at(launch->root, key) : NULL;
        if (!v)
            continue;
        if (f)
            *f = i;
        return v;
    }
    return NULL;
}

/* The value at key of a file, where it says a policy. */
static bool take(wrap *w, const vp_checked_file *file, const char *key)
{
    const vp_value *v = value_at(file, key);

    if (!v || !v->text || vp_value_is_unknown(file, v, false))
        return false;
    *w = (wrap){.policy = v->text, .file = file, .at = v, .key = key};
    return true;
}

/* fsdp_config, here or in the file that it names. */
static bool take_config(const vp_checked *c, const vp_checked_file *file, wrap *w)
{
    if (take(w, file, "fsdp_config.fsdp_auto_wrap_policy"))
        return true;
    for (int f = 0; f < c->n_files; f++)
        if ((is_of(&c->files[f], &vp_dialect_fsdp) &&
             take(w, &c->files[f], "fsdp_auto_wrap_policy")) ||
            (is_of(&c->files[f], &vp_dialect_swift_fsdp) &&
             take(w, &c->files[f], "fsdp_config.fsdp_auto_wrap_policy")))
            return true;
    return false;
}

static bool has_word(const vp_value *v, const char *word)
{
    if (v->text && strstr(v->text, word))
        return true;
    for (const vp_value *e = v->first; e; e = e->next)
        if (e->text && strcmp(e->text, word) == 0)
            return true;
    return false;
}

/* From 5.10 on Trainer makes the plugin by its own arguments, which are asked before the environment; before, auto_wrap puts the
 * policy in the environment, over what the launcher had put there. */
static bool take_trainers(const vp_checked *c, wrap *w)
{
    for (int f = 0; f < c->n_files; f++) {
        const vp_checked_file *file = &c->files[f];
        const vp_value *fsdp = vp_dialect_is_based_on(file->dialect, &vp_dialect_transformers)
                                   ? value_at(file, "fsdp")
                                   : NULL;
        if (!fsdp || !vp_is_there(fsdp))
            continue;
        if (vp_version_within(vp_file_version(c, file, &vp_dialect_transformers), "5.10", NULL)) {
            if (!take_config(c, file, w))
                *w = (wrap){.policy = LAYERS, .file = file, .key = "fsdp"};
            return true;
        }
        const vp_value *least = value_at(file, "fsdp_config.fsdp_min_num_params");
        *w                    = (wrap){.policy = !has_word(fsdp, "auto_wrap")  ? NONE
                                                 : least && least->integer > 0 ? SIZES
                                                                               : LAYERS,
                                       .file   = file,
                                       .at     = fsdp,
                                       .key    = "fsdp"};
        return strcmp(w->policy, NONE) != 0;
    }
    return false;
}

/* setup_fsdp_envs() of axolotl puts what it is told in the environment. */
static bool take_axolotls(const vp_checked *c, wrap *w)
{
    for (int f = 0; f < c->n_files; f++)
        if (is_of(&c->files[f], &vp_dialect_axolotl) &&
            (take(w, &c->files[f], "fsdp_config.auto_wrap_policy") ||
             take(w, &c->files[f], "fsdp_config.fsdp_auto_wrap_policy")))
            return true;
    return false;
}

/* An option beats the launcher's file; without either there is none. */
static void take_launchers(const vp_checked *c, wrap *w)
{
    int             f;
    const vp_value *option = vp_launch_option(c, "fsdp_auto_wrap_policy", &f), *uses;

    if (option && option->text) {
        *w = (wrap){option->text, &c->files[f], option, "fsdp_auto_wrap_policy", true};
        return;
    }
    for (int i = 0; i < c->n_files; i++) {
        const vp_value *type = is_of(&c->files[i], &vp_dialect_accelerate)
                                   ? value_at(&c->files[i], "distributed_type")
                                   : NULL;
        if (!type || !type->text || strcasecmp(type->text, "FSDP") != 0)
            continue;
        if (!take(w, &c->files[i], "fsdp_config.fsdp_auto_wrap_policy"))
            *w = (wrap){.policy = NONE, .file = &c->files[i], .at = type, "distributed_type"};
        return;
    }
    uses = vp_launch_option(c, "use_fsdp", &f);
    if (uses && (uses->kind != VP_VALUE_BOOL || uses->boolean) &&
        !vp_launch_option(c, "config_file", NULL))
        *w = (wrap){NONE, &c->files[f], uses, "use_fsdp", true};
}

/* Under FSDP1 Trainer gives adapters peft's own policy, whatever was said: layers, and each adapter by itself. Under FSDP2 it does
 * not. */
static bool is_replaced(const vp_checked *c)
{
    const char *parallel = c->settings.value[VP_SETTING_PARALLEL],
               *tuning = c->settings.value[VP_SETTING_TUNING], *may = c->may_be[VP_SETTING_TUNING];

    if (may && strcmp(may, "lora or qlora") != 0)
        return false;
    if (!parallel || strcmp(parallel, "fsdp") != 0 || c->may_be[VP_SETTING_PARALLEL] || !tuning ||
        !vp_listed("lora qlora", tuning))
        return false;
    for (int f = 0; f < c->n_files; f++)
        if (c->files[f].doc &&
            (vp_dialect_is_based_on(c->files[f].dialect, &vp_dialect_transformers) ||
             c->files[f].dialect == &vp_dialect_axolotl))
            return true;
    return false;
}

void vp_judge_wrap(vp_checked *c)
{
    const char *parallel = c->settings.value[VP_SETTING_PARALLEL];
    wrap        w        = {0};

    if (parallel && !vp_listed("fsdp fsdp2", parallel))
        return;
    if (!take_axolotls(c, &w) && !take_trainers(c, &w))
        take_launchers(c, &w);
    if (!w.policy || strcasecmp(w.policy, LAYERS) == 0)
        return;
    if (w.of_launcher && strcasecmp(w.policy, SIZES) != 0 && strcasecmp(w.policy, NONE) != 0 &&
        !vp_value_is_unknown(w.file, w.at, false)) {
        vp_find(c, w.file, VP_ERROR, w.at, w.key, LAYERS,
                "accelerate refuses a policy other than " LAYERS ", " SIZES " and " NONE);
        return;
    }
    if (is_replaced(c)) {
        if (w.at && strstr(w.key, "policy"))
            vp_find(
                c, w.file, VP_NOTE, w.at, w.key, NULL,
                "is not what wraps: under FSDP1 Trainer puts peft's fsdp_auto_wrap_policy in its "
                "place, layer by layer, and each adapter by itself");
        return;
    }
    vp_find(c, w.file, VP_NOTE, w.at, w.key, NULL,
            strcasecmp(w.policy, NONE) == 0
                ? "gathers the whole model at once (" LAYERS
                  ": layer by layer): what that takes is not counted, and fit not answered"
                : "gathers the model in other pieces than its layers: what that takes is not "
                  "counted, and fit not answered");
    if (!c->uncounted)
        c->uncounted = vp_arena_printf(c->arena, "%s%s %s %s", w.of_launcher ? "--" : "", w.key,
                                       w.of_launcher ? "of" : "in", w.file->name);
}
