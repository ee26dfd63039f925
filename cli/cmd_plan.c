/* vplan plan: the fastest configuration that fits, and how good it is known to be. */
#include "cli/bytes_table.h"
#include "cli/cli.h"
#include "cli/cmd_plan_trainer.h"
#include "cli/frontier_chart.h"
#include "cli/names.h"
#include "cli/prices_print.h"
#include "cli/roofline_print.h"
#include "cli/rows.h"
#include "cli/screen.h"
#include "cli/words.h"

#include "base/beside.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "planner/changes.h"
#include "planner/frontier.h"
#include "report/arena_svg.h"
#include "report/curve_svg.h"
#include "report/page.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct answer {
    const char            *name; /* of the model, and what was said of it */
    const vp_plan_options *said;
    vp_plan_job            job;
    vp_plan_answer         found;
    vp_plan               *plan;     /* NULL: infeasible */
    vp_frontier            frontier; /* n 0: not asked for */
    vp_changes             changes;  /* of an infeasible request */
    vp_prices              prices;   /* host and link negative: not asked for */
    bool                   find_prices;
    double                 seconds;
    vp_monolithic_check    whole; /* status NULL: not asked for */
    const char            *path;
    const vp_command_line *line;
    vp_adapters_offer      adapters; /* of an infeasible request */
    const char            *within;
    vp_arena              *arena; /* of itemised */
    vp_itemised            itemised;
    bool                   all; /* a line a kind of tensor */
    const char            *html;
} answer;

/* What the proof is about: the fastest within the budget. */
static const vp_figures *fastest_of(const answer *x)
{
    return &x->found.candidates[0].figures;
}

/* ---- JSON ---- */

static json_t *solver_json(const vp_plan_answer *a)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "programs", (json_int_t)a->n_scenarios,
                     "library_lowered", (json_int_t)a->libraries[0]->n_lowered, "library_points",
                     (json_int_t)a->libraries[0]->n, "nodes", (json_int_t)a->n_nodes, "pivots",
                     (json_int_t)a->n_pivots, "certificate_bytes", (json_int_t)a->certificate_bytes,
                     "note", a->solver_note ? json_string(a->solver_note) : json_null());
}

static json_t *frontier_json(const vp_frontier *f)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < f->n; i++)
        json_array_append_new(list, json_pack("{s:I, s:I, s:I, s:f}", "budget_bytes",
                                              (json_int_t)f->points[i].budget_bytes, "peak_bytes",
                                              (json_int_t)f->points[i].peak_bytes, "device_bytes",
                                              (json_int_t)f->points[i].device_bytes, "step_time_s",
                                              f->points[i].step_time_s));
    return list;
}

static json_t *changes_json(const answer *x)
{
    const vp_changes *c    = &x->changes;
    json_t           *list = json_array();
    char              text[400];

    for (int64_t i = 0; i < c->n; i++) {
        vp_text command = {0};
        vp_change_command(vp_cmd_plan.name, x->line, &c->changes[i], &command);
        json_array_append_new(list, json_pack("{s:s, s:I, s:s?}", "change",
                                              vp_change_text(&c->changes[i], text, sizeof text),
                                              "needs_bytes", (json_int_t)c->changes[i].needs_bytes,
                                              "command", command.data));
        vp_text_release(&command);
    }
    if (x->adapters.needs_bytes)
        json_array_append_new(list, json_pack("{s:s, s:I, s:s}", "change",
                                              vp_adapters_text(&x->adapters, text, sizeof text),
                                              "needs_bytes", (json_int_t)x->adapters.needs_bytes,
                                              "command", vp_text_string(&x->adapters.command)));
    return list;
}

static json_t *timing_json(const answer *x)
{
    return x->whole.status ? json_pack("{s:f, s:f}", "seconds", x->seconds, "monolithic_seconds",
                                       x->whole.seconds)
                           : json_pack("{s:f}", "seconds", x->seconds);
}

static json_t *monolithic_json(const vp_monolithic_check *c)
{
    return json_pack("{s:I, s:I, s:I, s:s, s:o, s:o, s:o, s:s?}", "columns",
                     (json_int_t)c->n_columns, "rows", (json_int_t)c->n_rows, "nodes",
                     (json_int_t)c->n_nodes, "status", c->status, "step_time_s",
                     vp_json_real_or_null(c->step_time_s), "decomposed_step_time_s",
                     vp_json_real_or_null(c->planned_s), "equal",
                     c->decided ? json_boolean(c->equal) : json_null(), "note", c->note);
}

