/* tests/cuda_emulator/cublaslt_stand_in.c: cuBLASLt with the obvious loops, strict about everything
 * its documentation says.
 *
 *     D = alpha op(A) op(B) + beta C (+ bias, one for each row of D)
 *
 * Matrices are what their layouts say: order by columns or rows, leading dimension, batches at a stride. Types: all
 * fp32, or bf16 or fp16 A and B with C and D of the same or fp32; sums are fp32 and a 16-bit result is rounded once but
 * by ROUNDED. Under the FAST compute types A and B lose the digits they would lose on a device, so that asking for one
 * by mistake shows. The heuristic knows four algorithms, in the order in which it offers them:
 *     IN_PLACE   k in two halves added up in an fp32 D, in an order that changes as that of atomics; no workspace
 *     ROUNDED    k in two halves, each rounded to a D of 16 bits before they are added
 *     SPLIT      k in two halves in the workspace, then added, and a bias to what is rounded already, as cuBLASLt 13.1
 *                does on an H200; of long and small products only, with rows of A and B at multiples of 16 bytes, as
 *                copies by tiles (TMA) want them
 *     PLAIN      k from 0 to the end; no workspace
 * An algorithm holds the alignments it was asked for: operands that are aligned less are refused, as a kernel of 16-byte
 * loads would. */
#include "base/bf16.h"
#include "base/fp16.h"
#include "tests/cuda_emulator/emulator.h"

#include <cublasLt.h>

#include <stdlib.h>
#include <string.h>

typedef struct layout {
    int32_t  type, order, batch_count;
    uint64_t rows, cols;
    int64_t  ld, batch_stride;
} layout;

typedef struct description {
    int32_t     compute, scale, pointer_mode, op_a, op_b, op_c, bias_type;
    uint32_t    epilogue;
    const void *bias;
} description;

typedef struct preference {
    uint64_t max_workspace_bytes, impl_mask;
    uint32_t search_mode, reduction_mask, align[4];
    float    max_waves;
} preference;

struct cublasLtContext {
    int unused;
};

enum { IN_PLACE = 1, ROUNDED = 2, SPLIT = 3, PLAIN = 4 };
enum { SPLIT_LEAST_K = 64, SPLIT_MOST_ELEMENTS = 128 * 128 };
enum { WORKSPACE_ALIGN = 256 }; /* cublasLtMatmul: "must be 256B aligned" */

/* What lies in cublasLtMatmulAlgo_t: 64 bytes that a program may copy and keep. */
typedef struct algorithm {
    uint32_t magic, id, scheme, split;
    uint32_t align[4];   /* of A, B, C, D */
    uint32_t bias_align; /* 0: the product it was chosen for has none */
    uint32_t types;      /* of the operands and the computation */
} algorithm;

enum { MAGIC = 0x4c74416c };

_Static_assert(sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t),
               "an algorithm fits the place that cuBLASLt gives it");

/* One product, all of it checked; what is enqueued. */
typedef struct product {
    layout      a, b, c, d;
    description desc;
    int64_t     m, n, k;
    float       alpha, beta;
    const void *at_a, *at_b, *at_c;
    void       *at_d, *workspace;
    algorithm   algo;
} product;

/* ---- handles ---- */

static void *create(const char *kind, size_t n_bytes)
{
    void *p = calloc(1, n_bytes);

    if (p)
        vp_emulator_born(kind, p);
    return p;
}

static cublasStatus_t destroy(const char *name, const char *kind, void *p)
{
    if (vp_emulator_fails(name, "%s", ""))
        return CUBLAS_STATUS_INTERNAL_ERROR;
    if (!vp_emulator_lives(kind, p)) {
        vp_emulator_say("%s of what is no %s", name, kind);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    vp_emulator_dies(p);
    free(p);
    return CUBLAS_STATUS_SUCCESS;
}

static const char HANDLE[] = "cublasLt handle", DESCRIPTION[] = "cublasLt matmul description",
                  LAYOUT[] = "cublasLt matrix layout", PREFERENCE[] = "cublasLt preference";

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    if (vp_emulator_fails("cublasLtCreate", "%s", ""))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = create(HANDLE, sizeof **handle);
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    return destroy("cublasLtDestroy", HANDLE, handle);
}

