#include "planner/library.h"

#include "core/checked.h"
#include "planner/lower.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_CHOICES = 20 };

int vp_block_template(const vp_graph *g)
{
    int block = g->n_instances > 2 ? g->instances[1].template_idx : -1;

    for (int64_t i = 1; block >= 0 && i < g->n_instances - 1; i++)
        if (g->instances[i].template_idx != block)
            return -1;
    return block;
}

/* Lower one set and read its figures off the program; bounds_only: its height is what no packing can undercut. */
static vp_status measure(const vp_model *model, int64_t seq, int64_t micro_batch, const vp_semantics *semantics, vp_cost *cost, bool bounds_only,
                         vp_strategy *s, uint64_t *again, vp_err *err)
{
    vp_arena     *arena = vp_arena_new();
    vp_lower_opts opts  = {.symbols = {micro_batch, seq, 1, 1}, .recompute = s->recompute, .sm = cost->device->compute_capability,
                           .bounds_only = bounds_only, .span_idx = {1, 2, 3, 4}, .angles_idx = 5};
    vp_grouping   group = {s->segment, s->segment};
    vp_lowered    l     = {0};
    vp_status     st    = VP_OK;

    VP_TRY_ALLOC(err, arena);
    vp_graph g = vp_graph_grouped(arena, &model->graph, &group, 1);
    VP_TRY_ALLOC(err, !vp_arena_failed(arena));
    VP_TRY(vp_lower(arena, &g, g.instances[1].template_idx, semantics, &opts, &l, err));
    s->kept_bytes   = l.program.kept_bytes;
    s->height_bytes = vp_max_i64(l.height_bytes[VP_PASS_FORWARD], l.height_bytes[VP_PASS_BACKWARD]);
    s->ns           = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < l.program.n_steps[pass]; i++)
            s->ns += llround(vp_cost_step(cost, &model->graph, &l.program.steps[pass][i]) * 1e9);
    *again = l.again;
out:
    vp_arena_free(arena);
    return st;
}

/* ---- which sets are worth lowering ---- */

/* What the sets of a block's ops can differ in. */
typedef struct choices {
    uint64_t needed;          /* bit i: backward reads the result of op i; its statistics alone do not count    */
    uint64_t readers[64];     /* ops that read what op i makes                                                  */
    int      stands_for[64];  /* j: op i, whose one result only op j reads and turns into one of the same size: keeping
                               * j's result instead of i's costs no byte more and saves j's time; -1: none      */
} choices;

static bool backward_reads(const vp_sem_row *row, vp_ref ref)
{
    for (int s = 0; s < VP_SEM_MAX_STEPS; s++)
        for (int k = 0; k < VP_MAX_OPERANDS; k++)
            if (row->backward[s].operands[k] == ref)
                return true;
    return false;
}

static bool is_same_size(const vp_template *t, int a, int b)
{
    const int64_t any[VP_N_SYMBOLS] = {2, 3, 1, 1};
    return vp_tensor_elements(&t->tensors[a], any) == vp_tensor_elements(&t->tensors[b], any);
}

static choices find_choices(const vp_template *t, const vp_semantics *semantics)
{
    choices c = {0};

    for (int i = 0; i < t->n_ops; i++) {
        const vp_sem_row *row = vp_semantics_row(semantics, t->ops[i].op);
        for (int k = 0; k < VP_OP_MAX_IN; k++) {
            int producer = t->ops[i].in[k] >= 0 ? t->tensors[t->ops[i].in[k]].producer : -1;
            if (producer < 0)
                continue;
            c.readers[producer] |= UINT64_C(1) << i;
            c.needed |= (uint64_t)backward_reads(row, (vp_ref)(VP_REF_IN0 + k)) << producer;
        }
        c.needed |= (uint64_t)backward_reads(row, VP_REF_OUT0) << i;
        for (int ref = VP_REF_L0; ref <= VP_REF_L7; ref++)
            c.needed |= (uint64_t)(row->locals[ref - VP_REF_L0].name && backward_reads(row, (vp_ref)ref)) << i;
    }
    for (int j = 0; j < t->n_ops; j++) {
        c.stands_for[j] = -1;
        for (int k = 0; k < VP_OP_MAX_IN; k++) {
            int in = t->ops[j].in[k], i = in >= 0 ? t->tensors[in].producer : -1;
            if (i >= 0 && !(c.needed >> i & 1) && c.readers[i] == UINT64_C(1) << j && is_same_size(t, in, t->ops[j].out[0]))
                c.stands_for[j] = i;
        }
    }
    return c;
}

/* Not if an op is made again whose result nobody needs, nor if what stands for another's result is made again from that result, kept. */
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

/* Order for pruning: what dominates comes before what it dominates. */
static int by_kept(const void *a, const void *b)
{
    const vp_strategy *x = a, *y = b;

    if (x->kept_bytes != y->kept_bytes)
        return x->kept_bytes < y->kept_bytes ? -1 : 1;
    if (x->height_bytes != y->height_bytes)
        return x->height_bytes < y->height_bytes ? -1 : 1;
    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    return (x->recompute > y->recompute) - (x->recompute < y->recompute);
}

static int by_beta(const void *a, const void *b)
{
    const vp_strategy *x = a, *y = b;
    int64_t            bx = x->height_bytes - x->kept_bytes, by = y->height_bytes - y->kept_bytes;

    return bx != by ? (bx > by ? -1 : 1) : by_kept(a, b);
}

/* A block that keeps more, or is higher above what it keeps, or slower, is never better: peaks grow with k and beta. */
static bool dominates(const vp_strategy *a, const vp_strategy *b)
{
    return a->kept_bytes <= b->kept_bytes && a->height_bytes - a->kept_bytes <= b->height_bytes - b->kept_bytes && a->ns <= b->ns;
}

