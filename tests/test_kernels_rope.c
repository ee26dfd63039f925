/* Rotary embedding: against float64, against its transpose, to the bit, and inside its operands. */
#include "tests/operands_test.h"

/* batch seq heads kv_heads head_dim rotary_dim layout */
static const int64_t rope_shapes[][7] = {
    {1, 1, 1, 1, 2, 2, VP_QKV_PACKED},     {2, 7, 6, 3, 40, 40, VP_QKV_PACKED},
    {2, 7, 6, 3, 40, 10, VP_QKV_PACKED},   {1, 5, 3, 3, 24, 6, VP_QKV_PER_HEAD},
    {2, 3, 4, 4, 16, 16, VP_QKV_PER_HEAD}, {3, 33, 14, 2, 64, 64, VP_QKV_APART},
    {1, 130, 3, 0, 66, 34, VP_QKV_APART},  {1, 2, 1, 1, 700, 620, VP_QKV_PACKED},
    {2, 300, 8, 2, 32, 32, VP_QKV_PACKED},
};

static const vp_dtype dtypes[] = {VP_DTYPE_F32, VP_DTYPE_BF16, VP_DTYPE_F16};

static operands rope_operands(int shape, vp_kernel kernel, vp_dtype dtype, int shift)
{
    vp_kernel_call call = {.kernel = kernel, .dtype = dtype};
    operands       o;
    int64_t        n;

    memcpy(call.ints, rope_shapes[shape], sizeof rope_shapes[shape]);
    o = operands_new(&call, NULL, 1, shift);
    n = o.n[VP_ROPE_FWD_ANGLES] / 2;
    for (int64_t i = 0; i < n; i++) { /* angles: any */
        double angle = 3.0 * draw();
        set(&o, VP_ROPE_FWD_ANGLES, i, cos(angle));
        set(&o, VP_ROPE_FWD_ANGLES, n + i, sin(angle));
    }
    return o;
}

/* Two products and a sum of numbers below 1: three roundings of at most 2 u each. */
static void rope_agrees_with_the_reference(void **state)
{
    (void)state;
    for (int s = 0; s < COUNT(rope_shapes); s++)
        for (int which = 0; which < 6; which++) {
            vp_kernel kernel = which & 1 ? VP_K_ROPE_BWD : VP_K_ROPE_FWD;
            operands  o      = rope_operands(s, kernel, dtypes[which / 2], AT_END);

            run_and_keep_inputs(&o);
            vp_reference_run(&o.reference);
            compare(&o, "rope", 4.0 * u, 0.0);
            operands_release(&o);
        }
}

static void a_quarter_turn_swaps_the_halves(void **state)
{
    /* Head of 6, rotary 4, angles of 90 degrees for the first pair, 0 for the second: (1 2 3 4 5
     * 6) becomes (-3 2 1 4 5 6); backward (3 2 -1 4 5 6). The value head stays. */
    float x[18] = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}, angles[4] = {0, 1, 1, 0},
          y[18];
    const float    forward[6] = {-3, 2, 1, 4, 5, 6}, backward[6] = {3, 2, -1, 4, 5, 6};
    vp_kernel_call call = {
        .kernel  = VP_K_ROPE_FWD,
        .dtype   = VP_DTYPE_F32,
        .operand = {[VP_ROPE_FWD_X] = x, [VP_ROPE_FWD_ANGLES] = angles, [VP_ROPE_FWD_Y] = y},
        .rope    = {.batch      = 1,
                    .seq        = 1,
                    .heads      = 1,
                    .kv_heads   = 1,
                    .head_dim   = 6,
                    .rotary_dim = 4,
                    .layout     = VP_QKV_PACKED}};

    (void)state;
    run(&call);
    for (int i = 0; i < 18; i++)
        assert_true(y[i] == (i < 12 ? forward[i % 6] : x[i]));
    call.kernel = VP_K_ROPE_BWD;
    run(&call);
    for (int i = 0; i < 18; i++)
        assert_true(y[i] == (i < 12 ? backward[i % 6] : x[i]));
}

