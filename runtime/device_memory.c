#include "runtime/runtime_internal.h"

#include "core/checked.h"

#include <sys/mman.h>
#include <unistd.h>

vp_status vp_memory_new(const vp_backend *backend, int64_t n_bytes, vp_memory *out, vp_err *err)
{
    void     *base;
    vp_status st = VP_OK;

    VP_TRY(backend->alloc(n_bytes, &base, err));
    *out = (vp_memory){.base = base, .n_bytes = n_bytes};
out:
    return st;
}

void vp_memory_free(const vp_backend *backend, vp_memory *memory)
{
    if (memory->base)
        backend->release(memory->base, memory->n_bytes);
    memory->base = NULL;
}

int64_t vp_memory_resident(const vp_backend *backend, const vp_memory *memory)
{
    enum { PAGES_AT_A_TIME = 4096 };
    unsigned char present[PAGES_AT_A_TIME];
    int64_t       page = sysconf(_SC_PAGESIZE), mapped = vp_round_up(memory->n_bytes, page), n = 0;

    if (!backend->host_memory)
        return memory->n_bytes;
    for (int64_t at = 0; at < mapped; at += PAGES_AT_A_TIME * page) {
        int64_t bytes = vp_min_i64(PAGES_AT_A_TIME * page, mapped - at);
        if (mincore(memory->base + at, (size_t)bytes, present) != 0)
            return -1;
        for (int64_t i = 0; i < bytes / page; i++)
            n += present[i] & 1;
    }
    return n * page;
}
