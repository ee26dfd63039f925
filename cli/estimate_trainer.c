/* vplan estimate --trainer torch: what a training step of PyTorch takes, from a recording of it. */
#include "cli/estimate.h"
#include "cli/estimate_lengths.h"
#include "cli/estimate_measured.h"
#include "cli/estimate_next.h"
#include "cli/estimate_remedies.h"
#include "cli/screen.h"
#include "cli/words.h"

#include "base/checked.h"
#include "base/units.h"
#include "dryrun/dryrun_run.h"
#include "trainers/hf/hf_estimate.h"
#include "trainers/torch/world.h"

#include <stdio.h>
#include <string.h>

typedef struct answer {
    vp_model         *model;
    vp_device         device;
    vp_hf_request     request;
    vp_hf_estimate    estimate;
    vp_estimate_lora  lora;
    vp_dryrun_context context;
    int64_t           budget_bytes; /* -1: none */
    bool              has_device, seq_is_default, not_even_least;
    const char       *max; /* what was looked for; NULL: nothing */
    bool              precision_is_default, batch_is_default;
    vp_remedy         remedies[VP_REMEDIES];
    int               n_remedies;
    vp_remedy_chain   fitting; /* where has_fitting */
    bool              has_fitting;
    vp_lengths        lengths;
    vp_length_answer  of_lengths; /* where there are lengths */
    vp_measured       measured;   /* where measured_in is no NULL */
    const char       *measured_in;
    int64_t           assumed_context_bytes; /* before it was measured */
} answer;

/* A word of --optimizer: transformers', or vplan's where it means the same. */
static const char *optimizer_word(const char *word)
{
    return !word || strcmp(word, "adamw") == 0 ? "adamw_torch" : word;
}

static const char *attention_word(const char *word)
{
    return !word || strcmp(word, "flash") == 0 || strcmp(word, "sdpa") == 0 ? "sdpa:flash"
           : strcmp(word, "math") == 0                                      ? "sdpa:math"
                                                                            : word;
}

static vp_status refuse_alone(const vp_estimate_options *o, vp_err *err)
{
    const char *parallel = o->parallel ? o->parallel : "ddp";

    if (o->world < 2 && (o->parallel || o->offload))
        return VP_FAIL(err, VP_ERR_USAGE, "--%s: with how many cards? --world 2 or more",
                       o->parallel ? "parallel" : "offload");
    if (o->offload && !vp_world_offloads(parallel, o->offload))
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--offload %s is not what --parallel %s does; zero1 and zero2 offload the "
                       "optimizer, zero3 that or params, fsdp2 params",
                       o->offload, parallel);
    return VP_OK;
}

static vp_status refuse_vplans_own(const vp_estimate_options *o, vp_err *err)
{
    if (o->ladder)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--ladder is for vplan's own runtime, not for --trainer %s; what would make "
                       "its step smaller is said without it",
                       o->trainer);
    if (o->gradients)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--gradients is for vplan's own runtime, not for --trainer: PyTorch's "
                       "gradients have their parameters' number format");
    bool is_trl = strcmp(o->trainer, "trl") == 0;
    if (o->loss && is_trl && strcmp(o->loss, "chunked") != 0)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--loss %s: SFTTrainer makes its loss in tiles of its own from TRL 1.16 on, "
                       "which chunked means; --trainer hf --recompute full has whole logits",
                       o->loss);
    if (o->loss && !is_trl && strcmp(o->loss, "full") != 0 && strcmp(o->loss, "liger") != 0)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--loss %s: transformers computes the loss over all tokens at once",
                       o->loss);
    if (o->method && !is_trl)
        return VP_FAIL(err, VP_ERR_USAGE, "--method %s is of --trainer trl", o->method);
    if (o->liger && (is_trl || strcmp(o->trainer, "torch") == 0))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--liger: recorded were Liger's kernels as transformers' Trainer has them: "
                       "--trainer hf");
    if (o->liger && o->loss && strcmp(o->loss, "liger") != 0)
        return VP_FAIL(err, VP_ERR_USAGE, "--liger has Liger's loss: leave --loss %s out", o->loss);
    if (is_trl && o->world > 1)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--trainer trl --world %lld: SFTTrainer was recorded on one card only; "
                       "--trainer hf knows several, with whole logits, which take more",
                       (long long)o->world);
    if (o->load && strcmp(o->load, "int8") == 0)
        return VP_FAIL(
            err, VP_ERR_INPUT,
            "--load int8: no step with weights of 8 bits was recorded; what their products take "
            "depends on values (outliers). There are nf4 and nf4-dq");
    if (o->recompute && strcmp(o->recompute, "none") != 0 && strcmp(o->recompute, "full") != 0)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--recompute %s: recorded were none and full (gradient checkpointing)",
                       o->recompute);
    return VP_OK;
}

