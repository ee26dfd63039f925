/* trainers/hf/hf_resident.h: what stays on the card beside what is trained: copies of it, or a second model that is asked in
 * each step.
 *     VP_TRY(vp_hf_resident_load(request, step, seq, &ledger, &resident, err));
 *     VP_TRY(vp_hf_resident_forward(resident, err));     behind the model's own forward pass
 *     VP_TRY(vp_hf_resident_backward(resident, err));    before its backward pass
 *     vp_hf_resident_backward_ends(resident);
 *
 * By kind: ema, mer: a copy, changed in place. ewc: Fisher information and the old weights, and in each step a loss
 * (fisher * (weight - old) ** 2).sum() for each weight, in autograd. reference, teacher: a second model, without gradients,
 * its logits gone when a loss has them, or kept through backward. reward: one with a head of a single value a sequence (a class
 * ForSequenceClassification of one label), which is kept. */
#ifndef VP_TRAINERS_HF_HF_RESIDENT_H
#define VP_TRAINERS_HF_HF_RESIDENT_H

#include "trainers/hf/hf_estimate.h"
#include "trainers/torch/recording.h"

typedef struct vp_hf_resident vp_hf_resident;

/* Whether the word is a kind: "ema", "teacher", ...; is_model: whether it is a second model. */
bool vp_hf_resident_is(const char *kind, bool *is_model);

/* Allocated within the ledger's open phase. model: the one that is trained; request->second, or it again, is the second.
 * *out is NULL where request->resident is none. VP_ERR_INPUT: no such kind; a second model whose pass was not recorded; EWC
 * with gradients that are accumulated. Free *out in either case. */
vp_status vp_hf_resident_load(const vp_model *model, const vp_hf_request *request,
                              const vp_recorded *step, int64_t seq, vp_ledger *ledger,
                              vp_hf_resident **out, vp_err *err);
void      vp_hf_resident_free(vp_hf_resident *r);

vp_status vp_hf_resident_forward(vp_hf_resident *r, vp_err *err);
vp_status vp_hf_resident_backward(vp_hf_resident *r, vp_err *err);
vp_status vp_hf_resident_backward_ends(vp_hf_resident *r, vp_err *err);

/* Whether gradients are there before the model's own backward pass, which adds to them. */
bool vp_hf_resident_has_gradients(const vp_hf_resident *r);

/* With zero_grad(set_to_none=True). */
void vp_hf_resident_drop_gradients(vp_hf_resident *r);

#endif
