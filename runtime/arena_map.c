#include "runtime/runtime_internal.h"

#include "core/checked.h"
#include "core/units.h"

#include <errno.h>
#include <string.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

vp_status vp_arena_map_new(int64_t n_bytes, vp_arena_map *out, vp_err *err)
{
    int64_t page = sysconf(_SC_PAGESIZE);
    char    text[32];

    out->n_bytes      = n_bytes;
    out->mapped_bytes = vp_round_up(n_bytes, page);
    void *p = vp_overflowed(out->mapped_bytes) ? MAP_FAILED
              : mmap(NULL, (size_t)out->mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return VP_FAIL(err, VP_ERR_DEVICE, "the arena of %s cannot be mapped: %s", vp_size_text(n_bytes, text, sizeof text), strerror(errno));
    out->base = p;
    return VP_OK;
}

void vp_arena_map_free(vp_arena_map *map)
{
    if (map->base)
        munmap(map->base, (size_t)map->mapped_bytes);
    map->base = NULL;
}

int64_t vp_arena_map_resident(const vp_arena_map *map)
{
    enum { PAGES_AT_A_TIME = 4096 };
    unsigned char present[PAGES_AT_A_TIME];
    int64_t       page = sysconf(_SC_PAGESIZE), n = 0;

    for (int64_t at = 0; at < map->mapped_bytes; at += PAGES_AT_A_TIME * page) {
        int64_t bytes = vp_min_i64(PAGES_AT_A_TIME * page, map->mapped_bytes - at);
        if (mincore(map->base + at, (size_t)bytes, present) != 0)
            return -1;
        for (int64_t i = 0; i < bytes / page; i++)
            n += present[i] & 1;
    }
    return n * page;
}
