/* trainers/hf/hf_unrecorded.h: requests of which no step was recorded, kept on their shelf: a search asks for the same ones with
 * other micro-batches, cards and settings of the allocator, of which it does not hang. */
#ifndef VP_TRAINERS_HF_HF_UNRECORDED_H
#define VP_TRAINERS_HF_HF_UNRECORDED_H

#include "trainers/hf/hf_estimate.h"

/* Whether it was noted of a request that looks for the same step. Of one without a shelf, and of one whose refusal somebody reads,
 * nothing is known. */
bool vp_hf_is_noted_unrecorded(const vp_model *model, const vp_hf_request *request);

/* It was looked for in vain. Where there is no memory to note it, it is looked for again. */
void vp_hf_note_unrecorded(const vp_model *model, const vp_hf_request *request);

#endif
