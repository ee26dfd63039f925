/* kernels/cpu/linear.c: y = x w + b and its gradients.
 *
 *     y  = x w + b (+ added)    dx = dy w'        dw = x' dy        db = sum over rows of dy
 *
 * w is (in, out) or (out, in): the GEMM reads it transposed, nothing is copied. dw and db are
 * reductions over tokens: tile after tile of 256 rows, in order, into the accumulator; a bf16
 * gradient into fp32 from zero, what was there last, rounded once. fp32
 * products are the BLAS library's (gemm.c), those of 16 bits our own (gemm_bf16.h), where any split of
 * k at whole tiles is the same sum. */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/gemm_bf16.h"
#include "kernels/cpu/operand.h"

#include "base/checked.h"

#include <assert.h>
#include <stddef.h>

enum { BIAS_COLS = 256 }; /* columns of db one work item owns */

/* The product in the call's dtype. c_f32: C is fp32 in any call. bias: n elements of the
 * call's dtype, or NULL. */
static void multiply(const vp_kernel_call *call, const vp_gemm *g, int64_t k_tile, const void *a,
                     const void *b, void *c, bool c_f32, const void *bias)
{
    assert(a && b && c && c != a && c != b); /* a product has no place to be summed on an input */
    if (call->dtype != VP_DTYPE_F32) {
        vp_gemm_bf16 h = {
            .m            = g->m,
            .n            = g->n,
            .k            = g->k,
            .a            = a,
            .lda          = g->lda,
            .a_transposed = g->a_transposed,
            .b            = b,
            .ldb          = g->ldb,
            .b_transposed = g->b_transposed,
            .c            = c,
            .ldc          = g->ldc,
            .f16          = call->dtype == VP_DTYPE_F16,
            .c_f32        = c_f32,
            .add          = g->add,
        };
        vp_cpu_gemm_bf16(&h, bias);
    } else {
        vp_gemm f = *g;

        f.a     = a;
        f.b     = b;
        f.c     = c;
        f.alpha = 1.0f;
        vp_cpu_gemm(&f, k_tile, bias);
    }
}

/* y from its operands; adds: onto what y holds. */
static void forward(const vp_kernel_call *call, const void *x, const void *w, const void *b,
                    void *y, bool adds)
{
    int64_t rows = call->linear.rows, in = call->linear.in, out = call->linear.out;
    bool    out_in = call->linear.layout == VP_WEIGHT_OUT_IN;
    vp_gemm g      = {.m            = rows,
                      .n            = out,
                      .k            = in,
                      .lda          = in,
                      .ldb          = out_in ? in : out,
                      .b_transposed = out_in,
                      .ldc          = vp_row_stride(out, call->linear.padded),
                      .add          = adds};

    multiply(call, &g, in, x, w, y, false, b);
}

void vp_cpu_linear_fwd(const vp_kernel_call *call)
{
    forward(call, call->operand[VP_LINEAR_FWD_X], call->operand[VP_LINEAR_FWD_W],
            call->operand[VP_LINEAR_FWD_B], call->operand[VP_LINEAR_FWD_Y], false);
}

void vp_cpu_linear_add_fwd(const vp_kernel_call *call)
{
    void          *y    = call->operand[VP_LINEAR_ADD_FWD_Y];
    vp_kernel_call copy = {
        .kernel   = VP_K_COPY,
        .dtype    = call->dtype,
        .operand  = {[VP_COPY_X] = call->operand[VP_LINEAR_ADD_FWD_ADDED], [VP_COPY_Y] = y},
        .elements = {.count = vp_mul(call->linear.rows, call->linear.out)}};

    vp_cpu_copy(&copy);
    forward(call, call->operand[VP_LINEAR_ADD_FWD_X], call->operand[VP_LINEAR_ADD_FWD_W],
            call->operand[VP_LINEAR_ADD_FWD_B], y, true);
}

