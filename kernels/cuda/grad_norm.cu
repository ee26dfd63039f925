/* kernels/cuda/grad_norm.cu: the norm of all gradients and what clipping makes of it.
 *
 *     control.grad_sumsq += sum g^2        in double: pieces of VP_SUMSQ_PIECE elements, then their
 *     sums, in an order that count fixes
 *     control.grad_norm   = sqrt(grad_sumsq), over the loss scale where there is one
 *     control.grad_scale  = min(1, clip_norm / (grad_norm + 1e-6)), 1 where clip_norm <= 0
 *
 * as torch.nn.utils.clip_grad_norm_ does (Pascanu, Mikolov, Bengio 2013, arXiv:1211.5063). g
 * (count) float or bf16; the sums of pieces pass through the workspace. Many gradients are three
 * launches: the squares of all pieces, each gradient's sum of its pieces, and those sums onto
 * control.grad_sumsq, one after the other in the order of the calls. A gradient alone is one
 * launch where it has one piece, else two. The additions are the same and in the same order
 * either way. grad_sumsq moves 4 count bytes, of bf16 half, clip_scale 40. Same mathematics:
 * kernels/cpu/optimizer.c; reference: kernels/reference/reference_optimizer.c. */
#include "kernels/cuda/cuda_gradient.h"

#include "plan/workspace.h"

#include <assert.h>
#include <float.h>

static_assert(sizeof(vp_cuda_squares) <= 4096, "a kernel's parameters");

enum { ADD_THREADS = 1024 };
static_assert((int)VP_CUDA_MAX_SQUARES <= (int)VP_BLOCK, "a thread for each gradient");

static __host__ __device__ inline int64_t pieces_of(int64_t count)
{
    return (count + VP_SUMSQ_PIECE - 1) / VP_SUMSQ_PIECE;
}

/* The sum of this thread's squares among elements from .. end - 1: elements 4 t .. 4 t + 3 of
 * each 1024, in four sums, whether or not they come in 16 bytes. */
