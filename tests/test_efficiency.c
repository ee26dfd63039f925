/* What a card is assumed to reach, against what others measured on it: single kernels, as published.
 * The law of devices/efficiency.h is not exact; a row off by more than is said here is wrong. */
#include "tests/base_test.h"

#include "devices/efficiency.h"

#include <math.h>

static vp_device d;
static vp_err    err;

static const vp_device *open_device(const char *name)
{
    err = (vp_err){0};
    assert_int_equal(vp_device_open(name, &d, &err), VP_OK);
    return &d;
}

static double product_tflops(const char *card, vp_dtype dtype, int64_t m, int64_t n, int64_t k)
{
    vp_linear_ints ints = {.rows = m, .in = k, .out = n};
    vp_roofline    r =
        vp_roofline_of(open_device(card), VP_K_LINEAR_FWD, dtype, (const int64_t *)&ints, 0);

    /* the published figures are without the launch */
    return 2.0 * (double)m * (double)n * (double)k / (r.seconds - r.launch_s) / 1e12;
}

static void near(double got, double want, double share)
{
    if (fabs(got / want - 1) > share)
        fail_msg("%.0f, published %.0f", got, want);
}

static void products_are_as_fast_as_published(void **state)
{
    (void)state;
    /* NVIDIA's figure 6 for the A100 of 40 GB; the last above what random data reaches: 271.2 */
    near(product_tflops("a100-sxm-40gb", VP_DTYPE_BF16, 3072, 3072, 3072), 236, 0.03);
    near(product_tflops("a100-sxm-40gb", VP_DTYPE_BF16, 4096, 4096, 4096), 260, 0.03);
    near(product_tflops("a100-sxm-40gb", VP_DTYPE_BF16, 8192, 8192, 8192), 271.2, 0.01);
    near(product_tflops("a100-sxm-40gb", VP_DTYPE_F32, 8192, 8192, 8192), 19, 0.03);
    near(product_tflops("a100-sxm-80gb", VP_DTYPE_BF16, 1024, 10240, 5120), 271.2, 0.08);
    /* fast.cu; MAMF */
    near(product_tflops("h100", VP_DTYPE_BF16, 4096, 4096, 4096), 716, 0.03);
    near(product_tflops("h100", VP_DTYPE_BF16, 8192, 8192, 8192), 795, 0.03);
    near(product_tflops("h200", VP_DTYPE_BF16, 8192, 8192, 8192), 784, 0.03);
    near(product_tflops("a6000", VP_DTYPE_F32, 4096, 4096, 4096), 23.27, 0.05);
}

static double attention_tflops(const char *card, vp_kernel kernel, int64_t seq, int64_t head,
                               int causal)
{
    /* as the papers have it: 16k tokens, 2,048 elements a token */
    vp_attention_ints ints = {.batch    = 16384 / seq,
                              .seq      = seq,
                              .heads    = 2048 / head,
                              .kv_heads = 2048 / head,
                              .head_dim = head,
                              .causal   = causal};
    vp_roofline       r =
        vp_roofline_of(open_device(card), kernel, VP_DTYPE_BF16, (const int64_t *)&ints, 0);

    return r.flop / (r.seconds - r.launch_s) / 1e12;
}

static void attention_is_as_fast_as_published(void **state)
{
    (void)state;
    /* arXiv:2407.08608, figures 5 and 6, cuDNN */
    near(attention_tflops("h100", VP_K_ATTENTION_FWD, 512, 128, 0), 497, 0.05);
    near(attention_tflops("h100", VP_K_ATTENTION_FWD, 2048, 128, 0), 617, 0.06);
    near(attention_tflops("h100", VP_K_ATTENTION_FWD, 1024, 64, 0), 373, 0.05);
    near(attention_tflops("h100", VP_K_ATTENTION_BWD, 1024, 64, 0), 348, 0.05);
    near(attention_tflops("h100", VP_K_ATTENTION_BWD, 4096, 128, 0), 499, 0.05);
    /* FlashAttention-2, both passes: 119 and 140 with a causal mask at 1k and 2k, heads of 64 */
    near(attention_tflops("a100-sxm-80gb", VP_K_ATTENTION_BWD, 1024, 64, 1), 119, 0.05);
    near(attention_tflops("a100-sxm-80gb", VP_K_ATTENTION_BWD, 2048, 64, 1), 140, 0.05);
    near(attention_tflops("a100-sxm-80gb", VP_K_ATTENTION_FWD, 2048, 128, 0), 187, 0.05);
}

