/* That no counts of an integer program cost less than a cutoff: by going through all of them, for
 * the checker. Shares no code with chain_dp.c, which searches.
 *
 * The chain is built from its end, items in ascending beta, each as often as one likes: the
 * integer program of problem.h, said item by item. Of what lies above the next item it needs M bytes, and the
 * blocks so far cost T; the chain of none needs what the head needs. One more item, of m blocks, makes
 *
 *     M' = k + max(beta, M)        T' = T + cost
 *
 * Both grow with M and T, so a chain that needs no less and costs no less than another of its length
 * is not followed. Nor is one that cannot end below the cutoff, by any price p / q of a byte: the r
 * blocks to come keep x bytes at most, what is left of the room, so they cost at least
 *
 *     (r min over items (q cost + p k) / m - p x) / q
 *
 * whatever p and q >= 1 are (every solution satisfies sum k <= x and sum m = r); and they keep r times
 * the smallest k / m. Items: those that may still come. Prices are the slopes of their lower hull, which
 * are the best; were they wrong, the proof would only fail. */
#include "planner/solve/problem.h"

#include <assert.h>
#include <stdlib.h>

typedef __int128 wide;

/* so that sums of products stay below 2^126 */
static const int64_t MOST_BYTES = (int64_t)1 << 56, MOST_COST_NS = (int64_t)1 << 45,
                     MOST_PRICE = (int64_t)1 << 48;

typedef struct price {
    int64_t p, q;
    int64_t k_bytes, k_blocks; /* for blocks that have at least k_bytes / k_blocks of room each */
    wide    least;             /* of q cost + p k a block: least / blocks */
    int64_t blocks;
    int64_t item; /* whose corner of the hull it begins at */
} price;

typedef struct chain {
    int64_t m_bytes, t_ns;
} chain;

/* Of chains of one length those that no other undercuts: ascending need, descending cost. */
typedef struct front {
    chain  *at;
    int64_t n, cap;
} front;

typedef struct check {
    const vp_ilp *g;
    int64_t       room_bytes;
    wide          most_ns; /* that the blocks of a cheaper chain cost        */
    int64_t       n_items; /* that may still come: those before are the others */
    price        *prices;  /* ascending k_bytes, descending p / q            */
    int64_t       n_prices;
    front        *fronts; /* of the chains of 0 .. n_blocks blocks */
    front         made, merged;
    int64_t       n_states_left;
} check;

static bool is_sound(const vp_ilp *g)
{
    bool sound = g->n_blocks >= 1 && g->n_blocks <= VP_MAX_BLOCKS && g->n_items >= 1 &&
                 g->n_items <= VP_MAX_ITEMS && g->base_bytes >= 0 && g->end_bytes >= 0;

    for (int64_t s = 0; sound && s < g->n_items; s++) {
        const vp_item_row *x = &g->items[s];
        sound                = x->k_bytes >= 0 && x->k_bytes <= MOST_BYTES && x->beta_bytes >= 0 &&
                x->beta_bytes <= MOST_BYTES && x->cost_ns >= 0 && x->cost_ns <= MOST_COST_NS &&
                x->n_more >= 0 && x->n_more < VP_MAX_ITEM_BLOCKS &&
                (s == 0 || x[-1].beta_bytes >= x->beta_bytes);
    }
    return sound;
}

/* ---- prices ---- */

/* What a block of `to` keeps more than one of `from`, and costs less, times the blocks of both. */
static wide more_kept(const vp_item_row *from, const vp_item_row *to)
{
    return (wide)to->k_bytes * vp_item_blocks(from) - (wide)from->k_bytes * vp_item_blocks(to);
}

static wide less_cost(const vp_item_row *from, const vp_item_row *to)
{
    return (wide)from->cost_ns * vp_item_blocks(to) - (wide)to->cost_ns * vp_item_blocks(from);
}

/* The price p / q, both cut to the same number of bits where they have too many, for blocks that have as
 * much room as those of an item keep. */
