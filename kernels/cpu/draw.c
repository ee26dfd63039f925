/* kernels/cpu/draw.c: initial parameters.
 *
 * Element i takes word i % 4 of Philox block i / 4; words pair up by Box and Muller 1958:
 *
 *     z0 = sqrt(-2 ln u) cos(2 pi w),  z1 = sqrt(-2 ln u) sin(2 pi w),  u, w = (word + 1/2) / 2^32
 *
 * so |z| <= sqrt(66 ln 2) = 6.8. ln, sin and cos are our own, plain arithmetic in double: a libm
 * picks its variant by the machine, and initial parameters are to be the same on every machine. */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/philox.h"

#include <assert.h>
#include <math.h>

enum { PIECE = VP_DRAW_UNIT, PIECE_BLOCKS = PIECE / 4 };

/* ln x for 0 < x <= 1, normal. x = 2^e f, f in [sqrt(1/2), sqrt(2)); with s = (f - 1) / (f + 1),
 * ln f = 2 (s + s^3/3 + s^5/5 + ...), |s| <= 0.172: after s^19 the rest is below 1e-17. */
VP_ALWAYS_INLINE double ln(double x)
{
    const uint64_t sqrt_half = 0x3fe6a09e667f3bcdu;
    uint64_t       bits, shifted;
    int32_t        e;
    double         f, s, z, y;

    memcpy(&bits, &x, sizeof bits);
    shifted = bits - sqrt_half; /* exponent field of x relative to sqrt(1/2), may be negative */
    e       = (int32_t)(uint32_t)(shifted >> 32) >> 20;
    bits -= (uint64_t)(int64_t)e << 52;
    memcpy(&f, &bits, sizeof f);
    s = (f - 1.0) / (f + 1.0);
    z = s * s;
    y = 1.0 / 19.0;
    y = y * z + 1.0 / 17.0;
    y = y * z + 1.0 / 15.0;
    y = y * z + 1.0 / 13.0;
    y = y * z + 1.0 / 11.0;
    y = y * z + 1.0 / 9.0;
    y = y * z + 1.0 / 7.0;
    y = y * z + 1.0 / 5.0;
    y = y * z + 1.0 / 3.0;
    return (double)e * 0.69314718055994530942 + 2.0 * (s + s * z * y);
}

/* cos and sin of 2 pi t, 0 <= t <= 1: quarter turns off, then Taylor on |a| <= pi/4; the first
 * omitted terms are below 1e-16. */
VP_ALWAYS_INLINE void cos_sin_turn(double t, double *cos_out, double *sin_out)
{
    int32_t quarter = (int32_t)(4.0 * t + 0.5);
    double  a = 6.28318530717958647693 * (t - 0.25 * (double)quarter), z = a * a;
    double  s = -1.0 / 1307674368000.0, c = 1.0 / 20922789888000.0;
    double  first, second;

    s        = s * z + 1.0 / 6227020800.0;
    s        = s * z - 1.0 / 39916800.0;
    s        = s * z + 1.0 / 362880.0;
    s        = s * z - 1.0 / 5040.0;
    s        = s * z + 1.0 / 120.0;
    s        = s * z - 1.0 / 6.0;
    s        = a + a * z * s;
    c        = c * z - 1.0 / 87178291200.0;
    c        = c * z + 1.0 / 479001600.0;
    c        = c * z - 1.0 / 3628800.0;
    c        = c * z + 1.0 / 40320.0;
    c        = c * z - 1.0 / 720.0;
    c        = c * z + 1.0 / 24.0;
    c        = c * z - 0.5;
    c        = 1.0 + z * c;
    first    = quarter & 1 ? s : c;
    second   = quarter & 1 ? c : s;
    *cos_out = (quarter + 1) & 2 ? -first : first;
    *sin_out = quarter & 2 ? -second : second;
}

/* x[i] = sqrt(x[i]); see vp_sqrt_all(). n is even. */
VP_ALWAYS_INLINE void sqrt_doubles(double *x, int64_t n)
{
#if defined(__x86_64__)
    for (int64_t i = 0; i < n; i += 2)
        _mm_storeu_pd(x + i, _mm_sqrt_pd(_mm_loadu_pd(x + i)));
#else
    for (int64_t i = 0; i < n; i++)
        x[i] = sqrt(x[i]);
#endif
}

/* A word w as (w + 1/2) / 2^32. Its sign bit is flipped and added back: the conversion of a signed
 * number has a vector instruction everywhere. */
VP_ALWAYS_INLINE double unit_interval(uint32_t word)
{
    return ((double)(int32_t)(word ^ 0x80000000u) + 2147483648.5) * 0x1p-32;
}

/* One piece of words to as many normals. */
VP_PER_ISA(box_muller, (const uint32_t *word, double std, float *z), (word, std, z))
{
    double radius[PIECE / 2];

#pragma omp simd
    for (int64_t i = 0; i < PIECE / 2; i++)
        radius[i] = -2.0 * ln(unit_interval(word[2 * i]));
    sqrt_doubles(radius, PIECE / 2);
#pragma omp simd
    for (int64_t i = 0; i < PIECE / 2; i++) {
        double c, s;

        cos_sin_turn(unit_interval(word[2 * i + 1]), &c, &s);
        z[2 * i]     = (float)(std * radius[i] * c);
        z[2 * i + 1] = (float)(std * radius[i] * s);
    }
}

static void uniform(const uint32_t *word, double std, float *z)
{
    for (int64_t i = 0; i < PIECE; i++)
        z[i] = (float)((2.0 * unit_interval(word[i]) - 1.0) * sqrt(3.0) * std);
}

static void draw(uint64_t seed, const char *name, double std, int64_t first, float *x, int64_t n,
                 void (*of_words)(const uint32_t *word, double std, float *z))
{
    vp_philox_key key      = vp_philox_key_of_name(seed, name);
    int64_t       n_pieces = (n + PIECE - 1) / PIECE;

    assert(first >= 0 && first % PIECE == 0 && n >= 0 && std >= 0.0 && name[0]);
#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n_pieces > 16)
    for (int64_t p = 0; p < n_pieces; p++) {
        uint32_t word[PIECE];
        float    z[PIECE];
        int64_t  left = n - p * PIECE;

        vp_philox_blocks(key, 0, (uint64_t)(first / 4 + p * PIECE_BLOCKS), PIECE_BLOCKS, word);
        of_words(word, std, z);
        memcpy(x + p * PIECE, z, (size_t)(left < PIECE ? left : PIECE) * sizeof(float));
    }
}

void vp_draw_normal(uint64_t seed, const char *name, double std, int64_t first, float *x, int64_t n)
{
    draw(seed, name, std, first, x, n, box_muller);
}

void vp_draw_uniform(uint64_t seed, const char *name, double std, int64_t first, float *x,
                     int64_t n)
{
    draw(seed, name, std, first, x, n, uniform);
}
