#include "trainers/hf/hf_layers.h"

#include <stdlib.h>
#include <string.h>

/* Which of a family's layers attend to all tokens, and which are not rotated: of every so many the last one, or the first; 0: all
 * attend, all are rotated (transformers 5.17, models/FAMILY/configuration_FAMILY.py). Other classes do not read layer_types. */
static const struct pattern {
    const char *family,
        *every_key; /* of the config: how many, where it has no list; NULL: it has to have one */
    int         full_every, still_every;
    bool        first_is_full;
    const char *others; /* layers that do not attend to all; NULL: those with a window */
} patterns[] = {
    {"gemma2", "sliding_window_pattern", 2, 0, false, NULL},
    {"gemma3_text", "sliding_window_pattern", 6, 0, false, NULL},
    {"gemma3", "sliding_window_pattern", 6, 0, false, NULL},
    {"gemma4", "sliding_window_pattern", 6, 0, false, NULL},
    {"gemma4_e4b", "sliding_window_pattern", 6, 0, false, NULL},
    {"gemma4_e2b", NULL, 5, 0, false, NULL},
    {"olmo3", "sliding_window_pattern", 4, 0, false, NULL},
    {"gpt_oss", "sliding_window_pattern", 2, 0, false, NULL},
    {"exaone4", "sliding_window_pattern", 4, 0, false, NULL},
    {"exaone4_full", "sliding_window_pattern", 0, 0, false, NULL},
    {"cohere2", "sliding_window_pattern", 4, 0, false, NULL},
    {"modernbert", "global_attn_every_n_layers", 3, 0, true, NULL},
    {"qwen2", "sliding_window_pattern", 0, 0, false, NULL},
    {"qwen2_5_vl", "sliding_window_pattern", 0, 0, false, NULL},
    {"qwen3", "sliding_window_pattern", 0, 0, false, NULL},
    {"qwen3_moe", "sliding_window_pattern", 0, 0, false, NULL},
    {"smollm3", "sliding_window_pattern", 0, 4, false, NULL},
    {"qwen3_5", "full_attention_interval", 4, 0, false, "linear_attention"},
    {"qwen3_5_moe", "full_attention_interval", 4, 0, false, "linear_attention"},
    {"qwen3_5_even", "full_attention_interval", 4, 0, false, "linear_attention"},
};

/* Elements of a head that flash attention takes. */
enum { MOST_OF_FLASH = 256 };

static vp_status refuse(const vp_model *model, const char *key, vp_err *err)
{
    return VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, key,
                      "%s was recorded with the layers of its class by default; with this %s its "
                      "training step is not known",
                      model->family, key);
}

static bool is_last(int64_t i, int every)
{
    return every && (i + 1) % every == 0;
}

/* A list of the config, with an entry for each layer; NULL: none. */
static vp_status list_of(const vp_model *model, const char *key, int64_t n_layers,
                         const json_t **out, vp_err *err)
{
    const json_t *list = vp_model_text_field(model, key);

    *out = list && !json_is_null(list) ? list : NULL;
    if (*out && (!json_is_array(list) || (int64_t)json_array_size(list) != n_layers))
        return VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, key,
                          "is no list of %lld entries, one for each layer", (long long)n_layers);
    return VP_OK;
}

static vp_status check_types(const vp_model *model, const struct pattern *p, int64_t n_layers,
                             vp_err *err)
{
    const json_t *types = NULL,
                 *every = p->every_key ? vp_model_text_field(model, p->every_key) : NULL;
    const char *other   = p->others ? p->others : "sliding_attention";
    vp_status   st      = VP_OK;

    VP_TRY(list_of(model, "layer_types", n_layers, &types, err));
    for (int64_t i = 0; types && i < n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        bool        full = !p->full_every ||
                    (p->first_is_full ? i % p->full_every == 0 : is_last(i, p->full_every));
        if (!type || strcmp(type, full ? "full_attention" : other) != 0)
            VP_TRY(refuse(model, "layer_types", err));
    }
    if (!types && !p->every_key)
        VP_TRY(refuse(model, "layer_types", err));
    if (!types && p->full_every && json_is_integer(every) &&
        json_integer_value(every) != p->full_every)
        VP_TRY(refuse(model, p->every_key, err));
out:
    return st;
}

