/* dryrun/stand_in/null_runtime_stream.c: libcudart 12 and 13, order: streams, events, captures and graphs.
 * Everything has happened when a call returns; what is kept is who takes part in a capture. */
#define _GNU_SOURCE
#include "dryrun/stand_in/null_internal.h"

#include <stdlib.h>
#include <time.h>

#define E VP_NULL_EXPORT

typedef struct stream {
    int                magic, priority;
    unsigned long long id, capture_id;
    unsigned           flags;
} stream;

typedef struct event {
    int                magic;
    unsigned long long capture_id;
    struct timespec    at;
    vp_null_end        end;
} event;

enum { STREAM_MAGIC = 0x5354524d, EVENT_MAGIC = 0x45564e54, GRAPH_MAGIC = 0x47524150 };

static unsigned long long n_streams = 2, n_captures, active_captures;
static stream            *capture_origin;

static stream *stream_of(void *s)
{
    return (uintptr_t)s > 2 ? s : NULL; /* 0 legacy, 1 cudaStreamLegacy, 2 cudaStreamPerThread */
}

static bool capturing(void *s)
{
    return stream_of(s) && stream_of(s)->capture_id && active_captures == stream_of(s)->capture_id;
}

E int cudaStreamCreateWithPriority(void **out, unsigned flags, int priority);
int   cudaStreamCreateWithPriority(void **out, unsigned flags, int priority)
{
    stream *s = calloc(1, sizeof *s);

    if (!s)
        return vp_null_failed(VP_NULL_OUT_OF_MEMORY);
    s->magic    = STREAM_MAGIC;
    s->flags    = flags;
    s->priority = priority;
    s->id       = __atomic_add_fetch(&n_streams, 1, __ATOMIC_RELAXED);
    *out        = s;
    return VP_NULL_OK;
}

E int cudaStreamCreate(void **out);
int   cudaStreamCreate(void **out)
{
    return cudaStreamCreateWithPriority(out, 0, 0);
}

E int cudaStreamCreateWithFlags(void **out, unsigned flags);
int   cudaStreamCreateWithFlags(void **out, unsigned flags)
{
    return cudaStreamCreateWithPriority(out, flags, 0);
}

E int cudaStreamDestroy(void *s);
int   cudaStreamDestroy(void *s)
{
    free(stream_of(s));
    return VP_NULL_OK;
}

E int cudaStreamGetPriority(void *s, int *priority);
int   cudaStreamGetPriority(void *s, int *priority)
{
    *priority = stream_of(s) ? stream_of(s)->priority : 0;
    return VP_NULL_OK;
}

E int cudaStreamGetFlags(void *s, unsigned *flags);
int   cudaStreamGetFlags(void *s, unsigned *flags)
{
    *flags = stream_of(s) ? stream_of(s)->flags : 0;
    return VP_NULL_OK;
}

E int cudaStreamGetId(void *s, unsigned long long *id);
int   cudaStreamGetId(void *s, unsigned long long *id)
{
    *id = stream_of(s) ? stream_of(s)->id : (unsigned long long)(uintptr_t)s;
    return VP_NULL_OK;
}

E int cudaStreamGetDevice(void *s, int *d);
int   cudaStreamGetDevice(void *s, int *d)
{
    (void)s;
    *d = 0;
    return VP_NULL_OK;
}

E int cudaStreamQuery(void *s);
int   cudaStreamQuery(void *s)
{
    return capturing(s) ? vp_null_failed(VP_NULL_CAPTURE_UNSUPPORTED) : VP_NULL_OK;
}

E int cudaStreamSynchronize(void *s);
int   cudaStreamSynchronize(void *s)
{
    vp_null_note(&(vp_null_entry){.kind = VP_NULL_WAIT, .type = 1, .m = (intptr_t)s});
    return capturing(s) ? vp_null_failed(VP_NULL_CAPTURE_UNSUPPORTED) : VP_NULL_OK;
}

