/* vplan plan: the fastest configuration that fits, and how good it is known to be. */
#include "cli/cli.h"

#include "core/file.h"
#include "core/units.h"
#include "planner/frontier.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

typedef struct answer {
    vp_plan_job    job;
    vp_plan_answer found;
    vp_plan       *plan;           /* NULL: infeasible */
    vp_frontier    frontier;       /* n 0: not asked for */
    vp_changes     changes;        /* of an infeasible request */
    double         shadow_s;       /* T(B) - T(B + 1 GiB) */
    double         seconds;
    vp_monolithic_check whole;     /* status NULL: not asked for */
    const char    *path;
} answer;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- JSON ---- */

static json_t *solver_json(const vp_plan_answer *a)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "programs", (json_int_t)a->n_scenarios, "library_lowered",
                     (json_int_t)a->libraries[0]->n_lowered, "library_points", (json_int_t)a->libraries[0]->n, "nodes", (json_int_t)a->n_nodes, "pivots",
                     (json_int_t)a->n_pivots, "certificate_bytes", (json_int_t)a->certificate_bytes, "note",
                     a->solver_note ? json_string(a->solver_note) : json_null());
}

static json_t *frontier_json(const vp_frontier *f)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < f->n; i++)
        json_array_append_new(list, json_pack("{s:I, s:I, s:f}", "budget_bytes", (json_int_t)f->points[i].budget_bytes, "peak_bytes",
                                              (json_int_t)f->points[i].peak_bytes, "step_time_s", f->points[i].step_time_s));
    return list;
}

static json_t *changes_json(const vp_changes *c)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < c->n; i++)
        json_array_append_new(list, json_pack("{s:s, s:I}", "change", c->changes[i].text, "needs_bytes", (json_int_t)c->changes[i].needs_bytes));
    return list;
}

static json_t *timing_json(const answer *x)
{
    return x->whole.status ? json_pack("{s:f, s:f}", "seconds", x->seconds, "monolithic_seconds", x->whole.seconds)
                           : json_pack("{s:f}", "seconds", x->seconds);
}

static json_t *real_or_null(double value)
{
    return value < 0 ? json_null() : json_real(value);
}

static json_t *monolithic_json(const vp_monolithic_check *c)
{
    return json_pack("{s:I, s:I, s:I, s:s, s:o, s:o, s:o, s:s?}", "columns", (json_int_t)c->n_columns, "rows", (json_int_t)c->n_rows, "nodes",
                     (json_int_t)c->n_nodes, "status", c->status, "step_time_s", real_or_null(c->step_time_s), "decomposed_step_time_s",
                     real_or_null(c->planned_s), "equal", c->decided ? json_boolean(c->equal) : json_null(), "note", c->note);
}

static json_t *plan_json(const answer *x)
{
    const vp_plan *plan = x->plan;
    json_t        *j = json_pack("{s:i, s:I, s:I, s:I, s:I, s:o, s:f, s:f, s:O, s:O, s:O, s:o, s:o, s:f, s:o, s:s}", "schema_version", 1,
        "budget_bytes", (json_int_t)plan->budget_bytes, "peak_bytes", (json_int_t)plan->peak_bytes, "device_bytes",
        (json_int_t)(plan->peak_bytes + plan->outside_bytes), "host_peak_bytes", (json_int_t)0, "process_predicted_bytes",
        plan->process_predicted_bytes < 0 ? json_null() : json_integer((json_int_t)plan->process_predicted_bytes), "step_time_s",
        plan->step_time_s, "tokens_per_s", (double)vp_plan_tokens(plan) / plan->step_time_s, "decisions", plan->decisions, "settings",
        plan->settings, "assumptions", plan->assumptions, "proof", vp_proof_json(plan), "solver", solver_json(&x->found),
        "shadow_price_s_per_gib", x->shadow_s, "presets", vp_presets_json(&x->found), "time_class", plan->time_class);

    vp_outside_to_answer(plan, j);
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

    json_t *j = json_pack("{s:i, s:I, s:n, s:n, s:n, s:n, s:n, s:n, s:{}, s:{s:s, s:s, s:I, s:I}, s:[], s:{s:s, s:n, s:n, s:I, s:n}, s:o, s:n, s:o, s:s, s:o}",
        "schema_version", 1, "budget_bytes", (json_int_t)r->budget_bytes, "peak_bytes", "device_bytes", "host_peak_bytes",
        "process_predicted_bytes", "step_time_s", "tokens_per_s", "decisions", "settings", "trainer", "vplan", "device", x->job.device.name,
        "seq", (json_int_t)r->seq, "global_batch", (json_int_t)r->global_batch, "assumptions", "proof", "status", "infeasible", "gap",
        "bound_s", "least_budget_bytes", (json_int_t)x->found.least_budget_bytes, "checked_by", "solver", solver_json(&x->found),
        "shadow_price_s_per_gib", "presets", vp_presets_json(&x->found), "binding", x->changes.binding, "changes", changes_json(&x->changes));

    if (j && x->whole.status)
        json_object_set_new(j, "monolithic", monolithic_json(&x->whole));
    if (j)
        json_object_set_new(j, "timing", timing_json(x));
    return j;
}

