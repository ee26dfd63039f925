#include "cli/cmd_plan_trainer.h"

#include "cli/calibration.h"
#include "cli/estimate.h"
#include "cli/names.h"
#include "cli/plan_trainer_changes.h"
#include "cli/rows.h"
#include "cli/screen.h"
#include "cli/words.h"

#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "dryrun/dryrun_run.h"
#include "trainers/files/emit.h"
#include "trainers/fit/choose.h"
#include "trainers/hf/hf_versions.h"
#include "trainers/torch/optimizer_step.h"
#include "trainers/torch/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const vp_option rows[] = {
    {.name    = "--trainer",
     .kind    = VP_OPTION_TEXT,
     .at      = offsetof(vp_plan_trainer_options, trainer),
     .value   = "TARGET",
     .suggest = vp_word_of_target,
     .help    = "Plan in the language of this trainer instead: the fastest settings that it can be "
                "told, for vplan emit",
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
    {.name  = "--method",
     .kind  = VP_OPTION_TEXT,
     .at    = offsetof(vp_plan_trainer_options, method),
     .value = "sft|dpo",
     .help  = "How a trainer learns: from texts, or from pairs of sequences, as TRL's DPOTrainer "
              "does; --global-batch and --micro-batch count pairs then",
     .otherwise = "sft",
     .example   = "dpo"},
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
                         : t->padding     ? "--padding"
                         : t->method      ? "--method"
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

typedef struct answer {
    vp_arena              *arena;
    vp_model              *model;
    vp_profile            *profile;
    vp_device              device;
    vp_dryrun_context      context;
    vp_calibration         calibration; /* of this card; its card is "" where there is none */
    char                   calibration_path[VP_CALIBRATION_PATH];
    vp_choose_request      request;
    vp_chosen              chosen;
    vp_fit_search         *search; /* where nothing fits; so is what it found */
    vp_fit_changes         changes;
    json_t                *versions;
    const vp_command_line *line;
    const char            *path;
    vp_amount              reserve;        /* of the card, not in the request's budget */
    bool                   free_precision; /* not asked for: the first that can be answered */
    const char            *precision_why;  /* what kept a better one from it; NULL: nothing */
} answer;

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

static vp_status require_sizes(const vp_plan_options *o, vp_err *err)
{
    if (!o->seq)
        return VP_FAIL(err, VP_ERR_USAGE, VP_SEQ_REQUIRED);
    if (!o->global_batch)
        return VP_FAIL(err, VP_ERR_USAGE, VP_GLOBAL_BATCH_REQUIRED);
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
    if (o->offload && strcmp(o->offload, "activations") == 0 &&
        (t->world > 1 || strcmp(t->trainer, "hf") != 0))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--offload activations: known is what transformers' Trainer does, on one "
                       "card: --trainer hf");
    if (t->syncs_each && t->world < 2)
        return VP_FAIL(err, VP_ERR_USAGE, VP_SYNC_NEEDS_CARDS);
    if (o->offload && t->world < 2 && t->parallel && is_of_cards(o->offload) &&
        !vp_world_knows_one(t->parallel, o->offload))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--offload %s of one card is known of zero2 (optimizer) and zero3 (params), "
                       "not of --parallel %s",
                       o->offload, t->parallel);
    return VP_OK;
}

