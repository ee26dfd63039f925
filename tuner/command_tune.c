#include "tuner/command_internal.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/guarded_folder.h"
#include "base/host_memory.h"
#include "base/sha256.h"
#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_JOBS = 16 };

typedef struct running {
    int64_t         setting; /* HAD: the command as it is */
    int64_t         id;
    vp_trial_folder folder;
} running;

enum { HAD = -2, NOBODY = -3 };

typedef struct search {
    const vp_command_opts *opts;
    vp_command_result     *r;
    vp_command_space       space;
    vp_choice              choice;
    vp_command_setting    *as_it_is; /* of the result, which outlives the search */
    vp_study              *study;
    int64_t                request;
    char                   program[PATH_MAX], build[32], parent[PATH_MAX];
    vp_folder_guard        guard; /* that removes parent should we be killed */
    vp_job                 jobs[MAX_JOBS];
    running                running[MAX_JOBS];
    int                    n_busy;
    bool started; /* a trial of this run, and with the first what trials are forked from */
    vp_trial_forks forks;
    char          *ahead;   /* of a setting: its verdict is here, and was not asked for */
    int64_t        n_ahead; /* of them, with those that run */
    int64_t        n_asked, n_folders;
    bool           verifying;
    double         start_s;
    const char    *failure; /* of the last trial that failed, not for memory */
} search;

static volatile sig_atomic_t ended_by;

static void note_signal(int number)
{
    ended_by = number;
}

static void note(const search *q, const char *fmt, ...)
{
    char    text[700];
    va_list args;

    if (!q->opts->note)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    q->opts->note(text);
}

static vp_command_setting *setting_of(search *q, int64_t setting)
{
    return setting == HAD ? q->as_it_is : &q->r->settings[setting];
}

/* ---- who runs, and where ---- */

static vp_status find_program(search *q, vp_err *err)
{
    const char   *library = "null/libvplan-null.so";
    char          path[PATH_MAX], hash[65];
    unsigned char piece[1 << 14];
    size_t        n;
    FILE         *f;
    vp_status     st = VP_OK;

    if (q->opts->program)
        snprintf(q->program, sizeof q->program, "%s", q->opts->program);
    else
        VP_TRY(vp_file_find_program("vplan", q->program, sizeof q->program, err));
    VP_TRY(vp_file_find_program(library, path, sizeof path, err));
    vp_sha256 h = vp_sha256_begin();
    for (int i = 0; i < 2; i++) {
        f = fopen(i ? q->program : path, "rbe");
        if (!f)
            VP_TRY(VP_FAIL_AT(err, VP_ERR_DEVICE, i ? q->program : path, 0, NULL,
                              "cannot be read: %s", strerror(errno)));
        while ((n = fread(piece, 1, sizeof piece, f)) > 0)
            vp_sha256_add(&h, piece, n);
        fclose(f);
    }
    vp_sha256_hex(&h, hash);
    snprintf(q->build, sizeof q->build, "%.16s", hash);
out:
    return st;
}

static vp_status make_parent(search *q, vp_err *err)
{
    const char *tmp = getenv("TMPDIR");

    if (snprintf(q->parent, sizeof q->parent, "%s/vplan-trials-XXXXXX",
                 tmp && *tmp ? tmp : "/tmp") >= PATH_MAX - 64 ||
        !vp_guarded_folder_make(q->parent, &q->guard)) {
        q->parent[0] = '\0';
        return VP_FAIL(err, VP_ERR_STORAGE, "no temporary folder can be made in %s: %s",
                       tmp && *tmp ? tmp : "/tmp", strerror(errno));
    }
    return VP_OK;
}

/* The words of a command as they stand in the study; with the values that stand in files, not in words. */
static char *text_of(const search *q, const vp_command_setting *s, char *const *words)
{
    json_t *list = json_array(), *in_files = json_object();

    for (; *words; words++)
        json_array_append_new(list, json_stringn(*words, strlen(*words)));
    for (int a = 0; s->value && a < q->space.n_axes; a++)
        if (q->space.axes[a].place == VP_AXIS_KEY || q->space.axes[a].place == VP_AXIS_SETTING)
            json_object_set_new(in_files, q->space.axes[a].name,
                                json_string(q->space.axes[a].values[s->value[a]]));
    if (json_object_size(in_files))
        json_array_append(list, in_files);
    json_decref(in_files);
    char *text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    return text;
}

