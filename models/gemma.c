/* models/gemma.c: Gemma (Gemma Team 2024, arXiv:2403.08295), as transformers' GemmaForCausalLM
 * builds it: Llama's block with norms that multiply by 1 + weight, GELU in the gate, an
 * embedding scaled by sqrt(hidden) and tied to the head. */
#include "models/decoder.h"
#include "models/family.h"

#include <math.h>

static vp_status build(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                       vp_err *err)
{
    static const vp_decoder_defaults defaults = {
        .max_positions   = 8192,
        .n_kv            = 16,
        .null_kv_refused = true,
        .head_dim        = 256,
        .eps             = 1e-6,
        .tied            = true,
        .act_key         = "hidden_act",
        .act             = VP_ACT_GELU_TANH,
        .padding         = 0,
        .has_padding     = true,
    };
    vp_decoder d;
    vp_builder b;
    vp_status  st = VP_OK;

    VP_TRY(vp_decoder_read(model, config, opts, &defaults, &d, err));
    VP_TRY(vp_config_bool_or(model, config, "attention_bias", false, &d.qkv_bias, err));
    VP_TRY(vp_config_refuse(config, "use_bidirectional_attention",
                            "attention in both directions is not supported in this family", err));
    VP_TRY(vp_config_rope(model, config,
                          &(vp_rope_rules){.head_dim      = d.heads.dim,
                                           .max_positions = d.max_positions,
                                           .theta         = 10000.0},
                          &d.rope, err));
    d.o_bias        = d.qkv_bias;
    vp_rmsnorm norm = {.eps = d.eps, .unit_offset = true};
    vp_decoder_begin(&b, model, &d, (double)sqrtf((float)d.hidden));
    vp_decoder_block(&b, &d, &norm, NULL);
    VP_TRY(vp_decoder_finish(&b, &d, &norm, 0, err));
out:
    return st;
}

/* hidden_activation of early files was never read by the class that hidden_act names. */
static const char *const keys[]    = {VP_DECODER_KEYS, "hidden_act", "attention_bias",
                                      "use_bidirectional_attention", NULL};
static const vp_class    classes[] = {VP_CAUSAL_CLASSES("Gemma"), {0}};

const vp_family vp_family_gemma = {"gemma", classes, keys, build};
