/* kernels/cuda/cuda_span.h: W elements at a time, and kernels whose output element i reads input
 * elements i only.
 *     struct sum { enum { N_IN = 2, N_OUT = 1, ... }; __device__ void operator()(const float *x,
 *     float *y) const { y[0] = x[0] + x[1]; } };
 *     vp_map<T> m = {{x, y}, {z}, count, 0};
 *     return vp_map_launch(m, sum(), stream);
 *
 * W is 1, or whole packs of 16 bytes where every operand and every row starts at a multiple of
 * 16. Planned buffers do, so shape alone decides which in a plan. */
#ifndef VP_KERNELS_CUDA_SPAN_H
#define VP_KERNELS_CUDA_SPAN_H

#include "kernels/cuda/cuda_kernel.h"

/* One element, or the 16 bytes of several as memory has them: those of 16 bits wait in half the registers
 * that its floats take. */
template <typename T, int W> struct vp_raw {
    uint4 word;
};

template <typename T> struct vp_raw<T, 1> {
    T element;
};

template <int W, typename T> static __device__ inline vp_raw<T, W> vp_fetch(const T *p, int64_t i)
{
    vp_raw<T, W> r;

    if constexpr (W == 1)
        r.element = p[i];
    else
        r.word = *reinterpret_cast<const uint4 *>(p + i);
    return r;
}

template <typename T, int W>
static __device__ inline void vp_floats(const vp_raw<T, W> &r, float *x)
{
    if constexpr (W == 1) {
        x[0] = vp_load(&r.element, 0);
    } else {
        const uint32_t w[4] = {r.word.x, r.word.y, r.word.z, r.word.w};

#pragma unroll
        for (int i = 0; i < 4; i++) {
            if constexpr (sizeof(T) == sizeof(float))
                x[i] = __uint_as_float(w[i]);
            else
                vp_floats_of<T>(w[i], &x[2 * i]);
        }
    }
}

/* x in every element, rounded. */
template <typename T, int W> static __device__ inline vp_raw<T, W> vp_raw_of(float x)
{
    vp_raw<T, W> r;

    if constexpr (W == 1) {
        vp_store(&r.element, 0, x);
    } else {
        uint32_t word;

        if constexpr (sizeof(T) == sizeof(float))
            word = __float_as_uint(x);
        else
            word = vp_word_of<T>(x, x);
        r.word.x = r.word.y = r.word.z = r.word.w = word;
    }
    return r;
}

/* The same word, of which the compiler no longer knows what it has made of it. */
template <typename T, int W> static __device__ inline void vp_opaque(vp_raw<T, W> &r)
{
#ifdef __CUDACC__
    if constexpr (W > 1)
        asm volatile("" : "+r"(r.word.x), "+r"(r.word.y), "+r"(r.word.z), "+r"(r.word.w));
#else
    (void)r;
#endif
}

/* Elements i .. i + W - 1: W is 1 or any number of packs. */
template <int W, typename T> static __device__ inline void vp_get(const T *p, int64_t i, float *x)
{
    constexpr int N = W == 1 ? 1 : vp_pack<T>::N;

#pragma unroll
    for (int j = 0; j < W; j += N)
        vp_floats(vp_fetch<N>(p, i + j), x + j);
}

template <int W, typename T> static __device__ inline void vp_put(T *p, int64_t i, const float *x)
{
    if constexpr (W == 1) {
        vp_store(p, i, x[0]);
    } else {
        constexpr int N = vp_pack<T>::N;

#pragma unroll
        for (int j = 0; j < W; j += N) {
            vp_pack<T> v;
#pragma unroll
            for (int l = 0; l < N; l++)
                v.x[l] = x[j + l];
            vp_store16(p + i + j, v);
        }
    }
}

/* The statement with W as the elements of a 16-byte pack of T, or as 1. */
#define VP_BY_WIDTH(aligned, T, W, ...) \
    do { \
        if (aligned) { \
            constexpr int W = vp_pack<T>::N; \
            __VA_ARGS__; \
        } else { \
            constexpr int W = 1; \
            __VA_ARGS__; \
        } \
    } while (0)