/* With vplan's own graph where there is one, whose parameters are then counted against; else the config
 * alone, which is enough for a recording. */
static vp_status open_model(const char *name, const vp_estimate_options *o, vp_model **out,
                            vp_err *err)
{
    vp_model_opts opts    = {.dropout_from_config = true, .class_name = o->class_name};
    vp_err        ignored = {0};

    if (!o->task && vp_model_open(name, &opts, out, &ignored) == VP_OK)
        return VP_OK;
    opts.config_only = true;
    return vp_model_open(name, &opts, out, err);
}

/* What each trainer does unasked. torch: a plain loop; hf: TrainingArguments; trl: SFTConfig. */
typedef struct trainer_defaults {
    const char *trainer, *precision, *adapted, *half, *optimizer,
        *recompute;           /* of --lora, --qlora */
    int64_t micro_batch, seq; /* seq: at most */
    bool    clips;            /* as transformers' Trainer does */
} trainer_defaults;

/* TRL's trainers by what --method says. */
static const char *trainer_of(const vp_estimate_options *o)
{
    bool is_dpo = o->method && strcmp(o->method, "dpo") == 0;

    return is_dpo ? "dpo" : o->trainer;
}

static const trainer_defaults defaults[] = {
    {"torch", "fp32", "fp32", "bf16", "adamw_torch", "none", 1, VP_ESTIMATE_SEQ, false},
    {"hf", "bf16-mixed", "bf16-amp", "bf16-amp", "adamw_torch_fused", "none", 8, VP_ESTIMATE_SEQ,
     true}, /* frozen weights stay as the Hub has them */
    {"trl", "bf16-mixed", "bf16-mixed", "bf16-amp", "adamw_torch_fused", "full", 8,
     VP_ESTIMATE_SFT_SEQ, true},
    {"dpo", "bf16-mixed", "bf16-mixed", "bf16-amp", "adamw_torch_fused", "full", 8,
     VP_ESTIMATE_SFT_SEQ, true},
};

static const trainer_defaults *defaults_of(const char *trainer)
{
    size_t i = 0;

    while (i + 1 < sizeof defaults / sizeof *defaults && strcmp(defaults[i].trainer, trainer) != 0)
        i++;
    return &defaults[i];
}

/* What --qlora says, where an option does not. */
static vp_estimate_options with_qlora(const vp_estimate_options *given)
{
    vp_estimate_options o = *given;

    if (!o.qlora)
        return o;
    o.load      = o.load ? o.load : "nf4-dq";
    o.lora      = o.lora ? o.lora : "r=16,alpha=32,targets=all-linear";
    o.recompute = o.recompute ? o.recompute : "full";
    return o;
}

static vp_status open_device(const vp_estimate_options *o, answer *a, vp_err *err)
{
    vp_status st = VP_OK;

    a->budget_bytes = o->budget.bytes ? o->budget.bytes : -1;
    if (!o->device && o->budget.share > 0)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--budget: a share of which --device?"));
    a->has_device = o->device != NULL;
    if (o->device)
        VP_TRY(vp_parse_budget(o->device, &o->budget, &a->device, &a->budget_bytes, err));
    if (a->device.is_cpu)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--trainer %s is for a CUDA card, not for --device cpu",
                       o->trainer));
    if (o->device)
        a->context = vp_dryrun_context_of(&a->device);
    if (o->device)
        a->context.bytes += vp_world_communicator_bytes(o->world);
out:
    return st;
}

static void fill_request(const vp_estimate_options *o, answer *a)
{
    const trainer_defaults *d = defaults_of(o->trainer);

    a->seq_is_default = !o->seq;
    a->request        = (vp_hf_request){
               .trainer   = trainer_of(o),
               .precision = o->precision,
               .attention = attention_word(o->attention),
               .optimizer = o->optimizer ? optimizer_word(o->optimizer) : d->optimizer,
               .recompute = o->recompute ? o->recompute : d->recompute,
               .padded    = (o->padding && strcmp(o->padding, "mask") == 0) ||
                         (!o->padding && strcmp(trainer_of(o), "dpo") == 0),
               .lora            = {.targets = "none"},
               .load            = o->load ? o->load : "none",
               .resident        = o->resident,
               .keep_output     = o->keep_output,
               .liger           = o->liger                                   ? "all"
                                  : o->loss && strcmp(o->loss, "liger") == 0 ? "loss"
                                                                             : "none",
               .clips           = d->clips,
               .world           = o->world ? o->world : 1,
               .parallel        = o->parallel    ? o->parallel
                                  : o->world > 1 ? "ddp"
                                                 : "none",
               .offload         = o->offload ? o->offload : "none",
               .device_bytes    = o->device ? a->device.usable_bytes : 0,
               .batch           = o->micro_batch ? o->micro_batch : d->micro_batch,
               .seq             = o->seq,
               .target_seq      = o->target_seq,
               .default_seq     = d->seq,
               .task            = o->task,
               .accumulation    = o->accumulation ? o->accumulation : 1,
               .eval_batch      = o->eval_batch,
               .capability      = o->device ? a->device.compute_capability : 90,
               .processors      = o->device ? a->device.multiprocessors : 132,
               .workspace_bytes = VP_HF_WORKSPACE_OF_CARD,
    };
}

