#include "trainers/fit/settings_bytes.h"

#include "base/checked.h"
#include "devices/efficiency.h"
#include "trainers/hf/hf_adapters.h"
#include "trainers/hf/hf_attention.h"
#include "trainers/hf/hf_find.h"
#include "trainers/hf/hf_priced.h"
#include "trainers/hf/hf_sizes.h"
#include "trainers/hf/hf_trl.h"
#include "trainers/torch/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is(const vp_settings *s, vp_setting which, const char *word)
{
    return s->value[which] && strcmp(s->value[which], word) == 0;
}

static int64_t number(const vp_settings *s, vp_setting which)
{
    return s->value[which] ? strtoll(s->value[which], NULL, 10) : 1;
}

/* A loss in tiles was not recorded. For a trainer whose own step was not either it is counted as the whole
 * one: tiles take less from some hundred tokens on (their sum of the head's gradient is fp32, V x h). */
static bool is_tiled(const vp_fit_job *job, const vp_settings *s)
{
    return job->language->why && is(s, VP_SETTING_LOSS, "chunked");
}

/* What it may take less, as a share of the reserved bytes. */
static const double TILED_LOW = 0.6;

/* The same of a step with some of Liger's kernels, where that with all was not recorded. */
static const double LIGER_LOW = 0.6;

/* And of one over quantised weights, where the others are 16 bits wide and not fp32: no more than half. */
static const double PREPARED_LOW = 0.5;

/* Several processes that nobody tells how to share have a copy each. */
static const char *parallel_of(const vp_settings *s)
{
    return number(s, VP_SETTING_WORLD) > 1 && is(s, VP_SETTING_PARALLEL, "none")
               ? "ddp"
               : s->value[VP_SETTING_PARALLEL];
}

/* As `estimate --offload` has it: weights take their states with them. */
static const char *offload_of(const vp_settings *s)
{
    return is(s, VP_SETTING_OFFLOAD_PARAMS, "cpu")      ? "params"
           : is(s, VP_SETTING_OFFLOAD_OPTIMIZER, "cpu") ? "optimizer"
                                                        : "none";
}

/* As estimate's request calls the one of TRL's trainers; NULL: supervised fine-tuning. */
static const char *method_of(const vp_settings *s)
{
    return is(s, VP_SETTING_METHOD, "sft") ? NULL : s->value[VP_SETTING_METHOD];
}

static bool has_pairs(const vp_settings *s)
{
    return is(s, VP_SETTING_METHOD, "dpo") || is(s, VP_SETTING_METHOD, "reward");
}

static bool is_grpo(const vp_settings *s)
{
    return is(s, VP_SETTING_METHOD, "grpo");
}

/* Samples at once of evaluations between steps; 0: none. */
static int64_t eval_batch_of(const vp_settings *s)
{
    return is(s, VP_SETTING_EVAL_BATCH, "none") || !s->value[VP_SETTING_EVAL_BATCH]
               ? 0
               : number(s, VP_SETTING_EVAL_BATCH);
}

static bool offloads_activations(const vp_settings *s)
{
    return is(s, VP_SETTING_OFFLOAD_ACTIVATIONS, "cpu");
}

/* Alone, or with its other kernels. */
static bool has_ligers_loss(const vp_fit_job *job, const vp_settings *s)
{
    return vp_language_is_liger(s->value[VP_SETTING_LOSS]) &&
           strcmp(job->language->step_of, "hf") == 0;
}

static bool has_family(const vp_language *l, const char *family)
{
    return !l->families || vp_language_lists(l->families, family);
}

