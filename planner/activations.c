/* planner/activations.c: what blocks keep from forward to backward, in the host's memory meanwhile.
 *
 * Kernels work on places in a slot on the device, one for each op whose output may be moved. Block i
 * works on slot i mod n. Behind the last kernel that writes an output, its copy to host memory
 * starts; before the next block on this slot writes there, it waits for that copy. In backward, behind
 * the last kernel of block i that uses a place, the copy starts that brings the output of the block
 * before it on this slot, which that block waits for before its first kernel that reads it. So one slot
 * does, if each output's own copy has time while the rest of a block runs:
 *
 *     forward of   block 1          block 2            backward of   block 2          block 1
 *     place q      q1  out ------>  q2 ...                           .... q2  in -->  ... q1
 *     place up         up1  out ------>  up2 ...                     up2  in ------>  up1
 *
 * Nobody comes for the place of the last block on each slot, so what it keeps stays there. A block's
 * neighbour on its slot may move other outputs than the block itself: what the block does not use
 * it waits for behind its forward, and fetches before its backward. All copies of a pass begin and
 * end while blocks run. */
#include "base/checked.h"
#include "planner/planner_internal.h"

#include <assert.h>
#include <string.h>

const vp_block_run *vp_run_of(const vp_scenario *s, int64_t i)
{
    int run = 0;

    assert(i >= 1);
    for (i--; i >= s->runs[run].n_blocks / s->runs[run].segment; run++) {
        i -= s->runs[run].n_blocks / s->runs[run].segment;
        assert(run + 1 < s->n_runs);
    }
    return &s->runs[run];
}

vp_slot_place vp_slot_place_of(const vp_scenario *s, int64_t n_instances, int64_t i)
{
    int64_t       n   = s->offload.n_slots;
    vp_slot_place out = {.slot = 0};

    if (!s->offload.activations || i < 1 || i >= n_instances - 1)
        return out;
    assert(n >= 1 && n <= VP_MAX_ACTIVATION_SLOTS && vp_run_of(s, i)->segment == 1);
    out.slot       = (int)(i % n);
    out.stays      = i + n >= n_instances - 1;
    out.has_before = i - n >= 1;
    if (out.has_before) {
        out.recompute_before = vp_run_of(s, i - n)->recompute;
        out.offload_before   = vp_run_of(s, i - n)->offload;
    }
    return out;
}

/* ---- slots ---- */

/* Bytes of the output of each op of a block that is kept where nothing is recomputed. */
static vp_status output_bytes(const vp_assembly *a, int64_t bytes[64], vp_err *err)
{
    const vp_scenario *s    = a->scenario;
    vp_lower_opts      opts = {.symbols    = {s->micro_batch, s->seq, 1, 1},
                               .heights    = VP_HEIGHTS_NONE,
                               .span_idx   = {1, 2, 3, 4},
                               .angles_idx = 5};
    vp_lowered         l    = {0};
    vp_status          st   = VP_OK;

    VP_TRY(vp_lower(a->arena, &a->model->graph, vp_block_template(&a->model->graph),
                    vp_semantics_of(&s->recipe, s->attention), &opts, &l, err));
    for (int64_t b = 0; b < l.program.n_buffers; b++)
        if (l.makers[b])
            bytes[l.makers[b] - 1] = l.program.buffers[b].bytes;
out:
    return st;
}

vp_status vp_activations_list_slots(vp_assembly *a, vp_err *err)
{
    const vp_offload *o         = &a->scenario->offload;
    int64_t           bytes[64] = {0};
    vp_status         st        = VP_OK;

    a->activation_slots = -1;
    a->n_moved          = 0;
    memset(a->place_of_op, -1, sizeof a->place_of_op);
    if (!o->activations)
        return VP_OK;
    const vp_template *t = &a->model->graph.templates[vp_block_template(&a->model->graph)];
    VP_TRY(output_bytes(a, bytes, err));
    for (int op = 0; op < t->n_ops; op++)
        if (o->activations >> op & 1) {
            if (bytes[op] <= 0 || a->n_moved == VP_MAX_MOVED)
                VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "%s keeps nothing that can be moved",
                               t->ops[op].name));
            a->place_of_op[op] = a->n_moved++;
        }
    for (int slot = 0; slot < o->n_slots; slot++)
        for (int op = 0; op < t->n_ops; op++) {
            if (a->place_of_op[op] < 0)
                continue;
            const char *name =
                vp_arena_printf(a->arena, "slot %d of %s", slot + 1, t->ops[op].name);
            VP_TRY_ALLOC(err, name);
            int idx             = vp_layout_add_fixed(a, name, VP_COMP_STAGING, bytes[op]);
            a->activation_slots = a->activation_slots < 0 ? idx : a->activation_slots;
        }
out:
    return st;
}

