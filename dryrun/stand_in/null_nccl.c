/* dryrun/stand_in/null_nccl.c: NCCL as rank R of N, alone or beside the other ranks in processes of their own.
 * A collective moves device data only, so it returns at once, whoever else takes part; the device memory a
 * communicator takes is counted by a constant and said to be assumed.
 *
 * Where the ranks are played together (VPLAN_NULL_MEET), or those that differ (VPLAN_NULL_TELL), each collective is told to the probe as one line,
 * `communicator ranks rank operation count type root-or-peer`: `vplan dryrun` compares the ranks' lines afterwards
 * and finds what would have hung. */
#define _GNU_SOURCE
#include "dryrun/stand_in/null_internal.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define E VP_NULL_EXPORT

typedef struct unique_id {
    char bytes[128];
} unique_id;

typedef struct comm {
    uint64_t id; /* the same on all its ranks */
    int      n_ranks, rank, n_splits;
    bool    *connected; /* by rank: messages went there or came */
} comm;

enum { NCCL_UNHANDLED_CUDA = 1, NCCL_SYSTEM = 2, NCCL_INVALID_ARGUMENT = 4 };

/* Device memory that NCCL takes, by what was measured elsewhere, in bytes. The first communicator, for its collectives:
 * 544 MB with two ranks, 688 MB with more (4 A100 with NVLink, NVIDIA/nccl#964); later ones share the proxy's and
 * most transport buffers, what they add was seen between 0 and 4 GB and is not counted. Each rank that messages go
 * to or come from, all-to-all's among them: from 1.06 GB to 4.34 GB at the first all-to-all of 8 H100, 32 channels
 * to each of 7 others (NVIDIA/nccl#1685); on older cards not known, and not counted. */
#define FIRST_COMM_BYTES(n_ranks) ((n_ranks) < 2 ? 0 : (n_ranks) == 2 ? 544000000u : 688000000u)
#define PEER_BYTES(cc_major)      ((cc_major) >= 9 ? (4340000000u - 1060000000u) / 7 : 0)

/* FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/ */
static uint64_t hashed(uint64_t h, const void *data, size_t n)
{
    const unsigned char *p = data;

    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);

    return value && *value;
}

static bool ranks_meet(void)
{
    return is_set("VPLAN_NULL_MEET");
}

static void comm_free(comm *c)
{
    if (c)
        free(c->connected);
    free(c);
}

static int comm_new(comm **out, int n_ranks, int rank, uint64_t id)
{
    if (n_ranks < 1 || rank < 0 || rank >= n_ranks)
        return NCCL_INVALID_ARGUMENT;
    *out = calloc(1, sizeof **out);
    if (!*out)
        return NCCL_SYSTEM;
    (*out)->n_ranks   = n_ranks;
    (*out)->rank      = rank;
    (*out)->id        = id;
    (*out)->connected = calloc((size_t)n_ranks, sizeof *(*out)->connected);
    if (!(*out)->connected) {
        comm_free(*out);
        *out = NULL;
        return NCCL_SYSTEM;
    }
    if (__atomic_fetch_add(&vp_null_count.n_communicator, 1, __ATOMIC_RELAXED) == 0 &&
        vp_null_outside_take(FIRST_COMM_BYTES(n_ranks)) != VP_NULL_OK) {
        comm_free(*out);
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
    int fd = ranks_meet() ? open("/dev/urandom", O_RDONLY | O_CLOEXEC) : -1;

    memset(id, 0x76, sizeof *id);
    if (fd >= 0) { /* it tells communicators apart, and the other ranks get it from this one */
        if (read(fd, id, sizeof *id) != (ssize_t)sizeof *id)
            memset(id, 0x77, sizeof *id);
        close(fd);
    }
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
    return comm_new(out, n_ranks, rank, hashed(0xcbf29ce484222325u, &id, sizeof id));
}

E int ncclCommInitRankConfig(comm **out, int n_ranks, unique_id id, int rank, void *config);
int   ncclCommInitRankConfig(comm **out, int n_ranks, unique_id id, int rank, void *config)
{
    (void)config;
    return comm_new(out, n_ranks, rank, hashed(0xcbf29ce484222325u, &id, sizeof id));
}

E int ncclCommInitRankScalable(comm **out, int n_ranks, int rank, int n_ids, unique_id *ids,
                               void *config);
int   ncclCommInitRankScalable(comm **out, int n_ranks, int rank, int n_ids, unique_id *ids,
                               void *config)
{
    (void)config;
    return comm_new(
        out, n_ranks, rank,
        hashed(0xcbf29ce484222325u, ids, (size_t)(n_ids > 0 ? n_ids : 0) * sizeof *ids));
}

static int
    split_ranks; /* of the communicator that is split off next, as the probe says; 0: not said */

E void vplan_null_split_ranks(int n);
void   vplan_null_split_ranks(int n)
{
    split_ranks = n;
}

/* How many ranks share a colour only the others know, and Python, which tells the probe; the key is the rank
 * in the new one, as PyTorch does it. Where nobody said it, the parent's is what is returned. */
E int ncclCommSplit(comm *c, int color, int key, comm **out, void *config);
int   ncclCommSplit(comm *c, int color, int key, comm **out, void *config)
{
    int what[2] = {c->n_splits++, color}; /* every rank of c takes part in each split */

    int n = split_ranks;

    (void)config;
    if (color < 0) {
        *out = NULL;
        return 0;
    }
    if (n < 1 || n > c->n_ranks || key < 0 || key >= n)
        return comm_new(out, c->n_ranks, c->rank, hashed(c->id, what, sizeof what));
    return comm_new(out, n, key, hashed(c->id, what, sizeof what));
}

E int ncclCommDestroy(comm *c);
int   ncclCommDestroy(comm *c)
{
    vp_null_host_waited();
    comm_free(c);
    return 0;
}

E int ncclCommAbort(comm *c);
int   ncclCommAbort(comm *c)
{
    vp_null_host_waited();
    comm_free(c);
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

/* The probe's names of collectives, by their number in an entry. */
static const char *const names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                    "reduce",     "all_to_all", "send",           "recv"};
enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, ALL_TO_ALL, SEND, RECV };

