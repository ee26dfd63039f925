/* core/op.h: the two op vocabularies, shared by models, planner, plan file, runtime and kernels.
 *
 * A *graph op* (vp_op) is what a model does: linear, layernorm, attention. models/ builds graphs of
 * them. A *kernel* (vp_kernel) is what a backend can execute: linear_fwd, linear_bwd_weight. The
 * planner's semantics say which kernels an op becomes; a plan file is a list of kernel calls.
 *
 * A kernel call has operands (pointers into the plan's memory), whole-number attributes, real
 * attributes and at most one random stream. The table in op.c names them in order, and
 * vp_kernel_operand_bytes() gives the bytes each operand must have: the shape rule that the plan's
 * checker applies to every step before anything runs. */
#ifndef VP_CORE_OP_H
#define VP_CORE_OP_H

#include <stdbool.h>
#include <stdint.h>

/* ---- graph ops ---- */

/* X(name, text, n_in, n_out, draws random numbers). Operands, parameters and attributes in order; [] may be absent, N is
 * batch times sequence:
 *
 * embedding      in tokens(N); params [table(V,h)] [positions(P,h)]; out y(N,h).
 *                y[n] = scale table[token[n]] + positions[n mod S + position_offset]; row padding_idx learns nothing from look-ups
 * layernorm      in x(N,h); params [gamma(h)] [beta(h)]; out y(N,h) mean(N) rstd(N)
 * rmsnorm        in x(N,g*h); params gamma(h); out y(N,g*h) rstd(N,g): each of g groups of h columns by itself;
 *                y = x rstd gamma, or x rstd (1 + gamma) with unit_offset
 * linear         in x(N,i); params w [b(o)]; out y(N,o); w is (i,o) or (o,i), see vp_weight_layout
 * rope           in x(N,c); out y(N,c): the first rotary_dim elements of each query and key head turned by the angles of the
 *                row's position (Su et al. 2021, arXiv:2104.09864, the halves of a head paired), see vp_qkv_layout
 * attention      in q [k v] [lengths(B)]; out y(N,a*d) lse(B,a,S). softmax(softcap(q k' scale)) v per sample
 * activation     in x; out y = act(x), see vp_act
 * glu            in gate(N,c) up(N,c), or both packed (N,2c); out y(N,c) = act(gate) up
 * add            in x y; out z = x + y
 * dropout        in x; out y = x * mask / (1 - p)
 * cross_entropy  in logits(N,V) labels(N); out loss: mean over all targets of the global batch, of softcap(logits)  */
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
    X(CROSS_ENTROPY, "cross_entropy", 2, 1, false)

typedef enum vp_op {
#define X(name, text, n_in, n_out, random) VP_OP_##name,
    VP_OP_TABLE(X)
#undef X
    VP_N_OPS
} vp_op;

typedef struct vp_op_info {
    const char *name;
    int         n_in, n_out;
    bool        random;
} vp_op_info;

const vp_op_info *vp_op_info_of(vp_op op);

/* ---- kernels ---- */

enum { VP_MAX_OPERANDS = 12, VP_MAX_INTS = 9, VP_MAX_REALS = 3 };

/* What the elements of a buffer are. */
typedef enum vp_dtype { VP_DTYPE_NONE, VP_DTYPE_F32, VP_DTYPE_BF16, VP_DTYPE_U8, VP_DTYPE_I32, VP_DTYPE_I64, VP_N_DTYPES } vp_dtype;

int64_t     vp_dtype_bytes(vp_dtype d);
const char *vp_dtype_name(vp_dtype d);          /* "fp32"                    */
vp_dtype    vp_dtype_by_name(const char *name); /* VP_N_DTYPES if none is so */

/* How a linear's weight lies in memory. */
typedef enum vp_weight_layout {
    VP_WEIGHT_IN_OUT = 0,  /* (in, out), GPT-2's Conv1D   */
    VP_WEIGHT_OUT_IN = 1   /* (out, in), torch.nn.Linear  */
} vp_weight_layout;

