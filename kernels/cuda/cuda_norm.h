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
 * A row of more packs than a block has threads (8192 elements of 16 bits) goes by single elements: it is
 * read twice, and its sums lie in the workspace from the start. */
#ifndef VP_KERNELS_CUDA_NORM_H
#define VP_KERNELS_CUDA_NORM_H

#include "kernels/cuda/cuda_rows.h"
#include "plan/workspace.h"

/* Threads of a row at most. Single elements want more registers than 1024 threads leave. */
template <int W> constexpr int vp_norm_threads = W > 1 ? 1024 : 512;

/* Elements of a row that a thread holds, with two sums of each: one pack. */
template <int W> constexpr int vp_norm_each = W > 1 ? W : 4;

template <typename T> struct vp_norm_backward {
    const T     *dy, *x, *gamma, *add; /* gamma, add: or NULL                     */
    T           *dx;                   /* may be dy, x or add                     */
    const float *mean, *rstd;          /* mean: of a centred norm                 */
    float       *sums;                 /* (N_SUMS, parts, cols), NULL: not wanted */
    int64_t      rows, cols, part_rows;
    float        offset; /* w = offset + gamma, 1 without gamma             */
    float        share;  /* 1 / cols                                        */
};

/* The sums of b, and of a where BOTH, over the n threads of a row, to all of them. scratch: shared, of each warp; what
 * the call before the last left there has been read. */
template <bool BOTH>
static __device__ inline void vp_norm_row_sums(float &a, float &b, int n, float (*scratch)[2])
{
    int warp = (int)threadIdx.x / VP_WARP, n_warps = n / VP_WARP,
        first = (int)threadIdx.x / n * n_warps;

    for (int lane = (n < VP_WARP ? n : VP_WARP) / 2; lane > 0; lane /= 2) {
        if (BOTH)
            a += __shfl_xor_sync(0xffffffffu, a, lane);
        b += __shfl_xor_sync(0xffffffffu, b, lane);
    }
    if (n <= VP_WARP)
        return;
    if (threadIdx.x % VP_WARP == 0) {
        scratch[warp][0] = a;
        scratch[warp][1] = b;
    }
    __syncthreads();
    a = b = 0.0f;
    for (int w = first; w < first + n_warps; w++) {
        a += scratch[w][0];
        b += scratch[w][1];
    }
}

/* What a thread holds of a row: g and xhat, and what is added as memory has it. Behind the row's end and
 * of rows that there are not all is 0, so that they add nothing. */
template <typename T, int W> struct vp_norm_row {
    enum { EACH = vp_norm_each<W>, K = EACH / W };
    float        g[EACH], xhat[EACH];
    vp_raw<T, W> add[K];

    /* at: of the row; all loads of a chunk first. take(e, column, dy): of element e, once xhat is known. */
    template <typename F>
    __device__ inline void read(const vp_norm_backward<T> &b, const vp_row_place &p, int64_t at,
                                int64_t first, float mean, float rstd, F take)
    {
        vp_raw<T, W> dy[K], x[K];

#pragma unroll
        for (int k = 0; k < K; k++) {
            int64_t c = p.column<W>(first, k);

            dy[k] = x[k] = add[k] = {};
            if (c < p.cols) {
                dy[k] = vp_fetch<W>(b.dy, at + c);
                x[k]  = vp_fetch<W>(b.x, at + c);
                if (b.add)
                    add[k] = vp_fetch<W>(b.add, at + c);
            }
        }
#pragma unroll
        for (int k = 0; k < K; k++) {
            int64_t c = p.column<W>(first, k);
            float   w[W];

            vp_floats(dy[k], g + k * W);
            vp_floats(x[k], xhat + k * W);
#pragma unroll
            for (int e = k * W; e < (k + 1) * W; e++) {
                xhat[e] = (xhat[e] - mean) * rstd;
                take(e, c + e % W, g[e]);
            }
            if (b.gamma && c < p.cols) {
                vp_get<W>(b.gamma, c, w);
#pragma unroll
                for (int j = 0; j < W; j++)
                    g[k * W + j] *= b.offset + w[j];
            }
        }
    }

    __device__ inline void write(const vp_norm_backward<T> &b, const vp_row_place &p, int64_t at,
                                 int64_t first, float mean_g, float mean_gx, float rstd)
    {
#pragma unroll
        for (int k = 0; k < K; k++) {
            int64_t c = p.column<W>(first, k);
            float   out[W];

            if (c >= p.cols)
                continue;
            vp_floats(add[k], out);
#pragma unroll
            for (int j = 0; j < W; j++)
                out[j] += rstd * (g[k * W + j] - mean_g - xhat[k * W + j] * mean_gx);
            vp_put<W>(b.dx, at + c, out);
        }
    }
};

