#include "tuner/tune.h"

#include "core/child.h"
#include "core/file.h"
#include "core/text.h"
#include "core/units.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS_A_TRIAL = 4, MAX_JSON_BYTES = 4 << 20 };

static const char *const verdict_names[VP_N_VERDICTS] = {"ok", "oom-host", "timeout", "crash", "nan", "wrong-result", "does-not-fit"};

const char *vp_verdict_name(vp_verdict v)
{
    return verdict_names[v];
}

static void note(const vp_tune_opts *opts, const char *text)
{
    if (opts->note)
        opts->note(text);
}

/* ---- profile ---- */

static vp_status collect_program(const vp_program *p, vp_profile *calls, vp_err *err)
{
    for (int pass = 0; pass < VP_N_PASSES; pass++)
        for (int64_t i = 0; i < p->n_steps[pass]; i++) {
            vp_profile_row row = {.kernel = p->steps[pass][i].kernel};
            memcpy(row.ints, p->steps[pass][i].ints, sizeof row.ints);
            if (!vp_profile_add(calls, &row))
                return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
        }
    return VP_OK;
}

/* Every distinct call of the space: recompute only repeats calls that are there already. Chunks of the loss are timed at the
 * smallest, at 1,024 tokens and whole, and scaled between. */
static vp_status collect_calls(const vp_plan_request *r, const vp_plan_answer *a, vp_profile *calls, vp_err *err)
{
    vp_cost   cost = {.device = r->device};
    vp_status st   = VP_OK;

    for (int64_t i = 0; i < a->n_scenarios; i++) {
        const vp_scenario *s    = &a->scenarios[i].scenario;
        vp_plan           *plan = NULL;
        if (s->loss_chunk != 0 && s->loss_chunk != VP_TILE_TOKENS && s->loss_chunk != 1024 && r->loss_chunk < 0)
            continue;
        VP_TRY(vp_assemble(r->model, s, &cost, &plan, err));
        for (int64_t k = 0; st == VP_OK && k < plan->buckets[0].n_programs; k++)
            st = collect_program(&plan->buckets[0].programs[k], calls, err);
        vp_plan_free(plan);
        VP_TRY(st);
    }
out:
    return st;
}

static vp_status measure_profile(const vp_plan_request *r, const vp_plan_answer *a, const vp_tune_opts *opts, vp_profile **out, vp_err *err)
{
    vp_profile     *calls = vp_profile_new();
    json_t         *request = NULL;
    vp_json_doc    *doc   = NULL;
    vp_text         text  = {0};
    vp_child_result child = {0};
    char            program[1100], seconds[32], message[128];
    vp_status       st = VP_OK;

    VP_TRY_ALLOC(err, calls);
    VP_TRY(vp_file_find_program("vplan-run", program, sizeof program, err));
    VP_TRY(collect_calls(r, a, calls, err));
    snprintf(message, sizeof message, "timing %lld kernel calls", (long long)calls->n_rows);
    note(opts, message);
    request = vp_profile_to_json(calls);
    VP_TRY_ALLOC(err, request && vp_json_dump(request, &text));
    snprintf(seconds, sizeof seconds, "%lld", (long long)(opts->profile_s > 0 ? opts->profile_s : 120));
    char *argv[] = {program, "--profile", "-", "--seconds", seconds, NULL};
    vp_child_opts run = {.argv = argv, .stdin_bytes = text.data, .n_stdin_bytes = text.n_bytes, .out = VP_CHILD_CAPTURE,
                         .err = VP_CHILD_CAPTURE, .max_output_bytes = MAX_JSON_BYTES, .timeout_s = 600};
    VP_TRY(vp_child_run(&run, &child, err));
    if (child.end != VP_CHILD_EXITED || child.exit_code != 0)
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "profiling failed: %.400s", child.n_err ? child.err : "vplan-run gave no reason"));
    VP_TRY(vp_json_parse("profile", child.out, (int64_t)child.n_out, &doc, err));
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_profile_from_json(&root, out, err));
out:
    vp_json_doc_free(doc);
    vp_child_result_release(&child);
    vp_text_release(&text);
    json_decref(request);
    vp_profile_free(calls);
    return st;
}

