#include "tests/kernel_test.h"

#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/functions.h"
#include "kernels/cpu/philox.h"

/* Tolerances. u = 2^-24 is float's unit roundoff; inputs are uniform in [-1, 1], with variance 1/3.
 * A sum of k products of two such numbers has variance k/9, so partial sums stay near sqrt(k)/3; k
 * roundings of relative size u, as a random walk (Higham and Mary 2019, SIAM J. Sci. Comput.
 * 41(5)), make an error near u sqrt(k) sqrt(k)/3 = u k / 3. The tests allow 6 times that.
 *
 * Operands of 16 bits: inputs are bf16 or fp16 numbers, which the reference has exactly, sums are fp32, so the
 * same tolerances hold for what is computed; kt_compare() adds the rounding of what is written. */
static const double u = 0x1p-24;

static double dot_tolerance(int64_t k)
{
    return 2.0 * u * (double)(k < 8 ? 8 : k);
}

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* rows, in, out: one row; one off a tile of 256 tokens; one off the 384 columns of a GEMM tile;
 * 40 and 41 are multiples of no vector; vocabularies one off. */
static const int64_t linear_shapes[][3] = {
    {1, 1, 1},      {1, 64, 96},    {2, 40, 41},  {255, 33, 17},
    {257, 65, 383}, {256, 16, 385}, {513, 7, 97}, {3, 769, 31},
};

