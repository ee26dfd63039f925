/* planner/moved_space.h: scenarios whose blocks move activations to host memory.
 *
 * Which outputs have places in the slots is one of a few nested choices: those that take longest to
 * make again for the time that their copy takes come first. In each choice every block moves all of
 * them, and differs from others in what it recomputes of the rest. So all copies take the same
 * time, and the scenario's seconds are nearly a sum over blocks. */
#ifndef VP_PLANNER_MOVED_SPACE_H
#define VP_PLANNER_MOVED_SPACE_H

#include "planner/space.h"

/* Sets of ops, none of `recompute`, each with the next ones of the first; *n: how many. */
void vp_moved_choices(const vp_outputs *outputs, uint64_t recompute,
                      uint64_t choices[VP_MAX_MOVED_CHOICES], int *n);

/* What slots for a set of ops add to the figures of a scenario without. */
void vp_moved_add_slots(const vp_device *device, const vp_outputs *outputs, uint64_t activations,
                        int n_slots, vp_figures *figures);

/* The integer program of a scenario whose L blocks move activations through n slots, from that of one
 * whose blocks do not, but with the items of `lib` in place of its own. With c the kernels' time of a
 * block, w and u those of copies of parameters and gradients to the device where these are
 * streamed, and d that of its activations' copies in one direction, the same for every block,
 *
 *     forward   >= sum of max(c, w), and >= (L - n) d: all copies begin and end while blocks run
 *     backward  >= sum of max(c, u), and, for any number m of the blocks that it begins with,
 *               >= sum over these of (u + d) - n d - u + sum over the others of max(c, u)
 *
 * The second: these m blocks' copies but for those of the last n blocks, which stay, and of the parameters that
 * the head fetches, begin behind the head, one after the other, and end before the last of the m blocks
 * does. Blocks of the strategies at the end of the list stand last in the chain, where backward
 * begins: m is how many there are of some of these, and of what comes out the highest bound is
 * taken. False: out of memory. */
bool vp_moved_bound(vp_arena *arena, const vp_library *lib, int n_slots, int64_t n_micro,
                    const vp_figures *figures, int64_t arena_bytes, vp_ilp *ilp);

#endif
