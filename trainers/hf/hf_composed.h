/* trainers/hf/hf_composed.h: a step that was not recorded, put together from three that were.
 *
 *     bytes(model, asked) = bytes(model, near) + bytes(sibling, asked) - bytes(sibling, near)
 *
 * near: the settings asked for, some of them as they were recorded (no padding, another attention). sibling: a model of
 * another family with the same sizes, whose steps were recorded both ways. What a setting adds depends on the sizes first and on the
 * family little, so the difference is the sibling's, owner by owner and phase by phase. */
#ifndef VP_TRAINERS_HF_COMPOSED_H
#define VP_TRAINERS_HF_COMPOSED_H

#include "trainers/hf/hf_estimate.h"

/* out->is_composed is set, out->is_unrecorded where nothing near it was recorded either, and what was put together is said. VP_ERR_INPUT: nothing near it was recorded; then why, the refusal
 * of the step itself, is *err. VP_ERR_NO_FIT: as vp_hf_estimate_run(). */
vp_status vp_hf_compose(const vp_model *model, const vp_hf_request *asked, const vp_err *why,
                        vp_hf_estimate *out, vp_err *err);

#endif
