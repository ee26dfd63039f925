#include "planner/lowering/lower.h"

#include "base/checked.h"
#include "plan/workspace.h"
#include "planner/lowering/lowering_internal.h"

#include <assert.h>
#include <string.h>

/* ---- values ---- */

static bool is_recomputed(const vp_lowering *l, int op)
{
    assert(op >= 0 && op < l->t->n_ops);
    bool in_set = op < 64 ? l->opts->recompute >> op & 1 : l->opts->recompute == UINT64_MAX;

    return in_set || (l->t->ops[op].chunked && l->sem->chunks);
}

static bool in_chunk(const vp_lowering *l, int tensor)
{
    assert(tensor >= 0 && tensor < l->t->n_tensors);
    int producer = l->t->tensors[tensor].producer;
    return l->sem->chunks && producer >= 0 && l->t->ops[producer].chunked;
}

/* On a card rows of logits are padded (vp_row_stride()): what a linear makes and a loss reads. */
static bool is_padded(const vp_lowering *l, int tensor)
{
    const vp_tensor *t = &l->t->tensors[tensor];

    if (!l->sem->executable || !l->opts->compute_capability || t->producer < 0 || t->rank != 2 ||
        l->t->ops[t->producer].op != VP_OP_LINEAR)
        return false;
    for (int i = 0; i < l->t->n_ops; i++)
        if (l->t->ops[i].op == VP_OP_CROSS_ENTROPY && l->t->ops[i].in[0] == tensor)
            return vp_dim_eval(&t->dim[1], l->opts->symbols) % VP_PADDED_TO != 0;
    return false;
}

static int64_t tensor_elements(const vp_lowering *l, int tensor)
{
    const vp_tensor *t = &l->t->tensors[tensor];
    int64_t          n = vp_tensor_elements(t, l->opts->symbols), cols;

    if (vp_overflowed(n) || !is_padded(l, tensor))
        return n;
    cols = vp_dim_eval(&t->dim[1], l->opts->symbols);
    return vp_mul(n / cols, vp_row_stride(cols, 1));
}

/* Rows a value of this tensor has: a chunk's where it exists per chunk. */
static int64_t tensor_bytes(vp_lowering *l, int tensor, vp_dtype dtype)
{
    int64_t n = tensor_elements(l, tensor);

    assert(l->n_tokens > 0);
    if (in_chunk(l, tensor))
        n = vp_mul(n / l->n_tokens, l->opts->chunk_rows
                                        ? vp_min_i64(l->opts->chunk_rows, l->n_tokens)
                                        : l->n_tokens);
    n = vp_mul(n, vp_dtype_bytes(dtype));
    l->overflow |= vp_overflowed(n);
    return n;
}

static vp_dtype rule_dtype(const vp_lowering *l, const vp_graph_op *op, vp_dtype_rule rule)
{
    vp_dtype a = op->in[0] >= 0 ? l->dtype[op->in[0]] : VP_DTYPE_NONE;
    vp_dtype b = op->in[1] >= 0 ? l->dtype[op->in[1]] : VP_DTYPE_NONE;

    switch (rule) {
    case VP_RULE_SAME:
        return a;
    case VP_RULE_PROMOTE:
        return a == VP_DTYPE_F32 || b == VP_DTYPE_F32 ? VP_DTYPE_F32 : a;
    case VP_RULE_COMPUTE:
        return vp_dtype_of_operands(l->sem->compute);
    case VP_RULE_F32:
        return VP_DTYPE_F32;
    case VP_RULE_BF16:
        return VP_DTYPE_BF16;
    case VP_RULE_U8:
        return VP_DTYPE_U8;
    }
    return VP_DTYPE_NONE;
}

/* ---- operands ---- */

static void emit_forward(vp_lowering *l, int op_idx, vp_pass pass);

/* Bytes into a full tensor at which the chunk at hand begins. */
static int64_t chunk_offset(vp_lowering *l, int tensor, vp_dtype dtype)
{
    int64_t bytes = vp_mul(tensor_elements(l, tensor), vp_dtype_bytes(dtype));
    return in_chunk(l, tensor) || l->row_first == 0 ? 0 : bytes / l->n_tokens * l->row_first;
}

/* The value of a tensor as a step of this pass reads it; recomputes it first where it must. */
static vp_operand read_tensor(vp_lowering *l, int tensor, vp_pass pass)
{
    const vp_tensor *t      = &l->t->tensors[tensor];
    vp_pass          from   = VP_PASS_FORWARD;
    vp_operand       result = {.value = -1};

    if (t->span >= 0) {
        assert(t->span < VP_MAX_SPANS);
        result.arg = (vp_arg){.space        = VP_SPACE_FIXED,
                              .idx          = l->opts->span_idx[t->span],
                              .offset_bytes = chunk_offset(l, tensor, l->sem->index)};
        return result;
    }
    if (pass == VP_PASS_BACKWARD && t->producer >= 0 && is_recomputed(l, t->producer)) {
        if (!l->again[t->producer])
            emit_forward(l, t->producer, VP_PASS_BACKWARD);
        from = VP_PASS_BACKWARD;
    }
    assert(vp_arena_failed(l->arena) || l->made[from][tensor] >= 0); /* ops come in order */
    result.value            = l->made[from][tensor];
    result.arg.offset_bytes = chunk_offset(l, tensor, l->dtype[tensor]);
    return result;
}

