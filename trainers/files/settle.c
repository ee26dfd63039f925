/* trainers/files/settle.c: of the words that files leave open for a setting, the one that others of their settings decide. */
#include "trainers/files/check_internal.h"

#include <string.h>

static bool says(const char *value, const char *word)
{
    return value && strcmp(value, word) == 0;
}

/* Beside quantised weights what is not quantised keeps the file's type, which is of 16 bits where people quantise: of the
 * precisions that it may be, the one of such weights. */
static void settle_precision(vp_checked *c)
{
    const char *may    = c->may_be[VP_SETTING_PRECISION],
               *tuning = c->settings.value[VP_SETTING_TUNING];

    static const char *const words[] = {"bf16-amp", "fp16-amp"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (may && tuning && strcmp(tuning, "qlora") == 0 && strstr(may, words[i]))
            c->settings.value[VP_SETTING_PRECISION] = words[i];
}

/* Cards that share nothing but gradients and a card alone are told alike: the number of processes says which. */
static void settle_parallel(vp_checked *c)
{
    const char *may   = c->may_be[VP_SETTING_PARALLEL],
               *world = c->by_default[VP_SETTING_WORLD] && !c->world
                            ? NULL
                            : c->settings.value[VP_SETTING_WORLD];

    if (!may || !world || strcmp(may, "none or ddp") != 0)
        return;
    c->settings.value[VP_SETTING_PARALLEL] = strcmp(world, "1") == 0 ? "none" : "ddp";
    c->may_be[VP_SETTING_PARALLEL]         = NULL;
}

bool vp_checked_is_quantised(const vp_checked *c)
{
    return says(c->settings.value[VP_SETTING_TUNING], "qlora");
}

const char *vp_checked_preparation(const vp_checked *c)
{
    const char *shares = c->settings.value[VP_SETTING_PARALLEL], *said = NULL;

    /* a module of settings alone loads no model and adapts none: whoever imports it does */
    if (says(shares, "fsdp") || says(shares, "fsdp2"))
        return NULL;
    for (int f = 0; f < c->n_files; f++) {
        const vp_document *doc = c->files[f].doc;
        if (!doc)
            continue;
        const vp_value *format = vp_value_at(doc->root, "dtype");
        format                 = format ? format : vp_value_at(doc->root, "torch_dtype");
        if (format && says(format->text, "float32"))
            return NULL;
        bool is_script = doc->format == VP_FORMAT_PYTHON && !c->files[f].is_part &&
                         (doc->parts || doc->adapts || doc->prepares);
        if (is_script && !says(said, "on"))
            said = doc->prepares ? "on" : "off";
    }
    return said;
}

/* A file's own key comes before what the script beside it calls, which no edit of keys changes. */
static void settle_preparation(vp_checked *c)
{
    const char *said = vp_checked_is_quantised(c) ? vp_checked_preparation(c) : NULL;

    if (!said || (c->settings.value[VP_SETTING_PREPARE] && !c->by_default[VP_SETTING_PREPARE]))
        return;
    c->settings.value[VP_SETTING_PREPARE] = said;
    c->by_default[VP_SETTING_PREPARE]     = true;
}

void vp_settle(vp_checked *c)
{
    settle_precision(c);
    settle_parallel(c);
    settle_preparation(c);
}
