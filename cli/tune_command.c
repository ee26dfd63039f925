#include "cli/tune_command.h"

#include "base/child.h"
#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/names.h"
#include "cli/screen.h"
#include "cli/words.h"
#include "devices/device_here.h"
#include "devices/efficiency.h"
#include "trainers/files/edit.h"
#include "tuner/command_tune.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char default_device[] = "h100-sxm-80gb";
enum { DEFAULT_TRIALS = 24, DEFAULT_ON_CARD = 3, SHOWN_RUNNERS_UP = 4, SHOWN_FAILURES = 4 };

/* ---- what was asked ---- */

/* Options of the other two ways to tune. */
static vp_status only_ours(const vp_command_line *line, vp_err *err)
{
    static const char *const ours[] = {"--device",  "--budget", "--study", "--max-trials",
                                       "-o",        "--force",  "--try",   "--keep",
                                       "--steps",   "--world",  "--jobs",  "--timeout",
                                       "--on-card", "--json",   "-q",      "-v"};

    for (int i = 0; i < line->n_given; i++) {
        bool known = false;
        for (size_t k = 0; k < sizeof ours / sizeof *ours; k++)
            known = known || strcmp(line->given[i].option->name, ours[k]) == 0;
        if (!known)
            return VP_FAIL(
                err, VP_ERR_USAGE,
                "%s belongs to tuning a model or a plan; with -- CMD, what may change is named with --try",
                line->given[i].option->name);
    }
    if (line->n_words)
        return VP_FAIL(err, VP_ERR_USAGE, "a model or plan and -- CMD: which?");
    if (!line->rest[0])
        return VP_FAIL(err, VP_ERR_USAGE, "nothing to tune: vplan tune [options] -- CMD...");
    return VP_OK;
}

static int given(const vp_command_line *line, const char *name, const char *texts[VP_MAX_GIVEN])
{
    int n = 0;

    for (int i = 0; i < line->n_given; i++)
        if (strcmp(line->given[i].option->name, name) == 0)
            texts[n++] = line->given[i].text;
    return n;
}

/* The card, and its name for trials, which run in other folders. */
static vp_status choose_card(const vp_tune_command_options *o, vp_cli *cli, vp_device *device,
                             char name[PATH_MAX], int64_t *budget_bytes, vp_err *err)
{
    const char *named      = o->device;
    int64_t     free_bytes = 0;
    bool        here       = false;
    vp_status   st         = VP_OK;

    VP_TRY(vp_device_named(cli, &named, err));
    if (!named)
        VP_TRY(vp_device_here(device, &free_bytes, &here, err));
    if (here) {
        name[0]       = '\0';
        *budget_bytes = o->budget.bytes || o->budget.share > 0
                            ? vp_amount_of(&o->budget, free_bytes)
                            : free_bytes;
    } else {
        named = named ? named : default_device;
        VP_TRY(vp_parse_budget(named, &o->budget, device, budget_bytes, err));
        if (access(named, F_OK) != 0 || !realpath(named, name))
            snprintf(name, PATH_MAX, "%s", named);
    }
    if (device->is_cpu || device->compute_capability < 50)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--device %s: a dry run pretends a CUDA card",
                       device->name));
out:
    return st;
}

/* ---- the answer ---- */

/* A word as a shell takes it. */
static void add_word(vp_text *out, const char *word)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:,@%+";

    if (*word && strspn(word, plain) == strlen(word)) {
        vp_text_printf(out, "%s", word);
        return;
    }
    vp_text_printf(out, "'");
    for (; *word; word++)
        if (*word == '\'')
            vp_text_printf(out, "'\\''");
        else
            vp_text_append(out, word, 1);
    vp_text_printf(out, "'");
}

static void add_line(vp_text *out, char *const *words)
{
    for (int i = 0; words[i]; i++) {
        vp_text_printf(out, "%s", i ? " " : "");
        add_word(out, words[i]);
    }
}

static json_t *settings_json(const vp_command_result *r, const vp_command_setting *s)
{
    json_t *out = json_object();

    for (int a = 0; s->value && a < r->n_axes; a++)
        json_object_set_new(out, r->axes[a].name, json_string(r->axes[a].values[s->value[a]]));
    return out;
}

