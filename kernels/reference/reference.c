/* kernels/reference/reference.c: every kernel in float64 with the loops its formula says.
 *
 * The oracle of the kernel tests: fp32 and bf16 operands are double here, the rest (tokens,
 * labels, control) is as in the plan. Slow and obvious on purpose; allocates what it likes;
 * shares with the backends the random numbers only, since a mask is a fact and not a
 * computation. */
#include "kernels/reference/reference_internal.h"

#include "kernels/call_check.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Which row of positions a token has. */
static int64_t position_of(const vp_kernel_call *call, int64_t n)
{
    const int32_t *tokens = call->operand[VP_EMBEDDING_FWD_TOKENS];
    int64_t seq = call->embedding.seq, offset = call->embedding.position_offset, position = offset;

    assert(n >= 0 && n < call->embedding.rows);
    if (!call->embedding.skip_padding)
        return offset + n % seq;
    for (int64_t i = n - n % seq; i < n; i++)
        position += tokens[i] != offset - 1;
    return tokens[n] == offset - 1 ? offset - 1 : position;
}

void vp_reference_embedding_fwd(const vp_kernel_call *call)
{
    const int32_t *tokens   = call->operand[VP_EMBEDDING_FWD_TOKENS];
    const double  *table    = call->operand[VP_EMBEDDING_FWD_TABLE],
                 *positions = call->operand[VP_EMBEDDING_FWD_POSITIONS];
    double *y               = call->operand[VP_EMBEDDING_FWD_Y];
    int64_t rows = call->embedding.rows, cols = call->embedding.cols;

    for (int64_t n = 0; n < rows; n++) {
        assert(!table || (tokens[n] >= 0 && tokens[n] < call->embedding.vocab));
        for (int64_t c = 0; c < cols; c++)
            y[n * cols + c] =
                (table ? call->embedding_reals.scale * table[tokens[n] * cols + c] : 0.0) +
                (positions ? positions[position_of(call, n) * cols + c] : 0.0);
    }
}

void vp_reference_embedding_bwd(const vp_kernel_call *call)
{
    const int32_t *tokens  = call->operand[VP_EMBEDDING_BWD_TOKENS];
    const double  *dy      = call->operand[VP_EMBEDDING_BWD_DY];
    double        *d_table = call->operand[VP_EMBEDDING_BWD_D_TABLE],
           *d_positions    = call->operand[VP_EMBEDDING_BWD_D_POSITIONS];
    int64_t rows = call->embedding_bwd.rows, cols = call->embedding_bwd.cols;

    for (int64_t n = 0; n < rows; n++)
        for (int64_t c = 0; c < cols; c++) {
            if (d_table && tokens[n] + 1 != call->embedding_bwd.skip_row)
                d_table[tokens[n] * cols + c] += call->embedding_reals.scale * dy[n * cols + c];
            if (d_positions && !(call->embedding_bwd.skip_padding &&
                                 tokens[n] == call->embedding_bwd.position_offset - 1))
                d_positions[position_of(call, n) * cols + c] += dy[n * cols + c];
        }
}

void vp_reference_layernorm_fwd(const vp_kernel_call *call)
{
    const double *x     = call->operand[VP_LAYERNORM_FWD_X],
                 *gamma = call->operand[VP_LAYERNORM_FWD_GAMMA],
                 *beta  = call->operand[VP_LAYERNORM_FWD_BETA];
    double *y = call->operand[VP_LAYERNORM_FWD_Y], *mean = call->operand[VP_LAYERNORM_FWD_MEAN],
           *rstd = call->operand[VP_LAYERNORM_FWD_RSTD];
    int64_t rows = call->layernorm.rows, cols = call->layernorm.cols;

    for (int64_t r = 0; r < rows; r++) {
        double sum = 0.0, var = 0.0;
        for (int64_t c = 0; c < cols; c++)
            sum += x[r * cols + c];
        mean[r] = sum / (double)cols;
        for (int64_t c = 0; c < cols; c++)
            var += (x[r * cols + c] - mean[r]) * (x[r * cols + c] - mean[r]);
        rstd[r] = 1.0 / sqrt(var / (double)cols + call->norm_reals.eps);
        for (int64_t c = 0; c < cols; c++)
            y[r * cols + c] = (x[r * cols + c] - mean[r]) * rstd[r] * (gamma ? gamma[c] : 1.0) +
                              (beta ? beta[c] : 0.0);
    }
}

