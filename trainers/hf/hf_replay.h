/* trainers/hf/hf_replay.h: a recorded step of transformers' modules, with a model's sizes, through PyTorch's caching
 * allocator.
 *     VP_TRY(vp_hf_replay(model, &request, &estimate, err)); */
#ifndef VP_TRAINERS_HF_REPLAY_H
#define VP_TRAINERS_HF_REPLAY_H

#include "trainers/hf/hf_estimate.h"

/* As vp_hf_estimate_run(), of what was recorded alone: VP_ERR_INPUT beside out->is_unrecorded where the settings are such that run, and
 * their step was not. */
vp_status vp_hf_replay(const vp_model *model, const vp_hf_request *request, vp_hf_estimate *out,
                       vp_err *err);

#endif
