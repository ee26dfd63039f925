/* planner/streamed_space.h: what no plan undercuts whose blocks' parameters come from host memory.
 *     VP_TRY(vp_streamed_bound(arena, library, &figures, n_micro, &ilp, err));
 *     VP_TRY(vp_streamed_parts(arena, &ilp, library, &figures, n_micro, bytes, &parts, &n, err));
 *
 * A block takes what its kernels or its copies take, whichever is longer, but for the chain's ends: the first
 * block in backward waits for no copy of the one before it, and some time is lost in the first micro-step, see
 * pricing.c. Where activations move through one slot, blocks of the strategies at the chain's beginning may take
 * what they wait for it instead (planner/library.h), which follow in backward those that take their copies. How
 * much depends on which strategies stand first and last. One integer program for all of them has to allow for
 * the most that is lost at either end. In parts, one for each strategy that the first block, or the first and
 * the last, may have, what is said is what a step takes. */
#ifndef VP_PLANNER_STREAMED_SPACE_H
#define VP_PLANNER_STREAMED_SPACE_H

#include "planner/blocks.h"

/* The items and constant of a streamed scenario whose blocks move activations through n_slots, 0: they
 * move none; beside what ilp says already. */
vp_status vp_streamed_bound(vp_arena *arena, const vp_library *library, const vp_figures *figures,
                            int n_slots, int64_t n_micro, int64_t arena_bytes, vp_ilp *ilp,
                            vp_err *err);

/* Some of a scenario's chains: those that begin with strategy `first`, -1: with any that loses nothing, and
 * end with strategy `last`, -1: with any. The integer program is about the other blocks, of the scenario's
 * items from `skipped` on. */
typedef struct vp_ilp_part {
    vp_ilp  ilp;
    int64_t first, last, skipped;
    int64_t lost_at_last; /* ns that const_ns allows for at the last block */
} vp_ilp_part;

/* The chains of a streamed scenario in parts, by how they begin: each chain is in one of them at least, and
 * takes no less than that says. Those that cannot fit are left out. */
vp_status vp_streamed_parts(vp_arena *arena, const vp_ilp *ilp, const vp_library *library,
                            const vp_figures *figures, int n_slots, int64_t n_micro,
                            int64_t arena_bytes, vp_ilp_part **parts, int64_t *n, vp_err *err);

/* A part in parts, by how its chains end, into parts[n_items]. False: they would say no more. */
bool vp_streamed_split_last(const vp_ilp_part *part, const vp_library *library,
                            const vp_figures *figures, vp_ilp_part *parts, int64_t *n);

/* The counts of a part's integer program as those of the scenario's. */
void vp_ilp_part_counts(const vp_ilp_part *part, const int64_t *of_part, int64_t *counts,
                        int64_t n_items);

#endif
