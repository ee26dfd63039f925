/* kernels/cuda/attention_cudnn_graph.c: attention as operation graphs that cuDNN recognises and
 * runs as one flash kernel (Dao 2023, arXiv:2307.08691).
 *
 * Forward, with b samples, h query heads of kv key heads, s tokens, d elements (P stays on the
 * chip):
 *
 *     S = scale Q K'             (b h s s) fp32         masked elements: -infinity
 *     m = max S, l = sum exp(S - m), lse = m + log l    (b h s 1) fp32
 *     P = exp(S - m) / l         bf16,  Y = P V
 *
 * Backward, from Y and lse:
 *
 *     D = sum_c dY Y             (b h s 1) fp32, a tensor in the call's workspace
 *     P = exp(S - lse)           bf16 where it is multiplied
 *     dV = P' dY,  dP = dY V',  dS = scale P (dP - D), bf16 where it is multiplied
 *     dK = dS' Q,  dQ = dS K
 *
 * With fewer key heads than query heads dK and dV are made for every query head in bf16, in cuDNN's
 * workspace, and those of a group added in fp32 and rounded: twice rounded, where vplan's own
 * kernels round once.
 *
 * Transposes are strides: K and V are given transposed, P' and dS' are RESHAPE operations onto the
 * same elements. No tensor is permuted in memory; a packed row of queries, keys and values is three
 * tensors with one row stride.
 *
 * Repeating bits. dQ of a query is a sum over tiles of keys that different blocks make. Engines
 * that add them with atomics into an fp32 dQ (the graph of which has a cast at its end) do not
 * repeat themselves. In the graph here dQ is the result of the product itself, for which cuDNN
 * writes dS to its workspace and multiplies it in a second kernel (sm_90), or adds in a fixed
 * order (sm_100, by the knobs below, as NVIDIA's cudnn-frontend asks for it). */
#include "kernels/cuda/attention_cudnn.h"

#include "base/checked.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Descriptors live as long as the plan made of them: whether cuDNN copies or keeps them is not
 * documented. */
typedef struct vp_cudnn_owned {
    struct vp_cudnn_owned *next;
    vp_cudnn_descriptor    descriptor;
} owned;

/* A graph being built. After the first failure every call does nothing. */
typedef struct builder {
    const vp_cudnn_api    *api;
    const vp_cudnn_target *target;
    const vp_cudnn_shape  *shape;
    vp_cudnn_plan         *plan;
    vp_err                *err;
    vp_status              st;
    vp_cudnn_descriptor    operations[32];
    int                    n_operations;
    int64_t                next_id; /* of tensors that exist only inside the kernel */
} builder;

enum { N_DIMS = 4, FIRST_VIRTUAL = 100 };

/* ---- descriptors ---- */

static void check(builder *b, int status, const char *what)
{
    if (b->st == VP_OK)
        b->st = vp_cudnn_check(b->api, status, what, b->err);
}

static vp_cudnn_descriptor create(builder *b, int kind, const char *what)
{
    vp_cudnn_descriptor d = NULL;
    owned              *o;

    if (b->st != VP_OK)
        return NULL;
    o = calloc(1, sizeof *o);
    if (!o) {
        b->st = VP_FAIL(b->err, VP_ERR_NOMEM, "out of host memory");
        return NULL;
    }
    check(b, b->api->create(kind, &d), what);
    *o             = (owned){b->plan->owned, d};
    b->plan->owned = o;
    return d;
}

static void set(builder *b, vp_cudnn_descriptor d, int attribute, int type, int64_t n,
                const void *values, const char *what)
{
    if (b->st == VP_OK)
        check(b, b->api->set(d, attribute, type, n, values), what);
}

static void set_int(builder *b, vp_cudnn_descriptor d, int attribute, int64_t value,
                    const char *what)
{
    set(b, d, attribute, VP_CUDNN_TYPE_INT64, 1, &value, what);
}

/* Enumerations of cuDNN are ints. */
static void set_enum(builder *b, vp_cudnn_descriptor d, int attribute, int type, int value,
                     const char *what)
{
    set(b, d, attribute, type, 1, &value, what);
}

static void set_descriptor(builder *b, vp_cudnn_descriptor d, int attribute,
                           vp_cudnn_descriptor value, const char *what)
{
    set(b, d, attribute, VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value, what);
}

static void finalize(builder *b, vp_cudnn_descriptor d, const char *what)
{
    if (b->st == VP_OK)
        check(b, b->api->finalize(d), what);
}

/* ---- tensors ---- */

