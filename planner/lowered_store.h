/* planner/lowered_store.h: programs that were lowered and priced, and what follows their last backward, to be taken again.
 *     cost.store = vp_lowered_store_new();
 *     VP_TRY(vp_assemble_figures(model, &scenario, &cost, &figures, err));
 *     VP_TRY(vp_assemble_figures(model, &another, &cost, &figures, err));
 *
 * Scenarios of one micro-batch differ in loss chunk, optimizer and offload, of which a block's lowering
 * knows nothing; norm and updates know nothing of micro-batch and chunk. A store is for one model and request, and the
 * device and profile of the cost that it is in. */
#ifndef VP_PLANNER_LOWERED_STORE_H
#define VP_PLANNER_LOWERED_STORE_H

#include "devices/devices.h"
#include "models/model.h"
#include "plan/profile.h"
#include "plan/simulate.h"
#include "planner/lowering/lower.h"
#include "planner/lowering/semantics.h"

/* What a lowering depends on. Of a template that has no chunked ops chunk_rows is 0. */
typedef struct vp_lowered_key {
    int                 template_idx;
    int64_t             micro_batch, last_batch, seq, chunk_rows;
    uint64_t            recompute, offload;
    const vp_semantics *semantics;
} vp_lowered_key;

typedef struct vp_lowered_store vp_lowered_store;

vp_lowered_store *vp_lowered_store_new(void); /* NULL: out of memory */
void              vp_lowered_store_free(vp_lowered_store *store);

/* What no key says, as it is one for all scenarios of a request. Pointers are compared, not followed. */
typedef struct vp_store_subject {
    const vp_model   *model;
    const vp_device  *device;
    const vp_profile *profile;
    double            clip_norm, dropout, loss_scale; /* of all its recipes */
} vp_store_subject;

/* Before anything is asked or put: what for. Asserts that it is what the store was used for before; a request of
 * another model, at other costs, or whose recipes clip otherwise, has a store of its own. NULL: nothing. */
void vp_lowered_store_use(vp_lowered_store *store, const vp_store_subject *subject);

/* The program of a key; NULL: it has none. *unlike as it was put. */
const vp_lowered *vp_lowered_store_find(const vp_lowered_store *store, const vp_lowered_key *key,
                                        bool *unlike);

/* Put what was lowered in an arena of its own, which the store takes; unlike: its smaller last
 * micro-step has other buffers. False: out of memory; the arena is still the caller's. */
bool vp_lowered_store_put(vp_lowered_store *store, const vp_lowered_key *key, vp_arena *arena,
                          const vp_lowered *lowered, bool unlike);

/* What a scenario's figures need of a head's program; nanoseconds of all steps of a pass. */
typedef struct vp_priced_head {
    int64_t kept_bytes, height_bytes[2], kernels_ns[VP_N_PASSES], first_only_ns;
    bool    unlike;
} vp_priced_head;

/* Likewise; kept as long as the store. NULL; false: out of memory. */
const vp_priced_head *vp_lowered_store_find_head(const vp_lowered_store *store,
                                                 const vp_lowered_key   *key);
bool                  vp_lowered_store_put_head(vp_lowered_store *store, const vp_lowered_key *key,
                                                const vp_priced_head *head);

/* Where a program of a streamed block stands in the chain: what it fetches and waits for. */
typedef struct vp_stream_place {
    bool is;                       /* streamed                                */
    int  slot;                     /* whose parameters and gradients it uses  */
    bool first, last, second_last; /* of the blocks                           */
} vp_stream_place;

bool vp_is_stream_place(const vp_stream_place *a, const vp_stream_place *b);

/* What a program's norm and updates depend on. */
typedef struct vp_phase_key {
    int             template_idx;
    vp_optimizer    optimizer;
    vp_precision    precision;
    vp_gradients    gradients;
    bool            host_states, host_step, streamed, in_backward;
    vp_stream_place place;
} vp_phase_key;

/* Nanoseconds of its kernels, and its steps for a walk: of the norm, and of the updates. */
enum { VP_N_PHASES = 2 };

typedef struct vp_priced_phase {
    int64_t       kernels_ns[VP_N_PHASES];
    vp_timed_pass timed[VP_N_PHASES];
} vp_priced_phase;

/* NULL: it has none. What is found lives as long as the store. */
const vp_priced_phase *vp_lowered_store_find_phase(const vp_lowered_store *store,
                                                   const vp_phase_key     *key);

/* Put those of a program. False: out of memory. */
bool vp_lowered_store_put_phase(vp_lowered_store *store, const vp_phase_key *key,
                                const vp_program *program, const int64_t kernels_ns[VP_N_PHASES],
                                bool host_is_device);

/* What a walk through the norms, and then the updates, of a chain's n instances takes, whose phases are of this
 * store; -1: nobody walked there. False: out of memory. */
double vp_lowered_store_find_walk(const vp_lowered_store *store, const vp_priced_phase *const *of,
                                  int64_t n);
bool vp_lowered_store_put_walk(vp_lowered_store *store, const vp_priced_phase *const *of, int64_t n,
                               double seconds);

/* Before an assembly: drop the oldest of many. Nothing may point to what vp_lowered_store_find() found before. */
void vp_lowered_store_trim(vp_lowered_store *store);

#endif
