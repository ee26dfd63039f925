/* The learning rate of each step, worked by hand from plan/recipe.h. */
#include "plan/recipe.h"

#include "tests/base_test.h"

#include <math.h>

static void near(double value, double want)
{
    assert_true(fabs(value - want) <= 1e-15);
}

/* Warm-up over 4 steps: step 0 has a quarter, step 3 all of it. */
static void warm_up_reaches_lr_at_its_last_step(void **state)
{
    vp_recipe r = vp_recipe_default();

    (void)state;
    r.lr           = 0.8;
    r.warmup_steps = 4;
    for (int schedule = VP_SCHED_CONSTANT; schedule <= VP_SCHED_COSINE; schedule++) {
        r.schedule = (vp_schedule)schedule;
        near(vp_recipe_lr(&r, 0, 12), 0.2);
        near(vp_recipe_lr(&r, 1, 12), 0.4);
        near(vp_recipe_lr(&r, 3, 12), 0.8);
        near(vp_recipe_lr(&r, 4, 12), 0.8); /* none of the fall is done */
    }
    near(vp_recipe_lr(&r, 2, 3), 0.6); /* a warm-up longer than the run */
    r.schedule = VP_SCHED_CONSTANT;
    near(vp_recipe_lr(&r, 1000000, 12), 0.8);
}

/* From step 4 of 12: steps 6, 8 and 10 are a quarter, half and three quarters of the way; from 12 on all of
 * it. To a tenth of 0.8: 0.08 + 0.72 (1 - done). */
static void a_linear_fall_ends_at_its_least_share(void **state)
{
    vp_recipe r = vp_recipe_default();

    (void)state;
    r.lr           = 0.8;
    r.warmup_steps = 4;
    r.schedule     = VP_SCHED_LINEAR;
    r.min_lr_ratio = 0.1;
    near(vp_recipe_lr(&r, 6, 12), 0.08 + 0.72 * 0.75);
    near(vp_recipe_lr(&r, 8, 12), 0.08 + 0.72 * 0.5);
    near(vp_recipe_lr(&r, 10, 12), 0.08 + 0.72 * 0.25);
    near(vp_recipe_lr(&r, 12, 12), 0.08);
    near(vp_recipe_lr(&r, 500, 12), 0.08);
    r.total_steps = 20; /* goes before the run's own number: step 8 is a quarter of the way */
    near(vp_recipe_lr(&r, 8, 12), 0.08 + 0.72 * 0.75);
}

/* Half a cosine: cos(pi / 4) = sqrt(1/2) at a quarter, 0 at half, -1 at the end. */
static void a_cosine_falls_by_half_a_wave(void **state)
{
    vp_recipe r = vp_recipe_default();

    (void)state;
    r.lr           = 0.8;
    r.warmup_steps = 4;
    r.schedule     = VP_SCHED_COSINE;
    near(vp_recipe_lr(&r, 6, 12), 0.4 * (1 + sqrt(0.5)));
    near(vp_recipe_lr(&r, 8, 12), 0.4);
    near(vp_recipe_lr(&r, 10, 12), 0.4 * (1 - sqrt(0.5)));
    near(vp_recipe_lr(&r, 12, 12), 0);
    near(vp_recipe_lr(&r, 13, 12), 0); /* does not rise again */
}

/* Muon turns matrices of the blocks; tables, heads and vectors are AdamW's. */
static void muon_is_for_matrices_of_blocks(void **state)
{
    vp_update_shape matrix = {.rows = 8, .cols = 4, .block_matrix = true, .decay = true},
                    table = {.rows = 8, .cols = 4, .decay = true}, vector = {.rows = 1, .cols = 4};

    (void)state;
    assert_int_equal(vp_optimizer_kernel(VP_OPT_MUON, &matrix), VP_K_MUON);
    assert_int_equal(vp_optimizer_kernel(VP_OPT_MUON, &table), VP_K_ADAMW);
    assert_int_equal(vp_optimizer_kernel(VP_OPT_MUON, &vector), VP_K_ADAMW);
    assert_int_equal(vp_optimizer_kernel(VP_OPT_ADAMW, &matrix), VP_K_ADAMW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_up_reaches_lr_at_its_last_step),
        cmocka_unit_test(a_linear_fall_ends_at_its_least_share),
        cmocka_unit_test(a_cosine_falls_by_half_a_wave),
        cmocka_unit_test(muon_is_for_matrices_of_blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
