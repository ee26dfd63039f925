/* models/gpt2.c: GPT-2 (Radford et al. 2019), as transformers' GPT2LMHeadModel builds it.
 *
 *     x = wte[token] + wpe[position]
 *     block:  h = x + c_proj(attention(c_attn(ln_1(x))))        pre-norm, biases everywhere
 *             y = h + mlp.c_proj(gelu_new(mlp.c_fc(ln_2(h))))
 *     head:   loss = cross_entropy(ln_f(x) wte')                the table is tied by default
 *
 * Linear weights are (in, out): Conv1D. Initialisation: normal(0, initializer_range) for
 * weights, divided by sqrt(2 L) for the two projections into the residual stream (GPT-2 paper,
 * section 2.3), zero biases. */
#include "base/checked.h"
#include "models/build.h"
#include "models/family.h"

#include <math.h>

typedef struct gpt2_config {
    int64_t n_embd, n_layer, n_head, n_inner, n_positions, vocab_size;
    double  eps, std;
    bool    tied, scale_weights, cross;
    vp_act  act;
    double  embd_p, attn_p, resid_p;
} gpt2_config;

static vp_status read_dropout(vp_model *model, const vp_json_node *config,
                              const vp_model_opts *opts, gpt2_config *c, vp_err *err)
{
    vp_status st = VP_OK;

    if (!opts->dropout_from_config) {
        c->embd_p = c->attn_p = c->resid_p = opts->dropout;
        if (vp_json_has(config, "resid_pdrop"))
            vp_model_assume(
                model,
                "dropout is the recipe's (%g); embd_pdrop, attn_pdrop and resid_pdrop of the config are not used",
                opts->dropout);
        return VP_OK;
    }
    VP_TRY(vp_config_real_or(model, config, "embd_pdrop", 0.99, 0.1, &c->embd_p, err));
    VP_TRY(vp_config_real_or(model, config, "attn_pdrop", 0.99, 0.1, &c->attn_p, err));
    VP_TRY(vp_config_real_or(model, config, "resid_pdrop", 0.99, 0.1, &c->resid_p, err));
out:
    return st;
}

/* A size under the family's own name or the one all families share. */
typedef struct size_names {
    const char *own, *shared;
} size_names;

static const size_names EMBD = {"n_embd", "hidden_size"}, LAYER = {"n_layer", "num_hidden_layers"},
                        HEAD      = {"n_head", "num_attention_heads"},
                        POSITIONS = {"n_positions", "max_position_embeddings"};

/* Where both names are there, transformers sets the shared one last. */
static vp_status read_size(vp_model *model, const vp_json_node *config, const size_names *names,
                           int64_t max, int64_t *out, vp_err *err)
{
    int64_t   own;
    vp_status st = VP_OK;

    if (!vp_json_has(config, names->shared))
        return vp_config_int(config, names->own, max, out, err);
    VP_TRY(vp_config_int(config, names->shared, max, out, err));
    if (!vp_json_has(config, names->own))
        return VP_OK;
    VP_TRY(vp_config_int(config, names->own, max, &own, err));
    if (own != *out)
        vp_model_assume(model, "%s (%lld) is not used: %s, another name of it, says %lld",
                        names->own, (long long)own, names->shared, (long long)*out);
out:
    return st;
}

static const char *name_of(const vp_json_node *config, const size_names *names)
{
    return vp_json_has(config, names->shared) ? names->shared : names->own;
}