/* How queries, keys and values of a token lie in a row. */
typedef enum vp_qkv_layout {
    VP_QKV_PACKED   = 0,   /* [q: heads d | k: kv_heads d | v: kv_heads d]                    */
    VP_QKV_PER_HEAD = 1,   /* heads times [q: d | k: d | v: d], GPT-NeoX; kv_heads = heads    */
    VP_QKV_APART    = 2    /* three tensors; rope: one of them, `heads` heads that all turn   */
} vp_qkv_layout;

typedef enum vp_act { VP_ACT_GELU_TANH, VP_ACT_GELU, VP_ACT_RELU, VP_ACT_SILU, VP_ACT_TANH, VP_N_ACTS } vp_act;

/* How an optimizer's state is stored. VP_STATE_BLOCK8: one byte an element and an fp32 scale for every VP_STATE_BLOCK of
 * them, behind the bytes (Dettmers et al. 2021, arXiv:2110.02861). */
typedef enum vp_state_kind { VP_STATE_F32, VP_STATE_BF16, VP_STATE_BLOCK8, VP_N_STATE_KINDS } vp_state_kind;
enum { VP_STATE_BLOCK = 256 };

/* Bytes of a state of n elements; VP_OVERFLOW beyond 64 bits. */
int64_t vp_state_bytes(vp_state_kind kind, int64_t n);

/* X(NAME): one row each in op.c. A call has a dtype, fp32 or bf16: that of activations, their gradients and parameters as
 * the kernel reads them. Always fp32 are statistics, gradients of parameters, master weights, angles and row_loss; tokens,
 * labels and lengths are int32, a label of -100 is ignored; control is the vp_control block below. Sums are fp32 whatever
 * the dtype, a bf16 result is rounded once.
 *
 *   embedding_fwd      tokens table? positions? -> y     rows cols vocab seq position_offset skip_padding    scale
 *   embedding_bwd      tokens dy -> d_table?(+) d_positions?(+)
 *                      rows cols vocab seq position_offset skip_padding skip_row           scale
 *                      skip_padding: positions count tokens other than position_offset - 1; such a one's own is that, which
 *                      learns nothing
 *                      skip_row: 1 + the row that learns nothing from look-ups, 0: none
 *   layernorm_fwd      x gamma? beta? -> y mean rstd                     rows cols            eps
 *   layernorm_bwd      dy x gamma? mean rstd add? -> dx d_gamma?(+) d_beta?(+)   rows cols
 *                      dx = add + gradient; dx may lie on add, dy or x
 *   rmsnorm_fwd        x gamma -> y rstd                                 rows cols groups unit_offset   eps
 *   rmsnorm_bwd        dy x gamma rstd add? -> dx d_gamma(+)             rows cols groups unit_offset
 *                      a row is groups times cols elements; dx may lie on add, dy or x
 *   linear_fwd         x w b? -> y                                       rows in out layout
 *   linear_bwd_input   dy w -> dx(+)                                     rows in out layout
 *   linear_bwd_weight  x dy -> dw(+) db?(+)                              rows in out layout
 *   rope_fwd           x angles -> y     y may lie on x                  batch seq heads kv_heads head_dim rotary_dim layout
 *   rope_bwd           dy angles -> dx   dx may lie on dy; the same      batch seq heads kv_heads head_dim rotary_dim layout
 *                      angles: cosines (seq, rotary_dim/2), then sines; elements i and i + rotary_dim/2 of a head turn together
 *   attention_fwd      q k? v? lengths? -> y lse probs?                  batch seq heads kv_heads head_dim layout causal window probs   scale p softcap
 *   attention_bwd      dy q k? v? lengths? y lse probs? -> dq dk? dv?    the same
 *                      query i sees keys j < lengths[sample]; j <= i if causal; |i - j| < window if window > 0.
 *                      probs 1: the attention matrix (batch, heads, seq, seq) is kept for backward
 *   activation_fwd     x -> y            y may lie on x                  count act
 *   activation_bwd     dy x -> dx        dx may lie on dy                count act
 *   glu_fwd            gate up? -> y     y may lie on gate or up         rows cols act packed
 *   glu_bwd            dy gate up? -> d_gate d_up?   on dy, gate or up   rows cols act packed
 *                      packed: no up, gate is (rows, 2 cols): the gate's columns, then up's
 *   add                x y -> z          z may lie on x or y             count
 *   dropout            x -> y            y may lie on x; its own backward  batch count(per sample)  p
 *   cross_entropy      logits(in place: gradient) labels control -> row_loss   rows vocab   softcap
 *                      gradient = (softmax - onehot) * control.inv_n_targets; row_loss = -log p, 0 if ignored
 *   loss_sum           row_loss -> control(+)     control.loss_sum += rows in tiles of 256   rows
 *   copy               x -> y                                            count
 *   zero               -> y (fp32)                                       count
 *   grad_sumsq         g -> control(+)   control.grad_sumsq += sum g^2   count
 *   clip_scale         control(+)        grad_norm, grad_scale from grad_sumsq                     clip_norm
 *   adamw              p(+) g m(+) v(+) master?(+) control               count decay state
 *   sgd                p(+) g master?(+) control                         count decay
 *   momentum           p(+) g m(+) master?(+) control                    count decay state
 *   lion               p(+) g m(+) master?(+) control                    count decay state
 *   adafactor          p(+) g row(+) col?(+) master?(+) control          rows cols decay factored
 *   muon               p(+) g m(+) scratch master?(+) control            rows cols decay      scratch: 2 rows cols + 2 min(rows, cols)^2 fp32
 *                      With a master the update is made to it and p is it rounded; without, a bf16 p is rounded stochastically.
 *
 * (+) marks an operand that is read and written: for gradients only where the step accumulates, else just written. softcap c > 0: s becomes c tanh(s / c). */