/* What is trained, and which of it the request left to the planner. */
static json_t *recipe_json(const vp_recipe *recipe, const vp_plan_request *r)
{
    json_t *freed = json_array();

    if (r->any_precision)
        json_array_append_new(freed, json_string("precision"));
    if (r->any_gradients)
        json_array_append_new(freed, json_string("gradients"));
    if (r->any_optimizer)
        json_array_append_new(freed, json_string("optimizer"));
    if (r->attention == VP_ATTENTION_ANY)
        json_array_append_new(freed, json_string("attention"));
    return json_pack("{s:s, s:s, s:s, s:o, s:o*}", "precision",
                     vp_precision_name(recipe->precision), "gradients",
                     vp_gradients_name(recipe->gradients), "optimizer",
                     vp_optimizer_name(recipe->optimizer), "freed", freed, "lora",
                     vp_lora_to_json(&recipe->lora));
}

static json_t *plan_json(const answer *x)
{
    const vp_plan *plan = x->plan;
    json_t        *j    = json_pack(
                  "{s:i, s:I, s:I, s:I, s:I, s:o, s:f, s:f, s:O, s:O, s:O, s:o, s:o, s:f, s:o, s:s}",
                  "schema_version", 1, "budget_bytes", (json_int_t)plan->budget_bytes, "peak_bytes",
                  (json_int_t)plan->peak_bytes, "device_bytes",
                  (json_int_t)(plan->peak_bytes + plan->outside_bytes), "host_peak_bytes",
                  (json_int_t)plan->host_peak_bytes, "process_predicted_bytes",
                  vp_json_int_or_null(plan->process_predicted_bytes), "step_time_s", plan->step_time_s,
                  "tokens_per_s", (double)vp_plan_tokens(plan) / plan->step_time_s, "decisions",
                  plan->decisions, "settings", plan->settings, "assumptions", plan->assumptions, "proof",
                  vp_proof_json(plan), "solver", solver_json(&x->found), "shadow_price_s_per_gib",
                  x->prices.device_s, "presets", vp_presets_json(&x->found), "time_class", plan->time_class);

    vp_overhead_to_answer(plan, j);
    if (j)
        json_object_update_new(
            j, json_pack("{s:I, s:I}", "host_pinned_bytes",
                         (json_int_t)vp_plan_memory_bytes(plan, VP_MEMORY_HOST_PINNED),
                         "nvme_bytes", (json_int_t)vp_plan_memory_bytes(plan, VP_MEMORY_NVME)));
    if (j)
        json_object_update_new(j, json_pack("{s:f, s:o, s:I}", "best_step_time_s",
                                            fastest_of(x)->step_time_s, "recipe",
                                            recipe_json(&plan->recipe, &x->job.request),
                                            "reserve_bytes", (json_int_t)x->job.reserve_bytes));
    if (j)
        json_object_set_new(j, "shadow_prices", vp_prices_json(&x->prices));
    if (j)
        json_object_set_new(j, "mfu", vp_mfu_json(plan, &x->job.device));
    if (j)
        json_object_update_new(j,
                               json_pack("{s:f, s:{s:f, s:I}}", "within", x->job.request.within,
                                         "fastest", "step_time_s", fastest_of(x)->step_time_s,
                                         "device_bytes", (json_int_t)fastest_of(x)->device_bytes));
    if (j && x->frontier.n)
        json_object_set_new(j, "frontier", frontier_json(&x->frontier));
    if (j && x->whole.status)
        json_object_set_new(j, "monolithic", monolithic_json(&x->whole));
    if (j)
        json_object_set_new(j, "timing", timing_json(x));
    return j;
}

static json_t *infeasible_json(const answer *x)
{
    const vp_plan_request *r = &x->job.request;
    char                   binding[200];

    json_t *j = json_pack(
        "{s:i, s:I, s:n, s:n, s:n, s:n, s:n, s:n, s:{}, s:{s:s, s:s, s:I, s:I}, s:[], s:{s:s, s:n, s:n, s:I, s:n}, s:o, s:n, s:o, s:s, s:o}",
        "schema_version", 1, "budget_bytes", (json_int_t)r->budget_bytes, "peak_bytes",
        "device_bytes", "host_peak_bytes", "process_predicted_bytes", "step_time_s", "tokens_per_s",
        "decisions", "settings", "trainer", "vplan", "device", x->job.device.name, "seq",
        (json_int_t)r->seq, "global_batch", (json_int_t)r->global_batch, "assumptions", "proof",
        "status", "infeasible", "gap", "bound_s", "least_budget_bytes",
        (json_int_t)x->found.least_budget_bytes, "checked_by", "solver", solver_json(&x->found),
        "shadow_price_s_per_gib", "presets", vp_presets_json(&x->found), "binding",
        vp_binding_text(&x->changes, binding, sizeof binding), "changes", changes_json(x));

    if (j)
        json_object_update_new(j, json_pack("{s:n, s:o, s:I}", "best_step_time_s", "recipe",
                                            recipe_json(&x->found.least.scenario.recipe, r),
                                            "reserve_bytes", (json_int_t)x->job.reserve_bytes));
    if (j && x->whole.status)
        json_object_set_new(j, "monolithic", monolithic_json(&x->whole));
    if (j)
        json_object_set_new(j, "timing", timing_json(x));
    return j;
}