/* ---- trials ---- */

static void shown(const search *q, int64_t setting, char *buf, size_t buf_size)
{
    size_t n = 0;

    buf[0] = '\0';
    if (setting == HAD) {
        snprintf(buf, buf_size, "as it is");
        return;
    }
    for (int a = 0; a < q->space.n_axes && n < buf_size; a++) {
        const vp_axis *axis = &q->space.axes[a];
        const char    *name = axis->name + strspn(axis->name, "-");
        n += (size_t)snprintf(buf + n, buf_size - n, "%s%s %s", a ? ", " : "", name,
                              axis->values[q->r->settings[setting].value[a]]);
    }
}

/* The setting that the command has; -1: it is outside the space. */
static int64_t first_of(const search *q)
{
    for (int64_t s = 0; s < q->space.n; s++) {
        bool is = true;
        for (int a = 0; a < q->space.n_axes; a++)
            is = is && q->space.axes[a].had == q->space.values[s * q->space.n_axes + a];
        if (is)
            return s;
    }
    return -1;
}

/* The command as it is was played: what it leaves out is known now, and which setting it is. HAD: none of the space. */
static int64_t placed(search *q)
{
    vp_space_learn(&q->space, q->as_it_is->trial.arguments);
    int64_t first = first_of(q);
    if (first < 0)
        return HAD;
    q->r->settings[first].trial = q->as_it_is->trial;
    return first;
}

/* Of an option that the command does not know every value ends alike: the words of argparse, transformers and click. */
static vp_status refuse_option(const search *q, const vp_command_trial *t, vp_err *err)
{
    static const char *const says[] = {
        "unrecognized arguments:", "not used by the HfArgumentParser", "No such option",
        "no such option",          "is not a valid YOLO argument",     "Could not override"};
    const char *at = NULL;

    for (size_t i = 0; !at && i < sizeof says / sizeof *says; i++)
        at = strstr(t->evidence, says[i]);
    for (int a = 0; at && a < q->space.n_axes; a++) {
        const char   *name = q->space.axes[a].name, *there = strstr(at, name);
        unsigned char behind = there ? (unsigned char)there[strlen(name)] : 0;
        bool          words  = q->space.axes[a].place == VP_AXIS_WORD;
        if ((q->space.axes[a].place == VP_AXIS_OPTION || words) && there && !isalnum(behind) &&
            behind != '-' && behind != '_')
            return VP_FAIL(err, VP_ERR_USAGE, "--try %s: the command knows no such %s: %.300s",
                           name, words ? "key" : "option", t->evidence);
    }
    return VP_OK;
}

/* "; up to 7 more, 81 s": the settings that nothing rules out yet, at the pace of those before. */
static void say_left(const search *q, char *buf, size_t size)
{
    char     *state = malloc((size_t)q->space.n + 1), *rulings = calloc((size_t)q->space.n + 1, 1);
    vp_choice c = q->choice;
    int64_t   n = 0, most = q->opts->max_trials - q->n_asked;
    char      seconds[64];

    buf[0] = '\0';
    if (state && rulings) {
        memcpy(state, q->choice.state, (size_t)q->space.n);
        c.state = state;
        vp_choice_next(&c, rulings);
        for (int64_t s = 0; s < q->space.n; s++)
            n += q->choice.state[s] == VP_SETTING_UNTRIED && !rulings[s];
        n = n < most ? n : most;
    }
    if (n > 0)
        snprintf(buf, size, "; up to %lld more, %s", (long long)n,
                 vp_time_text((double)n * (vp_now_s() - q->start_s) / (double)q->r->n_tried,
                              seconds, sizeof seconds));
    free(state);
    free(rulings);
}

