/* planner/lowering/lower.h: one block, as a list of steps with every buffer's birth, death and
 * place.
 *     vp_lower_opts opts = { .symbols = {8, 256, 1, 1}, .recompute = flags, .chunk_rows = 1024 };
 *     VP_TRY(vp_lower(arena, graph, 1, &vp_semantics_vplan_fp32, &opts, &lowered, err));
 *
 * This is the only place where a graph becomes steps. It derives the backward of a template by
 * walking its ops in reverse and emitting the semantics' backward micro-ops. A forward value that a
 * backward step reads is *kept*, unless its op is marked for recomputation: then the op's forward
 * is emitted again just before the first step that needs it, its inputs recomputed first where they
 * are not there (each op once). Forward steps whose results nobody reads any more are left out.
 * Gradients of one tensor from several ops are added in place; an addition passes its gradient on
 * without a copy; a kernel that may work in place does so where the old value is dead. The gradient
 * of the block's input ends up where the input was.
 *
 * Chunked ops (head and loss) run forward and backward together, chunk after chunk of rows, in the
 * backward pass; nothing of theirs is kept.
 *
 * Offsets are relative to the instance's base: input at 0, kept buffers in the order they are
 * produced, output at kept_bytes, and what lives inside one pass packed into free space
 * (planner/lowering/pack.h). */
#ifndef VP_PLANNER_LOWERING_LOWER_H
#define VP_PLANNER_LOWERING_LOWER_H

#include "base/err.h"
#include "plan/plan.h"
#include "planner/lowering/semantics.h"

/* Of a pass's height: as packed; what no offsets can undercut; or not asked for, which takes least. */
typedef enum vp_heights { VP_HEIGHTS_PACKED, VP_HEIGHTS_LEAST, VP_HEIGHTS_NONE } vp_heights;

typedef struct vp_lower_opts {
    int64_t symbols[VP_N_SYMBOLS];
    /* bit i: op i of the template is recomputed, not kept; of more than 64 ops all bits: all are */
    uint64_t recompute;
    /* bit i: what is kept of the first output of op i is kept in host memory. It takes no place in
     * the block's region: its buffer, one behind the other there, is in memory "host-pinned", and
     * steps that name it are to work on a copy elsewhere (planner/activations.c) */
    uint64_t offload;
    /* rows of a chunk of the chunked ops, a multiple of VP_TILE_TOKENS; 0: all rows */
    int64_t chunk_rows;
    /* of many chunks those alone are lowered that may differ, and one that stands for the others, which are
     * alike: see vp_lowered.middle */
    bool brief;
    /* buffers have no names of their own, for figures alone */
    bool unnamed;
    /* compute capability of the device, whose kernels may need workspace; 0: the CPU */
    int compute_capability;
    /* offsets within a pass are chosen for VP_HEIGHTS_PACKED alone */
    vp_heights heights;
    /* of the template's input; VP_DTYPE_NONE: the semantics' compute type */
    vp_dtype in_dtype;
    /* where the plan's fixed buffers are: of the graph's spans, the control block, and the first
     * of its rotary angles */
    int64_t span_idx[VP_MAX_SPANS], control_idx, angles_idx;
} vp_lower_opts;

/* One value kept from forward to backward. */
typedef struct vp_saved {
    const char *name;
    vp_dtype    dtype;
    int64_t     bytes;
} vp_saved;

/* Of the backward pass the steps of a chunk that stand for those of as many, one after the other. n_times 0:
 * all chunks are there. unsure: packing the buffers of all might come to another height. */
typedef struct vp_middle_chunk {
    int64_t first, n_steps, n_times;
    bool    unsure;
} vp_middle_chunk;

typedef struct vp_lowered {
    /* steps of the forward and backward pass; of an executable semantics only */
    vp_program program;
    /* of the forward and backward pass, as opts->heights asks; 0 where it asks for none */
    int64_t height_bytes[2]; /* largest offset + bytes */
    /* most bytes alive at one step, each rounded to VP_ALIGN_BYTES: a lower bound of the height */
    int64_t live_bytes[2];
    /* what forward leaves for backward, input included, parameters not */
    vp_saved *saved;
    int64_t   n_saved;
    vp_dtype  out_dtype;
    /* of each buffer of the program: 1 + the op whose first output it keeps for backward; 0: none */
    int *makers;
    /* per op: its forward stands in the backward pass, too; chunked ops not counted */
    const bool     *again;
    vp_middle_chunk middle; /* with opts->brief */
} vp_lowered;

/* Of each tensor of a template: whether a parameter that is trained needs its gradient, one of this
 * template or, of what begins in its input, of an instance before one of its. */
void vp_wanted_gradients(const vp_graph *graph, int template_idx, bool *wanted);

/* Whether the backward pass of an op reads one of its own values: steps that make gradients which
 * nobody needs do not count. */
bool vp_backward_reads(const vp_graph *graph, int template_idx, const vp_semantics *semantics,
                       const bool *wanted, int op_idx, vp_ref ref);

/* *out is zeroed by the caller. Everything returned lives in arena. VP_ERR_INPUT: sizes beyond
 * 64 bits. */
vp_status vp_lower(vp_arena *arena, const vp_graph *graph, int template_idx,
                   const vp_semantics *semantics, const vp_lower_opts *opts, vp_lowered *out,
                   vp_err *err);

#endif
