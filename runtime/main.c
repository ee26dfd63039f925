/* vplan-run: execute a plan, or time kernels, on a backend. One process for each trial; vplan starts it.
 *
 *     vplan-run PLAN [--steps N] [--data FILE] [--init DIR] [--save-initial DIR] [--save DIR] [--seed N]
 *                    [--backend cpu] [--threads N] [--verify] [--force] [--json] [--step-on-input]
 *     vplan-run --profile REQUEST|- [--seconds S]      a profile without times in, with times out
 *     vplan-run --describe                             what runs here, as JSON
 *
 * --step-on-input, not an option of `vplan run`: one step for each line read from standard input, its line printed at
 * once, until the input or the --steps steps end; then the results of the steps that ran. It lets two programs take
 * turns on one machine (bench/step_vs_torch.py). */
#include "core/file.h"
#include "core/json.h"
#include "core/safetensors.h"
#include "core/text.h"
#include "core/units.h"
#include "runtime/data.h"
#include "runtime/profile_ops.h"
#include "runtime/runtime.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct args {
    const char *plan, *data, *init, *save_initial, *save, *backend, *profile;
    int64_t     steps, seed, threads;
    double      seconds;
    bool        json, verify, force, describe, step_on_input;
} args;

typedef struct results {
    vp_step_result       *steps;
    int64_t               n_steps;
    vp_memory_report      memory;
    const vp_kernel_time *times; /* the runtime's */
    int64_t               n_times;
    char                  sha256[65];
    int64_t               process_peak_bytes;
} results;

/* VmHWM of /proc/self/status: the kernel's count of the most this process had resident. */
static int64_t process_peak_bytes(void)
{
    FILE     *f = fopen("/proc/self/status", "r");
    char      line[200];
    long long kib = -1;

    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %lld kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib < 0 ? -1 : (int64_t)kib * 1024;
}

static vp_status parse_args(int argc, char **argv, args *a, vp_err *err)
{
    vp_status st = VP_OK;

    for (int i = 1; i < argc; i++) {
        const char  *arg   = argv[i];
        const char **text  = strcmp(arg, "--data") == 0           ? &a->data
                             : strcmp(arg, "--init") == 0         ? &a->init
                             : strcmp(arg, "--save-initial") == 0 ? &a->save_initial
                             : strcmp(arg, "--save") == 0         ? &a->save
                             : strcmp(arg, "--backend") == 0      ? &a->backend
                             : strcmp(arg, "--profile") == 0      ? &a->profile
                                                                  : NULL;
        int64_t     *count = strcmp(arg, "--steps") == 0     ? &a->steps
                             : strcmp(arg, "--seed") == 0    ? &a->seed
                             : strcmp(arg, "--threads") == 0 ? &a->threads
                                                             : NULL;
        bool        *flag  = strcmp(arg, "--json") == 0            ? &a->json
                             : strcmp(arg, "--verify") == 0        ? &a->verify
                             : strcmp(arg, "--force") == 0         ? &a->force
                             : strcmp(arg, "--describe") == 0      ? &a->describe
                             : strcmp(arg, "--step-on-input") == 0 ? &a->step_on_input
                                                                   : NULL;
        if (flag) {
            *flag = true;
        } else if (text || count || strcmp(arg, "--seconds") == 0) {
            if (i + 1 == argc)
                VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "%s needs a value", arg));
            i++;
            if (text)
                *text = argv[i];
            else if (count)
                VP_TRY(vp_count_parse(argv[i], arg, strcmp(arg, "--seed") == 0 ? 0 : 1, INT64_C(1000000000000), count, err));
            else
                VP_TRY(vp_real_parse(argv[i], arg, 0, 1e6, &a->seconds, err));
        } else if (arg[0] == '-' && arg[1]) {
            VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "unknown option %s", arg));
        } else if (a->plan) {
            VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "one PLAN, please: %s and %s", a->plan, arg));
        } else {
            a->plan = arg;
        }
    }
    if (!a->plan && !a->profile && !a->describe)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "vplan-run PLAN [options], vplan-run --profile REQUEST, or vplan-run --describe"));
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

static vp_status train(const args *a, const vp_plan *plan, vp_runtime *rt, vp_data *data, results *r, vp_err *err)
{
    int64_t   n_tokens = vp_plan_tokens(plan);
    int32_t  *tokens   = malloc((size_t)n_tokens * sizeof *tokens);
    int32_t  *labels   = malloc((size_t)n_tokens * sizeof *labels);
    char      text[32];
    vp_status st = VP_OK;

    VP_TRY_ALLOC(err, tokens && labels);
    for (r->n_steps = 0; r->n_steps < a->steps && (!a->step_on_input || line_came());) {
        vp_step_result *s = &r->steps[r->n_steps];
        VP_TRY(vp_data_step(data, r->n_steps, tokens, labels, err));
        VP_TRY(vp_runtime_step(rt, &(vp_batch){.tokens = tokens, .labels = labels}, s, err));
        r->n_steps++;
        fprintf(a->json ? stderr : stdout, "step %lld  loss %.6f  grad norm %.4f  %s\n", (long long)r->n_steps, s->loss, s->grad_norm,
                vp_time_text(s->seconds, text, sizeof text));
        fflush(stdout);
    }
out:
    free(tokens);
    free(labels);
    return st;
}