static vp_status refuse_unknown(const vp_fit_job *job, const vp_settings *s, vp_err *err)
{
    static const struct {
        vp_setting  setting;
        const char *known;
    } only[] = {
        {VP_SETTING_LOSS, "full"},
    };

    for (size_t i = 0; i < sizeof only / sizeof *only; i++)
        if (s->value[only[i].setting] && !is(s, only[i].setting, only[i].known) &&
            !(only[i].setting == VP_SETTING_LOSS && (is_tiled(job, s) || has_ligers_loss(job, s))))
            return VP_FAIL(err, VP_ERR_INPUT, "%s %s: no such training step was recorded",
                           vp_setting_key(only[i].setting), s->value[only[i].setting]);
    if (!has_family(job->language, job->model->family))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "%s has no model of the family %s; those of its own are %s",
                       job->language->target, job->model->family, job->language->families);
    if (vp_language_trains(job->language, job->model, "--trainer", err) != VP_OK)
        return err->code;
    if (job->language->own && !is(s, VP_SETTING_METHOD, "reward") && /* it has no such loss */
        vp_hf_check_trl(&(vp_hf_trl_question){.precision    = s->value[VP_SETTING_PRECISION],
                                              .capability   = job->device->compute_capability,
                                              .is_quantised = is(s, VP_SETTING_TUNING, "qlora"),
                                              .of_files     = job->of_files},
                        err) != VP_OK)
        return err->code;
    if (job->language->wraps && !is(s, VP_SETTING_PRECISION, "fp32") &&
        (is(s, VP_SETTING_PARALLEL, "none") || is(s, VP_SETTING_PARALLEL, "ddp")))
        return VP_FAIL(err, VP_ERR_INPUT, "%s", job->language->wraps);
    if (offloads_activations(s) &&
        (number(s, VP_SETTING_WORLD) > 1 || strcmp(job->language->step_of, "hf") != 0 ||
         is(s, VP_SETTING_RECOMPUTE, "none")))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "offload_activations cpu: known is what transformers' gradient checkpoints "
                       "keep, on one card");
    /* who has modules of his own is counted as a plain loop, whatever the way */
    if (number(s, VP_SETTING_WORLD) == 1 && !job->language->is_foreign &&
        !is(s, VP_SETTING_PARALLEL, "none") && !is(s, VP_SETTING_PARALLEL, "ddp") &&
        !vp_world_knows_one(parallel_of(s), offload_of(s)))
        return VP_FAIL(err, VP_ERR_INPUT, "parallel %s of one card: " VP_WORLD_KNOWN_OF_ONE,
                       parallel_of(s));
    if (!vp_world_offloads(parallel_of(s), offload_of(s)))
        return VP_FAIL(err, VP_ERR_INPUT, "offload of %s under parallel %s: no such step is known",
                       offload_of(s), parallel_of(s));
    return VP_OK;
}

static const char *attention_of(const vp_settings *s)
{
    const char *word = s->value[VP_SETTING_ATTENTION];

    return strcmp(word, "sdpa") == 0     ? "sdpa:flash"
           : strcmp(word, "flash2") == 0 ? "flash_attention_2"
                                         : word;
}

static const char *const BORROWED_BASIS =
    "another step stands in, which was at most 6.7 % off where both were recorded";

static const char *const RELEASE_BASIS =
    "recorded with other libraries than were asked for, which may take other steps";

static const char *const COMPOSED_BASIS =
    "of the steps put together so that PyTorch ran as well 95 of 100 were within it";

static const char *const RANKS_BASIS = "most of the ranks that were dry-run are within less";

static const char *const GENERATED_BASIS =
    "eleven dry runs that made their completions were within 7 %";

static const char *const OWN_BASIS =
    "recorded steps are within 2 % of PyTorch's own count, runs of TRL's own script within 3.5 %";

static void widen(double share, double *low, double *high)
{
    *low  = *low < share ? share : *low;
    *high = *high < share ? share : *high;
}

static void widen_compiled(const vp_fit_job *job, double *low, double *high)
{
    if (!job->compiles)
        return;
    *low  = *low < VP_HF_COMPILED_LOW ? VP_HF_COMPILED_LOW : *low;
    *high = *high < VP_HF_COMPILED_HIGH ? VP_HF_COMPILED_HIGH : *high;
}

/* Whose step it is. */
typedef enum step_of { OF_ANOTHER, OF_A_NEARER, OF_ITS_OWN } step_of;

/* Shares of the reserved bytes. */
static void interval_of(const vp_fit_job *job, const vp_hf_request *q, step_of of, bool stands_in,
                        double *low, double *high)
{
    const vp_language *l = job->language;

    *low  = of == OF_ITS_OWN ? VP_HF_TRL_SHARE : of == OF_A_NEARER ? l->nearer->low : l->low;
    *high = of == OF_ITS_OWN ? VP_HF_TRL_SHARE : of == OF_A_NEARER ? l->nearer->high : l->high;
    widen(stands_in ? VP_HF_STAND_IN_SHARE : 0, low, high);
    widen(vp_hf_is_shared(q) || q->generates ? vp_hf_reserved_share(q) : 0, low, high);
    widen_compiled(job, low, high);
}

/* For playing to end where the upper end of the interval is more than the job allows. */
static double share_of(const vp_fit_job *job, const vp_hf_request *q, step_of of)
{
    double low, high;

    interval_of(job, q, of, false, &low, &high);
    return high;
}

/* Nobody's files say how many documents fill a sequence. Their bounds are all that depends on it: of Llama 3.2 1B, 2048
 * tokens, 64 in place of 4 take 2 KiB more. */
enum { DOCUMENTS = 4 };

/* Pairs were recorded by TRL's DPOTrainer; other trainers' are classes of it. */
#define BORROWED_PAIRS \
    "the training step of this trainer's DPO itself was not recorded: bytes are those of TRL's " \
    "DPOTrainer, with a wider interval"

static void assume(vp_hf_estimate *e, const char *text)
{
    if (e->n_assumptions < VP_HF_ASSUMPTIONS)
        snprintf(e->assumptions[e->n_assumptions++], sizeof *e->assumptions, "%s", text);
}

