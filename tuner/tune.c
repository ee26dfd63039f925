/* The loop. */
#include "tuner/tune_internal.h"

#include "core/sha256.h"
#include "core/text.h"
#include "core/units.h"
#include "tuner/correct.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_NEAR = 3,    /* plans run only because a race may show them faster      */
    MAX_WALK = 12    /* plans looked at below the budget for one not yet tested */
};
static const double FAR_OFF  = 0.2;      /* a given profile at this distance from a trial is not used */

void vp_tuner_note(const vp_tuner *t, const char *fmt, ...)
{
    char    text[600];
    va_list args;

    if (!t->opts->note)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    t->opts->note(text);
}

/* ---- planning with what is known ---- */

/* With what lies outside the arena as measured, plans that were run may be too large for the budget after all. */
static void calibrate(vp_tuner *t, const vp_profile *profile)
{
    vp_tune_result *result = t->result;
    int64_t         before_bytes = t->device.outside_bytes;
    char            x[32], y[32];

    if (!vp_device_calibrate(&t->device, profile))
        return;
    if (t->device.outside_bytes != before_bytes)
        vp_tuner_note(t, "outside the arena: %s measured, was %s", vp_size_text(t->device.outside_bytes, x, sizeof x), vp_size_text(before_bytes, y, sizeof y));
    for (int64_t i = 0; i < result->n_trials; i++) {
        vp_candidate *c         = &result->trials[i].candidate;
        c->figures.device_bytes = vp_device_bytes(&t->device, c->figures.peak_bytes);
        c->fits                 = c->figures.device_bytes <= t->request->budget_bytes;
    }
}

/* Plan with profile, which becomes the result's. */
static vp_status plan_with(vp_tuner *t, vp_profile *profile, bool prove, vp_err *err)
{
    calibrate(t, profile);
    vp_plan_request r = *t->request;

    vp_profile_free(t->result->profile);
    t->result->profile = profile;
    r.profile          = profile;
    r.no_proof         = !prove || t->request->no_proof;
    vp_plan_answer_release(&t->result->answer);
    return vp_planner_run(&r, &t->result->answer, err);
}

/* Plan with the base profile, and take the presets as they come out of it. */
static vp_status plan_with_base(vp_tuner *t, vp_err *err)
{
    vp_profile *copy = NULL;
    vp_arena   *arena = t->result->arena;
    vp_status   st = VP_OK;

    VP_TRY_ALLOC(err, copy = vp_profile_copy(t->base));
    VP_TRY(plan_with(t, copy, false, err));
    const vp_plan_answer *a = &t->result->answer;
    t->presets   = vp_arena_array(arena, a->n_presets, sizeof *t->presets);
    t->n_presets = a->n_presets;
    VP_TRY_ALLOC(err, t->presets);
    for (int64_t i = 0; i < a->n_presets; i++)
        t->presets[i] = (vp_preset){vp_arena_strdup(arena, a->presets[i].name), a->presets[i].candidate};
out:
    return st;
}

static vp_status replan(vp_tuner *t, bool prove, vp_err *err)
{
    vp_profile *corrected = NULL;
    vp_status   st = VP_OK;

    VP_TRY(vp_correct_profile(t->base, t->rows, t->result->n_trials, &corrected, err));
    t->profile_id   = 0;
    t->profile_kind = VP_PROFILE_CORRECTED;
    VP_TRY(plan_with(t, corrected, prove, err));
out:
    return st;
}

/* A given profile is believed until a trial contradicts it. */
static vp_status doubt_given(vp_tuner *t, const vp_plan_answer *space, vp_err *err)
{
    double    off = t->base_is_given ? vp_profile_distance(t->base, t->rows, t->result->n_trials) : 0;
    vp_status st  = VP_OK;

    if (off <= FAR_OFF)
        return VP_OK;
    vp_tuner_note(t, "the given profile is off by a factor of %.2f in what was run: measuring here", exp(off));
    t->base_is_given = false;
    VP_TRY(vp_tuner_measure_base(t, space, err));
    VP_TRY(plan_with_base(t, err));
out:
    return st;
}

/* The fastest plan not yet tested: of the answer's, else, since that names one plan a scenario, the fastest that needs less
 * memory than those tested. fits false: none. */
