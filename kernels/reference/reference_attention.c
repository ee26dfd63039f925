/* kernels/reference/reference_attention.c: attention and rotary embedding in float64, every element
 * by its formula.
 *
 *     s = scale q k',  t = c tanh(s / c) (softcap c > 0, else t = s),  P = softmax(t) over the keys
 *                      seen
 *     y = (P o M) v,   lse = log sum exp t,  M the dropout mask
 *
 * Backward, with sum_j P[j] dP[j] = sum_c dy[c] y[c] by what y is:
 *
 *     dP[j] = M[j] sum_c dy[c] v[j][c],  dt[j] = P[j] (dP[j] - sum_c dy[c] y[c]),  ds[j] = dt[j] (1
 *     - tanh^2(s[j] / c))
 *
 * y and, where it is kept, P are the call's, so that a backend that rounded them is asked for no
 * more than they say; lse is not read. */
#include "kernels/reference/reference_internal.h"

#include "kernels/cpu/philox.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

typedef struct call_view {
    int64_t        batch, seq, heads, kv_heads, d, window;
    bool           causal;
    double         scale, p, softcap;
    const int32_t *lengths;
} call_view;

static call_view view_of(const vp_kernel_call *call, const int32_t *lengths)
{
    const vp_attention_ints *n = &call->attention;

    return (call_view){
        .batch    = n->batch,
        .seq      = n->seq,
        .heads    = n->heads,
        .kv_heads = n->kv_heads,
        .d        = n->head_dim,
        .causal   = n->causal == 1,
        .window   = n->window,
        .scale    = call->attention_reals.scale,
        .p        = call->attention_reals.p,
        .softcap  = call->attention_reals.softcap,
        .lengths  = lengths,
    };
}

/* Element c of head h (a query head for part 0, a kv head for 1 and 2) of token i: operand[0],
 * [1] and [2] are the three tensors, or the first is all. */
static double *qkv_at(const vp_kernel_call *call, void *const *operand, int part, int64_t sample,
                      int64_t i, int64_t h, int64_t c)
{
    int64_t heads = call->attention.heads, kv_heads = call->attention.kv_heads,
            d   = call->attention.head_dim;
    int64_t row = sample * call->attention.seq + i;

    if (call->attention.layout == VP_QKV_APART)
        return (double *)operand[part] + (row * (part == 0 ? heads : kv_heads) + h) * d + c;
    if (call->attention.layout == VP_QKV_PER_HEAD)
        return (double *)operand[0] + ((row * heads + h) * 3 + part) * d + c;
    assert(call->attention.layout == VP_QKV_PACKED);
    h += part == 0 ? 0 : part == 1 ? heads : heads + kv_heads;
    return (double *)operand[0] + (row * (heads + 2 * kv_heads) + h) * d + c;
}

static bool sees(const call_view *v, int64_t sample, int64_t i, int64_t j)
{
    if (v->lengths && j >= v->lengths[sample])
        return false;
    if (v->causal && j > i)
        return false;
    return v->window == 0 || llabs((long long)(i - j)) < v->window;
}

/* Row i of one head: P, M and dt/ds for all keys; 0 where a key is not seen. Returns lse. */
static double attention_row(const vp_kernel_call *call, const call_view *v, void *const *qkv,
                            int64_t sample, int64_t head, int64_t i, double *prob, double *mask,
                            double *slope)
{
    double  max = -INFINITY, sum = 0.0;
    int64_t kv = head / (v->heads / v->kv_heads);

    for (int64_t j = 0; j < v->seq; j++) {
        double s = 0.0;

        prob[j] = mask[j] = slope[j] = 0.0;
        if (!sees(v, sample, i, j))
            continue;
        for (int64_t c = 0; c < v->d; c++)
            s +=
                *qkv_at(call, qkv, 0, sample, i, head, c) * *qkv_at(call, qkv, 1, sample, j, kv, c);
        s *= v->scale;
        slope[j] = 1.0;
        if (v->softcap > 0.0) {
            double t = tanh(s / v->softcap);
            slope[j] = 1.0 - t * t;
            s        = v->softcap * t;
        }
        prob[j] = s;
        max     = fmax(max, s);
        mask[j] = vp_reference_mask(
            call, v->p, sample, vp_philox_attention_block(v->seq, head, i, j / 4), (int)(j % 4));
    }
    for (int64_t j = 0; j < v->seq; j++)
        if (sees(v, sample, i, j))
            sum += exp(prob[j] - max);
    for (int64_t j = 0; j < v->seq; j++)
        if (sees(v, sample, i, j))
            prob[j] = exp(prob[j] - max) / sum;
    return sum == 0.0 ? -INFINITY : max + log(sum);
}

