/* kernels/cuda/linear_cublaslt.c: matrix products by cuBLASLt.
 *
 * cuBLASLt counts in columns: a row-major C(m, n) = A B is its C'(n, m) = B' A', so the operands
 * change places and nothing is transposed in memory. Descriptors and the algorithm of a product are
 * made once per shape and kept; where there are more than MAX_KEPT, the oldest is made again when
 * it is wanted again.
 *
 * Determinism and rounding: of the algorithms that split k only those are asked for that add the parts up in a
 * workspace, in fp32. In place their order is the hardware's; in the result's type a 16-bit sum is
 * rounded once for each part. Of these the plan's is taken (the fastest when calls were timed), else the
 * heuristic's first, which is a function of shape, library and device. Sums are fp32; fp32 is
 * multiplied as TF32 in a call of it only (CUBLAS_COMPUTE_32F_FAST_TF32).
 *
 * Of an odd vocabulary in padded rows a head's products are two, of a multiple of 64 columns and of the others
 * (vp_cuda_even_columns()): for a length that is no multiple of 8 there are slow kernels only, however
 * its rows begin.
 *
 * Gradients of weights are fp32 sums of products of 16 bits, added to what is there by beta = 1: no
 * other pass over them. A residual is what beta is of, in another place than the result: it is added to the
 * fp32 sum and its bias, and the whole rounded once. */
#include "kernels/cuda/cuda_internal.h"

#include "base/checked.h"
#include "plan/workspace.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KEPT = 512 };

/* What a kept product is found by. */
typedef struct product_key {
    int64_t      m, n, k, lda, ldb, ldc, workspace_bytes;
    vp_dtype     ab, c;
    uint32_t     a_align, b_align, c_align, bias_align, added_align; /* 0: there is none */
    int          a_transposed, b_transposed, adds, tf32;
    vp_algorithm algorithm;
} product_key;

typedef struct product {
    product_key            key;
    cublasLtMatmulDesc_t   op;
    cublasLtMatrixLayout_t a, b, c; /* in cuBLASLt's order: the row-major B', A', C' */
    cublasLtMatmulAlgo_t   algo;
} product;

static product *kept[MAX_KEPT];
static int      n_kept, oldest;

static vp_status check(cublasStatus_t s, const char *what, const vp_cuda_gemm *g, vp_err *err)
{
    static const char *const names[] = {[CUBLAS_STATUS_NOT_INITIALIZED]  = "not initialised",
                                        [CUBLAS_STATUS_ALLOC_FAILED]     = "no memory",
                                        [CUBLAS_STATUS_INVALID_VALUE]    = "invalid value",
                                        [CUBLAS_STATUS_ARCH_MISMATCH]    = "not on this device",
                                        [CUBLAS_STATUS_MAPPING_ERROR]    = "mapping error",
                                        [CUBLAS_STATUS_EXECUTION_FAILED] = "execution failed",
                                        [CUBLAS_STATUS_INTERNAL_ERROR]   = "internal error",
                                        [CUBLAS_STATUS_NOT_SUPPORTED]    = "not supported"};
    const char              *name;

    if (s == CUBLAS_STATUS_SUCCESS)
        return VP_OK;
    name = (size_t)s < sizeof names / sizeof *names && names[s] ? names[s] : "unknown error";
    return VP_FAIL(
        err, VP_ERR_DEVICE, "cuBLASLt, %s of a %lld x %lld x %lld product in %s: %s (%d)", what,
        (long long)g->m, (long long)g->n, (long long)g->k, vp_dtype_name(g->ab), name, (int)s);
}

#define LT(call, what) VP_TRY(check((call), (what), g, err))

