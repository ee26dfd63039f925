/* tests/test_caching_allocator.c: PyTorch's caching allocator, a rule at a time, with numbers worked
 * by hand. What PyTorch itself did is compared in tests/test_allocator_traces.sh. */
#include "tests/base_test.h"

#include "base/units.h"
#include "trainers/torch/caching_allocator.h"

#define MIB VP_MIB

static vp_caching_allocator *a;
static int64_t               segments[64];
static int                   n_segments;

static void segment(void *context, int64_t bytes)
{
    (void)context;
    if (n_segments < 64) /* no test looks at more */
        segments[n_segments++] = bytes;
}

/* A new allocator; conf may be NULL. The one before goes. */
static void with(const char *conf, vp_caching_allocator_opts opts)
{
    vp_err err = {0};

    vp_caching_allocator_destroy(a);
    n_segments      = 0;
    opts.on_segment = segment;
    CHECK_OK(vp_caching_allocator_conf(conf ? conf : "", &opts, &err));
    CHECK_OK(vp_caching_allocator_new(&opts, &a, &err));
}

#define WITH(conf, ...) with((conf), (vp_caching_allocator_opts){__VA_ARGS__})

static vp_caching_block get_on(int stream, int64_t bytes)
{
    vp_err           err = {0};
    vp_caching_block b;

    CHECK_OK(vp_caching_allocator_alloc(a, stream, bytes, &b, &err));
    return b;
}

static vp_caching_block get(int64_t bytes)
{
    return get_on(0, bytes);
}

static void give(vp_caching_block b)
{
    vp_caching_allocator_free(a, b);
}

static void no_fit(int64_t bytes)
{
    vp_err           err = {0};
    vp_caching_block b   = 7;

    CHECK_FAILS(vp_caching_allocator_alloc(a, 0, bytes, &b, &err), VP_ERR_NO_FIT, "", 0, "",
                "out of memory");
    assert_int_equal(b, 0);
}

static void use_on(vp_caching_block b, int stream)
{
    vp_err err = {0};

    CHECK_OK(vp_caching_allocator_record_stream(a, b, stream, &err));
}

static void empty_cache(void)
{
    vp_err err = {0};

    CHECK_OK(vp_caching_allocator_empty_cache(a, &err));
}

static const vp_caching_figures *now(void)
{
    return vp_caching_allocator_figures(a);
}

static int64_t bytes_of(vp_caching_block b)
{
    int64_t at, bytes;

    vp_caching_allocator_place(a, b, &at, &bytes);
    return bytes;
}

static int64_t place_of(vp_caching_block b)
{
    int64_t at, bytes;

    vp_caching_allocator_place(a, b, &at, &bytes);
    return at;
}

static int done(void **state)
{
    (void)state;
    vp_caching_allocator_destroy(a);
    a = NULL;
    return 0;
}

#define ALLOCATED now()->allocated_bytes.now
#define ACTIVE    now()->active_bytes.now
#define RESERVED  now()->reserved_bytes.now
#define REQUESTED now()->requested_bytes.now
#define INACTIVE  now()->inactive_split_bytes.now

static void sizes_round_up_to_512_bytes(void **state)
{
    (void)state;
    WITH(NULL);
    assert_int_equal(bytes_of(get(1)), 512);
    assert_int_equal(bytes_of(get(512)), 512);
    assert_int_equal(bytes_of(get(513)), 1024);
    assert_int_equal(ALLOCATED, 2048);
    assert_int_equal(REQUESTED, 1 + 512 + 513);
}

static void nothing_asked_is_nothing_given(void **state)
{
    (void)state;
    WITH(NULL);
    assert_int_equal(get(0), 0);
    give(0);
    assert_int_equal(RESERVED, 0);
}

static void with_divisions_sizes_round_up_to_a_step_between_powers_of_two(void **state)
{
    (void)state;
    WITH("roundup_power2_divisions:4");
    /* 2^20 to 2^21 in four steps of 262144: 1200000 is in the first, 1310720 its end */
    assert_int_equal(bytes_of(get(1200000)), 1310720);
    assert_int_equal(bytes_of(get(1310720)), 1310720);
    assert_int_equal(bytes_of(get(2 * MIB)), 2 * MIB); /* a power of two stays */
    /* up to 512 x 4 a step would be below 512: plain rounding */
    assert_int_equal(bytes_of(get(1100)), 1536);
    assert_int_equal(bytes_of(get(2048)), 2048);
    assert_int_equal(bytes_of(get(2049)), 2560);
}

