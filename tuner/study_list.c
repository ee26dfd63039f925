#include "tuner/study_list.h"

#include "tuner/study_internal.h"

#include <assert.h>
#include <string.h>

/* Who ended well stands first, of them who was run again or raced: their times are the surer ones, and
 * one of them is what vplan tune returned. */
#define ORDER " ORDER BY verdict IS NOT 'ok', "

static const char plan_requests[] =
    "SELECT id, model, seq, global_batch, budget_bytes, device, asked FROM request ORDER BY id";
static const char command_requests[] =
    "SELECT id, '', 0, 0, budget_bytes, device, asked FROM command_request ORDER BY id";
static const char plan_trials[] =
    "SELECT id, state, verdict, preset, decisions, evidence, predicted_bytes, executed_bytes, "
    "predicted_s, measured_s, 0.0, n_runs FROM trial WHERE request_id = ?" ORDER
    "n_runs < 2, measured_s, id";
static const char command_trials[] =
    "SELECT id, state, verdict, NULL, words, evidence, 0, device_bytes, 0.0, step_s, samples_per_s, "
    "1 FROM command_trial WHERE request_id = ?" ORDER "samples_per_s DESC, step_s, id";

static const char *text_at(sqlite3_stmt *stmt, int column, vp_arena *arena, const char *otherwise)
{
    const char *text = vp_study_text_at(stmt, column);

    return text ? vp_arena_strdup(arena, text) : otherwise;
}

/* Rows of a question counted, so that their array can be made. */
static vp_status count_rows(vp_study *s, const char *sql, const char *types, int64_t request,
                            int64_t *n, vp_err *err)
{
    sqlite3_stmt *stmt = NULL;
    bool          any  = true;
    vp_status     st   = VP_OK;

    VP_TRY(vp_study_query(s, &stmt, err, sql, types, request));
    for (*n = -1; any; ++*n)
        VP_TRY(vp_study_next_row(s, stmt, &any, err));
out:
    sqlite3_finalize(stmt);
    return st;
}

static void read_entry(sqlite3_stmt *stmt, vp_arena *arena, vp_study_entry *t)
{
    t->id              = sqlite3_column_int64(stmt, 0);
    t->state           = text_at(stmt, 1, arena, "");
    t->verdict         = text_at(stmt, 2, arena, "");
    t->preset          = text_at(stmt, 3, arena, NULL);
    t->what            = text_at(stmt, 4, arena, "");
    t->evidence        = text_at(stmt, 5, arena, "");
    t->predicted_bytes = sqlite3_column_int64(stmt, 6);
    t->bytes           = sqlite3_column_int64(stmt, 7);
    t->predicted_s     = sqlite3_column_double(stmt, 8);
    t->measured_s      = sqlite3_column_double(stmt, 9);
    t->samples_per_s   = sqlite3_column_double(stmt, 10);
    t->n_runs          = sqlite3_column_int64(stmt, 11);
}

static vp_status read_trials(vp_study *s, vp_arena *arena, vp_study_requested *r, vp_err *err)
{
    const char   *sql  = r->of_command ? command_trials : plan_trials;
    sqlite3_stmt *stmt = NULL;
    int64_t       n;
    bool          any;
    vp_status     st = VP_OK;

    VP_TRY(count_rows(s, sql, "i", r->id, &n, err));
    r->trials = vp_arena_array(arena, n + 1, sizeof *r->trials);
    VP_TRY_ALLOC(err, r->trials);
    VP_TRY(vp_study_query(s, &stmt, err, sql, "i", r->id));
    for (r->n = 0; r->n < n; r->n++) { /* a tuner may have added some since */
        VP_TRY(vp_study_next_row(s, stmt, &any, err));
        if (!any)
            break;
        read_entry(stmt, arena, &r->trials[r->n]);
    }
    if (r->n && strcmp(r->trials[0].verdict, "ok") == 0)
        r->best = &r->trials[0];
out:
    sqlite3_finalize(stmt);
    return st;
}

static vp_status read_requests(vp_study *s, vp_arena *arena, bool of_command,
                               vp_study_requested *list, int64_t most, int64_t *n, vp_err *err)
{
    sqlite3_stmt *stmt = NULL;
    bool          any  = true;
    vp_status     st   = VP_OK;

    VP_TRY(vp_study_query(s, &stmt, err, of_command ? command_requests : plan_requests, ""));
    while (*n < most) {
        VP_TRY(vp_study_next_row(s, stmt, &any, err));
        if (!any)
            break;
        list[(*n)++] = (vp_study_requested){.id           = sqlite3_column_int64(stmt, 0),
                                            .of_command   = of_command,
                                            .model        = text_at(stmt, 1, arena, ""),
                                            .seq          = sqlite3_column_int64(stmt, 2),
                                            .global_batch = sqlite3_column_int64(stmt, 3),
                                            .budget_bytes = sqlite3_column_int64(stmt, 4),
                                            .device       = text_at(stmt, 5, arena, ""),
                                            .asked        = text_at(stmt, 6, arena, "")};
    }
out:
    sqlite3_finalize(stmt);
    return st;
}

vp_status vp_study_list(vp_study *s, vp_arena *arena, vp_study_requested **out, int64_t *n,
                        vp_err *err)
{
    int64_t   n_plans, n_commands;
    vp_status st = VP_OK;

    *n = 0;
    VP_TRY(count_rows(s, plan_requests, "", 0, &n_plans, err));
    VP_TRY(count_rows(s, command_requests, "", 0, &n_commands, err));
    *out = vp_arena_array(arena, n_plans + n_commands + 1, sizeof **out);
    VP_TRY_ALLOC(err, *out);
    VP_TRY(read_requests(s, arena, false, *out, n_plans, n, err));
    VP_TRY(read_requests(s, arena, true, *out, *n + n_commands, n, err));
    for (int64_t i = 0; i < *n; i++)
        VP_TRY(read_trials(s, arena, &(*out)[i], err));
    VP_TRY_ALLOC(err, !vp_arena_failed(arena));
out:
    return st;
}
