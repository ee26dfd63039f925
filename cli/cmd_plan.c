/* vplan plan: the fastest configuration that fits. */
#include "cli/cli.h"

#include "core/units.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* T(B) - T(B + 1 GiB), from candidates already priced. */
static double shadow_price_s(const vp_plan_job *job, const vp_plan_answer *a)
{
    double best = a->candidates[0].figures.step_time_s;

    for (int64_t i = 0; i < a->n_candidates; i++)
        if (a->candidates[i].figures.device_bytes <= job->request.budget_bytes + VP_GIB && a->candidates[i].figures.step_time_s < best)
            best = a->candidates[i].figures.step_time_s;
    return a->candidates[0].figures.step_time_s - best;
}

static json_t *solver_json(const vp_plan_answer *a)
{
    return json_pack("{s:I, s:I, s:I}", "programs", (json_int_t)a->n_candidates, "nodes", (json_int_t)0, "pivots", (json_int_t)0);
}

static json_t *plan_json(const vp_plan_job *job, const vp_plan_answer *a, const vp_plan *plan, double seconds)
{
    return json_pack("{s:i, s:I, s:I, s:I, s:I, s:o, s:f, s:f, s:O, s:O, s:O, s:o, s:o, s:f, s:o, s:s, s:{s:f}}", "schema_version", 1,
        "budget_bytes", (json_int_t)plan->budget_bytes, "peak_bytes", (json_int_t)plan->peak_bytes, "device_bytes",
        (json_int_t)(plan->peak_bytes + plan->outside_bytes), "host_peak_bytes", (json_int_t)0, "process_predicted_bytes",
        plan->process_predicted_bytes < 0 ? json_null() : json_integer((json_int_t)plan->process_predicted_bytes), "step_time_s",
        plan->step_time_s, "tokens_per_s", (double)vp_plan_tokens(plan) / plan->step_time_s, "decisions", plan->decisions, "settings",
        plan->settings, "assumptions", plan->assumptions, "proof", vp_proof_json(plan), "solver", solver_json(a),
        "shadow_price_s_per_gib", shadow_price_s(job, a), "presets", vp_presets_json(a->presets, a->n_presets), "time_class",
        plan->time_class, "timing", "seconds", seconds);
}

static json_t *infeasible_json(const vp_plan_job *job, const vp_plan_answer *a, double seconds)
{
    const vp_plan_request *r = &job->request;

    return json_pack("{s:i, s:I, s:n, s:n, s:n, s:n, s:n, s:n, s:{}, s:{s:s, s:s, s:I, s:I}, s:[], s:{s:s, s:n, s:n, s:I, s:n}, s:o, s:n, s:o, s:{s:f}}",
        "schema_version", 1, "budget_bytes", (json_int_t)r->budget_bytes, "peak_bytes", "device_bytes", "host_peak_bytes",
        "process_predicted_bytes", "step_time_s", "tokens_per_s", "decisions", "settings", "trainer", "vplan", "device", job->device.name,
        "seq", (json_int_t)r->seq, "global_batch", (json_int_t)r->global_batch, "assumptions", "proof", "status", "infeasible", "gap",
        "bound_s", "least_budget_bytes", (json_int_t)a->least_budget_bytes, "checked_by", "solver", solver_json(a),
        "shadow_price_s_per_gib", "presets", vp_presets_json(a->presets, a->n_presets), "timing", "seconds", seconds);
}

static void print_presets(const vp_plan_answer *a)
{
    char bytes[32], time[32];

    for (int64_t i = 0; i < a->n_presets; i++)
        printf("  %-34s %11s  %9s  %s\n", a->presets[i].name, vp_size_text(a->presets[i].peak_bytes, bytes, sizeof bytes),
               vp_time_text(a->presets[i].step_time_s, time, sizeof time), a->presets[i].fits ? "fits" : "does not fit");
}