static void divisions_can_differ_by_size(void **state)
{
    (void)state;
    WITH("roundup_power2_divisions:[2:4,32:2,>:8]");
    assert_int_equal(bytes_of(get(600000)),
                     655360); /* 2^19 + 131072: the first entry is for less too */
    assert_int_equal(bytes_of(get(3 * MIB - 100)), 3 * MIB);
    /* none for 4 to 16 MiB; in the small step below: 5 MiB + 1 -> 512 more */
    assert_int_equal(bytes_of(get(5 * MIB + 1)), 5 * MIB + 512);
    assert_int_equal(bytes_of(get(40 * MIB)), 48 * MIB);   /* 32, 48, 64 */
    assert_int_equal(bytes_of(get(70 * MIB)), 72 * MIB);   /* 64, 72, 80, ... */
    assert_int_equal(bytes_of(get(129 * MIB)), 144 * MIB); /* 128, 144, ... */
}

static void segments_are_2_mib_20_mib_or_a_multiple_of_2_mib(void **state)
{
    static const int64_t asked[] = {1 * MIB,  1 * MIB + 1,  10 * MIB - 512,
                                    10 * MIB, 10 * MIB + 1, 33 * MIB};
    static const int64_t want[]  = {2 * MIB, 20 * MIB, 20 * MIB, 10 * MIB, 12 * MIB, 34 * MIB};

    (void)state;
    for (int i = 0; i < 6; i++) {
        WITH(NULL);
        get(asked[i]);
        assert_int_equal(n_segments, 1);
        assert_int_equal(segments[0], want[i]);
        assert_int_equal(now()->n_segments.now, 1);
    }
    WITH("large_segment_size_mb:34");
    get(1 * MIB + 1);
    assert_int_equal(RESERVED, 34 * MIB);
}

static void small_and_large_requests_never_share_a_segment(void **state)
{
    (void)state;
    WITH(NULL);
    give(get(19 * MIB)); /* 20 MiB, cached */
    get(1 * MIB);
    assert_int_equal(RESERVED, 22 * MIB);
}

static void what_is_left_of_a_small_block_is_split_off_from_512_bytes_on(void **state)
{
    (void)state;
    WITH(NULL);
    get(512);
    assert_int_equal(INACTIVE, 2 * MIB - 512);
    get(2 * MIB / 2);
    get(1 * MIB - 1024); /* 512 are left */
    assert_int_equal(INACTIVE, 512);
    get(512);
    assert_int_equal(INACTIVE, 0);
    assert_int_equal(RESERVED, 2 * MIB);
}

static void what_is_left_of_a_large_block_is_split_off_above_1_mib(void **state)
{
    (void)state;
    WITH(NULL);
    get(11 * MIB); /* of 12 MiB: 1 MiB over, kept in the block */
    assert_int_equal(ALLOCATED, 12 * MIB);
    assert_int_equal(REQUESTED, 11 * MIB);
    assert_int_equal(INACTIVE, 0);
    get(13 * MIB - 512); /* of 14 MiB: 512 B more than 1 MiB over */
    assert_int_equal(ALLOCATED, 25 * MIB - 512);
    assert_int_equal(INACTIVE, 1 * MIB + 512);
}

static void a_request_takes_the_smallest_block_that_is_large_enough(void **state)
{
    vp_caching_block large, middle, small;
    int64_t          at;

    (void)state;
    WITH(NULL);
    large  = get(60 * MIB);
    middle = get(40 * MIB);
    small  = get(20 * MIB);
    at     = place_of(middle);
    give(large);
    give(middle);
    give(small);
    assert_int_equal(place_of(get(30 * MIB)), at);
    assert_int_equal(RESERVED, 120 * MIB);
}

static void of_equal_blocks_it_takes_the_one_at_the_lowest_address(void **state)
{
    vp_caching_block b[40];
    int64_t          at[40];

    (void)state;
    WITH(NULL);
    for (int i = 0; i < 40; i++) {
        b[i]  = get(20 * MIB);
        at[i] = place_of(b[i]);
    }
    for (int i = 0; i < 40; i++)
        give(b[i * 7 % 40]);
    for (int i = 0; i < 40; i++)
        assert_int_equal(place_of(get(20 * MIB)), at[i]);
}

static void free_neighbours_become_one_block(void **state)
{
    vp_caching_block x, y, z;

    (void)state;
    WITH(NULL);
    x = get(4 * MIB);
    y = get(5 * MIB);
    z = get(6 * MIB); /* 5 MiB of the 20 are left */
    assert_int_equal(INACTIVE, 5 * MIB);
    give(x);
    assert_int_equal(INACTIVE, 9 * MIB);
    give(z); /* 4, used 5, 6 + 5 */
    assert_int_equal(INACTIVE, 15 * MIB);
    assert_int_equal(place_of(x = get(11 * MIB)), place_of(y) + 5 * MIB);
    give(x);
    give(y); /* one whole segment is not split */
    assert_int_equal(INACTIVE, 0);
    get(19 * MIB);
    assert_int_equal(RESERVED, 20 * MIB);
    assert_int_equal(now()->inactive_split_bytes.peak, 16 * MIB); /* after x of 4 MiB: 20 - 4 */
}

