/* kernels/null/null_runtime.c: libcudart 12 and 13 as far as PyTorch and its relatives call it.
 *
 * Structures are those of the CUDA toolkit headers (driver_types.h, 12.8 and 13.0), written out so that
 * no toolkit is needed to build. What is not here is a generated stub that ends the run by name. */
#define _GNU_SOURCE
#include "kernels/null/null_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define E VP_NULL_EXPORT

static __thread int last_error;

static int failed(int error)
{
    last_error = error;
    return error;
}

/* ---- device ------------------------------------------------------------------------------------ */

/* cudaDeviceProp; ONLY12(x) are the members that CUDA 13 removed. */
#define DEVICE_PROP(tag, ONLY12) \
    typedef struct device_prop_##tag { \
        char name[256], uuid[16], luid[8]; \
        unsigned luid_node_mask; \
        size_t total_bytes, smem_per_block; \
        int regs_per_block, warp_size; \
        size_t mem_pitch; \
        int max_threads_per_block, max_threads_dim[3], max_grid_size[3]; \
        ONLY12(int clock_rate;) \
        size_t total_const; \
        int major, minor; \
        size_t texture_alignment, texture_pitch_alignment; \
        ONLY12(int device_overlap;) \
        int sm_count; \
        ONLY12(int kernel_exec_timeout;) \
        int integrated, can_map_host; \
        ONLY12(int compute_mode;) \
        int texture_1d, texture_1d_mipmap; \
        ONLY12(int texture_1d_linear;) \
        int texture_2d[2], texture_2d_mipmap[2], texture_2d_linear[3], texture_2d_gather[2]; \
        int texture_3d[3], texture_3d_alt[3], texture_cubemap, texture_1d_layered[2]; \
        int texture_2d_layered[3], texture_cubemap_layered[2], surface_1d, surface_2d[2]; \
        int surface_3d[3], surface_1d_layered[2], surface_2d_layered[3], surface_cubemap; \
        int surface_cubemap_layered[2]; \
        size_t surface_alignment; \
        int concurrent_kernels, ecc, pci_bus, pci_device, pci_domain, tcc, async_engines, unified; \
        ONLY12(int memory_clock_rate;) \
        int bus_width, l2_bytes, persisting_l2_bytes, threads_per_sm, stream_priorities; \
        int global_l1, local_l1; \
        size_t smem_per_sm; \
        int regs_per_sm, managed, multi_gpu_board, multi_gpu_group, host_atomic; \
        ONLY12(int single_to_double;) \
        int pageable_access, concurrent_managed, compute_preemption, host_pointer_registered; \
        int cooperative_launch; \
        ONLY12(int cooperative_multi_device;) \
        size_t smem_optin; \
        int pageable_host_tables, direct_managed, blocks_per_sm, access_policy_window; \
        size_t reserved_smem; \
        int host_register, sparse_array, host_register_readonly, timeline_semaphore, memory_pools; \
        int gpudirect_rdma; \
        unsigned gpudirect_flush; \
        int gpudirect_ordering; \
        unsigned pool_handle_types; \
        int deferred_mapping, ipc_event, cluster_launch, unified_function_pointers; \
        int reserved[63]; \
    } device_prop_##tag;

#define KEEP(x) x
#define DROP(x)
DEVICE_PROP(v12, KEEP)
DEVICE_PROP(v13, DROP)

_Static_assert(sizeof(device_prop_v12) == 1032, "cudaDeviceProp of CUDA 12");
_Static_assert(sizeof(device_prop_v13) == 1008, "cudaDeviceProp of CUDA 13");

#define FILL_PROP(p, dev) \
    do { \
        memset((p), 0, sizeof *(p)); \
        snprintf((p)->name, sizeof (p)->name, "%s", (dev)->name); \
        memcpy((p)->uuid, "vplan-dry-run-0", 16); \
        (p)->total_bytes = (dev)->total_bytes; \
        (p)->smem_per_block = 49152; \
        (p)->regs_per_block = (p)->regs_per_sm = 65536; \
        (p)->warp_size = 32; \
        (p)->mem_pitch = 2147483647; \
        (p)->max_threads_per_block = 1024; \
        (p)->max_threads_dim[0] = (p)->max_threads_dim[1] = 1024; \
        (p)->max_threads_dim[2] = 64; \
        (p)->max_grid_size[0] = 2147483647; \
        (p)->max_grid_size[1] = (p)->max_grid_size[2] = 65535; \
        (p)->total_const = 65536; \
        (p)->major = (dev)->cc_major; \
        (p)->minor = (dev)->cc_minor; \
        (p)->texture_alignment = (p)->surface_alignment = 512; \
        (p)->texture_pitch_alignment = 32; \
        (p)->sm_count = (dev)->sm_count; \
        (p)->can_map_host = (p)->concurrent_kernels = (p)->unified = 1; \
        (p)->async_engines = 3; \
        (p)->pci_bus = 1; \
        (p)->l2_bytes = (dev)->l2_bytes; \
        (p)->threads_per_sm = (dev)->threads_per_sm; \
        (p)->stream_priorities = (p)->global_l1 = (p)->local_l1 = 1; \
        (p)->smem_per_sm = (size_t)(dev)->smem_per_sm_bytes; \
        (p)->managed = (p)->concurrent_managed = (p)->compute_preemption = 1; \
        (p)->host_pointer_registered = (p)->cooperative_launch = 1; \
        (p)->smem_optin = (size_t)(dev)->smem_optin_bytes; \
        (p)->blocks_per_sm = (dev)->blocks_per_sm; \
        (p)->reserved_smem = (dev)->cc_major >= 8 ? 1024 : 0; \
        (p)->host_register = (p)->memory_pools = 1; \
        (p)->cluster_launch = (dev)->cc_major >= 9; \
    } while (0)

