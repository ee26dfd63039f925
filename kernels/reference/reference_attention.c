/* kernels/reference/reference_attention.c: attention and rotary embedding in float64, every element by its formula.
 *
 *     s = scale q k',  t = c tanh(s / c) (softcap c > 0, else t = s),  P = softmax(t) over the keys seen
 *     y = (P o M) v,   lse = log sum exp t,  M the dropout mask
 *
 * Backward, with sum_j P[j] dP[j] = sum_c dy[c] y[c] by what y is:
 *
 *     dP[j] = M[j] sum_c dy[c] v[j][c],  dt[j] = P[j] (dP[j] - sum_c dy[c] y[c]),  ds[j] = dt[j] (1 - tanh^2(s[j] / c))
 *
 * y and, where it is kept, P are the call's, so that a backend that rounded them is asked for no more than they say; lse
 * is not read. */
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
    const int64_t *n = call->ints;

    return (call_view){
        .batch = n[0], .seq = n[1], .heads = n[2], .kv_heads = n[3], .d = n[4], .causal = n[6] == 1, .window = n[7],
        .scale = call->reals[0], .p = call->reals[1], .softcap = call->reals[2], .lengths = lengths,
    };
}

/* Element c of head h (a query head for part 0, a kv head for 1 and 2) of token i: operand[0], [1] and [2] are the
 * three tensors, or the first is all. */
