/* trainers/files/judge_swift.c: what no rule of ms-swift's can say: a run without a model or data, a configuration of DeepSpeed's that
 * does not come with it. Read in 4.6 (swift/arguments/sft_args.py). */
#include "trainers/files/check_internal.h"

#include <string.h>

static bool is_said(const vp_checked *c, const char *key)
{
    bool is = false;

    for (int f = 0; f < c->n_files && !is; f++)
        is = c->files[f].doc && vp_is_there(vp_value_at(c->files[f].doc->root, key));
    return is;
}

/* Its own command, all of which the text says, with the files that it names: forgotten where nearly all else is written, else left to
 * whoever runs it, as emit leaves it. */
static void judge_missing(vp_judged *x)
{
    static const char *const usual[] = {
        "model",         "dataset",          "output_dir", "per_device_train_batch_size",
        "learning_rate", "num_train_epochs", "max_length", "gradient_accumulation_steps"};
    enum { N_USUAL = sizeof usual / sizeof *usual };
    const vp_checked  *c   = x->c;
    const vp_document *doc = x->file->doc;
    int                n   = 0;

    for (const vp_remark *r = doc->remarks; r; r = r->next)
        n += r->is_torn || r->is_gap;
    if (n || doc->format != VP_FORMAT_FLAGS || !vp_check_is_run(x->file) || doc->has_gap ||
        c->missing || is_said(c, "config") || is_said(c, "resume_from_checkpoint") ||
        is_said(c, "adapters"))
        return;
    for (int i = 0; i < N_USUAL; i++)
        n += is_said(c, usual[i]);
    vp_severity severity = n >= N_USUAL - 3 ? VP_ERROR : VP_WARNING;
    if (!is_said(c, "model"))
        vp_find(x->c, x->file, severity, NULL, "model", NULL,
                "is missing: ms-swift ends with an error without --model");
    if (!is_said(c, "dataset") && !is_said(c, "cached_dataset"))
        vp_find(x->c, x->file, severity, NULL, "dataset", NULL,
                "is missing: ms-swift ends with an error without --dataset");
}

static void judge_deepspeed(vp_judged *x)
{
    const vp_value *v = vp_value_at(x->file->doc->root, "deepspeed");

    if (v && v->kind == VP_VALUE_STRING && strncmp(v->text, "zero", 4) == 0 &&
        !strpbrk(v->text, "./$") &&
        !vp_listed("zero0 zero1 zero2 zero3 zero2_offload zero3_offload", v->text))
        vp_find(x->c, x->file, VP_ERROR, v, "deepspeed", NULL,
                "%.40s is none of those that ms-swift brings: zero0, zero1, zero2, zero3, "
                "zero2_offload, zero3_offload",
                v->text);
}

void vp_judge_swift(vp_judged *x)
{
    judge_missing(x);
    judge_deepspeed(x);
}
