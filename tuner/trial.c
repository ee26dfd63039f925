/* Trials: what is known of them, and running one. */
#include "tuner/tune_internal.h"

#include "base/stats.h"
#include "base/units.h"

#include <assert.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    MIN_STEPS = 4, /* of a trial; the first does not count     */
    MAX_STEPS = 20,
    MAX_TRIES = 2 /* of a trial whose tuner dies while it runs */
};
static const double ENOUGH_S = 2; /* of steps in a trial */

static const char *const verdict_names[VP_N_VERDICTS] = {
    "ok", "oom-host", "timeout", "crash", "nan", "wrong-result", "interrupted", "does-not-fit"};

const char *vp_verdict_name(vp_verdict v)
{
    assert(v >= 0 && v < VP_N_VERDICTS);
    return verdict_names[v];
}

/* ---- trials: what is known of them ---- */

static bool same_offload(const vp_offload *a, const vp_offload *b)
{
    return a->states == b->states && a->host_step == b->host_step && a->blocks == b->blocks &&
           a->activations == b->activations && a->n_slots == b->n_slots;
}

bool vp_same_scenario(const vp_scenario *a, const vp_scenario *b)
{
    assert(a->n_runs >= 0 && a->n_runs <= VP_MAX_RUNS && b->n_runs >= 0 &&
           b->n_runs <= VP_MAX_RUNS);
    return a->micro_batch == b->micro_batch && a->loss_chunk == b->loss_chunk &&
           a->attention == b->attention && a->recipe.precision == b->recipe.precision &&
           a->recipe.gradients == b->recipe.gradients &&
           a->recipe.optimizer == b->recipe.optimizer && same_offload(&a->offload, &b->offload) &&
           a->n_runs == b->n_runs &&
           memcmp(a->runs, b->runs, (size_t)a->n_runs * sizeof *a->runs) == 0;
}

int64_t vp_trials_find(const vp_trials *trials, const vp_scenario *s)
{
    int64_t k = 0;

    while (k < trials->n && !vp_same_scenario(&trials->all[k].candidate.scenario, s))
        k++;
    return k;
}

bool vp_trials_have(const vp_trials *trials, const vp_scenario *s)
{
    return vp_trials_find(trials, s) < trials->n;
}

/* Where host memory is given, as its pin says; else nothing. */
static bool may_offload(const vp_plan_request *r, const vp_offload *o)
{
    vp_offload_kind kind = vp_offload_kind_of(o);

    if (r->host_bytes <= 0)
        return kind == VP_OFFLOAD_NONE;
    return r->offload == VP_OFFLOAD_ANY || kind == r->offload;
}

bool vp_obeys_pins(const vp_plan_request *r, const vp_scenario *s)
{
    bool chunk = r->loss_chunk == VP_CHUNK_ANY || s->loss_chunk == r->loss_chunk ||
                 (r->loss_chunk == VP_CHUNK_CHUNKED && s->loss_chunk > 0);

    return chunk && vp_request_allows_runs(r, s) && may_offload(r, &s->offload) &&
           (!r->micro_batch || s->micro_batch == r->micro_batch) &&
           (r->updates != VP_UPDATES_BACKWARD || vp_scenario_updates_in_backward(s)) &&
           (r->attention == VP_ATTENTION_ANY || s->attention == r->attention) &&
           vp_request_allows(r, s->recipe.precision, s->recipe.gradients, s->recipe.optimizer);
}

static vp_status add(vp_trials *trials, const vp_session *s, const vp_trial *trial,
                     const vp_study_trial *row, vp_err *err)
{
    if (!vp_arena_grow(s->arena, (void **)&trials->all, trials->n, &trials->cap, sizeof *trial) ||
        !vp_arena_grow(s->arena, (void **)&trials->rows, trials->n, &trials->cap_rows, sizeof *row))
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    assert(trials->n < trials->cap && trials->n < trials->cap_rows);
    assert(trial->id == row->id && trial->verdict < VP_N_VERDICTS);
    trials->all[trials->n]    = *trial;
    trials->rows[trials->n++] = *row;
    return VP_OK;
}