/* A trial has ended, here or in the study: what is known now, told. */
static vp_status take(search *q, int64_t setting, vp_err *err)
{
    if (setting == HAD)
        setting = placed(q);
    vp_command_setting *s = setting_of(q, setting);
    vp_command_trial   *t = &s->trial;
    char                name[300], size[64], seconds[64], best[100] = "", left[120] = "";

    if (setting >= 0) {
        q->choice.state[setting] = VP_SETTING_DONE;
        vp_choice_better(&q->choice, setting);
    }
    q->r->tried[q->r->n_tried++] = s;
    if (t->verdict != VP_COMMAND_OK && t->verdict != VP_COMMAND_OOM_DEVICE)
        q->failure = t->evidence;
    shown(q, setting, name, sizeof name);
    if (q->choice.best >= 0 && q->r->settings[q->choice.best].trial.samples_per_s > 0)
        snprintf(
            best, sizeof best, "; best so far %s samples/s",
            vp_rate_text(q->r->settings[q->choice.best].trial.samples_per_s, size, sizeof size));
    if (q->opts->note)
        say_left(q, left, sizeof left);
    if (t->verdict == VP_COMMAND_OK)
        note(q, "%lld: %s: fits, %s, %s a step%s%s%s", (long long)q->r->n_tried, name,
             vp_size_text(t->device_bytes, size, sizeof size),
             t->step_s > 0 ? vp_time_text(t->step_s, seconds, sizeof seconds) : "unknown time",
             t->from_study ? " (from the study)" : "", best, left);
    else
        note(q, "%lld: %s: %s%s%.300s%s%s%s", (long long)q->r->n_tried, name,
             vp_command_verdict_name(t->verdict), t->verdict == VP_COMMAND_OOM_DEVICE ? "" : ", ",
             t->verdict == VP_COMMAND_OOM_DEVICE ? "" : t->evidence,
             t->from_study ? " (from the study)" : "", best, left);
    return setting >= 0 && setting != first_of(q) ? refuse_option(q, t, err) : VP_OK;
}

/* Look a setting's verdict up in the study; where it has none, start its trial. */
static vp_status begin(search *q, int64_t setting, bool *known, vp_err *err)
{
    vp_command_setting *s = setting_of(q, setting);
    char *const *command  = vp_command_line_of(q->r, q->opts->command, s, q->r->arena), *const *
                                                                                           words;
    char           *text = NULL, outputs[PATH_MAX + 8], files[PATH_MAX + 8];
    vp_file_change *changes;
    int             slot  = 0, n_changes;
    running        *run   = NULL;
    vp_child_opts   child = {
          .out = VP_CHILD_CAPTURE, .err = VP_CHILD_CAPTURE, .max_output_bytes = 8 << 20};
    vp_status st = VP_OK;

    VP_TRY_ALLOC(err, command && (text = text_of(q, s, command)));
    VP_TRY(vp_command_find(q->study, q->r->arena, q->request, text, &s->trial, err));
    *known = s->trial.verdict != VP_COMMAND_UNTRIED;
    if (*known)
        goto out;
    while (q->jobs[slot].watcher > 0)
        slot++;
    run          = &q->running[slot];
    run->setting = setting;
    VP_TRY(vp_trial_folder_make(q->parent, ++q->n_folders, &run->folder, err));
    snprintf(outputs, sizeof outputs, "%s/out", run->folder.path);
    snprintf(files, sizeof files, "%s/set", run->folder.path);
    VP_TRY(vp_command_with(q->r, q->opts->command, s, &(vp_file_places){files, outputs},
                           q->r->arena, &command, &changes, &n_changes, err));
    VP_TRY(vp_trial_write_files(&run->folder, changes, n_changes, err));
    words = vp_trial_words(q->opts, q->program, command, &run->folder, q->r->arena);
    VP_TRY_ALLOC(err, words);
    VP_TRY(vp_command_begin(q->study, q->request, text, &run->id, err));
    if (!q->started)
        VP_TRY(vp_trial_forks_start(q->opts, q->program, q->parent, &q->forks, err));
    q->started      = true;
    child.argv      = words;
    child.timeout_s = q->opts->timeout_s + 30;
    child.env_add   = q->forks.job.watcher > 0 ? (char *const[]){q->forks.variable, NULL} : NULL;
    char cwd[PATH_MAX + 8];
    snprintf(cwd, sizeof cwd, "%s/cwd", run->folder.path);
    VP_TRY(vp_job_start(&child, cwd, &q->jobs[slot], err));
    q->n_busy++;
out:
    if (st != VP_OK && run && run->folder.path[0])
        vp_trial_folder_remove(&run->folder);
    free(text);
    return st;
}

