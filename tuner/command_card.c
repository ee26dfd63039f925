#include "tuner/command_internal.h"

#include "base/file.h"
#include "base/json.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* Optimizer steps; the first three are not timed (dryrun/probe/vplan_card.py). */
enum { CARD_STEPS = 10, MAX_REPORT_BYTES = 1 << 20 };

/* What the command gets in its environment: the probe, and what it reads. */
typedef struct card_env {
    char  path[3 * PATH_MAX], report[PATH_MAX + 32], steps[40], began[64];
    char *list[7];
} card_env;

static vp_status make_env(const char *reports, card_env *env, vp_err *err)
{
    char            probe[PATH_MAX];
    const char     *was = getenv("PYTHONPATH");
    struct timespec now = {0};
    vp_status       st  = VP_OK;

    VP_TRY(vp_file_find_program("null/probe/vplan_card.py", probe, sizeof probe, err));
    *strrchr(probe, '/') = '\0'; /* found, so its name has the folder's slash */
    clock_gettime(CLOCK_REALTIME, &now);
    if (snprintf(env->path, sizeof env->path, "PYTHONPATH=%s%s%s", probe, was && *was ? ":" : "",
                 was ? was : "") >= (int)sizeof env->path)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "PYTHONPATH is too long"));
    snprintf(env->report, sizeof env->report, "VPLAN_CARD_REPORT=%s", reports);
    snprintf(env->steps, sizeof env->steps, "VPLAN_NULL_STEPS=%d", CARD_STEPS);
    snprintf(env->began, sizeof env->began, "VPLAN_NULL_BEGAN=%lld.%09ld", (long long)now.tv_sec,
             now.tv_nsec);
    int n          = 0;
    env->list[n++] = env->path;
    env->list[n++] = env->report;
    env->list[n++] = env->steps;
    env->list[n++] = env->began;
    if (!getenv(
            "PYTHONDONTWRITEBYTECODE")) { /* no cache beside the probe; the command's own is as ever */
        env->list[n++] = "PYTHONDONTWRITEBYTECODE=1";
        env->list[n++] = "VPLAN_NULL_BYTECODE=1";
    }
    env->list[n] = NULL;
out:
    return st;
}

static int64_t larger(int64_t a, const json_t *doc, const char *key)
{
    int64_t b = (int64_t)json_integer_value(json_object_get(doc, key));

    return b > a ? b : a;
}

/* What its ranks report of how far they came. */
typedef struct card_reports {
    int64_t n_steps;
    bool    was_cut; /* training was ended by us, and what follows it met data that was over */
} card_reports;

/* Of a rank's report: the slowest rank's seconds, the largest bytes. */
static void add_report(const json_t *doc, vp_arena *arena, vp_command_run *run, card_reports *said)
{
    double      step_s = json_number_value(json_object_get(doc, "step_time_s"));
    const char *error  = json_string_value(json_object_get(doc, "error"));

    if (error && *error && !*run->evidence)
        run->evidence = vp_arena_printf(arena, "%.300s", error);
    if (error && strstr(error, "OutOfMemoryError"))
        run->verdict = VP_COMMAND_OOM_DEVICE;
    said->n_steps        = larger(said->n_steps, doc, "steps");
    said->was_cut        = said->was_cut || json_is_true(json_object_get(doc, "was_cut"));
    run->allocated_bytes = larger(run->allocated_bytes, doc, "allocated_peak_bytes");
    run->reserved_bytes  = larger(run->reserved_bytes, doc, "reserved_peak_bytes");
    run->card_bytes      = larger(run->card_bytes, doc, "card_bytes");
    if (step_s > run->step_s) {
        run->step_s  = step_s;
        run->n_timed = (int64_t)json_integer_value(json_object_get(doc, "timed"));
    }
}

