#include "planner/pack.h"

#include "core/checked.h"

#include <stdlib.h>

typedef struct ranked {
    const vp_pack_item *item;
    int64_t             idx, key[2]; /* larger keys are placed first */
} ranked;

enum { N_ORDERS = 5, N_SWAPS = 300, N_IN_VAIN = 150 };

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

/* ---- the lower bound ---- */

/* What is fixed, in ascending offsets, below what is to be placed. */
typedef struct ground {
    const vp_pack_item **fixed;
    int64_t              n, align;
} ground;

static int by_offset(const void *a, const void *b)
{
    const vp_pack_item *x = *(const vp_pack_item *const *)a, *y = *(const vp_pack_item *const *)b;

    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* The lowest end of an item that overlaps nothing fixed; VP_OVERFLOW beyond 64 bits. */
static int64_t least_end(const ground *g, const vp_pack_item *item)
{
    int64_t offset = 0;

    for (int64_t i = 0; i < g->n && g->fixed[i]->offset < vp_add(offset, item->bytes); i++)
        if (alive_together(g->fixed[i], item))
            offset = vp_larger(offset, vp_round_up(vp_add(g->fixed[i]->offset, g->fixed[i]->bytes), g->align));
    return vp_add(offset, item->bytes);
}

static bool is_alive(const vp_pack_item *item, int64_t instant)
{
    return item->first <= instant && instant <= item->last;
}

/* The least height at an instant, up to a multiple of align: what finds no room in the gaps of what is fixed lies above it. */
static int64_t least_at(const vp_pack_item *items, int64_t n, const ground *g, int64_t instant)
{
    int64_t sum = 0, smallest = INT64_MAX, room = 0, end = 0;

    for (int64_t i = 0; i < n; i++)
        if (!items[i].fixed && is_alive(&items[i], instant)) {
            sum      = vp_add(sum, vp_round_up(items[i].bytes, g->align));
            smallest = vp_min_i64(smallest, vp_round_up(items[i].bytes, g->align));
        }
    for (int64_t i = 0; i < g->n && !vp_overflowed(end); i++)
        if (is_alive(g->fixed[i], instant)) {
            room += g->fixed[i]->offset - end >= smallest ? g->fixed[i]->offset - end : 0;
            end   = vp_larger(end, vp_round_up(vp_add(g->fixed[i]->offset, g->fixed[i]->bytes), g->align));
        }
    return vp_overflowed(sum) || vp_overflowed(end) ? VP_OVERFLOW : vp_add(end, vp_max_i64(0, sum - room));
}

vp_status vp_pack_least(const vp_pack_item *items, int64_t n, int64_t align, int64_t *least, vp_err *err)
{
    ground    g     = {.fixed = calloc((size_t)n + 1, sizeof(vp_pack_item *)), .align = align};
    int64_t   slack = 0;
    vp_status st    = VP_OK;

    *least = 0;
    VP_TRY_ALLOC(err, g.fixed);
    for (int64_t i = 0; i < n; i++)
        if (items[i].fixed)
            g.fixed[g.n++] = &items[i];
    qsort(g.fixed, (size_t)g.n, sizeof *g.fixed, by_offset);
    for (int64_t i = 0; i < n; i++) /* most is alive at some birth */
        *least = vp_larger(*least, least_at(items, n, &g, items[i].first));
    for (int64_t i = 0; i < n && !vp_overflowed(*least); i++) /* the highest need not end at a multiple of align */
        slack = vp_max_i64(slack, vp_round_up(items[i].bytes, align) - items[i].bytes);
    *least = vp_overflowed(*least) ? *least : vp_max_i64(0, *least - slack);
    for (int64_t i = 0; i < n; i++)
        *least = vp_larger(*least, items[i].fixed ? vp_add(items[i].offset, items[i].bytes) : least_end(&g, &items[i]));
    if (vp_overflowed(*least))
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "the buffers of one block are more bytes than 64 bits can count"));
out:
    free(g.fixed);
    return st;
}

/* ---- placing ---- */

/* What placing works with: who is alive with whom, and what is placed, in ascending offsets. */
typedef struct table {
    vp_pack_item *items;
    int64_t       n, n_words, align;
    uint64_t     *together;   /* n rows of n_words: bit k of row i: items i and k are alive together */
    int64_t      *placed;     /* room for n */
    int64_t       n_placed;
} table;

static bool are_together(const table *t, int64_t i, int64_t k)
{
    return t->together[i * t->n_words + k / 64] >> (k % 64) & 1;
}

static void note_placed(table *t, int64_t idx)
{
    int64_t at = t->n_placed++;

    for (; at > 0 && t->items[t->placed[at - 1]].offset > t->items[idx].offset; at--)
        t->placed[at] = t->placed[at - 1];
    t->placed[at] = idx;
}

