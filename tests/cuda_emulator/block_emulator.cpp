/* tests/cuda_emulator/block_emulator.cpp: a grid of blocks of threads on one thread of the CPU.
 *
 * Blocks run one after the other. The threads of a block are fibers: each has a stack, is made with
 * makecontext() and left and entered with _setjmp() and _longjmp(), which unlike swapcontext() make
 * no system call. A thread runs until it waits (__syncthreads, __syncwarp, a shuffle) or ends; then
 * one that is ready runs, of the first warp that has one: so one warp runs as far ahead of the
 * others as barriers let it, which is how a missing barrier shows, before what is read or after. A
 * fiber whose thread has ended takes the next thread that has not begun, so a kernel without
 * barriers needs one fiber, and a block costs little more than the calls of its threads.
 *
 * What a real device leaves undefined ends the launch here, with a sentence on stderr: a thread
 * that waits at a barrier where another has returned or waits elsewhere, a shuffle with lanes
 * that do not come, a shuffle from a lane outside the mask, too much shared memory, and what the
 * compiler's traps and the pages around device memory find (misaligned vectors, indices out of
 * bounds, addresses of nothing). */
#include "tests/cuda_emulator/emulator_internal.h"

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <link.h>
#include <map>
#include <string>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

uint3 threadIdx, blockIdx;
dim3  blockDim, gridDim;

namespace
{

enum {
    MAX_THREADS        = 1024,
    WARP               = 32,
    MAX_WARPS          = MAX_THREADS / WARP,
    STACK_BYTES        = 256 << 10,
    ALT_STACK_BYTES    = 64 << 10,
    MAX_DYNAMIC_SHARED = 256 << 10
};

/* ---- threads and fibers ---- */

struct fiber {
    ucontext_t context; /* for its first entry   */
    jmp_buf    env;     /* for every later one   */
    void      *stack;
    bool       entered;
};

enum wait_kind { NOT_BEGUN, RUNNING, WAITING, ENDED };

struct thread_state {
    uint3               idx;
    wait_kind           state;
    fiber              *on;
    vp_emulator_meeting what; /* while WAITING: for whom, where */
    const char         *file;
    int                 line;
    unsigned            mask;
    uint64_t            value; /* what it brings, then what it gets */
    int                 param, width;
};

thread_state threads[MAX_THREADS];
int          n_threads, current, n_ended, n_at_barrier;
/* lanes that wait for others of their warp */
unsigned warp_arrived[MAX_WARPS];
/* a bit for each that can run; of warps by their rank */
unsigned ready_lanes[MAX_WARPS], ready_warps;
int      warp_at[MAX_WARPS], rank_of[MAX_WARPS], first_lane;
/* in this block any thread that is ready may be next, not only one of the first warp */
bool                 any_warp;
std::vector<fiber *> fibers, idle;
fiber               *running;
jmp_buf              out_of_block; /* back to run_block(), all fibers left where they are */
sigjmp_buf           out_of_signal;
bool                 block_failed;

const vp_emulator_kernel    *kernel;
const std::function<void()> *body;

vp_emulator_order order;
uint64_t          random_state = 1;

uint64_t next_random()
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* These lanes of a warp can run; the thread that says so goes on by itself. */
void wake(int warp, unsigned lanes)
{
    if (current / WARP == warp && current >= 0)
        lanes &= ~(1u << (current % WARP));
    ready_lanes[warp] |= lanes;
    if (ready_lanes[warp])
        ready_warps |= 1u << rank_of[warp];
}

unsigned lanes_of(int warp)
{
    int n = n_threads - warp * WARP;
    return n >= WARP ? 0xffffffffu : (1u << n) - 1;
}

void wake_all()
{
    for (int warp = 0; warp * WARP < n_threads; warp++)
        wake(warp, lanes_of(warp));
}

/* The first bit that is set, from bit `from` on and around. */
int first_bit(unsigned bits, int from)
{
    unsigned turned = from == 0 ? bits : bits >> from | bits << (32 - from);
    return (__builtin_ctz(turned) + from) % 32;
}

int pop_ready()
{
    int warp = warp_at[first_bit(ready_warps, any_warp ? (int)(next_random() % 32) : 0)];
    int lane =
        order == VP_ORDER_REVERSE
            ? 31 - __builtin_clz(ready_lanes[warp])
            : first_bit(ready_lanes[warp], any_warp ? (int)(next_random() % 32) : first_lane);

    ready_lanes[warp] &= ~(1u << lane);
    if (ready_lanes[warp] == 0)
        ready_warps &= ~(1u << rank_of[warp]);
    return warp * WARP + lane;
}

/* Which warps go first in a block, and which of their lanes. */
void choose_order()
{
    bool shuffled = order == VP_ORDER_SHUFFLE;

    any_warp   = shuffled && next_random() % 2 == 0;
    first_lane = shuffled ? (int)(next_random() % 32) : 0;
    for (int w = 0; w < MAX_WARPS; w++)
        warp_at[w] = order == VP_ORDER_REVERSE ? MAX_WARPS - 1 - w : w;
    for (int w = MAX_WARPS - 1; shuffled && w > 0; w--)
        std::swap(warp_at[w], warp_at[next_random() % (uint64_t)(w + 1)]);
    for (int rank = 0; rank < MAX_WARPS; rank++)
        rank_of[warp_at[rank]] = rank;
}

void begin_thread(int t, fiber *on)
{
    current          = t;
    threads[t].state = RUNNING;
    threads[t].on    = on;
    threadIdx        = threads[t].idx;
}

void fiber_main();

fiber *take_fiber()
{
    fiber *f;

    if (!idle.empty()) {
        f = idle.back();
        idle.pop_back();
        return f;
    }
    long page = sysconf(_SC_PAGESIZE);

    f        = new fiber();
    f->stack = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->stack == MAP_FAILED || mprotect(f->stack, (size_t)page, PROT_NONE) != 0) {
        fprintf(stderr, "cuda emulator: no memory for the stack of a thread\n");
        abort();
    }
    fibers.push_back(f);
    return f;
}

