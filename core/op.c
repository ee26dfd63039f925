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

/* ---- dtypes ---- */

static const struct {
    const char *name;
    int64_t     bytes;
} dtypes[VP_N_DTYPES] = {{"none", 0}, {"fp32", 4}, {"bf16", 2}, {"u8", 1}, {"i32", 4}, {"i64", 8}};

int64_t vp_dtype_bytes(vp_dtype d)
{
    assert(d >= 0 && d < VP_N_DTYPES);
    return dtypes[d].bytes;
}

const char *vp_dtype_name(vp_dtype d)
{
    assert(d >= 0 && d < VP_N_DTYPES);
    return dtypes[d].name;
}

vp_dtype vp_dtype_by_name(const char *name)
{
    int d = 0;
    while (d < VP_N_DTYPES && strcmp(dtypes[d].name, name) != 0)
        d++;
    return (vp_dtype)d;
}

int64_t vp_state_bytes(vp_state_kind kind, int64_t n)
{
    switch (kind) {
    case VP_STATE_F32:
        return vp_mul(n, 4);
    case VP_STATE_BF16:
        return vp_mul(n, 2);
    case VP_STATE_BLOCK8: /* the codes, padded so that the scales are aligned */
        return vp_add(vp_round_up(n, 4), vp_mul(vp_ceil_div(n, VP_STATE_BLOCK), 4));
    case VP_N_STATE_KINDS:
        break;
    }
    assert(!"no such kind of state");
    return VP_OVERFLOW;
}

/* ---- kernels ---- */

/* Operands in the order of op.h's table: r read, w written, u updated, a accumulated; o optional; f: always fp32. */
#define R(n) {n, VP_READ, false, VP_AS_CALL}
#define RO(n) {n, VP_READ, true, VP_AS_CALL}
#define RF(n) {n, VP_READ, false, VP_AS_F32}
#define RFO(n) {n, VP_READ, true, VP_AS_F32}
#define RI(n) {n, VP_READ, false, VP_AS_I32}
#define RIO(n) {n, VP_READ, true, VP_AS_I32}
#define W(n) {n, VP_WRITE, false, VP_AS_CALL}
#define WO(n) {n, VP_WRITE, true, VP_AS_CALL}
#define WF(n) {n, VP_WRITE, false, VP_AS_F32}
#define WFO(n) {n, VP_WRITE, true, VP_AS_F32}
#define U(n) {n, VP_UPDATE, false, VP_AS_CALL}
#define UF(n) {n, VP_UPDATE, false, VP_AS_F32}
#define UFO(n) {n, VP_UPDATE, true, VP_AS_F32}
#define US(n) {n, VP_UPDATE, false, VP_AS_STATE}
#define A(n) {n, VP_ACCUMULATE, false, VP_AS_CALL}
#define AF(n) {n, VP_ACCUMULATE, false, VP_AS_F32}
#define AFO(n) {n, VP_ACCUMULATE, true, VP_AS_F32}
#define RC {"control", VP_READ, false, VP_AS_CONTROL}
#define UC {"control", VP_UPDATE, false, VP_AS_CONTROL}

/* Attributes: counts are at least 1; the others say their range. */
#define N(n) {n, 1, INT64_MAX}
#define Z(n) {n, 0, INT64_MAX}
#define TO(n, most) {n, 0, most}
#define LAYOUT TO("layout", VP_WEIGHT_OUT_IN)
#define QKV_LAYOUT TO("layout", VP_QKV_APART)
#define ACT TO("act", VP_N_ACTS - 1)
#define DECAY TO("decay", 1)
#define STATE TO("state", VP_N_STATE_KINDS - 1)

