#include "trainers/hf/hf_request.h"

#include "base/units.h"
#include "trainers/torch/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void vp_hf_assume(vp_hf_estimate *e, const char *fmt, ...)
{
    va_list args;

    if (e->n_assumptions == VP_HF_ASSUMPTIONS)
        return;
    va_start(args, fmt);
    vsnprintf(e->assumptions[e->n_assumptions], sizeof *e->assumptions, fmt, args);
    va_end(args);
    for (int i = 0; i < e->n_assumptions; i++) /* one of several programs said it */
        if (strcmp(e->assumptions[i], e->assumptions[e->n_assumptions]) == 0)
            return;
    e->n_assumptions++;
}

bool vp_hf_has_adapters(const vp_hf_request *q)
{
    return strcmp(q->lora.targets, "none") != 0;
}

bool vp_hf_has_other_adapters(const vp_hf_request *q)
{
    static const char *const methods[] = {"ia3", "prompt", "prefix"};

    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(q->lora.targets, methods[i]) == 0)
            return true;
    return false;
}

bool vp_hf_has_lora(const vp_hf_request *q)
{
    return vp_hf_has_adapters(q) && !vp_hf_has_other_adapters(q);
}

bool vp_hf_has_prefix(const vp_hf_request *q)
{
    return strcmp(q->lora.targets, "prefix") == 0;
}

/* N of "word:N"; otherwise: another word. */
static int64_t number_behind(const char *word, const char *recompute, int64_t otherwise)
{
    size_t n = strlen(word);

    return strncmp(recompute, word, n) == 0 ? strtoll(recompute + n, NULL, 10) : otherwise;
}

int64_t vp_hf_first_recomputed(const vp_hf_request *q)
{
    return number_behind("first:", q->recompute, 0);
}

int64_t vp_hf_every_recomputed(const vp_hf_request *q)
{
    return number_behind("every:", q->recompute, 1);
}

bool vp_hf_forces_reentrant(const vp_hf_request *q)
{
    return vp_hf_is_trl(q) && vp_hf_has_adapters(q) && vp_hf_is_shared(q) &&
           strcmp(q->parallel, "zero3") == 0 && strcmp(q->recompute, "full") == 0;
}

bool vp_hf_is_reentrant(const vp_hf_request *q)
{
    return strcmp(q->recompute, "full:reentrant") == 0 || vp_hf_forces_reentrant(q);
}

bool vp_hf_freezes(const vp_hf_request *q)
{
    return q->freeze && strcmp(q->freeze, "none") != 0;
}

bool vp_hf_saves_modules(const vp_hf_request *q)
{
    return q->lora.save && strcmp(q->lora.save, "none") != 0;
}

/* A plain loop, or Trainer's. */
bool vp_hf_is_plain(const vp_hf_request *q)
{
    return strcmp(q->trainer, "torch") == 0;
}

bool vp_hf_is_dpo(const vp_hf_request *q)
{
    return strcmp(q->trainer, "dpo") == 0;
}

bool vp_hf_is_reward(const vp_hf_request *q)
{
    return strcmp(q->trainer, "reward") == 0;
}

bool vp_hf_is_grpo(const vp_hf_request *q)
{
    return strcmp(q->trainer, "grpo") == 0;
}

bool vp_hf_has_reference(const vp_hf_request *q)
{
    return !vp_hf_has_adapters(q) && (vp_hf_is_dpo(q) || q->has_reference);
}

bool vp_hf_has_pairs(const vp_hf_request *q)
{
    return vp_hf_is_dpo(q) || vp_hf_is_reward(q);
}

/* TRL's heads and losses are its own, so no other trainer's step stands in for them. */
bool vp_hf_is_trl(const vp_hf_request *q)
{
    return strcmp(q->trainer, "trl") == 0 || vp_hf_has_pairs(q) || vp_hf_is_grpo(q);
}

/* RewardTrainer turns all dropout off (RewardConfig, disable_dropout), that of adapters too. */
bool vp_hf_drops_out(const vp_hf_request *q)
{
    return q->lora.dropout > 0 && !vp_hf_is_reward(q);
}

bool vp_hf_is_quantised(const vp_hf_request *q)
{
    return q->load && strcmp(q->load, "none") != 0;
}

bool vp_hf_has_liger(const vp_hf_request *q)
{
    return q->liger && strcmp(q->liger, "none") != 0;
}

bool vp_hf_is_shared(const vp_hf_request *q)
{
    return q->parallel && strcmp(q->parallel, "none") != 0 &&
           (q->world > 1 || vp_world_knows_one(q->parallel, q->offload ? q->offload : "none"));
}

bool vp_hf_cuts_quantised(const vp_hf_request *q)
{
    return vp_hf_is_shared(q) && vp_hf_is_quantised(q) && !vp_world_replicates(q->parallel);
}

/* sdpa with flash attention turned off, as torch.backends.cuda.enable_flash_sdp(False) does. */
bool vp_hf_turns_flash_off(const vp_hf_request *q)
{
    return strcmp(q->attention, "sdpa:efficient") == 0;
}

