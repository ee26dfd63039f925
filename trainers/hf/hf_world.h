/* trainers/hf/hf_world.h: what the first of several ranks does with a request's step, as the trainer starts them.
 *     vp_world_opts opts = vp_hf_world_opts(model, request, &found, estimate);
 *     VP_TRY(vp_world_new(&opts, step, &ledger, &world, err)); */
#ifndef VP_TRAINERS_HF_HF_WORLD_H
#define VP_TRAINERS_HF_HF_WORLD_H

#include "trainers/hf/hf_find.h"
#include "trainers/torch/world.h"

/* estimate: with its task and seq. Words of the request are borrowed. */
vp_world_opts vp_hf_world_opts(const vp_model *model, const vp_hf_request *request,
                               const vp_hf_found *found, const vp_hf_estimate *estimate);

#endif
