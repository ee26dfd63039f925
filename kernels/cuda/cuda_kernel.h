/* kernels/cuda/cuda_kernel.h: what every .cu file begins with: elements, sums in a fixed order,
 * random numbers, launches.
 *
 * The .cu files keep to a small part of CUDA C++ (what this header uses, shared memory,
 * __syncthreads, warp shuffles), so that tests/cuda_emulator can run the same sources, thread by
 * thread, on a machine without a GPU.
 *
 * Numerics contract (kernels/README.md): the bits of a result follow from shape and values
 * alone. So: no floating-point atomics; every sum has an order that the shape fixes; reductions
 * over tokens go tile by tile of VP_TILE_TOKENS, the tiles added one after the other. Whether a
 * product and a sum are contracted is the compiler's choice: it is the same in every plan, since
 * every plan runs the same kernels. */
#ifndef VP_KERNELS_CUDA_KERNEL_H
#define VP_KERNELS_CUDA_KERNEL_H

#include "kernels/cuda/cuda_internal.h"

#include "base/fp16.h"

#include <cuda_runtime.h>
#include <stdint.h>

/* VP_LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...): the launch's error, or
 * cudaSuccess. A kernel with commas in its template arguments stands in parentheses. */
#ifndef VP_LAUNCH
/* clang-format off */
#define VP_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
    ((kernel)<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__), cudaGetLastError())
/* clang-format on */
#endif

/* Dynamic shared memory of a block as an array of T. */
#ifndef VP_DYNAMIC_SHARED
#define VP_DYNAMIC_SHARED(T, name) \
    extern __shared__ __align__(16) unsigned char vp_dynamic_shared[]; \
    T                                            *name = reinterpret_cast<T *>(vp_dynamic_shared)
#endif

enum { VP_WARP = 32, VP_BLOCK = 256, VP_MAX_GRID = 1 << 30 };

static inline unsigned vp_blocks(int64_t n, int64_t per_block)
{
    int64_t blocks = (n + per_block - 1) / per_block;
    return (unsigned)(blocks < 1 ? 1 : blocks > VP_MAX_GRID ? VP_MAX_GRID : blocks);
}

/* ---- elements: fp32, or bf16 or fp16 in 16 bits; arithmetic is in float ----
 *
 * To nearest even; a NaN stays one. By the hardware's conversions, two at a time where there are such
 * (compute capability 8.0); Turing converts to bf16 by whole numbers. In the emulator by base/. */

struct vp_bf16 {
    uint16_t bits;
};

struct vp_f16 {
    uint16_t bits;
};

static __device__ inline float vp_float_of(vp_bf16 x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}

static __device__ inline float vp_float_of(vp_f16 x)
{
#ifdef __CUDACC__
    float y;

    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
#else
    return vp_fp16_to_f32(x.bits);
#endif
}

static __device__ inline void vp_round(float x, vp_bf16 *y)
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y->bits) : "f"(x));
#else
    uint32_t bits = __float_as_uint(x);

    y->bits = (bits & 0x7fffffffu) > 0x7f800000u
                  ? (uint16_t)(bits >> 16 | 0x40u)
                  : (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}

static __device__ inline void vp_round(float x, vp_f16 *y)
{
#ifdef __CUDACC__
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y->bits) : "f"(x));
#else
    y->bits = vp_fp16_from_f32(x);
#endif
}

/* Two neighbours as memory has them in a word, the first in its low half. */
template <typename T> static __device__ inline uint32_t vp_word_of(float first, float second)
{
    T low, high;

    vp_round(first, &low);
    vp_round(second, &high);
    return (uint32_t)low.bits | (uint32_t)high.bits << 16;
}

#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
template <> __device__ inline uint32_t vp_word_of<vp_bf16>(float first, float second)
{
    uint32_t word;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}

template <> __device__ inline uint32_t vp_word_of<vp_f16>(float first, float second)
{
    uint32_t word;

    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}
#endif

template <typename T> static __device__ inline void vp_floats_of(uint32_t word, float *x)
{
    T low, high;

    low.bits  = (uint16_t)word;
    high.bits = (uint16_t)(word >> 16);
    x[0]      = vp_float_of(low);
    x[1]      = vp_float_of(high);
}

template <> __device__ inline void vp_floats_of<vp_bf16>(uint32_t word, float *x)
{
    x[0] = __uint_as_float(word << 16);
    x[1] = __uint_as_float(word & 0xffff0000u);
}

static __device__ inline float vp_load(const float *p, int64_t i)
{
    return p[i];
}

