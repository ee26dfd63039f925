/* kernels/reference/reference_optimizer.c: gradient norm, clipping and the optimizers in
 * float64. Parameters, masters and states are double whatever the call says they are kept in;
 * nothing is rounded. The formulas stand with the kernels of kernels/cpu. */
#include "kernels/reference/reference_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What every optimizer reads. */
typedef struct step {
    double       *p;    /* the master where there is one */
    double       *kept; /* p where there is a master, else NULL */
    const double *g;
    double        lr, decay, t, grad_scale;
    int64_t       n; /* 0 where the step is skipped */
} step;

static step step_of(const vp_kernel_call *call, double *p, const double *g, double *master,
                    const vp_control *control, int64_t n, bool decays)
{
    const vp_scaled_control *scaled =
        control->growth_interval > 0 ? (const vp_scaled_control *)(const void *)control : NULL;

    return (step){
        .p          = master ? master : p,
        .kept       = master ? p : NULL,
        .g          = g,
        .lr         = control->lr,
        .decay      = decays ? call->optimizer->weight_decay : 0.0,
        .t          = control->step - (scaled ? scaled->skipped_steps : 0),
        .grad_scale = control->grad_scale,
        .n          = scaled && scaled->skips != 0 ? 0 : n,
    };
}

#define STEP_OF(KERNEL, n, decays) \
    step_of(call, call->operand[VP_##KERNEL##_P], call->operand[VP_##KERNEL##_G], \
            call->operand[VP_##KERNEL##_MASTER], call->operand[VP_##KERNEL##_CONTROL], n, decays)

static void step_end(const step *s)
{
    if (s->kept)
        memcpy(s->kept, s->p, (size_t)s->n * sizeof(double));
}

void vp_reference_adamw(const vp_kernel_call *call)
{
    const vp_optimizer_numbers *o = call->optimizer;
    double                     *m = call->operand[VP_ADAMW_M], *v = call->operand[VP_ADAMW_V];
    step                        s = STEP_OF(ADAMW, call->states.count, call->states.decay != 0);

    for (int64_t i = 0; i < s.n; i++) {
        double g = s.g[i] * s.grad_scale, m_hat, v_hat;

        s.p[i] -= s.lr * s.decay * s.p[i];
        m[i]  = o->beta1 * m[i] + (1.0 - o->beta1) * g;
        v[i]  = o->beta2 * v[i] + (1.0 - o->beta2) * g * g;
        m_hat = m[i] / (1.0 - pow(o->beta1, s.t));
        v_hat = v[i] / (1.0 - pow(o->beta2, s.t));
        s.p[i] -= s.lr * m_hat / (sqrt(v_hat) + o->eps);
    }
    step_end(&s);
}

void vp_reference_sgd(const vp_kernel_call *call)
{
    step s = STEP_OF(SGD, call->update.count, call->update.decay != 0);

    for (int64_t i = 0; i < s.n; i++)
        s.p[i] -= s.lr * (s.g[i] * s.grad_scale + s.decay * s.p[i]);
    step_end(&s);
}

void vp_reference_momentum(const vp_kernel_call *call)
{
    double *m = call->operand[VP_MOMENTUM_M];
    step    s = STEP_OF(MOMENTUM, call->states.count, call->states.decay != 0);

    for (int64_t i = 0; i < s.n; i++) {
        m[i] = call->optimizer->momentum * m[i] + s.g[i] * s.grad_scale + s.decay * s.p[i];
        s.p[i] -= s.lr * m[i];
    }
    step_end(&s);
}

void vp_reference_lion(const vp_kernel_call *call)
{
    const vp_optimizer_numbers *o = call->optimizer;
    double                     *m = call->operand[VP_LION_M];
    step                        s = STEP_OF(LION, call->states.count, call->states.decay != 0);

    for (int64_t i = 0; i < s.n; i++) {
        double g = s.g[i] * s.grad_scale, c = o->beta1 * m[i] + (1.0 - o->beta1) * g;

        s.p[i] -= s.lr * ((c > 0.0) - (c < 0.0) + s.decay * s.p[i]);
        m[i] = o->beta2 * m[i] + (1.0 - o->beta2) * g;
    }
    step_end(&s);
}

void vp_reference_adafactor(const vp_kernel_call *call)
{
    int64_t rows = call->adafactor.rows, cols = call->adafactor.cols;
    double *row = call->operand[VP_ADAFACTOR_ROW], *col = call->operand[VP_ADAFACTOR_COL];
    step    s = STEP_OF(ADAFACTOR, rows * cols, call->adafactor.decay != 0);
    double  b = 1.0 - pow(s.t, -0.8), eps = 1e-30, row_mean = 0.0, mean_square = 0.0;
    double *u = malloc((size_t)(rows * cols) * sizeof(double));

    assert(u);
    if (s.n == 0) {
        free(u);
        return;
    }
    if (call->adafactor.factored) {
        for (int64_t r = 0; r < rows; r++) {
            double mean = 0.0;
            for (int64_t c = 0; c < cols; c++)
                mean += (pow(s.g[r * cols + c] * s.grad_scale, 2.0) + eps) / (double)cols;
            row[r] = b * row[r] + (1.0 - b) * mean;
            row_mean += row[r] / (double)rows;
        }
        for (int64_t c = 0; c < cols; c++) {
            double mean = 0.0;
            for (int64_t r = 0; r < rows; r++)
                mean += (pow(s.g[r * cols + c] * s.grad_scale, 2.0) + eps) / (double)rows;
            col[c] = b * col[c] + (1.0 - b) * mean;
        }
    }
    for (int64_t i = 0; i < s.n; i++) {
        double g = s.g[i] * s.grad_scale;

        if (call->adafactor.factored) {
            u[i] = g / sqrt(row[i / cols] / row_mean) / sqrt(col[i % cols]);
        } else {
            row[i] = b * row[i] + (1.0 - b) * (g * g + eps);
            u[i]   = g / sqrt(row[i]);
        }
        mean_square += u[i] * u[i] / (double)s.n;
    }
    for (int64_t i = 0; i < s.n; i++) {
        s.p[i] -= s.lr * s.decay * s.p[i];
        s.p[i] -= s.lr * u[i] / fmax(1.0, sqrt(mean_square));
    }
    step_end(&s);
    free(u);
}

/* out (rows, cols) = x y, with x (rows, inner) and y (inner, cols). */
static void product(const double *x, const double *y, double *out, int64_t rows, int64_t inner,
                    int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            double sum = 0.0;
            for (int64_t i = 0; i < inner; i++)
                sum += x[r * inner + i] * y[i * cols + c];
            out[r * cols + c] = sum;
        }
}

/* X X' X and so on from the left, whatever the shape: odd polynomials of X are the same from
 * either side. */
void vp_reference_muon(const vp_kernel_call *call)
{
    int64_t rows = call->muon.rows, cols = call->muon.cols;
    double *m = call->operand[VP_MUON_M], momentum_of = call->optimizer->momentum, norm = 0.0;
    step    s = STEP_OF(MUON, rows * cols, call->muon.decay != 0);
    double *x = malloc(4 * (size_t)(rows * cols) * sizeof(double)), *xt = x + s.n, *cube = xt + s.n,
           *fifth = cube + s.n;
    double *gram  = malloc((size_t)(rows * rows) * sizeof(double));

    assert(x && gram);
    if (s.n == 0)
        goto out;
    for (int64_t i = 0; i < s.n; i++) {
        double g = s.g[i] * s.grad_scale;
        m[i]     = momentum_of * m[i] + (1.0 - momentum_of) * g;
        x[i]     = momentum_of * m[i] + (1.0 - momentum_of) * g;
        norm += x[i] * x[i];
    }
    for (int64_t i = 0; i < s.n; i++)
        x[i] /= fmax(sqrt(norm), 1e-7);
    for (int k = 0; k < 5; k++) {
        for (int64_t i = 0; i < s.n; i++)
            xt[i % cols * rows + i / cols] = x[i];
        product(x, xt, gram, rows, cols, rows);
        product(gram, x, cube, rows, rows, cols);
        product(gram, cube, fifth, rows, rows, cols);
        for (int64_t i = 0; i < s.n; i++)
            x[i] = 3.4445 * x[i] - 4.7750 * cube[i] + 2.0315 * fifth[i];
    }
    for (int64_t i = 0; i < s.n; i++) {
        s.p[i] -= s.lr * s.decay * s.p[i];
        s.p[i] -= s.lr * 0.2 * sqrt(fmax((double)rows, (double)cols)) * x[i];
    }
    step_end(&s);
out:
    free(x);
    free(gram);
}

void vp_reference_grad_sumsq(const vp_kernel_call *call)
{
    const double *g       = call->operand[VP_GRAD_SUMSQ_G];
    vp_control   *control = call->operand[VP_GRAD_SUMSQ_CONTROL];

    for (int64_t i = 0; i < call->elements.count; i++)
        control->grad_sumsq += g[i] * g[i];
}

/* torch.amp.GradScaler.update(): with found_inf scale * 0.5 and a growth tracker of 0, else the tracker
 * one more, and at growth_interval scale * 2, where that is finite in fp32, and a tracker of 0. */
static void update_scaler(vp_scaled_control *c, bool found_inf)
{
    float doubled = (float)c->loss_scale * 2.0f;

    c->skips = found_inf;
    c->skipped_steps += found_inf;
    c->clean_steps = found_inf ? 0 : c->clean_steps + 1;
    if (found_inf)
        c->loss_scale *= 0.5;
    if (c->clean_steps == c->control.growth_interval) {
        c->loss_scale  = isinf(doubled) ? c->loss_scale : (double)doubled;
        c->clean_steps = 0;
    }
}

void vp_reference_clip_scale(const vp_kernel_call *call)
{
    vp_control        *control = call->operand[VP_CLIP_SCALE_CONTROL];
    vp_scaled_control *scaled  = call->operand[VP_CLIP_SCALE_CONTROL];
    double             scale   = control->growth_interval > 0 ? scaled->loss_scale : 1;

    control->grad_norm  = sqrt(control->grad_sumsq) / scale;
    control->grad_scale = call->clip_reals.clip_norm > 0.0
                              ? fmin(1.0, call->clip_reals.clip_norm / (control->grad_norm + 1e-6))
                              : 1.0;
    control->grad_scale /= scale;
    if (control->growth_interval > 0)
        update_scaler(scaled, !isfinite(control->grad_sumsq));
}
