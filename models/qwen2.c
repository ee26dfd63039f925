/* models/qwen2.c: Qwen2 and Qwen2.5 (Yang et al. 2024, arXiv:2407.10671), as transformers'
 * Qwen2ForCausalLM builds it: Llama's block with biases on queries, keys and values only; where
 * use_sliding_window is on, layers from max_window_layers have a window. */
#include "models/decoder.h"
#include "models/family.h"

static vp_status build(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                       vp_err *err)
{
    static const vp_decoder_defaults defaults = {
        .max_positions = 32768,
        .n_kv          = 32,
        .eps           = 1e-6,
        .act_key       = "hidden_act",
        .act           = VP_ACT_SILU,
    };
    vp_decoder d;
    vp_builder b;
    vp_status  st = VP_OK;

    VP_TRY(vp_decoder_read(model, config, opts, &defaults, &d, err));
    VP_TRY(vp_decoder_read_qwen_windows(model, config, &d, err));
    d.qkv_bias = true;
    VP_TRY(vp_config_rope(model, config,
                          &(vp_rope_rules){.head_dim      = d.heads.dim,
                                           .max_positions = d.max_positions,
                                           .theta         = 10000.0},
                          &d.rope, err));
    vp_rmsnorm norm = {.eps = d.eps};
    vp_decoder_begin(&b, model, &d, 1.0);
    vp_decoder_block(&b, &d, &norm, NULL);
    VP_TRY(vp_decoder_finish(&b, &d, &norm, 0, err));
out:
    return st;
}

static const char *const keys[] = {
    VP_DECODER_KEYS, "hidden_act", "use_sliding_window", "sliding_window", "max_window_layers",
    "layer_types",   NULL};
static const vp_class classes[] = {VP_CAUSAL_CLASSES("Qwen2"), {0}};

const vp_family vp_family_qwen2 = {"qwen2", classes, keys, build};
