#include "planner/library.h"

#include "base/checked.h"
#include "planner/lowering/lower.h"
#include "planner/outline_store.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

vp_micro_steps vp_micro_steps_of(int64_t global_batch, int64_t micro_batch)
{
    return (vp_micro_steps){micro_batch, global_batch / micro_batch, global_batch % micro_batch};
}

/* Lower one set and read its figures off the program; without heights its height is 0. */
static vp_status measure_at(const vp_model *model, int64_t seq, int64_t micro_batch,
                            const vp_semantics *semantics, vp_heights heights, vp_cost *cost,
                            vp_strategy *s, vp_err *err)
{
    vp_arena     *arena = vp_arena_new();
    vp_lower_opts opts  = {.symbols            = {micro_batch, seq, 1, 1},
                           .recompute          = s->recompute,
                           .compute_capability = cost->device->compute_capability,
                           .heights            = heights,
                           .span_idx           = {1, 2, 3, 4},
                           .angles_idx         = 5};
    vp_grouping   group = {s->segment, s->segment};
    vp_lowered    l     = {0};
    vp_status     st    = VP_OK;

    VP_TRY_ALLOC(err, arena);
    vp_graph g = vp_graph_grouped(arena, &model->graph, &group, 1);
    VP_TRY_ALLOC(err, !vp_arena_failed(arena));
    VP_TRY(vp_lower(arena, &g, g.instances[1].template_idx, semantics, &opts, &l, err));
    s->kept_bytes   = l.program.kept_bytes;
    s->height_bytes = vp_max_i64(l.height_bytes[VP_PASS_FORWARD], l.height_bytes[VP_PASS_BACKWARD]);
    assert(s->kept_bytes >= 0 && (heights == VP_HEIGHTS_NONE || s->height_bytes >= s->kept_bytes));
    s->ns = s->forward_ns = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < l.program.n_steps[pass]; i++)
            if (!l.program.steps[pass][i].first_only) {
                int64_t ns =
                    llround(vp_cost_step(cost, &model->graph, &l.program.steps[pass][i]) * 1e9);
                s->ns += ns;
                s->forward_ns += pass == VP_PASS_FORWARD ? ns : 0;
            }
out:
    vp_arena_free(arena);
    return st;
}

static vp_status measure(const vp_model *model, int64_t seq, vp_micro_steps steps,
                         const vp_semantics *semantics, vp_cost *cost, vp_strategy *s, vp_err *err)
{
    vp_strategy last = *s;
    vp_status   st   = VP_OK;

    VP_TRY(measure_at(model, seq, steps.micro_batch, semantics, VP_HEIGHTS_PACKED, cost, s, err));
    if (steps.last_batch) { /* it lies where the others lie */
        VP_TRY(
            measure_at(model, seq, steps.last_batch, semantics, VP_HEIGHTS_NONE, cost, &last, err));
        s->last_ns = last.ns;
    }
out:
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

/* A block that keeps more, or is higher above what it keeps, or slower, is never better: peaks
 * grow with k and beta. */
static bool dominates(const vp_strategy *a, const vp_strategy *b)
{
    return a->kept_bytes <= b->kept_bytes &&
           a->height_bytes - a->kept_bytes <= b->height_bytes - b->kept_bytes && a->ns <= b->ns;
}

typedef struct ranked {
    vp_strategy strategy; /* first: by_kept() orders ranks, too; ns is of all micro-steps */
    int64_t     outline_idx;
} ranked;

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
    assert(lib->n == 0 || n > 0); /* the first is beaten by none */
    lib->n = n;
}

/* As is_beaten(), where s has a height that it cannot undercut instead of its own: of sets that
 * may turn out equal the lowest number stays, so that the outcome does not depend on bounds. */
static bool is_surely_beaten(const vp_library *lib, const vp_strategy *s)
{
    for (int64_t i = 0; i < lib->n; i++) {
        const vp_strategy *x = &lib->strategies[i];
        if (dominates(x, s) && (x->recompute < s->recompute || !dominates(s, x)))
            return true;
    }
    return false;
}

/* Of all sets those that none beats, over all micro-steps. Packing takes most of the time: a set
 * that is beaten even at the least height that it could have is not packed. last_ns: per set. */
static vp_status take_undominated(const vp_outlines *outlines, const int64_t *last_ns,
                                  int64_t n_full, vp_arena *arena, vp_library *out, vp_err *err)
{
    int64_t   n = vp_outlines_count(outlines), cap = 0;
    ranked   *rank = calloc((size_t)n, sizeof *rank);
    vp_status st   = VP_OK;

    VP_TRY_ALLOC(err, rank);
    for (int64_t i = 0; i < n; i++) {
        vp_strategy *s      = &rank[i].strategy;
        rank[i].outline_idx = i;
        vp_outline_estimate(outlines, i, 0, s);
        s->last_ns = last_ns[i];
        s->ns      = vp_add(vp_mul(s->ns, n_full), s->last_ns);
    }
    qsort(rank, (size_t)n, sizeof *rank, by_kept); /* a rank begins with its strategy */
    for (int64_t i = 0; i < n; i++) {
        vp_strategy *s = &rank[i].strategy;
        if (is_surely_beaten(out, s))
            continue;
        if (!vp_outline_known_height(outlines, rank[i].outline_idx, 0, &s->height_bytes)) {
            s->height_bytes = vp_outline_least_height(outlines, rank[i].outline_idx, 0);
            if (is_surely_beaten(out, s))
                continue;
            VP_TRY(vp_outline_least_whole(outlines, rank[i].outline_idx, 0, &s->height_bytes, err));
        }
        if (is_surely_beaten(out, s))
            continue;
        int64_t least_bytes = s->height_bytes;
        VP_TRY(vp_outline_pack(outlines, rank[i].outline_idx, 0, &s->height_bytes, err));
        assert(s->height_bytes >= least_bytes); /* or a set was dropped that should stay */
        VP_TRY_ALLOC(err, vp_arena_grow(arena, (void **)&out->strategies, out->n, &cap,
                                        sizeof *out->strategies));
        out->strategies[out->n++] = *s;
    }
    prune(out);
    for (int64_t i = 0; i < out->n; i++)
        out->strategies[i].ns = (out->strategies[i].ns - out->strategies[i].last_ns) / n_full;
out:
    free(rank);
    return st;
}

