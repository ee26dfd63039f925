/* trainers/hf/hf_matrices.h: rows and columns of what is trained, and which of it an optimizer treats as matrices.
 *     VP_TRY(vp_hf_matrices(model, "muon", list, n, err));
 *     list[i].is_matrix ...
 *
 * A recording has sizes and no names; these are of vplan's own graph, whose parameters are called as transformers calls them. */
#ifndef VP_TRAINERS_HF_HF_MATRICES_H
#define VP_TRAINERS_HF_HF_MATRICES_H

#include "models/model.h"
#include "trainers/torch/optimizer_step.h"

/* list[n]: a whole model's, in the order of loading; .columns and .is_matrix are set. VP_ERR_INPUT: the model has no graph, or none
 * of these sizes; no linear layer is a target. */
vp_status vp_hf_matrices(const vp_model *model, const char *optimizer, vp_trained *list, int64_t n,
                         vp_err *err);
/* list[n]: LoRA's adapters of this rank, of each layer A (rank x columns), then B (rows x rank): as peft makes them (peft/tuners/lora/
 * layer.py: update_layer()). Both are linear layers to transformers, and so targets where all of those are. */
void vp_hf_adapter_matrices(int64_t rank, vp_trained *list, int64_t n);

#endif