/* Liger's kernels, as many as are surely in place. */
static const char *liger_of(const vp_fit_job *job, const vp_settings *s)
{
    const vp_language *l    = job->language;
    const char        *asks = job->liger                            ? job->liger
                              : !has_ligers_loss(job, s)            ? NULL
                              : is(s, VP_SETTING_LOSS, "liger-all") ? "all"
                                                                    : "loss";

    return asks && l->liger_families && !vp_language_lists(l->liger_families, job->model->family)
               ? NULL
               : asks;
}

/* Fewer kernels of Liger's take no fewer bytes: where some of them are in place the step with all is the least, as far as it was
 * recorded. */
static void reach_ligers(const vp_fit_job *job, const vp_hf_request *asked, vp_hf_estimate *e,
                         double *low)
{
    vp_hf_request  all = *asked;
    vp_hf_estimate least;
    vp_err         ignored = {0};
    double         share   = LIGER_LOW;

    if (!job->liger_least || !vp_language_lists(job->language->liger_families, job->model->family))
        return;
    all.liger = "all";
    all.terse = true;
    if (vp_hf_estimate_run(job->model, &all, &least, &ignored) == VP_OK &&
        least.reserved_bytes <= e->reserved_bytes)
        share =
            *low + (double)(e->reserved_bytes - least.reserved_bytes) / (double)e->reserved_bytes;
    widen(share < 1 ? share : 1, low, low);
    assume(e, asked->liger
                  ? "some of Liger's kernels beside its loss: counted as its loss alone, at "
                    "the interval's lower end as all of them"
                  : "some of Liger's kernels: counted as none, at the interval's lower end as all "
                    "of them");
}

/* What the trainer asks of Liger in vain. */
static void say_without_liger(const vp_fit_job *job, const vp_settings *s, vp_hf_estimate *e)
{
    bool asks = job->liger || job->liger_least || has_ligers_loss(job, s);
    char text[sizeof *e->assumptions];

    if (!asks || !job->language->liger_families ||
        vp_language_lists(job->language->liger_families, job->model->family))
        return;
    snprintf(text, sizeof text,
             "Liger's kernels: %s has none for the family %s, so it trains without them",
             job->language->target, job->model->family);
    assume(e, text);
}

/* Without its evaluations where those were not recorded, which is said. */
static vp_status estimate_evaluated(const vp_model *model, vp_hf_request *q, vp_hf_estimate *e,
                                    vp_err *err)
{
    int64_t   batch = q->eval_batch;
    vp_err    why   = {0};
    vp_status st    = vp_hf_estimate_run(model, q, e, batch ? &why : err);

    if (st != VP_ERR_INPUT || !batch) {
        if (batch && st != VP_OK)
            *err = why;
        return st;
    }
    q->eval_batch = 0;
    st            = vp_hf_estimate_run(model, q, e, err);
    q->eval_batch = batch;
    if (st == VP_OK && e->n_assumptions < VP_HF_ASSUMPTIONS)
        snprintf(
            e->assumptions[e->n_assumptions++], sizeof *e->assumptions,
            "evaluations, of %lld samples at once, are not counted: none was recorded with these "
            "settings",
            (long long)batch);
    return st;
}

/* Of some of Liger's kernels that with its loss alone, or where that was not recorded that with none. */
static vp_status estimate_with_some(const vp_fit_job *job, vp_hf_request *q, vp_hf_estimate *e,
                                    vp_err *err)
{
    vp_err    why = {0};
    vp_status st  = estimate_evaluated(job->model, q, e, &why);

    if (st == VP_ERR_INPUT && job->liger_least && q->liger) {
        q->liger = NULL;
        return estimate_evaluated(job->model, q, e, err);
    }
    if (st != VP_OK)
        *err = why;
    return st;
}

/* As the files say, or somebody asks; else as the trainer does. */
static vp_hf_prepare said_prepare(const vp_fit_job *job, const vp_settings *s)
{
    return job->prepare                       ? job->prepare
           : is(s, VP_SETTING_PREPARE, "on")  ? VP_HF_PREPARE_ON
           : is(s, VP_SETTING_PREPARE, "off") ? VP_HF_PREPARE_OFF
                                              : VP_HF_PREPARE_AS_TRAINER;
}

static vp_hf_prepare prepare_of(const vp_fit_job *job, const vp_settings *s)
{
    vp_hf_prepare said = said_prepare(job, s);

    return said ? said : job->language->prepare;
}

/* The step of a trainer that prepares quantised weights stands for that of one that does not, where this was not recorded: it takes
 * more. */
static bool is_overprepared(const vp_fit_job *job, const vp_settings *s, const vp_hf_request *q)
{
    return !said_prepare(job, s) && job->language->prepare == VP_HF_PREPARE_OFF && vp_hf_upcasts(q);
}

