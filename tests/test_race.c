/* tests/test_race.c: which of several plans is the fastest, from steps done in turns: known
 * ratios under noise that is drawn here. */
#include "tests/base_test.h"

#include "tuner/race.h"

#include <math.h>

enum { N = 4, ROUNDS = 24 };

static double drawn(uint64_t *state) /* splitmix64 (Steele, Lea, Flood 2014), in [0, 1) */
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x          = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x          = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}

/* Plan i's rounds at step_s + i * n_rounds. */
static vp_status estimate(const double *step_s, int64_t n, int64_t n_rounds, double *seconds,
                          double *error, vp_err *err)
{
    const double *of_plan[N];
    double        scatter[N];

    for (int64_t i = 0; i < n; i++)
        of_plan[i] = step_s + i * n_rounds;
    return vp_race_estimate(of_plan, n, n_rounds, seconds, error, scatter, err);
}

static void without_noise_it_is_exact(void **state)
{
    static const double truth[N] = {1.0, 0.9, 1.3, 1.0};
    double              step_s[N * ROUNDS], seconds[N], error[N];

    vp_err err = {0};

    (void)state;
    for (int i = 0; i < N * ROUNDS; i++)
        step_s[i] = truth[i / ROUNDS];
    CHECK_OK(estimate(step_s, N, ROUNDS, seconds, error, &err));
    for (int i = 0; i < N; i++) {
        assert_true(fabs(seconds[i] - truth[i]) < 1e-12);
        assert_true(error[i] < 1e-12);
    }
}

/* A machine that becomes three times as slow and recovers, and now and then holds up a single
 * step for as long as ten. */
static void what_holds_up_single_steps_hardly_counts(void **state)
{
    static const double truth[N] = {1.0, 0.98, 1.03, 1.2};
    double              step_s[N * ROUNDS], seconds[N], error[N];
    double              worst  = 0;
    uint64_t            random = 7;

    vp_err err = {0};

    (void)state;
    for (int trial = 0; trial < 200; trial++) {
        for (int r = 0; r < ROUNDS; r++) {
            double slow = 1 + 2 * fabs(sin(r * 0.3 + trial));
            for (int i = 0; i < N; i++)
                step_s[i * ROUNDS + r] = truth[i] * slow * (1 + 0.01 * drawn(&random)) *
                                         (drawn(&random) < 0.05 ? 10 : 1);
        }
        CHECK_OK(estimate(step_s, N, ROUNDS, seconds, error, &err));
        for (int i = 1; i < N; i++)
            worst = fmax(worst, fabs(seconds[i] / seconds[0] - truth[i] / truth[0]));
    }
    if (worst >= 0.05)
        fail_msg("off by %g", worst);
}

/* Without outliers the drift goes out altogether, which medians of each plan by itself do not
 * manage. */
static void what_slows_all_of_a_round_does_not_count(void **state)
{
    static const double truth[N] = {1.0, 0.98, 1.03, 1.2};
    double              step_s[N * ROUNDS], seconds[N], error[N];
    uint64_t            random = 11;

    vp_err err = {0};

    (void)state;
    for (int trial = 0; trial < 200; trial++) {
        for (int i = 0; i < N * ROUNDS; i++)
            step_s[i] = truth[i / ROUNDS] * (1 + 2 * fabs(sin(i % ROUNDS * 0.3 + trial))) *
                        (1 + 0.01 * drawn(&random));
        CHECK_OK(estimate(step_s, N, ROUNDS, seconds, error, &err));
        for (int i = 0; i < N; i++)
            assert_true(fabs(seconds[i] / seconds[0] - truth[i] / truth[0]) < 0.005);
    }
}

/* The distance from the fastest lies within two standard errors about as often as it would if
 * the noise were normal, and the error is no more than it must be. */
static void the_standard_error_is_honest(void **state)
{
    static const double truth[2] = {1.0, 1.01};
    double              step_s[2 * ROUNDS], seconds[2], error[2], sum = 0;
    int                 n_within = 0;
    uint64_t            random   = 23;

    vp_err err = {0};

    (void)state;
    for (int trial = 0; trial < 2000; trial++) {
        for (int r = 0; r < ROUNDS; r++) {
            double slow = 1 + 2 * fabs(sin(r * 0.3 + trial));
            for (int i = 0; i < 2; i++) {
                double noise = 0;
                for (int k = 0; k < 12; k++)
                    noise += drawn(&random) - 0.5; /* of standard deviation 1, nearly normal */
                step_s[i * ROUNDS + r] = truth[i] * slow * exp(0.05 * noise);
            }
        }
        CHECK_OK(estimate(step_s, 2, ROUNDS, seconds, error, &err));
        n_within += fabs(log(seconds[1] / seconds[0]) - log(truth[1] / truth[0])) <=
                    2 * fmax(error[0], error[1]);
        sum += fmax(error[0], error[1]) / 2000;
    }
    if (n_within < 1800 || n_within > 1980)
        fail_msg("%d of 2000 within two standard errors", n_within);
    if (fabs(sum - 0.05 * sqrt(2.0 / ROUNDS) * 1.25) > 0.003)
        fail_msg("a standard error of %g", sum);
}

static void one_round_and_one_plan(void **state)
{
    static const double step_s[] = {2.0, 3.0, 5.0};
    double              seconds[3], error[3];

    vp_err err = {0};

    (void)state;
    CHECK_OK(estimate(step_s, 3, 1, seconds, error, &err));
    for (int i = 0; i < 3; i++)
        assert_true(fabs(seconds[i] - step_s[i]) < 1e-12);
    CHECK_OK(estimate(step_s, 1, 3, seconds, error, &err));
    assert_true(fabs(seconds[0] - cbrt(30.0)) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_noise_it_is_exact),
        cmocka_unit_test(what_holds_up_single_steps_hardly_counts),
        cmocka_unit_test(what_slows_all_of_a_round_does_not_count),
        cmocka_unit_test(the_standard_error_is_honest),
        cmocka_unit_test(one_round_and_one_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