E int cudaStreamWaitEvent(void *s, void *e, unsigned flags);
int   cudaStreamWaitEvent(void *s, void *e, unsigned flags)
{
    event *ev = e;

    (void)flags;
    if (ev)
        vp_null_end_dropped(&ev->end);
    vp_null_note(&(vp_null_entry){.kind = VP_NULL_EVENT_WAIT, .m = (intptr_t)e, .n = (intptr_t)s});
    if (ev && ev->capture_id && ev->capture_id == active_captures && stream_of(s))
        stream_of(s)->capture_id = ev->capture_id; /* the waiting stream joins the capture */
    return VP_NULL_OK;
}

E int cudaStreamBeginCapture(void *s, int mode);
int   cudaStreamBeginCapture(void *s, int mode)
{
    (void)mode;
    if (!stream_of(s) || active_captures)
        return vp_null_failed(VP_NULL_CAPTURE_UNSUPPORTED);
    capture_origin           = s;
    active_captures          = ++n_captures;
    stream_of(s)->capture_id = active_captures;
    return VP_NULL_OK;
}

static int graph_object[2] = {GRAPH_MAGIC, 0}; /* all graphs are alike: nothing is recorded */

E int cudaStreamEndCapture(void *s, void **graph);
int   cudaStreamEndCapture(void *s, void **graph)
{
    if (!capturing(s) || capture_origin != s)
        return vp_null_failed(VP_NULL_CAPTURE_UNSUPPORTED);
    active_captures = 0;
    capture_origin  = NULL;
    *graph          = graph_object;
    return VP_NULL_OK;
}

E int cudaStreamIsCapturing(void *s, int *status);
int   cudaStreamIsCapturing(void *s, int *status)
{
    *status = capturing(s) ? 1 : 0;
    return VP_NULL_OK;
}

static int capture_info(void *s, int *status, unsigned long long *id, void **graph,
                        const void ***nodes, size_t *n_nodes)
{
    static const void *node_list[1] = {graph_object};

    *status = capturing(s) ? 1 : 0;
    if (id)
        *id = capturing(s) ? stream_of(s)->capture_id : 0;
    if (graph)
        *graph = graph_object;
    if (nodes)
        *nodes = node_list;
    if (n_nodes)
        *n_nodes = capturing(s) ? 1 : 0;
    return VP_NULL_OK;
}

E int cudaStreamGetCaptureInfo_v2(void *s, int *status, unsigned long long *id, void **graph,
                                  const void ***nodes, size_t *n_nodes);
int   cudaStreamGetCaptureInfo_v2(void *s, int *status, unsigned long long *id, void **graph,
                                  const void ***nodes, size_t *n_nodes)
{
    return capture_info(s, status, id, graph, nodes, n_nodes);
}

E int cudaStreamGetCaptureInfo_v3(void *s, int *status, unsigned long long *id, void **graph,
                                  const void ***nodes, const void **edges, size_t *n_nodes);
int   cudaStreamGetCaptureInfo_v3(void *s, int *status, unsigned long long *id, void **graph,
                                  const void ***nodes, const void **edges, size_t *n_nodes)
{
    if (edges)
        *edges = NULL;
    return capture_info(s, status, id, graph, nodes, n_nodes);
}

E int cudaStreamGetCaptureInfo(void *s, int *status, unsigned long long *id, void **graph,
                               const void ***nodes, const void **edges, size_t *n_nodes);
int   cudaStreamGetCaptureInfo(void *s, int *status, unsigned long long *id, void **graph,
                               const void ***nodes, const void **edges, size_t *n_nodes)
{
    return cudaStreamGetCaptureInfo_v3(s, status, id, graph, nodes, edges, n_nodes);
}

VP_NULL_NOP(cudaThreadExchangeStreamCaptureMode)
VP_NULL_NOP(cudaStreamUpdateCaptureDependencies)
VP_NULL_NOP(cudaStreamUpdateCaptureDependencies_v2)
VP_NULL_NOP(cudaGraphDestroy)
VP_NULL_NOP(cudaGraphExecDestroy)
VP_NULL_WORK(cudaGraphLaunch)
VP_NULL_NOP(cudaGraphUpload)
VP_NULL_NOP(cudaGraphDebugDotPrint)
VP_NULL_NOP(cudaDeviceGraphMemTrim)