void vp_reference_attention_fwd(const vp_kernel_call *call)
{
    call_view v = view_of(call, call->operand[VP_ATTENTION_FWD_LENGTHS]);
    double   *y = call->operand[VP_ATTENTION_FWD_Y], *lse = call->operand[VP_ATTENTION_FWD_LSE],
           *probs      = call->operand[VP_ATTENTION_FWD_PROBS];
    void *const qkv[3] = {call->operand[VP_ATTENTION_FWD_Q], call->operand[VP_ATTENTION_FWD_K],
                          call->operand[VP_ATTENTION_FWD_V]};
    double     *prob   = calloc((size_t)v.seq, sizeof(double)),
           *mask       = calloc((size_t)v.seq, sizeof(double));
    double *slope      = calloc((size_t)v.seq, sizeof(double));

    assert(prob && mask && slope);
    for (int64_t sample = 0; sample < v.batch; sample++)
        for (int64_t head = 0; head < v.heads; head++)
            for (int64_t i = 0; i < v.seq; i++) {
                int64_t row = (sample * v.heads + head) * v.seq + i;

                lse[row] = attention_row(call, &v, qkv, sample, head, i, prob, mask, slope);
                for (int64_t j = 0; j < v.seq && call->attention.probs; j++)
                    probs[row * v.seq + j] = prob[j];
                for (int64_t c = 0; c < v.d; c++) {
                    double sum = 0.0;

                    for (int64_t j = 0; j < v.seq; j++)
                        if (sees(&v, sample, i, j))
                            sum +=
                                prob[j] * mask[j] *
                                *qkv_at(call, qkv, 2, sample, j, head / (v.heads / v.kv_heads), c);
                    y[((sample * v.seq + i) * v.heads + head) * v.d + c] = sum;
                }
            }
    free(prob);
    free(mask);
    free(slope);
}