/* Leave the fiber that runs for another. Its locals are safe: they are on its own stack, and
 * nothing is kept in registers across. */
__attribute__((noinline)) void change_to(fiber *to)
{
    fiber *from = running;

    if (from == to)
        return;
    running = to;
    if (from && _setjmp(from->env) != 0)
        return;
    if (!to->entered) {
        to->entered = true;
        getcontext(&to->context);
        to->context.uc_stack.ss_sp   = to->stack;
        to->context.uc_stack.ss_size = STACK_BYTES;
        to->context.uc_link          = nullptr;
        makecontext(&to->context, fiber_main, 0);
        setcontext(&to->context);
    }
    _longjmp(to->env, 1);
}

/* The stacks stay, what was on them is gone. */
void forget_fibers()
{
    idle.clear();
    for (fiber *f : fibers) {
        f->entered = false;
        idle.push_back(f);
    }
    running = nullptr;
}

/* ---- what went wrong ---- */

std::string place()
{
    char text[400];

    snprintf(text, sizeof text, "kernel %s, grid %ux%ux%u of %ux%ux%u threads, block (%u,%u,%u)",
             kernel->name, gridDim.x, gridDim.y, gridDim.z, blockDim.x, blockDim.y, blockDim.z,
             blockIdx.x, blockIdx.y, blockIdx.z);
    return text;
}

std::string name_of(int t)
{
    char text[64];

    snprintf(text, sizeof text, "thread (%u,%u,%u)", threads[t].idx.x, threads[t].idx.y,
             threads[t].idx.z);
    return text;
}

const char *meeting_name(vp_emulator_meeting what)
{
    switch (what) {
    case VP_MEET_BLOCK:
        return "__syncthreads";
    case VP_MEET_WARP:
        return "__syncwarp";
    case VP_MEET_BALLOT:
        return "a vote";
    case VP_MEET_MMA:
        return "a product by tensor cores";
    default:
        return "a shuffle";
    }
}

std::string where_waits(int t)
{
    char text[400];

    snprintf(text, sizeof text, "%s waits at %s, %s:%d", name_of(t).c_str(),
             meeting_name(threads[t].what), threads[t].file, threads[t].line);
    return text;
}

[[noreturn]] void fail(const std::string &why)
{
    vp_emulator_fault(cudaErrorLaunchFailure, "%s: %s", place().c_str(), why.c_str());
    block_failed = true;
    _longjmp(out_of_block, 1);
}

