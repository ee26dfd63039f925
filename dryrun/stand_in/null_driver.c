/* dryrun/stand_in/null_driver.c: libcuda.so.1: what PyTorch asks through the runtime, virtual
 * memory (expandable segments), and what Triton's launcher and statically linked runtimes begin
 * with. */
#define _GNU_SOURCE
#include "dryrun/stand_in/null_internal.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define E VP_NULL_EXPORT

int vp_null_attribute(int attribute);

static int context_object; /* one primary context; its address stands for it */
static int module_object;

E int cuInit(unsigned flags);
int   cuInit(unsigned flags)
{
    (void)flags;
    return vp_null_n_devices() ? VP_NULL_OK : VP_NULL_NO_DEVICE;
}

E int cuDriverGetVersion(int *v);
int   cuDriverGetVersion(int *v)
{
    *v = 13000;
    return VP_NULL_OK;
}

E int cuDeviceGetCount(int *n);
int   cuDeviceGetCount(int *n)
{
    *n = vp_null_n_devices();
    return VP_NULL_OK;
}

E int cuDeviceGet(int *out, int d);
int   cuDeviceGet(int *out, int d)
{
    *out = 0;
    return d == 0 ? VP_NULL_OK : VP_NULL_INVALID_DEVICE;
}

E int cuDeviceGetName(char *text, int n, int d);
int   cuDeviceGetName(char *text, int n, int d)
{
    (void)d;
    snprintf(text, (size_t)n, "%s", vp_null_device_get()->name);
    return VP_NULL_OK;
}

E int cuDeviceGetUuid_v2(char *uuid, int d);
int   cuDeviceGetUuid_v2(char *uuid, int d)
{
    (void)d;
    memcpy(uuid, "vplan-dry-run-0", 16);
    return VP_NULL_OK;
}

E int cuDeviceGetUuid(char *uuid, int d);
int   cuDeviceGetUuid(char *uuid, int d)
{
    return cuDeviceGetUuid_v2(uuid, d);
}

E int cuDeviceTotalMem_v2(size_t *bytes, int d);
int   cuDeviceTotalMem_v2(size_t *bytes, int d)
{
    (void)d;
    *bytes = vp_null_device_get()->total_bytes;
    return VP_NULL_OK;
}

E int cuDeviceGetAttribute(int *value, int attribute, int d);
int   cuDeviceGetAttribute(int *value, int attribute, int d)
{
    if (d != 0)
        return VP_NULL_INVALID_DEVICE;
    *value = vp_null_attribute(attribute);
    if (*value < 0) {
        char text[64];

        snprintf(text, sizeof text, "attribute %d", attribute);
        vp_null_unsupported("libcuda", "cuDeviceGetAttribute", text);
    }
    return VP_NULL_OK;
}

E int cuDevicePrimaryCtxGetState(int d, unsigned *flags, int *active);
int   cuDevicePrimaryCtxGetState(int d, unsigned *flags, int *active)
{
    (void)d;
    if (flags)
        *flags = 0;
    if (active)
        *active = 1;
    return VP_NULL_OK;
}

E int cuDevicePrimaryCtxRetain(void **ctx, int d);
int   cuDevicePrimaryCtxRetain(void **ctx, int d)
{
    (void)d;
    *ctx = &context_object;
    return VP_NULL_OK;
}

E int cuCtxGetCurrent(void **ctx);
int   cuCtxGetCurrent(void **ctx)
{
    *ctx = &context_object;
    return VP_NULL_OK;
}

E int cuCtxPopCurrent_v2(void **ctx);
int   cuCtxPopCurrent_v2(void **ctx)
{
    if (ctx)
        *ctx = &context_object;
    return VP_NULL_OK;
}

E int cuCtxGetDevice(int *d);
int   cuCtxGetDevice(int *d)
{
    *d = 0;
    return VP_NULL_OK;
}

/* CU_LIMIT_STACK_SIZE 0, CU_LIMIT_PRINTF_FIFO_SIZE 1, CU_LIMIT_MALLOC_HEAP_SIZE 2: the defaults. */
E int cuCtxGetLimit(size_t *value, int limit);
int   cuCtxGetLimit(size_t *value, int limit)
{
    *value = limit == 0 ? 1024 : limit == 1 ? (size_t)1 << 20 : (size_t)8 << 20;
    return VP_NULL_OK;
}

/* The driver's log: nothing is ever written to it. */
E int cuLogsRegisterCallback(void *f, void *data, void **handle);
int   cuLogsRegisterCallback(void *f, void *data, void **handle)
{
    (void)f, (void)data;
    if (handle)
        *handle = &context_object;
    return VP_NULL_OK;
}

