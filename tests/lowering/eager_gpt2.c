/* tests/lowering/eager_gpt2.c: transformers' eager GPT-2 (modeling_gpt2.py: Conv1D,
 * gelu_new as a chain of element-wise ops, scaled_dot_product_attention in its flash form) as
 * torch's autograd saves it, with torch.optim.AdamW behind it. An honest subset: the temporaries
 * inside a backward op, and the small tensors of indices and random states, are not modelled. */
#include "tests/lowering/eager_gpt2.h"

/* clang-format off */
#define OP(name, n_reads, ...) {VP_N_KERNELS, name, n_reads, {__VA_ARGS__}}
/* clang-format on */
#define IN0  VP_REF_IN0
#define IN1  VP_REF_IN1
#define OUT0 VP_REF_OUT0
#define OUT1 VP_REF_OUT1
#define OUT2 VP_REF_OUT2
#define P0   VP_REF_P0
#define P1   VP_REF_P1
#define DY   VP_REF_G_OUT0
#define DX   VP_REF_G_IN0
#define DP0  VP_REF_G_P0
#define DP1  VP_REF_G_P1
#define L(n) VP_REF_L##n

/* Rows that read the same under both policies. gelu_new(x) = 0.5 x (1 + tanh(sqrt(2/pi) (x +
 * 0.044715 x^3))): pow saves its input, tanh its result, the last product both factors. */
/* clang-format off */
#define EMBEDDING(result) \
    { \
        .op = VP_OP_EMBEDDING, .out = {result}, \
        .locals   = {{.name = "token_embedding", .like = OUT0, .dtype = result}, {.name = "position_embedding", .like = OUT0, .dtype = result}}, \
        .forward  = {OP("embedding", 2, IN0, P0, L(0)), OP("embedding", 1, P1, L(1)), OP("add", 2, L(0), L(1), OUT0)}, \
        .backward = {OP("embedding_dense_backward", 2, IN0, DY, DP0, DP1)}, \
    }
#define LAYERNORM(result) \
    { \
        .op = VP_OP_LAYERNORM, .out = {result, VP_RULE_F32, VP_RULE_F32}, \
        .forward  = {OP("native_layer_norm", 3, IN0, P0, P1, OUT0, OUT1, OUT2)}, \
        .backward = {OP("native_layer_norm_backward", 5, DY, IN0, P0, OUT1, OUT2, DX, DP0, DP1)}, \
    }
#define ATTENTION \
    { \
        .op = VP_OP_ATTENTION, .out = {VP_RULE_SAME, VP_RULE_F32}, \
        .forward  = {OP("_scaled_dot_product_flash_attention", 1, IN0, OUT0, OUT1)}, \
        .backward = {OP("_scaled_dot_product_flash_attention_backward", 4, DY, IN0, OUT0, OUT1, DX)}, \
    }
#define DROPOUT \
    { \
        .op = VP_OP_DROPOUT, .out = {VP_RULE_SAME}, .locals = {{.name = "mask", .like = IN0, .dtype = VP_RULE_U8}}, \
        .forward  = {OP("native_dropout", 1, IN0, OUT0, L(0))}, \
        .backward = {OP("native_dropout_backward", 2, DY, L(0), DX)}, \
    }
#define RESIDUAL {.op = VP_OP_ADD, .out = {VP_RULE_PROMOTE}, .forward = {OP("add", 2, IN0, IN1, OUT0)}, .grad_passes = true}
#define LOSS \
    { \
        .op = VP_OP_CROSS_ENTROPY, .out = {VP_RULE_F32}, \
        .locals   = {{.name = "float_logits", .like = IN0, .dtype = VP_RULE_F32}, {.name = "log_softmax", .like = IN0, .dtype = VP_RULE_F32}}, \
        .forward  = {OP("float", 1, IN0, L(0)), OP("_log_softmax", 1, L(0), L(1)), OP("nll_loss", 2, L(1), IN1, OUT0)}, \
        .backward = {OP("_log_softmax_backward_data", 2, L(1), IN1, DX)}, \
    }
/* clang-format on */

static const vp_sem_row bf16_rows[] = {
    EMBEDDING(VP_RULE_BF16),
    LAYERNORM(VP_RULE_BF16),
    ATTENTION,
    DROPOUT,
    RESIDUAL,
    LOSS,
    {
        .op       = VP_OP_LINEAR,
        .out      = {VP_RULE_BF16},
        .forward  = {OP("addmm", 3, IN0, P0, P1, OUT0)},
        .backward = {OP("mm", 2, DY, P0, DX), OP("mm", 2, IN0, DY, DP0), OP("sum", 1, DY, DP1)},
    },
    {
        .op       = VP_OP_ACTIVATION,
        .out      = {VP_RULE_BF16},
        .locals   = {{.name = "half_x", .like = IN0, .dtype = VP_RULE_BF16},
                     {.name = "cube", .like = IN0, .dtype = VP_RULE_BF16},
                     {.name = "scaled_cube", .like = IN0, .dtype = VP_RULE_BF16},
                     {.name = "inner", .like = IN0, .dtype = VP_RULE_BF16},
                     {.name = "argument", .like = IN0, .dtype = VP_RULE_BF16},
                     {.name = "tanh", .like = IN0, .dtype = VP_RULE_BF16},
                     {.name = "one_plus_tanh", .like = IN0, .dtype = VP_RULE_BF16}},
        .forward  = {OP("mul 0.5", 1, IN0, L(0)), OP("pow 3", 1, IN0, L(1)),
                     OP("mul 0.044715", 1, L(1), L(2)), OP("add", 2, IN0, L(2), L(3)),
                     OP("mul sqrt(2/pi)", 1, L(3), L(4)), OP("tanh", 1, L(4), L(5)),
                     OP("add 1", 1, L(5), L(6)), OP("mul", 2, L(0), L(6), OUT0)},
        .backward = {OP("gelu_new_backward", 5, DY, IN0, L(5), L(0), L(6), DX)},
    },
};

