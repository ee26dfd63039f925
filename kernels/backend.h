/* kernels/backend.h: what executes kernel calls: the one door between runtime and hardware.
 *     VP_TRY(b->alloc(plan->peak_bytes, &arena, err));       // once
 *     VP_TRY(b->run(&call, err));                             // in order; on a device only
 *     enqueued
 *     VP_TRY(b->wait(err));
 *
 * A backend executes exactly the calls it is given, on memory it is given, one after the other. It
 * allocates nothing inside run(): what a kernel needs beyond its operands is on the stack and
 * bounded, or is the call's workspace (plan/workspace.h says how much).
 *
 * Numerics contract (docs/design.md). For given operands and attributes the result bits do not
 * depend on the number of threads, on chunking by whole tiles of 256 tokens, on where buffers lie,
 * or on whether an output shares an input's place:
 *   - a reduction over tokens (weight and bias gradients, norm gradients, loss) adds one tile of 256
 *     tokens after the other, in order, into the accumulator;
 *   - a GEMM over tokens is computed in fixed tiles of 256 rows by a fixed width of columns, each a
 *     single call into a one-thread BLAS with the same shape whatever the chunking;
 *   - every other reduction has an order fixed by shape alone;
 *   - in a bf16 call sums are fp32 and each bf16 result is rounded once, to nearest even; a bf16
 *     gradient of a parameter is so rounded, what was there added last;
 *   - random numbers come from vp_rng_stream. */
#ifndef VP_KERNELS_BACKEND_H
#define VP_KERNELS_BACKEND_H

#include "base/err.h"
#include "plan/memory.h"
#include "plan/op.h"

#include <stdbool.h>
#include <stdint.h>

/* One kernel call, resolved. operand[i] is NULL where an optional operand is absent. Sizes have
 * been checked against vp_kernel_operand_bytes(); tokens are within the vocabulary. */
typedef struct vp_kernel_call {
    vp_kernel kernel;
    /* vp_dtype_is_of_calls(): of operands that are VP_AS_CALL and VP_AS_GRAD. VP_DTYPE_TF32, of
     * products and attention: VP_ERR_INPUT on the CPU and below compute capability 8.0 */
    vp_dtype dtype;
    void    *operand[VP_MAX_OPERANDS];
    VP_NAMED_INTS;
    VP_NAMED_REALS;
    bool                        accumulate; /* VP_ACCUMULATE operands add to what is there */
    vp_rng_stream               rng;        /* of the step in which the call is made       */
    const vp_optimizer_numbers *optimizer;  /* for the optimizers                          */
    /* of this library and device (describe()), or unset: the library's default */
    vp_algorithm algorithm;
    /* NULL, or workspace_bytes at a multiple of VP_ALIGN_BYTES; holds nothing between calls */
    void   *workspace;
    int64_t workspace_bytes;
    /* of the step, in the arena; NULL: a call by itself. A recorded call that draws random
     * numbers finds there how many steps have passed since */
    const vp_control *control;
} vp_kernel_call;