vp_status vp_trials_add_unfit(vp_trials *trials, const vp_session *s, const vp_preset *preset,
                              vp_err *err)
{
    assert(!vp_trials_have(trials, &preset->candidate.scenario)); /* one trial of one plan */
    return add(trials, s,
               &(vp_trial){.preset    = preset->name,
                           .candidate = preset->candidate,
                           .verdict   = VP_VERDICT_DOES_NOT_FIT,
                           .evidence  = ""},
               &(vp_study_trial){0}, err);
}

void vp_trials_name_preset(vp_trials *trials, const vp_session *s, int64_t idx, const char *preset)
{
    assert(idx >= 0 && idx < trials->n && preset);
    trials->n_beside -=
        trials->all[idx].preset == NULL && trials->rows[idx].request_id == s->request_id;
    trials->all[idx].preset = preset;
    assert(trials->n_beside >= 0);
}

void vp_trials_fit(vp_trials *trials, const vp_planning *planning)
{
    for (int64_t i = 0; i < trials->n; i++) {
        vp_candidate *c         = &trials->all[i].candidate;
        c->figures.device_bytes = vp_device_bytes(&planning->device, c->figures.peak_bytes);
        c->fits                 = c->figures.device_bytes <= planning->request.budget_bytes;
    }
}

static vp_verdict verdict_by_name(const char *name)
{
    int v = 0;

    while (v < VP_N_VERDICTS && (!name || strcmp(verdict_names[v], name) != 0))
        v++;
    return (vp_verdict)v;
}

/* Of a trial in the study, which has its steps, but not which of them were a race's. */
static void take_spread(vp_arena *arena, const vp_study_trial *row, vp_trial *trial)
{
    double *steps = vp_arena_array(arena, row->n_steps, sizeof *steps);

    if (!steps || row->n_steps < 2 || row->measured_s <= 0)
        return;
    memcpy(steps, row->step_s, (size_t)row->n_steps * sizeof *steps);
    *(row->n_runs < VP_ENOUGH_RUNS ? &trial->alone : &trial->raced) = (vp_spread){
        row->measured_s, vp_middle_error(steps + 1, row->n_steps - 1) / row->measured_s};
}

/* What the study has of this request. A plan whose tuner died MAX_TRIES times while it ran is
 * taken to be the reason. */
vp_status vp_trials_restore(vp_trials *trials, const vp_session *s, vp_err *err)
{
    vp_study_trial *rows;
    int64_t         n, n_done = 0;
    vp_err          inner;
    vp_status       st = VP_OK;

    assert(trials->n == 0 && s->request_id > 0);
    VP_TRY(vp_study_trials(s->study, s->arena, s->request_id, &rows, &n, err));
    for (int64_t i = 0; i < n; i++) {
        int64_t n_interrupted = 0;
        for (int64_t k = 0; rows[i].state == VP_TRIAL_INTERRUPTED && k <= i; k++)
            n_interrupted += rows[k].state == VP_TRIAL_INTERRUPTED &&
                             strcmp(rows[k].decisions, rows[i].decisions) == 0;
        if (rows[i].state != VP_TRIAL_DONE && n_interrupted != MAX_TRIES)
            continue;
        vp_trial trial = {.id             = rows[i].id,
                          .preset         = rows[i].preset,
                          .from_study     = true,
                          .executed_bytes = rows[i].executed_bytes,
                          .measured_s     = rows[i].measured_s,
                          .n_runs         = rows[i].n_runs,
                          .evidence       = rows[i].evidence,
                          .verdict        = rows[i].state == VP_TRIAL_DONE
                                                ? verdict_by_name(rows[i].verdict)
                                                : VP_VERDICT_INTERRUPTED};
        take_spread(s->arena, &rows[i], &trial);
        inner = (vp_err){0};
        if (trial.verdict == VP_N_VERDICTS ||
            vp_decisions_read(s->request, rows[i].decisions, &trial.candidate.scenario, &inner) !=
                VP_OK)
            VP_TRY(VP_FAIL_AT(err, VP_ERR_STORAGE, s->opts->study, 0,
                              trial.verdict == VP_N_VERDICTS ? "verdict" : "decisions",
                              "trial %lld: %s", (long long)rows[i].id,
                              trial.verdict == VP_N_VERDICTS ? "is no verdict known here"
                                                             : inner.message));
        vp_cost cost = {.device = s->request->device};
        VP_TRY(vp_assemble_figures(s->request->model, &trial.candidate.scenario, &cost,
                                   &trial.candidate.figures, err));
        trial.candidate.figures.step_time_s = rows[i].predicted_s;
        trial.candidate.fits = trial.candidate.figures.device_bytes <= s->request->budget_bytes;
        if (vp_trials_have(trials, &trial.candidate.scenario) || !trial.candidate.fits ||
            (!trial.preset && !vp_obeys_pins(s->request, &trial.candidate.scenario)))
            continue;
        VP_TRY(add(trials, s, &trial, &rows[i], err));
        trials->n_beside += trial.preset == NULL && rows[i].request_id == s->request_id;
        n_done++;
    }
    assert(trials->n == n_done && trials->n_beside <= n_done);
    if (n_done)
        vp_session_note(s, "%lld trial%s of the study %s not run again", (long long)n_done,
                        n_done == 1 ? "" : "s", n_done == 1 ? "is" : "are");
out:
    return st;
}

