/* vplan explain: what a plan does, buffer by buffer and step by step. */
#include "cli/bytes_table.h"
#include "cli/cli.h"
#include "cli/explain_tables.h"
#include "cli/paint.h"
#include "cli/roofline_print.h"
#include "cli/rows.h"
#include "cli/screen.h"
#include "cli/what_if.h"
#include "cli/words.h"

#include "base/checked.h"
#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "planner/itemise.h"
#include "planner/reprice.h"
#include "report/arena_svg.h"
#include "report/page.h"
#include "report/timeline.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the story ---- */

enum { N_LARGEST = 20, N_SHOWN = 8 };

/* Tensors alive at the peak that differ in their layer only. */
typedef struct alike {
    int64_t buffer; /* the first of them */
    int64_t n;
    char    name[160];
} alike;

typedef struct story {
    const char *path, *html;
    const char *profile;   /* that gives the times; NULL: the plan does */
    double      planned_s; /* what the plan itself says of a step       */
    bool        all;
    vp_itemised itemised;
    int64_t     largest[N_LARGEST]; /* buffers alive at the peak, largest first */
    int         n_largest;
    alike       groups[N_LARGEST]; /* the same, layers together */
    int         n_groups;
    /* "backward of micro-step 0, h.3 mlp.c_fc (linear_bwd_weight)" */
    char        at[160];
    vp_what_ifs what_if;
} story;

static vp_status find_peak_step(const vp_expanded_step *s, void *ctx, vp_err *err)
{
    story           *t        = ((void **)ctx)[0];
    const vp_plan   *plan     = ((void **)ctx)[1];
    const vp_bucket *b        = &plan->buckets[0];
    char             when[48] = "";
    bool             is_last  = s->micro_step == vp_unrolled_micro_steps(b) - 1;

    (void)err;
    if (s->idx != t->itemised.peak_step)
        return VP_OK;
    if (s->micro_step >= 0)
        snprintf(when, sizeof when, " of micro-step %lld",
                 (long long)(is_last ? b->n_micro_steps - 1 : s->micro_step));
    snprintf(
        t->at, sizeof t->at, "%s%s, %s.%lld %s (%s)", vp_pass_phase(s->pass), when,
        plan->templates[b->programs[b->instances[s->instance_idx].program_idx].template_idx].name,
        (long long)b->instances[s->instance_idx].index, s->step->name,
        vp_kernel_info_of(s->step->kernel)->name);
    return VP_OK;
}

/* "h.* mlp.c_fc" for "h.7 mlp.c_fc": what stands between points is a layer's number. */
static void name_without_layer(const char *name, char *buf, size_t buf_size)
{
    size_t n = 0;

    assert(buf_size > 0);
    for (const char *p = name; *p && n + 1 < buf_size; p++) {
        size_t digits = strspn(p, "0123456789");
        if (digits && p > name && p[-1] == '.' && (!p[digits] || strchr(". ", p[digits]))) {
            buf[n++] = '*';
            p += digits - 1;
        } else {
            buf[n++] = *p;
        }
    }
    buf[n] = '\0';
}

/* Put a buffer among those of its name and size, or where its size has its place. */
static void count_alike(story *t, int64_t buffer)
{
    const vp_expanded_buffer *b = &t->itemised.x.buffers[buffer];
    alike                     g = {.buffer = buffer, .n = 1};
    int                       i;

    name_without_layer(b->name, g.name, sizeof g.name);
    for (i = 0; i < t->n_groups; i++)
        if (t->itemised.x.buffers[t->groups[i].buffer].bytes == b->bytes &&
            strcmp(t->groups[i].name, g.name) == 0) {
            t->groups[i].n++;
            return;
        }
    while (i > 0 && t->itemised.x.buffers[t->groups[i - 1].buffer].bytes < b->bytes)
        i--;
    if (i == N_LARGEST)
        return;
    t->n_groups += t->n_groups < N_LARGEST;
    memmove(&t->groups[i + 1], &t->groups[i], (size_t)(t->n_groups - 1 - i) * sizeof *t->groups);
    t->groups[i] = g;
}

static void count_largest(story *t, int64_t buffer)
{
    int at = t->n_largest;

    while (at > 0 &&
           t->itemised.x.buffers[t->largest[at - 1]].bytes < t->itemised.x.buffers[buffer].bytes)
        at--;
    if (at == N_LARGEST)
        return;
    int n_moved = (t->n_largest < N_LARGEST ? t->n_largest : N_LARGEST - 1) - at;
    assert(n_moved >= 0 && at + 1 + n_moved <= N_LARGEST);
    memmove(&t->largest[at + 1], &t->largest[at], (size_t)n_moved * sizeof *t->largest);
    t->largest[at] = buffer;
    t->n_largest += t->n_largest < N_LARGEST;
}

