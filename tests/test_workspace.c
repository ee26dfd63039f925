/* tests/test_workspace.c: working memory of each kernel family on devices of compute capability 8.0, 9.0 and 10.0, worked by hand. */
#include "tests/core_test.h"

#include "core/checked.h"
#include "core/workspace.h"

#include <stdbool.h>

enum { MIB = 1 << 20 };

static int64_t bytes_of(int sm, vp_kernel kernel, const int64_t *ints)
{
    vp_call_shape call = {.sm = sm, .kernel = kernel, .dtype = VP_DTYPE_BF16, .ints = ints};

    return vp_workspace_bytes(&call);
}

/* attention's ints: batch seq heads kv_heads head_dim layout causal window probs; its reals: scale p softcap */
static int64_t attention(int sm, vp_kernel kernel, vp_dtype dtype, const int64_t *ints)
{
    double        reals[] = {0.125, 0, 0};
    vp_call_shape call    = {.sm = sm, .kernel = kernel, .dtype = dtype, .ints = ints, .reals = reals};

    return vp_workspace_bytes(&call);
}

static int64_t chunks(int sm, const int64_t *ints)
{
    double        reals[] = {0.125, 0, 0};
    vp_call_shape call    = {.sm = sm, .kernel = VP_K_ATTENTION_BWD, .dtype = VP_DTYPE_BF16, .ints = ints, .reals = reals};

    return vp_cuda_attention_chunks(&call);
}

static void the_cpu_needs_none(void **state)
{
    int64_t linear[] = {1024, 768, 3072, 0}, tall[] = {4, 1024, 12, 12, 64, 0, 1, 0, 0};

    (void)state;
    assert_int_equal(bytes_of(0, VP_K_LINEAR_BWD_WEIGHT, linear), 0);
    assert_int_equal(attention(0, VP_K_ATTENTION_BWD, VP_DTYPE_BF16, tall), 0);
    assert_int_equal(bytes_of(0, VP_K_ADAFACTOR, linear), 0);
}

static void kernels_without_sums_need_none(void **state)
{
    int64_t count[] = {1 << 20, 0, 0};

    (void)state;
    assert_int_equal(bytes_of(90, VP_K_ADD, count), 0);
    assert_int_equal(bytes_of(90, VP_K_ADAMW, count), 0);
    assert_int_equal(bytes_of(90, VP_K_CROSS_ENTROPY, (int64_t[]){1024, 50257}), 0);
    assert_int_equal(bytes_of(90, VP_K_LAYERNORM_FWD, (int64_t[]){1024, 768}), 0);
}

static void products_get_what_cublas_takes_by_default(void **state)
{
    int64_t n[] = {1024, 768, 3072, 0};

    (void)state;
    assert_int_equal(bytes_of(80, VP_K_LINEAR_FWD, n), 4 * MIB);
    assert_int_equal(bytes_of(89, VP_K_LINEAR_BWD_INPUT, n), 4 * MIB);
    assert_int_equal(bytes_of(90, VP_K_LINEAR_FWD, n), 32 * MIB);
    assert_int_equal(bytes_of(100, VP_K_LINEAR_BWD_INPUT, n), 32 * MIB);
}

static void a_weights_gradient_has_room_for_its_bias(void **state)
{
    (void)state;
    /* 8192 tokens are 32 tiles of 256, of 50257 columns: 32 * 50257 * 4 = 6432896, more than 4 MiB and less than 32 */
    assert_int_equal(bytes_of(80, VP_K_LINEAR_BWD_WEIGHT, (int64_t[]){8192, 768, 50257, 0}), 6432896);
    assert_int_equal(bytes_of(90, VP_K_LINEAR_BWD_WEIGHT, (int64_t[]){8192, 768, 50257, 0}), 32 * MIB);
    /* 257 tokens are two tiles: 2 * 3072 * 4 = 24576 */
    assert_int_equal(bytes_of(80, VP_K_LINEAR_BWD_WEIGHT, (int64_t[]){257, 768, 3072, 0}), 4 * MIB);
    /* 65536 tokens are 256 tiles: 256 * 50257 * 4 = 51463168 */
    assert_int_equal(bytes_of(100, VP_K_LINEAR_BWD_WEIGHT, (int64_t[]){65536, 768, 50257, 0}), 51463168);
}

static void sums_over_tokens_go_by_tiles_of_256(void **state)
{
    (void)state;
    for (int sm = 80; sm <= 100; sm += 10) {
        /* 1025 rows are 5 tiles: 2 * 5 * 768 * 4 = 30720, and one sum of each for an RMS norm, half of that */
        assert_int_equal(bytes_of(sm, VP_K_LAYERNORM_BWD, (int64_t[]){1025, 768}), 30720);
        assert_int_equal(bytes_of(sm, VP_K_RMSNORM_BWD, (int64_t[]){1025, 768, 1, 0}), 15360);
        /* a norm of each head sums the rows as they are */
        assert_int_equal(bytes_of(sm, VP_K_RMSNORM_BWD, (int64_t[]){256, 128, 1, 0}), 512);
        /* two integers of each of 50257 ids and one of each of 1024 rows: 4 * (2 * 50257 + 1024) = 406152 */
        assert_int_equal(bytes_of(sm, VP_K_EMBEDDING_BWD, (int64_t[]){1024, 768, 50257, 1024, 0, 0, 0}), 406152);
    }
}

