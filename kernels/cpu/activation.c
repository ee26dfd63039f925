/* kernels/cpu/activation.c: activations and gated linear units.
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
 * where s(t) = 1 / (1 + exp(-t)) is the logistic function, taken from e = exp(-|t|) <= 1 so that
 * nothing overflows and nothing cancels: also gelu_tanh(-5) has all its digits, which 1 + tanh has
 * not.
 *
 * Element by element, so any split gives the same bits, and an output may lie on an input: all
 * that an element needs is read before any of its results is written. */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/functions.h"
#include "kernels/cpu/operand.h"

#include "base/checked.h"

#include <assert.h>

static const float sqrt_2_over_pi = 0.797884560803f, cubic = 0.044715f;

/* act is a constant wherever these are inlined. */
VP_ALWAYS_INLINE float act_value(float v, int act)
{
    float u, e, s, pdf;

    switch ((vp_act)act) {
    case VP_ACT_GELU_TANH:
        u = sqrt_2_over_pi * (v + cubic * v * v * v);
        e = vp_exp_neg(u < 0.0f ? 2.0f * u : -2.0f * u);
        s = (u < 0.0f ? e : 1.0f) / (1.0f + e);
        return v * s;
    case VP_ACT_GELU:
        vp_normal(v, &s, &pdf);
        return v * s;
    case VP_ACT_SILU:
        e = vp_exp_neg(v < 0.0f ? v : -v);
        s = (v < 0.0f ? e : 1.0f) / (1.0f + e);
        return v * s;
    case VP_ACT_TANH:
        return vp_tanh(v);
    case VP_ACT_RELU: /* a NaN stays one */
        return v < 0.0f ? 0.0f : v;
    case VP_N_ACTS:
        break;
    }
    assert(!"no such activation");
    return v;
}

/* With s (1 - s) = e / (1 + e)^2: gelu_tanh' = s + x s (1 - s) 2 du/dx, silu' = s + x s (1 - s),
 * gelu' = Phi + x Phi'. */
VP_ALWAYS_INLINE void act_value_and_slope(float v, int act, float *value, float *slope)
{
    float u, twice_u, e, inv, s, pdf;

    switch ((vp_act)act) {
    case VP_ACT_GELU_TANH:
        u       = sqrt_2_over_pi * (v + cubic * v * v * v);
        twice_u = 2.0f * sqrt_2_over_pi * (1.0f + 3.0f * cubic * v * v);
        e       = vp_exp_neg(u < 0.0f ? 2.0f * u : -2.0f * u);
        inv     = 1.0f / (1.0f + e);
        s       = (u < 0.0f ? e : 1.0f) * inv;
        *value  = v * s;
        *slope  = s + v * (e * inv * inv) * twice_u;
        return;
    case VP_ACT_GELU:
        vp_normal(v, &s, &pdf);
        *value = v * s;
        *slope = s + v * pdf;
        return;
    case VP_ACT_SILU:
        e      = vp_exp_neg(v < 0.0f ? v : -v);
        inv    = 1.0f / (1.0f + e);
        s      = (v < 0.0f ? e : 1.0f) * inv;
        *value = v * s;
        *slope = s + v * (e * inv * inv);
        return;
    case VP_ACT_TANH:
        *value = vp_tanh_and_slope(v, slope);
        return;
    case VP_ACT_RELU:
        *value = v < 0.0f ? 0.0f : v;
        *slope = v <= 0.0f ? 0.0f : 1.0f;
        return;
    case VP_N_ACTS:
        break;
    }
    assert(!"no such activation");
}

/* LOOP(act), which wants act as a constant. */
#define FOR_ACT(act) \
    assert((act) >= 0 && (act) < VP_N_ACTS); \
    switch ((vp_act)(act)) { \
        VP_ACT_TABLE(CASE) \
    case VP_N_ACTS: \
        break; \
    }
#define CASE(NAME) \
    case VP_ACT_##NAME: \
        LOOP(VP_ACT_##NAME); \
        return;

VP_ALWAYS_INLINE void forward_loop(const float *x, float *y, int64_t n, int act)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = act_value(x[i], act);
}

VP_PER_ISA(forward, (const float *x, float *y, int64_t n, int64_t act), (x, y, n, act)){
#define LOOP(constant) forward_loop(x, y, n, constant)
    FOR_ACT(act)
#undef LOOP
}