static vp_status tell(vp_arena *arena, const vp_plan *plan, const char *path,
                      const vp_profile *profile, story *t, vp_err *err)
{
    const vp_bucket *b      = &plan->buckets[0];
    void            *ctx[2] = {t, (void *)(uintptr_t)plan};
    vp_status        st     = VP_OK;

    VP_TRY(vp_itemise(arena, plan, b, &t->itemised, err));
    for (int64_t i = 0; i < t->itemised.x.n_buffers; i++)
        if (t->itemised.x.buffers[i].memory == VP_MEMORY_DEVICE &&
            !t->itemised.x.buffers[i].not_walked && t->itemised.x.first_step[i] >= 0 &&
            t->itemised.x.first_step[i] <= t->itemised.peak_step &&
            t->itemised.x.last_step[i] >= t->itemised.peak_step) {
            count_largest(t, i);
            count_alike(t, i);
        }
    VP_TRY(vp_expand(plan, b, vp_unrolled_micro_steps(b), find_peak_step, ctx, err));
    assert(t->at[0] && t->n_largest > 0); /* the peak is at some step, of something */
    VP_TRY(vp_ask_what_if(plan, path, profile, &t->what_if, err));
out:
    return st;
}

static json_t *what_if_json(const vp_plan *plan, const vp_what_if *w)
{
    bool timed = w->step_time_s >= 0;

    return json_pack("{s:s, s:s?, s:I, s:I, s:b, s:I, s:o, s:o}", "change", w->text, "estimate",
                     w->command[0] ? w->command : NULL, "peak_bytes", (json_int_t)w->peak_bytes,
                     "device_bytes", (json_int_t)w->device_bytes, "fits",
                     (int)(w->device_bytes <= plan->budget_bytes), "more_bytes",
                     (json_int_t)(w->device_bytes - plan->peak_bytes - plan->outside_bytes),
                     "step_time_s", timed ? json_real(w->step_time_s) : json_null(), "more_s",
                     timed ? json_real(w->step_time_s - plan->step_time_s) : json_null());
}

static json_t *story_json(const vp_plan *plan, const story *t)
{
    vp_device device;
    json_t   *largest = json_array(), *others = json_array();

    for (int i = 0; i < t->n_largest; i++)
        json_array_append_new(
            largest,
            json_pack("{s:s, s:I, s:s}", "name", t->itemised.x.buffers[t->largest[i]].name, "bytes",
                      (json_int_t)t->itemised.x.buffers[t->largest[i]].bytes, "component",
                      vp_component_name(t->itemised.x.buffers[t->largest[i]].component)));
    for (int i = 0; i < t->what_if.n; i++)
        json_array_append_new(others, what_if_json(plan, &t->what_if.rows[i]));
    json_t *j = json_pack(
        "{s:i, s:s, s:O, s:O, s:O, s:I, s:I, s:I, s:s, s:s, s:f, s:s, s:o, s:o, s:o, s:o, s:o}",
        "schema_version", 1, "model", plan->model_name, "decisions", plan->decisions, "settings",
        plan->settings, "assumptions", plan->assumptions, "budget_bytes",
        (json_int_t)plan->budget_bytes, "peak_bytes", (json_int_t)plan->peak_bytes, "device_bytes",
        (json_int_t)(plan->peak_bytes + plan->outside_bytes), "peak_phase", t->itemised.peak_phase,
        "peak_at", t->at, "step_time_s", plan->step_time_s, "time_class", plan->time_class, "items",
        vp_items_json(&t->itemised), "phases", vp_phases_json(&t->itemised), "largest_at_peak",
        largest, "proof", vp_proof_json(plan), "what_if", others);
    if (t->profile)
        json_object_update_new(
            j, json_pack("{s:s, s:f}", "profile", t->profile, "planned_step_time_s", t->planned_s));
    if (j && vp_plan_device(plan, &device))
        json_object_set_new(j, "mfu", vp_mfu_json(plan, &device));
    vp_overhead_to_answer(plan, j);
    return j;
}

