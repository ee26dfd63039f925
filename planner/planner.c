#include "planner/planner.h"

#include "base/beside.h"
#include "base/checked.h"
#include "planner/blocks.h"
#include "planner/lowered_store.h"
#include "planner/made.h"
#include "planner/parts.h"
#include "planner/solve/prove.h"
#include "planner/space.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* States of the dynamic program for one scenario; beyond, the scenario is left to vplan-solve. */
enum { MAX_DP_STATES = 2000000 };

/* Counts in the library's order (descending beta) as runs of the chain. False: more runs than a
 * scenario holds. */
static bool set_runs(vp_scenario *s, const vp_library *lib, const int64_t *counts)
{
    s->n_runs = 0;
    for (int64_t i = 0; i < lib->n; i++)
        if (counts[i] > 0) {
            if (s->n_runs == VP_MAX_RUNS)
                return false;
            assert(i == 0 ||
                   lib->strategies[i - 1].height_bytes - lib->strategies[i - 1].kept_bytes >=
                       lib->strategies[i].height_bytes - lib->strategies[i].kept_bytes);
            s->runs[s->n_runs++] =
                (vp_block_run){.recompute = lib->strategies[i].recompute,
                               .n_blocks  = counts[i] * lib->strategies[i].segment,
                               .segment   = lib->strategies[i].segment,
                               .offload   = lib->strategies[i].offload};
        }
    return true;
}

/* Lower, lay out and price counts as a whole plan; what comes out is what counts. */
static vp_status price_counts(const vp_plan_request *r, const vp_plan_answer *a,
                              int64_t scenario_idx, const int64_t *counts, int64_t budget_bytes,
                              vp_candidate *c, bool *valid, vp_err *err)
{
    vp_cost cost = {.device = r->device, .profile = r->profile, .store = a->store};

    assert(scenario_idx >= 0 && scenario_idx < a->n_scenarios);
    vp_candidate_copy(c, a->scenarios[scenario_idx]);
    *valid = set_runs(&c->scenario, a->libraries[scenario_idx], counts);
    if (!*valid)
        return VP_OK;
    vp_status st = vp_assemble_figures(r->model, &c->scenario, &cost, &c->figures, err);
    *valid       = st == VP_OK && !c->figures.unlike;
    c->fits      = *valid && c->figures.device_bytes <= budget_bytes && vp_has_room(r, &c->figures);
    return st;
}

/* ---- least memory ---- */

static bool obeys_pins(const vp_plan_request *r, const vp_scenario *s)
{
    return (!r->micro_batch || s->micro_batch == r->micro_batch) &&
           (r->loss_chunk == VP_CHUNK_ANY || r->loss_chunk == 0) &&
           (r->host_bytes == 0 || r->offload == VP_OFFLOAD_ANY || r->offload == VP_OFFLOAD_NONE) &&
           (r->updates != VP_UPDATES_BACKWARD || vp_scenario_updates_in_backward(s)) &&
           vp_request_allows_runs(r, s);
}

/* The length nearest to the square root of the number of blocks. */
static int64_t sqrt_segment(const vp_plan_request *r)
{
    int64_t n = r->model->graph.n_instances - 2, m = 1;

    while (m < vp_max_segment(r->model) && m < n && (m + 1) * (m + 1) <= n + m)
        m++;
    return m;
}

/* Segments of about sqrt(n) blocks, and what does not fill one recomputed block by block. */
static void set_sqrt_segments(const vp_plan_request *r, vp_scenario *s)
{
    int64_t n = r->model->graph.n_instances - 2, m = sqrt_segment(r);

    assert(m >= 1 && m <= n);
    s->n_runs = 0;
    s->runs[s->n_runs++] =
        (vp_block_run){.recompute = UINT64_MAX, .n_blocks = n / m * m, .segment = m};
    if (n % m)
        s->runs[s->n_runs++] =
            (vp_block_run){.recompute = vp_recompute_set(r->model, VP_RECOMPUTE_FULL),
                           .n_blocks  = n % m,
                           .segment   = 1};
}

/* Presets are run with every divisor of the global batch and every recipe that the request allows,
 * until a micro-batch fits with no recipe: the larger ones need more. */
