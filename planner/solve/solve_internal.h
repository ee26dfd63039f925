/* planner/solve/solve_internal.h: what the search of vplan-solve asks of its LP engine.
 *     vp_lp_engine *engine = vp_lp_engine_new(max_memory_bytes);
 *     vp_lp        *lp     = vp_lp_new(engine, &chain);
 *     if (vp_lp_solve(lp, &box, NULL, max_pivots, &answer) == VP_LP_OPTIMAL) ... answer.x, answer.u
 *
 * Everything that comes back is floating point and only a suggestion: branch_node.c rounds the
 * multipliers to integers and computes the bound they prove itself. */
#ifndef VP_PLANNER_SOLVE_INTERNAL_H
#define VP_PLANNER_SOLVE_INTERNAL_H

#include "base/arena.h"
#include "base/err.h"
#include "planner/solve/problem.h"

#include <stdbool.h>
#include <stdint.h>

/* An integer program and its levels. */
typedef struct vp_chain {
    const vp_ilp *g;
    int64_t       room_bytes; /* budget - base                                 */
    int64_t       n_levels;
    int64_t      *level_of; /* per item                                      */
    int64_t      *first;    /* per level its first item; [n_levels] = n_items */
} vp_chain;

typedef enum vp_level_use { VP_LEVEL_UNDECIDED, VP_LEVEL_UNUSED, VP_LEVEL_USED } vp_level_use;

/* A node's part of its integer program. hi of an unused level's items is 0. */
typedef struct vp_box {
    int64_t      *lo, *hi; /* per item  */
    vp_level_use *use;     /* per level */
} vp_box;

typedef enum vp_lp_end {
    VP_LP_OPTIMAL,    /* x and u                                                          */
    VP_LP_INFEASIBLE, /* u: multipliers that prove it when the costs are left out, x is not set */
    VP_LP_UNKNOWN     /* nothing: limit, numerical trouble, out of memory                 */
} vp_lp_end;

typedef struct vp_lp_answer {
    double *x; /* per item                                                          */
    /* per row as numbered in planner/solve/problem.h: ns a byte, or ns a block */
    double *u;
    /* vp_lp_basis_size() bytes */
    uint8_t *basis;
    int64_t  n_pivots;
} vp_lp_answer;

typedef struct vp_lp_engine vp_lp_engine;
typedef struct vp_lp        vp_lp;

/* NULL: out of memory. One at a time: GLPK keeps its state in the thread. Frees its LPs. */
vp_lp_engine *vp_lp_engine_new(int64_t max_memory_bytes);
void          vp_lp_engine_free(vp_lp_engine *engine);
int64_t       vp_lp_engine_bytes(const vp_lp_engine *engine);

/* NULL: out of memory. chain is borrowed as long as the engine lives. */
vp_lp  *vp_lp_new(vp_lp_engine *engine, const vp_chain *chain);
int64_t vp_lp_basis_size(const vp_lp *lp);

/* Coefficients: what an LP costs before its first pivot is proportional to it. */
int64_t vp_lp_size(const vp_lp *lp);

/* Solve the relaxation over a box that is not empty, from a basis of the same integer program, or from
 * scratch. */
vp_lp_end vp_lp_solve(vp_lp *lp, const vp_box *box, const uint8_t *basis, int64_t max_pivots,
                      vp_lp_answer *out);

/* Best-first branch and bound over all integer programs of the problem. VP_OK also when a limit stopped
 * it: the solution says what was found and proved until then. counts live in arena, the
 * certificate is a new reference. */
vp_status vp_branch_solve(vp_arena *arena, const vp_ilp_problem *p, vp_ilp_solution *out,
                          vp_err *err);

/* The whole problem as one integer program in GLPK's own branch and bound, for at most max_s
 * seconds (monolithic.c). VP_OK however it ended. Keeps max_nodes, max_pivots and
 * max_memory_bytes of the problem, not its upper_ns or gap. */
vp_status vp_monolithic_solve(vp_arena *arena, const vp_ilp_problem *p, double max_s,
                              vp_monolithic *out, vp_err *err);

#endif