void vp_reference_attention_bwd(const vp_kernel_call *call)
{
    call_view     v  = view_of(call, call->operand[VP_ATTENTION_BWD_LENGTHS]);
    const double *dy = call->operand[VP_ATTENTION_BWD_DY], *y = call->operand[VP_ATTENTION_BWD_Y],
                 *probs  = call->operand[VP_ATTENTION_BWD_PROBS];
    void *const qkv[3]   = {call->operand[VP_ATTENTION_BWD_Q], call->operand[VP_ATTENTION_BWD_K],
                            call->operand[VP_ATTENTION_BWD_V]};
    void *const d_qkv[3] = {call->operand[VP_ATTENTION_BWD_DQ], call->operand[VP_ATTENTION_BWD_DK],
                            call->operand[VP_ATTENTION_BWD_DV]};
    double     *prob     = calloc((size_t)v.seq, sizeof(double)),
           *mask         = calloc((size_t)v.seq, sizeof(double));
    double *slope        = calloc((size_t)v.seq, sizeof(double)),
           *dp           = calloc((size_t)v.seq, sizeof(double));

    assert(prob && mask && slope && dp);
    for (int64_t sample = 0; sample < v.batch; sample++)
        for (int64_t i = 0; i < v.seq; i++)
            for (int64_t c = 0; c < v.d; c++) {
                for (int64_t head = 0; head < v.heads; head++)
                    *qkv_at(call, d_qkv, 0, sample, i, head, c) = 0.0;
                for (int64_t kv = 0; kv < v.kv_heads; kv++)
                    *qkv_at(call, d_qkv, 1, sample, i, kv, c) =
                        *qkv_at(call, d_qkv, 2, sample, i, kv, c) = 0.0;
            }
    for (int64_t sample = 0; sample < v.batch; sample++)
        for (int64_t head = 0; head < v.heads; head++)
            for (int64_t i = 0; i < v.seq; i++) {
                const double *dy_row = dy + ((sample * v.seq + i) * v.heads + head) * v.d;
                const double *y_row  = y + ((sample * v.seq + i) * v.heads + head) * v.d;
                int64_t       kv     = head / (v.heads / v.kv_heads);
                double        mean   = 0.0;

                attention_row(call, &v, qkv, sample, head, i, prob, mask, slope);
                for (int64_t j = 0; j < v.seq && call->attention.probs; j++)
                    prob[j] = probs[((sample * v.heads + head) * v.seq + i) * v.seq + j];
                for (int64_t c = 0; c < v.d; c++)
                    mean += dy_row[c] * y_row[c];
                for (int64_t j = 0; j < v.seq; j++) {
                    dp[j] = 0.0;
                    if (!sees(&v, sample, i, j))
                        continue;
                    for (int64_t c = 0; c < v.d; c++) {
                        dp[j] += mask[j] * dy_row[c] * *qkv_at(call, qkv, 2, sample, j, kv, c);
                        *qkv_at(call, d_qkv, 2, sample, j, kv, c) += prob[j] * mask[j] * dy_row[c];
                    }
                }
                for (int64_t j = 0; j < v.seq; j++) {
                    double ds = prob[j] * (dp[j] - mean) * slope[j] * v.scale;

                    if (!sees(&v, sample, i, j))
                        continue;
                    for (int64_t c = 0; c < v.d; c++) {
                        *qkv_at(call, d_qkv, 0, sample, i, head, c) +=
                            ds * *qkv_at(call, qkv, 1, sample, j, kv, c);
                        *qkv_at(call, d_qkv, 1, sample, j, kv, c) +=
                            ds * *qkv_at(call, qkv, 0, sample, i, head, c);
                    }
                }
            }
    free(prob);
    free(mask);
    free(slope);
    free(dp);
}

/* Whether the head that starts at element e of a row is a query or a key. */
static bool turns(const vp_kernel_call *call, int64_t e)
{
    int64_t heads = call->rope.heads, kv_heads = call->rope.kv_heads, d = call->rope.head_dim;

    switch (call->rope.layout) {
    case VP_QKV_PACKED:
        return e / d < heads + kv_heads;
    case VP_QKV_PER_HEAD:
        return e / d % 3 != 2;
    default:
        return true;
    }
}

static void turn(const vp_kernel_call *call, const double *x, const double *angles, double *y)
{
    int64_t seq = call->rope.seq, d = call->rope.head_dim, half = call->rope.rotary_dim / 2;
    int64_t row  = call->rope.layout == VP_QKV_APART
                       ? call->rope.heads * d
                       : (call->rope.heads + 2 * call->rope.kv_heads) * d;
    double  sign = call->kernel == VP_K_ROPE_BWD ? -1.0 : 1.0;

    for (int64_t r = 0; r < call->rope.batch * seq; r++)
        for (int64_t head = 0; head < row; head += d)
            for (int64_t c = 0; c < d; c++) {
                const double *from = x + r * row + head;
                int64_t       pair = c % (half ? half : 1);
                double        cosine, sine, value = from[c];

                if (c < 2 * half && turns(call, head)) {
                    cosine = angles[r % seq * half + pair];
                    sine   = angles[(seq + r % seq) * half + pair] * sign;
                    value  = c < half ? from[c] * cosine - from[c + half] * sine
                                      : from[c] * cosine + from[c - half] * sine;
                }
                y[r * row + head + c] = value;
            }
}

void vp_reference_rope_fwd(const vp_kernel_call *call)
{
    turn(call, call->operand[VP_ROPE_FWD_X], call->operand[VP_ROPE_FWD_ANGLES],
         call->operand[VP_ROPE_FWD_Y]);
}

void vp_reference_rope_bwd(const vp_kernel_call *call)
{
    turn(call, call->operand[VP_ROPE_BWD_DY], call->operand[VP_ROPE_BWD_ANGLES],
         call->operand[VP_ROPE_BWD_DX]);
}
