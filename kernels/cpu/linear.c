/* kernels/cpu/linear.c: y = x w + b and its gradients.
 *
 *     y  = x w + b        dx = dy w'        dw = x' dy        db = sum over rows of dy
 *
 * w is (in, out) or (out, in): the GEMM reads it transposed, nothing is copied. dw and db are
 * reductions over tokens: tile after tile of 256 rows, in order, into the accumulator. */
#include "kernels/cpu/cpu_internal.h"

#include "core/checked.h"

#include <stddef.h>

enum { BIAS_COLS = 256 }; /* columns of db one work item owns */

void vp_cpu_linear_fwd(const vp_kernel_call *call)
{
    int64_t rows = call->ints[0], in = call->ints[1], out = call->ints[2];
    bool    out_in = call->ints[3] == VP_WEIGHT_OUT_IN;
    vp_gemm g      = {
        .m = rows, .n = out, .k = in,
        .a = call->operand[0], .lda = in,
        .b = call->operand[1], .ldb = out_in ? in : out, .b_transposed = out_in,
        .c = call->operand[3], .ldc = out, .alpha = 1.0f,
    };

    vp_cpu_gemm(&g, in, call->operand[2]);
}

void vp_cpu_linear_bwd_input(const vp_kernel_call *call)
{
    int64_t rows = call->ints[0], in = call->ints[1], out = call->ints[2];
    bool    out_in = call->ints[3] == VP_WEIGHT_OUT_IN;
    vp_gemm g      = {
        .m = rows, .n = in, .k = out,
        .a = call->operand[0], .lda = out,
        .b = call->operand[1], .ldb = out_in ? in : out, .b_transposed = !out_in,
        .c = call->operand[2], .ldc = in, .alpha = 1.0f, .add = call->accumulate,
    };

    vp_cpu_gemm(&g, out, NULL);
}

VP_PER_ISA(sum_rows, (const float *x, int64_t ld, int64_t rows, int64_t cols, float *sum),
           (x, ld, rows, cols, sum))
{
    for (int64_t r = 0; r < rows; r++) {
#pragma omp simd
        for (int64_t c = 0; c < cols; c++)
            sum[c] += x[r * ld + c];
    }
}

/* db of columns [col, col + cols), every tile of rows in order. */
static void bias_gradient(const float *dy, float *db, int64_t rows, int64_t out, int64_t col,
                          int64_t cols, bool accumulate)
{
    bool add = accumulate;

    if (!add && rows == 0)
        memset(db + col, 0, (size_t)cols * sizeof(float));
    for (int64_t r = 0; r < rows; r += VP_TILE_TOKENS) {
        float sum[BIAS_COLS] = {0};

        sum_rows(dy + r * out + col, out, vp_min_i64(VP_TILE_TOKENS, rows - r), cols, sum);
        for (int64_t c = 0; c < cols; c++)
            db[col + c] = add ? db[col + c] + sum[c] : sum[c];
        add = true;
    }
}

void vp_cpu_linear_bwd_weight(const vp_kernel_call *call)
{
    const float *x = call->operand[0], *dy = call->operand[1];
    float       *dw = call->operand[2], *db = call->operand[3];
    int64_t      rows = call->ints[0], in = call->ints[1], out = call->ints[2];
    bool         out_in = call->ints[3] == VP_WEIGHT_OUT_IN;
    vp_gemm      g      = {
        .m = out_in ? out : in, .n = out_in ? in : out, .k = rows,
        .a = out_in ? dy : x, .lda = out_in ? out : in, .a_transposed = true,
        .b = out_in ? x : dy, .ldb = out_in ? in : out,
        .c = dw, .ldc = out_in ? in : out, .alpha = 1.0f, .add = call->accumulate,
    };

    vp_cpu_gemm(&g, VP_TILE_TOKENS, NULL);
    if (!db)
        return;
#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (rows * out > VP_CPU_SPAN)
    for (int64_t col = 0; col < out; col += BIAS_COLS)
        bias_gradient(dy, db, rows, out, col, vp_min_i64(BIAS_COLS, out - col), call->accumulate);
}