/* Nobody is ready, and not all have ended. */
[[noreturn]] void fail_stuck()
{
    int waiting = 0;

    while (threads[waiting].state != WAITING)
        waiting++;
    if (threads[waiting].what == VP_MEET_BLOCK) {
        for (int t = 0; t < n_threads; t++)
            if (threads[t].state == WAITING && threads[t].what != VP_MEET_BLOCK)
                fail(where_waits(waiting) + ", while " + where_waits(t));
        for (int t = 0; t < n_threads; t++)
            if (threads[t].state == ENDED)
                fail(where_waits(waiting) + ", where " + name_of(t) +
                     " never comes: it has returned");
    }
    int warp = waiting / WARP * WARP;
    for (int t = warp; t < warp + WARP; t++)
        if (threads[waiting].mask >> (t - warp) & 1) {
            if (t >= n_threads)
                fail(where_waits(waiting) + " for lane " + std::to_string(t - warp) +
                     " of its warp, which the block does not have");
            if (threads[t].state == ENDED)
                fail(where_waits(waiting) + " for " + name_of(t) + ", which has returned");
            if (threads[t].what != threads[waiting].what ||
                threads[t].line != threads[waiting].line)
                fail(where_waits(waiting) + ", while " + where_waits(t));
        }
    fail(where_waits(waiting) + " for nobody");
}

/* ---- the scheduler ---- */

/* All threads have ended: back to run_block(). The fiber is entered again, in a later block,
 * behind the call of this. */
__attribute__((noinline)) void leave_block()
{
    idle.push_back(running);
    if (_setjmp(running->env) == 0)
        _longjmp(out_of_block, 1);
}

/* The thread that runs cannot go on: to the next that can. Returns when it can again, or, where
 * it has ended, with another thread to begin on this fiber. */
void run_another()
{
    bool   ended = threads[current].state == ENDED;
    fiber *to    = running;

    if (ready_warps == 0 && n_ended == n_threads) {
        leave_block();
        return;
    }
    if (ready_warps == 0)
        fail_stuck();
    int t = pop_ready();

    if (threads[t].state != NOT_BEGUN) {
        if (ended)
            idle.push_back(running);
        to = threads[t].on;
    } else if (!ended) {
        to = take_fiber();
    }
    begin_thread(t, to);
    change_to(to);
}

void fiber_main()
{
    for (;;) {
        (*body)();
        threads[current].state = ENDED;
        n_ended++;
        run_another();
    }
}

/* ---- meetings ---- */

bool same_place(const thread_state *a, const thread_state *b)
{
    return a->what == b->what && a->line == b->line &&
           (a->file == b->file || strcmp(a->file, b->file) == 0);
}

/* Who comes last completes it for all. */
void complete_block()
{
    for (int t = 0; t < n_threads; t++)
        if (!same_place(&threads[t], &threads[current]))
            fail(where_waits(current) + ", while " + where_waits(t));
    n_at_barrier = 0;
    wake_all();
}

/* The lane that a lane's number comes from: itself where a shuffle reaches beyond the warp's
 * part of `width` lanes. */
int source_lane(const thread_state *t, int lane)
{
    int first = lane / t->width * t->width, end = first + t->width, from;

    switch (t->what) {
    case VP_MEET_SHFL:
        return first + (t->param & (t->width - 1));
    case VP_MEET_SHFL_UP:
        from = lane - t->param;
        return from < first ? lane : from;
    case VP_MEET_SHFL_DOWN:
        from = lane + t->param;
        return from >= end ? lane : from;
    case VP_MEET_SHFL_XOR:
        from = lane ^ t->param;
        return from >= end ? lane : from;
    default:
        return lane;
    }
}

/* What a lane brings to mma.m16n8k8. */
struct fragments {
    int          n, n_parts;
    float       *d[2];
    const float *a, *b;
};

enum { MMA_ROWS = 16, MMA_COLS = 8, MMA_DEPTH = 8, MOST_MMA = 16, MOST_PARTS = 2 };

/* Of a warp: a by rows, b and d by eight columns at a time. */
struct warp_product {
    float a[MOST_PARTS][MMA_ROWS][MMA_DEPTH], b[MOST_MMA][MMA_DEPTH][MMA_COLS],
        d[MOST_MMA][MMA_ROWS][MMA_COLS];
};

float as_tf32(float x)
{
    return __uint_as_float(__float_as_uint(x) & ~0x1fffu);
}