/* Forward is linear, y = R x: its slope is R', so dy . (R x) = (R' dy) . x for any x and dy. */
static void reference_rope_backward_is_the_transpose_of_forward(void **state)
{
    (void)state;
    CPU_ONLY();
    for (int s = 0; s < COUNT(rope_shapes); s++) {
        operands      f  = rope_operands(s, VP_K_ROPE_FWD, VP_DTYPE_F32, 0);
        operands      b  = rope_operands(s, VP_K_ROPE_BWD, VP_DTYPE_F32, 0);
        const double *x  = f.reference.operand[VP_ROPE_FWD_X],
                     *y  = f.reference.operand[VP_ROPE_FWD_Y];
        const double *dy = b.reference.operand[VP_ROPE_BWD_DY],
                     *dx = b.reference.operand[VP_ROPE_BWD_DX];
        double left = 0.0, right = 0.0;

        memcpy(b.reference.operand[VP_ROPE_BWD_ANGLES], f.reference.operand[VP_ROPE_FWD_ANGLES],
               (size_t)f.n[VP_ROPE_FWD_ANGLES] * sizeof(double));
        vp_reference_run(&f.reference);
        vp_reference_run(&b.reference);
        for (int64_t i = 0; i < f.n[VP_ROPE_FWD_X]; i++) {
            left += dy[i] * y[i];
            right += dx[i] * x[i];
        }
        assert_true(fabs(left - right) <= 1e-12 * (double)f.n[VP_ROPE_FWD_X]);
        operands_release(&f);
        operands_release(&b);
    }
}

static void nothing_a_plan_may_choose_moves_a_bit_of_rope(void **state)
{
    (void)state;
    for (int s = 0; s < COUNT(rope_shapes); s++)
        for (int which = 0; which < 6; which++) {
            vp_kernel kernel = which & 1 ? VP_K_ROPE_BWD : VP_K_ROPE_FWD;
            vp_dtype  dtype  = dtypes[which / 2];
            operands  one    = rope_operands(s, kernel, dtype, 0);

            vp_backend_cpu()->set_threads(1);
            run(&one.call);
            for (int way = 0; way < 6; way++) {
                operands other = rope_operands(s, kernel, dtype, way == 5 ? 3 : 0);

                vp_backend_cpu()->set_threads(way == 0 ? 4 : 2);
                if (way == 1 || way == 2)
                    vp_cpu_isa_limit(way == 1 ? VP_CPU_BASELINE : VP_CPU_AVX2);
                if (way == 3) /* in place */
                    other.call.operand[VP_ROPE_FWD_Y] = other.call.operand[VP_ROPE_FWD_X];
                if (way == 4) /* a sample after the other */
                    for (int64_t b = 0; b < other.call.rope.batch; b++) {
                        vp_kernel_call part = other.call;
                        int64_t        bytes =
                            (int64_t)other.place[VP_ROPE_FWD_X].bytes / other.call.rope.batch;

                        part.attention.batch = 1;
                        part.operand[VP_ROPE_FWD_X] =
                            (char *)part.operand[VP_ROPE_FWD_X] + b * bytes;
                        part.operand[VP_ROPE_FWD_Y] =
                            (char *)part.operand[VP_ROPE_FWD_Y] + b * bytes;
                        run(&part);
                    }
                else
                    run(&other.call);
                vp_cpu_isa_limit(VP_CPU_AVX512);
                if (memcmp(one.call.operand[VP_ROPE_FWD_Y], other.call.operand[VP_ROPE_FWD_Y],
                           one.place[VP_ROPE_FWD_Y].bytes) != 0)
                    fail_msg("rope shape %d, kernel and dtype %d: bits differ in way %d", s, which,
                             way);
                operands_release(&other);
            }
            operands_release(&one);
        }
    vp_backend_cpu()->set_threads(2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rope_agrees_with_the_reference),
        cmocka_unit_test(a_quarter_turn_swaps_the_halves),
        cmocka_unit_test(reference_rope_backward_is_the_transpose_of_forward),
        cmocka_unit_test(nothing_a_plan_may_choose_moves_a_bit_of_rope),
    };
    return cmocka_run_group_tests(tests, NULL, say_worst);
}