static void add_price(check *c, wide p, wide q, const vp_item_row *at)
{
    price *x = &c->prices[c->n_prices++];

    assert(p >= 0 && q >= 1); /* only such a price bounds anything */
    assert(c->n_prices <= c->g->n_items + 1);
    for (; p > MOST_PRICE || q > MOST_PRICE; p /= 2)
        q = q > 1 ? q / 2 : 1;
    *x = (price){.p        = (int64_t)p,
                 .q        = (int64_t)q,
                 .k_bytes  = at->k_bytes,
                 .k_blocks = vp_item_blocks(at),
                 .item     = at - c->g->items};
    for (int64_t s = 0; s < c->n_items; s++) {
        const vp_item_row *item = &c->g->items[s];
        wide               sum  = q * item->cost_ns + p * item->k_bytes;
        if (s == 0 || sum * x->blocks < x->least * vp_item_blocks(item)) {
            x->least  = sum;
            x->blocks = vp_item_blocks(item);
        }
    }
}

/* The lower convex hull of the items' (bytes kept, cost) a block: begins at the item that keeps the least and
 * goes on to the one that saves the most cost for each byte more, and so on. The slopes are prices. */
static void find_prices(check *c)
{
    const vp_item_row *items = c->g->items, *at = &items[0];

    assert(c->n_items >= 1 && c->n_items <= c->g->n_items);
    c->n_prices = 0;
    for (int64_t s = 1; s < c->n_items; s++) {
        wide more = more_kept(at, &items[s]);
        if (more < 0 || (more == 0 && less_cost(at, &items[s]) > 0))
            at = &items[s];
    }
    while (at) {
        const vp_item_row *to = NULL;
        for (int64_t s = 0; s < c->n_items; s++) {
            const vp_item_row *x = &items[s];
            if (more_kept(at, x) > 0 && less_cost(at, x) > 0 &&
                (!to ||
                 less_cost(at, x) * more_kept(at, to) > less_cost(at, to) * more_kept(at, x)))
                to = x;
        }
        if (to)
            add_price(c, less_cost(at, to), more_kept(at, to), at);
        else /* nothing is cheaper: bytes are free from here on */
            add_price(c, 0, 1, at);
        at = to;
    }
}

/* Whether the hull has a corner at this item: without it prices are others. */
static bool is_corner(const check *c, int64_t item)
{
    int64_t i = 0;

    while (i < c->n_prices && c->prices[i].item != item)
        i++;
    return i < c->n_prices;
}

/* Whether n more blocks cannot bring this chain to its end below the cutoff. *at: the price to ask,
 * never a higher one than for a chain that needed less. */
static bool is_hopeless(const check *c, const chain *x, int64_t n, int64_t *at)
{
    const wide room_bytes = c->room_bytes - x->m_bytes;

    while (*at > 0 && (wide)n * c->prices[*at].k_bytes > room_bytes * c->prices[*at].k_blocks)
        --*at;
    const price *y = &c->prices[*at];
    if ((wide)n * y->k_bytes > room_bytes * y->k_blocks) /* the least that n blocks keep */
        return true;
    return (wide)n * y->least >
           ((wide)y->p * room_bytes + (c->most_ns - x->t_ns) * y->q) * y->blocks;
}

/* ---- chains ---- */

static bool reserve(front *f, int64_t n)
{
    chain *more;

    if (n <= f->cap)
        return true;
    more = realloc(f->at, 2 * (size_t)n * sizeof *more);
    if (!more)
        return false;
    f->at  = more;
    f->cap = 2 * n;
    return true;
}

/* A chain that is worth following, behind those that need less. False: too many. */
static bool follow(check *c, front *to, chain x, int64_t n, int64_t *price_idx)
{
    if (to->n && to->at[to->n - 1].t_ns <= x.t_ns)
        return true;
    if (is_hopeless(c, &x, n, price_idx))
        return true;
    assert(to->n < to->cap);
    to->at[to->n++] = x;
    return c->n_states_left-- > 0;
}

