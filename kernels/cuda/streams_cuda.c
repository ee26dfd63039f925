/* kernels/cuda/streams_cuda.c: the two copy streams and the host's beside the compute stream, and the
 * events between them. Made when they are first used: a plan without copies has one stream.
 *
 * A recording is one graph. It begins on the compute stream; a copy stream is forked into it by an
 * event at its first use and joined by another before it ends, as cudaStreamEndCapture() requires.
 * A replay is work of the compute stream: the copy streams are joined before it, and what they are
 * given next waits for it. */
#include "kernels/cuda/cuda_internal.h"

#include <assert.h>

static struct {
    cudaStream_t stream; /* of VP_STREAM_COMPUTE none: it is the device's */
    cudaEvent_t  here;   /* where the stream was when another was last made to wait for it */
    bool         waits;  /* what it is given next comes after the compute stream's work so far */
    bool         used;   /* it was given something that the compute stream does not wait for */
} streams[VP_N_STREAMS];

static struct {
    cudaEvent_t event;
    bool        marked; /* on this side of the border of a recording */
} events[VP_BACKEND_EVENTS];

static vp_status make_event(cudaEvent_t *event, vp_err *err)
{
    vp_status st = VP_OK;

    if (!*event)
        VP_CUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "an event");
out:
    return st;
}

/* Whether creating a stream may be recorded is not documented: this thread says that it is not part
 * of what it records. */
static vp_status make_stream(cudaStream_t *stream, vp_err *err)
{
    enum cudaStreamCaptureMode mode     = cudaStreamCaptureModeRelaxed;
    cudaError_t                e        = cudaThreadExchangeStreamCaptureMode(&mode);
    bool                       has_mode = e == cudaSuccess;

    if (e == cudaSuccess)
        e = cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
    if (has_mode) {
        cudaError_t back = cudaThreadExchangeStreamCaptureMode(&mode);
        e                = e == cudaSuccess ? back : e;
    }
    return vp_cuda_check(e, "a stream for copies", err);
}

/* What `later` is given next comes after what `first` was given so far. */
static vp_status order(vp_stream first, cudaStream_t of_first, cudaStream_t later, vp_err *err)
{
    vp_status st = VP_OK;

    assert(of_first != later); /* a stream is in order by itself */
    VP_TRY(make_event(&streams[first].here, err));
    VP_CUDA(cudaEventRecord(streams[first].here, of_first), "an event");
    VP_CUDA(cudaStreamWaitEvent(later, streams[first].here, 0), "waiting for an event");
out:
    return st;
}

/* The stream, ready to be given something. */
static vp_status use(vp_cuda *cuda, vp_stream stream, cudaStream_t *out, vp_err *err)
{
    vp_status st = VP_OK;

    assert(stream >= 0 && stream < VP_N_STREAMS);
    *out = cuda->stream;
    if (stream == VP_STREAM_COMPUTE)
        return VP_OK;
    if (!streams[stream].stream)
        VP_TRY(make_stream(&streams[stream].stream, err));
    *out                 = streams[stream].stream;
    streams[stream].used = true;
    if (streams[stream].waits)
        VP_TRY(order(VP_STREAM_COMPUTE, cuda->stream, *out, err));
    streams[stream].waits = false;
out:
    return st;
}

vp_status vp_cuda_streams_copy(vp_cuda *cuda, vp_stream stream, void *to, const void *from,
                               int64_t n_bytes, vp_err *err)
{
    bool         to_host = stream == VP_STREAM_TO_HOST;
    cudaStream_t s;
    vp_status    st = VP_OK;

    assert((to_host || stream == VP_STREAM_TO_DEVICE) && n_bytes > 0 && to && from);
    VP_TRY(use(cuda, stream, &s, err));
    VP_CUDA(cudaMemcpyAsync(to, from, (size_t)n_bytes,
                            to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, s),
            to_host ? "copy to the host" : "copy to the device");
out:
    return st;
}

vp_status vp_cuda_streams_host(vp_cuda *cuda, void (*f)(void *ctx), void *ctx, vp_err *err)
{
    cudaStream_t s;
    vp_status    st = VP_OK;

    VP_TRY(use(cuda, VP_STREAM_HOST, &s, err));
    VP_CUDA(cudaLaunchHostFunc(s, f, ctx), "a call of the host");
out:
    return st;
}

vp_status vp_cuda_streams_mark(vp_cuda *cuda, vp_stream stream, int event, vp_err *err)
{
    cudaStream_t s;
    vp_status    st = VP_OK;

    assert(event >= 0 && event < VP_BACKEND_EVENTS);
    VP_TRY(use(cuda, stream, &s, err));
    VP_TRY(make_event(&events[event].event, err));
    VP_CUDA(cudaEventRecord(events[event].event, s), "an event");
    events[event].marked = true;
out:
    return st;
}

vp_status vp_cuda_streams_after(vp_cuda *cuda, vp_stream stream, int event, vp_err *err)
{
    cudaStream_t s;
    vp_status    st = VP_OK;

    assert(event >= 0 && event < VP_BACKEND_EVENTS);
    if (!events[event].marked)
        return VP_OK;
    VP_TRY(use(cuda, stream, &s, err));
    VP_CUDA(cudaStreamWaitEvent(s, events[event].event, 0), "waiting for an event");
out:
    return st;
}

vp_status vp_cuda_streams_join(vp_cuda *cuda, vp_err *err)
{
    vp_status st = VP_OK;

    for (int s = 0; s < VP_N_STREAMS; s++)
        if (streams[s].used) {
            assert(s != VP_STREAM_COMPUTE && streams[s].stream);
            VP_TRY(order((vp_stream)s, streams[s].stream, cuda->stream, err));
            streams[s].used = false;
        }
out:
    return st;
}

void vp_cuda_streams_fork(void)
{
    for (int s = 0; s < VP_N_STREAMS; s++) {
        streams[s].waits = true;
        streams[s].used  = false;
    }
}

void vp_cuda_streams_border(void)
{
    for (int e = 0; e < VP_BACKEND_EVENTS; e++)
        events[e].marked = false;
    vp_cuda_streams_fork();
}

vp_status vp_cuda_streams_wait(vp_err *err)
{
    vp_status st = VP_OK;

    for (int s = 0; s < VP_N_STREAMS; s++)
        if (streams[s].used) {
            assert(s != VP_STREAM_COMPUTE && streams[s].stream);
            VP_CUDA(cudaStreamSynchronize(streams[s].stream), "waiting for copies");
            streams[s].used = false;
        }
out:
    return st;
}

void vp_cuda_streams_close(void)
{
    for (int s = 0; s < VP_N_STREAMS; s++) {
        if (streams[s].stream)
            cudaStreamDestroy(streams[s].stream);
        if (streams[s].here)
            cudaEventDestroy(streams[s].here);
        streams[s].stream = NULL;
        streams[s].here   = NULL;
    }
    for (int e = 0; e < VP_BACKEND_EVENTS; e++) {
        if (events[e].event)
            cudaEventDestroy(events[e].event);
        events[e].event = NULL;
    }
    vp_cuda_streams_border();
}