static void linear_cases(vp_kernel kernel, int optional, int64_t (*k_of)(const int64_t *shape))
{
    for (int s = 0; s < COUNT(linear_shapes); s++)
        for (int variant = 0; variant < 16; variant++) {
            kt_case c = {
                .kernel     = kernel,
                .linear     = {.rows   = linear_shapes[s][0],
                               .in     = linear_shapes[s][1],
                               .out    = linear_shapes[s][2],
                               .layout = variant & 1 ? VP_WEIGHT_OUT_IN : VP_WEIGHT_IN_OUT,
                               .padded = variant >> 3},
                .accumulate = (variant & 2) != 0,
            };
            if (optional >= 0)
                c.absent[optional] = (variant & 4) != 0;
            kt_check_all(&c, dot_tolerance(k_of(linear_shapes[s])), 2.0 * u);
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
    linear_cases(VP_K_LINEAR_FWD, VP_LINEAR_FWD_B, in_of);
}

static void linear_input_gradient_agrees_with_the_reference(void **state)
{
    (void)state;
    linear_cases(VP_K_LINEAR_BWD_INPUT, -1, out_of);
}

static void linear_weight_gradient_agrees_with_the_reference(void **state)
{
    (void)state;
    linear_cases(VP_K_LINEAR_BWD_WEIGHT, VP_LINEAR_BWD_WEIGHT_DB, rows_of);
}

/* A library chooses its kernel by the alignment it is promised: not more than the address has. Each
 * operand in turn one element (2 or 4 bytes) further than the others, then all of them. */
static void linears_take_operands_at_any_element(void **state)
{
    static const vp_kernel kernels[] = {VP_K_LINEAR_FWD, VP_K_LINEAR_BWD_INPUT,
                                        VP_K_LINEAR_BWD_WEIGHT, VP_K_LINEAR_ADD_FWD};
    static const vp_dtype  dtypes[]  = {VP_DTYPE_F32, VP_DTYPE_BF16, VP_DTYPE_F16,
                                        VP_DTYPE_BF16_GRADS};

    (void)state;
    for (int n = 0; n < COUNT(kernels) * COUNT(dtypes) * 16; n++) {
        const vp_kernel_info *info = vp_kernel_info_of(kernels[n / 16 % COUNT(kernels)]);
        kt_case               c    = {.kernel = kernels[n / 16 % COUNT(kernels)],
                                      .dtype  = dtypes[n / 16 / COUNT(kernels)],
                                      .linear = {.rows = 16, .in = 96, .out = 32, .layout = VP_WEIGHT_IN_OUT}};
        kt_operands           o    = kt_operands_new(&c, 1, 1);

        for (int i = 0; i < info->n_operands; i++) {
            int64_t element = kt_is_half(kt_elem(&o.call, i)) ? 2 : 4;
            char   *from    = o.place[i];

            if (!(n >> i & 1))
                continue;
            o.place[i] = o.call.operand[i] =
                memmove(from + KT_FREE_SIDE * element, from, (size_t)o.bytes[i]);
            memset(KT_FREE_SIDE > 0 ? from : o.place[i] + o.bytes[i], KT_POISON, (size_t)element);
        }
        kt_run(&o.call);
        vp_reference_run(&o.reference);
        kt_compare(&o, dot_tolerance(96), 2.0 * u);
        kt_operands_release(&o);
    }
}

static void a_row_beyond_what_blas_can_address_is_an_input_error(void **state)
{
    vp_err         err  = {0};
    vp_kernel_call call = {.kernel = VP_K_LINEAR_FWD,
                           .dtype  = VP_DTYPE_F32,
                           .linear = {.rows = 1, .in = 3000000000, .out = 1, .layout = 0}};

    (void)state;
    CPU_ONLY();
    assert_int_equal(vp_backend_cpu()->run(&call, &err), VP_ERR_INPUT);
    assert_non_null(strstr(err.message, "linear_fwd"));
    call = (vp_kernel_call){
        .kernel    = VP_K_ATTENTION_FWD,
        .dtype     = VP_DTYPE_F32,
        .attention = {
            .batch = 1, .seq = 1, .heads = 1 << 20, .kv_heads = 1 << 20, .head_dim = 1 << 20}};
    err = (vp_err){0};
    assert_int_equal(vp_backend_cpu()->run(&call, &err), VP_ERR_INPUT);
}

static const int64_t norm_shapes[][2] = {
    {1, 1}, {1, 768}, {2, 40}, {255, 31}, {257, 129}, {513, 33}, {3, 1000},
};

/* Rows have variance near 1/3, so |y| stays below about 4 and each of its 4 operations adds u
 * |y|. Mean and variance are lane sums of n / 32 + 5 roundings as a random walk: sqrt(36) u at
 * 1000 columns. */
static void layernorm_forward_agrees_with_the_reference(void **state)
{
    (void)state;
    for (int s = 0; s < COUNT(norm_shapes); s++)
        for (int without = 0; without < 4; without++) { /* gamma, beta */
            kt_case c = {.kernel     = VP_K_LAYERNORM_FWD,
                         .layernorm  = {.rows = norm_shapes[s][0], .cols = norm_shapes[s][1]},
                         .norm_reals = {.eps = 1e-5},
                         .absent     = {[VP_LAYERNORM_FWD_GAMMA] = (without & 1) != 0,
                                        [VP_LAYERNORM_FWD_BETA]  = (without & 2) != 0}};
            kt_check_all(&c, 32.0 * u, 32.0 * u);
        }
}

/* dx is rstd times a sum of three terms with the errors above, twice as many operations; the
 * column sums have `rows` terms dy xhat with |xhat| < 4. */
static void layernorm_backward_agrees_with_the_reference(void **state)
{
    (void)state;
    for (int s = 0; s < COUNT(norm_shapes); s++)
        for (int variant = 0; variant < 32; variant++) {
            kt_case c = {.kernel     = VP_K_LAYERNORM_BWD,
                         .layernorm  = {.rows = norm_shapes[s][0], .cols = norm_shapes[s][1]},
                         .accumulate = (variant & 1) != 0,
                         .absent     = {[VP_LAYERNORM_BWD_ADD]     = (variant & 2) != 0,
                                        [VP_LAYERNORM_BWD_GAMMA]   = (variant & 4) != 0,
                                        [VP_LAYERNORM_BWD_D_GAMMA] = (variant & 8) != 0,
                                        [VP_LAYERNORM_BWD_D_BETA]  = (variant & 16) != 0}};
            kt_check_all(&c, 64.0 * u + 4.0 * dot_tolerance(norm_shapes[s][0]), 64.0 * u);
        }
}

/* rows, cols, groups: a norm per head of 40; one off a tile of tokens, a slice of columns, a
 * lane; a group of one column. */
static const int64_t rms_shapes[][3] = {
    {1, 1, 1},     {1, 768, 1},  {2, 40, 3},   {255, 31, 3},
    {257, 129, 2}, {513, 33, 5}, {3, 1000, 1}, {17, 1, 4},
};

/* As layernorm, with one sum less; 1 + gamma < 2 doubles it all. A group of one column with x
 * near 0 has rstd up to 1 / sqrt(1e-5) = 316, and dx = rstd (g - xhat^2 g), where up to 4
 * roundings of g are left. */
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
            kt_case        c = {
                       .kernel = VP_K_RMSNORM_FWD,
                       .rmsnorm = {.rows = n[0], .cols = n[1], .groups = n[2], .unit_offset = unit_offset},
                       .norm_reals = {.eps = 1e-5}};
            kt_check_all(&c, 32.0 * u, 32.0 * u);
        }
}

static void rmsnorm_backward_agrees_with_the_reference(void **state)
{
    (void)state;
    for (int s = 0; s < COUNT(rms_shapes); s++)
        for (int variant = 0; variant < 16; variant++) {
            const int64_t *n = rms_shapes[s];
            kt_case        c = {
                       .kernel = VP_K_RMSNORM_BWD,
                       .rmsnorm = {.rows = n[0], .cols = n[1], .groups = n[2], .unit_offset = variant & 1},
                       .accumulate = (variant & 2) != 0,
                       .absent     = {[VP_RMSNORM_BWD_ADD]     = (variant & 4) != 0,
                                      [VP_RMSNORM_BWD_D_GAMMA] = (variant & 8) != 0}};
            kt_check_all(&c, rms_tolerance(n) + 4.0 * dot_tolerance(n[0] * n[2]), 64.0 * u);
        }
}

