/* tests/cuda_emulator/cuda_stand_in_device.cpp: what the device says of itself, errors' names, launches. */
#include "tests/cuda_emulator/cuda_stand_in.h"

#include <cstring>

using namespace stand_in;

namespace
{

/* ---- errors ---- */

const struct {
    cudaError_t e;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorCudartUnloading, "cudaErrorCudartUnloading", "the runtime is being unloaded"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid direction of a copy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "no driver, or one older than the runtime"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device number"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel for this device"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources for a launch"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "a misaligned address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "not permitted while a stream is captured"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "the capture has failed because of an earlier error"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "the capture was not begun in this stream"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge", "two captures would become one"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "a stream that was forked into the capture was not joined"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "a dependency would cross the border of the capture"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "the legacy stream would depend on a captured one"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "the event was last recorded in a captured stream"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

/* ---- launches ---- */

/* Bytes of shared memory that a block may have when asked for, by compute capability: CUDA C++
 * Programming Guide, technical specifications. */
size_t shared_bytes_optin()
{
    switch (vp_emulator_sm()) {
    case 80:
    case 87:
        return 163 << 10;
    case 86:
    case 89:
    case 120:
    case 121:
        return 99 << 10;
    case 75:
        return 64 << 10;
    default:
        return vp_emulator_sm() >= 90 ? 227 << 10 : 96 << 10;
    }
}

enum { SHARED_BYTES = 48 << 10 };

cudaError_t check_launch(const vp_emulator_kernel *k, int bad_argument, const void *bad_pointer)
{
    uint64_t n_threads = (uint64_t)k->block.x * k->block.y * k->block.z;
    auto     raised    = here().dynamic_limit.find(k->entry);
    size_t   limit = raised == here().dynamic_limit.end() ? (size_t)SHARED_BYTES : raised->second;

    if (n_threads == 0 || n_threads > 1024 || k->block.z > 64 || k->grid.x == 0 || k->grid.y == 0 ||
        k->grid.z == 0 || k->grid.x > 0x7fffffffu || k->grid.y > 65535 || k->grid.z > 65535) {
        vp_emulator_say("kernel %s: a grid of %ux%ux%u blocks of %ux%ux%u threads cannot be",
                        k->name, k->grid.x, k->grid.y, k->grid.z, k->block.x, k->block.y,
                        k->block.z);
        return cudaErrorInvalidConfiguration;
    }
    if (k->dynamic_bytes > limit) {
        vp_emulator_say("kernel %s: %zu bytes of dynamic shared memory, %zu are allowed", k->name,
                        k->dynamic_bytes, limit);
        return cudaErrorInvalidValue;
    }
    if (bad_argument) {
        vp_emulator_say("kernel %s: argument %d is %p, which is no device memory", k->name,
                        bad_argument, bad_pointer);
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

cudaError_t launch(const vp_emulator_kernel *kernel, cudaStream_t stream,
                   const std::function<void()> &thread, int bad_argument, const void *bad_pointer)
{
    BEGIN("cudaLaunchKernel", "%s, %ux%ux%u, %ux%ux%u, %zu", kernel->name, kernel->grid.x,
          kernel->grid.y, kernel->grid.z, kernel->block.x, kernel->block.y, kernel->block.z,
          kernel->dynamic_bytes);
    cudaError_t e = check_launch(kernel, bad_argument, bad_pointer);

    if (e != cudaSuccess)
        return result(e);
    here().loaded.insert(kernel->entry);
    vp_emulator_kernel copy = *kernel;
    size_t             limit =
        here().dynamic_limit.count(kernel->entry) ? shared_bytes_optin() : (size_t)SHARED_BYTES;

    return enqueue(stream, [copy, thread, limit]() { vp_emulator_run_grid(&copy, thread, limit); });
}

} // namespace

/* As VP_LAUNCH on a device: the launch, then the last error, which is forgotten. */
cudaError_t vp_emulator_launch(const vp_emulator_kernel *kernel, cudaStream_t stream,
                               const std::function<void()> &thread, int bad_argument,
                               const void *bad_pointer)
{
    launch(kernel, stream, thread, bad_argument, bad_pointer);
    return cudaGetLastError();
}

/* ---- the runtime's interface ---- */

extern "C" {

cudaError_t cudaGetLastError(void)
{
    locked      hold(here().lock);
    cudaError_t e = here().last;
    here().last   = here().sticky;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    locked hold(here().lock);
    return here().last;
}

const char *cudaGetErrorName(cudaError_t error)
{
    for (const auto &known : errors)
        if (known.e == error)
            return known.name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (const auto &known : errors)
        if (known.e == error)
            return known.text;
    return "unrecognized error code";
}

cudaError_t cudaDriverGetVersion(int *version)
{
    locked hold(here().lock);
    if (vp_emulator_fails("cudaDriverGetVersion", "%s", ""))
        return result(cudaErrorUnknown);
    *version = here().set.n_devices < 0 ? 0 : here().set.driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    locked hold(here().lock);
    if (vp_emulator_fails("cudaRuntimeGetVersion", "%s", ""))
        return result(cudaErrorUnknown);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    BEGIN("cudaGetDeviceCount", "%s", "");
    *count = here().set.n_devices;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    BEGIN("cudaGetDevice", "%s", "");
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    BEGIN("cudaSetDevice", "%d", device);
    if (device < 0 || device >= here().set.n_devices)
        return result(cudaErrorInvalidDevice);
    here().context = here().opened = true; /* since CUDA 12 */
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    BEGIN("cudaGetDeviceProperties", "%d", device);
    if (device < 0 || device >= here().set.n_devices)
        return result(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", here().set.name.c_str());
    p->totalGlobalMem      = (size_t)here().set.memory_bytes;
    p->major               = here().set.sm / 10;
    p->minor               = here().set.sm % 10;
    p->multiProcessorCount = here().set.n_multiprocessors;
    p->warpSize            = 32;
    p->maxThreadsPerBlock  = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2]                       = 64;
    p->maxGridSize[0]                         = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->sharedMemPerBlock                  = SHARED_BYTES;
    p->sharedMemPerBlockOptin             = shared_bytes_optin();
    p->sharedMemPerMultiprocessor         = shared_bytes_optin() + 1024;
    p->l2CacheSize = 64 << 10; /* little, so that profiles of small calls rotate their operands */
    p->memoryBusWidth = 5120;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    BEGIN("cudaDeviceGetAttribute", "%d, %d", (int)attr, device);
    if (device < 0 || device >= here().set.n_devices)
        return result(cudaErrorInvalidDevice);
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = 1024;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = SHARED_BYTES;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)shared_bytes_optin();
        break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = (int)shared_bytes_optin() + 1024;
        break;
    case cudaDevAttrWarpSize:
        *value = 32;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = here().set.n_multiprocessors;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = here().set.sm / 10;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = here().set.sm % 10;
        break;
    case cudaDevAttrClockRate:
        *value = 1755000;
        break;
    case cudaDevAttrMemoryClockRate:
        *value = 2619000;
        break;
    case cudaDevAttrGlobalMemoryBusWidth:
        *value = 5120;
        break;
    case cudaDevAttrL2CacheSize:
        *value = 50 << 20;
        break;
    case cudaDevAttrIntegrated:
    case cudaDevAttrPciBusId:
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
        *value = 0;
        break;
    default:
        return result(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int n_bytes, int device)
{
    BEGIN("cudaDeviceGetPCIBusId", "%d", device);
    if (device < 0 || device >= here().set.n_devices)
        return result(cudaErrorInvalidDevice);
    snprintf(text, (size_t)n_bytes, "0000:00:00.0");
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    BEGIN("cudaDeviceSynchronize", "%s", "");
    SAFE_ONLY();
    return wait_for_all();
}

/* All of the process's memory and handles on the device are gone, and so is a fault. */
cudaError_t cudaDeviceReset(void)
{
    locked hold(here().lock);
    if (vp_emulator_fails("cudaDeviceReset", "%s", ""))
        return result(cudaErrorUnknown);
    here().queue.clear();
    for (capture *c : here().captures) {
        delete c->graph;
        delete c;
    }
    here().captures.clear();
    here().legacy.last.clear();
    here().per_thread.last.clear();
    here().loaded.clear();
    here().context = false;
    here().alive.clear();
    while (!allocations().empty())
        release(allocations().begin()->first);
    here().last = here().sticky = cudaSuccess;
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t f, void *data)
{
    BEGIN("cudaLaunchHostFunc", "%s", "");
    return enqueue(stream, [=]() { f(data); });
}

cudaError_t cudaFuncSetAttribute(const void *entry, enum cudaFuncAttribute attr, int value)
{
    BEGIN("cudaFuncSetAttribute", "%d, %d", (int)attr, value);
    if (attr == cudaFuncAttributePreferredSharedMemoryCarveout)
        return cudaSuccess;
    if (attr != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        (size_t)value > shared_bytes_optin())
        return result(cudaErrorInvalidValue);
    here().dynamic_limit[entry] = (size_t)value;
    return cudaSuccess;
}
}
