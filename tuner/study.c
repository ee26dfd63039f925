/* tuner/study.c: what stands in a study: requests, profiles, trials. */
#include "tuner/study_internal.h"

#include "base/text.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const kind_names[VP_N_PROFILE_KINDS] = {"measured", "given", "corrected"};
static const char *const state_names[VP_N_TRIAL_STATES] = {"running", "done", "interrupted",
                                                           "cancelled"};

static int64_t now_unix_s(void)
{
    return (int64_t)time(NULL);
}

vp_status vp_study_request_id(vp_study *s, const vp_study_request *r, int64_t *id, vp_err *err)
{
    static const char find[] =
        "SELECT id FROM request WHERE model_sha256 = ? AND recipe = ? AND seq = ? AND global_batch = ? AND budget_bytes = ? "
        "AND device = ? AND backend = ? AND build = ?";
    sqlite3_stmt *stmt = NULL;
    bool          any;
    vp_status     st = VP_OK;

    assert(r->model_sha256 && r->recipe && r->device && r->backend && r->build && r->asked);
    assert(r->seq > 0 && r->global_batch > 0);
    VP_TRY(vp_study_query(s, &stmt, err, find, "ttiiittt", r->model_sha256, r->recipe, r->seq,
                          r->global_batch, r->budget_bytes, r->device, r->backend, r->build));
    VP_TRY(vp_study_next_row(s, stmt, &any, err));
    if (any) {
        *id = sqlite3_column_int64(stmt, 0);
        goto out;
    }
    sqlite3_finalize(stmt);
    stmt = NULL;
    VP_TRY(vp_study_begin_change(s, err));
    VP_TRY(vp_study_end_change(
        s,
        vp_study_change(
            s, err,
            "INSERT INTO request(model, model_sha256, recipe, seq, global_batch, budget_bytes, device, backend, build, "
            "asked, created_unix_s) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            "tttiiitttti", r->model, r->model_sha256, r->recipe, r->seq, r->global_batch,
            r->budget_bytes, r->device, r->backend, r->build, r->asked, now_unix_s()),
        err));
    *id = sqlite3_last_insert_rowid(s->db);
out:
    sqlite3_finalize(stmt);
    return st;
}

/* "CPU, AVX-512, 2 threads": 2, and what stands before it in length; 0 where it says none. */
static int threads_said(const char *backend, size_t *length)
{
    const char *comma = strrchr(backend, ',');
    char        word[16];
    int         n;

    if (!comma || sscanf(comma, ", %d %15s", &n, word) != 2 || strncmp(word, "thread", 6) != 0)
        return 0;
    *length = (size_t)(comma - backend);
    return n;
}

vp_status vp_study_threads(vp_study *s, const vp_study_request *r, int *threads, vp_err *err)
{
    static const char find[] =
        "SELECT r.backend FROM request r JOIN trial t ON t.request_id = r.id WHERE t.state = 'done' "
        "AND r.model_sha256 = ? AND r.recipe = ? AND r.seq = ? AND r.global_batch = ? AND r.device = ? AND r.build = ? "
        "GROUP BY r.backend ORDER BY count(*) DESC, r.backend";
    sqlite3_stmt *stmt   = NULL;
    size_t        n_mine = 0, n_there = 0;
    bool          any;
    vp_status     st = VP_OK;

    *threads = 0;
    if (!threads_said(r->backend, &n_mine))
        return VP_OK;
    VP_TRY(vp_study_query(s, &stmt, err, find, "ttiitt", r->model_sha256, r->recipe, r->seq,
                          r->global_batch, r->device, r->build));
    for (;;) {
        VP_TRY(vp_study_next_row(s, stmt, &any, err));
        const char *backend = any ? vp_study_text_at(stmt, 0) : NULL;
        int         n       = backend ? threads_said(backend, &n_there) : 0;
        if (n > 0 && n_there == n_mine && strncmp(backend, r->backend, n_mine) == 0)
            *threads = n;
        if (!any || *threads)
            break;
    }
out:
    sqlite3_finalize(stmt);
    return st;
}

