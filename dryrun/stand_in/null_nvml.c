/* dryrun/stand_in/null_nvml.c: libnvidia-ml.so.1: the one device, its memory, this process
 * on it, and that it is idle. Anything else answers NVML_ERROR_NOT_SUPPORTED, which is NVML's own way to say so. */
#include "dryrun/stand_in/null_internal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define E VP_NULL_EXPORT

enum { NVML_INVALID_ARGUMENT = 2, NVML_NOT_SUPPORTED = 3, NVML_INSUFFICIENT_SIZE = 7 };

static int device_object;

VP_NULL_NOP(nvmlInit)
VP_NULL_NOP(nvmlInit_v2)
VP_NULL_NOP(nvmlInitWithFlags)
VP_NULL_NOP(nvmlShutdown)

E const char *nvmlErrorString(int e);
const char   *nvmlErrorString(int e)
{
    return e == 0                        ? "Success"
           : e == NVML_NOT_SUPPORTED     ? "Not Supported"
           : e == NVML_INSUFFICIENT_SIZE ? "Insufficient Size"
                                         : "Invalid Argument";
}

E int nvmlDeviceGetCount_v2(unsigned *n);
int   nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = 1;
    return 0;
}

static int handle(void **out)
{
    *out = &device_object;
    return 0;
}

E int nvmlDeviceGetHandleByIndex_v2(unsigned idx, void **out);
int   nvmlDeviceGetHandleByIndex_v2(unsigned idx, void **out)
{
    return idx == 0 ? handle(out) : NVML_INVALID_ARGUMENT;
}

E int nvmlDeviceGetHandleByUUID(const char *uuid, void **out);
int   nvmlDeviceGetHandleByUUID(const char *uuid, void **out)
{
    (void)uuid;
    return handle(out);
}

E int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out);
int   nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out)
{
    (void)bus;
    return handle(out);
}

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

E int nvmlDeviceGetMemoryInfo(void *d, nvml_memory *m);
int   nvmlDeviceGetMemoryInfo(void *d, nvml_memory *m)
{
    (void)d;
    m->total = vp_null_device_get()->total_bytes;
    m->free  = vp_null_mem_free_bytes();
    m->used  = vp_null_process_bytes();
    return 0;
}

typedef struct nvml_memory_v2 {
    unsigned           version;
    unsigned long long total, reserved, free, used;
} nvml_memory_v2;

E int nvmlDeviceGetMemoryInfo_v2(void *d, nvml_memory_v2 *m);
int   nvmlDeviceGetMemoryInfo_v2(void *d, nvml_memory_v2 *m)
{
    nvml_memory v1;

    nvmlDeviceGetMemoryInfo(d, &v1);
    m->total    = v1.total;
    m->reserved = 0;
    m->free     = v1.free;
    m->used     = v1.used;
    return 0;
}

E int nvmlDeviceGetName(void *d, char *text, unsigned n);
int   nvmlDeviceGetName(void *d, char *text, unsigned n)
{
    (void)d;
    snprintf(text, n, "%s", vp_null_device_get()->name);
    return 0;
}

E int nvmlDeviceGetUUID(void *d, char *text, unsigned n);
int   nvmlDeviceGetUUID(void *d, char *text, unsigned n)
{
    (void)d;
    snprintf(text, n, "GPU-76706c61-6e2d-6472-792d-72756e2d3000");
    return 0;
}

E int nvmlDeviceGetIndex(void *d, unsigned *idx);
int   nvmlDeviceGetIndex(void *d, unsigned *idx)
{
    (void)d;
    *idx = 0;
    return 0;
}

E int nvmlDeviceGetCudaComputeCapability(void *d, int *major, int *minor);
int   nvmlDeviceGetCudaComputeCapability(void *d, int *major, int *minor)
{
    (void)d;
    *major = vp_null_device_get()->cc_major;
    *minor = vp_null_device_get()->cc_minor;
    return 0;
}

E int nvmlSystemGetDriverVersion(char *text, unsigned n);
int   nvmlSystemGetDriverVersion(char *text, unsigned n)
{
    snprintf(text, n, "580.00");
    return 0;
}

E int nvmlSystemGetCudaDriverVersion_v2(int *v);
int   nvmlSystemGetCudaDriverVersion_v2(int *v)
{
    *v = 13000;
    return 0;
}

E int nvmlSystemGetCudaDriverVersion(int *v);
int   nvmlSystemGetCudaDriverVersion(int *v)
{
    return nvmlSystemGetCudaDriverVersion_v2(v);
}

