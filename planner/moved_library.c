/* planner/moved_library.c: the ways a block can be run that moves some of its outputs to host memory: it
 * makes none of these again. */
#include "base/checked.h"
#include "planner/library.h"
#include "planner/outline.h"
#include "planner/solve/problem.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Nanoseconds that make the output of an op again: its own, and of those before it whose outputs are
 * not kept. */
static int64_t again_ns(const vp_outlines *outlines, const vp_template *t, const int64_t bytes[64],
                        int op)
{
    uint64_t todo = UINT64_C(1) << op, done = 0;
    int64_t  ns = 0;

    while (todo & ~done) {
        int i = __builtin_ctzll(todo & ~done);
        ns += vp_outline_forward_ns(outlines, 0, t->ops[i].name);
        done |= UINT64_C(1) << i;
        for (int k = 0; k < VP_OP_MAX_IN; k++) {
            int producer = t->ops[i].in[k] >= 0 ? t->tensors[t->ops[i].in[k]].producer : -1;
            if (producer >= 0 && !bytes[producer])
                todo |= UINT64_C(1) << producer;
        }
    }
    return ns;
}

void vp_library_outputs(const vp_outlines *outlines, const vp_model *model, vp_cost *cost,
                        vp_outputs *out)
{
    const vp_template *t = &model->graph.templates[vp_block_template(&model->graph)];

    memset(out, 0, sizeof *out);
    vp_outline_outputs(outlines, 0, out->bytes);
    for (int op = 0; op < t->n_ops; op++) {
        vp_step copy = {.kernel = VP_K_COPY_START, .dtype = VP_DTYPE_F32};
        if (!out->bytes[op])
            continue;
        copy.copy_start.count = out->bytes[op];
        out->copy_ns[op]      = llround(vp_cost_step(cost, &model->graph, &copy) * 1e9);
        out->lost_ns[op]      = llround(vp_cost_lost(cost, &copy) * 1e9);
        out->again_ns[op]     = again_ns(outlines, t, out->bytes, op);
    }
}

/* ---- strategies ---- */

typedef struct ranked {
    vp_strategy strategy;
    int64_t     outline_idx;
} ranked;

/* What dominates comes before what it dominates. */
static int by_kept(const void *a, const void *b)
{
    const vp_strategy *x = a, *y = b;
    const int64_t      left[]  = {x->kept_bytes, x->height_bytes, x->ns};
    const int64_t      right[] = {y->kept_bytes, y->height_bytes, y->ns};

    for (int i = 0; i < 3; i++)
        if (left[i] != right[i])
            return left[i] < right[i] ? -1 : 1;
    return (x->recompute > y->recompute) - (x->recompute < y->recompute);
}

static int by_beta(const void *a, const void *b)
{
    const vp_strategy *x = a, *y = b;
    int64_t            bx = x->height_bytes - x->kept_bytes, by = y->height_bytes - y->kept_bytes;

    return bx != by ? (bx > by ? -1 : 1) : by_kept(a, b);
}

static bool is_beaten(const vp_library *lib, const vp_strategy *s)
{
    bool beaten = false;

    for (int64_t i = 0; !beaten && i < lib->n; i++) {
        const vp_strategy *x = &lib->strategies[i];
        beaten               = x->kept_bytes <= s->kept_bytes &&
                 x->height_bytes - x->kept_bytes <= s->height_bytes - s->kept_bytes &&
                 x->ns <= s->ns;
    }
    return beaten;
}

static void prune(vp_library *lib)
{
    int64_t n = lib->n;

    qsort(lib->strategies, (size_t)n, sizeof *lib->strategies, by_kept);
    lib->n = 0;
    for (int64_t i = 0; i < n; i++)
        if (!is_beaten(lib, &lib->strategies[i]))
            lib->strategies[lib->n++] = lib->strategies[i];
}

/* Of those of some ops. */
static int64_t sum_of(const int64_t ns[64], uint64_t ops)
{
    int64_t sum_ns = 0;

    for (int op = 0; op < 64; op++)
        sum_ns += ops >> op & 1 ? ns[op] : 0;
    return sum_ns;
}

