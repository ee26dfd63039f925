/* Calls of TF32: fp32 that is multiplied with 11 digits, on a CUDA backend; the CPU's refuses them. */
#include "tests/kernel_test.h"

static const double u = 0x1p-24;

/* rows, in, out: as tests/test_kernels.c has them */
static const int64_t linear_shapes[][3] = {
    {1, 1, 1},      {1, 64, 96},    {2, 40, 41},  {255, 33, 17},
    {257, 65, 383}, {256, 16, 385}, {513, 7, 97}, {3, 769, 31},
};
enum { N_SHAPES = sizeof linear_shapes / sizeof *linear_shapes };

/* TF32 keeps 10 bits behind the point, of which a device may round or cut the last: 2^-10 of each
 * operand, so a product is 2^-9 off at most and, as above, a sum of k of them within 3 2^-10 sqrt(k); 2 u k more for the sum's roundings, as in tests/test_kernels.c. */
static void linears_in_tf32_agree_with_the_reference(void **state)
{
    (void)state;
    TF32_ONLY();
    for (vp_kernel k = VP_K_LINEAR_FWD; k <= VP_K_LINEAR_BWD_WEIGHT; k++)
        for (int s = 0; s < N_SHAPES; s++)
            for (int layout = 0; layout < 2; layout++) {
                const int64_t *n = linear_shapes[s];
                int64_t depth    = n[k == VP_K_LINEAR_FWD ? 1 : k == VP_K_LINEAR_BWD_INPUT ? 2 : 0];
                kt_case c        = {.kernel     = k,
                                    .dtype      = VP_DTYPE_TF32,
                                    .linear     = {n[0], n[1], n[2], layout},
                                    .accumulate = layout};

                kt_check(&c,
                         2 * u * (double)(depth < 8 ? 8 : depth) + 0x3p-10 * sqrt((double)depth),
                         2.0 * u);
            }
}

/* 1 + 2^-10 is a TF32 number and 1 + 2^-12 is none: a call of fp32 sees both, one of TF32 the first. */
static void what_tf32_multiplies_has_eleven_digits(void **state)
{
    (void)state;
    TF32_ONLY();
    for (int n = 0; n < 4; n++) {
        float       x = n & 1 ? 1.0f + 0x1p-10f : 1.0f + 0x1p-12f;
        kt_case     c = {.kernel = VP_K_LINEAR_FWD,
                         .dtype  = n & 2 ? VP_DTYPE_TF32 : VP_DTYPE_F32,
                         .linear = {.rows = 16, .in = 64, .out = 32}};
        kt_operands o = kt_operands_new(&c, 1, 1);

        memset(o.call.operand[VP_LINEAR_FWD_B], 0, (size_t)o.bytes[VP_LINEAR_FWD_B]);
        for (int64_t i = 0; i < o.n[VP_LINEAR_FWD_X]; i++)
            ((float *)o.call.operand[VP_LINEAR_FWD_X])[i] = x;
        for (int64_t i = 0; i < o.n[VP_LINEAR_FWD_W]; i++)
            ((float *)o.call.operand[VP_LINEAR_FWD_W])[i] = 1.0f;
        kt_run(&o.call);
        for (int64_t i = 0; i < o.n[VP_LINEAR_FWD_Y]; i++)
            assert_true(((float *)o.call.operand[VP_LINEAR_FWD_Y])[i] == (n == 2 ? 64.0f : 64 * x));
        kt_operands_release(&o);
    }
}

static void a_call_of_tf32_is_an_input_error_where_there_is_none(void **state)
{
    vp_err         err  = {0};
    vp_kernel_call call = {.kernel = VP_K_LINEAR_FWD,
                           .dtype  = VP_DTYPE_TF32,
                           .linear = {.rows = 1, .in = 1, .out = 1}};

    (void)state;
    CPU_ONLY();
    assert_int_equal(vp_backend_cpu()->run(&call, &err), VP_ERR_INPUT);
    assert_non_null(strstr(err.message, "linear_fwd: the CPU backend has no tf32"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linears_in_tf32_agree_with_the_reference),
        cmocka_unit_test(what_tf32_multiplies_has_eleven_digits),
        cmocka_unit_test(a_call_of_tf32_is_an_input_error_where_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