VP_ALWAYS_INLINE void backward_loop(const float *dy, const float *x, float *dx, int64_t n, int act)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float value, slope;
        act_value_and_slope(x[i], act, &value, &slope);
        dx[i] = dy[i] * slope;
    }
}

VP_PER_ISA(backward, (const float *dy, const float *x, float *dx, int64_t n, int64_t act),
           (dy, x, dx, n, act)){
#define LOOP(constant) backward_loop(dy, x, dx, n, constant)
    FOR_ACT(act)
#undef LOOP
}

VP_ALWAYS_INLINE
    void glu_forward_loop(const float *gate, const float *up, float *y, int64_t n, int act)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = act_value(gate[i], act) * up[i];
}

VP_PER_ISA(glu_forward, (const float *gate, const float *up, float *y, int64_t n, int64_t act),
           (gate, up, y, n, act)){
#define LOOP(constant) glu_forward_loop(gate, up, y, n, constant)
    FOR_ACT(act)
#undef LOOP
}

VP_ALWAYS_INLINE void glu_backward_loop(const float *dy, const float *gate, const float *up,
                                        float *d_gate, float *d_up, int64_t n, int act)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float value, slope, dv = dy[i], uv = up[i];
        act_value_and_slope(gate[i], act, &value, &slope);
        d_gate[i] = dv * uv * slope;
        d_up[i]   = dv * value;
    }
}

VP_PER_ISA(glu_backward,
           (const float *dy, const float *gate, const float *up, float *d_gate, float *d_up,
            int64_t n, int64_t act),
           (dy, gate, up, d_gate, d_up, n, act))
{
#define LOOP(constant) glu_backward_loop(dy, gate, up, d_gate, d_up, n, constant)
    FOR_ACT(act)
#undef LOOP
}

void vp_cpu_activation_fwd(const vp_kernel_call *call)
{
    int64_t count = call->activation.count, n_spans = vp_cpu_n_spans(count),
            piece = vp_cpu_piece(call->dtype);

#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n_spans > 1)
    for (int64_t s = 0; s < n_spans; s++) {
        int64_t end = s * VP_CPU_SPAN + vp_cpu_span_len(count, s);

        for (int64_t i = s * VP_CPU_SPAN; i < end; i += piece) {
            float   x[VP_CPU_PIECE], y[VP_CPU_PIECE];
            int64_t n = vp_min_i64(piece, end - i);

            forward(vp_cpu_read(call->operand[VP_ACTIVATION_FWD_X], call->dtype, i, n, x),
                    vp_cpu_place(call->operand[VP_ACTIVATION_FWD_Y], call->dtype, i, y), n,
                    call->activation.act);
            vp_cpu_written(call->operand[VP_ACTIVATION_FWD_Y], call->dtype, i, n, y);
        }
    }
}

void vp_cpu_activation_bwd(const vp_kernel_call *call)
{
    int64_t count = call->activation.count, n_spans = vp_cpu_n_spans(count),
            piece = vp_cpu_piece(call->dtype);

#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n_spans > 1)
    for (int64_t s = 0; s < n_spans; s++) {
        int64_t end = s * VP_CPU_SPAN + vp_cpu_span_len(count, s);

        for (int64_t i = s * VP_CPU_SPAN; i < end; i += piece) {
            float   dy[VP_CPU_PIECE], x[VP_CPU_PIECE], dx[VP_CPU_PIECE];
            int64_t n = vp_min_i64(piece, end - i);

            backward(vp_cpu_read(call->operand[VP_ACTIVATION_BWD_DY], call->dtype, i, n, dy),
                     vp_cpu_read(call->operand[VP_ACTIVATION_BWD_X], call->dtype, i, n, x),
                     vp_cpu_place(call->operand[VP_ACTIVATION_BWD_DX], call->dtype, i, dx), n,
                     call->activation.act);
            vp_cpu_written(call->operand[VP_ACTIVATION_BWD_DX], call->dtype, i, n, dx);
        }
    }
}

/* ---- gated ---- */

/* Where things lie: n_rows rows of n elements; a row of gates and one of ups begin ld elements
 * after the last. Apart, all is one row. Packed, gate and up are one operand, and so are their
 * gradients. */
