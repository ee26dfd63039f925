/* dryrun/stand_in/null_program.c: while the probe records a step, the products, copies and waits that
 * reach us, in order. Launches are counted beside them. */
#define _GNU_SOURCE
#include "dryrun/stand_in/null_internal.h"

#include <pthread.h>
#include <sys/mman.h>

enum { MAX_ENTRIES = 1 << 20 };

static vp_null_entry  *entries;
static uint64_t        n_entries;
static bool            on;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

VP_NULL_EXPORT const vp_null_entry *vplan_null_record(int start);
VP_NULL_EXPORT uint64_t             vplan_null_recorded(void);

/* Start with 1, which forgets what was recorded before; end with 0. The entries, or NULL. */
const vp_null_entry *vplan_null_record(int start)
{
    pthread_mutex_lock(&lock);
    if (start && !entries) {
        entries = mmap(NULL, MAX_ENTRIES * sizeof *entries, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (entries == MAP_FAILED)
            entries = NULL;
    }
    if (start)
        n_entries = 0;
    on = start && entries;
    pthread_mutex_unlock(&lock);
    return entries;
}

uint64_t vplan_null_recorded(void)
{
    return __atomic_load_n(&n_entries, __ATOMIC_ACQUIRE);
}

void vp_null_note(const vp_null_entry *entry)
{
    if (entry->kind == VP_NULL_WAIT)
        vp_null_host_waited();
    if (!__atomic_load_n(&on, __ATOMIC_RELAXED))
        return;
    pthread_mutex_lock(&lock);
    if (on && n_entries < MAX_ENTRIES) {
        entries[n_entries] = *entry;
        __atomic_store_n(&n_entries, n_entries + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
}