/* ---- a trial ---- */

/* What one run of a child says. */
typedef struct answer {
    int64_t       executed_bytes;
    double        step_s[MAX_STEPS];
    int64_t       n_steps;
    vp_call_time *calls;
    int64_t       n_calls;
    vp_overhead   outside;
} answer;

static vp_status read_call(const vp_json_node *node, vp_call_time *c, vp_err *err)
{
    const char *name;
    vp_status   st = VP_OK;

    VP_TRY(vp_json_string(node, "kernel", &name, err));
    c->row.kernel = vp_kernel_by_name(name);
    if (c->row.kernel == VP_N_KERNELS)
        VP_TRY(vp_json_fail(node, "kernel", err, "no such kernel"));
    c->row.dtype = VP_DTYPE_F32;
    if (vp_json_has(node, "dtype")) {
        VP_TRY(vp_json_string(node, "dtype", &name, err));
        c->row.dtype = vp_dtype_by_name(name);
        if (c->row.dtype == VP_N_DTYPES)
            VP_TRY(vp_json_fail(node, "dtype", err, "no such dtype"));
    }
    VP_TRY(vp_ints_read(node, c->row.kernel, INT64_C(1) << 40, c->row.ints, err));
    VP_TRY(vp_lacks_read(node, c->row.kernel, c->row.dtype, &c->row.lacks, err));
    VP_TRY(vp_json_int(node, "calls", 1, INT64_MAX, &c->n_calls, err));
    VP_TRY(vp_json_real(node, "seconds", 0, 1e9, &c->row.seconds, err));
out:
    return st;
}

vp_status vp_read_calls(vp_arena *arena, const vp_json_node *run, vp_call_time **calls,
                        int64_t *n_calls, vp_err *err)
{
    vp_json_node list, node;
    vp_status    st = VP_OK;

    if (!vp_json_has(run, "kernel_calls"))
        return VP_OK;
    VP_TRY(vp_json_array(run, "kernel_calls", &list, n_calls, err));
    *calls = vp_arena_array(arena, *n_calls, sizeof **calls);
    VP_TRY_ALLOC(err, *calls);
    for (int64_t i = 0; i < *n_calls; i++) {
        VP_TRY(vp_json_element(&list, i, &node, err));
        VP_TRY(read_call(&node, &(*calls)[i], err));
    }
out:
    return st;
}

