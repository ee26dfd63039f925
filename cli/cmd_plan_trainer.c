#include "cli/cmd_plan_trainer.h"

#include "cli/calibration.h"
#include "cli/estimate.h"
#include "cli/plan_trainer_answer.h"
#include "cli/priced_model.h"
#include "cli/rows.h"
#include "cli/words.h"

#include "base/beside.h"
#include "base/checked.h"
#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "dryrun/dryrun_run.h"
#include "trainers/fit/choose.h"
#include "trainers/hf/hf_sizes.h"
#include "trainers/hf/hf_trl.h"
#include "trainers/hf/hf_versions.h"
#include "trainers/torch/optimizer_step.h"
#include "trainers/torch/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const vp_option rows[] = {
    {.name      = "--trainer",
     .kind      = VP_OPTION_TEXT,
     .at        = offsetof(vp_plan_trainer_options, trainer),
     .value     = "TARGET",
     .suggest   = vp_word_of_target,
     .help      = "Plan settings of this trainer instead: the fastest that fit, for vplan emit",
     .otherwise = "a plan for vplan run",
     .example   = "hf"},
    {.name      = "--world",
     .kind      = VP_OPTION_COUNT,
     .at        = offsetof(vp_plan_trainer_options, world),
     .value     = "N",
     .unit      = "cards",
     .min       = 1,
     .max       = 65536,
     .help      = "Processes of a trainer, one a card",
     .otherwise = "1",
     .example   = "8"},
    {.name      = "--parallel",
     .kind      = VP_OPTION_TEXT,
     .at        = offsetof(vp_plan_trainer_options, parallel),
     .value     = "ddp|fsdp|fsdp2|zero1|zero2|zero3",
     .help      = "How a trainer's cards share the work",
     .otherwise = "free, where there are several",
     .example   = "fsdp2"},
    {.name = "--sync-each-batch",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(vp_plan_trainer_options, syncs_each),
     .help = "Under fsdp or fsdp2 gradients are reduced after each micro-batch, as Accelerate's "
             "sync_each_batch has it; both ways are tried where this is not given"},
    {VP_ROW_PADDING(vp_plan_trainer_options, padding),
     .help = "Whether a trainer passes a mask that holds padding to the model"},
    {.name = "--qlora",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(vp_plan_trainer_options, qlora),
     .help =
         "Adapters over weights in NF4 with double quantisation (nf4-dq), as bitsandbytes loads and peft prepares them: --lora, "
         "where it is not given r=16,alpha=32,targets=all-linear"},
    {.name  = "--prepare",
     .kind  = VP_OPTION_TEXT,
     .at    = offsetof(vp_plan_trainer_options, prepare),
     .value = "on|off",
     .help  = "Whether peft's prepare_model_for_kbit_training() is called on a model whose weights "
              "are quantised, which makes fp32 what is not: norms, embeddings, the head",
     .otherwise = "as the trainer, or the files that are written for it, have it",
     .example   = "off"},
    {.name = "--liger",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(vp_plan_trainer_options, liger),
     .help = "Liger's kernels in a trainer that has a switch for them: its norms, rotary "
             "embeddings, MLP, head and loss, which makes no logits"},
    {.name  = "--method",
     .kind  = VP_OPTION_TEXT,
     .at    = offsetof(vp_plan_trainer_options, method),
     .value = "sft|dpo|reward|grpo",
     .help  = "How a trainer learns: from texts, or from pairs of sequences, as TRL's DPOTrainer "
              "and RewardTrainer do; --global-batch and --micro-batch count pairs then. By "
              "GRPOTrainer from completions that it makes itself, and which they count",
     .otherwise = "sft",
     .example   = "dpo"},
    {.name      = "--target-seq",
     .kind      = VP_OPTION_COUNT,
     .at        = offsetof(vp_plan_trainer_options, completion),
     .value     = "N",
     .unit      = "tokens",
     .min       = 1,
     .max       = 1000000000,
     .help      = "With --method grpo: tokens of --seq that are the completion",
     .otherwise = "512, half of --seq at most",
     .example   = "256"},
    {.name = "--vllm",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(vp_plan_trainer_options, vllm),
     .help = "With --method grpo: a server of vLLM, on another card, makes the completions "
             "(use_vllm, vllm_mode server). Otherwise the model makes them, all of a step at "
             "once"},
    {.name      = "--eval-batch",
     .kind      = VP_OPTION_COUNT,
     .at        = offsetof(vp_plan_trainer_options, eval_batch),
     .value     = "N",
     .unit      = "samples",
     .min       = 1,
     .max       = 1000000,
     .help      = "A trainer evaluates between steps, so many samples at once",
     .otherwise = "no evaluation",
     .example   = "8"},
    {VP_ROW_VERSIONS(vp_plan_trainer_options, versions), .help = "The libraries of a trainer"},
    {VP_ROW_CALIBRATION(vp_plan_trainer_options, calibration),
     .help =
         "Where estimate --measured keeps what it found out about a card, which a trainer's plan "
         "on it counts with and names; none: not used"},
};
const vp_option_set vp_plan_trainer_options_set = {"plans for other trainers", VP_ROWS(rows)};

