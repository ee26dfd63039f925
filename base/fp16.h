/* base/fp16.h: one number between fp32 and fp16 (IEEE 754 binary16: 5 bits of exponent, 10 of
 * fraction), kept as uint16_t. No branch: a loop over either vectorises. No fp32 denormal comes up,
 * so the bits are the same however a processor treats those. */
#ifndef VP_BASE_FP16_H
#define VP_BASE_FP16_H

#include <stdint.h>
#include <string.h>

/* The greatest finite number. */
#define VP_FP16_MAX 65504.0f

static inline __attribute__((always_inline)) uint32_t vp_fp16_bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline __attribute__((always_inline)) float vp_fp16_of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Exact: every fp16 is a float. Below 2^-14 fp16 has no leading one: the fraction is given 2^-14's and
 * that is subtracted. */
static inline __attribute__((always_inline)) float vp_fp16_to_f32(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16, rest = (uint32_t)(x & 0x7fffu) << 13;
    uint32_t small = vp_fp16_bits_of(vp_fp16_of_bits(rest + 0x38800000u) - 0x1p-14f);
    uint32_t bits  = rest + (rest >= 0x0f800000u ? 0x70000000u : 0x38000000u);

    return vp_fp16_of_bits(sign | (rest < 0x00800000u ? small : bits));
}

/* To the nearest, ties to even; 65520 and more, which is half a step beyond the greatest: infinity.
 * A NaN keeps its sign and its upper bits and becomes quiet. Below 2^-14 the steps are 2^-24, those of
 * floats from 1/2 to 1: adding 1/2 rounds. */
static inline __attribute__((always_inline)) uint16_t vp_fp16_from_f32(float x)
{
    uint32_t bits = vp_fp16_bits_of(x), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    uint32_t small   = vp_fp16_bits_of(vp_fp16_of_bits(rest < 0x38800000u ? rest : 0) + 0.5f);
    uint32_t rounded = (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13;
    uint32_t finite  = rest < 0x38800000u ? small - 0x3f000000u : rounded;
    uint32_t beyond  = rest > 0x7f800000u ? 0x7e00u | (rest >> 13 & 0x3ffu) : 0x7c00u;

    return (uint16_t)(sign | (rest < 0x477ff000u ? finite : beyond));
}

#endif
