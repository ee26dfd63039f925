/* What is so near that one run each does not tell it apart. */
#include "tuner/tune_internal.h"

#include "core/checked.h"
#include "core/child.h"
#include "core/stats.h"
#include "core/text.h"
#include "core/units.h"
#include "tuner/race.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MIN_ROUNDS = 12,                     /* of a race, and then as many as there were, up to       */
    MAX_ROUNDS = 96
};
static const double RACE_S      = 180;   /* of a race; no rounds begin that would end later        */
static const double SURE        = 2;     /* standard errors behind the fastest: out of the race    */
static const double MEMORY_USED = 0.8;   /* at most, of what is free, by plans that race           */
static const double NEAR_BEST   = 0.1;   /* what is expected within this of the best is a contender */

/* ---- what is expected ---- */

/* What the profile of now says of a plan that ran. */
static vp_status predicted_now(const vp_tuner *t, const vp_scenario *s, double *step_s, vp_err *err)
{
    vp_cost    cost = {.device = t->request->device, .profile = t->result->profile};
    vp_figures figures;
    vp_status  st = VP_OK;

    VP_TRY(vp_assemble_figures(t->request->model, s, &cost, &figures, err));
    *step_s = figures.step_time_s;
out:
    return st;
}

/* What was measured and what the profile says are each right with their own weight: the profile is off by VP_MODEL_OFF, a measurement by as much as measurements scatter about the profile. On a quiet machine what was
 * measured counts, on a busy one what is predicted. */
vp_status vp_tuner_expect(const vp_tuner *t, vp_expectation *e, vp_err *err)
{
    int64_t   n = t->result->n_trials, n_off = 0;
    double   *predicted = vp_arena_array(t->result->arena, n, sizeof *predicted);
    double   *off       = vp_arena_array(t->result->arena, n, sizeof *off);
    vp_status st = VP_OK;

    e->step_s = vp_arena_array(t->result->arena, n, sizeof *e->step_s);
    VP_TRY_ALLOC(err, predicted && off && e->step_s);
    for (int64_t i = 0; i < n; i++) {
        const vp_trial *x = &t->result->trials[i];
        e->step_s[i] = INFINITY;
        if (x->verdict != VP_VERDICT_OK)
            continue;
        VP_TRY(predicted_now(t, &x->candidate.scenario, &predicted[i], err));
        off[n_off++] = log(x->measured_s / predicted[i]);
    }
    e->off = vp_median(off, n_off);
    for (int64_t i = 0; i < n_off; i++)
        off[i] = fabs(off[i] - e->off);
    double scatter = 1.4826 * vp_median(off, n_off); /* the standard deviation, were it normal */
    double weight  = VP_MODEL_OFF * VP_MODEL_OFF / (VP_MODEL_OFF * VP_MODEL_OFF + scatter * scatter);
    for (int64_t i = 0; i < n; i++) {
        const vp_trial *x = &t->result->trials[i];
        if (x->verdict == VP_VERDICT_OK && x->candidate.fits && vp_tuner_obeys_pins(t->request, &x->candidate.scenario))
            e->step_s[i] = exp(weight * log(x->measured_s) + (1 - weight) * (log(predicted[i]) + e->off));
    }
out:
    return st;
}

/* ---- the race ---- */

static int by_expected(const void *a, const void *b)
{
    const vp_contender *x = a, *y = b;
    return (x->expected_s > y->expected_s) - (x->expected_s < y->expected_s);
}

/* Those near the best by what is expected, and at least two: one trial that a quiet moment made fast must not win alone. */
static vp_status choose_contenders(vp_tuner *t, vp_err *err)
{
    int64_t        n   = t->result->n_trials;
    vp_contender  *all = vp_arena_array(t->result->arena, n, sizeof *all);
    vp_expectation e;
    vp_status      st = VP_OK;

    VP_TRY_ALLOC(err, all);
    VP_TRY(vp_tuner_expect(t, &e, err));
    t->n_contenders = 0;
    for (int64_t i = 0; i < n; i++)
        all[i] = (vp_contender){.trial_idx = i, .expected_s = e.step_s[i]};
    qsort(all, (size_t)n, sizeof *all, by_expected);
    for (int64_t i = 0; i < n && i < VP_MAX_CONTENDERS && isfinite(all[i].expected_s) && (i < 2 || all[i].expected_s <= (1 + NEAR_BEST) * all[0].expected_s); i++)
        t->contenders[t->n_contenders++] = all[i];
out:
    return st;
}

