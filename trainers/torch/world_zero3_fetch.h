/* trainers/torch/world_zero3_fetch.h: which weights are whole when, under ZeRO 3.
 *     VP_TRY(vp_zero3_fetch_new(w, &fetch, err));
 *     vp_zero3_fetch_reset(fetch);                         a forward pass begins
 *     VP_TRY(vp_zero3_fetch_use(fetch, u, false, err));    unit u runs
 *     vp_zero3_fetch_release(fetch, u);                    it has run */
#ifndef VP_TRAINERS_TORCH_WORLD_ZERO3_FETCH_H
#define VP_TRAINERS_TORCH_WORLD_ZERO3_FETCH_H

#include "trainers/torch/world_internal.h"

/* Weights of so many elements at most are always whole. */
enum { VP_ZERO3_PERSISTENT = 100000 };
/* Streams of their own, whose memory is kept apart. */
enum { VP_ZERO3_STREAM_GATHER = 1, VP_ZERO3_STREAM_REDUCE };

typedef struct vp_zero3_fetch vp_zero3_fetch;

/* In the order of use that follows from the world's units; w is borrowed. */
vp_status vp_zero3_fetch_new(vp_world *w, vp_zero3_fetch **out, vp_err *err);
void      vp_zero3_fetch_free(vp_zero3_fetch *fetch); /* takes NULL */

/* Units must come in that order, from a reset on. */
vp_status vp_zero3_fetch_use(vp_zero3_fetch *fetch, int64_t unit, bool backwards, vp_err *err);
void      vp_zero3_fetch_release(vp_zero3_fetch *fetch, int64_t unit);

/* A layer's backward pass weight by weight: its modules begin; then weight i, whose place is in vp_world.weights, runs, and has run. Of a
 * layer that is computed anew the last weight comes before that, the others behind it. */
vp_status vp_zero3_fetch_enter(vp_zero3_fetch *fetch, vp_err *err);
vp_status vp_zero3_fetch_use_weight(vp_zero3_fetch *fetch, int64_t i, vp_err *err);
/* All weights of a unit are whole, nothing is fetched ahead, and none is let go of until reset. */
vp_status vp_zero3_fetch_keep(vp_zero3_fetch *fetch, int64_t unit, vp_err *err);
void      vp_zero3_fetch_release_weight(vp_zero3_fetch *fetch, int64_t i);
/* Whether the backward pass of what weight i is of, where it is the first of a layer, asks for that to be computed anew. */
bool vp_zero3_asks_anew(const vp_world *w, int64_t i);
bool vp_zero3_is_cut(const vp_world_weight *x);

/* All that is cut goes; the order begins anew. */
void vp_zero3_fetch_reset(vp_zero3_fetch *fetch);

/* Before the order is known: a weight of so many elements comes by itself; nothing where it is always whole. */
vp_status vp_zero3_fetch_alone(vp_world *w, int64_t elements, vp_ledger_block *out, vp_err *err);
vp_status vp_zero3_fetch_weight(vp_world *w, vp_world_weight *x, vp_err *err);

#endif
