/* tests/cuda_emulator/cudnn_stand_in_execution.c: an execution: plain loops in double over each
 * operation's elements. */
#include "tests/cuda_emulator/cudnn_stand_in.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double rounded(int dtype, double x)
{
    float    f = (float)x;
    uint32_t bits;

    if (dtype == VP_CUDNN_DATA_BOOLEAN)
        return x != 0.0;
    if (dtype == VP_CUDNN_DATA_INT32)
        return (double)(int32_t)x;
    if (dtype == VP_CUDNN_DATA_BFLOAT16 && !isnan(f)) {
        memcpy(&bits, &f, sizeof bits);
        bits = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
        memcpy(&f, &bits, sizeof f);
    }
    return f;
}

static double memory_load(const void *p, int dtype, int64_t i)
{
    uint32_t bits;
    float    f;

    switch (dtype) {
    case VP_CUDNN_DATA_INT32:
        return ((const int32_t *)p)[i];
    case VP_CUDNN_DATA_BFLOAT16:
        bits = (uint32_t)((const uint16_t *)p)[i] << 16;
        memcpy(&f, &bits, sizeof f);
        return f;
    default:
        return ((const float *)p)[i];
    }
}

static void memory_store(void *p, int dtype, int64_t i, double x)
{
    float    f = (float)rounded(dtype, x);
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    if (dtype == VP_CUDNN_DATA_BFLOAT16)
        ((uint16_t *)p)[i] = (uint16_t)(bits >> 16);
    else
        ((float *)p)[i] = f;
}

static double load(const place *p, int64_t at)
{
    return p->t.by_value ? p->value
           : p->given    ? memory_load(p->given, p->t.dtype, at)
                         : p->held[at];
}

static void store(place *p, int64_t at, double x)
{
    if (p->given)
        memory_store(p->given, p->t.dtype, at, x);
    else
        p->held[at] = rounded(p->t.dtype, x);
}

/* Where element i of y lies in a tensor whose dimensions are 1 or, where groups says so, divide
 * those of y. */
static int64_t at(const tensor *t, const int64_t i[MAX_DIMS], const tensor *y)
{
    int64_t where = 0;

    for (int d = 0; d < MAX_DIMS; d++)
        where += i[d] / (y->dims[d] / t->dims[d]) * t->strides[d];
    return where;
}

static bool next(int64_t i[MAX_DIMS], const int64_t dims[MAX_DIMS])
{
    for (int d = MAX_DIMS - 1; d >= 0; d--) {
        if (++i[d] < dims[d])
            return true;
        i[d] = 0;
    }
    return false;
}

static place *place_of(execution *e, const object *o)
{
    int64_t id = vp_dnn_int(o, VP_CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);

    for (int p = 0; p < e->n_places; p++)
        if (e->places[p].t.id == id)
            return &e->places[p];
    return NULL;
}

static void run_pointwise(const object *op, place *const p[4], int n)
{
    const object *how     = vp_dnn_object(op, VP_CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 0);
    int           mode    = (int)vp_dnn_int(how, VP_CUDNN_ATTR_POINTWISE_MODE, 0);
    int           compute = (int)vp_dnn_int(how, VP_CUDNN_ATTR_POINTWISE_MATH_PREC, 0);
    int64_t       axis = vp_dnn_int(how, VP_CUDNN_ATTR_POINTWISE_AXIS, 0), i[MAX_DIMS] = {0};
    place        *y = p[n - 1];

    do {
        double x     = load(p[0], at(&p[0]->t, i, &y->t)),
               other = n > 2 ? load(p[1], at(&p[1]->t, i, &y->t)) : 0.0, z = x;

        switch (mode) {
        case VP_CUDNN_POINTWISE_ADD:
            z = x + other;
            break;
        case VP_CUDNN_POINTWISE_MUL:
            z = x * other;
            break;
        case VP_CUDNN_POINTWISE_DIV:
            z = x / other;
            break;
        case VP_CUDNN_POINTWISE_SUB:
            z = x - other;
            break;
        case VP_CUDNN_POINTWISE_EXP:
            z = exp(x);
            break;
        case VP_CUDNN_POINTWISE_LOG:
            z = log(x);
            break;
        case VP_CUDNN_POINTWISE_CMP_GT:
            z = x > other;
            break;
        case VP_CUDNN_POINTWISE_CMP_GE:
            z = x >= other;
            break;
        case VP_CUDNN_POINTWISE_GEN_INDEX:
            z = (double)i[axis];
            break;
        case VP_CUDNN_POINTWISE_BINARY_SELECT:
            z = load(p[2], at(&p[2]->t, i, &y->t)) != 0.0 ? x : other;
            break;
        default:
            break;
        }
        store(y, at(&y->t, i, &y->t), compute == VP_CUDNN_DATA_INT32 ? rounded(compute, z) : z);
    } while (next(i, y->t.dims));
}

static void run_product(place *const p[4])
{
    const place *a = p[0], *b = p[1];
    place       *c           = p[2];
    int64_t      i[MAX_DIMS] = {0}, k_dim = a->t.dims[3];

    do {
        int64_t row = i[0] * a->t.strides[0] +
                      i[1] / (c->t.dims[1] / a->t.dims[1]) * a->t.strides[1] +
                      i[2] * a->t.strides[2];
        int64_t column = i[0] * b->t.strides[0] +
                         i[1] / (c->t.dims[1] / b->t.dims[1]) * b->t.strides[1] +
                         i[3] * b->t.strides[3];
        double sum = 0.0;

        for (int64_t k = 0; k < k_dim; k++)
            sum += load(a, row + k * a->t.strides[3]) * load(b, column + k * b->t.strides[2]);
        store(c, at(&c->t, i, &c->t), sum);
    } while (next(i, c->t.dims));
}

