/* kernels/cpu/layernorm.c: layer norm over the last axis (Ba, Kiros, Hinton 2016,
 * arXiv:1607.06450).
 *
 *     y[r][c] = (x[r][c] - mean[r]) * rstd[r] * gamma[c] + beta[c],  rstd = 1 / sqrt(var + eps)
 *
 * var is the biased variance, from a second pass over the row: no cancellation of E[x^2] - E[x]^2.
 * Backward, with xhat = (x - mean) rstd, g = dy gamma and means over the row's cols elements:
 *
 *     dx = rstd (g - mean(g) - xhat mean(g xhat)),  d_gamma = sum over rows of dy xhat,
 *     d_beta = sum over rows of dy
 *
 * Absent, gamma is 1 and beta is 0. mean, rstd, d_gamma and d_beta are fp32 whatever the call's
 * dtype. */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/operand.h"

#include "base/checked.h"

#include <math.h>
#include <stddef.h>

enum { SLICE_COLS = 128 }; /* columns of d_gamma and d_beta one work item owns */

/* ---- forward ---- */

/* The row's mean and sum (x - mean)^2, in the lanes of vp_sum(). */
VP_ALWAYS_INLINE void moments(const void *x, int64_t n, vp_dtype dtype, float *mean_out,
                              float *squares)
{
    vp_f8   lane[4] = {{0}, {0}, {0}, {0}}, square[4] = {{0}, {0}, {0}, {0}};
    int64_t i = 0;
    float   total, mean;

    for (; i + 32 <= n; i += 32)
        for (int l = 0; l < 4; l += 2) {
            vp_f8 v[2];
            vp_get16(x, i + 8 * l, dtype, v);
            lane[l] += v[0];
            lane[l + 1] += v[1];
        }
    total = vp_lanes_total(lane);
    for (; i < n; i++)
        total += vp_get(x, i, dtype);
    mean = total / (float)n;
    for (i = 0; i + 32 <= n; i += 32)
        for (int l = 0; l < 4; l += 2) {
            vp_f8 v[2];
            vp_get16(x, i + 8 * l, dtype, v);
            square[l] += (v[0] - mean) * (v[0] - mean);
            square[l + 1] += (v[1] - mean) * (v[1] - mean);
        }
    total = vp_lanes_total(square);
    for (; i < n; i++)
        total += (vp_get(x, i, dtype) - mean) * (vp_get(x, i, dtype) - mean);
    *mean_out = mean;
    *squares  = total;
}

VP_ALWAYS_INLINE void normalise(const void *x, const void *gamma, const void *beta, void *y,
                                int64_t cols, float mean, float rstd, vp_dtype dtype,
                                bool has_gamma, bool has_beta)
{
#pragma omp simd
    for (int64_t c = 0; c < cols; c++) {
        float v = (vp_get(x, c, dtype) - mean) * rstd;
        if (has_gamma)
            v = v * vp_get(gamma, c, dtype);
        if (has_beta)
            v = v + vp_get(beta, c, dtype);
        vp_put(y, c, v, dtype);
    }
}

VP_ALWAYS_INLINE void forward(const void *x, const void *gamma, const void *beta, void *y,
                              int64_t cols, double eps, float *mean, float *rstd, vp_dtype dtype)
{
    float squares;

    moments(x, cols, dtype, mean, &squares);
    *rstd = (float)(1.0 / sqrt((double)(squares / (float)cols) + eps));
    if (gamma && beta)
        normalise(x, gamma, beta, y, cols, *mean, *rstd, dtype, true, true);
    else if (gamma)
        normalise(x, gamma, beta, y, cols, *mean, *rstd, dtype, true, false);
    else if (beta)
        normalise(x, gamma, beta, y, cols, *mean, *rstd, dtype, false, true);
    else
        normalise(x, gamma, beta, y, cols, *mean, *rstd, dtype, false, false);
}

VP_PER_ISA(forward_row,
           (const void *x, const void *gamma, const void *beta, void *y, int64_t cols, double eps,
            float *mean, float *rstd, vp_dtype dtype),
           (x, gamma, beta, y, cols, eps, mean, rstd, dtype))
{
    VP_BY_DTYPE(dtype, D, forward(x, gamma, beta, y, cols, eps, mean, rstd, D));
}

