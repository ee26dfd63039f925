/* dryrun/stand_in/null_cudnn.c: cuDNN and NVRTC by the real libraries, asked without a device.
 *
 * Since 9.8 cuDNN answers heuristics, support checks and workspace sizes for a card that is only
 * described to it (a DEVICEPROP descriptor made from JSON). PyTorch's convolutions and attention
 * ask for plans through a handle; here the handle is ours, wherever cuDNN is given one it gets
 * the description instead, and a plan that is executed does nothing. What cuDNN can only say
 * about a real handle (recurrent layers, batch norm, CTC loss, dropout states) is left to the
 * generated stubs, which end the run by name; the probe keeps PyTorch from calling them. NVRTC
 * compiles on the host and needs no card: its calls go to the real one. */
#define _GNU_SOURCE
#include "dryrun/stand_in/null_internal.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define E VP_NULL_EXPORT

/* cudnn_graph.h: descriptor kinds, attributes and types in use. */
enum {
    KIND_ENGINE                = 2,
    KIND_ENGINEHEUR            = 4,
    KIND_PLAN                  = 5,
    KIND_DEVICEPROP            = 38,
    ATTR_ENGINEHEUR_DEVICEPROP = 204,
    ATTR_PLAN_HANDLE           = 400,
    ATTR_PLAN_WORKSPACE        = 402,
    ATTR_PLAN_DEVICEPROP       = 407,
    ATTR_GRAPH_HANDLE          = 800,
    ATTR_ENGINE_DEVICEPROP     = 1307,
    ATTR_DEVICEPROP_HANDLE     = 2701,
    ATTR_DEVICEPROP_JSON       = 2702,
    TYPE_DESCRIPTOR            = 15,
    TYPE_CHAR                  = 24,
    OLDEST_DEVICELESS          = 90800,
    NOT_INITIALIZED            = 1001
};

typedef struct handle {
    void *stream;
} handle;

static void        *cudnn, *nvrtc; /* of dlopen; NULL: off */
static void        *card;          /* the DEVICEPROP descriptor */
static char         why[512];      /* cuDNN is off */
static __thread int inside;        /* depth of calls into cuDNN */

/* A descriptor takes its device when it is finalised. Those between creation and that are few. */
enum { MAX_PENDING = 256 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    void *descriptor;
    int   kind;
} pending[MAX_PENDING];

bool vp_null_inside_cudnn(void)
{
    return inside > 0;
}

bool vp_null_refused_to_cudnn(void)
{
    if (inside > 0)
        vp_null_count.n_cudnn_refused++;
    return inside > 0;
}

static void *real(void *library, const char *soname, const char *name)
{
    void *f = library ? dlsym(library, name) : NULL;

    if (!f)
        vp_null_unsupported(soname, name,
                            library ? "the library here does not have it"
                                    : "the library was not found or is off");
    return f;
}

