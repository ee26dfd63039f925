#include "core/op.h"

#include "core/checked.h"

#include <assert.h>
#include <string.h>

static const vp_op_info ops[VP_N_OPS] = {
#define X(name, text, n_in, n_out, random) {text, n_in, n_out, random},
    VP_OP_TABLE(X)
#undef X
};

const vp_op_info *vp_op_info_of(vp_op op)
{
    assert(op >= 0 && op < VP_N_OPS);
    return &ops[op];
}

/* Operands in the order of op.h's table: r read, w written, u updated, a accumulated; o optional. */
#define R(n) {n, VP_READ, false}
#define RO(n) {n, VP_READ, true}
#define W(n) {n, VP_WRITE, false}
#define U(n) {n, VP_UPDATE, false}
#define A(n) {n, VP_ACCUMULATE, false}
#define AO(n) {n, VP_ACCUMULATE, true}

static const vp_kernel_info kernels[VP_N_KERNELS] = {
    [VP_K_EMBEDDING_FWD] = {"embedding_fwd", 4, 4, 0,
        {R("tokens"), R("table"), RO("positions"), W("y")}, {"rows", "cols", "vocab", "seq"}, {0}, 0},
    [VP_K_EMBEDDING_BWD] = {"embedding_bwd", 4, 4, 0,
        {R("tokens"), R("dy"), U("d_table"), {"d_positions", VP_UPDATE, true}},
        {"rows", "cols", "vocab", "seq"}, {0}, 0},
    [VP_K_LAYERNORM_FWD] = {"layernorm_fwd", 6, 2, 1,
        {R("x"), R("gamma"), R("beta"), W("y"), W("mean"), W("rstd")}, {"rows", "cols"}, {"eps"}, 0},
    [VP_K_LAYERNORM_BWD] = {"layernorm_bwd", 9, 2, 0,
        {R("dy"), R("x"), R("gamma"), R("mean"), R("rstd"), RO("add"), W("dx"), A("d_gamma"),
         A("d_beta")}, {"rows", "cols"}, {0}, 0},
    [VP_K_LINEAR_FWD] = {"linear_fwd", 4, 4, 0,
        {R("x"), R("w"), RO("b"), W("y")}, {"rows", "in", "out", "layout"}, {0}, 0},
    [VP_K_LINEAR_BWD_INPUT] = {"linear_bwd_input", 3, 4, 0,
        {R("dy"), R("w"), A("dx")}, {"rows", "in", "out", "layout"}, {0}, 0},
    [VP_K_LINEAR_BWD_WEIGHT] = {"linear_bwd_weight", 4, 4, 0,
        {R("x"), R("dy"), A("dw"), AO("db")}, {"rows", "in", "out", "layout"}, {0}, 0},
    [VP_K_ATTENTION_FWD] = {"attention_fwd", 3, 5, 2,
        {R("qkv"), W("y"), W("lse")}, {"batch", "seq", "heads", "kv_heads", "head_dim"},
        {"scale", "p"}, 1},
    [VP_K_ATTENTION_BWD] = {"attention_bwd", 5, 5, 2,
        {R("dy"), R("qkv"), R("y"), R("lse"), W("d_qkv")},
        {"batch", "seq", "heads", "kv_heads", "head_dim"}, {"scale", "p"}, 1},
    [VP_K_GELU_TANH_FWD] = {"gelu_tanh_fwd", 2, 1, 0, {R("x"), W("y")}, {"count"}, {0}, 0},
    [VP_K_GELU_TANH_BWD] = {"gelu_tanh_bwd", 3, 1, 0, {R("dy"), R("x"), W("dx")}, {"count"}, {0}, 0},
    [VP_K_ADD] = {"add", 3, 1, 0, {R("x"), R("y"), W("z")}, {"count"}, {0}, 0},
    [VP_K_DROPOUT] = {"dropout", 2, 2, 1, {R("x"), W("y")}, {"batch", "count"}, {"p"}, 1},
    [VP_K_CROSS_ENTROPY] = {"cross_entropy", 4, 2, 0,
        {U("logits"), R("labels"), R("control"), W("row_loss")}, {"rows", "vocab"}, {0}, 0},
    [VP_K_LOSS_SUM] = {"loss_sum", 2, 1, 0, {R("row_loss"), U("control")}, {"rows"}, {0}, 0},
    [VP_K_COPY] = {"copy", 2, 1, 0, {R("x"), W("y")}, {"count"}, {0}, 0},
    [VP_K_ZERO] = {"zero", 1, 1, 0, {W("y")}, {"count"}, {0}, 0},
    [VP_K_GRAD_SUMSQ] = {"grad_sumsq", 2, 1, 0, {R("g"), U("control")}, {"count"}, {0}, 0},
    [VP_K_CLIP_SCALE] = {"clip_scale", 1, 0, 1, {U("control")}, {0}, {"clip_norm"}, 0},
    [VP_K_ADAMW] = {"adamw", 5, 2, 0,
        {U("p"), R("g"), U("m"), U("v"), R("control")}, {"count", "decay"}, {0}, 0},
    [VP_K_SGD] = {"sgd", 3, 2, 0, {U("p"), R("g"), R("control")}, {"count", "decay"}, {0}, 0},
};

