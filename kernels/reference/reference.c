/* kernels/reference/reference.c: every kernel in float64 with the loops its formula says.
 *
 * The oracle of the kernel tests: fp32 operands are double here, the rest (tokens, labels, control) is
 * as in the plan. Slow and obvious on purpose; allocates what it likes; shares with the backends the
 * random numbers only, since a mask is a fact and not a computation. */
#include "kernels/backend.h"

#include "kernels/cpu/philox.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void embedding_fwd(const vp_kernel_call *call)
{
    const int32_t *tokens = call->operand[0];
    const double  *table = call->operand[1], *positions = call->operand[2];
    double        *y = call->operand[3];
    int64_t        rows = call->ints[0], cols = call->ints[1], seq = call->ints[3];

    for (int64_t n = 0; n < rows; n++)
        for (int64_t c = 0; c < cols; c++)
            y[n * cols + c] = table[tokens[n] * cols + c] +
                              (positions ? positions[(n % seq) * cols + c] : 0.0);
}

static void embedding_bwd(const vp_kernel_call *call)
{
    const int32_t *tokens = call->operand[0];
    const double  *dy = call->operand[1];
    double        *d_table = call->operand[2], *d_positions = call->operand[3];
    int64_t        rows = call->ints[0], cols = call->ints[1], seq = call->ints[3];

    for (int64_t n = 0; n < rows; n++)
        for (int64_t c = 0; c < cols; c++) {
            d_table[tokens[n] * cols + c] += dy[n * cols + c];
            if (d_positions)
                d_positions[(n % seq) * cols + c] += dy[n * cols + c];
        }
}

static void layernorm_fwd(const vp_kernel_call *call)
{
    const double *x = call->operand[0], *gamma = call->operand[1], *beta = call->operand[2];
    double       *y = call->operand[3], *mean = call->operand[4], *rstd = call->operand[5];
    int64_t       rows = call->ints[0], cols = call->ints[1];

    for (int64_t r = 0; r < rows; r++) {
        double sum = 0.0, var = 0.0;
        for (int64_t c = 0; c < cols; c++)
            sum += x[r * cols + c];
        mean[r] = sum / (double)cols;
        for (int64_t c = 0; c < cols; c++)
            var += (x[r * cols + c] - mean[r]) * (x[r * cols + c] - mean[r]);
        rstd[r] = 1.0 / sqrt(var / (double)cols + call->reals[0]);
        for (int64_t c = 0; c < cols; c++)
            y[r * cols + c] = (x[r * cols + c] - mean[r]) * rstd[r] * gamma[c] + beta[c];
    }
}

static void layernorm_bwd(const vp_kernel_call *call)
{
    const double *dy = call->operand[0], *x = call->operand[1], *gamma = call->operand[2];
    const double *mean = call->operand[3], *rstd = call->operand[4], *add = call->operand[5];
    double       *dx = call->operand[6], *d_gamma = call->operand[7], *d_beta = call->operand[8];
    int64_t       rows = call->ints[0], cols = call->ints[1];

    for (int64_t c = 0; c < cols; c++) {
        double sum_gamma = 0.0, sum_beta = 0.0;
        for (int64_t r = 0; r < rows; r++) {
            sum_gamma += dy[r * cols + c] * (x[r * cols + c] - mean[r]) * rstd[r];
            sum_beta += dy[r * cols + c];
        }
        d_gamma[c] = (call->accumulate ? d_gamma[c] : 0.0) + sum_gamma;
        d_beta[c]  = (call->accumulate ? d_beta[c] : 0.0) + sum_beta;
    }
    for (int64_t r = 0; r < rows; r++) {
        double mean_g = 0.0, mean_gx = 0.0;
        for (int64_t c = 0; c < cols; c++) {
            double g = dy[r * cols + c] * gamma[c], xhat = (x[r * cols + c] - mean[r]) * rstd[r];
            mean_g += g / (double)cols;
            mean_gx += g * xhat / (double)cols;
        }
        for (int64_t c = 0; c < cols; c++) {
            double g = dy[r * cols + c] * gamma[c], xhat = (x[r * cols + c] - mean[r]) * rstd[r];
            dx[r * cols + c] = (add ? add[r * cols + c] : 0.0) + rstd[r] * (g - mean_g - xhat * mean_gx);
        }
    }
}

