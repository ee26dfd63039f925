#include "runtime/runtime_internal.h"

#include "base/checked.h"
#include "base/units.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static vp_status pageable_new(int64_t n_bytes, void **out, vp_err *err)
{
    char text[32];

    if (posix_memalign(out, VP_ALIGN_BYTES, (size_t)n_bytes) == 0)
        return VP_OK;
    *out = NULL;
    return VP_FAIL(err, VP_ERR_NOMEM, "the host gives no %s of memory",
                   vp_size_text(n_bytes, text, sizeof text));
}

vp_status vp_arena_block_new(const vp_backend *backend, vp_memory memory, int64_t n_bytes,
                             vp_arena_block *out, vp_err *err)
{
    void     *base;
    vp_status st = VP_OK;

    assert(n_bytes >= 0);
    assert(memory != VP_MEMORY_NVME || n_bytes == 0);
    *out = (vp_arena_block){0};
    if (n_bytes == 0)
        return VP_OK;
    if (memory == VP_MEMORY_HOST)
        VP_TRY(pageable_new(n_bytes, &base, err));
    else
        VP_TRY((memory == VP_MEMORY_DEVICE ? backend->alloc : backend->host_alloc)(n_bytes, &base,
                                                                                   err));
    assert((uintptr_t)base % VP_ALIGN_BYTES == 0); /* offsets are multiples of it */
    *out = (vp_arena_block){.base = base, .n_bytes = n_bytes};
out:
    return st;
}

void vp_arena_block_free(const vp_backend *backend, vp_memory memory, vp_arena_block *block)
{
    assert((block->base == NULL) == (block->n_bytes == 0));
    if (block->base && memory == VP_MEMORY_DEVICE)
        backend->release(block->base, block->n_bytes);
    else if (memory == VP_MEMORY_HOST)
        free(block->base);
    else if (block->base)
        backend->host_release(block->base);
    *block = (vp_arena_block){0};
}

int64_t vp_arena_block_resident(const vp_backend *backend, const vp_arena_block *memory)
{
    enum { PAGES_AT_A_TIME = 4096 };
    unsigned char present[PAGES_AT_A_TIME];
    int64_t       page = sysconf(_SC_PAGESIZE), mapped = vp_round_up(memory->n_bytes, page), n = 0;

    assert(page > 0 && (memory->base || memory->n_bytes == 0));
    if (!backend->host_memory)
        return memory->n_bytes;
    for (int64_t at = 0; at < mapped; at += PAGES_AT_A_TIME * page) {
        int64_t bytes = vp_min_i64(PAGES_AT_A_TIME * page, mapped - at);
        if (mincore(memory->base + at, (size_t)bytes, present) != 0)
            return -1;
        for (int64_t i = 0; i < bytes / page; i++)
            n += present[i] & 1;
    }
    assert(n * page <= mapped);
    return n * page;
}
