#include "base/beside.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>

static pthread_mutex_t lock    = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t  changed = PTHREAD_COND_INITIALIZER;
static vp_beside      *oldest, *latest; /* that nobody has begun */
static bool            has_thread;

/* Where the system does not say, as on a machine of more cores than are asked for here, there is more than one. */
static bool has_cores(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) > 1;
}

/* ---- under the lock ---- */

static void put(vp_beside *b)
{
    b->state                             = VP_BESIDE_OFFERED;
    b->older                             = latest;
    *(latest ? &latest->newer : &oldest) = b;
    latest                               = b;
}

static void take(vp_beside *b)
{
    assert(b->state == VP_BESIDE_OFFERED);
    *(b->older ? &b->older->newer : &oldest) = b->newer;
    *(b->newer ? &b->newer->older : &latest) = b->older;
}

/* The lock is not held meanwhile. */
static void do_it(vp_beside *b)
{
    take(b);
    b->state = VP_BESIDE_BEGUN;
    pthread_mutex_unlock(&lock);
    b->work(b->with);
    pthread_mutex_lock(&lock);
    b->state = VP_BESIDE_DONE;
    pthread_cond_broadcast(&changed);
}

static void *run(void *none)
{
    pthread_mutex_lock(&lock);
    while (oldest)
        do_it(oldest);
    has_thread = false;
    pthread_mutex_unlock(&lock);
    return none;
}

static bool start_thread(void)
{
    pthread_t thread;
    sigset_t  all, mask;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    has_thread = pthread_create(&thread, NULL, run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    if (has_thread)
        pthread_detach(thread);
    return has_thread;
}

/* ---- */

void vp_beside_offer(vp_beside *b, void (*work)(void *), void *with)
{
    *b = (vp_beside){.work = work, .with = with};
    if (!has_cores())
        return;
    pthread_mutex_lock(&lock);
    if (has_thread || start_thread()) {
        put(b);
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
}

bool vp_beside_take_back(vp_beside *b)
{
    pthread_mutex_lock(&lock);
    if (b->state == VP_BESIDE_OFFERED) {
        take(b);
        b->state = VP_BESIDE_OWN;
    }
    const bool is_own = b->state == VP_BESIDE_OWN;
    pthread_mutex_unlock(&lock);
    return is_own;
}

void vp_beside_finish(vp_beside *b)
{
    if (vp_beside_take_back(b)) {
        b->work(b->with);
        return;
    }
    pthread_mutex_lock(&lock);
    while (b->state != VP_BESIDE_DONE)
        if (latest)
            do_it(latest);
        else
            pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}
