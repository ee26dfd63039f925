#include "trainers/hf/hf_sizes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "SYMBOL KEY ABSENT NULL" of a recording; KEY is as vp_model_field() takes it, and may end in "+2": the size is two more; or in "*d": it is that share of d. */
typedef struct field {
    char symbol[16], key[64], absent[32], null[32];
} field;

static bool is_integer(const json_t *value, const field *f, int64_t *out)
{
    if (json_is_boolean(value) && strcmp(f->symbol, "tied") == 0)
        *out = json_is_true(value);
    else if (json_is_integer(value))
        *out = (int64_t)json_integer_value(value);
    else if (json_is_real(value) &&
             json_real_value(value) == (double)(int64_t)json_real_value(value))
        *out = (int64_t)json_real_value(value);
    else
        return false;
    return true;
}

/* What a checkpoint's config always says: the number that the class has instead is no checkpoint's. But of a part transformers
 * writes only what the class has otherwise (5.17, configuration_utils.py: recursive_diff_dict). */
static bool is_required(const field *f)
{
    return strchr("hafVLMEt", f->symbol[0]) && !f->symbol[1] && !strchr(f->key, '.') &&
           f->absent[strspn(f->absent, "0123456789")] == '\0';
}

/* A size that is written as another thing: "12" in quotes, 12.5, a list. */
static vp_status refuse_value(const vp_model *model, const field *f, const json_t *value,
                              vp_err *err)
{
    char     *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT), shown[48];
    vp_status st   = text ? VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, f->key,
                                       "%s is no size; a whole number without quotes is",
                                       vp_text_escape(text, shown, sizeof shown))
                          : VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");

    free(text);
    return st;
}

/* Bloom's class reads these names too, n_embed before hidden_size (5.17, configuration_bloom.py). */
static const json_t *field_of_bloom(const vp_model *model, const char *key)
{
    const json_t *width = vp_model_field(model, "n_embed"), *value = vp_model_field(model, key);

    if (strcmp(key, "hidden_size") == 0 && json_is_integer(width))
        return width;
    if (!value && strcmp(key, "n_head") == 0)
        return vp_model_field(model, "num_attention_heads");
    return !value && strcmp(key, "n_layer") == 0 ? vp_model_field(model, "num_hidden_layers")
                                                 : value;
}

/* A field of the config. Where transformers 5.17 wrote it, sizes that some layers have otherwise are in a table of these layers, all
 * alike (hf_layers.c looks at that). */
static const json_t *field_of(const vp_model *model, const char *key)
{
    if (strcmp(model->family, "bloom") == 0)
        return field_of_bloom(model, key);
    static const char *const tabled[][2] = {
        {"text_config.global_head_dim", "head_dim"},
        {"text_config.num_global_key_value_heads", "num_key_value_heads"}};
    const json_t *value = vp_model_field(model, key);
    json_t       *table = (json_t *)vp_model_field(model, "text_config.per_layer_config");

    for (size_t i = 0; !value && i < sizeof tabled / sizeof *tabled; i++)
        if (strcmp(tabled[i][0], key) == 0)
            value = json_object_get(json_object_iter_value(json_object_iter(table)), tabled[i][1]);
    return value;
}

/* The value of a field: the config's, of its labels how many, or what the class takes where it has none. */
static vp_status value_of(const vp_model *model, const field *f, vp_hf_sizes *s, int64_t *out,
                          vp_err *err)
{
    bool          is_labels = strcmp(f->key, "id2label") == 0;
    const json_t *value     = field_of(model, f->key);
    const json_t *number    = is_labels ? json_object_get(model->config, "num_labels") : NULL;
    vp_err        why       = {0};

    if (json_is_integer(number)) /* of both, transformers takes this one and names labels anew */
        value = number;
    const char *other = !value ? f->absent : json_is_null(value) ? f->null : NULL;

    *out = -1;
    if (json_is_object(value) && is_labels) {
        *out = (int64_t)json_object_size(value);
        return VP_OK;
    }
    if (!other)
        return is_integer(value, f, out) ? VP_OK : refuse_value(model, f, value, err);
    if (strcmp(other, "-") == 0)
        return VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, f->key,
                          "a recorded step of %s needs this size", model->family);
    if (!value && is_required(f))
        return VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, f->key,
                          "is missing: a size that the model cannot do without");
    size_t n = strlen(s->defaults);
    if (!value && other == f->absent && strcmp(f->absent, f->null) != 0)
        snprintf(s->defaults + n, sizeof s->defaults - n, "%s%s %s", n ? ", " : "", f->key, other);
    if (vp_symbols_evaluate(&s->symbols, other, out, &why) == VP_OK)
        return VP_OK;
    return VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, f->key,
                      "is not in the config, and what stands in for it, %s, is no whole number "
                      "(h hidden_size, a num_attention_heads)",
                      other);
}

