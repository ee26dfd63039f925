/* kernels/cuda/grad_norm.cu: the norm of all gradients and what clipping makes of it.
 *
 *     control.grad_sumsq += sum g^2        in double: pieces of VP_SUMSQ_PIECE elements, then their sums, in an order that count fixes
 *     control.grad_norm   = sqrt(grad_sumsq)
 *     control.grad_scale  = min(1, clip_norm / (grad_norm + 1e-6)), 1 where clip_norm <= 0
 *
 * as torch.nn.utils.clip_grad_norm_ does (Pascanu, Mikolov, Bengio 2013, arXiv:1211.5063). g (count) float; the sums of pieces pass
 * through the workspace, but a gradient of one piece is one launch. grad_sumsq moves 4 count bytes, clip_scale 40.
 * Same mathematics: kernels/cpu/optimizer.c; reference: kernels/reference/reference_optimizer.c. */
#include "kernels/cuda/cuda_kernel.h"

#include "core/workspace.h"

enum { ADD_THREADS = 1024 };

/* A block sums one piece: thread t takes elements 4 t .. 4 t + 3 of each 1024, in four sums, whether or not they come in 16 bytes. The sum of the
 * only piece is the call's. */
template <bool ALIGNED>
static __global__ void __launch_bounds__(VP_BLOCK) squares_kernel(const float *__restrict__ g, int64_t count, double *sums, vp_control *control)
{
    __shared__ double scratch[VP_WARP];
    int64_t           from = (int64_t)blockIdx.x * VP_SUMSQ_PIECE, end = from + VP_SUMSQ_PIECE < count ? from + VP_SUMSQ_PIECE : count;
    double            sum[4] = {0.0, 0.0, 0.0, 0.0}, total;

#pragma unroll 4
    for (int64_t i = from + 4 * threadIdx.x; i < end; i += 4 * VP_BLOCK) {
        float x[4];

        if (ALIGNED && i + 4 <= end) {
            vp_pack<float> v = vp_load16(g + i);
#pragma unroll
            for (int j = 0; j < 4; j++)
                x[j] = v.x[j];
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++)
                x[j] = i + j < end ? g[i + j] : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
            sum[j] += (double)x[j] * (double)x[j];
    }
    total = vp_block_sum((sum[0] + sum[1]) + (sum[2] + sum[3]), scratch);
    if (threadIdx.x == 0 && gridDim.x == 1)
        control->grad_sumsq += total;
    else if (threadIdx.x == 0)
        sums[blockIdx.x] = total;
}

/* One block. */
static __global__ void __launch_bounds__(ADD_THREADS) add_kernel(const double *__restrict__ sums, int64_t n, vp_control *control)
{
    __shared__ double scratch[VP_WARP];
    double            sum = vp_block_sum_of(sums, n, scratch);

    if (threadIdx.x == 0)
        control->grad_sumsq += sum;
}

extern "C" cudaError_t vp_cuda_grad_sumsq(const vp_kernel_call *call, cudaStream_t stream)
{
    const float *g       = (const float *)call->operand[0];
    vp_control  *control = (vp_control *)call->operand[1];
    double      *sums    = (double *)call->workspace;
    int64_t      count = call->ints[0], n = (count + VP_SUMSQ_PIECE - 1) / VP_SUMSQ_PIECE;
    cudaError_t  e;

    if (vp_is_aligned16(g))
        e = VP_LAUNCH((squares_kernel<true>), (unsigned)n, VP_BLOCK, 0, stream, g, count, sums, control);
    else
        e = VP_LAUNCH((squares_kernel<false>), (unsigned)n, VP_BLOCK, 0, stream, g, count, sums, control);
    if (e != cudaSuccess || n == 1)
        return e;
    return VP_LAUNCH(add_kernel, 1, ADD_THREADS, 0, stream, sums, n, control);
}

static __global__ void clip_kernel(vp_control *control, double clip_norm)
{
    double norm = sqrt(control->grad_sumsq), ratio = clip_norm / (norm + 1e-6);

    control->grad_norm = norm;
    /* Written so that a norm that is not a number reaches the parameters, where it is seen. */
    control->grad_scale = clip_norm > 0.0 ? (ratio >= 1.0 ? 1.0 : ratio) : 1.0;
}

extern "C" cudaError_t vp_cuda_clip_scale(const vp_kernel_call *call, cudaStream_t stream)
{
    return VP_LAUNCH(clip_kernel, 1, 1, 0, stream, (vp_control *)call->operand[0], call->reals[0]);
}
