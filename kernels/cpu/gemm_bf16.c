/* kernels/cpu/gemm_bf16.c: products of bf16 and of fp16 matrices: classes, blocks, threads, and the baseline's
 * kernel.
 *
 * One operand is *resident*: a block of it is packed once and stays in the second-level cache while
 * *strips* of 32 lines of the other stream past it, a piece of k at a time that fits the
 * first-level cache. Resident is what is dearer to pack: A where it is stored transposed (its pairs
 * of k must be turned around), else B.
 *
 *     for strips:  for pieces of k:  pack the strip's piece;  for panels of the block:  tile +=
 *                  strip x panel
 *
 * Tiles between two pieces of k are fp32, so storing and loading them moves no bit, and neither
 * does any size here. Where k is too long for a block of all of it, k is cut once more outside
 * and STRIPS_LONG lines of the other operand keep their tiles meanwhile. Items (a block by a
 * range of strips) go to threads. */
#include "kernels/cpu/gemm_bf16.h"

#include "base/checked.h"
#include "kernels/cpu/bf16_span.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/gemm_bf16_internal.h"

#include <assert.h>
#include <pthread.h>
#include <stddef.h>

enum {
    LINES = VP_GEMM_BF16_LINES,
    UNIT  = VP_GEMM_BF16_K_UNIT,
    TILE  = LINES * LINES,
    /* The block and the tiles that wait: the larger part of a second-level cache, which has 1 or
     * 2 MiB where it matters. */
    BLOCK_BYTES = 1152 << 10,
    /* of a first-level cache of 32 or 48 KiB: with 32 there AMX is a tenth slower, measured */
    STRIP_BYTES = 16 << 10,
    LINES_MAX   = 1024, /* of a block */
    LINES_LEAST = 128,  /* of a block of all of k; with fewer, strips are read too often */
    LINES_LONG  = 384,  /* of a block of a part of k... */
    STRIPS_LONG = 512,  /* ...and of the strips whose tiles wait for the next part */
    WAKE_CYCLES = 10000 /* a few microseconds */
};

/* ---- the baseline ---- */

/* [k][32] floats. */
static void pack_baseline(void *panel, const uint16_t *x, int64_t ld, bool k_rows, int64_t n_lines,
                          int64_t k)
{
    float  *to    = panel;
    int64_t k_end = k + (UNIT - k % UNIT) % UNIT;

    for (int64_t i = 0; i < k; i++)
        for (int64_t l = 0; l < LINES; l++)
            to[i * LINES + l] =
                l < n_lines ? vp_bf16_to_f32(k_rows ? x[i * ld + l] : x[l * ld + i]) : 0.0f;
    memset(to + k * LINES, 0, (size_t)((k_end - k) * LINES) * sizeof *to);
}

static void multiply_baseline(const void *a, const void *b, int64_t k, const float *in,
                              int64_t ld_in, float *out, int64_t ld_out)
{
    for (int64_t r = 0; r < LINES; r += 4)
        for (int64_t c = 0; c < LINES; c += 8) {
            const float *pa = (const float *)a + r, *pb = (const float *)b + c;
            vp_f8        sum[4] = {{0}, {0}, {0}, {0}};

            for (int i = 0; in && i < 4; i++)
                sum[i] = *(const vp_f8 *)(in + (r + i) * ld_in + c);
            for (int64_t kk = 0; kk < k; kk++, pa += LINES, pb += LINES) {
                vp_f8 vb = *(const vp_f8 *)pb;
                sum[0] += pa[0] * vb;
                sum[1] += pa[1] * vb;
                sum[2] += pa[2] * vb;
                sum[3] += pa[3] * vb;
            }
            for (int i = 0; i < 4; i++)
                *(vp_f8 *)(out + (r + i) * ld_out + c) = sum[i];
        }
}

static const vp_gemm_bf16_kernels baseline = {
    .name          = "baseline",
    .element_bytes = 4,
    .mac_per_cycle = 4,
    .pack_a        = pack_baseline,
    .pack_b        = pack_baseline,
    .multiply      = multiply_baseline,
};

/* ---- the class ---- */

