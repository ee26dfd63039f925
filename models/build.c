#include "models/build.h"

#include "base/checked.h"

#include <assert.h>

static vp_arena *arena_of(const vp_builder *b)
{
    return b->b.arena;
}

static vp_template *current(const vp_builder *b)
{
    return &b->b.graph->templates[b->template_idx];
}

static vp_dim tokens_dim(void)
{
    return vp_dim_times(vp_dim_symbol(VP_SYM_BATCH), vp_dim_symbol(VP_SYM_SEQ));
}

/* ---- spans ---- */

static int add_span(vp_builder *b, const char *name, vp_dim rows)
{
    vp_graph *g = b->b.graph;

    assert(g->n_spans < VP_MAX_SPANS);
    if (g->spans)
        g->spans[g->n_spans] = (vp_span){.name = name, .elem = VP_ELEM_INDEX, .rows = rows};
    return (int)g->n_spans++;
}

void vp_build_begin(vp_builder *b, vp_model *model, double std)
{
    vp_graph *g = &model->graph;

    *b        = (vp_builder){.b = {.arena = model->arena, .graph = g}, .model = model, .std = std};
    g->spans  = vp_arena_array(model->arena, VP_MAX_SPANS, sizeof *g->spans);
    g->shared = vp_arena_array(model->arena, 1, sizeof *g->shared); /* parameter 0 of instance 0 */
    g->tokens_span = add_span(b, "tokens", tokens_dim());
    g->labels_span = add_span(b, "labels", tokens_dim());
    g->types_span = g->lengths_span = -1;
    g->mask_token                   = -1;
}

int vp_build_types_span(vp_builder *b)
{
    return b->b.graph->types_span = add_span(b, "token types", tokens_dim());
}

int vp_build_lengths_span(vp_builder *b)
{
    return b->b.graph->lengths_span = add_span(b, "lengths", vp_dim_symbol(VP_SYM_BATCH));
}

/* ---- templates ---- */

int vp_build_template(vp_builder *b, const char *name)
{
    b->part                = VP_PART_NONE;
    b->rng_id              = 0;
    b->in_block            = false;
    return b->template_idx = vp_graph_add_template(&b->b, name);
}

int vp_build_block_template(vp_builder *b, const char *name)
{
    vp_build_template(b, name);
    b->in_block = true;
    return b->template_idx;
}

static int add_rows(vp_builder *b, const char *name, int64_t cols)
{
    return vp_graph_add_tensor(&b->b, b->template_idx, vp_tensor_rows(name, cols));
}

/* Statistics in full precision: `cols` numbers a token. */
static int add_stat(vp_builder *b, const char *op, const char *what, int64_t cols)
{
    vp_tensor t = vp_tensor_rows(vp_arena_printf(arena_of(b), "%s.%s", op, what), cols);

    t.elem = VP_ELEM_STAT;
    return vp_graph_add_tensor(&b->b, b->template_idx, t);
}

int vp_build_input(vp_builder *b, int64_t cols)
{
    return current(b)->in = add_rows(b, "x", cols);
}

void vp_build_output(vp_builder *b, int y)
{
    /* without memory there are no tensors to point to: vp_build_finish() says so */
    assert(vp_arena_failed(arena_of(b)) || (y >= 0 && y < current(b)->n_tensors));
    current(b)->out = y;
}

int64_t vp_build_cols(const vp_builder *b, int x)
{
    assert(vp_arena_failed(arena_of(b)) || (x >= 0 && x < current(b)->n_tensors));
    return vp_arena_failed(arena_of(b)) ? 1 : current(b)->tensors[x].dim[1].coef;
}

int vp_build_read_span(vp_builder *b, const char *name, int span)
{
    vp_tensor t = {.name = name, .elem = VP_ELEM_INDEX, .rank = 1, .span = span};

    assert(span >= 0 && span < b->b.graph->n_spans);
    if (b->b.graph->spans)
        t.dim[0] = b->b.graph->spans[span].rows;
    return vp_graph_add_tensor(&b->b, b->template_idx, t);
}

/* ---- parameters ---- */

static vp_param_ref add_param(vp_builder *b, vp_param p)
{
    return (vp_param_ref){.used = true, .idx = vp_graph_add_param(&b->b, b->template_idx, p)};
}