static vp_status next_candidate(vp_tuner *t, vp_candidate *out, vp_err *err)
{
    const vp_plan_answer *a = &t->result->answer;
    vp_plan_request       r = *t->request;
    int64_t               budget_bytes = t->request->budget_bytes;
    double                step_s;
    vp_status             st = VP_OK;

    *out      = (vp_candidate){0};
    r.profile = t->result->profile;
    for (int64_t i = 0; i < a->n_candidates && !out->fits; i++)
        if (!vp_tuner_tested(t, &a->candidates[i].scenario) && vp_tuner_obeys_pins(t->request, &a->candidates[i].scenario))
            *out = a->candidates[i];
    for (int k = 0; k < MAX_WALK; k++) {
        vp_candidate c = {0};
        VP_TRY(vp_planner_at_budget(&r, a, budget_bytes, &step_s, &c, err));
        if (step_s < 0 || (out->fits && step_s >= out->figures.step_time_s))
            break;
        if (!vp_tuner_tested(t, &c.scenario)) {
            c.fits = true;
            *out   = c;
            break;
        }
        budget_bytes = c.figures.device_bytes - 1;
    }
out:
    return st;
}

static vp_status run_presets(vp_tuner *t, vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t p = 0; p < t->n_presets; p++) {
        const vp_candidate *c = &t->presets[p].candidate;
        int64_t             k = vp_tuner_find_trial(t->result, &c->scenario);
        if (k < t->result->n_trials) {
            t->n_beside -= t->result->trials[k].preset == NULL && t->rows[k].request_id == t->request_id;
            t->result->trials[k].preset = t->presets[p].name;
        } else if (c->fits) {
            VP_TRY(vp_tuner_run_trial(t, c, t->presets[p].name, err));
        }
    }
out:
    return st;
}

/* ---- the loop ---- */

/* The best plan that nobody ran, by the profile refined with all trials, and what it is predicted to take over what is expected of the best that
 * ran. *over_best INFINITY: there is none. */
static vp_status next_untested(vp_tuner *t, vp_candidate *c, double *over_best, vp_err *err)
{
    vp_expectation e;
    double      best_s = INFINITY;
    vp_status   st = VP_OK;

    *over_best = INFINITY;
    if (t->n_planned_for != t->result->n_trials)
        VP_TRY(replan(t, false, err));
    t->n_planned_for = t->result->n_trials;
    VP_TRY(next_candidate(t, c, err));
    if (!c->fits)
        goto out;
    VP_TRY(vp_tuner_expect(t, &e, err));
    for (int64_t i = 0; i < t->result->n_trials; i++)
        best_s = fmin(best_s, e.step_s[i]);
    *over_best = c->figures.step_time_s * exp(e.off) / best_s;
out:
    return st;
}

/* Run the best not yet tested, as long as it promises something. */
static vp_status improve(vp_tuner *t, vp_err *err)
{
    vp_candidate c;
    double       over_best;
    vp_status    st = VP_OK;

    for (t->n_planned_for = -1;;) {
        VP_TRY(next_untested(t, &c, &over_best, err));
        if (!c.fits) {
            t->result->stopped_because = "every plan that was found within the budget was run";
            break;
        }
        if (over_best > 1 - VP_WORTH_IT) {
            t->result->stopped_because = "no untested plan is predicted to beat the best measured one by 1 %";
            break;
        }
        if (t->n_beside >= t->opts->max_trials) {
            t->result->stopped_because = "--max-trials plans were run beside the presets";
            break;
        }
        VP_TRY(vp_tuner_run_trial(t, &c, NULL, err));
    }
out:
    return st;
}

/* Run what promises nothing, but lies so near that the profile cannot tell: a race can. */
static vp_status run_near(vp_tuner *t, vp_err *err)
{
    vp_candidate c;
    double       over_best;
    vp_status    st = VP_OK;

    for (; t->n_near < MAX_NEAR && t->n_beside < t->opts->max_trials; t->n_near++) {
        VP_TRY(next_untested(t, &c, &over_best, err));
        if (over_best > 1 + VP_MODEL_OFF)
            break;
        VP_TRY(vp_tuner_run_trial(t, &c, NULL, err));
    }
out:
    return st;
}

static vp_status list_unfit_presets(vp_tuner *t, vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t p = 0; p < t->n_presets; p++)
        if (!vp_tuner_tested(t, &t->presets[p].candidate.scenario))
            VP_TRY(vp_tuner_add_trial(t, &(vp_trial){.preset = t->presets[p].name, .candidate = t->presets[p].candidate, .verdict = VP_VERDICT_DOES_NOT_FIT,
                                            .evidence = ""}, &(vp_study_trial){0}, err));
out:
    return st;
}

/* ---- the whole ---- */

