/* kernels/cpu/cpu_memory.c: the CPU backend's memory: ordinary pages of this process, which cost
 * nothing until they are touched. */
#include "kernels/cpu/cpu_internal.h"

#include "base/checked.h"
#include "base/host_memory.h"
#include "base/units.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static int64_t mapped_bytes(int64_t n_bytes)
{
    return vp_round_up(n_bytes, sysconf(_SC_PAGESIZE));
}

vp_status vp_cpu_alloc(int64_t n_bytes, void **out, vp_err *err)
{
    char      text[32];
    void     *p  = vp_overflowed(mapped_bytes(n_bytes))
                       ? MAP_FAILED
                       : mmap(NULL, (size_t)mapped_bytes(n_bytes), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    vp_status st = VP_OK;

    assert(n_bytes > 0);
    *out = NULL;
    if (p == MAP_FAILED)
        return VP_FAIL(err, VP_ERR_DEVICE, "memory of %s cannot be mapped: %s",
                       vp_size_text(n_bytes, text, sizeof text), strerror(errno));
    VP_TRY(vp_cpu_blas_room(err)); /* beside it */
    *out = p;
    p    = MAP_FAILED;
out:
    if (p != MAP_FAILED)
        munmap(p, (size_t)mapped_bytes(n_bytes));
    return st;
}

void vp_cpu_release(void *p, int64_t n_bytes)
{
    assert(!p || n_bytes > 0); /* as it was allocated */
    if (p)
        munmap(p, (size_t)mapped_bytes(n_bytes));
}

vp_status vp_cpu_memory(vp_backend_memory *out, vp_err *err)
{
    (void)err;
    *out = (vp_backend_memory){.total_bytes    = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE),
                               .free_bytes     = vp_host_memory_now().available_bytes,
                               .used_bytes     = -1,
                               .all_used_bytes = -1,
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
