/* kernels/cpu/rope.c: rotary position embedding (Su et al. 2021, arXiv:2104.09864, section 3.4.2),
 * halves paired.
 *
 *     y[i]     = x[i] cos - x[i + n] sin
 *     y[i + n] = x[i + n] cos + x[i] sin      0 <= i < n = rotary_dim / 2, angle i of the row's
 *     position
 *
 * for every head that turns; what is behind rotary_dim and heads that do not turn are copied.
 * Position is the row modulo seq. angles: cosines (seq, n), then sines. Backward turns by the
 * negative angle: the same with sin negated, which is exact. Rows are independent and pairs of
 * elements are read before they are written, so y may be x. */
#include "kernels/cpu/bf16_span.h"
#include "kernels/cpu/cpu_internal.h"

#include "base/checked.h"

#include <assert.h>

enum { PAIRS = 256 }; /* of a head that are widened at a time */

/* How heads lie in a row: n_groups groups, group_elements apart; of each the first n_turning
 * heads turn. */
typedef struct shape {
    int64_t row_elements, n_groups, group_elements, n_turning, d, half;
    float   sign;
} shape;

static shape shape_of(const vp_kernel_call *call)
{
    int64_t heads = call->rope.heads, kv_heads = call->rope.kv_heads, d = call->rope.head_dim;
    shape   s = {.n_groups = 1,
                 .d        = d,
                 .half     = call->rope.rotary_dim / 2,
                 .sign     = call->kernel == VP_K_ROPE_BWD ? -1.0f : 1.0f};

    assert(call->rope.rotary_dim % 2 == 0 && call->rope.rotary_dim <= d);
    switch ((vp_qkv_layout)call->rope.layout) {
    case VP_QKV_PACKED:
        s.group_elements = (heads + 2 * kv_heads) * d;
        s.n_turning      = heads + kv_heads;
        break;
    case VP_QKV_PER_HEAD:
        assert(kv_heads == heads);
        s.n_groups       = heads;
        s.group_elements = 3 * d;
        s.n_turning      = 2;
        break;
    case VP_QKV_APART:
        s.group_elements = heads * d;
        s.n_turning      = heads;
        break;
    }
    assert(s.group_elements % d == 0 && s.n_turning * d <= s.group_elements);
    assert(s.group_elements > 0);
    s.row_elements = s.n_groups * s.group_elements;
    return s;
}

/* n pairs, both halves: y may be x. */
VP_ALWAYS_INLINE void turn_pairs(const float *x0, const float *x1, const float *cosine,
                                 const float *sine, float sign, float *y0, float *y1, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float a = x0[i], b = x1[i], c = cosine[i], s = sign * sine[i];

        y0[i] = a * c - b * s;
        y1[i] = b * c + a * s;
    }
}

VP_PER_ISA(turn_head,
           (const float *x, const float *cosine, const float *sine, float sign, float *y,
            int64_t half),
           (x, cosine, sine, sign, y, half))
{
    turn_pairs(x, x + half, cosine, sine, sign, y, y + half, half);
}

VP_PER_ISA(turn_half_head,
           (const uint16_t *x, const float *cosine, const float *sine, float sign, uint16_t *y,
            int64_t half, vp_dtype dtype),
           (x, cosine, sine, sign, y, half, dtype))
{
    float a[PAIRS], b[PAIRS];

    for (int64_t i = 0; i < half; i += PAIRS) {
        int64_t n = half - i < PAIRS ? half - i : PAIRS;

        vp_half_widen(x + i, a, n, dtype);
        vp_half_widen(x + half + i, b, n, dtype);
        turn_pairs(a, b, cosine + i, sine + i, sign, a, b, n);
        vp_half_round(a, y + i, n, dtype);
        vp_half_round(b, y + half + i, n, dtype);
    }
}

static void turn_row(const shape *s, vp_dtype dtype, const char *x, const float *cosine,
                     const float *sine, char *y)
{
    int64_t bytes = vp_dtype_bytes(dtype);

    for (int64_t g = 0; g < s->n_groups; g++)
        for (int64_t at = 0; at < s->group_elements; at += s->d) {
            int64_t     e      = g * s->group_elements + at;
            int64_t     n_turn = at < s->n_turning * s->d ? 2 * s->half : 0;
            const char *x_head = x + e * bytes;
            char       *y_head = y + e * bytes;

            if (n_turn > 0 && dtype != VP_DTYPE_F32)
                turn_half_head((const uint16_t *)(const void *)x_head, cosine, sine, s->sign,
                               (uint16_t *)(void *)y_head, s->half, dtype);
            else if (n_turn > 0)
                turn_head((const float *)(const void *)x_head, cosine, sine, s->sign,
                          (float *)(void *)y_head, s->half);
            if (x != y)
                memcpy(y_head + n_turn * bytes, x_head + n_turn * bytes,
                       (size_t)((s->d - n_turn) * bytes));
        }
}

static void turn(const vp_kernel_call *call, const char *x, const float *angles, char *y)
{
    int64_t seq = call->rope.seq, n_rows = call->rope.batch * seq;
    shape   s         = shape_of(call);
    int64_t row_bytes = s.row_elements * vp_dtype_bytes(call->dtype);
    int64_t rows      = vp_max_i64(1, VP_CPU_SPAN / s.row_elements); /* of an item */
    int64_t n_items   = vp_ceil_div(n_rows, rows);

#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n_items > 1)
    for (int64_t item = 0; item < n_items; item++)
        for (int64_t r = item * rows; r < vp_min_i64(n_rows, (item + 1) * rows); r++) {
            const float *cosine = angles + r % seq * s.half;

            turn_row(&s, call->dtype, x + r * row_bytes, cosine, cosine + seq * s.half,
                     y + r * row_bytes);
        }
}

void vp_cpu_rope_fwd(const vp_kernel_call *call)
{
    turn(call, call->operand[VP_ROPE_FWD_X], call->operand[VP_ROPE_FWD_ANGLES],
         call->operand[VP_ROPE_FWD_Y]);
}

void vp_cpu_rope_bwd(const vp_kernel_call *call)
{
    turn(call, call->operand[VP_ROPE_BWD_DY], call->operand[VP_ROPE_BWD_ANGLES],
         call->operand[VP_ROPE_BWD_DX]);
}