/* A kernel that reads one array and writes another of the same size, over and over: each byte was last used as many bytes ago as both
 * have. GB/s as te42kyfo/gpu-benches measured (gpu-small-kernels, *_graph.txt), MB there of 2^20 bytes. Between the two rates the
 * law is a straight line, and the H200 there got 3.4 TB/s from memory where others get 4.3. */
static void caches_are_as_fast_as_measured(void **state)
{
    static const struct {
        const char *card;
        double      mib, gb_per_s, within;
    } rows[] = {
        {"a100-pcie-80gb", 20, 3042, 0.02},
        {"a100-pcie-80gb", 29, 2664, 0.10},
        {"a100-pcie-80gb", 34, 2362, 0.15},
        {"a100-pcie-80gb", 37, 2193, 0.17},
        {"a100-pcie-80gb", 40, 1613, 0.10},
        {"a100-pcie-80gb", 1000, 1738, 0.02},
        {"l40", 68, 4387, 0.02},
        {"l40", 80, 3932, 0.10},
        {"l40", 93, 2515, 0.15},
        {"l40", 100, 1622, 0.15},
        {"l40", 127, 1272, 0.17},
        {"l40", 160, 759, 0.05},
        {"l40", 1015, 761, 0.05},
        {"h200", 29, 4258, 0.02},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double       bytes = rows[i].mib * 1048576;
        vp_work_call call  = {.work = VP_WORK_ELEMENTWISE, .rate = VP_RATE_FP32, .bytes = bytes};
        vp_roofline  r;

        open_device(rows[i].card);
        call.cached = bytes * vp_cache_share(&d, bytes, bytes);
        r           = vp_roofline_of_work(&d, &call);
        near(bytes / r.memory_s / 1e9, rows[i].gb_per_s, rows[i].within);
    }
}

/* GB/s of the memory that an operator of PyTorch moves, without its launch. */
static double operator_gb_per_s(const char *card, double bytes)
{
    vp_work_call call = {.work = VP_WORK_OPERATOR, .rate = VP_RATE_FP32, .bytes = bytes};

    return bytes / vp_roofline_of_work(open_device(card), &call).memory_s / 1e9;
}

static void operators_of_pytorch_are_as_fast_as_measured(void **state)
{
    (void)state;
    /* tile-ai/TileOPs#512, #537; the other operators of #500 are slower */
    near(operator_gb_per_s("h200", 3 * 1024 * 20480 * 2.0), 3370, 0.01);
    near(operator_gb_per_s("h200", 7 * 16777216.0), 3530, 0.05);
    /* arXiv:2205.14135, figure 2: the passes of an unfused attention, forward and backward; its products are among them */
    near(operator_gb_per_s("a100-sxm-40gb", 40.3e9), 40.3e9 / 41.7e-3 / 1e9, 0.13);
    open_device("cpu");
    near(vp_operator_seconds(&d, 1e9), vp_moved_seconds(&d, 1e9), 0);
}