void vp_cpu_layernorm_fwd(const vp_kernel_call *call)
{
    float *mean  = call->operand[VP_LAYERNORM_FWD_MEAN],
          *rstd  = call->operand[VP_LAYERNORM_FWD_RSTD];
    int64_t rows = call->layernorm.rows, cols = call->layernorm.cols;

#pragma omp parallel for schedule(static) \
    num_threads(vp_cpu_threads()) if (rows * cols > VP_CPU_SPAN)
    for (int64_t r = 0; r < rows; r++)
        forward_row(vp_cpu_at(call->operand[VP_LAYERNORM_FWD_X], call->dtype, r * cols),
                    call->operand[VP_LAYERNORM_FWD_GAMMA], call->operand[VP_LAYERNORM_FWD_BETA],
                    vp_cpu_at(call->operand[VP_LAYERNORM_FWD_Y], call->dtype, r * cols), cols,
                    call->norm_reals.eps, mean + r, rstd + r, call->dtype);
}

/* ---- backward ---- */

/* dx may lie on dy, x or add: both means are taken before the first write, then element by
 * element. */
VP_ALWAYS_INLINE void backward(const void *dy, const void *x, const void *gamma, float mean,
                               float rstd, const void *add, void *dx, int64_t cols, vp_dtype dtype,
                               bool has_gamma)
{
    vp_f8   lane_g[4] = {{0}, {0}, {0}, {0}}, lane_gx[4] = {{0}, {0}, {0}, {0}};
    int64_t i = 0;
    float   sum_g, sum_gx, mean_g, mean_gx;

    for (; i + 32 <= cols; i += 32)
        for (int l = 0; l < 4; l += 2) {
            int64_t c = i + 8 * l;
            vp_f8   g[2], v[2], w[2];

            vp_get16(dy, c, dtype, g);
            vp_get16(x, c, dtype, v);
            if (has_gamma) {
                vp_get16(gamma, c, dtype, w);
                g[0] *= w[0];
                g[1] *= w[1];
            }
            for (int h = 0; h < 2; h++) {
                lane_g[l + h] += g[h];
                lane_gx[l + h] += g[h] * ((v[h] - mean) * rstd);
            }
        }
    sum_g  = vp_lanes_total(lane_g);
    sum_gx = vp_lanes_total(lane_gx);
    for (; i < cols; i++) {
        float g = vp_get(dy, i, dtype);
        if (has_gamma)
            g *= vp_get(gamma, i, dtype);
        sum_g += g;
        sum_gx += g * ((vp_get(x, i, dtype) - mean) * rstd);
    }
    mean_g  = sum_g / (float)cols;
    mean_gx = sum_gx / (float)cols;
    if (add) {
#pragma omp simd
        for (int64_t c = 0; c < cols; c++) {
            float g =
                has_gamma ? vp_get(dy, c, dtype) * vp_get(gamma, c, dtype) : vp_get(dy, c, dtype);
            vp_put(dx, c,
                   vp_get(add, c, dtype) +
                       rstd * (g - mean_g - (vp_get(x, c, dtype) - mean) * rstd * mean_gx),
                   dtype);
        }
    } else {
#pragma omp simd
        for (int64_t c = 0; c < cols; c++) {
            float g =
                has_gamma ? vp_get(dy, c, dtype) * vp_get(gamma, c, dtype) : vp_get(dy, c, dtype);
            vp_put(dx, c, rstd * (g - mean_g - (vp_get(x, c, dtype) - mean) * rstd * mean_gx),
                   dtype);
        }
    }
}

VP_PER_ISA(backward_row,
           (const void *dy, const void *x, const void *gamma, float mean, float rstd,
            const void *add, void *dx, int64_t cols, vp_dtype dtype),
           (dy, x, gamma, mean, rstd, add, dx, cols, dtype))
{
    if (gamma)
        VP_BY_DTYPE(dtype, D, backward(dy, x, gamma, mean, rstd, add, dx, cols, D, true));
    else
        VP_BY_DTYPE(dtype, D, backward(dy, x, gamma, mean, rstd, add, dx, cols, D, false));
}

