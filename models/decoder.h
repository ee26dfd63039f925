/* models/decoder.h: what the llama line shares: RMSNorm, rotary positions, grouped-query attention,
 * a gated MLP.
 *
 *     x = embed[token]
 *     block:  h = x + o(attention(rope(q(n)), rope(k(n)), v(n)))    n = norm(x)
 *             y = h + down(act(gate(m)) up(m))                      m = norm(h)
 *     head:   loss = cross_entropy(norm(x) lm_head')
 *
 * A family says its defaults, then builds its block from these pieces. Names are transformers':
 * model.layers.{}.self_attn... */
#ifndef VP_MODELS_DECODER_H
#define VP_MODELS_DECODER_H

#include "models/build.h"

/* What a family's config class has where the file says nothing. Sizes are not among it: the
 * class's own are never what a checkpoint means, so a file must say them. 0 for n_kv: as many as heads; 0
 * for head_dim: hidden / heads. */
typedef struct vp_decoder_defaults {
    int64_t     max_positions; /* the longest sequence, no size: angles are computed */
    int64_t     n_kv, head_dim;
    double      eps;
    bool        tied, null_kv_refused;
    bool        has_padding; /* the class has a pad_token_id by default, */
    int64_t     padding;     /* this one                                 */
    const char *act_key;
    vp_act      act;
} vp_decoder_defaults;

typedef struct vp_decoder {
    int64_t  hidden, inner, n_layers, vocab, max_positions;
    vp_heads heads; /* layout VP_QKV_APART                                            */
    vp_act   act;
    double   eps, std, attn_p;
    bool     tied;
    bool     qkv_bias, o_bias, mlp_bias;
    int64_t  window;      /* of attention: 0, a number, or VP_WINDOW_OF_INSTANCE            */
    int64_t *windows;     /* of every layer, where they differ                              */
    int64_t  padding_row; /* of the embedding; -1: none                                     */
    vp_rope  rope;
    int      rope_idx;
} vp_decoder;

/* Read and check the fields all of the line have. Biases, windows and rope are the family's to
 * read. */
vp_status vp_decoder_read(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                          const vp_decoder_defaults *defaults, vp_decoder *d, vp_err *err);

/* sliding_window for every layer; absent: fallback (0: none). */
vp_status vp_decoder_read_window(vp_model *model, const vp_json_node *config, int64_t fallback,
                                 vp_decoder *d, vp_err *err);

/* layer_types, or else the rule: layer i has the window if (i >= first and i % period == 0). */
vp_status vp_decoder_read_layer_types(vp_model *model, const vp_json_node *config, int64_t window,
                                      int64_t first, int64_t period, vp_decoder *d, vp_err *err);

/* Qwen's: a window in layers from max_window_layers on, where use_sliding_window is on. */
vp_status vp_decoder_read_qwen_windows(vp_model *model, const vp_json_node *config, vp_decoder *d,
                                       vp_err *err);

/* Start the graph: spans, angles, embedding template. */
void vp_decoder_begin(vp_builder *b, vp_model *model, vp_decoder *d, double embedding_scale);

/* Attention of q, k and v of x, rotated, q and k normed before that where qk_norm is not NULL;
 * softcap 0: none; scale 0: 1 / sqrt(head_dim). Not yet projected back: that is o_proj, part of
 * the residual stream. */
int vp_decoder_attention(vp_builder *b, const vp_decoder *d, int x, const vp_rmsnorm *qk_norm,
                         double scale, double softcap);
int vp_decoder_o_proj(vp_builder *b, const vp_decoder *d, int x);

/* act(gate) up of x, not yet projected down. */
int vp_decoder_mlp(vp_builder *b, const vp_decoder *d, int x);
int vp_decoder_down_proj(vp_builder *b, const vp_decoder *d, int x);

/* The block most of the line has: norms before attention and MLP, residuals around them. */
void vp_decoder_block(vp_builder *b, const vp_decoder *d, const vp_rmsnorm *norm,
                      const vp_rmsnorm *qk_norm);

/* Final norm, head, chain. */
vp_status vp_decoder_finish(vp_builder *b, const vp_decoder *d, const vp_rmsnorm *norm,
                            double softcap, vp_err *err);

/* Keys every family of the line reads. */
#define VP_DECODER_KEYS \
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", \
        "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings", \
        "rms_norm_eps", "initializer_range", "tie_word_embeddings", "rope_theta", "rope_scaling", \
        "rope_parameters", "partial_rotary_factor", "original_max_position_embeddings", \
        "attention_dropout", "pad_token_id"

#endif
