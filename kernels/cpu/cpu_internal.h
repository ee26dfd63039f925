/* kernels/cpu/cpu_internal.h: what the files of the CPU backend share. Nothing outside includes it,
 * the tests of bits and of streams excepted. */
#ifndef VP_KERNELS_CPU_INTERNAL_H
#define VP_KERNELS_CPU_INTERNAL_H

#include "kernels/backend.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

/* ---- threads ---- */

/* Threads a parallel region asks for. Always given as a num_threads clause: the caller's own OpenMP
 * settings stay as they are. */
int  vp_cpu_threads(void);
void vp_cpu_set_threads(int n);

/* Elements of an elementwise kernel that one work item takes: 64 KiB of floats, so that a call on a
 * small buffer is one item and no second thread is woken for it. */
enum { VP_CPU_SPAN = 16384 };

static inline int64_t vp_cpu_n_spans(int64_t count)
{
    return (count + VP_CPU_SPAN - 1) / VP_CPU_SPAN;
}

static inline int64_t vp_cpu_span_len(int64_t count, int64_t span)
{
    int64_t left = count - span * VP_CPU_SPAN;
    return left < VP_CPU_SPAN ? left : VP_CPU_SPAN;
}

/* ---- instruction sets ----
 *
 * VP_PER_ISA(name, (parameters), (arguments)) { body } defines `static void name` three times
 * over, for AVX-512, for AVX2 and for the compiler's baseline, and picks one at run time. The
 * body is plain C: contraction into fused multiply-add is off and every reduction names its
 * lanes, so the three give the same bits; they differ in speed only. Why not target_clones: its
 * dispatch is an ifunc, which sanitizers and static libcs do not all bear, and a test could not
 * choose the clone. */
typedef enum vp_cpu_isa { VP_CPU_BASELINE, VP_CPU_AVX2, VP_CPU_AVX512 } vp_cpu_isa;

/* The best this machine has, at most what vp_cpu_isa_limit() allows. */
vp_cpu_isa vp_cpu_isa_now(void);

/* For tests: use no more than this from now on. */
void vp_cpu_isa_limit(vp_cpu_isa most);

/* Where a loop marked `omp simd` is not vectorised, clang says so, and -Werror makes that an
 * error: wanted, except under sanitizers, whose checks stand in the vectoriser's way. */
#if defined(__clang__) && defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(undefined_behavior_sanitizer) || \
    __has_feature(thread_sanitizer)
#pragma clang diagnostic ignored "-Wpass-failed"
#endif
#endif

#define VP_ALWAYS_INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__)
#define VP_TARGET_AVX2 __attribute__((target("avx2")))
/* GCC picks its vector width by tuning; this says: use what the name promises. */
#if defined(__clang__)
#define VP_TARGET_AVX512 \
    __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw"), min_vector_width(512)))
#else
#define VP_TARGET_AVX512 \
    __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,prefer-vector-width=512")))
#endif
#define VP_PER_ISA(name, params, args) \
    VP_ALWAYS_INLINE void name##_body params; \
    VP_TARGET_AVX512 static void name##_avx512 params \
    { \
        name##_body args; \
    } \
    VP_TARGET_AVX2 static void name##_avx2 params \
    { \
        name##_body args; \
    } \
    static void name##_baseline params \
    { \
        name##_body args; \
    } \
    static void name params \
    { \
        switch (vp_cpu_isa_now()) { \
        case VP_CPU_AVX512: \
            name##_avx512 args; \
            return; \
        case VP_CPU_AVX2: \
            name##_avx2 args; \
            return; \
        case VP_CPU_BASELINE: \
            name##_baseline args; \
            return; \
        } \
    } \
    VP_ALWAYS_INLINE void name##_body params
#else
#define VP_PER_ISA(name, params, args) static void name params
#endif

/* ---- sums with named lanes ----
 *
 * A float sum over n elements runs in 32 lanes: element i joins lane i mod 32, the last n mod 32
 * join a scalar after the lanes are added pairwise. The order is a function of n alone. */
typedef float   vp_f8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t vp_i8 __attribute__((vector_size(32), aligned(4), may_alias));

VP_ALWAYS_INLINE float vp_lanes_total(const vp_f8 lane[4])
{
    vp_f8 s = (lane[0] + lane[1]) + (lane[2] + lane[3]);
    return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
}

/* sum x[i] */
VP_ALWAYS_INLINE float vp_sum(const float *x, int64_t n)
{
    vp_f8   lane[4] = {{0}, {0}, {0}, {0}};
    int64_t i       = 0;
    float   total;

    for (; i + 32 <= n; i += 32)
        for (int l = 0; l < 4; l++)
            lane[l] += *(const vp_f8 *)(x + i + 8 * l);
    total = vp_lanes_total(lane);
    for (; i < n; i++)
        total += x[i];
    return total;
}

/* sum x[i] * y[i] */
VP_ALWAYS_INLINE float vp_dot(const float *x, const float *y, int64_t n)
{
    vp_f8   lane[4] = {{0}, {0}, {0}, {0}};
    int64_t i       = 0;
    float   total;

    for (; i + 32 <= n; i += 32)
        for (int l = 0; l < 4; l++)
            lane[l] += *(const vp_f8 *)(x + i + 8 * l) * *(const vp_f8 *)(y + i + 8 * l);
    total = vp_lanes_total(lane);
    for (; i < n; i++)
        total += x[i] * y[i];
    return total;
}

/* max x[i], n >= 0. No order matters: a maximum is exact. NaNs lose here and show in what
 * follows. */
