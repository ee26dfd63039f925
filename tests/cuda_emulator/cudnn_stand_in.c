/* tests/cuda_emulator/cudnn_stand_in.c: the functions of cuDNN's backend API that the backend
 * calls: cudnn_stand_in.h. */
#include "tests/cuda_emulator/cudnn_stand_in.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define E __attribute__((visibility("default")))

enum { N_CONFIGS = 2 };
/* What cudaMalloc() gives; NVIDIA's documents name no smaller one. */
enum { WORKSPACE_ALIGN = 256 };

typedef struct context {
    void *stream;
} context;

/* Of the emulated CUDA, where this is part of it. */
extern int cudaLaunchHostFunc(void *stream, void (*f)(void *), void *data) __attribute__((weak));

static int64_t workspace_of(const object *engine)
{
    const object *graph = vp_dnn_object(engine, VP_CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 0), *o[4],
                 *last  = NULL;
    int64_t n = vp_dnn_find(graph, VP_CUDNN_ATTR_OPERATIONGRAPH_OPS)->n, n_products = 0;
    tensor  t;

    for (int64_t i = 0; i < n; i++) {
        const object *op = vp_dnn_object(graph, VP_CUDNN_ATTR_OPERATIONGRAPH_OPS, i);
        if (op->kind == VP_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
            last = op, n_products++;
    }
    if (n_products < 3 || vp_dnn_int(engine, VP_CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0) != 1)
        return 0;
    vp_dnn_operands_of(last, o);
    vp_dnn_read_tensor(o[0], &t);
    return 2 * t.dims[0] * t.dims[1] * t.dims[2] * t.dims[3] + 128;
}

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
    snprintf(text, size, "%s", vp_dnn_last_error());
}

int cudnnCreate(context **handle)
{
    *handle = calloc(1, sizeof **handle);
    return *handle ? 0 : vp_dnn_refuse("out of memory");
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
    if (!vp_dnn_is_kind(kind))
        return vp_dnn_refuse("descriptors of kind %d are not known here", kind);
    *out = calloc(1, sizeof **out);
    if (!*out)
        return vp_dnn_refuse("out of memory");
    (*out)->kind = kind;
    return 0;
}

int cudnnBackendDestroyDescriptor(object *o)
{
    if (o) {
        cudnnBackendDestroyDescriptor(o->owned);
        vp_dnn_free_attributes(o);
    }
    free(o);
    return 0;
}

int cudnnBackendSetAttribute(object *o, int name, int type, int64_t n, const void *values)
{
    const vp_dnn_rule *r = vp_dnn_rule_of(o->kind, name);

    if (o->finalized)
        return vp_dnn_refuse("attribute %d is set on a finalised descriptor", name);
    if (!r)
        return vp_dnn_refuse("descriptor %d has no attribute %d", o->kind, name);
    if (r->type != type || n < 1 || n > r->most || !values)
        return vp_dnn_refuse("attribute %d is given as %lld values of type %d", name, (long long)n,
                             type);
    return vp_dnn_put(o, name, type, n, values);
}

