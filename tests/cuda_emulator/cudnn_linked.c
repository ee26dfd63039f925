/* tests/cuda_emulator/cudnn_linked.c: the stand-ins for cuDNN and NVML as if they were opened,
 * where they are linked into the program or plugin itself: link with
 * -Wl,--wrap=dlopen,--wrap=dlsym,--wrap=dlclose beside cudnn_stand_in.c and nvml_stand_in.c. Any
 * other library is opened as ever. */
#include <stddef.h>
#include <string.h>

#define FUNCTIONS(X) \
    X(cudnnGetVersion) \
    X(cudnnGetErrorString) \
    X(cudnnGetLastErrorString) \
    X(cudnnCreate) \
    X(cudnnDestroy) \
    X(cudnnSetStream) \
    X(cudnnBackendCreateDescriptor) \
    X(cudnnBackendDestroyDescriptor) \
    X(cudnnBackendFinalize) \
    X(cudnnBackendSetAttribute) \
    X(cudnnBackendGetAttribute) \
    X(cudnnBackendExecute) \
    X(nvmlInit_v2) \
    X(nvmlShutdown) \
    X(nvmlDeviceGetHandleByPciBusId_v2) \
    X(nvmlDeviceGetComputeRunningProcesses_v3) \
    X(nvmlDeviceGetMemoryInfo) \
    X(nvmlSystemGetDriverVersion)

#define X(name) extern char name[];
FUNCTIONS(X)
#undef X

void *__real_dlopen(const char *path, int mode);
void *__real_dlsym(void *library, const char *name);
int   __real_dlclose(void *library);
void *__wrap_dlopen(const char *path, int mode);
void *__wrap_dlsym(void *library, const char *name);
int   __wrap_dlclose(void *library);

static char linked; /* its address is either library */

void *__wrap_dlopen(const char *path, int mode)
{
    return path && (strcmp(path, "libcudnn.so.9") == 0 || strcmp(path, "libnvidia-ml.so.1") == 0)
               ? &linked
               : __real_dlopen(path, mode);
}

void *__wrap_dlsym(void *library, const char *name)
{
    static const struct {
        const char *name;
        void       *function;
    } functions[] = {
#define X(name) {#name, name},
        FUNCTIONS(X)
#undef X
    };

    if (library != &linked)
        return __real_dlsym(library, name);
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (strcmp(functions[i].name, name) == 0)
            return functions[i].function;
    return NULL;
}

int __wrap_dlclose(void *library)
{
    return library == &linked ? 0 : __real_dlclose(library);
}
