/* trainers/hf/hf_sizes.h: the sizes of a config, by the names that transformers' classes give them;
 * what else of it chooses the program of a recording. */
#ifndef VP_TRAINERS_HF_HF_SIZES_H
#define VP_TRAINERS_HF_HF_SIZES_H

#include "models/model.h"
#include "trainers/torch/recording.h"

/* Of one's key and value heads: as many as heads, fewer, one. */
typedef enum vp_hf_heads { VP_HF_HEADS_ALL, VP_HF_HEADS_GROUPED, VP_HF_HEADS_ONE } vp_hf_heads;

typedef struct vp_hf_sizes {
    vp_symbols  symbols; /* of the model only: not B, S, r */
    int64_t     n_layers[VP_RECORDED_GROUPS];
    int64_t     window; /* 0: none */
    bool        tied;
    vp_hf_heads heads;
    bool        without_dropout; /* where the recording has some, and a variant without */
    char        dropouts[120]; /* keys of the config, joined by '+': some here, none in the class */
    bool        has_longrope;
    bool    learns_positions; /* no sequence runs that is longer than P, less those of no token */
    int64_t unused_positions;
    char    defaults[400]; /* sizes that the class gave: "h 768, f 3072" */
} vp_hf_sizes;

/* Whose recordings a config's are: its family's; but Llama with biases, in all linear layers or in those of attention, OPT
 * with norms behind the sums (350M) and others have some of their own, and so have T5 with gated layers and
 * mT5, which is the same. */
const char *vp_hf_recorded_family(const vp_model *model);

/* Whether it has a tower of images that a training on texts holds: not where AutoModelForCausalLM's class is that of the texts alone. */
bool vp_hf_has_tower(const vp_model *model);

/* VP_ERR_INPUT: a size that is missing or no size. */
vp_status vp_hf_sizes_read(const vp_model *model, const vp_recording *recording, vp_hf_sizes *out,
                           vp_err *err);

/* VP_ERR_INPUT unless every field that chooses what runs is as in the recorded config. */
vp_status vp_hf_check_config(const vp_model *model, const vp_recording *recording,
                             vp_hf_sizes *sizes, vp_err *err);

#endif