/* Place of weight (i, o) in memory. */
static int64_t weight_at(const vp_kernel_call *call, int64_t i, int64_t o)
{
    return call->ints[3] == VP_WEIGHT_IN_OUT ? i * call->ints[2] + o : o * call->ints[1] + i;
}

static void linear_fwd(const vp_kernel_call *call)
{
    const double *x = call->operand[0], *w = call->operand[1], *b = call->operand[2];
    double       *y = call->operand[3];
    int64_t       rows = call->ints[0], in = call->ints[1], out = call->ints[2];

    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < out; o++) {
            double sum = b ? b[o] : 0.0;
            for (int64_t i = 0; i < in; i++)
                sum += x[r * in + i] * w[weight_at(call, i, o)];
            y[r * out + o] = sum;
        }
}

static void linear_bwd_input(const vp_kernel_call *call)
{
    const double *dy = call->operand[0], *w = call->operand[1];
    double       *dx = call->operand[2];
    int64_t       rows = call->ints[0], in = call->ints[1], out = call->ints[2];

    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < in; i++) {
            double sum = call->accumulate ? dx[r * in + i] : 0.0;
            for (int64_t o = 0; o < out; o++)
                sum += dy[r * out + o] * w[weight_at(call, i, o)];
            dx[r * in + i] = sum;
        }
}

static void linear_bwd_weight(const vp_kernel_call *call)
{
    const double *x = call->operand[0], *dy = call->operand[1];
    double       *dw = call->operand[2], *db = call->operand[3];
    int64_t       rows = call->ints[0], in = call->ints[1], out = call->ints[2];

    for (int64_t i = 0; i < in; i++)
        for (int64_t o = 0; o < out; o++) {
            double sum = call->accumulate ? dw[weight_at(call, i, o)] : 0.0;
            for (int64_t r = 0; r < rows; r++)
                sum += x[r * in + i] * dy[r * out + o];
            dw[weight_at(call, i, o)] = sum;
        }
    for (int64_t o = 0; db && o < out; o++) {
        double sum = call->accumulate ? db[o] : 0.0;
        for (int64_t r = 0; r < rows; r++)
            sum += dy[r * out + o];
        db[o] = sum;
    }
}

/* 0 or 1 / (1 - p): whether word `lane` of a Philox block keeps what it decides. */
static double mask_of(const vp_kernel_call *call, double p, int64_t sample, uint64_t block, int lane)
{
    uint32_t word[4];

    if (p <= 0.0)
        return 1.0;
    vp_philox(vp_philox_key_of(&call->rng), (uint64_t)(call->rng.first_sample + sample), block, word);
    return (double)word[lane] < floor(p * 4294967296.0 + 0.5) ? 0.0 : 1.0 / (1.0 - p);
}

/* One head of one sample as whole matrices. */
typedef struct head {
    int64_t sample, head, seq, d, q_ld, y_ld;
    int64_t q, k, v, y, lse; /* offsets of its first elements */
    double *prob, *mask;     /* (seq, seq)                    */
} head;