/* ---- text ---- */

static void print_presets(const vp_plan_request *r, const vp_plan_answer *a)
{
    bool any     = r->any_precision || r->any_gradients || r->any_optimizer;
    bool on_card = r->host_bytes > 0; /* and a plan that offloads may be slower than they are */
    char bytes[32], time[32];

    for (int64_t i = 0; i < a->n_presets; i++)
        on_card &= vp_offload_kind_of(&a->presets[i].candidate.scenario.offload) == VP_OFFLOAD_NONE;
    printf("%-40s %11s  %9s\n", on_card ? "presets, with nothing in host memory" : "presets",
           "needs", "step");
    for (int64_t i = 0; i < a->n_presets; i++) {
        const vp_candidate *c = &a->presets[i].candidate;
        printf("  %-38s %11s  %9s  %s\n", a->presets[i].name,
               vp_size_text(c->figures.device_bytes, bytes, sizeof bytes),
               vp_time_text(c->figures.step_time_s, time, sizeof time),
               c->fits ? "fits" : "does not fit");
        if (any)
            printf("    with %s, %s, gradients %s\n",
                   vp_precision_name(c->scenario.recipe.precision),
                   vp_optimizer_name(c->scenario.recipe.optimizer),
                   vp_gradients_name(c->scenario.recipe.gradients));
    }
}

/* What lies in host memory and on a local drive, under the device's. */
static void print_offloaded(const answer *x)
{
    const vp_plan_request *r    = &x->job.request;
    const int64_t          host = x->plan->host_peak_bytes,
                  pinned        = vp_plan_memory_bytes(x->plan, VP_MEMORY_HOST_PINNED),
                  drive         = vp_plan_memory_bytes(x->plan, VP_MEMORY_NVME);
    char has[32], of[32];

    if (host && pinned == host && !r->pinned_bytes)
        printf("\n           %s pinned in host memory, of %s", vp_size_text(host, has, sizeof has),
               vp_size_text(r->host_bytes, of, sizeof of));
    else if (host)
        printf("\n           %s in host memory, of %s", vp_size_text(host, has, sizeof has),
               vp_size_text(r->host_bytes, of, sizeof of));
    if (host && (pinned < host || r->pinned_bytes))
        printf("; %s of it pinned%s%s", vp_size_text(pinned, has, sizeof has),
               r->pinned_bytes ? ", of " : "",
               r->pinned_bytes ? vp_size_text(r->pinned_bytes, of, sizeof of) : "");
    if (drive)
        printf("\n           %s on a local drive, of %s", vp_size_text(drive, has, sizeof has),
               vp_size_text(r->nvme_bytes, of, sizeof of));
}

static void print_proof(const vp_plan_answer *a)
{
    char time[32];

    assert(a->proof < VP_N_PROOFS && a->proof != VP_PROOF_INFEASIBLE);
    if (a->proof == VP_PROOF_FALLBACK)
        vp_screen_line("proof", "none: %s",
                       a->solver_note ? a->solver_note : "no bound was asked for");
    else
        printf("proof      %s: no plan of the %lld scenarios takes less than %s,\n"
               "           gap %.4f %%, checked by vplan (%lld nodes)\n",
               vp_proof_name(a->proof), (long long)a->n_scenarios,
               vp_time_text(a->bound_s, time, sizeof time), 100 * a->gap, (long long)a->n_nodes);
}

static void print_monolithic(const vp_monolithic_check *c)
{
    char time[32], planned[32];

    printf("monolithic %lld columns, %lld rows, %.2f s: %s", (long long)c->n_columns,
           (long long)c->n_rows, c->seconds, c->status);
    if (c->step_time_s >= 0)
        printf(", %s a step", vp_time_text(c->step_time_s, time, sizeof time));
    if (c->decided && c->planned_s >= 0)
        printf(", %s (decomposed: %s)", c->equal ? "equal to the nanosecond" : "NOT EQUAL",
               vp_time_text(c->planned_s, planned, sizeof planned));
    else if (c->decided)
        printf(", %s (decomposed: infeasible)", c->equal ? "equal" : "NOT EQUAL");
    printf("%s%s\n", c->note ? ": " : "", c->note ? c->note : "");
}

static void print_request(const answer *x)
{
    const vp_plan_request *r = &x->job.request;

    vp_screen_line("model", "%s on %s, sequence %lld, global batch %lld", r->model->name,
                   r->device->name, (long long)r->seq, (long long)r->global_batch);
}

/* What the least memory was chosen over. */
static void print_fastest(const answer *x)
{
    const vp_figures *f = fastest_of(x);
    char              time[32], bytes[32], saved[32];

    vp_screen_line("fastest", "%s a step with %s: %s more for %.2g %% of the time (--within %s)",
                   vp_time_text(f->step_time_s, time, sizeof time),
                   vp_size_text(f->device_bytes, bytes, sizeof bytes),
                   vp_size_text(f->device_bytes - x->plan->peak_bytes - x->plan->outside_bytes,
                                saved, sizeof saved),
                   100 * (x->plan->step_time_s / f->step_time_s - 1), x->within);
}

