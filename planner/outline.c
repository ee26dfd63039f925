#include "planner/outline_internal.h"

#include "base/beside.h"
#include "base/checked.h"
#include "planner/lowering/lower.h"
#include "planner/request.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CHOICES = 20 };

static vp_status lower(const vp_outlines *o, const vp_graph *g, int template_idx, vp_arena *arena,
                       uint64_t set, int64_t micro_batch, vp_lowered *out, vp_err *err)
{
    vp_lower_opts opts = {.symbols            = {micro_batch, o->seq, 1, 1},
                          .recompute          = set,
                          .compute_capability = o->compute_capability,
                          .unnamed            = true,
                          .heights            = VP_HEIGHTS_NONE,
                          .span_idx           = {1, 2, 3, 4},
                          .angles_idx         = 5};

    *out = (vp_lowered){0};
    return vp_lower(arena, g, template_idx, o->semantics, &opts, out, err);
}

static vp_status lower_set(const vp_outlines *o, vp_arena *arena, uint64_t set, int64_t micro_batch,
                           vp_lowered *out, vp_err *err)
{
    const vp_graph *g = &o->model->graph;

    return lower(o, g, vp_block_template(g), arena, set, micro_batch, out, err);
}

/* A segment's blocks recompute all. */
static vp_status lower_segment(const vp_outlines *o, vp_arena *arena, const vp_graph *g,
                               int64_t micro_batch, vp_lowered *out, vp_err *err)
{
    return lower(o, g, g->instances[1].template_idx, arena, UINT64_MAX, micro_batch, out, err);
}

static outline *outline_at(const vp_outlines *o, int64_t set_idx)
{
    return set_idx < o->n_sets ? &o->sets[set_idx] : &o->segments[set_idx - o->n_sets].outline;
}

/* ---- which sets are worth lowering ---- */

/* What the sets of a block's ops can differ in. */
typedef struct choices {
    /* bit i: backward reads the result of op i; its statistics alone do not count */
    uint64_t needed;
    /* ops that read what op i makes */
    uint64_t readers[64];
    /* j: op i, whose one result only op j reads and turns into one of the same size: keeping j's
     * result instead of i's costs no byte more and saves j's time; -1: none */
    int stands_for[64];
} choices;

/* Whether the backward of an op reads a value that its forward makes for itself. */
static bool reads_local(const vp_graph *g, int template_idx, const vp_semantics *semantics,
                        const bool *wanted, int op_idx)
{
    const vp_sem_row *row = vp_semantics_row(semantics, g->templates[template_idx].ops[op_idx].op);

    for (int s = 0; s < VP_SEM_MAX_STEPS; s++)
        for (int k = 0; k < VP_MAX_OPERANDS; k++) {
            vp_ref ref = row->forward[s].operands[k];
            if (ref >= VP_REF_L0 && ref <= VP_REF_L7 &&
                vp_backward_reads(g, template_idx, semantics, wanted, op_idx, ref))
                return true;
        }
    return false;
}

static bool is_same_size(const vp_template *t, int a, int b)
{
    const int64_t any[VP_N_SYMBOLS] = {2, 3, 1, 1};
    return vp_tensor_elements(&t->tensors[a], any) == vp_tensor_elements(&t->tensors[b], any);
}

static choices find_choices(const vp_graph *g, int template_idx, const vp_semantics *semantics,
                            const bool *wanted)
{
    const vp_template *t = &g->templates[template_idx];
    choices            c = {0};

    assert(t->n_ops <= 64); /* a set is 64 bits */
    for (int i = 0; i < t->n_ops; i++) {
        for (int k = 0; k < VP_OP_MAX_IN; k++) {
            int producer = t->ops[i].in[k] >= 0 ? t->tensors[t->ops[i].in[k]].producer : -1;
            if (producer < 0)
                continue;
            c.readers[producer] |= UINT64_C(1) << i;
            c.needed |= (uint64_t)vp_backward_reads(g, template_idx, semantics, wanted, i,
                                                    (vp_ref)(VP_REF_IN0 + k))
                        << producer;
        }
        c.needed |=
            (uint64_t)(vp_backward_reads(g, template_idx, semantics, wanted, i, VP_REF_OUT0) ||
                       reads_local(g, template_idx, semantics, wanted, i))
            << i;
    }
    for (int j = 0; j < t->n_ops; j++) {
        c.stands_for[j] = -1;
        for (int k = 0; k < VP_OP_MAX_IN; k++) {
            int in = t->ops[j].in[k], i = in >= 0 ? t->tensors[in].producer : -1;
            if (i >= 0 && !(c.needed >> i & 1) && c.readers[i] == UINT64_C(1) << j &&
                is_same_size(t, in, t->ops[j].out[0]))
                c.stands_for[j] = i;
        }
    }
    return c;
}

