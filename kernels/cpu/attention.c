/* kernels/cpu/attention.c: softmax attention, by tiles of queries and keys.
 *
 *     s = scale q k',  t = c tanh(s / c) with softcap c > 0, else s
 *     P = softmax(t) over the keys seen,  y = (P o M) v,  lse = log sum exp t
 *
 * M is the dropout mask divided by 1 - p (all ones at p = 0); lse is of the undropped softmax.
 * Tiles of TILE_Q queries by TILE_K keys, running maximum and sum per row: Dao et al. 2022,
 * arXiv:2205.14135, as reordered in Dao 2023, arXiv:2307.08691. Backward recomputes P from lse;
 * with D = rowsum(dy o y)
 *
 *     dv = (P o M)' dy,  dP = M o (dy v'),  dt = P o (dP - D),  ds = dt o (1 - tanh^2(s / c)),
 *     dq = scale ds k,  dk = scale ds' q
 *
 * softcap: Gemma Team 2024, arXiv:2408.00118, section 2. Which keys query i sees: struct reach.
 * Tiles that no query of theirs sees are skipped, keys beyond a sample's length are not read. A
 * query that sees none has y = 0, lse = -infinity and no gradient.
 *
 * Where the attention matrix is kept (probs), forward writes exp(t - lse) after y is done and
 * backward reads it; in fp32 that is what backward would recompute, to the bit.
 *
 * A query head a reads kv head a / (heads / kv_heads). fp32: products accumulate in y, dq, dk and
 * dv themselves. bf16: sums stay in SCRATCH floats on the stack of each thread, and each result is
 * rounded once. Where the processor multiplies bf16 matrices, it is given q, k, v and dy as they
 * lie, and of P and ds, which are fp32, two parts: x rounded and what was cut off, rounded,
 * together within 2^-17 of x. Elsewhere rows are widened and the products are those of fp32.
 *
 * Backward is cut in one of two ways, by the threads there are; every sum has the same order in
 * both (dq: tiles of keys upwards; dk, dv: query heads, in each its tiles upwards), so the choice
 * moves no bit:
 *   whole  an item is all that one kv head of a sample gets and gives: five products for a pair of
 *          tiles;
 *   cut    an item is dq of one tile of queries, or dk and dv of one tile of keys: seven
 *          products, s and dP twice. */
#include "kernels/cpu/bf16_span.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/functions.h"
#include "kernels/cpu/gemm_bf16.h"
#include "kernels/cpu/philox.h"

#include "base/checked.h"

#include <assert.h>
#include <math.h>

enum {
    TILE_Q  = 64,
    TILE_K  = 64,
    TILES   = 6,                               /* of widened rows that one item needs at most */
    SCRATCH = TILES * TILE_Q * VP_MAX_HEAD_DIM /* floats: 384 KiB                             */
};

/* Queries, keys, values or results of all heads: element c of head h in row r is at base[r ld +
 * h step + c]. */
typedef struct part {
    void   *base;
    int64_t ld, step;
} part;

/* What one call works on. */
typedef struct shape {
    int64_t        batch, seq, heads, kv_heads, group, d;
    int64_t        window;       /* seq where there is none */
    bool           causal, half; /* half: dtype has 16 bits */
    vp_dtype       dtype;
    bool           native; /* bf16 products by instructions made for them */
    const int32_t *lengths;
    part           q, k, v, y, dy, dq, dk, dv;
    float         *lse;
    void          *probs;
    float          scale, cap;
    double         p;
    vp_philox_key  key;
    int64_t        first_sample;
} shape;

static void *element(const shape *s, void *base, int64_t i)
{
    return (char *)base + i * vp_dtype_bytes(s->dtype);
}

/* q, k and v, or their gradients, in the call's layout. */
static void lay_out(const shape *s, vp_qkv_layout layout, void *qs, void *ks, void *vs, part *q,
                    part *k, part *v)
{
    int64_t d = s->d, row = (s->heads + 2 * s->kv_heads) * d;

    switch (layout) {
    case VP_QKV_PACKED:
        *q = (part){qs, row, d};
        *k = (part){element(s, qs, s->heads * d), row, d};
        *v = (part){element(s, qs, (s->heads + s->kv_heads) * d), row, d};
        return;
    case VP_QKV_PER_HEAD:
        assert(s->kv_heads == s->heads);
        *q = (part){qs, row, 3 * d};
        *k = (part){element(s, qs, d), row, 3 * d};
        *v = (part){element(s, qs, 2 * d), row, 3 * d};
        return;
    case VP_QKV_APART:
        assert(ks && vs);
        *q = (part){qs, s->heads * d, d};
        *k = (part){ks, s->kv_heads * d, d};
        *v = (part){vs, s->kv_heads * d, d};
        return;
    }
    assert(!"no such layout");
}