/* What is kept free; where that is less than what nobody measured on this card, how to keep more. */
static void print_reserve(const answer *x)
{
    const vp_device *d = &x->job.device;
    char             bytes[32], assumed[32], kept[32];
    int64_t free_bytes = x->plan->budget_bytes - x->plan->peak_bytes - x->plan->outside_bytes;
    int64_t percent    = vp_ceil_div(100 * d->outside_bytes, d->usable_bytes);

    if (x->job.reserve_bytes)
        vp_screen_line("reserve", "%s kept free",
                       vp_size_text(x->job.reserve_bytes, bytes, sizeof bytes));
    else if (d->sources[VP_FIGURE_OUTSIDE].class_ == VP_CLASS_ASSUMED &&
             free_bytes < d->outside_bytes)
        vp_screen_line("reserve",
                       "%s are free, should context and libraries take more than the assumed %s; "
                       "--reserve %lld%% keeps %s",
                       vp_size_text(free_bytes, bytes, sizeof bytes),
                       vp_size_text(d->outside_bytes, assumed, sizeof assumed), (long long)percent,
                       vp_size_text(d->usable_bytes / 100 * percent, kept, sizeof kept));
}

/* What to do with it: run the file, where it can be, or make one. */
static void print_next(const answer *x)
{
    vp_text command = {0};

    if (x->path) {
        vp_text_printf(&command, "vplan %s ", x->job.request.on_nvme ? "explain" : "run");
        vp_text_quoted(&command, x->path);
    } else {
        vp_change_command(vp_cmd_plan.name, x->line, &(vp_change){0}, &command);
        vp_text_printf(&command, " -o plan.json");
    }
    if (!command.failed)
        vp_screen_command("next", command.data);
    vp_text_release(&command);
}

static vp_status print_plan(answer *x, vp_err *err)
{
    const vp_plan     *plan = x->plan;
    const vp_scenario *s    = &x->found.lean.scenario;
    char               text[2000], y[64], z[64], outside[400], timed[64];
    vp_simulation      step;
    vp_status          st = VP_OK;

    x->arena = vp_arena_new();
    VP_TRY_ALLOC(err, x->arena);
    VP_TRY(vp_itemise(x->arena, plan, &plan->buckets[0], &x->itemised, err));
    snprintf(timed, sizeof timed, "(%s)", plan->time_class);
    snprintf(
        text, sizeof text, "%s tokens/s %s",
        vp_count_text((int64_t)((double)vp_plan_tokens(plan) / plan->step_time_s), y, sizeof y),
        s->offload.nvme ? "at most, sized only" : timed);
    vp_screen_answer(plan->peak_bytes + plan->outside_bytes, plan->budget_bytes, text);
    print_request(x);
    vp_screen_recipe(&plan->recipe, s->attention);
    vp_screen_free(&x->job.request);
    vp_print_scenario("plan", x->job.model, s);
    printf("\n");
    vp_screen_bytes(plan, &x->itemised, x->all);
    printf("\n");
    printf("memory     %s: ", vp_size_text(plan->peak_bytes + plan->outside_bytes, y, sizeof y));
    printf("%s arena", vp_size_text(plan->peak_bytes, y, sizeof y));
    if (plan->outside_bytes)
        printf(" + %s context, libraries (%s)", vp_size_text(plan->outside_bytes, y, sizeof y),
               vp_overhead_class_text(plan, outside, sizeof outside));
    if (plan->process_predicted_bytes >= 0)
        printf(", process %s", vp_size_text(plan->process_predicted_bytes, y, sizeof y));
    print_offloaded(x);
    printf("\ntime       %s a step %s%s\n", vp_time_text(plan->step_time_s, y, sizeof y),
           s->offload.nvme ? "at least: the drive's seconds are not counted" : timed,
           s->offload.nvme ? "" : vp_mfu_text(plan, &x->job.device, z, sizeof z));
    if (vp_plan_offloads(plan)) {
        VP_TRY(vp_simulate(plan, &plan->buckets[0], NULL, NULL, &step, err));
        vp_screen_copies(&step);
    }
    if (fastest_of(x)->device_bytes > plan->peak_bytes + plan->outside_bytes)
        print_fastest(x);
    print_reserve(x);
    print_proof(&x->found);
    printf("           least budget %s; one more GiB saves %s a step\n",
           vp_size_text(x->found.least_budget_bytes, y, sizeof y),
           vp_time_text(x->prices.device_s, z, sizeof z));
    if (x->find_prices)
        vp_prices_print(&x->prices);
    if (x->whole.status)
        print_monolithic(&x->whole);
    print_presets(&x->job.request, &x->found);
    if (x->frontier.n)
        vp_frontier_print(&x->frontier, plan->budget_bytes);
    for (size_t i = 0; i < json_array_size(plan->assumptions); i++)
        vp_screen_line("assumed", "%s", json_string_value(json_array_get(plan->assumptions, i)));
    if (x->path)
        printf("written to %s\n", x->path);
    if (x->html)
        printf("written to %s\n", x->html);
    print_next(x);
out:
    return st;
}