static void streams_do_not_share_free_blocks(void **state)
{
    vp_caching_block b;

    (void)state;
    WITH(NULL);
    b = get_on(0, 20 * MIB);
    give(b);
    get_on(1, 20 * MIB);
    assert_int_equal(RESERVED, 40 * MIB);
    get_on(0, 20 * MIB);
    assert_int_equal(RESERVED, 40 * MIB);
}

static void a_block_used_on_another_stream_is_free_by_the_next_allocation(void **state)
{
    vp_caching_block b;

    (void)state;
    WITH(NULL);
    b = get(20 * MIB);
    use_on(b, 0); /* its own: nothing to wait for */
    use_on(b, 3);
    use_on(b, 3);
    give(b);
    assert_int_equal(ALLOCATED, 0);
    assert_int_equal(ACTIVE, 20 * MIB);
    assert_int_equal(REQUESTED, 20 * MIB);
    get(20 * MIB);
    assert_int_equal(RESERVED, 20 * MIB);
    assert_int_equal(ACTIVE, 20 * MIB);
}

static void or_only_when_that_stream_is_past_it(void **state)
{
    vp_caching_block b;

    (void)state;
    WITH(NULL, .streams_lag = true);
    b = get(20 * MIB);
    use_on(b, 1);
    use_on(b, 2);
    give(b);
    vp_caching_allocator_stream_done(a, 1);
    get(20 * MIB); /* stream 2 is not past it */
    assert_int_equal(RESERVED, 40 * MIB);
    assert_int_equal(ACTIVE, 40 * MIB);
    vp_caching_allocator_stream_done(a, 2);
    get(20 * MIB);
    assert_int_equal(RESERVED, 40 * MIB);
    b = get(20 * MIB);
    use_on(b, 1);
    vp_caching_allocator_stream_done(a, 1); /* before the free: does not count */
    give(b);
    get(20 * MIB);
    assert_int_equal(RESERVED, 80 * MIB);
    empty_cache(); /* waits for all streams */
    assert_int_equal(RESERVED, 60 * MIB);
    assert_int_equal(ACTIVE, 60 * MIB);
}

static void many_uses_wait_in_the_order_they_were_freed(void **state)
{
    vp_caching_block b[200];

    (void)state;
    WITH(NULL, .streams_lag = true);
    for (int i = 0; i < 200; i++) {
        b[i] = get(1 * MIB);
        use_on(b[i], 1 + i % 5);
        if (i >= 100)
            give(b[i - 100]);
    }
    assert_int_equal(ACTIVE, 200 * MIB);
    assert_int_equal(ALLOCATED, 100 * MIB);
    for (int s = 1; s < 6; s++)
        vp_caching_allocator_stream_done(a, s);
    get(512);
    assert_int_equal(ACTIVE, 100 * MIB + 512);
}

static void empty_cache_gives_back_what_nothing_is_in(void **state)
{
    vp_caching_block b;

    (void)state;
    WITH(NULL);
    b = get(4 * MIB);
    give(get(512));
    give(get(30 * MIB));
    give(get(5 * MIB)); /* beside the 4 MiB */
    assert_int_equal(RESERVED, 52 * MIB);
    n_segments = 0;
    empty_cache();
    assert_int_equal(RESERVED, 20 * MIB);
    assert_int_equal(n_segments, 2);
    assert_int_equal(segments[0], -30 * MIB); /* the large pool goes first */
    assert_int_equal(segments[1], -2 * MIB);
    assert_int_equal(now()->n_device_frees, 2);
    give(b);
    empty_cache();
    assert_int_equal(RESERVED, 0);
    assert_int_equal(now()->n_segments.now, 0);
    assert_int_equal(now()->n_segments.peak, 3);
    assert_int_equal(now()->reserved_bytes.peak, 52 * MIB);
}

static int64_t at(vp_caching_block b)
{
    int64_t address, bytes;

    vp_caching_allocator_place(a, b, &address, &bytes);
    return address;
}

/* As in listings of cards: 512 MiB at ..74000000, then 1 GiB at ..34000000, directly below it; what is small rises from the bottom. */
static void large_segments_lie_below_each_other_as_a_driver_gives_them(void **state)
{
    (void)state;
    WITH(NULL, .addresses_fall = true);
    vp_caching_block small = get(512), half = get(512 * MIB), one = get(1024 * MIB),
                     other = get(20 * MIB), odd = get(33 * MIB), last = get(32 * MIB);
    assert_true(at(small) < at(other) && at(other) < at(last)); /* 2 and 20 MiB rise */
    assert_true(at(half) - at(one) == 1024 * MIB);
    assert_true(at(one) - at(odd) == 64 * MIB && at(odd) % (32 * MIB) == 0); /* of 34 MiB */
    assert_true(at(odd) - at(last) == 32 * MIB);
    /* what went back is given again, from the top */
    int64_t gap = at(one);
    give(one);
    empty_cache();
    assert_true(at(get(32 * MIB)) == gap + 992 * MIB && at(get(40 * MIB)) == gap + 928 * MIB);
}