static double *qkv_at(const vp_kernel_call *call, void *const *operand, int part, int64_t sample, int64_t i, int64_t h,
                      int64_t c)
{
    int64_t heads = call->ints[2], kv_heads = call->ints[3], d = call->ints[4];
    int64_t row = sample * call->ints[1] + i;

    if (call->ints[5] == VP_QKV_APART)
        return (double *)operand[part] + (row * (part == 0 ? heads : kv_heads) + h) * d + c;
    if (call->ints[5] == VP_QKV_PER_HEAD)
        return (double *)operand[0] + ((row * heads + h) * 3 + part) * d + c;
    assert(call->ints[5] == VP_QKV_PACKED);
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
static double attention_row(const vp_kernel_call *call, const call_view *v, void *const *qkv, int64_t sample, int64_t head,
                            int64_t i, double *prob, double *mask, double *slope)
{
    double  max = -INFINITY, sum = 0.0;
    int64_t kv = head / (v->heads / v->kv_heads);

    for (int64_t j = 0; j < v->seq; j++) {
        double s = 0.0;

        prob[j] = mask[j] = slope[j] = 0.0;
        if (!sees(v, sample, i, j))
            continue;
        for (int64_t c = 0; c < v->d; c++)
            s += *qkv_at(call, qkv, 0, sample, i, head, c) * *qkv_at(call, qkv, 1, sample, j, kv, c);
        s *= v->scale;
        slope[j] = 1.0;
        if (v->softcap > 0.0) {
            double t = tanh(s / v->softcap);
            slope[j] = 1.0 - t * t;
            s        = v->softcap * t;
        }
        prob[j] = s;
        max     = fmax(max, s);
        mask[j] = vp_reference_mask(call, v->p, sample, vp_philox_attention_block(v->seq, head, i, j / 4), (int)(j % 4));
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
    call_view v = view_of(call, call->operand[3]);
    double   *y = call->operand[4], *lse = call->operand[5], *probs = call->operand[6];
    double   *prob = calloc((size_t)v.seq, sizeof(double)), *mask = calloc((size_t)v.seq, sizeof(double));
    double   *slope = calloc((size_t)v.seq, sizeof(double));

    assert(prob && mask && slope);
    for (int64_t sample = 0; sample < v.batch; sample++)
        for (int64_t head = 0; head < v.heads; head++)
            for (int64_t i = 0; i < v.seq; i++) {
                int64_t row = (sample * v.heads + head) * v.seq + i;

                lse[row] = attention_row(call, &v, call->operand, sample, head, i, prob, mask, slope);
                for (int64_t j = 0; j < v.seq && call->ints[8]; j++)
                    probs[row * v.seq + j] = prob[j];
                for (int64_t c = 0; c < v.d; c++) {
                    double sum = 0.0;

                    for (int64_t j = 0; j < v.seq; j++)
                        if (sees(&v, sample, i, j))
                            sum += prob[j] * mask[j] *
                                   *qkv_at(call, call->operand, 2, sample, j, head / (v.heads / v.kv_heads), c);
                    y[((sample * v.seq + i) * v.heads + head) * v.d + c] = sum;
                }
            }
    free(prob);
    free(mask);
    free(slope);
}

void vp_reference_attention_bwd(const vp_kernel_call *call)
{
    call_view     v  = view_of(call, call->operand[4]);
    const double *dy = call->operand[0], *y = call->operand[5], *probs = call->operand[7];
    void *const  *qkv = call->operand + 1, *const *d_qkv = call->operand + 8;
    double       *prob = calloc((size_t)v.seq, sizeof(double)), *mask = calloc((size_t)v.seq, sizeof(double));
    double       *slope = calloc((size_t)v.seq, sizeof(double)), *dp = calloc((size_t)v.seq, sizeof(double));

    assert(prob && mask && slope && dp);
    for (int64_t sample = 0; sample < v.batch; sample++)
        for (int64_t i = 0; i < v.seq; i++)
            for (int64_t c = 0; c < v.d; c++) {
                for (int64_t head = 0; head < v.heads; head++)
                    *qkv_at(call, d_qkv, 0, sample, i, head, c) = 0.0;
                for (int64_t kv = 0; kv < v.kv_heads; kv++)
                    *qkv_at(call, d_qkv, 1, sample, i, kv, c) = *qkv_at(call, d_qkv, 2, sample, i, kv, c) = 0.0;
            }
    for (int64_t sample = 0; sample < v.batch; sample++)
        for (int64_t head = 0; head < v.heads; head++)
            for (int64_t i = 0; i < v.seq; i++) {
                const double *dy_row = dy + ((sample * v.seq + i) * v.heads + head) * v.d;
                const double *y_row  = y + ((sample * v.seq + i) * v.heads + head) * v.d;
                int64_t       kv     = head / (v.heads / v.kv_heads);
                double        mean   = 0.0;

                attention_row(call, &v, qkv, sample, head, i, prob, mask, slope);
                for (int64_t j = 0; j < v.seq && call->ints[8]; j++)
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
                        *qkv_at(call, d_qkv, 0, sample, i, head, c) += ds * *qkv_at(call, qkv, 1, sample, j, kv, c);
                        *qkv_at(call, d_qkv, 1, sample, j, kv, c) += ds * *qkv_at(call, qkv, 0, sample, i, head, c);
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
    int64_t heads = call->ints[2], kv_heads = call->ints[3], d = call->ints[4];

    switch (call->ints[6]) {
    case VP_QKV_PACKED: return e / d < heads + kv_heads;
    case VP_QKV_PER_HEAD: return e / d % 3 != 2;
    default: return true;
    }
}

void vp_reference_rope(const vp_kernel_call *call)
{
    const double *x = call->operand[0], *angles = call->operand[1];
    double       *y = call->operand[2];
    int64_t       seq = call->ints[1], d = call->ints[4], half = call->ints[5] / 2;
    int64_t       row = call->ints[6] == VP_QKV_APART ? call->ints[2] * d : (call->ints[2] + 2 * call->ints[3]) * d;
    double        sign = call->kernel == VP_K_ROPE_BWD ? -1.0 : 1.0;

    for (int64_t r = 0; r < call->ints[0] * seq; r++)
        for (int64_t head = 0; head < row; head += d)
            for (int64_t c = 0; c < d; c++) {
                const double *from = x + r * row + head;
                int64_t       pair = c % (half ? half : 1);
                double        cosine, sine, value = from[c];

                if (c < 2 * half && turns(call, head)) {
                    cosine = angles[r % seq * half + pair];
                    sine   = angles[(seq + r % seq) * half + pair] * sign;
                    value  = c < half ? from[c] * cosine - from[c + half] * sine : from[c] * cosine + from[c - half] * sine;
                }
                y[r * row + head + c] = value;
            }
}
