/* kernels/cpu/optimizer.c: gradient norm, clipping, AdamW and SGD.
 *
 * Scalars are computed in double from the control block and the recipe, then rounded to float once;
 * elements are float. The gradient is scaled by control.grad_scale as it is read, so clipping costs
 * no pass of its own. */
#include "kernels/cpu/cpu_internal.h"

#include "core/checked.h"

#include <math.h>

/* sum g^2 of tiles of this many elements, in 16 double lanes, the tiles added in order. */
enum { SUM_TILE = 16384, SUM_TILES_AT_ONCE = 512 };

typedef float  vp_f4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef double vp_d4 __attribute__((vector_size(32)));

VP_PER_ISA(sum_squares, (const float *g, int64_t n, double *out), (g, n, out))
{
    vp_d4   lane[4] = {{0}, {0}, {0}, {0}};
    vp_d4   s;
    int64_t i = 0;
    double  total;

    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 4; l++) {
            vp_d4 x = __builtin_convertvector(*(const vp_f4 *)(g + i + 4 * l), vp_d4);
            lane[l] += x * x;
        }
    s     = (lane[0] + lane[1]) + (lane[2] + lane[3]);
    total = (s[0] + s[2]) + (s[1] + s[3]);
    for (; i < n; i++)
        total += (double)g[i] * (double)g[i];
    *out = total;
}

void vp_cpu_grad_sumsq(const vp_kernel_call *call)
{
    const float *g       = call->operand[0];
    vp_control  *control = call->operand[1];
    int64_t      count   = call->ints[0];

    for (int64_t base = 0; base < count; base += (int64_t)SUM_TILE * SUM_TILES_AT_ONCE) {
        double  sum[SUM_TILES_AT_ONCE];
        int64_t n_tiles = vp_min_i64(SUM_TILES_AT_ONCE, vp_ceil_div(count - base, SUM_TILE));

#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n_tiles > 1)
        for (int64_t t = 0; t < n_tiles; t++) {
            int64_t first = base + t * SUM_TILE;
            sum_squares(g + first, vp_min_i64(SUM_TILE, count - first), &sum[t]);
        }
        for (int64_t t = 0; t < n_tiles; t++)
            control->grad_sumsq += sum[t];
    }
}

/* As torch.nn.utils.clip_grad_norm_: scale = min(1, clip / (norm + 1e-6)). clip_norm <= 0: none. */
void vp_cpu_clip_scale(const vp_kernel_call *call)
{
    vp_control *control = call->operand[0];
    double      clip    = call->reals[0];
    double      ratio;

    control->grad_norm  = sqrt(control->grad_sumsq);
    ratio               = clip / (control->grad_norm + 1e-6);
    /* Written so that a norm that is not a number reaches the parameters, where it is seen. */
    control->grad_scale = clip > 0.0 ? (ratio >= 1.0 ? 1.0 : ratio) : 1.0;
}

/* AdamW (Loshchilov, Hutter 2019, arXiv:1711.05101) as torch.optim.AdamW orders it:
 *
 *     p -= lr wd p                               where the parameter decays
 *     m  = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2
 *     p -= lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)
 *
 * Moves 28 bytes per element. */
typedef struct adamw_scalars {
    float grad_scale, keep, b1, one_minus_b1, b2, one_minus_b2, step_size, inv_sqrt_correction, eps;
} adamw_scalars;

VP_PER_ISA(adamw_span, (float *p, const float *g, float *m, float *v, int64_t n, const adamw_scalars *a),
           (p, g, m, v, n, a))
{
    enum { PIECE = 256 };
    adamw_scalars k = *a;

    for (int64_t i0 = 0; i0 < n; i0 += PIECE) {
        float   root[PIECE];
        int64_t len = n - i0 < PIECE ? n - i0 : PIECE;

#pragma omp simd
        for (int64_t i = 0; i < len; i++) {
            float grad = g[i0 + i] * k.grad_scale;
            m[i0 + i]  = k.b1 * m[i0 + i] + k.one_minus_b1 * grad;
            root[i]    = k.b2 * v[i0 + i] + k.one_minus_b2 * (grad * grad);
            v[i0 + i]  = root[i];
        }
        vp_sqrt_all(root, len);
#pragma omp simd
        for (int64_t i = 0; i < len; i++)
            p[i0 + i] = k.keep * p[i0 + i] -
                        k.step_size * (m[i0 + i] / (root[i] * k.inv_sqrt_correction + k.eps));
    }
}

void vp_cpu_adamw(const vp_kernel_call *call)
{
    float                      *p = call->operand[0], *m = call->operand[2], *v = call->operand[3];
    const float                *g       = call->operand[1];
    const vp_control           *control = call->operand[4];
    const vp_optimizer_numbers *o       = call->optimizer;
    int64_t                     count = call->ints[0], n_spans = vp_cpu_n_spans(count);
    adamw_scalars               a = {
        .grad_scale          = (float)control->grad_scale,
        .keep                = (float)(call->ints[1] ? 1.0 - control->lr * o->weight_decay : 1.0),
        .b1                  = (float)o->beta1,
        .one_minus_b1        = (float)(1.0 - o->beta1),
        .b2                  = (float)o->beta2,
        .one_minus_b2        = (float)(1.0 - o->beta2),
        .step_size           = (float)(control->lr / (1.0 - pow(o->beta1, control->step))),
        .inv_sqrt_correction = (float)(1.0 / sqrt(1.0 - pow(o->beta2, control->step))),
        .eps                 = (float)o->eps,
    };

#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n_spans > 1)
    for (int64_t s = 0; s < n_spans; s++) {
        int64_t i = s * VP_CPU_SPAN;
        adamw_span(p + i, g + i, m + i, v + i, vp_cpu_span_len(count, s), &a);
    }
}

/* Plain SGD with torch.optim.SGD's coupled decay: p -= lr (g + wd p). */
VP_PER_ISA(sgd_span, (float *p, const float *g, int64_t n, float grad_scale, float decay, float lr),
           (p, g, n, grad_scale, decay, lr))
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        p[i] -= lr * (g[i] * grad_scale + decay * p[i]);
}

void vp_cpu_sgd(const vp_kernel_call *call)
{
    float            *p       = call->operand[0];
    const float      *g       = call->operand[1];
    const vp_control *control = call->operand[2];
    int64_t           count = call->ints[0], n_spans = vp_cpu_n_spans(count);
    float             decay = call->ints[1] ? (float)call->optimizer->weight_decay : 0.0f;
    float             lr = (float)control->lr, grad_scale = (float)control->grad_scale;

#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n_spans > 1)
    for (int64_t s = 0; s < n_spans; s++)
        sgd_span(p + s * VP_CPU_SPAN, g + s * VP_CPU_SPAN, vp_cpu_span_len(count, s), grad_scale,
                 decay, lr);
}