#define PASS(library, soname, name, parameters, arguments) \
    E int name parameters; \
    int name   parameters \
    { \
        static int(*f) parameters; \
        int rc; \
        if (!f) \
            f = (int(*) parameters)real(library, soname, #name); \
        inside++; \
        rc = f arguments; \
        inside--; \
        return rc; \
    }

/* ---- opening
 * ------------------------------------------------------------------------------------------ */

typedef int (*create_f)(int, void **);
typedef int (*set_f)(void *, int, int, int64_t, const void *);
typedef int (*finalize_f)(void *);

/* The card for cuDNN, in the form its own descriptor prints. Clocks and PCI id are not in our
 * table: 1.5 GHz and 0 for all cards. */
static int card_json(char *text, size_t size)
{
    const vp_null_device *d = vp_null_device_get();

    return snprintf(
        text, size,
        "{\"version\":1,\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":13000,\"totalGlobalMem\":%llu,"
        "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,"
        "\"multiProcessorCount\":%d,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"
        "\"maxSharedMemoryPerBlockOptin\":%d,\"reservedSharedMemoryPerBlock\":%d,\"maxRegistersPerSM\":65536,"
        "\"maxCtasPerSM\":%d,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":%d,\"pciDeviceId\":0,"
        "\"isTccDriver\":0,\"supportCoopLaunch\":1,\"smClockRateKHz\":1500000,\"memClockRateKHz\":1500000,"
        "\"l2CacheSize\":%d,\"deviceName\":\"%s\"}",
        d->cc_major * 100 + d->cc_minor * 10, (unsigned long long)d->total_bytes, d->sm_count,
        d->smem_optin_bytes, d->cc_major >= 8 ? 1024 : 0, d->blocks_per_sm, d->threads_per_sm,
        d->l2_bytes, d->name);
}

static bool describe_card(void)
{
    create_f   create   = (create_f)dlsym(cudnn, "cudnnBackendCreateDescriptor");
    set_f      set      = (set_f)dlsym(cudnn, "cudnnBackendSetAttribute");
    finalize_f finalize = (finalize_f)dlsym(cudnn, "cudnnBackendFinalize");
    char       text[1200];
    int        n = card_json(text, sizeof text), rc = -1;

    if (create && set && finalize && n > 0 && n < (int)sizeof text) {
        inside++;
        rc = create(KIND_DEVICEPROP, &card);
        if (!rc)
            rc = set(card, ATTR_DEVICEPROP_JSON, TYPE_CHAR, n + 1, text);
        if (!rc)
            rc = finalize(card);
        inside--;
    }
    if (rc)
        snprintf(why, sizeof why, "it does not take the description of the card (status %d)", rc);
    return rc == 0;
}

E int         vplan_null_cudnn_open(const char *cudnn_path, const char *nvrtc_path);
E const char *vplan_null_cudnn_why(void);

/* Called once by the probe before PyTorch can ask. The version of cuDNN, as it says it, or 0:
 * cuDNN stays off, and vplan_null_cudnn_why() says why. */
int vplan_null_cudnn_open(const char *cudnn_path, const char *nvrtc_path)
{
    size_t (*version)(void) = NULL;
    void *library           = NULL;
    int   n                 = 0;

    if (cudnn)
        return (int)((size_t(*)(void))dlsym(cudnn, "cudnnGetVersion"))();
    if (*nvrtc_path)
        nvrtc = dlopen(nvrtc_path, RTLD_NOW | RTLD_LOCAL);
    if (!*cudnn_path)
        snprintf(why, sizeof why, "no libcudnn.so.9 was found");
    else if (!nvrtc)
        snprintf(why, sizeof why, "its kernels need NVRTC, which was not found");
    else if (!(library = dlopen(cudnn_path, RTLD_NOW | RTLD_LOCAL)) ||
             !(version = (size_t(*)(void))dlsym(library, "cudnnGetVersion")))
        snprintf(why, sizeof why, "it does not load: %s", dlerror());
    else if (version() < OLDEST_DEVICELESS)
        snprintf(why, sizeof why, "version %zu answers nothing without a device (9.8 and newer do)",
                 version());
    else
        n = (int)version();
    if (n) {
        cudnn = library;
        if (!describe_card()) {
            cudnn = NULL;
            n     = 0;
        }
    }
    return n;
}

const char *vplan_null_cudnn_why(void)
{
    return why;
}

/* ---- the handle
 * ------------------------------------------------------------------------------------------ */

E int cudnnCreate(handle **h);
int   cudnnCreate(handle **h)
{
    real(cudnn, "libcudnn", "cudnnCreate");
    *h = calloc(1, sizeof **h);
    return *h ? 0 : 2;
}

E int cudnnDestroy(handle *h);
int   cudnnDestroy(handle *h)
{
    free(h);
    return 0;
}

E int cudnnSetStream(handle *h, void *stream);
int   cudnnSetStream(handle *h, void *stream)
{
    h->stream = stream;
    return 0;
}

E int cudnnGetStream(handle *h, void **stream);
int   cudnnGetStream(handle *h, void **stream)
{
    *stream = h->stream;
    return 0;
}

/* ---- descriptors
 * ------------------------------------------------------------------------------------------- */

static int device_attribute(int kind)
{
    return kind == KIND_ENGINE       ? ATTR_ENGINE_DEVICEPROP
           : kind == KIND_ENGINEHEUR ? ATTR_ENGINEHEUR_DEVICEPROP
           : kind == KIND_PLAN       ? ATTR_PLAN_DEVICEPROP
                                     : 0;
}

static void pending_add(void *descriptor, int kind)
{
    int at;

    pthread_mutex_lock(&lock);
    for (at = 0; at < MAX_PENDING && pending[at].descriptor; at++)
        ;
    if (at < MAX_PENDING) {
        pending[at].descriptor = descriptor;
        pending[at].kind       = kind;
    }
    pthread_mutex_unlock(&lock);
    if (at == MAX_PENDING)
        vp_null_unsupported("libcudnn", "cudnnBackendCreateDescriptor",
                            "too many that are not finalised");
}

static int pending_take(void *descriptor)
{
    int kind = -1;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_PENDING && kind < 0; i++)
        if (pending[i].descriptor == descriptor) {
            kind                  = pending[i].kind;
            pending[i].descriptor = NULL;
        }
    pthread_mutex_unlock(&lock);
    return kind;
}