static head head_of(const vp_kernel_call *call, int64_t sample, int64_t a)
{
    int64_t seq = call->ints[1], heads = call->ints[2], kv_heads = call->ints[3], d = call->ints[4];
    int64_t kv = a / (heads / kv_heads);
    head    h  = {.sample = sample, .head = a, .seq = seq, .d = d,
                  .q_ld = (heads + 2 * kv_heads) * d, .y_ld = heads * d};

    h.q    = sample * seq * h.q_ld + a * d;
    h.k    = sample * seq * h.q_ld + (heads + kv) * d;
    h.v    = sample * seq * h.q_ld + (heads + kv_heads + kv) * d;
    h.y    = sample * seq * h.y_ld + a * d;
    h.lse  = (sample * heads + a) * seq;
    h.prob = calloc((size_t)(seq * seq), sizeof(double));
    h.mask = calloc((size_t)(seq * seq), sizeof(double));
    assert(h.prob && h.mask);
    return h;
}

/* prob, mask, and lse where it is not NULL. */
static void softmax_of_head(const vp_kernel_call *call, const head *h, const double *qkv, double *lse)
{
    for (int64_t i = 0; i < h->seq; i++) {
        double *row = h->prob + i * h->seq;
        double  max = -INFINITY, sum = 0.0;

        for (int64_t j = 0; j <= i; j++) {
            row[j] = 0.0;
            for (int64_t c = 0; c < h->d; c++)
                row[j] += qkv[h->q + i * h->q_ld + c] * qkv[h->k + j * h->q_ld + c];
            row[j] *= call->reals[0];
            max = fmax(max, row[j]);
        }
        for (int64_t j = 0; j <= i; j++)
            sum += exp(row[j] - max);
        for (int64_t j = 0; j <= i; j++) {
            row[j] = exp(row[j] - max) / sum;
            h->mask[i * h->seq + j] =
                mask_of(call, call->reals[1], h->sample,
                        vp_philox_attention_block(h->seq, h->head, i, j / 4), (int)(j % 4));
        }
        if (lse)
            lse[h->lse + i] = max + log(sum);
    }
}

static void attention_fwd(const vp_kernel_call *call)
{
    const double *qkv = call->operand[0];
    double       *y = call->operand[1], *lse = call->operand[2];

    for (int64_t sample = 0; sample < call->ints[0]; sample++)
        for (int64_t a = 0; a < call->ints[2]; a++) {
            head h = head_of(call, sample, a);

            softmax_of_head(call, &h, qkv, lse);
            for (int64_t i = 0; i < h.seq; i++)
                for (int64_t c = 0; c < h.d; c++) {
                    double sum = 0.0;
                    for (int64_t j = 0; j <= i; j++)
                        sum += h.prob[i * h.seq + j] * h.mask[i * h.seq + j] *
                               qkv[h.v + j * h.q_ld + c];
                    y[h.y + i * h.y_ld + c] = sum;
                }
            free(h.prob);
            free(h.mask);
        }
}

/* From dy and qkv alone: y and lse are recomputed. */
static void attention_bwd(const vp_kernel_call *call)
{
    const double *dy = call->operand[0], *qkv = call->operand[1];
    double       *d_qkv = call->operand[4];
    int64_t       rows = call->ints[0] * call->ints[1];
    int64_t       cols = (call->ints[2] + 2 * call->ints[3]) * call->ints[4];

    memset(d_qkv, 0, (size_t)(rows * cols) * sizeof(double));
    for (int64_t sample = 0; sample < call->ints[0]; sample++)
        for (int64_t a = 0; a < call->ints[2]; a++) {
            head    h  = head_of(call, sample, a);
            double *dp = calloc((size_t)h.seq, sizeof(double));

            assert(dp);
            softmax_of_head(call, &h, qkv, NULL);
            for (int64_t i = 0; i < h.seq; i++) {
                double mean = 0.0;

                for (int64_t j = 0; j <= i; j++) {
                    int64_t ij = i * h.seq + j;

                    dp[j] = 0.0;
                    for (int64_t c = 0; c < h.d; c++) {
                        dp[j] += dy[h.y + i * h.y_ld + c] * qkv[h.v + j * h.q_ld + c] * h.mask[ij];
                        d_qkv[h.v + j * h.q_ld + c] +=
                            h.prob[ij] * h.mask[ij] * dy[h.y + i * h.y_ld + c];
                    }
                    mean += h.prob[ij] * dp[j];
                }
                for (int64_t j = 0; j <= i; j++) {
                    double ds = h.prob[i * h.seq + j] * (dp[j] - mean) * call->reals[0];

                    for (int64_t c = 0; c < h.d; c++) {
                        d_qkv[h.q + i * h.q_ld + c] += ds * qkv[h.k + j * h.q_ld + c];
                        d_qkv[h.k + j * h.q_ld + c] += ds * qkv[h.q + i * h.q_ld + c];
                    }
                }
            }
            free(dp);
            free(h.prob);
            free(h.mask);
        }
}