VP_NULL_NOP(cuLogsUnregisterCallback)
VP_NULL_NOP(cuCtxSetLimit)
VP_NULL_NOP(cuCtxSetCurrent)
VP_NULL_NOP(cuCtxPushCurrent_v2)
VP_NULL_NOP(cuCtxSynchronize)
VP_NULL_NOP(cuDevicePrimaryCtxRelease_v2)
VP_NULL_NOP(cuStreamSynchronize)

E int cuGetErrorString(int e, const char **text);
int   cuGetErrorString(int e, const char **text)
{
    *text = e == 0     ? "no error"
            : e == 2   ? "out of memory"
            : e == 101 ? "invalid device ordinal"
            : e == 801 ? "operation not supported"
            : e == 500 ? "named symbol not found"
                       : "unrecognized error code";
    return VP_NULL_OK;
}

E int cuGetErrorName(int e, const char **text);
int   cuGetErrorName(int e, const char **text)
{
    *text = e == 0     ? "CUDA_SUCCESS"
            : e == 2   ? "CUDA_ERROR_OUT_OF_MEMORY"
            : e == 101 ? "CUDA_ERROR_INVALID_DEVICE"
            : e == 801 ? "CUDA_ERROR_NOT_SUPPORTED"
            : e == 500 ? "CUDA_ERROR_NOT_FOUND"
                       : "CUDA_ERROR_UNKNOWN";
    return VP_NULL_OK;
}

/* ---- memory
 * -------------------------------------------------------------------------------------- */

E int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
int   cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes  = vp_null_mem_free_bytes();
    *total_bytes = vp_null_device_get()->total_bytes;
    return VP_NULL_OK;
}

E int cuMemAlloc_v2(uint64_t *addr, size_t bytes);
int   cuMemAlloc_v2(uint64_t *addr, size_t bytes)
{
    return bytes ? vp_null_mem_alloc(bytes, addr) : VP_NULL_INVALID_VALUE;
}

E int cuMemFree_v2(uint64_t addr);
int   cuMemFree_v2(uint64_t addr)
{
    return vp_null_mem_free(addr);
}

E int cuMemGetAddressRange_v2(uint64_t *base, size_t *bytes, uint64_t addr);
int   cuMemGetAddressRange_v2(uint64_t *base, size_t *bytes, uint64_t addr)
{
    uint64_t b, n;

    if (!vp_null_mem_range(addr, &b, &n))
        return VP_NULL_NOT_FOUND;
    if (base)
        *base = b;
    if (bytes)
        *bytes = n;
    return VP_NULL_OK;
}

E int cuMemGetAllocationGranularity(size_t *bytes, const void *prop, int option);
int   cuMemGetAllocationGranularity(size_t *bytes, const void *prop, int option)
{
    (void)prop;
    (void)option;
    *bytes = (size_t)2 << 20;
    return VP_NULL_OK;
}

E int cuMemAddressReserve(uint64_t *addr, size_t bytes, size_t align, uint64_t hint,
                          unsigned long long flags);
int   cuMemAddressReserve(uint64_t *addr, size_t bytes, size_t align, uint64_t hint,
                          unsigned long long flags)
{
    (void)hint;
    (void)flags;
    return vp_null_va_reserve(bytes, align, addr);
}

E int cuMemAddressFree(uint64_t addr, size_t bytes);
int   cuMemAddressFree(uint64_t addr, size_t bytes)
{
    return vp_null_va_release(addr, bytes);
}

E int cuMemCreate(uint64_t *handle, size_t bytes, const void *prop, unsigned long long flags);
int   cuMemCreate(uint64_t *handle, size_t bytes, const void *prop, unsigned long long flags)
{
    (void)prop;
    (void)flags;
    return vp_null_phys_create(bytes, handle);
}

E int cuMemRelease(uint64_t handle);
int   cuMemRelease(uint64_t handle)
{
    return vp_null_phys_release(handle);
}

E int cuMemRetainAllocationHandle(uint64_t *handle, void *addr);
int   cuMemRetainAllocationHandle(uint64_t *handle, void *addr)
{
    return vp_null_phys_retain((uint64_t)(uintptr_t)addr, handle);
}

E int cuMemMap(uint64_t addr, size_t bytes, size_t offset, uint64_t handle,
               unsigned long long flags);
int cuMemMap(uint64_t addr, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags)
{
    (void)offset;
    (void)flags;
    return vp_null_phys_map(addr, bytes, handle);
}

E int cuMemUnmap(uint64_t addr, size_t bytes);
int   cuMemUnmap(uint64_t addr, size_t bytes)
{
    return vp_null_phys_unmap(addr, bytes);
}

