/* trainers/hf/hf_step.h: a found program with the sizes of a request, to be played.
 *     VP_TRY(vp_hf_step_new(&found, request, seq, &ledger, &step, err)); */
#ifndef VP_TRAINERS_HF_HF_STEP_H
#define VP_TRAINERS_HF_HF_STEP_H

#include "trainers/hf/hf_find.h"
#include "trainers/torch/recording.h"

/* In the ledger, which is borrowed. VP_ERR_INPUT: sizes beyond what fits in numbers. */
vp_status vp_hf_step_new(vp_hf_found *found, const vp_hf_request *request, int64_t seq,
                         vp_ledger *ledger, vp_recorded **out, vp_err *err);

#endif