static void a_full_device_gets_the_cache_back_and_is_asked_again(void **state)
{
    (void)state;
    WITH(NULL, .device_total_bytes = 100 * MIB, .device_others_bytes = 8 * MIB);
    give(get(40 * MIB));
    give(get(50 * MIB));
    assert_int_equal(RESERVED, 90 * MIB);
    get(60 * MIB); /* 2 are free; both cached segments go */
    assert_int_equal(RESERVED, 60 * MIB);
    assert_int_equal(now()->n_retries, 1);
    assert_int_equal(now()->n_ooms, 0);
    get(32 * MIB); /* 92 of 92 */
    no_fit(512);
    vp_caching_allocator_others(a, 6 * MIB);
    get(512);
    assert_int_equal(RESERVED, 94 * MIB);
}

static void out_of_memory_says_what_pytorch_says(void **state)
{
    const vp_caching_oom *oom;

    (void)state;
    WITH(NULL, .device_total_bytes = 100 * MIB, .device_others_bytes = 8 * MIB,
         .allowed_bytes = 95 * MIB);
    give(get(20 * MIB));
    get(11 * MIB);
    get(60 * MIB + 512); /* 62 MiB; 1 MiB and more is left and split off */
    /* the cached 20 MiB were taken for the 11, and 9 are left of them */
    no_fit(9 * MIB + 512);
    oom = vp_caching_allocator_oom(a);
    assert_int_equal(oom->requested_bytes, 9 * MIB + 512);
    assert_int_equal(oom->tried_bytes, 20 * MIB); /* the segment, not the tensor */
    assert_int_equal(oom->total_bytes, 100 * MIB);
    assert_int_equal(oom->free_bytes, 92 * MIB - 82 * MIB);
    assert_int_equal(oom->allowed_bytes, 95 * MIB);
    assert_int_equal(oom->allocated_bytes, 71 * MIB + 512);
    assert_int_equal(oom->unallocated_bytes, 82 * MIB - 71 * MIB - 512);
    assert_int_equal(now()->n_ooms, 1);
    assert_int_equal(now()->n_retries, 1);
    get(8 * MIB); /* it goes on: 8 of the 9 MiB */
    assert_int_equal(now()->n_ooms, 1);
}

static void a_retry_does_not_look_for_what_waiting_for_streams_has_freed(void **state)
{
    vp_caching_block b;

    (void)state;
    WITH(NULL, .device_total_bytes = 20 * MIB, .streams_lag = true);
    get(4 * MIB);
    b = get(9 * MIB); /* both in one segment, which is the whole card; 7 MiB are left */
    use_on(b, 1);
    give(b);
    no_fit(9 * MIB); /* stream 1 is waited for, and 16 MiB are free, but only the device is asked */
    assert_int_equal(ACTIVE, 4 * MIB);
    assert_int_equal(now()->n_ooms, 1);
    get(9 * MIB);
}

static void under_a_cap_the_peak_is_lower_than_without(void **state)
{
    (void)state;
    for (int capped = 0; capped < 2; capped++) {
        WITH(NULL, .allowed_bytes = capped ? 100 * MIB : 0);
        give(get(40 * MIB));
        give(get(50 * MIB));
        give(get(60 * MIB)); /* capped: 40 and 50 go first */
        assert_int_equal(now()->reserved_bytes.peak, capped ? 90 * MIB : 150 * MIB);
        assert_int_equal(now()->n_retries, capped);
    }
}

static void garbage_older_than_the_mean_goes_above_the_threshold(void **state)
{
    vp_caching_block x, z;

    (void)state;
    WITH("garbage_collection_threshold:0.5", .allowed_bytes = 200 * MIB);
    x = get(40 * MIB); /* search 1 */
    get(30 * MIB);
    z = get(20 * MIB); /* search 3 */
    give(x);           /* free since 3 */
    get(50 * MIB);     /* search 4; 90 of 0.5 x 200: no garbage */
    give(z);           /* free since 4 */
    assert_int_equal(RESERVED, 140 * MIB);
    n_segments = 0;
    /* search 5; 140 are 40 too much. Ages 2 and 1, mean 1.5: the 40 MiB go, and that is enough */
    get(60 * MIB);
    assert_int_equal(n_segments, 2);
    assert_int_equal(segments[0], -40 * MIB);
    assert_int_equal(RESERVED, 160 * MIB);
    /* search 6; 60 too much: all that can go is the 20 MiB, no younger than the mean of one */
    get(60 * MIB);
    assert_int_equal(RESERVED, 200 * MIB);
    assert_int_equal(now()->n_retries, 0);
    /* Without a limit the setting does nothing. */
    WITH("garbage_collection_threshold:0.5", .device_total_bytes = 200 * MIB);
    give(get(110 * MIB));
    get(60 * MIB); /* split off the 110 */
    get(60 * MIB);
    assert_int_equal(RESERVED, 170 * MIB);
}

