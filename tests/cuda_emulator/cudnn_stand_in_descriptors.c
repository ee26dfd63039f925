/* tests/cuda_emulator/cudnn_stand_in_descriptors.c: descriptors, their attributes, and the table of
 * what each kind takes. */
#include "tests/cuda_emulator/cudnn_stand_in.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEED = 1 };

static char last_error[512];

int vp_dnn_refuse(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    return VP_CUDNN_STATUS_BAD_PARAM;
}

const char *vp_dnn_last_error(void)
{
    return last_error;
}

size_t vp_dnn_type_bytes(int type)
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
static const vp_dnn_rule rules[] = {
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

const vp_dnn_rule *vp_dnn_rule_of(int kind, int name)
{
    for (int i = 0; i < N_RULES; i++)
        if (rules[i].kind == kind && rules[i].name == name)
            return &rules[i];
    return NULL;
}

attribute *vp_dnn_find(const object *o, int name)
{
    for (attribute *a = o->attributes; a; a = a->next)
        if (a->name == name)
            return a;
    return NULL;
}

int64_t vp_dnn_int(const object *o, int name, int64_t fallback)
{
    const attribute *a = vp_dnn_find(o, name);
    int64_t          wide;
    int              narrow;

    if (!a)
        return fallback;
    if (vp_dnn_type_bytes(a->type) == sizeof(bool))
        return a->bytes[0];
    if (vp_dnn_type_bytes(a->type) == sizeof(int)) {
        memcpy(&narrow, a->bytes, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, a->bytes, sizeof wide);
    return wide;
}

object *vp_dnn_object(const object *o, int name, int64_t i)
{
    const attribute *a = vp_dnn_find(o, name);
    object          *p = NULL;

    if (a && i < a->n)
        memcpy(&p, a->bytes + (size_t)i * sizeof p, sizeof p);
    return p;
}

void vp_dnn_free_attributes(object *o)
{
    while (o->attributes) {
        attribute *a  = o->attributes;
        o->attributes = a->next;
        free(a->bytes);
        free(a);
    }
}

/* Values are copied; an attribute given twice is the second. */
int vp_dnn_put(object *o, int name, int type, int64_t n, const void *values)
{
    attribute *a     = vp_dnn_find(o, name);
    void      *bytes = malloc((size_t)n * vp_dnn_type_bytes(type));

    if (!bytes)
        return vp_dnn_refuse("out of memory");
    memcpy(bytes, values, (size_t)n * vp_dnn_type_bytes(type));
    if (!a) {
        a = calloc(1, sizeof *a);
        if (!a) {
            free(bytes);
            return vp_dnn_refuse("out of memory");
        }
        a->next       = o->attributes;
        o->attributes = a;
    }
    free(a->bytes);
    a->name = name, a->type = type, a->n = n, a->bytes = bytes;
    return 0;
}

bool vp_dnn_is_kind(int kind)
{
    for (int i = 0; i < N_RULES; i++)
        if (rules[i].kind == kind)
            return true;
    return false;
}

int vp_dnn_check_complete(const object *o)
{
    for (int i = 0; i < N_RULES; i++)
        if (rules[i].kind == o->kind && rules[i].needed && !vp_dnn_find(o, rules[i].name))
            return vp_dnn_refuse("descriptor %d lacks attribute %d", o->kind, rules[i].name);
    for (const attribute *a = o->attributes; a; a = a->next)
        for (int64_t i = 0; a->type == VP_CUDNN_TYPE_BACKEND_DESCRIPTOR && i < a->n; i++)
            if (!vp_dnn_object(o, a->name, i) || !vp_dnn_object(o, a->name, i)->finalized)
                return vp_dnn_refuse("attribute %d of descriptor %d is not finalised", a->name,
                                     o->kind);
    return 0;
}
