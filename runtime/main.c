/* vplan-run: execute a plan, or time kernels, on a backend. One process for each trial; vplan
 * starts it. `vplan-run --help` has the options.
 *
 * Without --backend a plan runs where it was planned for: on the CPU, or by the CUDA backend, a
 * plugin beside this program.
 *
 * --compare: PLANS are files, or - for standard input, each with a plan or an array of plans.
 * All are alive at once and take turns, step by step (runtime/compare.h). */
#include "base/checked.h"
#include "base/file.h"
#include "base/json.h"
#include "base/options.h"
#include "base/output.h"
#include "base/safetensors.h"
#include "base/stats.h"
#include "base/text.h"
#include "base/units.h"
#include "runtime/call_times.h"
#include "runtime/compare.h"
#include "runtime/data.h"
#include "runtime/measure_link.h"
#include "runtime/measure_overhead.h"
#include "runtime/memory_print.h"
#include "runtime/plugin.h"
#include "runtime/profile_ops.h"
#include "runtime/run_options.h"
#include "runtime/runtime.h"

#include <assert.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

typedef struct args {
    vp_run_args     run;
    const char     *profile;
    double          seconds;
    bool            json, help, describe, step_on_input, compare;
    vp_command_line line; /* its words are the plans */
} args;

typedef struct results {
    vp_step_result  *steps;
    int64_t          n_steps;
    double           median_step_s; /* 0: no step */
    vp_memory_report memory;
    vp_call_times    times;
    char             sha256[65];
    int64_t          process_peak_bytes;
    vp_memory_points points;
    vp_overhead      outside;
    const char      *why_not; /* outside was not measured */
    /* what --init did not find, or not use; NULL: parameters were drawn */
    json_t *init;
} results;

/* VmHWM of /proc/self/status: the kernel's count of the most this process had resident. Without
 * /proc what getrusage() says, which also knows of what was there before exec. */
static int64_t process_peak_bytes(void)
{
    FILE         *f = fopen("/proc/self/status", "r");
    char          line[200];
    long long     kib = -1;
    struct rusage usage;

    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %lld kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    if (kib < 0 && getrusage(RUSAGE_SELF, &usage) == 0)
        kib = usage.ru_maxrss;
    return kib < 0 ? -1 : (int64_t)kib * 1024;
}

/* What `vplan run` has not. */
static const vp_option rows[] = {
    {.name = "--compare",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(args, compare),
     .help = "Several plans take turns, a step of each, all alive at once on random tokens: how "
             "much slower each is than the first"},
    {.name      = "--profile",
     .kind      = VP_OPTION_INPUT,
     .at        = offsetof(args, profile),
     .value     = "REQUEST|-",
     .help      = "Time the kernel calls of a profile without times; the profile goes to standard "
                  "output",
     .otherwise = "a plan is run",
     .example   = "request.json"},
    {.name    = "--seconds",
     .kind    = VP_OPTION_REAL,
     .at      = offsetof(args, seconds),
     .value   = "S",
     .unit    = "seconds",
     .high    = 1e6,
     .help    = "How long --profile may take",
     .preset  = "60",
     .example = "20"},
    {.name = "--describe",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(args, describe),
     .help = "What runs here, as JSON"},
    {.name = "--step-on-input",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(args, step_on_input),
     .help = "One step for each line read from standard input, its line printed at once, until the "
             "input or the steps end; so two programs take turns on one machine"},
    {.name    = "--json",
     .kind    = VP_OPTION_FLAG,
     .at      = offsetof(args, json),
     .help    = "Print one JSON document, also for errors",
     .repeats = true},
    {.name = "--help",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(args, help),
     .help = "Say this, and stop"},
};
static const vp_option_set own_options   = {"vplan-run's own", rows, sizeof rows / sizeof *rows};
static const vp_option_set *const sets[] = {&vp_run_options, &own_options};
enum { N_SETS = sizeof sets / sizeof *sets };

static vp_status print_help(vp_err *err)
{
    vp_text   text = {0};
    vp_status st   = VP_OK;

    vp_text_printf(&text, "usage: vplan-run PLAN [options]\n"
                          "       vplan-run --compare PLANS... [options]\n"
                          "       vplan-run --profile REQUEST|- [options]\n"
                          "       vplan-run --describe [options]\n");
    vp_options_help(sets, N_SETS, &text);
    VP_TRY_ALLOC(err, !text.failed);
    fputs(text.data, stdout);
    VP_TRY(vp_output_end(err));
out:
    vp_text_release(&text);
    return st;
}

