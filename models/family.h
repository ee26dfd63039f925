/* models/family.h: a family of models: one short file each, with its classes, the fields of a
 * config it reads, and the function that builds its graph. */
#ifndef VP_MODELS_FAMILY_H
#define VP_MODELS_FAMILY_H

#include "models/config.h"

/* clang-format off */
#define VP_SEQUENCE_CLASS(prefix) {prefix "ForSequenceClassification", VP_HEAD_SEQUENCE}
#define VP_TOKEN_CLASS(prefix) {prefix "ForTokenClassification", VP_HEAD_TOKEN}
/* clang-format on */
#define VP_CAUSAL_CLASSES(prefix) \
    {prefix "ForCausalLM", VP_HEAD_NEXT_TOKEN}, VP_SEQUENCE_CLASS(prefix), VP_TOKEN_CLASS(prefix)

typedef struct vp_family {
    const char *model_type; /* of the config.json */
    /* ends with a name NULL; the first is meant where a config names none */
    const vp_class *classes;
    /* the config's fields that build() reads; others are listed as unused */
    const char *const *keys;
    vp_status (*build)(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                       vp_err *err);
} vp_family;

extern const vp_family vp_family_gpt2, vp_family_llama, vp_family_mistral, vp_family_qwen2,
    vp_family_qwen3, vp_family_gemma, vp_family_gemma2, vp_family_phi3, vp_family_olmo2,
    vp_family_opt, vp_family_gpt_neox, vp_family_bert, vp_family_roberta;

#endif