typedef struct preset_try {
    vp_recipe recipes[VP_MAX_RECIPES];
    int       n_recipes, recipe_idx;
    int64_t   micro_batch;
    bool      fits; /* the micro-batch at hand, with some recipe */
} preset_try;

/* The next micro-batch and recipe to try; false: none is left. Begins with all zero. */
static bool next_try(const vp_plan_request *r, preset_try *t)
{
    if (!t->n_recipes)
        t->n_recipes = vp_request_recipes(r, t->recipes);
    else if (++t->recipe_idx < t->n_recipes)
        return true;
    if (t->micro_batch > 0 && !t->fits)
        return false;
    t->recipe_idx = 0;
    t->fits       = false;
    do
        t->micro_batch++;
    while (t->micro_batch <= r->global_batch && r->global_batch % t->micro_batch != 0);
    return t->micro_batch <= r->global_batch;
}

static vp_scenario preset_scenario(const vp_plan_request *r, const preset_try *t)
{
    return (vp_scenario){.recipe         = t->recipes[t->recipe_idx],
                         .seq            = r->seq,
                         .global_batch   = r->global_batch,
                         .micro_batch    = t->micro_batch,
                         .updates_at_end = r->updates == VP_UPDATES_END,
                         .attention =
                             r->attention == VP_ATTENTION_ANY ? VP_ATTENTION_FLASH : r->attention};
}

static vp_status find_least(const vp_plan_request *r, vp_plan_answer *a, vp_err *err)
{
    int64_t   n_blocks = r->model->graph.n_instances - 2;
    int64_t  *counts   = vp_arena_array(a->arena, VP_MAX_ITEMS, sizeof *counts);
    int64_t  *last     = vp_arena_array(a->arena, n_blocks + 1, sizeof *last);
    vp_status st       = VP_OK;

    VP_TRY_ALLOC(err, counts && last);

    for (int64_t i = 0; i < a->n_scenarios; i++) {
        const vp_ilp *p = &a->problem.ilps[i];
        vp_candidate  c;
        bool          valid;
        int64_t       first =
            a->scenarios[i]->figures.stack_base_bytes + a->scenarios[i]->figures.first_height_bytes;
        if (a->least_budget_bytes && /* most are told at once */
            vp_device_bytes(r->device,
                            vp_max_i64(first, p->base_bytes + vp_space_bytes_bound(p))) >=
                a->least_budget_bytes)
            continue;
        int64_t bytes = vp_device_bytes(
            r->device, vp_max_i64(first, p->base_bytes + vp_space_least_bytes(p, counts, last)));
        if (a->least_budget_bytes && bytes >= a->least_budget_bytes)
            continue;
        VP_TRY(price_counts(r, a, i, counts, r->budget_bytes, &c, &valid, err));
        if (valid && vp_has_room(r, &c.figures) &&
            (!a->least_budget_bytes || c.figures.device_bytes < a->least_budget_bytes)) {
            a->least              = c;
            a->least_budget_bytes = c.figures.device_bytes;
        }
    }
out:
    return st;
}

/* ---- presets ---- */

static vp_status race_preset(const vp_plan_request *r, vp_plan_answer *a, vp_cost *cost,
                             const char *name, const vp_block_run *pattern, int n_pattern,
                             vp_err *err)
{
    vp_candidate best = {0};
    preset_try   t    = {0};
    vp_status    st   = VP_OK;

    while (next_try(r, &t)) {
        vp_candidate c = {.scenario = preset_scenario(r, &t)};
        for (int k = 0; k < n_pattern; k++)
            if (pattern[k].n_blocks > 0) {
                assert(c.scenario.n_runs < VP_MAX_RUNS);
                c.scenario.runs[c.scenario.n_runs++] = pattern[k];
            }
        VP_TRY(vp_assemble_figures(r->model, &c.scenario, cost, &c.figures, err));
        c.fits = c.figures.device_bytes <= r->budget_bytes;
        t.fits |= c.fits;
        bool better =
            !best.scenario.micro_batch || (c.fits && !best.fits) ||
            (c.fits == best.fits && (c.fits ? c.figures.step_time_s < best.figures.step_time_s
                                            : c.figures.device_bytes < best.figures.device_bytes));
        if (better)
            best = c;
    }
    assert(best.scenario.micro_batch && a->n_presets < VP_N_RECOMPUTES + 2);
    a->presets[a->n_presets++] = (vp_preset){vp_arena_printf(a->arena, "%s, micro-batch %lld", name,
                                                             (long long)best.scenario.micro_batch),
                                             best};
    VP_TRY_ALLOC(err, !vp_arena_failed(a->arena));
out:
    return st;
}