/* ---- --max ---- */

/* The least value must have an estimate; a larger one that has none, as beyond the model's positions, does
 * not fit. */
static vp_status fits_with(answer *a, bool is_least, bool *fits, vp_err *err)
{
    vp_err    why = {0};
    vp_status st  = vp_hf_estimate_run(a->model, &a->request, &a->estimate, &why);

    *fits = st == VP_OK && a->estimate.reserved_bytes + a->context.bytes <= a->budget_bytes;
    if (st == VP_OK || (!is_least && st != VP_ERR_NOMEM))
        return VP_OK;
    *err = why;
    return st;
}

/* The largest value that fits, sequences in eights; memory grows with both. */
static vp_status maximise(answer *a, const vp_estimate_options *o, vp_err *err)
{
    bool      batch = strcmp(o->max, "micro-batch") == 0, fits;
    int64_t  *knob = batch ? &a->request.batch : &a->request.seq, unit = batch ? 1 : 8;
    int64_t   least = 0, least_not = 0;
    vp_status st = VP_OK;

    if (batch ? o->micro_batch : o->seq)
        VP_TRY(
            VP_FAIL(err, VP_ERR_USAGE,
                    "--max %s looks for the largest %s, and --%s gives one: leave one of them out",
                    o->max, o->max, o->max));
    if (a->budget_bytes < 0)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--max needs a --budget or a --device to fit into"));
    for (int64_t n = 1; !least_not; n *= 2) {
        *knob = n * unit;
        VP_TRY(fits_with(a, n == 1, &fits, err));
        if (fits)
            least = n;
        else
            least_not = n;
    }
    while (least_not - least > 1 && least) {
        int64_t middle = least + (least_not - least) / 2;
        *knob          = middle * unit;
        VP_TRY(fits_with(a, false, &fits, err));
        if (fits)
            least = middle;
        else
            least_not = middle;
    }
    a->max            = o->max;
    a->not_even_least = !least;
    a->seq_is_default = a->seq_is_default && batch;
    *knob             = (least ? least : 1) * unit;
out:
    return st;
}

static int64_t device_bytes(const answer *a)
{
    return a->estimate.reserved_bytes + a->context.bytes;
}

static bool does_fit(const answer *a)
{
    return a->budget_bytes < 0 || device_bytes(a) <= a->budget_bytes;
}

enum { PADDED_TO = 8 }; /* tokens: masked attention was recorded so */

/* The batch that decides has the longest sample, and a mask with it. */
static vp_status read_lengths(const vp_estimate_options *o, answer *a, vp_err *err)
{
    vp_hf_request *q = &a->request;
    int64_t        longest;
    vp_status      st = VP_OK;

    if (o->max && strcmp(o->max, "seq") == 0)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--max seq and --length-histogram: which lengths?"));
    VP_TRY(vp_lengths_read(o->lengths, &a->lengths, err));
    longest = a->lengths.of[a->lengths.n - 1].tokens;
    if (o->seq && longest > o->seq)
        longest = o->seq;
    q->seq            = vp_round_up(longest, PADDED_TO);
    q->padded         = !o->padding || strcmp(o->padding, "mask") == 0;
    a->seq_is_default = false;
out:
    return st;
}

/* Of batches of all lengths the one that takes most. A batch size that was looked for goes down until that fits too. */
static vp_status estimate_worst(answer *a, const vp_estimate_options *o, vp_err *err)
{
    vp_hf_request *q       = &a->request;
    int64_t        longest = q->seq;
    vp_status      st      = VP_OK;

    do {
        q->seq = longest;
        q->seq = vp_lengths_worst(&a->lengths, a->model, q, o->seq ? o->seq : INT64_MAX);
        VP_TRY(vp_hf_estimate_run(a->model, q, &a->estimate, err));
    } while (o->max && !a->not_even_least && !does_fit(a) && q->batch > 1 && q->batch--);
    a->not_even_least |= o->max && !does_fit(a);
out:
    return st;
}

/* What lies outside PyTorch's allocator, once it was seen on a card of this kind, is what it was. */
static vp_status read_measured(const vp_estimate_options *o, answer *a, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(vp_measured_read(o->measured, &a->measured, err));
    a->measured_in           = o->measured;
    a->assumed_context_bytes = a->context.bytes;
    if (vp_measured_context(&a->measured) >= 0)
        a->context.bytes = a->context.least_bytes = vp_measured_context(&a->measured);
out:
    return st;
}

