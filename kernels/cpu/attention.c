/* kernels/cpu/attention.c: causal attention without the attention matrix.
 *
 *     s = scale q k',  P = softmax(s) over keys j <= i,  y = (P o M) v,  lse = log sum exp s
 *
 * M is the dropout mask divided by 1 - p (all ones at p = 0); lse is of the undropped softmax. Tiles of
 * TILE_Q queries by TILE_K keys, running maximum and sum per row: Dao et al. 2022, arXiv:2205.14135, as
 * reordered in Dao 2023, arXiv:2307.08691. Backward recomputes P from lse; with D = rowsum(dy o y)
 *
 *     dv = (P o M)' dy,  dP = M o (dy v'),  ds = P o (dP - D),  dq = scale ds k,  dk = scale ds' q
 *
 * A row of qkv is [q: heads d | k: kv_heads d | v: kv_heads d]; query head a reads kv head
 * a / (heads / kv_heads). Products accumulate in y and d_qkv themselves; the tiles of s and dP are
 * all there is beside them: 32 KiB on the stack of each thread. */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/philox.h"

#include "core/checked.h"

#include <assert.h>
#include <math.h>

enum { TILE_Q = 64, TILE_K = 64 };

/* What one call works on, and where one head of it lies. */
typedef struct shape {
    int64_t       batch, seq, heads, kv_heads, d;
    int64_t       qkv_ld, y_ld; /* floats between rows */
    float         scale;
    double        p;
    vp_philox_key key;
    int64_t       first_sample;
} shape;

typedef struct head_view {
    const float *q, *k, *v;
    int64_t      sample, head; /* sample within the call */
} head_view;

static shape shape_of(const vp_kernel_call *call)
{
    const int64_t *n = call->ints;
    shape          s = {
        .batch = n[0], .seq = n[1], .heads = n[2], .kv_heads = n[3], .d = n[4],
        .qkv_ld = (n[2] + 2 * n[3]) * n[4], .y_ld = n[2] * n[4],
        .scale = (float)call->reals[0], .p = call->reals[1],
        .first_sample = call->rng.first_sample,
    };

    if (s.p > 0.0)
        s.key = vp_philox_key_of(&call->rng);
    assert(s.kv_heads > 0 && s.heads % s.kv_heads == 0);
    return s;
}

static head_view view_of(const shape *s, const float *qkv, int64_t sample, int64_t head)
{
    int64_t      kv  = head / (s->heads / s->kv_heads);
    const float *row = qkv + sample * s->seq * s->qkv_ld;

    return (head_view){
        .q = row + head * s->d, .k = row + (s->heads + kv) * s->d,
        .v = row + (s->heads + s->kv_heads + kv) * s->d, .sample = sample, .head = head,
    };
}

/* mask of row i, keys j0 .. j0 + n */
static void mask_row(const shape *s, const head_view *h, int64_t i, int64_t j0, int64_t n, float *mask)
{
    vp_philox_mask(s->key, (uint64_t)(s->first_sample + h->sample),
                   vp_philox_attention_block(s->seq, h->head, i, j0 / 4), n, s->p, mask);
}

/* Keys of the tile at j0 that query i sees: those at or before it. */
VP_ALWAYS_INLINE int64_t n_visible(int64_t i, int64_t j0, int64_t n_k)
{
    int64_t n = i - j0 + 1;
    return n < 0 ? 0 : n < n_k ? n : n_k;
}

/* One tile of scores becomes exp(s - max), rows' maxima and sums move on, and y is brought to the new
 * maximum: y *= exp(old - new). Hidden keys become 0. */
VP_PER_ISA(online_softmax, (float *s, int64_t n_q, int64_t n_k, int64_t i0, int64_t j0, float *row_max,
                            float *row_sum, float *y, int64_t y_ld, int64_t d),
           (s, n_q, n_k, i0, j0, row_max, row_sum, y, y_ld, d))
{
    for (int64_t r = 0; r < n_q; r++) {
        float  *row  = s + r * TILE_K;
        int64_t n    = n_visible(i0 + r, j0, n_k);
        float   old  = row_max[r];
        float   m    = vp_max(row, n);
        float   keep;

        m    = m > old ? m : old;
        keep = vp_exp_neg(old - m);
#pragma omp simd
        for (int64_t c = 0; c < n; c++)
            row[c] = vp_exp_neg(row[c] - m);
        for (int64_t c = n; c < n_k; c++)
            row[c] = 0.0f;
        row_max[r] = m;
        row_sum[r] = row_sum[r] * keep + vp_sum(row, n);
        if (j0 > 0) {
#pragma omp simd
            for (int64_t c = 0; c < d; c++)
                y[r * y_ld + c] *= keep;
        }
    }
}

VP_PER_ISA(scale_rows, (float *y, int64_t y_ld, const float *row_sum, int64_t n_q, int64_t d),
           (y, y_ld, row_sum, n_q, d))
{
    for (int64_t r = 0; r < n_q; r++) {
        float inv = 1.0f / row_sum[r];
#pragma omp simd
        for (int64_t c = 0; c < d; c++)
            y[r * y_ld + c] *= inv;
    }
}

