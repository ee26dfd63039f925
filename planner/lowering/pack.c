#include "planner/lowering/pack.h"

#include "base/checked.h"

#include <assert.h>
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
    int64_t       bytes = r->item->bytes, first = r->item->first, life = r->item->last - first;
    const int64_t keys[N_ORDERS][2] = {
        {bytes, life}, {life, bytes}, {-first, bytes}, {bytes * (life + 1), bytes}, {first, bytes},
    };

    assert(order >= 0 && order < N_ORDERS);
    r->key[0] = keys[order][0];
    r->key[1] = keys[order][1];
}

static bool alive_together(const vp_pack_item *a, const vp_pack_item *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* ---- who is alive when ---- */

/* Items in the order of their births, and those alive at the birth last looked at. */
typedef struct timeline {
    const vp_pack_item *items;
    int64_t            *by_birth, *alive; /* indices */
    int64_t             n, n_born, n_alive;
} timeline;

static void timeline_release(timeline *t)
{
    free(t->by_birth);
    free(t->alive);
}

/* Births in ascending order, by counting; false: out of memory. Release in any case. */
static bool timeline_make(timeline *t, const vp_pack_item *items, int64_t n)
{
    int64_t end = 0, *births;
    bool    made;

    assert(n >= 0);
    for (int64_t i = 0; i < n; i++) {
        assert(items[i].first >= 0 && items[i].first <= items[i].last);
        end = vp_max_i64(end, items[i].first + 1);
    }
    births = calloc((size_t)end + 1, sizeof *births);
    *t     = (timeline){.items    = items,
                        .by_birth = calloc((size_t)n + 1, sizeof *t->by_birth),
                        .alive    = calloc((size_t)n + 1, sizeof *t->alive),
                        .n        = n};
    made   = births && t->by_birth && t->alive;
    for (int64_t i = 0; made && i < n; i++)
        births[items[i].first + 1]++;
    for (int64_t k = 1; made && k <= end; k++)
        births[k] += births[k - 1];
    for (int64_t i = 0; made && i < n; i++)
        t->by_birth[births[items[i].first]++] = i;
    free(births);
    return made;
}

/* Go on to the next instant at which something is born; false: there is none. */
static bool timeline_next(timeline *t)
{
    int64_t n = 0, instant;

    if (t->n_born == t->n)
        return false;
    instant = t->items[t->by_birth[t->n_born]].first;
    /* births come in ascending order */
    assert(t->n_born == 0 || instant > t->items[t->by_birth[t->n_born - 1]].first);
    for (int64_t i = 0; i < t->n_alive; i++)
        if (t->items[t->alive[i]].last >= instant)
            t->alive[n++] = t->alive[i];
    while (t->n_born < t->n && t->items[t->by_birth[t->n_born]].first == instant)
        t->alive[n++] = t->by_birth[t->n_born++];
    t->n_alive = n;
    assert(t->n_alive <= t->n_born && t->n_born <= t->n);
    return true;
}

/* Whether an item alive now was born now: then it stands behind all that were before. */
static bool is_born(const timeline *t, int64_t idx)
{
    assert(t->n_born > 0);
    return t->items[idx].first == t->items[t->by_birth[t->n_born - 1]].first;
}

vp_status vp_pack_bound(const vp_pack_item *items, int64_t n, int64_t align, int64_t *bound,
                        vp_err *err)
{
    timeline  t;
    vp_status st = VP_OK;

    *bound = 0;
    VP_TRY_ALLOC(err, timeline_make(&t, items, n));
    while (timeline_next(&t)) { /* the maximum is reached at some birth */
        int64_t live = 0;
        for (int64_t i = 0; i < t.n_alive; i++)
            live = vp_add(live, vp_round_up(items[t.alive[i]].bytes, align));
        *bound = vp_larger(*bound, live);
    }
out:
    timeline_release(&t);
    return st;
}

/* ---- the lower bound ---- */

/* The fixed items, in ascending offsets: the others go into the gaps between them, or above. */
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
            offset = vp_larger(
                offset, vp_round_up(vp_add(g->fixed[i]->offset, g->fixed[i]->bytes), g->align));
    return vp_add(offset, item->bytes);
}

