#include "tests/kernel_test.h"

#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/philox.h"

/* Tolerances. u = 2^-24 is float's unit roundoff; inputs are uniform in [-1, 1], with variance 1/3.
 * A sum of k products of two such numbers has variance k/9, so partial sums stay near sqrt(k)/3; k
 * roundings of relative size u, as a random walk (Higham and Mary 2019, SIAM J. Sci. Comput. 41(5)),
 * make an error near u sqrt(k) sqrt(k)/3 = u k / 3. The tests allow 6 times that. */
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
            kt_check(&c, dot_tolerance(k_of(linear_shapes[s])), 2.0 * u);
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
    vp_kernel_call call = {.kernel = VP_K_LINEAR_FWD, .ints = {1, 3000000000, 1, 0}};

    (void)state;
    assert_int_equal(vp_backend_cpu()->run(&call, &err), VP_ERR_INPUT);
    assert_non_null(strstr(err.message, "linear_fwd"));
    call = (vp_kernel_call){.kernel = VP_K_ATTENTION_FWD, .ints = {1, 1, 1 << 20, 1 << 20, 1 << 20}};
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
    for (int s = 0; s < COUNT(norm_shapes); s++) {
        kt_case c = {.kernel = VP_K_LAYERNORM_FWD, .ints = {norm_shapes[s][0], norm_shapes[s][1]},
                     .reals = {1e-5}};
        kt_check(&c, 32.0 * u, 32.0 * u);
    }
}

/* dx is rstd times a sum of three terms with the errors above, twice as many operations; the column sums
 * have `rows` terms dy xhat with |xhat| < 4. */
static void layernorm_backward_agrees_with_the_reference(void **state)
{
    (void)state;
    for (int s = 0; s < COUNT(norm_shapes); s++)
        for (int variant = 0; variant < 4; variant++) {
            kt_case c = {.kernel = VP_K_LAYERNORM_BWD, .ints = {norm_shapes[s][0], norm_shapes[s][1]},
                         .accumulate = (variant & 1) != 0, .absent = {[5] = (variant & 2) != 0}};
            kt_check(&c, 64.0 * u + 4.0 * dot_tolerance(norm_shapes[s][0]), 64.0 * u);
        }
}

/* batch, seq, heads, kv_heads, head_dim */
static const int64_t attention_shapes[][5] = {
    {1, 1, 1, 1, 1}, {2, 1, 2, 2, 40}, {1, 63, 2, 1, 16}, {1, 64, 1, 1, 64}, {2, 65, 6, 3, 40},
    {1, 130, 3, 3, 24}, {1, 200, 4, 1, 7}, {1, 129, 2, 2, 128},
};

/* Scores are sums of d products; an error of e in a score is a relative error e in a probability, and
 * outputs are means of values of size 1: dot_tolerance(d) carries through with the factors scale <= 1.
 * lse and y add the rounding of exp (1 ulp) and of a sum of seq terms in lanes. Gradients pass two more
 * products and sums of up to seq (times heads per kv head) terms, each smaller than 1 / (1 - p). */
static void attention_cases(vp_kernel kernel, double p, double factor)
{
    for (int s = 0; s < COUNT(attention_shapes); s++) {
        const int64_t *n = attention_shapes[s];
        kt_case        c = {.kernel = kernel, .reals = {1.0 / sqrt((double)n[4]), p},
                            .rng = {.seed = 7, .step = 2, .op = 5, .first_sample = 3}};
        memcpy(c.ints, n, sizeof attention_shapes[s]);
        kt_check(&c, factor * (dot_tolerance(n[4]) + dot_tolerance(n[1]) / 4.0), 16.0 * u);
    }
}

static void attention_forward_agrees_with_the_reference(void **state)
{
    (void)state;
    attention_cases(VP_K_ATTENTION_FWD, 0.0, 1.0);
}

static void attention_backward_agrees_with_the_reference(void **state)
{
    (void)state;
    attention_cases(VP_K_ATTENTION_BWD, 0.0, 4.0);
}

