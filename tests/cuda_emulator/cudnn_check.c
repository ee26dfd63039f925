/* tests/cuda_emulator/cudnn_check.c: attention_cudnn.c on the interpreting stand-in for cuDNN,
 * against float64.
 *     VPLAN_CUDNN=libcudnn_stand_in.so cudnn_check
 * Built and run by tests/test_cudnn_graphs.sh.
 *
 * What is compared is the graphs' mathematics, masks, strides and chunks; precision is that of
 * bf16 with sums in double. Beside the one rounding of each result, P and dS are bf16 where they
 * are multiplied and dK and dV of each query head where heads share keys: three roundings of
 * 2^-9 at most for a term. Terms of a gradient have either sign, so an error relative to one
 * element can be large; relative to the root of the sum of squares over all elements it stays
 * below 3 2^-9 and is asked to be below 2^-7. A mask off by one element moves that by more than
 * 1 / sqrt(seq). */
#include "tests/kernel_test.h"

#include "kernels/cuda/attention_cudnn.h"
#include "kernels/cuda/cuda_internal.h"
#include "plan/workspace.h"

enum {
    LENGTHS = VP_ATTENTION_BWD_LENGTHS,
    Y       = VP_ATTENTION_BWD_Y,
    LSE     = VP_ATTENTION_BWD_LSE,
    DQ      = VP_ATTENTION_BWD_DQ,
    DK      = VP_ATTENTION_BWD_DK,
    DV      = VP_ATTENTION_BWD_DV
};

typedef struct check {
    vp_attention_ints n;
    int64_t           n_chunks;
    double            scale; /* 0: 1 / sqrt(head_dim) */
} check;

/* clang-format off */
#define OF(b, s, h, kv, d, qkv, is_causal, keys) \
    {.batch = b, .seq = s, .heads = h, .kv_heads = kv, .head_dim = d, .layout = qkv, \
     .causal = is_causal, .window = keys}
/* clang-format on */

static const int devices[] = {80, 90, 100}; /* heuristics' engine, and one that is named */

static vp_cuda open_device(int compute_capability)
{
    vp_err  err  = {0};
    vp_cuda cuda = {.compute_capability = compute_capability, .cudnn = vp_cudnn_open(NULL, &err)};

    if (!cuda.cudnn)
        fail_msg("%s", err.message);
    return cuda;
}

/* ||got - wanted|| / ||wanted|| over an operand; no element may be NaN. */
static double distance(const kt_operands *o, int i)
{
    const double *wanted = o->reference.operand[i];
    double        off = 0.0, all = 0.0;

    for (int64_t e = 0; e < o->n[i]; e++) {
        double got = kt_get(&o->call, i, e);

        if (isnan(got))
            fail_msg("%s[%lld] was not written",
                     vp_kernel_info_of(o->call.kernel)->operands[i].name, (long long)e);
        off += (got - wanted[e]) * (got - wanted[e]);
        all += wanted[e] * wanted[e];
    }
    return sqrt(off / (all > 0.0 ? all : 1.0));
}

static double worst;

static void compare(const kt_operands *o, const check *c, int i, double most)
{
    double d = distance(o, i);

    worst = d / most > worst ? d / most : worst;
    if (!(d <= most))
        fail_msg(
            "%s of %lld x %lld, heads %lld / %lld of %lld, layout %lld, causal %lld, window %lld, %lld chunks: off by %.3g of %.3g",
            vp_kernel_info_of(o->call.kernel)->operands[i].name, (long long)c->n.batch,
            (long long)c->n.seq, (long long)c->n.heads, (long long)c->n.kv_heads,
            (long long)c->n.head_dim, (long long)c->n.layout, (long long)c->n.causal,
            (long long)c->n.window, (long long)c->n_chunks, d, most);
}

/* A workspace of exactly the bytes asked for, not at a multiple of more than the plan's, behind
 * it bytes that must not change. */
typedef struct workspace {
    char   *allocation, *p;
    int64_t bytes;
} workspace;

