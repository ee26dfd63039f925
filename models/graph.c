#include "models/graph.h"

#include "core/checked.h"

vp_dim vp_dim_const(int64_t n)
{
    return (vp_dim){.coef = n};
}

vp_dim vp_dim_symbol(vp_symbol s)
{
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

    for (int d = 0; d < t->rank; d++)
        n = vp_mul(n, vp_dim_eval(&t->dim[d], symbols));
    return n;
}

int64_t vp_graph_param_count(const vp_graph *graph)
{
    int64_t total = 0;

    for (int64_t i = 0; i < graph->n_instances; i++) {
        const vp_template *t = &graph->templates[graph->instances[i].template_idx];
        for (int64_t k = 0; k < t->n_params; k++)
            total = vp_add(total, t->params[k].n_elements);
    }
    return total;
}

int vp_graph_add_template(vp_graph_builder *b, const char *name)
{
    vp_graph *g = b->graph;

    if (!vp_arena_grow(b->arena, (void **)&g->templates, g->n_templates, &g->cap_templates, sizeof *g->templates))
        return 0;
    g->templates[g->n_templates] = (vp_template){.name = name, .in = -1, .out = -1};
    return (int)g->n_templates++;
}

int vp_graph_add_tensor(vp_graph_builder *b, int template_idx, vp_tensor tensor)
{
    vp_template *t = &b->graph->templates[template_idx];

    if (!vp_arena_grow(b->arena, (void **)&t->tensors, t->n_tensors, &t->cap_tensors, sizeof *t->tensors))
        return 0;
    tensor.producer           = -1;
    t->tensors[t->n_tensors] = tensor;
    return (int)t->n_tensors++;
}

int vp_graph_add_param(vp_graph_builder *b, int template_idx, vp_plan_param param)
{
    vp_template *t = &b->graph->templates[template_idx];

    if (!vp_arena_grow(b->arena, (void **)&t->params, t->n_params, &t->cap_params, sizeof *t->params))
        return 0;
    param.n_elements = 1;
    for (int d = 0; d < param.rank; d++)
        param.n_elements = vp_mul(param.n_elements, param.shape[d]);
    t->params[t->n_params] = param;
    return (int)t->n_params++;
}

int vp_graph_add_op(vp_graph_builder *b, int template_idx, vp_graph_op op)
{
    vp_template      *t    = &b->graph->templates[template_idx];
    const vp_op_info *info = vp_op_info_of(op.op);

    if (!vp_arena_grow(b->arena, (void **)&t->ops, t->n_ops, &t->cap_ops, sizeof *t->ops))
        return 0;
    for (int k = info->n_in; k < VP_OP_MAX_IN; k++)
        op.in[k] = -1;
    for (int k = info->n_out; k < VP_OP_MAX_OUT; k++)
        op.out[k] = -1;
    for (int k = 0; k < info->n_out; k++)
        t->tensors[op.out[k]].producer = (int)t->n_ops;
    t->ops[t->n_ops] = op;
    return (int)t->n_ops++;
}

vp_tensor vp_tensor_rows(const char *name, int64_t cols)
{
    return (vp_tensor){.name = name, .rank = 2, .span = -1,
                       .dim = {vp_dim_times(vp_dim_symbol(VP_SYM_BATCH), vp_dim_symbol(VP_SYM_SEQ)),
                               vp_dim_const(cols)}};
}