static shape shape_of(const vp_kernel_call *call)
{
    const vp_attention_ints *n       = &call->attention;
    bool                     forward = call->kernel == VP_K_ATTENTION_FWD;
    shape                    s       = {
                                 .batch    = n->batch,
                                 .seq      = n->seq,
                                 .heads    = n->heads,
                                 .kv_heads = n->kv_heads,
                                 .d        = n->head_dim,
                                 .causal   = n->causal != 0,
                                 .window   = n->window > 0 && n->window < n->seq ? n->window : n->seq,
                                 .half     = call->dtype != VP_DTYPE_F32,
                                 .dtype    = call->dtype,
                                 .lengths  = VP_ATTENTION_OPERAND(call, LENGTHS),
                                 .y = {VP_ATTENTION_OPERAND(call, Y), n->heads * n->head_dim, n->head_dim},
                                 .lse          = VP_ATTENTION_OPERAND(call, LSE),
                                 .probs        = n->probs ? VP_ATTENTION_OPERAND(call, PROBS) : NULL,
                                 .scale        = (float)call->attention_reals.scale,
                                 .p            = call->attention_reals.p,
                                 .cap          = (float)call->attention_reals.softcap,
                                 .first_sample = call->rng.first_sample,
    };

    assert(s.batch > 0 && s.seq > 0 && s.d > 0 && s.lse);
    assert(s.kv_heads > 0 && s.heads % s.kv_heads == 0 && s.d <= VP_MAX_HEAD_DIM &&
           (!n->probs || s.probs));
    s.group  = s.heads / s.kv_heads;
    s.native = s.dtype == VP_DTYPE_BF16 && strcmp(vp_cpu_gemm_bf16_class(), "AMX-BF16") == 0;
    if (s.p > 0.0)
        s.key = vp_philox_key_of(&call->rng);
    lay_out(&s, (vp_qkv_layout)n->layout, VP_ATTENTION_OPERAND(call, Q),
            VP_ATTENTION_OPERAND(call, K), VP_ATTENTION_OPERAND(call, V), &s.q, &s.k, &s.v);
    if (!forward) {
        s.dy = (part){call->operand[VP_ATTENTION_BWD_DY], n->heads * n->head_dim, n->head_dim};
        lay_out(&s, (vp_qkv_layout)n->layout, call->operand[VP_ATTENTION_BWD_DQ],
                call->operand[VP_ATTENTION_BWD_DK], call->operand[VP_ATTENTION_BWD_DV], &s.dq,
                &s.dk, &s.dv);
    }
    return s;
}

/* ---- which keys a query sees ---- */

typedef struct reach {
    int64_t length, window;
    bool    causal;
} reach;

typedef struct keys {
    int64_t from, to; /* to is the first not seen; from >= to: none */
} keys;

/* j < length and |i - j| < window, j <= i if causal. Both ends grow with i. */
VP_ALWAYS_INLINE keys keys_of_query(reach r, int64_t i)
{
    int64_t from = i - r.window + 1, to = r.causal ? i + 1 : i + r.window;

    return (keys){from < 0 ? 0 : from, to < r.length ? to : r.length};
}

/* One head of one sample. */
typedef struct head_view {
    int64_t sample, head, row; /* row: the sample's first */
    reach   reach;
} head_view;

static head_view view_of(const shape *s, int64_t sample, int64_t head)
{
    int64_t length = s->lengths ? s->lengths[sample] : s->seq;

    assert(sample >= 0 && sample < s->batch && head >= 0 && head < s->heads);
    return (head_view){
        .sample = sample,
        .head   = head,
        .row    = sample * s->seq,
        .reach  = {.length = length < 0 ? 0 : vp_min_i64(length, s->seq),
                   .window = s->window,
                   .causal = s->causal},
    };
}

/* The keys that n_q queries from i0 on see, all together, from the first key of a tile on. */
static keys keys_of_tile(reach r, int64_t i0, int64_t n_q)
{
    keys k = {keys_of_query(r, i0).from, keys_of_query(r, i0 + n_q - 1).to};

    k.from -= k.from % TILE_K;
    return k;
}

/* The first tile of queries that sees anything of the tile of keys at j0. */
static int64_t first_query_tile(reach r, int64_t j0)
{
    int64_t i = r.causal ? j0 : vp_max_i64(0, j0 - r.window + 1);

    return i - i % TILE_Q;
}

/* Queries i0 .. i0 + n_q against keys j0 .. j0 + n_k. */
typedef struct pair {
    int64_t i0, j0, n_q, n_k;
    reach   reach;
} pair;

