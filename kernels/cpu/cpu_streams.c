/* kernels/cpu/cpu_streams.c: the CPU backend's streams and events.
 *
 * The compute stream is the thread that calls: a kernel is done when run() returns. So is the host's,
 * whose processors these are: its calls are made when they are given, and its waits waited for. Each of the
 * two copy streams is a thread of its own, which takes what it was given in order and sleeps when there
 * is nothing. Threads start with the first copy and end with the process.
 *
 * An event is a place in a stream: how much the stream had been given when the event was marked.
 * It has come when the stream has done as much. So a wait looks at what the event meant when
 * after() was called, and marking it again changes no wait that is already given.
 *
 * Under stress, a mode for tests, there are no threads: the calling thread moves the copies, each
 * at a time that a random number chooses among all that the events allow. Nothing else is random, so
 * the same calls with the same seed are the same run. A copy comes
 *     early    as soon as it may begin,
 *     late     when somebody waits for it, or
 *     between  in pieces, at calls in between,
 * and of one that does not come early the destination is spoilt as soon as the copy may begin, as
 * a real copy may by then have written any part of it. The host's calls come at such times, too. */
#include "kernels/cpu/cpu_internal.h"

#include "base/checked.h"
#include "base/units.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* Copies and waits that a stream can have before it: a call that finds no room waits for one. */
enum { ROOM = 4 * VP_MAX_COPIES };

typedef enum pace { EARLY, LATE, BETWEEN, N_PACES } pace;

/* A place in a stream, behind the first n_given that it was given. */
typedef struct place {
    vp_stream stream;
    int64_t   n_given;
} place;

/* A copy, a call of the host's, or, where neither is, a wait for another stream. */
typedef struct task {
    char       *to;
    const char *from;
    int64_t     n_bytes;
    void (*call)(void *ctx);
    void *ctx;
    place until;
    /* under stress */
    int64_t done_bytes;
    pace    pace;
    bool    begun;
} task;

typedef struct copy_stream {
    task      tasks[ROOM]; /* number i is at i % ROOM */
    int64_t   n_given, n_done;
    pthread_t thread;
    bool      runs;
    bool      calls; /* is making a call of the host's */
} copy_stream;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t  changed; /* a stream was given something, did something, or is to end */
    /* VP_STREAM_COMPUTE's stays as it is: nothing waits in it; so does VP_STREAM_HOST's without stress */
    copy_stream of[VP_N_STREAMS];
    place       events[VP_BACKEND_EVENTS]; /* n_given 0: has come */
    bool        ends;
    pid_t       process; /* whose threads they are */
    uint64_t    stress;  /* the random state; 0: threads */
} here = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static bool has_come(place p)
{
    assert(p.stream >= 0 && p.stream < VP_N_STREAMS && p.n_given <= here.of[p.stream].n_given);
    return here.of[p.stream].n_done >= p.n_given;
}

/* ---- threads ---- */

static void *work(void *stream)
{
    copy_stream *s = stream;

    pthread_mutex_lock(&here.lock);
    while (!here.ends) {
        task *t = &s->tasks[s->n_done % ROOM];

        assert(s->n_done <= s->n_given && s->n_given - s->n_done <= ROOM);
        if (here.stress || s->n_done == s->n_given || (!t->to && !has_come(t->until))) {
            pthread_cond_wait(&here.changed, &here.lock);
            continue;
        }
        if (t->to) { /* its place is not given away before it is done */
            pthread_mutex_unlock(&here.lock);
            memcpy(t->to, t->from, (size_t)t->n_bytes);
            pthread_mutex_lock(&here.lock);
        }
        s->n_done++;
        pthread_cond_broadcast(&here.changed);
    }
    pthread_mutex_unlock(&here.lock);
    return NULL;
}

