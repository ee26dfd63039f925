/* runtime/replicas.c: an address in the first replica of the memories, in every other. */
#include "runtime/runtime_internal.h"

#include <assert.h>

unsigned char *vp_runtime_replica(const vp_runtime *rt, int r, const void *at)
{
    assert(r >= 0 && r < rt->n_arenas);
    for (int m = 0; m < VP_N_MEMORIES; m++) {
        const vp_arena_block *first = &rt->arena[0][m];
        uintptr_t             p = (uintptr_t)at, base = (uintptr_t)first->base;
        if (first->base && p >= base && p - base < (uintptr_t)first->n_bytes)
            return rt->arena[r][m].base + (p - base);
    }
    assert(!"an address that is in no memory of the plan");
    return NULL;
}

vp_status vp_runtime_put(vp_runtime *rt, void *at, const void *data, int64_t n_bytes, vp_err *err)
{
    vp_status st = VP_OK;

    assert(n_bytes > 0 && data);
    for (int r = 0; r < rt->n_arenas; r++)
        if (vp_runtime_replica(rt, r, at) != data)
            VP_TRY(rt->backend->upload(vp_runtime_replica(rt, r, at), data, n_bytes, err));
out:
    return st;
}
