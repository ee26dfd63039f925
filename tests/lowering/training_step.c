#include "tests/lowering/training_step.h"

#include "base/checked.h"
#include "planner/lowering/lower_param.h"
#include "planner/lowering/lowering_internal.h"

#include <assert.h>
#include <string.h>

/* Ids of fixed buffers that the blocks' arguments name: the graph's spans, then these. */
enum { CONTROL_ID = VP_MAX_SPANS, ANGLES_ID, N_FIXED_IDS = ANGLES_ID + VP_MAX_ROPES };

typedef struct lowered_flow {
    int      template_idx;
    uint64_t recompute;
    vp_flow  flow;
} lowered_flow;

typedef struct unrolling {
    vp_arena               *arena;
    const vp_graph         *graph;
    const vp_semantics     *sem;
    const vp_training_opts *opts;
    vp_training_program     program;
    vp_training_step       *out;

    lowered_flow     *flows;
    int64_t           n_flows, *flow_of; /* per instance */
    int64_t         **value_of; /* per instance and value of its flow, in this micro-step */
    int64_t         **held[VP_N_REGIONS]; /* per instance and parameter */
    bool             *grad_is_made;       /* per value: a gradient that is there already */
    int64_t           fixed[N_FIXED_IDS]; /* in this micro-step; -1: not named yet */
    int64_t           micro_step, instance;
    vp_training_phase phase;
    bool              overflow;
} unrolling;

/* ---- values and ops ---- */

static int64_t new_value(unrolling *u, vp_training_value v)
{
    vp_training_step *s = u->out;

    u->overflow |= vp_overflowed(v.bytes);
    v.born_op = v.died_op = -1;
    if (!vp_arena_grow(u->arena, (void **)&s->values, s->n_values, &s->cap_values,
                       sizeof *s->values))
        return 0;
    s->values[s->n_values] = v;
    return s->n_values++;
}

static vp_training_op *new_op(unrolling *u, const char *name, vp_kernel kernel)
{
    static _Thread_local vp_training_op
                      lost; /* written and forgotten when memory ran out; the caller tests */
    vp_training_step *s = u->out;

    if (!vp_arena_grow(u->arena, (void **)&s->ops, s->n_ops, &s->cap_ops, sizeof *s->ops))
        return &lost;
    s->ops[s->n_ops] = (vp_training_op){.kernel       = kernel,
                                        .name         = name,
                                        .phase        = u->phase,
                                        .micro_step   = u->micro_step,
                                        .instance_idx = u->instance};
    return &s->ops[s->n_ops++];
}

static void add_operand(vp_training_op *op, int64_t value, vp_access access)
{
    assert(op->n_operands < VP_MAX_OPERANDS);
    op->value[op->n_operands]    = value;
    op->access[op->n_operands++] = access;
}

/* ---- what is held for parameters ---- */

static int64_t held_bytes(const unrolling *u, const vp_param *p, vp_region h)
{
    int64_t bytes = vp_plan_param_bytes(u->opts->recipe, p, h);

    if (!u->sem->like_param || bytes == 0)
        return bytes;
    return h == VP_REGION_MASTER ? 0 : vp_mul(p->n_elements, vp_dtype_bytes(u->sem->param));
}

static vp_status list_held(unrolling *u, vp_err *err)
{
    static const vp_component components[VP_N_REGIONS] = {VP_COMP_PARAMETERS, VP_COMP_GRADIENTS,
                                                          VP_COMP_MASTER, VP_COMP_OPTIMIZER_STATE,
                                                          VP_COMP_OPTIMIZER_STATE};
    const vp_graph           *g                        = u->graph;
    vp_status                 st                       = VP_OK;

    for (int h = 0; h < VP_N_REGIONS; h++) {
        u->held[h] = vp_arena_array(u->arena, g->n_instances, sizeof(int64_t *));
        VP_TRY_ALLOC(err, u->held[h]);
        for (int64_t i = 0; i < g->n_instances; i++) {
            const vp_template *t = &g->templates[g->instances[i].template_idx];
            u->held[h][i]        = vp_arena_array(u->arena, t->n_params + 1, sizeof(int64_t));
            VP_TRY_ALLOC(err, u->held[h][i]);
            for (int64_t k = 0; k < t->n_params; k++) {
                int64_t bytes = held_bytes(u, &t->params[k], (vp_region)h);
                u->held[h][i][k] =
                    bytes == 0 ? -1
                               : new_value(u, (vp_training_value){.name         = t->params[k].name,
                                                                  .component    = components[h],
                                                                  .instance_idx = i,
                                                                  .dtype        = u->sem->param,
                                                                  .bytes        = bytes});
            }
        }
    }
    VP_TRY_ALLOC(err, !vp_arena_failed(u->arena));
out:
    return st;
}

