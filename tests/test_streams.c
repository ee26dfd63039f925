/* tests/test_streams.c: streams and events of a backend: copies beside kernels, in every order that
 * the events allow, leave what the same list leaves when it is done one after the other; a wait
 * that is left out shows.
 *
 * The CPU's backend runs each list on its threads and, by many seeds, under stress
 * (kernels/cpu/cpu_streams.c). VPLAN_TEST_BACKEND names another; the emulator's reorders what it is
 * given under VPLAN_EMULATOR_STREAMS=SEED. A backend that records runs each list recorded as well. */
#include "tests/backend_test.h"
#include "tests/base_test.h"

#include "kernels/cpu/cpu_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    N_FLOATS   = 300,
    SLOT_BYTES = 1280, /* of N_FLOATS, at a multiple of VP_ALIGN_BYTES */
    N_DEVICE   = 6,
    N_HOST     = 4,
    MAX_ITEMS  = 400,
    MAX_OPS    = 128
};

typedef enum kind { ADD, COPY, MARK, AFTER } kind;

/* ADD: device slots to = a + b. COPY: to = a, one of both on the host, by the stream. */
typedef struct item {
    kind      kind;
    vp_stream stream;
    int       to, a, b, event;
} item;

typedef struct list {
    item items[MAX_ITEMS];
    int  n;
} list;

typedef struct state {
    float device[N_DEVICE][N_FLOATS], host[N_HOST][N_FLOATS];
} state;

/* ---- the oracle: one after the other ---- */

static void simulate(const list *l, state *s)
{
    for (int i = 0; i < l->n; i++) {
        const item *x = &l->items[i];

        for (int e = 0; x->kind == ADD && e < N_FLOATS; e++)
            s->device[x->to][e] = s->device[x->a][e] + s->device[x->b][e];
        if (x->kind == COPY && x->stream == VP_STREAM_TO_HOST)
            memcpy(s->host[x->to], s->device[x->a], sizeof s->host[0]);
        if (x->kind == COPY && x->stream == VP_STREAM_TO_DEVICE)
            memcpy(s->device[x->to], s->host[x->a], sizeof s->device[0]);
    }
}

/* ---- on the backend ---- */

static char *device, *host;

static int open_memory(void **unused)
{
    vp_err err = {0};
    void  *p;

    (void)unused;
    CHECK_OK(test_backend()->alloc((int64_t)N_DEVICE * SLOT_BYTES, &p, &err));
    device = p;
    CHECK_OK(test_backend()->host_alloc((int64_t)N_HOST * SLOT_BYTES, &p, &err));
    host = p;
    return 0;
}

static int release_memory(void **unused)
{
    (void)unused;
    test_backend()->release(device, (int64_t)N_DEVICE * SLOT_BYTES);
    test_backend()->host_release(host);
    test_backend()->host_release(NULL);
    return 0;
}

static void put(const state *s)
{
    vp_err err = {0};

    CHECK_OK(test_backend()->wait(&err));
    for (int i = 0; i < N_DEVICE; i++)
        CHECK_OK(test_backend()->upload(device + i * SLOT_BYTES, s->device[i], sizeof s->device[0],
                                        &err));
    for (int i = 0; i < N_HOST; i++)
        memcpy(host + i * SLOT_BYTES, s->host[i], sizeof s->host[0]);
}

static void get(state *s)
{
    vp_err err = {0};

    CHECK_OK(test_backend()->wait(&err));
    for (int i = 0; i < N_DEVICE; i++)
        CHECK_OK(test_backend()->download(s->device[i], device + i * SLOT_BYTES,
                                          sizeof s->device[0], &err));
    for (int i = 0; i < N_HOST; i++)
        memcpy(s->host[i], host + i * SLOT_BYTES, sizeof s->host[0]);
}

