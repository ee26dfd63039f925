/* Best-first branch and bound over all programs at once, and the certificate of what it proves.
 * planner/solve/problem.h has the program, the rows and the certificate; README.md here says how
 * nodes are chosen. */
#include "planner/solve/solve_internal.h"

#include "base/checked.h"

#include <assert.h>
#include <math.h>
#include <string.h>

typedef __int128 wide;

enum {
    /* below what the checker walks */
    MAX_DEPTH = 2000,
    /* of the certificate as JSON: a document may have 200,000 (base/json.h) */
    MAX_VALUES = 180000,
    /* ways tried to complete a rounded-down solution */
    MAX_COMBOS = 300,
    /* counts that share what rounding down leaves over */
    MAX_FRACTIONAL = 5,
    /* of one program: then the chain program is asked, which closes it */
    STALLED_NODES = 1000,
    STANDARD_LP =
        10000 /* coefficients; a larger LP counts as more nodes, so that the limit bounds the work */
};

static const int64_t EMPTY = INT64_MAX; /* the bound of a box without any counts */

typedef enum split_kind { SPLIT_NONE, SPLIT_LEVEL, SPLIT_COUNT } split_kind;

typedef struct multiplier {
    int64_t row, u;
} multiplier;

typedef struct fraction {
    int64_t item;
    double  x;
} fraction;

/* What splitting a count has raised the bound by so far, per block of distance to the LP's
 * value; down and up. */
typedef struct history {
    double  sum[2];
    int64_t n[2];
} history;

typedef struct node {
    int64_t    parent; /* -1: a root                                             */
    int64_t    program;
    int64_t    child;     /* the first; the second follows; -1: none                */
    split_kind kind;      /* of this node, where its bound asked for one            */
    int64_t    at, floor; /* level; or count and the most it is in the first child  */
    int64_t    own_ns;    /* what the multipliers prove                             */
    int64_t    bound_ns;  /* the best proved here or above                          */
    int64_t    depth;
    bool       solved;
    /* fractional counts of its LP; one of them is split when the node's turn comes */
    fraction   *open;
    int64_t     n_open;
    multiplier *m; /* ascending rows */
    int64_t     n_m;
    uint8_t    *basis; /* NULL: none */
} node;

typedef struct search {
    const vp_ilp_problem *p;
    vp_arena             *arena;
    vp_lp_engine         *engine;
    vp_chain             *chains;
    vp_lp               **lps;
    int64_t              *n_nodes_of; /* LPs of each program */
    history             **history;    /* per program and item */
    /* per program: what the chain program proves; INT64_MIN: nothing */
    int64_t *chain_ns;
    bool    *asked; /* per program: the chain program                 */
    int64_t  n_asked;
    node    *nodes;
    int64_t  n_nodes, cap_nodes;
    int64_t *heap;
    int64_t  n_heap, cap_heap;
    int64_t  n_lps, n_pivots, n_bytes;
    int64_t  n_work;        /* LPs, large ones counted several times   */
    int64_t  infeasible_ns; /* above what any counts cost               */
    int64_t  best_ns;       /* of the incumbent, or as given             */
    int64_t  best_program;  /* -1: none found                            */
    int64_t *best;
    vp_box   box;
    double  *x, *u;
    int64_t *y, *trial;
    wide    *coef;
    bool     stopped; /* by a limit */
} search;

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

static int64_t sum_of(const int64_t *n, int64_t n_items)
{
    int64_t sum = 0;

    for (int64_t s = 0; s < n_items; s++)
        sum += n[s];
    return sum;
}

/* Take counts that cover the chain as the incumbent if they are cheaper and fit. */
static bool take(search *q, int64_t program, const int64_t *n)
{
    const vp_chain *c    = &q->chains[program];
    int64_t         cost = cost_of(c, n);

    if (cost >= q->best_ns || sum_of(n, c->g->n_items) != c->g->n_blocks || !fits(c, n))
        return false;
    q->best_ns      = cost;
    q->best_program = program;
    memcpy(q->best, n, (size_t)c->g->n_items * sizeof *n);
    return true;
}

