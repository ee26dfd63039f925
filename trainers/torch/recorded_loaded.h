/* trainers/torch/recorded_loaded.h: what a recorded step has when its model is loaded, kept for the next one that loads the same.
 *     VP_TRY(vp_recorded_loaded_new(step, world, &opts, &loaded, err));     behind its last phase of loading
 *     if (vp_recorded_loaded_suits(loaded, another, &opts))
 *         VP_TRY(vp_recorded_loaded_give(loaded, another, &opts, &allocator, &world, err));   as if it had played those
 *
 * Another step is one with the same allocator's settings, of the same recording and sizes, whose phases before "inputs" are the same
 * events of the same bytes; what follows may differ, and so may a batch. */
#ifndef VP_TRAINERS_TORCH_RECORDED_LOADED_H
#define VP_TRAINERS_TORCH_RECORDED_LOADED_H

#include "trainers/torch/world.h"

typedef struct vp_recorded_loaded vp_recorded_loaded;

/* A copy of all that the step, its ledger and its world (NULL: it has none, or that has not loaded yet) have, in the ledger's first
 * phase. *out is NULL where it cannot be kept: a workspace was taken by then. */
vp_status vp_recorded_loaded_new(const vp_recorded *step, const vp_world *world,
                                 const vp_world_opts *opts, vp_recorded_loaded **out, vp_err *err);
/* Takes NULL. */
void vp_recorded_loaded_free(vp_recorded_loaded *loaded);

/* Of a step that nothing was played of: with a world of these opts that is not there yet, or without one (NULL), watched as it will
 * be. The allocators' settings are the caller's to compare. */
bool vp_recorded_loaded_suits(const vp_recorded_loaded *loaded, const vp_recorded *step,
                              const vp_world_opts *opts);

/* *allocator, which is the ledger's and holds nothing, gives way to one that holds what was loaded; *world to one that has loaded,
 * where there are opts. VP_ERR_NO_FIT: more was needed at once than the ledger allows; needed_bytes says how much, and nothing is
 * loaded. Several threads may ask at once. */
vp_status vp_recorded_loaded_give(const vp_recorded_loaded *loaded, vp_recorded *step,
                                  const vp_world_opts *opts, vp_caching_allocator **allocator,
                                  vp_world **world, vp_err *err);

#endif
