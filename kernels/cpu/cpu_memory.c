/* kernels/cpu/cpu_memory.c: the CPU backend's memory: ordinary pages of this process, which cost
 * nothing until they are touched. */
#include "kernels/cpu/cpu_internal.h"

#include "base/checked.h"
#include "base/units.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static int64_t mapped_bytes(int64_t n_bytes)
{
    return vp_round_up(n_bytes, sysconf(_SC_PAGESIZE));
}

vp_status vp_cpu_alloc(int64_t n_bytes, void **out, vp_err *err)
{
    char  text[32];
    void *p = vp_overflowed(mapped_bytes(n_bytes))
                  ? MAP_FAILED
                  : mmap(NULL, (size_t)mapped_bytes(n_bytes), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    assert(n_bytes > 0);
    *out = NULL;
    if (p == MAP_FAILED)
        return VP_FAIL(err, VP_ERR_DEVICE, "memory of %s cannot be mapped: %s",
                       vp_size_text(n_bytes, text, sizeof text), strerror(errno));
    *out = p;
    return VP_OK;
}

void vp_cpu_release(void *p, int64_t n_bytes)
{
    assert(!p || n_bytes > 0); /* as it was allocated */
    if (p)
        munmap(p, (size_t)mapped_bytes(n_bytes));
}

/* What the kernel says that a new process could have; it counts files held in memory as free.
 * -1: not told. */
static int64_t available_bytes(void)
{
    FILE     *f = fopen("/proc/meminfo", "re");
    char      line[200];
    long long kib = -1;

    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lld kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib < 0 ? -1 : (int64_t)kib * 1024;
}

/* A container's limit, less what it has now (Linux, cgroup-v2.rst); INT64_MAX: none. */
static int64_t container_bytes(void)
{
    static const char *const files[]  = {"/sys/fs/cgroup/memory.max",
                                         "/sys/fs/cgroup/memory.current"};
    long long                bytes[2] = {-1, -1};

    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(files[i], "re");
        if (f && fscanf(f, "%lld", &bytes[i]) != 1)
            bytes[i] = -1; /* "max" */
        if (f)
            fclose(f);
    }
    return bytes[0] < 0 || bytes[1] < 0 ? INT64_MAX : bytes[0] > bytes[1] ? bytes[0] - bytes[1] : 0;
}

vp_status vp_cpu_memory(vp_backend_memory *out, vp_err *err)
{
    int64_t page = sysconf(_SC_PAGESIZE), available = available_bytes(), limit = container_bytes();

    (void)err;
    if (available < 0)
        available = sysconf(_SC_AVPHYS_PAGES) * page;
    *out = (vp_backend_memory){.total_bytes           = sysconf(_SC_PHYS_PAGES) * page,
                               .free_bytes            = available < limit ? available : limit,
                               .used_bytes            = -1,
                               .all_used_bytes        = -1,
                               .all_used_before_bytes = -1};
    return VP_OK;
}

/* Ordinary memory: a processor needs none that is page-locked. */
vp_status vp_cpu_host_alloc(int64_t n_bytes, void **out, vp_err *err)
{
    char text[32];
    int  e = posix_memalign(out, (size_t)sysconf(_SC_PAGESIZE), (size_t)n_bytes);

    assert(n_bytes > 0 && e != EINVAL); /* a page is a power of two */
    if (e == 0)
        return VP_OK;
    *out = NULL;
    return VP_FAIL(err, VP_ERR_DEVICE, "the host gives no %s of memory: %s",
                   vp_size_text(n_bytes, text, sizeof text), strerror(e));
}

void vp_cpu_host_release(void *p)
{
    free(p);
}