/* In a CUDA 12 build the name with _v2 is what the header calls cudaGetDeviceProperties. */
E int cudaGetDeviceProperties_v2(device_prop_v12 *p, int d);
int cudaGetDeviceProperties_v2(device_prop_v12 *p, int d)
{
    if (d != 0)
        return failed(VP_NULL_INVALID_DEVICE);
    FILL_PROP(p, vp_null_device_get());
    return VP_NULL_OK;
}

E int cudaGetDeviceProperties(device_prop_v13 *p, int d);
int cudaGetDeviceProperties(device_prop_v13 *p, int d)
{
    if (d != 0)
        return failed(VP_NULL_INVALID_DEVICE);
    FILL_PROP(p, vp_null_device_get());
    return VP_NULL_OK;
}

/* cudaDeviceAttr and CUdevice_attribute share their numbers. -1: not answered here. */
int vp_null_attribute(int attribute);
int vp_null_attribute(int attribute)
{
    const vp_null_device *dev = vp_null_device_get();

    switch (attribute) {
    case 1: case 2: case 3: return 1024;             /* threads per block, block dim x, y */
    case 4:                 return 64;
    case 5:                 return 2147483647;       /* grid dim */
    case 6: case 7:         return 65535;
    case 8:                 return 49152;            /* shared memory per block */
    case 9:                 return 65536;
    case 10:                return 32;
    case 11:                return 2147483647;
    case 12: case 82:       return 65536;            /* registers */
    case 13:                return 1500000;          /* clock, kHz: no size depends on it */
    case 14:                return 512;
    case 15: case 19: case 31: case 41: case 78: case 79: case 80: return 1;
    case 16:                return dev->sm_count;
    case 17: case 18: case 20: case 32: case 35: case 50: return 0;
    case 33:                return 1;                /* PCI bus */
    case 34:                return 0;
    case 36:                return 1500000;
    case 37:                return 384;
    case 38:                return dev->l2_bytes;
    case 39:                return dev->threads_per_sm;
    case 40:                return 3;
    case 75:                return dev->cc_major;
    case 76:                return dev->cc_minor;
    case 81:                return dev->smem_per_sm_bytes;
    case 83: case 89: case 90: case 91: case 95: case 99: case 115: return 1;
    case 84: case 85: case 86: case 87: case 88: case 100: case 101: return 0;
    case 92: case 93: case 94: case 96: case 98: return 1;   /* 98: flush remote writes */
    case 97:                return dev->smem_optin_bytes;
    case 102:               return 1;                /* virtual memory management */
    case 103: case 104: case 105: case 112: case 113: case 114: case 116: case 117: case 118: return 0;
    case 106:               return dev->blocks_per_sm;
    case 107: case 108: case 109: case 110: return 0;
    case 111:               return dev->cc_major >= 8 ? 1024 : 0;
    case 119: case 121: case 124: case 125: case 128: case 132: case 133: return 0;
    case 120:               return dev->cc_major >= 9;
    case 123:               return dev->cc_major >= 9;
    case 126:               return dev->cc_major >= 9 ? 4 : 1;
    case 127:               return dev->cc_major >= 9;   /* tensor maps */
    default:                return -1;
    }
}

E int cudaDeviceGetAttribute(int *value, int attribute, int d);
int cudaDeviceGetAttribute(int *value, int attribute, int d)
{
    if (d != 0)
        return failed(VP_NULL_INVALID_DEVICE);
    *value = vp_null_attribute(attribute);
    if (*value < 0) {
        char text[64];

        snprintf(text, sizeof text, "attribute %d", attribute);
        vp_null_unsupported("libcudart", "cudaDeviceGetAttribute", text);
    }
    return VP_NULL_OK;
}

E int cudaGetDeviceCount(int *n);
int cudaGetDeviceCount(int *n)
{
    *n = 1;
    return VP_NULL_OK;
}

E int cudaGetDevice(int *d);
int cudaGetDevice(int *d)
{
    *d = 0;
    return VP_NULL_OK;
}

E int cudaSetDevice(int d);
int cudaSetDevice(int d)
{
    return d == 0 ? VP_NULL_OK : failed(VP_NULL_INVALID_DEVICE);
}

