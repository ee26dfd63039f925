/* vplan study: what a study holds: what was asked, what was tried, and what was best. */
#include "cli/cli.h"
#include "cli/paint.h"
#include "cli/rows.h"
#include "cli/screen.h"
#include "cli/words.h"

#include "base/text.h"
#include "base/units.h"
#include "tuner/study_list.h"

#include <stdio.h>
#include <string.h>

typedef struct study {
    const char         *path;
    vp_study_requested *requests;
    int64_t             n;
} study;

/* ---- what was tried ---- */

static void add_words(const json_t *words, vp_text *out)
{
    for (size_t i = 0; i < json_array_size(words); i++) {
        const char *word = json_string_value(json_array_get(words, i));
        vp_text_printf(out, "%s", i ? " " : "");
        vp_text_quoted(out, word ? word : "?");
    }
}

static void add_decisions(const json_t *d, vp_text *out)
{
    const json_t *runs = json_object_get(d, "blocks"), *offload = json_object_get(d, "offload");
    const char   *half   = json_string_value(json_object_get(d, "gradients"));
    long long     states = json_integer_value(json_object_get(offload, "states"));
    int64_t       chunk  = json_integer_value(json_object_get(d, "loss_chunk_tokens"));
    char          count[32];

    vp_text_printf(out, "micro-batch %lld, ",
                   (long long)json_integer_value(json_object_get(d, "micro_batch")));
    if (chunk)
        vp_text_printf(out, "loss in chunks of %s tokens",
                       vp_count_text(chunk, count, sizeof count));
    else
        vp_text_printf(out, "loss all at once");
    if (half && strcmp(half, "fp32") != 0)
        vp_text_printf(out, ", gradients %s", half);
    if (states)
        vp_text_printf(
            out, ", %s of %lld parts in host memory%s",
            json_is_true(json_object_get(offload, "blocks")) ? "parameters and states" : "states",
            states, json_is_true(json_object_get(offload, "host_step")) ? ", stepped there" : "");
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        long long     n   = json_integer_value(json_object_get(run, "n_blocks"));
        vp_text_printf(out, "; %lld block%s ", n, n == 1 ? "" : "s");
        vp_add_run(run, n == 1, out);
    }
}

/* A plan in plan's words, or a command as a shell takes it. */
static void add_what(const vp_study_entry *t, vp_text *out)
{
    json_t *j = json_loads(t->what, 0, NULL);
    char    shown[2000];

    if (json_is_array(j))
        add_words(j, out);
    else if (json_is_object(j))
        add_decisions(j, out);
    else
        vp_text_printf(out, "%s", vp_text_escape(t->what, shown, sizeof shown));
    json_decref(j);
}

/* ---- JSON and CSV ---- */

static json_t *seconds_json(double s)
{
    return s > 0 ? json_real(s) : json_null();
}

static json_t *trial_json(const vp_study_entry *t)
{
    json_t *what = json_loads(t->what, 0, NULL);

    return json_pack("{s:I, s:s, s:s, s:s?, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o}", "id",
                     (json_int_t)t->id, "state", t->state, "verdict", t->verdict, "preset",
                     t->preset, "what", what ? what : vp_json_text_or_null(t->what),
                     "predicted_bytes",
                     t->predicted_bytes ? json_integer(t->predicted_bytes) : json_null(), "bytes",
                     t->bytes ? json_integer(t->bytes) : json_null(), "predicted_s",
                     seconds_json(t->predicted_s), "measured_s", seconds_json(t->measured_s),
                     "samples_per_s", seconds_json(t->samples_per_s), "runs", (json_int_t)t->n_runs,
                     "evidence", vp_json_text_or_null(t->evidence));
}

static json_t *study_json(const study *s)
{
    json_t *requests = json_array();

    for (int64_t i = 0; i < s->n; i++) {
        const vp_study_requested *r      = &s->requests[i];
        json_t                   *trials = json_array();
        for (int64_t k = 0; k < r->n; k++)
            json_array_append_new(trials, trial_json(&r->trials[k]));
        json_array_append_new(
            requests,
            json_pack("{s:I, s:s, s:o, s:o, s:o, s:I, s:s, s:o, s:o}", "id", (json_int_t)r->id,
                      "kind", r->of_command ? "command" : "plan", "model",
                      r->of_command ? json_null() : json_string(r->model), "seq",
                      r->of_command ? json_null() : json_integer(r->seq), "global_batch",
                      r->of_command ? json_null() : json_integer(r->global_batch), "budget_bytes",
                      (json_int_t)r->budget_bytes, "device", r->device, "best",
                      r->best ? json_integer(r->best->id) : json_null(), "trials", trials));
    }
    return json_pack("{s:i, s:s, s:o}", "schema_version", 1, "study", s->path, "requests",
                     requests);
}

/* An empty field where there is nothing to say. */
static void print_number(double x)
{
    if (x > 0)
        printf(",%.17g", x);
    else
        printf(",");
}

static void print_csv(const study *s)
{
    printf("request,kind,model,seq,global_batch,device,budget_bytes,trial,state,verdict,preset,"
           "runs,predicted_bytes,bytes,predicted_s,measured_s,samples_per_s,what\n");
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t k = 0; k < s->requests[i].n; k++) {
            const vp_study_requested *r    = &s->requests[i];
            const vp_study_entry     *t    = &r->trials[k];
            vp_text                   what = {0};
            printf("%lld,%s,", (long long)r->id, r->of_command ? "command" : "plan");
            vp_screen_field(r->model);
            printf(",%lld,%lld,", (long long)r->seq, (long long)r->global_batch);
            vp_screen_field(r->device);
            printf(",%lld,%lld,%s,%s,", (long long)r->budget_bytes, (long long)t->id, t->state,
                   t->verdict);
            vp_screen_field(t->preset ? t->preset : "");
            printf(",%lld,%lld,%lld", (long long)t->n_runs, (long long)t->predicted_bytes,
                   (long long)t->bytes);
            print_number(t->predicted_s);
            print_number(t->measured_s);
            print_number(t->samples_per_s);
            putchar(',');
            add_what(t, &what);
            vp_screen_field(vp_text_string(&what));
            putchar('\n');
            vp_text_release(&what);
        }
}