static void rmsnorm_of_equal_numbers_is_gamma(void **state)
{
    /* x = 3 everywhere, eps = 16: rstd = 1 / sqrt(9 + 16) = 0.2, y = 0.6 (1 + gamma) = 0.6 * 1.5
     * = 0.9 */
    float          x[40], gamma[20], y[40], rstd[2];
    vp_kernel_call call = {.kernel     = VP_K_RMSNORM_FWD,
                           .dtype      = VP_DTYPE_F32,
                           .operand    = {[VP_RMSNORM_FWD_X]     = x,
                                          [VP_RMSNORM_FWD_GAMMA] = gamma,
                                          [VP_RMSNORM_FWD_Y]     = y,
                                          [VP_RMSNORM_FWD_RSTD]  = rstd},
                           .rmsnorm    = {.rows = 1, .cols = 20, .groups = 2, .unit_offset = 1},
                           .norm_reals = {.eps = 16.0}};

    (void)state;
    for (int i = 0; i < 40; i++)
        x[i] = 3.0f, gamma[i % 20] = 0.5f;
    kt_run(&call);
    for (int i = 0; i < 40; i++)
        assert_true(fabs((double)y[i] - 0.9) < 2.0 * u);
    assert_true(rstd[0] == 0.2f && rstd[1] == 0.2f);
}

/* ---- activations ---- */

/* Relative to y: the logistic form keeps all digits. exp has 1 ulp = 2 u; its argument, at most
 * 1.7 for |x| <= 1, took 5 roundings, 1.7 * 5 u * (1 - s) < 7 u; three operations follow: 12 u.
 * The other forms have less. */
static void activations_agree_with_the_reference(void **state)
{
    int64_t counts[] = {1, 15, 16, 17, 1000, 1025, 16385};

    (void)state;
    for (int i = 0; i < COUNT(counts); i++)
        for (int act = 0; act < VP_N_ACTS; act++) {
            kt_case c = {.kernel     = VP_K_ACTIVATION_FWD,
                         .activation = {.count = counts[i], .act = act}};
            kt_check_all(&c, 0.0, 12.0 * u);
            c.kernel = VP_K_ACTIVATION_BWD;
            kt_check_all(&c, 8.0 * u, 12.0 * u);
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
                kt_case c = {
                    .kernel = VP_K_GLU_FWD,
                    .glu    = {
                           .rows = shapes[s][0], .cols = shapes[s][1], .act = act, .packed = packed}};
                kt_check_all(&c, 0.0, 14.0 * u);
                c.kernel = VP_K_GLU_BWD;
                kt_check_all(&c, 8.0 * u, 14.0 * u);
            }
}

/* Forward over [from, to] in steps of 0.01: within `tolerance` u of the reference, relative. */
static void check_digits(vp_act act, double from, double to, double tolerance)
{
    int64_t     n = (int64_t)((to - from) * 100.0) + 1;
    kt_case     c = {.kernel = VP_K_ACTIVATION_FWD, .activation = {.count = n, .act = act}};
    kt_operands o = kt_operands_new(&c, 1, 0);

    for (int64_t i = 0; i < n; i++)
        kt_set(&o, VP_ACTIVATION_FWD_X, i, from + 0.01 * (double)i);
    kt_run(&o.call);
    vp_reference_run(&o.reference);
    kt_compare(&o, 0.0, tolerance * u);
    kt_operands_release(&o);
}

static void activations_have_their_digits_in_both_tails(void **state)
{
    (void)state;
    /* y(-5) = -2.3e-7, where 1 + tanh in float would leave one digit. The argument of exp is -17
     * at x = -5 and took 5 roundings: 85 u, and 5 u as above; the reference's own 1 + tanh
     * cancels to 2^-52 against 1e-7 = 0.04 u. */
    check_digits(VP_ACT_GELU_TANH, -5.0, 12.0, 100.0);
    check_digits(VP_ACT_GELU, -12.8, 12.0, 8.0); /* Phi and a product: see below   */
    check_digits(VP_ACT_SILU, -80.0, 80.0, 6.0); /* exp, 1 + e, quotient, product */
}

static void activations_far_out_are_lines(void **state)
{
    (void)state;
    for (int act = 0; act < VP_N_ACTS; act++) {
        kt_case     c = {.kernel = VP_K_ACTIVATION_FWD, .activation = {.count = 3, .act = act}};
        kt_operands o = kt_operands_new(&c, 1, 0);
        float *x = o.call.operand[VP_ACTIVATION_FWD_X], *y = o.call.operand[VP_ACTIVATION_FWD_Y];

        bool bounded = act == VP_ACT_TANH;
        x[0] = 1e30f, x[1] = -1e30f, x[2] = NAN;
        kt_run(&o.call);
        assert_true(y[0] == (bounded ? 1.0f : 1e30f) && y[1] == (bounded ? -1.0f : 0.0f) &&
                    isnan(y[2]));
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
        y     = vp_exp_neg(x);
        e     = exp((double)x);
        ulp   = ldexp(1.0, ilogb(e) - 23);
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
            worst_slope =
                fmax(worst_slope, fabs((double)slope * (1.0 + e) * (1.0 + e) / (4.0 * e) - 1.0));
        assert_true(vp_tanh(-x) == -vp_tanh(x));
    }
    assert_true(worst <= 2.0 && worst_slope <= 5.0 * u);
    assert_true(vp_tanh(INFINITY) == 1.0f && vp_tanh(0.0f) == 0.0f && isnan(vp_tanh(NAN)));
}