static cudaDataType_t data_type(vp_dtype d)
{
    return d == VP_DTYPE_BF16 ? CUDA_R_16BF : d == VP_DTYPE_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static void product_free(product *p)
{
    if (!p)
        return;
    if (p->op)
        cublasLtMatmulDescDestroy(p->op);
    if (p->a)
        cublasLtMatrixLayoutDestroy(p->a);
    if (p->b)
        cublasLtMatrixLayoutDestroy(p->b);
    if (p->c)
        cublasLtMatrixLayoutDestroy(p->c);
    free(p);
}

void vp_cuda_gemm_forget(void)
{
    while (n_kept > 0)
        product_free(kept[--n_kept]);
    oldest = 0;
}

/* The descriptors of a product: cuBLASLt's A is our B and its B our A. An algorithm is chosen
 * for a bias of this one's alignment, at whatever address: the choice must not depend on the
 * arena's layout. */
static vp_status describe(product *p, const vp_cuda_gemm *g, vp_err *err)
{
    const cublasOperation_t of_b      = g->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                            of_a      = g->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasComputeType_t compute = g->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasLtEpilogue_t  epilogue  = CUBLASLT_EPILOGUE_BIAS;
    const cudaDataType_t      bias_type = data_type(g->c_dtype);
    const void               *somewhere = (const void *)(uintptr_t)p->key.bias_align;
    vp_status                 st        = VP_OK;

    LT(cublasLtMatmulDescCreate(&p->op, compute, CUDA_R_32F), "description");
    LT(cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_TRANSA, &of_b, sizeof of_b),
       "description");
    LT(cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_TRANSB, &of_a, sizeof of_a),
       "description");
    if (g->bias) {
        LT(cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                          sizeof epilogue),
           "epilogue");
        LT(cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &somewhere,
                                          sizeof somewhere),
           "epilogue");
        LT(cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type,
                                          sizeof bias_type),
           "epilogue");
    }
    LT(cublasLtMatrixLayoutCreate(&p->a, data_type(g->ab),
                                  (uint64_t)(g->b_transposed ? g->k : g->n),
                                  (uint64_t)(g->b_transposed ? g->n : g->k), g->ldb),
       "layout");
    LT(cublasLtMatrixLayoutCreate(&p->b, data_type(g->ab),
                                  (uint64_t)(g->a_transposed ? g->m : g->k),
                                  (uint64_t)(g->a_transposed ? g->k : g->m), g->lda),
       "layout");
    LT(cublasLtMatrixLayoutCreate(&p->c, data_type(g->c_dtype), (uint64_t)g->n, (uint64_t)g->m,
                                  g->ldc),
       "layout");
out:
    return st;
}

/* The address is a multiple of this power of two, which an algorithm may rely on. At most
 * VP_ALIGN_BYTES, which every operand of a plan has: so the choice does not depend on where the
 * arena puts it. */
static uint32_t alignment(const void *p)
{
    uint32_t a = VP_ALIGN_BYTES;

    while ((uintptr_t)p & (a - 1))
        a /= 2;
    return a;
}

/* Whether it adds up parts of k and rounds before it adds the bias, as cuBLASLt 13.1 was seen to do on an H200; what C
 * holds is added before. */
static bool rounds_before_bias(const vp_cuda_gemm *g, const cublasLtMatmulAlgo_t *algo)
{
    int32_t n_parts = 1;
    size_t  n_bytes = 0;

    return g->bias && g->c_dtype != VP_DTYPE_F32 &&
           cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &n_parts,
                                                sizeof n_parts,
                                                &n_bytes) == CUBLAS_STATUS_SUCCESS &&
           n_parts > 1;
}

/* The heuristic lists algorithms that it could not make too: each has a state of its own. Those that round
 * twice are kept where there is no other. */
static vp_status keep_usable(const vp_cuda_gemm *g, cublasLtMatmulHeuristicResult_t *found, int *n,
                             vp_err *err)
{
    cublasStatus_t why      = *n > 0 ? found[0].state : CUBLAS_STATUS_NOT_SUPPORTED;
    int            n_usable = 0, n_once = 0;

    for (int i = 0; i < *n; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS)
            found[n_usable++] = found[i];
    for (int i = 0; i < n_usable; i++)
        if (!rounds_before_bias(g, &found[i].algo))
            found[n_once++] = found[i];
    *n = n_once > 0 ? n_once : n_usable;
    return n_usable > 0 ? VP_OK : check(why, "heuristic", g, err);
}

/* The heuristic's algorithms that are deterministic and fit the workspace, its best first. */
static vp_status list_algorithms(vp_cuda *cuda, product *p, const vp_cuda_gemm *g, int max,
                                 cublasLtMatmulHeuristicResult_t *found, int *n, vp_err *err)
{
    const uint32_t             schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint64_t             room    = (uint64_t)p->key.workspace_bytes;
    cublasLtMatmulPreference_t wish    = NULL;
    vp_status                  st      = VP_OK;

    assert(max > 0);
    LT(cublasLtMatmulPreferenceCreate(&wish), "preference");
    LT(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room,
                                            sizeof room),
       "preference");
    LT(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                            &schemes, sizeof schemes),
       "preference");
    LT(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                            &p->key.b_align, sizeof p->key.b_align),
       "preference");
    LT(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                            &p->key.a_align, sizeof p->key.a_align),
       "preference");
    LT(cublasLtMatmulPreferenceSetAttribute(
           wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
           p->key.added_align ? &p->key.added_align : &p->key.c_align, sizeof p->key.c_align),
       "preference");
    LT(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                                            &p->key.c_align, sizeof p->key.c_align),
       "preference");
    LT(cublasLtMatmulAlgoGetHeuristic(cuda->lt, p->op, p->a, p->b, p->c, p->c, wish, max, found, n),
       "heuristic");
    VP_TRY(keep_usable(g, found, n, err));