static void blocks_of_max_split_size_are_kept_whole(void **state)
{
    vp_caching_block b;

    (void)state;
    WITH("max_split_size_mb:40");
    b = get(100 * MIB);
    give(b);
    give(get(39 * MIB)); /* not of the 100 */
    assert_int_equal(RESERVED, 140 * MIB);
    get(79 * MIB); /* 100 would be 21 over: 20 and more is too much */
    assert_int_equal(RESERVED, 220 * MIB);
    assert_int_equal(bytes_of(get(80 * MIB + 512)), 100 * MIB);
    assert_int_equal(RESERVED, 220 * MIB);
    WITH("max_split_size_mb:40,max_non_split_rounding_mb:22");
    give(get(100 * MIB));
    assert_int_equal(bytes_of(get(79 * MIB)), 100 * MIB);
}

static void a_full_device_gets_oversize_blocks_back_first(void **state)
{
    (void)state;
    WITH("max_split_size_mb:40", .device_total_bytes = 300 * MIB);
    give(get(20 * MIB));
    give(get(50 * MIB));
    give(get(80 * MIB));
    give(get(120 * MIB)); /* 270 of 300 */
    n_segments = 0;
    get(55 * MIB); /* of 56: the smallest of 55 and more is 80 */
    assert_int_equal(n_segments, 2);
    assert_int_equal(segments[0], -80 * MIB);
    assert_int_equal(segments[1], 56 * MIB);
    assert_int_equal(now()->n_retries, 0);
    /* 246; no single block of 150: the largest first until it is enough, 120 + 50 */
    n_segments = 0;
    get(150 * MIB);
    assert_int_equal(n_segments, 3);
    assert_int_equal(segments[0], -120 * MIB);
    assert_int_equal(segments[1], -50 * MIB);
    assert_int_equal(now()->n_retries, 0);
    assert_int_equal(RESERVED, 226 * MIB);
    /* 50 + 50 are the 100 that are asked for: enough, and the 20 stay */
    WITH("max_split_size_mb:40", .device_total_bytes = 120 * MIB);
    give(get(20 * MIB));
    vp_caching_block x = get(50 * MIB);
    give(get(50 * MIB));
    give(x);
    get(100 * MIB);
    assert_int_equal(now()->n_retries, 0);
    assert_int_equal(RESERVED, 120 * MIB);
}

static void an_expandable_segment_grows_in_pieces(void **state)
{
    vp_caching_block b;

    (void)state;
    WITH("expandable_segments:True");
    get(512);
    assert_int_equal(RESERVED, 2 * MIB);
    get(3 * MIB);
    assert_int_equal(RESERVED, 22 * MIB);
    get(16 * MIB); /* 1 MiB is left of the 20 */
    assert_int_equal(RESERVED, 22 * MIB);
    b = get(30 * MIB); /* begins in that: 29 more, in pieces of 20 */
    assert_int_equal(RESERVED, 62 * MIB);
    assert_int_equal(ALLOCATED, 49 * MIB + 512);
    assert_int_equal(INACTIVE, 0); /* PyTorch leaves expandable segments out */
    assert_int_equal(now()->n_segments.now, 0);
    assert_int_equal(now()->n_device_allocs, 3);
    give(b);
    give(get(11 * MIB)); /* of the free 41 */
    assert_int_equal(RESERVED, 62 * MIB);
}

static void whole_pieces_are_unmapped_and_mapped_again_at_the_lowest_address(void **state)
{
    vp_caching_block x, y, z;
    int64_t          at;

    (void)state;
    WITH("expandable_segments:True");
    x  = get(5 * MIB);
    y  = get(50 * MIB); /* 5 to 55 */
    z  = get(10 * MIB); /* 55 to 65 */
    at = place_of(x);
    assert_int_equal(RESERVED, 80 * MIB);
    give(y);
    empty_cache(); /* whole pieces in 5..55: 20..40; in 65..80: none */
    assert_int_equal(RESERVED, 60 * MIB);
    y = get(40 * MIB); /* 5..20 is free, 20..40 unmapped, 40..55 free: it fits there */
    assert_int_equal(place_of(y), at + 5 * MIB);
    assert_int_equal(RESERVED, 80 * MIB);
    give(x);
    give(y);
    give(z);
    empty_cache();
    assert_int_equal(RESERVED, 0);
    get(512); /* a new range */
    assert_int_equal(RESERVED, 2 * MIB);
}

