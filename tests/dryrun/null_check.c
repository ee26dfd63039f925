/* tests/dryrun/null_check.c: the stand-in libraries without PyTorch. Built and run by
 * tests/test_dryrun.sh with the stand-in preloaded, a limit of 64 MiB, and one argument: which
 * check. Exit code 0: it holds. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

typedef int (*fn)();

static void *library;

static void *get(const char *name)
{
    void *p = dlsym(library, name);

    if (!p) {
        printf("%s is missing\n", name);
        exit(1);
    }
    return p;
}

#define MIB ((size_t)1 << 20)
#define IS(got, wanted) \
    do { \
        long long g = (long long)(got), w = (long long)(wanted); \
        if (g != w) { \
            printf("line %d: %s is %lld, expected %lld\n", __LINE__, #got, g, w); \
            return 1; \
        } \
    } while (0)

/* The limit is 64 MiB: two allocations of 32 MiB fit, one byte more does not, and a free gives
 * it back. */
static int memory(void)
{
    int (*cudaMalloc)(void **, size_t)        = get("cudaMalloc");
    int (*cudaFree)(void *)                   = get("cudaFree");
    int (*cudaMemGetInfo)(size_t *, size_t *) = get("cudaMemGetInfo");
    int (*cudaGetLastError)(void)             = get("cudaGetLastError");
    void  *a, *b, *c;
    size_t free_bytes, total_bytes;

    IS(cudaMalloc(&a, 32 * MIB), 0);
    IS(cudaMalloc(&b, 32 * MIB), 0);
    IS(cudaMalloc(&c, 1), 2);
    IS(cudaGetLastError(), 2);
    IS(cudaGetLastError(), 0);
    IS(cudaMemGetInfo(&free_bytes, &total_bytes), 0);
    IS(free_bytes, 0);
    IS(total_bytes, 128 * MIB);
    IS(cudaFree(a), 0);
    IS(cudaFree(a), 1);
    IS(cudaMalloc(&c, 32 * MIB), 0);
    IS((char *)c != (char *)b, 1);
    return 0;
}

/* A fork may be told of another limit after somebody asked for the card: until it asks for the environment again, nothing changes. */
static int device(void)
{
    int (*cudaMalloc)(void **, size_t)        = get("cudaMalloc");
    int (*cudaMemGetInfo)(size_t *, size_t *) = get("cudaMemGetInfo");
    void (*set_device)(void)                  = get("vplan_null_set_device");
    void  *p;
    size_t free_bytes, total_bytes;

    IS(cudaMemGetInfo(&free_bytes, &total_bytes), 0);
    setenv("VPLAN_NULL_TOTAL_BYTES", "268435456", 1);
    setenv("VPLAN_NULL_LIMIT_BYTES", "134217728", 1);
    IS(cudaMemGetInfo(&free_bytes, &total_bytes), 0);
    IS(total_bytes, 128 * MIB);
    IS(cudaMalloc(&p, 96 * MIB), 2);
    set_device();
    IS(cudaMemGetInfo(&free_bytes, &total_bytes), 0);
    IS(total_bytes, 256 * MIB);
    IS(cudaMalloc(&p, 96 * MIB), 0);
    IS(cudaMalloc(&p, 33 * MIB), 2);
    return 0;
}

/* Less than 32 MiB rises, from there on addresses fall, each directly below the earlier one and on a
 * multiple of 32 MiB; what was freed is given again. */
static int addresses(void)
{
    int (*cudaMalloc)(uint64_t *, size_t) = get("cudaMalloc");
    int (*cudaFree)(uint64_t)             = get("cudaFree");
    uint64_t small, segment, large, below, again;

    IS(cudaMalloc(&small, 2 * MIB), 0);
    IS(cudaMalloc(&segment, 20 * MIB), 0);
    IS(segment - small, 2 * MIB);
    IS(cudaMalloc(&large, 34 * MIB), 0);
    IS(large % (32 * MIB), 0);
    IS(large > segment, 1);
    IS(cudaFree(small), 0);
    IS(cudaFree(segment), 0);
    IS(cudaFree(large), 0);
    IS(cudaMalloc(&large, 32 * MIB), 0);
    IS(cudaMalloc(&below, 32 * MIB), 0);
    IS(large - below, 32 * MIB);
    IS(cudaFree(large), 0);
    IS(cudaMalloc(&again, 32 * MIB), 0);
    IS(again == large, 1);
    IS(cudaFree(below), 0);
    IS(cudaMalloc(&again, 2 * MIB), 0);
    IS(again == small, 1);
    return 0;
}