static const char *member(vp_builder *b, const char *prefix, const char *what)
{
    return vp_arena_printf(arena_of(b), "%s.%s", prefix, what);
}

static vp_param_ref add_matrix(vp_builder *b, const char *name, int64_t rows, int64_t cols,
                               double std)
{
    return add_param(b, (vp_param){.name         = name,
                                   .rank         = 2,
                                   .shape        = {rows, cols},
                                   .init         = VP_INIT_NORMAL,
                                   .init_std     = std != 0 ? std : b->std,
                                   .decay        = true,
                                   .block_matrix = b->in_block});
}

static vp_param_ref add_vector(vp_builder *b, const char *name, int64_t n, vp_init init)
{
    return add_param(b, (vp_param){.name = name, .rank = 1, .shape = {n}, .init = init});
}

/* ---- ops ---- */

static vp_graph_op op_of(const vp_builder *b, vp_op op, const char *name, int x)
{
    return (vp_graph_op){
        .op = op, .name = name, .part = b->part, .in = {x, -1, -1, -1}, .padding_row = -1};
}

static int add_op(vp_builder *b, vp_graph_op op)
{
    vp_graph_add_op(&b->b, b->template_idx, op);
    return op.out[0];
}

int vp_build_embedding(vp_builder *b, const vp_embedding *e)
{
    vp_graph_op op = op_of(b, VP_OP_EMBEDDING, e->name, -1);

    op.in[0] = vp_build_read_span(b, e->span == 0 ? "tokens" : "token types", e->span);
    if (e->table)
        op.param[0] = add_param(b, (vp_param){.name     = e->table,
                                              .rank     = 2,
                                              .shape    = {e->rows, e->cols},
                                              .init     = VP_INIT_NORMAL,
                                              .init_std = b->std,
                                              .decay    = true,
                                              .zero_row = e->padding_row + 1});
    op.scale           = e->scale != 0 ? e->scale : 1.0;
    op.padding_row     = e->padding_row;
    op.position_offset = e->position_offset;
    op.skip_padding    = e->skip_padding;
    if (e->positions)
        op.param[1] = add_param(b, (vp_param){.name     = e->positions,
                                              .rank     = 2,
                                              .shape    = {e->n_positions, e->cols},
                                              .init     = VP_INIT_NORMAL,
                                              .init_std = b->std,
                                              .decay    = true,
                                              .zero_row = e->skip_padding ? e->position_offset
                                                                          : 0}); /* padding's own */
    if (e->table && e->span == 0)
        b->b.graph->vocab_size = e->rows;
    op.out[0] = add_rows(b, e->name, e->cols);
    return add_op(b, op);
}

int vp_build_layernorm(vp_builder *b, const char *name, int x, const char *prefix, double eps)
{
    vp_graph_op op   = op_of(b, VP_OP_LAYERNORM, name, x);
    int64_t     cols = vp_build_cols(b, x);

    op.eps = eps;
    if (prefix) {
        op.param[0] = add_vector(b, member(b, prefix, "weight"), cols, VP_INIT_ONES);
        op.param[1] = add_vector(b, member(b, prefix, "bias"), cols, VP_INIT_ZEROS);
    }
    op.out[0] = add_rows(b, name, cols);
    op.out[1] = add_stat(b, name, "mean", 1);
    op.out[2] = add_stat(b, name, "rstd", 1);
    return add_op(b, op);
}

int vp_build_rmsnorm(vp_builder *b, const char *name, int x, const char *prefix,
                     const vp_rmsnorm *norm)
{
    vp_graph_op op   = op_of(b, VP_OP_RMSNORM, name, x);
    int64_t     cols = vp_build_cols(b, x);

    assert(vp_arena_failed(arena_of(b)) || norm->cols == 0 || cols % norm->cols == 0);
    op.eps         = norm->eps;
    op.unit_offset = norm->unit_offset;
    op.groups      = norm->cols ? cols / norm->cols : 1;
    op.param[0]    = add_vector(b, member(b, prefix, "weight"), cols / op.groups,
                             norm->unit_offset ? VP_INIT_ZEROS : VP_INIT_ONES);
    op.out[0]      = add_rows(b, name, cols);
    op.out[1]      = add_stat(b, name, "rstd", op.groups);
    return add_op(b, op);
}

