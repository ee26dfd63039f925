/* trainers/hf/hf_asked.h: what was found for a request before, kept on its shelf: searches ask for the same again, with other limits.
 * That no step was recorded is known of other micro-batches and cards too.
 *
 * Of a request without a shelf, and of one whose refusal somebody reads, nothing is noted. Where there is no memory for a note, it is
 * asked again. */
#ifndef VP_TRAINERS_HF_HF_ASKED_H
#define VP_TRAINERS_HF_HF_ASKED_H

#include "trainers/hf/hf_estimate.h"

/* Whether the step that the request looks for was looked for in vain. */
bool vp_hf_is_noted_unrecorded(const vp_model *model, const vp_hf_request *request);
void vp_hf_note_unrecorded(const vp_model *model, const vp_hf_request *request);

/* What a request without a limit takes. False: it was not noted. */
bool vp_hf_is_noted(const vp_model *model, const vp_hf_request *request, vp_hf_estimate *out);
void vp_hf_note(const vp_model *model, const vp_hf_request *request, const vp_hf_estimate *found);

#endif