static vp_status estimate_unprepared(const vp_fit_job *job, const vp_settings *s, vp_hf_request *q,
                                     vp_hf_estimate *e, vp_err *err)
{
    vp_err        why = {0}, other_why = {0};
    vp_hf_request other = *q;
    vp_status     st    = estimate_with_some(job, q, e, &why);

    other.prepare = VP_HF_PREPARE_ON;
    if (st == VP_ERR_INPUT && is_overprepared(job, s, &other)) {
        vp_status other_st = estimate_with_some(job, &other, e, &other_why);
        if (other_st != VP_ERR_INPUT) {
            *q  = other;
            st  = other_st;
            why = other_why;
        }
    }
    if (st != VP_OK)
        *err = why;
    return st;
}

/* Which way a trainer, or a script, has what stands beside quantised weights. */
static void say_preparation(const vp_fit_job *job, const vp_settings *s, const vp_hf_request *q,
                            vp_hf_estimate *e)
{
    if (!vp_hf_is_quantised(q))
        return;
    assume(e,
           !vp_hf_upcasts(q)
               ? "what is not quantised trains in the format it was loaded in, not in fp32 "
                 "(prepare_model_for_kbit_training)"
           : is_overprepared(job, s, q)
               ? "what is not quantised is counted in fp32; in the format it was loaded in, which "
                 "was not recorded with these settings, it takes less"
               : "what is not quantised trains in fp32, as prepare_model_for_kbit_training() "
                 "leaves it");
}

/* Whether any step of that trainer's own was recorded of such a model: then what was not is refused, and no other trainer's
 * stands in for it. */
static bool has_own(const vp_fit_job *job, const vp_hf_request *own)
{
    vp_hf_request  usual = *own;
    vp_hf_estimate e;
    vp_err         ignored = {0};

    usual.recompute = "full";
    usual.precision = strcmp(own->lora.targets, "none") == 0 ? "bf16-mixed" : "bf16-amp";
    usual.attention = "sdpa:flash";
    usual.optimizer = "adamw_torch_fused";
    usual.liger     = NULL;
    usual.offloads = usual.terse = false;
    usual.packed = usual.eval_batch = usual.at_most_bytes = 0;
    usual.loads_only = usual.terse = true;
    return vp_hf_estimate_run(job->model, &usual, &e, &ignored) == VP_OK;
}

/* Steps by which a trainer was recorded itself: of SFTTrainer, with its loss in tiles. *packed: packing is in it.
 * VP_ERR_INPUT: not this one of them. */
static vp_status try_own(const vp_fit_job *job, const vp_settings *s, const vp_hf_request *q,
                         vp_hf_estimate *e, step_of *of, bool *packed, vp_err *err)
{
    vp_hf_request own = *q;
    vp_err        why = {0};
    vp_status     st  = VP_ERR_INPUT;

    own.trainer       = job->language->own;
    own.at_most_share = share_of(job, q, OF_ITS_OWN);
    if (!own.trainer || !is_tiled(job, s))
        return VP_OK;
    if (job->packed) {
        own.packed = DOCUMENTS;
        own.terse  = true;
        st         = estimate_evaluated(job->model, &own, e, &why);
        own.packed = 0;
        own.terse  = q->terse;
        *packed    = st == VP_OK;
    }
    if (st == VP_ERR_INPUT) {
        why = (vp_err){0};
        st  = estimate_evaluated(job->model, &own, e, &why);
    }
    if (st == VP_OK)
        *of = OF_ITS_OWN;
    if (st == VP_ERR_INPUT && !q->versions && (vp_hf_is_shared(&own) || !has_own(job, &own)))
        return VP_OK;
    if (st != VP_OK)
        *err = why;
    return st;
}

/* Of a trainer whose own step was not recorded one that is nearer than the other's. */
static vp_status try_nearer(const vp_fit_job *job, const vp_hf_request *q, vp_hf_estimate *e,
                            step_of *of, vp_err *err)
{
    vp_hf_request nearer = *q;
    bool          found  = false;
    vp_status     st     = VP_OK;

    if (*of != OF_ANOTHER || !job->language->nearer || vp_hf_is_shared(q))
        return VP_OK;
    nearer.at_most_share = share_of(job, q, OF_A_NEARER);
    VP_TRY(job->language->nearer->bytes(job->model, &nearer, e, &found, err));
    if (found)
        *of = OF_A_NEARER;
out:
    return st;
}

/* What the process takes of the card outside PyTorch's allocator. */
static int64_t outside_bytes(const vp_fit_job *job, int64_t world)
{
    return job->context_bytes + vp_world_communicator_bytes(world);
}

