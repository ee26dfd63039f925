/* trainers/hf/hf_moved.h: an optimizer that puts tensors of its own in place of weights and gradients as it steps.
 *     VP_TRY(vp_hf_moved_new(step, optimizer, "galore_adamw_8bit:targets=all-linear", list, n, &moved, err));
 *
 * Which block is whose is told by sizes: of those that have one size, weights are loaded in the order of the list, and gradients come in
 * the other. */
#ifndef VP_TRAINERS_HF_HF_MOVED_H
#define VP_TRAINERS_HF_HF_MOVED_H

#include "trainers/torch/optimizer_step.h"
#include "trainers/torch/recording.h"

typedef struct vp_hf_moved vp_hf_moved;

/* list[n]: what optimizer steps. *out: NULL where it leaves weights where they are; free with vp_hf_moved_free(), behind step. */
vp_status vp_hf_moved_new(vp_recorded *step, vp_optimizer_step *optimizer, const char *name,
                          const vp_trained *list, int64_t n, vp_hf_moved **out, vp_err *err);
void      vp_hf_moved_free(vp_hf_moved *moved);

#endif