E int cudaInitDevice(int d, unsigned device_flags, unsigned flags);
int cudaInitDevice(int d, unsigned device_flags, unsigned flags)
{
    (void)device_flags;
    (void)flags;
    return d == 0 ? VP_NULL_OK : failed(VP_NULL_INVALID_DEVICE);
}

E int cudaDeviceCanAccessPeer(int *v, int a, int b);
int cudaDeviceCanAccessPeer(int *v, int a, int b)
{
    (void)a;
    (void)b;
    *v = 0;
    return VP_NULL_OK;
}

E int cudaDeviceEnablePeerAccess(int d, unsigned flags);
int cudaDeviceEnablePeerAccess(int d, unsigned flags)
{
    (void)d;
    (void)flags;
    return failed(VP_NULL_PEER_UNSUPPORTED);
}

E int cudaDeviceGetPCIBusId(char *text, int n, int d);
int cudaDeviceGetPCIBusId(char *text, int n, int d)
{
    if (d != 0)
        return failed(VP_NULL_INVALID_DEVICE);
    snprintf(text, (size_t)n, "0000:01:00.0");
    return VP_NULL_OK;
}

E int cudaDeviceGetByPCIBusId(int *d, const char *text);
int cudaDeviceGetByPCIBusId(int *d, const char *text)
{
    (void)text;
    *d = 0;
    return VP_NULL_OK;
}

E int cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return VP_NULL_OK;
}

E int cudaDriverGetVersion(int *v);
int cudaDriverGetVersion(int *v)
{
    *v = 13000;
    return VP_NULL_OK;
}

/* libcudart 12 and 13 are one object here; a build for 12 only asks whether this is new enough. */
E int cudaRuntimeGetVersion(int *v);
int cudaRuntimeGetVersion(int *v)
{
    const char *text = getenv("VPLAN_NULL_RUNTIME_VERSION");

    *v = text && *text ? atoi(text) : 13000;
    return VP_NULL_OK;
}

VP_NULL_NOP(cudaDeviceSynchronize)
VP_NULL_NOP(cudaDeviceReset)
VP_NULL_NOP(cudaDeviceSetLimit)
VP_NULL_NOP(cudaSetDeviceFlags)
VP_NULL_NOP(cudaDeviceSetCacheConfig)
VP_NULL_NOP(cudaProfilerStart)
VP_NULL_NOP(cudaProfilerStop)
VP_NULL_NOP(cudaCtxResetPersistingL2Cache)

E int cudaGetLastError(void);
int cudaGetLastError(void)
{
    int e = last_error;

    last_error = VP_NULL_OK;
    return e;
}

E int cudaPeekAtLastError(void);
int cudaPeekAtLastError(void)
{
    return last_error;
}

static const struct {
    int         code;
    const char *name, *text;
} errors[] = {
    { 0, "cudaSuccess", "no error" },
    { 1, "cudaErrorInvalidValue", "invalid argument" },
    { 2, "cudaErrorMemoryAllocation", "out of memory" },
    { 101, "cudaErrorInvalidDevice", "invalid device ordinal" },
    { 209, "cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device" },
    { 217, "cudaErrorPeerAccessUnsupported", "peer access is not supported between these two devices" },
    { 500, "cudaErrorSymbolNotFound", "named symbol not found" },
    { 600, "cudaErrorNotReady", "device not ready" },
    { 801, "cudaErrorNotSupported", "operation not supported" },
    { 900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing" },
    { 901, "cudaErrorStreamCaptureInvalidated",
      "operation failed due to a previous error during capture" },
};

E const char *cudaGetErrorString(int e);
const char *cudaGetErrorString(int e)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == e)
            return errors[i].text;
    return "unrecognized error code";
}

E const char *cudaGetErrorName(int e);
const char *cudaGetErrorName(int e)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == e)
            return errors[i].name;
    return "cudaErrorUnknown";
}

/* ---- memory ------------------------------------------------------------------------------------- */

E int cudaMalloc(void **p, size_t n);
int cudaMalloc(void **p, size_t n)
{
    uint64_t addr;
    int      rc = vp_null_mem_alloc(n, &addr);

    *p = (void *)(uintptr_t)addr;
    return rc == VP_NULL_OK ? rc : failed(rc);
}

E int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes  = vp_null_mem_free_bytes();
    *total_bytes = vp_null_device_get()->total_bytes;
    return VP_NULL_OK;
}

/* Unified memory: pages live on the host here, as they do on a card before they are touched there. */
typedef struct managed {
    void  *base;
    size_t bytes;
} managed;

static pthread_mutex_t managed_lock = PTHREAD_MUTEX_INITIALIZER;
static managed         managed_list[1024];
static size_t          n_managed;

E int cudaMallocManaged(void **p, size_t n, unsigned flags);
int cudaMallocManaged(void **p, size_t n, unsigned flags)
{
    void *base;

    (void)flags;
    if (n == 0)
        return failed(VP_NULL_INVALID_VALUE);
    base = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return failed(VP_NULL_OUT_OF_MEMORY);
    pthread_mutex_lock(&managed_lock);
    if (n_managed < sizeof managed_list / sizeof *managed_list)   /* a later one stays to the end */
        managed_list[n_managed++] = (managed){ .base = base, .bytes = n };
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
            found = true;
        }
    pthread_mutex_unlock(&managed_lock);
    return found;
}

