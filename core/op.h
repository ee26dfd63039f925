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

/* X(name, text, n_in, n_out, draws random numbers). Operands, parameters and attributes in order:
 *
 * embedding      in tokens(N); params table(V,h) [positions(P,h)]; out y(N,h).
 *                y[n] = table[token[n]] + positions[n mod S]
 * layernorm      in x(N,h); params gamma(h) beta(h); out y(N,h) mean(N) rstd(N)
 * linear         in x(N,i); params w [b(o)]; out y(N,o); w is (i,o) or (o,i), see vp_weight_layout
 * attention      in qkv(N,(a+2k)d); out y(N,a*d) lse(B,a,S). Causal softmax(q k' scale) v per sample
 * gelu_tanh      in x; out y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
 * add            in x y; out z = x + y
 * dropout        in x; out y = x * mask / (1 - p)
 * cross_entropy  in logits(N,V) labels(N); out loss: mean over all targets of the global batch     */
#define VP_OP_TABLE(X) \
    X(EMBEDDING, "embedding", 1, 1, false) \
    X(LAYERNORM, "layernorm", 1, 3, false) \
    X(LINEAR, "linear", 1, 1, false) \
    X(ATTENTION, "attention", 1, 2, true) \
    X(GELU_TANH, "gelu_tanh", 1, 1, false) \
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

enum { VP_MAX_OPERANDS = 10, VP_MAX_INTS = 6, VP_MAX_REALS = 2 };

/* How a linear's weight lies in memory. */
typedef enum vp_weight_layout {
    VP_WEIGHT_IN_OUT = 0,  /* (in, out), GPT-2's Conv1D   */
    VP_WEIGHT_OUT_IN = 1   /* (out, in), torch.nn.Linear  */
} vp_weight_layout;

/* X(NAME): one row each in op.c. All reals are fp32 in memory; tokens and labels are int32, a label of
 * -100 is ignored; control is the vp_control block below.
 *
 *   embedding_fwd      tokens table positions? -> y                      rows cols vocab seq
 *   embedding_bwd      tokens dy -> d_table(+) d_positions?(+)           rows cols vocab seq
 *   layernorm_fwd      x gamma beta -> y mean rstd                       rows cols            eps
 *   layernorm_bwd      dy x gamma mean rstd add? -> dx d_gamma(+) d_beta(+)   rows cols
 *                      dx = add + gradient; dx may lie on add, dy or x
 *   linear_fwd         x w b? -> y                                       rows in out layout
 *   linear_bwd_input   dy w -> dx(+)                                     rows in out layout
 *   linear_bwd_weight  x dy -> dw(+) db?(+)                              rows in out layout
 *   attention_fwd      qkv -> y lse                            batch seq heads kv_heads head_dim   scale p
 *   attention_bwd      dy qkv y lse -> d_qkv                   batch seq heads kv_heads head_dim   scale p
 *   gelu_tanh_fwd      x -> y                                            count
 *   gelu_tanh_bwd      dy x -> dx        dx may lie on dy                count
 *   add                x y -> z          z may lie on x or y             count
 *   dropout            x -> y            y may lie on x; its own backward  batch count(per sample)  p
 *   cross_entropy      logits(in place: gradient) labels control -> row_loss   rows vocab
 *                      gradient = (softmax - onehot) * control.inv_n_targets; row_loss = -log p, 0 if ignored
 *   loss_sum           row_loss -> control(+)     control.loss_sum += rows in tiles of 256   rows
 *   copy               x -> y                                            count
 *   zero               -> y                                              count
 *   grad_sumsq         g -> control(+)   control.grad_sumsq += sum g^2   count
 *   clip_scale         control(+)        grad_norm, grad_scale from grad_sumsq                     clip_norm
 *   adamw              p(+) g m(+) v(+) control                          count decay
 *   sgd                p(+) g control                                    count decay
 *
 * (+) marks an operand that is read and written: for parameter gradients only where the step
 * accumulates, else just written. */
#define VP_KERNEL_TABLE(X) \
    X(EMBEDDING_FWD) X(EMBEDDING_BWD) X(LAYERNORM_FWD) X(LAYERNORM_BWD) X(LINEAR_FWD) \
    X(LINEAR_BWD_INPUT) X(LINEAR_BWD_WEIGHT) X(ATTENTION_FWD) X(ATTENTION_BWD) X(GELU_TANH_FWD) \
    X(GELU_TANH_BWD) X(ADD) X(DROPOUT) X(CROSS_ENTROPY) X(LOSS_SUM) X(COPY) X(ZERO) \
    X(GRAD_SUMSQ) X(CLIP_SCALE) X(ADAMW) X(SGD)

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

typedef struct vp_operand_info {
    const char *name;
    vp_access   access;
    bool        optional;
} vp_operand_info;

typedef struct vp_kernel_info {
    const char     *name;
    int             n_operands, n_ints, n_reals;
    vp_operand_info operands[VP_MAX_OPERANDS];
    const char     *ints[VP_MAX_INTS];
    const char     *reals[VP_MAX_REALS];
    bool            random;
} vp_kernel_info;

const vp_kernel_info *vp_kernel_info_of(vp_kernel k);

/* VP_N_KERNELS for a name no kernel has. */
vp_kernel vp_kernel_by_name(const char *name);

/* Bytes operand `operand` must have under the whole-number attributes ints; VP_OVERFLOW (see
 * core/checked.h) where they multiply beyond 64 bits. Attributes are taken to be >= 0. */
int64_t vp_kernel_operand_bytes(vp_kernel k, const int64_t *ints, int operand);

/* Whether operand `out` may lie exactly where operand `in` lies; any other overlap of an output with
 * another operand is an error. */
bool vp_kernel_may_share(vp_kernel k, int out, int in);

/* Floating-point operations and bytes moved by one call, for time models: GEMM 2*m*n*k, the rest by
 * elements. */
double vp_kernel_flop(vp_kernel k, const int64_t *ints);
double vp_kernel_bytes_moved(vp_kernel k, const int64_t *ints);

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

/* Optimizer numbers of a recipe, as kernels take them. */
typedef struct vp_optimizer_numbers {
    double beta1, beta2, eps, weight_decay;
} vp_optimizer_numbers;

/* A random stream: Philox4x32-10 keyed by (seed, step, op), counted by (global sample, element within
 * the sample), so that neither recompute nor chunking nor micro-batch moves a number. */
typedef struct vp_rng_stream {
    uint64_t seed;
    uint32_t step;          /* optimizer step, from 0                           */
    uint32_t op;            /* unique in the model: block index and op id       */
    int64_t  first_sample;  /* global index of the call's first sample          */
} vp_rng_stream;

#endif
