#include "planner/streamed_space.h"

#include "base/checked.h"

#include <assert.h>

/* What of a scenario the bounds ask for. */
typedef struct chain {
    const vp_library          *lib;
    const vp_figures          *figures;
    const vp_streamed_figures *f;
    int64_t                    n_micro, n_blocks, n_slots;
    /* copies of a block: of its activations in one direction, 0 where none move; to the device, in later
     * micro-steps, and in the first what limits it */
    int64_t moved_ns, both_ns, first_ns;
    /* what kernels of a block lose to copies of activations in one direction, and in all in forward, in backward of
     * the first micro-step, and of a later one */
    int64_t lost_moved_ns, lost_forward_ns, lost_first_ns, lost_later_ns;
    /* forward takes what the copies of activations take; or what blocks wait for their one slot, but for the block
     * that most is lost at, see planner/library.h */
    bool    sent, waits;
    int64_t lost_waiting_ns;
} chain;

static chain chain_of(const vp_library *lib, const vp_figures *figures, int n_slots,
                      int64_t n_micro, int64_t n_blocks)
{
    const vp_streamed_figures *f = &figures->streamed;
    chain                      c = {.lib      = lib,
                                    .figures  = figures,
                                    .f        = f,
                                    .n_micro  = n_micro,
                                    .n_blocks = n_blocks,
                                    .n_slots  = n_slots,
                                    .moved_ns = n_slots ? lib->strategies[0].copy_ns : 0,
                                    .both_ns  = f->params_ns + f->gradients_ns,
                                    .first_ns = vp_max_i64(f->params_ns, f->back_ns)};
    c.lost_moved_ns              = n_slots ? lib->strategies[0].lost_ns : 0;
    c.lost_forward_ns            = f->lost_params_ns + c.lost_moved_ns;
    c.lost_first_ns              = f->lost_params_ns + f->lost_back_ns + c.lost_moved_ns;
    c.lost_later_ns              = c.lost_first_ns + f->lost_gradients_ns;
    int64_t forward_ns = n_blocks * vp_max_i64(f->forward_ns + c.lost_forward_ns, f->params_ns);
    if (n_slots == 1) {
        int64_t least_ns = INT64_MAX;
        for (int64_t i = 0; i < lib->n; i++)
            least_ns = vp_min_i64(least_ns, lib->strategies[i].one_slot_ns[VP_PASS_FORWARD]);
        c.lost_waiting_ns = vp_library_most_waited(lib, VP_PASS_FORWARD);
        least_ns          = n_blocks * least_ns - c.lost_waiting_ns;
        c.waits           = least_ns > forward_ns;
        forward_ns        = vp_max_i64(forward_ns, least_ns);
    }
    c.sent = vp_max_i64(0, n_blocks - n_slots) * c.moved_ns > forward_ns;
    return c;
}

static int64_t backward_ns(const chain *c, int64_t i)
{
    assert(c->lib->strategies[i].ns >= c->f->forward_ns);
    return c->lib->strategies[i].ns - c->f->forward_ns;
}

/* Of the strategies from `from` on the shortest backward. */
static int64_t least_backward_ns(const chain *c, int64_t from)
{
    int64_t least_ns = INT64_MAX;

    for (int64_t i = from; i < c->lib->n; i++)
        least_ns = vp_min_i64(least_ns, backward_ns(c, i));
    return least_ns;
}

/* What the first micro-step takes less than the blocks' and the embedding's terms say where the chain's
 * first block has this backward: nothing is fetched while it runs. Where ways back limit, either it or
 * the embedding may count as one. */
static int64_t lost_at_first_ns(const chain *c, int64_t ns)
{
    const int64_t back_ns = c->f->back_ns, end_ns = vp_max_i64(c->f->embedding_ns, back_ns);
    const int64_t said_ns = vp_max_i64(ns + c->lost_first_ns, c->first_ns);

    ns += c->f->lost_back_ns;
    if (back_ns <= c->f->params_ns)
        return said_ns - ns;
    return said_ns + end_ns - vp_max_i64(2 * back_ns, ns + end_ns);
}

/* And where its last block has this one: nothing is on its way back yet. */
static int64_t lost_at_last_ns(const chain *c, int64_t ns)
{
    ns += c->lost_first_ns - c->lost_moved_ns;
    return c->f->back_ns > c->f->params_ns ? vp_max_i64(0, c->f->back_ns - ns) : 0;
}

/* ---- ways to bound what a chain takes ---- */

/* Blocks of the strategies from `first` on take what their copies do, in the first micro-step too or in the
 * later ones alone; the others what their kernels or the copies of parameters and gradients do, or what they
 * wait for their one slot in backward, which all do in the first micro-step then. */
