/* kernels/cuda/layernorm.cu: layer norm over the last axis (Ba, Kiros, Hinton 2016,
 * arXiv:1607.06450).
 *
 *     y[r][c] = (x[r][c] - mean[r]) * rstd[r] * gamma[c] + beta[c],  rstd = 1 / sqrt(var + eps)
 *
 * var is the biased variance, from a second pass over the row in registers: no cancellation of
 * E[x^2] - E[x]^2. Backward, with xhat = (x - mean) rstd, g = dy gamma and means over the row's
 * cols elements:
 *
 *     dx = add + rstd (g - mean(g) - xhat mean(g xhat)),  d_gamma = sum over rows of dy xhat,
 *     d_beta = sum over rows of dy
 *
 * x, y, dy, add, dx (rows, cols), gamma and beta (cols), of the call's dtype; mean, rstd (rows),
 * d_gamma, d_beta (cols) float. Absent, gamma is 1, beta and add are 0. dx may lie on dy, x or add.
 *
 * With E of an element, forward moves 2 E rows cols bytes. Backward moves 3 E rows cols, E rows
 * cols more for add, and for d_gamma and d_beta another 2 E rows cols: dy and x are read once
 * down the columns, before dx may be written over them, and once along the rows. That second
 * pass goes from the last row to the first, since the end is what the L2 cache still holds. The
 * sums of tiles pass through the workspace. Same mathematics: kernels/cpu/layernorm.c;
 * reference: kernels/reference/reference.c. */
#include "kernels/cuda/cuda_rows.h"

/* ---- forward ---- */

/* Rows of no alignment, column by column, want more registers than two blocks a processor leave. */
template <typename T, int W>
static __global__ void __launch_bounds__(VP_ROW_MAX_THREADS, W == 1 ? 1 : 2)
    forward_kernel(const T *__restrict__ x, const T *__restrict__ gamma, const T *__restrict__ beta,
                   T *__restrict__ y, float *mean_out, float *rstd_out, int64_t rows, int64_t cols,
                   int n, float eps)
{
    __shared__ float   scratch[VP_WARP];
    const vp_row_place p     = vp_row_here(rows, cols, n);
    const int64_t      chunk = p.chunk<W>();
    const bool         again = chunk < cols; /* the row is read anew in each pass */
    const T           *row   = x + p.row * cols;
    float              v[vp_row_each<W>], sum = 0.0f, squares = 0.0f, mean, rstd;

    for (int64_t first = 0; first < cols; first += chunk) {
        vp_row_get<W>(p, row, first, v);
#pragma unroll
        for (int i = 0; i < vp_row_each<W>; i++)
            sum += v[i];
    }
    mean = vp_row_sum(sum, n, scratch) / (float)cols;
    for (int64_t first = 0; first < cols; first += chunk) {
        if (again)
            vp_row_get<W>(p, row, first, v);
#pragma unroll
        for (int i = 0; i < vp_row_each<W>; i++)
            if (p.column<W>(first, i / W) < p.cols)
                squares += (v[i] - mean) * (v[i] - mean);
    }
    rstd = 1.0f / sqrtf(vp_row_sum(squares, n, scratch) / (float)cols + eps);
    if (p.lane == 0 && p.cols > 0) {
        mean_out[p.row] = mean;
        rstd_out[p.row] = rstd;
    }
    for (int64_t first = 0; first < cols; first += chunk) {
        if (again)
            vp_row_get<W>(p, row, first, v);
#pragma unroll
        for (int k = 0; k < vp_row_each<W> / W; k++) {
            int64_t c = p.column<W>(first, k);
            float   w[W], b[W], out[W];

            if (c >= p.cols)
                continue;
            if (gamma)
                vp_get<W>(gamma, c, w);
            if (beta)
                vp_get<W>(beta, c, b);
#pragma unroll
            for (int j = 0; j < W; j++) {
                out[j] = (v[k * W + j] - mean) * rstd;
                out[j] = gamma ? out[j] * w[j] : out[j];
                out[j] = beta ? out[j] + b[j] : out[j];
            }
            vp_put<W>(y, p.row * cols + c, out);
        }
    }
}