vp_status vp_plan_only_vplan(const vp_plan_trainer_options *t, vp_err *err)
{
    const char *option = t->world         ? "--world"
                         : t->parallel    ? "--parallel"
                         : t->syncs_each  ? "--sync-each-batch"
                         : t->liger       ? "--liger"
                         : t->padding     ? "--padding"
                         : t->prepare     ? "--prepare"
                         : t->method      ? "--method"
                         : t->completion  ? "--target-seq"
                         : t->vllm        ? "--vllm"
                         : t->eval_batch  ? "--eval-batch"
                         : t->versions    ? "--versions"
                         : t->calibration ? "--calibration"
                                          : NULL;

    if (t->qlora)
        return VP_FAIL(
            err, VP_ERR_USAGE,
            "--qlora: vplan's own runtime does not train over NF4; with --trainer hf it "
            "is planned for transformers and peft, with --lora here over 16-bit weights");
    return option ? VP_FAIL(err, VP_ERR_USAGE, "%s is for a plan with --trainer", option) : VP_OK;
}

typedef vp_plan_trainer_answer answer;

/* ---- what is asked for ---- */

static vp_status pin(answer *a, vp_setting setting, const char *option, const char *text,
                     vp_err *err)
{
    char shown[64];

    if (!text)
        return VP_OK;
    a->request.pinned[setting] =
        strcmp(text, "any") == 0 ? "any" : vp_setting_canonical(a->arena, setting, text);
    if (!a->request.pinned[setting])
        return VP_FAIL(err, VP_ERR_USAGE, "%s %s: %s%s", option,
                       vp_text_escape(text, shown, sizeof shown), vp_setting_words(setting),
                       strchr(vp_setting_words(setting), 'N') ? ", N a whole number from 1" : "");
    return VP_OK;
}

/* The tokens of a sample: an image makes as many as its model says. */
static vp_status take_seq(answer *a, const vp_plan_options *o, vp_err *err)
{
    a->request.seq = o->seq ? o->seq : a->model->image_tokens;
    if (!a->request.seq)
        return VP_FAIL(err, VP_ERR_USAGE, VP_SEQ_REQUIRED);
    if (a->model->image_tokens && !a->model->resizes_images &&
        a->request.seq != a->model->image_tokens)
        return VP_FAIL(err, VP_ERR_USAGE, "--seq %lld: an image of this model makes %lld tokens",
                       (long long)o->seq, (long long)a->model->image_tokens);
    return VP_OK;
}

static bool is_of_cards(const char *offload)
{
    return strcmp(offload, "optimizer") == 0 || strcmp(offload, "params") == 0;
}

