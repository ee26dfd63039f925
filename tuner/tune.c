/* The loop. */
#include "tuner/tune_internal.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/units.h"

#include <assert.h>
#include <math.h>

enum {
    MAX_NEAR = 3, /* plans run only because a race may show them faster      */
    MAX_WALK = 12 /* plans looked at below the budget for one not yet tested */
};

typedef struct tuner {
    vp_session  session;
    vp_planning planning;
    vp_trials   trials;
    vp_run_off  run_off;
    int64_t     n_near;        /* trials run only because a race may show them faster */
    int64_t     n_planned_for; /* trials that the answer knows; -1: not all their runs */
    const char *stopped_because;
    double      begun_s; /* the first trial of now; 0: there was none yet */
    int64_t     n_now;   /* trials of now */
} tuner;

/* ---- plans by what is known ---- */

static vp_status plan_first(tuner *t, const vp_plan_answer *space, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(vp_planning_first(&t->planning, &t->session, space, t->trials.rows, t->trials.n, err));
    vp_trials_fit(&t->trials, &t->planning);
out:
    return st;
}

static vp_status doubt_given(tuner *t, const vp_plan_answer *space, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(vp_planning_doubt(&t->planning, &t->session, space, t->trials.rows, t->trials.n, err));
    vp_trials_fit(&t->trials, &t->planning);
out:
    return st;
}

static vp_status replan(tuner *t, bool prove, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(vp_planning_again(&t->planning, &t->session, t->trials.rows, t->trials.n, prove, err));
    vp_trials_fit(&t->trials, &t->planning);
out:
    return st;
}

/* Presets that fit and did not run, and plans that may run beside them. */
static int64_t most_to_come(const tuner *t)
{
    int64_t n = vp_max_i64(0, t->session.opts->max_trials - t->trials.n_beside);

    for (int64_t p = 0; p < t->planning.n_presets; p++)
        n += t->planning.presets[p].candidate.fits &&
             !vp_trials_have(&t->trials, &t->planning.presets[p].candidate.scenario);
    return n;
}

/* How far it is: what is left is told as if every trial took as long as those of now did. */
static void note_progress(const tuner *t)
{
    double  spent_s = vp_now_s() - t->begun_s, best_s = INFINITY;
    int64_t n = most_to_come(t);
    char    spent[32], left[32], best[32];

    for (int64_t i = 0; i < t->trials.n; i++)
        if (t->trials.all[i].verdict == VP_VERDICT_OK && t->trials.all[i].measured_s < best_s)
            best_s = t->trials.all[i].measured_s;
    vp_time_text(spent_s / (double)t->n_now * (double)n, left, sizeof left);
    vp_session_note(&t->session, "  %lld of at most %lld trials, %s; %s%s%sa race to go; best %s",
                    (long long)t->trials.n, (long long)(t->trials.n + n),
                    vp_time_text(spent_s, spent, sizeof spent), n ? "at most " : "", n ? left : "",
                    n ? " and " : "",
                    best_s < INFINITY ? vp_time_text(best_s, best, sizeof best) : "none");
}

static vp_status run(tuner *t, const vp_candidate *c, const char *preset, vp_err *err)
{
    vp_status st = VP_OK;

    if (!t->n_now)
        t->begun_s = vp_now_s();
    VP_TRY(vp_trials_run(&t->trials, &t->session, &t->planning, c, preset, err));
    t->n_now++;
    note_progress(t);
out:
    return st;
}

/* The fastest plan not yet tested: of the answer's, else, since that names one plan a scenario,
 * the fastest that needs less memory than those tested. fits false: none. */
