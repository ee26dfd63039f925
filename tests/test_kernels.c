#include "tests/kernel_test.h"

#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/functions.h"
#include "kernels/cpu/philox.h"

/* Tolerances. u = 2^-24 is float's unit roundoff; inputs are uniform in [-1, 1], with variance 1/3.
 * A sum of k products of two such numbers has variance k/9, so partial sums stay near sqrt(k)/3; k
 * roundings of relative size u, as a random walk (Higham and Mary 2019, SIAM J. Sci. Comput. 41(5)),
 * make an error near u sqrt(k) sqrt(k)/3 = u k / 3. The tests allow 6 times that.
 *
 * bf16 operands: inputs are bf16 numbers, which the reference has exactly, sums are fp32, so the same tolerances hold
 * for what is computed; kt_compare() adds the rounding of what is written. */
static const double u = 0x1p-24;

static double dot_tolerance(int64_t k)
{
    return 2.0 * u * (double)(k < 8 ? 8 : k);
}

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* rows, in, out: one row; one off a tile of 256 tokens; one off the 384 columns of a GEMM tile; 40 and
 * 41 are multiples of no vector; vocabularies one off. */
static const int64_t linear_shapes[][3] = {
    {1, 1, 1}, {1, 64, 96}, {2, 40, 41}, {255, 33, 17}, {257, 65, 383}, {256, 16, 385}, {513, 7, 97},
    {3, 769, 31},
};

static void linear_cases(vp_kernel kernel, int optional, int64_t (*k_of)(const int64_t *shape))
{
    for (int s = 0; s < COUNT(linear_shapes); s++)
        for (int variant = 0; variant < 8; variant++) {
            kt_case c = {
                .kernel = kernel,
                .ints   = {linear_shapes[s][0], linear_shapes[s][1], linear_shapes[s][2],
                           variant & 1 ? VP_WEIGHT_OUT_IN : VP_WEIGHT_IN_OUT},
                .accumulate = (variant & 2) != 0,
            };
            if (optional >= 0)
                c.absent[optional] = (variant & 4) != 0;
            kt_check_both(&c, dot_tolerance(k_of(linear_shapes[s])), 2.0 * u);
        }
}

static int64_t in_of(const int64_t *shape)
{
    return shape[1];
}

static int64_t out_of(const int64_t *shape)
{
    return shape[2];
}

static int64_t rows_of(const int64_t *shape)
{
    return shape[0];
}

static void linear_forward_agrees_with_the_reference(void **state)
{
    (void)state;
    linear_cases(VP_K_LINEAR_FWD, 2, in_of);
}

static void linear_input_gradient_agrees_with_the_reference(void **state)
{
    (void)state;
    linear_cases(VP_K_LINEAR_BWD_INPUT, -1, out_of);
}

static void linear_weight_gradient_agrees_with_the_reference(void **state)
{
    (void)state;
    linear_cases(VP_K_LINEAR_BWD_WEIGHT, 3, rows_of);
}

static void a_row_beyond_what_blas_can_address_is_an_input_error(void **state)
{
    vp_err         err  = {0};
    vp_kernel_call call = {.kernel = VP_K_LINEAR_FWD, .dtype = VP_DTYPE_F32, .ints = {1, 3000000000, 1, 0}};

    (void)state;
    CPU_ONLY();
    assert_int_equal(vp_backend_cpu()->run(&call, &err), VP_ERR_INPUT);
    assert_non_null(strstr(err.message, "linear_fwd"));
    call = (vp_kernel_call){.kernel = VP_K_ATTENTION_FWD, .dtype = VP_DTYPE_F32, .ints = {1, 1, 1 << 20, 1 << 20, 1 << 20}};
    err  = (vp_err){0};
    assert_int_equal(vp_backend_cpu()->run(&call, &err), VP_ERR_INPUT);
}

static const int64_t norm_shapes[][2] = {
    {1, 1}, {1, 768}, {2, 40}, {255, 31}, {257, 129}, {513, 33}, {3, 1000},
};

/* Rows have variance near 1/3, so |y| stays below about 4 and each of its 4 operations adds u |y|. Mean and
 * variance are lane sums of n / 32 + 5 roundings as a random walk: sqrt(36) u at 1000 columns. */
static void layernorm_forward_agrees_with_the_reference(void **state)
{
    (void)state;
    for (int s = 0; s < COUNT(norm_shapes); s++)
        for (int without = 0; without < 4; without++) { /* gamma, beta */
            kt_case c = {.kernel = VP_K_LAYERNORM_FWD, .ints = {norm_shapes[s][0], norm_shapes[s][1]},
                         .reals = {1e-5}, .absent = {[1] = (without & 1) != 0, [2] = (without & 2) != 0}};
            kt_check_both(&c, 32.0 * u, 32.0 * u);
        }
}

/* dx is rstd times a sum of three terms with the errors above, twice as many operations; the column sums
 * have `rows` terms dy xhat with |xhat| < 4. */
