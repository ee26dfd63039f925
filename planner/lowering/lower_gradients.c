/* planner/lowering/lower_gradients.c: how a backward pass writes the gradients of parameters: from zero or
 * onto what is there, in place or summed apart first. */
#include "base/checked.h"
#include "planner/lowering/lowering_internal.h"

static bool trains(const vp_graph *g, const vp_template *t, const vp_param_ref *p)
{
    const vp_shared_param *s = p->used && p->shared ? &g->shared[p->idx] : NULL;

    if (!p->used)
        return false;
    return s ? !g->templates[g->instances[s->instance_idx].template_idx].params[s->param_idx].frozen
             : !t->params[p->idx].frozen;
}

bool vp_lowering_trains(const vp_lowering *l, const vp_param_ref *p)
{
    return trains(l->graph, l->t, p);
}

/* Whether a parameter of an instance before the last one of this template is trained. */
static bool is_trained_before(const vp_graph *g, int template_idx)
{
    int64_t last = g->n_instances - 1;

    while (last > 0 && g->instances[last].template_idx != template_idx)
        last--;
    for (int64_t i = 0; i < last; i++) {
        const vp_template *t = &g->templates[g->instances[i].template_idx];
        for (int64_t k = 0; k < t->n_params; k++)
            if (!t->params[k].frozen)
                return true;
    }
    return false;
}

void vp_wanted_gradients(const vp_graph *g, int template_idx, bool *wanted)
{
    const vp_template *t = &g->templates[template_idx];

    for (int64_t i = 0; i < t->n_tensors; i++)
        wanted[i] = (int)i == t->in && is_trained_before(g, template_idx);
    for (int64_t i = 0; i < t->n_ops; i++) {
        const vp_graph_op *op    = &t->ops[i];
        bool               reach = false;
        for (int k = 0; k < VP_OP_MAX_PARAMS; k++)
            reach |= trains(g, t, &op->param[k]);
        for (int k = 0; k < VP_OP_MAX_IN; k++)
            reach |= op->in[k] >= 0 && wanted[op->in[k]];
        for (int k = 0; k < vp_op_info_of(op->op)->n_out; k++)
            wanted[op->out[k]] = reach && t->tensors[op->out[k]].elem == VP_ELEM_COMPUTE &&
                                 t->tensors[op->out[k]].span < 0;
    }
}

/* Gradients of parameters in bf16 are rounded once a micro-step: what is summed over several chunks or
 * by a scatter, and what norms sum, which is little, is summed in fp32 first and then added. A product
 * rounds where it adds, which gives the same bits. */
bool vp_gradient_sums_apart(const vp_lowering *l, const vp_graph_op *op)
{
    return l->sem->gradients == VP_DTYPE_BF16 && op->op != VP_OP_ADAPTED &&
           (op->op != VP_OP_LINEAR || (op->chunked && l->sem->chunks && l->opts->chunk_rows &&
                                       l->opts->chunk_rows < l->n_tokens));
}

vp_dtype vp_lowering_dtype(const vp_lowering *l, vp_kernel kernel, bool apart)
{
    bool bf16 = l->sem->gradients == VP_DTYPE_BF16 && !apart;

    return vp_kernel_dtype(kernel, l->sem->compute, bf16 ? VP_DTYPE_BF16 : VP_DTYPE_F32);
}

/* Whether the owner of a shared parameter has later users, which write its gradient before it
 * does. */
static bool is_shared_elsewhere(const vp_lowering *l, int param_idx)
{
    for (int64_t i = 0; i < l->graph->n_shared; i++)
        if (l->graph->instances[l->graph->shared[i].instance_idx].template_idx == l->template_idx &&
            l->graph->shared[i].param_idx == param_idx)
            return true;
    return false;
}

/* row_first: of the chunk that is written. */
static bool is_first_write(vp_lowering *l, const vp_param_ref *p, int64_t row_first)
{
    if (!p->used)
        return true;
    if (p->shared) /* the last user in the chain comes first in backward; it writes chunk 0 */
        return row_first == 0;
    if (is_shared_elsewhere(l, p->idx))
        return false;
    bool first            = !l->wrote_grad[p->idx];
    l->wrote_grad[p->idx] = true;
    return first;
}

/* A gradient where the first micro-step begins, or what is summed apart from it in each. */
static void emit_zero(vp_lowering *l, const char *name, int64_t n_elements, vp_operand gradient)
{
    bool         apart = gradient.value >= 0;
    vp_flow_step f     = {.n_operands = 1,
                          .step       = {.kernel     = VP_K_ZERO,
                                         .dtype      = vp_lowering_dtype(l, VP_K_ZERO, apart),
                                         .name       = name,
                                         .first_only = !apart,
                                         .elements   = {.count = n_elements}}};

    vp_lowering_set_operand(&f, VP_ZERO_Y, gradient, VP_WRITE);
    *vp_lowering_step(l, VP_PASS_BACKWARD) = f;
}