/* What is offloaded is DeepSpeed's or FSDP's, in the files that are written; on one card DeepSpeed's. */
static vp_status refuse_alone(const vp_plan_options *o, const vp_plan_trainer_options *t,
                              vp_err *err)
{
    bool moved = o->offload && is_of_cards(o->offload);

    if (o->offload && strcmp(o->offload, "activations") == 0 &&
        (t->world > 1 || (strcmp(t->trainer, "hf") != 0 && strcmp(t->trainer, "unsloth") != 0)))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--offload activations: known is what transformers' Trainer and Unsloth do, "
                       "on one card: --trainer hf or unsloth");
    if (t->syncs_each && t->world < 2)
        return VP_FAIL(err, VP_ERR_USAGE, VP_SYNC_NEEDS_CARDS);
    if (t->parallel && strcmp(t->parallel, "any") != 0)
        return vp_estimate_check_parallel(t->world, t->parallel, moved ? o->offload : NULL, err);
    return VP_OK;
}

static vp_status pin_lora(answer *a, const char *text, vp_err *err)
{
    const char     **pinned = a->request.pinned;
    vp_estimate_lora lora;
    vp_status        st = VP_OK;

    VP_TRY(vp_estimate_read_lora(text, vp_hf_recorded_family(a->model), &lora, err));
    if (lora.lora.is_bf16 || lora.lora.is_dora || lora.rslora || lora.lora.tokens)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--lora %s: files are written for plain fp32 adapters",
                       text));
    pinned[VP_SETTING_TUNING]       = "lora";
    pinned[VP_SETTING_LORA_R]       = vp_arena_printf(a->arena, "%lld", (long long)lora.lora.rank);
    pinned[VP_SETTING_LORA_ALPHA]   = vp_arena_printf(a->arena, "%.9g", lora.alpha);
    pinned[VP_SETTING_LORA_DROPOUT] = vp_setting_canonical(
        a->arena, VP_SETTING_LORA_DROPOUT, vp_arena_printf(a->arena, "%g", lora.lora.dropout));
    pinned[VP_SETTING_LORA_TARGETS] =
        vp_arena_strdup(a->arena, lora.has_targets ? lora.targets : lora.canonical);
    pinned[VP_SETTING_LORA_SAVE] = vp_arena_strdup(a->arena, lora.lora.save ? lora.saved : "none");
    VP_TRY_ALLOC(err, !vp_arena_failed(a->arena));
out:
    return st;
}

/* Frozen weights are 16 bits wide where the card computes with them: fp32 would take twice as much for the
 * same training. Adapters that are bf16 whatever is asked for train in nothing else. */
static const char *default_precision(const vp_device *card, const char *tuning,
                                     const vp_language *language)
{
    bool   frozen    = tuning && strcmp(tuning, "full") != 0;
    bool   quantised = tuning && strcmp(tuning, "qlora") == 0;
    bool   is_plain  = strcmp(language->step_of, "torch") == 0; /* the loop has no GradScaler */
    vp_err why       = {0};
    bool   only_bf16 =
        language->own &&
        vp_hf_check_trl(
            &(vp_hf_trl_question){.precision = "fp16", .capability = 80, .is_quantised = quantised},
            &why) != VP_OK;

    return frozen && (card->bf16 || only_bf16)   ? "bf16-amp"
           : frozen && card->fp16_flop_per_s > 0 ? (is_plain ? "fp16" : "fp16-amp")
           : card->bf16                          ? "bf16-mixed"
           : card->fp16_flop_per_s > 0           ? "fp16-mixed"
                                                 : "fp32";
}

