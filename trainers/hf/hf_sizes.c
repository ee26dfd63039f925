#include "trainers/hf/hf_sizes.h"

#include <string.h>

/* A family's field names, NULL: no such field; and what the class takes where one is missing, 0: it
 * follows from the others, -1: it must be there. */
typedef struct family_fields {
    const char *family, *task;
    const char *hidden, *heads, *inner, *positions, *layers;
    int64_t     n_kv, head_dim, inner_of_hidden;
    bool        tied;
} family_fields;

static const family_fields families[] = {
    {"gpt2", "clm", "n_embd", "n_head", "n_inner", "n_positions", "n_layer", 0, 0, 4, true},
    {"llama", "clm", "hidden_size", "num_attention_heads", "intermediate_size",
     "max_position_embeddings", "num_hidden_layers", 0, 0, 0, false},
    {"mistral", "clm", "hidden_size", "num_attention_heads", "intermediate_size",
     "max_position_embeddings", "num_hidden_layers", 8, 0, 0, false},
    {"qwen2", "clm", "hidden_size", "num_attention_heads", "intermediate_size",
     "max_position_embeddings", "num_hidden_layers", 32, 0, 0, false},
    {"qwen3", "clm", "hidden_size", "num_attention_heads", "intermediate_size",
     "max_position_embeddings", "num_hidden_layers", 32, 128, 0, false},
    {"gemma2", "clm", "hidden_size", "num_attention_heads", "intermediate_size",
     "max_position_embeddings", "num_hidden_layers", 4, 256, 0, true},
    {"phi3", "clm", "hidden_size", "num_attention_heads", "intermediate_size",
     "max_position_embeddings", "num_hidden_layers", 0, 0, 0, false},
    {"opt", "clm", "hidden_size", "num_attention_heads", "ffn_dim", "max_position_embeddings",
     "num_hidden_layers", 0, 0, 0, true},
    {"gpt_neox", "clm", "hidden_size", "num_attention_heads", "intermediate_size",
     "max_position_embeddings", "num_hidden_layers", 0, 0, 0, false},
    {"bert", "mlm", "hidden_size", "num_attention_heads", "intermediate_size",
     "max_position_embeddings", "num_hidden_layers", 0, 0, 0, true},
    {"roberta", "mlm", "hidden_size", "num_attention_heads", "intermediate_size",
     "max_position_embeddings", "num_hidden_layers", 0, 0, 0, true},
};

static int64_t field(const vp_model *model, const char *key, int64_t fallback)
{
    const json_t *value = json_object_get(model->config, key);

    return json_is_integer(value) ? (int64_t)json_integer_value(value)
           : json_is_real(value)  ? (int64_t)json_real_value(value)
                                  : fallback;
}

vp_status vp_hf_sizes_read(const vp_model *model, vp_hf_sizes *out, vp_err *err)
{
    const family_fields *f  = NULL;
    int64_t             *at = out->symbols.at;
    const json_t        *tied;

    *out = (vp_hf_sizes){0};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].family, model->family) == 0)
            f = &families[i];
    if (!f)
        return VP_FAIL(
            err, VP_ERR_INPUT,
            "no training step of family %s was recorded; there are gpt2, llama, mistral, "
            "qwen2, qwen3, gemma2, phi3, opt, gpt_neox, bert and roberta",
            model->family);
    if (model->head != (strcmp(f->task, "mlm") == 0 ? VP_HEAD_MASKED : VP_HEAD_NEXT_TOKEN))
        return VP_FAIL(err, VP_ERR_INPUT, "no training step of class %s was recorded, only of %s",
                       model->class_name,
                       strcmp(f->task, "mlm") == 0 ? "masked language models"
                                                   : "causal language models");
    at[VP_SYM_h]  = field(model, f->hidden, -1);
    at[VP_SYM_a]  = field(model, f->heads, -1);
    at[VP_SYM_f]  = field(model, f->inner, f->inner_of_hidden * at[VP_SYM_h]);
    at[VP_SYM_V]  = field(model, "vocab_size", -1);
    at[VP_SYM_P]  = field(model, f->positions, 0);
    at[VP_SYM_T]  = field(model, "type_vocab_size", 2);
    out->n_layers = field(model, f->layers, -1);
    if (at[VP_SYM_h] < 1 || at[VP_SYM_a] < 1 || at[VP_SYM_f] < 1 || at[VP_SYM_V] < 1 ||
        out->n_layers < 1)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "%s: a recorded step needs the config's %s, %s, %s, vocab_size and %s",
                       model->name, f->hidden, f->heads, f->inner, f->layers);
    at[VP_SYM_k] = field(model, "num_key_value_heads", f->n_kv ? f->n_kv : at[VP_SYM_a]);
    at[VP_SYM_d] =
        field(model, "head_dim", f->head_dim ? f->head_dim : at[VP_SYM_h] / at[VP_SYM_a]);
    out->grouped = at[VP_SYM_k] != at[VP_SYM_a];
    tied         = json_object_get(model->config, "tie_word_embeddings");
    out->tied    = json_is_boolean(tied) ? json_is_true(tied) : f->tied;
    out->task    = f->task;
    return VP_OK;
}

