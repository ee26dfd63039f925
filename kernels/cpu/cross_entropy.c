/* kernels/cpu/cross_entropy.c: softmax cross-entropy with its gradient in the logits' place.
 *
 *     t[v] = x[v], or c tanh(x[v] / c) with softcap c > 0 (Gemma 2, arXiv:2408.00118)
 *     loss[r] = log(sum_v exp(t[v] - m)) - (t[label] - m),  m = max_v t[v]
 *     x[v]   <- (exp(t[v] - m) / sum - [v = label]) * weight * (1 - tanh^2(x[v] / c))
 *
 * weight = control.inv_n_targets, times control's loss scale where there is one.
 *
 * fp32 without softcap: three passes over a row (maximum, exponentials in the logits' place,
 * scaling). A row of 50 257 floats stays in a core's L2 cache from the first to the last, so
 * memory sees one read and one write. Else the exponentials have no place of their own, since
 * logits are still needed or too narrow for them: they are computed twice, once to be summed and
 * once to be scaled, a piece at a time, and each gradient is rounded once. */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/functions.h"
#include "kernels/cpu/operand.h"

#include "base/checked.h"

#include <assert.h>
#include <math.h>

/* The sum of exponentials is taken in pieces of this many, each in float lanes, added in double:
 * its rounding error does not grow with the vocabulary. */
enum { PIECE = VP_CPU_PIECE };

/* x[i] = exp(x[i] - m); their sum is added to *sum. */
VP_PER_ISA(exponentials, (float *x, int64_t n, float m, double *sum), (x, n, m, sum))
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] = vp_exp_neg(x[i] - m);
    *sum += (double)vp_sum(x, n);
}

VP_PER_ISA(scale_all, (float *x, int64_t n, float scale), (x, n, scale))
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] *= scale;
}

VP_PER_ISA(greatest, (const float *x, int64_t n, float *m), (x, n, m))
{
    float here = vp_max(x, n);
    *m         = here > *m ? here : *m;
}

/* y = c tanh(x / c), slope its derivative by x; the slope's place may not be x or y. */
VP_PER_ISA(cap_all, (const float *x, float *y, float *slope, int64_t n, float c),
           (x, y, slope, n, c))
{
    float inv = 1.0f / c;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float s;
        y[i]     = c * vp_tanh_and_slope(x[i] * inv, &s);
        slope[i] = s;
    }
}

VP_PER_ISA(multiply, (float *x, const float *y, int64_t n), (x, y, n))
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] *= y[i];
}

/* What the whole row has in common once its exponentials are summed. */
typedef struct row_sums {
    float  m, target; /* the greatest logit, that of the label; both capped */
    double sum;
} row_sums;

static float loss_of(const row_sums *s)
{
    return (float)(log(s->sum) - ((double)s->target - (double)s->m));
}

/* The gradient at the label, from its exponential. */
static float gradient_at_label(const row_sums *s, float e, double weight)
{
    return (float)(((double)e / s->sum - 1.0) * weight);
}

static void row_in_place(float *x, int64_t vocab, int32_t label, double weight, float *row_loss)
{
    row_sums s = {.m = -INFINITY, .target = x[label]};
    float    e;

    greatest(x, vocab, &s.m);
    for (int64_t v = 0; v < vocab; v += PIECE)
        exponentials(x + v, vp_min_i64(PIECE, vocab - v), s.m, &s.sum);
    *row_loss = loss_of(&s);
    e         = x[label];
    scale_all(x, vocab, (float)(weight / s.sum));
    x[label] = gradient_at_label(&s, e, weight);
}

/* Elements v .. v + n of a row as floats in t, capped; slope is written with a softcap only. */
static void load(const void *x, vp_dtype dtype, int64_t v, int64_t n, float cap, float *t,
                 float *slope)
{
    const float *from = vp_cpu_read(x, dtype, v, n, t);

    assert(n > 0 && n <= PIECE);
    if (cap > 0.0f)
        cap_all(from, t, slope, n, cap);
    else if (from != t)
        memcpy(t, from, (size_t)n * sizeof *t);
}

