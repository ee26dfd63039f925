/* What `vplan estimate --trainer` asks the recordings: options, and what each trainer does unasked. */
#include "cli/estimate_answer.h"
#include "cli/rows.h"

#include "trainers/files/settings.h"
#include "trainers/hf/hf_resident.h"
#include "trainers/hf/hf_versions.h"
#include "trainers/torch/caching_allocator.h"
#include "trainers/torch/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESIDENTS "ema, mer, ewc, reference[=MODEL], teacher[=MODEL], reward[=MODEL]"

/* A word of --optimizer: transformers', or vplan's where it means the same. Of AdamW PyTorch's own default, which is not fused. */
static const char *optimizer_word(const char *word)
{
    return strcmp(word, "adamw") == 0 ? "adamw_torch"
                                      : vp_setting_synonym(VP_SETTING_OPTIMIZER, word);
}

static const char *attention_word(const char *word)
{
    return !word || strcmp(word, "flash") == 0 || strcmp(word, "sdpa") == 0 ? "sdpa:flash"
           : strcmp(word, "math") == 0                                      ? "sdpa:math"
           : strcmp(word, "fa2") == 0 || strcmp(word, "flash2") == 0        ? "flash_attention_2"
                                                                            : word;
}

/* Of transformers' gradient checkpointing, on one card too. */
static bool offloads_activations(const vp_estimate_options *o)
{
    return o->offload && strcmp(o->offload, "activations") == 0;
}

vp_status vp_estimate_check_parallel(int64_t world, const char *parallel, const char *offload,
                                     vp_err *err)
{
    if (world < 2 && vp_world_replicates(parallel))
        return VP_FAIL(err, VP_ERR_USAGE, "--parallel %s: with how many cards? --world 2 or more",
                       parallel);
    if (world < 2 && !vp_world_knows_one(parallel, offload ? offload : "none"))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--parallel %s%s%s on one card is not known; known are zero2, and with "
                       "--offload zero2 (optimizer) and zero3 (params); several cards: --world N",
                       parallel, offload ? " --offload " : "", offload ? offload : "");
    if (offload && !vp_world_offloads(parallel, offload))
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--offload %s is not what --parallel %s does; zero1 and zero2 offload the "
                       "optimizer, zero3 that or params, fsdp and fsdp2 params",
                       offload, parallel);
    return VP_OK;
}

static vp_status refuse_alone(const vp_estimate_options *o, vp_err *err)
{
    const char *parallel = o->parallel ? o->parallel : "ddp";
    bool        moves    = o->offload && strcmp(o->offload, "none") != 0;

    if (offloads_activations(o) && o->world > 1)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--offload activations with --world %lld: recorded was one card",
                       (long long)o->world);
    if (offloads_activations(o) && strcmp(o->trainer, "trl") == 0)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--offload activations: TRL's activation_offloading, on streams of its own, "
                       "was not recorded; transformers' checkpoints that are offloaded were: "
                       "--trainer hf --recompute full");
    if (offloads_activations(o) && o->recompute && strcmp(o->recompute, "none") == 0)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--offload activations moves what checkpoints keep: --recompute full");
    if (offloads_activations(o))
        return VP_OK;
    if (o->syncs_each && o->world < 2)
        return VP_FAIL(err, VP_ERR_USAGE, VP_SYNC_NEEDS_CARDS);
    if (o->world < 2 && moves && !o->parallel)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--offload %s: by what? --parallel zero2 or zero3, on one card too",
                       o->offload);
    return o->parallel || moves
               ? vp_estimate_check_parallel(o->world, parallel, moves ? o->offload : NULL, err)
               : VP_OK;
}

