/* trainers/hf/hf_cudnn.h: what cuDNN's attention keeps of a step that was recorded without it.
 *     if (vp_hf_copies_attention(model, request, "sdpa:flash", has_mask))
 *         VP_TRY(vp_recorded_keeps(step, n_layers, vp_hf_copy_bytes(&symbols), recomputes, err));
 *
 * Under a mask PyTorch takes cuDNN's attention first in 16 bits where its compute capability is 9.x or 10.x (torch 2.11, sdp_utils.cpp:
 * check_prefer_cudnn_attention), and memory-efficient attention elsewhere. The latter's output lies as the next layer reads it; cuDNN's lies
 * as the queries do (cudnn/MHA.cpp: alloc_with_matching_layout). Where a family's rotary embedding ends in torch.cat() these have heads
 * before tokens, so that transformers' transpose(1, 2).reshape() copies, and of each layer one tensor more stays for backward:
 *
 *     2 B S a d bytes      B samples, S tokens, a heads, d of each
 *
 * Beside checkpoints of every layer that is so of one at a time, as it runs again; beneath fp32 adapters it does not stay. Without a mask
 * flash attention's and cuDNN's lie alike. Not counted: checkpoints of some layers. */
#ifndef VP_TRAINERS_HF_CUDNN_H
#define VP_TRAINERS_HF_CUDNN_H

#include "trainers/hf/hf_estimate.h"
#include "trainers/torch/symbols.h"

/* attention: of the recording that is played. */
bool    vp_hf_copies_attention(const vp_model *model, const vp_hf_request *request,
                               const char *attention, bool has_mask);
int64_t vp_hf_copy_bytes(const vp_symbols *symbols);

#endif
