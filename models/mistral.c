/* models/mistral.c: Mistral 7B (Jiang et al. 2023, arXiv:2310.06825), as transformers'
 * MistralForCausalLM builds it: Llama's block without biases, with a sliding window in every
 * layer. */
#include "models/decoder.h"
#include "models/family.h"

static vp_status build(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                       vp_err *err)
{
    static const vp_decoder_defaults defaults = {
        .max_positions   = 131072,
        .n_kv            = 8,
        .null_kv_refused = true,
        .eps             = 1e-6,
        .act_key         = "hidden_act",
        .act             = VP_ACT_SILU,
    };
    vp_decoder d;
    vp_builder b;
    vp_status  st = VP_OK;

    VP_TRY(vp_decoder_read(model, config, opts, &defaults, &d, err));
    VP_TRY(vp_decoder_read_window(model, config, 4096, &d, err));
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

static const char *const keys[]    = {VP_DECODER_KEYS, "hidden_act", "sliding_window", NULL};
static const vp_class    classes[] = {VP_CAUSAL_CLASSES("Mistral"), {0}};

const vp_family vp_family_mistral = {"mistral", classes, keys, build};