void vp_reference_layernorm_bwd(const vp_kernel_call *call)
{
    const double *dy = call->operand[VP_LAYERNORM_BWD_DY], *x = call->operand[VP_LAYERNORM_BWD_X],
                 *gamma = call->operand[VP_LAYERNORM_BWD_GAMMA];
    const double *mean  = call->operand[VP_LAYERNORM_BWD_MEAN],
                 *rstd  = call->operand[VP_LAYERNORM_BWD_RSTD],
                 *add   = call->operand[VP_LAYERNORM_BWD_ADD];
    double *dx          = call->operand[VP_LAYERNORM_BWD_DX],
           *d_gamma     = call->operand[VP_LAYERNORM_BWD_D_GAMMA],
           *d_beta      = call->operand[VP_LAYERNORM_BWD_D_BETA];
    int64_t rows = call->layernorm.rows, cols = call->layernorm.cols;

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
            double g    = dy[r * cols + c] * (gamma ? gamma[c] : 1.0),
                   xhat = (x[r * cols + c] - mean[r]) * rstd[r];
            mean_g += g / (double)cols;
            mean_gx += g * xhat / (double)cols;
        }
        for (int64_t c = 0; c < cols; c++) {
            double g    = dy[r * cols + c] * (gamma ? gamma[c] : 1.0),
                   xhat = (x[r * cols + c] - mean[r]) * rstd[r];
            dx[r * cols + c] =
                (add ? add[r * cols + c] : 0.0) + rstd[r] * (g - mean_g - xhat * mean_gx);
        }
    }
}

void vp_reference_rmsnorm_fwd(const vp_kernel_call *call)
{
    const double *x = call->operand[VP_RMSNORM_FWD_X], *gamma = call->operand[VP_RMSNORM_FWD_GAMMA];
    double       *y = call->operand[VP_RMSNORM_FWD_Y], *rstd = call->operand[VP_RMSNORM_FWD_RSTD];
    int64_t       rows = call->rmsnorm.rows * call->rmsnorm.groups, cols = call->rmsnorm.cols;

    for (int64_t r = 0; r < rows; r++) {
        double squares = 0.0;
        for (int64_t c = 0; c < cols; c++)
            squares += x[r * cols + c] * x[r * cols + c];
        rstd[r] = 1.0 / sqrt(squares / (double)cols + call->norm_reals.eps);
        for (int64_t c = 0; c < cols; c++)
            y[r * cols + c] =
                x[r * cols + c] * rstd[r] * (call->rmsnorm.unit_offset ? 1.0 + gamma[c] : gamma[c]);
    }
}

/* From y = x rstd w: dy_c/dx_k = w_c (rstd [c = k] - x_c x_k rstd^3 / cols). */
void vp_reference_rmsnorm_bwd(const vp_kernel_call *call)
{
    const double *dy = call->operand[VP_RMSNORM_BWD_DY], *x = call->operand[VP_RMSNORM_BWD_X],
                 *gamma = call->operand[VP_RMSNORM_BWD_GAMMA];
    const double *rstd  = call->operand[VP_RMSNORM_BWD_RSTD],
                 *add   = call->operand[VP_RMSNORM_BWD_ADD];
    double *dx = call->operand[VP_RMSNORM_BWD_DX], *d_gamma = call->operand[VP_RMSNORM_BWD_D_GAMMA];
    int64_t rows = call->rmsnorm.rows * call->rmsnorm.groups, cols = call->rmsnorm.cols;

    for (int64_t c = 0; d_gamma && c < cols && !call->accumulate; c++)
        d_gamma[c] = 0.0;
    for (int64_t r = 0; r < rows; r++) {
        double along = 0.0;
        for (int64_t c = 0; c < cols; c++) {
            if (d_gamma)
                d_gamma[c] += dy[r * cols + c] * x[r * cols + c] * rstd[r];
            along += dy[r * cols + c] * (call->rmsnorm.unit_offset ? 1.0 + gamma[c] : gamma[c]) *
                     x[r * cols + c];
        }
        for (int64_t c = 0; c < cols; c++)
            dx[r * cols + c] = (add ? add[r * cols + c] : 0.0) +
                               rstd[r] * dy[r * cols + c] *
                                   (call->rmsnorm.unit_offset ? 1.0 + gamma[c] : gamma[c]) -
                               x[r * cols + c] * along * pow(rstd[r], 3.0) / (double)cols;
    }
}

