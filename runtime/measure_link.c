#include "runtime/measure_link.h"

#include "base/clock.h"
#include "base/stats.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

enum { COPY_BYTES = 32 << 20, N_TIMES = 3, MOST_COPIES = 1 << 12 };
static const double LONG_S = 0.02; /* what starts a copy is some microseconds of it */

/* One half of each memory goes to the card, the other comes from it. */
typedef struct link_memory {
    const vp_backend *backend;
    char             *host, *device;
} link_memory;

/* Seconds of n copies in each direction asked for. */
static vp_status time_copies(const link_memory *m, bool to, bool from, int n, double *seconds,
                             vp_err *err)
{
    double    start_s;
    vp_status st = VP_OK;

    assert(n > 0 && (to || from));
    VP_TRY(m->backend->wait(err));
    start_s = vp_now_s();
    for (int i = 0; i < n; i++) {
        if (to)
            VP_TRY(m->backend->copy(VP_STREAM_TO_DEVICE, m->device, m->host, COPY_BYTES, err));
        if (from)
            VP_TRY(m->backend->copy(VP_STREAM_TO_HOST, m->host + COPY_BYTES, m->device + COPY_BYTES,
                                    COPY_BYTES, err));
    }
    VP_TRY(m->backend->wait(err));
    *seconds = vp_now_s() - start_s;
out:
    return st;
}

/* Bytes a second each way: the median of some times of as many copies as take LONG_S. The first copies, which
 * make the streams, are not counted. */
static vp_status rate_of(const link_memory *m, bool to, bool from, double *bytes_per_s, vp_err *err)
{
    double    seconds[N_TIMES];
    int       n  = 1;
    vp_status st = VP_OK;

    VP_TRY(time_copies(m, to, from, n, &seconds[0], err));
    for (;; n *= 2) {
        VP_TRY(time_copies(m, to, from, n, &seconds[0], err));
        if (seconds[0] >= LONG_S || n >= MOST_COPIES)
            break;
    }
    for (int i = 1; i < N_TIMES; i++)
        VP_TRY(time_copies(m, to, from, n, &seconds[i], err));
    *bytes_per_s = (double)n * COPY_BYTES / vp_median(seconds, N_TIMES);
out:
    return st;
}

/* ---- what kernels lose ---- */

/* A product and an update, which take about as long: one is bound by the processors, one by memory. */
enum { ROWS = 256, WIDTH = 1024, N_ELEMENTS = 1 << 20, N_CALLS = 2, N_BESIDE = 5 };
static const double KERNELS_S = 0.05, COPIES_S = 0.015;

typedef struct kernels {
    const vp_backend    *backend;
    float               *x; /* 4 * N_ELEMENTS: what both work on */
    vp_control           control;
    vp_optimizer_numbers numbers;
    vp_kernel_call       call[N_CALLS];
} kernels;

static vp_status make_kernels(const vp_backend *backend, kernels *k, vp_err *err)
{
    void     *p  = NULL;
    vp_status st = VP_OK;

    *k = (kernels){.backend = backend,
                   .control = {.lr = 1e-4, .step = 1, .grad_scale = 1},
                   .numbers = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}};
    VP_TRY(backend->alloc(4 * N_ELEMENTS * (int64_t)sizeof *k->x, &p, err));
    k->x = p;
    for (int64_t i = 0; i < 4 * N_ELEMENTS; i++)
        k->x[i] = 1e-3F * (float)(i % 977);
    vp_kernel_call *product = &k->call[0], *update = &k->call[1];
    *product = (vp_kernel_call){.kernel = VP_K_LINEAR_FWD, .dtype = VP_DTYPE_F32};
    *update =
        (vp_kernel_call){.kernel = VP_K_ADAMW, .dtype = VP_DTYPE_F32, .optimizer = &k->numbers};
    product->linear.rows              = ROWS;
    product->linear.in                = WIDTH;
    product->linear.out               = WIDTH;
    product->operand[VP_LINEAR_FWD_X] = k->x;
    product->operand[VP_LINEAR_FWD_W] = k->x + N_ELEMENTS;
    product->operand[VP_LINEAR_FWD_Y] = k->x + 2 * N_ELEMENTS;
    update->states.count              = N_ELEMENTS;
    update->operand[VP_ADAMW_P]       = k->x;
    update->operand[VP_ADAMW_G]       = k->x + N_ELEMENTS;
    update->operand[VP_ADAMW_M]       = k->x + 2 * N_ELEMENTS;
    update->operand[VP_ADAMW_V]       = k->x + 3 * N_ELEMENTS;
    update->operand[VP_ADAMW_CONTROL] = &k->control;
