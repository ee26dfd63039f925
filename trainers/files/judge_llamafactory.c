/* trainers/files/judge_llamafactory.c: what no rule of LLaMA-Factory's can say: what stands behind the file of its command, of which
 * optimizers it makes GaLore and APOLLO. Read in 0.9.5. */
#include "trainers/files/check_internal.h"
#include "trainers/files/launch.h"

#include <string.h>

static const struct {
    const char *use, *layerwise, *optims, *known;
} own[] = {
    {"use_galore", "galore_layerwise",
     "=adamw_torch|adamw_bnb_8bit|adamw_8bit|paged_adamw_8bit|adafactor",
     "GaLore of adamw_torch, adamw_8bit and adafactor"},
    {"use_apollo", "apollo_layerwise", "=adamw_torch", "APOLLO of adamw_torch"},
};

/* Of which optimizers it makes GaLore and APOLLO: train/trainer_utils.py of 0.9.4 and of August 2026. */
static void judge_projections(vp_judged *x)
{
    const vp_value *root = x->file->doc->root, *optim = vp_value_at(root, "optim");

    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        const vp_value *use    = vp_value_at(root, own[i].use),
                       *layers = vp_value_at(root, own[i].layerwise);
        if (!use || !vp_check_holds(x->c, x->file, own[i].use, "=true"))
            continue;
        if (!optim)
            vp_find(
                x->c, x->file, VP_WARNING, use, own[i].use, "optim: adamw_torch",
                "LLaMA-Factory knows %s; without optim that is adamw_torch_fused from torch 2.8 on, "
                "and it ends with an error",
                own[i].known);
        else if (!vp_value_is_unknown(x->file, optim, false) &&
                 !vp_check_holds(x->c, x->file, "optim", own[i].optims))
            vp_find(x->c, x->file, VP_ERROR, optim, "optim", "adamw_torch",
                    "LLaMA-Factory knows %s, and ends with an error", own[i].known);
        if (layers && vp_check_holds(x->c, x->file, own[i].layerwise, "=true") &&
            vp_check_holds(x->c, x->file, "gradient_accumulation_steps", ">1"))
            vp_find(x->c, x->file, VP_ERROR, layers, own[i].layerwise,
                    "gradient_accumulation_steps: 1",
                    "steps in the backward pass: LLaMA-Factory refuses to accumulate beside it");
        return;
    }
}

/* Behind a settings file its program hands all words to OmegaConf, which takes "--cutoff_len" for a key's name (hparams/parser.py,
 * read_args()); the parser of its arguments has none of that name. */
static void judge_words(vp_judged *x)
{
    const vp_document *doc = x->file->doc;

    if (doc->format != VP_FORMAT_FLAGS || !vp_launch_takes_overrides(doc->program))
        return;
    for (const vp_value *v = doc->root->first; v; v = v->next)
        if (v->is_option)
            vp_find(x->c, x->file, VP_ERROR, v, v->key,
                    vp_arena_printf(x->c->arena, "%s=%s", v->key,
                                    v->text && v->text[0] ? v->text : "true"),
                    "behind a file LLaMA-Factory takes NAME=VALUE, and refuses --%s", v->key);
}

void vp_judge_llamafactory(vp_judged *x)
{
    judge_words(x);
    judge_projections(x);
}
