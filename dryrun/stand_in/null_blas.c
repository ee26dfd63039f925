/* dryrun/stand_in/null_blas.c: cuBLAS and cuBLASLt. Matrix products read and write device data
 * only; the workspaces they use come from PyTorch's allocator before the call, so nothing is
 * left to answer. Routines that return a number to the host under host pointer mode are left to
 * the generated stubs. */
#include "dryrun/stand_in/null_internal.h"

#include <stdlib.h>
#include <string.h>

#define E VP_NULL_EXPORT

typedef struct handle {
    int   pointer_mode, math_mode, atomics_mode;
    void *stream;
} handle;

E int cublasCreate_v2(handle **h);
int   cublasCreate_v2(handle **h)
{
    if (vp_null_refused_to_cudnn())
        return 1; /* CUBLAS_STATUS_NOT_INITIALIZED */
    *h = calloc(1, sizeof **h);
    return *h ? 0 : 3; /* CUBLAS_STATUS_ALLOC_FAILED */
}

E int cublasDestroy_v2(handle *h);
int   cublasDestroy_v2(handle *h)
{
    free(h);
    return 0;
}

E int cublasSetStream_v2(handle *h, void *stream);
int   cublasSetStream_v2(handle *h, void *stream)
{
    h->stream = stream;
    return 0;
}

E int cublasGetStream_v2(handle *h, void **stream);
int   cublasGetStream_v2(handle *h, void **stream)
{
    *stream = h->stream;
    return 0;
}

#define MODE(Name, field) \
    E int cublasSet##Name(handle *h, int mode); \
    int   cublasSet##Name(handle *h, int mode) \
    { \
        h->field = mode; \
        return 0; \
    } \
    E int cublasGet##Name(handle *h, int *mode); \
    int   cublasGet##Name(handle *h, int *mode) \
    { \
        *mode = h->field; \
        return 0; \
    }

MODE(PointerMode_v2, pointer_mode)
MODE(MathMode, math_mode)
MODE(AtomicsMode, atomics_mode)

E int cublasGetVersion_v2(handle *h, int *v);
int   cublasGetVersion_v2(handle *h, int *v)
{
    (void)h;
    *v = 130000;
    return 0;
}

VP_NULL_NOP(cublasSetWorkspace_v2)