static pair pair_at(const shape *s, const head_view *h, int64_t i0, int64_t j0)
{
    assert(i0 >= 0 && i0 < s->seq && j0 >= 0 && j0 < s->seq);
    return (pair){
        .i0    = i0,
        .j0    = j0,
        .n_q   = vp_min_i64(TILE_Q, s->seq - i0),
        .n_k   = vp_min_i64(TILE_K, h->reach.length - j0),
        .reach = h->reach,
    };
}

/* The keys that query r of the pair sees, counted from j0; from <= to. */
VP_ALWAYS_INLINE keys keys_of_row(const pair *p, int64_t r)
{
    keys    k    = keys_of_query(p->reach, p->i0 + r);
    int64_t from = k.from - p->j0, to = k.to - p->j0;

    from = from < 0 ? 0 : from < p->n_k ? from : p->n_k;
    to   = to < from ? from : to < p->n_k ? to : p->n_k;
    return (keys){from, to};
}

/* ---- rows of one head ---- */

/* As products take them: floats, or bf16 where those are native. The operand's own, or widened
 * ones. */
typedef struct rows {
    const void *x;
    int64_t     ld;
} rows;

/* Sums. */
typedef struct tile {
    float  *x;
    int64_t ld;
} tile;

VP_PER_ISA(widen_rows,
           (const uint16_t *x, int64_t ldx, float *y, int64_t ldy, int64_t n_rows, int64_t n_cols,
            vp_dtype dtype),
           (x, ldx, y, ldy, n_rows, n_cols, dtype))
{
    for (int64_t r = 0; r < n_rows; r++)
        vp_half_widen(x + r * ldx, y + r * ldy, n_cols, dtype);
}

VP_PER_ISA(round_rows,
           (const float *x, int64_t ldx, uint16_t *y, int64_t ldy, int64_t n_rows, int64_t n_cols,
            vp_dtype dtype),
           (x, ldx, y, ldy, n_rows, n_cols, dtype))
{
    for (int64_t r = 0; r < n_rows; r++)
        vp_half_round(x + r * ldx, y + r * ldy, n_cols, dtype);
}

static void *place(const shape *s, const part *p, int64_t row, int64_t head)
{
    return element(s, p->base, row * p->ld + head * p->step);
}

/* Where n rows can be summed up: in the operand, or in scratch until put() rounds them. */
static tile sums_of(const shape *s, const part *p, int64_t row, int64_t head, float *scratch)
{
    return s->half ? (tile){scratch, s->d} : (tile){place(s, p, row, head), p->ld};
}

/* As floats. */
static tile widened(const shape *s, const part *p, int64_t row, int64_t head, int64_t n,
                    float *scratch)
{
    if (s->half)
        widen_rows(place(s, p, row, head), p->ld, scratch, s->d, n, s->d, s->dtype);
    return sums_of(s, p, row, head, scratch);
}

static rows bring(const shape *s, const part *p, int64_t row, int64_t head, int64_t n,
                  float *scratch)
{
    tile t;

    if (s->native)
        return (rows){place(s, p, row, head), p->ld};
    t = widened(s, p, row, head, n, scratch);
    return (rows){t.x, t.ld};
}

static void put(const shape *s, const part *p, int64_t row, int64_t head, int64_t n, tile t)
{
    if (s->half)
        round_rows(t.x, t.ld, place(s, p, row, head), p->ld, n, s->d, s->dtype);
}

static void zero_rows(const shape *s, const part *p, int64_t row, int64_t head, int64_t n)
{
    for (int64_t r = 0; r < n; r++)
        memset(place(s, p, row + r, head), 0, (size_t)(s->d * vp_dtype_bytes(s->dtype)));
}

static void *probs_at(const shape *s, const head_view *h, int64_t i, int64_t j)
{
    return element(s, s->probs, ((h->sample * s->heads + h->head) * s->seq + i) * s->seq + j);
}

/* n columns of the attention matrix from the pair's first key on, to or from a tile of TILE_K
 * columns. */
static void store_probs(const shape *s, const head_view *h, const pair *p, int64_t n,
                        const float *x)
{
    if (s->half) {
        round_rows(x, TILE_K, probs_at(s, h, p->i0, p->j0), s->seq, p->n_q, n, s->dtype);
        return;
    }
    for (int64_t r = 0; r < p->n_q; r++)
        memcpy(probs_at(s, h, p->i0 + r, p->j0), x + r * TILE_K, (size_t)n * sizeof(float));
}

static void load_probs(const shape *s, const head_view *h, const pair *p, float *x)
{
    if (s->half) {
        widen_rows(probs_at(s, h, p->i0, p->j0), s->seq, x, TILE_K, p->n_q, p->n_k, s->dtype);
        return;
    }
    for (int64_t r = 0; r < p->n_q; r++)
        memcpy(x + r * TILE_K, probs_at(s, h, p->i0 + r, p->j0), (size_t)p->n_k * sizeof(float));
}

