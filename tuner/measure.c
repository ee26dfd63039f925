/* Who runs here, and what its kernel calls take. */
#include "tuner/tune_internal.h"

#include "core/child.h"
#include "core/file.h"
#include "core/sha256.h"
#include "core/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- what runs here ---- */

static vp_status hash_file(const char *path, char text[65], vp_err *err)
{
    FILE          *f = fopen(path, "rbe");
    vp_sha256      h = vp_sha256_begin();
    unsigned char  piece[1 << 14];
    size_t         n;

    if (!f)
        return VP_FAIL_AT(err, VP_ERR_DEVICE, path, 0, NULL, "cannot be read: %s", strerror(errno));
    while ((n = fread(piece, 1, sizeof piece, f)) > 0)
        vp_sha256_add(&h, piece, n);
    fclose(f);
    vp_sha256_hex(&h, text);
    return VP_OK;
}

/* Without a plan the runner must be told whose kernels are meant; NULL: the CPU's, where the words end. */
static char *backend_option(const vp_tuner *t)
{
    static char option[] = "--backend";
    return t->request->device->is_cpu ? NULL : option;
}

vp_status vp_tuner_find_runner(vp_tuner *t, vp_err *err)
{
    vp_child_result child = {0};
    vp_json_doc    *doc   = NULL;
    const char     *text;
    char            hash[65];
    vp_status       st = VP_OK;

    if (t->opts->runner)
        snprintf(t->runner, sizeof t->runner, "%s", t->opts->runner);
    else
        VP_TRY(vp_file_find_program("vplan-run", t->runner, sizeof t->runner, err));
    VP_TRY(hash_file(t->runner, hash, err));
    snprintf(t->build, sizeof t->build, "%.16s", hash);
    char *argv[] = {t->runner, "--describe", backend_option(t), "cuda", NULL};
    vp_child_opts run = {.argv = argv, .out = VP_CHILD_CAPTURE, .err = VP_CHILD_CAPTURE, .max_output_bytes = VP_MAX_TUNE_JSON, .timeout_s = 60};
    VP_TRY(vp_child_run(&run, &child, err));
    if (child.end == VP_CHILD_INTERRUPTED)
        VP_TRY(VP_FAIL(err, VP_ERR_NO_TRIAL, "interrupted"));
    if (child.end != VP_CHILD_EXITED || child.exit_code != 0)
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "%s cannot say what runs here: %.400s", t->runner, child.n_err ? child.err : "it gave no reason"));
    VP_TRY(vp_json_parse("vplan-run --describe", child.out, (int64_t)child.n_out, &doc, err));
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_json_string(&root, "description", &text, err));
    snprintf(t->backend, sizeof t->backend, "%s", text);
    VP_TRY(vp_json_int(&root, "free_bytes", 0, INT64_MAX, &t->free_bytes, err));
out:
    vp_json_doc_free(doc);
    vp_child_result_release(&child);
    return st;
}

/* ---- profile ---- */

static vp_status collect_program(const vp_program *p, vp_profile *calls, vp_err *err)
{
    for (int pass = 0; pass < VP_N_PASSES; pass++)
        for (int64_t i = 0; i < p->n_steps[pass]; i++) {
            vp_profile_row row = {.kernel = p->steps[pass][i].kernel, .dtype = p->steps[pass][i].dtype};
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

/* Time calls alone, in a child. */
static vp_status time_calls(const vp_tuner *t, const vp_profile *calls, vp_profile **out, vp_err *err)
{
    json_t         *request = vp_profile_to_json(calls);
    vp_json_doc    *doc     = NULL;
    vp_text         text    = {0};
    vp_child_result child   = {0};
    char            seconds[32];
    vp_status       st = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, request && vp_json_dump(request, &text));
    vp_tuner_note(t, "timing %lld kernel calls", (long long)calls->n_rows);
    snprintf(seconds, sizeof seconds, "%lld", (long long)(t->opts->profile_s > 0 ? t->opts->profile_s : 120));
    char *argv[] = {(char *)(uintptr_t)t->runner, "--profile", "-", "--seconds", seconds, backend_option(t), "cuda", NULL};
    vp_child_opts run = {.argv = argv, .stdin_bytes = text.data, .n_stdin_bytes = text.n_bytes, .out = VP_CHILD_CAPTURE,
                         .err = VP_CHILD_CAPTURE, .max_output_bytes = VP_MAX_TUNE_JSON, .timeout_s = 600};
    VP_TRY(vp_child_run(&run, &child, err));
    if (child.end == VP_CHILD_INTERRUPTED)
        VP_TRY(VP_FAIL(err, VP_ERR_NO_TRIAL, "interrupted"));
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
    return st;
}

/* t->base: what the study has of this device, backend and build; the calls it lacks are timed now and kept there. */
vp_status vp_tuner_measure_base(vp_tuner *t, const vp_plan_answer *space, vp_err *err)
{
    vp_profile *calls = vp_profile_new(), *lacking = vp_profile_new(), *known = vp_profile_new(), *timed = NULL;
    bool        measured;
    int64_t     id;
    vp_status   st = VP_OK;

    t->profile_id   = 0;
    t->profile_kind = VP_PROFILE_CORRECTED;
    VP_TRY_ALLOC(err, calls && lacking && known);
    snprintf(known->device, sizeof known->device, "%s", t->request->device->name);
    snprintf(known->backend, sizeof known->backend, "%s", t->backend);
    VP_TRY(vp_study_measured(t->study, known->device, known->backend, t->build, known, err));
    VP_TRY(collect_calls(t->request, space, calls, err));
    for (int64_t i = 0; i < calls->n_rows; i++) {
        vp_profile_seconds(known, calls->rows[i].kernel, calls->rows[i].dtype, calls->rows[i].ints, &measured);
        if (!measured)
            VP_TRY_ALLOC(err, vp_profile_add(lacking, &calls->rows[i]));
    }
    if (lacking->n_rows) {
        VP_TRY(time_calls(t, lacking, &timed, err));
        memcpy(timed->device, known->device, sizeof timed->device);
        memcpy(timed->backend, known->backend, sizeof timed->backend);
        memcpy(timed->outside.device, known->device, sizeof timed->outside.device);
        if (known->n_rows > 0)
            timed->outside = (vp_outside){0}; /* modules of the calls known before were not loaded */
        VP_TRY(vp_study_add_profile(t->study, VP_PROFILE_MEASURED, timed, t->build, &id, err));
        t->profile_id = known->n_rows == 0 ? id : 0; /* else it is put together from several */
        vp_outside_take(&known->outside, &timed->outside);
        for (int64_t i = 0; i < timed->n_rows; i++)
            VP_TRY_ALLOC(err, vp_profile_add(known, &timed->rows[i]));
    }
    vp_profile_free(t->base);
    t->base = known;
    known   = NULL;
out:
    vp_profile_free(calls);
    vp_profile_free(lacking);
    vp_profile_free(known);
    vp_profile_free(timed);
    return st;
}