/* Zeros from the device, except what was copied there and not worked on since. */
static int copies(void)
{
    int (*cudaMalloc)(void **, size_t)                   = get("cudaMalloc");
    int (*cudaMemcpy)(void *, const void *, size_t, int) = get("cudaMemcpy");
    int (*cudaMemset)(void *, int, size_t)               = get("cudaMemset");
    char *device;
    int   sent[4] = {1, 2, 3, 4}, got[4] = {9, 9, 9, 9};

    IS(cudaMalloc((void **)&device, MIB), 0);
    IS(cudaMemcpy(got, device, sizeof got, 2), 0);
    IS(got[0] | got[1] | got[2] | got[3], 0);
    IS(cudaMemcpy(device + 512, sent, sizeof sent, 1), 0);
    IS(cudaMemcpy(got, device + 516, 8, 2), 0);
    IS(got[0], 2);
    IS(got[1], 3);
    IS(cudaMemset(device, 0, MIB), 0);
    IS(cudaMemcpy(got, device + 516, 8, 2), 0);
    IS(got[0], 0);
    return 0;
}

/* Physical memory counts, addresses do not; it returns when neither handle nor mapping is left. */
static int virtual_memory(void)
{
    int (*reserve)(uint64_t *, size_t, size_t, uint64_t, unsigned long long) =
        get("cuMemAddressReserve");
    int (*create)(uint64_t *, size_t, const void *, unsigned long long) = get("cuMemCreate");
    int (*map)(uint64_t, size_t, size_t, uint64_t, unsigned long long)  = get("cuMemMap");
    int (*unmap)(uint64_t, size_t)                                      = get("cuMemUnmap");
    int (*release)(uint64_t)                                            = get("cuMemRelease");
    int (*release_range)(uint64_t, size_t)                              = get("cuMemAddressFree");
    uint64_t at, one, two;

    IS(reserve(&at, 1024 * MIB, 0, 0, 0), 0);
    IS(create(&one, 40 * MIB, NULL, 0), 0);
    IS(create(&two, 40 * MIB, NULL, 0), 2);
    IS(map(at, 40 * MIB, 0, one, 0), 0);
    IS(release(one), 0);
    IS(create(&two, 40 * MIB, NULL, 0), 2);
    IS(unmap(at, 40 * MIB), 0);
    IS(create(&two, 40 * MIB, NULL, 0), 0);
    IS(create(&one, MIB, NULL, 0), 1); /* not a multiple of the granularity */
    IS(release_range(at, 1024 * MIB), 0);
    IS(release_range(at, 1024 * MIB), 1);
    return 0;
}

/* A stream that waits for a capturing one joins the capture; a synchronisation in it is an
 * error. */
static int capture(void)
{
    int (*stream)(void **)                = get("cudaStreamCreate");
    int (*event)(void **)                 = get("cudaEventCreate");
    int (*record)(void *, void *)         = get("cudaEventRecord");
    int (*wait)(void *, void *, unsigned) = get("cudaStreamWaitEvent");
    int (*begin)(void *, int)             = get("cudaStreamBeginCapture");
    int (*end)(void *, void **)           = get("cudaStreamEndCapture");
    int (*status)(void *, int *)          = get("cudaStreamIsCapturing");
    int (*synchronize)(void *)            = get("cudaStreamSynchronize");
    void *a, *b, *e, *graph;
    int   s;

    IS(stream(&a), 0);
    IS(stream(&b), 0);
    IS(event(&e), 0);
    IS(begin(NULL, 0), 900);
    IS(begin(a, 0), 0);
    IS(status(b, &s), 0);
    IS(s, 0);
    IS(record(e, a), 0);
    IS(wait(b, e, 0), 0);
    IS(status(b, &s), 0);
    IS(s, 1);
    IS(synchronize(b), 900);
    IS(end(b, &graph), 900);
    IS(end(a, &graph), 0);
    IS(status(b, &s), 0);
    IS(s, 0);
    IS(synchronize(b), 0);
    return 0;
}

/* Ends the process with exit code 4 and the function's name. */
static int stub(void)
{
    fn f = (fn)get("cusolverDnSgetrf");

    f();
    return 0;
}

/* Host code that touches device memory faults. */
static int touch(void)
{
    int (*cudaMalloc)(void **, size_t) = get("cudaMalloc");
    volatile char *device;

    IS(cudaMalloc((void **)&device, MIB), 0);
    return *device;
}