/* ---- shapes as text: "rows=256,in=768,out=2304,layout=0", with "dtype=bf16," before it where
 * the call is not fp32 ---- */

static const char *shape_text(const vp_profile_row *row, char *buf, size_t buf_size)
{
    const vp_kernel_info *info = vp_kernel_info_of(row->kernel);
    size_t                n    = 0;

    assert(row->dtype < VP_N_DTYPES && buf_size > 0);
    buf[0] = '\0';
    if (row->dtype != VP_DTYPE_F32)
        n += (size_t)snprintf(buf, buf_size, "dtype=%s%s", vp_dtype_name(row->dtype),
                              info->n_ints ? "," : "");
    for (int k = 0; k < info->n_ints && n < buf_size; k++)
        if (row->ints[k] || !info->ints[k].if_said)
            n += (size_t)snprintf(buf + n, buf_size - n, "%s%s=%lld", k ? "," : "",
                                  info->ints[k].name, (long long)row->ints[k]);
    for (int k = 0; k < info->n_operands && n < buf_size; k++)
        if (row->lacks >> k & 1)
            n += (size_t)snprintf(buf + n, buf_size - n, ",without=%s", info->operands[k].name);
    assert(n < buf_size); /* 400 bytes hold the longest: a text cut short would name another call */
    return buf;
}

/* Of "dtype=bf16,rows=8", and *at behind it; without one fp32, VP_N_DTYPES: there is none so named. */
static vp_dtype read_dtype(const char **at)
{
    static const char key[] = "dtype=";
    char              name[40];

    if (strncmp(*at, key, sizeof key - 1) != 0)
        return VP_DTYPE_F32;
    *at += sizeof key - 1;
    size_t n = strcspn(*at, ",");
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name), *at);
    *at += n;
    return vp_dtype_by_name(name);
}

static vp_status read_call(const vp_study *s, const char *kernel, const char *shape,
                           vp_profile_row *row, vp_err *err)
{
    char        back[400], x[80], y[200];
    const char *p = shape;

    *row        = (vp_profile_row){.dtype = read_dtype(&p)};
    row->kernel = vp_kernel_by_name(kernel);
    if (row->kernel != VP_N_KERNELS && vp_dtype_is_of_calls(row->dtype)) {
        for (int k = 0; k < vp_kernel_info_of(row->kernel)->n_ints && p; k++) {
            const vp_int_info *of     = &vp_kernel_info_of(row->kernel)->ints[k];
            bool               is_not = of->if_said && !strstr(p, of->name);
            p                         = is_not ? p : strchr(p, '=');
            if (p && !is_not)
                row->ints[k] = strtoll(++p, NULL, 10);
            if (row->ints[k] < 0 || row->ints[k] > INT64_C(1) << 40)
                p = NULL;
        }
        for (int k = 0; k < vp_kernel_info_of(row->kernel)->n_operands && p; k++) {
            char without[80];
            snprintf(without, sizeof without, ",without=%s",
                     vp_kernel_info_of(row->kernel)->operands[k].name);
            if (strstr(p, without))
                row->lacks |= vp_kernel_lacks(row->kernel, row->dtype, 1u << k);
        }
        if (p && strcmp(shape_text(row, back, sizeof back), shape) == 0)
            return VP_OK;
    }
    return VP_FAIL_AT(err, VP_ERR_STORAGE, s->path, 0, "shape",
                      "holds a call that no kernel has: %s(%s)",
                      vp_text_escape(kernel, x, sizeof x), vp_text_escape(shape, y, sizeof y));
}

/* ---- bytes outside the arena, and the link, as text: JSON, "null" where they were not measured ---- */

/* The caller's, who gives j up; NULL: out of memory. */
static char *text_of(json_t *j)
{
    char *text = j ? json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

    json_decref(j);
    return text;
}