/* X(name) for the four types, then those with a name of their own. */
#define FOUR(stem) \
    VP_NULL_WORK(cublasS##stem) \
    VP_NULL_WORK(cublasD##stem) VP_NULL_WORK(cublasC##stem) VP_NULL_WORK(cublasZ##stem)

FOUR(trsm_v2)
FOUR(trsmBatched)
FOUR(gelsBatched)
FOUR(geqrfBatched)
FOUR(getrfBatched)
FOUR(getrsBatched)
FOUR(axpy_v2)
FOUR(copy_v2)
FOUR(scal_v2)
FOUR(swap_v2)
VP_NULL_WORK(cublasSger_v2)
VP_NULL_WORK(cublasDger_v2)

/* ---- products: a launch each, and what a recorded program wants to know of them ---- */

enum { R_32F = 0, R_64F = 1, C_32F = 4, C_64F = 5, FAST_TF32 = 77, TF32_MATH = 3 };

static int product(vp_null_entry_kind kind, const handle *h, int type, int compute, int64_t m,
                   int64_t n, int64_t k, int64_t batch)
{
    vp_null_work();
    if (h && h->math_mode == TF32_MATH && type == R_32F)
        compute = FAST_TF32;
    vp_null_note(&(vp_null_entry){
        .kind = kind, .type = type, .compute = compute, .m = m, .n = n, .k = k, .batch = batch});
    return 0;
}

/* alpha and beta, matrices and strides are not looked at, but stand between what is. */
#define PRODUCTS(letter, type) \
    E int cublas##letter##gemm_v2(handle *h, int ta, int tb, int m, int n, int k); \
    int   cublas##letter##gemm_v2(handle *h, int ta, int tb, int m, int n, int k) \
    { \
        (void)ta, (void)tb; \
        return product(VP_NULL_PRODUCT, h, type, 0, m, n, k, 1); \
    } \
    E int cublas##letter##gemmBatched(handle *h, int ta, int tb, int m, int n, int k, \
                                      const void *alpha, const void *a, int lda, const void *b, \
                                      int ldb, const void *beta, void *c, int ldc, int batch); \
    int   cublas##letter##gemmBatched(handle *h, int ta, int tb, int m, int n, int k, \
                                      const void *alpha, const void *a, int lda, const void *b, \
                                      int ldb, const void *beta, void *c, int ldc, int batch) \
    { \
        (void)ta, (void)tb, (void)alpha, (void)a, (void)lda, (void)b, (void)ldb, (void)beta; \
        (void)c, (void)ldc; \
        return product(VP_NULL_PRODUCT, h, type, 0, m, n, k, batch); \
    } \
    E int cublas##letter##gemmStridedBatched( \
        handle *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int lda, \
        long long sa, const void *b, int ldb, long long sb, const void *beta, void *c, int ldc, \
        long long sc, int batch); \
    int cublas##letter##gemmStridedBatched( \
        handle *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int lda, \
        long long sa, const void *b, int ldb, long long sb, const void *beta, void *c, int ldc, \
        long long sc, int batch) \
    { \
        (void)ta, (void)tb, (void)alpha, (void)a, (void)lda, (void)sa, (void)b, (void)ldb; \
        (void)sb, (void)beta, (void)c, (void)ldc, (void)sc; \
        return product(VP_NULL_PRODUCT, h, type, 0, m, n, k, batch); \
    } \
    E int cublas##letter##gemv_v2(handle *h, int t, int m, int n); \
    int   cublas##letter##gemv_v2(handle *h, int t, int m, int n) \
    { \
        (void)t; \
        return product(VP_NULL_VECTOR, h, type, 0, m, 1, n, 1); \
    }

PRODUCTS(S, R_32F)
PRODUCTS(D, R_64F)
PRODUCTS(C, C_32F)
PRODUCTS(Z, C_64F)

E int cublasSgemmEx(handle *h, int ta, int tb, int m, int n, int k, const void *alpha,
                    const void *a, int a_type);
int cublasSgemmEx(handle *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,
                  int a_type)
{
    (void)ta, (void)tb, (void)alpha, (void)a;
    return product(VP_NULL_PRODUCT, h, a_type, 0, m, n, k, 1);
}

E int cublasGemmEx(handle *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,
                   int a_type, int lda, const void *b, int b_type, int ldb, const void *beta,
                   void *c, int c_type, int ldc, int compute);
int   cublasGemmEx(handle *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,
                   int a_type, int lda, const void *b, int b_type, int ldb, const void *beta, void *c,
                   int c_type, int ldc, int compute)
{
    (void)ta, (void)tb, (void)alpha, (void)a, (void)lda, (void)b, (void)b_type, (void)ldb;
    (void)beta, (void)c, (void)c_type, (void)ldc;
    return product(VP_NULL_PRODUCT, h, a_type, compute, m, n, k, 1);
}

E int cublasGemmBatchedEx(handle *h, int ta, int tb, int m, int n, int k, const void *alpha,
                          const void *a, int a_type, int lda, const void *b, int b_type, int ldb,
                          const void *beta, void *c, int c_type, int ldc, int batch, int compute);
int   cublasGemmBatchedEx(handle *h, int ta, int tb, int m, int n, int k, const void *alpha,
                          const void *a, int a_type, int lda, const void *b, int b_type, int ldb,
                          const void *beta, void *c, int c_type, int ldc, int batch, int compute)
{
    (void)ta, (void)tb, (void)alpha, (void)a, (void)lda, (void)b, (void)b_type, (void)ldb;
    (void)beta, (void)c, (void)c_type, (void)ldc;
    return product(VP_NULL_PRODUCT, h, a_type, compute, m, n, k, batch);
}

