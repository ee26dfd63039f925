/* tests/cuda_emulator/cublaslt_test.c: the stand-in for cuBLASLt against double loops over its
 * documentation's formula, and its refusals. */
#include "tests/cuda_emulator/emulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <cublasLt.h>
#include <math.h>

#define OK(call)   assert_int_equal((call), cudaSuccess)
#define GOOD(call) assert_int_equal((call), CUBLAS_STATUS_SUCCESS)
#define COUNT(a)   ((int)(sizeof(a) / sizeof((a)[0])))

static cudaStream_t     stream;
static cublasLtHandle_t lt;

/* One product: sizes, and how each matrix lies. */
typedef struct wanted {
    int64_t             m, n, k;
    int                 op_a, op_b, order_a, order_b, order_d, batch, bias;
    int64_t             pad; /* more than the least leading dimension */
    cudaDataType_t      ab, cd;
    cublasComputeType_t compute;
    float               alpha, beta;
} wanted;

typedef struct matrix {
    /* n: elements of all batches, holes included */
    int64_t                rows, cols, ld, stride, n;
    int                    order;
    cudaDataType_t         type;
    void                  *host, *device;
    cublasLtMatrixLayout_t layout;
} matrix;

static uint64_t draw_state = 88172645463325252u;

static double draw(void)
{
    draw_state ^= draw_state << 13;
    draw_state ^= draw_state >> 7;
    draw_state ^= draw_state << 17;
    return (double)(draw_state >> 11) * 0x1p-52 - 1.0;
}

static double get(const matrix *x, int64_t i)
{
    uint32_t bits;
    float    y;

    if (x->type == CUDA_R_32F)
        return (double)((const float *)x->host)[i];
    bits = (uint32_t)((const uint16_t *)x->host)[i] << 16;
    memcpy(&y, &bits, sizeof y);
    return (double)y;
}

static int64_t place(const matrix *x, int64_t batch, int64_t row, int64_t col)
{
    return batch * x->stride +
           (x->order == CUBLASLT_ORDER_ROW ? row * x->ld + col : col * x->ld + row);
}

static size_t bytes_of(const matrix *x)
{
    return (size_t)x->n * (x->type == CUDA_R_32F ? 4 : 2);
}

static void upload(const matrix *x)
{
    OK(cudaMemcpyAsync(x->device, x->host, bytes_of(x), cudaMemcpyHostToDevice, stream));
}