/* ---- text ---- */

static void print_presets(const vp_plan_answer *a)
{
    char bytes[32], time[32];

    printf("presets\n");
    for (int64_t i = 0; i < a->n_presets; i++) {
        const vp_candidate *c = &a->presets[i].candidate;
        printf("  %-38s %11s  %9s  %s\n", a->presets[i].name, vp_size_text(c->figures.peak_bytes, bytes, sizeof bytes),
               vp_time_text(c->figures.step_time_s, time, sizeof time), c->fits ? "fits" : "does not fit");
    }
}

static void print_proof(const vp_plan_answer *a)
{
    char time[32];

    if (a->proof == VP_PROOF_FALLBACK)
        printf("proof      none: %s\n", a->solver_note ? a->solver_note : "no bound was asked for");
    else
        printf("proof      %s: no plan of the %lld scenarios takes less than %s, gap %.4f %%, checked by vplan (%lld nodes)\n", vp_proof_name(a->proof),
               (long long)a->n_scenarios, vp_time_text(a->bound_s, time, sizeof time), 100 * a->gap, (long long)a->n_nodes);
}

static void print_frontier(const vp_frontier *f)
{
    char budget[32], peak[32], time[32];

    printf("frontier\n  %11s  %11s  %9s\n", "budget", "peak", "step");
    for (int64_t i = 0; i < f->n; i++)
        printf("  %11s  %11s  %9s\n", vp_size_text(f->points[i].budget_bytes, budget, sizeof budget),
               vp_size_text(f->points[i].peak_bytes, peak, sizeof peak), vp_time_text(f->points[i].step_time_s, time, sizeof time));
}

static void print_monolithic(const vp_monolithic_check *c)
{
    char time[32], planned[32];

    printf("monolithic %lld columns, %lld rows, %.2f s: %s", (long long)c->n_columns, (long long)c->n_rows, c->seconds, c->status);
    if (c->step_time_s >= 0)
        printf(", %s a step", vp_time_text(c->step_time_s, time, sizeof time));
    if (c->decided && c->planned_s >= 0)
        printf(", %s (decomposed: %s)", c->equal ? "equal to the nanosecond" : "NOT EQUAL", vp_time_text(c->planned_s, planned, sizeof planned));
    else if (c->decided)
        printf(", %s (decomposed: infeasible)", c->equal ? "equal" : "NOT EQUAL");
    printf("%s%s\n", c->note ? ": " : "", c->note ? c->note : "");
}

static void print_plan(const answer *x)
{
    const vp_plan *plan = x->plan;
    char           text[600], y[64], z[64], outside[400];

    printf("%s on %s, sequence %lld, global batch %lld, budget %s\n", plan->model_name, plan->device, (long long)plan->buckets[0].seq,
           (long long)plan->global_batch, vp_size_text(plan->budget_bytes, y, sizeof y));
    printf("plan       %s\n", vp_scenario_text(x->job.model, &x->found.candidates[0].scenario, text, sizeof text));
    printf("memory     %s arena", vp_size_text(plan->peak_bytes, y, sizeof y));
    if (plan->outside_bytes)
        printf(" + %s outside it (%s)", vp_size_text(plan->outside_bytes, y, sizeof y), vp_outside_class_text(plan, outside, sizeof outside));
    if (plan->process_predicted_bytes >= 0)
        printf(", process %s", vp_size_text(plan->process_predicted_bytes, y, sizeof y));
    printf("\ntime       %s a step, %.0f tokens/s (%s)\n", vp_time_text(plan->step_time_s, y, sizeof y),
           (double)vp_plan_tokens(plan) / plan->step_time_s, plan->time_class);
    print_proof(&x->found);
    printf("           least budget %s; one more GiB saves %s a step\n", vp_size_text(x->found.least_budget_bytes, y, sizeof y),
           vp_time_text(x->shadow_s, z, sizeof z));
    if (x->whole.status)
        print_monolithic(&x->whole);
    print_presets(&x->found);
    if (x->frontier.n)
        print_frontier(&x->frontier);
    for (size_t i = 0; i < json_array_size(plan->assumptions); i++)
        printf("assumed: %s\n", json_string_value(json_array_get(plan->assumptions, i)));
    if (x->path)
        printf("written to %s\n", x->path);
}

static void print_infeasible(const answer *x)
{
    char text[600], y[64];

    const vp_plan_request *r      = &x->job.request;
    bool                   pinned = r->micro_batch || r->recompute != VP_RECOMPUTE_ANY || r->loss_chunk != VP_CHUNK_ANY;

    printf("DOES NOT FIT: no configuration of %s%s needs less than %s; the budget is %s\n", x->job.model->name, pinned ? " with these pins" : "",
           vp_size_text(x->found.least_budget_bytes, text, sizeof text), vp_size_text(x->job.request.budget_bytes, y, sizeof y));
    printf("binding    %s\n", x->changes.binding);
    printf("least      --budget %lld: %s\n", (long long)x->found.least_budget_bytes,
           vp_scenario_text(x->job.model, &x->found.least.scenario, text, sizeof text));
    for (int64_t i = 0; i < x->changes.n; i++)
        printf("%s %s, which needs %s\n", i ? "          " : "or change ", x->changes.changes[i].text,
               vp_size_text(x->changes.changes[i].needs_bytes, y, sizeof y));
    if (x->whole.status)
        print_monolithic(&x->whole);
    print_presets(&x->found);
}

