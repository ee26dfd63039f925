/* planner/outline_store.h: the outlines of one model, for all requests about it.
 *     vp_outline_store *store = vp_outline_store_new(model);
 *     VP_TRY(vp_outline_store_get(store, semantics, seq, micro_batch, cost, &outlines, err));
 *
 * Where nothing fits, dozens of requests differ from the first in recipe, sequence or device. Which
 * sets of ops are worth looking at and what their programs look like mostly stays; making it out
 * takes longest. */
#ifndef VP_PLANNER_OUTLINE_STORE_H
#define VP_PLANNER_OUTLINE_STORE_H

#include "planner/outline.h"

typedef struct vp_outline_store vp_outline_store;

/* The model is borrowed. NULL: out of memory. */
vp_outline_store *vp_outline_store_new(const vp_model *model);
void              vp_outline_store_free(vp_outline_store *store); /* NULL: nothing */

/* Before the first vp_outline_store_get() at costs of another device or profile than the last. */
void vp_outline_store_forget_costs(vp_outline_store *store);

/* Outlines of these semantics, at this sequence and micro-batch; the caller may scale them. They are
 * the store's, until it is asked again. */
vp_status vp_outline_store_get(vp_outline_store *store, const vp_semantics *semantics, int64_t seq,
                               int64_t micro_batch, vp_cost *cost, vp_outlines **out, vp_err *err);

#endif