/* The lowest offset where the item overlaps nothing placed: one walk upwards, since what lies below has been passed. */
static int64_t first_fit(const table *t, int64_t idx)
{
    int64_t offset = 0, bytes = t->items[idx].bytes;

    for (int64_t p = 0; p < t->n_placed; p++) {
        const vp_pack_item *other = &t->items[t->placed[p]];
        if (!are_together(t, idx, t->placed[p]))
            continue;
        if (other->offset >= vp_add(offset, bytes))
            break;
        if (other->offset + other->bytes > offset)
            offset = vp_round_up(other->offset + other->bytes, t->align);
    }
    return offset;
}

/* Place the free items in the given order, and no more of them once it is higher than limit; the height, or VP_OVERFLOW. */
static int64_t place_in_order(table *t, const ranked *order, int64_t n_free, int64_t limit)
{
    int64_t height = 0;

    t->n_placed = 0;
    for (int64_t i = 0; i < t->n; i++)
        if (t->items[i].fixed) {
            note_placed(t, i);
            height = vp_max_i64(height, vp_add(t->items[i].offset, t->items[i].bytes));
        }
    for (int64_t i = 0; i < n_free && height <= limit; i++) {
        vp_pack_item *item = &t->items[order[i].idx];
        item->offset       = first_fit(t, order[i].idx);
        if (vp_overflowed(item->offset) || vp_overflowed(vp_add(item->offset, item->bytes)))
            return VP_OVERFLOW;
        note_placed(t, order[i].idx);
        height = vp_max_i64(height, item->offset + item->bytes);
    }
    return height;
}

static void keep_best(const vp_pack_item *items, int64_t n, int64_t height, int64_t *best, int64_t *best_height)
{
    *best_height = height;
    for (int64_t i = 0; i < n; i++)
        best[i] = items[i].offset;
}

/* A miss of the least height: swap two places in the order, keep what is not worse. A generator of its own, so the same items give
 * the same offsets. */
static void improve(table *t, ranked *order, int64_t n_free, int64_t least, int64_t *best, int64_t *height)
{
    uint64_t state   = 1;
    int      in_vain = 0;

    for (int turn = 0; turn < N_SWAPS && in_vain < N_IN_VAIN && n_free > 1 && vp_round_up(*height, t->align) > least; turn++) {
        state      = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        int64_t a  = (int64_t)((state >> 33) % (uint64_t)n_free), b = (int64_t)((state >> 13) % (uint64_t)n_free);
        ranked  x  = order[a];
        order[a]   = order[b];
        order[b]   = x;
        int64_t h  = place_in_order(t, order, n_free, *height);
        in_vain = !vp_overflowed(h) && h < *height ? 0 : in_vain + 1;
        if (!vp_overflowed(h) && h <= *height) {
            keep_best(t->items, t->n, h, best, height);
        } else {
            order[b] = order[a];
            order[a] = x;
        }
    }
}

vp_status vp_pack(vp_pack_item *items, int64_t n, int64_t align, int64_t *height, vp_err *err)
{
    ranked   *order  = calloc((size_t)n + 1, sizeof *order);
    int64_t  *best   = calloc((size_t)n + 1, sizeof *best);
    table     t      = {.items = items, .n = n, .n_words = n / 64 + 1, .align = align, .placed = calloc((size_t)n + 1, sizeof *t.placed),
                        .together = calloc((size_t)(n + 1) * (size_t)(n / 64 + 1), sizeof *t.together)};
    int64_t   least  = 0, n_free = 0;
    vp_status st     = VP_OK;

    *height = -1;
    VP_TRY_ALLOC(err, order && best && t.placed && t.together);
    VP_TRY(vp_pack_least(items, n, align, &least, err));
    least = vp_round_up(least, align);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n; k++)
            t.together[i * t.n_words + k / 64] |= (uint64_t)alive_together(&items[i], &items[k]) << (k % 64);
    for (int64_t i = 0; i < n; i++)
        if (!items[i].fixed)
            order[n_free++] = (ranked){.item = &items[i], .idx = i};
    for (int o = 0; o < N_ORDERS && (*height < 0 || vp_round_up(*height, align) > least); o++) {
        for (int64_t i = 0; i < n_free; i++)
            set_keys(&order[i], o);
        qsort(order, (size_t)n_free, sizeof *order, by_key);
        int64_t h = place_in_order(&t, order, n_free, *height < 0 ? INT64_MAX : *height);
        if (vp_overflowed(h))
            VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "the buffers of one block are more bytes than 64 bits can count"));
        if (*height < 0 || h < *height)
            keep_best(items, n, h, best, height);
    }
    improve(&t, order, n_free, least, best, height);
    for (int64_t i = 0; i < n; i++)
        items[i].offset = best[i];
out:
    free(order);
    free(t.placed);
    free(t.together);
    free(best);
    return st;
}
