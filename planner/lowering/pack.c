#include "planner/lowering/pack.h"

#include "base/checked.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

typedef struct ranked {
    const vp_pack_item *item;
    int64_t             idx, key[2]; /* larger keys are placed first */
} ranked;

enum { N_ORDERS = 5, N_FIRST_ORDERS = 3, N_SUMS = 1024 };

#define TOO_MANY_BYTES "the buffers of one block are more bytes than 64 bits can count"

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
    int64_t       area              = vp_mul(bytes, life + 1);
    const int64_t keys[N_ORDERS][2] = {
        {bytes, life},   {life, bytes},
        {-first, bytes}, {vp_overflowed(area) ? INT64_MAX : area, bytes},
        {first, bytes},
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

/* What is alive at one instant. Sizes are rounded up to multiples of align. */
typedef struct load {
    const vp_pack_item **fixed; /* by offset; room for all items */
    int64_t             *free;  /* bytes of each that is not fixed; likewise */
    int64_t              n_fixed, n_free;
    int64_t              free_bytes; /* of them all */
} load;

static bool load_make(load *l, int64_t n)
{
    *l = (load){.fixed = calloc((size_t)n + 1, sizeof *l->fixed),
                .free  = calloc((size_t)n + 1, sizeof *l->free)};
    return l->fixed && l->free;
}

static void load_release(load *l)
{
    free(l->fixed);
    free(l->free);
}

static void load_now(load *l, const timeline *t, int64_t align)
{
    l->n_fixed = l->n_free = l->free_bytes = 0;
    for (int64_t i = 0; i < t->n_alive; i++) {
        const vp_pack_item *x = &t->items[t->alive[i]];
        if (x->fixed) {
            int64_t at = l->n_fixed++; /* mostly they come in ascending offsets */
            for (; at > 0 && l->fixed[at - 1]->offset > x->offset; at--)
                l->fixed[at] = l->fixed[at - 1];
            l->fixed[at] = x;
        } else {
            l->free[l->n_free] = vp_round_up(x->bytes, align);
            l->free_bytes      = vp_add(l->free_bytes, l->free[l->n_free++]);
        }
    }
}

/* Bytes of a gap that can be filled at most: all, unless the smallest item is larger. */
static int64_t filled_if_cut(const load *l, int64_t gap_bytes)
{
    int64_t smallest = INT64_MAX;

    for (int64_t i = 0; i < l->n_free; i++)
        smallest = vp_min_i64(smallest, l->free[i]);
    return gap_bytes >= smallest ? gap_bytes : 0;
}

/* The same of whole items: the largest sum of some of them that the gap holds. Of more than N_SUMS
 * different sums nothing better than filled_if_cut() is said. */
static int64_t filled_if_whole(const load *l, int64_t gap_bytes)
{
    int64_t sums[N_SUMS] = {0}, with[N_SUMS], both[N_SUMS];
    int64_t n_sums       = 1;

    for (int64_t i = 0; i < l->n_free; i++) {
        int64_t n_with = 0, n_both = 0;
        for (int64_t k = 0; k < n_sums && sums[k] <= gap_bytes - l->free[i]; k++)
            with[n_with++] = sums[k] + l->free[i];
        for (int64_t k = 0, w = 0; k < n_sums || w < n_with;) { /* merged, ascending */
            int64_t next = k < n_sums && (w == n_with || sums[k] <= with[w]) ? sums[k] : with[w];
            k += k < n_sums && sums[k] == next;
            w += w < n_with && with[w] == next;
            if (n_both == N_SUMS)
                return filled_if_cut(l, gap_bytes);
            both[n_both++] = next;
        }
        memcpy(sums, both, (size_t)n_both * sizeof *sums);
        n_sums = n_both;
    }
    return sums[n_sums - 1];
}

/* The least height of such a load, up to a multiple of align: what finds no room in the gaps of what
 * is fixed lies above it. */
static int64_t least_of_load(const load *l, int64_t align,
                             int64_t (*filled)(const load *l, int64_t gap_bytes))
{
    int64_t room = 0, end = 0;

    for (int64_t i = 0; i < l->n_fixed && !vp_overflowed(end); i++) {
        if (l->n_free && l->fixed[i]->offset > end)
            room += filled(l, l->fixed[i]->offset - end);
        end = vp_larger(end, vp_round_up(vp_add(l->fixed[i]->offset, l->fixed[i]->bytes), align));
    }
    return vp_overflowed(l->free_bytes) || vp_overflowed(end)
               ? VP_OVERFLOW
               : vp_add(end, vp_max_i64(0, l->free_bytes - room));
}

/* The largest of all instants: most is alive at some birth. VP_ERR_NOMEM. */
static vp_status least_of_all(const vp_pack_item *items, int64_t n, int64_t align,
                              int64_t (*filled)(const load *l, int64_t gap_bytes), int64_t *least,
                              vp_err *err)
{
    timeline  t  = {0};
    load      l  = {0};
    vp_status st = VP_OK;

    *least = 0;
    VP_TRY_ALLOC(err, load_make(&l, n) && timeline_make(&t, items, n));
    while (timeline_next(&t)) {
        load_now(&l, &t, align);
        *least = vp_larger(*least, least_of_load(&l, align, filled));
    }
out:
    timeline_release(&t);
    load_release(&l);
    return st;
}

vp_status vp_pack_least(const vp_pack_item *items, int64_t n, int64_t align, int64_t *least,
                        vp_err *err)
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
    VP_TRY(least_of_all(items, n, align, filled_if_cut, least, err));
    /* the highest need not end at a multiple of align */
    for (int64_t i = 0; i < n && !vp_overflowed(*least); i++)
        slack = vp_max_i64(slack, vp_round_up(items[i].bytes, align) - items[i].bytes);
    *least = vp_overflowed(*least) ? *least : vp_max_i64(0, *least - slack);
    for (int64_t i = 0; i < n; i++)
        *least = vp_larger(*least, items[i].fixed ? vp_add(items[i].offset, items[i].bytes)
                                                  : least_end(&g, &items[i]));
    if (vp_overflowed(*least))
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, TOO_MANY_BYTES));
out:
    free(g.fixed);
    return st;
}