/* Sizes that layers have otherwise, as transformers 5.17 writes them: of those that attend to all, all alike. */
static vp_status check_table(const vp_model *model, const struct pattern *p, int64_t n_layers,
                             vp_err *err)
{
    json_t       *table = (json_t *)vp_model_text_field(model, "per_layer_config");
    const json_t *first = json_object_iter_value(json_object_iter(table)), *each;
    const char   *layer;

    if (!table || json_is_null(table))
        return VP_OK;
    bool as_recorded =
        p->full_every && (int64_t)json_object_size(table) == n_layers / p->full_every;
    json_object_foreach (table, layer, each)
        as_recorded &= json_equal(each, first) && is_last(strtoll(layer, NULL, 10), p->full_every);
    return as_recorded ? VP_OK : refuse(model, "per_layer_config", err);
}

/* SmolLM3's: 1 where a layer is rotated. */
static vp_status check_rotated(const vp_model *model, const struct pattern *p, int64_t n_layers,
                               vp_err *err)
{
    const json_t *rotated = NULL, *every = vp_model_text_field(model, "no_rope_layer_interval");
    vp_status     st = VP_OK;

    VP_TRY(list_of(model, "no_rope_layers", n_layers, &rotated, err));
    for (int64_t i = 0; rotated && i < n_layers; i++)
        if (json_integer_value(json_array_get(rotated, (size_t)i)) != !is_last(i, p->still_every))
            VP_TRY(refuse(model, "no_rope_layers", err));
    if (!rotated && json_is_integer(every) && json_integer_value(every) != p->still_every)
        VP_TRY(refuse(model, "no_rope_layer_interval", err));
out:
    return st;
}

/* A window that a family has only where it is asked for, which is nowhere in its recordings: of qwen's layers from max_window_layers on. */
static vp_status check_window(const vp_model *model, const struct pattern *p, int64_t n_layers,
                              vp_err *err)
{
    const json_t *from   = vp_model_text_field(model, "max_window_layers");
    const json_t *window = vp_model_text_field(model, "sliding_window");

    if (p->full_every || !json_is_true(vp_model_text_field(model, "use_sliding_window")) ||
        json_is_null(window) || (json_is_integer(from) && json_integer_value(from) >= n_layers))
        return VP_OK;
    return refuse(model, "use_sliding_window", err);
}

vp_status vp_hf_check_layers(const vp_model *model, const vp_hf_sizes *sizes, vp_err *err)
{
    static const char *const unset[]  = {"clip_qkv"};
    const int64_t           *at       = sizes->symbols.at;
    int64_t                  n_layers = sizes->n_layers[0] + sizes->n_layers[1];
    vp_status                st       = VP_OK;

    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        if (strcmp(patterns[i].family, vp_hf_recorded_family(model)) != 0)
            continue;
        VP_TRY(check_types(model, &patterns[i], n_layers, err));
        VP_TRY(check_table(model, &patterns[i], n_layers, err));
        VP_TRY(check_window(model, &patterns[i], n_layers, err));
        if (patterns[i].still_every)
            VP_TRY(check_rotated(model, &patterns[i], n_layers, err));
    }
    for (size_t i = 0; i < sizeof unset / sizeof *unset; i++) {
        const json_t *value = vp_model_text_field(model, unset[i]);
        if (value && !json_is_null(value))
            VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, unset[i],
                              "%s was recorded without %s; with it its training step is not known",
                              model->family, unset[i]));
    }
    if (at[VP_SYM_v] && (at[VP_SYM_d] > MOST_OF_FLASH || at[VP_SYM_v] <= MOST_OF_FLASH))
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, "global_head_dim",
                          "%s was recorded with heads of at most %d elements in layers with a "
                          "window and of more in the others, which other kernels run; not with "
                          "%lld and %lld",
                          model->family, MOST_OF_FLASH, (long long)at[VP_SYM_d],
                          (long long)at[VP_SYM_v]));
    if (at[VP_SYM_E] && at[VP_SYM_t] > at[VP_SYM_E])
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, "num_experts_per_tok",
                          "%lld experts for each token of %lld that there are: the model does not "
                          "run (topk: selected index k out of range)",
                          (long long)at[VP_SYM_t], (long long)at[VP_SYM_E]));
out:
    return st;
}