/* What `vplan-run --json` printed. outside and kernel_calls may be left out by another runner. */
static vp_status read_answer(vp_arena *arena, const char *text, size_t n_bytes, int64_t n_steps,
                             answer *a, vp_err *err)
{
    vp_json_doc *doc = NULL;
    vp_json_node memories, memory, list, node;
    vp_status    st = VP_OK;

    assert(n_steps > 0 && n_steps <= MAX_STEPS); /* a->step_s holds no more */
    VP_TRY(vp_json_parse("vplan-run", text, (int64_t)n_bytes, &doc, err));
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_json_array(&root, "memories", &memories, &a->n_steps, err));
    VP_TRY(vp_json_element(&memories, 0, &memory, err));
    VP_TRY(vp_json_int(&memory, "executed_bytes", 0, INT64_MAX, &a->executed_bytes, err));
    VP_TRY(vp_json_array(&root, "steps", &list, &a->n_steps, err));
    if (a->n_steps != n_steps)
        VP_TRY(vp_json_fail(&root, "steps", err, "has %lld steps", (long long)a->n_steps));
    for (int64_t i = 0; i < n_steps; i++) {
        VP_TRY(vp_json_element(&list, i, &node, err));
        VP_TRY(vp_json_real(&node, "seconds", 0, 1e9, &a->step_s[i], err));
    }
    if (vp_json_has(&root, "outside")) {
        VP_TRY(vp_json_object(&root, "outside", &node, err));
        VP_TRY(vp_overhead_from_json(&node, &a->outside, err));
    }
    VP_TRY(vp_read_calls(arena, &root, &a->calls, &a->n_calls, err));
out:
    vp_json_doc_free(doc);
    return st;
}

/* Processes this kernel has killed for memory, here or anywhere it tells us of; -1: it does not
 * tell. */
static int64_t count_oom_kills(void)
{
    static const char *const files[] = {"/proc/vmstat", "/sys/fs/cgroup/memory.events"};
    int64_t                  sum     = -1;
    char                     line[200];
    long long                n;

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        FILE *f = fopen(files[i], "re");
        while (f && fgets(line, sizeof line, f))
            if (sscanf(line, "oom_kill %lld", &n) == 1)
                sum = (sum < 0 ? 0 : sum) + n;
        if (f)
            fclose(f);
    }
    return sum;
}

/* Why a child killed by a signal is taken to have died. SIGKILL alone proves nothing. */
static vp_verdict judge_signal(vp_arena *arena, const vp_child_result *c, int64_t n_oom_kills,
                               const char **evidence)
{
    int64_t now = count_oom_kills();

    if (c->term_signal == SIGKILL && n_oom_kills >= 0 && now > n_oom_kills) {
        *evidence =
            vp_arena_printf(arena, "killed; the kernel counted %lld kill%s for memory meanwhile",
                            (long long)(now - n_oom_kills), now - n_oom_kills == 1 ? "" : "s");
        return VP_VERDICT_OOM_HOST;
    }
    assert(c->end == VP_CHILD_SIGNALED && c->term_signal > 0);
    *evidence = vp_arena_printf(arena, "ended by signal %d%s", c->term_signal,
                                c->term_signal != SIGKILL ? ""
                                : n_oom_kills < 0 ? "; whether for memory cannot be told here"
                                                  : "; not by the kernel for memory");
    return VP_VERDICT_CRASH;
}