static void the_end_of_an_expandable_segment_is_used_last(void **state)
{
    vp_caching_block x, y;
    int64_t          at;

    (void)state;
    WITH("expandable_segments:True");
    x  = get(8 * MIB);
    y  = get(8 * MIB); /* 4 MiB are left, and all behind them */
    at = place_of(x);
    give(x);
    /* 3 MiB: the 4 fit best, yet they can still grow, so they count as the whole range */
    assert_int_equal(place_of(get(3 * MIB)), at);
    give(y);
}

static void what_was_mapped_for_a_request_that_failed_is_unmapped_for_the_next(void **state)
{
    vp_caching_block x, y;

    (void)state;
    WITH("expandable_segments:True", .device_total_bytes = 100 * MIB);
    x = get(20 * MIB);
    y = get(20 * MIB);
    get(20 * MIB);
    give(y);
    empty_cache(); /* 20..40 is a hole */
    assert_int_equal(RESERVED, 40 * MIB);
    give(x);
    no_fit(90 * MIB); /* the third piece ends the free run; the range's rest has 60 of the 90 */
    assert_int_equal(now()->n_ooms, 1);
    assert_int_equal(RESERVED, 20 * MIB);
    get(80 * MIB);
    assert_int_equal(RESERVED, 100 * MIB);
}

static void peaks_can_start_anew(void **state)
{
    (void)state;
    WITH(NULL);
    get(20 * MIB);
    give(get(30 * MIB));
    vp_caching_allocator_reset_peaks(a);
    assert_int_equal(now()->allocated_bytes.peak, 20 * MIB);
    assert_int_equal(now()->requested_bytes.peak, 20 * MIB);
    assert_int_equal(now()->active_bytes.peak, 20 * MIB);
    assert_int_equal(now()->reserved_bytes.peak, 50 * MIB);
}

static void requests_beyond_reason_are_refused(void **state)
{
    vp_err           err = {0};
    vp_caching_block b;

    (void)state;
    WITH(NULL);
    CHECK_FAILS(vp_caching_allocator_alloc(a, 0, -1, &b, &err), VP_ERR_INPUT, "", 0, "",
                "-1 bytes");
    CHECK_FAILS(vp_caching_allocator_alloc(a, 0, (int64_t)1 << 46, &b, &err), VP_ERR_INPUT, "", 0,
                "", "bytes");
    CHECK_FAILS(vp_caching_allocator_alloc(a, 64, 1, &b, &err), VP_ERR_INPUT, "", 0, "",
                "stream 64");
    CHECK_FAILS(vp_caching_allocator_alloc(a, -1, 1, &b, &err), VP_ERR_INPUT, "", 0, "",
                "stream -1");
    b = get(512);
    CHECK_FAILS(vp_caching_allocator_record_stream(a, b, 64, &err), VP_ERR_INPUT, "", 0, "",
                "stream 64");
    /* the largest that there may be, until the device has no end no more: 2^62 / (2^46 - 2 MiB) */
    for (int i = 0; i < 65535; i++)
        get(((int64_t)1 << 46) - 2 * MIB);
    give(b);
    for (int i = 0;
         i < 10 && vp_caching_allocator_alloc(a, 0, ((int64_t)1 << 46) - 1, &b, &err) == VP_OK; i++)
        ;
    assert_int_equal(now()->n_ooms, 1);
}

static void an_endless_device_does_not_run_out_of_addresses(void **state)
{
    (void)state;
    for (int expandable = 0; expandable < 2; expandable++) {
        WITH(expandable ? "expandable_segments:True" : "");
        for (int i = 0; i < 300000; i++) {
            n_segments = 0;
            give(get(((int64_t)1 << 45) + i));
            empty_cache();
        }
        assert_int_equal(now()->n_ooms, 0);
    }
}

static void settings_are_read_as_pytorch_reads_them(void **state)
{
    vp_caching_allocator_opts o   = {.device_total_bytes = 1000};
    vp_err                    err = {0};

    (void)state;
    CHECK_OK(vp_caching_allocator_conf(" max_split_size_mb : 128 ,garbage_collection_threshold:0.8,"
                                       "expandable_segments:True,backend:native,"
                                       "pinned_use_background_threads:True,"
                                       "per_process_memory_fraction:0.25",
                                       &o, &err));
    assert_int_equal(o.max_split_bytes, 128 * MIB);
    assert_true(o.garbage_collection_threshold == 0.8);
    assert_true(o.expandable_segments);
    assert_int_equal(o.allowed_bytes, 250);
    CHECK_OK(vp_caching_allocator_conf("expandable_segments:False,max_split_size_mb:99999999999,"
                                       "roundup_power2_divisions:[4:2,16:0,64:1,>:8],",
                                       &o, &err));
    assert_false(o.expandable_segments);
    for (int i = 0; i < 16; i++)
        assert_int_equal(o.roundup_power2_divisions[i], i <= 2 ? 2 : i == 6 ? 1 : i > 6 ? 8 : 0);
}