VP_ALWAYS_INLINE float vp_max(const float *x, int64_t n)
{
    float   m[32], best = -__builtin_inff();
    vp_f8   lane[4];
    int64_t i = 0;

    for (int l = 0; l < 4; l++)
        lane[l] = best - (vp_f8){0};
    for (; i + 32 <= n; i += 32)
        for (int l = 0; l < 4; l++) {
            vp_f8 v      = *(const vp_f8 *)(x + i + 8 * l);
            vp_i8 larger = v > lane[l]; /* all ones or all zeros; C has no ?: on vectors */
            lane[l]      = (vp_f8)((larger & (vp_i8)v) | (~larger & (vp_i8)lane[l]));
        }
    memcpy(m, lane, sizeof m);
    for (int l = 0; l < 32; l++)
        best = m[l] > best ? m[l] : best;
    for (; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

/* x[i] = sqrt(x[i]), correctly rounded. sqrtf() may set errno, and a loop that may is not
 * vectorised; SSE2 is in every x86-64, and its four lanes are enough to stay ahead of memory. */
VP_ALWAYS_INLINE void vp_sqrt_all(float *x, int64_t n)
{
    int64_t i = 0;
#if defined(__x86_64__)
    for (; i + 4 <= n; i += 4)
        _mm_storeu_ps(x + i, _mm_sqrt_ps(_mm_loadu_ps(x + i)));
#endif
    for (; i < n; i++)
        x[i] = sqrtf(x[i]);
}

/* exp(x) for x <= 0, which is all a softmax or a sigmoid asks for. Error below 1 ulp (0.98,
 * measured over every float in [-87.3, 0]); 0 below -87.3, where exp(x) < 2^-125; NaN stays NaN. No
 * branch and no table, so a loop over it vectorises.
 *
 *     n = round(x / ln 2), r = x - n ln 2 with ln 2 in two parts (Cody and Waite), exp(x) = 2^n
 *     exp(r)
 *
 * exp(r) on |r| <= ln(2)/2: the degree-7 minimax polynomial of Cephes expf (Moshier 1989).
 * Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low bits: no conversion,
 * which could be undefined for NaN. */
VP_ALWAYS_INLINE float vp_exp_neg(float x)
{
    const float least = -87.3f, magic = 12582912.0f;
    float       c = x < least ? least : x;
    float       t = c * 1.44269504f + magic;
    float       n = t - magic;
    float       r = (c - n * 0.693359375f) + n * 2.12194440e-4f;
    float       y = 1.9875691500e-4f;
    float       power;
    uint32_t    bits;

    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = (y * (r * r) + r) + 1.0f;
    memcpy(&bits, &t, sizeof bits);
    bits = (bits - 0x4b400000u + 127u) << 23;
    memcpy(&power, &bits, sizeof power);
    y *= power;
    return x < least ? 0.0f : y;
}

/* ---- GEMM in fixed tiles ---- */

/* C(m, n) = A(m, k) B(k, n), or += with add. A and B may be stored transposed. Row-major; ld* is
 * the distance between stored rows in floats. */
typedef struct vp_gemm {
    int64_t      m, n, k;
    const float *a;
    int64_t      lda;
    bool         a_transposed;
    const float *b;
    int64_t      ldb;
    bool         b_transposed;
    float       *c;
    int64_t      ldc;
    float        alpha;
    bool         add;
} vp_gemm;

/* One call into the one-thread BLAS, on the calling thread. */
void vp_cpu_gemm_call(const vp_gemm *g);

/* All of it in fixed tiles on all threads. k_tile: how much of k one BLAS call takes; the tiles
 * of k are added into C in order. bias (n floats, or NULL) is what C holds before the first one, or more
 * of it. */
void vp_cpu_gemm(const vp_gemm *g, int64_t k_tile, const float *bias);

/* ---- memory, as vp_backend has it: cpu_memory.c ---- */

/* VP_ERR_DEVICE where OpenBLAS would not find address space for each thread: blas_room.c. */
vp_status vp_cpu_blas_room(vp_err *err);

vp_status vp_cpu_alloc(int64_t n_bytes, void **out, vp_err *err);
void      vp_cpu_release(void *p, int64_t n_bytes);
vp_status vp_cpu_memory(vp_backend_memory *out, vp_err *err);
vp_status vp_cpu_host_alloc(int64_t n_bytes, void **out, vp_err *err);
void      vp_cpu_host_release(void *p);

/* ---- streams and events, as vp_backend has them: cpu_streams.c ---- */

vp_status vp_cpu_copy_async(vp_stream stream, void *to, const void *from, int64_t n_bytes,
                            vp_err *err);
vp_status vp_cpu_mark(vp_stream stream, int event, vp_err *err);
vp_status vp_cpu_after(vp_stream stream, int event, vp_err *err);
vp_status vp_cpu_host_call(void (*f)(void *ctx), void *ctx, vp_err *err);
void      vp_cpu_streams_wait(void); /* until the copy streams are done */

/* Under stress: time passes, so copies may go on. Called before and behind a kernel. */
void vp_cpu_streams_pass(void);

/* For tests: from now on copies come at any time that the events allow, chosen by this seed, on the
 * thread that calls; 0: on threads of their own again. VPLAN_COPY_STRESS=SEED does the same. */
void vp_cpu_streams_stress(uint64_t seed);

/* ---- the kernels: one of each row of plan/kernels.def ---- */

#define VP_RUN(NAME, name) void vp_cpu_##name(const vp_kernel_call *call);
#include "plan/kernels.def"

#endif
