/* planner/moved_space.h: scenarios whose blocks may move activations to host memory.
 *
 * Which outputs have places in the slots is one of a few nested choices: those that take longest to
 * make again for the time that their copy takes come first. In each choice a block moves all of these
 * that it keeps, or none. */
#ifndef VP_PLANNER_MOVED_SPACE_H
#define VP_PLANNER_MOVED_SPACE_H

#include "planner/space.h"

/* Sets of ops, each with the next ones of the first; *n: how many. */
void vp_moved_choices(const vp_outputs *outputs, uint64_t choices[VP_MAX_MOVED_CHOICES], int *n);

/* What slots for a set of ops add to the figures of a scenario without. */
void vp_moved_add_slots(const vp_device *device, const vp_outputs *outputs, uint64_t activations,
                        int n_slots, vp_figures *figures);

/* The integer program of a scenario whose blocks may move activations, from that of one whose blocks may
 * not, but with the items of `lib` in place of its own:
 *
 *     forward   >= sum of max(c, w), and >= sum of d of all blocks but one for each slot
 *     backward  >= sum of max(c, u), and >= sum of d + u of all blocks but ...
 *
 * with c the kernels' time of a block, w and u those of copies of parameters and gradients to the device where
 * these are streamed, and d that of its activations' copies in one direction: all of them begin and end
 * while blocks run. No plan takes less than any mean of the two, nor, if blocks have host_left bytes
 * of host memory, than that with a price on each byte they take, less the price of those bytes. Each
 * such mean and price is an integer program, and out come the items and constant of one whose own
 * bound is high. False: out of memory. */
bool vp_moved_bound(vp_arena *arena, const vp_library *lib, const vp_outputs *outputs, int n_slots,
                    int64_t n_micro, const vp_figures *figures, int64_t arena_bytes,
                    int64_t host_left, vp_ilp *ilp);

#endif