/* What stays on the card besides. Of a second model the forward pass is not recorded, nor a penalty's gradient. */
static vp_status check_resident(const vp_estimate_options *o, vp_err *err)
{
    static const char *const known[] = {"none", "ema", "mer"}, *const models[] = {
                                                                   "ewc", "reference", "reward",
                                                                   "teacher"};
    size_t n = strcspn(o->resident, "=");

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(o->resident, known[i]) == 0)
            return o->world > 1 && i ? VP_FAIL(err, VP_ERR_INPUT,
                                               "--resident %s: on one card only: how a copy is cut "
                                               "over several was not recorded",
                                               o->resident)
                                     : VP_OK;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strlen(models[i]) == n && memcmp(o->resident, models[i], n) == 0)
            return VP_FAIL(err, VP_ERR_INPUT,
                           "--resident %s: what its own pass makes beside the step was not "
                           "recorded; there are ema and mer",
                           o->resident);
    return VP_FAIL(err, VP_ERR_USAGE, "--resident %s is none of ema, mer", o->resident);
}

/* On the card, with so many reserved bytes on so many cards. */
static int64_t bytes_with(const answer *a, int64_t reserved_bytes, int64_t world)
{
    bool is_assumed = a->has_device && (!a->measured_in || vp_measured_context(&a->measured) < 0);

    return reserved_bytes + a->context.bytes +
           (is_assumed
                ? vp_world_communicator_bytes(world) - vp_world_communicator_bytes(a->request.world)
                : 0);
}

/* The trainer's own; on a card without bf16 the same in fp16, for there Trainer refuses bf16. */
static const char *unasked_precision(const vp_estimate_options *o, const answer *a, bool quantised)
{
    const trainer_defaults *d        = defaults_of(o->trainer);
    const char             *own      = quantised ? d->half : o->lora ? d->adapted : d->precision;
    bool                    has_bf16 = !o->device || a->device.compute_capability >= 80;

    return has_bf16 || strcmp(own, "fp32") == 0 ? own
           : strstr(own, "-mixed")              ? "fp16-mixed"
                                                : "fp16";
}

static vp_status set_up(const char *name, const vp_estimate_options *given, answer *a, vp_err *err)
{
    vp_hf_request      *q  = &a->request;
    vp_estimate_options o  = *given;
    vp_status           st = VP_OK;

    VP_TRY(refuse_vplans_own(&o, err));
    VP_TRY(refuse_alone(&o, err));
    if (o.resident)
        VP_TRY(check_resident(&o, err));
    VP_TRY(open_device(&o, a, err));
    if (o.measured)
        VP_TRY(read_measured(&o, a, err));
    o                       = with_qlora(&o);
    a->precision_is_default = !given->precision;
    a->batch_is_default     = !o.micro_batch && !(o.max && strcmp(o.max, "micro-batch") == 0);
    bool is_quantised       = o.load && strcmp(o.load, "none") != 0;
    if (!o.precision)
        o.precision = unasked_precision(&o, a, is_quantised);
    if (is_quantised && !o.lora)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE,
                       "--load %s: quantised weights are not trained; say which "
                       "adapters are, with --lora",
                       o.load));
    VP_TRY(open_model(name, &o, &a->model, err));
    fill_request(&o, a);
    if (o.lora) {
        VP_TRY(vp_estimate_read_lora(o.lora, a->model->family, &a->lora, err));
        q->lora = a->lora.lora;
    }
    if (o.lengths)
        VP_TRY(read_lengths(&o, a, err));
    if (o.max)
        VP_TRY(maximise(a, &o, err));
    VP_TRY(o.lengths ? estimate_worst(a, &o, err)
                     : vp_hf_estimate_run(a->model, q, &a->estimate, err));
    if (o.versions)
        VP_TRY(vp_estimate_check_versions(o.versions, a->estimate.versions, err));
    if (o.lengths)
        vp_lengths_compare(&a->lengths, a->model, q, o.seq ? o.seq : INT64_MAX, a->context.bytes,
                           &a->of_lengths);
    vp_hf_request tried = *q;
    tried.seq           = a->estimate.seq;
    a->n_remedies = vp_remedies_find(a->model, &tried, a->estimate.reserved_bytes, a->remedies);
    a->has_fitting =
        !does_fit(a) && !a->max &&
        vp_remedies_fit_lengths(a->model, o.lengths ? &a->lengths : NULL, o.seq ? o.seq : INT64_MAX,
                                &tried, a->budget_bytes - a->context.bytes, &a->fitting);
out:
    return st;
}

/* ---- as JSON ---- */

