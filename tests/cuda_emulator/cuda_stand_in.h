/* tests/cuda_emulator/cuda_stand_in.h: the CUDA runtime of a device that is this process, between the
 * files that make it up.
 *
 * Device memory is host memory between two pages that may not be touched. Work on streams is a list
 * of functions, each with those it comes after: the one before it in its stream, and what its stream
 * was told to wait for. They run in the order in which they were enqueued, whatever their stream,
 * which is a legal order: at once, or, with VPLAN_EMULATOR_DEFER=1, when somebody waits, so that a
 * host that does not wait sees old bytes. With VPLAN_EMULATOR_STREAMS=SEED they run in a random
 * legal order, some at once and some only when somebody waits for them, and a copy spoils its
 * destination as soon as it may begin: a wait that was left out shows.
 *
 * Captured streams add nodes to one graph instead, with edges of the same kind; a call that capture
 * does not allow fails and spoils the capture, as CUDA's programming guide has it. Errors of
 * kernels stay, as on a device whose context is lost.
 *
 * One lock is around every call; a kernel runs inside it. README.md lists the environment
 * variables.
 *
 *     cuda_stand_in_state.cpp     the environment, errors, what is alive, the report at the end
 *     cuda_stand_in_memory.cpp    device memory and pinned memory
 *     cuda_stand_in_work.cpp      streams' work and its order
 *     cuda_stand_in_copies.cpp    copies and fills
 *     cuda_stand_in_streams.cpp   streams and events
 *     cuda_stand_in_graphs.cpp    captures and graphs
 *     cuda_stand_in_device.cpp    what the device says of itself, errors' names, launches */
#ifndef VP_CUDA_STAND_IN_H
#define VP_CUDA_STAND_IN_H

#include "tests/cuda_emulator/emulator_internal.h"

#include <cstdarg>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

typedef std::function<void()> work;

/* A piece of work that is enqueued. */
struct task {
    work                               run;
    std::vector<std::shared_ptr<task>> after;
    bool                               done = false;
};

typedef std::shared_ptr<task> task_ref;

/* A piece of work that is recorded, and the nodes it comes after. */
struct node {
    work             run;
    std::set<size_t> after;
};

struct CUgraph_st {
    std::vector<node> nodes;
};

struct CUgraphExec_st {
    std::vector<node> nodes;
    task_ref          last; /* of its last launch */
};

struct capture {
    int64_t                 id;
    CUstream_st            *origin;
    cudaStreamCaptureMode   mode;
    bool                    spoilt;
    std::set<CUstream_st *> streams;
    CUgraph_st             *graph;
};

struct CUstream_st {
    unsigned              flags;
    std::vector<task_ref> last;     /* the next task comes after these */
    capture              *recorder; /* NULL: not captured */
    std::set<size_t>      tail;     /* the next node comes after these */
};

struct CUevent_st {
    unsigned                flags;
    bool                    recorded, captured;
    task_ref                reached;
    std::shared_ptr<double> at_s;
    int64_t                 capture_id;
    std::set<size_t>        tail;
};