template <typename T> static __device__ inline float vp_load(const T *p, int64_t i)
{
    return vp_float_of(p[i]);
}

static __device__ inline void vp_store(float *p, int64_t i, float x)
{
    p[i] = x;
}

template <typename T> static __device__ inline void vp_store(T *p, int64_t i, float x)
{
    vp_round(x, &p[i]);
}

/* 16 bytes at once: 4 floats or 8 of 16 bits. The address must be a multiple of 16: vp_is_aligned16()
 * of every operand at hand, asked once on the host, chooses between a kernel that uses these and
 * one that does not. */
template <typename T> struct vp_pack {
    enum { N = 16 / sizeof(T) };
    float x[N];
};

static __device__ inline vp_pack<float> vp_load16(const float *p)
{
    float4         v = *reinterpret_cast<const float4 *>(p);
    vp_pack<float> y;

    y.x[0] = v.x, y.x[1] = v.y, y.x[2] = v.z, y.x[3] = v.w;
    return y;
}

template <typename T> static __device__ inline vp_pack<T> vp_load16(const T *p)
{
    uint4          v    = *reinterpret_cast<const uint4 *>(p);
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
    vp_pack<T>     y;

#pragma unroll
    for (int i = 0; i < 4; i++)
        vp_floats_of<T>(w[i], &y.x[2 * i]);
    return y;
}

static __device__ inline void vp_store16(float *p, const vp_pack<float> &y)
{
    *reinterpret_cast<float4 *>(p) = make_float4(y.x[0], y.x[1], y.x[2], y.x[3]);
}

template <typename T> static __device__ inline void vp_store16(T *p, const vp_pack<T> &y)
{
    uint32_t w[4];

#pragma unroll
    for (int i = 0; i < 4; i++)
        w[i] = vp_word_of<T>(y.x[2 * i], y.x[2 * i + 1]);
    *reinterpret_cast<uint4 *>(p) = make_uint4(w[0], w[1], w[2], w[3]);
}

/* 1 / x, 2^-125 <= x <= 2^125, to one unit of the last place: the hardware's approximation and one
 * step of Newton's. A division that is exact for every x is four times as long and has a subroutine
 * behind it. A NaN stays one. */
static __device__ inline float vp_reciprocal(float x)
{
#ifdef __CUDACC__
    float y;

    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return fmaf(y, fmaf(-x, y, 1.0f), y);
#else
    return 1.0f / x;
#endif
}

/* Quotients by a whole number that the launch knows: with 2^(s-1) < by <= 2^s and m = ceil(2^(31+s) /
 * by), n / by = n m / 2^(31+s), cut, for each n below 2^31 (Granlund, Montgomery 1994, theorem 4.2).
 * Division of 64 bits, a subroutine, is left to greater n. */
struct vp_divisor {
    int64_t  by;
    uint32_t multiplier;
    int      shift;
};

static inline vp_divisor vp_divisor_of(int64_t by)
{
    vp_divisor d = {by, 0, 31};

    while (d.shift < 62 && (int64_t)1 << (d.shift - 31) < by)
        d.shift++;
    if (by <= (int64_t)1 << 31) /* else n / by is 0 below 2^31 */
        d.multiplier = (uint32_t)((((uint64_t)1 << d.shift) + (uint64_t)by - 1) / (uint64_t)by);
    return d;
}

static __device__ inline int64_t vp_quotient(int64_t n, const vp_divisor &d)
{
    return n >> 31 ? n / d.by : (int64_t)((uint64_t)n * d.multiplier >> d.shift);
}

static inline bool vp_is_aligned16(const void *p)
{
    return ((uintptr_t)p & 15) == 0; /* an absent operand too */
}

/* VP_BY_DTYPE(call->dtype, T, statement): the statement with T as float, vp_bf16 or vp_f16, which
 * operands of a call of this dtype are that are VP_AS_CALL. */
#define VP_BY_DTYPE(dtype, T, ...) \
    do { \
        if ((dtype) == VP_DTYPE_F16) { \
            typedef vp_f16 T; \
            __VA_ARGS__; \
        } else if (vp_dtype_of_operands(dtype) != VP_DTYPE_F32) { \
            typedef vp_bf16 T; \
            __VA_ARGS__; \
        } else { \
            typedef float T; \
            __VA_ARGS__; \
        } \
    } while (0)

/* ---- sums of a block, in an order that the block's size fixes ---- */

template <typename T> static __device__ inline T vp_warp_sum(T x)
{
#pragma unroll
    for (int lane = VP_WARP / 2; lane > 0; lane /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, lane);
    return x;
}