/* Wait until a trial has ended, and keep its verdict: *setting is whose. At a signal *setting stays. */
static vp_status wait_one(search *q, int64_t *setting, vp_err *err)
{
    vp_child_result child = {0};
    int             slot  = -1;
    vp_status       st    = VP_OK;

    while (slot < 0 && !ended_by)
        slot = vp_jobs_wait(q->jobs, MAX_JOBS, 1);
    if (slot < 0)
        goto out;
    running            *run = &q->running[slot];
    vp_command_setting *s   = setting_of(q, run->setting);
    q->n_busy--;
    VP_TRY(vp_job_end(&q->jobs[slot], &child, err));
    vp_trial_read(&child, q->r->arena, &s->trial, q->r->assumptions);
    s->trial.id = run->id;
    vp_trial_folder_remove(&run->folder);
    if (ended_by) { /* it ended with us: no result */
        VP_TRY(vp_command_cancel(q->study, run->id, err));
        goto out;
    }
    VP_TRY(vp_command_finish(q->study, &s->trial, err));
    *setting = run->setting;
out:
    vp_child_result_release(&child);
    return st;
}

static void stop_all(search *q)
{
    for (int i = 0; i < MAX_JOBS; i++)
        if (q->jobs[i].watcher > 0) {
            vp_job_stop(&q->jobs[i]);
            vp_command_cancel(q->study, q->running[i].id, NULL);
            vp_trial_folder_remove(&q->running[i].folder);
        }
    q->n_busy = 0;
}

/* ---- the loop ---- */

/* As many as there are cores, and room in the host's memory for what the trials took so far. */
static int side_by_side(const search *q)
{
    int64_t largest   = 1, n;
    double  available = (double)vp_host_memory_now().available_bytes;

    for (int64_t i = 0; i < q->r->n_tried; i++)
        if (q->r->tried[i]->trial.host_bytes > largest)
            largest = q->r->tried[i]->trial.host_bytes;
    n = q->opts->jobs ? q->opts->jobs : sysconf(_SC_NPROCESSORS_ONLN);
    if (!q->opts->jobs && available > 0 && (double)n > 1 + available / (1.2 * (double)largest))
        n = 1 + (int64_t)(available / (1.2 * (double)largest));
    return n < 1 ? 1 : n > MAX_JOBS ? MAX_JOBS : (int)n;
}

/* The setting with all values that the command has, and the first of each axis of which it has none; -1 where a
 * size is among these. */
static int64_t nearest(const search *q)
{
    for (int a = 0; a < q->space.n_axes; a++)
        if (q->space.axes[a].kind == VP_AXIS_SIZE && q->space.axes[a].had < 0)
            return -1;
    for (int64_t s = 0; s < q->space.n; s++) {
        bool is = true;
        for (int a = 0; a < q->space.n_axes; a++)
            is = is && q->space.values[s * q->space.n_axes + a] ==
                           (q->space.axes[a].had < 0 ? 0 : q->space.axes[a].had);
        if (is)
            return s;
    }
    return -1;
}

static bool has_places(const search *q)
{
    for (int a = 0; a < q->space.n_axes; a++)
        if (q->space.axes[a].place == VP_AXIS_BRACES)
            return true;
    return false;
}

/* What the search is expected to ask for next, by all verdicts that are here and with what runs under way; -1: nobody
 * can say. */
