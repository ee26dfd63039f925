#include "dryrun/step_clock.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct times {
    double *at;
    int64_t n;
} times;

typedef struct interval {
    double begin_s, end_s;
    bool   talks;
} interval;

struct vp_step_clock {
    double    host_s, unit_s[VP_N_STEP_UNITS];
    times     streams, events;
    interval *done;
    int64_t   n_done, room;
    bool      failed;
};

vp_step_clock *vp_step_clock_new(void)
{
    return calloc(1, sizeof(vp_step_clock));
}

void vp_step_clock_free(vp_step_clock *c)
{
    if (!c)
        return;
    free(c->streams.at);
    free(c->events.at);
    free(c->done);
    free(c);
}

/* The time of number i, 0 at first; a place that nobody reads where memory ran out. */
static double *at(vp_step_clock *c, times *t, int64_t i)
{
    static double nowhere;

    assert(i >= 0);
    if (i >= t->n) {
        int64_t n     = 2 * i + 8;
        double *grown = realloc(t->at, (size_t)n * sizeof *grown);
        if (!grown) {
            c->failed = true;
            return &nowhere;
        }
        for (int64_t k = t->n; k < n; k++)
            grown[k] = 0;
        t->at = grown;
        t->n  = n;
    }
    return &t->at[i];
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

static void keep(vp_step_clock *c, double begin_s, double end_s, bool talks)
{
    if (c->n_done == c->room) {
        int64_t   room  = c->room ? 2 * c->room : 1024;
        interval *grown = realloc(c->done, (size_t)room * sizeof *grown);
        if (!grown) {
            c->failed = true;
            return;
        }
        c->done = grown;
        c->room = room;
    }
    c->done[c->n_done++] = (interval){begin_s, end_s, talks};
}

void vp_step_issue(vp_step_clock *c, double host_s)
{
    c->host_s += host_s;
}

void vp_step_work(vp_step_clock *c, int64_t stream, vp_step_unit unit, double seconds)
{
    double *of    = at(c, &c->streams, stream);
    double  begin = later(c->host_s, later(*of, c->unit_s[unit]));

    assert(seconds >= 0 && unit < VP_N_STEP_UNITS);
    *of = c->unit_s[unit] = begin + seconds;
    if (seconds > 0)
        keep(c, begin, *of, unit == VP_STEP_SENDING || unit == VP_STEP_RECEIVING);
}

void vp_step_record(vp_step_clock *c, int64_t stream, int64_t event)
{
    double now = *at(c, &c->streams, stream);

    *at(c, &c->events, event) = later(now, c->host_s);
}

void vp_step_await(vp_step_clock *c, int64_t stream, int64_t event)
{
    double  when = *at(c, &c->events, event);
    double *of   = at(c, &c->streams, stream);

    *of = later(*of, when);
}

void vp_step_host_awaits_stream(vp_step_clock *c, int64_t stream)
{
    c->host_s = later(c->host_s, *at(c, &c->streams, stream));
}

void vp_step_host_awaits_event(vp_step_clock *c, int64_t event)
{
    c->host_s = later(c->host_s, *at(c, &c->events, event));
}

static double all_done(const vp_step_clock *c)
{
    double end = 0;

    for (int u = 0; u < VP_N_STEP_UNITS; u++)
        end = later(end, c->unit_s[u]);
    return end;
}

void vp_step_host_awaits_all(vp_step_clock *c)
{
    c->host_s = later(c->host_s, all_done(c));
}

static int by_begin(const void *a, const void *b)
{
    const interval *x = a, *y = b;

    return x->begin_s < y->begin_s ? -1 : x->begin_s > y->begin_s;
}

/* Seconds in which any of them ran; not the talk's, where without is set. */
static double covered(const vp_step_clock *c, bool without_talk)
{
    double sum = 0, until = 0;

    for (int64_t i = 0; i < c->n_done; i++) {
        const interval *x = &c->done[i];

        if ((without_talk && x->talks) || x->end_s <= until)
            continue;
        sum += x->end_s - later(x->begin_s, until);
        until = x->end_s;
    }
    return sum;
}

vp_status vp_step_times_of(vp_step_clock *c, vp_step_times *out, vp_err *err)
{
    *out = (vp_step_times){0};
    if (c->failed)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    if (c->n_done)
        qsort(c->done, (size_t)c->n_done, sizeof *c->done, by_begin);
    out->step_s    = later(c->host_s, all_done(c));
    out->busy_s    = covered(c, false);
    out->exposed_s = out->busy_s - covered(c, true);
    for (int64_t i = 0; i < c->n_done; i++)
        if (c->done[i].talks)
            out->talk_s += c->done[i].end_s - c->done[i].begin_s;
    return VP_OK;
}
