/* kernels/cuda/cross_entropy.cu: softmax cross-entropy with its gradient in the logits' place, and
 * the sum of the rows' losses.
 *
 *     t[v] = x[v], or c tanh(x[v] / c) with softcap c > 0 (Gemma 2, arXiv:2408.00118)
 *     loss[r] = log(sum_v exp(t[v] - m)) - (t[label] - m),  m = max_v t[v]
 *     x[v]   <- (exp(t[v] - m) / sum - [v = label]) * weight * (1 - tanh^2(x[v] / c))
 *
 * weight = control.inv_n_targets, times control's loss scale where there is one.
 *
 * logits (rows, vocab) of the call's dtype, each gradient rounded once; labels (rows) int32, a row
 * whose label is VP_IGNORE_LABEL has no loss and no gradient; row_loss (rows) float;
 * control.inv_n_targets double.
 *
 * A block has a row. It reads the row once for greatest and sum together, the sum being rescaled
 * where a greater logit comes (Milakov, Gimelshein 2018, arXiv:1805.02867), and once more, from
 * the last element to the first, to write: what was read last is still in the L1 and L2 caches.
 * So with E bytes of an element memory sees 2 E rows vocab bytes, plus what of a row the caches
 * do not keep. A row of 50257 elements that is not padded begins anywhere: its elements up to a
 * multiple of 16 bytes and behind the last one are taken singly. The order of its sum follows from its address
 * modulo 16, which is that of its place in a tile. Same mathematics:
 * kernels/cpu/cross_entropy.c; reference: kernels/reference/reference.c. */
#include "kernels/cuda/cuda_span.h"

#include <float.h>

enum { MAX_THREADS = 512, THREAD_ELEMENTS = 16 };

/* ---- a row ---- */

/* n_lead elements, then n_packs of 16 bytes at a multiple of 16, then n_tail elements. */
template <typename T> struct parts {
    T      *row;
    int     n_lead, n_tail;
    int64_t n_packs;
};

template <typename T> static __device__ inline parts<T> parts_of(T *row, int64_t vocab)
{
    constexpr int N    = vp_pack<T>::N;
    int64_t       lead = (int64_t)((16 - ((uintptr_t)row & 15)) & 15) / (int64_t)sizeof(T);
    parts<T>      p;

    p.row     = row;
    p.n_lead  = (int)(lead < vocab ? lead : vocab);
    p.n_packs = (vocab - p.n_lead) / N;
    p.n_tail  = (int)((vocab - p.n_lead) % N);
    return p;
}

/* ---- exponentials ---- */

/* exp(x) for x <= 0 by the power of 2, a multiplication in place of expf()'s reduction. With u =
 * 2^-24, log2(e) x has a relative error of 2 u, so the result has one of 2 |x| u beside the 2
 * ulp of exp2f(). Since |x| exp(x) < 0.37, that is at most 0.8 u of the sum, which is at least
 * 1. */
static __device__ inline float exp_of(float x)
{
    return exp2f(x * 1.44269504f);
}

template <bool CAPPED> static __device__ inline float capped(float x, float cap, float inv_cap)
{
    return CAPPED ? cap * tanhf(x * inv_cap) : x;
}

/* 1 - tanh^2(z) = 4 e / (1 + e)^2 with e = exp(-2 |z|): nothing cancels. */
static __device__ inline float cap_slope(float z)
{
    float e = expf(-2.0f * fabsf(z)), inv = 1.0f / (1.0f + e);

    return 4.0f * (e * inv) * inv;
}

/* The greatest of some elements and the sum of exp(t - m) over them. Begins below every finite
 * number, but finite: of a logit of -infinity the exponential is then 0 and not that of infinity
 * less infinity. A NaN loses as a maximum and shows in the sum. */
struct partial {
    float m, sum;
};

template <bool CAPPED, int W>
static __device__ inline void take(partial *p, float *x, float cap, float inv_cap)
{
    float m = p->m, sum = 0.0f;

#pragma unroll
    for (int j = 0; j < W; j++) {
        x[j] = capped<CAPPED>(x[j], cap, inv_cap);
        m    = x[j] > m ? x[j] : m;
    }
#pragma unroll
    for (int j = 0; j < W; j++)
        sum += exp_of(x[j] - m);
    p->sum = p->sum * exp_of(p->m - m) + sum;
    p->m   = m;
}