out:
    return st;
}

/* Seconds of n times all calls, beside n_copies that go to the device and are given before. */
static vp_status time_kernels(const kernels *k, const link_memory *m, int n, int n_copies,
                              double *seconds, vp_err *err)
{
    double    start_s;
    vp_status st = VP_OK;

    VP_TRY(k->backend->wait(err));
    start_s = vp_now_s();
    for (int i = 0; i < n_copies; i++)
        VP_TRY(m->backend->copy(VP_STREAM_TO_DEVICE, m->device, m->host, COPY_BYTES, err));
    for (int i = 0; i < n; i++)
        for (int c = 0; c < N_CALLS; c++)
            VP_TRY(k->backend->run(&k->call[c], err));
    *seconds = vp_now_s() - start_s;
    VP_TRY(k->backend->wait(err));
out:
    return st;
}

/* From the shortest of some times with copies and without, in turns: what else runs on the machine makes both longer. */
static vp_status measure_lost(const link_memory *m, double to_device_bytes_per_s,
                              double *s_per_byte, vp_err *err)
{
    kernels   k = {.x = NULL};
    double    alone_s, beside_s, least_alone_s = INFINITY, least_beside_s = INFINITY;
    int       n = 1, n_copies = 1 + (int)(COPIES_S * to_device_bytes_per_s / COPY_BYTES);
    vp_status st = VP_OK;

    VP_TRY(make_kernels(m->backend, &k, err));
    VP_TRY(time_kernels(&k, m, n, 0, &alone_s, err));
    for (;; n *= 2) {
        VP_TRY(time_kernels(&k, m, n, 0, &alone_s, err));
        if (alone_s >= KERNELS_S || n >= MOST_COPIES)
            break;
    }
    for (int i = 0; i < N_BESIDE; i++) {
        VP_TRY(time_kernels(&k, m, n, 0, &alone_s, err));
        VP_TRY(time_kernels(&k, m, n, n_copies, &beside_s, err));
        least_alone_s  = fmin(least_alone_s, alone_s);
        least_beside_s = fmin(least_beside_s, beside_s);
    }
    *s_per_byte =
        fmin(1, fmax(0, (least_beside_s - least_alone_s) / ((double)n_copies * COPY_BYTES)));
out:
    m->backend->release(k.x, 4 * N_ELEMENTS * (int64_t)sizeof *k.x);
    return st;
}

vp_status vp_link_measure(const vp_backend *backend, vp_link_rates *out, vp_err *err)
{
    link_memory m  = {.backend = backend};
    void       *p  = NULL;
    vp_status   st = VP_OK;

    *out            = (vp_link_rates){.pinned_bytes = 0};
    vp_link_rates x = {.pinned_bytes = 2 * COPY_BYTES};

    snprintf(x.device, sizeof x.device, "%s",
             backend->host_memory ? backend->name : backend->device);
    x.pinning_s = -vp_now_s();
    VP_TRY(backend->host_alloc(x.pinned_bytes, &p, err));
    m.host = p;
    x.pinning_s += vp_now_s();
    VP_TRY(backend->alloc(x.pinned_bytes, &p, err));
    m.device = p;
    VP_TRY(backend->fill(m.device, 1, x.pinned_bytes, err));
    VP_TRY(rate_of(&m, true, false, &x.to_device_bytes_per_s, err));
    VP_TRY(rate_of(&m, false, true, &x.from_device_bytes_per_s, err));
    VP_TRY(rate_of(&m, true, true, &x.together_bytes_per_s, err));
    if (backend->host_memory) /* its processors make the copies */
        VP_TRY(measure_lost(&m, x.to_device_bytes_per_s, &x.kernels_lost_s_per_byte, err));
    *out = x;
out:
    if (m.device)
        backend->release(m.device, 2 * COPY_BYTES);
    backend->host_release(m.host);
    return st;
}
