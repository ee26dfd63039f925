#include "planner/parts.h"

#include "base/checked.h"

#include <assert.h>
#include <string.h>

/* The parts of a scenario; none where its integer program is not in parts. */
static vp_status list_parts(vp_arena *arena, const vp_plan_request *r, const vp_plan_answer *a,
                            int64_t i, const vp_ilp *p, int64_t arena_bytes, vp_ilp_part **parts,
                            int64_t *n, vp_err *err)
{
    const vp_scenario *s = &a->scenarios[i]->scenario;

    *n = 0;
    if (!s->offload.blocks)
        return VP_OK;
    return vp_streamed_parts(arena, p, a->libraries[i], &a->scenarios[i]->figures,
                             s->offload.activations ? s->offload.n_slots : 0,
                             r->global_batch / s->micro_batch, arena_bytes, parts, n, err);
}

vp_status vp_parts_solve(const vp_plan_request *r, const vp_plan_answer *a, int64_t i,
                         int64_t arena_bytes, int64_t upper_ns, int64_t max_states, int64_t *counts,
                         vp_dp_end *end, vp_err *err)
{
    vp_arena    *arena   = vp_arena_new();
    vp_ilp_part *parts   = NULL;
    int64_t      n_items = a->libraries[i]->n, n, cost_ns;
    int64_t     *of_part;
    vp_status    st = VP_OK;

    VP_TRY_ALLOC(err, arena);
    VP_TRY_ALLOC(err, of_part = vp_arena_array(arena, n_items, sizeof *of_part));
    VP_TRY(list_parts(arena, r, a, i, &a->problem.ilps[i], arena_bytes, &parts, &n, err));
    *end = VP_DP_NONE;
    if (n == 0)
        *end =
            vp_dp_solve(&a->problem.ilps[i], arena_bytes, upper_ns, max_states, counts, &cost_ns);
    for (int64_t k = 0; k < n; k++) {
        vp_dp_end here =
            vp_dp_solve(&parts[k].ilp, arena_bytes, upper_ns, max_states, of_part, &cost_ns);
        if (here == VP_DP_FOUND) {
            vp_ilp_part_counts(&parts[k], of_part, counts, n_items);
            upper_ns = cost_ns;
        }
        if (*end != VP_DP_FOUND)
            *end = here == VP_DP_NONE ? *end : here;
    }
out:
    vp_arena_free(arena);
    return st;
}

/* What chains take at least: *bound_ns, INT64_MAX where none fits, or upper_ns where going through them says that. */
static void raise_bound(const vp_ilp *p, int64_t arena_bytes, int64_t upper_ns,
                        int64_t *n_states_left, int64_t *bound_ns)
{
    if (!vp_dp_bound(p, arena_bytes, bound_ns))
        *bound_ns = INT64_MAX;
    else if (*bound_ns < upper_ns && vp_chain_proves(p, arena_bytes, upper_ns, n_states_left))
        *bound_ns = upper_ns;
}

vp_status vp_parts_bound(const vp_plan_request *r, const vp_plan_answer *a, int64_t i,
                         const vp_ilp *ilp, int64_t arena_bytes, int64_t upper_ns,
                         int64_t *n_states_left, int64_t *bound_ns, vp_err *err)
{
    vp_arena    *arena = vp_arena_new();
    vp_ilp_part *parts = NULL;
    int64_t      n, ns;
    vp_status    st = VP_OK;

    VP_TRY_ALLOC(err, arena);
    VP_TRY(list_parts(arena, r, a, i, ilp, arena_bytes, &parts, &n, err));
    if (n == 0)
        raise_bound(ilp, arena_bytes, upper_ns, n_states_left, bound_ns);
    else
        *bound_ns = INT64_MAX;
    for (int64_t k = 0; k < n; k++) {
        raise_bound(&parts[k].ilp, arena_bytes, upper_ns, n_states_left, &ns);
        *bound_ns = vp_min_i64(*bound_ns, ns);
    }
out:
    vp_arena_free(arena);
    return st;
}