static void print_change(const answer *x, const vp_change *c, bool first)
{
    char    text[400], bytes[32];
    vp_text command = {0};

    vp_change_command(vp_cmd_plan.name, x->line, c, &command);
    vp_screen_line(
        first ? "what fits" : "", "%s: %s%s", vp_size_text(c->needs_bytes, bytes, sizeof bytes),
        vp_change_text(c, text, sizeof text), command.data ? "" : ", said in the recipe file");
    if (command.data && !command.failed)
        vp_screen_command("", command.data);
    vp_text_release(&command);
}

/* Another way to train, in another trainer: last, and only where it fits. */
static void print_adapters(const answer *x)
{
    char text[200], bytes[32];

    if (!x->adapters.needs_bytes)
        return;
    vp_screen_line(x->changes.n ? "" : "what fits", "%s: %s",
                   vp_size_text(x->adapters.needs_bytes, bytes, sizeof bytes),
                   vp_adapters_text(&x->adapters, text, sizeof text));
    vp_screen_command("", vp_text_string(&x->adapters.command));
}

static void print_infeasible(const answer *x)
{
    const vp_scenario *least = &x->found.least.scenario;
    char               text[2000], y[64];

    vp_screen_answer(x->found.least_budget_bytes, x->job.request.budget_bytes, NULL);
    print_request(x);
    printf("           no configuration%s needs less than %s\n",
           vp_request_is_pinned(&x->job.request) ? " with these pins" : "",
           vp_size_text(x->found.least_budget_bytes, y, sizeof y));
    vp_screen_recipe(&least->recipe, least->attention);
    vp_screen_free(&x->job.request);
    vp_screen_line("binding", "%s", vp_binding_text(&x->changes, text, sizeof text));
    vp_screen_line("least", "--budget %lld%s",
                   (long long)(x->found.least_budget_bytes + x->job.reserve_bytes),
                   x->job.reserve_bytes ? ", the reserve among it" : "");
    if (x->whole.status)
        print_monolithic(&x->whole);
    print_presets(&x->job.request, &x->found);
    for (int64_t i = 0; i < x->changes.n; i++)
        print_change(x, &x->changes.changes[i], i == 0);
    print_adapters(x);
}

/* ---- the command ---- */

static bool draw_frontier(const answer *x, vp_text *out)
{
    const vp_frontier *f      = &x->frontier;
    vp_report_point   *points = calloc((size_t)f->n, sizeof *points);
    vp_report_curve    curve  = {.device       = x->job.request.device->name,
                                 .budget_bytes = x->job.request.budget_bytes,
                                 .points       = points};
    bool               drawn;

    for (int64_t i = 0; points && i < f->n; i++)
        points[curve.n++] = (vp_report_point){f->points[i].device_bytes, f->points[i].step_time_s};
    drawn = points && vp_report_curve_svg(&curve, out);
    free(points);
    return drawn;
}

static void add_frontier_table(const vp_frontier *f, vp_text *out)
{
    static const char *const heads[] = {"needs", "a step"};
    char                     needs[32], time[32];

    vp_page_table_begin(out);
    vp_page_row(out, 1, heads, 2);
    for (int64_t i = 0; i < f->n; i++) {
        const char *cells[] = {vp_size_text(f->points[i].device_bytes, needs, sizeof needs),
                               vp_time_text(f->points[i].step_time_s, time, sizeof time)};
        vp_page_row(out, 0, cells, 2);
    }
    vp_page_table_end(out);
}

/* The page of --html: the plan's memory over the step, and the frontier where it was asked for. */
static vp_status write_page(const answer *x, const char *path, bool force, vp_err *err)
{
    const vp_plan *plan = x->plan;
    vp_text        page = {0};
    vp_status      st   = VP_OK;

    vp_report_plan_begin(plan, &page);
    if (x->frontier.n) {
        vp_page_heading(&page, "What more memory buys");
        VP_TRY_ALLOC(err, draw_frontier(x, &page));
        add_frontier_table(&x->frontier, &page);
    }
    VP_TRY(vp_report_arena(plan, &page, err));
    vp_page_end(&page);
    VP_TRY_ALLOC(err, !page.failed);
    VP_TRY(vp_file_write(path, page.data, page.n_bytes, force, err));
out:
    vp_text_release(&page);
    return st;
}