/* Whether a setting trained on the card, for steps enough. */
static bool was_timed(const vp_command_setting *s)
{
    return s->on_card.verdict == VP_COMMAND_OK && s->on_card.step_s > 0;
}

/* Samples a second of one that was; 0: it was not, or nobody counted samples. */
static double samples_on_card(const vp_command_setting *s)
{
    return was_timed(s) ? s->trial.samples_per_s * s->trial.step_s / s->on_card.step_s : 0;
}

static json_t *on_card_json(const vp_command_setting *s)
{
    const vp_command_run *c       = &s->on_card;
    double                samples = samples_on_card(s);

    if (c->verdict == VP_COMMAND_UNTRIED)
        return json_null();
    return json_pack(
        "{s:s, s:I, s:I, s:o, s:s, s:{s:o, s:o, s:I}}", "verdict",
        vp_command_verdict_name(c->verdict), "allocated_peak_bytes", (json_int_t)c->allocated_bytes,
        "reserved_peak_bytes", (json_int_t)c->reserved_bytes, "card_bytes",
        c->card_bytes ? json_integer(c->card_bytes) : json_null(), "evidence", c->evidence,
        "timing", "step_time_s", c->step_s > 0 ? json_real(c->step_s) : json_null(),
        "samples_per_s", samples > 0 ? json_real(samples) : json_null(), "timed_steps",
        (json_int_t)c->n_timed);
}

static json_t *trial_json(const vp_command_result *r, const vp_command_setting *s)
{
    const vp_command_trial *t = &s->trial;

    return json_pack(
        "{s:I, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:b, s:o}", "id",
        (json_int_t)t->id, "settings", settings_json(r, s), "verdict",
        vp_command_verdict_name(t->verdict), "allocated_peak_bytes",
        t->allocated_bytes ? json_integer(t->allocated_bytes) : json_null(), "reserved_peak_bytes",
        t->reserved_bytes ? json_integer(t->reserved_bytes) : json_null(), "device_bytes",
        t->device_bytes ? json_integer(t->device_bytes) : json_null(), "needed_bytes",
        t->needed_bytes ? json_integer(t->needed_bytes) : json_null(), "step_time_s",
        t->step_s > 0 ? json_real(t->step_s) : json_null(), "step_time_least_s",
        t->step_s > 0 ? json_real(VP_STEP_LEAST_FRAC * t->step_s) : json_null(), "step_time_most_s",
        t->step_s > 0 ? json_real(VP_STEP_MOST_FRAC * t->step_s) : json_null(), "samples_per_s",
        t->samples_per_s > 0 ? json_real(t->samples_per_s) : json_null(), "tokens_per_s",
        t->tokens_per_s > 0 ? json_real(t->tokens_per_s) : json_null(), "evidence", t->evidence,
        "from_study", (int)t->from_study, "on_card", on_card_json(s));
}

static json_t *axes_json(const vp_command_result *r)
{
    static const char *const kinds[VP_N_AXIS_KINDS] = {
        "nothing",        "more needs more and is no slower",         "on needs less and is slower",
        "one or several", "the later needs no more and is no slower", "packs tighter, as fast"};
    json_t *out = json_array();

    for (int a = 0; a < r->n_axes; a++) {
        json_t *values = json_array(), *against = json_array();
        if (r->bytes_against[a])
            json_array_append_new(against, json_string("memory"));
        if (r->seconds_against[a])
            json_array_append_new(against, json_string("seconds"));
        for (int i = 0; i < r->axes[a].n; i++)
            json_array_append_new(values, json_string(r->axes[a].values[i]));
        json_array_append_new(out, json_pack("{s:s, s:o, s:s, s:o}", "name", r->axes[a].name,
                                             "values", values, "assumed", kinds[r->axes[a].kind],
                                             "contradicted", against));
    }
    return out;
}

static json_t *words_json(char *const *words)
{
    json_t *out = json_array();

    for (; words && *words; words++)
        json_array_append_new(out, json_string(*words));
    return out;
}

/* The best setting's command line and edited files; folder: where these go, or NULL. */
typedef struct best_files {
    char *const    *words;
    vp_file_change *changes;
    int             n;
} best_files;

