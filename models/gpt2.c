/* models/gpt2.c: GPT-2 (Radford et al. 2019), as transformers' GPT2LMHeadModel builds it.
 *
 *     x = wte[token] + wpe[position]
 *     block:  h = x + c_proj(attention(c_attn(ln_1(x))))        pre-norm, biases everywhere
 *             y = h + mlp.c_proj(gelu_new(mlp.c_fc(ln_2(h))))
 *     head:   loss = cross_entropy(ln_f(x) wte')                the table is tied by default
 *
 * Linear weights are (in, out): Conv1D. Initialisation: normal(0, initializer_range) for weights, divided by
 * sqrt(2 L) for the two projections into the residual stream (GPT-2 paper, section 2.3), zero biases. */
#include "core/checked.h"
#include "core/text.h"
#include "models/model.h"

#include <math.h>
#include <string.h>

typedef struct gpt2_config {
    int64_t n_embd, n_layer, n_head, n_inner, n_positions, vocab_size;
    double  eps, std;
    bool    tied, scale_weights;
    double  embd_p, attn_p, resid_p;
} gpt2_config;

static vp_status refuse_if_true(const vp_json_node *config, const char *key, const char *why, vp_err *err)
{
    bool      set = false;
    vp_status st  = VP_OK;

    if (vp_json_has(config, key))
        VP_TRY(vp_json_bool(config, key, &set, err));
    if (set)
        VP_TRY(vp_json_fail(config, key, err, "%s", why));
out:
    return st;
}

static vp_status check_class(vp_model *model, const vp_json_node *config, vp_err *err)
{
    vp_json_node list, element;
    const char  *name;
    char         shown[96];
    int64_t      n;
    vp_status    st = VP_OK;

    if (!vp_json_has(config, "architectures")) {
        vp_model_assume(model, "architectures is not in the config: GPT2LMHeadModel");
        return VP_OK;
    }
    VP_TRY(vp_json_array(config, "architectures", &list, &n, err));
    if (n != 1)
        VP_TRY(vp_json_fail(config, "architectures", err, "must name one class"));
    VP_TRY(vp_json_element(&list, 0, &element, err));
    VP_TRY(vp_json_as_string(&element, &name, err));
    if (strcmp(name, "GPT2LMHeadModel") != 0)
        VP_TRY(vp_json_fail(&element, NULL, err, "the class \"%s\" is not supported; supported: GPT2LMHeadModel",
                            vp_text_escape(name, shown, sizeof shown)));
out:
    return st;
}

static vp_status read_dropout(vp_model *model, const vp_json_node *config, const vp_model_opts *opts, gpt2_config *c,
                              vp_err *err)
{
    vp_status st = VP_OK;

    if (!opts->dropout_from_config) {
        c->embd_p = c->attn_p = c->resid_p = opts->dropout;
        if (vp_json_has(config, "resid_pdrop"))
            vp_model_assume(model, "dropout is the recipe's (%g); embd_pdrop, attn_pdrop and resid_pdrop of the config are not used",
                            opts->dropout);
        return VP_OK;
    }
    VP_TRY(vp_config_real_or(model, config, "embd_pdrop", 0.99, 0.1, &c->embd_p, err));
    VP_TRY(vp_config_real_or(model, config, "attn_pdrop", 0.99, 0.1, &c->attn_p, err));
    VP_TRY(vp_config_real_or(model, config, "resid_pdrop", 0.99, 0.1, &c->resid_p, err));
out:
    return st;
}