E int cudaFree(void *p);
int cudaFree(void *p)
{
    if (p && !vp_null_is_device(p))
        return managed_free(p) ? VP_NULL_OK : failed(VP_NULL_INVALID_VALUE);
    return vp_null_mem_free((uint64_t)(uintptr_t)p) == VP_NULL_OK ? VP_NULL_OK
                                                                  : failed(VP_NULL_INVALID_VALUE);
}

VP_NULL_NOP(cudaMemPrefetchAsync)
VP_NULL_NOP(cudaMemAdvise)

E int cudaHostAlloc(void **p, size_t n, unsigned flags);
int cudaHostAlloc(void **p, size_t n, unsigned flags)
{
    (void)flags;
    *p = vp_null_pinned_alloc(n);
    return *p ? VP_NULL_OK : failed(VP_NULL_OUT_OF_MEMORY);
}

E int cudaMallocHost(void **p, size_t n);
int cudaMallocHost(void **p, size_t n)
{
    return cudaHostAlloc(p, n, 0);
}

E int cudaFreeHost(void *p);
int cudaFreeHost(void *p)
{
    return !p || vp_null_pinned_free(p) ? VP_NULL_OK : failed(VP_NULL_INVALID_VALUE);
}

E int cudaHostRegister(void *p, size_t n, unsigned flags);
int cudaHostRegister(void *p, size_t n, unsigned flags)
{
    (void)flags;
    vp_null_pinned_register(p, n);
    return VP_NULL_OK;
}

E int cudaHostUnregister(void *p);
int cudaHostUnregister(void *p)
{
    return vp_null_pinned_unregister(p) ? VP_NULL_OK : failed(VP_NULL_INVALID_VALUE);
}

E int cudaHostGetDevicePointer(void **device, void *host, unsigned flags);
int cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
    (void)flags;
    *device = host;
    return VP_NULL_OK;
}

typedef struct pointer_attributes {
    int   type, device;     /* type 0 unregistered, 1 host, 2 device */
    void *device_pointer, *host_pointer;
} pointer_attributes;

E int cudaPointerGetAttributes(pointer_attributes *a, const void *p);
int cudaPointerGetAttributes(pointer_attributes *a, const void *p)
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
int cudaMemcpy(void *d, const void *s, size_t n, int kind)
{
    (void)kind;
    vp_null_copy(d, s, n);
    return VP_NULL_OK;
}

E int cudaMemcpyAsync(void *d, const void *s, size_t n, int kind, void *stream);
int cudaMemcpyAsync(void *d, const void *s, size_t n, int kind, void *stream)
{
    (void)kind;
    (void)stream;
    vp_null_copy(d, s, n);
    return VP_NULL_OK;
}

E int cudaMemcpy2DAsync(void *d, size_t d_pitch, const void *s, size_t s_pitch, size_t width,
                        size_t height, int kind, void *stream);