static vp_status pin_lora(answer *a, const char *text, vp_err *err)
{
    const char     **pinned = a->request.pinned;
    vp_estimate_lora lora;
    vp_status        st = VP_OK;

    VP_TRY(vp_estimate_read_lora(text, a->model->family, &lora, err));
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

static vp_status pin_all(answer *a, const vp_plan_options *o, const vp_plan_trainer_options *t,
                         vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(pin(a, VP_SETTING_PRECISION, "--precision", o->precision, err));
    VP_TRY(pin(a, VP_SETTING_OPTIMIZER, "--optimizer", o->optimizer, err));
    if (a->request.pinned[VP_SETTING_OPTIMIZER] &&
        strcmp(a->request.pinned[VP_SETTING_OPTIMIZER], "any") != 0)
        VP_TRY(vp_optimizer_step_check(a->request.pinned[VP_SETTING_OPTIMIZER], err));
    VP_TRY(pin(a, VP_SETTING_RECOMPUTE, "--recompute", o->recompute, err));
    VP_TRY(pin(a, VP_SETTING_ATTENTION, "--attention", o->attention, err));
    VP_TRY(pin(a, VP_SETTING_LOSS, "--loss", o->loss, err));
    VP_TRY(pin(a, VP_SETTING_PARALLEL, "--parallel", t->parallel, err));
    VP_TRY(pin(a, VP_SETTING_METHOD, "--method", t->method, err));
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
    if (r->seq > a->model->graph.max_seq)
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

    VP_TRY(require_sizes(o, err));
    VP_TRY(refuse_alone(o, t, err));
    VP_TRY(vp_target_named(t->trainer, &r->target, err));
    VP_TRY(vp_language_of(r->target, &r->job.language, err));
    VP_TRY(vp_parse_budget(o->device, &o->budget, &a->device, &r->budget_bytes, err));
    VP_TRY(vp_parse_reserve(&o->reserve, &a->device, &r->budget_bytes, err));
    if (a->device.is_cpu)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--trainer %s is for a CUDA card; name one by --device",
                       t->trainer));
    VP_TRY(vp_model_with_graph(name, &opts, &a->model, NULL, err));
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
    r->job.shelf   = vp_hf_shelf_new();
    VP_TRY_ALLOC(err, r->job.prices && r->job.shelf);
    r->job.padded              = t->padding && strcmp(t->padding, "mask") == 0;
    r->job.context_bytes       = a->context.bytes;
    r->job.context_least_bytes = a->context.least_bytes;
    r->versions                = a->versions;
    r->job.versions            = vp_hf_versions_of(a->arena, a->versions);
    r->model_name              = loadable_name(name);
    r->seq                     = o->seq;
    r->global_batch            = o->global_batch;
    r->world                   = t->world ? t->world : 1;
    r->micro_batch             = o->micro_batch;
    VP_TRY(check_sizes(a, err));
    VP_TRY(pin_all(a, o, t, err));
out:
    return st;
}

/* ---- as JSON ---- */

/* By the trainer's own names: those of its first file. */
static vp_status own_settings(const answer *a, const vp_settings *s, json_t **out,
                              json_t **versions, vp_err *err)
{
    vp_emitted  e = {0};
    const char *key;
    json_t     *value;
    vp_status   st = VP_OK;

    *out = NULL;
    VP_TRY(vp_emit(a->arena, a->request.target, s, "", &e, err));
    json_object_foreach (e.settings, key, value) {
        *out = json_incref(value);
        break;
    }
    if (versions)
        *versions = json_incref(e.versions);
out:
    vp_emitted_release(&e);
    return st;
}

/* Files may be for libraries that the step was not recorded with. */
static void say_other_versions(const answer *a, const char *recorded, json_t *list)
{
    const char *library;
    json_t     *version;

    json_object_foreach (a->versions, library, version)
        if (vp_hf_is_other_version(recorded, library, json_string_value(version)))
            json_array_append_new(
                list, json_sprintf("files are for %s=%s, with which this step was not recorded: "
                                   "bytes are of the libraries that are named",
                                   library, json_string_value(version)));
}

static json_t *assumptions_json(const answer *a)
{
    const vp_chosen *c       = &a->chosen;
    const vp_choice *b       = c->best ? c->best : c->least;
    json_t          *list    = json_array();
    vp_text          refused = {0};

    json_array_append_new(list, json_sprintf("libraries: %s", b->bytes.versions));
    say_other_versions(a, b->bytes.versions, list);
    for (int i = 0; i < b->bytes.n_assumptions; i++)
        json_array_append_new(list, json_string(b->bytes.assumptions[i]));
    if (b->bytes.why)
        json_array_append_new(list, json_string(b->bytes.why));
    if (a->precision_why)
        json_array_append_new(list, json_string(a->precision_why));
    if (*a->calibration.card)
        json_array_append_new(list,
                              vp_calibration_said(&a->calibration, a->calibration_path, false));
    json_array_append_new(list,
                          json_sprintf("interval: -%.0f to +%.0f %% of the reserved bytes; %s",
                                       100 * b->bytes.low, 100 * b->bytes.high, b->bytes.basis));
    json_array_append_new(
        list, json_sprintf("seconds: %s, with the kernels that transformers launches in place of "
                           "vplan's; they rank settings and are no measurement",
                           a->profile ? "the profile's" : "the card's stated rates"));
    vp_text_printf(&refused, "not compared, for such steps were not recorded: ");
    for (int i = 0; i < c->n_refusals; i++)
        vp_text_printf(&refused, "%s%s", i ? "; " : "", c->refusals[i]);
    if (c->n_refusals && !refused.failed)
        json_array_append_new(list, json_string(refused.data));
    vp_text_release(&refused);
    return list;
}

