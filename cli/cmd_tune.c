/* vplan tune: measure here, plan with it, run the best plans, return the best tested. */
#include "cli/cli.h"
#include "cli/names.h"
#include "cli/rows.h"
#include "cli/screen.h"
#include "cli/tune_command.h"
#include "cli/words.h"

#include "base/file.h"
#include "base/output.h"
#include "base/text.h"
#include "base/units.h"
#include "tuner/tune.h"

#include <assert.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static json_t *seconds_or_null(double s)
{
    return s > 0 ? json_real(s) : json_null();
}

/* A time and its standard error, relative. */
static json_t *spread_json(const vp_spread *x)
{
    return x->seconds > 0 ? json_pack("{s:f, s:f}", "seconds", x->seconds, "error", x->error)
                          : json_null();
}

static json_t *threads_json(const vp_tune_result *r)
{
    json_t *tried = json_array();

    for (int i = 0; i < r->n_tried; i++)
        json_array_append_new(tried, json_pack("{s:i, s:o}", "threads", r->tried[i].threads, "step",
                                               spread_json(&r->tried[i].step)));
    return json_pack("{s:o, s:o}", "chosen", r->threads ? json_integer(r->threads) : json_null(),
                     "tried", tried);
}

static json_t *scenario_json(const vp_model *model, const vp_scenario *s)
{
    vp_text t = {0};
    json_t *words;

    vp_scenario_text(&t, model, s);
    words = json_string(vp_text_string(&t));
    vp_text_release(&t);
    return words;
}

static json_t *tune_json(const vp_model *model, const vp_tune_result *r, const char *path,
                         const char *study)
{
    json_t *trials = json_array(), *presets = json_array();

    for (int64_t i = 0; i < r->n_trials; i++) {
        const vp_trial *t = &r->trials[i];
        if (t->verdict != VP_VERDICT_DOES_NOT_FIT)
            json_array_append_new(
                trials,
                json_pack("{s:I, s:s, s:o, s:I, s:o, s:f, s:o, s:o, s:o, s:I, s:s, s:b}", "id",
                          (json_int_t)t->id, "verdict", vp_verdict_name(t->verdict), "plan",
                          scenario_json(model, &t->candidate.scenario), "predicted_bytes",
                          (json_int_t)t->candidate.figures.peak_bytes, "executed_bytes",
                          t->executed_bytes ? json_integer((json_int_t)t->executed_bytes)
                                            : json_null(),
                          "predicted_s", t->candidate.figures.step_time_s, "measured_s",
                          seconds_or_null(t->measured_s), "alone", spread_json(&t->alone), "raced",
                          spread_json(&t->raced), "runs", (json_int_t)t->n_runs, "evidence",
                          t->evidence, "from_study", (int)t->from_study));
        if (t->preset)
            json_array_append_new(presets, json_pack("{s:s, s:s, s:o}", "name", t->preset,
                                                     "verdict", vp_verdict_name(t->verdict),
                                                     "measured_s", seconds_or_null(t->measured_s)));
    }
    return json_pack(
        "{s:i, s:o, s:o, s:o, s:o, s:s, s:o, s:o}", "schema_version", 1, "best",
        r->best ? json_pack(
                      "{s:o, s:o, s:s, s:s, s:s, s:I, s:f}", "plan",
                      path ? json_string(path) : json_null(), "decisions",
                      scenario_json(model, &r->best->candidate.scenario), "precision",
                      vp_precision_name(r->best->candidate.scenario.recipe.precision), "gradients",
                      vp_gradients_name(r->best->candidate.scenario.recipe.gradients), "optimizer",
                      vp_optimizer_name(r->best->candidate.scenario.recipe.optimizer), "peak_bytes",
                      (json_int_t)r->best->candidate.figures.peak_bytes, "step_time_s",
                      r->best->measured_s)
                : json_null(),
        "trials", trials, "presets", presets, "regret_vs_best_preset",
        r->best && r->best_preset ? json_real((r->best->measured_s - r->best_preset->measured_s) /
                                              r->best_preset->measured_s)
                                  : json_null(),
        "stopped_because", r->stopped_because, "study", study ? json_string(study) : json_null(),
        "threads", threads_json(r));
}