static const vp_sem_row *row_of(const vp_lowering *l, int op_idx)
{
    return vp_semantics_row(l->sem, l->t->ops[op_idx].op);
}

static bool made_in_forward(const vp_sem_row *row, vp_ref local)
{
    for (int s = 0; s < VP_SEM_MAX_STEPS; s++)
        for (int k = 0; k < VP_MAX_OPERANDS; k++)
            if (row->forward[s].operands[k] == local)
                return true;
    return false;
}

/* A local stands for the value it casts when that has its dtype already. */
static bool is_alias(const vp_lowering *l, int op_idx, vp_ref ref)
{
    const vp_graph_op  *op = &l->t->ops[op_idx];
    const vp_sem_local *local;

    assert(ref >= VP_REF_L0 && ref <= VP_REF_L7);
    local = &row_of(l, op_idx)->locals[ref - VP_REF_L0];
    assert(local->name);
    if (local->dropped_of != VP_REF_NONE)
        return op->p == 0;
    if (local->cast_of == VP_REF_NONE)
        return false;
    vp_dtype has = local->cast_of == VP_REF_P0 || local->cast_of == VP_REF_P1
                       ? l->sem->param
                       : l->dtype[op->in[local->cast_of - VP_REF_IN0]];
    return has == rule_dtype(l, op, local->dtype);
}

static bool is_local(vp_ref ref)
{
    return ref >= VP_REF_L0 && ref <= VP_REF_L7;
}

/* What a local stands for, where it is no value of its own; else the reference itself. */
static vp_ref meant_by(const vp_lowering *l, int op_idx, vp_ref ref)
{
    if (!is_local(ref) || !is_alias(l, op_idx, ref))
        return ref;
    const vp_sem_local *local = &row_of(l, op_idx)->locals[ref - VP_REF_L0];
    return local->dropped_of != VP_REF_NONE ? local->dropped_of : local->cast_of;
}

static vp_operand read_ref(vp_lowering *l, int op_idx, vp_ref ref, vp_pass pass);

static vp_operand local_operand(vp_lowering *l, int op_idx, vp_ref ref, vp_pass pass)
{
    const vp_graph_op  *op    = &l->t->ops[op_idx];
    const vp_sem_row   *row   = row_of(l, op_idx);
    const vp_sem_local *local = &row->locals[ref - VP_REF_L0];
    int64_t            *slot;
    vp_pass             from = pass;

    if (is_alias(l, op_idx, ref))
        return read_ref(l, op_idx, meant_by(l, op_idx, ref), pass);
    if (pass == VP_PASS_BACKWARD && made_in_forward(row, ref)) {
        if (is_recomputed(l, op_idx) && !l->again[op_idx])
            emit_forward(l, op_idx, VP_PASS_BACKWARD);
        from = is_recomputed(l, op_idx) ? VP_PASS_BACKWARD : VP_PASS_FORWARD;
    }
    assert(ref - VP_REF_L0 < VP_SEM_MAX_LOCALS);
    slot = &l->local[from][op_idx][ref - VP_REF_L0];
    if (*slot < 0) {
        vp_dtype dtype = rule_dtype(l, op, local->dtype);
        int64_t  bytes;
        if (local->like == VP_REF_P0 || local->like == VP_REF_P1)
            bytes = vp_mul(vp_lowering_param(l, &op->param[local->like - VP_REF_P0])->n_elements,
                           vp_dtype_bytes(dtype));
        else if (op->chunked && l->sem->chunks)
            bytes = vp_mul(l->opts->chunk_rows ? vp_min_i64(l->opts->chunk_rows, l->n_tokens)
                                               : l->n_tokens,
                           vp_dtype_bytes(dtype));
        else
            bytes = tensor_bytes(l,
                                 local->like >= VP_REF_OUT0 ? op->out[local->like - VP_REF_OUT0]
                                                            : op->in[local->like - VP_REF_IN0],
                                 dtype);
        if (local->per_key)
            bytes = vp_mul(bytes, l->opts->symbols[VP_SYM_SEQ]);
        l->overflow |= vp_overflowed(bytes);
        *slot = vp_lowering_value(
            l, from,
            (vp_value){.name      = l->opts->unnamed
                                        ? op->name
                                        : vp_arena_printf(l->arena, "%s.%s", op->name, local->name),
                       .component = from == VP_PASS_FORWARD || made_in_forward(row, ref)
                                        ? VP_COMP_ACTIVATIONS
                                        : VP_COMP_TEMPORARIES,
                       .dtype     = dtype,
                       .bytes     = bytes});
    }
    return (vp_operand){.value = *slot};
}

static bool needs_grad(const vp_lowering *l, int tensor)
{
    return tensor >= 0 && l->wanted[tensor];
}

