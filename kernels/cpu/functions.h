/* kernels/cpu/functions.h: tanh and the normal distribution in fp32, without a branch or a table,
 * so that loops over them vectorise; after vp_exp_neg() of cpu_internal.h.
 *     y = c * vp_tanh(x / c);                          a soft cap
 *     vp_normal(x, &cdf, &pdf);  y = x * cdf;          GELU; its slope is cdf + x pdf
 *
 * The polynomial interpolates at Chebyshev nodes, in 30 digits, then rounded. Errors are
 * measured over all magnitudes by tests/test_kernels.c. */
#ifndef VP_KERNELS_CPU_FUNCTIONS_H
#define VP_KERNELS_CPU_FUNCTIONS_H

#include "kernels/cpu/cpu_internal.h"
#include "kernels/normal.h"

/* tanh(x), at most 2 ulp, and its slope 1 - tanh^2. NaN stays NaN. With e = exp(-2 |x|)
 *
 *     |x| < 0.625:  x + x z P(z), z = x^2, P of degree 4 to 1.4e-8 of tanh
 *     else:         (1 - e) / (1 + e) with the sign of x, e < 0.29: nothing cancels
 *     slope         4 e / (1 + e)^2, where nothing cancels either: at most 5 u off, u = 2^-24 */
VP_ALWAYS_INLINE float vp_tanh_and_slope(float x, float *slope)
{
    float a = x < 0.0f ? -x : x;
    float z = x * x;
    float e = vp_exp_neg(-2.0f * a);
    float p = -6.096714166e-3f;
    float inv, large;

    p      = p * z + 2.0997179e-2f;
    p      = p * z + -5.385090958e-2f;
    p      = p * z + 1.333276974e-1f;
    p      = p * z + -3.333332894e-1f;
    inv    = 1.0f / (1.0f + e);
    large  = (1.0f - e) * inv;
    *slope = 4.0f * (e * inv) * inv;
    return a < 0.625f ? x + x * (z * p) : x < 0.0f ? -large : large;
}

VP_ALWAYS_INLINE float vp_tanh(float x)
{
    float slope;
    return vp_tanh_and_slope(x, &slope);
}

/* Of the normal distribution: kernels/normal.h. What rounding cuts off x^2 is brought back
 * (Dekker's product): exp would multiply it by x^2 / 2. cdf: at most 1.6 ulp for x >= 0; below,
 * a relative 7 u down to x = -12.8 (u = 2^-24) and 10 u to -13.2, beyond which it is 0 for less
 * than 2^-128. */
VP_ALWAYS_INLINE void vp_normal(float x, float *cdf, float *pdf)
{
    float    a = x < 0.0f ? -x : x;
    float    c = a > 14.0f ? 14.0f : a; /* beyond, exp is 0 anyway and squares might be infinite */
    float    square = c * c, high, low, cut, e;
    uint32_t bits;

    memcpy(&bits, &c, sizeof bits);
    bits &= 0xfffff000u;
    memcpy(&high, &bits, sizeof high);
    low = c - high;
    cut = ((high * high - square) + 2.0f * high * low) + low * low;
    e   = vp_exp_neg(-0.5f * square);
    e   = e - e * (0.5f * cut);
    vp_normal_from(x, c, e, cdf, pdf);
}

#endif
