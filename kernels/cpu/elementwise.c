/* kernels/cpu/elementwise.c: kernels whose output element i reads input elements i only: GELU, add,
 * dropout, copy, zero. Each runs in spans of VP_CPU_SPAN elements, one thread per span at a time;
 * any split gives the same bits, and an output may share its input's place. */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/philox.h"

/* GELU, tanh form (Hendrycks, Gimpel 2016, arXiv:1606.08415):
 *
 *     y = 0.5 x (1 + tanh(u)),  u = sqrt(2/pi) (x + 0.044715 x^3)
 *
 * 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)) is the logistic s, taken from e = exp(-2|u|) <= 1 so that
 * nothing overflows and nothing cancels: also y(-5) has all its digits, which 1 + tanh has not. */
static const float sqrt_2_over_pi = 0.797884560803f, cubic = 0.044715f;

VP_PER_ISA(gelu_forward, (const float *x, float *y, int64_t n), (x, y, n))
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float v = x[i];
        float u = sqrt_2_over_pi * (v + cubic * v * v * v);
        float e = vp_exp_neg(u < 0.0f ? 2.0f * u : -2.0f * u);
        float s = (u < 0.0f ? e : 1.0f) / (1.0f + e);
        y[i]    = v * s;
    }
}

/* dy/dx = s + x s (1 - s) 2 du/dx, with s (1 - s) = e / (1 + e)^2. */
VP_PER_ISA(gelu_backward, (const float *dy, const float *x, float *dx, int64_t n), (dy, x, dx, n))
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float v       = x[i];
        float u       = sqrt_2_over_pi * (v + cubic * v * v * v);
        float twice_u = 2.0f * sqrt_2_over_pi * (1.0f + 3.0f * cubic * v * v);
        float e       = vp_exp_neg(u < 0.0f ? 2.0f * u : -2.0f * u);
        float inv     = 1.0f / (1.0f + e);
        float s       = (u < 0.0f ? e : 1.0f) * inv;
        dx[i]         = dy[i] * (s + v * (e * inv * inv) * twice_u);
    }
}

VP_PER_ISA(sum_of_two, (const float *x, const float *y, float *z, int64_t n), (x, y, z, n))
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        z[i] = x[i] + y[i];
}

VP_PER_ISA(product, (const float *x, const float *y, float *z, int64_t n), (x, y, z, n))
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        z[i] = x[i] * y[i];
}

void vp_cpu_gelu_tanh_fwd(const vp_kernel_call *call)
{
    const float *x = call->operand[0];
    float       *y = call->operand[1];
    int64_t      count = call->ints[0], n_spans = vp_cpu_n_spans(count);

#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n_spans > 1)
    for (int64_t s = 0; s < n_spans; s++)
        gelu_forward(x + s * VP_CPU_SPAN, y + s * VP_CPU_SPAN, vp_cpu_span_len(count, s));
}

void vp_cpu_gelu_tanh_bwd(const vp_kernel_call *call)
{
    const float *dy = call->operand[0], *x = call->operand[1];
    float       *dx = call->operand[2];
    int64_t      count = call->ints[0], n_spans = vp_cpu_n_spans(count);

#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n_spans > 1)
    for (int64_t s = 0; s < n_spans; s++)
        gelu_backward(dy + s * VP_CPU_SPAN, x + s * VP_CPU_SPAN, dx + s * VP_CPU_SPAN,
                      vp_cpu_span_len(count, s));
}

void vp_cpu_add(const vp_kernel_call *call)
{
    const float *x = call->operand[0], *y = call->operand[1];
    float       *z = call->operand[2];
    int64_t      count = call->ints[0], n_spans = vp_cpu_n_spans(count);

#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n_spans > 1)
    for (int64_t s = 0; s < n_spans; s++)
        sum_of_two(x + s * VP_CPU_SPAN, y + s * VP_CPU_SPAN, z + s * VP_CPU_SPAN,
                   vp_cpu_span_len(count, s));
}

/* y = x mask / (1 - p). The element's counter is its place in the global batch, so its own backward
 * (the same call on the gradient) draws the same mask and nothing is saved. */
void vp_cpu_dropout(const vp_kernel_call *call)
{
    enum { PIECE = 1024 };
    const float  *x = call->operand[0];
    float        *y = call->operand[1];
    int64_t       batch = call->ints[0], count = call->ints[1], n_spans = vp_cpu_n_spans(count);
    double        p   = call->reals[0];
    vp_philox_key key = vp_philox_key_of(&call->rng);

#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (batch * n_spans > 1)
    for (int64_t item = 0; item < batch * n_spans; item++) {
        int64_t sample = item / n_spans, span = item % n_spans;
        int64_t first = span * VP_CPU_SPAN, end = first + vp_cpu_span_len(count, span);

        for (int64_t i = first; i < end; i += PIECE) {
            float   mask[PIECE];
            int64_t n = end - i < PIECE ? end - i : PIECE;

            vp_philox_mask(key, (uint64_t)(call->rng.first_sample + sample), (uint64_t)(i / 4), n, p,
                           mask);
            product(x + sample * count + i, mask, y + sample * count + i, n);
        }
    }
}

void vp_cpu_copy(const vp_kernel_call *call)
{
    const float *x = call->operand[0];
    float       *y = call->operand[1];
    int64_t      count = call->ints[0], n_spans = vp_cpu_n_spans(count);

    if (x == y)
        return;
#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n_spans > 1)
    for (int64_t s = 0; s < n_spans; s++)
        memcpy(y + s * VP_CPU_SPAN, x + s * VP_CPU_SPAN,
               (size_t)vp_cpu_span_len(count, s) * sizeof(float));
}

void vp_cpu_zero(const vp_kernel_call *call)
{
    float  *y     = call->operand[0];
    int64_t count = call->ints[0], n_spans = vp_cpu_n_spans(count);

#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n_spans > 1)
    for (int64_t s = 0; s < n_spans; s++)
        memset(y + s * VP_CPU_SPAN, 0, (size_t)vp_cpu_span_len(count, s) * sizeof(float));
}
