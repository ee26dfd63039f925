/* kernels/cuda/nvml.c: what the driver says this process holds on its device. NVML is loaded at run time if it is there. */
#include "kernels/cuda/cuda_internal.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

/* nvml.h, nvmlProcessInfo_t of nvmlDeviceGetComputeRunningProcesses_v3. */
typedef struct process_info {
    unsigned int       pid;
    unsigned long long used_bytes;
    unsigned int       gpu_instance, compute_instance;
} process_info;

enum { NVML_SUCCESS = 0, MAX_PROCESSES = 256 };
static const unsigned long long NOT_AVAILABLE = ~0ull;

typedef int (*nvml_init_fn)(void);
typedef int (*nvml_by_bus_fn)(const char *bus, void **device);
typedef int (*nvml_processes_fn)(void *device, unsigned int *n, process_info *processes);

static int64_t own_bytes(nvml_processes_fn processes, void *device)
{
    process_info list[MAX_PROCESSES];
    unsigned int n = MAX_PROCESSES;

    if (processes(device, &n, list) != NVML_SUCCESS)
        return -1;
    for (unsigned int i = 0; i < n; i++)
        if (list[i].pid == (unsigned int)getpid() && list[i].used_bytes != NOT_AVAILABLE)
            return (int64_t)list[i].used_bytes;
    return -1; /* another PID namespace, or not told */
}

int64_t vp_nvml_process_bytes(int device)
{
    void             *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL), *handle;
    nvml_init_fn      init, shut_down;
    nvml_by_bus_fn    by_bus;
    nvml_processes_fn processes;
    char              bus[32];
    int64_t           used = -1;

    if (!library)
        return -1;
    init      = (nvml_init_fn)dlsym(library, "nvmlInit_v2");
    shut_down = (nvml_init_fn)dlsym(library, "nvmlShutdown");
    by_bus    = (nvml_by_bus_fn)dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    processes = (nvml_processes_fn)dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
    if (init && shut_down && by_bus && processes && init() == NVML_SUCCESS) {
        if (cudaDeviceGetPCIBusId(bus, sizeof bus, device) == cudaSuccess && by_bus(bus, &handle) == NVML_SUCCESS)
            used = own_bytes(processes, handle);
        shut_down();
    }
    dlclose(library);
    return used;
}