typedef struct way {
    int64_t      first;
    bool         in_first_step, waits;
    vp_item_row *items;
    int64_t      const_ns; /* of any chain, but for what its ends lose */
} way;

enum { MAX_WAYS = 7 };

static bool follows_copies(const chain *c, const way *w)
{
    return w->first < c->lib->n;
}

static int64_t forward_ns(const chain *c, int64_t i)
{
    return (c->sent    ? 0
            : c->waits ? c->lib->strategies[i].one_slot_ns[VP_PASS_FORWARD]
                       : vp_max_i64(c->f->forward_ns + c->lost_forward_ns, c->f->params_ns)) *
           c->n_micro;
}

static int64_t first_step_ns(const chain *c, const way *w, int64_t i)
{
    const int64_t ns = backward_ns(c, i);

    if (w->waits)
        return c->lib->strategies[i].one_slot_ns[VP_PASS_BACKWARD];
    if (!w->in_first_step)
        return vp_max_i64(ns + c->lost_first_ns, c->first_ns);
    return i >= w->first ? c->f->params_ns + c->moved_ns
                         : vp_max_i64(ns + c->lost_first_ns, c->f->params_ns);
}

static int64_t later_ns(const chain *c, const way *w, int64_t i)
{
    return (i >= w->first ? c->both_ns + c->moved_ns
            : w->waits    ? c->lib->strategies[i].one_slot_ns[VP_PASS_BACKWARD]
                          : vp_max_i64(backward_ns(c, i) + c->lost_later_ns, c->both_ns)) *
           (c->n_micro - 1);
}

/* What a block of strategy s takes where it is the chain's first. */
static int64_t as_first_ns(const chain *c, const way *w, int64_t s)
{
    const int64_t ns = backward_ns(c, s);

    if (w->waits) /* the constant allows for what is lost, but for copies that nobody fetches */
        return forward_ns(c, s) + first_step_ns(c, w, s) +
               (s >= w->first ? ns * (c->n_micro - 1) : later_ns(c, w, s));
    const int64_t own_ns = ns + c->f->lost_back_ns;
    return forward_ns(c, s) + own_ns * (c->n_micro - 1) +
           (w->in_first_step ? own_ns : first_step_ns(c, w, s) - lost_at_first_ns(c, ns));
}

static int64_t at_last_ns(const chain *c, const way *w, int64_t ns)
{
    return w->in_first_step || w->waits ? 0 : lost_at_last_ns(c, ns);
}

static bool set_way(vp_arena *arena, const chain *c, int64_t first, bool in_first_step, bool waits,
                    way *w)
{
    *w = (way){.first         = first,
               .in_first_step = in_first_step,
               .waits         = waits,
               .items         = vp_arena_array(arena, c->lib->n, sizeof *w->items)};
    if (!w->items)
        return false;
    for (int64_t i = 0; i < c->lib->n; i++) {
        const vp_strategy *x = &c->lib->strategies[i];
        w->items[i] =
            (vp_item_row){.k_bytes    = x->kept_bytes,
                          .beta_bytes = x->height_bytes - x->kept_bytes,
                          .cost_ns = forward_ns(c, i) + first_step_ns(c, w, i) + later_ns(c, w, i)};
    }
    w->const_ns = c->figures->outside_blocks_ns;
    if (c->sent)
        w->const_ns += vp_max_i64(0, c->n_blocks - c->n_slots) * c->moved_ns * c->n_micro;
    else if (c->waits)
        w->const_ns -= c->lost_waiting_ns * c->n_micro;
    else /* the last block fetches nothing, and blocks whose outputs stay send nothing */
        w->const_ns -= (vp_max_i64(c->lost_forward_ns, c->f->params_ns - c->f->forward_ns) +
                        vp_max_i64(0, c->n_slots - 1) * c->lost_moved_ns) *
                       c->n_micro;
    w->const_ns -= vp_max_i64(0, c->n_slots - 1) * c->lost_moved_ns * c->n_micro; /* in backward */
    if (waits)
        w->const_ns -= vp_library_most_waited(c->lib, VP_PASS_BACKWARD) * c->n_micro;
    if (follows_copies(c, w))
        w->const_ns -= c->moved_ns * (c->n_micro - 1 + in_first_step);
    return true;
}

/* The first of the strategies at the list's end whose copies all take longer than their kernels, or than they
 * wait for their one slot. */