/* ---- the command ---- */

static vp_status work_out(answer *x, bool frontier, const char *svg, bool force, vp_err *err)
{
    const vp_plan_request *r       = &x->job.request;
    double                 start_s = now_s(), richer_s;
    vp_text                picture = {0};
    vp_status              st      = VP_OK;

    VP_TRY(vp_planner_run(r, &x->found, err));
    if (x->found.n_candidates == 0) {
        VP_TRY(vp_changes_find(r, &x->found, &x->changes, err));
    } else {
        VP_TRY(vp_planner_make(r, &x->found, &x->found.candidates[0], &x->plan, err));
        VP_TRY(vp_planner_at_budget(r, &x->found, r->budget_bytes + VP_GIB, &richer_s, NULL, err));
        if (richer_s >= 0 && richer_s < x->plan->step_time_s)
            x->shadow_s = x->plan->step_time_s - richer_s;
        if (frontier || svg)
            VP_TRY(vp_frontier_trace(r, &x->found, &x->frontier, err));
        if (svg) {
            VP_TRY_ALLOC(err, vp_frontier_svg(r, &x->frontier, &picture));
            VP_TRY(vp_file_write(svg, picture.data, picture.n_bytes, force, err));
        }
        if (x->path)
            VP_TRY(vp_plan_write(x->plan, x->path, force, err));
    }
    x->seconds = now_s() - start_s;
out:
    vp_text_release(&picture);
    return st;
}

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    vp_plan_options o = {0};
    answer          x = {0};
    vp_option       options[VP_N_PLAN_OPTIONS + 7];
    const char     *name = NULL, *svg = NULL;
    bool            force = false, frontier = false, prove = false, monolithic = false;
    double          gap = 1e-5;
    int             n = vp_plan_options_list(&o, options), n_words;
    vp_status       st = VP_OK;

    options[n++] = (vp_option){"-o", VP_OPTION_TEXT, &x.path};
    options[n++] = (vp_option){"--force", VP_OPTION_FLAG, &force};
    options[n++] = (vp_option){"--frontier", VP_OPTION_FLAG, &frontier};
    options[n++] = (vp_option){"--svg", VP_OPTION_TEXT, &svg};
    options[n++] = (vp_option){"--gap", VP_OPTION_REAL, &gap};
    options[n++] = (vp_option){"--prove", VP_OPTION_FLAG, &prove};
    options[n++] = (vp_option){"--monolithic", VP_OPTION_FLAG, &monolithic};
    VP_TRY(vp_options_parse(argc, argv, options, n, &name, 1, &n_words, NULL, err));
    if (!name)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "vplan plan MODEL: which model?"));
    const char *const inputs[] = {name, o.recipe, o.profile, o.device};
    if (x.path)
        VP_TRY(vp_output_check(x.path, force, inputs, 4, err));
    if (svg)
        VP_TRY(vp_output_check(svg, force, inputs, 4, err));
    if (gap >= 1)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--gap is a fraction of the step time, below 1"));
    VP_TRY(vp_plan_job_open(name, &o, &x.job, err));
    x.job.request.gap = gap;
    VP_TRY(work_out(&x, frontier, svg, force, err));
    if (monolithic)
        VP_TRY(vp_planner_monolithic(&x.job.request, &x.found, &x.whole, err));
    if (cli->json)
        VP_TRY(vp_print_json(x.plan ? plan_json(&x) : infeasible_json(&x), err));
    else if (x.plan)
        print_plan(&x);
    else
        print_infeasible(&x);
    cli->exit_code = !x.plan ? 3 : prove && x.found.proof != VP_PROOF_OPTIMAL ? 8 : 0;
out:
    vp_frontier_release(&x.frontier);
    vp_changes_release(&x.changes);
    vp_plan_free(x.plan);
    vp_plan_answer_release(&x.found);
    vp_plan_job_release(&x.job);
    return st;
}

const vp_command vp_cmd_plan = {"plan",
    "MODEL --seq N --global-batch N [--device NAME|FILE] [--budget SIZE] [--class NAME] [--recipe FILE] [--profile FILE]\n"
    "                  [--frontier] [--svg FILE] [--gap G] [--prove] [--monolithic] [-o PLAN] [--force] [--json]\n"
    "                  pins: [--micro-batch N] [--precision fp32|bf16-mixed|bf16|any] [--attention flash|math|any]\n"
    "                        [--optimizer adamw|adamw-bf16|adamw-8bit|sgd|sgd-momentum|lion|adafactor|muon|any] [--recompute none|attention|mlp|full]\n"
    "                        [--offload none] [--loss full|chunked|chunked:N]",
    "the fastest configuration that fits a budget, with a proof", run};