/* The item before each of these chains into c->made; n more blocks are to come. */
static bool prepend(check *c, const vp_item_row *item, const front *to, int64_t n)
{
    int64_t i = 0, price_idx = c->n_prices - 1;

    c->made.n = 0;
    if (!reserve(&c->made, to->n))
        return false;
    while (i + 1 < to->n && to->at[i + 1].m_bytes <= item->beta_bytes)
        i++; /* all of these come to need k + beta; the last is the cheapest */
    for (; i < to->n; i++) {
        const chain *x = &to->at[i];
        wide         m =
            (wide)item->k_bytes + (item->beta_bytes > x->m_bytes ? item->beta_bytes : x->m_bytes);
        if (m > c->room_bytes)
            break; /* the others need more */
        if ((wide)x->t_ns + item->cost_ns <= c->most_ns &&
            !follow(c, &c->made, (chain){(int64_t)m, x->t_ns + item->cost_ns}, n, &price_idx))
            return false;
    }
    return true;
}

/* Chains of one length take in those of c->made; n more blocks are to come. */
static bool take_in(check *c, front *f, int64_t n)
{
    int64_t i = 0, k = 0, price_idx = c->n_prices - 1;
    front   swap;

    c->merged.n = 0;
    if (!reserve(&c->merged, f->n + c->made.n))
        return false;
    while (i < f->n || k < c->made.n) {
        const chain *x = i < f->n ? &f->at[i] : NULL, *y = k < c->made.n ? &c->made.at[k] : NULL;
        bool         first =
            !y ||
            (x && (x->m_bytes < y->m_bytes || (x->m_bytes == y->m_bytes && x->t_ns <= y->t_ns)));
        i += first;
        k += !first;
        if (!follow(c, &c->merged, first ? *x : *y, n, &price_idx))
            return false;
    }
    swap      = *f;
    *f        = c->merged;
    c->merged = swap;
    return true;
}

/* Whether the chains of all blocks that end below the cutoff can be listed, and are none. */
static bool none_ends(check *c)
{
    const int64_t n_blocks = c->g->n_blocks;

    for (int64_t s = c->g->n_items - 1; s >= 0; s--) {
        c->n_items = s + 1;
        if (is_corner(c, s + 1))
            find_prices(c);
        const int64_t m = vp_item_blocks(&c->g->items[s]);
        for (int64_t j = m; j <= n_blocks; j++)
            if ((c->fronts[j - m].n > 0 || c->fronts[j].n > 0) && /* most are empty */
                (!prepend(c, &c->g->items[s], &c->fronts[j - m], n_blocks - j) ||
                 !take_in(c, &c->fronts[j], n_blocks - j)))
                return false;
    }
    return c->fronts[n_blocks].n == 0;
}

bool vp_chain_proves(const vp_ilp *g, int64_t budget_bytes, int64_t cutoff_ns,
                     int64_t *n_states_left)
{
    check c = {.g = g, .n_items = g->n_items, .n_states_left = n_states_left ? *n_states_left : 0};
    wide  room = (wide)budget_bytes - g->base_bytes;
    int64_t last;
    bool    ok = false;

    if (!is_sound(g))
        return false;
    if (room < g->end_bytes)
        return true;
    c.room_bytes = room > INT64_MAX / 2 ? INT64_MAX / 2 : (int64_t)room;
    c.most_ns    = (wide)cutoff_ns - 1 - g->const_ns;
    c.prices     = calloc((size_t)g->n_items + 1, sizeof *c.prices);
    c.fronts     = calloc((size_t)g->n_blocks + 1, sizeof *c.fronts);
    if (!c.prices || !c.fronts || !reserve(&c.fronts[0], 1))
        goto out;
    find_prices(&c);
    last              = c.n_prices - 1;
    c.fronts[0].at[0] = (chain){.m_bytes = g->end_bytes};
    c.fronts[0].n     = 1;
    ok =
        is_hopeless(&c, &c.fronts[0].at[0], g->n_blocks, &last) || (n_states_left && none_ends(&c));
out:
    if (n_states_left)
        *n_states_left = c.n_states_left > 0 ? c.n_states_left : 0;
    for (int64_t j = 0; c.fronts && j <= g->n_blocks; j++)
        free(c.fronts[j].at);
    free(c.fronts);
    free(c.prices);
    free(c.made.at);
    free(c.merged.at);
    return ok;
}
