/* tests/lowering/training_step.h: one whole training step of any trainer, in order: every
 * micro-op, and every value's birth and death as an allocator sees them.
 *     vp_training_opts opts = {.symbols = {2, 32, 1, 1}, .n_micro_steps = 1, .recipe = &recipe};
 *     VP_TRY(vp_lower_training(arena, graph, &semantics, VP_TRAIN_FIRST_STEP, &opts, &step, err));
 *
 * The same lowering that makes vplan's plans (lower.h, lower_param.h), unrolled over instances and
 * micro-steps. A plan places blocks in an arena; another trainer's program is replayed through its
 * allocator: walk `events` in order.
 *
 * A value is born before the first micro-op that names it and dies after the last that does. What
 * the semantics holds lives from before the step until after it. An operand of a micro-op that was
 * born before and is written again is changed in place. */
#ifndef VP_TESTS_LOWERING_TRAINING_STEP_H
#define VP_TESTS_LOWERING_TRAINING_STEP_H

#include "base/arena.h"
#include "base/err.h"
#include "plan/plan.h"
#include "planner/lowering/semantics.h"

typedef enum vp_training_program {
    VP_TRAIN_LOAD,       /* parameters come into being, and all that is held from the start */
    VP_TRAIN_FIRST_STEP, /* the optimizer's states may be made in it                       */
    VP_TRAIN_LATER_STEP, /* they are there                                                 */
    VP_TRAIN_EVALUATION  /* forward only, nothing is kept for a backward                   */
} vp_training_program;

typedef enum vp_training_phase {
    VP_TPHASE_LOAD,
    VP_TPHASE_FORWARD,
    VP_TPHASE_BACKWARD,
    VP_TPHASE_CLIP,
    VP_TPHASE_UPDATE,
    VP_TPHASE_ZERO,
    VP_N_TPHASES
} vp_training_phase;

typedef struct vp_training_opts {
    int64_t          symbols[VP_N_SYMBOLS]; /* of one micro-step */
    int64_t          n_micro_steps;
    const uint64_t  *recompute;  /* per instance: bit i: op i is recomputed; NULL: none */
    int64_t          chunk_rows; /* as vp_lower_opts; of semantics with chunks          */
    vp_dtype         in_dtype;   /* of the residual stream; VP_DTYPE_NONE: the compute type */
    const vp_recipe *recipe;
} vp_training_opts;

typedef struct vp_training_value {
    const char  *name;
    vp_component component;    /* what it is for: its owner ...       */
    int64_t      instance_idx; /* ... and whose; -1: the step's own  */
    vp_dtype     dtype;
    int64_t      bytes;
    int64_t      born_op,
        died_op; /* op it is born before, and dies after; -1: outlives the step there */
} vp_training_value;

typedef struct vp_training_op {
    vp_kernel         kernel; /* VP_N_KERNELS: a micro-op that is only simulated */
    const char       *name;   /* of the micro-op, or of the kernel              */
    vp_training_phase phase;
    int64_t           micro_step, instance_idx; /* -1: none */
    int               n_operands;
    int64_t           value[VP_MAX_OPERANDS]; /* -1: left out */
    vp_access         access[VP_MAX_OPERANDS];
} vp_training_op;

typedef struct vp_training_event {
    bool    birth;
    int64_t value, op;
} vp_training_event;

typedef struct vp_training_step {
    vp_training_op    *ops;
    int64_t            n_ops, cap_ops;
    vp_training_value *values;
    int64_t            n_values, cap_values;
    int64_t n_held; /* the first values: what is held for parameters, the same in every program */
    vp_training_event *events; /* births and deaths inside the step, in allocation order */
    int64_t            n_events;
} vp_training_step;

/* Everything lives in arena. VP_ERR_INPUT: sizes beyond 64 bits; the semantics has no row for the
 * recipe's optimizer or its clipping, or cannot evaluate. */
vp_status vp_lower_training(vp_arena *arena, const vp_graph *graph, const vp_semantics *semantics,
                            vp_training_program program, const vp_training_opts *opts,
                            vp_training_step *out, vp_err *err);

/* Bytes alive, without any allocator's rounding: the most in each phase, and at its end; what is
 * there before the step is counted. Of a phase without micro-ops both are those of the phase before. */
typedef struct vp_training_bytes {
    int64_t before, most[VP_N_TPHASES], end[VP_N_TPHASES];
} vp_training_bytes;
void vp_training_count(const vp_training_step *step, vp_training_bytes *out);

#endif