static vp_status best_of(const vp_command_result *r, char *const *command, const char *folder,
                         best_files *out, vp_err *err)
{
    *out = (best_files){0};
    return r->best ? vp_command_with(r, command, r->best, &(vp_file_places){.folder = folder},
                                     r->arena, &out->words, &out->changes, &out->n, err)
                   : VP_OK;
}

/* The lines of a file that change; the caller's. */
static void add_diff(vp_text *out, const vp_file_change *change)
{
    vp_edits_diff(change->path, change->before, change->after, out);
}

static json_t *files_json(const best_files *best)
{
    json_t *out = json_array();

    for (int i = 0; i < best->n; i++) {
        vp_text diff = {0};
        add_diff(&diff, &best->changes[i]);
        json_array_append_new(out, json_pack("{s:o, s:o, s:o}", "path",
                                             vp_json_text_or_null(best->changes[i].path), "written",
                                             strcmp(best->changes[i].to, best->changes[i].path) != 0
                                                 ? vp_json_text_or_null(best->changes[i].to)
                                                 : json_null(),
                                             "diff", vp_json_text_or_null(diff.data)));
        vp_text_release(&diff);
    }
    return out;
}

static json_t *tune_json(const vp_command_result *r, const best_files *files, const char *study)
{
    json_t *trials = json_array(), *best = json_null(), *had = json_null();

    for (int64_t i = 0; i < r->n_tried; i++)
        json_array_append_new(trials, trial_json(r, r->tried[i]));
    if (r->best) {
        best = trial_json(r, r->best);
        json_object_set_new(best, "command", words_json(files->words));
        json_object_set_new(best, "files", files_json(files));
    }
    if (r->had)
        had = trial_json(r, r->had);
    return json_pack(
        "{s:i, s:o, s:o, s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}, s:o, s:O, s:s, s:o, s:{s:f, s:I}}",
        "schema_version", 1, "best", best, "trials", trials, "space", "settings",
        (json_int_t)r->n_settings, "tried", (json_int_t)r->n_tried, "ruled_out_by_memory",
        (json_int_t)r->n_ruled_out_memory, "ruled_out_by_speed", (json_int_t)r->n_ruled_out_speed,
        "packed_to_no_use", (json_int_t)r->n_no_use, "expected_slower",
        (json_int_t)r->n_expected_slower, "expected_too_large", (json_int_t)r->n_expected_too_large,
        "axes", axes_json(r), "had", had, "assumptions", r->assumptions, "stopped_because",
        r->stopped_because, "study", study ? json_string(study) : json_null(), "timing", "seconds",
        r->wall_s, "played_ahead", (json_int_t)r->n_ahead);
}

static void print_figures(const vp_command_trial *t)
{
    char size[64], step[64], rate[64];

    if (t->verdict != VP_COMMAND_OK) {
        printf("%-11s %11s %10s", vp_command_verdict_name(t->verdict), "-", "-");
        return;
    }
    printf("%-11s %11s %10s", "fits", vp_size_text(t->device_bytes, size, sizeof size),
           t->step_s > 0 ? vp_time_text(t->step_s, step, sizeof step) : "-");
    if (t->samples_per_s > 0)
        printf(" %9s", vp_rate_text(t->samples_per_s, rate, sizeof rate));
    else
        printf(" %9s", "-");
}

/* A setting by its values; beside the best one by those that differ. */
static void print_values(const vp_command_result *r, const vp_command_setting *s)
{
    bool    beside = r->best && s != r->best && s->value;
    vp_text text   = {0};

    for (int a = 0; s->value && a < r->n_axes; a++) {
        if (beside && s->value[a] == r->best->value[a])
            continue;
        vp_text_printf(&text, "%s%s %s", text.n_bytes ? ", " : "",
                       r->axes[a].name + strspn(r->axes[a].name, "-"),
                       r->axes[a].values[s->value[a]]);
    }
    if (text.data && !text.failed)
        vp_screen_line("", "%s%s", beside ? "with " : "", text.data);
    vp_text_release(&text);
}

static void print_row(const vp_command_result *r, const char *what, const vp_command_setting *s)
{
    printf("%-9s ", what);
    print_figures(&s->trial);
    printf("%s\n", s->value ? "" : "  as it is");
    print_values(r, s);
}