/* How many of the contenders, the first ones, fit side by side. */
static int64_t n_together(const vp_tuner *t)
{
    double  left_bytes = MEMORY_USED * (double)t->free_bytes;
    int64_t n = 0;

    while (n < t->n_contenders && (left_bytes -= (double)t->result->trials[t->contenders[n].trial_idx].candidate.figures.device_bytes) >= 0)
        n++;
    return n;
}

/* What `vplan-run --compare` printed of the first n contenders, behind the rounds they have. */
static vp_status read_rounds(vp_tuner *t, int64_t n, const char *text, size_t n_bytes, int64_t n_more, vp_err *err)
{
    vp_json_doc *doc = NULL;
    vp_json_node plans, plan, steps;
    int64_t      n_here, executed_bytes;
    vp_status    st = VP_OK;

    VP_TRY(vp_json_parse("vplan-run --compare", text, (int64_t)n_bytes, &doc, err));
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_json_array(&root, "plans", &plans, &n_here, err));
    if (n_here != n)
        VP_TRY(vp_json_fail(&root, "plans", err, "has %lld plans", (long long)n_here));
    for (int64_t i = 0; i < n; i++) {
        vp_contender *x = &t->contenders[i];
        VP_TRY(vp_json_element(&plans, i, &plan, err));
        VP_TRY(vp_json_int(&plan, "executed_bytes", 0, INT64_MAX, &executed_bytes, err));
        if (executed_bytes != t->result->trials[x->trial_idx].candidate.figures.peak_bytes)
            VP_TRY(vp_json_fail(&plan, "executed_bytes", err, "is not what was planned"));
        VP_TRY(vp_json_array(&plan, "step_s", &steps, &n_here, err));
        if (n_here != n_more)
            VP_TRY(vp_json_fail(&plan, "step_s", err, "has %lld steps", (long long)n_here));
        for (int64_t r = 0; r < n_more; r++) {
            vp_json_node s;
            VP_TRY(vp_json_element(&steps, r, &s, err));
            VP_TRY(vp_json_as_real(&s, 1e-9, 1e9, &x->step_s[x->n_rounds + r], err));
        }
        VP_TRY(vp_tuner_read_calls(t->result->arena, &plan, &x->calls, &x->n_calls, err));
    }
    for (int64_t i = 0; i < n; i++)
        t->contenders[i].n_rounds += n_more;
out:
    vp_json_doc_free(doc);
    return st;
}

/* n_more rounds of the first n contenders, all alive in one process, a step of each in turns. *done false: that failed, and why was said. */
static vp_status run_rounds(vp_tuner *t, int64_t n, int64_t n_more, double round_s, bool *done, double *spent_s, vp_err *err)
{
    json_t         *plans = json_array(), *plan;
    vp_text         text  = {0};
    vp_child_result child = {0};
    vp_err          why   = {0};
    char            steps[24];
    vp_status       st = VP_OK;

    *done = false;
    VP_TRY_ALLOC(err, plans);
    for (int64_t i = 0; i < n; i++) {
        VP_TRY(vp_tuner_plan_json(t, &t->result->trials[t->contenders[i].trial_idx], &plan, err));
        VP_TRY_ALLOC(err, json_array_append_new(plans, plan) == 0);
    }
    VP_TRY_ALLOC(err, vp_json_dump(plans, &text));
    vp_tuner_note(t, "a race of %lld plans: %lld steps of each, in turns", (long long)n, (long long)n_more);
    snprintf(steps, sizeof steps, "%lld", (long long)n_more);
    char *argv[] = {t->runner, "--compare", "-", "--steps", steps, "--json", NULL};
    vp_child_opts run = {.argv = argv, .stdin_bytes = text.data, .n_stdin_bytes = text.n_bytes, .out = VP_CHILD_CAPTURE, .err = VP_CHILD_CAPTURE,
                         .max_output_bytes = VP_MAX_TUNE_JSON, .timeout_s = 120 + 20 * (double)n_more * round_s};
    VP_TRY(vp_child_run(&run, &child, err));
    *spent_s += child.seconds;
    if (child.end == VP_CHILD_INTERRUPTED)
        VP_TRY(VP_FAIL(err, VP_ERR_NO_TRIAL, "interrupted"));
    if (child.end != VP_CHILD_EXITED || child.exit_code != 0)
        vp_tuner_note(t, "no race: %.400s", child.n_err ? child.err : "it ended without an answer");
    else if (read_rounds(t, n, child.out, child.n_out, n_more, &why) != VP_OK)
        vp_tuner_note(t, "no race: %s", why.message);
    else
        *done = true;
out:
    vp_child_result_release(&child);
    vp_text_release(&text);
    json_decref(plans);
    return st;
}