static double gelu_u(double x)
{
    return sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x);
}

static void gelu_tanh_fwd(const vp_kernel_call *call)
{
    const double *x = call->operand[0];
    double       *y = call->operand[1];

    for (int64_t i = 0; i < call->ints[0]; i++)
        y[i] = 0.5 * x[i] * (1.0 + tanh(gelu_u(x[i])));
}

static void gelu_tanh_bwd(const vp_kernel_call *call)
{
    const double *dy = call->operand[0], *x = call->operand[1];
    double       *dx = call->operand[2];

    for (int64_t i = 0; i < call->ints[0]; i++) {
        double t = tanh(gelu_u(x[i]));
        double du = sqrt(2.0 / acos(-1.0)) * (1.0 + 3.0 * 0.044715 * x[i] * x[i]);
        dx[i] = dy[i] * (0.5 * (1.0 + t) + 0.5 * x[i] * (1.0 - t * t) * du);
    }
}

static void add(const vp_kernel_call *call)
{
    const double *x = call->operand[0], *y = call->operand[1];
    double       *z = call->operand[2];

    for (int64_t i = 0; i < call->ints[0]; i++)
        z[i] = x[i] + y[i];
}

static void dropout(const vp_kernel_call *call)
{
    const double *x = call->operand[0];
    double       *y = call->operand[1];
    int64_t       count = call->ints[1];

    for (int64_t sample = 0; sample < call->ints[0]; sample++)
        for (int64_t i = 0; i < count; i++) {
            double m = mask_of(call, call->reals[0], sample, (uint64_t)(i / 4), (int)(i % 4));
            y[sample * count + i] = m == 0.0 ? 0.0 : x[sample * count + i] * m;
        }
}

static void cross_entropy(const vp_kernel_call *call)
{
    double           *logits   = call->operand[0];
    const int32_t    *labels   = call->operand[1];
    const vp_control *control  = call->operand[2];
    double           *row_loss = call->operand[3];
    int64_t           vocab    = call->ints[1];

    for (int64_t r = 0; r < call->ints[0]; r++) {
        double *x   = logits + r * vocab;
        double  max = -INFINITY, sum = 0.0;

        row_loss[r] = 0.0;
        for (int64_t v = 0; v < vocab; v++)
            max = fmax(max, x[v]);
        for (int64_t v = 0; v < vocab; v++)
            sum += exp(x[v] - max);
        if (labels[r] != VP_IGNORE_LABEL)
            row_loss[r] = max + log(sum) - x[labels[r]];
        for (int64_t v = 0; v < vocab; v++) {
            double p = exp(x[v] - max) / sum;
            x[v]     = labels[r] == VP_IGNORE_LABEL
                           ? 0.0
                           : (p - (v == labels[r] ? 1.0 : 0.0)) * control->inv_n_targets;
        }
    }
}

static void loss_sum(const vp_kernel_call *call)
{
    const double *row_loss = call->operand[0];
    vp_control   *control  = call->operand[1];

    for (int64_t r = 0; r < call->ints[0]; r++)
        control->loss_sum += row_loss[r];
}

static void copy(const vp_kernel_call *call)
{
    for (int64_t i = 0; i < call->ints[0]; i++)
        ((double *)call->operand[1])[i] = ((const double *)call->operand[0])[i];
}

