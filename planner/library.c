#include "planner/library.h"

#include "core/checked.h"
#include "planner/lower.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_CHOICES = 16 };

int vp_block_template(const vp_graph *g)
{
    int block = g->n_instances > 2 ? g->instances[1].template_idx : -1;

    for (int64_t i = 1; block >= 0 && i < g->n_instances - 1; i++)
        if (g->instances[i].template_idx != block)
            return -1;
    return block;
}

/* Lower one set and read its figures off the program. */
static vp_status measure(const vp_model *model, int64_t seq, int64_t micro_batch, const vp_semantics *semantics, vp_cost *cost,
                         vp_strategy *s, uint64_t *again, vp_err *err)
{
    vp_arena     *arena = vp_arena_new();
    vp_lower_opts opts  = {.symbols = {micro_batch, seq, 1, 1}, .recompute = s->recompute, .tokens_idx = 1, .labels_idx = 2};
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
            s->ns += llround(vp_cost_seconds(cost, l.program.steps[pass][i].kernel, l.program.steps[pass][i].ints) * 1e9);
    *again = l.again;
out:
    vp_arena_free(arena);
    return st;
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

static void prune(vp_library *lib)
{
    int64_t n = 0;

    qsort(lib->strategies, (size_t)lib->n, sizeof *lib->strategies, by_kept);
    for (int64_t i = 0; i < lib->n; i++) {
        bool beaten = false;
        for (int64_t k = 0; !beaten && k < n; k++)
            beaten = dominates(&lib->strategies[k], &lib->strategies[i]);
        if (!beaten)
            lib->strategies[n++] = lib->strategies[i];
    }
    lib->n = n;
}

vp_status vp_library_make(vp_arena *arena, const vp_model *model, int64_t seq, int64_t micro_batch, const vp_semantics *semantics,
                          vp_cost *cost, const vp_library *from, vp_library *out, vp_err *err)
{
    vp_strategy full = {.recompute = UINT64_MAX, .segment = 1};
    uint64_t    choices, ignored;
    int         bit[MAX_CHOICES], n_bits = 0;
    vp_status   st = VP_OK;

    *out = (vp_library){0};
    if (from) {
        out->n = out->n_lowered = from->n;
    } else {
        VP_TRY(measure(model, seq, micro_batch, semantics, cost, &full, &choices, err));
        for (int i = 0; i < 64 && n_bits < MAX_CHOICES; i++)
            if (choices >> i & 1)
                bit[n_bits++] = i;
        out->n = out->n_lowered = (int64_t)1 << n_bits;
    }
    out->strategies = vp_arena_array(arena, out->n, sizeof *out->strategies);
    VP_TRY_ALLOC(err, out->strategies);
    for (int64_t i = 0; i < out->n; i++) {
        vp_strategy *s = &out->strategies[i];
        s->segment     = 1;
        if (from)
            s->recompute = from->strategies[i].recompute;
        for (int b = 0; !from && b < n_bits; b++)
            s->recompute |= (uint64_t)(i >> b & 1) << bit[b];
        VP_TRY(measure(model, seq, micro_batch, semantics, cost, s, &ignored, err));
    }
    if (!from)
        prune(out);
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
    VP_TRY(measure(model, seq, micro_batch, semantics, cost, &out->strategies[one->n], &ignored, err));
    qsort(out->strategies, (size_t)out->n, sizeof *out->strategies, by_beta);
out:
    return st;
}
