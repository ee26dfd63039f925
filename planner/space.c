#include "planner/space.h"

#include "base/checked.h"
#include "base/units.h"
#include "planner/moved_space.h"
#include "planner/outline_store.h"
#include "planner/parts.h"
#include "planner/space_settings.h"
#include "planner/streamed_space.h"

#include <assert.h>
#include <string.h>

/* The hull of a program's items: that of a scenario before it with the same ones, or a new one. */
static const vp_ilp_hull *hull_of(const vp_plan_answer *a, const vp_ilp *ilp)
{
    enum { NEAR = 32 }; /* of one micro-batch they stand near each other */

    for (int64_t i = a->n_scenarios - 1; i >= 0 && i >= a->n_scenarios - NEAR; i--)
        if (a->problem.ilps[i].items == ilp->items)
            return a->problem.ilps[i].hull;
    return vp_ilp_hull_make(a->arena, ilp);
}

/* One more of a candidate, with what blocks can do; for its bytes alone without a hull. */
static vp_status add_scenario(vp_plan_answer *a, vp_candidate *c, const vp_library *library,
                              const vp_ilp *ilp, int64_t *cap, vp_err *err)
{
    int64_t   n  = a->n_scenarios;
    vp_status st = VP_OK;

    VP_TRY_ALLOC(
        err,
        vp_arena_grow(a->arena, (void **)&a->scenarios, n, &cap[0], sizeof *a->scenarios) &&
            vp_arena_grow(a->arena, (void **)&a->libraries, n, &cap[1], sizeof *a->libraries) &&
            vp_arena_grow(a->arena, (void **)&a->problem.ilps, n, &cap[2],
                          sizeof *a->problem.ilps));
    assert(n < cap[0] && n < cap[1] && n < cap[2]);
    a->scenarios[n]    = c;
    a->libraries[n]    = library;
    a->problem.ilps[n] = *ilp;
    if (!a->bytes_alone)
        VP_TRY_ALLOC(err, a->problem.ilps[n].hull = hull_of(a, ilp));
    a->n_scenarios++;
out:
    return st;
}

/* Those whose blocks move activations: of each choice of outputs with one slot, and with two. */
static vp_status add_moved(const vp_plan_request *r, vp_plan_answer *a, const vp_setting *s,
                           const vp_candidate *base, const vp_ilp *ilp, const vp_offload *only,
                           int64_t *cap, vp_err *err)
{
    const int64_t arena_bytes = vp_device_arena_bytes(r->device, r->budget_bytes);
    const int64_t n_micro     = r->global_batch / s->micro_batch;
    vp_status     st          = VP_OK;

    for (int i = 0; i < s->blocks->n_moved; i++)
        for (int n_slots = 1; n_slots <= VP_MAX_ACTIVATION_SLOTS && n_slots < ilp->n_blocks;
             n_slots++) { /* the last block on each slot keeps its outputs there */
            const vp_library *lib = &s->blocks->moved_libraries[i];
            vp_ilp            p   = *ilp;
            if (only && (only->activations != s->blocks->moved[i] || only->n_slots != n_slots))
                continue;
            if (lib->n == 0 ||
                vp_moved_beside(&base->figures,
                                vp_moved_sent_bytes(ilp->n_blocks, &s->blocks->outputs,
                                                    s->blocks->moved[i], n_slots)) >
                    vp_request_host_room(r, base->figures.pageable_bytes))
                continue;
            vp_candidate *c = vp_candidate_keep(a->arena, base);
            VP_TRY_ALLOC(err, c);
            c->scenario.offload.activations = s->blocks->moved[i];
            c->scenario.offload.n_slots     = n_slots;
            vp_moved_add_slots(r->device, &s->blocks->outputs, s->blocks->moved[i], n_slots,
                               &c->figures);
            p.base_bytes += c->figures.stack_base_bytes - base->figures.stack_base_bytes;
            p.n_items = lib->n;
            if (a->bytes_alone)
                VP_TRY_ALLOC(err, p.items = vp_items_make(a->arena, lib, n_micro));
            else if (s->offload.blocks)
                VP_TRY(vp_streamed_bound(a->arena, lib, &c->figures, n_slots, n_micro, arena_bytes,
                                         &p, err));
            else
                VP_TRY_ALLOC(err, vp_moved_bound(a->arena, lib, n_slots, n_micro, &c->figures,
                                                 arena_bytes, &p));
            VP_TRY(add_scenario(a, c, lib, &p, cap, err));
        }
out:
    return st;
}