int cudnnBackendFinalize(object *o)
{
    int status;

    if (o->finalized)
        return vp_dnn_refuse("descriptor %d is finalised twice", o->kind);
    status = vp_dnn_check_complete(o);
    if (status)
        return status;
    switch (o->kind) {
    case VP_CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        status = vp_dnn_check_tensor(o);
        break;
    case VP_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case VP_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case VP_CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    case VP_CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        status = vp_dnn_check_operation(o);
        break;
    case VP_CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        status = vp_dnn_check_graph(o);
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
        return vp_dnn_refuse("one value of type %d was asked for as %lld of type %d", type,
                             (long long)n_asked, asked_type);
    memcpy(values, answer_is, vp_dnn_type_bytes(type));
    if (n)
        *n = 1;
    return 0;
}

/* The two configurations into descriptors that the caller has made. */
static int propose(const object *heuristics, int64_t n_asked, int64_t *n, object *const *configs)
{
    object *graph = vp_dnn_object(heuristics, VP_CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 0);

    *n = n_asked < N_CONFIGS && configs ? n_asked : N_CONFIGS;
    for (int64_t i = 0; configs && i < *n; i++) {
        object *engine;
        int     status;

        if (configs[i]->kind != VP_CUDNN_BACKEND_ENGINECFG_DESCRIPTOR || configs[i]->finalized)
            return vp_dnn_refuse("configurations go into fresh descriptors");
        status = cudnnBackendCreateDescriptor(VP_CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
        if (status)
            return status;
        configs[i]->owned = engine;
        status            = vp_dnn_put(engine, VP_CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
                                       VP_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
        if (status == 0)
            status =
                vp_dnn_put(engine, VP_CUDNN_ATTR_ENGINE_GLOBAL_INDEX, VP_CUDNN_TYPE_INT64, 1, &i);
        if (status == 0)
            status = vp_dnn_put(configs[i], VP_CUDNN_ATTR_ENGINECFG_ENGINE,
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
        return vp_dnn_refuse("attribute %d is asked of a descriptor that is not finalised", name);
    switch (name) {
    case VP_CUDNN_ATTR_ENGINEHEUR_RESULTS:
        return type == VP_CUDNN_TYPE_BACKEND_DESCRIPTOR
                   ? propose(o, n_asked, n, values)
                   : vp_dnn_refuse("configurations are descriptors");
    case VP_CUDNN_ATTR_ENGINECFG_ENGINE:
        if (type != VP_CUDNN_TYPE_BACKEND_DESCRIPTOR || n_asked != 1)
            return vp_dnn_refuse("a configuration has one engine");
        memcpy(&into, values, sizeof into);
        engine = vp_dnn_object(o, name, 0);
        vp_dnn_free_attributes(into);
        into->finalized = true;
        for (const attribute *a = engine->attributes; a; a = a->next)
            if (vp_dnn_put(into, a->name, a->type, a->n, a->bytes))
                return VP_CUDNN_STATUS_BAD_PARAM;
        if (n)
            *n = 1;
        return 0;
    case VP_CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
        number = workspace_of(vp_dnn_object(o, VP_CUDNN_ATTR_ENGINECFG_ENGINE, 0));
        return answer(VP_CUDNN_TYPE_INT64, type, n_asked, n, values, &number);
    case VP_CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        config = vp_dnn_object(o, VP_CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 0);
        number = workspace_of(vp_dnn_object(config, VP_CUDNN_ATTR_ENGINECFG_ENGINE, 0));
        return answer(VP_CUDNN_TYPE_INT64, type, n_asked, n, values, &number);
    case VP_CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
        number = vp_dnn_int(o, name, 0);
        return answer(VP_CUDNN_TYPE_INT64, type, n_asked, n, values, &number);
    case VP_CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        if (type != VP_CUDNN_TYPE_NUMERICAL_NOTE || !n)
            return vp_dnn_refuse("numerical notes are asked for as another type");
        *n = vp_dnn_int(o, VP_CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0) == 0 ? 1 : 0;
        if (*n && values && n_asked > 0)
            memcpy(values, &note, sizeof note);
        return 0;
    default:
        return vp_dnn_refuse("attribute %d is not answered", name);
    }
}

int cudnnBackendExecute(context *handle, object *plan, object *pack)
{
    object    *config      = vp_dnn_object(plan, VP_CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 0);
    object    *engine      = vp_dnn_object(config, VP_CUDNN_ATTR_ENGINECFG_ENGINE, 0);
    execution *e           = calloc(1, sizeof *e + MAX_TENSORS * sizeof e->places[0]), *fitted;
    void      *plan_handle = NULL;
    int        status;

    if (!e)
        return vp_dnn_refuse("out of memory");
    if (vp_dnn_find(plan, VP_CUDNN_ATTR_EXECUTION_PLAN_HANDLE))
        memcpy(&plan_handle, vp_dnn_find(plan, VP_CUDNN_ATTR_EXECUTION_PLAN_HANDLE)->bytes,
               sizeof plan_handle);
    e->graph           = vp_dnn_object(engine, VP_CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 0);
    e->workspace       = vp_dnn_object(pack, VP_CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 0);
    e->workspace_bytes = workspace_of(engine);
    status             = !plan->finalized || !pack->finalized || plan_handle != handle
                             ? vp_dnn_refuse("a plan of another handle, or not finalised")
                         : e->workspace_bytes > 0 && !e->workspace
                             ? vp_dnn_refuse("the plan's %lld bytes of workspace are not given",
                                             (long long)e->workspace_bytes)
                         : (uintptr_t)e->workspace % WORKSPACE_ALIGN != 0
                             ? vp_dnn_refuse("the workspace is at %p, no multiple of %d", e->workspace,
                                             WORKSPACE_ALIGN)
                             : vp_dnn_place_tensors(e, pack);
    fitted             = realloc(e, sizeof *e + (size_t)e->n_places * sizeof e->places[0]);
    e                  = fitted ? fitted : e;
    if (status == 0 && cudaLaunchHostFunc)
        /* a recorded one may run again: e lives on */
        return cudaLaunchHostFunc(handle->stream, vp_dnn_execute, e);
    if (status == 0)
        vp_dnn_execute(e);
    free(e);
    return status;
}