static bool is_alike(const json_t *a, const json_t *b)
{
    return json_equal(json_object_get(a, "recompute"), json_object_get(b, "recompute")) &&
           json_equal(json_object_get(a, "segment"), json_object_get(b, "segment"));
}

/* How the blocks run, in chain order; neighbours that are alike are one row. */
static void print_runs(const json_t *runs)
{
    long long first = 0, n;

    for (size_t i = 0, next; i < json_array_size(runs); i = next, first += n) {
        vp_text text = {0};
        n            = 0;
        for (next = i; next < json_array_size(runs) &&
                       is_alike(json_array_get(runs, i), json_array_get(runs, next));
             next++)
            n += json_integer_value(json_object_get(json_array_get(runs, next), "n_blocks"));
        assert(next > i); /* a run is like itself */
        if (n > 1)
            vp_text_printf(&text, "%lld to %lld: %lld blocks ", first, first + n - 1, n);
        else
            vp_text_printf(&text, "%lld: 1 block ", first);
        vp_add_run(json_array_get(runs, i), n == 1, &text);
        vp_screen_line(i ? "" : "blocks", "%s", vp_text_string(&text));
        vp_text_release(&text);
    }
}

/* What lies in the host's memories and on a local drive. */
static void print_offloaded(const vp_plan *plan)
{
    static const char *const places[VP_N_MEMORIES] = {
        [VP_MEMORY_HOST_PINNED] = "pinned in host memory",
        [VP_MEMORY_HOST]        = "in host memory, not pinned",
        [VP_MEMORY_NVME]        = "on a local drive"};
    vp_text text = {0};
    char    size[32];

    for (int m = 0; m < VP_N_MEMORIES; m++) {
        int64_t bytes = vp_plan_memory_bytes(plan, (vp_memory)m);
        if (places[m] && bytes)
            vp_text_printf(&text, "%s%s %s", text.n_bytes ? ", " : "",
                           vp_size_text(bytes, size, sizeof size), places[m]);
    }
    if (text.n_bytes)
        vp_screen_line("offloaded", "%s", vp_text_string(&text));
    vp_text_release(&text);
}

static void print_decisions(const vp_plan *plan)
{
    const vp_bucket *b         = &plan->buckets[0];
    const json_t    *d         = plan->decisions;
    const char      *recompute = json_string_value(json_object_get(d, "recompute"));
    const char      *offload   = json_string_value(json_object_get(d, "offload"));
    int64_t          chunk     = json_integer_value(json_object_get(d, "loss_chunk_tokens"));
    bool             mixed     = !recompute || strcmp(recompute, "mixed") == 0;
    char             shown[128], count[32];
    vp_text          text = {0};

    vp_text_printf(&text, "micro-batch %lld, gradient accumulation %lld, ",
                   (long long)b->micro_batch, (long long)b->n_micro_steps);
    if (!mixed)
        vp_text_printf(&text, "recompute %s, ", vp_text_escape(recompute, shown, sizeof shown));
    if (chunk)
        vp_text_printf(&text, "loss in chunks of %s tokens",
                       vp_count_text(chunk, count, sizeof count));
    else
        vp_text_printf(&text, "loss all at once");
    if (offload && strcmp(offload, "none") != 0)
        vp_text_printf(&text, ", offload %s", vp_text_escape(offload, shown, sizeof shown));
    if (plan->updates_in_backward)
        vp_text_printf(&text, ", updates in backward");
    vp_screen_line("plan", "%s", vp_text_string(&text));
    vp_text_release(&text);
    print_offloaded(plan);
    if (mixed)
        print_runs(json_object_get(d, "blocks"));
}

/* As the planner wrote it; what a plan by hand leaves out is flash. */
static vp_attention_kind attention_of(const vp_plan *plan)
{
    const char       *word = json_string_value(json_object_get(plan->settings, "attention"));
    vp_attention_kind kind = word ? vp_attention_by_name(word) : VP_ATTENTION_FLASH;

    return kind == VP_N_ATTENTIONS ? VP_ATTENTION_FLASH : kind;
}

static void print_largest(const story *t)
{
    char size[64], shown[200];

    printf("\n%s%-52s %11s%s\n", vp_paint(VP_PAINT_HEAD), "largest tensors at the peak", "each",
           vp_paint_end());
    for (int i = 0; i < t->n_groups && (t->all || i < N_SHOWN); i++) {
        const alike              *g = &t->groups[i];
        const vp_expanded_buffer *b = &t->itemised.x.buffers[g->buffer];
        printf("  %-50.50s %11s",
               vp_text_escape(g->n == 1 ? b->name : g->name, shown, sizeof shown),
               vp_size_text(b->bytes, size, sizeof size));
        if (g->n > 1)
            printf("  x%lld", (long long)g->n);
        printf("\n");
    }
}