/* ---- products ---- */

VP_PER_ISA(scale_tile, (float *x, float alpha, int64_t n_rows, int64_t n_cols),
           (x, alpha, n_rows, n_cols))
{
    for (int64_t r = 0; r < n_rows; r++) {
        float *row = x + r * TILE_K;
#pragma omp simd
        for (int64_t c = 0; c < n_cols; c++)
            row[c] *= alpha;
    }
}

/* x(m, n), TILE_K to a row, = alpha a b': dots of m rows with n rows. */
static void dots_of_rows(const shape *s, rows a, rows b, int64_t m, int64_t n, float alpha,
                         float *x)
{
    assert(m > 0 && m <= TILE_Q && n > 0 && n <= TILE_K);
    if (s->native) {
        vp_gemm_bf16 g = {
            .m            = m,
            .n            = n,
            .k            = s->d,
            .a            = a.x,
            .lda          = a.ld,
            .b            = b.x,
            .ldb          = b.ld,
            .b_transposed = true,
            .c            = x,
            .ldc          = TILE_K,
            .c_f32        = true,
        };

        vp_cpu_gemm_bf16_call(&g, NULL);
        if (alpha != 1.0f)
            scale_tile(x, alpha, m, n);
    } else {
        vp_gemm g = {
            .m            = m,
            .n            = n,
            .k            = s->d,
            .alpha        = alpha,
            .a            = a.x,
            .lda          = a.ld,
            .b            = b.x,
            .ldb          = b.ld,
            .b_transposed = true,
            .c            = x,
            .ldc          = TILE_K,
        };

        vp_cpu_gemm_call(&g);
    }
}

/* high + low = alpha x, but for 2^-17 of it. */
VP_PER_ISA(split,
           (const float *x, float alpha, uint16_t *high, uint16_t *low, int64_t n_rows,
            int64_t n_cols),
           (x, alpha, high, low, n_rows, n_cols))
{
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t c = 0; c < n_cols; c++) {
            float    v = alpha * x[r * TILE_K + c];
            uint16_t h = vp_bf16_from_f32(v);

            high[r * TILE_K + c] = h;
            low[r * TILE_K + c]  = vp_bf16_from_f32(v - vp_bf16_to_f32(h));
        }
}

/* c = alpha x b or, of_columns, alpha x' b; or += with add. x is n_q by n_k, TILE_K to a row. */
static void add_product(const shape *s, const float *x, bool of_columns, int64_t n_q, int64_t n_k,
                        float alpha, rows b, tile c, bool add)
{
    int64_t m = of_columns ? n_k : n_q, k = of_columns ? n_q : n_k;

    assert(n_q > 0 && n_q <= TILE_Q && n_k > 0 && n_k <= TILE_K);
    if (s->native) {
        _Alignas(64) uint16_t high[TILE_Q * TILE_K], low[TILE_Q * TILE_K];
        vp_gemm_bf16          g = {
                     .m            = m,
                     .n            = s->d,
                     .k            = k,
                     .a            = high,
                     .lda          = TILE_K,
                     .a_transposed = of_columns,
                     .b            = b.x,
                     .ldb          = b.ld,
                     .c            = c.x,
                     .ldc          = c.ld,
                     .c_f32        = true,
                     .add          = add,
        };

        split(x, alpha, high, low, n_q, n_k);
        vp_cpu_gemm_bf16_call(&g, NULL);
        g.a   = low;
        g.add = true;
        vp_cpu_gemm_bf16_call(&g, NULL);
    } else {
        vp_gemm g = {
            .m            = m,
            .n            = s->d,
            .k            = k,
            .alpha        = alpha,
            .a            = x,
            .lda          = TILE_K,
            .a_transposed = of_columns,
            .b            = b.x,
            .ldb          = b.ld,
            .c            = c.x,
            .ldc          = c.ld,
            .add          = add,
        };

        vp_cpu_gemm_call(&g);
    }
}

/* ---- scores ---- */

/* s becomes cap tanh(s / cap), slope (where wanted) 1 - tanh^2(s / cap). */
VP_PER_ISA(cap_scores, (float *s, float *slope, int64_t n_q, int64_t n_k, float cap),
           (s, slope, n_q, n_k, cap))
{
    float inv = 1.0f / cap;

    for (int64_t r = 0; r < n_q; r++) {
        float *row = s + r * TILE_K, *slope_row = slope + r * TILE_K;
#pragma omp simd
        for (int64_t c = 0; c < n_k; c++) {
            float t      = vp_tanh(row[c] * inv);
            row[c]       = cap * t;
            slope_row[c] = 1.0f - t * t;
        }
    }
}

