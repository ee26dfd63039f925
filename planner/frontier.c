#include "planner/frontier.h"

#include "core/checked.h"
#include "core/units.h"

#include <string.h>

enum { N_POINTS = 16 };

vp_status vp_frontier_trace(const vp_plan_request *r, const vp_plan_answer *a, vp_frontier *out, vp_err *err)
{
    int64_t   least = a->least_budget_bytes, most = least;
    double    best_s = -1;
    vp_status st = VP_OK;

    *out = (vp_frontier){.arena = vp_arena_new()};
    VP_TRY_ALLOC(err, out->arena);
    out->points = vp_arena_array(out->arena, N_POINTS, sizeof *out->points);
    VP_TRY_ALLOC(err, out->points);
    vp_candidate free_choice;
    VP_TRY(vp_planner_at_budget(r, a, INT64_MAX / 2, &best_s, &free_choice, err));
    most = vp_min_i64(free_choice.figures.device_bytes, vp_max_i64(r->device->usable_bytes, r->budget_bytes));
    most = vp_max_i64(least, most);
    for (int64_t i = 0; i < N_POINTS; i++) {
        int64_t      budget = least + (most - least) / (N_POINTS - 1) * i + (i == N_POINTS - 1 ? (most - least) % (N_POINTS - 1) : 0);
        vp_candidate c;
        double       step_s;
        VP_TRY(vp_planner_at_budget(r, a, budget, &step_s, &c, err));
        if (step_s < 0)
            continue;
        vp_frontier_point p = {budget, c.figures.peak_bytes, step_s};
        if (out->n && p.step_time_s > out->points[out->n - 1].step_time_s) { /* what fitted less fits more */
            p.step_time_s = out->points[out->n - 1].step_time_s;
            p.peak_bytes  = out->points[out->n - 1].peak_bytes;
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

bool vp_frontier_svg(const vp_plan_request *r, const vp_frontier *f, vp_text *out)
{
    enum { WIDTH = 720, HEIGHT = 420, LEFT = 80, RIGHT = 20, TOP = 40, BOTTOM = 60 };
    const vp_frontier_point *first = &f->points[0], *last = &f->points[f->n - 1];
    double x_span = (double)(last->budget_bytes - first->budget_bytes), y_span = first->step_time_s - last->step_time_s;
    char   a[32], b[32];

    x_span = x_span > 0 ? x_span : 1;
    y_span = y_span > 0 ? y_span : 1;
    vp_text_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"13\">\n", WIDTH, HEIGHT);
    vp_text_printf(out, "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"%d\" y=\"22\">Step time against memory budget, %s</text>\n", LEFT,
                   r->device->name);
    vp_text_printf(out, "<polyline fill=\"none\" stroke=\"#1f5fa8\" stroke-width=\"2\" points=\"");
    for (int64_t i = 0; i < f->n; i++)
        vp_text_printf(out, "%.1f,%.1f ", LEFT + (WIDTH - LEFT - RIGHT) * (double)(f->points[i].budget_bytes - first->budget_bytes) / x_span,
                       TOP + (HEIGHT - TOP - BOTTOM) * (first->step_time_s - f->points[i].step_time_s) / y_span);
    vp_text_printf(out, "\"/>\n");
    double mark = LEFT + (WIDTH - LEFT - RIGHT) * (double)(r->budget_bytes - first->budget_bytes) / x_span;
    if (mark >= LEFT && mark <= WIDTH - RIGHT)
        vp_text_printf(out, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#b03030\" stroke-dasharray=\"4 4\"/>\n<text x=\"%.1f\" y=\"%d\" fill=\"#b03030\">budget</text>\n",
                       mark, TOP, mark, HEIGHT - BOTTOM, mark + 4, TOP + 12);
    vp_text_printf(out, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"black\"/>\n<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"black\"/>\n", LEFT, TOP, LEFT,
                   HEIGHT - BOTTOM, LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM);
    vp_text_printf(out, "<text x=\"%d\" y=\"%d\">%s</text>\n<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", LEFT, HEIGHT - BOTTOM + 20,
                   vp_size_text(first->budget_bytes, a, sizeof a), WIDTH - RIGHT, HEIGHT - BOTTOM + 20, vp_size_text(last->budget_bytes, b, sizeof b));
    vp_text_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n</svg>\n", LEFT - 6, TOP + 5,
                   vp_time_text(first->step_time_s, a, sizeof a), LEFT - 6, HEIGHT - BOTTOM, vp_time_text(last->step_time_s, b, sizeof b));
    return !out->failed;
}

/* ---- infeasible ---- */

/* Whether what no scenario of one recipe can do without leaves room in the budget: parameters, gradients, optimizer state, the batch. */
static vp_status has_room(const vp_plan_request *r, bool *room, vp_err *err)
{
    vp_cost     cost = {.device = r->device, .profile = r->profile};
    vp_scenario s    = {.recipe = r->recipe, .seq = r->seq, .micro_batch = r->global_batch, .global_batch = r->global_batch,
                        .attention = r->attention == VP_ATTENTION_ANY ? VP_ATTENTION_FLASH : r->attention};
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

/* like: as for vp_planner_least(). */
static vp_status try_change(const vp_plan_request *r, const vp_plan_answer *like, vp_changes *out, const char *text, vp_err *err)
{
    int64_t   least_bytes;
    bool      room;
    vp_status st = VP_OK;

    if (out->n == VP_MAX_CHANGES)
        return VP_OK;
    VP_TRY(has_room(r, &room, err));
    if (!room)
        return VP_OK;
    VP_TRY(vp_planner_least(r, like, &least_bytes, err));
    if (least_bytes > 0 && least_bytes <= r->budget_bytes) {
        out->changes[out->n++] = (vp_change){vp_arena_strdup(out->arena, text), least_bytes};
        VP_TRY_ALLOC(err, !vp_arena_failed(out->arena));
    }
out:
    return st;
}

static const char *binding_words(const vp_plan_request *r, const vp_plan_answer *a, vp_arena *arena)
{
    const vp_figures *f = &a->least.figures;
    char              x[32], y[32];

    if (f->stack_base_bytes > vp_device_arena_bytes(r->device, r->budget_bytes))
        return vp_arena_printf(arena, "parameters, gradients and optimizer state alone are %s", vp_size_text(f->stack_base_bytes, x, sizeof x));
    return vp_arena_printf(arena, "%s of parameters, gradients and optimizer state, and %s of activations at the leanest setting",
                           vp_size_text(f->stack_base_bytes, x, sizeof x), vp_size_text(f->peak_bytes - f->stack_base_bytes, y, sizeof y));
}

/* Other recipes, the one nearest to what was asked for first. */
static vp_status try_recipes(const vp_plan_request *r, const vp_plan_request *changed, const vp_plan_answer *like, vp_changes *out, vp_err *err)
{
    const struct {
        bool         offered;
        vp_precision precision;
        vp_optimizer optimizer;
        const char  *text;
    } recipes[] = {
        {!r->any_optimizer && r->recipe.optimizer == VP_OPT_ADAMW, r->recipe.precision, VP_OPT_ADAMW_8BIT, "--optimizer adamw-8bit (another recipe: optimizer states in 8 bits)"},
        {!r->any_precision && r->recipe.precision != VP_PREC_BF16 && (r->device->bf16 || r->device->is_cpu), VP_PREC_BF16, r->recipe.optimizer,
         "--precision bf16 (another recipe: parameters and activations in 16 bits)"},
        {!r->any_optimizer && r->recipe.optimizer != VP_OPT_SGD, r->recipe.precision, VP_OPT_SGD, "--optimizer sgd (another recipe: no optimizer state)"},
    };
    vp_status st = VP_OK;

    for (size_t k = 0; k < sizeof recipes / sizeof *recipes; k++) {
        vp_plan_request lean = *changed;
        if (!recipes[k].offered)
            continue;
        lean.recipe.precision = recipes[k].precision;
        if (recipes[k].optimizer != lean.recipe.optimizer)
            vp_recipe_set_optimizer(&lean.recipe, recipes[k].optimizer);
        VP_TRY(try_change(&lean, like, out, recipes[k].text, err));
    }
out:
    return st;
}

vp_status vp_changes_find(const vp_plan_request *r, const vp_plan_answer *a, vp_changes *out, vp_err *err)
{
    vp_plan_request       changed = *r;
    bool                  pinned  = r->micro_batch || r->recompute != VP_RECOMPUTE_ANY || r->loss_chunk != VP_CHUNK_ANY;
    const vp_plan_answer *like    = pinned ? NULL : a;
    char                  text[80];
    vp_status             st = VP_OK;

    *out = (vp_changes){.arena = vp_arena_new()};
    VP_TRY_ALLOC(err, out->arena);
    out->binding = binding_words(r, a, out->arena);
    VP_TRY_ALLOC(err, out->binding);
    if (pinned) {
        changed.micro_batch = 0;
        changed.recompute   = VP_RECOMPUTE_ANY;
        changed.loss_chunk  = VP_CHUNK_ANY;
        VP_TRY(try_change(&changed, NULL, out, "leave --micro-batch, --recompute and --loss free", err));
    }
    for (int64_t seq = r->seq / 2; seq >= 64 && seq >= r->seq / 8; seq /= 2) {
        vp_plan_request shorter = changed;
        int64_t         n       = out->n;
        shorter.seq = seq;
        snprintf(text, sizeof text, "--seq %lld", (long long)seq);
        VP_TRY(try_change(&shorter, NULL, out, text, err));
        if (out->n > n)
            break;
    }
    VP_TRY(try_recipes(r, &changed, like, out, err));
out:
    return st;
}

void vp_changes_release(vp_changes *c)
{
    vp_arena_free(c->arena);
    *c = (vp_changes){0};
}