static pthread_once_t              once = PTHREAD_ONCE_INIT;
static const vp_gemm_bf16_kernels *kernels;
static vp_gemm_bf16_kernels        kernels_f16; /* floats are multiplied, fp16 is packed */
static vp_gemm_bf16_isa            class_found;

/* [k][32] floats, as all classes that multiply floats want them. */
VP_PER_ISA(pack_f16,
           (void *panel, const uint16_t *x, int64_t ld, bool k_rows, int64_t n_lines, int64_t k),
           (panel, x, ld, k_rows, n_lines, k))
{
    float  *to    = panel;
    int64_t k_end = k + (UNIT - k % UNIT) % UNIT;

    for (int64_t i = 0; i < k; i++)
        for (int64_t l = 0; l < n_lines; l++)
            to[i * LINES + l] = vp_fp16_to_f32(k_rows ? x[i * ld + l] : x[l * ld + i]);
    for (int64_t i = 0; n_lines < LINES && i < k; i++)
        memset(to + i * LINES + n_lines, 0, (size_t)(LINES - n_lines) * sizeof *to);
    memset(to + k * LINES, 0, (size_t)((k_end - k) * LINES) * sizeof *to);
}

static const vp_gemm_bf16_kernels *best(vp_gemm_bf16_isa most, vp_gemm_bf16_isa *found)
{
    const vp_gemm_bf16_kernels *k;

    *found = VP_GEMM_BF16_BASELINE;
    k      = vp_gemm_bf16_x86(most, found);
    return k ? k : &baseline;
}

static void choose(vp_gemm_bf16_isa most)
{
    vp_gemm_bf16_isa of_floats;

    kernels            = best(most, &class_found);
    kernels_f16        = *best(most < VP_GEMM_BF16_AVX512 ? most : VP_GEMM_BF16_AVX512, &of_floats);
    kernels_f16.pack_a = kernels_f16.pack_b = pack_f16;
    assert(kernels_f16.element_bytes == sizeof(float) && !kernels_f16.round);
}

static void start(void)
{
    choose(VP_GEMM_BF16_AMX);
}

const char *vp_cpu_gemm_bf16_class(void)
{
    pthread_once(&once, start);
    return kernels->name;
}

vp_gemm_bf16_isa vp_cpu_gemm_bf16_limit(vp_gemm_bf16_isa most)
{
    pthread_once(&once, start);
    choose(most);
    return class_found;
}

/* ---- one item ---- */

typedef struct job {
    const vp_gemm_bf16         *g;
    const uint16_t             *bias;
    const vp_gemm_bf16_kernels *kernels;
    bool                        resident_a;
    int64_t                     n_resident, n_streamed; /* lines of C: m and n, or n and m */
    int64_t                     k_outer, k_inner;       /* of k: in a block, in a strip's piece */
    /* whose tiles wait while k_outer moves on */
    int64_t n_strip_lines;
    int64_t block_lines, item_lines; /* of an item: resident, streamed */
} job;

static vp_dtype dtype_of(const vp_gemm_bf16 *g)
{
    return g->f16 ? VP_DTYPE_F16 : VP_DTYPE_BF16;
}

/* What an fp32 C starts from, its own tile at (row, col) or the bias. */
static void begin_tile(const vp_gemm_bf16 *g, const uint16_t *bias, int64_t row, int64_t col,
                       int64_t n_rows, int64_t n_cols, float *tile)
{
    for (int64_t r = 0; r < n_rows; r++) {
        if (bias)
            vp_half_widen(bias + col, tile + r * LINES, n_cols, dtype_of(g));
        else
            memcpy(tile + r * LINES, (const float *)g->c + (row + r) * g->ldc + col,
                   (size_t)n_cols * sizeof *tile);
    }
}

VP_ALWAYS_INLINE void add_row(const uint16_t *row, int64_t n_cols, vp_dtype dtype, float *sum)
{
    float more[LINES] = {0};

    vp_half_widen(row, more, n_cols, dtype);
    for (int64_t i = 0; i < LINES; i++)
        sum[i] += more[i];
}

