/* tests/lowering/eager_gpt2.h: transformers' eager GPT-2 under PyTorch's autograd: a second meaning
 * of the same graphs, as rows. No command uses it. */
#ifndef VP_TESTS_LOWERING_EAGER_GPT2_H
#define VP_TESTS_LOWERING_EAGER_GPT2_H

#include "planner/lowering/semantics.h"

/* Flash attention, torch.optim.AdamW, no clipping; weights in bf16, and in fp32 under autocast to
 * bf16. */
extern const vp_semantics vp_torch_eager_gpt2_bf16, vp_torch_eager_gpt2_autocast;

#endif
