/* Round numbers along an axis, by hand. */
#include "tests/base_test.h"

#include "report/axis.h"

static void check_axis(vp_axis axis, double first, double step, int n)
{
    assert_float_equal(axis.first, first, 1e-9 * step);
    assert_float_equal(axis.step, step, 1e-9 * step);
    assert_int_equal(axis.n, n);
}

static void steps_are_1_2_or_5_times_a_power_of_ten_and_reach_both_ends(void **state)
{
    (void)state;
    check_axis(vp_axis_of(0, 10, 5), 0, 2, 6);        /* 0 2 4 6 8 10 */
    check_axis(vp_axis_of(0, 0.3, 3), 0, 0.1, 4);     /* 0.3 is 3 x 0.1 but for its last bit */
    check_axis(vp_axis_of(3, 97, 6), 20, 20, 4);      /* 94 / 6 = 15.7: 20 40 60 80 */
    check_axis(vp_axis_of(-7, 7, 4), -5, 5, 3);       /* 14 / 4 = 3.5: -5 0 5 */
    check_axis(vp_axis_of(0, 5.1, 6), 0, 1, 6);       /* 0.85 */
    check_axis(vp_axis_of(990, 1060, 7), 990, 10, 8); /* 990 .. 1060 */
}

static void steps_of_bytes_are_powers_of_two(void **state)
{
    (void)state;
    check_axis(vp_axis_of_bytes(0, 4096, 4), 0, 1024, 5);
    check_axis(vp_axis_of_bytes(1000, 5000, 4), 1024, 1024, 4);
    check_axis(vp_axis_of_bytes(0, 5000, 4), 0, 2048, 3); /* 1250 a step is more than 1024 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_1_2_or_5_times_a_power_of_ten_and_reach_both_ends),
        cmocka_unit_test(steps_of_bytes_are_powers_of_two),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