static void layernorm_backward_agrees_with_the_reference(void **state)
{
    (void)state;
    for (int s = 0; s < COUNT(norm_shapes); s++)
        for (int variant = 0; variant < 32; variant++) {
            kt_case c = {.kernel = VP_K_LAYERNORM_BWD, .ints = {norm_shapes[s][0], norm_shapes[s][1]},
                         .accumulate = (variant & 1) != 0,
                         .absent = {[5] = (variant & 2) != 0, [2] = (variant & 4) != 0, [7] = (variant & 8) != 0,
                                    [8] = (variant & 16) != 0}};
            kt_check_both(&c, 64.0 * u + 4.0 * dot_tolerance(norm_shapes[s][0]), 64.0 * u);
        }
}

/* rows, cols, groups: a norm per head of 40; one off a tile of tokens, a slice of columns, a lane; a group of one column. */
static const int64_t rms_shapes[][3] = {
    {1, 1, 1}, {1, 768, 1}, {2, 40, 3}, {255, 31, 3}, {257, 129, 2}, {513, 33, 5}, {3, 1000, 1}, {17, 1, 4},
};

/* As layernorm, with one sum less; 1 + gamma < 2 doubles it all. A group of one column with x near 0 has rstd up to
 * 1 / sqrt(1e-5) = 316, and dx = rstd (g - xhat^2 g), where up to 4 roundings of g are left. */
static double rms_tolerance(const int64_t *n)
{
    return 64.0 * u * (n[1] == 1 ? 316.0 : 1.0);
}

static void rmsnorm_forward_agrees_with_the_reference(void **state)
{
    (void)state;
    for (int s = 0; s < COUNT(rms_shapes); s++)
        for (int unit_offset = 0; unit_offset < 2; unit_offset++) {
            const int64_t *n = rms_shapes[s];
            kt_case        c = {.kernel = VP_K_RMSNORM_FWD, .ints = {n[0], n[1], n[2], unit_offset}, .reals = {1e-5}};
            kt_check_both(&c, 32.0 * u, 32.0 * u);
        }
}

static void rmsnorm_backward_agrees_with_the_reference(void **state)
{
    (void)state;
    for (int s = 0; s < COUNT(rms_shapes); s++)
        for (int variant = 0; variant < 8; variant++) {
            const int64_t *n = rms_shapes[s];
            kt_case        c = {.kernel = VP_K_RMSNORM_BWD, .ints = {n[0], n[1], n[2], variant & 1},
                                .accumulate = (variant & 2) != 0, .absent = {[4] = (variant & 4) != 0}};
            kt_check_both(&c, rms_tolerance(n) + 4.0 * dot_tolerance(n[0] * n[2]), 64.0 * u);
        }
}

static void rmsnorm_of_equal_numbers_is_gamma(void **state)
{
    /* x = 3 everywhere, eps = 16: rstd = 1 / sqrt(9 + 16) = 0.2, y = 0.6 (1 + gamma) = 0.6 * 1.5 = 0.9 */
    float          x[40], gamma[20], y[40], rstd[2];
    vp_kernel_call call = {.kernel = VP_K_RMSNORM_FWD, .dtype = VP_DTYPE_F32, .operand = {x, gamma, y, rstd},
                           .ints = {1, 20, 2, 1}, .reals = {16.0}};

    (void)state;
    for (int i = 0; i < 40; i++)
        x[i] = 3.0f, gamma[i % 20] = 0.5f;
    kt_run(&call);
    for (int i = 0; i < 40; i++)
        assert_true(fabs((double)y[i] - 0.9) < 2.0 * u);
    assert_true(rstd[0] == 0.2f && rstd[1] == 0.2f);
}

/* ---- activations ---- */

/* Relative to y: the logistic form keeps all digits. exp has 1 ulp = 2 u; its argument, at most 1.7 for
 * |x| <= 1, took 5 roundings, 1.7 * 5 u * (1 - s) < 7 u; three operations follow: 12 u. The other forms have less. */
static void activations_agree_with_the_reference(void **state)
{
    int64_t counts[] = {1, 15, 16, 17, 1000, 1025, 16385};

    (void)state;
    for (int i = 0; i < COUNT(counts); i++)
        for (int act = 0; act < VP_N_ACTS; act++) {
            kt_case c = {.kernel = VP_K_ACTIVATION_FWD, .ints = {counts[i], act}};
            kt_check_both(&c, 0.0, 12.0 * u);
            c.kernel = VP_K_ACTIVATION_BWD;
            kt_check_both(&c, 8.0 * u, 12.0 * u);
        }
}

/* A product with up or dy more: d_gate = dy up act' is three. */
static void gated_units_agree_with_the_reference(void **state)
{
    /* rows, cols; the last is more than a span of 16384 */
    int64_t shapes[][2] = {{1, 1}, {3, 40}, {257, 31}, {5, 1025}, {2, 16385}};

    (void)state;
    for (int s = 0; s < COUNT(shapes); s++)
        for (int act = 0; act < VP_N_ACTS; act++)
            for (int packed = 0; packed < 2; packed++) {
                kt_case c = {.kernel = VP_K_GLU_FWD, .ints = {shapes[s][0], shapes[s][1], act, packed}};
                kt_check_both(&c, 0.0, 14.0 * u);
                c.kernel = VP_K_GLU_BWD;
                kt_check_both(&c, 8.0 * u, 14.0 * u);
            }
}