static int64_t first_limited(const chain *c, bool waits)
{
    int64_t i = c->lib->n;

    while (i > 0 && c->both_ns + c->moved_ns >
                        (waits ? c->lib->strategies[i - 1].one_slot_ns[VP_PASS_BACKWARD]
                               : backward_ns(c, i - 1) + c->lost_later_ns))
        i--;
    return i;
}

static bool find_ways(vp_arena *arena, const chain *c, way ways[MAX_WAYS], int *n)
{
    const int64_t limited = first_limited(c, false), from[] = {c->lib->n, limited, 0};
    const int     n_from = c->moved_ns == 0 ? 1 : limited == 0 || limited == c->lib->n ? 2 : 3;

    *n = 0;
    for (int k = 0; k < n_from; k++)
        for (int in_first = 0; in_first < (k == 0 ? 1 : 2); in_first++)
            if (!set_way(arena, c, limited == c->lib->n && k == 1 ? 0 : from[k], in_first, false,
                         &ways[(*n)++]))
                return false;
    if (c->n_slots != 1)
        return true;
    const int64_t waiting = first_limited(c, true);
    return set_way(arena, c, c->lib->n, false, true, &ways[(*n)++]) &&
           (waiting == c->lib->n || set_way(arena, c, waiting, false, true, &ways[(*n)++]));
}

/* ---- all chains of a scenario ---- */

/* The integer program of one way: the constant allows for whatever its ends may lose. */
static vp_ilp of_all(const chain *c, const way *w, const vp_ilp *like)
{
    int64_t lost_ns = INT64_MIN;
    vp_ilp  p       = *like;

    for (int64_t i = 0; i < c->lib->n; i++)
        lost_ns = vp_max_i64(lost_ns, w->items[i].cost_ns - as_first_ns(c, w, i));
    p.items    = w->items;
    p.n_items  = c->lib->n;
    p.hull     = NULL;
    p.const_ns = w->const_ns - lost_ns - at_last_ns(c, w, least_backward_ns(c, 0));
    return p;
}

/* What is lost at the ends may be more than all outside the blocks takes: of small models, as they were timed. A bound with a constant of
 * -d as one without: each block is said to take d less, none below 0. That is no more than the sum less d where any block takes d, and else
 * 0, which no step undercuts. */
static bool count_from_zero(vp_arena *arena, vp_ilp *p)
{
    vp_item_row *items;

    if (p->const_ns >= 0)
        return true;
    items = vp_arena_array(arena, p->n_items, sizeof *items);
    for (int64_t i = 0; items && i < p->n_items; i++) {
        items[i]         = p->items[i];
        items[i].cost_ns = vp_max_i64(0, items[i].cost_ns + p->const_ns);
    }
    p->items    = items;
    p->hull     = NULL;
    p->const_ns = 0;
    return items != NULL;
}

vp_status vp_streamed_bound(vp_arena *arena, const vp_library *lib, const vp_figures *figures,
                            int n_slots, int64_t n_micro, int64_t arena_bytes, vp_ilp *p,
                            vp_err *err)
{
    const chain c = chain_of(lib, figures, n_slots, n_micro, p->n_blocks);
    way         ways[MAX_WAYS];
    int         n;
    int64_t     best_ns = -1, ns;
    vp_ilp      best;
    vp_status   st = VP_OK;

    VP_TRY_ALLOC(err, find_ways(arena, &c, ways, &n));
    best = of_all(&c, &ways[0], p);
    for (int k = 0; k < n && n > 1; k++) {
        vp_ilp here = of_all(&c, &ways[k], p);
        if (here.const_ns >= 0 && vp_dp_bound(&here, arena_bytes, &ns) && ns > best_ns) {
            best_ns = ns;
            best    = here;
        }
    }
    VP_TRY_ALLOC(err, count_from_zero(arena, &best));
    assert(best.const_ns >= 0);
    *p = best;
out:
    return st;
}

/* ---- parts ---- */

/* The chains that begin with strategy s, bounded in one way. */
static vp_ilp_part beginning_with(const chain *c, const way *w, const vp_ilp *p, int64_t s)
{
    vp_ilp_part x = {.ilp = *p, .first = s, .last = -1, .skipped = s};

    x.ilp.items   = w->items + s;
    x.ilp.n_items = c->lib->n - s;
    x.ilp.n_blocks--;
    x.ilp.base_bytes += w->items[s].k_bytes;
    x.ilp.hull     = NULL;
    x.lost_at_last = at_last_ns(c, w, least_backward_ns(c, s));
    x.ilp.const_ns = w->const_ns + as_first_ns(c, w, s) - x.lost_at_last;
    return x;
}

