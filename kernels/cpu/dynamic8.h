/* kernels/cpu/dynamic8.h: numbers in [-1, 1] as one byte: the dynamic map of 8-bit optimizer
 * states.
 *     const vp_dynamic8 *map = vp_cpu_dynamic8(true);
 *     scale = vp_dynamic8_encode(map, x, 256, code);     code[i] = the nearest of map->value to
 *     x[i] / scale
 *     vp_dynamic8_decode(map, code, scale, 256, x);      x[i] = map->value[code[i]] * scale
 *
 * Dettmers, Lewis, Shleifer, Zettlemoyer 2021, "8-bit optimizers via block-wise quantization",
 * arXiv:2110.02861, with the values that bitsandbytes' create_dynamic_map gives: seven decades,
 * decade k from 10^(k-7) to 10^(k-6); cut into n_k equal parts, 2^k where there is a sign and
 * 2^(k+1) where there is none, of which the middles are the values; and 0 and 1.
 *
 *     magnitude(k, j) = 10^(k-6) (0.1 + 0.9 (j + 1/2) / n_k),  0 <= j < n_k
 *
 * 256 values: 2 (127) + 2 with a sign (so no -1), 254 + 2 without. Codes are in the order of the
 * values; code 0 decodes to zero where scale is zero, so a state of zero bytes is zero.
 *
 * The nearest value inside a decade is the middle of the part that x lies in, so it is computed and
 * not searched for; between decades the border is the middle of the two values. scale is the
 * greatest magnitude, so x / scale is exact there.
 *
 * Without a sign, a number above zero never gets the code of zero: v = 0 under m > 0 would be an
 * update of m / eps. Li, Chen, Zhu 2023, "Memory efficient optimizers with 4-bit states",
 * arXiv:2309.01507, name this ("zero-point problem"); leaving out zero is their cure. */
#ifndef VP_KERNELS_CPU_DYNAMIC8_H
#define VP_KERNELS_CPU_DYNAMIC8_H

#include "kernels/cpu/cpu_internal.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { VP_DYNAMIC8_DECADES = 7, VP_DYNAMIC8_AT_ONCE = VP_STATE_BLOCK };

typedef struct vp_dynamic8 {
    bool  is_signed;
    float value[256];
    /* A magnitude a from `from` on lies in this decade: its rank among the magnitudes, 0 being
     * zero's, is a slope + shift without its fraction, `last` at most. */
    struct {
        float from, slope, shift, last;
    } decade[VP_DYNAMIC8_DECADES];
    float least;   /* below it zero is nearest                    */
    float top;     /* from it on 1 is                             */
    int   n_ranks; /* the rank of 1                               */
} vp_dynamic8;

/* The map with or without a sign; made once, in double, then rounded. */
const vp_dynamic8 *vp_cpu_dynamic8(bool is_signed);

/* The greatest |x[i]|; NaN where there is one: without the sign bit floats are ordered as whole
 * numbers, NaNs last. */
VP_ALWAYS_INLINE float vp_abs_max(const float *x, int64_t n)
{
    int32_t best = 0;
    float   y;

#pragma omp simd reduction(max : best)
    for (int64_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffff;
        best = bits > best ? bits : best;
    }
    memcpy(&y, &best, sizeof y);
    return y;
}

/* n <= VP_DYNAMIC8_AT_ONCE. The scale of a block with a NaN or an infinity is that, and its
 * values decode to NaN or infinity: what is wrong stays to be seen. */
VP_ALWAYS_INLINE float vp_dynamic8_encode(const vp_dynamic8 *map, const float *x, int64_t n,
                                          uint8_t *code)
{
    float from[VP_DYNAMIC8_DECADES], slope[VP_DYNAMIC8_DECADES], shift[VP_DYNAMIC8_DECADES],
        last[VP_DYNAMIC8_DECADES];
    float scale = vp_abs_max(x, n), divisor = scale > 0.0f ? scale : 1.0f, least = map->least,
          top = map->top;
    int32_t rank[VP_DYNAMIC8_AT_ONCE], n_ranks = map->n_ranks;

    for (int k = 0; k < VP_DYNAMIC8_DECADES; k++) {
        from[k]  = map->decade[k].from;
        slope[k] = map->decade[k].slope;
        shift[k] = map->decade[k].shift;
        last[k]  = map->decade[k].last;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float a = (x[i] < 0.0f ? -x[i] : x[i]) / divisor;
        float s = slope[0], h = shift[0], l = last[0], r;

        s = a >= from[1] ? slope[1] : s, h = a >= from[1] ? shift[1] : h,
        l = a >= from[1] ? last[1] : l;
        s = a >= from[2] ? slope[2] : s, h = a >= from[2] ? shift[2] : h,
        l = a >= from[2] ? last[2] : l;
        s = a >= from[3] ? slope[3] : s, h = a >= from[3] ? shift[3] : h,
        l = a >= from[3] ? last[3] : l;
        s = a >= from[4] ? slope[4] : s, h = a >= from[4] ? shift[4] : h,
        l = a >= from[4] ? last[4] : l;
        s = a >= from[5] ? slope[5] : s, h = a >= from[5] ? shift[5] : h,
        l = a >= from[5] ? last[5] : l;
        s = a >= from[6] ? slope[6] : s, h = a >= from[6] ? shift[6] : h,
        l       = a >= from[6] ? last[6] : l;
        r       = a * s + h;
        r       = r < l ? r : l; /* a NaN ends here */
        r       = r > 1.0f ? r : 1.0f;
        rank[i] = a >= top ? n_ranks : a >= least ? (int32_t)r : 0;
    }
    if (map->is_signed) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            int32_t down = 127 - (rank[i] < 127 ? rank[i] : 127);
            code[i]      = (uint8_t)(x[i] < 0.0f ? down : 127 + rank[i]);
        }
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            code[i] = (uint8_t)(x[i] > 0.0f && rank[i] == 0 ? 1 : rank[i]);
    }
    return scale;
}

VP_ALWAYS_INLINE void vp_dynamic8_decode(const vp_dynamic8 *map, const uint8_t *code, float scale,
                                         int64_t n, float *x)
{
    const float *value = map->value;

#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] = value[code[i]] * scale;
}

#endif
