/* kernels/cpu/backend_cpu.c: the CPU backend's table of kernels, its threads and its description. */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/gemm_bf16.h"

#include "core/checked.h"

#include <assert.h>
#include <cblas.h>
#include <limits.h>
#include <omp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

typedef void (*kernel_fn)(const vp_kernel_call *call);

static const kernel_fn kernels[VP_N_KERNELS] = {
    [VP_K_EMBEDDING_FWD]     = vp_cpu_embedding_fwd,
    [VP_K_EMBEDDING_BWD]     = vp_cpu_embedding_bwd,
    [VP_K_LAYERNORM_FWD]     = vp_cpu_layernorm_fwd,
    [VP_K_LAYERNORM_BWD]     = vp_cpu_layernorm_bwd,
    [VP_K_RMSNORM_FWD]       = vp_cpu_rmsnorm_fwd,
    [VP_K_RMSNORM_BWD]       = vp_cpu_rmsnorm_bwd,
    [VP_K_LINEAR_FWD]        = vp_cpu_linear_fwd,
    [VP_K_LINEAR_BWD_INPUT]  = vp_cpu_linear_bwd_input,
    [VP_K_LINEAR_BWD_WEIGHT] = vp_cpu_linear_bwd_weight,
    [VP_K_ROPE_FWD]          = vp_cpu_rope_fwd,
    [VP_K_ROPE_BWD]          = vp_cpu_rope_bwd,
    [VP_K_ATTENTION_FWD]     = vp_cpu_attention_fwd,
    [VP_K_ATTENTION_BWD]     = vp_cpu_attention_bwd,
    [VP_K_ACTIVATION_FWD]    = vp_cpu_activation_fwd,
    [VP_K_ACTIVATION_BWD]    = vp_cpu_activation_bwd,
    [VP_K_GLU_FWD]           = vp_cpu_glu_fwd,
    [VP_K_GLU_BWD]           = vp_cpu_glu_bwd,
    [VP_K_ADD]               = vp_cpu_add,
    [VP_K_DROPOUT]           = vp_cpu_dropout,
    [VP_K_CROSS_ENTROPY]     = vp_cpu_cross_entropy,
    [VP_K_LOSS_SUM]          = vp_cpu_loss_sum,
    [VP_K_COPY]              = vp_cpu_copy,
    [VP_K_ZERO]              = vp_cpu_zero,
    [VP_K_GRAD_SUMSQ]        = vp_cpu_grad_sumsq,
    [VP_K_CLIP_SCALE]        = vp_cpu_clip_scale,
    [VP_K_ADAMW]             = vp_cpu_adamw,
    [VP_K_SGD]               = vp_cpu_sgd,
    [VP_K_MOMENTUM]          = vp_cpu_momentum,
    [VP_K_LION]              = vp_cpu_lion,
    [VP_K_ADAFACTOR]         = vp_cpu_adafactor,
    [VP_K_MUON]              = vp_cpu_muon,
};

static pthread_once_t once      = PTHREAD_ONCE_INIT;
static int            n_threads = 1;
static vp_cpu_isa     isa_found = VP_CPU_BASELINE, isa_most = VP_CPU_AVX512;

static void start(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2"))
        isa_found = VP_CPU_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
        isa_found = VP_CPU_AVX512;
#endif
    n_threads = omp_get_max_threads();
    /* The tiles are ours to hand out; inside one, a single thread makes the order fixed. */
    openblas_set_num_threads(1);
}

vp_cpu_isa vp_cpu_isa_now(void)
{
    pthread_once(&once, start);
    return isa_found < isa_most ? isa_found : isa_most;
}

void vp_cpu_isa_limit(vp_cpu_isa most)
{
    isa_most = most;
}

int vp_cpu_threads(void)
{
    pthread_once(&once, start);
    return n_threads;
}

static void set_threads(int n)
{
    assert(n >= 1);
    pthread_once(&once, start);
    n_threads = n;
}

static const char *describe(void)
{
    static const char *const isa[] = {"baseline", "AVX2", "AVX-512"};
    static char              line[256];

    pthread_once(&once, start);
    snprintf(line, sizeof line, "CPU, %s, bf16 by %s, OpenBLAS for %s, %d thread%s", isa[vp_cpu_isa_now()], vp_cpu_gemm_bf16_class(),
             openblas_get_corename(), n_threads, n_threads == 1 ? "" : "s");
    return line;
}

/* The BLAS interface counts in int. Everything else counts in 64 bits. */
static bool fits_blas(const vp_kernel_call *call)
{
    const int64_t *n = call->ints;

    switch (call->kernel) {
    case VP_K_LINEAR_FWD:
    case VP_K_LINEAR_BWD_INPUT:
    case VP_K_LINEAR_BWD_WEIGHT:
        return call->dtype == VP_DTYPE_BF16 || (n[1] <= INT_MAX && n[2] <= INT_MAX);
    case VP_K_ATTENTION_FWD:
    case VP_K_ATTENTION_BWD: {
        int64_t row = vp_mul(vp_add(n[2], vp_mul(2, n[3])), n[4]);
        return !vp_overflowed(row) && row <= INT_MAX;
    }
    case VP_K_MUON:
        return n[0] <= INT_MAX && n[1] <= INT_MAX;
    default:
        return true;
    }
}

static vp_status run(const vp_kernel_call *call, vp_err *err)
{
    assert(call->kernel >= 0 && call->kernel < VP_N_KERNELS);
    assert(call->dtype == VP_DTYPE_F32 || call->dtype == VP_DTYPE_BF16);
    pthread_once(&once, start);
    if (!fits_blas(call))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "%s: a row has more than %d elements, more than the BLAS library can address",
                       vp_kernel_info_of(call->kernel)->name, INT_MAX);
    kernels[call->kernel](call);
    return VP_OK;
}

/* run() returns when the work is done. */
static vp_status wait(vp_err *err)
{
    (void)err;
    return VP_OK;
}

static vp_status time_calls(const vp_kernel_call *call, int n_calls, double *seconds, vp_err *err)
{
    struct timespec begin, end;
    vp_status       st = VP_OK;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < n_calls; i++)
        VP_TRY(run(call, err));
    clock_gettime(CLOCK_MONOTONIC, &end);
    *seconds = ((double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec)) / n_calls;
out:
    return st;
}

static const vp_backend backend = {
    .api_version = VP_BACKEND_API,
    .name        = "cpu",
    .device      = "",
    .host_memory = true,
    .describe    = describe,
    .set_threads = set_threads,
    .threads     = vp_cpu_threads,
    .alloc       = vp_cpu_alloc,
    .release     = vp_cpu_release,
    .memory      = vp_cpu_memory,
    .upload      = vp_cpu_copy_bytes,
    .download    = vp_cpu_copy_bytes,
    .fill        = vp_cpu_fill,
    .run         = run,
    .wait        = wait,
    .time        = time_calls,
};

const vp_backend *vp_backend_cpu(void)
{
    pthread_once(&once, start);
    return &backend;
}