/* ---- element by element ----
 *
 * cols > 0: the operands that F calls wide have rows of 2 cols elements, of which the kernel
 * sees the first cols; a pointer to the others is the operand's plus cols. F: N_IN, N_OUT and, a
 * bit for each operand, WIDE_IN and WIDE_OUT. */
template <typename T> struct vp_map {
    const T *in[3];
    T       *out[2];
    int64_t  count, cols;
};

/* Where element i of an operand with wide rows is. */
static __device__ inline int64_t vp_wide_at(int64_t i, const vp_divisor &cols)
{
    return cols.by ? i + vp_quotient(i, cols) * cols.by : i;
}

/* All that a thread needs is read before any of it is written: an output may lie on an input. 16
 * elements a thread, so that some loads are under way at a time. */
template <typename T, int W, typename F>
static __global__ void vp_map_kernel(vp_map<T> m, vp_divisor cols, F f)
{
    constexpr int K    = W == 1 ? 4 : 16 / W;
    const int64_t step = (int64_t)VP_BLOCK * W, span = K * step;

    for (int64_t first = (int64_t)blockIdx.x * span + (int64_t)threadIdx.x * W; first < m.count;
         first += (int64_t)gridDim.x * span) {
        vp_raw<T, W> x[K][F::N_IN];
        int64_t      wide[K];

#pragma unroll
        for (int k = 0; k < K; k++) {
            int64_t i = first + k * step;

            wide[k] = (F::WIDE_IN | F::WIDE_OUT) != 0 ? vp_wide_at(i, cols) : i;
            if (i + W <= m.count)
#pragma unroll
                for (int o = 0; o < F::N_IN; o++)
                    x[k][o] = vp_fetch<W>(m.in[o], F::WIDE_IN >> o & 1 ? wide[k] : i);
        }
#pragma unroll
        for (int k = 0; k < K; k++) {
            int64_t i = first + k * step;
            float   v[F::N_IN][W], y[F::N_OUT][W];

            if (i + W > m.count)
                continue;
#pragma unroll
            for (int o = 0; o < F::N_IN; o++)
                vp_floats(x[k][o], v[o]);
#pragma unroll
            for (int j = 0; j < W; j++) {
                float a[F::N_IN], b[F::N_OUT];

#pragma unroll
                for (int o = 0; o < F::N_IN; o++)
                    a[o] = v[o][j];
                f(a, b);
#pragma unroll
                for (int o = 0; o < F::N_OUT; o++)
                    y[o][j] = b[o];
            }
#pragma unroll
            for (int o = 0; o < F::N_OUT; o++)
                vp_put<W>(m.out[o], F::WIDE_OUT >> o & 1 ? wide[k] : i, y[o]);
        }
    }
    /* Less than W elements behind the last whole W: nothing is packed then. */
    if (W > 1 && blockIdx.x == 0 && threadIdx.x < m.count % W) {
        int64_t i = m.count / W * W + threadIdx.x;
        float   a[F::N_IN], b[F::N_OUT];

#pragma unroll
        for (int o = 0; o < F::N_IN; o++)
            a[o] = vp_load(m.in[o], i);
        f(a, b);
#pragma unroll
        for (int o = 0; o < F::N_OUT; o++)
            vp_store(m.out[o], i, b[o]);
    }
}

template <typename T, typename F>
static cudaError_t vp_map_launch(const vp_map<T> &m, F f, cudaStream_t stream)
{
    bool        aligned = m.cols % vp_pack<T>::N == 0;
    vp_divisor  cols    = m.cols ? vp_divisor_of(m.cols) : vp_divisor{0, 0, 0};
    cudaError_t e;

    for (int o = 0; o < F::N_IN; o++)
        aligned = aligned && vp_is_aligned16(m.in[o]);
    for (int o = 0; o < F::N_OUT; o++)
        aligned = aligned && vp_is_aligned16(m.out[o]);
    VP_BY_WIDTH(aligned, T, W,
                e = VP_LAUNCH((vp_map_kernel<T, W, F>),
                              vp_blocks(m.count, VP_BLOCK * (W == 1 ? 4 : 16)), VP_BLOCK, 0, stream,
                              m, cols, f));
    return e;
}

#endif