static bool is_made(const unrolling *u, vp_region h)
{
    return (h == VP_REGION_GRAD && u->sem->grads == VP_SEM_MADE) ||
           (h >= VP_REGION_STATE0 && u->sem->states == VP_SEM_MADE);
}

/* ---- operands of a block's step ---- */

static int64_t span_bytes(const unrolling *u, int span)
{
    for (int t = 0; t < u->graph->n_templates; t++)
        for (int64_t k = 0; k < u->graph->templates[t].n_tensors; k++)
            if (u->graph->templates[t].tensors[k].span == span)
                return vp_mul(
                    vp_tensor_elements(&u->graph->templates[t].tensors[k], u->opts->symbols),
                    vp_dtype_bytes(u->sem->index));
    assert(!"a span that no tensor is");
    return 0;
}

static int64_t fixed_value(unrolling *u, int64_t id)
{
    bool              angles = id >= ANGLES_ID;
    vp_training_value v      = {.instance_idx = -1, .dtype = u->sem->index};

    assert(id >= 0 && id < N_FIXED_IDS);
    if (u->fixed[id] >= 0)
        return u->fixed[id];
    if (id == CONTROL_ID) {
        v.name      = "control";
        v.component = VP_COMP_CONTROL;
        v.bytes     = (int64_t)sizeof(vp_control);
    } else if (angles) {
        v.name      = "RoPE table";
        v.component = VP_COMP_CONSTANTS;
        v.bytes = vp_mul(vp_mul(u->opts->symbols[VP_SYM_SEQ], u->graph->ropes[id - ANGLES_ID].dim),
                         (int64_t)sizeof(float));
    } else {
        v.name      = "batch";
        v.component = VP_COMP_BATCH_INPUT;
        v.bytes     = span_bytes(u, (int)id);
    }
    return u->fixed[id] = new_value(u, v);
}

static int64_t arg_value(unrolling *u, const vp_arg *arg)
{
    switch (arg->space) {
    case VP_SPACE_PARAM:
    case VP_SPACE_GRAD:
    case VP_SPACE_MASTER:
    case VP_SPACE_STATE0:
    case VP_SPACE_STATE1:
        assert(arg->idx >= 0 && u->instance >= 0);
        return u->held[arg->space - VP_SPACE_PARAM][u->instance][arg->idx];
    case VP_SPACE_SHARED_PARAM:
    case VP_SPACE_SHARED_GRAD: {
        assert(arg->idx >= 0 && arg->idx < u->graph->n_shared);
        const vp_shared_param *s = &u->graph->shared[arg->idx];
        vp_region h = arg->space == VP_SPACE_SHARED_GRAD ? VP_REGION_GRAD : VP_REGION_PARAM;
        return u->held[h][s->instance_idx][s->param_idx];
    }
    case VP_SPACE_FIXED:
        return arg->idx < 0 ? -1 : fixed_value(u, arg->idx);
    case VP_SPACE_BUFFER:
    case VP_SPACE_NONE:
        break;
    }
    return -1;
}

/* What stands in the flow of this instance, as a value of the step. A block's input is its
 * predecessor's output, its output's gradient its successor's input's. */
static int64_t flow_value(unrolling *u, int64_t v)
{
    const vp_flow  *f    = &u->flows[u->flow_of[u->instance]].flow;
    int64_t        *mine = &u->value_of[u->instance][v];
    const vp_value *x    = &f->values[v];

    assert(v >= 0 && v < f->n_values);
    if (*mine >= 0)
        return *mine;
    if (v == f->in && u->instance > 0) {
        const vp_flow *before = &u->flows[u->flow_of[u->instance - 1]].flow;
        *mine                 = u->value_of[u->instance - 1][before->out];
    } else if (v == f->grad_out && u->instance + 1 < u->graph->n_instances) {
        const vp_flow *behind = &u->flows[u->flow_of[u->instance + 1]].flow;
        *mine                 = u->value_of[u->instance + 1][behind->grad_in];
    }
    if (*mine < 0)
        *mine = new_value(u, (vp_training_value){.name         = x->name,
                                                 .component    = x->component,
                                                 .instance_idx = u->instance,
                                                 .dtype        = x->dtype,
                                                 .bytes        = x->bytes});
    return *mine;
}

