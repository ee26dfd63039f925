/* base/bf16.h: one number between fp32 and bf16, the upper half of a float's bits kept as
 * uint16_t. Whole-number arithmetic only: the same bits whatever the compiler and its target
 * make of it. */
#ifndef VP_BASE_BF16_H
#define VP_BASE_BF16_H

#include <stdint.h>
#include <string.h>

/* Exact: every bf16 is a float. */
static inline __attribute__((always_inline)) float vp_bf16_to_f32(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float    y;

    memcpy(&y, &bits, sizeof y);
    return y;
}

/* To the nearest, ties to even; beyond the greatest finite bf16 by half a step or more:
 * infinity. A NaN keeps its sign and its upper bits and becomes quiet. Adding 0x7fff, or 0x8000
 * below an odd result, carries into the upper half exactly where rounding goes up. */
static inline __attribute__((always_inline)) uint16_t vp_bf16_from_f32(float x)
{
    uint32_t bits, rounded, quiet;

    memcpy(&bits, &x, sizeof bits);
    rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    quiet   = (bits >> 16) | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

#endif