template <typename T> static __device__ inline T vp_warp_max(T x)
{
#pragma unroll
    for (int lane = VP_WARP / 2; lane > 0; lane /= 2) {
        T y = __shfl_xor_sync(0xffffffffu, x, lane);
        x   = y > x ? y : x;
    }
    return x;
}

/* Every thread of a block of whole warps calls it and gets the sum. scratch: shared, VP_WARP
 * elements; free again on return. */
template <typename T> static __device__ inline T vp_block_sum(T x, T *scratch)
{
    int warp = (int)threadIdx.x / VP_WARP, lane = (int)threadIdx.x % VP_WARP,
        n_warps = (int)blockDim.x / VP_WARP;

    x = vp_warp_sum(x);
    if (lane == 0)
        scratch[warp] = x;
    __syncthreads();
    x = lane < n_warps ? scratch[lane] : T(0);
    x = vp_warp_sum(x);
    __syncthreads();
    return x;
}

/* The same of n values: each thread its share upwards, then the threads. */
static __device__ inline double vp_block_sum_of(const double *values, int64_t n, double *scratch)
{
    double sum = 0.0;

#pragma unroll 4
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        sum += values[i];
    return vp_block_sum(sum, scratch);
}

template <typename T> static __device__ inline T vp_block_max(T x, T *scratch)
{
    int warp = (int)threadIdx.x / VP_WARP, lane = (int)threadIdx.x % VP_WARP,
        n_warps = (int)blockDim.x / VP_WARP;

    x = vp_warp_max(x);
    if (lane == 0)
        scratch[warp] = x;
    __syncthreads();
    x = lane < n_warps ? scratch[lane] : scratch[0];
    x = vp_warp_max(x);
    __syncthreads();
    return x;
}

/* ---- a launch for many calls, each with blocks of its own ---- */

/* Whose this block is: the last that does not begin behind it. */
template <typename T> static __device__ inline int vp_entry_here(const T *of, int n)
{
    int from = 0, end = n;

    while (end - from > 1) {
        int middle = (from + end) / 2;

        if (of[middle].first_block <= blockIdx.x)
            from = middle;
        else
            end = middle;
    }
    return from;
}

/* ---- random numbers: kernels/cpu/philox.h says which; the bits are the same on every backend
 * ---- */

struct vp_philox_block {
    uint32_t x[4];
};

/* Philox4x32-10 (Salmon et al. 2011): four words for a counter under a key. */
static __device__ inline vp_philox_block vp_philox(const uint32_t key[2], uint32_t c0, uint32_t c1,
                                                   uint32_t c2, uint32_t c3)
{
    uint32_t k0 = key[0], k1 = key[1];

#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c0, p1 = (uint64_t)0xcd9e8d57u * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    vp_philox_block y;
    y.x[0] = c0, y.x[1] = c1, y.x[2] = c2, y.x[3] = c3;
    return y;
}

/* A call's random stream in the step that runs now. */
struct vp_device_rng {
    uint32_t key[2];
    int64_t  first_sample;
};

/* The call was recorded with the stream of one step and may run in a later one: the control
 * block (or NULL) says in which. */
static __device__ inline vp_device_rng vp_rng_now(const vp_rng_stream &s, const vp_control *control)
{
    int64_t         steps   = control ? (int64_t)control->step - 1 - (int64_t)s.step : 0;
    const uint32_t  seed[2] = {(uint32_t)s.seed, (uint32_t)(s.seed >> 32)};
    vp_philox_block x       = vp_philox(seed, s.step + (uint32_t)steps, s.op, 0, 1);
    vp_device_rng   r;

    r.key[0]       = x.x[0];
    r.key[1]       = x.x[1];
    r.first_sample = s.first_sample + steps * s.step_samples;
    return r;
}

/* Four words of counter (block, sample), 64 bits each. */
static __device__ inline vp_philox_block vp_rng_words(const vp_device_rng &r, int64_t sample,
                                                      uint64_t block)
{
    uint64_t s = (uint64_t)(r.first_sample + sample);
    return vp_philox(r.key, (uint32_t)block, (uint32_t)(block >> 32), (uint32_t)s,
                     (uint32_t)(s >> 32));
}

/* Dropout: an element is dropped where its word is less than this; 2^32: every one. */
static inline uint64_t vp_dropout_least(double p)
{
    double least = p * 4294967296.0 + 0.5;
    return least < 4294967296.0 ? (uint64_t)least : (uint64_t)1 << 32;
}

#endif
