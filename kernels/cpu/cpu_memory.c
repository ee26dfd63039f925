/* kernels/cpu/cpu_memory.c: the CPU backend's memory: ordinary pages of this process, which cost nothing until they are touched. */
#include "kernels/cpu/cpu_internal.h"

#include "core/checked.h"
#include "core/units.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

static int64_t mapped_bytes(int64_t n_bytes)
{
    return vp_round_up(n_bytes, sysconf(_SC_PAGESIZE));
}

vp_status vp_cpu_alloc(int64_t n_bytes, void **out, vp_err *err)
{
    char  text[32];
    void *p = vp_overflowed(mapped_bytes(n_bytes)) ? MAP_FAILED
              : mmap(NULL, (size_t)mapped_bytes(n_bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    *out = NULL;
    if (p == MAP_FAILED)
        return VP_FAIL(err, VP_ERR_DEVICE, "memory of %s cannot be mapped: %s", vp_size_text(n_bytes, text, sizeof text), strerror(errno));
    *out = p;
    return VP_OK;
}

void vp_cpu_release(void *p, int64_t n_bytes)
{
    if (p)
        munmap(p, (size_t)mapped_bytes(n_bytes));
}

vp_status vp_cpu_memory(vp_backend_memory *out, vp_err *err)
{
    int64_t page = sysconf(_SC_PAGESIZE);

    (void)err;
    *out = (vp_backend_memory){.total_bytes = sysconf(_SC_PHYS_PAGES) * page, .free_bytes = sysconf(_SC_AVPHYS_PAGES) * page, .used_bytes = -1};
    return VP_OK;
}

vp_status vp_cpu_copy_bytes(void *to, const void *from, int64_t n_bytes, vp_err *err)
{
    (void)err;
    memmove(to, from, (size_t)n_bytes);
    return VP_OK;
}

vp_status vp_cpu_fill(void *to, int byte, int64_t n_bytes, vp_err *err)
{
    (void)err;
    memset(to, byte, (size_t)n_bytes);
    return VP_OK;
}