int cudaMemcpy2DAsync(void *d, size_t d_pitch, const void *s, size_t s_pitch, size_t width,
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
int cudaMemcpy2D(void *d, size_t d_pitch, const void *s, size_t s_pitch, size_t width,
                 size_t height, int kind)
{
    return cudaMemcpy2DAsync(d, d_pitch, s, s_pitch, width, height, kind, NULL);
}

VP_NULL_WORK(cudaMemcpyPeer)
VP_NULL_WORK(cudaMemcpyPeerAsync)
VP_NULL_WORK(cudaMemcpyToSymbol)
VP_NULL_WORK(cudaMemcpyToSymbolAsync)

/* A memset of what is on the host (pinned, managed) has no reader that we would not serve anyway. */
VP_NULL_WORK(cudaMemset)
VP_NULL_WORK(cudaMemsetAsync)
VP_NULL_WORK(cudaMemset2DAsync)

E int cudaGetSymbolAddress(void **p, const void *symbol);
int cudaGetSymbolAddress(void **p, const void *symbol)
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

/* ---- streams, events, graphs -------------------------------------------------------------------- */

typedef struct stream {
    int                magic, priority;
    unsigned long long id, capture_id;
    unsigned           flags;
} stream;

typedef struct event {
    int                magic;
    unsigned long long capture_id;
    struct timespec    at;
} event;

enum { STREAM_MAGIC = 0x5354524d, EVENT_MAGIC = 0x45564e54, GRAPH_MAGIC = 0x47524150 };

static unsigned long long n_streams = 2, n_captures, active_captures;
static stream            *capture_origin;

static stream *stream_of(void *s)
{
    return (uintptr_t)s > 2 ? s : NULL;   /* 0 legacy, 1 cudaStreamLegacy, 2 cudaStreamPerThread */
}

static bool capturing(void *s)
{
    return stream_of(s) && stream_of(s)->capture_id && active_captures == stream_of(s)->capture_id;
}

E int cudaStreamCreateWithPriority(void **out, unsigned flags, int priority);
int cudaStreamCreateWithPriority(void **out, unsigned flags, int priority)
{
    stream *s = calloc(1, sizeof *s);

    if (!s)
        return failed(VP_NULL_OUT_OF_MEMORY);
    s->magic    = STREAM_MAGIC;
    s->flags    = flags;
    s->priority = priority;
    s->id       = __atomic_add_fetch(&n_streams, 1, __ATOMIC_RELAXED);
    *out = s;
    return VP_NULL_OK;
}

E int cudaStreamCreate(void **out);
int cudaStreamCreate(void **out)
{
    return cudaStreamCreateWithPriority(out, 0, 0);
}

E int cudaStreamCreateWithFlags(void **out, unsigned flags);
int cudaStreamCreateWithFlags(void **out, unsigned flags)
{
    return cudaStreamCreateWithPriority(out, flags, 0);
}

E int cudaStreamDestroy(void *s);
int cudaStreamDestroy(void *s)
{
    free(stream_of(s));
    return VP_NULL_OK;
}

E int cudaStreamGetPriority(void *s, int *priority);
int cudaStreamGetPriority(void *s, int *priority)
{
    *priority = stream_of(s) ? stream_of(s)->priority : 0;
    return VP_NULL_OK;
}

E int cudaStreamGetFlags(void *s, unsigned *flags);
int cudaStreamGetFlags(void *s, unsigned *flags)
{
    *flags = stream_of(s) ? stream_of(s)->flags : 0;
    return VP_NULL_OK;
}

E int cudaStreamGetId(void *s, unsigned long long *id);
int cudaStreamGetId(void *s, unsigned long long *id)
{
    *id = stream_of(s) ? stream_of(s)->id : (unsigned long long)(uintptr_t)s;
    return VP_NULL_OK;
}

E int cudaStreamGetDevice(void *s, int *d);
int cudaStreamGetDevice(void *s, int *d)
{
    (void)s;
    *d = 0;
    return VP_NULL_OK;
}

E int cudaStreamQuery(void *s);
int cudaStreamQuery(void *s)
{
    return capturing(s) ? failed(VP_NULL_CAPTURE_UNSUPPORTED) : VP_NULL_OK;
}

E int cudaStreamSynchronize(void *s);
int cudaStreamSynchronize(void *s)
{
    return capturing(s) ? failed(VP_NULL_CAPTURE_UNSUPPORTED) : VP_NULL_OK;
}

E int cudaStreamWaitEvent(void *s, void *e, unsigned flags);
int cudaStreamWaitEvent(void *s, void *e, unsigned flags)
{
    event *ev = e;

    (void)flags;
    if (ev && ev->capture_id && ev->capture_id == active_captures && stream_of(s))
        stream_of(s)->capture_id = ev->capture_id;   /* the waiting stream joins the capture */
    return VP_NULL_OK;
}

E int cudaStreamBeginCapture(void *s, int mode);
int cudaStreamBeginCapture(void *s, int mode)
{
    (void)mode;
    if (!stream_of(s) || active_captures)
        return failed(VP_NULL_CAPTURE_UNSUPPORTED);
    capture_origin            = s;
    active_captures           = ++n_captures;
    stream_of(s)->capture_id  = active_captures;
    return VP_NULL_OK;
}

static int graph_object[2] = { GRAPH_MAGIC, 0 };   /* all graphs are alike: nothing is recorded */

E int cudaStreamEndCapture(void *s, void **graph);
int cudaStreamEndCapture(void *s, void **graph)
{
    if (!capturing(s) || capture_origin != s)
        return failed(VP_NULL_CAPTURE_UNSUPPORTED);
    active_captures = 0;
    capture_origin  = NULL;
    *graph = graph_object;
    return VP_NULL_OK;
}

E int cudaStreamIsCapturing(void *s, int *status);
int cudaStreamIsCapturing(void *s, int *status)
{
    *status = capturing(s) ? 1 : 0;
    return VP_NULL_OK;
}

static int capture_info(void *s, int *status, unsigned long long *id, void **graph,
                        const void ***nodes, size_t *n_nodes)
{
    static const void *node_list[1] = { graph_object };

    *status = capturing(s) ? 1 : 0;
    if (id)
        *id = capturing(s) ? stream_of(s)->capture_id : 0;
    if (graph)
        *graph = graph_object;
    if (nodes)
        *nodes = node_list;
    if (n_nodes)
        *n_nodes = capturing(s) ? 1 : 0;
    return VP_NULL_OK;
}

E int cudaStreamGetCaptureInfo_v2(void *s, int *status, unsigned long long *id, void **graph,
                                  const void ***nodes, size_t *n_nodes);
int cudaStreamGetCaptureInfo_v2(void *s, int *status, unsigned long long *id, void **graph,
                                const void ***nodes, size_t *n_nodes)
{
    return capture_info(s, status, id, graph, nodes, n_nodes);
}

E int cudaStreamGetCaptureInfo_v3(void *s, int *status, unsigned long long *id, void **graph,
                                  const void ***nodes, const void **edges, size_t *n_nodes);
int cudaStreamGetCaptureInfo_v3(void *s, int *status, unsigned long long *id, void **graph,
                                const void ***nodes, const void **edges, size_t *n_nodes)
{
    if (edges)
        *edges = NULL;
    return capture_info(s, status, id, graph, nodes, n_nodes);
}

E int cudaStreamGetCaptureInfo(void *s, int *status, unsigned long long *id, void **graph,
                               const void ***nodes, const void **edges, size_t *n_nodes);
int cudaStreamGetCaptureInfo(void *s, int *status, unsigned long long *id, void **graph,
                             const void ***nodes, const void **edges, size_t *n_nodes)
{
    return cudaStreamGetCaptureInfo_v3(s, status, id, graph, nodes, edges, n_nodes);
}

VP_NULL_NOP(cudaThreadExchangeStreamCaptureMode)
VP_NULL_NOP(cudaStreamUpdateCaptureDependencies)
VP_NULL_NOP(cudaStreamUpdateCaptureDependencies_v2)
VP_NULL_NOP(cudaGraphDestroy)
VP_NULL_NOP(cudaGraphExecDestroy)
VP_NULL_WORK(cudaGraphLaunch)
VP_NULL_NOP(cudaGraphUpload)
VP_NULL_NOP(cudaGraphDebugDotPrint)
VP_NULL_NOP(cudaDeviceGraphMemTrim)

E int cudaGraphInstantiate(void **exec, void *graph, unsigned long long flags);
int cudaGraphInstantiate(void **exec, void *graph, unsigned long long flags)
{
    (void)flags;
    *exec = graph;
    return VP_NULL_OK;
}

E int cudaGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags);
int cudaGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags)
{
    return cudaGraphInstantiate(exec, graph, flags);
}