/* The least host memory of what blocks may do beside what is held there; INT64_MAX: they must move activations
 * and have none that may. */
static int64_t host_need(const vp_plan_request *r, const vp_setting *s, const vp_figures *held)
{
    const int64_t n_blocks    = r->model->graph.n_instances - 2;
    int64_t       least_bytes = INT64_MAX;

    if (!vp_request_must_move(r))
        return held->host_bytes;
    for (int i = 0; i < s->blocks->n_moved; i++)
        for (int n_slots = 1; n_slots <= VP_MAX_ACTIVATION_SLOTS; n_slots++)
            if (s->blocks->moved_libraries[i].n > 0 && n_slots < n_blocks)
                least_bytes =
                    vp_min_i64(least_bytes, vp_moved_sent_bytes(n_blocks, &s->blocks->outputs,
                                                                s->blocks->moved[i], n_slots));
    return least_bytes == INT64_MAX ? INT64_MAX : vp_moved_beside(held, least_bytes);
}

bool vp_has_room(const vp_plan_request *r, const vp_figures *f)
{
    return f->host_bytes <= vp_request_host_room(r, f->pageable_bytes) &&
           f->nvme_bytes <= r->nvme_bytes;
}

/* What of a need is not there. */
static int64_t lack(int64_t need_bytes, int64_t have_bytes)
{
    return vp_max_i64(0, need_bytes - have_bytes);
}

static bool is_nearer(const vp_plan_request *r, const vp_host_needs *a, const vp_host_needs *b)
{
    const int64_t pinned   = r->pinned_bytes ? r->pinned_bytes : INT64_MAX;
    const int64_t by[3][2] = {
        {lack(a->host_bytes, r->host_bytes), lack(b->host_bytes, r->host_bytes)},
        {lack(a->pinned_bytes, pinned), lack(b->pinned_bytes, pinned)},
        {lack(a->nvme_bytes, r->nvme_bytes), lack(b->nvme_bytes, r->nvme_bytes)}};

    for (int i = 0; i < 3; i++)
        if (by[i][0] != by[i][1])
            return by[i][0] < by[i][1];
    return false;
}

/* need_bytes: of host memory, as host_need() says; INT64_MAX: there is no such scenario. */
static void note_least(const vp_plan_request *r, vp_plan_answer *a, int64_t need_bytes,
                       const vp_figures *held)
{
    const vp_host_needs needs = {need_bytes, need_bytes - held->pageable_bytes, held->nvme_bytes};

    a->least_host_bytes = vp_min_i64(a->least_host_bytes, need_bytes);
    if (need_bytes < INT64_MAX && is_nearer(r, &needs, &a->nearest))
        a->nearest = needs;
}

/* Whether activations may move beside this: states of none, half or all of the chain. */
static bool moves_beside(const vp_plan_request *r, const vp_offload *held)
{
    int64_t n = r->model->graph.n_instances;

    return held->states == 0 || held->states == n / 2 || held->states == n;
}

/* What gradients that are used up in backward need more where some segment is of m blocks. */
static int64_t more_passing(const vp_figures *f, int64_t m)
{
    return vp_max_i64(0, vp_mul(m, f->block_passing_bytes) - f->passing_bytes);
}