typedef struct tensor {
    vp_cudnn_descriptor descriptor;
    int64_t             dims[N_DIMS], strides[N_DIMS];
} tensor;

typedef enum tensor_kind { IN_MEMORY, ON_CHIP, BY_VALUE } tensor_kind;

static tensor tensor_new(builder *b, tensor_kind kind, int64_t id, int dtype,
                         const int64_t dims[N_DIMS], const int64_t strides[N_DIMS])
{
    tensor  t     = {.descriptor = create(b, VP_CUDNN_BACKEND_TENSOR_DESCRIPTOR, "tensor")};
    int64_t align = id == VP_CUDNN_LSE ? vp_cudnn_align_lse(b->shape->seq) : VP_CUDNN_ALIGN_TENSOR;
    bool    yes   = true;

    memcpy(t.dims, dims, sizeof t.dims);
    memcpy(t.strides, strides, sizeof t.strides);
    set_enum(b, t.descriptor, VP_CUDNN_ATTR_TENSOR_DATA_TYPE, VP_CUDNN_TYPE_DATA_TYPE, dtype,
             "tensor's type");
    set(b, t.descriptor, VP_CUDNN_ATTR_TENSOR_DIMENSIONS, VP_CUDNN_TYPE_INT64, N_DIMS, dims,
        "tensor's dimensions");
    set(b, t.descriptor, VP_CUDNN_ATTR_TENSOR_STRIDES, VP_CUDNN_TYPE_INT64, N_DIMS, strides,
        "tensor's strides");
    set_int(b, t.descriptor, VP_CUDNN_ATTR_TENSOR_UNIQUE_ID, id, "tensor's id");
    set_int(b, t.descriptor, VP_CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, align, "tensor's alignment");
    if (kind == ON_CHIP)
        set(b, t.descriptor, VP_CUDNN_ATTR_TENSOR_IS_VIRTUAL, VP_CUDNN_TYPE_BOOLEAN, 1, &yes,
            "virtual tensor");
    if (kind == BY_VALUE)
        set(b, t.descriptor, VP_CUDNN_ATTR_TENSOR_IS_BY_VALUE, VP_CUDNN_TYPE_BOOLEAN, 1, &yes,
            "scalar");
    finalize(b, t.descriptor, "tensor");
    if (kind != ON_CHIP)
        b->plan->uses[id] = true;
    return t;
}

/* (b, heads, s, d) of a part of a tensor in memory; transposed: (b, heads, d, s). */
static tensor operand(builder *b, int id, int64_t heads, const vp_cudnn_part *part, bool transposed)
{
    const vp_cudnn_shape *s      = b->shape;
    const int64_t         dims[] = {s->batch, heads, transposed ? s->head_dim : s->seq,
                            transposed ? s->seq : s->head_dim};
    const int64_t strides[] = {vp_mul(s->seq, part->row), part->head, transposed ? 1 : part->row,
                               transposed ? part->row : 1};

    return tensor_new(b, IN_MEMORY, id, VP_CUDNN_DATA_BFLOAT16, dims, strides);
}

/* (b, h, s, 1) of fp32, packed: lse and row sums. */
static tensor per_row(builder *b, tensor_kind kind, int64_t id)
{
    const vp_cudnn_shape *s         = b->shape;
    const int64_t         dims[]    = {s->batch, s->heads, s->seq, 1};
    const int64_t         strides[] = {s->heads * s->seq, s->seq, 1, 1};

    return tensor_new(b, kind, id, VP_CUDNN_DATA_FLOAT, dims, strides);
}

/* (b, heads, n, m) inside the kernel. */
static tensor on_chip(builder *b, int dtype, int64_t heads, int64_t n, int64_t m)
{
    const int64_t dims[]    = {b->shape->batch, heads, n, m};
    const int64_t strides[] = {heads * n * m, n * m, m, 1};

    return tensor_new(b, ON_CHIP, b->next_id++, dtype, dims, strides);
}

static tensor scores(builder *b, int dtype)
{
    return on_chip(b, dtype, b->shape->heads, b->shape->seq, b->shape->seq);
}

static tensor row_on_chip(builder *b)
{
    return per_row(b, ON_CHIP, b->next_id++);
}

/* The elements of t with its last two dimensions exchanged: for a RESHAPE. */
static tensor transpose_of(builder *b, const tensor *t, int dtype)
{
    const int64_t dims[]    = {t->dims[0], t->dims[1], t->dims[3], t->dims[2]};
    const int64_t strides[] = {t->strides[0], t->strides[1], t->strides[3], t->strides[2]};

    return tensor_new(b, ON_CHIP, b->next_id++, dtype, dims, strides);
}