/* Exchange one block's item for another's as long as that is cheaper. */
static void improve(search *q)
{
    const int64_t   program = q->best_program;
    const vp_chain *c       = &q->chains[program];
    bool            better  = true;

    while (better) {
        better = false;
        memcpy(q->trial, q->best, (size_t)c->g->n_items * sizeof *q->trial);
        for (int64_t a = 0; a < c->g->n_items; a++) {
            int64_t to = -1;

            if (!q->trial[a])
                continue;
            q->trial[a]--;
            for (int64_t b = 0; b < c->g->n_items; b++) {
                if (c->g->items[b].cost_ns >= c->g->items[a].cost_ns)
                    continue;
                q->trial[b]++;
                if (take(q, program, q->trial))
                    to = b;
                q->trial[b]--;
            }
            q->trial[to >= 0 ? to : a]++;
            better |= to >= 0;
        }
    }
}

/* Hand `left` blocks to the counts who[i..n-1] in every way, up to MAX_COMBOS of them. */
static void distribute(search *q, int64_t program, const int64_t *who, int n, int i, int64_t left,
                       int64_t cost, int *n_combos, bool *found)
{
    const vp_item_row *x = &q->chains[program].g->items[who[i]];

    if (i == n - 1) {
        if (++*n_combos > MAX_COMBOS || cost + left * x->cost_ns >= q->best_ns)
            return;
        q->trial[who[i]] += left;
        *found |= take(q, program, q->trial);
        q->trial[who[i]] -= left;
        return;
    }
    for (int64_t k = left; k >= 0 && *n_combos <= MAX_COMBOS; k--) {
        q->trial[who[i]] += k;
        distribute(q, program, who, n, i + 1, left - k, cost + k * x->cost_ns, n_combos, found);
        q->trial[who[i]] -= k;
    }
}

/* Round the LP's counts down and try ways to give the rest to those that were fractional. */
static void round_counts(search *q, int64_t program)
{
    const vp_chain *c = &q->chains[program];
    int64_t         who[MAX_FRACTIONAL], least = 0, left;
    double          frac[MAX_FRACTIONAL];
    int             n = 0, n_combos = 0;
    bool            found = false;

    for (int64_t s = 0; s < c->g->n_items; s++) {
        double down = floor(q->x[s] + 1e-6), f = q->x[s] - down;
        int    i;

        q->trial[s] = down < 0 ? 0 : (int64_t)down;
        if (c->g->items[s].k_bytes < c->g->items[least].k_bytes)
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
    left = c->g->n_blocks - sum_of(q->trial, c->g->n_items);
    if (left < 0)
        return;
    if (!n)
        who[n++] = least;
    distribute(q, program, who, n, 0, left, cost_of(c, q->trial), &n_combos, &found);
    if (found)
        improve(q);
}

/* ---- bounds ---- */

/* The cheapest a bound may be for the node to need no more work. */
static int64_t target_ns(const search *q)
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
    return (int64_t)1 << (bits > 60 ? 60 : bits < 1 ? 1 : bits);
}

