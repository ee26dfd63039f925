/* dryrun/stand_in/null_runtime_memory.c: libcudart 12 and 13, memory: allocation, pinned and unified
 * memory, copies. The accounting is null_memory.c's. */
#define _GNU_SOURCE
#include "dryrun/stand_in/null_internal.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define E VP_NULL_EXPORT

E int cudaMalloc(void **p, size_t n);
int   cudaMalloc(void **p, size_t n)
{
    uint64_t addr;
    int      rc = vp_null_mem_alloc(n, &addr);

    *p = (void *)(uintptr_t)addr;
    return rc == VP_NULL_OK ? rc : vp_null_failed(rc);
}

E int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
int   cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes  = vp_null_mem_free_bytes();
    *total_bytes = vp_null_device_get()->total_bytes;
    return VP_NULL_OK;
}

/* Unified memory: pages live on the host here, as they do on a card before they are touched
 * there. */
typedef struct managed {
    void  *base;
    size_t bytes;
} managed;

static pthread_mutex_t managed_lock = PTHREAD_MUTEX_INITIALIZER;
static managed         managed_list[1024];
static size_t          n_managed;

E int cudaMallocManaged(void **p, size_t n, unsigned flags);
int   cudaMallocManaged(void **p, size_t n, unsigned flags)
{
    void *base;

    (void)flags;
    if (n == 0)
        return vp_null_failed(VP_NULL_INVALID_VALUE);
    base =
        mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return vp_null_failed(VP_NULL_OUT_OF_MEMORY);
    pthread_mutex_lock(&managed_lock);
    if (n_managed < sizeof managed_list / sizeof *managed_list) /* a later one stays to the end */
        managed_list[n_managed++] = (managed){.base = base, .bytes = n};
    vp_null_count.managed_bytes += n;
    if (vp_null_count.managed_bytes > vp_null_count.managed_bytes_peak)
        vp_null_count.managed_bytes_peak = vp_null_count.managed_bytes;
    pthread_mutex_unlock(&managed_lock);
    *p = base;
    return VP_NULL_OK;
}

static bool managed_free(void *p)
{
    bool found = false;

    pthread_mutex_lock(&managed_lock);
    for (size_t i = 0; i < n_managed && !found; i++)
        if (managed_list[i].base == p) {
            munmap(p, managed_list[i].bytes);
            vp_null_count.managed_bytes -= managed_list[i].bytes;
            managed_list[i] = managed_list[--n_managed];
            found           = true;
        }
    pthread_mutex_unlock(&managed_lock);
    return found;
}

E int cudaFree(void *p);
int   cudaFree(void *p)
{
    if (p && !vp_null_is_device(p))
        return managed_free(p) ? VP_NULL_OK : vp_null_failed(VP_NULL_INVALID_VALUE);
    return vp_null_mem_free((uint64_t)(uintptr_t)p) == VP_NULL_OK
               ? VP_NULL_OK
               : vp_null_failed(VP_NULL_INVALID_VALUE);
}

VP_NULL_NOP(cudaMemPrefetchAsync)
VP_NULL_NOP(cudaMemAdvise)

E int cudaHostAlloc(void **p, size_t n, unsigned flags);
int   cudaHostAlloc(void **p, size_t n, unsigned flags)
{
    (void)flags;
    *p = vp_null_pinned_alloc(n);
    return *p ? VP_NULL_OK : vp_null_failed(VP_NULL_OUT_OF_MEMORY);
}

E int cudaMallocHost(void **p, size_t n);
int   cudaMallocHost(void **p, size_t n)
{
    return cudaHostAlloc(p, n, 0);
}

E int cudaFreeHost(void *p);
int   cudaFreeHost(void *p)
{
    return !p || vp_null_pinned_free(p) ? VP_NULL_OK : vp_null_failed(VP_NULL_INVALID_VALUE);
}