static int64_t guess(search *q)
{
    char     *state     = malloc((size_t)q->space.n + 1);
    vp_choice c         = q->choice;
    bool      verifying = false;
    int64_t   next      = -1;

    if (!state)
        return -1;
    memcpy(state, q->choice.state, (size_t)q->space.n);
    c.state = state;
    for (int64_t s = 0; s < q->space.n; s++)
        if (q->ahead[s]) {
            state[s] = VP_SETTING_DONE;
            vp_choice_better(&c, s);
        }
    for (int i = 0; i < MAX_JOBS; i++)
        if (q->jobs[i].watcher > 0 && q->running[i].setting >= 0)
            state[q->running[i].setting] = VP_SETTING_RUNNING;
    next = vp_choice_ask(&c, &verifying);
    free(state);
    return next;
}

/* Let idle cores play what the search is expected to ask for. */
static vp_status play_ahead(search *q, vp_err *err)
{
    vp_status st = VP_OK;

    while (q->r->n_tried && q->n_busy < side_by_side(q) &&
           q->n_asked + q->n_ahead < q->opts->max_trials) {
        int64_t next  = guess(q);
        bool    known = false;
        if (next < 0)
            break;
        VP_TRY(begin(q, next, &known, err));
        q->ahead[next] = known;
        q->n_ahead++;
    }
out:
    return st;
}

static bool is_running(const search *q, int64_t setting)
{
    for (int i = 0; i < MAX_JOBS; i++)
        if (q->jobs[i].watcher > 0 && q->running[i].setting == setting)
            return true;
    return false;
}

/* A setting's verdict, for the search, which knows of no other: from the study, from a trial that was played ahead of it,
 * or from one played now. So its order follows from the verdicts alone, whenever and wherever they were found. */
static vp_status ask(search *q, int64_t setting, vp_err *err)
{
    bool      known = setting >= 0 && q->ahead[setting], runs = is_running(q, setting);
    vp_status st = VP_OK;

    q->n_ahead -= known || runs;
    q->n_asked++;
    while (!known && !ended_by) {
        int64_t ended = NOBODY;
        if (!runs && q->n_busy < side_by_side(q)) {
            VP_TRY(begin(q, setting, &known, err));
            runs = !known;
        }
        if (!known && runs)
            VP_TRY(play_ahead(q, err));
        if (!known)
            VP_TRY(wait_one(q, &ended, err));
        known = known || ended == setting;
        if (ended >= 0 && ended != setting)
            q->ahead[ended] = true;
    }
    if (!known)
        goto out;
    if (setting >= 0)
        q->ahead[setting] = false;
    VP_TRY(take(q, setting, err));
out:
    return st;
}

/* Whether nothing but failures came: the command's own. */
static bool always_fails(const search *q)
{
    bool all = q->r->n_tried >= 3 && q->choice.best < 0 && q->failure;

    for (int64_t i = 0; i < q->r->n_tried && all; i++)
        all = q->r->tried[i]->trial.verdict != VP_COMMAND_OK &&
              q->r->tried[i]->trial.verdict != VP_COMMAND_OOM_DEVICE;
    return all;
}

/* Ask until nothing is left that is expected to be faster. */
static vp_status search_all(search *q, vp_err *err)
{
    bool      verifying = false;
    int64_t   next      = -1;
    vp_status st        = VP_OK;

    while (!ended_by && !always_fails(q)) {
        bool before = verifying;
        next        = vp_choice_ask(&q->choice, &verifying);
        if (verifying && !before)
            note(q, "nothing left that is expected to be faster: the neighbours of the best");
        if (next < 0 || q->n_asked >= q->opts->max_trials)
            break;
        VP_TRY(ask(q, next, err));
    }
    q->r->stopped_because = ended_by ? "interrupted"
                            : next >= 0 && q->n_asked >= q->opts->max_trials
                                ? "as many trials as were allowed"
                            : q->choice.best < 0 ? "nothing fits"
                                                 : "nothing left is expected to be faster";
out:
    return st;
}

