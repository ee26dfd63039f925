/* dryrun/stand_in/null_memory.c: device addresses with no memory behind them, and their accounting.
 *
 * One range of the address space is reserved without access, so that a host program that touches
 * device memory faults instead of computing with what is not there.
 *
 * Where an allocation lies matters: of equal blocks PyTorch takes the one with the lowest address,
 * so the order of addresses decides which segment is split. Here they are given as the driver's are
 * seen to be in public listings (2 MiB at 0x7f8295800000, then 20 MiB at ..94000000, 512 MiB at
 * ..74000000, 1 GiB at ..34000000): 32 MiB and more from the top of the range downward, each
 * directly below the earlier one, on a multiple of 32 MiB; less than that rising from the bottom.
 * What is freed is given again to the next that fits, as a loop of cudaMalloc and cudaFree sees. */
#define _GNU_SOURCE
#include "dryrun/stand_in/null_internal.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE_BYTES  ((uint64_t)2 << 20)  /* what a device page is on every card we report */
#define LARGE_BYTES ((uint64_t)32 << 20) /* from here on addresses fall, on multiples of this */

typedef struct range {
    uint64_t base, bytes;   /* bytes as handed out, a multiple of PAGE_BYTES or 512 */
    uint64_t counted_bytes; /* against the limit; 0 for a reservation               */
} range;

typedef struct phys {
    uint64_t bytes;
    int      refs, maps;
} phys;

typedef struct mapping {
    uint64_t addr, bytes, handle;
} mapping;

typedef struct pinned {
    void  *base;
    size_t bytes;
    bool   ours;
} pinned;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t        space_base, space_end;
static bool            falling; /* what is large lies at the top, as told above */
static range          *ranges;  /* sorted by base */
static size_t          n_ranges, cap_ranges;
static phys           *physes; /* handle is index + 1 */
static size_t          n_physes, cap_physes;
static mapping        *mappings;
static size_t          n_mappings, cap_mappings;
static pinned         *pins;
static size_t          n_pins, cap_pins;

static uint64_t round_up(uint64_t n, uint64_t unit)
{
    assert(unit > 0);
    return (n + unit - 1) / unit * unit;
}

static void *grown(void *array, size_t *cap, size_t n, size_t size)
{
    void *p = array;

    assert(n <= *cap);
    if (n < *cap)
        return array;
    *cap = *cap ? 2 * *cap : 64;
    p    = realloc(array, *cap * size);
    if (!p) {
        dprintf(2, "vplan dryrun: out of host memory\n");
        _exit(5);
    }
    return p;
}

static bool space_init(void)
{
    const char *order = getenv("VPLAN_NULL_ADDRESSES");
    uint64_t    bytes = (uint64_t)32 << 40;
    void       *p     = MAP_FAILED;

    if (space_base)
        return true;
    for (; bytes >= (uint64_t)1 << 40; bytes /= 2) {
        p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p != MAP_FAILED)
            break;
    }
    if (p == MAP_FAILED) {
        dprintf(2, "vplan dryrun: cannot reserve 1 TiB of address space (is it limited with "
                   "ulimit -v?)\n");
        _exit(5);
    }
    space_base = round_up((uint64_t)(uintptr_t)p, PAGE_BYTES);
    space_end  = (uint64_t)(uintptr_t)p + bytes;
    assert(space_end > space_base && space_end - space_base >= LARGE_BYTES);
    falling = !(order && strcmp(order, "rising") == 0);
    return true;
}

