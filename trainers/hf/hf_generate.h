/* trainers/hf/hf_generate.h: completions that a model makes itself before its step, as TRL's GRPOTrainer asks transformers for them where
 * no engine does it (use_vllm false).
 *     if (request.generates)
 *         VP_TRY(vp_hf_generate(&found.sizes, &request, seq, &ledger, err)); */
#ifndef VP_TRAINERS_HF_GENERATE_H
#define VP_TRAINERS_HF_GENERATE_H

#include "trainers/hf/hf_request.h"
#include "trainers/hf/hf_sizes.h"
#include "trainers/torch/ledger.h"

/* By rule, not recorded: GenerationMixin._sample() of transformers 5.17 with DynamicCache, whose keys and values grow by torch.cat with each
 * token; a decoder's products, one layer after the other; logits of a sequence's last token and what is drawn from them. All
 * completions of an optimizer step are made at once (steps_per_generation is gradient_accumulation_steps), as long as they may be.
 * seq: tokens of a prompt and its completion. Nothing of it stays. VP_ERR_NO_FIT as the ledger's. */
vp_status vp_hf_generate(const vp_hf_sizes *sizes, const vp_hf_request *request, int64_t seq,
                         vp_ledger *ledger, vp_err *err);

#endif