/* An operand that attention_fwd and attention_bwd both have. */
#define VP_ATTENTION_OPERAND(call, NAME) \
    ((call)->kernel == VP_K_ATTENTION_FWD ? (call)->operand[VP_ATTENTION_FWD_##NAME] \
                                          : (call)->operand[VP_ATTENTION_BWD_##NAME])

/* Two for each copy that may be under way: when it may begin, and when it is done. And what the host was
 * given so far, and the kernels that it waits for. */
enum { VP_EVENT_HOST = 2 * VP_MAX_COPIES, VP_EVENT_FOR_HOST, VP_BACKEND_EVENTS };

/* Bytes on the device: all, and what nobody has now. By the driver's count, each -1 where it
 * does not tell: used by this process; in use by everybody, now and before this process opened
 * the device. */
typedef struct vp_backend_memory {
    int64_t total_bytes, free_bytes, used_bytes, all_used_bytes, all_used_before_bytes;
} vp_backend_memory;

typedef struct vp_backend_graph vp_backend_graph;

enum { VP_BACKEND_API = 9 };

typedef struct vp_backend {
    int         api_version;
    const char *name; /* "cpu", "cuda"                         */
    /* the arena is memory of this process: host code may read and write it */
    bool host_memory;
    /* compute capability, 90 for 9.0; 0: not a CUDA device */
    int compute_capability;
    /* of the device's last level; 0: not told */
    int64_t cache_bytes;
    /* what the driver calls the device; "" for the CPU */
    const char *device;
    /* One line for people: library, instruction set, threads; on a card device, driver and
     * libraries with their versions. What was measured under another line was measured
     * elsewhere. Static storage. */
    const char *(*describe)(void);
    /* Use n threads from now on (>= 1). Changes speed only. */
    void (*set_threads)(int n_threads);
    int (*threads)(void);

    /* One block of n_bytes (> 0) at a multiple of VP_ALIGN_BYTES. VP_ERR_DEVICE: it cannot be
     * had. release() takes NULL. */
    vp_status (*alloc)(int64_t n_bytes, void **out, vp_err *err);
    void (*release)(void *p, int64_t n_bytes);
    vp_status (*memory)(vp_backend_memory *out, vp_err *err);

    /* Give the device back for good, after everything on it was freed: of the backend only
     * device and describe() are left. Returns what others have in use there then, by the
     * driver's count; -1: not told. NULL where there is nothing to give back. */
    int64_t (*close)(void);

    /* To, from and on memory of alloc() or host_alloc(), after everything that all streams were given
     * so far; the other side may be used again on return. What fill() does belongs to
     * VP_STREAM_COMPUTE. */
    vp_status (*upload)(void *to, const void *from, int64_t n_bytes, vp_err *err);
    vp_status (*download)(void *to, const void *from, int64_t n_bytes, vp_err *err);
    vp_status (*fill)(void *to, int byte, int64_t n_bytes, vp_err *err);

    /* Memory of the host that the device reads and writes by itself, n_bytes (> 0) at a multiple
     * of VP_ALIGN_BYTES: where copy()'s host side lies, and that of send() and fetch(), which copy
     * on VP_STREAM_COMPUTE: only enqueued, so that they may be recorded. The host may write what is
     * sent, and read what is fetched, when wait() has returned. send and fetch are NULL where
     * host_memory: there the host writes and reads the arena itself. VP_ERR_DEVICE: it cannot be
     * had. host_release() takes NULL, and nothing under way. */
    vp_status (*host_alloc)(int64_t n_bytes, void **out, vp_err *err);
    void (*host_release)(void *p);
    vp_status (*send)(void *to, const void *from, int64_t n_bytes, vp_err *err);
    vp_status (*fetch)(void *to, const void *from, int64_t n_bytes, vp_err *err);

    /* Execute, or enqueue behind what was enqueued before; calls may be collected until another
     * function or another kind of call comes, which then returns their error. VP_ERR_INPUT: no
     * kernel of this backend can, or the workspace is smaller than it needs. */
    vp_status (*run)(const vp_kernel_call *call, vp_err *err);
    /* Enqueue on VP_STREAM_HOST a call of f(ctx) by the host, which asks nothing of this backend but, of
     * the CPU's, run(). It may be recorded, and is then made at each replay. */
    vp_status (*host)(void (*f)(void *ctx), void *ctx, vp_err *err);
    /* Until all streams are done. An error of an earlier call may show here. VP_ERR_DEVICE. */
    vp_status (*wait)(vp_err *err);

    /* Streams work beside each other, each in order: run() enqueues on VP_STREAM_COMPUTE, host() on
     * VP_STREAM_HOST, copy() on one of the two others, where to and from lie in the memories it goes between (host_alloc(),
     * alloc()) and stay as they are until it is done. mark() sets an event, 0 to
     * VP_BACKEND_EVENTS - 1, to what its stream has been given so far; what a stream is given after
     * after() waits for the event as it was last marked, and for nothing where it was not. Nothing
     * else orders two streams. All may be recorded: a recording begins and ends with all
     * streams joined, so an event marked outside of it has come inside, and the other way round;
     * a replay comes after all that any stream was given before it, and before what comes later. */
    vp_status (*copy)(vp_stream stream, void *to, const void *from, int64_t n_bytes, vp_err *err);
    vp_status (*mark)(vp_stream stream, int event, vp_err *err);
    vp_status (*after)(vp_stream stream, int event, vp_err *err);

    /* run() between record_begin() and record_end() only records; replay() enqueues all of it.
     * NULL where a backend executes at once. Operands stay where they were; numbers that change
     * are in the control block. */
    vp_status (*record_begin)(vp_err *err);
    vp_status (*record_end)(vp_backend_graph **out, vp_err *err);
    vp_status (*replay)(const vp_backend_graph *graph, vp_err *err);
    void (*graph_free)(vp_backend_graph *graph); /* takes NULL */

    /* Seconds a call takes, as the mean over these n_calls (> 0) one after the other, by the device's
     * clock and recorded as a step is: collected as a step's are, and no launch is waited for.
     * They may be executed twice. Waits. */
    vp_status (*time)(const vp_kernel_call *calls, int n_calls, double *seconds, vp_err *err);

    /* Algorithms a call could be computed with, all deterministic, best guess first; at most
     * max. NULL: this backend has no choice. */
    vp_status (*algorithms)(const vp_kernel_call *call, int max, vp_algorithm *out, int *n,
                            vp_err *err);
} vp_backend;

const vp_backend *vp_backend_cpu(void);

/* What a plugin exports. The device is opened by this call; the result is static. VP_ERR_DEVICE:
 * no driver, no device, a library that is too old: the message says which. */
vp_status vp_backend_open(int api_version, const vp_backend **out, vp_err *err);
typedef vp_status (*vp_backend_open_fn)(int api_version, const vp_backend **out, vp_err *err);

/* Plain C in float64 with the obvious loops, sharing no code with any backend: the oracle of the
 * kernel tests. Operands that are fp32 or bf16 in the plan are double here, whatever the call's
 * dtype. Not linked into any program. */
void vp_reference_run(const vp_kernel_call *call);

/* Fill n floats with numbers of a normal distribution, mean 0, standard deviation std, for
 * parameter initialisation: elements first .. first + n - 1, element i depends on (seed, name, i)
 * only. first is a multiple of VP_DRAW_UNIT. */
enum { VP_DRAW_UNIT = 1024 };
void vp_draw_normal(uint64_t seed, const char *name, double std, int64_t first, float *x,
                    int64_t n);

/* The same of a uniform distribution, from -sqrt(3) std to sqrt(3) std. */
void vp_draw_uniform(uint64_t seed, const char *name, double std, int64_t first, float *x,
                     int64_t n);

#endif
