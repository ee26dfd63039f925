/* kernels/cpu/adafactor.c: Adafactor (Shazeer, Stern 2018, arXiv:1804.04235) as transformers'
 * Adafactor computes it with scale_parameter and relative_step off, beta1 none, clip_threshold 1,
 * decay_rate -0.8, eps 1e-30:
 *
 *     b = 1 - t^-0.8
 *     a matrix:  row_i = b row_i + (1 - b) (mean_j g_ij^2 + eps),  col_j = b col_j + (1 - b)
 *                (mean_i g_ij^2 + eps)
 *                u_ij  = g_ij / sqrt(row_i / mean(row)) / sqrt(col_j)
 *     else:      v_i   = b v_i + (1 - b) (g_i^2 + eps),  u_i = g_i / sqrt(v_i)
 *     p -= lr wd p,  p -= lr u / max(1, rms(u))
 *
 * u is not kept: the passes over g compute it again. A matrix takes three passes over g:
 * columns' sums, each thread its columns, rows in order; rows' sums with those of (g_ij /
 * sqrt(col_j))^2, from which rms(u) follows once mean(row) is known; the update. 20 bytes per
 * element of an fp32 parameter. Sums over squares are double, in an order fixed by the shape. */
#include "kernels/cpu/update.h"

#include "base/checked.h"

#include <assert.h>
#include <math.h>

/* A work item is so many rows, or so many columns; within rows, columns are taken a piece at a
 * time. */
enum { ROWS = 32, COLS = 128 };

static const double eps = 1e-30;

typedef struct adafactor {
    vp_param p;
    vp_grad  g;
    float   *row, *col; /* row: v where it is not factored */
    int64_t  rows, cols;
    double   b, row_mean;
    float    grad_scale, keep, step_size; /* step_size: lr / max(1, rms(u)) */
} adafactor;

/* b old + (1 - b) (mean + eps) */
VP_ALWAYS_INLINE float averaged(double b, float old, double mean)
{
    return (float)(b * (double)old + (1.0 - b) * (mean + eps));
}

VP_PER_ISA(update_columns, (const adafactor *a, int64_t first, int64_t n), (a, first, n))
{
    double sum[COLS]  = {0.0};
    float  grad_scale = a->grad_scale;

    for (int64_t r = 0; r < a->rows; r++) {
        float        scratch[COLS];
        const float *g = vp_grad_load(&a->g, r * a->cols + first, n, scratch);
#pragma omp simd
        for (int64_t c = 0; c < n; c++) {
            double x = (double)(g[c] * grad_scale);
            sum[c] += x * x;
        }
    }
    for (int64_t c = 0; c < n; c++)
        a->col[first + c] = averaged(a->b, a->col[first + c], sum[c] / (double)a->rows);
}

/* x[c] = 1 / sqrt(v[c]) */
VP_ALWAYS_INLINE void inverse_roots(const float *v, int64_t n, float *x)
{
    memcpy(x, v, (size_t)n * sizeof(float));
    vp_sqrt_all(x, n);
#pragma omp simd
    for (int64_t c = 0; c < n; c++)
        x[c] = 1.0f / x[c];
}

/* squares += sum (g scale)^2, scaled += sum (g scale by[c])^2, in 8 lanes; n <= VP_UPDATE_PIECE. */
VP_ALWAYS_INLINE void sum_two(const float *g, float grad_scale, const float *by, int64_t n,
                              double *squares, double *scaled)
{
    double  s[8] = {0.0}, t[8] = {0.0};
    int64_t c = 0;

    for (; c + 8 <= n; c += 8) {
#pragma omp simd
        for (int l = 0; l < 8; l++) {
            float  x = g[c + l] * grad_scale;
            double d = (double)x, e = (double)(x * by[c + l]);
            s[l] += d * d;
            t[l] += e * e;
        }
    }
    for (int l = 0; c < n; c++, l++) {
        float  x = g[c] * grad_scale;
        double d = (double)x, e = (double)(x * by[c]);
        s[l] += d * d;
        t[l] += e * e;
    }
    *squares += ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
    *scaled += ((t[0] + t[4]) + (t[1] + t[5])) + ((t[2] + t[6]) + (t[3] + t[7]));
}