static vp_status pin_liger(answer *a, const vp_plan_options *o, const vp_plan_trainer_options *t,
                           vp_err *err)
{
    const char **loss = &a->request.pinned[VP_SETTING_LOSS];
    const char  *word = vp_language_liger(a->request.job.language, NULL);

    if (!word)
        return VP_FAIL(err, VP_ERR_INPUT, "--liger: %s has no switch for Liger's kernels",
                       t->trainer);
    if (o->loss && strcmp(*loss, word) != 0)
        return VP_FAIL(err, VP_ERR_USAGE, "--loss %s beside --liger, which has Liger's loss",
                       o->loss);
    *loss = word;
    return VP_OK;
}

static vp_status pin_preparation(answer *a, const vp_plan_trainer_options *t, vp_err *err)
{
    vp_status st = VP_OK;

    if (strcmp(t->prepare, "on") != 0 && strcmp(t->prepare, "off") != 0)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--prepare %s: on or off", t->prepare));
    if (!t->qlora)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--prepare %s is of quantised weights: --qlora",
                       t->prepare));
    a->request.pinned[VP_SETTING_PREPARE] = t->prepare;
out:
    return st;
}

/* GRPO's completions: how long they are, and who makes them. */
static vp_status pin_completions(answer *a, const vp_plan_trainer_options *t, vp_err *err)
{
    const char *method  = a->request.pinned[VP_SETTING_METHOD];
    bool        is_grpo = method && strcmp(method, "grpo") == 0;
    int64_t     tokens =
        t->completion ? t->completion : vp_min_i64(a->request.seq / 2, VP_HF_USUAL_COMPLETION);
    vp_settings whole = {.value = {[VP_SETTING_ACCUMULATION] = "1", [VP_SETTING_WORLD] = "1"}};
    vp_status   st    = VP_OK;

    if (!is_grpo && (t->completion || t->vllm))
        return VP_FAIL(err, VP_ERR_USAGE, "%s is for --method grpo",
                       t->vllm ? "--vllm" : "--target-seq");
    if (!is_grpo)
        return VP_OK;
    if (tokens < 1 || tokens >= a->request.seq)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--target-seq %lld: of the %lld tokens of --seq the prompt has one at least",
                       (long long)tokens, (long long)a->request.seq);
    whole.value[VP_SETTING_MICRO_BATCH] =
        vp_arena_printf(a->arena, "%lld", (long long)a->request.global_batch);
    VP_TRY_ALLOC(err, whole.value[VP_SETTING_MICRO_BATCH]);
    if (!vp_group_of(&whole))
        return VP_FAIL(err, VP_ERR_USAGE, "--global-batch %lld: " VP_NO_GROUP,
                       (long long)a->request.global_batch);
    a->request.pinned[VP_SETTING_COMPLETION] = vp_arena_printf(a->arena, "%lld", (long long)tokens);
    a->request.pinned[VP_SETTING_GENERATOR]  = t->vllm ? "vllm" : "model";
    VP_TRY_ALLOC(err, !vp_arena_failed(a->arena));
out:
    return st;
}

