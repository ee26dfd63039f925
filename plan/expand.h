/* plan/expand.h: a plan unrolled over one optimizer step: the one place that knows what it means.
 * Runtime, checker, explain and simulator all walk it.
 *     VP_TRY(vp_expand(plan, &plan->buckets[0], n_micro_steps, on_step, ctx));
 *
 * Steps are numbered from 0. Buffers have ids: first the fixed ones (batch and control), then
 * parameters, gradients, master weights and optimizer states in chain order, then for each
 * micro-step the instances' own buffers. An instance's output is its successor's input: one id.
 * Where fewer micro-steps are walked than the bucket has, the batches of the others are one buffer
 * that no step touches. */
#ifndef VP_PLAN_EXPAND_H
#define VP_PLAN_EXPAND_H

#include "plan/plan.h"

typedef struct vp_expanded_operand {
    int64_t   buffer; /* id; -1: left out                                  */
    vp_memory memory;
    int64_t   offset_bytes; /* in the memory, argument offset included           */
    vp_access access;       /* VP_READ, VP_WRITE or VP_UPDATE, never ACCUMULATE  */
} vp_expanded_operand;

typedef struct vp_expanded_step {
    int64_t        idx;
    vp_pass        pass;
    int64_t        micro_step; /* -1 in the optimizer */
    int64_t        instance_idx;
    const vp_step *step;
    /* the call's attributes: the step's, with its instance's window */
    const int64_t *ints;
    bool           accumulate;
    uint32_t       rng_op; /* vp_rng_stream.op    */
    /* of a copy_done: those of the copy_start it waits for, which started as step `started`; none
     * and -1 where no such copy is under way */
    int                 n_operands;
    vp_expanded_operand operands[VP_MAX_OPERANDS];
    int64_t             started, copy_bytes;
} vp_expanded_step;

/* Bytes of an operand of an expanded step. */
int64_t vp_expanded_operand_bytes(const vp_expanded_step *step, int operand);

typedef vp_status (*vp_expand_fn)(const vp_expanded_step *step, void *ctx, vp_err *err);

/* Enough of a bucket's micro-steps to see all there is: the first, a middle one that stands for all
 * middle ones, the last. */
enum { VP_MAX_UNROLLED = 3 };
int64_t vp_unrolled_micro_steps(const vp_bucket *bucket);

/* Walk the steps of one optimizer step with n_micro_steps micro-steps (the bucket's number, or
 * fewer: every middle micro-step equals any other). Stops at the first call that fails. */
vp_status vp_expand(const vp_plan *plan, const vp_bucket *bucket, int64_t n_micro_steps,
                    vp_expand_fn fn, void *ctx, vp_err *err);

typedef struct vp_expanded_buffer {
    vp_memory    memory;
    int64_t      offset_bytes, bytes;
    vp_component component;
    char         name[160];
    bool         persistent;   /* holds data before the first step */
    int64_t      instance_idx; /* -1: none   */
    const char  *local_name;   /* the program's name for it, else NULL */
    const char  *state_name;   /* the optimizer's name for it, else NULL */
    bool         kept;
    bool         not_walked; /* the batches of the micro-steps that were left out */
} vp_expanded_buffer;

/* Everything in arrays: lifetimes (inclusive; a buffer no step touches has first -1) and count
 * of steps. What lies below the activation stack (batch, control, parameters, gradients, states)
 * lives in every step, but for gradients where updates are made in backward; the optimizer's working memory lies in the stack's place, in the steps
 * that use it. */
typedef struct vp_expansion {
    int64_t             n_buffers, n_steps;
    vp_expanded_buffer *buffers;
    int64_t            *first_step, *last_step;
    unsigned char      *passes; /* vp_pass of each step, as it is run */
} vp_expansion;

/* Lives in arena. Padding is not in it; see vp_expansion_padding(). */
vp_status vp_expansion_make(vp_arena *arena, const vp_plan *plan, const vp_bucket *bucket,
                            int64_t n_micro_steps, vp_expansion *out, vp_err *err);

/* The ranges of [0, peak_bytes) of a memory that no buffer ever covers, in ascending order. */
typedef struct vp_range {
    int64_t begin, end;
} vp_range;
vp_status vp_expansion_padding(vp_arena *arena, const vp_expansion *x, vp_memory memory,
                               int64_t peak_bytes, vp_range **ranges, int64_t *n, vp_err *err);

/* "forward", "backward", "optimizer". */
const char *vp_pass_phase(vp_pass pass);

#endif
