/* models/olmo2.c: OLMo 2 (OLMo Team 2024, arXiv:2501.00656), as transformers' Olmo2ForCausalLM
 * builds it: Llama's pieces with the norms behind attention and MLP, and all queries (all keys) of
 * a token normed together before rotation.
 *
 *     block:  h = x + norm(o(attention(x)))             y = h + norm(mlp(h)) */
#include "models/decoder.h"
#include "models/family.h"

static void build_block(vp_builder *b, const vp_decoder *d, const vp_rmsnorm *norm)
{
    int x, y;

    vp_build_block_template(b, "layers");
    x       = vp_build_input(b, d->hidden);
    b->part = VP_PART_ATTENTION;
    y       = vp_decoder_attention(b, d, x, norm, 0, 0);
    y       = vp_decoder_o_proj(b, d, y);
    b->part = VP_PART_NONE;
    y       = vp_build_rmsnorm(b, "post_attention_layernorm", y,
                               "model.layers.{}.post_attention_layernorm", norm);
    x       = vp_build_add(b, "attention.residual", x, y);
    b->part = VP_PART_MLP;
    y       = vp_decoder_mlp(b, d, x);
    y       = vp_decoder_down_proj(b, d, y);
    b->part = VP_PART_NONE;
    y       = vp_build_rmsnorm(b, "post_feedforward_layernorm", y,
                               "model.layers.{}.post_feedforward_layernorm", norm);
    vp_build_output(b, vp_build_add(b, "mlp.residual", x, y));
}

static vp_status build(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                       vp_err *err)
{
    static const vp_decoder_defaults defaults = {
        .max_positions = 2048,
        .eps           = 1e-5,
        .act_key       = "hidden_act",
        .act           = VP_ACT_SILU,
        .padding       = 1,
        .has_padding   = true,
    };
    vp_decoder d;
    vp_builder b;
    vp_status  st = VP_OK;

    VP_TRY(vp_decoder_read(model, config, opts, &defaults, &d, err));
    VP_TRY(vp_config_bool_or(model, config, "attention_bias", false, &d.qkv_bias, err));
    VP_TRY(vp_config_rope(model, config,
                          &(vp_rope_rules){.head_dim      = d.heads.dim,
                                           .max_positions = d.max_positions,
                                           .theta         = 10000.0},
                          &d.rope, err));
    d.o_bias        = d.qkv_bias;
    vp_rmsnorm norm = {.eps = d.eps};
    vp_decoder_begin(&b, model, &d, 1.0);
    build_block(&b, &d, &norm);
    VP_TRY(vp_decoder_finish(&b, &d, &norm, 0, err));
out:
    return st;
}

static const char *const keys[]    = {VP_DECODER_KEYS, "hidden_act", "attention_bias", NULL};
static const vp_class    classes[] = {
       {"Olmo2ForCausalLM", VP_HEAD_NEXT_TOKEN}, VP_SEQUENCE_CLASS("Olmo2"), {0}};

const vp_family vp_family_olmo2 = {"olmo2", classes, keys, build};
