#ifndef VP_RUNTIME_INTERNAL_H
#define VP_RUNTIME_INTERNAL_H

#include "runtime/runtime.h"

/* One memory of the plan: an allocation of the backend, of exactly the planned size; none where the
 * plan uses nothing of that memory. */
typedef struct vp_arena_block {
    unsigned char *base;
    int64_t        n_bytes;
} vp_arena_block;

vp_status vp_arena_block_new(const vp_backend *backend, vp_memory memory, int64_t n_bytes,
                             vp_arena_block *out, vp_err *err);
void      vp_arena_block_free(const vp_backend *backend, vp_memory memory, vp_arena_block *block);
/* Bytes of it that are in physical memory: on a device all. */
int64_t vp_arena_block_resident(const vp_backend *backend, const vp_arena_block *memory);

/* What a step is given and gives, on its way: one block of the host's memory, which a device
 * reads and writes by itself. Nothing where the arena is the host's own. The control block goes
 * both ways, the batch one. */
typedef struct vp_host_block {
    unsigned char *base;
    int64_t        n_bytes;
    int64_t       *at; /* of each of the plan's fixed buffers; -1: it is not on the way */
    /* copies were enqueued, and nobody has waited since: it stays as it is */
    bool under_way;
} vp_host_block;

/* Poison at death, verification at birth. */
typedef struct vp_verifier {
    vp_expansion x;
    /* buffers by first and last step, and where each step's begin */
    int64_t       *born_at, *born_first, *dies_at, *dies_first;
    int64_t        n_alive;                /* buffers that some step uses */
    unsigned char *touched[VP_N_MEMORIES]; /* per byte: written by some buffer */
    int64_t        never_written_bytes;
} vp_verifier;

enum { VP_N_REPLICAS = 2 };

/* An update of a card's plan that the host makes: enqueued by address, so it stays where it is. */
typedef struct vp_host_call {
    const struct vp_runtime *rt;
    vp_kernel_call           call;
    vp_kernel_time          *time; /* NULL: a card's profile does not hold what its host takes */
} vp_host_call;

struct vp_runtime {
    const vp_plan       *plan;
    const vp_bucket     *bucket;
    const vp_backend    *backend;
    vp_run_opts          opts;
    vp_arena            *scratch;
    vp_arena_block       arena[VP_N_REPLICAS][VP_N_MEMORIES];
    int                  n_arenas; /* 2 with verify */
    vp_host_block        block;
    double               pinning_s;  /* what pinning it and the host arena took */
    int64_t              step;       /* optimizer steps done */
    int64_t              steps_here; /* of them, by this process */
    vp_backend_graph    *graph;      /* a step, recorded; NULL: not yet, or not by this backend */
    int64_t              executed_bytes[VP_N_MEMORIES], padding_bytes;
    bool                 uses_algorithms; /* the plan's are for this library and device */
    int64_t              n_params;
    vp_runtime_param    *params;
    vp_optimizer_numbers optimizer;
    vp_verifier         *verifier; /* or NULL */
    /* one for each of a step's, where the backend is not the host's own */
    vp_host_call *host_calls;
    int64_t       n_host_calls, cap_host_calls;
    /* of the step that runs */
    int64_t         n_buffers;
    vp_kernel_time *times; /* room for every step of every program */
    int64_t         n_times;
    int32_t        *time_slots;   /* hash of (kernel, ints) to times + 1; 0: free */
    int64_t         n_time_slots; /* a power of two, at least twice the room      */
};

vp_status vp_verifier_new(vp_runtime *rt, vp_err *err);
/* Before and after step `idx` of the expansion. */
vp_status vp_verifier_before(vp_runtime *rt, int64_t idx, vp_err *err);
vp_status vp_verifier_after(vp_runtime *rt, int64_t idx, vp_err *err);
/* Everything poisoned, before parameters are filled in. */
void vp_verifier_poison_all(vp_runtime *rt);
/* Count what is alive between steps as touched, and compare the replicas. */
vp_status vp_verifier_finish(vp_runtime *rt, vp_err *err);

vp_status vp_runtime_list_params(vp_runtime *rt, vp_err *err);

/* Whether a folder holds adapters; peft's config beside those that are saved; and a weight with its
 * adapters folded in, in its own dtype: the caller frees it; NULL: it has none. */
bool      vp_adapters_are_in(const char *dir);
vp_status vp_adapters_write_config(const vp_runtime *rt, const char *dir, bool overwrite,
                                   vp_err *err);
vp_status vp_adapters_merged(const vp_runtime *rt, const vp_runtime_param *w, void **out,
                             vp_err *err);

/* One parameter in the first arena, by its family's rule. */
vp_status vp_runtime_draw_param(const vp_runtime *rt, const vp_runtime_param *p, vp_err *err);

/* All parameters have been filled in the first arena. */
vp_status vp_runtime_loaded(vp_runtime *rt, vp_err *err);

/* replicas.c. Where replica r has what lies at an address in a memory of the first. */
unsigned char *vp_runtime_replica(const vp_runtime *rt, int r, const void *at);

/* Copy to an address in a memory of the first replica, and to the same place in every other. */
vp_status vp_runtime_put(vp_runtime *rt, void *at, const void *data, int64_t n_bytes, vp_err *err);

#endif