out:
    if (wish)
        cublasLtMatmulPreferenceDestroy(wish);
    return st;
}

_Static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(vp_algorithm),
               "an algorithm of cuBLASLt is 64 bytes");

/* Whether the plan's algorithm computes this product: it was timed with a bias, and a linear of
 * the same shape may have none. */
static bool suits(vp_cuda *cuda, const product *p, const cublasLtMatmulAlgo_t *algo)
{
    cublasLtMatmulHeuristicResult_t found;

    return cublasLtMatmulAlgoCheck(cuda->lt, p->op, p->a, p->b, p->c, p->c, algo, &found) ==
               CUBLAS_STATUS_SUCCESS &&
           found.workspaceSize <= (size_t)p->key.workspace_bytes;
}

/* The plan's algorithm where it has one that suits, else the heuristic's first. */
static vp_status choose(vp_cuda *cuda, product *p, const vp_cuda_gemm *g, vp_err *err)
{
    enum { ENOUGH = 8 };
    cublasLtMatmulHeuristicResult_t found[ENOUGH];
    int                             n  = 0;
    vp_status                       st = VP_OK;

    memcpy(&p->algo, &g->algorithm, sizeof p->algo);
    if (vp_algorithm_is_set(&g->algorithm) && suits(cuda, p, &p->algo))
        return VP_OK;
    VP_TRY(list_algorithms(cuda, p, g, ENOUGH, found, &n, err));
    p->algo = found[0].algo;
out:
    return st;
}

/* cuBLASLt has copied what it needs of a descriptor when a call returns. */
static product *keep(product *p)
{
    assert(n_kept <= MAX_KEPT && oldest < MAX_KEPT && p->op && p->a && p->b && p->c);
    if (n_kept < MAX_KEPT)
        return kept[n_kept++] = p;
    product_free(kept[oldest]);
    kept[oldest] = p;
    oldest       = (oldest + 1) % MAX_KEPT;
    return p;
}

static vp_status find_product(vp_cuda *cuda, const vp_cuda_gemm *g, int64_t workspace_bytes,
                              product **out, vp_err *err)
{
    product    *p = NULL;
    product_key key;
    vp_status   st = VP_OK;

    assert(g->m > 0 && g->n > 0 && g->k > 0 && g->a && g->b && g->c && workspace_bytes >= 0);
    assert(g->lda >= (g->a_transposed ? g->m : g->k) && g->ldb >= (g->b_transposed ? g->k : g->n));
    assert(g->ldc >= g->n && !(g->added && g->beta == 0));
    memset(&key, 0, sizeof key); /* compared byte by byte */
    key.m = g->m, key.n = g->n, key.k = g->k, key.lda = g->lda, key.ldb = g->ldb, key.ldc = g->ldc,
    key.workspace_bytes = workspace_bytes;
    key.ab = g->ab, key.c = g->c_dtype, key.a_transposed = g->a_transposed,
    key.b_transposed = g->b_transposed, key.tf32 = g->tf32;
    key.a_align = alignment(g->a), key.b_align = alignment(g->b), key.c_align = alignment(g->c);
    key.algorithm  = g->algorithm;
    key.bias_align = g->bias ? alignment(g->bias) : 0, key.adds = g->beta != 0;
    key.added_align = g->added ? alignment(g->added) : 0;
    for (int i = 0; i < n_kept; i++)
        if (memcmp(&kept[i]->key, &key, sizeof key) == 0) {
            *out = kept[i];
            return VP_OK;
        }
    p = calloc(1, sizeof *p);
    VP_TRY_ALLOC(err, p);
    p->key = key;
    VP_TRY(describe(p, g, err));
    VP_TRY(choose(cuda, p, g, err));
    *out = keep(p);
    p    = NULL;
out:
    product_free(p);
    return st;
}

vp_status vp_cuda_gemm_run(vp_cuda *cuda, const vp_cuda_gemm *g, void *workspace,
                           int64_t workspace_bytes, vp_err *err)
{
    product  *p;
    vp_status st = VP_OK;

    assert(workspace || workspace_bytes == 0);
    VP_TRY(find_product(cuda, g, workspace_bytes, &p, err));
    if (g->bias)
        LT(cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &g->bias,
                                          sizeof g->bias),
           "epilogue");
    LT(cublasLtMatmul(cuda->lt, p->op, &g->alpha, g->b, p->a, g->a, p->b, &g->beta,
                      g->added ? g->added : g->c, p->c, g->c, p->c, &p->algo, workspace,
                      (size_t)workspace_bytes, cuda->stream),
       "execution");
