/* One node of the search: its box, its linear program, the bound its multipliers prove, the whole
 * counts near its fractional ones, and where to split it. branch.h says what is called from where. */
#include "planner/solve/branch.h"

#include "base/checked.h"

#include <assert.h>
#include <math.h>
#include <string.h>

typedef __int128 wide;

enum {
    /* ways tried to complete a rounded-down solution */
    MAX_COMBOS = 300,
    /* counts that share what rounding down leaves over */
    MAX_FRACTIONAL = 5,
    /* coefficients; a larger LP counts as more nodes, so that the limit bounds the work */
    STANDARD_LP = 10000
};

/* ---- counts ---- */

/* The chain's need is folded from its end: every block adds its k below, and wants its beta
 * above it. */
static bool fits(const vp_chain *c, const int64_t *n)
{
    int64_t need = c->g->end_bytes;

    for (int64_t s = c->g->n_items - 1; s >= 0; s--)
        if (n[s])
            need = vp_add(vp_max_i64(need, c->g->items[s].beta_bytes),
                          vp_mul(c->g->items[s].k_bytes, n[s]));
    return !vp_overflowed(need) && need <= c->room_bytes;
}

static int64_t cost_of(const vp_chain *c, const int64_t *n)
{
    int64_t cost = c->g->const_ns;

    for (int64_t s = 0; s < c->g->n_items; s++)
        cost += c->g->items[s].cost_ns * n[s];
    return cost;
}

/* The blocks that counts are for. */
static int64_t blocks_of(const vp_chain *c, const int64_t *n)
{
    int64_t sum = 0;

    for (int64_t s = 0; s < c->g->n_items; s++)
        sum += n[s] * vp_item_blocks(&c->g->items[s]);
    return sum;
}

bool vp_branch_take(vp_branch_search *q, int64_t ilp, const int64_t *n)
{
    const vp_chain *c    = &q->chains[ilp];
    int64_t         cost = cost_of(c, n);

    assert(ilp >= 0 && ilp < q->p->n_ilps);
    if (cost >= q->best_ns || blocks_of(c, n) != c->g->n_blocks || !fits(c, n))
        return false;
    q->best_ns  = cost;
    q->best_ilp = ilp;
    memcpy(q->best, n, (size_t)c->g->n_items * sizeof *n);
    return true;
}

/* Exchange one item for another of as many blocks as long as that is cheaper. */
static void improve(vp_branch_search *q)
{
    const int64_t   ilp    = q->best_ilp;
    const vp_chain *c      = &q->chains[ilp];
    bool            better = true;

    assert(ilp >= 0); /* called where an incumbent was found */
    while (better) {
        better = false;
        memcpy(q->trial, q->best, (size_t)c->g->n_items * sizeof *q->trial);
        for (int64_t a = 0; a < c->g->n_items; a++) {
            int64_t to = -1;

            if (!q->trial[a])
                continue;
            q->trial[a]--;
            for (int64_t b = 0; b < c->g->n_items; b++) {
                if (c->g->items[b].cost_ns >= c->g->items[a].cost_ns ||
                    c->g->items[b].n_more != c->g->items[a].n_more)
                    continue;
                q->trial[b]++;
                if (vp_branch_take(q, ilp, q->trial))
                    to = b;
                q->trial[b]--;
            }
            q->trial[to >= 0 ? to : a]++;
            better |= to >= 0;
        }
    }
}

/* Hand `left` blocks to the counts who[i..n-1] in every way, up to MAX_COMBOS of them. */
static void distribute(vp_branch_search *q, int64_t ilp, const int64_t *who, int n, int i,
                       int64_t left, int64_t cost, int *n_combos, bool *found)
{
    const vp_item_row *x = &q->chains[ilp].g->items[who[i]];
    const int64_t      m = vp_item_blocks(x);

    assert(i >= 0 && i < n && n <= MAX_FRACTIONAL && left >= 0);
    if (i == n - 1) {
        if (++*n_combos > MAX_COMBOS || left % m != 0 || cost + left / m * x->cost_ns >= q->best_ns)
            return;
        q->trial[who[i]] += left / m;
        *found |= vp_branch_take(q, ilp, q->trial);
        q->trial[who[i]] -= left / m;
        return;
    }
    for (int64_t k = left / m; k >= 0 && *n_combos <= MAX_COMBOS; k--) {
        q->trial[who[i]] += k;
        distribute(q, ilp, who, n, i + 1, left - k * m, cost + k * x->cost_ns, n_combos, found);
        q->trial[who[i]] -= k;
    }
}

