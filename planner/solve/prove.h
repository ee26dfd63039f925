/* planner/solve/prove.h: a bound from vplan-solve that this program has checked itself. */
#ifndef VP_PLANNER_SOLVE_PROVE_H
#define VP_PLANNER_SOLVE_PROVE_H

#include "planner/solve/problem.h"

typedef struct vp_proof {
    /* no solution is cheaper: proved by a certificate checked here; -1: nothing proved */
    int64_t bound_ns;
    /* the solver has a solution below upper_ns that satisfies every row */
    bool        found;
    int64_t     ilp_idx;
    int64_t    *counts;
    int64_t     n_nodes, n_pivots; /* the solver's own count */
    int64_t     certificate_bytes; /* of its text            */
    const char *note;              /* why nothing was proved, or NULL */
} vp_proof;

/* Run vplan-solve on those integer programs, of one or more, that could hold a solution below upper_ns:
 * all but those whose chains can be gone through here (vp_chain_proves()) and hold none; silent for
 * 10 s it is given up.
 * Whatever it does (missing, dying, hanging, lying), this is VP_OK and costs the proof only;
 * note says why. VP_ERR_NOMEM: this process ran out of memory. What *out points to lives in
 * arena. */
vp_status vp_prove(vp_arena *arena, const vp_ilp_problem *problem, vp_proof *out, vp_err *err);

/* The undivided program's answer; only cost_ns is known here. */
typedef struct vp_whole {
    /* as vplan-solve says it: of whatever it is not sure, .end is failed */
    vp_monolithic answer;
    /* of its solution, worked out here from the counts; -1: none that keeps every row */
    int64_t     cost_ns;
    double      seconds; /* of the process */
    const char *note;    /* what was wrong with the answer, or NULL */
} vp_whole;

/* The same with vplan-solve --monolithic, which is given up after 90 s. */
vp_status vp_solve_monolithic(vp_arena *arena, const vp_ilp_problem *problem, vp_whole *out,
                              vp_err *err);

#endif