/* The pair's scores, TILE_K to a row; slope only with a cap. */
static void scores_of(const shape *s, const pair *p, rows q, rows k, float *score, float *slope)
{
    dots_of_rows(s, q, k, p->n_q, p->n_k, s->scale, score);
    if (s->cap > 0.0f)
        cap_scores(score, slope, p->n_q, p->n_k, s->cap);
}

/* mask of row i, keys j0 .. j0 + n */
static void mask_row(const shape *s, const head_view *h, int64_t i, int64_t j0, int64_t n,
                     float *mask)
{
    vp_philox_mask(s->key, (uint64_t)(s->first_sample + h->sample),
                   vp_philox_attention_block(s->seq, h->head, i, j0 / 4), n, s->p, mask);
}

/* x becomes P = exp(x - lse), keys not seen 0. exp_neg wants x <= lse, true but for rounding. */
VP_PER_ISA(probabilities, (float *x, const pair *p, const float *lse), (x, p, lse))
{
    for (int64_t r = 0; r < p->n_q; r++) {
        float *row = x + r * TILE_K, l = lse[r];
        keys   k = keys_of_row(p, r);

        for (int64_t c = 0; c < k.from; c++)
            row[c] = 0.0f;
#pragma omp simd
        for (int64_t c = k.from; c < k.to; c++)
            row[c] = vp_exp_neg(row[c] - l);
        for (int64_t c = k.to; c < p->n_k; c++)
            row[c] = 0.0f;
    }
}

VP_PER_ISA(multiply, (const float *x, float *y, int64_t n), (x, y, n))
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] *= x[i];
}

/* ---- forward ---- */

/* One tile of scores becomes exp(s - max), rows' maxima and sums move on, and y is brought to
 * the new maximum: y *= exp(old - new). Keys not seen become 0. */
VP_PER_ISA(online_softmax,
           (float *s, const pair *p, bool first, float *row_max, float *row_sum, tile y, int64_t d),
           (s, p, first, row_max, row_sum, y, d))
{
    for (int64_t r = 0; r < p->n_q; r++) {
        float *row = s + r * TILE_K, *y_row = y.x + r * y.ld;
        keys   k   = keys_of_row(p, r);
        float  old = row_max[r], m, keep;

        for (int64_t c = 0; c < k.from; c++)
            row[c] = 0.0f;
        for (int64_t c = k.to; c < p->n_k; c++)
            row[c] = 0.0f;
        if (k.from == k.to)
            continue;
        m    = vp_max(row + k.from, k.to - k.from);
        m    = m > old ? m : old;
        keep = vp_exp_neg(old - m);
#pragma omp simd
        for (int64_t c = k.from; c < k.to; c++)
            row[c] = vp_exp_neg(row[c] - m);
        row_max[r] = m;
        row_sum[r] = row_sum[r] * keep + vp_sum(row + k.from, k.to - k.from);
        if (!first) {
#pragma omp simd
            for (int64_t c = 0; c < d; c++)
                y_row[c] *= keep;
        }
    }
}

/* A sum of 0: no key was seen, y is 0 already. A NaN stays one. */
VP_PER_ISA(scale_rows, (tile y, const float *row_sum, int64_t n_q, int64_t d), (y, row_sum, n_q, d))
{
    for (int64_t r = 0; r < n_q; r++) {
        float *row = y.x + r * y.ld, inv = row_sum[r] == 0.0f ? 0.0f : 1.0f / row_sum[r];
#pragma omp simd
        for (int64_t c = 0; c < d; c++)
            row[c] *= inv;
    }
}

/* The rows of n_q queries of the attention matrix. score, slope: room for a tile. fp32:
 * forward_tile() left the scores there; in bf16 they would have been rounded, so they are
 * computed once more. */
static void forward_probs(const shape *s, const head_view *h, keys seen, int64_t i0, rows q,
                          float *k_scratch, float *score, float *slope)
{
    const float *lse = s->lse + (h->sample * s->heads + h->head) * s->seq + i0;

    for (int64_t j0 = 0; j0 < s->seq; j0 += TILE_K) {
        pair    p = pair_at(s, h, i0, j0);
        int64_t n = vp_min_i64(TILE_K, s->seq - j0);

        if (j0 < seen.from || j0 >= seen.to) {
            memset(score, 0, TILE_Q * TILE_K * sizeof *score);
        } else {
            if (s->half)
                scores_of(s, &p, q,
                          bring(s, &s->k, h->row + j0, h->head / s->group, p.n_k, k_scratch), score,
                          slope);
            else
                load_probs(s, h, &p, score);
            probabilities(score, &p, lse);
            for (int64_t r = 0; r < p.n_q; r++)
                memset(score + r * TILE_K + p.n_k, 0, (size_t)(n - p.n_k) * sizeof *score);
        }
        store_probs(s, h, &p, n, score);
    }
}