static vp_operand read_ref(vp_lowering *l, int op_idx, vp_ref ref, vp_pass pass)
{
    const vp_graph_op *op = &l->t->ops[op_idx];

    switch (ref) {
    case VP_REF_NONE:
        return VP_ABSENT;
    case VP_REF_IN0:
    case VP_REF_IN1:
    case VP_REF_IN2:
    case VP_REF_IN3:
        return op->in[ref - VP_REF_IN0] < 0 ? VP_ABSENT
                                            : read_tensor(l, op->in[ref - VP_REF_IN0], pass);
    case VP_REF_OUT0:
    case VP_REF_OUT1:
    case VP_REF_OUT2:
        return read_tensor(l, op->out[ref - VP_REF_OUT0], pass);
    case VP_REF_P0:
    case VP_REF_P1:
    case VP_REF_P2:
    case VP_REF_P3:
        return vp_lowering_param_operand(op, ref - VP_REF_P0, false);
    case VP_REF_G_P0:
    case VP_REF_G_P1:
    case VP_REF_G_P2:
    case VP_REF_G_P3:
        return vp_lowering_trains(l, &op->param[ref - VP_REF_G_P0])
                   ? vp_lowering_param_operand(op, ref - VP_REF_G_P0, true)
                   : VP_ABSENT;
    case VP_REF_G_OUT0:
        return (vp_operand){
            .value = l->grad[op->out[0]],
            .arg   = {.offset_bytes = chunk_offset(l, op->out[0], l->dtype[op->out[0]])}};
    case VP_REF_ADD_IN0:
        return l->grad[op->in[0]] < 0 ? VP_ABSENT : (vp_operand){.value = l->grad[op->in[0]]};
    case VP_REF_CONTROL:
        return (vp_operand){.value = -1,
                            .arg   = {.space = VP_SPACE_FIXED, .idx = l->opts->control_idx}};
    case VP_REF_ANGLES:
        return (vp_operand){
            .value = -1, .arg = {.space = VP_SPACE_FIXED, .idx = l->opts->angles_idx + op->angles}};
    default:
        return local_operand(l, op_idx, ref, pass);
    }
}

/* ---- steps ---- */

static int64_t cols_of(const vp_lowering *l, int tensor)
{
    return tensor >= 0 && l->t->tensors[tensor].rank > 1
               ? vp_dim_eval(&l->t->tensors[tensor].dim[1], l->opts->symbols)
               : 1;
}

/* A call's dtype and attributes, from the op's. */
static void set_numbers(vp_lowering *l, const vp_graph_op *op, const vp_sem_row *row,
                        const vp_sem_step *step, vp_step *s)
{
    const vp_sem_shape shape = {
        .op        = op,
        .step      = step,
        .batch     = l->opts->symbols[VP_SYM_BATCH],
        .seq       = l->opts->symbols[VP_SYM_SEQ],
        .rows      = op->chunked && l->sem->chunks ? l->n_rows : l->n_tokens,
        .cols_in   = cols_of(l, op->in[0]),
        .cols_out  = cols_of(l, op->out[0]),
        .cols_out1 = vp_op_info_of(op->op)->n_out > 1 ? cols_of(l, op->out[1]) : 0,
        .ids       = op->param[0].used ? vp_lowering_param(l, &op->param[0])->shape[0]
                                       : l->graph->vocab_size,
        .padded    = op->op == VP_OP_LINEAR ? is_padded(l, op->out[0])
                                            : op->op == VP_OP_CROSS_ENTROPY && is_padded(l, op->in[0]),
    };
    const char *missing = vp_sem_attributes(row, &shape, s);

    assert(!missing);
    s->dtype              = vp_lowering_dtype(l, s->kernel, vp_gradient_sums_apart(l, op));
    s->window_of_instance = op->op == VP_OP_ATTENTION && op->window == VP_WINDOW_OF_INSTANCE;
    for (int k = 0; k < VP_MAX_INTS; k++)
        l->overflow |= vp_overflowed(s->ints[k]);
}

/* Append a step that is complete but for its workspace, which is alive in this step only. */
static void append_step(vp_lowering *l, vp_flow_step *f, vp_pass pass)
{
    f->step.workspace_bytes = l->sem->executable && l->opts->compute_capability
                                  ? vp_step_workspace_bytes(l->opts->compute_capability, &f->step)
                                  : 0;
    l->overflow |= vp_overflowed(f->step.workspace_bytes);
    assert(f->step.workspace_bytes <= 0 || f->n_operands < VP_MAX_OPERANDS);
    if (f->step.workspace_bytes > 0)
        vp_lowering_set_operand(
            f, f->n_operands++,
            (vp_operand){
                .value = vp_lowering_value(
                    l, pass,
                    (vp_value){.name      = l->opts->unnamed ? f->step.name
                                                             : vp_arena_printf(l->arena, "%s workspace",
                                                                               f->step.name),
                               .component = VP_COMP_WORKSPACE,
                               .dtype     = VP_DTYPE_U8,
                               .bytes     = f->step.workspace_bytes})},
            VP_WRITE);
    *vp_lowering_step(l, pass) = *f;
}

/* 1 + the op whose first output a tensor is; 0: none. */
static int maker_of(const vp_lowering *l, int tensor)
{
    int producer = l->t->tensors[tensor].producer;

    return producer >= 0 && l->t->ops[producer].out[0] == tensor ? producer + 1 : 0;
}

