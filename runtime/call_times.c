#include "runtime/call_times.h"

#include "base/checked.h"
#include "base/stats.h"
#include "runtime/measure_link.h"
#include "runtime/profile_ops.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

vp_status vp_call_times_add(vp_call_times *x, const vp_runtime *rt, vp_err *err)
{
    int64_t               n;
    const vp_kernel_time *now = vp_runtime_kernel_times(rt, &n);
    vp_status             st  = VP_OK;

    if (!x->at) {
        x->at      = calloc((size_t)n + 1, sizeof *x->at);
        x->seconds = calloc((size_t)(n + 1) * VP_CALL_TIMES_STEPS, sizeof *x->seconds);
        x->n       = n;
        VP_TRY_ALLOC(err, x->at && x->seconds);
        memcpy(x->at, now, (size_t)n * sizeof *now);
    }
    assert(n == x->n); /* every step makes the same calls */
    for (int64_t i = 0; i < x->n; i++)
        x->seconds[i * VP_CALL_TIMES_STEPS + x->n_steps % VP_CALL_TIMES_STEPS] = now[i].seconds;
    x->n_steps++;
out:
    return st;
}

void vp_call_times_forget(vp_call_times *x)
{
    x->n_steps = 0;
}

const vp_kernel_time *vp_call_times_median(vp_call_times *x)
{
    double sorted[VP_CALL_TIMES_STEPS];

    assert(x->n_steps >= 0);
    for (int64_t i = 0; i < x->n; i++) {
        int64_t n = vp_min_i64(x->n_steps, VP_CALL_TIMES_STEPS);

        memcpy(sorted, x->seconds + i * VP_CALL_TIMES_STEPS, (size_t)n * sizeof *sorted);
        x->at[i].seconds = vp_median(sorted, n);
    }
    return x->at;
}

vp_status vp_call_times_profile(const vp_call_times *x, const vp_backend *backend,
                                vp_profile *profile, vp_err *err)
{
    vp_status st = VP_OK;

    assert(backend->host_memory);
    snprintf(profile->backend, sizeof profile->backend, "%s", backend->describe());
    for (int64_t i = 0; i < x->n; i++) {
        const vp_kernel_time *t   = &x->at[i];
        vp_profile_row        row = {.kernel = t->kernel, .dtype = t->dtype, .lacks = t->lacks};

        if (t->n_calls == 0)
            continue;
        assert(t->n_calls > 0 && t->seconds >= 0);
        row.seconds = t->seconds / (double)t->n_calls;
        memcpy(row.ints, t->ints, sizeof row.ints);
        VP_TRY_ALLOC(err, vp_profile_add(profile, &row));
    }
    VP_TRY(vp_profile_host_update(profile, true, &profile->host_update_bytes_per_s, err));
    VP_TRY(vp_link_measure(backend, &profile->link, err));
out:
    return st;
}

void vp_call_times_release(vp_call_times *x)
{
    free(x->at);
    free(x->seconds);
    *x = (vp_call_times){0};
}