static bool is_among(const int64_t *who, int n, int64_t item)
{
    bool is = false;

    for (int i = 0; i < n; i++)
        is |= who[i] == item;
    return is;
}

/* Round the LP's counts down and try ways to give the rest to those that were fractional. */
static void round_counts(vp_branch_search *q, int64_t ilp)
{
    const vp_chain *c = &q->chains[ilp];
    int64_t         who[MAX_FRACTIONAL], least = 0, left;
    double          frac[MAX_FRACTIONAL];
    int             n = 0, n_combos = 0;
    bool            found = false;

    for (int64_t s = 0; s < c->g->n_items; s++) {
        double down = floor(q->x[s] + 1e-6), f = q->x[s] - down;
        int    i;

        q->trial[s] = down < 0 ? 0 : (int64_t)down;
        if (c->g->items[s].n_more < c->g->items[least].n_more ||
            (c->g->items[s].n_more == c->g->items[least].n_more &&
             c->g->items[s].k_bytes < c->g->items[least].k_bytes))
            least = s;
        if (f < 1e-6)
            continue;
        for (i = n; i > 0 && frac[i - 1] < f; i--)
            if (i < MAX_FRACTIONAL)
                frac[i] = frac[i - 1], who[i] = who[i - 1];
        if (i < MAX_FRACTIONAL) {
            frac[i] = f, who[i] = s;
            n += n < MAX_FRACTIONAL;
        }
    }
    left = c->g->n_blocks - blocks_of(c, q->trial);
    if (left < 0)
        return;
    /* where segments leave a rest, the shortest item that keeps the least may fill it */
    if (n < MAX_FRACTIONAL && !is_among(who, n, least))
        who[n++] = least;
    distribute(q, ilp, who, n, 0, left, cost_of(c, q->trial), &n_combos, &found);
    if (found)
        improve(q);
}

/* ---- bounds ---- */

int64_t vp_branch_target_ns(const vp_branch_search *q)
{
    if (q->best_ns == INT64_MAX)
        return q->infeasible_ns;
    return q->best_ns - (int64_t)floorl((long double)q->best_ns * (long double)q->p->gap);
}

static int n_bits(int64_t x)
{
    return x > 0 ? 64 - __builtin_clzll((unsigned long long)x) : 0;
}

/* The largest multiplier of rows in bytes that keeps every sum below 2^120. */
static int64_t most_u(const vp_chain *c)
{
    int bits = 110 - 2 * n_bits(c->g->n_blocks) -
               n_bits(c->room_bytes < 0 ? -c->room_bytes : c->room_bytes);

    for (int64_t s = 0; s < c->g->n_items; s++) {
        int b = 110 - 2 * n_bits(c->g->n_blocks) -
                n_bits(c->g->items[s].k_bytes + c->g->items[s].beta_bytes);

        bits = b < bits ? b : bits;
    }
    assert(c->g->n_blocks >= 1);
    return (int64_t)1 << (bits > 60 ? 60 : bits < 1 ? 1 : bits);
}

/* The exact bound of integer multipliers over the box in 2^-30 ns, with or without the costs. */
static wide exact_bound(vp_branch_search *q, const vp_chain *c, const int64_t *y, bool with_costs)
{
    const int64_t      n_levels = c->n_levels, n_items = c->g->n_items, n_blocks = c->g->n_blocks;
    const vp_item_row *items = c->g->items;
    /* multipliers of the rows that hold a level's prefix: those of it and all behind it */
    wide       bound, below;
    const wide unit = (wide)1 << 30, block = (wide)1 << 20;

    assert(c->first[n_levels] == n_items);
    bound = (with_costs ? c->g->const_ns * unit : 0) + y[0] * block * n_blocks -
            (wide)y[1] * (c->room_bytes - c->g->end_bytes);
    below = y[1];
    for (int64_t l = n_levels - 1; l >= 0; l--) {
        wide own = 0;

        if (q->box.use[l] == VP_LEVEL_UNDECIDED) {
            bound -= (wide)y[2 + l] * n_blocks * c->room_bytes;
            below += (wide)y[2 + l] * n_blocks;
            own += (wide)y[2 + l] * items[c->first[l]].beta_bytes;
        } else if (q->box.use[l] == VP_LEVEL_USED) {
            bound -= (wide)y[2 + l] * (c->room_bytes - items[c->first[l]].beta_bytes);
            below += y[2 + l];
            bound += y[2 + n_levels + l] * block;
            own -= y[2 + n_levels + l] * block;
        }
        for (int64_t s = c->first[l]; s < c->first[l + 1]; s++)
            q->coef[s] = own - y[0] * block * vp_item_blocks(&items[s]) + below * items[s].k_bytes +
                         (with_costs ? items[s].cost_ns * unit : 0);
    }
    for (int64_t s = 0; s < n_items; s++)
        bound += q->coef[s] * (q->coef[s] < 0 ? q->box.hi[s] : q->box.lo[s]);
    return bound;
}