#define VP_KERNEL_TABLE(X) \
    X(EMBEDDING_FWD) X(EMBEDDING_BWD) X(LAYERNORM_FWD) X(LAYERNORM_BWD) X(RMSNORM_FWD) X(RMSNORM_BWD) X(LINEAR_FWD) \
    X(LINEAR_BWD_INPUT) X(LINEAR_BWD_WEIGHT) X(ROPE_FWD) X(ROPE_BWD) X(ATTENTION_FWD) X(ATTENTION_BWD) X(ACTIVATION_FWD) \
    X(ACTIVATION_BWD) X(GLU_FWD) X(GLU_BWD) X(ADD) X(DROPOUT) X(CROSS_ENTROPY) X(LOSS_SUM) X(COPY) X(ZERO) \
    X(GRAD_SUMSQ) X(CLIP_SCALE) X(ADAMW) X(SGD) X(MOMENTUM) X(LION) X(ADAFACTOR) X(MUON)

typedef enum vp_kernel {
#define X(name) VP_K_##name,
    VP_KERNEL_TABLE(X)
#undef X
    VP_N_KERNELS
} vp_kernel;

typedef enum vp_access {
    VP_READ,
    VP_WRITE,
    VP_UPDATE,     /* read and written, always                                */
    VP_ACCUMULATE  /* written; read too where the call says accumulate        */
} vp_access;

/* What an operand's elements are. */
typedef enum vp_operand_elem {
    VP_AS_CALL,    /* the call's dtype               */
    VP_AS_F32,
    VP_AS_I32,
    VP_AS_CONTROL, /* one vp_control                 */
    VP_AS_STATE    /* by the call's attribute state  */
} vp_operand_elem;

typedef struct vp_operand_info {
    const char     *name;
    vp_access       access;
    bool            optional;
    vp_operand_elem elem;
} vp_operand_info;

/* A whole-number attribute: min <= value <= max. */
typedef struct vp_int_info {
    const char *name;
    int64_t     min, max;
} vp_int_info;

