/* tests/dryrun/count_launches.c: preloaded before the stand-in, counts the calls by which a process gives a card work: launches,
 * products, sets of memory and collectives, each as it passes. A call inside a call is none of the process's.
 *     cc -D_GNU_SOURCE -shared -fPIC -O2 -o count.so count_launches.c -ldl; see count_program.py */
#include <dlfcn.h>
#include <string.h>

static unsigned long n_calls;
static __thread int  depth;

unsigned long vplan_count_launches(void);
unsigned long vplan_count_launches(void)
{
    return __atomic_load_n(&n_calls, __ATOMIC_RELAXED);
}

typedef long word;
typedef word call(word, word, word, word, word, word, word, word, word, word, word, word, word,
                  word, word, word, word, word, word, word, word, word, word, word);

/* Whole numbers and pointers only: registers and stack are passed on as they came. */
#define COUNTED(name) \
    call name; \
    word name(word a, word b, word c, word d, word e, word f, word g, word h, word i, word j, \
              word k, word l, word m, word n, word o, word p, word q, word r, word s, word t, \
              word u, word v, word w, word x) \
    { \
        static call *real; \
        if (!real) \
            real = (call *)dlsym(RTLD_NEXT, #name); \
        if (!depth++) \
            __atomic_add_fetch(&n_calls, 1, __ATOMIC_RELAXED); \
        word out = real(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x); \
        depth--; \
        return out; \
    }

COUNTED(
    __cudaPushCallConfiguration) /* of <<<...>>>: the stand-in answers that the launch behind it is to be left out */
COUNTED(cudaLaunchKernelExC)
COUNTED(cudaLaunchCooperativeKernel)
COUNTED(cuLaunchKernel)
COUNTED(cuLaunchKernelEx)
COUNTED(cublasSgemm_v2)
COUNTED(cublasSgemv_v2)
COUNTED(cublasSgemmEx)
COUNTED(cublasGemmEx)
COUNTED(cublasGemmBatchedEx)
COUNTED(cublasGemmStridedBatchedEx)
COUNTED(cublasSgemmStridedBatched)
COUNTED(cublasLtMatmul)
COUNTED(cudaMemsetAsync)
COUNTED(cudaMemset)
COUNTED(ncclAllReduce)
COUNTED(ncclAllGather)
COUNTED(ncclReduceScatter)
COUNTED(ncclReduce)
COUNTED(ncclBroadcast)
COUNTED(ncclSend)
COUNTED(ncclRecv)

/* Triton looks the driver's functions up in the library. Who asks for what comes next in the order of
 * libraries is seen by its return address: the call must stay the last one, which -O2 makes a jump. */
void *dlsym(void *library, const char *name)
{
    static void *(*real)(void *, const char *);

    if (!real)
        real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (library != RTLD_NEXT && strcmp(name, "cuLaunchKernel") == 0)
        return (void *)cuLaunchKernel;
    if (library != RTLD_NEXT && strcmp(name, "cuLaunchKernelEx") == 0)
        return (void *)cuLaunchKernelEx;
    return real(library, name);
}

/* A copy within the card is work too; others are counted by their bytes. */
enum { TO_DEVICE = 1, FROM_DEVICE = 2, DEVICE_TO_DEVICE = 3 };

static unsigned long copied_bytes[DEVICE_TO_DEVICE + 1];

unsigned long vplan_count_copied(int kind);
unsigned long vplan_count_copied(int kind)
{
    return __atomic_load_n(&copied_bytes[kind], __ATOMIC_RELAXED);
}

int cudaMemcpyAsync(void *to, const void *from, unsigned long bytes, int kind, void *stream);
int cudaMemcpyAsync(void *to, const void *from, unsigned long bytes, int kind, void *stream)
{
    static int (*real)(void *, const void *, unsigned long, int, void *);

    if (!real)
        real = (int (*)(void *, const void *, unsigned long, int, void *))dlsym(RTLD_NEXT,
                                                                                "cudaMemcpyAsync");
    if (!depth && kind == DEVICE_TO_DEVICE)
        __atomic_add_fetch(&n_calls, 1, __ATOMIC_RELAXED);
    if (kind >= TO_DEVICE && kind <= FROM_DEVICE)
        __atomic_add_fetch(&copied_bytes[kind], bytes, __ATOMIC_RELAXED);
    return real(to, from, bytes, kind, stream);
}