/* Under autocast the master weights are fp32; linears run in bf16 on cast copies of weight and
 * input, which they save; norms and pow run in fp32; sums promote. */
static const vp_sem_row autocast_rows[] = {
    EMBEDDING(VP_RULE_F32),
    LAYERNORM(VP_RULE_F32),
    ATTENTION,
    DROPOUT,
    RESIDUAL,
    LOSS,
    {
        .op       = VP_OP_LINEAR,
        .out      = {VP_RULE_BF16},
        .locals   = {{.name = "x_bf16", .like = IN0, .dtype = VP_RULE_BF16, .cast_of = IN0},
                     {.name = "w_bf16", .like = P0, .dtype = VP_RULE_BF16, .cast_of = P0}},
        .forward  = {OP("to bf16", 1, IN0, L(0)), OP("to bf16", 1, P0, L(1)),
                     OP("addmm", 3, L(0), L(1), P1, OUT0)},
        .backward = {OP("mm", 2, DY, L(1), DX), OP("mm", 2, L(0), DY, DP0), OP("sum", 1, DY, DP1)},
    },
    {
        .op       = VP_OP_ACTIVATION,
        .out      = {VP_RULE_F32},
        .locals   = {{.name = "half_x", .like = IN0, .dtype = VP_RULE_BF16},
                     {.name = "cube", .like = IN0, .dtype = VP_RULE_F32},
                     {.name = "scaled_cube", .like = IN0, .dtype = VP_RULE_F32},
                     {.name = "inner", .like = IN0, .dtype = VP_RULE_F32},
                     {.name = "argument", .like = IN0, .dtype = VP_RULE_F32},
                     {.name = "tanh", .like = IN0, .dtype = VP_RULE_F32},
                     {.name = "one_plus_tanh", .like = IN0, .dtype = VP_RULE_F32},
                     {.name = "x_fp32", .like = IN0, .dtype = VP_RULE_F32, .cast_of = IN0}},
        .forward  = {OP("mul 0.5", 1, IN0, L(0)), OP("to fp32", 1, IN0, L(7)),
                     OP("pow 3", 1, L(7), L(1)), OP("mul 0.044715", 1, L(1), L(2)),
                     OP("add", 2, IN0, L(2), L(3)), OP("mul sqrt(2/pi)", 1, L(3), L(4)),
                     OP("tanh", 1, L(4), L(5)), OP("add 1", 1, L(5), L(6)),
                     OP("mul", 2, L(0), L(6), OUT0)},
        .backward = {OP("gelu_new_backward", 5, DY, L(7), L(5), L(0), L(6), DX)},
    },
};

/* torch.optim.AdamW as it runs on a card by default: foreach, so that every parameter's denominator
 * is there at once (torch/optim/adamw.py, _multi_tensor_adamw). */
static const vp_sem_param_row updates[] = {
    {
        .update = VP_K_ADAMW,
        .locals = {{.name = "denominator", .like = VP_REF_PARAM, .dtype = VP_RULE_SAME}},
        .steps  = {OP("_foreach_mul_ decay", 1, VP_REF_PARAM),
                   OP("_foreach_lerp_", 2, VP_REF_STATE0, VP_REF_GRAD),
                   OP("_foreach_mul_", 1, VP_REF_STATE1),
                   OP("_foreach_addcmul_", 2, VP_REF_STATE1, VP_REF_GRAD),
                   OP("_foreach_sqrt", 1, VP_REF_STATE1, L(0)), OP("_foreach_div_", 1, L(0)),
                   OP("_foreach_add_ eps", 1, L(0)),
                   OP("_foreach_addcdiv_", 3, VP_REF_PARAM, VP_REF_STATE0, L(0))},
    },
};

/* zero_grad(set_to_none=True) frees gradients, the first step makes the states. */
#define EAGER \
    .name = "torch eager GPT-2", .index = VP_DTYPE_I64, .updates = updates, \
    .n_updates = sizeof updates / sizeof *updates, .foreach = true, .grads = VP_SEM_MADE, \
    .states = VP_SEM_MADE, .like_param = true

const vp_semantics vp_torch_eager_gpt2_bf16 = {
    EAGER,
    .param   = VP_DTYPE_BF16,
    .compute = VP_DTYPE_BF16,
    .rows    = bf16_rows,
    .n_rows  = sizeof bf16_rows / sizeof *bf16_rows,
};

const vp_semantics vp_torch_eager_gpt2_autocast = {
    EAGER,
    .param   = VP_DTYPE_F32,
    .compute = VP_DTYPE_BF16,
    .rows    = autocast_rows,
    .n_rows  = sizeof autocast_rows / sizeof *autocast_rows,
};