/* What people set by hand: one switch for all blocks, every second block checkpointed, segments
 * of about sqrt(n) blocks; the loss all at once. */
static vp_status race_presets(const vp_plan_request *r, vp_plan_answer *a, vp_cost *cost,
                              vp_err *err)
{
    int64_t   n = r->model->graph.n_instances - 2, m = sqrt_segment(r);
    uint64_t  full = vp_recompute_set(r->model, VP_RECOMPUTE_FULL);
    char      name[64];
    vp_status st = VP_OK;

    a->presets = vp_arena_array(a->arena, VP_N_RECOMPUTES + 2, sizeof *a->presets);
    VP_TRY_ALLOC(err, a->presets);
    for (int kind = 0; kind < VP_N_RECOMPUTES; kind++) {
        vp_block_run all = {.recompute = vp_recompute_set(r->model, (vp_recompute)kind),
                            .n_blocks  = n,
                            .segment   = 1};
        snprintf(name, sizeof name, "recompute %s", vp_recompute_name((vp_recompute)kind));
        VP_TRY(race_preset(r, a, cost, name, &all, 1, err));
    }
    /* a chain too long to alternate: two halves */
    vp_block_run every_second[VP_MAX_RUNS] = {{.recompute = full, .n_blocks = n / 2, .segment = 1},
                                              {.n_blocks = n - n / 2, .segment = 1}};
    for (int64_t i = 0; n <= VP_MAX_RUNS && i < n; i++)
        every_second[i] =
            (vp_block_run){.recompute = i % 2 ? full : 0, .n_blocks = 1, .segment = 1};
    VP_TRY(race_preset(r, a, cost, "recompute every second", every_second,
                       n <= VP_MAX_RUNS ? (int)n : 2, err));
    vp_scenario segments;
    set_sqrt_segments(r, &segments);
    snprintf(name, sizeof name, "segments of %lld", (long long)m);
    if (m > 1)
        VP_TRY(race_preset(r, a, cost, name, segments.runs, segments.n_runs, err));
out:
    return st;
}

/* ---- search ---- */

static int by_time(const void *a, const void *b)
{
    const vp_candidate *x = a, *y = b;

    if (x->figures.step_time_s != y->figures.step_time_s)
        return x->figures.step_time_s < y->figures.step_time_s ? -1 : 1;
    if (x->figures.host_bytes != y->figures.host_bytes)
        return x->figures.host_bytes < y->figures.host_bytes ? -1 : 1;
    if (x->figures.peak_bytes != y->figures.peak_bytes)
        return x->figures.peak_bytes < y->figures.peak_bytes ? -1 : 1;
    if (x->scenario.micro_batch != y->scenario.micro_batch)
        return x->scenario.micro_batch > y->scenario.micro_batch ? -1 : 1;
    return (x->scenario.loss_chunk > y->scenario.loss_chunk) -
           (x->scenario.loss_chunk < y->scenario.loss_chunk);
}

typedef struct ordered {
    int64_t idx, bound_ns;
} ordered;

static int by_bound(const void *a, const void *b)
{
    const ordered *x = a, *y = b;

    if (x->bound_ns != y->bound_ns)
        return x->bound_ns < y->bound_ns ? -1 : 1;
    return (x->idx > y->idx) - (x->idx < y->idx);
}

/* The best of each scenario from `from` on that could win, or come within a share of the best, into found[]
 * (room for as many more). */