/* "+1.2 GiB", "-", "-3.4 MiB". */
static const char *more_bytes_text(int64_t more, char *buf, size_t buf_size)
{
    char size[64];

    if (more)
        snprintf(buf, buf_size, "%c%s", more > 0 ? '+' : '-',
                 vp_size_text(more > 0 ? more : -more, size, sizeof size));
    else
        snprintf(buf, buf_size, "same");
    return buf;
}

static void print_what_ifs(const vp_plan *plan, const vp_what_ifs *w)
{
    char needs[64], more[64], time[64] = "-", slower[32] = "";

    printf("\n%s%-23s %12s %13s %8s %7s%s\n", vp_paint(VP_PAINT_HEAD), "what if", "needs", "more",
           "step", "slower", vp_paint_end());
    for (int i = 0; i < w->n; i++) {
        const vp_what_if *r = &w->rows[i];
        if (r->step_time_s >= 0) {
            vp_time_text(r->step_time_s, time, sizeof time);
            double percent = 100 * (r->step_time_s / plan->step_time_s - 1);
            snprintf(slower, sizeof slower, "%+.1f%%", fabs(percent) < 0.05 ? 0.0 : percent);
        }
        printf("  %-21s %12s %13s %8s %7s %s\n", r->text,
               vp_size_text(r->device_bytes, needs, sizeof needs),
               more_bytes_text(r->device_bytes - plan->peak_bytes - plan->outside_bytes, more,
                               sizeof more),
               time, slower, r->device_bytes <= plan->budget_bytes ? "fits" : "does not fit");
    }
}

static void print_next(const story *t)
{
    vp_text command = {0};

    vp_text_printf(&command, "vplan run ");
    vp_text_quoted(&command, t->path);
    if (!command.failed)
        vp_screen_command("next", command.data);
    vp_text_release(&command);
}

static void print_story(const vp_plan *plan, const story *t)
{
    char      a[64], c[64], shown[512], on[128], mfu[32];
    vp_device device;

    mfu[0] = '\0';
    if (vp_plan_device(plan, &device))
        vp_mfu_text(plan, &device, mfu, sizeof mfu);
    snprintf(shown, sizeof shown, "%s a step (%s)%s", vp_time_text(plan->step_time_s, c, sizeof c),
             plan->time_class, mfu);
    vp_screen_answer(plan->peak_bytes + plan->outside_bytes, plan->budget_bytes, shown);
    vp_screen_line("model", "%s on %s, sequence %lld, global batch %lld",
                   vp_text_escape(plan->model_name, shown, sizeof shown),
                   vp_text_escape(plan->device, on, sizeof on), (long long)plan->buckets[0].seq,
                   (long long)plan->global_batch);
    vp_screen_recipe(&plan->recipe, attention_of(plan));
    print_decisions(plan);
    if (t->profile)
        vp_screen_line("times", "by %s; the plan says %s",
                       vp_text_escape(t->profile, shown, sizeof shown),
                       vp_time_text(t->planned_s, a, sizeof a));
    vp_screen_line("peak", "%s, in %s",
                   vp_size_text(plan->peak_bytes + plan->outside_bytes, a, sizeof a),
                   vp_text_escape(t->at, shown, sizeof shown));
    printf("\n");
    vp_screen_bytes(plan, &t->itemised, t->all);
    print_largest(t);
    print_what_ifs(plan, &t->what_if);
    printf("\n");
    vp_screen_per_param(plan, &t->itemised);
    vp_screen_phases(&t->itemised, plan->outside_bytes);
    if (plan->outside_bytes)
        vp_screen_line("outside", "%s outside the arena, %s",
                       vp_size_text(plan->outside_bytes, a, sizeof a),
                       vp_overhead_class_text(plan, shown, sizeof shown));
    vp_screen_line("more", "--all: every kind of tensor; --buffers, --program: CSV");
    if (t->html)
        printf("written to %s\n", t->html);
    print_next(t);
}

/* ---- over time ---- */

/* A share of a column as one character. */
static char shade(double share)
{
    return share < 0.05 ? ' ' : share < 0.35 ? '.' : share < 0.65 ? '-' : share < 0.95 ? '=' : '#';
}