/* Index of the first range whose base is above addr. */
static size_t range_above(uint64_t addr)
{
    size_t lo = 0, hi = n_ranges;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;

        if (ranges[mid].base > addr)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* The lowest address with room for bytes; 0 where there is none. */
static uint64_t lowest_gap(uint64_t bytes, uint64_t align)
{
    uint64_t base = round_up(space_base + PAGE_BYTES, align);

    for (size_t i = 0; i < n_ranges; i++) {
        if (ranges[i].base >= base && ranges[i].base - base >= bytes)
            break;
        if (ranges[i].base + ranges[i].bytes > base)
            base = round_up(ranges[i].base + ranges[i].bytes, align);
    }
    return base <= space_end && bytes <= space_end - base ? base : 0;
}

/* The highest such address. */
static uint64_t highest_gap(uint64_t bytes, uint64_t align)
{
    uint64_t end = space_end;

    for (size_t i = n_ranges + 1; i-- > 0;) {
        uint64_t floor = i ? ranges[i - 1].base + ranges[i - 1].bytes : space_base + PAGE_BYTES;

        if (end >= bytes && (end - bytes) / align * align >= floor)
            return (end - bytes) / align * align;
        if (i)
            end = ranges[i - 1].base;
    }
    return 0;
}

static int range_add(uint64_t bytes, uint64_t align, uint64_t counted_bytes, uint64_t *addr)
{
    uint64_t base;
    size_t   at;

    if (falling && counted_bytes >= LARGE_BYTES)
        base = highest_gap(bytes, align > LARGE_BYTES ? align : LARGE_BYTES);
    else
        base = lowest_gap(bytes, align);
    if (!base)
        return VP_NULL_OUT_OF_MEMORY;
    ranges = grown(ranges, &cap_ranges, n_ranges, sizeof *ranges);
    at     = range_above(base);
    memmove(&ranges[at + 1], &ranges[at], (n_ranges - at) * sizeof *ranges);
    ranges[at] = (range){.base = base, .bytes = bytes, .counted_bytes = counted_bytes};
    n_ranges++;
    /* sorted, and none lies on its neighbours */
    assert(at == 0 || ranges[at - 1].base + ranges[at - 1].bytes <= base);
    assert(at + 1 == n_ranges || base + bytes <= ranges[at + 1].base);
    *addr = base;
    return VP_NULL_OK;
}

static bool take(uint64_t bytes)
{
    const vp_null_device *dev  = vp_null_device_get();
    uint64_t              used = vp_null_count.device_bytes + vp_null_count.outside_bytes;

    if (used > dev->limit_bytes || bytes > dev->limit_bytes - used) {
        vp_null_count.n_malloc_failed++;
        return false;
    }
    vp_null_count.n_malloc++;
    vp_null_count.device_bytes += bytes;
    assert(vp_null_count.device_bytes + vp_null_count.outside_bytes <= dev->limit_bytes);
    if (vp_null_count.device_bytes > vp_null_count.device_bytes_peak)
        vp_null_count.device_bytes_peak = vp_null_count.device_bytes;
    vp_null_used_changed();
    return true;
}

/* Hold this thread up for a moment, at another place in each of several runs (VPLAN_NULL_JITTER, the run's
 * number): of threads that allocate at once another one comes first, as it does between runs on a card. */
static void hold_up(void)
{
    static uint64_t n;
    const char     *run = getenv("VPLAN_NULL_JITTER");
    uint64_t        x;
    struct timespec pause = {0};

    if (!run)
        return;
    x = (__atomic_add_fetch(&n, 1, __ATOMIC_RELAXED) +
         strtoull(run, NULL, 10) * 0x9e3779b97f4a7c15u) *
        0xbf58476d1ce4e5b9u; /* splitmix64's constants, https://prng.di.unimi.it/splitmix64.c */
    pause.tv_nsec = (long)((x >> 32) % 4) * 500000;
    nanosleep(&pause, NULL);
}

int vp_null_mem_alloc(uint64_t bytes, uint64_t *addr)
{
    uint64_t rounded;
    int      rc = VP_NULL_OUT_OF_MEMORY;

    *addr = 0;
    if (bytes == 0)
        return VP_NULL_OK;
    hold_up();
    if (bytes > (uint64_t)1 << 46)
        return VP_NULL_OUT_OF_MEMORY;
    rounded = round_up(bytes, PAGE_BYTES);
    pthread_mutex_lock(&lock);
    space_init();
    if (take(rounded)) {
        rc = range_add(rounded, PAGE_BYTES, rounded, addr);
        if (rc != VP_NULL_OK) {
            vp_null_count.device_bytes -= rounded;
            vp_null_used_changed();
        }
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int vp_null_mem_free(uint64_t addr)
{
    size_t at;
    int    rc = VP_NULL_INVALID_VALUE;

    if (addr == 0)
        return VP_NULL_OK;
    pthread_mutex_lock(&lock);
    at = range_above(addr);
    if (at > 0 && ranges[at - 1].base == addr && ranges[at - 1].counted_bytes) {
        assert(vp_null_count.device_bytes >= ranges[at - 1].counted_bytes);
        vp_null_count.device_bytes -= ranges[at - 1].counted_bytes;
        vp_null_used_changed();
        memmove(&ranges[at - 1], &ranges[at], (n_ranges - at) * sizeof *ranges);
        n_ranges--;
        rc = VP_NULL_OK;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

bool vp_null_mem_range(uint64_t addr, uint64_t *base, uint64_t *bytes)
{
    size_t at;
    bool   found = false;

    pthread_mutex_lock(&lock);
    at = range_above(addr);
    if (at > 0 && addr - ranges[at - 1].base < ranges[at - 1].bytes) {
        *base  = ranges[at - 1].base;
        *bytes = ranges[at - 1].bytes;
        found  = true;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool vp_null_is_device(const void *p)
{
    uint64_t a = (uint64_t)(uintptr_t)p;

    return space_base && a >= space_base && a < space_end;
}

uint64_t vp_null_mem_free_bytes(void)
{
    const vp_null_device *dev = vp_null_device_get();
    uint64_t              used;

    pthread_mutex_lock(&lock);
    used = vp_null_count.device_bytes + vp_null_count.outside_bytes;
    pthread_mutex_unlock(&lock);
    return used < dev->limit_bytes ? dev->limit_bytes - used : 0;
}

int vp_null_outside_take(uint64_t bytes)
{
    const vp_null_device *dev = vp_null_device_get();
    int                   rc  = VP_NULL_OUT_OF_MEMORY;

    pthread_mutex_lock(&lock);
    if (vp_null_count.device_bytes + vp_null_count.outside_bytes + bytes <= dev->limit_bytes) {
        vp_null_count.outside_bytes += bytes;
        vp_null_used_changed();
        rc = VP_NULL_OK;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int vp_null_va_reserve(uint64_t bytes, uint64_t align, uint64_t *addr)
{
    int rc;

    if (bytes == 0 || bytes > (uint64_t)1 << 46)
        return VP_NULL_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    space_init();
    rc = range_add(round_up(bytes, PAGE_BYTES), align > PAGE_BYTES ? align : PAGE_BYTES, 0, addr);
    pthread_mutex_unlock(&lock);
    return rc;
}

int vp_null_va_release(uint64_t addr, uint64_t bytes)
{
    size_t at;
    int    rc = VP_NULL_INVALID_VALUE;

    pthread_mutex_lock(&lock);
    at = range_above(addr);
    if (at > 0 && ranges[at - 1].base == addr && ranges[at - 1].counted_bytes == 0 &&
        ranges[at - 1].bytes == round_up(bytes, PAGE_BYTES)) {
        memmove(&ranges[at - 1], &ranges[at], (n_ranges - at) * sizeof *ranges);
        n_ranges--;
        rc = VP_NULL_OK;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int vp_null_phys_create(uint64_t bytes, uint64_t *handle)
{
    size_t at;
    int    rc = VP_NULL_OUT_OF_MEMORY;

    if (bytes == 0 || bytes % PAGE_BYTES)
        return VP_NULL_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    if (take(bytes)) {
        for (at = 0; at < n_physes && physes[at].bytes; at++)
            ;
        if (at == n_physes) {
            physes = grown(physes, &cap_physes, n_physes, sizeof *physes);
            n_physes++;
        }
        physes[at] = (phys){.bytes = bytes, .refs = 1};
        *handle    = at + 1;
        rc         = VP_NULL_OK;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

/* With the lock held: the bytes return when neither a handle nor a mapping is left. */
static void phys_drop(uint64_t handle)
{
    phys *p = &physes[handle - 1];

    assert(handle >= 1 && handle <= n_physes && p->refs >= 0 && p->maps >= 0);
    assert(vp_null_count.device_bytes >= p->bytes);
    if (p->refs == 0 && p->maps == 0) {
        vp_null_count.device_bytes -= p->bytes;
        vp_null_used_changed();
        p->bytes = 0;
    }
}

static bool phys_known(uint64_t handle)
{
    return handle >= 1 && handle <= n_physes && physes[handle - 1].bytes;
}

int vp_null_phys_retain(uint64_t addr, uint64_t *handle)
{
    int rc = VP_NULL_INVALID_VALUE;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_mappings; i++)
        if (addr - mappings[i].addr < mappings[i].bytes) {
            *handle = mappings[i].handle;
            assert(phys_known(*handle)); /* what is mapped is there */
            physes[*handle - 1].refs++;
            rc = VP_NULL_OK;
            break;
        }
    pthread_mutex_unlock(&lock);
    return rc;
}

int vp_null_phys_release(uint64_t handle)
{
    int rc = VP_NULL_INVALID_VALUE;

    pthread_mutex_lock(&lock);
    if (phys_known(handle) && physes[handle - 1].refs > 0) {
        physes[handle - 1].refs--;
        phys_drop(handle);
        rc = VP_NULL_OK;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int vp_null_phys_map(uint64_t addr, uint64_t bytes, uint64_t handle)
{
    int rc = VP_NULL_INVALID_VALUE;

    pthread_mutex_lock(&lock);
    if (phys_known(handle)) {
        mappings               = grown(mappings, &cap_mappings, n_mappings, sizeof *mappings);
        mappings[n_mappings++] = (mapping){.addr = addr, .bytes = bytes, .handle = handle};
        physes[handle - 1].maps++;
        rc = VP_NULL_OK;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int vp_null_phys_unmap(uint64_t addr, uint64_t bytes)
{
    int rc = VP_NULL_INVALID_VALUE;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_mappings;) {
        if (mappings[i].addr >= addr && mappings[i].addr - addr < bytes) {
            uint64_t handle = mappings[i].handle;

            mappings[i] = mappings[--n_mappings];
            physes[handle - 1].maps--;
            phys_drop(handle);
            rc = VP_NULL_OK;
        } else {
            i++;
        }
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

extern void vplan_null_read(uint64_t n_bytes);

/* The last small copies to the device. A reader that gets them back with no kernel, memset or
 * collective in between (DDP's reducer sends bucket sizes around this way) gets the truth. */
enum { N_RECENT = 8, RECENT_MAX_BYTES = 65536 };

static struct {
    uint64_t addr, writes;
    size_t   bytes;
    char    *data;
} recent[N_RECENT];
static unsigned recent_next;
static uint64_t n_writes; /* of device data, by what we do not follow */

void vp_null_launched(void)
{
    __atomic_add_fetch(&vp_null_count.n_launch, 1, __ATOMIC_RELAXED);
}

void vp_null_work(void)
{
    vp_null_launched();
    __atomic_add_fetch(&n_writes, 1, __ATOMIC_RELAXED);
}

static void recent_keep(const void *dst, const void *src, size_t bytes)
{
    unsigned at;
    char    *data;

    if (bytes > RECENT_MAX_BYTES) {
        __atomic_add_fetch(&n_writes, 1, __ATOMIC_RELAXED); /* may cover what is kept */
        return;
    }
    pthread_mutex_lock(&lock);
    assert(bytes > 0);
    at   = recent_next++ % N_RECENT;
    data = realloc(recent[at].data, bytes);
    if (data) {
        memcpy(data, src, bytes);
        recent[at].data   = data;
        recent[at].addr   = (uint64_t)(uintptr_t)dst;
        recent[at].bytes  = bytes;
        recent[at].writes = __atomic_load_n(&n_writes, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&lock);
}

static bool recent_read(void *dst, const void *src, size_t bytes)
{
    uint64_t addr  = (uint64_t)(uintptr_t)src;
    bool     found = false;

    if (bytes > RECENT_MAX_BYTES)
        return false;
    pthread_mutex_lock(&lock);
    for (unsigned back = 1; back <= N_RECENT && back <= recent_next && !found; back++) {
        unsigned at = (recent_next - back) % N_RECENT;

        if (recent[at].writes == __atomic_load_n(&n_writes, __ATOMIC_RELAXED) &&
            addr >= recent[at].addr && addr - recent[at].addr <= recent[at].bytes &&
            bytes <= recent[at].bytes - (size_t)(addr - recent[at].addr)) {
            memcpy(dst, recent[at].data + (addr - recent[at].addr), bytes);
            found = true;
        } else if (addr < recent[at].addr + recent[at].bytes && recent[at].addr < addr + bytes) {
            break; /* partly overwritten since */
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void vp_null_copy(void *dst, const void *src, size_t bytes)
{
    if (bytes == 0)
        return;
    if (vp_null_is_device(dst)) {
        bool on_device = vp_null_is_device(src);

        vp_null_note(&(vp_null_entry){.kind = on_device ? VP_NULL_ON_DEVICE : VP_NULL_TO_DEVICE,
                                      .m    = (int64_t)bytes});
        if (on_device)
            vp_null_work();
        else
            recent_keep(dst, src, bytes);
    } else if (vp_null_is_device(src)) {
        vp_null_note(&(vp_null_entry){.kind = VP_NULL_FROM_DEVICE, .m = (int64_t)bytes});
        if (!vp_null_expected(dst, bytes) && !recent_read(dst, src, bytes)) {
            memset(dst, vp_null_device_get()->fill_byte, bytes);
            vplan_null_read(bytes);
        }
    } else {
        memmove(dst, src, bytes);
    }
}

void *vp_null_pinned_alloc(size_t bytes)
{
    void *p = NULL;

    if (posix_memalign(&p, 4096, bytes ? bytes : 1) != 0)
        return NULL;
    pthread_mutex_lock(&lock);
    pins           = grown(pins, &cap_pins, n_pins, sizeof *pins);
    pins[n_pins++] = (pinned){.base = p, .bytes = bytes, .ours = true};
    pthread_mutex_unlock(&lock);
    return p;
}

void vp_null_pinned_register(void *p, size_t bytes)
{
    pthread_mutex_lock(&lock);
    pins           = grown(pins, &cap_pins, n_pins, sizeof *pins);
    pins[n_pins++] = (pinned){.base = p, .bytes = bytes};
    pthread_mutex_unlock(&lock);
}

static bool pin_remove(void *p, bool ours)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_pins && !found; i++)
        if (pins[i].base == p && pins[i].ours == ours) {
            pins[i] = pins[--n_pins];
            found   = true;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

bool vp_null_pinned_free(void *p)
{
    bool found = pin_remove(p, true);

    if (found)
        free(p);
    return found;
}

bool vp_null_pinned_unregister(void *p)
{
    return pin_remove(p, false);
}

bool vp_null_is_pinned(const void *p)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_pins && !found; i++)
        found = (const char *)p >= (const char *)pins[i].base &&
                (size_t)((const char *)p - (const char *)pins[i].base) < pins[i].bytes;
    pthread_mutex_unlock(&lock);
    return found;
}
