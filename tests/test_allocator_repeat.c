/* A round of events after which an allocator holds what it held a round before: all rounds after are like it; and one that can be told
 * to be like the next from what it did. */
#include "tests/base_test.h"

#include "trainers/torch/caching_allocator.h"

enum { N = 40, STAY = 1, EVENTS = 400, ROUNDS = 20 };

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 24;
}

/* The same events each time: what is in a place goes, and something comes. Returns a sum over all places in memory. */
static uint64_t play_round(vp_caching_allocator *a, vp_caching_block *blocks, uint64_t seed)
{
    uint64_t sum = 0;
    vp_err   err = {0};

    for (int i = 0; i < EVENTS; i++) {
        int     at    = (int)(next(&seed) % N);
        int64_t bytes = (int64_t)(next(&seed) % ((uint64_t)1 << (10 + next(&seed) % 14))) + 1,
                place, size;
        vp_caching_allocator_free(a, blocks[at]);
        CHECK_OK(vp_caching_allocator_alloc(a, 0, bytes, &blocks[at], &err));
        vp_caching_allocator_place(a, blocks[at], &place, &size);
        sum = (sum ^ (uint64_t)(place + size)) * 1099511628211u;
    }
    for (int i = STAY; i < N; i++) { /* most goes when a step ends */
        vp_caching_allocator_free(a, blocks[i]);
        blocks[i] = 0;
    }
    return sum;
}

static void rounds_after_the_same_state_are_the_same(void **state)
{
    int n_same = 0;
    (void)state;

    for (uint64_t seed = 1; seed <= 60; seed++) {
        vp_caching_allocator_opts opts      = {.expandable_segments = seed % 2};
        vp_caching_allocator     *a         = NULL;
        vp_caching_block          blocks[N] = {0};
        vp_caching_state          before = {0}, after = {0};
        bool                      same = false;
        uint64_t                  sum  = 0;
        vp_err                    err  = {0};
        CHECK_OK(vp_caching_allocator_new(&opts, &a, &err));
        for (int round = 0; round < ROUNDS; round++) {
            int64_t  since = vp_caching_allocator_n_allocs(a);
            uint64_t now   = play_round(a, blocks, seed);
            if (same)
                assert_true(now == sum);
            sum = now;
            CHECK_OK(vp_caching_allocator_state(a, since, &after, &err));
            same |= vp_caching_state_is_same(&before, &after);
            vp_caching_state_release(&before);
            before = after;
        }
        n_same += same;
        vp_caching_state_release(&before);
        vp_caching_allocator_destroy(a);
    }
    print_message("%d of 60 come to rest\n", n_same);
    assert_true(n_same > 10); /* the others go on changing */
}

/* Two blocks of a size, in turns: the same places are in use, but not by the same. */
static void blocks_that_change_places_are_not_the_same(void **state)
{
    vp_caching_allocator_opts opts  = {0};
    vp_caching_allocator     *a     = NULL;
    vp_caching_block          b[2]  = {0};
    vp_caching_state          of[3] = {{0}};
    vp_err                    err   = {0};
    (void)state;

    CHECK_OK(vp_caching_allocator_new(&opts, &a, &err));
    for (int round = 0; round < 3; round++) {
        int64_t since = vp_caching_allocator_n_allocs(a);
        int     first = round == 2; /* the other one first takes the lower place */
        vp_caching_allocator_free(a, b[0]);
        vp_caching_allocator_free(a, b[1]);
        CHECK_OK(vp_caching_allocator_alloc(a, 0, 4096, &b[first], &err));
        CHECK_OK(vp_caching_allocator_alloc(a, 0, 4096, &b[!first], &err));
        if (round == 2) { /* b[1] goes and comes: third of this round, where it was */
            vp_caching_allocator_free(a, b[1]);
            CHECK_OK(vp_caching_allocator_alloc(a, 0, 4096, &b[1], &err));
        }
        CHECK_OK(vp_caching_allocator_state(a, since, &of[round], &err));
    }
    assert_true(vp_caching_state_is_same(&of[0], &of[1]));
    assert_false(vp_caching_state_is_same(&of[1], &of[2]));
    for (int i = 0; i < 3; i++)
        vp_caching_state_release(&of[i]);
    vp_caching_allocator_destroy(a);
}