/* Place of weight (i, o) in memory. */
static int64_t weight_at(const vp_kernel_call *call, int64_t i, int64_t o)
{
    return call->linear.layout == VP_WEIGHT_IN_OUT ? i * call->linear.out + o
                                                   : o * call->linear.in + i;
}

void vp_reference_linear_fwd(const vp_kernel_call *call)
{
    const double *x = call->operand[VP_LINEAR_FWD_X], *w = call->operand[VP_LINEAR_FWD_W],
                 *b = call->operand[VP_LINEAR_FWD_B];
    double *y       = call->operand[VP_LINEAR_FWD_Y];
    int64_t rows = call->linear.rows, in = call->linear.in, out = call->linear.out,
            stride = vp_row_stride(out, call->linear.padded);

    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < out; o++) {
            double sum = b ? b[o] : 0.0;
            for (int64_t i = 0; i < in; i++)
                sum += x[r * in + i] * w[weight_at(call, i, o)];
            y[r * stride + o] = sum;
        }
}

void vp_reference_linear_add_fwd(const vp_kernel_call *call)
{
    const double  *added   = call->operand[VP_LINEAR_ADD_FWD_ADDED];
    double        *y       = call->operand[VP_LINEAR_ADD_FWD_Y];
    vp_kernel_call product = *call;

    product.kernel                   = VP_K_LINEAR_FWD;
    product.operand[VP_LINEAR_FWD_Y] = y;
    vp_reference_linear_fwd(&product);
    for (int64_t i = 0; i < call->linear.rows * call->linear.out; i++)
        y[i] += added[i];
}

void vp_reference_linear_bwd_input(const vp_kernel_call *call)
{
    const double *dy = call->operand[VP_LINEAR_BWD_INPUT_DY],
                 *w  = call->operand[VP_LINEAR_BWD_INPUT_W];
    double *dx       = call->operand[VP_LINEAR_BWD_INPUT_DX];
    int64_t rows = call->linear.rows, in = call->linear.in, out = call->linear.out,
            stride = vp_row_stride(out, call->linear.padded);

    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < in; i++) {
            double sum = call->accumulate ? dx[r * in + i] : 0.0;
            for (int64_t o = 0; o < out; o++)
                sum += dy[r * stride + o] * w[weight_at(call, i, o)];
            dx[r * in + i] = sum;
        }
}

void vp_reference_linear_bwd_weight(const vp_kernel_call *call)
{
    const double *x  = call->operand[VP_LINEAR_BWD_WEIGHT_X],
                 *dy = call->operand[VP_LINEAR_BWD_WEIGHT_DY];
    double *dw       = call->operand[VP_LINEAR_BWD_WEIGHT_DW],
           *db       = call->operand[VP_LINEAR_BWD_WEIGHT_DB];
    int64_t rows = call->linear.rows, in = call->linear.in, out = call->linear.out,
            stride = vp_row_stride(out, call->linear.padded);

    for (int64_t i = 0; i < in; i++)
        for (int64_t o = 0; o < out; o++) {
            double sum = call->accumulate ? dw[weight_at(call, i, o)] : 0.0;
            for (int64_t r = 0; r < rows; r++)
                sum += x[r * in + i] * dy[r * stride + o];
            dw[weight_at(call, i, o)] = sum;
        }
    for (int64_t o = 0; db && o < out; o++) {
        double sum = call->accumulate ? db[o] : 0.0;
        for (int64_t r = 0; r < rows; r++)
            sum += dy[r * stride + o];
        db[o] = sum;
    }
}

