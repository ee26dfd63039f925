#include "models/decoder.h"

#include "base/checked.h"
#include "models/config.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- reading ---- */

static vp_status read_heads(vp_model *model, const vp_json_node *config,
                            const vp_decoder_defaults *def, vp_decoder *d, vp_err *err)
{
    const char *kv      = "num_key_value_heads";
    bool        is_null = json_is_null(json_object_get(config->value, kv));
    vp_status   st      = VP_OK;

    VP_TRY(vp_config_int(config, "num_attention_heads", 10000000, &d->heads.n, err));
    if (is_null && def->null_kv_refused)
        VP_TRY(vp_json_fail(config, kv, err, "must be a number in this family"));
    if (is_null)
        d->heads.n_kv = d->heads.n;
    else if (vp_json_has(config, kv) || def->n_kv)
        VP_TRY(vp_config_int_or(model, config, kv, 10000000, def->n_kv, &d->heads.n_kv, err));
    else
        d->heads.n_kv = d->heads.n;
    if (d->heads.n % d->heads.n_kv != 0)
        VP_TRY(vp_json_fail(config, kv, err, "%lld do not divide the %lld heads",
                            (long long)d->heads.n_kv, (long long)d->heads.n));
    if (!vp_json_has(config, "head_dim") && !def->head_dim && d->hidden % d->heads.n != 0)
        VP_TRY(vp_json_fail(config, "num_attention_heads", err,
                            "%lld heads do not divide hidden_size %lld", (long long)d->heads.n,
                            (long long)d->hidden));
    if (vp_json_has(config, "head_dim") || def->head_dim)
        VP_TRY(vp_config_int_or(model, config, "head_dim", 1000000, def->head_dim, &d->heads.dim,
                                err));
    else
        d->heads.dim = d->hidden / d->heads.n;
    if (d->heads.dim > VP_MAX_HEAD_DIM)
        VP_TRY(vp_json_fail(config,
                            vp_json_has(config, "head_dim") ? "head_dim" : "num_attention_heads",
                            err, "a head of %lld dimensions; at most %d are supported",
                            (long long)d->heads.dim, VP_MAX_HEAD_DIM));
    d->heads.layout = VP_QKV_APART;
out:
    return st;
}

vp_status vp_decoder_read(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                          const vp_decoder_defaults *def, vp_decoder *d, vp_err *err)
{
    vp_status st = VP_OK;

    *d = (vp_decoder){.padding_row = -1};
    VP_TRY(vp_config_int(config, "hidden_size", 10000000, &d->hidden, err));
    VP_TRY(vp_config_int(config, "intermediate_size", 100000000, &d->inner, err));
    VP_TRY(vp_config_int(config, "num_hidden_layers", VP_MAX_LAYERS, &d->n_layers, err));
    VP_TRY(vp_config_int(config, "vocab_size", 100000000, &d->vocab, err));
    VP_TRY(vp_config_int_or(model, config, "max_position_embeddings", 1000000000,
                            def->max_positions, &d->max_positions, err));
    VP_TRY(vp_config_real_or(model, config, "rms_norm_eps", 1.0, def->eps, &d->eps, err));
    VP_TRY(vp_config_real_or(model, config, "initializer_range", 100.0, 0.02, &d->std, err));
    VP_TRY(vp_config_decoder_head(model, config, opts, def->tied, &d->tied, err));
    VP_TRY(read_heads(model, config, def, d, err));
    VP_TRY(vp_config_check_sizes(
        config, d->n_layers, d->hidden,
        vp_max_i64(vp_mul(d->heads.n, d->heads.dim), vp_max_i64(d->hidden, d->inner)), d->vocab,
        err));
    VP_TRY(vp_config_act(model, config, def->act_key, def->act, &d->act, err));
    VP_TRY(vp_config_dropout(model, config, opts, "attention_dropout", 0.0, &d->attn_p, err));
    VP_TRY(vp_config_padding(model, config, def->has_padding ? def->padding : VP_NO_TOKEN, d->vocab,
                             &d->padding_row, err));
out:
    return st;
}

