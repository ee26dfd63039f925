/* kernels/cuda/bias_grad.cu: the bias's gradient of a linear layer, db[o] = sum over rows of
 * dy[r][o].
 *
 * dy (rows, out) of the call's dtype; db (out) float or, in a call of bf16 gradients, bf16, read too where the call accumulates. With
 * E of an element, moves E rows out bytes, and 8 out for each tile of 256 rows, whose sums pass
 * through the workspace. The matrix product of the same call has the workspace before or after.
 * Same mathematics: kernels/cpu/linear.c; reference: linear_bwd_weight() in
 * kernels/reference/reference.c. */
#include "kernels/cuda/cuda_rows.h"

template <typename T> struct bias_terms {
    enum { N_SUMS = 1 };
    template <int W> struct terms {
        vp_raw<T, W> dy;
    };
    const T *dy;
    int64_t  between; /* rows: elements that are padding */

    template <int W> __device__ inline void read(int64_t row, int64_t at, terms<W> &t) const
    {
        t.dy = vp_fetch<W>(dy, at + row * between);
    }

    template <int W> __device__ inline void add(const terms<W> &t, float (&sum)[N_SUMS][W]) const
    {
        float g[W];

        vp_floats(t.dy, g);
#pragma unroll
        for (int j = 0; j < W; j++)
            sum[0][j] += g[j];
    }
};

/* dy of T, db of G. */
template <typename T, typename G>
static cudaError_t bias_grad(const vp_kernel_call *call, int64_t rows, int64_t out,
                             cudaStream_t stream)
{
    int64_t       stride = vp_row_stride(out, call->linear.padded);
    bias_terms<T> f      = {(const T *)call->operand[VP_LINEAR_BWD_WEIGHT_DY], stride - out};

    return vp_tile_sums_launch<T>(call, f, rows, out, VP_TILE_TOKENS, false,
                                  vp_is_aligned16(f.dy) && out % vp_pack<T>::N == 0,
                                  (G *)call->operand[VP_LINEAR_BWD_WEIGHT_DB], (G *)NULL, stream);
}

extern "C" cudaError_t vp_cuda_bias_grad(const vp_kernel_call *call, cudaStream_t stream)
{
    int64_t     rows = call->linear.rows, out = call->linear.out;
    void       *db = call->operand[VP_LINEAR_BWD_WEIGHT_DB];
    cudaError_t e;

    if (!db)
        return cudaSuccess;
    if (call->dtype == VP_DTYPE_BF16_GRADS)
        return bias_grad<vp_bf16, vp_bf16>(call, rows, out, stream);
    VP_BY_DTYPE(call->dtype, T, e = (bias_grad<T, float>(call, rows, out, stream)));
    return e;
}
