/* models/phi3.c: Phi-3 and Phi-4 (Abdin et al. 2024, arXiv:2404.14219), as transformers'
 * Phi3ForCausalLM builds it: Llama's block with queries, keys and values in one matrix, gate and
 * up in another, and no biases. */
#include "models/decoder.h"
#include "models/family.h"

#include <math.h>

typedef struct phi3_config {
    vp_decoder d;
    double     resid_p;
} phi3_config;

static int matrix(vp_builder *b, const char *name, const char *prefix, int x, int64_t out)
{
    return vp_build_linear(
        b, &(vp_linear){
               .name = name, .x = x, .out = out, .prefix = prefix, .layout = VP_WEIGHT_OUT_IN});
}

static void build_block(vp_builder *b, const phi3_config *c, const vp_rmsnorm *norm)
{
    const vp_decoder *d = &c->d;
    int               x, y;

    vp_build_block_template(b, "layers");
    x       = vp_build_input(b, d->hidden);
    b->part = VP_PART_ATTENTION;
    y       = vp_build_rmsnorm(b, "input_layernorm", x, "model.layers.{}.input_layernorm", norm);
    y       = matrix(b, "qkv_proj", "model.layers.{}.self_attn.qkv_proj", y,
                     (d->heads.n + 2 * d->heads.n_kv) * d->heads.dim);
    y       = vp_build_rope(b, "rope", y, &d->heads, d->rope_idx);
    y       = vp_build_attention(b, &d->heads,
                                 &(vp_attention){.name    = "attention",
                                                 .q       = y,
                                                 .k       = -1,
                                                 .v       = -1,
                                                 .lengths = -1,
                                                 .window  = d->window,
                                                 .scale   = 1.0 / sqrt((double)d->heads.dim),
                                                 .p       = d->attn_p});
    b->part = VP_PART_NONE;
    y       = vp_build_dropout(b, "resid_attn_dropout", vp_decoder_o_proj(b, d, y), c->resid_p);
    x       = vp_build_add(b, "attention.residual", x, y);
    b->part = VP_PART_MLP;
    y       = vp_build_rmsnorm(b, "post_attention_layernorm", x,
                               "model.layers.{}.post_attention_layernorm", norm);
    y       = matrix(b, "gate_up_proj", "model.layers.{}.mlp.gate_up_proj", y, 2 * d->inner);
    y       = vp_build_glu(b, "act", y, -1, d->act);
    b->part = VP_PART_NONE;
    y       = vp_build_dropout(b, "resid_mlp_dropout", vp_decoder_down_proj(b, d, y), c->resid_p);
    vp_build_output(b, vp_build_add(b, "mlp.residual", x, y));
}

static vp_status build(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                       vp_err *err)
{
    static const vp_decoder_defaults defaults = {
        .max_positions = 4096,
        .eps           = 1e-5,
        .act_key       = "hidden_act",
        .act           = VP_ACT_SILU,
        .padding       = 32000,
        .has_padding   = true,
    };
    phi3_config c;
    vp_builder  b;
    vp_status   st = VP_OK;

    VP_TRY(vp_decoder_read(model, config, opts, &defaults, &c.d, err));
    VP_TRY(vp_decoder_read_window(model, config, 0, &c.d, err));
    VP_TRY(vp_config_dropout(model, config, opts, "resid_pdrop", 0.0, &c.resid_p, err));
    VP_TRY(vp_config_rope(model, config,
                          &(vp_rope_rules){.head_dim           = c.d.heads.dim,
                                           .max_positions      = c.d.max_positions,
                                           .theta              = 10000.0,
                                           .partial            = 1,
                                           .longrope_only      = true,
                                           .original_positions = 4096},
                          &c.d.rope, err));
    c.d.heads.layout = VP_QKV_PACKED;
    vp_rmsnorm norm  = {.eps = c.d.eps};
    vp_decoder_begin(&b, model, &c.d, 1.0);
    build_block(&b, &c, &norm);
    VP_TRY(vp_decoder_finish(&b, &c.d, &norm, 0, err));
out:
    return st;
}

/* embd_pdrop is in the config class, but the model has no dropout behind its embedding. */
static const char *const keys[]    = {VP_DECODER_KEYS, "hidden_act", "sliding_window",
                                      "resid_pdrop",   "embd_pdrop", NULL};
static const vp_class    classes[] = {VP_CAUSAL_CLASSES("Phi3"), {0}};

const vp_family vp_family_phi3 = {"phi3", classes, keys, build};