/* The command as it is, first: what is compared with. */
static vp_status try_had(search *q, vp_err *err)
{
    int64_t   first = first_of(q);
    vp_status st    = VP_OK;

    if (first < 0 && has_places(q))
        return VP_OK;
    VP_TRY(ask(q, first < 0 ? HAD : first, err));
    if (ended_by)
        goto out;
    first     = first_of(q); /* its trial may have said what it leaves out */
    q->r->had = setting_of(q, first < 0 ? HAD : first);
    if (first < 0) { /* what is not said is taken to be the first value */
        q->choice.near       = nearest(q);
        q->choice.near_trial = &q->as_it_is->trial;
    }
out:
    return st;
}

static void count_rulings(search *q)
{
    char *rulings = calloc((size_t)q->space.n + 1, 1);

    vp_choice_doubt(&q->choice);
    if (rulings)
        vp_choice_next(&q->choice, rulings);
    for (int64_t s = 0; rulings && s < q->space.n; s++) {
        q->r->n_ruled_out_memory += rulings[s] == VP_RULED_MEMORY;
        q->r->n_ruled_out_speed += rulings[s] == VP_RULED_SPEED;
        q->r->n_no_use += rulings[s] == VP_RULED_NO_USE;
        q->r->n_expected_slower += rulings[s] == VP_RULED_EXPECTED_SLOWER;
        q->r->n_expected_too_large += rulings[s] == VP_RULED_EXPECTED_LARGE;
    }
    free(rulings);
}

/* What was assumed of the axes. */
static void say_axes(search *q)
{
    static const char *const said[VP_N_AXIS_KINDS] = {
        NULL,
        "more of it needs more memory, and takes no longer a sample",
        "on needs less memory, and takes longer",
        "how many micro-steps there are does not matter to memory, only whether there are several",
        "the later value needs no more memory, and takes no longer",
        "tried only where a setting runs out of memory though enough of it is free"};
    char text[400];

    for (int a = 0; a < q->space.n_axes; a++)
        if (said[q->space.axes[a].kind]) {
            snprintf(text, sizeof text, "of %s: %s", q->space.axes[a].name,
                     said[q->space.axes[a].kind]);
            json_array_append_new(q->r->assumptions, json_string(text));
        }
    if (q->space.assumed)
        json_array_append_new(q->r->assumptions, json_string(q->space.assumed));
    json_array_append_new(
        q->r->assumptions,
        json_string(
            "seconds are the card's rates, derated as plan's are, not measured: they rank settings"));
}

/* What trials said against it. */
static void say_against(search *q)
{
    char text[400];

    vp_choice_doubt(&q->choice);
    memcpy(q->r->bytes_against, q->choice.memory_against, sizeof q->r->bytes_against);
    memcpy(q->r->seconds_against, q->choice.speed_against, sizeof q->r->seconds_against);
    for (int a = 0; a < q->space.n_axes; a++) {
        bool bytes = q->r->bytes_against[a], seconds = q->r->seconds_against[a];
        if (!bytes && !seconds)
            continue;
        snprintf(
            text, sizeof text,
            "of %s: trials showed otherwise of its %s, so nothing was assumed of %s from then on",
            q->space.axes[a].name,
            bytes && seconds ? "memory and its seconds"
            : bytes          ? "memory"
                             : "seconds",
            bytes && seconds ? "these"
            : bytes          ? "it"
                             : "them");
        json_array_append_new(q->r->assumptions, json_string(text));
    }
}

/* ---- on the card here ---- */

static bool is_over(void)
{
    return ended_by != 0;
}

/* Samples a second on the card, or steps where nobody counted samples; 0: it did not train there, or did not do well. */
static double speed_on_card(const vp_command_setting *s)
{
    const vp_command_trial *t = &s->trial;
    double samples = t->samples_per_s > 0 && t->step_s > 0 ? t->samples_per_s * t->step_s : 1;

    return s->on_card.verdict == VP_COMMAND_OK && s->on_card.step_s > 0
               ? samples / s->on_card.step_s
               : 0;
}

