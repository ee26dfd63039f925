#include "planner/outline.h"

#include "base/checked.h"
#include "planner/lowering/lower.h"
#include "planner/lowering/pack.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CHOICES = 20, N_BINS = 1024 };

/* A step as it stands in the programs of one or more sets. */
typedef struct kind_of_step {
    /* name, kernel, numbers and where operands lie at the first micro-batch; of a buffer not which
     * one (that differs from set to set) but how large */
    vp_step step;
    int64_t first_bytes[VP_MAX_OPERANDS];
    int64_t next; /* in its bin; -1: the last */
    /* where it was seen first */
    int64_t set_idx, step_idx;
    int     pass;
    /* at the micro-batch scaled to: of each operand that is a buffer, itself and rounded up */
    int64_t ns, bytes[VP_MAX_OPERANDS], aligned_bytes[VP_MAX_OPERANDS];
} kind_of_step;

/* A buffer of a set's program: as large as an operand of a kind of step. */
typedef struct sketched_buffer {
    int32_t kind, operand;
    int32_t maker;             /* of what is kept: 1 + the op whose output it is; 0: no op's */
    int32_t first[2], last[2]; /* steps of each pass; first -1: not there */
    int32_t first_use[2];      /* likewise, but for what is there before a step uses it */
} sketched_buffer;

/* Input, then what is kept, by offset; then what lives inside a pass; then the output, if there
 * is one. */
typedef struct outline {
    uint64_t         set;
    sketched_buffer *buffers;
    int32_t          n_buffers, n_kept; /* kept: the input, too */
    bool             has_out;
    int32_t         *kinds; /* of its steps, both passes */
    int32_t          n_kinds, n_forward;
    int64_t          ns, forward_ns; /* at the micro-batch scaled to */
    int32_t          fullest[2];     /* the step of each pass where most was needed at first */
    int32_t         *by_first[2], *by_last[2], n_in[2]; /* buffers of a pass, by step */
} outline;

struct vp_outlines {
    vp_arena           *arena;
    const vp_model     *model;
    const vp_semantics *semantics;
    int64_t             seq, micro_batch; /* scaled to; micro_batch 0: to none */
    int                 compute_capability;
    outline            *sets;
    int64_t             n_sets, cap_sets;
    kind_of_step       *kinds;
    int64_t             n_kinds, cap_kinds;
    int64_t             bins[N_BINS]; /* first kind; -1: none */
};

static vp_status lower_set(const vp_outlines *o, vp_arena *arena, uint64_t set, int64_t micro_batch,
                           vp_lowered *out, vp_err *err)
{
    const vp_graph *g    = &o->model->graph;
    vp_lower_opts   opts = {.symbols            = {micro_batch, o->seq, 1, 1},
                            .recompute          = set,
                            .compute_capability = o->compute_capability,
                            .heights            = VP_HEIGHTS_NONE,
                            .span_idx           = {1, 2, 3, 4},
                            .angles_idx         = 5};

    *out = (vp_lowered){0};
    return vp_lower(arena, g, vp_block_template(g), o->semantics, &opts, out, err);
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
    bool same = a->kernel == b->kernel && a->dtype == b->dtype && a->name == b->name &&
                a->accumulate == b->accumulate && a->first_only == b->first_only &&
                a->window_of_instance == b->window_of_instance &&
                vp_step_n_operands(a) == vp_step_n_operands(b);

    for (int k = 0; same && k < vp_step_n_operands(a); k++)
        same = a->args[k].space == b->args[k].space;
    return same;
}

static uint64_t hash_of(const vp_step *s, const int64_t *bytes)
{
    uint64_t h = (uint64_t)s->kernel * 31 + (uint64_t)(uintptr_t)s->name;

    for (int k = 0; k < VP_MAX_OPERANDS; k++)
        h = h * UINT64_C(1099511628211) + (uint64_t)bytes[k];
    return (h ^ h >> 29) % N_BINS;
}