static vp_status try_one(const item *x, vp_err *err)
{
    const vp_backend *b     = test_backend();
    vp_kernel_call    call  = {.kernel = VP_K_ADD, .dtype = VP_DTYPE_F32};
    char             *at[2] = {device + x->to * SLOT_BYTES, host + x->a * SLOT_BYTES};

    switch (x->kind) {
    case ADD:
        call.elements.count    = N_FLOATS;
        call.operand[VP_ADD_X] = device + x->a * SLOT_BYTES;
        call.operand[VP_ADD_Y] = device + x->b * SLOT_BYTES;
        call.operand[VP_ADD_Z] = device + x->to * SLOT_BYTES;
        return b->run(&call, err);
    case COPY:
        if (x->stream == VP_STREAM_TO_HOST)
            at[0] = host + x->to * SLOT_BYTES, at[1] = device + x->a * SLOT_BYTES;
        return b->copy(x->stream, at[0], at[1], N_FLOATS * 4, err);
    case MARK:
        return b->mark(x->stream, x->event, err);
    default:
        return b->after(x->stream, x->event, err);
    }
}

static void give_one(const item *x)
{
    vp_err err = {0};

    CHECK_OK(try_one(x, &err));
}

/* All but item `left_out`; -1: all. */
static void give(const list *l, int left_out)
{
    for (int i = 0; i < l->n; i++)
        if (i != left_out)
            give_one(&l->items[i]);
}

/* Recorded once and replayed n_times; or given n_times. */
static void run(const list *l, int left_out, bool recorded, int n_times)
{
    const vp_backend *b     = test_backend();
    vp_backend_graph *graph = NULL;
    vp_err            err   = {0};

    if (recorded) {
        CHECK_OK(b->record_begin(&err));
        give(l, left_out);
        CHECK_OK(b->record_end(&graph, &err));
    }
    for (int i = 0; i < n_times; i++) {
        if (recorded)
            CHECK_OK(b->replay(graph, &err));
        else
            give(l, left_out);
        if (!recorded) /* a list ends, as a recording does, with all streams joined */
            CHECK_OK(b->wait(&err));
    }
    CHECK_OK(b->wait(&err));
    if (recorded)
        b->graph_free(graph);
}

static bool is_cpu(void)
{
    return test_backend() == vp_backend_cpu();
}

/* Seed 0: as it is in use. */
static void set_seed(uint64_t seed)
{
    if (is_cpu())
        vp_cpu_streams_stress(seed);
}

/* Whether orders other than the usual are tried. */
static bool is_reordered(void)
{
    return is_cpu() || getenv("VPLAN_EMULATOR_STREAMS");
}

static int n_ways(void)
{
    return test_backend()->record_begin ? 2 : 1; /* eager; recorded */
}

/* ---- random lists ---- */

static uint64_t draw_state;

static int draw(int below)
{
    draw_state ^= draw_state << 13;
    draw_state ^= draw_state >> 7;
    draw_state ^= draw_state << 17;
    return (int)((draw_state >> 11) % (uint64_t)below);
}

static void set_random(state *s)
{
    for (int i = 0; i < N_DEVICE; i++)
        for (int e = 0; e < N_FLOATS; e++)
            s->device[i][e] = (float)(draw(2001) - 1000) / 1024.0f;
    for (int i = 0; i < N_HOST; i++)
        for (int e = 0; e < N_FLOATS; e++)
            s->host[i][e] = (float)(draw(2001) - 1000) / 1024.0f;
}

static item *add(list *l, item x)
{
    assert_true(l->n < MAX_ITEMS);
    l->items[l->n] = x;
    return &l->items[l->n++];
}

/* Who used a slot since it was last written, the writer included, by number of the operation. */
typedef struct users {
    int of[MAX_OPS], n;
    int writer;
} users;

typedef struct build {
    list     *l;
    users     slots[N_DEVICE + N_HOST];
    vp_stream stream_of[MAX_OPS]; /* of an operation */
    int       event_of[MAX_OPS];  /* marked behind it; -1: none */
    int       n_ops, n_marks;
} build;

/* Events of single operations come from the lower half and are never marked again in this list;
 * others are marked where they are waited for, and again and again. */
