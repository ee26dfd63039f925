/* tests/cuda_emulator/cuda_stand_in_state.cpp: the environment, errors, what is alive, the report at
 * the end. */
#include "tests/cuda_emulator/cuda_stand_in.h"

#include <cstdlib>
#include <cstring>

using namespace stand_in;

namespace
{

/* ---- what the environment says ---- */

/* The runtime's own memory on a device, which cudaMemGetInfo() counts as taken: some hundred MiB
 * on real ones. */
const int64_t CONTEXT_BYTES = (int64_t)512 << 20;

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

} // namespace

namespace stand_in
{

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
emulator &here()
{
    static emulator *e = new emulator();
    return *e;
}

void say(const char *format, va_list args)
{
    vsnprintf(here().said, sizeof here().said, format, args);
    fprintf(stderr, "cuda emulator: %s\n", here().said);
    if (here().set.log) {
        fprintf(here().set.log, "# %s\n", here().said);
        fflush(here().set.log);
    }
}

cudaError_t result(cudaError_t e)
{
    if (e != cudaSuccess && e != cudaErrorNotReady)
        here().last = e;
    return e;
}

cudaError_t begin(bool fails)
{
    if (here().set.n_devices < 0 || here().set.driver < CUDART_VERSION / 1000 * 1000)
        return result(cudaErrorInsufficientDriver);
    if (here().set.n_devices == 0)
        return result(cudaErrorNoDevice);
    if (fails)
        return result(cudaErrorUnknown);
    return here().sticky == cudaSuccess ? cudaSuccess : result(here().sticky);
}

} // namespace stand_in

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

/* ---- the end ---- */

namespace
{

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