/* Judge the first *n contenders by all their rounds. Who is surely behind the fastest goes behind those who are left, *n of them. *fastest_s is the
 * fastest's seconds; *told whether the rounds tell those who are left apart by what would be worth it. */
static vp_status judge_rounds(vp_tuner *t, int64_t *n, double *fastest_s, bool *told, vp_err *err)
{
    const double     *step_s[VP_MAX_CONTENDERS];
    double            seconds[VP_MAX_CONTENDERS], error[VP_MAX_CONTENDERS];
    vp_contender  left[VP_MAX_CONTENDERS], behind[VP_MAX_CONTENDERS];
    int64_t           n_left = 0, n_behind = 0;
    vp_status         st = VP_OK;

    for (int64_t i = 0; i < *n; i++)
        step_s[i] = t->contenders[i].step_s;
    VP_TRY(vp_race_estimate(step_s, *n, t->contenders[0].n_rounds, seconds, error, err));
    *told      = true;
    *fastest_s = INFINITY;
    for (int64_t i = 0; i < *n; i++)
        *fastest_s = fmin(*fastest_s, seconds[i]);
    for (int64_t i = 0; i < *n; i++) {
        vp_contender *x = &t->contenders[i];
        x->behind           = log(seconds[i] / *fastest_s);
        if (x->behind > SURE * error[i]) {
            behind[n_behind++] = *x;
        } else {
            left[n_left++] = *x;
            *told &= SURE * error[i] <= VP_WORTH_IT;
        }
    }
    memcpy(t->contenders, left, (size_t)n_left * sizeof *left);
    memcpy(t->contenders + n_left, behind, (size_t)n_behind * sizeof *behind);
    *n = n_left;
out:
    return st;
}

static vp_status take_race(vp_tuner *t, int64_t n, double fastest_s, vp_err *err)
{
    char      before[32], after[32];
    vp_status st = VP_OK;

    for (int64_t i = 0; i < n; i++) {
        const vp_contender *c   = &t->contenders[i];
        vp_trial               *x   = &t->result->trials[c->trial_idx];
        vp_study_trial         *row = &t->rows[c->trial_idx];
        double                 *all = vp_arena_array(t->result->arena, row->n_steps + c->n_rounds, sizeof *all), seconds = fastest_s * exp(c->behind);
        VP_TRY_ALLOC(err, all);
        if (row->n_steps)
            memcpy(all, row->step_s, (size_t)row->n_steps * sizeof *all);
        memcpy(all + row->n_steps, c->step_s, (size_t)c->n_rounds * sizeof *all);
        vp_tuner_note(t, "trial %lld in the race: %s after %lld rounds, was %s alone", (long long)x->id, vp_time_text(seconds, after, sizeof after),
             (long long)c->n_rounds, vp_time_text(x->measured_s, before, sizeof before));
        if (c->n_calls) {
            row->calls   = c->calls;
            row->n_calls = c->n_calls;
        }
        row->step_s = all;
        row->n_steps += c->n_rounds;
        row->n_runs     = row->n_runs < VP_ENOUGH_RUNS ? VP_ENOUGH_RUNS : row->n_runs + 1;
        row->measured_s = x->measured_s = seconds;
        x->n_runs       = row->n_runs;
        VP_TRY(vp_study_finish(t->study, row, err));
    }
out:
    return st;
}