/* The fastest setting that fits and has not trained, by its dry run; NULL: there is none. */
static vp_command_setting *next_for_card(const search *q)
{
    int64_t best = -1;

    for (int64_t s = 0; s < q->space.n; s++)
        if (q->choice.state[s] == VP_SETTING_DONE &&
            q->r->settings[s].trial.verdict == VP_COMMAND_OK &&
            q->r->settings[s].on_card.verdict == VP_COMMAND_UNTRIED &&
            (best < 0 || vp_choice_speed(&q->choice, s) > vp_choice_speed(&q->choice, best)))
            best = s;
    return best < 0 ? NULL : &q->r->settings[best];
}

static vp_status train(search *q, vp_command_setting *s, vp_err *err)
{
    char      name[300], seconds[64];
    vp_status st = VP_OK;

    VP_TRY(vp_card_run(q->opts, q->r, q->parent, ++q->n_folders, is_over, s, err));
    if (s->on_card.verdict == VP_COMMAND_INTERRUPTED)
        goto out;
    q->r->n_on_card += s->on_card.verdict == VP_COMMAND_OK;
    shown(q, s == q->as_it_is ? HAD : s - q->r->settings, name, sizeof name);
    if (speed_on_card(s) > 0)
        note(q, "on the card: %s: %s a step", name,
             vp_time_text(s->on_card.step_s, seconds, sizeof seconds));
    else
        note(q, "on the card: %s: %s%s%.300s", name, vp_command_verdict_name(s->on_card.verdict),
             *s->on_card.evidence ? ", " : "", s->on_card.evidence);
out:
    return st;
}

/* Let the best settings, and the command as it is, really train, one after the other, and take the fastest of them. In the place of
 * one that fails there the next one trains, as often at most. */
static vp_status train_best(search *q, vp_err *err)
{
    vp_command_setting *s, *had = (vp_command_setting *)q->r->had, *best = NULL;
    int64_t             n_well = 0, most = 2 * q->opts->n_on_card;
    vp_status           st = VP_OK;

    stop_all(q); /* what is played ahead takes the host's time */
    note(q, "the best of them now train on the card, for a few steps each");
    if (had && had->trial.verdict == VP_COMMAND_OK)
        VP_TRY(train(q, had, err));
    while (n_well < q->opts->n_on_card && most-- > 0 && !ended_by && (s = next_for_card(q))) {
        VP_TRY(train(q, s, err));
        n_well += s->on_card.verdict == VP_COMMAND_OK;
    }
    for (int64_t i = 0; i < q->space.n; i++)
        if (speed_on_card(&q->r->settings[i]) > (best ? speed_on_card(best) : 0))
            best = &q->r->settings[i];
    if (best)
        q->r->best = best;
    else
        json_array_append_new(
            q->r->assumptions,
            json_string(
                "no setting that trained on the card here came through its steps: the answer is the dry runs' alone"));
out:
    return st;
}

