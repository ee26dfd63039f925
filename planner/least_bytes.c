#include "base/checked.h"
#include "planner/space.h"

#include <assert.h>
#include <string.h>

typedef struct least_chain {
    int64_t m_bytes, t_ns; /* INT64_MAX: no items are of so many blocks */
} least_chain;

/* From the head backwards: where what follows an item needs M bytes, the item and what follows it
 * need k + max(beta, M). The least M is the best for every item before it. */
int64_t vp_space_least_bytes(const vp_ilp *p, int64_t *counts, int64_t *last)
{
    least_chain of[VP_MAX_ITEM_BLOCKS]; /* of the chains that an item may go before */

    assert(p->n_items >= 1 && p->n_items <= VP_MAX_ITEMS);
    of[0] = (least_chain){.m_bytes = p->end_bytes};
    for (int64_t b = 1; b <= p->n_blocks; b++) {
        least_chain best = {INT64_MAX, INT64_MAX};
        for (int64_t s = 0; s < p->n_items; s++) {
            const vp_item_row *x    = &p->items[s];
            const least_chain *rest = &of[(b - x->n_more - 1) & (VP_MAX_ITEM_BLOCKS - 1)];
            if (x->n_more >= b || rest->m_bytes == INT64_MAX)
                continue;
            least_chain next = {x->k_bytes + vp_max_i64(x->beta_bytes, rest->m_bytes),
                                vp_add(rest->t_ns, x->cost_ns)};
            if (next.m_bytes < best.m_bytes ||
                (next.m_bytes == best.m_bytes && next.t_ns < best.t_ns)) {
                best = next;
                if (last)
                    last[b] = s;
            }
        }
        of[b & (VP_MAX_ITEM_BLOCKS - 1)] = best;
    }
    int64_t least = of[p->n_blocks & (VP_MAX_ITEM_BLOCKS - 1)].m_bytes;
    assert(least < INT64_MAX); /* single blocks, or segments that divide the chain */
    if (counts)
        memset(counts, 0, sizeof *counts * (size_t)p->n_items);
    for (int64_t b = p->n_blocks; counts && b > 0; b -= vp_item_blocks(&p->items[last[b]]))
        counts[last[b]]++;
    return least;
}
