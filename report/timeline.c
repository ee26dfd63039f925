#include "report/timeline.h"

#include "base/checked.h"

#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* What a step is and when, in the order of the walk. */
typedef struct moment {
    double         begin_s, end_s, waited_s;
    const vp_step *step;
    vp_pass        pass;
    int64_t        micro_step, instance_idx;
} moment;

typedef struct moments {
    vp_arena *arena;
    moment   *at;
    int64_t   n, cap;
} moments;

static vp_status note(const vp_expanded_step *s, const vp_simulated_step *when, void *ctx,
                      vp_err *err)
{
    moments *m = ctx;

    if (!vp_arena_grow(m->arena, (void **)&m->at, m->n, &m->cap, sizeof *m->at))
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    m->at[m->n++] = (moment){when->begin_s, when->end_s,   when->waited_s, s->step,
                             s->pass,       s->micro_step, s->instance_idx};
    return VP_OK;
}

static int64_t walked(const vp_bucket *b)
{
    return vp_min_i64(b->n_micro_steps, VP_SIMULATED_MICRO_STEPS);
}

/* Bytes alive in the device's arena at each step of the walk. */
static vp_status count_alive(vp_arena *arena, const vp_plan *plan, int64_t n_steps, int64_t **alive,
                             vp_err *err)
{
    vp_expansion x;
    int64_t     *change = vp_arena_array(arena, n_steps + 1, sizeof *change);
    vp_status    st     = VP_OK;

    VP_TRY_ALLOC(err, change);
    VP_TRY(vp_expansion_make(arena, plan, &plan->buckets[0], walked(&plan->buckets[0]), &x, err));
    assert(x.n_steps == n_steps);
    for (int64_t b = 0; b < x.n_buffers; b++)
        if (x.first_step[b] >= 0 && x.buffers[b].memory == VP_MEMORY_DEVICE) {
            change[x.first_step[b]] += x.buffers[b].bytes;
            change[x.last_step[b] + 1] -= x.buffers[b].bytes;
        }
    for (int64_t i = 1; i < n_steps; i++)
        change[i] += change[i - 1];
    *alive = change;
out:
    return st;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* Add what lies between two times to the columns it lies in, as shares of them. */
static void spread(const vp_timeline *t, double begin_s, double end_s, double *columns)
{
    double  width = t->end_s / (double)t->n_columns;
    int64_t first = width > 0 ? (int64_t)(begin_s / width) : 0;

    for (int64_t c = first; width > 0 && c < t->n_columns && (double)c * width < end_s; c++)
        columns[c] += larger(0, smaller(end_s, (double)(c + 1) * width) -
                                    larger(begin_s, (double)c * width)) /
                      width;
}

static void draw(vp_timeline *t, const moments *m, const int64_t *alive)
{
    double width = t->end_s / (double)t->n_columns;

    for (int64_t i = 0; i < m->n; i++) {
        const moment *x = &m->at[i];
        spread(t, x->begin_s, x->end_s - x->waited_s, t->busy[x->step->stream]);
        spread(t, x->end_s - x->waited_s, x->end_s, t->waited);
        if (x->step->kernel == VP_K_COPY_START || width <= 0)
            continue;
        for (int64_t c = (int64_t)(x->begin_s / width);
             c < t->n_columns && (double)c * width <= x->end_s; c++)
            t->alive_bytes[c] = vp_max_i64(t->alive_bytes[c], alive[i]);
        t->most_bytes = vp_max_i64(t->most_bytes, alive[i]);
    }
}

vp_status vp_timeline_make(vp_arena *arena, const vp_plan *plan, int64_t n_columns, vp_timeline *t,
                           vp_err *err)
{
    moments   m = {.arena = arena};
    int64_t  *alive;
    vp_status st = VP_OK;

    assert(n_columns > 0);
    *t = (vp_timeline){.n_columns     = n_columns,
                       .n_micro_steps = walked(&plan->buckets[0]),
                       .waited        = vp_arena_array(arena, n_columns, sizeof *t->waited),
                       .alive_bytes   = vp_arena_array(arena, n_columns, sizeof *t->alive_bytes)};
    for (int s = 0; s < VP_N_STREAMS; s++)
        t->busy[s] = vp_arena_array(arena, n_columns, sizeof *t->busy[s]);
    VP_TRY_ALLOC(err, !vp_arena_failed(arena));
    VP_TRY(vp_simulate(plan, &plan->buckets[0], note, &m, &t->step, err));
    VP_TRY(count_alive(arena, plan, m.n, &alive, err));
    for (int64_t i = 0; i < m.n; i++)
        t->end_s = larger(t->end_s, m.at[i].end_s);
    draw(t, &m, alive);
    t->hidden_s =
        t->step.busy_s[VP_STREAM_TO_HOST] + t->step.busy_s[VP_STREAM_TO_DEVICE] - t->step.waited_s;
out:
    return st;
}

/* ---- the trace ---- */

static const char *const tracks[VP_N_STREAMS] = {[VP_STREAM_COMPUTE]   = "kernels",
                                                 [VP_STREAM_TO_HOST]   = "copies to the host",
                                                 [VP_STREAM_TO_DEVICE] = "copies to the device",
                                                 [VP_STREAM_HOST]      = "updates by the host"};

static void put(vp_text *out, json_t *event)
{
    char *text = event ? json_dumps(event, JSON_COMPACT) : NULL;

    if (text)
        vp_text_append(out, text, strlen(text));
    else
        out->failed = true;
    free(text);
    json_decref(event);
}

static void put_moment(vp_text *out, const vp_plan *plan, const moment *x)
{
    const vp_kernel_info *info  = vp_kernel_info_of(x->step->kernel);
    double                begin = x->begin_s, end = x->end_s;

    if (x->step->kernel == VP_K_COPY_DONE && x->waited_s <= 0)
        return;
    vp_text_printf(out, ",\n");
    put(out, json_pack("{s:o, s:s, s:i, s:i, s:f, s:f, s:{s:s, s:I, s:I}}", "name",
                       json_sprintf("%s %s",
                                    x->step->kernel == VP_K_COPY_DONE ? "waits for" : info->name,
                                    x->step->name),
                       "ph", "X", "pid", 1, "tid", (int)x->step->stream + 1, "ts", begin * 1e6,
                       "dur", (end - begin) * 1e6, "args", "phase", vp_pass_phase(x->pass),
                       "micro_step", (json_int_t)x->micro_step, "instance",
                       (json_int_t)plan->buckets[0].instances[x->instance_idx].index));
}

vp_status vp_report_trace(const vp_plan *plan, vp_text *out, vp_err *err)
{
    vp_arena     *arena = vp_arena_new();
    moments       m     = {.arena = arena};
    int64_t      *alive, last = -1;
    vp_simulation step;
    vp_status     st = VP_OK;

    VP_TRY_ALLOC(err, arena);
    VP_TRY(vp_simulate(plan, &plan->buckets[0], note, &m, &step, err));
    VP_TRY(count_alive(arena, plan, m.n, &alive, err));
    vp_text_printf(out, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
    for (int s = 0; s < VP_N_STREAMS; s++) {
        if (s == VP_STREAM_HOST && step.busy_s[s] <= 0) /* few plans have it */
            continue;
        if (s > 0)
            vp_text_printf(out, ",\n");
        put(out, json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", "thread_name", "ph", "M", "pid",
                           1, "tid", s + 1, "args", "name", tracks[s]));
    }
    for (int64_t i = 0; i < m.n; i++) {
        put_moment(out, plan, &m.at[i]);
        if (m.at[i].step->kernel == VP_K_COPY_START || alive[i] == last)
            continue;
        vp_text_printf(out, ",\n");
        put(out,
            json_pack("{s:s, s:s, s:i, s:f, s:{s:I}}", "name", "device memory", "ph", "C", "pid", 1,
                      "ts", m.at[i].begin_s * 1e6, "args", "bytes", (json_int_t)alive[i]));
        last = alive[i];
    }
    vp_text_printf(out, "\n]}\n");
    VP_TRY_ALLOC(err, !out->failed);
out:
    vp_arena_free(arena);
    return st;
}
