/* kernels/cpu/layernorm.c: layer norm over the last axis (Ba, Kiros, Hinton 2016, arXiv:1607.06450).
 *
 *     y[r][c] = (x[r][c] - mean[r]) * rstd[r] * gamma[c] + beta[c],  rstd = 1 / sqrt(var + eps)
 *
 * var is the biased variance, from a second pass over the row: no cancellation of E[x^2] - E[x]^2.
 * Backward, with xhat = (x - mean) rstd, g = dy gamma and means over the row's cols elements:
 *
 *     dx = rstd (g - mean(g) - xhat mean(g xhat)),  d_gamma = sum over rows of dy xhat,
 *     d_beta = sum over rows of dy */
#include "kernels/cpu/cpu_internal.h"

#include "core/checked.h"

#include <math.h>
#include <stddef.h>

enum { SLICE_COLS = 128 }; /* columns of d_gamma and d_beta one work item owns */

/* out = {sum (x - shift)^2}, in the lanes of vp_sum. */
VP_ALWAYS_INLINE float sum_squares(const float *x, float shift, int64_t n)
{
    vp_f8   lane[4] = {{0}, {0}, {0}, {0}};
    int64_t i       = 0;
    float   total;

    for (; i + 32 <= n; i += 32)
        for (int l = 0; l < 4; l++) {
            vp_f8 d = *(const vp_f8 *)(x + i + 8 * l) - shift;
            lane[l] += d * d;
        }
    total = vp_lanes_total(lane);
    for (; i < n; i++)
        total += (x[i] - shift) * (x[i] - shift);
    return total;
}

VP_PER_ISA(forward_row, (const float *x, const float *gamma, const float *beta, float *y, int64_t cols,
                         double eps, float *mean_out, float *rstd_out),
           (x, gamma, beta, y, cols, eps, mean_out, rstd_out))
{
    float mean = vp_sum(x, cols) / (float)cols;
    float var  = sum_squares(x, mean, cols) / (float)cols;
    float rstd = (float)(1.0 / sqrt((double)var + eps));

#pragma omp simd
    for (int64_t c = 0; c < cols; c++)
        y[c] = (x[c] - mean) * rstd * gamma[c] + beta[c];
    *mean_out = mean;
    *rstd_out = rstd;
}

void vp_cpu_layernorm_fwd(const vp_kernel_call *call)
{
    const float *x = call->operand[0], *gamma = call->operand[1], *beta = call->operand[2];
    float       *y = call->operand[3], *mean = call->operand[4], *rstd = call->operand[5];
    int64_t      rows = call->ints[0], cols = call->ints[1];

#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (rows * cols > VP_CPU_SPAN)
    for (int64_t r = 0; r < rows; r++)
        forward_row(x + r * cols, gamma, beta, y + r * cols, cols, call->reals[0], mean + r, rstd + r);
}

/* dx may lie on dy, x or add: both means are taken before the first write, then element by element. */
VP_PER_ISA(backward_row, (const float *dy, const float *x, const float *gamma, float mean, float rstd,
                          const float *add, float *dx, int64_t cols),
           (dy, x, gamma, mean, rstd, add, dx, cols))
{
    vp_f8   lane_g[4] = {{0}, {0}, {0}, {0}}, lane_gx[4] = {{0}, {0}, {0}, {0}};
    int64_t i = 0;
    float   sum_g, sum_gx, mean_g, mean_gx;

    for (; i + 32 <= cols; i += 32)
        for (int l = 0; l < 4; l++) {
            int64_t c = i + 8 * l;
            vp_f8   g = *(const vp_f8 *)(dy + c) * *(const vp_f8 *)(gamma + c);
            lane_g[l] += g;
            lane_gx[l] += g * ((*(const vp_f8 *)(x + c) - mean) * rstd);
        }
    sum_g  = vp_lanes_total(lane_g);
    sum_gx = vp_lanes_total(lane_gx);
    for (; i < cols; i++) {
        sum_g += dy[i] * gamma[i];
        sum_gx += dy[i] * gamma[i] * ((x[i] - mean) * rstd);
    }
    mean_g  = sum_g / (float)cols;
    mean_gx = sum_gx / (float)cols;
    if (add) {
#pragma omp simd
        for (int64_t c = 0; c < cols; c++)
            dx[c] = add[c] + rstd * (dy[c] * gamma[c] - mean_g - (x[c] - mean) * rstd * mean_gx);
    } else {
#pragma omp simd
        for (int64_t c = 0; c < cols; c++)
            dx[c] = rstd * (dy[c] * gamma[c] - mean_g - (x[c] - mean) * rstd * mean_gx);
    }
}

VP_PER_ISA(sum_tile, (const float *dy, const float *x, const float *mean, const float *rstd, int64_t ld,
                      int64_t rows, int64_t cols, float *sum_gamma, float *sum_beta),
           (dy, x, mean, rstd, ld, rows, cols, sum_gamma, sum_beta))
{
    for (int64_t r = 0; r < rows; r++) {
        float        m = mean[r], s = rstd[r];
        const float *dy_row = dy + r * ld, *x_row = x + r * ld;

#pragma omp simd
        for (int64_t c = 0; c < cols; c++) {
            sum_gamma[c] += dy_row[c] * ((x_row[c] - m) * s);
            sum_beta[c] += dy_row[c];
        }
    }
}

void vp_cpu_layernorm_bwd(const vp_kernel_call *call)
{
    const float *dy = call->operand[0], *x = call->operand[1], *gamma = call->operand[2];
    const float *mean = call->operand[3], *rstd = call->operand[4], *add = call->operand[5];
    float       *dx = call->operand[6], *d_gamma = call->operand[7], *d_beta = call->operand[8];
    int64_t      rows = call->ints[0], cols = call->ints[1];

    if (!call->accumulate && rows == 0) {
        memset(d_gamma, 0, (size_t)cols * sizeof(float));
        memset(d_beta, 0, (size_t)cols * sizeof(float));
    }
    /* Tile by tile: the column sums first, since dx may be written over what they read; the tile is in
     * the cache when its rows come. */
#pragma omp parallel num_threads(vp_cpu_threads()) if (rows * cols > VP_CPU_SPAN)
    for (int64_t r0 = 0; r0 < rows; r0 += VP_TILE_TOKENS) {
        int64_t n_rows = vp_min_i64(VP_TILE_TOKENS, rows - r0);
        bool    add_in = call->accumulate || r0 > 0;

#pragma omp for schedule(static)
        for (int64_t c0 = 0; c0 < cols; c0 += SLICE_COLS) {
            float   sum_gamma[SLICE_COLS] = {0}, sum_beta[SLICE_COLS] = {0};
            int64_t n_cols = vp_min_i64(SLICE_COLS, cols - c0);

            sum_tile(dy + r0 * cols + c0, x + r0 * cols + c0, mean + r0, rstd + r0, cols, n_rows,
                     n_cols, sum_gamma, sum_beta);
            for (int64_t c = 0; c < n_cols; c++) {
                d_gamma[c0 + c] = add_in ? d_gamma[c0 + c] + sum_gamma[c] : sum_gamma[c];
                d_beta[c0 + c]  = add_in ? d_beta[c0 + c] + sum_beta[c] : sum_beta[c];
            }
        }
#pragma omp for schedule(static)
        for (int64_t r = r0; r < r0 + n_rows; r++)
            backward_row(dy + r * cols, x + r * cols, gamma, mean[r], rstd[r],
                         add ? add + r * cols : NULL, dx + r * cols, cols);
    }
}
