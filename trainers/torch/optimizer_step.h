/* trainers/torch/optimizer_step.h: what an optimizer of PyTorch allocates in its step, from the list of
 * parameters alone.
 *     VP_TRY(vp_optimizer_step_new("adamw_torch", bytes, n, &ledger, &optimizer, err));
 *     VP_TRY(vp_optimizer_step_play(optimizer, err));      within an open phase, each step
 *
 * States are made in the first step, one parameter after the other. */
#ifndef VP_TRAINERS_TORCH_OPTIMIZER_STEP_H
#define VP_TRAINERS_TORCH_OPTIMIZER_STEP_H

#include "trainers/torch/ledger.h"

typedef struct vp_optimizer_step vp_optimizer_step;

/* Name i of those that are known, by transformers' words; NULL past the end. */
const char *vp_optimizer_step_name(int i);

/* bytes[n]: of each trained parameter; copied. VP_ERR_INPUT: no such optimizer. */
vp_status vp_optimizer_step_new(const char *name, const int64_t *bytes, int64_t n,
                                vp_ledger *ledger, vp_optimizer_step **out, vp_err *err);
void      vp_optimizer_step_free(vp_optimizer_step *optimizer);
vp_status vp_optimizer_step_play(vp_optimizer_step *optimizer, vp_err *err);

#endif