out:
    return st;
}

/* ---- the products of a linear ---- */

/* x(rows, in), dy or y(rows, out), w as stored. */
static vp_cuda_gemm product_of(const vp_kernel_call *call)
{
    int64_t      rows = call->linear.rows, in = call->linear.in, out = call->linear.out;
    int64_t      ld_y   = vp_row_stride(out, call->linear.padded); /* dy's too */
    bool         in_out = call->linear.layout == VP_WEIGHT_IN_OUT;
    int64_t      ld_w   = in_out ? out : in;
    vp_dtype     of     = vp_dtype_of_operands(call->dtype);
    vp_cuda_gemm g      = {.ab        = of,
                           .c_dtype   = of,
                           .tf32      = call->dtype == VP_DTYPE_TF32,
                           .alpha     = 1,
                           .beta      = call->accumulate ? 1.0f : 0.0f,
                           .algorithm = call->algorithm};

    switch (call->kernel) {
    case VP_K_LINEAR_FWD: /* x w b -> y */
        g.m = rows, g.n = out, g.k = in;
        g.a = call->operand[VP_LINEAR_FWD_X], g.lda = in;
        g.b = call->operand[VP_LINEAR_FWD_W], g.ldb = ld_w, g.b_transposed = !in_out;
        g.bias = call->operand[VP_LINEAR_FWD_B];
        g.c = call->operand[VP_LINEAR_FWD_Y], g.ldc = ld_y, g.beta = 0;
        break;
    case VP_K_LINEAR_ADD_FWD: /* x w b added -> y */
        g.m = rows, g.n = out, g.k = in;
        g.a = call->operand[VP_LINEAR_ADD_FWD_X], g.lda = in;
        g.b = call->operand[VP_LINEAR_ADD_FWD_W], g.ldb = ld_w, g.b_transposed = !in_out;
        g.bias  = call->operand[VP_LINEAR_ADD_FWD_B];
        g.added = call->operand[VP_LINEAR_ADD_FWD_ADDED], g.beta = 1;
        g.c = call->operand[VP_LINEAR_ADD_FWD_Y], g.ldc = out;
        break;
    case VP_K_LINEAR_BWD_INPUT: /* dy w -> dx */
        g.m = rows, g.n = in, g.k = out;
        g.a = call->operand[VP_LINEAR_BWD_INPUT_DY], g.lda = ld_y;
        g.b = call->operand[VP_LINEAR_BWD_INPUT_W], g.ldb = ld_w, g.b_transposed = in_out;
        g.c = call->operand[VP_LINEAR_BWD_INPUT_DX], g.ldc = in;
        break;
    default: /* VP_K_LINEAR_BWD_WEIGHT: x dy -> dw db: dw(in, out) = x' dy, dw(out, in) = dy' x */
        g.m = in_out ? in : out, g.n = in_out ? out : in, g.k = rows;
        g.a   = call->operand[in_out ? VP_LINEAR_BWD_WEIGHT_X : VP_LINEAR_BWD_WEIGHT_DY];
        g.lda = in_out ? in : ld_y, g.a_transposed = true;
        g.b   = call->operand[in_out ? VP_LINEAR_BWD_WEIGHT_DY : VP_LINEAR_BWD_WEIGHT_X];
        g.ldb = in_out ? ld_y : in;
        g.c = call->operand[VP_LINEAR_BWD_WEIGHT_DW], g.ldc = g.n;
        g.c_dtype = call->dtype == VP_DTYPE_BF16_GRADS ? VP_DTYPE_BF16 : VP_DTYPE_F32;
        break;
    }
    return g;
}

/* The n columns of y from `first` on, of a call's product g: of a weight's gradient those rows or columns of dw. */
static vp_cuda_gemm columns_of(const vp_kernel_call *call, vp_cuda_gemm g, int64_t first, int64_t n)
{
    bool    in_out = call->linear.layout == VP_WEIGHT_IN_OUT;
    int64_t of_ab = vp_dtype_bytes(g.ab), of_c = vp_dtype_bytes(g.c_dtype),
            in_w      = in_out ? first : first * call->linear.in;
    vp_cuda_gemm part = g;

    switch (call->kernel) {
    case VP_K_LINEAR_BWD_INPUT:
        part.k = n;
        part.a = (const char *)g.a + first * of_ab;
        part.b = (const char *)g.b + in_w * of_ab;
        break;
    case VP_K_LINEAR_BWD_WEIGHT:
        *(in_out ? &part.n : &part.m) = n;
        *(in_out ? &part.b : &part.a) = (const char *)(in_out ? g.b : g.a) + first * of_ab;
        part.c                        = (char *)g.c + in_w * of_c;
        break;
    default:
        part.n    = n;
        part.b    = (const char *)g.b + in_w * of_ab;
        part.bias = g.bias ? (const char *)g.bias + first * of_c : NULL;
        part.c    = (char *)g.c + first * of_c;
        break;
    }
    if (first > 0)
        part.algorithm = (vp_algorithm){{0}}; /* the plan's is the first part's */
    return part;
}