static int64_t whole_ns(wide bound)
{
    const wide most = (wide)1 << 62;
    wide       up   = bound >> 30; /* rounds down, also below zero */

    if (up * ((wide)1 << 30) != bound)
        up++; /* what costs whole nanoseconds costs at least this */
    return (int64_t)(up > most ? most : up < -most ? -most : up);
}

static int64_t rounded(double v, int64_t most)
{
    if (!(v > -(double)most)) /* also what is not a number */
        return v < 0 ? -most : 0;
    return v < (double)most ? (int64_t)llround(v) : most;
}

static int64_t n_rows(const vp_chain *c)
{
    return 2 + 2 * c->n_levels;
}

static bool is_block_row(const vp_chain *c, int64_t r)
{
    return r == 0 || r >= 2 + c->n_levels;
}

/* Whether the linear program of this node has row r. Of the two rows of a level, the first is there
 * unless branching has left the level out, the second only where it has put it in. */
static bool is_row(const vp_branch_search *q, const vp_chain *c, int64_t r)
{
    assert(r >= 0 && r < n_rows(c));
    if (r < 2)
        return true;
    if (r < 2 + c->n_levels)
        return q->box.use[r - 2] != VP_LEVEL_UNUSED;
    return q->box.use[r - 2 - c->n_levels] == VP_LEVEL_USED;
}

/* Multipliers of the optimum of the LP, as integers in q->y. */
static void round_multipliers(vp_branch_search *q, const vp_chain *c)
{
    int64_t most = most_u(c);

    for (int64_t r = 0; r < n_rows(c); r++) {
        double  unit = is_block_row(c, r) ? 1024.0 : 1073741824.0;
        int64_t y    = is_row(q, c, r)
                           ? rounded(q->u[r] * unit, is_block_row(c, r) ? (int64_t)1 << 60 : most)
                           : 0;

        q->y[r] = r && y < 0 ? 0 : y;
    }
}

/* Multipliers that prove an LP infeasible, so large that they prove any cost: rounded at first
 * with 40 bits, then multiplied by what the violation they show asks for. */
static void scale_ray(vp_branch_search *q, const vp_chain *c)
{
    int64_t most    = most_u(c), factor;
    double  largest = 0;
    wide    violation, want;

    for (int64_t r = 0; r < n_rows(c); r++) {
        double v = fabs(q->u[r]) * (is_block_row(c, r) ? 1 : 1048576.0);

        if (isfinite(v) && v > largest)
            largest = v;
    }
    for (int64_t r = 0; r < n_rows(c); r++) {
        double v = largest > 0
                       ? q->u[r] * (is_block_row(c, r) ? 1 : 1048576.0) / largest * 1099511627776.0
                       : 0;

        q->y[r] = is_row(q, c, r) ? rounded(v, most) : 0;
        if (r && q->y[r] < 0)
            q->y[r] = 0;
    }
    violation = exact_bound(q, c, q->y, false);
    if (violation <= 0)
        return;
    want   = (wide)(q->infeasible_ns - c->g->const_ns) * ((wide)1 << 30);
    want   = (want + violation - 1) / violation;
    factor = INT64_MAX;
    for (int64_t r = 0; r < n_rows(c); r++) {
        int64_t limit = is_block_row(c, r) ? (int64_t)1 << 60 : most,
                y     = q->y[r] < 0 ? -q->y[r] : q->y[r];

        assert(y <= limit);
        if (y && limit / y < factor)
            factor = limit / y;
    }
    assert(factor >= 1 && want >= 1); /* multiplied by less, a violation would prove nothing */
    if (want < factor)
        factor = (int64_t)want;
    for (int64_t r = 0; r < n_rows(c); r++)
        q->y[r] *= factor;
}

/* ---- a node ---- */

