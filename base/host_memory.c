#include "base/host_memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/sysinfo.h>

static bool read_meminfo(int64_t *bytes)
{
    FILE     *f = fopen("/proc/meminfo", "re");
    char      line[200];
    long long kib = -1;

    while (f && kib < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lld kB", &kib) != 1)
            kib = -1;
    if (f)
        fclose(f);
    *bytes = (int64_t)kib * 1024;
    return kib >= 0;
}

static int64_t read_number(const char *path)
{
    FILE     *f = fopen(path, "re");
    long long n = -1;

    if (f && fscanf(f, "%lld", &n) != 1)
        n = -1; /* "max" */
    if (f)
        fclose(f);
    return (int64_t)n;
}

vp_host_memory vp_host_memory_now(void)
{
    vp_host_memory m = {.source = "MemAvailable"};
    struct sysinfo info;
    int64_t        limit = read_number("/sys/fs/cgroup/memory.max"),
            used         = read_number("/sys/fs/cgroup/memory.current");

    if (!read_meminfo(&m.available_bytes))
        m = sysinfo(&info) == 0
                ? (vp_host_memory){(int64_t)(info.freeram + info.bufferram) * info.mem_unit,
                                   "free memory (sysinfo: there is no /proc/meminfo)"}
                : (vp_host_memory){0, "nothing: neither /proc/meminfo nor sysinfo can be read"};
    if (limit >= 0 && used >= 0 && limit - used < m.available_bytes)
        m = (vp_host_memory){limit > used ? limit - used : 0, "what the container's limit leaves"};
    return m;
}