/* Under ZeRO weights have 16 bits and masters 32, whatever they were loaded as. */
static const char *precision_of(const vp_settings *s)
{
    bool is_joined = strncmp(parallel_of(s), "zero", 4) == 0;

    return is_joined && is(s, VP_SETTING_PRECISION, "bf16-amp")   ? "bf16-mixed"
           : is_joined && is(s, VP_SETTING_PRECISION, "fp16-amp") ? "fp16-mixed"
                                                                  : s->value[VP_SETTING_PRECISION];
}

/* What the frozen weights are held in. */
static const char *load_of(const vp_fit_job *job, const vp_settings *s)
{
    return job->in_bytes                        ? "int8"
           : !is(s, VP_SETTING_TUNING, "qlora") ? "none"
           : is(s, VP_SETTING_QUANT, "nf4")     ? "nf4"
                                                : "nf4-dq";
}

/* The plain loop that was recorded does not clip. */
static bool clips(const vp_fit_job *job, const vp_settings *s)
{
    return strcmp(job->language->step_of, "torch") != 0 && !is(s, VP_SETTING_CLIP_NORM, "0.0");
}

typedef struct adapter_words {
    char targets[200], saved[40];
} adapter_words;

static vp_status read_adapters(const vp_fit_job *job, const vp_settings *s, adapter_words *words,
                               vp_hf_lora *out, vp_err *err)
{
    vp_status st = VP_OK;

    *words = (adapter_words){.saved = "none"};
    VP_TRY(vp_hf_lora_targets(vp_hf_recorded_family(job->model), s->value[VP_SETTING_LORA_TARGETS],
                              words->targets, sizeof words->targets, err));
    if (!is(s, VP_SETTING_LORA_SAVE, "none"))
        VP_TRY(vp_hf_lora_saved(vp_hf_recorded_family(job->model), s->value[VP_SETTING_LORA_SAVE],
                                words->saved, sizeof words->saved, err));
    *out = (vp_hf_lora){.targets = words->targets,
                        .save    = words->saved,
                        .rank    = number(s, VP_SETTING_LORA_R),
                        .dropout = strtod(s->value[VP_SETTING_LORA_DROPOUT], NULL)};
out:
    return st;
}

/* Whose step the bytes are of. */
static void say_origin(const vp_fit_job *job, const vp_hf_request *q, step_of of,
                       const vp_hf_estimate *e, vp_fit_bytes *out)
{
    const vp_language *l      = job->language;
    bool               method = strcmp(q->trainer, "dpo") == 0;

    if (of == OF_ITS_OWN) {
        out->basis = e->is_composed ? COMPOSED_BASIS : q->generates ? GENERATED_BASIS : OWN_BASIS;
        return;
    }
    out->basis = of == OF_A_NEARER                                   ? l->nearer->basis
                 : l->is_foreign                                     ? l->basis
                 : vp_hf_is_shared(q)                                ? RANKS_BASIS
                 : e->is_composed && l->high <= VP_HF_STAND_IN_SHARE ? COMPOSED_BASIS
                 : e->stands_in                                      ? BORROWED_BASIS
                                                                     : l->basis;
    out->why   = of == OF_A_NEARER ? l->nearer->why : method ? BORROWED_PAIRS : l->why;
}

/* What TRL's other trainers are told besides; their collators always pass a mask. */
static void ask_of_method(const vp_fit_job *job, const vp_settings *s, vp_hf_request *q)
{
    bool grpo        = is_grpo(s);
    q->trainer       = method_of(s);
    q->padded        = true;
    q->target_seq    = grpo ? number(s, VP_SETTING_COMPLETION) : 0;
    q->generates     = grpo && is(s, VP_SETTING_GENERATOR, "model");
    q->has_reference = grpo && job->has_reference && is(s, VP_SETTING_TUNING, "full");
    q->counts_engine = job->counts_engine;
}