static vp_status read_config(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                             gpt2_config *c, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(read_size(model, config, &EMBD, 10000000, &c->n_embd, err));
    VP_TRY(read_size(model, config, &LAYER, VP_MAX_LAYERS, &c->n_layer, err));
    VP_TRY(read_size(model, config, &HEAD, 10000000, &c->n_head, err));
    VP_TRY(vp_config_int(config, "vocab_size", 100000000, &c->vocab_size, err));
    VP_TRY(read_size(model, config, &POSITIONS, 1000000000, &c->n_positions, err));
    c->n_inner = 4 * c->n_embd; /* null and absent mean the same: GPT2MLP */
    if (vp_json_has(config, "n_inner"))
        VP_TRY(vp_config_int(config, "n_inner", 100000000, &c->n_inner, err));
    VP_TRY(vp_config_real_or(model, config, "layer_norm_epsilon", 1.0, 1e-5, &c->eps, err));
    VP_TRY(vp_config_real_or(model, config, "initializer_range", 100.0, 0.02, &c->std, err));
    VP_TRY(vp_config_decoder_head(model, config, opts, true, &c->tied, err));
    VP_TRY(vp_config_bool_or(model, config, "scale_attn_weights", true, &c->scale_weights, err));
    VP_TRY(read_dropout(model, config, opts, c, err));

    if (c->n_embd % c->n_head != 0)
        VP_TRY(vp_json_fail(config, name_of(config, &HEAD), err, "%lld heads do not divide %s %lld",
                            (long long)c->n_head, name_of(config, &EMBD), (long long)c->n_embd));
    if (c->n_embd / c->n_head > VP_MAX_HEAD_DIM)
        VP_TRY(vp_json_fail(config, name_of(config, &HEAD), err,
                            "a head of %lld dimensions; at most %d are supported",
                            (long long)(c->n_embd / c->n_head), VP_MAX_HEAD_DIM));
    VP_TRY(vp_config_act(model, config, "activation_function", VP_ACT_GELU_TANH, &c->act, err));
    VP_TRY(vp_config_bool(config, "add_cross_attention", &c->cross, err));
    if (c->cross)
        vp_model_assume(model, VP_NO_ENCODER);
    VP_TRY(vp_config_refuse(config, "scale_attn_by_inverse_layer_idx",
                            "attention scaled by layer index is not supported", err));
    VP_TRY(vp_config_refuse(config, "reorder_and_upcast_attn",
                            "reordered and upcast attention is not supported", err));
    if (vp_overflowed(vp_mul(vp_mul(c->n_layer, vp_mul(c->n_embd, c->n_inner)), 1024)) ||
        vp_overflowed(vp_mul(vp_mul(c->vocab_size, c->n_embd), 1024)) ||
        vp_overflowed(vp_mul(vp_mul(c->n_positions, c->n_embd), 1024)))
        VP_TRY(vp_json_fail(
            config, NULL, err,
            "n_layer x n_embd x n_inner, or a table, is more bytes than 64 bits can count"));
out:
    return st;
}

/* ---- the figure ---- */

static void build_embedding(vp_builder *b, const gpt2_config *c)
{
    vp_build_template(b, "embedding");
    int x = vp_build_embedding(b, &(vp_embedding){.name        = "wte",
                                                  .table       = "transformer.wte.weight",
                                                  .rows        = c->vocab_size,
                                                  .cols        = c->n_embd,
                                                  .positions   = "transformer.wpe.weight",
                                                  .n_positions = c->n_positions,
                                                  .padding_row = -1});
    vp_build_output(b, vp_build_dropout(b, "drop", x, c->embd_p));
}

static int conv1d(vp_builder *b, const char *name, int x, int64_t out, const char *prefix,
                  double std)
{
    return vp_build_linear(b, &(vp_linear){.name   = name,
                                           .x      = x,
                                           .out    = out,
                                           .prefix = prefix,
                                           .bias   = true,
                                           .layout = VP_WEIGHT_IN_OUT,
                                           .std    = std});
}

