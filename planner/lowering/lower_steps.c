/* planner/lowering/lower_steps.c: values, steps and operands of a lowering at work. */
#include "planner/lowering/lowering_internal.h"

#include <assert.h>

int64_t vp_lowering_value(vp_lowering *l, vp_pass pass, vp_value v)
{
    vp_flow *f = &l->flow;

    v.forward = pass == VP_PASS_FORWARD;
    if (!vp_arena_grow(l->arena, (void **)&f->values, f->n_values, &f->cap_values,
                       sizeof *f->values))
        return 0;
    assert(v.dtype < VP_N_DTYPES && pass <= VP_PASS_BACKWARD);
    f->values[f->n_values] = v;
    return f->n_values++;
}

vp_flow_step *vp_lowering_step(vp_lowering *l, vp_pass pass)
{
    /* written and forgotten when memory ran out; the caller tests the arena */
    static _Thread_local vp_flow_step lost;
    vp_flow                          *f = &l->flow;

    if (!vp_arena_grow(l->arena, (void **)&f->steps[pass], f->n_steps[pass], &f->cap_steps[pass],
                       sizeof *f->steps[pass]))
        return &lost;
    return &f->steps[pass][f->n_steps[pass]++];
}

const vp_param *vp_lowering_param(const vp_lowering *l, const vp_param_ref *p)
{
    assert(p->used && p->idx >= 0);
    if (!p->shared)
        return &l->t->params[p->idx];
    const vp_shared_param *s = &l->graph->shared[p->idx];
    assert(p->idx < l->graph->n_shared);
    return &l->graph->templates[l->graph->instances[s->instance_idx].template_idx]
                .params[s->param_idx];
}

vp_operand vp_lowering_param_operand(const vp_graph_op *op, int k, bool gradient)
{
    const vp_param_ref *p;

    assert(k >= 0 && k < VP_OP_MAX_PARAMS);
    p = &op->param[k];
    if (!p->used)
        return VP_ABSENT;
    return (vp_operand){
        .value = -1,
        .arg   = {.space = p->shared ? (gradient ? VP_SPACE_SHARED_GRAD : VP_SPACE_SHARED_PARAM)
                                     : (gradient ? VP_SPACE_GRAD : VP_SPACE_PARAM),
                  .idx   = p->idx}};
}

void vp_lowering_set_operand(vp_flow_step *f, int k, vp_operand o, vp_access access)
{
    assert(k >= 0 && k < VP_MAX_OPERANDS);
    f->value[k]     = o.value;
    f->step.args[k] = o.arg;
    if (o.value >= 0)
        f->step.args[k].space = VP_SPACE_BUFFER;
    f->access[k] = access;
}