static vp_status search(const vp_plan_request *r, const vp_plan_answer *a, vp_arena *arena,
                        int64_t from, int64_t budget_bytes, double within, vp_candidate *found,
                        int64_t *n_found, int64_t *best_ns, vp_err *err)
{
    const int64_t arena_bytes = vp_device_arena_bytes(r->device, budget_bytes);
    ordered      *order       = vp_arena_array(arena, a->n_scenarios, sizeof *order);
    int64_t      *counts      = vp_arena_array(arena, VP_MAX_ITEMS, sizeof *counts);
    int64_t       n           = 0;
    vp_status     st          = VP_OK;

    VP_TRY_ALLOC(err, order && counts);
    for (int64_t i = from; i < a->n_scenarios; i++) {
        order[n].idx = i;
        n += vp_figures_may_fit(r->device, &a->scenarios[i]->figures, budget_bytes) &&
             vp_dp_bound(&a->problem.ilps[i], arena_bytes, &order[n].bound_ns);
    }
    qsort(order, (size_t)n, sizeof *order, by_bound);
    for (int64_t k = 0; k < n; k++) {
        int64_t      i = order[k].idx;
        vp_candidate c;
        vp_dp_end    end;
        bool         valid;
        int64_t      upper_ns = vp_add(*best_ns, (int64_t)(within * (double)*best_ns));
        upper_ns              = vp_overflowed(upper_ns) ? INT64_MAX : upper_ns;
        if (order[k].bound_ns >= upper_ns) /* nor can any after it */
            break;
        VP_TRY(vp_parts_solve(r, a, i, arena_bytes, upper_ns, MAX_DP_STATES, counts, &end, err));
        if (end != VP_DP_FOUND)
            continue;
        VP_TRY(price_counts(r, a, i, counts, budget_bytes, &c, &valid, err));
        if (!valid || !c.fits)
            continue;
        /* room for each scenario's best beside the presets */
        assert(*n_found < a->n_scenarios + a->n_presets + 2);
        found[(*n_found)++] = c;
        *best_ns            = vp_min_i64(*best_ns, llround(c.figures.step_time_s * 1e9));
    }
out:
    return st;
}

static void take_known(const vp_candidate *known, vp_candidate *found, int64_t *n_found,
                       int64_t *best_ns)
{
    found[(*n_found)++] = *known;
    *best_ns            = vp_min_i64(*best_ns, llround(known->figures.step_time_s * 1e9));
}

/* What the solver found, as a whole plan. */
static vp_status price_found(const vp_plan_request *r, const vp_plan_answer *a,
                             const vp_ilp_source *source, const int64_t *of_part, vp_candidate *c,
                             bool *valid, vp_err *err)
{
    const int64_t i = source->scenario_idx, n_items = a->libraries[i]->n;
    int64_t      *counts = vp_arena_array(a->arena, n_items, sizeof *counts);
    vp_status     st     = VP_OK;

    VP_TRY_ALLOC(err, counts);
    *valid = vp_figures_may_fit(r->device, &a->scenarios[i]->figures, r->budget_bytes);
    if (*valid) {
        vp_ilp_part_counts(&source->part, of_part, counts, n_items);
        VP_TRY(price_counts(r, a, i, counts, r->budget_bytes, c, valid, err));
    }
out:
    return st;
}

/* Settings with more chunks than are listed at first: so many at most. */
enum { MOST_BETWEEN = 128 };

/* The best of scenarios that have been added, from n on. */
static vp_status search_added(const vp_plan_request *r, vp_plan_answer *a, int64_t n,
                              int64_t *best_ns, vp_err *err)
{
    vp_candidate *found;
    vp_status     st = VP_OK;

    VP_TRY_ALLOC(
        err, found = vp_arena_array(a->arena, a->n_scenarios + a->n_presets + 1, sizeof *found));
    memcpy(found, a->candidates, (size_t)a->n_candidates * sizeof *found);
    a->candidates = found;
    if (a->n_scenarios > n)
        VP_TRY(search(r, a, a->arena, n, r->budget_bytes, r->listed, a->candidates,
                      &a->n_candidates, best_ns, err));
out:
    return st;
}

