/* models/head.c: what a class puts on the last hidden states x.
 *
 *     ...ForCausalLM, ...LMHeadModel   loss = cross_entropy(x table')
 *         the label of a token is the next one: vp_build_lm_head()
 *     ...ForMaskedLM                   the same
 *         the label is the token that was hidden there
 *     ...ForSequenceClassification     loss = cross_entropy(x w' [+ b])
 *         a sample has one label: at its last token in a decoder, at its first in an encoder
 *     ...ForTokenClassification        the same
 *         each token has a label
 *     ...Model                         no loss
 *
 * A classifier runs over all tokens, and tokens without a label take no part in the loss: the
 * numbers are those of transformers, whose decoders score all tokens too and then pick one of
 * each sample, while its encoders pick first. */
#include "models/build.h"

#include "models/config.h"

#include <assert.h>

void vp_build_class_loss(vp_builder *b, int logits, vp_label_place at)
{
    b->b.graph->n_classes = vp_build_cols(b, logits);
    assert(b->b.graph->n_classes >= 1 && at <= VP_LABEL_AT_LAST);
    b->b.graph->label_place = at;
    vp_model_assume(b->model, "the label of a %s is one of %lld classes%s",
                    at == VP_LABEL_AT_EACH ? "token" : "sample", (long long)b->b.graph->n_classes,
                    at == VP_LABEL_AT_FIRST  ? ", scored at its first token"
                    : at == VP_LABEL_AT_LAST ? ", scored at its last token"
                                             : "");
    vp_build_loss(b, logits, 0);
}

void vp_build_classifier(vp_builder *b, int x, const char *prefix, bool bias, vp_label_place at)
{
    assert(b->model->n_labels > 0);
    vp_build_class_loss(b,
                        vp_build_linear(b, &(vp_linear){.name    = prefix,
                                                        .x       = x,
                                                        .out     = b->model->n_labels,
                                                        .prefix  = prefix,
                                                        .bias    = bias,
                                                        .layout  = VP_WEIGHT_OUT_IN,
                                                        .chunked = true}),
                        at);
}

void vp_build_decoder_head(vp_builder *b, const vp_lm_head *lm, const char *token_classifier)
{
    switch (b->model->head) {
    case VP_HEAD_SEQUENCE:
        vp_build_classifier(b, lm->x, "score", false, VP_LABEL_AT_LAST);
        return;
    case VP_HEAD_TOKEN:
        vp_build_classifier(b, vp_build_dropout(b, "dropout", lm->x, b->model->head_p),
                            token_classifier, true, VP_LABEL_AT_EACH);
        return;
    default:
        vp_build_lm_head(b, lm);
        return;
    }
}
