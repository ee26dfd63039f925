#include "models/graph.h"

#include "base/checked.h"

#include <assert.h>

vp_dim vp_dim_const(int64_t n)
{
    return (vp_dim){.coef = n};
}

vp_dim vp_dim_symbol(vp_symbol s)
{
    assert(s < VP_N_SYMBOLS);
    vp_dim d   = {.coef = 1};
    d.power[s] = 1;
    return d;
}

vp_dim vp_dim_times(vp_dim a, vp_dim b)
{
    a.coef = vp_mul(a.coef, b.coef);
    for (int s = 0; s < VP_N_SYMBOLS; s++)
        a.power[s] = (uint8_t)(a.power[s] + b.power[s]);
    return a;
}

int64_t vp_dim_eval(const vp_dim *d, const int64_t *symbols)
{
    int64_t n = d->coef;

    for (int s = 0; s < VP_N_SYMBOLS; s++)
        for (int k = 0; k < d->power[s]; k++)
            n = vp_mul(n, symbols[s]);
    return n;
}

int64_t vp_tensor_elements(const vp_tensor *t, const int64_t *symbols)
{
    int64_t n = 1;

    assert(t->rank >= 0 && t->rank <= (int)(sizeof t->dim / sizeof *t->dim));
    for (int d = 0; d < t->rank; d++)
        n = vp_mul(n, vp_dim_eval(&t->dim[d], symbols));
    return n;
}

static int64_t count_params(const vp_graph *graph, bool frozen_too)
{
    int64_t total = 0;

    for (int64_t i = 0; i < graph->n_instances; i++) {
        const vp_template *t = &graph->templates[graph->instances[i].template_idx];
        for (int64_t k = 0; k < t->n_params; k++)
            if (frozen_too || !t->params[k].frozen)
                total = vp_add(total, t->params[k].n_elements);
    }
    return total;
}

int64_t vp_graph_param_count(const vp_graph *graph)
{
    return count_params(graph, true);
}

int64_t vp_graph_trained_count(const vp_graph *graph)
{
    return count_params(graph, false);
}

int64_t vp_graph_longest(const vp_graph *graph)
{
    return graph->learns_positions ? graph->max_seq : INT64_MAX;
}

/* The i-th of m names: "ln_1", "ln_1 +1", ... */
static const char *name_in_segment(vp_arena *arena, const char *name, int64_t i)
{
    return i == 0 ? name : vp_arena_printf(arena, "%s +%lld", name, (long long)i);
}

/* m blocks of one template as one: block i + 1 reads what block i makes. */
static vp_template segment_of(vp_arena *arena, const vp_template *block, int64_t m)
{
    vp_template s = {.name      = vp_arena_printf(arena, "%s x%lld", block->name, (long long)m),
                     .n_tensors = m * block->n_tensors,
                     .n_ops     = m * block->n_ops,
                     .n_params  = m * block->n_params,
                     .in        = block->in};

    assert(m >= 2 && block->in >= 0 && block->out >= 0);
    s.tensors = vp_arena_array(arena, s.n_tensors, sizeof *s.tensors);
    s.ops     = vp_arena_array(arena, s.n_ops, sizeof *s.ops);
    s.params  = vp_arena_array(arena, s.n_params, sizeof *s.params);
    for (int64_t i = 0; !vp_arena_failed(arena) && i < m; i++) {
        int tensor0 = (int)(i * block->n_tensors), op0 = (int)(i * block->n_ops),
            param0 = (int)(i * block->n_params);
        /* the previous block's output */
        int before = tensor0 - (int)block->n_tensors + block->out;
        assert(i == 0 || before >= 0);
        for (int64_t k = 0; k < block->n_tensors; k++) {
            vp_tensor *t = &s.tensors[tensor0 + k];
            *t           = block->tensors[k];
            t->name      = name_in_segment(arena, t->name, i);
            t->producer += t->producer >= 0 ? op0 : 0;
        }
        for (int64_t k = 0; k < block->n_params; k++) {
            s.params[param0 + k] = block->params[k];
            s.params[param0 + k].index_offset += i;
        }
        for (int64_t k = 0; k < block->n_ops; k++) {
            vp_graph_op *op = &s.ops[op0 + k];
            *op             = block->ops[k];
            op->name        = name_in_segment(arena, op->name, i);
            op->rng_id += (int)i << 8;
            for (int n = 0; n < VP_OP_MAX_IN; n++)
                if (op->in[n] >= 0)
                    op->in[n] = i > 0 && op->in[n] == block->in ? before : op->in[n] + tensor0;
            for (int n = 0; n < VP_OP_MAX_OUT; n++)
                op->out[n] += op->out[n] >= 0 ? tensor0 : 0;
            for (int n = 0; n < VP_OP_MAX_PARAMS; n++)
                op->param[n].idx += op->param[n].used && !op->param[n].shared ? param0 : 0;
        }
        s.out = tensor0 + block->out;
    }
    return s;
}

