/* trainers/files/judge_batch.c: train_batch_size of DeepSpeed's file, which is micro-batch x accumulation x processes; what of them is not
 * written follows from the others. Read in runtime/config.py of 0.19, _set_batch_related_parameters() and _batch_assertion(). */
#include "trainers/files/check_internal.h"

#include <string.h>

#include "base/text.h"

#include <stdlib.h>

typedef struct batch {
    const vp_value *all, *micro, *accumulation; /* as written; NULL: not, or auto */
    const vp_value *cut;                        /* over how many processes a sequence is cut */
} batch;

static const vp_value *number_at(const vp_checked_file *file, const char *key)
{
    const vp_value *v = vp_value_at(file->doc->root, key);

    return v && v->kind == VP_VALUE_INT && v->integer > 0 ? v : NULL;
}

/* What the files or the command say of a setting, or --world does; 0: nobody does. */
static int64_t said(const vp_checked *c, vp_setting setting)
{
    const char *text = c->settings.value[setting];

    if (setting == VP_SETTING_WORLD && c->world && (!text || c->by_default[setting]))
        text = c->world;
    else if (c->by_default[setting] || c->unread[setting])
        text = NULL;
    return text ? strtoll(text, NULL, 10) : 0;
}

static void find(vp_checked *c, const vp_checked_file *file, const vp_value *at, const char *what,
                 int64_t micro, int64_t accumulation, int64_t world)
{
    vp_text text = {0};

    vp_text_printf(&text, "%lld is %s micro-batch", (long long)at->integer, what);
    if (accumulation)
        vp_text_printf(&text, " x accumulation");
    if (world)
        vp_text_printf(&text, " x processes");
    vp_text_printf(&text, ", %lld", (long long)micro);
    if (accumulation)
        vp_text_printf(&text, " x %lld", (long long)accumulation);
    if (world)
        vp_text_printf(&text, " x %lld", (long long)world);
    vp_find(c, file, VP_ERROR, at, "train_batch_size", "leave it out", "%s", vp_text_string(&text));
    vp_text_release(&text);
}

/* What they come to, where all are known; the number of processes, where it alone is not. */
static void judge_product(vp_checked *c, const vp_checked_file *file, const batch *b)
{
    int64_t micro = said(c, VP_SETTING_MICRO_BATCH), world = said(c, VP_SETTING_WORLD);
    int64_t accumulation = b->accumulation || !b->micro ? said(c, VP_SETTING_ACCUMULATION) : 0;
    int64_t all = b->all->integer, cut = b->cut ? b->cut->integer : 1, own;

    world = world % cut == 0 ? world / cut : 0; /* those of a sequence count once */

    if (!micro || micro > all || accumulation > all || world > all) {
        if (micro > all)
            find(c, file, b->all, "less than", micro, 0, 0);
        return;
    }
    own = micro * (accumulation ? accumulation : 1);
    if (!accumulation && world && all % (own * world) != 0) {
        find(c, file, b->all, "no multiple of", micro, 0, world);
    } else if (accumulation && all % own != 0) {
        find(c, file, b->all, "no multiple of", micro, accumulation, 0);
    } else if (accumulation && world && all != own * world) {
        find(c, file, b->all, "not", micro, accumulation, world);
    } else if (accumulation && !world && !c->settings.value[VP_SETTING_WORLD]) {
        c->settings.value[VP_SETTING_WORLD] =
            vp_arena_printf(c->arena, "%lld", (long long)(all / own * cut));
        c->by_default[VP_SETTING_WORLD] = false;
    } else if (!accumulation && !world) {
        vp_find(c, file, VP_NOTE, b->all, "train_batch_size", NULL,
                "%lld makes accumulation %lld / processes, whose number nobody says: --world N "
                "does, or the command",
                (long long)all, (long long)(all / micro));
    }
}

void vp_judge_batch(vp_checked *c)
{
    for (int f = 0; f < c->n_files; f++) {
        const vp_checked_file *file = &c->files[f];
        if (!file->doc || file->dialect != &vp_dialect_deepspeed)
            continue;
        batch b = {number_at(file, "train_batch_size"),
                   number_at(file, "train_micro_batch_size_per_gpu"),
                   number_at(file, "gradient_accumulation_steps"),
                   number_at(file, "sequence_parallel_size")};
        if (b.all)
            judge_product(c, file, &b);
        else if (b.micro && !vp_value_at(file->doc->root, "gradient_accumulation_steps") &&
                 !vp_value_at(file->doc->root, "train_batch_size"))
            vp_find(c, file, VP_NOTE, b.micro, "train_micro_batch_size_per_gpu",
                    "gradient_accumulation_steps", "alone it means accumulation 1");
    }
}

/* "auto" is filled by the Trainer; DeepSpeed alone has no answer. */
void vp_judge_auto(vp_checked *c, const vp_checked_file *file)
{
    static const char *const keys[] = {"train_micro_batch_size_per_gpu",
                                       "gradient_accumulation_steps", "train_batch_size"};
    char                     text[64];
    const vp_value          *v;

    for (int i = 0; file->dialect == &vp_dialect_deepspeed && i < 3; i++) {
        v = vp_value_at(file->doc->root, keys[i]);
        if (!v || strcmp(vp_value_text(v, text, sizeof text), "auto") != 0)
            continue;
        vp_find(c, file, VP_NOTE, v, keys[i], NULL,
                "auto is filled by the Trainer from its arguments; without one DeepSpeed ends in a "
                "TypeError");
        return;
    }
}