static vp_verdict judge(vp_arena *arena, const vp_child_result *c, int64_t n_oom_kills,
                        int64_t n_steps, const vp_trial *trial, answer *a, const char **evidence)
{
    vp_err reason = {0};
    char   shown[600];

    *evidence = "";
    if (c->n_err) {
        vp_text_escape(c->err + (c->n_err > 400 ? c->n_err - 400 : 0), shown, sizeof shown);
        *evidence = vp_arena_strdup(arena, shown);
    }
    switch (c->end) {
    case VP_CHILD_TIMED_OUT:
    case VP_CHILD_SILENT:
        *evidence = vp_arena_printf(arena, "ended after %.0f s", c->seconds);
        return VP_VERDICT_TIMEOUT;
    case VP_CHILD_SIGNALED:
        return judge_signal(arena, c, n_oom_kills, evidence);
    case VP_CHILD_INTERRUPTED:
        return VP_VERDICT_INTERRUPTED;
    case VP_CHILD_EXITED:
        break;
    }
    if (c->exit_code == vp_status_exit_code(VP_ERR_DEVICE))
        return VP_VERDICT_OOM_HOST;
    if (c->exit_code == vp_status_exit_code(VP_ERR_INPUT) && strstr(c->err, "diverged"))
        return VP_VERDICT_NAN;
    if (c->exit_code != 0)
        return VP_VERDICT_CRASH;
    if (read_answer(arena, c->out, c->n_out, n_steps, a, &reason) != VP_OK) {
        *evidence = vp_arena_strdup(arena, vp_err_text(&reason, shown, sizeof shown));
        return VP_VERDICT_CRASH;
    }
    if (a->executed_bytes != trial->candidate.figures.peak_bytes) {
        *evidence = vp_arena_printf(arena, "executed %lld bytes, planned %lld",
                                    (long long)a->executed_bytes,
                                    (long long)trial->candidate.figures.peak_bytes);
        return VP_VERDICT_WRONG_RESULT;
    }
    *evidence = "";
    return VP_VERDICT_OK;
}

static int64_t steps_for(double step_s)
{
    double n = step_s > 0 ? ceil(ENOUGH_S / step_s) + 1 : MAX_STEPS;
    return n < MIN_STEPS ? MIN_STEPS : n > MAX_STEPS ? MAX_STEPS : (int64_t)n;
}

/* Run the candidate's plan once. The plan goes through a pipe: nothing is left behind by a kill. */
static vp_status run_child(vp_session *s, const vp_planning *planning, const vp_trial *trial,
                           int64_t n_steps, answer *a, vp_verdict *verdict, const char **evidence,
                           vp_err *err)
{
    json_t         *json  = NULL;
    vp_text         text  = {0};
    vp_child_result child = {0};
    char            steps[16];
    vp_status       st = VP_OK;

    assert(s->runner[0] && n_steps >= MIN_STEPS && n_steps <= MAX_STEPS);
    VP_TRY(vp_planning_json(planning, &trial->candidate, &json, err));
    VP_TRY_ALLOC(err, vp_json_dump(json, &text));
    snprintf(steps, sizeof steps, "%lld", (long long)n_steps);
    char   *argv[]      = {(char *)(uintptr_t)s->runner, "-", "--steps", steps, "--json", NULL};
    int64_t n_oom_kills = count_oom_kills();
    VP_TRY(vp_session_run(s, argv, &text,
                          60 + 20 * (double)n_steps * trial->candidate.figures.step_time_s, &child,
                          err));
    *verdict = judge(s->arena, &child, n_oom_kills, n_steps, trial, a, evidence);
out:
    vp_child_result_release(&child);
    vp_text_release(&text);
    json_decref(json);
    return st;
}