/* Whether something else ran here: times taken beside it say little. */
static void print_load(void)
{
    double minute;
    long   cores = sysconf(_SC_NPROCESSORS_ONLN);

    /* one core is this program's own trials */
    if (getloadavg(&minute, 1) == 1 && cores > 0 && minute > (double)cores + 0.5)
        vp_screen_line("noisy",
                       "load %.1f on %ld cores: times are uncertain; tune again when the "
                       "machine is quiet",
                       minute, cores);
}

/* "153 ms" and "2.1%", or dashes, with a blank before each. */
static void print_spread(const vp_spread *x)
{
    char time[32], error[16] = "-";

    if (x->seconds > 0)
        snprintf(error, sizeof error, "%.*f%%", x->error < 0.0995 ? 1 : 0, 100 * x->error);
    printf(" %10s %5s", x->seconds > 0 ? vp_time_text(x->seconds, time, sizeof time) : "-", error);
}

static void print_trial(const vp_model *model, const vp_trial *t)
{
    char number[24], bytes[32], predicted[32];

    snprintf(number, sizeof number, t->id ? "%lld" : "-", (long long)t->id);
    printf("%-3s %-12s %11s %10s", number, vp_verdict_name(t->verdict),
           vp_size_text(t->candidate.figures.device_bytes, bytes, sizeof bytes),
           vp_time_text(t->candidate.figures.step_time_s, predicted, sizeof predicted));
    print_spread(&t->alone);
    print_spread(&t->raced);
    printf("\n");
    vp_print_scenario(t->preset       ? "preset"
                      : t->from_study ? "study"
                                      : "",
                      model, &t->candidate.scenario);
    if (t->verdict != VP_VERDICT_OK && t->evidence[0])
        vp_screen_line("", "%s", t->evidence);
}

/* The best beside the next: what a race can tell. */
static void print_best(const vp_tune_result *r)
{
    const vp_trial *second = NULL;
    char            time[32];

    printf("best       number %lld, %s a step\n", (long long)r->best->id,
           vp_time_text(r->best->measured_s, time, sizeof time));
    for (int64_t i = 0; i < r->n_trials; i++)
        if (&r->trials[i] != r->best && r->trials[i].raced.seconds > 0 &&
            (!second || r->trials[i].raced.seconds < second->raced.seconds))
            second = &r->trials[i];
    if (second && r->best->raced.seconds > 0)
        vp_screen_line("second", "number %lld, %.1f %% slower, +-%.1f %%", (long long)second->id,
                       100 * (second->raced.seconds / r->best->raced.seconds - 1),
                       100 * hypot(second->raced.error, r->best->raced.error));
}

static void print_threads(const vp_tune_result *r)
{
    vp_text text = {0};
    char    time[32];

    for (int i = 0; i < r->n_tried; i++)
        vp_text_printf(&text, "%s%d: %s +-%.0f %%", i ? ", " : "", r->tried[i].threads,
                       vp_time_text(r->tried[i].step.seconds, time, sizeof time),
                       100 * r->tried[i].step.error);
    if (r->n_tried > 1 && !text.failed)
        vp_screen_line("threads", "%d; a step of the first plan with %s", r->threads, text.data);
    vp_text_release(&text);
}

static void print_head(const vp_plan_request *request, const vp_tune_result *r)
{
    char measured[32], speed[64];

    if (r->best) {
        snprintf(speed, sizeof speed, "%s a step (measured)",
                 vp_time_text(r->best->measured_s, measured, sizeof measured));
        vp_screen_answer(r->best->candidate.figures.device_bytes, request->budget_bytes, speed);
        vp_screen_recipe(&r->best->candidate.scenario.recipe,
                         r->best->candidate.scenario.attention);
    } else {
        vp_screen_recipe(&request->recipe, request->attention == VP_ATTENTION_ANY
                                               ? VP_ATTENTION_FLASH
                                               : request->attention);
    }
    vp_screen_free(request);
}

/* The best one is run, or kept: a study need not run it again. */
static void print_next(const vp_tune_result *r, const char *path, const vp_command_line *line)
{
    vp_text command = {0};

    if (path) {
        vp_text_printf(&command, "vplan run ");
        vp_text_quoted(&command, path);
        if (r->n_tried > 1)
            vp_text_printf(&command, " --threads %d", r->threads);
    } else {
        vp_change_command(vp_cmd_tune.name, line, &(vp_change){0}, &command);
        vp_text_printf(&command, " -o best.json");
    }
    if (!command.failed)
        vp_screen_command("next", command.data);
    vp_text_release(&command);
}