static void squares_are_a_double_of_each_piece(void **state)
{
    (void)state;
    assert_int_equal(bytes_of(80, VP_K_GRAD_SUMSQ, (int64_t[]){1}), 8);
    assert_int_equal(bytes_of(90, VP_K_GRAD_SUMSQ, (int64_t[]){16384}), 8);
    assert_int_equal(bytes_of(90, VP_K_GRAD_SUMSQ, (int64_t[]){16385}), 16);
    /* 50257 * 768 = 38597376 elements, 2355.8 pieces of 16384: 2356 * 8 */
    assert_int_equal(bytes_of(100, VP_K_GRAD_SUMSQ, (int64_t[]){50257 * 768}), 18848);
}

static void adafactor_keeps_sums_by_row_and_column(void **state)
{
    (void)state;
    /* factored, 50257 x 768: 197 tiles of 256 rows, of 768 columns, are 151296 doubles, more than 2 * 50257; with the 4 scalars
     * 8 * 151300 = 1210400; a float of each row and column 4 * 51025 = 204100 */
    assert_int_equal(bytes_of(90, VP_K_ADAFACTOR, (int64_t[]){50257, 768, 1, 1}), 1414500);
    /* 1025 x 3: 5 tiles of 3 columns are 15, 2 * 1025 = 2050 are more: 8 * 2054 + 4 * 1028 */
    assert_int_equal(bytes_of(80, VP_K_ADAFACTOR, (int64_t[]){1025, 3, 1, 1}), 20544);
    /* 1 x 3: 3 sums, rounded up to 4: 8 * 8 + 4 * 4 */
    assert_int_equal(bytes_of(80, VP_K_ADAFACTOR, (int64_t[]){1, 3, 1, 1}), 80);
    /* a vector of 4097: two pieces of 4096, two sums of each: 8 * (4 + 4) */
    assert_int_equal(bytes_of(100, VP_K_ADAFACTOR, (int64_t[]){4097, 1, 0, 0}), 64);
}

static void muon_has_products_and_a_norm(void **state)
{
    (void)state;
    assert_int_equal(bytes_of(80, VP_K_MUON, (int64_t[]){768, 768, 1}), 4 * MIB);
    assert_int_equal(bytes_of(90, VP_K_MUON, (int64_t[]){768, 768, 1}), 32 * MIB);
    /* 65536 * 65536 elements are 1048576 pieces of 4096; one double more: 8 * 1048577, more than 4 MiB */
    assert_int_equal(bytes_of(80, VP_K_MUON, (int64_t[]){65536, 65536, 1}), 8388616);
}

static void our_attention_keeps_a_row_sum(void **state)
{
    int64_t n[] = {4, 1024, 12, 12, 64, 0, 1, 0, 0}, odd[] = {4, 1024, 12, 12, 60, 0, 1, 0, 0};

    (void)state;
    /* batch * heads * seq floats: 4 * 12 * 1024 * 4 = 196608; forward none. cuDNN has no fp32 and no heads of 60 elements. */
    for (int sm = 80; sm <= 100; sm += 10) {
        assert_int_equal(attention(sm, VP_K_ATTENTION_BWD, VP_DTYPE_F32, n), 196608);
        assert_int_equal(attention(sm, VP_K_ATTENTION_FWD, VP_DTYPE_F32, n), 0);
        assert_int_equal(attention(sm, VP_K_ATTENTION_BWD, VP_DTYPE_BF16, odd), 196608);
    }
}

static void cudnn_forward_takes_256_bytes_on_hopper(void **state)
{
    int64_t n[] = {4, 1024, 12, 12, 64, 0, 1, 0, 0};

    (void)state;
    assert_int_equal(attention(80, VP_K_ATTENTION_FWD, VP_DTYPE_BF16, n), 0);
    assert_int_equal(attention(90, VP_K_ATTENTION_FWD, VP_DTYPE_BF16, n), 256 + 192); /* 192: to begin at 256 in a place of 64 */
    assert_int_equal(attention(100, VP_K_ATTENTION_FWD, VP_DTYPE_BF16, n), 0);
}

