/* plan/op.h: the two op vocabularies, shared by models, planner, plan file, runtime and kernels.
 *
 * A *graph op* (vp_op) is what a model does: linear, layernorm, attention. models/ builds graphs of
 * them. A *kernel* (vp_kernel) is what a backend can execute: linear_fwd, linear_bwd_weight. The
 * planner's semantics say which kernels an op becomes; a plan file is a list of kernel calls.
 *
 * A kernel call has operands (pointers into the plan's memory), whole-number attributes, real
 * attributes and at most one random stream. The table in kernels.def names them in order, with every
 * rule; who makes or reads a call uses the names:
 *     call->operand[VP_LINEAR_FWD_W]        call->linear.rows        call->norm_reals.eps
 * vp_kernel_operand_bytes() gives the bytes each operand must have: the shape rule that the plan's
 * checker applies to every step before anything runs. */
#ifndef VP_PLAN_OP_H
#define VP_PLAN_OP_H

#include <stdbool.h>
#include <stdint.h>

/* ---- graph ops ---- */

/* X(name, text, n_in, n_out, draws random numbers). Operands, parameters and attributes in order;
 * [] may be absent, N is batch times sequence:
 *
 * embedding      in tokens(N); params [table(V,h)] [positions(P,h)]; out y(N,h).
 *                y[n] = scale table[token[n]] + positions[n mod S + position_offset]; row
 *                padding_idx learns nothing from look-ups
 * layernorm      in x(N,h); params [gamma(h)] [beta(h)]; out y(N,h) mean(N) rstd(N)
 * rmsnorm        in x(N,g*h); params gamma(h); out y(N,g*h) rstd(N,g): each of g groups of h
 *                columns by itself;
 *                y = x rstd gamma, or x rstd (1 + gamma) with unit_offset
 * linear         in x(N,i); params w [b(o)]; out y(N,o); w is (i,o) or (o,i), see vp_weight_layout
 * adapted        in x(N,i); params w [b(o)] A(r,i) B(o,r); out y(N,o) h(N,r): linear, and beside it
 *                h = scale drop(x) A', y += h B' (Hu et al. 2021, arXiv:2106.09685)
 * rope           in x(N,c); out y(N,c): the first rotary_dim elements of each query and key head
 *                turned by the angles of the
 *                row's position (Su et al. 2021, arXiv:2104.09864, the halves of a head paired),
 *                see vp_qkv_layout
 * attention      in q [k v] [lengths(B)]; out y(N,a*d) lse(B,a,S). softmax(softcap(q k' scale)) v
 *                per sample
 * activation     in x; out y = act(x), see vp_act
 * glu            in gate(N,c) up(N,c), or both packed (N,2c); out y(N,c) = act(gate) up
 * add            in x y; out z = x + y
 * dropout        in x; out y = x * mask / (1 - p)
 * cross_entropy  in logits(N,V) labels(N); out loss: mean over all targets of the global batch,
 * of softcap(logits) */
#define VP_OP_TABLE(X) \
    X(EMBEDDING, "embedding", 1, 1, false) \
    X(LAYERNORM, "layernorm", 1, 3, false) \
    X(RMSNORM, "rmsnorm", 1, 2, false) \
    X(LINEAR, "linear", 1, 1, false) \
    X(ROPE, "rope", 1, 1, false) \
    X(ATTENTION, "attention", 4, 2, true) \
    X(ACTIVATION, "activation", 1, 1, false) \
    X(GLU, "glu", 2, 1, false) \
    X(ADD, "add", 2, 1, false) \
    X(DROPOUT, "dropout", 1, 1, true) \
    X(CROSS_ENTROPY, "cross_entropy", 2, 1, false) \
    X(ADAPTED, "adapted", 1, 2, true)

typedef enum vp_op {
#define X(name, text, n_in, n_out, random) VP_OP_##name,
    VP_OP_TABLE(X) VP_N_OPS
} vp_op;
#undef X

typedef struct vp_op_info {
    const char *name;
    int         n_in, n_out;
    bool        random;
} vp_op_info;

