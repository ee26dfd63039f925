/* What collectives are taken to need, against what others measured with nccl-tests: bus bandwidth, as published. */
#include "tests/base_test.h"

#include "devices/collective.h"

#include <math.h>

static vp_device d;

static const vp_device *open_device(const char *name)
{
    vp_err err = {0};

    assert_int_equal(vp_device_open(name, &d, &err), VP_OK);
    return &d;
}

/* As nccl-tests counts: bytes are those of the whole buffer. */
static double bus_gb(const char *card, vp_collective what, int n, double bytes)
{
    bool   parts   = what == VP_ALL_GATHER || what == VP_REDUCE_SCATTER;
    double seconds = vp_collective_seconds(open_device(card), what, n, parts ? bytes / n : bytes);
    double factor  = what == VP_ALL_REDUCE ? 2.0 * (n - 1) / n : parts ? (n - 1.0) / n : 1;

    return factor * bytes / seconds / 1e9;
}

static void near(double got, double least, double most, double share)
{
    if (got < least * (1 - share) || got > most * (1 + share))
        fail_msg("%.1f GB/s, published %.1f to %.1f", got, least, most);
}

static void large_ones_are_as_fast_as_published(void **state)
{
    (void)state;
    near(bus_gb("a100-sxm-80gb", VP_ALL_REDUCE, 8, 8e9), 230, 250, 0.01);
    near(bus_gb("h100-sxm-80gb", VP_ALL_GATHER, 8, 8e9), 370, 370, 0.03); /* nccl-tests#212 */
    near(bus_gb("h100-sxm-80gb", VP_REDUCE_SCATTER, 8, 8e9), 370, 370, 0.03);
    near(bus_gb("h100-sxm-80gb", VP_ALL_REDUCE, 8, 8e9), 460, 480, 0.01);
    near(bus_gb("h100-pcie-80gb", VP_ALL_REDUCE, 8, 8e9), 35, 45, 0.15);
    near(bus_gb("h100-pcie-80gb", VP_ALL_REDUCE, 2, 8e9), 116, 116, 0.01); /* nccl#1161 */
    near(bus_gb("a100-pcie-80gb", VP_ALL_REDUCE, 2, 8e9), 208, 208, 0.01); /* nccl-tests#178 */
    near(bus_gb("rtx-5090-32gb", VP_ALL_REDUCE, 4, 8e9), 35, 35, 0.15);    /* nccl#1639 */
    near(bus_gb("rtx-5090-32gb", VP_ALL_REDUCE, 8, 8e9), 28, 28, 0.15);
}

/* 2 A100: 32 bytes in 10 us (nccl#583). */
static void small_ones_take_their_latency(void **state)
{
    (void)state;
    open_device("a100-sxm-40gb");
    assert_true(fabs(vp_collective_seconds(&d, VP_ALL_REDUCE, 2, 32) - 10.1e-6) < 3e-6);
    assert_true(vp_collective_seconds(&d, VP_ALL_REDUCE, 8, 32) >
                vp_collective_seconds(&d, VP_ALL_REDUCE, 2, 32));
}

/* More bytes and a slower link never take less; an all-reduce takes no more than a reduce-scatter and an all-gather, but
 * for what the protocol of small ones loses where it reduces: a quarter of the rate, not a third. */
static void larger_is_slower(void **state)
{
    static const char *const cards[] = {"v100-sxm2-16gb", "a100-sxm-80gb", "h100", "4090", "b200"};

    (void)state;
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++)
        for (int what = 0; what < VP_N_COLLECTIVES; what++)
            for (int n = 2; n <= 16; n++) {
                double was = 0;

                open_device(cards[i]);
                for (double bytes = 1; bytes < 1e11; bytes *= 3) {
                    double now = vp_collective_seconds(&d, (vp_collective)what, n, bytes);
                    assert_true(now > was || now == was);
                    was = now;
                    if (what == VP_ALL_REDUCE) {
                        double part = vp_collective_seconds(&d, VP_REDUCE_SCATTER, n, bytes / n) +
                                      vp_collective_seconds(&d, VP_ALL_GATHER, n, bytes / n);
                        assert_true(now <= 4 / 3.0 * part);
                    }
                }
            }
    assert_true(bus_gb("4090", VP_ALL_REDUCE, 8, 1e9) <
                bus_gb("a100-sxm-80gb", VP_ALL_REDUCE, 8, 1e9));
}

/* A bridge leads to one other card: four cards talk through the host. */
static void a_bridge_links_two(void **state)
{
    (void)state;
    open_device("rtx-3090-24gb");
    assert_true(vp_ring_link_of(&d, 2).nvlink);
    assert_false(vp_ring_link_of(&d, 4).nvlink);
    open_device("a100-pcie-80gb");
    assert_false(vp_ring_link_of(&d, 8).nvlink);
    open_device("a100-sxm-80gb");
    assert_true(vp_ring_link_of(&d, 8).nvlink);
    open_device("4090");
    assert_false(vp_ring_link_of(&d, 2).nvlink);
}

static void names_are_known(void **state)
{
    vp_collective what;

    (void)state;
    assert_true(vp_collective_named("reduce_scatter", &what));
    assert_int_equal(what, VP_REDUCE_SCATTER);
    assert_false(vp_collective_named("gossip", &what));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_ones_are_as_fast_as_published),
        cmocka_unit_test(small_ones_take_their_latency),
        cmocka_unit_test(larger_is_slower),
        cmocka_unit_test(a_bridge_links_two),
        cmocka_unit_test(names_are_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