/* cdf(x) is (1 + erf(x / sqrt 2)) / 2, taken as erfc in double so that the left tail has its
 * digits there as well. */
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
            double want = 0.5 * erfc((double)x / sqrt(2.0)),
                   of_x = exp(-0.5 * (double)x * (double)x) / sqrt(2.0 * acos(-1.0));

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
        for (vp_dtype dtype = VP_DTYPE_F32; dtype <= VP_DTYPE_F16; dtype++) {
            kt_case     c = {.kernel = VP_K_ADD, .dtype = dtype, .elements = {.count = counts[i]}};
            kt_operands o;

            /* the reference's sum is not rounded to float: half an ulp of |x + y| < 2 */
            kt_check(&c, u, u);
            c.kernel             = VP_K_SCALE;
            c.scale_reals.factor = 0.3; /* rounded to float, and the product */
            kt_check(&c, 2.0 * u, u);
            c.kernel = VP_K_ZERO;
            kt_check_all(&c, 0.0, 0.0);
            c.kernel = VP_K_GRAD_ADD;
            kt_check_all(&c, 0.0, 0.0); /* the tolerance of a bf16 result is its rounding */
            c.accumulate = true;
            kt_check_all(&c, u, u);
            c.accumulate = false;
            c.kernel     = VP_K_COPY;
            o            = kt_operands_new(&c, 1, 1);
            kt_run(&o.call);
            assert_memory_equal(o.call.operand[VP_COPY_X], o.call.operand[VP_COPY_Y],
                                (size_t)o.bytes[VP_COPY_X]);
            kt_operands_release(&o);
        }
}

/* 1 + 2^-9 is no bf16: the sum of three tiles of 256 rows, each 2^-9, and what was there, 1, is 1 + 3 x
 * 2^-9, which is rounded once, to 1 + 2^-7; a sum rounded after each tile would stay 1. */
static void a_bf16_gradient_is_rounded_once_a_call(void **state)
{
    kt_case     c = {.kernel     = VP_K_LINEAR_BWD_WEIGHT,
                     .dtype      = VP_DTYPE_BF16_GRADS,
                     .linear     = {.rows = 768, .in = 1, .out = 1, .layout = VP_WEIGHT_IN_OUT},
                     .accumulate = true};
    kt_operands o = kt_operands_new(&c, 1, 1);

    (void)state;
    for (int64_t r = 0; r < 768; r++) {
        kt_set(&o, VP_LINEAR_BWD_WEIGHT_X, r, r % 256 == 0);
        kt_set(&o, VP_LINEAR_BWD_WEIGHT_DY, r, r % 256 == 0 ? 0x1p-9 : 0.0);
    }
    kt_set(&o, VP_LINEAR_BWD_WEIGHT_DW, 0, 1.0);
    kt_set(&o, VP_LINEAR_BWD_WEIGHT_DB, 0, 1.0);
    kt_run(&o.call);
    assert_true(kt_get(&o.call, VP_LINEAR_BWD_WEIGHT_DW, 0) == 1.0 + 0x1p-7);
    assert_true(kt_get(&o.call, VP_LINEAR_BWD_WEIGHT_DB, 0) == 1.0 + 0x1p-7);
    kt_operands_release(&o);
}

static void a_bf16_sum_is_the_exact_one_rounded_to_even(void **state)
{
    /* In units of 2^-7 at 1: 128 + 0.5 is a tie between 128 and 129 and goes to 128, 129 + 0.5
     * to 130, 128 + 0.75 to 129. */
    kt_case     c   = {.kernel = VP_K_ADD, .dtype = VP_DTYPE_BF16, .elements = {.count = 3}};
    kt_operands o   = kt_operands_new(&c, 1, 0);
    double      x[] = {128, 129, 128}, y[] = {0.5, 0.5, 0.75}, z[] = {128, 130, 129};

    (void)state;
    for (int i = 0; i < 3; i++) {
        kt_set(&o, VP_ADD_X, i, x[i] / 128);
        kt_set(&o, VP_ADD_Y, i, y[i] / 128);
    }
    kt_run(&o.call);
    for (int i = 0; i < 3; i++)
        assert_true(kt_get(&o.call, VP_ADD_Z, i) == z[i] / 128);
    kt_operands_release(&o);
}