const vp_op_info *vp_op_info_of(vp_op op);

/* ---- kernels ---- */

enum { VP_MAX_OPERANDS = 12, VP_MAX_INTS = 9, VP_MAX_REALS = 3 };

/* What the elements of a buffer are. */
typedef enum vp_dtype {
    VP_DTYPE_NONE,
    VP_DTYPE_F32,
    VP_DTYPE_BF16,
    VP_DTYPE_F16,
    VP_DTYPE_U8,
    VP_DTYPE_I32,
    VP_DTYPE_I64,
    /* of a call only: as bf16, and gradients of parameters, fp32 in all other calls, are bf16 too */
    VP_DTYPE_BF16_GRADS,
    /* of a call only: as fp32, but what is multiplied has TF32's 11 digits, on tensor cores of 8.0 on */
    VP_DTYPE_TF32,
    VP_N_DTYPES
} vp_dtype;

enum { VP_TF32_CAPABILITY = 80 };

int64_t     vp_dtype_bytes(vp_dtype d);
const char *vp_dtype_name(vp_dtype d);          /* "fp32"                    */
vp_dtype    vp_dtype_by_name(const char *name); /* VP_N_DTYPES if none is so */

/* Whether a call can be of it, and what its operands that are VP_AS_CALL then are: fp32, bf16 or
 * fp16. */
bool     vp_dtype_is_of_calls(vp_dtype d);
vp_dtype vp_dtype_of_operands(vp_dtype call);

/* How a linear's weight lies in memory. */
typedef enum vp_weight_layout {
    VP_WEIGHT_IN_OUT = 0, /* (in, out), GPT-2's Conv1D   */
    VP_WEIGHT_OUT_IN = 1  /* (out, in), torch.nn.Linear  */
} vp_weight_layout;

/* How queries, keys and values of a token lie in a row. */
typedef enum vp_qkv_layout {
    VP_QKV_PACKED   = 0, /* [q: heads d | k: kv_heads d | v: kv_heads d]                    */
    VP_QKV_PER_HEAD = 1, /* heads times [q: d | k: d | v: d], GPT-NeoX; kv_heads = heads    */
    VP_QKV_APART    = 2  /* three tensors; rope: one of them, `heads` heads that all turn   */
} vp_qkv_layout;

/* Activations; each backend says what one does, or does not compile. */
/* clang-format off */
#define VP_ACT_TABLE(X) \
    X(GELU_TANH) \
    X(GELU) \
    X(RELU) \
    X(SILU) \
    X(TANH)
/* clang-format on */

typedef enum vp_act {
#define X(name) VP_ACT_##name,
    VP_ACT_TABLE(X) VP_N_ACTS
} vp_act;
#undef X

/* How an optimizer's state is stored. VP_STATE_BLOCK8: one byte an element and an fp32 scale for
 * every VP_STATE_BLOCK of them, behind the bytes (Dettmers et al. 2021, arXiv:2110.02861). */
typedef enum vp_state_kind {
    VP_STATE_F32,
    VP_STATE_BF16,
    VP_STATE_BLOCK8,
    VP_N_STATE_KINDS
} vp_state_kind;
enum { VP_STATE_BLOCK = 256 };

/* Bytes of a state of n elements; VP_OVERFLOW beyond 64 bits. */
int64_t vp_state_bytes(vp_state_kind kind, int64_t n);

/* ---- attributes ----
 *
 * A kernel's whole-number attributes are one of these sets, its reals one of the next table's; kernels
 * that mean the same share a set. SET(set, attributes), an attribute one of
 *     COUNT(name)       at least 1
 *     FROM_0(name)      at least 0
 *     UP_TO(name, max)  0 to max: an enum, or yes and no
 *     IF_SAID(name)     1, or 0, which files leave out
 * Of each set a struct vp_<set>_ints is made, whose fields lie as the attributes do in ints[]. */
