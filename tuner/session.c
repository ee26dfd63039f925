/* What is asked, who runs here, and which request of the study that is. */
#include "tuner/tune_internal.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/units.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double SAID_EVERY_S = 5;

void vp_session_note(const vp_session *s, const char *fmt, ...)
{
    char    text[600];
    va_list args;

    if (!s->opts->note)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    s->opts->note(text);
}

static vp_status hash_file(const char *path, char text[65], vp_err *err)
{
    FILE         *f = fopen(path, "rbe");
    vp_sha256     h = vp_sha256_begin();
    unsigned char piece[1 << 14];
    size_t        n;

    if (!f)
        return VP_FAIL_AT(err, VP_ERR_DEVICE, path, 0, NULL, "cannot be read: %s", strerror(errno));
    while ((n = fread(piece, 1, sizeof piece, f)) > 0)
        vp_sha256_add(&h, piece, n);
    fclose(f);
    vp_sha256_hex(&h, text);
    return VP_OK;
}

void vp_session_doing(vp_session *s, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(s->doing, sizeof s->doing, fmt, args);
    va_end(args);
    s->doing_since_s = vp_now_s();
}

static void still_doing(void *arg)
{
    const vp_session *s = arg;
    char              time[32];

    if (s->doing[0])
        vp_session_note(s, "  %s: %s so far", s->doing,
                        vp_time_text(vp_now_s() - s->doing_since_s, time, sizeof time));
}

char *vp_session_backend_option(const vp_session *s)
{
    static char option[] = "--backend";
    return s->request->device->is_cpu ? NULL : option;
}

vp_status vp_session_run(vp_session *s, char *const *argv, const vp_text *input, double timeout_s,
                         vp_child_result *child, vp_err *err)
{
    enum { MAX_BYTES = 4 << 20 };
    vp_child_opts opts = {.argv             = argv,
                          .stdin_bytes      = input ? input->data : NULL,
                          .n_stdin_bytes    = input ? input->n_bytes : 0,
                          .out              = VP_CHILD_CAPTURE,
                          .err              = VP_CHILD_CAPTURE,
                          .max_output_bytes = MAX_BYTES,
                          .tick             = still_doing,
                          .tick_arg         = s,
                          .tick_s           = SAID_EVERY_S,
                          .timeout_s        = timeout_s};

    assert(argv[0] && argv[0][0] && timeout_s > 0);
    if (s->opts->ended && *s->opts->ended) {
        *child = (vp_child_result){.end = VP_CHILD_INTERRUPTED};
        return VP_OK;
    }
    return vp_child_run(&opts, child, err);
}

vp_status vp_session_find_runner(vp_session *s, vp_err *err)
{
    vp_child_result child = {0};
    vp_json_doc    *doc   = NULL;
    const char     *text;
    char            hash[65];
    int64_t         n_threads = 0;
    vp_status       st        = VP_OK;

    assert(s->opts && s->request && s->study);
    vp_child_env_for_threads();
    if (s->opts->runner)
        snprintf(s->runner, sizeof s->runner, "%s", s->opts->runner);
    else
        VP_TRY(vp_file_find_program("vplan-run", s->runner, sizeof s->runner, err));
    VP_TRY(hash_file(s->runner, hash, err));
    snprintf(s->build, sizeof s->build, "%.16s", hash);
    char *argv[] = {s->runner, "--describe", vp_session_backend_option(s), "cuda", NULL};
    VP_TRY(vp_session_run(s, argv, NULL, 60, &child, err));
    if (child.end == VP_CHILD_INTERRUPTED)
        VP_TRY(VP_FAIL(err, VP_ERR_NO_TRIAL, "interrupted"));
    if (child.end != VP_CHILD_EXITED || child.exit_code != 0)
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE,
                       "%s cannot say what runs here: %.*s; tune measures on the device itself, "
                       "vplan plan needs none",
                       s->runner, child.n_err ? (int)strcspn(child.err, "\n") : 400,
                       child.n_err ? child.err : "it gave no reason"));
    VP_TRY(vp_json_parse("vplan-run --describe", child.out, (int64_t)child.n_out, &doc, err));
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_json_string(&root, "description", &text, err));
    snprintf(s->backend, sizeof s->backend, "%s", text);
    VP_TRY(vp_json_int(&root, "free_bytes", 0, INT64_MAX, &s->free_bytes, err));
    if (vp_json_has(&root, "threads")) /* another runner may not say */
        VP_TRY(vp_json_int(&root, "threads", 0, INT_MAX, &n_threads, err));
    s->n_threads = (int)n_threads;
out:
    vp_json_doc_free(doc);
    vp_child_result_release(&child);
    return st;
}

/* The request as the study has it: its id, or, where that is not asked for, threads of its trials. */
static vp_status look_up(vp_session *s, int64_t *id, int *threads, vp_err *err)
{
    char     *config      = json_dumps(s->request->model->config, JSON_COMPACT | JSON_SORT_KEYS);
    json_t   *recipe_json = vp_recipe_to_json(&s->request->recipe);
    char     *recipe = recipe_json ? json_dumps(recipe_json, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    char      hash[65];
    vp_status st = VP_OK;

    VP_TRY_ALLOC(err, config && recipe);
    vp_sha256 h = vp_sha256_begin();
    vp_sha256_add(&h, config, strlen(config));
    vp_sha256_hex(&h, hash);
    vp_study_request r = {.model        = s->request->model->name,
                          .model_sha256 = hash,
                          .recipe       = recipe,
                          .seq          = s->request->seq,
                          .global_batch = s->request->global_batch,
                          .budget_bytes = s->request->budget_bytes,
                          .device       = s->request->device->name,
                          .backend      = s->backend,
                          .build        = s->build,
                          .asked        = s->opts->asked ? s->opts->asked : ""};
    VP_TRY(id ? vp_study_request_id(s->study, &r, id, err)
              : vp_study_threads(s->study, &r, threads, err));
out:
    free(config);
    free(recipe);
    json_decref(recipe_json);
    return st;
}

vp_status vp_session_find_request(vp_session *s, vp_err *err)
{
    assert(s->runner[0] && s->backend[0]);
    return look_up(s, &s->request_id, NULL, err);
}

vp_status vp_session_known_threads(vp_session *s, int *n, vp_err *err)
{
    assert(s->runner[0] && s->backend[0]);
    return look_up(s, NULL, n, err);
}