/* The value of an output: made once a pass, and once for all chunks. */
static int64_t output_value(vp_lowering *l, int tensor, vp_pass pass)
{
    const vp_tensor *t     = &l->t->tensors[tensor];
    vp_dtype         dtype = l->dtype[tensor];
    bool             again = pass == VP_PASS_BACKWARD && !in_chunk(l, tensor) && !l->opts->unnamed;

    if (l->made[pass][tensor] < 0)
        l->made[pass][tensor] = vp_lowering_value(
            l, pass,
            (vp_value){.name =
                           again ? vp_arena_printf(l->arena, "%s (recomputed)", t->name) : t->name,
                       .component = VP_COMP_ACTIVATIONS,
                       .dtype     = dtype,
                       .bytes     = tensor_bytes(l, tensor, dtype),
                       .maker     = maker_of(l, tensor),
                       .place     = tensor == l->t->out && pass == VP_PASS_FORWARD ? VP_PLACE_OUT
                                                                                   : VP_PLACE_LOCAL});
    return l->made[pass][tensor];
}

/* Whether a step only makes what is already there: a cast, or what dropout leaves as it is. */
static bool is_void(const vp_lowering *l, int op_idx, const vp_sem_step *s)
{
    int n = vp_sem_step_n_operands(s);

    for (int k = 0; k < n; k++) {
        if (vp_sem_step_access(s, k) != VP_WRITE)
            continue;
        if (is_local(s->operands[k]) && is_alias(l, op_idx, s->operands[k]))
            return true;
        for (int in = 0; in < n; in++)
            if (in != k && s->operands[in] != s->operands[k] && is_local(s->operands[in]) &&
                meant_by(l, op_idx, s->operands[in]) == s->operands[k])
                return true;
    }
    return false;
}

/* Whether the step behind op op_idx adds to its output, which nobody else reads, and one step can be
 * both. Then neither is emitted alone: the addition emits that step, and the output is never made. */
static bool adds_behind(const vp_lowering *l, int op_idx)
{
    const vp_graph_op *op = &l->t->ops[op_idx], *next = op + 1;
    int                out = op->out[0], n_readers = 0;

    if (vp_sem_step_is_end(row_of(l, op_idx)->forward_added) || op_idx + 1 == l->t->n_ops ||
        next->op != VP_OP_ADD || next->chunked || op->chunked || out == l->t->out)
        return false;
    for (int i = 0; i < l->t->n_ops; i++)
        for (int k = 0; k < VP_OP_MAX_IN; k++)
            n_readers += l->t->ops[i].in[k] == out;
    return n_readers == 1 && (next->in[0] == out || next->in[1] == out);
}

/* One step of op op_idx's forward; added: the addition that it makes too, or NULL. */
static void emit_forward_step(vp_lowering *l, int op_idx, const vp_sem_step *sem,
                              const vp_graph_op *added, vp_pass pass)
{
    const vp_graph_op *op   = &l->t->ops[op_idx];
    const int         *outs = added ? added->out : op->out;
    vp_flow_step       f    = {.micro_op = sem->name, .n_operands = vp_sem_step_n_operands(sem)};

    for (int k = 0; k < f.n_operands; k++) {
        vp_ref     ref    = sem->operands[k];
        vp_access  access = vp_sem_step_access(sem, k);
        vp_operand o;
        if (access != VP_READ && ref >= VP_REF_OUT0 && ref <= VP_REF_OUT2)
            o = (vp_operand){.value = output_value(l, outs[ref - VP_REF_OUT0], pass)};
        else if (ref == VP_REF_ADDED)
            o = read_tensor(l, added->in[added->in[0] == op->out[0]], pass);
        else
            o = read_ref(l, op_idx, ref, pass);
        vp_lowering_set_operand(&f, k, o, access);
        if (access == VP_ACCUMULATE) /* onto what an earlier step of the row made */
            f.step.accumulate = VP_ACC_ALWAYS;
    }
    f.step.kernel = sem->kernel;
    f.step.name   = op->name;
    f.step.rng_id = op->rng_id;
    if (sem->kernel != VP_N_KERNELS)
        set_numbers(l, op, row_of(l, op_idx), sem, &f.step);
    append_step(l, &f, pass);
}

static void emit_forward(vp_lowering *l, int op_idx, vp_pass pass)
{
    const vp_graph_op *op   = &l->t->ops[op_idx];
    const vp_sem_row  *row  = row_of(l, op_idx);
    bool               adds = op_idx > 0 && adds_behind(l, op_idx - 1);

    /* in backward once, but for a chunk's ops: each chunk's are emitted anew */
    assert(pass == VP_PASS_FORWARD || !l->again[op_idx]);
    if (pass == VP_PASS_BACKWARD)
        l->again[op_idx] = l->again[op_idx - adds] = true;
    if (adds)
        emit_forward_step(l, op_idx - 1, row_of(l, op_idx - 1)->forward_added, op, pass);
    if (adds || adds_behind(l, op_idx))
        return;
    for (int s = 0; s < VP_SEM_MAX_STEPS && !vp_sem_step_is_end(&row->forward[s]); s++)
        if (!is_void(l, op_idx, &row->forward[s]))
            emit_forward_step(l, op_idx, &row->forward[s], NULL, pass);
}

