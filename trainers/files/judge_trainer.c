/* trainers/files/judge_trainer.c: what TrainingArguments refuses and no rule of two keys can say: steps and strategies that do not
 * go together, words of fsdp, what evaluations keep. Read in transformers/training_args.py of 4.57 and 5.17. */
#include "trainers/files/check_internal.h"
#include "trainers/files/told.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool vp_switches_checkpoints_too(const char *key)
{
    return strcmp(key, "gradient_checkpointing_enable") == 0 ||
           strcmp(key, "fsdp_config.fsdp_activation_checkpointing") == 0;
}

/* What counts for a key, where the text says it. */
static const char *text_of(const vp_judged *x, const char *key, char *buf, size_t size)
{
    const vp_value *v = vp_value_at(x->file->doc->root, key);
    const char     *text;

    if (v && (v->kind >= VP_VALUE_LIST || (v->kind == VP_VALUE_STRING && !v->quoted &&
                                           x->file->doc->format == VP_FORMAT_PYTHON)))
        return NULL;
    text = vp_effective(x->c, x->file, key, buf, size);
    return text && strchr(text, '$') ? NULL : text;
}

/* The strategy by which something happens: steps, epoch, no, best. */
static const char *strategy_of(const vp_judged *x, const char *key, char *buf, size_t size)
{
    const char *text = text_of(x, key, buf, size);

    return text && strcmp(text, "false") == 0 ? "no" : text;
}

static const vp_value *at(const vp_judged *x, const char *key)
{
    return vp_value_at(x->file->doc->root, key);
}

static double number_of(const vp_judged *x, const char *key)
{
    char        buf[128], *end;
    const char *text = text_of(x, key, buf, sizeof buf);
    double      n    = text ? strtod(text, &end) : NAN;

    return text && text[0] && !*end ? n : NAN;
}

static bool is(const char *text, const char *word)
{
    return text && strcmp(text, word) == 0;
}

/* From 1 on steps are counted, and whole. */
static void judge_steps(vp_judged *x, const char *key, const char *strategy)
{
    char   buf[64];
    double n = number_of(x, key);

    if (at(x, key) && n > 1 && n != floor(n) &&
        is(strategy_of(x, strategy, buf, sizeof buf), "steps"))
        vp_find(x->c, x->file, VP_ERROR, at(x, key), key, NULL,
                "%g is refused: from 1 on it must be a whole number", n);
}

static void judge_best(vp_judged *x)
{
    const vp_value *best = at(x, "load_best_model_at_end");
    char            a[64], b[64];
    const char     *eval = strategy_of(x, "eval_strategy", a, sizeof a),
               *save     = strategy_of(x, "save_strategy", b, sizeof b);
    double saves = number_of(x, "save_steps"), evals = number_of(x, "eval_steps");

    if (!vp_is_there(best) || best->kind != VP_VALUE_BOOL || !eval || !save || is(save, "best"))
        return;
    if (strcmp(eval, save) != 0) {
        vp_find(x->c, x->file, VP_ERROR, best, best->key, NULL,
                "Trainer refuses it: it evaluates by %s and saves by %s, which must be the same",
                eval, save);
        return;
    }
    if (!at(x, "eval_steps") || evals == 0)
        evals = number_of(x, "logging_steps");
    if (is(eval, "steps") && saves >= 1 && evals >= 1 && fmod(saves, evals) != 0)
        vp_find(x->c, x->file, VP_ERROR, best, best->key, NULL,
                "Trainer refuses it: save_steps %g is no multiple of eval_steps %g", saves, evals);
}

static const char any_word[] =
    "full_shard shard_grad_op no_shard hybrid_shard hybrid_shard_zero2 offload auto_wrap";
static const char words_of_one[] = "no_shard hybrid_shard hybrid_shard_zero2";