/* The row averages of some rows; *out = sum of (g_ij / sqrt(col_j))^2 / row_i over them. */
VP_PER_ISA(update_rows, (const adafactor *a, int64_t first, int64_t n, double *out),
           (a, first, n, out))
{
    double squares[ROWS] = {0.0}, scaled[ROWS] = {0.0}, sum = 0.0;

    for (int64_t c = 0; c < a->cols; c += VP_UPDATE_PIECE) {
        float   by[VP_UPDATE_PIECE], scratch[VP_UPDATE_PIECE];
        int64_t len = a->cols - c < VP_UPDATE_PIECE ? a->cols - c : VP_UPDATE_PIECE;

        inverse_roots(a->col + c, len, by);
        for (int64_t r = 0; r < n; r++)
            sum_two(vp_grad_load(&a->g, (first + r) * a->cols + c, len, scratch), a->grad_scale, by,
                    len, &squares[r], &scaled[r]);
    }
    for (int64_t r = 0; r < n; r++) {
        float *row = a->row + first + r;
        *row       = averaged(a->b, *row, squares[r] / (double)a->cols);
        sum += scaled[r] / (double)*row;
    }
    *out = sum;
}

VP_PER_ISA(update_matrix, (const adafactor *a, int64_t first, int64_t n), (a, first, n))
{
    for (int64_t c = 0; c < a->cols; c += VP_UPDATE_PIECE) {
        float   by[VP_UPDATE_PIECE], scratch[VP_UPDATE_PIECE], g_scratch[VP_UPDATE_PIECE];
        int64_t len = a->cols - c < VP_UPDATE_PIECE ? a->cols - c : VP_UPDATE_PIECE;

        inverse_roots(a->col + c, len, by);
        for (int64_t r = first; r < first + n; r++) {
            const float *g          = vp_grad_load(&a->g, r * a->cols + c, len, g_scratch);
            float       *p          = vp_param_load(&a->p, r * a->cols + c, len, scratch);
            float        of_row     = (float)(1.0 / sqrt((double)a->row[r] / a->row_mean));
            float        grad_scale = a->grad_scale, keep = a->keep, step_size = a->step_size;

#pragma omp simd
            for (int64_t j = 0; j < len; j++)
                p[j] = keep * p[j] - step_size * (g[j] * grad_scale * of_row * by[j]);
            vp_param_store(&a->p, r * a->cols + c, len, p);
        }
    }
}

/* v of some elements of what is not factored; *out = the sum of u^2. */
VP_PER_ISA(update_vector_state, (const adafactor *a, int64_t first, int64_t n, double *out),
           (a, first, n, out))
{
    double sum = 0.0;

    for (int64_t i = first; i < first + n; i += VP_UPDATE_PIECE) {
        float        by[VP_UPDATE_PIECE], scratch[VP_UPDATE_PIECE], grad_scale = a->grad_scale;
        int64_t      len = first + n - i < VP_UPDATE_PIECE ? first + n - i : VP_UPDATE_PIECE;
        const float *g   = vp_grad_load(&a->g, i, len, scratch);
        float       *v   = a->row + i;
        double       b = a->b, squares = 0.0;

#pragma omp simd
        for (int64_t j = 0; j < len; j++) {
            double x = (double)(g[j] * grad_scale);
            v[j]     = averaged(b, v[j], x * x);
        }
        inverse_roots(v, len, by);
        sum_two(g, grad_scale, by, len, &squares, &sum);
    }
    *out = sum;
}

VP_PER_ISA(update_vector, (const adafactor *a, int64_t first, int64_t n), (a, first, n))
{
    for (int64_t i = first; i < first + n; i += VP_UPDATE_PIECE) {
        float        by[VP_UPDATE_PIECE], scratch[VP_UPDATE_PIECE], g_scratch[VP_UPDATE_PIECE];
        float        grad_scale = a->grad_scale, keep = a->keep, step_size = a->step_size;
        int64_t      len = first + n - i < VP_UPDATE_PIECE ? first + n - i : VP_UPDATE_PIECE;
        float       *p   = vp_param_load(&a->p, i, len, scratch);
        const float *g   = vp_grad_load(&a->g, i, len, g_scratch);

        inverse_roots(a->row + i, len, by);
#pragma omp simd
        for (int64_t j = 0; j < len; j++)
            p[j] = keep * p[j] - step_size * (g[j] * grad_scale * by[j]);
        vp_param_store(&a->p, i, len, p);
    }
}