int vp_build_linear(vp_builder *b, const vp_linear *l)
{
    vp_graph_op op     = op_of(b, VP_OP_LINEAR, l->name, l->x);
    int64_t     in     = vp_build_cols(b, l->x);
    bool        out_in = l->layout == VP_WEIGHT_OUT_IN;

    op.layout   = l->layout;
    op.chunked  = l->chunked;
    op.param[0] = add_matrix(b, member(b, l->prefix, "weight"), out_in ? l->out : in,
                             out_in ? in : l->out, l->std);
    if (l->bias)
        op.param[1] = add_vector(b, member(b, l->prefix, "bias"), l->out, VP_INIT_ZEROS);
    op.out[0] = add_rows(b, l->name, l->out);
    return add_op(b, op);
}

void vp_build_unused_linear(vp_builder *b, const char *prefix, int64_t in, int64_t out,
                            vp_weight_layout layout, double std)
{
    bool out_in = layout == VP_WEIGHT_OUT_IN;

    add_param(b, (vp_param){.name     = member(b, prefix, "weight"),
                            .rank     = 2,
                            .shape    = {out_in ? out : in, out_in ? in : out},
                            .init     = VP_INIT_NORMAL,
                            .init_std = std != 0 ? std : b->std});
    add_vector(b, member(b, prefix, "bias"), out, VP_INIT_ZEROS);
}

void vp_build_unused_norm(vp_builder *b, const char *prefix, int64_t cols)
{
    add_vector(b, member(b, prefix, "weight"), cols, VP_INIT_ONES);
    add_vector(b, member(b, prefix, "bias"), cols, VP_INIT_ZEROS);
}

int vp_build_add_rope(vp_builder *b, const vp_rope *rope)
{
    vp_graph *g = b->b.graph;

    assert(g->n_ropes < VP_MAX_ROPES);
    g->ropes[g->n_ropes] = *rope;
    return g->n_ropes++;
}

int vp_build_rope(vp_builder *b, const char *name, int x, const vp_heads *heads, int rope)
{
    vp_graph_op op = op_of(b, VP_OP_ROPE, name, x);

    assert(rope >= 0 && rope < b->b.graph->n_ropes && b->b.graph->ropes[rope].dim <= heads->dim);
    op.heads      = heads->n;
    op.kv_heads   = heads->n_kv;
    op.head_dim   = heads->dim;
    op.qkv        = heads->layout;
    op.angles     = rope;
    op.rotary_dim = b->b.graph->ropes[rope].dim;
    op.out[0]     = add_rows(b, name, vp_build_cols(b, x));
    return add_op(b, op);
}

int vp_build_attention(vp_builder *b, const vp_heads *heads, const vp_attention *a)
{
    vp_graph_op op  = op_of(b, VP_OP_ATTENTION, a->name, a->q);
    vp_tensor   lse = {
          .name = vp_arena_printf(arena_of(b), "%s.lse", a->name),
          .elem = VP_ELEM_STAT,
          .rank = 3,
          .span = -1,
          .dim  = {vp_dim_symbol(VP_SYM_BATCH), vp_dim_const(heads->n), vp_dim_symbol(VP_SYM_SEQ)}};

    assert(heads->n >= 1 && heads->n_kv >= 1 && heads->n % heads->n_kv == 0 && heads->dim >= 1);
    op.in[1]    = a->k;
    op.in[2]    = a->v;
    op.in[3]    = a->lengths;
    op.heads    = heads->n;
    op.kv_heads = heads->n_kv;
    op.head_dim = heads->dim;
    op.qkv      = heads->layout;
    op.causal   = !a->full;
    op.window   = a->window;
    op.scale    = a->scale;
    op.softcap  = a->softcap;
    op.p        = a->p;
    op.rng_id   = b->rng_id++;
    op.out[0]   = add_rows(b, a->name, heads->n * heads->dim);
    op.out[1]   = vp_graph_add_tensor(&b->b, b->template_idx, lse);
    return add_op(b, op);
}

int vp_build_activation(vp_builder *b, const char *name, int x, vp_act act)
{
    vp_graph_op op = op_of(b, VP_OP_ACTIVATION, name, x);

    op.act    = act;
    op.out[0] = add_rows(b, name, vp_build_cols(b, x));
    return add_op(b, op);
}