/* The strategies of at most m blocks. */
static vp_status take_shorter(vp_arena *arena, const vp_library *all, int64_t m, vp_library **out,
                              vp_err *err)
{
    vp_library *lib = vp_arena_alloc(arena, sizeof *lib);
    vp_status   st  = VP_OK;

    VP_TRY_ALLOC(err, lib);
    *lib = (vp_library){.n_lowered  = all->n_lowered,
                        .strategies = vp_arena_array(arena, all->n, sizeof *lib->strategies)};
    VP_TRY_ALLOC(err, lib->strategies);
    for (int64_t i = 0; i < all->n; i++)
        if (all->strategies[i].segment <= m)
            lib->strategies[lib->n++] = all->strategies[i];
    *out = lib;
out:
    return st;
}

/* Whether states of a share of the chain are in host memory. A share counts instances, of which a segment
 * is one: it would be of other parameters there, so that blocks stand alone beside it. */
static bool holds_share(const vp_plan_request *r, const vp_setting *s)
{
    return s->offload.states > 0 && s->offload.states < r->model->graph.n_instances;
}

/* Blocks in any way: one scenario, or where segments' gradients need more one for each length of the
 * longest that needs more than a shorter one. */
static vp_status add_any(const vp_plan_request *r, vp_plan_answer *a, const vp_setting *s,
                         const vp_candidate *base, int64_t *cap, vp_err *err)
{
    const vp_library *all     = &s->blocks->all;
    int64_t           longest = 1;
    vp_status         st      = VP_OK;

    for (int64_t i = 0; i < all->n; i++)
        longest = vp_max_i64(longest, all->strategies[i].segment);
    const int64_t most = holds_share(r, s) ? 1 : longest;
    for (int64_t m = 1; m <= most; m++) {
        const int64_t more = more_passing(&base->figures, m);
        vp_library   *lib  = &s->blocks->all;
        vp_candidate *c;
        if (m < most && more_passing(&base->figures, m + 1) == more)
            continue;
        if (m < longest)
            VP_TRY(take_shorter(a->arena, all, m, &lib, err));
        if (lib->n == 0)
            continue;
        VP_TRY_ALLOC(err, c = vp_candidate_keep(a->arena, base));
        c->figures.stack_base_bytes = vp_add(c->figures.stack_base_bytes, more);
        c->figures.peak_bytes       = vp_add(c->figures.peak_bytes, more);
        c->figures.device_bytes     = vp_device_bytes(r->device, c->figures.peak_bytes);
        vp_ilp p                    = vp_setting_ilp(r, &c->figures, s->blocks, false);
        if (lib->n < all->n) {
            p.n_items = lib->n;
            VP_TRY_ALLOC(err,
                         p.items = vp_items_make(a->arena, lib, r->global_batch / s->micro_batch));
        }
        VP_TRY(add_scenario(a, c, lib, &p, cap, err));
    }
out:
    return st;
}

/* Blocks in any way, or streamed and alone; and those that move activations. only: these of them. */
static vp_status add_scenarios(const vp_plan_request *r, vp_plan_answer *a, const vp_setting *s,
                               const vp_recipe *recipe, int64_t recipe_idx,
                               vp_attention_kind attention, const vp_offload *only, int64_t *cap,
                               vp_err *err)
{
    const bool    partly = holds_share(r, s);
    vp_candidate *kept;
    vp_status     st = VP_OK;

    note_least(r, a, host_need(r, s, &s->figures[recipe_idx]), &s->figures[recipe_idx]);
    if (!vp_has_room(r, &s->figures[recipe_idx]) ||
        (r->n_segments && (partly || s->offload.blocks)))
        return VP_OK;
    assert(recipe_idx < VP_N_OPTIMIZERS);
    vp_candidate c = {.figures = s->figures[recipe_idx]};
    vp_setting_scenario(r, s, recipe, attention, &c.scenario);
    const bool    alone    = s->offload.blocks || partly;
    vp_ilp        p        = vp_setting_ilp(r, &c.figures, s->blocks, alone);
    const int64_t const_ns = p.const_ns;
    if (s->offload.blocks && !a->bytes_alone)
        VP_TRY(vp_streamed_bound(a->arena, &s->blocks->alone, &c.figures, 0,
                                 r->global_batch / s->micro_batch,
                                 vp_device_arena_bytes(r->device, r->budget_bytes), &p, err));
    if (only ? !only->activations : !vp_request_must_move(r)) {
        if (alone) {
            VP_TRY_ALLOC(err, kept = vp_candidate_keep(a->arena, &c));
            VP_TRY(add_scenario(a, kept, &s->blocks->alone, &p, cap, err));
        } else {
            VP_TRY(add_any(r, a, s, &c, cap, err));
        }
    }
    p.const_ns = const_ns;
    if (moves_beside(r, &s->offload) && !(only && !only->activations))
        VP_TRY(add_moved(r, a, s, &c, &p, only, cap, err));
out:
    return st;
}

