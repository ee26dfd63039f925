/* tests/test_workspace.c: working memory of each kernel family on devices of compute capability
 * 8.0, 9.0 and 10.0, worked by hand. */
#include "tests/base_test.h"

#include "base/checked.h"
#include "plan/workspace.h"

#include <stdbool.h>

enum { MIB = 1 << 20 };

/* ints: the struct of the kernel's attributes. */
static int64_t bytes_of(int cc, vp_kernel kernel, const void *ints)
{
    vp_call_shape call = {
        .compute_capability = cc, .kernel = kernel, .dtype = VP_DTYPE_BF16, .ints = ints};

    return vp_workspace_bytes(&call);
}

static int64_t attention(int cc, vp_kernel kernel, vp_dtype dtype, const vp_attention_ints *n)
{
    vp_attention_reals reals = {.scale = 0.125};
    vp_call_shape      call  = {.compute_capability = cc,
                                .kernel             = kernel,
                                .dtype              = dtype,
                                .ints               = &n->batch,
                                .reals              = &reals.scale};

    return vp_workspace_bytes(&call);
}

static int64_t chunks(int cc, const vp_attention_ints *n)
{
    vp_attention_reals reals = {.scale = 0.125};
    vp_call_shape      call  = {.compute_capability = cc,
                                .kernel             = VP_K_ATTENTION_BWD,
                                .dtype              = VP_DTYPE_BF16,
                                .ints               = &n->batch,
                                .reals              = &reals.scale};

    return vp_cuda_attention_chunks(&call);
}

static void the_cpu_needs_none(void **state)
{
    vp_linear_ints    linear = {.rows = 1024, .in = 768, .out = 3072};
    vp_attention_ints tall   = {
          .batch = 4, .seq = 1024, .heads = 12, .kv_heads = 12, .head_dim = 64, .causal = 1};

    (void)state;
    assert_int_equal(bytes_of(0, VP_K_LINEAR_BWD_WEIGHT, &linear), 0);
    assert_int_equal(attention(0, VP_K_ATTENTION_BWD, VP_DTYPE_BF16, &tall), 0);
    assert_int_equal(bytes_of(0, VP_K_ADAFACTOR, &linear), 0);
}

static void kernels_without_sums_need_none(void **state)
{
    vp_states_ints count = {.count = 1 << 20};

    (void)state;
    assert_int_equal(bytes_of(90, VP_K_ADD, &count), 0);
    assert_int_equal(bytes_of(90, VP_K_ADAMW, &count), 0);
    assert_int_equal(
        bytes_of(90, VP_K_CROSS_ENTROPY, &(vp_cross_entropy_ints){.rows = 1024, .vocab = 50257}),
        0);
    assert_int_equal(
        bytes_of(90, VP_K_LAYERNORM_FWD, &(vp_layernorm_ints){.rows = 1024, .cols = 768}), 0);
}

static void products_get_what_cublas_takes_by_default(void **state)
{
    vp_linear_ints n = {.rows = 1024, .in = 768, .out = 3072};

    (void)state;
    assert_int_equal(bytes_of(80, VP_K_LINEAR_FWD, &n), 4 * MIB);
    assert_int_equal(bytes_of(89, VP_K_LINEAR_BWD_INPUT, &n), 4 * MIB);
    assert_int_equal(bytes_of(90, VP_K_LINEAR_FWD, &n), 32 * MIB);
    assert_int_equal(bytes_of(100, VP_K_LINEAR_BWD_INPUT, &n), 32 * MIB);
}

