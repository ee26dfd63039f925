#include "plan/op.h"

#include "base/checked.h"
#include "plan/memory.h"

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
} dtypes[VP_N_DTYPES] = {{"none", 0}, {"fp32", 4}, {"bf16", 2},           {"fp16", 2}, {"u8", 1},
                         {"i32", 4},  {"i64", 8},  {"bf16-gradients", 2}, {"tf32", 4}};

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

bool vp_dtype_is_of_calls(vp_dtype d)
{
    return d == VP_DTYPE_F32 || d == VP_DTYPE_BF16 || d == VP_DTYPE_F16 ||
           d == VP_DTYPE_BF16_GRADS || d == VP_DTYPE_TF32;
}

vp_dtype vp_dtype_of_operands(vp_dtype call)
{
    assert(vp_dtype_is_of_calls(call));
    return call == VP_DTYPE_BF16_GRADS ? VP_DTYPE_BF16
           : call == VP_DTYPE_TF32     ? VP_DTYPE_F32
                                       : call;
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

/* Attributes by set, ended by one without a name. */
/* clang-format off */
#define COUNT(name)      {#name, 1, INT64_MAX, false},
#define FROM_0(name)     {#name, 0, INT64_MAX, false},
#define UP_TO(name, max) {#name, 0, max, false},
#define IF_SAID(name)    {#name, 0, 1, true},
#define SET(set, attributes) static const vp_int_info set##_ints[] = {attributes {0}};
VP_INTS_TABLE(SET, COUNT, FROM_0, UP_TO, IF_SAID)
SET(none, )
#undef SET
#undef COUNT
#undef FROM_0
#undef UP_TO
#undef IF_SAID
#define REAL(name) #name,
#define SET(set, attributes) static const char *const set##_reals[] = {attributes NULL};
VP_REALS_TABLE(SET, REAL)
SET(none, )
#undef SET
#undef REAL
#define SET(set, attributes) \
    _Static_assert(sizeof(vp_##set##_ints) <= VP_MAX_INTS * sizeof(int64_t), #set);
VP_INTS_TABLE(SET, , , , )
#undef SET
#define SET(set, attributes) \
    _Static_assert(sizeof(vp_##set##_reals) <= VP_MAX_REALS * sizeof(double), #set);
VP_REALS_TABLE(SET, )
#undef SET
/* clang-format on */

#define N_NAMED(list) ((int)(sizeof(list) / sizeof *(list)) - 1)

/* What the table's expressions are written with, beside checked.h: n, the attributes by name. */
static const vp_none_ints *vp_none_ints_of(const int64_t *ints)
{
    (void)ints;
    return NULL;
}

static int64_t q_elements(const vp_attention_ints *n)
{
    int64_t heads = n->layout == VP_QKV_APART ? n->heads : vp_add(n->heads, vp_mul(2, n->kv_heads));
    return vp_mul(vp_mul(n->batch, n->seq), vp_mul(heads, n->head_dim));
}

static int64_t kv_elements(const vp_attention_ints *n)
{
    return n->layout == VP_QKV_APART
               ? vp_mul(vp_mul(n->batch, n->seq), vp_mul(n->kv_heads, n->head_dim))
               : q_elements(n);
}

/* So many for each query head of each token. */
static int64_t heads_elements(const vp_attention_ints *n, int64_t each)
{
    return vp_mul(vp_mul(vp_mul(n->batch, n->seq), n->heads), each);
}

static int64_t rope_elements(const vp_rope_ints *n)
{
    int64_t heads = n->layout == VP_QKV_APART ? n->heads : vp_add(n->heads, vp_mul(2, n->kv_heads));
    return vp_mul(vp_mul(n->batch, n->seq), vp_mul(heads, n->head_dim));
}

static int64_t gate_elements(const vp_glu_ints *n)
{
    return vp_mul(vp_mul(n->rows, n->cols), n->packed ? 2 : 1);
}

/* y or dy of a linear, and logits. */
static int64_t rows_elements(int64_t rows, int64_t cols, int64_t padded)
{
    return vp_mul(rows, vp_overflowed(cols) ? cols : vp_row_stride(cols, padded));
}

static double product_flop(int64_t m, int64_t n, int64_t k)
{
    return 2.0 * (double)m * (double)n * (double)k;
}

/* Keys that a query sees, on the average over the sequence. */
static double keys_seen(const vp_attention_ints *n)
{
    assert(n->seq >= 1 && n->window >= 0);
    double seq    = (double)n->seq,
           window = n->window > 0 && n->window < n->seq ? (double)n->window : seq;

    if (!n->causal)
        return window < seq ? 2 * window - 1 : seq;
    return window - window * window / (2 * seq);
}

static double attention_flop(double each, const vp_attention_ints *n)
{
    return each * (double)n->batch * (double)n->heads * (double)n->seq * keys_seen(n) *
           (double)n->head_dim;
}

/* Five Newton-Schulz steps of three products. */
static double newton_schulz_flop(int64_t rows, int64_t cols)
{
    double small = (double)vp_min_i64(rows, cols), large = (double)vp_max_i64(rows, cols);
    return 5.0 * 2.0 * small * small * (2.0 * large + small);
}

/* Of each kernel, functions of its attributes made from the table. */
#define CALL(count)    vp_mul(count, vp_dtype_bytes(dtype))
#define F32(count)     vp_mul(count, 4)
#define I32(count)     vp_mul(count, 4)
#define BYTES(count)   (count)
#define CONTROL(count) ((int64_t)sizeof(vp_control))
#define STATE(count)   vp_state_bytes((vp_state_kind)n->state, count)
#define GRAD(count)    vp_mul(count, dtype == VP_DTYPE_BF16_GRADS ? 2 : 4)

#define ALWAYS          VP_ALWAYS
#define MAYBE           VP_MAYBE
#define WHEN(condition) ((condition) ? VP_ALWAYS : VP_NEVER)

enum { NOTHING = -1 }; /* no operand's bytes */
#define WHOLE              operand
#define IF(condition)      ((condition) ? operand : NOTHING)
#define AS_MUCH_AS(kernel) VP_##kernel
#define IF_GIVEN           operand /* see vp_kernel_bytes_moved() */

/* clang-format off */
#define RULE(result, rule, set) \
    static result rule(vp_dtype dtype, const int64_t *ints, int operand) \
    { \
        const vp_##set##_ints *n = vp_##set##_ints_of(ints); \
        (void)dtype, (void)n; \
        switch (operand) {
#define RULE_END(otherwise) \
        } \
        assert(!"no such operand"); \
        return otherwise; \
    }

#define VP_KERNEL(NAME, name, set, reals) RULE(int64_t, name##_elements, set)
#define VP_OPERAND(K, NAME, name, access, presence, elem, count, moved, lies_on) \
        case VP_##K##_##NAME: return count;
#define VP_RULES(NAME, name, set, randomness, what, flop, workspace) RULE_END(VP_OVERFLOW)
#include "plan/kernels.def"

#define VP_KERNEL(NAME, name, set, reals) RULE(int64_t, name##_bytes, set)
#define VP_OPERAND(K, NAME, name, access, presence, elem, count, moved, lies_on) \
        case VP_##K##_##NAME: return elem(count);
#define VP_RULES(NAME, name, set, randomness, what, flop, workspace) RULE_END(VP_OVERFLOW)
#include "plan/kernels.def"

#define VP_KERNEL(NAME, name, set, reals) RULE(vp_presence, name##_presence, set)
#define VP_OPERAND(K, NAME, name, access, presence, elem, count, moved, lies_on) \
        case VP_##K##_##NAME: return presence;
#define VP_RULES(NAME, name, set, randomness, what, flop, workspace) RULE_END(VP_NEVER)
#include "plan/kernels.def"

/* The operand whose bytes a call moves for this one. */
#define VP_KERNEL(NAME, name, set, reals) RULE(int, name##_moved, set)
#define VP_OPERAND(K, NAME, name, access, presence, elem, count, moved, lies_on) \
        case VP_##K##_##NAME: return moved;
#define VP_RULES(NAME, name, set, randomness, what, flop, workspace) RULE_END(NOTHING)
#include "plan/kernels.def"

#define VP_RULES(NAME, name, set, randomness, what, flop, workspace) \
    static double name##_flop(const int64_t *ints) \
    { \
        const vp_##set##_ints *n = vp_##set##_ints_of(ints); \
        (void)n; \
        return flop; \
    }
#include "plan/kernels.def"

#undef ALWAYS
#undef MAYBE
#undef WHEN
#undef WHOLE
#undef IF
#undef AS_MUCH_AS
#undef IF_GIVEN
#define WHOLE           false
#define IF(condition)   false
#define AS_MUCH_AS(of)  false
#define IF_GIVEN        true
#define ALWAYS          false
#define MAYBE           true
#define WHEN(condition) true
#define APART           0
#define ON(operand)     (1u << VP_##operand)
#define DRAWS           true
#define DRAWS_NOT       false
#define PRODUCT         VP_KERNEL_PRODUCT
#define MIXED           VP_KERNEL_MIXED
#define UPDATE          VP_KERNEL_UPDATE
#define TRANSFER        VP_KERNEL_TRANSFER

static const struct kernel {
    vp_kernel_info info;
    int64_t        (*elements)(vp_dtype dtype, const int64_t *ints, int operand);
    int64_t        (*bytes)(vp_dtype dtype, const int64_t *ints, int operand);
    vp_presence    (*presence)(vp_dtype dtype, const int64_t *ints, int operand);
    int            (*moved)(vp_dtype dtype, const int64_t *ints, int operand);
    double         (*flop)(const int64_t *ints);
} kernels[VP_N_KERNELS] = {
#define VP_KERNEL(NAME, kernel_name, set, real_set) \
    [VP_K_##NAME] = {.elements = kernel_name##_elements, .bytes = kernel_name##_bytes, \
                     .presence = kernel_name##_presence, .moved = kernel_name##_moved, \
                     .flop = kernel_name##_flop, \
                     .info = {.name = #kernel_name, .n_operands = VP_N_##NAME##_OPERANDS, \
                              .ints = set##_ints, .n_ints = N_NAMED(set##_ints), \
                              .reals = real_set##_reals, .n_reals = N_NAMED(real_set##_reals), \
                              .operands = {
#define VP_OPERAND(K, NAME, name, access, presence, elem, count, moved, lies_on) \
                                  [VP_##K##_##NAME] = {#name, VP_##access, presence, moved, \
                                                       VP_AS_##elem, lies_on},
#define VP_RULES(NAME, name, set, randomness, what, flop, workspace) \
                              }, .random = randomness, .kind = what}},
#include "plan/kernels.def"
};
/* clang-format on */

const vp_kernel_info *vp_kernel_info_of(vp_kernel k)
{
    assert(k >= 0 && k < VP_N_KERNELS);
    return &kernels[k].info;
}

vp_kernel vp_kernel_by_name(const char *name)
{
    for (int k = 0; k < VP_N_KERNELS; k++)
        if (strcmp(kernels[k].info.name, name) == 0)
            return (vp_kernel)k;
    return VP_N_KERNELS;
}

int vp_kernel_operand(vp_kernel k, const char *name)
{
    const vp_kernel_info *info = vp_kernel_info_of(k);

    for (int i = 0; i < info->n_operands; i++)
        if (info->operands[i].name[0] == name[0] && strcmp(info->operands[i].name, name) == 0)
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

/* ---- rules ---- */

int64_t vp_kernel_operand_elements(vp_kernel k, const int64_t *ints, int operand)
{
    assert(operand >= 0 && operand < vp_kernel_info_of(k)->n_operands);
    return kernels[k].elements(VP_DTYPE_NONE, ints, operand);
}

int64_t vp_kernel_operand_bytes(vp_kernel k, vp_dtype dtype, const int64_t *ints, int operand)
{
    assert(operand >= 0 && operand < vp_kernel_info_of(k)->n_operands);
    return kernels[k].bytes(dtype, ints, operand);
}

vp_presence vp_kernel_presence(vp_kernel k, const int64_t *ints, int operand)
{
    assert(operand >= 0 && operand < vp_kernel_info_of(k)->n_operands);
    return kernels[k].presence(VP_DTYPE_NONE, ints, operand);
}

static bool has_operand_of(vp_kernel k, vp_operand_elem elem)
{
    for (int i = 0; i < vp_kernel_info_of(k)->n_operands; i++)
        if (kernels[k].info.operands[i].elem == elem)
            return true;
    return false;
}

vp_dtype vp_kernel_dtype(vp_kernel k, vp_dtype compute, vp_dtype gradients)
{
    assert(gradients == VP_DTYPE_F32 || compute == VP_DTYPE_BF16);
    if (k == VP_N_KERNELS)
        return VP_DTYPE_F32;
    if (gradients == VP_DTYPE_BF16 && has_operand_of(k, VP_AS_GRAD))
        return VP_DTYPE_BF16_GRADS;
    if (compute == VP_DTYPE_TF32 && !vp_kernel_is_product(k) && k != VP_K_ATTENTION_FWD &&
        k != VP_K_ATTENTION_BWD)
        return VP_DTYPE_F32;
    return has_operand_of(k, VP_AS_CALL) ? compute : VP_DTYPE_F32;
}

bool vp_kernel_may_share(vp_kernel k, int out, int in)
{
    assert(out >= 0 && out < vp_kernel_info_of(k)->n_operands);
    assert(in < VP_MAX_OPERANDS); /* lies_on has a bit for each */
    return in >= 0 && kernels[k].info.operands[out].lies_on >> in & 1;
}

double vp_kernel_flop(vp_kernel k, const int64_t *ints)
{
    assert(k >= 0 && k < VP_N_KERNELS);
    return kernels[k].flop(ints);
}

/* Whether some calls of that dtype have the operand and some have not, and their prices differ. A master, which a
 * call updates, is there in 16 bits only. */
static bool may_lack(const vp_kernel_info *info, vp_dtype dtype, int operand)
{
    const vp_operand_info *o = &info->operands[operand];

    return o->if_given && (dtype != VP_DTYPE_F32 || o->access != VP_UPDATE);
}

uint32_t vp_kernel_lacks(vp_kernel k, vp_dtype dtype, uint32_t absent)
{
    const vp_kernel_info *info  = vp_kernel_info_of(k);
    uint32_t              lacks = 0;

    for (int i = 0; i < info->n_operands; i++)
        lacks |= may_lack(info, dtype, i) ? absent & 1u << i : 0;
    return lacks;
}

double vp_kernel_bytes_moved(vp_kernel k, vp_dtype dtype, const int64_t *ints, uint32_t lacks)
{
    const vp_kernel_info *info  = vp_kernel_info_of(k);
    double                bytes = 0.0;

    for (int i = 0; i < info->n_operands; i++) {
        bool once  = info->operands[i].access == VP_READ || info->operands[i].access == VP_WRITE;
        bool given = !info->operands[i].if_given || (may_lack(info, dtype, i) && !(lacks >> i & 1));
        int  of    = given ? kernels[k].moved(dtype, ints, i) : NOTHING;
        assert(of == NOTHING || (of >= 0 && of < info->n_operands));
        int64_t each = of == NOTHING ? 0 : kernels[k].bytes(dtype, ints, of);

        if (vp_overflowed(each))
            return 0.0;
        bytes += (double)each * (once ? 1.0 : 2.0);
    }
    return bytes;
}

/* ---- algorithms ---- */

bool vp_kernel_is_product(vp_kernel k)
{
    return vp_kernel_info_of(k)->kind == VP_KERNEL_PRODUCT;
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