static void judge_word_of_fsdp(vp_judged *x, const vp_value *v, const char *word, bool is_two)
{
    if (!vp_listed(any_word, word))
        vp_find(x->c, x->file, VP_ERROR, v, "fsdp", NULL,
                "%.40s is none of full_shard, shard_grad_op, no_shard, hybrid_shard, "
                "hybrid_shard_zero2, offload, auto_wrap",
                word);
    else if (is_two && vp_listed(words_of_one, word))
        vp_find(x->c, x->file, VP_ERROR, v, "fsdp", "fsdp_config: {version: 1}",
                "%s is FSDP 1's alone, and this is FSDP 2", word);
}

static void judge_fsdp(vp_judged *x)
{
    const vp_value *v = at(x, "fsdp"), *config = at(x, "fsdp_config");
    char            buf[64], word[64];
    const char     *version = text_of(x, "fsdp_config.fsdp_version", buf, sizeof buf);
    bool            is_two  = is(version, "2") && !(config && config->kind != VP_VALUE_MAP);

    if (v && v->kind == VP_VALUE_LIST)
        for (const vp_value *e = v->first; e; e = e->next)
            if (e->kind == VP_VALUE_STRING &&
                (e->quoted || x->file->doc->format != VP_FORMAT_PYTHON))
                judge_word_of_fsdp(x, v, e->text, is_two);
    if (!v || v->kind != VP_VALUE_STRING || strchr(v->text, '$') ||
        (!v->quoted && x->file->doc->format == VP_FORMAT_PYTHON))
        return;
    for (const char *p = v->text + strspn(v->text, " "); *p; p += strspn(p, " ")) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(p, " "), p);
        judge_word_of_fsdp(x, v, word, is_two);
        p += strcspn(p, " ");
    }
}

/* Frozen embeddings give the first layer an input that requires no gradient, and a reentrant checkpoint then gives an output that does
 * not either: nothing is left to train. Trainer sees to that from transformers 5 on (modeling_utils.py,
 * gradient_checkpointing_enable(); "element 0 of tensors does not require grad" with 4.57). */
static void judge_reentrant(vp_judged *x)
{
    const vp_document *doc     = x->file->doc;
    const char        *version = vp_file_version(x->c, x->file, &vp_dialect_transformers);

    if (!doc->adapts || doc->requires_grads || vp_version_compare(version, "5.0") >= 0 ||
        strcmp(x->file->dialect->name, "training_args") != 0 ||
        !vp_check_holds(x->c, x->file, "gradient_checkpointing", "=true") ||
        !vp_check_holds(x->c, x->file, "gradient_checkpointing_kwargs.use_reentrant", "=true"))
        return;
    vp_find(
        x->c, x->file, VP_ERROR, at(x, "gradient_checkpointing"), "gradient_checkpointing",
        "model.enable_input_require_grads() before the trainer is made, or use_reentrant: False",
        "no adapter gets a gradient, and backward fails: checkpoints by use_reentrant=True want "
        "an input that requires one, which frozen embeddings do not give (transformers 5 sees "
        "to it, %s does not)",
        version);
}