/* Nanoseconds of each set in a last micro-step of n samples. */
static vp_status last_times(vp_outlines *outlines, int64_t seq, int64_t n, vp_cost *cost,
                            int64_t *last_ns, bool *alike, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(vp_outlines_scale(outlines, seq, n, cost, alike, err));
    for (int64_t i = 0; *alike && i < vp_outlines_count(outlines); i++)
        last_ns[i] = vp_outline_ns(outlines, i);
out:
    return st;
}

vp_status vp_library_make(vp_arena *arena, vp_outline_store *store, int64_t seq,
                          vp_micro_steps steps, const vp_semantics *semantics, vp_cost *cost,
                          vp_library *out, vp_err *err)
{
    vp_outlines *outlines;
    bool         alike   = true;
    int64_t     *last_ns = NULL;
    vp_status    st      = VP_OK;

    *out = (vp_library){0};
    VP_TRY(vp_outline_store_get(store, semantics, seq, steps.micro_batch, cost, &outlines, err));
    VP_TRY_ALLOC(err, last_ns = calloc((size_t)vp_outlines_count(outlines), sizeof *last_ns));
    if (steps.last_batch)
        VP_TRY(last_times(outlines, seq, steps.last_batch, cost, last_ns, &alike, err));
    if (alike)
        VP_TRY(vp_outlines_scale(outlines, seq, steps.micro_batch, cost, &alike, err));
    if (!alike)
        goto out;
    out->n_lowered = vp_outlines_count(outlines);
    VP_TRY(take_undominated(outlines, last_ns, steps.n_full, arena, out, err));
    qsort(out->strategies, (size_t)out->n, sizeof *out->strategies, by_beta);
out:
    free(last_ns);
    return st;
}

vp_status vp_library_of_set(vp_arena *arena, const vp_model *model, int64_t seq,
                            vp_micro_steps steps, const vp_semantics *semantics, vp_cost *cost,
                            uint64_t set, vp_library *out, vp_err *err)
{
    vp_status st = VP_OK;

    *out = (vp_library){
        .n = 1, .n_lowered = 1, .strategies = vp_arena_array(arena, 1, sizeof *out->strategies)};
    VP_TRY_ALLOC(err, out->strategies);
    out->strategies[0] = (vp_strategy){.recompute = set, .segment = 1};
    VP_TRY(measure(model, seq, steps, semantics, cost, &out->strategies[0], err));
out:
    return st;
}

static vp_status start_with_segments(vp_arena *arena, const vp_library *alone, int64_t n_segments,
                                     vp_library *out, vp_err *err)
{
    *out = (vp_library){.n         = alone->n,
                        .n_lowered = alone->n_lowered,
                        .strategies =
                            vp_arena_array(arena, alone->n + n_segments, sizeof *out->strategies)};
    if (!out->strategies)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    if (alone->n)
        memcpy(out->strategies, alone->strategies, (size_t)alone->n * sizeof *out->strategies);
    return VP_OK;
}

vp_status vp_library_of_segment(vp_arena *arena, const vp_model *model, int64_t seq,
                                vp_micro_steps steps, const vp_semantics *semantics, vp_cost *cost,
                                int64_t m, vp_library *out, vp_err *err)
{
    const vp_library none = {0};
    vp_status        st   = VP_OK;

    assert(m >= 2 && m <= vp_max_segment(model));
    VP_TRY(start_with_segments(arena, &none, 1, out, err));
    out->strategies[out->n] = (vp_strategy){.recompute = UINT64_MAX, .segment = m};
    VP_TRY(measure(model, seq, steps, semantics, cost, &out->strategies[out->n++], err));
out:
    return st;
}

vp_status vp_library_with_segments(vp_arena *arena, vp_outline_store *store, int64_t seq,
                                   vp_micro_steps steps, const vp_semantics *semantics,
                                   vp_cost *cost, const vp_library *alone, int64_t longest,
                                   vp_library *out, vp_err *err)
{
    const int64_t n_segments = vp_max_i64(0, longest - 1);
    vp_outlines  *outlines;
    bool          alike = true;
    vp_status     st    = VP_OK;

    VP_TRY(start_with_segments(arena, alone, n_segments, out, err));
    vp_strategy *segments = out->strategies + alone->n;
    VP_TRY(vp_outline_store_get(store, semantics, seq, steps.micro_batch, cost, &outlines, err));
    for (int64_t i = 0; i < n_segments; i++)
        VP_TRY(vp_outline_segment(outlines, i + 2, &segments[i], err));
    if (steps.last_batch &&
        n_segments) { /* where blocks are alike, as alone->n says, segments are */
        VP_TRY(vp_outlines_scale(outlines, seq, steps.last_batch, cost, &alike, err));
        assert(alike);
    }
    for (int64_t i = 0; steps.last_batch && i < n_segments; i++)
        segments[i].last_ns = vp_outline_segment_ns(outlines, i + 2);
    out->n += n_segments;
    qsort(out->strategies, (size_t)out->n, sizeof *out->strategies, by_beta);
out:
    return st;
}