static void download(const matrix *x)
{
    OK(cudaMemcpyAsync(x->host, x->device, bytes_of(x), cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
}

static matrix matrix_new(int64_t rows, int64_t cols, int order, int64_t pad, int batch,
                         cudaDataType_t type)
{
    matrix  x       = {.rows = rows, .cols = cols, .order = order, .type = type};
    int32_t order32 = order, batch32 = batch;

    x.ld     = (order == CUBLASLT_ORDER_ROW ? cols : rows) + pad;
    x.stride = x.ld * (order == CUBLASLT_ORDER_ROW ? rows : cols) + 3 * pad;
    x.n      = x.stride * batch;
    x.host   = malloc(bytes_of(&x));
    assert_non_null(x.host);
    for (int64_t i = 0; i < x.n; i++) {
        float    y = (float)draw();
        uint32_t bits;

        memcpy(&bits, &y, sizeof bits);
        if (type == CUDA_R_32F)
            ((float *)x.host)[i] = y;
        else
            ((uint16_t *)x.host)[i] = (uint16_t)(bits >> 16);
    }
    OK(cudaMalloc(&x.device, bytes_of(&x)));
    upload(&x);
    GOOD(cublasLtMatrixLayoutCreate(&x.layout, type, (uint64_t)rows, (uint64_t)cols, x.ld));
    GOOD(cublasLtMatrixLayoutSetAttribute(x.layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order32,
                                          sizeof order32));
    GOOD(cublasLtMatrixLayoutSetAttribute(x.layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch32,
                                          sizeof batch32));
    GOOD(cublasLtMatrixLayoutSetAttribute(x.layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                          &x.stride, sizeof x.stride));
    return x;
}

static void matrix_free(matrix *x)
{
    free(x->host);
    OK(cudaFree(x->device));
    GOOD(cublasLtMatrixLayoutDestroy(x->layout));
}

typedef struct product {
    matrix                     a, b, c, d, bias;
    cublasLtMatmulDesc_t       desc;
    cublasLtMatmulPreference_t pref;
    void                      *workspace;
} product;

enum { WORKSPACE = 1 << 20 };

static product product_new(const wanted *w)
{
    product  p;
    int32_t  op_a = w->op_a, op_b = w->op_b;
    uint32_t bias = CUBLASLT_EPILOGUE_BIAS;
    uint64_t room = WORKSPACE;

    p.a    = matrix_new(w->op_a ? w->k : w->m, w->op_a ? w->m : w->k, w->order_a, w->pad, w->batch,
                     w->ab);
    p.b    = matrix_new(w->op_b ? w->n : w->k, w->op_b ? w->k : w->n, w->order_b, w->pad, w->batch,
                     w->ab);
    p.c    = matrix_new(w->m, w->n, w->order_d, 2 * w->pad, w->batch, w->cd);
    p.d    = matrix_new(w->m, w->n, w->order_d, w->pad, w->batch, w->cd);
    p.bias = matrix_new(w->m, 1, CUBLASLT_ORDER_COL, 0, 1, w->cd);
    GOOD(cublasLtMatmulDescCreate(&p.desc, w->compute, CUDA_R_32F));
    GOOD(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a));
    GOOD(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b));
    if (w->bias) {
        GOOD(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &bias,
                                            sizeof bias));
        GOOD(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                            &p.bias.device, sizeof p.bias.device));
    }
    GOOD(cublasLtMatmulPreferenceCreate(&p.pref));
    GOOD(cublasLtMatmulPreferenceSetAttribute(p.pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &room, sizeof room));
    OK(cudaMalloc(&p.workspace, WORKSPACE));
    return p;
}

static void product_free(product *p)
{
    matrix *all[] = {&p->a, &p->b, &p->c, &p->d, &p->bias};

    for (int i = 0; i < COUNT(all); i++)
        matrix_free(all[i]);
    GOOD(cublasLtMatmulDescDestroy(p->desc));
    GOOD(cublasLtMatmulPreferenceDestroy(p->pref));
    OK(cudaFree(p->workspace));
}

static cublasStatus_t run(const product *p, const wanted *w, const cublasLtMatmulAlgo_t *algo)
{
    return cublasLtMatmul(lt, p->desc, &w->alpha, p->a.device, p->a.layout, p->b.device,
                          p->b.layout, &w->beta, p->c.device, p->c.layout, p->d.device, p->d.layout,
                          algo, p->workspace, WORKSPACE, stream);
}

static uint32_t config(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t attr)
{
    uint32_t x = 99;
    size_t   n = 0;

    GOOD(cublasLtMatmulAlgoConfigGetAttribute(algo, attr, &x, sizeof x, &n));
    assert_int_equal(n, sizeof x);
    return x;
}

/* u = 2^-24. k roundings of a sum of k products below 1, as a random walk, are u k / 3; 6 times
 * that are allowed, and a bf16 result is off by half a unit in its last place besides, of which one whose
 * parts were rounded has that of their terms too. What lies between the columns stays. */
