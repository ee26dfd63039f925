/* tests/cuda_emulator/include/cuda_runtime_api.h: the part of the CUDA runtime's C interface that
 * kernels/cuda calls.
 *
 * Written for this emulator. Names, values and signatures are facts of NVIDIA's interface (CUDA
 * 12 and 13 agree in all of them) and are compared with the toolkit's own headers by
 * header_check.cpp. A call that is not here does not exist for the emulated backend: it fails to
 * compile, and is added here and to cuda_stand_in_*.cpp. */
#ifndef VP_EMULATOR_CUDA_RUNTIME_API_H
#define VP_EMULATOR_CUDA_RUNTIME_API_H

#include <stddef.h>
#include <stdint.h>

#define VP_CUDA_EMULATOR 1
#define CUDART_VERSION   13000

#ifdef __cplusplus
#define VP_EMULATOR_DEFAULT(value) = value
extern "C" {
#else
#define VP_EMULATOR_DEFAULT(value)
#endif

/* ---- values ---- */

enum cudaError {
    cudaSuccess                       = 0,
    cudaErrorInvalidValue             = 1,
    cudaErrorMemoryAllocation         = 2,
    cudaErrorInitializationError      = 3,
    cudaErrorCudartUnloading          = 4,
    cudaErrorInvalidConfiguration     = 9,
    cudaErrorInvalidMemcpyDirection   = 21,
    cudaErrorInsufficientDriver       = 35,
    cudaErrorDevicesUnavailable       = 46,
    cudaErrorInvalidDeviceFunction    = 98,
    cudaErrorNoDevice                 = 100,
    cudaErrorInvalidDevice            = 101,
    cudaErrorInvalidKernelImage       = 200,
    cudaErrorNoKernelImageForDevice   = 209,
    cudaErrorECCUncorrectable         = 214,
    cudaErrorUnsupportedPtxVersion    = 222,
    cudaErrorInvalidResourceHandle    = 400,
    cudaErrorIllegalState             = 401,
    cudaErrorNotReady                 = 600,
    cudaErrorIllegalAddress           = 700,
    cudaErrorLaunchOutOfResources     = 701,
    cudaErrorLaunchTimeout            = 702,
    cudaErrorMisalignedAddress        = 716,
    cudaErrorLaunchFailure            = 719,
    cudaErrorNotPermitted             = 800,
    cudaErrorNotSupported             = 801,
    cudaErrorSystemNotReady           = 802,
    cudaErrorSystemDriverMismatch     = 803,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureMerge       = 902,
    cudaErrorStreamCaptureUnmatched   = 903,
    cudaErrorStreamCaptureUnjoined    = 904,
    cudaErrorStreamCaptureIsolation   = 905,
    cudaErrorStreamCaptureImplicit    = 906,
    cudaErrorCapturedEvent            = 907,
    cudaErrorUnknown                  = 999
};
typedef enum cudaError cudaError_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost     = 0,
    cudaMemcpyHostToDevice   = 1,
    cudaMemcpyDeviceToHost   = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault        = 4
};

enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal      = 0,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed     = 2
};

enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone        = 0,
    cudaStreamCaptureStatusActive      = 1,
    cudaStreamCaptureStatusInvalidated = 2
};

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize    = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9
};

enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock               = 1,
    cudaDevAttrMaxSharedMemoryPerBlock          = 8,
    cudaDevAttrWarpSize                         = 10,
    cudaDevAttrClockRate                        = 13,
    cudaDevAttrMultiProcessorCount              = 16,
    cudaDevAttrIntegrated                       = 18,
    cudaDevAttrPciBusId                         = 33,
    cudaDevAttrPciDeviceId                      = 34,
    cudaDevAttrMemoryClockRate                  = 36,
    cudaDevAttrGlobalMemoryBusWidth             = 37,
    cudaDevAttrL2CacheSize                      = 38,
    cudaDevAttrPciDomainId                      = 50,
    cudaDevAttrComputeCapabilityMajor           = 75,
    cudaDevAttrComputeCapabilityMinor           = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxSharedMemoryPerBlockOptin     = 97
};

#define cudaStreamDefault      0x00
#define cudaStreamNonBlocking  0x01
#define cudaEventDefault       0x00
#define cudaEventBlockingSync  0x01
#define cudaEventDisableTiming 0x02
#define cudaHostAllocDefault   0x00
#define cudaHostAllocPortable  0x01
#define cudaHostAllocMapped    0x02
#define cudaStreamLegacy       ((cudaStream_t)0x1)
#define cudaStreamPerThread    ((cudaStream_t)0x2)

/* ---- handles ---- */

typedef struct CUstream_st    *cudaStream_t;
typedef struct CUevent_st     *cudaEvent_t;
typedef struct CUgraph_st     *cudaGraph_t;
typedef struct CUgraphNode_st *cudaGraphNode_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef void (*cudaHostFn_t)(void *userData);

/* Fewer fields than the real one, with their names and types. */
struct cudaDeviceProp {
    char   name[256];
    size_t totalGlobalMem;
    size_t sharedMemPerBlock;
    int    warpSize;
    int    maxThreadsPerBlock;
    int    maxThreadsDim[3];
    int    maxGridSize[3];
    int    major;
    int    minor;
    int    multiProcessorCount;
    int    integrated;
    int    ECCEnabled;
    int    pciBusID;
    int    pciDeviceID;
    int    pciDomainID;
    int    memoryBusWidth;
    int    l2CacheSize;
    size_t sharedMemPerMultiprocessor;
    size_t sharedMemPerBlockOptin;
};

/* ---- calls ---- */

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device);
cudaError_t cudaDeviceGetPCIBusId(char *pciBusId, int len, int device);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceReset(void);
cudaError_t cudaDriverGetVersion(int *driverVersion);
cudaError_t cudaRuntimeGetVersion(int *runtimeVersion);

cudaError_t cudaMalloc(void **devPtr, size_t size);
cudaError_t cudaFree(void *devPtr);
cudaError_t cudaMallocHost(void **ptr, size_t size);
cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned int flags);
cudaError_t cudaFreeHost(void *ptr);
cudaError_t cudaMemGetInfo(size_t *free, size_t *total);
cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream VP_EMULATOR_DEFAULT(0));
cudaError_t cudaMemset(void *devPtr, int value, size_t count);
cudaError_t cudaMemsetAsync(void *devPtr, int value, size_t count,
                            cudaStream_t stream VP_EMULATOR_DEFAULT(0));

cudaError_t cudaStreamCreate(cudaStream_t *pStream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned int flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned int flags VP_EMULATOR_DEFAULT(0));

cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream VP_EMULATOR_DEFAULT(0));
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end);

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *pGraph);
cudaError_t cudaStreamIsCapturing(cudaStream_t                  stream,
                                  enum cudaStreamCaptureStatus *pCaptureStatus);
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *numNodes);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                 unsigned long long flags VP_EMULATOR_DEFAULT(0));
cudaError_t cudaGraphUpload(cudaGraphExec_t graphExec, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec);

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData);
cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value);

cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);

#ifdef __cplusplus
}
#endif

#endif
