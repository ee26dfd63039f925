/* kernels/reference/reference.c: every kernel in float64 with the loops its formula says.
 *
 * The oracle of the kernel tests: fp32 and bf16 operands are double here, the rest (tokens, labels, control) is
 * as in the plan. Slow and obvious on purpose; allocates what it likes; shares with the backends the
 * random numbers only, since a mask is a fact and not a computation. */
#include "kernels/reference/reference_internal.h"

#include "kernels/cpu/philox.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Which row of positions a token has. */
static int64_t position_of(const vp_kernel_call *call, int64_t n)
{
    const int32_t *tokens = call->operand[0];
    int64_t        seq = call->ints[3], offset = call->ints[4], position = offset;

    if (!call->ints[5])
        return offset + n % seq;
    for (int64_t i = n - n % seq; i < n; i++)
        position += tokens[i] != offset - 1;
    return tokens[n] == offset - 1 ? offset - 1 : position;
}

static void embedding_fwd(const vp_kernel_call *call)
{
    const int32_t *tokens = call->operand[0];
    const double  *table = call->operand[1], *positions = call->operand[2];
    double        *y = call->operand[3];
    int64_t        rows = call->ints[0], cols = call->ints[1];

    for (int64_t n = 0; n < rows; n++)
        for (int64_t c = 0; c < cols; c++)
            y[n * cols + c] = (table ? call->reals[0] * table[tokens[n] * cols + c] : 0.0) +
                              (positions ? positions[position_of(call, n) * cols + c] : 0.0);
}

static void embedding_bwd(const vp_kernel_call *call)
{
    const int32_t *tokens = call->operand[0];
    const double  *dy = call->operand[1];
    double        *d_table = call->operand[2], *d_positions = call->operand[3];
    int64_t        rows = call->ints[0], cols = call->ints[1];

    for (int64_t n = 0; n < rows; n++)
        for (int64_t c = 0; c < cols; c++) {
            if (d_table && tokens[n] + 1 != call->ints[6])
                d_table[tokens[n] * cols + c] += call->reals[0] * dy[n * cols + c];
            if (d_positions && !(call->ints[5] && tokens[n] == call->ints[4] - 1))
                d_positions[position_of(call, n) * cols + c] += dy[n * cols + c];
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
            y[r * cols + c] =
                (x[r * cols + c] - mean[r]) * rstd[r] * (gamma ? gamma[c] : 1.0) + (beta ? beta[c] : 0.0);
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
        if (d_gamma)
            d_gamma[c] = (call->accumulate ? d_gamma[c] : 0.0) + sum_gamma;
        if (d_beta)
            d_beta[c] = (call->accumulate ? d_beta[c] : 0.0) + sum_beta;
    }
    for (int64_t r = 0; r < rows; r++) {
        double mean_g = 0.0, mean_gx = 0.0;
        for (int64_t c = 0; c < cols; c++) {
            double g = dy[r * cols + c] * (gamma ? gamma[c] : 1.0), xhat = (x[r * cols + c] - mean[r]) * rstd[r];
            mean_g += g / (double)cols;
            mean_gx += g * xhat / (double)cols;
        }
        for (int64_t c = 0; c < cols; c++) {
            double g = dy[r * cols + c] * (gamma ? gamma[c] : 1.0), xhat = (x[r * cols + c] - mean[r]) * rstd[r];
            dx[r * cols + c] = (add ? add[r * cols + c] : 0.0) + rstd[r] * (g - mean_g - xhat * mean_gx);
        }
    }
}

static void rmsnorm_fwd(const vp_kernel_call *call)
{
    const double *x = call->operand[0], *gamma = call->operand[1];
    double       *y = call->operand[2], *rstd = call->operand[3];
    int64_t       rows = call->ints[0] * call->ints[2], cols = call->ints[1];

    for (int64_t r = 0; r < rows; r++) {
        double squares = 0.0;
        for (int64_t c = 0; c < cols; c++)
            squares += x[r * cols + c] * x[r * cols + c];
        rstd[r] = 1.0 / sqrt(squares / (double)cols + call->reals[0]);
        for (int64_t c = 0; c < cols; c++)
            y[r * cols + c] = x[r * cols + c] * rstd[r] * (call->ints[3] ? 1.0 + gamma[c] : gamma[c]);
    }
}