/* A share of another size, rounded down as the class does (int(head_dim * partial_rotary_factor)). Its key is the config's own or,
 * as transformers 5 writes it, among those of rope_parameters. */
static vp_status share_of(const vp_model *model, const field *f, const char *of, vp_hf_sizes *s,
                          int64_t *out, vp_err *err)
{
    const json_t  *value = vp_model_field(model, f->key);
    const int64_t *whole = vp_symbol_named(&s->symbols, of);

    if (!value) {
        const char *name = strrchr(f->key, '.');
        value            = json_object_get(name ? vp_model_text_field(model, "rope_parameters")
                                                : json_object_get(model->config, "rope_parameters"),
                                name ? name + 1 : f->key);
    }
    if (!value || json_is_null(value) || !whole)
        return value_of(model, f, s, out, err);
    double share = json_number_value(value);
    if (!json_is_number(value) || !(share > 0 && share <= 1))
        return VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, f->key,
                          "is no share: a number above 0, up to 1, is");
    *out = (int64_t)((double)*whole * share);
    return VP_OK;
}

static vp_status keep(const vp_model *model, const field *f, int64_t value, vp_hf_sizes *s,
                      vp_err *err)
{
    int64_t *at = vp_symbol_named(&s->symbols, f->symbol);

    if (strcmp(f->symbol, "tied") == 0)
        s->tied = value != 0;
    else if (strcmp(f->symbol, "window") == 0)
        s->window = value;
    else if (strcmp(f->symbol, "shared") == 0)
        s->n_layers[1] = value;
    else if (value < 1)
        return VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, f->key, "%lld is no size",
                          (long long)value);
    else if ((strcmp(f->symbol, "L") == 0 || strcmp(f->symbol, "M") == 0) && value > VP_MAX_LAYERS)
        return VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, f->key,
                          "%s must be between 1 and %d, is %lld", f->key, VP_MAX_LAYERS,
                          (long long)value);
    else if (strcmp(f->symbol, "L") == 0 || strcmp(f->symbol, "M") == 0)
        s->n_layers[f->symbol[0] - 'L'] = value;
    else if (!at)
        return VP_FAIL(err, VP_ERR_INPUT, "a recording has a size \"%s\"", f->symbol);
    else if (*f->symbol == 'e' && value == s->symbols.at[VP_SYM_h])
        return VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, f->key,
                          "%s was recorded with another width of tokens than hidden_size here; "
                          "with %lld both its training step is not known",
                          model->family, (long long)value);
    else if (*at && *at != value)
        return VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, f->key,
                          "%s was recorded with one size for this and another field, not with %lld "
                          "and %lld",
                          model->family, (long long)value, (long long)*at);
    else
        *at = value;
    return VP_OK;
}

/* By what of its layers differ from those of 31B: experts, the last ones' keys and values those of others, and wider ones. */
static const char *kind_of_gemma4(const vp_model *model)
{
    const json_t *shared = vp_model_field(model, "text_config.num_kv_shared_layers");

    if (json_is_true(vp_model_field(model, "text_config.enable_moe_block")))
        return "gemma4_moe";
    if (!json_is_integer(shared) || json_integer_value(shared) == 0)
        return "gemma4";
    return json_is_true(vp_model_field(model, "text_config.use_double_wide_mlp")) ? "gemma4_e2b"
                                                                                  : "gemma4_e4b";
}

/* Of Qwen 3-VL from 8B on, not that of 2B and 4B. */
static bool has_wider_tower(const vp_model *model)
{
    const json_t *width = vp_model_field(model, "vision_config.hidden_size");

    return !json_is_integer(width) || json_integer_value(width) == 1152; /* its class's */
}

