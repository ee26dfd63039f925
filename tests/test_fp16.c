/* base/fp16.h against what IEEE 754 says of binary16, worked in double. */
#include "tests/base_test.h"

#include "base/fp16.h"

#include <math.h>

/* A sign, 5 bits of exponent e, 10 of fraction f: (1 + f / 1024) 2^(e - 15), f 2^-24 where e is 0. */
static double value(uint16_t x)
{
    int    e = x >> 10 & 31, f = x & 1023;
    double size = e == 31 ? (f ? NAN : INFINITY) : e == 0 ? ldexp(f, -24) : ldexp(1024 + f, e - 25);

    return x >> 15 ? -size : size;
}

static void every_number_becomes_its_value_and_comes_back(void **state)
{
    (void)state;
    for (uint32_t x = 0; x < 0x10000; x++) {
        float  y    = vp_fp16_to_f32((uint16_t)x);
        double want = value((uint16_t)x);

        if (isnan(want)) {
            assert_true(isnan(y) && isnan(vp_fp16_to_f32(vp_fp16_from_f32(y))));
            assert_true((vp_fp16_from_f32(y) & 0x200) != 0); /* quiet */
            continue;
        }
        assert_true((double)y == want && !signbit(y) == !(x >> 15));
        assert_int_equal(vp_fp16_from_f32(y), x);
    }
}

/* Between neighbours a and b: a float below the middle becomes a, one above b, the middle the even one
 * of them. Beyond the greatest the next would be 65536. */
static void rounding_is_to_the_nearest_and_ties_to_even(void **state)
{
    (void)state;
    for (uint32_t x = 0; x < 0x7c00; x++) {
        double a = value((uint16_t)x), b = x == 0x7bff ? 65536.0 : value((uint16_t)(x + 1));
        float  middle = (float)((a + b) / 2);

        assert_true((double)middle == (a + b) / 2);
        assert_int_equal(vp_fp16_from_f32(nextafterf(middle, 0.0f)), x);
        assert_int_equal(vp_fp16_from_f32(nextafterf(middle, INFINITY)), x + 1);
        assert_int_equal(vp_fp16_from_f32(middle), x + x % 2);
        assert_int_equal(vp_fp16_from_f32(-middle), 0x8000 + x + x % 2);
    }
    assert_int_equal(vp_fp16_from_f32(3e38f), 0x7c00);
    assert_int_equal(vp_fp16_from_f32(-INFINITY), 0xfc00);
    assert_int_equal(vp_fp16_from_f32(1e-45f), 0);
    assert_int_equal(vp_fp16_from_f32(-1e-45f), 0x8000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_becomes_its_value_and_comes_back),
        cmocka_unit_test(rounding_is_to_the_nearest_and_ties_to_even),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
