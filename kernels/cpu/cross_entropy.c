/* kernels/cpu/cross_entropy.c: softmax cross-entropy with its gradient in the logits' place.
 *
 *     loss[r] = log(sum_v exp(x[v] - m)) - (x[label] - m),  m = max_v x[v]
 *     x[v]   <- (exp(x[v] - m) / sum - [v = label]) * inv_n_targets
 *
 * Three passes over a row (maximum, exponentials, scaling). A row of 50 257 floats stays in a core's
 * L2 cache from the first to the last, so memory sees one read and one write. */
#include "kernels/cpu/cpu_internal.h"

#include <assert.h>
#include <math.h>

/* The sum of exponentials is taken in pieces of this many, each in float lanes, added in double: its
 * rounding error does not grow with the vocabulary. */
enum { PIECE = 1024 };

VP_PER_ISA(one_row, (float *x, int64_t vocab, int32_t label, double inv_n_targets, float *row_loss),
           (x, vocab, label, inv_n_targets, row_loss))
{
    float  m      = vp_max(x, vocab);
    float  target = x[label];
    double sum    = 0.0;
    float  scale;

    for (int64_t v0 = 0; v0 < vocab; v0 += PIECE) {
        int64_t n     = vocab - v0 < PIECE ? vocab - v0 : PIECE;
        float  *piece = x + v0;

#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            piece[i] = vp_exp_neg(piece[i] - m);
        sum += (double)vp_sum(piece, n);
    }
    *row_loss = (float)(log(sum) - ((double)target - (double)m));
    scale     = (float)(inv_n_targets / sum);
    target    = (float)(((double)x[label] / sum - 1.0) * inv_n_targets);
#pragma omp simd
    for (int64_t v = 0; v < vocab; v++)
        x[v] *= scale;
    x[label] = target;
}

void vp_cpu_cross_entropy(const vp_kernel_call *call)
{
    float            *logits   = call->operand[0];
    const int32_t    *labels   = call->operand[1];
    const vp_control *control  = call->operand[2];
    float            *row_loss = call->operand[3];
    int64_t           rows = call->ints[0], vocab = call->ints[1];

#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (rows * vocab > VP_CPU_SPAN)
    for (int64_t r = 0; r < rows; r++) {
        if (labels[r] == VP_IGNORE_LABEL) {
            memset(logits + r * vocab, 0, (size_t)vocab * sizeof(float));
            row_loss[r] = 0.0f;
        } else {
            assert(labels[r] >= 0 && labels[r] < vocab);
            one_row(logits + r * vocab, vocab, labels[r], control->inv_n_targets, row_loss + r);
        }
    }
}

void vp_cpu_loss_sum(const vp_kernel_call *call)
{
    const float *row_loss = call->operand[0];
    vp_control  *control  = call->operand[1];
    int64_t      rows     = call->ints[0];

    for (int64_t r0 = 0; r0 < rows; r0 += VP_TILE_TOKENS) {
        double sum = 0.0;
        for (int64_t r = r0; r < rows && r < r0 + VP_TILE_TOKENS; r++)
            sum += (double)row_loss[r];
        control->loss_sum += sum;
    }
}