/* Such a part says nothing of its last block apart: what it would say less there was counted already. */
static bool part_from_zero(vp_arena *arena, vp_ilp_part *x)
{
    if (x->ilp.const_ns < 0)
        x->lost_at_last = 0;
    return count_from_zero(arena, &x->ilp);
}

/* Of all ways that which says the most. False: out of memory. */
static bool add_best(vp_arena *arena, const chain *c, const way *ways, int n_ways, const vp_ilp *p,
                     int64_t arena_bytes, int64_t s, vp_ilp_part *parts, int64_t *n)
{
    const vp_item_row *x       = &ways[0].items[s];
    int64_t            best_ns = -1, ns;

    if (vp_add(p->base_bytes, vp_add(x->k_bytes, x->beta_bytes)) > arena_bytes)
        return true;
    for (int k = 0; k < n_ways; k++) {
        vp_ilp_part part = beginning_with(c, &ways[k], p, s);
        if (!part_from_zero(arena, &part))
            return false;
        if (vp_dp_bound(&part.ilp, arena_bytes, &ns) && ns > best_ns) {
            best_ns   = ns;
            parts[*n] = part;
        }
    }
    *n += best_ns >= 0;
    return true;
}

vp_status vp_streamed_parts(vp_arena *arena, const vp_ilp *p, const vp_library *lib,
                            const vp_figures *figures, int n_slots, int64_t n_micro,
                            int64_t arena_bytes, vp_ilp_part **parts, int64_t *n, vp_err *err)
{
    const chain c = chain_of(lib, figures, n_slots, n_micro, p->n_blocks);
    way         ways[MAX_WAYS];
    int         n_ways;
    bool        some = false; /* may be first and lose nothing */
    vp_status   st   = VP_OK;

    *n = 0;
    VP_TRY_ALLOC(err, *parts = vp_arena_array(arena, lib->n + 1, sizeof **parts));
    if (p->n_blocks == 1) {
        (*parts)[(*n)++] = (vp_ilp_part){.ilp = *p, .first = -1, .last = -1};
        goto out;
    }
    VP_TRY_ALLOC(err, find_ways(arena, &c, ways, &n_ways));
    for (int64_t s = 0; s < lib->n; s++)
        if (n_ways == 1 && as_first_ns(&c, &ways[0], s) == ways[0].items[s].cost_ns)
            some = true;
        else
            VP_TRY_ALLOC(err, add_best(arena, &c, ways, n_ways, p, arena_bytes, s, *parts, n));
    if (some) { /* a chain that begins otherwise takes no more than is said here */
        vp_ilp_part *x  = &(*parts)[(*n)++];
        *x              = (vp_ilp_part){.ilp = *p, .first = -1, .last = -1};
        x->lost_at_last = at_last_ns(&c, &ways[0], least_backward_ns(&c, 0));
        x->ilp.items    = ways[0].items;
        x->ilp.hull     = NULL;
        x->ilp.const_ns = ways[0].const_ns - x->lost_at_last;
        VP_TRY_ALLOC(err, part_from_zero(arena, x));
    }
out:
    return st;
}

bool vp_streamed_split_last(const vp_ilp_part *part, const vp_library *lib,
                            const vp_figures *figures, vp_ilp_part *parts, int64_t *n)
{
    const chain c   = chain_of(lib, figures, 0, 1, part->ilp.n_blocks);
    int64_t     end = 0;

    if (part->last >= 0 || part->lost_at_last == 0 || part->ilp.n_blocks == 1)
        return false;
    for (int64_t i = 0; i < part->ilp.n_items; i++) {
        const vp_item_row *item = &part->ilp.items[i];
        vp_ilp_part        x    = *part;
        x.last                  = part->skipped + i;
        x.lost_at_last          = lost_at_last_ns(&c, backward_ns(&c, x.last));
        x.ilp.hull              = NULL;
        x.ilp.n_items           = i + 1;
        x.ilp.n_blocks--;
        x.ilp.end_bytes = vp_add(item->k_bytes, vp_max_i64(item->beta_bytes, part->ilp.end_bytes));
        x.ilp.const_ns += item->cost_ns + part->lost_at_last - x.lost_at_last;
        if (!vp_overflowed(x.ilp.end_bytes))
            parts[end++] = x;
    }
    *n = end;
    return true;
}

void vp_ilp_part_counts(const vp_ilp_part *part, const int64_t *of_part, int64_t *counts,
                        int64_t n_items)
{
    for (int64_t i = 0; i < n_items; i++) {
        int64_t from = i - part->skipped;
        counts[i]    = from >= 0 && from < part->ilp.n_items ? of_part[from] : 0;
        counts[i] += (i == part->first) + (i == part->last);
    }
}