const char *vp_hf_recorded_family(const vp_model *model)
{
    const char *inner = json_string_value(vp_model_field(model, "feed_forward_proj"));
    const char *act   = json_string_value(vp_model_field(model, "hidden_act"));

    if (strcmp(model->family, "opt") == 0 &&
        json_is_false(vp_model_field(model, "do_layer_norm_before")))
        return "opt_post";
    if (strcmp(model->family, "mt5") == 0 ||
        (strcmp(model->family, "t5") == 0 && inner && strncmp(inner, "gated-", 6) == 0))
        return "t5_gated";
    if (strcmp(model->family, "electra") == 0 &&
        !json_equal(vp_model_field(model, "embedding_size"), vp_model_field(model, "hidden_size")))
        return "electra_narrow";
    if (strcmp(model->family, "gpt_neox") == 0 && act && strcmp(act, "gelu_fast") == 0)
        return "gpt_neox_fast";
    if (strcmp(model->family, "gemma4") == 0)
        return kind_of_gemma4(model);
    if (strcmp(model->family, "exaone4") == 0 &&
        json_is_null(vp_model_field(model, "sliding_window")))
        return "exaone4_full";
    if (strcmp(model->family, "llama") == 0 &&
        json_is_true(vp_model_field(model, "attention_bias")))
        return json_is_true(vp_model_field(model, "mlp_bias")) ? "llama_biased" : "llama_qkvo";
    if (strcmp(model->family, "qwen3_vl") == 0)
        return has_wider_tower(model) ? "qwen3_vl_8b" : "qwen3_vl";
    if (strcmp(model->family, "qwen3_5") == 0 || strcmp(model->family, "qwen3_5_text") == 0)
        return json_equal(vp_model_text_field(model, "linear_num_key_heads"),
                          vp_model_text_field(model, "linear_num_value_heads"))
                   ? "qwen3_5_even"
                   : "qwen3_5";
    if (strcmp(model->family, "qwen3_5_moe_text") == 0)
        return "qwen3_5_moe";
    return model->family;
}

bool vp_hf_has_tower(const vp_model *model)
{
    return vp_model_field(model, "vision_config") &&
           strncmp(model->family, "qwen3_5", strlen("qwen3_5")) != 0;
}

/* A token's position is counted from behind the padding token's number (create_position_ids_from_input_ids). */
static int64_t unused_positions(const vp_model *model)
{
    const json_t *padding = vp_model_field(model, "pad_token_id");

    if (strcmp(model->family, "xlm-roberta") != 0 && strcmp(model->family, "mpnet") != 0)
        return 0;
    return json_is_integer(padding) ? (int64_t)json_integer_value(padding) + 1 : 2;
}

/* Layers that have keys and values of others are the second group of all there are. */
static vp_status part_layers(const vp_model *model, const vp_recording *recording, vp_hf_sizes *s,
                             vp_err *err)
{
    const char *line;

    for (int64_t i = 0; (line = vp_recording_field(recording, i)); i++) {
        if (strncmp(line, "shared ", strlen("shared ")) != 0)
            continue;
        s->n_layers[0] -= s->n_layers[1];
        if (s->n_layers[0] < 1 || s->n_layers[1] < 1)
            return VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, "num_kv_shared_layers",
                              "%lld of %lld layers; there are some of both kinds",
                              (long long)s->n_layers[1],
                              (long long)(s->n_layers[0] + s->n_layers[1]));
    }
    return VP_OK;
}