static double rows_of_tile(const void *context, int64_t tile)
{
    const adafactor *a   = context;
    double           sum = 0.0;

    update_rows(a, tile * ROWS, vp_min_i64(ROWS, a->rows - tile * ROWS), &sum);
    return sum;
}

static double elements_of_tile(const void *context, int64_t tile)
{
    const adafactor *a   = context;
    double           sum = 0.0;

    update_vector_state(a, tile * VP_CPU_SPAN, vp_cpu_span_len(a->rows * a->cols, tile), &sum);
    return sum;
}

/* lr / max(1, rms(u)); written so that a NaN reaches the parameter. */
static float clipped_step(double lr, double mean_square)
{
    double rms = sqrt(mean_square);
    return (float)(rms <= 1.0 ? lr : lr / rms);
}

void vp_cpu_adafactor(const vp_kernel_call *call)
{
    const vp_control *control = call->operand[VP_ADAFACTOR_CONTROL];
    int64_t           rows = call->adafactor.rows, cols = call->adafactor.cols, count = rows * cols;
    bool              factored    = call->adafactor.factored != 0;
    int64_t           n_row_tiles = vp_ceil_div(rows, ROWS), n_col_tiles = vp_ceil_div(cols, COLS),
            n_spans     = vp_cpu_n_spans(count);
    int       n_threads = count > VP_CPU_SPAN ? vp_cpu_threads() : 1;
    double    sum;
    adafactor a = {
        .p   = vp_param_of(call, call->operand[VP_ADAFACTOR_P], call->operand[VP_ADAFACTOR_MASTER]),
        .g   = vp_grad_of(call, call->operand[VP_ADAFACTOR_G]),
        .row = call->operand[VP_ADAFACTOR_ROW],
        .col = call->operand[VP_ADAFACTOR_COL],
        .rows       = rows,
        .cols       = cols,
        .b          = 1.0 - pow(VP_UPDATE_NUMBER(control), -0.8),
        .grad_scale = (float)control->grad_scale,
        .keep = (float)(call->adafactor.decay ? 1.0 - control->lr * call->optimizer->weight_decay
                                              : 1.0),
    };

    assert(a.col || !factored); /* which the second average is for */
    if (VP_SKIPS(control))
        return;
    assert(VP_UPDATE_NUMBER(control) >= 1.0); /* counted from 1: 0 ^ -0.8 is no number */
    if (!factored) {
        sum         = vp_update_sum(0.0, n_spans, elements_of_tile, &a);
        a.step_size = clipped_step(control->lr, sum / (double)count);
#pragma omp parallel for schedule(static) num_threads(n_threads) if (n_threads > 1)
        for (int64_t s = 0; s < n_spans; s++)
            update_vector(&a, s * VP_CPU_SPAN, vp_cpu_span_len(count, s));
        return;
    }
#pragma omp parallel for schedule(static) num_threads(n_threads) if (n_threads > 1)
    for (int64_t t = 0; t < n_col_tiles; t++)
        update_columns(&a, t * COLS, vp_min_i64(COLS, cols - t * COLS));
    sum = vp_update_sum(0.0, n_row_tiles, rows_of_tile, &a);
    for (int64_t r = 0; r < rows; r++)
        a.row_mean += (double)a.row[r] / (double)rows;
    a.step_size = clipped_step(control->lr, a.row_mean * sum / (double)count);
#pragma omp parallel for schedule(static) num_threads(n_threads) if (n_threads > 1)
    for (int64_t t = 0; t < n_row_tiles; t++)
        update_matrix(&a, t * ROWS, vp_min_i64(ROWS, rows - t * ROWS));
}
