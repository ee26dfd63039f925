#include "models/config.h"

#include "base/checked.h"
#include "base/text.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void vp_model_assume(vp_model *model, const char *fmt, ...)
{
    char    text[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (vp_arena_grow(model->arena, (void **)&model->assumptions, model->n_assumptions,
                      &model->cap_assumptions, sizeof *model->assumptions))
        model->assumptions[model->n_assumptions++] = vp_arena_strdup(model->arena, text);
}

/* ---- fields ---- */

vp_status vp_config_int(const vp_json_node *config, const char *key, int64_t max, int64_t *out,
                        vp_err *err)
{
    return vp_json_int(config, key, 1, max, out, err);
}

vp_status vp_config_int_or(vp_model *model, const vp_json_node *config, const char *key,
                           int64_t max, int64_t fallback, int64_t *out, vp_err *err)
{
    if (vp_json_has(config, key))
        return vp_config_int(config, key, max, out, err);
    assert(fallback >= 1);
    *out = fallback;
    vp_model_assume(model, "%s is not in the config: the family's default %lld", key,
                    (long long)fallback);
    return VP_OK;
}

vp_status vp_config_real_or(vp_model *model, const vp_json_node *config, const char *key,
                            double max, double fallback, double *out, vp_err *err)
{
    if (vp_json_has(config, key))
        return vp_json_real(config, key, 0, max, out, err);
    *out = fallback;
    vp_model_assume(model, "%s is not in the config: the family's default %g", key, fallback);
    return VP_OK;
}

vp_status vp_config_bool_or(vp_model *model, const vp_json_node *config, const char *key,
                            bool fallback, bool *out, vp_err *err)
{
    if (vp_json_has(config, key))
        return vp_json_bool(config, key, out, err);
    *out = fallback;
    vp_model_assume(model, "%s is not in the config: the family's default %s", key,
                    fallback ? "true" : "false");
    return VP_OK;
}

vp_status vp_config_bool(const vp_json_node *config, const char *key, bool *out, vp_err *err)
{
    *out = false;
    return vp_json_has(config, key) ? vp_json_bool(config, key, out, err) : VP_OK;
}

vp_status vp_config_refuse(const vp_json_node *config, const char *key, const char *why,
                           vp_err *err)
{
    bool      set;
    vp_status st = VP_OK;

    VP_TRY(vp_config_bool(config, key, &set, err));
    if (set)
        VP_TRY(vp_json_fail(config, key, err, "%s", why));
out:
    return st;
}

vp_status vp_config_act(vp_model *model, const vp_json_node *config, const char *key,
                        vp_act fallback, vp_act *out, vp_err *err)
{
    static const struct {
        const char *name;
        vp_act      act;
    } acts[] = {{"gelu", VP_ACT_GELU},
                {"gelu_new", VP_ACT_GELU_TANH},
                {"gelu_pytorch_tanh", VP_ACT_GELU_TANH},
                {"gelu_fast", VP_ACT_GELU_TANH},
                {"relu", VP_ACT_RELU},
                {"silu", VP_ACT_SILU},
                {"swish", VP_ACT_SILU},
                {"tanh", VP_ACT_TANH}};
    enum { N_ACTS = sizeof acts / sizeof *acts };
    const char *name;
    char        shown[96], known[256] = "";
    int         i  = 0;
    vp_status   st = VP_OK;

    if (!vp_json_has(config, key)) {
        while (i < N_ACTS - 1 && acts[i].act != fallback)
            i++;
        vp_model_assume(model, "%s is not in the config: the family's default %s", key,
                        acts[i].name);
        *out = fallback;
        return VP_OK;
    }
    VP_TRY(vp_json_string(config, key, &name, err));
    for (i = 0; i < N_ACTS; i++)
        if (strcmp(acts[i].name, name) == 0) {
            *out = acts[i].act;
            return VP_OK;
        }
    for (i = 0; i < N_ACTS; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                 acts[i].name);
    VP_TRY(vp_json_fail(config, key, err, "\"%s\" is not supported; supported: %s",
                        vp_text_escape(name, shown, sizeof shown), known));
out:
    return st;
}

vp_status vp_config_dropout(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                            const char *key, double fallback, double *out, vp_err *err)
{
    double    in_config = fallback;
    vp_status st        = VP_OK;

    if (opts->dropout_from_config)
        return vp_config_real_or(model, config, key, 0.99, fallback, out, err);
    if (vp_json_has(config, key))
        VP_TRY(vp_json_real(config, key, 0, 0.99, &in_config, err));
    if (in_config != opts->dropout)
        vp_model_assume(model, "dropout is the recipe's (%g); %s of the config (%g) is not used",
                        opts->dropout, key, in_config);
    *out = opts->dropout;
out:
    return st;
}

vp_status vp_config_padding(vp_model *model, const vp_json_node *config, int64_t fallback,
                            int64_t vocab, int64_t *row, vp_err *err)
{
    const char *key = "pad_token_id";
    int64_t     pad = fallback;
    vp_status   st  = VP_OK;

    assert(vocab >= 1);
    *row = -1;
    if (json_is_null(json_object_get(config->value, key)) ||
        (!vp_json_has(config, key) && fallback == VP_NO_TOKEN))
        return VP_OK;
    if (vp_json_has(config, key))
        VP_TRY(vp_json_int(config, key, INT64_MIN, INT64_MAX, &pad, err));
    else
        vp_model_assume(model, "%s is not in the config: the family's default %lld", key,
                        (long long)pad);
    if (pad >= vocab || pad < -vocab)
        vp_model_assume(model, "%s is outside the vocabulary: no row of the table is held back",
                        key);
    else
        *row = pad < 0 ? pad + vocab : pad; /* as nn.Embedding counts from the end */
out:
    return st;
}

vp_status vp_config_check_heads(const vp_json_node *config, const char *key, int64_t n_heads,
                                int64_t hidden, vp_err *err)
{
    assert(n_heads >= 1 && hidden >= 1);
    if (hidden % n_heads != 0)
        return vp_json_fail(config, key, err, "%lld heads do not divide the width %lld",
                            (long long)n_heads, (long long)hidden);
    if (hidden / n_heads > VP_MAX_HEAD_DIM)
        return vp_json_fail(config, key, err, "a head of %lld dimensions; at most %d are supported",
                            (long long)(hidden / n_heads), VP_MAX_HEAD_DIM);
    return VP_OK;
}

vp_status vp_config_check_sizes(const vp_json_node *config, int64_t n_layers, int64_t hidden,
                                int64_t width, int64_t vocab, vp_err *err)
{
    assert(n_layers >= 1 && hidden >= 1 && width >= hidden && vocab >= 1);
    if (vp_overflowed(vp_mul(vp_mul(n_layers, vp_mul(hidden, width)), 1024)) ||
        vp_overflowed(vp_mul(vp_mul(vocab, hidden), 1024)))
        return vp_json_fail(
            config, NULL, err,
            "the layers' matrices, or a table, are more bytes than 64 bits can count");
    return VP_OK;
}

/* ---- which class ---- */

/* Why there is no answer for a class whose name ends so; "" where all there is to say is that it
 * is not supported. */
static const char *why_not(const char *name)
{
    static const struct {
        const char *ending, *why;
    } known[] = {
        {"ForQuestionAnswering", " (its loss is a softmax over positions)"},
        {"ForMultipleChoice", " (its loss is a softmax over choices)"},
        {"ForPreTraining", " (it has two losses)"},
        {"DoubleHeadsModel", " (it has two losses)"},
        {"HeadModel", ""},
        {"Model", " (it has no loss)"},
    };
    size_t n = strlen(name);

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t k = strlen(known[i].ending);
        if (n >= k && strcmp(name + n - k, known[i].ending) == 0)
            return known[i].why;
    }
    return "";
}