template <bool ALIGNED>
static __device__ inline double squares(const vp_gradient &g, int64_t from, int64_t end)
{
    double sum[4] = {0.0, 0.0, 0.0, 0.0};

#pragma unroll 4
    for (int64_t i = from + 4 * threadIdx.x; i < end; i += 4 * VP_BLOCK) {
        float x[4];

        if (ALIGNED && i + 4 <= end) {
            vp_load_quad(g, i, x);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++)
                x[j] = i + j < end ? vp_load(g, i + j) : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
            sum[j] += (double)x[j] * (double)x[j];
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* One block: the gradients' sums, one after the other. */
static __device__ inline void add_all(const vp_cuda_squares &all)
{
    __shared__ double sums[VP_CUDA_MAX_SQUARES];

    if ((int)threadIdx.x < all.n)
        sums[threadIdx.x] = all.of[threadIdx.x].sums[0];
    __syncthreads();
    if (threadIdx.x == 0) {
        double total = all.control->grad_sumsq;

        for (int i = 0; i < all.n; i++)
            total += sums[i];
        all.control->grad_sumsq = total;
    }
}

/* A block sums one piece; the sum of the only piece of all is the call's. Or add_all(): in the
 * same kernel, so that a call alone loads what many together need, and a profile of such calls
 * knows its bytes. */
static __global__ void __launch_bounds__(VP_BLOCK)
    squares_kernel(const __grid_constant__ vp_cuda_squares all, bool are_summed)
{
    __shared__ double scratch[VP_WARP];

    if (are_summed) {
        add_all(all);
        return;
    }
    const vp_cuda_square &u     = all.of[vp_entry_here(all.of, all.n)];
    const int64_t         piece = blockIdx.x - u.first_block, from = piece * VP_SUMSQ_PIECE;
    const int64_t         end = from + VP_SUMSQ_PIECE < u.count ? from + VP_SUMSQ_PIECE : u.count;
    const vp_gradient     g   = {all.bf16 ? nullptr : static_cast<const float *>(u.g),
                           all.bf16 ? static_cast<const vp_bf16 *>(u.g) : nullptr};
    double total = u.aligned ? squares<true>(g, from, end) : squares<false>(g, from, end);

    total = vp_block_sum(total, scratch);
    if (threadIdx.x == 0 && all.n_blocks == 1)
        all.control->grad_sumsq += total;
    else if (threadIdx.x == 0)
        u.sums[piece] = total;
}

/* A block for each gradient: the sum of its pieces takes the place of the first one's, or is the
 * call's where it is the only one. */
static __global__ void __launch_bounds__(ADD_THREADS)
    pieces_kernel(const __grid_constant__ vp_cuda_squares all)
{
    __shared__ double     scratch[VP_WARP];
    const vp_cuda_square &u = all.of[blockIdx.x];
    const int64_t         n = pieces_of(u.count);
    double                sum;

    if (n == 1)
        return;
    sum = vp_block_sum_of(u.sums, n, scratch); /* whoever writes: all have read */
    if (threadIdx.x == 0 && all.n == 1)
        all.control->grad_sumsq += sum;
    else if (threadIdx.x == 0)
        u.sums[0] = sum;
}

/* ---- calls become launches ---- */

static bool share_a_byte(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes)
{
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return x < y + (uintptr_t)b_bytes && y < x + (uintptr_t)a_bytes;
}

/* Whether a call writes sums where the other reads or writes. */
static bool touch(const vp_cuda_square *a, const vp_cuda_square *b, bool bf16)
{
    const int64_t of_g[2]    = {(bf16 ? 2 : 4) * a->count, (bf16 ? 2 : 4) * b->count};
    const int64_t of_sums[2] = {(int64_t)sizeof(double) * pieces_of(a->count),
                                (int64_t)sizeof(double) * pieces_of(b->count)};

    return share_a_byte(a->sums, of_sums[0], b->sums, of_sums[1]) ||
           share_a_byte(a->sums, of_sums[0], b->g, of_g[1]) ||
           share_a_byte(a->g, of_g[0], b->sums, of_sums[1]);
}

extern "C" bool vp_cuda_squares_take(vp_cuda_squares *all, const vp_kernel_call *call)
{
    vp_control    *control = (vp_control *)call->operand[VP_GRAD_SUMSQ_CONTROL];
    const bool     bf16    = call->dtype == VP_DTYPE_BF16_GRADS;
    vp_cuda_square u;

    u.g       = call->operand[VP_GRAD_SUMSQ_G];
    u.sums    = (double *)call->workspace;
    u.count   = call->elements.count;
    u.aligned = vp_is_aligned16(u.g);
    assert(u.g && u.sums && u.count > 0 && control);
    u.first_block = 0;
    if (all->n > 0) {
        if (all->n == VP_CUDA_MAX_SQUARES || all->control != control || all->bf16 != bf16 ||
            all->n_blocks + pieces_of(u.count) > VP_MAX_GRID)
            return false;
        for (int i = 0; i < all->n; i++)
            if (touch(&all->of[i], &u, bf16))
                return false;
        u.first_block = all->n_blocks;
    }
    all->control      = control;
    all->bf16         = bf16;
    all->of[all->n++] = u;
    all->n_blocks     = u.first_block + (unsigned)pieces_of(u.count);
    return true;
}

extern "C" cudaError_t vp_cuda_squares_launch(vp_cuda_squares *all, cudaStream_t stream)
{
    assert(all->n > 0 && all->n <= VP_CUDA_MAX_SQUARES && all->n_blocks >= (unsigned)all->n);

    cudaError_t e = VP_LAUNCH(squares_kernel, all->n_blocks, VP_BLOCK, 0, stream, *all, false);

    if (e == cudaSuccess && all->n_blocks > (unsigned)all->n)
        e = VP_LAUNCH(pieces_kernel, (unsigned)all->n, ADD_THREADS, 0, stream, *all);
    if (e == cudaSuccess && all->n > 1)
        e = VP_LAUNCH(squares_kernel, 1, VP_BLOCK, 0, stream, *all, true);
    all->n = 0;
    return e;
}

/* The loss scale of the next step, as plan/op.h says. A sum that is not finite is beyond DBL_MAX, or
 * not a number. */
static __device__ void end_scaled_step(vp_scaled_control *s)
{
    s->control.grad_scale /= s->loss_scale;
    s->skips = s->control.grad_sumsq <= DBL_MAX ? 0.0 : 1.0;
    if (s->skips != 0.0) {
        s->loss_scale *= 0.5;
        s->clean_steps = 0.0;
        s->skipped_steps += 1.0;
    } else if (s->clean_steps + 1.0 < s->control.growth_interval) {
        s->clean_steps += 1.0;
    } else {
        s->loss_scale *= s->loss_scale * 2.0 <= (double)FLT_MAX ? 2.0 : 1.0;
        s->clean_steps = 0.0;
    }
}

static __global__ void clip_kernel(vp_control *control, double clip_norm)
{
    double norm  = sqrt(control->grad_sumsq) / VP_LOSS_SCALE(control),
           ratio = clip_norm / (norm + 1e-6);

    control->grad_norm = norm;
    /* Written so that a norm that is not a number reaches the parameters, where it is seen. */
    control->grad_scale = clip_norm > 0.0 ? (ratio >= 1.0 ? 1.0 : ratio) : 1.0;
    if (VP_IS_SCALED(control))
        end_scaled_step(reinterpret_cast<vp_scaled_control *>(control));
}

extern "C" cudaError_t vp_cuda_clip_scale(const vp_kernel_call *call, cudaStream_t stream)
{
    return VP_LAUNCH(clip_kernel, 1, 1, 0, stream,
                     (vp_control *)call->operand[VP_CLIP_SCALE_CONTROL],
                     call->clip_reals.clip_norm);
}
