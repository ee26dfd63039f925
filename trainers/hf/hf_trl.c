#include "trainers/hf/hf_trl.h"

#include "base/checked.h"

#include <stdio.h>
#include <string.h>

/* Its loss adds products of bf16 up in fp32 (TRL 1.16, kernels/chunked_logprob.py: _addmm_fp32), for which cuBLAS in PyTorch
 * wants 8.0 (aten, CUDABlas.cpp: gemm_internal_cublas_bfloat16_helper with fp32 output). */
static vp_status check_trl_loss(const vp_hf_trl_question *q, const char *asked, vp_err *err)
{
    if (strncmp(q->precision, "bf16", 4) != 0 || q->capability >= 80)
        return VP_OK;
    return VP_FAIL_AT(
        err, VP_ERR_INPUT, NULL, 0, VP_HF_REFUSED_BY_CARD "precision",
        "%s does not run here: TRL's loss adds products of bf16 up in fp32, which "
        "PyTorch does from compute capability 8.0 on (RuntimeError in torch 2.11 with "
        "TRL 1.16)%s",
        asked,
        q->of_files       ? ""
        : q->is_quantised ? ". Nor does fp16 over quantised weights; --trainer hf does"
                          : ". --precision fp16 does");
}

const char *vp_hf_trl_instead(const vp_hf_trl_question *q)
{
    bool is_fp16 = strncmp(q->precision, "fp16", 4) == 0;

    if (q->is_quantised)
        return is_fp16 && q->capability >= 80 ? "bf16-amp" : NULL;
    return strcmp(q->precision, "bf16-mixed") == 0 ? "fp16-mixed" : "fp16-amp";
}

vp_status vp_hf_check_trl(const vp_hf_trl_question *q, vp_err *err)
{
    char asked[120];

    snprintf(asked, sizeof asked,
             q->is_default ? "--precision is not given, and %s, the default for this card,"
             : q->of_files ? "precision %s"
                           : "--precision %s",
             q->precision);
    if (!q->is_quantised || strncmp(q->precision, "fp16", 4) != 0)
        return check_trl_loss(q, asked, err);
    return VP_FAIL_AT(err, VP_ERR_INPUT, NULL, 0, VP_HF_REFUSED_BY_CARD "precision",
                      "%s does not run here: over quantised weights TRL's trainers make adapters "
                      "bf16, whose gradients PyTorch's GradScaler cannot unscale "
                      "(NotImplementedError in torch 2.11)%s",
                      asked,
                      q->of_files           ? ""
                      : q->capability >= 80 ? ". --precision bf16-amp does"
                                            : ". Nor does bf16 on this card; --trainer hf does");
}

/* RewardTrainer has no loss over a vocabulary, which is what bf16 does not run in. */
vp_status vp_hf_trl_runs(const vp_hf_request *q, vp_err *err)
{
    if (vp_hf_is_reward(q) && strncmp(q->precision, "fp16", 4) != 0)
        return VP_OK;
    return vp_hf_check_trl(&(vp_hf_trl_question){.precision    = q->precision,
                                                 .capability   = q->capability,
                                                 .is_quantised = vp_hf_is_quantised(q),
                                                 .is_default   = q->precision_is_default},
                           err);
}

int64_t vp_hf_trl_completion_of(const vp_hf_request *q, int64_t seq)
{
    return q->target_seq ? q->target_seq : vp_min_i64(VP_HF_USUAL_COMPLETION, seq / 2);
}

vp_status vp_hf_trl_completion(const vp_hf_request *q, vp_hf_estimate *out, int64_t *tokens,
                               vp_err *err)
{
    *tokens = vp_hf_trl_completion_of(q, out->seq);
    if (*tokens < 1 || *tokens >= out->seq)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--target-seq %lld: of the %lld tokens of --seq the prompt has one at least",
                       (long long)*tokens, (long long)out->seq);
    if (!q->target_seq)
        vp_hf_assume(out, "%lld of a sequence's tokens are the completion (--target-seq)",
                     (long long)*tokens);
    return VP_OK;
}

static void assume_of_reward(const vp_hf_request *q, vp_hf_estimate *out)
{
    vp_hf_assume(out,
                 "RewardTrainer of TRL 1.16: a head of one value a sequence, no margins, rewards "
                 "that are not centred%s",
                 q->lora.dropout > 0 ? ", no dropout in adapters, which it turns off" : "");
}

static void assume_of_grpo(const vp_hf_request *q, vp_hf_estimate *out)
{
    vp_hf_assume(out, "GRPOTrainer of TRL 1.16: a micro-batch is so many completions, %s",
                 q->has_reference        ? "a second model is the reference (beta)"
                 : vp_hf_has_adapters(q) ? "the reference, if beta asks for one, is the model "
                                           "without its adapters"
                                         : "beta is 0 (no reference model)");
    if (!q->generates)
        vp_hf_assume(out,
                     "%s what vLLM's correction asks of the model, without gradients, is not "
                     "counted",
                     q->counts_engine ? "of GRPO"
                                      : "vLLM has no part of this card (vllm_mode colocate: "
                                        "--reserve 30%);");
    else
        vp_hf_assume(out,
                     "the model makes %lld completions at once, each as long as it may be: "
                     "by rule, not recorded; --vllm where an engine does",
                     (long long)vp_mul(q->batch, q->accumulation));
}

void vp_hf_trl_assume(const vp_hf_request *q, vp_hf_estimate *out)
{
    if (vp_hf_is_reward(q) || vp_hf_is_grpo(q)) {
        vp_hf_is_grpo(q) ? assume_of_grpo(q, out) : assume_of_reward(q, out);
        return;
    }
    vp_hf_assume(out, "TRL 1.16: every token of a sequence but the first is learnt from; with "
                      "padding or prompts left out its head takes less");
    if (q->images)
        vp_hf_assume(out, "tokens of pictures are learnt from too, as TRL's collator labels all "
                          "that are no padding");
    if (q->packed)
        vp_hf_assume(out, strcmp(q->attention, "flash_attention_2") == 0
                              ? "packing: a batch is one row; flash-attn 2.8, whose kernels were "
                                "stood in for by what its sources allocate"
                              : "packing: a batch is one row, and sdpa has a mask over all of it; "
                                "TRL advises --attention flash_attention_2");
}
