/* kernels/cpu/optimizer.c: gradient norm, clipping, and the optimizers that update each element by
 * itself: AdamW, SGD with and without momentum, Lion. Adafactor and Muon have files of their own.
 *
 * Scalars are computed in double from the control block and the recipe, then rounded to float once;
 * elements are float. The gradient is scaled by control.grad_scale as it is read, so clipping costs
 * no pass of its own. How parameters and states are kept, and what is rounded how: update.h. */
#include "kernels/cpu/update.h"
#include "kernels/power.h"

#include "base/checked.h"

#include <assert.h>
#include <float.h>
#include <math.h>

void vp_cpu_grad_sumsq(const vp_kernel_call *call)
{
    vp_control *control = call->operand[VP_GRAD_SUMSQ_CONTROL];

    control->grad_sumsq =
        vp_update_sum_squares(control->grad_sumsq, vp_grad_of(call, call->operand[VP_GRAD_SUMSQ_G]),
                              call->elements.count);
}

/* The loss scale of the next step, as plan/op.h says. */
static void end_scaled_step(vp_scaled_control *s)
{
    s->control.grad_scale /= s->loss_scale;
    s->skips = isfinite(s->control.grad_sumsq) ? 0.0 : 1.0;
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

/* As torch.nn.utils.clip_grad_norm_: scale = min(1, clip / (norm + 1e-6)). clip_norm <= 0: none. */
void vp_cpu_clip_scale(const vp_kernel_call *call)
{
    vp_control *control = call->operand[VP_CLIP_SCALE_CONTROL];
    double      clip    = call->clip_reals.clip_norm;
    double      ratio;

    control->grad_norm = sqrt(control->grad_sumsq) / VP_LOSS_SCALE(control);
    ratio              = clip / (control->grad_norm + 1e-6);
    /* Written so that a norm that is not a number reaches the parameters, where it is seen. */
    control->grad_scale = clip > 0.0 ? (ratio >= 1.0 ? 1.0 : ratio) : 1.0;
    if (VP_IS_SCALED(control))
        end_scaled_step((vp_scaled_control *)(void *)control);
}

/* ---- the rules ---- */

typedef struct scalars {
    float grad_scale, lr, decay, keep; /* keep: 1 - lr decay */
    float momentum;
    float b1, one_minus_b1, b2, one_minus_b2, step_size, inv_sqrt_correction, eps;
} scalars;

static scalars scalars_of(const vp_kernel_call *call, const vp_control *control, bool decays)
{
    const vp_optimizer_numbers *o = call->optimizer;
    double                      t = VP_UPDATE_NUMBER(control);

    assert(o && t >= 1.0); /* from 1, or the corrections divide by 0 */
    return (scalars){
        .grad_scale          = (float)control->grad_scale,
        .lr                  = (float)control->lr,
        .decay               = decays ? (float)o->weight_decay : 0.0f,
        .keep                = (float)(decays ? 1.0 - control->lr * o->weight_decay : 1.0),
        .momentum            = (float)o->momentum,
        .b1                  = (float)o->beta1,
        .one_minus_b1        = (float)(1.0 - o->beta1),
        .b2                  = (float)o->beta2,
        .one_minus_b2        = (float)(1.0 - o->beta2),
        .step_size           = (float)(control->lr / (1.0 - vp_power(o->beta1, t))),
        .inv_sqrt_correction = (float)(1.0 / sqrt(1.0 - vp_power(o->beta2, t))),
        .eps                 = (float)o->eps,
    };
}

/* AdamW (Loshchilov, Hutter 2019, arXiv:1711.05101) as torch.optim.AdamW orders it:
 *
 *     p -= lr wd p                               where the parameter decays
 *     m  = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2
 *     p -= lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)
 *
 * Moves 28 bytes per element in fp32. */
VP_ALWAYS_INLINE void adamw_piece(float *p, const float *g, float *m, float *v, int64_t n,
                                  scalars k)
{
    float root[VP_UPDATE_PIECE];

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float grad = g[i] * k.grad_scale;
        m[i]       = k.b1 * m[i] + k.one_minus_b1 * grad;
        root[i]    = k.b2 * v[i] + k.one_minus_b2 * (grad * grad);
        v[i]       = root[i];
    }
    vp_sqrt_all(root, n);
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        p[i] = k.keep * p[i] - k.step_size * (m[i] / (root[i] * k.inv_sqrt_correction + k.eps));
}

/* Plain SGD with torch.optim.SGD's coupled decay: p -= lr (g + wd p). */
VP_ALWAYS_INLINE void sgd_piece(float *p, const float *g, int64_t n, scalars k)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        p[i] -= k.lr * (g[i] * k.grad_scale + k.decay * p[i]);
}

/* torch.optim.SGD with momentum, dampening 0, nesterov off:
 *
 *     m = momentum m + (g + wd p),  p -= lr m
 *
 * torch begins with m = g, which is the same from m = 0. Moves 20 bytes per element in fp32. */
