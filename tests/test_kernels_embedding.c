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

/* Ids of one tile, once or more often in it, and of several; packs of 16 bytes and single elements, several
 * strips of columns. Cut behind any tile the bits are those of one call; ids that do not occur, and the row
 * that learns nothing, keep theirs. */
static void ids_of_one_tile_and_of_several_move_no_bit_by_cuts(void **state)
{
    enum { ROWS = 3 * VP_TILE_TOKENS + 37, VOCAB = 700, SKIP = 5 };

    (void)state;
    for (int cols = 263; cols <= 264; cols++) {
        const size_t n      = (size_t)VOCAB * (size_t)cols;
        int32_t     *tokens = malloc(ROWS * sizeof *tokens);
        float       *dy     = malloc((size_t)ROWS * (size_t)cols * sizeof *dy);
        float       *whole = malloc(n * sizeof *whole), *parts = malloc(n * sizeof *parts);
        double      *sums = calloc(n, sizeof *sums);

        /* 0 to 9 in every tile; tile t has 10 + 150 t and 149 more, some of them twice */
        for (int i = 0; i < ROWS; i++)
            tokens[i] = i % 5 == 0 ? i / 5 % 10 : 10 + i / VP_TILE_TOKENS * 150 + i * 7 % 150;
        for (int i = 0; i < ROWS; i++)
            for (int c = 0; c < cols; c++) {
                float x = (float)((i * 37 + c * 11) % 101 - 50) * 0.01f;

                dy[(size_t)i * (size_t)cols + (size_t)c] = x;
                if (tokens[i] != SKIP)
                    sums[(size_t)tokens[i] * (size_t)cols + (size_t)c] += 0.5 * (double)x;
            }
        for (size_t i = 0; i < n; i++)
            whole[i] = (float)(i % 7);
        for (int cut = 0; cut < 4; cut++) {
            float *out = cut == 0 ? whole : parts;

            for (size_t i = 0; i < n; i++)
                out[i] = (float)(i % 7);
            for (int part = 0; part < (cut == 0 ? 1 : 2); part++) {
                int from         = part * cut * VP_TILE_TOKENS,
                    to           = part == 0 && cut > 0 ? cut * VP_TILE_TOKENS : ROWS;
                vp_kernel_call k = {.kernel          = VP_K_EMBEDDING_BWD,
                                    .dtype           = VP_DTYPE_F32,
                                    .operand         = {[VP_EMBEDDING_BWD_TOKENS] = tokens + from,
                                                        [VP_EMBEDDING_BWD_DY] = dy + (ptrdiff_t)from * cols,
                                                        [VP_EMBEDDING_BWD_D_TABLE] = out},
                                    .embedding_bwd   = {.rows     = to - from,
                                                        .cols     = cols,
                                                        .vocab    = VOCAB,
                                                        .seq      = VP_TILE_TOKENS,
                                                        .skip_row = SKIP + 1},
                                    .embedding_reals = {.scale = 0.5}};

                kt_run(&k);
            }
            if (cut > 0)
                assert_memory_equal(whole, parts, n * sizeof *whole);
        }
        /* up to 33 rows of at most 0.25, from 6 on: 34 roundings of less than 2^-24 * 16 */
        for (size_t i = 0; i < n; i++)
            assert_true(fabs((double)whole[i] - (double)(i % 7) - sums[i]) <= 34 * 0x1p-20);
        free(tokens);
        free(dy);
        free(whole);
        free(parts);
        free(sums);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_of_many_tiles_are_summed_tile_by_tile),
        cmocka_unit_test(ids_of_one_tile_and_of_several_move_no_bit_by_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