/* PyTorch asks only whether a captured graph is empty. */
E int cudaGraphGetNodes(void *graph, void **nodes, size_t *n_nodes);
int cudaGraphGetNodes(void *graph, void **nodes, size_t *n_nodes)
{
    if (nodes)
        vp_null_unsupported("libcudart", "cudaGraphGetNodes", "nodes of a captured graph");
    (void)graph;
    *n_nodes = 1;
    return VP_NULL_OK;
}

E int cudaEventCreateWithFlags(void **out, unsigned flags);
int cudaEventCreateWithFlags(void **out, unsigned flags)
{
    event *e = calloc(1, sizeof *e);

    (void)flags;
    if (!e)
        return failed(VP_NULL_OUT_OF_MEMORY);
    e->magic = EVENT_MAGIC;
    *out = e;
    return VP_NULL_OK;
}

E int cudaEventCreate(void **out);
int cudaEventCreate(void **out)
{
    return cudaEventCreateWithFlags(out, 0);
}

E int cudaEventDestroy(void *e);
int cudaEventDestroy(void *e)
{
    free(e);
    return VP_NULL_OK;
}

E int cudaEventRecord(void *e, void *s);
int cudaEventRecord(void *e, void *s)
{
    event *ev = e;

    ev->capture_id = capturing(s) ? stream_of(s)->capture_id : 0;
    clock_gettime(CLOCK_MONOTONIC, &ev->at);
    return VP_NULL_OK;
}

E int cudaEventRecordWithFlags(void *e, void *s, unsigned flags);
int cudaEventRecordWithFlags(void *e, void *s, unsigned flags)
{
    (void)flags;
    return cudaEventRecord(e, s);
}

VP_NULL_NOP(cudaEventQuery)
VP_NULL_NOP(cudaEventSynchronize)

/* Host time between the two records, so that a rate computed from it is finite. */
E int cudaEventElapsedTime(float *ms, void *a, void *b);
int cudaEventElapsedTime(float *ms, void *a, void *b)
{
    event *x = a, *y = b;

    *ms = (float)((double)(y->at.tv_sec - x->at.tv_sec) * 1e3 +
                  (double)(y->at.tv_nsec - x->at.tv_nsec) * 1e-6);
    return VP_NULL_OK;
}

E int cudaEventElapsedTime_v2(float *ms, void *a, void *b);
int cudaEventElapsedTime_v2(float *ms, void *a, void *b)
{
    return cudaEventElapsedTime(ms, a, b);
}

E int cudaLaunchHostFunc(void *s, void (*f)(void *), void *data);
int cudaLaunchHostFunc(void *s, void (*f)(void *), void *data)
{
    if (!capturing(s))
        f(data);
    return VP_NULL_OK;
}

E int cudaStreamAddCallback(void *s, void (*f)(void *, int, void *), void *data, unsigned flags);
int cudaStreamAddCallback(void *s, void (*f)(void *, int, void *), void *data, unsigned flags)
{
    (void)flags;
    f(s, VP_NULL_OK, data);
    return VP_NULL_OK;
}

/* ---- modules, functions, launches ---------------------------------------------------------------- */

/* A fat binary: the wrapper that __cudaRegisterFatBinary gets, then a header and entries, each a cubin
 * (kind 2) or PTX (kind 1) for one architecture. Layout as cuobjdump shows it; fatbinary_section.h
 * has the wrapper. */