/* A gradient that a backward makes where another lies already is added to it and freed. */
static void accumulate(unrolling *u, int64_t grad, int64_t made)
{
    vp_training_op *op = new_op(u, "accumulate gradient", VP_N_KERNELS);

    assert(grad >= 0 && made >= 0 && grad != made);
    add_operand(op, made, VP_READ);
    add_operand(op, grad, VP_UPDATE);
}

static void emit_step(unrolling *u, const vp_flow_step *f)
{
    const char *name = f->micro_op ? f->micro_op : vp_kernel_info_of(f->step.kernel)->name;
    int64_t     value[VP_MAX_OPERANDS], extra[VP_MAX_OPERANDS];

    for (int k = 0; k < f->n_operands; k++) {
        const vp_arg *arg = &f->step.args[k];
        bool          grad =
            f->value[k] < 0 && (arg->space == VP_SPACE_GRAD || arg->space == VP_SPACE_SHARED_GRAD);
        value[k] = f->value[k] >= 0 ? flow_value(u, f->value[k]) : arg_value(u, arg);
        extra[k] = -1;
        if (!grad || value[k] < 0 || f->access[k] == VP_READ || u->sem->grads == VP_SEM_HELD)
            continue;
        if (u->grad_is_made[value[k]]) {
            extra[k] = value[k];
            value[k] = new_value(u, (vp_training_value){.name      = u->out->values[value[k]].name,
                                                        .component = VP_COMP_TEMPORARIES,
                                                        .instance_idx = u->instance,
                                                        .dtype = u->out->values[value[k]].dtype,
                                                        .bytes = u->out->values[value[k]].bytes});
        } else {
            u->grad_is_made[value[k]] = true;
        }
    }
    vp_training_op *op = new_op(u, name, f->step.kernel);
    for (int k = 0; k < f->n_operands; k++)
        add_operand(op, value[k], f->access[k]);
    for (int k = 0; k < f->n_operands; k++)
        if (extra[k] >= 0)
            accumulate(u, extra[k], value[k]);
}

static void emit_pass(unrolling *u, int64_t instance, vp_pass pass)
{
    const vp_flow *f = &u->flows[u->flow_of[instance]].flow;

    u->instance = instance;
    u->phase    = pass == VP_PASS_FORWARD ? VP_TPHASE_FORWARD : VP_TPHASE_BACKWARD;
    for (int64_t i = 0; i < f->n_steps[pass]; i++)
        if (!f->steps[pass][i].step.first_only || u->micro_step == 0)
            emit_step(u, &f->steps[pass][i]);
}

static void emit_micro_step(unrolling *u, int64_t micro_step, bool backward)
{
    const vp_graph *g = u->graph;

    u->micro_step = micro_step;
    for (int id = 0; id < CONTROL_ID; id++) /* each has a batch of its own */
        u->fixed[id] = -1;
    for (int64_t i = 0; i < g->n_instances; i++)
        for (int64_t v = 0; v < u->flows[u->flow_of[i]].flow.n_values; v++)
            u->value_of[i][v] = -1;
    for (int64_t i = 0; i < g->n_instances; i++)
        emit_pass(u, i, VP_PASS_FORWARD);
    for (int64_t i = g->n_instances - 1; backward && i >= 0; i--)
        emit_pass(u, i, VP_PASS_BACKWARD);
}

/* ---- behind the last backward ---- */

typedef struct param_at {
    int64_t        instance, idx;
    vp_param_steps steps;
} param_at;

static vp_param_opts param_opts(const unrolling *u)
{
    const vp_graph *g = u->graph;

    return (vp_param_opts){.recipe           = u->opts->recipe,
                           .control_idx      = CONTROL_ID,
                           .scratch_idx      = -1,
                           .params_per_block = g->templates[g->instances[1].template_idx].n_params};
}

static void emit_param_op(unrolling *u, const param_at *p, int s, int64_t *locals)
{
    const vp_param_steps *x = &p->steps;
    vp_kernel             k = x->steps[s].kernel;
    vp_training_op       *op;

    u->instance = p->instance;
    op          = new_op(u, x->micro_ops[s] ? x->micro_ops[s] : vp_kernel_info_of(k)->name, k);
    for (int i = 0; i < x->n_operands[s]; i++) {
        int     local = x->local[s][i];
        int64_t value;
        assert(local < VP_SEM_MAX_LOCALS);
        if (local >= 0 && locals[local] < 0)
            locals[local] = new_value(u, (vp_training_value){.name         = x->locals[local].name,
                                                             .component    = VP_COMP_TEMPORARIES,
                                                             .instance_idx = p->instance,
                                                             .dtype        = x->locals[local].dtype,
                                                             .bytes = x->locals[local].bytes});
        value = local >= 0 ? locals[local] : arg_value(u, &x->steps[s].args[i]);
        add_operand(op, value, x->access[s][i]);
    }
}

