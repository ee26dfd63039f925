/* kernels/backend.h: what executes kernel calls: the one door between runtime and hardware.
 *     const vp_backend *b = vp_backend_cpu();
 *     VP_TRY(b->run(&call, err));
 *
 * A backend executes exactly the calls it is given, on memory it is given. It allocates nothing
 * inside run(): what a kernel needs beyond its operands is on the stack and bounded.
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
    vp_rng_stream               rng;
    const vp_optimizer_numbers *optimizer;   /* for the optimizers                          */
} vp_kernel_call;

enum { VP_BACKEND_API = 1 };

typedef struct vp_backend {
    int         api_version;
    const char *name;                               /* "cpu"                          */
    /* One line for people: library, instruction set, threads. Static storage. */
    const char *(*describe)(void);
    /* Use n threads from now on (>= 1). Changes speed only. */
    void (*set_threads)(int n_threads);
    int (*threads)(void);
    vp_status (*run)(const vp_kernel_call *call, vp_err *err);
} vp_backend;

const vp_backend *vp_backend_cpu(void);

/* Plain C in float64 with the obvious loops, sharing no code with any backend: the oracle of the kernel
 * tests. Operands that are fp32 or bf16 in the plan are double here, whatever the call's dtype. Not linked into any program. */
void vp_reference_run(const vp_kernel_call *call);

/* Fill n floats with numbers of a normal distribution, mean 0, standard deviation std, for parameter
 * initialisation: element i depends on (seed, name, i) only. */
void vp_draw_normal(uint64_t seed, const char *name, double std, float *x, int64_t n);

#endif