/* A set is not worth lowering if it recomputes
 *   - an op whose result neither the backward pass nor another recomputed op reads, or
 *   - an op whose input is kept for it alone and is as large as its result: to keep the result
 *     instead takes the same bytes and no time. */
static bool is_worth_lowering(const choices *c, uint64_t set)
{
    for (int i = 63; i >= 0; i--) {
        if (!(set >> i & 1))
            continue;
        if (!(c->needed >> i & 1) && !(c->readers[i] & set))
            return false;
        if (c->stands_for[i] >= 0 && !(set >> c->stands_for[i] & 1))
            return false;
    }
    return true;
}

/* What a recompute kind repeats of these ops: it is lowered in any case, so that who pins it finds nothing
 * that is not here. An adapter's columns may be all that it makes again of an op. */
static bool is_kind(const vp_outlines *o, uint64_t ops, uint64_t set)
{
    bool is = false;

    for (int kind = 0; kind < VP_N_RECOMPUTES; kind++)
        is |= (vp_recompute_set(o->model, (vp_recompute)kind) & ops) == set;
    return is;
}

/* Every subset of the n_bits ops that is worth lowering. */
static vp_status list_sets(vp_outlines *o, const int *bit, int n_bits, vp_err *err)
{
    const vp_graph *g     = &o->model->graph;
    int             block = vp_block_template(g);
    bool *wanted          = vp_arena_array(o->arena, g->templates[block].n_tensors, sizeof *wanted);

    if (!wanted)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    vp_wanted_gradients(g, block, wanted);
    choices  c   = find_choices(g, block, o->semantics, wanted);
    uint64_t ops = 0;

    for (int b = 0; b < n_bits; b++)
        ops |= UINT64_C(1) << bit[b];
    assert(n_bits >= 0 && n_bits <= MAX_CHOICES);
    for (int64_t i = 0; i < (int64_t)1 << n_bits; i++) {
        uint64_t set = 0;
        for (int b = 0; b < n_bits; b++)
            set |= (uint64_t)(i >> b & 1) << bit[b];
        if (!is_worth_lowering(&c, set) && !is_kind(o, ops, set))
            continue;
        if (!vp_arena_grow(o->arena, (void **)&o->sets, o->n_sets, &o->cap_sets, sizeof *o->sets))
            return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
        o->sets[o->n_sets++] = (outline){.set = set};
    }
    return VP_OK;
}

/* ---- kinds of steps ---- */

static bool is_buffer(const vp_step *s, int operand)
{
    return operand < vp_step_n_operands(s) && s->args[operand].space == VP_SPACE_BUFFER;
}

static void buffer_sizes(const vp_program *p, const vp_step *s, int64_t *bytes)
{
    for (int k = 0; k < VP_MAX_OPERANDS; k++)
        bytes[k] = is_buffer(s, k) ? p->buffers[s->args[k].idx].bytes : -1;
}

/* The same but for numbers that may grow with the micro-batch. */
static bool is_same_call(const vp_step *a, const vp_step *b)
{
    bool same = a->kernel == b->kernel && a->dtype == b->dtype && a->accumulate == b->accumulate &&
                a->first_only == b->first_only && a->window_of_instance == b->window_of_instance &&
                vp_step_n_operands(a) == vp_step_n_operands(b);

    for (int k = 0; same && k < vp_step_n_operands(a); k++)
        same = a->args[k].space == b->args[k].space;
    return same;
}