/* Where micro-batches are too many, those next to the best of the others. */
static vp_status search_near(const vp_plan_request *r, vp_plan_answer *a, vp_cost *cost,
                             int64_t *best_ns, vp_err *err)
{
    const int64_t n    = a->n_scenarios;
    int64_t       best = 0;
    vp_status     st   = VP_OK;

    for (int64_t i = 1; i < a->n_candidates; i++)
        if (by_time(&a->candidates[i], &a->candidates[best]) < 0)
            best = i;
    if (a->n_candidates == 0)
        return VP_OK;
    VP_TRY(vp_space_add_near(r, a, cost, &a->candidates[best].scenario, err));
    VP_TRY(search_added(r, a, n, best_ns, err));
out:
    return st;
}

/* Loss chunks between those that were listed, wherever they may pay. */
static vp_status search_between(const vp_plan_request *r, vp_plan_answer *a, vp_cost *cost,
                                int64_t *best_ns, vp_err *err)
{
    int64_t   n_left = MOST_BETWEEN, n = -1;
    vp_status st = VP_OK;

    while (a->n_candidates > 0 && n != a->n_scenarios) {
        n = a->n_scenarios;
        VP_TRY(vp_space_refine(r, a, cost, *best_ns, &n_left, err));
        VP_TRY(search_added(r, a, n, best_ns, err));
    }
out:
    return st;
}

/* Meanwhile the best may be made into a plan, which mostly stays the best. */
static vp_status offer_best(const vp_plan_request *r, vp_plan_answer *a, vp_err *err)
{
    const vp_candidate *best = a->candidates;

    for (int64_t i = 1; i < a->n_candidates; i++)
        if (by_time(&a->candidates[i], best) < 0)
            best = &a->candidates[i];
    if (!r->is_made || r->within > 0 || a->n_candidates == 0)
        return VP_OK;
    a->made = vp_made_offer(a->arena, r, best);
    return a->made ? VP_OK : VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
}

static vp_status search_and_prove(const vp_plan_request *r, vp_plan_answer *a, vp_cost *cost,
                                  vp_err *err)
{
    int64_t   best_ns = INT64_MAX;
    vp_status st      = VP_OK;

    a->candidates =
        vp_arena_array(a->arena, a->n_scenarios + a->n_presets + 1, sizeof *a->candidates);
    VP_TRY_ALLOC(err, a->candidates);
    for (int64_t i = 0; i < a->n_presets; i++)
        if (a->presets[i].candidate.fits && obeys_pins(r, &a->presets[i].candidate.scenario))
            take_known(&a->presets[i].candidate, a->candidates, &a->n_candidates, &best_ns);
    VP_TRY(search(r, a, a->arena, 0, r->budget_bytes, r->listed, a->candidates, &a->n_candidates,
                  &best_ns, err));
    VP_TRY(search_near(r, a, cost, &best_ns, err));
    VP_TRY(search_between(r, a, cost, &best_ns, err));
    a->proof = VP_PROOF_FALLBACK;
    a->gap = a->bound_s = -1;
    if (a->n_candidates == 0 &&
        (a->least_budget_bytes == 0 || a->least_budget_bytes > r->budget_bytes)) {
        a->proof = VP_PROOF_INFEASIBLE; /* exact: the least budget is */
        goto out;
    }
    if (!r->no_proof) {
        vp_proof       proof = {0};
        vp_candidate   c;
        vp_ilp_problem in_parts;
        vp_ilp_source *sources;
        bool           valid = false;
        a->problem.upper_ns  = best_ns;
        VP_TRY(offer_best(r, a, err));
        VP_TRY(vp_parts_problem(a->arena, r, a, &in_parts, &sources, err));
        VP_TRY(vp_prove(a->arena, &in_parts, &proof, err));
        a->n_nodes           = proof.n_nodes;
        a->n_pivots          = proof.n_pivots;
        a->certificate_bytes = proof.certificate_bytes;
        a->solver_note       = proof.note;
        assert(!proof.found || (proof.ilp_idx >= 0 && proof.ilp_idx < in_parts.n_ilps));
        if (proof.found)
            VP_TRY(price_found(r, a, &sources[proof.ilp_idx], proof.counts, &c, &valid, err));
        assert(!valid || a->n_candidates < a->n_scenarios + a->n_presets + 1);
        if (valid && c.fits)
            a->candidates[a->n_candidates++] = c;
        if (proof.bound_ns >= 0)
            a->bound_s = (double)vp_min_i64(proof.bound_ns, a->between_ns) * 1e-9;
    }
    qsort(a->candidates, (size_t)a->n_candidates, sizeof *a->candidates, by_time);
    if (a->n_candidates && a->bound_s >= 0) {
        double best_s = a->candidates[0].figures.step_time_s;
        a->bound_s    = a->bound_s < best_s ? a->bound_s : best_s;
        assert(a->bound_s <= best_s);
        /* a profile may say that a step takes no time */
        a->gap   = best_s > 0 ? (best_s - a->bound_s) / best_s : 0;
        a->proof = a->gap <= r->gap ? VP_PROOF_OPTIMAL : VP_PROOF_GAP;
    }
out:
    return st;
}