int vp_build_glu(vp_builder *b, const char *name, int gate, int up, vp_act act)
{
    vp_graph_op op   = op_of(b, VP_OP_GLU, name, gate);
    int64_t     cols = vp_build_cols(b, gate);

    assert(vp_arena_failed(arena_of(b)) || up >= 0 || cols % 2 == 0); /* [gate | up] */
    op.in[1]  = up;
    op.act    = act;
    op.out[0] = add_rows(b, name, up >= 0 ? cols : cols / 2);
    return add_op(b, op);
}

int vp_build_add(vp_builder *b, const char *name, int x, int y)
{
    vp_graph_op op = op_of(b, VP_OP_ADD, name, x);

    op.in[1]  = y;
    op.out[0] = add_rows(b, name, vp_build_cols(b, x));
    return add_op(b, op);
}

int vp_build_dropout(vp_builder *b, const char *name, int x, double p)
{
    vp_graph_op op = op_of(b, VP_OP_DROPOUT, name, x);

    assert(p >= 0 && p < 1);
    op.rng_id = b->rng_id++;
    op.p      = p;
    if (p == 0.0)
        return x;
    op.out[0] = add_rows(b, name, vp_build_cols(b, x));
    return add_op(b, op);
}

void vp_build_lm_head(vp_builder *b, const vp_lm_head *h)
{
    vp_graph   *g    = b->b.graph;
    vp_graph_op head = op_of(b, VP_OP_LINEAR, "lm_head", h->x);

    assert(h->vocab >= 1);
    head.layout  = VP_WEIGHT_OUT_IN;
    head.chunked = true;
    if (h->tied) {
        head.param[0] = (vp_param_ref){.used = true, .shared = true, .idx = 0};
        g->n_shared   = 1;
    } else {
        head.param[0] =
            add_matrix(b, member(b, h->prefix, "weight"), h->vocab, vp_build_cols(b, h->x), 0);
    }
    if (h->bias)
        head.param[1] = add_vector(b, h->bias, h->vocab, VP_INIT_ZEROS);
    if (h->unused_bias)
        add_vector(b, h->unused_bias, h->vocab, VP_INIT_ZEROS);
    head.out[0] = add_rows(b, "logits", h->vocab);
    vp_build_loss(b, add_op(b, head), h->softcap);
}

void vp_build_loss(vp_builder *b, int logits, double softcap)
{
    vp_graph_op loss = op_of(b, VP_OP_CROSS_ENTROPY, "loss", logits);

    if (vp_arena_failed(arena_of(b)))
        return;
    assert(current(b)->tensors[logits].producer >= 0);
    loss.chunked = current(b)->ops[current(b)->tensors[logits].producer].chunked;
    loss.in[1]   = vp_build_read_span(b, "labels", b->b.graph->labels_span);
    loss.softcap = softcap;
    loss.out[0]  = add_rows(b, "loss", 1);
    add_op(b, loss);
}

/* ---- the chain ---- */

vp_status vp_build_finish(vp_builder *b, int64_t n_layers, const int64_t *windows, vp_err *err)
{
    vp_graph *g  = b->b.graph;
    vp_status st = VP_OK;

    assert(n_layers >= 1);
    g->n_instances = n_layers + 2;
    g->instances   = vp_arena_array(arena_of(b), g->n_instances, sizeof *g->instances);
    VP_TRY_ALLOC(err, !vp_arena_failed(arena_of(b)));
    assert(g->n_templates == 3);
    for (int64_t i = 0; i < g->n_instances; i++) {
        bool first = i == 0, last = i == g->n_instances - 1;
        g->instances[i] = (vp_instance){.template_idx = first  ? 0
                                                        : last ? 2
                                                               : 1,
                                        .index        = first || last ? 0 : i - 1,
                                        .chain_idx    = i};
        if (windows && !first && !last) {
            g->instances[i].window = windows[i - 1];
            g->windows_vary        = true;
        }
    }
    g->spans[g->labels_span].first_instance = g->spans[g->labels_span].last_instance =
        g->n_instances - 1;
    if (g->lengths_span >= 0)
        g->spans[g->lengths_span].last_instance = n_layers;
    assert(g->templates[0].out >= 0 && g->templates[1].in >= 0 && g->templates[1].out >= 0 &&
           g->templates[2].in >= 0);
    g->hidden = g->templates[0].tensors[g->templates[0].out].dim[1].coef;
out:
    return st;
}
