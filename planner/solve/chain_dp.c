/* The exact optimum of one integer program without linear programming: of partial chains of each
 * length those that no other undercuts in bytes and cost, built from the chain's end.
 *
 * A partial chain of j blocks needs M bytes above what is kept before it and costs T. Prepending an
 * item gives one of j + m blocks with
 *
 *     M' = k + max(beta, M)        T' = T + cost
 *
 * and both grow with M and T, so of the partial chains of one length only those matter that no
 * other undercuts in both. The best order has descending beta (planner/solve/problem.h), so the
 * items come in ascending beta and each prepends as often as it likes. The chain of no blocks needs
 * what the head needs.
 *
 * The r blocks still to come share the B - M bytes that are left, so they cost at least r times
 * the lower convex hull of the items' (k / m, cost / m) at (B - M) / r bytes each. Partial chains that
 * cannot end within a limit then are dropped; the limit is that bound for the whole chain and a
 * little more, and a little more again until some chain ends within it. A chain that is dropped
 * undercuts none that is not: the bound grows with M, too. */
#include "planner/solve/problem.h"

#include "base/checked.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* the first limit is 1/4096 above the bound; each next one 8 times as far */
enum { FIRST_SHARE = 4096, WIDER = 8 };

typedef struct point {
    int64_t m_bytes, t_ns;
    int64_t link; /* the item that was prepended last; -1: none */
} point;

typedef struct front { /* ascending m_bytes, descending t_ns */
    point  *at;
    int64_t n, cap;
} front;

typedef struct link {
    int64_t next, item;
} link;

typedef __int128 wide;

typedef struct corner { /* of a hull: ascending k, descending cost, both of one of its m blocks */
    int64_t k_bytes, cost_ns, m, item;
} corner;

struct vp_ilp_hull {
    corner *at;
    int64_t n;
};

typedef struct dp {
    const vp_ilp *ilp;
    int64_t       max_bytes; /* that a chain may need                                  */
    int64_t       limit_ns;  /* that the blocks may cost                               */
    corner       *by_k;      /* all items in ascending k / m                           */
    vp_ilp_hull   hull;      /* of the items that may still be prepended               */
    int64_t       corner;    /* of it: no later one has room beside what was last asked about */
    front        *fronts;    /* of the chains of 0 .. n_blocks blocks                  */
    link         *links;
    int64_t       n_links, cap_links;
    int64_t       n_states, max_states;
    front         merged;
} dp;

/* m_a m_b times what a block of b keeps more than one of a, and what one of a costs more: with the sizes
 * that problem.c lets pass, and items of 128 blocks, products of two stay below 2^120. */
static wide k_between(const corner *a, const corner *b)
{
    return (wide)b->k_bytes * a->m - (wide)a->k_bytes * b->m;
}

static wide cost_between(const corner *a, const corner *b)
{
    return (wide)a->cost_ns * b->m - (wide)b->cost_ns * a->m;
}

static int by_k_then_cost(const void *a, const void *b)
{
    const corner *x = a, *y = b;
    const wide    k = k_between(y, x), cost = cost_between(x, y);

    if (k)
        return k < 0 ? -1 : 1;
    if (cost)
        return cost < 0 ? -1 : 1;
    return (x->item > y->item) - (x->item < y->item);
}

/* Whether b lies on or above the line from a to c. */
static bool above(const corner *a, const corner *b, const corner *c)
{
    return cost_between(a, b) * k_between(a, c) <= cost_between(a, c) * k_between(a, b);
}

static void sort_by_k(const vp_ilp *ilp, corner *by_k)
{
    for (int64_t s = 0; s < ilp->n_items; s++)
        by_k[s] = (corner){ilp->items[s].k_bytes, ilp->items[s].cost_ns,
                           vp_item_blocks(&ilp->items[s]), s};
    qsort(by_k, (size_t)ilp->n_items, sizeof *by_k, by_k_then_cost);
}