vp_status vp_hf_sizes_read(const vp_model *model, const vp_recording *recording, vp_hf_sizes *out,
                           vp_err *err)
{
    const char *line;
    field       f;
    int64_t     value;
    vp_status   st = VP_OK;

    *out = (vp_hf_sizes){.learns_positions = vp_recording_learns_positions(recording),
                         .unused_positions = unused_positions(model)};
    for (int64_t i = 0; (line = vp_recording_field(recording, i)); i++) {
        if (sscanf(line, "%15s %63s %31s %31s", f.symbol, f.key, f.absent, f.null) != 4)
            VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "a recording has a field \"%s\"", line));
        char *more = strpbrk(f.key, "+*"), kind = more ? *more : '\0';
        if (more)
            *more++ = '\0';
        VP_TRY(kind == '*' ? share_of(model, &f, more, out, &value, err)
                           : value_of(model, &f, out, &value, err));
        int64_t beside = kind == '+' ? strtol(more, NULL, 10) : 0;
        value += beside;
        if (strcmp(f.symbol, "P") == 0)
            out->unused_positions += beside;
        VP_TRY(keep(model, &f, value, out, err));
    }
    VP_TRY(part_layers(model, recording, out, err));
    const int64_t *at = out->symbols.at;
    if (at[VP_SYM_a] && at[VP_SYM_a] % (at[VP_SYM_k] ? at[VP_SYM_k] : 1))
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT,
                       "%s: %lld heads are no multiple of %lld key and value heads", model->name,
                       (long long)at[VP_SYM_a], (long long)at[VP_SYM_k]));
    if (at[VP_SYM_j] && at[VP_SYM_z] % at[VP_SYM_j])
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT,
                       "%s: %lld value heads of linear attention are no multiple of %lld key heads",
                       model->name, (long long)at[VP_SYM_z], (long long)at[VP_SYM_j]));
    out->heads = at[VP_SYM_k] == at[VP_SYM_a] ? VP_HF_HEADS_ALL
                 : at[VP_SYM_k] == 1          ? VP_HF_HEADS_ONE
                                              : VP_HF_HEADS_GROUPED;
    if (json_is_false(json_object_get(model->config, "use_sliding_window")))
        out->window = 0;
out:
    return st;
}

/* A list of words is what older configs write with bars between them: "p2c|c2p". */
static json_t *joined(const json_t *value)
{
    char          text[80] = "";
    size_t        i, n = 0;
    const json_t *word;

    if (!json_is_array(value))
        return json_incref((json_t *)value);
    json_array_foreach (value, i, word)
        if (json_is_string(word) && n < sizeof text)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i ? "|" : "",
                                  json_string_value(word));
    return json_string(text);
}

static vp_status check_choice(const vp_model *model, const char *key, const char *recorded_text,
                              vp_err *err)
{
    json_t       *recorded = json_loads(recorded_text, JSON_DECODE_ANY, NULL);
    const json_t *said     = vp_model_field(model, key);
    json_t       *here     = json_is_string(recorded) ? joined(said) : json_incref((json_t *)said);
    char         *text     = here ? json_dumps(here, JSON_ENCODE_ANY) : NULL;
    vp_status     st       = VP_OK;

    if (!recorded)
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "a recording requires \"%s\" of %s", recorded_text, key));
    if (!here || json_equal(here, recorded) || (json_is_null(here) && !json_is_true(recorded)))
        goto out;
    if (json_is_number(here) && json_is_number(recorded) &&
        json_number_value(here) == json_number_value(recorded))
        goto out;
    st = VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, key,
                    "%s was recorded with %s; with %s its training step is not known",
                    model->family, recorded_text, text ? text : "another value");
out:
    json_decref(recorded);
    json_decref(here);
    free(text);
    return st;
}

/* A choice that the class makes otherwise where the config has none. */
static vp_status check_stated(const vp_model *model, const char *key, const char *recorded,
                              vp_err *err)
{
    if (vp_model_field(model, key))
        return check_choice(model, key, recorded, err);
    return VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, key,
                      "is missing; %s was recorded with %s, and the class takes another value",
                      model->family, recorded);
}

/* A number whose sign chooses what runs. */
static vp_status check_positive(const vp_model *model, const char *key, vp_err *err)
{
    const json_t *here = vp_model_field(model, key);

    if (!json_is_number(here) || json_number_value(here) > 0)
        return VP_OK;
    return VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, key,
                      "%s was recorded with a value above 0; without one its training step is not "
                      "known",
                      model->family);
}

/* "ABSENT SYMBOL": a token that is in the table of so many; of another one inputs are copied. */
static vp_status check_below(const vp_model *model, const char *key, const char *rest,
                             vp_hf_sizes *sizes, vp_err *err)
{
    const json_t  *here = vp_model_field(model, key);
    long long      absent;
    char           symbol[16];
    const int64_t *rows = sscanf(rest, "%lld %15s", &absent, symbol) == 2
                              ? vp_symbol_named(&sizes->symbols, symbol)
                              : NULL;

    if (!rows)
        return VP_FAIL(err, VP_ERR_INPUT, "a recording requires \"%s\" of %s", rest, key);
    int64_t token = here ? (int64_t)json_integer_value(here) : absent;
    if (token >= 0 && token < *rows)
        return VP_OK;
    return VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, key,
                      "%s was recorded with a token of its table; %lld is none of %lld",
                      model->family, (long long)token, (long long)*rows);
}