/* The least height at the timeline's instant, up to a multiple of align: what finds no room in the
 * gaps of what is fixed lies above it. fixed: room for all that are alive. */
static int64_t least_now(const timeline *t, int64_t align, const vp_pack_item **fixed)
{
    int64_t sum = 0, smallest = INT64_MAX, room = 0, end = 0, n_fixed = 0;

    for (int64_t i = 0; i < t->n_alive; i++) {
        const vp_pack_item *x = &t->items[t->alive[i]];
        if (x->fixed) {
            int64_t at = n_fixed++; /* mostly they come in ascending offsets */
            for (; at > 0 && fixed[at - 1]->offset > x->offset; at--)
                fixed[at] = fixed[at - 1];
            fixed[at] = x;
        } else {
            sum      = vp_add(sum, vp_round_up(x->bytes, align));
            smallest = vp_min_i64(smallest, vp_round_up(x->bytes, align));
        }
    }
    for (int64_t i = 0; i < n_fixed && !vp_overflowed(end); i++) {
        room += fixed[i]->offset - end >= smallest ? fixed[i]->offset - end : 0;
        end = vp_larger(end, vp_round_up(vp_add(fixed[i]->offset, fixed[i]->bytes), align));
    }
    return vp_overflowed(sum) || vp_overflowed(end) ? VP_OVERFLOW
                                                    : vp_add(end, vp_max_i64(0, sum - room));
}

vp_status vp_pack_least(const vp_pack_item *items, int64_t n, int64_t align, int64_t *least,
                        vp_err *err)
{
    ground g = {.fixed = calloc((size_t)n + 1, sizeof(vp_pack_item *)), .align = align};
    const vp_pack_item **alive = calloc((size_t)n + 1, sizeof *alive);
    timeline             t     = {0};
    int64_t              slack = 0;
    vp_status            st    = VP_OK;

    *least = 0;
    VP_TRY_ALLOC(err, g.fixed && alive && timeline_make(&t, items, n));
    for (int64_t i = 0; i < n; i++)
        if (items[i].fixed)
            g.fixed[g.n++] = &items[i];
    qsort(g.fixed, (size_t)g.n, sizeof *g.fixed, by_offset);
    while (timeline_next(&t)) /* most is alive at some birth */
        *least = vp_larger(*least, least_now(&t, align, alive));
    /* the highest need not end at a multiple of align */
    for (int64_t i = 0; i < n && !vp_overflowed(*least); i++)
        slack = vp_max_i64(slack, vp_round_up(items[i].bytes, align) - items[i].bytes);
    *least = vp_overflowed(*least) ? *least : vp_max_i64(0, *least - slack);
    for (int64_t i = 0; i < n; i++)
        *least = vp_larger(*least, items[i].fixed ? vp_add(items[i].offset, items[i].bytes)
                                                  : least_end(&g, &items[i]));
    if (vp_overflowed(*least))
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT,
                       "the buffers of one block are more bytes than 64 bits can count"));
out:
    timeline_release(&t);
    free(alive);
    free(g.fixed);
    return st;
}

/* ---- placing ---- */

typedef struct extent {
    int64_t begin, end;
} extent;

/* The state of one packing: which items are alive together, and which have an offset already. */
typedef struct table {
    vp_pack_item *items;
    int64_t       n, n_words, align;
    /* n rows of n_words: bit k of row i: items i and k are alive together */
    uint64_t *together;
    uint64_t *placed; /* bit i: item i is */
    extent   *near;   /* room for n */
} table;

static void note_placed(table *t, int64_t idx)
{
    t->placed[idx / 64] |= UINT64_C(1) << (idx % 64);
}

static void note_together(table *t, int64_t a, int64_t b)
{
    t->together[a * t->n_words + b / 64] |= UINT64_C(1) << (b % 64);
    t->together[b * t->n_words + a / 64] |= UINT64_C(1) << (a % 64);
}

/* The lowest offset where the item overlaps nothing placed: what it would overlap, it must be
 * above, and nothing between is free either. */