static int by_speed(const void *a, const void *b)
{
    const vp_command_trial *x = &(*(const vp_command_setting *const *)a)->trial,
                           *y = &(*(const vp_command_setting *const *)b)->trial;
    double u                  = x->samples_per_s > 0 ? x->samples_per_s : 0,
           v                  = y->samples_per_s > 0 ? y->samples_per_s : 0;

    return (u < v) - (u > v);
}

static void print_runners_up(const vp_command_result *r)
{
    const vp_command_setting **list = calloc((size_t)r->n_tried + 1, sizeof(vp_command_setting *));
    int                        n    = 0;

    for (int64_t i = 0; list && i < r->n_tried; i++)
        if (r->tried[i]->trial.verdict == VP_COMMAND_OK && r->tried[i] != r->best &&
            r->tried[i] != r->had)
            list[n++] = r->tried[i];
    if (list)
        qsort(list, (size_t)n, sizeof *list, by_speed);
    for (int i = 0; i < n && i < SHOWN_RUNNERS_UP; i++)
        print_row(r, i ? "" : "next", list[i]);
    free(list);
}

/* What trained on the card here, the answer first. */
static void print_on_card(const vp_command_result *r)
{
    char size[64], said[64], step[64];

    if (!r->n_on_card)
        return;
    printf("\n%-9s %10s %10s %11s %11s\n", "on card", "a step", "said", "allocated", "said");
    for (int pass = 0; pass < 3; pass++)
        for (int64_t i = 0; i < r->n_tried; i++) {
            const vp_command_setting *s    = r->tried[i];
            bool                      best = s == r->best, had = s == r->had && !best;
            if (s->on_card.verdict == VP_COMMAND_UNTRIED || (pass == 0) != best ||
                (pass == 1) != had)
                continue;
            printf("%-9s %10s",
                   best  ? "best"
                   : had ? "had"
                         : "next",
                   s->on_card.step_s > 0 && s->on_card.verdict == VP_COMMAND_OK
                       ? vp_time_text(s->on_card.step_s, step, sizeof step)
                       : vp_command_verdict_name(s->on_card.verdict));
            printf(" %10s",
                   s->trial.step_s > 0 ? vp_time_text(s->trial.step_s, step, sizeof step) : "-");
            printf(" %11s %11s\n", vp_size_text(s->on_card.allocated_bytes, size, sizeof size),
                   vp_size_text(s->trial.allocated_bytes, said, sizeof said));
            print_values(r, s);
        }
}

/* Beside what the command had: "1.32 times as fast as what you have". */
static const char *beside_had(const vp_command_result *r, char *buf, size_t size)
{
    const vp_command_trial *t = &r->best->trial, *had = r->had ? &r->had->trial : NULL;
    bool                    compared =
        had && had->verdict == VP_COMMAND_OK && had->samples_per_s > 0 && t->samples_per_s > 0;

    buf[0] = '\0';
    if (r->had == r->best)
        snprintf(buf, size, "what you have is the fastest that fits");
    else if (r->had && samples_on_card(r->best) > 0 &&
             samples_on_card(r->had) >= samples_on_card(r->best))
        snprintf(buf, size, "nothing that trained here is faster than what you have (measured)");
    else if (r->had && samples_on_card(r->had) > 0 && samples_on_card(r->best) > 0)
        snprintf(buf, size, "%.2f times as fast as what you have (measured)",
                 samples_on_card(r->best) / samples_on_card(r->had));
    else if (compared && t->samples_per_s < 1.005 * had->samples_per_s)
        snprintf(buf, size, "nothing that fits is faster than what you have (assumed)");
    else if (compared)
        snprintf(buf, size, "%.2f times as fast as what you have (assumed)",
                 t->samples_per_s / had->samples_per_s);
    else if (had && had->verdict == VP_COMMAND_OOM_DEVICE)
        snprintf(buf, size, "what you have runs out of memory");
    return buf;
}