/* Every parameter's steps of a phase, in chain order. */
static vp_status lower_params(unrolling *u, vp_param_phase phase, param_at **out, int64_t *n,
                              vp_err *err)
{
    const vp_graph *g    = u->graph;
    vp_param_opts   opts = param_opts(u);
    vp_status       st   = VP_OK;

    *n = 0;
    for (int64_t i = 0; i < g->n_instances; i++)
        *n += g->templates[g->instances[i].template_idx].n_params;
    *out = vp_arena_array(u->arena, *n, sizeof **out);
    VP_TRY_ALLOC(err, *out);
    *n = 0;
    for (int64_t i = 0; i < g->n_instances; i++) {
        const vp_template *t = &g->templates[g->instances[i].template_idx];
        for (int64_t k = 0; k < t->n_params; k++, ++*n) {
            param_at *p = &(*out)[*n];
            p->instance = i;
            p->idx      = k;
            if (!vp_lower_param(u->sem, phase, &t->params[k], k, &opts, &p->steps))
                VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "%s has no optimizer %s", u->sem->name,
                               vp_optimizer_name(u->opts->recipe->optimizer)));
        }
    }
out:
    return st;
}

static vp_status emit_params(unrolling *u, vp_param_phase phase, bool foreach, vp_err *err)
{
    param_at *list;
    int64_t   n, (*locals)[VP_SEM_MAX_LOCALS];
    vp_status st = VP_OK;

    VP_TRY(lower_params(u, phase, &list, &n, err));
    locals = vp_arena_array(u->arena, n, sizeof *locals);
    VP_TRY_ALLOC(err, locals);
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < VP_SEM_MAX_LOCALS; k++)
            locals[i][k] = -1;
    if (foreach)
        for (int s = 0; s < VP_SEM_MAX_STEPS; s++)
            for (int64_t i = 0; i < n; i++) {
                if (s < list[i].steps.n)
                    emit_param_op(u, &list[i], s, locals[i]);
            }
    else
        for (int64_t i = 0; i < n; i++)
            for (int s = 0; s < list[i].steps.n; s++)
                emit_param_op(u, &list[i], s, locals[i]);
out:
    return st;
}

/* One op for each parameter in the region. */
static void emit_each(unrolling *u, vp_region h, const char *name, vp_access access)
{
    for (int64_t i = 0; i < u->graph->n_instances; i++) {
        const vp_template *t = &u->graph->templates[u->graph->instances[i].template_idx];
        u->instance          = i;
        for (int64_t k = 0; k < t->n_params; k++)
            if (u->held[h][i][k] >= 0)
                add_operand(new_op(u, name, VP_N_KERNELS), u->held[h][i][k], access);
    }
}

static vp_status emit_clipping(unrolling *u, vp_err *err)
{
    vp_param_opts  opts = param_opts(u);
    vp_param_steps steps;
    vp_status      st = VP_OK;

    u->phase = VP_TPHASE_CLIP;
    if (!vp_lower_param(u->sem, VP_PHASE_CLIP, NULL, -1, &opts, &steps)) {
        if (u->opts->recipe->clip_norm > 0)
            VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "%s clips no gradients", u->sem->name));
        goto out;
    }
    VP_TRY(emit_params(u, VP_PHASE_NORM, false, err));
    param_at once = {.instance = u->graph->n_instances - 1, .steps = steps};
    for (int s = 0; s < steps.n; s++)
        emit_param_op(u, &once, s, (int64_t[VP_SEM_MAX_LOCALS]){0});
out:
    return st;
}

static vp_status emit_optimizer(unrolling *u, vp_err *err)
{
    vp_status st = VP_OK;

    u->micro_step = -1;
    VP_TRY(emit_clipping(u, err));
    u->phase = VP_TPHASE_UPDATE;
    if (u->sem->states == VP_SEM_MADE && u->program == VP_TRAIN_FIRST_STEP)
        for (int h = VP_REGION_STATE0; h <= VP_REGION_STATE1; h++)
            emit_each(u, (vp_region)h, "zeros_like", VP_WRITE);
    VP_TRY(emit_params(u, VP_PHASE_UPDATE, u->sem->foreach, err));
    u->phase = VP_TPHASE_ZERO;
    if (u->sem->grads == VP_SEM_MADE)
        emit_each(u, VP_REGION_GRAD, "zero_grad", VP_READ);
out:
    return st;
}