static void print_track(const char *label, const double *shares, int64_t n)
{
    printf("%-10s", label);
    for (int64_t c = 0; c < n; c++)
        putchar(shade(shares[c]));
    putchar('\n');
}

/* One step in 80 columns. */
static vp_status print_timeline(vp_arena *arena, const vp_plan *plan, vp_err *err)
{
    enum { COLUMNS = 68 };
    vp_timeline t;
    char        a[64], b[64];
    vp_status   st = VP_OK;

    VP_TRY(vp_timeline_make(arena, plan, COLUMNS, &t, err));
    vp_screen_line("time", "%s a step (%s), shown: %s, %lld of %lld micro-steps and the optimizer",
                   vp_time_text(plan->step_time_s, a, sizeof a), plan->time_class,
                   vp_time_text(t.end_s, b, sizeof b), (long long)t.n_micro_steps,
                   (long long)plan->buckets[0].n_micro_steps);
    print_track("kernels", t.busy[VP_STREAM_COMPUTE], COLUMNS);
    print_track("wait", t.waited, COLUMNS);
    print_track("to host", t.busy[VP_STREAM_TO_HOST], COLUMNS);
    print_track("to device", t.busy[VP_STREAM_TO_DEVICE], COLUMNS);
    if (t.step.busy_s[VP_STREAM_HOST] > 0)
        print_track("host", t.busy[VP_STREAM_HOST], COLUMNS);
    printf("%-10s", "memory");
    for (int64_t i = 0; i < COLUMNS; i++)
        putchar(t.alive_bytes[i] ? (char)('0' + 9 * t.alive_bytes[i] / t.most_bytes) : ' ');
    printf("\n");
    vp_screen_line("key", "share of the column: # all, = - . less; memory: 9 is %s alive",
                   vp_size_text(t.most_bytes, a, sizeof a));
    vp_screen_copies(&t.step);
out:
    return st;
}

static vp_status write_trace(const vp_plan *plan, const char *path, bool force, vp_err *err)
{
    vp_text   trace = {0};
    vp_status st    = VP_OK;

    VP_TRY(vp_report_trace(plan, &trace, err));
    VP_TRY(vp_file_write(path, trace.data, trace.n_bytes, force, err));
out:
    vp_text_release(&trace);
    return st;
}

/* The page of --html. */
static vp_status write_page(const vp_plan *plan, const char *path, bool force, vp_err *err)
{
    vp_text   page = {0};
    vp_status st   = VP_OK;

    vp_report_plan_begin(plan, &page);
    VP_TRY(vp_report_arena(plan, &page, err));
    vp_page_end(&page);
    VP_TRY_ALLOC(err, !page.failed);
    VP_TRY(vp_file_write(path, page.data, page.n_bytes, force, err));
out:
    vp_text_release(&page);
    return st;
}

typedef struct explain_options {
    const char *profile, *device, *html, *trace;
    bool        buffers, program, roofline, timeline, all, force;
} explain_options;

static const vp_option rows[] = {
    {.name = "--buffers",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(explain_options, buffers),
     .help = "Every buffer of one optimizer step as CSV: buffer, memory, offset, bytes, first and "
             "last step, component, name"},
    {.name = "--program",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(explain_options, program),
     .help = "Every step as CSV: step, phase, micro-step, block, op, stream, buffers read, "
             "buffers written, seconds"},
    {.name = "--roofline",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(explain_options, roofline),
     .help = "By what the calls do: operations, bytes, seconds, share of the step, what bounds "
             "them; the model FLOP utilisation (MFU) of the whole"},
    {.name = "--timeline",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(explain_options, timeline),
     .help = "A step over time: kernels, what they wait for, copies in both directions, memory"},
    {.name      = "--trace",
     .kind      = VP_OPTION_OUTPUT,
     .at        = offsetof(explain_options, trace),
     .value     = "FILE",
     .help      = "Write the same, every step of it, as a trace that ui.perfetto.dev shows",
     .otherwise = "none is written",
     .example   = "trace.json"},
    {.name      = "--device",
     .kind      = VP_OPTION_INPUT,
     .at        = offsetof(explain_options, device),
     .value     = "FILE",
     .help      = "With --roofline: the device file that the plan was made with",
     .otherwise = "the device that the plan names, where it is built in",
     .example   = "my-card.json"},
    VP_ROW_ALL(explain_options, all),
    VP_ROW_HTML(explain_options, html),
    VP_ROW_FORCE(explain_options, force),
    {.name      = "--profile",
     .kind      = VP_OPTION_INPUT,
     .at        = offsetof(explain_options, profile),
     .value     = "FILE",
     .help      = "Times by this profile (see vplan-run --profile): what the plan would take "
                  "there; decisions and proof stay as they were planned",
     .otherwise = "the times the plan was made with",
     .example   = "profile.json"},
};
static const vp_option_set options = {VP_ROWS(rows)};

