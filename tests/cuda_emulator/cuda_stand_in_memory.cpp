/* tests/cuda_emulator/cuda_stand_in_memory.cpp: device memory, which is host memory between two pages that
 * may not be touched, and pinned memory. */
#include "tests/cuda_emulator/cuda_stand_in.h"

#include <assert.h>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

using namespace stand_in;

namespace
{

enum { DEVICE_ALIGN = 256, POISONED_BYTES = 256 << 20, DRIVER_PIECE = 2 << 20 };

size_t round_up(size_t n, size_t to)
{
    assert(to > 0);
    return (n + to - 1) / to * to;
}

int64_t device_bytes_free()
{
    return here().set.memory_bytes - device_bytes_taken() -
           (here().opened ? here().set.others_after : here().set.others_before);
}

/* The allocation that p lies in, its end included. */
const allocation *find_allocation(const void *p, char **base)
{
    auto it = allocations().upper_bound((char *)p);

    if (it == allocations().begin())
        return nullptr;
    --it;
    if ((char *)p > it->first + it->second.size)
        return nullptr;
    *base = it->first;
    return &it->second;
}

cudaError_t allocate(void **out, size_t size, bool on_host)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE),
           body = round_up(round_up(size, DEVICE_ALIGN), page);
    char *map   = (char *)mmap(nullptr, body + 2 * page, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
         *base;

    if (map == MAP_FAILED || mprotect(map, page, PROT_NONE) != 0 ||
        mprotect(map + page + body, page, PROT_NONE) != 0)
        return cudaErrorMemoryAllocation;
    base = map + page + body - round_up(size, DEVICE_ALIGN);
    if (body <= POISONED_BYTES) {
        memset(map + page, VP_EMULATOR_POISON, body);
    } else {
        memset(map + page, VP_EMULATOR_POISON, (size_t)(base - (map + page)));
        memset(base + size, VP_EMULATOR_POISON, (size_t)(map + page + body - (base + size)));
    }
    allocations()[base] = {map, body + 2 * page, size, on_host};
    if (here().set.protect && !on_host)
        mprotect(map + page, body, PROT_NONE);
    *out = base;
    return cudaSuccess;
}

} // namespace

namespace stand_in
{

std::map<char *, allocation> &allocations()
{
    static auto *all = new std::map<char *, allocation>();
    return *all;
}

/* The driver hands out memory in pieces; small allocations share them. Handles are known by
 * their kinds. */
int64_t device_bytes_taken()
{
    size_t  large = 0, small = 0;
    int64_t outside = (here().context ? here().set.context_bytes : 0) +
                      (int64_t)here().loaded.size() * here().set.module_bytes;

    for (const auto &a : here().alive)
        outside += a.second == "executable graph"                  ? here().set.graph_bytes
                   : a.second.find(" handle") != std::string::npos ? here().set.handle_bytes
                                                                   : 0;

    for (const auto &a : allocations())
        if (!a.second.on_host)
            *(a.second.size >= DRIVER_PIECE / 2 ? &large : &small) +=
                round_up(a.second.size, a.second.size >= DRIVER_PIECE / 2 ? DRIVER_PIECE : 512);
    return outside + (int64_t)(large + round_up(small, DRIVER_PIECE));
}

void check_margins(char *base, const allocation &a)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    assert(base >= a.map + page && base + a.size <= a.map + a.map_bytes - page);
    for (char *p = a.map + page; p < a.map + a.map_bytes - page; p++) {
        if (p == base)
            p += a.size;
        if (p < a.map + a.map_bytes - page && (unsigned char)*p != VP_EMULATOR_POISON) {
            vp_emulator_say("%s memory of %zu bytes was written at byte %td",
                            a.on_host ? "pinned host" : "device", a.size, p - base);
            return;
        }
    }
}