/* ---- within a tolerance, the least memory ---- */

/* Budgets tried: the range shrinks to 1/1000 and less, each time by a search that is bounded from
 * above by the slowest step allowed. */
enum { MAX_LEAN_SEARCHES = 10 };

static int by_bytes(const void *a, const void *b)
{
    const vp_candidate *x = a, *y = b;

    if (x->figures.device_bytes != y->figures.device_bytes)
        return x->figures.device_bytes < y->figures.device_bytes ? -1 : 1;
    return by_time(a, b);
}

/* The least of some plans that are fast enough, if it needs less than *lean. */
static void keep_leaner(vp_candidate *plans, int64_t n, double slowest_s, vp_candidate *lean)
{
    for (int64_t i = 0; i < n; i++)
        if (plans[i].figures.step_time_s <= slowest_s && by_bytes(&plans[i], lean) < 0)
            *lean = plans[i];
}

/* Halve the budget's range from the least that anything needs: more budget is never slower. */
static vp_status find_lean(const vp_plan_request *r, vp_plan_answer *a, vp_err *err)
{
    double    slowest_s = a->candidates[0].figures.step_time_s * (1 + r->within);
    int64_t   low = a->least_budget_bytes, worth = r->budget_bytes / 1000;
    vp_arena *arena = vp_arena_new();
    vp_status st    = VP_OK;

    VP_TRY_ALLOC(err, arena);
    a->lean = a->candidates[0];
    keep_leaner(a->candidates, a->n_candidates, slowest_s, &a->lean);
    keep_leaner(&a->least, 1, slowest_s, &a->lean);
    for (int k = 0; k < MAX_LEAN_SEARCHES && a->lean.figures.device_bytes - low > worth; k++) {
        int64_t       middle = low + (a->lean.figures.device_bytes - low) / 2, n = 0;
        int64_t       slowest_ns = (int64_t)(slowest_s * 1e9) + 1, bytes;
        vp_candidate *found      = vp_arena_array(arena, a->n_scenarios, sizeof *found);
        VP_TRY_ALLOC(err, found);
        VP_TRY(search(r, a, arena, 0, middle, 0, found, &n, &slowest_ns, err));
        bytes = a->lean.figures.device_bytes;
        keep_leaner(found, n, slowest_s, &a->lean);
        if (a->lean.figures.device_bytes == bytes)
            low = middle;
    }
out:
    vp_arena_free(arena);
    return st;
}

static vp_status list_and_find_least(const vp_plan_request *r, const vp_plan_answer *like,
                                     vp_plan_answer *a, vp_cost *cost, vp_space_extent extent,
                                     vp_err *err)
{
    vp_status st = VP_OK;

    assert(vp_request_refusal(r).reason == VP_REFUSED_NOT);
    *a          = (vp_plan_answer){.arena = vp_arena_new(), .like = like};
    cost->store = a->store = vp_lowered_store_new();
    VP_TRY_ALLOC(err, a->arena && a->store);
    VP_TRY(vp_space_list(r, like, a, cost, extent, err));
    VP_TRY(find_least(r, a, err));
    /* some format fits: those that do not may be the fastest within larger budgets */
    if (extent == VP_SPACE_FIT && a->cut && a->least_budget_bytes <= r->budget_bytes) {
        VP_TRY(vp_space_list(r, like, a, cost, VP_SPACE_ALL, err));
        VP_TRY(find_least(r, a, err));
    }
out:
    return st;
}