static json_t *interval_json(const vp_fit_bytes *b)
{
    return json_pack("{s:I, s:I, s:f}", "low_bytes", (json_int_t)b->low_bytes, "high_bytes",
                     (json_int_t)b->high_bytes, "probability", VP_LANGUAGE_PROBABILITY);
}

/* A setting that is listed, or null for none. */
static vp_status choice_json(const answer *a, const vp_choice *c, json_t **out, vp_err *err)
{
    json_t   *own;
    vp_status st = VP_OK;

    if (!c) {
        *out = json_null();
        goto out;
    }
    VP_TRY(own_settings(a, &c->settings, &own, NULL, err));
    *out = json_pack("{s:o, s:o, s:I, s:o, s:f, s:b, s:b}", "settings", own, "common",
                     vp_settings_common_json(&c->settings), "device_bytes",
                     (json_int_t)c->bytes.device_bytes, "interval", interval_json(&c->bytes),
                     "step_time_s", c->seconds, "fits", (int)c->fits, "tight", (int)c->is_tight);
    VP_TRY_ALLOC(err, *out);
out:
    return st;
}

static vp_status alternatives_json(const answer *a, json_t **out, vp_err *err)
{
    json_t   *list = json_array(), *one;
    vp_status st   = VP_OK;

    for (int i = 0; i < a->chosen.n_alternatives; i++) {
        VP_TRY(choice_json(a, a->chosen.alternatives[i], &one, err));
        json_array_append_new(list, one);
    }
    VP_TRY_ALLOC(err, list);
    *out = list;
out:
    if (st != VP_OK)
        json_decref(list);
    return st;
}

static json_t *proof_json(const answer *a)
{
    const vp_chosen *c = &a->chosen;

    return json_pack("{s:s, s:o, s:o, s:o, s:s, s:s, s:I, s:I}", "status",
                     c->best ? "optimal" : "infeasible", "gap",
                     c->best ? json_real(0) : json_null(), "bound_s",
                     c->best ? json_real(c->best->seconds) : json_null(), "least_budget_bytes",
                     c->best ? json_null() : json_integer((json_int_t)c->least->bytes.high_bytes),
                     "checked_by", "vplan", "method", "enumeration", "sized",
                     (json_int_t)c->n_sized, "not_recorded", (json_int_t)c->n_refused);
}

static json_t *next_gib_json(const answer *a)
{
    const vp_choice *r = a->chosen.richer;

    if (!r)
        return json_null();
    return json_pack(
        "{s:o, s:I, s:f, s:o}", "common", vp_settings_common_json(&r->settings), "device_bytes",
        (json_int_t)r->bytes.device_bytes, "step_time_s", r->seconds, "saves_seconds",
        a->chosen.best ? json_real(a->chosen.best->seconds - r->seconds) : json_null());
}