static tensor scalar(builder *b, int id, int dtype)
{
    static const int64_t ones[N_DIMS] = {1, 1, 1, 1};

    return tensor_new(b, BY_VALUE, id, dtype, ones, ones);
}

/* ---- operations ---- */

static vp_cudnn_descriptor operation(builder *b, int kind, const char *what)
{
    vp_cudnn_descriptor d = create(b, kind, what);

    assert(b->n_operations < (int)(sizeof b->operations / sizeof b->operations[0]));
    b->operations[b->n_operations++] = d;
    return d;
}

enum { NO_AXIS = -1 };

/* y = mode(x, other, select); other and select may be NULL. axis: of GEN_INDEX. */
static void pointwise_axis(builder *b, int mode, int compute, const tensor *x, const tensor *other,
                           const tensor *select, const tensor *y, int64_t axis)
{
    const char         *what = "pointwise operation";
    vp_cudnn_descriptor how  = create(b, VP_CUDNN_BACKEND_POINTWISE_DESCRIPTOR, what), op;

    set_enum(b, how, VP_CUDNN_ATTR_POINTWISE_MODE, VP_CUDNN_TYPE_POINTWISE_MODE, mode, what);
    set_enum(b, how, VP_CUDNN_ATTR_POINTWISE_MATH_PREC, VP_CUDNN_TYPE_DATA_TYPE, compute, what);
    if (axis != NO_AXIS)
        set_int(b, how, VP_CUDNN_ATTR_POINTWISE_AXIS, axis, what);
    finalize(b, how, what);
    op = operation(b, VP_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, what);
    set_descriptor(b, op, VP_CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how, what);
    set_descriptor(b, op, VP_CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x->descriptor, what);
    if (other)
        set_descriptor(b, op, VP_CUDNN_ATTR_OPERATION_POINTWISE_BDESC, other->descriptor, what);
    if (select)
        set_descriptor(b, op, VP_CUDNN_ATTR_OPERATION_POINTWISE_TDESC, select->descriptor, what);
    set_descriptor(b, op, VP_CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y->descriptor, what);
    finalize(b, op, what);
}

static void pointwise(builder *b, int mode, const tensor *x, const tensor *other, const tensor *y)
{
    pointwise_axis(b, mode, VP_CUDNN_DATA_FLOAT, x, other, NULL, y, NO_AXIS);
}

static void multiply(builder *b, const tensor *x, const tensor *y, const tensor *product)
{
    const char         *what = "matrix product";
    vp_cudnn_descriptor how  = create(b, VP_CUDNN_BACKEND_MATMUL_DESCRIPTOR, what), op;

    set_enum(b, how, VP_CUDNN_ATTR_MATMUL_COMP_TYPE, VP_CUDNN_TYPE_DATA_TYPE, VP_CUDNN_DATA_FLOAT,
             what);
    finalize(b, how, what);
    op = operation(b, VP_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, what);
    set_descriptor(b, op, VP_CUDNN_ATTR_OPERATION_MATMUL_DESC, how, what);
    set_descriptor(b, op, VP_CUDNN_ATTR_OPERATION_MATMUL_ADESC, x->descriptor, what);
    set_descriptor(b, op, VP_CUDNN_ATTR_OPERATION_MATMUL_BDESC, y->descriptor, what);
    set_descriptor(b, op, VP_CUDNN_ATTR_OPERATION_MATMUL_CDESC, product->descriptor, what);
    finalize(b, op, what);
}

/* Over the dimensions in which y is smaller than x; a dimension that y divides is summed in
 * consecutive groups. */
static void reduce(builder *b, int how_to, const tensor *x, const tensor *y)
{
    const char         *what = "reduction";
    vp_cudnn_descriptor how  = create(b, VP_CUDNN_BACKEND_REDUCTION_DESCRIPTOR, what), op;

    set_enum(b, how, VP_CUDNN_ATTR_REDUCTION_OPERATOR, VP_CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
             how_to, what);
    set_enum(b, how, VP_CUDNN_ATTR_REDUCTION_COMP_TYPE, VP_CUDNN_TYPE_DATA_TYPE,
             VP_CUDNN_DATA_FLOAT, what);
    finalize(b, how, what);
    op = operation(b, VP_CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, what);
    set_descriptor(b, op, VP_CUDNN_ATTR_OPERATION_REDUCTION_DESC, how, what);
    set_descriptor(b, op, VP_CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x->descriptor, what);
    set_descriptor(b, op, VP_CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y->descriptor, what);
    finalize(b, op, what);
}

