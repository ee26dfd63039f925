/* kernels/cpu/elementwise.c: kernels whose output element i reads input elements i only: add,
 * dropout, scale, copy, zero. Each runs in spans of VP_CPU_SPAN elements, one thread per span at a
 * time; any split gives the same bits, and an output may share its input's place. */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/operand.h"
#include "kernels/cpu/philox.h"

#include "base/checked.h"

#include <assert.h>

VP_PER_ISA(sum_of_two, (const float *x, const float *y, float *z, int64_t n), (x, y, z, n))
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        z[i] = x[i] + y[i];
}

VP_PER_ISA(product, (const float *x, const float *y, float *z, int64_t n), (x, y, z, n))
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        z[i] = x[i] * y[i];
}

void vp_cpu_add(const vp_kernel_call *call)
{
    int64_t count = call->elements.count, n_spans = vp_cpu_n_spans(count),
            piece = vp_cpu_piece(call->dtype);

#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n_spans > 1)
    for (int64_t s = 0; s < n_spans; s++) {
        int64_t end = s * VP_CPU_SPAN + vp_cpu_span_len(count, s);

        for (int64_t i = s * VP_CPU_SPAN; i < end; i += piece) {
            float   x[VP_CPU_PIECE], y[VP_CPU_PIECE], z[VP_CPU_PIECE];
            int64_t n = vp_min_i64(piece, end - i);

            sum_of_two(vp_cpu_read(call->operand[VP_ADD_X], call->dtype, i, n, x),
                       vp_cpu_read(call->operand[VP_ADD_Y], call->dtype, i, n, y),
                       vp_cpu_place(call->operand[VP_ADD_Z], call->dtype, i, z), n);
            vp_cpu_written(call->operand[VP_ADD_Z], call->dtype, i, n, z);
        }
    }
}

/* y = x mask / (1 - p). The element's counter is its place in the global batch, so its own backward
 * (the same call on the gradient) draws the same mask and nothing is saved. */
void vp_cpu_dropout(const vp_kernel_call *call)
{
    const void *x     = call->operand[VP_DROPOUT_X];
    void       *y     = call->operand[VP_DROPOUT_Y];
    int64_t     batch = call->dropout.batch, count = call->dropout.count,
            n_spans   = vp_cpu_n_spans(count);
    double        p   = call->dropout_reals.p;
    vp_philox_key key = vp_philox_key_of(&call->rng);

#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (batch * n_spans > 1)
    for (int64_t item = 0; item < batch * n_spans; item++) {
        int64_t sample = item / n_spans, span = item % n_spans;
        int64_t first = span * VP_CPU_SPAN, end = first + vp_cpu_span_len(count, span);

        for (int64_t i = first; i < end; i += VP_CPU_PIECE) {
            float   mask[VP_CPU_PIECE], xs[VP_CPU_PIECE], ys[VP_CPU_PIECE];
            int64_t n = vp_min_i64(VP_CPU_PIECE, end - i), at = sample * count + i;

            vp_philox_mask(key, (uint64_t)(call->rng.first_sample + sample), (uint64_t)(i / 4), n,
                           p, mask);
            product(vp_cpu_read(x, call->dtype, at, n, xs), mask,
                    vp_cpu_place(y, call->dtype, at, ys), n);
            vp_cpu_written(y, call->dtype, at, n, ys);
        }
    }
}

VP_PER_ISA(multiple, (const float *x, float factor, float *y, int64_t n), (x, factor, y, n))
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = factor * x[i];
}

void vp_cpu_scale(const vp_kernel_call *call)
{
    int64_t count = call->elements.count, n_spans = vp_cpu_n_spans(count);

#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n_spans > 1)
    for (int64_t s = 0; s < n_spans; s++) {
        int64_t end = s * VP_CPU_SPAN + vp_cpu_span_len(count, s);

        for (int64_t i = s * VP_CPU_SPAN; i < end; i += VP_CPU_PIECE) {
            float   x[VP_CPU_PIECE], y[VP_CPU_PIECE];
            int64_t n = vp_min_i64(VP_CPU_PIECE, end - i);

            multiple(vp_cpu_read(call->operand[VP_SCALE_X], call->dtype, i, n, x),
                     (float)call->scale_reals.factor,
                     vp_cpu_place(call->operand[VP_SCALE_Y], call->dtype, i, y), n);
            vp_cpu_written(call->operand[VP_SCALE_Y], call->dtype, i, n, y);
        }
    }
}

void vp_cpu_copy(const vp_kernel_call *call)
{
    const char *x     = call->operand[VP_COPY_X];
    char       *y     = call->operand[VP_COPY_Y];
    int64_t     bytes = vp_dtype_bytes(call->dtype);
    int64_t     count = call->elements.count, n_spans = vp_cpu_n_spans(count);

    assert(x == y || x + count * bytes <= y || y + count * bytes <= x);
    if (x == y)
        return;
#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n_spans > 1)
    for (int64_t s = 0; s < n_spans; s++)
        memcpy(y + s * VP_CPU_SPAN * bytes, x + s * VP_CPU_SPAN * bytes,
               (size_t)(vp_cpu_span_len(count, s) * bytes));
}

/* Of a gradient's dtype. */
void vp_cpu_zero(const vp_kernel_call *call)
{
    char   *y     = call->operand[VP_ZERO_Y];
    int64_t bytes = call->dtype == VP_DTYPE_BF16_GRADS ? 2 : 4;
    int64_t count = call->elements.count, n_spans = vp_cpu_n_spans(count);

#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n_spans > 1)
    for (int64_t s = 0; s < n_spans; s++)
        memset(y + s * VP_CPU_SPAN * bytes, 0, (size_t)(vp_cpu_span_len(count, s) * bytes));
}

VP_ALWAYS_INLINE void add_to_gradient(const float *x, void *g, int64_t n, bool add, vp_dtype dtype)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        vp_put(g, i, add ? x[i] + vp_get(g, i, dtype) : x[i], dtype);
}

VP_PER_ISA(grad_add, (const float *x, void *g, int64_t n, bool add, bool bf16),
           (x, g, n, add, bf16))
{
    if (bf16)
        add_to_gradient(x, g, n, add, VP_DTYPE_BF16);
    else
        add_to_gradient(x, g, n, add, VP_DTYPE_F32);
}

void vp_cpu_grad_add(const vp_kernel_call *call)
{
    const float *x     = call->operand[VP_GRAD_ADD_X];
    char        *g     = call->operand[VP_GRAD_ADD_G];
    bool         bf16  = call->dtype == VP_DTYPE_BF16_GRADS;
    int64_t      count = call->elements.count, n_spans = vp_cpu_n_spans(count);

#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n_spans > 1)
    for (int64_t s = 0; s < n_spans; s++) {
        int64_t i = s * VP_CPU_SPAN;
        grad_add(x + i, g + i * (bf16 ? 2 : 4), vp_cpu_span_len(count, s), call->accumulate, bf16);
    }
}
