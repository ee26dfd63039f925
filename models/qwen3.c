/* models/qwen3.c: Qwen3 (Yang et al. 2025, arXiv:2505.09388), as transformers' Qwen3ForCausalLM
 * builds it: Llama's block with every head of queries and keys normed before rotation; a head's
 * width is a number of its own. */
#include "models/decoder.h"
#include "models/family.h"

static vp_status build(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                       vp_err *err)
{
    static const vp_decoder_defaults defaults = {
        .max_positions = 32768,
        .n_kv          = 32,
        .head_dim      = 128,
        .eps           = 1e-6,
        .act_key       = "hidden_act",
        .act           = VP_ACT_SILU,
    };
    vp_decoder d;
    vp_builder b;
    vp_status  st = VP_OK;

    VP_TRY(vp_decoder_read(model, config, opts, &defaults, &d, err));
    VP_TRY(vp_decoder_read_qwen_windows(model, config, &d, err));
    VP_TRY(vp_config_bool_or(model, config, "attention_bias", false, &d.qkv_bias, err));
    d.o_bias = d.qkv_bias;
    VP_TRY(vp_config_rope(model, config,
                          &(vp_rope_rules){.head_dim      = d.heads.dim,
                                           .max_positions = d.max_positions,
                                           .theta         = 10000.0},
                          &d.rope, err));
    vp_rmsnorm norm = {.eps = d.eps}, head_norm = {.eps = d.eps, .cols = d.heads.dim};
    vp_decoder_begin(&b, model, &d, 1.0);
    vp_decoder_block(&b, &d, &norm, &head_norm);
    VP_TRY(vp_decoder_finish(&b, &d, &norm, 0, err));
out:
    return st;
}

static const char *const keys[] = {
    VP_DECODER_KEYS,  "hidden_act",        "attention_bias", "use_sliding_window",
    "sliding_window", "max_window_layers", "layer_types",    NULL};
static const vp_class classes[] = {VP_CAUSAL_CLASSES("Qwen3"), {0}};

const vp_family vp_family_qwen3 = {"qwen3", classes, keys, build};
