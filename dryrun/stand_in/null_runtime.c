/* dryrun/stand_in/null_runtime.c: libcudart 12 and 13, the card: its properties, errors by name, the
 * way to the driver, and what is refused. Memory, streams and kernels are files of their own.
 *
 * Structures are those of the CUDA toolkit headers (driver_types.h, 12.8 and 13.0), written out
 * so that no toolkit is needed to build. What is not here is a generated stub that ends the run
 * by name. */
#define _GNU_SOURCE
#include "dryrun/stand_in/null_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define E VP_NULL_EXPORT

/* cudaDeviceProp; ONLY12(x) are the members that CUDA 13 removed. */
#define DEVICE_PROP(tag, ONLY12) \
    typedef struct device_prop_##tag { \
        char     name[256], uuid[16], luid[8]; \
        unsigned luid_node_mask; \
        size_t   total_bytes, smem_per_block; \
        int      regs_per_block, warp_size; \
        size_t   mem_pitch; \
        int      max_threads_per_block, max_threads_dim[3], max_grid_size[3]; \
        ONLY12(int clock_rate;) \
        size_t total_const; \
        int    major, minor; \
        size_t texture_alignment, texture_pitch_alignment; \
        ONLY12(int device_overlap;) \
        int sm_count; \
        ONLY12(int kernel_exec_timeout;) \
        int integrated, can_map_host; \
        ONLY12(int compute_mode;) \
        int texture_1d, texture_1d_mipmap; \
        ONLY12(int texture_1d_linear;) \
        int    texture_2d[2], texture_2d_mipmap[2], texture_2d_linear[3], texture_2d_gather[2]; \
        int    texture_3d[3], texture_3d_alt[3], texture_cubemap, texture_1d_layered[2]; \
        int    texture_2d_layered[3], texture_cubemap_layered[2], surface_1d, surface_2d[2]; \
        int    surface_3d[3], surface_1d_layered[2], surface_2d_layered[3], surface_cubemap; \
        int    surface_cubemap_layered[2]; \
        size_t surface_alignment; \
        int concurrent_kernels, ecc, pci_bus, pci_device, pci_domain, tcc, async_engines, unified; \
        ONLY12(int memory_clock_rate;) \
        int    bus_width, l2_bytes, persisting_l2_bytes, threads_per_sm, stream_priorities; \
        int    global_l1, local_l1; \
        size_t smem_per_sm; \
        int    regs_per_sm, managed, multi_gpu_board, multi_gpu_group, host_atomic; \
        ONLY12(int single_to_double;) \
        int pageable_access, concurrent_managed, compute_preemption, host_pointer_registered; \
        int cooperative_launch; \
        ONLY12(int cooperative_multi_device;) \
        size_t smem_optin; \
        int    pageable_host_tables, direct_managed, blocks_per_sm, access_policy_window; \
        size_t reserved_smem; \
        int host_register, sparse_array, host_register_readonly, timeline_semaphore, memory_pools; \
        int gpudirect_rdma; \
        unsigned gpudirect_flush; \
        int      gpudirect_ordering; \
        unsigned pool_handle_types; \
        int      deferred_mapping, ipc_event, cluster_launch, unified_function_pointers; \
        int      reserved[63]; \
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
        snprintf((p)->name, sizeof(p)->name, "%s", (dev)->name); \
        memcpy((p)->uuid, "vplan-dry-run-0", 16); \
        (p)->total_bytes    = (dev)->total_bytes; \
        (p)->smem_per_block = 49152; \
        (p)->regs_per_block = (p)->regs_per_sm = 65536; \
        (p)->warp_size                         = 32; \
        (p)->mem_pitch                         = 2147483647; \
        (p)->max_threads_per_block             = 1024; \
        (p)->max_threads_dim[0] = (p)->max_threads_dim[1] = 1024; \
        (p)->max_threads_dim[2]                           = 64; \
        (p)->max_grid_size[0]                             = 2147483647; \
        (p)->max_grid_size[1] = (p)->max_grid_size[2] = 65535; \
        (p)->total_const                              = 65536; \
        (p)->major                                    = (dev)->cc_major; \
        (p)->minor                                    = (dev)->cc_minor; \
        (p)->texture_alignment = (p)->surface_alignment = 512; \
        (p)->texture_pitch_alignment                    = 32; \
        (p)->sm_count                                   = (dev)->sm_count; \
        (p)->can_map_host = (p)->concurrent_kernels = (p)->unified = 1; \
        (p)->async_engines                                         = 3; \
        (p)->pci_bus                                               = 1; \
        (p)->l2_bytes                                              = (dev)->l2_bytes; \
        (p)->threads_per_sm                                        = (dev)->threads_per_sm; \
        (p)->stream_priorities = (p)->global_l1 = (p)->local_l1 = 1; \
        (p)->smem_per_sm                                        = (size_t)(dev)->smem_per_sm_bytes; \
        (p)->managed = (p)->concurrent_managed = (p)->compute_preemption = 1; \
        (p)->host_pointer_registered = (p)->cooperative_launch = 1; \
        (p)->smem_optin                                        = (size_t)(dev)->smem_optin_bytes; \
        (p)->blocks_per_sm                                     = (dev)->blocks_per_sm; \
        (p)->reserved_smem                                     = (dev)->cc_major >= 8 ? 1024 : 0; \
        (p)->host_register = (p)->memory_pools = 1; \
        (p)->cluster_launch                    = (dev)->cc_major >= 9; \
    } while (0)