/* Forward over [from, to] in steps of 0.01: within `tolerance` u of the reference, relative. */
static void check_digits(vp_act act, double from, double to, double tolerance)
{
    int64_t     n = (int64_t)((to - from) * 100.0) + 1;
    kt_case     c = {.kernel = VP_K_ACTIVATION_FWD, .ints = {n, act}};
    kt_operands o = kt_operands_new(&c, 1, 0);

    for (int64_t i = 0; i < n; i++)
        kt_set(&o, 0, i, from + 0.01 * (double)i);
    kt_run(&o.call);
    vp_reference_run(&o.reference);
    kt_compare(&o, 0.0, tolerance * u);
    kt_operands_release(&o);
}

static void activations_have_their_digits_in_both_tails(void **state)
{
    (void)state;
    /* y(-5) = -2.3e-7, where 1 + tanh in float would leave one digit. The argument of exp is -17 at x = -5 and took 5
     * roundings: 85 u, and 5 u as above; the reference's own 1 + tanh cancels to 2^-52 against 1e-7 = 0.04 u. */
    check_digits(VP_ACT_GELU_TANH, -5.0, 12.0, 100.0);
    check_digits(VP_ACT_GELU, -12.8, 12.0, 8.0); /* Phi and a product: see below   */
    check_digits(VP_ACT_SILU, -80.0, 80.0, 6.0); /* exp, 1 + e, quotient, product */
}

static void activations_far_out_are_lines(void **state)
{
    (void)state;
    for (int act = 0; act < VP_N_ACTS; act++) {
        kt_case     c = {.kernel = VP_K_ACTIVATION_FWD, .ints = {3, act}};
        kt_operands o = kt_operands_new(&c, 1, 0);
        float      *x = o.call.operand[0], *y = o.call.operand[1];

        bool bounded = act == VP_ACT_TANH;
        x[0] = 1e30f, x[1] = -1e30f, x[2] = NAN;
        kt_run(&o.call);
        assert_true(y[0] == (bounded ? 1.0f : 1e30f) && y[1] == (bounded ? -1.0f : 0.0f) && isnan(y[2]));
        kt_operands_release(&o);
    }
}

static void exp_is_within_one_ulp_on_its_whole_domain(void **state)
{
    double worst = 0.0;

    (void)state;
    CPU_ONLY();
    for (uint32_t bits = 0x80000000u; bits < 0xc2ae999au; bits += 499) { /* -0 .. -87.3 */
        float  x, y;
        double e, ulp;

        memcpy(&x, &bits, sizeof x);
        y   = vp_exp_neg(x);
        e   = exp((double)x);
        ulp = ldexp(1.0, ilogb(e) - 23);
        worst = fmax(worst, fabs((double)y - e) / ulp);
    }
    assert_true(worst <= 1.0);
    assert_true(vp_exp_neg(0.0f) == 1.0f);
    assert_true(vp_exp_neg(-INFINITY) == 0.0f);
    assert_true(vp_exp_neg(-88.0f) == 0.0f);
    assert_true(isnan(vp_exp_neg(NAN)));
}

/* In units of the last place of y. */
static double ulps(double x, double y)
{
    return fabs(x - y) / ldexp(1.0, ilogb(y) - 23);
}

static void tanh_and_its_slope_have_their_digits_over_all_magnitudes(void **state)
{
    double worst = 0.0, worst_slope = 0.0;
    float  slope;

    (void)state;
    CPU_ONLY();
    for (uint32_t bits = 0x00800000u; bits < 0x7f800000u; bits += 1999) {
        float  x;
        double e;

        memcpy(&x, &bits, sizeof x);
        e     = exp(-2.0 * (double)x);
        worst = fmax(worst, ulps((double)vp_tanh_and_slope(x, &slope), tanh((double)x)));
        if (x < 43.0f) /* beyond 43.65, exp is 0 */
            worst_slope = fmax(worst_slope, fabs((double)slope * (1.0 + e) * (1.0 + e) / (4.0 * e) - 1.0));
        assert_true(vp_tanh(-x) == -vp_tanh(x));
    }
    assert_true(worst <= 2.0 && worst_slope <= 5.0 * u);
    assert_true(vp_tanh(INFINITY) == 1.0f && vp_tanh(0.0f) == 0.0f && isnan(vp_tanh(NAN)));
}

/* cdf(x) is (1 + erf(x / sqrt 2)) / 2, taken as erfc in double so that the left tail has its digits there as well. */
static void the_normal_distribution_has_its_digits_over_all_magnitudes(void **state)
{
    double right = 0.0, left = 0.0, far_left = 0.0, density = 0.0;

    (void)state;
    CPU_ONLY();
    for (uint32_t bits = 0x00800000u; bits < 0x7f800000u; bits += 1999) {
        float x, cdf, pdf;

        memcpy(&x, &bits, sizeof x);
        vp_normal(x, &cdf, &pdf);
        right = fmax(right, ulps((double)cdf, 0.5 * erfc((double)-x / sqrt(2.0))));
        if (x < 13.1f) {
            double want = 0.5 * erfc((double)x / sqrt(2.0)), of_x = exp(-0.5 * (double)x * (double)x) / sqrt(2.0 * acos(-1.0));

            vp_normal(-x, &cdf, &pdf);
            density  = fmax(density, fabs((double)pdf - of_x) / of_x);
            far_left = fmax(far_left, fabs((double)cdf - want) / want);
            left     = x < 12.8f ? far_left : left;
        } else if (x > 13.3f) {
            vp_normal(-x, &cdf, &pdf);
            assert_true(cdf == 0.0f && pdf == 0.0f);
        }
    }
    assert_true(right <= 1.6);
    assert_true(left <= 7.0 * u && far_left <= 10.0 * u && density <= 4.0 * u);
}