static json_t *items_json(const vp_ledger_phase *p)
{
    json_t *items = json_array();

    for (int i = 0; i < VP_N_OWNERS; i++)
        if (p->owners[i])
            json_array_append_new(items,
                                  json_pack("{s:s, s:I, s:s}", "name", vp_owner_words((vp_owner)i),
                                            "bytes", (json_int_t)p->owners[i], "class", "derived"));
    return items;
}

static json_t *phases_json(const answer *a)
{
    const vp_hf_estimate *e      = &a->estimate;
    json_t               *phases = json_array();

    for (int i = 0; i < e->n_phases; i++)
        json_array_append_new(
            phases,
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:o}", "name", e->phases[i].name, "peak_bytes",
                      (json_int_t)e->phases[i].allocated_bytes, "allocated_bytes",
                      (json_int_t)e->phases[i].allocated_bytes, "reserved_bytes",
                      (json_int_t)e->phases[i].reserved_bytes, "device_bytes",
                      (json_int_t)(e->phases[i].reserved_bytes + a->context.bytes), "items",
                      items_json(&e->phases[i])));
    return phases;
}

/* Where device_bytes lies: of the rows played 95 in 100 have reserved bytes within so much of the
 * estimate, and the context is known between its least and most. */
static const double PROBABILITY = 0.95;

static double reserved_share(const answer *a)
{
    return vp_hf_reserved_share(&a->request);
}

static json_t *interval_json(const answer *a)
{
    int64_t reserved = a->estimate.reserved_bytes,
            off      = (int64_t)((double)reserved * reserved_share(a));

    return json_pack("{s:I, s:I, s:f}", "low_bytes",
                     (json_int_t)(reserved - off + a->context.least_bytes), "high_bytes",
                     (json_int_t)(reserved + off + a->context.bytes), "probability", PROBABILITY);
}

static json_t *assumptions_json(const answer *a)
{
    json_t *list = json_array();

    json_array_append_new(list, json_sprintf("libraries: %s", a->estimate.versions));
    if (a->seq_is_default)
        json_array_append_new(
            list, json_sprintf("--seq not given: %lld, the smaller of the model's positions and %d",
                               (long long)a->estimate.seq, VP_ESTIMATE_SEQ));
    if (a->measured_in && vp_measured_context(&a->measured) >= 0)
        json_array_append_new(list,
                              json_sprintf("context and libraries: %lld bytes, as %s has them",
                                           (long long)a->context.bytes, a->measured_in));
    if (!a->has_device)
        json_array_append_new(list, json_string("no device given: kernels of an H100"));
    json_array_append_new(
        list, json_sprintf(
                  "interval: %.0f %% of the reserved bytes, which held on 95 of 100 steps played "
                  "without a card%s; none was measured on one",
                  100 * reserved_share(a), a->has_device ? ", and the context's own" : ""));
    if (a->has_device && a->request.world > 1)
        json_array_append_new(
            list, json_sprintf("NCCL takes %lld MB of each card outside PyTorch's allocator, as it "
                               "did on A100s",
                               (long long)vp_world_communicator_bytes(a->request.world) / 1000000));
    if (a->precision_is_default)
        json_array_append_new(list,
                              json_sprintf("--precision not given: %s", a->request.precision));
    if (a->batch_is_default)
        json_array_append_new(list,
                              json_sprintf("--micro-batch not given: %lld, this trainer's own",
                                           (long long)a->request.batch));
    for (int i = 0; i < a->estimate.n_assumptions; i++)
        json_array_append_new(list, json_string(a->estimate.assumptions[i]));
    return list;
}

static json_t *lora_json(const vp_hf_request *q)
{
    return json_pack("{s:I, s:s, s:f, s:s, s:b, s:s}", "rank", (json_int_t)q->lora.rank, "targets",
                     q->lora.targets, "dropout", q->lora.dropout, "dtype",
                     q->lora.is_bf16 ? "bf16" : "fp32", "dora", q->lora.is_dora, "load", q->load);
}

static json_t *remedies_json(const answer *a)
{
    json_t *list = json_array();

    for (int i = 0; i < a->n_remedies; i++)
        json_array_append_new(
            list,
            json_pack(
                "{s:s, s:I, s:I, s:s}", "option", a->remedies[i].option, "saves_bytes",
                (json_int_t)(a->estimate.reserved_bytes - a->remedies[i].reserved_bytes),
                "device_bytes",
                (json_int_t)bytes_with(a, a->remedies[i].reserved_bytes, a->remedies[i].world),
                "costs", a->remedies[i].costs));
    return list;
}

/* null where it fits, where nothing was asked to fit into, or where nothing is enough. */
static json_t *fitting_json(const answer *a)
{
    return a->has_fitting
               ? json_pack(
                     "{s:s, s:I, s:s, s:b}", "options", a->fitting.options + 1, "device_bytes",
                     (json_int_t)bytes_with(a, a->fitting.reserved_bytes, a->fitting.request.world),
                     "class", "derived", "trains_adapters", a->fitting.trains_adapters)
               : json_null();
}

