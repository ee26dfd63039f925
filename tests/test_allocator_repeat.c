/* A round of events after which an allocator holds what it held a round before: all rounds after are like it. */
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

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_after_the_same_state_are_the_same),
        cmocka_unit_test(blocks_that_change_places_are_not_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