static vp_recipes recipes_of(const vp_plan_request *r, vp_precision precision,
                             vp_gradients gradients)
{
    vp_recipe  all[VP_MAX_RECIPES];
    int        n   = vp_request_recipes(r, all);
    vp_recipes out = {.n = 0};

    for (int i = 0; i < n; i++)
        if (all[i].precision == precision && all[i].gradients == gradients)
            out.of[out.n++] = all[i];
    return out;
}

static vp_status list_formats(const vp_plan_request *r, const vp_plan_answer *like,
                              vp_plan_answer *a, vp_cost *cost, vp_space_extent extent,
                              vp_precision precision, vp_gradients gradients, int64_t *cap,
                              vp_err *err)
{
    vp_recipes  from                  = recipes_of(r, precision, gradients);
    vp_settings list[VP_N_ATTENTIONS] = {{0}};
    vp_status   st                    = VP_OK;

    if (from.n == 0)
        return VP_OK;
    for (int kind = 0; kind < VP_N_ATTENTIONS; kind++)
        if (r->attention == VP_ATTENTION_ANY || kind == (int)r->attention)
            VP_TRY(vp_settings_list(r, like, a, cost, extent, &from, (vp_attention_kind)kind,
                                    &list[kind], err));
    for (int64_t i = 0; i < from.n; i++)
        for (int kind = 0; kind < VP_N_ATTENTIONS; kind++)
            for (int64_t k = 0; k < list[kind].n; k++)
                VP_TRY(add_scenarios(r, a, &list[kind].at[k], &from.of[i], i,
                                     (vp_attention_kind)kind, NULL, cap, err));
out:
    return st;
}

vp_status vp_space_list(const vp_plan_request *r, const vp_plan_answer *like, vp_plan_answer *a,
                        vp_cost *cost, vp_space_extent extent, vp_err *err)
{
    int64_t   cap[3] = {0};
    vp_status st     = VP_OK;

    a->n_scenarios      = 0;
    a->least_host_bytes = INT64_MAX;
    a->nearest          = (vp_host_needs){INT64_MAX, INT64_MAX, INT64_MAX};
    a->cut              = false;
    a->bytes_alone      = extent == VP_SPACE_LEAST;
    a->scenarios        = NULL;
    a->libraries        = NULL;

    a->problem = (vp_ilp_problem){.budget_bytes = vp_device_arena_bytes(r->device, r->budget_bytes),
                                  .upper_ns     = INT64_MAX,
                                  .gap          = r->gap,
                                  .max_nodes    = 20000,
                                  .max_pivots   = 2000000,
                                  .max_memory_bytes = (int64_t)1 << 30};
    for (int p = 0; p < VP_N_PRECISIONS; p++)
        for (int g = 0; g < VP_N_GRADIENTS; g++)
            VP_TRY(
                list_formats(r, like, a, cost, extent, (vp_precision)p, (vp_gradients)g, cap, err));
    a->problem.n_ilps = a->n_listed = a->n_scenarios;
    a->between_ns                   = INT64_MAX;
out:
    return st;
}

/* ---- chunks between those that are listed ---- */

/* Partial chains that are gone through to see where none of them pays. */
enum { STATES_BETWEEN = 1000000 };