/* A product and a sum of terms of size scale and 1. */
static void embedding_agrees_with_the_reference(void **state)
{
    /* rows cols vocab seq position_offset; the fourth has every token many times, the last more
     * tiles than a block takes at once on a card */
    int64_t shapes[][5] = {{1, 1, 1, 1, 0},
                           {6, 40, 11, 3, 2},
                           {257, 33, 97, 257, 0},
                           {512, 130, 3, 64, 1},
                           {4610, 9, 5, 461, 2}};
    double  scales[]    = {1.0, 22.6};

    (void)state;
    for (int s = 0; s < COUNT(shapes); s++)
        for (int variant = 0; variant < 16; variant++) {
            double  scale = scales[variant & 1];
            kt_case c     = {.kernel          = VP_K_EMBEDDING_FWD,
                             .embedding       = {.rows            = shapes[s][0],
                                                 .cols            = shapes[s][1],
                                                 .vocab           = shapes[s][2],
                                                 .seq             = shapes[s][3],
                                                 .position_offset = shapes[s][4],
                                                 .skip_padding    = (variant & 8) && shapes[s][4] > 0},
                             .embedding_reals = {.scale = scale}};

            c.absent[VP_EMBEDDING_FWD_POSITIONS] = (variant & 2) != 0;
            kt_check_all(&c, 2.0 * u * scale, u);
            c.kernel                               = VP_K_EMBEDDING_BWD;
            c.absent[VP_EMBEDDING_FWD_POSITIONS]   = false;
            c.absent[VP_EMBEDDING_BWD_D_POSITIONS] = (variant & 2) != 0;
            c.embedding_bwd.skip_row               = (variant & 4) ? 1 + c.embedding.vocab / 2 : 0;
            kt_check_all(&c, dot_tolerance(shapes[s][0]) * scale, u);
        }
}

static void a_padding_row_learns_nothing_and_its_positions_do(void **state)
{
    /* tokens 1 0 1 0, positions 0 1 0 1 from row 2 on, dy = 1 2 3 4: d_table = {0, 1 + 3},
     * d_positions = {0, 0, 1 + 3, 2 + 4} */
    int32_t        tokens[] = {1, 0, 1, 0};
    float          dy[] = {1, 2, 3, 4}, d_table[2] = {0}, d_positions[4] = {0};
    vp_kernel_call call = {.kernel          = VP_K_EMBEDDING_BWD,
                           .dtype           = VP_DTYPE_F32,
                           .operand         = {[VP_EMBEDDING_BWD_TOKENS]      = tokens,
                                               [VP_EMBEDDING_BWD_DY]          = dy,
                                               [VP_EMBEDDING_BWD_D_TABLE]     = d_table,
                                               [VP_EMBEDDING_BWD_D_POSITIONS] = d_positions},
                           .embedding_bwd   = {.rows            = 4,
                                               .cols            = 1,
                                               .vocab           = 2,
                                               .seq             = 2,
                                               .position_offset = 2,
                                               .skip_padding    = 0,
                                               .skip_row        = 1},
                           .embedding_reals = {.scale = 1.0}};

    (void)state;
    kt_run(&call);
    assert_true(d_table[0] == 0 && d_table[1] == 4);
    assert_true(d_positions[0] == 0 && d_positions[1] == 0 && d_positions[2] == 4 &&
                d_positions[3] == 6);
}

static void padding_is_left_out_of_the_count_of_positions(void **state)
{
    /* Two samples of 4; padding is token 1, so positions count from 2: 2 3 1 4 and 1 2 1 3. */
    int32_t tokens[]    = {5, 6, 1, 7, 1, 5, 1, 6};
    float   positions[] = {0, 1, 2, 3, 4, 5}, y[8], dy[] = {1, 1, 1, 1, 10, 10, 10, 10},
          d_positions[6]    = {0};
    int64_t        want[]   = {2, 3, 1, 4, 1, 2, 1, 3};
    double         d_want[] = {0, 0, 1 + 10, 1 + 10, 1, 0};
    vp_kernel_call forward  = {
         .kernel  = VP_K_EMBEDDING_FWD,
         .dtype   = VP_DTYPE_F32,
         .operand = {[VP_EMBEDDING_FWD_TOKENS]    = tokens,
                     [VP_EMBEDDING_FWD_TABLE]     = NULL,
                     [VP_EMBEDDING_FWD_POSITIONS] = positions,
                     [VP_EMBEDDING_FWD_Y]         = y},
         .embedding =
             {.rows = 8, .cols = 1, .vocab = 9, .seq = 4, .position_offset = 2, .skip_padding = 1},
         .embedding_reals = {.scale = 1.0}};
    vp_kernel_call backward = {.kernel          = VP_K_EMBEDDING_BWD,
                               .dtype           = VP_DTYPE_F32,
                               .operand         = {[VP_EMBEDDING_BWD_TOKENS]      = tokens,
                                                   [VP_EMBEDDING_BWD_DY]          = dy,
                                                   [VP_EMBEDDING_BWD_D_TABLE]     = NULL,
                                                   [VP_EMBEDDING_BWD_D_POSITIONS] = d_positions},
                               .embedding_bwd   = {.rows            = 8,
                                                   .cols            = 1,
                                                   .vocab           = 9,
                                                   .seq             = 4,
                                                   .position_offset = 2,
                                                   .skip_padding    = 1,
                                                   .skip_row        = 0},
                               .embedding_reals = {.scale = 1.0}};

    (void)state;
    kt_run(&forward);
    kt_run(&backward);
    for (int i = 0; i < 8; i++)
        assert_true(y[i] == (float)want[i]);
    for (int i = 0; i < 6; i++)
        assert_true(d_positions[i] == (float)d_want[i]);
}