/* The box at a node, from the splits above it. */
static void find_box(vp_branch_search *q, int64_t id)
{
    const vp_chain *c = &q->chains[q->nodes[id].ilp];

    for (int64_t s = 0; s < c->g->n_items; s++) {
        q->box.lo[s] = 0;
        q->box.hi[s] = c->g->n_blocks / vp_item_blocks(&c->g->items[s]);
    }
    for (int64_t l = 0; l < c->n_levels; l++)
        q->box.use[l] = VP_LEVEL_UNDECIDED;
    for (int64_t at = id; q->nodes[at].parent >= 0; at = q->nodes[at].parent) {
        const vp_branch_node *up     = &q->nodes[q->nodes[at].parent];
        bool                  second = at != up->child;

        assert(up->child >= 0 && at - up->child <= 1 && up->kind != VP_SPLIT_NONE);
        if (up->kind == VP_SPLIT_LEVEL)
            q->box.use[up->at] = second ? VP_LEVEL_USED : VP_LEVEL_UNUSED;
        else if (second)
            q->box.lo[up->at] = vp_max_i64(q->box.lo[up->at], up->floor + 1);
        else
            q->box.hi[up->at] = vp_min_i64(q->box.hi[up->at], up->floor);
    }
    for (int64_t l = 0; l < c->n_levels; l++)
        for (int64_t s = c->first[l]; s < c->first[l + 1] && q->box.use[l] == VP_LEVEL_UNUSED; s++)
            q->box.hi[s] = 0;
}

static bool box_is_empty(const vp_branch_search *q, const vp_chain *c)
{
    for (int64_t l = 0; l < c->n_levels; l++) {
        int64_t most = 0;

        for (int64_t s = c->first[l]; s < c->first[l + 1]; s++) {
            if (q->box.lo[s] > q->box.hi[s])
                return true;
            most += q->box.hi[s];
        }
        if (q->box.use[l] == VP_LEVEL_USED && !most)
            return true;
    }
    return false;
}

/* Keep the multipliers in q->y as the node's, with the bound they prove, if it has none as good:
 * a root has its first. */
static bool keep_multipliers(vp_branch_search *q, vp_branch_node *x)
{
    const vp_chain *c  = &q->chains[x->ilp];
    int64_t         ns = whole_ns(exact_bound(q, c, q->y, true)), n = 0;

    if (ns <= x->own_ns)
        return true;
    for (int64_t r = 0; r < n_rows(c); r++)
        n += q->y[r] != 0;
    x->m = vp_arena_array(q->arena, n, sizeof *x->m);
    if (!x->m)
        return false;
    x->n_m = 0;
    for (int64_t r = 0; r < n_rows(c); r++)
        if (q->y[r])
            x->m[x->n_m++] = (vp_branch_multiplier){.row = r, .u = q->y[r]};
    assert(x->n_m == n);
    x->own_ns   = ns;
    x->bound_ns = vp_max_i64(x->bound_ns, x->own_ns);
    q->n_bytes += n * (int64_t)sizeof *x->m;
    return true;
}

/* Whether the LP's count of an item is fractional, inside its bounds. */
static bool is_open(const vp_branch_search *q, int64_t s)
{
    double down = floor(q->x[s]), f = q->x[s] - down;

    return f > 1e-6 && f < 1 - 1e-6 && down >= (double)q->box.lo[s] && down < (double)q->box.hi[s];
}

/* Mean of what a split of the item has brought in one direction; without any, of what any item's
 * has. */
static double raised_per_block(const vp_branch_history *h, int64_t n_items, int64_t item, int up)
{
    double  sum = 0;
    int64_t n   = 0;

    assert(item >= 0 && item < n_items && (up == 0 || up == 1));
    if (h[item].n[up])
        return h[item].sum[up] / (double)h[item].n[up];
    for (int64_t s = 0; s < n_items; s++) {
        sum += h[s].sum[up];
        n += h[s].n[up];
    }
    return n ? sum / (double)n : 1;
}

bool vp_branch_choose_count(vp_branch_search *q, int64_t id)
{
    vp_branch_node     *x    = &q->nodes[id];
    const int64_t       n    = q->chains[x->ilp].g->n_items;
    vp_branch_history **h    = &q->history[x->ilp];
    double              most = -1;

    if (!*h && !(*h = vp_arena_array(q->arena, n, sizeof **h)))
        return false;
    for (int64_t i = 0; i < x->n_open; i++) {
        double f     = x->open[i].x - floor(x->open[i].x);
        double down  = raised_per_block(*h, n, x->open[i].item, 0) * f;
        double up    = raised_per_block(*h, n, x->open[i].item, 1) * (1 - f);
        double score = (down > 1e-3 ? down : 1e-3) * (up > 1e-3 ? up : 1e-3);

        if (score > most) {
            most     = score;
            x->kind  = VP_SPLIT_COUNT;
            x->at    = x->open[i].item;
            x->floor = (int64_t)floor(x->open[i].x);
        }
    }
    assert(x->n_open == 0 || x->kind == VP_SPLIT_COUNT);
    return true;
}

