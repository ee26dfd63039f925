#ifndef VP_RUNTIME_INTERNAL_H
#define VP_RUNTIME_INTERNAL_H

#include "runtime/runtime.h"

/* One mapping that is a memory of the plan. */
typedef struct vp_arena_map {
    unsigned char *base;
    int64_t        n_bytes, mapped_bytes;
} vp_arena_map;

vp_status vp_arena_map_new(int64_t n_bytes, vp_arena_map *out, vp_err *err);
void      vp_arena_map_free(vp_arena_map *map);
int64_t   vp_arena_map_resident(const vp_arena_map *map);

/* Poison at death, verification at birth. */
typedef struct vp_verifier {
    vp_expansion   x;
    int64_t       *born_at, *born_first, *dies_at, *dies_first; /* buffers by first and last step, and where each step's begin */
    int64_t        n_alive;          /* buffers that some step uses */
    unsigned char *touched;          /* per arena byte: written by some buffer */
    int64_t        never_written_bytes;
} vp_verifier;

enum { VP_N_REPLICAS = 2 };

struct vp_runtime {
    const vp_plan    *plan;
    const vp_bucket  *bucket;
    const vp_backend *backend;
    vp_run_opts       opts;
    vp_arena         *scratch;
    vp_arena_map      arena[VP_N_REPLICAS];
    int               n_arenas;      /* 2 with verify */
    int64_t           step;          /* optimizer steps done */
    int64_t           executed_bytes, padding_bytes;
    int64_t           n_params;
    vp_runtime_param *params;
    vp_optimizer_numbers optimizer;
    vp_verifier      *verifier;      /* or NULL */
    /* of the step that runs */
    int64_t           n_buffers;
    vp_kernel_time   *times;         /* room for every step of every program */
    int64_t           n_times;
    int32_t          *time_slots;    /* hash of (kernel, ints) to times + 1; 0: free */
    int64_t           n_time_slots;  /* a power of two, at least twice the room      */
};

vp_status vp_verifier_new(vp_runtime *rt, vp_err *err);
/* Before and after step `idx` of the expansion. */
vp_status vp_verifier_before(vp_runtime *rt, int64_t idx, vp_err *err);
vp_status vp_verifier_after(vp_runtime *rt, int64_t idx, vp_err *err);
/* Everything poisoned, before parameters are filled in. */
void vp_verifier_poison_all(vp_runtime *rt);
/* Gradients may have held drawn numbers on their way to a bf16 parameter: poison again. */
void vp_verifier_poison_gradients(vp_runtime *rt);
/* Count what is alive between steps as touched, and compare the replicas. */
vp_status vp_verifier_finish(vp_runtime *rt, vp_err *err);

/* All parameters have been filled in the first arena. */
void vp_runtime_loaded(vp_runtime *rt);

/* Copy into every arena. */
void vp_runtime_put(vp_runtime *rt, int64_t offset, const void *data, int64_t n_bytes);

#endif