/* Packing takes most of the time: what is beaten even at the least height it could have is not packed. */
static vp_status take(const vp_outlines *outlines, ranked *rank, uint64_t activations,
                      vp_library *out, vp_err *err)
{
    vp_strategy *s   = &rank->strategy;
    int64_t      idx = rank->outline_idx;
    vp_status    st  = VP_OK;

    if (is_beaten(out, s))
        return VP_OK;
    if (!vp_outline_known_height(outlines, idx, activations, &s->height_bytes)) {
        s->height_bytes = vp_outline_least_height(outlines, idx, activations);
        if (is_beaten(out, s))
            return VP_OK;
        VP_TRY(vp_outline_least_whole(outlines, idx, activations, &s->height_bytes, err));
    }
    if (is_beaten(out, s))
        return VP_OK;
    VP_TRY(vp_outline_pack(outlines, idx, activations, &s->height_bytes, err));
    out->strategies[out->n++] = *s;
out:
    return st;
}

/* ---- waiting for the one slot ---- */

/* From the end of the last kernel of a set's backward that uses an output's place to the end of the copy into it:
 * copies that start at the same kernel and before it, or by_last false at an earlier one that does not come before the
 * first use of the place, are ahead of it on their stream. */
static int64_t until_copied(const vp_outlines *outlines, int64_t idx, int op, uint64_t activations,
                            const int64_t copy_ns[64], bool by_last)
{
    vp_outline_use own, of[64];
    int64_t        sum_ns = copy_ns[op], most_ns = copy_ns[op];
    uint64_t       ahead = 0;

    vp_outline_use_of(outlines, idx, VP_PASS_BACKWARD, op, &own);
    for (int r = 0; r < 64; r++)
        if (r != op && (activations >> r & 1) &&
            vp_outline_use_of(outlines, idx, VP_PASS_BACKWARD, r, &of[r]) &&
            (of[r].last_step == own.last_step ? r < op
                                              : !by_last && of[r].last_step < own.last_step &&
                                                    of[r].last_step >= own.first_step))
            ahead |= UINT64_C(1) << r;
    while (ahead) { /* the latest first */
        int latest = __builtin_ctzll(ahead);
        for (int r = latest; r < 64; r++)
            if ((ahead >> r & 1) && of[r].last_step >= of[latest].last_step)
                latest = r;
        ahead &= ~(UINT64_C(1) << latest);
        sum_ns += copy_ns[latest];
        most_ns = vp_max_i64(most_ns, sum_ns - (of[latest].behind_ns - own.behind_ns));
    }
    return most_ns;
}

/* What blocks take at least in a pass by one output's place, by its first use or its last; false: some strategy has
 * no use for it. */
static bool wait_for_place(const vp_outlines *outlines, const int64_t *idx, const vp_library *lib,
                           int pass, int op, uint64_t activations, const int64_t copy_ns[64],
                           bool by_last, int64_t *ns)
{
    vp_outline_use u;
    int64_t        most_ns = 0, least_ns = INT64_MAX;

    for (int64_t i = 0; i < lib->n; i++) {
        if (!vp_outline_use_of(outlines, idx[i], pass, op, &u))
            return false;
        most_ns  = vp_max_i64(most_ns, by_last ? u.behind_ns : u.before_ns);
        ns[i]    = pass == VP_PASS_FORWARD
                       ? copy_ns[op]
                       : until_copied(outlines, idx[i], op, activations, copy_ns, by_last);
        least_ns = vp_min_i64(least_ns, ns[i]);
    }
    for (int64_t i = 0; i < lib->n; i++) {
        vp_outline_use_of(outlines, idx[i], pass, op, &u);
        ns[i] = vp_max_i64(u.before_ns + u.meanwhile_ns + u.behind_ns,
                           u.meanwhile_ns +
                               (by_last ? least_ns + u.behind_ns /* of another block's */
                                        : ns[i] + u.before_ns) -
                               most_ns);
    }
    return true;
}

