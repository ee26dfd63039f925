#include "planner/frontier.h"

#include "base/checked.h"

enum { N_POINTS = 16 };

vp_status vp_frontier_trace(const vp_plan_request *r, const vp_plan_answer *a, vp_frontier *out,
                            vp_err *err)
{
    int64_t   least = a->least_budget_bytes, most = least;
    double    best_s = -1;
    vp_status st     = VP_OK;

    *out = (vp_frontier){.arena = vp_arena_new()};
    VP_TRY_ALLOC(err, out->arena);
    out->points = vp_arena_array(out->arena, N_POINTS, sizeof *out->points);
    VP_TRY_ALLOC(err, out->points);
    vp_candidate free_choice;
    VP_TRY(vp_planner_at_budget(r, a, INT64_MAX / 2, &best_s, &free_choice, err));
    most = vp_min_i64(free_choice.figures.device_bytes,
                      vp_max_i64(r->device->usable_bytes, r->budget_bytes));
    most = vp_max_i64(least, most);
    for (int64_t i = 0; i < N_POINTS; i++) {
        int64_t budget = least + (most - least) / (N_POINTS - 1) * i +
                         (i == N_POINTS - 1 ? (most - least) % (N_POINTS - 1) : 0);
        vp_candidate c;
        double       step_s;
        VP_TRY(vp_planner_at_budget(r, a, budget, &step_s, &c, err));
        if (step_s < 0)
            continue;
        vp_frontier_point p = {budget, c.figures.peak_bytes, c.figures.device_bytes, step_s};
        /* what fitted less fits more */
        if (out->n && p.step_time_s > out->points[out->n - 1].step_time_s) {
            p              = out->points[out->n - 1];
            p.budget_bytes = budget;
        }
        out->points[out->n++] = p;
        if (most == least)
            break;
    }
out:
    return st;
}

void vp_frontier_release(vp_frontier *f)
{
    vp_arena_free(f->arena);
    *f = (vp_frontier){0};
}

/* ---- infeasible ---- */

/* Whether what no scenario of one recipe can do without leaves room in the budget: parameters,
 * gradients, optimizer state, the batch. */
static vp_status has_room(const vp_plan_request *r, bool *room, vp_err *err)
{
    vp_cost     cost = {.device = r->device, .profile = r->profile};
    vp_scenario s    = {.recipe       = r->recipe,
                        .seq          = r->seq,
                        .micro_batch  = r->global_batch,
                        .global_batch = r->global_batch,
                        .attention =
                         r->attention == VP_ATTENTION_ANY ? VP_ATTENTION_FLASH : r->attention};
    vp_figures  figures;
    vp_status   st = VP_OK;

    *room = true;
    if (r->any_precision || r->any_optimizer)
        return VP_OK;
    vp_scenario_set_all(&s, r->model, 0);
    VP_TRY(vp_assemble_figures(r->model, &s, &cost, &figures, err));
    *room = figures.stack_base_bytes <= vp_device_arena_bytes(r->device, r->budget_bytes);
out:
    return st;
}

/* Add a change if the changed request fits. like: as for vp_planner_least(). */
static vp_status try_change(const vp_plan_request *changed, const vp_plan_answer *like,
                            const vp_change *change, vp_changes *out, vp_err *err)
{
    int64_t   least_bytes;
    bool      room;
    vp_status st = VP_OK;

    if (out->n == VP_MAX_CHANGES)
        return VP_OK;
    VP_TRY(has_room(changed, &room, err));
    if (!room)
        return VP_OK;
    VP_TRY(vp_planner_least(changed, like, &least_bytes, err));
    if (least_bytes > 0 && least_bytes <= changed->budget_bytes) {
        out->changes[out->n]               = *change;
        out->changes[out->n++].needs_bytes = least_bytes;
    }
out:
    return st;
}

/* What is free in recipe and attention as the leanest plan has it: one way to look in where all
 * would take many times as long. */