/* versions: as in vp_hf_request. */
static vp_status bytes_with(const vp_fit_job *job, const vp_settings *s, const char *versions,
                            vp_fit_bytes *out, vp_err *err)
{
    vp_hf_estimate e = {0};
    adapter_words  words;
    double         low, high;
    const char    *method = method_of(s);
    step_of        of     = method && job->language->own ? OF_ITS_OWN : OF_ANOTHER;
    bool           packed = false;
    vp_hf_request  q      = {.trainer         = job->language->step_of,
                             .precision       = precision_of(s),
                             .attention       = attention_of(s),
                             .optimizer       = s->value[VP_SETTING_OPTIMIZER],
                             .recompute       = s->value[VP_SETTING_RECOMPUTE],
                             .offloads        = offloads_activations(s),
                             .padded          = job->padded,
                             .versions        = versions,
                             .terse           = job->terse || versions,
                             .compiles        = job->compiles,
                             .loads_only      = job->loads_only,
                             .shelf           = job->shelf,
                             .lora            = {.targets = "none"},
                             .load            = load_of(job, s),
                             .prepare         = prepare_of(job, s),
                             .clips           = clips(job, s),
                             .liger           = liger_of(job, s),
                             .eval_batch      = eval_batch_of(s),
                             .batch           = number(s, VP_SETTING_MICRO_BATCH),
                             .seq             = number(s, VP_SETTING_SEQ),
                             .accumulation    = number(s, VP_SETTING_ACCUMULATION),
                             .syncs_each      = is(s, VP_SETTING_GRADIENT_SYNC, "each"),
                             .world           = number(s, VP_SETTING_WORLD),
                             .parallel        = parallel_of(s),
                             .offload         = offload_of(s),
                             .device_bytes    = job->device->usable_bytes,
                             .capability      = job->device->compute_capability,
                             .prefers_cudnn   = vp_hf_prefers_cudnn(job->device->compute_capability),
                             .processors      = job->device->multiprocessors,
                             .workspace_bytes = VP_HF_WORKSPACE_OF_CARD,
                             .alloc_conf      = is(s, VP_SETTING_ALLOCATOR, "expandable")
                                                    ? "expandable_segments:True"
                                                    : NULL};
    vp_status      st     = VP_OK;

    *out = (vp_fit_bytes){0};
    VP_TRY(refuse_unknown(job, s, err));
    if (!is(s, VP_SETTING_TUNING, "full"))
        VP_TRY(read_adapters(job, s, &words, &q.lora, err));
    q.at_most_bytes =
        job->at_most_bytes ? vp_max_i64(job->at_most_bytes - outside_bytes(job, q.world), 1) : 0;
    q.counts_needed = q.counts_alone = job->counts_needed;
    q.least_share                    = share_of(job, &q,
                             job->language->own      ? OF_ITS_OWN
                                                : job->language->nearer ? OF_A_NEARER
                                                                        : OF_ANOTHER);
    q.limit_bytes = job->limit_bytes ? job->limit_bytes - outside_bytes(job, q.world) : 0;
    if (method) {
        ask_of_method(job, s, &q);
    } else {
        VP_TRY(try_own(job, s, &q, &e, &of, &packed, err));
        VP_TRY(try_nearer(job, &q, &e, &of, err));
    }
    q.at_most_share = share_of(job, &q, of);
    if (of == OF_ANOTHER || method)
        VP_TRY(estimate_unprepared(job, s, &q, &e, err));
    interval_of(job, &q, of, e.stands_in, &low, &high);
    if (is_overprepared(job, s, &q))
        widen(PREPARED_LOW, &low, &low);
    say_preparation(job, s, &q, &e);
    if (is_grpo(s) && !job->no_seconds)
        assume(&e, "seconds are those of the step that learns; making the completions, which comes "
                   "before it, is not timed");
    reach_ligers(job, &q, &e, &low);
    say_without_liger(job, s, &e);
    if (is_tiled(job, s) && of == OF_ANOTHER) {
        low = TILED_LOW;
        assume(&e, "the loss in tiles is counted as if all logits were there: an upper bound");
    }
    if (job->packed && !method)
        assume(&e, of == OF_ITS_OWN
                       ? "packing: a batch is one row; 4 documents a sequence, more change little"
                       : "packing is counted as whole sequences: no such step was recorded of it");
    out->allocated_bytes = e.allocated_bytes;
    out->reserved_bytes  = e.reserved_bytes;
    out->device_bytes    = e.reserved_bytes + outside_bytes(job, q.world);
    out->n_returns       = e.n_returns;
    out->batch           = e.batch;
    out->low_bytes       = e.reserved_bytes - (int64_t)(low * (double)e.reserved_bytes) +
                     job->context_least_bytes; /* NCCL may take less than is assumed */
    out->high_bytes = out->device_bytes + (int64_t)(high * (double)e.reserved_bytes);
    out->low        = low;
    out->high       = high;
    say_origin(job, &q, of, &e, out);
    out->peak_phase = e.phases[e.peak].name;
    out->n_params   = e.n_params;
    out->n_trained  = e.n_trained;
    memcpy(out->versions, e.versions, sizeof out->versions);
    memcpy(out->assumptions, e.assumptions, sizeof out->assumptions);
    out->n_assumptions = e.n_assumptions;
out:
    out->is_too_large_at_rest = st == VP_ERR_NO_FIT && e.is_too_large_at_rest;
    out->is_needed_too_large  = st == VP_ERR_NO_FIT && e.is_needed_too_large;
    return st;
}

/* Bytes of the recorded libraries, for those that were asked for are not known. */
static void stand_in_for_release(vp_fit_bytes *b)
{
    double  reserved = (double)b->reserved_bytes;
    int64_t lower    = b->low_bytes + (int64_t)(b->low * reserved),
            upper    = b->high_bytes - (int64_t)(b->high * reserved);

    widen(VP_HF_STAND_IN_SHARE, &b->low, &b->high);
    b->low_bytes  = lower - (int64_t)(b->low * reserved);
    b->high_bytes = upper + (int64_t)(b->high * reserved);
    b->basis      = RELEASE_BASIS;
}

