/* kernels/backend.h: what executes kernel calls: the one door between runtime and hardware.
 *     VP_TRY(b->alloc(plan->peak_bytes, &arena, err));       // once
 *     VP_TRY(b->run(&call, err));                             // in order; on a device only enqueued
 *     VP_TRY(b->wait(err));
 *
 * A backend executes exactly the calls it is given, on memory it is given, one after the other. It allocates nothing
 * inside run(): what a kernel needs beyond its operands is on the stack and bounded, or is the call's workspace
 * (core/workspace.h says how much).
 *
 * Numerics contract (DESIGN section 8). For given operands and attributes the result bits do not
 * depend on the number of threads, on chunking by whole tiles of 256 tokens, on where buffers lie, or
 * on whether an output shares an input's place:
 *   - a reduction over tokens (weight and bias gradients, norm gradients, loss) adds one tile of 256
 *     tokens after the other, in order, into the accumulator;
 *   - a GEMM over tokens is computed in fixed tiles of 256 rows by a fixed width of columns, each a
 *     single call into a one-thread BLAS with the same shape whatever the chunking;
 *   - every other reduction has an order fixed by shape alone;
 *   - in a bf16 call sums are fp32 and each bf16 result is rounded once, to nearest even;
 *   - random numbers come from vp_rng_stream. */
#ifndef VP_KERNELS_BACKEND_H
#define VP_KERNELS_BACKEND_H

#include "core/err.h"
#include "core/op.h"

#include <stdbool.h>
#include <stdint.h>

/* One kernel call, resolved. operand[i] is NULL where an optional operand is absent. Sizes have been
 * checked against vp_kernel_operand_bytes(); tokens are within the vocabulary. */
typedef struct vp_kernel_call {
    vp_kernel                   kernel;
    vp_dtype                    dtype;       /* VP_DTYPE_F32 or VP_DTYPE_BF16: of operands that are VP_AS_CALL */
    void                       *operand[VP_MAX_OPERANDS];
    int64_t                     ints[VP_MAX_INTS];
    double                      reals[VP_MAX_REALS];
    bool                        accumulate;  /* VP_ACCUMULATE operands add to what is there */
    vp_rng_stream               rng;         /* of the step in which the call is made       */
    const vp_optimizer_numbers *optimizer;   /* for the optimizers                          */
    vp_algorithm                algorithm;   /* of this library and device (describe()), or unset: the library's default */
    void                       *workspace;   /* NULL, or workspace_bytes at a multiple of VP_ALIGN_BYTES; holds nothing between calls */
    int64_t                     workspace_bytes;
    const vp_control           *control;     /* of the step, in the arena; NULL: a call by itself. A recorded call that draws random
                                              * numbers finds there how many steps have passed since */
} vp_kernel_call;

/* Bytes on the device: all, and what nobody has now. By the driver's count, each -1 where it does not tell: used by this process;
 * in use by everybody, now and before this process opened the device. */
typedef struct vp_backend_memory {
    int64_t total_bytes, free_bytes, used_bytes, all_used_bytes, all_used_before_bytes;
} vp_backend_memory;

typedef struct vp_backend_graph vp_backend_graph;

enum { VP_BACKEND_API = 4 };

