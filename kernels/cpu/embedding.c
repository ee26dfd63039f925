/* kernels/cpu/embedding.c: table lookup plus learned positions, or either alone, and its gradient.
 *
 *     y[n] = scale table[token[n]] + positions[n mod seq + position_offset]
 *
 *     d_table[token[n]] += scale dy[n],  d_positions[n mod seq + position_offset] += dy[n]
 *
 * With skip_padding the count is over the sample's tokens other than position_offset - 1. Such a
 * token has that position, which learns nothing.
 *
 * Backward scatters: two tokens may name one row. Threads own columns, not rows, and each walks
 * the tokens in order, so every element of d_table is one sum in token order however many
 * threads run. Gradients are fp32 whatever the call's dtype. */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/operand.h"

#include "base/checked.h"

#include <assert.h>
#include <stddef.h>

enum { SLICE_COLS = 128 }; /* columns one work item of the backward owns */

VP_ALWAYS_INLINE void lookup(const void *table, const void *position, void *y, int64_t n,
                             float scale, vp_dtype dtype)
{
    if (position) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            vp_put(y, i, scale * vp_get(table, i, dtype) + vp_get(position, i, dtype), dtype);
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            vp_put(y, i, scale * vp_get(table, i, dtype), dtype);
    }
}

/* One row of y; position may be NULL. */
VP_PER_ISA(lookup_row,
           (const void *table, const void *position, void *y, int64_t n, float scale,
            vp_dtype dtype),
           (table, position, y, n, scale, dtype))
{
    VP_BY_DTYPE(dtype, D, lookup(table, position, y, n, scale, D));
}

VP_ALWAYS_INLINE void add_scaled(const void *dy, float *to, int64_t n, float scale, vp_dtype dtype)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        to[i] = to[i] + scale * vp_get(dy, i, dtype);
}

VP_PER_ISA(add_row, (const void *dy, float *to, int64_t n, float scale, vp_dtype dtype),
           (dy, to, n, scale, dtype))
{
    VP_BY_DTYPE(dtype, D, add_scaled(dy, to, n, scale, D));
}

/* The position of token n, after `counted` tokens of its sample. */
static int64_t position_after(int32_t token, int64_t counted, int64_t offset)
{
    return token == offset - 1 ? offset - 1 : counted + offset;
}

static int64_t count_before(const int32_t *tokens, int64_t n, int64_t seq, int64_t padding)
{
    int64_t counted = 0;

    for (int64_t i = n - n % seq; i < n; i++)
        counted += tokens[i] != padding;
    return counted;
}

void vp_cpu_embedding_fwd(const vp_kernel_call *call)
{
    const int32_t *tokens = call->operand[VP_EMBEDDING_FWD_TOKENS];
    const void    *table  = call->operand[VP_EMBEDDING_FWD_TABLE],
               *positions = call->operand[VP_EMBEDDING_FWD_POSITIONS];
    void   *y             = call->operand[VP_EMBEDDING_FWD_Y];
    int64_t rows = call->embedding.rows, cols = call->embedding.cols, seq = call->embedding.seq,
            offset = call->embedding.position_offset;
    float scale    = (float)call->embedding_reals.scale;

    assert(table || positions);
    assert(offset > 0 || !call->embedding.skip_padding); /* padding has the row before it */
#pragma omp parallel for schedule(static) \
    num_threads(vp_cpu_threads()) if (rows * cols > VP_CPU_SPAN)
    for (int64_t n = 0; n < rows; n++) {
        int64_t p =
            call->embedding.skip_padding
                ? position_after(tokens[n], count_before(tokens, n, seq, offset - 1), offset)
                : n % seq + offset;
        assert(!table || (tokens[n] >= 0 && tokens[n] < call->embedding.vocab));
        assert(p >= 0 && p < seq + offset);
        const void *position = vp_cpu_at(positions, call->dtype, p * cols);
        const void *row      = table ? vp_cpu_at(table, call->dtype, tokens[n] * cols) : position;
        void       *to       = vp_cpu_at(y, call->dtype, n * cols);

        if (table && (positions || scale != 1.0f))
            lookup_row(row, position, to, cols, scale, call->dtype);
        else
            memcpy(to, row, (size_t)(cols * vp_dtype_bytes(call->dtype)));
    }
}

void vp_cpu_embedding_bwd(const vp_kernel_call *call)
{
    const int32_t *tokens  = call->operand[VP_EMBEDDING_BWD_TOKENS];
    const void    *dy      = call->operand[VP_EMBEDDING_BWD_DY];
    float         *d_table = call->operand[VP_EMBEDDING_BWD_D_TABLE],
          *d_positions     = call->operand[VP_EMBEDDING_BWD_D_POSITIONS];
    int64_t rows = call->embedding_bwd.rows, cols = call->embedding_bwd.cols,
            seq = call->embedding_bwd.seq, offset = call->embedding_bwd.position_offset;
    bool    skip_padding = call->embedding_bwd.skip_padding != 0;
    int64_t skip         = call->embedding_bwd.skip_row - 1; /* -1: none */
    float   scale        = (float)call->embedding_reals.scale;

    assert(d_table || d_positions);
    assert(offset > 0 || !skip_padding);
#pragma omp parallel for schedule(static) \
    num_threads(vp_cpu_threads()) if (rows * cols > VP_CPU_SPAN)
    for (int64_t c = 0; c < cols; c += SLICE_COLS) {
        int64_t width = vp_min_i64(SLICE_COLS, cols - c), counted = 0;
        for (int64_t n = 0; n < rows; n++) {
            const void *row = vp_cpu_at(dy, call->dtype, n * cols + c);
            int64_t     p   = n % seq + offset;

            if (skip_padding) {
                counted = n % seq == 0 ? 0 : counted;
                p       = position_after(tokens[n], counted, offset);
                counted += p >= offset;
            }
            if (d_table && tokens[n] != skip)
                add_row(row, d_table + tokens[n] * cols + c, width, scale, call->dtype);
            if (d_positions && !(skip_padding && p < offset))
                add_row(row, d_positions + p * cols + c, width, 1.0f, call->dtype);
        }
    }
}
