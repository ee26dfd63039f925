/* dryrun/stand_in/null_used.c: how much of the card this process has, for NVML and, in a file that `nvidia-smi` reads
 * (nvidia_smi.c), for other processes: used.<pid> in $VPLAN_NULL_REPORT, one number that is kept up to date. */
#define _GNU_SOURCE
#include "dryrun/stand_in/null_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

uint64_t vp_null_process_bytes(void)
{
    return vp_null_device_get()->context_bytes + vp_null_count.device_bytes +
           vp_null_count.outside_bytes;
}

static uint64_t *share(pid_t pid)
{
    const char *folder = getenv("VPLAN_NULL_REPORT");
    char        path[4096];
    void       *at = MAP_FAILED;
    int         fd;

    if (!folder || snprintf(path, sizeof path, "%s/used.%d", folder, (int)pid) >= (int)sizeof path)
        return NULL;
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return NULL;
    if (ftruncate(fd, sizeof(uint64_t)) == 0)
        at = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

void vp_null_used_changed(void)
{
    static uint64_t *shared;
    static pid_t     owner; /* a fork has a file of its own */

    if (owner != getpid()) {
        owner  = getpid();
        shared = share(owner);
    }
    if (shared)
        __atomic_store_n(shared, vp_null_process_bytes(), __ATOMIC_RELAXED);
}