static void narrow_to_leanest(vp_plan_request *r, const vp_plan_answer *a)
{
    const vp_scenario *least = &a->least.scenario;

    if (r->any_precision)
        r->recipe.precision = least->recipe.precision;
    if (r->any_optimizer && least->recipe.optimizer != r->recipe.optimizer)
        vp_recipe_set_optimizer(&r->recipe, least->recipe.optimizer);
    if (r->attention == VP_ATTENTION_ANY)
        r->attention = least->attention;
    r->any_precision = r->any_optimizer = false;
}

/* Other recipes, the one nearest to what was asked for first. */
static vp_status try_recipes(const vp_plan_request *r, const vp_plan_request *changed,
                             const vp_plan_answer *like, const vp_change *from, vp_changes *out,
                             vp_err *err)
{
    const struct {
        bool           offered;
        vp_change_kind kind;
        vp_precision   precision;
        vp_optimizer   optimizer;
    } recipes[] = {
        {!r->any_optimizer && r->recipe.optimizer == VP_OPT_ADAMW, VP_CHANGE_OPTIMIZER,
         r->recipe.precision, VP_OPT_ADAMW_8BIT},
        {!r->any_precision && r->recipe.precision != VP_PREC_BF16 &&
             (r->device->bf16 || r->device->is_cpu),
         VP_CHANGE_PRECISION, VP_PREC_BF16, r->recipe.optimizer},
        {!r->any_optimizer && r->recipe.optimizer != VP_OPT_SGD, VP_CHANGE_OPTIMIZER,
         r->recipe.precision, VP_OPT_SGD},
    };
    vp_status st = VP_OK;

    for (size_t k = 0; k < sizeof recipes / sizeof *recipes; k++) {
        vp_plan_request lean   = *changed;
        vp_change       change = *from;
        if (!recipes[k].offered)
            continue;
        lean.recipe.precision = recipes[k].precision;
        if (recipes[k].optimizer != lean.recipe.optimizer)
            vp_recipe_set_optimizer(&lean.recipe, recipes[k].optimizer);
        change.kind      = recipes[k].kind;
        change.optimizer = recipes[k].optimizer;
        change.precision = recipes[k].precision;
        VP_TRY(try_change(&lean, like, &change, out, err));
    }
out:
    return st;
}

vp_status vp_changes_find(const vp_plan_request *r, const vp_plan_answer *a, vp_changes *out,
                          vp_err *err)
{
    const vp_figures     *least   = &a->least.figures;
    vp_plan_request       changed = *r;
    bool                  pinned  = vp_request_is_pinned(r);
    const vp_plan_answer *like    = pinned ? NULL : a;
    vp_change             change  = {.frees_pins = pinned};
    vp_status             st      = VP_OK;

    *out = (vp_changes){.persistent_bytes = least->stack_base_bytes,
                        .outside_bytes    = least->device_bytes - least->peak_bytes,
                        .activation_bytes = least->peak_bytes - least->stack_base_bytes,
                        .persistent_alone = least->stack_base_bytes >
                                            vp_device_arena_bytes(r->device, r->budget_bytes)};
    if (pinned) {
        changed.micro_batch = 0;
        changed.recompute   = VP_RECOMPUTE_ANY;
        changed.loss_chunk  = VP_CHUNK_ANY;
        change.kind         = VP_CHANGE_UNPIN;
        VP_TRY(try_change(&changed, NULL, &change, out, err));
    }
    if (a->least_budget_bytes)
        narrow_to_leanest(&changed, a);
    change.kind = VP_CHANGE_SEQ;
    for (int64_t seq = r->seq / 2; seq >= 64 && seq >= r->seq / 8; seq /= 2) {
        vp_plan_request shorter = changed;
        int64_t         n       = out->n;
        shorter.seq = change.seq = seq;
        VP_TRY(try_change(&shorter, NULL, &change, out, err));
        if (out->n > n)
            break;
    }
    VP_TRY(try_recipes(r, &changed, like, &change, out, err));
out:
    return st;
}