void open_memory(bool open)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (!here().set.protect)
        return;
    for (const auto &a : allocations())
        if (!a.second.on_host)
            mprotect(a.second.map + page, a.second.map_bytes - 2 * page,
                     open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void release(char *base)
{
    assert(allocations().count(base));
    allocation a = allocations()[base];

    open_memory(true);
    check_margins(base, a);
    open_memory(false);
    munmap(a.map, a.map_bytes);
    allocations().erase(base);
}

bool lies_in(const void *p, size_t n_bytes, bool device_only)
{
    char             *base;
    const allocation *a = find_allocation(p, &base);

    return a && (char *)p + n_bytes <= base + a->size && (!device_only || !a->on_host);
}

} // namespace stand_in

extern "C" {

bool vp_emulator_is_device(const void *p, size_t n_bytes)
{
    locked hold(here().lock);
    return lies_in(p, n_bytes, false);
}

cudaError_t cudaMalloc(void **p, size_t size)
{
    BEGIN("cudaMalloc", "%zu", size);
    SAFE_ONLY();
    *p = nullptr;
    if (size == 0)
        return cudaSuccess;
    here().context = here().opened = true;
    if ((int64_t)size < 0 ||
        (int64_t)round_up(size, size >= DRIVER_PIECE / 2 ? DRIVER_PIECE : 512) >
            device_bytes_free())
        return result(cudaErrorMemoryAllocation);
    return result(allocate(p, size, false));
}

cudaError_t cudaFree(void *p)
{
    BEGIN("cudaFree", "%s", p ? "memory" : "nothing");
    SAFE_ONLY();
    if (!p)
        return cudaSuccess;
    auto it = allocations().find((char *)p);
    if (it == allocations().end() || it->second.on_host)
        return result(cudaErrorInvalidValue);
    drain();
    release((char *)p);
    return result(here().sticky);
}

cudaError_t cudaHostAlloc(void **p, size_t size, unsigned int flags)
{
    BEGIN("cudaHostAlloc", "%zu, %u", size, flags);
    SAFE_ONLY();
    *p             = nullptr;
    here().context = here().opened = true;
    int64_t pinned                 = 0;
    for (const auto &a : allocations())
        pinned += a.second.on_host ? (int64_t)a.second.size : 0;
    if ((int64_t)size < 0 || (int64_t)size > here().set.pinned_bytes - pinned)
        return result(cudaErrorMemoryAllocation);
    return size == 0 ? cudaSuccess : result(allocate(p, size, true));
}

cudaError_t cudaMallocHost(void **p, size_t size)
{
    return cudaHostAlloc(p, size, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *p)
{
    BEGIN("cudaFreeHost", "%s", p ? "memory" : "nothing");
    SAFE_ONLY();
    if (!p)
        return cudaSuccess;
    auto it = allocations().find((char *)p);
    if (it == allocations().end() || !it->second.on_host)
        return result(cudaErrorInvalidValue);
    drain();
    release((char *)p);
    return result(here().sticky);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    BEGIN("cudaMemGetInfo", "%s", "");
    here().context = here().opened = true;
    *total                         = (size_t)here().set.memory_bytes;
    *free_bytes                    = (size_t)(device_bytes_free() > 0 ? device_bytes_free() : 0);
    return cudaSuccess;
}
}

void vp_emulator_describe_address(const void *p, char *text, size_t n_bytes)
{
    const char *at = (const char *)p, *base = nullptr;
    size_t      size = 0;
    ptrdiff_t   best = 0;

    for (const auto &a : allocations()) {
        const char *begin = a.first, *end = a.first + a.second.size;
        ptrdiff_t   distance = at < begin ? begin - at : at >= end ? at - end + 1 : 0;

        if (!base || distance < best)
            base = begin, size = a.second.size, best = distance;
    }
    if (!base || best > (1 << 20))
        snprintf(text, n_bytes, "no device memory is near");
    else
        snprintf(text, n_bytes, "byte %td of device memory of %zu bytes", at - base, size);
}