/* HfArgumentParser reads None | str | list[str] as one text. */
static void judge_targets(vp_judged *x)
{
    static const char key[]  = "optim_target_modules";
    const vp_value   *v      = at(x, key);
    vp_arena         *arena  = x->c->arena;
    vp_format         format = x->file->doc->format;
    char              buf[64];
    const char       *optim = text_of(x, "optim", buf, sizeof buf), *better = NULL;

    if (!v)
        return;
    if (v->kind == VP_VALUE_LIST && format == VP_FORMAT_FLAGS) {
        vp_find(x->c, x->file, VP_ERROR, v, key, vp_told_pattern(arena, vp_list_text(arena, v)),
                "Trainer's parser refuses it: on a command line this is one word, a regular "
                "expression that a module's whole name must match");
        return;
    }
    if (!optim || (strncmp(optim, "galore_", 7) != 0 && strncmp(optim, "apollo_", 7) != 0) ||
        (v->kind == VP_VALUE_STRING && !v->quoted && format == VP_FORMAT_PYTHON))
        return;
    switch (vp_told_judge(v)) {
    case VP_TOLD_WHOLE_NAME:
        better = format == VP_FORMAT_FLAGS ? vp_told_pattern(arena, v->text)
                                           : vp_arena_printf(arena, "[\"%s\"]", v->text);
        vp_find(x->c, x->file, VP_WARNING, v, key, better,
                "%.40s alone is a regular expression that a module's whole name must match: it "
                "takes no layer of whose name it is a part, and is not counted here",
                v->text);
        break;
    case VP_TOLD_UNCOUNTED:
        vp_find(x->c, x->file, VP_WARNING, v, key, NULL,
                "which layers it takes is not counted here: it is a regular expression with a "
                "comma, +, (? or a class such as \\d");
        break;
    case VP_TOLD_COUNTED:
    case VP_TOLD_UNKNOWN:
        break;
    }
}

/* Whether a script gives its trainer no metrics to compute, or logits that are little: a few a sample, or what is left of them by
 * preprocess_logits_for_metrics; as far as it can be seen. */
static bool script_has_no_metrics(const vp_judged *x)
{
    static const char *const small[] = {"ForSequenceClassification", "ForImageClassification",
                                        "ForMultipleChoice", "ForAudioClassification"};
    bool                     none    = false;

    for (int f = 0; f < x->c->n_files; f++)
        for (size_t i = 0; i < sizeof small / sizeof *small; i++)
            if (x->c->files[f].dialect == &vp_dialect_model && x->c->files[f].doc &&
                x->c->files[f].doc->call && strstr(x->c->files[f].doc->call, small[i]))
                return true;

    for (int f = 0; f < x->c->n_files; f++) {
        const vp_checked_file *call = &x->c->files[f];
        if (!call->is_part || !call->doc || !call->doc->call || !call->dialect ||
            !strstr(call->dialect->name, "Trainer()"))
            continue;
        const vp_value *keeps = vp_value_at(call->doc->root, "preprocess_logits_for_metrics");
        if (call->doc->has_gap || (vp_value_at(call->doc->root, "compute_metrics") &&
                                   !(keeps && keeps->kind != VP_VALUE_NULL)))
            return false;
        none = true;
    }
    return none;
}

/* Without compute_metrics an evaluation keeps its loss alone (transformers/trainer.py, evaluate(): prediction_loss_only), and what it generates in
 * place of logits (trainer_seq2seq.py, prediction_step()). TRL's own scripts give none. */
static bool keeps_losses_alone(const vp_judged *x)
{
    char buf[64];

    if (is(text_of(x, "prediction_loss_only", buf, sizeof buf), "true") ||
        is(text_of(x, "predict_with_generate", buf, sizeof buf), "true"))
        return true;
    if (x->file->doc->format == VP_FORMAT_PYTHON)
        return script_has_no_metrics(x);
    return strcmp(x->file->dialect->name, "sft") == 0;
}

static void judge_logits(vp_judged *x)
{
    char        buf[64];
    const char *strategy = strategy_of(x, "eval_strategy", buf, sizeof buf);

    if (!at(x, "eval_strategy") || is(strategy, "no") || at(x, "eval_accumulation_steps") ||
        (x->file->doc->format == VP_FORMAT_FLAGS && at(x, "config")) || keeps_losses_alone(x))
        return;
    vp_find(x->c, x->file, VP_WARNING, at(x, "eval_strategy"), "eval_strategy",
            "eval_accumulation_steps: 1",
            "where a script computes metrics, the logits of the whole evaluation pile up on the "
            "device: eval_accumulation_steps is not written");
}

