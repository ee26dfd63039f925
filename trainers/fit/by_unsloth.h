/* trainers/fit/by_unsloth.h: what a step of Unsloth's takes, from SFTTrainer's recorded one and its sources.
 *     VP_TRY(vp_fit_by_unsloth(model, &request, &estimate, &found, err));
 *
 * Its own step was not recorded. SFTTrainer's is the nearest, for neither has whole logits or makes fp32 what is not quantised; what
 * is otherwise in unsloth and unsloth_zoo 2026.10.9 is added and taken off (by_unsloth.c). Held against whole runs of it:
 * tests/golden/trainers/unsloth_runs.csv. */
#ifndef VP_TRAINERS_FIT_BY_UNSLOTH_H
#define VP_TRAINERS_FIT_BY_UNSLOTH_H

#include "trainers/hf/hf_estimate.h"

#include <stdbool.h>

/* asked: as for transformers' Trainer. *found: it trains adapters with checkpoints, and there is such a step; of others nothing is
 * said, and VP_OK. VP_ERR_NO_FIT: it takes more than asked->at_most_bytes. */
vp_status vp_fit_by_unsloth(const vp_model *model, const vp_hf_request *asked, vp_hf_estimate *out,
                            bool *found, vp_err *err);

#endif