static vp_status parse_args(int argc, char **argv, args *a, vp_err *err)
{
    const vp_options_spec spec = {.sets = sets, .n_sets = N_SETS, .max_words = VP_MAX_WORDS};
    const vp_run_args    *r    = &a->run;
    int                   n;
    char                  x[128], y[128];
    vp_status             st = VP_OK;

    VP_TRY(vp_options_parse(&spec, argc - 1, argv + 1, (void *[]){&a->run, a}, &a->line, err));
    n = a->line.n_words;
    if (n == 0 && !a->profile && !a->describe)
        VP_TRY(VP_FAIL(
            err, VP_ERR_USAGE,
            "vplan-run PLAN [options], vplan-run --compare PLANS, vplan-run --profile REQUEST, or vplan-run --describe"));
    if (n > 1 && !a->compare)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "one PLAN, please, or --compare: %s and %s",
                       vp_text_escape(a->line.words[0], x, sizeof x),
                       vp_text_escape(a->line.words[1], y, sizeof y)));
    if (a->compare &&
        (r->data || r->init || r->adapters || r->save || r->save_merged || r->save_initial ||
         r->save_profile || r->verify || r->eager || a->step_on_input))
        VP_TRY(VP_FAIL(
            err, VP_ERR_USAGE,
            "several plans train on random tokens from drawn parameters, and nothing is saved: no --data, --init, --adapters, --save, --save-merged, --save-initial, --save-profile, --verify, --eager"));
out:
    return st;
}

/* ---- what --init did not find, or not use ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A copy whose words of digits are {}: blocks differ in their number only. */
static char *numberless(const char *name)
{
    char *copy = malloc(2 * strlen(name) + 1), *to = copy;

    while (copy && *name) {
        size_t n      = strcspn(name, ".");
        bool   number = n > 0 && strspn(name, "0123456789") == n;
        to += sprintf(to, "%.*s", number ? 2 : (int)n, number ? "{}" : name);
        name += n;
        if (*name)
            *to++ = *name++;
    }
    if (copy)
        *to = '\0';
    return copy;
}

/* On standard error, sorted, those of all blocks as one. --json has each. */
static vp_status tell_names(const char *what, const char **names, int64_t n, vp_err *err)
{
    enum { MAX_SHOWN = 32 };
    char    **list    = calloc((size_t)n + 1, sizeof *list);
    int64_t   n_shown = 0;
    char      shown[200], times[32];
    vp_status st = VP_OK;

    VP_TRY_ALLOC(err, list);
    for (int64_t i = 0; i < n; i++) {
        list[i] = numberless(names[i]);
        VP_TRY_ALLOC(err, list[i]);
    }
    qsort(list, (size_t)n, sizeof *list, by_name);
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && strcmp(list[i], list[end]) == 0;)
            end++;
        if (n_shown++ == MAX_SHOWN) {
            fprintf(stderr, "%s: %lld more, named with --json\n", what, (long long)(n - i));
            break;
        }
        times[0] = '\0';
        if (end - i > 1)
            snprintf(times, sizeof times, " (x%lld)", (long long)(end - i));
        fprintf(stderr, "%s: %s%s\n", what, vp_text_escape(list[i], shown, sizeof shown), times);
    }
out:
    for (int64_t i = 0; list && i < n; i++)
        free(list[i]);
    free(list);
    return st;
}

static json_t *names_json(const char **names, int64_t n)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(names[i]));
    return list;
}

static vp_status load(const args *a, vp_runtime *rt, json_t **out, vp_err *err)
{
    vp_load_report x;
    vp_status      st = VP_OK;

    VP_TRY(vp_runtime_load(rt, a->run.init, &x, err));
    if (!a->run.quiet) {
        VP_TRY(
            tell_names("--init: not there, drawn by the family's rule", x.drawn, x.n_drawn, err));
        VP_TRY(tell_names("--init: not used", x.unused, x.n_unused, err));
    }
    *out = json_pack("{s:o, s:o}", "drawn", names_json(x.drawn, x.n_drawn), "unused",
                     names_json(x.unused, x.n_unused));
    VP_TRY_ALLOC(err, *out);
out:
    return st;
}

/* ---- run ---- */

/* False at the end of input; what stands on the line does not matter. */
static bool line_came(void)
{
    int c;

    do
        c = getchar();
    while (c != EOF && c != '\n');
    return c == '\n';
}