static vp_status print_roofline(const vp_plan *plan, const char *path, bool json, vp_err *err)
{
    vp_device device;
    char      shown[128];
    vp_status st = VP_OK;

    if (path)
        VP_TRY(vp_device_read(path, &device, err));
    else if (!vp_plan_device(plan, &device))
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE,
                       "the plan's device, %s, is not built in: --device FILE says what it offers",
                       vp_text_escape(plan->device, shown, sizeof shown)));
    if (json)
        VP_TRY(vp_print_json(vp_roofline_json(plan, &device), err));
    else
        vp_roofline_print(plan, &device);
out:
    return st;
}

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    explain_options w       = {0};
    story           t       = {0};
    vp_arena       *arena   = vp_arena_new();
    vp_plan        *plan    = NULL;
    vp_profile     *profile = NULL;
    vp_command_line line;
    const char     *path;
    vp_status       st = VP_OK;

    VP_TRY_ALLOC(err, arena);
    VP_TRY(vp_cli_parse(&vp_cmd_explain, argc, argv, cli, (void *[]){&w}, &line, err));
    path      = line.words[0];
    t.path    = path;
    t.profile = w.profile;
    t.all     = w.all;
    t.html    = w.html;
    if (!path)
        VP_TRY(vp_cli_lacks(&vp_cmd_explain, "vplan explain PLAN: which plan?", err));
    if (w.buffers + w.program + w.roofline + w.timeline > 1)
        VP_TRY(VP_FAIL(
            err, VP_ERR_USAGE,
            "--buffers, --program, --roofline and --timeline are four tables: one at a time"));
    if (w.timeline && cli->json)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--timeline is for people; --trace FILE has it as JSON"));
    if (w.trace)
        VP_TRY(vp_output_check(w.trace, w.force, (const char *const[]){path, w.profile, w.html}, 3,
                               err));
    if (w.device && !w.roofline)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--device belongs to --roofline"));
    if (w.html)
        VP_TRY(vp_output_check(w.html, w.force, (const char *const[]){path, w.profile}, 2, err));
    VP_TRY(vp_plan_read(path, &plan, err));
    if (!plan->is_signed)
        vp_cli_note(cli, "the plan is not as vplan wrote it; vplan run takes it with --unsigned");
    t.planned_s = plan->step_time_s;
    if (t.profile) {
        VP_TRY(vp_profile_read(t.profile, &profile, err));
        VP_TRY(vp_plan_reprice(plan, t.profile, profile, err));
    }
    if (w.html)
        VP_TRY(write_page(plan, w.html, w.force, err));
    if (w.trace)
        VP_TRY(write_trace(plan, w.trace, w.force, err));
    if (w.timeline) {
        VP_TRY(print_timeline(arena, plan, err));
    } else if (w.roofline) {
        VP_TRY(print_roofline(plan, w.device, cli->json, err));
    } else if (w.buffers) {
        VP_TRY(vp_explain_buffers(arena, plan, cli->json, err));
    } else if (w.program) {
        VP_TRY(vp_explain_program(plan, cli->json, err));
    } else {
        VP_TRY(tell(arena, plan, path, profile, &t, err));
        if (cli->json)
            VP_TRY(vp_print_json(story_json(plan, &t), err));
        else
            print_story(plan, &t);
    }
out:
    vp_profile_free(profile);
    vp_plan_free(plan);
    vp_arena_free(arena);
    return st;
}

const vp_command vp_cmd_explain = {
    .name      = "explain",
    .summary   = "what takes the memory at a plan's peak; every buffer and step",
    .usage     = {"PLAN [options]"},
    .about     = {"What a plan decides, what is alive at its peak, at which step that is, the "
                      "largest tensors there, and what if: bytes and time of the same plan with "
                      "one thing changed."},
    .examples  = {"vplan explain plan.json", "vplan explain plan.json --buffers",
                  "vplan explain plan.json --roofline", "vplan explain plan.json --timeline"},
    .sets      = {&options},
    .argument  = VP_TAKES_FILE,
    .max_words = 1,
    .run       = run,
};
