/* models/model.h: from what a person names to a graph.
 *     VP_TRY(vp_model_open("config.json", &(vp_model_opts){0}, &model, err));
 *     vp_model_free(model);
 *
 * MODEL is a built-in name (vp_zoo), a config.json of any name, a folder that holds one, or a Hub id that the local Hugging
 * Face cache holds (models/hub_cache.h), in this order. A family reads its own fields; a missing one takes a default only where
 * the family's own code defines one, and model->assumptions lists it. What a family does not support is refused by name. */
#ifndef VP_MODELS_MODEL_H
#define VP_MODELS_MODEL_H

#include "core/err.h"
#include "core/json.h"
#include "models/graph.h"

#include <stdbool.h>

/* Dropout of a graph: a recipe's one number, or for trainers that take it from the config, the config's. */
typedef struct vp_model_opts {
    double      dropout;
    bool        dropout_from_config;
    const char *class_name;     /* in place of the config's architectures; NULL: those */
} vp_model_opts;

/* What a class does with the last hidden states: models/head.c. */
typedef enum vp_head {
    VP_HEAD_NEXT_TOKEN,         /* a language model's, causal             */
    VP_HEAD_MASKED,             /* and masked                             */
    VP_HEAD_SEQUENCE,           /* classes of samples                     */
    VP_HEAD_TOKEN,              /* classes of tokens                      */
    VP_HEAD_NONE                /* the model alone                        */
} vp_head;

typedef struct vp_model {
    vp_arena    *arena;
    const char  *name;          /* file name without ".json", folder name, or built-in name */
    const char  *family;        /* "gpt2" */
    const char  *class_name;    /* "GPT2LMHeadModel" */
    vp_head      head;
    int64_t      n_labels;      /* of a classifier */
    double       head_p;        /* its dropout */
    json_t      *config;        /* the config.json object as read; names the class that was asked for */
    vp_graph     graph;
    int64_t      n_params;
    const char **assumptions;   /* sentences: every default taken, every field ignored */
    int64_t      n_assumptions, cap_assumptions;
} vp_model;

/* VP_ERR_INPUT for what the file says or lacks, located; also for a MODEL that is nothing of the kind. VP_ERR_USAGE for a
 * class_name that the family does not have. */
vp_status vp_model_open(const char *name, const vp_model_opts *opts, vp_model **out, vp_err *err);
vp_status vp_model_from_config(const char *name, const vp_json_node *config, const vp_model_opts *opts,
                               vp_model **out, vp_err *err);
void      vp_model_free(vp_model *model);

/* ---- families: one short file each ---- */

/* A class of transformers, and its head. */
typedef struct vp_class {
    const char *name;
    vp_head     head;
} vp_class;

#define VP_SEQUENCE_CLASS(prefix) {prefix "ForSequenceClassification", VP_HEAD_SEQUENCE}
#define VP_TOKEN_CLASS(prefix) {prefix "ForTokenClassification", VP_HEAD_TOKEN}
#define VP_CAUSAL_CLASSES(prefix) {prefix "ForCausalLM", VP_HEAD_NEXT_TOKEN}, VP_SEQUENCE_CLASS(prefix), VP_TOKEN_CLASS(prefix)

typedef struct vp_family {
    const char *model_type;  /* of the config.json */
    const vp_class *classes; /* ends with a name NULL; the first is meant where a config names none */
    const char *const *keys; /* the config's fields that build() reads; others are listed as unused */
    vp_status (*build)(vp_model *model, const vp_json_node *config, const vp_model_opts *opts, vp_err *err);
} vp_family;

extern const vp_family vp_family_gpt2, vp_family_llama, vp_family_mistral, vp_family_qwen2, vp_family_qwen3, vp_family_gemma, vp_family_gemma2,
    vp_family_phi3, vp_family_olmo2, vp_family_opt, vp_family_gpt_neox, vp_family_bert, vp_family_roberta;

/* What families share in reading a config. */