/* Gradients are at most inv_n_targets = 1/64, made of an exp (1 ulp of a value whose argument
 * has an error of u * 2) and two divisions; row_loss is up to log(vocab) + 2 and computed in
 * double from a sum with relative error of some u. A cap of 2 adds tanh's 2 ulp and two
 * roundings to logits below 1. */
static void cross_entropy_agrees_with_the_reference(void **state)
{
    int64_t shapes[][2] = {{1, 1}, {7, 2}, {3, 31}, {257, 257}, {2, 1025}, {4, 50257}};

    (void)state;
    for (int s = 0; s < 2 * COUNT(shapes); s++) {
        kt_case c = {.kernel        = VP_K_CROSS_ENTROPY,
                     .cross_entropy = {
                         .rows = shapes[s / 2][0], .vocab = shapes[s / 2][1], .padded = s % 2}};
        kt_check_all(&c, 8.0 * u, 8.0 * u);
        c.cross_entropy_reals.softcap = 2.0;
        kt_check_all(&c, 14.0 * u, 14.0 * u);
    }
}

/* Logits to +-90 under a cap of 30: a capped one, up to 30, is off by up to 5 u of itself (x /
 * c, tanh, product), 150 u, which is the relative error of its exponential; so may be the
 * greatest be, and their sum. */
static void cross_entropy_with_a_cap_agrees_far_from_zero(void **state)
{
    (void)state;
    for (vp_dtype dtype = VP_DTYPE_F32; dtype <= VP_DTYPE_F16; dtype++) {
        kt_case     c = {.kernel              = VP_K_CROSS_ENTROPY,
                         .dtype               = dtype,
                         .cross_entropy       = {.rows = 20, .vocab = 1027},
                         .cross_entropy_reals = {.softcap = 30.0}};
        kt_operands o = kt_operands_new(&c, 1, 0);

        for (int64_t i = 0; i < o.n[VP_CROSS_ENTROPY_LOGITS]; i++)
            kt_set(&o, VP_CROSS_ENTROPY_LOGITS, i,
                   90.0 * kt_get(&o.call, VP_CROSS_ENTROPY_LOGITS, i));
        kt_run(&o.call);
        vp_reference_run(&o.reference);
        kt_compare(&o, 450.0 * u, 450.0 * u);
        kt_operands_release(&o);
    }
}

static void an_ignored_label_has_no_loss_and_no_gradient(void **state)
{
    kt_case     c     = {.kernel = VP_K_CROSS_ENTROPY, .cross_entropy = {.rows = 2, .vocab = 3}};
    kt_operands o     = kt_operands_new(&c, 1, 0);
    int32_t    *label = o.call.operand[VP_CROSS_ENTROPY_LABELS];
    float      *x     = o.call.operand[VP_CROSS_ENTROPY_LOGITS],
          *loss       = o.call.operand[VP_CROSS_ENTROPY_ROW_LOSS];

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
    kt_case     c = {.kernel = VP_K_CROSS_ENTROPY, .cross_entropy = {.rows = 1, .vocab = 100}};
    kt_operands o = kt_operands_new(&c, 1, 0);

    (void)state;
    ((float *)o.call.operand[VP_CROSS_ENTROPY_LOGITS])[41] = NAN;
    kt_run(&o.call);
    assert_true(isnan(((float *)o.call.operand[VP_CROSS_ENTROPY_ROW_LOSS])[0]));
    kt_operands_release(&o);
}

/* Double sums of floats: n roundings of 2^-53. */
static void loss_sum_agrees_with_the_reference(void **state)
{
    int64_t counts[] = {1, 255, 257, 16385, 100003};

    (void)state;
    for (int i = 0; i < COUNT(counts); i++)
        kt_check(&(kt_case){.kernel = VP_K_LOSS_SUM, .token_rows = {.rows = counts[i]}}, 1e-10,
                 1e-12);
}