VP_NULL_NOP(cuMemSetAccess)
VP_NULL_WORK(cuMemsetD32Async)
VP_NULL_WORK(cuMemsetD8Async)
VP_NULL_WORK(cuMemcpyHtoDAsync_v2)
VP_NULL_WORK(cuMemcpyDtoDAsync_v2)

E int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t bytes, void *stream);
int   cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t bytes, void *stream)
{
    (void)stream;
    vp_null_copy(dst, (const void *)(uintptr_t)src, bytes);
    return VP_NULL_OK;
}

/* CUpointer_attribute 1 context, 2 memory type, 3 device pointer, 7 buffer id, 9 ordinal,
 * 11 range start, 12 range size. Triton asks for 3. */
E int cuPointerGetAttribute(void *data, int attribute, uint64_t addr);
int   cuPointerGetAttribute(void *data, int attribute, uint64_t addr)
{
    uint64_t base = 0, bytes = 0;
    void    *p      = (void *)(uintptr_t)addr;
    bool     device = vp_null_is_device(p);

    if (!device && !vp_null_is_pinned(p))
        return VP_NULL_INVALID_VALUE;
    switch (attribute) {
    case 1:
        *(void **)data = &context_object;
        return VP_NULL_OK;
    case 2:
        *(unsigned *)data = device ? 2 : 1;
        return VP_NULL_OK;
    case 3:
        *(uint64_t *)data = addr;
        return VP_NULL_OK;
    case 9:
        *(int *)data = 0;
        return VP_NULL_OK;
    case 7:
    case 11:
    case 12:
        if (!vp_null_mem_range(addr, &base, &bytes))
            return VP_NULL_INVALID_VALUE;
        *(uint64_t *)data = attribute == 12 ? bytes : base;
        return VP_NULL_OK;
    default: {
        char text[64];

        snprintf(text, sizeof text, "attribute %d", attribute);
        vp_null_unsupported("libcuda", "cuPointerGetAttribute", text);
    }
    }
}

/* ---- modules and launches (Triton, NVRTC)
 * ----------------------------------------------------------- */

#define MODULE(name) \
    E int name(void **module); \
    int   name(void **module) \
    { \
        *module = &module_object; \
        return VP_NULL_OK; \
    }

MODULE(cuModuleLoadData)
MODULE(cuModuleLoadDataEx)

E int cuModuleLoad(void **module, const char *path);
int   cuModuleLoad(void **module, const char *path)
{
    (void)path;
    *module = &module_object;
    return VP_NULL_OK;
}

E int cuModuleGetFunction(void **function, void *module, const char *name);
int   cuModuleGetFunction(void **function, void *module, const char *name)
{
    (void)module;
    (void)name;
    *function = &module_object;
    return VP_NULL_OK;
}

/* Libraries are modules whose functions are called kernels. */
E int cuLibraryLoadData(void **library);
int   cuLibraryLoadData(void **library)
{
    *library = &module_object;
    return VP_NULL_OK;
}

E int cuLibraryLoadFromFile(void **library);
int   cuLibraryLoadFromFile(void **library)
{
    return cuLibraryLoadData(library);
}

E int cuLibraryGetKernel(void **kernel, void *library, const char *name);
int   cuLibraryGetKernel(void **kernel, void *library, const char *name)
{
    (void)library, (void)name;
    *kernel = &module_object;
    return VP_NULL_OK;
}

E int cuLibraryGetModule(void **module, void *library);
int   cuLibraryGetModule(void **module, void *library)
{
    *module = library;
    return VP_NULL_OK;
}

E int cuKernelGetFunction(void **function, void *kernel);
int   cuKernelGetFunction(void **function, void *kernel)
{
    *function = kernel;
    return VP_NULL_OK;
}

E int cuStreamGetCtx(void *stream, void **context);
int   cuStreamGetCtx(void *stream, void **context)
{
    (void)stream;
    *context = &context_object;
    return VP_NULL_OK;
}

VP_NULL_NOP(cuLibraryUnload)
VP_NULL_NOP(cuKernelSetAttribute)

/* CUfunction_attribute 0 threads per block, 1 static shared, 3 local (spills), 4 registers. */
E int cuFuncGetAttribute(int *value, int attribute, void *function);
int   cuFuncGetAttribute(int *value, int attribute, void *function)
{
    const vp_null_device *dev = vp_null_device_get();

    (void)function;
    switch (attribute) {
    case 0:
        *value = 1024;
        break;
    case 4:
        *value = 32;
        break;
    case 5:
    case 6:
        *value = dev->cc_major * 10 + dev->cc_minor;
        break;
    case 8:
        *value = dev->smem_optin_bytes;
        break;
    default:
        *value = 0;
        break;
    }
    return VP_NULL_OK;
}