static void end_threads(void)
{
    if (getpid() != here.process) /* a child that forked has none of them */
        return;
    pthread_mutex_lock(&here.lock);
    here.ends = true;
    pthread_cond_broadcast(&here.changed);
    pthread_mutex_unlock(&here.lock);
    for (int s = 0; s < VP_N_STREAMS; s++)
        if (here.of[s].runs)
            pthread_join(here.of[s].thread, NULL);
}

static vp_status start_thread(copy_stream *s, vp_err *err)
{
    static bool ends_with_the_process;
    int         e;

    assert(s != &here.of[VP_STREAM_COMPUTE]);
    if (s->runs)
        return VP_OK;
    if (!ends_with_the_process && atexit(end_threads) != 0)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    ends_with_the_process = true;
    here.process          = getpid();
    e                     = pthread_create(&s->thread, NULL, work, s);
    if (e != 0)
        return VP_FAIL(err, VP_ERR_DEVICE, "no thread for copies can be started: %s", strerror(e));
    s->runs = true;
    return VP_OK;
}

/* ---- stress ---- */

static int64_t draw(int64_t below)
{
    assert(here.stress != 0 && below > 0); /* xorshift never leaves 0 */
    here.stress ^= here.stress << 13;
    here.stress ^= here.stress >> 7;
    here.stress ^= here.stress << 17;
    return (int64_t)((here.stress >> 11) % (uint64_t)below);
}

static void spoil(task *t)
{
    assert(t->to && !t->begun && t->done_bytes == 0);
    t->begun = true;
    if (t->pace != EARLY)
        memset(t->to, 0xff, (size_t)t->n_bytes); /* a NaN wherever it is read as a number */
}

static void move(task *t, int64_t n_bytes)
{
    n_bytes = vp_min_i64(n_bytes, t->n_bytes - t->done_bytes);
    memcpy(t->to + t->done_bytes, t->from + t->done_bytes, (size_t)n_bytes);
    t->done_bytes += n_bytes;
    assert(n_bytes >= 0 && t->done_bytes <= t->n_bytes);
}

/* The lock is held, but while the call is made: it comes here as kernels do. */
static void make_call(copy_stream *s, const task *t)
{
    assert(!s->calls);
    s->calls = true;
    pthread_mutex_unlock(&here.lock);
    t->call(t->ctx);
    pthread_mutex_lock(&here.lock);
    s->calls = false;
}

/* The stream's first task, as far as its pace lets it. Whether it is done. */
static bool advance_first(copy_stream *s)
{
    task *t = &s->tasks[s->n_done % ROOM];

    if (t->call) {
        if (t->pace == LATE || (t->pace == BETWEEN && draw(2) == 0))
            return false;
        make_call(s, t);
        return true;
    }
    if (!t->to)
        return has_come(t->until);
    if (!t->begun)
        spoil(t);
    else if (t->pace == BETWEEN && draw(2) == 0)
        move(t, 1 + draw(t->n_bytes));
    if (t->pace == EARLY)
        move(t, t->n_bytes);
    return t->done_bytes == t->n_bytes;
}

/* At every call: all streams, in any order, until none can go on. */
static void advance(void)
{
    bool again = true;

    while (again) {
        static const vp_stream streams[] = {VP_STREAM_TO_HOST, VP_STREAM_TO_DEVICE, VP_STREAM_HOST};
        enum { N = sizeof streams / sizeof *streams };
        int first = (int)draw(N);

        again = false;
        for (int i = 0; i < N; i++) {
            copy_stream *s = &here.of[streams[(first + i) % N]];

            while (!s->calls && s->n_done < s->n_given && advance_first(s)) {
                s->n_done++;
                again = true;
            }
        }
    }
}

/* What somebody waits for is done, and what that waits for. */
static void hurry(place p)
{
    copy_stream *s = &here.of[p.stream];

    while (!has_come(p)) {
        task *t = &s->tasks[s->n_done % ROOM];

        if (t->call) {
            make_call(s, t);
            s->n_done++;
        } else if (!t->to) {
            hurry(t->until); /* given before this task was: this ends */
        } else {
            assert(t->begun); /* advance() comes after every change */
            move(t, t->n_bytes);
        }
        advance();
    }
}

