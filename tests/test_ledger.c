/* What a step needs at once, whatever the allocator's settings: the sum of what lives, each rounded up to 512 bytes. */
#include "tests/base_test.h"

#include "trainers/torch/ledger.h"

enum { N_BLOCKS = 64, N_EVENTS = 4000, ROUND = 512 };

static vp_ledger open_ledger(const char *conf)
{
    vp_ledger                 l       = {0};
    vp_caching_allocator_opts options = {0};
    vp_err                    err     = {0};

    options.device_total_bytes = VP_CACHING_DEVICE_UNLIMITED;
    if (conf)
        CHECK_OK(vp_caching_allocator_conf(conf, &options, &err));
    CHECK_OK(vp_caching_allocator_new(&options, &l.allocator, &err));
    vp_ledger_begin(&l, "all");
    return l;
}

static void close_ledger(vp_ledger *l)
{
    vp_ledger_end(l);
    vp_caching_allocator_destroy(l->allocator);
}

/* From a byte to 64 MiB, in both pools, mostly no multiple of anything. */
static int64_t random_bytes(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(*seed >> 33) % ((int64_t)1 << (1 + (*seed >> 20) % 26)) + 1;
}

static void what_is_needed_is_the_sum_of_what_lives_under_any_setting(void **state)
{
    static const char *const settings[] = {NULL, "expandable_segments:True", "max_split_size_mb:64",
                                           "roundup_power2_divisions:4"};
    (void)state;

    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
        vp_ledger       l                = open_ledger(settings[k]);
        vp_ledger_block blocks[N_BLOCKS] = {0};
        int64_t         asked[N_BLOCKS] = {0}, sum = 0, spare = 0;
        uint64_t        seed = 7;
        vp_err          err  = {0};
        for (int i = 0; i < N_EVENTS; i++) {
            int at = (int)(random_bytes(&seed) % N_BLOCKS);
            vp_ledger_free(&l, &blocks[at]);
            sum -= asked[at];
            int64_t bytes = random_bytes(&seed);
            asked[at]     = (bytes + ROUND - 1) / ROUND * ROUND;
            sum += asked[at];
            CHECK_OK(vp_ledger_alloc(&l, VP_OWNER_TEMPORARY, bytes, &blocks[at], &err));
            const vp_caching_figures *f = vp_caching_allocator_figures(l.allocator);
            assert_int_equal(l.needed_bytes, sum);
            assert_true(f->allocated_bytes.now >= sum);
            spare += f->allocated_bytes.now - sum;
        }
        /* blocks are as large as what was asked for where segments grow, and larger elsewhere */
        assert_int_equal(spare == 0, settings[k] && strstr(settings[k], "expandable") != NULL);
        close_ledger(&l);
    }
}

static void more_than_it_may_need_does_not_fit_and_more_than_it_may_reserve_is_noted(void **state)
{
    vp_ledger       l    = open_ledger(NULL);
    vp_ledger_block b[3] = {0};
    vp_err          err  = {0};
    (void)state;

    l.at_most_needed_bytes   = 32 << 20;
    l.at_most_reserved_bytes = 32 << 20;
    CHECK_OK(vp_ledger_alloc(&l, VP_OWNER_INPUT, 31 << 20, &b[0], &err));
    assert_false(l.reserves_more); /* 32 MiB are */
    CHECK_OK(
        vp_ledger_alloc(&l, VP_OWNER_INPUT, 1 << 20, &b[1], &err)); /* a segment of 2 MiB more */
    assert_true(l.reserves_more);
    assert_int_equal(l.needed_bytes, 32 << 20);
    assert_int_equal(vp_ledger_alloc(&l, VP_OWNER_INPUT, 1, &b[2], &err), VP_ERR_NO_FIT);
    for (int i = 0; i < 3; i++)
        vp_ledger_free(&l, &b[i]);
    assert_int_equal(l.needed_bytes, 0);
    /* what is reserved by the way, with little of it needed, ends it */
    assert_int_equal(vp_ledger_alloc(&l, VP_OWNER_INPUT, 1 << 20, &b[0], &err), VP_ERR_NO_FIT);
    close_ledger(&l);
}

/* Events of a random program on two streams, whose cache is emptied now and then: until more than limit is needed (0: no limit), or
 * so many. Returns how many went well; *reserved_bytes: the most by then. */
static int play_random(vp_ledger *l, int64_t limit, int n_events, int64_t *reserved_bytes)
{
    vp_ledger_block blocks[N_BLOCKS] = {0};
    uint64_t        seed             = 3;
    vp_err          err              = {0};

    *reserved_bytes         = 0;
    l->at_most_needed_bytes = limit;
    for (int at = 0; at < n_events; at++) {
        int which = (int)(random_bytes(&seed) % N_BLOCKS);
        vp_ledger_free(l, &blocks[which]);
        if (at % 1000 == 999)
            CHECK_OK(vp_ledger_empty_cache(l, &err));
        l->stream = which % 2;
        vp_status st =
            vp_ledger_alloc(l, VP_OWNER_TEMPORARY, random_bytes(&seed), &blocks[which], &err);
        int64_t now     = vp_caching_allocator_figures(l->allocator)->reserved_bytes.now;
        *reserved_bytes = now > *reserved_bytes ? now : *reserved_bytes;
        assert_true(st == VP_OK || st == VP_ERR_NO_FIT);
        if (st != VP_OK)
            return at;
    }
    return n_events;
}