static double gelu_u(double x)
{
    return sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x);
}

static double act(int64_t which, double x)
{
    switch ((vp_act)which) {
    case VP_ACT_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(gelu_u(x)));
    case VP_ACT_GELU:
        return 0.5 * x * erfc(-x / sqrt(2.0));
    case VP_ACT_SILU:
        return x / (1.0 + exp(-x));
    case VP_ACT_TANH:
        return tanh(x);
    case VP_ACT_RELU:
        return x > 0.0 ? x : 0.0;
    case VP_N_ACTS:
        break;
    }
    assert(!"an activation that the reference does not know");
    return 0.0;
}

static double act_slope(int64_t which, double x)
{
    double t = tanh(gelu_u(x)), s = 1.0 / (1.0 + exp(-x));

    switch ((vp_act)which) {
    case VP_ACT_GELU_TANH:
        return 0.5 * (1.0 + t) +
               0.5 * x * (1.0 - t * t) * sqrt(2.0 / acos(-1.0)) * (1.0 + 3.0 * 0.044715 * x * x);
    case VP_ACT_GELU:
        return 0.5 * erfc(-x / sqrt(2.0)) + x * exp(-0.5 * x * x) / sqrt(2.0 * acos(-1.0));
    case VP_ACT_SILU:
        return s + x * s * (1.0 - s);
    case VP_ACT_TANH:
        return 1.0 / (cosh(x) * cosh(x));
    case VP_ACT_RELU:
        return x > 0.0 ? 1.0 : 0.0;
    case VP_N_ACTS:
        break;
    }
    assert(!"an activation that the reference does not know");
    return 0.0;
}

void vp_reference_activation_fwd(const vp_kernel_call *call)
{
    const double *x = call->operand[VP_ACTIVATION_FWD_X];
    double       *y = call->operand[VP_ACTIVATION_FWD_Y];

    for (int64_t i = 0; i < call->activation.count; i++)
        y[i] = act(call->activation.act, x[i]);
}

void vp_reference_activation_bwd(const vp_kernel_call *call)
{
    const double *dy = call->operand[VP_ACTIVATION_BWD_DY], *x = call->operand[VP_ACTIVATION_BWD_X];
    double       *dx = call->operand[VP_ACTIVATION_BWD_DX];

    for (int64_t i = 0; i < call->activation.count; i++)
        dx[i] = dy[i] * act_slope(call->activation.act, x[i]);
}

/* Where the gate of (r, c) lies in its operand, and its up: in the same one behind all gates of
 * the row if packed. */
static int64_t gate_at(const vp_kernel_call *call, int64_t r, int64_t c)
{
    return r * call->glu.cols * (call->glu.packed ? 2 : 1) + c;
}

static int64_t up_at(const vp_kernel_call *call, int64_t r, int64_t c)
{
    return gate_at(call, r, c) + (call->glu.packed ? call->glu.cols : 0);
}

void vp_reference_glu_fwd(const vp_kernel_call *call)
{
    const double *gate = call->operand[VP_GLU_FWD_GATE],
                 *up   = call->glu.packed ? gate : call->operand[VP_GLU_FWD_UP];
    double *y          = call->operand[VP_GLU_FWD_Y];

    for (int64_t r = 0; r < call->glu.rows; r++)
        for (int64_t c = 0; c < call->glu.cols; c++)
            y[r * call->glu.cols + c] =
                act(call->glu.act, gate[gate_at(call, r, c)]) * up[up_at(call, r, c)];
}