static void print_plan(const vp_plan_job *job, const vp_plan_answer *a, const vp_plan *plan, const char *path)
{
    char x[160], y[64], z[64];

    printf("%s on %s, sequence %lld, global batch %lld, budget %s\n", plan->model_name, plan->device, (long long)plan->buckets[0].seq,
           (long long)plan->global_batch, vp_size_text(plan->budget_bytes, x, sizeof x));
    printf("plan       %s\n", vp_scenario_text(&a->candidates[0].scenario, x, sizeof x));
    printf("memory     %s arena", vp_size_text(plan->peak_bytes, x, sizeof x));
    if (plan->outside_bytes)
        printf(" + %s outside it", vp_size_text(plan->outside_bytes, x, sizeof x));
    if (plan->process_predicted_bytes >= 0)
        printf(", process %s", vp_size_text(plan->process_predicted_bytes, x, sizeof x));
    printf("\ntime       %s a step, %.0f tokens/s (%s)\n", vp_time_text(plan->step_time_s, x, sizeof x),
           (double)vp_plan_tokens(plan) / plan->step_time_s, plan->time_class);
    printf("proof      %s: the best of %lld configurations tried, no bound for others\n", vp_proof_name(plan->proof), (long long)a->n_candidates);
    printf("           least budget %s; one more GiB saves %s a step\n", vp_size_text(a->least_budget_bytes, y, sizeof y),
           vp_time_text(shadow_price_s(job, a), z, sizeof z));
    printf("presets\n");
    print_presets(a);
    for (size_t i = 0; i < json_array_size(plan->assumptions); i++)
        printf("assumed: %s\n", json_string_value(json_array_get(plan->assumptions, i)));
    if (path)
        printf("written to %s\n", path);
}

static void print_infeasible(const vp_plan_job *job, const vp_plan_answer *a)
{
    char x[160], y[64];

    printf("DOES NOT FIT: no configuration of %s needs less than %s; the budget is %s\n", job->model->name,
           vp_size_text(a->least_budget_bytes, x, sizeof x), vp_size_text(job->request.budget_bytes, y, sizeof y));
    printf("least budget %lldB: %s\n", (long long)a->least_budget_bytes, vp_scenario_text(&a->least->scenario, x, sizeof x));
    printf("presets\n");
    print_presets(a);
}

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    vp_plan_options o      = {0};
    vp_plan_job     job    = {0};
    vp_plan_answer  answer = {0};
    vp_plan        *plan   = NULL;
    vp_option       options[VP_N_PLAN_OPTIONS + 2];
    const char     *name = NULL, *path = NULL;
    bool            force = false;
    int             n = vp_plan_options_list(&o, options), n_words;
    double          start_s = now_s();
    vp_status       st = VP_OK;

    options[n++] = (vp_option){"-o", VP_OPTION_TEXT, &path};
    options[n++] = (vp_option){"--force", VP_OPTION_FLAG, &force};
    VP_TRY(vp_options_parse(argc, argv, options, n, &name, 1, &n_words, NULL, err));
    if (!name)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "vplan plan MODEL: which model?"));
    if (path)
        VP_TRY(vp_output_check(path, force, (const char *const[]){name, o.recipe, o.profile, o.device}, 4, err));
    VP_TRY(vp_plan_job_open(name, &o, &job, err));
    VP_TRY(vp_planner_run(&job.request, &answer, err));
    if (answer.n_fit == 0) {
        if (cli->json)
            VP_TRY(vp_print_json(infeasible_json(&job, &answer, now_s() - start_s), err));
        else
            print_infeasible(&job, &answer);
        cli->exit_code = 3;
        goto out;
    }
    VP_TRY(vp_planner_make(&job.request, &answer, &answer.candidates[0], &plan, err));
    if (path)
        VP_TRY(vp_plan_write(plan, path, force, err));
    if (cli->json)
        VP_TRY(vp_print_json(plan_json(&job, &answer, plan, now_s() - start_s), err));
    else
        print_plan(&job, &answer, plan, path);
out:
    vp_plan_free(plan);
    vp_plan_answer_release(&answer);
    vp_plan_job_release(&job);
    return st;
}

const vp_command vp_cmd_plan = {"plan",
    "MODEL --seq N --global-batch N [--device NAME|FILE] [--budget SIZE] [--recipe FILE] [--profile FILE]\n"
    "                  [-o PLAN] [--force] [--json]\n"
    "                  pins: [--micro-batch N] [--precision fp32] [--optimizer adamw|sgd] [--recompute none|attention|mlp|full]\n"
    "                        [--offload none] [--loss full|chunked|chunked:N] [--attention flash]",
    "the fastest configuration that fits a budget", run};