/* ---- trials ---- */

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* What `vplan-run --json` printed. */
static vp_status read_run(const char *text, size_t n_bytes, vp_trial *t, vp_err *err)
{
    vp_json_doc *doc = NULL;
    vp_json_node memories, memory, steps, step;
    double       seconds[STEPS_A_TRIAL];
    int64_t      n;
    vp_status    st = VP_OK;

    VP_TRY(vp_json_parse("vplan-run", text, (int64_t)n_bytes, &doc, err));
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_json_array(&root, "memories", &memories, &n, err));
    VP_TRY(vp_json_element(&memories, 0, &memory, err));
    VP_TRY(vp_json_int(&memory, "executed_bytes", 0, INT64_MAX, &t->executed_bytes, err));
    VP_TRY(vp_json_array(&root, "steps", &steps, &n, err));
    if (n != STEPS_A_TRIAL)
        VP_TRY(vp_json_fail(&root, "steps", err, "has %lld steps", (long long)n));
    for (int64_t i = 0; i < n; i++) {
        VP_TRY(vp_json_element(&steps, i, &step, err));
        VP_TRY(vp_json_real(&step, "seconds", 0, 1e9, &seconds[i], err));
    }
    qsort(seconds + 1, STEPS_A_TRIAL - 1, sizeof *seconds, by_value);
    t->measured_s = seconds[1 + (STEPS_A_TRIAL - 1) / 2];
out:
    vp_json_doc_free(doc);
    return st;
}

static vp_verdict judge(const vp_child_result *c, vp_trial *t)
{
    vp_err ignored = {0};

    if (c->n_err)
        vp_text_escape(c->err + (c->n_err > 200 ? c->n_err - 200 : 0), t->evidence, sizeof t->evidence);
    switch (c->end) {
    case VP_CHILD_TIMED_OUT:
    case VP_CHILD_SILENT:
        return VP_VERDICT_TIMEOUT;
    case VP_CHILD_SIGNALED:
        return c->term_signal == SIGKILL ? VP_VERDICT_OOM_HOST : VP_VERDICT_CRASH;
    case VP_CHILD_INTERRUPTED:
        return VP_VERDICT_CRASH;
    case VP_CHILD_EXITED:
        break;
    }
    if (c->exit_code == vp_status_exit_code(VP_ERR_DEVICE))
        return VP_VERDICT_OOM_HOST;
    if (c->exit_code == vp_status_exit_code(VP_ERR_INPUT) && strstr(c->err, "diverged"))
        return VP_VERDICT_NAN;
    if (c->exit_code != 0 || read_run(c->out, c->n_out, t, &ignored) != VP_OK)
        return VP_VERDICT_CRASH;
    return t->executed_bytes == t->candidate.figures.peak_bytes ? VP_VERDICT_OK : VP_VERDICT_WRONG_RESULT;
}

static vp_status run_trial(const vp_plan_request *r, const vp_plan_answer *a, const char *dir, vp_trial *t, const vp_tune_opts *opts,
                           vp_err *err)
{
    vp_plan        *plan  = NULL;
    vp_child_result child = {0};
    char            program[1100], path[1100], steps[16], message[400], x[32], y[32];
    vp_status       st = VP_OK;

    snprintf(path, sizeof path, "%s/trial-%lld.json", dir, (long long)t->id);
    snprintf(steps, sizeof steps, "%d", STEPS_A_TRIAL);
    VP_TRY(vp_file_find_program("vplan-run", program, sizeof program, err));
    VP_TRY(vp_planner_make(r, a, &t->candidate, &plan, err));
    VP_TRY(vp_plan_write(plan, path, true, err));
    char *argv[] = {program, path, "--steps", steps, "--json", NULL};
    vp_child_opts run = {.argv = argv, .out = VP_CHILD_CAPTURE, .err = VP_CHILD_CAPTURE,
                         .timeout_s = 60 + 20 * STEPS_A_TRIAL * t->candidate.figures.step_time_s};
    VP_TRY(vp_child_run(&run, &child, err));
    t->verdict = judge(&child, t);
    if (child.end == VP_CHILD_INTERRUPTED)
        VP_TRY(VP_FAIL(err, VP_ERR_NO_TRIAL, "interrupted"));
    snprintf(message, sizeof message, "trial %lld: %s, %s predicted, %s measured", (long long)t->id, vp_verdict_name(t->verdict),
             vp_time_text(t->candidate.figures.step_time_s, x, sizeof x), vp_time_text(t->measured_s, y, sizeof y));
    note(opts, message);
out:
    unlink(path);
    vp_child_result_release(&child);
    vp_plan_free(plan);
    return st;
}