/* TrainingArguments(predict_with_generate=True): a TypeError. */
static void judge_seq2seq(vp_judged *x)
{
    for (const vp_value *v = x->file->doc->root->first; v; v = v->next)
        if (vp_check_is_argument(x->c, x->file, v) &&
            strcmp(v->given_to, "Seq2SeqTrainingArguments") != 0 &&
            vp_listed(VP_SEQ2SEQ_KNOWN, v->key))
            vp_find(x->c, x->file, VP_ERROR, v, v->key, "Seq2SeqTrainingArguments()",
                    "%s refuses it: no such argument of %s()", x->file->dialect->library,
                    v->given_to);
}

/* Without steps of its own an evaluation happens as often as logging does. */
static void judge_evaluated(vp_judged *x)
{
    char   buf[64];
    double evals = number_of(x, "eval_steps");

    if (at(x, "eval_strategy") && is(strategy_of(x, "eval_strategy", buf, sizeof buf), "steps") &&
        number_of(x, "logging_steps") == 0 && (evals == 0 || !vp_is_there(at(x, "eval_steps"))))
        vp_find(x->c, x->file, VP_ERROR, at(x, "eval_strategy"), "eval_strategy", "eval_steps: 500",
                "steps are refused without eval_steps where logging_steps is 0");
}

/* A text that begins as a map is read as JSON (TrainingArguments, _VALID_DICT_FIELDS; TRL's). */
static void judge_json(vp_judged *x)
{
    static const char *const keys[] = {"lr_scheduler_kwargs", "gradient_checkpointing_kwargs",
                                       "accelerator_config",  "fsdp_config",
                                       "model_init_kwargs",   "deepspeed"};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const vp_value *v = at(x, keys[i]);
        json_error_t    error;
        json_t         *j;
        if (!v || v->kind != VP_VALUE_STRING || v->text[0] != '{' || strchr(v->text, '$') ||
            v->call)
            continue;
        j = json_loads(v->text, 0, &error);
        if (!j)
            vp_find(x->c, x->file, VP_ERROR, v, keys[i], NULL,
                    "is no JSON, as which its parser reads it: names and texts stand in double "
                    "quotes, {\"name\": 1}");
        json_decref(j);
    }
}

/* is_torch_tf32_available(). */
static void judge_tf32(vp_judged *x)
{
    if (x->c->no_bf16 && at(x, "tf32") && vp_check_holds(x->c, x->file, "tf32", "=true"))
        vp_find(x->c, x->file, VP_ERROR, at(x, "tf32"), "tf32", "tf32: false",
                "Trainer refuses it on a card below compute capability 8.0 (Ampere)");
}

void vp_judge_trainer(vp_judged *x)
{
    static const char *const own[] = {"training_args", "sft", "llamafactory"};
    char                     buf[64];
    bool                     is_own = false;

    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        is_own = is_own || strcmp(x->file->dialect->name, own[i]) == 0;
    if (!is_own || at(x, "evaluation_strategy"))
        return;
    judge_steps(x, "logging_steps", "logging_strategy");
    judge_steps(x, "save_steps", "save_strategy");
    judge_steps(x, "eval_steps", "eval_strategy");
    judge_best(x);
    judge_evaluated(x);
    judge_json(x);
    judge_tf32(x);
    judge_fsdp(x);
    judge_targets(x);
    if (strcmp(x->file->dialect->name, own[2]) != 0) { /* whose metrics keep no logits */
        judge_seq2seq(x);
        judge_logits(x);
        judge_reentrant(x);
    }
    if (at(x, "lr_scheduler_type") && is(strategy_of(x, "eval_strategy", buf, sizeof buf), "no")) {
        const char *by = text_of(x, "lr_scheduler_type", buf, sizeof buf);
        if (is(by, "reduce_lr_on_plateau") || is(by, "greedy"))
            vp_find(x->c, x->file, VP_ERROR, at(x, "lr_scheduler_type"), "lr_scheduler_type",
                    "eval_strategy: steps", "%s is refused: it wants an evaluation", by);
    }
}
