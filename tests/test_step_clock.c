/* When the work of a step runs: cases whose times can be said by hand, and what must hold of any. */
#include "tests/base_test.h"

#include "dryrun/step_clock.h"

#include <math.h>
#include <stdlib.h>

static vp_step_clock *c;
static vp_step_times  t;

static int fresh(void **state)
{
    (void)state;
    c = vp_step_clock_new();
    return c ? 0 : -1;
}

static int gone(void **state)
{
    (void)state;
    vp_step_clock_free(c);
    return 0;
}

static void done(double step, double busy, double talk, double exposed)
{
    vp_err err = {0};

    assert_int_equal(vp_step_times_of(c, &t, &err), VP_OK);
    if (fabs(t.step_s - step) > 1e-9 || fabs(t.busy_s - busy) > 1e-9 ||
        fabs(t.talk_s - talk) > 1e-9 || fabs(t.exposed_s - exposed) > 1e-9)
        fail_msg("step %g busy %g talk %g exposed %g", t.step_s, t.busy_s, t.talk_s, t.exposed_s);
}

static void one_stream_is_a_sum(void **state)
{
    (void)state;
    vp_step_issue(c, 1);
    vp_step_work(c, 0, VP_STEP_CARD, 5);
    vp_step_issue(c, 1);
    vp_step_work(c, 0, VP_STEP_SENDING, 2);
    vp_step_work(c, 0, VP_STEP_CARD, 3);
    done(11, 10, 2, 2);
}

/* A gradient is reduced on a stream of its own while the backward pass goes on; the update waits for it. */
static void a_collective_hides_behind_work(void **state)
{
    (void)state;
    vp_step_work(c, 0, VP_STEP_CARD, 4);
    vp_step_record(c, 0, 0);
    vp_step_await(c, 1, 0);
    vp_step_work(c, 1, VP_STEP_SENDING, 5); /* 4 to 9 */
    vp_step_record(c, 1, 1);
    vp_step_work(c, 0, VP_STEP_CARD, 3); /* 4 to 7 */
    vp_step_await(c, 0, 1);
    vp_step_work(c, 0, VP_STEP_CARD, 1); /* 9 to 10 */
    done(10, 10, 5, 2);
}

static void the_card_does_one_thing_at_a_time(void **state)
{
    (void)state;
    vp_step_work(c, 0, VP_STEP_CARD, 4);
    vp_step_work(c, 1, VP_STEP_CARD, 4);
    vp_step_work(c, 2, VP_STEP_SENDING, 3);
    vp_step_work(c, 3, VP_STEP_SENDING, 3);
    vp_step_work(c, 4, VP_STEP_RECEIVING, 7); /* beside what is sent */
    vp_step_work(c, 5, VP_STEP_HOST_LINK, 2);
    done(8, 8, 13, 0);
}

static void the_host_waits(void **state)
{
    (void)state;
    vp_step_work(c, 0, VP_STEP_CARD, 4);
    vp_step_record(c, 0, 3);
    vp_step_work(c, 1, VP_STEP_SENDING, 9);
    vp_step_host_awaits_event(c, 3); /* 4 */
    vp_step_issue(c, 1);
    vp_step_work(c, 0, VP_STEP_CARD, 1); /* 5 to 6 */
    vp_step_host_awaits_stream(c, 0);
    vp_step_issue(c, 1); /* 7 */
    vp_step_host_awaits_all(c);
    vp_step_issue(c, 1);
    done(10, 9, 9, 4); /* the card ran until 4 and from 5 to 6 */
}

static void an_event_of_before_has_happened(void **state)
{
    (void)state;
    vp_step_await(c, 0, 7);
    vp_step_work(c, 0, VP_STEP_CARD, 1);
    done(1, 1, 0, 0);
}

/* No less than any one of them needs, no more than all one after the other. */
static void any_step_lies_between_its_bounds(void **state)
{
    (void)state;
    srand(7);
    for (int round = 0; round < 300; round++) {
        double sum = 0, host = 0, unit[VP_N_STEP_UNITS] = {0}, most = 0;
        vp_err err = {0};

        gone(NULL);
        fresh(NULL);
        for (int i = 0; i < 200; i++) {
            int    stream = rand() % 5, event = rand() % 9, u = rand() % VP_N_STEP_UNITS;
            double s = rand() % 100;

            switch (rand() % 6) {
            case 0:
                vp_step_record(c, stream, event);
                break;
            case 1:
                vp_step_await(c, stream, event);
                break;
            case 2:
                vp_step_host_awaits_stream(c, stream);
                break;
            default:
                vp_step_issue(c, 3);
                vp_step_work(c, stream, (vp_step_unit)u, s);
                host += 3;
                unit[u] += s;
                sum += s;
            }
        }
        for (int u = 0; u < VP_N_STEP_UNITS; u++)
            most = fmax(most, unit[u]);
        assert_int_equal(vp_step_times_of(c, &t, &err), VP_OK);
        assert_true(t.step_s >= fmax(host, most) && t.step_s <= host + sum);
        assert_true(t.busy_s <= t.step_s && t.busy_s >= most && t.busy_s <= sum);
        assert_true(t.exposed_s >= 0 && t.exposed_s <= t.talk_s);
        assert_true(t.talk_s == unit[VP_STEP_SENDING] + unit[VP_STEP_RECEIVING]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_stream_is_a_sum, fresh, gone),
        cmocka_unit_test_setup_teardown(a_collective_hides_behind_work, fresh, gone),
        cmocka_unit_test_setup_teardown(the_card_does_one_thing_at_a_time, fresh, gone),
        cmocka_unit_test_setup_teardown(the_host_waits, fresh, gone),
        cmocka_unit_test_setup_teardown(an_event_of_before_has_happened, fresh, gone),
        cmocka_unit_test_setup_teardown(any_step_lies_between_its_bounds, fresh, gone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