/* ---- backward ---- */

static int64_t new_gradient(vp_lowering *l, int tensor)
{
    return vp_lowering_value(
        l, VP_PASS_BACKWARD,
        (vp_value){.name      = l->opts->unnamed
                                    ? l->t->tensors[tensor].name
                                    : vp_arena_printf(l->arena, "grad %s", l->t->tensors[tensor].name),
                   .component = VP_COMP_TEMPORARIES,
                   .dtype     = l->dtype[tensor],
                   .bytes     = tensor_bytes(l, tensor, l->dtype[tensor])});
}

static void emit_elementwise(vp_lowering *l, const char *name, vp_kernel kernel, int64_t x,
                             int64_t y, int64_t z)
{
    vp_flow_step f = {.n_operands = vp_kernel_info_of(kernel)->n_operands,
                      .step       = {.kernel = kernel, .name = name}};

    assert(kernel == VP_K_ADD || kernel == VP_K_COPY);
    assert(vp_arena_failed(l->arena) ||
           (x >= 0 && z >= 0 && l->flow.values[x].bytes == l->flow.values[z].bytes));
    f.step.dtype          = l->flow.values[z].dtype;
    f.step.elements.count = l->flow.values[z].bytes / vp_dtype_bytes(f.step.dtype);
    vp_lowering_set_operand(&f, kernel == VP_K_ADD ? (int)VP_ADD_X : (int)VP_COPY_X,
                            (vp_operand){.value = x}, VP_READ);
    if (kernel == VP_K_ADD)
        vp_lowering_set_operand(&f, VP_ADD_Y, (vp_operand){.value = y}, VP_READ);
    vp_lowering_set_operand(&f, kernel == VP_K_ADD ? (int)VP_ADD_Z : (int)VP_COPY_Y,
                            (vp_operand){.value = z}, VP_WRITE);
    if (!l->sem->executable) {
        f.step.kernel = VP_N_KERNELS;
        f.micro_op    = kernel == VP_K_ADD ? "add" : "copy";
    }
    *vp_lowering_step(l, VP_PASS_BACKWARD) = f;
}

/* One more contribution to a tensor's gradient; own: the value is nobody else's gradient too. */
static void add_gradient(vp_lowering *l, const vp_graph_op *op, int tensor, int64_t value, bool own)
{
    assert(needs_grad(l, tensor) && value >= 0);
    if (l->grad[tensor] < 0) {
        l->grad[tensor]     = value;
        l->own_grad[tensor] = own;
        return;
    }
    int64_t sum = new_gradient(l, tensor);
    emit_elementwise(l, op->name, VP_K_ADD, l->grad[tensor], value, sum);
    l->grad[tensor]     = sum;
    l->own_grad[tensor] = true;
}

static bool is_param_gradient(vp_ref ref)
{
    return ref >= VP_REF_G_P0 && ref <= VP_REF_G_P3;
}

/* The first of the op's parameters whose gradient a step writes; -1: none. */
static int first_trained(const vp_lowering *l, const vp_graph_op *op, const vp_sem_step *s)
{
    for (int k = 0; k < vp_sem_step_n_operands(s); k++)
        if (is_param_gradient(s->operands[k]) &&
            vp_lowering_trains(l, &op->param[s->operands[k] - VP_REF_G_P0]))
            return (int)(s->operands[k] - VP_REF_G_P0);
    return -1;
}

/* Whether a backward step makes gradients, and nobody needs any of them. */
static bool is_unwanted(const vp_lowering *l, int op_idx, const vp_sem_step *s)
{
    const vp_graph_op *op   = &l->t->ops[op_idx];
    bool               some = false;

    for (int k = 0; k < vp_sem_step_n_operands(s); k++) {
        vp_ref ref = meant_by(l, op_idx, s->operands[k]);
        if (ref >= VP_REF_G_IN0 && ref <= VP_REF_G_IN2) {
            some = true;
            if (needs_grad(l, op->in[ref - VP_REF_G_IN0]))
                return false;
        }
        some |= is_param_gradient(ref);
    }
    return some && first_trained(l, op, s) < 0;
}

static int first_consumer(const vp_lowering *l, int tensor)
{
    for (int i = 0; i < l->t->n_ops; i++)
        for (int k = 0; k < VP_OP_MAX_IN; k++)
            if (l->t->ops[i].in[k] == tensor)
                return i;
    return -1;
}

static vp_operand gradient_operand(vp_lowering *l, const vp_graph_op *op, int k, int64_t *made)
{
    int tensor = op->in[k];

    if (!needs_grad(l, tensor))
        return VP_ABSENT;
    if (made[k] < 0)
        made[k] =
            l->row_first > 0 && !in_chunk(l, tensor) ? l->grad[tensor] : new_gradient(l, tensor);
    return (vp_operand){.value = made[k],
                        .arg   = {.offset_bytes = chunk_offset(l, tensor, l->dtype[tensor])}};
}