/* What -o writes and --json prints. Where nothing fits, the setting that needs least stands apart. */
static vp_status document(const answer *a, json_t **out, vp_err *err)
{
    const vp_choice *b   = a->chosen.best ? a->chosen.best : a->chosen.least;
    json_t          *own = NULL, *versions = NULL, *alternatives = NULL, *least = NULL;
    int64_t          tokens = a->request.global_batch * a->request.seq;
    bool             fits   = a->chosen.best != NULL;
    vp_status        st     = VP_OK;

    VP_TRY(own_settings(a, &b->settings, &own, &versions, err));
    VP_TRY(alternatives_json(a, &alternatives, err));
    VP_TRY(choice_json(a, fits ? NULL : b, &least, err));
    const vp_model *model = a->request.job.model;

    *out = json_pack(
        "{s:i, s:s, s:s, s:O, s:{s:s, s:s, s:o*, s:I, s:I}, s:s, s:I, s:s, s:O, s:o}",
        "schema_version", 1, "kind", "settings", "trainer", a->request.target->name, "versions",
        versions, "model", "name", a->request.model_name, "class", model->class_name, "labels",
        model->n_labels ? json_integer(model->n_labels) : NULL, "params_total",
        (json_int_t)b->bytes.n_params, "params_trainable", (json_int_t)b->bytes.n_trained, "device",
        a->device.name, "budget_bytes", (json_int_t)a->request.budget_bytes, "padding",
        a->request.job.padded ? "mask" : "none", "settings", fits ? own : json_null(), "common",
        fits ? vp_settings_common_json(&b->settings) : json_object());
    VP_TRY_ALLOC(err, *out);
    VP_TRY_ALLOC(
        err,
        json_object_update_new(
            *out,
            json_pack(
                "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:O, s:O, s:o, s:o, s:o}",
                "allocated_peak_bytes", vp_json_int_or_null(fits ? b->bytes.allocated_bytes : -1),
                "reserved_peak_bytes", vp_json_int_or_null(fits ? b->bytes.reserved_bytes : -1),
                "device_bytes", vp_json_int_or_null(fits ? b->bytes.device_bytes : -1), "interval",
                fits ? interval_json(&b->bytes) : json_null(), "peak_phase",
                fits ? json_string(b->bytes.peak_phase) : json_null(), "step_time_s",
                fits ? json_real(b->seconds) : json_null(), "tokens_per_s",
                fits ? json_real((double)tokens / b->seconds) : json_null(), "compared",
                (json_int_t)(a->chosen.n - a->chosen.n_refused), "proof", proof_json(a), "least",
                least, "alternatives", alternatives, "next_gib", next_gib_json(a), "assumptions",
                assumptions_json(a), "changes", vp_fit_changes_json(&a->changes, a->line))) == 0);
    if (*a->calibration.card)
        json_object_set_new(*out, "calibration",
                            vp_calibration_json(&a->calibration, a->calibration_path, false));
out:
    json_decref(own);
    json_decref(versions);
    json_decref(least);
    json_decref(alternatives);
    return st;
}

/* ---- for people ---- */

static bool syncs_each(const vp_settings *s)
{
    return strcmp(s->value[VP_SETTING_GRADIENT_SYNC], "each") == 0;
}

static const char *text_of(const vp_settings *s, char *buf, size_t size)
{
    bool several = strcmp(s->value[VP_SETTING_WORLD], "1") != 0;

    const char *tuning = s->value[VP_SETTING_TUNING], *quant = s->value[VP_SETTING_QUANT];
    bool        full = !tuning || strcmp(tuning, "full") == 0;

    snprintf(buf, size, "micro-batch %s, accumulation %s%s, recompute %s%s%s%s%s, %s, %s%s%s%s%s",
             s->value[VP_SETTING_MICRO_BATCH], s->value[VP_SETTING_ACCUMULATION],
             syncs_each(s) ? " (each is reduced)" : "", s->value[VP_SETTING_RECOMPUTE],
             strcmp(s->value[VP_SETTING_ALLOCATOR], "default") == 0 ? "" : ", allocator ",
             strcmp(s->value[VP_SETTING_ALLOCATOR], "default") == 0
                 ? ""
                 : s->value[VP_SETTING_ALLOCATOR],
             several ? ", " : "", several ? s->value[VP_SETTING_PARALLEL] : "",
             s->value[VP_SETTING_PRECISION], s->value[VP_SETTING_OPTIMIZER], full ? "" : ", ",
             full ? "" : tuning, !full && quant ? " in " : "", !full && quant ? quant : "");
    return buf;
}