static void reshape(builder *b, const tensor *x, const tensor *y)
{
    const char         *what = "transpose";
    vp_cudnn_descriptor op   = operation(b, VP_CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, what);

    set_descriptor(b, op, VP_CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x->descriptor, what);
    set_descriptor(b, op, VP_CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y->descriptor, what);
    finalize(b, op, what);
}

/* ---- what forward and backward share ---- */

/* s where row + (window - 1, or 0) >= column, else -infinity: keys after the query. */
static tensor mask_after(builder *b, tensor s, const tensor *masked)
{
    tensor row = scores(b, VP_CUDNN_DATA_INT32), column = scores(b, VP_CUDNN_DATA_INT32), seen, y;

    pointwise_axis(b, VP_CUDNN_POINTWISE_GEN_INDEX, VP_CUDNN_DATA_FLOAT, &s, NULL, NULL, &row, 2);
    pointwise_axis(b, VP_CUDNN_POINTWISE_GEN_INDEX, VP_CUDNN_DATA_FLOAT, &s, NULL, NULL, &column,
                   3);
    if (!b->shape->causal) {
        tensor after   = scalar(b, VP_CUDNN_AFTER, VP_CUDNN_DATA_INT32),
               shifted = scores(b, VP_CUDNN_DATA_INT32);

        pointwise_axis(b, VP_CUDNN_POINTWISE_ADD, VP_CUDNN_DATA_INT32, &row, &after, NULL, &shifted,
                       3);
        row = shifted;
    }
    seen = scores(b, VP_CUDNN_DATA_BOOLEAN);
    pointwise_axis(b, VP_CUDNN_POINTWISE_CMP_GE, VP_CUDNN_DATA_BOOLEAN, &row, &column, NULL, &seen,
                   NO_AXIS);
    y = scores(b, VP_CUDNN_DATA_FLOAT);
    pointwise_axis(b, VP_CUDNN_POINTWISE_BINARY_SELECT, VP_CUDNN_DATA_FLOAT, &s, masked, &seen, &y,
                   NO_AXIS);
    return y;
}

/* s where column + window > row, else -infinity: keys too far before the query. cuDNN knows the
 * pattern with a float. */
static tensor mask_before(builder *b, tensor s, const tensor *masked)
{
    tensor row = scores(b, VP_CUDNN_DATA_INT32), column = scores(b, VP_CUDNN_DATA_INT32), seen, y;
    tensor before  = scalar(b, VP_CUDNN_BEFORE, VP_CUDNN_DATA_FLOAT),
           shifted = scores(b, VP_CUDNN_DATA_FLOAT);

    pointwise_axis(b, VP_CUDNN_POINTWISE_GEN_INDEX, VP_CUDNN_DATA_FLOAT, &s, NULL, NULL, &row, 2);
    pointwise_axis(b, VP_CUDNN_POINTWISE_GEN_INDEX, VP_CUDNN_DATA_FLOAT, &s, NULL, NULL, &column,
                   3);
    pointwise_axis(b, VP_CUDNN_POINTWISE_ADD, VP_CUDNN_DATA_FLOAT, &column, &before, NULL, &shifted,
                   3);
    seen = scores(b, VP_CUDNN_DATA_BOOLEAN);
    pointwise_axis(b, VP_CUDNN_POINTWISE_CMP_GT, VP_CUDNN_DATA_BOOLEAN, &shifted, &row, NULL, &seen,
                   NO_AXIS);
    y = scores(b, VP_CUDNN_DATA_FLOAT);
    pointwise_axis(b, VP_CUDNN_POINTWISE_BINARY_SELECT, VP_CUDNN_DATA_FLOAT, &s, masked, &seen, &y,
                   NO_AXIS);
    return y;
}

static tensor masks(builder *b, tensor s)
{
    tensor masked;

    if (!b->shape->causal && !b->shape->window)
        return s;
    masked = scalar(b, VP_CUDNN_MASKED, VP_CUDNN_DATA_FLOAT);
    s      = mask_after(b, s, &masked);
    if (b->shape->window)
        s = mask_before(b, s, &masked);
    return s;
}

/* scale Q K' */
static tensor scaled_scores(builder *b, const tensor *q, const tensor *k_transposed,
                            const tensor *scale)
{
    tensor s = scores(b, VP_CUDNN_DATA_FLOAT), scaled;

    multiply(b, q, k_transposed, &s);
    scaled = scores(b, VP_CUDNN_DATA_FLOAT);
    pointwise(b, VP_CUDNN_POINTWISE_MUL, &s, scale, &scaled);
    return scaled;
}

/* ---- the two graphs ---- */