static void a_weights_gradient_has_room_for_its_bias(void **state)
{
    (void)state;
    /* 8192 tokens are 32 tiles of 256, of 50257 columns: 32 * 50257 * 4 = 6432896, more than 4
     * MiB and less than 32 */
    assert_int_equal(bytes_of(80, VP_K_LINEAR_BWD_WEIGHT,
                              &(vp_linear_ints){.rows = 8192, .in = 768, .out = 50257}),
                     6432896);
    assert_int_equal(bytes_of(90, VP_K_LINEAR_BWD_WEIGHT,
                              &(vp_linear_ints){.rows = 8192, .in = 768, .out = 50257}),
                     32 * MIB);
    /* 257 tokens are two tiles: 2 * 3072 * 4 = 24576 */
    assert_int_equal(bytes_of(80, VP_K_LINEAR_BWD_WEIGHT,
                              &(vp_linear_ints){.rows = 257, .in = 768, .out = 3072}),
                     4 * MIB);
    /* 65536 tokens are 256 tiles: 256 * 50257 * 4 = 51463168 */
    assert_int_equal(bytes_of(100, VP_K_LINEAR_BWD_WEIGHT,
                              &(vp_linear_ints){.rows = 65536, .in = 768, .out = 50257}),
                     51463168);
}

static void sums_over_tokens_go_by_tiles_of_256_or_their_eighths(void **state)
{
    (void)state;
    for (int cc = 80; cc <= 100; cc += 10) {
        /* 1025 rows are 33 parts of 32: 2 * 33 * 768 * 4 = 202752, and one sum of each for an RMS
         * norm, half of that */
        assert_int_equal(
            bytes_of(cc, VP_K_LAYERNORM_BWD, &(vp_layernorm_ints){.rows = 1025, .cols = 768}),
            202752);
        assert_int_equal(bytes_of(cc, VP_K_RMSNORM_BWD,
                                  &(vp_rmsnorm_ints){.rows = 1025, .cols = 768, .groups = 1}),
                         101376);
        /* a norm of each head sums the rows as they are: 8 * 128 * 4 */
        assert_int_equal(bytes_of(cc, VP_K_RMSNORM_BWD,
                                  &(vp_rmsnorm_ints){.rows = 256, .cols = 128, .groups = 1}),
                         4096);
        /* an integer of each of 50257 ids and two of each of 1024 rows: 4 * (50257 + 2 * 1024)
         * = 209220 */
        assert_int_equal(bytes_of(cc, VP_K_EMBEDDING_BWD,
                                  &(vp_embedding_bwd_ints){
                                      .rows = 1024, .cols = 768, .vocab = 50257, .seq = 1024}),
                         209220);
    }
}

static void squares_are_a_double_of_each_piece(void **state)
{
    (void)state;
    assert_int_equal(bytes_of(80, VP_K_GRAD_SUMSQ, &(vp_elements_ints){.count = 1}), 8);
    assert_int_equal(bytes_of(90, VP_K_GRAD_SUMSQ, &(vp_elements_ints){.count = 16384}), 8);
    assert_int_equal(bytes_of(90, VP_K_GRAD_SUMSQ, &(vp_elements_ints){.count = 16385}), 16);
    /* 50257 * 768 = 38597376 elements, 2355.8 pieces of 16384: 2356 * 8 */
    assert_int_equal(bytes_of(100, VP_K_GRAD_SUMSQ, &(vp_elements_ints){.count = 50257 * 768}),
                     18848);
}

static void adafactor_keeps_sums_by_row_and_column(void **state)
{
    (void)state;
    /* factored, 50257 x 768: 197 tiles of 256 rows, of 768 columns, are 151296 doubles, more
     * than 2 * 50257; with the 4 scalars 8 * 151300 = 1210400; a float of each row and column 4
     * * 51025 = 204100 */
    assert_int_equal(
        bytes_of(90, VP_K_ADAFACTOR,
                 &(vp_adafactor_ints){.rows = 50257, .cols = 768, .decay = 1, .factored = 1}),
        1414500);
    /* 1025 x 3: 5 tiles of 3 columns are 15, 2 * 1025 = 2050 are more: 8 * 2054 + 4 * 1028 */
    assert_int_equal(
        bytes_of(80, VP_K_ADAFACTOR,
                 &(vp_adafactor_ints){.rows = 1025, .cols = 3, .decay = 1, .factored = 1}),
        20544);
    /* 1 x 3: 3 sums, rounded up to 4: 8 * 8 + 4 * 4 */
    assert_int_equal(
        bytes_of(80, VP_K_ADAFACTOR,
                 &(vp_adafactor_ints){.rows = 1, .cols = 3, .decay = 1, .factored = 1}),
        80);
    /* a vector of 4097: two pieces of 4096, two sums of each: 8 * (4 + 4) */
    assert_int_equal(bytes_of(100, VP_K_ADAFACTOR, &(vp_adafactor_ints){.rows = 4097, .cols = 1}),
                     64);
}