static void the_loss_is_summed_tile_by_tile(void **state)
{
    /* In double, 2^53 + 1 rounds back to 2^53. Rows 0 and 255, the first tile: 2^53 + 1 = 2^53.
     * Rows 256 and 257, the second: 1 + 1 = 2. Tile after tile 2^53 + 2, row after row 2^53. */
    float          row_loss[300] = {[0] = 0x1p53f, [255] = 1.0f, [256] = 1.0f, [257] = 1.0f};
    vp_control     control       = {0};
    vp_kernel_call call          = {
                 .kernel     = VP_K_LOSS_SUM,
                 .dtype      = VP_DTYPE_F32,
                 .operand    = {[VP_LOSS_SUM_ROW_LOSS] = row_loss, [VP_LOSS_SUM_CONTROL] = &control},
                 .token_rows = {.rows = 300}};

    (void)state;
    kt_run(&call);
    assert_true(control.loss_sum == 0x1p53 + 2.0);
}

/* Which gradient of a backward is the slope along which input of its forward. */
static const kt_fd_link linear_input_slopes = {
    .forward  = VP_K_LINEAR_FWD,
    .backward = VP_K_LINEAR_BWD_INPUT,
    .out      = VP_LINEAR_FWD_Y,
    .dy       = VP_LINEAR_BWD_INPUT_DY,
    .n_pairs  = 1,
    .pair     = {{.input = VP_LINEAR_FWD_X, .gradient = VP_LINEAR_BWD_INPUT_DX}},
    .n_shared = 1,
    .shared   = {{VP_LINEAR_BWD_INPUT_W, VP_LINEAR_FWD_W}}};
static const kt_fd_link linear_weight_slopes = {
    .forward  = VP_K_LINEAR_FWD,
    .backward = VP_K_LINEAR_BWD_WEIGHT,
    .out      = VP_LINEAR_FWD_Y,
    .dy       = VP_LINEAR_BWD_WEIGHT_DY,
    .n_pairs  = 2,
    .pair     = {{.input = VP_LINEAR_FWD_W, .gradient = VP_LINEAR_BWD_WEIGHT_DW},
                 {.input = VP_LINEAR_FWD_B, .gradient = VP_LINEAR_BWD_WEIGHT_DB}},
    .n_shared = 1,
    .shared   = {{VP_LINEAR_BWD_WEIGHT_X, VP_LINEAR_FWD_X}}};
static const kt_fd_link norm_slopes = {
    .forward  = VP_K_LAYERNORM_FWD,
    .backward = VP_K_LAYERNORM_BWD,
    .out      = VP_LAYERNORM_FWD_Y,
    .dy       = VP_LAYERNORM_BWD_DY,
    .n_pairs  = 3,
    .pair     = {{.input = VP_LAYERNORM_FWD_X, .gradient = VP_LAYERNORM_BWD_DX},
                 {.input = VP_LAYERNORM_FWD_GAMMA, .gradient = VP_LAYERNORM_BWD_D_GAMMA},
                 {.input = VP_LAYERNORM_FWD_BETA, .gradient = VP_LAYERNORM_BWD_D_BETA}},
    .n_shared = 4,
    .shared   = {{VP_LAYERNORM_BWD_X, VP_LAYERNORM_FWD_X},
                 {VP_LAYERNORM_BWD_GAMMA, VP_LAYERNORM_FWD_GAMMA},
                 {VP_LAYERNORM_BWD_MEAN, VP_LAYERNORM_FWD_MEAN},
                 {VP_LAYERNORM_BWD_RSTD, VP_LAYERNORM_FWD_RSTD}}};
static const kt_fd_link rms_slopes = {
    .forward  = VP_K_RMSNORM_FWD,
    .backward = VP_K_RMSNORM_BWD,
    .out      = VP_RMSNORM_FWD_Y,
    .dy       = VP_RMSNORM_BWD_DY,
    .n_pairs  = 2,
    .pair     = {{.input = VP_RMSNORM_FWD_X, .gradient = VP_RMSNORM_BWD_DX},
                 {.input = VP_RMSNORM_FWD_GAMMA, .gradient = VP_RMSNORM_BWD_D_GAMMA}},
    .n_shared = 3,
    .shared   = {{VP_RMSNORM_BWD_X, VP_RMSNORM_FWD_X},
                 {VP_RMSNORM_BWD_GAMMA, VP_RMSNORM_FWD_GAMMA},
                 {VP_RMSNORM_BWD_RSTD, VP_RMSNORM_FWD_RSTD}}};
static const kt_fd_link activation_slopes = {
    .forward  = VP_K_ACTIVATION_FWD,
    .backward = VP_K_ACTIVATION_BWD,
    .out      = VP_ACTIVATION_FWD_Y,
    .dy       = VP_ACTIVATION_BWD_DY,
    .n_pairs  = 1,
    .pair     = {{.input = VP_ACTIVATION_FWD_X, .gradient = VP_ACTIVATION_BWD_DX}},
    .n_shared = 1,
    .shared   = {{VP_ACTIVATION_BWD_X, VP_ACTIVATION_FWD_X}}};
