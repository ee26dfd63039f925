/* The exact optimum of one program without linear programming: a frontier over the chain, built from its end.
 *
 * A partial chain of j blocks needs M bytes above what is kept before it and costs T. Prepending a block of an item gives
 *
 *     M' = k + max(beta, M)        T' = T + cost
 *
 * and both grow with M and T, so of the partial chains of one length only those matter that no other undercuts in both. The
 * best order has descending beta (planner/problem.h), so the items come in ascending beta and each prepends as often as it
 * likes. The chain of no blocks needs what the head needs. */
#include "planner/problem.h"

#include "core/checked.h"

#include <stdlib.h>
#include <string.h>

typedef struct point {
    int64_t m_bytes, t_ns;
    int64_t link;         /* the block that was prepended last; -1: none */
} point;

typedef struct front {    /* ascending m_bytes, descending t_ns */
    point  *at;
    int64_t n, cap;
} front;

typedef struct link {
    int64_t next, item;
} link;

typedef struct dp {
    link   *links;
    int64_t n_links, cap_links;
    int64_t n_states, max_states;
    front   merged;
} dp;

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

/* *longer takes in the chains that come from *shorter by prepending one block of the item; max_bytes is what they may need. */
static bool prepend(dp *d, const front *shorter, front *longer, const vp_item_row *x, int64_t item, int64_t max_bytes)
{
    int64_t i = 0, j = 0;
    front   swap;

    d->merged.n = 0;
    while (i + 1 < shorter->n && shorter->at[i + 1].m_bytes <= x->beta_bytes)
        i++;                                 /* all these come to need k + beta; the last is the cheapest */
    while (i < shorter->n || j < longer->n) {
        const point *from = i < shorter->n ? &shorter->at[i] : NULL, *kept = j < longer->n ? &longer->at[j] : NULL;
        point        made = {0};

        if (from) {
            made.m_bytes = vp_add(x->k_bytes, vp_max_i64(x->beta_bytes, from->m_bytes));
            made.t_ns    = vp_add(from->t_ns, x->cost_ns);
            if (made.m_bytes > max_bytes || vp_overflowed(made.m_bytes) || vp_overflowed(made.t_ns)) {
                i = shorter->n;
                continue;
            }
        }
        if (kept && kept->m_bytes > max_bytes) {
            j = longer->n;
            continue;
        }
        if (!from || (kept && (kept->m_bytes < made.m_bytes || (kept->m_bytes == made.m_bytes && kept->t_ns <= made.t_ns)))) {
            if (!append(d, *kept))
                return false;
            j++;
        } else {
            if (!append_prepended(d, made, from->link, item))
                return false;
            i++;
        }
    }
    swap      = *longer;
    *longer   = d->merged;
    d->merged = swap;
    return true;
}

bool vp_dp_solve(const vp_ilp_program *program, int64_t budget_bytes, int64_t max_states, int64_t *counts, int64_t *cost_ns)
{
    const int64_t n_blocks  = program->n_blocks;
    const int64_t max_bytes = budget_bytes - program->base_bytes;
    dp            d         = {.max_states = max_states};
    front        *fronts    = calloc((size_t)n_blocks + 1, sizeof *fronts);
    int64_t      *least_k   = calloc((size_t)program->n_items, sizeof *least_k);
    bool          found     = false;

    if (!fronts || !least_k || program->end_bytes > max_bytes)
        goto out;
    for (int64_t s = 0; s < program->n_items; s++)   /* of the items from s on to the front of the chain */
        least_k[s] = s ? vp_min_i64(least_k[s - 1], program->items[s].k_bytes) : program->items[s].k_bytes;
    if (!append(&d, (point){.m_bytes = program->end_bytes, .link = -1}))
        goto out;
    fronts[0] = d.merged;
    d.merged  = (front){0};
    for (int64_t s = program->n_items - 1; s >= 0; s--)
        for (int64_t j = 1; j <= n_blocks; j++) {
            int64_t rest_bytes = vp_mul(n_blocks - j, least_k[s]);

            if (vp_overflowed(rest_bytes) || rest_bytes > max_bytes) {
                fronts[j].n = 0;
                continue;
            }
            if (!prepend(&d, &fronts[j - 1], &fronts[j], &program->items[s], s, max_bytes - rest_bytes))
                goto out;
        }
    if (fronts[n_blocks].n) {
        const point *best = &fronts[n_blocks].at[fronts[n_blocks].n - 1];

        *cost_ns = vp_add(program->const_ns, best->t_ns);
        found    = !vp_overflowed(*cost_ns);
        memset(counts, 0, (size_t)program->n_items * sizeof *counts);
        for (int64_t l = best->link; l >= 0; l = d.links[l].next)
            counts[d.links[l].item]++;
    }
out:
    for (int64_t j = 0; fronts && j <= n_blocks; j++)
        free(fronts[j].at);
    free(fronts);
    free(least_k);
    free(d.merged.at);
    free(d.links);
    return found;
}