/* A skipped step has no norm to tell; its scale is the one that was too large. */
static void print_step(FILE *to, int64_t number, const vp_step_result *s)
{
    char text[32];

    fprintf(to, "step %lld  loss %.6f  ", (long long)number, s->loss);
    if (s->skipped)
        fprintf(to, "skipped, gradients overflow at loss scale %g  ", 2 * s->loss_scale);
    else
        fprintf(to, "grad norm %.4f  ", s->grad_norm);
    fprintf(to, "%s\n", vp_time_text(s->seconds, text, sizeof text));
}

static vp_status train(const args *a, const vp_plan *plan, const vp_backend *backend,
                       vp_runtime *rt, vp_data *data, results *r, vp_err *err)
{
    int64_t   n_tokens = vp_plan_tokens(plan);
    int32_t  *tokens   = malloc((size_t)n_tokens * sizeof *tokens);
    int32_t  *labels   = malloc((size_t)n_tokens * sizeof *labels);
    vp_status st       = VP_OK;

    VP_TRY_ALLOC(err, tokens && labels);
    assert(a->run.steps > 0 && r->steps);
    for (r->n_steps = 0; r->n_steps < a->run.steps && (!a->step_on_input || line_came());) {
        vp_step_result *s = &r->steps[r->n_steps];
        VP_TRY(vp_data_step(data, r->n_steps, tokens, labels, err));
        VP_TRY(vp_runtime_step(rt, &(vp_batch){.tokens = tokens, .labels = labels}, s, err));
        /* the first counts only where it is the only one: it meets every page for the first time */
        if (r->n_steps == 1)
            vp_call_times_forget(&r->times);
        VP_TRY(vp_call_times_add(&r->times, rt, err));
        if (r->n_steps++ == 0)
            VP_TRY(
                vp_memory_note(backend, VP_OVERHEAD_FIRST_STEP, plan->peak_bytes, &r->points, err));
        if (!a->json || !a->run.quiet) /* beside a document it is a note */
            print_step(a->json ? stderr : stdout, r->n_steps, s);
        fflush(stdout);
    }
out:
    free(tokens);
    free(labels);
    return st;
}

/* Median of the steps but the first, which also meets every page for the first time. */
static vp_status find_median_step(results *r, vp_err *err)
{
    int64_t   first   = r->n_steps > 1 ? 1 : 0;
    double   *seconds = malloc((size_t)(r->n_steps + 1) * sizeof *seconds);
    vp_status st      = VP_OK;

    assert(first <= r->n_steps && r->n_steps >= 0);
    VP_TRY_ALLOC(err, seconds);
    for (int64_t i = first; i < r->n_steps; i++)
        seconds[i - first] = r->steps[i].seconds;
    r->median_step_s = vp_median(seconds, r->n_steps - first);
out:
    free(seconds);
    return st;
}

/* A step's time by kernel, and by kernel and shape. */
static json_t *kernels_json(const vp_kernel_time *times, int64_t n)
{
    json_t *list = json_array();

    for (int k = 0; k < VP_N_KERNELS; k++) {
        vp_kernel_time sum = {0};
        for (int64_t i = 0; i < n; i++)
            if ((int)times[i].kernel == k) {
                sum.n_calls += times[i].n_calls;
                sum.seconds += times[i].seconds;
            }
        if (sum.n_calls)
            json_array_append_new(list, json_pack("{s:s, s:I, s:f}", "name",
                                                  vp_kernel_info_of((vp_kernel)k)->name, "calls",
                                                  (json_int_t)sum.n_calls, "seconds", sum.seconds));
    }
    return list;
}

static json_t *kernel_calls_json(const vp_kernel_time *times, int64_t n)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < n; i++) {
        const vp_kernel_info *info = vp_kernel_info_of(times[i].kernel);
        json_t               *j    = json_pack("{s:s}", "kernel", info->name);
        if (times[i].n_calls == 0) {
            json_decref(j);
            continue;
        }
        if (j && times[i].dtype != VP_DTYPE_F32)
            json_object_set_new(j, "dtype", json_string(vp_dtype_name(times[i].dtype)));
        if (j)
            vp_ints_write(j, times[i].kernel, times[i].ints);
        if (j && vp_lacks_write(j, times[i].kernel, times[i].lacks)) {
            json_object_set_new(j, "calls", json_integer((json_int_t)times[i].n_calls));
            json_object_set_new(j, "seconds", json_real(times[i].seconds));
        }
        json_array_append_new(list, j);
    }
    return list;
}