E int cublasGemmStridedBatchedEx(handle *h, int ta, int tb, int m, int n, int k, const void *alpha,
                                 const void *a, int a_type, int lda, long long sa, const void *b,
                                 int b_type, int ldb, long long sb, const void *beta, void *c,
                                 int c_type, int ldc, long long sc, int batch, int compute);
int   cublasGemmStridedBatchedEx(handle *h, int ta, int tb, int m, int n, int k, const void *alpha,
                                 const void *a, int a_type, int lda, long long sa, const void *b,
                                 int b_type, int ldb, long long sb, const void *beta, void *c,
                                 int c_type, int ldc, long long sc, int batch, int compute)
{
    (void)ta, (void)tb, (void)alpha, (void)a, (void)lda, (void)sa, (void)b, (void)b_type;
    (void)ldb, (void)sb, (void)beta, (void)c, (void)c_type, (void)ldc, (void)sc;
    return product(VP_NULL_PRODUCT, h, a_type, compute, m, n, k, batch);
}

/* Dot products: under device pointer mode (what PyTorch sets around them) nothing reaches the host.
 * The handle is the first argument, the result the last. */
extern void vplan_null_read(uint64_t n_bytes);

static int dot(const handle *h, void *result, size_t bytes)
{
    if (h->pointer_mode == 0 && !vp_null_is_device(result)) {
        memset(result, 0, bytes);
        vplan_null_read(bytes);
    }
    return 0;
}

#define DOT(name, bytes) \
    E int name(handle *h, int n, const void *x, int incx, const void *y, int incy, void *result); \
    int   name(handle *h, int n, const void *x, int incx, const void *y, int incy, void *result) \
    { \
        (void)n, (void)x, (void)incx, (void)y, (void)incy; \
        return dot(h, result, bytes); \
    }

DOT(cublasSdot_v2, 4)
DOT(cublasDdot_v2, 8)
DOT(cublasCdotc_v2, 8)
DOT(cublasCdotu_v2, 8)
DOT(cublasZdotc_v2, 16)
DOT(cublasZdotu_v2, 16)

E int cublasDotEx(handle *h, int n, const void *x, int x_type, int incx, const void *y, int y_type,
                  int incy, void *result, int result_type, int exec_type);
int   cublasDotEx(handle *h, int n, const void *x, int x_type, int incx, const void *y, int y_type,
                  int incy, void *result, int result_type, int exec_type)
{
    (void)n, (void)x, (void)x_type, (void)incx, (void)y, (void)y_type, (void)incy, (void)exec_type;
    return dot(h, result, result_type == 1 ? 8 : result_type == 0 ? 4 : 2); /* CUDA_R_64F, 32F */
}

/* ---- cuBLASLt: descriptors are opaque to the caller, so one small object serves for all
 * --------- */

typedef struct lt_object {
    int      compute, transpose_a; /* of a description of a product */
    int      type, batch;          /* of a layout                   */
    uint64_t rows, cols;
    char     rest[224];
} lt_object;

/* cublasLtMatmulHeuristicResult_t */
typedef struct heuristic {
    uint64_t algo[8];
    size_t   workspace_bytes;
    int      state;
    float    waves;
    int      reserved[4];
} heuristic;

static int object(void **out)
{
    *out = calloc(1, sizeof(lt_object));
    return *out ? 0 : 3;
}

static int object_free(void *p)
{
    free(p);
    return 0;
}

E size_t cublasLtGetVersion(void);
size_t   cublasLtGetVersion(void)
{
    return 130000;
}

E int cublasLtCreate(void **out);
int   cublasLtCreate(void **out)
{
    if (vp_null_refused_to_cudnn())
        return 1;
    return object(out);
}

E int cublasLtDestroy(void *p);
int   cublasLtDestroy(void *p)
{
    return object_free(p);
}