static void add_copy_and_zero_are_exact(void **state)
{
    int64_t counts[] = {1, 17, 1025, 16384, 16385, 50001};

    (void)state;
    for (int i = 0; i < COUNT(counts); i++)
        for (vp_dtype dtype = VP_DTYPE_F32; dtype <= VP_DTYPE_BF16; dtype++) {
            kt_case     c = {.kernel = VP_K_ADD, .dtype = dtype, .ints = {counts[i]}};
            kt_operands o;

            kt_check(&c, u, u); /* the reference's sum is not rounded to float: half an ulp of |x + y| < 2 */
            c.kernel = VP_K_ZERO;
            kt_check(&c, 0.0, 0.0);
            c.kernel = VP_K_COPY;
            o        = kt_operands_new(&c, 1, 1);
            kt_run(&o.call);
            assert_memory_equal(o.call.operand[0], o.call.operand[1], (size_t)o.bytes[0]);
            kt_operands_release(&o);
        }
}

static void a_bf16_sum_is_the_exact_one_rounded_to_even(void **state)
{
    /* In units of 2^-7 at 1: 128 + 0.5 is a tie between 128 and 129 and goes to 128, 129 + 0.5 to 130, 128 + 0.75 to 129. */
    kt_case     c = {.kernel = VP_K_ADD, .dtype = VP_DTYPE_BF16, .ints = {3}};
    kt_operands o = kt_operands_new(&c, 1, 0);
    double      x[] = {128, 129, 128}, y[] = {0.5, 0.5, 0.75}, z[] = {128, 130, 129};

    (void)state;
    for (int i = 0; i < 3; i++) {
        kt_set(&o, 0, i, x[i] / 128);
        kt_set(&o, 1, i, y[i] / 128);
    }
    kt_run(&o.call);
    for (int i = 0; i < 3; i++)
        assert_true(kt_get(&o.call, 2, i) == z[i] / 128);
    kt_operands_release(&o);
}

/* A product and a sum of terms of size scale and 1. */
static void embedding_agrees_with_the_reference(void **state)
{
    /* rows cols vocab seq position_offset; the fourth has every token many times, the last more tiles than a block takes at once on a card */
    int64_t shapes[][5] = {{1, 1, 1, 1, 0}, {6, 40, 11, 3, 2}, {257, 33, 97, 257, 0}, {512, 130, 3, 64, 1}, {4610, 9, 5, 461, 2}};
    double  scales[]    = {1.0, 22.6};

    (void)state;
    for (int s = 0; s < COUNT(shapes); s++)
        for (int variant = 0; variant < 16; variant++) {
            double  scale = scales[variant & 1];
            kt_case c     = {.kernel = VP_K_EMBEDDING_FWD, .reals = {scale}};

            memcpy(c.ints, shapes[s], sizeof shapes[s]);
            c.ints[5]   = (variant & 8) && shapes[s][4] > 0;
            c.absent[2] = (variant & 2) != 0;
            kt_check_both(&c, 2.0 * u * scale, u);
            c.kernel    = VP_K_EMBEDDING_BWD;
            c.absent[2] = false;
            c.absent[3] = (variant & 2) != 0;
            c.ints[6]   = (variant & 4) ? 1 + shapes[s][2] / 2 : 0;
            kt_check_both(&c, dot_tolerance(shapes[s][0]) * scale, u);
        }
}

static void a_padding_row_learns_nothing_and_its_positions_do(void **state)
{
    /* tokens 1 0 1 0, positions 0 1 0 1 from row 2 on, dy = 1 2 3 4: d_table = {0, 1 + 3}, d_positions = {0, 0, 1 + 3, 2 + 4} */
    int32_t        tokens[] = {1, 0, 1, 0};
    float          dy[] = {1, 2, 3, 4}, d_table[2] = {0}, d_positions[4] = {0};
    vp_kernel_call call = {.kernel = VP_K_EMBEDDING_BWD, .dtype = VP_DTYPE_F32, .operand = {tokens, dy, d_table, d_positions},
                           .ints = {4, 1, 2, 2, 2, 0, 1}, .reals = {1.0}};

    (void)state;
    kt_run(&call);
    assert_true(d_table[0] == 0 && d_table[1] == 4);
    assert_true(d_positions[0] == 0 && d_positions[1] == 0 && d_positions[2] == 4 && d_positions[3] == 6);
}

