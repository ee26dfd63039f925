/* kernels/power.h: beta^t for a whole t, by squaring: what an optimizer's bias correction takes, the same
 * bits on every backend, so that updates which the host makes of a card's plan are the card's own.
 *     double correction = 1.0 - vp_power(beta1, t);
 * C11, C++17 and CUDA. 2 log2 t products, each rounded once. */
#ifndef VP_KERNELS_POWER_H
#define VP_KERNELS_POWER_H

#include <stdint.h>

#ifdef __CUDACC__ /* a product that nothing is contracted with */
#define VP_POWER_INLINE        static __device__ inline
#define VP_POWER_PRODUCT(a, b) __dmul_rn((a), (b))
#else
#define VP_POWER_INLINE        static inline
#define VP_POWER_PRODUCT(a, b) ((a) * (b))
#endif

VP_POWER_INLINE double vp_power(double beta, double t)
{
    double y = 1.0;

    for (uint64_t n = (uint64_t)t; n > 0; n /= 2, beta = VP_POWER_PRODUCT(beta, beta))
        if (n % 2 != 0)
            y = VP_POWER_PRODUCT(y, beta);
    return y;
}

#endif