static vp_status refuse_vplans_own(const vp_estimate_options *o, vp_err *err)
{
    static const char recorded[] = "none|full|full:reentrant|full:non-reentrant|every:N";

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
    if (o->vllm && !(o->method && strcmp(o->method, "grpo") == 0))
        return VP_FAIL(err, VP_ERR_USAGE, "--vllm makes the completions of --method grpo");
    if (o->liger && (is_trl || strcmp(o->trainer, "torch") == 0))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--liger: recorded were Liger's kernels as transformers' Trainer has them: "
                       "--trainer hf");
    if (o->liger && o->loss && strcmp(o->loss, "liger") != 0)
        return VP_FAIL(err, VP_ERR_USAGE, "--liger has Liger's loss: leave --loss %s out", o->loss);
    if (o->packing && (!is_trl || (o->method && strcmp(o->method, "sft") != 0)))
        return VP_FAIL(err, VP_ERR_USAGE, "--packing is what TRL's SFTTrainer does: --trainer trl");
    if (o->packing && (o->padding || o->lengths))
        return VP_FAIL(err, VP_ERR_USAGE, "--packing leaves no padding: leave --%s out",
                       o->padding ? "padding" : "length-histogram");
    if (o->packing && o->eval_batch)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--packing with --eval-batch: no evaluation of packed samples was recorded");
    if ((o->prefetch || o->no_pin_memory) && !o->workers)
        return VP_FAIL(err, VP_ERR_USAGE, "--%s is told of a DataLoader's workers: --workers N",
                       o->prefetch ? "prefetch" : "no-pin-memory");
    if (o->qlora && o->load && strncmp(o->load, "nf4", 3) != 0)
        return VP_FAIL(
            err, VP_ERR_USAGE,
            "--qlora holds the frozen weights in NF4, --load %s does not: one of the two", o->load);
    if (o->peft && (o->lora || o->qlora))
        return VP_FAIL(err, VP_ERR_USAGE, "--peft %s or --%s: one of the two", o->peft,
                       o->lora ? "lora" : "qlora");
    if (o->image_size && !o->images)
        return VP_FAIL(err, VP_ERR_USAGE, "--image-size %s is of pictures: --images N",
                       o->image_size);
    if (o->freeze && strcmp(o->freeze, "vision") == 0 && !o->images)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--freeze vision is of a tower that sees pictures: --images N");
    if (o->freeze && strcmp(o->freeze, "none") != 0 && strcmp(o->freeze, "vision") != 0 &&
        (o->lora || o->qlora || o->peft))
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--freeze %s is for a model that is trained; under adapters all of it is "
                       "frozen: leave one of the two out",
                       o->freeze);
    if (o->peft && o->load && strcmp(o->load, "none") != 0)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--peft %s over quantised weights (--load %s) was not recorded; --lora was",
                       o->peft, o->load);
    if (o->recompute && strncmp(o->recompute, "first:", strlen("first:")) == 0)
        return vp_count_parse(o->recompute + strlen("first:"), "--recompute first:N", 1, 1 << 30,
                              &(int64_t){0}, err);
    if (o->recompute && !vp_word_is_among(o->recompute, recorded, strlen(recorded)))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--recompute %s: recorded were none, full (gradient checkpointing), "
                       "full:reentrant (by use_reentrant=True), full:non-reentrant, every:N (of "
                       "each N layers the first) and first:N (the first N layers)",
                       o->recompute);
    return VP_OK;
}

/* With vplan's own graph where there is one, whose parameters are then counted against; else the config
 * alone, which is enough for a recording. */
vp_status vp_estimate_open_model(const char *name, const vp_estimate_options *o, vp_model **out,
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
    return o->method && strcmp(o->method, "sft") != 0 ? o->method : o->trainer;
}

static const trainer_defaults defaults[] = {
    {"torch", "fp32", "fp32", "bf16", "adamw_torch", "none", 1, VP_ESTIMATE_SEQ, false},
    {"hf", "bf16-mixed", "bf16-amp", "bf16-amp", "adamw_torch_fused", "none", 8, VP_ESTIMATE_SEQ,
     true}, /* frozen weights stay as the Hub has them */
    {"trl", "bf16-mixed", "bf16-mixed", "bf16-amp", "adamw_torch_fused", "full", 8,
     VP_ESTIMATE_SFT_SEQ, true},
    {"dpo", "bf16-mixed", "bf16-mixed", "bf16-amp", "adamw_torch_fused", "full", 8,
     VP_ESTIMATE_SFT_SEQ, true},
    {"reward", "bf16-mixed", "bf16-mixed", "bf16-amp", "adamw_torch_fused", "full", 8,
     VP_ESTIMATE_SFT_SEQ, true},
    {"grpo", "bf16-mixed", "bf16-mixed", "bf16-amp", "adamw_torch_fused", "full", 8,
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
vp_estimate_options vp_estimate_with_qlora(const vp_estimate_options *given)
{
    vp_estimate_options o = *given;

    if (!o.qlora)
        return o;
    o.load      = o.load ? o.load : "nf4-dq";
    o.lora      = o.lora ? o.lora : VP_LORA_USUAL;
    o.recompute = o.recompute ? o.recompute : "full";
    return o;
}

/* What earlier runs took on this card, where nothing was measured for this one. */
static vp_status find_outside(const vp_estimate_options *o, vp_estimate_answer *a, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(
        vp_calibration_path(o->calibration, a->calibration_path, sizeof a->calibration_path, err));
    if (o->measured)
        a->context = vp_dryrun_context_of(&a->device);
    else
        VP_TRY(vp_calibration_outside(a->calibration_path, &a->device, &a->context, &a->calibration,
                                      err));
out:
    return st;
}

vp_status vp_estimate_budget(const vp_estimate_options *o, vp_device *device, int64_t *budget_bytes,
                             vp_err *err)
{
    vp_status st = VP_OK;

    *budget_bytes = o->budget.bytes ? o->budget.bytes : -1;
    if (!o->device && (o->budget.share > 0 || o->reserve.share > 0))
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--%s: a share of which --device?",
                       o->budget.share > 0 ? "budget" : "reserve"));
    if (o->device)
        VP_TRY(vp_parse_budget(o->device, &o->budget, device, budget_bytes, err));
    if (o->reserve.bytes && *budget_bytes < 0)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--reserve: of which --device or --budget?"));
    if (*budget_bytes >= 0)
        VP_TRY(vp_parse_reserve(&o->reserve, device, budget_bytes, err));
out:
    return st;
}

