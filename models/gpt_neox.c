/* models/gpt_neox.c: GPT-NeoX and Pythia (Black et al. 2022, arXiv:2204.06745; Biderman et al.
 * 2023, arXiv:2304.01373), as transformers' GPTNeoXForCausalLM builds it.
 *
 *     block:  y = x + dense(attention(norm_1(x))) + mlp(norm_2(x))           both read x; or one
 *             after the other
 *
 * Queries, keys and values lie head by head in one matrix; a part of each head is rotated. */
#include "models/build.h"
#include "models/family.h"

#include "base/checked.h"

#include <math.h>

typedef struct gpt_neox_config {
    int64_t hidden, inner, n_layers, n_heads, vocab, n_positions;
    double  std, eps, p, attn_p;
    bool    tied, parallel, attention_bias;
    vp_act  act;
    vp_rope rope;
} gpt_neox_config;

static vp_status read_config(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                             gpt_neox_config *c, vp_err *err)
{
    double    rotary_pct = 0.25, theta = 10000.0;
    vp_status st = VP_OK;

    VP_TRY(vp_config_int(config, "hidden_size", 10000000, &c->hidden, err));
    VP_TRY(vp_config_int(config, "intermediate_size", 100000000, &c->inner, err));
    VP_TRY(vp_config_int(config, "num_hidden_layers", VP_MAX_LAYERS, &c->n_layers, err));
    VP_TRY(vp_config_int(config, "num_attention_heads", 10000000, &c->n_heads, err));
    VP_TRY(vp_config_int(config, "vocab_size", 100000000, &c->vocab, err));
    VP_TRY(vp_config_int_or(model, config, "max_position_embeddings", 1000000000, 2048,
                            &c->n_positions, err));
    VP_TRY(vp_config_real_or(model, config, "initializer_range", 100.0, 0.02, &c->std, err));
    VP_TRY(vp_config_real_or(model, config, "layer_norm_eps", 1.0, 1e-5, &c->eps, err));
    VP_TRY(vp_config_dropout(model, config, opts, "hidden_dropout", 0.0, &c->p, err));
    VP_TRY(vp_config_dropout(model, config, opts, "attention_dropout", 0.0, &c->attn_p, err));
    VP_TRY(vp_config_decoder_head(model, config, opts, false, &c->tied, err));
    VP_TRY(vp_config_bool_or(model, config, "use_parallel_residual", true, &c->parallel, err));
    VP_TRY(vp_config_bool_or(model, config, "attention_bias", true, &c->attention_bias, err));
    VP_TRY(vp_config_act(model, config, "hidden_act", VP_ACT_GELU, &c->act, err));
    VP_TRY(vp_config_check_heads(config, "num_attention_heads", c->n_heads, c->hidden, err));
    VP_TRY(vp_config_check_sizes(config, c->n_layers, c->hidden,
                                 vp_max_i64(c->inner, 3 * c->hidden), c->vocab, err));
    if (vp_json_has(config, "rotary_pct"))
        VP_TRY(vp_json_real(config, "rotary_pct", 1e-6, 1, &rotary_pct, err));
    if (vp_json_has(config, "rotary_emb_base"))
        VP_TRY(vp_json_real(config, "rotary_emb_base", 1e-6, 1e15, &theta, err));
    VP_TRY(vp_config_rope(model, config,
                          &(vp_rope_rules){.head_dim      = c->hidden / c->n_heads,
                                           .max_positions = c->n_positions,
                                           .theta         = theta,
                                           .partial       = rotary_pct,
                                           .own_names     = true},
                          &c->rope, err));
out:
    return st;
}

static int linear(vp_builder *b, const char *name, const char *prefix, int x, int64_t out,
                  bool bias)
{
    return vp_build_linear(b, &(vp_linear){.name   = name,
                                           .x      = x,
                                           .out    = out,
                                           .prefix = prefix,
                                           .bias   = bias,
                                           .layout = VP_WEIGHT_OUT_IN});
}