/* How much was searched, for -v. */
static void say_search(const vp_cli *cli, const answer *x)
{
    const vp_plan_answer *a        = &x->found;
    int64_t               n_points = 0;

    for (int64_t i = 0; i < a->n_scenarios; i++)
        n_points += i == 0 || a->libraries[i] != a->libraries[i - 1] ? a->libraries[i]->n : 0;
    vp_cli_detail(cli,
                  "search: %lld scenarios, %lld strategies of blocks; vplan-solve: %lld nodes, "
                  "%lld pivots; certificate %lld bytes%s%s; %.2f s in all",
                  (long long)a->n_scenarios, (long long)n_points, (long long)a->n_nodes,
                  (long long)a->n_pivots, (long long)a->certificate_bytes,
                  a->solver_note ? "; " : "", a->solver_note ? a->solver_note : "", x->seconds);
}

static void offer_adapters(void *with)
{
    answer *x = with;

    vp_offer_adapters(x->name, x->said, x->line, &x->adapters);
}

/* What would fit: of vplan's own plans, and beside that of another trainer's. */
static vp_status find_changes(answer *x, vp_err *err)
{
    vp_beside offer;
    vp_status st;

    vp_beside_offer(&offer, offer_adapters, x);
    st = vp_changes_find(&x->job.request, &x->found, &x->changes, err);
    vp_beside_finish(&offer);
    return st;
}

typedef struct device_price {
    const answer *of;
    double        seconds;
    vp_err        err;
    vp_status     st;
} device_price;

static void find_device_price(void *with)
{
    device_price *p = with;

    p->st = vp_prices_device(&p->of->job.request, &p->of->found, &p->seconds, &p->err);
}

/* The plan, and beside it what more of the device would save, which needs the search alone. */
static vp_status make_plan(answer *x, vp_err *err)
{
    device_price price = {.of = x};
    vp_beside    beside;
    vp_status    st;

    vp_beside_offer(&beside, find_device_price, &price);
    st = vp_planner_make(&x->job.request, &x->found, &x->found.lean, &x->plan, err);
    vp_beside_finish(&beside);
    x->prices = vp_prices_of_device(price.seconds);
    if (st == VP_OK && price.st != VP_OK)
        *err = price.err;
    return st == VP_OK ? price.st : st;
}

/* The answer with master weights and states on a drive, in place of one that has no plan, where it has one or
 * lacks less. */
static vp_status try_drive(answer *x, vp_err *err)
{
    vp_plan_request drive = x->job.request;
    vp_plan_answer  with  = {0};
    const int64_t   least = x->found.least_budget_bytes;
    vp_status       st    = VP_OK;

    drive.on_nvme = true;
    VP_TRY(vp_planner_run(&drive, &with, err));
    if (with.n_candidates > 0 ||
        (with.least_budget_bytes && (!least || with.least_budget_bytes < least)) ||
        (!least && !with.least_budget_bytes && with.least_host_bytes < x->found.least_host_bytes)) {
        const vp_plan_answer without = x->found;
        x->found                     = with;
        with                         = without;
        x->job.request.on_nvme       = true;
    }
out:
    vp_plan_answer_release(&with);
    return st;
}

/* Of a plan without the drive: less may do with it. */
static vp_status least_with_drive(answer *x, vp_err *err)
{
    vp_plan_request drive = x->job.request;
    int64_t         least;
    vp_status       st = VP_OK;

    drive.on_nvme = true;
    VP_TRY(vp_planner_least(&drive, NULL, &least, err));
    if (least && least < x->found.least_budget_bytes)
        x->found.least_budget_bytes = least;
out:
    return st;
}

static vp_status work_out(answer *x, bool frontier, const char *svg, const char *html, bool force,
                          vp_err *err)
{
    const vp_plan_request *r       = &x->job.request;
    double                 start_s = vp_now_s();
    vp_text                picture = {0};
    vp_status              st      = VP_OK;

    VP_TRY(vp_planner_run(r, &x->found, err));
    if (r->nvme_bytes)
        VP_TRY(x->found.n_candidates ? least_with_drive(x, err) : try_drive(x, err));
    VP_TRY(vp_say_empty(r, &x->found, err));
    if (x->found.n_candidates == 0) {
        VP_TRY(find_changes(x, err));
    } else {
        VP_TRY(make_plan(x, err));
        /* what is printed fits */
        assert(x->plan->peak_bytes + x->plan->outside_bytes <= r->budget_bytes);
        if (x->find_prices)
            VP_TRY(vp_prices_find(r, &x->found, &x->prices, err));
        if (frontier || svg)
            VP_TRY(vp_frontier_trace(r, &x->found, &x->frontier, err));
        if (svg) {
            VP_TRY_ALLOC(err, draw_frontier(x, &picture));
            VP_TRY(vp_file_write(svg, picture.data, picture.n_bytes, force, err));
        }
        if (html)
            VP_TRY(write_page(x, html, force, err));
        if (x->path)
            VP_TRY(vp_plan_write(x->plan, x->path, force, err));
    }
    x->seconds = vp_now_s() - start_s;
out:
    vp_text_release(&picture);
    return st;
}

