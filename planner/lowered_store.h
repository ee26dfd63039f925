/* planner/lowered_store.h: programs that were lowered and priced, to be taken again.
 *     cost.store = vp_lowered_store_new();
 *     VP_TRY(vp_assemble_figures(model, &scenario, &cost, &figures, err));
 *     VP_TRY(vp_assemble_figures(model, &another, &cost, &figures, err));
 *
 * Scenarios of one micro-batch differ in loss chunk, optimizer and offload, of which a block's lowering
 * knows nothing. A store is for one model and the device and profile of the cost that it is in. */
#ifndef VP_PLANNER_LOWERED_STORE_H
#define VP_PLANNER_LOWERED_STORE_H

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

/* The program of a key; NULL: it has none. *unlike as it was put. */
const vp_lowered *vp_lowered_store_find(const vp_lowered_store *store, const vp_lowered_key *key,
                                        bool *unlike);

/* Put what was lowered in an arena of its own, which the store takes; unlike: its smaller last
 * micro-step has other buffers. False: out of memory; the arena is still the caller's. */
bool vp_lowered_store_put(vp_lowered_store *store, const vp_lowered_key *key, vp_arena *arena,
                          const vp_lowered *lowered, bool unlike);

/* Before an assembly: drop the oldest of many. Nothing may point to what was found before. */
void vp_lowered_store_trim(vp_lowered_store *store);

#endif