/* Bytes of an element, by ncclDataType_t: int8, uint8, int32, uint32, int64, uint64, fp16, fp32, fp64, bf16, two fp8. */
static int64_t element_bytes(int type)
{
    static const unsigned char bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

    return type >= 0 && type < (int)sizeof bytes ? bytes[type] : 1;
}

static int collective(const comm *c, int what, size_t n, int type, int root, const void *stream)
{
    char line[160];

    vp_null_collective_begins(stream);
    __atomic_add_fetch(&vp_null_count.n_collective, 1, __ATOMIC_RELAXED);
    vp_null_note(&(vp_null_entry){.kind    = VP_NULL_COLLECTIVE,
                                  .type    = what,
                                  .compute = c->n_ranks,
                                  .m       = (int64_t)n * element_bytes(type),
                                  .n       = (intptr_t)stream});
    if (ranks_meet() || is_set("VPLAN_NULL_TELL")) {
        snprintf(line, sizeof line, "%016llx %d %d %s %zu %d %d", (unsigned long long)c->id,
                 c->n_ranks, c->rank, names[what], n, type, root);
        vp_null_tell('c', n, line);
    }
    return 0;
}

static int worked(const comm *c, int what, size_t n, int type, int root, const void *stream)
{
    vp_null_work();
    return collective(c, what, n, type, root, stream);
}

/* The buffers of messages between this rank and another, at the first of them. */
static int connect_peer(comm *c, int peer)
{
    int rc = 0;

    if (peer < 0 || peer >= c->n_ranks)
        return NCCL_INVALID_ARGUMENT;
    if (peer != c->rank && !__atomic_exchange_n(&c->connected[peer], true, __ATOMIC_RELAXED) &&
        vp_null_outside_take(PEER_BYTES(vp_null_device_get()->cc_major)) != VP_NULL_OK)
        rc = NCCL_UNHANDLED_CUDA;
    return rc;
}

/* What is broadcast in place, which is how PyTorch does it, is taken to be what this rank holds already: from
 * it to others that is so, and towards it where all ranks prepared the same. */
E int ncclBroadcast(const void *src, void *dst, size_t n, int type, int root, comm *c,
                    void *stream);
int   ncclBroadcast(const void *src, void *dst, size_t n, int type, int root, comm *c, void *stream)
{
    if (src != dst)
        return worked(c, BROADCAST, n, type, root, stream);
    vp_null_launched();
    return collective(c, BROADCAST, n, type, root, stream);
}

E int ncclBcast(void *p, size_t n, int type, int root, comm *c, void *stream);
int   ncclBcast(void *p, size_t n, int type, int root, comm *c, void *stream)
{
    return ncclBroadcast(p, p, n, type, root, c, stream);
}

E int ncclAllReduce(const void *src, void *dst, size_t n, int type, int op, comm *c, void *stream);
int   ncclAllReduce(const void *src, void *dst, size_t n, int type, int op, comm *c, void *stream)
{
    (void)src, (void)dst, (void)op;
    return worked(c, ALL_REDUCE, n, type, -1, stream);
}

E int ncclAllGather(const void *src, void *dst, size_t n, int type, comm *c, void *stream);
int   ncclAllGather(const void *src, void *dst, size_t n, int type, comm *c, void *stream)
{
    (void)src, (void)dst;
    return worked(c, ALL_GATHER, n, type, -1, stream);
}

E int ncclReduceScatter(const void *src, void *dst, size_t n, int type, int op, comm *c,
                        void *stream);
int ncclReduceScatter(const void *src, void *dst, size_t n, int type, int op, comm *c, void *stream)
{
    (void)src, (void)dst, (void)op;
    return worked(c, REDUCE_SCATTER, n, type, -1, stream);
}

E int ncclReduce(const void *src, void *dst, size_t n, int type, int op, int root, comm *c,
                 void *stream);
int   ncclReduce(const void *src, void *dst, size_t n, int type, int op, int root, comm *c,
                 void *stream)
{
    (void)src, (void)dst, (void)op;
    return worked(c, REDUCE, n, type, root, stream);
}

E int ncclAlltoAll(const void *src, void *dst, size_t n, int type, comm *c, void *stream);
int   ncclAlltoAll(const void *src, void *dst, size_t n, int type, comm *c, void *stream)
{
    int rc = 0;

    (void)src, (void)dst;
    for (int peer = 0; rc == 0 && peer < c->n_ranks; peer++)
        rc = connect_peer(c, peer);
    return rc ? rc : worked(c, ALL_TO_ALL, n, type, -1, stream);
}

E int ncclSend(const void *src, size_t n, int type, int peer, comm *c, void *stream);
int   ncclSend(const void *src, size_t n, int type, int peer, comm *c, void *stream)
{
    int rc = connect_peer(c, peer);

    (void)src;
    return rc ? rc : worked(c, SEND, n, type, peer, stream);
}

E int ncclRecv(void *dst, size_t n, int type, int peer, comm *c, void *stream);
int   ncclRecv(void *dst, size_t n, int type, int peer, comm *c, void *stream)
{
    int rc = connect_peer(c, peer);

    (void)dst;
    return rc ? rc : worked(c, RECV, n, type, peer, stream);
}
