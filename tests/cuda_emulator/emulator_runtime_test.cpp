/* tests/cuda_emulator/emulator_runtime_test.cpp: the emulated runtime: memory, streams, events,
 * graphs, and what a capture does not allow. */
#include "tests/cuda_emulator/emulator_test.h"

/* ---- memory, streams, events ---- */

void memory_ends_where_the_device_does(void **)
{
    size_t free_bytes, total, later;
    void  *p, *q;

    OK(cudaMemGetInfo(&free_bytes, &total));
    assert_true(free_bytes < total);
    assert_int_equal(cudaMalloc(&p, free_bytes + 1), cudaErrorMemoryAllocation);
    assert_null(p);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    OK(cudaGetLastError());
    OK(cudaMalloc(&p, free_bytes / 2 / (2 << 20) * (2 << 20)));
    OK(cudaMemGetInfo(&later, &total));
    assert_true(later == free_bytes - free_bytes / 2 / (2 << 20) * (2 << 20));
    assert_int_equal(cudaMalloc(&q, free_bytes / 2 + (4 << 20)), cudaErrorMemoryAllocation);
    OK(cudaFree(p));
    assert_int_equal(cudaFree(p), cudaErrorInvalidValue);
    OK(cudaFree(nullptr));
    OK(cudaMalloc(&p, 0));
    assert_null(p);
    cudaGetLastError();
}

void copies_go_where_they_say_or_nowhere(void **)
{
    char  here[100] = {1, 2, 3}, back[100] = {0};
    char *p;

    OK(cudaMalloc((void **)&p, sizeof here));
    OK(cudaMemcpyAsync(p, here, sizeof here, cudaMemcpyHostToDevice, stream));
    memset(here, 9, sizeof here); /* pageable memory has been read */
    OK(cudaMemcpyAsync(back, p, sizeof back, cudaMemcpyDeviceToHost, stream));
    assert_true(back[0] == 1 && back[2] == 3); /* and has been written */
    OK(cudaMemsetAsync(p + 1, 7, 2, stream));
    OK(cudaStreamSynchronize(stream)); /* which cudaMemcpy() does not wait for */
    OK(cudaMemcpy(back, p, 4, cudaMemcpyDefault));
    assert_true(back[0] == 1 && back[1] == 7 && back[2] == 7 && back[3] == 0);
    assert_int_equal(cudaMemcpyAsync(p, here, 101, cudaMemcpyHostToDevice, stream),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyAsync(p, here, 10, cudaMemcpyDeviceToHost, stream),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyAsync(back, p + 50, 51, cudaMemcpyDeviceToHost, stream),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemsetAsync(p + 50, 0, 51, stream), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyAsync(p, here, 1, (cudaMemcpyKind)9, stream),
                     cudaErrorInvalidMemcpyDirection);
    OK(cudaFree(p));
    cudaGetLastError();
}

void events_tell_the_time_between_them(void **)
{
    cudaEvent_t begin, end, off;
    float       ms = -1;
    list<int>   x(1024);

    OK(cudaEventCreate(&begin));
    OK(cudaEventCreate(&end));
    OK(cudaEventCreateWithFlags(&off, cudaEventDisableTiming));
    assert_int_equal(cudaEventElapsedTime(&ms, begin, end), cudaErrorInvalidResourceHandle);
    /* it asks for the last error, whosoever's */
    assert_int_equal(VP_LAUNCH(nothing, 1, 1, 0, stream, nullptr), cudaErrorInvalidResourceHandle);
    OK(cudaEventRecord(begin, stream));
    OK(VP_LAUNCH(turn_around, 1, 1024, 0, stream, x.device, 100));
    OK(cudaEventRecord(end, stream));
    OK(cudaEventRecord(off, stream));
    OK(cudaEventSynchronize(end));
    OK(cudaEventQuery(begin));
    OK(cudaEventElapsedTime(&ms, begin, end));
    assert_true(ms > 0 && ms < 60000);
    assert_int_equal(cudaEventElapsedTime(&ms, begin, off), cudaErrorInvalidResourceHandle);
    OK(cudaEventDestroy(begin));
    assert_int_equal(cudaEventDestroy(begin), cudaErrorInvalidResourceHandle);
    OK(cudaEventDestroy(end));
    OK(cudaEventDestroy(off));
    x.free_both();
    cudaGetLastError();
}