VP_PER_ISA(round_tile,
           (const float *tile, const uint16_t *bias, bool add, uint16_t *c, int64_t ldc,
            int64_t n_rows, int64_t n_cols, vp_dtype dtype),
           (tile, bias, add, c, ldc, n_rows, n_cols, dtype))
{
    for (int64_t r = 0; r < n_rows; r++) {
        float sum[LINES];

        memcpy(sum, tile + r * LINES, sizeof sum);
        if (bias)
            add_row(bias, n_cols, dtype, sum);
        if (add)
            add_row(c + r * ldc, n_cols, dtype, sum);
        vp_half_round(sum, c + r * ldc, n_cols, dtype);
    }
}

static void round_into_c(const job *j, const float *tile, int64_t row, int64_t col, int64_t n_rows,
                         int64_t n_cols)
{
    const vp_gemm_bf16 *g    = j->g;
    const uint16_t     *bias = j->bias ? j->bias + col : NULL;
    uint16_t           *c    = (uint16_t *)g->c + row * g->ldc + col;

    if (j->kernels->round)
        j->kernels->round(tile, bias, g->add, c, g->ldc, n_rows, n_cols);
    else
        round_tile(tile, bias, g->add, c, g->ldc, n_rows, n_cols, dtype_of(g));
}

/* One piece of k for the tile at (row, col); tile is where it waits between pieces. */
static void add_piece(const job *j, const void *a, const void *b, int64_t k, int64_t row,
                      int64_t col, bool first, bool last, float *tile)
{
    const vp_gemm_bf16 *g = j->g;
    int64_t      n_rows = vp_min_i64(LINES, g->m - row), n_cols = vp_min_i64(LINES, g->n - col);
    bool         whole = g->c_f32 && n_rows == LINES && n_cols == LINES;
    float       *c     = whole ? (float *)g->c + row * g->ldc + col : NULL;
    const float *in    = tile;
    int64_t      ld_in = LINES;

    assert(row < g->m && col < g->n);
    if (first && g->add && whole) {
        in    = c;
        ld_in = g->ldc;
    } else if (first && g->c_f32 && (g->add || j->bias)) {
        begin_tile(g, j->bias, row, col, n_rows, n_cols, tile);
    } else if (first) {
        in = NULL;
    }
    if (last && whole) {
        j->kernels->multiply(a, b, k, in, ld_in, c, g->ldc);
        return;
    }
    j->kernels->multiply(a, b, k, in, ld_in, tile, LINES);
    if (last && g->c_f32)
        for (int64_t r = 0; r < n_rows; r++)
            memcpy((float *)g->c + (row + r) * g->ldc + col, tile + r * LINES,
                   (size_t)n_cols * sizeof *tile);
    else if (last)
        round_into_c(j, tile, row, col, n_rows, n_cols);
}

/* A panel of one operand of C: its lines from `line`, its k from `k`. */
static void pack(const job *j, bool of_a, int64_t line, int64_t k, int64_t n_k, void *panel)
{
    const vp_gemm_bf16 *g  = j->g;
    const uint16_t     *x  = of_a ? g->a : g->b;
    int64_t             ld = of_a ? g->lda : g->ldb, n = of_a ? g->m : g->n;
    bool                k_rows = of_a ? g->a_transposed : !g->b_transposed;

    assert(line < n && k + n_k <= g->k);
    x += k_rows ? k * ld + line : line * ld + k;
    (of_a ? j->kernels->pack_a : j->kernels->pack_b)(panel, x, ld, k_rows,
                                                     vp_min_i64(LINES, n - line), n_k);
}

static int64_t whole_units(int64_t k)
{
    return (k + UNIT - 1) / UNIT * UNIT;
}

/* Resident lines r0 .. r1 by streamed lines s0 .. s1. noinline: the blocks are on the stack of
 * whoever works, for as long as it works. */
