/* kernels/cpu/operand.c: pieces of operands as floats. */
#include "kernels/cpu/operand.h"

#include <assert.h>

VP_PER_ISA(widen, (const uint16_t *x, float *y, int64_t n, vp_dtype dtype), (x, y, n, dtype))
{
    vp_half_widen(x, y, n, dtype);
}

VP_PER_ISA(narrow, (const float *x, uint16_t *y, int64_t n, vp_dtype dtype), (x, y, n, dtype))
{
    vp_half_round(x, y, n, dtype);
}

const float *vp_cpu_read(const void *operand, vp_dtype dtype, int64_t at, int64_t n, float *scratch)
{
    if (dtype == VP_DTYPE_F32)
        return (const float *)operand + at;
    assert(vp_dtype_bytes(dtype) == 2 && n <= VP_CPU_PIECE);
    widen((const uint16_t *)operand + at, scratch, n, dtype);
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
        narrow(scratch, (uint16_t *)operand + at, n, dtype);
}