static int attention(vp_builder *b, const gpt_neox_config *c, int rope, int x)
{
    int64_t  d     = c->hidden / c->n_heads;
    vp_heads heads = {.n = c->n_heads, .n_kv = c->n_heads, .dim = d, .layout = VP_QKV_PER_HEAD};
    int      y;

    b->part = VP_PART_ATTENTION;
    y = vp_build_layernorm(b, "input_layernorm", x, "gpt_neox.layers.{}.input_layernorm", c->eps);
    y = linear(b, "query_key_value", "gpt_neox.layers.{}.attention.query_key_value", y,
               3 * c->hidden, c->attention_bias);
    y = vp_build_rope(b, "rope", y, &heads, rope);
    y = vp_build_attention(b, &heads,
                           &(vp_attention){.name    = "attention",
                                           .q       = y,
                                           .k       = -1,
                                           .v       = -1,
                                           .lengths = -1,
                                           .scale   = 1.0 / sqrt((double)d),
                                           .p       = c->attn_p});
    b->part = VP_PART_NONE;
    y = linear(b, "dense", "gpt_neox.layers.{}.attention.dense", y, c->hidden, c->attention_bias);
    return vp_build_dropout(b, "post_attention_dropout", y, c->p);
}

static int mlp(vp_builder *b, const gpt_neox_config *c, int x)
{
    int y;

    b->part = VP_PART_MLP;
    y       = vp_build_layernorm(b, "post_attention_layernorm", x,
                                 "gpt_neox.layers.{}.post_attention_layernorm", c->eps);
    y       = linear(b, "dense_h_to_4h", "gpt_neox.layers.{}.mlp.dense_h_to_4h", y, c->inner, true);
    y       = vp_build_activation(b, "act", y, c->act);
    b->part = VP_PART_NONE;
    y = linear(b, "dense_4h_to_h", "gpt_neox.layers.{}.mlp.dense_4h_to_h", y, c->hidden, true);
    return vp_build_dropout(b, "post_mlp_dropout", y, c->p);
}

static vp_status build(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                       vp_err *err)
{
    gpt_neox_config c = {0};
    vp_builder      b;
    int             x, y, h, rope;
    vp_status       st = VP_OK;

    VP_TRY(read_config(model, config, opts, &c, err));
    vp_build_begin(&b, model, c.std);
    rope = vp_build_add_rope(&b, &c.rope);

    vp_build_template(&b, "embedding");
    x = vp_build_embedding(&b, &(vp_embedding){.name        = "embed_in",
                                               .table       = "gpt_neox.embed_in.weight",
                                               .rows        = c.vocab,
                                               .cols        = c.hidden,
                                               .padding_row = -1});
    vp_build_output(&b, vp_build_dropout(&b, "emb_dropout", x, c.p));

    vp_build_block_template(&b, "layers");
    x = vp_build_input(&b, c.hidden);
    h = vp_build_add(&b, "attention.residual", x, attention(&b, &c, rope, x));
    y = mlp(&b, &c, c.parallel ? x : h);
    vp_build_output(&b, vp_build_add(&b, "mlp.residual", h, y));

    vp_build_template(&b, "head");
    x = vp_build_layernorm(&b, "final_layer_norm", vp_build_input(&b, c.hidden),
                           "gpt_neox.final_layer_norm", c.eps);
    vp_build_decoder_head(
        &b, &(vp_lm_head){.x = x, .vocab = c.vocab, .tied = c.tied, .prefix = "lm_head"},
        "classifier");
    model->graph.max_seq = c.n_positions;
    VP_TRY(vp_build_finish(&b, c.n_layers, NULL, err));
out:
    return st;
}

static const char *const keys[]    = {"hidden_size",
                                      "intermediate_size",
                                      "num_hidden_layers",
                                      "num_attention_heads",
                                      "vocab_size",
                                      "max_position_embeddings",
                                      "initializer_range",
                                      "layer_norm_eps",
                                      "hidden_dropout",
                                      "attention_dropout",
                                      "tie_word_embeddings",
                                      "use_parallel_residual",
                                      "attention_bias",
                                      "hidden_act",
                                      "rotary_pct",
                                      "rotary_emb_base",
                                      "rope_scaling",
                                      "rope_parameters",
                                      "original_max_position_embeddings",
                                      NULL};
static const vp_class    classes[] = {VP_CAUSAL_CLASSES("GPTNeoX"), {0}};

const vp_family vp_family_gpt_neox = {"gpt_neox", classes, keys, build};
