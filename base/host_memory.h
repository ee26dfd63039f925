/* base/host_memory.h: how much memory a new process could have here. */
#ifndef VP_BASE_HOST_MEMORY_H
#define VP_BASE_HOST_MEMORY_H

#include <stdint.h>

typedef struct vp_host_memory {
    int64_t     available_bytes;
    const char *source; /* where that stands, like "MemAvailable"; static */
} vp_host_memory;

/* MemAvailable of /proc/meminfo, which counts files held in memory as free; where there is no
 * /proc, what sysinfo(2) calls free, which does not; no more than a container's limit leaves
 * (Linux, cgroup-v2.rst: memory.max, memory.current). */
vp_host_memory vp_host_memory_now(void);

#endif