static vp_status pin_all(answer *a, const vp_plan_options *o, const vp_plan_trainer_options *t,
                         vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(pin(a, VP_SETTING_PRECISION, "--precision", o->precision, err));
    VP_TRY(pin(a, VP_SETTING_OPTIMIZER, "--optimizer", o->optimizer, err));
    if (a->request.pinned[VP_SETTING_OPTIMIZER] &&
        strcmp(a->request.pinned[VP_SETTING_OPTIMIZER], "any") != 0)
        VP_TRY(vp_optimizer_step_check(a->request.pinned[VP_SETTING_OPTIMIZER], err));
    VP_TRY(
        pin(a, VP_SETTING_RECOMPUTE, "--recompute",
            o->recompute && strcmp(o->recompute, "full:non-reentrant") == 0 ? "full" : o->recompute,
            err));
    VP_TRY(pin(a, VP_SETTING_ATTENTION, "--attention", o->attention, err));
    VP_TRY(pin(a, VP_SETTING_LOSS, "--loss", o->loss, err));
    if (t->liger)
        VP_TRY(pin_liger(a, o, t, err));
    VP_TRY(pin(a, VP_SETTING_PARALLEL, "--parallel", t->parallel, err));
    VP_TRY(pin(a, VP_SETTING_METHOD, "--method", t->method, err));
    VP_TRY(pin_completions(a, t, err));
    if (t->syncs_each)
        a->request.pinned[VP_SETTING_GRADIENT_SYNC] = "each";
    if (t->eval_batch)
        a->request.pinned[VP_SETTING_EVAL_BATCH] =
            vp_arena_printf(a->arena, "%lld", (long long)t->eval_batch);
    if (o->offload && strcmp(o->offload, "activations") == 0)
        a->request.pinned[VP_SETTING_OFFLOAD_ACTIVATIONS] = "cpu";
    else if (o->offload && strcmp(o->offload, "none") != 0)
        a->request.pinned[VP_SETTING_OFFLOAD_OPTIMIZER] = "cpu";
    if (o->offload && strcmp(o->offload, "params") == 0)
        a->request.pinned[VP_SETTING_OFFLOAD_PARAMS] = "cpu";
    if (o->offload && t->world < 2 && !t->parallel && is_of_cards(o->offload))
        a->request.pinned[VP_SETTING_PARALLEL] = vp_world_offloads_one(o->offload);
    if (o->lora || t->qlora)
        VP_TRY(pin_lora(a, o->lora ? o->lora : VP_LORA_USUAL, err));
    if (t->qlora) {
        a->request.pinned[VP_SETTING_TUNING] = "qlora";
        a->request.pinned[VP_SETTING_QUANT]  = "nf4-dq";
    }
    if (t->prepare)
        VP_TRY(pin_preparation(a, t, err));
    a->free_precision = !o->precision;
    if (!o->precision)
        a->request.pinned[VP_SETTING_PRECISION] = default_precision(
            &a->device, a->request.pinned[VP_SETTING_TUNING], a->request.job.language);
out:
    return st;
}

static vp_status check_sizes(const answer *a, vp_err *err)
{
    const vp_choose_request *r    = &a->request;
    int64_t                  each = r->global_batch / r->world;

    if (r->global_batch % r->world)
        return VP_FAIL(err, VP_ERR_USAGE, "--global-batch %lld is no multiple of --world %lld",
                       (long long)r->global_batch, (long long)r->world);
    if (r->micro_batch && each % r->micro_batch)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--micro-batch %lld does not divide the %lld samples of a card",
                       (long long)r->micro_batch, (long long)each);
    if (r->seq > vp_graph_longest(&a->model->graph))
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--seq %lld is longer than the %lld positions of this model",
                       (long long)r->seq, (long long)a->model->graph.max_seq);
    return VP_OK;
}

/* A name that another program can load: the built-in model's repository. */
static const char *loadable_name(const char *name)
{
    const vp_zoo_entry *z = vp_zoo_find(name);

    return z && z->hub_id ? z->hub_id : name;
}