static const kt_fd_link glu_slopes = {
    .forward  = VP_K_GLU_FWD,
    .backward = VP_K_GLU_BWD,
    .out      = VP_GLU_FWD_Y,
    .dy       = VP_GLU_BWD_DY,
    .n_pairs  = 2,
    .pair     = {{.input = VP_GLU_FWD_GATE, .gradient = VP_GLU_BWD_D_GATE},
                 {.input = VP_GLU_FWD_UP, .gradient = VP_GLU_BWD_D_UP}},
    .n_shared = 2,
    .shared   = {{VP_GLU_BWD_GATE, VP_GLU_FWD_GATE}, {VP_GLU_BWD_UP, VP_GLU_FWD_UP}}};
static const kt_fd_link embedding_slopes = {
    .forward  = VP_K_EMBEDDING_FWD,
    .backward = VP_K_EMBEDDING_BWD,
    .out      = VP_EMBEDDING_FWD_Y,
    .dy       = VP_EMBEDDING_BWD_DY,
    .n_pairs  = 2,
    .pair     = {{.input = VP_EMBEDDING_FWD_TABLE, .gradient = VP_EMBEDDING_BWD_D_TABLE},
                 {.input = VP_EMBEDDING_FWD_POSITIONS, .gradient = VP_EMBEDDING_BWD_D_POSITIONS}},
    .n_shared = 1,
    .shared   = {{VP_EMBEDDING_BWD_TOKENS, VP_EMBEDDING_FWD_TOKENS}}};
static const kt_fd_link drop_slopes = {.forward  = VP_K_DROPOUT,
                                       .backward = VP_K_DROPOUT,
                                       .out      = VP_DROPOUT_Y,
                                       .dy       = VP_DROPOUT_X,
                                       .n_pairs  = 1,
                                       .pair = {{.input = VP_DROPOUT_X, .gradient = VP_DROPOUT_Y}},
                                       .n_shared = 0};

static void reference_gradients_are_the_forwards_slopes(void **state)
{
    (void)state;
    CPU_ONLY();
    for (int layout = 0; layout < 2; layout++) {
        kt_case c = {.linear = {.rows = 5, .in = 4, .out = 3, .layout = layout}};
        kt_fd_check(&linear_input_slopes, &c);
        kt_fd_check(&linear_weight_slopes, &c);
    }
    kt_fd_check(&norm_slopes,
                &(kt_case){.layernorm = {.rows = 4, .cols = 7}, .norm_reals = {.eps = 1e-5}});
    kt_fd_check(
        &norm_slopes,
        &(kt_case){.layernorm  = {.rows = 4, .cols = 7},
                   .norm_reals = {.eps = 1e-5},
                   .absent = {[VP_LAYERNORM_FWD_GAMMA] = true, [VP_LAYERNORM_FWD_BETA] = true}});
    for (int unit_offset = 0; unit_offset < 2; unit_offset++)
        kt_fd_check(
            &rms_slopes,
            &(kt_case){.rmsnorm = {.rows = 4, .cols = 7, .groups = 3, .unit_offset = unit_offset},
                       .norm_reals = {.eps = 1e-5}});
    for (int act = 0; act < VP_N_ACTS; act++) {
        kt_fd_check(&activation_slopes, &(kt_case){.activation = {.count = 50, .act = act}});
        for (int packed = 0; packed < 2; packed++)
            kt_fd_check(&glu_slopes,
                        &(kt_case){.glu = {.rows = 5, .cols = 3, .act = act, .packed = packed}});
    }
    kt_fd_check(&embedding_slopes,
                &(kt_case){.embedding       = {.rows = 6, .cols = 3, .vocab = 4, .seq = 3},
                           .embedding_reals = {.scale = 1.0}});
    kt_fd_check(
        &embedding_slopes,
        &(kt_case){.embedding = {.rows = 6, .cols = 3, .vocab = 4, .seq = 3, .position_offset = 2},
                   .embedding_reals = {.scale = 1.75}});
    kt_fd_check(&drop_slopes, &(kt_case){.dropout       = {.batch = 2, .count = 9},
                                         .dropout_reals = {.p = 0.4},
                                         .rng           = {.seed = 9}});
}

static void reference_cross_entropy_gradient_is_the_losss_slope(void **state)
{
    double caps[] = {0.0, 0.8};

    (void)state;
    CPU_ONLY();
    for (int k = 0; k < COUNT(caps); k++) {
        kt_case     c    = {.kernel              = VP_K_CROSS_ENTROPY,
                            .cross_entropy       = {.rows = 5, .vocab = 6},
                            .cross_entropy_reals = {.softcap = caps[k]}};
        kt_operands o    = kt_operands_new(&c, 3, 0);
        double     *x    = o.reference.operand[VP_CROSS_ENTROPY_LOGITS],
               *row_loss = o.reference.operand[VP_CROSS_ENTROPY_ROW_LOSS];
        double start[30], gradient[30];

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
        cmocka_unit_test(linears_take_operands_at_any_element),
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
        cmocka_unit_test(a_bf16_gradient_is_rounded_once_a_call),
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
        cmocka_unit_test(the_backend_says_what_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, kt_print_worst);
}
