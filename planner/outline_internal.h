/* planner/outline_internal.h: outlines between outline.c, which makes them, and outline_figures.c, which reads
 * figures off them. */
#ifndef VP_PLANNER_OUTLINE_INTERNAL_H
#define VP_PLANNER_OUTLINE_INTERNAL_H

#include "base/arena.h"
#include "planner/lowering/pack.h"
#include "planner/outline.h"

enum { VP_OUTLINE_BINS = 1024 };

/* A step as it stands in the programs of one or more sets. */
typedef struct kind_of_step {
    /* name, kernel, numbers and where operands lie at the first micro-batch; of a buffer not which
     * one (that differs from set to set) but how large */
    vp_step step;
    int64_t first_bytes[VP_MAX_OPERANDS];
    int64_t next; /* in its bin; -1: the last */
    /* where it was seen first; sets are numbered before segments */
    int64_t set_idx, step_idx;
    int     pass;
    /* at the micro-batch scaled to: of each operand that is a buffer, itself and rounded up */
    int64_t ns, bytes[VP_MAX_OPERANDS], aligned_bytes[VP_MAX_OPERANDS];
} kind_of_step;

/* A buffer of a set's program: as large as an operand of a kind of step. */
typedef struct sketched_buffer {
    int32_t kind, operand;
    int32_t maker;             /* of what is kept: 1 + the op whose output it is; 0: no op's */
    int32_t first[2], last[2]; /* steps of each pass; first -1: not there */
    int32_t first_use[2];      /* likewise, but for what is there before a step uses it */
} sketched_buffer;

/* Input, then what is kept, by offset; then what lives inside a pass; then the output, if there
 * is one. */
typedef struct outline {
    uint64_t         set;
    sketched_buffer *buffers;
    int32_t          n_buffers, n_kept; /* kept: the input, too */
    bool             has_out;
    int32_t         *kinds; /* of its steps, both passes */
    int32_t          n_kinds, n_forward;
    int64_t          ns, forward_ns; /* at the micro-batch scaled to */
    int32_t          fullest[2];     /* the step of each pass where most was needed at first */
    int32_t         *by_first[2], *by_last[2], n_in[2]; /* buffers of a pass, by step */
    struct packed   *packed;                            /* what was packed, latest first */
} outline;

/* Buffers as they were packed, and the height that it came to. */
typedef struct packed {
    struct packed *next;
    uint64_t       offload;
    int64_t        height_bytes;
    int64_t        bytes[]; /* of each buffer */
} packed;

/* Blocks in a row, recomputed as one. */
typedef struct segment {
    outline   outline;
    vp_arena *arena; /* of the graph; NULL: no kind of step was seen first here */
    vp_graph  graph;
} segment;

struct vp_outlines {
    vp_arena           *arena, *arena_beside; /* the second has what was outlined beside the rest */
    const vp_model     *model;
    const vp_semantics *semantics;
    int64_t             seq, micro_batch; /* scaled to; micro_batch 0: to none */
    int                 compute_capability;
    outline            *sets;
    int64_t             n_sets, cap_sets;
    segment            *segments; /* of 2, 3, ... blocks */
    int64_t             n_segments;
    kind_of_step       *kinds;
    int64_t             n_kinds, cap_kinds;
    int64_t             bins[VP_OUTLINE_BINS]; /* first kind; -1: none */
};

/* outline_figures.c: what a pass needs at least over all its steps; *fullest is where, and where it is looked for
 * first. items: NULL, or scratch, and transients are taken whole. */
vp_status vp_outline_least_of_pass(const vp_outlines *o, const outline *x, uint64_t offload,
                                   int pass, vp_pack_item *items, int32_t *fullest, int64_t *most,
                                   vp_err *err);

#endif