static void forward_tile(const shape *s, const head_view *h, int64_t i0, float *scratch)
{
    float   score[TILE_Q * TILE_K], slope[TILE_Q * TILE_K];
    float   row_max[TILE_Q], row_sum[TILE_Q];
    float  *lse = s->lse + (h->sample * s->heads + h->head) * s->seq + i0;
    int64_t n_q = vp_min_i64(TILE_Q, s->seq - i0), kv = h->head / s->group, one = TILE_Q * s->d;
    keys    seen = keys_of_tile(h->reach, i0, n_q);
    tile    y    = sums_of(s, &s->y, h->row + i0, h->head, scratch);
    rows    q    = bring(s, &s->q, h->row + i0, h->head, n_q, scratch + one);

    assert(i0 % TILE_Q == 0 && n_q > 0 && 3 * one <= SCRATCH);
    for (int64_t r = 0; r < n_q; r++) {
        row_max[r] = -INFINITY;
        row_sum[r] = 0.0f;
    }
    for (int64_t j0 = seen.from; j0 < seen.to; j0 += TILE_K) {
        pair p = pair_at(s, h, i0, j0);

        scores_of(s, &p, q, bring(s, &s->k, h->row + j0, kv, p.n_k, scratch + 2 * one), score,
                  slope);
        if (s->probs && !s->half)
            store_probs(s, h, &p, p.n_k, score);
        online_softmax(score, &p, j0 == seen.from, row_max, row_sum, y, s->d);
        if (s->p > 0.0)
            for (int64_t r = 0; r < n_q; r++) {
                float mask[TILE_K];
                mask_row(s, h, i0 + r, j0, p.n_k, mask);
                multiply(mask, score + r * TILE_K, p.n_k);
            }
        add_product(s, score, false, n_q, p.n_k, 1.0f,
                    bring(s, &s->v, h->row + j0, kv, p.n_k, scratch + 2 * one), y, j0 > seen.from);
    }
    if (seen.from < seen.to) {
        scale_rows(y, row_sum, n_q, s->d);
        put(s, &s->y, h->row + i0, h->head, n_q, y);
    } else {
        zero_rows(s, &s->y, h->row + i0, h->head, n_q);
    }
    for (int64_t r = 0; r < n_q; r++)
        lse[r] = row_max[r] + logf(row_sum[r]);
    if (s->probs)
        forward_probs(s, h, seen, i0, q, scratch + 2 * one, score, slope);
}

void vp_cpu_attention_fwd(const vp_kernel_call *call)
{
    shape   s       = shape_of(call);
    int64_t n_tiles = vp_ceil_div(s.seq, TILE_Q), n_items = s.batch * s.heads * n_tiles;

#pragma omp parallel num_threads(vp_cpu_threads()) if (n_items > 1)
    {
        _Alignas(64) float scratch[SCRATCH];

#pragma omp for schedule(dynamic)
        for (int64_t item = 0; item < n_items; item++) {
            /* Longest rows first: the last items to be handed out are the short ones. */
            int64_t tile_idx = n_tiles - 1 - item / (s.batch * s.heads),
                    row      = item % (s.batch * s.heads);
            head_view h      = view_of(&s, row / s.heads, row % s.heads);

            forward_tile(&s, &h, tile_idx * TILE_Q, scratch);
        }
    }
}

/* ---- backward ---- */

/* out[r] = sum_c x[r][c] y[r][c] */
VP_PER_ISA(row_dots, (tile x, tile y, int64_t n_q, int64_t d, float *out), (x, y, n_q, d, out))
{
    for (int64_t r = 0; r < n_q; r++)
        out[r] = vp_dot(x.x + r * x.ld, y.x + r * y.ld, d);
}

/* dP becomes ds = P o (dP - D). */
VP_PER_ISA(score_gradient,
           (const float *prob, float *dp, int64_t n_q, int64_t n_k, const float *d_row),
           (prob, dp, n_q, n_k, d_row))
{
    for (int64_t r = 0; r < n_q; r++) {
        const float *prob_row = prob + r * TILE_K;
        float       *dp_row   = dp + r * TILE_K;
        float        dr       = d_row[r];

#pragma omp simd
        for (int64_t c = 0; c < n_k; c++)
            dp_row[c] = prob_row[c] * (dp_row[c] - dr);
    }
}

