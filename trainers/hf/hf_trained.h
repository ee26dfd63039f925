/* trainers/hf/hf_trained.h: what the optimizer of a request works on.
 *     VP_TRY(vp_hf_trained_list(model, request, step, world, hidden, &trained, err));
 *     VP_TRY(vp_optimizer_step_new("adamw_torch", trained.list, trained.n, ...));
 *     free(trained.list); */
#ifndef VP_TRAINERS_HF_HF_TRAINED_H
#define VP_TRAINERS_HF_HF_TRAINED_H

#include "trainers/hf/hf_estimate.h"
#include "trainers/torch/optimizer_step.h"
#include "trainers/torch/recording.h"
#include "trainers/torch/world.h"

typedef struct vp_hf_trained {
    vp_trained *list; /* in the optimizer's order; the caller's */
    int64_t     n;
    int64_t     n_first; /* the first group: Trainer's with weight decay, Muon's matrices */
} vp_hf_trained;

/* step: loaded. world: or NULL, then it is one rank. hidden: the model's width, which most of its matrices have;
 * adapters have their rank. */
vp_status vp_hf_trained_list(const vp_model *model, const vp_hf_request *request,
                             const vp_recorded *step, const vp_world *world, int64_t hidden,
                             vp_hf_trained *out, vp_err *err);

/* What is assumed of the optimizer, said beside the answer. */
void vp_hf_trained_assume(const vp_hf_request *request, vp_hf_estimate *out);
/* Likewise of what a text leaves without a gradient; adapters: their elements there. */
void vp_hf_trained_assume_idle(const vp_model *model, const vp_hf_request *q, int64_t adapters,
                               vp_hf_estimate *out);

/* Bytes of an element of the model's weights; elements of all that is trained, as it was loaded. */
int64_t vp_hf_weight_bytes(const char *precision);
/* Of an element of adapters. */
int64_t vp_hf_adapter_bytes(const vp_hf_request *q);
int64_t vp_hf_trained_elements(const vp_hf_request *request, const vp_recorded *step);

#endif