static json_t *points_json(const results *r)
{
    json_t *list = json_array();

    for (int i = 0; i < r->points.n; i++) {
        const vp_backend_memory *m = &r->points.at[i].memory;
        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:o}", "phase",
                                              vp_overhead_phase_name(r->points.at[i].phase),
                                              "total_bytes", (json_int_t)m->total_bytes,
                                              "free_bytes", (json_int_t)m->free_bytes, "used_bytes",
                                              vp_json_int_or_null(m->used_bytes)));
    }
    return list;
}

/* Outside the plan's arena, as the plan counts it: with what the arena is rounded up by.
 * Negative: not measured. */
static int64_t outside_bytes(const vp_plan *plan, const vp_overhead *outside)
{
    return outside->measured_by == VP_OVERHEAD_NOT_MEASURED
               ? -1
               : outside->bytes + vp_round_up(plan->peak_bytes, VP_DEVICE_GRANULE_BYTES) -
                     plan->peak_bytes;
}

/* Of the arena, in words: by which count it was touched. */
static const char *touched_by(const args *a, const vp_backend *backend)
{
    return a->run.verify ? "poison" : backend->host_memory ? "resident pages" : "device allocation";
}

/* A number that JSON cannot write is null. */
static json_t *step_json(const vp_step_result *s)
{
    json_t *j = json_pack("{s:f, s:o, s:f}", "loss", s->loss, "grad_norm",
                          isfinite(s->grad_norm) ? json_real(s->grad_norm) : json_null(), "seconds",
                          s->seconds);

    if (j && s->loss_scale > 0) {
        json_object_set_new(j, "loss_scale", json_real(s->loss_scale));
        json_object_set_new(j, "skipped", json_boolean(s->skipped));
    }
    return j;
}

static json_t *results_json(const vp_plan *plan, const vp_backend *backend, const args *a,
                            const results *r)
{
    json_t *steps  = json_array();
    double  step_s = r->median_step_s;

    for (int64_t i = 0; i < r->n_steps; i++)
        json_array_append_new(steps, step_json(&r->steps[i]));
    return json_pack(
        "{s:i, s:s, s:s, s:o, s:I, s:s?, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:f, s:s?, s:O?, s:{s:f}}",
        "schema_version", 1, "backend", backend->name, "backend_description", backend->describe(),
        "memories", vp_memories_json(&r->memory, touched_by(a, backend)), "outside_bytes",
        (json_int_t)plan->outside_bytes, "outside_class", plan->outside_class,
        "outside_measured_bytes", vp_json_int_or_null(outside_bytes(plan, &r->outside)), "outside",
        vp_overhead_to_json(&r->outside), "process_peak_bytes", (json_int_t)r->process_peak_bytes,
        "process_predicted_bytes", vp_json_int_or_null(plan->process_predicted_bytes), "steps",
        steps, "device_memory", points_json(r), "kernels", kernels_json(r->times.at, r->times.n),
        "kernel_calls", kernel_calls_json(r->times.at, r->times.n), "tokens_per_s",
        step_s > 0 ? (double)vp_plan_tokens(plan) / step_s : 0.0, "parameters_sha256",
        r->sha256[0] ? r->sha256 : NULL, "init", r->init, "timing", "pinning_s",
        r->memory.pinning_s);
}

/* A plan may be for what was measured elsewhere. */
static void print_outside(const vp_plan *plan, const vp_backend *backend, const results *r)
{
    const char *class_ = plan->outside_class ? plan->outside_class : "assumed";
    int64_t     bytes  = outside_bytes(plan, &r->outside);
    char        x[32], y[32];

    printf("outside    %s predicted (%s%s), ", vp_size_text(plan->outside_bytes, x, sizeof x),
           class_,
           strcmp(class_, "measured") == 0 &&
                   (!plan->outside_of || strcmp(plan->outside_of, backend->describe()) != 0)
               ? " elsewhere"
               : "");
    if (bytes < 0)
        printf("not measured: %s\n", r->why_not);
    else
        printf("%s measured by the use of the %s: %lld bytes off\n",
               vp_size_text(bytes, y, sizeof y), vp_overhead_by_name(r->outside.measured_by),
               (long long)(bytes - plan->outside_bytes));
}

/* In the words of plan and explain. */
static void print_answer(const vp_plan *plan)
{
    char fits[128], time[32];

    printf(
        "FITS: %s, %s a step (%s)\n",
        vp_fit_text(plan->peak_bytes + plan->outside_bytes, plan->budget_bytes, fits, sizeof fits),
        vp_time_text(plan->step_time_s, time, sizeof time), plan->time_class);
}

