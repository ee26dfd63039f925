/* models/build.h: the words families are written in. Each call appends one op to the template under
 * construction and returns the tensor it makes.
 *
 *     vp_build_template(b, "layers");
 *     x = vp_build_input(b, hidden);
 *     y = vp_build_rmsnorm(b, "input_layernorm", x, "model.layers.{}.input_layernorm", &norm);
 *     y = vp_build_linear(b, &(vp_linear){.name = "q_proj", .x = y, .out = heads * d, .prefix =
 *     "model.layers.{}.self_attn.q_proj"});
 *     ...
 *     vp_build_output(b, vp_build_add(b, "residual", x, y));
 *
 * Names of parameters are those of the checkpoint, "{}" standing for the layer. Out of memory
 * shows in vp_arena_failed(model->arena), which vp_build_finish() looks at. */
#ifndef VP_MODELS_BUILD_H
#define VP_MODELS_BUILD_H

#include "models/model.h"

typedef struct vp_builder {
    vp_graph_builder b;
    vp_model        *model;
    /* of drawn weights */
    double std;
    /* half of the block the next ops belong to; what leaves a half is the residual stream,
     * VP_PART_NONE: kept unless all is recomputed */
    vp_part part;
    /* the template repeats */
    bool in_block;
    int  template_idx, rng_id;
} vp_builder;

/* An empty graph with the spans every language model has. */
void vp_build_begin(vp_builder *b, vp_model *model, double std);

/* Spans a model may have besides: token types, lengths of samples. Each returns the span. */
int vp_build_types_span(vp_builder *b);
int vp_build_lengths_span(vp_builder *b);

/* ---- templates ---- */

int     vp_build_template(vp_builder *b, const char *name);       /* embedding, head          */
int     vp_build_block_template(vp_builder *b, const char *name); /* one that repeats         */
int     vp_build_input(vp_builder *b, int64_t cols);              /* x, (tokens, cols)        */
void    vp_build_output(vp_builder *b, int y);
int64_t vp_build_cols(const vp_builder *b, int x);

/* ---- ops ---- */

typedef struct vp_embedding {
    /* op; parameter, NULL: positions only */
    const char *name, *table;
    int64_t     rows, cols;
    /* parameter, or NULL */
    const char *positions;
    int64_t     n_positions, position_offset;
    /* positions count tokens other than position_offset - 1 */
    bool skip_padding;
    /* drawn as zeros, learns nothing from look-ups; -1: none */
    int64_t padding_row;
    /* 0: 1 */
    double scale;
    /* 0 for tokens */
    int span;
} vp_embedding;
int vp_build_embedding(vp_builder *b, const vp_embedding *e);

/* prefix.weight and prefix.bias; prefix NULL: no parameters. */
int vp_build_layernorm(vp_builder *b, const char *name, int x, const char *prefix, double eps);

typedef struct vp_rmsnorm {
    double  eps;
    bool    unit_offset; /* times 1 + weight                                    */
    int64_t cols;        /* of a group; 0: the whole row                        */
} vp_rmsnorm;
int vp_build_rmsnorm(vp_builder *b, const char *name, int x, const char *prefix,
                     const vp_rmsnorm *norm);

typedef struct vp_linear {
    const char      *name;
    int              x;
    int64_t          out;
    const char      *prefix; /* prefix.weight and prefix.bias               */
    bool             bias;
    vp_weight_layout layout;
    double           std;     /* 0: the builder's                            */
    bool             chunked; /* may run over chunks of rows                 */
} vp_linear;
/* weight (out, in) unless layout says otherwise. */
int vp_build_linear(vp_builder *b, const vp_linear *l);

/* Parameters that are there and learn nothing: no op uses them. std 0: the model's. */
void vp_build_unused_linear(vp_builder *b, const char *prefix, int64_t in, int64_t out,
                            vp_weight_layout layout, double std);
void vp_build_unused_norm(vp_builder *b, const char *prefix, int64_t cols);

/* Heads of queries, keys and values, as they lie in a row. */
typedef struct vp_heads {
    int64_t       n, n_kv, dim;
    vp_qkv_layout layout;
} vp_heads;

/* In tensors of their own, one call for the queries and one for the keys, with n heads each and
 * n_kv 0. */
int vp_build_rope(vp_builder *b, const char *name, int x, const vp_heads *heads, int rope);
int vp_build_add_rope(vp_builder *b, const vp_rope *rope); /* its index */

typedef struct vp_attention {
    const char *name;
    int         q, k, v; /* k, v: -1 where the layout has all in q     */
    int         lengths; /* tensor of the lengths' span, or -1         */
    bool        full;    /* not causal                                 */
    int64_t     window;  /* 0: none; VP_WINDOW_OF_INSTANCE             */
    double      scale, softcap, p;
} vp_attention;
int vp_build_attention(vp_builder *b, const vp_heads *heads, const vp_attention *a);

int vp_build_activation(vp_builder *b, const char *name, int x, vp_act act);
/* up -1: packed in gate */
int vp_build_glu(vp_builder *b, const char *name, int gate, int up, vp_act act);
int vp_build_add(vp_builder *b, const char *name, int x, int y);
/* x itself where p is 0 */
int vp_build_dropout(vp_builder *b, const char *name, int x, double p);

/* A tensor of the template that reads a span. */
int vp_build_read_span(vp_builder *b, const char *name, int span);

typedef struct vp_lm_head {
    int         x;
    int64_t     vocab;
    bool        tied;        /* to parameter 0 of instance 0               */
    const char *prefix;      /* of the weight where it is not tied         */
    const char *bias;        /* parameter, or NULL                         */
    const char *unused_bias; /* a vector that is there and does nothing, or NULL */
    double      softcap;
} vp_lm_head;
/* Projection to the vocabulary and cross-entropy with the labels. */
void vp_build_lm_head(vp_builder *b, const vp_lm_head *head);

/* Cross-entropy of logits with the labels, in chunks if the logits come so; with labels that are
 * classes, one for each column. */
void vp_build_loss(vp_builder *b, int logits, double softcap);
void vp_build_class_loss(vp_builder *b, int logits, vp_label_place at);

/* Linear layer to model->n_labels classes, and the loss. */
void vp_build_classifier(vp_builder *b, int x, const char *prefix, bool bias, vp_label_place at);

/* What the model's class puts on the last hidden states of a decoder; token_classifier: the name
 * of that linear layer. */
void vp_build_decoder_head(vp_builder *b, const vp_lm_head *lm, const char *token_classifier);

/* ---- the chain ---- */

/* Embedding, n_layers blocks and head, templates 0, 1 and 2; windows[n_layers] for
 * VP_WINDOW_OF_INSTANCE, or NULL. */
vp_status vp_build_finish(vp_builder *b, int64_t n_layers, const int64_t *windows, vp_err *err);

#endif