/* What op op_idx sums of its parameter k's gradient apart from it. */
vp_operand vp_gradient_sum(vp_lowering *l, int op_idx, int k)
{
    const vp_graph_op *op = &l->t->ops[op_idx];

    if (!vp_lowering_trains(l, &op->param[k]))
        return VP_ABSENT;
    if (l->grad_sum[op_idx][k] < 0) {
        int64_t bytes = vp_mul(vp_lowering_param(l, &op->param[k])->n_elements, 4);
        l->overflow |= vp_overflowed(bytes);
        l->grad_sum[op_idx][k] = vp_lowering_value(
            l, VP_PASS_BACKWARD,
            (vp_value){.name      = vp_arena_printf(l->arena, "sum grad %s %d", op->name, k + 1),
                       .component = VP_COMP_TEMPORARIES,
                       .dtype     = VP_DTYPE_F32,
                       .bytes     = bytes});
    }
    return (vp_operand){.value = l->grad_sum[op_idx][k]};
}

/* Gradients that are only ever added to start from zero. */
void vp_gradient_zeros(vp_lowering *l, int op_idx)
{
    const vp_graph_op *op    = &l->t->ops[op_idx];
    bool               apart = vp_gradient_sums_apart(l, op);

    for (int k = 0; k < VP_OP_MAX_PARAMS; k++) {
        const vp_param_ref *p = &op->param[k];
        if (vp_lowering_trains(l, p) && (apart || (!p->shared && !is_shared_elsewhere(l, p->idx))))
            emit_zero(l, op->name, vp_lowering_param(l, p)->n_elements,
                      apart ? vp_gradient_sum(l, op_idx, k)
                            : vp_lowering_param_operand(op, k, true));
    }
}

/* What was summed apart, after the last chunk, onto the gradients. */
void vp_gradient_add_sums(vp_lowering *l, int op_idx)
{
    const vp_graph_op *op = &l->t->ops[op_idx];

    for (int k = 0; k < VP_OP_MAX_PARAMS; k++) {
        const vp_param_ref *p = &op->param[k];
        if (l->grad_sum[op_idx][k] < 0 || l->row_first + l->n_rows < l->n_tokens)
            continue;
        vp_flow_step f = {
            .n_operands = vp_kernel_info_of(VP_K_GRAD_ADD)->n_operands,
            .step       = {.kernel     = VP_K_GRAD_ADD,
                           .dtype      = vp_lowering_dtype(l, VP_K_GRAD_ADD, false),
                           .name       = op->name,
                           .accumulate = is_first_write(l, p, 0) ? VP_ACC_BY_PHASE : VP_ACC_ALWAYS,
                           .elements   = {.count = vp_lowering_param(l, p)->n_elements}}};
        vp_lowering_set_operand(&f, VP_GRAD_ADD_X, vp_gradient_sum(l, op_idx, k), VP_READ);
        vp_lowering_set_operand(&f, VP_GRAD_ADD_G, vp_lowering_param_operand(op, k, true),
                                VP_ACCUMULATE);
        *vp_lowering_step(l, VP_PASS_BACKWARD) = f;
    }
}

/* A parameter that no op uses: its gradient is zero. */
void vp_gradient_of_unused(vp_lowering *l)
{
    for (int64_t p = 0; p < l->t->n_params; p++) {
        bool used = is_shared_elsewhere(l, (int)p) || l->t->params[p].frozen;
        for (int i = 0; i < l->t->n_ops && !used; i++)
            for (int k = 0; k < VP_OP_MAX_PARAMS; k++)
                used |= l->t->ops[i].param[k].used && !l->t->ops[i].param[k].shared &&
                        l->t->ops[i].param[k].idx == p;
        if (!used)
            emit_zero(l, l->t->params[p].name, l->t->params[p].n_elements,
                      (vp_operand){.value = -1, .arg = {.space = VP_SPACE_GRAD, .idx = p}});
    }
}

/* How a step that has gradients of parameters among its operands writes them. */
vp_accumulate vp_gradient_accumulation(vp_lowering *l, const vp_graph_op *op, const vp_sem_row *row,
                                       const vp_param_ref *p)
{
    if (row->zero_grads_first)
        return VP_ACC_NEVER;
    if (vp_gradient_sums_apart(l, op))
        return l->row_first == 0 ? VP_ACC_NEVER : VP_ACC_ALWAYS;
    return is_first_write(l, p, l->row_first) ? VP_ACC_BY_PHASE : VP_ACC_ALWAYS;
}
