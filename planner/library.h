/* planner/library.h: the ways one block can be run: its strategy library.
 *     VP_TRY(vp_library_make(arena, outlines, seq, steps, semantics, cost, &library, err));
 *
 * A strategy is a set of the block's ops to recompute. The ops to choose from are those whose
 * forward a full recompute repeats; every subset is lowered, but for those that cannot differ from
 * another or must lose to it: making again what nobody reads (a norm for its statistics alone is
 * one such), or keeping a tensor only to make again one of the same size that could be kept in its
 * place. What it keeps (k), needs (height) and costs (ns) is what the lowered program says
 * (planner/outline.h: at every micro-batch, from one lowering of each set). A strategy that
 * another beats or equals in all three is dropped, unpacked where that is certain from its least
 * height; nothing is rounded or merged. Which strategies stay differs from micro-batch to
 * micro-batch: the cost of a call does not grow in proportion to it.
 *
 * Strategies of several blocks stand beside these: m blocks as one segment that keeps the first one's
 * input only (Chen et al. 2016, arXiv:1604.06174: with m near the square root of the number of blocks the
 * kept inputs and the recomputed segment balance). */
#ifndef VP_PLANNER_LIBRARY_H
#define VP_PLANNER_LIBRARY_H

#include "models/model.h"
#include "planner/lowering/cost.h"
#include "planner/lowering/semantics.h"
#include "planner/scenario.h"

typedef struct vp_outlines      vp_outlines;      /* planner/outline.h */
typedef struct vp_outline_store vp_outline_store; /* planner/outline_store.h */

/* The micro-steps of an optimizer step: n_full of micro_batch samples, and a last one of last_batch,
 * where that is not 0. */
typedef struct vp_micro_steps {
    int64_t micro_batch, n_full, last_batch;
} vp_micro_steps;

vp_micro_steps vp_micro_steps_of(int64_t global_batch, int64_t micro_batch);

typedef struct vp_strategy {
    uint64_t recompute;    /* bit i: op i of the block template             */
    int64_t  segment;      /* 1: of one block; m: m blocks as one segment, recomputed whole */
    int64_t  kept_bytes;   /* from forward to backward: k       */
    int64_t  height_bytes; /* most it needs from its base on, its kept bytes included: k + beta */
    int64_t  ns;           /* of one forward and backward       */
    int64_t  last_ns;      /* of those of a smaller last micro-step, 0: there is none */
    /* where outputs may be moved to host memory: the ops whose outputs are; and nanoseconds of their
     * copies in one direction, and of the forward pass's kernels */
    uint64_t offload;
    int64_t  copy_ns, forward_ns;
    /* what kernels lose to these copies, in one direction, where their processors make them */
    int64_t lost_ns;
    /* and with one slot, what a block takes at least in a chain of such, by pass: its kernels, or what it
     * waits for the copies of the block before it on the slot; see vp_library_of_moved() */
    int64_t one_slot_ns[2];
} vp_strategy;

typedef struct vp_library {
    /* in descending height - kept (beta), then ascending kept, then ascending set */
    vp_strategy *strategies;
    int64_t      n;
    int64_t      n_lowered; /* before pruning */
} vp_library;

/* Every strategy of one block that no other beats with these micro-steps; none where a smaller last
 * micro-step would have other programs than the others. The model is the store's. Strategies live in
 * arena. */
vp_status vp_library_make(vp_arena *arena, vp_outline_store *outlines, int64_t seq,
                          vp_micro_steps steps, const vp_semantics *semantics, vp_cost *cost,
                          vp_library *out, vp_err *err);

/* Those of a library that is not empty, and segments of 2 to `longest` blocks, vp_longest_segment() or fewer; and a
 * library of one segment alone. */
vp_status vp_library_with_segments(vp_arena *arena, vp_outline_store *outlines, int64_t seq,
                                   vp_micro_steps steps, const vp_semantics *semantics,
                                   vp_cost *cost, const vp_library *alone, int64_t longest,
                                   vp_library *out, vp_err *err);
vp_status vp_library_of_segment(vp_arena *arena, const vp_model *model, int64_t seq,
                                vp_micro_steps steps, const vp_semantics *semantics, vp_cost *cost,
                                int64_t n_blocks, vp_library *out, vp_err *err);

/* What the outputs of a block's ops are, for the choice of those that may be moved to host memory. */
typedef struct vp_outputs {
    int64_t bytes[64]; /* that a block keeps of each where nothing is recomputed; 0: nothing     */
    int64_t copy_ns[64], lost_ns[64];
    int64_t again_ns[64]; /* to make it again from what else is kept                             */
} vp_outputs;
void vp_library_outputs(const vp_outlines *outlines, const vp_model *model, vp_cost *cost,
                        vp_outputs *out);

/* With one slot a block waits, before it writes or reads an output there, for the copy of the block before it,
 * which began when that one was done with the place: from one block's first use of it to the next one's,
 * or from last use to last use, kernels that use it run and its copy, one after the other. With p the
 * kernels of a block before its first use, a chain of blocks takes so at least
 *
 *     sum over all blocks but one of max(kernels, copy + kernels meanwhile + p - the largest p of any strategy)
 *
 * besides the kernels of that one, the last of the pass; or with p those behind the last use, and the first of
 * the pass. Of all outputs and both ways that which says the most is in one_slot_ns. In backward `copy` is also that of
 * outputs ahead on the stream: those whose copies start at the same kernel, lower ops first, and in the first way
 * those that start before it, but not before the first use, less the kernels from there on.
 *
 * Each of n_given sets that is among the outlines, and where base is not NULL each that a strategy of it
 * recomputes, or recomputes but for `activations`, at the micro-batch last scaled to, with the outputs
 * of all ops in `activations` moved to host memory, none of them made again. All that no other beats in
 * what it keeps, needs and computes. */
vp_status vp_library_of_moved(vp_arena *arena, const vp_outlines *outlines, const vp_library *base,
                              const uint64_t *sets, int n_given, uint64_t activations,
                              const vp_outputs *outputs, vp_library *out, vp_err *err);

/* Beyond its kernels, the most that a strategy waits for its one slot in a pass; and whether chains of so many
 * blocks, of whatever strategies, take more by waiting for it, but for one block, than their kernels do. */
int64_t vp_library_most_waited(const vp_library *library, int pass);
bool    vp_library_always_waits(const vp_library *library, int pass, int64_t n_blocks);

/* A library of one strategy. */
vp_status vp_library_of_set(vp_arena *arena, const vp_model *model, int64_t seq,
                            vp_micro_steps steps, const vp_semantics *semantics, vp_cost *cost,
                            uint64_t set, vp_library *out, vp_err *err);

#endif
