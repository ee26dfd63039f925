/* kernels/cpu/bf16_span.h: bf16 (the upper half of a float's bits) and fp16, kept as uint16_t, to
 * float and back.
 *     VP_PER_ISA(halve, (const uint16_t *x, uint16_t *y, int64_t n), (x, y, n))
 *     {
 *         float t[256];
 *         ... vp_bf16_widen(x + i, t, 256) ... t[j] *= 0.5f ... vp_bf16_round(t, y + i, 256)
 *     }
 *
 * Always inlined, so that a loop takes the instruction set of the body around it; every instruction
 * set gives the same bits, and denormals count. Spans may not overlap. */
#ifndef VP_KERNELS_CPU_BF16_SPAN_H
#define VP_KERNELS_CPU_BF16_SPAN_H

#include "base/bf16.h"
#include "base/fp16.h"
#include "kernels/cpu/cpu_internal.h"

#include <stdint.h>
#include <string.h>

/* Up with the probability of the share cut off, where random is uniform in 0 .. 65535: the
 * expectation of the result is x. What is a bf16 already stays, so infinities do; a NaN becomes
 * quiet. */
VP_ALWAYS_INLINE uint16_t vp_bf16_from_f32_stochastic(float x, uint16_t random)
{
    uint32_t bits, rounded, special;

    memcpy(&bits, &x, sizeof bits);
    rounded = (bits + random) >> 16;
    special = (bits >> 16) | ((bits & 0x7fffffffu) > 0x7f800000u ? 0x40u : 0u);
    return (uint16_t)((bits & 0x7f800000u) == 0x7f800000u ? special : rounded);
}

VP_ALWAYS_INLINE void vp_bf16_widen(const uint16_t *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = vp_bf16_to_f32(x[i]);
}

VP_ALWAYS_INLINE void vp_bf16_round(const float *restrict x, uint16_t *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = vp_bf16_from_f32(x[i]);
}

/* The same of a dtype of 16 bits; a constant where these are inlined into one. */
VP_ALWAYS_INLINE void vp_half_widen(const uint16_t *restrict x, float *restrict y, int64_t n,
                                    vp_dtype dtype)
{
    if (dtype != VP_DTYPE_F16)
        vp_bf16_widen(x, y, n);
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = vp_fp16_to_f32(x[i]);
}

VP_ALWAYS_INLINE void vp_half_round(const float *restrict x, uint16_t *restrict y, int64_t n,
                                    vp_dtype dtype)
{
    if (dtype != VP_DTYPE_F16)
        vp_bf16_round(x, y, n);
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = vp_fp16_from_f32(x[i]);
}

/* random: 16 uniform bits for each element. */
VP_ALWAYS_INLINE void vp_bf16_round_stochastic(const float *restrict x,
                                               const uint16_t *restrict random,
                                               uint16_t *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = vp_bf16_from_f32_stochastic(x[i], random[i]);
}

#endif