static vp_status read_config(vp_model *model, const vp_json_node *config, const vp_model_opts *opts, gpt2_config *c,
                             vp_err *err)
{
    const char *activation = "gelu_new";
    char        shown[96];
    vp_status   st = VP_OK;

    VP_TRY(check_class(model, config, err));
    VP_TRY(vp_config_int(config, "n_embd", 10000000, &c->n_embd, err));
    VP_TRY(vp_config_int(config, "n_layer", 100000, &c->n_layer, err));
    VP_TRY(vp_config_int(config, "n_head", 10000000, &c->n_head, err));
    VP_TRY(vp_config_int_or(model, config, "vocab_size", 100000000, 50257, &c->vocab_size, err));
    VP_TRY(vp_config_int_or(model, config, "n_positions", 1000000000, 1024, &c->n_positions, err));
    c->n_inner = 4 * c->n_embd; /* null and absent mean the same: GPT2MLP */
    if (!json_object_get(config->value, "n_inner"))
        vp_model_assume(model, "n_inner is not in the config: the family's default 4 x n_embd = %lld", (long long)c->n_inner);
    if (vp_json_has(config, "n_inner"))
        VP_TRY(vp_config_int(config, "n_inner", 100000000, &c->n_inner, err));
    VP_TRY(vp_config_real_or(model, config, "layer_norm_epsilon", 1.0, 1e-5, &c->eps, err));
    VP_TRY(vp_config_real_or(model, config, "initializer_range", 100.0, 0.02, &c->std, err));
    VP_TRY(vp_config_bool_or(model, config, "tie_word_embeddings", true, &c->tied, err));
    VP_TRY(vp_config_bool_or(model, config, "scale_attn_weights", true, &c->scale_weights, err));
    VP_TRY(read_dropout(model, config, opts, c, err));

    if (c->n_embd % c->n_head != 0)
        VP_TRY(vp_json_fail(config, "n_head", err, "%lld heads do not divide n_embd %lld", (long long)c->n_head,
                            (long long)c->n_embd));
    if (c->n_embd / c->n_head > VP_MAX_HEAD_DIM)
        VP_TRY(vp_json_fail(config, "n_head", err, "a head of %lld dimensions; at most %d are supported",
                            (long long)(c->n_embd / c->n_head), VP_MAX_HEAD_DIM));
    if (vp_json_has(config, "activation_function"))
        VP_TRY(vp_json_string(config, "activation_function", &activation, err));
    else
        vp_model_assume(model, "activation_function is not in the config: the family's default %s", activation);
    if (strcmp(activation, "gelu_new") != 0 && strcmp(activation, "gelu_pytorch_tanh") != 0)
        VP_TRY(vp_json_fail(config, "activation_function", err, "\"%s\" is not supported; supported: gelu_new, gelu_pytorch_tanh",
                            vp_text_escape(activation, shown, sizeof shown)));
    VP_TRY(refuse_if_true(config, "add_cross_attention", "cross-attention is not supported", err));
    VP_TRY(refuse_if_true(config, "scale_attn_by_inverse_layer_idx", "attention scaled by layer index is not supported", err));
    VP_TRY(refuse_if_true(config, "reorder_and_upcast_attn", "reordered and upcast attention is not supported", err));
    if (vp_overflowed(vp_mul(vp_mul(c->n_layer, vp_mul(c->n_embd, c->n_inner)), 1024))
        || vp_overflowed(vp_mul(vp_mul(c->vocab_size, c->n_embd), 1024))
        || vp_overflowed(vp_mul(vp_mul(c->n_positions, c->n_embd), 1024)))
        VP_TRY(vp_json_fail(config, NULL, err, "n_layer x n_embd x n_inner, or a table, is more bytes than 64 bits can count"));
out:
    return st;
}

/* ---- the figure ---- */

static vp_plan_param weight(const char *name, int64_t rows, int64_t cols, double std)
{
    return (vp_plan_param){.name = name, .rank = 2, .shape = {rows, cols}, .init = VP_INIT_NORMAL, .init_std = std,
                           .decay = true};
}

static vp_plan_param vector(const char *name, int64_t n, vp_init init)
{
    return (vp_plan_param){.name = name, .rank = 1, .shape = {n}, .init = init};
}

static vp_param_ref own(int idx)
{
    return (vp_param_ref){.used = true, .idx = idx};
}

typedef struct builder {
    vp_graph_builder   b;
    const gpt2_config *c;
    int                t;       /* template under construction */
    int                rng_id;
    vp_part            part;
} builder;

