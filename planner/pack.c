#include "planner/pack.h"

#include "core/checked.h"

#include <stdlib.h>

typedef struct ranked {
    const vp_pack_item *item;
    int64_t             idx, key[2]; /* larger keys are placed first */
} ranked;

enum { N_ORDERS = 5, N_SWAPS = 300 };

static int by_key(const void *a, const void *b)
{
    const ranked *x = a, *y = b;

    for (int k = 0; k < 2; k++)
        if (x->key[k] != y->key[k])
            return x->key[k] > y->key[k] ? -1 : 1;
    return (x->idx > y->idx) - (x->idx < y->idx);
}

static void set_keys(ranked *r, int order)
{
    int64_t bytes = r->item->bytes, first = r->item->first, life = r->item->last - first;
    const int64_t keys[N_ORDERS][2] = {
        {bytes, life}, {life, bytes}, {-first, bytes}, {bytes * (life + 1), bytes}, {first, bytes},
    };

    r->key[0] = keys[order][0];
    r->key[1] = keys[order][1];
}

static bool alive_together(const vp_pack_item *a, const vp_pack_item *b)
{
    return a->first <= b->last && b->first <= a->last;
}

int64_t vp_pack_bound(const vp_pack_item *items, int64_t n, int64_t align)
{
    int64_t bound = 0;

    for (int64_t i = 0; i < n; i++) { /* the maximum is reached at some birth */
        int64_t live = 0;
        for (int64_t k = 0; k < n; k++)
            if (items[k].first <= items[i].first && items[i].first <= items[k].last)
                live = vp_add(live, vp_round_up(items[k].bytes, align));
        if (vp_overflowed(live))
            return VP_OVERFLOW;
        bound = vp_max_i64(bound, live);
    }
    return bound;
}

/* The lowest offset where the item overlaps nothing placed. */
static int64_t first_fit(const vp_pack_item *items, int64_t n, const bool *placed, int64_t idx, int64_t align)
{
    int64_t offset = 0;
    bool    moved  = true;

    while (moved) {
        moved = false;
        for (int64_t k = 0; k < n; k++) {
            if (!placed[k] || !alive_together(&items[idx], &items[k]))
                continue;
            int64_t end = vp_add(items[k].offset, items[k].bytes);
            if (items[k].offset < vp_add(offset, items[idx].bytes) && end > offset) {
                offset = vp_round_up(end, align);
                moved  = true;
            }
        }
        if (vp_overflowed(offset))
            return VP_OVERFLOW;
    }
    return offset;
}

/* Place the free items in the given order; the height, or VP_OVERFLOW. */
static int64_t place_in_order(vp_pack_item *items, int64_t n, const ranked *order, int64_t n_free, bool *placed, int64_t align)
{
    int64_t height = 0;

    for (int64_t i = 0; i < n; i++) {
        placed[i] = items[i].fixed;
        if (items[i].fixed)
            height = vp_max_i64(height, vp_add(items[i].offset, items[i].bytes));
    }
    for (int64_t i = 0; i < n_free; i++) {
        int64_t idx       = order[i].idx;
        items[idx].offset = first_fit(items, n, placed, idx, align);
        placed[idx]       = true;
        if (vp_overflowed(vp_add(items[idx].offset, items[idx].bytes)))
            return VP_OVERFLOW;
        height = vp_max_i64(height, items[idx].offset + items[idx].bytes);
    }
    return height;
}

static void keep_best(const vp_pack_item *items, int64_t n, int64_t height, int64_t *best, int64_t *best_height)
{
    *best_height = height;
    for (int64_t i = 0; i < n; i++)
        best[i] = items[i].offset;
}

/* A miss of the bound: swap two places in the order, keep what is not worse. A generator of its own, so the same items give
 * the same offsets. */
static void improve(vp_pack_item *items, int64_t n, ranked *order, int64_t n_free, bool *placed, int64_t align, int64_t bound, int64_t *best,
                    int64_t *height)
{
    uint64_t state = 1;

    for (int turn = 0; turn < N_SWAPS && n_free > 1 && vp_round_up(*height, align) > bound; turn++) {
        state      = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        int64_t a  = (int64_t)((state >> 33) % (uint64_t)n_free), b = (int64_t)((state >> 13) % (uint64_t)n_free);
        ranked  x  = order[a];
        order[a]   = order[b];
        order[b]   = x;
        int64_t h  = place_in_order(items, n, order, n_free, placed, align);
        if (!vp_overflowed(h) && h <= *height) {
            keep_best(items, n, h, best, height);
        } else {
            order[b] = order[a];
            order[a] = x;
        }
    }
}

vp_status vp_pack(vp_pack_item *items, int64_t n, int64_t align, int64_t *height, vp_err *err)
{
    ranked   *order  = calloc((size_t)n + 1, sizeof *order);
    bool     *placed = calloc((size_t)n + 1, sizeof *placed);
    int64_t  *best   = calloc((size_t)n + 1, sizeof *best);
    int64_t   bound  = vp_pack_bound(items, n, align), n_free = 0;
    vp_status st     = VP_OK;

    *height = -1;
    VP_TRY_ALLOC(err, order && placed && best);
    for (int64_t i = 0; i < n; i++)
        if (!items[i].fixed)
            order[n_free++] = (ranked){.item = &items[i], .idx = i};
    for (int o = 0; o < N_ORDERS && (*height < 0 || vp_round_up(*height, align) > bound); o++) {
        for (int64_t i = 0; i < n_free; i++)
            set_keys(&order[i], o);
        qsort(order, (size_t)n_free, sizeof *order, by_key);
        int64_t h = place_in_order(items, n, order, n_free, placed, align);
        if (vp_overflowed(h))
            VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "the buffers of one block are more bytes than 64 bits can count"));
        if (*height < 0 || h < *height)
            keep_best(items, n, h, best, height);
    }
    improve(items, n, order, n_free, placed, align, bound, best, height);
    for (int64_t i = 0; i < n; i++)
        items[i].offset = best[i];
out:
    free(order);
    free(placed);
    free(best);
    return st;
}