static void padding_is_left_out_of_the_count_of_positions(void **state)
{
    /* Two samples of 4; padding is token 1, so positions count from 2: 2 3 1 4 and 1 2 1 3. */
    int32_t        tokens[] = {5, 6, 1, 7, 1, 5, 1, 6};
    float          positions[] = {0, 1, 2, 3, 4, 5}, y[8], dy[] = {1, 1, 1, 1, 10, 10, 10, 10}, d_positions[6] = {0};
    int64_t        want[] = {2, 3, 1, 4, 1, 2, 1, 3};
    double         d_want[] = {0, 0, 1 + 10, 1 + 10, 1, 0};
    vp_kernel_call forward = {.kernel = VP_K_EMBEDDING_FWD, .dtype = VP_DTYPE_F32, .operand = {tokens, NULL, positions, y},
                              .ints = {8, 1, 9, 4, 2, 1}, .reals = {1.0}};
    vp_kernel_call backward = {.kernel = VP_K_EMBEDDING_BWD, .dtype = VP_DTYPE_F32, .operand = {tokens, dy, NULL, d_positions},
                               .ints = {8, 1, 9, 4, 2, 1, 0}, .reals = {1.0}};

    (void)state;
    kt_run(&forward);
    kt_run(&backward);
    for (int i = 0; i < 8; i++)
        assert_true(y[i] == (float)want[i]);
    for (int i = 0; i < 6; i++)
        assert_true(d_positions[i] == (float)d_want[i]);
}

/* Gradients are at most inv_n_targets = 1/64, made of an exp (1 ulp of a value whose argument has an
 * error of u * 2) and two divisions; row_loss is up to log(vocab) + 2 and computed in double from a sum
 * with relative error of some u. A cap of 2 adds tanh's 2 ulp and two roundings to logits below 1. */
static void cross_entropy_agrees_with_the_reference(void **state)
{
    int64_t shapes[][2] = {{1, 1}, {7, 2}, {3, 31}, {257, 257}, {2, 1025}, {4, 50257}};

    (void)state;
    for (int s = 0; s < COUNT(shapes); s++) {
        kt_case c = {.kernel = VP_K_CROSS_ENTROPY, .ints = {shapes[s][0], shapes[s][1]}};
        kt_check_both(&c, 8.0 * u, 8.0 * u);
        c.reals[0] = 2.0;
        kt_check_both(&c, 14.0 * u, 14.0 * u);
    }
}

/* Logits to +-90 under a cap of 30: a capped one, up to 30, is off by up to 5 u of itself (x / c, tanh, product), 150 u,
 * which is the relative error of its exponential; so may be the greatest be, and their sum. */
static void cross_entropy_with_a_cap_agrees_far_from_zero(void **state)
{
    (void)state;
    for (vp_dtype dtype = VP_DTYPE_F32; dtype <= VP_DTYPE_BF16; dtype++) {
        kt_case     c = {.kernel = VP_K_CROSS_ENTROPY, .dtype = dtype, .ints = {20, 1027}, .reals = {30.0}};
        kt_operands o = kt_operands_new(&c, 1, 0);

        for (int64_t i = 0; i < o.n[0]; i++)
            kt_set(&o, 0, i, 90.0 * kt_get(&o.call, 0, i));
        kt_run(&o.call);
        vp_reference_run(&o.reference);
        kt_compare(&o, 450.0 * u, 450.0 * u);
        kt_operands_release(&o);
    }
}

static void an_ignored_label_has_no_loss_and_no_gradient(void **state)
{
    kt_case     c = {.kernel = VP_K_CROSS_ENTROPY, .ints = {2, 3}};
    kt_operands o = kt_operands_new(&c, 1, 0);
    int32_t    *label = o.call.operand[1];
    float      *x = o.call.operand[0], *loss = o.call.operand[3];

    (void)state;
    label[0] = VP_IGNORE_LABEL;
    label[1] = 2;
    x[3] = x[4] = x[5] = 0.0f;
    kt_run(&o.call);
    /* three equal logits: p = 1/3, loss = log 3; inv_n_targets = 1/64 */
    assert_true(loss[0] == 0.0f && x[0] == 0.0f && x[1] == 0.0f && x[2] == 0.0f);
    assert_true(fabs((double)loss[1] - log(3.0)) < 2.0 * u);
    assert_true(fabs((double)x[3] - 1.0 / 192) < u && fabs((double)x[5] + 2.0 / 192) < u);
    kt_operands_release(&o);
}

static void a_nan_logit_makes_the_loss_nan(void **state)
{
    kt_case     c = {.kernel = VP_K_CROSS_ENTROPY, .ints = {1, 100}};
    kt_operands o = kt_operands_new(&c, 1, 0);

    (void)state;
    ((float *)o.call.operand[0])[41] = NAN;
    kt_run(&o.call);
    assert_true(isnan(((float *)o.call.operand[3])[0]));
    kt_operands_release(&o);
}

/* Double sums of floats: n roundings of 2^-53. */
static void loss_sum_agrees_with_the_reference(void **state)
{
    int64_t counts[] = {1, 255, 257, 16385, 100003};

    (void)state;
    for (int i = 0; i < COUNT(counts); i++)
        kt_check(&(kt_case){.kernel = VP_K_LOSS_SUM, .ints = {counts[i]}}, 1e-10, 1e-12);
}

