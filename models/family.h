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

/* X(name): vp_family_<name> is defined in a file of models/. */
/* clang-format off */
#define VP_FAMILY_TABLE(X) \
    X(gpt2) \
    X(llama) \
    X(mistral) \
    X(qwen2) \
    X(qwen3) \
    X(gemma) \
    X(gemma2) \
    X(phi3) \
    X(olmo2) \
    X(opt) \
    X(gpt_neox) \
    X(bert) \
    X(roberta)
/* clang-format on */
#define X(name) extern const vp_family vp_family_##name;
VP_FAMILY_TABLE(X)
#undef X

#endif