VP_ALWAYS_INLINE void add_columns(const void *dy, const void *x, float m, float s, int64_t cols,
                                  float *sum_gamma, float *sum_beta, vp_dtype dtype)
{
#pragma omp simd
    for (int64_t c = 0; c < cols; c++) {
        sum_gamma[c] += vp_get(dy, c, dtype) * ((vp_get(x, c, dtype) - m) * s);
        sum_beta[c] += vp_get(dy, c, dtype);
    }
}

/* dy and x begin at element `first` of the row's operand; rows are ld elements apart. */
VP_PER_ISA(sum_tile,
           (const void *dy, const void *x, int64_t first, const float *mean, const float *rstd,
            int64_t ld, int64_t rows, int64_t cols, float *sum_gamma, float *sum_beta,
            vp_dtype dtype),
           (dy, x, first, mean, rstd, ld, rows, cols, sum_gamma, sum_beta, dtype))
{
    for (int64_t r = 0; r < rows; r++) {
        const void *dy_row = vp_cpu_at(dy, dtype, first + r * ld),
                   *x_row  = vp_cpu_at(x, dtype, first + r * ld);

        VP_BY_DTYPE(dtype, D,
                    add_columns(dy_row, x_row, mean[r], rstd[r], cols, sum_gamma, sum_beta, D));
    }
}

/* out = sum, or += with add; out may be absent. */
static void put_sums(float *out, const float *sum, int64_t n, bool add)
{
    for (int64_t c = 0; out && c < n; c++)
        out[c] = add ? out[c] + sum[c] : sum[c];
}

void vp_cpu_layernorm_bwd(const vp_kernel_call *call)
{
    const void *dy = call->operand[VP_LAYERNORM_BWD_DY], *x = call->operand[VP_LAYERNORM_BWD_X],
               *gamma = call->operand[VP_LAYERNORM_BWD_GAMMA],
               *add   = call->operand[VP_LAYERNORM_BWD_ADD];
    const float *mean = call->operand[VP_LAYERNORM_BWD_MEAN],
                *rstd = call->operand[VP_LAYERNORM_BWD_RSTD];
    float *d_gamma    = call->operand[VP_LAYERNORM_BWD_D_GAMMA],
          *d_beta     = call->operand[VP_LAYERNORM_BWD_D_BETA];
    int64_t rows = call->layernorm.rows, cols = call->layernorm.cols;
    bool    sums = d_gamma || d_beta;

    /* Tile by tile: the column sums first, since dx may be written over what they read; the tile
     * is in the cache when its rows come. */
#pragma omp parallel num_threads(vp_cpu_threads()) if (rows * cols > VP_CPU_SPAN)
    for (int64_t r0 = 0; r0 < rows; r0 += VP_TILE_TOKENS) {
        int64_t n_rows = vp_min_i64(VP_TILE_TOKENS, rows - r0);
        bool    add_in = call->accumulate || r0 > 0;

#pragma omp for schedule(static)
        for (int64_t c0 = 0; c0 < (sums ? cols : 0); c0 += SLICE_COLS) {
            float   sum_gamma[SLICE_COLS] = {0}, sum_beta[SLICE_COLS] = {0};
            int64_t n_cols = vp_min_i64(SLICE_COLS, cols - c0);

            sum_tile(dy, x, r0 * cols + c0, mean + r0, rstd + r0, cols, n_rows, n_cols, sum_gamma,
                     sum_beta, call->dtype);
            put_sums(d_gamma ? d_gamma + c0 : NULL, sum_gamma, n_cols, add_in);
            put_sums(d_beta ? d_beta + c0 : NULL, sum_beta, n_cols, add_in);
        }
#pragma omp for schedule(static)
        for (int64_t r = r0; r < r0 + n_rows; r++)
            backward_row(vp_cpu_at(dy, call->dtype, r * cols), vp_cpu_at(x, call->dtype, r * cols),
                         gamma, mean[r], rstd[r], vp_cpu_at(add, call->dtype, r * cols),
                         vp_cpu_at(call->operand[VP_LAYERNORM_BWD_DX], call->dtype, r * cols), cols,
                         call->dtype);
    }
}