/* ---- graphs ---- */

static __global__ void add_to(int *x, int by)
{
    x[threadIdx.x] += by;
}

void a_captured_stream_is_replayed_in_order(void **)
{
    list<int>               x(4);
    cudaGraph_t             graph;
    cudaGraphExec_t         exec;
    cudaStreamCaptureStatus status;
    size_t                  n;

    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(VP_LAUNCH(add_to, 1, 4, 0, stream, x.device, 1));
    OK(VP_LAUNCH(turn_around, 1, 4, 0, stream, x.device, 1));
    OK(VP_LAUNCH(add_to, 1, 2, 0, stream, x.device, 10));
    OK(cudaStreamIsCapturing(stream, &status));
    assert_int_equal(status, cudaStreamCaptureStatusActive);
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphGetNodes(graph, nullptr, &n));
    assert_int_equal(n, 3);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    x.get();
    for (int i = 0; i < 4; i++)
        assert_int_equal(x.host[i], 0); /* only recorded */
    for (int i = 0; i < 3; i++)
        OK(cudaGraphLaunch(exec, stream));
    x.get();
    /* (a b c d) -> (d+12 c+12 b+2 a+2): 12 12 2 2, 14 14 14 14, 26 26 16 16 */
    assert_true(x.host[0] == 26 && x.host[1] == 26 && x.host[2] == 16 && x.host[3] == 16);
    OK(cudaGraphExecDestroy(exec));
    assert_int_equal(cudaGraphLaunch(exec, stream), cudaErrorInvalidValue);
    x.free_both();
    cudaGetLastError();
}

/* A call that capture does not allow fails, and so does the capture. */
static void expect_spoilt(cudaError_t got, cudaError_t want)
{
    cudaGraph_t graph = (cudaGraph_t)&graph;

    assert_int_equal(got, want);
    assert_int_equal(VP_LAUNCH(nothing, 1, 1, 0, stream, nullptr),
                     cudaErrorStreamCaptureInvalidated);
    assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    assert_null(graph);
    cudaGetLastError();
    OK(cudaStreamSynchronize(stream));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

void what_capture_does_not_allow_spoils_it(void **)
{
    cudaStream_t blocking, mine = stream;
    cudaGraph_t  graph;
    char         here[4];
    void        *p;

    OK(cudaMalloc(&p, 4));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                     cudaErrorIllegalState);
    cudaGetLastError();
    expect_spoilt(cudaMalloc(&p, 4), cudaErrorStreamCaptureUnsupported);
    expect_spoilt(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
    expect_spoilt(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
    expect_spoilt(cudaMemcpy(p, here, 4, cudaMemcpyHostToDevice),
                  cudaErrorStreamCaptureUnsupported);
    expect_spoilt(cudaStreamQuery(stream), cudaErrorStreamCaptureUnsupported);
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphDestroy(graph));
    assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
    assert_int_equal(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal),
                     cudaErrorStreamCaptureUnsupported);
    cudaGetLastError();

    OK(cudaStreamCreate(&blocking));
    stream = blocking;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    expect_spoilt(VP_LAUNCH(nothing, 1, 1, 0, nullptr, nullptr), cudaErrorStreamCaptureImplicit);
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(stream));
    stream = mine;
    OK(cudaFree(p));
}

/* ---- several streams ---- */

/* Two streams beside each other: one makes four numbers and another fetches them. With all of its
 * waits, or without one, enqueued or recorded. */
struct pair {
    cudaStream_t copies;
    cudaEvent_t  made, fetched;
    int         *device, *pinned;