vp_status vp_decoder_read_window(vp_model *model, const vp_json_node *config, int64_t fallback,
                                 vp_decoder *d, vp_err *err)
{
    const char *key = "sliding_window";

    d->window = 0;
    if (json_is_null(json_object_get(config->value, key)))
        return VP_OK;
    if (!vp_json_has(config, key) && fallback == 0)
        return VP_OK;
    return vp_config_int_or(model, config, key, INT64_C(1) << 40, fallback, &d->window, err);
}

vp_status vp_decoder_read_layer_types(vp_model *model, const vp_json_node *config, int64_t window,
                                      int64_t first, int64_t period, vp_decoder *d, vp_err *err)
{
    bool         given = vp_json_has(config, "layer_types"), all = true, none = true;
    vp_json_node list, element;
    const char  *type;
    int64_t      n;
    vp_status    st = VP_OK;

    assert(period >= 1 && window >= 0 && d->n_layers >= 1);
    d->windows = vp_arena_array(model->arena, d->n_layers, sizeof *d->windows);
    VP_TRY_ALLOC(err, d->windows);
    if (given) {
        VP_TRY(vp_json_array(config, "layer_types", &list, &n, err));
        if (n != d->n_layers)
            VP_TRY(vp_json_fail(config, "layer_types", err, "has %lld entries for %lld layers",
                                (long long)n, (long long)d->n_layers));
    }
    for (int64_t i = 0; i < d->n_layers; i++) {
        bool sliding = window > 0 && i >= first && (i - first) % period == 0;
        if (given) {
            VP_TRY(vp_json_element(&list, i, &element, err));
            VP_TRY(vp_json_as_string(&element, &type, err));
            sliding = strcmp(type, "sliding_attention") == 0;
            if (!sliding && strcmp(type, "full_attention") != 0)
                VP_TRY(vp_json_fail(&element, NULL, err,
                                    "is neither full_attention nor sliding_attention"));
            if (sliding && window == 0)
                VP_TRY(vp_json_fail(&element, NULL, err,
                                    "is sliding_attention, but there is no sliding_window"));
        }
        d->windows[i] = sliding ? window : 0;
        all &= sliding;
        none &= !sliding;
    }
    d->window = all ? window : none ? 0 : VP_WINDOW_OF_INSTANCE;
    if (all || none)
        d->windows = NULL;
out:
    return st;
}

vp_status vp_decoder_read_qwen_windows(vp_model *model, const vp_json_node *config, vp_decoder *d,
                                       vp_err *err)
{
    bool      use   = false;
    int64_t   first = 28;
    vp_status st    = VP_OK;

    if (vp_json_has(config, "use_sliding_window"))
        VP_TRY(vp_json_bool(config, "use_sliding_window", &use, err));
    if (use)
        VP_TRY(vp_decoder_read_window(model, config, 4096, d, err));
    if (use && vp_json_has(config, "max_window_layers"))
        VP_TRY(vp_json_int(config, "max_window_layers", 0, INT64_MAX, &first, err));
    VP_TRY(vp_decoder_read_layer_types(model, config, d->window, first, 1, d, err));
out:
    return st;
}

/* ---- building ---- */

void vp_decoder_begin(vp_builder *b, vp_model *model, vp_decoder *d, double embedding_scale)
{
    vp_build_begin(b, model, d->std);
    d->rope_idx = vp_build_add_rope(b, &d->rope);
    vp_build_template(b, "embedding");
    vp_build_output(b, vp_build_embedding(b, &(vp_embedding){.name  = "embed_tokens",
                                                             .table = "model.embed_tokens.weight",
                                                             .rows  = d->vocab,
                                                             .cols  = d->hidden,
                                                             .padding_row = d->padding_row,
                                                             .scale       = embedding_scale}));
}

static int projection(vp_builder *b, const char *name, const char *prefix, int x, int64_t out,
                      bool bias)
{
    return vp_build_linear(b, &(vp_linear){.name   = name,
                                           .x      = x,
                                           .out    = out,
                                           .prefix = prefix,
                                           .bias   = bias,
                                           .layout = VP_WEIGHT_OUT_IN});
}

