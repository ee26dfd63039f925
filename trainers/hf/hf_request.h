/* trainers/hf/hf_request.h: what a request means, asked in a word.
 *     if (vp_hf_is_shared(&request) && vp_hf_has_adapters(&request)) ... */
#ifndef VP_TRAINERS_HF_REQUEST_H
#define VP_TRAINERS_HF_REQUEST_H

#include "trainers/hf/hf_estimate.h"

#include <stdbool.h>

/* Said beside the answer; what is beyond VP_HF_ASSUMPTIONS is left out. */
void vp_hf_assume(vp_hf_estimate *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

bool vp_hf_has_adapters(const vp_hf_request *request); /* of any method of peft */
bool vp_hf_has_lora(const vp_hf_request *request);
bool vp_hf_has_other_adapters(const vp_hf_request *request); /* one that is not LoRA */
bool vp_hf_has_prefix(const vp_hf_request *request);         /* prefix tuning */
/* Of "first:N" N: checkpoints of so many layers from the first on; else 0. */
int64_t vp_hf_first_recomputed(const vp_hf_request *request);
/* Of "every:N" N: of so many layers one has a checkpoint; else 1. */
int64_t vp_hf_every_recomputed(const vp_hf_request *request);
/* "full:reentrant": checkpoints of all layers by torch.utils.checkpoint with use_reentrant=True. */
/* TRL's trainers switch that on for adapters under ZeRO 3, whatever was asked for (1.16, sft_trainer.py). */
bool vp_hf_forces_reentrant(const vp_hf_request *request);
bool vp_hf_is_reentrant(const vp_hf_request *request);
bool vp_hf_freezes(const vp_hf_request *request);       /* parts of a model that is trained */
bool vp_hf_saves_modules(const vp_hf_request *request); /* whole ones beside adapters */
bool vp_hf_is_plain(const vp_hf_request *request);      /* a plain loop, not Trainer's */
bool vp_hf_is_trl(
    const vp_hf_request *request); /* SFTTrainer, DPOTrainer, RewardTrainer, GRPOTrainer */
bool vp_hf_is_dpo(const vp_hf_request *request);
bool vp_hf_is_grpo(const vp_hf_request *request);
bool vp_hf_is_reward(const vp_hf_request *request);
/* A second model is there that is not trained, as large as the one that is, and in the same step. */
bool vp_hf_has_reference(const vp_hf_request *request);
bool vp_hf_has_pairs(const vp_hf_request *request); /* a sample is two sequences */
bool vp_hf_drops_out(const vp_hf_request *request); /* adapters, while they are trained */
bool vp_hf_has_liger(const vp_hf_request *request);
bool vp_hf_is_quantised(const vp_hf_request *request);
bool vp_hf_lacks_flash(const vp_hf_request *request);     /* its card has none, or it is off */
bool vp_hf_turns_flash_off(const vp_hf_request *request); /* asked for */
bool vp_hf_is_emulated(const vp_hf_request *request);     /* bf16 on a card without it */
bool vp_hf_is_shared(
    const vp_hf_request *request); /* by several cards, or as if there were others */
bool vp_hf_cuts_quantised(
    const vp_hf_request *request); /* of weights that are packed each card has a part */

/* Ways that cut the weights compute with 16-bit ones, without autocast. */
const char *vp_hf_computed_precision(const vp_hf_request *request);
const char *vp_hf_meant_precision(const vp_hf_request *request);
/* Adapters are computed with in 16 bits: asked for, or what DeepSpeed and FSDP make of all a model's weights. */
bool vp_hf_halves_adapters(const vp_hf_request *request);
/* Trained in 16 bits: asked for, or as TRL's trainers make them over quantised weights. */
bool vp_hf_trains_halves(const vp_hf_request *request);
/* Whether what is not quantised is fp32, as vp_hf_prepare says; else it is as it was loaded. */
bool vp_hf_upcasts(const vp_hf_request *request);
/* Of an element that the optimizer updates in their place. */
int64_t vp_hf_kept_adapter_bytes(const vp_hf_request *request);
/* cuBLAS's, of one thread (CUDABlas, getChosenWorkspaceSize): 32 MiB on compute capability 9.0, else
 * 2 x 4 MiB and 8 x 16 KiB. */
int64_t vp_hf_workspace_of(const vp_hf_request *request);

#endif
