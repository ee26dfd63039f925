/* core/workspace.h: working memory that a kernel call needs beside its operands, so that a plan can give it a place.
 *
 * The CPU backend needs none: its kernels have their stack. The CUDA backend allocates nothing once a program is built, so what
 * cuBLASLt, cuDNN and its own reductions over tokens need is a buffer of the plan, alive during the call only.
 * Planner and backend ask the same function; the backend refuses a call whose workspace is smaller. */
#ifndef VP_CORE_WORKSPACE_H
#define VP_CORE_WORKSPACE_H

#include "core/op.h"

/* What of a call decides: sm is the device's compute capability (90 for 9.0), 0 the CPU backend. */
typedef struct vp_call_shape {
    int            sm;
    vp_kernel      kernel;
    vp_dtype       dtype;
    const int64_t *ints;
    const double  *reals;
    bool           lengths;   /* attention over samples of different lengths */
} vp_call_shape;

/* Whose attention kernel a CUDA device runs. */
typedef enum vp_attention_engine {
    VP_ATTENTION_OWN,     /* every shape, fp32 and bf16                                         */
    VP_ATTENTION_CUDNN    /* bf16, no dropout, softcap, lengths, or kept matrix; see workspace.c */
} vp_attention_engine;

vp_attention_engine vp_cuda_attention_engine(const vp_call_shape *call);

/* Parts of batch times groups of heads that a cuDNN backward call is made in, one after the other, so that its workspace, which
 * is quadratic in the sequence where it is deterministic, stays within VP_CUDNN_WORKSPACE_BYTES where it can. A divisor of batch * kv_heads. */
int64_t vp_cuda_attention_chunks(const vp_call_shape *call);

enum {
    VP_CUBLASLT_WORKSPACE_SM90 = 32 << 20, /* the sizes cuBLAS's own documentation gives as its defaults: 32 MiB on Hopper, */
    VP_CUBLASLT_WORKSPACE      = 4 << 20,  /* 4 MiB elsewhere (CUDA Toolkit, cuBLAS, cublasSetWorkspace)                     */
    VP_CUDNN_WORKSPACE_BYTES   = 64 << 20,
    VP_SUMSQ_PIECE             = 16384,    /* elements of a gradient whose squares one block adds            */
    VP_NORM_PIECE              = 4096,     /* the same of an optimizer that adds squares for one parameter   */
    VP_ADAFACTOR_TILE          = 256,      /* rows of a matrix over which one block adds squares of a column */
    VP_ADAFACTOR_SCALARS       = 4         /* doubles at the start of its workspace                          */
};

/* Doubles that Adafactor's sums take in its workspace: an even number, VP_OVERFLOW beyond 64 bits. */
int64_t vp_cuda_adafactor_sums(int64_t rows, int64_t cols, bool factored);

/* Bytes, VP_OVERFLOW beyond 64 bits. */
int64_t vp_workspace_bytes(const vp_call_shape *call);

/* Of a step, which may be an attention whose window differs from instance to instance: what every window can need. */
struct vp_step;
int64_t vp_step_workspace_bytes(int sm, const struct vp_step *step);

#endif
