/* planner/moved_space.h: scenarios whose blocks move activations to host memory.
 *
 * Which outputs have places in the slots is one of a few nested choices: those that take longest to
 * make again for the time that their copy takes come first. In each choice every block moves all of
 * them, and differs from others in what it recomputes of the rest. So all copies take the same
 * time, and the scenario's seconds are nearly a sum over blocks. */
#ifndef VP_PLANNER_MOVED_SPACE_H
#define VP_PLANNER_MOVED_SPACE_H

#include "planner/blocks.h"

/* Sets of ops, none of `recompute`, each with the next ones of the first; *n: how many. */
void vp_moved_choices(const vp_outputs *outputs, uint64_t recompute,
                      uint64_t choices[VP_MAX_MOVED_CHOICES], int *n);

/* What slots for a set of ops add to the figures of a scenario without. */
void vp_moved_add_slots(const vp_device *device, const vp_outputs *outputs, uint64_t activations,
                        int n_slots, vp_figures *figures);

/* Bytes that all blocks but n_slots keep in host memory, where they move these outputs. */
int64_t vp_moved_sent_bytes(int64_t n_blocks, const vp_outputs *outputs, uint64_t ops, int n_slots);

/* Host memory of what a scenario has there and of what blocks send beside it. */
int64_t vp_moved_beside(const vp_figures *held, int64_t bytes);

/* The integer program of a scenario whose L blocks move activations through n slots and stream nothing (else
 * planner/streamed_space.h), from that of one whose blocks do not, but with the items of `lib` in place of
 * its own. With c the kernels' time of a block and d that of its activations' copies in one direction, the
 * same for every block,
 *
 *     forward   >= sum of c, and >= (L - n) d: all copies begin and end while blocks run
 *     backward  >= sum of c, and, for any number m of the blocks that it begins with,
 *               >= m d - n d + sum of c over the others
 *
 * What blocks run in the first micro-step only (gradients of parameters that nothing reads are zeroed there) is in the
 * constant, but where blocks wait or copies limit: it runs meanwhile.
 * Where norms and updates are made in backward, a block's are among its kernels there. Where they are not and there is one
 * slot, blocks take what they wait for it instead (`one_slot_ns`, planner/library.h).
 * The second: these m blocks' copies but for those of the last n blocks, which stay, begin behind the head, one
 * after the other, and end before the last of the m blocks does. Blocks of the strategies at the end of the
 * list stand last in the chain, where backward begins: m is how many there are of some of these, and of what
 * comes out the highest bound is taken. False: out of memory. */
bool vp_moved_bound(vp_arena *arena, const vp_library *lib, int n_slots, int64_t n_micro,
                    const vp_figures *figures, int64_t arena_bytes, vp_ilp *ilp);

#endif
