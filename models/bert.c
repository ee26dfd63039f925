/* models/bert.c: BERT (Devlin et al. 2019, arXiv:1810.04805) and RoBERTa (Liu et al. 2019,
 * arXiv:1907.11692), as transformers' classes build them.
 *
 *     x = norm(word[token] + position[p] + type[t])
 *     block:  h = norm(x + dense(attention(x)))            attention sees all tokens of the sample,
 *             both ways; of a decoder those before
 *             y = norm(h + dense(gelu(dense(h))))
 *     head:   loss = cross_entropy(norm(gelu(dense(x))) word' + bias)     over the masked
 *             positions; of a decoder the next token
 *             loss = cross_entropy(classifier(tanh(dense(x))))            of a sample, at its first
 *             token
 *             loss = cross_entropy(classifier(x))                         of each token
 *
 * RoBERTa has other names, and positions that count from pad_token_id + 1 over the tokens that
 * are no padding. */
#include "models/build.h"
#include "models/family.h"

#include "base/checked.h"

#include <math.h>
#include <string.h>

/* What a family calls its pieces. */
typedef struct bert_names {
    const char *root, *head_dense, *head_norm, *head_bias, *head_weight;
    const char *pooler, *classifier; /* of samples */
    /* mask_token: of the published vocabulary; -1: its last entry */
    int64_t vocab, pad, mask;
    bool    positions_after_pad, drops_before_pooler;
} bert_names;

static const bert_names bert    = {"bert.",
                                   "cls.predictions.transform.dense",
                                   "cls.predictions.transform.LayerNorm",
                                   "cls.predictions.bias",
                                   "cls.predictions.decoder",
                                   "bert.pooler.dense",
                                   "classifier",
                                   30522,
                                   0,
                                   103,
                                   false,
                                   false};
static const bert_names roberta = {"roberta.",
                                   "lm_head.dense",
                                   "lm_head.layer_norm",
                                   "lm_head.bias",
                                   "lm_head.decoder",
                                   "classifier.dense",
                                   "classifier.out_proj",
                                   50265,
                                   1,
                                   -1,
                                   true,
                                   true};

typedef struct bert_config {
    const bert_names *names;
    const char       *root; /* of the encoder's names */
    int64_t           hidden, inner, n_layers, n_heads, vocab, n_positions, n_types, padding_row,
        position_offset;
    double std, eps, p, attn_p;
    bool   tied, decoder, cross;
    vp_act act;
} bert_config;

static vp_status read_head(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                           bert_config *c, vp_err *err)
{
    bool      causal = model->head == VP_HEAD_NEXT_TOKEN;
    vp_status st     = VP_OK;

    c->root = model->head == VP_HEAD_NONE ? "" : c->names->root;
    VP_TRY(vp_config_bool(config, "is_decoder", &c->decoder, err));
    VP_TRY(vp_config_bool(config, "add_cross_attention", &c->cross, err));
    if (c->decoder != causal)
        VP_TRY(vp_json_fail(
            config, "is_decoder", err,
            causal ? "must be true for %s, or each token would see the one it is to predict"
                   : "%s as a decoder is not supported",
            model->class_name));
    if (c->cross && !c->decoder)
        VP_TRY(vp_json_fail(config, "add_cross_attention", err, "goes with is_decoder"));
    if (c->cross)
        vp_model_assume(model, VP_NO_ENCODER);
    if (causal || model->head == VP_HEAD_MASKED)
        return vp_config_bool_or(model, config, "tie_word_embeddings", true, &c->tied, err);
    if (model->head == VP_HEAD_NONE)
        return VP_OK;
    VP_TRY(vp_config_labels(model, config, opts, err));
    VP_TRY(vp_config_dropout(model, config, opts, "classifier_dropout", c->p, &model->head_p, err));
out:
    return st;
}