/* Dropouts that the recording has are there, all of them or none. Those that it has not, for the class has none, are a variant
 * of their own. */
static vp_status check_dropout(const vp_model *model, const char *key, bool recorded, int *none,
                               vp_hf_sizes *sizes, vp_err *err)
{
    const json_t *here   = vp_model_field(model, key);
    bool          some   = json_is_number(here) ? json_number_value(here) > 0 : recorded;
    size_t        length = strlen(sizes->dropouts);

    if (some && !recorded) {
        snprintf(sizes->dropouts + length, sizeof sizes->dropouts - length, "%s%s",
                 length ? "+" : "", key);
        return VP_OK;
    }
    if (some == recorded && (!recorded || *none != 1)) {
        *none = recorded ? 0 : *none;
        return VP_OK;
    }
    if (recorded && !some && *none != 0) {
        *none = 1;
        return VP_OK;
    }
    return VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, key,
                      "%s was recorded with this dropout, or without any; its training step "
                      "without it is not known",
                      model->family);
}

/* longrope, which Phi 3's first configs call su, takes its frequencies anew in each pass (transformers 5.17,
 * modeling_rope_utils.py: longrope_frequency_update): 512 bytes. dynamic's depend on the longest sequence so far. */
static vp_status check_rope(const vp_model *model, vp_hf_sizes *sizes, vp_err *err)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};

    for (int i = 0; i < 2; i++) {
        const json_t *rope = vp_model_text_field(model, keys[i]);
        const char   *type = json_string_value(json_object_get(rope, "rope_type"));
        if (!type)
            type = json_string_value(json_object_get(rope, "type"));
        sizes->has_longrope |= type && (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0);
        if (type && strcmp(type, "dynamic") == 0)
            return VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, keys[i],
                              "rotary scaling of type %s was not recorded", type);
    }
    return VP_OK;
}

/* What any class of transformers' may be told and no recorded step was: feed-forward layers that run so many
 * tokens at a time, and an output that keeps what every layer gave, attention's matrices too. */
static vp_status check_output(const vp_model *model, vp_err *err)
{
    const json_t            *chunk  = vp_model_field(model, "chunk_size_feed_forward");
    static const char *const kept[] = {"output_hidden_states", "output_attentions"};

    if (json_is_number(chunk) && json_number_value(chunk) > 0)
        return VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, "chunk_size_feed_forward",
                          "%s was recorded with 0; with %lld tokens at a time its training step is "
                          "not known",
                          model->family, (long long)json_number_value(chunk));
    for (int i = 0; i < 2; i++)
        if (json_is_true(vp_model_field(model, kept[i])))
            return VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, kept[i],
                              "%s was recorded with false; with true the output keeps what every "
                              "layer gave, and that step is not known",
                              model->family);
    return VP_OK;
}

vp_status vp_hf_check_config(const vp_model *model, const vp_recording *recording,
                             vp_hf_sizes *sizes, vp_err *err)
{
    const char *line;
    char        kind[16], key[80];
    int         used, none = -1;
    vp_status   st = VP_OK;

    for (int64_t i = 0; (line = vp_recording_requirement(recording, i)); i++) {
        if (sscanf(line, "%15s %79s %n", kind, key, &used) != 2)
            VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "a recording requires \"%s\"", line));
        else if (strcmp(kind, "choice") == 0)
            VP_TRY(check_choice(model, key, line + used, err));
        else if (strcmp(kind, "stated") == 0)
            VP_TRY(check_stated(model, key, line + used, err));
        else if (strcmp(kind, "positive") == 0)
            VP_TRY(check_positive(model, key, err));
        else if (strcmp(kind, "below") == 0)
            VP_TRY(check_below(model, key, line + used, sizes, err));
        else
            VP_TRY(check_dropout(model, key, strcmp(line + used, "some") == 0, &none, sizes, err));
    }
    sizes->without_dropout = none == 1;
    if (none == 1 && sizes->dropouts[0])
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, sizes->dropouts,
                          "%s was recorded with the dropouts of its class, or without any; its "
                          "training step with others in place of them is not known",
                          model->family));
    VP_TRY(check_rope(model, sizes, err));
    VP_TRY(check_output(model, err));
out:
    return st;
}
