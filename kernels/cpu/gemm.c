/* kernels/cpu/gemm.c: matrix products in fixed tiles over a one-thread BLAS.
 *
 * A BLAS may order a sum by the shape it is asked for and by its threads. So every BLAS call here
 * has a shape that depends on neither chunking nor threads: VP_TILE_TOKENS rows (or the tail) by
 * TILE_COLS columns (or the tail), with k either whole or VP_TILE_TOKENS. A call chunked at whole
 * row tiles, run by any number of threads, is the same set of BLAS calls.
 *
 * TILE_COLS = 384: one AVX-512 core with OpenBLAS 0.3.21 reaches, for 256 x w x 768 tiles of a
 * 256 x 3072 product, 89 GFLOP/s at w = 64, 95 at 128, 96 at 256, 97 at 384, 98 at 768, 100 at
 * 3072; 384 divides the widths of common models and still leaves tiles enough for several
 * threads. */
#include "kernels/cpu/cpu_internal.h"

#include "base/checked.h"

#include <assert.h>
#include <cblas.h>
#include <limits.h>

enum { TILE_ROWS = VP_TILE_TOKENS, TILE_COLS = 384 };

void vp_cpu_gemm_call(const vp_gemm *g)
{
    assert(g->m >= 0 && g->n >= 0 && g->k >= 0 && g->m <= INT_MAX && g->n <= INT_MAX);
    /* stored rows do not lie on each other */
    assert(g->lda >= (g->a_transposed ? g->m : g->k) && g->ldb >= (g->b_transposed ? g->k : g->n));
    assert(g->ldc >= g->n);
    assert(g->lda <= INT_MAX && g->ldb <= INT_MAX && g->ldc <= INT_MAX && g->k <= INT_MAX);
    cblas_sgemm(CblasRowMajor, g->a_transposed ? CblasTrans : CblasNoTrans,
                g->b_transposed ? CblasTrans : CblasNoTrans, (blasint)g->m, (blasint)g->n,
                (blasint)g->k, g->alpha, g->a, (blasint)g->lda, g->b, (blasint)g->ldb,
                g->add ? 1.0f : 0.0f, g->c, (blasint)g->ldc);
}

/* C tile = bias rows, or zeros where there is none; or C itself and its bias. */
static void fill_rows(const vp_gemm *t, const float *bias)
{
    for (int64_t r = 0; r < t->m; r++) {
        if (t->add)
            for (int64_t c = 0; c < t->n; c++)
                t->c[r * t->ldc + c] += bias[c];
        else if (bias)
            memcpy(t->c + r * t->ldc, bias, (size_t)t->n * sizeof(float));
        else
            memset(t->c + r * t->ldc, 0, (size_t)t->n * sizeof(float));
    }
}

/* The BLAS adds into what C holds, so the bias is put there first: no second pass over C. */
static void gemm_tile(const vp_gemm *g, int64_t k_tile, const float *bias, int64_t row, int64_t col)
{
    vp_gemm t = *g;

    assert(row >= 0 && row < g->m && col >= 0 && col < g->n);
    t.m = vp_min_i64(TILE_ROWS, g->m - row);
    t.n = vp_min_i64(TILE_COLS, g->n - col);
    t.c = g->c + row * g->ldc + col;
    if (bias || (!t.add && g->k == 0)) {
        fill_rows(&t, bias ? bias + col : NULL);
        t.add = true;
    }
    for (int64_t k = 0; k < g->k; k += k_tile) {
        t.k = vp_min_i64(k_tile, g->k - k);
        t.a = g->a + (g->a_transposed ? k * g->lda + row : row * g->lda + k);
        t.b = g->b + (g->b_transposed ? col * g->ldb + k : k * g->ldb + col);
        vp_cpu_gemm_call(&t);
        t.add = true;
    }
}

void vp_cpu_gemm(const vp_gemm *g, int64_t k_tile, const float *bias)
{
    int64_t n_row_tiles = vp_ceil_div(g->m, TILE_ROWS);
    int64_t n_tiles     = n_row_tiles * vp_ceil_div(g->n, TILE_COLS);

    assert(g->m >= 0 && g->n >= 0 && (k_tile > 0 || g->k == 0));
    /* Rows inner: threads work on one panel of B at a time, which they share in the cache. */
#pragma omp parallel for schedule(dynamic) num_threads(vp_cpu_threads()) if (n_tiles > 1)
    for (int64_t tile = 0; tile < n_tiles; tile++)
        gemm_tile(g, k_tile, bias, tile % n_row_tiles * TILE_ROWS, tile / n_row_tiles * TILE_COLS);
}