/* Median of the steps but the first, which also meets every page for the first time. */
static int by_seconds(const void *x, const void *y)
{
    const double *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

static double median_step_s(const results *r)
{
    double  seconds[1024];
    int64_t first = r->n_steps > 1 ? 1 : 0, n = 0;

    for (int64_t i = first; i < r->n_steps && n < 1024; i++)
        seconds[n++] = r->steps[i].seconds;
    qsort(seconds, (size_t)n, sizeof *seconds, by_seconds);
    return n ? seconds[n / 2] : 0;
}

/* The last step's time by kernel, and by kernel and shape. */
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
            json_array_append_new(list, json_pack("{s:s, s:I, s:f}", "name", vp_kernel_info_of((vp_kernel)k)->name, "calls",
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
        for (int k = 0; j && k < info->n_ints; k++)
            json_object_set_new(j, info->ints[k].name, json_integer((json_int_t)times[i].ints[k]));
        if (j) {
            json_object_set_new(j, "calls", json_integer((json_int_t)times[i].n_calls));
            json_object_set_new(j, "seconds", json_real(times[i].seconds));
        }
        json_array_append_new(list, j);
    }
    return list;
}

static json_t *results_json(const vp_plan *plan, const vp_backend *backend, const args *a, const results *r)
{
    json_t *steps = json_array();
    double  step_s = median_step_s(r);

    for (int64_t i = 0; i < r->n_steps; i++)
        json_array_append_new(steps, json_pack("{s:f, s:f, s:f}", "loss", r->steps[i].loss, "grad_norm", r->steps[i].grad_norm, "seconds",
                                               r->steps[i].seconds));
    return json_pack("{s:i, s:s, s:s, s:[{s:s, s:I, s:I, s:I, s:s, s:I, s:I, s:I}], s:I, s:I, s:o, s:o, s:o, s:o, s:f, s:s}",
        "schema_version", 1, "backend", backend->name, "backend_description", backend->describe(),
        "memories", "name", "device", "predicted_bytes", (json_int_t)r->memory.predicted_bytes, "executed_bytes",
        (json_int_t)r->memory.executed_bytes, "touched_bytes", (json_int_t)r->memory.touched_bytes, "touched_by",
        a->verify ? "poison" : "resident pages", "resident_bytes", (json_int_t)r->memory.resident_bytes, "padding_bytes",
        (json_int_t)r->memory.padding_bytes, "never_written_bytes", (json_int_t)r->memory.never_written_bytes,
        "outside_bytes", (json_int_t)0, "process_peak_bytes", (json_int_t)r->process_peak_bytes, "process_predicted_bytes",
        plan->process_predicted_bytes < 0 ? json_null() : json_integer((json_int_t)plan->process_predicted_bytes), "steps", steps,
        "kernels", kernels_json(r->times, r->n_times), "kernel_calls", kernel_calls_json(r->times, r->n_times),
        "tokens_per_s", step_s > 0 ? (double)vp_plan_tokens(plan) / step_s : 0.0, "parameters_sha256", r->sha256);
}

static void print_results(const vp_plan *plan, const vp_backend *backend, const args *a, const results *r)
{
    char x[32], y[32];

    printf("\nbackend    %s: %s\n", backend->name, backend->describe());
    printf("arena      %s predicted, %s executed: %lld bytes off\n", vp_size_text(r->memory.predicted_bytes, x, sizeof x),
           vp_size_text(r->memory.executed_bytes, y, sizeof y), (long long)(r->memory.executed_bytes - r->memory.predicted_bytes));
    printf("touched    %s by %s; %lld bytes are padding\n", vp_size_text(r->memory.touched_bytes, x, sizeof x),
           a->verify ? "poison" : "resident pages", (long long)r->memory.padding_bytes);
    if (plan->process_predicted_bytes >= 0)
        printf("process    %s predicted, %s peak by the kernel\n", vp_size_text(plan->process_predicted_bytes, x, sizeof x),
               vp_size_text(r->process_peak_bytes, y, sizeof y));
    if (r->n_steps)
        printf("step       %s predicted (%s), %s measured, %.0f tokens/s\n", vp_time_text(plan->step_time_s, x, sizeof x), plan->time_class,
               vp_time_text(median_step_s(r), y, sizeof y), (double)vp_plan_tokens(plan) / median_step_s(r));
    printf("parameters sha256 %s\n", r->sha256);
}

static vp_status print_json(json_t *j, vp_err *err)
{
    vp_text   text = {0};
    vp_status st   = VP_OK;

    VP_TRY_ALLOC(err, j && vp_json_dump(j, &text));
    if (fwrite(text.data, 1, text.n_bytes, stdout) != text.n_bytes || fflush(stdout) != 0)
        st = VP_FAIL(err, VP_ERR_STORAGE, "standard output cannot be written");
out:
    vp_text_release(&text);
    json_decref(j);
    return st;
}

static vp_status run(const args *a, const vp_backend *backend, vp_err *err)
{
    vp_plan    *plan = NULL;
    vp_runtime *rt   = NULL;
    vp_data    *data = NULL;
    results     r    = {0};
    vp_status   st   = VP_OK;

    VP_TRY(vp_plan_read(a->plan, &plan, err));
    if (strcmp(plan->device, "cpu") != 0)
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "the plan is for %s; this build has the CPU backend only (plan with --device cpu)", plan->device));
    r.steps = calloc((size_t)a->steps, sizeof *r.steps);
    VP_TRY_ALLOC(err, r.steps);
    VP_TRY(vp_data_open(a->data, plan, a->steps, &data, err));
    if (!a->data)
        fprintf(stderr, "no --data: training on drawn tokens\n");
    vp_run_opts opts = {.n_total_steps = a->steps, .seed = a->seed, .verify = a->verify};
    VP_TRY(vp_runtime_new(plan, backend, &opts, &rt, err));
    if (a->save)
        VP_TRY(vp_runtime_check_save(a->save, a->force, err));
    VP_TRY(a->init ? vp_runtime_load(rt, a->init, err) : vp_runtime_draw(rt, err));
    if (a->save_initial)
        VP_TRY(vp_runtime_save(rt, a->save_initial, a->force, err));
    VP_TRY(train(a, plan, rt, data, &r, err));
    if (a->save)
        VP_TRY(vp_runtime_save(rt, a->save, a->force, err));
    vp_runtime_memory(rt, &r.memory);
    r.times = vp_runtime_kernel_times(rt, &r.n_times);
    vp_runtime_sha256(rt, r.sha256);
    r.process_peak_bytes = process_peak_bytes();
    if (a->json)
        VP_TRY(print_json(results_json(plan, backend, a, &r), err));
    else
        print_results(plan, backend, a, &r);
