/* kernels/cpu/operand.c: pieces of fp32 and bf16 operands as floats. */
#include "kernels/cpu/operand.h"

#include <assert.h>

VP_PER_ISA(widen, (const uint16_t *x, float *y, int64_t n), (x, y, n))
{
    vp_bf16_widen(x, y, n);
}

VP_PER_ISA(narrow, (const float *x, uint16_t *y, int64_t n), (x, y, n))
{
    vp_bf16_round(x, y, n);
}

const float *vp_cpu_read(const void *operand, vp_dtype dtype, int64_t at, int64_t n, float *scratch)
{
    if (dtype == VP_DTYPE_F32)
        return (const float *)operand + at;
    assert(dtype == VP_DTYPE_BF16 && n <= VP_CPU_PIECE);
    widen((const uint16_t *)operand + at, scratch, n);
    return scratch;
}

float *vp_cpu_place(void *operand, vp_dtype dtype, int64_t at, float *scratch)
{
    return dtype == VP_DTYPE_F32 ? (float *)operand + at : scratch;
}

void vp_cpu_written(void *operand, vp_dtype dtype, int64_t at, int64_t n, const float *scratch)
{
    assert(dtype == VP_DTYPE_F32 || n <= VP_CPU_PIECE);
    if (dtype != VP_DTYPE_F32)
        narrow(scratch, (uint16_t *)operand + at, n);
}
