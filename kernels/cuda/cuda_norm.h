/* kernels/cuda/cuda_norm.h: the backward of both norms, which reads each of its operands once.
 *
 *     g = dy w,  xhat = (x - mean) rstd,  means over a row's cols elements
 *     dx      = add + rstd (g - mean(g) - xhat mean(g xhat))      mean(g) of a centred norm only
 *     sums[0] = dy xhat, sums[1] = dy of a centred norm           added up over the rows of a part
 *
 * A block takes the rows of one part, VP_NORM_PART tokens, some side by side and then the next; a
 * thread has the same columns of each, so that what it adds up stays in its registers. The sums of
 * a part go to the workspace, and vp_tiles_add_kernel() adds those of a tile, then tile after tile.
 * Which rows a thread adds follows from their places in the tile and from cols alone.
 *
 * A row of up to 96 packs is a warp's, up to 3 a thread: nobody waits at a barrier. A longer one has 2 a
 * thread, of as many warps as that takes. Up to 2, the next row is fetched before this one's sums are
 * known; with 3 the registers are full, and 16 warps that each wait for a row have enough under way.
 *
 * A row of more packs than that (8192 elements of 16 bits) goes by single elements: it is read twice, and
 * its sums lie in the workspace from the start. */
#ifndef VP_KERNELS_CUDA_NORM_H
#define VP_KERNELS_CUDA_NORM_H

#include "kernels/cuda/cuda_rows.h"
#include "plan/workspace.h"

enum {
    VP_NORM_WARP_PACKS = 3, /* a thread's, of a row that a warp has                 */
    VP_NORM_PACKS      = 2, /* a thread's, of a row that several warps have         */
    VP_NORM_SINGLE     = 4  /* elements of a thread at a time where nothing is packed */
};

template <typename T> struct vp_norm_backward {
    const T     *dy, *x, *gamma, *add; /* gamma, add: or NULL                     */
    T           *dx;                   /* may be dy, x or add                     */
    const float *mean, *rstd;          /* mean: of a centred norm                 */
    float       *sums;                 /* (N_SUMS, parts, cols), NULL: not wanted */
    int64_t      rows, part_rows;
    int          cols;
    float        offset; /* w = offset + gamma, 1 without gamma             */
    float        share;  /* 1 / cols                                        */
};

/* The sums of b, and of a where BOTH, over the n threads of a row, to all of them. PART: of at most a warp, a
 * power of two; else whole warps. scratch: shared, of each warp; what the call before the last left
 * there has been read. */
template <bool BOTH, bool PART>
static __device__ inline void vp_norm_row_sums(float &a, float &b, int n, float (*scratch)[2])
{
    int warp = (int)threadIdx.x / VP_WARP, n_warps = n / VP_WARP,
        first = (int)threadIdx.x / n * n_warps;

#pragma unroll
    for (int lane = VP_WARP / 2; lane > 0; lane /= 2) {
        if (PART && lane >= n)
            continue;
        if (BOTH)
            a += __shfl_xor_sync(0xffffffffu, a, lane);
        b += __shfl_xor_sync(0xffffffffu, b, lane);
    }
    if (PART || n == VP_WARP)
        return;
    if (threadIdx.x % VP_WARP == 0) {
        scratch[warp][0] = a;
        scratch[warp][1] = b;
    }
    __syncthreads();
    a = b = 0.0f;
#pragma unroll 4
    for (int w = first; w < first + n_warps; w++) {
        a += scratch[w][0];
        b += scratch[w][1];
    }
}

/* What a thread has of a row, K packs at a time, as memory has it: its numbers are unpacked for the sums and
 * again for dx, since both together want more registers than there are. Behind the row's end and of rows
 * that there are not all is 0, so that they add nothing. */
template <typename T, int W, int K, bool CENTRED> struct vp_norm_row {
    vp_raw<T, W> dy[K], x[K], add[K];
    float        mean, rstd;

    __device__ inline void fetch(const vp_norm_backward<T> &b, const vp_row_place &p, int first)
    {
        mean = CENTRED && p.cols > 0 ? b.mean[p.row] : 0.0f;
        rstd = p.cols > 0 ? b.rstd[p.row] : 0.0f;
#pragma unroll
        for (int k = 0; k < K; k++) {
            int     c  = p.column<W>(first, k);
            int64_t at = p.row * b.cols + c;

            if (c >= p.cols)
                continue;
            dy[k]  = vp_fetch<W>(b.dy, at);
            x[k]   = vp_fetch<W>(b.x, at);
            add[k] = b.add ? vp_fetch<W>(b.add, at) : vp_raw<T, W>{};
        }
    }

    /* take(k, c, dy, xhat, g): of pack k, whose first column is c, W numbers each. gamma: HELD, of all packs. */
    template <bool HELD, typename F>
    __device__ inline void unpack(const vp_norm_backward<T> &b, const vp_row_place &p, int first,
                                  const vp_raw<T, W> *gamma, F take) const
    {
#pragma unroll
        for (int k = 0; k < K; k++) {
            int   c = p.column<W>(first, k);
            float d[W], xhat[W], g[W];

            if (c >= p.cols)
                continue;
            vp_floats(dy[k], d);
            vp_floats(x[k], xhat);
            vp_floats(HELD ? gamma[k] : vp_row_parameter<W>(b.gamma, c, 1.0f), g);
#pragma unroll
            for (int j = 0; j < W; j++) {
                xhat[j] = (xhat[j] - mean) * rstd;
                g[j]    = d[j] * (CENTRED ? g[j] : b.offset + g[j]);
            }
            take(k, c, d, xhat, g);
        }
    }
};