/* Add a run's steps and calls to the row; the median over all runs' steps but each first one. */
static vp_status take_answer(const vp_session *s, vp_planning *planning, const answer *a,
                             vp_study_trial *row, vp_trial *trial, vp_err *err)
{
    int64_t n       = 0;
    double *all     = vp_arena_array(s->arena, row->n_steps + a->n_steps, sizeof *all);
    double *counted = vp_arena_array(s->arena, row->n_steps + a->n_steps, sizeof *counted);

    if (!all || !counted)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    assert(a->n_steps > 0 && (row->n_steps == 0 || row->step_s));
    if (row->n_steps)
        memcpy(all, row->step_s, (size_t)row->n_steps * sizeof *all);
    memcpy(all + row->n_steps, a->step_s, (size_t)a->n_steps * sizeof *all);
    row->step_s = all;
    row->n_steps += a->n_steps;
    row->n_runs++;
    for (int64_t i = 0; i < row->n_steps; i++)
        if (i % a->n_steps != 0) /* every run of a plan has as many */
            counted[n++] = all[i];
    assert(n > 0 && n < row->n_steps);
    row->measured_s = vp_median(counted, n);
    trial->alone    = (vp_spread){row->measured_s, vp_middle_error(counted, n) / row->measured_s};
    if (a->n_calls) {
        row->calls   = a->calls;
        row->n_calls = a->n_calls;
    }
    if (a->outside.measured_by != VP_OVERHEAD_NOT_MEASURED) {
        vp_overhead_take(&row->outside, &a->outside);
        memcpy(row->outside.device, s->request->device->name, sizeof row->outside.device);
        vp_planning_take_outside(planning, &row->outside);
    }
    row->executed_bytes   = a->executed_bytes;
    trial->executed_bytes = a->executed_bytes;
    trial->measured_s     = row->measured_s;
    trial->n_runs         = row->n_runs;
    return VP_OK;
}

vp_status vp_trials_run(vp_trials *trials, vp_session *s, vp_planning *planning,
                        const vp_candidate *candidate, const char *preset, vp_err *err)
{
    vp_trial trial = {
        .candidate = *candidate, .preset = vp_arena_strdup(s->arena, preset), .evidence = ""};
    vp_study_trial row = {.request_id      = s->request_id,
                          .preset          = trial.preset,
                          .predicted_bytes = candidate->figures.peak_bytes,
                          .predicted_s     = candidate->figures.step_time_s,
                          .evidence        = ""};
    answer         a   = {0};
    char           x[32], y[32];
    vp_status      st = VP_OK;

    assert(candidate->fits && !vp_trials_have(trials, &candidate->scenario));
    VP_TRY(vp_planning_keep_profile(planning, s, &row.profile_id, err));
    row.decisions = vp_decisions_text(s->arena, s->request->model, &candidate->scenario);
    VP_TRY_ALLOC(err, row.decisions);
    VP_TRY(vp_study_begin(s->study, s->request_id, &row, err));
    trial.id = row.id;
    vp_session_doing(s, "running trial %lld", (long long)trial.id);
    assert(row.id > 0 && row.state == VP_TRIAL_RUNNING);
    VP_TRY(run_child(s, planning, &trial, steps_for(candidate->figures.step_time_s), &a,
                     &trial.verdict, &trial.evidence, err));
    if (trial.verdict == VP_VERDICT_INTERRUPTED) {
        VP_TRY(vp_study_cancel(s->study, row.id, err));
        VP_TRY(VP_FAIL(err, VP_ERR_NO_TRIAL, "interrupted"));
    }
    VP_TRY_ALLOC(err, trial.evidence && !vp_arena_failed(s->arena));
    if (trial.verdict == VP_VERDICT_OK)
        VP_TRY(take_answer(s, planning, &a, &row, &trial, err));
    vp_session_note(s, "trial %lld: %s%s%s, %s predicted, %s measured", (long long)trial.id,
                    preset ? preset : "", preset ? ": " : "", vp_verdict_name(trial.verdict),
                    vp_time_text(candidate->figures.step_time_s, x, sizeof x),
                    trial.measured_s > 0 ? vp_time_text(trial.measured_s, y, sizeof y) : "nothing");
    row.verdict  = vp_verdict_name(trial.verdict);
    row.evidence = trial.evidence;
    row.state    = VP_TRIAL_DONE;
    VP_TRY(vp_study_finish(s->study, &row, err));
    VP_TRY(add(trials, s, &trial, &row, err));
    trials->n_beside += preset == NULL;
    assert(trials->n_beside <= trials->n);
out:
    return st;
}