/* A window changes nothing while the sequence is shorter. */
static bool window_is_idle(const vp_model *model, const json_t *window, int64_t seq)
{
    const json_t *used = json_object_get(model->config, "use_sliding_window");

    return json_is_false(used) || json_is_null(window) ||
           (json_is_integer(window) && seq < json_integer_value(window));
}

static vp_status check_choice(const vp_model *model, const char *key, const char *recorded_text,
                              int64_t seq, vp_err *err)
{
    json_t       *recorded = json_loads(recorded_text, JSON_DECODE_ANY, NULL);
    const json_t *here     = json_object_get(model->config, key);
    char         *text     = here ? json_dumps(here, JSON_ENCODE_ANY) : NULL;
    vp_status     st       = VP_OK;

    if (!recorded)
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "a recording requires \"%s\" of %s", recorded_text, key));
    if (!here || json_equal(here, recorded))
        goto out;
    if (strcmp(key, "sliding_window") == 0 && window_is_idle(model, here, seq))
        goto out;
    if (json_is_null(here) && strcmp(recorded_text, "false") == 0)
        goto out;
    st = VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, key,
                    "%s was recorded with %s; with %s its training step is not known",
                    model->family, recorded_text, text ? text : "another value");
out:
    json_decref(recorded);
    free(text);
    return st;
}

static vp_status check_dropout(const vp_model *model, const char *key, const char *recorded,
                               vp_err *err)
{
    const json_t *here = json_object_get(model->config, key);
    bool          some = strcmp(recorded, "some") == 0;

    if (!json_is_number(here) || (json_number_value(here) > 0) == some)
        return VP_OK;
    return VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, key,
                      "%s was recorded %s this dropout; its training step %s it is not known",
                      model->family, some ? "with" : "without", some ? "without" : "with");
}

static vp_status check_rope(const vp_model *model, vp_err *err)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};

    for (int i = 0; i < 2; i++) {
        const json_t *rope = json_object_get(model->config, keys[i]);
        const char   *type = json_string_value(json_object_get(rope, "rope_type"));
        if (!type)
            type = json_string_value(json_object_get(rope, "type"));
        if (type && (strcmp(type, "dynamic") == 0 || strcmp(type, "longrope") == 0 ||
                     strcmp(type, "su") == 0))
            return VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, keys[i],
                              "rotary scaling of type %s was not recorded", type);
    }
    return VP_OK;
}

vp_status vp_hf_check_config(const vp_model *model, const vp_recording *recording, int64_t seq,
                             vp_err *err)
{
    const char *line;
    char        kind[16], key[80];
    int         used;
    vp_status   st = VP_OK;

    for (int64_t i = 0; (line = vp_recording_requirement(recording, i)); i++) {
        if (sscanf(line, "%15s %79s %n", kind, key, &used) != 2)
            VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "a recording requires \"%s\"", line));
        else if (strcmp(kind, "choice") == 0)
            VP_TRY(check_choice(model, key, line + used, seq, err));
        else
            VP_TRY(check_dropout(model, key, line + used, err));
    }
    VP_TRY(check_rope(model, err));
out:
    return st;
}
