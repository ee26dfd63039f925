/* tests/cuda_emulator/cuda_stand_in_graphs.cpp: captures, and the graphs that they become. */
#include "tests/cuda_emulator/cuda_stand_in.h"

#include <assert.h>

using namespace stand_in;

namespace stand_in
{

CUgraph_st *end_capture(capture *c)
{
    CUgraph_st *graph = c->graph;

    assert(graph && c->streams.count(c->origin));

    for (size_t i = 0; i < here().captures.size(); i++)
        if (here().captures[i] == c)
            here().captures.erase(here().captures.begin() + (ptrdiff_t)i);
    for (CUstream_st *member : c->streams) {
        member->recorder = nullptr;
        member->tail.clear();
    }
    delete c;
    return graph;
}

} // namespace stand_in

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    BEGIN("cudaStreamBeginCapture", "%d", (int)mode);
    if (is_legacy(stream))
        return result(cudaErrorStreamCaptureUnsupported);
    if (!vp_emulator_lives("stream", stream))
        return result(cudaErrorInvalidResourceHandle);
    if (stream->recorder)
        return result(cudaErrorIllegalState);
    stream->recorder =
        new capture{++here().n_captures, stream, mode, false, {stream}, new CUgraph_st()};
    stream->tail.clear();
    here().captures.push_back(stream->recorder);
    return cudaSuccess;
}

/* Whether all that was recorded comes before the end of the stream that began. */
static bool is_joined(const capture *c)
{
    std::set<size_t>    joined = c->origin->tail;
    std::vector<size_t> left(joined.begin(), joined.end());

    while (!left.empty()) {
        size_t i = left.back();

        left.pop_back();
        for (size_t before : c->graph->nodes[i].after)
            if (joined.insert(before).second)
                left.push_back(before);
    }
    return joined.size() == c->graph->nodes.size();
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    *out = nullptr;
    BEGIN("cudaStreamEndCapture", "%s", "");
    if (!vp_emulator_lives("stream", stream))
        return result(cudaErrorInvalidResourceHandle);
    capture *c = stream->recorder;
    if (!c)
        return result(cudaErrorIllegalState);
    if (c->origin != stream) {
        c->spoilt = true;
        return result(cudaErrorStreamCaptureUnmatched);
    }
    cudaError_t e     = c->spoilt      ? cudaErrorStreamCaptureInvalidated
                        : is_joined(c) ? cudaSuccess
                                       : cudaErrorStreamCaptureUnjoined;
    CUgraph_st *graph = end_capture(c);
    if (e != cudaSuccess) {
        delete graph;
        return result(e);
    }
    vp_emulator_born("graph", graph);
    *out = graph;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    BEGIN("cudaStreamIsCapturing", "%s", "");
    if (!is_stream(stream))
        return result(cudaErrorInvalidResourceHandle);
    *status = !capturing(stream)          ? cudaStreamCaptureStatusNone
              : capturing(stream)->spoilt ? cudaStreamCaptureStatusInvalidated
                                          : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
    BEGIN("cudaGraphGetNodes", "%s", "");
    if (!vp_emulator_lives("graph", graph) || nodes)
        /* nodes have no handles here: only their number can be asked */
        return result(cudaErrorInvalidValue);
    *n = graph->nodes.size();
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    *out = nullptr;
    BEGIN("cudaGraphInstantiate", "%llu", flags);
    if (!vp_emulator_lives("graph", graph))
        return result(cudaErrorInvalidValue);
    *out          = new CUgraphExec_st();
    (*out)->nodes = graph->nodes;
    vp_emulator_born("executable graph", *out);
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    BEGIN("cudaGraphUpload", "%s", "");
    return result(vp_emulator_lives("executable graph", exec) && is_stream(stream)
                      ? cudaSuccess
                      : cudaErrorInvalidValue);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    BEGIN("cudaGraphLaunch", "%s", "");
    if (!vp_emulator_lives("executable graph", exec))
        return result(cudaErrorInvalidValue);
    cudaError_t e = check_enqueue(stream);
    if (e != cudaSuccess)
        return e;
    if (capture *c = capturing(stream)) {
        std::set<size_t> all  = stream->tail;
        size_t           base = c->graph->nodes.size();

        for (const node &n : exec->nodes) {
            std::set<size_t> after = n.after.empty() ? stream->tail : std::set<size_t>();

            for (size_t i : n.after)
                after.insert(base + i);
            all.insert(push_node(c->graph, after, n.run));
        }
        stream->tail = all;
        return cudaSuccess;
    }
    /* behind the stream's work and the graph's last launch; the stream goes on behind all of it */
    std::vector<task_ref> tasks;
    task                  first;
    first.after = stream_of(stream)->last;
    add_implicit(stream, &first);
    if (exec->last)
        first.after.push_back(exec->last);
    for (const node &n : exec->nodes) {
        std::vector<task_ref> after = n.after.empty() ? first.after : std::vector<task_ref>();

        for (size_t i : n.after)
            after.push_back(tasks[i]);
        tasks.push_back(push(after, n.run));
    }
    tasks.insert(tasks.end(), first.after.begin(), first.after.end());
    exec->last              = push(tasks, []() {});
    stream_of(stream)->last = {exec->last};
    pass();
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    BEGIN("cudaGraphDestroy", "%s", "");
    if (!vp_emulator_lives("graph", graph))
        return result(cudaErrorInvalidValue);
    vp_emulator_dies(graph);
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    BEGIN("cudaGraphExecDestroy", "%s", "");
    if (!vp_emulator_lives("executable graph", exec))
        return result(cudaErrorInvalidValue);
    vp_emulator_dies(exec);
    delete exec;
    return cudaSuccess;
}
}