static void add_cards(const answer *a, json_t *settings)
{
    const vp_hf_request *q = &a->request;

    if (q->world < 2)
        return;
    json_object_set_new(settings, "world", json_integer(q->world));
    json_object_set_new(settings, "parallel", json_string(q->parallel));
    json_object_set_new(settings, "offload", json_string(q->offload));
}

/* --method tells TRL's trainers apart. */
static const char *trl_or(const char *trainer)
{
    return strcmp(trainer, "dpo") == 0 ? "trl" : trainer;
}

static json_t *answer_json(const answer *a)
{
    const vp_hf_estimate *e = &a->estimate;
    const vp_hf_request  *q = &a->request;
    json_t               *settings =
        json_pack("{s:o, s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:s}", "device",
                  a->has_device ? json_string(a->device.name) : json_null(), "seq",
                  (json_int_t)a->estimate.seq, "micro_batch", (json_int_t)q->batch, "accumulation",
                  (json_int_t)q->accumulation, "precision", q->precision, "optimizer", q->optimizer,
                  "attention", q->attention, "recompute", q->recompute, "padding",
                  q->padded ? "mask" : "none", "task", a->estimate.task);

    if (strcmp(q->lora.targets, "none") != 0)
        json_object_set_new(settings, "lora", lora_json(q));
    if (strcmp(q->trainer, "dpo") == 0)
        json_object_set_new(settings, "method", json_string("dpo"));
    if (strcmp(q->liger, "none") != 0)
        json_object_set_new(settings, "liger", json_string(q->liger));
    if (q->eval_batch)
        json_object_set_new(settings, "eval_batch", json_integer(q->eval_batch));
    if (a->max)
        json_object_set_new(settings, "max", json_string(a->max));
    if (q->resident)
        json_object_set_new(settings, "resident", json_string(q->resident));
    add_cards(a, settings);
    json_t *j = json_pack(
        "{s:i, s:s, s:{s:s, s:I, s:I}, s:o, s:o, s:o, s:I, s:I, s:I, s:s, s:I, s:o, s:o, "
        "s:o, s:o, s:o, s:o, s:I}",
        "schema_version", 1, "trainer", trl_or(q->trainer), "model", "name", a->model->name,
        "params_total", (json_int_t)e->n_params, "params_trainable", (json_int_t)e->n_trained,
        "settings", settings, "assumptions", assumptions_json(a), "budget_bytes",
        vp_json_int_or_null(a->budget_bytes), "peak_bytes", (json_int_t)e->allocated_bytes,
        "allocated_peak_bytes", (json_int_t)e->allocated_bytes, "reserved_peak_bytes",
        (json_int_t)e->reserved_bytes, "peak_phase", e->phases[e->peak].name, "device_bytes",
        (json_int_t)device_bytes(a), "interval", interval_json(a), "fits",
        a->budget_bytes < 0 ? json_null() : json_boolean(does_fit(a)), "items",
        items_json(&e->phases[e->peak]), "phases", phases_json(a), "remedies", remedies_json(a),
        "fits_with", fitting_json(a), "host_bytes", (json_int_t)e->host_bytes);
    if (j && a->measured_in)
        json_object_set_new(j, "measured",
                            vp_measured_json(&a->measured, &a->estimate, a->assumed_context_bytes));
    if (j && a->lengths.n)
        json_object_set_new(j, "lengths", vp_lengths_json(&a->of_lengths));
    return j;
}

/* ---- for people ---- */

/* check and plan --trainer go by the upper end, this command's answer by the middle. */
static void print_upper_end(const answer *a)
{
    json_t *interval = interval_json(a);
    int64_t low      = json_integer_value(json_object_get(interval, "low_bytes")),
            high     = json_integer_value(json_object_get(interval, "high_bytes"));
    char x[64], y[64];

    json_decref(interval);
    if (a->budget_bytes < 0 || low > a->budget_bytes || high <= a->budget_bytes)
        return;
    vp_screen_line("interval",
                   does_fit(a) ? "%s to %s: fits, but not at the upper end, by which check and "
                                 "plan --trainer judge"
                               : "%s to %s: does not fit, but would at the lower end",
                   vp_size_text(low, x, sizeof x), vp_size_text(high, y, sizeof y));
}

/* With PyTorch's cache bytes can fall where a batch grows: what was found is where fitting ends first. */
static void print_largest(const answer *a)
{
    bool    is_seq = strcmp(a->max, "seq") == 0;
    int64_t found  = is_seq ? a->estimate.seq : a->request.batch;
    char    next[160];

    snprintf(next, sizeof next,
             "; %lld does not fit, though PyTorch's cache may let a larger one in again",
             (long long)found + (is_seq ? 8 : 1));
    vp_screen_line("largest", "--%s %lld%s", a->max, (long long)found,
                   is_seq && found == a->model->graph.max_seq ? ", all positions of the model"
                                                              : next);
}