/* From y = x rstd w: dy_c/dx_k = w_c (rstd [c = k] - x_c x_k rstd^3 / cols). */
static void rmsnorm_bwd(const vp_kernel_call *call)
{
    const double *dy = call->operand[0], *x = call->operand[1], *gamma = call->operand[2];
    const double *rstd = call->operand[3], *add = call->operand[4];
    double       *dx = call->operand[5], *d_gamma = call->operand[6];
    int64_t       rows = call->ints[0] * call->ints[2], cols = call->ints[1];

    for (int64_t c = 0; c < cols && !call->accumulate; c++)
        d_gamma[c] = 0.0;
    for (int64_t r = 0; r < rows; r++) {
        double along = 0.0;
        for (int64_t c = 0; c < cols; c++) {
            d_gamma[c] += dy[r * cols + c] * x[r * cols + c] * rstd[r];
            along += dy[r * cols + c] * (call->ints[3] ? 1.0 + gamma[c] : gamma[c]) * x[r * cols + c];
        }
        for (int64_t c = 0; c < cols; c++)
            dx[r * cols + c] = (add ? add[r * cols + c] : 0.0) +
                               rstd[r] * dy[r * cols + c] * (call->ints[3] ? 1.0 + gamma[c] : gamma[c]) -
                               x[r * cols + c] * along * pow(rstd[r], 3.0) / (double)cols;
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

double vp_reference_mask(const vp_kernel_call *call, double p, int64_t sample, uint64_t block, int lane)
{
    uint32_t word[4];

    if (p <= 0.0)
        return 1.0;
    vp_philox(vp_philox_key_of(&call->rng), (uint64_t)(call->rng.first_sample + sample), block, word);
    return (double)word[lane] < floor(p * 4294967296.0 + 0.5) ? 0.0 : 1.0 / (1.0 - p);
}

static double gelu_u(double x)
{
    return sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x);
}

static double act(int64_t which, double x)
{
    switch (which) {
    case VP_ACT_GELU_TANH: return 0.5 * x * (1.0 + tanh(gelu_u(x)));
    case VP_ACT_GELU: return 0.5 * x * erfc(-x / sqrt(2.0));
    case VP_ACT_SILU: return x / (1.0 + exp(-x));
    case VP_ACT_TANH: return tanh(x);
    default: return x > 0.0 ? x : 0.0;
    }
}

static double act_slope(int64_t which, double x)
{
    double t = tanh(gelu_u(x)), s = 1.0 / (1.0 + exp(-x));

    switch (which) {
    case VP_ACT_GELU_TANH:
        return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * sqrt(2.0 / acos(-1.0)) * (1.0 + 3.0 * 0.044715 * x * x);
    case VP_ACT_GELU: return 0.5 * erfc(-x / sqrt(2.0)) + x * exp(-0.5 * x * x) / sqrt(2.0 * acos(-1.0));
    case VP_ACT_SILU: return s + x * s * (1.0 - s);
    case VP_ACT_TANH: return 1.0 / (cosh(x) * cosh(x));
    default: return x > 0.0 ? 1.0 : 0.0;
    }
}

static void activation_fwd(const vp_kernel_call *call)
{
    const double *x = call->operand[0];
    double       *y = call->operand[1];

    for (int64_t i = 0; i < call->ints[0]; i++)
        y[i] = act(call->ints[1], x[i]);
}

static void activation_bwd(const vp_kernel_call *call)
{
    const double *dy = call->operand[0], *x = call->operand[1];
    double       *dx = call->operand[2];

    for (int64_t i = 0; i < call->ints[0]; i++)
        dx[i] = dy[i] * act_slope(call->ints[1], x[i]);
}

/* Where the gate of (r, c) lies in its operand, and its up: in the same one behind all gates of the row if packed. */
static int64_t gate_at(const vp_kernel_call *call, int64_t r, int64_t c)
{
    return r * call->ints[1] * (call->ints[3] ? 2 : 1) + c;
}

static int64_t up_at(const vp_kernel_call *call, int64_t r, int64_t c)
{
    return gate_at(call, r, c) + (call->ints[3] ? call->ints[1] : 0);
}

static void glu_fwd(const vp_kernel_call *call)
{
    const double *gate = call->operand[0], *up = call->ints[3] ? gate : call->operand[1];
    double       *y = call->operand[2];

    for (int64_t r = 0; r < call->ints[0]; r++)
        for (int64_t c = 0; c < call->ints[1]; c++)
            y[r * call->ints[1] + c] = act(call->ints[2], gate[gate_at(call, r, c)]) * up[up_at(call, r, c)];
}

static void glu_bwd(const vp_kernel_call *call)
{
    const double *dy = call->operand[0], *gate = call->operand[1], *up = call->ints[3] ? gate : call->operand[2];
    double       *d_gate = call->operand[3], *d_up = call->ints[3] ? d_gate : call->operand[4];

    for (int64_t r = 0; r < call->ints[0]; r++)
        for (int64_t c = 0; c < call->ints[1]; c++) {
            double g = gate[gate_at(call, r, c)], d = dy[r * call->ints[1] + c];

            d_gate[gate_at(call, r, c)] = d * up[up_at(call, r, c)] * act_slope(call->ints[2], g);
            d_up[up_at(call, r, c)]     = d * act(call->ints[2], g);
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
            double m = vp_reference_mask(call, call->reals[0], sample, (uint64_t)(i / 4), (int)(i % 4));
            y[sample * count + i] = m == 0.0 ? 0.0 : x[sample * count + i] * m;
        }
}

static void cross_entropy(const vp_kernel_call *call)
{
    double           *logits   = call->operand[0];
    const int32_t    *labels   = call->operand[1];
    const vp_control *control  = call->operand[2];
    double           *row_loss = call->operand[3], cap = call->reals[0];
    int64_t           vocab = call->ints[1];

    for (int64_t r = 0; r < call->ints[0]; r++) {
        double *x   = logits + r * vocab;
        double  max = -INFINITY, sum = 0.0;

        row_loss[r] = 0.0;
        for (int64_t v = 0; cap > 0.0 && v < vocab; v++)
            x[v] = cap * tanh(x[v] / cap);
        for (int64_t v = 0; v < vocab; v++)
            max = fmax(max, x[v]);
        for (int64_t v = 0; v < vocab; v++)
            sum += exp(x[v] - max);
        if (labels[r] != VP_IGNORE_LABEL)
            row_loss[r] = max + log(sum) - x[labels[r]];
        for (int64_t v = 0; v < vocab; v++) {
            double p = exp(x[v] - max) / sum, slope = cap > 0.0 ? 1.0 - x[v] / cap * (x[v] / cap) : 1.0;
            x[v]     = labels[r] == VP_IGNORE_LABEL
                           ? 0.0
                           : (p - (v == labels[r] ? 1.0 : 0.0)) * control->inv_n_targets * slope;
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

void vp_reference_run(const vp_kernel_call *call)
{
    switch (call->kernel) {
    case VP_K_EMBEDDING_FWD: embedding_fwd(call); return;
    case VP_K_EMBEDDING_BWD: embedding_bwd(call); return;
    case VP_K_LAYERNORM_FWD: layernorm_fwd(call); return;
    case VP_K_LAYERNORM_BWD: layernorm_bwd(call); return;
    case VP_K_RMSNORM_FWD: rmsnorm_fwd(call); return;
    case VP_K_RMSNORM_BWD: rmsnorm_bwd(call); return;
    case VP_K_LINEAR_FWD: linear_fwd(call); return;
    case VP_K_LINEAR_BWD_INPUT: linear_bwd_input(call); return;
    case VP_K_LINEAR_BWD_WEIGHT: linear_bwd_weight(call); return;
    case VP_K_ROPE_FWD:
    case VP_K_ROPE_BWD: vp_reference_rope(call); return;
    case VP_K_ATTENTION_FWD: vp_reference_attention_fwd(call); return;
    case VP_K_ATTENTION_BWD: vp_reference_attention_bwd(call); return;
    case VP_K_ACTIVATION_FWD: activation_fwd(call); return;
    case VP_K_ACTIVATION_BWD: activation_bwd(call); return;
    case VP_K_GLU_FWD: glu_fwd(call); return;
    case VP_K_GLU_BWD: glu_bwd(call); return;
    case VP_K_ADD: add(call); return;
    case VP_K_DROPOUT: dropout(call); return;
    case VP_K_CROSS_ENTROPY: cross_entropy(call); return;
    case VP_K_LOSS_SUM: loss_sum(call); return;
    case VP_K_COPY: copy(call); return;
    case VP_K_ZERO: zero(call); return;
    case VP_K_GRAD_SUMSQ:
    case VP_K_CLIP_SCALE:
    case VP_K_ADAMW:
    case VP_K_SGD:
    case VP_K_MOMENTUM:
    case VP_K_LION:
    case VP_K_ADAFACTOR:
    case VP_K_MUON: vp_reference_optimizer(call); return;
    case VP_N_KERNELS: break;
    }
    assert(!"a kernel without a reference");
}