const vp_kernel_info *vp_kernel_info_of(vp_kernel k)
{
    assert(k >= 0 && k < VP_N_KERNELS);
    return &kernels[k];
}

vp_kernel vp_kernel_by_name(const char *name)
{
    for (int k = 0; k < VP_N_KERNELS; k++)
        if (strcmp(kernels[k].name, name) == 0)
            return (vp_kernel)k;
    return VP_N_KERNELS;
}

static int64_t floats(int64_t a, int64_t b)
{
    return vp_mul(vp_mul(a, b), (int64_t)sizeof(float));
}

int64_t vp_kernel_operand_bytes(vp_kernel k, const int64_t *n, int operand)
{
    const int64_t control = (int64_t)sizeof(vp_control), index = (int64_t)sizeof(int32_t);

    assert(operand >= 0 && operand < vp_kernel_info_of(k)->n_operands);
    switch (k) {
    case VP_K_EMBEDDING_FWD:      /* tokens table positions y */
    case VP_K_EMBEDDING_BWD: {    /* tokens dy d_table d_positions */
        bool is_table = operand == (k == VP_K_EMBEDDING_FWD ? 1 : 2);
        bool is_rows  = operand == (k == VP_K_EMBEDDING_FWD ? 3 : 1);
        if (operand == 0)
            return vp_mul(n[0], index);
        return is_table ? floats(n[2], n[1]) : is_rows ? floats(n[0], n[1]) : floats(n[3], n[1]);
    }
    case VP_K_LAYERNORM_FWD:      /* x gamma beta y mean rstd */
        return operand == 0 || operand == 3   ? floats(n[0], n[1])
               : operand == 1 || operand == 2 ? floats(1, n[1])
                                              : floats(n[0], 1);
    case VP_K_LAYERNORM_BWD:      /* dy x gamma mean rstd add dx d_gamma d_beta */
        return operand == 3 || operand == 4                   ? floats(n[0], 1)
               : operand == 2 || operand == 7 || operand == 8 ? floats(1, n[1])
                                                              : floats(n[0], n[1]);
    case VP_K_LINEAR_FWD:         /* x w b y */
        return operand == 0   ? floats(n[0], n[1])
               : operand == 1 ? floats(n[1], n[2])
               : operand == 2 ? floats(1, n[2])
                              : floats(n[0], n[2]);
    case VP_K_LINEAR_BWD_INPUT:   /* dy w dx */
        return operand == 0 ? floats(n[0], n[2]) : operand == 1 ? floats(n[1], n[2]) : floats(n[0], n[1]);
    case VP_K_LINEAR_BWD_WEIGHT:  /* x dy dw db */
        return operand == 0   ? floats(n[0], n[1])
               : operand == 1 ? floats(n[0], n[2])
               : operand == 2 ? floats(n[1], n[2])
                              : floats(1, n[2]);
    case VP_K_ATTENTION_FWD:      /* qkv y lse */
    case VP_K_ATTENTION_BWD: {    /* dy qkv y lse d_qkv */
        int64_t rows    = vp_mul(n[0], n[1]);
        int64_t out     = vp_mul(n[2], n[4]);
        int64_t packed  = vp_mul(vp_add(n[2], vp_mul(2, n[3])), n[4]);
        bool    is_qkv  = k == VP_K_ATTENTION_FWD ? operand == 0 : operand == 1 || operand == 4;
        bool    is_lse  = operand == (k == VP_K_ATTENTION_FWD ? 2 : 3);
        return is_lse ? floats(rows, n[2]) : floats(rows, is_qkv ? packed : out);
    }
    case VP_K_DROPOUT:
        return floats(n[0], n[1]);
    case VP_K_CROSS_ENTROPY:      /* logits labels control row_loss */
        return operand == 0   ? floats(n[0], n[1])
               : operand == 1 ? vp_mul(n[0], index)
               : operand == 2 ? control
                              : floats(n[0], 1);
    case VP_K_LOSS_SUM:
    case VP_K_GRAD_SUMSQ:
        return operand == 0 ? floats(n[0], 1) : control;
    case VP_K_CLIP_SCALE:
        return control;
    case VP_K_ADAMW:
        return operand == 4 ? control : floats(n[0], 1);
    case VP_K_SGD:
        return operand == 2 ? control : floats(n[0], 1);
    case VP_K_GELU_TANH_FWD:
    case VP_K_GELU_TANH_BWD:
    case VP_K_ADD:
    case VP_K_COPY:
    case VP_K_ZERO:
        return floats(n[0], 1);
    case VP_N_KERNELS:
        break;
    }
    assert(!"a kernel without a shape rule");
    return VP_OVERFLOW;
}