static void expect_product(const product *p, const wanted *w, const void *before, bool rounded)
{
    double u   = 0x1p-24;
    matrix was = p->d;

    was.host = (void *)(uintptr_t)before;
    for (int64_t batch = 0; batch < w->batch; batch++)
        for (int64_t i = 0; i < w->m; i++)
            for (int64_t j = 0; j < w->n; j++) {
                double sum = 0.0, size = 0.0, got = get(&p->d, place(&p->d, batch, i, j)), allowed;

                for (int64_t k = 0; k < w->k; k++) {
                    double term =
                        get(&p->a,
                            w->op_a ? place(&p->a, batch, k, i) : place(&p->a, batch, i, k)) *
                        get(&p->b, w->op_b ? place(&p->b, batch, j, k) : place(&p->b, batch, k, j));

                    sum += term;
                    size += fabs(term);
                }
                sum = (double)w->alpha * sum +
                      (w->beta != 0.0f ? (double)w->beta * get(&p->c, place(&p->c, batch, i, j))
                                       : 0.0);
                sum += w->bias ? get(&p->bias, i) : 0.0;
                allowed = 2.0 * u * (double)(w->k < 8 ? 8 : w->k) +
                          (w->cd == CUDA_R_16BF ? 0x1p-8 * fabs(sum) : 0.0) +
                          (rounded ? 0x1p-8 * size : 0.0);
                if (!(fabs(got - sum) <= allowed))
                    fail_msg("%lld x %lld x %lld [%lld, %lld]: %.9g, expected %.9g",
                             (long long)w->m, (long long)w->n, (long long)w->k, (long long)i,
                             (long long)j, got, sum);
            }
    for (int64_t e = 0; e < p->d.n; e++) {
        int64_t in = e % p->d.stride, line = in / p->d.ld, at = in % p->d.ld;
        bool    row_major = p->d.order == CUBLASLT_ORDER_ROW;

        if (at >= (row_major ? w->n : w->m) || line >= (row_major ? w->m : w->n))
            assert_true(get(&p->d, e) == get(&was, e));
    }
}

static void check(const wanted *w)
{
    product                         p      = product_new(w);
    void                           *before = malloc(bytes_of(&p.d));
    cublasLtMatmulHeuristicResult_t found[8];
    int                             n = 0;

    assert_non_null(before);
    memcpy(before, p.d.host, bytes_of(&p.d));
    GOOD(cublasLtMatmulAlgoGetHeuristic(lt, p.desc, p.a.layout, p.b.layout, p.c.layout, p.d.layout,
                                        p.pref, COUNT(found), found, &n));
    assert_true(n >= 1);
    for (int i = 0; i <= n; i++) {
        GOOD(run(&p, w, i < n ? &found[i].algo : NULL));
        download(&p.d);
        expect_product(&p, w, before,
                       i < n && config(&found[i].algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) ==
                                    CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE);
        memcpy(p.d.host, before, bytes_of(&p.d));
        upload(&p.d);
    }
    free(before);
    product_free(&p);
}

static void products_are_what_their_layouts_say(void **state)
{
    (void)state;
    for (int bits = 0; bits < 512; bits++) {
        static const int64_t sizes[][3] = {{1, 1, 1}, {5, 3, 7}, {16, 32, 72}};
        int                  row_d      = bits >> 4 & 1;
        wanted               w          = {.op_a    = bits & 1,
                                           .op_b    = bits >> 1 & 1,
                                           .order_a = bits >> 2 & 1,
                                           .order_b = bits >> 3 & 1,
                                           .order_d = row_d,
                                           .batch   = 1 + (bits >> 5 & 1),
                                           .pad     = bits >> 6 & 1 ? 2 : 0,
                                           .ab      = bits >> 7 & 1 ? CUDA_R_16BF : CUDA_R_32F,
                                           .cd      = (bits >> 7) == 3 ? CUDA_R_16BF : CUDA_R_32F,
                                           .compute = CUBLAS_COMPUTE_32F,
                                           .alpha   = 1.0f,
                                           .bias    = !row_d && bits % 3 == 0,
                                           .beta    = bits % 5 == 0 ? -0.5f : 0.0f};

        if (bits % 7 == 0)
            w.alpha = 0.75f;
        w.m = sizes[bits % 3][0], w.n = sizes[bits % 3][1], w.k = sizes[bits % 3][2];
        check(&w);
    }
}