static void forward_graph(builder *b)
{
    const vp_cudnn_shape *s = b->shape;
    tensor                q = operand(b, VP_CUDNN_Q, s->heads, &s->q, false),
           k                = operand(b, VP_CUDNN_K, s->kv_heads, &s->k, true);
    tensor v                = operand(b, VP_CUDNN_V, s->kv_heads, &s->v, false),
           y                = operand(b, VP_CUDNN_Y, s->heads, &s->y, false);
    tensor lse              = per_row(b, IN_MEMORY, VP_CUDNN_LSE),
           scale            = scalar(b, VP_CUDNN_SCALE, VP_CUDNN_DATA_FLOAT);
    tensor t                = masks(b, scaled_scores(b, &q, &k, &scale));
    tensor max = row_on_chip(b), sum = row_on_chip(b), log = row_on_chip(b);
    tensor shifted = scores(b, VP_CUDNN_DATA_FLOAT), e = scores(b, VP_CUDNN_DATA_FLOAT),
           p = scores(b, VP_CUDNN_DATA_BFLOAT16);

    reduce(b, VP_CUDNN_REDUCE_TENSOR_MAX, &t, &max);
    pointwise(b, VP_CUDNN_POINTWISE_SUB, &t, &max, &shifted);
    pointwise(b, VP_CUDNN_POINTWISE_EXP, &shifted, NULL, &e);
    reduce(b, VP_CUDNN_REDUCE_TENSOR_ADD, &e, &sum);
    pointwise(b, VP_CUDNN_POINTWISE_LOG, &sum, NULL, &log);
    pointwise(b, VP_CUDNN_POINTWISE_ADD, &max, &log, &lse);
    pointwise(b, VP_CUDNN_POINTWISE_DIV, &e, &sum, &p);
    multiply(b, &p, &v, &y);
}

/* gradient = x' y of the key heads: with fewer of them than query heads, those of all query
 * heads are added in groups. */
static void key_gradient(builder *b, const tensor *x_transposed, const tensor *y,
                         const tensor *gradient)
{
    const vp_cudnn_shape *s = b->shape;
    tensor                all;

    if (s->kv_heads == s->heads) {
        multiply(b, x_transposed, y, gradient);
        return;
    }
    all = on_chip(b, VP_CUDNN_DATA_BFLOAT16, s->heads, s->seq, s->head_dim);
    multiply(b, x_transposed, y, &all);
    reduce(b, VP_CUDNN_REDUCE_TENSOR_ADD, &all, gradient);
}

static void backward_graph(builder *b)
{
    const vp_cudnn_shape *s = b->shape;
    tensor                q = operand(b, VP_CUDNN_Q, s->heads, &s->q, false),
           k                = operand(b, VP_CUDNN_K, s->kv_heads, &s->k, true);
    tensor v                = operand(b, VP_CUDNN_V, s->kv_heads, &s->v, true),
           y                = operand(b, VP_CUDNN_Y, s->heads, &s->y, false);
    tensor dy               = operand(b, VP_CUDNN_DY, s->heads, &s->y, false),
           dq               = operand(b, VP_CUDNN_DQ, s->heads, &s->q, false);
    tensor dk               = operand(b, VP_CUDNN_DK, s->kv_heads, &s->k, false),
           dv               = operand(b, VP_CUDNN_DV, s->kv_heads, &s->v, false);
    tensor lse              = per_row(b, IN_MEMORY, VP_CUDNN_LSE),
           row_sum          = per_row(b, IN_MEMORY, VP_CUDNN_ROW_SUM);
    tensor scale            = scalar(b, VP_CUDNN_SCALE, VP_CUDNN_DATA_FLOAT),
           one              = scalar(b, VP_CUDNN_ONE, VP_CUDNN_DATA_FLOAT);
    tensor product          = on_chip(b, VP_CUDNN_DATA_FLOAT, s->heads, s->seq, s->head_dim),
           sum              = row_on_chip(b);
    tensor t, shifted, p, p_transposed, dp, centred, dt, ds, ds_transposed, k_again;

    pointwise(b, VP_CUDNN_POINTWISE_MUL, &dy, &y, &product);
    reduce(b, VP_CUDNN_REDUCE_TENSOR_ADD, &product, &sum);
    /* where dropout would scale: the pattern wants it */
    pointwise(b, VP_CUDNN_POINTWISE_MUL, &sum, &one, &row_sum);

    t       = scaled_scores(b, &q, &k, &scale);
    shifted = scores(b, VP_CUDNN_DATA_FLOAT);
    pointwise(b, VP_CUDNN_POINTWISE_SUB, &t, &lse, &shifted);
    shifted = masks(b, shifted);
    p       = scores(b, VP_CUDNN_DATA_FLOAT);
    pointwise(b, VP_CUDNN_POINTWISE_EXP, &shifted, NULL, &p);
    p_transposed = transpose_of(b, &p, VP_CUDNN_DATA_BFLOAT16);
    reshape(b, &p, &p_transposed);
    key_gradient(b, &p_transposed, &dy, &dv);

    dp = scores(b, VP_CUDNN_DATA_FLOAT);
    multiply(b, &dy, &v, &dp);
    centred = scores(b, VP_CUDNN_DATA_FLOAT);
    pointwise(b, VP_CUDNN_POINTWISE_SUB, &dp, &row_sum, &centred);
    dt = scores(b, VP_CUDNN_DATA_FLOAT);
    pointwise(b, VP_CUDNN_POINTWISE_MUL, &centred, &p, &dt);
    ds = scores(b, VP_CUDNN_DATA_FLOAT);
    pointwise(b, VP_CUDNN_POINTWISE_MUL, &dt, &scale, &ds);
    ds_transposed = transpose_of(b, &ds, VP_CUDNN_DATA_BFLOAT16);
    reshape(b, &ds, &ds_transposed);
    key_gradient(b, &ds_transposed, &q, &dk);

    k_again = transpose_of(b, &k, VP_CUDNN_DATA_BFLOAT16);
    reshape(b, &k, &k_again);
    multiply(b, &ds, &k_again, &dq);
}