/* The kind of a set's step; -1: out of memory. */
static int64_t kind_for(vp_outlines *o, int64_t set_idx, const vp_program *p, int pass,
                        int64_t step_idx)
{
    const vp_step *s = &p->steps[pass][step_idx];
    int64_t        bytes[VP_MAX_OPERANDS], at;

    assert(step_idx < p->n_steps[pass] && set_idx < o->n_sets);
    buffer_sizes(p, s, bytes);
    uint64_t bin = hash_of(s, bytes);
    for (at = o->bins[bin]; at >= 0; at = o->kinds[at].next)
        if (is_same_call(&o->kinds[at].step, s) &&
            memcmp(o->kinds[at].first_bytes, bytes, sizeof bytes) == 0 &&
            memcmp(o->kinds[at].step.ints, s->ints, sizeof s->ints) == 0)
            return at;
    if (!vp_arena_grow(o->arena, (void **)&o->kinds, o->n_kinds, &o->cap_kinds, sizeof *o->kinds))
        return -1;
    at           = o->n_kinds++;
    o->kinds[at] = (kind_of_step){
        .step = *s, .next = o->bins[bin], .set_idx = set_idx, .step_idx = step_idx, .pass = pass};
    memcpy(o->kinds[at].first_bytes, bytes, sizeof bytes);
    o->bins[bin] = at;
    return at;
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
    outline          *x     = &o->sets[set_idx];
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
        x->buffers[i]    = (sketched_buffer){
               .kind = -1, .first = {-1, -1}, .last = {-1, -1}, .maker = l->makers[order[i].idx]};
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

/* ---- figures ---- */

static int64_t bytes_of(const vp_outlines *o, const sketched_buffer *b)
{
    assert(b->kind < o->n_kinds && o->kinds[b->kind].bytes[b->operand] >= 0);
    return o->kinds[b->kind].bytes[b->operand];
}

static int64_t aligned_bytes_of(const vp_outlines *o, const sketched_buffer *b)
{
    return o->kinds[b->kind].aligned_bytes[b->operand];
}

static bool is_alive(const sketched_buffer *b, int pass, int64_t step)
{
    return b->first[pass] >= 0 && b->first[pass] <= step && step <= b->last[pass];
}

/* Whether it lies elsewhere. */
static bool is_moved(const sketched_buffer *b, uint64_t offload)
{
    return b->maker && (offload >> (b->maker - 1) & 1);
}

static int64_t kept_bytes(const vp_outlines *o, const outline *x, uint64_t offload)
{
    int64_t sum = 0;

    for (int32_t b = 0; b < x->n_kept; b++)
        if (!is_moved(&x->buffers[b], offload))
            sum = vp_add(sum, aligned_bytes_of(o, &x->buffers[b]));
    return sum;
}

/* What lies in one place while a set's block is run: its input, what it keeps, its output. */
static bool is_fixed(const outline *x, int32_t b)
{
    return b < x->n_kept || (x->has_out && b == x->n_buffers - 1);
}

/* What is alive at a step, in multiples of VP_ALIGN_BYTES. */
typedef struct load {
    int64_t sum, smallest; /* of what is not fixed                              */
    int64_t room, end;     /* gaps below what is fixed that hold some of it; above all that is */
    int64_t slack;         /* so far below such a multiple the highest may end  */
} load;

static void put_fixed(load *l, const vp_outlines *o, const sketched_buffer *b, int64_t at)
{
    l->room += at - l->end >= l->smallest ? at - l->end : 0;
    l->end   = vp_add(at, aligned_bytes_of(o, b));
    l->slack = vp_max_i64(l->slack, aligned_bytes_of(o, b) - bytes_of(o, b));
}

static void put_free(load *l, const vp_outlines *o, const sketched_buffer *b)
{
    const int64_t bytes = aligned_bytes_of(o, b);

    l->sum      = vp_add(l->sum, bytes);
    l->smallest = vp_min_i64(l->smallest, bytes);
    l->slack    = vp_max_i64(l->slack, bytes - bytes_of(o, b));
}

/* The least height of a pass at one step, by the first bound of vp_pack_least(): the transients alive
 * share the gaps between the kept buffers, those too small for any of them left out, and the space
 * above. */
static int64_t least_at(const vp_outlines *o, const outline *x, uint64_t offload, int pass,
                        int64_t step)
{
    load    l  = {.smallest = INT64_MAX};
    int64_t at = 0;

    for (int32_t b = x->n_kept; b < x->n_buffers - x->has_out; b++)
        if (is_alive(&x->buffers[b], pass, step))
            put_free(&l, o, &x->buffers[b]);
    for (int32_t b = 0; b < x->n_kept; b++) {
        if (is_moved(&x->buffers[b], offload))
            continue;
        if (is_alive(&x->buffers[b], pass, step))
            put_fixed(&l, o, &x->buffers[b], at);
        at = vp_add(at, aligned_bytes_of(o, &x->buffers[b]));
    }
    if (x->has_out && is_alive(&x->buffers[x->n_buffers - 1], pass, step))
        put_fixed(&l, o, &x->buffers[x->n_buffers - 1], at);
    return vp_overflowed(l.sum) || vp_overflowed(l.end)
               ? VP_OVERFLOW
               : vp_add(l.end, vp_max_i64(0, l.sum - l.room)) - l.slack;
}

/* Buffers of a pass as items to pack, in items[n_buffers]: all, or those alive at a step alone. Returns how many. */
static int64_t list_items(const vp_outlines *o, const outline *x, uint64_t offload, int pass,
                          int64_t step, vp_pack_item *items)
{
    int64_t n = 0, at = 0;

    for (int32_t b = 0; b < x->n_buffers; b++) {
        const sketched_buffer *s = &x->buffers[b];
        if (is_moved(s, offload))
            continue;
        if (step < 0 ? s->first[pass] >= 0 : is_alive(s, pass, step))
            items[n++] = (vp_pack_item){.bytes  = bytes_of(o, s),
                                        .first  = step < 0 ? s->first[pass] : 0,
                                        .last   = step < 0 ? s->last[pass] : 0,
                                        .fixed  = is_fixed(x, b),
                                        .offset = is_fixed(x, b) ? at : 0};
        at = vp_add(at, b < x->n_kept ? aligned_bytes_of(o, s) : 0);
    }
    return n;
}

/* The same as least_at() of whole transients: as vp_pack_least_whole() says. items: scratch. */
static vp_status least_whole_at(const vp_outlines *o, const outline *x, uint64_t offload, int pass,
                                int64_t step, vp_pack_item *items, int64_t *least, vp_err *err)
{
    const int64_t n     = list_items(o, x, offload, pass, step, items);
    int64_t       slack = 0;
    vp_status     st    = VP_OK;

    VP_TRY(vp_pack_least_whole(items, n, VP_ALIGN_BYTES, least, err));
    for (int64_t i = 0; i < n; i++)
        slack = vp_max_i64(slack, vp_round_up(items[i].bytes, VP_ALIGN_BYTES) - items[i].bytes);
    *least -= slack;
out:
    return st;
}

/* Steps of a pass at which something is born, in ascending order, with the bytes of transients alive. */
typedef struct births {
    int32_t  n_born, n_dead; /* of by_first, by_last */
    __int128 bytes;
} births;

static int64_t transient_bytes(const vp_outlines *o, const outline *x, int32_t b)
{
    return is_fixed(x, b) ? 0 : aligned_bytes_of(o, &x->buffers[b]);
}

/* The next; false: there is none. */
static bool next_birth(const vp_outlines *o, const outline *x, int pass, births *s, int32_t *step)
{
    const int32_t *first = x->by_first[pass], *last = x->by_last[pass], n = x->n_in[pass];

    if (s->n_born == n)
        return false;
    *step = x->buffers[first[s->n_born]].first[pass];
    for (; s->n_born < n && x->buffers[first[s->n_born]].first[pass] == *step; s->n_born++)
        s->bytes += transient_bytes(o, x, first[s->n_born]);
    for (; x->buffers[last[s->n_dead]].last[pass] < *step; s->n_dead++)
        s->bytes -= transient_bytes(o, x, last[s->n_dead]);
    return true;
}

/* Over all steps of a pass; *fullest is where, and where it is looked for first: most others have less in
 * all than is needed there. items: NULL, or scratch, and transients are taken whole. */
static vp_status least_of_pass(const vp_outlines *o, const outline *x, uint64_t offload, int pass,
                               vp_pack_item *items, int32_t *fullest, int64_t *most, vp_err *err)
{
    births    s     = {.n_born = 0};
    __int128  fixed = 0;
    int32_t   step  = *fullest;
    int64_t   need;
    vp_status st = VP_OK;

    for (int32_t b = 0; b < x->n_buffers; b++)
        if (is_fixed(x, b) && !is_moved(&x->buffers[b], offload))
            fixed += aligned_bytes_of(o, &x->buffers[b]);
    *most = -1;
    do { /* the maximum is reached at some birth */
        if (*most >= 0 && fixed + s.bytes <= *most)
            continue;
        if (items)
            VP_TRY(least_whole_at(o, x, offload, pass, step, items, &need, err));
        else
            need = least_at(o, x, offload, pass, step);
        if (need > *most) {
            *most    = need;
            *fullest = step;
        }
    } while (next_birth(o, x, pass, &s, &step));
out:
    return st;
}

/* Of both passes. */
static vp_status least_height(const vp_outlines *o, const outline *x, uint64_t offload,
                              vp_pack_item *items, int64_t *least, vp_err *err)
{
    vp_status st = VP_OK;

    *least = kept_bytes(o, x, offload);
    for (int pass = 0; pass < 2; pass++) {
        int32_t fullest = x->fullest[pass];
        int64_t most;
        VP_TRY(least_of_pass(o, x, offload, pass, items, &fullest, &most, err));
        *least = vp_max_i64(*least, most);
    }
out:
    return st;
}

int64_t vp_outline_ns(const vp_outlines *o, int64_t idx)
{
    assert(idx >= 0 && idx < o->n_sets && o->micro_batch > 0);
    return o->sets[idx].ns;
}

uint64_t vp_outline_set(const vp_outlines *o, int64_t idx)
{
    assert(idx >= 0 && idx < o->n_sets);
    return o->sets[idx].set;
}

void vp_outline_estimate(const vp_outlines *o, int64_t idx, uint64_t offload, vp_strategy *out)
{
    const outline *x = &o->sets[idx];

    assert(idx >= 0 && idx < o->n_sets && o->micro_batch > 0); /* the last scaling succeeded */
    *out = (vp_strategy){.recompute  = x->set,
                         .segment    = 1,
                         .ns         = x->ns,
                         .forward_ns = x->forward_ns,
                         .kept_bytes = kept_bytes(o, x, offload)};
    for (int32_t b = 0; b < x->n_kept; b++)
        if (is_moved(&x->buffers[b], offload))
            out->offload |= UINT64_C(1) << (x->buffers[b].maker - 1);
    for (int pass = 0; pass < 2; pass++)
        out->height_bytes =
            vp_max_i64(out->height_bytes, least_at(o, x, offload, pass, x->fullest[pass]));
    out->height_bytes = vp_max_i64(out->height_bytes, out->kept_bytes);
}

void vp_outline_outputs(const vp_outlines *o, int64_t idx, int64_t bytes[64])
{
    const outline *x = &o->sets[idx];

    memset(bytes, 0, sizeof(int64_t[64]));
    for (int32_t b = 0; b < x->n_kept; b++)
        if (x->buffers[b].maker)
            bytes[x->buffers[b].maker - 1] = bytes_of(o, &x->buffers[b]);
}

bool vp_outline_use_of(const vp_outlines *o, int64_t idx, int pass, int op, vp_outline_use *out)
{
    const outline *x     = &o->sets[idx];
    const int32_t  begin = pass == VP_PASS_FORWARD ? 0 : x->n_forward;
    const int32_t  end   = pass == VP_PASS_FORWARD ? x->n_forward : x->n_kinds;
    int32_t        b     = 0;

    while (b < x->n_kept && x->buffers[b].maker != op + 1)
        b++;
    if (b == x->n_kept || x->buffers[b].first_use[pass] < 0)
        return false;
    const int32_t first = begin + x->buffers[b].first_use[pass];
    const int32_t last  = pass == VP_PASS_FORWARD ? first : begin + x->buffers[b].last[pass];
    assert(first <= last && last < end);
    *out = (vp_outline_use){0};
    for (int32_t i = begin; i < end; i++)
        *(i < first   ? &out->before_ns
          : i <= last ? &out->meanwhile_ns
                      : &out->behind_ns) += o->kinds[x->kinds[i]].ns;
    return true;
}

int64_t vp_outline_forward_ns(const vp_outlines *o, int64_t idx, const char *op)
{
    const outline *x  = &o->sets[idx];
    int64_t        ns = 0;

    for (int32_t i = 0; i < x->n_forward; i++)
        if (o->kinds[x->kinds[i]].step.name == op)
            ns += o->kinds[x->kinds[i]].ns;
    return ns;
}

int64_t vp_outline_least_height(const vp_outlines *o, int64_t idx, uint64_t offload)
{
    int64_t least;

    least_height(o, &o->sets[idx], offload, NULL, &least, NULL); /* packs nothing that could fail */
    return least;
}

vp_status vp_outline_least_whole(const vp_outlines *o, int64_t idx, uint64_t offload,
                                 int64_t *least_bytes, vp_err *err)
{
    const outline *x     = &o->sets[idx];
    vp_pack_item  *items = calloc((size_t)x->n_buffers, sizeof *items);
    vp_status      st    = VP_OK;

    VP_TRY_ALLOC(err, items);
    VP_TRY(least_height(o, x, offload, items, least_bytes, err));
out:
    free(items);
    return st;
}

vp_status vp_outline_pack(const vp_outlines *o, int64_t idx, uint64_t offload,
                          int64_t *height_bytes, vp_err *err)
{
    const outline *x     = &o->sets[idx];
    vp_pack_item  *items = calloc((size_t)x->n_buffers, sizeof *items);
    vp_status      st    = VP_OK;

    *height_bytes = 0;
    VP_TRY_ALLOC(err, items);
    for (int pass = 0; pass < 2; pass++) {
        const int64_t n = list_items(o, x, offload, pass, -1, items);
        int64_t       height;
        VP_TRY(vp_pack(items, n, VP_ALIGN_BYTES, &height, err));
        *height_bytes = vp_max_i64(*height_bytes, height);
    }
out:
    free(items);
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

/* All kinds that were first seen in the set that kind *at was seen in; *at moves behind them. */
static vp_status scale_kinds(vp_outlines *o, int64_t *at, int64_t micro_batch, vp_cost *cost,
                             bool *alike, vp_err *err)
{
    const int64_t set_idx = o->kinds[*at].set_idx;
    vp_arena     *arena   = vp_arena_new();
    vp_lowered    l;
    vp_status     st = VP_OK;

    VP_TRY_ALLOC(err, arena);
    VP_TRY(lower_set(o, arena, o->sets[set_idx].set, micro_batch, &l, err));
    *alike = l.program.n_steps[0] + l.program.n_steps[1] == o->sets[set_idx].n_kinds &&
             l.program.n_buffers == o->sets[set_idx].n_buffers;
    for (; *alike && *at < o->n_kinds && o->kinds[*at].set_idx == set_idx; ++*at) {
        kind_of_step *kind = &o->kinds[*at];
        if (kind->step_idx >= l.program.n_steps[kind->pass]) {
            *alike = false;
            break;
        }
        const vp_step *s = &l.program.steps[kind->pass][kind->step_idx];
        *alike           = is_alike(kind, &l.program, s);
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
    for (int64_t i = 0; *alike && i < o->n_sets; i++)
        sum_up(o, &o->sets[i]);
out:
    return st;
}

void vp_outlines_forget_costs(vp_outlines *o)
{
    o->micro_batch = 0;
}

/* ---- */

static vp_status outline_set(vp_outlines *o, int64_t set_idx, vp_cost *cost, vp_err *err)
{
    vp_arena  *arena   = vp_arena_new();
    int64_t    n_known = o->n_kinds, most;
    vp_lowered l;
    vp_status  st = VP_OK;

    VP_TRY_ALLOC(err, arena);
    VP_TRY(lower_set(o, arena, o->sets[set_idx].set, o->micro_batch, &l, err));
    VP_TRY(sketch(o, set_idx, &l, err));
    for (int64_t k = n_known; k < o->n_kinds; k++)
        scale_kind(o, &o->kinds[k], &l.program,
                   &l.program.steps[o->kinds[k].pass][o->kinds[k].step_idx], cost);
    sum_up(o, &o->sets[set_idx]);
    for (int pass = 0; pass < 2; pass++)
        VP_TRY(least_of_pass(o, &o->sets[set_idx], 0, pass, NULL, &o->sets[set_idx].fullest[pass],
                             &most, err));
out:
    vp_arena_free(arena);
    return st;
}

vp_status vp_outlines_make(const vp_model *model, int64_t seq, int64_t micro_batch,
                           const vp_semantics *semantics, vp_cost *cost, vp_outlines **out,
                           vp_err *err)
{
    vp_outlines       *o     = calloc(1, sizeof *o);
    vp_arena          *arena = vp_arena_new();
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
    for (int64_t i = 0; i < o->n_sets; i++)
        VP_TRY(outline_set(o, i, cost, err));
    *out = o;
    o    = NULL;
out:
    vp_outlines_free(o);
    vp_arena_free(arena);
    return st;
}

void vp_outlines_free(vp_outlines *o)
{
    if (o)
        vp_arena_free(o->arena);
    free(o);
}

int64_t vp_outlines_count(const vp_outlines *o)
{
    return o->n_sets;
}