/* The value just made is the finished gradient of the block's input: it goes where the input
 * lies, if the kernel that made it can work there. */
static void finish_input_gradient(vp_lowering *l, int op_idx, int tensor, int64_t value)
{
    const vp_flow      *f    = &l->flow;
    const vp_flow_step *last = &f->steps[VP_PASS_BACKWARD][f->n_steps[VP_PASS_BACKWARD] - 1];
    int                 made = -1;

    if (tensor != l->t->in || first_consumer(l, tensor) != op_idx || !l->sem->executable ||
        l->t->ops[op_idx].chunked)
        return;
    for (int k = 0; k < last->n_operands; k++)
        if (last->value[k] == value)
            made = k;
    for (int k = 0; k < last->n_operands; k++)
        if (made < 0 ||
            (last->value[k] == f->in && !vp_kernel_may_share(last->step.kernel, made, k)))
            return;
    l->flow.values[value].place = VP_PLACE_IN;
}

/* Whether an op may add its contribution to a tensor's gradient into what is there. */
static bool may_add_into(const vp_lowering *l, const vp_graph_op *op, int tensor)
{
    return needs_grad(l, tensor) && l->grad[tensor] >= 0 && l->own_grad[tensor] && !op->chunked;
}

bool vp_backward_reads(const vp_graph *graph, int template_idx, const vp_semantics *semantics,
                       const bool *wanted, int op_idx, vp_ref ref)
{
    const vp_template *t   = &graph->templates[template_idx];
    const vp_lowering  l   = {.graph = graph, .t = t, .sem = semantics, .wanted = (bool *)wanted};
    const vp_sem_row  *row = row_of(&l, op_idx);

    assert(semantics->executable);
    for (int s = 0; s < VP_SEM_MAX_STEPS && !vp_sem_step_is_end(&row->backward[s]); s++)
        for (int k = 0; k < vp_sem_step_n_operands(&row->backward[s]); k++)
            if (meant_by(&l, op_idx, row->backward[s].operands[k]) == ref &&
                !is_unwanted(&l, op_idx, &row->backward[s]) &&
                !is_void(&l, op_idx, &row->backward[s]))
                return true;
    return false;
}

static void emit_backward_steps(vp_lowering *l, int op_idx)
{
    const vp_graph_op *op        = &l->t->ops[op_idx];
    const vp_sem_row  *row       = row_of(l, op_idx);
    int64_t            made[3]   = {-1, -1, -1};
    bool               takes_sum = false, added[3] = {false, false, false};

    if (row->zero_grads_first)
        vp_gradient_zeros(l, op_idx);
    for (int s = 0; s < VP_SEM_MAX_STEPS && !vp_sem_step_is_end(&row->backward[s]); s++) {
        const vp_sem_step *sem = &row->backward[s];
        vp_flow_step       f   = {.micro_op = sem->name, .n_operands = vp_sem_step_n_operands(sem)};
        int                trained = first_trained(l, op, sem);

        if (is_unwanted(l, op_idx, sem) || is_void(l, op_idx, sem))
            continue;
        for (int k = 0; k < f.n_operands; k++) {
            vp_ref     ref = meant_by(l, op_idx, sem->operands[k]);
            vp_operand o;
            if (ref >= VP_REF_G_IN0 && ref <= VP_REF_G_IN2) {
                int in = ref - VP_REF_G_IN0, tensor = op->in[in];
                assert(in < vp_op_info_of(op->op)->n_in);
                if (vp_sem_step_access(sem, k) == VP_ACCUMULATE && sem->kernel != VP_N_KERNELS) {
                    if (made[in] >= 0) { /* by an earlier step of the row */
                        f.step.accumulate = VP_ACC_ALWAYS;
                    } else if (may_add_into(l, op, tensor)) {
                        made[in]          = l->grad[tensor];
                        added[in]         = true;
                        f.step.accumulate = VP_ACC_ALWAYS;
                    }
                }
                o = gradient_operand(l, op, in, made);
            } else if (vp_gradient_sums_apart(l, op) && is_param_gradient(ref)) {
                o = vp_gradient_sum(l, op_idx, ref - VP_REF_G_P0);
            } else {
                o = read_ref(l, op_idx, ref, VP_PASS_BACKWARD);
                takes_sum |= ref == VP_REF_ADD_IN0;
            }
            vp_lowering_set_operand(&f, k, o, vp_sem_step_access(sem, k));
        }
        f.step.kernel = sem->kernel;
        f.step.name   = op->name;
        f.step.rng_id = op->rng_id;
        if (trained >= 0 && sem->kernel != VP_N_KERNELS)
            f.step.accumulate = vp_gradient_accumulation(l, op, row, &op->param[trained]);
        if (sem->kernel != VP_N_KERNELS)
            set_numbers(l, op, row, sem, &f.step);
        append_step(l, &f, VP_PASS_BACKWARD);
    }
    for (int k = 0; k < 3; k++) {
        if (made[k] < 0)
            continue;
        if (takes_sum || l->grad[op->in[k]] == made[k]) {
            l->grad[op->in[k]]     = made[k];
            l->own_grad[op->in[k]] = true;
        } else {
            add_gradient(l, op, op->in[k], made[k], true);
        }
        if (!added[k]) /* what grew over several steps lies where it began */
            finish_input_gradient(l, op_idx, op->in[k], l->grad[op->in[k]]);
    }
    vp_gradient_add_sums(l, op_idx);
}

