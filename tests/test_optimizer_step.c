/* What PyTorch's optimizers keep, parameter by parameter, by hand. */
#include "tests/base_test.h"

#include "trainers/torch/optimizer_step.h"

enum { FP32 = 4 };

/* The first step of one parameter of n elements in fp32, of rows of so many where it is a matrix. */
static vp_ledger_phase after_step(const char *optimizer, int64_t n, int64_t width)
{
    vp_ledger                 ledger  = {0};
    vp_caching_allocator_opts options = {0};
    vp_optimizer_step        *step    = NULL;
    vp_err                    err     = {0};
    vp_trained                trained = {FP32 * n, FP32, width};
    vp_ledger_phase           phase;

    options.device_total_bytes = VP_CACHING_DEVICE_UNLIMITED;
    CHECK_OK(vp_caching_allocator_new(&options, &ledger.allocator, &err));
    CHECK_OK(vp_optimizer_step_new(optimizer, &trained, 1, &ledger, &step, &err));
    vp_ledger_begin(&ledger, "step");
    CHECK_OK(vp_optimizer_step_begin(step, &err));
    CHECK_OK(vp_optimizer_step_play(step, &err));
    vp_ledger_end(&ledger);
    phase = ledger.phases[0];
    vp_optimizer_step_free(step);
    vp_caching_allocator_destroy(ledger.allocator);
    return phase;
}

/* Bytes that it leaves allocated. Each request is rounded up to 512 bytes. */
static int64_t left_by(const char *optimizer, int64_t n)
{
    return after_step(optimizer, n, 0).end_bytes;
}

static void states_of_pytorch_are_as_large_as_the_parameter(void **state)
{
    (void)state;
    assert_int_equal(left_by("sgd", 1024), 0);
    assert_int_equal(left_by("sgd_momentum", 1024), 4096);
    assert_int_equal(left_by("adamw_torch", 1024), 2 * 4096);
    assert_int_equal(left_by("adamw_torch_fused", 1024), 2 * 4096 + 512); /* and its counter */
}

/* bitsandbytes: two maps of 1024 bytes; from 4096 elements on a byte of each in both states, and a
 * float for each 256 of them; below two states in fp32. */
static void states_in_8_bits_begin_at_4096_elements(void **state)
{
    (void)state;
    assert_int_equal(left_by("adamw_8bit", 4095), 2 * 1024 + 2 * 16384); /* 16380 */
    assert_int_equal(left_by("adamw_8bit", 4096), 2 * 1024 + 2 * (4096 + 512));
    assert_int_equal(left_by("adamw_8bit", 65536), 2 * 1024 + 2 * (65536 + 4 * 256));
    assert_int_equal(left_by("lion_8bit", 8191), 1024 + 8192 + 512);
}

/* From 100,000 elements on they are in managed memory. */
static void paged_states_of_large_parameters_are_not_on_the_card(void **state)
{
    (void)state;
    assert_int_equal(left_by("paged_adamw_32bit", 99999), 2 * 782 * 512); /* 399996 */
    assert_int_equal(left_by("paged_adamw_32bit", 100000), 0);
}

/* Adafactor of 96 x 512: 96 floats of rows and 512 of columns, a norm; the square and its sum with epsilon,
 * then the sum and the update, then the update and its scaled copy: two tensors at most. */
static void adafactor_keeps_rows_and_columns(void **state)
{
    vp_ledger_phase p = after_step("adafactor", (int64_t)96 * 512, 512);

    (void)state;
    assert_int_equal(p.end_bytes, 512 + 2048 + 512);
    assert_int_equal(p.allocated_bytes, p.end_bytes + 2 * 4 * 96 * 512);
    assert_int_equal(left_by("adafactor", 1024), 4096 + 512);
}

/* A state, and two lists of temporaries. */
static void adagrad_takes_the_parameters_twice_while_it_steps(void **state)
{
    vp_ledger_phase p = after_step("adagrad", 1024, 0);

    (void)state;
    assert_int_equal(p.end_bytes, 4096);
    assert_int_equal(p.allocated_bytes, 3 * 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_of_pytorch_are_as_large_as_the_parameter),
        cmocka_unit_test(states_in_8_bits_begin_at_4096_elements),
        cmocka_unit_test(paged_states_of_large_parameters_are_not_on_the_card),
        cmocka_unit_test(adafactor_keeps_rows_and_columns),
        cmocka_unit_test(adagrad_takes_the_parameters_twice_while_it_steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