typedef struct plan_options {
    const char *path, *svg, *html;
    bool        force, frontier, prices, prove, monolithic, all;
    int64_t     nvme_bytes;
    double      gap;
    const char *within;
} plan_options;

static const vp_option rows[] = {
    {VP_ROW_OUT(plan_options, path, "plan.json"), .value = "PLAN",
     .help = "Write the plan to this file", .otherwise = "none"},
    VP_ROW_FORCE(plan_options, force),
    {.name  = "--nvme",
     .kind  = VP_OPTION_SIZE,
     .at    = offsetof(plan_options, nvme_bytes),
     .value = "SIZE",
     .help =
         "Of a local drive, for offloaded master weights and optimizer states where no plan fits "
         "with these in host memory. Sized only: the drive's seconds are not planned, and vplan "
         "run refuses such a plan. Needs --host-memory",
     .otherwise = "none",
     .example   = "1TiB"},
    {.name = "--frontier",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(plan_options, frontier),
     .help = "The fastest step within 16 budgets, in equal steps from the least that fits to "
             "where nothing more is gained: the distinct plans of them"},
    {.name = "--prices",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(plan_options, prices),
     .help =
         "What one more GiB of host memory, of pinned memory where it has a limit of its own, and "
         "one more GB/s of the link to it, would save: a search for each"},
    {.name      = "--svg",
     .kind      = VP_OPTION_OUTPUT,
     .at        = offsetof(plan_options, svg),
     .value     = "FILE",
     .help      = "Write a picture of the frontier",
     .otherwise = "none",
     .example   = "frontier.svg"},
    VP_ROW_HTML(plan_options, html),
    {.name    = "--within",
     .kind    = VP_OPTION_TEXT,
     .at      = offsetof(plan_options, within),
     .value   = "P%",
     .unit    = "percent, or a fraction, of the step time",
     .help    = "Of the plans that are slower than the fastest by no more than this, the one that "
                "needs the least memory; 0 is the fastest. The proof is about the fastest",
     .preset  = "0.1%",
     .example = "0"},
    {.name    = "--gap",
     .kind    = VP_OPTION_REAL,
     .at      = offsetof(plan_options, gap),
     .value   = "G",
     .unit    = "a fraction of the step time",
     .high    = 1,
     .help    = "A plan is called optimal when no other is faster by more than this",
     .preset  = "1e-5",
     .example = "0.01"},
    {.name = "--prove",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(plan_options, prove),
     .help = "Exit 8 when that was not reached; the plan is printed all the same"},
    VP_ROW_ALL(plan_options, all),
    {.name = "--monolithic",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(plan_options, monolithic),
     .help = "Afterwards solve the same choice as one undivided integer program, every block for "
             "itself, with GLPK's own branch and bound, and say whether its optimum is the plan's "
             "to the nanosecond; for small models: at most 20000 columns and 60 seconds"},
};
static const vp_option_set options = {VP_ROWS(rows)};

/* "1%" or "0.01". */
static vp_status parse_within(const char *text, double *out, vp_err *err)
{
    char  *end;
    char   shown[64];
    double x = strtod(text, &end);

    if (end != text && strcmp(end, "%") == 0)
        *out = x / 100;
    else if (end != text && !*end)
        *out = x;
    else
        *out = -1;
    if (!(*out >= 0 && *out <= 1))
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--within %s: percent of the step time (0.1%%) or a fraction of it (0.001)",
                       vp_text_escape(text, shown, sizeof shown));
    return VP_OK;
}

/* What only vplan's own plans have. */
static vp_status refuse_for_trainer(const vp_command_line *line, vp_err *err)
{
    static const char *const own[] = {"--recipe",    "--host-memory", "--pinned-memory", "--nvme",
                                      "--gradients", "--updates",     "--frontier",      "--prices",
                                      "--svg",       "--html",        "--within",        "--gap",
                                      "--prove",     "--all",         "--monolithic"};

    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (vp_is_given(line, own[i]))
            return VP_FAIL(err, VP_ERR_USAGE, "%s is for vplan's own plans, not for --trainer",
                           own[i]);
    return VP_OK;
}

static vp_status take_drive(vp_plan_request *r, int64_t nvme_bytes, vp_err *err)
{
    r->nvme_bytes = nvme_bytes;
    if (nvme_bytes && !r->host_bytes)
        return VP_FAIL(err, VP_ERR_USAGE, "--nvme needs --host-memory SIZE, which is taken first");
    if (nvme_bytes && (r->offload == VP_OFFLOAD_NONE || vp_offload_steps(r->offload)))
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--nvme: not beside --offload %s, with which no master weights or states go "
                       "from the device to a drive",
                       vp_offload_name(r->offload));
    return VP_OK;
}

