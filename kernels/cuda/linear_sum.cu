/* kernels/cuda/linear_sum.cu: what a linear's products left in the workspace, to where it belongs, rounded once.
 *
 *     y = sum, or y + sum where the call accumulates
 *
 * sum (count) float, y (count) of a dtype. With E of an element of y, moves (4 + E) count bytes, E count more where
 * the call accumulates. */
#include "kernels/cuda/cuda_span.h"

template <typename T, int W>
static __global__ void sum_kernel(const float *__restrict__ sum, T *y, int64_t count, bool adds)
{
    for (int64_t i = ((int64_t)blockIdx.x * VP_BLOCK + threadIdx.x) * W; i < count;
         i += (int64_t)gridDim.x * VP_BLOCK * W) {
        float x[W], before[W];

        vp_get<W>(sum, i, x);
        if (adds) {
            vp_get<W>(y, i, before);
#pragma unroll
            for (int j = 0; j < W; j++)
                x[j] += before[j];
        }
        vp_put<W>(y, i, x);
    }
}

extern "C" cudaError_t vp_cuda_linear_sum(const float *sum, void *to, vp_dtype dtype, int64_t count,
                                          bool adds, cudaStream_t stream)
{
    cudaError_t e;

    VP_BY_DTYPE(dtype, T, T *y = (T *)to; VP_BY_WIDTH(
                    count % vp_pack<T>::N == 0 && vp_is_aligned16(y) && vp_is_aligned16(sum), T, W,
                    e = VP_LAUNCH((sum_kernel<T, W>), vp_blocks(count, VP_BLOCK * W), VP_BLOCK, 0,
                                  stream, sum, y, count, adds)));
    return e;
}