    pair()
    {
        OK(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
        OK(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
        OK(cudaEventCreateWithFlags(&fetched, cudaEventDisableTiming));
        OK(cudaMalloc((void **)&device, 16));
        OK(cudaHostAlloc((void **)&pinned, 16, cudaHostAllocDefault));
    }
    void give(bool first_wait, bool second_wait)
    {
        OK(cudaMemsetAsync(device, 0, 16, stream));
        OK(VP_LAUNCH(add_to, 1, 4, 0, stream, device, 7));
        OK(cudaEventRecord(made, stream));
        if (first_wait)
            OK(cudaStreamWaitEvent(copies, made));
        OK(cudaMemcpyAsync(pinned, device, 16, cudaMemcpyDeviceToHost, copies));
        OK(cudaEventRecord(fetched, copies));
        if (second_wait)
            OK(cudaStreamWaitEvent(stream, fetched));
        OK(VP_LAUNCH(add_to, 1, 4, 0, stream, device, 1)); /* must not come before the copy */
    }
    /* Forked and joined at the borders, so that a wait in between is all that can be missing. */
    cudaGraphExec_t record(bool first_wait, bool second_wait)
    {
        cudaGraph_t     graph;
        cudaGraphExec_t exec;

        OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        OK(cudaEventRecord(made, stream));
        OK(cudaStreamWaitEvent(copies, made));
        give(first_wait, second_wait);
        OK(cudaStreamWaitEvent(stream, fetched));
        OK(cudaStreamEndCapture(stream, &graph));
        OK(cudaGraphInstantiate(&exec, graph, 0));
        OK(cudaGraphDestroy(graph));
        return exec;
    }
    /* Of n_seeds orders, how many fetch another number than 7. */
    int n_wrong(bool recorded, bool first_wait, bool second_wait, uint64_t n_seeds)
    {
        cudaGraphExec_t exec = recorded ? record(first_wait, second_wait) : nullptr;
        int             n    = 0;

        for (uint64_t seed = 0; seed < n_seeds; seed++) {
            vp_emulator_set_streams(seed);
            OK(cudaMemsetAsync(device, 0, 16, stream));
            OK(cudaStreamSynchronize(stream));
            if (recorded)
                OK(cudaGraphLaunch(exec, stream));
            else
                give(first_wait, second_wait);
            OK(cudaStreamSynchronize(stream));
            OK(cudaStreamSynchronize(copies));
            n += pinned[0] != 7 || pinned[3] != 7;
        }
        vp_emulator_set_streams(0);
        if (exec)
            OK(cudaGraphExecDestroy(exec));
        return n;
    }
    void close()
    {
        OK(cudaStreamDestroy(copies));
        OK(cudaEventDestroy(made));
        OK(cudaEventDestroy(fetched));
        OK(cudaFree(device));
        OK(cudaFreeHost(pinned));
    }
};

void streams_run_in_any_order_that_their_waits_allow(void **)
{
    pair p;

    for (int recorded = 0; recorded < 2; recorded++) {
        assert_int_equal(p.n_wrong(recorded, true, true, 100), 0);
        assert_in_range(p.n_wrong(recorded, false, true, 100), 1, 99);
        assert_in_range(p.n_wrong(recorded, true, false, 100), 1, 99);
        /* as they were enqueued: what is missing does not show */
        assert_int_equal(p.n_wrong(recorded, false, false, 1), 0);
    }
    p.close();
}

/* The nodes of two streams are one graph; a launch comes after the last one and its stream. */
void a_fork_and_a_join_are_edges_of_one_graph(void **)
{
    pair            p;
    cudaGraph_t     graph;
    cudaGraphExec_t exec;
    size_t          n;

    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    p.give(true, true);
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphGetNodes(graph, nullptr, &n));
    assert_int_equal(n, 4);
    OK(cudaGraphDestroy(graph));
    exec = p.record(true, true);
    for (uint64_t seed = 0; seed < 20; seed++) {
        vp_emulator_set_streams(seed);
        for (int i = 0; i < 3; i++) {
            OK(cudaGraphLaunch(exec, stream));
            OK(VP_LAUNCH(add_to, 1, 4, 0, stream, p.device, 1));
        }
        OK(cudaStreamSynchronize(stream));
        assert_int_equal(p.pinned[0], 7);
        OK(cudaMemcpyAsync(p.pinned, p.device, 16, cudaMemcpyDeviceToHost, stream));
        OK(cudaStreamSynchronize(stream));
        assert_int_equal(p.pinned[3], 9);
    }
    vp_emulator_set_streams(0);
    OK(cudaGraphExecDestroy(exec));
    p.close();
}

void borders_of_a_capture_cannot_be_crossed(void **)
{
    pair                  p;
    cudaGraph_t           graph;
    cudaStream_t          third;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;

    OK(cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking));
    /* a stream that was forked and has work must be joined */
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    p.give(true, false);
    assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
    assert_null(graph);
    OK(cudaStreamSynchronize(p.copies)); /* the capture is over in both */
    /* an event of before, and one of a capture that is over */
    OK(cudaEventRecord(p.fetched, p.copies));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    expect_spoilt(cudaStreamWaitEvent(stream, p.fetched), cudaErrorStreamCaptureIsolation);
    OK(cudaEventRecord(p.made, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphDestroy(graph));
    assert_int_equal(cudaStreamWaitEvent(p.copies, p.made), cudaErrorStreamCaptureIsolation);
    /* it ends where it began; two of them do not meet */
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(p.made, stream));
    OK(cudaStreamWaitEvent(p.copies, p.made));
    assert_int_equal(cudaStreamEndCapture(p.copies, &graph), cudaErrorStreamCaptureUnmatched);
    assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(cudaStreamBeginCapture(third, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(p.made, stream));
    assert_int_equal(cudaStreamWaitEvent(third, p.made), cudaErrorStreamCaptureMerge);
    assert_int_equal(cudaStreamEndCapture(third, &graph), cudaErrorStreamCaptureInvalidated);
    /* what is unsafe, unless the thread takes it upon itself */
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    OK(cudaStreamDestroy(third));
    OK(cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking));
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, cudaStreamCaptureModeRelaxed);
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(third));
    p.close();
    cudaGetLastError();
}