static vp_status set_up(answer *a, const char *name, const vp_plan_options *o,
                        const vp_plan_trainer_options *t, vp_err *err)
{
    vp_choose_request *r    = &a->request;
    vp_model_opts      opts = {.dropout_from_config = true, .class_name = o->class_name};
    vp_status          st   = VP_OK;

    if (!o->global_batch)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, VP_GLOBAL_BATCH_REQUIRED));
    VP_TRY(refuse_alone(o, t, err));
    VP_TRY(vp_target_named(t->trainer, &r->target, err));
    VP_TRY(vp_language_of(r->target, &r->job.language, err));
    VP_TRY(vp_parse_budget(o->device, &o->budget, &a->device, &r->budget_bytes, err));
    VP_TRY(vp_parse_reserve(&o->reserve, &a->device, &r->budget_bytes, err));
    if (a->device.is_cpu)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--trainer %s is for a CUDA card; name one by --device",
                       t->trainer));
    r->job.shelf = vp_hf_shelf_new();
    VP_TRY_ALLOC(err, r->job.shelf);
    VP_TRY(vp_model_to_price(name, &opts, r->job.shelf, &a->model, NULL, err));
    VP_TRY(take_seq(a, o, err));
    if (o->profile)
        VP_TRY(vp_profile_read(o->profile, &a->profile, err));
    if (t->versions)
        VP_TRY(vp_parse_versions(t->versions, &a->versions, err));
    VP_TRY(
        vp_calibration_path(t->calibration, a->calibration_path, sizeof a->calibration_path, err));
    VP_TRY(
        vp_calibration_outside(a->calibration_path, &a->device, &a->context, &a->calibration, err));
    a->reserve     = o->reserve;
    r->job.model   = a->model;
    r->job.device  = &a->device;
    r->job.profile = a->profile;
    r->job.prices  = vp_arena_array(a->arena, 1, sizeof *r->job.prices);
    r->sayable     = vp_sayable_new();
    VP_TRY_ALLOC(err, r->job.prices && r->sayable);
    r->job.padded              = t->padding && strcmp(t->padding, "mask") == 0;
    r->job.context_bytes       = a->context.bytes;
    r->job.context_least_bytes = a->context.least_bytes;
    r->versions                = a->versions;
    r->job.versions            = vp_hf_versions_of(a->arena, a->versions);
    r->model_name              = loadable_name(name);
    r->global_batch            = o->global_batch;
    r->world                   = t->world ? t->world : 1;
    r->micro_batch             = o->micro_batch;
    VP_TRY(check_sizes(a, err));
    VP_TRY(pin_all(a, o, t, err));
out:
    return st;
}

static int64_t context_bytes(const vp_device *card)
{
    return vp_dryrun_context_of(card).bytes;
}

static vp_status find_changes(const vp_choose_request *request, vp_err *err)
{
    answer         *a        = request->user;
    vp_fit_defaults defaults = {.context_bytes = context_bytes,
                                .precision     = a->free_precision ? default_precision : NULL,
                                .reserve       = a->reserve};

    vp_fit_search_free(a->search); /* of a precision that then was not recorded */
    return vp_fit_search_begin(request, &defaults, &a->search, err);
}

static vp_status go_on_finding(const vp_choose_request *request, int64_t least_bytes, vp_err *err)
{
    answer *a = request->user;

    (void)err;
    if (a->search)
        vp_fit_search_least(a->search, least_bytes);
    return VP_OK;
}

static vp_status choose(answer *a, vp_err *err)
{
    a->request.user           = a;
    a->request.nothing_fits   = find_changes;
    a->request.least_is_known = go_on_finding;
    return a->free_precision
               ? vp_choose_any_precision(a->arena, &a->request, &a->chosen, &a->precision_why, err)
               : vp_choose(a->arena, &a->request, &a->chosen, err);
}

/* What is not worth a word. */
static const double SEEN = 0.01;

static void drop_unseen(const answer *a, vp_chosen *other)
{
    if (other->best && other->best->seconds > (1 - SEEN) * a->chosen.best->seconds)
        other->best = NULL;
}

typedef vp_status choose_other(vp_arena *arena, const vp_choose_request *request, vp_chosen *out,
                               vp_err *err);

/* A search beside another one: what both would write is its own. */
typedef struct unasked {
    choose_other     *choose;
    vp_choose_request request;
    vp_eager_prices   prices;
    vp_arena         *arena;
    vp_chosen        *out;
    vp_status         st;
    vp_err            err;
} unasked;

static void choose_unasked(void *with)
{
    unasked *u = with;

    u->st = u->choose(u->arena, &u->request, u->out, &u->err);
}

/* What nobody gets unasked and is faster by what is seen: Liger's kernels, which are to be installed; layers that one's own code has to
 * name. */
