/* kernels/normal.h: the normal distribution with mean 0 and variance 1, in fp32, for every backend:
 * cdf(x) = erfc(-x / sqrt 2) / 2 with all its digits in the left tail too, pdf(x) = exp(-x^2 / 2) /
 * sqrt(2 pi). Without a branch or a table, so that loops over it vectorise. The caller brings the
 * exponential, which backends compute in ways of their own:
 *     float c = x < 0.0f ? -x : x;                       // no more than where exp(-c^2 / 2) is 0:
 *     c^2 must be finite
 *     float e = exp(-0.5f * c * c);                      // with what rounding cut off c^2 brought
 *     back
 *     vp_normal_from(x, c, e, &cdf, &pdf);
 * C11, C++17 and CUDA. With c = |x|:
 *
 *     c < 0.67:  cdf(x) = 1/2 + x R(x^2), R of degree 4 to 8e-10
 *     else:      cdf(-c) = exp(-c^2 / 2) / 2  erfcx(c / sqrt 2),  cdf(c) = 1 - cdf(-c)
 *                erfcx(z) = exp(z^2) erfc(z) = t P(q),  t = 4 / (4 + c),  q = 1 - 2 t
 *
 * q maps the half line as in Shepherd and Laframboise 1981 (Math. Comp. 36); P, of degree 8, is
 * within 4.2e-8 for c <= 13.25. Polynomials interpolate at Chebyshev nodes, in 30 digits, then
 * rounded. NaN stays NaN. */
#ifndef VP_KERNELS_NORMAL_H
#define VP_KERNELS_NORMAL_H

#ifdef __CUDACC__ /* behind cuda_kernel.h */
#define VP_NORMAL_INLINE        static __device__ inline
#define VP_NORMAL_RECIPROCAL(x) vp_reciprocal(x)
#else
#define VP_NORMAL_INLINE        static inline __attribute__((always_inline))
#define VP_NORMAL_RECIPROCAL(x) (1.0f / (x))
#endif

VP_NORMAL_INLINE void vp_normal_from(float x, float c, float e, float *cdf, float *pdf)
{
    float square = c * c, t = 4.0f * VP_NORMAL_RECIPROCAL(4.0f + c), q = 1.0f - 2.0f * t;
    float p = 1.455712682e-4f, r = 1.05360814e-4f, tail;

    p    = p * q + 7.51533122e-4f;
    p    = p * q + -1.788165492e-3f;
    p    = p * q + -3.757858744e-3f;
    p    = p * q + 3.020758053e-2f;
    p    = p * q + -9.326184044e-2f;
    p    = p * q + 1.935681263e-1f;
    p    = p * q + -3.039483001e-1f;
    p    = p * q + 3.776425707e-1f;
    tail = 0.5f * e * (t * p);
    r    = r * square + -1.183435937e-3f;
    r    = r * square + 9.972937595e-3f;
    r    = r * square + -6.649034543e-2f;
    r    = r * square + 3.989422801e-1f;
    *cdf = c < 0.67f ? 0.5f + x * r : x < 0.0f ? tail : 1.0f - tail;
    *pdf = e * 3.989422804e-1f;
}

#endif