vp_graph vp_graph_grouped(vp_arena *arena, const vp_graph *graph, const vp_grouping *groups,
                          int n_groups)
{
    const vp_instance *block = &graph->instances[1];
    vp_graph           g     = *graph;
    int64_t            at    = 1;

    assert(graph->n_instances >= 3);
    g.templates   = vp_arena_array(arena, graph->n_templates + n_groups, sizeof *g.templates);
    g.instances   = vp_arena_array(arena, graph->n_instances, sizeof *g.instances);
    g.n_instances = 0;
    if (vp_arena_failed(arena))
        return g;
    for (int64_t t = 0; t < graph->n_templates; t++)
        g.templates[t] = graph->templates[t];
    g.instances[g.n_instances++] = graph->instances[0];
    for (int k = 0; k < n_groups; k++) {
        assert(groups[k].segment >= 1 && groups[k].n_blocks % groups[k].segment == 0);
        int t = block->template_idx;
        if (groups[k].segment > 1) {
            vp_template s = segment_of(arena, &graph->templates[t], groups[k].segment);
            t             = (int)graph->n_templates;
            while (t < g.n_templates && g.templates[t].n_ops != s.n_ops)
                t++;
            g.templates[t] = s;
            g.n_templates += t == g.n_templates;
        }
        for (int64_t i = 0; i < groups[k].n_blocks;
             i += groups[k].segment, at += groups[k].segment) {
            assert(at < graph->n_instances - 1); /* groups are of blocks, not of the head */
            g.instances[g.n_instances]                = graph->instances[at];
            g.instances[g.n_instances++].template_idx = t;
        }
    }
    g.instances[g.n_instances++] = graph->instances[graph->n_instances - 1];
    g.spans                      = vp_arena_array(arena, graph->n_spans, sizeof *g.spans);
    for (int64_t k = 0; g.spans && k < graph->n_spans; k++) {
        g.spans[k]                = graph->spans[k]; /* spans begin or end at the chain's ends */
        g.spans[k].first_instance = graph->spans[k].first_instance == 0 ? 0 : g.n_instances - 1;
        g.spans[k].last_instance  = graph->spans[k].last_instance == 0 ? 0 : g.n_instances - 1;
    }
    return g;
}

int vp_graph_add_template(vp_graph_builder *b, const char *name)
{
    vp_graph *g = b->graph;

    if (!vp_arena_grow(b->arena, (void **)&g->templates, g->n_templates, &g->cap_templates,
                       sizeof *g->templates))
        return 0;
    g->templates[g->n_templates] = (vp_template){.name = name, .in = -1, .out = -1};
    return (int)g->n_templates++;
}

int vp_graph_add_tensor(vp_graph_builder *b, int template_idx, vp_tensor tensor)
{
    vp_template *t = &b->graph->templates[template_idx];

    if (!vp_arena_grow(b->arena, (void **)&t->tensors, t->n_tensors, &t->cap_tensors,
                       sizeof *t->tensors))
        return 0;
    tensor.producer          = -1;
    t->tensors[t->n_tensors] = tensor;
    return (int)t->n_tensors++;
}

int vp_graph_add_param(vp_graph_builder *b, int template_idx, vp_param param)
{
    vp_template *t = &b->graph->templates[template_idx];

    if (!vp_arena_grow(b->arena, (void **)&t->params, t->n_params, &t->cap_params,
                       sizeof *t->params))
        return 0;
    param.n_elements = 1;
    for (int d = 0; d < param.rank; d++)
        param.n_elements = vp_mul(param.n_elements, param.shape[d]);
    assert(param.rank >= 0 && param.rank <= VP_PARAM_MAX_RANK);
    t->params[t->n_params] = param;
    return (int)t->n_params++;
}

int vp_graph_add_op(vp_graph_builder *b, int template_idx, vp_graph_op op)
{
    vp_template      *t    = &b->graph->templates[template_idx];
    const vp_op_info *info = vp_op_info_of(op.op);

    if (!vp_arena_grow(b->arena, (void **)&t->ops, t->n_ops, &t->cap_ops, sizeof *t->ops))
        return 0;
    assert(info->n_in <= VP_OP_MAX_IN);
    for (int k = info->n_in; k < VP_OP_MAX_IN; k++)
        op.in[k] = -1;
    for (int k = info->n_out; k < VP_OP_MAX_OUT; k++)
        op.out[k] = -1;
    for (int k = 0; k < info->n_out; k++) {
        assert(op.out[k] >= 0 && op.out[k] < t->n_tensors);
        t->tensors[op.out[k]].producer = (int)t->n_ops;
    }
    for (int k = 0; k < info->n_in; k++)
        assert(vp_arena_failed(b->arena) || op.in[k] < t->n_tensors);
    t->ops[t->n_ops] = op;
    return (int)t->n_ops++;
}

vp_tensor vp_tensor_rows(const char *name, int64_t cols)
{
    return (vp_tensor){.name = name,
                       .rank = 2,
                       .span = -1,
                       .dim = {vp_dim_times(vp_dim_symbol(VP_SYM_BATCH), vp_dim_symbol(VP_SYM_SEQ)),
                               vp_dim_const(cols)}};
}
