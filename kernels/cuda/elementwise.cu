/* kernels/cuda/elementwise.cu: kernels whose output element i reads input elements i only: add,
 * dropout, scale, copy, zero, grad_add.
 *
 *     add      z = x + y
 *     dropout  y = x mask / (1 - p), mask 0 with probability p: its own backward, since a call on
 *              the gradient draws the same mask
 *     scale    y = factor x
 *     copy     y = x
 *     zero     y = 0, of a gradient's dtype
 *     grad_add g = x, or g + x where the call accumulates: x fp32, g a gradient
 *
 * x, y, z (count) of the call's dtype, dropout's (batch, count). Bytes moved, with E of an element:
 * add 3 E count, dropout 2 E batch count, scale and copy 2 E count, zero 4 count, grad_add 12
 * count, of bf16 half of what is g's. y may lie on x, z on x or
 * y.
 *
 * Element e of a sample is dropped where word e mod 4 of Philox block e / 4 is less than round(p
 * 2^32) (Salmon et al. 2011; kernels/cpu/philox.h), the sample counted in the global batch: no
 * backend, chunk or micro-batch moves a mask. Same mathematics: kernels/cpu/elementwise.c;
 * reference: kernels/reference/reference.c. */
#include "kernels/cuda/cuda_span.h"

/* ---- add ---- */

struct sum_of_two {
    enum { N_IN = 2, N_OUT = 1, WIDE_IN = 0, WIDE_OUT = 0 };

    __device__ inline void operator()(const float *x, float *y) const
    {
        y[0] = x[0] + x[1];
    }
};

extern "C" cudaError_t vp_cuda_add(const vp_kernel_call *call, cudaStream_t stream)
{
    cudaError_t e;

    VP_BY_DTYPE(
        call->dtype, T,
        vp_map<T> m = {{(const T *)call->operand[VP_ADD_X], (const T *)call->operand[VP_ADD_Y]},
                       {(T *)call->operand[VP_ADD_Z]},
                       call->elements.count,
                       0};
        e           = vp_map_launch(m, sum_of_two(), stream));
    return e;
}

/* ---- scale ---- */

struct multiple {
    enum { N_IN = 1, N_OUT = 1, WIDE_IN = 0, WIDE_OUT = 0 };
    float factor;

    __device__ inline void operator()(const float *x, float *y) const
    {
        y[0] = factor * x[0];
    }
};

extern "C" cudaError_t vp_cuda_scale(const vp_kernel_call *call, cudaStream_t stream)
{
    multiple    f = {(float)call->scale_reals.factor};
    cudaError_t e;

    VP_BY_DTYPE(call->dtype, T,
                vp_map<T> m = {{(const T *)call->operand[VP_SCALE_X]},
                               {(T *)call->operand[VP_SCALE_Y]},
                               call->elements.count,
                               0};
                e           = vp_map_launch(m, f, stream));
    return e;
}

/* ---- dropout ---- */

/* elements of a thread: the stream's key, ten rounds of the generator, is derived once a block */
enum { DROPOUT_EACH = 16 };

/* A word below `least` drops, `all` drops whatever it is. A block takes one of n_spans parts of
 * a sample. */
template <typename T, bool ALIGNED>
static __global__ void dropout_kernel(const T *x, T *y, int64_t count, int64_t n_spans,
                                      uint32_t least, bool all, float scale, vp_rng_stream stream,
                                      const vp_control *control)
{
    constexpr int            N = vp_pack<T>::N, K = DROPOUT_EACH / N;
    __shared__ vp_device_rng shared_rng;
    int64_t                  sample = blockIdx.x / n_spans,
            first = (blockIdx.x % n_spans) * VP_BLOCK * DROPOUT_EACH + (int64_t)threadIdx.x * N;
    float v[K][N];

    x += sample * count;
    y += sample * count;
#pragma unroll
    for (int k = 0; k < K; k++) {
        int64_t i = first + (int64_t)k * VP_BLOCK * N;

        if (ALIGNED && i + N <= count)
            vp_get<N>(x, i, v[k]);
        else
#pragma unroll
            for (int j = 0; j < N; j++)
                v[k][j] = i + j < count ? vp_load(x, i + j) : 0.0f;
    }
    if (threadIdx.x == 0)
        shared_rng = vp_rng_now(stream, control);
    __syncthreads();
    vp_device_rng rng = shared_rng;
#pragma unroll
    for (int k = 0; k < K; k++) {
        int64_t i = first + (int64_t)k * VP_BLOCK * N;

#pragma unroll
        for (int b = 0; b < N; b += 4) {
            vp_philox_block w = vp_rng_words(rng, sample, (uint64_t)((i + b) / 4));
#pragma unroll
            for (int j = 0; j < 4; j++)
                v[k][b + j] = all || w.x[j] < least ? 0.0f : v[k][b + j] * scale;
        }
        if (ALIGNED && i + N <= count)
            vp_put<N>(y, i, v[k]);
        else
#pragma unroll
            for (int j = 0; j < N; j++)
                if (i + j < count)
                    vp_store(y, i + j, v[k][j]);
    }
}