typedef struct vp_backend {
    int         api_version;
    const char *name;                               /* "cpu", "cuda"                         */
    bool        host_memory;                        /* the arena is memory of this process: host code may read and write it */
    int         sm;                                 /* compute capability, 90 for 9.0; 0: not a CUDA device */
    const char *device;                             /* what the driver calls the device; "" for the CPU */
    /* One line for people: library, instruction set, threads; on a card device, driver and libraries with their versions. What was measured
     * under another line was measured elsewhere. Static storage. */
    const char *(*describe)(void);
    /* Use n threads from now on (>= 1). Changes speed only. */
    void (*set_threads)(int n_threads);
    int (*threads)(void);

    /* One block of n_bytes (> 0) at a multiple of VP_ALIGN_BYTES. VP_ERR_DEVICE: it cannot be had. release() takes NULL. */
    vp_status (*alloc)(int64_t n_bytes, void **out, vp_err *err);
    void (*release)(void *p, int64_t n_bytes);
    vp_status (*memory)(vp_backend_memory *out, vp_err *err);

    /* Give the device back for good, after everything on it was freed: of the backend only device and describe() are left. Returns what
     * others have in use there then, by the driver's count; -1: not told. NULL where there is nothing to give back. */
    int64_t (*close)(void);

    /* To, from and on its memory, after everything enqueued so far; the host's side may be used again on return. */
    vp_status (*upload)(void *to, const void *from, int64_t n_bytes, vp_err *err);
    vp_status (*download)(void *to, const void *from, int64_t n_bytes, vp_err *err);
    vp_status (*fill)(void *to, int byte, int64_t n_bytes, vp_err *err);

    /* Memory of the host that the device reads and writes by itself, n_bytes (> 0) at a multiple of VP_ALIGN_BYTES, and copies between such
     * and its own: only enqueued, so that they may be recorded. The host may write what is sent, and read what is fetched, when wait() has
     * returned. NULL, all four, where host_memory. VP_ERR_DEVICE: it cannot be had. host_release() takes NULL, and nothing under way. */
    vp_status (*host_alloc)(int64_t n_bytes, void **out, vp_err *err);
    void (*host_release)(void *p);
    vp_status (*send)(void *to, const void *from, int64_t n_bytes, vp_err *err);
    vp_status (*fetch)(void *to, const void *from, int64_t n_bytes, vp_err *err);

    /* Execute, or enqueue behind what was enqueued before; calls may be collected until another function or another kind of
     * call comes, which then returns their error. VP_ERR_INPUT: no kernel of this backend can, or the workspace is smaller than
     * it needs. */
    vp_status (*run)(const vp_kernel_call *call, vp_err *err);
    /* Until all is done. An error of an earlier call may show here. VP_ERR_DEVICE. */
    vp_status (*wait)(vp_err *err);

    /* run() between record_begin() and record_end() only records; replay() enqueues all of it. NULL where a backend
     * executes at once. Operands stay where they were; numbers that change are in the control block. */
    vp_status (*record_begin)(vp_err *err);
    vp_status (*record_end)(vp_backend_graph **out, vp_err *err);
    vp_status (*replay)(const vp_backend_graph *graph, vp_err *err);
    void (*graph_free)(vp_backend_graph *graph); /* takes NULL */

    /* Seconds a call takes in the middle of n_calls (> 0) like it, by the device's clock; waits. */
    vp_status (*time)(const vp_kernel_call *call, int n_calls, double *seconds, vp_err *err);

    /* Algorithms a call could be computed with, all deterministic, best guess first; at most max. NULL: this backend has no choice. */
    vp_status (*algorithms)(const vp_kernel_call *call, int max, vp_algorithm *out, int *n, vp_err *err);
} vp_backend;

const vp_backend *vp_backend_cpu(void);

/* What a plugin exports. The device is opened by this call; the result is static. VP_ERR_DEVICE:
 * no driver, no device, a library that is too old: the message says which. */
vp_status vp_backend_open(int api_version, const vp_backend **out, vp_err *err);
typedef vp_status (*vp_backend_open_fn)(int api_version, const vp_backend **out, vp_err *err);

/* Plain C in float64 with the obvious loops, sharing no code with any backend: the oracle of the kernel
 * tests. Operands that are fp32 or bf16 in the plan are double here, whatever the call's dtype. Not linked into any program. */
void vp_reference_run(const vp_kernel_call *call);

/* Fill n floats with numbers of a normal distribution, mean 0, standard deviation std, for parameter
 * initialisation: element i depends on (seed, name, i) only. */
void vp_draw_normal(uint64_t seed, const char *name, double std, float *x, int64_t n);

#endif