vp_status vp_trials_run_again(vp_trials *trials, vp_session *s, vp_planning *planning, int64_t idx,
                              vp_err *err)
{
    vp_trial       *x   = &trials->all[idx];
    vp_study_trial *row = &trials->rows[idx];
    /* as before, within what a trial takes */
    int64_t     n_steps = row->n_steps / (row->n_runs > 0 ? row->n_runs : 1);
    vp_verdict  verdict;
    const char *evidence;
    answer      a = {0};
    char        before[32], after[32];
    vp_status   st = VP_OK;

    assert(idx >= 0 && idx < trials->n && x->id == row->id);
    assert(x->verdict == VP_VERDICT_OK); /* a contender */
    vp_time_text(x->measured_s, before, sizeof before);
    n_steps = n_steps < MIN_STEPS ? MIN_STEPS : n_steps > MAX_STEPS ? MAX_STEPS : n_steps;
    vp_session_doing(s, "running trial %lld again", (long long)x->id);
    VP_TRY(run_child(s, planning, x, n_steps, &a, &verdict, &evidence, err));
    if (verdict == VP_VERDICT_INTERRUPTED)
        VP_TRY(VP_FAIL(err, VP_ERR_NO_TRIAL, "interrupted"));
    if (verdict == VP_VERDICT_OK) {
        VP_TRY(take_answer(s, planning, &a, row, x, err));
    } else {
        x->n_runs       = ++row->n_runs; /* it cannot be relied on */
        row->measured_s = x->measured_s = 0;
        x->verdict                      = verdict;
        x->evidence                     = evidence;
        VP_TRY_ALLOC(err, evidence);
    }
    vp_session_note(
        s, "trial %lld again: %s, %s, was %s", (long long)x->id, vp_verdict_name(verdict),
        x->measured_s > 0 ? vp_time_text(x->measured_s, after, sizeof after) : "nothing", before);
    row->verdict  = vp_verdict_name(x->verdict);
    row->evidence = x->evidence;
    VP_TRY(vp_study_finish(s->study, row, err));
out:
    return st;
}

vp_status vp_trials_take_race(vp_trials *trials, const vp_session *s, int64_t idx,
                              const vp_race_result *race, vp_err *err)
{
    vp_trial       *x   = &trials->all[idx];
    vp_study_trial *row = &trials->rows[idx];
    double         *all = vp_arena_array(s->arena, row->n_steps + race->n_rounds, sizeof *all);
    char            before[32], after[32];
    vp_status       st = VP_OK;

    assert(idx >= 0 && idx < trials->n && x->id == row->id);
    assert(race->n_rounds > 0 && race->step_s && race->step.seconds > 0);
    VP_TRY_ALLOC(err, all);
    if (row->n_steps)
        memcpy(all, row->step_s, (size_t)row->n_steps * sizeof *all);
    memcpy(all + row->n_steps, race->step_s, (size_t)race->n_rounds * sizeof *all);
    vp_session_note(s, "trial %lld in the race: %s after %lld rounds, was %s %s", (long long)x->id,
                    vp_time_text(race->step.seconds, after, sizeof after),
                    (long long)race->n_rounds, vp_time_text(x->measured_s, before, sizeof before),
                    x->raced.seconds > 0 ? "in the one before" : "alone");
    if (race->n_calls) {
        row->calls   = race->calls;
        row->n_calls = race->n_calls;
    }
    row->step_s = all;
    row->n_steps += race->n_rounds;
    row->n_runs     = row->n_runs < VP_ENOUGH_RUNS ? VP_ENOUGH_RUNS : row->n_runs + 1;
    row->measured_s = x->measured_s = race->step.seconds;
    x->raced                        = race->step;
    x->n_runs                       = row->n_runs;
    VP_TRY(vp_study_finish(s->study, row, err));
out:
    return st;
}

vp_status vp_trials_carry_over(vp_trials *trials, const vp_session *s, int64_t idx, double over,
                               vp_err *err)
{
    vp_trial *x = &trials->all[idx];

    assert(idx >= 0 && idx < trials->n && x->raced.seconds > 0 && over > 0);
    x->raced.seconds *= over;
    trials->rows[idx].measured_s = x->measured_s = x->raced.seconds;
    return vp_study_finish(s->study, &trials->rows[idx], err);
}
