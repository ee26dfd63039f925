/* kernels/cuda/activation.cu: activations and gated linear units.
 *
 *     y = act(x)              dx = dy act'(x)
 *     y = act(gate) up        d_gate = dy up act'(gate),  d_up = dy act(gate)          (Shazeer
 *                             2020, arXiv:2002.05202)
 *
 * act is one of
 *
 *     gelu_tanh  x s(2u),  u = sqrt(2/pi) (x + 0.044715 x^3)     (Hendrycks, Gimpel 2016,
 *                arXiv:1606.08415: 0.5 x (1 + tanh u))
 *     gelu       x Phi(x), Phi the normal distribution           (the same: 0.5 x (1 + erf(x / sqrt
 *                2)))
 *     silu       x s(x)                                          (Elfwing, Uchibe, Doya 2017,
 *                arXiv:1702.03118)
 *     relu       max(x, 0)
 *     tanh       tanh(x)
 *
 * where s(t) = 1 / (1 + exp(-t)) is taken from e = exp(-|t|) <= 1, so that nothing overflows and
 * nothing cancels in the left tail.
 *
 * x, y, dy, dx (count); gate, up, y and their gradients (rows, cols), or gate and up packed:
 * (rows, 2 cols), the gate's columns first. All of the call's dtype. Bytes moved, with E of an
 * element: activation_fwd 2 E count, activation_bwd 3 E count, glu_fwd 3 E rows cols, glu_bwd 5
 * E rows cols. An output may lie on an input where plan/op.h allows it. Same mathematics:
 * kernels/cpu/activation.c; reference: kernels/reference/reference.c. */
#include "kernels/cuda/cuda_span.h"
#include "kernels/normal.h"

/* Phi and phi, by kernels/normal.h. What rounding cuts off c^2 is brought back: exp would
 * multiply it by c^2 / 2. CUDA's erfcf(-x / sqrt 2) has not the digits of the left tail, since
 * its argument is rounded. */
static __device__ inline void normal(float x, float *cdf, float *pdf)
{
    /* beyond, exp is 0 and squares might be infinite */
    float a = fabsf(x), c = a > 15.0f ? 15.0f : a;
    float square = c * c, cut = fmaf(c, c, -square), e = expf(-0.5f * square);

    vp_normal_from(x, c, e - e * (0.5f * cut), cdf, pdf);
}

/* act(v) and its slope, from s (1 - s) = e / (1 + e)^2: gelu_tanh' = s + x s (1 - s) 2 du/dx,
 * silu' = s + x s (1 - s), gelu' = Phi + x phi, tanh' = 4 s (1 - s) at 2 x. Where a caller drops
 * the slope, so does the compiler. A NaN stays one. */
template <int ACT>
static __device__ inline void act_value_and_slope(float v, float *value, float *slope)
{
    const float sqrt_2_over_pi = 0.797884560803f, cubic = 0.044715f;

    if constexpr (ACT == VP_ACT_RELU) {
        *value = v < 0.0f ? 0.0f : v;
        *slope = v <= 0.0f ? 0.0f : 1.0f;
    } else if constexpr (ACT == VP_ACT_TANH) {
        float e = expf(-2.0f * fabsf(v)), inv = vp_reciprocal(1.0f + e);

        *value = tanhf(v);
        *slope = 4.0f * (e * inv) * inv;
    } else if constexpr (ACT == VP_ACT_GELU) {
        float cdf, pdf;

        normal(v, &cdf, &pdf);
        *value = v * cdf;
        *slope = cdf + v * pdf;
    } else {
        static_assert(ACT == VP_ACT_SILU || ACT == VP_ACT_GELU_TANH,
                      "an activation without a rule");
        float t = ACT == VP_ACT_SILU ? v : 2.0f * (sqrt_2_over_pi * (v + cubic * v * v * v));
        float e = expf(-fabsf(t)), inv = vp_reciprocal(1.0f + e), s = (t < 0.0f ? e : 1.0f) * inv;
        float dt =
            ACT == VP_ACT_SILU ? 1.0f : 2.0f * sqrt_2_over_pi * (1.0f + 3.0f * cubic * v * v);

        *value = v * s;
        *slope = s + v * (e * inv * inv) * dt;
    }
}

/* ---- what vp_map() calls for each element ---- */

template <int ACT> struct forward {
    enum { N_IN = 1, N_OUT = 1, WIDE_IN = 0, WIDE_OUT = 0 };

    __device__ inline void operator()(const float *x, float *y) const
    {
        float slope;
        act_value_and_slope<ACT>(x[0], &y[0], &slope);
    }
};

