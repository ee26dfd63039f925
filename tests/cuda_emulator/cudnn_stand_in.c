/* tests/cuda_emulator/cudnn_stand_in.c: cuDNN's backend API for operation graphs, interpreted on
 * host memory.
 *
 * Descriptors are recorded and checked attribute by attribute: unknown names, wrong types or
 * counts, use before finalisation and shapes that do not fit are refused, as is whatever the
 * attention graphs do not use. An execution walks the operations in order with plain loops in
 * double; each tensor, those inside the kernel too, is stored in its declared type, so that a
 * matrix declared bf16 is rounded as bf16. This is what the documentation says the operations mean,
 * by dimensions and strides, and shares no code with kernels/cuda.
 *
 * Heuristics propose two engines: one that notes NONDETERMINISTIC and needs no workspace, one that
 * notes nothing and wants the first factor of a backward graph's last product as bf16, and 128
 * bytes. Engines named by their index are taken with any knobs and want no workspace. What an
 * execution is given as workspace is overwritten.
 *
 * Built into the emulated plugin, where executions go through cudaLaunchHostFunc() and so into
 * graphs that are being recorded; as a library by itself it executes at once. */
#include "kernels/cuda/cudnn_api.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define E __attribute__((visibility("default")))

enum { MAX_DIMS = 4, MAX_OPS = 64, MAX_TENSORS = 128, N_CONFIGS = 2, NEED = 1 };
/* What cudaMalloc() gives; NVIDIA's documents name no smaller one. */
enum { WORKSPACE_ALIGN = 256 };

/* ---- descriptors ---- */

typedef struct attribute {
    struct attribute *next;
    int               name, type;
    int64_t           n;
    unsigned char    *bytes;
} attribute;

typedef struct object {
    int            kind;
    bool           finalized;
    attribute     *attributes;
    struct object *owned; /* a proposed configuration's engine */
} object;

typedef struct context {
    void *stream;
} context;

static char last_error[512];

static int refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int refuse(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    return VP_CUDNN_STATUS_BAD_PARAM;
}

static size_t type_bytes(int type)
{
    switch (type) {
    case VP_CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case VP_CUDNN_TYPE_CHAR:
        return 1;
    case VP_CUDNN_TYPE_INT64:
        return sizeof(int64_t);
    case VP_CUDNN_TYPE_HANDLE:
    case VP_CUDNN_TYPE_VOID_PTR:
    case VP_CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return sizeof(void *);
    default:
        return sizeof(int);
    }
}

