/* kernels/cpu/machine.c: how many threads kernels take, and which instructions. */
#include "kernels/cpu/cpu_internal.h"

#include <assert.h>
#include <cblas.h>
#include <malloc.h>
#include <omp.h>
#include <pthread.h>

enum { MOST_PER_CORE = 16 };

/* OpenBLAS's driver/others/blas_server.c: ends its threads, which keep their buffers mapped for
 * whoever asks next. In no header; other libraries of this interface have none. */
extern int blas_thread_shutdown_(void) __attribute__((weak));

static pthread_once_t once      = PTHREAD_ONCE_INIT;
static int            n_threads = 1;
static vp_cpu_isa     isa_found = VP_CPU_BASELINE, isa_most = VP_CPU_AVX512;

static void look(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2"))
        isa_found = VP_CPU_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
        isa_found = VP_CPU_AVX512;
#endif
    n_threads = omp_get_max_threads();
    /* OMP_NUM_THREADS=100000 ends in libgomp; more than a few for each core never help */
    if (n_threads > MOST_PER_CORE * omp_get_num_procs())
        n_threads = MOST_PER_CORE * omp_get_num_procs();
    /* The tiles are ours to hand out; inside one, a single thread makes the order fixed. */
    openblas_set_num_threads(1);
    /* OpenBLAS's own threads would take their buffers while blas_room.c counts what is free, and
     * a second heap of malloc's 64 MiB after it has counted. */
    if (blas_thread_shutdown_)
        blas_thread_shutdown_();
    mallopt(M_ARENA_MAX, 1);
}

vp_cpu_isa vp_cpu_isa_now(void)
{
    pthread_once(&once, look);
    return isa_found < isa_most ? isa_found : isa_most;
}

void vp_cpu_isa_limit(vp_cpu_isa most)
{
    assert(most >= VP_CPU_BASELINE && most <= VP_CPU_AVX512);
    isa_most = most;
}

int vp_cpu_threads(void)
{
    pthread_once(&once, look);
    return n_threads;
}

void vp_cpu_set_threads(int n)
{
    assert(n >= 1);
    pthread_once(&once, look);
    n_threads = n;
}