static void row_by_pieces(void *x, vp_dtype dtype, int64_t vocab, int32_t label, float cap,
                          double weight, float *row_loss)
{
    row_sums s = {.m = -INFINITY};
    float    t[PIECE], slope[PIECE], scale;

    for (int64_t v = 0; v < vocab; v += PIECE) {
        int64_t n = vp_min_i64(PIECE, vocab - v);

        greatest(vp_cpu_read(x, dtype, v, n, t), n, &s.m);
    }
    /* A cap is monotone but for roundings, which leave no more than some u of it in t - m > 0:
     * vp_exp_neg() bears that. */
    if (cap > 0.0f)
        cap_all(&s.m, &s.m, slope, 1, cap);
    load(x, dtype, label, 1, cap, &s.target, slope);
    for (int64_t v = 0; v < vocab; v += PIECE) {
        int64_t n = vp_min_i64(PIECE, vocab - v);

        load(x, dtype, v, n, cap, t, slope);
        exponentials(t, n, s.m, &s.sum);
    }
    *row_loss = loss_of(&s);
    scale     = (float)(weight / s.sum);
    for (int64_t v = 0; v < vocab; v += PIECE) {
        int64_t n      = vp_min_i64(PIECE, vocab - v);
        double  unused = 0.0;
        float   e      = 0.0f;

        load(x, dtype, v, n, cap, t, slope);
        exponentials(t, n, s.m, &unused);
        if (label >= v && label < v + n)
            e = t[label - v];
        scale_all(t, n, scale);
        if (label >= v && label < v + n)
            t[label - v] = gradient_at_label(&s, e, weight);
        if (cap > 0.0f)
            multiply(t, slope, n);
        if (dtype == VP_DTYPE_F32)
            memcpy((float *)x + v, t, (size_t)n * sizeof *t);
        else
            vp_cpu_written(x, dtype, v, n, t);
    }
}

void vp_cpu_cross_entropy(const vp_kernel_call *call)
{
    const int32_t    *labels   = call->operand[VP_CROSS_ENTROPY_LABELS];
    const vp_control *control  = call->operand[VP_CROSS_ENTROPY_CONTROL];
    float            *row_loss = call->operand[VP_CROSS_ENTROPY_ROW_LOSS];
    int64_t           rows = call->cross_entropy.rows, vocab = call->cross_entropy.vocab,
            stride = vp_row_stride(vocab, call->cross_entropy.padded);
    float  cap     = (float)call->cross_entropy_reals.softcap;
    double weight  = control->inv_n_targets * VP_LOSS_SCALE(control);

#pragma omp parallel for schedule(static) \
    num_threads(vp_cpu_threads()) if (rows * vocab > VP_CPU_SPAN)
    for (int64_t r = 0; r < rows; r++) {
        void *x = vp_cpu_at(call->operand[VP_CROSS_ENTROPY_LOGITS], call->dtype, r * stride);

        if (labels[r] == VP_IGNORE_LABEL) {
            memset(x, 0, (size_t)(vocab * vp_dtype_bytes(call->dtype)));
            row_loss[r] = 0.0f;
            continue;
        }
        assert(labels[r] >= 0 && labels[r] < vocab);
        if (call->dtype == VP_DTYPE_F32 && cap <= 0.0f)
            row_in_place(x, vocab, labels[r], weight, row_loss + r);
        else
            row_by_pieces(x, call->dtype, vocab, labels[r], cap, weight, row_loss + r);
    }
}

void vp_cpu_loss_sum(const vp_kernel_call *call)
{
    const float *row_loss = call->operand[VP_LOSS_SUM_ROW_LOSS];
    vp_control  *control  = call->operand[VP_LOSS_SUM_CONTROL];
    int64_t      rows     = call->token_rows.rows;

    for (int64_t r0 = 0; r0 < rows; r0 += VP_TILE_TOKENS) {
        double sum = 0.0;
        for (int64_t r = r0; r < rows && r < r0 + VP_TILE_TOKENS; r++)
            sum += (double)row_loss[r];
        control->loss_sum += sum;
    }
}