/* The lower convex hull of items 0 .. last of n. */
static void set_hull(const corner *by_k, int64_t n, int64_t last, vp_ilp_hull *hull)
{
    hull->n = 0;
    for (int64_t i = 0; i < n; i++) {
        const corner *x = &by_k[i];

        if (x->item > last || (hull->n && cost_between(&hull->at[hull->n - 1], x) <= 0))
            continue;
        while (hull->n >= 2 && above(&hull->at[hull->n - 2], &hull->at[hull->n - 1], x))
            hull->n--;
        hull->at[hull->n++] = *x;
    }
    assert(hull->n >= 1); /* the item that keeps the least is on it */
}

const vp_ilp_hull *vp_ilp_hull_make(vp_arena *arena, const vp_ilp *ilp)
{
    corner      *by_k = vp_arena_array(arena, 2 * ilp->n_items, sizeof *by_k);
    vp_ilp_hull *hull = vp_arena_alloc(arena, sizeof *hull);

    if (!by_k || !hull)
        return NULL;
    hull->at = by_k + ilp->n_items;
    sort_by_k(ilp, by_k);
    set_hull(by_k, ilp->n_items, ilp->n_items - 1, hull);
    return hull;
}

/* What n more blocks cost at least, if what they keep is to lie in room_bytes; false when it
 * cannot. */
static bool least_rest(const vp_ilp_hull *hull, int64_t n, int64_t room_bytes, int64_t *cost_ns)
{
    int64_t i = hull->n - 1;

    assert(hull->n >= 1 && n >= 0);
    while (i > 0 && (wide)n * hull->at[i].k_bytes > (wide)room_bytes * hull->at[i].m)
        i--;
    /* both m times too large */
    const corner *x           = &hull->at[i];
    const wide    spare_bytes = (wide)room_bytes * x->m - (wide)n * x->k_bytes;
    wide          least_ns    = (wide)n * x->cost_ns;
    if (spare_bytes < 0)
        return false;
    if (i + 1 < hull->n)
        least_ns -= spare_bytes * cost_between(x, x + 1) / k_between(x, x + 1);
    if (x->m > 1) /* what costs whole nanoseconds costs at least this */
        least_ns = (least_ns + x->m - 1) / x->m;
    *cost_ns = least_ns > INT64_MAX ? INT64_MAX : (int64_t)least_ns;
    return true;
}

/* Whether a chain with n more blocks may end within the limit: as least_rest() says, without its division. Of one n chains
 * are asked about in ascending need, from the last corner on. */
static bool may_end(dp *d, const point *x, int64_t n)
{
    const vp_ilp_hull *hull       = &d->hull;
    const int64_t      room_bytes = d->max_bytes - x->m_bytes;

    assert(hull->n >= 1 && n >= 0);
    while (d->corner > 0 &&
           (wide)n * hull->at[d->corner].k_bytes > (wide)room_bytes * hull->at[d->corner].m)
        d->corner--;
    const corner *at          = &hull->at[d->corner];
    const wide    spare_bytes = (wide)room_bytes * at->m - (wide)n * at->k_bytes;
    /* what the corner costs beyond what is left */
    const wide over_ns = (wide)n * at->cost_ns - (wide)(d->limit_ns - x->t_ns) * at->m;
    return spare_bytes >= 0 &&
           (over_ns <= 0 || (d->corner + 1 < hull->n && spare_bytes * cost_between(at, at + 1) >=
                                                            over_ns * k_between(at, at + 1)));
}

static bool reserve(void **at, int64_t n, int64_t *cap, size_t size)
{
    int64_t more = *cap ? 2 * *cap : 64;
    void   *p;

    if (n < *cap)
        return true;
    p = realloc(*at, (size_t)more * size);
    if (!p)
        return false;
    *at  = p;
    *cap = more;
    return true;
}