/* clang-format off */
#define VP_INTS_TABLE(SET, COUNT, FROM_0, UP_TO, IF_SAID) \
    SET(embedding, COUNT(rows) COUNT(cols) COUNT(vocab) COUNT(seq) FROM_0(position_offset) \
                   UP_TO(skip_padding, 1)) \
    SET(embedding_bwd, COUNT(rows) COUNT(cols) COUNT(vocab) COUNT(seq) FROM_0(position_offset) \
                       UP_TO(skip_padding, 1) FROM_0(skip_row)) \
    SET(layernorm, COUNT(rows) COUNT(cols)) \
    SET(rmsnorm, COUNT(rows) COUNT(cols) COUNT(groups) UP_TO(unit_offset, 1)) \
    SET(linear, COUNT(rows) COUNT(in) COUNT(out) UP_TO(layout, VP_WEIGHT_OUT_IN) \
                IF_SAID(padded)) \
    SET(linear_add, COUNT(rows) COUNT(in) COUNT(out) UP_TO(layout, VP_WEIGHT_OUT_IN)) \
    SET(rope, COUNT(batch) COUNT(seq) COUNT(heads) FROM_0(kv_heads) COUNT(head_dim) \
              COUNT(rotary_dim) UP_TO(layout, VP_QKV_APART)) \
    SET(attention, COUNT(batch) COUNT(seq) COUNT(heads) COUNT(kv_heads) COUNT(head_dim) \
                   UP_TO(layout, VP_QKV_APART) UP_TO(causal, 1) FROM_0(window) UP_TO(probs, 1)) \
    SET(activation, COUNT(count) UP_TO(act, VP_N_ACTS - 1)) \
    SET(glu, COUNT(rows) COUNT(cols) UP_TO(act, VP_N_ACTS - 1) UP_TO(packed, 1)) \
    SET(elements, COUNT(count)) \
    SET(dropout, COUNT(batch) COUNT(count)) \
    SET(cross_entropy, COUNT(rows) COUNT(vocab) IF_SAID(padded)) \
    SET(token_rows, COUNT(rows)) \
    SET(copy_start, COUNT(count) UP_TO(copy, VP_MAX_COPIES - 1)) \
    SET(copy_done, UP_TO(copy, VP_MAX_COPIES - 1)) \
    SET(update, COUNT(count) UP_TO(decay, 1)) \
    SET(states, COUNT(count) UP_TO(decay, 1) UP_TO(state, VP_N_STATE_KINDS - 1)) \
    SET(adafactor, COUNT(rows) COUNT(cols) UP_TO(decay, 1) UP_TO(factored, 1)) \
    SET(muon, COUNT(rows) COUNT(cols) UP_TO(decay, 1))

#define VP_REALS_TABLE(SET, REAL) \
    SET(embedding, REAL(scale)) \
    SET(norm, REAL(eps)) \
    SET(attention, REAL(scale) REAL(p) REAL(softcap)) \
    SET(dropout, REAL(p)) \
    SET(cross_entropy, REAL(softcap)) \
    SET(clip, REAL(clip_norm)) \
    SET(scale, REAL(factor))

#define VP_INT_FIELD(name) int64_t name;
#define VP_INT_FIELD_UP_TO(name, max) int64_t name;
#define VP_INTS_STRUCT(set, fields) typedef struct vp_##set##_ints { fields } vp_##set##_ints;
VP_INTS_TABLE(VP_INTS_STRUCT, VP_INT_FIELD, VP_INT_FIELD, VP_INT_FIELD_UP_TO, VP_INT_FIELD)
#define VP_REAL_FIELD(name) double name;
#define VP_REALS_STRUCT(set, fields) typedef struct vp_##set##_reals { fields } vp_##set##_reals;
VP_REALS_TABLE(VP_REALS_STRUCT, VP_REAL_FIELD)
#undef VP_INT_FIELD
#undef VP_INT_FIELD_UP_TO
#undef VP_INTS_STRUCT
#undef VP_REAL_FIELD
#undef VP_REALS_STRUCT

/* What has attributes contains these two: by position as ints[] and reals[] for whoever treats all
 * kernels alike, and by name: step->linear.rows, step->norm_reals.eps. */