static vp_status read_config(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                             bert_config *c, vp_err *err)
{
    const bert_names *n        = c->names;
    const char       *position = "absolute";
    vp_status         st       = VP_OK;

    VP_TRY(vp_config_int(config, "hidden_size", 10000000, &c->hidden, err));
    VP_TRY(vp_config_int(config, "intermediate_size", 100000000, &c->inner, err));
    VP_TRY(vp_config_int(config, "num_hidden_layers", VP_MAX_LAYERS, &c->n_layers, err));
    VP_TRY(vp_config_int(config, "num_attention_heads", 10000000, &c->n_heads, err));
    VP_TRY(vp_config_int(config, "vocab_size", 100000000, &c->vocab, err));
    VP_TRY(vp_config_int(config, "max_position_embeddings", 1000000000, &c->n_positions, err));
    VP_TRY(vp_config_int(config, "type_vocab_size", 1000000, &c->n_types, err));
    VP_TRY(vp_config_real_or(model, config, "initializer_range", 100.0, 0.02, &c->std, err));
    VP_TRY(vp_config_real_or(model, config, "layer_norm_eps", 1.0, 1e-12, &c->eps, err));
    VP_TRY(vp_config_dropout(model, config, opts, "hidden_dropout_prob", 0.1, &c->p, err));
    VP_TRY(vp_config_dropout(model, config, opts, "attention_probs_dropout_prob", 0.1, &c->attn_p,
                             err));
    VP_TRY(read_head(model, config, opts, c, err));
    VP_TRY(vp_config_act(model, config, "hidden_act", VP_ACT_GELU, &c->act, err));
    if (vp_json_has(config, "position_embedding_type"))
        VP_TRY(vp_json_string(config, "position_embedding_type", &position, err));
    if (strcmp(position, "absolute") != 0)
        VP_TRY(vp_json_fail(config, "position_embedding_type", err,
                            "relative positions are not supported"));
    VP_TRY(vp_config_padding(model, config, n->pad, c->vocab, &c->padding_row, err));
    if (n->positions_after_pad) {
        if (c->padding_row < 0 || c->padding_row + 1 >= c->n_positions)
            VP_TRY(vp_json_fail(config, "pad_token_id", err,
                                "positions count from it, and it leaves none of the %lld",
                                (long long)c->n_positions));
        c->position_offset = c->padding_row + 1;
        vp_model_assume(model, "positions count from %lld (pad_token_id + 1) and leave padding out",
                        (long long)c->position_offset);
    }
    VP_TRY(vp_config_check_heads(config, "num_attention_heads", c->n_heads, c->hidden, err));
    VP_TRY(vp_config_check_sizes(config, c->n_layers, c->hidden, vp_max_i64(c->inner, c->hidden),
                                 c->vocab, err));
out:
    return st;
}

static const char *named(vp_builder *b, const bert_config *c, const char *tail)
{
    return vp_arena_printf(b->b.arena, "%s%s", c->root, tail);
}

static int linear(vp_builder *b, const bert_config *c, const char *name, const char *tail, int x,
                  int64_t out)
{
    return vp_build_linear(b, &(vp_linear){.name   = name,
                                           .x      = x,
                                           .out    = out,
                                           .prefix = named(b, c, tail),
                                           .bias   = true,
                                           .layout = VP_WEIGHT_OUT_IN});
}

static void build_embedding(vp_builder *b, const bert_config *c)
{
    int words, types;

    vp_build_template(b, "embedding");
    words = vp_build_embedding(
        b, &(vp_embedding){.name            = "word_embeddings",
                           .table           = named(b, c, "embeddings.word_embeddings.weight"),
                           .rows            = c->vocab,
                           .cols            = c->hidden,
                           .positions       = named(b, c, "embeddings.position_embeddings.weight"),
                           .n_positions     = c->n_positions,
                           .position_offset = c->position_offset,
                           .skip_padding    = c->names->positions_after_pad,
                           .padding_row     = c->padding_row});
    types = vp_build_embedding(
        b, &(vp_embedding){.name        = "token_type_embeddings",
                           .table       = named(b, c, "embeddings.token_type_embeddings.weight"),
                           .rows        = c->n_types,
                           .cols        = c->hidden,
                           .padding_row = -1,
                           .span        = vp_build_types_span(b)});
    words = vp_build_layernorm(b, "LayerNorm", vp_build_add(b, "embedding", words, types),
                               named(b, c, "embeddings.LayerNorm"), c->eps);
    vp_build_output(b, vp_build_dropout(b, "dropout", words, c->p));
}

