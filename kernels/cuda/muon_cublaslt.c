/* kernels/cuda/muon_cublaslt.c: Muon (Jordan 2024, kellerjordan.github.io/posts/muon; Liu et al.
 * 2025, arXiv:2502.16982), the order of kernels/cpu/muon.c:
 *
 *     m = momentum m + (1 - momentum) g,  X = momentum m + (1 - momentum) g,  X = X / max(|X|,
 *     1e-7)
 *     5 times:  A = X X',  B = a I + b A + c A A,  X = B X
 *     p -= lr wd p,  p -= lr 0.2 sqrt(max(rows, cols)) X
 *
 * A matrix that is higher than wide takes A = X'X and multiplies from the right: the smaller
 * square. Everything is fp32, the products too. Scratch: X and the next X, rows cols each, then
 * A and B, s^2 each, s the shorter side. The workspace is first the partial sums of |X|^2, then
 * cuBLASLt's. */
#include "kernels/cuda/cuda_internal.h"

#include "base/checked.h"
#include "plan/workspace.h"

#include <assert.h>

enum { N_STEPS = 5 };

static const float poly_a = 3.4445f, poly_b = -4.7750f, poly_c = 2.0315f;

/* next = one Newton-Schulz step of x; a and b are size by size. */
static vp_status newton_schulz(vp_cuda *cuda, const vp_kernel_call *call, const float *x,
                               float *next, float *a, float *b, vp_err *err)
{
    int64_t      rows = call->muon.rows, cols = call->muon.cols;
    bool         wide = rows <= cols;
    int64_t      size = wide ? rows : cols, rest = wide ? cols : rows;
    vp_cuda_gemm gram    = {.m            = size,
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
                            .ab           = VP_DTYPE_F32,
                            .c_dtype      = VP_DTYPE_F32,
                            .alpha        = 1.0f};
    vp_cuda_gemm square  = {.m       = size,
                            .n       = size,
                            .k       = size,
                            .a       = a,
                            .lda     = size,
                            .b       = a,
                            .ldb     = size,
                            .c       = b,
                            .ldc     = size,
                            .ab      = VP_DTYPE_F32,
                            .c_dtype = VP_DTYPE_F32,
                            .alpha   = poly_c,
                            .beta    = 1.0f};
    vp_cuda_gemm product = {.m       = rows,
                            .n       = cols,
                            .k       = size,
                            .a       = wide ? b : x,
                            .lda     = wide ? size : cols,
                            .b       = wide ? x : b,
                            .ldb     = cols,
                            .c       = next,
                            .ldc     = cols,
                            .ab      = VP_DTYPE_F32,
                            .c_dtype = VP_DTYPE_F32,
                            .alpha   = 1.0f};
    vp_status    st      = VP_OK;

    assert(x != next && size <= rest);
    VP_TRY(vp_cuda_gemm_run(cuda, &gram, call->workspace, call->workspace_bytes, err));
    VP_CUDA(vp_cuda_muon_polynomial(a, b, size, poly_a, poly_b, cuda->stream), "muon");
    VP_TRY(vp_cuda_gemm_run(cuda, &square, call->workspace, call->workspace_bytes, err));
    VP_TRY(vp_cuda_gemm_run(cuda, &product, call->workspace, call->workspace_bytes, err));
out:
    return st;
}

vp_status vp_cuda_muon_update(vp_cuda *cuda, const vp_kernel_call *call, vp_err *err)
{
    int64_t count = call->muon.rows * call->muon.cols,
            size  = vp_min_i64(call->muon.rows, call->muon.cols);
    float *x = call->operand[VP_MUON_SCRATCH], *next = x + count, *a = next + count,
          *b           = a + size * size;
    double   *partials = call->workspace;
    vp_status st       = VP_OK;

    assert(call->workspace); /* run() looked at its size */
    VP_CUDA(vp_cuda_muon_momentum(call, x, partials, cuda->stream), "muon");
    VP_CUDA(vp_cuda_muon_normalise(x, count, partials, cuda->stream), "muon");
    for (int step = 0; step < N_STEPS; step++) {
        float *swap = x;

        VP_TRY(newton_schulz(cuda, call, x, next, a, b, err));
        x    = next;
        next = swap;
    }
    VP_CUDA(vp_cuda_muon_apply(call, x, cuda->stream), "muon");
out:
    return st;
}
