/* models/head.c: the classes of a family: what they do with the last hidden states x.
 *
 *     ...ForCausalLM, ...LMHeadModel   loss = cross_entropy(x table')     the label of a token is the next one     vp_build_lm_head()
 *     ...ForMaskedLM                   the same                           it is the token that was hidden there
 *     ...ForSequenceClassification     loss = cross_entropy(x w' [+ b])   a sample has one label, at its last token in a decoder, at
 *                                                                         its first in an encoder
 *     ...ForTokenClassification        the same                           each token has one
 *     ...Model                         no loss
 *
 * A classifier runs over all tokens, and tokens without a label take no part in the loss: the numbers are those of transformers, whose
 * decoders score all tokens too and then pick one of each sample, while its encoders pick first. */
#include "models/build.h"

#include "core/text.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- which class ---- */

/* Why there is no answer for a class whose name ends so; "" where all there is to say is that it is not supported. */
static const char *why_not(const char *name)
{
    static const struct {
        const char *ending, *why;
    } known[] = {
        {"ForQuestionAnswering", " (its loss is a softmax over positions)"}, {"ForMultipleChoice", " (its loss is a softmax over choices)"},
        {"ForPreTraining", " (it has two losses)"}, {"DoubleHeadsModel", " (it has two losses)"}, {"HeadModel", ""}, {"Model", " (it has no loss)"},
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
    while (classes->name && strcmp(classes->name, name) != 0)
        classes++;
    return classes->name ? classes : NULL;
}

vp_status vp_config_class(vp_model *model, const vp_json_node *config, const vp_model_opts *opts, const vp_class *classes, vp_err *err)
{
    const char     *name = opts->class_name;
    const vp_class *found;
    vp_json_node    list, element;
    char            shown[96], message[500];
    int64_t         n;
    vp_status       st = VP_OK;

    if (name) {
        vp_model_assume(model, "the class is the one asked for, %s", vp_text_escape(name, shown, sizeof shown));
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
        snprintf(message, sizeof message, "the class \"%s\" is not supported%s; supported:", vp_text_escape(name, shown, sizeof shown), why_not(name));
        for (const vp_class *c = classes; c->name; c++)
            snprintf(message + strlen(message), sizeof message - strlen(message), "%s %s", c > classes ? "," : "", c->name);
        st = opts->class_name ? VP_FAIL(err, VP_ERR_USAGE, "%s", message) : vp_json_fail(&element, NULL, err, "%s", message);
        goto out;
    }
    model->class_name = found->name;
    model->head       = found->head;
out:
    return st;
}

/* ---- its labels ---- */

vp_status vp_config_labels(vp_model *model, const vp_json_node *config, vp_err *err)
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
    if (named < 0 || vp_json_has(config, key)) { /* where both are there, transformers names the labels anew */
        VP_TRY(vp_config_int_or(model, config, key, 100000000, 2, &model->n_labels, err));
        if (named >= 0 && named != model->n_labels)
            vp_model_assume(model, "id2label (%lld) is not used: num_labels says %lld", (long long)named, (long long)model->n_labels);
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
        VP_TRY(vp_json_fail(config, "problem_type", err, "\"%s\" is not supported; supported: %s", vp_text_escape(problem, shown, sizeof shown), one));
    if (model->n_labels < 2)
        VP_TRY(vp_json_fail(config, key, err, "one label means regression, whose squared error is not supported"));
out:
    return st;
}

vp_status vp_config_decoder_head(vp_model *model, const vp_json_node *config, const vp_model_opts *opts, bool fallback, bool *tied, vp_err *err)
{
    vp_status st = VP_OK;

    if (model->head == VP_HEAD_NEXT_TOKEN)
        return vp_config_bool_or(model, config, "tie_word_embeddings", fallback, tied, err);
    VP_TRY(vp_config_labels(model, config, err));
    if (model->head == VP_HEAD_TOKEN)
        VP_TRY(vp_config_dropout(model, config, opts, "classifier_dropout", 0.1, &model->head_p, err));
out:
    return st;
}

/* ---- building ---- */

void vp_build_class_loss(vp_builder *b, int logits, vp_label_place at)
{
    b->b.graph->n_classes   = vp_build_cols(b, logits);
    b->b.graph->label_place = at;
    vp_model_assume(b->model, "the label of a %s is one of %lld classes%s", at == VP_LABEL_AT_EACH ? "token" : "sample",
                    (long long)b->b.graph->n_classes,
                    at == VP_LABEL_AT_FIRST ? ", scored at its first token" : at == VP_LABEL_AT_LAST ? ", scored at its last token" : "");
    vp_build_loss(b, logits, 0);
}

void vp_build_classifier(vp_builder *b, int x, const char *prefix, bool bias, vp_label_place at)
{
    assert(b->model->n_labels > 0);
    vp_build_class_loss(b, vp_build_linear(b, &(vp_linear){.name = prefix, .x = x, .out = b->model->n_labels, .prefix = prefix, .bias = bias,
                               .layout = VP_WEIGHT_OUT_IN, .chunked = true}), at);
}

void vp_build_decoder_head(vp_builder *b, const vp_lm_head *lm, const char *token_classifier)
{
    switch (b->model->head) {
    case VP_HEAD_SEQUENCE:
        vp_build_classifier(b, lm->x, "score", false, VP_LABEL_AT_LAST);
        return;
    case VP_HEAD_TOKEN:
        vp_build_classifier(b, vp_build_dropout(b, "dropout", lm->x, b->model->head_p), token_classifier, true, VP_LABEL_AT_EACH);
        return;
    default:
        vp_build_lm_head(b, lm);
        return;
    }
}
