/* tests/cuda_emulator/cuda_stand_in.cpp: the CUDA runtime of a device that is this process: memory,
 * streams, events, recorded graphs.
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
 * variables. */
#include "tests/cuda_emulator/emulator_internal.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
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

namespace
{

/* ---- what the environment says ---- */

/* The runtime's own memory on a device, which cudaMemGetInfo() counts as taken: some hundred MiB
 * on real ones. */
const int64_t CONTEXT_BYTES = (int64_t)512 << 20;

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

int64_t number_of(const char *variable, int64_t otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? strtoll(text, nullptr, 10) : otherwise;
}

/* "A,B,..." into numbers; those left out stay. */
void numbers_of(const char *variable, std::initializer_list<int64_t *> numbers)
{
    const char *text = getenv(variable);

    for (int64_t *number : numbers) {
        if (!text || !*text)
            return;
        *number = strtoll(text, nullptr, 10);
        text    = strchr(text, ',') ? strchr(text, ',') + 1 : nullptr;
    }
}

settings read_settings()
{
    settings    s    = {};
    const char *name = getenv("VPLAN_EMULATOR_DEVICE"), *fail = getenv("VPLAN_EMULATOR_FAIL"),
               *log   = getenv("VPLAN_EMULATOR_LOG");
    const char *order = getenv("VPLAN_EMULATOR_ORDER");

    s.name          = name ? name : "Emulated GPU";
    s.memory_bytes  = number_of("VPLAN_EMULATOR_MEMORY", (int64_t)80 << 30);
    s.pinned_bytes  = number_of("VPLAN_EMULATOR_PINNED", (int64_t)80 << 30);
    s.context_bytes = CONTEXT_BYTES;
    numbers_of("VPLAN_EMULATOR_OUTSIDE",
               {&s.context_bytes, &s.handle_bytes, &s.module_bytes, &s.graph_bytes});
    numbers_of("VPLAN_EMULATOR_OTHERS", {&s.others_before});
    s.others_after = s.others_before;
    numbers_of("VPLAN_EMULATOR_OTHERS", {&s.others_before, &s.others_after});
    s.n_devices         = (int)number_of("VPLAN_EMULATOR_DEVICES", 1);
    s.sm                = (int)number_of("VPLAN_EMULATOR_SM", 90);
    s.n_multiprocessors = (int)number_of("VPLAN_EMULATOR_MULTIPROCESSORS", 132);
    s.driver            = (int)number_of("VPLAN_EMULATOR_DRIVER", CUDART_VERSION);
    s.defer             = number_of("VPLAN_EMULATOR_DEFER", 0) != 0;
    s.streams           = (uint64_t)number_of("VPLAN_EMULATOR_STREAMS", 0) * 0x9e3779b97f4a7c15u;
    s.protect           = number_of("VPLAN_EMULATOR_PROTECT", 0) != 0;
    s.leaks             = number_of("VPLAN_EMULATOR_LEAKS", 0) != 0;
    if (fail && *fail) {
        const char *colon = strchr(fail, ':');

        s.fail_name = colon ? std::string(fail, colon) : "";
        s.fail_at   = strtoll(colon ? colon + 1 : fail, nullptr, 10);
    }
    if (log && *log)
        s.log = fopen(log, "a");
    if (order && strncmp(order, "reverse", 7) == 0)
        vp_emulator_set_order(VP_ORDER_REVERSE, 1);
    if (order && strncmp(order, "shuffle", 7) == 0)
        vp_emulator_set_order(VP_ORDER_SHUFFLE,
                              order[7] == ':' ? strtoull(order + 8, nullptr, 10) : 1);
    return s;
}

/* Never destroyed: the last report is written after the destructors of static objects. */
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

emulator &here()
{
    static emulator *e = new emulator();
    return *e;
}

typedef std::lock_guard<std::recursive_mutex> locked;

void say(const char *format, va_list args)
{
    vsnprintf(here().said, sizeof here().said, format, args);
    fprintf(stderr, "cuda emulator: %s\n", here().said);
    if (here().set.log) {
        fprintf(here().set.log, "# %s\n", here().said);
        fflush(here().set.log);
    }
}

/* ---- results ---- */

cudaError_t result(cudaError_t e)
{
    if (e != cudaSuccess && e != cudaErrorNotReady)
        here().last = e;
    return e;
}

/* A call of the CUDA runtime begins: what it fails with before it does anything. */
cudaError_t begin(const char *name, bool fails)
{
    (void)name;
    if (here().set.n_devices < 0 || here().set.driver < CUDART_VERSION / 1000 * 1000)
        return result(cudaErrorInsufficientDriver);
    if (here().set.n_devices == 0)
        return result(cudaErrorNoDevice);
    if (fails)
        return result(cudaErrorUnknown);
    return here().sticky == cudaSuccess ? cudaSuccess : result(here().sticky);
}

#define BEGIN(name, ...) \
    locked      hold(here().lock); \
    cudaError_t e_ = begin(name, vp_emulator_fails(name, __VA_ARGS__)); \
    if (e_ != cudaSuccess) \
    return e_

/* ---- memory ---- */

enum { DEVICE_ALIGN = 256, POISONED_BYTES = 256 << 20, DRIVER_PIECE = 2 << 20 };

struct allocation {
    char  *map;
    size_t map_bytes, size;
    bool   on_host;
};

std::map<char *, allocation> &allocations()
{
    static auto *all = new std::map<char *, allocation>();
    return *all;
}

size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* The driver hands out memory in pieces; small allocations share them. Handles are known by
 * their kinds. */
int64_t device_bytes_taken()
{
    size_t  large = 0, small = 0;
    int64_t outside = (here().context ? here().set.context_bytes : 0) +
                      (int64_t)here().loaded.size() * here().set.module_bytes;

    for (const auto &a : here().alive)
        outside += a.second == "executable graph"                  ? here().set.graph_bytes
                   : a.second.find(" handle") != std::string::npos ? here().set.handle_bytes
                                                                   : 0;

    for (const auto &a : allocations())
        if (!a.second.on_host)
            *(a.second.size >= DRIVER_PIECE / 2 ? &large : &small) +=
                round_up(a.second.size, a.second.size >= DRIVER_PIECE / 2 ? DRIVER_PIECE : 512);
    return outside + (int64_t)(large + round_up(small, DRIVER_PIECE));
}

int64_t device_bytes_free()
{
    return here().set.memory_bytes - device_bytes_taken() -
           (here().opened ? here().set.others_after : here().set.others_before);
}

/* The allocation that p lies in, its end included. */
const allocation *find_allocation(const void *p, char **base)
{
    auto it = allocations().upper_bound((char *)p);

    if (it == allocations().begin())
        return nullptr;
    --it;
    if ((char *)p > it->first + it->second.size)
        return nullptr;
    *base = it->first;
    return &it->second;
}

/* The bytes between the pages and the memory were filled when it was made. */
void check_margins(char *base, const allocation &a)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    for (char *p = a.map + page; p < a.map + a.map_bytes - page; p++) {
        if (p == base)
            p += a.size;
        if (p < a.map + a.map_bytes - page && (unsigned char)*p != VP_EMULATOR_POISON) {
            vp_emulator_say("%s memory of %zu bytes was written at byte %td",
                            a.on_host ? "pinned host" : "device", a.size, p - base);
            return;
        }
    }
}