/* Lane 4 g + t has rows g and g + 8 of a and d, column g of b. */
void gather(const fragments *const (&of)[WARP], warp_product *x)
{
    for (int lane = 0; lane < WARP; lane++) {
        const fragments *f = of[lane];
        int              g = lane / 4, t = lane % 4;

        for (int i = 0; i < 4 * f->n_parts; i++)
            x->a[i / 4][g + i % 2 * 8][t + i % 4 / 2 * 4] = as_tf32(f->a[i]);
        for (int i = 0; i < f->n; i++)
            for (int half = 0; half < 2; half++) {
                x->b[i][t + 4 * half][g] = as_tf32(f->b[2 * i + half]);
                memcpy(&x->d[i][g + 8 * half][2 * t], f->d[half] + 2 * i, 2 * sizeof(float));
            }
    }
}

void multiply(warp_product *x, int n, int n_parts)
{
    for (int i = 0; i < n; i++)
        for (int row = 0; row < MMA_ROWS; row++) {
            float sum[MMA_COLS];

            memcpy(sum, x->d[i][row], sizeof sum);
            for (int part = 0; part < n_parts; part++)
                for (int k = 0; k < MMA_DEPTH; k++)
                    for (int col = 0; col < MMA_COLS; col++)
                        sum[col] = std::fma(x->a[part][row][k], x->b[i][k][col], sum[col]);
            memcpy(x->d[i][row], sum, sizeof sum);
        }
}

void scatter(const warp_product *x, const fragments *const (&of)[WARP])
{
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < of[lane]->n; i++)
            for (int half = 0; half < 2; half++)
                memcpy(of[lane]->d[half] + 2 * i, &x->d[i][lane / 4 + 8 * half][2 * (lane % 4)],
                       2 * sizeof(float));
}

void complete_mma(int warp)
{
    static warp_product x;
    const fragments    *of[WARP];

    for (int lane = 0; lane < WARP; lane++) {
        of[lane] = (const fragments *)threads[warp * WARP + lane].value;
        if (of[lane]->n != of[0]->n || of[lane]->n_parts != of[0]->n_parts)
            fail(where_waits(warp * WARP + lane) + " with fragments of another product");
    }
    gather(of, &x);
    multiply(&x, of[0]->n, of[0]->n_parts);
    scatter(&x, of);
}

void complete_warp(int warp, unsigned mask)
{
    uint64_t got[WARP], ballot = 0;

    for (int lane = 0; lane < WARP; lane++)
        if (mask >> lane & 1) {
            thread_state *t    = &threads[warp * WARP + lane];
            int           from = source_lane(t, lane);

            if (!same_place(t, &threads[current]) || t->mask != mask)
                fail(where_waits(current) + ", while " + where_waits(warp * WARP + lane) +
                     (t->mask != mask ? " with another mask" : ""));
            if (from < 0 || from >= WARP || !(mask >> from & 1))
                fail(where_waits(warp * WARP + lane) + " and reads lane " + std::to_string(from) +
                     ", which takes no part");
            got[lane] = threads[warp * WARP + from].value;
            ballot |= (uint64_t)(t->value & 1) << lane;
        }
    if (threads[current].what == VP_MEET_MMA)
        complete_mma(warp);
    for (int lane = 0; lane < WARP; lane++)
        if (mask >> lane & 1)
            threads[warp * WARP + lane].value =
                threads[current].what == VP_MEET_BALLOT ? ballot : got[lane];
    warp_arrived[warp] &= ~mask;
    wake(warp, mask);
}

/* ---- shared memory ---- */

/* All __shared__ variables are in this object's thread-local storage, with this byte to find it
 * by. */
thread_local char shared_mark;
char             *shared_at;
size_t            shared_bytes;
char             *dynamic_end; /* a page that may not be touched follows */
char             *dynamic_at;

int find_shared(struct dl_phdr_info *info, size_t, void *)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        char *at = (char *)info->dlpi_tls_data;

        if (info->dlpi_phdr[i].p_type != PT_TLS || !at)
            continue;
        if (&shared_mark >= at && &shared_mark < at + info->dlpi_phdr[i].p_memsz) {
            shared_at    = at;
            shared_bytes = info->dlpi_phdr[i].p_memsz;
            return 1;
        }
    }
    return 0;
}