typedef struct glu_shape {
    int64_t n_rows, n, ld, up_at;
} glu_shape;

static glu_shape glu_shape_of(const vp_glu_ints *n)
{
    int64_t rows = n->rows, cols = n->cols;

    assert(rows > 0 && cols > 0 && n->act < VP_N_ACTS);
    return n->packed ? (glu_shape){.n_rows = rows, .n = cols, .ld = 2 * cols, .up_at = cols}
                     : (glu_shape){.n_rows = 1, .n = rows * cols, .ld = rows * cols};
}

void vp_cpu_glu_fwd(const vp_kernel_call *call)
{
    glu_shape   s    = glu_shape_of(&call->glu);
    const void *gate = call->operand[VP_GLU_FWD_GATE],
               *up   = call->glu.packed ? gate : call->operand[VP_GLU_FWD_UP];
    void   *y        = call->operand[VP_GLU_FWD_Y];
    int64_t n_spans = vp_cpu_n_spans(s.n), piece = vp_cpu_piece(call->dtype);

    /* A packed gate is twice as long as y. */
    assert(!call->glu.packed || y != gate);
#pragma omp parallel for schedule(static) \
    num_threads(vp_cpu_threads()) if (s.n_rows * s.n > VP_CPU_SPAN)
    for (int64_t item = 0; item < s.n_rows * n_spans; item++) {
        int64_t row = item / n_spans, span = item % n_spans;
        int64_t end = span * VP_CPU_SPAN + vp_cpu_span_len(s.n, span);

        for (int64_t i = span * VP_CPU_SPAN; i < end; i += piece) {
            float   gates[VP_CPU_PIECE], ups[VP_CPU_PIECE], ys[VP_CPU_PIECE];
            int64_t n = vp_min_i64(piece, end - i), from = row * s.ld + i, to = row * s.n + i;

            glu_forward(vp_cpu_read(gate, call->dtype, from, n, gates),
                        vp_cpu_read(up, call->dtype, from + s.up_at, n, ups),
                        vp_cpu_place(y, call->dtype, to, ys), n, call->glu.act);
            vp_cpu_written(y, call->dtype, to, n, ys);
        }
    }
}

void vp_cpu_glu_bwd(const vp_kernel_call *call)
{
    glu_shape   s  = glu_shape_of(&call->glu);
    const void *dy = call->operand[VP_GLU_BWD_DY], *gate = call->operand[VP_GLU_BWD_GATE],
               *up  = call->glu.packed ? gate : call->operand[VP_GLU_BWD_UP];
    void *d_gate    = call->operand[VP_GLU_BWD_D_GATE],
         *d_up      = call->glu.packed ? d_gate : call->operand[VP_GLU_BWD_D_UP];
    int64_t n_spans = vp_cpu_n_spans(s.n), piece = vp_cpu_piece(call->dtype);

    assert(!call->glu.packed || d_gate != dy);
#pragma omp parallel for schedule(static) \
    num_threads(vp_cpu_threads()) if (s.n_rows * s.n > VP_CPU_SPAN)
    for (int64_t item = 0; item < s.n_rows * n_spans; item++) {
        int64_t row = item / n_spans, span = item % n_spans;
        int64_t end = span * VP_CPU_SPAN + vp_cpu_span_len(s.n, span);

        for (int64_t i = span * VP_CPU_SPAN; i < end; i += piece) {
            float   dys[VP_CPU_PIECE], gates[VP_CPU_PIECE], ups[VP_CPU_PIECE];
            float   d_gates[VP_CPU_PIECE], d_ups[VP_CPU_PIECE];
            int64_t n = vp_min_i64(piece, end - i), at = row * s.ld + i;

            glu_backward(vp_cpu_read(dy, call->dtype, row * s.n + i, n, dys),
                         vp_cpu_read(gate, call->dtype, at, n, gates),
                         vp_cpu_read(up, call->dtype, at + s.up_at, n, ups),
                         vp_cpu_place(d_gate, call->dtype, at, d_gates),
                         vp_cpu_place(d_up, call->dtype, at + s.up_at, d_ups), n, call->glu.act);
            vp_cpu_written(d_gate, call->dtype, at, n, d_gates);
            vp_cpu_written(d_up, call->dtype, at + s.up_at, n, d_ups);
        }
    }
}