static void read_reports(const char *folder, vp_arena *arena, vp_command_run *run,
                         card_reports *said)
{
    DIR           *d = opendir(folder);
    struct dirent *entry;
    char           path[PATH_MAX + 300];

    while (d && (entry = readdir(d))) {
        size_t       n    = strlen(entry->d_name);
        vp_json_doc *doc  = NULL;
        char        *text = NULL;
        int64_t      n_bytes;
        vp_err       why = {0};
        if (n < 5 || strcmp(entry->d_name + n - 5, ".json") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (vp_file_read(path, MAX_REPORT_BYTES, &text, &n_bytes, &why) == VP_OK &&
            vp_json_parse(path, text, n_bytes, &doc, &why) == VP_OK)
            add_report(vp_json_root(doc).value, arena, run, said);
        vp_json_doc_free(doc);
        free(text);
    }
    if (d)
        closedir(d);
}

static void judge(const vp_child_result *child, const card_reports *said, vp_arena *arena,
                  vp_command_run *run)
{
    bool ended_well = child->end == VP_CHILD_EXITED && (child->exit_code == 0 || said->was_cut);

    if (run->verdict == VP_COMMAND_OOM_DEVICE)
        return;
    run->verdict = child->end == VP_CHILD_TIMED_OUT     ? VP_COMMAND_TIMEOUT
                   : child->end == VP_CHILD_INTERRUPTED ? VP_COMMAND_INTERRUPTED
                   : !ended_well || !said->n_steps      ? VP_COMMAND_CRASH
                                                        : VP_COMMAND_OK;
    if (run->verdict == VP_COMMAND_OK)
        run->evidence = "";
    else if (!*run->evidence)
        run->evidence =
            ended_well ? "no optimizer step was seen" : vp_trial_last_line(child->err, arena);
}

vp_status vp_card_run(const vp_command_opts *opts, const vp_command_result *r, const char *parent,
                      int64_t number, bool (*is_over)(void), vp_command_setting *s, vp_err *err)
{
    vp_trial_folder folder = {0};
    char outputs[PATH_MAX + 8], files[PATH_MAX + 8], cwd[PATH_MAX + 8], reports[PATH_MAX + 8];
    char *const    *command;
    vp_file_change *changes;
    int             n_changes;
    card_reports    said = {0};
    card_env        env;
    vp_job          job    = {0};
    vp_child_result result = {0};
    vp_child_opts   child  = {.out              = VP_CHILD_CAPTURE,
                              .err              = VP_CHILD_CAPTURE,
                              .search_path      = true,
                              .max_output_bytes = 1 << 20,
                              .timeout_s        = opts->timeout_s};
    vp_status       st     = VP_OK;

    s->on_card = (vp_command_run){.verdict = VP_COMMAND_UNTRIED, .evidence = ""};
    VP_TRY(vp_trial_folder_make(parent, number, &folder, err));
    snprintf(outputs, sizeof outputs, "%s/out", folder.path);
    snprintf(files, sizeof files, "%s/set", folder.path);
    snprintf(cwd, sizeof cwd, "%s/cwd", folder.path);
    snprintf(reports, sizeof reports, "%s/card", folder.path);
    if (mkdir(reports, 0700) != 0)
        VP_TRY(VP_FAIL(err, VP_ERR_STORAGE, "%s: %s", reports, strerror(errno)));
    VP_TRY(vp_command_with(r, opts->command, s, &(vp_file_places){files, outputs}, r->arena,
                           &command, &changes, &n_changes, err));
    VP_TRY(vp_trial_write_files(&folder, changes, n_changes, err));
    child.argv = vp_trial_command(command, &folder, r->arena);
    VP_TRY_ALLOC(err, child.argv);
    VP_TRY(make_env(reports, &env, err));
    child.env_add = env.list;
    VP_TRY(vp_job_start(&child, cwd, &job, err));
    while (job.watcher > 0 && !is_over() && vp_jobs_wait(&job, 1, 1) < 0)
        ;
    if (is_over()) {
        s->on_card.verdict = VP_COMMAND_INTERRUPTED;
        goto out;
    }
    VP_TRY(vp_job_end(&job, &result, err));
    read_reports(reports, r->arena, &s->on_card, &said);
    judge(&result, &said, r->arena, &s->on_card);
    VP_TRY_ALLOC(err, s->on_card.evidence);
out:
    if (job.watcher > 0)
        vp_job_stop(&job);
    if (folder.path[0])
        vp_trial_folder_remove(&folder);
    vp_child_result_release(&result);
    return st;
}