static void print_results(const vp_plan *plan, const vp_backend *backend, const args *a,
                          const results *r)
{
    char    x[32], y[32], name[400];
    vp_text described = {0};

    vp_text_printf(&described, "backend    ");
    snprintf(name, sizeof name, "%s: %s", backend->name, backend->describe());
    vp_text_wrap(name, 11, 11, &described);
    printf("\n%s", vp_text_string(&described));
    vp_text_release(&described);
    vp_memories_print(&r->memory, touched_by(a, backend));
    if (r->memory.pinned_bytes)
        printf("host       %s pinned, for what a step is given and gives%s; taken in %s\n",
               vp_size_text(r->memory.pinned_bytes, x, sizeof x),
               plan->host_peak_bytes ? ", beside the host arena" : "",
               vp_time_text(r->memory.pinning_s, y, sizeof y));
    for (int i = 0; i < r->points.n; i++) {
        const vp_memory_point *p = &r->points.at[i];
        printf("device     %s free after %s%s%s\n", vp_size_text(p->memory.free_bytes, x, sizeof x),
               vp_overhead_phase_name(p->phase),
               p->memory.used_bytes < 0 ? "" : ", used by this process: ",
               p->memory.used_bytes < 0 ? "" : vp_size_text(p->memory.used_bytes, y, sizeof y));
    }
    if (!backend->host_memory)
        print_outside(plan, backend, r);
    if (plan->process_predicted_bytes >= 0)
        printf("process    %s predicted, %s peak RSS\n",
               vp_size_text(plan->process_predicted_bytes, x, sizeof x),
               vp_size_text(r->process_peak_bytes, y, sizeof y));
    if (r->n_steps)
        printf("step       %s predicted (%s), %s measured, %.0f tokens/s\n",
               vp_time_text(plan->step_time_s, x, sizeof x), plan->time_class,
               vp_time_text(r->median_step_s, y, sizeof y),
               (double)vp_plan_tokens(plan) / r->median_step_s);
    if (r->sha256[0])
        printf("sha256     %s\n", r->sha256);
}

static vp_status print_json(json_t *j, vp_err *err)
{
    vp_text   text = {0};
    vp_status st   = VP_OK;

    VP_TRY_ALLOC(err, j && vp_json_dump(j, &text));
    fwrite(text.data, 1, text.n_bytes, stdout);
    VP_TRY(vp_output_end(err));
out:
    vp_text_release(&text);
    json_decref(j);
    return st;
}

/* What passes every check may still train something else than was planned. */
static vp_status ask_signed(const args *a, const vp_plan *plan, const char *path, vp_err *err)
{
    if (plan->is_signed || a->run.unsigned_too)
        return VP_OK;
    return VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, "digest",
                      "the plan is not as vplan wrote it: it was edited, damaged, or made by an "
                      "older vplan; plan again, or run it as it is with --unsigned");
}

/* By name, file, or what the plan (or NULL) is for. */
static vp_status open_backend(const args *a, const vp_plan *plan, const vp_backend **out,
                              vp_err *err)
{
    const char *name = a->run.backend                         ? a->run.backend
                       : plan && plan->compute_capability > 0 ? "cuda"
                                                              : "cpu";
    vp_err      why  = {0};
    vp_status   st   = VP_OK;

    *out = vp_backend_cpu();
    if (plan && plan->compute_capability == 0 && strcmp(plan->device, "cpu") != 0)
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE,
                       "the plan is for %s, which no backend of vplan can run on", plan->device));
    if (strcmp(name, "cuda") == 0) {
        st = vp_backend_plugin("vplan-cuda.so", out, &why);
        if (st != VP_OK && plan)
            VP_TRY(VP_FAIL(err, st,
                           "the plan is for %s, and the CUDA backend does not run here: %s",
                           plan->device, why.message));
        if (st != VP_OK)
            VP_TRY(VP_FAIL(err, st, "%s", why.message));
    } else if (strchr(name, '/'))
        VP_TRY(vp_backend_plugin(name, out, err));
    else if (strcmp(name, "cpu") != 0)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE,
                       "--backend %s: there are cpu, cuda and the path of a plugin", name));
    assert(*out && (*out)->api_version == VP_BACKEND_API); /* vp_backend_plugin() */
    if (a->run.threads)
        (*out)->set_threads((int)(a->run.threads < 1024 ? a->run.threads : 1024));
