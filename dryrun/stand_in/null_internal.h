/* dryrun/stand_in/null_internal.h: what the parts of the stand-in CUDA libraries share.
 *
 * The stand-in is one shared object that a dry run preloads into an unmodified PyTorch. It reports
 * one device of the user's choice, hands out addresses without memory behind them, launches
 * nothing, and ends the process with a named function where it cannot give the answer a GPU would
 * give. It links nothing but libc, and takes its orders from the environment that `vplan dryrun`
 * sets:
 *     VPLAN_NULL_NAME, _CC, _SM_COUNT     name, compute capability (89 is 8.9), multiprocessors
 *     VPLAN_NULL_TOTAL_BYTES              what cudaMemGetInfo calls the total
 *     VPLAN_NULL_LIMIT_BYTES              what allocations may sum to; a cudaMalloc above it fails
 *     VPLAN_NULL_CONTEXT_BYTES            device memory the context takes, for NVML's process list
 *     VPLAN_NULL_ADDRESSES                for tests: "rising", as the table of known peaks was made
 *     VPLAN_NULL_JITTER                   the number of a repeated run: where threads are held up
 *     VPLAN_NULL_FILL                     byte that device-to-host copies give (default 0)
 *     VPLAN_NULL_HOST_BYTES               host memory of this process, above which it ends (0:
 *     nearly all)
 *     VPLAN_NULL_MEMINFO, _CGROUP         for tests: in place of /proc/meminfo and /sys/fs/cgroup
 *     VPLAN_NULL_MEET                     set where all ranks are played: collectives are told to the probe
 *     VPLAN_NULL_TELL                     they are told where one rank is played, too
 *     VPLAN_NULL_REPORT                   folder for unsupported.<pid>; unset: standard error only
 * Return values are CUDA's own numbers; the enums below name those in use. */
#ifndef VP_DRYRUN_STAND_IN_NULL_INTERNAL_H
#define VP_DRYRUN_STAND_IN_NULL_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VP_NULL_EXPORT __attribute__((visibility("default")))

/* A library call that only touches device data, so that success is the whole truth about it. The
 * arguments are the caller's affair in the ABIs we build for (System V x86-64, AAPCS64). */
#define VP_NULL_NOP(name) \
    VP_NULL_EXPORT int name(void); \
    int                name(void) \
    { \
        return 0; \
    }

/* One that writes device data: what was last copied there is no longer known. */
#define VP_NULL_WORK(name) \
    VP_NULL_EXPORT int name(void); \
    int                name(void) \
    { \
        vp_null_work(); \
        return 0; \
    }

void vp_null_work(void);
void vp_null_launched(void); /* one that leaves its data as it is here */

/* What the probe records of a step (null_program.c): a product of m x k by k x n, batch times, with the
 * number of its operands' cudaDataType_t and of its cublasComputeType_t; a copy of m bytes; the host
 * waits for all (type 0), stream m (1) or event m (2); event m is recorded on stream n, or stream n waits for
 * it; a collective (type: vp_null_collective) of `compute` ranks on stream n, of m bytes: what one rank gives
 * or, of a reduce-scatter, gets. Kept while vplan_null_record(1) is on. */
typedef enum vp_null_entry_kind {
    VP_NULL_PRODUCT = 1,
    VP_NULL_VECTOR, /* a matrix by a vector */
    VP_NULL_TO_DEVICE,
    VP_NULL_FROM_DEVICE,
    VP_NULL_ON_DEVICE,
    VP_NULL_WAIT,
    VP_NULL_EVENT_RECORD,
    VP_NULL_EVENT_WAIT,
    VP_NULL_COLLECTIVE
} vp_null_entry_kind;

typedef struct vp_null_entry {
    int32_t kind, type, compute, pad;
    int64_t m, n, k, batch;
} vp_null_entry;

void vp_null_note(const vp_null_entry *entry);

/* Events that end a collective, to the thread of PyTorch's that looks for works which are done (null_watchdog.c). */
typedef struct vp_null_end {
    struct vp_null_end *next, *prev; /* while that thread has still to find it done */
    uint64_t            n_waits;     /* of the host, when it was recorded */
    int64_t             at_ms, found_ms;
    unsigned            n_looks;
    bool                ends;
} vp_null_end;

void vp_null_host_waited(void);
void vp_null_collective_begins(const void *stream);
void vp_null_end_recorded(vp_null_end *end, const void *stream, bool captured);
void vp_null_end_dropped(vp_null_end *end); /* its work is waited for, or it is no more */
bool vp_null_end_is_done(vp_null_end *end);

/* A call that waits for the device. */
#define VP_NULL_SYNC(name) \
    VP_NULL_EXPORT int name(void); \
    int                name(void) \
    { \
        vp_null_note(&(vp_null_entry){.kind = VP_NULL_WAIT}); \
        return 0; \
    }