static const wanted plain = {.m       = 40,
                             .n       = 24,
                             .k       = 100,
                             .batch   = 1,
                             .ab      = CUDA_R_32F,
                             .cd      = CUDA_R_32F,
                             .compute = CUBLAS_COMPUTE_32F,
                             .alpha   = 1.0f};

static int offered(const product *p, cublasLtMatmulHeuristicResult_t *found, int n_asked)
{
    int n = -1;

    GOOD(cublasLtMatmulAlgoGetHeuristic(lt, p->desc, p->a.layout, p->b.layout, p->c.layout,
                                        p->d.layout, p->pref, n_asked, found, &n));
    return n;
}

static void expect_no_heuristic(const product *p)
{
    cublasLtMatmulHeuristicResult_t found;
    int                             n = 0;

    assert_int_equal(cublasLtMatmulAlgoGetHeuristic(lt, p->desc, p->a.layout, p->b.layout,
                                                    p->c.layout, p->d.layout, p->pref, 1, &found,
                                                    &n),
                     CUBLAS_STATUS_INVALID_VALUE);
}

static void the_heuristic_offers_what_workspace_and_reductions_allow(void **state)
{
    product                         p = product_new(&plain);
    cublasLtMatmulHeuristicResult_t found[8];
    uint32_t all_but_in_place = 6, none = 0, in_workspace = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    wanted   w    = plain;
    uint64_t room = 0;

    (void)state;
    assert_int_equal(offered(&p, found, 8), 3);
    assert_int_equal(config(&found[0].algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
                     CUBLASLT_REDUCTION_SCHEME_INPLACE);
    assert_int_equal(config(&found[0].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM), 2);
    assert_int_equal(config(&found[1].algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
                     CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    assert_int_equal(found[1].workspaceSize, 2 * 4 * 40 * 24);
    assert_int_equal(offered(&p, found, 2), 2);
    GOOD(cublasLtMatmulPreferenceSetAttribute(p.pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                              &all_but_in_place, sizeof all_but_in_place));
    assert_int_equal(offered(&p, found, 8), 2);
    assert_int_equal(config(&found[0].algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
                     CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    GOOD(cublasLtMatmulPreferenceSetAttribute(p.pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &room, sizeof room));
    assert_int_equal(offered(&p, found, 8), 1);
    assert_int_equal(found[0].workspaceSize, 0);
    GOOD(cublasLtMatmulPreferenceSetAttribute(p.pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                              &none, sizeof none));
    assert_int_equal(offered(&p, found, 8), 1);
    assert_int_equal(config(&found[0].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM), 1);
    product_free(&p);

    /* a result of 16 bits may be added up in 16 bits, where that is not left out */
    w.ab = w.cd = CUDA_R_16BF, w.k = 104; /* rows at multiples of 16 bytes */
    p = product_new(&w);
    assert_int_equal(offered(&p, found, 8), 3);
    assert_int_equal(config(&found[0].algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
                     CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE);
    GOOD(cublasLtMatmulPreferenceSetAttribute(p.pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                              &in_workspace, sizeof in_workspace));
    assert_int_equal(offered(&p, found, 8), 2);
    assert_int_equal(config(&found[0].algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
                     CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    product_free(&p);
}

/* 2^24 + 1 = 2^24 in fp32, so halves of 2^24 and 1, added to a C of 1, differ by their order. */
static void a_split_added_in_place_moves_bits_from_call_to_call(void **state)
{
    wanted                          w = plain;
    product                         p;
    cublasLtMatmulHeuristicResult_t found[8];
    float                           first, second;

    (void)state;
    w.m = w.n = 1;
    w.k       = 2;
    w.beta    = 1.0f;
    p         = product_new(&w);
    memcpy(p.a.host, (float[]){0x1p24f, 1.0f}, 8);
    memcpy(p.b.host, (float[]){1.0f, 1.0f}, 8);
    memcpy(p.c.host, (float[]){1.0f}, 4);
    upload(&p.a), upload(&p.b), upload(&p.c);
    assert_int_equal(offered(&p, found, 8), 2);
    GOOD(run(&p, &w, &found[0].algo));
    download(&p.d);
    first = *(float *)p.d.host;
    GOOD(run(&p, &w, &found[0].algo));
    download(&p.d);
    second = *(float *)p.d.host;
    assert_true(first != second && fabsf(first - second) <= 2.0f);
    product_free(&p);
}

static void fast_compute_types_lose_the_digits_they_say(void **state)
{
    /* 1 + 2^-11 has 11 bits behind the point; TF32 keeps 10, bf16 7. */
    static const struct {
        cublasComputeType_t compute;
        float               x, want;
    } table[] = {
        {CUBLAS_COMPUTE_32F, 1.0f + 0x1p-11f, 1.0f + 0x1p-11f},
        {CUBLAS_COMPUTE_32F_FAST_TF32, 1.0f + 0x1p-11f, 1.0f},
        {CUBLAS_COMPUTE_32F_FAST_TF32, 1.0f + 0x1p-10f, 1.0f + 0x1p-10f},
        {CUBLAS_COMPUTE_32F_FAST_16BF, 1.0f + 0x1p-10f, 1.0f},
    };

    (void)state;
    for (int i = 0; i < COUNT(table); i++) {
        wanted  w = plain;
        product p;

        w.m = w.n = w.k    = 1;
        w.compute          = table[i].compute;
        p                  = product_new(&w);
        *(float *)p.a.host = table[i].x;
        *(float *)p.b.host = 1.0f;
        upload(&p.a), upload(&p.b);
        GOOD(run(&p, &w, NULL));
        download(&p.d);
        assert_true(*(float *)p.d.host == table[i].want);
        product_free(&p);
    }
}

static void expect_refused(const product *p, cublasStatus_t want)
{
    cublasLtMatmulHeuristicResult_t found[1];
    int                             n;

    assert_int_equal(cublasLtMatmulAlgoGetHeuristic(lt, p->desc, p->a.layout, p->b.layout,
                                                    p->c.layout, p->d.layout, p->pref, 1, found,
                                                    &n),
                     want);
    assert_int_equal(run(p, &plain, NULL), want);
}

static void products_that_cannot_be_are_refused(void **state)
{
    product p    = product_new(&plain);
    int32_t bf16 = CUDA_R_16BF, fp32 = CUDA_R_32F, compute = CUBLAS_COMPUTE_16F, op = 7,
            normal = CUBLAS_OP_N, row = CUBLASLT_ORDER_ROW;
    uint32_t gelu = CUBLASLT_EPILOGUE_GELU, bias = CUBLASLT_EPILOGUE_BIAS,
             epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    uint64_t rows     = 41;
    int64_t  ld       = 39;

    (void)state;
    GOOD(cublasLtMatrixLayoutSetAttribute(p.a.layout, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows,
                                          sizeof rows));
    expect_refused(&p, CUBLAS_STATUS_INVALID_VALUE); /* a leading dimension of 40 */
    rows = 39;
    GOOD(cublasLtMatrixLayoutSetAttribute(p.a.layout, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows,
                                          sizeof rows));
    expect_refused(&p, CUBLAS_STATUS_INVALID_VALUE); /* D has 40 */
    rows = 40;
    GOOD(cublasLtMatrixLayoutSetAttribute(p.a.layout, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows,
                                          sizeof rows));
    GOOD(cublasLtMatrixLayoutSetAttribute(p.d.layout, CUBLASLT_MATRIX_LAYOUT_LD, &ld, sizeof ld));
    expect_refused(&p, CUBLAS_STATUS_INVALID_VALUE);
    ld = 40;
    GOOD(cublasLtMatrixLayoutSetAttribute(p.d.layout, CUBLASLT_MATRIX_LAYOUT_LD, &ld, sizeof ld));
    GOOD(run(&p, &plain, NULL));

    GOOD(cublasLtMatrixLayoutSetAttribute(p.a.layout, CUBLASLT_MATRIX_LAYOUT_TYPE, &bf16,
                                          sizeof bf16));
    expect_refused(&p, CUBLAS_STATUS_NOT_SUPPORTED);
    GOOD(cublasLtMatrixLayoutSetAttribute(p.a.layout, CUBLASLT_MATRIX_LAYOUT_TYPE, &fp32,
                                          sizeof fp32));
    GOOD(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, &compute,
                                        sizeof compute));
    expect_refused(&p, CUBLAS_STATUS_NOT_SUPPORTED);
    compute = CUBLAS_COMPUTE_32F;
    GOOD(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, &compute,
                                        sizeof compute));
    GOOD(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &op, sizeof op));
    expect_refused(&p, CUBLAS_STATUS_INVALID_VALUE);
    GOOD(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &normal,
                                        sizeof normal));

    GOOD(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &gelu, sizeof gelu));
    expect_refused(&p, CUBLAS_STATUS_NOT_SUPPORTED);
    GOOD(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &bias, sizeof bias));
    assert_int_equal(run(&p, &plain, NULL), CUBLAS_STATUS_INVALID_VALUE); /* there is none */
    GOOD(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias.device,
                                        sizeof p.bias.device));
    GOOD(run(&p, &plain, NULL));
    GOOD(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bf16,
                                        sizeof bf16));
    expect_refused(&p, CUBLAS_STATUS_NOT_SUPPORTED);
    GOOD(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &fp32,
                                        sizeof fp32));
    GOOD(cublasLtMatrixLayoutSetAttribute(p.d.layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &row,
                                          sizeof row));
    expect_refused(&p, CUBLAS_STATUS_NOT_SUPPORTED);
    GOOD(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                        sizeof epilogue));

    assert_int_equal(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSB, &op, 1),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(
        cublasLtMatrixLayoutSetAttribute(p.a.layout, CUBLASLT_MATRIX_LAYOUT_LD, &op, sizeof op),
        CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasLtMatmulDescDestroy((cublasLtMatmulDesc_t)p.a.layout),
                     CUBLAS_STATUS_INVALID_VALUE);
    product_free(&p);
}