static int layernorm(builder *g, const char *name, int x, const char *gamma, const char *beta)
{
    int64_t     h     = g->c->n_embd;
    vp_arena   *arena = g->b.arena;
    vp_tensor   stat  = vp_tensor_rows(vp_arena_printf(arena, "%s.mean", name), 1);
    vp_graph_op op    = {.op = VP_OP_LAYERNORM, .name = name, .part = g->part, .in = {x}, .eps = g->c->eps};

    op.param[0] = own(vp_graph_add_param(&g->b, g->t, vector(gamma, h, VP_INIT_ONES)));
    op.param[1] = own(vp_graph_add_param(&g->b, g->t, vector(beta, h, VP_INIT_ZEROS)));
    op.out[0]   = vp_graph_add_tensor(&g->b, g->t, vp_tensor_rows(name, h));
    stat.elem   = VP_ELEM_STAT;
    op.out[1]   = vp_graph_add_tensor(&g->b, g->t, stat);
    stat.name   = vp_arena_printf(arena, "%s.rstd", name);
    op.out[2]   = vp_graph_add_tensor(&g->b, g->t, stat);
    vp_graph_add_op(&g->b, g->t, op);
    return op.out[0];
}

static int conv1d(builder *g, const char *name, int x, int64_t in, int64_t out, const char *w, const char *b, double std)
{
    vp_graph_op op = {.op = VP_OP_LINEAR, .name = name, .part = g->part, .in = {x}, .layout = VP_WEIGHT_IN_OUT};

    op.param[0] = own(vp_graph_add_param(&g->b, g->t, weight(w, in, out, std)));
    op.param[1] = own(vp_graph_add_param(&g->b, g->t, vector(b, out, VP_INIT_ZEROS)));
    op.out[0]   = vp_graph_add_tensor(&g->b, g->t, vp_tensor_rows(name, out));
    vp_graph_add_op(&g->b, g->t, op);
    return op.out[0];
}

static int attention(builder *g, int qkv)
{
    const gpt2_config *c  = g->c;
    int64_t            d  = c->n_embd / c->n_head;
    vp_graph_op        op = {.op = VP_OP_ATTENTION, .name = "attn.attention", .part = g->part, .in = {qkv},
                             .heads = c->n_head, .kv_heads = c->n_head, .head_dim = d,
                             .scale = c->scale_weights ? 1.0 / sqrt((double)d) : 1.0, .p = c->attn_p, .rng_id = g->rng_id++};
    vp_tensor lse = {.name = "attn.lse", .elem = VP_ELEM_STAT, .rank = 3, .span = -1,
                     .dim = {vp_dim_symbol(VP_SYM_BATCH), vp_dim_const(c->n_head), vp_dim_symbol(VP_SYM_SEQ)}};

    op.out[0] = vp_graph_add_tensor(&g->b, g->t, vp_tensor_rows("attn.attention", c->n_embd));
    op.out[1] = vp_graph_add_tensor(&g->b, g->t, lse);
    vp_graph_add_op(&g->b, g->t, op);
    return op.out[0];
}

/* x itself where nothing is dropped. */
static int dropout(builder *g, const char *name, int x, double p)
{
    vp_graph_op op = {.op = VP_OP_DROPOUT, .name = name, .part = g->part, .in = {x}, .p = p, .rng_id = g->rng_id++};

    if (p == 0.0)
        return x;
    op.out[0] = vp_graph_add_tensor(&g->b, g->t, vp_tensor_rows(name, g->c->n_embd));
    vp_graph_add_op(&g->b, g->t, op);
    return op.out[0];
}

static int add(builder *g, const char *name, int x, int y)
{
    vp_graph_op op = {.op = VP_OP_ADD, .name = name, .part = g->part, .in = {x, y}};

    op.out[0] = vp_graph_add_tensor(&g->b, g->t, vp_tensor_rows(name, g->c->n_embd));
    vp_graph_add_op(&g->b, g->t, op);
    return op.out[0];
}