/* The contenders that fit side by side take turns, a step each: on a machine that others use too the only way to tell plans apart that differ by less
 * than its weather. Who is surely behind leaves, the rest go on with twice the rounds, until one is left, or the rounds tell them apart by what would
 * be worth it, or a limit. *done false: no race could be held, and why was said. */
static vp_status race(vp_tuner *t, int64_t n, bool *done, vp_err *err)
{
    int64_t   n_racing = n, n_rounds = 0, n_more = MIN_ROUNDS;
    double    fastest_s = 0, spent_s = 0, round_s;
    bool      told = false, ran;
    vp_status st = VP_OK;

    *done = false;
    for (int64_t i = 0; i < n; i++) {
        t->contenders[i].n_rounds = 0;
        t->contenders[i].n_calls  = 0;
        t->contenders[i].step_s   = vp_arena_array(t->result->arena, MAX_ROUNDS, sizeof(double));
        VP_TRY_ALLOC(err, t->contenders[i].step_s);
    }
    while (n_racing > 1 && !told && n_more > 0) {
        round_s = 0;
        for (int64_t i = 0; i < n_racing; i++)
            round_s += t->contenders[i].expected_s;
        if (*done && spent_s + (double)n_more * round_s > RACE_S)
            break;
        VP_TRY(run_rounds(t, n_racing, n_more, round_s, &ran, &spent_s, err));
        if (!ran)
            break;
        *done = true;
        VP_TRY(judge_rounds(t, &n_racing, &fastest_s, &told, err));
        n_rounds += n_more;
        n_more = vp_min_i64(n_rounds, MAX_ROUNDS - n_rounds);
    }
    if (*done)
        VP_TRY(take_race(t, n, fastest_s, err));
out:
    return st;
}

/* What is so near that one run each does not tell it apart: those that fit side by side in a race, else again, one after the other. *learnt false: all
 * of it was run before. */
vp_status vp_tuner_run_off(vp_tuner *t, bool *learnt, vp_err *err)
{
    int64_t   n_new = 0, n;
    bool      done  = false;
    vp_status st    = VP_OK;

    VP_TRY(choose_contenders(t, err));
    if ((n = n_together(t)) > 1)
        t->n_contenders = n;
    for (int64_t i = 0; i < t->n_contenders; i++)
        n_new += t->rows[t->contenders[i].trial_idx].n_runs < VP_ENOUGH_RUNS;
    *learnt = t->n_contenders > 1 && n_new > 0;
    if (!*learnt)
        goto out;
    if (n > 1)
        VP_TRY(race(t, n, &done, err));
    for (int64_t i = 0; !done && i < t->n_contenders; i++)
        if (t->rows[t->contenders[i].trial_idx].n_runs < VP_ENOUGH_RUNS)
            VP_TRY(vp_tuner_run_again(t, t->contenders[i].trial_idx, err));
out:
    return st;
}

/* ---- the end ---- */

static void take_if_faster(const vp_trial **best, const vp_trial *x)
{
    if (x->verdict == VP_VERDICT_OK && x->candidate.fits && (!*best || x->measured_s < (*best)->measured_s))
        *best = x;
}

/* Of the contenders, whose measurements belong together; the best preset too, where one is among them. */
void vp_tuner_choose_best(const vp_tuner *t)
{
    vp_tune_result *r = t->result;

    for (int64_t i = 0; i < t->n_contenders; i++) {
        const vp_trial *x = &r->trials[t->contenders[i].trial_idx];
        take_if_faster(&r->best, x);
        if (x->preset)
            take_if_faster(&r->best_preset, x);
    }
    bool none = r->best == NULL, no_preset = r->best_preset == NULL; /* each can have failed when it ran again */
    for (int64_t i = 0; i < r->n_trials; i++) {
        const vp_trial *x = &r->trials[i];
        if (none && vp_tuner_obeys_pins(t->request, &x->candidate.scenario))
            take_if_faster(&r->best, x);
        if (no_preset && x->preset)
            take_if_faster(&r->best_preset, x);
    }
}
