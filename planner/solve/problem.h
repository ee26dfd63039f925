/* planner/solve/problem.h: the choice of strategies as an integer program, and the proof of a bound
 * on it.
 *
 * One *integer program* (vp_ilp) is one scenario (micro-batch, loss chunk, ...) of a chain of L equal blocks: how
 * often it uses which strategy (*item*). Everything else about the scenario is constant. An item is for
 * m_s blocks in a row: one, or those of a segment. It
 * keeps k bytes from its forward to its backward and needs at most beta bytes above what is kept so
 * far, its own k included, while it runs; it costs t nanoseconds a micro-step. Items stand in the
 * chain in descending beta (planning by counts is exact then: exchanging two neighbours that are
 * not in that order never raises the peak). With counts n_s, items in descending beta, levels = the
 * distinct values of beta:
 *
 *     minimise   const_ns + sum_s cost_ns_s n_s                          integer nanoseconds
 *     cover      sum_s m_s n_s = L
 *     level l    base + sum_{s: beta_s >= beta_l} k_s n_s + beta_l <= B    for every level that is
 *                used
 *     end        base + sum_s k_s n_s + end_bytes <= B                     the head, above all that
 *                is kept
 *
 * base is what lies below the first block. A level nobody uses has no row. While a level is
 * undecided the row L (base + sum_{s: beta_s >= beta_l} k_s n_s) + beta_l sum_{s in l} n_s <= L B
 * is valid for it.
 *
 * A *certificate* for a cutoff proves that no integer program has a solution cheaper than cutoff_ns. It is,
 * integer program by integer program, a tree in preorder:
 *
 *     [1, l]          level l: first the tree where no block uses it (its n_s = 0), then where one
 *                     does (sum n_s >= 1, its row)
 *     [2, s, f]       count s: first the tree with n_s <= f, then with n_s >= f + 1
 *     [0, [r, u], ..] leaf: multipliers u of rows r; the bound they give is at least the cutoff
 *     [3]             leaf: the bounds on some count, or of a whole level, are empty
 *     [4]             the whole tree of an integer program: no chain of blocks is cheaper than the
 *                     cutoff, which the checker finds out for itself (at most VP_MAX_CHAIN_PROOFS of a certificate)
 *
 * Rows at a leaf are numbered: 0 cover; 1 end; 2 + l level l (its used or undecided row; none where
 * unused); 2 + n_levels + l "level l is used" (only there). Multipliers are integers: of rows in
 * bytes in units of 2^-30 ns a byte, of rows in blocks in units of 2^-10 ns. For any multipliers u
 * >= 0 of "<=" and ">=" rows (a negative one counts as 0) and any of the equality,
 *
 *     bound = const + sum_r u_r (lhs excess)  =  minimum over the box lo <= n <= hi of
 *             const + sum_s cost_s n_s + u_0 (L - sum m n) + sum_{<= rows} u_r (a_r n - b_r) +
 *             sum_{>= rows} u_r (b_r - a_r n)
 *
 * is a lower bound, evaluated exactly in 128-bit integers: nothing the solver says is trusted.
 * Costs are whole nanoseconds, so a bound above cutoff_ns - 1 proves cutoff_ns. */
#ifndef VP_PLANNER_SOLVE_PROBLEM_H
#define VP_PLANNER_SOLVE_PROBLEM_H

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct vp_item_row {
    /* cost over all micro-steps of an optimizer step */
    int64_t k_bytes, beta_bytes, cost_ns;
    int64_t n_more; /* blocks beside the first: m - 1 */
} vp_item_row;

/* The blocks that an item is for: m. */
static inline int64_t vp_item_blocks(const vp_item_row *item)
{
    return 1 + item->n_more;
}

/* The lower convex hull of items' (k, cost) a block: what blocks of so many bytes each cost at least. */
typedef struct vp_ilp_hull vp_ilp_hull;

/* One scenario's integer program. A plan's vp_program (plan/plan.h) is something else: lowered
 * steps. In the pipe's documents the key is "programs". */
typedef struct vp_ilp {
    int64_t      n_blocks;   /* L >= 1                                              */
    int64_t      base_bytes; /* persistent bytes and what is kept before the blocks */
    int64_t      end_bytes;  /* the head's need above all that is kept              */
    int64_t      const_ns;   /* everything but the blocks' cost_ns                  */
    vp_item_row *items;      /* in descending beta, then ascending k                */
    int64_t      n_items;    /* 1 .. VP_MAX_ITEMS                                   */
    /* of the items, for vp_dp_bound(); NULL: it works it out */
    const vp_ilp_hull *hull;
} vp_ilp;

/* States of the chain program (vp_dp_solve()). One that takes more is not cited in a certificate; the checker, which knows less,
 * may take more. */
enum { VP_MAX_CHAIN_PROOFS = 8, VP_CHAIN_PROOF_STATES = 1000000, VP_CHAIN_CHECK_STATES = 20000000 };

enum { VP_MAX_ITEMS = 512, VP_MAX_ILPS = 4096, VP_MAX_BLOCKS = 100000, VP_MAX_ITEM_BLOCKS = 128 };