enum { FENCE_BYTES = 4096, FENCE = 0x5a };

static workspace workspace_new(const vp_kernel_call *call, int compute_capability, int64_t n_chunks)
{
    vp_call_shape          shape    = {.compute_capability = compute_capability,
                                       .kernel             = call->kernel,
                                       .dtype              = call->dtype,
                                       .ints               = call->ints,
                                       .reals              = call->reals};
    vp_attention_workspace division = vp_cuda_attention_workspace(&shape, n_chunks);
    workspace              w        = {.bytes = division.bytes};
    void                  *p;

    assert_false(vp_overflowed(division.bytes));
    assert_int_equal(
        posix_memalign(&p, 4096, (size_t)division.bytes + VP_ALIGN_BYTES + FENCE_BYTES), 0);
    w.allocation = p;
    w.p          = w.allocation + VP_ALIGN_BYTES;
    memset(w.allocation, FENCE, (size_t)division.bytes + VP_ALIGN_BYTES + FENCE_BYTES);
    return w;
}

static void workspace_release(workspace *w)
{
    for (int64_t i = -VP_ALIGN_BYTES; i < w->bytes + FENCE_BYTES; i++)
        if ((i < 0 || i >= w->bytes) && w->p[i] != FENCE)
            fail_msg("byte %lld of a workspace of %lld was written", (long long)i,
                     (long long)w->bytes);
    free(w->allocation);
}

static void run(const vp_cuda *cuda, vp_kernel_call *call, int64_t n_chunks)
{
    workspace w   = workspace_new(call, cuda->compute_capability, n_chunks);
    vp_err    err = {0};

    call->workspace       = w.p;
    call->workspace_bytes = w.bytes;
    CHECK_OK(vp_cudnn_attention(cuda->cudnn, cuda->compute_capability, call, n_chunks, &err));
    workspace_release(&w);
}

static void check_one(const vp_cuda *cuda, const check *c)
{
    kt_case back = {
        .kernel = VP_K_ATTENTION_BWD, .dtype = VP_DTYPE_BF16, .absent = {[LENGTHS] = true}};
    kt_operands    o;
    vp_kernel_call forward, reference;

    back.attention = c->n;
    back.attention_reals.scale =
        c->scale > 0.0 ? c->scale : 1.0 / sqrt((double)back.attention.head_dim);
    o = kt_operands_new(&back, 7, 1);
    assert_true(kt_forward_of(&o.call, NULL, &forward));
    assert_true(kt_forward_of(&o.reference, NULL, &reference));
    run(cuda, &forward, 1);
    vp_reference_run(&reference);
    compare(&o, c, Y, 0x1p-7);
    compare(&o, c, LSE, 0x1p-18);
    /* Backward is asked about what forward wrote. */
    for (int64_t e = 0; e < o.n[Y]; e++)
        ((double *)o.reference.operand[Y])[e] = kt_get(&o.call, Y, e);
    run(cuda, &o.call, c->n_chunks);
    vp_reference_run(&o.reference);
    compare(&o, c, DQ, 0x1p-7);
    if (back.attention.layout == VP_QKV_APART) {
        compare(&o, c, DK, 0x1p-7);
        compare(&o, c, DV, 0x1p-7);
    }
    /* inputs as they were; outputs not beyond their ends */
    for (int i = 0; i < VP_MAX_OPERANDS; i++)
        if (o.call.operand[i] && vp_kernel_info_of(o.call.kernel)->operands[i].access == VP_READ &&
            i != Y && i != LSE)
            assert_true(distance(&o, i) == 0.0);
    kt_operands_release(&o);
}

static void check_all(const check *c, int n)
{
    for (size_t d = 0; d < sizeof devices / sizeof devices[0]; d++) {
        vp_cuda cuda = open_device(devices[d]);

        for (int i = 0; i < n; i++)
            check_one(&cuda, &c[i]);
        vp_cudnn_close(cuda.cudnn);
    }
}