static void wait_for(build *b, vp_stream stream, int op)
{
    int event = b->event_of[op];

    if (b->stream_of[op] == stream)
        return;
    if (event < 0) {
        event = VP_BACKEND_EVENTS / 2 + b->n_marks++ % 5;
        add(b->l, (item){.kind = MARK, .stream = b->stream_of[op], .event = event});
    }
    add(b->l, (item){.kind = AFTER, .stream = stream, .event = event});
}

static void use(build *b, vp_stream stream, int slot, bool writes)
{
    users *u = &b->slots[slot];

    for (int i = 0; writes && i < u->n; i++)
        wait_for(b, stream, u->of[i]);
    if (!writes && u->writer >= 0)
        wait_for(b, stream, u->writer);
    if (writes)
        u->n = 0, u->writer = b->n_ops;
    u->of[u->n++] = b->n_ops;
}

static void draw_list(list *l, int n_ops)
{
    build b = {.l = l};

    l->n = 0;
    for (int s = 0; s < N_DEVICE + N_HOST; s++)
        b.slots[s].writer = -1;
    while (b.n_ops < n_ops) {
        item x = {.kind = draw(5) < 2 ? ADD : COPY};

        if (x.kind == ADD) {
            x.stream = VP_STREAM_COMPUTE;
            x.to     = draw(N_DEVICE);
            x.a      = (x.to + 1 + draw(N_DEVICE - 1)) % N_DEVICE;
            x.b      = (x.to + 1 + draw(N_DEVICE - 1)) % N_DEVICE;
            use(&b, x.stream, x.a, false);
            use(&b, x.stream, x.b, false);
            use(&b, x.stream, x.to, true);
        } else if (draw(2)) {
            x.stream = VP_STREAM_TO_HOST;
            x.to = draw(N_HOST), x.a = draw(N_DEVICE);
            use(&b, x.stream, x.a, false);
            use(&b, x.stream, N_DEVICE + x.to, true);
        } else {
            x.stream = VP_STREAM_TO_DEVICE;
            x.to = draw(N_DEVICE), x.a = draw(N_HOST);
            use(&b, x.stream, N_DEVICE + x.a, false);
            use(&b, x.stream, x.to, true);
        }
        add(l, x);
        b.stream_of[b.n_ops] = x.stream;
        b.event_of[b.n_ops]  = draw(2) && b.n_ops < VP_BACKEND_EVENTS / 2 ? b.n_ops : -1;
        if (b.event_of[b.n_ops] >= 0)
            add(l, (item){.kind = MARK, .stream = x.stream, .event = b.event_of[b.n_ops]});
        b.n_ops++;
    }
}

static void expect_simulated(const list *l, const state *before, bool recorded, int n_times,
                             const char *what, int number)
{
    static state wanted, got;

    wanted = *before;
    for (int i = 0; i < n_times; i++)
        simulate(l, &wanted);
    put(before);
    run(l, -1, recorded, n_times);
    get(&got);
    if (memcmp(&wanted, &got, sizeof wanted) != 0)
        fail_msg("%s %d, %s: other bits than one after the other", what, number,
                 recorded ? "recorded" : "eager");
}

static void copies_beside_kernels_leave_what_a_sequence_leaves(void **unused)
{
    static list  l;
    static state before;

    (void)unused;
    for (int seed = 0; seed < 60; seed++) {
        draw_state = 0x9e3779b97f4a7c15u * (uint64_t)(seed / 3 + 1); /* three orders a list */
        set_seed((uint64_t)(seed % 3 == 0 ? 0 : seed));
        draw_list(&l, 40);
        set_random(&before);
        for (int way = 0; way < n_ways(); way++)
            expect_simulated(&l, &before, way == 1, 2, "list", seed / 3);
    }
    set_seed(0);
}

