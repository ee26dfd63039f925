/* dryrun/stand_in/null_runtime_kernel.c: libcudart 12 and 13, kernels: fat binaries and which of their
 * code the card would run, occupancy, launches. */
#define _GNU_SOURCE
#include "dryrun/stand_in/null_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define E VP_NULL_EXPORT

/* A fat binary: the wrapper that __cudaRegisterFatBinary gets, then a header and entries, each a
 * cubin (kind 2) or PTX (kind 1) for one architecture. Layout as cuobjdump shows it;
 * fatbinary_section.h has the wrapper. */
typedef struct fat_wrapper {
    int         magic, version;
    const void *data;
} fat_wrapper;

enum { WRAPPER_MAGIC = 0x466243b1, MAX_ARCHES = 24 };
#define FAT_MAGIC 0xBA55ED50u

typedef struct module {
    int n_cubin, n_ptx;
    int cubin[MAX_ARCHES], ptx[MAX_ARCHES]; /* 90 for sm_90 */
    int binary_version, ptx_version;        /* what this device would run; 0: nothing */
} module;

typedef struct function {
    const void *host;
    module     *owner;
} function;

static pthread_mutex_t module_lock = PTHREAD_MUTEX_INITIALIZER;
static function       *functions;
static size_t          n_functions, cap_functions;
static bool            functions_sorted;

static void module_read(module *m, const char *data)
{
    const vp_null_device *dev = vp_null_device_get();
    int                   cc  = dev->cc_major * 10 + dev->cc_minor;
    uint32_t              magic;
    uint16_t              header_bytes;
    uint64_t              fat_bytes, at;

    memcpy(&magic, data, 4);
    memcpy(&header_bytes, data + 6, 2);
    memcpy(&fat_bytes, data + 8, 8);
    if (magic != FAT_MAGIC)
        return;
    for (at = header_bytes; at + 64 <= header_bytes + fat_bytes;) {
        uint16_t kind;
        uint32_t entry_header, arch;
        uint64_t entry_bytes;

        memcpy(&kind, data + at, 2);
        memcpy(&entry_header, data + at + 4, 4);
        memcpy(&entry_bytes, data + at + 8, 8);
        memcpy(&arch, data + at + 28, 4);
        if (entry_header < 64 || (kind != 1 && kind != 2))
            break;
        if (kind == 2 && m->n_cubin < MAX_ARCHES)
            m->cubin[m->n_cubin++] = (int)arch;
        if (kind == 1 && m->n_ptx < MAX_ARCHES)
            m->ptx[m->n_ptx++] = (int)arch;
        at += entry_header + entry_bytes;
    }
    /* A cubin runs on its own major version at the same or a higher minor one; PTX is compiled for
     * anything newer (CUDA C Programming Guide, "Binary" and "PTX Compatibility"). */
    for (int i = 0; i < m->n_cubin; i++)
        if (m->cubin[i] / 10 == cc / 10 && m->cubin[i] <= cc && m->cubin[i] > m->binary_version)
            m->binary_version = m->ptx_version = m->cubin[i];
    if (!m->binary_version)
        for (int i = 0; i < m->n_ptx; i++)
            if (m->ptx[i] <= cc && m->ptx[i] > m->ptx_version) {
                m->ptx_version    = m->ptx[i];
                m->binary_version = cc;
            }
}

E void **__cudaRegisterFatBinary(void *wrapper);
void   **__cudaRegisterFatBinary(void *wrapper)
{
    fat_wrapper *w = wrapper;
    module      *m = calloc(1, sizeof *m);

    if (m && w && w->magic == WRAPPER_MAGIC && w->data)
        module_read(m, w->data);
    return (void **)m;
}

E void __cudaRegisterFatBinaryEnd(void **m);
void   __cudaRegisterFatBinaryEnd(void **m)
{
    (void)m;
}

E void __cudaUnregisterFatBinary(void **m);
void   __cudaUnregisterFatBinary(void **m)
{
    (void)m; /* functions still point to it; it goes with the process */
}

E char __cudaInitModule(void **m);
char   __cudaInitModule(void **m)
{
    (void)m;
    return 1;
}

E void __cudaRegisterFunction(void **owner, const void *host, char *device_fun,
                              const char *device_name, int thread_limit, void *tid, void *bid,
                              void *b_dim, void *g_dim, int *w_size);