/* Append a point that needs more bytes than all before, unless it is no cheaper. */
static bool append(dp *d, point x)
{
    front *f = &d->merged;

    if (f->n && f->at[f->n - 1].t_ns <= x.t_ns)
        return true;
    if (d->n_states++ >= d->max_states || !reserve((void **)&f->at, f->n, &f->cap, sizeof *f->at))
        return false;
    assert(f->n == 0 || f->at[f->n - 1].m_bytes < x.m_bytes);
    f->at[f->n++] = x;
    return true;
}

static bool append_prepended(dp *d, point x, int64_t from, int64_t item)
{
    front *f = &d->merged;

    if (f->n && f->at[f->n - 1].t_ns <= x.t_ns)
        return true;
    if (!reserve((void **)&d->links, d->n_links, &d->cap_links, sizeof *d->links))
        return false;
    d->links[d->n_links] = (link){.next = from, .item = item};
    x.link               = d->n_links++;
    return append(d, x);
}

/* *longer takes in the chains that come from *shorter by prepending the item; n more blocks are to
 * come. */
static bool prepend(dp *d, const front *shorter, front *longer, int64_t item, int64_t n)
{
    const vp_item_row *x = &d->ilp->items[item];
    int64_t            i = 0, j = 0;
    front              swap;

    d->merged.n = 0;
    d->corner   = d->hull.n - 1;
    while (i + 1 < shorter->n && shorter->at[i + 1].m_bytes <= x->beta_bytes)
        /* all these come to need k + beta; the last is the cheapest */
        i++;
    while (i < shorter->n || j < longer->n) {
        const point *from = i < shorter->n ? &shorter->at[i] : NULL,
                    *kept = j < longer->n ? &longer->at[j] : NULL;
        point made        = {0};

        if (from) {
            made.m_bytes = vp_add(x->k_bytes, vp_max_i64(x->beta_bytes, from->m_bytes));
            made.t_ns    = vp_add(from->t_ns, x->cost_ns);
            if (made.m_bytes > d->max_bytes || vp_overflowed(made.m_bytes) ||
                vp_overflowed(made.t_ns)) {
                i = shorter->n;
                continue;
            }
        }
        if (!from || (kept && (kept->m_bytes < made.m_bytes ||
                               (kept->m_bytes == made.m_bytes && kept->t_ns <= made.t_ns)))) {
            if (may_end(d, kept, n) && !append(d, *kept))
                return false;
            j++;
        } else {
            if (may_end(d, &made, n) && !append_prepended(d, made, from->link, item))
                return false;
            i++;
        }
    }
    swap      = *longer;
    *longer   = d->merged;
    d->merged = swap;
    return true;
}

/* The chains that may end within the limit. False when there are more than max_states, or no
 * memory is left. */
static bool build(dp *d)
{
    const int64_t n_blocks = d->ilp->n_blocks;

    d->n_links = 0;
    for (int64_t j = 0; j <= n_blocks; j++)
        d->fronts[j].n = 0;
    d->merged.n = 0;
    if (!append(d, (point){.m_bytes = d->ilp->end_bytes, .link = -1}))
        return false;
    front empty  = d->fronts[0];
    d->fronts[0] = d->merged;
    d->merged    = empty;
    for (int64_t s = d->ilp->n_items - 1; s >= 0; s--) {
        const int64_t m = vp_item_blocks(&d->ilp->items[s]);
        set_hull(d->by_k, d->ilp->n_items, s, &d->hull);
        for (int64_t j = m; j <= n_blocks; j++)
            if (!prepend(d, &d->fronts[j - m], &d->fronts[j], s, n_blocks - j))
                return false;
    }
    return true;
}