out:
    return st;
}

/* What the calls took inside the steps. On a device a step is one recorded call. */
static vp_status begin_profile(const args *a, const vp_backend *backend, vp_file_writer *w,
                               vp_err *err)
{
    if (!a->run.save_profile)
        return VP_OK;
    if (!backend->host_memory)
        return VP_FAIL(
            err, VP_ERR_USAGE,
            "--save-profile: a step on %s is recorded and its calls are not timed one by one; vplan-run --profile times them",
            backend->name);
    if (a->run.verify)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--save-profile: with --verify calls take longer than they do");
    return vp_file_begin(a->run.save_profile, a->run.force, w, err);
}

static vp_status end_profile(const args *a, const vp_plan *plan, const vp_backend *backend,
                             const results *r, vp_file_writer *w, vp_err *err)
{
    vp_profile *profile = NULL;
    json_t     *j       = NULL;
    vp_text     text    = {0};
    vp_status   st      = VP_OK;

    if (!a->run.save_profile)
        return VP_OK;
    if (r->n_steps == 0) {
        fprintf(stderr, "no step was timed: %s is not written\n", a->run.save_profile);
        return VP_OK;
    }
    profile = vp_profile_new();
    VP_TRY_ALLOC(err, profile);
    snprintf(profile->device, sizeof profile->device, "%s", plan->device);
    VP_TRY(vp_call_times_profile(&r->times, backend, profile, err));
    j = vp_profile_to_json(profile);
    VP_TRY_ALLOC(err, j && vp_json_dump(j, &text));
    VP_TRY(vp_file_put(w, text.data, text.n_bytes, err));
    VP_TRY(vp_file_commit(w, err));
out:
    vp_text_release(&text);
    json_decref(j);
    vp_profile_free(profile);
    return st;
}

static vp_status run(const args *a, vp_err *err)
{
    const vp_backend *backend;
    vp_file_writer    timed = {0};
    vp_plan          *plan  = NULL;
    vp_runtime       *rt    = NULL;
    vp_data          *data  = NULL;
    results           r     = {0};
    vp_status         st    = VP_OK;

    VP_TRY(vp_plan_read(a->line.words[0], &plan, err));
    VP_TRY(ask_signed(a, plan, a->line.words[0], err));
    VP_TRY(open_backend(a, plan, &backend, err));
    VP_TRY(begin_profile(a, backend, &timed, err));
    VP_TRY(vp_memory_note(backend, VP_OVERHEAD_CONTEXT, 0, &r.points, err));
    r.steps = calloc((size_t)a->run.steps, sizeof *r.steps);
    VP_TRY_ALLOC(err, r.steps);
    VP_TRY(vp_data_open(a->run.data, plan, a->run.steps, &data, err));
    if (!a->run.data && !a->run.quiet)
        fprintf(stderr, "no --data: training on random tokens\n");
    vp_run_opts opts = {.n_total_steps = a->run.steps,
                        .seed          = a->run.seed,
                        .verify        = a->run.verify,
                        .eager         = a->run.eager};
    VP_TRY(vp_runtime_new(plan, backend, &opts, &rt, err));
    VP_TRY(vp_memory_note(backend, VP_OVERHEAD_ARENA, plan->peak_bytes, &r.points, err));
    if (a->run.save)
        VP_TRY(vp_runtime_check_save(a->run.save, plan->recipe.lora.rank > 0, a->run.force, err));
    if (a->run.save_merged)
        VP_TRY(vp_runtime_check_save(a->run.save_merged, false, a->run.force, err));
    VP_TRY(a->run.init ? load(a, rt, &r.init, err) : vp_runtime_draw(rt, err));
    if (a->run.adapters)
        VP_TRY(vp_runtime_load_adapters(rt, a->run.adapters, err));
    if (a->run.save_initial)
        VP_TRY(vp_runtime_save(rt, a->run.save_initial, a->run.force, err));
    if (!a->json)
        print_answer(plan);
    if (!a->json)
        printf("recipe     %s, %s, gradients %s\n", vp_precision_name(plan->recipe.precision),
               vp_optimizer_name(plan->recipe.optimizer),
               vp_gradients_name(plan->recipe.gradients));
    VP_TRY(train(a, plan, backend, rt, data, &r, err));
    VP_TRY(find_median_step(&r, err));
    VP_TRY(vp_memory_note(backend, VP_OVERHEAD_LAST_STEP, plan->peak_bytes, &r.points, err));
    if (a->run.save)
        VP_TRY(vp_runtime_save(rt, a->run.save, a->run.force, err));
    if (a->run.save_merged)
        VP_TRY(vp_runtime_save_merged(rt, a->run.save_merged, a->run.force, err));
    vp_runtime_memory(rt, &r.memory);
    vp_call_times_median(&r.times);
    if (a->run.hash)
        VP_TRY(vp_runtime_sha256(rt, r.sha256, err));
    r.process_peak_bytes = process_peak_bytes();
    vp_runtime_free(rt);
    rt = NULL;
    vp_overhead_measure(backend, &r.points, &r.outside, &r.why_not);
    VP_TRY(
        end_profile(a, plan, backend, &r, &timed, err)); /* behind the memory that the run took */
    if (a->json)
        VP_TRY(print_json(results_json(plan, backend, a, &r), err));
    else
        print_results(plan, backend, a, &r);
out:
    vp_file_abort(&timed);
    vp_data_close(data);
    vp_runtime_free(rt);
    vp_plan_free(plan);
    json_decref(r.init);
    free(r.steps);
    vp_call_times_release(&r.times);
    return st;
}

