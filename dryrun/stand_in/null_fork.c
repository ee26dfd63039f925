/* dryrun/stand_in/null_fork.c: what lets a process that has only imported packages be forked for each of several runs (probe/vplan_zygote.py).
 *
 * PyTorch takes the child of a process that touched CUDA for one that must not use it: a handler that it registers when it first
 * asks for a device, which some packages do as they are imported. A real driver does not survive a fork; the stand-in is memory
 * of this process, which a fork copies. So where VPLAN_NULL_FORKS is set, handlers of PyTorch that do something in children alone are kept
 * here, and registered in each run before its script begins: whatever the script forks finds them as ever. */
#define _GNU_SOURCE
#include "dryrun/stand_in/null_internal.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KEPT = 64 };

typedef int (*register_fn)(void (*)(void), void (*)(void), void (*)(void), void *);

VP_NULL_EXPORT int  __register_atfork(void (*prepare)(void), void (*parent)(void),
                                      void (*child)(void), void *library);
VP_NULL_EXPORT void vplan_null_run_begins(void);

static struct {
    void (*child)(void);
    void *library;
} kept[MAX_KEPT];
static int             n_kept;
static bool            is_a_run; /* no longer the process that runs are forked from */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Whether a function lies in one of PyTorch's own libraries. */
static bool is_of_torch(void (*function)(void))
{
    Dl_info     info;
    const char *name;

    if (!dladdr((void *)function, &info) || !info.dli_fname)
        return false;
    name = strrchr(info.dli_fname, '/');
    name = name ? name + 1 : info.dli_fname;
    return strncmp(name, "libtorch", 8) == 0 || strncmp(name, "libc10", 6) == 0;
}

/* What pthread_atfork() of any library calls (glibc keeps that one in each library). */
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                      void *library)
{
    register_fn plain;
    int         result = 0;

    pthread_mutex_lock(&lock);
    if (getenv("VPLAN_NULL_FORKS") && !is_a_run && child && !prepare && !parent &&
        n_kept < MAX_KEPT && is_of_torch(child)) {
        kept[n_kept].child     = child;
        kept[n_kept++].library = library;
    } else {
        *(void **)&plain = dlsym(RTLD_NEXT, "__register_atfork");
        result           = plain ? plain(prepare, parent, child, library) : 0;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Called by the probe in a process that was forked to be a run. */
void vplan_null_run_begins(void)
{
    is_a_run = true;
    for (int i = 0; i < n_kept; i++)
        __register_atfork(NULL, NULL, kept[i].child, kept[i].library);
    vplan_null_guard(); /* a thread: of the parent's there are none here */
}