static void muon_has_products_and_a_norm(void **state)
{
    (void)state;
    assert_int_equal(bytes_of(80, VP_K_MUON, &(vp_muon_ints){.rows = 768, .cols = 768, .decay = 1}),
                     4 * MIB);
    assert_int_equal(bytes_of(90, VP_K_MUON, &(vp_muon_ints){.rows = 768, .cols = 768, .decay = 1}),
                     32 * MIB);
    /* 65536 * 65536 elements are 1048576 pieces of 4096; one double more: 8 * 1048577, more than
     * 4 MiB */
    assert_int_equal(
        bytes_of(80, VP_K_MUON, &(vp_muon_ints){.rows = 65536, .cols = 65536, .decay = 1}),
        8388616);
}

static void our_attention_keeps_a_row_sum(void **state)
{
    vp_attention_ints n = {
        .batch = 4, .seq = 1024, .heads = 12, .kv_heads = 12, .head_dim = 64, .causal = 1};
    vp_attention_ints odd = {
        .batch = 4, .seq = 1024, .heads = 12, .kv_heads = 12, .head_dim = 60, .causal = 1};

    (void)state;
    /* batch * heads * seq floats: 4 * 12 * 1024 * 4 = 196608; forward none. cuDNN has no fp32
     * and no heads of 60 elements. */
    for (int cc = 80; cc <= 100; cc += 10) {
        assert_int_equal(attention(cc, VP_K_ATTENTION_BWD, VP_DTYPE_F32, &n), 196608);
        assert_int_equal(attention(cc, VP_K_ATTENTION_FWD, VP_DTYPE_F32, &n), 0);
        assert_int_equal(attention(cc, VP_K_ATTENTION_BWD, VP_DTYPE_BF16, &odd), 196608);
    }
}

static void cudnn_forward_takes_256_bytes_on_hopper(void **state)
{
    vp_attention_ints n = {
        .batch = 4, .seq = 1024, .heads = 12, .kv_heads = 12, .head_dim = 64, .causal = 1};
    vp_attention_ints token = {
        .batch = 4, .seq = 1, .heads = 12, .kv_heads = 12, .head_dim = 64, .causal = 1};

    (void)state;
    assert_int_equal(attention(80, VP_K_ATTENTION_FWD, VP_DTYPE_BF16, &n), 0);
    assert_int_equal(attention(90, VP_K_ATTENTION_FWD, VP_DTYPE_BF16, &n), 256);
    assert_int_equal(attention(100, VP_K_ATTENTION_FWD, VP_DTYPE_BF16, &n), 0);
    /* a single token is ours */
    assert_int_equal(attention(90, VP_K_ATTENTION_FWD, VP_DTYPE_BF16, &token), 0);
    token.seq = 2;
    assert_int_equal(attention(90, VP_K_ATTENTION_FWD, VP_DTYPE_BF16, &token), 256);
}