static bool same_scenario(const vp_scenario *a, const vp_scenario *b)
{
    return a->micro_batch == b->micro_batch && a->loss_chunk == b->loss_chunk && a->n_runs == b->n_runs
        && memcmp(a->runs, b->runs, (size_t)a->n_runs * sizeof *a->runs) == 0;
}

static int64_t find_trial(const vp_tune_result *r, const vp_scenario *s)
{
    int64_t k = 0;

    while (k < r->n_trials && !same_scenario(&r->trials[k].candidate.scenario, s))
        k++;
    return k;
}

/* The fastest plans, and the presets: those among the former are noted as such. */
static vp_status choose_trials(const vp_tune_opts *opts, vp_tune_result *result, vp_err *err)
{
    vp_plan_answer *a = &result->answer;

    result->trials = vp_arena_array(a->arena, a->n_candidates + a->n_presets, sizeof *result->trials);
    if (!result->trials)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    for (int64_t i = 0; i < a->n_candidates && result->n_trials < opts->max_trials; i++)
        if (find_trial(result, &a->candidates[i].scenario) == result->n_trials)
            result->trials[result->n_trials++] = (vp_trial){.candidate = a->candidates[i]};
    for (int64_t p = 0; p < a->n_presets; p++) {
        const vp_candidate *c = &a->presets[p].candidate;
        int64_t             k = find_trial(result, &c->scenario);
        if (k == result->n_trials)
            result->trials[result->n_trials++] = (vp_trial){.candidate = *c, .verdict = c->fits ? VP_VERDICT_OK : VP_VERDICT_DOES_NOT_FIT};
        result->trials[k].preset = a->presets[p].name;
    }
    for (int64_t i = 0; i < result->n_trials; i++)
        result->trials[i].id = i + 1;
    return VP_OK;
}

vp_status vp_tune(const vp_plan_request *request, const vp_tune_opts *opts, vp_tune_result *result, vp_err *err)
{
    vp_plan_request measured = *request;
    vp_plan_answer  guess    = {0};
    char            dir[64]  = "";
    vp_status       st       = VP_OK;

    *result = (vp_tune_result){.stopped_because = "the best plans of the space and every preset that fits were run"};
    vp_plan_request first = *request;
    first.no_proof = true;
    VP_TRY(vp_planner_run(&first, &guess, err));
    if (guess.n_candidates == 0) {
        result->answer = guess;
        guess          = (vp_plan_answer){0};
        result->stopped_because = "nothing fits the budget";
        goto out;
    }
    VP_TRY(measure_profile(request, &guess, opts, &result->profile, err));
    measured.profile = result->profile;
    VP_TRY(vp_planner_run(&measured, &result->answer, err));
    VP_TRY(choose_trials(opts, result, err));
    snprintf(dir, sizeof dir, "/tmp/vplan-tune-XXXXXX");
    if (!mkdtemp(dir)) {
        dir[0] = '\0';
        VP_TRY(VP_FAIL(err, VP_ERR_STORAGE, "no temporary folder can be made in /tmp"));
    }
    for (int64_t i = 0; i < result->n_trials; i++) {
        vp_trial *t = &result->trials[i];
        if (t->verdict == VP_VERDICT_DOES_NOT_FIT)
            continue;
        VP_TRY(run_trial(&measured, &result->answer, dir, t, opts, err));
        if (t->verdict != VP_VERDICT_OK)
            continue;
        if (!result->best || t->measured_s < result->best->measured_s)
            result->best = t;
        if (t->preset && (!result->best_preset || t->measured_s < result->best_preset->measured_s))
            result->best_preset = t;
    }
out:
    if (dir[0])
        rmdir(dir);
    vp_plan_answer_release(&guess);
    return st;
}

void vp_tune_result_release(vp_tune_result *result)
{
    vp_profile_free(result->profile);
    vp_plan_answer_release(&result->answer);
    *result = (vp_tune_result){0};
}