void vp_cpu_streams_stress(uint64_t seed)
{
    vp_cpu_streams_wait();
    pthread_mutex_lock(&here.lock); /* threads there may be sleep under stress */
    here.stress = seed ? seed * 0x9e3779b97f4a7c15u | 1 : 0;
    pthread_mutex_unlock(&here.lock);
}

/* ---- what the backend has ---- */

/* The lock is held. */
static void reach(place p)
{
    if (here.stress)
        hurry(p);
    while (!has_come(p))
        pthread_cond_wait(&here.changed, &here.lock);
}

static vp_status give(vp_stream stream, const task *t, vp_err *err)
{
    copy_stream *s  = &here.of[stream];
    vp_status    st = VP_OK;

    pthread_mutex_lock(&here.lock);
    if (!here.stress)
        VP_TRY(start_thread(s, err));
    reach((place){stream, s->n_given - ROOM + 1});
    assert(s->n_given - s->n_done < ROOM); /* a place is free */
    assert(stream != VP_STREAM_COMPUTE &&
           (t->call || (t->to ? t->from && t->n_bytes > 0 : t->until.stream != stream)));
    s->tasks[s->n_given % ROOM] = *t;
    if (here.stress)
        s->tasks[s->n_given % ROOM].pace = (pace)draw(N_PACES);
    s->n_given++;
    if (here.stress)
        advance();
    pthread_cond_broadcast(&here.changed);
out:
    pthread_mutex_unlock(&here.lock);
    return st;
}

vp_status vp_cpu_copy_async(vp_stream stream, void *to, const void *from, int64_t n_bytes,
                            vp_err *err)
{
    assert(stream == VP_STREAM_TO_HOST || stream == VP_STREAM_TO_DEVICE);
    assert(n_bytes > 0);
    return give(stream, &(task){.to = to, .from = from, .n_bytes = n_bytes}, err);
}

vp_status vp_cpu_host_call(void (*f)(void *ctx), void *ctx, vp_err *err)
{
    if (here.stress)
        return give(VP_STREAM_HOST, &(task){.call = f, .ctx = ctx}, err);
    f(ctx);
    return VP_OK;
}

/* What the compute stream was given is done. */
vp_status vp_cpu_mark(vp_stream stream, int event, vp_err *err)
{
    (void)err;
    assert(stream >= 0 && stream < VP_N_STREAMS);
    assert(event >= 0 && event < VP_BACKEND_EVENTS);
    here.events[event] = (place){stream, here.of[stream].n_given};
    return VP_OK;
}

vp_status vp_cpu_after(vp_stream stream, int event, vp_err *err)
{
    place     until;
    vp_status st = VP_OK;

    assert(stream >= 0 && stream < VP_N_STREAMS);
    assert(event >= 0 && event < VP_BACKEND_EVENTS);
    until = here.events[event];
    if (until.n_given == 0 || until.stream == stream)
        return VP_OK;
    if (stream != VP_STREAM_COMPUTE && (stream != VP_STREAM_HOST || here.stress))
        return give(stream, &(task){.until = until}, err);
    pthread_mutex_lock(&here.lock);
    reach(until);
    pthread_mutex_unlock(&here.lock);
    return st;
}

void vp_cpu_streams_wait(void)
{
    pthread_mutex_lock(&here.lock);
    for (int s = 0; s < VP_N_STREAMS; s++)
        reach((place){(vp_stream)s, here.of[s].n_given});
    pthread_mutex_unlock(&here.lock);
}

void vp_cpu_streams_pass(void)
{
    if (!here.stress)
        return;
    pthread_mutex_lock(&here.lock);
    advance();
    pthread_mutex_unlock(&here.lock);
}