E int cudnnBackendCreateDescriptor(int kind, void **out);
int   cudnnBackendCreateDescriptor(int kind, void **out)
{
    create_f f = (create_f)real(cudnn, "libcudnn", "cudnnBackendCreateDescriptor");
    int      rc;

    inside++;
    rc = f(kind, out);
    inside--;
    if (rc == 0 && device_attribute(kind))
        pending_add(*out, kind);
    return rc;
}

E int cudnnBackendDestroyDescriptor(void *descriptor);
int   cudnnBackendDestroyDescriptor(void *descriptor)
{
    finalize_f f = (finalize_f)real(cudnn, "libcudnn", "cudnnBackendDestroyDescriptor");

    pending_take(descriptor);
    return f(descriptor);
}

E int cudnnBackendSetAttribute(void *descriptor, int name, int type, int64_t n, const void *values);
int   cudnnBackendSetAttribute(void *descriptor, int name, int type, int64_t n, const void *values)
{
    set_f f  = (set_f)real(cudnn, "libcudnn", "cudnnBackendSetAttribute");
    int   rc = 0;

    if (name == ATTR_DEVICEPROP_HANDLE)
        vp_null_unsupported("libcudnn", "cudnnBackendSetAttribute",
                            "device properties of a handle");
    if (name != ATTR_PLAN_HANDLE && name != ATTR_GRAPH_HANDLE) {
        inside++;
        rc = f(descriptor, name, type, n, values);
        inside--;
    }
    return rc;
}

E int cudnnBackendFinalize(void *descriptor);
int   cudnnBackendFinalize(void *descriptor)
{
    finalize_f f    = (finalize_f)real(cudnn, "libcudnn", "cudnnBackendFinalize");
    set_f      set  = (set_f)real(cudnn, "libcudnn", "cudnnBackendSetAttribute");
    int        kind = pending_take(descriptor), rc = 0;

    inside++;
    if (kind >= 0)
        rc = set(descriptor, device_attribute(kind), TYPE_DESCRIPTOR, 1, &card);
    if (rc == 0)
        rc = f(descriptor);
    inside--;
    if (rc && kind >= 0)
        pending_add(descriptor, kind); /* the caller may mend it and try again */
    if (kind == KIND_PLAN && rc == 0)
        vp_null_count.n_cudnn_plan++;
    return rc;
}

E int cudnnBackendGetAttribute(void *descriptor, int name, int type, int64_t n_asked, int64_t *n,
                               void *values);
int   cudnnBackendGetAttribute(void *descriptor, int name, int type, int64_t n_asked, int64_t *n,
                               void *values)
{
    static int (*f)(void *, int, int, int64_t, int64_t *, void *);
    int64_t bytes;
    int     rc;

    if (!f)
        f = (int (*)(void *, int, int, int64_t, int64_t *, void *))real(cudnn, "libcudnn",
                                                                        "cudnnBackendGetAttribute");
    inside++;
    rc = f(descriptor, name, type, n_asked, n, values);
    inside--;
    if (rc == 0 && name == ATTR_PLAN_WORKSPACE && values && n_asked == 1) {
        memcpy(&bytes, values, sizeof bytes);
        if (bytes > 0 && (uint64_t)bytes > vp_null_count.cudnn_workspace_peak)
            vp_null_count.cudnn_workspace_peak = (uint64_t)bytes;
    }
    return rc;
}

/* A plan's kernels write device data only. */
VP_NULL_WORK(cudnnBackendExecute)

