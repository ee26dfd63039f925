/* dryrun/stand_in/null_nccl.c: NCCL as rank R of N, alone. A collective moves device data only,
 * so it returns at once; the device memory a communicator takes is counted by a constant and
 * said to be assumed. */
#include "dryrun/stand_in/null_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define E VP_NULL_EXPORT

typedef struct unique_id {
    char bytes[128];
} unique_id;

typedef struct comm {
    int n_ranks, rank;
} comm;

enum { NCCL_UNHANDLED_CUDA = 1, NCCL_SYSTEM = 2, NCCL_INVALID_ARGUMENT = 4 };

/* Device memory of the first communicator: 544 MB with two ranks, 688 MB with more (A100,
 * reported in NVIDIA/nccl#964). Later ones share the proxy's and most transport buffers; what
 * they add was seen between 0 and 4 GB and is not counted. */
#define FIRST_COMM_BYTES(n_ranks) ((n_ranks) < 2 ? 0 : (n_ranks) == 2 ? 544000000u : 688000000u)

static int comm_new(comm **out, int n_ranks, int rank)
{
    if (n_ranks < 1 || rank < 0 || rank >= n_ranks)
        return NCCL_INVALID_ARGUMENT;
    *out = calloc(1, sizeof **out);
    if (!*out)
        return NCCL_SYSTEM;
    (*out)->n_ranks = n_ranks;
    (*out)->rank    = rank;
    if (__atomic_fetch_add(&vp_null_count.n_communicator, 1, __ATOMIC_RELAXED) == 0 &&
        vp_null_outside_take(FIRST_COMM_BYTES(n_ranks)) != VP_NULL_OK) {
        free(*out);
        *out = NULL;
        return NCCL_UNHANDLED_CUDA;
    }
    return 0;
}

E int ncclGetVersion(int *v);
int   ncclGetVersion(int *v)
{
    *v = 22809;
    return 0;
}

E int ncclGetUniqueId(unique_id *id);
int   ncclGetUniqueId(unique_id *id)
{
    memset(id, 0x76, sizeof *id);
    return 0;
}

E const char *ncclGetErrorString(int e);
const char   *ncclGetErrorString(int e)
{
    return e == 0                     ? "no error"
           : e == NCCL_UNHANDLED_CUDA ? "unhandled cuda error"
           : e == NCCL_SYSTEM         ? "unhandled system error"
                                      : "invalid argument";
}

E const char *ncclGetLastError(comm *c);
const char   *ncclGetLastError(comm *c)
{
    (void)c;
    return "";
}

E int ncclCommInitRank(comm **out, int n_ranks, unique_id id, int rank);
int   ncclCommInitRank(comm **out, int n_ranks, unique_id id, int rank)
{
    (void)id;
    return comm_new(out, n_ranks, rank);
}

E int ncclCommInitRankConfig(comm **out, int n_ranks, unique_id id, int rank, void *config);
int   ncclCommInitRankConfig(comm **out, int n_ranks, unique_id id, int rank, void *config)
{
    (void)id, (void)config;
    return comm_new(out, n_ranks, rank);
}

E int ncclCommInitRankScalable(comm **out, int n_ranks, int rank, int n_ids, unique_id *ids,
                               void *config);
int   ncclCommInitRankScalable(comm **out, int n_ranks, int rank, int n_ids, unique_id *ids,
                               void *config)
{
    (void)n_ids, (void)ids, (void)config;
    return comm_new(out, n_ranks, rank);
}

/* How many ranks share a colour only the others know; PyTorch keeps its own count and asks NCCL
 * only for a check of what it passed. The parent's is what is returned. */
E int ncclCommSplit(comm *c, int color, int key, comm **out, void *config);
int   ncclCommSplit(comm *c, int color, int key, comm **out, void *config)
{
    (void)key, (void)config;
    if (color < 0) {
        *out = NULL;
        return 0;
    }
    return comm_new(out, c->n_ranks, c->rank);
}