/* Exactly one of outside and link is not NULL: what the text is. */
static vp_status read_text(const vp_study *s, const char *text, vp_overhead *outside,
                           vp_link_rates *link, vp_err *err)
{
    vp_json_doc *doc   = NULL;
    vp_err       inner = {0};
    vp_status    st    = VP_OK;

    assert(!outside != !link);
    if (outside)
        *outside = (vp_overhead){0};
    else if (link)
        *link = (vp_link_rates){.pinned_bytes = 0};
    if (strcmp(text, "null") == 0)
        return VP_OK;
    st = vp_json_parse(s->path, text, (int64_t)strlen(text), &doc, &inner);
    if (st == VP_OK) {
        vp_json_node root = vp_json_root(doc);
        st                = outside ? vp_overhead_from_json(&root, outside, &inner)
                                    : vp_link_rates_from_json(&root, link, &inner);
    }
    if (st != VP_OK)
        st = VP_FAIL_AT(err, VP_ERR_STORAGE, s->path, 0, outside ? "outside" : "link", "%s",
                        inner.message);
    vp_json_doc_free(doc);
    return st;
}

/* ---- profiles ---- */

vp_status vp_study_add_profile(vp_study *s, vp_profile_kind kind, const vp_profile *p,
                               const char *build, int64_t *id, vp_err *err)
{
    char      shape[400], algorithm[VP_ALGORITHM_TEXT + 1];
    char     *outside = text_of(vp_overhead_to_json(&p->outside));
    char     *link    = text_of(vp_link_rates_to_json(&p->link));
    vp_status st      = VP_OK;

    assert(kind >= 0 && kind < VP_N_PROFILE_KINDS && build);
    VP_TRY_ALLOC(err, outside && link);
    VP_TRY(vp_study_begin_change(s, err));
    st = vp_study_change(
        s, err,
        "INSERT INTO profile(kind, device, backend, build, outside, link, host_update_bytes_per_s, created_unix_s) "
        "VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
        "ttttttri", kind_names[kind], p->device, p->backend, build, outside, link,
        p->host_update_bytes_per_s, now_unix_s());
    *id = sqlite3_last_insert_rowid(s->db);
    for (int64_t i = 0; st == VP_OK && i < p->n_rows; i++)
        st = vp_study_change(
            s, err,
            "INSERT INTO profile_row(profile_id, kernel, shape, seconds, algorithm) VALUES(?, ?, ?, ?, ?)",
            "ittrt", *id, vp_kernel_info_of(p->rows[i].kernel)->name,
            shape_text(&p->rows[i], shape, sizeof shape), p->rows[i].seconds,
            vp_algorithm_is_set(&p->rows[i].algorithm)
                ? vp_algorithm_text(&p->rows[i].algorithm, algorithm)
                : "");
    VP_TRY(vp_study_end_change(s, st, err));
out:
    free(outside);
    free(link);
    return st;
}

/* The last that was measured of each. */
static vp_status read_rates(vp_study *s, const char *device, const char *backend, const char *build,
                            vp_profile *p, vp_err *err)
{
    sqlite3_stmt *stmt = NULL;
    vp_link_rates link;
    bool          any;
    vp_status     st = VP_OK;

    VP_TRY(vp_study_query(
        s, &stmt, err,
        "SELECT link, host_update_bytes_per_s FROM profile WHERE kind = 'measured' AND device = ? AND backend = ? AND build = ? ORDER BY id",
        "ttt", device, backend, build));
    for (;;) {
        VP_TRY(vp_study_next_row(s, stmt, &any, err));
        if (!any)
            break;
        VP_TRY(read_text(s, vp_study_text_at(stmt, 0), NULL, &link, err));
        if (vp_link_rates_least(&link) > 0)
            p->link = link;
        if (sqlite3_column_double(stmt, 1) > 0)
            p->host_update_bytes_per_s = sqlite3_column_double(stmt, 1);
    }
out:
    sqlite3_finalize(stmt);
    return st;
}

