/* trainers/torch/eager_gpt2.h: transformers' eager GPT-2 under PyTorch's autograd: a second meaning
 * of the same graphs, as rows. Not offered by any command yet: it shows that a trainer is a table. */
#ifndef VP_TRAINERS_TORCH_EAGER_GPT2_H
#define VP_TRAINERS_TORCH_EAGER_GPT2_H

#include "planner/lowering/semantics.h"

/* Flash attention, torch.optim.AdamW, no clipping; weights in bf16, and in fp32 under autocast to
 * bf16. */
extern const vp_semantics vp_torch_eager_gpt2_bf16, vp_torch_eager_gpt2_autocast;

#endif