static void cudnn_backward_goes_in_parts_of_64_mib(void **state)
{
    int64_t n[] = {4, 1024, 12, 12, 64, 0, 1, 0, 0}, grouped[] = {2, 2048, 32, 8, 64, 0, 1, 0, 0}, longer[] = {1, 4096, 8, 4, 64, 0, 1, 0, 0};

    (void)state;
    /* dS of one part of b samples: 2 b * 12 * 1024 * 1024 = b * 25165824. All 4 are 96 MiB, 2 are 48: two parts.
     * Row sums of a part: 2 * 12 * 1024 * 4 = 98304. */
    assert_int_equal(chunks(80, n), 2);
    assert_int_equal(attention(80, VP_K_ATTENTION_BWD, VP_DTYPE_BF16, n), 98304 + 50331648 + 128 + 192);
    assert_int_equal(attention(90, VP_K_ATTENTION_BWD, VP_DTYPE_BF16, n), 98304 + 50331648 + 256 + 192);
    /* On sm_100 nothing grows with the square: one part, and our own row sums are 196608 as well */
    assert_int_equal(chunks(100, n), 1);
    assert_int_equal(attention(100, VP_K_ATTENTION_BWD, VP_DTYPE_BF16, n), 196608 + 192);
    /* Each sample's dS is 2 * 32 * 2048^2 = 256 MiB, and two gradients of each of 32 heads, 2 * 32 * 2048 * 64 bytes, are 16 MiB. 8 parts of
     * the 2 samples: 8 of 32 heads each, 64 + 4 MiB, too much; 16 parts of 4 heads 32 + 2 MiB. Row sums 4 * 2048 * 4 = 32768, but ours
     * takes both samples at once: 2 * 32 * 2048 * 4 = 524288, less than the parts. */
    assert_int_equal(chunks(90, grouped), 16);
    assert_int_equal(attention(90, VP_K_ATTENTION_BWD, VP_DTYPE_BF16, grouped), 32768 + 33554432 + 2097152 + 256 + 192);
    /* sm_100: 4 F + 128, F = 2 * 2 * 32 * 2048 * 64 = 16 MiB, 64 MiB and 128 bytes at once: a little too much; two parts of 32 MiB.
     * Row sums of a part: 32 * 2048 * 4 = 262144. */
    assert_int_equal(chunks(100, grouped), 2);
    assert_int_equal(attention(100, VP_K_ATTENTION_BWD, VP_DTYPE_BF16, grouped), 262144 + 33554432 + 128 + 192);
    /* A part is a group of heads at least, whatever it takes: 2 heads, 2 * 2 * 4096^2 = 64 MiB, 2 F = 2 * 2 * 2 * 4096 * 64 = 2 MiB.
     * Row sums 2 * 4096 * 4. */
    assert_int_equal(chunks(80, longer), 4);
    assert_int_equal(attention(80, VP_K_ATTENTION_BWD, VP_DTYPE_BF16, longer), 32768 + 67108864 + 2097152 + 128 + 192);
}

static void what_64_bits_do_not_hold_overflows(void **state)
{
    int64_t large = (int64_t)1 << 62, tall[] = {1, (int64_t)1 << 40, 64, 64, 64, 0, 1, 0, 0};

    (void)state;
    assert_true(vp_overflowed(bytes_of(90, VP_K_LINEAR_BWD_WEIGHT, (int64_t[]){large, 1, 1 << 20, 0})));
    assert_true(vp_overflowed(bytes_of(90, VP_K_EMBEDDING_BWD, (int64_t[]){1, 1, large, 1, 0, 0, 0})));
    assert_true(vp_overflowed(bytes_of(90, VP_K_LAYERNORM_BWD, (int64_t[]){large, 1 << 20})));
    assert_true(vp_overflowed(bytes_of(80, VP_K_RMSNORM_BWD, (int64_t[]){large, 1 << 20, 1, 0})));
    assert_true(vp_overflowed(bytes_of(90, VP_K_ADAFACTOR, (int64_t[]){large, 1 << 20, 1, 1})));
    assert_true(vp_overflowed(bytes_of(90, VP_K_ADAFACTOR, (int64_t[]){large, 1 << 20, 0, 0})));
    assert_true(vp_overflowed(bytes_of(100, VP_K_MUON, (int64_t[]){large, 4, 1})));
    assert_true(vp_overflowed(attention(80, VP_K_ATTENTION_BWD, VP_DTYPE_BF16, tall)));   /* dS: 2 * 64 * 2^80 */
    assert_true(vp_overflowed(attention(90, VP_K_ATTENTION_BWD, VP_DTYPE_F32, (int64_t[]){large, 4, 1, 1, 64, 0, 1, 0, 0})));
    /* 2^62 / 16384 doubles still fit */
    assert_int_equal(bytes_of(90, VP_K_GRAD_SUMSQ, (int64_t[]){large}), (int64_t)1 << 51);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cpu_needs_none),
        cmocka_unit_test(kernels_without_sums_need_none),
        cmocka_unit_test(products_get_what_cublas_takes_by_default),
        cmocka_unit_test(a_weights_gradient_has_room_for_its_bias),
        cmocka_unit_test(sums_over_tokens_go_by_tiles_of_256),
        cmocka_unit_test(squares_are_a_double_of_each_piece),
        cmocka_unit_test(adafactor_keeps_sums_by_row_and_column),
        cmocka_unit_test(muon_has_products_and_a_norm),
        cmocka_unit_test(our_attention_keeps_a_row_sum),
        cmocka_unit_test(cudnn_forward_takes_256_bytes_on_hopper),
        cmocka_unit_test(cudnn_backward_goes_in_parts_of_64_mib),
        cmocka_unit_test(what_64_bits_do_not_hold_overflows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
