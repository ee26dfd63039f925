/* kernels/cuda/optimizer_muon.cu: the steps of Muon (kernels/cpu/muon.c) between its matrix
 * products, which muon_cublaslt.c makes:
 *
 *     vp_cuda_muon_momentum     m = momentum m + (1 - momentum) g,  x = momentum m + (1 - momentum)
 *     g     20 bytes an element
 *     vp_cuda_muon_normalise    x = x / max(|x|, 1e-7)                                 (Frobenius)
 *     8
 *     vp_cuda_muon_polynomial   b = poly_a I + poly_b a
 *     8, of the smaller square
 *     vp_cuda_muon_apply        p -= lr wd p,  p -= lr 0.2 sqrt(max(rows, cols)) x
 *     12 in fp32
 *
 * m, x, a and b are fp32; g fp32 or bf16; p and master in the forms of optimizer_state.h. The squares of x
 * are added in double as x is written: each block those of VP_NORM_PIECE elements, whose sums
 * lie in the workspace, and one block these in an order that their number fixes. */
#include "kernels/cuda/optimizer_state.h"

extern "C" {
#include "plan/workspace.h"
}

static constexpr double least_norm = 1e-7;

static int64_t n_pieces(int64_t count)
{
    return (count + VP_NORM_PIECE - 1) / VP_NORM_PIECE;
}

struct momentum_span {
    vp_gradient g;
    float      *m, *x;
    float       grad_scale, momentum, rest; /* rest: 1 - momentum */

    /* The sum of the squares of the lane's x. */
    template <bool WHOLE> __device__ inline double operator()(const vp_span<WHOLE> &at) const
    {
        float  y[VP_LANE_N], z[VP_LANE_N];
        double sum = 0.0;

        vp_span_load(g, at, z);
        vp_span_load(m, at, y);
#pragma unroll
        for (int j = 0; j < VP_LANE_N; j++) {
            float grad = rest * (z[j] * grad_scale);

            y[j] = vp_product_sum(momentum, y[j], grad);
            z[j] = vp_product_sum(momentum, y[j], grad);
            sum += (double)z[j] * (double)z[j];
        }
        vp_span_store(m, at, y);
        vp_span_store(x, at, z);
        return sum;
    }
};

/* partials[i] = the sum of the squares of x in piece i. */
static __global__ void __launch_bounds__(VP_BLOCK)
    momentum_pieces(vp_gradient g, float *m, float *x, const vp_control *control, double momentum,
                    int64_t count, bool aligned, double *partials)
{
    __shared__ double scratch[VP_WARP];
    momentum_span     f = {
            g, m, x, (float)control->grad_scale, (float)momentum, (float)(1.0 - momentum)};

    if (VP_SKIPS(control)) /* what follows works on whatever the scratch holds */
        return;
    for (int64_t piece = blockIdx.x; piece * VP_NORM_PIECE < count; piece += gridDim.x) {
        double sum = 0.0;

#pragma unroll
        for (int i = 0; i < VP_NORM_PIECE; i += VP_BLOCK / VP_WARP * VP_SPAN) {
            int64_t first = piece * VP_NORM_PIECE + i + (int)threadIdx.x / VP_WARP * VP_SPAN;

            if (aligned && first + VP_SPAN <= count)
                sum += f(vp_span<true>{first, count});
            else if (first < count)
                sum += f(vp_span<false>{first, count});
        }
        sum = vp_block_sum(sum, scratch);
        if (threadIdx.x == 0)
            partials[piece] = sum;
    }
}

/* partials[n] = 1 / max(norm, least_norm); a NaN stays one. One block. */
static __global__ void __launch_bounds__(VP_BLOCK) inverse_norm(double *partials, int64_t n)
{
    __shared__ double scratch[VP_WARP];
    double            sum = vp_block_sum_of(partials, n, scratch);

    if (threadIdx.x == 0) {
        double norm = sqrt(sum);
        partials[n] = 1.0 / (norm < least_norm ? least_norm : norm);
    }
}

struct scale_span {
    float *x, by;

    template <bool WHOLE> __device__ inline void operator()(const vp_span<WHOLE> &at) const
    {
        float y[VP_LANE_N];

        vp_span_load(x, at, y);
#pragma unroll
        for (int j = 0; j < VP_LANE_N; j++)
            y[j] *= by;
        vp_span_store(x, at, y);
    }
};

static __global__ void __launch_bounds__(VP_BLOCK)
    scale(float *x, int64_t count, bool aligned, const double *by)
{
    vp_each_span(count, aligned, scale_span{x, (float)*by});
}

/* The diagonal is every element whose number is a multiple of size + 1. */
struct polynomial_span {
    const float *a;
    float       *b;
    int64_t      size;
    float        poly_a, poly_b;