/* ---- text ---- */

static void print_trial(const vp_study_requested *r, const vp_study_entry *t)
{
    char    bytes[32], predicted[32], measured[32], shown[64], other[24] = "-";
    vp_text what = {0};

    if (r->best && t->measured_s > 0)
        snprintf(other, sizeof other, "%+.1f %%", 100 * (t->measured_s / r->best->measured_s - 1));
    printf("%4lld %-12.12s %10s %10s %10s %9s %4lld%s\n", (long long)t->id,
           vp_text_escape(t->verdict[0] ? t->verdict : t->state, shown, sizeof shown),
           t->bytes ? vp_size_text(t->bytes, bytes, sizeof bytes) : "-",
           t->predicted_s > 0 ? vp_time_text(t->predicted_s, predicted, sizeof predicted) : "-",
           t->measured_s > 0 ? vp_time_text(t->measured_s, measured, sizeof measured) : "-",
           t == r->best ? "best" : other, (long long)t->n_runs, t->preset ? "  preset" : "");
    add_what(t, &what);
    vp_screen_entry(5, "", vp_text_string(&what));
    vp_text_release(&what);
}

static void print_request(const vp_study_requested *r)
{
    char size[32], time[32], name[128], device[128];

    vp_size_text(r->budget_bytes, size, sizeof size);
    vp_text_escape(r->model, name, sizeof name);
    vp_text_escape(r->device, device, sizeof device);
    if (r->best)
        printf("%sBEST%s: %s a step, number %lld of %lld\n", vp_paint(VP_PAINT_GOOD),
               vp_paint_end(), vp_time_text(r->best->measured_s, time, sizeof time),
               (long long)r->best->id, (long long)r->n);
    else
        printf("%sNO TRIAL SUCCEEDED%s of %lld\n", vp_paint(VP_PAINT_BAD), vp_paint_end(),
               (long long)r->n);
    if (r->of_command)
        vp_screen_line("command", "on %s, budget %s", device, size);
    else
        vp_screen_line("model", "%s on %s, sequence %lld, global batch %lld, budget %s", name,
                       device, (long long)r->seq, (long long)r->global_batch, size);
    printf("\n%s%4s %-12s %10s %10s %10s %9s %4s%s\n", vp_paint(VP_PAINT_HEAD), "", "verdict",
           r->of_command ? "on device" : "arena", "predicted", "measured", "slower", "runs",
           vp_paint_end());
    for (int64_t i = 0; i < r->n; i++)
        print_trial(r, &r->trials[i]);
    printf("\n");
}

/* Where a study goes on, by the commands that asked: what was finished is not run again. */
static void print_next(const study *s)
{
    vp_text command = {0};

    for (int64_t i = 0; i < s->n; i++) {
        vp_text_release(&command);
        vp_text_append_escaped(&command, s->requests[i].asked);
        vp_screen_command(i ? "" : "next", vp_text_string(&command));
    }
    vp_text_release(&command);
}

static void print_study(const study *s)
{
    for (int64_t i = 0; i < s->n; i++)
        print_request(&s->requests[i]);
    if (!s->n)
        printf("EMPTY: nothing was asked yet; vplan tune --study FILE fills it\n");
    else
        print_next(s);
}

/* ---- the command ---- */

typedef struct study_options {
    bool csv;
} study_options;

static const vp_option rows[] = {
    {.name = "--csv",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(study_options, csv),
     .help = "Print every trial as a row of CSV"},
};
static const vp_option_set options = {VP_ROWS(rows)};

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    study_options   o     = {0};
    study           s     = {0};
    vp_arena       *arena = vp_arena_new();
    vp_study       *file  = NULL;
    vp_command_line line;
    vp_status       st = VP_OK;

    VP_TRY_ALLOC(err, arena);
    VP_TRY(vp_cli_parse(&vp_cmd_study, argc, argv, cli, (void *[]){&o}, &line, err));
    if (!line.words[0])
        VP_TRY(vp_cli_lacks(&vp_cmd_study, "vplan study FILE: which study?", err));
    if (o.csv && cli->json)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--csv and --json are two forms: one at a time"));
    s.path = line.words[0];
    VP_TRY(vp_study_open_to_read(s.path, &file, err));
    VP_TRY(vp_study_list(file, arena, &s.requests, &s.n, err));
    if (cli->json)
        VP_TRY(vp_print_json(study_json(&s), err));
    else if (o.csv)
        print_csv(&s);
    else
        print_study(&s);
out:
    vp_study_close(file);
    vp_arena_free(arena);
    return st;
}

const vp_command vp_cmd_study = {
    .name      = "study",
    .summary   = "the trials that vplan tune kept in a file",
    .usage     = {"FILE [--csv]"},
    .about     = {"What was asked for, and what was tried for it, the best first: bytes, predicted "
                      "and measured time, and how much slower than the best. Those that were run "
                      "again or raced stand before those that ran once, since their times are surer.",
                  "The file is only read, also while vplan tune writes to it."},
    .examples  = {"vplan study study.db", "vplan study study.db --csv"},
    .sets      = {&options},
    .argument  = VP_TAKES_FILE,
    .max_words = 1,
    .run       = run,
};
