/* kernels/cpu/gemm_bf16.h: products of bf16 or fp16 matrices, summed in fp32, by kernels of our own.
 *     vp_gemm_bf16 g = {.m = rows, .n = out, .k = in, .a = x, .lda = in, .b = w, .ldb = out, .c =
 *     y, .ldc = out};
 *     vp_cpu_gemm_bf16(&g, bias);
 *
 * Bits. An element of C is a function of its row of A, its column of B, what is added to it (C
 * where `add`, its bias) and k: not of m, n, its place in C, strides, alignment, how A and B are
 * stored, threads, or the sizes of blocks. The sum is one fp32 accumulator that walks k upwards
 * and, in the classes with bf16 instructions, takes 2 (AVX512-BF16) or VP_GEMM_BF16_K_UNIT (AMX)
 * elements of k at a step, counted from the call's first. For an fp32 C it starts from what is
 * added; so
 *     a call over k = k1 + k2, k1 a multiple of VP_GEMM_BF16_K_UNIT, gives the bits of a call over
 *     k1 and then
 *     one over k2 that adds,
 * which is what a weight gradient needs whose tokens come in whole tiles of 256: no tile of k is
 * named here. For a bf16 C it starts from 0, what is added comes last, the bias before C, and the
 * result is rounded once, to nearest even; a NaN is quiet.
 *
 * Classes. The kernels exist for the instruction sets below, and between them bits differ: AMX
 * and AVX512-BF16 take denormals for zeros, FMA classes round once for a product and its
 * addition, the baseline twice. A process keeps the best class that its machine has from the
 * first call to its end.
 *
 * fp16. The same, in the classes that multiply floats: AVX-512 at most, whatever bf16 has. Elements are
 * widened when they are packed, denormals among them, and a C or bias of 16 bits is fp16. */
#ifndef VP_KERNELS_CPU_GEMM_BF16_H
#define VP_KERNELS_CPU_GEMM_BF16_H

#include <stdbool.h>
#include <stdint.h>

enum { VP_GEMM_BF16_K_UNIT = 32 };

/* C(m, n) = A(m, k) B(k, n) + bias, or C += A B + bias with add. A and B may be stored transposed.
 * Row-major; ld* is the distance between stored rows in elements. C overlaps neither A nor B. */
typedef struct vp_gemm_bf16 {
    int64_t         m, n, k;
    const uint16_t *a;
    int64_t         lda;
    bool            a_transposed;
    const uint16_t *b;
    int64_t         ldb;
    bool            b_transposed;
    void           *c; /* float where c_f32, else 16 bits */
    int64_t         ldc;
    bool            f16; /* A, B, bias and a C of 16 bits are fp16, not bf16 */
    bool            c_f32;
    bool            add; /* not together with a bias where c_f32 */
} vp_gemm_bf16;

/* On all threads (vp_cpu_threads()). bias: n values as A has them, or NULL. Takes about 1.2 MiB of the
 * stack of every thread. */
void vp_cpu_gemm_bf16(const vp_gemm_bf16 *g, const uint16_t *bias);

/* The same bits on the calling thread alone: for kernels that have a parallel region of their
 * own. */
void vp_cpu_gemm_bf16_call(const vp_gemm_bf16 *g, const uint16_t *bias);

/* The class in use, for people: "AMX-BF16", "AVX512-BF16", "AVX-512", "AVX2+FMA" or "baseline". */
const char *vp_cpu_gemm_bf16_class(void);

typedef enum vp_gemm_bf16_isa {
    VP_GEMM_BF16_BASELINE,
    VP_GEMM_BF16_AVX2,
    VP_GEMM_BF16_AVX512,
    VP_GEMM_BF16_AVX512_BF16,
    VP_GEMM_BF16_AMX
} vp_gemm_bf16_isa;

/* For tests and benchmarks: from now on use no more than this; returns what is used then. Not
 * vp_cpu_isa_limit(): that one moves no bit, this one does. */
vp_gemm_bf16_isa vp_cpu_gemm_bf16_limit(vp_gemm_bf16_isa most);

#endif