size_t cublasLtGetVersion(void)
{
    return 130000;
}

size_t cublasLtGetCudartVersion(void)
{
    return CUDART_VERSION;
}

static const char *const status_names[][2] = {
    [CUBLAS_STATUS_SUCCESS]         = {"CUBLAS_STATUS_SUCCESS", "success"},
    [CUBLAS_STATUS_NOT_INITIALIZED] = {"CUBLAS_STATUS_NOT_INITIALIZED",
                                       "the library was not initialized"},
    [CUBLAS_STATUS_ALLOC_FAILED] = {"CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    [CUBLAS_STATUS_INVALID_VALUE]    = {"CUBLAS_STATUS_INVALID_VALUE",
                                        "an unsupported value or parameter"},
    [CUBLAS_STATUS_ARCH_MISMATCH]    = {"CUBLAS_STATUS_ARCH_MISMATCH", "not on this device"},
    [CUBLAS_STATUS_MAPPING_ERROR]    = {"CUBLAS_STATUS_MAPPING_ERROR",
                                        "access to device memory failed"},
    [CUBLAS_STATUS_EXECUTION_FAILED] = {"CUBLAS_STATUS_EXECUTION_FAILED",
                                        "the program failed on the device"},
    [CUBLAS_STATUS_INTERNAL_ERROR]   = {"CUBLAS_STATUS_INTERNAL_ERROR",
                                        "an internal operation failed"},
    [CUBLAS_STATUS_NOT_SUPPORTED]    = {"CUBLAS_STATUS_NOT_SUPPORTED",
                                        "the functionality is not supported"},
    [CUBLAS_STATUS_LICENSE_ERROR]    = {"CUBLAS_STATUS_LICENSE_ERROR", "a license error"},
};

static const char *status_text(cublasStatus_t status, int which)
{
    size_t i = (size_t)status;
    return i < sizeof status_names / sizeof *status_names && status_names[i][which]
               ? status_names[i][which]
               : "unknown status";
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return status_text(status, 0);
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status_text(status, 1);
}