/* Whether something fits, and what it is worth. */
static void print_best(const vp_command_result *r, const vp_device *device, int64_t budget_bytes,
                       bool interrupted)
{
    const vp_command_trial *t = &r->best->trial;
    char                    a[64], b[64], bytes[64], least[64], most[64], beside[96];

    beside_had(r, beside, sizeof beside);
    if (!interrupted)
        vp_screen_answer(t->device_bytes, budget_bytes, NULL);
    if (beside[0])
        vp_screen_line("speed", "%s", beside);
    if (was_timed(r->best))
        vp_screen_line("seconds", "%s a step, measured on this card over %lld steps",
                       vp_time_text(r->best->on_card.step_s, a, sizeof a),
                       (long long)r->best->on_card.n_timed);
    else if (t->step_s > 0)
        vp_screen_line("seconds",
                       "%s to %s a step, by what 48 published steps took beside this model",
                       vp_time_text(VP_STEP_LEAST_FRAC * t->step_s, least, sizeof least),
                       vp_time_text(VP_STEP_MOST_FRAC * t->step_s, most, sizeof most));
    if (t->tokens_per_s > 0 && !was_timed(r->best))
        vp_screen_line("", "%s tokens a second, %s to %s",
                       vp_rate_text(t->tokens_per_s, a, sizeof a),
                       vp_rate_text(t->tokens_per_s / VP_STEP_MOST_FRAC, least, sizeof least),
                       vp_rate_text(t->tokens_per_s / VP_STEP_LEAST_FRAC, most, sizeof most));
    vp_screen_line("memory", "%s allocated, %s bytes; %s reserved, on %s",
                   vp_size_text(t->allocated_bytes, a, sizeof a),
                   vp_count_text(t->allocated_bytes, bytes, sizeof bytes),
                   vp_size_text(t->reserved_bytes, b, sizeof b), device->name);
}

/* What was not played, and why: ", 7 slower than one that fits". */
static void add_reason(vp_text *out, int64_t n, const char *why)
{
    if (n)
        vp_text_printf(out, "%s %lld %s", out->n_bytes ? "," : " Not tried:", (long long)n, why);
}

/* n_left: settings that were not played. */
static void print_played(const vp_command_result *r, int64_t n_left, bool had_beside)
{
    vp_text why = {0};

    add_reason(&why, r->n_ruled_out_memory, "that would need more than one that was out of memory");
    add_reason(&why, r->n_ruled_out_speed, "slower than one that fits");
    add_reason(&why, r->n_no_use,
               "with segments that grow, where nothing ran out of memory for want of them");
    add_reason(&why, r->n_expected_slower, "expected to be slower");
    add_reason(&why, r->n_expected_too_large, "expected to be far too large");
    add_reason(&why,
               n_left - r->n_ruled_out_memory - r->n_ruled_out_speed - r->n_no_use -
                   r->n_expected_slower - r->n_expected_too_large,
               "others");
    vp_screen_line("tried", "%lld of %lld settings were tried%s, in %.0f s.%s",
                   (long long)(r->n_settings - n_left), (long long)r->n_settings,
                   had_beside ? " and the command as it is" : "", r->wall_s, vp_text_string(&why));
    vp_text_release(&why);
}

/* A value that trials which failed have and none that ran: its axis and itself; or -1. */
static int blamed(const vp_command_result *r, const vp_command_setting *s)
{
    for (int a = 0; s->value && a < r->n_axes; a++) {
        bool ran = false;
        for (int64_t i = 0; i < r->n_tried && !ran; i++)
            ran = r->tried[i]->value && r->tried[i]->value[a] == s->value[a] &&
                  (r->tried[i]->trial.verdict == VP_COMMAND_OK ||
                   r->tried[i]->trial.verdict == VP_COMMAND_OOM_DEVICE);
        if (!ran)
            return a;
    }
    return -1;
}

/* Trials that ended otherwise than by fitting or running out of memory: each reason once, by the value that only such
 * trials have. What they would have needed, and whether they are faster, nobody knows. */