static int64_t first_fit(const table *t, int64_t idx)
{
    int64_t n = 0, offset = 0, end = t->items[idx].bytes;

    for (int64_t w = 0; w < t->n_words; w++)
        for (uint64_t m = t->together[idx * t->n_words + w] & t->placed[w]; m; m &= m - 1) {
            const vp_pack_item *other = &t->items[w * 64 + __builtin_ctzll(m)];
            assert(n < t->n);
            t->near[n++] = (extent){other->offset, other->offset + other->bytes};
        }
    for (bool moved = true; moved && !vp_overflowed(end);) {
        int64_t n_above = 0;
        moved           = false;
        for (int64_t i = 0; i < n; i++) {
            extent x = t->near[i];
            if (x.end <= offset)
                continue;
            if (x.begin < end) {
                offset = vp_round_up(x.end, t->align);
                end    = vp_add(offset, t->items[idx].bytes);
                moved  = true;
            } else {
                t->near[n_above++] = x;
            }
        }
        n = n_above;
    }
    return offset;
}

/* Place the fixed items, and of the free ones in the given order those before `from`, where they
 * are; the height. */
static int64_t place_known(table *t, const ranked *order, int64_t from)
{
    int64_t height = 0;

    for (int64_t w = 0; w < t->n_words; w++)
        t->placed[w] = 0;
    for (int64_t i = 0; i < t->n; i++)
        if (t->items[i].fixed) {
            note_placed(t, i);
            height = vp_max_i64(height, vp_add(t->items[i].offset, t->items[i].bytes));
        }
    for (int64_t i = 0; i < from; i++) {
        const vp_pack_item *item = &t->items[order[i].idx];
        assert(!item->fixed);
        note_placed(t, order[i].idx);
        height = vp_max_i64(height, item->offset + item->bytes);
    }
    return height;
}

/* Choose the next one's offset; false: beyond 64 bits. */
static bool place_next(table *t, int64_t idx, int64_t *height)
{
    vp_pack_item *item = &t->items[idx];

    assert(!item->fixed && !(t->placed[idx / 64] >> (idx % 64) & 1));
    item->offset = first_fit(t, idx);
    if (vp_overflowed(item->offset) || vp_overflowed(vp_add(item->offset, item->bytes)))
        return false;
    assert(item->offset % t->align == 0);
    note_placed(t, idx);
    *height = vp_max_i64(*height, item->offset + item->bytes);
    return true;
}

/* Place the free items in the given order, and no more of them once it is higher than limit; the
 * height, or VP_OVERFLOW. */
static int64_t place_in_order(table *t, const ranked *order, int64_t n_free, int64_t limit)
{
    int64_t height = place_known(t, order, 0);

    for (int64_t i = 0; i < n_free && height <= limit; i++)
        if (!place_next(t, order[i].idx, &height))
            return VP_OVERFLOW;
    return height;
}

static void keep_offsets(const vp_pack_item *items, int64_t n, int64_t *offsets)
{
    for (int64_t i = 0; i < n; i++)
        offsets[i] = items[i].offset;
}

/* As place_in_order(), where places a < b of the order have just been swapped: what stands before
 * them stays, and what stands behind them does if everything between has. was: offsets before the
 * swap, which the items have, too; was_height: what came of them. */
static int64_t place_swapped(table *t, const ranked *order, int64_t n_free, int64_t a, int64_t b,
                             const int64_t *was, int64_t was_height, int64_t limit)
{
    int64_t height = place_known(t, order, a);
    bool    moved  = false;

    assert(0 <= a && a <= b && b < n_free);
    for (int64_t i = a; i < n_free && height <= limit; i++) {
        if (i == b + 1 && !moved)
            return was_height;
        if (!place_next(t, order[i].idx, &height))
            return VP_OVERFLOW;
        moved |= t->items[order[i].idx].offset != was[order[i].idx];
    }
    return height;
}

/* Called where no order so far packs as low as the bound: swaps two items of the order at random and
 * keeps the new order unless it packs higher. The random numbers are its own, so that the same items
 * always get the same offsets. was: room for n. */