template <typename T, int W, bool CENTRED>
static __global__ void __launch_bounds__(vp_norm_threads<W>)
    vp_norm_backward_kernel(vp_norm_backward<T> b, int n)
{
    enum { N_SUMS = CENTRED ? 2 : 1, EACH = vp_norm_each<W> };
    __shared__ float scratch[2][vp_norm_threads<W> / VP_WARP][2], side_by_side[EACH * VP_BLOCK];
    const int        n_side = (int)blockDim.x / n, side = (int)threadIdx.x / n;
    /* packs: a row is what its threads hold, one chunk */
    const int64_t begin = (int64_t)blockIdx.x * b.part_rows, n_parts = gridDim.x,
                  chunk = W == 1 ? n * EACH : 1, n_chunked = W == 1 ? b.cols : 1;
    const int         n_rows = (int)(b.rows - begin < b.part_rows ? b.rows - begin : b.part_rows);
    const bool        again  = W == 1 && chunk < b.cols;
    float            *sums   = b.sums ? b.sums + blockIdx.x * b.cols : NULL;
    vp_row_place      p      = {0, 0, n, (int)threadIdx.x % n};
    vp_norm_row<T, W> row;
    float             sum[N_SUMS][EACH] = {{0.0f}};

    for (int i = 0, turn = 0; i < n_rows; i += n_side, turn ^= 1) {
        const int64_t r = begin + i + side, at = r * b.cols;
        const bool    is   = i + side < n_rows;
        const float   mean = CENTRED && is ? b.mean[r] : 0.0f, rstd = is ? b.rstd[r] : 0.0f;
        float         total_g = 0.0f, total_gx = 0.0f;

        p.cols = is ? b.cols : 0;
        for (int64_t first = 0; first < n_chunked; first += chunk) {
            row.read(b, p, at, first, mean, rstd, [&](int e, int64_t, float dy) {
                sum[0][e] += dy * row.xhat[e];
                if (CENTRED)
                    sum[N_SUMS - 1][e] += dy;
            });
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                total_g += row.g[e];
                total_gx += row.g[e] * row.xhat[e];
            }
        }
        vp_norm_row_sums<CENTRED>(total_g, total_gx, n, scratch[turn]);
        total_g  = CENTRED ? total_g * b.share : 0.0f;
        total_gx = total_gx * b.share;
        for (int64_t first = 0; first < n_chunked; first += chunk) {
            if (again)
                row.read(b, p, at, first, mean, rstd, [&](int e, int64_t c, float dy) {
                    if (!sums || c >= p.cols)
                        return;
                    sums[c] = (i ? sums[c] : 0.0f) + dy * row.xhat[e];
                    if (CENTRED)
                        sums[n_parts * b.cols + c] = (i ? sums[n_parts * b.cols + c] : 0.0f) + dy;
                });
            row.write(b, p, at, first, total_g, total_gx, rstd);
        }
    }
    if (again || !sums)
        return;
#pragma unroll
    for (int s = 0; s < N_SUMS; s++, sums += n_parts * b.cols) {
        if (n_side == 1) {
#pragma unroll
            for (int i = 0; i < EACH; i++)
                if (p.column<W>(0, i / W) < b.cols)
                    sums[p.column<W>(0, i / W) + i % W] = sum[s][i];
            continue;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < EACH; i++)
            side_by_side[i * VP_BLOCK + threadIdx.x] = sum[s][i];
        __syncthreads();
        for (int c = (int)threadIdx.x; c < b.cols; c += VP_BLOCK) {
            int   k = c / W / n, lane = c / W % n;
            float all = 0.0f;

            for (int from = lane; from < VP_BLOCK; from += n)
                all += side_by_side[(k * W + c % W) * VP_BLOCK + from];
            sums[c] = all;
        }
    }
}

/* Both kernels; per_token: rows of a token. d_gamma and d_beta: or NULL, then not summed. */
template <typename T, bool CENTRED>
static cudaError_t vp_norm_backward_launch(const vp_kernel_call *call, vp_norm_backward<T> b,
                                           int64_t per_token, float *d_gamma, float *d_beta,
                                           cudaStream_t stream)
{
    int64_t     n_parts;
    cudaError_t e;

    b.part_rows = VP_NORM_PART * per_token;
    b.share     = 1.0f / (float)b.cols;
    b.sums      = d_gamma || d_beta ? (float *)call->workspace : NULL;
    n_parts     = vp_blocks(b.rows, b.part_rows);
    VP_BY_WIDTH(b.cols % vp_pack<T>::N == 0 &&
                    b.cols <= vp_norm_threads<vp_pack<T>::N> * vp_pack<T>::N &&
                    vp_is_aligned16(b.dy) && vp_is_aligned16(b.x) && vp_is_aligned16(b.gamma) &&
                    vp_is_aligned16(b.add) && vp_is_aligned16(b.dx),
                T, W, int n = W > 1 ? 1 : VP_WARP;
                while (n < vp_norm_threads<W> && (int64_t)n * vp_norm_each<W> < b.cols) n *= 2;
                e = VP_LAUNCH((vp_norm_backward_kernel<T, W, CENTRED>), (unsigned)n_parts,
                              n > VP_BLOCK ? n : VP_BLOCK, 0, stream, b, n));
    return e != cudaSuccess || !b.sums
               ? e
               : vp_tiles_add_launch(b.sums, n_parts, VP_TILE_TOKENS / VP_NORM_PART, b.cols,
                                     d_gamma, d_beta, call->accumulate, stream);
}

#endif
