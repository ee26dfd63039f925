/* kernels/cuda/cuda_internal.h: what the files of the CUDA backend share. Parses as C11 and as
 * C++17. */
#ifndef VP_KERNELS_CUDA_INTERNAL_H
#define VP_KERNELS_CUDA_INTERNAL_H

#include <cublasLt.h> /* C++ too, in nvcc's hands */
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/backend.h"

/* The one device of this process. */
typedef struct vp_cuda {
    int     device, compute_capability, n_multiprocessors;
    int64_t cache_bytes; /* L2 */
    /* the device's place, by which the driver's tools know it; "": not known */
    char             bus[32];
    int64_t          used_before_bytes; /* of the device, before it was opened; -1: not told */
    cudaStream_t     stream;            /* all work but copies beside it goes here, in order  */
    cublasLtHandle_t lt;
    struct vp_cudnn *cudnn; /* NULL: cuDNN cannot be opened                       */
} vp_cuda;

/* VP_OK, or VP_ERR_DEVICE with CUDA's own name and sentence for the error; clears CUDA's last
 * error. what: "copy to the device". */
vp_status vp_cuda_check(cudaError_t e, const char *what, vp_err *err);

/* In a function with `st` and `out:`, as VP_TRY. */
#define VP_CUDA(call, what) VP_TRY(vp_cuda_check((call), (what), err))

/* ---- matrix products: linear_cublaslt.c ---- */

/* C(m, n) = alpha A(m, k) B(k, n) + beta C, row-major; ld* in elements of the stored rows. bias
 * (n, dtype of c) or NULL is added to every row. added (as C) or NULL: what beta is of instead of C. A and B are of dtype ab, C of dtype c; products
 * are summed in fp32, fp32 is multiplied in full precision, or as TF32 where the product says so. */
typedef struct vp_cuda_gemm {
    int64_t      m, n, k;
    const void  *a, *b, *bias, *added;
    void        *c;
    int64_t      lda, ldb, ldc;
    bool         a_transposed, b_transposed; /* stored (k, m), (n, k) */
    bool         tf32;
    vp_dtype     ab, c_dtype;
    float        alpha, beta;
    vp_algorithm algorithm; /* or unset */
} vp_cuda_gemm;

vp_status vp_cuda_gemm_run(vp_cuda *cuda, const vp_cuda_gemm *g, void *workspace,
                           int64_t workspace_bytes, vp_err *err);
void      vp_cuda_gemm_forget(void); /* frees the descriptors kept since the device was opened */

/* ---- streams and events, as vp_backend has them: streams_cuda.c ---- */

vp_status vp_cuda_streams_copy(vp_cuda *cuda, vp_stream stream, void *to, const void *from,
                               int64_t n_bytes, vp_err *err);
vp_status vp_cuda_streams_host(vp_cuda *cuda, void (*f)(void *ctx), void *ctx, vp_err *err);
vp_status vp_cuda_streams_mark(vp_cuda *cuda, vp_stream stream, int event, vp_err *err);
vp_status vp_cuda_streams_after(vp_cuda *cuda, vp_stream stream, int event, vp_err *err);

/* The compute stream goes on behind what the copy streams were given so far; enqueued, so that it
 * may be recorded. Nothing is enqueued where nothing was copied. */
vp_status vp_cuda_streams_join(vp_cuda *cuda, vp_err *err);
/* What the copy streams are given next comes behind the compute stream's work so far. */
void vp_cuda_streams_fork(void);
/* A recording begins or has ended, with nothing under way: events are as if never marked, and the
 * copy streams fork from the compute stream. */
void      vp_cuda_streams_border(void);
vp_status vp_cuda_streams_wait(vp_err *err); /* the host, for the copy streams */
void      vp_cuda_streams_close(void);

/* ---- kernels that need more than a launch ---- */

/* linear_cublaslt.c */
vp_status vp_cuda_linear(vp_cuda *cuda, const vp_kernel_call *call, vp_err *err);
vp_status vp_cuda_linear_algorithms(vp_cuda *cuda, const vp_kernel_call *call, int max,
                                    vp_algorithm *out, int *n, vp_err *err);
/* attention_cudnn.c */
vp_status vp_cuda_attention_cudnn(vp_cuda *cuda, const vp_kernel_call *call, vp_err *err);
/* muon_cublaslt.c */
vp_status vp_cuda_muon_update(vp_cuda *cuda, const vp_kernel_call *call, vp_err *err);

/* Open cuDNN with what attention needs; NULL with the reason in err where it is missing or too
 * old. */