typedef struct vp_ilp_problem {
    int64_t budget_bytes;
    /* cost of the best plan known: nothing above is wanted; INT64_MAX: none known */
    int64_t upper_ns;
    /* wanted: stop when the bound is within this fraction of the best */
    double gap;
    /* counted work, so that the same input gives the same output */
    int64_t max_nodes, max_pivots, max_memory_bytes;
    vp_ilp *ilps;
    int64_t n_ilps;
} vp_ilp_problem;

typedef struct vp_ilp_solution {
    bool     found; /* something cheaper than upper_ns                   */
    int64_t  ilp_idx;
    int64_t *counts;      /* per item of that one                              */
    int64_t  cutoff_ns;   /* what the certificate proves; INT64_MIN: nothing   */
    json_t  *certificate; /* array: one tree for each of them; new reference   */
    int64_t  n_nodes, n_pivots;
} vp_ilp_solution;

/* The same choice as one integer program without levels, counts or a canonical order, solved by
 * glp_intopt: an oracle for small models (planner/solve/monolithic.c). */
typedef enum vp_monolithic_end {
    VP_MONOLITHIC_OPTIMAL,
    VP_MONOLITHIC_INFEASIBLE,
    VP_MONOLITHIC_LIMIT,   /* nodes, pivots or seconds came first */
    VP_MONOLITHIC_REFUSED, /* more columns than it takes          */
    VP_MONOLITHIC_FAILED,  /* GLPK gave no answer                 */
    VP_N_MONOLITHIC_ENDS
} vp_monolithic_end;

typedef struct vp_monolithic {
    vp_monolithic_end end;
    bool              found;
    int64_t           ilp_idx, cost_ns;
    int64_t          *items; /* of each block, in chain order; -1: the one before goes on */
    int64_t           n_columns, n_rows;
    int64_t           n_nodes; /* GLPK's, those it never solved included        */
} vp_monolithic;

/* The pipe's documents. Of programs with the same items, as most are, the first has them and the others its number,
 * "items_of". Reading checks every number's range; VP_ERR_INPUT otherwise. What is read lives in arena. */
json_t   *vp_ilp_problem_to_json(const vp_ilp_problem *p);
vp_status vp_ilp_problem_from_json(vp_arena *arena, const vp_json_node *root, vp_ilp_problem *out,
                                   vp_err *err);
json_t   *vp_ilp_solution_to_json(const vp_ilp_solution *s, const vp_ilp_problem *p);
vp_status vp_ilp_solution_from_json(vp_arena *arena, const vp_json_node *root,
                                    const vp_ilp_problem *p, vp_ilp_solution *out, vp_err *err);

json_t     *vp_monolithic_to_json(const vp_monolithic *m, const vp_ilp_problem *p);
vp_status   vp_monolithic_from_json(vp_arena *arena, const vp_json_node *root,
                                    const vp_ilp_problem *p, vp_monolithic *out, vp_err *err);
const char *vp_monolithic_end_name(vp_monolithic_end end);

/* Cost and feasibility of counts, row by row as above; shares no code with the solver. */
bool vp_ilp_evaluate(const vp_ilp_problem *p, int64_t ilp_idx, const int64_t *counts,
                     int64_t *cost_ns);

/* Whether the certificate proves that every solution of every integer program costs at least cutoff_ns.
 * Knows nothing of how it was made; takes any JSON. planner/solve/certificate.c. */
bool vp_certificate_proves(const vp_ilp_problem *p, const json_t *certificate, int64_t cutoff_ns);

/* Whether no counts within the budget cost less than cutoff_ns, found by going through chains block
 * by block, planner/solve/chain_check.c. False also where that takes more than *n_states_left
 * chains, from which those that it takes are counted off, or more memory than there is. NULL: only
 * what a price of a byte proves at once. */
bool vp_chain_proves(const vp_ilp *ilp, int64_t budget_bytes, int64_t cutoff_ns,
                     int64_t *n_states_left);

typedef enum vp_dp_end { VP_DP_FOUND, VP_DP_NONE, VP_DP_TOO_LARGE } vp_dp_end;

/* The *chain program*: exact optimum of one integer program by dynamic programming over the chain (no ILP),
 * planner/solve/chain_dp.c.
 *   VP_DP_FOUND      the least cost within the budget is *cost_ns, less than upper_ns, and
 *                    counts[n_items] cost that
 *   VP_DP_NONE       there are no counts within the budget that cost less than upper_ns
 *   VP_DP_TOO_LARGE  to say which takes more than max_states partial chains, or more memory than
 *                    there is */
vp_dp_end vp_dp_solve(const vp_ilp *ilp, int64_t budget_bytes, int64_t upper_ns, int64_t max_states,
                      int64_t *counts, int64_t *cost_ns);

/* What counts within the budget cost at least, at once: from the lower convex hull of the items'
 * (k, cost). False: none fit. */
bool vp_dp_bound(const vp_ilp *ilp, int64_t budget_bytes, int64_t *bound_ns);

/* Of an integer program's items, for bounds at many budgets. NULL: out of memory. */
const vp_ilp_hull *vp_ilp_hull_make(vp_arena *arena, const vp_ilp *ilp);

#endif