static vp_status prepare(search *q, vp_err *err)
{
    vp_command_result *r  = q->r;
    vp_status          st = VP_OK;

    VP_TRY(find_program(q, err));
    VP_TRY(vp_command_files_open(r->arena, q->opts->command, q->opts->world, &r->files, err));
    q->space = (vp_command_space){.arena = r->arena, .files = r->files};
    VP_TRY(q->opts->n_tries ? vp_space_tries(q->opts, &q->space, err)
                            : vp_space_known(q->opts->command, &q->space, err));
    for (int i = 0; i < q->opts->n_keeps; i++)
        VP_TRY(vp_space_keep(&q->space, q->opts->keeps[i], err));
    r->axes        = q->space.axes;
    r->n_axes      = q->space.n_axes;
    r->n_settings  = q->space.n;
    r->settings    = vp_arena_array(r->arena, q->space.n, sizeof *r->settings);
    r->tried       = vp_arena_array(r->arena, q->space.n + 1, sizeof(vp_command_setting *));
    r->assumptions = json_array();
    char *state    = vp_arena_alloc(r->arena, (size_t)q->space.n);
    q->ahead       = vp_arena_alloc(r->arena, (size_t)q->space.n);
    int64_t *known = vp_arena_array(r->arena, q->space.n, sizeof *known);
    q->as_it_is    = vp_arena_array(r->arena, 1, sizeof *q->as_it_is);
    VP_TRY_ALLOC(err, r->settings && r->tried && r->assumptions && state && known && q->ahead &&
                          q->as_it_is);
    for (int64_t i = 0; i < q->space.n; i++)
        r->settings[i] = (vp_command_setting){
            .value   = q->space.values + i * q->space.n_axes,
            .trial   = {.verdict = VP_COMMAND_UNTRIED, .evidence = "", .arguments = ""},
            .on_card = {.verdict = VP_COMMAND_UNTRIED, .evidence = ""}};
    q->as_it_is->on_card = (vp_command_run){.verdict = VP_COMMAND_UNTRIED, .evidence = ""};
    q->choice            = (vp_choice){.space        = &q->space,
                                       .settings     = r->settings,
                                       .state        = state,
                                       .known        = known,
                                       .budget_bytes = q->opts->budget_bytes,
                                       .best         = -1,
                                       .near         = -1};
    say_axes(q);
    VP_TRY(vp_study_open(q->opts->study, &q->study, err));
    VP_TRY(vp_command_request(q->study, q->opts, r->files, q->build, &q->request, err));
    VP_TRY(make_parent(q, err));
out:
    return st;
}

vp_status vp_command_tune(const vp_command_opts *opts, vp_command_result *r, vp_err *err)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction was[3], now = {.sa_handler = note_signal};
    search          *q  = calloc(1, sizeof *q);
    vp_status        st = VP_OK;

    memset(r, 0, sizeof *r);
    ended_by = 0;
    for (int i = 0; i < 3; i++) {
        sigaction(numbers[i], NULL, &was[i]);
        if (was[i].sa_handler != SIG_IGN)
            sigaction(numbers[i], &now, NULL);
    }
    r->arena = vp_arena_new();
    VP_TRY_ALLOC(err, q && r->arena);
    q->opts    = opts;
    q->r       = r;
    q->start_s = vp_now_s();
    VP_TRY(prepare(q, err));
    note(q, "%lld settings; each is tried in a dry run, without the GPU", (long long)r->n_settings);
    VP_TRY(try_had(q, err));
    VP_TRY(search_all(q, err));
    count_rulings(q);
    say_against(q);
    for (int64_t i = 0; i < r->n_settings; i++)
        r->n_ahead += q->ahead[i] && !r->settings[i].trial.from_study;
    r->best = q->choice.best >= 0 ? &r->settings[q->choice.best] : NULL;
    if (r->best && opts->n_on_card && !ended_by)
        VP_TRY(train_best(q, err));
    r->wall_s = vp_now_s() - q->start_s;
    if (!r->best && q->failure && strcmp(r->stopped_because, "interrupted") != 0) {
        bool memory = false;
        for (int64_t i = 0; i < r->n_tried; i++)
            memory = memory || r->tried[i]->trial.verdict == VP_COMMAND_OOM_DEVICE;
        if (!memory)
            VP_TRY(VP_FAIL(err, VP_ERR_NO_TRIAL, "no trial succeeded%s: %.600s",
                           r->had && r->had->trial.verdict == VP_COMMAND_OK
                               ? ", but for the command as it is, which fits"
                               : "",
                           q->failure));
    }
out:
    if (q) {
        stop_all(q);
        vp_trial_forks_stop(&q->forks);
        vp_study_close(q->study);
        if (q->parent[0])
            rmdir(q->parent);
        vp_guard_dismiss(&q->guard);
    }
    free(q);
    for (int i = 0; i < 3; i++)
        sigaction(numbers[i], &was[i], NULL);
    return st;
}

void vp_command_result_release(vp_command_result *r)
{
    json_decref(r->assumptions);
    vp_command_files_close(r->files);
    vp_arena_free(r->arena);
    memset(r, 0, sizeof *r);
}