/* Nothing fits: vplan plan says what would. */
static void print_unfit(int64_t least_bytes, int64_t budget_bytes, bool is_plan,
                        const vp_command_line *line)
{
    static const vp_option_change of_tune[] = {{"--max-trials", NULL, false, true},
                                               {"--study", NULL, false, true},
                                               {"--save-profile", NULL, false, true},
                                               {"-o", NULL, false, true},
                                               {"--force", NULL, false, true}};
    vp_text                       command   = {0};

    vp_screen_answer(least_bytes, budget_bytes, NULL);
    vp_screen_line("least", "--budget %lld", (long long)least_bytes);
    if (is_plan) {
        vp_text_printf(&command, "vplan explain ");
        vp_text_quoted(&command, line->words[0]);
    } else {
        vp_changed_command(vp_cmd_plan.name, line, NULL, of_tune, sizeof of_tune / sizeof *of_tune,
                           &command);
    }
    if (!command.failed)
        vp_screen_command("next", command.data);
    vp_text_release(&command);
}

static void print_tune(const vp_plan_request *request, const vp_tune_result *r, const char *path,
                       const vp_command_line *line)
{
    print_head(request, r);
    printf("%-3s %-12s %11s %10s %10s %5s %10s %5s\n", "", "verdict", "needs", "predicted", "alone",
           "+-", "raced", "+-");
    for (int64_t i = 0; i < r->n_trials; i++)
        print_trial(request->model, &r->trials[i]);
    if (r->best)
        print_best(r);
    print_threads(r);
    print_load();
    vp_screen_line("stopped", "%s", r->stopped_because);
    if (r->best && path)
        printf("written to %s\n", path);
    if (r->best)
        print_next(r, path, line);
}

static volatile sig_atomic_t asked_to_end;

static void note_signal(int number)
{
    asked_to_end = number;
}

/* Between two trials a signal is noted, and the tuner ends before the next; a second one ends the
 * program. */