#define CHECK_ALL(...) \
    do { \
        static const check cases[] = {__VA_ARGS__}; \
        check_all(cases, (int)(sizeof cases / sizeof cases[0])); \
    } while (0)

enum { PACKED = VP_QKV_PACKED, PER_HEAD = VP_QKV_PER_HEAD, APART = VP_QKV_APART };

static void one_key_head_for_each_query_head(void **state)
{
    (void)state;
    CHECK_ALL({OF(2, 64, 3, 3, 16, PACKED, 1, 0), 1, 0}, {OF(2, 64, 3, 3, 16, PACKED, 0, 0), 1, 0},
              {OF(1, 128, 2, 2, 64, PACKED, 1, 0), 1, 0});
}

static void query_heads_share_key_heads(void **state)
{
    (void)state;
    CHECK_ALL({OF(2, 48, 6, 2, 16, PACKED, 1, 0), 1, 0}, {OF(2, 48, 6, 3, 8, PACKED, 0, 0), 1, 0},
              {OF(1, 48, 4, 1, 24, APART, 1, 0), 1, 0});
}

static void every_layout_by_its_strides(void **state)
{
    (void)state;
    CHECK_ALL({OF(2, 40, 4, 4, 16, PER_HEAD, 1, 0), 1, 0}, {OF(2, 40, 4, 4, 16, APART, 1, 0), 1, 0},
              {OF(2, 40, 4, 2, 16, APART, 0, 0), 1, 0}, {OF(2, 40, 4, 2, 16, PACKED, 0, 0), 1, 0});
}

static void odd_lengths_heads_and_scales(void **state)
{
    (void)state;
    CHECK_ALL({OF(3, 77, 3, 3, 40, PACKED, 1, 0), 1, 0.2},
              {OF(1, 101, 5, 5, 8, PER_HEAD, 0, 0), 1, 0},
              {OF(1, 2, 2, 1, 16, APART, 1, 0), 1, 1.0}, {OF(2, 33, 9, 3, 80, PACKED, 1, 0), 1, 0});
}

static void windows(void **state)
{
    (void)state;
    CHECK_ALL(
        {OF(1, 70, 2, 2, 16, PACKED, 1, 16), 1, 0}, {OF(1, 70, 2, 1, 16, APART, 1, 1), 1, 0},
        {OF(1, 70, 2, 2, 16, PACKED, 0, 9), 1, 0}, {OF(2, 37, 2, 2, 16, PER_HEAD, 0, 1), 1, 0},
        {OF(1, 40, 2, 2, 16, PACKED, 1, 39), 1, 0}, {OF(1, 40, 2, 2, 16, PACKED, 1, 40), 1, 0},
        {OF(1, 40, 2, 2, 16, PACKED, 0, 4096), 1, 0});
}

static void backward_in_chunks_of_samples_and_of_heads(void **state)
{
    (void)state;
    CHECK_ALL({OF(4, 33, 6, 3, 16, PACKED, 1, 0), 2, 0}, {OF(4, 33, 6, 3, 16, PACKED, 1, 0), 4, 0},
              {OF(4, 34, 6, 3, 16, PACKED, 1, 0), 12, 0},
              {OF(2, 35, 4, 4, 16, PER_HEAD, 1, 0), 4, 0},
              {OF(2, 36, 4, 4, 16, PER_HEAD, 1, 8), 8, 0}, {OF(2, 34, 8, 4, 16, APART, 0, 0), 4, 0},
              {OF(2, 34, 8, 4, 16, APART, 0, 0), 8, 0});
}