#define VP_INTS_MEMBER(set, fields) vp_##set##_ints set;
#define VP_REALS_MEMBER(set, fields) vp_##set##_reals set##_reals;
#define VP_NAMED_INTS \
    union { int64_t ints[VP_MAX_INTS]; VP_INTS_TABLE(VP_INTS_MEMBER, , , , ) }
#define VP_NAMED_REALS \
    union { double reals[VP_MAX_REALS]; VP_REALS_TABLE(VP_REALS_MEMBER, ) }

/* vp_linear_ints_of(ints)->rows: by name where only the array is at hand. */
#define VP_INTS_OF(set, fields) \
    static inline const vp_##set##_ints *vp_##set##_ints_of(const int64_t *ints) \
    { \
        return (const vp_##set##_ints *)(const void *)ints; \
    }
#define VP_REALS_OF(set, fields) \
    static inline const vp_##set##_reals *vp_##set##_reals_of(const double *reals) \
    { \
        return (const vp_##set##_reals *)(const void *)reals; \
    }
VP_INTS_TABLE(VP_INTS_OF, , , , )
VP_REALS_TABLE(VP_REALS_OF, )
#undef VP_INTS_OF
#undef VP_REALS_OF
/* clang-format on */

/* From one row of logits to the next, in elements: where they are padded, a multiple of 64, so that
 * rows of 16 bits begin at multiples of 128 bytes, which a card's fast products want (16 would do to be
 * taken at all; of 16384 x 768 x 50264 in bf16 an H200 takes 16 % longer forward). What lies between two rows is
 * not written, and nothing depends on it. */
enum { VP_PADDED_TO = 64 };

static inline int64_t vp_row_stride(int64_t cols, int64_t padded)
{
    return padded && cols > 0 && cols % VP_PADDED_TO ? cols - cols % VP_PADDED_TO + VP_PADDED_TO
                                                     : cols;
}

/* Never complete: a kernel without attributes has none to name. */
typedef struct vp_none_ints vp_none_ints;

/* ---- the table ---- */

typedef enum vp_kernel {
#define VP_KERNEL(NAME, name, attributes, reals) VP_K_##NAME,
#include "plan/kernels.def"
    VP_N_KERNELS
} vp_kernel;

/* The places of a kernel's operands, VP_LINEAR_FWD_X = 0 and so on, and their number,
 * VP_N_LINEAR_FWD_OPERANDS. */
/* clang-format off */
#define VP_KERNEL(NAME, name, attributes, reals) enum {
#define VP_OPERAND(KERNEL, NAME, name, access, presence, elements, count, moved, lies_on) \
    VP_##KERNEL##_##NAME,
#define VP_RULES(NAME, name, attributes, randomness, what, flop, workspace) \
    VP_N_##NAME##_OPERANDS };
#include "plan/kernels.def"
/* clang-format on */

typedef enum vp_access {
    VP_READ,
    VP_WRITE,
    VP_UPDATE,    /* read and written, always                                */
    VP_ACCUMULATE /* written; read too where the call says accumulate        */
} vp_access;

/* What an operand's elements are. */
typedef enum vp_operand_elem {
    VP_AS_CALL, /* the call's dtype               */
    VP_AS_F32,
    VP_AS_I32,
    VP_AS_BYTES,
    VP_AS_CONTROL, /* one vp_control                 */
    VP_AS_STATE,   /* by the call's attribute state  */
    VP_AS_GRAD     /* a parameter's gradient: bf16 in a call of VP_DTYPE_BF16_GRADS, else fp32 */
} vp_operand_elem;

/* Whether a call of given attributes has an operand. */
typedef enum vp_presence {
    VP_ALWAYS,
    VP_MAYBE, /* as the caller likes */
    VP_NEVER
} vp_presence;

typedef struct vp_operand_info {
    const char     *name;
    vp_access       access;
    bool            optional; /* not in every call */
    bool            if_given; /* moves its bytes in a call that has it, see vp_kernel_lacks() */
    vp_operand_elem elem;
    uint32_t        lies_on; /* bit i: may lie exactly where operand i lies */
} vp_operand_info;

/* A whole-number attribute: min <= value <= max. */
typedef struct vp_int_info {
    const char *name;
    int64_t     min, max;
    bool        if_said; /* files leave a 0 out */
} vp_int_info;

typedef enum vp_kernel_kind {
    VP_KERNEL_MIXED,
    VP_KERNEL_UPDATE,  /* of each element of a parameter by itself                 */
    VP_KERNEL_PRODUCT, /* one matrix product: no other has algorithms              */
    VP_KERNEL_TRANSFER /* between memories: a backend's copy() and after(), no run() */
} vp_kernel_kind;

typedef struct vp_kernel_info {
    const char        *name;
    int                n_operands, n_ints, n_reals;
    vp_operand_info    operands[VP_MAX_OPERANDS];
    const vp_int_info *ints;
    const char *const *reals;
    bool               random;
    vp_kernel_kind     kind;
} vp_kernel_info;

const vp_kernel_info *vp_kernel_info_of(vp_kernel k);

/* VP_N_KERNELS for a name no kernel has. */
vp_kernel vp_kernel_by_name(const char *name);

/* The index of an operand by its name, -1 if the kernel has none. */
int vp_kernel_operand(vp_kernel k, const char *name);

/* The index of a whole-number attribute by its name, -1 if the kernel has none. */
int vp_kernel_int(vp_kernel k, const char *name);

/* Elements operand `operand` must have under the whole-number attributes ints, and the bytes
 * they take in a call of this dtype; VP_OVERFLOW (see base/checked.h) where they multiply beyond
 * 64 bits. Attributes are taken to be >= 0. */
int64_t vp_kernel_operand_elements(vp_kernel k, const int64_t *ints, int operand);
int64_t vp_kernel_operand_bytes(vp_kernel k, vp_dtype dtype, const int64_t *ints, int operand);

/* Whether a call of these attributes has the operand. */
vp_presence vp_kernel_presence(vp_kernel k, const int64_t *ints, int operand);

/* The dtype of a call of this kernel under a compute dtype and that of parameters' gradients, bf16 or
 * fp32: fp32 where no operand depends on them, and under TF32 where it is neither a product nor attention. */
vp_dtype vp_kernel_dtype(vp_kernel k, vp_dtype compute, vp_dtype gradients);

/* Whether operand `out` may lie exactly where operand `in` lies; any other overlap of an output
 * with another operand is an error. */
bool vp_kernel_may_share(vp_kernel k, int out, int in);

/* What a call lacks of the operands that cost only where it has them, a master and the gradient of a bias, for which a
 * card reads dy once more: of those in the set absent (bit i: operand i). A master in fp32 is none of them: there a parameter never has one. Calls that
 * lack the same are alike to prices and profiles, whatever else they leave out. */
uint32_t vp_kernel_lacks(vp_kernel k, vp_dtype dtype, uint32_t absent);

/* Beside those bits, of an attention in bf16: no library takes it. With lengths, dropout, a softcap or a kept matrix a
 * card runs vplan's own (plan/workspace.h). Prices without a profile know it; profiles do not. */
enum { VP_LACKS_LIBRARY = 1 << 30 };

/* Floating-point operations of one call, 2 m n k for each matrix product and 0 for a kernel
 * without any; and the bytes it moves where it lacks such operands: what time models go by. */
double vp_kernel_flop(vp_kernel k, const int64_t *ints);
double vp_kernel_bytes_moved(vp_kernel k, vp_dtype dtype, const int64_t *ints, uint32_t lacks);

/* ---- numbers every backend agrees on ---- */

enum {
    VP_TILE_TOKENS = 256, /* reductions over tokens run in tiles of this many, in order */
    /* Every planned buffer starts at a multiple: what cudaMalloc() gives, and what cuBLASLt
     * requires of its workspace (CUDA Toolkit, cuBLAS, cublasLtMatmul) */
    VP_ALIGN_BYTES  = 256,
    VP_IGNORE_LABEL = -100,
    VP_MAX_HEAD_DIM = 256 /* attention tiles of the CPU backend lie on the stack        */
};

/* The control block: scalars that change from step to step. It lies in device memory at a place the
 * plan gives; the host writes the first four fields before a step, and kernels the others. Updates in
 * backward come before clip_scale and take the grad_scale that the host writes: 1. */
typedef struct vp_control {
    double lr;            /* of this step, after the schedule                       */
    double step;          /* 1 for the first step: AdamW's t                        */
    double inv_n_targets; /* 1 / targets in the global batch                        */
    /* clean steps until the loss scale grows; 0: there is none, and nothing behind this block */
    double growth_interval;
    double loss_sum;   /* sum of -log p over the targets so far; host zeroes it  */
    double grad_sumsq; /* host zeroes it                                         */
    double grad_norm;  /* sqrt(grad_sumsq)                                       */
    double grad_scale; /* min(1, clip / (grad_norm + 1e-6)), 1 without clipping  */
} vp_control;

/* The control block where the loss is scaled: gradients are those of loss_scale times the loss, and
 * too large for fp16 where it is too large. What follows the block stays on the device from step to
 * step: clip_scale writes it, the host only before the first step. By torch.amp.GradScaler's rule: a
 * step whose gradients are not all finite updates nothing and halves the scale, and every
 * growth_interval-th step in a row that is clean doubles it, while a float holds it. grad_norm is the
 * true gradient's, and grad_scale is divided by the scale. */
typedef struct vp_scaled_control {
    vp_control control;
    double     loss_scale;    /* of the next backward                                   */
    double     clean_steps;   /* in a row, since the scale last changed                  */
    double     skipped_steps; /* of all so far: an optimizer's t counts the others       */
    double     skips;         /* whether this step updates nothing: 1, else 0            */
} vp_scaled_control;

/* Of a const vp_control *; macros, since device code uses them too. */
#define VP_SCALED(control)     ((const vp_scaled_control *)(const void *)(control))
#define VP_IS_SCALED(control)  ((control)->growth_interval > 0.0)
#define VP_LOSS_SCALE(control) (VP_IS_SCALED(control) ? VP_SCALED(control)->loss_scale : 1.0)
#define VP_SKIPS(control)      (VP_IS_SCALED(control) && VP_SCALED(control)->skips != 0.0)
/* An optimizer's t: updates so far, this one with them. */
#define VP_UPDATE_NUMBER(control) \
    ((control)->step - (VP_IS_SCALED(control) ? VP_SCALED(control)->skipped_steps : 0.0))

/* How a library computes one call, in its own words: 64 bytes that mean something to the same
 * library on the same device. All zero: its default. Found when calls are timed, kept in the
 * profile, written into the plan. */
typedef struct vp_algorithm {
    uint64_t word[8];
} vp_algorithm;

enum { VP_ALGORITHM_TEXT = 128 }; /* hexadecimal digits */

/* Whether the kernel is one matrix product: no other has algorithms. */
bool vp_kernel_is_product(vp_kernel k);
bool vp_algorithm_is_set(const vp_algorithm *a);
/* buf holds VP_ALGORITHM_TEXT + 1; returned. */
const char *vp_algorithm_text(const vp_algorithm *a, char *buf);
/* False: text is not 128 hexadecimal digits. */
bool vp_algorithm_parse(const char *text, vp_algorithm *out);

/* Optimizer numbers of a recipe, as kernels take them. */
typedef struct vp_optimizer_numbers {
    double beta1, beta2, eps, weight_decay, momentum;
} vp_optimizer_numbers;

/* A random stream: Philox4x32-10 keyed by (seed, step, op), counted by (global sample, element
 * within the sample), so that neither recompute nor chunking nor micro-batch moves a number. */
typedef struct vp_rng_stream {
    uint64_t seed;
    uint32_t step;         /* optimizer step, from 0                           */
    uint32_t op;           /* unique in the model: block index and op id       */
    int64_t  first_sample; /* global index of the call's first sample          */
    int64_t  step_samples; /* samples of a step: what first_sample grows by    */
} vp_rng_stream;

#endif