static vp_status next_candidate(const tuner *t, vp_candidate *out, vp_err *err)
{
    const vp_plan_answer *a            = &t->planning.answer;
    vp_plan_request       r            = t->planning.request;
    int64_t               budget_bytes = r.budget_bytes;
    double                step_s;
    vp_status             st = VP_OK;

    assert(t->planning.profile && budget_bytes > 0);
    *out      = (vp_candidate){0};
    r.profile = t->planning.profile;
    for (int64_t i = 0; i < a->n_candidates && !out->fits; i++)
        if (!vp_trials_have(&t->trials, &a->candidates[i].scenario) &&
            vp_obeys_pins(&r, &a->candidates[i].scenario))
            *out = a->candidates[i];
    for (int k = 0; k < MAX_WALK; k++) {
        vp_candidate c = {0};
        VP_TRY(vp_planner_at_budget(&r, a, budget_bytes, &step_s, &c, err));
        if (step_s < 0 || (out->fits && step_s >= out->figures.step_time_s))
            break;
        if (!vp_trials_have(&t->trials, &c.scenario)) {
            c.fits = true;
            *out   = c;
            break;
        }
        assert(c.figures.device_bytes > 0 &&
               c.figures.device_bytes <= budget_bytes); /* it goes down */
        budget_bytes = c.figures.device_bytes - 1;
    }
out:
    return st;
}

static vp_status run_presets(tuner *t, vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t p = 0; p < t->planning.n_presets; p++) {
        const vp_preset *preset = &t->planning.presets[p];
        int64_t          k      = vp_trials_find(&t->trials, &preset->candidate.scenario);
        if (k < t->trials.n)
            vp_trials_name_preset(&t->trials, &t->session, k, preset->name);
        else if (preset->candidate.fits)
            VP_TRY(run(t, &preset->candidate, preset->name, err));
    }
out:
    return st;
}

/* ---- the loop ---- */

/* The best plan that nobody ran, by the profile refined with all trials, and what it is
 * predicted to take over what is expected of the best that ran. *over_best INFINITY: there is
 * none. */
static vp_status next_untested(tuner *t, vp_candidate *c, double *over_best, vp_err *err)
{
    vp_expectation e;
    double         best_s = INFINITY;
    vp_status      st     = VP_OK;

    *over_best = INFINITY;
    if (t->n_planned_for != t->trials.n)
        VP_TRY(replan(t, false, err));
    t->n_planned_for = t->trials.n;
    VP_TRY(next_candidate(t, c, err));
    if (!c->fits)
        goto out;
    VP_TRY(vp_expect(&t->session, &t->planning, &t->trials, &e, err));
    for (int64_t i = 0; i < t->trials.n; i++)
        best_s = fmin(best_s, e.step_s[i]);
    *over_best = c->figures.step_time_s * exp(e.off) / best_s;
out:
    return st;
}

/* Run the best not yet tested, as long as it promises something. */
static vp_status improve(tuner *t, vp_err *err)
{
    vp_candidate c;
    double       over_best;
    vp_status    st = VP_OK;

    assert(t->session.opts->max_trials >= 0);
    for (t->n_planned_for = -1;;) {
        VP_TRY(next_untested(t, &c, &over_best, err));
        if (!c.fits) {
            t->stopped_because = "every plan that was found within the budget was run";
            break;
        }
        if (over_best > 1 - VP_WORTH_IT) {
            t->stopped_because =
                "no untested plan is predicted to beat the best measured one by 1 %";
            break;
        }
        if (t->trials.n_beside >= t->session.opts->max_trials) {
            t->stopped_because = "--max-trials plans were run beside the presets";
            break;
        }
        VP_TRY(run(t, &c, NULL, err));
    }
out:
    return st;
}

/* Also run candidates that the profile predicts to be slower than the best, but by less than its
 * error (VP_MODEL_OFF): which of them is faster only a race can tell. */
static vp_status run_near(tuner *t, vp_err *err)
{
    vp_candidate c;
    double       over_best;
    vp_status    st = VP_OK;

    for (; t->n_near < MAX_NEAR && t->trials.n_beside < t->session.opts->max_trials; t->n_near++) {
        VP_TRY(next_untested(t, &c, &over_best, err));
        if (over_best > 1 + VP_MODEL_OFF)
            break;
        VP_TRY(run(t, &c, NULL, err));
    }
out:
    return st;
}

static vp_status list_unfit_presets(tuner *t, vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t p = 0; p < t->planning.n_presets; p++)
        if (!vp_trials_have(&t->trials, &t->planning.presets[p].candidate.scenario))
            VP_TRY(vp_trials_add_unfit(&t->trials, &t->session, &t->planning.presets[p], err));