static vp_cudnn_descriptor graph_of(builder *b)
{
    vp_cudnn_descriptor graph;

    if (b->shape->backward)
        backward_graph(b);
    else
        forward_graph(b);
    b->plan->n_operations = b->n_operations;
    graph = create(b, VP_CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "operation graph");
    if (b->target->handle)
        set(b, graph, VP_CUDNN_ATTR_OPERATIONGRAPH_HANDLE, VP_CUDNN_TYPE_HANDLE, 1,
            &b->target->handle, "graph's handle");
    set(b, graph, VP_CUDNN_ATTR_OPERATIONGRAPH_OPS, VP_CUDNN_TYPE_BACKEND_DESCRIPTOR,
        b->n_operations, b->operations, "graph's operations");
    finalize(b, graph, "operation graph");
    return graph;
}

/* ---- engines ---- */

enum { MAX_CONFIGS = 32, MAX_KNOBS = 16 };

/* The value of its knob KERNEL_CFG; -1: it has none. */
static int64_t kernel_of(builder *b, vp_cudnn_descriptor config)
{
    vp_cudnn_descriptor choices[MAX_KNOBS];
    int64_t             n_choices = 0, n = 0, value;
    int                 knob;

    for (int i = 0; i < MAX_KNOBS; i++)
        choices[i] = create(b, VP_CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, "knob");
    if (b->st != VP_OK ||
        b->api->get(config, VP_CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, VP_CUDNN_TYPE_BACKEND_DESCRIPTOR,
                    MAX_KNOBS, &n_choices, choices))
        return -1;
    for (int64_t i = 0; i < n_choices && i < MAX_KNOBS; i++)
        if (!b->api->get(choices[i], VP_CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, VP_CUDNN_TYPE_KNOB_TYPE,
                         1, &n, &knob) &&
            !b->api->get(choices[i], VP_CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, VP_CUDNN_TYPE_INT64, 1,
                         &n, &value) &&
            knob == VP_CUDNN_KNOB_TYPE_KERNEL_CFG)
            return value;
    return -1;
}