E int cuKernelGetAttribute(int *value, int attribute, void *kernel, int d);
int   cuKernelGetAttribute(int *value, int attribute, void *kernel, int d)
{
    (void)d;
    return cuFuncGetAttribute(value, attribute, kernel);
}

/* Linking PTX: the caller (cuDNN, in some engines) goes without. */
#define ABSENT(name) \
    E int name(void); \
    int   name(void) \
    { \
        vp_null_refused_to_cudnn(); \
        return VP_NULL_NOT_SUPPORTED; \
    }

ABSENT(cuLinkCreate)
ABSENT(cuLinkCreate_v2)
ABSENT(cuLinkAddData)
ABSENT(cuLinkAddData_v2)
ABSENT(cuLinkComplete)
ABSENT(cuLinkDestroy)
ABSENT(cuOccupancyMaxPotentialClusterSize)

VP_NULL_NOP(cuModuleUnload)
VP_NULL_NOP(cuFuncSetAttribute)
VP_NULL_NOP(cuFuncSetCacheConfig)

VP_NULL_WORK(cuLaunchKernel)
VP_NULL_WORK(cuLaunchKernelEx)
VP_NULL_WORK(cuLaunchCooperativeKernel)

VP_NULL_NOP(cuTensorMapEncodeTiled)
VP_NULL_NOP(cuTensorMapEncodeIm2col)

E int cuStreamIsCapturing(void *stream, int *status);
int   cuStreamIsCapturing(void *stream, int *status)
{
    extern int cudaStreamIsCapturing(void *, int *);

    return cudaStreamIsCapturing(stream, status);
}

E int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *f, int threads, size_t smem);
int   cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *f, int threads, size_t smem)
{
    extern int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *, const void *, int, size_t);

    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(n, f, threads, smem);
}

/* ---- entry points by name
 * ------------------------------------------------------------------------- */

void *vp_null_driver_symbol(const char *name)
{
    static void *self;
    Dl_info      info;
    char         versioned[128];
    void        *p;

    if (strncmp(name, "cu", 2) != 0 || strlen(name) > 100)
        return NULL;
    if (!self && dladdr((void *)(uintptr_t)&vp_null_driver_symbol, &info))
        self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!self)
        return NULL;
    snprintf(versioned, sizeof versioned, "%s_v2", name);
    p = dlsym(self, versioned);
    return p ? p : dlsym(self, name);
}

E int cuGetProcAddress_v2(const char *name, void **f, int version, uint64_t flags, int *status);
int   cuGetProcAddress_v2(const char *name, void **f, int version, uint64_t flags, int *status)
{
    (void)version;
    (void)flags;
    *f = vp_null_driver_symbol(name);
    if (status)
        *status = *f ? 0 : 1;
    return *f ? VP_NULL_OK : VP_NULL_NOT_FOUND;
}

E int cuGetProcAddress(const char *name, void **f, int version, uint64_t flags);
int   cuGetProcAddress(const char *name, void **f, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(name, f, version, flags, NULL);
}

/* The private tables that only NVIDIA's own libraries read. A CUDA runtime linked into another
 * library asks for them first: its calls do not come here by name, so it cannot be stood in for. */
E int cuGetExportTable(const void **table, const void *id);
int   cuGetExportTable(const void **table, const void *id)
{
    Dl_info     info;
    const char *name = "a library", *slash;

    (void)id;
    *table = NULL;
    if (vp_null_inside_cudnn()) /* as where no driver is: it is asked without a device */
        return VP_NULL_NOT_FOUND;
    if (dladdr(__builtin_return_address(0), &info) && info.dli_fname) {
        slash = strrchr(info.dli_fname, '/');
        name  = slash ? slash + 1 : info.dli_fname;
    }
    vp_null_unsupported(name, "cuGetExportTable", "this library carries a CUDA runtime of its own");
}

#define REFUSE(name, why) \
    E int name(void); \
    int   name(void) \
    { \
        vp_null_unsupported("libcuda", #name, why); \
    }

REFUSE(cuMemExportToShareableHandle, "memory shared with another process")
REFUSE(cuMemImportFromShareableHandle, "memory shared with another process")
REFUSE(cuIpcGetMemHandle, "memory shared with another process")
REFUSE(cuIpcOpenMemHandle_v2, "memory shared with another process")
REFUSE(cuMulticastCreate, "NVLink multicast (symmetric memory)")
REFUSE(cuGreenCtxCreate, "green contexts")
