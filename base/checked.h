/* base/checked.h: 64-bit size arithmetic that cannot wrap unseen.
 *     int64_t bytes = vp_mul(vp_mul(rows, cols), 4);
 *     if (vp_overflowed(bytes)) ... one located error, where the size is used
 *
 * Sizes, offsets and counts are non-negative int64_t. VP_OVERFLOW is sticky: any operation on it,
 * on a negative operand, or beyond INT64_MAX gives VP_OVERFLOW again, so a chain of products needs
 * one test at its end. */
#ifndef VP_BASE_CHECKED_H
#define VP_BASE_CHECKED_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define VP_OVERFLOW INT64_MIN

static inline bool vp_overflowed(int64_t x)
{
    return x < 0;
}

static inline int64_t vp_add(int64_t a, int64_t b)
{
    int64_t r;
    return a < 0 || b < 0 || __builtin_add_overflow(a, b, &r) ? VP_OVERFLOW : r;
}

static inline int64_t vp_mul(int64_t a, int64_t b)
{
    int64_t r;
    return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &r) ? VP_OVERFLOW : r;
}

/* a - b where b <= a is the caller's claim; VP_OVERFLOW where it does not hold. */
static inline int64_t vp_sub(int64_t a, int64_t b)
{
    return a < 0 || b < 0 || b > a ? VP_OVERFLOW : a - b;
}

/* The least multiple of unit that is at least x; unit > 0. */
static inline int64_t vp_round_up(int64_t x, int64_t unit)
{
    assert(unit > 0);
    int64_t r = vp_add(x, unit - 1);
    return vp_overflowed(r) ? VP_OVERFLOW : r - r % unit;
}

/* ceil(a / b); b > 0. */
static inline int64_t vp_ceil_div(int64_t a, int64_t b)
{
    assert(b > 0);
    return a < 0 ? VP_OVERFLOW : a / b + (a % b != 0);
}

static inline int64_t vp_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The larger of two sizes. */
static inline int64_t vp_larger(int64_t a, int64_t b)
{
    return a < 0 || b < 0 ? VP_OVERFLOW : vp_max_i64(a, b);
}

static inline int64_t vp_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#endif