/* The same numbers in any number of chunks, to the bit, and twice. */
static void chunks_change_no_bit(void **state)
{
    static const int64_t n_chunks[] = {1, 1, 2, 4, 8, 16};
    vp_cuda              cuda       = open_device(90);
    kt_case              back       = {.kernel          = VP_K_ATTENTION_BWD,
                                       .dtype           = VP_DTYPE_BF16,
                                       .attention       = {.batch    = 4,
                                                           .seq      = 21,
                                                           .heads    = 8,
                                                           .kv_heads = 4,
                                                           .head_dim = 16,
                                                           .layout   = PACKED,
                                                           .causal   = 1,
                                                           .window   = 0},
                                       .attention_reals = {.scale = 0.25},
                                       .absent          = {[LENGTHS] = true}};
    unsigned char       *first      = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof n_chunks / sizeof n_chunks[0]; i++) {
        kt_operands    o = kt_operands_new(&back, 3, 1);
        vp_kernel_call forward;

        assert_true(kt_forward_of(&o.call, NULL, &forward));
        run(&cuda, &forward, 1);
        run(&cuda, &o.call, n_chunks[i]);
        if (!first) {
            first = malloc((size_t)o.bytes[DQ]);
            assert_non_null(first);
            memcpy(first, o.call.operand[DQ], (size_t)o.bytes[DQ]);
        }
        assert_memory_equal(first, o.call.operand[DQ], (size_t)o.bytes[DQ]);
        kt_operands_release(&o);
    }
    free(first);
    vp_cudnn_close(cuda.cudnn);
}

static void a_small_workspace_is_refused(void **state)
{
    vp_cuda        cuda = open_device(90);
    kt_case        back = {.kernel          = VP_K_ATTENTION_BWD,
                           .dtype           = VP_DTYPE_BF16,
                           .attention       = {.batch    = 1,
                                               .seq      = 16,
                                               .heads    = 2,
                                               .kv_heads = 2,
                                               .head_dim = 16,
                                               .layout   = APART,
                                               .causal   = 1,
                                               .window   = 0},
                           .attention_reals = {.scale = 0.25},
                           .absent          = {[LENGTHS] = true}};
    kt_operands    o    = kt_operands_new(&back, 3, 1);
    workspace      w    = workspace_new(&o.call, 90, 1);
    vp_kernel_call call = o.call;
    vp_err         err  = {0};

    (void)state;
    call.workspace       = w.p;
    call.workspace_bytes = w.bytes - 1;
    assert_int_equal(vp_cudnn_attention(cuda.cudnn, 90, &call, 1, &err), VP_ERR_INPUT);
    assert_non_null(strstr(err.message, "workspace of"));
    workspace_release(&w);
    kt_operands_release(&o);
    vp_cudnn_close(cuda.cudnn);
}

/* What cuDNN requires and a plan promises; the stand-in refuses what breaks it. */
static void cudnn_is_told_what_it_requires(void **state)
{
    vp_cuda         cuda = open_device(90);
    kt_case         back = {.kernel          = VP_K_ATTENTION_BWD,
                            .dtype           = VP_DTYPE_BF16,
                            .attention       = OF(1, 16, 2, 2, 16, APART, 1, 0),
                            .attention_reals = {.scale = 0.25},
                            .absent          = {[LENGTHS] = true}};
    kt_operands     o    = kt_operands_new(&back, 3, 1);
    workspace       w    = workspace_new(&o.call, 90, 1);
    vp_kernel_call  call = o.call;
    vp_cudnn_plan  *plan = NULL;
    vp_cudnn_shape  shape;
    vp_cudnn_api    api;
    vp_cudnn_target target = {.compute_capability = 90};
    vp_err          err    = {0};
    /* heads of 12 elements: rows at multiples of 8 bytes */
    vp_attention_ints odd = {.batch    = 1,
                             .seq      = 16,
                             .heads    = 3,
                             .kv_heads = 3,
                             .head_dim = 12,
                             .layout   = VP_QKV_APART,
                             .causal   = 1};

    (void)state;
    call.workspace       = w.p - VP_ALIGN_BYTES / 2;
    call.workspace_bytes = w.bytes;
    assert_int_equal(vp_cudnn_attention(cuda.cudnn, 90, &call, 1, &err), VP_ERR_DEVICE);
    assert_non_null(strstr(err.message, "workspace"));
    workspace_release(&w);
    kt_operands_release(&o);
    vp_cudnn_close(cuda.cudnn);

    err = (vp_err){0};
    CHECK_OK(vp_cudnn_api_open(&api, &err));
    CHECK_OK(vp_cudnn_check(&api, api.handle_create(&target.handle), "cudnnCreate", &err));
    shape = vp_cudnn_shape_of(VP_K_ATTENTION_BWD, &odd, 1);
    assert_int_equal(vp_cudnn_plan_new(&api, &target, &shape, INT64_MAX, &plan, &err),
                     VP_ERR_DEVICE);
    assert_non_null(strstr(err.message, "12 elements of a head"));
    api.handle_destroy(target.handle);
    vp_cudnn_api_close(&api);
}

