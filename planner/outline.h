/* planner/outline.h: every set of a block's ops that may be recomputed, lowered once, for figures
 * at any sequence and micro-batch, on any device.
 *     VP_TRY(vp_outlines_make(model, seq, 1, semantics, cost, &outlines, err));
 *     VP_TRY(vp_outlines_scale(outlines, seq, 8, cost, &alike, err));
 *     for (int64_t i = 0; alike && i < vp_outlines_count(outlines); i++)
 *         vp_outline_estimate(outlines, i, &strategy);
 *
 * What a set's program looks like, which steps it has and which buffers live when, does not depend
 * on sequence and micro-batch: only the sizes of buffers and the seconds of steps do. Thousands of sets
 * are made of some hundred distinct steps, so that for another micro-batch only a few sets are lowered
 * again, one for each distinct step, and the figures of all others are sums and maxima over these.
 * vp_outlines_scale() checks that those sets look as they did: whether a step has a workspace, and
 * which of its operands are as large as another (a kernel may then work in place), is all that
 * lowering asks of sizes. Segments of blocks are outlined likewise: they have the steps of blocks. */
#ifndef VP_PLANNER_OUTLINE_H
#define VP_PLANNER_OUTLINE_H

#include "planner/library.h"

typedef struct vp_outlines vp_outlines;

/* Lower every set worth it at this micro-batch, and scale to it. Model and semantics are borrowed;
 * the caller frees *out. */
vp_status vp_outlines_make(const vp_model *model, int64_t seq, int64_t micro_batch,
                           const vp_semantics *semantics, vp_cost *cost, vp_outlines **out,
                           vp_err *err);
void      vp_outlines_free(vp_outlines *outlines);

int64_t vp_outlines_count(const vp_outlines *outlines);

/* Sizes and seconds at another sequence and micro-batch. *alike false: programs look otherwise there,
 * make outlines there instead. */
vp_status vp_outlines_scale(vp_outlines *outlines, int64_t seq, int64_t micro_batch, vp_cost *cost,
                            bool *alike, vp_err *err);

/* The next vp_outlines_scale() is by another device or profile: seconds and workspaces are others. */
void vp_outlines_forget_costs(vp_outlines *outlines);

/* Set idx at the micro-batch last scaled to, where the outputs of the ops of `offload` lie elsewhere,
 * as far as it keeps them: out->offload says which. kept_bytes and ns exactly, and a height that
 * no packing can undercut: what is needed at the step that was the fullest at first. */
void vp_outline_estimate(const vp_outlines *outlines, int64_t idx, uint64_t offload,
                         vp_strategy *out);

/* Its ns alone, and the ops that it makes again. */
int64_t  vp_outline_ns(const vp_outlines *outlines, int64_t idx);
uint64_t vp_outline_set(const vp_outlines *outlines, int64_t idx);

/* The same at whichever step is the fullest now; takes longer. And of whole buffers, which is what packing comes to
 * nine times in ten; longer again. VP_ERR_NOMEM; VP_ERR_INPUT: beyond 64 bits. */
int64_t   vp_outline_least_height(const vp_outlines *outlines, int64_t idx, uint64_t offload);
vp_status vp_outline_least_whole(const vp_outlines *outlines, int64_t idx, uint64_t offload,
                                 int64_t *least_bytes, vp_err *err);

/* Its height_bytes exactly: as packed by vp_lower(). Takes the longest, but where it is known: where it was packed at
 * another sequence or micro-batch and every buffer is as many times as large there. */
bool      vp_outline_known_height(const vp_outlines *outlines, int64_t idx, uint64_t offload,
                                  int64_t *height_bytes);
vp_status vp_outline_pack(const vp_outlines *outlines, int64_t idx, uint64_t offload,
                          int64_t *height_bytes, vp_err *err);

/* A segment of m blocks, 2 to vp_longest_segment(): its ns alone, and all of it exactly. */
int64_t   vp_outline_segment_ns(const vp_outlines *outlines, int64_t m);
vp_status vp_outline_segment(const vp_outlines *outlines, int64_t m, vp_strategy *out, vp_err *err);

/* Bytes of the output of each op that set idx keeps, 0 of others; and nanoseconds of the forward of the
 * op of this name, which is the graph's own string. Set 0 recomputes nothing. */
void    vp_outline_outputs(const vp_outlines *outlines, int64_t idx, int64_t bytes[64]);
int64_t vp_outline_forward_ns(const vp_outlines *outlines, int64_t idx, const char *op);

/* Nanoseconds of a pass of set idx by what it does with the output of an op that it keeps: kernels before it, those
 * meanwhile and those behind it. In forward, meanwhile the kernel runs that writes to it first; in backward
 * those from the first to the last that use it. Which kernels of the pass the first and the last of these are, too.
 * False: it keeps no such output, or has no use for it. */
typedef struct vp_outline_use {
    int64_t before_ns, meanwhile_ns, behind_ns;
    int32_t first_step, last_step;
} vp_outline_use;
bool vp_outline_use_of(const vp_outlines *outlines, int64_t idx, int pass, int op,
                       vp_outline_use *out);

#endif