vp_status vp_estimate_open_device(const vp_estimate_options *o, vp_estimate_answer *a, vp_err *err)
{
    vp_status st = VP_OK;

    a->has_device = o->device != NULL;
    VP_TRY(vp_estimate_budget(o, &a->device, &a->budget_bytes, err));
    a->reserve_bytes = vp_amount_of(&o->reserve, a->device.usable_bytes);
    if (a->device.is_cpu)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--trainer %s is for a CUDA card, not for --device cpu",
                       o->trainer));
    if (o->device)
        VP_TRY(find_outside(o, a, err));
    if (o->device)
        a->context.bytes += vp_world_communicator_bytes(o->world);
out:
    return st;
}

/* Gradient checkpointing by use_reentrant=False where somebody says that, else as the libraries have it. */
static const char *recompute_word(const char *word, const vp_estimate_options *o)
{
    return strcmp(word, "full:non-reentrant") == 0 ? "full"
           : strcmp(word, "full") == 0
               ? vp_hf_usual_checkpoints(o->versions, strcmp(o->trainer, "trl") == 0)
               : word;
}

/* "teacher" of "teacher=gpt2". */
static const char *resident_kind(const vp_estimate_options *o)
{
    static const char *const models[] = {"reference", "teacher", "reward"};

    for (size_t i = 0; o->resident && i < sizeof models / sizeof *models; i++)
        if (strncmp(o->resident, models[i], strlen(models[i])) == 0)
            return models[i];
    return o->resident;
}

vp_status vp_estimate_open_second(const vp_estimate_options *o, vp_estimate_answer *a, vp_err *err)
{
    vp_estimate_options of_second = *o;
    const char         *name      = o->resident ? strchr(o->resident, '=') : NULL;

    of_second.class_name = NULL;
    return name ? vp_estimate_open_model(name + 1, &of_second, &a->second, err) : VP_OK;
}

/* As the stand-in for CUDA gives them where this is said: recorded rows of tests were played so. */
static bool addresses_rise(void)
{
    const char *order = getenv("VPLAN_NULL_ADDRESSES");

    return order && strcmp(order, "rising") == 0;
}

/* GRPOTrainer's, which is in its own step as beta is not 0. */
static bool asks_reference(const vp_estimate_options *o)
{
    return o->resident && strcmp(o->resident, "reference") == 0 &&
           strcmp(trainer_of(o), "grpo") == 0;
}

void vp_estimate_fill(const vp_estimate_options *o, vp_estimate_answer *a)
{
    const trainer_defaults *d = defaults_of(o->trainer);

    a->seq_is_default = !o->seq;
    a->is_tf32        = o->precision && strcmp(o->precision, "tf32") == 0;
    a->request        = (vp_hf_request){
               .trainer              = trainer_of(o),
               .precision            = a->is_tf32 ? "fp32" : o->precision,
               .precision_is_default = a->precision_is_default,
               .versions             = o->versions,
               .attention            = attention_word(o->attention),
               .optimizer            = o->optimizer ? optimizer_word(o->optimizer) : d->optimizer,
               .recompute            = recompute_word(o->recompute              ? o->recompute
                                                      : offloads_activations(o) ? "full"
                                                                                : d->recompute,
                                           o),
               .offloads = offloads_activations(o),
               .padded   = (o->padding && strcmp(o->padding, "mask") == 0) ||
                         (!o->padding && o->method && strcmp(o->method, "sft") != 0),
               .packed          = o->packing,
               .lora            = {.targets = "none"},
               .load            = o->load ? o->load : "none",
               .prepare         = !o->prepare                     ? VP_HF_PREPARE_AS_TRAINER
                                  : strcmp(o->prepare, "on") == 0 ? VP_HF_PREPARE_ON
                                                                  : VP_HF_PREPARE_OFF,
               .resident        = asks_reference(o) ? NULL : resident_kind(o),
               .has_reference   = asks_reference(o),
               .second          = a->second,
               .generates       = strcmp(trainer_of(o), "grpo") == 0 && !o->vllm,
               .keep_output     = o->keep_output,
               .liger           = o->liger                                   ? "all"
                                  : o->loss && strcmp(o->loss, "liger") == 0 ? "loss"
                                                                             : "none",
               .clips           = d->clips,
               .world           = o->world ? o->world : 1,
               .parallel        = o->parallel    ? o->parallel
                                  : o->world > 1 ? "ddp"
                                                 : "none",
               .offload         = o->offload && !offloads_activations(o) ? o->offload : "none",
               .device_bytes    = o->device ? a->device.usable_bytes : 0,
               .batch           = o->micro_batch ? o->micro_batch : d->micro_batch,
               .seq             = o->seq,
               .target_seq      = o->target_seq,
               .images          = o->images,
               .default_seq     = d->seq,
               .task            = o->task,
               .accumulation    = o->accumulation ? o->accumulation : 1,
               .syncs_each      = o->syncs_each,
               .eval_batch      = o->eval_batch,
               .capability      = o->device ? a->device.compute_capability : 90,
               .prefers_cudnn   = o->device && vp_hf_prefers_cudnn(a->device.compute_capability),
               .processors      = o->device ? a->device.multiprocessors : 132,
               .addresses_rise  = addresses_rise(),
               .workspace_bytes = VP_HF_WORKSPACE_OF_CARD,
               .alloc_conf      = o->alloc_conf,
               .compiles        = o->compiles,
    };
}