vp_status vp_pack_least_whole(const vp_pack_item *items, int64_t n, int64_t align, int64_t *least,
                              vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(least_of_all(items, n, align, filled_if_whole, least, err));
    *least = vp_round_up(*least, align);
    if (vp_overflowed(*least))
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, TOO_MANY_BYTES));
out:
    return st;
}

/* ---- placing ---- */

static const int64_t NOWHERE = INT64_MAX;

/* Where an item stands; side by side, as the search for a place reads little else. */
typedef struct span {
    int64_t offset, above; /* the first place above it, aligned; NOWHERE: beyond 64 bits */
    int64_t idx;
} span;

/* The state of one packing: which items are alive together, and which have an offset already. */
typedef struct table {
    vp_pack_item *items;
    int64_t       n, n_words, align;
    /* n rows of n_words: bit k of row i: items i and k are alive together */
    uint64_t *together;
    uint64_t *placed; /* bit i: item i is */
    /* items that are placed, by offset; and all items where they were placed last in a whole order */
    span   *by_offset, *whole;
    int64_t n_placed;
} table;

/* What one order of the free items came to: their offsets, and the height. */
typedef struct packing {
    int64_t *offsets; /* of all items */
    ranked  *order;   /* of those that are free */
    int64_t  height;  /* -1: none was found yet */
} packing;

static bool table_make(table *t, vp_pack_item *items, int64_t n, int64_t align)
{
    int64_t n_words = n / 64 + 1;

    *t = (table){.items     = items,
                 .n         = n,
                 .n_words   = n_words,
                 .align     = align,
                 .together  = calloc((size_t)(n + 1) * (size_t)n_words, sizeof *t->together),
                 .placed    = calloc((size_t)n_words, sizeof *t->placed),
                 .by_offset = calloc((size_t)n + 1, sizeof *t->by_offset),
                 .whole     = calloc((size_t)n + 1, sizeof *t->whole)};
    return t->together && t->placed && t->by_offset && t->whole;
}

static void table_release(table *t)
{
    free(t->together);
    free(t->placed);
    free(t->by_offset);
    free(t->whole);
}

static bool packing_make(packing *p, int64_t n)
{
    *p = (packing){.offsets = calloc((size_t)n + 1, sizeof *p->offsets),
                   .order   = calloc((size_t)n + 1, sizeof *p->order),
                   .height  = -1};
    return p->offsets && p->order;
}

static void packing_release(packing *p)
{
    free(p->offsets);
    free(p->order);
}

static bool bit_of(const uint64_t *bits, int64_t idx)
{
    return bits[(uint64_t)idx / 64] >> ((uint64_t)idx % 64) & 1;
}