static void improve(table *t, ranked *order, int64_t n_free, int64_t least, int64_t *was,
                    int64_t *best, int64_t *height)
{
    uint64_t state      = 1;
    int      in_vain    = 0;
    int64_t  was_height = -1;

    for (int turn = 0; turn < N_SWAPS && in_vain < N_IN_VAIN && n_free > 1 &&
                       vp_round_up(*height, t->align) > least;
         turn++) {
        if (was_height < 0) { /* the last order that was tried; not always to its end */
            was_height = place_in_order(t, order, n_free, INT64_MAX);
            if (vp_overflowed(was_height))
                return;
            keep_offsets(t->items, t->n, was);
        }
        state     = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        int64_t a = (int64_t)((state >> 33) % (uint64_t)n_free),
                b = (int64_t)((state >> 13) % (uint64_t)n_free);
        ranked x  = order[a];
        order[a]  = order[b];
        order[b]  = x;
        int64_t h = place_swapped(t, order, n_free, vp_min_i64(a, b), vp_max_i64(a, b), was,
                                  was_height, *height);
        in_vain   = !vp_overflowed(h) && h < *height ? 0 : in_vain + 1;
        if (!vp_overflowed(h) && h <= *height) {
            *height = was_height = h;
            keep_offsets(t->items, t->n, was);
            keep_offsets(t->items, t->n, best);
        } else {
            order[b] = order[a];
            order[a] = x;
            for (int64_t i = 0; i < t->n; i++)
                t->items[i].offset = was[i];
        }
    }
}

vp_status vp_pack(vp_pack_item *items, int64_t n, int64_t align, int64_t *height, vp_err *err)
{
    ranked   *order = calloc((size_t)n + 1, sizeof *order);
    int64_t  *best  = calloc((size_t)n + 1, sizeof *best);
    int64_t  *was   = calloc((size_t)n + 1, sizeof *was);
    table     t     = {.items    = items,
                       .n        = n,
                       .n_words  = n / 64 + 1,
                       .align    = align,
                       .placed   = calloc((size_t)(n / 64 + 1), sizeof *t.placed),
                       .near     = calloc((size_t)n + 1, sizeof *t.near),
                       .together = calloc((size_t)(n + 1) * (size_t)(n / 64 + 1), sizeof *t.together)};
    timeline  lives = {0};
    int64_t   least = 0, n_free = 0;
    vp_status st = VP_OK;

    *height = -1;
    VP_TRY_ALLOC(err, order && best && was && t.near && t.placed && t.together);
    VP_TRY(vp_pack_least(items, n, align, &least, err));
    least = vp_round_up(least, align);
    VP_TRY_ALLOC(err, timeline_make(&lives, items, n));
    while (timeline_next(&lives))
        for (int64_t i = lives.n_alive - 1; i >= 0 && is_born(&lives, lives.alive[i]); i--)
            for (int64_t k = 0; k <= i; k++)
                note_together(&t, lives.alive[i], lives.alive[k]);
    for (int64_t i = 0; i < n; i++)
        if (!items[i].fixed)
            order[n_free++] = (ranked){.item = &items[i], .idx = i};
    for (int o = 0; o < N_ORDERS && (*height < 0 || vp_round_up(*height, align) > least); o++) {
        for (int64_t i = 0; i < n_free; i++)
            set_keys(&order[i], o);
        qsort(order, (size_t)n_free, sizeof *order, by_key);
        int64_t h = place_in_order(&t, order, n_free, *height < 0 ? INT64_MAX : *height);
        if (vp_overflowed(h))
            VP_TRY(VP_FAIL(err, VP_ERR_INPUT,
                           "the buffers of one block are more bytes than 64 bits can count"));
        if (*height < 0 || h < *height) {
            *height = h;
            keep_offsets(items, n, best);
        }
    }
    improve(&t, order, n_free, least, was, best, height);
    for (int64_t i = 0; i < n; i++) {
        items[i].offset = best[i];
        assert(items[i].offset >= 0 && items[i].offset <= *height - items[i].bytes);
    }
    assert(vp_round_up(*height, align) >= least); /* a bound is one */
out:
    free(order);
    free(t.placed);
    free(t.together);
    free(best);
    free(was);
    free(t.near);
    timeline_release(&lives);
    return st;
}
