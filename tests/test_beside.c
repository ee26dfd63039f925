#include "tests/base_test.h"

#include "base/beside.h"

#include <sched.h>
#include <stdatomic.h>

/* Sums of a range, each half of it beside the other. */
typedef struct range {
    int64_t first, end, sum;
} range;

static void add_up(void *with)
{
    range    *r = with;
    vp_beside other;

    if (r->end - r->first == 1) {
        r->sum = r->first;
        return;
    }
    const int64_t middle   = r->first + (r->end - r->first) / 2;
    range         halves[] = {{r->first, middle, 0}, {middle, r->end, 0}};
    vp_beside_offer(&other, add_up, &halves[1]);
    add_up(&halves[0]);
    vp_beside_finish(&other);
    r->sum = halves[0].sum + halves[1].sum;
}

static void what_is_offered_is_done_once(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 4096; n = n * 2 + 1) {
        range r = {0, n, 0};
        add_up(&r);
        assert_int_equal(r.sum, n * (n - 1) / 2);
    }
}

static atomic_int  n_begun;
static atomic_bool ends;

static void wait_for_end(void *with)
{
    atomic_fetch_add((atomic_int *)with, 1);
    while (!atomic_load(&ends))
        sched_yield();
}

static void count(void *with)
{
    atomic_fetch_add((atomic_int *)with, 1);
}

static void count_and_end(void *with)
{
    count(with);
    atomic_store(&ends, true);
}

/* The thread is held by *first until ends is true. False: there is one core. */
static bool hold_thread(vp_beside *first)
{
    cpu_set_t set;

    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    if (CPU_COUNT(&set) < 2)
        return false;
    atomic_store(&ends, false);
    atomic_store(&n_begun, 0);
    vp_beside_offer(first, wait_for_end, &n_begun);
    while (!atomic_load(&n_begun))
        sched_yield();
    return true;
}

/* The thread is held by the first; what is taken back is done by nobody, what is waited for is done here. */
static void offers_that_nobody_began_are_ours(void **state)
{
    vp_beside  first, second, third;
    atomic_int n = 0;

    (void)state;
    if (!hold_thread(&first))
        skip();
    assert_false(vp_beside_take_back(&first));
    vp_beside_offer(&second, count, &n);
    vp_beside_offer(&third, count, &n);
    assert_true(vp_beside_take_back(&second));
    assert_true(vp_beside_take_back(&second));
    vp_beside_finish(&third);
    assert_int_equal(n, 1);
    vp_beside_finish(&second);
    assert_int_equal(n, 2);
    atomic_store(&ends, true);
    vp_beside_finish(&first);
    assert_int_equal(n_begun, 1);
    assert_false(vp_beside_take_back(&first));
}

/* Who waits for what another thread has begun does what else is offered meanwhile. */
static void who_waits_helps(void **state)
{
    vp_beside  first, second;
    atomic_int n = 0;

    (void)state;
    if (!hold_thread(&first))
        skip();
    vp_beside_offer(&second, count_and_end, &n);
    vp_beside_finish(&first); /* which the second ends */
    assert_int_equal(n, 1);
    vp_beside_finish(&second);
    assert_int_equal(n, 1);
}

static void one_core_begins_nothing_beside(void **state)
{
    cpu_set_t  all, one;
    vp_beside  b;
    atomic_int n    = 0;
    int        core = 0;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    while (!CPU_ISSET(core, &all))
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    vp_beside_offer(&b, count, &n);
    assert_int_equal(b.state, VP_BESIDE_OWN);
    assert_true(vp_beside_take_back(&b));
    vp_beside_finish(&b);
    assert_int_equal(n, 1);
    range r = {0, 1000, 0};
    add_up(&r);
    assert_int_equal(r.sum, 499500);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_offered_is_done_once),
        cmocka_unit_test(offers_that_nobody_began_are_ours),
        cmocka_unit_test(who_waits_helps),
        cmocka_unit_test(one_core_begins_nothing_beside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