/* What the write pass multiplies by. */
struct factors {
    float m, scale, cap, inv_cap;
};

template <bool CAPPED, int W> static __device__ inline void gradients(const factors &f, float *x)
{
#pragma unroll
    for (int j = 0; j < W; j++) {
        float y = exp_of(capped<CAPPED>(x[j], f.cap, f.inv_cap) - f.m) * f.scale;

        x[j] = CAPPED ? y * cap_slope(x[j] * f.inv_cap) : y;
    }
}

/* ---- the kernel ---- */

template <typename T> static __device__ inline void clear_row(const parts<T> &p)
{
    constexpr int N        = vp_pack<T>::N;
    const float   zeros[N] = {0.0f};

    if ((int)threadIdx.x < p.n_lead)
        vp_store(p.row, threadIdx.x, 0.0f);
    for (int64_t k = threadIdx.x; k < p.n_packs; k += blockDim.x)
        vp_put<N>(p.row, p.n_lead + k * N, zeros);
    if ((int)threadIdx.x < p.n_tail)
        vp_store(p.row, p.n_lead + p.n_packs * N + threadIdx.x, 0.0f);
}

template <typename T, bool CAPPED>
static __global__ void __launch_bounds__(MAX_THREADS, 2)
    cross_entropy_kernel(T *logits, const int32_t *__restrict__ labels, const vp_control *control,
                         float *row_loss, int64_t vocab, int64_t stride, float cap)
{
    /* packs under way; tanhf() wants registers */
    constexpr int    N = vp_pack<T>::N, AT_ONCE = CAPPED ? 2 : 4;
    __shared__ float scratch[VP_WARP];
    const parts<T>   p     = parts_of(logits + (int64_t)blockIdx.x * stride, vocab);
    const int        label = labels[blockIdx.x], t = (int)threadIdx.x;
    const int64_t    tail = p.n_lead + p.n_packs * N, step = (int64_t)AT_ONCE * blockDim.x;
    const float      inv_cap = CAPPED ? 1.0f / cap : 0.0f,
                weight       = (float)(control->inv_n_targets * VP_LOSS_SCALE(control));
    partial      mine        = {-FLT_MAX, 0.0f};
    float        at_label    = 0.0f, m, sum, x[N];
    vp_raw<T, N> wait[AT_ONCE];
    int64_t      last;

    if (label == VP_IGNORE_LABEL) {
        clear_row(p);
        if (t == 0)
            row_loss[blockIdx.x] = 0.0f;
        return;
    }
    if (t == 0)
        at_label = vp_load(p.row, label);
    if (t < p.n_lead) {
        x[0] = vp_load(p.row, t);
        take<CAPPED, 1>(&mine, x, cap, inv_cap);
    }
    if (t < p.n_tail) {
        x[0] = vp_load(p.row, tail + t);
        take<CAPPED, 1>(&mine, x, cap, inv_cap);
    }
    for (int64_t k = t; k < p.n_packs; k += step) {
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            if (k + u * (int)blockDim.x < p.n_packs)
                wait[u] = vp_fetch<N>(p.row, p.n_lead + (k + u * (int)blockDim.x) * N);
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            if (k + u * (int)blockDim.x < p.n_packs) {
                vp_floats(wait[u], x);
                take<CAPPED, N>(&mine, x, cap, inv_cap);
            }
    }
    m   = vp_block_max(mine.m, scratch);
    sum = vp_block_sum(mine.sum * exp_of(mine.m - m), scratch);

    const factors f = {m, weight / sum, cap, inv_cap};

    if (t < p.n_tail) {
        x[0] = vp_load(p.row, tail + t);
        gradients<CAPPED, 1>(f, x);
        vp_store(p.row, tail + t, x[0]);
    }
    if (t < p.n_lead) {
        x[0] = vp_load(p.row, t);
        gradients<CAPPED, 1>(f, x);
        vp_store(p.row, t, x[0]);
    }
    last = p.n_packs - 1;
    for (int64_t k = t; k < p.n_packs; k += step) {
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            if (k + u * (int)blockDim.x < p.n_packs)
                wait[u] = vp_fetch<N>(p.row, p.n_lead + (last - k - u * (int)blockDim.x) * N);
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            if (k + u * (int)blockDim.x < p.n_packs) {
                vp_floats(wait[u], x);
                gradients<CAPPED, N>(f, x);
                vp_put<N>(p.row, p.n_lead + (last - k - u * (int)blockDim.x) * N, x);
            }
    }
    __syncthreads(); /* the label's gradient is written over what its thread wrote there */
    if (t == 0) {
        float target = capped<CAPPED>(at_label, cap, inv_cap), e = exp_of(target - m);
        float gradient = (e / sum - 1.0f) * weight;

        vp_store(p.row, label, CAPPED ? gradient * cap_slope(at_label * inv_cap) : gradient);
        row_loss[blockIdx.x] = logf(sum) - (target - m);
    }
}

