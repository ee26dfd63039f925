/* plan/workspace.h: working memory that a kernel call needs beside its operands, so that a plan can
 * give it a place.
 *
 * The CPU backend needs none: its kernels have their stack. The CUDA backend allocates nothing
 * once a program is built, so what cuBLASLt, cuDNN and its own reductions over tokens need is a
 * buffer of the plan, alive during the call only. Planner and backend ask the same function; the
 * backend refuses a call whose workspace is smaller. */
#ifndef VP_PLAN_WORKSPACE_H
#define VP_PLAN_WORKSPACE_H

#include "plan/op.h"

/* What of a call decides. */
typedef struct vp_call_shape {
    int            compute_capability; /* of the device, 90 for 9.0; 0: the CPU backend */
    vp_kernel      kernel;
    vp_dtype       dtype;
    const int64_t *ints;
    const double  *reals;
    bool           lengths; /* attention over samples of different lengths */
} vp_call_shape;

/* Whose attention kernel a CUDA device runs, where cuDNN is installed; ours runs wherever it is
 * not. */
typedef enum vp_attention_engine {
    /* every shape, fp32 and bf16 */
    VP_ATTENTION_OWN,
    VP_ATTENTION_CUDNN /* bf16, heads of 8 to 256 elements; no dropout, softcap, lengths or kept matrix: workspace.c */
} vp_attention_engine;

vp_attention_engine vp_cuda_attention_engine(const vp_call_shape *call);

/* Calls of cuDNN, equal and one after the other, that a backward call of its engine is made of:
 * parts of the batch, or, beyond batch, of each sample's groups of heads. cuDNN's workspace is
 * for one of them; where it repeats its bits it grows with the square of the sequence. The least
 * number with which it stays within VP_CUDNN_WORKSPACE_BYTES, or batch * kv_heads; on 9.0 and 10.0, whose
 * cards have 114 to 160 multiprocessors and mostly 80 GB and more, fewer where a part has too few blocks
 * to fill them twice, as far as VP_CUDNN_FILLING_BYTES go. 1 forward. A rule of shape and capability: for
 * another number of heads cuDNN may take another engine, and what a plan does elsewhere moves no bit. */
int64_t vp_cuda_attention_chunks(const vp_call_shape *call);

/* How such a call divides its workspace: row sums (backward), a multiple of VP_ALIGN_BYTES, then
 * what cuDNN asks for, at most. bytes: both. VP_OVERFLOW beyond 64 bits. */
typedef struct vp_attention_workspace {
    int64_t row_sum_bytes, library_bytes, bytes;
} vp_attention_workspace;

vp_attention_workspace vp_cuda_attention_workspace(const vp_call_shape *call, int64_t n_chunks);

enum {
    /* the sizes cuBLAS's own documentation gives as its defaults: 32 MiB on Hopper, */
    VP_CUBLASLT_WORKSPACE_SM90 = 32 << 20,
    /* 4 MiB elsewhere (CUDA Toolkit, cuBLAS, cublasSetWorkspace) */
    VP_CUBLASLT_WORKSPACE    = 4 << 20,
    VP_CUDNN_WORKSPACE_BYTES = 64 << 20,
    /* or, for a part that has at least so many blocks, so much; keys of a block: assumed of its kernels,
     * whose tiles are 64 to 128 long */
    VP_CUDNN_FILLING_BYTES = 320 << 20,
    VP_CUDNN_BLOCKS        = 256,
    VP_CUDNN_BLOCK_KEYS    = 128,
    /* tokens whose terms of a norm's gradient one block adds: a part of VP_TILE_TOKENS */
    VP_NORM_PART = 32,
    /* elements of a gradient whose squares one block adds */
    VP_SUMSQ_PIECE = 16384,
    /* the same of an optimizer that adds squares for one parameter */
    VP_NORM_PIECE = 4096,
    /* rows of a matrix over which one block adds squares of a column */
    VP_ADAFACTOR_TILE    = 256,
    VP_ADAFACTOR_SCALARS = 4 /* doubles at the start of its workspace                          */
};

/* Of a vocabulary that is no multiple of 8, in padded rows, the columns that each of a head's products takes
 * first, a multiple of VP_PADDED_TO; the others are a product of their own. Measured on an H200, 16384 x 768 x
 * 50257 in bf16: cuBLASLt's forward product of all at once takes 10.4 ms at best, of 50240 columns 1.53. `out`
 * where all are one product. */
int64_t vp_cuda_even_columns(int64_t out, int64_t padded);

/* What such a call has at the beginning of its workspace, fp32: an input's gradient of 16 bits, the sum of the two,
 * which is rounded once; of a weight's gradient stored (out, in) the other columns with their padding, of which the
 * first are added to it. 0: nothing. VP_OVERFLOW beyond 64 bits. */
int64_t vp_cuda_linear_sum_bytes(vp_kernel kernel, vp_dtype dtype, const vp_linear_ints *n);

/* Doubles that Adafactor's sums take in its workspace: an even number, VP_OVERFLOW beyond 64
 * bits. */
int64_t vp_cuda_adafactor_sums(int64_t rows, int64_t cols, bool factored);

/* Bytes, VP_OVERFLOW beyond 64 bits. */
int64_t vp_workspace_bytes(const vp_call_shape *call);

#endif