out:
    vp_data_close(data);
    vp_runtime_free(rt);
    vp_plan_free(plan);
    free(r.steps);
    return st;
}

/* ---- profile, describe ---- */

static void show_progress(int64_t done, int64_t n)
{
    if (isatty(STDERR_FILENO) || done == n || done % 16 == 0)
        fprintf(stderr, "timed %lld of %lld calls%s", (long long)done, (long long)n, isatty(STDERR_FILENO) && done < n ? "\r" : "\n");
}

static vp_status profile(const args *a, const vp_backend *backend, vp_err *err)
{
    vp_profile *p = NULL;
    int64_t     n_timed;
    vp_status   st = VP_OK;

    VP_TRY(vp_profile_read(a->profile, &p, err));
    snprintf(p->device, sizeof p->device, "%s", backend->name);
    snprintf(p->backend, sizeof p->backend, "%s", backend->describe());
    VP_TRY(vp_profile_rows(backend, p, a->seconds, &n_timed, show_progress, err));
    p->n_rows = n_timed;
    VP_TRY(print_json(vp_profile_to_json(p), err));
out:
    vp_profile_free(p);
    return st;
}

static int report(const vp_err *err, vp_status st, bool json)
{
    char shown[4096];

    fprintf(stderr, "vplan-run: %s\n", vp_err_text(err, shown, sizeof shown));
    if (json) {
        json_t *j = json_pack("{s:i, s:{s:s, s:s, s:o, s:o, s:o}}", "schema_version", 1, "error", "code", vp_status_id(st), "message",
                              err->message, "file", err->file[0] ? json_string(err->file) : json_null(), "line",
                              err->line ? json_integer(err->line) : json_null(), "field",
                              err->field[0] ? json_string(err->field) : json_null());
        vp_err  ignored = {0};
        print_json(j, &ignored);
    }
    return vp_status_exit_code(st);
}

int main(int argc, char **argv)
{
    args              a       = {.steps = 10, .seed = -1, .backend = "cpu", .seconds = 60};
    const vp_backend *backend = vp_backend_cpu();
    vp_err            err     = {0};
    vp_status         st      = VP_OK;

    signal(SIGPIPE, SIG_IGN);
    for (int i = 1; i < argc; i++)
        a.json |= strcmp(argv[i], "--json") == 0; /* a usage error is told in JSON too */
    VP_TRY(parse_args(argc, argv, &a, &err));
    if (strcmp(a.backend, "cpu") != 0)
        VP_TRY(VP_FAIL(&err, VP_ERR_USAGE, "--backend %s: this build has only cpu", a.backend));
    if (a.threads)
        backend->set_threads((int)(a.threads < 1024 ? a.threads : 1024));
    if (a.describe)
        st = print_json(json_pack("{s:i, s:s, s:s, s:i}", "schema_version", 1, "backend", backend->name, "description", backend->describe(),
                                  "threads", backend->threads()), &err);
    else
        st = a.profile ? profile(&a, backend, &err) : run(&a, backend, &err);
out:
    return st == VP_OK ? 0 : report(&err, st, a.json);
}
