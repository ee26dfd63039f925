/* An embedding's gradient over more tiles of tokens than a card looks in at a time. */
#include "tests/kernel_test.h"

/* A card looks in 256 tiles of 256 tokens at a time: one call over 258 of them has the bits of two,
 * cut behind the first 100. Each id lies in every tile but the last one, which only 2 has. */
static void ids_of_many_tiles_are_summed_tile_by_tile(void **state)
{
    enum { ROWS = 258 * VP_TILE_TOKENS, CUT = 100 * VP_TILE_TOKENS, COLS = 2, VOCAB = 3 };
    int32_t *tokens = malloc(ROWS * sizeof *tokens);
    float   *dy     = malloc((size_t)ROWS * COLS * sizeof *dy);
    float    whole[VOCAB * COLS], parts[VOCAB * COLS];
    double   sums[VOCAB * COLS] = {0}, of_all = 0;

    (void)state;
    for (int n = 0; n < ROWS; n++) {
        tokens[n] = n < ROWS - VP_TILE_TOKENS ? n * 7 / 5 % VOCAB : 2;
        for (int c = 0; c < COLS; c++) {
            dy[n * COLS + c] = (float)((n * 37 + c * 11) % 101 - 50) * 0.01f;
            sums[tokens[n] * COLS + c] += (double)dy[n * COLS + c];
            of_all += fabs((double)dy[n * COLS + c]);
        }
    }
    for (int i = 0; i < VOCAB * COLS; i++)
        whole[i] = parts[i] = (float)i;
    for (int call = 0; call < 3; call++) {
        int            from = call == 2 ? CUT : 0, to = call == 1 ? CUT : ROWS;
        vp_kernel_call k = {
            .kernel          = VP_K_EMBEDDING_BWD,
            .dtype           = VP_DTYPE_F32,
            .operand         = {[VP_EMBEDDING_BWD_TOKENS]  = tokens + from,
                                [VP_EMBEDDING_BWD_DY]      = dy + (ptrdiff_t)from * COLS,
                                [VP_EMBEDDING_BWD_D_TABLE] = call == 0 ? whole : parts},
            .embedding_bwd   = {.rows = to - from, .cols = COLS, .vocab = VOCAB, .seq = 256},
            .embedding_reals = {.scale = 1.0}};

        kt_run(&k);
    }
    assert_memory_equal(whole, parts, sizeof whole);
    for (int i = 0; i < VOCAB * COLS; i++)
        assert_true(fabs((double)whole[i] - i - sums[i]) <= 2e-6 * of_all);
    free(tokens);
    free(dy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_of_many_tiles_are_summed_tile_by_tile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