static void emit_backward(vp_lowering *l, int op_idx)
{
    const vp_graph_op *op  = &l->t->ops[op_idx];
    const vp_sem_row  *row = row_of(l, op_idx);

    if (op->op != VP_OP_CROSS_ENTROPY && l->grad[op->out[0]] < 0)
        return; /* nothing depends on it */
    if (row->grad_passes) {
        for (int k = 0; k < vp_op_info_of(op->op)->n_in; k++)
            if (needs_grad(l, op->in[k]))
                add_gradient(l, op, op->in[k], l->grad[op->out[0]], false);
        return;
    }
    emit_backward_steps(l, op_idx);
    if (row->grad_replaces_in0)
        l->grad[op->in[0]] =
            l->made[is_recomputed(l, l->t->tensors[op->in[0]].producer)][op->in[0]];
}

/* The chunk of steps that stands for all from it to the one before the last: what the first makes for all of
 * them, and the second from it, is there. */
enum { MIDDLE_CHUNK = 2 };

/* Chunked ops: each chunk forward and backward before the next. Gradients inside the group begin
 * anew. */
static void emit_chunks(vp_lowering *l, int first_op)
{
    int64_t       rows    = l->opts->chunk_rows ? l->opts->chunk_rows : l->n_tokens;
    const int64_t n_alike = vp_ceil_div(l->n_tokens, rows) - MIDDLE_CHUNK - 1;

    assert(rows > 0);
    for (l->row_first = 0; l->row_first < l->n_tokens; l->row_first += rows) {
        l->n_rows = vp_min_i64(rows, l->n_tokens - l->row_first);
        for (int i = (int)l->t->n_ops - 1; i >= first_op; i--) {
            l->again[i] = false;
            for (int k = 0; k < vp_op_info_of(l->t->ops[i].op)->n_out; k++)
                l->grad[l->t->ops[i].out[k]] = -1;
        }
        const int64_t n_before = l->flow.n_steps[VP_PASS_BACKWARD];
        for (int i = (int)l->t->n_ops - 1; i >= first_op; i--)
            emit_backward(l, i);
        if (l->opts->brief && n_alike > 1 && l->row_first == MIDDLE_CHUNK * rows) {
            for (int64_t i = n_before; i < l->flow.n_steps[VP_PASS_BACKWARD]; i++)
                l->flow.steps[VP_PASS_BACKWARD][i].in_middle = true;
            l->flow.n_middle = n_alike;
            l->row_first += (n_alike - 1) * rows;
        }
    }
    assert(l->row_first >= l->n_tokens); /* every token was in some chunk */
    l->row_first = 0;
    l->n_rows    = l->n_tokens;
}

static void emit_all(vp_lowering *l)
{
    const vp_template *t             = l->t;
    int                first_chunked = (int)t->n_ops;

    for (int i = 0; i < t->n_ops; i++) {
        if (l->sem->chunks && t->ops[i].chunked)
            first_chunked = first_chunked < i ? first_chunked : i;
        else
            emit_forward(l, i, VP_PASS_FORWARD);
    }
    if (t->out >= 0) {
        l->flow.out      = l->made[VP_PASS_FORWARD][t->out];
        l->flow.grad_out = vp_lowering_value(
            l, VP_PASS_BACKWARD,
            (vp_value){.name      = vp_arena_printf(l->arena, "grad %s", t->tensors[t->out].name),
                       .component = VP_COMP_TEMPORARIES,
                       .dtype     = l->dtype[t->out],
                       .bytes     = tensor_bytes(l, t->out, l->dtype[t->out]),
                       .place     = VP_PLACE_OUT});
        l->grad[t->out] = l->flow.grad_out;
    }
    for (int i = first_chunked; i < t->n_ops; i++)
        assert(t->ops[i].chunked); /* the chunked ops are a template's last */
    if (first_chunked < t->n_ops)
        emit_chunks(l, first_chunked);
    for (int i = first_chunked - 1; i >= 0; i--)
        emit_backward(l, i);
    if (l->sem->executable)
        vp_gradient_of_unused(l);
    if (t->in >= 0 && l->sem->executable && l->grad[t->in] >= 0 &&
        l->flow.values[l->grad[t->in]].place != VP_PLACE_IN) {
        int64_t value = new_gradient(l, t->in);
        emit_elementwise(l, t->tensors[t->in].name, VP_K_COPY, l->grad[t->in], -1, value);
        l->flow.values[value].place = VP_PLACE_IN;
        l->grad[t->in]              = value;
    }
    l->flow.grad_in = t->in >= 0 ? l->grad[t->in] : -1;
}