template <int ACT> struct backward {
    enum { N_IN = 2, N_OUT = 1, WIDE_IN = 0, WIDE_OUT = 0 }; /* dy x -> dx */

    __device__ inline void operator()(const float *x, float *y) const
    {
        float value, slope;
        act_value_and_slope<ACT>(x[1], &value, &slope);
        y[0] = x[0] * slope;
    }
};

template <int ACT> struct glu_forward {
    enum { N_IN = 2, N_OUT = 1, WIDE_IN = 3, WIDE_OUT = 0 }; /* gate up -> y */

    __device__ inline void operator()(const float *x, float *y) const
    {
        float value, slope;
        act_value_and_slope<ACT>(x[0], &value, &slope);
        y[0] = value * x[1];
    }
};

template <int ACT> struct glu_backward {
    enum { N_IN = 3, N_OUT = 2, WIDE_IN = 6, WIDE_OUT = 3 }; /* dy gate up -> d_gate d_up */

    __device__ inline void operator()(const float *x, float *y) const
    {
        float value, slope;
        act_value_and_slope<ACT>(x[1], &value, &slope);
        y[0] = x[0] * x[2] * slope;
        y[1] = x[0] * value;
    }
};

template <template <int> class F, typename T>
static cudaError_t launch(const vp_map<T> &m, int64_t act, cudaStream_t stream)
{
    switch (act) {
#define CASE(NAME) \
    case VP_ACT_##NAME: \
        return vp_map_launch(m, F<VP_ACT_##NAME>(), stream);
        VP_ACT_TABLE(CASE)
#undef CASE
    default:
        return cudaErrorInvalidValue;
    }
}

/* ---- launchers ---- */

extern "C" cudaError_t vp_cuda_activation_fwd(const vp_kernel_call *call, cudaStream_t stream)
{
    cudaError_t e;

    VP_BY_DTYPE(call->dtype, T,
                vp_map<T> m = {{(const T *)call->operand[VP_ACTIVATION_FWD_X]},
                               {(T *)call->operand[VP_ACTIVATION_FWD_Y]},
                               call->activation.count,
                               0};
                e           = launch<forward>(m, call->activation.act, stream));
    return e;
}

extern "C" cudaError_t vp_cuda_activation_bwd(const vp_kernel_call *call, cudaStream_t stream)
{
    cudaError_t e;

    VP_BY_DTYPE(call->dtype, T,
                vp_map<T> m = {{(const T *)call->operand[VP_ACTIVATION_BWD_DY],
                                (const T *)call->operand[VP_ACTIVATION_BWD_X]},
                               {(T *)call->operand[VP_ACTIVATION_BWD_DX]},
                               call->activation.count,
                               0};
                e           = launch<backward>(m, call->activation.act, stream));
    return e;
}

extern "C" cudaError_t vp_cuda_glu_fwd(const vp_kernel_call *call, cudaStream_t stream)
{
    int64_t     rows = call->glu.rows, cols = call->glu.cols, packed = call->glu.packed;
    cudaError_t e;

    VP_BY_DTYPE(call->dtype, T, const T *gate = (const T *)call->operand[VP_GLU_FWD_GATE],
                *up         = packed ? gate + cols : (const T *)call->operand[VP_GLU_FWD_UP];
                vp_map<T> m = {{gate, up},
                               {(T *)call->operand[VP_GLU_FWD_Y]},
                               rows * cols,
                               packed ? cols : 0};
                e           = launch<glu_forward>(m, call->glu.act, stream));
    return e;
}

extern "C" cudaError_t vp_cuda_glu_bwd(const vp_kernel_call *call, cudaStream_t stream)
{
    int64_t     rows = call->glu.rows, cols = call->glu.cols, packed = call->glu.packed;
    cudaError_t e;

    VP_BY_DTYPE(call->dtype, T, const T *gate = (const T *)call->operand[VP_GLU_BWD_GATE],
                *up         = packed ? gate + cols : (const T *)call->operand[VP_GLU_BWD_UP];
                T *d_gate   = (T *)call->operand[VP_GLU_BWD_D_GATE],
                *d_up       = packed ? d_gate + cols : (T *)call->operand[VP_GLU_BWD_D_UP];
                vp_map<T> m = {{(const T *)call->operand[VP_GLU_BWD_DY], gate, up},
                               {d_gate, d_up},
                               rows * cols,
                               packed ? cols : 0};
                e           = launch<glu_backward>(m, call->glu.act, stream));
    return e;
}