static void print_failed_trials(const vp_command_result *r)
{
    for (int64_t i = 0, n_shown = 0; i < r->n_tried && n_shown < SHOWN_FAILURES; i++) {
        const vp_command_setting *s = r->tried[i];
        bool said = s->trial.verdict == VP_COMMAND_OK || s->trial.verdict == VP_COMMAND_OOM_DEVICE;
        for (int64_t k = 0; k < i && !said; k++)
            said = strcmp(r->tried[k]->trial.evidence, s->trial.evidence) == 0;
        if (said)
            continue;
        int a = blamed(r, s);
        vp_screen_line(n_shown++ ? "" : "failed", "%s%s%s: %s",
                       !s->value ? "as it is"
                       : a < 0   ? "a setting"
                                 : r->axes[a].name + strspn(r->axes[a].name, "-"),
                       a < 0 ? "" : " ", a < 0 ? "" : r->axes[a].values[s->value[a]],
                       s->trial.evidence);
    }
}

/* 3 says that nothing fits: not where settings were left that might, by a signal or --max-trials. */
static int exit_code_of(const vp_command_result *r)
{
    return r->best ? 0 : strcmp(r->stopped_because, "nothing fits") == 0 ? 3 : 6;
}

/* What the command's files must say, and where they were written. */
static void print_changes(const best_files *files)
{
    for (int i = 0; i < files->n; i++) {
        const vp_file_change *change = &files->changes[i];
        vp_text               diff   = {0};
        add_diff(&diff, change);
        printf("%s", vp_text_string(&diff));
        if (strcmp(change->to, change->path) != 0)
            printf("written to %s\n", change->to);
        vp_text_release(&diff);
    }
}

/* Ended by a signal: what was played is kept where there is a study, and how to go on. */
static void print_interrupted(const vp_command_result *r, int64_t n_played)
{
    char rate[64];

    printf("INTERRUPTED: %lld of %lld settings were tried", (long long)n_played,
           (long long)r->n_settings);
    if (r->best && r->best->trial.samples_per_s > 0)
        printf("; best so far %s samples/s (assumed)",
               vp_rate_text(r->best->trial.samples_per_s, rate, sizeof rate));
    printf("\n");
}

/* The command as it was given. */
static void add_asked(vp_text *out, const vp_command_line *line, const char *study)
{
    vp_change_command("tune", line, &(vp_change){0}, out);
    vp_text_printf(out, "%s -- ", study ? "" : " --study study.db");
    add_line(out, line->rest);
}

/* The same command again, with a study if it had none. */
static void print_resume(const vp_command_line *line, const char *study)
{
    vp_text again = {0};

    vp_screen_line("study",
                   study ? "what was tried is kept; the same command goes on where this one ended"
                         : "nothing is kept without --study FILE; with it the next run goes on");
    add_asked(&again, line, study);
    vp_screen_command("next", vp_text_string(&again));
    vp_text_release(&again);
}

/* The command to run: as it stands, or as the script that was written. Where files must change and nobody asked to write
 * them, what does. */
static void print_next(const best_files *files, const vp_command_line *asked,
                       const vp_tune_command_options *o, bool interrupted)
{
    const char *folder = o->folder;
    vp_text     line   = {0};

    if (files->n && !folder && !interrupted) {
        vp_change_command("tune", asked, &(vp_change){0}, &line);
        vp_text_printf(&line, " -o best -- ");
        add_line(&line, asked->rest);
    } else if (folder) {
        add_word(&line, folder);
        vp_text_printf(&line, "/run.sh");
    } else {
        add_line(&line, files->words);
    }
    vp_screen_command(interrupted ? "best" : "next", vp_text_string(&line));
    vp_text_release(&line);
}