enum {
    VP_NULL_OK                  = 0,
    VP_NULL_INVALID_VALUE       = 1,
    VP_NULL_OUT_OF_MEMORY       = 2,
    VP_NULL_NO_DEVICE           = 100,
    VP_NULL_INVALID_DEVICE      = 101,
    VP_NULL_NO_KERNEL_IMAGE     = 209,
    VP_NULL_NOT_FOUND           = 500,
    VP_NULL_NOT_READY           = 600,
    VP_NULL_PEER_UNSUPPORTED    = 217,
    VP_NULL_NOT_SUPPORTED       = 801,
    VP_NULL_CAPTURE_UNSUPPORTED = 900
};

typedef struct vp_null_device {
    char     name[128];
    int      cc_major, cc_minor, sm_count;
    uint64_t total_bytes, limit_bytes, context_bytes;
    int      fill_byte;
    /* by compute capability */
    int threads_per_sm, blocks_per_sm, smem_per_sm_bytes, smem_optin_bytes, l2_bytes;
} vp_null_device;

/* Process-wide counters, read by the injected probe as one flat array of uint64_t. Append only. */
typedef struct vp_null_counters {
    uint64_t device_bytes, device_bytes_peak; /* cudaMalloc and cuMemCreate together       */
    uint64_t n_malloc, n_malloc_failed;
    uint64_t n_launch;
    uint64_t n_read, read_bytes; /* device-to-host copies                     */
    uint64_t outside_bytes;      /* by communication libraries, assumed       */
    uint64_t n_collective, n_communicator;
    uint64_t managed_bytes, managed_bytes_peak;  /* cudaMallocManaged: host memory here       */
    uint64_t n_no_image;                         /* functions with no code for this device    */
    uint64_t n_cudnn_plan, cudnn_workspace_peak; /* plans cuDNN chose, the largest workspace */
    uint64_t n_cudnn_refused;                    /* cuDNN engines that wanted a real device   */
} vp_null_counters;

extern vp_null_counters vp_null_count;

/* Keep error for cudaGetLastError of this thread, and return it. */
int vp_null_failed(int error);

const vp_null_device *vp_null_device_get(void);

/* 1; 0 where CUDA_VISIBLE_DEVICES hides all, as it is set when this is first asked. */
int vp_null_n_devices(void);

/* Device memory: addresses inside one reserved range, counted against limit_bytes. 0 or
 * VP_NULL_OUT_OF_MEMORY, VP_NULL_INVALID_VALUE. */
int      vp_null_mem_alloc(uint64_t bytes, uint64_t *addr);
int      vp_null_mem_free(uint64_t addr);
bool     vp_null_mem_range(uint64_t addr, uint64_t *base, uint64_t *bytes); /* of an allocation */
bool     vp_null_is_device(const void *p);
uint64_t vp_null_mem_free_bytes(void);

/* Virtual memory management: an address range, and bytes apart from addresses. */
int vp_null_va_reserve(uint64_t bytes, uint64_t align, uint64_t *addr);
int vp_null_va_release(uint64_t addr, uint64_t bytes);
int vp_null_phys_create(uint64_t bytes, uint64_t *handle);
int vp_null_phys_retain(uint64_t addr, uint64_t *handle);
int vp_null_phys_release(uint64_t handle);
int vp_null_phys_map(uint64_t addr, uint64_t bytes, uint64_t handle);
int vp_null_phys_unmap(uint64_t addr, uint64_t bytes);

/* What this process has of the card, its context included; and, after each change of it, with the lock held, tell other processes. */
uint64_t vp_null_process_bytes(void);
void     vp_null_used_changed(void);

/* Bytes taken by a library beside PyTorch's allocator. */
int vp_null_outside_take(uint64_t bytes);

/* What a copy does on the host: from the device, the fill byte, unless these very bytes were copied
 * there a moment ago and no work was launched since; between host ends, a move. */
void vp_null_copy(void *dst, const void *src, size_t bytes);

/* Whether the probe has said what this read gives; if so, dst is written. */
bool vp_null_expected(void *dst, size_t bytes);

/* Host memory of cudaHostAlloc and cudaHostRegister, so that a pointer can be told pinned. */
void *vp_null_pinned_alloc(size_t bytes);
bool  vp_null_pinned_free(void *p);
void  vp_null_pinned_register(void *p, size_t bytes);
bool  vp_null_pinned_unregister(void *p);
bool  vp_null_is_pinned(const void *p);

/* Ends the process (exit code 4) after saying which function of which library is not modelled and
 * where in the Python program it was reached. Never returns. */
_Noreturn void vp_null_unsupported(const char *library, const char *function, const char *why);

/* Tell the probe, if it listens (null_device.c). */
void vp_null_tell(int kind, uint64_t n, const char *what);

/* Whether this thread is in a call of the real cuDNN. What it asks of CUDA then fails, as it
 * does where there is no device, and is counted. */
bool vp_null_inside_cudnn(void);
bool vp_null_refused_to_cudnn(void);

/* The address of a CUDA driver function of ours by its public name, newest version first. */
void *vp_null_driver_symbol(const char *name);

/* Begin to watch the host's memory (null_device.c); in each process that runs a script. */
VP_NULL_EXPORT void vplan_null_guard(void);

#endif
