/* kernels/cpu/gemm_bf16_internal.h: what gemm_bf16.c asks of each class of kernels.
 *
 * Both operands are packed into panels: 32 rows of A, or 32 columns of B ("lines"), by a piece
 * of k padded with zeros to a multiple of VP_GEMM_BF16_K_UNIT. A kernel multiplies two panels
 * into a 32 x 32 tile of fp32. How a panel is laid out is the class's own affair; one unit of k
 * after the other in each, so that a panel can be entered at any unit. */
#ifndef VP_KERNELS_CPU_GEMM_BF16_INTERNAL_H
#define VP_KERNELS_CPU_GEMM_BF16_INTERNAL_H

#include "kernels/cpu/gemm_bf16.h"

#include <stdint.h>

enum { VP_GEMM_BF16_LINES = 32 }; /* in a panel */

/* k elements of each of n_lines (<= 32) lines. k_rows: a stored row is one k of all lines (A
 * transposed, B as it is); else it is all k of one line. Lines beyond n_lines come out as
 * anything, k beyond k as zeros. Reads nothing else. */
typedef void vp_gemm_bf16_pack(void *panel, const uint16_t *x, int64_t ld, bool k_rows,
                               int64_t n_lines, int64_t k);

typedef struct vp_gemm_bf16_kernels {
    const char        *name;
    int64_t            element_bytes; /* of a packed element                              */
    double             mac_per_cycle; /* about: it weighs packing against multiplying     */
    vp_gemm_bf16_pack *pack_a, *pack_b;
    /* out (32 x 32, rows ld_out floats apart) = in + panel a times panel b. k: a multiple of the
     * unit, maybe 0. in NULL is zeros; in may be out. */
    void (*multiply)(const void *a, const void *b, int64_t k, const float *in, int64_t ld_in,
                     float *out, int64_t ld_out);
    /* c (n_rows x n_cols, both <= 32) = the tile of 32 x 32, plus the bias of its columns (or
     * NULL), plus c itself where add, rounded once. NULL: plain C will do. */
    void (*round)(const float *tile, const uint16_t *bias, bool add, uint16_t *c, int64_t ldc,
                  int64_t n_rows, int64_t n_cols);
    /* Around any number of multiply calls on a thread, or NULL. */
    void (*begin)(void);
    void (*end)(void);
} vp_gemm_bf16_kernels;

/* For x86-64: the best class at or below `most` that machine and system have, or NULL. */
const vp_gemm_bf16_kernels *vp_gemm_bf16_x86(vp_gemm_bf16_isa most, vp_gemm_bf16_isa *found);

/* Lines' pairs of k, [k / 2][32][2]: in plain C, for the classes without a packing of their own. */
void vp_gemm_bf16_pack_pairs(void *panel, const uint16_t *x, int64_t ld, bool k_rows,
                             int64_t n_lines, int64_t k);

#endif