static void attention_with_dropout_agrees_with_the_reference(void **state)
{
    (void)state;
    attention_cases(VP_K_ATTENTION_FWD, 0.3, 1.5);
    attention_cases(VP_K_ATTENTION_BWD, 0.3, 8.0);
}

static void attention_bears_scores_far_from_zero(void **state)
{
    /* scale 200: scores of size 200, probabilities near one-hot; exp of the raw score would overflow. A
     * score's relative error 4u becomes 4u * 200 in a probability and in lse. */
    kt_case c = {.kernel = VP_K_ATTENTION_FWD, .ints = {1, 150, 2, 2, 32}, .reals = {200.0, 0.0}};

    (void)state;
    kt_check(&c, 200.0 * dot_tolerance(32), 8.0 * u);
}

/* Relative to y: the logistic form keeps all digits. exp has 1 ulp = 2 u; its argument, at most 1.7 for
 * |x| <= 1, took 5 roundings, 1.7 * 5 u * (1 - s) < 7 u; three operations follow: 12 u. */
static void gelu_forward_and_backward_agree_with_the_reference(void **state)
{
    int64_t counts[] = {1, 15, 16, 17, 1000, 16385};

    (void)state;
    for (int i = 0; i < COUNT(counts); i++) {
        kt_case c = {.kernel = VP_K_GELU_TANH_FWD, .ints = {counts[i]}};
        kt_check(&c, 0.0, 12.0 * u);
        c.kernel = VP_K_GELU_TANH_BWD;
        kt_check(&c, 8.0 * u, 12.0 * u);
    }
}

static void gelu_has_its_digits_in_both_tails(void **state)
{
    /* x from -5 to 12: y(-5) = -2.3e-7, where 1 + tanh in float would leave one digit. */
    kt_case     c = {.kernel = VP_K_GELU_TANH_FWD, .ints = {1701}};
    kt_operands o = kt_operands_new(&c, 1, 0);

    (void)state;
    for (int i = 0; i < 1701; i++)
        ((double *)o.reference.operand[0])[i] = ((float *)o.call.operand[0])[i] =
            (float)(-5.0 + 0.01 * i);
    kt_run(&o.call);
    vp_reference_run(&o.reference);
    for (int i = 0; i < 1701; i++) {
        /* the argument of exp is -17 at x = -5 and took 5 roundings: 85 u, and 5 u as above; the
         * reference's own 1 + tanh cancels to 2^-52 against 1e-7 = 0.04 u */
        double y = ((double *)o.reference.operand[1])[i];
        assert_true(fabs((double)((float *)o.call.operand[1])[i] - y) <= 100.0 * u * fabs(y));
    }
    kt_operands_release(&o);
}