/* More than any queue holds, without a wait of the host's. */
static void a_thousand_copies_wait_for_each_other(void **unused)
{
    static list  l;
    static state before, wanted, got;
    vp_err       err = {0};

    (void)unused;
    for (int seed = 0; seed < 4; seed++) {
        draw_state = 88172645463325252u;
        set_seed((uint64_t)seed);
        set_random(&before);
        put(&before);
        wanted = before;
        for (int i = 0; i < 1000; i++) {
            l.n = 0;
            add(&l, (item){COPY, VP_STREAM_TO_HOST, i % N_HOST, i % N_DEVICE, 0, 0});
            add(&l, (item){.kind = MARK, .stream = VP_STREAM_TO_HOST, .event = i % 7});
            add(&l, (item){.kind = AFTER, .stream = VP_STREAM_TO_DEVICE, .event = i % 7});
            add(&l, (item){COPY, VP_STREAM_TO_DEVICE, (i + 1) % N_DEVICE, i % N_HOST, 0, 0});
            add(&l, (item){.kind = MARK, .stream = VP_STREAM_TO_DEVICE, .event = 7 + i % 7});
            add(&l, (item){.kind = AFTER, .stream = VP_STREAM_TO_HOST, .event = 7 + i % 7});
            simulate(&l, &wanted);
            give(&l, -1);
        }
        CHECK_OK(test_backend()->wait(&err));
        get(&got);
        assert_memory_equal(&wanted, &got, sizeof wanted);
    }
    set_seed(0);
}

/* ---- waits that are needed ---- */

/* Twice: a tensor is made in slot 0, moves out to host slot 0, its place is used for another, it
 * moves back and is read. The items of the second time that are waits come out. */
static void draw_round_trips(list *l, int waits[4])
{
    l->n = 0;
    for (int time = 0; time < 2; time++) {
        int n = 0;

        for (int hop = 0; hop < 4; hop++) {
            static const vp_stream from[] = {VP_STREAM_COMPUTE, VP_STREAM_TO_HOST,
                                             VP_STREAM_COMPUTE, VP_STREAM_TO_DEVICE};
            static const vp_stream to[]   = {VP_STREAM_TO_HOST, VP_STREAM_COMPUTE,
                                             VP_STREAM_TO_DEVICE, VP_STREAM_COMPUTE};

            if (hop == 0)
                add(l, (item){ADD, VP_STREAM_COMPUTE, 0, 1, 2 + time, 0});
            if (hop == 1)
                add(l, (item){COPY, VP_STREAM_TO_HOST, 0, 0, 0, 0});
            if (hop == 2)
                add(l, (item){ADD, VP_STREAM_COMPUTE, 0, 4, 4, 0});
            if (hop == 3)
                add(l, (item){COPY, VP_STREAM_TO_DEVICE, 0, 0, 0, 0});
            add(l, (item){.kind = MARK, .stream = from[hop], .event = hop});
            waits[n++] = l->n;
            add(l, (item){.kind = AFTER, .stream = to[hop], .event = hop});
        }
        add(l, (item){ADD, VP_STREAM_COMPUTE, 1, 0, 5, 0});
    }
}

/* In how many of n_trials the result is another one. */
static int count_wrong(const list *l, int left_out, bool recorded, int n_trials)
{
    static state before, wanted, got;
    int          n_wrong = 0;

    draw_state = 88172645463325252u;
    set_random(&before);
    wanted = before;
    simulate(l, &wanted);
    for (int trial = 1; trial <= n_trials; trial++) {
        set_seed((uint64_t)trial);
        put(&before);
        run(l, left_out, recorded, 1);
        get(&got);
        n_wrong += memcmp(&wanted, &got, sizeof wanted) != 0;
    }
    set_seed(0);
    return n_wrong;
}

static void a_wait_that_is_left_out_shows(void **unused)
{
    static list l;
    int         waits[4];

    (void)unused;
    if (!is_reordered())
        skip();
    draw_round_trips(&l, waits);
    for (int way = 0; way < n_ways(); way++) {
        assert_int_equal(count_wrong(&l, -1, way == 1, 40), 0);
        /* on the CPU a kernel is done when run() returns: nobody need wait for it */
        for (int w = is_cpu() ? 1 : 0; w < 4; w += is_cpu() ? 2 : 1)
            if (count_wrong(&l, waits[w], way == 1, 40) == 0)
                fail_msg("wait %d of a round trip, left out, %s: the right bits 40 times", w,
                         way ? "recorded" : "eager");
    }
}