/* Threads of a block at most, and blocks for which registers are left: 128 a thread, 80 of one pack. */
template <int W, int K>
constexpr int vp_norm_block = W == 1 || K == VP_NORM_PACKS ? (int)VP_ROW_MAX_THREADS
                                                           : (int)VP_BLOCK;
template <int W, int K>
constexpr int vp_norm_blocks = W == 1 || K == VP_NORM_PACKS ? 1
                               : K == 1                     ? 3
                                                            : 2;

/* A stride by which neither threads nor neighbouring columns share a bank of shared memory. */
template <int W> constexpr int vp_norm_stride = VP_BLOCK + VP_WARP / W;

/* The sums of a part from those of its threads, of which n_side have the same columns, to sums[s stride + c].
 * side_by_side: shared, of each element that a thread has. */
template <int W, int K, int N_SUMS>
static __device__ inline void vp_norm_part_sums(const float (&sum)[N_SUMS][K * W],
                                                const vp_row_place &p, int n_side, int cols,
                                                float *sums, int64_t stride, float *side_by_side)
{
#pragma unroll
    for (int s = 0; s < N_SUMS; s++, sums += stride) {
        if (n_side == 1) {
#pragma unroll
            for (int k = 0; k < K; k++)
                if (p.column<W>(0, k) < cols)
                    vp_put<W>(sums, p.column<W>(0, k), sum[s] + k * W);
            continue;
        }
        __syncthreads();
#pragma unroll
        for (int e = 0; e < K * W; e++)
            side_by_side[e * vp_norm_stride<W> + threadIdx.x] = sum[s][e];
        __syncthreads();
        for (int c = (int)threadIdx.x; c < cols; c += (int)blockDim.x) {
            int   pack = c / W, at = (pack / p.n * W + c % W) * vp_norm_stride<W> + pack % p.n;
            float all = 0.0f;

#pragma unroll 4
            for (int i = 0; i < n_side; i++)
                all += side_by_side[at + i * p.n];
            sums[c] = all;
        }
    }
}