void vp_branch_note_raise(vp_branch_search *q, int64_t child)
{
    const vp_branch_node *y = &q->nodes[child], *x = &q->nodes[y->parent];
    const int             up = child != x->child;
    double raise = (double)(vp_min_i64(y->bound_ns, vp_branch_target_ns(q)) - x->bound_ns);

    for (int64_t i = 0; y->solved && x->kind == VP_SPLIT_COUNT && i < x->n_open; i++)
        if (x->open[i].item == x->at) {
            double             f = x->open[i].x - floor(x->open[i].x);
            vp_branch_history *h = &q->history[x->ilp][x->at];

            h->sum[up] += (raise > 0 ? raise : 0) / (up ? 1 - f : f);
            h->n[up]++;
        }
}

/* Where to split: the undecided level whose row the counts break most, else one of the
 * fractional counts, chosen later. */
static void choose_split(vp_branch_search *q, vp_branch_node *x)
{
    const vp_chain *c      = &q->chains[x->ilp];
    double          prefix = 0, most = 0;

    for (int64_t l = 0; l < c->n_levels; l++) {
        double n = 0, over;

        for (int64_t s = c->first[l]; s < c->first[l + 1]; s++) {
            n += q->x[s];
            prefix += q->x[s] * (double)c->g->items[s].k_bytes;
        }
        over = (prefix + (double)c->g->items[c->first[l]].beta_bytes - (double)c->room_bytes) *
               (n < 1 ? n : 1);
        if (q->box.use[l] == VP_LEVEL_UNDECIDED && n > 1e-6 && over > 0.5 && over > most) {
            most    = over;
            x->kind = VP_SPLIT_LEVEL;
            x->at   = l;
        }
    }
    if (x->kind == VP_SPLIT_LEVEL)
        return;
    for (int64_t s = 0; s < c->g->n_items; s++)
        x->n_open += is_open(q, s);
    if (x->n_open && (x->open = vp_arena_array(q->arena, x->n_open, sizeof *x->open))) {
        int64_t n = 0;

        for (int64_t s = 0; s < c->g->n_items; s++)
            if (is_open(q, s))
                x->open[n++] = (vp_branch_fraction){.item = s, .x = q->x[s]};
        assert(n == x->n_open);
        q->n_bytes += n * (int64_t)sizeof *x->open;
        return;
    }
    x->n_open = 0;
    /* Whole counts that still leave the bound too low (rounded multipliers, a row broken by less
     * than the LP sees, or no answer of the LP at all): any split that makes both boxes smaller. */
    for (int64_t l = 0; l < c->n_levels; l++)
        for (int64_t s = c->first[l]; s < c->first[l + 1]; s++)
            if (q->box.use[l] == VP_LEVEL_UNDECIDED && q->box.hi[s] > 0 && q->x[s] > 0.5) {
                x->kind = VP_SPLIT_LEVEL;
                x->at   = l;
                return;
            }
    for (int64_t s = 0; s < c->g->n_items; s++)
        if (q->box.lo[s] < q->box.hi[s]) {
            x->kind  = VP_SPLIT_COUNT;
            x->at    = s;
            x->floor = vp_min_i64(vp_max_i64((int64_t)floor(q->x[s] + 0.5), q->box.lo[s]),
                                  q->box.hi[s] - 1);
            return;
        }
    for (int64_t l = 0; l < c->n_levels; l++)
        if (q->box.use[l] == VP_LEVEL_UNDECIDED) {
            x->kind = VP_SPLIT_LEVEL;
            x->at   = l;
            return;
        }
}