vp_status vp_planner_run(const vp_plan_request *r, vp_plan_answer *a, vp_err *err)
{
    vp_cost   cost = {.device = r->device, .profile = r->profile};
    vp_status st   = VP_OK;

    VP_TRY(list_and_find_least(r, NULL, a, &cost, VP_SPACE_FIT, err));
    VP_TRY(race_presets(r, a, &cost, err));
    VP_TRY(search_and_prove(r, a, &cost, err));
    if (a->n_candidates)
        a->lean = a->candidates[0];
    if (a->n_candidates && r->within > 0)
        VP_TRY(find_lean(r, a, err));
out:
    return st;
}

vp_status vp_planner_least_answer(const vp_plan_request *r, const vp_plan_answer *like,
                                  vp_plan_answer *a, vp_err *err)
{
    vp_cost cost = {.device = r->device, .profile = r->profile};

    return list_and_find_least(r, like, a, &cost, VP_SPACE_LEAST, err);
}

vp_status vp_planner_least(const vp_plan_request *r, const vp_plan_answer *like,
                           int64_t *least_budget_bytes, vp_err *err)
{
    vp_plan_answer a;
    vp_status      st = VP_OK;

    VP_TRY(vp_planner_least_answer(r, like, &a, err));
    *least_budget_bytes = a.least_budget_bytes;
out:
    vp_plan_answer_release(&a);
    return st;
}

void vp_plan_answer_release(vp_plan_answer *a)
{
    vp_made_drop(a->made);
    for (int64_t i = 0; i < a->n_blocks; i++)
        vp_blocks_free(a->blocks[i]);
    vp_arena_free(a->arena);
    vp_lowered_store_free(a->store);
    *a = (vp_plan_answer){0};
}

/* Fastest within a budget; ilps_only: of what the integer programs hold. */
static vp_status find_at_budget(const vp_plan_request *r, const vp_plan_answer *a,
                                int64_t budget_bytes, bool ilps_only, double *step_time_s,
                                vp_candidate *candidate, vp_err *err)
{
    vp_arena     *arena = vp_arena_new();
    vp_candidate *found;
    int64_t       n = 0, best_ns = INT64_MAX;
    vp_status     st = VP_OK;

    *step_time_s = -1;
    VP_TRY_ALLOC(err, arena);
    found = vp_arena_array(arena, a->n_scenarios + a->n_presets + 2, sizeof *found);
    VP_TRY_ALLOC(err, found);
    if (!ilps_only && a->least_budget_bytes && a->least_budget_bytes <= budget_bytes)
        take_known(&a->least, found, &n, &best_ns);
    for (int64_t i = 0; !ilps_only && i < a->n_presets; i++)
        if (a->presets[i].candidate.figures.device_bytes <= budget_bytes &&
            obeys_pins(r, &a->presets[i].candidate.scenario))
            take_known(&a->presets[i].candidate, found, &n, &best_ns);
    for (int64_t i = 0; !ilps_only && i < a->n_candidates; i++)
        if (a->candidates[i].figures.device_bytes <= budget_bytes) {
            take_known(&a->candidates[i], found, &n, &best_ns);
            break; /* fastest first */
        }
    VP_TRY(search(r, a, arena, 0, budget_bytes, 0, found, &n, &best_ns, err));
    qsort(found, (size_t)n, sizeof *found, by_time);
    if (n) {
        *step_time_s = found[0].figures.step_time_s;
        if (candidate)
            *candidate = found[0];
    }
out:
    vp_arena_free(arena);
    return st;
}

vp_status vp_planner_at_budget(const vp_plan_request *r, const vp_plan_answer *a,
                               int64_t budget_bytes, double *step_time_s, vp_candidate *candidate,
                               vp_err *err)
{
    return find_at_budget(r, a, budget_bytes, false, step_time_s, candidate, err);
}

