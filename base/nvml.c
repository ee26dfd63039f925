#include "base/nvml.h"

#include <dlfcn.h>
#include <unistd.h>

enum { MAX_PROCESSES = 256 };
static const unsigned long long NOT_AVAILABLE = ~0ull;

/* nvml.h: nvmlMemory_t of nvmlDeviceGetMemoryInfo. */
typedef struct memory_info {
    unsigned long long total, free, used;
} memory_info;

/* nvmlProcessInfo_t of nvmlDeviceGetComputeRunningProcesses_v3. */
typedef struct process_info {
    unsigned int       pid;
    unsigned long long used_bytes;
    unsigned int       gpu_instance, compute_instance;
} process_info;

/* The library's functions, NULL where it lacks one; they return 0 (NVML_SUCCESS) when all went
 * well. */
typedef struct nvml {
    void *library;
    int (*init)(void);
    int (*shut_down)(void);
    int (*by_index)(unsigned int idx, void **device);
    int (*by_bus)(const char *bus, void **device);
    int (*name)(void *device, char *text, unsigned int n_bytes);
    int (*memory)(void *device, memory_info *memory);
    int (*processes)(void *device, unsigned int *n, process_info *processes);
    int (*version)(char *text, unsigned int n_bytes);
} nvml;

/* false: there is none that starts. */
static bool begin(nvml *n)
{
    *n = (nvml){.library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)};
    if (!n->library)
        return false;
    n->init      = (int (*)(void))dlsym(n->library, "nvmlInit_v2");
    n->shut_down = (int (*)(void))dlsym(n->library, "nvmlShutdown");
    n->by_index =
        (int (*)(unsigned int, void **))dlsym(n->library, "nvmlDeviceGetHandleByIndex_v2");
    n->by_bus =
        (int (*)(const char *, void **))dlsym(n->library, "nvmlDeviceGetHandleByPciBusId_v2");
    n->name      = (int (*)(void *, char *, unsigned int))dlsym(n->library, "nvmlDeviceGetName");
    n->memory    = (int (*)(void *, memory_info *))dlsym(n->library, "nvmlDeviceGetMemoryInfo");
    n->processes = (int (*)(void *, unsigned int *, process_info *))dlsym(
        n->library, "nvmlDeviceGetComputeRunningProcesses_v3");
    n->version = (int (*)(char *, unsigned int))dlsym(n->library, "nvmlSystemGetDriverVersion");
    if (n->init && n->shut_down && n->init() == 0)
        return true;
    dlclose(n->library);
    return false;
}

static void end(nvml *n)
{
    n->shut_down();
    dlclose(n->library);
}

static int64_t as_bytes(unsigned long long n)
{
    return n < INT64_MAX ? (int64_t)n : INT64_MAX;
}

bool vp_nvml_card_at(unsigned idx, vp_nvml_card *out)
{
    nvml        n;
    memory_info memory = {0};
    void       *device = NULL;
    bool        ok;

    *out = (vp_nvml_card){0};
    if (!begin(&n))
        return false;
    ok = n.by_index && n.name && n.memory && n.by_index(idx, &device) == 0 &&
         n.name(device, out->product, sizeof out->product) == 0 && n.memory(device, &memory) == 0;
    out->product[sizeof out->product - 1] = '\0';
    out->free_bytes                       = as_bytes(memory.free);
    out->total_bytes                      = as_bytes(memory.total);
    out->used_bytes                       = as_bytes(memory.used);
    end(&n);
    return ok;
}

int vp_nvml_processes_at(unsigned idx, vp_nvml_process *out, int max)
{
    process_info list[MAX_PROCESSES];
    unsigned int count  = MAX_PROCESSES;
    void        *device = NULL;
    nvml         n;
    int          found = -1;

    if (!begin(&n))
        return -1;
    if (n.by_index && n.processes && n.by_index(idx, &device) == 0 &&
        n.processes(device, &count, list) == 0) {
        found = 0;
        for (unsigned int i = 0; i < count && i < MAX_PROCESSES && found < max; i++)
            out[found++] = (vp_nvml_process){
                .pid   = list[i].pid,
                .bytes = list[i].used_bytes == NOT_AVAILABLE ? -1 : as_bytes(list[i].used_bytes)};
    }
    end(&n);
    return found;
}

static int64_t own_bytes(const nvml *n, void *device)
{
    process_info list[MAX_PROCESSES];
    unsigned int count = MAX_PROCESSES;

    if (n->processes(device, &count, list) != 0)
        return -1;
    for (unsigned int i = 0; i < count; i++)
        if (list[i].pid == (unsigned int)getpid() && list[i].used_bytes != NOT_AVAILABLE)
            return (int64_t)list[i].used_bytes;
    return -1; /* another PID namespace, or not told */
}

vp_nvml_answer vp_nvml_ask(const char *bus)
{
    vp_nvml_answer answer = {.process_bytes = -1, .all_bytes = -1};
    memory_info    in_use;
    nvml           n;
    void          *device;

    if (!begin(&n))
        return answer;
    if (n.version && n.version(answer.driver, sizeof answer.driver) != 0)
        answer.driver[0] = '\0';
    if (bus[0] && n.by_bus && n.by_bus(bus, &device) == 0) {
        answer.process_bytes = n.processes ? own_bytes(&n, device) : -1;
        answer.all_bytes = n.memory && n.memory(device, &in_use) == 0 ? (int64_t)in_use.used : -1;
    }
    end(&n);
    return answer;
}
