/* planner/itemise.h: where every byte of a plan is at its peak, and how high each phase reaches.
 * Simulates one optimizer step of the plan with the expander that the runtime runs; of many
 * micro-steps the first, a middle and the last. */
#ifndef VP_PLANNER_ITEMISE_H
#define VP_PLANNER_ITEMISE_H

#include "plan/expand.h"

typedef struct vp_item {
    const char  *name; /* "parameters", "activations: h attn.c_attn (x12)" */
    vp_component component;
    bool    of_blocks; /* lies in a block, not in the embedding, the head or outside the chain */
    int64_t bytes;
    const char *class; /* exact | derived | measured | assumed */
} vp_item;

typedef struct vp_phase {
    const char *name; /* load, forward, backward, optimizer */
    /* largest offset + bytes of what is alive in it; optimizer: at most what persists and the
     * bytes above it */
    int64_t peak_bytes;
} vp_phase;

enum { VP_N_PHASES = 4 };

typedef struct vp_itemised {
    int64_t     peak_bytes;
    const char *peak_phase;
    int64_t     peak_step; /* index in x */
    /* what was looked at: vp_unrolled_micro_steps() of the bucket's */
    vp_expansion x;
    /* largest first within a component; they sum to peak_bytes */
    vp_item *items;
    int64_t  n_items;
    vp_phase phases[VP_N_PHASES];
} vp_itemised;

/* Lives in arena. */
vp_status vp_itemise(vp_arena *arena, const vp_plan *plan, const vp_bucket *bucket,
                     vp_itemised *out, vp_err *err);

#endif