/* ---- the problem ---- */

typedef struct list {
    vp_arena      *arena;
    vp_ilp        *ilps;
    vp_ilp_source *sources;
    int64_t        n, cap[2];
} list;

static vp_status add(list *l, int64_t scenario_idx, const vp_ilp_part *part, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY_ALLOC(
        err,
        vp_arena_grow(l->arena, (void **)&l->ilps, l->n, &l->cap[0], sizeof *l->ilps) &&
            vp_arena_grow(l->arena, (void **)&l->sources, l->n, &l->cap[1], sizeof *l->sources));
    l->ilps[l->n]      = part->ilp;
    l->sources[l->n++] = (vp_ilp_source){.scenario_idx = scenario_idx, .part = *part};
out:
    return st;
}

/* Whether a part may hold something that is more than half the gap asked for below upper_ns. */
static bool is_far_below(const vp_ilp_problem *p, const vp_ilp *ilp)
{
    int64_t bound_ns;

    return vp_dp_bound(ilp, p->budget_bytes, &bound_ns) &&
           (double)bound_ns < (1 - p->gap / 2) * (double)p->upper_ns;
}

/* By how its chains end, too, if that says more. */
static vp_status add_part(list *l, const vp_plan_answer *a, int64_t i, const vp_ilp_part *part,
                          vp_err *err)
{
    vp_ilp_part *parts;
    int64_t      n  = 0;
    vp_status    st = VP_OK;

    VP_TRY_ALLOC(err, parts = vp_arena_array(l->arena, part->ilp.n_items, sizeof *parts));
    if (!is_far_below(&a->problem, &part->ilp) ||
        !vp_streamed_split_last(part, a->libraries[i], &a->scenarios[i]->figures, parts, &n))
        VP_TRY(add(l, i, part, err));
    for (int64_t k = 0; k < n; k++)
        if (!vp_chain_proves(&parts[k].ilp, a->problem.budget_bytes, a->problem.upper_ns, NULL))
            VP_TRY(add(l, i, &parts[k], err));
out:
    return st;
}

vp_status vp_parts_problem(vp_arena *arena, const vp_plan_request *r, const vp_plan_answer *a,
                           vp_ilp_problem *out, vp_ilp_source **sources, vp_err *err)
{
    list         l = {.arena = arena};
    vp_ilp_part *parts;
    int64_t      n;
    vp_status    st = VP_OK;

    for (int64_t i = 0; i < a->n_scenarios; i++) {
        const vp_ilp     *p     = &a->problem.ilps[i];
        const vp_ilp_part whole = {.ilp = *p, .first = -1, .last = -1};
        if (!vp_figures_may_fit(r->device, &a->scenarios[i]->figures, r->budget_bytes) ||
            vp_chain_proves(p, a->problem.budget_bytes, a->problem.upper_ns, NULL))
            continue;
        VP_TRY(list_parts(arena, r, a, i, p, a->problem.budget_bytes, &parts, &n, err));
        if (n == 0)
            VP_TRY(add(&l, i, &whole, err));
        for (int64_t k = 0; k < n; k++)
            if (!vp_chain_proves(&parts[k].ilp, a->problem.budget_bytes, a->problem.upper_ns, NULL))
                VP_TRY(add_part(&l, a, i, &parts[k], err));
    }
    for (int64_t i = 0; l.n == 0 && i < a->n_scenarios; i++) /* the solver is always asked */
        if (vp_figures_may_fit(r->device, &a->scenarios[i]->figures, r->budget_bytes) ||
            i == a->n_scenarios - 1)
            VP_TRY(add(&l, i, &(vp_ilp_part){.ilp = a->problem.ilps[i], .first = -1, .last = -1},
                       err));
    *out        = a->problem;
    out->ilps   = l.ilps;
    out->n_ilps = l.n;
    *sources    = l.sources;
out:
    return st;
}
