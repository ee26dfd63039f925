/* kernels/cpu/gemm_bf16_pack.c: packing in plain C, for the classes without one of their own. */
#include "kernels/cpu/gemm_bf16.h"
#include "kernels/cpu/gemm_bf16_internal.h"

enum { LINES = VP_GEMM_BF16_LINES, UNIT = VP_GEMM_BF16_K_UNIT };

void vp_gemm_bf16_pack_pairs(void *panel, const uint16_t *x, int64_t ld, bool k_rows,
                             int64_t n_lines, int64_t k)
{
    uint16_t *pairs = panel;
    int64_t   k_end = k + (UNIT - k % UNIT) % UNIT;

    if (k_rows) {
        for (int64_t i = 0; i < k; i++)
            for (int64_t l = 0; l < n_lines; l++)
                pairs[(i / 2 * LINES + l) * 2 + i % 2] = x[i * ld + l];
    } else {
        for (int64_t l = 0; l < n_lines; l++)
            for (int64_t i = 0; i < k; i++)
                pairs[(i / 2 * LINES + l) * 2 + i % 2] = x[l * ld + i];
    }
    for (int64_t i = k; i < k_end; i++)
        for (int64_t l = 0; l < LINES; l++)
            pairs[(i / 2 * LINES + l) * 2 + i % 2] = 0;
}
