#include "tests/base_test.h"

#include "base/checked.h"

static void a_sum_below_the_limit_is_exact(void **state)
{
    (void)state;
    assert_int_equal(vp_add(2, 3), 5);
    assert_int_equal(vp_add(INT64_MAX - 1, 1), INT64_MAX);
}

static void a_sum_beyond_the_limit_overflows(void **state)
{
    (void)state;
    assert_true(vp_overflowed(vp_add(INT64_MAX, 1)));
    assert_true(vp_overflowed(vp_add(INT64_MAX, INT64_MAX)));
}

static void a_product_that_wraps_to_zero_overflows(void **state)
{
    (void)state;
    /* 2^32 * 2^32 = 2^64, which is 0 in 64 bits; 3 * 2^63 would come out small. */
    assert_true(vp_overflowed(vp_mul((int64_t)1 << 32, (int64_t)1 << 32)));
    assert_true(vp_overflowed(vp_mul(vp_mul((int64_t)1 << 62, 2), 3)));
    /* 3037000499^2 is the largest square below 2^63. */
    assert_int_equal(vp_mul(3037000499, 3037000499), 9223372030926249001);
    assert_true(vp_overflowed(vp_mul(3037000500, 3037000500)));
}

static void an_overflow_stays_through_everything(void **state)
{
    (void)state;
    assert_true(vp_overflowed(vp_add(VP_OVERFLOW, 1)));
    assert_true(vp_overflowed(vp_add(1, VP_OVERFLOW)));
    assert_true(vp_overflowed(vp_mul(VP_OVERFLOW, 0)));
    assert_true(vp_overflowed(vp_mul(0, VP_OVERFLOW)));
    assert_true(vp_overflowed(vp_sub(VP_OVERFLOW, 0)));
    assert_true(vp_overflowed(vp_sub(1, VP_OVERFLOW)));
    assert_true(vp_overflowed(vp_larger(VP_OVERFLOW, 8)));
    assert_true(vp_overflowed(vp_larger(8, VP_OVERFLOW)));
    assert_int_equal(vp_larger(7, 8), 8);
    assert_true(vp_overflowed(vp_round_up(VP_OVERFLOW, 8)));
    assert_true(vp_overflowed(vp_ceil_div(VP_OVERFLOW, 8)));
}

static void a_negative_operand_is_an_overflow(void **state)
{
    (void)state;
    assert_true(vp_overflowed(vp_add(-1, 5)));
    assert_true(vp_overflowed(vp_mul(-1, -1)));
    assert_true(vp_overflowed(vp_mul(-1, 0)));
}

static void a_difference_below_zero_is_an_overflow(void **state)
{
    (void)state;
    assert_int_equal(vp_sub(5, 5), 0);
    assert_int_equal(vp_sub(5, 2), 3);
    assert_true(vp_overflowed(vp_sub(2, 5)));
}

static void rounding_up_reaches_the_next_multiple(void **state)
{
    (void)state;
    assert_int_equal(vp_round_up(0, 512), 0);
    assert_int_equal(vp_round_up(1, 512), 512);
    assert_int_equal(vp_round_up(512, 512), 512);
    assert_int_equal(vp_round_up(513, 512), 1024);
    assert_int_equal(vp_round_up(7, 1), 7);
    assert_true(vp_overflowed(vp_round_up(INT64_MAX, 512)));
    /* 2^63 - 512 is a multiple of 512, and the last one. */
    assert_int_equal(vp_round_up(INT64_MAX - 511, 512), INT64_MAX - 511);
    assert_true(vp_overflowed(vp_round_up(INT64_MAX - 510, 512)));
}

static void a_division_rounds_up(void **state)
{
    (void)state;
    assert_int_equal(vp_ceil_div(0, 3), 0);
    assert_int_equal(vp_ceil_div(1, 3), 1);
    assert_int_equal(vp_ceil_div(3, 3), 1);
    assert_int_equal(vp_ceil_div(4, 3), 2);
    assert_int_equal(vp_ceil_div(INT64_MAX, 1), INT64_MAX);
    assert_int_equal(vp_ceil_div(INT64_MAX, 2), (int64_t)1 << 62);
}

static void the_larger_and_the_smaller_are_told(void **state)
{
    (void)state;
    assert_int_equal(vp_max_i64(-1, 3), 3);
    assert_int_equal(vp_min_i64(-1, 3), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_below_the_limit_is_exact),
        cmocka_unit_test(a_sum_beyond_the_limit_overflows),
        cmocka_unit_test(a_product_that_wraps_to_zero_overflows),
        cmocka_unit_test(an_overflow_stays_through_everything),
        cmocka_unit_test(a_negative_operand_is_an_overflow),
        cmocka_unit_test(a_difference_below_zero_is_an_overflow),
        cmocka_unit_test(rounding_up_reaches_the_next_multiple),
        cmocka_unit_test(a_division_rounds_up),
        cmocka_unit_test(the_larger_and_the_smaller_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