/* Where counting alone ends each setting has reserved more; that is no later than by what is needed at once, and at times earlier. */
static void counting_alone_ends_where_every_setting_reserves_more(void **state)
{
    static const char *const settings[] = {NULL, "expandable_segments:True",
                                           "roundup_power2_divisions:4"};
    int                      n_earlier = 0, n_ended = 0;
    int64_t                  reserved;
    (void)state;

    for (int64_t limit = 8 << 20; limit <= (int64_t)1 << 31; limit += limit / 8) {
        vp_ledger counted = open_ledger(NULL), whole = open_ledger(NULL);
        counted.counts_alone = true;
        int n                = play_random(&counted, limit, N_EVENTS, &reserved);
        int n_whole          = play_random(&whole, limit, N_EVENTS, &reserved);
        assert_true(n <= n_whole);
        n_earlier += n < n_whole;
        n_ended += n < N_EVENTS;
        for (size_t k = 0; n < N_EVENTS && k < sizeof settings / sizeof *settings; k++) {
            vp_ledger l = open_ledger(settings[k]);
            assert_int_equal(play_random(&l, 0, n + 1, &reserved), n + 1);
            assert_true(reserved > limit);
            close_ledger(&l);
        }
        close_ledger(&counted);
        close_ledger(&whole);
    }
    assert_true(n_earlier > 0);
    assert_true(n_ended > 0);
}

/* Whose bytes they were at the peak: what was there then, whatever came after. */
static void owners_are_those_of_the_peak(void **state)
{
    vp_ledger       l    = open_ledger(NULL);
    vp_ledger_block b[3] = {0};
    vp_err          err  = {0};
    (void)state;

    CHECK_OK(vp_ledger_alloc(&l, VP_OWNER_PARAMETER, 1024, &b[0], &err));
    CHECK_OK(vp_ledger_alloc(&l, VP_OWNER_ACTIVATION, 4096, &b[1], &err));
    vp_ledger_free(&l, &b[1]);
    CHECK_OK(vp_ledger_alloc(&l, VP_OWNER_GRADIENT, 2048, &b[2], &err));
    vp_ledger_end(&l);
    assert_int_equal(l.phases[0].allocated_bytes, 1024 + 4096);
    assert_int_equal(l.phases[0].owners[VP_OWNER_ACTIVATION], 4096);
    assert_int_equal(l.phases[0].owners[VP_OWNER_GRADIENT], 0);
    vp_ledger_begin(&l, "next"); /* it begins with what is there, and ends at its peak */
    CHECK_OK(vp_ledger_alloc(&l, VP_OWNER_ACTIVATION, 512, &b[1], &err));
    vp_ledger_end(&l);
    assert_int_equal(l.phases[1].owners[VP_OWNER_GRADIENT], 2048);
    assert_int_equal(l.phases[1].owners[VP_OWNER_ACTIVATION], 512);
    vp_caching_allocator_destroy(l.allocator);
}

static void play_two_phases(vp_ledger *l, const char *first, const char *second)
{
    static const int64_t bytes[] = {700, 3 << 20, 30 << 20, 50 << 20};
    vp_ledger_block      b[4]    = {0};
    vp_err               err     = {0};

    vp_ledger_begin(l, first);
    for (int i = 0; i < 3; i++)
        CHECK_OK(
            vp_ledger_alloc(l, i ? VP_OWNER_ACTIVATION : VP_OWNER_LOGITS, bytes[i], &b[i], &err));
    vp_ledger_free(l, &b[1]);
    vp_ledger_end(l);
    vp_ledger_begin(l, second);
    CHECK_OK(vp_ledger_alloc(l, VP_OWNER_TEMPORARY, bytes[3], &b[3], &err));
    for (int i = 0; i < 4; i++)
        vp_ledger_free(l, &b[i]);
    vp_ledger_end(l);
}

/* The first time memory is reserved as they go, the second time all of it is there. */
static void a_phase_that_repeats_is_what_it_is_when_played(void **state)
{
    vp_ledger       l = open_ledger(NULL);
    vp_ledger_block stays;
    vp_err          err = {0};
    (void)state;

    CHECK_OK(vp_ledger_alloc(&l, VP_OWNER_PARAMETER, 2 << 20, &stays, &err));
    vp_ledger_end(&l);
    vp_caching_allocator_begin_round(l.allocator);
    play_two_phases(&l, "forward", "backward");
    assert_true(vp_caching_allocator_repeat(l.allocator));
    vp_ledger_repeat(&l, 1, "again");
    vp_ledger_repeat(&l, 2, "once more");
    play_two_phases(&l, "again", "once more");
    assert_int_equal(l.n_phases, 7);
    assert_true(l.phases[1].reserved_bytes < l.phases[2].reserved_bytes);
    for (int i = 3; i < 5; i++) {
        const vp_ledger_phase *said = &l.phases[i], *played = &l.phases[i + 2];
        assert_string_equal(said->name, played->name);
        assert_int_equal(said->allocated_bytes, played->allocated_bytes);
        assert_int_equal(said->reserved_bytes, played->reserved_bytes);
        assert_int_equal(said->end_bytes, played->end_bytes);
        assert_int_equal(said->end_reserved_bytes, played->end_reserved_bytes);
        assert_memory_equal(said->owners, played->owners, sizeof said->owners);
    }
    vp_caching_allocator_destroy(l.allocator);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_needed_is_the_sum_of_what_lives_under_any_setting),
        cmocka_unit_test(more_than_it_may_need_does_not_fit_and_more_than_it_may_reserve_is_noted),
        cmocka_unit_test(counting_alone_ends_where_every_setting_reserves_more),
        cmocka_unit_test(owners_are_those_of_the_peak),
        cmocka_unit_test(a_phase_that_repeats_is_what_it_is_when_played),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