static void build_block(vp_builder *b, const gpt2_config *c)
{
    int64_t  h = c->n_embd, d = h / c->n_head;
    double   resid_std = c->std / sqrt(2.0 * (double)c->n_layer);
    vp_heads heads     = {.n = c->n_head, .n_kv = c->n_head, .dim = d, .layout = VP_QKV_PACKED};
    int      x, y;

    vp_build_block_template(b, "h");
    x = vp_build_input(b, h);

    b->part = VP_PART_ATTENTION;
    y       = vp_build_layernorm(b, "ln_1", x, "transformer.h.{}.ln_1", c->eps);
    y       = conv1d(b, "attn.c_attn", y, 3 * h, "transformer.h.{}.attn.c_attn", 0);
    y       = vp_build_attention(b, &heads,
                                 &(vp_attention){.name    = "attn.attention",
                                                 .q       = y,
                                                 .k       = -1,
                                                 .v       = -1,
                                                 .lengths = -1,
                                                 .scale = c->scale_weights ? 1.0 / sqrt((double)d) : 1.0,
                                                 .p     = c->attn_p});
    b->part = VP_PART_NONE;
    y       = conv1d(b, "attn.c_proj", y, h, "transformer.h.{}.attn.c_proj", resid_std);
    y       = vp_build_dropout(b, "attn.resid_dropout", y, c->resid_p);
    x       = vp_build_add(b, "attn.residual", x, y);

    b->part = VP_PART_MLP;
    y       = vp_build_layernorm(b, "ln_2", x, "transformer.h.{}.ln_2", c->eps);
    y       = conv1d(b, "mlp.c_fc", y, c->n_inner, "transformer.h.{}.mlp.c_fc", 0);
    y       = vp_build_activation(b, "mlp.act", y, c->act);
    b->part = VP_PART_NONE;
    y       = conv1d(b, "mlp.c_proj", y, h, "transformer.h.{}.mlp.c_proj", resid_std);
    y       = vp_build_dropout(b, "mlp.dropout", y, c->resid_p);
    vp_build_output(b, vp_build_add(b, "mlp.residual", x, y));
    if (c->cross) {
        vp_build_unused_linear(b, "transformer.h.{}.crossattention.c_attn", h, 2 * h,
                               VP_WEIGHT_IN_OUT, 0);
        vp_build_unused_linear(b, "transformer.h.{}.crossattention.q_attn", h, h, VP_WEIGHT_IN_OUT,
                               0);
        vp_build_unused_linear(b, "transformer.h.{}.crossattention.c_proj", h, h, VP_WEIGHT_IN_OUT,
                               resid_std);
        vp_build_unused_norm(b, "transformer.h.{}.ln_cross_attn", h);
    }
}

static void build_head(vp_builder *b, const gpt2_config *c)
{
    vp_build_template(b, "head");
    int x = vp_build_layernorm(b, "ln_f", vp_build_input(b, c->n_embd), "transformer.ln_f", c->eps);
    vp_build_decoder_head(
        b, &(vp_lm_head){.x = x, .vocab = c->vocab_size, .tied = c->tied, .prefix = "lm_head"},
        "classifier");
}

static vp_status build(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                       vp_err *err)
{
    gpt2_config c = {0};
    vp_builder  b;
    vp_status   st = VP_OK;

    VP_TRY(read_config(model, config, opts, &c, err));
    vp_build_begin(&b, model, c.std);
    build_embedding(&b, &c);
    build_block(&b, &c);
    build_head(&b, &c);
    model->graph.max_seq          = c.n_positions;
    model->graph.learns_positions = true;
    VP_TRY(vp_build_finish(&b, c.n_layer, NULL, err));
out:
    return st;
}

static const char *const keys[] = {"n_embd",
                                   "n_layer",
                                   "n_head",
                                   "vocab_size",
                                   "n_positions",
                                   "hidden_size",
                                   "num_hidden_layers",
                                   "num_attention_heads",
                                   "max_position_embeddings",
                                   "n_inner",
                                   "layer_norm_epsilon",
                                   "initializer_range",
                                   "tie_word_embeddings",
                                   "scale_attn_weights",
                                   "embd_pdrop",
                                   "attn_pdrop",
                                   "resid_pdrop",
                                   "activation_function",
                                   "add_cross_attention",
                                   "scale_attn_by_inverse_layer_idx",
                                   "reorder_and_upcast_attn",
                                   NULL};

static const vp_class classes[] = {{"GPT2LMHeadModel", VP_HEAD_NEXT_TOKEN},
                                   VP_SEQUENCE_CLASS("GPT2"),
                                   VP_TOKEN_CLASS("GPT2"),
                                   {0}};

const vp_family vp_family_gpt2 = {"gpt2", classes, keys, build};
