/* kernels/cuda/rmsnorm.cu: root-mean-square norm (Zhang, Sennrich 2019, arXiv:1910.07467) of each
 * group of cols columns.
 *
 *     y[r][c] = x[r][c] rstd[r] w[c],  rstd = 1 / sqrt(mean(x^2) + eps),  w = gamma, or 1 + gamma
 *     with unit_offset
 *
 * One gamma serves all groups, so to everything but the tiles of d_gamma a call is rows times
 * groups rows of cols. Backward, with xhat = x rstd, g = dy w and means over a row's cols elements:
 *
 *     dx = add + rstd (g - xhat mean(g xhat)),  d_gamma = sum over tokens and groups of dy xhat
 *
 * x, y, dy, add, dx (rows, groups, cols) and gamma (cols) of the call's dtype; rstd (rows, groups),
 * d_gamma (cols) float. d_gamma and add may be absent; dx may lie on dy, x or add.
 *
 * With N = rows groups cols and E bytes of an element, forward moves 2 E N bytes; backward 5 E
 * N, and E N more for add: dy and x are read once down the columns, before dx may be written
 * over them, and once along the rows. That second pass goes from the last row to the first,
 * since the end is what the L2 cache still holds. The sums of tiles of 256 tokens pass through
 * the workspace. Same mathematics: kernels/cpu/rmsnorm.c; reference:
 * kernels/reference/reference.c. */
#include "kernels/cuda/cuda_rows.h"

/* ---- forward ---- */

template <typename T, int W>
static __global__ void __launch_bounds__(VP_ROW_MAX_THREADS, 2)
    forward_kernel(const T *__restrict__ x, const T *__restrict__ gamma, T *__restrict__ y,
                   float *rstd_out, int64_t rows, int64_t cols, int n, float offset, float eps)
{
    __shared__ float   scratch[VP_WARP];
    const vp_row_place p     = vp_row_here(rows, cols, n);
    const int64_t      chunk = p.chunk<W>();
    const bool         again = chunk < cols; /* the row is read anew in each pass */
    const T           *row   = x + p.row * cols;
    float              v[vp_row_each<W>], squares = 0.0f, rstd;

    for (int64_t first = 0; first < cols; first += chunk) {
        vp_row_get<W>(p, row, first, v);
#pragma unroll
        for (int i = 0; i < vp_row_each<W>; i++)
            squares += v[i] * v[i];
    }
    rstd = 1.0f / sqrtf(vp_row_sum(squares, n, scratch) / (float)cols + eps);
    if (p.lane == 0 && p.cols > 0)
        rstd_out[p.row] = rstd;
    for (int64_t first = 0; first < cols; first += chunk) {
        if (again)
            vp_row_get<W>(p, row, first, v);
#pragma unroll
        for (int k = 0; k < vp_row_each<W> / W; k++) {
            int64_t c = p.column<W>(first, k);
            float   w[W], out[W];

            if (c >= p.cols)
                continue;
            vp_get<W>(gamma, c, w);
#pragma unroll
            for (int j = 0; j < W; j++)
                out[j] = v[k * W + j] * rstd * (offset + w[j]);
            vp_put<W>(y, p.row * cols + c, out);
        }
    }
}

extern "C" cudaError_t vp_cuda_rmsnorm_fwd(const vp_kernel_call *call, cudaStream_t stream)
{
    int64_t     rows = call->rmsnorm.rows * call->rmsnorm.groups, cols = call->rmsnorm.cols;
    float       offset = (float)call->rmsnorm.unit_offset, eps = (float)call->norm_reals.eps;
    cudaError_t e;

    VP_BY_DTYPE(call->dtype, T, const T *x = (const T *)call->operand[VP_RMSNORM_FWD_X],
                *gamma = (const T *)call->operand[VP_RMSNORM_FWD_GAMMA];
                T *y   = (T *)call->operand[VP_RMSNORM_FWD_Y]; VP_BY_WIDTH(
                      cols % vp_pack<T>::N == 0 && vp_is_aligned16(x) && vp_is_aligned16(gamma) &&
                          vp_is_aligned16(y),
                      T, W, int n = vp_row_threads<W>(cols), block = vp_row_block(n);
                      e = VP_LAUNCH((forward_kernel<T, W>), vp_blocks(rows, block / n), block, 0,
                                    stream, x, gamma, y, (float *)call->operand[VP_RMSNORM_FWD_RSTD],
                                    rows, cols, n, offset, eps)));
    return e;
}

/* ---- backward ---- */

template <typename T> struct norm_terms {
    enum { N_SUMS = 1 };
    template <int W> struct terms {
        vp_raw<T, W> dy, x;
        float        rstd;
    };
    const T     *dy, *x;
    const float *rstd;

    template <int W> __device__ inline void read(int64_t row, int64_t at, terms<W> &t) const
    {
        t.dy   = vp_fetch<W>(dy, at);
        t.x    = vp_fetch<W>(x, at);
        t.rstd = rstd[row];
    }

    template <int W> __device__ inline void add(const terms<W> &t, float (&sum)[N_SUMS][W]) const
    {
        float g[W], v[W];

        vp_floats(t.dy, g);
        vp_floats(t.x, v);
#pragma unroll
        for (int j = 0; j < W; j++)
            sum[0][j] += g[j] * (v[j] * t.rstd);
    }
};

