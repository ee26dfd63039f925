/* trainers/hf/hf_sizes.h: the sizes of a config, by the names that transformers' classes give them. */
#ifndef VP_TRAINERS_HF_HF_SIZES_H
#define VP_TRAINERS_HF_HF_SIZES_H

#include "models/model.h"
#include "trainers/torch/recording.h"

typedef struct vp_hf_sizes {
    vp_symbols  symbols; /* of the model only: not B, S, r */
    int64_t     n_layers;
    bool        tied, grouped; /* grouped: fewer key and value heads than heads */
    const char *task;          /* "clm", "mlm" */
} vp_hf_sizes;

/* VP_ERR_INPUT: a family, or a class, without recordings. */
vp_status vp_hf_sizes_read(const vp_model *model, vp_hf_sizes *out, vp_err *err);

/* VP_ERR_INPUT unless every field that chooses what runs is as in the recorded config. */
vp_status vp_hf_check_config(const vp_model *model, const vp_recording *recording, int64_t seq,
                             vp_err *err);

#endif