/* In a CUDA 12 build the name with _v2 is what the header calls cudaGetDeviceProperties. */
E int cudaGetDeviceProperties_v2(device_prop_v12 *p, int d);
int   cudaGetDeviceProperties_v2(device_prop_v12 *p, int d)
{
    if (d != 0)
        return vp_null_failed(VP_NULL_INVALID_DEVICE);
    FILL_PROP(p, vp_null_device_get());
    return VP_NULL_OK;
}

E int cudaGetDeviceProperties(device_prop_v13 *p, int d);
int   cudaGetDeviceProperties(device_prop_v13 *p, int d)
{
    if (d != 0)
        return vp_null_failed(VP_NULL_INVALID_DEVICE);
    FILL_PROP(p, vp_null_device_get());
    return VP_NULL_OK;
}

/* cudaDeviceAttr and CUdevice_attribute share their numbers. -1: not answered here. */
int vp_null_attribute(int attribute);
int vp_null_attribute(int attribute)
{
    const vp_null_device *dev = vp_null_device_get();

    switch (attribute) {
    case 1:
    case 2:
    case 3:
        return 1024; /* threads per block, block dim x, y */
    case 4:
        return 64;
    case 5:
        return 2147483647; /* grid dim */
    case 6:
    case 7:
        return 65535;
    case 8:
        return 49152; /* shared memory per block */
    case 9:
        return 65536;
    case 10:
        return 32;
    case 11:
        return 2147483647;
    case 12:
    case 82:
        return 65536; /* registers */
    case 13:
        return 1500000; /* clock, kHz: no size depends on it */
    case 14:
        return 512;
    case 15:
    case 19:
    case 31:
    case 41:
    case 78:
    case 79:
    case 80:
        return 1;
    case 16:
        return dev->sm_count;
    case 17:
    case 18:
    case 20:
    case 32:
    case 35:
    case 50:
        return 0;
    case 33:
        return 1; /* PCI bus */
    case 34:
        return 0;
    case 36:
        return 1500000;
    case 37:
        return 384;
    case 38:
        return dev->l2_bytes;
    case 39:
        return dev->threads_per_sm;
    case 40:
        return 3;
    case 75:
        return dev->cc_major;
    case 76:
        return dev->cc_minor;
    case 81:
        return dev->smem_per_sm_bytes;
    case 83:
    case 89:
    case 90:
    case 91:
    case 95:
    case 99:
    case 115:
        return 1;
    case 84:
    case 85:
    case 86:
    case 87:
    case 88:
    case 100:
    case 101:
        return 0;
    case 92:
    case 93:
    case 94:
    case 96:
    case 98:
        return 1; /* 98: flush remote writes */
    case 97:
        return dev->smem_optin_bytes;
    case 102:
        return 1; /* virtual memory management */
    case 103:
    case 104:
    case 105:
    case 112:
    case 113:
    case 114:
    case 116:
    case 117:
    case 118:
        return 0;
    case 106:
        return dev->blocks_per_sm;
    case 107:
    case 108:
    case 109:
    case 110:
        return 0;
    case 111:
        return dev->cc_major >= 8 ? 1024 : 0;
    case 119:
    case 121:
    case 124:
    case 125:
    case 128:
    case 132:
    case 133:
        return 0;
    case 120:
        return dev->cc_major >= 9;
    case 123:
        return dev->cc_major >= 9;
    case 126:
        return dev->cc_major >= 9 ? 4 : 1;
    case 127:
        return dev->cc_major >= 9; /* tensor maps */
    default:
        return -1;
    }
}