template <typename T, int W, int K, bool CENTRED>
static __global__ void __launch_bounds__(vp_norm_block<W, K>, vp_norm_blocks<W, K>)
    vp_norm_backward_kernel(vp_norm_backward<T> b, int threads)
{
    enum { N_SUMS = CENTRED ? 2 : 1, EACH = K * W };
    constexpr bool PART = W > 1 && K == 1, WARP = W > 1 && K == VP_NORM_WARP_PACKS,
                   AHEAD = W > 1 && !WARP;
    __shared__ float scratch[2][VP_ROW_MAX_THREADS / VP_WARP][2],
        side_by_side[EACH * vp_norm_stride<W>];
    const int n = WARP ? (int)VP_WARP : threads, n_side = (int)blockDim.x / n,
              side = (int)threadIdx.x / n, cols = b.cols;
    /* packs: a row is what its threads hold, one chunk */
    const int     chunk = W == 1 ? n * EACH : 1, n_chunked = W == 1 ? cols : 1;
    const int64_t begin = (int64_t)blockIdx.x * b.part_rows, n_parts = gridDim.x;
    const int     n_rows = (int)(b.rows - begin < b.part_rows ? b.rows - begin : b.part_rows);
    const bool    again  = W == 1 && chunk < cols;
    float        *sums   = b.sums ? b.sums + (int64_t)blockIdx.x * cols : NULL;
    float         sum[N_SUMS][EACH] = {{0.0f}};
    vp_row_place  p = {begin + side, side < n_rows ? cols : 0, n, (int)threadIdx.x % n};
    vp_norm_row<T, W, K, CENTRED> row, ahead;
    vp_raw<T, W>                  gamma[K];

    if (AHEAD) {
#pragma unroll
        for (int k = 0; k < K; k++)
            gamma[k] = p.column<W>(0, k) < cols
                           ? vp_row_parameter<W>(b.gamma, p.column<W>(0, k), 1.0f)
                           : vp_raw<T, W>{};
        ahead.fetch(b, p, 0);
    }
    for (int i = 0, turn = 0; i < n_rows; i += n_side, turn ^= 1) {
        const int next_cols = i + n_side + side < n_rows ? cols : 0;
        float     total_g = 0.0f, total_gx = 0.0f;

        if (AHEAD) {
            row = ahead;
            ahead.fetch(b, {p.row + n_side, next_cols, n, p.lane}, 0);
        }
        for (int first = 0; first < n_chunked; first += chunk) {
            if (!AHEAD)
                row.fetch(b, p, first);
            row.template unpack<AHEAD>(
                b, p, first, gamma,
                [&](int k, int, const float *dy, const float *xhat, const float *g) {
#pragma unroll
                    for (int j = 0; j < W; j++) {
                        sum[0][k * W + j] += dy[j] * xhat[j];
                        if (CENTRED)
                            sum[N_SUMS - 1][k * W + j] += dy[j];
                        total_g += g[j];
                        total_gx += g[j] * xhat[j];
                    }
                });
        }
        vp_norm_row_sums<CENTRED, PART>(total_g, total_gx, n, scratch[turn]);
        total_g  = CENTRED ? total_g * b.share : 0.0f;
        total_gx = total_gx * b.share;
        vp_row_forget<T, W, K>(row.dy);
        vp_row_forget<T, W, K>(row.x);
        if (AHEAD)
            vp_row_forget<T, W, K>(gamma);
        for (int first = 0; first < n_chunked; first += chunk) {
            if (again)
                row.fetch(b, p, first);
            row.template unpack<AHEAD>(
                b, p, first, gamma,
                [&](int k, int c, const float *dy, const float *xhat, const float *g) {
                    float out[W];

                    if (again && sums) {
                        sums[c] = (i ? sums[c] : 0.0f) + dy[0] * xhat[0];
                        if (CENTRED)
                            sums[n_parts * cols + c] =
                                (i ? sums[n_parts * cols + c] : 0.0f) + dy[0];
                    }
                    vp_floats(row.add[k], out);
#pragma unroll
                    for (int j = 0; j < W; j++)
                        out[j] += row.rstd * (g[j] - total_g - xhat[j] * total_gx);
                    vp_put<W>(b.dx, p.row * cols + c, out);
                });
        }
        p.row += n_side;
        p.cols = next_cols;
    }
    if (!again && sums)
        vp_norm_part_sums<W, K, N_SUMS>(sum, p, n_side, cols, sums, n_parts * cols, side_by_side);
}

template <typename T, int W, int K, bool CENTRED>
static cudaError_t vp_norm_backward_run(const vp_norm_backward<T> &b, int64_t n_parts,
                                        cudaStream_t stream)
{
    int n = vp_row_threads<W>(b.cols, K * W);

    return VP_LAUNCH((vp_norm_backward_kernel<T, W, K, CENTRED>), (unsigned)n_parts,
                     n > VP_BLOCK ? n : VP_BLOCK / n * n, 0, stream, b, n);
}

/* Both kernels; per_token: rows of a token. d_gamma and d_beta: or NULL, then not summed. */
template <typename T, bool CENTRED>
static cudaError_t vp_norm_backward_launch(const vp_kernel_call *call, vp_norm_backward<T> b,
                                           int64_t per_token, float *d_gamma, float *d_beta,
                                           cudaStream_t stream)
{
    constexpr int N     = vp_pack<T>::N;
    const int64_t packs = b.cols / N;
    int64_t       n_parts;
    cudaError_t   e;

    b.offset    = b.gamma ? b.offset : 0.0f;
    b.part_rows = VP_NORM_PART * per_token;
    b.share     = 1.0f / (float)b.cols;
    b.sums      = d_gamma || d_beta ? (float *)call->workspace : NULL;
    n_parts     = vp_blocks(b.rows, b.part_rows);
    if (b.cols % N != 0 || packs > VP_ROW_MAX_THREADS * VP_NORM_PACKS || !vp_is_aligned16(b.dy) ||
        !vp_is_aligned16(b.x) || !vp_is_aligned16(b.gamma) || !vp_is_aligned16(b.add) ||
        !vp_is_aligned16(b.dx))
        e = vp_norm_backward_run<T, 1, VP_NORM_SINGLE, CENTRED>(b, n_parts, stream);
    else if (packs <= VP_WARP)
        e = vp_norm_backward_run<T, N, 1, CENTRED>(b, n_parts, stream);
    else if (packs > 2 * VP_WARP && packs <= VP_NORM_WARP_PACKS * VP_WARP)
        e = vp_norm_backward_run<T, N, VP_NORM_WARP_PACKS, CENTRED>(b, n_parts, stream);
    else
        e = vp_norm_backward_run<T, N, VP_NORM_PACKS, CENTRED>(b, n_parts, stream);
    return e != cudaSuccess || !b.sums
               ? e
               : vp_tiles_add_launch(b.sums, n_parts, VP_TILE_TOKENS / VP_NORM_PART, b.cols,
                                     d_gamma, d_beta, call->accumulate, stream);
}

#endif