static uint64_t hash_of(const vp_step *s, const int64_t *bytes)
{
    uint64_t h = (uint64_t)s->kernel;

    for (int k = 0; k < VP_MAX_OPERANDS; k++)
        h = h * UINT64_C(1099511628211) + (uint64_t)bytes[k];
    return (h ^ h >> 29) % VP_OUTLINE_BINS;
}

/* The kind that steps of these sizes are of, of any op where its name is not asked for; -1: there is none yet. */
static int64_t find_kind(const vp_outlines *o, const vp_step *s, const int64_t *bytes, uint64_t bin,
                         bool named)
{
    int64_t at = o->bins[bin];

    while (at >= 0 &&
           !((o->kinds[at].step.name == s->name || !named) && is_same_call(&o->kinds[at].step, s) &&
             memcmp(o->kinds[at].first_bytes, bytes, sizeof o->kinds[at].first_bytes) == 0 &&
             memcmp(o->kinds[at].step.ints, s->ints, sizeof s->ints) == 0))
        at = o->kinds[at].next;
    return at;
}

/* One more; -1: out of memory. */
static int64_t add_kind(vp_outlines *o, const kind_of_step *kind, uint64_t bin)
{
    const int64_t at = o->n_kinds;

    if (!vp_arena_grow(o->arena, (void **)&o->kinds, at, &o->cap_kinds, sizeof *o->kinds))
        return -1;
    o->kinds[at]      = *kind;
    o->kinds[at].next = o->bins[bin];
    o->bins[bin]      = at;
    o->n_kinds++;
    return at;
}

/* The kind of a set's step, or of a segment's, which may be any op's: neither sizes nor seconds know which op it
 * is. -1: out of memory. */
static int64_t kind_for(vp_outlines *o, int64_t set_idx, const vp_program *p, int pass,
                        int64_t step_idx)
{
    const vp_step *s    = &p->steps[pass][step_idx];
    kind_of_step   kind = {.step = *s, .set_idx = set_idx, .step_idx = step_idx, .pass = pass};

    assert(step_idx < p->n_steps[pass] && set_idx < o->n_sets + o->n_segments);
    buffer_sizes(p, s, kind.first_bytes);
    const uint64_t bin = hash_of(s, kind.first_bytes);
    const int64_t  at  = find_kind(o, s, kind.first_bytes, bin, set_idx < o->n_sets);
    return at >= 0 ? at : add_kind(o, &kind, bin);
}

/* Its seconds and sizes, from a program where it stands. */
static void scale_kind(const vp_outlines *o, kind_of_step *kind, const vp_program *p,
                       const vp_step *s, vp_cost *cost)
{
    /* what runs in the first micro-step only is outside the blocks' time */
    kind->ns = s->first_only ? 0 : llround(vp_cost_step(cost, &o->model->graph, s) * 1e9);
    assert(kind->ns >= 0);
    buffer_sizes(p, s, kind->bytes);
    for (int k = 0; k < VP_MAX_OPERANDS; k++)
        kind->aligned_bytes[k] =
            kind->bytes[k] < 0 ? 0 : vp_round_up(kind->bytes[k], VP_ALIGN_BYTES);
}

/* The seconds of a set's steps, once they are those of the micro-batch scaled to. */
static void sum_up(const vp_outlines *o, outline *x)
{
    x->ns = x->forward_ns = 0;
    for (int32_t i = 0; i < x->n_kinds; i++) {
        const int64_t ns = o->kinds[x->kinds[i]].ns;
        x->ns += ns;
        x->forward_ns += i < x->n_forward ? ns : 0;
    }
}

/* ---- outlines ---- */

static void note_use(sketched_buffer *b, int pass, int64_t step)
{
    if (b->first[pass] < 0 || step < b->first[pass])
        b->first[pass] = (int32_t)step;
    if (step > b->last[pass])
        b->last[pass] = (int32_t)step;
}

typedef struct placed {
    int64_t idx;
    int     class_; /* 0 input, 1 kept, 2 inside a pass, 3 output */
    int64_t offset_bytes;
} placed;