/* ---- compare ---- */

static json_t *lanes_json(const vp_backend *backend, const vp_lane *lanes, int64_t n,
                          int64_t n_rounds)
{
    json_t *plans = json_array();

    assert(n > 0 && n_rounds > 0);
    for (int64_t i = 0; i < n; i++) {
        json_t *seconds = json_array();
        for (int64_t r = 0; r < n_rounds; r++)
            json_array_append_new(seconds,
                                  json_real(lanes[i].steps[VP_COMPARE_WARM_UP + r].seconds));
        json_array_append_new(
            plans, json_pack("{s:I, s:f, s:f, s:f, s:f, s:o, s:o}", "executed_bytes",
                             (json_int_t)lanes[i].executed_bytes, "median_s", lanes[i].median_s,
                             "over_first", lanes[i].over_first, "low", lanes[i].low, "high",
                             lanes[i].high, "step_s", seconds, "kernel_calls",
                             kernel_calls_json(lanes[i].times.at, lanes[i].times.n)));
    }
    return json_pack("{s:i, s:s, s:s, s:I, s:o}", "schema_version", 1, "backend", backend->name,
                     "backend_description", backend->describe(), "rounds", (json_int_t)n_rounds,
                     "plans", plans);
}

static vp_status compare(const args *a, vp_err *err)
{
    const vp_backend *backend;
    vp_plan          *plans[VP_MAX_WORDS];
    vp_lane           lanes[VP_MAX_WORDS] = {{0}};
    vp_compare_opts   opts                = {.n_rounds = a->run.steps, .seed = a->run.seed};
    int64_t           n                   = 0, n_read;
    char              x[32];
    vp_status         st = VP_OK;

    for (int i = 0; i < a->line.n_words; i++) {
        VP_TRY(vp_plan_read_all(a->line.words[i], plans + n, VP_MAX_WORDS - n, &n_read, err));
        n += n_read;
        for (int64_t k = n - n_read; k < n; k++)
            VP_TRY(ask_signed(a, plans[k], a->line.words[i], err));
        assert(n <= VP_MAX_WORDS);
    }
    VP_TRY(open_backend(a, plans[0], &backend, err));
    VP_TRY(vp_compare(plans, n, backend, &opts, lanes, err));
    if (a->json)
        VP_TRY(print_json(lanes_json(backend, lanes, n, a->run.steps), err));
    for (int64_t i = 0; !a->json && i < n; i++)
        printf("plan %-3lld %12s   x %.4f of the first (half of the rounds %.4f to %.4f)\n",
               (long long)i + 1, vp_time_text(lanes[i].median_s, x, sizeof x), lanes[i].over_first,
               lanes[i].low, lanes[i].high);
out:
    vp_lanes_release(lanes, n);
    for (int64_t i = 0; i < n; i++)
        vp_plan_free(plans[i]);
    return st;
}

/* ---- profile, describe ---- */

static void show_progress(int64_t done, int64_t n)
{
    if (isatty(STDERR_FILENO) || done == n || done % 16 == 0)
        fprintf(stderr, "timed %lld of %lld calls%s", (long long)done, (long long)n,
                isatty(STDERR_FILENO) && done < n ? "\r" : "\n");
}

