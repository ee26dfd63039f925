/* trainers/hf/hf_layers.h: whether a config's layers differ from each other as those of the recording do. */
#ifndef VP_TRAINERS_HF_HF_LAYERS_H
#define VP_TRAINERS_HF_HF_LAYERS_H

#include "trainers/hf/hf_sizes.h"

/* VP_ERR_INPUT, with the field's name, unless they do, and unless no field is set that a recording was made without. */
vp_status vp_hf_check_layers(const vp_model *model, const vp_hf_sizes *sizes, vp_err *err);

#endif