/* A wait is for what the event was when it was given, not for what it becomes. */
static void marking_an_event_again_changes_no_wait(void **unused)
{
    static list l;

    (void)unused;
    l.n = 0;
    add(&l, (item){ADD, VP_STREAM_COMPUTE, 0, 1, 2, 0});
    add(&l, (item){.kind = MARK, .stream = VP_STREAM_COMPUTE, .event = 0});
    add(&l, (item){.kind = AFTER, .stream = VP_STREAM_TO_HOST, .event = 0});
    add(&l, (item){COPY, VP_STREAM_TO_HOST, 0, 0, 0, 0});
    add(&l, (item){.kind = MARK, .stream = VP_STREAM_TO_HOST, .event = 0});
    add(&l, (item){.kind = AFTER, .stream = VP_STREAM_TO_DEVICE, .event = 0});
    add(&l, (item){.kind = MARK, .stream = VP_STREAM_COMPUTE, .event = 0});
    add(&l, (item){COPY, VP_STREAM_TO_DEVICE, 3, 0, 0, 0});
    add(&l, (item){.kind = MARK, .stream = VP_STREAM_TO_DEVICE, .event = 0});
    add(&l, (item){.kind = AFTER, .stream = VP_STREAM_COMPUTE, .event = 0});
    add(&l, (item){ADD, VP_STREAM_COMPUTE, 4, 3, 3, 0});
    for (int way = 0; way < n_ways(); way++) {
        assert_int_equal(count_wrong(&l, -1, way == 1, 40), 0);
        if (is_reordered())
            assert_int_not_equal(count_wrong(&l, 5, way == 1, 40), 0);
    }
}

static void an_event_that_was_never_marked_has_come(void **unused)
{
    vp_err err = {0};

    (void)unused;
    for (int s = 0; s < VP_N_STREAMS; s++)
        CHECK_OK(test_backend()->after((vp_stream)s, VP_BACKEND_EVENTS - 1, &err));
    CHECK_OK(test_backend()->wait(&err));
}

/* An event marked outside of a recording has come inside of it, and the other way round; what is
 * given around a replay comes before it and behind it, also on the copy streams. */
static void a_recording_begins_and_ends_with_all_streams_joined(void **unused)
{
    static list       inside, first, last;
    static state      before, wanted, got;
    const vp_backend *b     = test_backend();
    vp_backend_graph *graph = NULL;
    vp_err            err   = {0};

    (void)unused;
    if (!b->record_begin)
        skip();
    add(&first, (item){COPY, VP_STREAM_TO_HOST, 1, 1, 0, 0});
    add(&first, (item){COPY, VP_STREAM_TO_DEVICE, 2, 2, 0, 0});
    add(&first, (item){.kind = MARK, .stream = VP_STREAM_TO_DEVICE, .event = 3});
    add(&inside, (item){.kind = AFTER, .stream = VP_STREAM_COMPUTE, .event = 3});
    add(&inside, (item){.kind = AFTER, .stream = VP_STREAM_TO_HOST, .event = 3});
    add(&inside, (item){ADD, VP_STREAM_COMPUTE, 1, 2, 2, 0});
    add(&inside, (item){COPY, VP_STREAM_TO_HOST, 3, 2, 0, 0});
    add(&inside, (item){.kind = MARK, .stream = VP_STREAM_TO_HOST, .event = 4});
    add(&last, (item){.kind = AFTER, .stream = VP_STREAM_COMPUTE, .event = 4});
    add(&last, (item){COPY, VP_STREAM_TO_DEVICE, 4, 3, 0, 0});
    add(&last, (item){COPY, VP_STREAM_TO_HOST, 0, 1, 0, 0});
    CHECK_OK(b->wait(&err));
    give(&first, -1);
    CHECK_OK(b->record_begin(&err));
    give(&inside, -1);
    CHECK_OK(b->record_end(&graph, &err));
    draw_state = 88172645463325252u;
    for (int trial = 0; trial < 40; trial++) {
        set_random(&before);
        put(&before);
        wanted = before;
        give(&first, -1);
        CHECK_OK(b->replay(graph, &err));
        give(&last, -1);
        simulate(&first, &wanted);
        simulate(&inside, &wanted);
        simulate(&last, &wanted);
        get(&got);
        assert_memory_equal(&wanted, &got, sizeof wanted);
    }
    b->graph_free(graph);
}