/* The exact bound of integer multipliers over the box in 2^-30 ns, with or without the costs. */
static wide exact_bound(search *q, const vp_chain *c, const int64_t *y, bool with_costs)
{
    const int64_t      n_levels = c->n_levels, n_items = c->g->n_items, n_blocks = c->g->n_blocks;
    const vp_item_row *items = c->g->items;
    /* multipliers of the rows that hold a level's prefix: those of it and all behind it */
    wide       bound, below;
    const wide unit = (wide)1 << 30, block = (wide)1 << 20;

    bound = (with_costs ? c->g->const_ns * unit : 0) + y[0] * block * n_blocks -
            (wide)y[1] * (c->room_bytes - c->g->end_bytes);
    below = y[1];
    for (int64_t l = n_levels - 1; l >= 0; l--) {
        wide own = -y[0] * block;

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
            q->coef[s] =
                own + below * items[s].k_bytes + (with_costs ? items[s].cost_ns * unit : 0);
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
static bool is_row(const search *q, const vp_chain *c, int64_t r)
{
    if (r < 2)
        return true;
    if (r < 2 + c->n_levels)
        return q->box.use[r - 2] != VP_LEVEL_UNUSED;
    return q->box.use[r - 2 - c->n_levels] == VP_LEVEL_USED;
}

/* Multipliers of the optimum of the LP, as integers in q->y. */
static void round_multipliers(search *q, const vp_chain *c)
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
static void scale_ray(search *q, const vp_chain *c)
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

        if (y && limit / y < factor)
            factor = limit / y;
    }
    if (want < factor)
        factor = (int64_t)want;
    for (int64_t r = 0; r < n_rows(c); r++)
        q->y[r] *= factor;
}

/* ---- nodes ---- */

static bool better(const search *q, int64_t a, int64_t b)
{
    return q->nodes[a].bound_ns != q->nodes[b].bound_ns
               ? q->nodes[a].bound_ns < q->nodes[b].bound_ns
               : a < b;
}

static void swap_heap(search *q, int64_t i, int64_t j)
{
    int64_t t = q->heap[i];

    q->heap[i] = q->heap[j];
    q->heap[j] = t;
}

static bool push(search *q, int64_t id)
{
    int64_t i = q->n_heap;

    if (!vp_arena_grow(q->arena, (void **)&q->heap, q->n_heap, &q->cap_heap, sizeof *q->heap))
        return false;
    q->heap[q->n_heap++] = id;
    for (; i && better(q, q->heap[i], q->heap[(i - 1) / 2]); i = (i - 1) / 2)
        swap_heap(q, i, (i - 1) / 2);
    return true;
}

static int64_t pop(search *q)
{
    int64_t id = q->heap[0], i = 0;

    q->heap[0] = q->heap[--q->n_heap];
    for (;;) {
        int64_t least = i;

        for (int64_t j = 2 * i + 1; j <= 2 * i + 2 && j < q->n_heap; j++)
            if (better(q, q->heap[j], q->heap[least]))
                least = j;
        if (least == i)
            return id;
        swap_heap(q, i, least);
        i = least;
    }
}

