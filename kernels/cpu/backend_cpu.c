/* kernels/cpu/backend_cpu.c: the CPU backend's table of kernels and its
 * description. */
#include "kernels/call_check.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/gemm_bf16.h"

#include "base/checked.h"
#include "base/clock.h"

#include <assert.h>
#include <cblas.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

typedef void (*kernel_fn)(const vp_kernel_call *call);

static const kernel_fn kernels[VP_N_KERNELS] = {
#define VP_RUN(NAME, name) [VP_K_##NAME] = vp_cpu_##name,
#include "plan/kernels.def"
};

static const char *describe(void)
{
    static const char *const isa[] = {"baseline", "AVX2", "AVX-512"};
    static char              line[256];

    snprintf(line, sizeof line, "CPU, %s, bf16 by %s, OpenBLAS for %s, %d thread%s",
             isa[vp_cpu_isa_now()], vp_cpu_gemm_bf16_class(), openblas_get_corename(),
             vp_cpu_threads(), vp_cpu_threads() == 1 ? "" : "s");
    return line;
}

/* The BLAS interface counts in int. Everything else counts in 64 bits. */
static bool fits_blas(const vp_kernel_call *call)
{
    switch (call->kernel) {
    case VP_K_LINEAR_FWD:
    case VP_K_LINEAR_ADD_FWD:
    case VP_K_LINEAR_BWD_INPUT:
    case VP_K_LINEAR_BWD_WEIGHT:
        return call->dtype != VP_DTYPE_F32 ||
               (call->linear.in <= INT_MAX && call->linear.out <= INT_MAX);
    case VP_K_ATTENTION_FWD:
    case VP_K_ATTENTION_BWD: {
        const vp_attention_ints *n = &call->attention;

        int64_t row = vp_mul(vp_add(n->heads, vp_mul(2, n->kv_heads)), n->head_dim);
        return !vp_overflowed(row) && row <= INT_MAX;
    }
    case VP_K_MUON:
        return call->muon.rows <= INT_MAX && call->muon.cols <= INT_MAX;
    default:
        return true;
    }
}

static vp_status run(const vp_kernel_call *call, vp_err *err)
{
    if (call->dtype == VP_DTYPE_TF32)
        return VP_FAIL(err, VP_ERR_INPUT, "%s: the CPU backend has no tf32",
                       vp_kernel_info_of(call->kernel)->name);
    if (!fits_blas(call))
        return VP_FAIL(
            err, VP_ERR_INPUT,
            "%s: a row has more than %d elements, more than the BLAS library can address",
            vp_kernel_info_of(call->kernel)->name, INT_MAX);
    vp_kernel_call_check(call);
    vp_cpu_streams_pass();
    kernels[call->kernel](call);
    vp_cpu_streams_pass();
    return VP_OK;
}

static vp_status wait(vp_err *err)
{
    (void)err;
    vp_cpu_streams_wait();
    return VP_OK;
}

/* The host's side, and the compute stream's memory: behind all copies. */
static vp_status copy_now(void *to, const void *from, int64_t n_bytes, vp_err *err)
{
    (void)err;
    assert(n_bytes >= 0 && (n_bytes == 0 || (to && from)));
    vp_cpu_streams_wait();
    memmove(to, from, (size_t)n_bytes);
    return VP_OK;
}

static vp_status fill(void *to, int byte, int64_t n_bytes, vp_err *err)
{
    (void)err;
    assert(n_bytes >= 0 && (n_bytes == 0 || to));
    vp_cpu_streams_wait();
    memset(to, byte, (size_t)n_bytes);
    return VP_OK;
}

static vp_status time_calls(const vp_kernel_call *calls, int n_calls, double *seconds, vp_err *err)
{
    double    begin_s = vp_now_s();
    vp_status st      = VP_OK;

    assert(n_calls > 0);
    for (int i = 0; i < n_calls; i++)
        VP_TRY(run(&calls[i], err));
    *seconds = (vp_now_s() - begin_s) / n_calls;
out:
    return st;
}

static const vp_backend backend = {
    .api_version  = VP_BACKEND_API,
    .name         = "cpu",
    .device       = "",
    .host_memory  = true,
    .describe     = describe,
    .set_threads  = vp_cpu_set_threads,
    .threads      = vp_cpu_threads,
    .alloc        = vp_cpu_alloc,
    .release      = vp_cpu_release,
    .memory       = vp_cpu_memory,
    .upload       = copy_now,
    .download     = copy_now,
    .fill         = fill,
    .host_alloc   = vp_cpu_host_alloc,
    .host_release = vp_cpu_host_release,
    .run          = run,
    .host         = vp_cpu_host_call,
    .wait         = wait,
    .copy         = vp_cpu_copy_async,
    .mark         = vp_cpu_mark,
    .after        = vp_cpu_after,
    .time         = time_calls,
};

static void start(void)
{
    const char *stress = getenv("VPLAN_COPY_STRESS");

    if (stress && *stress)
        vp_cpu_streams_stress(strtoull(stress, NULL, 10));
}

const vp_backend *vp_backend_cpu(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, start);
    return &backend;
}