static void exp_is_within_one_ulp_on_its_whole_domain(void **state)
{
    double worst = 0.0;

    (void)state;
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

static void add_copy_and_zero_are_exact(void **state)
{
    int64_t counts[] = {1, 17, 16384, 16385, 50001};

    (void)state;
    for (int i = 0; i < COUNT(counts); i++) {
        kt_case c = {.kernel = VP_K_ADD, .ints = {counts[i]}};
        kt_check(&c, u, u); /* the reference's sum is not rounded to float: half an ulp of |x + y| < 2 */
        c.kernel = VP_K_COPY;
        kt_check(&c, 0.0, 0.0);
        c.kernel = VP_K_ZERO;
        kt_check(&c, 0.0, 0.0);
    }
}

static void embedding_agrees_with_the_reference(void **state)
{
    /* rows cols vocab seq; the last has every token many times */
    int64_t shapes[][4] = {{1, 1, 1, 1}, {6, 40, 11, 3}, {257, 33, 97, 257}, {512, 130, 3, 64}};

    (void)state;
    for (int s = 0; s < COUNT(shapes); s++)
        for (int without = 0; without < 2; without++) {
            kt_case c = {.kernel = VP_K_EMBEDDING_FWD};
            memcpy(c.ints, shapes[s], sizeof shapes[s]);
            c.absent[2] = without != 0;
            kt_check(&c, u, u);
            c.kernel    = VP_K_EMBEDDING_BWD;
            c.absent[2] = false;
            c.absent[3] = without != 0;
            kt_check(&c, dot_tolerance(shapes[s][0]), u);
        }
}

/* Gradients are at most inv_n_targets = 1/64, made of an exp (1 ulp of a value whose argument has an
 * error of u * 2) and two divisions; row_loss is up to log(vocab) + 2 and computed in double from a sum
 * with relative error of some u. */
static void cross_entropy_agrees_with_the_reference(void **state)
{
    int64_t shapes[][2] = {{1, 1}, {7, 2}, {3, 31}, {257, 257}, {2, 1025}, {4, 50257}};

    (void)state;
    for (int s = 0; s < COUNT(shapes); s++) {
        kt_case c = {.kernel = VP_K_CROSS_ENTROPY, .ints = {shapes[s][0], shapes[s][1]}};
        kt_check(&c, 8.0 * u, 8.0 * u);
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
static void loss_sum_and_gradient_norm_agree_with_the_reference(void **state)
{
    int64_t counts[] = {1, 255, 257, 16385, 100003};

    (void)state;
    for (int i = 0; i < COUNT(counts); i++) {
        kt_case c = {.kernel = VP_K_LOSS_SUM, .ints = {counts[i]}};
        kt_check(&c, 1e-10, 1e-12);
        c.kernel = VP_K_GRAD_SUMSQ;
        kt_check(&c, 1e-10, 1e-12);
    }
    /* beyond the 512 tiles of 16384 that are summed at once */
    kt_check(&(kt_case){.kernel = VP_K_GRAD_SUMSQ, .ints = {512 * 16384 + 3}}, 1e-10, 1e-11);
}

static void the_loss_is_summed_tile_by_tile(void **state)
{
    /* In double, 2^53 + 1 rounds back to 2^53. Rows 0 and 255, the first tile: 2^53 + 1 = 2^53. Rows 256
     * and 257, the second: 1 + 1 = 2. Tile after tile 2^53 + 2, row after row 2^53. */
    float          row_loss[300] = {[0] = 0x1p53f, [255] = 1.0f, [256] = 1.0f, [257] = 1.0f};
    vp_control     control = {0};
    vp_kernel_call call = {.kernel = VP_K_LOSS_SUM, .operand = {row_loss, &control}, .ints = {300}};

    (void)state;
    kt_run(&call);
    assert_true(control.loss_sum == 0x1p53 + 2.0);
}

static void clipping_scales_to_the_bound_and_never_up(void **state)
{
    vp_control     control = {.grad_sumsq = 16.0};
    vp_kernel_call call    = {.kernel = VP_K_CLIP_SCALE, .operand = {&control}, .reals = {1.0}};

    (void)state;
    kt_run(&call); /* norm 4, clip 1: 1 / 4.000001 */
    assert_true(control.grad_norm == 4.0 && control.grad_scale == 1.0 / (4.0 + 1e-6));
    call.reals[0] = 5.0;
    kt_run(&call);
    assert_true(control.grad_scale == 1.0);
    call.reals[0] = 0.0;
    kt_run(&call);
    assert_true(control.grad_scale == 1.0);
    control.grad_sumsq = NAN;
    call.reals[0]      = 1.0;
    kt_run(&call);
    assert_true(isnan(control.grad_norm) && isnan(control.grad_scale));
}

/* p in [-1, 1]: each product and sum rounds once, about 6 roundings of terms of size 1. m / sqrt(v) is
 * at most of size 1/sqrt(0.1), times lr / corrections < 0.1. */
static void adamw_and_sgd_agree_with_the_reference(void **state)
{
    int64_t counts[] = {1, 17, 255, 16385};

    (void)state;
    for (int i = 0; i < COUNT(counts); i++)
        for (int decay = 0; decay < 2; decay++) {
            kt_case c = {.kernel = VP_K_ADAMW, .ints = {counts[i], decay}};
            kt_check(&c, 4.0 * u, 4.0 * u);
            c.kernel = VP_K_SGD;
            kt_check(&c, 2.0 * u, 2.0 * u);
        }
}

static void adamw_first_step_moves_by_the_learning_rate(void **state)
{
    /* t = 1, m = v = 0: m_hat = g, v_hat = g^2, so p moves by lr g / (|g| + eps) = lr. With decay 0.1
     * and lr 0.01: p = 2 * (1 - 0.001) - 0.01 = 1.988 */
    float          p = 2.0f, g = 0.5f, m = 0.0f, v = 0.0f;
    vp_control     control = {.lr = 0.01, .step = 1, .grad_scale = 1};
    vp_kernel_call call    = {.kernel = VP_K_ADAMW, .operand = {&p, &g, &m, &v, &control},
                              .ints = {1, 1}, .optimizer = &kt_optimizer};

    (void)state;
    kt_run(&call);
    assert_true(fabs((double)p - 1.988) < 4.0 * u);
}

/* ---- the reference's backward against finite differences of its forward ----
 *
 * loss = sum of out[i] * weight[i]; d loss / d in[i] by central differences with h = 1e-4 in double: error
 * h^2/6 f''' ~ 1e-9 f''' plus 2^-52 |loss| / h ~ 1e-11. 1e-6 is asked for. */

typedef struct fd_link {
    vp_kernel forward, backward;
    int       out;            /* forward's output that carries the loss  */
    int       dy;             /* backward's operand of its gradient      */
    int       n_pairs;
    struct {
        int input, gradient;  /* forward's operand, backward's gradient  */
    } pair[3];
    int shared[4][2];         /* backward operand <- forward operand     */
    int n_shared;
} fd_link;

static double fd_loss(const vp_kernel_call *forward, int out, const double *weight, int64_t n)
{
    const double *y    = forward->operand[out];
    double        loss = 0.0;

    vp_reference_run(forward);
    for (int64_t i = 0; i < n; i++)
        loss += y[i] * weight[i];
    return loss;
}

static void fd_check(const fd_link *link, const kt_case *forward_case, const double *backward_reals)
{
    kt_case b = *forward_case, f = *forward_case;
    kt_operands bo, fo;

    b.kernel = link->backward;
    f.kernel = link->forward;
    if (backward_reals)
        memcpy(b.reals, backward_reals, sizeof b.reals);
    memset(b.absent, 0, sizeof b.absent);
    if (link->backward == VP_K_LAYERNORM_BWD)
        b.absent[5] = true;
    fo = kt_operands_new(&f, 3, 0);
    bo = kt_operands_new(&b, 4, 0);
    vp_reference_run(&fo.reference);
    for (int i = 0; i < link->n_shared; i++)
        memcpy(bo.reference.operand[link->shared[i][0]], fo.reference.operand[link->shared[i][1]],
               2 * (size_t)bo.bytes[link->shared[i][0]]);
    if (link->backward == VP_K_EMBEDDING_BWD) { /* gradients add; start from zero; tokens are int32 */
        memcpy(bo.reference.operand[0], fo.reference.operand[0], (size_t)bo.bytes[0]);
        memset(bo.reference.operand[2], 0, 2 * (size_t)bo.bytes[2]);
        memset(bo.reference.operand[3], 0, 2 * (size_t)bo.bytes[3]);
    }
    vp_reference_run(&bo.reference);
    for (int p = 0; p < link->n_pairs; p++) {
        double       *x        = fo.reference.operand[link->pair[p].input];
        const double *gradient = bo.reference.operand[link->pair[p].gradient];
        const double *weight   = bo.reference.operand[link->dy];
        int64_t       n_out = fo.bytes[link->out] / 4, n = fo.bytes[link->pair[p].input] / 4;

        for (int64_t i = 0; i < n; i++) {
            double keep = x[i], plus, minus, difference;

            x[i]  = keep + 1e-4;
            plus  = fd_loss(&fo.reference, link->out, weight, n_out);
            x[i]  = keep - 1e-4;
            minus = fd_loss(&fo.reference, link->out, weight, n_out);
            x[i]  = keep;
            difference = (plus - minus) / 2e-4;
            if (!(fabs(difference - gradient[i]) <= 1e-6 * (1.0 + fabs(difference))))
                fail_msg("%s pair %d [%lld]: gradient %.9g, difference %.9g",
                         vp_kernel_info_of(link->backward)->name, p, (long long)i, gradient[i], difference);
        }
    }
    kt_operands_release(&fo);
    kt_operands_release(&bo);
}

static void reference_gradients_are_the_forwards_slopes(void **state)
{
    fd_link linear_input = {VP_K_LINEAR_FWD, VP_K_LINEAR_BWD_INPUT, 3, 0, 1, {{0, 2}}, {{1, 1}}, 1};
    fd_link linear_weight = {VP_K_LINEAR_FWD, VP_K_LINEAR_BWD_WEIGHT, 3, 1, 2, {{1, 2}, {2, 3}}, {{0, 0}}, 1};
    fd_link norm = {VP_K_LAYERNORM_FWD, VP_K_LAYERNORM_BWD, 3, 0, 3, {{0, 6}, {1, 7}, {2, 8}},
                    {{1, 0}, {2, 1}, {3, 4}, {4, 5}}, 4};
    fd_link gelu = {VP_K_GELU_TANH_FWD, VP_K_GELU_TANH_BWD, 1, 0, 1, {{0, 2}}, {{1, 0}}, 1};
    fd_link attention = {VP_K_ATTENTION_FWD, VP_K_ATTENTION_BWD, 1, 0, 1, {{0, 4}},
                         {{1, 0}, {2, 1}, {3, 2}}, 3};
    fd_link embedding = {VP_K_EMBEDDING_FWD, VP_K_EMBEDDING_BWD, 3, 1, 2, {{1, 2}, {2, 3}}, {{0, 0}}, 0};
    fd_link drop = {VP_K_DROPOUT, VP_K_DROPOUT, 1, 0, 1, {{0, 1}}, {{0, 0}}, 0};

    (void)state;
    for (int layout = 0; layout < 2; layout++) {
        kt_case c = {.ints = {5, 4, 3, layout}};
        fd_check(&linear_input, &c, NULL);
        fd_check(&linear_weight, &c, NULL);
    }
    fd_check(&norm, &(kt_case){.ints = {4, 7}, .reals = {1e-5}}, NULL);
    fd_check(&gelu, &(kt_case){.ints = {50}}, NULL);
    fd_check(&attention, &(kt_case){.ints = {2, 5, 4, 2, 3}, .reals = {0.6, 0.0}}, NULL);
    fd_check(&attention, &(kt_case){.ints = {2, 5, 4, 2, 3}, .reals = {0.6, 0.4}, .rng = {.seed = 9}}, NULL);
    fd_check(&embedding, &(kt_case){.ints = {6, 3, 4, 3}}, NULL);
    fd_check(&drop, &(kt_case){.ints = {2, 9}, .reals = {0.4}, .rng = {.seed = 9}}, NULL);
}

static void reference_cross_entropy_gradient_is_the_losss_slope(void **state)
{
    kt_case     c = {.kernel = VP_K_CROSS_ENTROPY, .ints = {5, 6}};
    kt_operands o = kt_operands_new(&c, 3, 0);
    double     *x = o.reference.operand[0], *row_loss = o.reference.operand[3];
    double      start[30], gradient[30];

    (void)state;
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
            kt_check(&c, 0.0, 2.0 * u);
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
    int64_t     n = x.bytes[1] / 4, n_equal = 0;

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

static void attention_drops_its_share_of_probabilities(void **state)
{
    /* q = k = 0: uniform probabilities; v one-hot of the key's place mod 64 with 64 keys: y[i][c] is
     * M[i][c] / (i + 1), so y shows the mask itself. */
    enum { S = 64, HEADS = 16 };
    kt_case     c = {.kernel = VP_K_ATTENTION_FWD, .ints = {1, S, HEADS, HEADS, S}, .reals = {1.0, 0.25},
                     .rng = {.seed = 3}};
    kt_operands o = kt_operands_new(&c, 1, 0);
    float      *qkv = o.call.operand[0], *y = o.call.operand[1];
    int64_t     n_dropped = 0, n = HEADS * S * (S + 1) / 2;

    (void)state;
    memset(qkv, 0, (size_t)o.bytes[0]);
    for (int64_t i = 0; i < S; i++)
        for (int64_t h = 0; h < HEADS; h++)
            qkv[i * 3 * HEADS * S + (2 * HEADS + h) * S + i] = 1.0f;
    kt_run(&o.call);
    for (int64_t i = 0; i < S; i++)
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t j = 0; j <= i; j++) {
                double m = (double)y[i * HEADS * S + h * S + j] * (double)(i + 1);
                assert_true(m == 0.0 || fabs(m - 4.0 / 3.0) < 1e-5);
                n_dropped += m == 0.0;
            }
    /* n = 33280: 8320 +- 5 sqrt(n 0.25 0.75) = 395 */
    assert_true(llabs(n_dropped - n / 4) < 395);
    kt_operands_release(&o);
}

static void drawn_normals_are_box_muller_of_their_words(void **state)
{
    enum { N = 4096 };
    static float  x[N];
    vp_philox_key key = vp_philox_key_of_name(5, "h.0.attn.c_attn.weight");

    (void)state;
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
        cmocka_unit_test(attention_forward_agrees_with_the_reference),
        cmocka_unit_test(attention_backward_agrees_with_the_reference),
        cmocka_unit_test(attention_with_dropout_agrees_with_the_reference),
        cmocka_unit_test(attention_bears_scores_far_from_zero),
        cmocka_unit_test(gelu_forward_and_backward_agree_with_the_reference),
        cmocka_unit_test(gelu_has_its_digits_in_both_tails),
        cmocka_unit_test(exp_is_within_one_ulp_on_its_whole_domain),
        cmocka_unit_test(add_copy_and_zero_are_exact),
        cmocka_unit_test(embedding_agrees_with_the_reference),
        cmocka_unit_test(cross_entropy_agrees_with_the_reference),
        cmocka_unit_test(an_ignored_label_has_no_loss_and_no_gradient),
        cmocka_unit_test(a_nan_logit_makes_the_loss_nan),
        cmocka_unit_test(loss_sum_and_gradient_norm_agree_with_the_reference),
        cmocka_unit_test(the_loss_is_summed_tile_by_tile),
        cmocka_unit_test(clipping_scales_to_the_bound_and_never_up),
        cmocka_unit_test(adamw_and_sgd_agree_with_the_reference),
        cmocka_unit_test(adamw_first_step_moves_by_the_learning_rate),
        cmocka_unit_test(reference_gradients_are_the_forwards_slopes),
        cmocka_unit_test(reference_cross_entropy_gradient_is_the_losss_slope),
        cmocka_unit_test(philox_gives_the_published_words),
        cmocka_unit_test(many_philox_blocks_are_the_single_ones),
        cmocka_unit_test(dropout_agrees_with_the_reference),
        cmocka_unit_test(dropout_drops_its_share_and_keeps_the_mean),
        cmocka_unit_test(seed_step_op_and_sample_each_give_another_mask),
        cmocka_unit_test(attention_drops_its_share_of_probabilities),
        cmocka_unit_test(drawn_normals_are_box_muller_of_their_words),
        cmocka_unit_test(drawn_normals_have_the_moments_of_a_normal),
        cmocka_unit_test(an_elements_draw_depends_on_seed_name_and_index_only),
        cmocka_unit_test(the_backend_says_what_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