void vp_cpu_linear_bwd_input(const vp_kernel_call *call)
{
    int64_t rows = call->linear.rows, in = call->linear.in, out = call->linear.out;
    bool    out_in = call->linear.layout == VP_WEIGHT_OUT_IN;
    vp_gemm g      = {.m            = rows,
                      .n            = in,
                      .k            = out,
                      .lda          = vp_row_stride(out, call->linear.padded),
                      .ldb          = out_in ? in : out,
                      .b_transposed = !out_in,
                      .ldc          = in,
                      .add          = call->accumulate};

    multiply(call, &g, out, call->operand[VP_LINEAR_BWD_INPUT_DY],
             call->operand[VP_LINEAR_BWD_INPUT_W], call->operand[VP_LINEAR_BWD_INPUT_DX], false,
             NULL);
}

VP_ALWAYS_INLINE void add_columns(const void *x, int64_t cols, float *sum, vp_dtype dtype)
{
#pragma omp simd
    for (int64_t c = 0; c < cols; c++)
        sum[c] += vp_get(x, c, dtype);
}

/* From element `first` of x on: rows that are ld elements apart. */
VP_PER_ISA(sum_rows,
           (const void *x, int64_t first, int64_t ld, int64_t rows, int64_t cols, float *sum,
            vp_dtype dtype),
           (x, first, ld, rows, cols, sum, dtype))
{
    for (int64_t r = 0; r < rows; r++) {
        const void *row = vp_cpu_at(x, dtype, first + r * ld);

        VP_BY_DTYPE(dtype, D, add_columns(row, cols, sum, D));
    }
}

/* db of columns [col, col + cols), every tile of rows in order. */
static void bias_gradient(const vp_kernel_call *call, int64_t col, int64_t cols)
{
    const void *dy   = call->operand[VP_LINEAR_BWD_WEIGHT_DY];
    void       *db   = call->operand[VP_LINEAR_BWD_WEIGHT_DB];
    int64_t     rows = call->linear.rows, out = call->linear.out,
            stride = vp_row_stride(out, call->linear.padded);
    bool  bf16     = call->dtype == VP_DTYPE_BF16_GRADS;
    float total[BIAS_COLS];

    assert(cols > 0 && cols <= BIAS_COLS && col + cols <= out);
    for (int64_t c = 0; c < cols; c++)
        total[c] = call->accumulate && !bf16 ? vp_get(db, col + c, VP_DTYPE_F32) : 0.0f;
    for (int64_t r = 0; r < rows; r += VP_TILE_TOKENS) {
        float sum[BIAS_COLS] = {0};

        sum_rows(dy, r * stride + col, stride, vp_min_i64(VP_TILE_TOKENS, rows - r), cols, sum,
                 call->dtype);
        for (int64_t c = 0; c < cols; c++)
            total[c] += sum[c];
    }
    for (int64_t c = 0; c < cols; c++)
        vp_put(db, col + c,
               total[c] + (call->accumulate && bf16 ? vp_get(db, col + c, VP_DTYPE_BF16) : 0.0f),
               bf16 ? VP_DTYPE_BF16 : VP_DTYPE_F32);
}

void vp_cpu_linear_bwd_weight(const vp_kernel_call *call)
{
    const void *x  = call->operand[VP_LINEAR_BWD_WEIGHT_X],
               *dy = call->operand[VP_LINEAR_BWD_WEIGHT_DY];
    int64_t rows = call->linear.rows, in = call->linear.in, out = call->linear.out;
    int64_t ld_dy  = vp_row_stride(out, call->linear.padded);
    bool    out_in = call->linear.layout == VP_WEIGHT_OUT_IN;
    vp_gemm g      = {.m            = out_in ? out : in,
                      .n            = out_in ? in : out,
                      .k            = rows,
                      .lda          = out_in ? ld_dy : in,
                      .a_transposed = true,
                      .ldb          = out_in ? in : ld_dy,
                      .ldc          = out_in ? in : out,
                      .add          = call->accumulate};

    multiply(call, &g, VP_TILE_TOKENS, out_in ? dy : x, out_in ? x : dy,
             call->operand[VP_LINEAR_BWD_WEIGHT_DW], call->dtype != VP_DTYPE_BF16_GRADS, NULL);
    if (!call->operand[VP_LINEAR_BWD_WEIGHT_DB])
        return;
#pragma omp parallel for schedule(static) \
    num_threads(vp_cpu_threads()) if (rows * out > VP_CPU_SPAN)
    for (int64_t col = 0; col < out; col += BIAS_COLS)
        bias_gradient(call, col, vp_min_i64(BIAS_COLS, out - col));
}
