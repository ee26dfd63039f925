/* models/config.h: what families share in reading a config.json.
 *     VP_TRY(vp_config_int_or(model, config, "n_head", 1024, 12, &n_heads, err));
 *
 * A family reads its own fields; a missing one takes a default only where the family's own code
 * defines one, and model->assumptions lists it. What a family does not support is refused by
 * name: VP_ERR_INPUT, located. */
#ifndef VP_MODELS_CONFIG_H
#define VP_MODELS_CONFIG_H

#include "models/model.h"

/* Note a sentence under assumptions. */
void vp_model_assume(vp_model *model, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A required whole number. */
vp_status vp_config_int(const vp_json_node *config, const char *key, int64_t max, int64_t *out,
                        vp_err *err);

/* With the family's default where the key is absent or null; listed. */
vp_status vp_config_int_or(vp_model *model, const vp_json_node *config, const char *key,
                           int64_t max, int64_t fallback, int64_t *out, vp_err *err);
vp_status vp_config_real_or(vp_model *model, const vp_json_node *config, const char *key,
                            double max, double fallback, double *out, vp_err *err);
vp_status vp_config_bool_or(vp_model *model, const vp_json_node *config, const char *key,
                            bool fallback, bool *out, vp_err *err);

/* A class of transformers, and its head. */
typedef struct vp_class {
    const char *name;
    vp_head     head;
} vp_class;

/* The class that opts or architectures name, into model->class_name and head; absent: the first,
 * assumed. */
vp_status vp_config_class(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                          const vp_class *classes, vp_err *err);
const vp_class *vp_class_find(const vp_class *classes, const char *name); /* NULL: not there */

/* Of a classifier: num_labels or else id2label, into model->n_labels; a problem_type whose loss
 * is no cross-entropy is refused. */
vp_status vp_config_labels(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                           vp_err *err);

/* What a decoder's head needs: tie_word_embeddings of a language model, labels and dropout of a
 * classifier. */
vp_status vp_config_decoder_head(vp_model *model, const vp_json_node *config,
                                 const vp_model_opts *opts, bool fallback, bool *tied, vp_err *err);

/* A switch that is off where it is absent or null. */
vp_status vp_config_bool(const vp_json_node *config, const char *key, bool *out, vp_err *err);

/* What is to be said of a decoder with cross-attention: transformers skips it, too, where it is
 * given no encoder's states. */
#define VP_NO_ENCODER \
    "there is no encoder: cross-attention is skipped, its parameters are held and learn nothing"

/* A switch that must be off. */
vp_status vp_config_refuse(const vp_json_node *config, const char *key, const char *why,
                           vp_err *err);

/* An activation by transformers' name; the families' default where the key is absent. */
vp_status vp_config_act(vp_model *model, const vp_json_node *config, const char *key,
                        vp_act fallback, vp_act *out, vp_err *err);

/* What a class makes of its rotary fields. */
typedef struct vp_rope_rules {
    int64_t head_dim, max_positions;
    /* by default */
    double theta;
    /* part of a head that is rotated, by default; 0: the class rotates all of it */
    double partial;
    /* theta and partial are from fields of the class, not rope_theta and */
    bool own_names;
    /* partial_rotary_factor; rope_parameters may still hold those                   */
    /* the one scaling there is */
    bool longrope_only;
    /* what it takes over the scaling's where the config has none itself; 0: nothing */
    int64_t original_positions;
} vp_rope_rules;

/* rope_parameters of transformers 5, or rope_scaling and rope_theta of before. */
vp_status vp_config_rope(vp_model *model, const vp_json_node *config, const vp_rope_rules *rules,
                         vp_rope *rope, vp_err *err);

/* The row of the token table that nn.Embedding(padding_idx=pad_token_id) holds back, -1: none;
 * fallback: the class's own pad_token_id, VP_NO_TOKEN: none. */
enum { VP_NO_TOKEN = -1000000000 };
vp_status vp_config_padding(vp_model *model, const vp_json_node *config, int64_t fallback,
                            int64_t vocab, int64_t *row, vp_err *err);

/* Heads divide the width, and are not too wide for a kernel. */
vp_status vp_config_check_heads(const vp_json_node *config, const char *key, int64_t n_heads,
                                int64_t hidden, vp_err *err);

/* Sizes whose products must stay countable, far below 2^63. */
vp_status vp_config_check_sizes(const vp_json_node *config, int64_t n_layers, int64_t hidden,
                                int64_t width, int64_t vocab, vp_err *err);

/* A dropout probability: the config's where the trainer takes it from there, else the recipe's
 * one number. */
vp_status vp_config_dropout(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                            const char *key, double fallback, double *out, vp_err *err);

#endif