vp_status vp_planner_make(const vp_plan_request *r, const vp_plan_answer *a, const vp_candidate *c,
                          vp_plan **out, vp_err *err)
{
    vp_cost   cost = {.device = r->device, .profile = r->profile};
    vp_status st   = VP_OK;

    VP_TRY(vp_made_take(a->made, r, c, &cost, out, err));
    vp_plan *plan            = *out;
    plan->budget_bytes       = r->budget_bytes;
    plan->least_budget_bytes = a->least_budget_bytes;
    plan->n_presets          = a->n_presets;
    plan->presets            = vp_arena_array(plan->arena, a->n_presets, sizeof *plan->presets);
    for (int64_t i = 0; plan->presets && i < a->n_presets; i++)
        plan->presets[i] =
            (vp_preset_result){.name        = vp_arena_strdup(plan->arena, a->presets[i].name),
                               .peak_bytes  = a->presets[i].candidate.figures.peak_bytes,
                               .step_time_s = a->presets[i].candidate.figures.step_time_s,
                               .fits        = a->presets[i].candidate.fits};
    if (a->n_candidates && (c == &a->candidates[0] || c == &a->lean)) {
        plan->proof     = a->proof;
        plan->proof_gap = a->gap;
        plan->bound_s   = a->bound_s;
        if (c->figures.step_time_s > a->candidates[0].figures.step_time_s)
            plan->fastest_s = a->candidates[0].figures.step_time_s;
    }
    if (!cost.all_measured)
        json_array_append_new(
            plan->assumptions,
            json_string(r->profile ? "times are partly scaled from other measured shapes"
                        : r->device->is_cpu
                            ? "times are a roofline of round figures for a CPU, not measured"
                            : "times are the device's stated rates, derated by what good kernels "
                              "have reached on such cards, not measured"));
    VP_TRY_ALLOC(err, !vp_arena_failed(plan->arena));
out:
    if (st != VP_OK) {
        vp_plan_free(*out);
        *out = NULL;
    }
    return st;
}

/* ---- the undivided program ---- */

vp_status vp_planner_monolithic(const vp_plan_request *r, const vp_plan_answer *a,
                                vp_monolithic_check *out, vp_err *err)
{
    vp_ilp_problem p = a->problem;
    vp_whole       whole;
    vp_status      st = VP_OK;

    *out         = (vp_monolithic_check){.status = "failed", .step_time_s = -1, .planned_s = -1};
    p.upper_ns   = INT64_MAX;
    p.max_nodes  = 10000000; /* its nodes are cheap, and there are more of them */
    p.max_pivots = 1000000000;
    p.n_ilps     = 0;
    p.ilps       = vp_arena_array(a->arena, a->n_scenarios, sizeof *p.ilps);
    VP_TRY_ALLOC(err, p.ilps);
    /* the first instance's need is no row of an integer program */
    for (int64_t i = 0; i < a->n_scenarios; i++)
        if (vp_figures_may_fit(r->device, &a->scenarios[i]->figures, r->budget_bytes))
            p.ilps[p.n_ilps++] = a->problem.ilps[i];
    VP_TRY(vp_solve_monolithic(a->arena, &p, &whole, err));
    if (a->n_candidates)
        VP_TRY(find_at_budget(r, a, r->budget_bytes, true, &out->planned_s, NULL, err));
    out->status    = vp_monolithic_end_name(whole.answer.end);
    out->n_columns = whole.answer.n_columns;
    out->n_rows    = whole.answer.n_rows;
    out->n_nodes   = whole.answer.n_nodes;
    out->seconds   = whole.seconds;
    out->note      = whole.note;
    if (whole.cost_ns >= 0)
        out->step_time_s = (double)whole.cost_ns * 1e-9;
    out->decided =
        whole.answer.end == VP_MONOLITHIC_OPTIMAL || whole.answer.end == VP_MONOLITHIC_INFEASIBLE;
    if (out->decided)
        out->equal = out->planned_s < 0 ? whole.answer.end == VP_MONOLITHIC_INFEASIBLE
                                        : whole.cost_ns == llround(out->planned_s * 1e9);
out:
    return st;
}