/* ---- one program ---- */

/* When the output of an op is used in a pass; -1: never. */
typedef struct use {
    int64_t first, last, last_write;
} use;

typedef struct moving {
    vp_assembly         *a;
    vp_lowered          *l;
    const vp_lowered    *before; /* of the block before on the same slot; NULL: there is none */
    const vp_slot_place *place;
    uint64_t             own, others; /* ops whose outputs this block, and that one, moves */
    vp_step             *steps;
    int64_t              n, cap;
} moving;

/* The op whose output in host memory an operand names; -1: none. */
static int moved_op(const vp_lowered *l, const vp_arg *arg)
{
    return arg->space == VP_SPACE_BUFFER &&
                   l->program.buffers[arg->idx].memory == VP_MEMORY_HOST_PINNED
               ? l->makers[arg->idx] - 1
               : -1;
}

/* The buffer that keeps an op's output in host memory. */
static int64_t buffer_of(const vp_lowered *l, int op)
{
    int64_t b = 0;

    while (l->program.buffers[b].memory != VP_MEMORY_HOST_PINNED || l->makers[b] - 1 != op) {
        b++;
        assert(b < l->program.n_buffers);
    }
    return b;
}

static uint64_t moved_by(const vp_lowered *l)
{
    uint64_t ops = 0;

    for (int64_t b = 0; l && b < l->program.n_buffers; b++)
        if (l->program.buffers[b].memory == VP_MEMORY_HOST_PINNED)
            ops |= UINT64_C(1) << (l->makers[b] - 1);
    return ops;
}

static vp_arg in_slot(const moving *m, int op, int64_t offset_bytes)
{
    const vp_assembly *a = m->a;

    assert(op >= 0 && op < 64 && a->place_of_op[op] >= 0);
    return (vp_arg){.space = VP_SPACE_FIXED,
                    .idx   = a->activation_slots + m->place->slot * a->n_moved + a->place_of_op[op],
                    .offset_bytes = offset_bytes};
}

static void add(moving *m, const vp_step *s)
{
    assert(m->n < m->cap);
    m->steps[m->n++] = *s;
}

/* An output's way out and its way back are never under way at once. */
static int64_t number(const moving *m, int op)
{
    return VP_FIRST_ACTIVATION_COPY + m->place->slot * VP_MAX_MOVED + m->a->place_of_op[op];
}

/* Out of the slot to this block's buffer; or in, from the block's before it. */
static void start(moving *m, int op, bool in)
{
    const vp_lowered *of     = in ? m->before : m->l;
    int64_t           buffer = buffer_of(of, op);
    vp_arg            home   = {.space = VP_SPACE_BUFFER,
                                .idx   = buffer,
                                .ahead = in ? -m->a->scenario->offload.n_slots : 0};
    vp_step           s      = {.kernel = VP_K_COPY_START,
                                .dtype  = VP_DTYPE_F32,
                                .name   = of->program.buffers[buffer].name,
                                .stream = in ? VP_STREAM_TO_DEVICE : VP_STREAM_TO_HOST};
    s.args[VP_COPY_START_X]  = in ? home : in_slot(m, op, 0);
    s.args[VP_COPY_START_Y]  = in ? in_slot(m, op, 0) : home;
    s.copy_start.count       = of->program.buffers[buffer].bytes;
    s.copy_start.copy        = number(m, op);
    add(m, &s);
}

static void wait(moving *m, int op)
{
    vp_step s = {.kernel = VP_K_COPY_DONE,
                 .dtype  = VP_DTYPE_F32,
                 .name   = m->a->fixed[in_slot(m, op, 0).idx].name};

    s.copy_done.copy = number(m, op);
    add(m, &s);
}

static void find_uses(const moving *m, vp_pass pass, use uses[64])
{
    for (int op = 0; op < 64; op++)
        uses[op] = (use){-1, -1, -1};
    for (int64_t i = 0; i < m->l->program.n_steps[pass]; i++) {
        const vp_step *s = &m->l->program.steps[pass][i];
        for (int k = 0; k < vp_step_n_operands(s); k++) {
            int op = moved_op(m->l, &s->args[k]);
            if (op < 0)
                continue;
            uses[op].first = uses[op].first < 0 ? i : uses[op].first;
            uses[op].last  = i;
            if (vp_step_operand_access(s, k) != VP_READ)
                uses[op].last_write = i;
        }
    }
}

static void add_on_slot(moving *m, const vp_step *step)
{
    vp_step s = *step;

    for (int k = 0; k < vp_step_n_operands(&s); k++) {
        int op = moved_op(m->l, &s.args[k]);
        if (op >= 0)
            s.args[k] = in_slot(m, op, s.args[k].offset_bytes);
    }
    add(m, &s);
}