VP_PER_ISA(multiply, (const float *x, float *y, int64_t n), (x, y, n))
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] *= x[i];
}

static void forward_tile(const shape *s, const head_view *h, int64_t i0, float *y, float *lse)
{
    float   score[TILE_Q * TILE_K];
    float   row_max[TILE_Q], row_sum[TILE_Q];
    int64_t n_q = vp_min_i64(TILE_Q, s->seq - i0);

    for (int64_t r = 0; r < n_q; r++) {
        row_max[r] = -INFINITY;
        row_sum[r] = 0.0f;
    }
    for (int64_t j0 = 0; j0 < i0 + n_q; j0 += TILE_K) {
        int64_t n_k = vp_min_i64(TILE_K, s->seq - j0);
        vp_gemm qk  = {
            .m = n_q, .n = n_k, .k = s->d, .alpha = s->scale,
            .a = h->q + i0 * s->qkv_ld, .lda = s->qkv_ld,
            .b = h->k + j0 * s->qkv_ld, .ldb = s->qkv_ld, .b_transposed = true,
            .c = score, .ldc = TILE_K,
        };
        vp_gemm pv = {
            .m = n_q, .n = s->d, .k = n_k, .alpha = 1.0f,
            .a = score, .lda = TILE_K,
            .b = h->v + j0 * s->qkv_ld, .ldb = s->qkv_ld,
            .c = y, .ldc = s->y_ld, .add = j0 > 0,
        };

        vp_cpu_gemm_call(&qk);
        online_softmax(score, n_q, n_k, i0, j0, row_max, row_sum, y, s->y_ld, s->d);
        if (s->p > 0.0)
            for (int64_t r = 0; r < n_q; r++) {
                float mask[TILE_K];
                mask_row(s, h, i0 + r, j0, n_k, mask);
                multiply(mask, score + r * TILE_K, n_k);
            }
        vp_cpu_gemm_call(&pv);
    }
    scale_rows(y, s->y_ld, row_sum, n_q, s->d);
    for (int64_t r = 0; r < n_q; r++)
        lse[r] = row_max[r] + logf(row_sum[r]);
}

void vp_cpu_attention_fwd(const vp_kernel_call *call)
{
    const float *qkv = call->operand[0];
    float       *y = call->operand[1], *lse = call->operand[2];
    shape        s       = shape_of(call);
    int64_t      n_tiles = vp_ceil_div(s.seq, TILE_Q), n_items = s.batch * s.heads * n_tiles;

#pragma omp parallel for schedule(dynamic) num_threads(vp_cpu_threads()) if (n_items > 1)
    for (int64_t item = 0; item < n_items; item++) {
        /* Longest rows first: the last items to be handed out are the short ones. */
        int64_t   tile = n_tiles - 1 - item / (s.batch * s.heads), row = item % (s.batch * s.heads);
        int64_t   sample = row / s.heads, head = row % s.heads, i0 = tile * TILE_Q;
        head_view h = view_of(&s, qkv, sample, head);

        forward_tile(&s, &h, i0, y + (sample * s.seq + i0) * s.y_ld + head * s.d,
                     lse + row * s.seq + i0);
    }
}

/* out[r] = sum_c x[r][c] y[r][c] */
VP_PER_ISA(row_dots, (const float *x, const float *y, int64_t ld, int64_t n_q, int64_t d, float *out),
           (x, y, ld, n_q, d, out))
{
    for (int64_t r = 0; r < n_q; r++)
        out[r] = vp_dot(x + r * ld, y + r * ld, d);
}

/* s becomes P = exp(s - lse), hidden keys 0. exp_neg wants s <= lse, true but for rounding. */
VP_PER_ISA(probabilities, (float *s, int64_t n_q, int64_t n_k, int64_t i0, int64_t j0, const float *lse),
           (s, n_q, n_k, i0, j0, lse))
{
    for (int64_t r = 0; r < n_q; r++) {
        float  *row = s + r * TILE_K;
        int64_t n   = n_visible(i0 + r, j0, n_k);
        float   l   = lse[r];

#pragma omp simd
        for (int64_t c = 0; c < n; c++)
            row[c] = vp_exp_neg(row[c] - l);
        for (int64_t c = n; c < n_k; c++)
            row[c] = 0.0f;
    }
}