static void note_together(table *t, int64_t a, int64_t b)
{
    t->together[a * t->n_words + b / 64] |= UINT64_C(1) << (b % 64);
    t->together[b * t->n_words + a / 64] |= UINT64_C(1) << (a % 64);
}

/* The item stands at its offset: behind what begins lower. */
static void note_placed(table *t, int64_t idx)
{
    const vp_pack_item *item  = &t->items[idx];
    int64_t             above = vp_round_up(item->offset + item->bytes, t->align);
    int64_t             at    = t->n_placed++;

    assert(t->n_placed <= t->n && !bit_of(t->placed, idx));
    t->placed[idx / 64] |= UINT64_C(1) << (idx % 64);
    for (; at > 0 && t->by_offset[at - 1].offset > item->offset; at--)
        t->by_offset[at] = t->by_offset[at - 1];
    t->by_offset[at] = (span){item->offset, vp_overflowed(above) ? NOWHERE : above, idx};
}

/* The lowest offset where the item overlaps nothing placed: what it would overlap, it must be
 * above, and what begins beyond its end ends the search. */
static int64_t first_fit(const table *t, int64_t idx)
{
    const uint64_t *together = &t->together[idx * t->n_words];
    const int64_t   bytes    = t->items[idx].bytes;
    int64_t         offset = 0, end = bytes;

    for (const span *x = t->by_offset; x < t->by_offset + t->n_placed && x->offset < end; x++)
        if (x->above > offset && bit_of(together, x->idx)) {
            offset = x->above;
            end    = vp_add(offset, bytes);
            if (offset == NOWHERE || vp_overflowed(end))
                return VP_OVERFLOW;
        }
    return offset;
}

/* Choose an item's offset; false: beyond 64 bits. */
static bool place_next(table *t, int64_t idx, int64_t *height)
{
    vp_pack_item *item = &t->items[idx];

    assert(!item->fixed);
    item->offset = first_fit(t, idx);
    if (vp_overflowed(item->offset) || vp_overflowed(vp_add(item->offset, item->bytes)))
        return false;
    assert(item->offset % t->align == 0);
    note_placed(t, idx);
    *height = vp_max_i64(*height, item->offset + item->bytes);
    return true;
}

static void place_nothing(table *t)
{
    t->n_placed = 0;
    memset(t->placed, 0, (size_t)t->n_words * sizeof *t->placed);
}

/* Place the fixed items, then the free ones in the given order, and no more of them once it is
 * higher than limit; the height, or VP_OVERFLOW. */
static int64_t place_in_order(table *t, const ranked *order, int64_t n_free, int64_t limit)
{
    int64_t height = 0;

    place_nothing(t);
    for (int64_t i = 0; i < t->n; i++)
        if (t->items[i].fixed) {
            if (vp_overflowed(vp_add(t->items[i].offset, t->items[i].bytes)))
                return VP_OVERFLOW;
            note_placed(t, i);
            height = vp_max_i64(height, t->items[i].offset + t->items[i].bytes);
        }
    for (int64_t i = 0; i < n_free && height <= limit; i++)
        if (!place_next(t, order[i].idx, &height))
            return VP_OVERFLOW;
    return height;
}

/* All items stand where an order put them. */
static void remember_whole(table *t)
{
    assert(t->n_placed == t->n);
    memcpy(t->whole, t->by_offset, (size_t)t->n * sizeof *t->whole);
}

/* Place the fixed items, and of the free ones in the given order those before `from`, where they
 * were when remember_whole() was called last; the height. */
static int64_t place_known(table *t, const ranked *order, int64_t from)
{
    int64_t height = 0;

    place_nothing(t);
    for (int64_t i = 0; i < t->n; i++)
        if (t->items[i].fixed)
            t->placed[i / 64] |= UINT64_C(1) << (i % 64);
    for (int64_t i = 0; i < from; i++)
        t->placed[order[i].idx / 64] |= UINT64_C(1) << (order[i].idx % 64);
    for (int64_t i = 0; i < t->n; i++)
        if (bit_of(t->placed, t->whole[i].idx)) {
            const vp_pack_item *x = &t->items[t->whole[i].idx];
            assert(t->whole[i].offset == x->offset);
            t->by_offset[t->n_placed++] = t->whole[i];
            height                      = vp_max_i64(height, x->offset + x->bytes);
        }
    return height;
}