bool vp_kernel_may_share(vp_kernel k, int out, int in)
{
    switch (k) {
    case VP_K_LAYERNORM_BWD: /* dx on dy, x or add */
        return out == 6 && (in == 0 || in == 1 || in == 5);
    case VP_K_GELU_TANH_BWD: /* dx on dy */
        return out == 2 && in == 0;
    case VP_K_ADD:           /* z on x or y */
        return out == 2 && (in == 0 || in == 1);
    case VP_K_DROPOUT:       /* y on x */
        return out == 1 && in == 0;
    default:
        return false;
    }
}

double vp_kernel_flop(vp_kernel k, const int64_t *n)
{
    switch (k) {
    case VP_K_LINEAR_FWD:
    case VP_K_LINEAR_BWD_INPUT:
    case VP_K_LINEAR_BWD_WEIGHT:
        return 2.0 * (double)n[0] * (double)n[1] * (double)n[2];
    case VP_K_ATTENTION_FWD: /* two GEMMs over the causal half */
        return 2.0 * (double)n[0] * (double)n[2] * (double)n[1] * (double)n[1] * (double)n[4];
    case VP_K_ATTENTION_BWD: /* five GEMMs over the causal half */
        return 5.0 * (double)n[0] * (double)n[2] * (double)n[1] * (double)n[1] * (double)n[4];
    default:
        return 0.0;
    }
}

double vp_kernel_bytes_moved(vp_kernel k, const int64_t *n)
{
    const vp_kernel_info *info  = vp_kernel_info_of(k);
    double                bytes = 0.0;

    for (int i = 0; i < info->n_operands; i++) {
        int64_t b = vp_kernel_operand_bytes(k, n, i);
        /* A table is touched by row, not whole. */
        if ((k == VP_K_EMBEDDING_FWD && (i == 1 || i == 2)) || (k == VP_K_EMBEDDING_BWD && i >= 2))
            b = vp_kernel_operand_bytes(k, n, k == VP_K_EMBEDDING_FWD ? 3 : 1);
        if (vp_overflowed(b))
            return 0.0;
        bytes += (double)b * (info->operands[i].access == VP_READ || info->operands[i].access == VP_WRITE ? 1.0 : 2.0);
    }
    return bytes;
}