/* dP becomes ds = P o (dP - D). */
VP_PER_ISA(score_gradient, (const float *prob, float *dp, int64_t n_q, int64_t n_k, const float *d_row),
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

typedef struct gradient_view {
    const float *dy;         /* this head's columns of dy, y          */
    float       *dq, *dk, *dv;
    const float *d_row;      /* D of the query tile                   */
    const float *lse;        /* of the query tile                     */
    bool         first_head; /* dk and dv hold nothing of this call   */
} gradient_view;

/* Queries i0.. against keys j0..: everything this pair of tiles gives to dq, dk and dv. */
static void backward_tile(const shape *s, const head_view *h, const gradient_view *g, int64_t i0,
                          int64_t j0)
{
    float   prob[TILE_Q * TILE_K], dp[TILE_Q * TILE_K];
    int64_t n_q = vp_min_i64(TILE_Q, s->seq - i0), n_k = vp_min_i64(TILE_K, s->seq - j0);
    bool    first_for_keys = g->first_head && i0 == j0 - j0 % TILE_Q;
    vp_gemm qk = {
        .m = n_q, .n = n_k, .k = s->d, .alpha = s->scale,
        .a = h->q + i0 * s->qkv_ld, .lda = s->qkv_ld,
        .b = h->k + j0 * s->qkv_ld, .ldb = s->qkv_ld, .b_transposed = true,
        .c = prob, .ldc = TILE_K,
    };
    vp_gemm dyv = {
        .m = n_q, .n = n_k, .k = s->d, .alpha = 1.0f,
        .a = g->dy + i0 * s->y_ld, .lda = s->y_ld,
        .b = h->v + j0 * s->qkv_ld, .ldb = s->qkv_ld, .b_transposed = true,
        .c = dp, .ldc = TILE_K,
    };
    vp_gemm dv = {
        .m = n_k, .n = s->d, .k = n_q, .alpha = 1.0f,
        .a = prob, .lda = TILE_K, .a_transposed = true,
        .b = g->dy + i0 * s->y_ld, .ldb = s->y_ld,
        .c = g->dv + j0 * s->qkv_ld, .ldc = s->qkv_ld, .add = !first_for_keys,
    };
    vp_gemm dq = {
        .m = n_q, .n = s->d, .k = n_k, .alpha = s->scale,
        .a = dp, .lda = TILE_K,
        .b = h->k + j0 * s->qkv_ld, .ldb = s->qkv_ld,
        .c = g->dq + i0 * s->qkv_ld, .ldc = s->qkv_ld, .add = j0 > 0,
    };
    vp_gemm dk = {
        .m = n_k, .n = s->d, .k = n_q, .alpha = s->scale,
        .a = dp, .lda = TILE_K, .a_transposed = true,
        .b = h->q + i0 * s->qkv_ld, .ldb = s->qkv_ld,
        .c = g->dk + j0 * s->qkv_ld, .ldc = s->qkv_ld, .add = !first_for_keys,
    };

    vp_cpu_gemm_call(&qk);
    probabilities(prob, n_q, n_k, i0, j0, g->lse);
    vp_cpu_gemm_call(&dyv);
    if (s->p > 0.0) {
        /* ds needs P, dv needs P o M: row by row, ds first, then the mask goes onto P. */
        for (int64_t r = 0; r < n_q; r++) {
            float mask[TILE_K];
            mask_row(s, h, i0 + r, j0, n_k, mask);
            multiply(mask, dp + r * TILE_K, n_k);
            score_gradient(prob + r * TILE_K, dp + r * TILE_K, 1, n_k, g->d_row + r);
            multiply(mask, prob + r * TILE_K, n_k);
        }
    } else {
        score_gradient(prob, dp, n_q, n_k, g->d_row);
    }
    vp_cpu_gemm_call(&dv);
    vp_cpu_gemm_call(&dq);
    vp_cpu_gemm_call(&dk);
}

void vp_cpu_attention_bwd(const vp_kernel_call *call)
{
    const float *dy = call->operand[0], *qkv = call->operand[1], *y = call->operand[2];
    const float *lse   = call->operand[3];
    float       *d_qkv = call->operand[4];
    shape        s     = shape_of(call);
    int64_t      group = s.heads / s.kv_heads, n_items = s.batch * s.kv_heads;

    /* One item is all query heads of one kv head, so that dk and dv are each one thread's sum. */
#pragma omp parallel for schedule(dynamic) num_threads(vp_cpu_threads()) if (n_items > 1)
    for (int64_t item = 0; item < n_items; item++) {
        int64_t sample = item / s.kv_heads, kv = item % s.kv_heads;
        float  *d_row_of_sample = d_qkv + sample * s.seq * s.qkv_ld;

        for (int64_t head = kv * group; head < (kv + 1) * group; head++) {
            head_view     h      = view_of(&s, qkv, sample, head);
            int64_t       offset = sample * s.seq * s.y_ld + head * s.d;
            float         d_row[TILE_Q];
            gradient_view g = {
                .dy = dy + offset,
                .dq = d_row_of_sample + head * s.d,
                .dk = d_row_of_sample + (s.heads + kv) * s.d,
                .dv = d_row_of_sample + (s.heads + s.kv_heads + kv) * s.d,
                .d_row = d_row, .first_head = head == kv * group,
            };

            for (int64_t i0 = 0; i0 < s.seq; i0 += TILE_Q) {
                int64_t n_q = vp_min_i64(TILE_Q, s.seq - i0);

                g.lse = lse + (sample * s.heads + head) * s.seq + i0;
                row_dots(dy + offset + i0 * s.y_ld, y + offset + i0 * s.y_ld, s.y_ld, n_q, s.d, d_row);
                for (int64_t j0 = 0; j0 < i0 + n_q; j0 += TILE_K)
                    backward_tile(&s, &h, &g, i0, j0);
            }
        }
    }
}