static void keep_offsets(const vp_pack_item *items, int64_t n, int64_t *offsets)
{
    for (int64_t i = 0; i < n; i++)
        offsets[i] = items[i].offset;
}

/* As place_in_order(), where places first to last of the order `was` have just been exchanged: what
 * stands before them stays, and what stands behind them does if everything between has. The items
 * have the offsets of `was`. */
static int64_t place_changed(table *t, const ranked *order, int64_t n_free, int64_t first,
                             int64_t last, const packing *was, int64_t limit)
{
    int64_t height = place_known(t, order, first);
    bool    moved  = false;

    assert(0 <= first && first <= last && last < n_free);
    for (int64_t i = first; i < n_free && height <= limit; i++) {
        if (i == last + 1 && !moved)
            return was->height;
        if (!place_next(t, order[i].idx, &height))
            return VP_OVERFLOW;
        moved |= t->items[order[i].idx].offset != was->offsets[order[i].idx];
    }
    return height;
}

/* ---- better orders ---- */

static uint64_t next_random(uint64_t *state)
{
    return *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
}

/* Moves the place `from` of an order to `to`; those between make room. */
static void move_place(ranked *order, int64_t from, int64_t to)
{
    ranked moved = order[from];

    for (int64_t i = from; i < to; i++)
        order[i] = order[i + 1];
    for (int64_t i = from; i > to; i--)
        order[i] = order[i - 1];
    order[to] = moved;
}

/* A change of an order: place a moves to b, or the two are exchanged. */
typedef struct change {
    int64_t a, b;
    bool    moves;
} change;

static void apply(ranked *order, change c)
{
    if (c.moves) {
        move_place(order, c.a, c.b);
    } else {
        ranked x   = order[c.a];
        order[c.a] = order[c.b];
        order[c.b] = x;
    }
}

static void undo(ranked *order, change c)
{
    apply(order, c.moves ? (change){c.b, c.a, true} : c);
}

/* One of those that reach highest earlier, so that it lies lower. */
static change move_highest(const table *t, const ranked *order, int64_t n_free, uint64_t *state)
{
    int64_t top = 0;

    for (int64_t i = 1; i < n_free; i++) {
        const vp_pack_item *x = &t->items[order[i].idx], *highest = &t->items[order[top].idx];
        if (x->offset + x->bytes > highest->offset + highest->bytes)
            top = i;
    }
    return (change){top, (int64_t)(next_random(state) >> 33) % vp_max_i64(top, 1), true};
}

static change swap_any(const table *t, const ranked *order, int64_t n_free, uint64_t *state)
{
    (void)t;
    (void)order;
    next_random(state);
    return (change){(int64_t)((*state >> 33) % (uint64_t)n_free),
                    (int64_t)((*state >> 13) % (uint64_t)n_free), false};
}

/* Changes of an order, one after the other; kept unless it packs higher than the best. The first
 * search finds most of what can be found in few turns, the second one some of the rest. */
static const struct search {
    change (*next)(const table *t, const ranked *order, int64_t n_free, uint64_t *state);
    int  n_turns, n_in_vain; /* the latter: in a row */
    bool from_best;          /* else from the order that was tried last */
} searches[] = {{move_highest, 100, 50, true}, {swap_any, 300, 150, false}};

/* Called where no order so far packs as low as the bound. The random numbers are its own, so that
 * the same items always get the same offsets. was: scratch. */
static void improve(table *t, const struct search *how, const ranked *order, int64_t n_free,
                    int64_t least, packing *was, packing *best)
{
    uint64_t state   = 1;
    int      in_vain = 0;

    if (n_free < 2)
        return;
    memcpy(was->order, order, (size_t)n_free * sizeof *order);
    was->height = place_in_order(t, was->order, n_free, INT64_MAX);
    if (vp_overflowed(was->height))
        return;
    remember_whole(t);
    keep_offsets(t->items, t->n, was->offsets);
    for (int turn = 0; turn < how->n_turns && in_vain < how->n_in_vain &&
                       vp_round_up(best->height, t->align) > least;
         turn++) {
        change  c = how->next(t, was->order, n_free, &state);
        int64_t h;
        apply(was->order, c);
        h = place_changed(t, was->order, n_free, vp_min_i64(c.a, c.b), vp_max_i64(c.a, c.b), was,
                          best->height);
        in_vain = !vp_overflowed(h) && h < best->height ? 0 : in_vain + 1;
        if (!vp_overflowed(h) && h <= best->height) {
            best->height = was->height = h;
            if (t->n_placed == t->n) /* else those behind stand where they stood */
                remember_whole(t);
            keep_offsets(t->items, t->n, was->offsets);
            keep_offsets(t->items, t->n, best->offsets);
        } else {
            undo(was->order, c);
            for (int64_t i = 0; i < t->n; i++)
                t->items[i].offset = was->offsets[i];
        }
    }
}

