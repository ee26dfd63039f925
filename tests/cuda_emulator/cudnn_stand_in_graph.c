/* tests/cuda_emulator/cudnn_stand_in_graph.c: tensors, operations and graphs: what cuDNN's
 * documentation asks of them. */
#include "tests/cuda_emulator/cudnn_stand_in.h"

#include <assert.h>
#include <string.h>

void vp_dnn_read_tensor(const object *o, tensor *t)
{
    assert(o->kind == VP_CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    memset(t, 0, sizeof *t);
    t->id         = vp_dnn_int(o, VP_CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
    t->dtype      = (int)vp_dnn_int(o, VP_CUDNN_ATTR_TENSOR_DATA_TYPE, 0);
    t->is_virtual = vp_dnn_int(o, VP_CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0) != 0;
    t->by_value   = vp_dnn_int(o, VP_CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0) != 0;
    memcpy(t->dims, vp_dnn_find(o, VP_CUDNN_ATTR_TENSOR_DIMENSIONS)->bytes, sizeof t->dims);
    memcpy(t->strides, vp_dnn_find(o, VP_CUDNN_ATTR_TENSOR_STRIDES)->bytes, sizeof t->strides);
}

/* Flash attention loads queries, keys and values 16 bytes at a time: elements of a head lie side by
 * side, a multiple of 8 of them (cuDNN, Graph API, fused flash attention), and a row, a head and a
 * sample begin at multiples of 16 bytes. */
static int check_rows(const tensor *t, int64_t align)
{
    int inner = t->strides[3] == 1 ? 3 : 2;

    if (t->strides[inner] != 1 || t->dims[inner] % 8 != 0 || align % 16 != 0)
        return vp_dnn_refuse(
            "tensor %lld: %lld elements of a head at a stride of %lld, at multiples of %lld bytes",
            (long long)t->id, (long long)t->dims[inner], (long long)t->strides[inner],
            (long long)align);
    for (int d = 0; d < MAX_DIMS; d++)
        if (d != inner && t->dims[d] > 1 && t->strides[d] % 8 != 0)
            return vp_dnn_refuse("tensor %lld: dimension %d has a stride of %lld elements of bf16",
                                 (long long)t->id, d, (long long)t->strides[d]);
    return 0;
}

int vp_dnn_check_tensor(const object *o)
{
    int64_t align = vp_dnn_int(o, VP_CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);

    const attribute *dims    = vp_dnn_find(o, VP_CUDNN_ATTR_TENSOR_DIMENSIONS),
                    *strides = vp_dnn_find(o, VP_CUDNN_ATTR_TENSOR_STRIDES);
    tensor t;

    if (dims->n != MAX_DIMS || strides->n != MAX_DIMS)
        return vp_dnn_refuse("a tensor of %lld dimensions", (long long)dims->n);
    vp_dnn_read_tensor(o, &t);
    for (int d = 0; d < MAX_DIMS; d++)
        if (t.dims[d] < 1 || t.strides[d] < 1)
            return vp_dnn_refuse("tensor %lld: dimension %d is %lld, its stride %lld",
                                 (long long)t.id, d, (long long)t.dims[d], (long long)t.strides[d]);
    if (t.is_virtual && t.by_value)
        return vp_dnn_refuse("tensor %lld is virtual and a scalar", (long long)t.id);
    if (t.by_value && (t.dims[0] != 1 || t.dims[1] != 1 || t.dims[2] != 1 || t.dims[3] != 1))
        return vp_dnn_refuse("scalar %lld has more than one element", (long long)t.id);
    if (align < 1 || (align & (align - 1)))
        return vp_dnn_refuse("tensor %lld is at multiples of %lld bytes", (long long)t.id,
                             (long long)align);
    switch (t.dtype) {
    case VP_CUDNN_DATA_BFLOAT16:
        return t.is_virtual || t.by_value ? 0 : check_rows(&t, align);
    case VP_CUDNN_DATA_FLOAT:
    case VP_CUDNN_DATA_INT32:
    case VP_CUDNN_DATA_BOOLEAN:
        return 0;
    default:
        return vp_dnn_refuse("tensor %lld is of type %d", (long long)t.id, t.dtype);
    }
}

/* The tensors of an operation: y last. */
int vp_dnn_operands_of(const object *op, const object *out[4])
{
    static const struct {
        int kind, names[4];
    } lists[] = {
        {VP_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
         {VP_CUDNN_ATTR_OPERATION_POINTWISE_XDESC, VP_CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
          VP_CUDNN_ATTR_OPERATION_POINTWISE_TDESC, VP_CUDNN_ATTR_OPERATION_POINTWISE_YDESC}},
        {VP_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
         {VP_CUDNN_ATTR_OPERATION_MATMUL_ADESC, VP_CUDNN_ATTR_OPERATION_MATMUL_BDESC,
          VP_CUDNN_ATTR_OPERATION_MATMUL_CDESC}},
        {VP_CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
         {VP_CUDNN_ATTR_OPERATION_REDUCTION_XDESC, VP_CUDNN_ATTR_OPERATION_REDUCTION_YDESC}},
        {VP_CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
         {VP_CUDNN_ATTR_OPERATION_RESHAPE_XDESC, VP_CUDNN_ATTR_OPERATION_RESHAPE_YDESC}},
    };
    int n = 0;

    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++)
        for (int i = 0; lists[l].kind == op->kind && i < 4 && lists[l].names[i]; i++) {
            const object *t = vp_dnn_object(op, lists[l].names[i], 0);
            if (t)
                out[n++] = t;
        }
    return n;
}

static int n_inputs_of(int mode)
{
    switch (mode) {
    case VP_CUDNN_POINTWISE_ADD:
    case VP_CUDNN_POINTWISE_MUL:
    case VP_CUDNN_POINTWISE_DIV:
    case VP_CUDNN_POINTWISE_SUB:
    case VP_CUDNN_POINTWISE_CMP_GT:
    case VP_CUDNN_POINTWISE_CMP_GE:
        return 2;
    case VP_CUDNN_POINTWISE_EXP:
    case VP_CUDNN_POINTWISE_LOG:
    case VP_CUDNN_POINTWISE_IDENTITY:
    case VP_CUDNN_POINTWISE_GEN_INDEX:
        return 1;
    case VP_CUDNN_POINTWISE_BINARY_SELECT:
        return 3;
    default:
        return -1;
    }
}

/* Shapes of an operation whose descriptors are complete. */
int vp_dnn_check_operation(const object *op)
{
    const object *o[4];
    tensor        t[4], *y;
    int           n = vp_dnn_operands_of(op, o);

    for (int i = 0; i < n; i++) {
        if (!o[i]->finalized || o[i]->kind != VP_CUDNN_BACKEND_TENSOR_DESCRIPTOR)
            return vp_dnn_refuse("operand %d of an operation is not a finalised tensor", i);
        vp_dnn_read_tensor(o[i], &t[i]);
    }
    y = &t[n - 1];
    if (op->kind == VP_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
        const object *how  = vp_dnn_object(op, VP_CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 0);
        int           mode = (int)vp_dnn_int(how, VP_CUDNN_ATTR_POINTWISE_MODE, -1);

        if (!how->finalized || n_inputs_of(mode) != n - 1)
            return vp_dnn_refuse("pointwise mode %d with %d inputs", mode, n - 1);
        if (mode == VP_CUDNN_POINTWISE_GEN_INDEX && !vp_dnn_find(how, VP_CUDNN_ATTR_POINTWISE_AXIS))
            return vp_dnn_refuse("GEN_INDEX without an axis");
        for (int i = 0; i + 1 < n; i++)
            for (int d = 0; d < MAX_DIMS; d++)
                if (t[i].dims[d] != 1 && t[i].dims[d] != y->dims[d])
                    return vp_dnn_refuse("pointwise: dimension %d is %lld for %lld", d,
                                         (long long)t[i].dims[d], (long long)y->dims[d]);
    }
    if (op->kind == VP_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
        if (t[0].dims[2] != y->dims[2] || t[0].dims[3] != t[1].dims[2] ||
            t[1].dims[3] != y->dims[3])
            return vp_dnn_refuse("matrix product of (%lld, %lld) and (%lld, %lld)",
                                 (long long)t[0].dims[2], (long long)t[0].dims[3],
                                 (long long)t[1].dims[2], (long long)t[1].dims[3]);
        for (int i = 0; i < 2; i++)
            if (t[i].dims[0] != y->dims[0] || y->dims[1] % t[i].dims[1] != 0)
                return vp_dnn_refuse("matrix product of %lld heads into %lld",
                                     (long long)t[i].dims[1], (long long)y->dims[1]);
    }
    if (op->kind == VP_CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
        int how = (int)vp_dnn_int(vp_dnn_object(op, VP_CUDNN_ATTR_OPERATION_REDUCTION_DESC, 0),
                                  VP_CUDNN_ATTR_REDUCTION_OPERATOR, -1);

        if (how != VP_CUDNN_REDUCE_TENSOR_ADD && how != VP_CUDNN_REDUCE_TENSOR_MAX)
            return vp_dnn_refuse("reduction operator %d", how);
        for (int d = 0; d < MAX_DIMS; d++)
            if (t[0].dims[d] % y->dims[d] != 0)
                return vp_dnn_refuse("reduction of %lld to %lld", (long long)t[0].dims[d],
                                     (long long)y->dims[d]);
    }
    if (op->kind == VP_CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) {
        int64_t last[2] = {0, 0}, elements[2] = {1, 1};

        for (int i = 0; i < 2; i++)
            for (int d = 0; d < MAX_DIMS; d++) {
                last[i] += (t[i].dims[d] - 1) * t[i].strides[d];
                elements[i] *= t[i].dims[d];
            }
        if (last[0] != last[1] || elements[0] != elements[1])
            return vp_dnn_refuse("reshape onto other elements");
    }
    return 0;
}

/* Every tensor inside the kernel is written once, before it is read; one id is one tensor. */
int vp_dnn_check_graph(const object *graph)
{
    const attribute *ops = vp_dnn_find(graph, VP_CUDNN_ATTR_OPERATIONGRAPH_OPS);
    tensor           seen[MAX_TENSORS];
    bool             written[MAX_TENSORS] = {false};
    int              n_seen               = 0;

    for (int64_t i = 0; i < ops->n; i++) {
        const object *op = vp_dnn_object(graph, VP_CUDNN_ATTR_OPERATIONGRAPH_OPS, i), *o[4];
        int           n  = op && op->finalized ? vp_dnn_operands_of(op, o) : 0;

        if (n == 0)
            return vp_dnn_refuse("operation %lld of the graph is none or not finalised",
                                 (long long)i);
        for (int j = 0; j < n; j++) {
            bool   output = j == n - 1;
            tensor t;
            int    at = 0;

            vp_dnn_read_tensor(o[j], &t);
            while (at < n_seen && seen[at].id != t.id)
                at++;
            if (at == MAX_TENSORS)
                return vp_dnn_refuse("more than %d tensors", MAX_TENSORS);
            if (at == n_seen)
                seen[n_seen++] = t;
            else if (memcmp(&seen[at], &t, sizeof t) != 0)
                return vp_dnn_refuse("id %lld is two tensors", (long long)t.id);
            if (!output && t.is_virtual && !written[at])
                return vp_dnn_refuse("operation %lld reads tensor %lld before it is written",
                                     (long long)i, (long long)t.id);
            if (output && (written[at] || t.by_value))
                return vp_dnn_refuse("tensor %lld is written twice, or a scalar", (long long)t.id);
            written[at] = written[at] || output;
        }
    }
    return 0;
}