/* What is said otherwise than in the answer. */
static const char *difference_text(const vp_settings *s, const vp_settings *than, char *buf,
                                   size_t size)
{
    int n = snprintf(buf, size, "%s x %s", s->value[VP_SETTING_MICRO_BATCH],
                     s->value[VP_SETTING_ACCUMULATION]);

    for (int i = 0; i < VP_N_SETTINGS && n < (int)size; i++)
        if (i != VP_SETTING_MICRO_BATCH && i != VP_SETTING_ACCUMULATION && s->value[i] &&
            than->value[i] && strcmp(s->value[i], than->value[i]) != 0 &&
            (i != VP_SETTING_GRADIENT_SYNC || vp_world_syncs_each(s->value[VP_SETTING_PARALLEL])))
            n += snprintf(buf + n, size - (size_t)n, ", %s %s", vp_setting_key(i), s->value[i]);
    return buf;
}

enum { WIDTH_OF_SETTINGS = 44 };

static void print_alternatives(const answer *a)
{
    const vp_choice *than = a->chosen.best ? a->chosen.best : a->chosen.least;
    char             text[300], bytes[32], time[32];
    bool             any_tight = a->chosen.least && a->chosen.least->is_tight;

    if (a->chosen.n_alternatives)
        printf("%-46s %12s %9s\n", "nearest: micro-batch x accumulation", "needs", "step");
    for (int i = 0; i < a->chosen.n_alternatives; i++) {
        const vp_choice *c = a->chosen.alternatives[i];
        difference_text(&c->settings, &than->settings, text, sizeof text);
        printf("  %-*s %12s %9s%s\n", WIDTH_OF_SETTINGS, vp_screen_head(text, WIDTH_OF_SETTINGS),
               vp_size_text(c->bytes.high_bytes, bytes, sizeof bytes),
               vp_time_text(c->seconds, time, sizeof time),
               c->fits       ? ""
               : c->is_tight ? " tight"
                             : " too large");
        any_tight |= c->is_tight;
    }
    if (any_tight)
        vp_screen_line("tight", "may fit all the same: as it is predicted, or since PyTorch gives "
                                "back its cache, which takes time");
}

static void print_next_gib(const answer *a)
{
    const vp_choice *r = a->chosen.richer;
    char             text[300], time[32];

    if (!r)
        vp_screen_line("one GiB", "more buys nothing");
    else
        vp_screen_line("one GiB", "more saves %s a step: %s",
                       vp_time_text(a->chosen.best->seconds - r->seconds, time, sizeof time),
                       text_of(&r->settings, text, sizeof text));
}

static void print_own(const json_t *own)
{
    vp_text     text = {0};
    const char *key;
    json_t     *value;

    json_object_foreach ((json_t *)own, key, value) {
        char *shown =
            json_is_object(value) || json_is_null(value)
                ? NULL
                : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
        if (shown)
            vp_text_printf(&text, "%s%s %s", text.data ? ", " : "", key, shown);
        free(shown);
    }
    if (text.data)
        vp_screen_line("settings", "%s", text.data);
    vp_text_release(&text);
}

static void print_best(const answer *a)
{
    const vp_choice    *b = a->chosen.best;
    const vp_fit_bytes *x = &b->bytes;
    char                s[4][32], text[300], likely[16];
    double              tokens = (double)(a->request.global_batch * a->request.seq);

    snprintf(likely, sizeof likely, "%.0f %%", 100 * VP_LANGUAGE_PROBABILITY);
    vp_screen_line("plan", "%s", text_of(&b->settings, text, sizeof text));
    vp_screen_line("memory",
                   "%s allocated, in %s; %s reserved; %s with context and libraries; %s "
                   "at most (%s)",
                   vp_size_text(x->allocated_bytes, s[0], sizeof s[0]), x->peak_phase,
                   vp_size_text(x->reserved_bytes, s[1], sizeof s[1]),
                   vp_size_text(x->device_bytes, s[2], sizeof s[2]),
                   vp_size_text(x->high_bytes, s[3], sizeof s[3]),
                   a->request.job.language->is_foreign ? "assumed" : likely);
    vp_screen_line("time", "%s a step, %s tokens/s (assumed)",
                   vp_time_text(b->seconds, s[0], sizeof s[0]),
                   vp_count_text((int64_t)(tokens / b->seconds), s[1], sizeof s[1]));
}