typedef struct vp_kernel_info {
    const char     *name;
    int             n_operands, n_ints, n_reals;
    vp_operand_info operands[VP_MAX_OPERANDS];
    vp_int_info     ints[VP_MAX_INTS];
    const char     *reals[VP_MAX_REALS];
    bool            random;
} vp_kernel_info;

const vp_kernel_info *vp_kernel_info_of(vp_kernel k);

/* VP_N_KERNELS for a name no kernel has. */
vp_kernel vp_kernel_by_name(const char *name);

/* The index of an operand by its name, -1 if the kernel has none. */
int vp_kernel_operand(vp_kernel k, const char *name);

/* The index of a whole-number attribute by its name, -1 if the kernel has none. */
int vp_kernel_int(vp_kernel k, const char *name);

/* Elements operand `operand` must have under the whole-number attributes ints, and the bytes they take in a call of this
 * dtype; VP_OVERFLOW (see core/checked.h) where they multiply beyond 64 bits. Attributes are taken to be >= 0. */
int64_t vp_kernel_operand_elements(vp_kernel k, const int64_t *ints, int operand);
int64_t vp_kernel_operand_bytes(vp_kernel k, vp_dtype dtype, const int64_t *ints, int operand);

/* The dtype of a call of this kernel under a compute dtype: fp32 where no operand depends on it. */
vp_dtype vp_kernel_dtype(vp_kernel k, vp_dtype compute);

/* Whether operand `out` may lie exactly where operand `in` lies; any other overlap of an output with
 * another operand is an error. */
bool vp_kernel_may_share(vp_kernel k, int out, int in);

/* Floating-point operations of one call, 2 m n k for each matrix product and 0 for a kernel without any; and the bytes it
 * moves: what time models go by. */
double vp_kernel_flop(vp_kernel k, const int64_t *ints);
double vp_kernel_bytes_moved(vp_kernel k, vp_dtype dtype, const int64_t *ints);

/* ---- numbers every backend agrees on ---- */

enum {
    VP_TILE_TOKENS  = 256,  /* reductions over tokens run in tiles of this many, in order */
    VP_ALIGN_BYTES  = 64,   /* every planned buffer starts at a multiple                  */
    VP_IGNORE_LABEL = -100,
    VP_MAX_HEAD_DIM = 256   /* attention tiles of the CPU backend lie on the stack        */
};

/* The control block: scalars that change from step to step. It lies in device memory at a place the
 * plan gives; the host writes the first four fields before a step, kernels the others. */
typedef struct vp_control {
    double lr;             /* of this step, after the schedule                       */
    double step;           /* 1 for the first step: AdamW's t                        */
    double inv_n_targets;  /* 1 / targets in the global batch                        */
    double reserved;
    double loss_sum;       /* sum of -log p over the targets so far; host zeroes it  */
    double grad_sumsq;     /* host zeroes it                                         */
    double grad_norm;      /* sqrt(grad_sumsq)                                       */
    double grad_scale;     /* min(1, clip / (grad_norm + 1e-6)), 1 without clipping  */
} vp_control;

/* How a library computes one call, in its own words: 64 bytes that mean something to the same library on the same device. All zero: its
 * default. Found when calls are timed, kept in the profile, written into the plan. */
typedef struct vp_algorithm {
    uint64_t word[8];
} vp_algorithm;

enum { VP_ALGORITHM_TEXT = 128 };  /* hexadecimal digits */

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

/* A random stream: Philox4x32-10 keyed by (seed, step, op), counted by (global sample, element within
 * the sample), so that neither recompute nor chunking nor micro-batch moves a number. */
typedef struct vp_rng_stream {
    uint64_t seed;
    uint32_t step;          /* optimizer step, from 0                           */
    uint32_t op;            /* unique in the model: block index and op id       */
    int64_t  first_sample;  /* global index of the call's first sample          */
    int64_t  step_samples;  /* samples of a step: what first_sample grows by    */
} vp_rng_stream;

#endif