/* Where nothing fits: the trial that needed the least, and how to see what takes it. */
static void print_least(const vp_command_result *r, const vp_command_line *asked,
                        int64_t budget_bytes)
{
    const vp_command_setting *least = NULL;
    vp_text                   line = {0}, values = {0};
    char                      size[64];
    char *const              *words;
    vp_file_change           *changes;
    int                       n_changes;
    vp_err                    why = {0};

    for (int64_t i = 0; i < r->n_tried; i++)
        if (r->tried[i]->trial.verdict == VP_COMMAND_OOM_DEVICE &&
            (!least || r->tried[i]->trial.needed_bytes < least->trial.needed_bytes))
            least = r->tried[i];
    if (!least || vp_command_with(r, asked->rest, least, &(vp_file_places){0}, r->arena, &words,
                                  &changes, &n_changes, &why) != VP_OK)
        return;
    for (int a = 0; least->value && a < r->n_axes; a++)
        vp_text_printf(&values, "%s%s %s", a ? ", " : "",
                       r->axes[a].name + strspn(r->axes[a].name, "-"),
                       r->axes[a].values[least->value[a]]);
    bool fragments = least->trial.needed_bytes <= budget_bytes;
    vp_screen_line("least", "%s: at least %s at once%s",
                   least->value ? vp_text_string(&values) : "the command as it is",
                   vp_size_text(least->trial.needed_bytes, size, sizeof size),
                   fragments ? ", which there is, but in pieces; segments that grow pack tighter"
                             : "");
    vp_text_printf(&line, "vplan dryrun");
    for (int i = 0; i < asked->n_given; i++) {
        const char *name = asked->given[i].option->name;
        if (strcmp(name, "--device") != 0 && strcmp(name, "--budget") != 0 &&
            strcmp(name, "--world") != 0)
            continue;
        vp_text_printf(&line, " %s ", name);
        add_word(&line, asked->given[i].text);
    }
    vp_text_printf(&line, " -- %s",
                   fragments ? "PYTORCH_ALLOC_CONF=expandable_segments:True " : "");
    add_line(&line, n_changes ? asked->rest : words);
    vp_screen_command("next", vp_text_string(&line));
    vp_text_release(&line);
    vp_text_release(&values);
}

static void print_tune(const vp_command_result *r, const best_files *files,
                       const vp_command_line *asked, const vp_tune_command_options *o,
                       const vp_device *device, int64_t budget_bytes)
{
    bool    interrupted = strcmp(r->stopped_because, "interrupted") == 0;
    char    size[64];
    bool    had_beside = r->had && !r->had->value;
    int64_t left       = r->n_settings - r->n_tried + had_beside;
    size_t  i;
    json_t *text;

    if (interrupted)
        print_interrupted(r, r->n_settings - left);
    if (r->best)
        print_best(r, device, budget_bytes, interrupted);
    else if (!interrupted)
        printf("%s: none of the settings tried fits %s on %s\n",
               exit_code_of(r) == 3 ? "DOES NOT FIT" : "NO ANSWER",
               vp_size_text(budget_bytes, size, sizeof size), device->name);
    if (r->best)
        print_changes(files);
    printf("\n%-9s %-11s %11s %10s %9s\n", "", "verdict", "on device", "a step", "samples/s");
    if (r->best)
        print_row(r, "best", r->best);
    if (r->had && r->had != r->best)
        print_row(r, "had", r->had);
    print_runners_up(r);
    print_on_card(r);
    printf("\n");
    print_played(r, left, had_beside);
    print_failed_trials(r);
    vp_screen_line("stopped", "%s", r->stopped_because);
    json_array_foreach (r->assumptions, i, text)
        vp_screen_line("assumed", "%s", json_string_value(text));
    if (r->best)
        print_next(files, asked, o, interrupted);
    else if (exit_code_of(r) == 3)
        print_least(r, asked, budget_bytes);
    if (interrupted)
        print_resume(asked, o->study);
}

/* Nothing that the command reads is written, by whatever name, forced or not. */
static vp_status check_changes(const best_files *files, bool force, vp_err *err)
{
    vp_status st = VP_OK;

    for (int i = 0; i < files->n; i++)
        for (int k = 0; k < files->n; k++)
            VP_TRY(vp_output_check(files->changes[i].to, force,
                                   (const char *const[]){files->changes[k].path}, 1, err));
out:
    return st;
}

/* The same before the trials, as far as it is known then. */
static vp_status check_folder(const vp_tune_command_options *o, char *const *command, vp_err *err)
{
    char        path[PATH_MAX];
    struct stat info;
    vp_status   st = VP_OK;

    snprintf(path, sizeof path, "%.*s/run.sh", PATH_MAX - 10, o->folder);
    if (!o->force && access(path, F_OK) == 0)
        VP_TRY(VP_FAIL_AT(err, VP_ERR_USAGE, path, 0, NULL, "exists: say --force to replace it"));
    for (int i = 0; command[i]; i++) {
        const char *equal = strchr(command[i], '='), *file = equal ? equal + 1 : command[i],
                   *slash = strrchr(file, '/');
        if (vp_command_is_settings_file(file) &&
            snprintf(path, sizeof path, "%s/%s", o->folder, slash ? slash + 1 : file) <
                (int)sizeof path &&
            stat(path, &info) == 0)
            VP_TRY(vp_output_check(path, o->force, &file, 1, err));
    }
out:
    return st;
}