out:
    return st;
}

/* ---- the whole ---- */

/* From the space that was planned to the best of it. */
static vp_status tune(tuner *t, const vp_plan_answer *space, vp_tune_result *result, vp_err *err)
{
    bool      learnt;
    vp_status st = VP_OK;

    VP_TRY(vp_session_find_runner(&t->session, err));
    VP_TRY(vp_threads_choose(&t->session, &t->planning, space, result, err));
    if (result->threads != t->session.n_threads)
        VP_TRY(vp_session_find_runner(&t->session, err));
    VP_TRY(vp_session_find_request(&t->session, err));
    VP_TRY(vp_trials_restore(&t->trials, &t->session, err));
    VP_TRY(plan_first(t, space, err));
    assert(t->planning.base && t->planning.profile);
    if (t->planning.answer.n_candidates == 0) /* with what was measured outside the arena */
        goto out;
    if (t->trials.n == 0)
        VP_TRY(run(t, &t->planning.answer.candidates[0], NULL, err));
    VP_TRY(doubt_given(t, space, err));
    VP_TRY(run_presets(t, err));
    do { /* what a race taught can make another plan promising, or bring another near the best */
        VP_TRY(improve(t, err));
        VP_TRY(run_near(t, err));
        VP_TRY(vp_run_off_hold(&t->run_off, &t->session, &t->planning, &t->trials, &learnt, err));
    } while (learnt);
    assert(t->trials.n > 0 && t->stopped_because);
    VP_TRY(replan(t, true, err));
    VP_TRY(list_unfit_presets(t, err));
    result->trials   = t->trials.all;
    result->n_trials = t->trials.n;
    VP_TRY(vp_run_off_choose(&t->run_off, &t->session, result, err));
out:
    return st;
}

vp_status vp_tune(const vp_plan_request *request, const vp_tune_opts *opts, vp_tune_result *result,
                  vp_err *err)
{
    tuner           t     = {.stopped_because = "nothing fits the budget"};
    vp_plan_answer  space = {0};
    vp_plan_request first = *request;
    vp_status       st    = VP_OK;

    assert(request->model && request->device);
    *result = (vp_tune_result){.arena = vp_arena_new()};
    vp_planning_begin(&t.planning, request);
    t.session = (vp_session){.opts = opts, .request = &t.planning.request, .arena = result->arena};
    VP_TRY_ALLOC(err, result->arena);
    VP_TRY(vp_study_open(opts->study, &t.session.study, err));
    first.no_proof = true;
    VP_TRY(vp_planner_run(&first, &space, err));
    if (space.n_candidates == 0) {
        t.planning.answer = space;
        space             = (vp_plan_answer){0};
        goto out;
    }
    VP_TRY(tune(&t, &space, result, err));
out:
    result->trials          = t.trials.all;
    result->n_trials        = t.trials.n;
    result->stopped_because = t.stopped_because;
    vp_planning_end(&t.planning, result);
    vp_study_close(t.session.study);
    vp_plan_answer_release(&space);
    return st;
}

vp_status vp_tune_best_plan(const vp_plan_request *request, const vp_tune_result *result,
                            vp_plan **out, vp_err *err)
{
    const vp_plan_answer *a      = &result->answer;
    const vp_candidate   *c      = &result->best->candidate;
    vp_plan_request       r      = *request;
    vp_device             device = *request->device;

    assert(c->fits && result->best->verdict == VP_VERDICT_OK);
    if (result->profile)
        vp_device_calibrate(&device, result->profile);
    r.device  = &device;
    r.profile = result->profile;
    return vp_planner_make(&r, a,
                           a->n_candidates &&
                                   vp_same_scenario(&a->candidates[0].scenario, &c->scenario)
                               ? &a->candidates[0]
                               : c,
                           out, err);
}

void vp_tune_result_release(vp_tune_result *result)
{
    vp_profile_free(result->profile);
    vp_plan_answer_release(&result->answer);
    vp_arena_free(result->arena);
    *result = (vp_tune_result){0};
}
