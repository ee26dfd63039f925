/* tests/cuda_emulator/cuda_stand_in_streams.cpp: streams and events. */
#include "tests/cuda_emulator/cuda_stand_in.h"

#include <time.h>

using namespace stand_in;

namespace
{

double now_s()
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

} // namespace

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
    BEGIN("cudaStreamCreateWithFlags", "%u", flags);
    SAFE_ONLY();
    if (flags & ~(unsigned)cudaStreamNonBlocking)
        return result(cudaErrorInvalidValue);
    *out          = new CUstream_st();
    (*out)->flags = flags;
    vp_emulator_born("stream", *out);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithFlags(out, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    BEGIN("cudaStreamDestroy", "%s", stream ? "stream" : "nothing");
    if (!vp_emulator_lives("stream", stream))
        return result(cudaErrorInvalidResourceHandle);
    drain();
    if (stream->recorder && stream->recorder->origin == stream) {
        delete end_capture(stream->recorder);
    } else if (stream->recorder) {
        stream->recorder->spoilt = true;
        stream->recorder->streams.erase(stream);
    }
    vp_emulator_dies(stream);
    delete stream;
    return result(here().sticky);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    BEGIN("cudaStreamSynchronize", "%s", "");
    if (!is_stream(stream))
        return result(cudaErrorInvalidResourceHandle);
    if (capturing(stream)) {
        capturing(stream)->spoilt = true;
        return result(cudaErrorStreamCaptureUnsupported);
    }
    if (is_legacy(stream))
        SAFE_ONLY();
    return wait_for(stream);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    BEGIN("cudaStreamQuery", "%s", "");
    if (!is_stream(stream))
        return result(cudaErrorInvalidResourceHandle);
    if (capturing(stream)) {
        capturing(stream)->spoilt = true;
        return result(cudaErrorStreamCaptureUnsupported);
    }
    if (here().queue.empty())
        return result(here().sticky);
    drain(); /* done by the next question */
    return cudaErrorNotReady;
}

/* An event of a capture takes a stream into it; an event that nobody recorded holds nobody up. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    BEGIN("cudaStreamWaitEvent", "%u", flags);
    if (!is_stream(stream) || !vp_emulator_lives("event", event))
        return result(cudaErrorInvalidResourceHandle);
    if (!event->recorded)
        return cudaSuccess;
    CUstream_st *s = stream_of(stream);
    capture     *c = nullptr;
    for (capture *open : here().captures)
        if (event->captured && open->id == event->capture_id)
            c = open;
    if (s->recorder && s->recorder != c) {
        s->recorder->spoilt = true;
        return result(c ? cudaErrorStreamCaptureMerge : cudaErrorStreamCaptureIsolation);
    }
    if (!event->captured) {
        s->last.push_back(event->reached);
        return cudaSuccess;
    }
    if (!c || is_legacy(stream))
        return result(cudaErrorStreamCaptureIsolation);
    if (c->spoilt)
        return result(cudaErrorStreamCaptureInvalidated);
    s->recorder = c;
    c->streams.insert(s);
    s->tail.insert(event->tail.begin(), event->tail.end());
    return cudaSuccess;
}

/* From now on the thread's calls are judged by this mode; the one before comes back. */
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    BEGIN("cudaThreadExchangeStreamCaptureMode", "%d", (int)*mode);
    std::swap(*mode, here().thread_mode);
    return cudaSuccess;
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags)
{
    BEGIN("cudaEventCreateWithFlags", "%u", flags);
    if (flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming))
        return result(cudaErrorInvalidValue);
    *out          = new CUevent_st();
    (*out)->flags = flags;
    vp_emulator_born("event", *out);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

/* What is enqueued may still name it. */
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    BEGIN("cudaEventDestroy", "%s", event ? "event" : "nothing");
    if (!vp_emulator_lives("event", event))
        return result(cudaErrorInvalidResourceHandle);
    drain();
    vp_emulator_dies(event);
    delete event;
    return result(here().sticky);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    BEGIN("cudaEventRecord", "%s", "");
    if (!vp_emulator_lives("event", event) || !is_stream(stream))
        return result(cudaErrorInvalidResourceHandle);
    if (capturing(stream)) {
        if (capturing(stream)->spoilt)
            return result(cudaErrorStreamCaptureInvalidated);
        event->recorded = event->captured = true;
        event->capture_id                 = capturing(stream)->id;
        event->tail                       = stream->tail;
        return cudaSuccess;
    }
    std::shared_ptr<double> at_s = std::make_shared<double>();
    cudaError_t             e    = enqueue(stream, [at_s]() { *at_s = now_s(); });
    if (e != cudaSuccess)
        return e;
    event->recorded = true;
    event->captured = false;
    event->at_s     = at_s;
    event->reached  = stream_of(stream)->last.back();
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    BEGIN("cudaEventSynchronize", "%s", "");
    if (!vp_emulator_lives("event", event))
        return result(cudaErrorInvalidResourceHandle);
    if (event->captured)
        return result(cudaErrorCapturedEvent);
    if (event->recorded)
        require(event->reached);
    return result(here().sticky);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    BEGIN("cudaEventQuery", "%s", "");
    if (!vp_emulator_lives("event", event))
        return result(cudaErrorInvalidResourceHandle);
    if (event->captured)
        return result(cudaErrorCapturedEvent);
    if (!event->recorded || event->reached->done)
        return result(here().sticky);
    drain();
    return cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    BEGIN("cudaEventElapsedTime", "%s", "");
    if (!vp_emulator_lives("event", start) || !vp_emulator_lives("event", end) ||
        !start->recorded || !end->recorded ||
        ((start->flags | end->flags) & cudaEventDisableTiming))
        return result(cudaErrorInvalidResourceHandle);
    if (start->captured || end->captured)
        return result(cudaErrorCapturedEvent);
    if (!start->reached->done || !end->reached->done)
        return cudaErrorNotReady;
    *ms = (float)(1e3 * (*end->at_s - *start->at_s));
    return cudaSuccess;
}
}