static int by_place(const void *a, const void *b)
{
    const placed *x = a, *y = b;

    if (x->class_ != y->class_)
        return x->class_ < y->class_ ? -1 : 1;
    if (x->class_ == 1 && x->offset_bytes != y->offset_bytes)
        return x->offset_bytes < y->offset_bytes ? -1 : 1;
    return (x->idx > y->idx) - (x->idx < y->idx);
}

/* What is there when a pass begins or still there when it ends, beyond the steps that use it. */
static void extend_lives(outline *x, const vp_program *p)
{
    for (int32_t b = 0; b < x->n_kept; b++) {
        note_use(&x->buffers[b], VP_PASS_FORWARD, p->n_steps[VP_PASS_FORWARD]);
        note_use(&x->buffers[b], VP_PASS_BACKWARD, 0);
    }
    note_use(&x->buffers[0], VP_PASS_FORWARD, 0);
    note_use(&x->buffers[0], VP_PASS_BACKWARD, p->n_steps[VP_PASS_BACKWARD]);
    if (x->has_out) {
        note_use(&x->buffers[x->n_buffers - 1], VP_PASS_FORWARD, p->n_steps[VP_PASS_FORWARD]);
        note_use(&x->buffers[x->n_buffers - 1], VP_PASS_BACKWARD, 0);
    }
}

static int32_t step_of(const sketched_buffer *b, int pass, bool last)
{
    return last ? b->last[pass] : b->first[pass];
}

/* The buffers that a pass has by their first step in it, or by their last; false: out of memory. */
static bool order_by_step(vp_arena *arena, outline *x, int pass, bool last, int32_t **out)
{
    int32_t n = 0, *order = vp_arena_array(arena, x->n_buffers, sizeof *order);

    for (int32_t b = 0; order && b < x->n_buffers; b++) {
        const int32_t step = step_of(&x->buffers[b], pass, last);
        int32_t       at   = n;
        if (step < 0)
            continue;
        for (; at > 0 && step_of(&x->buffers[order[at - 1]], pass, last) > step; at--)
            order[at] = order[at - 1];
        order[at] = b;
        n++;
    }
    x->n_in[pass] = n;
    *out          = order;
    return order;
}

static vp_status sketch(vp_outlines *o, int64_t set_idx, const vp_lowered *l, vp_err *err)
{
    const vp_program *p     = &l->program;
    outline          *x     = outline_at(o, set_idx);
    placed           *order = calloc((size_t)p->n_buffers + 1, sizeof *order);
    int64_t          *at    = calloc((size_t)p->n_buffers + 1, sizeof *at);
    vp_status         st    = VP_OK;

    x->n_buffers = (int32_t)p->n_buffers;
    x->buffers   = vp_arena_array(o->arena, p->n_buffers, sizeof *x->buffers);
    x->kinds     = vp_arena_array(o->arena, p->n_steps[0] + p->n_steps[1], sizeof *x->kinds);
    VP_TRY_ALLOC(err, order && at && x->buffers && x->kinds);
    for (int64_t i = 0; i < p->n_buffers; i++) {
        const vp_plan_buffer *b = &p->buffers[i];
        order[i]                = (placed){i,
                            b->place == VP_PLACE_IN    ? 0
                                           : b->place == VP_PLACE_OUT ? 3
                                           : b->kept                  ? 1
                                                                      : 2,
                                           b->offset_bytes};
        x->n_kept += order[i].class_ < 2;
        x->has_out |= order[i].class_ == 3;
    }
    qsort(order, (size_t)p->n_buffers, sizeof *order, by_place);
    for (int64_t i = 0; i < p->n_buffers; i++) {
        at[order[i].idx] = i;
        x->buffers[i] =
            (sketched_buffer){.kind  = -1,
                              .first = {-1, -1},
                              .last  = {-1, -1},
                              .maker = set_idx < o->n_sets ? l->makers[order[i].idx] : 0};
    }
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < p->n_steps[pass]; i++) {
            int64_t kind = kind_for(o, set_idx, p, pass, i);
            VP_TRY_ALLOC(err, kind >= 0);
            assert(x->n_kinds < p->n_steps[0] + p->n_steps[1] && kind <= INT32_MAX);
            x->kinds[x->n_kinds++] = (int32_t)kind;
            x->n_forward += pass == VP_PASS_FORWARD;
            for (int k = 0; k < VP_MAX_OPERANDS; k++)
                if (is_buffer(&p->steps[pass][i], k)) {
                    sketched_buffer *b = &x->buffers[at[p->steps[pass][i].args[k].idx]];
                    b->kind            = (int32_t)kind;
                    b->operand         = k;
                    note_use(b, pass, i);
                }
        }
    /* a block has an input, and every buffer is some step's */
    assert(p->n_buffers > 0 && order[0].class_ == 0 && order[p->n_buffers - 1].class_ != 0);
    for (int64_t i = 0; i < p->n_buffers; i++)
        assert(x->buffers[i].kind >= 0);
    for (int64_t i = 0; i < p->n_buffers; i++)
        memcpy(x->buffers[i].first_use, x->buffers[i].first, sizeof x->buffers[i].first);
    extend_lives(x, p);
    for (int pass = 0; pass < 2; pass++)
        VP_TRY_ALLOC(err, order_by_step(o->arena, x, pass, false, &x->by_first[pass]) &&
                              order_by_step(o->arena, x, pass, true, &x->by_last[pass]));
