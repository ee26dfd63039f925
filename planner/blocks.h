/* planner/blocks.h: the blocks' side of scenarios of one micro-batch and semantics: libraries, and their items
 * of an integer program. Each is made once, whatever the loss chunk, the optimizer and what lies in
 * host memory.
 *     if (!(b = vp_blocks_find(answer, micro, semantics))) {
 *         VP_TRY(vp_blocks_make(&request, &cost, micro, semantics, outlines, &b, err));
 *         VP_TRY(vp_blocks_keep(answer, b, err));
 *     } */
#ifndef VP_PLANNER_BLOCKS_H
#define VP_PLANNER_BLOCKS_H

#include "planner/outline_store.h"
#include "planner/planner.h"

/* Choices of outputs that move: of those that one recompute kind leaves, and in all. */
enum { VP_MAX_MOVED_CHOICES = 8, VP_MAX_MOVED_LIBRARIES = VP_N_RECOMPUTES * VP_MAX_MOVED_CHOICES };

struct vp_blocks {
    vp_arena *arena; /* its own, and this is in it */
    int64_t   micro_batch;
    /* where activations may move: of each choice of outputs the library of single blocks */
    vp_outputs          outputs;
    uint64_t            moved[VP_MAX_MOVED_LIBRARIES];
    vp_library          moved_libraries[VP_MAX_MOVED_LIBRARIES];
    int                 n_moved;
    const vp_semantics *semantics;
    /* of single blocks, of which none: there are no such micro-steps; and with segments, or of those
     * that are pinned alone */
    vp_library   alone, all;
    vp_item_row *alone_items, *all_items;
};

/* The ops that a pinned recompute kind recomputes; none where it is free. */
uint64_t vp_pinned_set(const vp_plan_request *request);

/* Whether blocks may move activations: all micro-steps are alike then. */
bool vp_blocks_may_move(const vp_plan_request *request, int64_t micro_batch);

/* Those of an answer, or NULL, that are of this micro-batch and semantics; NULL: it has none. */
vp_blocks *vp_blocks_find(const vp_plan_answer *answer, int64_t micro_batch,
                          const vp_semantics *semantics);

/* New ones, for vp_blocks_free() or vp_blocks_keep(). outlines: of the request's model; nothing else that is
 * written is used, but for cost. */
vp_status vp_blocks_make(const vp_plan_request *request, vp_cost *cost, int64_t micro_batch,
                         const vp_semantics *semantics, vp_outline_store *outlines, vp_blocks **out,
                         vp_err *err);
void      vp_blocks_free(vp_blocks *blocks); /* NULL: nothing */

/* They are the answer's from now on, whatever is returned. */
vp_status vp_blocks_keep(vp_plan_answer *answer, vp_blocks *blocks, vp_err *err);

/* A library's strategies as items: the cost of one block, or segment, over all micro-steps, n_full of them
 * full ones. NULL: out of memory. */
vp_item_row *vp_items_make(vp_arena *arena, const vp_library *library, int64_t n_full);

#endif