int vp_decoder_attention(vp_builder *b, const vp_decoder *d, int x, const vp_rmsnorm *qk_norm,
                         double scale, double softcap)
{
    vp_heads q_heads = {.n = d->heads.n, .dim = d->heads.dim, .layout = VP_QKV_APART},
             k_heads = q_heads;
    int q, k, v;

    assert(d->heads.n_kv >= 1 && d->heads.n % d->heads.n_kv == 0);
    k_heads.n = d->heads.n_kv;
    q = projection(b, "q_proj", "model.layers.{}.self_attn.q_proj", x, d->heads.n * d->heads.dim,
                   d->qkv_bias);
    k = projection(b, "k_proj", "model.layers.{}.self_attn.k_proj", x, d->heads.n_kv * d->heads.dim,
                   d->qkv_bias);
    v = projection(b, "v_proj", "model.layers.{}.self_attn.v_proj", x, d->heads.n_kv * d->heads.dim,
                   d->qkv_bias);
    if (qk_norm) {
        q = vp_build_rmsnorm(b, "q_norm", q, "model.layers.{}.self_attn.q_norm", qk_norm);
        k = vp_build_rmsnorm(b, "k_norm", k, "model.layers.{}.self_attn.k_norm", qk_norm);
    }
    q = vp_build_rope(b, "q_rope", q, &q_heads, d->rope_idx);
    k = vp_build_rope(b, "k_rope", k, &k_heads, d->rope_idx);
    return vp_build_attention(
        b, &d->heads,
        &(vp_attention){.name    = "attention",
                        .q       = q,
                        .k       = k,
                        .v       = v,
                        .lengths = -1,
                        .window  = d->window,
                        .scale   = scale != 0 ? scale : 1.0 / sqrt((double)d->heads.dim),
                        .softcap = softcap,
                        .p       = d->attn_p});
}

int vp_decoder_o_proj(vp_builder *b, const vp_decoder *d, int x)
{
    return projection(b, "o_proj", "model.layers.{}.self_attn.o_proj", x, d->hidden, d->o_bias);
}

int vp_decoder_mlp(vp_builder *b, const vp_decoder *d, int x)
{
    int gate =
        projection(b, "gate_proj", "model.layers.{}.mlp.gate_proj", x, d->inner, d->mlp_bias);
    int up = projection(b, "up_proj", "model.layers.{}.mlp.up_proj", x, d->inner, d->mlp_bias);

    return vp_build_glu(b, "act", gate, up, d->act);
}

int vp_decoder_down_proj(vp_builder *b, const vp_decoder *d, int x)
{
    return projection(b, "down_proj", "model.layers.{}.mlp.down_proj", x, d->hidden, d->mlp_bias);
}

void vp_decoder_block(vp_builder *b, const vp_decoder *d, const vp_rmsnorm *norm,
                      const vp_rmsnorm *qk_norm)
{
    int x, y;

    vp_build_block_template(b, "layers");
    x       = vp_build_input(b, d->hidden);
    b->part = VP_PART_ATTENTION;
    y       = vp_build_rmsnorm(b, "input_layernorm", x, "model.layers.{}.input_layernorm", norm);
    y       = vp_decoder_attention(b, d, y, qk_norm, 0, 0);
    b->part = VP_PART_NONE;
    x       = vp_build_add(b, "attention.residual", x, vp_decoder_o_proj(b, d, y));
    b->part = VP_PART_MLP;
    y       = vp_build_rmsnorm(b, "post_attention_layernorm", x,
                               "model.layers.{}.post_attention_layernorm", norm);
    y       = vp_decoder_mlp(b, d, y);
    b->part = VP_PART_NONE;
    vp_build_output(b, vp_build_add(b, "mlp.residual", x, vp_decoder_down_proj(b, d, y)));
}

vp_status vp_decoder_finish(vp_builder *b, const vp_decoder *d, const vp_rmsnorm *norm,
                            double softcap, vp_err *err)
{
    vp_build_template(b, "head");
    int x = vp_build_rmsnorm(b, "norm", vp_build_input(b, d->hidden), "model.norm", norm);
    vp_build_decoder_head(
        b,
        &(vp_lm_head){
            .x = x, .vocab = d->vocab, .tied = d->tied, .prefix = "lm_head", .softcap = softcap},
        "score");
    b->b.graph->max_seq = d->max_positions;
    return vp_build_finish(b, d->n_layers, d->windows, err);
}
