/* kernels/cuda/attention_cudnn.h: attention as cuDNN graphs: what they are made of and how an
 * engine is chosen. Nothing here needs a device: a plan for a card that is only described can be
 * asked for its workspace, not executed.
 *     vp_cudnn_shape shape = vp_cudnn_shape_of(VP_K_ATTENTION_BWD, &call->attention, n_chunks);
 *     VP_TRY(vp_cudnn_plan_new(&api, &target, &shape, INT64_MAX, &plan, err));
 *     printf("%lld\n", (long long)plan->workspace_bytes);
 */
#ifndef VP_KERNELS_CUDA_ATTENTION_CUDNN_H
#define VP_KERNELS_CUDA_ATTENTION_CUDNN_H

#include "kernels/backend.h"
#include "kernels/cuda/cudnn_api.h"

#include <stdbool.h>

/* Queries, keys, values or results of all heads: element c of head h in row r (sample times seq
 * + token) is at first + r row + h head + c of its tensor. */
typedef struct vp_cudnn_part {
    int64_t first, row, head;
} vp_cudnn_part;

/* What is promised of every tensor in memory; a head begins there too, since head_dim is a
 * multiple of 8. Rows of lse begin at any multiple of seq floats, and so does the lse of a
 * chunk. */
enum { VP_CUDNN_ALIGN_TENSOR = 16 };

static inline int64_t vp_cudnn_align_lse(int64_t seq)
{
    return seq % 4 == 0 ? VP_CUDNN_ALIGN_TENSOR : (int64_t)sizeof(float);
}

/* What one graph computes: a call, or one of the equal chunks a backward call is made in. Whole
 * numbers only, so that two can be compared byte by byte. */
typedef struct vp_cudnn_shape {
    int64_t       backward, batch, seq, heads, kv_heads, head_dim;
    int64_t       causal, window; /* window 0: none, or as long as the sequence */
    vp_cudnn_part q, k, v, y;     /* dq, dk, dv and dy lie as these */
} vp_cudnn_shape;

/* ints as in plan/op.h. n_chunks divides batch, or is batch times a divisor of kv_heads. */
vp_cudnn_shape vp_cudnn_shape_of(vp_kernel kernel, const vp_attention_ints *n, int64_t n_chunks);

/* A device by its handle, or one that is only described (DEVICEPROP); the other is NULL. */
typedef struct vp_cudnn_target {
    void               *handle;
    vp_cudnn_descriptor properties;
    int                 compute_capability;
} vp_cudnn_target;

/* Ids of the tensors that an execution is given, and of the scalars that a plan holds. */
enum {
    VP_CUDNN_Q = 1,
    VP_CUDNN_K,
    VP_CUDNN_V,
    VP_CUDNN_Y,
    VP_CUDNN_LSE,
    VP_CUDNN_DY,
    VP_CUDNN_DQ,
    VP_CUDNN_DK,
    VP_CUDNN_DV,
    VP_CUDNN_ROW_SUM,
    VP_CUDNN_SCALE,
    VP_CUDNN_MASKED,
    VP_CUDNN_ONE,
    VP_CUDNN_BEFORE,
    VP_CUDNN_AFTER,
    VP_CUDNN_N_IDS
};

/* An engine of cuDNN configured for a graph; descriptor: the execution plan, NULL where the
 * device is only described. */
typedef struct vp_cudnn_plan vp_cudnn_plan;
struct vp_cudnn_plan {
    vp_cudnn_shape      shape;
    vp_cudnn_descriptor descriptor;
    int64_t             workspace_bytes;
    /* of cuDNN's numbering; kernel -1: its engine has one */
    int64_t                engine, kernel;
    bool                   deterministic;        /* cuDNN does not note otherwise */
    bool                   uses[VP_CUDNN_N_IDS]; /* ids of the graph               */
    int                    n_operations;
    struct vp_cudnn_owned *owned; /* descriptors the plan is made of */
};

/* The first engine configuration of those cuDNN proposes (heuristic mode A, or the one named in
 * attention_cudnn_graph.c) that it supports, that repeats its bits, and whose workspace is at
 * most max_workspace_bytes. VP_ERR_INPUT: there is none, and why; VP_ERR_DEVICE: cuDNN refuses
 * what it should take. */
vp_status vp_cudnn_plan_new(const vp_cudnn_api *api, const vp_cudnn_target *target,
                            const vp_cudnn_shape *shape, int64_t max_workspace_bytes,
                            vp_cudnn_plan **out, vp_err *err);
void      vp_cudnn_plan_free(const vp_cudnn_api *api, vp_cudnn_plan *plan); /* takes NULL */

/* A call, in n_chunks one after the other, on the handle's stream (attention_cudnn.c). Operands
 * are aligned as above, and the workspace is what vp_cuda_attention_workspace() says for as
 * many. */
struct vp_cudnn;
vp_status vp_cudnn_attention(struct vp_cudnn *c, int compute_capability, const vp_kernel_call *call,
                             int64_t n_chunks, vp_err *err);

#endif