static void print_fitting(const answer *a)
{
    char        x[64];
    const char *keeps = a->fitting.trains_adapters ? "adapters are trained, not the whole model"
                        : strstr(a->fitting.options, "--offload")
                            ? "what is in host memory crosses the link in each step"
                        : strstr(a->fitting.options, "--world")
                            ? "weights, gradients and states cut over the cards"
                        : strstr(a->fitting.options, "--seq") ? "shorter samples"
                                                              : "as many samples a step";

    if (a->has_fitting)
        vp_screen_line(
            "fits with", "%s: %s; %s", a->fitting.options + 1,
            vp_size_text(bytes_with(a, a->fitting.reserved_bytes, a->fitting.request.world), x,
                         sizeof x),
            keeps);
    else if (!does_fit(a) && !a->max)
        vp_screen_line("fits with",
                       "none of the changes that estimate tries: it takes another card, "
                       "or a smaller model%s",
                       a->fitting.lacks_adapters
                           ? "; or adapters, whose step was not recorded with these settings"
                           : "");
}

static void print_setting(const answer *a)
{
    const vp_hf_request *q = &a->request;
    char                 x[64], y[64];

    vp_screen_line("model", "%s, %s parameters, %s of them trained, trainer %s%s%s", a->model->name,
                   vp_count_text(a->estimate.n_params, x, sizeof x),
                   vp_count_text(a->estimate.n_trained, y, sizeof y),
                   strcmp(q->trainer, "dpo") == 0 ? "trl (DPOTrainer)" : q->trainer,
                   a->has_device ? ", on " : "", a->has_device ? a->device.name : "");
    vp_screen_line("recipe", "%s, %s, attention %s, recompute %s%s", q->precision, q->optimizer,
                   q->attention, q->recompute,
                   strcmp(q->liger, "all") == 0    ? ", Liger's kernels"
                   : strcmp(q->liger, "loss") == 0 ? ", Liger's loss"
                                                   : "");
    if (strcmp(q->lora.targets, "none") != 0)
        vp_screen_line("adapters", "LoRA of rank %lld on %s, %s%s%s%s", (long long)q->lora.rank,
                       q->lora.targets, q->lora.is_bf16 ? "bf16" : "fp32",
                       q->lora.is_dora ? ", DoRA" : "",
                       strcmp(q->load, "none") != 0 ? "; frozen weights in " : "",
                       strcmp(q->load, "none") != 0 ? q->load : "");
    if (q->world > 1)
        vp_screen_line("cards", "%lld, %s, offload %s: rank 0, which takes most",
                       (long long)q->world, q->parallel, q->offload);
    if (a->estimate.host_bytes)
        vp_screen_line("host", "%s a card, of it pinned %s",
                       vp_size_text(a->estimate.host_bytes, x, sizeof x),
                       vp_size_text(a->estimate.pinned_bytes, y, sizeof y));
    x[0] = '\0';
    if (q->eval_batch)
        snprintf(x, sizeof x, ", evaluation by %lld", (long long)q->eval_batch);
    vp_screen_line("setting", "micro-batch %lld%s, sequence %lld, accumulation %lld%s\n",
                   (long long)q->batch, strcmp(q->trainer, "dpo") == 0 ? " pairs" : "",
                   (long long)a->estimate.seq, (long long)q->accumulation, x);
}

/* What is alive at the peak; items below a thousandth together, unless all are wanted. */
static void print_items(const vp_ledger_phase *p, bool all)
{
    int64_t least = all ? 1 : p->allocated_bytes / 1000, small = 0;
    char    x[64], name[40];

    printf("%-40s %12s %7s\n", "at the peak", "bytes", "share");
    for (int i = 0; i < VP_N_OWNERS; i++) {
        snprintf(name, sizeof name, "%s", vp_owner_words((vp_owner)i));
        for (char *c = name; *c; c++)
            *c = *c == '_' ? ' ' : *c;
        if (p->owners[i] >= least && p->owners[i])
            printf("%-40s %12s %6.1f%%\n", name, vp_size_text(p->owners[i], x, sizeof x),
                   100.0 * (double)p->owners[i] / (double)p->allocated_bytes);
        else
            small += p->owners[i];
    }
    if (small)
        printf("%-40s %12s %6.1f%%\n", "the rest", vp_size_text(small, x, sizeof x),
               100.0 * (double)small / (double)p->allocated_bytes);
}

static void print_phases(const answer *a)
{
    const vp_hf_estimate *e = &a->estimate;
    char                  x[64], y[64];

    printf("\n%-20s %14s %14s\n", "phase", "allocated", "reserved");
    for (int i = 0; i < e->n_phases; i++)
        printf("%-20s %14s %14s\n", e->phases[i].name,
               vp_size_text(e->phases[i].allocated_bytes, x, sizeof x),
               vp_size_text(e->phases[i].reserved_bytes, y, sizeof y));
}