out:
    free(order);
    free(at);
    return st;
}

/* ---- another sequence or micro-batch ---- */

/* Whether a step stands there as it did: the same call, and of operands that may lie in one place
 * those of one size are of one size again. */
static bool is_alike(const kind_of_step *kind, const vp_program *p, const vp_step *s)
{
    int64_t bytes[VP_MAX_OPERANDS];

    if (!is_same_call(&kind->step, s))
        return false;
    buffer_sizes(p, s, bytes);
    for (int i = 0; i < vp_step_n_operands(s); i++)
        for (int k = 0; k < i; k++)
            if (bytes[i] >= 0 && bytes[k] >= 0 &&
                (vp_step_may_share(s, i, k) || vp_step_may_share(s, k, i)) &&
                (bytes[i] == bytes[k]) != (kind->first_bytes[i] == kind->first_bytes[k]))
                return false;
    return true;
}

/* All kinds that were first seen where kind *at was; *at moves behind them. */
static vp_status scale_kinds(vp_outlines *o, int64_t *at, int64_t micro_batch, vp_cost *cost,
                             bool *alike, vp_err *err)
{
    const int64_t  set_idx = o->kinds[*at].set_idx;
    const outline *x       = outline_at(o, set_idx);
    vp_arena      *arena   = vp_arena_new();
    vp_lowered     l;
    vp_status      st = VP_OK;

    VP_TRY_ALLOC(err, arena);
    if (set_idx < o->n_sets)
        VP_TRY(lower_set(o, arena, x->set, micro_batch, &l, err));
    else
        VP_TRY(
            lower_segment(o, arena, &o->segments[set_idx - o->n_sets].graph, micro_batch, &l, err));
    *alike = l.program.n_steps[0] + l.program.n_steps[1] == x->n_kinds &&
             l.program.n_buffers == x->n_buffers;
    for (; *alike && *at < o->n_kinds && o->kinds[*at].set_idx == set_idx; ++*at) {
        kind_of_step *kind = &o->kinds[*at];
        if (kind->step_idx >= l.program.n_steps[kind->pass]) {
            *alike = false;
            break;
        }
        const vp_step *s = &l.program.steps[kind->pass][kind->step_idx];
        *alike           = kind->step.name == s->name && is_alike(kind, &l.program, s);
        scale_kind(o, kind, &l.program, s, cost);
    }
out:
    vp_arena_free(arena);
    return st;
}

vp_status vp_outlines_scale(vp_outlines *o, int64_t seq, int64_t micro_batch, vp_cost *cost,
                            bool *alike, vp_err *err)
{
    vp_status st = VP_OK;

    *alike = true;
    if (seq == o->seq && micro_batch == o->micro_batch)
        goto out;
    o->seq                = seq;
    o->compute_capability = cost->device->compute_capability;
    for (int64_t at = 0; *alike && at < o->n_kinds;) { /* kinds of one set stand together */
        int64_t before = at;
        VP_TRY(scale_kinds(o, &at, micro_batch, cost, alike, err));
        assert(!*alike || at > before);
    }
    o->micro_batch = *alike ? micro_batch : 0;
    for (int64_t i = 0; *alike && i < o->n_sets + o->n_segments; i++)
        sum_up(o, outline_at(o, i));
out:
    return st;
}

