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
                              double eps, float *rstd_out, vp_dtype dtype)
{
    vp_f8   lane[4] = {{0}, {0}, {0}, {0}};
    int64_t i       = 0;
    float   total, rstd;

    for (; i + 32 <= cols; i += 32)
        for (int l = 0; l < 4; l += 2) {
            vp_f8 v[2];
            vp_get16(x, i + 8 * l, dtype, v);
            lane[l] += v[0] * v[0];
            lane[l + 1] += v[1] * v[1];
        }
    total = vp_lanes_total(lane);
    for (; i < cols; i++)
        total += vp_get(x, i, dtype) * vp_get(x, i, dtype);
    rstd = (float)(1.0 / sqrt((double)(total / (float)cols) + eps));
#pragma omp simd
    for (int64_t c = 0; c < cols; c++)
        vp_put(y, c, vp_get(x, c, dtype) * rstd * (offset + vp_get(gamma, c, dtype)), dtype);
    *rstd_out = rstd;
}

/* offset: 1 or 0, what is added to gamma. */
VP_PER_ISA(forward_row,
           (const void *x, const void *gamma, void *y, int64_t cols, float offset, double eps,
            float *rstd, vp_dtype dtype),
           (x, gamma, y, cols, offset, eps, rstd, dtype))
{
    VP_BY_DTYPE(dtype, D, forward(x, gamma, y, cols, offset, eps, rstd, D));
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
                    (float)call->rmsnorm.unit_offset, call->norm_reals.eps, rstd + r, call->dtype);
}

/* ---- backward ---- */

/* dx may lie on dy, x or add: the mean is taken before the first write, then element by element. */
VP_ALWAYS_INLINE void backward(const void *dy, const void *x, const void *gamma, float offset,
                               float rstd, const void *add, void *dx, int64_t cols, vp_dtype dtype)
{
    vp_f8   lane[4] = {{0}, {0}, {0}, {0}};
    int64_t i       = 0;
    float   sum, mean;

    for (; i + 32 <= cols; i += 32)
        for (int l = 0; l < 4; l += 2) {
            int64_t c = i + 8 * l;
            vp_f8   g[2], v[2], w[2];

            vp_get16(dy, c, dtype, g);
            vp_get16(x, c, dtype, v);
            vp_get16(gamma, c, dtype, w);
            for (int h = 0; h < 2; h++)
                lane[l + h] += g[h] * (offset + w[h]) * (v[h] * rstd);
        }
    sum = vp_lanes_total(lane);
    for (; i < cols; i++)
        sum += vp_get(dy, i, dtype) * (offset + vp_get(gamma, i, dtype)) *
               (vp_get(x, i, dtype) * rstd);
    mean = sum / (float)cols;
    if (add) {
#pragma omp simd
        for (int64_t c = 0; c < cols; c++) {
            float g = vp_get(dy, c, dtype) * (offset + vp_get(gamma, c, dtype));
            vp_put(dx, c, vp_get(add, c, dtype) + rstd * (g - vp_get(x, c, dtype) * rstd * mean),
                   dtype);
        }
    } else {
#pragma omp simd
        for (int64_t c = 0; c < cols; c++) {
            float g = vp_get(dy, c, dtype) * (offset + vp_get(gamma, c, dtype));
            vp_put(dx, c, rstd * (g - vp_get(x, c, dtype) * rstd * mean), dtype);
        }
    }
}

VP_PER_ISA(backward_row,
           (const void *dy, const void *x, const void *gamma, float offset, float rstd,
            const void *add, void *dx, int64_t cols, vp_dtype dtype),
           (dy, x, gamma, offset, rstd, add, dx, cols, dtype))
{
    VP_BY_DTYPE(dtype, D, backward(dy, x, gamma, offset, rstd, add, dx, cols, D));
}

VP_ALWAYS_INLINE void add_columns(const void *dy, const void *x, float rstd, int64_t cols,
                                  float *sum, vp_dtype dtype)
{
#pragma omp simd
    for (int64_t c = 0; c < cols; c++)
        sum[c] += vp_get(dy, c, dtype) * (vp_get(x, c, dtype) * rstd);
}

/* From element `first` of dy and x on: rows that are ld elements apart. */
VP_PER_ISA(sum_block,
           (const void *dy, const void *x, int64_t first, const float *rstd, int64_t ld,
            int64_t rows, int64_t cols, float *sum, vp_dtype dtype),
           (dy, x, first, rstd, ld, rows, cols, sum, dtype))
{
    for (int64_t r = 0; r < rows; r++) {
        const void *dy_row = vp_cpu_at(dy, dtype, first + r * ld),
                   *x_row  = vp_cpu_at(x, dtype, first + r * ld);

        VP_BY_DTYPE(dtype, D, add_columns(dy_row, x_row, rstd[r], cols, sum, D));
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

    assert(slice <= SLICE_COLS && tile % VP_TILE_TOKENS == 0);
    /* Tile by tile: the column sums first, since dx may be written over what they read. */
#pragma omp parallel num_threads(vp_cpu_threads()) if (rows * cols > VP_CPU_SPAN)
    for (int64_t r0 = 0; r0 < rows; r0 += tile) {
        int64_t end    = vp_min_i64(r0 + tile, rows);
        bool    add_in = call->accumulate || r0 > 0;

#pragma omp for schedule(static)
        for (int64_t c0 = d_gamma ? 0 : cols; c0 < cols; c0 += slice) {
            float   total[SLICE_COLS] = {0};
            int64_t n_cols            = vp_min_i64(slice, cols - c0);

            for (int64_t b = r0; b < end; b += BLOCK_ROWS) {
                float sum[SLICE_COLS] = {0};

                sum_block(dy, x, b * cols + c0, rstd + b, cols, vp_min_i64(BLOCK_ROWS, end - b),
                          n_cols, sum, call->dtype);
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
                         call->dtype);
    }
}