/* The row's length alone says how many threads have it. */
static int threads_of(int64_t vocab)
{
    int n = VP_WARP;

    while (n < MAX_THREADS && (int64_t)n * THREAD_ELEMENTS < vocab)
        n *= 2;
    return n;
}

extern "C" cudaError_t vp_cuda_cross_entropy(const vp_kernel_call *call, cudaStream_t stream)
{
    const int32_t    *labels   = (const int32_t *)call->operand[VP_CROSS_ENTROPY_LABELS];
    const vp_control *control  = (const vp_control *)call->operand[VP_CROSS_ENTROPY_CONTROL];
    float            *row_loss = (float *)call->operand[VP_CROSS_ENTROPY_ROW_LOSS],
          cap                  = (float)call->cross_entropy_reals.softcap;
    int64_t rows = call->cross_entropy.rows, vocab = call->cross_entropy.vocab,
            stride = vp_row_stride(vocab, call->cross_entropy.padded);
    cudaError_t e;

    VP_BY_DTYPE(call->dtype, T, T *logits = (T *)call->operand[VP_CROSS_ENTROPY_LOGITS];
                if (cap > 0.0f) e = VP_LAUNCH((cross_entropy_kernel<T, true>), vp_blocks(rows, 1),
                                              threads_of(vocab), 0, stream, logits, labels, control,
                                              row_loss, vocab, stride, cap);
                else e            = VP_LAUNCH((cross_entropy_kernel<T, false>), vp_blocks(rows, 1),
                                              threads_of(vocab), 0, stream, logits, labels, control, row_loss,
                                              vocab, stride, 0.0f));
    return e;
}

/* ---- the loss of a step ----
 *
 * control.loss_sum += the sum of each tile of 256 rows, one after the other, in double. Moves 4
 * rows bytes. One block: a warp has a tile. */

enum { LOSS_THREADS = 1024, LOSS_TILES = LOSS_THREADS / VP_WARP };

static __global__ void __launch_bounds__(LOSS_THREADS)
    loss_sum_kernel(const float *__restrict__ row_loss, int64_t rows, vp_control *control)
{
    __shared__ double sums[LOSS_TILES];
    int               warp = (int)threadIdx.x / VP_WARP, lane = (int)threadIdx.x % VP_WARP;
    double            total = control->loss_sum;

    for (int64_t tiles = 0; tiles < rows; tiles += LOSS_TILES * VP_TILE_TOKENS) {
        int64_t first = tiles + warp * VP_TILE_TOKENS;
        double  sum   = 0.0;

#pragma unroll
        for (int i = 0; i < VP_TILE_TOKENS; i += VP_WARP)
            sum += first + i + lane < rows ? (double)row_loss[first + i + lane] : 0.0;
        sum = vp_warp_sum(sum);
        if (lane == 0)
            sums[warp] = sum;
        __syncthreads();
        for (int w = 0; threadIdx.x == 0 && w < LOSS_TILES && tiles + w * VP_TILE_TOKENS < rows;
             w++)
            total += sums[w];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        control->loss_sum = total;
}

extern "C" cudaError_t vp_cuda_loss_sum(const vp_kernel_call *call, cudaStream_t stream)
{
    return VP_LAUNCH(loss_sum_kernel, 1, LOSS_THREADS, 0, stream,
                     (const float *)call->operand[VP_LOSS_SUM_ROW_LOSS], call->token_rows.rows,
                     (vp_control *)call->operand[VP_LOSS_SUM_CONTROL]);
}
