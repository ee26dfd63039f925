/* The profile, and the plans made with it. */
#include "tuner/tune_internal.h"

#include "base/units.h"
#include "tuner/correct.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* a given profile at this distance from a trial is not used */
static const double FAR_OFF = 0.2;

void vp_planning_begin(vp_planning *p, const vp_plan_request *asked)
{
    assert(asked->device && asked->model);
    *p                = (vp_planning){.request = *asked, .device = *asked->device};
    p->request.device = &p->device;
    p->base_is_given  = asked->profile != NULL;
    p->profile_kind   = VP_PROFILE_GIVEN;
}

static void calibrate(vp_planning *p, const vp_session *s, const vp_profile *profile)
{
    int64_t before_bytes = p->device.outside_bytes;
    char    x[32], y[32];

    if (vp_device_calibrate(&p->device, profile) && p->device.outside_bytes != before_bytes)
        vp_session_note(s, "outside the arena: %s measured, was %s",
                        vp_size_text(p->device.outside_bytes, x, sizeof x),
                        vp_size_text(before_bytes, y, sizeof y));
}

/* candidates slower than the best by a greater share are of no use to a tuner */
static const double LISTED_WITHIN = 1.0 / 16;

/* Plan with profile, which becomes p's. */
static vp_status plan_with(vp_planning *p, const vp_session *s, vp_profile *profile, bool prove,
                           vp_err *err)
{
    assert(profile && profile != p->profile && profile != p->base);
    assert(p->request.device == &p->device); /* it was not moved */
    calibrate(p, s, profile);
    vp_plan_request r = p->request;

    vp_profile_free(p->profile);
    p->profile = profile;
    r.profile  = profile;
    r.listed   = LISTED_WITHIN;
    r.no_proof = !prove || p->request.no_proof;
    vp_plan_answer_release(&p->answer);
    return vp_planner_run(&r, &p->answer, err);
}

/* Plan with the base, and take the presets as they come out of it. */
static vp_status plan_with_base(vp_planning *p, const vp_session *s, vp_err *err)
{
    vp_profile *copy = NULL;
    vp_status   st   = VP_OK;

    assert(p->base);
    VP_TRY_ALLOC(err, copy = vp_profile_copy(p->base));
    VP_TRY(plan_with(p, s, copy, false, err));
    const vp_plan_answer *a = &p->answer;
    p->presets              = vp_arena_array(s->arena, a->n_presets, sizeof *p->presets);
    p->n_presets            = a->n_presets;
    VP_TRY_ALLOC(err, p->presets);
    for (int64_t i = 0; i < a->n_presets; i++)
        p->presets[i] =
            (vp_preset){vp_arena_strdup(s->arena, a->presets[i].name), a->presets[i].candidate};
out:
    return st;
}

static vp_status measure_base(vp_planning *p, vp_session *s, const vp_plan_answer *space,
                              vp_err *err)
{
    vp_profile *measured;
    vp_status   st = VP_OK;

    VP_TRY(vp_measure_calls(s, space, &measured, &p->profile_id, err));
    p->profile_kind = VP_PROFILE_CORRECTED;
    vp_profile_free(p->base);
    p->base = measured;
out:
    return st;
}

vp_status vp_planning_first(vp_planning *p, vp_session *s, const vp_plan_answer *space,
                            const vp_study_trial *rows, int64_t n_rows, vp_err *err)
{
    vp_status st = VP_OK;

    assert(!p->base && p->base_is_given == (p->request.profile != NULL));
    if (p->base_is_given) {
        VP_TRY_ALLOC(err, p->base = vp_profile_copy(p->request.profile));
        if (strcmp(p->base->backend, s->backend) != 0)
            /* of another driver or library: what is measured here counts */
            p->base->outside = (vp_overhead){0};
        for (int64_t i = 0; i < n_rows; i++)
            vp_overhead_take(&p->base->outside, &rows[i].outside);
    } else {
        VP_TRY(measure_base(p, s, space, err));
    }
    VP_TRY(plan_with_base(p, s, err));
out:
    return st;
}

vp_status vp_planning_doubt(vp_planning *p, vp_session *s, const vp_plan_answer *space,
                            const vp_study_trial *rows, int64_t n_rows, vp_err *err)
{
    double    off = p->base_is_given ? vp_profile_distance(p->base, rows, n_rows) : 0;
    vp_status st  = VP_OK;

    assert(p->base);
    if (off <= FAR_OFF)
        return VP_OK;
    vp_session_note(s,
                    "the given profile is off by a factor of %.2f in what was run: measuring here",
                    exp(off));
    p->base_is_given = false;
    VP_TRY(measure_base(p, s, space, err));
    VP_TRY(plan_with_base(p, s, err));
out:
    return st;
}

vp_status vp_planning_again(vp_planning *p, const vp_session *s, const vp_study_trial *rows,
                            int64_t n_rows, bool prove, vp_err *err)
{
    vp_profile *corrected = NULL;
    vp_status   st        = VP_OK;

    assert(p->base && n_rows >= 0);
    VP_TRY(vp_correct_profile(p->base, rows, n_rows, &corrected, err));
    p->profile_id   = 0;
    p->profile_kind = VP_PROFILE_CORRECTED;
    VP_TRY(plan_with(p, s, corrected, prove, err));
out:
    return st;
}

vp_status vp_planning_keep_profile(vp_planning *p, const vp_session *s, int64_t *id, vp_err *err)
{
    vp_status st = VP_OK;

    assert(p->profile && p->profile_kind < VP_N_PROFILE_KINDS);
    if (!p->profile_id)
        VP_TRY(vp_study_add_profile(s->study, p->profile_kind, p->profile, s->build, &p->profile_id,
                                    err));
    assert(p->profile_id > 0);
    *id = p->profile_id;
out:
    return st;
}

void vp_planning_take_outside(vp_planning *p, const vp_overhead *outside)
{
    assert(p->base && outside->measured_by != VP_OVERHEAD_NOT_MEASURED);
    vp_overhead_take(&p->base->outside, outside);
}

vp_status vp_planning_json(const vp_planning *p, const vp_candidate *candidate, json_t **out,
                           vp_err *err)
{
    vp_plan_request planned = p->request;
    vp_plan        *plan    = NULL;
    vp_status       st      = VP_OK;

    assert(p->profile && p->request.device == &p->device);
    *out            = NULL;
    planned.profile = p->profile;
    VP_TRY(vp_planner_make(&planned, &p->answer, candidate, &plan, err));
    *out = vp_plan_to_json(plan);
    VP_TRY_ALLOC(err, *out);
out:
    vp_plan_free(plan);
    return st;
}

void vp_planning_end(vp_planning *p, vp_tune_result *result)
{
    result->profile = p->profile;
    result->answer  = p->answer;
    vp_profile_free(p->base);
    *p = (vp_planning){0};
}