const vp_class *vp_class_find(const vp_class *classes, const char *name)
{
    assert(classes && name);
    while (classes->name && strcmp(classes->name, name) != 0)
        classes++;
    return classes->name ? classes : NULL;
}

vp_status vp_config_class(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                          const vp_class *classes, vp_err *err)
{
    const char     *name = opts->class_name;
    const vp_class *found;
    vp_json_node    list, element;
    char            shown[96], message[500];
    int64_t         n;
    vp_status       st = VP_OK;

    if (name) {
        vp_model_assume(model, "the class is the one asked for, %s",
                        vp_text_escape(name, shown, sizeof shown));
    } else if (!vp_json_has(config, "architectures")) {
        name = classes->name;
        vp_model_assume(model, "architectures is not in the config: %s", name);
    } else {
        VP_TRY(vp_json_array(config, "architectures", &list, &n, err));
        if (n != 1)
            VP_TRY(vp_json_fail(config, "architectures", err, "must name one class"));
        VP_TRY(vp_json_element(&list, 0, &element, err));
        VP_TRY(vp_json_as_string(&element, &name, err));
    }
    found = vp_class_find(classes, name);
    if (!found) {
        snprintf(message, sizeof message, "the class \"%s\" is not supported%s; supported:",
                 vp_text_escape(name, shown, sizeof shown), why_not(name));
        for (const vp_class *c = classes; c->name; c++)
            snprintf(message + strlen(message), sizeof message - strlen(message), "%s %s",
                     c > classes ? "," : "", c->name);
        st = opts->class_name ? VP_FAIL(err, VP_ERR_USAGE, "%s", message)
                              : vp_json_fail(&element, NULL, err, "%s", message);
        goto out;
    }
    model->class_name = found->name;
    model->head       = found->head;
out:
    return st;
}