/* The files of the settings; without -o first the settings themselves. */
static void print_next(const answer *a)
{
    vp_text                command = {0};
    const vp_option_change written = {"-o", "settings.json", false, false};

    if (a->path) {
        printf("written to %s\n", a->path);
        vp_text_printf(&command, "vplan emit ");
        vp_text_quoted(&command, a->path);
        vp_text_printf(&command, " --for %s -o run", a->request.target->name);
    } else {
        vp_changed_command("plan", a->line, NULL, &written, 1, &command);
    }
    vp_screen_command("next", vp_text_string(&command));
    vp_text_release(&command);
}

static void print_answer(const answer *a, const json_t *doc)
{
    const vp_chosen         *c = &a->chosen;
    const vp_choose_request *r = &a->request;
    const vp_choice         *b = c->best ? c->best : c->least;
    char                     speed[64], count[32], text[300];
    size_t                   i;
    json_t                  *line;

    snprintf(speed, sizeof speed, "%s tokens/s (assumed)",
             vp_count_text((int64_t)((double)(r->global_batch * r->seq) / b->seconds), count,
                           sizeof count));
    vp_screen_answer(b->bytes.high_bytes, r->budget_bytes, c->best ? speed : NULL);
    vp_screen_line("model", "%s on %s, trainer %s, sequence %lld, global batch %lld",
                   a->model->name, a->device.name, r->target->name, (long long)r->seq,
                   (long long)r->global_batch);
    if (c->best)
        print_best(a);
    else
        vp_screen_line("least", "%s%s", text_of(&b->settings, text, sizeof text),
                       b->is_tight ? "; tight" : "");
    if (c->best)
        print_own(json_object_get(doc, "settings"));
    vp_screen_line("compared",
                   "%lld settings, all that %s can be told here, by their seconds; bytes of %lld%s",
                   (long long)(c->n - c->n_refused), r->target->name, (long long)c->n_sized,
                   c->best ? ", up to the first that fits" : "");
    if (c->best)
        print_next_gib(a);
    print_alternatives(a);
    json_array_foreach (json_object_get(doc, "assumptions"), i, line)
        vp_screen_line("assumed", "%s", json_string_value(line));
    vp_print_fit_changes(&a->changes, a->line);
    if (!c->best && !a->changes.n)
        vp_screen_line("what fits", "none of the changes that plan tries: it takes more or larger "
                                    "cards, a smaller model, or fewer tokens");
    if (c->best)
        print_next(a);
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

static void release(answer *a)
{
    vp_fit_search_free(a->search);
    vp_hf_shelf_free(a->request.job.shelf);
    vp_chosen_release(&a->chosen);
    json_decref(a->versions);
    vp_profile_free(a->profile);
    vp_model_free(a->model);
    vp_arena_free(a->arena);
}

vp_status vp_plan_for_trainer(const char *model_name, const vp_plan_options *o,
                              const vp_plan_trainer_options *t, const vp_command_line *line,
                              const char *path, bool force, vp_cli *cli, vp_err *err)
{
    answer    a    = {.arena = vp_arena_new(), .path = path, .line = line};
    json_t   *doc  = NULL;
    vp_text   text = {0};
    vp_status st   = VP_OK;

    VP_TRY_ALLOC(err, a.arena);
    VP_TRY(set_up(&a, model_name, o, t, err));
    VP_TRY(choose(&a, err));
    if (a.search && !a.chosen.best) /* of a precision that was given up for one that fits */
        VP_TRY(vp_fit_search_end(a.search, &a.changes, err));
    VP_TRY(document(&a, &doc, err));
    if (path && a.chosen.best) {
        VP_TRY_ALLOC(err, vp_json_dump(doc, &text));
        VP_TRY(vp_file_write(path, text.data, text.n_bytes, force, err));
    }
    if (cli->json)
        VP_TRY(vp_print_json(json_incref(doc), err));
    else
        print_answer(&a, doc);
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

    a.request.wanted = VP_CHOOSE_BEST;
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
        out->needs_bytes = a.chosen.best->bytes.high_bytes;
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
