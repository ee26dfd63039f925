/* kernels/cpu/operand.h: operands whose elements are fp32 or bf16, as the call says, read and written as floats.
 *
 * One at a time, where a kernel walks a row or a column: vp_get(), vp_put(). `bf16` is a constant at each place that
 * inlines them, so a loop over them is one loop on floats or one on bf16, and the mathematics is written once.
 *
 * Or a piece at a time, where an element costs much or is needed more than once:
 *     float        a[VP_CPU_PIECE], b[VP_CPU_PIECE];
 *     const float *x = vp_cpu_read(call->operand[0], call->dtype, i, n, a);
 *     float       *y = vp_cpu_place(call->operand[1], call->dtype, i, b);
 *     ... y[0 .. n) from x[0 .. n) ...
 *     vp_cpu_written(call->operand[1], call->dtype, i, n, b);
 * In an fp32 call these are the operands' own places and nothing is copied. An output may share its input's place: a
 * piece is read whole before it is written. Each bf16 result is rounded once. */
#ifndef VP_KERNELS_CPU_OPERAND_H
#define VP_KERNELS_CPU_OPERAND_H

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/cpu_internal.h"

enum { VP_CPU_PIECE = 1024 }; /* elements a bf16 call brings to fp32 at a time */

typedef uint16_t vp_h8 __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint32_t vp_u8 __attribute__((vector_size(32)));

VP_ALWAYS_INLINE float vp_get(const void *x, int64_t i, bool bf16)
{
    return bf16 ? vp_bf16_to_f32(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

/* Elements i .. i + 7. Not returned: a vector that is has an ABI of its own. */
VP_ALWAYS_INLINE void vp_get8(const void *x, int64_t i, bool bf16, vp_f8 *out)
{
    if (bf16)
        *out = (vp_f8)(__builtin_convertvector(*(const vp_h8 *)((const uint16_t *)x + i), vp_u8) << 16);
    else
        *out = *(const vp_f8 *)((const float *)x + i);
}

VP_ALWAYS_INLINE void vp_put(void *y, int64_t i, float value, bool bf16)
{
    if (bf16)
        ((uint16_t *)y)[i] = vp_bf16_from_f32(value);
    else
        ((float *)y)[i] = value;
}

/* The address of element i; NULL where the operand is absent. */
static inline void *vp_cpu_at(const void *operand, vp_dtype dtype, int64_t i)
{
    return operand ? (char *)(uintptr_t)operand + i * vp_dtype_bytes(dtype) : NULL;
}

/* Elements of a span that a call of this dtype takes at once: in fp32 all, in bf16 what scratch holds. */
static inline int64_t vp_cpu_piece(vp_dtype dtype)
{
    return dtype == VP_DTYPE_F32 ? VP_CPU_SPAN : VP_CPU_PIECE;
}

const float *vp_cpu_read(const void *operand, vp_dtype dtype, int64_t at, int64_t n, float *scratch);
float       *vp_cpu_place(void *operand, vp_dtype dtype, int64_t at, float *scratch);
void         vp_cpu_written(void *operand, vp_dtype dtype, int64_t at, int64_t n, const float *scratch);

#endif