static const vp_kernel_info kernels[VP_N_KERNELS] = {
    [VP_K_EMBEDDING_FWD] = {"embedding_fwd", 4, 6, 1,
        {RI("tokens"), RO("table"), RO("positions"), W("y")},
        {N("rows"), N("cols"), N("vocab"), N("seq"), Z("position_offset"), TO("skip_padding", 1)}, {"scale"}, 0},
    [VP_K_EMBEDDING_BWD] = {"embedding_bwd", 4, 7, 1,
        {RI("tokens"), R("dy"), UFO("d_table"), UFO("d_positions")},
        {N("rows"), N("cols"), N("vocab"), N("seq"), Z("position_offset"), TO("skip_padding", 1), Z("skip_row")}, {"scale"}, 0},
    [VP_K_LAYERNORM_FWD] = {"layernorm_fwd", 6, 2, 1,
        {R("x"), RO("gamma"), RO("beta"), W("y"), WF("mean"), WF("rstd")}, {N("rows"), N("cols")}, {"eps"}, 0},
    [VP_K_LAYERNORM_BWD] = {"layernorm_bwd", 9, 2, 0,
        {R("dy"), R("x"), RO("gamma"), RF("mean"), RF("rstd"), RO("add"), W("dx"), AFO("d_gamma"),
         AFO("d_beta")}, {N("rows"), N("cols")}, {0}, 0},
    [VP_K_RMSNORM_FWD] = {"rmsnorm_fwd", 4, 4, 1,
        {R("x"), R("gamma"), W("y"), WF("rstd")}, {N("rows"), N("cols"), N("groups"), TO("unit_offset", 1)}, {"eps"}, 0},
    [VP_K_RMSNORM_BWD] = {"rmsnorm_bwd", 7, 4, 0,
        {R("dy"), R("x"), R("gamma"), RF("rstd"), RO("add"), W("dx"), AF("d_gamma")},
        {N("rows"), N("cols"), N("groups"), TO("unit_offset", 1)}, {0}, 0},
    [VP_K_LINEAR_FWD] = {"linear_fwd", 4, 4, 0,
        {R("x"), R("w"), RO("b"), W("y")}, {N("rows"), N("in"), N("out"), LAYOUT}, {0}, 0},
    [VP_K_LINEAR_BWD_INPUT] = {"linear_bwd_input", 3, 4, 0,
        {R("dy"), R("w"), A("dx")}, {N("rows"), N("in"), N("out"), LAYOUT}, {0}, 0},
    [VP_K_LINEAR_BWD_WEIGHT] = {"linear_bwd_weight", 4, 4, 0,
        {R("x"), R("dy"), AF("dw"), AFO("db")}, {N("rows"), N("in"), N("out"), LAYOUT}, {0}, 0},
    [VP_K_ROPE_FWD] = {"rope_fwd", 3, 7, 0, {R("x"), RF("angles"), W("y")},
        {N("batch"), N("seq"), N("heads"), Z("kv_heads"), N("head_dim"), N("rotary_dim"), QKV_LAYOUT}, {0}, 0},
    [VP_K_ROPE_BWD] = {"rope_bwd", 3, 7, 0, {R("dy"), RF("angles"), W("dx")},
        {N("batch"), N("seq"), N("heads"), Z("kv_heads"), N("head_dim"), N("rotary_dim"), QKV_LAYOUT}, {0}, 0},
    [VP_K_ATTENTION_FWD] = {"attention_fwd", 7, 9, 3,
        {R("q"), RO("k"), RO("v"), RIO("lengths"), W("y"), WF("lse"), WO("probs")},
        {N("batch"), N("seq"), N("heads"), N("kv_heads"), N("head_dim"), QKV_LAYOUT, TO("causal", 1), Z("window"), TO("probs", 1)},
        {"scale", "p", "softcap"}, 1},
    [VP_K_ATTENTION_BWD] = {"attention_bwd", 11, 9, 3,
        {R("dy"), R("q"), RO("k"), RO("v"), RIO("lengths"), R("y"), RF("lse"), RO("probs"), W("dq"), WO("dk"), WO("dv")},
        {N("batch"), N("seq"), N("heads"), N("kv_heads"), N("head_dim"), QKV_LAYOUT, TO("causal", 1), Z("window"), TO("probs", 1)},
        {"scale", "p", "softcap"}, 1},
    [VP_K_ACTIVATION_FWD] = {"activation_fwd", 2, 2, 0, {R("x"), W("y")}, {N("count"), ACT}, {0}, 0},
    [VP_K_ACTIVATION_BWD] = {"activation_bwd", 3, 2, 0, {R("dy"), R("x"), W("dx")}, {N("count"), ACT}, {0}, 0},
    [VP_K_GLU_FWD] = {"glu_fwd", 3, 4, 0, {R("gate"), RO("up"), W("y")}, {N("rows"), N("cols"), ACT, TO("packed", 1)}, {0}, 0},
    [VP_K_GLU_BWD] = {"glu_bwd", 5, 4, 0, {R("dy"), R("gate"), RO("up"), W("d_gate"), WO("d_up")},
        {N("rows"), N("cols"), ACT, TO("packed", 1)}, {0}, 0},
    [VP_K_ADD] = {"add", 3, 1, 0, {R("x"), R("y"), W("z")}, {N("count")}, {0}, 0},
    [VP_K_DROPOUT] = {"dropout", 2, 2, 1, {R("x"), W("y")}, {N("batch"), N("count")}, {"p"}, 1},
    [VP_K_CROSS_ENTROPY] = {"cross_entropy", 4, 2, 1,
        {U("logits"), RI("labels"), RC, WF("row_loss")}, {N("rows"), N("vocab")}, {"softcap"}, 0},
    [VP_K_LOSS_SUM] = {"loss_sum", 2, 1, 0, {RF("row_loss"), UC}, {N("rows")}, {0}, 0},
    [VP_K_COPY] = {"copy", 2, 1, 0, {R("x"), W("y")}, {N("count")}, {0}, 0},
    [VP_K_ZERO] = {"zero", 1, 1, 0, {WF("y")}, {N("count")}, {0}, 0},
    [VP_K_GRAD_SUMSQ] = {"grad_sumsq", 2, 1, 0, {RF("g"), UC}, {N("count")}, {0}, 0},
    [VP_K_CLIP_SCALE] = {"clip_scale", 1, 0, 1, {UC}, {{0}}, {"clip_norm"}, 0},
    [VP_K_ADAMW] = {"adamw", 6, 3, 0,
        {U("p"), RF("g"), US("m"), US("v"), UFO("master"), RC}, {N("count"), DECAY, STATE}, {0}, 1},
    [VP_K_SGD] = {"sgd", 4, 2, 0, {U("p"), RF("g"), UFO("master"), RC}, {N("count"), DECAY}, {0}, 1},
    [VP_K_MOMENTUM] = {"momentum", 5, 3, 0, {U("p"), RF("g"), US("m"), UFO("master"), RC}, {N("count"), DECAY, STATE}, {0}, 1},
    [VP_K_LION] = {"lion", 5, 3, 0, {U("p"), RF("g"), US("m"), UFO("master"), RC}, {N("count"), DECAY, STATE}, {0}, 1},
    [VP_K_ADAFACTOR] = {"adafactor", 6, 4, 0, {U("p"), RF("g"), UF("row"), UFO("col"), UFO("master"), RC},
        {N("rows"), N("cols"), DECAY, TO("factored", 1)}, {0}, 1},
    [VP_K_MUON] = {"muon", 6, 3, 0, {U("p"), RF("g"), UF("m"), WF("scratch"), UFO("master"), RC},
        {N("rows"), N("cols"), DECAY}, {0}, 1},
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

int vp_kernel_operand(vp_kernel k, const char *name)
{
    const vp_kernel_info *info = vp_kernel_info_of(k);

    for (int i = 0; i < info->n_operands; i++)
        if (strcmp(info->operands[i].name, name) == 0)
            return i;
    return -1;
}

int vp_kernel_int(vp_kernel k, const char *name)
{
    const vp_kernel_info *info = vp_kernel_info_of(k);

    for (int i = 0; i < info->n_ints; i++)
        if (strcmp(info->ints[i].name, name) == 0)
            return i;
    return -1;
}

/* ---- shape rules ---- */

/* Elements of a row of queries, keys and values of which `operand` holds part 0 (q or all), 1 (k) or 2 (v). */
static int64_t qkv_row(const int64_t *n, int64_t layout, int part)
{
    int64_t q = vp_mul(n[2], n[4]), kv = vp_mul(n[3], n[4]);

    if (layout == VP_QKV_APART)
        return part == 0 ? q : kv;
    return vp_add(q, vp_mul(2, kv));
}

int64_t vp_kernel_operand_elements(vp_kernel k, const int64_t *n, int operand)
{
    assert(operand >= 0 && operand < vp_kernel_info_of(k)->n_operands);
    switch (k) {
    case VP_K_EMBEDDING_FWD:      /* tokens table positions y */
    case VP_K_EMBEDDING_BWD: {    /* tokens dy d_table d_positions */
        bool is_table = operand == (k == VP_K_EMBEDDING_FWD ? 1 : 2);
        bool is_rows  = operand == (k == VP_K_EMBEDDING_FWD ? 3 : 1);
        if (operand == 0)
            return n[0];
        return vp_mul(is_table ? n[2] : is_rows ? n[0] : vp_add(n[3], n[4]), n[1]);
    }
    case VP_K_LAYERNORM_FWD:      /* x gamma beta y mean rstd */
        return operand == 0 || operand == 3 ? vp_mul(n[0], n[1]) : operand == 1 || operand == 2 ? n[1] : n[0];
    case VP_K_LAYERNORM_BWD:      /* dy x gamma mean rstd add dx d_gamma d_beta */
        return operand == 3 || operand == 4 ? n[0] : operand == 2 || operand >= 7 ? n[1] : vp_mul(n[0], n[1]);
    case VP_K_RMSNORM_FWD:        /* x gamma y rstd */
        return operand == 1 ? n[1] : operand == 3 ? vp_mul(n[0], n[2]) : vp_mul(vp_mul(n[0], n[2]), n[1]);
    case VP_K_RMSNORM_BWD:        /* dy x gamma rstd add dx d_gamma */
        return operand == 2 || operand == 6 ? n[1] : operand == 3 ? vp_mul(n[0], n[2]) : vp_mul(vp_mul(n[0], n[2]), n[1]);
    case VP_K_LINEAR_FWD:         /* x w b y */
        return operand == 0 ? vp_mul(n[0], n[1]) : operand == 1 ? vp_mul(n[1], n[2]) : operand == 2 ? n[2] : vp_mul(n[0], n[2]);
    case VP_K_LINEAR_BWD_INPUT:   /* dy w dx */
        return operand == 0 ? vp_mul(n[0], n[2]) : operand == 1 ? vp_mul(n[1], n[2]) : vp_mul(n[0], n[1]);
    case VP_K_LINEAR_BWD_WEIGHT:  /* x dy dw db */
        return operand == 0 ? vp_mul(n[0], n[1]) : operand == 1 ? vp_mul(n[0], n[2]) : operand == 2 ? vp_mul(n[1], n[2]) : n[2];
    case VP_K_ROPE_FWD:           /* x angles y */
    case VP_K_ROPE_BWD:           /* dy angles dx */
        return operand == 1 ? vp_mul(n[1], n[5]) : vp_mul(vp_mul(n[0], n[1]), qkv_row(n, n[6], 0));
    case VP_K_ATTENTION_FWD:      /* q k v lengths y lse probs */
    case VP_K_ATTENTION_BWD: {    /* dy q k v lengths y lse probs dq dk dv */
        static const int what_fwd[] = {0, 1, 2, 3, 4, 5, 6}, what_bwd[] = {4, 0, 1, 2, 3, 4, 5, 6, 0, 1, 2};
        int     what = k == VP_K_ATTENTION_FWD ? what_fwd[operand] : what_bwd[operand];
        int64_t rows = vp_mul(n[0], n[1]);
        return what == 3   ? n[0]
               : what == 4 ? vp_mul(rows, vp_mul(n[2], n[4]))
               : what == 5 ? vp_mul(rows, n[2])
               : what == 6 ? vp_mul(vp_mul(rows, n[2]), n[1])
                           : vp_mul(rows, qkv_row(n, n[5], what));
    }
    case VP_K_GLU_FWD:            /* gate up y */
    case VP_K_GLU_BWD: {          /* dy gate up d_gate d_up */
        bool is_gate = k == VP_K_GLU_FWD ? operand == 0 : operand == 1 || operand == 3;
        return vp_mul(vp_mul(n[0], n[1]), is_gate && n[3] ? 2 : 1);
    }
    case VP_K_DROPOUT:
        return vp_mul(n[0], n[1]);
    case VP_K_ADAFACTOR:          /* p g row col master control */
        return operand == 2 && n[3] ? n[0] : operand == 3 ? n[1] : vp_mul(n[0], n[1]);
    case VP_K_MUON:               /* p g m scratch master control */
        if (operand == 3)
            return vp_mul(2, vp_add(vp_mul(n[0], n[1]), vp_mul(vp_min_i64(n[0], n[1]), vp_min_i64(n[0], n[1]))));
        return vp_mul(n[0], n[1]);
    case VP_K_CROSS_ENTROPY:      /* logits labels control row_loss */
        return operand == 0 ? vp_mul(n[0], n[1]) : n[0];
    case VP_K_LOSS_SUM:
    case VP_K_GRAD_SUMSQ:
    case VP_K_CLIP_SCALE:
    case VP_K_ADAMW:
    case VP_K_SGD:
    case VP_K_MOMENTUM:
    case VP_K_LION:
    case VP_K_ACTIVATION_FWD:
    case VP_K_ACTIVATION_BWD:
    case VP_K_ADD:
    case VP_K_COPY:
    case VP_K_ZERO:
        return n[0];
    case VP_N_KERNELS:
        break;
    }
    assert(!"a kernel without a shape rule");
    return VP_OVERFLOW;
}

int64_t vp_kernel_operand_bytes(vp_kernel k, vp_dtype dtype, const int64_t *ints, int operand)
{
    const vp_kernel_info *info = vp_kernel_info_of(k);
    int64_t               n    = vp_kernel_operand_elements(k, ints, operand);

    switch (info->operands[operand].elem) {
    case VP_AS_CALL:
        return vp_mul(n, vp_dtype_bytes(dtype));
    case VP_AS_F32:
    case VP_AS_I32:
        return vp_mul(n, 4);
    case VP_AS_CONTROL:
        return (int64_t)sizeof(vp_control);
    case VP_AS_STATE: /* state is the last attribute of the kernels that have one */
        return vp_state_bytes((vp_state_kind)ints[info->n_ints - 1], n);
    }
    assert(!"an operand without elements");
    return VP_OVERFLOW;
}

vp_dtype vp_kernel_dtype(vp_kernel k, vp_dtype compute)
{
    if (k != VP_N_KERNELS)
        for (int i = 0; i < vp_kernel_info_of(k)->n_operands; i++)
            if (kernels[k].operands[i].elem == VP_AS_CALL)
                return compute;
    return VP_DTYPE_F32;
}

bool vp_kernel_may_share(vp_kernel k, int out, int in)
{
    switch (k) {
    case VP_K_LAYERNORM_BWD:  /* dx on dy, x or add */
        return out == 6 && (in == 0 || in == 1 || in == 5);
    case VP_K_RMSNORM_BWD:    /* dx on dy, x or add */
        return out == 5 && (in == 0 || in == 1 || in == 4);
    case VP_K_ROPE_FWD:       /* y on x */
    case VP_K_ROPE_BWD:
        return out == 2 && in == 0;
    case VP_K_ACTIVATION_FWD: /* y on x */
    case VP_K_DROPOUT:
        return out == 1 && in == 0;
    case VP_K_ACTIVATION_BWD: /* dx on dy */
        return out == 2 && in == 0;
    case VP_K_ADD:            /* z on x or y */
        return out == 2 && (in == 0 || in == 1);
    case VP_K_GLU_FWD:        /* y on gate or up */
        return out == 2 && (in == 0 || in == 1);
    case VP_K_GLU_BWD:        /* d_gate and d_up on dy, gate or up */
        return out >= 3 && in <= 2;
    default:
        return false;
    }
}

/* ---- work ---- */

/* Keys that a query sees, on the average over the sequence. */
static double keys_seen(const int64_t *n)
{
    double seq = (double)n[1], window = n[7] > 0 && n[7] < n[1] ? (double)n[7] : seq;

    if (!n[6])
        return window < seq ? 2 * window - 1 : seq;
    return window - window * window / (2 * seq);
}

double vp_kernel_flop(vp_kernel k, const int64_t *n)
{
    switch (k) {
    case VP_K_LINEAR_FWD:
    case VP_K_LINEAR_BWD_INPUT:
    case VP_K_LINEAR_BWD_WEIGHT:
        return 2.0 * (double)n[0] * (double)n[1] * (double)n[2];
    case VP_K_ATTENTION_FWD: /* two products with the keys seen */
        return 4.0 * (double)n[0] * (double)n[2] * (double)n[1] * keys_seen(n) * (double)n[4];
    case VP_K_ATTENTION_BWD: /* five */
        return 10.0 * (double)n[0] * (double)n[2] * (double)n[1] * keys_seen(n) * (double)n[4];
    case VP_K_MUON: {        /* five Newton-Schulz steps of three products */
        double small = (double)vp_min_i64(n[0], n[1]), large = (double)vp_max_i64(n[0], n[1]);
        return 5.0 * 2.0 * small * small * (2.0 * large + small);
    }
    default:
        return 0.0;
    }
}

/* Whether a call of these attributes has the operand, where they say so; of optional operands else: yes. */
static bool is_moved(vp_kernel k, vp_dtype dtype, const int64_t *n, const char *name)
{
    static const char *const apart[] = {"k", "v", "dk", "dv"};

    if (k == VP_K_ATTENTION_FWD || k == VP_K_ATTENTION_BWD) {
        for (int i = 0; i < 4; i++)
            if (strcmp(name, apart[i]) == 0)
                return n[5] == VP_QKV_APART;
        if (strcmp(name, "probs") == 0)
            return n[8];
    }
    if ((k == VP_K_GLU_FWD || k == VP_K_GLU_BWD) && (strcmp(name, "up") == 0 || strcmp(name, "d_up") == 0))
        return !n[3];
    if (k == VP_K_ADAFACTOR && strcmp(name, "col") == 0)
        return n[3];
    return strcmp(name, "master") != 0 || dtype != VP_DTYPE_F32;
}

double vp_kernel_bytes_moved(vp_kernel k, vp_dtype dtype, const int64_t *n)
{
    const vp_kernel_info *info  = vp_kernel_info_of(k);
    double                bytes = 0.0;

    for (int i = 0; i < info->n_operands; i++) {
        int64_t b = vp_kernel_operand_bytes(k, dtype, n, i);
        /* A table is touched by row, not whole. */
        if ((k == VP_K_EMBEDDING_FWD && (i == 1 || i == 2)) || (k == VP_K_EMBEDDING_BWD && i >= 2))
            b = vp_kernel_operand_bytes(k, dtype, n, k == VP_K_EMBEDDING_FWD ? 3 : 1);
        if (!is_moved(k, dtype, n, info->operands[i].name))
            continue;
        if (vp_overflowed(b))
            return 0.0;
        bytes += (double)b * (info->operands[i].access == VP_READ || info->operands[i].access == VP_WRITE ? 1.0 : 2.0);
    }
    return bytes;
}

/* ---- algorithms ---- */

bool vp_kernel_is_product(vp_kernel k)
{
    return k == VP_K_LINEAR_FWD || k == VP_K_LINEAR_BWD_INPUT || k == VP_K_LINEAR_BWD_WEIGHT;
}

bool vp_algorithm_is_set(const vp_algorithm *a)
{
    uint64_t any = 0;

    for (int i = 0; i < 8; i++)
        any |= a->word[i];
    return any != 0;
}

const char *vp_algorithm_text(const vp_algorithm *a, char *buf)
{
    for (int i = 0; i < 8; i++)
        for (int digit = 0; digit < 16; digit++)
            buf[16 * i + digit] = "0123456789abcdef"[a->word[i] >> (60 - 4 * digit) & 15];
    buf[VP_ALGORITHM_TEXT] = '\0';
    return buf;
}

bool vp_algorithm_parse(const char *text, vp_algorithm *out)
{
    static const char digits[] = "0123456789abcdef";

    *out = (vp_algorithm){{0}};
    if (strlen(text) != VP_ALGORITHM_TEXT)
        return false;
    for (int i = 0; i < VP_ALGORITHM_TEXT; i++) {
        const char *digit = strchr(digits, text[i]);
        if (!digit)
            return false;
        out->word[i / 16] = out->word[i / 16] << 4 | (uint64_t)(digit - digits);
    }
    return true;
}