/* What the products of a linear are: one, or two. Where their result lies in the workspace first
 * (vp_cuda_linear_sum_bytes()), n_summed elements of it belong to `to`. */
typedef struct linear_parts {
    vp_cuda_gemm part[2];
    int          n;
    float       *sum; /* or NULL: each writes what it makes */
    void        *to, *workspace;
    int64_t      n_summed, workspace_bytes; /* of each product */
} linear_parts;

static linear_parts parts_of(const vp_kernel_call *call)
{
    const vp_linear_ints *n    = &call->linear;
    const bool            may  = call->kernel != VP_K_LINEAR_ADD_FWD;
    int64_t               even = may ? vp_cuda_even_columns(n->out, n->padded) : 0,
            sum_bytes          = may ? vp_cuda_linear_sum_bytes(call->kernel, call->dtype, n) : 0;
    vp_cuda_gemm g             = product_of(call);
    linear_parts p             = {.part            = {g},
                                  .n               = 1,
                                  .workspace       = (char *)call->workspace + sum_bytes,
                                  .workspace_bytes = call->workspace_bytes - sum_bytes};

    if (!may || even == n->out)
        return p;
    p.n       = 2;
    p.part[0] = columns_of(call, g, 0, even);
    p.part[1] = columns_of(call, g, even, n->out - even);
    if (sum_bytes > 0)
        p.sum = call->workspace;
    if (call->kernel == VP_K_LINEAR_BWD_INPUT) {
        p.part[1].beta = 1;
        p.to = g.c, p.n_summed = g.m * g.n;
        for (int i = 0; p.sum && i < 2; i++)
            p.part[i].c = p.sum, p.part[i].c_dtype = VP_DTYPE_F32, p.part[i].beta = (float)i;
    } else if (p.sum) { /* rows of dw; those of the padding, whatever is in it, end here */
        p.to = p.part[1].c, p.n_summed = p.part[1].m * g.n;
        p.part[1].m = VP_PADDED_TO;
        p.part[1].c = p.sum, p.part[1].c_dtype = VP_DTYPE_F32, p.part[1].beta = 0;
    }
    return p;
}

vp_status vp_cuda_linear(vp_cuda *cuda, const vp_kernel_call *call, vp_err *err)
{
    linear_parts p  = parts_of(call);
    vp_dtype     of = product_of(call).c_dtype;
    vp_status    st = VP_OK;

    for (int i = 0; i < p.n; i++)
        VP_TRY(vp_cuda_gemm_run(cuda, &p.part[i], p.workspace, p.workspace_bytes, err));
    if (p.sum)
        VP_CUDA(vp_cuda_linear_sum(p.sum, p.to, of, p.n_summed, call->accumulate, cuda->stream),
                "linear_sum");
    if (call->kernel == VP_K_LINEAR_BWD_WEIGHT && call->operand[VP_LINEAR_BWD_WEIGHT_DB])
        VP_CUDA(vp_cuda_bias_grad(call, cuda->stream), "bias_grad");
out:
    return st;
}

vp_status vp_cuda_linear_algorithms(vp_cuda *cuda, const vp_kernel_call *call, int max,
                                    vp_algorithm *out, int *n, vp_err *err)
{
    enum { MAX_FOUND = 32 };
    cublasLtMatmulHeuristicResult_t found[MAX_FOUND];
    linear_parts                    parts = parts_of(call);
    vp_cuda_gemm                   *g     = &parts.part[0];
    product                        *p;
    vp_status                       st = VP_OK;

    g->algorithm = (vp_algorithm){{0}};
    VP_TRY(find_product(cuda, g, parts.workspace_bytes, &p, err));
    VP_TRY(list_algorithms(cuda, p, g, max < MAX_FOUND ? max : MAX_FOUND, found, n, err));
    assert(*n <= max);
    for (int i = 0; i < *n; i++)
        memcpy(&out[i], &found[i].algo, sizeof out[i]);
out:
    return st;
}