E int cudaDeviceGetAttribute(int *value, int attribute, int d);
int   cudaDeviceGetAttribute(int *value, int attribute, int d)
{
    if (d != 0)
        return vp_null_failed(VP_NULL_INVALID_DEVICE);
    *value = vp_null_attribute(attribute);
    if (*value < 0) {
        char text[64];

        snprintf(text, sizeof text, "attribute %d", attribute);
        vp_null_unsupported("libcudart", "cudaDeviceGetAttribute", text);
    }
    return VP_NULL_OK;
}

E int cudaGetDeviceCount(int *n);
int   cudaGetDeviceCount(int *n)
{
    *n = vp_null_n_devices();
    return *n ? VP_NULL_OK : vp_null_failed(VP_NULL_NO_DEVICE);
}

E int cudaGetDevice(int *d);
int   cudaGetDevice(int *d)
{
    *d = 0;
    return VP_NULL_OK;
}

E int cudaSetDevice(int d);
int   cudaSetDevice(int d)
{
    return d == 0 ? VP_NULL_OK : vp_null_failed(VP_NULL_INVALID_DEVICE);
}

E int cudaInitDevice(int d, unsigned device_flags, unsigned flags);
int   cudaInitDevice(int d, unsigned device_flags, unsigned flags)
{
    (void)device_flags;
    (void)flags;
    return d == 0 ? VP_NULL_OK : vp_null_failed(VP_NULL_INVALID_DEVICE);
}

E int cudaDeviceCanAccessPeer(int *v, int a, int b);
int   cudaDeviceCanAccessPeer(int *v, int a, int b)
{
    (void)a;
    (void)b;
    *v = 0;
    return VP_NULL_OK;
}

E int cudaDeviceEnablePeerAccess(int d, unsigned flags);
int   cudaDeviceEnablePeerAccess(int d, unsigned flags)
{
    (void)d;
    (void)flags;
    return vp_null_failed(VP_NULL_PEER_UNSUPPORTED);
}

E int cudaDeviceGetPCIBusId(char *text, int n, int d);
int   cudaDeviceGetPCIBusId(char *text, int n, int d)
{
    if (d != 0)
        return vp_null_failed(VP_NULL_INVALID_DEVICE);
    snprintf(text, (size_t)n, "0000:01:00.0");
    return VP_NULL_OK;
}

E int cudaDeviceGetByPCIBusId(int *d, const char *text);
int   cudaDeviceGetByPCIBusId(int *d, const char *text)
{
    (void)text;
    *d = 0;
    return VP_NULL_OK;
}

E int cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
int   cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return VP_NULL_OK;
}