static void emit_load(unrolling *u)
{
    u->phase = VP_TPHASE_LOAD;
    for (int h = 0; h < VP_N_REGIONS; h++)
        if (!is_made(u, (vp_region)h))
            emit_each(u, (vp_region)h, "load", VP_WRITE);
}

/* ---- births and deaths ---- */

/* Whether a value is there before the program, and after it. */
static bool is_there_before(const unrolling *u, const vp_training_value *v)
{
    switch (v->component) {
    case VP_COMP_PARAMETERS:
    case VP_COMP_MASTER:
        return u->program != VP_TRAIN_LOAD;
    case VP_COMP_GRADIENTS:
        return u->program != VP_TRAIN_LOAD && u->sem->grads == VP_SEM_HELD;
    case VP_COMP_OPTIMIZER_STATE:
        return u->program != VP_TRAIN_LOAD &&
               (u->sem->states == VP_SEM_HELD || u->program == VP_TRAIN_LATER_STEP);
    case VP_COMP_BATCH_INPUT:
    case VP_COMP_CONTROL:
    case VP_COMP_CONSTANTS:
        return true;
    default:
        return false;
    }
}

static bool is_there_after(const unrolling *u, const vp_training_value *v)
{
    return v->component != VP_COMP_ACTIVATIONS && v->component != VP_COMP_TEMPORARIES &&
           v->component != VP_COMP_WORKSPACE &&
           (v->component != VP_COMP_GRADIENTS || u->sem->grads == VP_SEM_HELD);
}

static vp_status list_events(unrolling *u, vp_err *err)
{
    vp_training_step *s = u->out;
    /* -1: no op names it */
    int64_t  *first = vp_arena_array(u->arena, s->n_values + 1, sizeof *first);
    int64_t  *last  = vp_arena_array(u->arena, s->n_values + 1, sizeof *last);
    vp_status st    = VP_OK;

    s->events = vp_arena_array(u->arena, 2 * s->n_values + 1, sizeof *s->events);
    VP_TRY_ALLOC(err, first && last && s->events);
    for (int64_t v = 0; v < s->n_values; v++)
        first[v] = last[v] = -1;
    for (int64_t o = 0; o < s->n_ops; o++)
        for (int k = 0; k < s->ops[o].n_operands; k++) {
            int64_t v = s->ops[o].value[k];
            if (v < 0)
                continue;
            first[v] = first[v] < 0 ? o : first[v];
            last[v]  = o;
        }
    for (int64_t o = 0; o < s->n_ops; o++)
        for (int death = 0; death < 2; death++)
            for (int k = 0; k < s->ops[o].n_operands; k++) {
                int64_t            v = s->ops[o].value[k];
                vp_training_value *x = v < 0 ? NULL : &s->values[v];
                /* an op may name a value twice */
                bool due = x && (death ? last[v] == o && x->died_op < 0 && !is_there_after(u, x)
                                       : first[v] == o && x->born_op < 0 && !is_there_before(u, x));
                if (!due)
                    continue;
                *(death ? &x->died_op : &x->born_op) = o;
                assert(s->n_events < 2 * s->n_values); /* one birth and one death each */
                s->events[s->n_events++] = (vp_training_event){!death, v, o};
            }
out:
    return st;
}

/* What nothing names is not there: a state that this program does not use, a gradient before it is
 * made. Its bytes must not be counted. */
static void forget_unborn(unrolling *u)
{
    for (int64_t v = 0; v < u->out->n_values; v++) {
        vp_training_value *x = &u->out->values[v];
        if (x->born_op < 0 && !is_there_before(u, x))
            x->bytes = 0;
    }
}

/* ---- the whole ---- */

