/* planner/planner.h: choose the fastest plan that fits a budget, and prove how good it is.
 *     vp_plan_request request = { .model = model, .device = &device, .recipe = recipe, .seq = 256,
 *     .global_batch = 8,
 *                                 .budget_bytes = 2 * VP_GIB, .loss_chunk = VP_CHUNK_ANY,
 *                                 .recompute = VP_RECOMPUTE_ANY, .gap = 1e-5 };
 *     VP_TRY(vp_planner_run(&request, &answer, err));
 *
 * The space. Scenarios: micro-batch (every divisor of the global batch, of very many some, others that leave a smaller
 * last micro-step) x tokens a loss chunk (all, or one of the numbers of chunks that planner/space_settings.c
 * lists), and where asked for x attention, precision, optimizer; in each, any strategy of the
 * library (planner/library.h) for any block, or segment of blocks. The chain stands in descending
 * beta, which is the best order. One integer program a scenario (planner/solve/problem.h).
 *
 * The search: presets first (what people set by hand), then an exact dynamic program over the
 * scenarios in the order of their lower bounds, skipping those that cannot win. Then
 * vplan-solve, in a process of its own, looks for something better and for a certificate; the
 * certificate is checked here, and what it proves is the answer's bound. A plan is taken only
 * after it was lowered, laid out and priced as a whole. Without vplan-solve, or with a bad one,
 * the plan is the same but for its proof. */
#ifndef VP_PLANNER_PLANNER_H
#define VP_PLANNER_PLANNER_H

#include "planner/library.h"
#include "planner/request.h"
#include "planner/solve/problem.h"

typedef struct vp_blocks vp_blocks;

/* One point of the space. */
typedef struct vp_candidate {
    vp_figures  figures;
    bool        fits;
    vp_scenario scenario;
} vp_candidate;

/* In arena, a candidate as *from is that ends behind its scenario's last run: it may be read and changed, but not copied by
 * assignment. NULL: out of memory. And a whole one of it. */
vp_candidate *vp_candidate_keep(vp_arena *arena, const vp_candidate *from);
void          vp_candidate_copy(vp_candidate *to, const vp_candidate *from);

typedef struct vp_preset {
    const char  *name;
    vp_candidate candidate;
} vp_preset;

/* Beside the device; pinned_bytes are of host_bytes. */
typedef struct vp_host_needs {
    int64_t host_bytes, pinned_bytes, nvme_bytes;
} vp_host_needs;

typedef struct vp_plan_answer {
    vp_arena                *arena;
    struct vp_lowered_store *store; /* planner/lowered_store.h */
    /* all scenarios, every block keeping all; vp_candidate_keep() says how they are read */
    vp_candidate **scenarios;
    int64_t        n_scenarios;
    int64_t        n_listed; /* of them at first: behind are those of chunks between theirs */
    /* what no plan of chunks that are still left out undercuts, INT64_MAX: there are none */
    int64_t            between_ns;
    const vp_library **libraries; /* of each scenario                       */
    vp_blocks        **blocks;    /* planner/space.h */
    int64_t            n_blocks, cap_blocks;
    /* NULL, or another answer whose blocks serve here, too; borrowed */
    const struct vp_plan_answer *like;
    bool           cut;         /* micro-batches that are larger than all that fit are left out */
    bool           bytes_alone; /* integer programs know no seconds */
    vp_ilp_problem problem;     /* the integer programs, in the order of scenarios */
    /* plans that fit, fastest first: presets, and each scenario's best where it may come within
     * request->listed of the best of all */
    vp_candidate *candidates;
    int64_t       n_candidates;
    /* of the plans that are slower than the first candidate by request->within at most, the one
     * that needs the fewest bytes, as far as a search of counted steps finds it; where
     * n_candidates is not 0 */
    vp_candidate lean;
    vp_candidate least; /* of all these, presets too, the plan that needs the fewest bytes */
    int64_t      least_budget_bytes; /* 0: no scenario has enough host memory */
    int64_t      least_host_bytes;   /* of all scenarios, those too that host_bytes leave out;
                                      * INT64_MAX: the model cannot have what is pinned */
    /* what the one needs, all of it, that lacks least of host memory, then of what may be pinned, then of the
     * drive: with so much of each there is a scenario */
    vp_host_needs nearest;
    /* each with the micro-batch, and where it is free the recipe, that is fastest for it; the loss
     * all at once */
    vp_preset *presets;
    int64_t    n_presets;
    /* proof */
    vp_proof_status proof;
    double          gap, bound_s;      /* negative: none                          */
    int64_t         n_nodes, n_pivots; /* counted by vplan-solve                  */
    int64_t         certificate_bytes;
    const char     *solver_note; /* why there is no proof, or NULL          */
    struct vp_made *made;        /* planner/made.h: of the fastest before the proof, or NULL */
} vp_plan_answer;

/* Plan a request that vp_request_refusal() does not refuse. VP_OK: the space was searched;
 * n_candidates 0 means nothing fits (proof is infeasible). Release the answer in any case. */
vp_status vp_planner_run(const vp_plan_request *request, vp_plan_answer *answer, vp_err *err);
void      vp_plan_answer_release(vp_plan_answer *answer);

/* The answer's least_budget_bytes alone, without a search for speed; 0: the space is empty.
 * like: NULL, or the answer to a request that differs in the recipe only, whose libraries serve
 * here, and those that served it. */
vp_status vp_planner_least(const vp_plan_request *request, const vp_plan_answer *like,
                           int64_t *least_budget_bytes, vp_err *err);

/* The same, with the answer that has it, for others to be like; released in any case. */
vp_status vp_planner_least_answer(const vp_plan_request *request, const vp_plan_answer *like,
                                  vp_plan_answer *answer, vp_err *err);

/* The whole plan of one candidate for request->budget_bytes; with the answer's proof, which is
 * about the first candidate, when it is that one or the answer's lean one. */
vp_status vp_planner_make(const vp_plan_request *request, const vp_plan_answer *answer,
                          const vp_candidate *candidate, vp_plan **out, vp_err *err);

/* Fastest step within another budget, from the answer's integer programs and presets; negative
 * when nothing fits. *candidate may be NULL. Within one answer more budget is never slower. */
vp_status vp_planner_at_budget(const vp_plan_request *request, const vp_plan_answer *answer,
                               int64_t budget_bytes, double *step_time_s, vp_candidate *candidate,
                               vp_err *err);

/* The same choice as one undivided integer program (planner/solve/monolithic.c), beside the
 * answer's own optimum. */
typedef struct vp_monolithic_check {
    const char *status; /* optimal, infeasible, limit, refused, failed */
    int64_t     n_columns, n_rows, n_nodes;
    double      step_time_s; /* negative: no solution                       */
    /* the answer's optimum over the same integer programs; negative: none fits */
    double planned_s;
    /* equal: to the nanosecond, or both infeasible; only where decided */
    bool        decided, equal;
    double      seconds; /* of the process              */
    const char *note;    /* what went wrong, or NULL    */
} vp_monolithic_check;

/* VP_OK also when vplan-solve failed. Strings live in the answer's arena. */
vp_status vp_planner_monolithic(const vp_plan_request *request, const vp_plan_answer *answer,
                                vp_monolithic_check *out, vp_err *err);

#endif