typedef struct nvml_process_v1 {
    unsigned           pid;
    unsigned long long used;
} nvml_process_v1;

typedef struct nvml_process_v2 {
    unsigned           pid;
    unsigned long long used;
    unsigned           gpu_instance, compute_instance;
} nvml_process_v2;

/* The list PyTorch prints in an out-of-memory text: this process alone. */
E int nvmlDeviceGetComputeRunningProcesses(void *d, unsigned *n, nvml_process_v1 *list);
int   nvmlDeviceGetComputeRunningProcesses(void *d, unsigned *n, nvml_process_v1 *list)
{
    (void)d;
    if (*n < 1 || !list) {
        *n = 1;
        return NVML_INSUFFICIENT_SIZE;
    }
    *n      = 1;
    list[0] = (nvml_process_v1){.pid = (unsigned)getpid(), .used = vp_null_process_bytes()};
    return 0;
}

E int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, nvml_process_v2 *list);
int   nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, nvml_process_v2 *list)
{
    (void)d;
    if (*n < 1 || !list) {
        *n = 1;
        return NVML_INSUFFICIENT_SIZE;
    }
    *n      = 1;
    list[0] = (nvml_process_v2){.pid              = (unsigned)getpid(),
                                .used             = vp_null_process_bytes(),
                                .gpu_instance     = ~0u,
                                .compute_instance = ~0u};
    return 0;
}

E int nvmlDeviceGetComputeRunningProcesses_v2(void *d, unsigned *n, nvml_process_v2 *list);
int   nvmlDeviceGetComputeRunningProcesses_v2(void *d, unsigned *n, nvml_process_v2 *list)
{
    return nvmlDeviceGetComputeRunningProcesses_v3(d, n, list);
}

/* An idle card, as nothing is computed: what loggers ask of it, and torch.cuda.utilization() and its kin, is an error on no card. */
typedef struct nvml_utilization {
    unsigned gpu_percent, memory_percent;
} nvml_utilization;

E int nvmlDeviceGetUtilizationRates(void *d, nvml_utilization *u);
int   nvmlDeviceGetUtilizationRates(void *d, nvml_utilization *u)
{
    (void)d;
    *u = (nvml_utilization){0};
    return 0;
}

E int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *celsius);
int   nvmlDeviceGetTemperature(void *d, int sensor, unsigned *celsius)
{
    (void)d, (void)sensor;
    *celsius = 30;
    return 0;
}

E int nvmlDeviceGetPowerUsage(void *d, unsigned *milliwatts);
int   nvmlDeviceGetPowerUsage(void *d, unsigned *milliwatts)
{
    (void)d;
    *milliwatts = 0;
    return 0;
}

E int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *millijoules);
int   nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *millijoules)
{
    (void)d;
    *millijoules = 0;
    return 0;
}

E int nvmlDeviceGetClockInfo(void *d, int clock, unsigned *mhz);
int   nvmlDeviceGetClockInfo(void *d, int clock, unsigned *mhz)
{
    (void)d, (void)clock;
    *mhz = 0;
    return 0;
}

#define NOT_SUPPORTED(name) \
    E int name(void); \
    int   name(void) \
    { \
        return NVML_NOT_SUPPORTED; \
    }

NOT_SUPPORTED(nvmlDeviceGetMaxClockInfo)
NOT_SUPPORTED(nvmlDeviceGetNvLinkState)
NOT_SUPPORTED(nvmlDeviceGetNvLinkRemoteDeviceType)
NOT_SUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo_v2)
NOT_SUPPORTED(nvmlDeviceGetP2PStatus)
NOT_SUPPORTED(nvmlDeviceGetGpuFabricInfo)
NOT_SUPPORTED(nvmlDeviceGetGpuFabricInfoV)
NOT_SUPPORTED(nvmlDeviceGetCpuAffinity)
NOT_SUPPORTED(nvmlDeviceSetCpuAffinity)
NOT_SUPPORTED(nvmlDeviceGetPciInfo_v3)
NOT_SUPPORTED(nvmlDeviceGetGraphicsRunningProcesses_v3)
NOT_SUPPORTED(nvmlDeviceGetEnforcedPowerLimit)
NOT_SUPPORTED(nvmlDeviceGetPowerManagementLimit)
NOT_SUPPORTED(nvmlDeviceGetMemoryErrorCounter)