/* What each descriptor takes: attribute, type, how many at most, and whether it must be given. */
static const struct rule {
    int  kind, name, type, most;
    bool needed;
} rules[] = {
    {VP_CUDNN_BACKEND_TENSOR_DESCRIPTOR, VP_CUDNN_ATTR_TENSOR_DATA_TYPE, VP_CUDNN_TYPE_DATA_TYPE, 1,
     NEED},
    {VP_CUDNN_BACKEND_TENSOR_DESCRIPTOR, VP_CUDNN_ATTR_TENSOR_DIMENSIONS, VP_CUDNN_TYPE_INT64,
     MAX_DIMS, NEED},
    {VP_CUDNN_BACKEND_TENSOR_DESCRIPTOR, VP_CUDNN_ATTR_TENSOR_STRIDES, VP_CUDNN_TYPE_INT64,
     MAX_DIMS, NEED},
    {VP_CUDNN_BACKEND_TENSOR_DESCRIPTOR, VP_CUDNN_ATTR_TENSOR_UNIQUE_ID, VP_CUDNN_TYPE_INT64, 1,
     NEED},
    {VP_CUDNN_BACKEND_TENSOR_DESCRIPTOR, VP_CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, VP_CUDNN_TYPE_INT64,
     1, NEED},
    {VP_CUDNN_BACKEND_TENSOR_DESCRIPTOR, VP_CUDNN_ATTR_TENSOR_IS_VIRTUAL, VP_CUDNN_TYPE_BOOLEAN, 1,
     0},
    {VP_CUDNN_BACKEND_TENSOR_DESCRIPTOR, VP_CUDNN_ATTR_TENSOR_IS_BY_VALUE, VP_CUDNN_TYPE_BOOLEAN, 1,
     0},
    {VP_CUDNN_BACKEND_POINTWISE_DESCRIPTOR, VP_CUDNN_ATTR_POINTWISE_MODE,
     VP_CUDNN_TYPE_POINTWISE_MODE, 1, NEED},
    {VP_CUDNN_BACKEND_POINTWISE_DESCRIPTOR, VP_CUDNN_ATTR_POINTWISE_MATH_PREC,
     VP_CUDNN_TYPE_DATA_TYPE, 1, NEED},
    {VP_CUDNN_BACKEND_POINTWISE_DESCRIPTOR, VP_CUDNN_ATTR_POINTWISE_AXIS, VP_CUDNN_TYPE_INT64, 1,
     0},
    {VP_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
     VP_CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, NEED},
    {VP_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, VP_CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
     VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, NEED},
    {VP_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, VP_CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
     VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 0},
    {VP_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, VP_CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
     VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 0},
    {VP_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, VP_CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
     VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, NEED},
    {VP_CUDNN_BACKEND_MATMUL_DESCRIPTOR, VP_CUDNN_ATTR_MATMUL_COMP_TYPE, VP_CUDNN_TYPE_DATA_TYPE, 1,
     NEED},
    {VP_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, VP_CUDNN_ATTR_OPERATION_MATMUL_DESC,
     VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, NEED},
    {VP_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, VP_CUDNN_ATTR_OPERATION_MATMUL_ADESC,
     VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, NEED},
    {VP_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, VP_CUDNN_ATTR_OPERATION_MATMUL_BDESC,
     VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, NEED},
    {VP_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, VP_CUDNN_ATTR_OPERATION_MATMUL_CDESC,
     VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, NEED},
    {VP_CUDNN_BACKEND_REDUCTION_DESCRIPTOR, VP_CUDNN_ATTR_REDUCTION_OPERATOR,
     VP_CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, NEED},
    {VP_CUDNN_BACKEND_REDUCTION_DESCRIPTOR, VP_CUDNN_ATTR_REDUCTION_COMP_TYPE,
     VP_CUDNN_TYPE_DATA_TYPE, 1, NEED},
    {VP_CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, VP_CUDNN_ATTR_OPERATION_REDUCTION_DESC,
     VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, NEED},
    {VP_CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, VP_CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
     VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, NEED},
    {VP_CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, VP_CUDNN_ATTR_OPERATION_REDUCTION_YDESC,
     VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, NEED},
    {VP_CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, VP_CUDNN_ATTR_OPERATION_RESHAPE_XDESC,
     VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, NEED},
    {VP_CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, VP_CUDNN_ATTR_OPERATION_RESHAPE_YDESC,
     VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, NEED},
    {VP_CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, VP_CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
     VP_CUDNN_TYPE_HANDLE, 1, 0},
    {VP_CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, VP_CUDNN_ATTR_OPERATIONGRAPH_OPS,
     VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_OPS, NEED},
    {VP_CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, VP_CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
     VP_CUDNN_TYPE_CHAR, 4096, NEED},
    {VP_CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, VP_CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
     VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, NEED},
    {VP_CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, VP_CUDNN_ATTR_ENGINEHEUR_MODE, VP_CUDNN_TYPE_HEUR_MODE,
     1, NEED},
    {VP_CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, VP_CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
     VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 0},
    {VP_CUDNN_BACKEND_ENGINE_DESCRIPTOR, VP_CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
     VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, NEED},
    {VP_CUDNN_BACKEND_ENGINE_DESCRIPTOR, VP_CUDNN_ATTR_ENGINE_GLOBAL_INDEX, VP_CUDNN_TYPE_INT64, 1,
     NEED},
    {VP_CUDNN_BACKEND_ENGINE_DESCRIPTOR, VP_CUDNN_ATTR_ENGINE_DEVICEPROP,
     VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 0},
    {VP_CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, VP_CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
     VP_CUDNN_TYPE_KNOB_TYPE, 1, NEED},
    {VP_CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, VP_CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
     VP_CUDNN_TYPE_INT64, 1, NEED},
    {VP_CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, VP_CUDNN_ATTR_ENGINECFG_ENGINE,
     VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, NEED},
    {VP_CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, VP_CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
     VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 16, 0},
    {VP_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, VP_CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
     VP_CUDNN_TYPE_HANDLE, 1, 0},
    {VP_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, VP_CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
     VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, NEED},
    {VP_CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, VP_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
     VP_CUDNN_TYPE_INT64, MAX_TENSORS, NEED},
    {VP_CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, VP_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
     VP_CUDNN_TYPE_VOID_PTR, MAX_TENSORS, NEED},
    {VP_CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, VP_CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
     VP_CUDNN_TYPE_VOID_PTR, 1, 0},
};