E int cublasLtMatmulDescCreate(void **out, int compute, int scale);
int   cublasLtMatmulDescCreate(void **out, int compute, int scale)
{
    int rc = object(out);

    (void)scale;
    if (rc == 0)
        ((lt_object *)*out)->compute = compute;
    return rc;
}

E int cublasLtMatmulDescDestroy(void *p);
int   cublasLtMatmulDescDestroy(void *p)
{
    return object_free(p);
}

E int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t cols, int64_t ld);
int   cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t cols, int64_t ld)
{
    int rc = object(out);

    (void)ld;
    if (rc == 0) {
        lt_object *layout = *out;
        layout->type      = type;
        layout->rows      = rows;
        layout->cols      = cols;
        layout->batch     = 1;
    }
    return rc;
}

E int cublasLtMatrixLayoutDestroy(void *p);
int   cublasLtMatrixLayoutDestroy(void *p)
{
    return object_free(p);
}

E int cublasLtMatmulPreferenceCreate(void **out);
int   cublasLtMatmulPreferenceCreate(void **out)
{
    return object(out);
}

E int cublasLtMatmulPreferenceDestroy(void *p);
int   cublasLtMatmulPreferenceDestroy(void *p)
{
    return object_free(p);
}

enum { DESC_TRANSA = 3, LAYOUT_BATCH_COUNT = 5 }; /* cublasLt.h */

E int cublasLtMatmulDescSetAttribute(lt_object *o, int attribute, const void *value, size_t n);
int   cublasLtMatmulDescSetAttribute(lt_object *o, int attribute, const void *value, size_t n)
{
    if (attribute == DESC_TRANSA && n >= 4)
        memcpy(&o->transpose_a, value, 4);
    return 0;
}

E int cublasLtMatrixLayoutSetAttribute(lt_object *o, int attribute, const void *value, size_t n);
int   cublasLtMatrixLayoutSetAttribute(lt_object *o, int attribute, const void *value, size_t n)
{
    if (attribute == LAYOUT_BATCH_COUNT && n >= 4)
        memcpy(&o->batch, value, 4);
    return 0;
}

VP_NULL_NOP(cublasLtMatmulPreferenceSetAttribute)

E int cublasLtMatmul(void *lt, const lt_object *desc, const void *alpha, const void *a,
                     const lt_object *a_layout, const void *b, const lt_object *b_layout,
                     const void *beta, const void *c, const lt_object *c_layout, void *d,
                     const lt_object *d_layout);
int   cublasLtMatmul(void *lt, const lt_object *desc, const void *alpha, const void *a,
                     const lt_object *a_layout, const void *b, const lt_object *b_layout,
                     const void *beta, const void *c, const lt_object *c_layout, void *d,
                     const lt_object *d_layout)
{
    (void)lt, (void)alpha, (void)a, (void)b, (void)b_layout, (void)beta, (void)c, (void)c_layout;
    (void)d;
    return product(VP_NULL_PRODUCT, NULL, a_layout->type, desc->compute, (int64_t)d_layout->rows,
                   (int64_t)d_layout->cols,
                   (int64_t)(desc->transpose_a ? a_layout->rows : a_layout->cols), d_layout->batch);
}

VP_NULL_WORK(cublasLtMatrixTransform)

/* One algorithm that needs no workspace of its own: PyTorch has allocated the workspace it offers
 * before it asks, whatever the answer. */
E int cublasLtMatmulAlgoGetHeuristic(void *lt, void *op, void *a, void *b, void *c, void *d,
                                     void *pref, int n_wanted, heuristic *out, int *n_found);
int   cublasLtMatmulAlgoGetHeuristic(void *lt, void *op, void *a, void *b, void *c, void *d,
                                     void *pref, int n_wanted, heuristic *out, int *n_found)
{
    (void)lt, (void)op, (void)a, (void)b, (void)c, (void)d, (void)pref;
    if (n_wanted > 0)
        memset(out, 0, sizeof *out);
    *n_found = n_wanted > 0 ? 1 : 0;
    return 0;
}