/* The box at a node, from the splits above it. */
static void find_box(search *q, int64_t id)
{
    const vp_chain *c = &q->chains[q->nodes[id].program];

    for (int64_t s = 0; s < c->g->n_items; s++) {
        q->box.lo[s] = 0;
        q->box.hi[s] = c->g->n_blocks;
    }
    for (int64_t l = 0; l < c->n_levels; l++)
        q->box.use[l] = VP_LEVEL_UNDECIDED;
    for (int64_t at = id; q->nodes[at].parent >= 0; at = q->nodes[at].parent) {
        const node *up     = &q->nodes[q->nodes[at].parent];
        bool        second = at != up->child;

        if (up->kind == SPLIT_LEVEL)
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

static bool box_is_empty(const search *q, const vp_chain *c)
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
static bool keep_multipliers(search *q, node *x)
{
    const vp_chain *c  = &q->chains[x->program];
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
            x->m[x->n_m++] = (multiplier){.row = r, .u = q->y[r]};
    x->own_ns   = ns;
    x->bound_ns = vp_max_i64(x->bound_ns, x->own_ns);
    q->n_bytes += n * (int64_t)sizeof *x->m;
    return true;
}

/* Whether the LP's count of an item is fractional, inside its bounds. */
static bool is_open(const search *q, int64_t s)
{
    double down = floor(q->x[s]), f = q->x[s] - down;

    return f > 1e-6 && f < 1 - 1e-6 && down >= (double)q->box.lo[s] && down < (double)q->box.hi[s];
}

/* Mean of what a split of the item has brought in one direction; without any, of what any item's
 * has. */
static double raised_per_block(const history *h, int64_t n_items, int64_t item, int up)
{
    double  sum = 0;
    int64_t n   = 0;

    if (h[item].n[up])
        return h[item].sum[up] / (double)h[item].n[up];
    for (int64_t s = 0; s < n_items; s++) {
        sum += h[s].sum[up];
        n += h[s].n[up];
    }
    return n ? sum / (double)n : 1;
}

/* Of the fractional counts the one whose two children promise most, by the product of what they
 * may raise the bound. */
static bool choose_count(search *q, int64_t id)
{
    node         *x    = &q->nodes[id];
    const int64_t n    = q->chains[x->program].g->n_items;
    history     **h    = &q->history[x->program];
    double        most = -1;

    if (!*h && !(*h = vp_arena_array(q->arena, n, sizeof **h)))
        return false;
    for (int64_t i = 0; i < x->n_open; i++) {
        double f     = x->open[i].x - floor(x->open[i].x);
        double down  = raised_per_block(*h, n, x->open[i].item, 0) * f;
        double up    = raised_per_block(*h, n, x->open[i].item, 1) * (1 - f);
        double score = (down > 1e-3 ? down : 1e-3) * (up > 1e-3 ? up : 1e-3);

        if (score > most) {
            most     = score;
            x->kind  = SPLIT_COUNT;
            x->at    = x->open[i].item;
            x->floor = (int64_t)floor(x->open[i].x);
        }
    }
    return true;
}

/* Remember what a split of a count has brought in the direction of one child: no more than there
 * was need for. */
static void note_raise(search *q, int64_t child)
{
    const node *y = &q->nodes[child], *x = &q->nodes[y->parent];
    const int   up    = child != x->child;
    double      raise = (double)(vp_min_i64(y->bound_ns, target_ns(q)) - x->bound_ns);

    for (int64_t i = 0; y->solved && x->kind == SPLIT_COUNT && i < x->n_open; i++)
        if (x->open[i].item == x->at) {
            double   f = x->open[i].x - floor(x->open[i].x);
            history *h = &q->history[x->program][x->at];

            h->sum[up] += (raise > 0 ? raise : 0) / (up ? 1 - f : f);
            h->n[up]++;
        }
}

/* Where to split: the undecided level whose row the counts break most, else one of the
 * fractional counts, chosen later. */
static void choose_split(search *q, node *x)
{
    const vp_chain *c      = &q->chains[x->program];
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
            x->kind = SPLIT_LEVEL;
            x->at   = l;
        }
    }
    if (x->kind == SPLIT_LEVEL)
        return;
    for (int64_t s = 0; s < c->g->n_items; s++)
        x->n_open += is_open(q, s);
    if (x->n_open && (x->open = vp_arena_array(q->arena, x->n_open, sizeof *x->open))) {
        int64_t n = 0;

        for (int64_t s = 0; s < c->g->n_items; s++)
            if (is_open(q, s))
                x->open[n++] = (fraction){.item = s, .x = q->x[s]};
        q->n_bytes += n * (int64_t)sizeof *x->open;
        return;
    }
    x->n_open = 0;
    /* Whole counts that still leave the bound too low (rounded multipliers, a row broken by less
     * than the LP sees, or no answer of the LP at all): any split that makes both boxes smaller. */
    for (int64_t l = 0; l < c->n_levels; l++)
        for (int64_t s = c->first[l]; s < c->first[l + 1]; s++)
            if (q->box.use[l] == VP_LEVEL_UNDECIDED && q->box.hi[s] > 0 && q->x[s] > 0.5) {
                x->kind = SPLIT_LEVEL;
                x->at   = l;
                return;
            }
    for (int64_t s = 0; s < c->g->n_items; s++)
        if (q->box.lo[s] < q->box.hi[s]) {
            x->kind  = SPLIT_COUNT;
            x->at    = s;
            x->floor = vp_min_i64(vp_max_i64((int64_t)floor(q->x[s] + 0.5), q->box.lo[s]),
                                  q->box.hi[s] - 1);
            return;
        }
    for (int64_t l = 0; l < c->n_levels; l++)
        if (q->box.use[l] == VP_LEVEL_UNDECIDED) {
            x->kind = SPLIT_LEVEL;
            x->at   = l;
            return;
        }
}

