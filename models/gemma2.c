/* models/gemma2.c: Gemma 2 (Gemma Team 2024, arXiv:2408.00118), as transformers' Gemma2ForCausalLM
 * builds it: Gemma with norms before and after attention and MLP, soft-capped attention and logits,
 * a window in every second layer.
 *
 *     block:  h = x + norm(o(attention(norm(x))))       y = h + norm(mlp(norm(h))) */
#include "models/decoder.h"
#include "models/family.h"

#include <math.h>

typedef struct gemma2_config {
    vp_decoder d;
    double     attention_softcap, logit_softcap, query_scale;
} gemma2_config;

static vp_status optional_softcap(vp_model *model, const vp_json_node *config, const char *key,
                                  double fallback, double *out, vp_err *err)
{
    *out = 0;
    return json_is_null(json_object_get(config->value, key))
               ? VP_OK
               : vp_config_real_or(model, config, key, 1e9, fallback, out, err);
}

static vp_status read_config(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                             gemma2_config *c, vp_err *err)
{
    static const vp_decoder_defaults defaults = {
        .max_positions   = 8192,
        .n_kv            = 4,
        .null_kv_refused = true,
        .head_dim        = 256,
        .eps             = 1e-6,
        .tied            = true,
        .act_key         = "hidden_activation",
        .act             = VP_ACT_GELU_TANH,
        .padding         = 0,
        .has_padding     = true,
    };
    vp_decoder *d = &c->d;
    double      scalar;
    vp_status   st = VP_OK;

    VP_TRY(vp_decoder_read(model, config, opts, &defaults, d, err));
    VP_TRY(vp_config_bool_or(model, config, "attention_bias", false, &d->qkv_bias, err));
    d->o_bias = d->qkv_bias;
    VP_TRY(vp_config_refuse(config, "use_bidirectional_attention",
                            "attention in both directions is not supported in this family", err));
    VP_TRY(vp_decoder_read_window(model, config, 4096, d, err));
    VP_TRY(vp_decoder_read_layer_types(model, config, d->window, 0, 2, d, err));
    VP_TRY(optional_softcap(model, config, "attn_logit_softcapping", 50.0, &c->attention_softcap,
                            err));
    VP_TRY(
        optional_softcap(model, config, "final_logit_softcapping", 30.0, &c->logit_softcap, err));
    VP_TRY(vp_config_real_or(model, config, "query_pre_attn_scalar", 1e9, 256.0, &scalar, err));
    if (scalar < 1e-6)
        VP_TRY(vp_json_fail(config, "query_pre_attn_scalar", err, "must be at least 1e-6"));
    c->query_scale = 1.0 / sqrt(scalar);
    VP_TRY(vp_config_rope(model, config,
                          &(vp_rope_rules){.head_dim      = d->heads.dim,
                                           .max_positions = d->max_positions,
                                           .theta         = 10000.0},
                          &d->rope, err));
out:
    return st;
}

static void build_block(vp_builder *b, const gemma2_config *c, const vp_rmsnorm *norm)
{
    const vp_decoder *d = &c->d;
    int               x, y;

    vp_build_block_template(b, "layers");
    x       = vp_build_input(b, d->hidden);
    b->part = VP_PART_ATTENTION;
    y       = vp_build_rmsnorm(b, "input_layernorm", x, "model.layers.{}.input_layernorm", norm);
    y       = vp_decoder_attention(b, d, y, NULL, c->query_scale, c->attention_softcap);
    y       = vp_decoder_o_proj(b, d, y);
    b->part = VP_PART_NONE;
    y       = vp_build_rmsnorm(b, "post_attention_layernorm", y,
                               "model.layers.{}.post_attention_layernorm", norm);
    x       = vp_build_add(b, "attention.residual", x, y);
    b->part = VP_PART_MLP;
    y       = vp_build_rmsnorm(b, "pre_feedforward_layernorm", x,
                               "model.layers.{}.pre_feedforward_layernorm", norm);
    y       = vp_decoder_mlp(b, d, y);
    y       = vp_decoder_down_proj(b, d, y);
    b->part = VP_PART_NONE;
    y       = vp_build_rmsnorm(b, "post_feedforward_layernorm", y,
                               "model.layers.{}.post_feedforward_layernorm", norm);
    vp_build_output(b, vp_build_add(b, "mlp.residual", x, y));
}

static vp_status build(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                       vp_err *err)
{
    gemma2_config c;
    vp_builder    b;
    vp_status     st = VP_OK;

    VP_TRY(read_config(model, config, opts, &c, err));
    vp_rmsnorm norm = {.eps = c.d.eps, .unit_offset = true};
    vp_decoder_begin(&b, model, &c.d, (double)sqrtf((float)c.d.hidden));
    build_block(&b, &c, &norm);
    VP_TRY(vp_decoder_finish(&b, &c.d, &norm, c.logit_softcap, err));
out:
    return st;
}

static const char *const keys[]    = {VP_DECODER_KEYS,          "hidden_activation",
                                      "attention_bias",         "use_bidirectional_attention",
                                      "sliding_window",         "layer_types",
                                      "attn_logit_softcapping", "final_logit_softcapping",
                                      "query_pre_attn_scalar",  NULL};
static const vp_class    classes[] = {VP_CAUSAL_CLASSES("Gemma2"), {0}};

const vp_family vp_family_gemma2 = {"gemma2", classes, keys, build};