static void settings_that_pytorch_refuses_are_refused_by_name(void **state)
{
    static const struct {
        const char *conf, *field, *part;
    } wrong[] = {
        {"max_split_size_mb:19", "max_split_size_mb", "at least"},
        {"max_split_size_mb:30,large_segment_size_mb:34", "max_split_size_mb", "at least"},
        {"max_non_split_rounding_mb:19", "max_non_split_rounding_mb", "at least"},
        {"large_segment_size_mb:10", "large_segment_size_mb", "at least"},
        {"large_segment_size_mb:13,expandable_segments:True", "large_segment_size_mb", "2 MiB"},
        {"max_split_size_mb:x", "max_split_size_mb", "whole number"},
        {"max_split_size_mb:0", "max_split_size_mb", "more than 0"},
        {"max_split_size_mb", "max_split_size_mb", "expected ':'"},
        {"max_split_size_mb:21 garbage_collection_threshold:0.5", "max_split_size_mb",
         "whole number"},
        {"expandable_segments:True:", "expandable_segments", "expected ','"},
        {"expandable_segments:true", "expandable_segments", "True or False"},
        {"garbage_collection_threshold:0", "garbage_collection_threshold", "between 0 and 1"},
        {"garbage_collection_threshold:1.0", "garbage_collection_threshold", "between 0 and 1"},
        {"garbage_collection_threshold:1.5", "garbage_collection_threshold", "from 0 to 1"},
        {"roundup_power2_divisions:3", "roundup_power2_divisions", "power of two"},
        {"roundup_power2_divisions:0", "roundup_power2_divisions", "power of two"},
        {"roundup_power2_divisions:[64:3]", "roundup_power2_divisions", "power of two"},
        {"roundup_power2_divisions:[65:2]", "roundup_power2_divisions", "powers of two"},
        {"roundup_power2_divisions:[64:2", "roundup_power2_divisions", "',' or ']'"},
        {"per_process_memory_fraction:0.5", "per_process_memory_fraction", "not known"},
        {"backend:cudaMallocAsync", "backend", "not modelled"},
        {"pinned_num_register_threads:", "pinned_num_register_threads", "a value"},
        {"no_such_setting:1", "no_such_setting", "not a setting"},
        {":", ":", "expected ':' and found ''"},
        {"a_word_that_is_longer_than_any_setting_could_ever_reasonably_be_named:1", "", "too long"},
    };
    vp_caching_allocator_opts o = {.max_split_bytes = 50 * MIB}, before = o;
    vp_err                    err = {0};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_FAILS(vp_caching_allocator_conf(wrong[i].conf, &o, &err), VP_ERR_INPUT, "", 0,
                    wrong[i].field, wrong[i].part);
        assert_memory_equal(&o, &before, sizeof o);
    }
}

static void older_versions_read_some_settings_otherwise(void **state)
{
    vp_caching_allocator_opts o   = {.torch_minor = 9, .device_total_bytes = 1000};
    vp_err                    err = {0};

    (void)state;
    CHECK_OK(vp_caching_allocator_conf("roundup_power2_divisions:[1:4,32:2,>:8]", &o, &err));
    assert_int_equal(o.roundup_power2_divisions[4], 0);
    assert_int_equal(o.roundup_power2_divisions[5], 8); /* 32 MiB; 2 since 2.10 */
    CHECK_FAILS(vp_caching_allocator_conf("large_segment_size_mb:30", &o, &err), VP_ERR_INPUT, "",
                0, "large_segment_size_mb", "that version");
    CHECK_FAILS(vp_caching_allocator_conf("per_process_memory_fraction:0.5", &o, &err),
                VP_ERR_INPUT, "", 0, "per_process_memory_fraction", "that version");
    o.torch_minor = 10;
    CHECK_OK(vp_caching_allocator_conf("roundup_power2_divisions:[1:4,32:2,>:8]", &o, &err));
    assert_int_equal(o.roundup_power2_divisions[5], 2);
    assert_int_equal(o.roundup_power2_divisions[6], 8);
}

static void options_that_cannot_be_are_refused(void **state)
{
    static const vp_caching_allocator_opts wrong[] = {
        {.torch_minor = 6},
        {.device_total_bytes = -1},
        {.device_total_bytes = (int64_t)1 << 46},
        {.device_others_bytes = -1},
        {.allowed_bytes = -1},
        {.max_split_bytes = 20 * MIB + 1},
        {.garbage_collection_threshold = -0.1},
        {.garbage_collection_threshold = 0.0 / 0.0},
        {.roundup_power2_divisions = {[15] = 6}},
    };
    vp_caching_allocator *none;
    vp_err                err = {0};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(vp_caching_allocator_new(&wrong[i], &none, &err), VP_ERR_INPUT);
        assert_null(none);
        assert_true(*err.field);
        err = (vp_err){0};
    }
    vp_caching_allocator_destroy(NULL);
}

