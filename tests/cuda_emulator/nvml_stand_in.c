/* tests/cuda_emulator/nvml_stand_in.c: the part of NVML that the backend asks: one device, its
 * memory, this process on it. What it tells is said by VPLAN_EMULATOR_NVML. */
#include "tests/cuda_emulator/emulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define E __attribute__((visibility("default")))

enum { SUCCESS = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };

typedef struct process_info {
    unsigned int       pid;
    unsigned long long used_bytes;
    unsigned int       gpu_instance, compute_instance;
} process_info;

typedef struct memory_info {
    unsigned long long total, free, used;
} memory_info;

E int nvmlInit_v2(void);
E int nvmlShutdown(void);
E int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device);
E int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *n,
                                              process_info *processes);
E int nvmlDeviceGetMemoryInfo(void *device, memory_info *memory);
E int nvmlSystemGetDriverVersion(char *text, unsigned int n_bytes);

static bool tells(const char *what)
{
    const char *all = getenv("VPLAN_EMULATOR_NVML");

    return strstr(all ? all : "process,device", what) != NULL;
}

int nvmlInit_v2(void)
{
    return SUCCESS;
}

int nvmlShutdown(void)
{
    return SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device)
{
    static char the_device;

    *device = &the_device;
    return strcmp(bus, "0000:00:00.0") == 0 ? SUCCESS : NOT_SUPPORTED;
}

/* A container sees processes that it does not know. */
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *n, process_info *processes)
{
    (void)device;
    if (*n == 0)
        return INSUFFICIENT_SIZE;
    *n           = 1;
    processes[0] = (process_info){.pid        = (unsigned)getpid() + !tells("process"),
                                  .used_bytes = (unsigned long long)vp_emulator_own_bytes()};
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, memory_info *memory)
{
    (void)device;
    *memory = (memory_info){
        .used = (unsigned long long)(vp_emulator_own_bytes() + vp_emulator_others_bytes())};
    return tells("device") ? SUCCESS : NOT_SUPPORTED;
}

int nvmlSystemGetDriverVersion(char *text, unsigned int n_bytes)
{
    const char *version = getenv("VPLAN_EMULATOR_DRIVER_BUILD");

    snprintf(text, n_bytes, "%s", version ? version : "580.65.06");
    return SUCCESS;
}