/* Blocks that are in use for a moment only; which sizes there are differs from seed to seed. */
static uint64_t play_brief_round(vp_caching_allocator *a, uint64_t seed)
{
    vp_caching_block blocks[N] = {0};
    uint64_t         sum       = 0;
    int              powers    = 6 + (int)(seed % 13);
    vp_err           err       = {0};

    for (int i = 0; i < EVENTS / 4; i++) {
        int     at    = (int)(next(&seed) % N);
        int64_t bytes = (int64_t)(next(&seed) % ((uint64_t)1 << (9 + next(&seed) % powers))) + 1;
        int64_t place = 0, size = 0;
        int     stream = (int)(seed % 3 / 2);
        vp_caching_allocator_free(a, blocks[at]);
        if (vp_caching_allocator_alloc(a, stream, bytes, &blocks[at], &err) == VP_OK)
            vp_caching_allocator_place(a, blocks[at], &place, &size);
        sum = (sum ^ (uint64_t)(place + size)) * 1099511628211u;
    }
    for (int i = 0; i < N; i++)
        vp_caching_allocator_free(a, blocks[i]);
    return sum;
}

enum { OLD = 12 };

/* Memory with something in it; in every fifth what is free has gone back, so that expandable segments have holes. */
static void use_before(vp_caching_allocator *a, uint64_t seed)
{
    vp_caching_block old[OLD] = {0};
    vp_err           err      = {0};

    play_brief_round(a, seed);
    for (int i = 0; i < OLD; i++)
        CHECK_OK(vp_caching_allocator_alloc(a, 0, (int64_t)(next(&seed) % 9000000), &old[i], &err));
    for (int i = 0; i < OLD; i++)
        if (next(&seed) % 2)
            vp_caching_allocator_free(a, old[i]);
    if (seed % 5 == 0)
        CHECK_OK(vp_caching_allocator_empty_cache(a, &err));
}

static void what_is_said_to_repeat_does(void **state)
{
    const int64_t no_limit = VP_CACHING_DEVICE_UNLIMITED, limit = (int64_t)300 << 20;
    int           n_repeats = 0, n_grown = 0, n_else = 0;
    (void)state;

    for (uint64_t seed = 1; seed <= 3000; seed++) {
        vp_caching_allocator_opts opts = {.expandable_segments = seed % 3 == 0,
                                          .addresses_fall      = seed % 2 == 0,
                                          .device_total_bytes  = seed % 7 ? no_limit : limit};
        vp_caching_allocator     *a    = NULL;
        vp_err                    err  = {0};
        CHECK_OK(vp_caching_allocator_new(&opts, &a, &err));
        const vp_caching_figures *f = vp_caching_allocator_figures(a);
        use_before(a, seed + 1000);
        int64_t n_before = f->n_device_allocs, n_allocs = vp_caching_allocator_n_allocs(a);
        vp_caching_allocator_begin_round(a);
        uint64_t sum     = play_brief_round(a, seed);
        int64_t  n_after = f->n_device_allocs, allocated_bytes = f->allocated_bytes.peak;
        int64_t  n_round = vp_caching_allocator_n_allocs(a) - n_allocs;
        bool     repeats = vp_caching_allocator_repeat(a);
        assert_true(vp_caching_allocator_n_allocs(a) == n_allocs + n_round * (1 + repeats));
        bool is_same = play_brief_round(a, seed) == sum;
        if (repeats)
            assert_true(is_same && f->n_device_allocs == n_after &&
                        f->allocated_bytes.peak == allocated_bytes);
        n_repeats += repeats;
        n_grown += repeats && n_after > n_before;
        n_else += !is_same;
        vp_caching_allocator_destroy(a);
    }
    print_message("of 3000 rounds %d repeat, %d of them obtained memory; %d do something else\n",
                  n_repeats, n_grown, n_else);
    assert_true(n_repeats > 500 && n_grown > 300 && n_else > 200);
}

/* One block in a cache of 40 MiB, and one in a new segment of its own. What is then asked for again. */
static bool repeats_behind(int64_t first_mib, int64_t second_mib, bool frees_first)
{
    vp_caching_allocator_opts opts = {0};
    vp_caching_allocator     *a    = NULL;
    vp_caching_block          b, c;
    vp_err                    err = {0};

    CHECK_OK(vp_caching_allocator_new(&opts, &a, &err));
    CHECK_OK(vp_caching_allocator_alloc(a, 0, (int64_t)40 << 20, &b, &err));
    vp_caching_allocator_free(a, b);
    vp_caching_allocator_begin_round(a);
    CHECK_OK(vp_caching_allocator_alloc(a, 0, first_mib << 20, &b, &err));
    CHECK_OK(vp_caching_allocator_alloc(a, 0, second_mib << 20, &c, &err));
    assert_int_equal(vp_caching_allocator_figures(a)->n_device_allocs, 2);
    if (frees_first)
        vp_caching_allocator_free(a, b);
    vp_caching_allocator_free(a, c);
    bool repeats = vp_caching_allocator_repeat(a);
    vp_caching_allocator_destroy(a);
    return repeats;
}