static int gelu(builder *g, const char *name, int x)
{
    vp_graph_op op = {.op = VP_OP_GELU_TANH, .name = name, .part = g->part, .in = {x}};

    op.out[0] = vp_graph_add_tensor(&g->b, g->t, vp_tensor_rows(name, g->c->n_inner));
    vp_graph_add_op(&g->b, g->t, op);
    return op.out[0];
}

static void begin(builder *g, const char *name)
{
    g->t      = vp_graph_add_template(&g->b, name);
    g->rng_id = 0;
    g->part   = VP_PART_NONE;
}

static void build_embedding(builder *g, int tokens_span)
{
    const gpt2_config *c      = g->c;
    vp_tensor          tokens = {.name = "tokens", .elem = VP_ELEM_INDEX, .rank = 1, .span = tokens_span,
                                 .dim = {vp_dim_times(vp_dim_symbol(VP_SYM_BATCH), vp_dim_symbol(VP_SYM_SEQ))}};
    vp_graph_op        op     = {.op = VP_OP_EMBEDDING, .name = "wte"};

    begin(g, "embedding");
    op.param[0] = own(vp_graph_add_param(&g->b, g->t, weight("transformer.wte.weight", c->vocab_size, c->n_embd, c->std)));
    op.param[1] = own(vp_graph_add_param(&g->b, g->t, weight("transformer.wpe.weight", c->n_positions, c->n_embd, c->std)));
    op.in[0]    = vp_graph_add_tensor(&g->b, g->t, tokens);
    op.out[0]   = vp_graph_add_tensor(&g->b, g->t, vp_tensor_rows("embedding", c->n_embd));
    vp_graph_add_op(&g->b, g->t, op);
    g->b.graph->templates[g->t].out = dropout(g, "drop", op.out[0], c->embd_p);
}

static void build_block(builder *g)
{
    const gpt2_config *c         = g->c;
    int64_t            h         = c->n_embd;
    double             resid_std = c->std / sqrt(2.0 * (double)c->n_layer);
    int                x, y;

    begin(g, "h");
    x = vp_graph_add_tensor(&g->b, g->t, vp_tensor_rows("x", h));
    g->b.graph->templates[g->t].in = x;

    g->part = VP_PART_ATTENTION;
    y = layernorm(g, "ln_1", x, "transformer.h.{}.ln_1.weight", "transformer.h.{}.ln_1.bias");
    y = conv1d(g, "attn.c_attn", y, h, 3 * h, "transformer.h.{}.attn.c_attn.weight", "transformer.h.{}.attn.c_attn.bias", c->std);
    y = attention(g, y);
    g->part = VP_PART_NONE; /* what leaves a half is the residual stream: kept unless all is recomputed */
    y = conv1d(g, "attn.c_proj", y, h, h, "transformer.h.{}.attn.c_proj.weight", "transformer.h.{}.attn.c_proj.bias", resid_std);
    y = dropout(g, "attn.resid_dropout", y, c->resid_p);
    x = add(g, "attn.residual", x, y);

    g->part = VP_PART_MLP;
    y = layernorm(g, "ln_2", x, "transformer.h.{}.ln_2.weight", "transformer.h.{}.ln_2.bias");
    y = conv1d(g, "mlp.c_fc", y, h, c->n_inner, "transformer.h.{}.mlp.c_fc.weight", "transformer.h.{}.mlp.c_fc.bias", c->std);
    y = gelu(g, "mlp.act", y);
    g->part = VP_PART_NONE;
    y = conv1d(g, "mlp.c_proj", y, c->n_inner, h, "transformer.h.{}.mlp.c_proj.weight", "transformer.h.{}.mlp.c_proj.bias", resid_std);
    y = dropout(g, "mlp.dropout", y, c->resid_p);
    g->b.graph->templates[g->t].out = add(g, "mlp.residual", x, y);
}