static void build_block(vp_builder *b, const bert_config *c, int lengths_span)
{
    int64_t  d     = c->hidden / c->n_heads;
    vp_heads heads = {.n = c->n_heads, .n_kv = c->n_heads, .dim = d, .layout = VP_QKV_APART};
    int      x, y, q, k, v;

    vp_build_block_template(b, "layer");
    x       = vp_build_input(b, c->hidden);
    b->part = VP_PART_ATTENTION;
    q       = linear(b, c, "query", "encoder.layer.{}.attention.self.query", x, c->hidden);
    k       = linear(b, c, "key", "encoder.layer.{}.attention.self.key", x, c->hidden);
    v       = linear(b, c, "value", "encoder.layer.{}.attention.self.value", x, c->hidden);
    y       = vp_build_attention(
              b, &heads,
              &(vp_attention){.name    = "attention",
                              .q       = q,
                              .k       = k,
                              .v       = v,
                              .full    = !c->decoder,
                              .scale   = 1.0 / sqrt((double)d),
                              .lengths = vp_build_read_span(b, "lengths", lengths_span),
                              .p       = c->attn_p});
    y = linear(b, c, "attention.dense", "encoder.layer.{}.attention.output.dense", y, c->hidden);
    y = vp_build_add(b, "attention.residual", x, vp_build_dropout(b, "attention.dropout", y, c->p));
    b->part = VP_PART_NONE;
    x       = vp_build_layernorm(b, "attention.LayerNorm", y,
                                 named(b, c, "encoder.layer.{}.attention.output.LayerNorm"), c->eps);
    b->part = VP_PART_MLP;
    y = linear(b, c, "intermediate.dense", "encoder.layer.{}.intermediate.dense", x, c->inner);
    y = vp_build_activation(b, "intermediate.act", y, c->act);
    y = linear(b, c, "output.dense", "encoder.layer.{}.output.dense", y, c->hidden);
    y = vp_build_add(b, "output.residual", x, vp_build_dropout(b, "output.dropout", y, c->p));
    b->part = VP_PART_NONE;
    vp_build_output(b,
                    vp_build_layernorm(b, "output.LayerNorm", y,
                                       named(b, c, "encoder.layer.{}.output.LayerNorm"), c->eps));
    if (c->cross) {
        vp_build_unused_linear(b, named(b, c, "encoder.layer.{}.crossattention.self.query"),
                               c->hidden, c->hidden, VP_WEIGHT_OUT_IN, 0);
        vp_build_unused_linear(b, named(b, c, "encoder.layer.{}.crossattention.self.key"),
                               c->hidden, c->hidden, VP_WEIGHT_OUT_IN, 0);
        vp_build_unused_linear(b, named(b, c, "encoder.layer.{}.crossattention.self.value"),
                               c->hidden, c->hidden, VP_WEIGHT_OUT_IN, 0);
        vp_build_unused_linear(b, named(b, c, "encoder.layer.{}.crossattention.output.dense"),
                               c->hidden, c->hidden, VP_WEIGHT_OUT_IN, 0);
        vp_build_unused_norm(b, named(b, c, "encoder.layer.{}.crossattention.output.LayerNorm"),
                             c->hidden);
    }
}

static int square(vp_builder *b, const bert_config *c, const char *name, const char *prefix, int x)
{
    return vp_build_linear(b, &(vp_linear){.name   = name,
                                           .x      = x,
                                           .out    = c->hidden,
                                           .prefix = prefix,
                                           .bias   = true,
                                           .layout = VP_WEIGHT_OUT_IN});
}

static int pooler(vp_builder *b, const bert_config *c, const char *prefix, int x)
{
    return vp_build_activation(b, "pooler.tanh", square(b, c, "pooler.dense", prefix, x),
                               VP_ACT_TANH);
}

static void build_vocabulary_head(vp_builder *b, const bert_config *c, int x)
{
    x = square(b, c, "transform.dense", c->names->head_dense, x);
    x = vp_build_activation(b, "transform.act", x, c->names == &roberta ? VP_ACT_GELU : c->act);
    x = vp_build_layernorm(b, "transform.LayerNorm", x, c->names->head_norm, c->eps);
    /* The decoder's bias is tied with the table; untied, the head's own bias stays behind
     * unused. */
    vp_build_lm_head(b, &(vp_lm_head){.x           = x,
                                      .vocab       = c->vocab,
                                      .tied        = c->tied,
                                      .prefix      = c->names->head_weight,
                                      .unused_bias = c->tied ? NULL : c->names->head_bias,
                                      .bias        = c->tied ? c->names->head_bias
                                                             : vp_arena_printf(b->b.arena, "%s.bias",
                                                                               c->names->head_weight)});
}