bool vp_plan_answers(int argc, char **argv)
{
    vp_plan_options         o     = {0};
    vp_plan_trainer_options t     = {0};
    plan_options            w     = {0};
    vp_cli                  quiet = {.quiet = true};
    vp_err                  why   = {0};
    vp_command_line         line;

    return vp_cli_parse(&vp_cmd_plan, argc, argv, &quiet, (void *[]){&o, &o, &w, &t, &quiet}, &line,
                        &why) == VP_OK &&
           refuse_for_trainer(&line, &why) == VP_OK &&
           vp_plan_is_known(line.words[0], &o, &t, &line);
}

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    vp_plan_options         o = {0};
    vp_plan_trainer_options t = {0};
    plan_options            w = {0};
    answer                  x = {0};
    vp_command_line         line;
    const char             *name;
    vp_status               st = VP_OK;

    VP_TRY(
        vp_cli_parse(&vp_cmd_plan, argc, argv, cli, (void *[]){&o, &o, &w, &t, cli}, &line, err));
    name          = line.words[0];
    x.path        = w.path;
    x.find_prices = w.prices;
    x.line        = &line;
    x.within      = w.within;
    x.all         = w.all;
    x.said        = &o;
    x.html        = w.html;
    if (!name)
        VP_TRY(vp_cli_lacks(&vp_cmd_plan, "vplan plan MODEL: which model?", err));
    VP_TRY(vp_device_named(cli, &o.device, err));
    const char *const inputs[] = {name, o.recipe, o.profile, o.device};
    if (x.path)
        VP_TRY(vp_output_check(x.path, w.force, inputs, 4, err));
    if (w.svg)
        VP_TRY(vp_output_check(w.svg, w.force, inputs, 4, err));
    if (w.html)
        VP_TRY(vp_output_check(w.html, w.force, inputs, 4, err));
    if (w.gap >= 1)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--gap is a fraction of the step time, below 1"));
    VP_TRY(vp_model_named(cli, &name, err));
    if (t.trainer) {
        VP_TRY(refuse_for_trainer(&line, err));
        VP_TRY(vp_plan_for_trainer(name, &o, &t, &line, w.path, w.force, cli, err));
        goto out;
    }
    VP_TRY(vp_plan_only_vplan(&t, err));
    x.name = name;
    VP_TRY(vp_plan_job_open(name, &o, &x.job, err));
    VP_TRY(take_drive(&x.job.request, w.nvme_bytes, err));
    x.job.request.gap     = w.gap;
    x.job.request.is_made = true;
    VP_TRY(parse_within(w.within, &x.job.request.within, err));
    VP_TRY(work_out(&x, w.frontier, w.svg, w.html, w.force, err));
    say_search(cli, &x);
    if (w.monolithic)
        VP_TRY(vp_planner_monolithic(&x.job.request, &x.found, &x.whole, err));
    if (cli->json)
        VP_TRY(vp_print_json(x.plan ? plan_json(&x) : infeasible_json(&x), err));
    else if (x.plan)
        VP_TRY(print_plan(&x, err));
    else
        print_infeasible(&x);
    cli->exit_code = !x.plan ? 3 : w.prove && x.found.proof != VP_PROOF_OPTIMAL ? 8 : 0;
out:
    vp_arena_free(x.arena);
    vp_frontier_release(&x.frontier);
    vp_plan_free(x.plan);
    vp_plan_answer_release(&x.found);
    vp_plan_job_release(&x.job);
    vp_text_release(&x.adapters.command);
    return st;
}

const vp_command vp_cmd_plan = {
    .name    = "plan",
    .summary = "the fastest settings that fit, for vplan's runtime or your trainer",
    .usage   = {"MODEL --seq N --global-batch N [options]",
                "MODEL --trainer TARGET --seq N --global-batch N [options]"},
    .about =
        {"The fastest settings that fit, and a bound on how much faster any others could be. If nothing fits: the least "
         "budget that would do, what takes the memory, and changes that would make it fit.",
         "What is searched: every micro-batch that divides the global batch, and some with a smaller last micro-step; the "
         "loss at once or in up to 512 chunks; for every block any set of ops to recompute, and segments of blocks that "
         "keep only the first one's input; with --host-memory, what is offloaded. Of very many micro-batches or chunks "
         "those 1/8 apart are tried: planner/README.md has the details.",
         "With --trainer, the fastest settings of another trainer that fit: micro-batch times accumulation, gradient "
         "checkpointing, the allocator, and what is left open by any. -o writes them for vplan emit."},
    .examples  = {"vplan plan gpt2-large --device 4090 --seq 1024 --global-batch 32",
                  "vplan plan gpt2 --trainer hf --device 4090 --seq 1024 --global-batch 32",
                  "vplan plan gpt2-tiny --budget 8MB --seq 128 --global-batch 8 -o plan.json"},
    .sets      = {&vp_plan_options_set, &vp_pin_options_set, &options, &vp_plan_trainer_options_set,
                  &vp_note_options},
    .argument  = VP_TAKES_MODEL,
    .max_words = 1,
    .run       = run,
};
