/* What kernel calls take here. */
#include "tuner/tune_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static vp_status collect_program(const vp_program *p, vp_profile *calls, vp_err *err)
{
    for (int pass = 0; pass < VP_N_PASSES; pass++)
        for (int64_t i = 0; i < p->n_steps[pass]; i++) {
            vp_profile_row row = {.kernel = p->steps[pass][i].kernel,
                                  .dtype  = p->steps[pass][i].dtype};
            if (vp_kernel_info_of(row.kernel)->kind == VP_KERNEL_TRANSFER)
                continue; /* by the link's rate: alone it says nothing of beside kernels */
            row.lacks = vp_step_lacks(&p->steps[pass][i]);
            memcpy(row.ints, p->steps[pass][i].ints, sizeof row.ints);
            if (!vp_profile_add(calls, &row))
                return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
        }
    return VP_OK;
}

/* Every distinct call of the space: recompute only repeats calls that are there already. Chunks
 * of the loss are timed at the smallest, at some 1,024 tokens and whole, and scaled between. */
static vp_status collect_calls(const vp_plan_request *r, const vp_plan_answer *a, vp_profile *calls,
                               vp_err *err)
{
    vp_cost   cost = {.device = r->device};
    vp_status st   = VP_OK;

    for (int64_t i = 0; i < a->n_scenarios; i++) {
        const vp_scenario *s    = &a->scenarios[i]->scenario;
        vp_plan           *plan = NULL;
        if (s->loss_chunk != 0 && s->loss_chunk != VP_TILE_TOKENS &&
            (s->loss_chunk < 1024 || s->loss_chunk > 1024 + VP_TILE_TOKENS) && r->loss_chunk < 0)
            continue;
        VP_TRY(vp_assemble(r->model, s, &cost, &plan, err));
        assert(plan->n_buckets == 1);
        for (int64_t k = 0; st == VP_OK && k < plan->buckets[0].n_programs; k++)
            st = collect_program(&plan->buckets[0].programs[k], calls, err);
        vp_plan_free(plan);
        VP_TRY(st);
    }
out:
    return st;
}

/* Time calls alone, in a child. */
static vp_status time_calls(vp_session *s, const vp_profile *calls, vp_profile **out, vp_err *err)
{
    json_t         *request = vp_profile_to_json(calls);
    vp_json_doc    *doc     = NULL;
    vp_text         text    = {0};
    vp_child_result child   = {0};
    char            seconds[32];
    vp_status       st = VP_OK;

    *out = NULL;
    assert(calls->n_rows > 0 && s->runner[0]);
    VP_TRY_ALLOC(err, request && vp_json_dump(request, &text));
    vp_session_note(s, "timing %lld kernel calls", (long long)calls->n_rows);
    vp_session_doing(s, "timing kernel calls");
    snprintf(seconds, sizeof seconds, "%lld",
             (long long)(s->opts->profile_s > 0 ? s->opts->profile_s : 120));
    char *argv[] = {(char *)(uintptr_t)s->runner, "--profile", "-", "--seconds", seconds,
                    vp_session_backend_option(s), "cuda",      NULL};
    VP_TRY(vp_session_run(s, argv, &text, 600, &child, err));
    if (child.end == VP_CHILD_INTERRUPTED)
        VP_TRY(VP_FAIL(err, VP_ERR_NO_TRIAL, "interrupted"));
    if (child.end != VP_CHILD_EXITED || child.exit_code != 0)
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "profiling failed: %.400s",
                       child.n_err ? child.err : "vplan-run gave no reason"));
    VP_TRY(vp_json_parse("profile", child.out, (int64_t)child.n_out, &doc, err));
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_profile_from_json(&root, out, err));
out:
    vp_json_doc_free(doc);
    vp_child_result_release(&child);
    vp_text_release(&text);
    json_decref(request);
    return st;
}

vp_status vp_measure_calls(vp_session *s, const vp_plan_answer *space, vp_profile **out,
                           int64_t *profile_id, vp_err *err)
{
    vp_profile *calls = vp_profile_new(), *lacking = vp_profile_new(), *known = vp_profile_new(),
               *timed = NULL;
    bool      measured;
    int64_t   id;
    vp_status st = VP_OK;

    *out        = NULL;
    *profile_id = 0;
    assert(space->n_scenarios > 0 && s->build[0]); /* vp_session_find_runner() */
    VP_TRY_ALLOC(err, calls && lacking && known);
    snprintf(known->device, sizeof known->device, "%s", s->request->device->name);
    snprintf(known->backend, sizeof known->backend, "%s", s->backend);
    VP_TRY(vp_study_measured(s->study, known->device, known->backend, s->build, known, err));
    VP_TRY(collect_calls(s->request, space, calls, err));
    for (int64_t i = 0; i < calls->n_rows; i++) {
        vp_profile_seconds(known, calls->rows[i].kernel, calls->rows[i].dtype, calls->rows[i].ints,
                           calls->rows[i].lacks, &measured);
        if (!measured)
            VP_TRY_ALLOC(err, vp_profile_add(lacking, &calls->rows[i]));
    }
    if (lacking->n_rows) {
        VP_TRY(time_calls(s, lacking, &timed, err));
        memcpy(timed->device, known->device, sizeof timed->device);
        memcpy(timed->backend, known->backend, sizeof timed->backend);
        memcpy(timed->outside.device, known->device, sizeof timed->outside.device);
        memcpy(timed->link.device, known->device, sizeof timed->link.device);
        if (known->n_rows > 0)
            /* modules of the calls known before were not loaded */
            timed->outside = (vp_overhead){0};
        VP_TRY(vp_study_add_profile(s->study, VP_PROFILE_MEASURED, timed, s->build, &id, err));
        *profile_id = known->n_rows == 0 ? id : 0; /* else it is put together from several */
        vp_overhead_take(&known->outside, &timed->outside);
        if (vp_link_rates_least(&timed->link) > 0)
            known->link = timed->link;
        if (timed->host_update_bytes_per_s > 0)
            known->host_update_bytes_per_s = timed->host_update_bytes_per_s;
        for (int64_t i = 0; i < timed->n_rows; i++)
            VP_TRY_ALLOC(err, vp_profile_add(known, &timed->rows[i]));
    }
    *out  = known;
    known = NULL;
out:
    vp_profile_free(calls);
    vp_profile_free(lacking);
    vp_profile_free(known);
    vp_profile_free(timed);
    return st;
}