vp_status vp_study_measured(vp_study *s, const char *device, const char *backend, const char *build,
                            vp_profile *p, vp_err *err)
{
    sqlite3_stmt  *stmt = NULL;
    vp_profile_row row;
    vp_overhead    outside;
    bool           any;
    vp_status      st = VP_OK;

    VP_TRY(vp_study_query(
        s, &stmt, err,
        "SELECT r.kernel, r.shape, r.seconds, r.algorithm FROM profile_row r JOIN profile p ON p.id = r.profile_id WHERE p.kind = 'measured' "
        "AND p.device = ? AND p.backend = ? AND p.build = ? ORDER BY p.id, r.kernel, r.shape",
        "ttt", device, backend, build));
    for (;;) {
        VP_TRY(vp_study_next_row(s, stmt, &any, err));
        if (!any)
            break;
        VP_TRY(read_call(s, vp_study_text_at(stmt, 0), vp_study_text_at(stmt, 1), &row, err));
        row.seconds = sqlite3_column_double(stmt, 2);
        if (*vp_study_text_at(stmt, 3) &&
            !vp_algorithm_parse(vp_study_text_at(stmt, 3), &row.algorithm))
            VP_TRY(VP_FAIL_AT(err, VP_ERR_STORAGE, s->path, 0, "algorithm",
                              "holds one that is not %d hexadecimal digits", VP_ALGORITHM_TEXT));
        VP_TRY_ALLOC(err, vp_profile_add(p, &row));
    }
    sqlite3_finalize(stmt);
    stmt = NULL;
    VP_TRY(vp_study_query(
        s, &stmt, err,
        "SELECT outside FROM profile WHERE kind = 'measured' AND device = ?1 AND backend = ?2 AND build = ?3 UNION ALL "
        "SELECT t.outside FROM trial t JOIN request r ON r.id = t.request_id WHERE t.state = 'done' AND t.verdict = 'ok' AND r.device = ?1 "
        "AND r.backend = ?2 AND r.build = ?3",
        "ttt", device, backend, build));
    for (;;) {
        VP_TRY(vp_study_next_row(s, stmt, &any, err));
        if (!any)
            break;
        VP_TRY(read_text(s, vp_study_text_at(stmt, 0), &outside, NULL, err));
        vp_overhead_take(&p->outside, &outside);
    }
    VP_TRY(read_rates(s, device, backend, build, p, err));
out:
    sqlite3_finalize(stmt);
    return st;
}

/* ---- trials ---- */

vp_status vp_study_begin(vp_study *s, int64_t request_id, vp_study_trial *t, vp_err *err)
{
    vp_status st = VP_OK;

    assert(request_id > 0 && t->profile_id > 0 && t->decisions);
    VP_TRY(vp_study_begin_change(s, err));
    VP_TRY(vp_study_end_change(
        s,
        vp_study_change(
            s, err,
            "INSERT INTO trial(request_id, profile_id, decisions, preset, state, evidence, predicted_bytes, executed_bytes, "
            "predicted_s, measured_s, n_runs, step_seconds, outside, started_unix_s) VALUES(?, ?, ?, ?, 'running', '', ?, 0, ?, 0, 0, '[]', 'null', ?)",
            "iittiri", request_id, t->profile_id, t->decisions, t->preset, t->predicted_bytes,
            t->predicted_s, now_unix_s()),
        err));
    t->id    = sqlite3_last_insert_rowid(s->db);
    t->state = VP_TRIAL_RUNNING;
out:
    return st;
}