/* ---- its labels ---- */

vp_status vp_config_labels(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                           vp_err *err)
{
    const char  *key = "num_labels", *one = "single_label_classification", *problem = one;
    vp_json_node names;
    int64_t      named = -1;
    char         shown[96];
    vp_status    st = VP_OK;

    if (vp_json_has(config, "id2label")) {
        VP_TRY(vp_json_object(config, "id2label", &names, err));
        named = (int64_t)json_object_size(names.value);
    }
    /* where both are there, transformers names the labels anew */
    if (named < 0 || vp_json_has(config, key)) {
        VP_TRY(vp_config_int_or(model, config, key, 100000000, 2, &model->n_labels, err));
        if (named >= 0 && named != model->n_labels)
            vp_model_assume(model, "id2label (%lld) is not used: num_labels says %lld",
                            (long long)named, (long long)model->n_labels);
    } else {
        key = "id2label";
        if (named == 0)
            VP_TRY(vp_json_fail(config, key, err, "names no label"));
        model->n_labels = named;
    }
    if (model->head != VP_HEAD_SEQUENCE)
        return VP_OK;
    if (vp_json_has(config, "problem_type"))
        VP_TRY(vp_json_string(config, "problem_type", &problem, err));
    if (strcmp(problem, one) != 0)
        VP_TRY(vp_json_fail(config, "problem_type", err, "\"%s\" is not supported; supported: %s",
                            vp_text_escape(problem, shown, sizeof shown), one));
    if (model->n_labels < 2 && !opts->is_priced)
        VP_TRY(vp_json_fail(config, key, err,
                            "one label means regression, whose squared error is not supported"));
out:
    return st;
}

vp_status vp_config_decoder_head(vp_model *model, const vp_json_node *config,
                                 const vp_model_opts *opts, bool fallback, bool *tied, vp_err *err)
{
    vp_status st = VP_OK;

    if (model->head == VP_HEAD_NEXT_TOKEN)
        return vp_config_bool_or(model, config, "tie_word_embeddings", fallback, tied, err);
    VP_TRY(vp_config_labels(model, config, opts, err));
    if (model->head == VP_HEAD_TOKEN)
        VP_TRY(
            vp_config_dropout(model, config, opts, "classifier_dropout", 0.1, &model->head_p, err));
out:
    return st;
}