static void set_one_slot_ns(const vp_outlines *outlines, const int64_t *idx,
                            const vp_outputs *outputs, uint64_t activations, vp_library *lib)
{
    int64_t ns[VP_MAX_ITEMS];

    for (int pass = 0; pass < 2; pass++) {
        int64_t most_ns = 0;
        for (int64_t i = 0; i < lib->n; i++) {
            vp_strategy *s       = &lib->strategies[i];
            s->one_slot_ns[pass] = pass == VP_PASS_FORWARD ? s->forward_ns : s->ns - s->forward_ns;
            most_ns += s->one_slot_ns[pass];
        }
        for (int k = 0; k < 2 * 64; k++) {
            int64_t sum_ns = 0;
            if (!(activations >> k / 2 & 1) ||
                !wait_for_place(outlines, idx, lib, pass, k / 2, activations, outputs->copy_ns,
                                k % 2, ns))
                continue;
            for (int64_t i = 0; i < lib->n; i++)
                sum_ns += ns[i];
            for (int64_t i = 0; sum_ns > most_ns && i < lib->n; i++)
                lib->strategies[i].one_slot_ns[pass] = ns[i];
            most_ns = vp_max_i64(most_ns, sum_ns);
        }
    }
}

static int64_t waited_ns(const vp_strategy *s, int pass)
{
    return s->one_slot_ns[pass] - (pass == VP_PASS_FORWARD ? s->forward_ns : s->ns - s->forward_ns);
}

int64_t vp_library_most_waited(const vp_library *lib, int pass)
{
    int64_t most_ns = 0;

    for (int64_t i = 0; i < lib->n; i++)
        most_ns = vp_max_i64(most_ns, waited_ns(&lib->strategies[i], pass));
    return most_ns;
}

bool vp_library_always_waits(const vp_library *lib, int pass, int64_t n_blocks)
{
    int64_t least_ns = INT64_MAX, most_ns = vp_library_most_waited(lib, pass);

    for (int64_t i = 0; i < lib->n; i++)
        least_ns = vp_min_i64(least_ns, waited_ns(&lib->strategies[i], pass));
    return most_ns > 0 && vp_mul(n_blocks, least_ns) > most_ns;
}

/* ---- all strategies ---- */

/* Whether a set of ops to recompute is one of these; or one of base's, or of them without what is moved. */
static bool is_candidate(const vp_library *base, const uint64_t *sets, int n_given,
                         uint64_t activations, uint64_t set)
{
    bool found = false;

    for (int i = 0; !found && i < n_given; i++)
        found = sets[i] == set;
    for (int64_t i = 0; base && !found && i < base->n; i++)
        found = base->strategies[i].recompute == set ||
                (base->strategies[i].recompute & ~activations) == set;
    return found;
}

vp_status vp_library_of_moved(vp_arena *arena, const vp_outlines *outlines, const vp_library *base,
                              const uint64_t *sets, int n_given, uint64_t activations,
                              const vp_outputs *outputs, vp_library *out, vp_err *err)
{
    const int64_t copy_ns = sum_of(outputs->copy_ns, activations),
                  lost_ns = sum_of(outputs->lost_ns, activations),
                  n_sets  = vp_outlines_count(outlines);
    ranked   *rank        = calloc((size_t)n_sets, sizeof *rank);
    int64_t   n           = 0, idx[VP_MAX_ITEMS];
    vp_status st          = VP_OK;

    *out = (vp_library){.strategies = vp_arena_array(arena, n_sets, sizeof *out->strategies)};
    VP_TRY_ALLOC(err, rank && out->strategies);
    for (int64_t i = 0; i < n_sets; i++) {
        if (!is_candidate(base, sets, n_given, activations, vp_outline_set(outlines, i)))
            continue; /* most sets: estimates take longer */
        vp_outline_estimate(outlines, i, activations, &rank[n].strategy);
        rank[n].strategy.copy_ns = copy_ns;
        rank[n].strategy.lost_ns = lost_ns;
        rank[n].outline_idx      = i;
        n += rank[n].strategy.offload == activations;
    }
    qsort(rank, (size_t)n, sizeof *rank, by_kept); /* a rank begins with its strategy */
    for (int64_t i = 0; i < n; i++)
        VP_TRY(take(outlines, &rank[i], activations, out, err));
    prune(out);
    assert(out->n <= VP_MAX_ITEMS);
    out->n_lowered = n_sets;
    qsort(out->strategies, (size_t)out->n, sizeof *out->strategies, by_beta);
    for (int64_t i = 0; i < out->n; i++)
        for (int64_t k = 0; k < n; k++)
            if (rank[k].strategy.recompute == out->strategies[i].recompute)
                idx[i] = rank[k].outline_idx;
    set_one_slot_ns(outlines, idx, outputs, activations, out);
out:
    free(rank);
    return st;
}