extern "C" cudaError_t vp_cuda_dropout(const vp_kernel_call *call, cudaStream_t stream)
{
    int64_t batch = call->dropout.batch, count = call->dropout.count,
            n_spans   = vp_blocks(count, VP_BLOCK * DROPOUT_EACH);
    double      p     = call->dropout_reals.p;
    uint64_t    least = vp_dropout_least(p);
    float       scale = (float)(1.0 / (1.0 - p));
    bool        all   = least > 0xffffffffu;
    cudaError_t e;

    VP_BY_DTYPE(
        call->dtype, T, const T *x = (const T *)call->operand[VP_DROPOUT_X];
        T *y = (T *)call->operand[VP_DROPOUT_Y];
        if (vp_is_aligned16(x) && vp_is_aligned16(y) && (batch == 1 || count % vp_pack<T>::N == 0))
            e = VP_LAUNCH((dropout_kernel<T, true>), (unsigned)(batch * n_spans), VP_BLOCK, 0,
                          stream, x, y, count, n_spans, (uint32_t)least, all, scale, call->rng,
                          call->control);
        else e =
            VP_LAUNCH((dropout_kernel<T, false>), (unsigned)(batch * n_spans), VP_BLOCK, 0, stream,
                      x, y, count, n_spans, (uint32_t)least, all, scale, call->rng, call->control));
    return e;
}

/* ---- copy and zero: bytes, 16 at a time ---- */

enum { COPY_EACH = 4 }; /* loads under way at a time */

template <typename U> static __global__ void copy_kernel(const U *x, U *y, int64_t n)
{
    const int64_t span = (int64_t)VP_BLOCK * COPY_EACH;

    for (int64_t first = blockIdx.x * span + threadIdx.x; first < n; first += gridDim.x * span) {
        U v[COPY_EACH];

#pragma unroll
        for (int k = 0; k < COPY_EACH; k++)
            if (first + k * VP_BLOCK < n)
                v[k] = x[first + k * VP_BLOCK];
#pragma unroll
        for (int k = 0; k < COPY_EACH; k++)
            if (first + k * VP_BLOCK < n)
                y[first + k * VP_BLOCK] = v[k];
    }
}

template <typename U> static __global__ void fill_kernel(U *y, int64_t n, U value)
{
    for (int64_t i = (int64_t)blockIdx.x * VP_BLOCK + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * VP_BLOCK)
        y[i] = value;
}

template <typename U> static cudaError_t copy(const U *x, U *y, int64_t n, cudaStream_t stream)
{
    if (n == 0)
        return cudaSuccess;
    return VP_LAUNCH((copy_kernel<U>), vp_blocks(n, VP_BLOCK * COPY_EACH), VP_BLOCK, 0, stream, x,
                     y, n);
}

extern "C" cudaError_t vp_cuda_copy(const vp_kernel_call *call, cudaStream_t stream)
{
    const char *x     = (const char *)call->operand[VP_COPY_X];
    char       *y     = (char *)call->operand[VP_COPY_Y];
    int64_t     size  = vp_dtype_bytes(call->dtype);
    int64_t     bytes = call->elements.count * size,
            in_packs  = vp_is_aligned16(x) && vp_is_aligned16(y) ? bytes / 16 * 16 : 0;
    cudaError_t e;

    if (x == y)
        return cudaSuccess;
    e = copy((const uint4 *)x, (uint4 *)y, in_packs / 16, stream);
    if (e != cudaSuccess)
        return e;
    if (size == 2)
        return copy((const uint16_t *)(x + in_packs), (uint16_t *)(y + in_packs),
                    (bytes - in_packs) / 2, stream);
    return copy((const uint32_t *)(x + in_packs), (uint32_t *)(y + in_packs),
                (bytes - in_packs) / 4, stream);
}

template <typename U> static cudaError_t zero(U *y, int64_t count, cudaStream_t stream)
{
    constexpr int64_t N       = 16 / sizeof(U);
    int64_t           n_packs = vp_is_aligned16(y) ? count / N : 0;
    cudaError_t       e       = cudaSuccess;

    if (n_packs > 0)
        e = VP_LAUNCH((fill_kernel<float4>), vp_blocks(n_packs, VP_BLOCK), VP_BLOCK, 0, stream,
                      (float4 *)y, n_packs, make_float4(0.0f, 0.0f, 0.0f, 0.0f));
    if (e == cudaSuccess && N * n_packs < count)
        e = VP_LAUNCH((fill_kernel<U>), vp_blocks(count - N * n_packs, VP_BLOCK), VP_BLOCK, 0,
                      stream, y + N * n_packs, count - N * n_packs, (U)0);
    return e;
}

extern "C" cudaError_t vp_cuda_zero(const vp_kernel_call *call, cudaStream_t stream)
{
    void *y = call->operand[VP_ZERO_Y];

    return call->dtype == VP_DTYPE_BF16_GRADS ? zero((uint16_t *)y, call->elements.count, stream)
                                              : zero((float *)y, call->elements.count, stream);
}

template <typename G>
static __global__ void grad_add_kernel(const float *x, G *g, int64_t n, bool accumulate)
{
    for (int64_t i = (int64_t)blockIdx.x * VP_BLOCK + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * VP_BLOCK)
        vp_store(g, i, accumulate ? x[i] + vp_load(g, i) : x[i]);
}

extern "C" cudaError_t vp_cuda_grad_add(const vp_kernel_call *call, cudaStream_t stream)
{
    const float *x     = (const float *)call->operand[VP_GRAD_ADD_X];
    void        *g     = call->operand[VP_GRAD_ADD_G];
    int64_t      count = call->elements.count;

    if (call->dtype == VP_DTYPE_BF16_GRADS)
        return VP_LAUNCH((grad_add_kernel<vp_bf16>), vp_blocks(count, 4 * VP_BLOCK), VP_BLOCK, 0,
                         stream, x, (vp_bf16 *)g, count, call->accumulate);
    return VP_LAUNCH((grad_add_kernel<float>), vp_blocks(count, 4 * VP_BLOCK), VP_BLOCK, 0, stream,
                     x, (float *)g, count, call->accumulate);
}
