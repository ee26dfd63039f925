/* Checks that a certificate proves a bound: planner/solve/problem.h has the format. Knows the
 * item table and nothing of the solver; rows are generated here, by code of its own, and that no
 * chain is cheaper is found by code of its own, too (chain_check.c). Whatever is not exactly as
 * described, or leaves 126 bits, proves nothing. */
#include "planner/solve/problem.h"

#include <assert.h>
#include <stdlib.h>

typedef __int128 wide;

enum {
    MAX_DEPTH      = 4096, /* of splits above each other     */
    BYTE_ROW_LOG2  = 30,   /* all sums are in 2^-30 ns       */
    BLOCK_ROW_LOG2 = 10
};

typedef enum level_state { UNDECIDED, UNUSED, USED } level_state;

/* A walk through the certificate's tree: the bounds on the variables at the node it has reached, and
 * the part of the tree that is still to be read. */
typedef struct walk {
    const vp_ilp *g;
    int64_t       budget_bytes;
    int64_t       n_levels;
    int64_t      *level_of;   /* per item                                    */
    int64_t      *beta_bytes; /* per level                                   */
    int64_t      *lo, *hi;    /* per item; an unused level's hi counts as 0  */
    level_state  *state;      /* per level                                   */
    wide         *coef;       /* per item: a leaf's reduced costs            */
    int64_t       cutoff_ns;
    wide          above;          /* a leaf's bound must be greater              */
    int          *n_chain_proofs; /* left                                    */
    const json_t *tree;
    size_t        next; /* node of the tree to be read                 */
} walk;

/* ---- 128-bit arithmetic that says when it leaves 126 bits ---- */

static int n_bits(wide x)
{
    unsigned __int128  magnitude = x < 0 ? -(unsigned __int128)x : (unsigned __int128)x;
    unsigned long long high      = (unsigned long long)(magnitude >> 64),
                       low       = (unsigned long long)magnitude;

    return high ? 128 - __builtin_clzll(high) : low ? 64 - __builtin_clzll(low) : 0;
}

/* *sum += a * b */
static bool add_product(wide *sum, wide a, wide b)
{
    wide r;

    if (n_bits(a) + n_bits(b) > 126)
        return false;
    r = *sum + a * b; /* below 2^126 + 2^126 */
    if (n_bits(r) > 126)
        return false;
    *sum = r;
    return true;
}

/* ---- one leaf ---- */

static int64_t hi_of(const walk *w, int64_t s)
{
    assert(w->level_of[s] < w->n_levels);
    return w->state[w->level_of[s]] == UNUSED ? 0 : w->hi[s];
}

/* Whether no counts at all lie in the box: some count's bounds cross, or all of a used level's
 * are 0. */
static bool box_is_empty(const walk *w)
{
    for (int64_t s = 0; s < w->g->n_items; s++)
        if (w->lo[s] > hi_of(w, s))
            return true;
    for (int64_t s = 0, l = 0; l < w->n_levels; l++) {
        bool some = false;

        for (; s < w->g->n_items && w->level_of[s] == l; s++)
            some |= w->hi[s] > 0;
        if (w->state[l] == USED && !some)
            return true;
    }
    return false;
}