struct vp_cudnn *vp_cudnn_open(cudaStream_t stream, vp_err *err);
void             vp_cudnn_close(struct vp_cudnn *cudnn); /* takes NULL */
const char      *vp_cudnn_version(const struct vp_cudnn *cudnn);

/* ---- launchers, one for each row of plan/kernels.def ----
 *
 * They enqueue on stream, check the launch and do not
 * synchronise. */
typedef cudaError_t (*vp_cuda_launch_fn)(const vp_kernel_call *call, cudaStream_t stream);

/* Those of kernels that backend_cuda.c does not launch alone are never defined. */
#define VP_RUN(NAME, name) \
    cudaError_t vp_cuda_##name(const vp_kernel_call *call, cudaStream_t stream);
#include "plan/kernels.def"
/* to (count, dtype), or what is added to it, from a product in fp32 */
cudaError_t vp_cuda_linear_sum(const float *sum, void *to, vp_dtype dtype, int64_t count, bool adds,
                               cudaStream_t stream);
/* db of linear_bwd_weight */
cudaError_t vp_cuda_bias_grad(const vp_kernel_call *call, cudaStream_t stream);

/* ---- optimizers that update each element by itself: optimizer.cu ----
 *
 * Calls one after the other are collected, and become one launch where they differ in the parameter
 * only.
 *     if (!vp_cuda_updates_take(&updates, call)) {
 *         e = vp_cuda_updates_launch(&updates, stream);
 *         vp_cuda_updates_take(&updates, call);         // nothing waits: any call is taken
 *     } */
enum { VP_CUDA_MAX_UPDATES = 60 };

typedef struct vp_cuda_update {
    void       *p;
    const void *g;        /* fp32 or bf16 */
    void       *state[2]; /* m, v         */
    float      *master;   /* or NULL      */
    int64_t     count;
    uint32_t    rng_op;
    unsigned    first_block; /* of the launch: blocks from here to the next one's are its own */
    bool        decays, aligned;
} vp_cuda_update;

/* A kernel's parameter, as it is: not above the 4096 bytes that every driver takes. */
typedef struct vp_cuda_updates {
    vp_cuda_update       of[VP_CUDA_MAX_UPDATES];
    int                  n;
    unsigned             n_blocks;
    vp_kernel            kernel;
    vp_dtype             dtype;
    vp_state_kind        state;
    uint32_t             rng_step;
    uint64_t             rng_seed;
    const vp_control    *control;
    vp_optimizer_numbers numbers;
} vp_cuda_updates;

/* False, and nothing is taken: it differs in more, it touches what a collected one touches, or
 * there is no room. */
bool vp_cuda_updates_take(vp_cuda_updates *all, const vp_kernel_call *call);
/* Launches what was taken (n > 0), which is forgotten either way. */
cudaError_t vp_cuda_updates_launch(vp_cuda_updates *all, cudaStream_t stream);

/* ---- the squares of gradients: grad_norm.cu ----
 *
 * Collected as updates are: calls one after the other whose sums have places of their own become
 * one addition to the control block in the order they were taken, with the bits of one call
 * after the other. */
enum { VP_CUDA_MAX_SQUARES = 120 };

typedef struct vp_cuda_square {
    const void *g;    /* fp32 or bf16, all alike */
    double     *sums; /* of each piece */
    int64_t     count;
    unsigned    first_block; /* a block a piece, as above */
    bool        aligned;
} vp_cuda_square;

typedef struct vp_cuda_squares {
    vp_cuda_square of[VP_CUDA_MAX_SQUARES];
    int            n;
    unsigned       n_blocks;
    bool           bf16;
    vp_control    *control;
} vp_cuda_squares;

bool        vp_cuda_squares_take(vp_cuda_squares *all, const vp_kernel_call *call);
cudaError_t vp_cuda_squares_launch(vp_cuda_squares *all, cudaStream_t stream); /* n > 0 */

/* The steps of Muon between its matrix products: optimizer_muon.cu. partials: one more than
 * pieces of VP_NORM_PIECE elements, left by the first for the second. b = poly_a I + poly_b a,
 * size by size. */
cudaError_t vp_cuda_muon_momentum(const vp_kernel_call *call, float *x, double *partials,
                                  cudaStream_t stream);
cudaError_t vp_cuda_muon_normalise(float *x, int64_t count, double *partials, cudaStream_t stream);
cudaError_t vp_cuda_muon_polynomial(const float *a, float *b, int64_t size, float poly_a,
                                    float poly_b, cudaStream_t stream);
cudaError_t vp_cuda_muon_apply(const vp_kernel_call *call, const float *x, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