/* In place of our own kernels and of backend_cuda.c. */
static int n_own_calls;

cudaError_t vp_cuda_attention_fwd(const vp_kernel_call *call, cudaStream_t stream)
{
    (void)call, (void)stream;
    n_own_calls++;
    return cudaSuccess;
}

cudaError_t vp_cuda_attention_bwd(const vp_kernel_call *call, cudaStream_t stream)
{
    return vp_cuda_attention_fwd(call, stream);
}

vp_status vp_cuda_check(cudaError_t e, const char *what, vp_err *err)
{
    return e == cudaSuccess ? VP_OK : VP_FAIL(err, VP_ERR_DEVICE, "%s", what);
}

static void what_is_not_for_cudnn_goes_elsewhere(void **state)
{
    vp_cuda        cuda = open_device(90), without = {.compute_capability = 90};
    kt_case        back = {.kernel          = VP_K_ATTENTION_BWD,
                           .dtype           = VP_DTYPE_BF16,
                           .attention       = {.batch    = 2,
                                               .seq      = 16,
                                               .heads    = 2,
                                               .kv_heads = 1,
                                               .head_dim = 16,
                                               .layout   = APART,
                                               .causal   = 1,
                                               .window   = 0},
                           .attention_reals = {.scale = 0.25},
                           .absent          = {[LENGTHS] = true}};
    kt_operands    o    = kt_operands_new(&back, 3, 1);
    workspace      w    = workspace_new(&o.call, 90, 1);
    vp_kernel_call call = o.call, other;
    vp_err         err  = {0};

    (void)state;
    call.workspace       = w.p;
    call.workspace_bytes = w.bytes;
    CHECK_OK(vp_cuda_attention_cudnn(&cuda, &call, &err));
    assert_int_equal(n_own_calls, 0);
    other             = call;
    other.operand[DK] = (char *)call.operand[DK] + 4; /* our own kernel takes any address */
    CHECK_OK(vp_cuda_attention_cudnn(&cuda, &other, &err));
    assert_int_equal(n_own_calls, 1);
    other                         = call;
    other.attention_reals.softcap = 30.0;
    assert_int_equal(vp_cuda_attention_cudnn(&cuda, &other, &err), VP_ERR_INPUT);
    assert_int_equal(vp_cuda_attention_cudnn(&without, &call, &err), VP_ERR_INPUT);
    assert_int_equal(n_own_calls, 1);
    workspace_release(&w);
    kt_operands_release(&o);
    vp_cudnn_close(cuda.cudnn);
}

static int print_worst(void **state)
{
    (void)state;
    printf("# worst error %.2f of its bound\n", worst);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_key_head_for_each_query_head),
        cmocka_unit_test(query_heads_share_key_heads),
        cmocka_unit_test(every_layout_by_its_strides),
        cmocka_unit_test(odd_lengths_heads_and_scales),
        cmocka_unit_test(windows),
        cmocka_unit_test(backward_in_chunks_of_samples_and_of_heads),
        cmocka_unit_test(chunks_change_no_bit),
        cmocka_unit_test(a_small_workspace_is_refused),
        cmocka_unit_test(cudnn_is_told_what_it_requires),
        cmocka_unit_test(what_is_not_for_cudnn_goes_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, print_worst);
}
