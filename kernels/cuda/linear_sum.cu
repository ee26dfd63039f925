/* kernels/cuda/linear_sum.cu: the input's gradient of a linear whose dx is the sum of two products, rounded
 * once.
 *
 *     dx = sum, or dx + sum where the call accumulates
 *
 * sum (rows, in) float, in the call's workspace; dx (rows, in) of 16 bits. Moves 6 rows in bytes, 8 where the call
 * accumulates. */
#include "kernels/cuda/cuda_span.h"

template <typename T, int W>
static __global__ void round_kernel(const float *__restrict__ sum, T *dx, int64_t count, bool adds)
{
    for (int64_t i = ((int64_t)blockIdx.x * VP_BLOCK + threadIdx.x) * W; i < count;
         i += (int64_t)gridDim.x * VP_BLOCK * W) {
        float x[W], before[W];

        vp_get<W>(sum, i, x);
        if (adds) {
            vp_get<W>(dx, i, before);
#pragma unroll
            for (int j = 0; j < W; j++)
                x[j] += before[j];
        }
        vp_put<W>(dx, i, x);
    }
}

extern "C" cudaError_t vp_cuda_linear_sum(const vp_kernel_call *call, const float *sum,
                                          cudaStream_t stream)
{
    int64_t     count = call->linear.rows * call->linear.in;
    cudaError_t e;

    VP_BY_DTYPE(call->dtype, T, T *dx = (T *)call->operand[VP_LINEAR_BWD_INPUT_DX]; VP_BY_WIDTH(
                    count % vp_pack<T>::N == 0 && vp_is_aligned16(dx) && vp_is_aligned16(sum), T, W,
                    e = VP_LAUNCH((round_kernel<T, W>), vp_blocks(count, VP_BLOCK * W), VP_BLOCK, 0,
                                  stream, sum, dx, count, call->accumulate)));
    return e;
}