static void run_reduction(const object *op, place *const p[4])
{
    int          how = (int)vp_dnn_int(vp_dnn_object(op, VP_CUDNN_ATTR_OPERATION_REDUCTION_DESC, 0),
                                       VP_CUDNN_ATTR_REDUCTION_OPERATOR, 0);
    int64_t      i[MAX_DIMS] = {0}, groups[MAX_DIMS];
    const place *x           = p[0];
    place       *y           = p[1];

    for (int d = 0; d < MAX_DIMS; d++)
        groups[d] = x->t.dims[d] / y->t.dims[d];
    do {
        double  sum         = how == VP_CUDNN_REDUCE_TENSOR_MAX ? -INFINITY : 0.0;
        int64_t j[MAX_DIMS] = {0};

        do {
            int64_t where = 0;

            for (int d = 0; d < MAX_DIMS; d++)
                where += (i[d] * groups[d] + j[d]) * x->t.strides[d];
            sum = how == VP_CUDNN_REDUCE_TENSOR_MAX ? fmax(sum, load(x, where))
                                                    : sum + load(x, where);
        } while (next(j, groups));
        store(y, at(&y->t, i, &y->t), sum);
    } while (next(i, y->t.dims));
}

static void run_reshape(place *const p[4])
{
    int64_t i[MAX_DIMS] = {0};

    do {
        int64_t where = at(&p[1]->t, i, &p[1]->t);
        store(p[1], where, load(p[0], where));
    } while (next(i, p[1]->t.dims));
}

/* Virtual tensors begin as NaN, which shows where an element is read that was not written. */
static void hold(place *p)
{
    int64_t last = 0;

    for (int d = 0; d < MAX_DIMS; d++)
        last += (p->t.dims[d] - 1) * p->t.strides[d];
    p->held = malloc((size_t)(last + 1) * sizeof *p->held);
    if (!p->held)
        abort();
    for (int64_t k = 0; k <= last; k++)
        p->held[k] = NAN;
}

void vp_dnn_execute(void *data)
{
    execution *e     = data;
    int64_t    n_ops = vp_dnn_find(e->graph, VP_CUDNN_ATTR_OPERATIONGRAPH_OPS)->n;

    if (e->workspace)
        memset(e->workspace, 0xee, (size_t)e->workspace_bytes);
    for (int p = 0; p < e->n_places; p++)
        if (e->places[p].t.is_virtual)
            hold(&e->places[p]);
    for (int64_t i = 0; i < n_ops; i++) {
        const object *op   = vp_dnn_object(e->graph, VP_CUDNN_ATTR_OPERATIONGRAPH_OPS, i), *o[4];
        place        *p[4] = {NULL, NULL, NULL, NULL};
        int           n    = vp_dnn_operands_of(op, o);

        assert(n >= 2 && n <= 4);

        for (int j = 0; j < n; j++)
            p[j] = place_of(e, o[j]);
        switch (op->kind) {
        case VP_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
            run_pointwise(op, p, n);
            break;
        case VP_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
            run_product(p);
            break;
        case VP_CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
            run_reduction(op, p);
            break;
        case VP_CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
            run_reshape(p);
            break;
        default:
            break;
        }
    }
    for (int p = 0; p < e->n_places; p++) {
        free(e->places[p].held);
        e->places[p].held = NULL;
    }
}

/* The graph's tensors, with the memory that the pack gives them and the values of scalars. */
int vp_dnn_place_tensors(execution *e, const object *pack)
{
    const attribute *ids      = vp_dnn_find(pack, VP_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
                    *pointers = vp_dnn_find(pack, VP_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    int64_t n_ops             = vp_dnn_find(e->graph, VP_CUDNN_ATTR_OPERATIONGRAPH_OPS)->n;

    if (ids->n != pointers->n)
        return vp_dnn_refuse("%lld ids, %lld pointers", (long long)ids->n, (long long)pointers->n);
    for (int64_t i = 0; i < n_ops; i++) {
        const object *o[4];
        int n = vp_dnn_operands_of(vp_dnn_object(e->graph, VP_CUDNN_ATTR_OPERATIONGRAPH_OPS, i), o);

        for (int j = 0; j < n; j++) {
            place *p = place_of(e, o[j]);

            if (p)
                continue;
            assert(e->n_places < MAX_TENSORS); /* vp_dnn_check_graph() counted them */
            p = &e->places[e->n_places++];
            vp_dnn_read_tensor(o[j], &p->t);
            for (int64_t k = 0; k < ids->n; k++)
                if (memcmp(ids->bytes + k * 8, &p->t.id, sizeof p->t.id) == 0)
                    memcpy(&p->given, pointers->bytes + k * (int64_t)sizeof(void *),
                           sizeof p->given);
            if (!p->t.is_virtual && !p->given)
                return vp_dnn_refuse("tensor %lld has no memory", (long long)p->t.id);
            if (p->t.is_virtual && p->given)
                return vp_dnn_refuse("tensor %lld is virtual and has memory", (long long)p->t.id);
            if (p->given && !p->t.by_value &&
                (uintptr_t)p->given %
                        (uintptr_t)vp_dnn_int(o[j], VP_CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16) !=
                    0)
                return vp_dnn_refuse("tensor %lld is not aligned as promised", (long long)p->t.id);
            if (p->t.by_value)
                p->value = memory_load(p->given, p->t.dtype, 0);
        }
    }
    return 0;
}