/* Add row r times u to the reduced costs and the constant. */
static bool add_row(walk *w, int64_t r, int64_t u, wide *constant)
{
    const vp_ilp *g     = w->g;
    const wide    block = (wide)1 << (BYTE_ROW_LOG2 - BLOCK_ROW_LOG2);
    const wide    room  = (wide)w->budget_bytes - g->base_bytes;
    int64_t       l;

    assert(r >= 0 && r < 2 + 2 * w->n_levels); /* leaf_proves() refuses other rows */

    if (r == 0) { /* u (L - sum m n) */
        if (!add_product(constant, u * block, g->n_blocks))
            return false;
        for (int64_t s = 0; s < g->n_items; s++)
            if (!add_product(&w->coef[s], u, -block * vp_item_blocks(&g->items[s])))
                return false;
        return true;
    }
    if (u < 0)
        u = 0;
    if (r == 1) { /* u (sum k n - (B - base - end)) */
        if (!add_product(constant, -(wide)u, room - g->end_bytes))
            return false;
        for (int64_t s = 0; s < g->n_items; s++)
            if (!add_product(&w->coef[s], u, g->items[s].k_bytes))
                return false;
        return true;
    }
    l = (r - 2) % w->n_levels;
    if (r >= 2 + w->n_levels) { /* u (1 - sum of the level's n) */
        if (w->state[l] != USED || !add_product(constant, u, block))
            return false;
        for (int64_t s = 0; s < g->n_items; s++)
            if (w->level_of[s] == l && !add_product(&w->coef[s], u, -block))
                return false;
        return true;
    }
    if (w->state[l] == UNUSED)
        return false;
    if (w->state[l] == USED) { /* u (prefix - (B - base - beta)) */
        if (!add_product(constant, -(wide)u, room - w->beta_bytes[l]))
            return false;
        for (int64_t s = 0; s < g->n_items && w->level_of[s] <= l; s++)
            if (!add_product(&w->coef[s], u, g->items[s].k_bytes))
                return false;
        return true;
    }
    /* u (L prefix + beta sum of the level's n - L (B - base)) */
    if (!add_product(constant, -(wide)u, room * g->n_blocks))
        return false;
    for (int64_t s = 0; s < g->n_items && w->level_of[s] <= l; s++) {
        wide a =
            (wide)g->items[s].k_bytes * g->n_blocks + (w->level_of[s] == l ? w->beta_bytes[l] : 0);

        if (!add_product(&w->coef[s], u, a))
            return false;
    }
    return true;
}

static bool leaf_proves(walk *w, const json_t *node)
{
    wide    bound = 0;
    int64_t last  = -1;

    if (box_is_empty(w))
        return true;
    if (!add_product(&bound, w->g->const_ns, (wide)1 << BYTE_ROW_LOG2))
        return false;
    for (int64_t s = 0; s < w->g->n_items; s++)
        w->coef[s] = (wide)w->g->items[s].cost_ns * ((wide)1 << BYTE_ROW_LOG2);
    for (size_t i = 1; i < json_array_size(node); i++) {
        const json_t *pair = json_array_get(node, i), *r = json_array_get(pair, 0),
                     *u = json_array_get(pair, 1);

        if (json_array_size(pair) != 2 || !json_is_integer(r) || !json_is_integer(u))
            return false;
        if (json_integer_value(r) <= last || json_integer_value(r) >= 2 + 2 * w->n_levels)
            return false;
        last = json_integer_value(r);
        if (!add_row(w, last, json_integer_value(u), &bound))
            return false;
    }
    for (int64_t s = 0; s < w->g->n_items; s++)
        if (!add_product(&bound, w->coef[s], w->coef[s] < 0 ? hi_of(w, s) : w->lo[s]))
            return false;
    return bound > w->above;
}

/* ---- the walk ---- */

static bool subtree_proves(walk *w, int depth)
{
    const json_t *node = json_array_get(w->tree, w->next++), *kind = json_array_get(node, 0),
                 *at = json_array_get(node, 1), *floor = json_array_get(node, 2);
    size_t  n = json_array_size(node);
    int64_t idx, f, old, n_states = VP_CHAIN_CHECK_STATES;
    bool    ok;

    if (depth > MAX_DEPTH || !json_is_integer(kind))
        return false;
    switch (json_integer_value(kind)) {
    case 0:
        return leaf_proves(w, node);
    case 1:
        idx = json_is_integer(at) ? json_integer_value(at) : -1;
        if (n != 2 || idx < 0 || idx >= w->n_levels || w->state[idx] != UNDECIDED)
            return false;
        w->state[idx] = UNUSED;
        ok            = subtree_proves(w, depth + 1);
        w->state[idx] = USED;
        ok            = ok && subtree_proves(w, depth + 1);
        w->state[idx] = UNDECIDED;
        return ok;
    case 2:
        idx = json_is_integer(at) ? json_integer_value(at) : -1;
        f   = json_is_integer(floor) ? json_integer_value(floor) : -1;
        if (n != 3 || idx < 0 || idx >= w->g->n_items || f < 0 || f >= w->g->n_blocks)
            return false;
        old        = w->hi[idx];
        w->hi[idx] = f < old ? f : old;
        ok         = subtree_proves(w, depth + 1);
        w->hi[idx] = old;
        old        = w->lo[idx];
        w->lo[idx] = f + 1 > old ? f + 1 : old;
        ok         = ok && subtree_proves(w, depth + 1);
        w->lo[idx] = old;
        return ok;
    case 3:
        return n == 1 && box_is_empty(w);
    case 4:
        return n == 1 && depth == 0 && (*w->n_chain_proofs)-- > 0 &&
               vp_chain_proves(w->g, w->budget_bytes, w->cutoff_ns, &n_states);
    default:
        return false;
    }
}