static int64_t n_chunks(const vp_scenario *s)
{
    return s->loss_chunk ? vp_ceil_div(s->micro_batch * s->seq, s->loss_chunk) : 1;
}

/* Whether two scenarios differ in chunks at most. */
static bool is_alike(const vp_plan_answer *a, int64_t i, int64_t k)
{
    const vp_scenario *x = &a->scenarios[i]->scenario, *y = &a->scenarios[k]->scenario;

    return x->offload.activations == y->offload.activations && /* in which most differ */
           x->offload.n_slots == y->offload.n_slots && x->offload.states == y->offload.states &&
           x->offload.host_step == y->offload.host_step && x->offload.blocks == y->offload.blocks &&
           x->micro_batch == y->micro_batch && x->attention == y->attention &&
           x->recipe.precision == y->recipe.precision &&
           x->recipe.gradients == y->recipe.gradients &&
           x->recipe.optimizer == y->recipe.optimizer && a->libraries[i]->n == a->libraries[k]->n;
}

/* Of scenarios from `from` on that are like i, that of the fewest chunks more than it has, if it has fewer than
 * `best`; -1 for none. Those that were listed stand by micro-batch, in ascending chunks. */
static int64_t next_smaller(const vp_plan_answer *a, int64_t i, int64_t from, int64_t best)
{
    const vp_scenario *x      = &a->scenarios[i]->scenario;
    const bool         listed = from < a->n_listed;

    for (int64_t k = from; k < a->n_scenarios && !(listed && k == a->n_listed); k++) {
        const vp_scenario *y = &a->scenarios[k]->scenario;
        if (listed && y->micro_batch != x->micro_batch)
            break;
        if (is_alike(a, i, k) && n_chunks(y) > n_chunks(x) &&
            (best < 0 || n_chunks(y) < n_chunks(&a->scenarios[best]->scenario))) {
            best = k;
            if (listed)
                break;
        }
    }
    return best;
}

/* A chunk in the middle between two scenarios' chunks; 0: there is none. */
static int64_t chunk_between(const vp_scenario *x, const vp_scenario *y)
{
    const int64_t tokens = x->micro_batch * x->seq, n = (n_chunks(x) + n_chunks(y)) / 2;
    const int64_t chunk = vp_round_up(vp_ceil_div(tokens, n), VP_TILE_TOKENS),
                  made  = vp_ceil_div(tokens, chunk);

    return made > n_chunks(x) && made < n_chunks(y) ? chunk : 0;
}

/* What a chunk between those of two scenarios takes at least. INT64_MAX: more than there is room for. */
static vp_status bound_between(const vp_plan_request *r, const vp_plan_answer *a, int64_t larger,
                               int64_t smaller, int64_t upper_ns, int64_t *n_states_left,
                               int64_t *bound_ns, vp_err *err)
{
    vp_ilp    p  = a->problem.ilps[larger];
    vp_status st = VP_OK;

    p.base_bytes = vp_min_i64(p.base_bytes, a->problem.ilps[smaller].base_bytes);
    p.end_bytes  = vp_min_i64(p.end_bytes, a->problem.ilps[smaller].end_bytes);
    if ((!vp_figures_may_fit(r->device, &a->scenarios[larger]->figures, r->budget_bytes) &&
         !vp_figures_may_fit(r->device, &a->scenarios[smaller]->figures, r->budget_bytes)) ||
        !vp_dp_bound(&p, a->problem.budget_bytes, bound_ns))
        *bound_ns = INT64_MAX;
    else if (*bound_ns < upper_ns)
        VP_TRY(vp_parts_bound(r, a, larger, &p, a->problem.budget_bytes, upper_ns, n_states_left,
                              bound_ns, err));
out:
    return st;
}

