/* tests/cuda_emulator/cuda_stand_in_work.cpp: streams' work: a list of functions, each with those it
 * comes after, run in the order in which they were enqueued or in a random one among those allowed. */
#include "tests/cuda_emulator/cuda_stand_in.h"

#include <assert.h>

using namespace stand_in;

namespace
{

/* A piece of work runs with the device's memory open; nothing runs once a fault is there. */
void perform(const work &w)
{
    if (here().sticky != cudaSuccess)
        return;
    open_memory(true);
    w();
    open_memory(false);
}

uint64_t draw(uint64_t below)
{
    uint64_t &x = here().set.streams;

    assert(x != 0 && below > 0); /* xorshift never leaves 0; without a seed nothing is drawn */
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return (x >> 11) % below;
}

bool is_ready(const task_ref &t)
{
    for (const task_ref &before : t->after)
        if (!before->done)
            return false;
    return true;
}

void finish(const task_ref &t)
{
    assert(!t->done && t->run);
    perform(t->run);
    t->done = true;
    t->run  = nullptr;
    t->after.clear(); /* or a chain of all that ever ran would stay */
}

/* The first that is ready from a random place on. */
void run_any()
{
    std::deque<task_ref> &q    = here().queue;
    size_t                from = (size_t)draw(q.size());

    for (size_t i = 0; i < q.size(); i++) {
        size_t at = (from + i) % q.size();

        if (is_ready(q[at])) {
            task_ref t = q[at];

            q.erase(q.begin() + (ptrdiff_t)at);
            finish(t);
            return;
        }
    }
}

} // namespace

namespace stand_in
{

void drain()
{
    while (!here().queue.empty() && here().set.streams)
        run_any();
    while (!here().queue.empty()) {
        task_ref t = here().queue.front();

        here().queue.pop_front();
        finish(t);
    }
}

/* In a random order no more than it must, and what chance adds. */
void require(task_ref t)
{
    if (!here().set.streams)
        drain();
    while (!here().queue.empty() && draw(3) == 0)
        run_any();
    while (!t->done && !is_ready(t))
        for (size_t from = (size_t)draw(t->after.size()), i = 0; i < t->after.size(); i++)
            if (!t->after[(from + i) % t->after.size()]->done)
                require(t->after[(from + i) % t->after.size()]);
    if (t->done)
        return;
    for (size_t i = 0; i < here().queue.size(); i++)
        if (here().queue[i] == t)
            here().queue.erase(here().queue.begin() + (ptrdiff_t)i);
    finish(t);
}

bool is_legacy(cudaStream_t s)
{
    return s == nullptr || s == cudaStreamLegacy;
}

bool is_stream(cudaStream_t s)
{
    return is_legacy(s) || s == cudaStreamPerThread || vp_emulator_lives("stream", s);
}

CUstream_st *stream_of(cudaStream_t s)
{
    return is_legacy(s) ? &here().legacy : s == cudaStreamPerThread ? &here().per_thread : s;
}

capture *capturing(cudaStream_t s)
{
    return stream_of(s)->recorder;
}

cudaError_t unsafe_while_capturing()
{
    bool spoils = false;

    if (here().thread_mode != cudaStreamCaptureModeRelaxed)
        for (capture *c : here().captures)
            if (c->mode != cudaStreamCaptureModeRelaxed)
                spoils = c->spoilt = true;
    return result(spoils ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
}

void add_implicit(cudaStream_t s, task *t)
{
    auto add = [t](const CUstream_st &other) {
        t->after.insert(t->after.end(), other.last.begin(), other.last.end());
    };

    if (!is_legacy(s)) {
        if (!(stream_of(s)->flags & cudaStreamNonBlocking))
            add(here().legacy);
        return;
    }
    add(here().per_thread);
    for (const auto &a : here().alive)
        if (a.second == "stream" &&
            !(((const CUstream_st *)a.first)->flags & cudaStreamNonBlocking))
            add(*(const CUstream_st *)a.first);
}

void pass()
{
    if (here().set.defer)
        return;
    if (!here().set.streams) {
        drain();
        return;
    }
    if (draw(4) == 0)
        here().haste = draw(3);
    while (!here().queue.empty() && here().haste > draw(2))
        run_any();
}

task_ref push(std::vector<task_ref> after, work w)
{
    task_ref t = std::make_shared<task>();

    t->run   = std::move(w);
    t->after = std::move(after);
    here().queue.push_back(t);
    return t;
}

size_t push_node(CUgraph_st *graph, std::set<size_t> after, work w)
{
    assert(after.empty() || *after.rbegin() < graph->nodes.size()); /* edges lead back */
    graph->nodes.push_back({std::move(w), std::move(after)});
    return graph->nodes.size() - 1;
}

cudaError_t check_enqueue(cudaStream_t s)
{
    if (!is_stream(s))
        return result(cudaErrorInvalidResourceHandle);
    /* it waits for all blocking streams: a captured one among them cannot be waited for */
    if (is_legacy(s))
        for (capture *c : here().captures)
            for (CUstream_st *member : c->streams)
                if (!(member->flags & cudaStreamNonBlocking)) {
                    c->spoilt = true;
                    return result(cudaErrorStreamCaptureImplicit);
                }
    if (capturing(s) && capturing(s)->spoilt)
        return result(cudaErrorStreamCaptureInvalidated);
    return cudaSuccess;
}

cudaError_t enqueue(cudaStream_t s, work w)
{
    cudaError_t e = check_enqueue(s);

    if (e != cudaSuccess)
        return e;
    if (capturing(s)) {
        s->tail = {push_node(capturing(s)->graph, s->tail, std::move(w))};
        return cudaSuccess;
    }
    task_ref t = push(stream_of(s)->last, std::move(w));
    add_implicit(s, t.get());
    stream_of(s)->last = {t};
    pass();
    return cudaSuccess;
}

cudaError_t wait_for(cudaStream_t s)
{
    std::vector<task_ref> last = stream_of(s)->last;

    if (is_legacy(s)) {
        task all;

        add_implicit(s, &all);
        last.insert(last.end(), all.after.begin(), all.after.end());
    }
    for (const task_ref &t : last)
        require(t);
    return result(here().sticky);
}

cudaError_t wait_for_all()
{
    drain();
    return result(here().sticky);
}

} // namespace stand_in

extern "C" {

cudaError_t vp_emulator_enqueue(cudaStream_t stream, void (*f)(void *args), const void *args,
                                size_t n_bytes)
{
    locked            hold(here().lock);
    const char       *from = (const char *)args;
    std::vector<char> kept(from, from + n_bytes);

    if (here().sticky != cudaSuccess)
        return result(here().sticky);
    return enqueue(stream, [f, kept]() mutable { f(kept.data()); });
}
}

void vp_emulator_set_streams(uint64_t seed)
{
    locked hold(here().lock);
    drain();
    here().set.streams = seed * 0x9e3779b97f4a7c15u;
}