void   __cudaRegisterFunction(void **owner, const void *host, char *device_fun,
                              const char *device_name, int thread_limit, void *tid, void *bid,
                              void *b_dim, void *g_dim, int *w_size)
{
    (void)device_fun, (void)device_name, (void)thread_limit, (void)tid, (void)bid, (void)b_dim;
    (void)g_dim, (void)w_size;
    pthread_mutex_lock(&module_lock);
    if (n_functions == cap_functions) {
        size_t    cap = cap_functions ? 2 * cap_functions : 4096;
        function *f   = realloc(functions, cap * sizeof *f);

        if (f) {
            functions     = f;
            cap_functions = cap;
        }
    }
    if (n_functions < cap_functions)
        functions[n_functions++] = (function){.host = host, .owner = (module *)owner};
    functions_sorted = false;
    pthread_mutex_unlock(&module_lock);
}

E void __cudaRegisterVar(void);
void   __cudaRegisterVar(void)
{
}

E void __cudaRegisterManagedVar(void);
void   __cudaRegisterManagedVar(void)
{
}

static int function_order(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const function *)a)->host,
              y = (uintptr_t)((const function *)b)->host;

    return (x > y) - (x < y);
}

static const module *module_of(const void *host)
{
    function  key = {.host = host};
    function *found;

    pthread_mutex_lock(&module_lock);
    if (!functions_sorted) {
        qsort(functions, n_functions, sizeof *functions, function_order);
        functions_sorted = true;
    }
    found = n_functions ? bsearch(&key, functions, n_functions, sizeof *functions, function_order)
                        : NULL;
    pthread_mutex_unlock(&module_lock);
    return found ? found->owner : NULL;
}

typedef struct func_attributes {
    size_t shared_bytes, const_bytes, local_bytes;
    int max_threads, n_regs, ptx_version, binary_version, cache_mode, max_dynamic_shared, carveout;
    int cluster[6];
} func_attributes;

/* Registers and static shared memory would have to be read out of the compressed cubin. A launch
 * bound that comes from them changes grids, never what PyTorch itself allocates, with the exception
 * of CUB's multi-block scratch, which is bounded by threads per multiprocessor. */
E int cudaFuncGetAttributes(func_attributes *a, const void *host);
int   cudaFuncGetAttributes(func_attributes *a, const void *host)
{
    const vp_null_device *dev = vp_null_device_get();
    const module         *m   = module_of(host);

    memset(a, 0, sizeof *a);
    a->max_threads        = 1024;
    a->n_regs             = 32;
    a->max_dynamic_shared = 49152;
    a->ptx_version = a->binary_version = dev->cc_major * 10 + dev->cc_minor;
    if (m && (m->n_cubin || m->n_ptx)) {
        if (!m->binary_version) {
            vp_null_count.n_no_image++;
            return vp_null_failed(VP_NULL_NO_KERNEL_IMAGE);
        }
        a->ptx_version    = m->ptx_version;
        a->binary_version = m->binary_version;
    }
    return VP_NULL_OK;
}

VP_NULL_NOP(cudaFuncSetAttribute)
VP_NULL_NOP(cudaFuncSetCacheConfig)

E int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int threads,
                                                             size_t smem, unsigned flags);
int   cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int threads,
                                                             size_t smem, unsigned flags)
{
    const vp_null_device *dev = vp_null_device_get();

    (void)f;
    (void)flags;
    *n = threads > 0 ? dev->threads_per_sm / threads : 1;
    if (smem && (size_t)*n > (size_t)dev->smem_per_sm_bytes / smem)
        *n = (int)((size_t)dev->smem_per_sm_bytes / smem);
    if (*n > dev->blocks_per_sm)
        *n = dev->blocks_per_sm;
    if (*n < 1)
        *n = 1;
    return VP_NULL_OK;
}

E int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int threads,
                                                    size_t smem);
int   cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int threads, size_t smem)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(n, f, threads, smem, 0);
}

/* The compiler's <<<>>> pushes a configuration and calls the kernel's host stub only when that
 * returns 0: a 1 skips the launch before its arguments are packed. */
E unsigned __cudaPushCallConfiguration(void);
unsigned   __cudaPushCallConfiguration(void)
{
    vp_null_work();
    return 1;
}

E int __cudaPopCallConfiguration(void);
int   __cudaPopCallConfiguration(void)
{
    return vp_null_failed(VP_NULL_INVALID_VALUE);
}

E int __cudaGetKernel(void **kernel, const void *host);
int   __cudaGetKernel(void **kernel, const void *host)
{
    *kernel = (void *)(uintptr_t)host;
    return VP_NULL_OK;
}

VP_NULL_WORK(__cudaLaunchKernel)
VP_NULL_WORK(cudaLaunchKernel)
VP_NULL_WORK(cudaLaunchKernelExC)
VP_NULL_WORK(cudaLaunchCooperativeKernel)