void vp_outlines_forget_costs(vp_outlines *o)
{
    o->micro_batch = 0;
}

/* ---- */

/* A lowered set's outline, or segment's. */
static vp_status take_outline(vp_outlines *o, int64_t set_idx, const vp_lowered *l, vp_cost *cost,
                              vp_err *err)
{
    const int64_t n_known = o->n_kinds;
    vp_status     st      = VP_OK;

    VP_TRY(sketch(o, set_idx, l, err));
    for (int64_t k = n_known; k < o->n_kinds; k++)
        scale_kind(o, &o->kinds[k], &l->program,
                   &l->program.steps[o->kinds[k].pass][o->kinds[k].step_idx], cost);
    sum_up(o, outline_at(o, set_idx));
out:
    return st;
}

static vp_status outline_set(vp_outlines *o, int64_t set_idx, vp_cost *cost, vp_err *err)
{
    outline   *x     = &o->sets[set_idx];
    vp_arena  *arena = vp_arena_new();
    int64_t    most;
    vp_lowered l;
    vp_status  st = VP_OK;

    VP_TRY_ALLOC(err, arena);
    VP_TRY(lower_set(o, arena, x->set, o->micro_batch, &l, err));
    VP_TRY(take_outline(o, set_idx, &l, cost, err));
    for (int pass = 0; pass < 2; pass++)
        VP_TRY(vp_outline_least_of_pass(o, x, 0, pass, NULL, &x->fullest[pass], &most, err));
out:
    vp_arena_free(arena);
    return st;
}

/* A segment of m blocks. Its steps are blocks' steps, nearly always: of the others it has to be lowered again at each
 * micro-batch, for which its graph stays. */
static vp_status outline_segment(vp_outlines *o, int64_t m, vp_cost *cost, vp_err *err)
{
    const vp_grouping group   = {m, m};
    const int64_t     n_known = o->n_kinds;
    segment          *x       = &o->segments[m - 2];
    vp_arena         *arena   = vp_arena_new();
    vp_lowered        l;
    vp_status         st = VP_OK;

    VP_TRY_ALLOC(err, arena && (x->arena = vp_arena_new()));
    x->graph = vp_graph_grouped(x->arena, &o->model->graph, &group, 1);
    VP_TRY_ALLOC(err, !vp_arena_failed(x->arena));
    VP_TRY(lower_segment(o, arena, &x->graph, o->micro_batch, &l, err));
    VP_TRY(take_outline(o, o->n_sets + m - 2, &l, cost, err));
    if (o->n_kinds == n_known) {
        vp_arena_free(x->arena);
        x->arena = NULL;
    }
out:
    vp_arena_free(arena);
    return st;
}

/* ---- two halves ---- */

/* Sets from `first` on to `end`, with kinds and arena of their own. */
typedef struct half {
    vp_outlines o;
    vp_cost     cost;
    int64_t     first, end;
    vp_err      err;
    vp_status   st;
} half;

static void outline_half(void *with)
{
    half *h = with;

    h->st = VP_OK;
    for (int64_t i = h->first; h->st == VP_OK && i < h->end; i++)
        h->st = outline_set(&h->o, i, &h->cost, &h->err);
}

/* The kinds of the second half among those of the first: new ones stand behind them, as they would if one had been
 * outlined after the other. */