static void note_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction note = {.sa_handler = note_signal, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    struct sigaction was;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (sigaction(numbers[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN)
            sigaction(numbers[i], &note, NULL);
}

/* The fastest that ran to its end; NULL: none. */
static const vp_trial *best_so_far(const vp_tune_result *r)
{
    const vp_trial *best = NULL;

    for (int64_t i = 0; i < r->n_trials; i++)
        if (r->trials[i].verdict == VP_VERDICT_OK && r->trials[i].measured_s > 0 &&
            (!best || r->trials[i].measured_s < best->measured_s))
            best = &r->trials[i];
    return best;
}

/* Ended by a signal: the best so far, and how to go on. */
static void print_interrupted(const vp_model *model, const vp_tune_result *r,
                              const vp_command_line *line, const char *study)
{
    const vp_trial *best    = best_so_far(r);
    vp_text         command = {0};
    char            time[32];

    printf("INTERRUPTED: %lld trials ran", (long long)r->n_trials);
    if (best)
        printf("; best so far number %lld, %s a step", (long long)best->id,
               vp_time_text(best->measured_s, time, sizeof time));
    printf("\n");
    if (best)
        vp_print_scenario("plan", model, &best->candidate.scenario);
    vp_screen_line("study",
                   study ? "what ran is kept; the same command goes on where this one ended"
                         : "nothing is kept without --study FILE; with it the next run goes on");
    vp_change_command(vp_cmd_tune.name, line, &(vp_change){0}, &command);
    vp_text_printf(&command, "%s", study ? "" : " --study study.db");
    vp_screen_command("next", vp_text_string(&command));
    vp_text_release(&command);
}

/* As vplan run judges it. */
static vp_status ask_signed(const vp_plan *plan, const char *path, bool unsigned_too, vp_err *err)
{
    if (plan->is_signed || unsigned_too)
        return VP_OK;
    return VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, "digest",
                      "the plan is not as vplan wrote it: it was edited, damaged, or made by an "
                      "older vplan; plan again, or tune what it says with --unsigned");
}

/* The plan's device, and its budget where none is given; what a CPU has free may be less by now. */
static vp_status budget_of_plan(const vp_plan *plan, const vp_plan_options *o, vp_plan_job *job,
                                vp_err *err)
{
    char      was[32], is[32], said[320];
    vp_status st = VP_OK;

    if (o->budget.bytes || o->budget.share > 0) {
        VP_TRY(vp_parse_budget(plan->device, &o->budget, &job->device, &job->request.budget_bytes,
                               err));
    } else {
        VP_TRY(vp_device_open(plan->device, &job->device, err));
        job->request.budget_bytes = plan->budget_bytes;
    }
    if (job->request.budget_bytes > job->device.usable_bytes) {
        snprintf(said, sizeof said,
                 "the plan's budget is %s, and %s are usable on %s now: with these",
                 vp_size_text(plan->budget_bytes, was, sizeof was),
                 vp_size_text(job->device.usable_bytes, is, sizeof is), plan->device);
        vp_output_say("note: ", said);
        job->request.budget_bytes = job->device.usable_bytes;
    }
    VP_TRY(vp_parse_reserve(&o->reserve, &job->device, &job->request.budget_bytes, err));
out:
    return st;
}

/* tune PLAN: the plan's model, recipe, shapes and budget; the options may not say them again. */
static vp_status job_from_plan(const char *path, const vp_plan_options *o, bool unsigned_too,
                               vp_plan_job *job, vp_err *err)
{
    vp_plan     *plan = NULL;
    vp_json_doc *doc  = NULL;
    vp_text      text = {0};
    vp_status    st   = VP_OK;

    VP_TRY(vp_plan_read(path, &plan, err));
    VP_TRY(ask_signed(plan, path, unsigned_too, err));
    if (o->seq || o->global_batch || o->recipe || o->lora || o->device || o->optimizer ||
        o->precision || o->gradients || o->class_name)
        VP_TRY(VP_FAIL(
            err, VP_ERR_USAGE,
            "a plan already says its class, sequence, batch, recipe and device; give a MODEL to change them"));
    job->request =
        (vp_plan_request){.recipe       = plan->recipe,
                          .seq          = plan->buckets[0].seq,
                          .global_batch = plan->global_batch,
                          .micro_batch  = o->micro_batch,
                          .recompute    = VP_RECOMPUTE_ANY,
                          .loss_chunk   = VP_CHUNK_ANY,
                          .host_bytes   = o->host_bytes ? o->host_bytes : plan->host_peak_bytes,
                          .pinned_bytes = o->pinned_bytes || o->host_bytes
                                              ? o->pinned_bytes
                                              : vp_plan_memory_bytes(plan, VP_MEMORY_HOST_PINNED),
                          .gap          = 1e-5};
    const char *attention = json_string_value(json_object_get(plan->settings, "attention"));
    if (o->attention || attention)
        VP_TRY(vp_parse_attention(o->attention ? o->attention : attention, true,
                                  &job->request.attention, err));
    if (o->recompute)
        VP_TRY(vp_parse_recompute(o->recompute, &job->request.recompute, &job->request.n_segments,
                                  err));
    if (o->loss)
        VP_TRY(vp_parse_loss(o->loss, &job->request.loss_chunk, err));
    if (o->profile) {
        VP_TRY(vp_profile_read(o->profile, &job->profile, err));
        job->request.profile = job->profile;
    }
    VP_TRY(budget_of_plan(plan, o, job, err));
    VP_TRY(vp_parse_host(o, &job->device, &job->request, err));
    VP_TRY(vp_parse_updates(o, &job->device, &job->request, err));
    if (job->profile)
        vp_device_calibrate(&job->device, job->profile);
    VP_TRY_ALLOC(err, vp_json_dump(plan->model_config, &text));
    VP_TRY(vp_json_parse(path, text.data, (int64_t)text.n_bytes, &doc, err));
    vp_json_node config = vp_json_root(doc);
    VP_TRY(vp_model_from_config(
        plan->model_name, &config,
        &(vp_model_opts){.dropout = plan->recipe.dropout, .lora = &plan->recipe.lora}, &job->model,
        err));
    job->request.model  = job->model;
    job->request.device = &job->device;
    VP_TRY(vp_say_refusal(vp_request_refusal(&job->request), err));
out:
    vp_text_release(&text);
    vp_json_doc_free(doc);
    vp_plan_free(plan);
    return st;
}

/* A plan file is an object with "buckets"; a config.json has none. A file that is no JSON is an
 * error of its own. */
static vp_status is_plan_file(const char *path, bool *is_plan, vp_err *err)
{
    vp_json_doc *doc = NULL;
    struct stat  info;
    vp_status    st = VP_OK;

    *is_plan = false;
    /* a built-in model, a folder, or nothing */
    if (strcmp(path, "-") == 0 || stat(path, &info) != 0 || S_ISDIR(info.st_mode))
        return VP_OK;
    VP_TRY(vp_json_read(path, VP_PLAN_MAX_BYTES, &doc, err));
    *is_plan = json_object_get(vp_json_root(doc).value, "buckets") != NULL;
out:
    vp_json_doc_free(doc);
    return st;
}

typedef struct tune_options {
    const char *path, *study, *profile_path;
    int64_t     max_trials;
    bool        force, unsigned_too;
} tune_options;

static const vp_option rows[] = {
    {.name    = "--max-trials",
     .kind    = VP_OPTION_COUNT,
     .at      = offsetof(tune_options, max_trials),
     .value   = "N",
     .unit    = "plans",
     .min     = 1,
     .help    = "Plans to run beside the presets",
     .preset  = "6",
     .example = "12"},
    {.name      = "--study",
     .kind      = VP_OPTION_OUTPUT,
     .at        = offsetof(tune_options, study),
     .value     = "FILE",
     .help      = "Keep trials and profiles in this SQLite file, made where there is none; a "
                  "finished trial of the same request is not run again, nor is one of a request "
                  "that differs in its budget only",
     .otherwise = "none, nothing is remembered",
     .example   = "study.db"},
    {VP_ROW_OUT(tune_options, path, "plan.json"), .value = "PLAN",
     .help = "Write the best plan, with measured times", .otherwise = "none"},
    {.name      = "--save-profile",
     .kind      = VP_OPTION_OUTPUT,
     .at        = offsetof(tune_options, profile_path),
     .value     = "FILE",
     .help      = "Write what was measured, corrected by the trials, for --profile",
     .otherwise = "none",
     .example   = "profile.json"},
    {.name = "--unsigned",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(tune_options, unsigned_too),
     .help = "Also a PLAN that is not as vplan wrote it, by its digest: what it says of model, "
             "recipe and shapes is tuned"},
    VP_ROW_FORCE(tune_options, force),
};
static const vp_option_set options = {VP_ROWS(rows)};

static const vp_option command_rows[] = {
    {.name     = "--try",
     .kind     = VP_OPTION_TEXT,
     .at       = offsetof(vp_tune_command_options, last_try),
     .value    = "NAME=V1,V2,...",
     .repeats  = true,
     .any_word = true,
     .help =
         "What may change in CMD, and its values: an option of CMD with its dashes, the key of a word key=value (train.batch_size), or "
         "{NAME} in it; on and off of an option without a value; a key of a YAML, JSON or TOML file that CMD names (data.batch_size), or a setting "
         "that its files say (recompute). May be given several times",
     .otherwise =
         "of the options of transformers and of diffusers' example scripts, of ultralytics' command (batch) and of the files of Transformers, TRL, Accelerate, DeepSpeed, axolotl, LLaMA-Factory, "
         "Lightning and torchtitan, micro-batch and accumulation at the same global batch, checkpointing, the variant of "
         "AdamW, attention, loss and offload where they are named, and expandable segments where memory runs out by fragments",
     .example = "--batch-size=1,2,4,8"},
    {.name      = "--keep",
     .kind      = VP_OPTION_TEXT,
     .at        = offsetof(vp_tune_command_options, last_keep),
     .value     = "NAME*NAME=N",
     .repeats   = true,
     .any_word  = true,
     .help      = "A product that must not change. May be given several times",
     .otherwise = "none",
     .example   = "batch*accum=64"},
    {.name    = "--steps",
     .kind    = VP_OPTION_COUNT,
     .at      = offsetof(vp_tune_command_options, steps),
     .value   = "N",
     .unit    = "optimizer steps",
     .min     = 2,
     .max     = 1000,
     .help    = "Played in a trial, and one more that is timed",
     .preset  = "3",
     .example = "5"},
    {.name    = "--world",
     .kind    = VP_OPTION_COUNT,
     .at      = offsetof(vp_tune_command_options, world),
     .value   = "N",
     .unit    = "processes",
     .min     = 1,
     .help    = "Run as rank 0 of N, as dryrun does",
     .preset  = "1",
     .example = "8"},
    {.name      = "--jobs",
     .kind      = VP_OPTION_COUNT,
     .at        = offsetof(vp_tune_command_options, jobs),
     .value     = "N",
     .unit      = "trials",
     .min       = 1,
     .max       = 16,
     .help      = "Side by side",
     .otherwise = "as many as there are cores and host memory",
     .example   = "2"},
    {.name  = "--on-card",
     .kind  = VP_OPTION_COUNT,
     .at    = offsetof(vp_tune_command_options, on_card),
     .value = "N",
     .unit  = "settings",
     .max   = 100,
     .help  = "Of the best settings, how many really train for a few steps when all is tried, one "
              "after the other, and CMD as it is beside them; the fastest of these is the answer",
     .otherwise = "3 for the card here, 0 for another, which --device names",
     .example   = "5"},
    {.name    = "--timeout",
     .kind    = VP_OPTION_REAL,
     .at      = offsetof(vp_tune_command_options, timeout_s),
     .value   = "SECONDS",
     .unit    = "seconds",
     .low     = 1,
     .high    = 1e6,
     .help    = "End a trial after this time",
     .preset  = "600",
     .example = "120"},
};
static const vp_option_set command_options = {"tuning a command", VP_ROWS(command_rows)};

static bool is_given(const vp_command_line *line, const char *name)
{
    for (int i = 0; i < line->n_given; i++)
        if (strcmp(line->given[i].option->name, name) == 0)
            return true;
    return false;
}

static vp_status none_of_a_command(const vp_command_line *line, vp_err *err)
{
    for (int i = 0; i < command_options.n; i++)
        if (is_given(line, command_rows[i].name))
            return VP_FAIL(err, VP_ERR_USAGE,
                           "%s belongs to tuning a command: vplan tune [options] -- CMD...",
                           command_rows[i].name);
    return VP_OK;
}

/* What tuning a command takes from the options that tuning a model has too. */
static void share_options(const vp_plan_options *o, const tune_options *w,
                          const vp_command_line *line, vp_tune_command_options *c)
{
    c->device     = o->device;
    c->budget     = o->budget;
    c->study      = w->study;
    c->folder     = w->path;
    c->force      = w->force;
    c->max_trials = is_given(line, "--max-trials") ? w->max_trials : 0;
    c->on_card    = is_given(line, "--on-card") ? c->on_card : -1;
}

/* Plan, profile and study are three files, and none of them is read. */
static vp_status check_outputs(const char *name, const vp_plan_options *o, const tune_options *w,
                               vp_err *err)
{
    vp_status st = VP_OK;

    if (w->path)
        VP_TRY(vp_output_check(
            w->path, w->force,
            (const char *const[]){name, o->recipe, o->device, o->profile, w->study}, 5, err));
    if (w->path && w->study && strcmp(w->path, w->study) == 0)
        VP_TRY(VP_FAIL_AT(err, VP_ERR_USAGE, w->path, 0, NULL,
                          "is the study too; write the plan elsewhere"));
    if (w->profile_path)
        VP_TRY(vp_output_check(w->profile_path, w->force,
                               (const char *const[]){name, o->recipe, o->device, w->study}, 4,
                               err));
    if (w->profile_path && ((w->study && strcmp(w->profile_path, w->study) == 0) ||
                            (w->path && strcmp(w->profile_path, w->path) == 0)))
        VP_TRY(VP_FAIL_AT(err, VP_ERR_USAGE, w->profile_path, 0, NULL,
                          "is the study or the plan too; write the profile elsewhere"));
out:
    return st;
}

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    vp_plan_options         o      = {0};
    vp_tune_command_options c      = {0};
    tune_options            w      = {0};
    vp_plan_job             job    = {0};
    vp_tune_opts            opts   = {0};
    vp_tune_result          result = {0};
    vp_plan                *plan   = NULL;
    vp_text                 asked  = {0};
    vp_command_line         line;
    const char             *name;
    bool                    is_plan = false;
    vp_status               st      = VP_OK;

    VP_TRY(
        vp_cli_parse(&vp_cmd_tune, argc, argv, cli, (void *[]){&o, &o, &w, &c, cli}, &line, err));
    if (line.rest) {
        share_options(&o, &w, &line, &c);
        VP_TRY(vp_tune_command(&c, &line, cli, err));
        goto out;
    }
    VP_TRY(none_of_a_command(&line, err));
    name = line.words[0];
    vp_change_command(vp_cmd_tune.name, &line, &(vp_change){0}, &asked);
    opts = (vp_tune_opts){.max_trials = w.max_trials,
                          .study      = w.study,
                          .asked      = vp_text_string(&asked),
                          .note       = cli->quiet ? NULL : vp_cli_progress,
                          .ended      = &asked_to_end};
    if (!name)
        VP_TRY(vp_cli_lacks(&vp_cmd_tune, "vplan tune MODEL|PLAN, or -- CMD...: which?", err));
    VP_TRY(vp_device_named(cli, &o.device, err));
    VP_TRY(check_outputs(name, &o, &w, err));
    VP_TRY(is_plan_file(name, &is_plan, err));
    if (!is_plan)
        VP_TRY(vp_model_named(cli, &name, err));
    VP_TRY(is_plan ? job_from_plan(name, &o, w.unsigned_too, &job, err)
                   : vp_plan_job_open(name, &o, &job, err));
    if (!job.device.is_cpu && job.device.compute_capability == 0)
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "tune runs its trials here, and no backend runs on %s",
                       job.device.name));
    note_signals();
    st = vp_tune(&job.request, &opts, &result, err);
    if (st == VP_ERR_NO_TRIAL && !cli->json)
        print_interrupted(job.model, &result, &line, opts.study);
    if (st != VP_OK)
        goto out;
    VP_TRY(vp_say_empty(&job.request, &result.answer, err));
    if (result.best && w.path) {
        VP_TRY(vp_tune_best_plan(&job.request, &result, &plan, err));
        VP_TRY(vp_plan_write(plan, w.path, w.force, err));
    }
    if (w.profile_path && result.n_trials > 0)
        VP_TRY(vp_profile_write(result.profile, w.profile_path, w.force, err));
    if (cli->json)
        VP_TRY(vp_print_json(tune_json(job.model, &result, w.path, opts.study), err));
    else if (result.answer.n_candidates == 0)
        print_unfit(result.answer.least_budget_bytes, job.request.budget_bytes, is_plan, &line);
    else
        print_tune(&job.request, &result, w.path, &line);
    assert(!result.best || result.n_trials > 0);
    cli->exit_code = result.answer.n_candidates == 0 ? 3 : result.best ? 0 : 6;
