/* models/opt.c: OPT (Zhang et al. 2022, arXiv:2205.01068), as transformers' OPTForCausalLM builds
 * it.
 *
 *     x = project_in(embed_tokens[token]) + embed_positions[position + 2]
 *     block:  h = x + out_proj(attention(norm(x)))      y = h + fc2(relu(fc1(norm(h))))     norms
 *             behind the sums in OPT-350m
 *     head:   loss = cross_entropy(project_out(norm(x)) embed_tokens')
 *
 * The projections are there where tokens have another width than the blocks. */
#include "models/build.h"
#include "models/family.h"

#include "base/checked.h"

#include <math.h>

enum { POSITION_OFFSET = 2 };

typedef struct opt_config {
    int64_t hidden, inner, n_layers, n_heads, vocab, n_positions, token_width, padding_row;
    double  std, p, attn_p;
    bool    tied, norm_before, final_norm, bias, affine;
    vp_act  act;
} opt_config;

static const double EPS = 1e-5; /* nn.LayerNorm's own */

static vp_status read_config(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                             opt_config *c, vp_err *err)
{
    double    layerdrop;
    bool      no_final_norm = false;
    vp_status st            = VP_OK;

    VP_TRY(vp_config_int(config, "hidden_size", 10000000, &c->hidden, err));
    VP_TRY(vp_config_int(config, "ffn_dim", 100000000, &c->inner, err));
    VP_TRY(vp_config_int(config, "num_hidden_layers", VP_MAX_LAYERS, &c->n_layers, err));
    VP_TRY(vp_config_int(config, "num_attention_heads", 10000000, &c->n_heads, err));
    VP_TRY(vp_config_int(config, "vocab_size", 100000000, &c->vocab, err));
    VP_TRY(vp_config_int(config, "max_position_embeddings", 1000000000, &c->n_positions, err));
    VP_TRY(vp_config_int_or(model, config, "word_embed_proj_dim", 10000000, c->hidden,
                            &c->token_width, err));
    VP_TRY(vp_config_real_or(model, config, "init_std", 100.0, 0.02, &c->std, err));
    VP_TRY(vp_config_dropout(model, config, opts, "dropout", 0.1, &c->p, err));
    VP_TRY(vp_config_dropout(model, config, opts, "attention_dropout", 0.0, &c->attn_p, err));
    VP_TRY(vp_config_real_or(model, config, "layerdrop", 1.0, 0.0, &layerdrop, err));
    if (layerdrop > 0)
        VP_TRY(
            vp_json_fail(config, "layerdrop", err, "layers left out at random are not supported"));
    VP_TRY(vp_config_decoder_head(model, config, opts, true, &c->tied, err));
    VP_TRY(vp_config_bool_or(model, config, "do_layer_norm_before", true, &c->norm_before, err));
    VP_TRY(vp_config_bool_or(model, config, "enable_bias", true, &c->bias, err));
    VP_TRY(
        vp_config_bool_or(model, config, "layer_norm_elementwise_affine", true, &c->affine, err));
    if (vp_json_has(config, "_remove_final_layer_norm"))
        VP_TRY(vp_json_bool(config, "_remove_final_layer_norm", &no_final_norm, err));
    c->final_norm = c->norm_before && !no_final_norm;
    VP_TRY(vp_config_act(model, config, "activation_function", VP_ACT_RELU, &c->act, err));
    VP_TRY(vp_config_padding(model, config, 1, c->vocab, &c->padding_row, err));
    VP_TRY(vp_config_check_heads(config, "num_attention_heads", c->n_heads, c->hidden, err));
    VP_TRY(vp_config_check_sizes(config, c->n_layers, c->hidden, vp_max_i64(c->inner, c->hidden),
                                 c->vocab, err));
out:
    return st;
}

static int linear(vp_builder *b, const opt_config *c, const char *name, const char *prefix, int x,
                  int64_t out)
{
    return vp_build_linear(b, &(vp_linear){.name   = name,
                                           .x      = x,
                                           .out    = out,
                                           .prefix = prefix,
                                           .bias   = c->bias,
                                           .layout = VP_WEIGHT_OUT_IN});
}

static int projection(vp_builder *b, const char *name, const char *prefix, int x, int64_t out)
{
    return vp_build_linear(
        b, &(vp_linear){
               .name = name, .x = x, .out = out, .prefix = prefix, .layout = VP_WEIGHT_OUT_IN});
}

static int norm(vp_builder *b, const opt_config *c, const char *name, const char *prefix, int x)
{
    return vp_build_layernorm(b, name, x, c->affine ? prefix : NULL, EPS);
}