static void build_head(builder *g, int labels_span)
{
    const gpt2_config *c      = g->c;
    vp_tensor          labels = {.name = "labels", .elem = VP_ELEM_INDEX, .rank = 1, .span = labels_span,
                                 .dim = {vp_dim_times(vp_dim_symbol(VP_SYM_BATCH), vp_dim_symbol(VP_SYM_SEQ))}};
    vp_graph_op head = {.op = VP_OP_LINEAR, .name = "lm_head", .layout = VP_WEIGHT_OUT_IN, .chunked = true};
    vp_graph_op loss = {.op = VP_OP_CROSS_ENTROPY, .name = "loss", .chunked = true};

    begin(g, "head");
    head.in[0] = vp_graph_add_tensor(&g->b, g->t, vp_tensor_rows("x", c->n_embd));
    g->b.graph->templates[g->t].in = head.in[0];
    head.in[0] = layernorm(g, "ln_f", head.in[0], "transformer.ln_f.weight", "transformer.ln_f.bias");
    head.param[0] = c->tied ? (vp_param_ref){.used = true, .shared = true, .idx = 0}
                            : own(vp_graph_add_param(&g->b, g->t, weight("lm_head.weight", c->vocab_size, c->n_embd, c->std)));
    head.out[0]   = vp_graph_add_tensor(&g->b, g->t, vp_tensor_rows("logits", c->vocab_size));
    vp_graph_add_op(&g->b, g->t, head);
    loss.in[0]  = head.out[0];
    loss.in[1]  = vp_graph_add_tensor(&g->b, g->t, labels);
    loss.out[0] = vp_graph_add_tensor(&g->b, g->t, vp_tensor_rows("loss", 1));
    vp_graph_add_op(&g->b, g->t, loss);
}

static vp_status build(vp_model *model, const vp_json_node *config, const vp_model_opts *opts, vp_err *err)
{
    vp_graph   *graph = &model->graph;
    vp_arena   *arena = model->arena;
    gpt2_config c     = {0};
    vp_status   st    = VP_OK;

    VP_TRY(read_config(model, config, opts, &c, err));
    builder g = {.b = {.arena = arena, .graph = graph}, .c = &c};
    graph->n_instances = c.n_layer + 2;
    graph->instances   = vp_arena_array(arena, graph->n_instances, sizeof *graph->instances);
    graph->n_spans     = 2;
    graph->spans       = vp_arena_array(arena, 2, sizeof *graph->spans);
    graph->n_shared    = c.tied ? 1 : 0;
    graph->shared      = vp_arena_array(arena, 1, sizeof *graph->shared); /* embedding's first: wte */
    VP_TRY_ALLOC(err, !vp_arena_failed(arena));
    build_embedding(&g, 0);
    build_block(&g);
    build_head(&g, 1);
    for (int64_t i = 0; i < graph->n_instances; i++) {
        bool first = i == 0, last = i == graph->n_instances - 1;
        graph->instances[i] = (vp_instance){.template_idx = first ? 0 : last ? 2 : 1, .index = first || last ? 0 : i - 1, .chain_idx = i};
    }
    vp_dim tokens         = vp_dim_times(vp_dim_symbol(VP_SYM_BATCH), vp_dim_symbol(VP_SYM_SEQ));
    graph->tokens_span    = 0;
    graph->labels_span    = 1;
    graph->spans[0]       = (vp_span){"tokens", VP_ELEM_INDEX, tokens, 0, 0};
    graph->spans[1]       = (vp_span){"labels", VP_ELEM_INDEX, tokens, graph->n_instances - 1, graph->n_instances - 1};
    graph->vocab_size     = c.vocab_size;
    graph->max_seq        = c.n_positions;
    graph->hidden         = c.n_embd;
out:
    return st;
}

static const char *const keys[] = {"architectures", "n_embd", "n_layer", "n_head", "vocab_size", "n_positions", "n_inner", "layer_norm_epsilon",
    "initializer_range", "tie_word_embeddings", "scale_attn_weights", "embd_pdrop", "attn_pdrop", "resid_pdrop", "activation_function",
    "add_cross_attention", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", NULL};

const vp_family vp_family_gpt2 = {"gpt2", keys, build};