/* DIR/run.sh and the files that it needs edited. */
static vp_status write_folder(const best_files *files, const char *folder, bool force, vp_err *err)
{
    vp_text   text = {0};
    char      path[PATH_MAX];
    vp_status st = VP_OK;

    VP_TRY(vp_file_make_dir(folder, err));
    VP_TRY(check_changes(files, force, err));
    if (snprintf(path, sizeof path, "%s/run.sh", folder) >= (int)sizeof path)
        VP_TRY(VP_FAIL_AT(err, VP_ERR_USAGE, folder, 0, NULL, "is too long a path"));
    vp_text_printf(&text, "#!/bin/sh\nexec ");
    add_line(&text, files->words);
    vp_text_printf(&text, " \"$@\"\n");
    VP_TRY_ALLOC(err, !text.failed);
    for (int i = 0; i < files->n; i++)
        VP_TRY(vp_file_write(files->changes[i].to, files->changes[i].after,
                             strlen(files->changes[i].after), force, err));
    VP_TRY(vp_file_write(path, text.data, text.n_bytes, force, err));
    if (chmod(path, 0755) != 0)
        VP_TRY(VP_FAIL_AT(err, VP_ERR_STORAGE, path, 0, NULL, "cannot be made executable"));
out:
    vp_text_release(&text);
    return st;
}

vp_status vp_tune_command(const vp_tune_command_options *o, const vp_command_line *line,
                          vp_cli *cli, vp_err *err)
{
    const char     *tries[VP_MAX_GIVEN], *keeps[VP_MAX_GIVEN];
    char            name[PATH_MAX];
    vp_device       device;
    vp_command_opts opts = {
        .command = line->rest, .tries = tries, .keeps = keeps, .device = &device};
    vp_command_result result = {0};
    vp_text           asked  = {0};
    best_files        files;
    vp_status         st = VP_OK;

    VP_TRY(only_ours(line, err));
    if (!strchr(line->rest[0], '{')) /* which stands for what --try says */
        VP_TRY(vp_child_check(&(vp_child_opts){.argv = line->rest, .search_path = true}, err));
    if (o->folder)
        VP_TRY(check_folder(o, line->rest, err));
    VP_TRY(choose_card(o, cli, &device, name, &opts.budget_bytes, err));
    opts.n_tries     = given(line, "--try", tries);
    opts.n_keeps     = given(line, "--keep", keeps);
    opts.device_name = name[0] ? name : NULL;
    add_asked(&asked, line, o->study);
    opts.study      = o->study;
    opts.asked      = vp_text_string(&asked);
    opts.max_trials = o->max_trials ? o->max_trials : DEFAULT_TRIALS;
    opts.steps      = o->steps;
    opts.world      = o->world;
    opts.jobs       = o->jobs;
    opts.timeout_s  = o->timeout_s;
    bool here       = !name[0] && o->world == 1;
    opts.n_on_card  = o->on_card >= 0 ? o->on_card : here ? DEFAULT_ON_CARD : 0;
    if (opts.n_on_card && !here)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--on-card: settings train on the card here, where %s",
                       name[0] ? "there is one and --device names no other"
                               : "CMD starts all its processes: leave --world out"));
    opts.note = cli->quiet ? NULL : vp_cli_progress;
    VP_TRY(vp_command_tune(&opts, &result, err));
    VP_TRY(best_of(&result, line->rest, o->folder, &files, err));
    if (result.best && o->folder)
        VP_TRY(write_folder(&files, o->folder, o->force, err));
    if (cli->json)
        VP_TRY(vp_print_json(tune_json(&result, &files, o->study), err));
    else
        print_tune(&result, &files, line, o, &device, opts.budget_bytes);
    cli->exit_code = exit_code_of(&result);
out:
    vp_text_release(&asked);
    vp_command_result_release(&result);
    return st;
}
