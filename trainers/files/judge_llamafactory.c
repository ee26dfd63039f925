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

/* An evaluation of no data: hparams/parser.py, get_train_args(). TrainingArguments evaluates where it is told when. */
static void judge_evaluation(vp_judged *x)
{
    const vp_value *root = x->file->doc->root;
    const char     *key  = vp_check_holds(x->c, x->file, "eval_strategy", "=steps|epoch")
                               ? "eval_strategy"
                               : "do_eval";

    if (!vp_value_at(root, key) || vp_value_at(root, "eval_dataset") || x->file->yields_to ||
        x->file->doc->has_gap || x->file->doc->format == VP_FORMAT_FLAGS ||
        vp_check_holds(x->c, x->file, "val_size", ">0") ||
        (strcmp(key, "do_eval") == 0 && !vp_check_holds(x->c, x->file, key, "=true")))
        return;
    vp_find(x->c, x->file, VP_ERROR, vp_value_at(root, key), key, "val_size: 0.1",
            "evaluates no data: LLaMA-Factory refuses it without val_size or eval_dataset");
}

void vp_judge_llamafactory(vp_judged *x)
{
    vp_judge_trainer(x); /* its arguments are Trainer's too */
    judge_words(x);
    judge_projections(x);
    judge_evaluation(x);
}

/* What counts of a switch: of the command before the file that it names. */
static bool is_on(const vp_checked *c, const char *key)
{
    const vp_checked_file *said = NULL;

    for (int f = 0; f < c->n_files; f++) {
        const vp_checked_file *file = &c->files[f];
        if (file->doc && file->dialect == &vp_dialect_llamafactory &&
            vp_value_at(file->doc->root, key) && (!said || !file->yields_to))
            said = file;
    }
    return said && vp_check_holds(c, said, key, "=true");
}

/* Without bf16, fp16 or pure_bf16 weights keep the checkpoint's format (model/patcher.py, infer_optim_dtype()), and nothing is in
 * autocast; of full tuning alone all become fp32. */
void vp_judge_unasked(vp_checked *c)
{
    const vp_checked_file *at     = NULL;
    const char            *tuning = c->settings.value[VP_SETTING_TUNING];

    for (int f = 0; f < c->n_files && !at; f++) /* the first, a command where there is one */
        if (c->files[f].doc && c->files[f].dialect == &vp_dialect_llamafactory)
            at = &c->files[f];
    if (!at || (at->doc->has_gap && c->missing) || is_on(c, "bf16") || is_on(c, "fp16") ||
        is_on(c, "pure_bf16") || c->unread[VP_SETTING_PRECISION] ||
        (c->settings.value[VP_SETTING_PRECISION] && tuning && strcmp(tuning, "full") == 0))
        return;
    c->settings.value[VP_SETTING_PRECISION] = c->may_be[VP_SETTING_PRECISION] = NULL;
    vp_find(c, at, VP_WARNING, vp_value_at(at->doc->root, "bf16"), "bf16", "bf16: true",
            "without bf16, fp16 and pure_bf16 frozen weights keep the checkpoint's format, and "
            "nothing is in autocast: what that takes is not counted, and fit not answered");
    if (!c->uncounted)
        c->uncounted = vp_arena_printf(c->arena, "a step without bf16 or fp16 in %s", at->name);
}