/* What cuDNN says of a configuration; false: it does not answer. */
static bool describe(builder *b, vp_cudnn_descriptor config, vp_cudnn_plan *plan)
{
    vp_cudnn_descriptor engine = create(b, VP_CUDNN_BACKEND_ENGINE_DESCRIPTOR, "engine");
    int                 notes[VP_CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t             n = 0, n_notes = 0;

    if (b->st != VP_OK ||
        b->api->get(config, VP_CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, VP_CUDNN_TYPE_INT64, 1, &n,
                    &plan->workspace_bytes) ||
        b->api->get(config, VP_CUDNN_ATTR_ENGINECFG_ENGINE, VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                    &engine) ||
        b->api->get(engine, VP_CUDNN_ATTR_ENGINE_GLOBAL_INDEX, VP_CUDNN_TYPE_INT64, 1, &n,
                    &plan->engine) ||
        b->api->get(engine, VP_CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, VP_CUDNN_TYPE_NUMERICAL_NOTE,
                    VP_CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n_notes, notes))
        return false;
    plan->kernel        = kernel_of(b, config);
    plan->deterministic = true;
    for (int64_t i = 0; i < n_notes && i < VP_CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
        if (notes[i] == VP_CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            plan->deterministic = false;
    return true;
}

/* Engine 5 of sm_100 makes dQ in a fixed order where its STAGES are 2: what cudnn-frontend 1.17
 * and later choose for a deterministic backward. Heuristics do not propose it. NULL: not
 * supported for this shape. */
static vp_cudnn_descriptor fixed_order_config(builder *b, vp_cudnn_descriptor graph)
{
    static const struct {
        int     knob;
        int64_t value;
    } knobs[] = {{VP_CUDNN_KNOB_TYPE_KERNEL_CFG, 31}, {VP_CUDNN_KNOB_TYPE_STAGES, 2}};
    enum { N_KNOBS = sizeof knobs / sizeof knobs[0], ENGINE = 5 };
    vp_cudnn_descriptor engine = create(b, VP_CUDNN_BACKEND_ENGINE_DESCRIPTOR, "engine"), config,
                        choices[N_KNOBS];

    set_descriptor(b, engine, VP_CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph, "engine's graph");
    set_int(b, engine, VP_CUDNN_ATTR_ENGINE_GLOBAL_INDEX, ENGINE, "engine's index");
    if (b->target->properties)
        set_descriptor(b, engine, VP_CUDNN_ATTR_ENGINE_DEVICEPROP, b->target->properties,
                       "engine's device");
    if (b->st != VP_OK || b->api->finalize(engine))
        return NULL;
    for (int i = 0; i < N_KNOBS; i++) {
        choices[i] = create(b, VP_CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, "knob");
        set_enum(b, choices[i], VP_CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, VP_CUDNN_TYPE_KNOB_TYPE,
                 knobs[i].knob, "knob");
        set_int(b, choices[i], VP_CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, knobs[i].value,
                "knob's value");
        finalize(b, choices[i], "knob");
    }
    config = create(b, VP_CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "engine configuration");
    set_descriptor(b, config, VP_CUDNN_ATTR_ENGINECFG_ENGINE, engine, "configuration's engine");
    set(b, config, VP_CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, N_KNOBS,
        choices, "configuration's knobs");
    return b->st != VP_OK || b->api->finalize(config) ? NULL : config;
}

static int64_t proposed_configs(builder *b, vp_cudnn_descriptor graph,
                                vp_cudnn_descriptor configs[MAX_CONFIGS])
{
    vp_cudnn_descriptor heuristics =
        create(b, VP_CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristics");
    int64_t n = 0;

    set_descriptor(b, heuristics, VP_CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph,
                   "heuristics' graph");
    set_enum(b, heuristics, VP_CUDNN_ATTR_ENGINEHEUR_MODE, VP_CUDNN_TYPE_HEUR_MODE,
             VP_CUDNN_HEUR_MODE_A, "heuristics' mode");
    if (b->target->properties)
        set_descriptor(b, heuristics, VP_CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, b->target->properties,
                       "heuristics' device");
    finalize(b, heuristics, "heuristics");
    for (int i = 0; i < MAX_CONFIGS; i++)
        configs[i] = create(b, VP_CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "engine configuration");
    if (b->st == VP_OK)
        check(b,
              b->api->get(heuristics, VP_CUDNN_ATTR_ENGINEHEUR_RESULTS,
                          VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGS, &n, configs),
              "engine configurations");
    return b->st == VP_OK ? n : 0;
}

/* An execution plan on a device that is there; on one that is only described the configuration
 * is all there is to make. */
static bool build(builder *b, vp_cudnn_descriptor config, vp_cudnn_plan *plan)
{
    vp_cudnn_descriptor d;
    int64_t             n = 0;

    if (!b->target->handle)
        return true;
    d = create(b, VP_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "execution plan");
    set(b, d, VP_CUDNN_ATTR_EXECUTION_PLAN_HANDLE, VP_CUDNN_TYPE_HANDLE, 1, &b->target->handle,
        "plan's handle");
    set_descriptor(b, d, VP_CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config,
                   "plan's configuration");
    if (b->st != VP_OK || b->api->finalize(d) ||
        b->api->get(d, VP_CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, VP_CUDNN_TYPE_INT64, 1, &n,
                    &plan->workspace_bytes))
        return false;
    plan->descriptor = d;
    return true;
}

/* The first that is as wanted. why: of the last that was not. */
static bool choose(builder *b, const vp_cudnn_descriptor *configs, int64_t n,
                   int64_t max_workspace_bytes, char *why, size_t why_size)
{
    vp_cudnn_plan *plan = b->plan;
    char           said[400];

    if (n == 0)
        snprintf(why, why_size, "no engine: %s", vp_cudnn_last_error(b->api, said, sizeof said));
    for (int64_t i = 0; i < n && b->st == VP_OK; i++) {
        if (!describe(b, configs[i], plan) || !build(b, configs[i], plan))
            snprintf(why, why_size, "engine %lld: %s", (long long)plan->engine,
                     vp_cudnn_last_error(b->api, said, sizeof said));
        else if (!plan->deterministic)
            snprintf(why, why_size, "engine %lld does not repeat its bits",
                     (long long)plan->engine);
        else if (plan->workspace_bytes > max_workspace_bytes)
            snprintf(why, why_size,
                     "engine %lld wants a workspace of %lld bytes, and there are %lld",
                     (long long)plan->engine, (long long)plan->workspace_bytes,
                     (long long)max_workspace_bytes);
        else
            return true;
    }
    return false;
}

vp_status vp_cudnn_plan_new(const vp_cudnn_api *api, const vp_cudnn_target *target,
                            const vp_cudnn_shape *shape, int64_t max_workspace_bytes,
                            vp_cudnn_plan **out, vp_err *err)
{
    vp_cudnn_plan      *plan = calloc(1, sizeof *plan);
    builder             b    = {.api     = api,
                                .target  = target,
                                .shape   = shape,
                                .plan    = plan,
                                .err     = err,
                                .next_id = FIRST_VIRTUAL};
    vp_cudnn_descriptor graph, configs[MAX_CONFIGS];
    int64_t             n;
    char                why[600] = "";

    *out = NULL;
    if (!plan)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    plan->shape = *shape;
    graph       = graph_of(&b);
    if (shape->backward && target->compute_capability == 100) {
        configs[0] = fixed_order_config(&b, graph);
        n          = configs[0] != NULL;
    } else
        n = proposed_configs(&b, graph, configs);
    if (b.st == VP_OK && !choose(&b, configs, n, max_workspace_bytes, why, sizeof why) &&
        b.st == VP_OK)
        b.st = VP_FAIL(err, VP_ERR_INPUT, "cuDNN has no attention kernel for this shape: %s", why);
    if (b.st == VP_OK) {
        *out = plan;
        plan = NULL;
    }
    vp_cudnn_plan_free(api, plan);
    return b.st;
}

void vp_cudnn_plan_free(const vp_cudnn_api *api, vp_cudnn_plan *plan)
{
    if (!plan)
        return;
    for (owned *o = plan->owned, *next; o; o = next) {
        next = o->next;
        if (o->descriptor)
            api->destroy(o->descriptor);
        free(o);
    }
    free(plan);
}

/* ---- shapes ---- */

vp_cudnn_shape vp_cudnn_shape_of(vp_kernel kernel, const vp_attention_ints *n, int64_t n_chunks)
{
    int64_t batch = n->batch, heads = n->heads, kv_heads = n->kv_heads, d = n->head_dim,
            row             = (heads + 2 * kv_heads) * d;
    int64_t        by_heads = n_chunks > batch ? n_chunks / batch : 1; /* chunks of a sample */
    vp_cudnn_shape s        = {
               .backward = kernel == VP_K_ATTENTION_BWD,
               .batch    = by_heads > 1 ? 1 : batch / n_chunks,
               .seq      = n->seq,
               .heads    = heads / by_heads,
               .kv_heads = kv_heads / by_heads,
               .head_dim = d,
               .causal   = n->causal,
               .window   = n->window < n->seq ? n->window : 0,
               .y        = {0, heads * d, d},
    };

    assert(n_chunks > batch ? n_chunks % batch == 0 && kv_heads % by_heads == 0
                            : n_chunks > 0 && batch % n_chunks == 0);
    switch ((vp_qkv_layout)n->layout) {
    case VP_QKV_PACKED:
        s.q = (vp_cudnn_part){0, row, d};
        s.k = (vp_cudnn_part){heads * d, row, d};
        s.v = (vp_cudnn_part){(heads + kv_heads) * d, row, d};
        break;
    case VP_QKV_PER_HEAD:
        s.q = (vp_cudnn_part){0, row, 3 * d};
        s.k = (vp_cudnn_part){d, row, 3 * d};
        s.v = (vp_cudnn_part){2 * d, row, 3 * d};
        break;
    case VP_QKV_APART:
        s.q = (vp_cudnn_part){0, heads * d, d};
        s.k = s.v = (vp_cudnn_part){0, kv_heads * d, d};
        break;
    }
    return s;
}
