#include "report/arena_svg.h"

#include "base/units.h"
#include "plan/expand.h"
#include "plan/simulate.h"
#include "report/axis.h"
#include "report/page.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 960, HEIGHT = 520, LEFT = 90, RIGHT = 20, TOP = 44, BOTTOM = 64, N_SHOWN_MICRO = 3 };

static const char *const colours[VP_N_COMPONENTS] = {
    [VP_COMP_PARAMETERS] = "#4477aa",      [VP_COMP_MASTER] = "#66aadd",
    [VP_COMP_OPTIMIZER_STATE] = "#88ccee", [VP_COMP_GRADIENTS] = "#cc6677",
    [VP_COMP_ACTIVATIONS] = "#ddaa33",     [VP_COMP_TEMPORARIES] = "#aa4499",
    [VP_COMP_WORKSPACE] = "#882255",       [VP_COMP_STAGING] = "#44aa99",
    [VP_COMP_BATCH_INPUT] = "#117733",     [VP_COMP_CONSTANTS] = "#999933",
    [VP_COMP_CONTROL] = "#777777",         [VP_COMP_PADDING] = "#dddddd",
};

typedef struct drawing {
    const vp_plan *plan;
    vp_expansion   x;
    int64_t        n_micro;
    double        *begin_s; /* of each step, by the kernels' clock; one more: the end of all */
    signed char   *part;    /* which part of the step it is: see part_of() */
    double         kernels_s, end_s; /* when the last kernel ended, and the last of all streams */
    int64_t        peak_bytes, top;  /* the arena's height; the first buffer that reaches it */
    vp_text       *out;
} drawing;

/* Forward of micro-step m is 2 m, its backward 2 m + 1, the optimizer the last. */
static signed char part_of(const drawing *d, const vp_expanded_step *s)
{
    return s->pass == VP_PASS_FORWARD    ? (signed char)(2 * s->micro_step)
           : s->pass == VP_PASS_BACKWARD ? (signed char)(2 * s->micro_step + 1)
                                         : (signed char)(2 * d->n_micro);
}

/* What copies and the host do is drawn from when it is asked for: kernels go on beside it. */
static vp_status note_step(const vp_expanded_step *s, const vp_simulated_step *when, void *ctx,
                           vp_err *err)
{
    drawing *d = ctx;

    (void)err;
    assert(s->idx < d->x.n_steps);
    d->begin_s[s->idx] = d->kernels_s;
    d->part[s->idx]    = part_of(d, s);
    if (s->step->stream == VP_STREAM_COMPUTE ||
        (s->step->stream == VP_STREAM_HOST && d->plan->compute_capability == 0))
        d->kernels_s = when->end_s;
    if (when->end_s > d->end_s)
        d->end_s = when->end_s;
    return VP_OK;
}

/* ---- places ---- */

static double x_at(const drawing *d, int64_t step)
{
    double share = d->end_s > 0 ? d->begin_s[step] / d->end_s : (double)step / (double)d->x.n_steps;

    return LEFT + (WIDTH - LEFT - RIGHT) * share;
}

static double y_at(const drawing *d, int64_t bytes)
{
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (double)bytes / (double)d->peak_bytes;
}

static bool is_drawn(const drawing *d, int64_t i)
{
    return d->x.first_step[i] >= 0 && d->x.buffers[i].memory == VP_MEMORY_DEVICE;
}

static void add_rect(const drawing *d, int64_t begin, int64_t end, int64_t first, int64_t last,
                     vp_component component)
{
    vp_text_printf(d->out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"",
                   x_at(d, first), y_at(d, end), x_at(d, last + 1) - x_at(d, first),
                   y_at(d, begin) - y_at(d, end), colours[component]);
}

/* What persists of one component lies together, as a rule: one band below its tensors. */
static void add_bands(const drawing *d)
{
    int64_t begin[VP_N_COMPONENTS], end[VP_N_COMPONENTS] = {0};
    char    size[32];

    for (int c = 0; c < VP_N_COMPONENTS; c++)
        begin[c] = INT64_MAX;
    for (int64_t i = 0; i < d->x.n_buffers; i++) {
        const vp_expanded_buffer *b = &d->x.buffers[i];
        if (!is_drawn(d, i) || b->local_name ||
            d->x.last_step[i] - d->x.first_step[i] + 1 < d->x.n_steps)
            continue;
        begin[b->component] =
            b->offset_bytes < begin[b->component] ? b->offset_bytes : begin[b->component];
        if (b->offset_bytes + b->bytes > end[b->component])
            end[b->component] = b->offset_bytes + b->bytes;
    }
    for (int c = 0; c < VP_N_COMPONENTS; c++)
        if (end[c]) {
            add_rect(d, begin[c], end[c], 0, d->x.n_steps - 1, (vp_component)c);
            vp_text_printf(d->out, "><title>%s, all of it: %s</title></rect>\n",
                           vp_component_name((vp_component)c),
                           vp_size_text(end[c] - begin[c], size, sizeof size));
        }
}

