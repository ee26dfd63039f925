/* dryrun/stand_in/null_watchdog.c: which collectives PyTorch's watchdog finds done, and when.
 * An asynchronous collective's tensors are let go of where the program waits for its work, or, where it waits for the
 * future alone (DDP does), at the next collective after a thread of PyTorch's has found the work's end event done: it
 * looks ten times a second. By the clock of a host that computes nothing that is chance. Here the end event is done, to that thread, once the host has
 * waited for the device after it, as the card's own time goes at the latest; and the next collective is not begun
 * before the thread has found those that are. */
#define _GNU_SOURCE
#include "dryrun/stand_in/null_internal.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THREAD_NAME "pt_nccl_watchdg"

enum {
    POLL_US         = 200,
    LOOKED_MS       = 50,    /* after it found an event done, it has let go of the tensors */
    LOOKS_MS        = 1000,  /* it does not look at an event that it has not found by then */
    ALL_LOOKS_MS    = 30000, /* of a run: what programs that wait for each collective may take */
    HOST_AHEAD_MS   = 5000,  /* a program that never waits is not further ahead of its card */
    LOOKS_OF_A_WORK = 2      /* once to find it done, once more after its tensors are let go of */
};

static pthread_mutex_t lock   = PTHREAD_MUTEX_INITIALIZER;
static vp_null_end     listed = {.next = &listed, .prev = &listed}; /* oldest first */
static uint64_t        n_waits;
static const void     *begun_on; /* the stream of a collective whose end is not recorded yet */
static bool            is_begun;
static int64_t         spent_us;

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool is_watchdog(void)
{
    static __thread int known; /* 1 it is, 2 it is not */
    char                name[32] = "";

    if (!known)
        known = pthread_getname_np(pthread_self(), name, sizeof name) == 0 &&
                        strcmp(name, THREAD_NAME) == 0
                    ? 1
                    : 2;
    return known == 1;
}

/* Whether this process has such a thread at all. */
static bool watchdog_runs(void)
{
    DIR           *tasks = opendir("/proc/self/task");
    struct dirent *task;
    bool           found = false;

    while (tasks && !found && (task = readdir(tasks))) {
        char  path[320], name[32] = "";
        FILE *f;

        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        f = fopen(path, "re");
        if (!f)
            continue;
        found =
            fgets(name, sizeof name, f) && strncmp(name, THREAD_NAME, sizeof THREAD_NAME - 1) == 0;
        fclose(f);
    }
    if (tasks)
        closedir(tasks);
    return found;
}

static void unlist(vp_null_end *end)
{
    if (!end->next)
        return;
    end->prev->next = end->next;
    end->next->prev = end->prev;
    end->next = end->prev = NULL;
}

void vp_null_host_waited(void)
{
    if (!is_watchdog())
        __atomic_add_fetch(&n_waits, 1, __ATOMIC_RELAXED);
}

/* The program is over: whatever still has to be joined finds all works done. */
VP_NULL_EXPORT void vplan_null_over(void);
void                vplan_null_over(void)
{
    vp_null_host_waited();
}

void vp_null_end_recorded(vp_null_end *end, const void *stream, bool captured)
{
    pthread_mutex_lock(&lock);
    unlist(end);
    end->ends = is_begun && begun_on == stream && !captured;
    if (end->ends) {
        end->n_waits    = __atomic_load_n(&n_waits, __ATOMIC_RELAXED);
        end->at_ms      = now_ms();
        end->n_looks    = 0;
        end->next       = &listed;
        end->prev       = listed.prev;
        end->prev->next = end->next->prev = end;
    }
    if (begun_on == stream)
        is_begun = false;
    pthread_mutex_unlock(&lock);
}

void vp_null_end_dropped(vp_null_end *end)
{
    pthread_mutex_lock(&lock);
    unlist(end);
    pthread_mutex_unlock(&lock);
}

static bool is_over(const vp_null_end *end)
{
    return end->n_waits < __atomic_load_n(&n_waits, __ATOMIC_RELAXED) ||
           now_ms() > end->at_ms + HOST_AHEAD_MS;
}

bool vp_null_end_is_done(vp_null_end *end)
{
    bool done = true;

    if (!is_watchdog())
        return true;
    pthread_mutex_lock(&lock);
    if (end->ends)
        done = is_over(end);
    if (done && end->next) {
        end->found_ms = now_ms();
        if (++end->n_looks >= LOOKS_OF_A_WORK)
            unlist(end);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

/* Whether the oldest that is over has still to be looked at. */
static bool must_wait(int64_t since_ms)
{
    vp_null_end *end = listed.next;
    int64_t      now = now_ms();

    if (end == &listed || end->n_waits >= __atomic_load_n(&n_waits, __ATOMIC_RELAXED))
        return false;
    if (now > since_ms + LOOKS_MS || (end->n_looks && now > end->found_ms + LOOKED_MS))
        unlist(end);
    return true;
}

void vp_null_collective_begins(const void *stream)
{
    int64_t since = now_ms();
    bool    waits;

    pthread_mutex_lock(&lock);
    waits = must_wait(since) && spent_us < ALL_LOOKS_MS * 1000LL;
    pthread_mutex_unlock(&lock);
    if (waits)
        waits = watchdog_runs();
    while (waits) {
        usleep(POLL_US);
        pthread_mutex_lock(&lock);
        waits = must_wait(since);
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_lock(&lock);
    spent_us += (now_ms() - since) * 1000;
    begun_on = stream;
    is_begun = true;
    pthread_mutex_unlock(&lock);
}
