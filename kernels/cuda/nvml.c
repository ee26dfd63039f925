/* kernels/cuda/nvml.c: what the driver says is held on a device, by this process and by all. NVML is loaded at run time if it is there; it makes
 * no context. */
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

/* nvmlMemory_t of nvmlDeviceGetMemoryInfo. */
typedef struct memory_info {
    unsigned long long total, free, used;
} memory_info;

typedef int (*nvml_init_fn)(void);
typedef int (*nvml_by_bus_fn)(const char *bus, void **device);
typedef int (*nvml_processes_fn)(void *device, unsigned int *n, process_info *processes);
typedef int (*nvml_memory_fn)(void *device, memory_info *memory);
typedef int (*nvml_version_fn)(char *text, unsigned int n_bytes);

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

vp_nvml_answer vp_nvml_ask(const char *bus)
{
    vp_nvml_answer    answer  = {.process_bytes = -1, .all_bytes = -1};
    void             *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL), *device;
    nvml_init_fn      init, shut_down;
    nvml_by_bus_fn    by_bus;
    nvml_processes_fn processes;
    nvml_memory_fn    memory;
    nvml_version_fn   version;
    memory_info       in_use;

    if (!library)
        return answer;
    init      = (nvml_init_fn)dlsym(library, "nvmlInit_v2");
    shut_down = (nvml_init_fn)dlsym(library, "nvmlShutdown");
    by_bus    = (nvml_by_bus_fn)dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    processes = (nvml_processes_fn)dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
    memory    = (nvml_memory_fn)dlsym(library, "nvmlDeviceGetMemoryInfo");
    version   = (nvml_version_fn)dlsym(library, "nvmlSystemGetDriverVersion");
    if (init && shut_down && by_bus && init() == NVML_SUCCESS) {
        if (version && version(answer.driver, sizeof answer.driver) != NVML_SUCCESS)
            answer.driver[0] = '\0';
        if (bus[0] && by_bus(bus, &device) == NVML_SUCCESS) {
            answer.process_bytes = processes ? own_bytes(processes, device) : -1;
            answer.all_bytes     = memory && memory(device, &in_use) == NVML_SUCCESS ? (int64_t)in_use.used : -1;
        }
        shut_down();
    }
    dlclose(library);
    return answer;
}