void vp_reference_glu_bwd(const vp_kernel_call *call)
{
    const double *dy = call->operand[VP_GLU_BWD_DY], *gate = call->operand[VP_GLU_BWD_GATE],
                 *up = call->glu.packed ? gate : call->operand[VP_GLU_BWD_UP];
    double *d_gate   = call->operand[VP_GLU_BWD_D_GATE],
           *d_up     = call->glu.packed ? d_gate : call->operand[VP_GLU_BWD_D_UP];

    for (int64_t r = 0; r < call->glu.rows; r++)
        for (int64_t c = 0; c < call->glu.cols; c++) {
            double g = gate[gate_at(call, r, c)], d = dy[r * call->glu.cols + c];

            d_gate[gate_at(call, r, c)] = d * up[up_at(call, r, c)] * act_slope(call->glu.act, g);
            d_up[up_at(call, r, c)]     = d * act(call->glu.act, g);
        }
}

void vp_reference_add(const vp_kernel_call *call)
{
    const double *x = call->operand[VP_ADD_X], *y = call->operand[VP_ADD_Y];
    double       *z = call->operand[VP_ADD_Z];

    for (int64_t i = 0; i < call->elements.count; i++)
        z[i] = x[i] + y[i];
}

void vp_reference_cross_entropy(const vp_kernel_call *call)
{
    double           *logits   = call->operand[VP_CROSS_ENTROPY_LOGITS];
    const int32_t    *labels   = call->operand[VP_CROSS_ENTROPY_LABELS];
    const vp_control *control  = call->operand[VP_CROSS_ENTROPY_CONTROL];
    double           *row_loss = call->operand[VP_CROSS_ENTROPY_ROW_LOSS],
           cap                 = call->cross_entropy_reals.softcap;
    int64_t vocab              = call->cross_entropy.vocab,
            stride             = vp_row_stride(vocab, call->cross_entropy.padded);
    double scale               = control->growth_interval > 0
                                     ? ((const vp_scaled_control *)(const void *)control)->loss_scale
                                     : 1;

    for (int64_t r = 0; r < call->cross_entropy.rows; r++) {
        double *x   = logits + r * stride;
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
            double p     = exp(x[v] - max) / sum,
                   slope = cap > 0.0 ? 1.0 - x[v] / cap * (x[v] / cap) : 1.0;
            x[v]         = labels[r] == VP_IGNORE_LABEL ? 0.0
                                                        : (p - (v == labels[r] ? 1.0 : 0.0)) *
                                                      control->inv_n_targets * scale * slope;
        }
    }
}

void vp_reference_loss_sum(const vp_kernel_call *call)
{
    const double *row_loss = call->operand[VP_LOSS_SUM_ROW_LOSS];
    vp_control   *control  = call->operand[VP_LOSS_SUM_CONTROL];

    for (int64_t r = 0; r < call->token_rows.rows; r++)
        control->loss_sum += row_loss[r];
}

void vp_reference_scale(const vp_kernel_call *call)
{
    const double *x = call->operand[VP_SCALE_X];

    for (int64_t i = 0; i < call->elements.count; i++)
        ((double *)call->operand[VP_SCALE_Y])[i] = call->scale_reals.factor * x[i];
}

void vp_reference_copy(const vp_kernel_call *call)
{
    for (int64_t i = 0; i < call->elements.count; i++)
        ((double *)call->operand[VP_COPY_Y])[i] = ((const double *)call->operand[VP_COPY_X])[i];
}

void vp_reference_zero(const vp_kernel_call *call)
{
    for (int64_t i = 0; i < call->elements.count; i++)
        ((double *)call->operand[VP_ZERO_Y])[i] = 0.0;
}

void vp_reference_grad_add(const vp_kernel_call *call)
{
    const double *x = call->operand[VP_GRAD_ADD_X];
    double       *g = call->operand[VP_GRAD_ADD_G];

    for (int64_t i = 0; i < call->elements.count; i++)
        g[i] = call->accumulate ? g[i] + x[i] : x[i];
}

void vp_reference_run(const vp_kernel_call *call)
{
    static void (*const kernels[VP_N_KERNELS])(const vp_kernel_call *call) = {
#define VP_RUN(NAME, name) [VP_K_##NAME] = vp_reference_##name,
#include "plan/kernels.def"
    };

    vp_kernel_call_check(call);
    kernels[call->kernel](call);
}