/* What stays on the card besides: KIND, or KIND=MODEL. */
static vp_status check_resident(const vp_estimate_options *o, vp_err *err)
{
    char   kind[24];
    size_t n     = strcspn(o->resident, "=");
    bool   other = o->resident[n] == '=', is_model;

    snprintf(kind, sizeof kind, "%.*s", (int)n, o->resident);
    if (strcmp(o->resident, "none") == 0)
        return VP_OK;
    if (!vp_hf_resident_is(kind, &is_model))
        return VP_FAIL(err, VP_ERR_USAGE, "--resident %s is none of " RESIDENTS, o->resident);
    if (other && (!is_model || !o->resident[n + 1]))
        return VP_FAIL(err, VP_ERR_USAGE,
                       is_model ? "--resident %s: which model?"
                                : "--resident %s: a copy of what is trained is of no other model",
                       o->resident);
    if (o->world > 1 || o->parallel)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--resident %s: on one card only: how it is cut over several was not "
                       "recorded",
                       o->resident);
    if (is_model && strcmp(o->trainer, "trl") == 0 && !asks_reference(o))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--resident %s beside TRL's own step was not recorded; the reference of "
                       "--method dpo is in it, and --method grpo has one as --resident reference",
                       o->resident);
    if (is_model && !other && strcmp(kind, "reward") != 0 && (o->lora || o->qlora || o->peft))
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--resident %s: under adapters it is the model without them, which takes "
                       "nothing of its own; =MODEL names a second one",
                       o->resident);
    return VP_OK;
}

static vp_status check_alloc_conf(const char *conf, vp_err *err)
{
    vp_caching_allocator_opts ignored = {0};
    vp_err                    why     = {0};

    if (!conf || vp_caching_allocator_conf(conf, &ignored, &why) == VP_OK)
        return VP_OK;
    return VP_FAIL(err, VP_ERR_USAGE, "--alloc-conf: %s: %s%s", why.field, why.message,
                   strstr(why.field, "fraction") ? "; --budget says what there is" : "");
}

/* The trainer's own; on a card without bf16 the same in fp16, for there PyTorch emulates bf16, which is slow. */
const char *vp_estimate_precision(const vp_estimate_options *o, const vp_estimate_answer *a,
                                  bool quantised)
{
    const trainer_defaults *d = defaults_of(o->trainer);
    const char *own      = quantised ? d->half : o->lora || o->peft ? d->adapted : d->precision;
    bool        has_bf16 = !o->device || a->device.compute_capability >= 80;

    bool only_bf16 = quantised && strcmp(o->trainer, "trl") == 0; /* vp_hf_check_trl() */

    return has_bf16 || only_bf16 || strcmp(own, "fp32") == 0 ? own
           : strstr(own, "-mixed")                           ? "fp16-mixed"
           : strstr(own, "-amp")                             ? "fp16-amp"
                                                             : "fp16";
}

vp_status vp_estimate_refuse(const vp_estimate_options *o, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(refuse_vplans_own(o, err));
    VP_TRY(refuse_alone(o, err));
    VP_TRY(check_alloc_conf(o->alloc_conf, err));
    if (o->resident)
        VP_TRY(check_resident(o, err));
out:
    return st;
}