cudaError_t allocate(void **out, size_t size, bool on_host)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE),
           body = round_up(round_up(size, DEVICE_ALIGN), page);
    char *map   = (char *)mmap(nullptr, body + 2 * page, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
         *base;

    if (map == MAP_FAILED || mprotect(map, page, PROT_NONE) != 0 ||
        mprotect(map + page + body, page, PROT_NONE) != 0)
        return cudaErrorMemoryAllocation;
    base = map + page + body - round_up(size, DEVICE_ALIGN);
    if (body <= POISONED_BYTES) {
        memset(map + page, VP_EMULATOR_POISON, body);
    } else {
        memset(map + page, VP_EMULATOR_POISON, (size_t)(base - (map + page)));
        memset(base + size, VP_EMULATOR_POISON, (size_t)(map + page + body - (base + size)));
    }
    allocations()[base] = {map, body + 2 * page, size, on_host};
    if (here().set.protect && !on_host)
        mprotect(map + page, body, PROT_NONE);
    *out = base;
    return cudaSuccess;
}

/* With VPLAN_EMULATOR_PROTECT=1 only work on the device may touch its memory: a host that reads
 * it dies. */
void open_memory(bool open)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (!here().set.protect)
        return;
    for (const auto &a : allocations())
        if (!a.second.on_host)
            mprotect(a.second.map + page, a.second.map_bytes - 2 * page,
                     open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void release(char *base)
{
    allocation a = allocations()[base];

    open_memory(true);
    check_margins(base, a);
    open_memory(false);
    munmap(a.map, a.map_bytes);
    allocations().erase(base);
}

bool lies_in(const void *p, size_t n_bytes, bool device_only)
{
    char             *base;
    const allocation *a = find_allocation(p, &base);

    return a && (char *)p + n_bytes <= base + a->size && (!device_only || !a->on_host);
}

/* ---- work ---- */

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

/* Of a stream that there is. */
capture *capturing(cudaStream_t s)
{
    return stream_of(s)->recorder;
}

/* A call that a capture of the modes global and thread-local does not allow, unless the thread
 * has taken that upon itself. */
cudaError_t unsafe_while_capturing()
{
    bool spoils = false;

    if (here().thread_mode != cudaStreamCaptureModeRelaxed)
        for (capture *c : here().captures)
            if (c->mode != cudaStreamCaptureModeRelaxed)
                spoils = c->spoilt = true;
    return result(spoils ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
}

#define SAFE_ONLY() \
    if (unsafe_while_capturing() != cudaSuccess) \
    return cudaErrorStreamCaptureUnsupported

/* The legacy stream waits for all blocking streams, and they for it. */
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

/* Runs what may run now: in a random order nothing, some of it or all, for some calls alike. */
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
    graph->nodes.push_back({std::move(w), std::move(after)});
    return graph->nodes.size() - 1;
}

/* What a call fails with before it enqueues. */
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

/* A copy on a stream may have written anything of its destination as soon as it may begin. */
cudaError_t enqueue_copy(cudaStream_t s, void *dst, size_t count, work w)
{
    cudaError_t e = cudaSuccess;

    if (here().set.streams && count > 0)
        e = enqueue(s, [=]() { memset(dst, VP_EMULATOR_POISON, count); });
    return e == cudaSuccess ? enqueue(s, std::move(w)) : e;
}

/* Until the stream is done: the error that was met. */
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

/* Until all is done: the error that was met. */
cudaError_t wait_for_all()
{
    drain();
    return result(here().sticky);
}

/* What the host asks for and waits for. */
cudaError_t perform_now(const work &w)
{
    cudaError_t e = enqueue(cudaStreamLegacy, w);

    return e == cudaSuccess ? wait_for(cudaStreamLegacy) : e;
}

/* ---- copies ---- */

/* The direction is the caller's promise; both ends must keep it, whole. */
cudaError_t check_copy(const void *dst, const void *src, size_t n, cudaMemcpyKind kind,
                       bool *to_device, bool *from_device)
{
    if (kind == cudaMemcpyDefault) {
        *to_device   = lies_in(dst, 0, true);
        *from_device = lies_in(src, 0, true);
    } else if (kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDeviceToDevice) {
        *to_device   = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
        *from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    } else {
        return cudaErrorInvalidMemcpyDirection;
    }
    if (n == 0)
        return cudaSuccess;
    if (!dst || !src || (*to_device && !lies_in(dst, n, false)) ||
        (*from_device && !lies_in(src, n, false)) || (!*to_device && lies_in(dst, 1, true)) ||
        (!*from_device && lies_in(src, 1, true))) {
        vp_emulator_say(
            "a copy of %zu bytes from %p to %p, direction %d: not the memory it says, or not all of it",
            n, src, dst, (int)kind);
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

/* ---- time ---- */

double now_s()
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- errors ---- */

const struct {
    cudaError_t e;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorCudartUnloading, "cudaErrorCudartUnloading", "the runtime is being unloaded"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid direction of a copy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "no driver, or one older than the runtime"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device number"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel for this device"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources for a launch"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "a misaligned address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "not permitted while a stream is captured"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "the capture has failed because of an earlier error"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "the capture was not begun in this stream"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge", "two captures would become one"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "a stream that was forked into the capture was not joined"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "a dependency would cross the border of the capture"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "the legacy stream would depend on a captured one"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "the event was last recorded in a captured stream"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

/* ---- the end ---- */

/* After the backend's own destructors, which have numbers above 100 or none. */
__attribute__((destructor(101))) void report_leaks()
{
    std::map<std::string, int> left;
    size_t                     bytes[2] = {0, 0};
    int                        n[2]     = {0, 0};

    if (here().set.log)
        fflush(here().set.log);
    if (!here().set.leaks)
        return;
    open_memory(true);
    for (const auto &a : allocations()) {
        check_margins(a.first, a.second);
        bytes[a.second.on_host] += a.second.size;
        n[a.second.on_host]++;
    }
    for (int on_host = 0; on_host < 2; on_host++)
        if (n[on_host])
            fprintf(stderr, "cuda emulator: left: %d of %s memory, %zu bytes\n", n[on_host],
                    on_host ? "pinned host" : "device", bytes[on_host]);
    for (const auto &a : here().alive)
        left[a.second]++;
    for (const auto &kind : left)
        fprintf(stderr, "cuda emulator: left: %d of %s\n", kind.second, kind.first.c_str());
    fprintf(stderr, "cuda emulator: %lld calls\n", (long long)here().n_calls);
}

} // namespace

/* ---- what the other stand-ins use ---- */

extern "C" {

bool vp_emulator_fails(const char *name, const char *format, ...)
{
    locked    hold(here().lock);
    emulator &e     = here();
    int64_t   of_it = ++e.calls[name];
    bool      fails;

    e.n_calls++;
    fails = e.set.fail_at > 0 &&
            (e.set.fail_name.empty() ? e.n_calls == e.set.fail_at
                                     : e.set.fail_name == name && of_it == e.set.fail_at);
    if (e.set.log) {
        va_list args;

        fprintf(e.set.log, "%lld %s(", (long long)e.n_calls, name);
        va_start(args, format);
        vfprintf(e.set.log, format, args);
        va_end(args);
        fprintf(e.set.log, ")%s\n", fails ? " fails" : "");
        fflush(e.set.log);
    }
    return fails;
}

void vp_emulator_say(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    say(format, args);
    va_end(args);
}

const char *vp_emulator_said(void)
{
    return here().said;
}

void vp_emulator_born(const char *kind, const void *handle)
{
    locked hold(here().lock);
    here().alive[handle] = kind;
}

bool vp_emulator_lives(const char *kind, const void *handle)
{
    locked hold(here().lock);
    auto   it = here().alive.find(handle);
    return it != here().alive.end() && it->second == kind;
}

void vp_emulator_dies(const void *handle)
{
    locked hold(here().lock);
    here().alive.erase(handle);
}

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

void vp_emulator_fault(cudaError_t error, const char *format, ...)
{
    va_list args;

    if (here().sticky != cudaSuccess)
        return;
    here().sticky = error;
    va_start(args, format);
    say(format, args);
    va_end(args);
}

bool vp_emulator_is_device(const void *p, size_t n_bytes)
{
    locked hold(here().lock);
    return lies_in(p, n_bytes, false);
}

int64_t vp_emulator_own_bytes(void)
{
    locked hold(here().lock);
    return device_bytes_taken();
}

int64_t vp_emulator_others_bytes(void)
{
    locked hold(here().lock);
    return here().opened ? here().set.others_after : here().set.others_before;
}

int vp_emulator_sm(void)
{
    return here().set.sm;
}
}

void vp_emulator_set_streams(uint64_t seed)
{
    locked hold(here().lock);
    drain();
    here().set.streams = seed * 0x9e3779b97f4a7c15u;
}

void vp_emulator_describe_address(const void *p, char *text, size_t n_bytes)
{
    const char *at = (const char *)p, *base = nullptr;
    size_t      size = 0;
    ptrdiff_t   best = 0;

    for (const auto &a : allocations()) {
        const char *begin = a.first, *end = a.first + a.second.size;
        ptrdiff_t   distance = at < begin ? begin - at : at >= end ? at - end + 1 : 0;

        if (!base || distance < best)
            base = begin, size = a.second.size, best = distance;
    }
    if (!base || best > (1 << 20))
        snprintf(text, n_bytes, "no device memory is near");
    else
        snprintf(text, n_bytes, "byte %td of device memory of %zu bytes", at - base, size);
}

/* ---- launches ---- */

/* Bytes of shared memory that a block may have when asked for, by compute capability: CUDA C++
 * Programming Guide, technical specifications. */
static size_t shared_bytes_optin()
{
    switch (vp_emulator_sm()) {
    case 80:
    case 87:
        return 163 << 10;
    case 86:
    case 89:
    case 120:
    case 121:
        return 99 << 10;
    case 75:
        return 64 << 10;
    default:
        return vp_emulator_sm() >= 90 ? 227 << 10 : 96 << 10;
    }
}

enum { SHARED_BYTES = 48 << 10 };

static cudaError_t check_launch(const vp_emulator_kernel *k, int bad_argument,
                                const void *bad_pointer)
{
    uint64_t n_threads = (uint64_t)k->block.x * k->block.y * k->block.z;
    auto     raised    = here().dynamic_limit.find(k->entry);
    size_t   limit = raised == here().dynamic_limit.end() ? (size_t)SHARED_BYTES : raised->second;

    if (n_threads == 0 || n_threads > 1024 || k->block.z > 64 || k->grid.x == 0 || k->grid.y == 0 ||
        k->grid.z == 0 || k->grid.x > 0x7fffffffu || k->grid.y > 65535 || k->grid.z > 65535) {
        vp_emulator_say("kernel %s: a grid of %ux%ux%u blocks of %ux%ux%u threads cannot be",
                        k->name, k->grid.x, k->grid.y, k->grid.z, k->block.x, k->block.y,
                        k->block.z);
        return cudaErrorInvalidConfiguration;
    }
    if (k->dynamic_bytes > limit) {
        vp_emulator_say("kernel %s: %zu bytes of dynamic shared memory, %zu are allowed", k->name,
                        k->dynamic_bytes, limit);
        return cudaErrorInvalidValue;
    }
    if (bad_argument) {
        vp_emulator_say("kernel %s: argument %d is %p, which is no device memory", k->name,
                        bad_argument, bad_pointer);
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

static cudaError_t launch(const vp_emulator_kernel *kernel, cudaStream_t stream,
                          const std::function<void()> &thread, int bad_argument,
                          const void *bad_pointer)
{
    BEGIN("cudaLaunchKernel", "%s, %ux%ux%u, %ux%ux%u, %zu", kernel->name, kernel->grid.x,
          kernel->grid.y, kernel->grid.z, kernel->block.x, kernel->block.y, kernel->block.z,
          kernel->dynamic_bytes);
    cudaError_t e = check_launch(kernel, bad_argument, bad_pointer);

    if (e != cudaSuccess)
        return result(e);
    here().loaded.insert(kernel->entry);
    vp_emulator_kernel copy = *kernel;
    size_t             limit =
        here().dynamic_limit.count(kernel->entry) ? shared_bytes_optin() : (size_t)SHARED_BYTES;

    return enqueue(stream, [copy, thread, limit]() { vp_emulator_run_grid(&copy, thread, limit); });
}

/* As VP_LAUNCH on a device: the launch, then the last error, which is forgotten. */
cudaError_t vp_emulator_launch(const vp_emulator_kernel *kernel, cudaStream_t stream,
                               const std::function<void()> &thread, int bad_argument,
                               const void *bad_pointer)
{
    launch(kernel, stream, thread, bad_argument, bad_pointer);
    return cudaGetLastError();
}

/* ---- the runtime's interface ---- */

extern "C" {

cudaError_t cudaGetLastError(void)
{
    locked      hold(here().lock);
    cudaError_t e = here().last;
    here().last   = here().sticky;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    locked hold(here().lock);
    return here().last;
}

const char *cudaGetErrorName(cudaError_t error)
{
    for (const auto &known : errors)
        if (known.e == error)
            return known.name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (const auto &known : errors)
        if (known.e == error)
            return known.text;
    return "unrecognized error code";
}

cudaError_t cudaDriverGetVersion(int *version)
{
    locked hold(here().lock);
    if (vp_emulator_fails("cudaDriverGetVersion", "%s", ""))
        return result(cudaErrorUnknown);
    *version = here().set.n_devices < 0 ? 0 : here().set.driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    locked hold(here().lock);
    if (vp_emulator_fails("cudaRuntimeGetVersion", "%s", ""))
        return result(cudaErrorUnknown);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    BEGIN("cudaGetDeviceCount", "%s", "");
    *count = here().set.n_devices;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    BEGIN("cudaGetDevice", "%s", "");
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    BEGIN("cudaSetDevice", "%d", device);
    if (device < 0 || device >= here().set.n_devices)
        return result(cudaErrorInvalidDevice);
    here().context = here().opened = true; /* since CUDA 12 */
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    BEGIN("cudaGetDeviceProperties", "%d", device);
    if (device < 0 || device >= here().set.n_devices)
        return result(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", here().set.name.c_str());
    p->totalGlobalMem      = (size_t)here().set.memory_bytes;
    p->major               = here().set.sm / 10;
    p->minor               = here().set.sm % 10;
    p->multiProcessorCount = here().set.n_multiprocessors;
    p->warpSize            = 32;
    p->maxThreadsPerBlock  = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2]                       = 64;
    p->maxGridSize[0]                         = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->sharedMemPerBlock                  = SHARED_BYTES;
    p->sharedMemPerBlockOptin             = shared_bytes_optin();
    p->sharedMemPerMultiprocessor         = shared_bytes_optin() + 1024;
    p->l2CacheSize                        = 50 << 20;
    p->memoryBusWidth                     = 5120;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    BEGIN("cudaDeviceGetAttribute", "%d, %d", (int)attr, device);
    if (device < 0 || device >= here().set.n_devices)
        return result(cudaErrorInvalidDevice);
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = 1024;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = SHARED_BYTES;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)shared_bytes_optin();
        break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = (int)shared_bytes_optin() + 1024;
        break;
    case cudaDevAttrWarpSize:
        *value = 32;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = here().set.n_multiprocessors;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = here().set.sm / 10;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = here().set.sm % 10;
        break;
    case cudaDevAttrClockRate:
        *value = 1755000;
        break;
    case cudaDevAttrMemoryClockRate:
        *value = 2619000;
        break;
    case cudaDevAttrGlobalMemoryBusWidth:
        *value = 5120;
        break;
    case cudaDevAttrL2CacheSize:
        *value = 50 << 20;
        break;
    case cudaDevAttrIntegrated:
    case cudaDevAttrPciBusId:
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
        *value = 0;
        break;
    default:
        return result(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int n_bytes, int device)
{
    BEGIN("cudaDeviceGetPCIBusId", "%d", device);
    if (device < 0 || device >= here().set.n_devices)
        return result(cudaErrorInvalidDevice);
    snprintf(text, (size_t)n_bytes, "0000:00:00.0");
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    BEGIN("cudaDeviceSynchronize", "%s", "");
    SAFE_ONLY();
    return wait_for_all();
}

/* All of the process's memory and handles on the device are gone, and so is a fault. */
cudaError_t cudaDeviceReset(void)
{
    locked hold(here().lock);
    if (vp_emulator_fails("cudaDeviceReset", "%s", ""))
        return result(cudaErrorUnknown);
    here().queue.clear();
    for (capture *c : here().captures) {
        delete c->graph;
        delete c;
    }
    here().captures.clear();
    here().legacy.last.clear();
    here().per_thread.last.clear();
    here().loaded.clear();
    here().context = false;
    here().alive.clear();
    while (!allocations().empty())
        release(allocations().begin()->first);
    here().last = here().sticky = cudaSuccess;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t size)
{
    BEGIN("cudaMalloc", "%zu", size);
    SAFE_ONLY();
    *p = nullptr;
    if (size == 0)
        return cudaSuccess;
    here().context = here().opened = true;
    if ((int64_t)size < 0 ||
        (int64_t)round_up(size, size >= DRIVER_PIECE / 2 ? DRIVER_PIECE : 512) >
            device_bytes_free())
        return result(cudaErrorMemoryAllocation);
    return result(allocate(p, size, false));
}

cudaError_t cudaFree(void *p)
{
    BEGIN("cudaFree", "%s", p ? "memory" : "nothing");
    SAFE_ONLY();
    if (!p)
        return cudaSuccess;
    auto it = allocations().find((char *)p);
    if (it == allocations().end() || it->second.on_host)
        return result(cudaErrorInvalidValue);
    drain();
    release((char *)p);
    return result(here().sticky);
}

cudaError_t cudaHostAlloc(void **p, size_t size, unsigned int flags)
{
    BEGIN("cudaHostAlloc", "%zu, %u", size, flags);
    SAFE_ONLY();
    *p             = nullptr;
    here().context = here().opened = true;
    int64_t pinned                 = 0;
    for (const auto &a : allocations())
        pinned += a.second.on_host ? (int64_t)a.second.size : 0;
    if ((int64_t)size < 0 || (int64_t)size > here().set.pinned_bytes - pinned)
        return result(cudaErrorMemoryAllocation);
    return size == 0 ? cudaSuccess : result(allocate(p, size, true));
}

cudaError_t cudaMallocHost(void **p, size_t size)
{
    return cudaHostAlloc(p, size, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *p)
{
    BEGIN("cudaFreeHost", "%s", p ? "memory" : "nothing");
    SAFE_ONLY();
    if (!p)
        return cudaSuccess;
    auto it = allocations().find((char *)p);
    if (it == allocations().end() || !it->second.on_host)
        return result(cudaErrorInvalidValue);
    drain();
    release((char *)p);
    return result(here().sticky);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    BEGIN("cudaMemGetInfo", "%s", "");
    here().context = here().opened = true;
    *total                         = (size_t)here().set.memory_bytes;
    *free_bytes                    = (size_t)(device_bytes_free() > 0 ? device_bytes_free() : 0);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    bool to_device, from_device;

    BEGIN("cudaMemcpy", "%zu, %d", count, (int)kind);
    SAFE_ONLY();
    cudaError_t e = check_copy(dst, src, count, kind, &to_device, &from_device);
    if (e != cudaSuccess)
        return result(e);
    return perform_now([=]() { memmove(dst, src, count); });
}

/* Pageable host memory is read before the call returns, and written before it returns; pinned
 * memory at the copy's turn. */
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    bool to_device, from_device;

    BEGIN("cudaMemcpyAsync", "%zu, %d", count, (int)kind);
    cudaError_t e = check_copy(dst, src, count, kind, &to_device, &from_device);
    if (e != cudaSuccess)
        return result(e);
    if (!is_stream(stream))
        return result(cudaErrorInvalidResourceHandle);
    if (capturing(stream) || count == 0)
        return enqueue_copy(stream, dst, count, [=]() { memmove(dst, src, count); });
    if (to_device && !from_device && !lies_in(src, count, false)) {
        std::vector<char> staged((const char *)src, (const char *)src + count);
        return enqueue_copy(stream, dst, count,
                            [dst, staged]() { memcpy(dst, staged.data(), staged.size()); });
    }
    e = enqueue_copy(stream, dst, count, [=]() { memmove(dst, src, count); });
    if (e == cudaSuccess && !to_device && !lies_in(dst, count, false))
        e = wait_for(stream);
    return e;
}

cudaError_t cudaMemset(void *p, int value, size_t count)
{
    BEGIN("cudaMemset", "%d, %zu", value, count);
    SAFE_ONLY();
    if (count && !lies_in(p, count, false))
        return result(cudaErrorInvalidValue);
    return perform_now([=]() { memset(p, value, count); });
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t count, cudaStream_t stream)
{
    BEGIN("cudaMemsetAsync", "%d, %zu", value, count);
    if (count && !lies_in(p, count, false))
        return result(cudaErrorInvalidValue);
    return enqueue(stream, [=]() { memset(p, value, count); });
}

/* ---- streams ---- */

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

/* Ends a capture in all its streams: its graph is the caller's, or nobody's. */
static CUgraph_st *end_capture(capture *c)
{
    CUgraph_st *graph = c->graph;

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

/* ---- graphs ---- */

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

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t f, void *data)
{
    BEGIN("cudaLaunchHostFunc", "%s", "");
    return enqueue(stream, [=]() { f(data); });
}

cudaError_t cudaFuncSetAttribute(const void *entry, enum cudaFuncAttribute attr, int value)
{
    BEGIN("cudaFuncSetAttribute", "%d, %d", (int)attr, value);
    if (attr == cudaFuncAttributePreferredSharedMemoryCarveout)
        return cudaSuccess;
    if (attr != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        (size_t)value > shared_bytes_optin())
        return result(cudaErrorInvalidValue);
    here().dynamic_limit[entry] = (size_t)value;
    return cudaSuccess;
}
}