vp_status vp_fit_bytes_of(const vp_fit_job *job, const vp_settings *s, vp_fit_bytes *out,
                          vp_err *err)
{
    const char *attention = s->value[VP_SETTING_ATTENTION];
    vp_err      why       = {0};
    vp_status   st;

    if (attention)
        VP_TRY(vp_hf_check_attention(job->model->family, attention, job->versions, err));
    st = job->versions ? bytes_with(job, s, job->versions, out, &why) : VP_ERR_INPUT;
    if (st == VP_ERR_INPUT) {
        st = bytes_with(job, s, NULL, out, err);
        if (st == VP_OK && job->versions)
            stand_in_for_release(out);
    } else if (st != VP_OK)
        *err = why;
out:
    return st;
}

int64_t vp_fit_padded_bytes(const vp_fit_job *job, const vp_settings *s)
{
    vp_fit_job   padded = *job;
    vp_settings  whole  = *s; /* over the next length that was recorded with a mask: as much */
    int64_t      seq    = number(s, VP_SETTING_SEQ);
    char         text[32];
    vp_fit_bytes bytes;
    vp_err       why = {0};

    if (job->padded || job->packed || strcmp(s->value[VP_SETTING_MICRO_BATCH], "1") == 0)
        return 0;
    padded.padded        = true;
    padded.terse         = true;
    padded.at_most_bytes = 0;
    if (vp_fit_bytes_of(&padded, s, &bytes, &why) == VP_OK)
        return bytes.high_bytes;
    snprintf(text, sizeof text, "%lld", (long long)vp_round_up(seq, VP_MASKED_BY));
    whole.value[VP_SETTING_SEQ] = text;
    return seq % VP_MASKED_BY && vp_fit_bytes_of(&padded, &whole, &bytes, &why) == VP_OK
               ? bytes.high_bytes
               : 0;
}

vp_status vp_fit_tightly(const vp_fit_job *job, const vp_settings *s, const vp_fit_bytes *bytes,
                         int64_t budget_bytes, bool *is_tight, int64_t *n_returns, vp_err *err)
{
    vp_fit_job   limited = *job;
    vp_fit_bytes within;
    vp_err       why = {0};
    vp_status    st;

    *n_returns = 0;
    *is_tight  = bytes->device_bytes <= budget_bytes;
    if (*is_tight ||
        bytes->device_bytes - bytes->reserved_bytes + bytes->allocated_bytes > budget_bytes)
        return VP_OK;
    limited.limit_bytes   = budget_bytes;
    limited.at_most_bytes = 0;
    limited.terse         = true;
    st                    = vp_fit_bytes_of(&limited, s, &within, &why);
    *is_tight             = st == VP_OK;
    *n_returns            = st == VP_OK ? within.n_returns : 0;
    if (st == VP_OK || st == VP_ERR_NO_FIT)
        return VP_OK;
    *err = why;
    return st;
}

static int64_t blocks_recomputed(const vp_settings *s, int64_t n_blocks)
{
    const char *word = s->value[VP_SETTING_RECOMPUTE], *n;

    if (strcmp(word, "none") == 0)
        return 0;
    if (vp_word_is(word, "every:N", &n))
        return (n_blocks + strtoll(n, NULL, 10) - 1) / strtoll(n, NULL, 10);
    if (vp_word_is(word, "first:N", &n))
        return strtoll(n, NULL, 10) < n_blocks ? strtoll(n, NULL, 10) : n_blocks;
    return n_blocks;
}

/* Whether frozen weights are gathered too. */
static bool cuts_frozen(const char *parallel)
{
    return strncmp(parallel, "fsdp", 4) == 0 || strcmp(parallel, "zero3") == 0;
}

/* Of what is gathered: NF4 weights come packed, two in a byte; tables are not quantised. */
static double gathered_bytes(const vp_fit_job *job, const vp_settings *s, int64_t n_trained,
                             double each)
{
    const vp_graph *g      = &job->model->graph;
    int64_t         n      = vp_max_i64(n_trained, job->model->n_params);
    int64_t         tables = g->vocab_size * g->hidden * (g->n_shared ? 1 : 2);

    if (!is(s, VP_SETTING_TUNING, "qlora") || tables > n)
        return each * (double)n;
    return each * (double)tables + 0.5 * (double)(n - tables);
}

/* Without links of their own cards talk through the host, each in turn. Buckets of ZeRO 1 and 2 are not overlapped
 * (overlap_comm is off in what is written); other ways talk while they compute, where a tenth is taken to be left. */
static const double NOT_OVERLAPPED = 0.1, SLOW_LINK = 8e9;

/* Beside what takes so many seconds. */
static double overlapped(double seconds, double talk)
{
    return talk > seconds ? talk + NOT_OVERLAPPED * seconds : seconds + NOT_OVERLAPPED * talk;
}

