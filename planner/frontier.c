#include "planner/frontier.h"

#include "base/checked.h"

#include <assert.h>

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
        /* another budget, the same plan */
        if (out->n && p.device_bytes == out->points[out->n - 1].device_bytes)
            continue;
        /* ascending budgets, step times that never rise: what report/curve_svg.h asks for */
        assert(out->n == 0 || (p.budget_bytes >= out->points[out->n - 1].budget_bytes &&
                               p.step_time_s <= out->points[out->n - 1].step_time_s));
        out->points[out->n++] = p;
    }
out:
    return st;
}

void vp_frontier_release(vp_frontier *f)
{
    vp_arena_free(f->arena);
    *f = (vp_frontier){0};
}