static void operands_that_break_the_algorithms_promise_are_refused(void **state)
{
    wanted                          w = plain;
    product                         p;
    cublasLtMatmulHeuristicResult_t found[8];
    void                           *keep;
    uint32_t                        three = 3, four = 4, sixteen = 16;

    (void)state;
    w.pad = 4; /* room behind, for operands that begin later */
    p     = product_new(&w);
    assert_int_equal(offered(&p, found, 8), 3);
    GOOD(run(&p, &w, &found[2].algo));
    keep       = p.b.device;
    p.b.device = (float *)p.b.device + 1;
    assert_int_equal(run(&p, &w, &found[2].algo), CUBLAS_STATUS_INVALID_VALUE);
    GOOD(cublasLtMatmulPreferenceSetAttribute(p.pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                              &four, sizeof four));
    assert_int_equal(offered(&p, found, 8), 2); /* not the one of 16-byte rows */
    GOOD(run(&p, &w, &found[1].algo));
    p.b.device = keep;
    GOOD(cublasLtMatmulPreferenceSetAttribute(p.pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                              &three, sizeof three));
    expect_no_heuristic(&p);
    GOOD(cublasLtMatmulPreferenceSetAttribute(p.pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                              &sixteen, sizeof sixteen));
    assert_int_equal(offered(&p, found, 8), 3);

    /* too little workspace, none, misaligned (also where none is needed); D on A */
    assert_int_equal(cublasLtMatmul(lt, p.desc, &w.alpha, p.a.device, p.a.layout, p.b.device,
                                    p.b.layout, &w.beta, p.c.device, p.c.layout, p.d.device,
                                    p.d.layout, &found[1].algo, p.workspace,
                                    found[1].workspaceSize - 1, stream),
                     CUBLAS_STATUS_INVALID_VALUE);
    keep        = p.workspace;
    p.workspace = NULL;
    assert_int_equal(run(&p, &w, &found[1].algo), CUBLAS_STATUS_INVALID_VALUE);
    for (int by = 4; by <= 128; by *= 2) {
        p.workspace = (char *)keep + by;
        assert_int_equal(run(&p, &w, &found[1].algo), CUBLAS_STATUS_INVALID_VALUE);
        assert_int_equal(run(&p, &w, &found[2].algo), CUBLAS_STATUS_INVALID_VALUE);
    }
    p.workspace = keep;
    GOOD(run(&p, &w, &found[1].algo));
    keep       = p.d.device;
    p.d.device = p.a.device;
    assert_int_equal(run(&p, &w, &found[2].algo), CUBLAS_STATUS_INVALID_VALUE);
    p.d.device = keep;

    /* an algorithm of fp32 for bf16 */
    w.ab = CUDA_R_16BF;
    {
        product q = product_new(&w);
        assert_int_equal(run(&q, &w, &found[2].algo), CUBLAS_STATUS_INVALID_VALUE);
        product_free(&q);
    }
    product_free(&p);
}