/* 35 MiB do not fit into the new 30; 16 do, better than into 40, and would go there from now on. */
static void a_segment_that_fits_better_is_taken_next_time(void **state)
{
    (void)state;
    assert_true(repeats_behind(35, 30, true));
    assert_false(repeats_behind(16, 30, true));
    assert_false(repeats_behind(35, 30, false)); /* the first one is in the way */
}

/* Two blocks of a size, one in a cached segment, one in a new one of that size. */
static bool repeats_beside_its_like(int64_t mib, bool addresses_fall)
{
    vp_caching_allocator_opts opts = {.addresses_fall = addresses_fall};
    vp_caching_allocator     *a    = NULL;
    vp_caching_block          b, c;
    vp_err                    err = {0};

    CHECK_OK(vp_caching_allocator_new(&opts, &a, &err));
    CHECK_OK(vp_caching_allocator_alloc(a, 0, mib << 20, &b, &err));
    vp_caching_allocator_free(a, b);
    vp_caching_allocator_begin_round(a);
    CHECK_OK(vp_caching_allocator_alloc(a, 0, mib << 20, &b, &err));
    CHECK_OK(vp_caching_allocator_alloc(a, 0, mib << 20, &c, &err));
    assert_int_equal(vp_caching_allocator_figures(a)->n_device_allocs, 2);
    vp_caching_allocator_free(a, b);
    vp_caching_allocator_free(a, c);
    bool repeats = vp_caching_allocator_repeat(a);
    vp_caching_allocator_destroy(a);
    return repeats;
}

/* The lower one is taken first: the new one where addresses fall, which those of less than 32 MiB never do. */
static void a_segment_that_fits_as_well_is_taken_next_time_if_it_lies_lower(void **state)
{
    (void)state;
    assert_false(repeats_beside_its_like(40, true));
    assert_true(repeats_beside_its_like(30, true));
    assert_true(repeats_beside_its_like(40, false));
}

/* Of a card of 160 MiB an expandable segment has 180 MiB of addresses: 60 that are free, 65 in use, then its end. What asks for 30 MiB gets
 * the 60, and 35 MiB make the end grow to them; from now on 30 fit there too, and since the 55 MiB behind that place are fewer than 60, they
 * are taken from it (PyTorch's best_fit of blocks by what they can grow to). */
static void the_end_of_a_small_card_is_not_free_last(void **state)
{
    const int64_t             mib  = 1 << 20;
    vp_caching_allocator_opts opts = {.expandable_segments = true, .device_total_bytes = 160 * mib};
    vp_caching_allocator     *a    = NULL;
    vp_caching_block          b, c;
    int64_t                   at[2], bytes;
    vp_err                    err = {0};
    (void)state;

    CHECK_OK(vp_caching_allocator_new(&opts, &a, &err));
    CHECK_OK(vp_caching_allocator_alloc(a, 0, 60 * mib, &b, &err));
    CHECK_OK(vp_caching_allocator_alloc(a, 0, 65 * mib, &c, &err));
    vp_caching_allocator_free(a, b);
    vp_caching_allocator_begin_round(a);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(vp_caching_allocator_alloc(a, 0, 30 * mib, &b, &err));
        CHECK_OK(vp_caching_allocator_alloc(a, 0, 35 * mib, &c, &err));
        vp_caching_allocator_place(a, b, &at[i], &bytes);
        vp_caching_allocator_free(a, b);
        vp_caching_allocator_free(a, c);
        assert_false(vp_caching_allocator_repeat(a));
    }
    assert_int_equal(at[1] - at[0], 125 * mib);
    vp_caching_allocator_destroy(a);
}

static void a_round_that_frees_what_was_there_is_another_one(void **state)
{
    vp_caching_allocator_opts opts = {0};
    vp_caching_allocator     *a    = NULL;
    vp_caching_block          b;
    vp_err                    err = {0};
    (void)state;

    CHECK_OK(vp_caching_allocator_new(&opts, &a, &err));
    CHECK_OK(vp_caching_allocator_alloc(a, 0, 4096, &b, &err));
    vp_caching_allocator_begin_round(a);
    assert_true(vp_caching_allocator_repeat(a)); /* nothing, once more */
    vp_caching_allocator_free(a, b);
    assert_false(vp_caching_allocator_repeat(a));
    vp_caching_allocator_destroy(a);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_after_the_same_state_are_the_same),
        cmocka_unit_test(blocks_that_change_places_are_not_the_same),
        cmocka_unit_test(what_is_said_to_repeat_does),
        cmocka_unit_test(a_segment_that_fits_better_is_taken_next_time),
        cmocka_unit_test(a_segment_that_fits_as_well_is_taken_next_time_if_it_lies_lower),
        cmocka_unit_test(the_end_of_a_small_card_is_not_free_last),
        cmocka_unit_test(a_round_that_frees_what_was_there_is_another_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
