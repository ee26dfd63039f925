/* tests/study_test.h: a study with something in it, for the tests of tuner/study.h.
 *     vp_study *study = new_study(path, &request_id, &profile_id);
 *     add_done(study, request_id, profile_id, "{}"); */
#ifndef VP_TESTS_STUDY_TEST_H
#define VP_TESTS_STUDY_TEST_H

#include "tests/base_test.h"
#include "tuner/study.h"

static const vp_study_request any_request = {.model        = "m",
                                             .model_sha256 = "0123",
                                             .recipe       = "{}",
                                             .seq          = 8,
                                             .global_batch = 2,
                                             .budget_bytes = 1000,
                                             .device       = "cpu",
                                             .backend      = "b",
                                             .build        = "x",
                                             .asked        = "vplan tune m"};

/* A study with one request and one profile of one row. */
static inline vp_study *new_study(const char *path, int64_t *request_id, int64_t *profile_id)
{
    vp_err         err     = {0};
    vp_study      *study   = NULL;
    vp_profile    *profile = vp_profile_new();
    vp_profile_row row     = {.kernel  = VP_K_LINEAR_FWD,
                              .dtype   = VP_DTYPE_F32,
                              .linear  = {.rows = 4, .in = 5, .out = 6, .layout = 1},
                              .seconds = 0.25};

    CHECK_OK(vp_study_open(path, &study, &err));
    CHECK_OK(vp_study_request_id(study, &any_request, request_id, &err));
    strcpy(profile->device, "cpu");
    strcpy(profile->backend, "b");
    profile->outside = (vp_overhead){.device = "cpu", .measured_by = VP_OVERHEAD_BY_PROCESS};
    vp_overhead_note(&profile->outside, VP_OVERHEAD_CALLS, 30);
    profile->link                    = (vp_link_rates){"cpu", 3e9, 2e9, 1e9 / 3, 1e-10, 64, 0.5};
    profile->host_update_bytes_per_s = 7e9;
    assert_true(vp_profile_add(profile, &row));
    CHECK_OK(vp_study_add_profile(study, VP_PROFILE_MEASURED, profile, "x", profile_id, &err));
    vp_profile_free(profile);
    return study;
}

static inline void add_done(vp_study *study, int64_t request_id, int64_t profile_id,
                            const char *decisions)
{
    vp_err       err      = {0};
    double       step_s[] = {0.1, 1.0 / 3, 3e-9};
    vp_call_time calls[]  = {
         {{.kernel = VP_K_ADD, .dtype = VP_DTYPE_F32, .elements = {.count = 7}, .seconds = 0.5}, 2}};
    vp_study_trial t = {.profile_id      = profile_id,
                        .decisions       = decisions,
                        .preset          = "p",
                        .predicted_bytes = 5,
                        .predicted_s     = 0.7};

    CHECK_OK(vp_study_begin(study, request_id, &t, &err));
    t.verdict        = "ok";
    t.evidence       = "";
    t.executed_bytes = 6;
    t.measured_s     = 1.0 / 3;
    t.n_runs         = 1;
    t.step_s         = step_s;
    t.n_steps        = 3;
    t.calls          = calls;
    t.n_calls        = 1;
    t.outside        = (vp_overhead){.device = "cpu", .measured_by = VP_OVERHEAD_BY_DEVICE};
    vp_overhead_note(&t.outside, VP_OVERHEAD_CONTEXT, 10);
    vp_overhead_note(&t.outside, VP_OVERHEAD_LAST_STEP, 40);
    CHECK_OK(vp_study_finish(study, &t, &err));
}

#endif