/* P o M and ds of one pair. */
static void pair_gradients(const shape *s, const head_view *h, const pair *p, rows q, rows k,
                           rows v, rows dy, const float *lse, const float *d_row, float *prob,
                           float *ds)
{
    float slope[TILE_Q * TILE_K];

    if (!s->probs || s->cap > 0.0f)
        scores_of(s, p, q, k, prob, slope);
    if (s->probs)
        load_probs(s, h, p, prob);
    else
        probabilities(prob, p, lse);
    dots_of_rows(s, dy, v, p->n_q, p->n_k, 1.0f, ds);
    if (s->p > 0.0) {
        /* ds needs P, dv needs P o M: row by row, ds first, then the mask goes onto P. */
        for (int64_t r = 0; r < p->n_q; r++) {
            float mask[TILE_K];
            mask_row(s, h, p->i0 + r, p->j0, p->n_k, mask);
            multiply(mask, ds + r * TILE_K, p->n_k);
            score_gradient(prob + r * TILE_K, ds + r * TILE_K, 1, p->n_k, d_row + r);
            multiply(mask, prob + r * TILE_K, p->n_k);
        }
    } else {
        score_gradient(prob, ds, p->n_q, p->n_k, d_row);
    }
    for (int64_t r = 0; s->cap > 0.0f && r < p->n_q; r++)
        multiply(slope + r * TILE_K, ds + r * TILE_K, p->n_k);
}

/* A part of the work on one sample and kv head: these query heads, queries and keys (whole
 * tiles), and what is wanted: dq wants all keys, dk and dv want all queries of all heads. */
typedef struct backward_item {
    int64_t sample, kv;
    int64_t head_from, head_to, i_from, i_to, j_from, j_to;
    bool    dq, dkv;
} backward_item;

/* Floats of scratch that an item takes in bf16: q, dy, k, v and maybe dq of a tile, then dk and
 * dv of its keys. */
static int64_t scratch_of_item(const shape *s, const backward_item *b)
{
    return ((b->dq ? 5 : 4) * TILE_Q + (b->dkv ? 2 * (b->j_to - b->j_from) : 0)) * s->d;
}

static void backward(const shape *s, const backward_item *b, float *scratch)
{
    float   prob[TILE_Q * TILE_K], ds[TILE_Q * TILE_K], d_row[TILE_Q];
    int64_t one = TILE_Q * s->d, row = b->sample * s->seq, brought = -1,
            n_keys = b->dkv ? b->j_to - b->j_from : 0;
    rows   k = {0}, v = {0};
    float *of_keys = scratch + (b->dq ? 5 : 4) * one;
    tile   dk      = sums_of(s, &s->dk, row + b->j_from, b->kv, of_keys);
    tile   dv      = sums_of(s, &s->dv, row + b->j_from, b->kv, of_keys + n_keys * s->d);
    /* of the keys, those within the length */
    int64_t n_known = view_of(s, b->sample, 0).reach.length - b->j_from;

    assert(!s->half || scratch_of_item(s, b) <= SCRATCH);
    assert(b->dq || b->dkv);
    assert(b->head_from < b->head_to && b->head_to <= s->heads && b->head_from / s->group == b->kv);
    assert(b->i_from < b->i_to && b->i_to <= s->seq && b->j_from < b->j_to && b->j_to <= s->seq);
    assert(b->i_from % TILE_Q == 0 && b->j_from % TILE_K == 0);
    n_known = n_known < 0 ? 0 : vp_min_i64(n_known, n_keys);
    for (int64_t head = b->head_from; head < b->head_to; head++) {
        head_view h = view_of(s, b->sample, head);

        for (int64_t i0 = b->i_from; i0 < b->i_to; i0 += TILE_Q) {
            int64_t      n_q  = vp_min_i64(TILE_Q, s->seq - i0);
            const float *lse  = s->lse + (b->sample * s->heads + head) * s->seq + i0;
            keys         seen = keys_of_tile(h.reach, i0, n_q);
            tile wide, dq = sums_of(s, &s->dq, row + i0, head, b->dq ? scratch + 4 * one : NULL);
            rows q, dy;

            if (seen.from >= seen.to && b->dq)
                zero_rows(s, &s->dq, row + i0, head, n_q);
            seen.from = vp_max_i64(seen.from, b->j_from);
            seen.to   = vp_min_i64(seen.to, b->j_to);
            if (seen.from >= seen.to)
                continue;
            /* q is not wanted yet: its place holds y as long as that is. */
            wide = widened(s, &s->dy, row + i0, head, n_q, scratch + one);
            row_dots(wide, widened(s, &s->y, row + i0, head, n_q, scratch), n_q, s->d, d_row);
            q  = bring(s, &s->q, row + i0, head, n_q, scratch);
            dy = s->native ? (rows){place(s, &s->dy, row + i0, head), s->dy.ld}
                           : (rows){wide.x, wide.ld};
            for (int64_t j0 = seen.from; j0 < seen.to; j0 += TILE_K) {
                pair    p     = pair_at(s, &h, i0, j0);
                int64_t at    = b->dkv ? j0 - b->j_from : 0;
                bool    begun = head > b->head_from || i0 > first_query_tile(h.reach, j0);

                if (j0 != brought) {
                    k       = bring(s, &s->k, row + j0, b->kv, p.n_k, scratch + 2 * one);
                    v       = bring(s, &s->v, row + j0, b->kv, p.n_k, scratch + 3 * one);
                    brought = j0;
                }
                pair_gradients(s, &h, &p, q, k, v, dy, lse, d_row, prob, ds);
                if (b->dkv)
                    add_product(s, prob, true, n_q, p.n_k, 1.0f, dy,
                                (tile){dv.x + at * dv.ld, dv.ld}, begun);
                if (b->dq)
                    add_product(s, ds, false, n_q, p.n_k, s->scale, k, dq, j0 > seen.from);
                if (b->dkv)
                    add_product(s, ds, true, n_q, p.n_k, s->scale, q,
                                (tile){dk.x + at * dk.ld, dk.ld}, begun);
            }
            if (b->dq)
                put(s, &s->dq, row + i0, head, n_q, dq);
        }
    }
    if (b->dkv) {
        put(s, &s->dk, row + b->j_from, b->kv, n_known, dk);
        put(s, &s->dv, row + b->j_from, b->kv, n_known, dv);
        zero_rows(s, &s->dk, row + b->j_from + n_known, b->kv, n_keys - n_known);
        zero_rows(s, &s->dv, row + b->j_from + n_known, b->kv, n_keys - n_known);
    }
}