namespace stand_in
{

/* ---- cuda_stand_in_state.cpp ---- */

struct settings {
    std::string name, fail_name;
    int64_t     memory_bytes, pinned_bytes, fail_at;
    /* what each takes on the device */
    int64_t context_bytes, handle_bytes, module_bytes, graph_bytes;
    /* in use by other processes, before and since the context was made */
    int64_t others_before, others_after;
    int     n_devices, sm, n_multiprocessors, driver;
    bool    defer, protect, leaks;
    /* the random state of the streams' order; 0: as enqueued */
    uint64_t streams;
    FILE    *log;
};

/* From the environment. */
settings read_settings();

struct emulator {
    std::recursive_mutex                lock;
    settings                            set = read_settings();
    std::map<std::string, int64_t>      calls;
    int64_t                             n_calls = 0;
    std::map<const void *, std::string> alive;
    std::deque<task_ref>                queue; /* as enqueued */
    std::vector<capture *>              captures;
    uint64_t                            haste       = 0; /* 0 to 2: nothing, some, all at once */
    int64_t                             n_captures  = 0;
    cudaStreamCaptureMode               thread_mode = cudaStreamCaptureModeGlobal;
    CUstream_st                         legacy = {}, per_thread = {};
    std::map<const void *, size_t>      dynamic_limit;
    std::set<const void *>              loaded; /* modules: of kernels that were launched */
    bool                                context = false; /* this process has one on the device    */
    bool                                opened  = false; /* and had one                           */
    cudaError_t                         last = cudaSuccess, sticky = cudaSuccess;
    char                                said[1000] = "";
};

/* The one there is. */
emulator &here();

typedef std::lock_guard<std::recursive_mutex> locked;

/* A sentence on stderr and in the log. */
void say(const char *format, va_list args);

/* e, which is the last error from now on unless it is none. */
cudaError_t result(cudaError_t e);

/* A call of the CUDA runtime begins: what it fails with before it does anything. */
cudaError_t begin(bool fails);

#define BEGIN(name, ...) \
    locked      hold(here().lock); \
    cudaError_t e_ = begin(vp_emulator_fails(name, __VA_ARGS__)); \
    if (e_ != cudaSuccess) \
    return e_

/* ---- cuda_stand_in_memory.cpp ---- */

struct allocation {
    char  *map;
    size_t map_bytes, size;
    bool   on_host;
};

/* By the address that the caller has. */
std::map<char *, allocation> &allocations();

/* By this process: memory, and what contexts, modules and handles take. */
int64_t device_bytes_taken();

/* The bytes between the closed pages and the memory were filled when it was made: says so if they
 * were written since. */
void check_margins(char *base, const allocation &a);

/* With VPLAN_EMULATOR_PROTECT=1 only work on the device may touch its memory: a host that reads
 * it dies. */
void open_memory(bool open);

/* Memory that is in allocations() goes. */
void release(char *base);

/* Whether n_bytes from p lie in one allocation, or in one of device memory only. */
bool lies_in(const void *p, size_t n_bytes, bool device_only);

/* ---- cuda_stand_in_work.cpp ---- */

bool         is_legacy(cudaStream_t s);
bool         is_stream(cudaStream_t s);
CUstream_st *stream_of(cudaStream_t s);

/* Of a stream that there is; NULL where it is not captured. */
capture *capturing(cudaStream_t s);

/* A call that a capture of the modes global and thread-local does not allow, unless the thread
 * has taken that upon itself. */
cudaError_t unsafe_while_capturing();

#define SAFE_ONLY() \
    if (unsafe_while_capturing() != cudaSuccess) \
    return cudaErrorStreamCaptureUnsupported

/* All that is enqueued runs. */
void drain();

/* t runs, and before it what it comes after. */
void require(task_ref t);

/* What may run now, runs: in a random order nothing, some of it or all, for some calls alike. */
void pass();

/* The legacy stream waits for all blocking streams, and they for it. */
void add_implicit(cudaStream_t s, task *t);

/* At the end of the list, or of a graph. */
task_ref push(std::vector<task_ref> after, work w);
size_t   push_node(CUgraph_st *graph, std::set<size_t> after, work w);

/* What a call fails with before it enqueues. */
cudaError_t check_enqueue(cudaStream_t s);
cudaError_t enqueue(cudaStream_t s, work w);

/* Until the stream is done, until all is done: the error that was met. */
cudaError_t wait_for(cudaStream_t s);
cudaError_t wait_for_all();

/* ---- cuda_stand_in_graphs.cpp ---- */

/* Ends a capture in all its streams: its graph is the caller's, or nobody's. */
CUgraph_st *end_capture(capture *c);

} // namespace stand_in

#endif
