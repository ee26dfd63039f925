#include "plan/simulate.h"

#include "base/checked.h"

#include <assert.h>

/* What a walk has come to at the end of a micro-step. */
typedef struct reading {
    double end_s, busy_s[VP_N_STREAMS], waited_s;
} reading;

typedef struct clocks {
    double         at_s[VP_N_STREAMS]; /* when each stream is done with what it was given */
    double         copy_end_s[VP_MAX_COPIES];
    double         busy_s[VP_N_STREAMS], waited_s;
    reading        after[VP_SIMULATED_MICRO_STEPS]; /* each micro-step */
    bool           host_is_device;
    vp_simulate_fn fn;
    void          *ctx;
} clocks;

static void read_clocks(const clocks *c, reading *out)
{
    out->end_s    = c->at_s[VP_STREAM_COMPUTE];
    out->waited_s = c->waited_s;
    for (int s = 0; s < VP_N_STREAMS; s++)
        out->busy_s[s] = c->busy_s[s];
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* When all streams are done. */
static double end_of(const clocks *c)
{
    double end_s = 0;

    for (int s = 0; s < VP_N_STREAMS; s++)
        end_s = later(end_s, c->at_s[s]);
    return end_s;
}

/* One more step; started: of a copy_done, whether its copy is under way. */
static vp_simulated_step take(clocks *c, const vp_step *s, bool started)
{
    bool              host   = s->stream == VP_STREAM_HOST && !c->host_is_device;
    vp_stream         stream = s->stream == VP_STREAM_HOST && !host ? VP_STREAM_COMPUTE : s->stream;
    double           *now    = &c->at_s[stream];
    double            compute = c->at_s[VP_STREAM_COMPUTE];
    vp_simulated_step when    = {.begin_s = *now, .end_s = *now};

    assert(s->stream < VP_N_STREAMS);
    /* kernels run on one stream, copies on the others: two steps of one copy are never on one */
    assert((s->kernel == VP_K_COPY_START) ==
           (s->stream == VP_STREAM_TO_HOST || s->stream == VP_STREAM_TO_DEVICE));

    if (s->kernel == VP_K_COPY_DONE) {
        when.end_s    = later(*now, started ? c->copy_end_s[s->copy_done.copy] : 0);
        when.waited_s = host ? 0 : when.end_s - *now; /* kernels */
        when.begin_s  = host ? when.end_s : *now;
        c->waited_s += when.waited_s;
    } else {
        when.begin_s = later(when.begin_s, compute); /* no kernel is before itself */
        if (s->kernel == VP_K_COPY_START)
            when.begin_s = later(when.begin_s, c->at_s[VP_STREAM_HOST]);
        when.end_s = when.begin_s + s->seconds;
        c->busy_s[s->stream] += s->seconds;
    }
    assert(when.begin_s <= when.end_s && when.end_s >= *now && when.waited_s >= 0);
    *now = when.end_s;
    if (s->kernel == VP_K_COPY_START) {
        c->copy_end_s[s->copy_start.copy] = when.end_s;
        c->at_s[VP_STREAM_COMPUTE] += s->lost_s;
        c->busy_s[VP_STREAM_COMPUTE] += s->lost_s;
    }
    return when;
}

static vp_status advance(const vp_expanded_step *s, void *ctx, vp_err *err)
{
    clocks           *c    = ctx;
    vp_simulated_step when = take(c, s->step, s->started >= 0);

    assert(s->micro_step < VP_SIMULATED_MICRO_STEPS);
    if (s->micro_step >= 0)
        read_clocks(c, &c->after[s->micro_step]);
    return c->fn ? c->fn(s, &when, c->ctx, err) : VP_OK;
}

double vp_simulate_steps(const vp_step *steps, int64_t n, bool host_is_device)
{
    clocks c = {.host_is_device = host_is_device};

    for (int64_t i = 0; i < n; i++)
        take(&c, &steps[i], true);
    return end_of(&c);
}

/* What was walked, and the micro-steps left out, each as long as the last middle one. */
static vp_simulation with_the_rest(const clocks *c, int64_t n_walked, int64_t n_micro_steps)
{
    vp_simulation out = {.step_s = end_of(c), .waited_s = c->waited_s};

    for (int s = 0; s < VP_N_STREAMS; s++)
        out.busy_s[s] = c->busy_s[s];
    if (n_micro_steps > n_walked) {
        double         more = (double)(n_micro_steps - n_walked);
        const reading *from = &c->after[n_walked - 3], *to = &c->after[n_walked - 2];
        out.step_s += more * (to->end_s - from->end_s);
        out.waited_s += more * (to->waited_s - from->waited_s);
        for (int s = 0; s < VP_N_STREAMS; s++)
            out.busy_s[s] += more * (to->busy_s[s] - from->busy_s[s]);
    }
    return out;
}

/* ---- pass by pass ---- */

/* What a walk over many passes has to know of a step. */
typedef enum timed_kind {
    TIMED_KERNEL,
    TIMED_HOST, /* an update that the host makes beside kernels */
    TIMED_COPY_TO_HOST,
    TIMED_COPY_TO_DEVICE,
    TIMED_COPY_DONE,
    TIMED_COPY_DONE_OF_HOST
} timed_kind;

struct vp_timed_step {
    double  seconds;
    int16_t copy;
    uint8_t kind; /* timed_kind */
    bool    first_only, later_only;
};

_Static_assert(VP_MAX_COPIES <= INT16_MAX, "the number of a copy has room");

static timed_kind kind_of(const vp_step *s, bool host_is_device)
{
    const bool host = s->stream == VP_STREAM_HOST && !host_is_device;

    assert(s->stream < VP_N_STREAMS);
    assert((s->kernel == VP_K_COPY_START) ==
           (s->stream == VP_STREAM_TO_HOST || s->stream == VP_STREAM_TO_DEVICE));
    if (s->kernel == VP_K_COPY_DONE)
        return host ? TIMED_COPY_DONE_OF_HOST : TIMED_COPY_DONE;
    if (s->kernel == VP_K_COPY_START)
        return s->stream == VP_STREAM_TO_HOST ? TIMED_COPY_TO_HOST : TIMED_COPY_TO_DEVICE;
    return host ? TIMED_HOST : TIMED_KERNEL;
}

bool vp_pass_time(vp_arena *arena, const vp_step *steps, int64_t n, bool host_is_device,
                  vp_timed_pass *out)
{
    int64_t        n_timed = n;
    vp_timed_step *timed;

    for (int64_t i = 0; i < n; i++)
        n_timed += steps[i].lost_s > 0;
    timed = vp_arena_room(arena, n_timed, sizeof *timed);
    *out  = (vp_timed_pass){timed, n_timed};
    for (int64_t i = 0, at = 0; timed && i < n; i++) {
        const vp_step *s    = &steps[i];
        const int64_t  copy = s->kernel == VP_K_COPY_START  ? s->copy_start.copy
                              : s->kernel == VP_K_COPY_DONE ? s->copy_done.copy
                                                            : 0;
        assert(copy >= 0 && copy < VP_MAX_COPIES);
        timed[at++] = (vp_timed_step){.seconds    = s->seconds,
                                      .copy       = (int16_t)copy,
                                      .kind       = (uint8_t)kind_of(s, host_is_device),
                                      .first_only = s->first_only,
                                      .later_only = s->later_only};
        if (s->lost_s > 0) { /* as a kernel behind the copy's start */
            timed[at]         = timed[at - 1];
            timed[at].kind    = TIMED_KERNEL;
            timed[at].seconds = s->lost_s;
            at++;
        }
    }
    return timed;
}

/* As take(), of what vp_simulate_passes() answers: the streams' clocks in registers. */
static void take_pass(clocks *c, vp_timed_pass pass, int64_t micro_step)
{
    double compute = c->at_s[VP_STREAM_COMPUTE], host = c->at_s[VP_STREAM_HOST];
    double to_host = c->at_s[VP_STREAM_TO_HOST], to_device = c->at_s[VP_STREAM_TO_DEVICE];

    for (int64_t i = 0; i < pass.n; i++) {
        const vp_timed_step *s = &pass.steps[i];
        if ((s->first_only && micro_step > 0) || (s->later_only && micro_step == 0))
            continue;
        switch ((timed_kind)s->kind) {
        case TIMED_KERNEL:
            compute += s->seconds;
            break;
        case TIMED_HOST:
            host = later(host, compute) + s->seconds;
            break;
        case TIMED_COPY_TO_HOST:
            to_host                = later(later(to_host, compute), host) + s->seconds;
            c->copy_end_s[s->copy] = to_host;
            break;
        case TIMED_COPY_TO_DEVICE:
            to_device              = later(later(to_device, compute), host) + s->seconds;
            c->copy_end_s[s->copy] = to_device;
            break;
        case TIMED_COPY_DONE:
            compute = later(compute, c->copy_end_s[s->copy]);
            break;
        case TIMED_COPY_DONE_OF_HOST:
            host = later(host, c->copy_end_s[s->copy]);
            break;
        }
    }
    c->at_s[VP_STREAM_COMPUTE]   = compute;
    c->at_s[VP_STREAM_HOST]      = host;
    c->at_s[VP_STREAM_TO_HOST]   = to_host;
    c->at_s[VP_STREAM_TO_DEVICE] = to_device;
}

static void take_passes(clocks *c, vp_passes passes, int64_t micro_step)
{
    for (int64_t p = 0; p < passes.n; p++)
        take_pass(c, passes.of[p], micro_step);
}

double vp_simulate_passes(const vp_step_passes *step, double *optimizer_s)
{
    int64_t n = vp_min_i64(step->n_micro_steps, VP_SIMULATED_MICRO_STEPS);
    clocks  c = {.fn = NULL};

    for (int64_t m = 0; m < n; m++) {
        take_passes(&c, m < n - 1 ? step->micro_step : step->last_micro_step, m);
        read_clocks(&c, &c.after[m]);
    }
    *optimizer_s = -c.at_s[VP_STREAM_COMPUTE];
    take_passes(&c, step->optimizer, -1);
    *optimizer_s += end_of(&c);
    return with_the_rest(&c, n, step->n_micro_steps).step_s;
}

vp_status vp_simulate(const vp_plan *plan, const vp_bucket *bucket, vp_simulate_fn fn, void *ctx,
                      vp_simulation *out, vp_err *err)
{
    return vp_simulate_micro_steps(plan, bucket,
                                   vp_min_i64(bucket->n_micro_steps, VP_SIMULATED_MICRO_STEPS), fn,
                                   ctx, out, err);
}

vp_status vp_simulate_micro_steps(const vp_plan *plan, const vp_bucket *bucket, int64_t n,
                                  vp_simulate_fn fn, void *ctx, vp_simulation *out, vp_err *err)
{
    clocks    c  = {.fn = fn, .ctx = ctx, .host_is_device = plan->compute_capability == 0};
    vp_status st = VP_OK;

    assert(bucket->n_micro_steps >= 1);
    assert(n == bucket->n_micro_steps || (n >= 3 && n < bucket->n_micro_steps));
    assert(n <= VP_SIMULATED_MICRO_STEPS);
    VP_TRY(vp_expand(plan, bucket, n, advance, &c, err));
    *out = with_the_rest(&c, n, bucket->n_micro_steps);
out:
    return st;
}
