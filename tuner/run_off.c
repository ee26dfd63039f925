/* What is so near that one run each does not tell it apart. */
#include "tuner/tune_internal.h"

#include "base/checked.h"
#include "base/stats.h"
#include "base/units.h"
#include "tuner/race.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* of a race, and then as many as there were, up to */
    MIN_ROUNDS = 12,
    MAX_ROUNDS = 96,
    MAX_RACES  = 5 /* that are held again because somebody was not in the last one */
};
/* of a race; no rounds begin that would end later */
static const double RACE_S = 180;
/* standard errors behind the fastest: out of the race */
static const double SURE = 2;
/* at most, of what is free, by plans that race */
static const double MEMORY_USED = 0.8;
/* what is expected within this of the best is a contender */
static const double NEAR_BEST = 0.1;

/* ---- what is expected ---- */

/* What the profile of now says of a plan that ran. */
static vp_status predicted_now(const vp_planning *planning, const vp_scenario *s, double *step_s,
                               vp_err *err)
{
    vp_cost    cost = {.device = &planning->device, .profile = planning->profile};
    vp_figures figures;
    vp_status  st = VP_OK;

    VP_TRY(vp_assemble_figures(planning->request.model, s, &cost, &figures, err));
    *step_s = figures.step_time_s;
out:
    return st;
}

/* What was measured and what the profile says are each right with their own weight: the profile
 * is off by VP_MODEL_OFF, a measurement by as much as measurements scatter about the profile. On
 * a quiet machine what was measured counts, on a busy one what is predicted. */