static void print_next(const answer *a, const vp_command_line *line)
{
    const vp_hf_request *q = &a->request;

    vp_print_estimate_next(
        &(vp_estimate_next){.trainer      = q->trainer,
                            .fitting      = a->has_fitting ? a->fitting.options : "",
                            .fits         = does_fit(a),
                            .has_budget   = a->budget_bytes >= 0,
                            .has_max      = a->max != NULL,
                            .free_batch   = a->batch_is_default,
                            .has_liger    = strcmp(q->liger, "none") != 0,
                            .seq          = a->estimate.seq,
                            .global_batch = q->batch * q->accumulation * q->world},
        line);
}

static void print_answer(const answer *a, const vp_command_line *line, bool all)
{
    const vp_hf_estimate  *e = &a->estimate;
    const vp_ledger_phase *p = &e->phases[e->peak];
    char                   x[64];

    if (a->budget_bytes >= 0)
        vp_screen_answer(device_bytes(a), a->budget_bytes, NULL);
    else
        printf("NEEDS %s; --device 4090 says whether that fits\n",
               vp_size_text(device_bytes(a), x, sizeof x));
    print_upper_end(a);
    if (a->not_even_least)
        printf("           not even --%s %lld\n", a->max,
               (long long)(strcmp(a->max, "seq") == 0 ? e->seq : a->request.batch));
    else if (a->max)
        print_largest(a);
    print_fitting(a);
    if (a->lengths.n)
        vp_lengths_print(&a->of_lengths);
    print_setting(a);
    print_items(p, all);
    printf("%-40s %12s   in %s\n", "allocated", vp_size_text(e->allocated_bytes, x, sizeof x),
           p->name);
    printf("%-40s %12s   with PyTorch's cache\n", "reserved",
           vp_size_text(e->reserved_bytes, x, sizeof x));
    if (a->has_device)
        printf("%-40s %12s   %s\n", "the process on the card",
               vp_size_text(device_bytes(a), x, sizeof x), "context, libraries too");
    if (all)
        print_phases(a);
    printf("\n");
    if (a->measured_in)
        vp_measured_print(&a->measured, &a->estimate, a->assumed_context_bytes);
    for (int i = 0; i < a->n_remedies; i++)
        vp_screen_line(
            i ? "" : "smaller", "%s: %s; %s", a->remedies[i].option,
            vp_size_text(bytes_with(a, a->remedies[i].reserved_bytes, a->remedies[i].world), x,
                         sizeof x),
            a->remedies[i].costs);
    json_t *list = assumptions_json(a);
    for (size_t i = 0; i < json_array_size(list); i++)
        vp_screen_line("assumed", "%s", json_string_value(json_array_get(list, i)));
    json_decref(list);
    print_next(a, line);
}

vp_status vp_estimate_trainer(const vp_command_line *line, const char *model_name,
                              const vp_estimate_options *o, vp_cli *cli, vp_err *err)
{
    answer    a  = {0};
    vp_status st = VP_OK;

    VP_TRY(set_up(model_name, o, &a, err));
    if (cli->json)
        VP_TRY(vp_print_json(answer_json(&a), err));
    else
        print_answer(&a, line, o->all);
    cli->exit_code = does_fit(&a) ? 0 : 3;
out:
    vp_lengths_free(&a.lengths);
    vp_model_free(a.model);
    return st;
}

/* Whether what was asked of vplan's own step is something that Trainer does too. */
static bool have_the_same(const vp_estimate_options *o)
{
    return (!o->recompute || strcmp(o->recompute, "none") == 0 ||
            strcmp(o->recompute, "full") == 0) &&
           (!o->optimizer || strcmp(o->optimizer, "adamw") == 0) &&
           (!o->gradients || strcmp(o->gradients, "fp32") == 0);
}

bool vp_estimate_beside(const char *model_name, const vp_estimate_options *given,
                        int64_t *device_bytes_out)
{
    vp_estimate_options o   = *given;
    answer              a   = {0};
    vp_err              why = {0};
    bool                ok;

    o.trainer   = "hf";
    o.loss      = NULL;
    o.attention = NULL;
    o.optimizer = NULL;
    ok          = have_the_same(given) && open_device(&o, &a, &why) == VP_OK &&
         open_model(model_name, &o, &a.model, &why) == VP_OK;
    if (ok) {
        fill_request(&o, &a);
        ok = vp_hf_estimate_run(a.model, &a.request, &a.estimate, &why) == VP_OK;
    }
    if (ok)
        *device_bytes_out = device_bytes(&a);
    vp_model_free(a.model);
    return ok;
}