/* The thread's elements of a chunk: g, xhat and what is added. */
template <typename T, int W>
static __device__ inline void backward_get(const vp_row_place &p, const T *dy, const T *x,
                                           const T *gamma, const T *add, int64_t row_at,
                                           int64_t first, float offset, float rstd, float *g,
                                           float *xhat, float *a)
{
    vp_row_get<W>(p, dy + row_at, first, g);
    vp_row_get<W>(p, x + row_at, first, xhat);
    if (add)
        vp_row_get<W>(p, add + row_at, first, a);
#pragma unroll
    for (int k = 0; k < vp_row_each<W> / W; k++) {
        int64_t c = p.column<W>(first, k);
        float   w[W];

        if (c >= p.cols)
            continue;
        vp_get<W>(gamma, c, w);
#pragma unroll
        for (int j = 0; j < W; j++) {
            g[k * W + j] *= offset + w[j];
            xhat[k * W + j] *= rstd;
        }
    }
}

/* dy, x, add and dx may be one: a thread reads what it needs of a chunk before it writes there,
 * and the mean is known before the first. */
template <typename T, int W>
static __global__ void __launch_bounds__(VP_ROW_MAX_THREADS)
    backward_kernel(const T *dy, const T                     *x, const T *__restrict__ gamma,
                    const float *__restrict__ rstds, const T *add, T *dx, int64_t rows,
                    int64_t cols, int n, float offset)
{
    __shared__ float scratch[VP_WARP];
    vp_row_place     p     = vp_row_here(rows, cols, n);
    const int64_t    chunk = p.chunk<W>();
    const bool       again = chunk < cols;
    float   g[vp_row_each<W>], xhat[vp_row_each<W>], a[vp_row_each<W>], rstd, sum = 0.0f, mean;
    int64_t row_at;

    p.row  = rows - 1 - p.row;
    row_at = p.row * cols;
    rstd   = p.cols > 0 ? rstds[p.row] : 0.0f;
    for (int64_t first = 0; first < cols; first += chunk) {
        backward_get<T, W>(p, dy, x, gamma, add, row_at, first, offset, rstd, g, xhat, a);
#pragma unroll
        for (int i = 0; i < vp_row_each<W>; i++)
            sum += g[i] * xhat[i];
    }
    mean = vp_row_sum(sum, n, scratch) / (float)cols;
    for (int64_t first = 0; first < cols; first += chunk) {
        if (again)
            backward_get<T, W>(p, dy, x, gamma, add, row_at, first, offset, rstd, g, xhat, a);
        vp_row_put_dx<W>(p, dx + row_at, first, rstd, 0.0f, mean, g, xhat, add != NULL, a);
    }
}

extern "C" cudaError_t vp_cuda_rmsnorm_bwd(const vp_kernel_call *call, cudaStream_t stream)
{
    const float *rstd    = (const float *)call->operand[VP_RMSNORM_BWD_RSTD];
    float       *d_gamma = (float *)call->operand[VP_RMSNORM_BWD_D_GAMMA],
          offset         = (float)call->rmsnorm.unit_offset;
    int64_t groups = call->rmsnorm.groups, rows = call->rmsnorm.rows * groups,
            cols  = call->rmsnorm.cols;
    cudaError_t e = cudaSuccess;

    VP_BY_DTYPE(
        call->dtype, T, const T *dy = (const T *)call->operand[VP_RMSNORM_BWD_DY],
        *x              = (const T *)call->operand[VP_RMSNORM_BWD_X],
        *gamma          = (const T *)call->operand[VP_RMSNORM_BWD_GAMMA];
        const T *add    = (const T *)call->operand[VP_RMSNORM_BWD_ADD];
        T *dx           = (T *)call->operand[VP_RMSNORM_BWD_DX];
        bool aligned    = cols % vp_pack<T>::N == 0 && vp_is_aligned16(dy) && vp_is_aligned16(x);
        norm_terms<T> f = {dy, x, rstd}; if (d_gamma) e = vp_tile_sums_launch<T>(
                                             call, f, rows, cols, VP_TILE_TOKENS * groups,
                                             groups > 1, aligned, d_gamma, (float *)NULL, stream);
        aligned = aligned && vp_is_aligned16(gamma) && vp_is_aligned16(add) && vp_is_aligned16(dx);
        if (e == cudaSuccess)
            VP_BY_WIDTH(aligned, T, W, int n = vp_row_threads<W>(cols), block = vp_row_block(n);
                        e = VP_LAUNCH((backward_kernel<T, W>), vp_blocks(rows, block / n), block, 0,
                                      stream, dy, x, gamma, rstd, add, dx, rows, cols, n, offset)));
    return e;
}