__attribute__((noinline)) static void run_item(const job *j, int64_t r0, int64_t r1, int64_t s0,
                                               int64_t s1)
{
    _Alignas(64) char block[BLOCK_BYTES];
    _Alignas(64) char strip[STRIP_BYTES];
    int64_t           n_k = j->g->k, bytes = j->kernels->element_bytes;
    int64_t           n_panels  = (r1 - r0 + LINES - 1) / LINES;
    int64_t           panel_max = LINES * whole_units(vp_min_i64(j->k_outer, n_k)) * bytes;
    float            *tiles     = (float *)(block + n_panels * panel_max);

    assert(n_panels * panel_max + n_panels * j->n_strip_lines * LINES * (int64_t)sizeof(float) <=
           BLOCK_BYTES);
    assert(LINES * whole_units(j->k_inner) * bytes <= STRIP_BYTES);
    if (j->kernels->begin)
        j->kernels->begin();
    for (int64_t sb = s0; sb < s1; sb += j->n_strip_lines)
        for (int64_t ko = 0; ko < n_k; ko += j->k_outer) {
            int64_t n_outer     = vp_min_i64(j->k_outer, n_k - ko),
                    s_end       = vp_min_i64(s1, sb + j->n_strip_lines);
            int64_t panel_bytes = LINES * whole_units(n_outer) * bytes;

            if (sb == s0 || j->k_outer < n_k)
                for (int64_t p = 0; p < n_panels; p++)
                    pack(j, j->resident_a, r0 + p * LINES, ko, n_outer, block + p * panel_bytes);
            for (int64_t s = sb; s < s_end; s += LINES)
                for (int64_t ki = 0; ki < n_outer; ki += j->k_inner) {
                    int64_t n_inner = vp_min_i64(j->k_inner, n_outer - ki);
                    bool    first = ko + ki == 0, last = ko + ki + n_inner == n_k;

                    pack(j, !j->resident_a, s, ko + ki, n_inner, strip);
                    for (int64_t p = 0; p < n_panels; p++) {
                        const char *panel = block + p * panel_bytes + ki * LINES * bytes;
                        float      *tile  = tiles + ((s - sb) / LINES * n_panels + p) * TILE;

                        if (j->resident_a)
                            add_piece(j, panel, strip, whole_units(n_inner), r0 + p * LINES, s,
                                      first, last, tile);
                        else
                            add_piece(j, strip, panel, whole_units(n_inner), s, r0 + p * LINES,
                                      first, last, tile);
                    }
                }
        }
    if (j->kernels->end)
        j->kernels->end();
}

/* ---- sizes ---- */

/* How large blocks may be, from k and the class alone. */
static void choose_blocks(job *j)
{
    int64_t bytes = j->kernels->element_bytes, k = whole_units(j->g->k),
            piece    = STRIP_BYTES / (LINES * bytes);
    int64_t n_pieces = (k + piece - 1) / piece;

    /* Pieces of k of one size, nearly: a short last one would store its tiles as often as a long
     * one. */
    j->k_inner       = whole_units((k + n_pieces - 1) / n_pieces);
    j->k_outer       = k;
    j->n_strip_lines = LINES;
    j->block_lines   = BLOCK_BYTES / (k * bytes + LINES * (int64_t)sizeof(float)) / LINES * LINES;
    if (j->block_lines > LINES_MAX)
        j->block_lines = LINES_MAX;
    if (j->block_lines < LINES_LEAST) {
        j->k_inner = j->k_outer = piece;
        j->n_strip_lines        = STRIPS_LONG;
        j->block_lines          = LINES_LONG;
    }
    assert(j->block_lines > 0 && j->block_lines % LINES == 0 && j->n_strip_lines % LINES == 0);
    assert(j->k_inner > 0 && j->k_inner % UNIT == 0 && j->k_inner <= whole_units(j->k_outer));
}

/* Cut C into items for n_threads. The estimate, in cycles of one thread:
 *
 *     ceil(items / threads) (k r c_r + k s c_s + k r s / mac_per_cycle)
 *
 * r, s: an item's resident and streamed lines; c_r, c_s: cycles to pack an element, about what
 * an AVX-512 core needs with its data in the second-level cache. More than one item costs
 * WAKE_CYCLES besides, for threads that must be woken. Ties go to fewer items. */
