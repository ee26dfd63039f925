/* kernels/cpu/muon.c: Muon (Jordan 2024, kellerjordan.github.io/posts/muon) as torch.optim.Muon
 * orders it, with Nesterov momentum and adjust_lr_fn = "match_rms_adamw" (Liu et al. 2025,
 * arXiv:2502.16982):
 *
 *     m = momentum m + (1 - momentum) g,  X = momentum m + (1 - momentum) g,  X = X / max(|X|,
 *     1e-7)    (Frobenius)
 *     5 times:  A = X X',  X = a X + (b A + c A A) X
 *     p -= lr wd p,  p -= lr 0.2 sqrt(max(rows, cols)) X
 *
 * a = 3.4445, b = -4.7750, c = 2.0315: an odd polynomial of the singular values that brings those
 * above about 0.01 to 0.7 .. 1.2. A matrix that is higher than wide takes A = X'X and multiplies
 * from the right: the smaller square. torch computes the iteration in bf16; here it is fp32. With B
 * = a I + b A + c A A a step is X = B X, three products: 2 s^2 (2 l + s) operations, s the shorter
 * side and l the longer; that A is symmetric is not used.
 *
 * Scratch: X and the next X, rows cols each, then A and B, s^2 each. */
#include "kernels/cpu/update.h"

#include "base/checked.h"

#include <assert.h>
#include <math.h>

enum { N_STEPS = 5 };

static const double least_norm = 1e-7, poly_a = 3.4445, poly_b = -4.7750, poly_c = 2.0315;

/* m, and x the direction before it is orthogonalised. */
VP_PER_ISA(momentum_span,
           (float *m, const vp_grad *gradient, float *x, int64_t first, int64_t n, float grad_scale,
            float momentum, float rest),
           (m, gradient, x, first, n, grad_scale, momentum, rest))
{
    for (int64_t i = first; i < first + n; i += VP_UPDATE_PIECE) {
        float        scratch[VP_UPDATE_PIECE];
        int64_t      len = first + n - i < VP_UPDATE_PIECE ? first + n - i : VP_UPDATE_PIECE;
        const float *g   = vp_grad_load(gradient, i, len, scratch);

#pragma omp simd
        for (int64_t j = 0; j < len; j++) {
            float grad = rest * (g[j] * grad_scale);
            m[i + j]   = momentum * m[i + j] + grad;
            x[i + j]   = momentum * m[i + j] + grad;
        }
    }
}

VP_PER_ISA(scale_span, (float *x, int64_t n, float by), (x, n, by))
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] *= by;
}

/* One row of B = a I + b A. */
VP_PER_ISA(polynomial_row, (const float *a, float *b, int64_t row, int64_t size), (a, b, row, size))
{
    float by = (float)poly_b;

#pragma omp simd
    for (int64_t i = 0; i < size; i++)
        b[i] = by * a[i];
    b[row] += (float)poly_a;
}

VP_PER_ISA(apply_span,
           (const vp_param *param, const float *x, int64_t first, int64_t n, float keep,
            float step_size),
           (param, x, first, n, keep, step_size))
{
    for (int64_t i = first; i < first + n; i += VP_UPDATE_PIECE) {
        float   scratch[VP_UPDATE_PIECE];
        int64_t len = first + n - i < VP_UPDATE_PIECE ? first + n - i : VP_UPDATE_PIECE;
        float  *p   = vp_param_load(param, i, len, scratch);

#pragma omp simd
        for (int64_t j = 0; j < len; j++)
            p[j] = keep * p[j] - step_size * x[i + j];
        vp_param_store(param, i, len, p);
    }
}

/* next = one Newton-Schulz step of x; a and b are size by size. */
static void newton_schulz(const float *x, float *next, float *a, float *b, int64_t rows,
                          int64_t cols)
{
    bool    wide = rows <= cols;
    int64_t size = wide ? rows : cols, rest = wide ? cols : rows;
    int     n_threads = size * size > VP_CPU_SPAN ? vp_cpu_threads() : 1;
    vp_gemm gram      = {.m            = size,
                         .n            = size,
                         .k            = rest,
                         .a            = x,
                         .lda          = cols,
                         .a_transposed = !wide,
                         .b            = x,
                         .ldb          = cols,
                         .b_transposed = wide,
                         .c            = a,
                         .ldc          = size,
                         .alpha        = 1.0f};
    vp_gemm square    = {.m     = size,
                         .n     = size,
                         .k     = size,
                         .a     = a,
                         .lda   = size,
                         .b     = a,
                         .ldb   = size,
                         .c     = b,
                         .ldc   = size,
                         .alpha = (float)poly_c,
                         .add   = true};
    vp_gemm product   = {.m = rows, .n = cols, .k = size, .c = next, .ldc = cols, .alpha = 1.0f};

    assert(x != next && size > 0 && size <= rest);
    product.a   = wide ? b : x;
    product.lda = wide ? size : cols;
    product.b   = wide ? x : b;
    product.ldb = wide ? cols : size;
    vp_cpu_gemm(&gram, rest, NULL);
#pragma omp parallel for schedule(static) num_threads(n_threads) if (n_threads > 1)
    for (int64_t r = 0; r < size; r++)
        polynomial_row(a + r * size, b + r * size, r, size);
    vp_cpu_gemm(&square, size, NULL);
    vp_cpu_gemm(&product, size, NULL);
}

void vp_cpu_muon(const vp_kernel_call *call)
{
    const vp_grad               g = vp_grad_of(call, call->operand[VP_MUON_G]);
    float                      *m = call->operand[VP_MUON_M], *x = call->operand[VP_MUON_SCRATCH];
    const vp_control           *control = call->operand[VP_MUON_CONTROL];
    const vp_optimizer_numbers *o       = call->optimizer;
    int64_t                     rows = call->muon.rows, cols = call->muon.cols, count = rows * cols;
    int64_t                     size = vp_min_i64(rows, cols), n_spans = vp_cpu_n_spans(count);
    float                      *next = x + count, *a = next + count, *b = a + size * size;
    vp_param param = vp_param_of(call, call->operand[VP_MUON_P], call->operand[VP_MUON_MASTER]);
    double   norm, adjust = 0.2 * sqrt((double)vp_max_i64(rows, cols));
    float    keep = (float)(call->muon.decay ? 1.0 - control->lr * o->weight_decay : 1.0);

    assert(o);
    if (VP_SKIPS(control))
        return;
#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n_spans > 1)
    for (int64_t s = 0; s < n_spans; s++)
        momentum_span(m, &g, x, s * VP_CPU_SPAN, vp_cpu_span_len(count, s),
                      (float)control->grad_scale, (float)o->momentum, (float)(1.0 - o->momentum));
    norm = sqrt(vp_update_sum_squares(0.0, (vp_grad){.f32 = x}, count));
    norm = norm < least_norm ? least_norm : norm; /* a NaN stays */
#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n_spans > 1)
    for (int64_t s = 0; s < n_spans; s++)
        scale_span(x + s * VP_CPU_SPAN, vp_cpu_span_len(count, s), (float)(1.0 / norm));
    for (int step = 0; step < N_STEPS; step++) {
        float *swap = x;
        newton_schulz(x, next, a, b, rows, cols);
        x    = next;
        next = swap;
    }
#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n_spans > 1)
    for (int64_t s = 0; s < n_spans; s++)
        apply_span(&param, x, s * VP_CPU_SPAN, vp_cpu_span_len(count, s), keep,
                   (float)(control->lr * adjust));
}