static void add_links(const vp_fit_job *job, const vp_settings *s, int64_t n_trained,
                      double *seconds)
{
    bool             cuts_all = cuts_frozen(parallel_of(s));
    const vp_device *d        = job->device;
    const char      *parallel = parallel_of(s);
    bool             halves = strcmp(parallel, "ddp") != 0 && !is(s, VP_SETTING_PRECISION, "fp32");
    double           link   = d->peer_link_bytes_per_s > 0   ? d->peer_link_bytes_per_s
                              : d->host_link_bytes_per_s > 0 ? d->host_link_bytes_per_s / 2
                                                             : SLOW_LINK;
    double           each   = halves ? 2.0 : 4.0;
    double cut  = cuts_all ? gathered_bytes(job, s, n_trained, each) : each * (double)n_trained;
    double talk = vp_world_sent_bytes(parallel, number(s, VP_SETTING_WORLD), cut,
                                      each * (double)n_trained, number(s, VP_SETTING_ACCUMULATION),
                                      is(s, VP_SETTING_GRADIENT_SYNC, "each")) /
                  link;
    bool waits = strcmp(parallel, "zero1") == 0 || strcmp(parallel, "zero2") == 0;

    *seconds = waits ? *seconds + talk : overlapped(*seconds, talk);
}

/* Of states, or of weights with their states, in host memory: each card has a link of its own, over which its part of the
 * weights comes for each pass of each micro-step and its part of the gradients goes whenever they are reduced; all cards' updates
 * are made by one host, in fp32, when all gradients are there. */
static void add_host(const vp_fit_job *job, const vp_settings *s, int64_t n_trained,
                     double *seconds)
{
    enum {
        UPDATE_BYTES = 28
    }; /* of AdamW: gradient read; weight and both states read and written */
    const char *offload = offload_of(s), *parallel = parallel_of(s);
    bool        params = strcmp(offload, "params") == 0, fsdp = strncmp(parallel, "fsdp", 4) == 0;
    double      world  = (double)number(s, VP_SETTING_WORLD),
           micro_steps = (double)number(s, VP_SETTING_ACCUMULATION);
    double kept =
        fsdp && !is(s, VP_SETTING_PRECISION, "bf16") ? 4 : 2; /* DeepSpeed copies 16 bits */
    bool at_once = fsdp ? !is(s, VP_SETTING_GRADIENT_SYNC, "each") : strcmp(parallel, "zero1") == 0;
    double weights = gathered_bytes(job, s, n_trained, kept) / world;
    double trained = (double)n_trained / world, bytes;

    if (strcmp(offload, "none") == 0)
        return;
    bytes = (params ? 2 * micro_steps * weights : kept * trained) +
            kept * (at_once ? 1 : micro_steps) * trained;
    *seconds = overlapped(*seconds, bytes / (job->device->host_link_bytes_per_s > 0
                                                 ? job->device->host_link_bytes_per_s
                                                 : SLOW_LINK));
    *seconds += vp_host_update_seconds(job->device, UPDATE_BYTES * (double)n_trained);
}

vp_status vp_fit_seconds_of(const vp_fit_job *job, const vp_settings *s, int64_t n_trained,
                            double *out, vp_err *err)
{
    const vp_graph *g    = &job->model->graph;
    vp_eager_step   step = {.model     = job->model,
                            .device    = job->device,
                            .profile   = job->profile,
                            .precision = s->value[VP_SETTING_PRECISION],
                            .attention = s->value[VP_SETTING_ATTENTION],
                            .optimizer = s->value[VP_SETTING_OPTIMIZER],
                            .clips     = clips(job, s),
                            .frozen    = !is(s, VP_SETTING_TUNING, "full"),
                            .batch     = (has_pairs(s) ? 2 : 1) * number(s, VP_SETTING_MICRO_BATCH),
                            .seq       = number(s, VP_SETTING_SEQ),
                            .accumulation = number(s, VP_SETTING_ACCUMULATION),
                            .n_recomputed = blocks_recomputed(s, g->n_instances - 2),
                            .n_trained    = n_trained,
                            .prices       = job->prices};

    int64_t world = number(s, VP_SETTING_WORLD);

    if (world > 1 && strcmp(parallel_of(s), "ddp") != 0)
        step.n_trained = (n_trained + world - 1) / world; /* each card updates its part */
    if (vp_eager_seconds(&step, out, err) != VP_OK)
        return err->code;
    if (is(s, VP_SETTING_METHOD, "dpo") ||
        job->has_reference) /* its forward pass beside three or four such passes */
        *out *= step.n_recomputed ? 5.0 / 4 : 4.0 / 3;
    add_links(job, s, n_trained, out);
    add_host(job, s, n_trained, out);
    return VP_OK;
}