static bool start(dp *d, const vp_ilp *ilp, int64_t budget_bytes, int64_t max_states)
{
    assert(ilp->n_items >= 1 && ilp->n_blocks >= 1);
    *d        = (dp){.ilp        = ilp,
                     .max_bytes  = budget_bytes - ilp->base_bytes,
                     .limit_ns   = -1,
                     .max_states = max_states};
    d->fronts = calloc((size_t)ilp->n_blocks + 1, sizeof *d->fronts);
    d->by_k   = calloc((size_t)ilp->n_items, sizeof *d->by_k);
    d->hull   = (vp_ilp_hull){.at = calloc((size_t)ilp->n_items, sizeof *d->hull.at)};
    if (!d->fronts || !d->by_k || !d->hull.at)
        return false;
    sort_by_k(ilp, d->by_k);
    return true;
}

static void end(dp *d)
{
    for (int64_t j = 0; d->fronts && j <= d->ilp->n_blocks; j++)
        free(d->fronts[j].at);
    free(d->fronts);
    free(d->by_k);
    free(d->hull.at);
    free(d->merged.at);
    free(d->links);
}

/* The hull's bound on the blocks' cost. */
static bool least_of_all(const vp_ilp *ilp, const vp_ilp_hull *hull, int64_t max_bytes,
                         int64_t *cost_ns)
{
    return ilp->end_bytes <= max_bytes &&
           least_rest(hull, ilp->n_blocks, max_bytes - ilp->end_bytes, cost_ns);
}

bool vp_dp_bound(const vp_ilp *ilp, int64_t budget_bytes, int64_t *bound_ns)
{
    vp_arena          *arena = ilp->hull ? NULL : vp_arena_new();
    const vp_ilp_hull *hull  = ilp->hull ? ilp->hull : arena ? vp_ilp_hull_make(arena, ilp) : NULL;
    int64_t            least_ns = 0;
    /* without memory: 0 is a bound, too */
    bool fits = !hull || least_of_all(ilp, hull, budget_bytes - ilp->base_bytes, &least_ns);

    *bound_ns = vp_add(ilp->const_ns, least_ns);
    vp_arena_free(arena);
    return fits;
}

vp_dp_end vp_dp_solve(const vp_ilp *ilp, int64_t budget_bytes, int64_t upper_ns, int64_t max_states,
                      int64_t *counts, int64_t *cost_ns)
{
    const int64_t n_blocks = ilp->n_blocks;
    vp_dp_end     how      = VP_DP_TOO_LARGE;
    int64_t       least_ns, more_ns, most_ns;
    dp            d;

    if (!start(&d, ilp, budget_bytes, max_states))
        goto out;
    how = VP_DP_NONE;
    set_hull(d.by_k, ilp->n_items, ilp->n_items - 1, &d.hull);
    if (upper_ns <= ilp->const_ns || !least_of_all(ilp, &d.hull, d.max_bytes, &least_ns))
        goto out;
    most_ns = upper_ns - 1 - ilp->const_ns;
    if (least_ns > most_ns)
        goto out;
    for (more_ns = least_ns / FIRST_SHARE + 1; d.limit_ns < most_ns;
         more_ns = vp_mul(more_ns, WIDER)) {
        d.limit_ns = more_ns >= least_ns || vp_overflowed(vp_add(least_ns, more_ns))
                         ? most_ns
                         : vp_min_i64(most_ns, least_ns + more_ns);
        if (!build(&d)) {
            how = VP_DP_TOO_LARGE;
            goto out;
        }
        if (d.fronts[n_blocks].n) {
            const point *best = &d.fronts[n_blocks].at[d.fronts[n_blocks].n - 1];

            how      = VP_DP_FOUND;
            *cost_ns = ilp->const_ns + best->t_ns;
            assert(*cost_ns < upper_ns && *cost_ns >= ilp->const_ns + least_ns);
            memset(counts, 0, (size_t)ilp->n_items * sizeof *counts);
            for (int64_t l = best->link; l >= 0; l = d.links[l].next) {
                assert(d.links[l].next < l); /* a chain's links were made one after the other */
                counts[d.links[l].item]++;
            }
            break;
        }
    }
out:
    end(&d);
    return how;
}