extern "C" cudaError_t vp_cuda_layernorm_fwd(const vp_kernel_call *call, cudaStream_t stream)
{
    int64_t     rows = call->layernorm.rows, cols = call->layernorm.cols;
    float       eps = (float)call->norm_reals.eps;
    cudaError_t e;

    VP_BY_DTYPE(
        call->dtype, T, const T *x = (const T *)call->operand[VP_LAYERNORM_FWD_X],
        *gamma       = (const T *)call->operand[VP_LAYERNORM_FWD_GAMMA],
        *beta        = (const T *)call->operand[VP_LAYERNORM_FWD_BETA];
        T *y         = (T *)call->operand[VP_LAYERNORM_FWD_Y];
        bool aligned = cols % vp_pack<T>::N == 0 && vp_is_aligned16(x) && vp_is_aligned16(y);
        aligned      = aligned && vp_is_aligned16(gamma) && vp_is_aligned16(beta); VP_BY_WIDTH(
                 aligned, T, W, int n = vp_row_threads<W>(cols), block = vp_row_block(n);
                 e = VP_LAUNCH((forward_kernel<T, W>), vp_blocks(rows, block / n), block, 0, stream, x,
                               gamma, beta, y, (float *)call->operand[VP_LAYERNORM_FWD_MEAN],
                               (float *)call->operand[VP_LAYERNORM_FWD_RSTD], rows, cols, n, eps)));
    return e;
}

/* ---- backward ---- */

template <typename T> struct norm_terms {
    enum { N_SUMS = 2 };
    template <int W> struct terms {
        vp_raw<T, W> dy, x;
        float        mean, rstd;
    };
    const T     *dy, *x;
    const float *mean, *rstd;

    template <int W> __device__ inline void read(int64_t row, int64_t at, terms<W> &t) const
    {
        t.dy   = vp_fetch<W>(dy, at);
        t.x    = vp_fetch<W>(x, at);
        t.mean = mean[row];
        t.rstd = rstd[row];
    }

    template <int W> __device__ inline void add(const terms<W> &t, float (&sum)[N_SUMS][W]) const
    {
        float g[W], v[W];

        vp_floats(t.dy, g);
        vp_floats(t.x, v);
#pragma unroll
        for (int j = 0; j < W; j++) {
            sum[0][j] += g[j] * ((v[j] - t.mean) * t.rstd);
            sum[1][j] += g[j];
        }
    }
};

/* The thread's elements of a chunk: g, xhat and what is added. */
template <typename T, int W>
static __device__ inline void backward_get(const vp_row_place &p, const T *dy, const T *x,
                                           const T *gamma, const T *add, int64_t row_at,
                                           int64_t first, float mean, float rstd, float *g,
                                           float *xhat, float *a)
{
    vp_row_get<W>(p, dy + row_at, first, g);
    vp_row_get<W>(p, x + row_at, first, xhat);
    if (add)
        vp_row_get<W>(p, add + row_at, first, a);
#pragma unroll
    for (int k = 0; gamma && k < vp_row_each<W> / W; k++) {
        int64_t c = p.column<W>(first, k);
        float   w[W];

        if (c >= p.cols)
            continue;
        vp_get<W>(gamma, c, w);
#pragma unroll
        for (int j = 0; j < W; j++)
            g[k * W + j] *= w[j];
    }
#pragma unroll
    for (int i = 0; i < vp_row_each<W>; i++)
        xhat[i] = (xhat[i] - mean) * rstd;
}

/* dy, x, add and dx may be one: a thread reads what it needs of a chunk before it writes there,
 * and both means are known before the first. */