static void cudnn_backward_goes_in_parts_of_64_mib(void **state)
{
    vp_attention_ints n = {
        .batch = 4, .seq = 1024, .heads = 12, .kv_heads = 12, .head_dim = 64, .causal = 1};
    vp_attention_ints grouped = {
        .batch = 2, .seq = 2048, .heads = 32, .kv_heads = 8, .head_dim = 64, .causal = 1};
    vp_attention_ints longer = {
        .batch = 1, .seq = 4096, .heads = 8, .kv_heads = 4, .head_dim = 64, .causal = 1};
    vp_attention_ints to_the_byte = {
        .batch = 4, .seq = 1517, .heads = 3, .kv_heads = 1, .head_dim = 144, .causal = 1};

    (void)state;
    /* dS of one part of b samples: 2 b * 12 * 1024 * 1024 = b * 25165824. All 4 are 96 MiB, 2
     * are 48: two parts. Row sums of a part: 2 * 12 * 1024 * 4 = 98304. */
    assert_int_equal(chunks(80, &n), 2);
    assert_int_equal(attention(80, VP_K_ATTENTION_BWD, VP_DTYPE_BF16, &n), 98304 + 50331648 + 128);
    /* On sm_100 nothing grows with the square: one part, and our own row sums are 196608 as well */
    assert_int_equal(chunks(100, &n), 1);
    assert_int_equal(attention(100, VP_K_ATTENTION_BWD, VP_DTYPE_BF16, &n), 196608);
    /* At 8.0, each sample's dS is 2 * 32 * 2048^2 = 256 MiB, and two gradients of each of 32 heads, 2 *
     * 32 * 2048 * 64 bytes, are 16 MiB. 8 parts of the 2 samples: 8 of 32 heads each, 64 + 4
     * MiB, too much; 16 parts of 4 heads 32 + 2 MiB. Row sums 4 * 2048 * 4 = 32768, but ours
     * takes both samples at once: 2 * 32 * 2048 * 4 = 524288, less than the parts. */
    assert_int_equal(chunks(80, &grouped), 16);
    assert_int_equal(attention(80, VP_K_ATTENTION_BWD, VP_DTYPE_BF16, &grouped),
                     32768 + 33554432 + 2097152 + 128);
    /* sm_100: 4 F + 128, F = 2 * 2 * 32 * 2048 * 64 = 16 MiB, 64 MiB and 128 bytes at once: a
     * little too much; two parts of 32 MiB. Row sums of a part: 32 * 2048 * 4 = 262144. */
    assert_int_equal(chunks(100, &grouped), 2);
    assert_int_equal(attention(100, VP_K_ATTENTION_BWD, VP_DTYPE_BF16, &grouped),
                     262144 + 33554432 + 128);
    /* A part is a group of heads at least, whatever it takes: 2 heads, 2 * 2 * 4096^2 = 64 MiB,
     * 2 F = 2 * 2 * 2 * 4096 * 64 = 2 MiB. Row sums 2 * 4096 * 4. */
    assert_int_equal(chunks(80, &longer), 4);
    assert_int_equal(attention(80, VP_K_ATTENTION_BWD, VP_DTYPE_BF16, &longer),
                     32768 + 67108864 + 2097152 + 128);
    /* dS of all: 2 * 12 * 1536^2 = 56623104, 2 F = 4 * 12 * 1517 * 144 = 10485504, and 256 bytes
     * are 64 MiB: just not too much */
    assert_int_equal(chunks(90, &to_the_byte), 1);
}

/* A block is a head's 128 keys, and 256 of them fill 132 multiprocessors about twice. */
static void on_hopper_a_part_of_cudnns_backward_fills_the_card(void **state)
{
    vp_attention_ints n = {
        .batch = 4, .seq = 1024, .heads = 12, .kv_heads = 12, .head_dim = 64, .causal = 1};
    vp_attention_ints grouped = {
        .batch = 2, .seq = 2048, .heads = 32, .kv_heads = 8, .head_dim = 64, .causal = 1};
    vp_attention_ints llama = {
        .batch = 1, .seq = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128, .causal = 1};
    vp_attention_ints longer = {
        .batch = 1, .seq = 8192, .heads = 32, .kv_heads = 32, .head_dim = 128, .causal = 1};

    (void)state;
    /* 24 heads of 8 blocks are 192; 48 of them 384, dS 2 * 48 * 1024^2, row sums 48 * 1024 * 4 */
    assert_int_equal(chunks(90, &n), 1);
    assert_int_equal(attention(90, VP_K_ATTENTION_BWD, VP_DTYPE_BF16, &n),
                     196608 + 100663296 + 256);
    /* 4 heads of 16 blocks are 64, 16 heads 256: dS 2 * 16 * 2048^2 = 128 MiB, 2 F = 2 * 2 * 16 * 2048 *
     * 64 = 8 MiB. Row sums 16 * 2048 * 4, and ours of both samples are less than all that. */
    assert_int_equal(chunks(90, &grouped), 4);
    assert_int_equal(attention(90, VP_K_ATTENTION_BWD, VP_DTYPE_BF16, &grouped),
                     131072 + 134217728 + 8388608 + 256);
    /* a group of 4 heads has 128 blocks, two 256: dS 2 * 8 * 4096^2 = 256 MiB and 2 F = 2 * 2 * 8 * 4096 *
     * 128 = 16 MiB. On 8.0 the groups stay alone. */
    assert_int_equal(chunks(90, &llama), 4);
    assert_int_equal(chunks(80, &llama), 8);
    /* a head has 64 blocks and takes 128 MiB, two 256; three do not divide 32, and four take too much */
    assert_int_equal(chunks(90, &longer), 16);
}