static vp_status try_unasked(answer *a, vp_err *err)
{
    unasked   liger = {vp_choose_with_liger, a->request, *a->request.job.prices, a->liger_arena,
                       &a->with_liger};
    bool      asks_liger = a->chosen.best && !a->request.pinned[VP_SETTING_LOSS];
    vp_beside beside;
    vp_status st = VP_OK;

    liger.request.job.prices = &liger.prices;
    if (asks_liger)
        vp_beside_offer(&beside, choose_unasked, &liger);
    if (a->chosen.best && !a->request.pinned[VP_SETTING_RECOMPUTE])
        st = vp_choose_with_first(a->arena, &a->request, &a->chosen, &a->with_first, err);
    if (asks_liger)
        vp_beside_finish(&beside);
    if (st == VP_OK && liger.st != VP_OK) {
        *err = liger.err;
        st   = liger.st;
    }
    drop_unseen(a, &a->with_liger);
    drop_unseen(a, &a->with_first);
    return st;
}

static void release(answer *a)
{
    vp_fit_search_free(a->search);
    vp_hf_shelf_free(a->request.job.shelf);
    vp_sayable_free(a->request.sayable);
    vp_chosen_release(&a->chosen);
    vp_chosen_release(&a->with_liger);
    vp_chosen_release(&a->with_first);
    json_decref(a->versions);
    vp_profile_free(a->profile);
    vp_model_free(a->model);
    vp_arena_free(a->liger_arena);
    vp_arena_free(a->arena);
}

vp_status vp_plan_for_trainer(const char *model_name, const vp_plan_options *o,
                              const vp_plan_trainer_options *t, const vp_command_line *line,
                              const char *path, bool force, vp_cli *cli, vp_err *err)
{
    answer a = {.arena = vp_arena_new(), .liger_arena = vp_arena_new(), .path = path, .line = line};
    json_t   *doc  = NULL;
    vp_text   text = {0};
    vp_status st   = VP_OK;

    VP_TRY_ALLOC(err, a.arena && a.liger_arena);
    VP_TRY(set_up(&a, model_name, o, t, err));
    VP_TRY(choose(&a, err));
    if (a.search && !a.chosen.best) /* of a precision that was given up for one that fits */
        VP_TRY(vp_fit_search_end(a.search, &a.changes, err));
    VP_TRY(try_unasked(&a, err));
    if (a.chosen.best && !a.request.job.language->is_foreign)
        a.padded_bytes = vp_fit_padded_bytes(&a.request.job, &a.chosen.best->settings);
    VP_TRY(vp_plan_trainer_document(&a, &doc, err));
    if (path && a.chosen.best) {
        VP_TRY_ALLOC(err, vp_json_dump(doc, &text));
        VP_TRY(vp_file_write(path, text.data, text.n_bytes, force, err));
    }
    if (cli->json)
        VP_TRY(vp_print_json(json_incref(doc), err));
    else
        vp_plan_trainer_print(&a, doc);
    cli->exit_code = a.chosen.best ? 0 : 3;
out:
    vp_text_release(&text);
    json_decref(doc);
    release(&a);
    return st;
}

bool vp_plan_is_known(const char *model_name, const vp_plan_options *o,
                      const vp_plan_trainer_options *t, const vp_command_line *line)
{
    answer a   = {.arena = vp_arena_new(), .line = line};
    vp_err why = {0};

    a.request.wanted = VP_CHOOSE_KNOWN;
    bool known       = a.arena && model_name && t->trainer &&
                 set_up(&a, model_name, o, t, &why) == VP_OK && choose(&a, &why) == VP_OK;
    release(&a);
    return known;
}

/* ---- adapters, for a plan of the whole model that does not fit ---- */

static const char adapters[] = VP_LORA_USUAL;