enum { N_RULES = sizeof rules / sizeof rules[0] };

static const struct rule *rule_of(int kind, int name)
{
    for (int i = 0; i < N_RULES; i++)
        if (rules[i].kind == kind && rules[i].name == name)
            return &rules[i];
    return NULL;
}

static attribute *find(const object *o, int name)
{
    for (attribute *a = o->attributes; a; a = a->next)
        if (a->name == name)
            return a;
    return NULL;
}

static int64_t get_int(const object *o, int name, int64_t fallback)
{
    const attribute *a = find(o, name);
    int64_t          wide;
    int              narrow;

    if (!a)
        return fallback;
    if (type_bytes(a->type) == sizeof(bool))
        return a->bytes[0];
    if (type_bytes(a->type) == sizeof(int)) {
        memcpy(&narrow, a->bytes, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, a->bytes, sizeof wide);
    return wide;
}

static object *get_object(const object *o, int name, int64_t i)
{
    const attribute *a = find(o, name);
    object          *p = NULL;

    if (a && i < a->n)
        memcpy(&p, a->bytes + (size_t)i * sizeof p, sizeof p);
    return p;
}

static void free_attributes(object *o)
{
    while (o->attributes) {
        attribute *a  = o->attributes;
        o->attributes = a->next;
        free(a->bytes);
        free(a);
    }
}

/* Values are copied; an attribute given twice is the second. */
static int put(object *o, int name, int type, int64_t n, const void *values)
{
    attribute *a     = find(o, name);
    void      *bytes = malloc((size_t)n * type_bytes(type));

    if (!bytes)
        return refuse("out of memory");
    memcpy(bytes, values, (size_t)n * type_bytes(type));
    if (!a) {
        a = calloc(1, sizeof *a);
        if (!a) {
            free(bytes);
            return refuse("out of memory");
        }
        a->next       = o->attributes;
        o->attributes = a;
    }
    free(a->bytes);
    a->name = name, a->type = type, a->n = n, a->bytes = bytes;
    return 0;
}

/* ---- tensors and graphs ---- */

typedef struct tensor {
    int64_t id, dims[MAX_DIMS], strides[MAX_DIMS];
    int     dtype;
    bool    is_virtual, by_value;
} tensor;

static void read_tensor(const object *o, tensor *t)
{
    memset(t, 0, sizeof *t);
    t->id         = get_int(o, VP_CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
    t->dtype      = (int)get_int(o, VP_CUDNN_ATTR_TENSOR_DATA_TYPE, 0);
    t->is_virtual = get_int(o, VP_CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0) != 0;
    t->by_value   = get_int(o, VP_CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0) != 0;
    memcpy(t->dims, find(o, VP_CUDNN_ATTR_TENSOR_DIMENSIONS)->bytes, sizeof t->dims);
    memcpy(t->strides, find(o, VP_CUDNN_ATTR_TENSOR_STRIDES)->bytes, sizeof t->strides);
}

/* Flash attention loads queries, keys and values 16 bytes at a time: elements of a head lie side by
 * side, a multiple of 8 of them (cuDNN, Graph API, fused flash attention), and a row, a head and a
 * sample begin at multiples of 16 bytes. */
static int check_rows(const tensor *t, int64_t align)
{
    int inner = t->strides[3] == 1 ? 3 : 2;

    if (t->strides[inner] != 1 || t->dims[inner] % 8 != 0 || align % 16 != 0)
        return refuse(
            "tensor %lld: %lld elements of a head at a stride of %lld, at multiples of %lld bytes",
            (long long)t->id, (long long)t->dims[inner], (long long)t->strides[inner],
            (long long)align);
    for (int d = 0; d < MAX_DIMS; d++)
        if (d != inner && t->dims[d] > 1 && t->strides[d] % 8 != 0)
            return refuse("tensor %lld: dimension %d has a stride of %lld elements of bf16",
                          (long long)t->id, d, (long long)t->strides[d]);
    return 0;
}

static int check_tensor(const object *o)
{
    int64_t align = get_int(o, VP_CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);

    const attribute *dims    = find(o, VP_CUDNN_ATTR_TENSOR_DIMENSIONS),
                    *strides = find(o, VP_CUDNN_ATTR_TENSOR_STRIDES);
    tensor t;

    if (dims->n != MAX_DIMS || strides->n != MAX_DIMS)
        return refuse("a tensor of %lld dimensions", (long long)dims->n);
    read_tensor(o, &t);
    for (int d = 0; d < MAX_DIMS; d++)
        if (t.dims[d] < 1 || t.strides[d] < 1)
            return refuse("tensor %lld: dimension %d is %lld, its stride %lld", (long long)t.id, d,
                          (long long)t.dims[d], (long long)t.strides[d]);
    if (t.is_virtual && t.by_value)
        return refuse("tensor %lld is virtual and a scalar", (long long)t.id);
    if (t.by_value && (t.dims[0] != 1 || t.dims[1] != 1 || t.dims[2] != 1 || t.dims[3] != 1))
        return refuse("scalar %lld has more than one element", (long long)t.id);
    if (align < 1 || (align & (align - 1)))
        return refuse("tensor %lld is at multiples of %lld bytes", (long long)t.id,
                      (long long)align);
    switch (t.dtype) {
    case VP_CUDNN_DATA_BFLOAT16:
        return t.is_virtual || t.by_value ? 0 : check_rows(&t, align);
    case VP_CUDNN_DATA_FLOAT:
    case VP_CUDNN_DATA_INT32:
    case VP_CUDNN_DATA_BOOLEAN:
        return 0;
    default:
        return refuse("tensor %lld is of type %d", (long long)t.id, t.dtype);
    }
}

/* The tensors of an operation: y last. */
static int operands_of(const object *op, const object *out[4])
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
            const object *t = get_object(op, lists[l].names[i], 0);
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
static int check_operation(const object *op)
{
    const object *o[4];
    tensor        t[4], *y;
    int           n = operands_of(op, o);

    for (int i = 0; i < n; i++) {
        if (!o[i]->finalized || o[i]->kind != VP_CUDNN_BACKEND_TENSOR_DESCRIPTOR)
            return refuse("operand %d of an operation is not a finalised tensor", i);
        read_tensor(o[i], &t[i]);
    }
    y = &t[n - 1];
    if (op->kind == VP_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
        const object *how  = get_object(op, VP_CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 0);
        int           mode = (int)get_int(how, VP_CUDNN_ATTR_POINTWISE_MODE, -1);

        if (!how->finalized || n_inputs_of(mode) != n - 1)
            return refuse("pointwise mode %d with %d inputs", mode, n - 1);
        if (mode == VP_CUDNN_POINTWISE_GEN_INDEX && !find(how, VP_CUDNN_ATTR_POINTWISE_AXIS))
            return refuse("GEN_INDEX without an axis");
        for (int i = 0; i + 1 < n; i++)
            for (int d = 0; d < MAX_DIMS; d++)
                if (t[i].dims[d] != 1 && t[i].dims[d] != y->dims[d])
                    return refuse("pointwise: dimension %d is %lld for %lld", d,
                                  (long long)t[i].dims[d], (long long)y->dims[d]);
    }
    if (op->kind == VP_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
        if (t[0].dims[2] != y->dims[2] || t[0].dims[3] != t[1].dims[2] ||
            t[1].dims[3] != y->dims[3])
            return refuse("matrix product of (%lld, %lld) and (%lld, %lld)",
                          (long long)t[0].dims[2], (long long)t[0].dims[3], (long long)t[1].dims[2],
                          (long long)t[1].dims[3]);
        for (int i = 0; i < 2; i++)
            if (t[i].dims[0] != y->dims[0] || y->dims[1] % t[i].dims[1] != 0)
                return refuse("matrix product of %lld heads into %lld", (long long)t[i].dims[1],
                              (long long)y->dims[1]);
    }
    if (op->kind == VP_CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
        int how = (int)get_int(get_object(op, VP_CUDNN_ATTR_OPERATION_REDUCTION_DESC, 0),
                               VP_CUDNN_ATTR_REDUCTION_OPERATOR, -1);

        if (how != VP_CUDNN_REDUCE_TENSOR_ADD && how != VP_CUDNN_REDUCE_TENSOR_MAX)
            return refuse("reduction operator %d", how);
        for (int d = 0; d < MAX_DIMS; d++)
            if (t[0].dims[d] % y->dims[d] != 0)
                return refuse("reduction of %lld to %lld", (long long)t[0].dims[d],
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
            return refuse("reshape onto other elements");
    }
    return 0;
}

/* Every tensor inside the kernel is written once, before it is read; one id is one tensor. */
static int check_graph(const object *graph)
{
    const attribute *ops = find(graph, VP_CUDNN_ATTR_OPERATIONGRAPH_OPS);
    tensor           seen[MAX_TENSORS];
    bool             written[MAX_TENSORS] = {false};
    int              n_seen               = 0;

    for (int64_t i = 0; i < ops->n; i++) {
        const object *op = get_object(graph, VP_CUDNN_ATTR_OPERATIONGRAPH_OPS, i), *o[4];
        int           n  = op && op->finalized ? operands_of(op, o) : 0;

        if (n == 0)
            return refuse("operation %lld of the graph is none or not finalised", (long long)i);
        for (int j = 0; j < n; j++) {
            bool   output = j == n - 1;
            tensor t;
            int    at = 0;

            read_tensor(o[j], &t);
            while (at < n_seen && seen[at].id != t.id)
                at++;
            if (at == MAX_TENSORS)
                return refuse("more than %d tensors", MAX_TENSORS);
            if (at == n_seen)
                seen[n_seen++] = t;
            else if (memcmp(&seen[at], &t, sizeof t) != 0)
                return refuse("id %lld is two tensors", (long long)t.id);
            if (!output && t.is_virtual && !written[at])
                return refuse("operation %lld reads tensor %lld before it is written", (long long)i,
                              (long long)t.id);
            if (output && (written[at] || t.by_value))
                return refuse("tensor %lld is written twice, or a scalar", (long long)t.id);
            written[at] = written[at] || output;
        }
    }
    return 0;
}

static int64_t workspace_of(const object *engine)
{
    const object *graph = get_object(engine, VP_CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 0), *o[4],
                 *last  = NULL;
    int64_t n = find(graph, VP_CUDNN_ATTR_OPERATIONGRAPH_OPS)->n, n_products = 0;
    tensor  t;

    for (int64_t i = 0; i < n; i++) {
        const object *op = get_object(graph, VP_CUDNN_ATTR_OPERATIONGRAPH_OPS, i);
        if (op->kind == VP_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
            last = op, n_products++;
    }
    if (n_products < 3 || get_int(engine, VP_CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0) != 1)
        return 0;
    operands_of(last, o);
    read_tensor(o[0], &t);
    return 2 * t.dims[0] * t.dims[1] * t.dims[2] * t.dims[3] + 128;
}

/* ---- execution ---- */

typedef struct place {
    tensor  t;
    void   *given; /* the caller's memory, or NULL */
    double *held;  /* of a virtual tensor          */
    double  value; /* of a scalar                  */
} place;

typedef struct execution {
    const object *graph;
    void         *workspace;
    int64_t       workspace_bytes;
    int           n_places;
    place         places[];
} execution;

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
    int64_t id = get_int(o, VP_CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);

    for (int p = 0; p < e->n_places; p++)
        if (e->places[p].t.id == id)
            return &e->places[p];
    return NULL;
}

static void run_pointwise(const object *op, place *const p[4], int n)
{
    const object *how     = get_object(op, VP_CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 0);
    int           mode    = (int)get_int(how, VP_CUDNN_ATTR_POINTWISE_MODE, 0);
    int           compute = (int)get_int(how, VP_CUDNN_ATTR_POINTWISE_MATH_PREC, 0);
    int64_t       axis = get_int(how, VP_CUDNN_ATTR_POINTWISE_AXIS, 0), i[MAX_DIMS] = {0};
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
    int          how = (int)get_int(get_object(op, VP_CUDNN_ATTR_OPERATION_REDUCTION_DESC, 0),
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

static void execute(void *data)
{
    execution *e     = data;
    int64_t    n_ops = find(e->graph, VP_CUDNN_ATTR_OPERATIONGRAPH_OPS)->n;

    if (e->workspace)
        memset(e->workspace, 0xee, (size_t)e->workspace_bytes);
    for (int p = 0; p < e->n_places; p++)
        if (e->places[p].t.is_virtual)
            hold(&e->places[p]);
    for (int64_t i = 0; i < n_ops; i++) {
        const object *op   = get_object(e->graph, VP_CUDNN_ATTR_OPERATIONGRAPH_OPS, i), *o[4];
        place        *p[4] = {NULL, NULL, NULL, NULL};
        int           n    = operands_of(op, o);

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
static int place_tensors(execution *e, const object *pack)
{
    const attribute *ids      = find(pack, VP_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
                    *pointers = find(pack, VP_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    int64_t n_ops             = find(e->graph, VP_CUDNN_ATTR_OPERATIONGRAPH_OPS)->n;

    if (ids->n != pointers->n)
        return refuse("%lld ids, %lld pointers", (long long)ids->n, (long long)pointers->n);
    for (int64_t i = 0; i < n_ops; i++) {
        const object *o[4];
        int           n = operands_of(get_object(e->graph, VP_CUDNN_ATTR_OPERATIONGRAPH_OPS, i), o);

        for (int j = 0; j < n; j++) {
            place *p = place_of(e, o[j]);

            if (p)
                continue;
            p = &e->places[e->n_places++];
            read_tensor(o[j], &p->t);
            for (int64_t k = 0; k < ids->n; k++)
                if (memcmp(ids->bytes + k * 8, &p->t.id, sizeof p->t.id) == 0)
                    memcpy(&p->given, pointers->bytes + k * (int64_t)sizeof(void *),
                           sizeof p->given);
            if (!p->t.is_virtual && !p->given)
                return refuse("tensor %lld has no memory", (long long)p->t.id);
            if (p->t.is_virtual && p->given)
                return refuse("tensor %lld is virtual and has memory", (long long)p->t.id);
            if (p->given && !p->t.by_value &&
                (uintptr_t)p->given %
                        (uintptr_t)get_int(o[j], VP_CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16) !=
                    0)
                return refuse("tensor %lld is not aligned as promised", (long long)p->t.id);
            if (p->t.by_value)
                p->value = memory_load(p->given, p->t.dtype, 0);
        }
    }
    return 0;
}

/* Of the emulated CUDA, where this is part of it. */
extern int cudaLaunchHostFunc(void *stream, void (*f)(void *), void *data) __attribute__((weak));

/* ---- the API ---- */

E size_t      cudnnGetVersion(void);
E const char *cudnnGetErrorString(int status);
E void        cudnnGetLastErrorString(char *text, size_t size);
E int         cudnnCreate(context **handle);
E int         cudnnDestroy(context *handle);
E int         cudnnSetStream(context *handle, void *stream);
E int         cudnnBackendCreateDescriptor(int kind, object **out);
E int         cudnnBackendDestroyDescriptor(object *o);
E int         cudnnBackendFinalize(object *o);
E int cudnnBackendSetAttribute(object *o, int name, int type, int64_t n, const void *values);
E int cudnnBackendGetAttribute(object *o, int name, int type, int64_t n_asked, int64_t *n,
                               void *values);
E int cudnnBackendExecute(context *handle, object *plan, object *pack);

size_t cudnnGetVersion(void)
{
    return VP_CUDNN_OLDEST;
}

const char *cudnnGetErrorString(int status)
{
    return status == VP_CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_BAD_PARAM";
}

void cudnnGetLastErrorString(char *text, size_t size)
{
    snprintf(text, size, "%s", last_error);
}

int cudnnCreate(context **handle)
{
    *handle = calloc(1, sizeof **handle);
    return *handle ? 0 : refuse("out of memory");
}

int cudnnDestroy(context *handle)
{
    free(handle);
    return 0;
}

int cudnnSetStream(context *handle, void *stream)
{
    handle->stream = stream;
    return 0;
}

int cudnnBackendCreateDescriptor(int kind, object **out)
{
    for (int i = 0; i < N_RULES; i++)
        if (rules[i].kind == kind) {
            *out = calloc(1, sizeof **out);
            if (!*out)
                return refuse("out of memory");
            (*out)->kind = kind;
            return 0;
        }
    return refuse("descriptors of kind %d are not known here", kind);
}

int cudnnBackendDestroyDescriptor(object *o)
{
    if (o) {
        cudnnBackendDestroyDescriptor(o->owned);
        free_attributes(o);
    }
    free(o);
    return 0;
}

int cudnnBackendSetAttribute(object *o, int name, int type, int64_t n, const void *values)
{
    const struct rule *r = rule_of(o->kind, name);

    if (o->finalized)
        return refuse("attribute %d is set on a finalised descriptor", name);
    if (!r)
        return refuse("descriptor %d has no attribute %d", o->kind, name);
    if (r->type != type || n < 1 || n > r->most || !values)
        return refuse("attribute %d is given as %lld values of type %d", name, (long long)n, type);
    return put(o, name, type, n, values);
}

int cudnnBackendFinalize(object *o)
{
    int status = 0;

    if (o->finalized)
        return refuse("descriptor %d is finalised twice", o->kind);
    for (int i = 0; i < N_RULES && status == 0; i++)
        if (rules[i].kind == o->kind && rules[i].needed && !find(o, rules[i].name))
            status = refuse("descriptor %d lacks attribute %d", o->kind, rules[i].name);
    for (const attribute *a = o->attributes; a && status == 0; a = a->next)
        for (int64_t i = 0; a->type == VP_CUDNN_TYPE_BACKEND_DESCRIPTOR && i < a->n && status == 0;
             i++)
            if (!get_object(o, a->name, i) || !get_object(o, a->name, i)->finalized)
                status = refuse("attribute %d of descriptor %d is not finalised", a->name, o->kind);
    if (status)
        return status;
    switch (o->kind) {
    case VP_CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        status = check_tensor(o);
        break;
    case VP_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case VP_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case VP_CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    case VP_CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        status = check_operation(o);
        break;
    case VP_CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        status = check_graph(o);
        break;
    default:
        break;
    }
    o->finalized = status == 0;
    return status;
}

static int answer(int type, int asked_type, int64_t n_asked, int64_t *n, void *values,
                  const void *answer_is)
{
    if (type != asked_type || n_asked != 1 || !values)
        return refuse("one value of type %d was asked for as %lld of type %d", type,
                      (long long)n_asked, asked_type);
    memcpy(values, answer_is, type_bytes(type));
    if (n)
        *n = 1;
    return 0;
}

/* The two configurations into descriptors that the caller has made. */
static int propose(const object *heuristics, int64_t n_asked, int64_t *n, object *const *configs)
{
    object *graph = get_object(heuristics, VP_CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 0);

    *n = n_asked < N_CONFIGS && configs ? n_asked : N_CONFIGS;
    for (int64_t i = 0; configs && i < *n; i++) {
        object *engine;
        int     status;

        if (configs[i]->kind != VP_CUDNN_BACKEND_ENGINECFG_DESCRIPTOR || configs[i]->finalized)
            return refuse("configurations go into fresh descriptors");
        status = cudnnBackendCreateDescriptor(VP_CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
        if (status)
            return status;
        configs[i]->owned = engine;
        status = put(engine, VP_CUDNN_ATTR_ENGINE_OPERATION_GRAPH, VP_CUDNN_TYPE_BACKEND_DESCRIPTOR,
                     1, &graph);
        if (status == 0)
            status = put(engine, VP_CUDNN_ATTR_ENGINE_GLOBAL_INDEX, VP_CUDNN_TYPE_INT64, 1, &i);
        if (status == 0)
            status = put(configs[i], VP_CUDNN_ATTR_ENGINECFG_ENGINE,
                         VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
        if (status)
            return status;
        engine->finalized = configs[i]->finalized = true;
    }
    return 0;
}

int cudnnBackendGetAttribute(object *o, int name, int type, int64_t n_asked, int64_t *n,
                             void *values)
{
    object *config, *engine, *into;
    int64_t number;
    int     note = VP_CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;

    if (!o->finalized)
        return refuse("attribute %d is asked of a descriptor that is not finalised", name);
    switch (name) {
    case VP_CUDNN_ATTR_ENGINEHEUR_RESULTS:
        return type == VP_CUDNN_TYPE_BACKEND_DESCRIPTOR ? propose(o, n_asked, n, values)
                                                        : refuse("configurations are descriptors");
    case VP_CUDNN_ATTR_ENGINECFG_ENGINE:
        if (type != VP_CUDNN_TYPE_BACKEND_DESCRIPTOR || n_asked != 1)
            return refuse("a configuration has one engine");
        memcpy(&into, values, sizeof into);
        engine = get_object(o, name, 0);
        free_attributes(into);
        into->finalized = true;
        for (const attribute *a = engine->attributes; a; a = a->next)
            if (put(into, a->name, a->type, a->n, a->bytes))
                return VP_CUDNN_STATUS_BAD_PARAM;
        if (n)
            *n = 1;
        return 0;
    case VP_CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
        number = workspace_of(get_object(o, VP_CUDNN_ATTR_ENGINECFG_ENGINE, 0));
        return answer(VP_CUDNN_TYPE_INT64, type, n_asked, n, values, &number);
    case VP_CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        config = get_object(o, VP_CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 0);
        number = workspace_of(get_object(config, VP_CUDNN_ATTR_ENGINECFG_ENGINE, 0));
        return answer(VP_CUDNN_TYPE_INT64, type, n_asked, n, values, &number);
    case VP_CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
        number = get_int(o, name, 0);
        return answer(VP_CUDNN_TYPE_INT64, type, n_asked, n, values, &number);
    case VP_CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        if (type != VP_CUDNN_TYPE_NUMERICAL_NOTE || !n)
            return refuse("numerical notes are asked for as another type");
        *n = get_int(o, VP_CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0) == 0 ? 1 : 0;
        if (*n && values && n_asked > 0)
            memcpy(values, &note, sizeof note);
        return 0;
    default:
        return refuse("attribute %d is not answered", name);
    }
}

int cudnnBackendExecute(context *handle, object *plan, object *pack)
{
    object    *config      = get_object(plan, VP_CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 0);
    object    *engine      = get_object(config, VP_CUDNN_ATTR_ENGINECFG_ENGINE, 0);
    execution *e           = calloc(1, sizeof *e + MAX_TENSORS * sizeof e->places[0]), *fitted;
    void      *plan_handle = NULL;
    int        status;

    if (!e)
        return refuse("out of memory");
    if (find(plan, VP_CUDNN_ATTR_EXECUTION_PLAN_HANDLE))
        memcpy(&plan_handle, find(plan, VP_CUDNN_ATTR_EXECUTION_PLAN_HANDLE)->bytes,
               sizeof plan_handle);
    e->graph           = get_object(engine, VP_CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 0);
    e->workspace       = get_object(pack, VP_CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 0);
    e->workspace_bytes = workspace_of(engine);
    status =
        !plan->finalized || !pack->finalized || plan_handle != handle
            ? refuse("a plan of another handle, or not finalised")
        : e->workspace_bytes > 0 && !e->workspace
            ? refuse("the plan's %lld bytes of workspace are not given",
                     (long long)e->workspace_bytes)
        : (uintptr_t)e->workspace % WORKSPACE_ALIGN != 0
            ? refuse("the workspace is at %p, no multiple of %d", e->workspace, WORKSPACE_ALIGN)
            : place_tensors(e, pack);
    fitted = realloc(e, sizeof *e + (size_t)e->n_places * sizeof e->places[0]);
    e      = fitted ? fitted : e;
    if (status == 0 && cudaLaunchHostFunc)
        /* a recorded one may run again: e lives on */
        return cudaLaunchHostFunc(handle->stream, execute, e);
    if (status == 0)
        execute(e);
    free(e);
    return status;
}
