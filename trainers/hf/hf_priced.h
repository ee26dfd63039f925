/* trainers/hf/hf_priced.h: models of families that vplan has no graph of, whose steps are priced all the same.
 *     VP_TRY(vp_model_open("granite-3.3-8b", &(vp_model_opts){.config_only = true}, &model, err));
 *     VP_TRY(vp_hf_add_priced_graph(model, shelf, err));
 *     ... vp_eager_seconds() of it
 *
 * Bytes come from recordings, which know no kernels; seconds need what runs. A family's blocks are described in a row of a table
 * (norms, MLP, experts, windows, a second stack, images); sizes are those that the recording reads from the config. Such a graph has every product, norm,
 * rotation, attention and activation of a block, and of parameters the large ones only: it is priced, never executed. */
#ifndef VP_TRAINERS_HF_HF_PRICED_H
#define VP_TRAINERS_HF_HF_PRICED_H

#include "models/model.h"
#include "trainers/hf/hf_shelf.h"

/* Of a model that was opened with config_only: what its recorded step loads. 0: no step of its family was recorded. */
int64_t vp_hf_parameters(const vp_model *model, vp_hf_shelf *shelf);

/* Gives such a model a graph, its head and labels, and its number of parameters; is_priced_only is set. shelf may be NULL.
 * VP_ERR_INPUT: no step of its family was recorded, or none that is priced (two stacks of different depths). */
vp_status vp_hf_add_priced_graph(vp_model *model, vp_hf_shelf *shelf, vp_err *err);

#endif