static vp_status lower_flows(unrolling *u, vp_err *err)
{
    const vp_graph *g  = u->graph;
    vp_status       st = VP_OK;

    u->flows    = vp_arena_array(u->arena, g->n_instances, sizeof *u->flows);
    u->flow_of  = vp_arena_array(u->arena, g->n_instances, sizeof *u->flow_of);
    u->value_of = vp_arena_array(u->arena, g->n_instances, sizeof *u->value_of);
    VP_TRY_ALLOC(err, !vp_arena_failed(u->arena));
    for (int64_t i = 0; i < g->n_instances; i++) {
        int           t         = g->instances[i].template_idx;
        uint64_t      recompute = u->opts->recompute ? u->opts->recompute[i] : 0;
        vp_lower_opts opts      = {.recompute   = recompute,
                                   .chunk_rows  = u->opts->chunk_rows,
                                   .in_dtype    = u->opts->in_dtype,
                                   .control_idx = CONTROL_ID,
                                   .angles_idx  = ANGLES_ID};
        int64_t       k         = 0;

        memcpy(opts.symbols, u->opts->symbols, sizeof opts.symbols);
        for (int s = 0; s < VP_MAX_SPANS; s++)
            opts.span_idx[s] = s;
        while (k < u->n_flows &&
               (u->flows[k].template_idx != t || u->flows[k].recompute != recompute))
            k++;
        if (k == u->n_flows) {
            u->flows[k] = (lowered_flow){.template_idx = t, .recompute = recompute};
            VP_TRY(vp_lower_flow(u->arena, g, t, u->sem, &opts, &u->flows[k].flow, err));
            u->n_flows++;
        }
        assert(k < u->n_flows);
        u->flow_of[i]  = k;
        u->value_of[i] = vp_arena_array(u->arena, u->flows[k].flow.n_values + 1, sizeof(int64_t));
        VP_TRY_ALLOC(err, u->value_of[i]);
    }
out:
    return st;
}

vp_status vp_lower_training(vp_arena *arena, const vp_graph *graph, const vp_semantics *semantics,
                            vp_training_program program, const vp_training_opts *opts,
                            vp_training_step *out, vp_err *err)
{
    unrolling u  = {.arena      = arena,
                    .graph      = graph,
                    .sem        = semantics,
                    .opts       = opts,
                    .program    = program,
                    .out        = out,
                    .micro_step = -1};
    vp_status st = VP_OK;

    assert(opts->n_micro_steps >= 1 && graph->n_instances >= 3);
    *out = (vp_training_step){0};
    for (int id = 0; id < N_FIXED_IDS; id++)
        u.fixed[id] = -1;
    if (program == VP_TRAIN_EVALUATION && semantics->chunks)
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "%s has no evaluation", semantics->name));
    VP_TRY(list_held(&u, err));
    out->n_held    = out->n_values;
    u.grad_is_made = vp_arena_array(arena, out->n_values + 1, sizeof *u.grad_is_made);
    VP_TRY_ALLOC(err, u.grad_is_made);
    if (program == VP_TRAIN_LOAD) {
        emit_load(&u);
    } else {
        VP_TRY(lower_flows(&u, err));
        for (int64_t m = 0; m < opts->n_micro_steps; m++)
            emit_micro_step(&u, m, program != VP_TRAIN_EVALUATION);
        if (program != VP_TRAIN_EVALUATION)
            VP_TRY(emit_optimizer(&u, err));
    }
    VP_TRY_ALLOC(err, !vp_arena_failed(arena));
    if (u.overflow)
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "more bytes than 64 bits can count"));
    assert(out->n_held <= out->n_values);
    VP_TRY(list_events(&u, err));
    forget_unborn(&u);
out:
    return st;
}

void vp_training_count(const vp_training_step *step, vp_training_bytes *out)
{
    int64_t alive = 0, e = 0;

    for (int64_t v = 0; v < step->n_values; v++)
        alive += step->values[v].born_op < 0 ? step->values[v].bytes : 0;
    *out = (vp_training_bytes){.before = alive};
    for (int p = 0; p < VP_N_TPHASES; p++)
        out->most[p] = out->end[p] = -1;
    for (int64_t o = 0; o < step->n_ops; o++) {
        vp_training_phase p = step->ops[o].phase;
        assert(p < VP_N_TPHASES);
        out->most[p] = vp_max_i64(out->most[p], alive);
        for (; e < step->n_events && step->events[e].op == o; e++) {
            int64_t bytes = step->values[step->events[e].value].bytes;
            alive += step->events[e].birth ? bytes : -bytes;
            assert(alive >= 0); /* nothing dies that was not born */
            out->most[p] = vp_max_i64(out->most[p], alive);
        }
        out->end[p] = alive;
    }
    assert(e == step->n_events);
    for (int p = 0; p < VP_N_TPHASES; p++)
        if (out->end[p] < 0)
            out->most[p] = out->end[p] = p == 0 ? out->before : out->end[p - 1];
}