static vp_status open_request(vp_tuner *t, vp_err *err)
{
    char     *config = json_dumps(t->request->model->config, JSON_COMPACT | JSON_SORT_KEYS);
    json_t   *recipe_json = vp_recipe_to_json(&t->request->recipe);
    char     *recipe = recipe_json ? json_dumps(recipe_json, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    char      hash[65];
    vp_status st = VP_OK;

    VP_TRY_ALLOC(err, config && recipe);
    vp_sha256 h = vp_sha256_begin();
    vp_sha256_add(&h, config, strlen(config));
    vp_sha256_hex(&h, hash);
    vp_study_request r = {.model = t->request->model->name, .model_sha256 = hash, .recipe = recipe, .seq = t->request->seq,
                          .global_batch = t->request->global_batch, .budget_bytes = t->request->budget_bytes,
                          .device = t->request->device->name, .backend = t->backend, .build = t->build};
    VP_TRY(vp_study_request_id(t->study, &r, &t->request_id, err));
out:
    free(config);
    free(recipe);
    json_decref(recipe_json);
    return st;
}

vp_status vp_tune(const vp_plan_request *request, const vp_tune_opts *opts, vp_tune_result *result, vp_err *err)
{
    vp_tuner        t     = {.opts = opts, .result = result, .base_is_given = request->profile != NULL};
    vp_plan_answer  space = {0};
    vp_plan_request first = *request;
    bool            learnt;
    vp_status       st    = VP_OK;

    t.asked        = *request;
    t.device       = *request->device;
    t.asked.device = &t.device;
    t.request      = &t.asked;
    *result = (vp_tune_result){.arena = vp_arena_new(), .stopped_because = "nothing fits the budget"};
    VP_TRY_ALLOC(err, result->arena);
    VP_TRY(vp_study_open(opts->study, &t.study, err));
    first.no_proof = true;
    VP_TRY(vp_planner_run(&first, &space, err));
    if (space.n_candidates == 0) {
        result->answer = space;
        space          = (vp_plan_answer){0};
        goto out;
    }
    VP_TRY(vp_tuner_find_runner(&t, err));
    VP_TRY(open_request(&t, err));
    VP_TRY(vp_tuner_restore(&t, err));
    t.profile_kind = VP_PROFILE_GIVEN;
    if (request->profile) {
        VP_TRY_ALLOC(err, t.base = vp_profile_copy(request->profile));
        if (strcmp(t.base->backend, t.backend) != 0)
            t.base->outside = (vp_outside){0}; /* of another driver or library: what is measured here counts */
        for (int64_t i = 0; i < result->n_trials; i++)
            vp_outside_take(&t.base->outside, &t.rows[i].outside);
    } else {
        VP_TRY(vp_tuner_measure_base(&t, &space, err));
    }
    VP_TRY(plan_with_base(&t, err));
    if (result->answer.n_candidates == 0) /* with what was measured outside the arena */
        goto out;
    if (result->n_trials == 0)
        VP_TRY(vp_tuner_run_trial(&t, &result->answer.candidates[0], NULL, err));
    VP_TRY(doubt_given(&t, &space, err));
    VP_TRY(run_presets(&t, err));
    do { /* what a race taught can make another plan promising, or bring another near the best */
        VP_TRY(improve(&t, err));
        VP_TRY(run_near(&t, err));
        VP_TRY(vp_tuner_run_off(&t, &learnt, err));
    } while (learnt);
    VP_TRY(replan(&t, true, err));
    VP_TRY(list_unfit_presets(&t, err));
    vp_tuner_choose_best(&t);
out:
    vp_study_close(t.study);
    vp_profile_free(t.base);
    vp_plan_answer_release(&space);
    return st;
}

vp_status vp_tune_best_plan(const vp_plan_request *request, const vp_tune_result *result, vp_plan **out, vp_err *err)
{
    const vp_plan_answer *a = &result->answer;
    const vp_candidate   *c = &result->best->candidate;
    vp_plan_request       r = *request;
    vp_device             device = *request->device;

    if (result->profile)
        vp_device_calibrate(&device, result->profile);
    r.device  = &device;
    r.profile = result->profile;
    return vp_planner_make(&r, a, a->n_candidates && vp_same_scenario(&a->candidates[0].scenario, &c->scenario) ? &a->candidates[0] : c, out, err);
}

void vp_tune_result_release(vp_tune_result *result)
{
    vp_profile_free(result->profile);
    vp_plan_answer_release(&result->answer);
    vp_arena_free(result->arena);
    *result = (vp_tune_result){0};
}