static void what_64_bits_do_not_hold_overflows(void **state)
{
    int64_t           large = (int64_t)1 << 62;
    vp_attention_ints tall  = {.batch    = 1,
                               .seq      = (int64_t)1 << 40,
                               .heads    = 64,
                               .kv_heads = 64,
                               .head_dim = 64,
                               .causal   = 1};

    (void)state;
    assert_true(vp_overflowed(bytes_of(90, VP_K_LINEAR_BWD_WEIGHT,
                                       &(vp_linear_ints){.rows = large, .in = 1, .out = 1 << 20})));
    assert_true(vp_overflowed(
        bytes_of(90, VP_K_EMBEDDING_BWD,
                 &(vp_embedding_bwd_ints){.rows = 1, .cols = 1, .vocab = large, .seq = 1})));
    assert_true(vp_overflowed(
        bytes_of(90, VP_K_LAYERNORM_BWD, &(vp_layernorm_ints){.rows = large, .cols = 1 << 20})));
    assert_true(vp_overflowed(bytes_of(
        80, VP_K_RMSNORM_BWD, &(vp_rmsnorm_ints){.rows = large, .cols = 1 << 20, .groups = 1})));
    assert_true(vp_overflowed(
        bytes_of(90, VP_K_ADAFACTOR,
                 &(vp_adafactor_ints){.rows = large, .cols = 1 << 20, .decay = 1, .factored = 1})));
    assert_true(vp_overflowed(
        bytes_of(90, VP_K_ADAFACTOR, &(vp_adafactor_ints){.rows = large, .cols = 1 << 20})));
    assert_true(vp_overflowed(
        bytes_of(100, VP_K_MUON, &(vp_muon_ints){.rows = large, .cols = 4, .decay = 1})));
    /* dS: 2 * 64 * 2^80 */
    assert_true(vp_overflowed(attention(80, VP_K_ATTENTION_BWD, VP_DTYPE_BF16, &tall)));
    assert_true(vp_overflowed(attention(
        90, VP_K_ATTENTION_BWD, VP_DTYPE_F32,
        &(vp_attention_ints){
            .batch = large, .seq = 4, .heads = 1, .kv_heads = 1, .head_dim = 64, .causal = 1})));
    /* 2^62 / 16384 doubles still fit */
    assert_int_equal(bytes_of(90, VP_K_GRAD_SUMSQ, &(vp_elements_ints){.count = large}),
                     (int64_t)1 << 51);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cpu_needs_none),
        cmocka_unit_test(kernels_without_sums_need_none),
        cmocka_unit_test(products_get_what_cublas_takes_by_default),
        cmocka_unit_test(a_weights_gradient_has_room_for_its_bias),
        cmocka_unit_test(sums_over_tokens_go_by_tiles_of_256_or_their_eighths),
        cmocka_unit_test(squares_are_a_double_of_each_piece),
        cmocka_unit_test(adafactor_keeps_sums_by_row_and_column),
        cmocka_unit_test(muon_has_products_and_a_norm),
        cmocka_unit_test(our_attention_keeps_a_row_sum),
        cmocka_unit_test(cudnn_forward_takes_256_bytes_on_hopper),
        cmocka_unit_test(cudnn_backward_goes_in_parts_of_64_mib),
        cmocka_unit_test(on_hopper_a_part_of_cudnns_backward_fills_the_card),
        cmocka_unit_test(what_64_bits_do_not_hold_overflows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