static bool is_beaten(const vp_library *lib, int64_t n, const vp_strategy *s)
{
    bool beaten = false;

    for (int64_t i = 0; !beaten && i < n; i++)
        beaten = dominates(&lib->strategies[i], s);
    return beaten;
}

static void prune(vp_library *lib)
{
    int64_t n = 0;

    qsort(lib->strategies, (size_t)lib->n, sizeof *lib->strategies, by_kept);
    for (int64_t i = 0; i < lib->n; i++)
        if (!is_beaten(lib, n, &lib->strategies[i]))
            lib->strategies[n++] = lib->strategies[i];
    lib->n = n;
}

/* Every subset of the n_bits ops that is worth lowering. */
static vp_status list_sets(vp_arena *arena, const vp_template *block, const vp_semantics *semantics, const int *bit, int n_bits, vp_library *out, vp_err *err)
{
    choices c   = find_choices(block, semantics);
    int64_t cap = 0;

    for (int64_t i = 0; i < (int64_t)1 << n_bits; i++) {
        uint64_t set = 0;
        for (int b = 0; b < n_bits; b++)
            set |= (uint64_t)(i >> b & 1) << bit[b];
        if (!is_worth_lowering(&c, set))
            continue;
        if (!vp_arena_grow(arena, (void **)&out->strategies, out->n, &cap, sizeof *out->strategies))
            return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
        out->strategies[out->n++] = (vp_strategy){.recompute = set, .segment = 1};
    }
    out->n_lowered = out->n;
    return VP_OK;
}

/* Figures of every set, of which those stay that none beats. Packing takes most of the time: a set that is beaten even at the least height that
 * it could have is not packed. */
static vp_status measure_undominated(const vp_model *model, int64_t seq, int64_t micro_batch, const vp_semantics *semantics, vp_cost *cost, vp_library *lib,
                                     vp_err *err)
{
    uint64_t  ignored;
    int64_t   n  = 0;
    vp_status st = VP_OK;

    for (int64_t i = 0; i < lib->n; i++)
        VP_TRY(measure(model, seq, micro_batch, semantics, cost, true, &lib->strategies[i], &ignored, err));
    qsort(lib->strategies, (size_t)lib->n, sizeof *lib->strategies, by_kept);
    for (int64_t i = 0; i < lib->n; i++) {
        if (is_beaten(lib, n, &lib->strategies[i]))
            continue;
        lib->strategies[n] = lib->strategies[i];
        VP_TRY(measure(model, seq, micro_batch, semantics, cost, false, &lib->strategies[n], &ignored, err));
        n++;
    }
    lib->n = n;
    prune(lib);
out:
    return st;
}

vp_status vp_library_make(vp_arena *arena, const vp_model *model, int64_t seq, int64_t micro_batch, const vp_semantics *semantics,
                          vp_cost *cost, const vp_library *from, vp_library *out, vp_err *err)
{
    vp_strategy full = {.recompute = UINT64_MAX, .segment = 1};
    uint64_t    repeated, ignored;
    int         bit[MAX_CHOICES], n_bits = 0;
    vp_status   st = VP_OK;

    *out = (vp_library){0};
    if (from) {
        out->n          = out->n_lowered = from->n;
        out->strategies = vp_arena_array(arena, out->n, sizeof *out->strategies);
        VP_TRY_ALLOC(err, out->strategies);
        for (int64_t i = 0; i < out->n; i++)
            out->strategies[i] = (vp_strategy){.recompute = from->strategies[i].recompute, .segment = 1};
    } else {
        VP_TRY(measure(model, seq, micro_batch, semantics, cost, true, &full, &repeated, err));
        for (int i = 0; i < 64 && n_bits < MAX_CHOICES; i++)
            if (repeated >> i & 1)
                bit[n_bits++] = i;
        VP_TRY(list_sets(arena, &model->graph.templates[vp_block_template(&model->graph)], semantics, bit, n_bits, out, err));
        VP_TRY(measure_undominated(model, seq, micro_batch, semantics, cost, out, err));
    }
    for (int64_t i = 0; from && i < out->n; i++)
        VP_TRY(measure(model, seq, micro_batch, semantics, cost, false, &out->strategies[i], &ignored, err));
    qsort(out->strategies, (size_t)out->n, sizeof *out->strategies, by_beta);
out:
    return st;
}

vp_status vp_library_of_segments(vp_arena *arena, const vp_model *model, int64_t seq, int64_t micro_batch, const vp_semantics *semantics,
                                 vp_cost *cost, const vp_library *one, int64_t m, vp_library *out, vp_err *err)
{
    uint64_t  ignored;
    vp_status st = VP_OK;

    *out = (vp_library){.n = one->n + 1, .n_lowered = 1, .strategies = vp_arena_array(arena, one->n + 1, sizeof *out->strategies)};
    VP_TRY_ALLOC(err, out->strategies);
    for (int64_t i = 0; i < one->n; i++) { /* m alike: the last stands on what all keep, so beta is the one block's */
        out->strategies[i] = one->strategies[i];
        out->strategies[i].kept_bytes   = m * one->strategies[i].kept_bytes;
        out->strategies[i].height_bytes = (m - 1) * one->strategies[i].kept_bytes + one->strategies[i].height_bytes;
        out->strategies[i].ns           = m * one->strategies[i].ns;
    }
    out->strategies[one->n] = (vp_strategy){.recompute = UINT64_MAX, .segment = m};
    VP_TRY(measure(model, seq, micro_batch, semantics, cost, false, &out->strategies[one->n], &ignored, err));
    qsort(out->strategies, (size_t)out->n, sizeof *out->strategies, by_beta);
out:
    return st;
}