/* An attribute is as long as its storage, not longer and not shorter. */
static cublasStatus_t set(void *to, size_t n_bytes, const void *from, size_t n_given)
{
    if (!from || n_given != n_bytes) {
        vp_emulator_say("an attribute of %zu bytes was given %zu", n_bytes, n_given);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(to, from, n_bytes);
    return CUBLAS_STATUS_SUCCESS;
}

#define SET(field) return set(&(field), sizeof(field), buf, n_bytes)

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    description *d;

    if (vp_emulator_fails("cublasLtMatmulDescCreate", "%d, %d", (int)compute, (int)scale))
        return CUBLAS_STATUS_ALLOC_FAILED;
    d = create(DESCRIPTION, sizeof(cublasLtMatmulDescOpaque_t));
    if (!d)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *d   = (description){.compute   = (int32_t)compute,
                         .scale     = (int32_t)scale,
                         .epilogue  = CUBLASLT_EPILOGUE_DEFAULT,
                         .bias_type = -1};
    *out = (cublasLtMatmulDesc_t)d;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    return destroy("cublasLtMatmulDescDestroy", DESCRIPTION, desc);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t           desc,
                                              cublasLtMatmulDescAttributes_t attr, const void *buf,
                                              size_t n_bytes)
{
    description *d = (description *)desc;

    if (vp_emulator_fails("cublasLtMatmulDescSetAttribute", "%d", (int)attr))
        return CUBLAS_STATUS_INTERNAL_ERROR;
    if (!vp_emulator_lives(DESCRIPTION, desc))
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (attr) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
        SET(d->compute);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
        SET(d->scale);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        SET(d->pointer_mode);
    case CUBLASLT_MATMUL_DESC_TRANSA:
        SET(d->op_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        SET(d->op_b);
    case CUBLASLT_MATMUL_DESC_TRANSC:
        SET(d->op_c);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        SET(d->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        SET(d->bias);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        SET(d->bias_type);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    layout *l;

    if (vp_emulator_fails("cublasLtMatrixLayoutCreate", "%d, %llu x %llu, %lld", (int)type,
                          (unsigned long long)rows, (unsigned long long)cols, (long long)ld))
        return CUBLAS_STATUS_ALLOC_FAILED;
    l = create(LAYOUT, sizeof(cublasLtMatrixLayoutOpaque_t));
    if (!l)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *l   = (layout){.type        = (int32_t)type,
                    .order       = CUBLASLT_ORDER_COL,
                    .batch_count = 1,
                    .rows        = rows,
                    .cols        = cols,
                    .ld          = ld};
    *out = (cublasLtMatrixLayout_t)l;
    return CUBLAS_STATUS_SUCCESS;
}

_Static_assert(sizeof(layout) <= sizeof(cublasLtMatrixLayoutOpaque_t) &&
                   sizeof(description) <= sizeof(cublasLtMatmulDescOpaque_t) &&
                   sizeof(preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t),
               "each fits its opaque form");

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    return destroy("cublasLtMatrixLayoutDestroy", LAYOUT, l);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t          handle,
                                                cublasLtMatrixLayoutAttribute_t attr,
                                                const void *buf, size_t n_bytes)
{
    layout *l = (layout *)handle;

    if (vp_emulator_fails("cublasLtMatrixLayoutSetAttribute", "%d", (int)attr))
        return CUBLAS_STATUS_INTERNAL_ERROR;
    if (!vp_emulator_lives(LAYOUT, handle))
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (attr) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
        SET(l->type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
        SET(l->order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
        SET(l->rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
        SET(l->cols);
    case CUBLASLT_MATRIX_LAYOUT_LD:
        SET(l->ld);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        SET(l->batch_count);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        SET(l->batch_stride);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    preference *p;

    if (vp_emulator_fails("cublasLtMatmulPreferenceCreate", "%s", ""))
        return CUBLAS_STATUS_ALLOC_FAILED;
    p = create(PREFERENCE, sizeof(cublasLtMatmulPreferenceOpaque_t));
    if (!p)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *p   = (preference){.reduction_mask = CUBLASLT_REDUCTION_SCHEME_MASK,
                        .impl_mask      = ~0ull,
                        .align          = {256, 256, 256, 256}};
    *out = (cublasLtMatmulPreference_t)p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    return destroy("cublasLtMatmulPreferenceDestroy", PREFERENCE, p);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t           handle,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    const void *buf, size_t n_bytes)
{
    preference *p = (preference *)handle;

    if (vp_emulator_fails("cublasLtMatmulPreferenceSetAttribute", "%d", (int)attr))
        return CUBLAS_STATUS_INTERNAL_ERROR;
    if (!vp_emulator_lives(PREFERENCE, handle))
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (attr) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
        SET(p->search_mode);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        SET(p->max_workspace_bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        SET(p->reduction_mask);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        SET(p->align[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        SET(p->align[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        SET(p->align[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        SET(p->align[3]);
    case CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT:
        SET(p->max_waves);
    case CUBLASLT_MATMUL_PREF_IMPL_MASK:
        SET(p->impl_mask);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

/* ---- what a product must be ---- */

static size_t type_bytes(int32_t type)
{
    return type == CUDA_R_16BF || type == CUDA_R_16F ? 2 : 4;
}

static cublasStatus_t check_layout(const layout *l, const char *name)
{
    int64_t least = (int64_t)(l->order == CUBLASLT_ORDER_ROW ? l->cols : l->rows);

    if (l->rows == 0 || l->cols == 0 || l->ld < least || l->batch_count < 1) {
        vp_emulator_say(
            "cublasLt: %s has %llu rows, %llu columns, a leading dimension of %lld, %d in its batch",
            name, (unsigned long long)l->rows, (unsigned long long)l->cols, (long long)l->ld,
            l->batch_count);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (l->rows > INT32_MAX || l->cols > INT32_MAX ||
        (l->order != CUBLASLT_ORDER_COL && l->order != CUBLASLT_ORDER_ROW))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

static bool is_op(int32_t op)
{
    return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C;
}

static cublasStatus_t check_types(const product *p)
{
    bool fp32_sum =
        p->desc.compute == CUBLAS_COMPUTE_32F || p->desc.compute == CUBLAS_COMPUTE_32F_PEDANTIC;
    bool fast = p->desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ||
                p->desc.compute == CUBLAS_COMPUTE_32F_FAST_16BF;
    bool fp32 = p->a.type == CUDA_R_32F && p->b.type == CUDA_R_32F && p->c.type == CUDA_R_32F;
    bool half = type_bytes(p->a.type) == 2 && p->a.type == p->b.type &&
                (p->c.type == p->a.type || p->c.type == CUDA_R_32F);

    if (p->c.type != p->d.type || p->desc.scale != CUDA_R_32F ||
        !((fp32 && (fp32_sum || fast)) || (half && fp32_sum))) {
        vp_emulator_say(
            "cublasLt: no product of types %d and %d into %d and %d, computed as %d, scaled as %d",
            p->a.type, p->b.type, p->c.type, p->d.type, p->desc.compute, p->desc.scale);
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (p->desc.pointer_mode != CUBLASLT_POINTER_MODE_HOST || p->desc.op_c != CUBLAS_OP_N)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p->desc.epilogue == CUBLASLT_EPILOGUE_BIAS) {
        int32_t type = p->desc.bias_type == -1 ? p->d.type : p->desc.bias_type;

        if (type != p->d.type || p->d.order != CUBLASLT_ORDER_COL) {
            vp_emulator_say("cublasLt: no bias of type %d for a result of type %d and order %d",
                            type, p->d.type, p->d.order);
            return CUBLAS_STATUS_NOT_SUPPORTED;
        }
    } else if (p->desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* From the caller's descriptors; the sizes of the product come out. */
static cublasStatus_t describe(product *p, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                               cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                               cublasLtMatrixLayout_t d)
{
    cublasLtMatrixLayout_t given[4] = {a, b, c, d};
    layout                *mine[4]  = {&p->a, &p->b, &p->c, &p->d};
    int64_t                k_of_b;
    cublasStatus_t         s;

    if (!vp_emulator_lives(DESCRIPTION, desc))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&p->desc, desc, sizeof p->desc);
    for (int i = 0; i < 4; i++) {
        const char name[2] = {(char)('A' + i), 0};

        if (!vp_emulator_lives(LAYOUT, given[i]))
            return CUBLAS_STATUS_INVALID_VALUE;
        memcpy(mine[i], given[i], sizeof *mine[i]);
        s = check_layout(mine[i], name);
        if (s != CUBLAS_STATUS_SUCCESS)
            return s;
    }
    if (!is_op(p->desc.op_a) || !is_op(p->desc.op_b))
        return CUBLAS_STATUS_INVALID_VALUE;
    p->m   = (int64_t)(p->desc.op_a == CUBLAS_OP_N ? p->a.rows : p->a.cols);
    p->k   = (int64_t)(p->desc.op_a == CUBLAS_OP_N ? p->a.cols : p->a.rows);
    k_of_b = (int64_t)(p->desc.op_b == CUBLAS_OP_N ? p->b.rows : p->b.cols);
    p->n   = (int64_t)(p->desc.op_b == CUBLAS_OP_N ? p->b.cols : p->b.rows);
    if (p->k != k_of_b || (int64_t)p->c.rows != p->m || (int64_t)p->c.cols != p->n ||
        (int64_t)p->d.rows != p->m || (int64_t)p->d.cols != p->n ||
        p->a.batch_count != p->d.batch_count || p->b.batch_count != p->d.batch_count ||
        p->c.batch_count != p->d.batch_count) {
        vp_emulator_say(
            "cublasLt: op(A) is %lld x %lld, op(B) %lld x %lld, C %llu x %llu, D %llu x %llu",
            (long long)p->m, (long long)p->k, (long long)k_of_b, (long long)p->n,
            (unsigned long long)p->c.rows, (unsigned long long)p->c.cols,
            (unsigned long long)p->d.rows, (unsigned long long)p->d.cols);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return check_types(p);
}

/* ---- algorithms ---- */

static uint32_t types_of(const product *p)
{
    return (uint32_t)p->a.type | (uint32_t)p->b.type << 5 | (uint32_t)p->c.type << 10 |
           (uint32_t)p->desc.compute << 15 |
           (p->desc.epilogue == CUBLASLT_EPILOGUE_BIAS ? 1u << 23 : 0) |
           (uint32_t)p->desc.op_a << 24 | (uint32_t)p->desc.op_b << 26;
}

static uint64_t workspace_of(const product *p, uint32_t id)
{
    uint64_t each = id == SPLIT ? sizeof(float) : id == ROUNDED ? type_bytes(p->d.type) : 0;

    return 2 * each * (uint64_t)p->m * (uint64_t)p->n;
}

static uint32_t scheme_of(uint32_t id)
{
    static const uint32_t of[] = {[IN_PLACE] = CUBLASLT_REDUCTION_SCHEME_INPLACE,
                                  [ROUNDED]  = CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE,
                                  [SPLIT]    = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
                                  [PLAIN]    = CUBLASLT_REDUCTION_SCHEME_NONE};
    return of[id];
}

static uint32_t alignment_of(const void *p)
{
    uintptr_t at = (uintptr_t)p, a = 256;

    while (a > 1 && at % a)
        a /= 2;
    return (uint32_t)a;
}

/* Rows at multiples of 16 bytes. */
static bool rows_are_aligned(const layout *l, uint32_t align)
{
    uint64_t bytes = type_bytes(l->type);

    return align % 16 == 0 && (uint64_t)l->ld * bytes % 16 == 0 &&
           (l->batch_count == 1 || (uint64_t)l->batch_stride * bytes % 16 == 0);
}

static bool offers(const product *p, const preference *want, uint32_t id)
{
    uint32_t scheme = scheme_of(id);

    if (scheme != CUBLASLT_REDUCTION_SCHEME_NONE && !(want->reduction_mask & scheme))
        return false;
    if (workspace_of(p, id) > want->max_workspace_bytes)
        return false;
    return id == PLAIN || (id == IN_PLACE && p->k > 1 && p->d.type == CUDA_R_32F) ||
           (id == ROUNDED && p->k > 1 && p->d.type != CUDA_R_32F) ||
           (id == SPLIT && p->k >= SPLIT_LEAST_K && p->m * p->n <= SPLIT_MOST_ELEMENTS &&
            rows_are_aligned(&p->a, want->align[0]) && rows_are_aligned(&p->b, want->align[1]));
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t pref, int n_asked,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int                            *n_found)
{
    preference     want;
    product        p = {0};
    cublasStatus_t s;

    if (vp_emulator_fails("cublasLtMatmulAlgoGetHeuristic", "%d", n_asked))
        return CUBLAS_STATUS_INTERNAL_ERROR;
    *n_found = 0;
    if (!vp_emulator_lives(HANDLE, handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (n_asked <= 0 || !vp_emulator_lives(PREFERENCE, pref))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&want, pref, sizeof want);
    for (int i = 0; i < 4; i++)
        if (want.align[i] == 0 || (want.align[i] & (want.align[i] - 1))) {
            vp_emulator_say("cublasLt: %c at multiples of %u bytes: not a power of two", 'A' + i,
                            want.align[i]);
            return CUBLAS_STATUS_INVALID_VALUE;
        }
    s = describe(&p, desc, a, b, c, d);
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    for (uint32_t id = IN_PLACE; id <= PLAIN && *n_found < n_asked; id++) {
        algorithm algo = {.magic  = MAGIC,
                          .id     = id,
                          .scheme = scheme_of(id),
                          .split  = id == PLAIN ? 1 : 2,
                          .types  = types_of(&p)};

        if (!offers(&p, &want, id))
            continue;
        memcpy(algo.align, want.align, sizeof algo.align);
        algo.bias_align = p.desc.bias ? alignment_of(p.desc.bias) : 16;
        if (p.desc.epilogue != CUBLASLT_EPILOGUE_BIAS)
            algo.bias_align = 0;
        results[*n_found] = (cublasLtMatmulHeuristicResult_t){.workspaceSize = workspace_of(&p, id),
                                                              .state      = CUBLAS_STATUS_SUCCESS,
                                                              .wavesCount = 1.0f};
        memcpy(&results[*n_found].algo, &algo, sizeof algo);
        ++*n_found;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_algorithm(const product *p)
{
    if (p->algo.magic != MAGIC || p->algo.types != types_of(p)) {
        vp_emulator_say(
            "cublasLt: the algorithm is none, or was chosen for other types or transposes");
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t      *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    product        p = {0};
    cublasStatus_t s;

    if (vp_emulator_fails("cublasLtMatmulAlgoCheck", "%s", ""))
        return CUBLAS_STATUS_INTERNAL_ERROR;
    if (!vp_emulator_lives(HANDLE, handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    s = describe(&p, desc, a, b, c, d);
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    memcpy(&p.algo, algo, sizeof p.algo);
    s = check_algorithm(&p);
    if (s == CUBLAS_STATUS_SUCCESS && result) {
        result->workspaceSize = workspace_of(&p, p.algo.id);
        result->state         = s;
        result->wavesCount    = 1.0f;
    }
    return s;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t          *given,
                                                    cublasLtMatmulAlgoConfigAttributes_t attr,
                                                    void *buf, size_t n_bytes, size_t *n_written)
{
    algorithm      algo;
    const uint32_t tile = 0, *from;

    memcpy(&algo, given, sizeof algo);
    if (algo.magic != MAGIC)
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (attr) {
    case CUBLASLT_ALGO_CONFIG_ID:
        from = &algo.id;
        break;
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
        from = &tile;
        break;
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
        from = &algo.split;
        break;
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
        from = &algo.scheme;
        break;
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (n_written)
        *n_written = sizeof *from;
    if (n_bytes == 0)
        return n_written ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
    return set(buf, sizeof *from, from, n_bytes);
}

/* ---- the product ---- */

/* To nearest even, keeping 23 - n_cut bits behind the point. */
static float rounded(float x, int n_cut)
{
    uint32_t bits, half = 1u << (n_cut - 1);
    float    y;

    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000u) == 0x7f800000u)
        return x;
    bits = (bits + half - 1 + (bits >> n_cut & 1)) & ~(2 * half - 1);
    memcpy(&y, &bits, sizeof y);
    return y;
}

static float get(const void *base, int32_t type, int64_t i)
{
    return type == CUDA_R_16BF  ? vp_bf16_to_f32(((const uint16_t *)base)[i])
           : type == CUDA_R_16F ? vp_fp16_to_f32(((const uint16_t *)base)[i])
                                : ((const float *)base)[i];
}

static float as_type(int32_t type, float x)
{
    return type == CUDA_R_16BF  ? vp_bf16_to_f32(vp_bf16_from_f32(x))
           : type == CUDA_R_16F ? vp_fp16_to_f32(vp_fp16_from_f32(x))
                                : x;
}

/* Where element (row, col) of a matrix of this layout is. */
static int64_t at(const layout *l, int64_t batch, int64_t row, int64_t col)
{
    return batch * l->batch_stride +
           (l->order == CUBLASLT_ORDER_ROW ? row * l->ld + col : col * l->ld + row);
}

static int64_t n_elements(const layout *l)
{
    return 1 + at(l, l->batch_count - 1, (int64_t)l->rows - 1, (int64_t)l->cols - 1);
}

/* op(X) as rows of floats. */
static void unpack(const product *p, const layout *l, const void *base, int32_t op, int64_t batch,
                   int64_t rows, int64_t cols, float *out)
{
    int n_cut = p->desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32   ? 13
                : p->desc.compute == CUBLAS_COMPUTE_32F_FAST_16BF ? 16
                                                                  : 0;

    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            float x =
                get(base, l->type, op == CUBLAS_OP_N ? at(l, batch, r, c) : at(l, batch, c, r));
            out[r * cols + c] = n_cut ? rounded(x, n_cut) : x;
        }
}

/* sum[n] over k from `from` to `to` of row a and rows of b. */
static void add_row(const float *a, const float *b, int64_t n, int64_t from, int64_t to, float *sum)
{
    for (int64_t j = 0; j < n; j++)
        sum[j] = 0.0f;
    for (int64_t k = from; k < to; k++)
        for (int64_t j = 0; j < n; j++)
            sum[j] += a[k] * b[k * n + j];
}

static void finish_row(const product *p, int64_t batch, int64_t row, const float *sum)
{
    const bool bias = p->desc.epilogue == CUBLASLT_EPILOGUE_BIAS;

    for (int64_t j = 0; j < p->n; j++) {
        int64_t to = at(&p->d, batch, row, j);
        float   x  = p->alpha * sum[j];

        if (p->beta != 0.0f)
            x += p->beta * get(p->at_c, p->c.type, at(&p->c, batch, row, j));
        if (bias)
            x = get(p->desc.bias, p->d.type, row) +
                (p->algo.id == SPLIT ? as_type(p->d.type, x) : x);
        if (p->d.type == CUDA_R_16BF)
            ((uint16_t *)p->at_d)[to] = vp_bf16_from_f32(x);
        else if (p->d.type == CUDA_R_16F)
            ((uint16_t *)p->at_d)[to] = vp_fp16_from_f32(x);
        else
            ((float *)p->at_d)[to] = x;
    }
}

static void multiply(const product *p, int64_t batch, float *a, float *b, float *sum, bool swapped)
{
    int64_t half = p->algo.id == PLAIN ? p->k : p->k / 2;

    unpack(p, &p->a, p->at_a, p->desc.op_a, batch, p->m, p->k, a);
    unpack(p, &p->b, p->at_b, p->desc.op_b, batch, p->k, p->n, b);
    for (int64_t i = 0; i < p->m; i++) {
        float *first = p->algo.id == SPLIT ? (float *)p->workspace + i * p->n : sum;
        float *other = p->algo.id == SPLIT ? (float *)p->workspace + (p->m + i) * p->n : sum + p->n;

        add_row(a + i * p->k, b, p->n, 0, half, first);
        if (p->algo.id != PLAIN) {
            add_row(a + i * p->k, b, p->n, half, p->k, other);
            for (int64_t j = 0; p->algo.id == ROUNDED && j < p->n; j++)
                first[j] = as_type(p->d.type, first[j]), other[j] = as_type(p->d.type, other[j]);
            if (swapped && p->beta != 0.0f) { /* what arrives first is added to C first */
                product part = *p;

                part.desc.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
                finish_row(&part, batch, i, other);
                part      = *p;
                part.beta = 1.0f, part.at_c = p->at_d, part.c = p->d;
                finish_row(&part, batch, i, first);
                continue;
            }
            for (int64_t j = 0; j < p->n; j++)
                sum[j] = swapped ? other[j] + first[j] : first[j] + other[j];
        }
        finish_row(p, batch, i, sum);
    }
}

static bool is_there(const product *p, const layout *l, const void *base, const char *name)
{
    if (vp_emulator_is_device(base, (size_t)n_elements(l) * type_bytes(l->type)))
        return true;
    vp_emulator_fault(cudaErrorIllegalAddress,
                      "cublasLtMatmul of %lld x %lld x %lld: %s reaches beyond its device memory",
                      (long long)p->m, (long long)p->n, (long long)p->k, name);
    return false;
}

static void work(void *args)
{
    static unsigned n_in_place; /* the order of arrival changes from call to call */
    product         p;
    float          *a, *b, *sum;

    memcpy(&p, args, sizeof p);
    if (!is_there(&p, &p.a, p.at_a, "A") || !is_there(&p, &p.b, p.at_b, "B") ||
        !is_there(&p, &p.d, p.at_d, "D") || (p.beta != 0.0f && !is_there(&p, &p.c, p.at_c, "C")))
        return;
    if (p.desc.epilogue == CUBLASLT_EPILOGUE_BIAS &&
        !vp_emulator_is_device(p.desc.bias, (size_t)p.m * type_bytes(p.d.type))) {
        vp_emulator_fault(cudaErrorIllegalAddress,
                          "cublasLtMatmul: a bias of %lld reaches beyond its device memory",
                          (long long)p.m);
        return;
    }
    a   = malloc((size_t)(p.m * p.k) * sizeof *a);
    b   = malloc((size_t)(p.k * p.n) * sizeof *b);
    sum = malloc((size_t)(2 * p.n) * sizeof *sum);
    if (a && b && sum) {
        bool swapped = p.algo.id == IN_PLACE && n_in_place++ % 2 == 1;

        for (int64_t batch = 0; batch < p.d.batch_count; batch++)
            multiply(&p, batch, a, b, sum, swapped);
    } else {
        vp_emulator_fault(cudaErrorLaunchOutOfResources,
                          "cublasLtMatmul: no memory for the operands of the stand-in");
    }
    free(a);
    free(b);
    free(sum);
}

static bool overlap(const void *x, int64_t x_bytes, const void *y, int64_t y_bytes)
{
    return (const char *)x < (const char *)y + y_bytes &&
           (const char *)y < (const char *)x + x_bytes;
}

static bool same_layout(const layout *x, const layout *y)
{
    /* sizes are D's */
    return x->type == y->type && x->order == y->order && x->ld == y->ld &&
           x->batch_stride == y->batch_stride;
}

static cublasStatus_t check_pointers(const product *p, size_t workspace_bytes)
{
    const void   *pointers[4] = {p->at_a, p->at_b, p->at_c, p->at_d};
    const layout *layouts[4]  = {&p->a, &p->b, &p->c, &p->d};
    uint64_t      need        = workspace_of(p, p->algo.id);
    int64_t       d_bytes     = n_elements(&p->d) * (int64_t)type_bytes(p->d.type);

    for (int i = 0; i < 4; i++) {
        uint32_t align = p->algo.align[i] > type_bytes(layouts[i]->type)
                             ? p->algo.align[i]
                             : (uint32_t)type_bytes(layouts[i]->type);

        if (!pointers[i] || (uintptr_t)pointers[i] % align) {
            vp_emulator_say(
                "cublasLtMatmul: %c is at %p; the algorithm was chosen for multiples of %u",
                'A' + i, pointers[i], align);
            return CUBLAS_STATUS_INVALID_VALUE;
        }
    }
    if (p->algo.bias_align && (!p->desc.bias || (uintptr_t)p->desc.bias % p->algo.bias_align)) {
        vp_emulator_say(
            "cublasLtMatmul: the bias is at %p; the algorithm was chosen for multiples of %u",
            p->desc.bias, p->algo.bias_align);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if ((uintptr_t)p->workspace % WORKSPACE_ALIGN) {
        vp_emulator_say("cublasLtMatmul: the workspace is at %p, no multiple of %d", p->workspace,
                        WORKSPACE_ALIGN);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (need > 0 &&
        (workspace_bytes < need || !p->workspace || !vp_emulator_is_device(p->workspace, need))) {
        vp_emulator_say(
            "cublasLtMatmul: the algorithm needs a workspace of %llu bytes of device memory and has %zu at %p",
            (unsigned long long)need, workspace_bytes, p->workspace);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    for (int i = 0; i < 3; i++) {
        int64_t bytes = n_elements(layouts[i]) * (int64_t)type_bytes(layouts[i]->type);
        bool    same  = i == 2 && p->at_c == p->at_d && same_layout(&p->c, &p->d);

        if (!same && (i < 2 || p->beta != 0.0f) && overlap(p->at_d, d_bytes, pointers[i], bytes)) {
            vp_emulator_say("cublasLtMatmul: D lies on %c", 'A' + i);
            return CUBLAS_STATUS_INVALID_VALUE;
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    product        p;
    cublasStatus_t s;

    memset(&p, 0, sizeof p);
    if (!vp_emulator_lives(HANDLE, handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    s = describe(&p, desc, a_layout, b_layout, c_layout, d_layout);
    if (vp_emulator_fails("cublasLtMatmul", "%lld, %lld, %lld", (long long)p.m, (long long)p.n,
                          (long long)p.k))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    if (!alpha || !beta)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&p.alpha, alpha, sizeof p.alpha);
    memcpy(&p.beta, beta, sizeof p.beta);
    p.at_a = a, p.at_b = b, p.at_c = c, p.at_d = d, p.workspace = workspace;
    if (algo)
        memcpy(&p.algo, algo, sizeof p.algo);
    else /* the library's own choice: nothing is known of alignments */
        p.algo = (algorithm){.magic      = MAGIC,
                             .id         = PLAIN,
                             .types      = types_of(&p),
                             .align      = {1, 1, 1, 1},
                             .bias_align = p.desc.epilogue == CUBLASLT_EPILOGUE_BIAS};
    s = check_algorithm(&p);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = check_pointers(&p, workspace_bytes);
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    return vp_emulator_enqueue(stream, work, &p, sizeof p) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}
