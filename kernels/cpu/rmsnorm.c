/* kernels/cpu/rmsnorm.c: root-mean-square norm (Zhang, Sennrich 2019, arXiv:1910.07467) of each
 * group of cols columns.
 *
 *     y[r][c] = x[r][c] rstd[r] w[c],  rstd = 1 / sqrt(mean(x^2) + eps),  w = gamma, or 1 + gamma
 *     with unit_offset
 *
 * One gamma serves all groups, so to everything but d_gamma a call is rows times groups rows of
 * cols. Backward, with xhat = x rstd, g = dy w and means over a row's cols elements:
 *
 *     dx = rstd (g - xhat mean(g xhat)),  d_gamma = sum over tokens and groups of dy xhat
 *
 * d_gamma is summed in tiles of 256 tokens, 256 groups rows, each in blocks of 256 rows: fp32
 * sums stay short. rstd and d_gamma are fp32 whatever the call's dtype. */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/operand.h"

#include "base/checked.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

enum {
    SLICE_COLS  = 128, /* columns of d_gamma a work item owns, at most */
    SLICE_LEAST = 32,
    BLOCK_ROWS  = 256
};

/* ---- forward ---- */

VP_ALWAYS_INLINE void forward(const void *x, const void *gamma, void *y, int64_t cols, float offset,
                              double eps, float *rstd_out, bool bf16)
{
    vp_f8   lane[4] = {{0}, {0}, {0}, {0}};
    int64_t i       = 0;
    float   total, rstd;

    for (; i + 32 <= cols; i += 32)
        for (int l = 0; l < 4; l += 2) {
            vp_f8 v[2];
            vp_get16(x, i + 8 * l, bf16, v);
            lane[l] += v[0] * v[0];
            lane[l + 1] += v[1] * v[1];
        }
    total = vp_lanes_total(lane);
    for (; i < cols; i++)
        total += vp_get(x, i, bf16) * vp_get(x, i, bf16);
    rstd = (float)(1.0 / sqrt((double)(total / (float)cols) + eps));
#pragma omp simd
    for (int64_t c = 0; c < cols; c++)
        vp_put(y, c, vp_get(x, c, bf16) * rstd * (offset + vp_get(gamma, c, bf16)), bf16);
    *rstd_out = rstd;
}

/* offset: 1 or 0, what is added to gamma. */
VP_PER_ISA(forward_row,
           (const void *x, const void *gamma, void *y, int64_t cols, float offset, double eps,
            float *rstd, bool bf16),
           (x, gamma, y, cols, offset, eps, rstd, bf16))
{
    if (bf16)
        forward(x, gamma, y, cols, offset, eps, rstd, true);
    else
        forward(x, gamma, y, cols, offset, eps, rstd, false);
}

void vp_cpu_rmsnorm_fwd(const vp_kernel_call *call)
{
    float  *rstd = call->operand[VP_RMSNORM_FWD_RSTD];
    int64_t rows = call->rmsnorm.rows * call->rmsnorm.groups, cols = call->rmsnorm.cols;

#pragma omp parallel for schedule(static) \
    num_threads(vp_cpu_threads()) if (rows * cols > VP_CPU_SPAN)
    for (int64_t r = 0; r < rows; r++)
        forward_row(vp_cpu_at(call->operand[VP_RMSNORM_FWD_X], call->dtype, r * cols),
                    call->operand[VP_RMSNORM_FWD_GAMMA],
                    vp_cpu_at(call->operand[VP_RMSNORM_FWD_Y], call->dtype, r * cols), cols,
                    (float)call->rmsnorm.unit_offset, call->norm_reals.eps, rstd + r,
                    call->dtype == VP_DTYPE_BF16);
}

/* ---- backward ---- */

/* dx may lie on dy, x or add: the mean is taken before the first write, then element by element. */
VP_ALWAYS_INLINE void backward(const void *dy, const void *x, const void *gamma, float offset,
                               float rstd, const void *add, void *dx, int64_t cols, bool bf16)
{
    vp_f8   lane[4] = {{0}, {0}, {0}, {0}};
    int64_t i       = 0;
    float   sum, mean;

    for (; i + 32 <= cols; i += 32)
        for (int l = 0; l < 4; l += 2) {
            int64_t c = i + 8 * l;
            vp_f8   g[2], v[2], w[2];

            vp_get16(dy, c, bf16, g);
            vp_get16(x, c, bf16, v);
            vp_get16(gamma, c, bf16, w);
            for (int h = 0; h < 2; h++)
                lane[l + h] += g[h] * (offset + w[h]) * (v[h] * rstd);
        }
    sum = vp_lanes_total(lane);
    for (; i < cols; i++)
        sum +=
            vp_get(dy, i, bf16) * (offset + vp_get(gamma, i, bf16)) * (vp_get(x, i, bf16) * rstd);
    mean = sum / (float)cols;
    if (add) {
#pragma omp simd
        for (int64_t c = 0; c < cols; c++) {
            float g = vp_get(dy, c, bf16) * (offset + vp_get(gamma, c, bf16));
            vp_put(dx, c, vp_get(add, c, bf16) + rstd * (g - vp_get(x, c, bf16) * rstd * mean),
                   bf16);
        }
    } else {
#pragma omp simd
        for (int64_t c = 0; c < cols; c++) {
            float g = vp_get(dy, c, bf16) * (offset + vp_get(gamma, c, bf16));
            vp_put(dx, c, rstd * (g - vp_get(x, c, bf16) * rstd * mean), bf16);
        }
    }
}

