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
 * With N = rows groups cols and E bytes of an element, forward moves 2 E N bytes; backward (cuda_norm.h) 3 E
 * N, E N more for add, and for d_gamma a quarter of a byte for each element: sums of 32 tokens pass
 * through the workspace. Same mathematics: kernels/cpu/rmsnorm.c; reference:
 * kernels/reference/reference.c. */
#include "kernels/cuda/cuda_norm.h"

/* ---- forward ---- */

template <typename T, int W, int K>
static __global__ void __launch_bounds__(vp_row_most_threads<W, K>, vp_row_blocks<W, K>)
    forward_kernel(const T *__restrict__ x, const T *__restrict__ gamma, T *__restrict__ y,
                   float *rstd_out, int64_t rows, int cols, int threads, float offset, float eps)
{
    constexpr bool   LONG = vp_row_is_long<W, K>;
    __shared__ float scratch[VP_WARP];
    const int        n = vp_row_threads_here<W, K>(threads), chunk = LONG ? n * K * W : 1,
              n_chunked      = LONG ? cols : 1;
    const bool         again = LONG && chunk < cols; /* the row is read anew in each pass */
    const vp_row_place p     = vp_row_here(rows, cols, n);
    const T           *row   = x + p.row * cols;
    vp_raw<T, W>       raw[K], w[K];
    float              squares = 0.0f, rstd;

#pragma unroll
    for (int k = 0; !LONG && k < K; k++)
        if (p.column<W>(0, k) < p.cols)
            w[k] = vp_fetch<W>(gamma, p.column<W>(0, k));
    for (int first = 0; first < n_chunked; first += chunk) {
        vp_row_fetch<W, K>(p, row, first, raw);
        vp_row_each<W, K>(p, first, raw, [&](int, int, const float *v) {
#pragma unroll
            for (int j = 0; j < W; j++)
                squares += v[j] * v[j];
        });
    }
    rstd = 1.0f / sqrtf(vp_row_sum(squares, n, scratch) / (float)cols + eps);
    if (p.lane == 0 && p.cols > 0)
        rstd_out[p.row] = rstd;
    vp_row_forget<T, W, K>(raw);
    for (int first = 0; first < n_chunked; first += chunk) {
        if (again)
            vp_row_fetch<W, K>(p, row, first, raw);
        vp_row_each<W, K>(p, first, raw, [&](int k, int c, float *v) {
            float scale[W];

            vp_floats(LONG ? vp_fetch<W>(gamma, c) : w[k], scale);
#pragma unroll
            for (int j = 0; j < W; j++)
                v[j] *= rstd * (offset + scale[j]);
            vp_put<W>(y, p.row * cols + c, v);
        });
    }
}

extern "C" cudaError_t vp_cuda_rmsnorm_fwd(const vp_kernel_call *call, cudaStream_t stream)
{
    int64_t     rows = call->rmsnorm.rows * call->rmsnorm.groups, cols = call->rmsnorm.cols;
    float       offset = (float)call->rmsnorm.unit_offset, eps = (float)call->norm_reals.eps;
    cudaError_t e;

    if (cols > VP_ROW_MAX_COLS)
        return cudaErrorInvalidValue;
    VP_BY_DTYPE(
        call->dtype, T, const T *x = (const T *)call->operand[VP_RMSNORM_FWD_X],
        *gamma = (const T *)call->operand[VP_RMSNORM_FWD_GAMMA];
        T *y   = (T *)call->operand[VP_RMSNORM_FWD_Y]; VP_BY_WIDTH(
              cols % vp_pack<T>::N == 0 && vp_is_aligned16(x) && vp_is_aligned16(gamma) &&
                  vp_is_aligned16(y),
              T, W,
              VP_BY_PACKS(cols, W, K, int n = vp_row_threads<W>(cols, K * W), block = vp_row_block(n);
                          e = VP_LAUNCH((forward_kernel<T, W, K>), vp_blocks(rows, block / n), block,
                                        0, stream, x, gamma, y,
                                        (float *)call->operand[VP_RMSNORM_FWD_RSTD], rows, (int)cols,
                                        n, offset, eps))));
    return e;
}

/* ---- backward ---- */

extern "C" cudaError_t vp_cuda_rmsnorm_bwd(const vp_kernel_call *call, cudaStream_t stream)
{
    const int64_t groups = call->rmsnorm.groups;
    cudaError_t   e;

    if (call->rmsnorm.cols > VP_ROW_MAX_COLS)
        return cudaErrorInvalidValue;
    VP_BY_DTYPE(
        call->dtype, T, vp_norm_backward<T> b = {};
        b.dy    = (const T *)call->operand[VP_RMSNORM_BWD_DY];
        b.x     = (const T *)call->operand[VP_RMSNORM_BWD_X];
        b.gamma = (const T *)call->operand[VP_RMSNORM_BWD_GAMMA];
        b.add   = (const T *)call->operand[VP_RMSNORM_BWD_ADD];
        b.dx    = (T *)call->operand[VP_RMSNORM_BWD_DX];
        b.rstd  = (const float *)call->operand[VP_RMSNORM_BWD_RSTD];
        b.rows = call->rmsnorm.rows * groups; b.cols = (int)call->rmsnorm.cols;
        b.offset                                     = (float)call->rmsnorm.unit_offset;
        e                                            = (vp_norm_backward_launch<T, false>(
            call, b, groups, (float *)call->operand[VP_RMSNORM_BWD_D_GAMMA], NULL, stream)));
    return e;
}