vp_status vp_study_finish(vp_study *s, const vp_study_trial *t, vp_err *err)
{
    vp_text   steps   = {0};
    char     *outside = text_of(vp_overhead_to_json(&t->outside));
    char      shape[400];
    vp_status st = VP_OK;

    assert(t->id > 0 && t->verdict && t->evidence);
    assert(t->n_steps >= 0 && (t->n_steps == 0 || t->step_s));
    assert(t->n_calls == 0 || t->calls);
    vp_text_printf(&steps, "[");
    for (int64_t i = 0; i < t->n_steps; i++)
        vp_text_printf(&steps, "%s%.17g", i ? ", " : "", t->step_s[i]);
    vp_text_printf(&steps, "]");
    VP_TRY_ALLOC(err, !steps.failed && outside);
    VP_TRY(vp_study_begin_change(s, err));
    st = vp_study_change(
        s, err,
        "UPDATE trial SET state = 'done', verdict = ?, evidence = ?, executed_bytes = ?, measured_s = ?, n_runs = ?, step_seconds = ?, "
        "outside = ?, ended_unix_s = ? WHERE id = ?",
        "ttirittii", t->verdict, t->evidence, t->executed_bytes, t->measured_s, t->n_runs,
        steps.data, outside, now_unix_s(), t->id);
    if (st == VP_OK && sqlite3_changes(s->db) != 1)
        st = VP_FAIL_AT(err, VP_ERR_STORAGE, s->path, 0, NULL, "trial %lld is no longer there",
                        (long long)t->id);
    if (st == VP_OK)
        st = vp_study_change(s, err, "DELETE FROM trial_call WHERE trial_id = ?", "i", t->id);
    for (int64_t i = 0; st == VP_OK && i < t->n_calls; i++)
        st = vp_study_change(
            s, err,
            "INSERT INTO trial_call(trial_id, kernel, shape, n_calls, seconds) VALUES(?, ?, ?, ?, ?)",
            "ittir", t->id, vp_kernel_info_of(t->calls[i].row.kernel)->name,
            shape_text(&t->calls[i].row, shape, sizeof shape), t->calls[i].n_calls,
            t->calls[i].row.seconds);
    VP_TRY(vp_study_end_change(s, st, err));
out:
    vp_text_release(&steps);
    free(outside);
    return st;
}

vp_status vp_study_cancel(vp_study *s, int64_t trial_id, vp_err *err)
{
    vp_status st = VP_OK;

    assert(trial_id > 0);
    VP_TRY(vp_study_begin_change(s, err));
    VP_TRY(vp_study_end_change(
        s,
        vp_study_change(
            s, err,
            "UPDATE trial SET state = 'cancelled', ended_unix_s = ? WHERE id = ? AND state = 'running'",
            "ii", now_unix_s(), trial_id),
        err));
out:
    return st;
}

static vp_status read_steps(const vp_study *s, vp_arena *arena, const char *text, vp_study_trial *t,
                            vp_err *err)
{
    vp_json_doc *doc = NULL;
    vp_json_node step;
    vp_err       inner = {0};
    vp_status    st    = VP_OK;

    st = vp_json_parse(s->path, text, (int64_t)strlen(text), &doc, &inner);
    if (st == VP_OK) {
        vp_json_node root = vp_json_root(doc), list;
        st                = vp_json_array(&root, NULL, &list, &t->n_steps, &inner);
        t->step_s         = vp_arena_array(arena, t->n_steps, sizeof *t->step_s);
        VP_TRY_ALLOC(err, t->step_s);
        for (int64_t i = 0; st == VP_OK && i < t->n_steps; i++) {
            st = vp_json_element(&list, i, &step, &inner);
            if (st == VP_OK)
                st = vp_json_real(&step, NULL, 0, 1e9, &t->step_s[i], &inner);
        }
    }
    if (st != VP_OK)
        st = VP_FAIL_AT(err, VP_ERR_STORAGE, s->path, 0, "step_seconds", "trial %lld: %s",
                        (long long)t->id, inner.message);
out:
    vp_json_doc_free(doc);
    return st;
}