static vp_status add_chunk(const vp_plan_request *r, vp_plan_answer *a, vp_cost *cost,
                           const vp_scenario *like, int64_t chunk, int64_t *cap, vp_err *err)
{
    const vp_recipes from = {.of = {like->recipe}, .n = 1};
    vp_setting       s    = {.micro_batch = like->micro_batch,
                             .loss_chunk  = chunk,
                             .offload     = like->offload,
                             .blocks      = vp_blocks_find(a, like->micro_batch,
                                                           vp_semantics_of(&like->recipe, like->attention))};
    vp_status        st   = VP_OK;

    assert(s.blocks);
    s.offload.activations = 0;
    s.offload.n_slots     = 0;
    VP_TRY(vp_setting_figures(r, cost, &from, like->attention, &s, err));
    if (!s.figures[0].unlike)
        VP_TRY(
            add_scenarios(r, a, &s, &like->recipe, 0, like->attention, &like->offload, cap, err));
out:
    return st;
}

vp_status vp_space_refine(const vp_plan_request *r, vp_plan_answer *a, vp_cost *cost,
                          int64_t best_ns, int64_t *n_left, vp_err *err)
{
    const int64_t n        = a->n_scenarios;
    const int64_t upper_ns = best_ns - (int64_t)(r->gap * (double)best_ns);
    int64_t       cap[3]   = {n, n, n}; /* all that there is room for, as far as is known */
    int64_t       n_states = STATES_BETWEEN;
    vp_status     st       = VP_OK;

    a->between_ns = INT64_MAX;
    for (int64_t i = 0; r->loss_chunk < 0 && i < n; i++) {
        const vp_scenario *x = &a->scenarios[i]->scenario;
        int64_t            bound_ns, next, chunk;
        /* however much room there was */
        if (!vp_dp_bound(&a->problem.ilps[i], INT64_MAX / 4, &bound_ns) || bound_ns >= best_ns)
            continue;
        next = i < a->n_listed ? next_smaller(a, i, i + 1, -1) : next_smaller(a, i, 0, -1);
        next = next_smaller(a, i, a->n_listed, next);
        if (next < 0 || next >= n || !(chunk = chunk_between(x, &a->scenarios[next]->scenario)))
            continue;
        VP_TRY(bound_between(r, a, i, next, best_ns, &n_states, &bound_ns, err));
        if (bound_ns<upper_ns && * n_left> 0) {
            VP_TRY(add_chunk(r, a, cost, x, chunk, cap, err));
            --*n_left;
        } else {
            a->between_ns = vp_min_i64(a->between_ns, bound_ns);
        }
    }
    a->problem.n_ilps = a->n_scenarios;
out:
    return st;
}

/* ---- micro-batches between those that are listed ---- */

vp_status vp_space_add_near(const vp_plan_request *r, vp_plan_answer *a, vp_cost *cost,
                            const vp_scenario *like, vp_err *err)
{
    const vp_semantics *semantics = vp_semantics_of(&like->recipe, like->attention);
    vp_outline_store   *own       = r->outlines ? NULL : vp_outline_store_new(r->model);
    vp_outline_store   *outlines  = r->outlines ? r->outlines : own;
    int64_t             cap[3]    = {a->n_scenarios, a->n_scenarios, a->n_scenarios}, n, *micros;
    vp_settings         list      = {0};
    vp_status           st        = VP_OK;

    VP_TRY_ALLOC(err, outlines);
    VP_TRY_ALLOC(err, micros = vp_request_micro_batches_near(r, a->arena, like->micro_batch, &n));
    for (int64_t i = 0; i < n; i++) {
        vp_blocks *b = vp_blocks_find(a, micros[i], semantics);
        if (!b) {
            VP_TRY(vp_blocks_make(r, cost, micros[i], semantics, outlines, &b, err));
            VP_TRY(vp_blocks_keep(a, b, err));
        }
        if (b->alone.n > 0)
            VP_TRY(vp_settings_of(r, a, cost, &like->recipe, like->attention, b, &list, err));
    }
    for (int64_t i = 0; i < list.n; i++)
        VP_TRY(add_scenarios(r, a, &list.at[i], &like->recipe, 0, like->attention, NULL, cap, err));
    a->problem.n_ilps = a->n_scenarios;
out:
    vp_outline_store_free(own);
    return st;
}