/* A box that leaves no choice, or that the cover row alone shows empty: no LP. */
static bool settle(vp_branch_search *q, vp_branch_node *x)
{
    const vp_chain *c     = &q->chains[x->ilp];
    int64_t         least = blocks_of(c, q->box.lo), most = blocks_of(c, q->box.hi), kept = 0;
    const wide      want = (wide)q->infeasible_ns * 1024;

    memset(q->y, 0, (size_t)n_rows(c) * sizeof *q->y);
    if (least > c->g->n_blocks || most < c->g->n_blocks) {
        int64_t off = least > c->g->n_blocks ? least - c->g->n_blocks : c->g->n_blocks - most;
        wide    u   = want / off + 1;

        assert(off > 0 && u > 0);
        if (u > (wide)1 << 60)
            u = (wide)1 << 60;
        q->y[0] = least > c->g->n_blocks ? -(int64_t)u : (int64_t)u;
        return true;
    }
    if (least < most)
        return false;
    if (fits(c, q->box.lo)) { /* its cost is its bound, without multipliers */
        vp_branch_take(q, x->ilp, q->box.lo);
        return true;
    }
    for (int64_t l = 0; l <= c->n_levels; l++) {
        int64_t over, used = 0;

        for (int64_t s = l < c->n_levels ? c->first[l] : c->g->n_items;
             l < c->n_levels && s < c->first[l + 1]; s++) {
            used += q->box.lo[s];
            kept += q->box.lo[s] * c->g->items[s].k_bytes;
        }
        over = kept + (l < c->n_levels ? c->g->items[c->first[l]].beta_bytes : c->g->end_bytes) -
               c->room_bytes;
        if (over <= 0 || (l < c->n_levels && !used))
            continue;
        if (l < c->n_levels && q->box.use[l] == VP_LEVEL_UNDECIDED) {
            x->kind = VP_SPLIT_LEVEL;
            x->at   = l;
        } else {
            wide    u     = (wide)q->infeasible_ns * ((wide)1 << 30) / over + 1;
            int64_t limit = most_u(c);

            q->y[l < c->n_levels ? 2 + l : 1] = u < limit ? (int64_t)u : limit;
        }
        return true;
    }
    return true;
}

bool vp_branch_solve_node(vp_branch_search *q, int64_t id)
{
    vp_branch_node *x     = &q->nodes[id];
    const vp_chain *c     = &q->chains[x->ilp];
    const uint8_t  *basis = x->parent >= 0 ? q->nodes[x->parent].basis : NULL;
    vp_lp_answer    a     = {.x = q->x, .u = q->u};
    vp_lp_end       end;

    assert(!x->solved && x->child < 0);
    x->solved = true;
    find_box(q, id);
    if (box_is_empty(q, c)) {
        x->own_ns = x->bound_ns = VP_EMPTY_NS;
        return true;
    }
    if (settle(q, x))
        return keep_multipliers(q, x);
    if (!q->lps[x->ilp])
        q->lps[x->ilp] = vp_lp_new(q->engine, c);
    if (!q->lps[x->ilp])
        return false;
    a.basis = vp_arena_alloc(q->arena, (size_t)vp_lp_basis_size(q->lps[x->ilp]));
    if (!a.basis)
        return false;
    q->n_bytes += vp_lp_basis_size(q->lps[x->ilp]);
    end = vp_lp_solve(q->lps[x->ilp], &q->box, basis, q->p->max_pivots - q->n_pivots, &a);
    q->n_lps++;
    q->n_work += 1 + vp_lp_size(q->lps[x->ilp]) / STANDARD_LP;
    q->n_nodes_of[x->ilp]++;
    q->n_pivots += a.n_pivots;
    if (end == VP_LP_UNKNOWN) {
        for (int64_t s = 0; s < c->g->n_items; s++)
            q->x[s] = (double)((q->box.lo[s] + q->box.hi[s]) / 2);
        choose_split(q, x);
        return true;
    }
    if (end == VP_LP_INFEASIBLE) {
        scale_ray(q, c);
        for (int64_t s = 0; s < c->g->n_items; s++)
            q->x[s] = (double)((q->box.lo[s] + q->box.hi[s]) / 2);
    } else {
        x->basis = a.basis;
        round_multipliers(q, c);
        round_counts(q, x->ilp);
    }
    if (!keep_multipliers(q, x))
        return false;
    if (x->bound_ns < vp_branch_target_ns(q))
        choose_split(q, x);
    return true;
}

bool vp_branch_first_bound(vp_branch_search *q, int64_t id)
{
    const vp_chain *c     = &q->chains[q->nodes[id].ilp];
    int64_t         least = INT64_MAX;

    assert(q->nodes[id].parent < 0);
    for (int64_t s = 0; s < c->g->n_items; s++)
        least = vp_min_i64(least, c->g->items[s].cost_ns * 1024 / vp_item_blocks(&c->g->items[s]));
    memset(q->y, 0, (size_t)n_rows(c) * sizeof *q->y);
    q->y[0] = least;
    find_box(q, id);
    return keep_multipliers(q, &q->nodes[id]);
}
