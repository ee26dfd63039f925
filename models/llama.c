/* models/llama.c: Llama 1 to 3.x (Touvron et al. 2023, arXiv:2302.13971; Grattafiori et al.
 * 2024, arXiv:2407.21783), as transformers' LlamaForCausalLM builds it: the pre-norm decoder of
 * models/decoder.h. */
#include "models/decoder.h"
#include "models/family.h"

static vp_status build(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                       vp_err *err)
{
    static const vp_decoder_defaults defaults = {
        .max_positions = 2048,
        .eps           = 1e-6,
        .act_key       = "hidden_act",
        .act           = VP_ACT_SILU,
    };
    vp_decoder d;
    vp_builder b;
    vp_status  st = VP_OK;

    VP_TRY(vp_decoder_read(model, config, opts, &defaults, &d, err));
    VP_TRY(vp_config_bool_or(model, config, "attention_bias", false, &d.qkv_bias, err));
    VP_TRY(vp_config_bool_or(model, config, "mlp_bias", false, &d.mlp_bias, err));
    VP_TRY(vp_config_rope(model, config,
                          &(vp_rope_rules){.head_dim      = d.heads.dim,
                                           .max_positions = d.max_positions,
                                           .theta         = 10000.0},
                          &d.rope, err));
    d.o_bias        = d.qkv_bias;
    vp_rmsnorm norm = {.eps = d.eps};
    vp_decoder_begin(&b, model, &d, 1.0);
    vp_decoder_block(&b, &d, &norm, NULL);
    VP_TRY(vp_decoder_finish(&b, &d, &norm, 0, err));
out:
    return st;
}

static const char *const keys[]    = {VP_DECODER_KEYS, "hidden_act", "attention_bias", "mlp_bias",
                                      NULL};
static const vp_class    classes[] = {VP_CAUSAL_CLASSES("Llama"), {0}};

const vp_family vp_family_llama = {"llama", classes, keys, build};