void prepare_shared(size_t dynamic_bytes)
{
    if (!dynamic_end) {
        long  page = sysconf(_SC_PAGESIZE);
        char *p = (char *)mmap(nullptr, MAX_DYNAMIC_SHARED + (size_t)page, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (p == MAP_FAILED || mprotect(p + MAX_DYNAMIC_SHARED, (size_t)page, PROT_NONE) != 0) {
            fprintf(stderr, "cuda emulator: no memory for shared memory\n");
            abort();
        }
        dynamic_end = p + MAX_DYNAMIC_SHARED;
    }
    dynamic_at  = dynamic_end - (dynamic_bytes + 15) / 16 * 16;
    shared_mark = (char)VP_EMULATOR_POISON;
    dl_iterate_phdr(find_shared, nullptr);
}

void poison_shared()
{
    memset(shared_at, VP_EMULATOR_POISON, shared_bytes);
    memset(dynamic_at, VP_EMULATOR_POISON, (size_t)(dynamic_end - dynamic_at));
}

size_t static_shared_written()
{
    size_t n = 0;

    for (size_t i = 0; i < shared_bytes; i++)
        n += (unsigned char)shared_at[i] != VP_EMULATOR_POISON;
    return n;
}

/* ---- faults of the processor ---- */

const int        caught[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE};
struct sigaction before[sizeof caught / sizeof caught[0]];
stack_t          stack_before;

void on_signal(int signal, siginfo_t *info, void *)
{
    static char text[300];

    text[0] = 0;
    if (signal == SIGSEGV || signal == SIGBUS) {
        bool in_stack = false, in_dynamic = (char *)info->si_addr >= dynamic_end &&
                                            (char *)info->si_addr < dynamic_end + 65536;

        for (fiber *f : fibers)
            in_stack |= (char *)info->si_addr >= (char *)f->stack &&
                        (char *)info->si_addr < (char *)f->stack + 65536;
        if (in_stack)
            snprintf(text, sizeof text, "its stack of %d bytes overflows", (int)STACK_BYTES);
        else if (in_dynamic)
            snprintf(text, sizeof text, "touches byte %td of %zu of dynamic shared memory",
                     (char *)info->si_addr - dynamic_at, kernel->dynamic_bytes);
        else {
            snprintf(text, sizeof text, "touches address %p: ", info->si_addr);
            vp_emulator_describe_address(info->si_addr, text + strlen(text),
                                         sizeof text - strlen(text));
        }
        vp_emulator_fault(cudaErrorIllegalAddress, "%s, %s: %s", place().c_str(),
                          name_of(current).c_str(), text);
    } else if (signal == SIGFPE) {
        vp_emulator_fault(cudaErrorLaunchFailure, "%s, %s: a whole number divided by zero",
                          place().c_str(), name_of(current).c_str());
    } else {
        vp_emulator_fault(cudaErrorMisalignedAddress,
                          "%s, %s: a misaligned access, or an index beyond an array",
                          place().c_str(), name_of(current).c_str());
    }
    block_failed = true;
    siglongjmp(out_of_signal, 1);
}

/* cmocka and others have handlers of their own: ours are there while a grid runs. */
void catch_signals()
{
    static char      alt[ALT_STACK_BYTES];
    struct sigaction mine  = {};
    stack_t          stack = {};

    stack.ss_sp   = alt;
    stack.ss_size = sizeof alt;
    sigaltstack(&stack, &stack_before);
    mine.sa_sigaction = on_signal;
    mine.sa_flags     = SA_SIGINFO | SA_ONSTACK;
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++)
        sigaction(caught[i], &mine, &before[i]);
}

void release_signals()
{
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++)
        sigaction(caught[i], &before[i], nullptr);
    if (stack_before.ss_flags & SS_DISABLE)
        stack_before.ss_sp = nullptr;
    sigaltstack(&stack_before, nullptr);
}

/* ---- grids ---- */

void begin_block(uint64_t number)
{
    blockIdx.x = (unsigned)(number % gridDim.x);
    blockIdx.y = (unsigned)(number / gridDim.x % gridDim.y);
    blockIdx.z = (unsigned)(number / gridDim.x / gridDim.y);
    n_ended = n_at_barrier = 0;
    current                = -1;
    ready_warps            = 0;
    memset(warp_arrived, 0, sizeof warp_arrived);
    memset(ready_lanes, 0, sizeof ready_lanes);
    for (int t = 0; t < n_threads; t++)
        threads[t].state = NOT_BEGUN;
    choose_order();
    wake_all();
}

/* A function of its own: what _setjmp() returns to must not keep locals in registers. */
__attribute__((noinline)) void run_block()
{
    if (_setjmp(out_of_block) == 0) {
        fiber *first = take_fiber();

        running = nullptr;
        begin_thread(pop_ready(), first);
        change_to(first);
    }
}