E int cudaDriverGetVersion(int *v);
int   cudaDriverGetVersion(int *v)
{
    *v = 13000;
    return VP_NULL_OK;
}

/* libcudart 12 and 13 are one object here; a build for 12 only asks whether this is new enough. */
E int cudaRuntimeGetVersion(int *v);
int   cudaRuntimeGetVersion(int *v)
{
    const char *text = getenv("VPLAN_NULL_RUNTIME_VERSION");

    *v = text && *text ? atoi(text) : 13000;
    return VP_NULL_OK;
}

VP_NULL_SYNC(cudaDeviceSynchronize)
VP_NULL_NOP(cudaDeviceReset)
VP_NULL_NOP(cudaDeviceSetLimit)
VP_NULL_NOP(cudaSetDeviceFlags)
VP_NULL_NOP(cudaDeviceSetCacheConfig)
VP_NULL_NOP(cudaProfilerStart)
VP_NULL_NOP(cudaProfilerStop)
VP_NULL_NOP(cudaCtxResetPersistingL2Cache)

static __thread int last_error;

int vp_null_failed(int error)
{
    last_error = error;
    return error;
}

E int cudaGetLastError(void);
int   cudaGetLastError(void)
{
    int e = last_error;

    last_error = VP_NULL_OK;
    return e;
}

E int cudaPeekAtLastError(void);
int   cudaPeekAtLastError(void)
{
    return last_error;
}

static const struct {
    int         code;
    const char *name, *text;
} errors[] = {
    {0, "cudaSuccess", "no error"},
    {1, "cudaErrorInvalidValue", "invalid argument"},
    {2, "cudaErrorMemoryAllocation", "out of memory"},
    {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {209, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {217, "cudaErrorPeerAccessUnsupported",
     "peer access is not supported between these two devices"},
    {500, "cudaErrorSymbolNotFound", "named symbol not found"},
    {600, "cudaErrorNotReady", "device not ready"},
    {801, "cudaErrorNotSupported", "operation not supported"},
    {900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {901, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
};

E const char *cudaGetErrorString(int e);
const char   *cudaGetErrorString(int e)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == e)
            return errors[i].text;
    return "unrecognized error code";
}

E const char *cudaGetErrorName(int e);
const char   *cudaGetErrorName(int e)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == e)
            return errors[i].name;
    return "cudaErrorUnknown";
}

/* ---- the driver through the runtime
 * ---------------------------------------------------------------- */

E int cudaGetDriverEntryPoint(const char *name, void **f, unsigned long long flags, int *status);
int   cudaGetDriverEntryPoint(const char *name, void **f, unsigned long long flags, int *status)
{
    (void)flags;
    *f = vp_null_driver_symbol(name);
    if (status)
        *status = *f ? 0 : 1; /* cudaDriverEntryPointSuccess, ...SymbolNotFound */
    return VP_NULL_OK;
}

E int cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned version,
                                       unsigned long long flags, int *status);
int   cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned version,
                                       unsigned long long flags, int *status)
{
    (void)version;
    return cudaGetDriverEntryPoint(name, f, flags, status);
}

/* ---- refused by name
 * -------------------------------------------------------------------------------- */

#define REFUSE(name, why) \
    E int name(void); \
    int   name(void) \
    { \
        vp_null_unsupported("libcudart", #name, why); \
    }

REFUSE(cudaIpcGetMemHandle, "memory shared with another process")
REFUSE(cudaIpcOpenMemHandle, "memory shared with another process")
REFUSE(cudaIpcCloseMemHandle, "memory shared with another process")
REFUSE(cudaIpcGetEventHandle, "an event shared with another process")
REFUSE(cudaIpcOpenEventHandle, "an event shared with another process")
REFUSE(cudaMallocAsync,
       "the driver's own pool (backend:cudaMallocAsync), whose rounding is not public")
REFUSE(cudaFreeAsync, "the driver's own pool")
