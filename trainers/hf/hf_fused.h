/* trainers/hf/hf_fused.h: an optimizer that updates each parameter in the backward pass, as soon as its gradient is there.
 *     VP_TRY(vp_hf_fused_new(step, optimizer, name, &fused, err));      the step is watched by it from here on
 *     VP_TRY(vp_hf_fused_begin(fused, err));
 *     VP_TRY(vp_recorded_play(step, "backward", err));
 *     VP_TRY(vp_hf_fused_end(fused, err)); */
#ifndef VP_TRAINERS_HF_HF_FUSED_H
#define VP_TRAINERS_HF_HF_FUSED_H

#include "trainers/torch/optimizer_step.h"
#include "trainers/torch/recording.h"

typedef struct vp_hf_fused vp_hf_fused;

/* *out is NULL where the optimizer has a step of its own; all calls take NULL. Step and optimizer are borrowed. */
vp_status vp_hf_fused_new(vp_recorded *step, vp_optimizer_step *optimizer, const char *name,
                          vp_hf_fused **out, vp_err *err);
void      vp_hf_fused_free(vp_hf_fused *fused);
void      vp_hf_fused_begin(vp_hf_fused *fused);
vp_status vp_hf_fused_end(vp_hf_fused *fused, vp_err *err);

#endif