VP_ALWAYS_INLINE void momentum_piece(float *p, const float *g, float *m, int64_t n, scalars k)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        m[i] = k.momentum * m[i] + (g[i] * k.grad_scale + k.decay * p[i]);
        p[i] -= k.lr * m[i];
    }
}

/* Lion (Chen et al. 2023, arXiv:2302.06675, algorithm 2):
 *
 *     c = b1 m + (1 - b1) g,  p -= lr (sign(c) + wd p),  m = b2 m + (1 - b2) g
 *
 * The sign of zero is zero; of a NaN it is NaN here, so that it is seen in p. */
VP_ALWAYS_INLINE void lion_piece(float *p, const float *g, float *m, int64_t n, scalars k)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float grad = g[i] * k.grad_scale;
        float c    = k.b1 * m[i] + k.one_minus_b1 * grad;
        float up   = c > 0.0f ? 1.0f : c;
        float sign = c < 0.0f ? -1.0f : up;
        m[i]       = k.b2 * m[i] + k.one_minus_b2 * grad;
        p[i]       = k.keep * p[i] - k.lr * sign;
    }
}

/* ---- over a parameter ---- */

typedef struct update {
    vp_kernel rule;
    vp_param  p;
    vp_grad   g;
    int       n_states;
    vp_state  m, v;
    scalars   k;
} update;

VP_PER_ISA(update_span, (const update *u, int64_t first, int64_t n), (u, first, n))
{
    for (int64_t i = first; i < first + n; i += VP_UPDATE_PIECE) {
        float p_scratch[VP_UPDATE_PIECE], m_scratch[VP_UPDATE_PIECE], v_scratch[VP_UPDATE_PIECE],
            g_scratch[VP_UPDATE_PIECE];
        int64_t      len = first + n - i < VP_UPDATE_PIECE ? first + n - i : VP_UPDATE_PIECE;
        float       *p   = vp_param_load(&u->p, i, len, p_scratch);
        float       *m   = u->n_states > 0 ? vp_state_load(&u->m, i, len, m_scratch) : NULL;
        float       *v   = u->n_states > 1 ? vp_state_load(&u->v, i, len, v_scratch) : NULL;
        const float *g   = vp_grad_load(&u->g, i, len, g_scratch);

        switch (u->rule) {
        case VP_K_ADAMW:
            adamw_piece(p, g, m, v, len, u->k);
            break;
        case VP_K_SGD:
            sgd_piece(p, g, len, u->k);
            break;
        case VP_K_MOMENTUM:
            momentum_piece(p, g, m, len, u->k);
            break;
        case VP_K_LION:
            lion_piece(p, g, m, len, u->k);
            break;
        default:
            assert(!"an update without a rule");
        }
        if (m)
            vp_state_store(&u->m, i, len, m);
        if (v)
            vp_state_store(&u->v, i, len, v);
        vp_param_store(&u->p, i, len, p);
    }
}

/* m and v: states, NULL where the rule has none. */
static void update_all(const vp_kernel_call *call, vp_param p, vp_grad g, void *m, void *v,
                       const vp_control *control)
{
    int64_t       count = call->update.count, n_spans = vp_cpu_n_spans(count);
    vp_state_kind kind = m ? (vp_state_kind)call->states.state : VP_STATE_F32;
    update        u    = {
                  .rule     = call->kernel,
                  .p        = p,
                  .g        = g,
                  .n_states = (m != NULL) + (v != NULL),
    };

    if (VP_SKIPS(control))
        return;
    u.k = scalars_of(call, control, call->update.decay != 0);

    assert(m || !v);
    assert((call->kernel == VP_K_ADAMW) == (v != NULL) &&
           (call->kernel == VP_K_SGD) == (m == NULL));
    _Static_assert(VP_CPU_SPAN % VP_UPDATE_PIECE == 0, "a span is whole pieces");
    if (m)
        u.m = vp_state_of(call, m, kind, count, true);
    if (v)
        u.v = vp_state_of(call, v, kind, count, false);
#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n_spans > 1)
    for (int64_t s = 0; s < n_spans; s++)
        update_span(&u, s * VP_CPU_SPAN, vp_cpu_span_len(count, s));
}

/* The operands that every rule has. */
#define UPDATE(KERNEL, m, v) \
    update_all( \
        call, \
        vp_param_of(call, call->operand[VP_##KERNEL##_P], call->operand[VP_##KERNEL##_MASTER]), \
        vp_grad_of(call, call->operand[VP_##KERNEL##_G]), m, v, \
        call->operand[VP_##KERNEL##_CONTROL])

void vp_cpu_adamw(const vp_kernel_call *call)
{
    UPDATE(ADAMW, call->operand[VP_ADAMW_M], call->operand[VP_ADAMW_V]);
}

void vp_cpu_sgd(const vp_kernel_call *call)
{
    UPDATE(SGD, NULL, NULL);
}

void vp_cpu_momentum(const vp_kernel_call *call)
{
    UPDATE(MOMENTUM, call->operand[VP_MOMENTUM_M], NULL);
}

void vp_cpu_lion(const vp_kernel_call *call)
{
    UPDATE(LION, call->operand[VP_LION_M], NULL);
}