static void zero(const vp_kernel_call *call)
{
    for (int64_t i = 0; i < call->ints[0]; i++)
        ((double *)call->operand[0])[i] = 0.0;
}

static void grad_sumsq(const vp_kernel_call *call)
{
    const double *g       = call->operand[0];
    vp_control   *control = call->operand[1];

    for (int64_t i = 0; i < call->ints[0]; i++)
        control->grad_sumsq += g[i] * g[i];
}

static void clip_scale(const vp_kernel_call *call)
{
    vp_control *control = call->operand[0];

    control->grad_norm  = sqrt(control->grad_sumsq);
    control->grad_scale = call->reals[0] > 0.0
                              ? fmin(1.0, call->reals[0] / (control->grad_norm + 1e-6))
                              : 1.0;
}

static void adamw(const vp_kernel_call *call)
{
    double                     *p = call->operand[0], *m = call->operand[2], *v = call->operand[3];
    const double               *g       = call->operand[1];
    const vp_control           *control = call->operand[4];
    const vp_optimizer_numbers *o       = call->optimizer;

    for (int64_t i = 0; i < call->ints[0]; i++) {
        double grad = g[i] * control->grad_scale, m_hat, v_hat;

        if (call->ints[1])
            p[i] -= control->lr * o->weight_decay * p[i];
        m[i]  = o->beta1 * m[i] + (1.0 - o->beta1) * grad;
        v[i]  = o->beta2 * v[i] + (1.0 - o->beta2) * grad * grad;
        m_hat = m[i] / (1.0 - pow(o->beta1, control->step));
        v_hat = v[i] / (1.0 - pow(o->beta2, control->step));
        p[i] -= control->lr * m_hat / (sqrt(v_hat) + o->eps);
    }
}

static void sgd(const vp_kernel_call *call)
{
    double           *p       = call->operand[0];
    const double     *g       = call->operand[1];
    const vp_control *control = call->operand[2];

    for (int64_t i = 0; i < call->ints[0]; i++) {
        double grad = g[i] * control->grad_scale;
        if (call->ints[1])
            grad += call->optimizer->weight_decay * p[i];
        p[i] -= control->lr * grad;
    }
}

void vp_reference_run(const vp_kernel_call *call)
{
    switch (call->kernel) {
    case VP_K_EMBEDDING_FWD: embedding_fwd(call); return;
    case VP_K_EMBEDDING_BWD: embedding_bwd(call); return;
    case VP_K_LAYERNORM_FWD: layernorm_fwd(call); return;
    case VP_K_LAYERNORM_BWD: layernorm_bwd(call); return;
    case VP_K_LINEAR_FWD: linear_fwd(call); return;
    case VP_K_LINEAR_BWD_INPUT: linear_bwd_input(call); return;
    case VP_K_LINEAR_BWD_WEIGHT: linear_bwd_weight(call); return;
    case VP_K_ATTENTION_FWD: attention_fwd(call); return;
    case VP_K_ATTENTION_BWD: attention_bwd(call); return;
    case VP_K_GELU_TANH_FWD: gelu_tanh_fwd(call); return;
    case VP_K_GELU_TANH_BWD: gelu_tanh_bwd(call); return;
    case VP_K_ADD: add(call); return;
    case VP_K_DROPOUT: dropout(call); return;
    case VP_K_CROSS_ENTROPY: cross_entropy(call); return;
    case VP_K_LOSS_SUM: loss_sum(call); return;
    case VP_K_COPY: copy(call); return;
    case VP_K_ZERO: zero(call); return;
    case VP_K_GRAD_SUMSQ: grad_sumsq(call); return;
    case VP_K_CLIP_SCALE: clip_scale(call); return;
    case VP_K_ADAMW: adamw(call); return;
    case VP_K_SGD: sgd(call); return;
    case VP_N_KERNELS: break;
    }
    assert(!"a kernel without a reference");
}