static void add_tensors(const drawing *d)
{
    char size[32];

    for (int64_t i = 0; i < d->x.n_buffers; i++) {
        const vp_expanded_buffer *b      = &d->x.buffers[i];
        double                    height = y_at(d, 0) - y_at(d, b->bytes);
        if (!is_drawn(d, i) || height < (b->local_name ? 0.3 : 2))
            continue;
        add_rect(d, b->offset_bytes, b->offset_bytes + b->bytes, d->x.first_step[i],
                 d->x.last_step[i], b->component);
        vp_text_printf(d->out,
                       height < 2 ? "><title>" : " stroke=\"#fff\" stroke-width=\".3\"><title>");
        vp_page_text(d->out, b->name);
        vp_text_printf(d->out, "\n%s, %s\nsteps %lld to %lld</title></rect>\n",
                       vp_component_name(b->component), vp_size_text(b->bytes, size, sizeof size),
                       (long long)d->x.first_step[i], (long long)d->x.last_step[i]);
    }
}

/* ---- around them ---- */

static void add_parts(const drawing *d)
{
    char name[48];

    for (int64_t s = 0, next; s < d->x.n_steps; s = next) {
        for (next = s; next < d->x.n_steps && d->part[next] == d->part[s]; next++)
            ;
        double middle = (x_at(d, s) + x_at(d, next)) / 2, width = x_at(d, next) - x_at(d, s);
        snprintf(name, sizeof name, "%s",
                 d->part[s] == 2 * d->n_micro ? "optimizer"
                 : d->part[s] % 2             ? "backward"
                                              : "forward");
        vp_text_printf(d->out,
                       "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#888\"/>\n",
                       x_at(d, s), HEIGHT - BOTTOM, x_at(d, s), HEIGHT - BOTTOM + 24);
        if (width > 6.5 * (double)strlen(name))
            vp_text_printf(d->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                           middle, HEIGHT - BOTTOM + 18, name);
    }
}