typedef struct fat_wrapper {
    int         magic, version;
    const void *data;
} fat_wrapper;

enum { WRAPPER_MAGIC = 0x466243b1, MAX_ARCHES = 24 };
#define FAT_MAGIC 0xBA55ED50u

typedef struct module {
    int n_cubin, n_ptx;
    int cubin[MAX_ARCHES], ptx[MAX_ARCHES];   /* 90 for sm_90 */
    int binary_version, ptx_version;          /* what this device would run; 0: nothing */
} module;

typedef struct function {
    const void *host;
    module     *owner;
} function;

static pthread_mutex_t module_lock = PTHREAD_MUTEX_INITIALIZER;
static function       *functions;
static size_t          n_functions, cap_functions;
static bool            functions_sorted;

static void module_read(module *m, const char *data)
{
    const vp_null_device *dev = vp_null_device_get();
    int                   cc  = dev->cc_major * 10 + dev->cc_minor;
    uint32_t              magic;
    uint16_t              header_bytes;
    uint64_t              fat_bytes, at;

    memcpy(&magic, data, 4);
    memcpy(&header_bytes, data + 6, 2);
    memcpy(&fat_bytes, data + 8, 8);
    if (magic != FAT_MAGIC)
        return;
    for (at = header_bytes; at + 64 <= header_bytes + fat_bytes;) {
        uint16_t kind;
        uint32_t entry_header, arch;
        uint64_t entry_bytes;

        memcpy(&kind, data + at, 2);
        memcpy(&entry_header, data + at + 4, 4);
        memcpy(&entry_bytes, data + at + 8, 8);
        memcpy(&arch, data + at + 28, 4);
        if (entry_header < 64 || (kind != 1 && kind != 2))
            break;
        if (kind == 2 && m->n_cubin < MAX_ARCHES)
            m->cubin[m->n_cubin++] = (int)arch;
        if (kind == 1 && m->n_ptx < MAX_ARCHES)
            m->ptx[m->n_ptx++] = (int)arch;
        at += entry_header + entry_bytes;
    }
    /* A cubin runs on its own major version at the same or a higher minor one; PTX is compiled for
     * anything newer (CUDA C Programming Guide, "Binary" and "PTX Compatibility"). */
    for (int i = 0; i < m->n_cubin; i++)
        if (m->cubin[i] / 10 == cc / 10 && m->cubin[i] <= cc && m->cubin[i] > m->binary_version)
            m->binary_version = m->ptx_version = m->cubin[i];
    if (!m->binary_version)
        for (int i = 0; i < m->n_ptx; i++)
            if (m->ptx[i] <= cc && m->ptx[i] > m->ptx_version) {
                m->ptx_version    = m->ptx[i];
                m->binary_version = cc;
            }
}

E void **__cudaRegisterFatBinary(void *wrapper);
void **__cudaRegisterFatBinary(void *wrapper)
{
    fat_wrapper *w = wrapper;
    module      *m = calloc(1, sizeof *m);

    if (m && w && w->magic == WRAPPER_MAGIC && w->data)
        module_read(m, w->data);
    return (void **)m;
}

E void __cudaRegisterFatBinaryEnd(void **m);
void __cudaRegisterFatBinaryEnd(void **m)
{
    (void)m;
}

E void __cudaUnregisterFatBinary(void **m);
void __cudaUnregisterFatBinary(void **m)
{
    (void)m;   /* functions still point to it; it goes with the process */
}

E char __cudaInitModule(void **m);
char __cudaInitModule(void **m)
{
    (void)m;
    return 1;
}

E void __cudaRegisterFunction(void **owner, const void *host, char *device_fun,
                              const char *device_name, int thread_limit, void *tid, void *bid,
                              void *b_dim, void *g_dim, int *w_size);
void __cudaRegisterFunction(void **owner, const void *host, char *device_fun,
                            const char *device_name, int thread_limit, void *tid, void *bid,
                            void *b_dim, void *g_dim, int *w_size)
{
    (void)device_fun, (void)device_name, (void)thread_limit, (void)tid, (void)bid, (void)b_dim;
    (void)g_dim, (void)w_size;
    pthread_mutex_lock(&module_lock);
    if (n_functions == cap_functions) {
        size_t    cap = cap_functions ? 2 * cap_functions : 4096;
        function *f   = realloc(functions, cap * sizeof *f);

        if (f) {
            functions     = f;
            cap_functions = cap;
        }
    }
    if (n_functions < cap_functions)
        functions[n_functions++] = (function){ .host = host, .owner = (module *)owner };
    functions_sorted = false;
    pthread_mutex_unlock(&module_lock);
}

E void __cudaRegisterVar(void);
void __cudaRegisterVar(void)
{
}

E void __cudaRegisterManagedVar(void);
void __cudaRegisterManagedVar(void)
{
}

static int function_order(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const function *)a)->host, y = (uintptr_t)((const function *)b)->host;

    return (x > y) - (x < y);
}