VP_PER_ISA(backward_row,
           (const void *dy, const void *x, const void *gamma, float offset, float rstd,
            const void *add, void *dx, int64_t cols, bool bf16),
           (dy, x, gamma, offset, rstd, add, dx, cols, bf16))
{
    if (bf16)
        backward(dy, x, gamma, offset, rstd, add, dx, cols, true);
    else
        backward(dy, x, gamma, offset, rstd, add, dx, cols, false);
}

VP_ALWAYS_INLINE void add_columns(const void *dy, const void *x, float rstd, int64_t cols,
                                  float *sum, bool bf16)
{
#pragma omp simd
    for (int64_t c = 0; c < cols; c++)
        sum[c] += vp_get(dy, c, bf16) * (vp_get(x, c, bf16) * rstd);
}

/* From element `first` of dy and x on: rows that are ld elements apart. */
VP_PER_ISA(sum_block,
           (const void *dy, const void *x, int64_t first, const float *rstd, int64_t ld,
            int64_t rows, int64_t cols, float *sum, bool bf16),
           (dy, x, first, rstd, ld, rows, cols, sum, bf16))
{
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = first + r * ld;

        if (bf16)
            add_columns((const uint16_t *)dy + at, (const uint16_t *)x + at, rstd[r], cols, sum,
                        true);
        else
            add_columns((const float *)dy + at, (const float *)x + at, rstd[r], cols, sum, false);
    }
}

void vp_cpu_rmsnorm_bwd(const vp_kernel_call *call)
{
    const void *dy = call->operand[VP_RMSNORM_BWD_DY], *x = call->operand[VP_RMSNORM_BWD_X],
               *gamma    = call->operand[VP_RMSNORM_BWD_GAMMA],
               *add      = call->operand[VP_RMSNORM_BWD_ADD];
    const float *rstd    = call->operand[VP_RMSNORM_BWD_RSTD];
    float       *d_gamma = call->operand[VP_RMSNORM_BWD_D_GAMMA],
          offset         = (float)call->rmsnorm.unit_offset;
    int64_t rows = call->rmsnorm.rows * call->rmsnorm.groups, cols = call->rmsnorm.cols,
            tile = VP_TILE_TOKENS * call->rmsnorm.groups;
    /* A column's sum is the same whoever takes it: a norm per head has few columns and many
     * rows. */
    int64_t slice = cols >= (int64_t)SLICE_COLS * vp_cpu_threads() ? SLICE_COLS : SLICE_LEAST;
    bool    bf16  = call->dtype == VP_DTYPE_BF16;

    assert(slice <= SLICE_COLS && tile % VP_TILE_TOKENS == 0);
    /* Tile by tile: the column sums first, since dx may be written over what they read. */
#pragma omp parallel num_threads(vp_cpu_threads()) if (rows * cols > VP_CPU_SPAN)
    for (int64_t r0 = 0; r0 < rows; r0 += tile) {
        int64_t end    = vp_min_i64(r0 + tile, rows);
        bool    add_in = call->accumulate || r0 > 0;

#pragma omp for schedule(static)
        for (int64_t c0 = 0; c0 < cols; c0 += slice) {
            float   total[SLICE_COLS] = {0};
            int64_t n_cols            = vp_min_i64(slice, cols - c0);

            for (int64_t b = r0; b < end; b += BLOCK_ROWS) {
                float sum[SLICE_COLS] = {0};

                sum_block(dy, x, b * cols + c0, rstd + b, cols, vp_min_i64(BLOCK_ROWS, end - b),
                          n_cols, sum, bf16);
                for (int64_t c = 0; c < n_cols; c++)
                    total[c] += sum[c];
            }
            for (int64_t c = 0; c < n_cols; c++)
                d_gamma[c0 + c] = add_in ? d_gamma[c0 + c] + total[c] : total[c];
        }
#pragma omp for schedule(static)
        for (int64_t r = r0; r < end; r++)
            backward_row(vp_cpu_at(dy, call->dtype, r * cols), vp_cpu_at(x, call->dtype, r * cols),
                         gamma, offset, rstd[r], vp_cpu_at(add, call->dtype, r * cols),
                         vp_cpu_at(call->operand[VP_RMSNORM_BWD_DX], call->dtype, r * cols), cols,
                         bf16);
    }
}