static void add_axes(const drawing *d)
{
    vp_axis y = vp_axis_of_bytes(0, (double)d->peak_bytes, 6);
    char    size[32];

    for (int i = 0; i < y.n; i++) {
        int64_t bytes = (int64_t)(y.first + i * y.step);
        vp_text_printf(d->out,
                       "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#888\"/>\n"
                       "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                       LEFT - 5, y_at(d, bytes), LEFT, y_at(d, bytes), LEFT - 9, y_at(d, bytes) + 4,
                       bytes ? vp_size_text(bytes, size, sizeof size) : "0");
    }
    vp_text_printf(
        d->out,
        "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"black\" pointer-events=\"none\"/>\n",
        LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
}

static void add_peak(const drawing *d)
{
    double x = (x_at(d, d->x.first_step[d->top]) + x_at(d, d->x.last_step[d->top] + 1)) / 2;
    char   size[32];

    vp_text_printf(
        d->out,
        "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#b03030\" stroke-width=\"2\"/>\n"
        "<text x=\"%.1f\" y=\"%d\" fill=\"#b03030\" text-anchor=\"%s\">peak %s: ",
        x, TOP - 10, x, TOP, x, TOP - 16, x > WIDTH / 2 ? "end" : "start",
        vp_size_text(d->peak_bytes, size, sizeof size));
    vp_page_text(d->out, d->x.buffers[d->top].name);
    vp_text_printf(d->out, "</text>\n");
}

static void add_svg(const drawing *d)
{
    char time[32];

    vp_text_printf(
        d->out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
        "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\" pointer-events=\"none\"/>\n",
        WIDTH, HEIGHT);
    add_bands(d);
    add_tensors(d);
    add_axes(d);
    add_parts(d);
    add_peak(d);
    vp_text_printf(d->out,
                   "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">time: %s</text>\n</svg>\n",
                   (LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 46,
                   d->end_s > 0 ? vp_time_text(d->end_s, time, sizeof time) : "by steps");
}

/* ---- what is there at the peak ---- */

static bool is_at_peak(const drawing *d, int64_t i)
{
    int64_t at = d->x.first_step[d->top];

    return is_drawn(d, i) && d->x.first_step[i] <= at && d->x.last_step[i] >= at;
}

/* The legend and the sums. */
static void add_components(const drawing *d)
{
    static const char *const heads[]                = {"", "at the peak", "share"};
    int64_t                  bytes[VP_N_COMPONENTS] = {0};
    char                     size[32], share[16];

    for (int64_t i = 0; i < d->x.n_buffers; i++)
        if (is_at_peak(d, i))
            bytes[d->x.buffers[i].component] += d->x.buffers[i].bytes;
    vp_page_table_begin(d->out);
    vp_page_row(d->out, 1, heads, 3);
    for (int c = 0; c < VP_N_COMPONENTS; c++)
        if (bytes[c]) {
            snprintf(share, sizeof share, "%.1f %%",
                     100.0 * (double)bytes[c] / (double)d->peak_bytes);
            vp_text_printf(
                d->out,
                "<tr><td><span style=\"color:%s\">&#9632;</span> %s</td><td>%s</td><td>%s</td></tr>\n",
                colours[c], vp_component_name((vp_component)c),
                vp_size_text(bytes[c], size, sizeof size), share);
        }
    vp_page_table_end(d->out);
}

static int by_bytes(const void *a, const void *b, void *ctx)
{
    const vp_expanded_buffer *buffers = ctx;
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b, p = buffers[x].bytes,
            q = buffers[y].bytes;

    return p != q ? (p < q) - (p > q) : (x > y) - (x < y);
}

/* The largest of them, by name. */
static vp_status add_largest(const drawing *d, vp_arena *arena, vp_err *err)
{
    enum { MOST = 50 };
    static const char *const heads[] = {"tensor", "what", "bytes", "address"};
    int64_t                 *list = vp_arena_array(arena, d->x.n_buffers + 1, sizeof *list), n = 0;
    char                     bytes[32], address[32];
    vp_status                st = VP_OK;

    VP_TRY_ALLOC(err, list);
    for (int64_t i = 0; i < d->x.n_buffers; i++)
        if (is_at_peak(d, i))
            list[n++] = i;
    qsort_r(list, (size_t)n, sizeof *list, by_bytes, d->x.buffers);
    vp_page_table_begin(d->out);
    vp_page_row(d->out, 1, heads, 4);
    for (int64_t i = 0; i < n && i < MOST; i++) {
        const vp_expanded_buffer *b       = &d->x.buffers[list[i]];
        const char               *cells[] = {b->name, vp_component_name(b->component),
                                             vp_count_text(b->bytes, bytes, sizeof bytes),
                                             vp_count_text(b->offset_bytes, address, sizeof address)};
        vp_page_row(d->out, 0, cells, 4);
    }
    vp_page_table_end(d->out);
out:
    return st;
}

static void find_top(drawing *d)
{
    for (int64_t i = 0; i < d->x.n_buffers; i++) {
        int64_t end = d->x.buffers[i].offset_bytes + d->x.buffers[i].bytes;
        if (is_drawn(d, i) && end > d->peak_bytes) {
            d->peak_bytes = end;
            d->top        = i;
        }
    }
    assert(d->peak_bytes > 0);
}

void vp_report_plan_begin(const vp_plan *plan, vp_text *out)
{
    int64_t needs_bytes = plan->peak_bytes + plan->outside_bytes;
    char    title[300], says[200], needs[32], budget[32], time[32];

    snprintf(title, sizeof title, "%.120s on %.80s, sequence %lld, global batch %lld",
             plan->model_name, plan->device, (long long)plan->buckets[0].seq,
             (long long)plan->global_batch);
    snprintf(says, sizeof says, "%s: %s of %s, %s a step (%s)",
             needs_bytes <= plan->budget_bytes ? "FITS" : "DOES NOT FIT",
             vp_size_text(needs_bytes, needs, sizeof needs),
             vp_size_text(plan->budget_bytes, budget, sizeof budget),
             vp_time_text(plan->step_time_s, time, sizeof time), plan->time_class);
    vp_page_begin(out, title, says);
}

vp_status vp_report_arena(const vp_plan *plan, vp_text *out, vp_err *err)
{
    const vp_bucket *b     = &plan->buckets[0];
    vp_arena        *arena = vp_arena_new();
    drawing          d     = {.plan = plan, .out = out};
    vp_simulation    step;
    char             text[200];
    vp_status        st = VP_OK;

    VP_TRY_ALLOC(err, arena);
    d.n_micro = b->n_micro_steps < N_SHOWN_MICRO ? b->n_micro_steps : N_SHOWN_MICRO;
    VP_TRY(vp_expansion_make(arena, plan, b, d.n_micro, &d.x, err));
    d.begin_s = vp_arena_array(arena, d.x.n_steps + 1, sizeof *d.begin_s);
    d.part    = vp_arena_array(arena, d.x.n_steps + 1, sizeof *d.part);
    VP_TRY_ALLOC(err, d.begin_s && d.part);
    VP_TRY(vp_simulate_micro_steps(plan, b, d.n_micro, note_step, &d, &step, err));
    d.begin_s[d.x.n_steps] = d.end_s;
    find_top(&d);
    vp_page_heading(out, "Memory over the step");
    snprintf(
        text, sizeof text,
        "Each rectangle is a tensor: where it lies in the arena, and while it does; %lld of %lld "
        "micro-steps are drawn.",
        (long long)d.n_micro, (long long)b->n_micro_steps);
    vp_page_paragraph(out, text);
    add_svg(&d);
    add_components(&d);
    vp_page_heading(out, "Largest tensors at the peak");
    VP_TRY(add_largest(&d, arena, err));
    VP_TRY_ALLOC(err, !out->failed);
out:
    vp_arena_free(arena);
    return st;
}