/* The guard of host memory ends the process (exit 5): VPLAN_NULL_MEMINFO or _CGROUP says there
 * is little. */
static int guard(void)
{
    void (*start)(void) = get("vplan_null_guard");
    char *held          = malloc(80 * MIB);

    if (!held)
        return 1;
    memset(held, 1, 80 * MIB);
    start();
    sleep(5);
    return held[MIB] == 1 ? 0 : 1;
}

/* A CUDA runtime that is linked into a library begins with the driver's private tables. */
static int own_runtime(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    fn    table  = driver ? (fn)dlsym(driver, "cuGetExportTable") : NULL;

    if (!table)
        return 1;
    table(&driver, "0123456789abcdef");
    return 0;
}

typedef struct entry { /* vp_null_entry of dryrun/stand_in/null_internal.h */
    int32_t kind, type, compute, pad;
    int64_t m, n, k, batch;
} entry;

/* What is recorded of a step: products with their shapes, whichever call they come by, copies and waits, in order; and
 * nothing before or after. */
static int program(void)
{
    int (*cublasCreate)(void **)                               = get("cublasCreate_v2");
    int (*mode)(void *, int)                                   = get("cublasSetMathMode");
    int (*ltLayout)(void **, int, uint64_t, uint64_t, int64_t) = get("cublasLtMatrixLayoutCreate");
    int (*ltLayoutSet)(void *, int, const void *, size_t) = get("cublasLtMatrixLayoutSetAttribute");
    int (*ltDesc)(void **, int, int)                      = get("cublasLtMatmulDescCreate");
    int (*ltDescSet)(void *, int, const void *, size_t)   = get("cublasLtMatmulDescSetAttribute");
    int (*cudaMalloc)(void **, size_t)                    = get("cudaMalloc");
    int (*cudaMemcpy)(void *, const void *, size_t, int)  = get("cudaMemcpy");
    int (*wait)(void *)                                   = get("cudaStreamSynchronize");
    const entry *(*record)(int)                           = get("vplan_null_record");
    uint64_t (*recorded)(void)                            = get("vplan_null_recorded");
    fn sgemm = get("cublasSgemm_v2"), ex = get("cublasGemmEx"),
       strided = get("cublasGemmStridedBatchedEx");
    fn batched = get("cublasSgemmBatched"), gemv = get("cublasSgemv_v2"),
       matmul = get("cublasLtMatmul");
    void *h, *device, *a, *b, *d, *desc, *null = NULL;
    char  host[64];
    int   transposed = 1, three = 3;

    IS(cublasCreate(&h), 0);
    IS(cudaMalloc(&device, 1 << 20), 0);
    IS(sgemm(h, 0, 0, 9, 9, 9, null, null, 9, null, 9, null, null, 9),
       0); /* before: not recorded */
    const entry *e = record(1);
    IS(e != NULL, 1);
    IS(recorded(), 0);
    IS(sgemm(h, 0, 0, 2, 3, 5, null, null, 2, null, 5, null, null, 2), 0);
    IS(mode(h, 3), 0); /* CUBLAS_TF32_TENSOR_OP_MATH */
    IS(sgemm(h, 0, 0, 7, 11, 13, null, null, 7, null, 13, null, null, 7), 0);
    IS(ex(h, 1, 0, 17, 19, 23, null, null, 14, 23, null, 14, 23, null, null, 14, 17, 68, -1), 0);
    IS(strided(h, 0, 0, 4, 6, 8, null, null, 2, 4, 32LL, null, 2, 8, 48LL, null, null, 2, 4, 24LL,
               12, 68, -1),
       0);
    IS(batched(h, 0, 0, 4, 6, 8, null, null, 4, null, 8, null, null, 4, 5), 0);
    IS(gemv(h, 0, 10, 20, null, null, 10, null, 1, null, null, 1), 0);
    IS(ltDesc(&desc, 68, 0), 0);
    IS(ltDescSet(desc, 3, &transposed, sizeof transposed), 0); /* TRANSA: A is k x m */
    IS(ltLayout(&a, 14, 31, 29, 31), 0);
    IS(ltLayout(&b, 14, 31, 37, 31), 0);
    IS(ltLayout(&d, 14, 29, 37, 29), 0);
    IS(ltLayoutSet(d, 5, &three, sizeof three), 0); /* BATCH_COUNT */
    IS(matmul(null, desc, null, null, a, null, b, null, null, d, null, d, null, null, (size_t)0,
              null),
       0);
    IS(cudaMemcpy(device, host, 48, 1), 0);
    IS(cudaMemcpy(host, device, 40, 2), 0);
    IS(cudaMemcpy((char *)device + 4096, device, 56, 3), 0);
    IS(wait(NULL), 0);
    record(0);
    IS(sgemm(h, 0, 0, 9, 9, 9, null, null, 9, null, 9, null, null, 9), 0); /* after */
    /* kind, type, m, n, k, batch by hand; CUDA_R_32F 0, R_16F 2, R_16BF 14 */
    static const long long wanted[][6] = {
        {1, 0, 2, 3, 5, 1},  {1, 0, 7, 11, 13, 1}, {1, 14, 17, 19, 23, 1}, {1, 2, 4, 6, 8, 12},
        {1, 0, 4, 6, 8, 5},  {2, 0, 10, 1, 20, 1}, {1, 14, 29, 37, 31, 3}, {3, 0, 48, 0, 0, 0},
        {4, 0, 40, 0, 0, 0}, {5, 0, 56, 0, 0, 0},  {6, 1, 0, 0, 0, 0}, /* one stream: type 1 */
    };
    IS(recorded(), sizeof wanted / sizeof *wanted);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        IS(e[i].kind, wanted[i][0]);
        IS(e[i].type, wanted[i][1]);
        IS(e[i].m, wanted[i][2]);
        IS(e[i].n, wanted[i][3]);
        IS(e[i].k, wanted[i][4]);
        IS(e[i].batch, wanted[i][5]);
    }
    IS(e[0].compute, 0);
    IS(e[1].compute, 77); /* CUBLAS_COMPUTE_32F_FAST_TF32 */
    return 0;
}

