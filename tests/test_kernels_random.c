/* Random numbers: the published words, masks and drawn parameters. */
#include "tests/kernel_test.h"

#include "kernels/cpu/philox.h"

static const double u = 0x1p-24; /* float's unit roundoff */

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

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
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
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
    double  ps[]        = {0.0, 0.1, 0.5, 0.999, 1.0};
    int64_t shapes[][2] = {{1, 1}, {3, 7}, {2, 1025}, {2, 16386}};

    (void)state;
    for (int s = 0; s < COUNT(shapes); s++)
        for (int i = 0; i < COUNT(ps); i++) {
            kt_case c = {.kernel        = VP_K_DROPOUT,
                         .dropout       = {.batch = shapes[s][0], .count = shapes[s][1]},
                         .dropout_reals = {.p = ps[i]},
                         .rng           = {.seed = 42, .step = 1, .op = 9, .first_sample = 1000}};
            kt_check_all(&c, 0.0, 2.0 * u);
        }
}

static void dropout_drops_its_share_and_keeps_the_mean(void **state)
{
    enum { N = 1 << 20 };
    kt_case     c = {.kernel        = VP_K_DROPOUT,
                     .dropout       = {.batch = 4, .count = N / 4},
                     .dropout_reals = {.p = 0.1},
                     .rng           = {.seed = 1}};
    kt_operands o = kt_operands_new(&c, 1, 0);
    float      *x = o.call.operand[VP_DROPOUT_X], *y = o.call.operand[VP_DROPOUT_Y];
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
    /* binomial: 104858 +- 5 sqrt(N 0.1 0.9) = 1536; neighbours both: 10486 +- 5 sqrt(N 0.01) =
     * 512 */
    assert_true(llabs(n_dropped - N / 10) < 1536);
    assert_true(llabs(n_pairs - N / 100) < 530);
    kt_operands_release(&o);
}

static int64_t n_equal_masks(const kt_case *a, const kt_case *b)
{
    kt_operands x = kt_operands_new(a, 1, 0), y = kt_operands_new(b, 1, 0);
    int64_t     n = x.n[VP_DROPOUT_Y], n_equal = 0;

    for (int64_t i = 0; i < n; i++)
        ((float *)x.call.operand[VP_DROPOUT_X])[i] = ((float *)y.call.operand[VP_DROPOUT_X])[i] =
            1.0f;
    kt_run(&x.call);
    kt_run(&y.call);
    for (int64_t i = 0; i < n; i++)
        n_equal += ((float *)x.call.operand[VP_DROPOUT_Y])[i] ==
                   ((float *)y.call.operand[VP_DROPOUT_Y])[i];
    kt_operands_release(&x);
    kt_operands_release(&y);
    return n_equal;
}

static void seed_step_op_and_sample_each_give_another_mask(void **state)
{
    kt_case a    = {.kernel        = VP_K_DROPOUT,
                    .dropout       = {.batch = 1, .count = 10000},
                    .dropout_reals = {.p = 0.5},
                    .rng           = {.seed = 1}};
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
    vp_draw_normal(5, "h.0.attn.c_attn.weight", 0.02, 0, x, N);
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
    float *x  = malloc(N * sizeof(float));
    double m1 = 0.0, m2 = 0.0, m4 = 0.0;

    (void)state;
    CPU_ONLY();
    assert_non_null(x);
    vp_draw_normal(1, "wte.weight", 1.0, 0, x, N);
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
    vp_draw_normal(1, "w", 1.0, 0, a, 5000);
    vp_draw_normal(1, "w", 1.0, 0, b, 4999);
    assert_memory_equal(a, b, 4999 * sizeof(float));
    vp_draw_normal(1, "v", 1.0, 0, b, 5000);
    assert_true(memcmp(a, b, sizeof a) != 0);
    vp_draw_normal(2, "w", 1.0, 0, b, 5000);
    assert_true(memcmp(a, b, sizeof a) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_words),
        cmocka_unit_test(many_philox_blocks_are_the_single_ones),
        cmocka_unit_test(dropout_agrees_with_the_reference),
        cmocka_unit_test(dropout_drops_its_share_and_keeps_the_mean),
        cmocka_unit_test(seed_step_op_and_sample_each_give_another_mask),
        cmocka_unit_test(drawn_normals_are_box_muller_of_their_words),
        cmocka_unit_test(drawn_normals_have_the_moments_of_a_normal),
        cmocka_unit_test(an_elements_draw_depends_on_seed_name_and_index_only),
    };

    return cmocka_run_group_tests(tests, NULL, kt_print_worst);
}