static vp_status take_half(vp_outlines *o, const half *h, vp_err *err)
{
    int64_t  *place = calloc((size_t)h->o.n_kinds + 1, sizeof *place);
    vp_status st    = VP_OK;

    VP_TRY_ALLOC(err, place);
    for (int64_t k = 0; k < h->o.n_kinds; k++) {
        const kind_of_step *kind = &h->o.kinds[k];
        const uint64_t      bin  = hash_of(&kind->step, kind->first_bytes);
        place[k]                 = find_kind(o, &kind->step, kind->first_bytes, bin, true);
        if (place[k] < 0)
            VP_TRY_ALLOC(err, (place[k] = add_kind(o, kind, bin)) >= 0);
        assert(place[k] <= INT32_MAX);
    }
    for (int64_t i = h->first; i < h->end; i++) {
        outline *x = &o->sets[i];
        for (int32_t k = 0; k < x->n_kinds; k++)
            x->kinds[k] = (int32_t)place[x->kinds[k]];
        for (int32_t b = 0; b < x->n_buffers; b++)
            x->buffers[b].kind = (int32_t)place[x->buffers[b].kind];
        sum_up(o, x);
    }
out:
    free(place);
    return st;
}

/* All sets, half of them beside the others. */
static vp_status outline_sets(vp_outlines *o, vp_cost *cost, vp_err *err)
{
    half     *halves = calloc(2, sizeof *halves);
    vp_beside second;
    vp_status st = VP_OK;

    VP_TRY_ALLOC(err, halves && (o->arena_beside = vp_arena_new()));
    halves[0]         = (half){.o = *o, .cost = *cost, .end = (o->n_sets + 1) / 2};
    halves[1]         = (half){.o = *o, .cost = *cost, .first = halves[0].end, .end = o->n_sets};
    halves[1].o.arena = o->arena_beside;
    vp_beside_offer(&second, outline_half, &halves[1]);
    outline_half(&halves[0]);
    vp_beside_finish(&second);
    for (int i = 0; i < 2; i++) {
        cost->all_measured &= halves[i].cost.all_measured;
        if (halves[i].st != VP_OK) {
            *err = halves[i].err;
            st   = halves[i].st;
            goto out;
        }
    }
    *o = halves[0].o;
    VP_TRY(take_half(o, &halves[1], err));
out:
    free(halves);
    return st;
}

vp_status vp_outlines_make(const vp_model *model, int64_t seq, int64_t micro_batch,
                           const vp_semantics *semantics, vp_cost *cost, vp_outlines **out,
                           vp_err *err)
{
    vp_outlines       *o       = calloc(1, sizeof *o);
    vp_arena          *arena   = vp_arena_new();
    const int64_t      longest = vp_longest_segment(model);
    int                bit[MAX_CHOICES], n_bits = 0;
    vp_lowered         l;
    vp_status          st    = VP_OK;
    const vp_template *block = &model->graph.templates[vp_block_template(&model->graph)];

    *out = NULL;
    VP_TRY_ALLOC(err, o && arena);
    *o = (vp_outlines){.arena              = vp_arena_new(),
                       .model              = model,
                       .semantics          = semantics,
                       .seq                = seq,
                       .micro_batch        = micro_batch,
                       .compute_capability = cost->device->compute_capability};
    VP_TRY_ALLOC(err, o->arena);
    memset(o->bins, -1, sizeof o->bins);
    /* the ops to choose from: whose forward a full recompute repeats */
    VP_TRY(lower_set(o, arena, UINT64_MAX, micro_batch, &l, err));
    for (int i = 0; i < 64 && n_bits < MAX_CHOICES; i++)
        if (i < block->n_ops && l.again[i])
            bit[n_bits++] = i;
    VP_TRY(list_sets(o, bit, n_bits, err));
    VP_TRY(outline_sets(o, cost, err));
    VP_TRY_ALLOC(err, o->segments = vp_arena_array(o->arena, longest, sizeof *o->segments));
    for (int64_t m = 2; m <= longest; m++) {
        o->n_segments++;
        VP_TRY(outline_segment(o, m, cost, err));
    }
    *out = o;
    o    = NULL;
out:
    vp_outlines_free(o);
    vp_arena_free(arena);
    return st;
}

void vp_outlines_free(vp_outlines *o)
{
    for (int64_t i = 0; o && i < o->n_segments; i++)
        vp_arena_free(o->segments[i].arena);
    if (o) {
        vp_arena_free(o->arena);
        vp_arena_free(o->arena_beside);
    }
    free(o);
}

int64_t vp_outlines_count(const vp_outlines *o)
{
    return o->n_sets;
}
