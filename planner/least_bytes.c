#include "base/checked.h"
#include "planner/space.h"

#include <assert.h>
#include <string.h>

typedef struct least_chain {
    int64_t m_bytes, t_ns; /* INT64_MAX: no items are of so many blocks */
} least_chain;

/* What an item before a chain comes to. */
static least_chain put_before(const vp_item_row *x, const least_chain *rest)
{
    return (least_chain){x->k_bytes + vp_max_i64(x->beta_bytes, rest->m_bytes),
                         vp_add(rest->t_ns, x->cost_ns)};
}

/* Items of so many blocks. Before a chain that needs at least what any of them does above what it keeps,
 * that which keeps the least is the best of them; of equal ones the faster, then the first. */
typedef struct alike_items {
    int64_t highest_bytes, leanest; /* leanest -1: there are none */
} alike_items;

/* Returns the length of the longest, less 1. */
static int64_t find_leanest(const vp_ilp *p, alike_items of[VP_MAX_ITEM_BLOCKS])
{
    int64_t most = 0;

    for (int64_t s = 0; s < p->n_items; s++)
        most = vp_max_i64(most, p->items[s].n_more);
    assert(most < VP_MAX_ITEM_BLOCKS);
    for (int64_t k = 0; k <= most; k++)
        of[k] = (alike_items){INT64_MIN, -1};
    for (int64_t s = 0; s < p->n_items; s++) {
        const vp_item_row *x = &p->items[s];
        alike_items       *a = &of[x->n_more];
        const vp_item_row *y = a->leanest < 0 ? NULL : &p->items[a->leanest];
        a->highest_bytes     = vp_max_i64(a->highest_bytes, x->beta_bytes);
        if (!y || x->k_bytes < y->k_bytes || (x->k_bytes == y->k_bytes && x->cost_ns < y->cost_ns))
            a->leanest = s;
    }
    return most;
}

/* The best that a chain of some length may begin with so far. */
typedef struct best_item {
    least_chain chain;
    int64_t     item; /* -1: none */
} best_item;

static void take_better(best_item *best, const vp_ilp *p, int64_t s, const least_chain *rest)
{
    const least_chain next = put_before(&p->items[s], rest), *so_far = &best->chain;

    if (next.m_bytes < so_far->m_bytes ||
        (next.m_bytes == so_far->m_bytes &&
         (next.t_ns < so_far->t_ns || (next.t_ns == so_far->t_ns && s < best->item))))
        *best = (best_item){next, s};
}

/* From the head backwards: where what follows an item needs M bytes, the item and what follows it
 * need k + max(beta, M). The least M is the best for every item before it. */
int64_t vp_space_least_bytes(const vp_ilp *p, int64_t *counts, int64_t *last)
{
    least_chain of[VP_MAX_ITEM_BLOCKS]; /* of the chains that an item may go before */
    alike_items alike[VP_MAX_ITEM_BLOCKS];

    assert(p->n_items >= 1 && p->n_items <= VP_MAX_ITEMS);
    const int64_t most = find_leanest(p, alike);
    of[0]              = (least_chain){.m_bytes = p->end_bytes};
    for (int64_t b = 1; b <= p->n_blocks; b++) {
        best_item best = {{INT64_MAX, INT64_MAX}, -1};
        bool      open[VP_MAX_ITEM_BLOCKS], some = false; /* of which all have to be tried */
        for (int64_t more = 0; more <= most; more++) {
            const least_chain *rest = &of[(b - more - 1) & (VP_MAX_ITEM_BLOCKS - 1)];
            open[more]              = false;
            if (more >= b || alike[more].leanest < 0 || rest->m_bytes == INT64_MAX)
                continue;
            if (rest->m_bytes >= alike[more].highest_bytes)
                take_better(&best, p, alike[more].leanest, rest);
            else
                open[more] = some = true;
        }
        for (int64_t s = 0; some && s < p->n_items; s++)
            if (open[p->items[s].n_more])
                take_better(&best, p, s,
                            &of[(b - p->items[s].n_more - 1) & (VP_MAX_ITEM_BLOCKS - 1)]);
        if (last && best.item >= 0)
            last[b] = best.item;
        of[b & (VP_MAX_ITEM_BLOCKS - 1)] = best.chain;
    }
    int64_t least = of[p->n_blocks & (VP_MAX_ITEM_BLOCKS - 1)].m_bytes;
    assert(least < INT64_MAX); /* single blocks, or segments that divide the chain */
    if (counts)
        memset(counts, 0, sizeof *counts * (size_t)p->n_items);
    for (int64_t b = p->n_blocks; counts && b > 0; b -= vp_item_blocks(&p->items[last[b]]))
        counts[last[b]]++;
    return least;
}

/* All blocks keep what the leanest do; and above that is the head, or what the last item needs. */
int64_t vp_space_bytes_bound(const vp_ilp *p)
{
    const vp_item_row *leanest    = &p->items[0];
    int64_t            beta_bytes = INT64_MAX;

    for (int64_t s = 0; s < p->n_items; s++) {
        const vp_item_row *x = &p->items[s];
        if ((__int128)x->k_bytes * vp_item_blocks(leanest) <
            (__int128)leanest->k_bytes * vp_item_blocks(x))
            leanest = x;
        beta_bytes = vp_min_i64(beta_bytes, x->beta_bytes);
    }
    return vp_add(vp_mul(p->n_blocks, leanest->k_bytes) / vp_item_blocks(leanest),
                  vp_max_i64(beta_bytes, p->end_bytes));
}