/* All of one kv head of one sample. */
static backward_item whole_item(const shape *s, int64_t item)
{
    int64_t kv = item % s->kv_heads;

    return (backward_item){
        .sample    = item / s->kv_heads,
        .kv        = kv,
        .head_from = kv * s->group,
        .head_to   = (kv + 1) * s->group,
        .i_to      = s->seq,
        .j_to      = s->seq,
        .dq        = true,
        .dkv       = true,
    };
}

/* Items of the cut: first dk and dv by tiles of keys, causal's longest first; then dq by tiles
 * of queries, likewise. */
static backward_item cut_item(const shape *s, int64_t item)
{
    int64_t n_tiles = vp_ceil_div(s->seq, TILE_K), n_kv = s->batch * s->kv_heads,
            n_q = s->batch * s->heads;
    backward_item b;

    if (item < n_kv * n_tiles) {
        b        = whole_item(s, item % n_kv);
        b.j_from = item / n_kv * TILE_K;
        b.j_to   = vp_min_i64(s->seq, b.j_from + TILE_K);
        b.dq     = false;
        return b;
    }
    assert(item < (n_kv + n_q) * n_tiles);
    item -= n_kv * n_tiles;
    b           = whole_item(s, item % n_q / s->group);
    b.head_from = item % n_q % s->heads;
    b.head_to   = b.head_from + 1;
    b.i_from    = (n_tiles - 1 - item / n_q) * TILE_Q;
    b.i_to      = vp_min_i64(s->seq, b.i_from + TILE_Q);
    b.dkv       = false;
    return b;
}

/* Whether a key-value head of a sample is one unit of work, or is cut into tiles of keys, which make dk
 * and dv, and tiles of queries, which make dq. The small units keep all threads busy to the end, but s
 * and dP are computed for both: 7 products in place of 5 or, where the probabilities are kept and s is
 * not computed, 5 in place of 4. So a head stays whole where the threads, each taking whole heads in
 * turn, need no more time than that. */
static bool is_whole(const shape *s, int64_t n_threads)
{
    int64_t n_items = s->batch * s->kv_heads, in_turn = vp_ceil_div(n_items, n_threads) * n_threads;
    bool    reads_scores = s->probs && !(s->cap > 0.0f);
    backward_item b      = whole_item(s, 0);

    if (s->half && scratch_of_item(s, &b) > SCRATCH)
        return false;
    return reads_scores ? 4 * in_turn <= 5 * n_items : 5 * in_turn <= 7 * n_items;
}

void vp_cpu_attention_bwd(const vp_kernel_call *call)
{
    shape   s       = shape_of(call);
    bool    whole   = is_whole(&s, vp_cpu_threads());
    int64_t n_items = s.batch * s.kv_heads;

    if (!whole)
        n_items = vp_ceil_div(s.seq, TILE_K) * s.batch * (s.heads + s.kv_heads);
#pragma omp parallel num_threads(vp_cpu_threads()) if (n_items > 1)
    {
        _Alignas(64) float scratch[SCRATCH];

#pragma omp for schedule(dynamic)
        for (int64_t item = 0; item < n_items; item++) {
            backward_item b = whole ? whole_item(&s, item) : cut_item(&s, item);

            backward(&s, &b, scratch);
        }
    }
}