/* A box that leaves no choice, or that the cover row alone shows empty: no LP. */
static bool settle(search *q, node *x)
{
    const vp_chain *c = &q->chains[x->program];
    int64_t least = sum_of(q->box.lo, c->g->n_items), most = sum_of(q->box.hi, c->g->n_items),
            kept    = 0;
    const wide want = (wide)q->infeasible_ns * 1024;

    memset(q->y, 0, (size_t)n_rows(c) * sizeof *q->y);
    if (least > c->g->n_blocks || most < c->g->n_blocks) {
        int64_t off = least > c->g->n_blocks ? least - c->g->n_blocks : c->g->n_blocks - most;
        wide    u   = want / off + 1;

        if (u > (wide)1 << 60)
            u = (wide)1 << 60;
        q->y[0] = least > c->g->n_blocks ? -(int64_t)u : (int64_t)u;
        return true;
    }
    if (least < most)
        return false;
    if (fits(c, q->box.lo)) { /* its cost is its bound, without multipliers */
        take(q, x->program, q->box.lo);
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
            x->kind = SPLIT_LEVEL;
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

static bool solve_node(search *q, int64_t id)
{
    node           *x     = &q->nodes[id];
    const vp_chain *c     = &q->chains[x->program];
    const uint8_t  *basis = x->parent >= 0 ? q->nodes[x->parent].basis : NULL;
    vp_lp_answer    a     = {.x = q->x, .u = q->u};
    vp_lp_end       end;

    x->solved = true;
    find_box(q, id);
    if (box_is_empty(q, c)) {
        x->own_ns = x->bound_ns = EMPTY;
        return true;
    }
    if (settle(q, x))
        return keep_multipliers(q, x);
    if (!q->lps[x->program])
        q->lps[x->program] = vp_lp_new(q->engine, c);
    if (!q->lps[x->program])
        return false;
    a.basis = vp_arena_alloc(q->arena, (size_t)vp_lp_basis_size(q->lps[x->program]));
    if (!a.basis)
        return false;
    q->n_bytes += vp_lp_basis_size(q->lps[x->program]);
    end = vp_lp_solve(q->lps[x->program], &q->box, basis, q->p->max_pivots - q->n_pivots, &a);
    q->n_lps++;
    q->n_work += 1 + vp_lp_size(q->lps[x->program]) / STANDARD_LP;
    q->n_nodes_of[x->program]++;
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
        round_counts(q, x->program);
    }
    if (!keep_multipliers(q, x))
        return false;
    if (x->bound_ns < target_ns(q))
        choose_split(q, x);
    return true;
}

static int64_t add_node(search *q, int64_t parent, int64_t program)
{
    if (!vp_arena_grow(q->arena, (void **)&q->nodes, q->n_nodes, &q->cap_nodes, sizeof *q->nodes))
        return -1;
    q->nodes[q->n_nodes] = (node){.parent   = parent,
                                  .program  = program,
                                  .child    = -1,
                                  .own_ns   = INT64_MIN,
                                  .bound_ns = INT64_MIN};
    if (parent >= 0) {
        q->nodes[q->n_nodes].depth    = q->nodes[parent].depth + 1;
        q->nodes[q->n_nodes].bound_ns = q->nodes[parent].bound_ns;
    }
    q->n_bytes += (int64_t)sizeof(node);
    return q->n_nodes++;
}

/* A root's first bound needs no LP: every block costs at least what the cheapest item costs. */
static bool add_root(search *q, int64_t program)
{
    const vp_chain *c  = &q->chains[program];
    int64_t         id = add_node(q, -1, program), least = c->g->items[0].cost_ns;

    if (id < 0)
        return false;
    for (int64_t s = 1; s < c->g->n_items; s++)
        least = vp_min_i64(least, c->g->items[s].cost_ns);
    memset(q->y, 0, (size_t)n_rows(c) * sizeof *q->y);
    q->y[0] = least * 1024;
    find_box(q, id);
    return keep_multipliers(q, &q->nodes[id]) && push(q, id);
}

static bool work_is_left(search *q)
{
    if (q->n_work >= q->p->max_nodes || q->n_pivots >= q->p->max_pivots)
        return false;
    /* A third for the search: the certificate needs memory too, and the arena doubles. */
    return !q->p->max_memory_bytes ||
           q->n_bytes + vp_lp_engine_bytes(q->engine) < q->p->max_memory_bytes / 3;
}

/* When one program takes this many nodes the chain program says what its optimum is, or that it
 * has nothing to offer. */
static void ask_frontier(search *q, int64_t program)
{
    const int64_t upper_ns = target_ns(q);
    int64_t       cost_ns;

    if (q->n_nodes_of[program] < STALLED_NODES || q->asked[program] ||
        q->n_asked >= VP_MAX_CHAIN_PROOFS)
        return;
    q->asked[program] = true;
    q->n_asked++;
    switch (vp_dp_solve(q->chains[program].g, q->p->budget_bytes, upper_ns, VP_CHAIN_PROOF_STATES,
                        q->trial, &cost_ns)) {
    case VP_DP_FOUND:
        take(q, program, q->trial);
        q->chain_ns[program] = cost_ns;
        break;
    case VP_DP_NONE:
        q->chain_ns[program] = upper_ns;
        break;
    case VP_DP_TOO_LARGE:
        break;
    }
}

/* What is proved of a node, by multipliers or by the frontier. */
static int64_t bound_of(const search *q, int64_t id)
{
    return vp_max_i64(q->nodes[id].bound_ns, q->chain_ns[q->nodes[id].program]);
}

/* False when the host has no memory left: what was proved until then stands. */
static bool run(search *q)
{
    while (q->n_heap) {
        int64_t id = pop(q), first;

        if (q->nodes[id].bound_ns >= target_ns(q) || !work_is_left(q))
            return push(q, id);
        ask_frontier(q, q->nodes[id].program);
        if (q->nodes[id].bound_ns < bound_of(q, id)) {
            q->nodes[id].bound_ns = bound_of(q, id);
            if (!push(q, id))
                return false;
            continue;
        }
        if (!q->nodes[id].solved) {
            if (!solve_node(q, id) || !push(q, id))
                return false;
            continue;
        }
        if (q->nodes[id].n_open && !choose_count(q, id))
            return false;
        if (q->nodes[id].kind == SPLIT_NONE || q->nodes[id].depth >= MAX_DEPTH)
            return push(q, id); /* nothing can raise this bound, and it is the lowest */
        if ((first = add_node(q, id, q->nodes[id].program)) < 0 ||
            add_node(q, id, q->nodes[id].program) < 0)
            return false;
        q->nodes[id].child = first;
        for (int64_t child = first; child <= first + 1; child++) {
            if ((work_is_left(q) && !solve_node(q, child)) || !push(q, child))
                return false;
            note_raise(q, child);
        }
    }
    return true;
}

/* ---- the certificate ---- */

/* The lowest bound of the nodes that were not split. */
static int64_t proved_ns(const search *q)
{
    int64_t least = INT64_MAX;

    for (int64_t i = 0; i < q->n_nodes; i++)
        if (q->nodes[i].child < 0)
            least = vp_min_i64(least, bound_of(q, i));
    return least;
}

/* Whether a program's tree is cut at its root because the frontier proves the cutoff. */
static bool by_frontier(const search *q, int64_t id, int64_t cutoff_ns)
{
    return q->nodes[id].parent < 0 && q->nodes[id].own_ns < cutoff_ns &&
           q->chain_ns[q->nodes[id].program] >= cutoff_ns;
}

/* JSON values of the subtree at a node, cut where the bound reaches the cutoff. */
static int64_t n_values(const search *q, int64_t id, int64_t cutoff_ns)
{
    const node *x = &q->nodes[id];

    if (x->own_ns == EMPTY || by_frontier(q, id, cutoff_ns))
        return 2;
    if (x->own_ns >= cutoff_ns || x->child < 0)
        return 2 + 3 * x->n_m;
    return 4 + n_values(q, x->child, cutoff_ns) + n_values(q, x->child + 1, cutoff_ns);
}

static int64_t n_values_all(const search *q, int64_t cutoff_ns)
{
    int64_t n = 1;

    for (int64_t i = 0; i < q->p->n_programs; i++)
        n += 1 + n_values(q, i, cutoff_ns);
    return n;
}

static bool write_tree(const search *q, int64_t id, int64_t cutoff_ns, json_t *tree)
{
    const node *x = &q->nodes[id];
    json_t     *leaf;

    if (x->own_ns == EMPTY || by_frontier(q, id, cutoff_ns))
        return !json_array_append_new(tree, json_pack("[i]", x->own_ns == EMPTY ? 3 : 4));
    if (x->own_ns < cutoff_ns && x->child >= 0) {
        json_t *split = x->kind == SPLIT_LEVEL
                            ? json_pack("[iI]", 1, (json_int_t)x->at)
                            : json_pack("[iII]", 2, (json_int_t)x->at, (json_int_t)x->floor);

        return !json_array_append_new(tree, split) && write_tree(q, x->child, cutoff_ns, tree) &&
               write_tree(q, x->child + 1, cutoff_ns, tree);
    }
    leaf = json_pack("[i]", 0);
    for (int64_t i = 0; i < x->n_m; i++)
        if (json_array_append_new(
                leaf, json_pack("[II]", (json_int_t)x->m[i].row, (json_int_t)x->m[i].u))) {
            json_decref(leaf);
            return false;
        }
    return !json_array_append_new(tree, leaf);
}

/* Set the cutoff, lower than what was proved if the certificate would be too large otherwise,
 * and write it. */
static bool write_certificate(const search *q, vp_ilp_solution *out)
{
    int64_t high = vp_min_i64(proved_ns(q), q->best_ns), low;

    high = vp_min_i64(high, q->infeasible_ns);
    if (n_values_all(q, high) > MAX_VALUES) {
        low = high;
        for (int64_t i = 0; i < q->p->n_programs; i++)
            low = vp_min_i64(low, vp_max_i64(q->nodes[i].own_ns, q->chain_ns[i]));
        while (low + 1 < high) {
            int64_t mid = low + (high - low) / 2;

            if (n_values_all(q, mid) > MAX_VALUES)
                high = mid;
            else
                low = mid;
        }
        high = low;
    }
    out->cutoff_ns   = high;
    out->certificate = json_array();
    for (int64_t i = 0; out->certificate && i < q->p->n_programs; i++) {
        json_t *tree = json_array();

        if (json_array_append_new(out->certificate, tree) || !write_tree(q, i, high, tree)) {
            json_decref(out->certificate);
            out->certificate = NULL;
        }
    }
    return out->certificate;
}

/* ---- */

static bool set_chain(vp_arena *arena, const vp_ilp_problem *p, const vp_ilp_program *g,
                      vp_chain *c)
{
    *c          = (vp_chain){.g = g, .room_bytes = p->budget_bytes - g->base_bytes};
    c->level_of = vp_arena_array(arena, g->n_items, sizeof *c->level_of);
    c->first    = vp_arena_array(arena, g->n_items + 1, sizeof *c->first);
    if (!c->level_of || !c->first)
        return false;
    for (int64_t s = 0; s < g->n_items; s++) {
        if (!s || g->items[s].beta_bytes != g->items[s - 1].beta_bytes)
            c->first[c->n_levels++] = s;
        c->level_of[s] = c->n_levels - 1;
    }
    c->first[c->n_levels] = g->n_items;
    return true;
}

vp_status vp_branch_solve(vp_arena *arena, const vp_ilp_problem *p, vp_ilp_solution *out,
                          vp_err *err)
{
    const int64_t rows = 2 + 2 * VP_MAX_ITEMS;
    search        q    = {.p = p, .arena = arena, .best_ns = p->upper_ns, .best_program = -1};
    vp_status     st   = VP_OK;

    *out     = (vp_ilp_solution){.cutoff_ns = INT64_MIN};
    q.engine = vp_lp_engine_new(p->max_memory_bytes);
    VP_TRY_ALLOC(err, q.engine);
    q.chains     = vp_arena_array(arena, p->n_programs, sizeof *q.chains);
    q.lps        = vp_arena_array(arena, p->n_programs, sizeof *q.lps);
    q.n_nodes_of = vp_arena_array(arena, p->n_programs, sizeof *q.n_nodes_of);
    q.history    = vp_arena_array(arena, p->n_programs, sizeof *q.history);
    q.chain_ns   = vp_arena_array(arena, p->n_programs, sizeof *q.chain_ns);
    q.asked      = vp_arena_array(arena, p->n_programs, sizeof *q.asked);
    q.best       = vp_arena_array(arena, VP_MAX_ITEMS, sizeof *q.best);
    q.trial      = vp_arena_array(arena, VP_MAX_ITEMS, sizeof *q.trial);
    q.box.lo     = vp_arena_array(arena, VP_MAX_ITEMS, sizeof *q.box.lo);
    q.box.hi     = vp_arena_array(arena, VP_MAX_ITEMS, sizeof *q.box.hi);
    q.box.use    = vp_arena_array(arena, VP_MAX_ITEMS, sizeof *q.box.use);
    q.x          = vp_arena_array(arena, VP_MAX_ITEMS, sizeof *q.x);
    q.u          = vp_arena_array(arena, rows, sizeof *q.u);
    q.y          = vp_arena_array(arena, rows, sizeof *q.y);
    q.coef       = vp_arena_array(arena, VP_MAX_ITEMS, sizeof *q.coef);
    VP_TRY_ALLOC(err, !vp_arena_failed(arena));
    for (int64_t i = 0; i < p->n_programs; i++) {
        const vp_ilp_program *g    = &p->programs[i];
        int64_t               most = 0;

        q.chain_ns[i] = INT64_MIN;
        VP_TRY_ALLOC(err, set_chain(arena, p, g, &q.chains[i]));
        for (int64_t s = 0; s < g->n_items; s++)
            most = vp_max_i64(most, g->items[s].cost_ns);
        q.infeasible_ns = vp_max_i64(q.infeasible_ns, g->const_ns + g->n_blocks * most + 1);
    }
    /* what is known already may cost more than any counts of these programs: a box without a
     * solution must be proved that far, or it stays open below the target */
    if (p->upper_ns != INT64_MAX)
        q.infeasible_ns = vp_max_i64(q.infeasible_ns, p->upper_ns);
    for (int64_t i = 0; i < p->n_programs; i++)
        VP_TRY_ALLOC(err, add_root(&q, i));
    run(&q); /* out of memory ends it as a limit does */
    VP_TRY_ALLOC(err, write_certificate(&q, out));
    out->found       = q.best_program >= 0;
    out->program_idx = out->found ? q.best_program : 0;
    out->counts      = q.best;
    out->n_nodes     = q.n_lps;
    out->n_pivots    = q.n_pivots;
out:
    vp_lp_engine_free(q.engine);
    return st;
}