static void the_loss_is_summed_tile_by_tile(void **state)
{
    /* In double, 2^53 + 1 rounds back to 2^53. Rows 0 and 255, the first tile: 2^53 + 1 = 2^53. Rows 256
     * and 257, the second: 1 + 1 = 2. Tile after tile 2^53 + 2, row after row 2^53. */
    float          row_loss[300] = {[0] = 0x1p53f, [255] = 1.0f, [256] = 1.0f, [257] = 1.0f};
    vp_control     control = {0};
    vp_kernel_call call = {.kernel = VP_K_LOSS_SUM, .dtype = VP_DTYPE_F32, .operand = {row_loss, &control}, .ints = {300}};

    (void)state;
    kt_run(&call);
    assert_true(control.loss_sum == 0x1p53 + 2.0);
}

static void reference_gradients_are_the_forwards_slopes(void **state)
{
    kt_fd_link linear_input = {VP_K_LINEAR_FWD, VP_K_LINEAR_BWD_INPUT, 3, 0, 1, {{0, 2}}, 1, {{1, 1}}};
    kt_fd_link linear_weight = {VP_K_LINEAR_FWD, VP_K_LINEAR_BWD_WEIGHT, 3, 1, 2, {{1, 2}, {2, 3}}, 1, {{0, 0}}};
    kt_fd_link norm = {VP_K_LAYERNORM_FWD, VP_K_LAYERNORM_BWD, 3, 0, 3, {{0, 6}, {1, 7}, {2, 8}}, 4,
                       {{1, 0}, {2, 1}, {3, 4}, {4, 5}}};
    kt_fd_link rms = {VP_K_RMSNORM_FWD, VP_K_RMSNORM_BWD, 2, 0, 2, {{0, 5}, {1, 6}}, 3, {{1, 0}, {2, 1}, {3, 3}}};
    kt_fd_link activation = {VP_K_ACTIVATION_FWD, VP_K_ACTIVATION_BWD, 1, 0, 1, {{0, 2}}, 1, {{1, 0}}};
    kt_fd_link glu = {VP_K_GLU_FWD, VP_K_GLU_BWD, 2, 0, 2, {{0, 3}, {1, 4}}, 2, {{1, 0}, {2, 1}}};
    kt_fd_link embedding = {VP_K_EMBEDDING_FWD, VP_K_EMBEDDING_BWD, 3, 1, 2, {{1, 2}, {2, 3}}, 1, {{0, 0}}};
    kt_fd_link drop = {VP_K_DROPOUT, VP_K_DROPOUT, 1, 0, 1, {{0, 1}}, 0, {{0}}};

    (void)state;
    CPU_ONLY();
    for (int layout = 0; layout < 2; layout++) {
        kt_case c = {.ints = {5, 4, 3, layout}};
        kt_fd_check(&linear_input, &c);
        kt_fd_check(&linear_weight, &c);
    }
    kt_fd_check(&norm, &(kt_case){.ints = {4, 7}, .reals = {1e-5}});
    kt_fd_check(&norm, &(kt_case){.ints = {4, 7}, .reals = {1e-5}, .absent = {[1] = true, [2] = true}});
    for (int unit_offset = 0; unit_offset < 2; unit_offset++)
        kt_fd_check(&rms, &(kt_case){.ints = {4, 7, 3, unit_offset}, .reals = {1e-5}});
    for (int act = 0; act < VP_N_ACTS; act++) {
        kt_fd_check(&activation, &(kt_case){.ints = {50, act}});
        for (int packed = 0; packed < 2; packed++)
            kt_fd_check(&glu, &(kt_case){.ints = {5, 3, act, packed}});
    }
    kt_fd_check(&embedding, &(kt_case){.ints = {6, 3, 4, 3}, .reals = {1.0}});
    kt_fd_check(&embedding, &(kt_case){.ints = {6, 3, 4, 3, 2}, .reals = {1.75}});
    kt_fd_check(&drop, &(kt_case){.ints = {2, 9}, .reals = {0.4}, .rng = {.seed = 9}});
}

static void reference_cross_entropy_gradient_is_the_losss_slope(void **state)
{
    double caps[] = {0.0, 0.8};

    (void)state;
    CPU_ONLY();
    for (int k = 0; k < COUNT(caps); k++) {
        kt_case     c = {.kernel = VP_K_CROSS_ENTROPY, .ints = {5, 6}, .reals = {caps[k]}};
        kt_operands o = kt_operands_new(&c, 3, 0);
        double     *x = o.reference.operand[0], *row_loss = o.reference.operand[3];
        double      start[30], gradient[30];

        memcpy(start, x, sizeof start);
        vp_reference_run(&o.reference);
        memcpy(gradient, x, sizeof gradient);
        for (int i = 0; i < 30; i++) {
            double loss[2] = {0.0, 0.0};

            for (int side = 0; side < 2; side++) {
                memcpy(x, start, sizeof start);
                x[i] += side ? 1e-4 : -1e-4;
                vp_reference_run(&o.reference);
                for (int r = 0; r < 5; r++)
                    loss[side] += row_loss[r] / 64.0; /* inv_n_targets */
            }
            assert_true(fabs((loss[1] - loss[0]) / 2e-4 - gradient[i]) < 1e-8);
        }
        kt_operands_release(&o);
    }
}

/* ---- random numbers ---- */

