#include "runtime/measure_link.h"

#include "base/clock.h"
#include "base/stats.h"

#include <assert.h>
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
    *out = x;
out:
    if (m.device)
        backend->release(m.device, 2 * COPY_BYTES);
    backend->host_release(m.host);
    return st;
}
