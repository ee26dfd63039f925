/* kernels/cpu/operand.h: operands whose elements are fp32, bf16 or fp16, as the call says, read and
 * written as floats.
 *
 * One at a time, where a kernel walks a row or a column: vp_get(), vp_put(). Their dtype is a
 * constant at each place that inlines them (VP_BY_DTYPE), so a loop over them is one loop on floats,
 * one on bf16 or one on fp16, and the mathematics is written once.
 *
 * Or a piece at a time, where an element costs much or is needed more than once:
 *     float        a[VP_CPU_PIECE], b[VP_CPU_PIECE];
 *     const float *x = vp_cpu_read(call->operand[VP_COPY_X], call->dtype, i, n, a);
 *     float       *y = vp_cpu_place(call->operand[VP_COPY_Y], call->dtype, i, b);
 *     ... y[0 .. n) from x[0 .. n) ...
 *     vp_cpu_written(call->operand[VP_COPY_Y], call->dtype, i, n, b);
 * In an fp32 call these are the operands' own places and nothing is copied. An output may share
 * its input's place: a piece is read whole before it is written. Each result of 16 bits is
 * rounded once. */
#ifndef VP_KERNELS_CPU_OPERAND_H
#define VP_KERNELS_CPU_OPERAND_H

#include "kernels/cpu/bf16_span.h"
#include "kernels/cpu/cpu_internal.h"

enum { VP_CPU_PIECE = 1024 }; /* elements that a call of 16 bits brings to fp32 at a time */

/* The statement with D as the dtype, a constant. */
#define VP_BY_DTYPE(dtype, D, ...) \
    do { \
        if ((dtype) == VP_DTYPE_F32) { \
            const vp_dtype D = VP_DTYPE_F32; \
            __VA_ARGS__; \
        } else if ((dtype) == VP_DTYPE_F16) { \
            const vp_dtype D = VP_DTYPE_F16; \
            __VA_ARGS__; \
        } else { /* bf16, whatever gradients are */ \
            const vp_dtype D = VP_DTYPE_BF16; \
            __VA_ARGS__; \
        } \
    } while (0)

typedef uint32_t vp_u8 __attribute__((vector_size(32), aligned(2), may_alias));

VP_ALWAYS_INLINE float vp_get(const void *x, int64_t i, vp_dtype dtype)
{
    return dtype == VP_DTYPE_F32   ? ((const float *)x)[i]
           : dtype == VP_DTYPE_F16 ? vp_fp16_to_f32(((const uint16_t *)x)[i])
                                   : vp_bf16_to_f32(((const uint16_t *)x)[i]);
}

/* Elements i .. i + 15 as two vectors, for sums with named lanes. Of bf16 the first has the even
 * elements and the second the odd ones: so they come out of a word with one operation each,
 * where putting them in order takes five. */
VP_ALWAYS_INLINE void vp_get16(const void *x, int64_t i, vp_dtype dtype, vp_f8 out[2])
{
    if (dtype == VP_DTYPE_BF16) {
        vp_u8 pairs = *(const vp_u8 *)((const uint16_t *)x + i);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        out[0] = (vp_f8)(pairs << 16);
        out[1] = (vp_f8)(pairs & 0xffff0000u);
#else
        out[0] = (vp_f8)(pairs & 0xffff0000u);
        out[1] = (vp_f8)(pairs << 16);
#endif
    } else if (dtype == VP_DTYPE_F16) {
        for (int l = 0; l < 16; l++)
            out[l / 8][l % 8] = vp_fp16_to_f32(((const uint16_t *)x)[i + l]);
    } else {
        out[0] = *(const vp_f8 *)((const float *)x + i);
        out[1] = *(const vp_f8 *)((const float *)x + i + 8);
    }
}

VP_ALWAYS_INLINE void vp_put(void *y, int64_t i, float value, vp_dtype dtype)
{
    if (dtype == VP_DTYPE_BF16)
        ((uint16_t *)y)[i] = vp_bf16_from_f32(value);
    else if (dtype == VP_DTYPE_F16)
        ((uint16_t *)y)[i] = vp_fp16_from_f32(value);
    else
        ((float *)y)[i] = value;
}

/* The address of element i; NULL where the operand is absent. */
static inline void *vp_cpu_at(const void *operand, vp_dtype dtype, int64_t i)
{
    return operand ? (char *)(uintptr_t)operand + i * vp_dtype_bytes(dtype) : NULL;
}

/* Elements of a span that a call of this dtype takes at once: in fp32 all, else what scratch holds. */
static inline int64_t vp_cpu_piece(vp_dtype dtype)
{
    return dtype == VP_DTYPE_F32 ? VP_CPU_SPAN : VP_CPU_PIECE;
}

const float *vp_cpu_read(const void *operand, vp_dtype dtype, int64_t at, int64_t n,
                         float *scratch);
float       *vp_cpu_place(void *operand, vp_dtype dtype, int64_t at, float *scratch);
void vp_cpu_written(void *operand, vp_dtype dtype, int64_t at, int64_t n, const float *scratch);

#endif
