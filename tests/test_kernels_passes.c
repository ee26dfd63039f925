/* Kernels that spare a pass over memory: a linear that adds a residual, norms' backward in one. */
#include "tests/kernel_test.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* As in test_kernels.c: a sum of k products of numbers in [-1, 1], and 6 times its rounding. */
static const double u = 0x1p-24;

static double dot_tolerance(int64_t k)
{
    return 2.0 * u * (double)(k < 8 ? 8 : k);
}

static void linear_onto_a_residual_agrees_with_the_reference(void **state)
{
    /* one row; one off a tile of 256 tokens; one off the 384 columns of a GEMM tile; multiples of no vector */
    static const int64_t shapes[][3] = {{1, 1, 1},      {1, 64, 96},    {2, 40, 41},  {255, 33, 17},
                                        {257, 65, 383}, {256, 16, 385}, {513, 7, 97}, {3, 769, 31}};

    (void)state;
    for (int s = 0; s < COUNT(shapes); s++)
        for (int variant = 0; variant < 4; variant++) {
            kt_case c = {
                .kernel     = VP_K_LINEAR_ADD_FWD,
                .linear_add = {.rows   = shapes[s][0],
                               .in     = shapes[s][1],
                               .out    = shapes[s][2],
                               .layout = variant & 1 ? VP_WEIGHT_OUT_IN : VP_WEIGHT_IN_OUT},
                .absent     = {[VP_LINEAR_ADD_FWD_B] = (variant & 2) != 0},
            };
            kt_check_all(&c, dot_tolerance(shapes[s][1]), 2.0 * u);
        }
}

/* In 16 bits: one pack a thread of a part of a warp; two and three of a warp; two of three and five warps, rows
 * side by side in a block and one alone; of as many as a row has; and a row of more packs than that. Each of
 * several parts of 32 rows, the last one smaller. */
static void wide_and_narrow_norms_sum_their_gradients_over_parts_of_a_tile(void **state)
{
    static const int64_t shapes[][2] = {{300, 64},  {70, 512},  {70, 760},  {70, 768},
                                        {40, 1288}, {40, 2304}, {33, 8192}, {33, 8200}};

    (void)state;
    for (int s = 0; s < COUNT(shapes); s++)
        for (int adds = 0; adds < 2; adds++) {
            int64_t rows = shapes[s][0], cols = shapes[s][1];
            kt_case c = {.kernel     = VP_K_LAYERNORM_BWD,
                         .layernorm  = {.rows = rows, .cols = cols},
                         .accumulate = adds,
                         .absent     = {[VP_LAYERNORM_BWD_ADD] = !adds}};

            kt_check_all(&c, 64.0 * u + 4.0 * dot_tolerance(rows), 64.0 * u);
            c = (kt_case){.kernel     = VP_K_RMSNORM_BWD,
                          .rmsnorm    = {.rows = rows, .cols = cols, .groups = 1, .unit_offset = 1},
                          .accumulate = adds,
                          .absent     = {[VP_RMSNORM_BWD_ADD] = !adds}};
            kt_check_all(&c, 64.0 * u + 4.0 * dot_tolerance(rows), 64.0 * u);
        }
}

/* Up to four packs a thread; rows of a part of a warp, of one and of several; the last is more than a block's
 * threads have and read anew. A thread adds 4 to 36 numbers before the tree: no more roundings than of the
 * 1000 columns in test_kernels.c. */
static void wide_and_narrow_norms_agree_with_the_reference(void **state)
{
    static const int64_t shapes[][2] = {{67, 64},  {9, 248},  {9, 512},  {9, 768},   {9, 1024},
                                        {3, 1288}, {3, 4096}, {2, 8200}, {2, 16384}, {2, 16648}};

    (void)state;
    for (int s = 0; s < COUNT(shapes); s++)
        for (int absent = 0; absent < 2; absent++) {
            int64_t rows = shapes[s][0], cols = shapes[s][1];
            kt_case c = {
                .kernel     = VP_K_LAYERNORM_FWD,
                .layernorm  = {.rows = rows, .cols = cols},
                .norm_reals = {.eps = 1e-5},
                .absent = {[VP_LAYERNORM_FWD_GAMMA] = absent, [VP_LAYERNORM_FWD_BETA] = absent}};

            kt_check_all(&c, 32.0 * u, 32.0 * u);
            c = (kt_case){
                .kernel     = VP_K_RMSNORM_FWD,
                .rmsnorm    = {.rows = rows, .cols = cols, .groups = 1, .unit_offset = absent},
                .norm_reals = {.eps = 1e-5}};
            kt_check_all(&c, 32.0 * u, 32.0 * u);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_onto_a_residual_agrees_with_the_reference),
        cmocka_unit_test(wide_and_narrow_norms_agree_with_the_reference),
        cmocka_unit_test(wide_and_narrow_norms_sum_their_gradients_over_parts_of_a_tile),
    };
    return cmocka_run_group_tests(tests, NULL, kt_print_worst);
}