static void build_head(vp_builder *b, const bert_config *c)
{
    const vp_model *model = b->model;
    int             x;

    vp_build_template(b, "head");
    x = vp_build_input(b, c->hidden);
    switch (model->head) {
    case VP_HEAD_SEQUENCE:
        if (c->names->drops_before_pooler)
            x = vp_build_dropout(b, "pooler.dropout", x, model->head_p);
        x = pooler(b, c, c->names->pooler, x);
        vp_build_classifier(b, vp_build_dropout(b, "dropout", x, model->head_p),
                            c->names->classifier, true, VP_LABEL_AT_FIRST);
        return;
    case VP_HEAD_TOKEN:
        vp_build_classifier(b, vp_build_dropout(b, "dropout", x, model->head_p), "classifier", true,
                            VP_LABEL_AT_EACH);
        return;
    case VP_HEAD_NONE: /* a loss that needs no parameters and reaches all there are */
        vp_model_assume(
            b->model,
            "%s has no loss of its own: its pooler's outputs are taken for the logits of as many classes",
            model->class_name);
        vp_build_class_loss(b, pooler(b, c, "pooler.dense", x), VP_LABEL_AT_FIRST);
        return;
    default:
        build_vocabulary_head(b, c, x);
        return;
    }
}

static vp_status build_any(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                           const bert_names *names, vp_err *err)
{
    bert_config c = {.names = names};
    vp_graph   *g = &model->graph;
    vp_builder  b;
    vp_status   st = VP_OK;

    VP_TRY(read_config(model, config, opts, &c, err));
    vp_build_begin(&b, model, c.std);
    build_embedding(&b, &c);
    build_block(&b, &c, vp_build_lengths_span(&b));
    build_head(&b, &c);
    g->max_seq          = c.n_positions - c.position_offset;
    g->learns_positions = true;
    g->n_token_types    = c.n_types;
    if (model->head == VP_HEAD_MASKED) {
        g->mask_token = names->mask >= 0 && names->mask < c.vocab ? names->mask : c.vocab - 1;
        vp_model_assume(model, "the token that stands for a masked one is %lld",
                        (long long)g->mask_token);
    }
    VP_TRY(vp_build_finish(&b, c.n_layers, NULL, err));
out:
    return st;
}

static vp_status build_bert(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                            vp_err *err)
{
    return build_any(model, config, opts, &bert, err);
}

static vp_status build_roberta(vp_model *model, const vp_json_node *config,
                               const vp_model_opts *opts, vp_err *err)
{
    return build_any(model, config, opts, &roberta, err);
}

static const char *const keys[] = {"hidden_size",
                                   "intermediate_size",
                                   "num_hidden_layers",
                                   "num_attention_heads",
                                   "vocab_size",
                                   "max_position_embeddings",
                                   "type_vocab_size",
                                   "initializer_range",
                                   "layer_norm_eps",
                                   "hidden_dropout_prob",
                                   "attention_probs_dropout_prob",
                                   "tie_word_embeddings",
                                   "hidden_act",
                                   "is_decoder",
                                   "add_cross_attention",
                                   "position_embedding_type",
                                   "pad_token_id",
                                   NULL};

static const vp_class bert_classes[] = {
    {"BertForMaskedLM", VP_HEAD_MASKED},     VP_SEQUENCE_CLASS("Bert"),   VP_TOKEN_CLASS("Bert"),
    {"BertLMHeadModel", VP_HEAD_NEXT_TOKEN}, {"BertModel", VP_HEAD_NONE}, {0}};
static const vp_class roberta_classes[] = {{"RobertaForMaskedLM", VP_HEAD_MASKED},
                                           VP_SEQUENCE_CLASS("Roberta"),
                                           VP_TOKEN_CLASS("Roberta"),
                                           {"RobertaForCausalLM", VP_HEAD_NEXT_TOKEN},
                                           {"RobertaModel", VP_HEAD_NONE},
                                           {0}};

const vp_family vp_family_bert    = {"bert", bert_classes, keys, build_bert},
                vp_family_roberta = {"roberta", roberta_classes, keys, build_roberta};