E int cudaGraphInstantiate(void **exec, void *graph, unsigned long long flags);
int   cudaGraphInstantiate(void **exec, void *graph, unsigned long long flags)
{
    (void)flags;
    *exec = graph;
    return VP_NULL_OK;
}

E int cudaGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags);
int   cudaGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags)
{
    return cudaGraphInstantiate(exec, graph, flags);
}

/* PyTorch asks only whether a captured graph is empty. */
E int cudaGraphGetNodes(void *graph, void **nodes, size_t *n_nodes);
int   cudaGraphGetNodes(void *graph, void **nodes, size_t *n_nodes)
{
    if (nodes)
        vp_null_unsupported("libcudart", "cudaGraphGetNodes", "nodes of a captured graph");
    (void)graph;
    *n_nodes = 1;
    return VP_NULL_OK;
}

E int cudaEventCreateWithFlags(void **out, unsigned flags);
int   cudaEventCreateWithFlags(void **out, unsigned flags)
{
    event *e = calloc(1, sizeof *e);

    (void)flags;
    if (!e)
        return vp_null_failed(VP_NULL_OUT_OF_MEMORY);
    e->magic = EVENT_MAGIC;
    *out     = e;
    return VP_NULL_OK;
}

E int cudaEventCreate(void **out);
int   cudaEventCreate(void **out)
{
    return cudaEventCreateWithFlags(out, 0);
}

E int cudaEventDestroy(void *e);
int   cudaEventDestroy(void *e)
{
    event *ev = e;

    if (ev)
        vp_null_end_dropped(&ev->end);
    free(ev);
    return VP_NULL_OK;
}

E int cudaEventRecord(void *e, void *s);
int   cudaEventRecord(void *e, void *s)
{
    event *ev = e;

    vp_null_note(
        &(vp_null_entry){.kind = VP_NULL_EVENT_RECORD, .m = (intptr_t)e, .n = (intptr_t)s});
    ev->capture_id = capturing(s) ? stream_of(s)->capture_id : 0;
    clock_gettime(CLOCK_MONOTONIC, &ev->at);
    vp_null_end_recorded(&ev->end, s, capturing(s));
    return VP_NULL_OK;
}

E int cudaEventRecordWithFlags(void *e, void *s, unsigned flags);
int   cudaEventRecordWithFlags(void *e, void *s, unsigned flags)
{
    (void)flags;
    return cudaEventRecord(e, s);
}

E int cudaEventQuery(void *e);
int   cudaEventQuery(void *e)
{
    event *ev = e;

    return !ev || vp_null_end_is_done(&ev->end) ? VP_NULL_OK : vp_null_failed(VP_NULL_NOT_READY);
}

E int cudaEventSynchronize(void *e);
int   cudaEventSynchronize(void *e)
{
    vp_null_note(&(vp_null_entry){.kind = VP_NULL_WAIT, .type = 2, .m = (intptr_t)e});
    return VP_NULL_OK;
}

/* Host time between the two records, so that a rate computed from it is finite. */
E int cudaEventElapsedTime(float *ms, void *a, void *b);
int   cudaEventElapsedTime(float *ms, void *a, void *b)
{
    event *x = a, *y = b;

    *ms = (float)((double)(y->at.tv_sec - x->at.tv_sec) * 1e3 +
                  (double)(y->at.tv_nsec - x->at.tv_nsec) * 1e-6);
    return VP_NULL_OK;
}

E int cudaEventElapsedTime_v2(float *ms, void *a, void *b);
int   cudaEventElapsedTime_v2(float *ms, void *a, void *b)
{
    return cudaEventElapsedTime(ms, a, b);
}

E int cudaLaunchHostFunc(void *s, void (*f)(void *), void *data);
int   cudaLaunchHostFunc(void *s, void (*f)(void *), void *data)
{
    if (!capturing(s))
        f(data);
    return VP_NULL_OK;
}

E int cudaStreamAddCallback(void *s, void (*f)(void *, int, void *), void *data, unsigned flags);
int   cudaStreamAddCallback(void *s, void (*f)(void *, int, void *), void *data, unsigned flags)
{
    (void)flags;
    f(s, VP_NULL_OK, data);
    return VP_NULL_OK;
}