static void choose_items(job *j, int64_t n_threads)
{
    const double c_r = 0.2, c_s = 0.1;
    int64_t      least = vp_ceil_div(j->n_resident, j->block_lines),
            most       = vp_ceil_div(j->n_resident, LINES);
    double best        = 0;

    most          = vp_min_i64(most, least + 2 * n_threads - 2);
    j->item_lines = 0;
    for (int64_t n_r = least; n_r <= most; n_r++)
        for (int64_t n_s = 1; n_s <= n_threads; n_s *= 2) {
            int64_t r       = (vp_ceil_div(j->n_resident, n_r) + LINES - 1) / LINES * LINES;
            int64_t s       = (vp_ceil_div(j->n_streamed, n_s) + LINES - 1) / LINES * LINES;
            int64_t n_items = vp_ceil_div(j->n_resident, r) * vp_ceil_div(j->n_streamed, s);
            double  cycles  = (double)j->g->k * ((double)r * c_r + (double)s * c_s +
                                               (double)r * (double)s / j->kernels->mac_per_cycle);

            cycles =
                cycles * (double)vp_ceil_div(n_items, n_threads) + (n_items > 1 ? WAKE_CYCLES : 0);
            if (j->item_lines == 0 || cycles < best) {
                best           = cycles;
                j->block_lines = r;
                j->item_lines  = s;
            }
        }
    assert(j->item_lines > 0 && j->item_lines % LINES == 0 && j->block_lines % LINES == 0);
}

/* C when there is nothing to sum: the bias or zeros. */
static void fill(const vp_gemm_bf16 *g, const uint16_t *bias)
{
    for (int64_t r = 0; r < g->m && !g->add; r++)
        for (int64_t c = 0; c < g->n; c++) {
            uint16_t x = bias ? bias[c] : 0;

            if (g->c_f32)
                vp_half_widen(&x, (float *)g->c + r * g->ldc + c, 1, dtype_of(g));
            else
                ((uint16_t *)g->c)[r * g->ldc + c] = x;
        }
}

static void run_nth_item(const job *j, int64_t item)
{
    int64_t n_blocks = vp_ceil_div(j->n_resident, j->block_lines);
    int64_t r = item % n_blocks * j->block_lines, s = item / n_blocks * j->item_lines;

    assert(r < j->n_resident && s < j->n_streamed);
    run_item(j, r, vp_min_i64(j->n_resident, r + j->block_lines), s,
             vp_min_i64(j->n_streamed, s + j->item_lines));
}

static void run(const vp_gemm_bf16 *g, const uint16_t *bias, int n_threads)
{
    job     j = {.g = g, .bias = bias, .resident_a = g->a_transposed};
    int64_t n_items;

    pthread_once(&once, start);
    assert(g->m >= 0 && g->n >= 0 && g->k >= 0 && n_threads > 0);
    assert(!(bias && g->add) || (!g->c_f32 && g->k > 0));
    if (g->m == 0 || g->n == 0)
        return;
    if (g->k == 0) {
        fill(g, bias);
        return;
    }
    assert(g->lda >= (g->a_transposed ? g->m : g->k) && g->ldb >= (g->b_transposed ? g->k : g->n));
    assert(g->ldc >= g->n);
    j.kernels    = g->f16 ? &kernels_f16 : kernels;
    j.n_resident = j.resident_a ? g->m : g->n;
    j.n_streamed = j.resident_a ? g->n : g->m;
    choose_blocks(&j);
    choose_items(&j, n_threads);
    n_items = vp_ceil_div(j.n_resident, j.block_lines) * vp_ceil_div(j.n_streamed, j.item_lines);
    if (n_items == 1 || n_threads == 1) {
        for (int64_t item = 0; item < n_items; item++)
            run_nth_item(&j, item);
        return;
    }
#pragma omp parallel for schedule(dynamic) num_threads(n_threads)
    for (int64_t item = 0; item < n_items; item++)
        run_nth_item(&j, item);
}

void vp_cpu_gemm_bf16(const vp_gemm_bf16 *g, const uint16_t *bias)
{
    run(g, bias, vp_cpu_threads());
}

void vp_cpu_gemm_bf16_call(const vp_gemm_bf16 *g, const uint16_t *bias)
{
    run(g, bias, 1);
}