/* What was said of the card and the batch stays, what was said of vplan's own step is not the trainer's. */
static void write_offer(const vp_command_line *line, const vp_adapters_offer *offer, vp_text *out)
{
    static const char *const stay[] = {"--device", "--budget", "--reserve", "--seq",
                                       "--global-batch"};
    enum { MOST = 64, N_STAY = sizeof stay / sizeof *stay };
    vp_option_change set[MOST] = {{"--trainer", "hf", false, false},
                                  {"--lora", offer->quantised ? NULL : adapters, false, false},
                                  {"--qlora", NULL, offer->quantised, false}};
    int              n         = 3;
    char             seq[24];

    snprintf(seq, sizeof seq, "%lld", (long long)offer->seq);
    if (offer->seq)
        set[n++] = (vp_option_change){"--seq", seq, false, false};

    for (int s = 0; vp_cmd_plan.sets[s]; s++)
        for (int i = 0; i < vp_cmd_plan.sets[s]->n; i++) {
            const char *name = vp_cmd_plan.sets[s]->rows[i].name;
            bool        goes = vp_is_given(line, name);
            for (int k = 0; k < N_STAY; k++)
                goes = goes && strcmp(name, stay[k]) != 0;
            if (goes && n < MOST)
                set[n++] = (vp_option_change){name, NULL, false, true};
        }
    vp_changed_command("plan", line, NULL, set, n, out);
}

/* Whether those of *out fit; then their bytes and the command are in it. What is not known is not offered. */
static bool fit_with(const char *model_name, const vp_plan_options *plain,
                     const vp_command_line *line, vp_adapters_offer *out, int64_t *seq)
{
    const vp_plan_trainer_options t    = {.trainer = "hf", .qlora = out->quantised};
    answer                        a    = {.arena = vp_arena_new(), .line = line};
    vp_plan_options               o    = *plain;
    vp_err                        none = {0};
    bool                          fits;

    o.lora           = out->quantised ? NULL : adapters;
    o.seq            = out->seq ? out->seq : plain->seq;
    a.request.wanted = VP_CHOOSE_BEST;
    fits             = a.arena && set_up(&a, model_name, &o, &t, &none) == VP_OK &&
           choose(&a, &none) == VP_OK && a.chosen.best;
    *seq = a.request.seq;
    if (fits) {
        out->needs_bytes = a.chosen.best->bytes->high_bytes;
        write_offer(line, out, &out->command);
    }
    release(&a);
    return fits;
}

void vp_offer_adapters(const char *model_name, const vp_plan_options *o,
                       const vp_command_line *line, vp_adapters_offer *out)
{
    enum { LEAST_SEQ = 128, HALVINGS = 3 };
    vp_plan_options plain = {.device       = o->device,
                             .class_name   = o->class_name,
                             .budget       = o->budget,
                             .reserve      = o->reserve,
                             .seq          = o->seq,
                             .global_batch = o->global_batch};

    int64_t seq;

    *out      = (vp_adapters_offer){.quantised = o->lora != NULL};
    bool fits = fit_with(model_name, &plain, line, out, &seq);
    if (!fits && !out->quantised) {
        out->quantised = true;
        fits           = fit_with(model_name, &plain, line, out, &seq);
    }
    for (int n = 0; !fits && seq / 2 >= LEAST_SEQ && n < HALVINGS; n++) {
        out->seq = seq / 2;
        fits     = fit_with(model_name, &plain, line, out, &seq);
    }
}

const char *vp_adapters_text(const vp_adapters_offer *offer, char *buf, size_t buf_size)
{
    char seq[64] = "";

    if (offer->seq)
        snprintf(seq, sizeof seq, ", samples of %lld tokens", (long long)offer->seq);
    snprintf(buf, buf_size,
             "adapters in place of the whole model (LoRA%s)%s, in transformers' Trainer",
             offer->quantised ? " over weights in NF4" : "", seq);
    return buf;
}