/* dtypes of all tensors, in the order of the ops. */
static void assign_dtypes(vp_lowering *l)
{
    vp_dtype in = l->opts->in_dtype != VP_DTYPE_NONE ? l->opts->in_dtype
                                                     : vp_dtype_of_operands(l->sem->compute);

    for (int i = 0; i < l->t->n_tensors; i++) {
        vp_elem elem = l->t->tensors[i].elem;
        l->dtype[i]  = elem == VP_ELEM_INDEX  ? l->sem->index
                       : elem == VP_ELEM_STAT ? VP_DTYPE_F32
                                              : in;
    }
    for (int i = 0; i < l->t->n_ops; i++)
        for (int k = 0; k < vp_op_info_of(l->t->ops[i].op)->n_out; k++)
            l->dtype[l->t->ops[i].out[k]] = rule_dtype(l, &l->t->ops[i], row_of(l, i)->out[k]);
}

static int64_t *minus_ones(vp_arena *arena, int64_t n)
{
    int64_t *x = vp_arena_array(arena, n, sizeof *x);
    for (int64_t i = 0; x && i < n; i++)
        x[i] = -1;
    return x;
}

vp_status vp_lower_flow(vp_arena *arena, const vp_graph *graph, int template_idx,
                        const vp_semantics *semantics, const vp_lower_opts *opts, vp_flow *out,
                        vp_err *err)
{
    const vp_template *t = &graph->templates[template_idx];
    vp_lowering l  = {.flow  = {.arena = arena, .in = -1, .out = -1, .grad_out = -1, .grad_in = -1},
                      .graph = graph,
                      .t     = t,
                      .template_idx = template_idx,
                      .sem          = semantics,
                      .opts         = opts,
                      .arena        = arena};
    vp_status   st = VP_OK;

    assert(template_idx >= 0 && template_idx < graph->n_templates);
    assert(opts->chunk_rows % VP_TILE_TOKENS == 0);
    assert(t->n_ops <= 64 || opts->recompute == 0 || opts->recompute == UINT64_MAX);
    l.n_tokens = l.n_rows = vp_mul(opts->symbols[VP_SYM_BATCH], opts->symbols[VP_SYM_SEQ]);
    if (vp_overflowed(l.n_tokens))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "micro-batch times sequence is more than 64 bits can count");
    l.dtype      = vp_arena_array(arena, t->n_tensors, sizeof *l.dtype);
    l.again      = vp_arena_array(arena, t->n_ops, sizeof *l.again);
    l.wrote_grad = vp_arena_array(arena, t->n_params + 1, sizeof *l.wrote_grad);
    l.own_grad   = vp_arena_array(arena, t->n_tensors, sizeof *l.own_grad);
    l.grad       = minus_ones(arena, t->n_tensors);
    l.grad_sum   = (int64_t(*)[VP_OP_MAX_PARAMS])minus_ones(arena, t->n_ops * VP_OP_MAX_PARAMS);
    for (int pass = 0; pass < 2; pass++) {
        l.made[pass] = minus_ones(arena, t->n_tensors);
        l.local[pass] =
            (int64_t(*)[VP_SEM_MAX_LOCALS])minus_ones(arena, t->n_ops * VP_SEM_MAX_LOCALS);
    }
    l.wanted = vp_arena_array(arena, t->n_tensors, sizeof *l.wanted);
    VP_TRY_ALLOC(err, !vp_arena_failed(arena));
    vp_wanted_gradients(graph, template_idx, l.wanted);
    assign_dtypes(&l);
    if (t->in >= 0) {
        l.flow.in                      = vp_lowering_value(&l, VP_PASS_FORWARD,
                                                           (vp_value){.name      = t->tensors[t->in].name,
                                                                      .component = VP_COMP_ACTIVATIONS,
                                                                      .dtype     = l.dtype[t->in],
                                                                      .bytes = tensor_bytes(&l, t->in, l.dtype[t->in]),
                                                                      .place = VP_PLACE_IN});
        l.made[VP_PASS_FORWARD][t->in] = l.flow.in;
    }
    emit_all(&l);
    VP_TRY_ALLOC(err, !vp_arena_failed(arena));
    if (l.overflow)
        VP_TRY(VP_FAIL(
            err, VP_ERR_INPUT,
            "a buffer of this model at this batch and sequence is more bytes than 64 bits can count"));
    if (semantics->executable) /* what runs eagerly runs all of it */
        VP_TRY(vp_flow_drop_dead(&l.flow, err));
    for (int i = 0; i < t->n_ops; i++)
        l.again[i] &= !t->ops[i].chunked;
    l.flow.again     = l.again;
    l.flow.out_dtype = t->out >= 0 ? l.dtype[t->out] : VP_DTYPE_NONE;
    *out             = l.flow;
out:
    return st;
}

vp_status vp_lower(vp_arena *arena, const vp_graph *graph, int template_idx,
                   const vp_semantics *semantics, const vp_lower_opts *opts, vp_lowered *out,
                   vp_err *err)
{
    vp_flow   flow;
    vp_status st = VP_OK;

    VP_TRY(vp_lower_flow(arena, graph, template_idx, semantics, opts, &flow, err));
    out->again     = flow.again;
    out->out_dtype = flow.out_dtype;
    VP_TRY(vp_place_flow(&flow, semantics, opts, out, err));
    out->program.template_idx = template_idx;
out:
    return st;
}