E int ncclCommDestroy(comm *c);
int   ncclCommDestroy(comm *c)
{
    free(c);
    return 0;
}

E int ncclCommAbort(comm *c);
int   ncclCommAbort(comm *c)
{
    free(c);
    return 0;
}

VP_NULL_NOP(ncclCommFinalize)

E int ncclCommCount(const comm *c, int *n);
int   ncclCommCount(const comm *c, int *n)
{
    *n = c->n_ranks;
    return 0;
}

E int ncclCommUserRank(const comm *c, int *rank);
int   ncclCommUserRank(const comm *c, int *rank)
{
    *rank = c->rank;
    return 0;
}

E int ncclCommCuDevice(const comm *c, int *device);
int   ncclCommCuDevice(const comm *c, int *device)
{
    (void)c;
    *device = 0;
    return 0;
}

E int ncclCommGetAsyncError(comm *c, int *error);
int   ncclCommGetAsyncError(comm *c, int *error)
{
    (void)c;
    *error = 0;
    return 0;
}

E int ncclCommRegister(const comm *c, void *p, size_t n, void **handle);
int   ncclCommRegister(const comm *c, void *p, size_t n, void **handle)
{
    (void)c, (void)n;
    *handle = p;
    return 0;
}

E int ncclMemAlloc(void **p, size_t n);
int   ncclMemAlloc(void **p, size_t n)
{
    uint64_t addr;

    if (vp_null_mem_alloc(n, &addr) != VP_NULL_OK)
        return NCCL_UNHANDLED_CUDA;
    *p = (void *)(uintptr_t)addr;
    return 0;
}

E int ncclMemFree(void *p);
int   ncclMemFree(void *p)
{
    return vp_null_mem_free((uint64_t)(uintptr_t)p) == VP_NULL_OK ? 0 : NCCL_INVALID_ARGUMENT;
}

E int ncclRedOpCreatePreMulSum(int *op, void *scalar, int type, int residence, comm *c);
int   ncclRedOpCreatePreMulSum(int *op, void *scalar, int type, int residence, comm *c)
{
    (void)scalar, (void)type, (void)residence, (void)c;
    *op = 5;
    return 0;
}

VP_NULL_NOP(ncclCommDeregister)
VP_NULL_NOP(ncclRedOpDestroy)
VP_NULL_NOP(ncclGroupStart)
VP_NULL_NOP(ncclGroupEnd)

#define COLLECTIVE(name) \
    E int name(void); \
    int   name(void) \
    { \
        return collective(); \
    }

static int collective(void)
{
    __atomic_add_fetch(&vp_null_count.n_collective, 1, __ATOMIC_RELAXED);
    vp_null_work();
    return 0;
}

/* From this rank to others, nothing here changes; in place, which is how PyTorch calls it. */
E int ncclBroadcast(const void *src, void *dst, size_t n, int type, int root, comm *c,
                    void *stream);
int   ncclBroadcast(const void *src, void *dst, size_t n, int type, int root, comm *c, void *stream)
{
    (void)n, (void)type, (void)stream;
    if (root != c->rank || src != dst)
        return collective();
    __atomic_add_fetch(&vp_null_count.n_collective, 1, __ATOMIC_RELAXED);
    return 0;
}

E int ncclBcast(void *p, size_t n, int type, int root, comm *c, void *stream);
int   ncclBcast(void *p, size_t n, int type, int root, comm *c, void *stream)
{
    return ncclBroadcast(p, p, n, type, root, c, stream);
}

COLLECTIVE(ncclAllReduce)
COLLECTIVE(ncclAllGather)
COLLECTIVE(ncclReduceScatter)
COLLECTIVE(ncclReduce)
COLLECTIVE(ncclAlltoAll)
COLLECTIVE(ncclSend)
COLLECTIVE(ncclRecv)