/* Random events of both, the same ones: blocks have the same numbers and places, counters the same values. */
static void a_copy_does_what_its_original_does_from_then_on(void **state)
{
    enum { N = 200, EVENTS = 6000 };
    static const char *const settings[] = {"", "expandable_segments:True", "max_split_size_mb:32"};
    (void)state;

    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
        vp_caching_block      blocks[N] = {0};
        vp_caching_allocator *copy      = NULL;
        uint64_t              seed      = 11 + k;
        vp_err                err       = {0};
        WITH(settings[k], .device_total_bytes = 3 * VP_GIB);
        for (int i = 0; i < EVENTS; i++) {
            seed          = seed * 6364136223846793005u + 1442695040888963407u;
            int     at    = (int)(seed >> 33) % N;
            int64_t bytes = (int64_t)(seed >> 20) % ((int64_t)1 << (9 + (seed >> 50) % 15)) + 1;
            vp_caching_block other = 0;
            if (i == EVENTS / 2)
                CHECK_OK(vp_caching_allocator_copy(a, &copy, &err));
            if (copy)
                vp_caching_allocator_free(copy, blocks[at]);
            give(blocks[at]);
            if (copy)
                CHECK_OK(vp_caching_allocator_alloc(copy, at % 3, bytes, &other, &err));
            blocks[at] = get_on(at % 3, bytes);
            if (!copy)
                continue;
            int64_t place[2], size[2];
            vp_caching_allocator_place(a, blocks[at], &place[0], &size[0]);
            vp_caching_allocator_place(copy, other, &place[1], &size[1]);
            assert_int_equal(other, blocks[at]);
            assert_true(place[0] == place[1] && size[0] == size[1]);
            assert_memory_equal(vp_caching_allocator_figures(a), vp_caching_allocator_figures(copy),
                                sizeof(vp_caching_figures));
        }
        vp_caching_allocator_destroy(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_round_up_to_512_bytes),
        cmocka_unit_test(nothing_asked_is_nothing_given),
        cmocka_unit_test(with_divisions_sizes_round_up_to_a_step_between_powers_of_two),
        cmocka_unit_test(divisions_can_differ_by_size),
        cmocka_unit_test(segments_are_2_mib_20_mib_or_a_multiple_of_2_mib),
        cmocka_unit_test(small_and_large_requests_never_share_a_segment),
        cmocka_unit_test(what_is_left_of_a_small_block_is_split_off_from_512_bytes_on),
        cmocka_unit_test(what_is_left_of_a_large_block_is_split_off_above_1_mib),
        cmocka_unit_test(a_request_takes_the_smallest_block_that_is_large_enough),
        cmocka_unit_test(of_equal_blocks_it_takes_the_one_at_the_lowest_address),
        cmocka_unit_test(free_neighbours_become_one_block),
        cmocka_unit_test(streams_do_not_share_free_blocks),
        cmocka_unit_test(a_block_used_on_another_stream_is_free_by_the_next_allocation),
        cmocka_unit_test(or_only_when_that_stream_is_past_it),
        cmocka_unit_test(many_uses_wait_in_the_order_they_were_freed),
        cmocka_unit_test(empty_cache_gives_back_what_nothing_is_in),
        cmocka_unit_test(large_segments_lie_below_each_other_as_a_driver_gives_them),
        cmocka_unit_test(a_full_device_gets_the_cache_back_and_is_asked_again),
        cmocka_unit_test(out_of_memory_says_what_pytorch_says),
        cmocka_unit_test(a_retry_does_not_look_for_what_waiting_for_streams_has_freed),
        cmocka_unit_test(under_a_cap_the_peak_is_lower_than_without),
        cmocka_unit_test(garbage_older_than_the_mean_goes_above_the_threshold),
        cmocka_unit_test(blocks_of_max_split_size_are_kept_whole),
        cmocka_unit_test(a_full_device_gets_oversize_blocks_back_first),
        cmocka_unit_test(an_expandable_segment_grows_in_pieces),
        cmocka_unit_test(whole_pieces_are_unmapped_and_mapped_again_at_the_lowest_address),
        cmocka_unit_test(the_end_of_an_expandable_segment_is_used_last),
        cmocka_unit_test(what_was_mapped_for_a_request_that_failed_is_unmapped_for_the_next),
        cmocka_unit_test(peaks_can_start_anew),
        cmocka_unit_test(requests_beyond_reason_are_refused),
        cmocka_unit_test(an_endless_device_does_not_run_out_of_addresses),
        cmocka_unit_test(settings_are_read_as_pytorch_reads_them),
        cmocka_unit_test(settings_that_pytorch_refuses_are_refused_by_name),
        cmocka_unit_test(older_versions_read_some_settings_otherwise),
        cmocka_unit_test(options_that_cannot_be_are_refused),
        cmocka_unit_test(a_copy_does_what_its_original_does_from_then_on),
    };

    return cmocka_run_group_tests(tests, NULL, done);
}