E size_t cudnnGetVersion(void);
size_t   cudnnGetVersion(void)
{
    return cudnn ? ((size_t(*)(void))real(cudnn, "libcudnn", "cudnnGetVersion"))() : 91900;
}

E size_t cudnnGetCudartVersion(void);
size_t   cudnnGetCudartVersion(void)
{
    return cudnn ? ((size_t(*)(void))real(cudnn, "libcudnn", "cudnnGetCudartVersion"))() : 13000;
}

E int cudnnGetProperty(int property, int *value);
int   cudnnGetProperty(int property, int *value)
{
    size_t version = cudnnGetVersion();

    *value = (int)(property == 0   ? version / 10000
                   : property == 1 ? version / 100 % 100
                                   : version % 100);
    return 0;
}

E const char *cudnnGetErrorString(int e);
const char   *cudnnGetErrorString(int e)
{
    return cudnn    ? ((const char *(*)(int))real(cudnn, "libcudnn", "cudnnGetErrorString"))(e)
           : e == 0 ? "CUDNN_STATUS_SUCCESS"
                    : "CUDNN_STATUS_NOT_SUPPORTED";
}

E void cudnnGetLastErrorString(char *text, size_t size);
void   cudnnGetLastErrorString(char *text, size_t size)
{
    if (cudnn)
        ((void (*)(char *, size_t))real(cudnn, "libcudnn", "cudnnGetLastErrorString"))(text, size);
    else if (size)
        *text = '\0';
}

/* ---- NVRTC
 * --------------------------------------------------------------------------------------------------- */

E int nvrtcVersion(int *major, int *minor);
int   nvrtcVersion(int *major, int *minor)
{
    if (nvrtc)
        return ((int (*)(int *, int *))real(nvrtc, "libnvrtc", "nvrtcVersion"))(major, minor);
    *major = 13;
    *minor = 0;
    return 0;
}

E const char *nvrtcGetErrorString(int e);
const char   *nvrtcGetErrorString(int e)
{
    return ((const char *(*)(int))real(nvrtc, "libnvrtc", "nvrtcGetErrorString"))(e);
}

#define NVRTC(name, parameters, arguments) PASS(nvrtc, "libnvrtc", name, parameters, arguments)

NVRTC(nvrtcCreateProgram,
      (void **p, const char *text, const char *name, int n, const char *const *headers,
       const char *const *names),
      (p, text, name, n, headers, names))
NVRTC(nvrtcDestroyProgram, (void **p), (p))
NVRTC(nvrtcCompileProgram, (void *p, int n, const char *const *options), (p, n, options))
NVRTC(nvrtcAddNameExpression, (void *p, const char *name), (p, name))
NVRTC(nvrtcGetLoweredName, (void *p, const char *name, const char **lowered), (p, name, lowered))
NVRTC(nvrtcGetPTXSize, (void *p, size_t *n), (p, n))
NVRTC(nvrtcGetPTX, (void *p, char *text), (p, text))
NVRTC(nvrtcGetCUBINSize, (void *p, size_t *n), (p, n))
NVRTC(nvrtcGetCUBIN, (void *p, char *data), (p, data))
NVRTC(nvrtcGetProgramLogSize, (void *p, size_t *n), (p, n))
NVRTC(nvrtcGetProgramLog, (void *p, char *text), (p, text))
NVRTC(nvrtcGetNumSupportedArchs, (int *n), (n))
NVRTC(nvrtcGetSupportedArchs, (int *archs), (archs))
NVRTC(nvrtcGetLTOIRSize, (void *p, size_t *n), (p, n))
NVRTC(nvrtcGetLTOIR, (void *p, char *data), (p, data))

/* cuDNN asks for this entry, which NVIDIA does not document, and goes without where it is
 * missing, saying so on standard error. At most eight arguments, all integers or pointers, pass
 * through as they are. */
E long __nvrtcCPEx(long a, long b, long c, long d, long e, long f, long g, long h);
long   __nvrtcCPEx(long a, long b, long c, long d, long e, long f, long g, long h)
{
    return ((long (*)(long, long, long, long, long, long, long, long))real(
        nvrtc, "libnvrtc", "__nvrtcCPEx"))(a, b, c, d, e, f, g, h);
}
