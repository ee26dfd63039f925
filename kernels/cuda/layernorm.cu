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
 * With E of an element, forward moves 2 E rows cols bytes. Backward (cuda_norm.h) moves 3 E rows cols, E
 * rows cols more for add, and for d_gamma and d_beta half a byte for each element: sums of 32 rows pass
 * through the workspace. Same mathematics: kernels/cpu/layernorm.c;
 * reference: kernels/reference/reference.c. */
#include "kernels/cuda/cuda_norm.h"

/* ---- forward ---- */

template <typename T, int W, int K>
static __global__ void __launch_bounds__(vp_row_most_threads<W, K>, vp_row_blocks<W, K>)
    forward_kernel(const T *__restrict__ x, const T *__restrict__ gamma, const T *__restrict__ beta,
                   T *__restrict__ y, float *mean_out, float *rstd_out, int64_t rows, int cols,
                   int threads, float eps)
{
    constexpr bool   LONG = vp_row_is_long<W, K>;
    __shared__ float scratch[VP_WARP];
    const int        n = vp_row_threads_here<W, K>(threads), chunk = LONG ? n * K * W : 1,
              n_chunked      = LONG ? cols : 1;
    const bool         again = LONG && chunk < cols; /* the row is read anew in each pass */
    const vp_row_place p     = vp_row_here(rows, cols, n);
    const T           *row   = x + p.row * cols;
    vp_raw<T, W>       raw[K], w[K], b[K];
    float              sum = 0.0f, squares = 0.0f, mean, rstd;

#pragma unroll
    for (int k = 0; !LONG && k < K; k++)
        if (p.column<W>(0, k) < p.cols) {
            w[k] = vp_row_parameter<W>(gamma, p.column<W>(0, k), 1.0f);
            b[k] = vp_row_parameter<W>(beta, p.column<W>(0, k), 0.0f);
        }
    for (int first = 0; first < n_chunked; first += chunk) {
        vp_row_fetch<W, K>(p, row, first, raw);
        vp_row_each<W, K>(p, first, raw, [&](int, int, const float *v) {
#pragma unroll
            for (int j = 0; j < W; j++)
                sum += v[j];
        });
    }
    mean = vp_row_sum(sum, n, scratch) / (float)cols;
    vp_row_forget<T, W, K>(raw);
    for (int first = 0; first < n_chunked; first += chunk) {
        if (again)
            vp_row_fetch<W, K>(p, row, first, raw);
        vp_row_each<W, K>(p, first, raw, [&](int, int, const float *v) {
#pragma unroll
            for (int j = 0; j < W; j++)
                squares += (v[j] - mean) * (v[j] - mean);
        });
    }
    rstd = 1.0f / sqrtf(vp_row_sum(squares, n, scratch) / (float)cols + eps);
    if (p.lane == 0 && p.cols > 0) {
        mean_out[p.row] = mean;
        rstd_out[p.row] = rstd;
    }
    vp_row_forget<T, W, K>(raw);
    for (int first = 0; first < n_chunked; first += chunk) {
        if (again)
            vp_row_fetch<W, K>(p, row, first, raw);
        vp_row_each<W, K>(p, first, raw, [&](int k, int c, float *v) {
            float scale[W], shift[W];

            vp_floats(LONG ? vp_row_parameter<W>(gamma, c, 1.0f) : w[k], scale);
            vp_floats(LONG ? vp_row_parameter<W>(beta, c, 0.0f) : b[k], shift);
#pragma unroll
            for (int j = 0; j < W; j++)
                v[j] = (v[j] - mean) * rstd * scale[j] + shift[j];
            vp_put<W>(y, p.row * cols + c, v);
        });
    }
}

extern "C" cudaError_t vp_cuda_layernorm_fwd(const vp_kernel_call *call, cudaStream_t stream)
{
    int64_t     rows = call->layernorm.rows, cols = call->layernorm.cols;
    float       eps = (float)call->norm_reals.eps;
    cudaError_t e;

    if (cols > VP_ROW_MAX_COLS)
        return cudaErrorInvalidValue;
    VP_BY_DTYPE(
        call->dtype, T, const T *x = (const T *)call->operand[VP_LAYERNORM_FWD_X],
        *gamma       = (const T *)call->operand[VP_LAYERNORM_FWD_GAMMA],
        *beta        = (const T *)call->operand[VP_LAYERNORM_FWD_BETA];
        T *y         = (T *)call->operand[VP_LAYERNORM_FWD_Y];
        bool aligned = cols % vp_pack<T>::N == 0 && vp_is_aligned16(x) && vp_is_aligned16(y);
        aligned      = aligned && vp_is_aligned16(gamma) && vp_is_aligned16(beta); VP_BY_WIDTH(
                 aligned, T, W,
                 VP_BY_PACKS(cols, W, K, int n = vp_row_threads<W>(cols, K * W), block = vp_row_block(n);
                             e = VP_LAUNCH((forward_kernel<T, W, K>), vp_blocks(rows, block / n), block,
                                           0, stream, x, gamma, beta, y,
                                           (float *)call->operand[VP_LAYERNORM_FWD_MEAN],
                                           (float *)call->operand[VP_LAYERNORM_FWD_RSTD], rows,
                                           (int)cols, n, eps))));
    return e;
}

/* ---- backward ---- */

extern "C" cudaError_t vp_cuda_layernorm_bwd(const vp_kernel_call *call, cudaStream_t stream)
{
    cudaError_t e;

    if (call->layernorm.cols > VP_ROW_MAX_COLS)
        return cudaErrorInvalidValue;
    VP_BY_DTYPE(call->dtype, T, vp_norm_backward<T> b = {};
                b.dy    = (const T *)call->operand[VP_LAYERNORM_BWD_DY];
                b.x     = (const T *)call->operand[VP_LAYERNORM_BWD_X];
                b.gamma = (const T *)call->operand[VP_LAYERNORM_BWD_GAMMA];
                b.add   = (const T *)call->operand[VP_LAYERNORM_BWD_ADD];
                b.dx    = (T *)call->operand[VP_LAYERNORM_BWD_DX];
                b.mean  = (const float *)call->operand[VP_LAYERNORM_BWD_MEAN];
                b.rstd  = (const float *)call->operand[VP_LAYERNORM_BWD_RSTD];
                b.rows = call->layernorm.rows; b.cols = (int)call->layernorm.cols;
                e                                     = (vp_norm_backward_launch<T, true>(
                    call, b, 1, (float *)call->operand[VP_LAYERNORM_BWD_D_GAMMA],
                    (float *)call->operand[VP_LAYERNORM_BWD_D_BETA], stream)));
    return e;
}