out:
    vp_plan_free(plan);
    vp_text_release(&asked);
    vp_tune_result_release(&result);
    vp_plan_job_release(&job);
    return st;
}

const vp_command vp_cmd_tune = {
    .name    = "tune",
    .summary = "the fastest settings that fit, found by trying them",
    .usage = {"MODEL --seq N --global-batch N [options]", "PLAN [options]", "[options] -- CMD..."},
    .about =
        {"Time the kernel calls here, plan with these times, train the fastest plan and "
         "every preset that fits for a few steps each, and return the fastest that ran.",
         "After each trial the times are corrected by what the calls took in it, and the "
         "space is planned again; the fastest plan not yet tested is run while it "
         "promises 1 % or more. Those near the best then race: all alive in one process, "
         "a step of each in turns.",
         "Takes plan's options; --profile is where the times start, and is measured anew "
         "where the first trial contradicts it. A PLAN in place of a model brings its own "
         "sequence, batch, recipe, device, budget and host memory.",
         "With -- CMD, the fastest arguments of a PyTorch training command of your own that fit a card, "
         "without the card: each trial is a dry run (vplan dryrun) of a few steps in a folder of its own. Seconds "
         "are by the card's rates, derated as plan's are; the best train for a few steps at the end where the card is the one here "
         "(--on-card). --device, --budget, --study, --max-trials (24 there) and -o, a folder that gets "
         "the command as run.sh and the edited files, are as above. Settings files that CMD names are read; a trial gets an edited "
         "copy, with output folders of its own, and the user's are never written."},
    .examples   = {"vplan tune gpt2-tiny --seq 128 --global-batch 8 --study study.db",
                   "vplan tune plan.json --study study.db -o best.json",
                   "vplan tune --try batch=1,2,4 -- python3 train.py --batch {batch}",
                   "vplan tune --device l4 -o best -- python3 sft.py sft.yaml"},
    .sets       = {&vp_plan_options_set, &vp_pin_options_set, &options, &command_options,
                   &vp_note_options},
    .argument   = VP_TAKES_MODEL,
    .max_words  = 1,
    .takes_rest = true,
    .run        = run,
};
