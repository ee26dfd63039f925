/* tests/lowering/torch_replay.h: a lowered training program replayed through PyTorch's caching allocator.
 *     VP_TRY(vp_torch_replay_new(allocator, &replay, err));
 *     VP_TRY(vp_torch_replay_play(replay, &load, phases, err));        then the first step,
 *     VP_TRY(vp_torch_replay_play(replay, &later_step, phases, err));  then as many as wanted
 *     vp_torch_replay_free(replay);
 *
 * The other consumer of planner/lowering, beside placement in an arena: what a program's values are
 * given and give back, in its order. What is held for parameters stays from one program to the next;
 * all programs must be of one graph, semantics and recipe. */
#ifndef VP_TESTS_LOWERING_TORCH_REPLAY_H
#define VP_TESTS_LOWERING_TORCH_REPLAY_H

#include "tests/lowering/training_step.h"
#include "trainers/torch/caching_allocator.h"

typedef struct vp_torch_replay vp_torch_replay;

/* Of a phase: the most in it, and what is there when it ends. -1 where it has no micro-op. */
typedef struct vp_torch_phase {
    int64_t allocated_most_bytes, allocated_end_bytes, reserved_end_bytes;
} vp_torch_phase;

/* allocator is borrowed until vp_torch_replay_free(), which gives back all that is held and takes
 * NULL. */
vp_status vp_torch_replay_new(vp_caching_allocator *allocator, vp_torch_replay **out, vp_err *err);
void      vp_torch_replay_free(vp_torch_replay *replay);

/* Play one program; phases has VP_N_TPHASES entries. Resets the allocator's peaks. VP_ERR_NO_FIT:
 * out of memory, the allocator has the numbers; then only vp_torch_replay_free() may follow. */
vp_status vp_torch_replay_play(vp_torch_replay *replay, const vp_training_step *program,
                               vp_torch_phase *phases, vp_err *err);

#endif
