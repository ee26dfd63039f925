/* planner/solve/branch.h: the state of vplan-solve's search, and what is done at one of its nodes.
 *
 * branch.c holds the tree: which node is next, when an integer program has stalled, when a limit
 * ends the search, and the certificate. branch_node.c knows one node at a time: the box its splits
 * leave, its linear program, the bound that rounded multipliers prove, whole counts near the LP's,
 * and where to split. It is given a search and the number of a node, and never chooses the next. */
#ifndef VP_PLANNER_SOLVE_BRANCH_H
#define VP_PLANNER_SOLVE_BRANCH_H

#include "planner/solve/solve_internal.h"

/* The bound of a box without any counts. */
#define VP_EMPTY_NS INT64_MAX

typedef enum vp_split_kind { VP_SPLIT_NONE, VP_SPLIT_LEVEL, VP_SPLIT_COUNT } vp_split_kind;

/* Of row `row`, as numbered and scaled in planner/solve/problem.h. */
typedef struct vp_branch_multiplier {
    int64_t row, u;
} vp_branch_multiplier;

/* An item whose count the LP made fractional, and that count. */
typedef struct vp_branch_fraction {
    int64_t item;
    double  x;
} vp_branch_fraction;

/* What splitting a count has raised the bound by so far, per block of distance to the LP's
 * value; down and up. */
typedef struct vp_branch_history {
    double  sum[2];
    int64_t n[2];
} vp_branch_history;

typedef struct vp_branch_node {
    int64_t       parent; /* -1: a root                                             */
    int64_t       ilp;
    int64_t       child;     /* the first; the second follows; -1: none                */
    vp_split_kind kind;      /* of this node, where its bound asked for one            */
    int64_t       at, floor; /* level; or count and the most it is in the first child  */
    int64_t       own_ns;    /* what the multipliers prove                             */
    int64_t       bound_ns;  /* the best proved here or above                          */
    int64_t       depth;
    bool          solved;
    /* fractional counts of its LP; one of them is split when the node's turn comes */
    vp_branch_fraction   *open;
    int64_t               n_open;
    vp_branch_multiplier *m; /* ascending rows */
    int64_t               n_m;
    uint8_t              *basis; /* NULL: none */
} vp_branch_node;

typedef struct vp_branch_search {
    const vp_ilp_problem *p;
    vp_arena             *arena;
    vp_lp_engine         *engine;
    vp_chain             *chains;
    vp_lp               **lps;
    int64_t              *n_nodes_of; /* LPs of each integer program */
    vp_branch_history   **history;    /* per integer program and item */
    /* per integer program: what the chain program proves; INT64_MIN: nothing */
    int64_t        *chain_ns;
    bool           *asked; /* per integer program: the chain program */
    int64_t         n_asked;
    vp_branch_node *nodes;
    int64_t         n_nodes, cap_nodes;
    int64_t        *heap;
    int64_t         n_heap, cap_heap;
    int64_t         n_lps, n_pivots, n_bytes;
    int64_t         n_work;        /* LPs, large ones counted several times   */
    int64_t         infeasible_ns; /* above what any counts cost               */
    int64_t         best_ns;       /* of the incumbent, or as given             */
    int64_t         best_ilp;      /* -1: none found                            */
    int64_t        *best;
    vp_box          box;
    double         *x, *u;
    int64_t        *y, *trial;
    __int128       *coef;
} vp_branch_search;

/* Every block costs at least what the cheapest item costs: a root's bound that needs no LP. False,
 * here and below: out of memory. */
bool vp_branch_first_bound(vp_branch_search *q, int64_t id);

/* Raise the node's bound as far as its LP does, try whole counts near the LP's as the incumbent,
 * and where the bound stays below the target say where to split (kind, at, floor; or open). */
bool vp_branch_solve_node(vp_branch_search *q, int64_t id);

/* Of the node's fractional counts (n_open > 0) the one whose two children promise most, by the
 * product of what they may raise the bound: sets kind, at and floor. */
bool vp_branch_choose_count(vp_branch_search *q, int64_t id);

/* Remember what a split of a count has brought in the direction of one child: no more than there
 * was need for. */
void vp_branch_note_raise(vp_branch_search *q, int64_t child);

/* Take counts that cover the chain as the incumbent if they are cheaper and fit. */
bool vp_branch_take(vp_branch_search *q, int64_t ilp, const int64_t *n);

/* The least bound that closes a node: the incumbent's cost less the gap. */
int64_t vp_branch_target_ns(const vp_branch_search *q);

#endif