/* Flash attention of PyTorch's sdpa wants compute capability 8.0 and 16 bits (torch, sdp_utils.cpp:
 * check_flash_attention_hardware_support); in fp32 nothing lacks it. */
bool vp_hf_lacks_flash(const vp_hf_request *q)
{
    bool has_none = strcmp(q->attention, "sdpa:flash") == 0 && q->capability < 80;

    return (has_none || vp_hf_turns_flash_off(q)) &&
           strcmp(vp_hf_computed_precision(q), "fp32") != 0;
}

/* bf16 without tensor cores for it (torch.cuda.is_bf16_supported(), which counts that). */
bool vp_hf_is_emulated(const vp_hf_request *q)
{
    return q->capability < 80 && strncmp(vp_hf_computed_precision(q), "bf16", 4) == 0;
}

static bool is_by_deepspeed(const vp_hf_request *q)
{
    return vp_hf_is_shared(q) && strncmp(q->parallel, "zero", 4) == 0;
}

static bool is_by_fsdp(const vp_hf_request *q)
{
    return vp_hf_is_shared(q) && strncmp(q->parallel, "fsdp", 4) == 0;
}

/* Accelerate starts no autocast under DeepSpeed (1.15, Accelerator.__init__: native_amp), which casts the model itself and keeps
 * fp32 weights beside it, whatever it was loaded in. Under FSDP it makes what is trained fp32 (fsdp2_prepare_model()). */
const char *vp_hf_meant_precision(const vp_hf_request *q)
{
    bool is_widened =
        (is_by_deepspeed(q) && !vp_hf_is_plain(q)) || (is_by_fsdp(q) && !vp_hf_has_adapters(q));

    return is_widened && strcmp(q->precision, "bf16-amp") == 0   ? "bf16-mixed"
           : is_widened && strcmp(q->precision, "fp16-amp") == 0 ? "fp16-mixed"
                                                                 : q->precision;
}

/* FSDP's policy has a format to compute in. */
static bool is_cast_by_fsdp(const vp_hf_request *q)
{
    return is_by_fsdp(q) &&
           (strcmp(q->precision, "bf16-mixed") == 0 || strcmp(q->precision, "bf16-amp") == 0);
}

/* Ways that cut the weights compute with 16-bit ones, without autocast but for FSDP1, around which Accelerate puts its own. */
const char *vp_hf_computed_precision(const vp_hf_request *q)
{
    const char *meant = vp_hf_meant_precision(q);

    if (is_cast_by_fsdp(q) && strcmp(q->parallel, "fsdp") == 0)
        return "bf16-amp";
    return is_cast_by_fsdp(q) || (is_by_deepspeed(q) && strcmp(meant, "bf16-mixed") == 0) ? "bf16"
                                                                                          : meant;
}

/* Trainer loads what ZeRO 3 cuts by zero.Init(). A model that was made so DeepSpeed does not cast (0.19, engine.py:
 * is_zero_init_model), and peft makes adapters fp32 (autocast_adapter_dtype). */
static bool keeps_wide_adapters(const vp_hf_request *q)
{
    return is_by_deepspeed(q) && strcmp(q->parallel, "zero3") == 0 && !vp_hf_is_plain(q) &&
           !vp_hf_is_trl(q);
}

/* Under FSDP1 an adapter is fp32 but within its own forward pass: peft casts its input to that, and autocast makes a copy of 16 bits,
 * as on one card; beside quantised weights peft leaves the input to autocast. */
bool vp_hf_halves_adapters(const vp_hf_request *q)
{
    bool is_cast =
        is_cast_by_fsdp(q) && (vp_hf_is_quantised(q) || strcmp(q->parallel, "fsdp") != 0);

    return q->lora.is_bf16 || is_cast ||
           (is_by_deepspeed(q) && !keeps_wide_adapters(q) &&
            strcmp(vp_hf_computed_precision(q), "fp32") != 0);
}

bool vp_hf_trains_halves(const vp_hf_request *q)
{
    return q->lora.is_bf16 || (vp_hf_is_trl(q) && vp_hf_is_quantised(q));
}

bool vp_hf_upcasts(const vp_hf_request *q)
{
    bool asks =
        q->prepare == VP_HF_PREPARE_AS_TRAINER ? !vp_hf_is_trl(q) : q->prepare == VP_HF_PREPARE_ON;

    return vp_hf_is_quantised(q) && asks && !is_by_fsdp(q);
}

/* DeepSpeed's are what it updates in place of all 16-bit weights. */
int64_t vp_hf_kept_adapter_bytes(const vp_hf_request *q)
{
    bool is_wide = is_by_deepspeed(q) || is_cast_by_fsdp(q) || !vp_hf_halves_adapters(q);

    return is_wide ? 4 : 2;
}

int64_t vp_hf_workspace_of(const vp_hf_request *q)
{
    if (q->workspace_bytes >= 0)
        return q->workspace_bytes;
    return q->capability == 90 ? 32 * VP_MIB : 2 * 4096 * VP_KIB + 8 * 16 * VP_KIB;
}