static volatile int looks; /* at the end event of a collective, by a thread named as PyTorch's */
static volatile int looked, ended;

static void *look(void *ev)
{
    int (*query)(void *) = get("cudaEventQuery");

    prctl(PR_SET_NAME, "pt_nccl_watchdg");
    while (!ended) {
        if (looks > 0) {
            looked = query(ev);
            looks--;
        }
        usleep(1000);
    }
    return NULL;
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int answer(int n)
{
    looks = n;
    while (looks > 0)
        usleep(1000);
    return looked;
}

/* To that thread an asynchronous collective is done once the host has waited for the device, and the next one is not begun
 * before it has seen so; others, and one whose work is waited for, do not depend on it. */
static int watchdog(void)
{
    int (*stream_new)(void **)                          = get("cudaStreamCreate");
    int (*event_new)(void **)                           = get("cudaEventCreate");
    int (*event_record)(void *, void *)                 = get("cudaEventRecord");
    int (*stream_wait)(void *, void *, unsigned)        = get("cudaStreamWaitEvent");
    int (*query)(void *)                                = get("cudaEventQuery");
    int (*stream_sync)(void *)                          = get("cudaStreamSynchronize");
    int (*init)(void **, int, int, int, void *, void *) = get("ncclCommInitRankScalable");
    int (*reduce)(void *, void *, size_t, int, int, void *, void *) = get("ncclAllReduce");
    void     *s, *ev, *comm, *null = NULL;
    char      id[128] = "id";
    pthread_t thread;

    IS(init(&comm, 2, 0, 1, id, null) + stream_new(&s) + event_new(&ev), 0);
    IS(pthread_create(&thread, NULL, look, ev), 0);
    IS(reduce(null, null, 100, 7, 0, comm, s) + event_record(ev, s), 0);
    IS(answer(1), 600);
    IS(query(ev), 0);
    IS(stream_sync(null), 0);
    double began = seconds();
    IS(reduce(null, null, 100, 7, 0, comm, null), 0); /* nobody looks: it goes on all the same */
    IS(seconds() - began > 0.5 && seconds() - began < 5, 1);
    IS(answer(1), 0);
    IS(event_record(ev, null), 0);
    IS(answer(1), 600);
    IS(stream_sync(null), 0);
    IS(answer(2), 0);
    began = seconds();
    IS(reduce(null, null, 100, 7, 0, comm, s) + event_record(ev, s), 0); /* it has looked */
    IS(stream_sync(null) + stream_wait(null, ev, 0), 0);
    IS(reduce(null, null, 100, 7, 0, comm, s), 0); /* the work was waited for */
    IS(seconds() - began < 0.4, 1);
    ended = 1;
    pthread_join(thread, NULL);
    return 0;
}

/* What orders streams, and collectives with their bytes and ranks, those of a communicator that was split off too. */
static int order(void)
{
    int (*stream_new)(void **)                                 = get("cudaStreamCreate");
    int (*event_new)(void **)                                  = get("cudaEventCreate");
    int (*event_record)(void *, void *)                        = get("cudaEventRecord");
    int (*stream_wait)(void *, void *, unsigned)               = get("cudaStreamWaitEvent");
    int (*event_sync)(void *)                                  = get("cudaEventSynchronize");
    int (*all_sync)(void)                                      = get("cudaDeviceSynchronize");
    int (*init)(void **, int, int, int, void *, void *)        = get("ncclCommInitRankScalable");
    int (*split)(void *, int, int, void **, void *)            = get("ncclCommSplit");
    int (*count)(const void *, int *)                          = get("ncclCommCount");
    int (*user)(const void *, int *)                           = get("ncclCommUserRank");
    void (*split_ranks)(int)                                   = get("vplan_null_split_ranks");
    int (*gather)(void *, void *, size_t, int, void *, void *) = get("ncclAllGather");
    int (*reduce)(void *, void *, size_t, int, int, void *, void *) = get("ncclAllReduce");
    const entry *(*record)(int)                                     = get("vplan_null_record");
    uint64_t (*recorded)(void)                                      = get("vplan_null_recorded");
    void *s, *ev, *comm, *half, *same, *null = NULL;
    char  id[128] = "id";
    int   n, rank;

    IS(init(&comm, 8, 5, 1, id, null), 0);
    split_ranks(4);
    IS(split(comm, 1, 2, &half, null), 0);
    split_ranks(0); /* not said: the parent's */
    IS(split(comm, 1, 2, &same, null), 0);
    IS(count(half, &n) + user(half, &rank), 0);
    IS(n, 4);
    IS(rank, 2);
    IS(count(same, &n) + user(same, &rank), 0);
    IS(n, 8);
    IS(rank, 5);
    IS(stream_new(&s), 0);
    IS(event_new(&ev), 0);
    const entry *e = record(1);
    IS(event_record(ev, null), 0);
    IS(stream_wait(s, ev, 0), 0);
    IS(gather(null, null, 100, 9, half, s), 0); /* bf16: 2 bytes each */
    IS(reduce(null, null, 100, 8, 0, comm, s), 0);
    IS(event_sync(ev), 0);
    IS(all_sync(), 0);
    record(0);
    IS(recorded(), 6);
    IS(e[0].kind == 7 && e[0].m == (intptr_t)ev && e[0].n == 0, 1);
    IS(e[1].kind == 8 && e[1].m == (intptr_t)ev && e[1].n == (intptr_t)s, 1);
    IS(e[2].kind == 9 && e[2].type == 1 && e[2].compute == 4 && e[2].n == (intptr_t)s, 1);
    IS(e[2].m, 200);
    IS(e[3].kind == 9 && e[3].type == 0 && e[3].compute == 8, 1);
    IS(e[3].m, 800);
    IS(e[4].kind == 6 && e[4].type == 2 && e[4].m == (intptr_t)ev, 1);
    IS(e[5].kind == 6 && e[5].type == 0, 1);
    return 0;
}

/* What counts as work given to the card: a collective does, also one whose data stays as it is; bytes from the host
 * do not, however many. A value that was copied there is read back after that collective, and not after another. */
/* rows,columns,elements a line, of standard input: what cuSOLVER itself told (tests/golden/solver/svd_workspaces.csv). */
static int svd(void)
{
    int (*workspace)(void *, int, int, int, int, void *, int, void *, void *, int, void *, int,
                     int *, void *) = get("cusolverDnSgesvdj_bufferSize");
    void *none                      = NULL;
    int   m, n, wanted, told, n_lines = 0;

    while (scanf("%d,%d,%d", &m, &n, &wanted) == 3) {
        IS(workspace(none, 1, 1, m, n, none, m, none, none, m, none, n, &told, none), 0);
        IS(told, wanted);
        n_lines++;
    }
    IS(n_lines > 700, 1);
    IS(workspace(none, 1, 1, 65536, 65536, none, 65536, none, none, 65536, none, 65536, &told,
                 none),
       3);
    return 0;
}

static int work(void)
{
    enum { N_LAUNCH = 4 }; /* of the counters, in the order of vp_null_counters */
    int (*cudaMalloc)(void **, size_t)                   = get("cudaMalloc");
    int (*cudaMemcpy)(void *, const void *, size_t, int) = get("cudaMemcpy");
    int (*init)(void **, int, int, int, void *, void *)  = get("ncclCommInitRankScalable");
    int (*broadcast)(void *, void *, size_t, int, int, void *, void *) = get("ncclBroadcast");
    const uint64_t *(*counters)(void)                                  = get("vplan_null_counters");
    static char big[1 << 20];
    void       *device, *comm, *null = NULL;
    int         seven = 7, back = 0;

    /* one rank: PyTorch's own first communicator of several takes more than the 64 MiB of this test */
    IS(init(&comm, 1, 0, 1, big, null), 0);
    IS(cudaMalloc(&device, sizeof big), 0);
    uint64_t before = counters()[N_LAUNCH];
    IS(cudaMemcpy(device, big, sizeof big, 1), 0);
    IS(counters()[N_LAUNCH] - before, 0);
    IS(cudaMemcpy(device, &seven, sizeof seven, 1), 0);
    IS(broadcast(device, device, 1, 2, 0, comm, null), 0);
    IS(counters()[N_LAUNCH] - before, 1);
    IS(cudaMemcpy(&back, device, sizeof back, 2), 0);
    IS(back, 7);
    IS(broadcast((char *)device + 4096, device, 1, 2, 0, comm, null), 0);
    IS(counters()[N_LAUNCH] - before, 2);
    IS(cudaMemcpy(&back, device, sizeof back, 2), 0);
    IS(back, 0);
    return 0;
}

/* NCCL's own buffers, on a card of compute capability 9.0: by the ranks of the first communicator, and by the ranks
 * that messages go to, each counted once. */
static int messages(void)
{
    enum { OUTSIDE_BYTES = 7 }; /* of the counters */
    int (*init)(void **, int, int, int, void *, void *)     = get("ncclCommInitRankScalable");
    int (*destroy)(void *)                                  = get("ncclCommDestroy");
    int (*send)(void *, size_t, int, int, void *, void *)   = get("ncclSend");
    int (*recv)(void *, size_t, int, int, void *, void *)   = get("ncclRecv");
    int (*all)(void *, void *, size_t, int, void *, void *) = get("ncclAlltoAll");
    const uint64_t *(*counters)(void)                       = get("vplan_null_counters");
    const long long peer = 3280000000 / 7; /* 4.34 GB less 1.06 GB, 7 others */
    void           *comm, *other, *null = NULL;
    char            id[128] = "id";

    IS(init(&comm, 4, 1, 1, id, null), 0);
    IS(counters()[OUTSIDE_BYTES], 688000000);
    IS(send(null, 8, 7, 2, comm, null), 0);
    IS(recv(null, 8, 7, 2, comm, null), 0);
    IS(counters()[OUTSIDE_BYTES], 688000000 + peer);
    IS(send(null, 8, 7, 1, comm, null), 0); /* to itself */
    IS(send(null, 8, 7, 4, comm, null), 4); /* to nobody: ncclInvalidArgument */
    IS(counters()[OUTSIDE_BYTES], 688000000 + peer);
    IS(all(null, null, 8, 7, comm, null), 0);
    IS(counters()[OUTSIDE_BYTES], 688000000 + 3 * peer);
    IS(init(&other, 4, 1, 1, id, null), 0); /* its messages do not fit any more: 3 GiB in all */
    IS(send(null, 8, 7, 0, other, null), 0);
    IS(send(null, 8, 7, 2, other, null), 0);
    IS(send(null, 8, 7, 3, other, null), 1); /* ncclUnhandledCudaError */
    IS(destroy(other), 0);
    IS(destroy(comm), 0);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } checks[] = {
        {"memory", memory},
        {"device", device},
        {"addresses", addresses},
        {"copies", copies},
        {"virtual_memory", virtual_memory},
        {"capture", capture},
        {"program", program},
        {"work", work},
        {"svd", svd},
        {"messages", messages},
        {"order", order},
        {"watchdog", watchdog},
        {"stub", stub},
        {"touch", touch},
        {"guard", guard},
        {"own_runtime", own_runtime},
    };

    library = dlopen("libcudart.so.13", RTLD_NOW);
    if (!library) {
        printf("%s\n", dlerror());
        return 1;
    }
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (argc > 1 && strcmp(argv[1], checks[i].name) == 0)
            return checks[i].run();
    return 2;
}