static void build_embedding(vp_builder *b, const opt_config *c)
{
    bool projected = c->token_width != c->hidden;
    int  x;

    vp_build_template(b, "embedding");
    x = vp_build_embedding(
        b, &(vp_embedding){.name        = "embed_tokens",
                           .table       = "model.decoder.embed_tokens.weight",
                           .rows        = c->vocab,
                           .cols        = c->token_width,
                           .positions   = projected ? NULL : "model.decoder.embed_positions.weight",
                           .n_positions = c->n_positions + POSITION_OFFSET,
                           .position_offset = POSITION_OFFSET,
                           .padding_row     = c->padding_row});
    if (projected) {
        int positions = vp_build_embedding(
            b, &(vp_embedding){.name            = "embed_positions",
                               .cols            = c->hidden,
                               .padding_row     = -1,
                               .positions       = "model.decoder.embed_positions.weight",
                               .n_positions     = c->n_positions + POSITION_OFFSET,
                               .position_offset = POSITION_OFFSET});
        x = vp_build_add(b, "embedding",
                         projection(b, "project_in", "model.decoder.project_in", x, c->hidden),
                         positions);
    }
    vp_build_output(b, x);
}

static void build_block(vp_builder *b, const opt_config *c)
{
    int64_t  d     = c->hidden / c->n_heads;
    vp_heads heads = {.n = c->n_heads, .n_kv = c->n_heads, .dim = d, .layout = VP_QKV_APART};
    int      x, y, q, k, v;

    vp_build_block_template(b, "layers");
    x       = vp_build_input(b, c->hidden);
    b->part = VP_PART_ATTENTION;
    y       = c->norm_before
                  ? norm(b, c, "self_attn_layer_norm", "model.decoder.layers.{}.self_attn_layer_norm", x)
                  : x;
    q       = linear(b, c, "q_proj", "model.decoder.layers.{}.self_attn.q_proj", y, c->hidden);
    k       = linear(b, c, "k_proj", "model.decoder.layers.{}.self_attn.k_proj", y, c->hidden);
    v       = linear(b, c, "v_proj", "model.decoder.layers.{}.self_attn.v_proj", y, c->hidden);
    y       = vp_build_attention(b, &heads,
                                 &(vp_attention){.name    = "attention",
                                                 .q       = q,
                                                 .k       = k,
                                                 .v       = v,
                                                 .lengths = -1,
                                                 .scale   = 1.0 / sqrt((double)d),
                                                 .p       = c->attn_p});
    b->part = VP_PART_NONE;
    y       = vp_build_dropout(
              b, "attention.dropout",
              linear(b, c, "out_proj", "model.decoder.layers.{}.self_attn.out_proj", y, c->hidden), c->p);
    x = vp_build_add(b, "attention.residual", x, y);
    if (!c->norm_before)
        x = norm(b, c, "self_attn_layer_norm", "model.decoder.layers.{}.self_attn_layer_norm", x);

    b->part = VP_PART_MLP;
    y       = c->norm_before
                  ? norm(b, c, "final_layer_norm", "model.decoder.layers.{}.final_layer_norm", x)
                  : x;
    y       = vp_build_activation(
              b, "act", linear(b, c, "fc1", "model.decoder.layers.{}.fc1", y, c->inner), c->act);
    b->part = VP_PART_NONE;
    y       = vp_build_dropout(b, "mlp.dropout",
                               linear(b, c, "fc2", "model.decoder.layers.{}.fc2", y, c->hidden), c->p);
    x       = vp_build_add(b, "mlp.residual", x, y);
    if (!c->norm_before)
        x = norm(b, c, "final_layer_norm", "model.decoder.layers.{}.final_layer_norm", x);
    vp_build_output(b, x);
}

static void build_head(vp_builder *b, const opt_config *c)
{
    vp_build_template(b, "head");
    int x = vp_build_input(b, c->hidden);
    if (c->final_norm)
        x = norm(b, c, "final_layer_norm", "model.decoder.final_layer_norm", x);
    if (c->token_width != c->hidden)
        x = projection(b, "project_out", "model.decoder.project_out", x, c->token_width);
    vp_build_decoder_head(
        b, &(vp_lm_head){.x = x, .vocab = c->vocab, .tied = c->tied, .prefix = "lm_head"}, NULL);
}

static vp_status build(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                       vp_err *err)
{
    opt_config c = {0};
    vp_builder b;
    vp_status  st = VP_OK;

    VP_TRY(read_config(model, config, opts, &c, err));
    vp_build_begin(&b, model, c.std);
    build_embedding(&b, &c);
    build_block(&b, &c);
    build_head(&b, &c);
    model->graph.max_seq          = c.n_positions;
    model->graph.learns_positions = true;
    VP_TRY(vp_build_finish(&b, c.n_layers, NULL, err));
out:
    return st;
}

static const char *const keys[]    = {"hidden_size",
                                      "ffn_dim",
                                      "num_hidden_layers",
                                      "num_attention_heads",
                                      "vocab_size",
                                      "max_position_embeddings",
                                      "word_embed_proj_dim",
                                      "init_std",
                                      "dropout",
                                      "attention_dropout",
                                      "layerdrop",
                                      "tie_word_embeddings",
                                      "do_layer_norm_before",
                                      "enable_bias",
                                      "layer_norm_elementwise_affine",
                                      "_remove_final_layer_norm",
                                      "activation_function",
                                      "pad_token_id",
                                      NULL};
static const vp_class    classes[] = {
       {"OPTForCausalLM", VP_HEAD_NEXT_TOKEN}, VP_SEQUENCE_CLASS("OPT"), {0}};

const vp_family vp_family_opt = {"opt", classes, keys, build};