/* upload(), download() and fill() come behind all streams. */
static void what_the_host_asks_for_comes_behind_the_copies(void **unused)
{
    static state before, got;
    vp_err       err = {0};

    (void)unused;
    draw_state = 88172645463325252u;
    set_random(&before);
    for (int seed = 0; seed < 12; seed++) {
        set_seed((uint64_t)seed);
        put(&before);
        give_one(&(item){COPY, VP_STREAM_TO_DEVICE, 0, 0, 0, 0});
        CHECK_OK(test_backend()->download(got.device[0], device, sizeof got.device[0], &err));
        assert_memory_equal(got.device[0], before.host[0], sizeof got.device[0]);
        give_one(&(item){COPY, VP_STREAM_TO_DEVICE, 0, 1, 0, 0});
        CHECK_OK(test_backend()->upload(device, before.device[3], sizeof got.device[0], &err));
        CHECK_OK(test_backend()->download(got.device[0], device, sizeof got.device[0], &err));
        assert_memory_equal(got.device[0], before.device[3], sizeof got.device[0]);
        give_one(&(item){COPY, VP_STREAM_TO_HOST, 2, 0, 0, 0});
        CHECK_OK(test_backend()->fill(device, 0, sizeof got.device[0], &err));
        CHECK_OK(test_backend()->wait(&err));
        assert_memory_equal(host + 2 * SLOT_BYTES, before.device[3], sizeof got.device[0]);
    }
    set_seed(0);
}

/* ---- for the shell tests: what is left where a call of the device fails ---- */

static vp_status try_list(const list *l, vp_err *err)
{
    vp_status st = VP_OK;

    for (int i = 0; i < l->n && st == VP_OK; i++)
        st = try_one(&l->items[i], err);
    return st;
}

/* Exit code 3 and the reason: something failed. All is given back either way. */
static int sequence(void)
{
    static list       l;
    int               waits[4];
    const vp_backend *b     = test_backend();
    vp_backend_graph *graph = NULL;
    vp_err            err   = {0};
    void             *p[2]  = {NULL, NULL};
    vp_status         st    = VP_OK, ended;

    draw_round_trips(&l, waits);
    VP_TRY(b->alloc((int64_t)N_DEVICE * SLOT_BYTES, &p[0], &err));
    VP_TRY(b->host_alloc((int64_t)N_HOST * SLOT_BYTES, &p[1], &err));
    device = p[0], host = p[1];
    if (b->record_begin) { /* before anything else: streams are made while it records */
        VP_TRY(b->record_begin(&err));
        st    = try_list(&l, &err);
        ended = b->record_end(&graph, &err);
        VP_TRY(st);
        VP_TRY(ended);
        VP_TRY(b->replay(graph, &err));
    }
    VP_TRY(try_list(&l, &err));
    VP_TRY(b->fill(device, 0, SLOT_BYTES, &err));
    VP_TRY(b->wait(&err));
out:
    if (graph)
        b->graph_free(graph);
    b->release(p[0], (int64_t)N_DEVICE * SLOT_BYTES);
    b->host_release(p[1]);
    if (st != VP_OK)
        fprintf(stderr, "%s\n", err.message);
    return st == VP_OK ? 0 : 3;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_that_was_never_marked_has_come),
        cmocka_unit_test(copies_beside_kernels_leave_what_a_sequence_leaves),
        cmocka_unit_test(a_thousand_copies_wait_for_each_other),
        cmocka_unit_test(a_wait_that_is_left_out_shows),
        cmocka_unit_test(marking_an_event_again_changes_no_wait),
        cmocka_unit_test(a_recording_begins_and_ends_with_all_streams_joined),
        cmocka_unit_test(what_the_host_asks_for_comes_behind_the_copies),
    };

    if (argc == 2 && strcmp(argv[1], "sequence") == 0)
        return sequence();
    return cmocka_run_group_tests(tests, open_memory, release_memory);
}