E int cudaHostRegister(void *p, size_t n, unsigned flags);
int   cudaHostRegister(void *p, size_t n, unsigned flags)
{
    (void)flags;
    vp_null_pinned_register(p, n);
    return VP_NULL_OK;
}

E int cudaHostUnregister(void *p);
int   cudaHostUnregister(void *p)
{
    return vp_null_pinned_unregister(p) ? VP_NULL_OK : vp_null_failed(VP_NULL_INVALID_VALUE);
}

E int cudaHostGetDevicePointer(void **device, void *host, unsigned flags);
int   cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
    (void)flags;
    *device = host;
    return VP_NULL_OK;
}

typedef struct pointer_attributes {
    int   type, device; /* type 0 unregistered, 1 host, 2 device */
    void *device_pointer, *host_pointer;
} pointer_attributes;

E int cudaPointerGetAttributes(pointer_attributes *a, const void *p);
int   cudaPointerGetAttributes(pointer_attributes *a, const void *p)
{
    memset(a, 0, sizeof *a);
    if (vp_null_is_device(p)) {
        a->type           = 2;
        a->device_pointer = (void *)(uintptr_t)p;
    } else if (vp_null_is_pinned(p)) {
        a->type           = 1;
        a->device_pointer = a->host_pointer = (void *)(uintptr_t)p;
    } else {
        a->device       = -1;
        a->host_pointer = (void *)(uintptr_t)p;
    }
    return VP_NULL_OK;
}

E int cudaMemcpy(void *d, const void *s, size_t n, int kind);
int   cudaMemcpy(void *d, const void *s, size_t n, int kind)
{
    (void)kind;
    vp_null_copy(d, s, n);
    return VP_NULL_OK;
}

E int cudaMemcpyAsync(void *d, const void *s, size_t n, int kind, void *stream);
int   cudaMemcpyAsync(void *d, const void *s, size_t n, int kind, void *stream)
{
    (void)kind;
    (void)stream;
    vp_null_copy(d, s, n);
    return VP_NULL_OK;
}

E int cudaMemcpy2DAsync(void *d, size_t d_pitch, const void *s, size_t s_pitch, size_t width,
                        size_t height, int kind, void *stream);
int   cudaMemcpy2DAsync(void *d, size_t d_pitch, const void *s, size_t s_pitch, size_t width,
                        size_t height, int kind, void *stream)
{
    (void)kind;
    (void)stream;
    for (size_t row = 0; row < height; row++)
        vp_null_copy((char *)d + row * d_pitch, (const char *)s + row * s_pitch, width);
    return VP_NULL_OK;
}

E int cudaMemcpy2D(void *d, size_t d_pitch, const void *s, size_t s_pitch, size_t width,
                   size_t height, int kind);
int   cudaMemcpy2D(void *d, size_t d_pitch, const void *s, size_t s_pitch, size_t width,
                   size_t height, int kind)
{
    return cudaMemcpy2DAsync(d, d_pitch, s, s_pitch, width, height, kind, NULL);
}

VP_NULL_WORK(cudaMemcpyPeer)
VP_NULL_WORK(cudaMemcpyPeerAsync)
VP_NULL_WORK(cudaMemcpyToSymbol)
VP_NULL_WORK(cudaMemcpyToSymbolAsync)

/* A memset of what is on the host (pinned, managed) has no reader that we would not serve
 * anyway. */
VP_NULL_WORK(cudaMemset)
VP_NULL_WORK(cudaMemsetAsync)
VP_NULL_WORK(cudaMemset2DAsync)

E int cudaGetSymbolAddress(void **p, const void *symbol);
int   cudaGetSymbolAddress(void **p, const void *symbol)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t        base;

    /* Module globals belong to the context: an address of the device range, nothing counted. */
    (void)symbol;
    pthread_mutex_lock(&lock);
    if (!base)
        vp_null_va_reserve((uint64_t)1 << 30, 0, &base);
    pthread_mutex_unlock(&lock);
    *p = (void *)(uintptr_t)base;
    return VP_NULL_OK;
}