static vp_status read_calls(vp_study *s, vp_arena *arena, vp_study_trial *t, vp_err *err)
{
    sqlite3_stmt *stmt = NULL;
    int64_t       cap  = 0;
    bool          any;
    vp_status     st = VP_OK;

    VP_TRY(vp_study_query(
        s, &stmt, err,
        "SELECT kernel, shape, n_calls, seconds FROM trial_call WHERE trial_id = ? ORDER BY kernel, shape",
        "i", t->id));
    for (;;) {
        VP_TRY(vp_study_next_row(s, stmt, &any, err));
        if (!any)
            break;
        VP_TRY_ALLOC(err,
                     vp_arena_grow(arena, (void **)&t->calls, t->n_calls, &cap, sizeof *t->calls));
        vp_call_time *c = &t->calls[t->n_calls++];
        VP_TRY(read_call(s, vp_study_text_at(stmt, 0), vp_study_text_at(stmt, 1), &c->row, err));
        c->n_calls     = sqlite3_column_int64(stmt, 2);
        c->row.seconds = sqlite3_column_double(stmt, 3);
    }
out:
    sqlite3_finalize(stmt);
    return st;
}

vp_status vp_study_trials(vp_study *s, vp_arena *arena, int64_t request_id, vp_study_trial **out,
                          int64_t *n, vp_err *err)
{
    sqlite3_stmt *stmt = NULL;
    int64_t       cap  = 0;
    bool          any;
    vp_status     st = VP_OK;

    assert(request_id > 0);
    *out = NULL;
    *n   = 0;
    VP_TRY(vp_study_query(
        s, &stmt, err,
        "SELECT id, state, profile_id, decisions, preset, verdict, evidence, predicted_bytes, executed_bytes, predicted_s, "
        "measured_s, n_runs, step_seconds, request_id, outside FROM trial WHERE request_id IN (SELECT other.id FROM request this JOIN request other USING "
        "(model_sha256, recipe, seq, global_batch, device, backend, build) WHERE this.id = ?) ORDER BY id",
        "i", request_id));
    for (;;) {
        VP_TRY(vp_study_next_row(s, stmt, &any, err));
        if (!any)
            break;
        VP_TRY_ALLOC(err, vp_arena_grow(arena, (void **)out, *n, &cap, sizeof **out));
        vp_study_trial *t = &(*out)[(*n)++];
        *t                = (vp_study_trial){.id              = sqlite3_column_int64(stmt, 0),
                                             .profile_id      = sqlite3_column_int64(stmt, 2),
                                             .decisions       = vp_arena_strdup(arena, vp_study_text_at(stmt, 3)),
                                             .preset          = vp_arena_strdup(arena, vp_study_text_at(stmt, 4)),
                                             .verdict         = vp_arena_strdup(arena, vp_study_text_at(stmt, 5)),
                                             .evidence        = vp_arena_strdup(arena, vp_study_text_at(stmt, 6)),
                                             .predicted_bytes = sqlite3_column_int64(stmt, 7),
                                             .executed_bytes  = sqlite3_column_int64(stmt, 8),
                                             .predicted_s     = sqlite3_column_double(stmt, 9),
                                             .measured_s      = sqlite3_column_double(stmt, 10),
                                             .n_runs          = sqlite3_column_int64(stmt, 11),
                                             .request_id      = sqlite3_column_int64(stmt, 13)};
        while (t->state < VP_TRIAL_CANCELLED &&
               strcmp(state_names[t->state], vp_study_text_at(stmt, 1)) != 0)
            t->state++;
        VP_TRY(read_steps(s, arena, vp_study_text_at(stmt, 12), t, err));
        VP_TRY(read_calls(s, arena, t, err));
        VP_TRY(read_text(s, vp_study_text_at(stmt, 14), &t->outside, NULL, err));
    }
    VP_TRY_ALLOC(err, !vp_arena_failed(arena));
out:
    sqlite3_finalize(stmt);
    return st;
}