static void move_forward(moving *m, const use uses[64])
{
    const vp_program *p = &m->l->program;

    for (int64_t i = 0; i < p->n_steps[VP_PASS_FORWARD]; i++) {
        for (int op = 0; op < 64; op++)
            if (uses[op].first == i && (m->others >> op & 1))
                wait(m, op);
        add_on_slot(m, &p->steps[VP_PASS_FORWARD][i]);
        for (int op = 0; op < 64 && !m->place->stays; op++)
            if (uses[op].last_write == i)
                start(m, op, false);
    }
    for (int op = 0; op < 64; op++)
        if ((m->others & ~m->own) >> op & 1)
            wait(m, op);
}

static void move_backward(moving *m, const use uses[64])
{
    const vp_program *p = &m->l->program;

    for (int op = 63; op >= 0; op--)
        if ((m->others & ~m->own) >> op & 1)
            start(m, op, true);
    for (int64_t i = 0; i < p->n_steps[VP_PASS_BACKWARD]; i++) {
        for (int op = 0; op < 64 && !m->place->stays; op++)
            if (uses[op].first == i)
                wait(m, op);
        add_on_slot(m, &p->steps[VP_PASS_BACKWARD][i]);
        for (int op = 0; op < 64; op++)
            if (uses[op].last == i && (m->others >> op & 1))
                start(m, op, true);
    }
}

/* What nobody copies is in the slot only. Programs lowered alike share their list of buffers. */
static vp_status drop_host_buffers(vp_arena *arena, vp_program *p, vp_err *err)
{
    vp_plan_buffer *left = vp_arena_array(arena, p->n_buffers, sizeof *left);
    int64_t         n    = 0;

    if (!left)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");

    for (int64_t b = 0; b < p->n_buffers; b++) {
        if (p->buffers[b].memory == VP_MEMORY_HOST_PINNED)
            continue;
        for (int pass = 0; pass < VP_N_PASSES; pass++)
            for (int64_t i = 0; i < p->n_steps[pass]; i++)
                for (int k = 0; k < vp_step_n_operands(&p->steps[pass][i]); k++) {
                    vp_arg *arg = &p->steps[pass][i].args[k];
                    if (arg->space == VP_SPACE_BUFFER && arg->ahead == 0 && arg->idx == b)
                        arg->idx = n;
                }
        left[n++] = p->buffers[b];
    }
    p->buffers   = left;
    p->n_buffers = n;
    return VP_OK;
}

/* A program of the block before, which has its outputs in host memory. */
static const vp_lowered *lowered_before(const vp_assembly *a, int64_t program_idx)
{
    const vp_slot_place *x = &a->slot_place[program_idx];

    for (int64_t k = 0; x->has_before && k < a->n_programs; k++)
        if (a->template_of[k] == a->template_of[program_idx] && !a->slot_place[k].stays &&
            a->recompute_of[k] == x->recompute_before && a->offload_of[k] == x->offload_before)
            return &a->lowered[k];
    assert(!x->has_before);
    return NULL;
}

static vp_status move_program(vp_assembly *a, int64_t program_idx, vp_err *err)
{
    moving   m = {.a      = a,
                  .l      = &a->lowered[program_idx],
                  .before = lowered_before(a, program_idx),
                  .place  = &a->slot_place[program_idx]};
    vp_step *steps[2];
    int64_t  n_steps[2];
    use      uses[64];

    m.own    = moved_by(m.l);
    m.others = moved_by(m.before);
    for (int pass = 0; pass <= VP_PASS_BACKWARD; pass++) {
        m.n     = 0;
        m.cap   = m.l->program.n_steps[pass] + 2 * a->n_moved;
        m.steps = vp_arena_array(a->arena, m.cap, sizeof *m.steps);
        if (!m.steps)
            return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
        find_uses(&m, (vp_pass)pass, uses);
        if (pass == VP_PASS_FORWARD)
            move_forward(&m, uses);
        else
            move_backward(&m, uses);
        steps[pass]   = m.steps;
        n_steps[pass] = m.n;
    }
    memcpy(m.l->program.steps, steps, sizeof steps);
    memcpy(m.l->program.n_steps, n_steps, sizeof n_steps);
    return VP_OK;
}

vp_status vp_activations_move(vp_assembly *a, vp_err *err)
{
    int       block = vp_block_template(&a->graph);
    vp_status st    = VP_OK;

    for (int64_t k = 0; a->n_moved > 0 && k < a->n_programs; k++)
        if (a->template_of[k] == block)
            VP_TRY(move_program(a, k, err));
    for (int64_t k = 0; a->n_moved > 0 && k < a->n_programs; k++)
        if (a->slot_place[k].stays)
            VP_TRY(drop_host_buffers(a->arena, &a->lowered[k].program, err));
out:
    return st;
}