uint64_t gcd(uint64_t a, uint64_t b)
{
    return b == 0 ? a : gcd(b, a % b);
}

std::map<const void *, bool> measured; /* kernels whose static shared memory has been looked at */

void check_static_shared(size_t limit)
{
    size_t written = static_shared_written();

    if (written + kernel->dynamic_bytes > limit) {
        vp_emulator_fault(
            cudaErrorInvalidValue,
            "kernel %s: %zu bytes of static and %zu of dynamic shared memory, %zu are allowed",
            kernel->name, written, kernel->dynamic_bytes, limit);
        block_failed = true;
    }
}

void run_blocks(size_t shared_limit)
{
    uint64_t n = (uint64_t)gridDim.x * gridDim.y * gridDim.z, first = 0, step = 1;
    bool     measure = !measured[kernel->entry];

    if (order == VP_ORDER_REVERSE)
        first = n - 1, step = n - 1; /* i -> n - 1 - i, modulo n */
    if (order == VP_ORDER_SHUFFLE) {
        first = next_random() % n;
        do
            step = 1 + next_random() % n;
        while (gcd(step, n) != 1);
    }
    for (uint64_t i = 0; i < n && !block_failed; i++) {
        begin_block((uint64_t)(((unsigned __int128)i * step + first) % n));
        poison_shared();
        run_block();
        if (measure && !block_failed) {
            check_static_shared(shared_limit);
            measured[kernel->entry] = true;
            measure                 = false;
        }
    }
}

} // namespace

uint64_t vp_emulator_meet(vp_emulator_meeting what, unsigned mask, uint64_t value, int param,
                          int width, const char *file, int line)
{
    thread_state *self = &threads[current];
    int           lane = current % WARP, warp = current / WARP;

    self->state = WAITING;
    self->what  = what;
    self->mask  = mask;
    self->value = value;
    self->param = param;
    self->width = width;
    self->file  = file;
    self->line  = line;
    if (what == VP_MEET_BLOCK) {
        if (++n_at_barrier < n_threads) {
            run_another();
            return 0;
        }
        complete_block();
    } else {
        if (!(mask >> lane & 1))
            fail(where_waits(current) + " with a mask that leaves it out");
        if (width != 1 && width != 2 && width != 4 && width != 8 && width != 16 && width != 32)
            fail(where_waits(current) + " with a width that is no power of two up to 32");
        warp_arrived[warp] |= 1u << lane;
        if ((warp_arrived[warp] & mask) != mask) {
            run_another();
            return self->value;
        }
        complete_warp(warp, mask);
    }
    self->state = RUNNING;
    return self->value;
}

void vp_emulator_mma_tf32(int n, int n_parts, float *d_low, float *d_high, const float *a,
                          const float *b, const char *file, int line)
{
    fragments mine = {n, n_parts, {d_low, d_high}, a, b};

    if (n < 1 || n > MOST_MMA || n_parts < 1 || n_parts > MOST_PARTS)
        fail("more products by tensor cores at once than the emulator has room for");
    vp_emulator_meet(VP_MEET_MMA, 0xffffffffu, (uint64_t)(uintptr_t)&mine, 0, WARP, file, line);
}

void *vp_emulator_dynamic_shared()
{
    return dynamic_at;
}

void vp_emulator_set_order(vp_emulator_order o, uint64_t seed)
{
    order        = o;
    random_state = seed * 0x9e3779b97f4a7c15u | 1u;
}

void vp_emulator_run_grid(const vp_emulator_kernel *k, const std::function<void()> &thread,
                          size_t shared_limit)
{
    kernel       = k;
    body         = &thread;
    block_failed = false;
    gridDim      = k->grid;
    blockDim     = k->block;
    n_threads    = (int)(k->block.x * k->block.y * k->block.z);
    for (int t = 0; t < n_threads; t++)
        threads[t].idx = uint3{(unsigned)t % blockDim.x, (unsigned)t / blockDim.x % blockDim.y,
                               (unsigned)t / blockDim.x / blockDim.y};
    prepare_shared(k->dynamic_bytes);
    catch_signals();
    if (sigsetjmp(out_of_signal, 1) == 0)
        run_blocks(shared_limit);
    release_signals();
    if (block_failed)
        forget_fibers();
}