/* The share falls with the distance, a range has the mean of its distances, and a card whose cache nobody states holds nothing. */
static void a_cache_holds_less_of_what_is_longer_ago(void **state)
{
    double last = 1, sum = 0;

    (void)state;
    open_device("l40s");
    for (double far = 0; far < 300e6; far += 1e6) {
        double share = vp_cache_share(&d, far, far);
        assert_true(share >= 0 && share <= last);
        last = share;
        sum += vp_cache_share(&d, far, far + 1e6);
    }
    assert_true(last == 0 && vp_cache_share(&d, 0, 0) == 1);
    assert_true(fabs(sum / 300 - vp_cache_share(&d, 0, 300e6)) < 1e-9);
    assert_true(vp_cache_share(&d, 300e6, 0) == vp_cache_share(&d, 0, 300e6));
    open_device("t4");
    assert_true(vp_cache_share(&d, 0, 1) == 0);
}

/* 2048 x 2048 are 128 tiles of 128 x 256, one round of 132 multiprocessors; 2304 x 2048 are 144, two
 * rounds, the second nearly empty. None is above the best. */
static void no_shape_is_above_the_best(void **state)
{
    static const int64_t sizes[] = {1, 100, 1024, 4096, 16384, 65536};

    (void)state;
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++)
            for (int k = 0; k < 6; k++)
                assert_true(product_tflops("h100", VP_DTYPE_BF16, sizes[i], sizes[j], sizes[k]) <=
                            794.6);
    assert_true(product_tflops("h100", VP_DTYPE_BF16, 2304, 2048, 1024) <
                0.75 * product_tflops("h100", VP_DTYPE_BF16, 2048, 2048, 1024));
}

static void what_was_measured_on_the_device_is_not_derated(void **state)
{
    vp_linear_ints ints = {.rows = 4096, .in = 4096, .out = 4096};
    vp_roofline    r;

    (void)state;
    open_device("h100");
    d.sources[VP_FIGURE_BF16].class_   = VP_CLASS_MEASURED;
    d.sources[VP_FIGURE_MEMORY].class_ = VP_CLASS_MEASURED;
    r = vp_roofline_of(&d, VP_K_LINEAR_FWD, VP_DTYPE_BF16, (const int64_t *)&ints, 0);
    assert_true(fabs(r.compute_s - 2.0 * 4096 * 4096 * 4096 / d.bf16_flop_per_s) < 1e-12);
    /* and a bias of 4,096 elements */
    assert_true(fabs(r.memory_s - 2.0 * (3 * 4096 * 4096 + 4096) / d.memory_bytes_per_s) < 1e-12);
}

/* The round figures of the CPU are what they were: the larger of the two, and 4 us. */
static void the_cpu_keeps_its_round_figures(void **state)
{
    vp_linear_ints ints = {.rows = 256, .in = 512, .out = 1024};
    vp_roofline    r;

    (void)state;
    open_device("cpu");
    r = vp_roofline_of(&d, VP_K_LINEAR_FWD, VP_DTYPE_F32, (const int64_t *)&ints, 0);
    assert_true(fabs(r.seconds - (2.0 * 256 * 512 * 1024 / d.fp32_flop_per_s + 4e-6)) < 1e-12);
}

static void every_row_has_a_source_and_a_share_of_at_most_one(void **state)
{
    vp_efficiency e;

    (void)state;
    for (int i = 0; vp_efficiency_at(i, &e); i++) {
        assert_true(strlen(e.source) > 10);
        assert_true(e.share > 0 && e.share <= 1 && e.best <= 1);
        assert_true(e.work != VP_WORK_PRODUCT || e.best > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_as_fast_as_published),
        cmocka_unit_test(attention_is_as_fast_as_published),
        cmocka_unit_test(caches_are_as_fast_as_measured),
        cmocka_unit_test(operators_of_pytorch_are_as_fast_as_measured),
        cmocka_unit_test(a_cache_holds_less_of_what_is_longer_ago),
        cmocka_unit_test(no_shape_is_above_the_best),
        cmocka_unit_test(what_was_measured_on_the_device_is_not_derated),
        cmocka_unit_test(the_cpu_keeps_its_round_figures),
        cmocka_unit_test(every_row_has_a_source_and_a_share_of_at_most_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