/* Note a sentence under assumptions. */
void vp_model_assume(vp_model *model, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A required whole number. */
vp_status vp_config_int(const vp_json_node *config, const char *key, int64_t max, int64_t *out, vp_err *err);

/* With the family's default where the key is absent or null; listed. */
vp_status vp_config_int_or(vp_model *model, const vp_json_node *config, const char *key, int64_t max,
                           int64_t fallback, int64_t *out, vp_err *err);
vp_status vp_config_real_or(vp_model *model, const vp_json_node *config, const char *key, double max,
                            double fallback, double *out, vp_err *err);
vp_status vp_config_bool_or(vp_model *model, const vp_json_node *config, const char *key, bool fallback,
                            bool *out, vp_err *err);

/* The class that opts or architectures name, into model->class_name and head; absent: the first, assumed. */
vp_status       vp_config_class(vp_model *model, const vp_json_node *config, const vp_model_opts *opts, const vp_class *classes, vp_err *err);
const vp_class *vp_class_find(const vp_class *classes, const char *name); /* NULL: not there */

/* Of a classifier: num_labels or else id2label, into model->n_labels; a problem_type whose loss is no cross-entropy is refused. */
vp_status vp_config_labels(vp_model *model, const vp_json_node *config, vp_err *err);

/* What a decoder's head needs: tie_word_embeddings of a language model, labels and dropout of a classifier. */
vp_status vp_config_decoder_head(vp_model *model, const vp_json_node *config, const vp_model_opts *opts, bool fallback, bool *tied, vp_err *err);

/* A switch that is off where it is absent or null. */
vp_status vp_config_bool(const vp_json_node *config, const char *key, bool *out, vp_err *err);

/* What is to be said of a decoder with cross-attention: transformers skips it, too, where it is given no encoder's states. */
#define VP_NO_ENCODER "there is no encoder: cross-attention is skipped, its parameters are held and learn nothing"

/* A switch that must be off. */
vp_status vp_config_refuse(const vp_json_node *config, const char *key, const char *why, vp_err *err);

/* An activation by transformers' name; the families' default where the key is absent. */
vp_status vp_config_act(vp_model *model, const vp_json_node *config, const char *key, vp_act fallback, vp_act *out, vp_err *err);

/* What a class makes of its rotary fields. */
typedef struct vp_rope_rules {
    int64_t head_dim, max_positions;
    double  theta;               /* by default                                                                    */
    double  partial;             /* part of a head that is rotated, by default; 0: the class rotates all of it    */
    bool    own_names;           /* theta and partial are from fields of the class, not rope_theta and            */
                                 /* partial_rotary_factor; rope_parameters may still hold those                   */
    bool    longrope_only;       /* the one scaling there is                                                      */
    int64_t original_positions;  /* what it takes over the scaling's where the config has none itself; 0: nothing */
} vp_rope_rules;

/* rope_parameters of transformers 5, or rope_scaling and rope_theta of before. */
vp_status vp_config_rope(vp_model *model, const vp_json_node *config, const vp_rope_rules *rules, vp_rope *rope, vp_err *err);

/* The row of the token table that nn.Embedding(padding_idx=pad_token_id) holds back, -1: none; fallback: the class's own
 * pad_token_id, VP_NO_TOKEN: none. */
enum { VP_NO_TOKEN = -1000000000 };
vp_status vp_config_padding(vp_model *model, const vp_json_node *config, int64_t fallback, int64_t vocab, int64_t *row, vp_err *err);

/* Heads divide the width, and are not too wide for a kernel. */
vp_status vp_config_check_heads(const vp_json_node *config, const char *key, int64_t n_heads, int64_t hidden, vp_err *err);

/* Sizes whose products must stay countable, far below 2^63. */
vp_status vp_config_check_sizes(const vp_json_node *config, int64_t n_layers, int64_t hidden, int64_t width, int64_t vocab, vp_err *err);

/* A dropout probability: the config's where the trainer takes it from there, else the recipe's one number. */
vp_status vp_config_dropout(vp_model *model, const vp_json_node *config, const vp_model_opts *opts, const char *key, double fallback, double *out,
                            vp_err *err);

/* ---- built in ---- */

typedef struct vp_zoo_entry {
    const char *name;
    const char *config;     /* JSON text */
    const char *hub_id;     /* the repository whose config.json says the same; NULL: none */
    const char *source;     /* where the numbers are from */
} vp_zoo_entry;

/* By number, by name, by Hub id without a revision. NULL: no such. */
const vp_zoo_entry *vp_zoo_at(int idx);
const vp_zoo_entry *vp_zoo_find(const char *name);
const vp_zoo_entry *vp_zoo_find_hub_id(const char *id);

#endif