/* ---- the list of calls for the shell test ---- */

int sequence(bool leaves)
{
    cudaStream_t    s = nullptr;
    cudaEvent_t     e = nullptr;
    cudaGraph_t     g = nullptr;
    cudaGraphExec_t x = nullptr;
    void           *p = nullptr, *h = nullptr;
    int             n = 0, back = 0;
    bool ok = cudaGetDeviceCount(&n) == cudaSuccess && n == 1 && cudaSetDevice(0) == cudaSuccess &&
              cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess &&
              cudaMalloc(&p, 1000) == cudaSuccess &&
              cudaHostAlloc(&h, 100, cudaHostAllocDefault) == cudaSuccess &&
              cudaEventCreate(&e) == cudaSuccess &&
              cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal) == cudaSuccess &&
              cudaMemsetAsync(p, 0, 1000, s) == cudaSuccess &&
              VP_LAUNCH(add_to, 1, 4, 0, s, (int *)p, 3) == cudaSuccess &&
              cudaStreamEndCapture(s, &g) == cudaSuccess &&
              cudaGraphInstantiate(&x, g, 0) == cudaSuccess &&
              cudaGraphLaunch(x, s) == cudaSuccess &&
              cudaMemcpyAsync(&back, p, 4, cudaMemcpyDeviceToHost, s) == cudaSuccess &&
              cudaStreamSynchronize(s) == cudaSuccess && back == 3;

    if (leaves)
        return ok ? 0 : 3;
    ok = (!x || cudaGraphExecDestroy(x) == cudaSuccess) && ok;
    ok = (!g || cudaGraphDestroy(g) == cudaSuccess) && ok;
    ok = (!e || cudaEventDestroy(e) == cudaSuccess) && ok;
    ok = (!h || cudaFreeHost(h) == cudaSuccess) && ok;
    ok = (!p || cudaFree(p) == cudaSuccess) && ok;
    ok = (!s || cudaStreamDestroy(s) == cudaSuccess) && ok;
    return ok ? 0 : 3;
}