static void products_are_recorded_with_their_stream(void **state)
{
    wanted          w = plain;
    product         p;
    cudaGraph_t     graph;
    cudaGraphExec_t exec;
    void           *before;

    (void)state;
    w.beta = 1.0f;
    p      = product_new(&w);
    before = malloc(bytes_of(&p.d));
    assert_non_null(before);
    memcpy(before, p.d.host, bytes_of(&p.d));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    GOOD(run(&p, &w, NULL));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    w.alpha = w.beta = 9.0f; /* were read when it was recorded */
    download(&p.d);
    assert_memory_equal(before, p.d.host, bytes_of(&p.d));
    OK(cudaGraphLaunch(exec, stream));
    download(&p.d);
    w.alpha = w.beta = 1.0f;
    expect_product(&p, &w, before, false);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    free(before);
    product_free(&p);
}

static void a_product_beyond_its_memory_is_a_fault(void **state)
{
    product p = product_new(&plain);

    (void)state;
    p.a.device = (float *)p.a.device + 1;
    GOOD(run(&p, &plain, NULL));
    assert_int_equal(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
    assert_non_null(strstr(vp_emulator_said(), "A reaches beyond"));
    OK(cudaDeviceReset());
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    GOOD(cublasLtCreate(&lt));
}

static int open_library(void **state)
{
    (void)state;
    return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
                   cublasLtCreate(&lt) == CUBLAS_STATUS_SUCCESS
               ? 0
               : -1;
}

static int close_library(void **state)
{
    (void)state;
    return cublasLtDestroy(lt) == CUBLAS_STATUS_SUCCESS && cudaStreamDestroy(stream) == cudaSuccess
               ? 0
               : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_what_their_layouts_say),
        cmocka_unit_test(the_heuristic_offers_what_workspace_and_reductions_allow),
        cmocka_unit_test(a_split_added_in_place_moves_bits_from_call_to_call),
        cmocka_unit_test(fast_compute_types_lose_the_digits_they_say),
        cmocka_unit_test(products_that_cannot_be_are_refused),
        cmocka_unit_test(operands_that_break_the_algorithms_promise_are_refused),
        cmocka_unit_test(products_are_recorded_with_their_stream),
        cmocka_unit_test(a_product_beyond_its_memory_is_a_fault),
    };

    return cmocka_run_group_tests(tests, open_library, close_library);
}