static const module *module_of(const void *host)
{
    function  key = { .host = host };
    function *found;

    pthread_mutex_lock(&module_lock);
    if (!functions_sorted) {
        qsort(functions, n_functions, sizeof *functions, function_order);
        functions_sorted = true;
    }
    found = n_functions
                ? bsearch(&key, functions, n_functions, sizeof *functions, function_order) : NULL;
    pthread_mutex_unlock(&module_lock);
    return found ? found->owner : NULL;
}

typedef struct func_attributes {
    size_t shared_bytes, const_bytes, local_bytes;
    int    max_threads, n_regs, ptx_version, binary_version, cache_mode, max_dynamic_shared, carveout;
    int    cluster[6];
} func_attributes;

/* Registers and static shared memory would have to be read out of the compressed cubin. A launch
 * bound that comes from them changes grids, never what PyTorch itself allocates, with the exception
 * of CUB's multi-block scratch, which is bounded by threads per multiprocessor. */
E int cudaFuncGetAttributes(func_attributes *a, const void *host);
int cudaFuncGetAttributes(func_attributes *a, const void *host)
{
    const vp_null_device *dev = vp_null_device_get();
    const module         *m   = module_of(host);

    memset(a, 0, sizeof *a);
    a->max_threads        = 1024;
    a->n_regs             = 32;
    a->max_dynamic_shared = 49152;
    a->ptx_version = a->binary_version = dev->cc_major * 10 + dev->cc_minor;
    if (m && (m->n_cubin || m->n_ptx)) {
        if (!m->binary_version) {
            vp_null_count.n_no_image++;
            return failed(VP_NULL_NO_KERNEL_IMAGE);
        }
        a->ptx_version    = m->ptx_version;
        a->binary_version = m->binary_version;
    }
    return VP_NULL_OK;
}

VP_NULL_NOP(cudaFuncSetAttribute)
VP_NULL_NOP(cudaFuncSetCacheConfig)

E int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int threads,
                                                             size_t smem, unsigned flags);
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int threads,
                                                           size_t smem, unsigned flags)
{
    const vp_null_device *dev = vp_null_device_get();

    (void)f;
    (void)flags;
    *n = threads > 0 ? dev->threads_per_sm / threads : 1;
    if (smem && (size_t)*n > (size_t)dev->smem_per_sm_bytes / smem)
        *n = (int)((size_t)dev->smem_per_sm_bytes / smem);
    if (*n > dev->blocks_per_sm)
        *n = dev->blocks_per_sm;
    if (*n < 1)
        *n = 1;
    return VP_NULL_OK;
}

E int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int threads, size_t smem);
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int threads, size_t smem)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(n, f, threads, smem, 0);
}

/* The compiler's <<<>>> pushes a configuration and calls the kernel's host stub only when that
 * returns 0: a 1 skips the launch before its arguments are packed. */
E unsigned __cudaPushCallConfiguration(void);
unsigned __cudaPushCallConfiguration(void)
{
    vp_null_work();
    return 1;
}

E int __cudaPopCallConfiguration(void);
int __cudaPopCallConfiguration(void)
{
    return failed(VP_NULL_INVALID_VALUE);
}

E int __cudaGetKernel(void **kernel, const void *host);
int __cudaGetKernel(void **kernel, const void *host)
{
    *kernel = (void *)(uintptr_t)host;
    return VP_NULL_OK;
}

VP_NULL_WORK(__cudaLaunchKernel)
VP_NULL_WORK(cudaLaunchKernel)
VP_NULL_WORK(cudaLaunchKernelExC)
VP_NULL_WORK(cudaLaunchCooperativeKernel)

/* ---- the driver through the runtime ---------------------------------------------------------------- */

E int cudaGetDriverEntryPoint(const char *name, void **f, unsigned long long flags, int *status);
int cudaGetDriverEntryPoint(const char *name, void **f, unsigned long long flags, int *status)
{
    (void)flags;
    *f = vp_null_driver_symbol(name);
    if (status)
        *status = *f ? 0 : 1;   /* cudaDriverEntryPointSuccess, ...SymbolNotFound */
    return VP_NULL_OK;
}

E int cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned version,
                                       unsigned long long flags, int *status);
int cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned version,
                                     unsigned long long flags, int *status)
{
    (void)version;
    return cudaGetDriverEntryPoint(name, f, flags, status);
}

/* ---- refused by name -------------------------------------------------------------------------------- */

#define REFUSE(name, why) \
    E int name(void); \
    int name(void) { vp_null_unsupported("libcudart", #name, why); }

REFUSE(cudaIpcGetMemHandle, "memory shared with another process")
REFUSE(cudaIpcOpenMemHandle, "memory shared with another process")
REFUSE(cudaIpcCloseMemHandle, "memory shared with another process")
REFUSE(cudaIpcGetEventHandle, "an event shared with another process")
REFUSE(cudaIpcOpenEventHandle, "an event shared with another process")
REFUSE(cudaMallocAsync, "the driver's own pool (backend:cudaMallocAsync), whose rounding is not public")
REFUSE(cudaFreeAsync, "the driver's own pool")