/* The fixed orders, best kept; last->order is the last one tried. VP_ERR_INPUT: beyond 64 bits. */
static vp_status try_orders(table *t, int n_orders, int64_t n_free, int64_t least, packing *last,
                            packing *best, vp_err *err)
{
    vp_status st = VP_OK;

    for (int o = 0;
         o < n_orders && (best->height < 0 || vp_round_up(best->height, t->align) > least); o++) {
        for (int64_t i = 0; i < n_free; i++)
            set_keys(&last->order[i], o);
        qsort(last->order, (size_t)n_free, sizeof *last->order, by_key);
        int64_t h =
            place_in_order(t, last->order, n_free, best->height < 0 ? INT64_MAX : best->height);
        if (vp_overflowed(h))
            VP_TRY(VP_FAIL(err, VP_ERR_INPUT, TOO_MANY_BYTES));
        if (best->height < 0 || h < best->height) {
            best->height = h;
            memcpy(best->order, last->order, (size_t)n_free * sizeof *best->order);
            keep_offsets(t->items, t->n, best->offsets);
        }
    }
out:
    return st;
}

/* n_orders: of the fixed ones; if not all, other orders are not looked for. */
static vp_status pack(vp_pack_item *items, int64_t n, int64_t align, int n_orders, int64_t *height,
                      bool *met, vp_err *err)
{
    table     t    = {0};
    packing   last = {0}, best = {0}, was = {0};
    timeline  lives = {0};
    int64_t   least = 0, sharper = 0, n_free = 0;
    vp_status st = VP_OK;

    *height = -1;
    VP_TRY_ALLOC(err, table_make(&t, items, n, align));
    VP_TRY_ALLOC(err, packing_make(&last, n) && packing_make(&best, n) && packing_make(&was, n));
    VP_TRY(vp_pack_least(items, n, align, &least, err));
    least = vp_round_up(least, align);
    VP_TRY_ALLOC(err, timeline_make(&lives, items, n));
    while (timeline_next(&lives))
        for (int64_t i = lives.n_alive - 1; i >= 0 && is_born(&lives, lives.alive[i]); i--)
            for (int64_t k = 0; k <= i; k++)
                note_together(&t, lives.alive[i], lives.alive[k]);
    for (int64_t i = 0; i < n; i++)
        if (!items[i].fixed)
            last.order[n_free++] = (ranked){.item = &items[i], .idx = i};
    VP_TRY(try_orders(&t, n_orders, n_free, least, &last, &best, err));
    *met = vp_round_up(best.height, align) <= least;
    if (!*met && n_orders == N_ORDERS) { /* this bound takes longer, a search longest */
        VP_TRY(vp_pack_least_whole(items, n, align, &sharper, err));
        least = vp_max_i64(least, sharper);
    }
    for (size_t i = 0; n_orders == N_ORDERS && i < sizeof searches / sizeof *searches; i++)
        if (vp_round_up(best.height, align) > least)
            improve(&t, &searches[i], searches[i].from_best ? best.order : last.order, n_free,
                    least, &was, &best);
    *height = best.height;
    for (int64_t i = 0; i < n; i++) {
        items[i].offset = best.offsets[i];
        assert(items[i].offset >= 0 && items[i].offset <= *height - items[i].bytes);
    }
    assert(vp_round_up(*height, align) >= least); /* a bound is one */
out:
    table_release(&t);
    packing_release(&last);
    packing_release(&best);
    packing_release(&was);
    timeline_release(&lives);
    return st;
}

vp_status vp_pack(vp_pack_item *items, int64_t n, int64_t align, int64_t *height, vp_err *err)
{
    bool met;

    return pack(items, n, align, N_ORDERS, height, &met, err);
}

vp_status vp_pack_in_first_orders(vp_pack_item *items, int64_t n, int64_t align, int64_t *height,
                                  bool *met, vp_err *err)
{
    return pack(items, n, align, N_FIRST_ORDERS, height, met, err);
}
