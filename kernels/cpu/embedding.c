/* kernels/cpu/embedding.c: table lookup plus learned positions, and its gradient.
 *
 *     y[n] = table[token[n]] + positions[n mod seq]
 *
 * Backward scatters: two tokens may name one row. Threads own columns, not rows, and each walks the
 * tokens in order, so every element of d_table is one sum in token order however many threads run. */
#include "kernels/cpu/cpu_internal.h"

#include "core/checked.h"

enum { SLICE_COLS = 128 }; /* columns one work item of the backward owns */

VP_PER_ISA(add_row, (const float *x, const float *y, float *z, int64_t n), (x, y, z, n))
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        z[i] = x[i] + y[i];
}

void vp_cpu_embedding_fwd(const vp_kernel_call *call)
{
    const int32_t *tokens = call->operand[0];
    const float   *table = call->operand[1], *positions = call->operand[2];
    float         *y = call->operand[3];
    int64_t        rows = call->ints[0], cols = call->ints[1], seq = call->ints[3];

#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (rows * cols > VP_CPU_SPAN)
    for (int64_t n = 0; n < rows; n++) {
        const float *row = table + tokens[n] * cols;
        if (positions)
            add_row(row, positions + n % seq * cols, y + n * cols, cols);
        else
            memcpy(y + n * cols, row, (size_t)cols * sizeof(float));
    }
}

void vp_cpu_embedding_bwd(const vp_kernel_call *call)
{
    const int32_t *tokens = call->operand[0];
    const float   *dy = call->operand[1];
    float         *d_table = call->operand[2], *d_positions = call->operand[3];
    int64_t        rows = call->ints[0], cols = call->ints[1], seq = call->ints[3];

#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (rows * cols > VP_CPU_SPAN)
    for (int64_t c = 0; c < cols; c += SLICE_COLS) {
        int64_t width = vp_min_i64(SLICE_COLS, cols - c);
        for (int64_t n = 0; n < rows; n++) {
            const float *row = dy + n * cols + c;
            float       *to  = d_table + tokens[n] * cols + c;

            add_row(to, row, to, width);
            if (d_positions) {
                to = d_positions + n % seq * cols + c;
                add_row(to, row, to, width);
            }
        }
    }
}