static void philox_gives_the_published_words(void **state)
{
    /* known answers of philox4x32-10 distributed with Random123 (kat_vectors) */
    static const struct {
        uint32_t      ctr[4];
        vp_philox_key key;
        uint32_t      out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    (void)state;
    CPU_ONLY();
    for (int i = 0; i < COUNT(known); i++) {
        uint32_t out[4];
        vp_philox_raw(known[i].key, known[i].ctr, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

static void many_philox_blocks_are_the_single_ones(void **state)
{
    vp_philox_key key   = {123, 456};
    uint64_t      first = 0xfffffffeu; /* carries into the second counter word */
    uint32_t      many[4 * 37], one[4];

    (void)state;
    CPU_ONLY();
    vp_philox_blocks(key, 0x500000007u, first, 37, many);
    for (uint64_t b = 0; b < 37; b++) {
        vp_philox(key, 0x500000007u, first + b, one);
        assert_memory_equal(one, many + 4 * b, sizeof one);
    }
}

static void dropout_agrees_with_the_reference(void **state)
{
    double  ps[] = {0.0, 0.1, 0.5, 0.999, 1.0};
    int64_t shapes[][2] = {{1, 1}, {3, 7}, {2, 1025}, {2, 16386}};

    (void)state;
    for (int s = 0; s < COUNT(shapes); s++)
        for (int i = 0; i < COUNT(ps); i++) {
            kt_case c = {.kernel = VP_K_DROPOUT, .ints = {shapes[s][0], shapes[s][1]}, .reals = {ps[i]},
                         .rng = {.seed = 42, .step = 1, .op = 9, .first_sample = 1000}};
            kt_check_both(&c, 0.0, 2.0 * u);
        }
}

static void dropout_drops_its_share_and_keeps_the_mean(void **state)
{
    enum { N = 1 << 20 };
    kt_case     c = {.kernel = VP_K_DROPOUT, .ints = {4, N / 4}, .reals = {0.1}, .rng = {.seed = 1}};
    kt_operands o = kt_operands_new(&c, 1, 0);
    float      *x = o.call.operand[0], *y = o.call.operand[1];
    int64_t     n_dropped = 0, n_pairs = 0;

    (void)state;
    for (int64_t i = 0; i < N; i++)
        x[i] = 1.0f;
    kt_run(&o.call);
    for (int64_t i = 0; i < N; i++) {
        n_dropped += y[i] == 0.0f;
        n_pairs += i > 0 && y[i] == 0.0f && y[i - 1] == 0.0f;
        assert_true(y[i] == 0.0f || y[i] == (float)(1.0 / 0.9));
    }
    /* binomial: 104858 +- 5 sqrt(N 0.1 0.9) = 1536; neighbours both: 10486 +- 5 sqrt(N 0.01) = 512 */
    assert_true(llabs(n_dropped - N / 10) < 1536);
    assert_true(llabs(n_pairs - N / 100) < 530);
    kt_operands_release(&o);
}

static int64_t n_equal_masks(const kt_case *a, const kt_case *b)
{
    kt_operands x = kt_operands_new(a, 1, 0), y = kt_operands_new(b, 1, 0);
    int64_t     n = x.n[1], n_equal = 0;

    for (int64_t i = 0; i < n; i++)
        ((float *)x.call.operand[0])[i] = ((float *)y.call.operand[0])[i] = 1.0f;
    kt_run(&x.call);
    kt_run(&y.call);
    for (int64_t i = 0; i < n; i++)
        n_equal += ((float *)x.call.operand[1])[i] == ((float *)y.call.operand[1])[i];
    kt_operands_release(&x);
    kt_operands_release(&y);
    return n_equal;
}

static void seed_step_op_and_sample_each_give_another_mask(void **state)
{
    kt_case a = {.kernel = VP_K_DROPOUT, .ints = {1, 10000}, .reals = {0.5}, .rng = {.seed = 1}};
    kt_case b[4] = {a, a, a, a};

    (void)state;
    b[0].rng.seed         = 2;
    b[1].rng.step         = 1;
    b[2].rng.op           = 1;
    b[3].rng.first_sample = 1;
    assert_int_equal(n_equal_masks(&a, &a), 10000);
    for (int i = 0; i < 4; i++) /* fair coins: 5000 +- 5 * 50 */
        assert_true(llabs(n_equal_masks(&a, &b[i]) - 5000) < 250);
}

static void drawn_normals_are_box_muller_of_their_words(void **state)
{
    enum { N = 4096 };
    static float  x[N];
    vp_philox_key key = vp_philox_key_of_name(5, "h.0.attn.c_attn.weight");

    (void)state;
    CPU_ONLY();
    vp_draw_normal(5, "h.0.attn.c_attn.weight", 0.02, x, N);
    for (uint64_t i = 0; i < N; i += 2) {
        uint32_t word[4];
        double   r, t;

        vp_philox(key, 0, i / 4, word);
        r = 0.02 * sqrt(-2.0 * log(((double)word[i % 4] + 0.5) * 0x1p-32));
        t = 2.0 * acos(-1.0) * ((double)word[i % 4 + 1] + 0.5) * 0x1p-32;
        /* rounding to float, plus 1e-15 of r <= 0.14 where cos or sin is near zero */
        assert_true(fabs((double)x[i] - r * cos(t)) <= u * fabs(r * cos(t)) + 1e-15);
        assert_true(fabs((double)x[i + 1] - r * sin(t)) <= u * fabs(r * sin(t)) + 1e-15);
    }
}

static void drawn_normals_have_the_moments_of_a_normal(void **state)
{
    enum { N = 1 << 20 };
    float *x = malloc(N * sizeof(float));
    double m1 = 0.0, m2 = 0.0, m4 = 0.0;

    (void)state;
    CPU_ONLY();
    assert_non_null(x);
    vp_draw_normal(1, "wte.weight", 1.0, x, N);
    for (int i = 0; i < N; i++) {
        double z = (double)x[i];
        m1 += z / N;
        m2 += z * z / N;
        m4 += z * z * z * z / N;
    }
    /* five standard errors: 1/sqrt(N), sqrt(2/N), sqrt(96/N) with N = 2^20 */
    assert_true(fabs(m1) < 5.0 / 1024 && fabs(m2 - 1.0) < 5.0 * sqrt(2.0) / 1024);
    assert_true(fabs(m4 - 3.0) < 5.0 * sqrt(96.0) / 1024);
    free(x);
}

static void an_elements_draw_depends_on_seed_name_and_index_only(void **state)
{
    static float a[5000], b[5000];

    (void)state;
    CPU_ONLY();
    vp_draw_normal(1, "w", 1.0, a, 5000);
    vp_draw_normal(1, "w", 1.0, b, 4999);
    assert_memory_equal(a, b, 4999 * sizeof(float));
    vp_draw_normal(1, "v", 1.0, b, 5000);
    assert_true(memcmp(a, b, sizeof a) != 0);
    vp_draw_normal(2, "w", 1.0, b, 5000);
    assert_true(memcmp(a, b, sizeof a) != 0);
}

static void the_backend_says_what_it_is(void **state)
{
    const vp_backend *b = vp_backend_cpu();

    (void)state;
    CPU_ONLY();
    assert_int_equal(b->api_version, VP_BACKEND_API);
    assert_string_equal(b->name, "cpu");
    b->set_threads(3);
    assert_int_equal(b->threads(), 3);
    assert_non_null(strstr(b->describe(), "OpenBLAS"));
    assert_non_null(strstr(b->describe(), "3 threads"));
    b->set_threads(2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_forward_agrees_with_the_reference),
        cmocka_unit_test(linear_input_gradient_agrees_with_the_reference),
        cmocka_unit_test(linear_weight_gradient_agrees_with_the_reference),
        cmocka_unit_test(a_row_beyond_what_blas_can_address_is_an_input_error),
        cmocka_unit_test(layernorm_forward_agrees_with_the_reference),
        cmocka_unit_test(layernorm_backward_agrees_with_the_reference),
        cmocka_unit_test(rmsnorm_forward_agrees_with_the_reference),
        cmocka_unit_test(rmsnorm_backward_agrees_with_the_reference),
        cmocka_unit_test(rmsnorm_of_equal_numbers_is_gamma),
        cmocka_unit_test(activations_agree_with_the_reference),
        cmocka_unit_test(gated_units_agree_with_the_reference),
        cmocka_unit_test(activations_have_their_digits_in_both_tails),
        cmocka_unit_test(activations_far_out_are_lines),
        cmocka_unit_test(exp_is_within_one_ulp_on_its_whole_domain),
        cmocka_unit_test(tanh_and_its_slope_have_their_digits_over_all_magnitudes),
        cmocka_unit_test(the_normal_distribution_has_its_digits_over_all_magnitudes),
        cmocka_unit_test(add_copy_and_zero_are_exact),
        cmocka_unit_test(a_bf16_sum_is_the_exact_one_rounded_to_even),
        cmocka_unit_test(embedding_agrees_with_the_reference),
        cmocka_unit_test(a_padding_row_learns_nothing_and_its_positions_do),
        cmocka_unit_test(padding_is_left_out_of_the_count_of_positions),
        cmocka_unit_test(cross_entropy_agrees_with_the_reference),
        cmocka_unit_test(cross_entropy_with_a_cap_agrees_far_from_zero),
        cmocka_unit_test(an_ignored_label_has_no_loss_and_no_gradient),
        cmocka_unit_test(a_nan_logit_makes_the_loss_nan),
        cmocka_unit_test(loss_sum_agrees_with_the_reference),
        cmocka_unit_test(the_loss_is_summed_tile_by_tile),
        cmocka_unit_test(reference_gradients_are_the_forwards_slopes),
        cmocka_unit_test(reference_cross_entropy_gradient_is_the_losss_slope),
        cmocka_unit_test(philox_gives_the_published_words),
        cmocka_unit_test(many_philox_blocks_are_the_single_ones),
        cmocka_unit_test(dropout_agrees_with_the_reference),
        cmocka_unit_test(dropout_drops_its_share_and_keeps_the_mean),
        cmocka_unit_test(seed_step_op_and_sample_each_give_another_mask),
        cmocka_unit_test(drawn_normals_are_box_muller_of_their_words),
        cmocka_unit_test(drawn_normals_have_the_moments_of_a_normal),
        cmocka_unit_test(an_elements_draw_depends_on_seed_name_and_index_only),
        cmocka_unit_test(the_backend_says_what_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, kt_print_worst);
}