static bool ilp_is_sound(const vp_ilp *g)
{
    if (g->n_blocks < 1 || g->n_blocks > VP_MAX_BLOCKS || g->n_items < 1 ||
        g->n_items > VP_MAX_ITEMS)
        return false;
    for (int64_t s = 0; s < g->n_items; s++) {
        const vp_item_row *x = &g->items[s];

        if (x->k_bytes < 0 || x->beta_bytes < 0 || x->n_more < 0 ||
            x->n_more >= VP_MAX_ITEM_BLOCKS || (s && x[-1].beta_bytes < x->beta_bytes))
            return false;
    }
    return g->base_bytes >= 0 && g->end_bytes >= 0;
}

static bool tree_proves(const vp_ilp_problem *p, const vp_ilp *g, const json_t *tree,
                        int64_t cutoff_ns, int *n_chain_proofs)
{
    size_t n  = (size_t)g->n_items;
    walk   w  = {.g              = g,
                 .budget_bytes   = p->budget_bytes,
                 .tree           = tree,
                 .cutoff_ns      = cutoff_ns,
                 .n_chain_proofs = n_chain_proofs};
    bool   ok = false;

    if (!ilp_is_sound(g) || !json_is_array(tree))
        return false;
    w.level_of   = calloc(n, sizeof *w.level_of);
    w.beta_bytes = calloc(n, sizeof *w.beta_bytes);
    w.lo         = calloc(n, sizeof *w.lo);
    w.hi         = calloc(n, sizeof *w.hi);
    w.state      = calloc(n, sizeof *w.state);
    w.coef       = calloc(n, sizeof *w.coef);
    if (!w.level_of || !w.beta_bytes || !w.lo || !w.hi || !w.state || !w.coef)
        goto out;
    for (int64_t s = 0; s < g->n_items; s++) {
        if (!s || g->items[s].beta_bytes != g->items[s - 1].beta_bytes)
            w.beta_bytes[w.n_levels++] = g->items[s].beta_bytes;
        w.level_of[s] = w.n_levels - 1;
        w.hi[s]       = g->n_blocks / vp_item_blocks(&g->items[s]);
    }
    assert(w.n_levels >= 1 && w.n_levels <= g->n_items);
    /* Costs are whole nanoseconds: above cutoff - 1 is at least the cutoff. */
    w.above = ((wide)cutoff_ns - 1) * ((wide)1 << BYTE_ROW_LOG2);
    ok      = subtree_proves(&w, 0) && w.next == json_array_size(tree);
out:
    free(w.level_of);
    free(w.beta_bytes);
    free(w.lo);
    free(w.hi);
    free(w.state);
    free(w.coef);
    return ok;
}

bool vp_certificate_proves(const vp_ilp_problem *p, const json_t *certificate, int64_t cutoff_ns)
{
    int n_chain_proofs = VP_MAX_CHAIN_PROOFS;

    if (!json_is_array(certificate) || (int64_t)json_array_size(certificate) != p->n_ilps)
        return false;
    for (int64_t i = 0; i < p->n_ilps; i++)
        if (!tree_proves(p, &p->ilps[i], json_array_get(certificate, (size_t)i), cutoff_ns,
                         &n_chain_proofs))
            return false;
    return true;
}