/* A module that was not loaded yet would not be counted: only where all calls were made. */
static void measure_outside(const vp_backend *backend, const vp_memory_points *points,
                            bool all_calls, vp_overhead *out)
{
    const char *why_not;

    *out = (vp_overhead){0};
    if (!all_calls || backend->host_memory)
        return;
    vp_overhead_measure(backend, points, out, &why_not);
    if (why_not)
        fprintf(stderr, "outside the arena: not measured: %s\n", why_not);
}

static vp_status profile(const args *a, vp_err *err)
{
    const vp_backend *backend;
    vp_profile       *p      = NULL;
    vp_memory_points  points = {0};
    vp_profile_timed  timed;
    vp_err            unlinked = {0}; /* a host that gives no pinned memory has no rate */
    vp_status         st       = VP_OK;

    VP_TRY(vp_profile_read(a->profile, &p, err));
    VP_TRY(open_backend(a, NULL, &backend, err));
    snprintf(p->device, sizeof p->device, "%s", backend->name);
    snprintf(p->backend, sizeof p->backend, "%s", backend->describe());
    VP_TRY(vp_memory_note(backend, VP_OVERHEAD_CONTEXT, 0, &points, err));
    VP_TRY(vp_profile_rows(backend, p, a->seconds, &timed, show_progress, err));
    assert(timed.n_rows >= 0 && timed.n_rows <= p->n_rows);
    if (timed.n_failed > 0)
        fprintf(stderr,
                "%lld of the library's algorithms failed here and were left out, first: %s\n",
                (long long)timed.n_failed, timed.first_failure.message);
    VP_TRY(vp_memory_note(backend, VP_OVERHEAD_CALLS, 0, &points, err));
    if (vp_link_measure(backend, &p->link, &unlinked) != VP_OK)
        fprintf(stderr, "link to the host: not measured: %s\n", unlinked.message);
    measure_outside(backend, &points, timed.n_rows == p->n_rows && timed.n_rows > 0, &p->outside);
    p->n_rows = timed.n_rows;
    VP_TRY(vp_profile_host_update(p, backend->host_memory, &p->host_update_bytes_per_s, err));
    VP_TRY(print_json(vp_profile_to_json(p), err));
out:
    vp_profile_free(p);
    return st;
}

static vp_status describe(const args *a, vp_err *err)
{
    const vp_backend *backend;
    vp_backend_memory memory;
    vp_status         st = VP_OK;

    VP_TRY(open_backend(a, NULL, &backend, err));
    VP_TRY(backend->memory(&memory, err));
    VP_TRY(print_json(
        json_pack("{s:i, s:s, s:s, s:i, s:i, s:I, s:I}", "schema_version", 1, "backend",
                  backend->name, "description", backend->describe(), "threads", backend->threads(),
                  "compute_capability", backend->compute_capability, "total_bytes",
                  (json_int_t)memory.total_bytes, "free_bytes", (json_int_t)memory.free_bytes),
        err));
out:
    return st;
}

static int report(const vp_err *err, vp_status st, bool json)
{
    char shown[4096];

    vp_output_say("vplan-run: ", vp_err_text(err, shown, sizeof shown));
    if (json) {
        json_t *j =
            json_pack("{s:i, s:{s:s, s:o, s:o, s:o, s:o}}", "schema_version", 1, "error", "code",
                      vp_status_id(st), "message", vp_json_text_or_null(err->message), "file",
                      vp_json_text_or_null(err->file), "line",
                      err->line ? json_integer(err->line) : json_null(), "field",
                      vp_json_text_or_null(err->field));
        vp_err ignored = {0};
        print_json(j, &ignored);
    }
    return vp_status_exit_code(st);
}

int main(int argc, char **argv)
{
    args      a   = {.run = {.seed = -1}};
    vp_err    err = {0};
    vp_status st  = VP_OK;

    vp_output_begin();
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--json") == 0)
            a.json = true; /* a usage error is told in JSON too */
        else if (strcmp(argv[i], "--help") == 0)
            a.help = true;
    if (a.help) {
        VP_TRY(print_help(&err));
        return 0;
    }
    VP_TRY(parse_args(argc, argv, &a, &err));
    st = a.describe  ? describe(&a, &err)
         : a.profile ? profile(&a, &err)
         : a.compare ? compare(&a, &err)
                     : run(&a, &err);
    if (st == VP_OK)
        st = vp_output_end(&err);
out:
    return st == VP_OK ? 0 : report(&err, st, a.json);
}