    template <bool WHOLE> __device__ inline void operator()(const vp_span<WHOLE> &at) const
    {
        /* from first to the next on the diagonal */
        int64_t after = at.first % (size + 1), to_next = after ? size + 1 - after : 0;
        float   y[VP_LANE_N];

        vp_span_load(a, at, y);
#pragma unroll
        for (int j = 0; j < VP_LANE_N; j++) {
            int64_t beyond = vp_quad_offset(j / VP_QUAD) + j % VP_QUAD - to_next;
            bool    on =
                beyond == 0 || (beyond > 0 && size < VP_SPAN && (int)beyond % ((int)size + 1) == 0);

            y[j] = vp_product_sum(poly_b, y[j], on ? poly_a : 0.0f);
        }
        vp_span_store(b, at, y);
    }
};

static __global__ void __launch_bounds__(VP_BLOCK)
    polynomial(const float *a, float *b, int64_t size, bool aligned, float poly_a, float poly_b)
{
    vp_each_span(size * size, aligned, polynomial_span{a, b, size, poly_a, poly_b});
}

template <typename P> struct apply_span {
    const vp_param<P> &param;
    const float       *x;
    const uint32_t    *key;
    float              keep, step_size;

    template <bool WHOLE> __device__ inline void operator()(const vp_span<WHOLE> &at) const
    {
        float p[VP_LANE_N], y[VP_LANE_N];

        vp_param_load(param, at, p);
        vp_span_load(x, at, y);
#pragma unroll
        for (int j = 0; j < VP_LANE_N; j++)
            p[j] = vp_product_sum(keep, p[j], -step_size, y[j]);
        vp_param_store(param, key, at, p);
    }
};

template <typename P>
static __global__ void __launch_bounds__(VP_BLOCK)
    apply(vp_param<P> param, const float *x, const vp_control *control, vp_rng_stream rng,
          double decay, double adjust, int64_t count, bool aligned)
{
    __shared__ vp_device_rng now;

    if (VP_SKIPS(control))
        return;
    if (threadIdx.x == 0)
        now = vp_rng_now(rng, control);
    __syncthreads();
    vp_each_span(count, aligned,
                 apply_span<P>{param, x, now.key, (float)(1.0 - control->lr * decay),
                               (float)(control->lr * adjust)});
}

extern "C" cudaError_t vp_cuda_muon_momentum(const vp_kernel_call *call, float *x, double *partials,
                                             cudaStream_t stream)
{
    const vp_gradient g       = vp_gradient_of(call, call->operand[VP_MUON_G]);
    float            *m       = static_cast<float *>(call->operand[VP_MUON_M]);
    const vp_control *control = static_cast<const vp_control *>(call->operand[VP_MUON_CONTROL]);
    int64_t           count   = call->muon.rows * call->muon.cols;
    bool              aligned =
        vp_is_aligned16(call->operand[VP_MUON_G]) && vp_is_aligned16(m) && vp_is_aligned16(x);

    return VP_LAUNCH(momentum_pieces, vp_blocks(count, VP_NORM_PIECE), VP_BLOCK, 0, stream, g, m, x,
                     control, call->optimizer->momentum, count, aligned, partials);
}

extern "C" cudaError_t vp_cuda_muon_normalise(float *x, int64_t count, double *partials,
                                              cudaStream_t stream)
{
    int64_t     n = n_pieces(count);
    cudaError_t e = VP_LAUNCH(inverse_norm, 1, VP_BLOCK, 0, stream, partials, n);

    return e != cudaSuccess ? e
                            : VP_LAUNCH(scale, vp_span_blocks(count), VP_BLOCK, 0, stream, x, count,
                                        vp_is_aligned16(x), partials + n);
}

extern "C" cudaError_t vp_cuda_muon_polynomial(const float *a, float *b, int64_t size, float poly_a,
                                               float poly_b, cudaStream_t stream)
{
    return VP_LAUNCH(polynomial, vp_span_blocks(size * size), VP_BLOCK, 0, stream, a, b, size,
                     vp_is_aligned16(a) && vp_is_aligned16(b), poly_a, poly_b);
}

extern "C" cudaError_t vp_cuda_muon_apply(const vp_kernel_call *call, const float *x,
                                          cudaStream_t stream)
{
    const vp_control *control = static_cast<const vp_control *>(call->operand[VP_MUON_CONTROL]);
    int64_t           rows = call->muon.rows, cols = call->muon.cols;
    double            adjust = 0.2 * sqrt((double)(rows > cols ? rows : cols)),
           decay             = call->muon.decay ? call->optimizer->weight_decay : 0.0;
    bool aligned             = vp_operands_are_aligned16(call) && vp_is_aligned16(x);

    VP_BY_DTYPE(
        call->dtype, P,
        return VP_LAUNCH(apply<P>, vp_span_blocks(rows * cols), VP_BLOCK, 0, stream,
                         vp_param_of<P>(call->operand[VP_MUON_P], call->operand[VP_MUON_MASTER]), x,
                         control, call->rng, decay, adjust, rows * cols, aligned));
}