template <typename T, int W>
static __global__ void __launch_bounds__(VP_ROW_MAX_THREADS)
    backward_kernel(const T *dy, const T *x, const T *__restrict__ gamma,
                    const float *__restrict__ means, const float *__restrict__ rstds, const T *add,
                    T *dx, int64_t rows, int64_t cols, int n)
{
    __shared__ float scratch[VP_WARP];
    vp_row_place     p     = vp_row_here(rows, cols, n);
    const int64_t    chunk = p.chunk<W>();
    const bool       again = chunk < cols;
    float            g[vp_row_each<W>], xhat[vp_row_each<W>], a[vp_row_each<W>];
    float            mean = 0.0f, rstd = 0.0f, sum_g = 0.0f, sum_gx = 0.0f, mean_g, mean_gx;
    int64_t          row_at;

    p.row  = rows - 1 - p.row;
    row_at = p.row * cols;
    if (p.cols > 0) {
        mean = means[p.row];
        rstd = rstds[p.row];
    }
    for (int64_t first = 0; first < cols; first += chunk) {
        backward_get<T, W>(p, dy, x, gamma, add, row_at, first, mean, rstd, g, xhat, a);
#pragma unroll
        for (int i = 0; i < vp_row_each<W>; i++) {
            sum_g += g[i];
            sum_gx += g[i] * xhat[i];
        }
    }
    mean_g  = vp_row_sum(sum_g, n, scratch) / (float)cols;
    mean_gx = vp_row_sum(sum_gx, n, scratch) / (float)cols;
    for (int64_t first = 0; first < cols; first += chunk) {
        if (again)
            backward_get<T, W>(p, dy, x, gamma, add, row_at, first, mean, rstd, g, xhat, a);
        vp_row_put_dx<W>(p, dx + row_at, first, rstd, mean_g, mean_gx, g, xhat, add != NULL, a);
    }
}

extern "C" cudaError_t vp_cuda_layernorm_bwd(const vp_kernel_call *call, cudaStream_t stream)
{
    const float *mean = (const float *)call->operand[VP_LAYERNORM_BWD_MEAN],
                *rstd = (const float *)call->operand[VP_LAYERNORM_BWD_RSTD];
    float *d_gamma    = (float *)call->operand[VP_LAYERNORM_BWD_D_GAMMA],
          *d_beta     = (float *)call->operand[VP_LAYERNORM_BWD_D_BETA];
    int64_t     rows = call->layernorm.rows, cols = call->layernorm.cols;
    cudaError_t e = cudaSuccess;

    VP_BY_DTYPE(
        call->dtype, T, const T *dy = (const T *)call->operand[VP_LAYERNORM_BWD_DY],
        *x              = (const T *)call->operand[VP_LAYERNORM_BWD_X],
        *gamma          = (const T *)call->operand[VP_LAYERNORM_BWD_GAMMA];
        const T *add    = (const T *)call->operand[VP_LAYERNORM_BWD_ADD];
        T *dx           = (T *)call->operand[VP_LAYERNORM_BWD_DX];
        bool aligned    = cols % vp_pack<T>::N == 0 && vp_is_aligned16(dy) && vp_is_aligned16(x);
        norm_terms<T> f = {dy, x, mean, rstd};
        if (d_gamma || d_beta) e = vp_tile_sums_launch<T>(call, f, rows, cols, VP_TILE_TOKENS,
                                                          false, aligned, d_gamma, d_beta, stream);
        aligned = aligned && vp_is_aligned16(gamma) && vp_is_aligned16(add) && vp_is_aligned16(dx);
        if (e == cudaSuccess)
            VP_BY_WIDTH(aligned, T, W, int n = vp_row_threads<W>(cols), block = vp_row_block(n);
                        e = VP_LAUNCH((backward_kernel<T, W>), vp_blocks(rows, block / n), block, 0,
                                      stream, dy, x, gamma, mean, rstd, add, dx, rows, cols, n)));
    return e;
}