vp_status vp_expect(const vp_session *s, const vp_planning *planning, const vp_trials *trials,
                    vp_expectation *e, vp_err *err)
{
    int64_t   n = trials->n, n_off = 0;
    double   *predicted = vp_arena_array(s->arena, n, sizeof *predicted);
    double   *off       = vp_arena_array(s->arena, n, sizeof *off);
    vp_status st        = VP_OK;

    assert(planning->profile); /* made before anything is expected of it */
    e->step_s = vp_arena_array(s->arena, n, sizeof *e->step_s);
    VP_TRY_ALLOC(err, predicted && off && e->step_s);
    for (int64_t i = 0; i < n; i++) {
        const vp_trial *x = &trials->all[i];
        e->step_s[i]      = INFINITY;
        if (x->verdict != VP_VERDICT_OK)
            continue;
        VP_TRY(predicted_now(planning, &x->candidate.scenario, &predicted[i], err));
        off[n_off++] = log(x->measured_s / predicted[i]);
    }
    e->off = vp_median(off, n_off);
    for (int64_t i = 0; i < n_off; i++)
        off[i] = fabs(off[i] - e->off);
    double scatter = 1.4826 * vp_median(off, n_off); /* the standard deviation, were it normal */
    double weight = VP_MODEL_OFF * VP_MODEL_OFF / (VP_MODEL_OFF * VP_MODEL_OFF + scatter * scatter);
    for (int64_t i = 0; i < n; i++) {
        const vp_trial *x = &trials->all[i];
        if (x->verdict == VP_VERDICT_OK && x->candidate.fits &&
            vp_obeys_pins(s->request, &x->candidate.scenario))
            e->step_s[i] =
                exp(weight * log(x->measured_s) + (1 - weight) * (log(predicted[i]) + e->off));
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

/* The plans that race: those expected within NEAR_BEST of the best, and two at least, since a single
 * trial may look fast only because the machine happened to be quiet. */
static vp_status choose_contenders(vp_run_off *o, const vp_session *s, const vp_planning *planning,
                                   const vp_trials *trials, vp_err *err)
{
    int64_t        n   = trials->n;
    vp_contender  *all = vp_arena_array(s->arena, n, sizeof *all);
    vp_expectation e;
    vp_status      st = VP_OK;

    VP_TRY_ALLOC(err, all);
    VP_TRY(vp_expect(s, planning, trials, &e, err));
    o->n_contenders = 0;
    for (int64_t i = 0; i < n; i++)
        all[i] = (vp_contender){.trial_idx = i, .expected_s = e.step_s[i]};
    qsort(all, (size_t)n, sizeof *all, by_expected);
    for (int64_t i = 0; i < n && i < VP_MAX_CONTENDERS && isfinite(all[i].expected_s) &&
                        (i < 2 || all[i].expected_s <= (1 + NEAR_BEST) * all[0].expected_s);
         i++)
        o->contenders[o->n_contenders++] = all[i];
out:
    return st;
}

/* How many of the contenders, the first ones, fit side by side. */
static int64_t n_together(const vp_run_off *o, const vp_session *s, const vp_trials *trials)
{
    double  left_bytes = MEMORY_USED * (double)s->free_bytes;
    int64_t n          = 0;

    while (n < o->n_contenders &&
           (left_bytes -=
            (double)trials->all[o->contenders[n].trial_idx].candidate.figures.device_bytes) >= 0)
        n++;
    return n;
}

/* What `vplan-run --compare` printed of the first n contenders, behind the rounds they have. */
static vp_status read_rounds(vp_run_off *o, const vp_session *s, const vp_trials *trials, int64_t n,
                             const char *text, size_t n_bytes, int64_t n_more, vp_err *err)
{
    vp_json_doc *doc = NULL;
    vp_json_node plans, plan, steps;
    int64_t      n_here, executed_bytes;
    vp_status    st = VP_OK;

    assert(n > 0 && n <= o->n_contenders && n_more > 0);
    assert(o->contenders[0].n_rounds + n_more <= MAX_ROUNDS); /* the room of step_s */
    VP_TRY(vp_json_parse("vplan-run --compare", text, (int64_t)n_bytes, &doc, err));
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_json_array(&root, "plans", &plans, &n_here, err));
    if (n_here != n)
        VP_TRY(vp_json_fail(&root, "plans", err, "has %lld plans", (long long)n_here));
    for (int64_t i = 0; i < n; i++) {
        vp_contender *x = &o->contenders[i];
        assert(x->step_s && x->n_rounds == o->contenders[0].n_rounds);
        VP_TRY(vp_json_element(&plans, i, &plan, err));
        VP_TRY(vp_json_int(&plan, "executed_bytes", 0, INT64_MAX, &executed_bytes, err));
        if (executed_bytes != trials->all[x->trial_idx].candidate.figures.peak_bytes)
            VP_TRY(vp_json_fail(&plan, "executed_bytes", err, "is not what was planned"));
        VP_TRY(vp_json_array(&plan, "step_s", &steps, &n_here, err));
        if (n_here != n_more)
            VP_TRY(vp_json_fail(&plan, "step_s", err, "has %lld steps", (long long)n_here));
        for (int64_t r = 0; r < n_more; r++) {
            vp_json_node step;
            VP_TRY(vp_json_element(&steps, r, &step, err));
            VP_TRY(vp_json_as_real(&step, 1e-9, 1e9, &x->step_s[x->n_rounds + r], err));
        }
        VP_TRY(vp_read_calls(s->arena, &plan, &x->calls, &x->n_calls, err));
    }
    for (int64_t i = 0; i < n; i++)
        o->contenders[i].n_rounds += n_more;
out:
    vp_json_doc_free(doc);
    return st;
}

/* n_more rounds of the first n contenders, all alive in one process, a step of each in turns.
 * *done false: that failed, and why was said. */
static vp_status run_rounds(vp_run_off *o, vp_session *s, const vp_planning *planning,
                            const vp_trials *trials, int64_t n, int64_t n_more, double round_s,
                            bool *done, double *spent_s, vp_err *err)
{
    json_t         *plans = json_array(), *plan;
    vp_text         text  = {0};
    vp_child_result child = {0};
    vp_err          why   = {0};
    char            steps[24], time[32], best[32];
    vp_status       st = VP_OK;

    *done = false;
    VP_TRY_ALLOC(err, plans);
    for (int64_t i = 0; i < n; i++) {
        VP_TRY(vp_planning_json(planning, &trials->all[o->contenders[i].trial_idx].candidate, &plan,
                                err));
        VP_TRY_ALLOC(err, json_array_append_new(plans, plan) == 0);
    }
    VP_TRY_ALLOC(err, vp_json_dump(plans, &text));
    vp_session_note(s, "a race of %lld plans: %lld steps of each, in turns", (long long)n,
                    (long long)n_more);
    vp_session_doing(s, "racing %lld plans, about %s, best %s", (long long)n,
                     vp_time_text((double)n_more * round_s, time, sizeof time),
                     vp_time_text(o->contenders[0].expected_s, best, sizeof best));
    snprintf(steps, sizeof steps, "%lld", (long long)n_more);
    char *argv[] = {
        (char *)(uintptr_t)s->runner, "--compare", "-", "--steps", steps, "--json", NULL};
    VP_TRY(vp_session_run(s, argv, &text, 120 + 20 * (double)n_more * round_s, &child, err));
    *spent_s += child.seconds;
    if (child.end == VP_CHILD_INTERRUPTED)
        VP_TRY(VP_FAIL(err, VP_ERR_NO_TRIAL, "interrupted"));
    if (child.end != VP_CHILD_EXITED || child.exit_code != 0)
        vp_session_note(s, "no race: %.400s",
                        child.n_err ? child.err : "it ended without an answer");
    else if (read_rounds(o, s, trials, n, child.out, child.n_out, n_more, &why) != VP_OK)
        vp_session_note(s, "no race: %s", why.message);
    else
        *done = true;
out:
    vp_child_result_release(&child);
    vp_text_release(&text);
    json_decref(plans);
    return st;
}

/* Judge the first *n contenders by all their rounds. Who is surely behind the fastest goes
 * behind those who are left, *n of them. *fastest_s is the fastest's seconds; *told whether the
 * rounds tell those who are left apart by what would be worth it. */
static vp_status judge_rounds(vp_run_off *o, int64_t *n, double *fastest_s, bool *told, vp_err *err)
{
    const double *step_s[VP_MAX_CONTENDERS];
    double        seconds[VP_MAX_CONTENDERS], error[VP_MAX_CONTENDERS], scatter[VP_MAX_CONTENDERS];
    vp_contender  left[VP_MAX_CONTENDERS], behind[VP_MAX_CONTENDERS];
    int64_t       n_left = 0, n_behind = 0;
    vp_status     st = VP_OK;

    assert(*n > 1 && *n <= VP_MAX_CONTENDERS && o->contenders[0].n_rounds >= MIN_ROUNDS);
    for (int64_t i = 0; i < *n; i++)
        step_s[i] = o->contenders[i].step_s;
    VP_TRY(vp_race_estimate(step_s, *n, o->contenders[0].n_rounds, seconds, error, scatter, err));
    *told      = true;
    *fastest_s = INFINITY;
    for (int64_t i = 0; i < *n; i++)
        *fastest_s = fmin(*fastest_s, seconds[i]);
    for (int64_t i = 0; i < *n; i++) {
        vp_contender *x = &o->contenders[i];
        x->behind       = log(seconds[i] / *fastest_s);
        x->scatter      = scatter[i];
        if (x->behind > SURE * error[i]) {
            behind[n_behind++] = *x;
        } else {
            left[n_left++] = *x;
            *told &= SURE * error[i] <= VP_WORTH_IT;
        }
    }
    assert(n_left > 0 && n_left + n_behind == *n); /* the fastest is behind nobody */
    memcpy(o->contenders, left, (size_t)n_left * sizeof *left);
    memcpy(o->contenders + n_left, behind, (size_t)n_behind * sizeof *behind);
    *n = n_left;
out:
    return st;
}

static bool in_last_race(const vp_run_off *o, int64_t trial_idx)
{
    for (int64_t i = 0; i < o->n_last_race; i++)
        if (o->last_race[i] == trial_idx)
            return true;
    return false;
}

/* How much slower the machine is in this race than in those before, by who was in both; 1: nobody
 * was. */
static double slower_now(const vp_run_off *o, const vp_trials *trials, int64_t n, double fastest_s)
{
    double  sum    = 0;
    int64_t n_both = 0;

    for (int64_t i = 0; i < n; i++) {
        double before_s = trials->all[o->contenders[i].trial_idx].raced.seconds;
        if (before_s > 0) {
            sum += log(fastest_s / before_s) + o->contenders[i].behind;
            n_both++;
        }
    }
    return n_both ? exp(sum / (double)n_both) : 1;
}

/* What the race said of the first n contenders. Who was in earlier races only is compared with
 * them by way of those that were in both. */
static vp_status take_race(vp_run_off *o, const vp_session *s, vp_trials *trials, int64_t n,
                           double fastest_s, vp_err *err)
{
    double    over = slower_now(o, trials, n, fastest_s);
    vp_status st   = VP_OK;

    assert(isfinite(fastest_s) && fastest_s > 0);
    o->n_last_race = 0;
    o->n_races++;
    for (int64_t i = 0; i < n; i++) {
        const vp_contender *c          = &o->contenders[i];
        o->last_race[o->n_last_race++] = c->trial_idx;
        VP_TRY(
            vp_trials_take_race(trials, s, c->trial_idx,
                                &(vp_race_result){.step_s   = c->step_s,
                                                  .n_rounds = c->n_rounds,
                                                  .step  = {fastest_s * exp(c->behind), c->scatter},
                                                  .calls = c->calls,
                                                  .n_calls = c->n_calls},
                                err));
    }
    for (int64_t i = 0; over != 1 && i < trials->n; i++)
        if (trials->all[i].raced.seconds > 0 && !in_last_race(o, i))
            VP_TRY(vp_trials_carry_over(trials, s, i, over, err));
out:
    return st;
}

/* The contenders that fit side by side take turns, a step each: on a machine that others use too
 * the only way to tell plans apart that differ by less than its weather. Who is surely behind
 * leaves, the rest go on with twice the rounds, until one is left, or the rounds tell them apart
 * by what would be worth it, or a limit. *done false: no race could be held, and why was said. */
static vp_status race(vp_run_off *o, vp_session *s, const vp_planning *planning, vp_trials *trials,
                      int64_t n, bool *done, vp_err *err)
{
    int64_t   n_racing = n, n_rounds = 0, n_more = MIN_ROUNDS;
    double    fastest_s = 0, spent_s = 0, round_s;
    bool      told = false, ran;
    vp_status st   = VP_OK;

    assert(n > 1 && n <= o->n_contenders);
    *done = false;
    for (int64_t i = 0; i < n; i++) {
        o->contenders[i].n_rounds = 0;
        o->contenders[i].n_calls  = 0;
        o->contenders[i].step_s   = vp_arena_array(s->arena, MAX_ROUNDS, sizeof(double));
        VP_TRY_ALLOC(err, o->contenders[i].step_s);
    }
    while (n_racing > 1 && !told && n_more > 0) {
        round_s = 0;
        for (int64_t i = 0; i < n_racing; i++)
            round_s += o->contenders[i].expected_s;
        if (*done && spent_s + (double)n_more * round_s > RACE_S)
            break;
        VP_TRY(run_rounds(o, s, planning, trials, n_racing, n_more, round_s, &ran, &spent_s, err));
        if (!ran)
            break;
        *done = true;
        VP_TRY(judge_rounds(o, &n_racing, &fastest_s, &told, err));
        n_rounds += n_more;
        n_more = vp_min_i64(n_rounds, MAX_ROUNDS - n_rounds);
        assert(n_racing > 0 && n_more >= 0);
    }
    if (*done)
        VP_TRY(take_race(o, s, trials, n, fastest_s, err));
out:
    return st;
}

/* Whether there is somebody who never raced, or, as long as there were few races now, somebody who
 * was not in the last one: the winner is to have raced all who may be as fast. */
static bool race_is_due(const vp_run_off *o, const vp_trials *trials)
{
    bool due = false;

    for (int64_t i = 0; i < o->n_contenders; i++)
        due |= trials->rows[o->contenders[i].trial_idx].n_runs < VP_ENOUGH_RUNS ||
               (o->n_races > 0 && o->n_races < MAX_RACES &&
                !in_last_race(o, o->contenders[i].trial_idx));
    return o->n_contenders > 1 && due;
}

/* Those that fit side by side race; else each runs again, one after the other. */
vp_status vp_run_off_hold(vp_run_off *o, vp_session *s, vp_planning *planning, vp_trials *trials,
                          bool *learnt, vp_err *err)
{
    int64_t   n;
    bool      done = false;
    vp_status st   = VP_OK;

    VP_TRY(choose_contenders(o, s, planning, trials, err));
    if ((n = n_together(o, s, trials)) > 1)
        o->n_contenders = n;
    *learnt = race_is_due(o, trials);
    if (!*learnt)
        goto out;
    if (n > 1)
        VP_TRY(race(o, s, planning, trials, n, &done, err));
    for (int64_t i = 0; !done && i < o->n_contenders; i++)
        if (trials->rows[o->contenders[i].trial_idx].n_runs < VP_ENOUGH_RUNS)
            VP_TRY(vp_trials_run_again(trials, s, planning, o->contenders[i].trial_idx, err));
out:
    return st;
}

/* ---- the end ---- */

static void take_if_faster(const vp_trial **best, const vp_trial *x)
{
    if (x->verdict == VP_VERDICT_OK && x->candidate.fits &&
        (!*best || x->measured_s < (*best)->measured_s))
        *best = x;
}

/* Of the trials that are taken, the best, and the best preset, where those before had none. */
static void choose_among(const vp_session *s, const bool *taken, vp_tune_result *r)
{
    bool none = r->best == NULL, no_preset = r->best_preset == NULL;

    for (int64_t i = 0; i < r->n_trials; i++) {
        const vp_trial *x = &r->trials[i];
        if (taken[i] && none && vp_obeys_pins(s->request, &x->candidate.scenario))
            take_if_faster(&r->best, x);
        if (taken[i] && no_preset && x->preset)
            take_if_faster(&r->best_preset, x);
    }
}

/* Of those that raced, whose times have one scale, in whatever race each was last; else of the contenders, which ran
 * again; else of all, since each of these can have failed then. */
vp_status vp_run_off_choose(const vp_run_off *o, const vp_session *s, vp_tune_result *r,
                            vp_err *err)
{
    bool     *taken = vp_arena_array(s->arena, r->n_trials + 1, sizeof *taken);
    vp_status st    = VP_OK;

    assert(!r->best && !r->best_preset);
    VP_TRY_ALLOC(err, taken);
    for (int64_t i = 0; i < r->n_trials; i++)
        taken[i] = r->trials[i].raced.seconds > 0;
    choose_among(s, taken, r);
    memset(taken, 0, (size_t)r->n_trials * sizeof *taken);
    for (int64_t i = 0; i < o->n_contenders; i++)
        taken[o->contenders[i].trial_idx] = true;
    choose_among(s, taken, r);
    for (int64_t i = 0; i < r->n_trials; i++)
        taken[i] = true;
    choose_among(s, taken, r);
out:
    return st;
}
