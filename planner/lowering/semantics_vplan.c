/* planner/lowering/semantics_vplan.c: what vplan's own runtime does: every micro-op is a kernel,
 * in the precision's dtype. */
#include "planner/lowering/semantics.h"

#include "base/checked.h"

#define CALL(kernel, ...) \
    { \
        VP_K_##kernel, NULL, 0, \
        { \
            __VA_ARGS__ \
        } \
    }
/* clang-format on */
#define IN0    VP_REF_IN0
#define IN1    VP_REF_IN1
#define IN2    VP_REF_IN2
#define IN3    VP_REF_IN3
#define OUT0   VP_REF_OUT0
#define OUT1   VP_REF_OUT1
#define OUT2   VP_REF_OUT2
#define P0     VP_REF_P0
#define P1     VP_REF_P1
#define P2     VP_REF_P2
#define P3     VP_REF_P3
#define L0     VP_REF_L0
#define L1     VP_REF_L1
#define L2     VP_REF_L2
#define L3     VP_REF_L3
#define L4     VP_REF_L4
#define L5     VP_REF_L5
#define DY     VP_REF_G_OUT0
#define DX     VP_REF_G_IN0
#define DX1    VP_REF_G_IN1
#define DX2    VP_REF_G_IN2
#define ADD    VP_REF_ADD_IN0
#define DP0    VP_REF_G_P0
#define DP1    VP_REF_G_P1
#define DP2    VP_REF_G_P2
#define DP3    VP_REF_G_P3
#define NONE   VP_REF_NONE
#define ANGLES VP_REF_ANGLES

/* ---- attributes: what each op's kernels are called with ---- */

static void embedding(const vp_sem_shape *x, vp_step *call)
{
    bool positions = x->op->param[1].used;

    call->embedding_bwd.rows            = x->rows; /* embedding's too, which begins alike */
    call->embedding_bwd.cols            = x->cols_out;
    call->embedding_bwd.vocab           = x->ids;
    call->embedding_bwd.seq             = x->seq;
    call->embedding_bwd.position_offset = positions ? x->op->position_offset : 0;
    call->embedding_bwd.skip_padding    = positions && x->op->skip_padding;
    call->embedding_bwd.skip_row        = x->op->padding_row + 1;
    call->embedding_reals.scale         = x->op->scale;
}

static void layernorm(const vp_sem_shape *x, vp_step *call)
{
    call->layernorm.rows = x->rows;
    call->layernorm.cols = x->cols_in;
    call->norm_reals.eps = x->op->eps;
}

static void rmsnorm(const vp_sem_shape *x, vp_step *call)
{
    call->rmsnorm.rows        = x->rows;
    call->rmsnorm.cols        = x->cols_in / x->op->groups;
    call->rmsnorm.groups      = x->op->groups;
    call->rmsnorm.unit_offset = x->op->unit_offset;
    call->norm_reals.eps      = x->op->eps;
}

static void linear(const vp_sem_shape *x, vp_step *call)
{
    call->linear.rows   = x->rows;
    call->linear.in     = x->cols_in;
    call->linear.out    = x->cols_out;
    call->linear.layout = x->op->layout;
    call->linear.padded = x->padded;
}

static void rope(const vp_sem_shape *x, vp_step *call)
{
    call->rope.batch      = x->batch;
    call->rope.seq        = x->seq;
    call->rope.heads      = x->op->heads;
    call->rope.kv_heads   = x->op->kv_heads;
    call->rope.head_dim   = x->op->head_dim;
    call->rope.rotary_dim = x->op->rotary_dim;
    call->rope.layout     = x->op->qkv;
}

/* An instance's own window replaces that of the op. */
static void attention(const vp_sem_shape *x, vp_step *call)
{
    call->attention.batch         = x->batch;
    call->attention.seq           = x->seq;
    call->attention.heads         = x->op->heads;
    call->attention.kv_heads      = x->op->kv_heads;
    call->attention.head_dim      = x->op->head_dim;
    call->attention.layout        = x->op->qkv;
    call->attention.causal        = x->op->causal;
    call->attention.window        = vp_max_i64(0, x->op->window);
    call->attention.probs         = 0;
    call->attention_reals.scale   = x->op->scale;
    call->attention_reals.p       = x->op->p;
    call->attention_reals.softcap = x->op->softcap;
}

static void attention_math(const vp_sem_shape *x, vp_step *call)
{
    attention(x, call);
    call->attention.probs = 1;
}

static void activation(const vp_sem_shape *x, vp_step *call)
{
    call->activation.count = vp_mul(x->rows, x->cols_in);
    call->activation.act   = x->op->act;
}

static void glu(const vp_sem_shape *x, vp_step *call)
{
    call->glu.rows   = x->rows;
    call->glu.cols   = x->cols_out;
    call->glu.act    = x->op->act;
    call->glu.packed = x->op->in[1] < 0;
}

static void add(const vp_sem_shape *x, vp_step *call)
{
    call->elements.count = vp_mul(x->rows, x->cols_in);
}

static void dropout(const vp_sem_shape *x, vp_step *call)
{
    call->dropout.batch   = x->batch;
    call->dropout.count   = vp_mul(x->seq, x->cols_in);
    call->dropout_reals.p = x->op->p;
}

/* Which of an adapted layer's products a call is, by the weight among its operands. */
static bool multiplies(const vp_sem_shape *x, vp_ref weight, vp_ref gradient)
{
    for (int k = 0; k < vp_sem_step_n_operands(x->step); k++)
        if (x->step->operands[k] == weight || x->step->operands[k] == gradient)
            return true;
    return false;
}

/* y += h B' is called as a gradient of an input is, which adds to what is there: h for the gradient,
 * B for a weight of r outputs that lies (in, out). */
static void adapted(const vp_sem_shape *x, vp_step *call)
{
    bool down = multiplies(x, VP_REF_P2, VP_REF_G_P2), up = multiplies(x, VP_REF_P3, VP_REF_G_P3);
    bool turned = call->kernel == VP_K_LINEAR_BWD_INPUT && x->step->operands[0] == VP_REF_OUT1;

    if (call->kernel == VP_K_DROPOUT) {
        dropout(x, call);
    } else if (call->kernel == VP_K_SCALE) {
        call->elements.count     = vp_mul(x->rows, x->cols_out1);
        call->scale_reals.factor = x->op->scale;
    } else {
        call->linear.rows   = x->rows;
        call->linear.in     = up && !turned ? x->cols_out1 : turned ? x->cols_out : x->cols_in;
        call->linear.out    = down || turned ? x->cols_out1 : x->cols_out;
        call->linear.layout = turned       ? VP_WEIGHT_IN_OUT
                              : down || up ? VP_WEIGHT_OUT_IN
                                           : x->op->layout;
        call->linear.padded = 0;
    }
}

static void cross_entropy(const vp_sem_shape *x, vp_step *call)
{
    call->cross_entropy.rows          = x->rows; /* loss_sum's too */
    call->cross_entropy.vocab         = x->cols_in;
    call->cross_entropy.padded        = x->padded;
    call->cross_entropy_reals.softcap = x->op->softcap;
}

/* ---- rows ---- */

static const vp_sem_row rows[] = {
    {
        .op               = VP_OP_EMBEDDING,
        .attributes       = embedding,
        .out              = {VP_RULE_COMPUTE},
        .forward          = {CALL(EMBEDDING_FWD, IN0, P0, P1, OUT0)},
        .backward         = {CALL(EMBEDDING_BWD, IN0, DY, DP0, DP1)},
        .zero_grads_first = true,
    },
    {
        .op         = VP_OP_LAYERNORM,
        .attributes = layernorm,
        .out        = {VP_RULE_COMPUTE, VP_RULE_F32, VP_RULE_F32},
        .forward    = {CALL(LAYERNORM_FWD, IN0, P0, P1, OUT0, OUT1, OUT2)},
        .backward   = {CALL(LAYERNORM_BWD, DY, IN0, P0, OUT1, OUT2, ADD, DX, DP0, DP1)},
    },
    {
        .op         = VP_OP_RMSNORM,
        .attributes = rmsnorm,
        .out        = {VP_RULE_COMPUTE, VP_RULE_F32},
        .forward    = {CALL(RMSNORM_FWD, IN0, P0, OUT0, OUT1)},
        .backward   = {CALL(RMSNORM_BWD, DY, IN0, P0, OUT1, ADD, DX, DP0)},
    },
    {
        .op            = VP_OP_LINEAR,
        .attributes    = linear,
        .out           = {VP_RULE_COMPUTE},
        .forward       = {CALL(LINEAR_FWD, IN0, P0, P1, OUT0)},
        .backward      = {CALL(LINEAR_BWD_WEIGHT, IN0, DY, DP0, DP1),
                          CALL(LINEAR_BWD_INPUT, DY, P0, DX)},
        .forward_added = {CALL(LINEAR_ADD_FWD, IN0, P0, P1, VP_REF_ADDED, OUT0)},
    },
    {
        .op         = VP_OP_ADAPTED, /* masks are drawn again, never stored */
        .attributes = adapted,
        .out        = {VP_RULE_COMPUTE, VP_RULE_COMPUTE},
        .locals =
            {{.name = "dropped", .like = IN0, .dtype = VP_RULE_COMPUTE, .dropped_of = IN0},
             {.name = "dropped again", .like = IN0, .dtype = VP_RULE_COMPUTE, .dropped_of = IN0},
             {.name = "grad dropped", .like = IN0, .dtype = VP_RULE_COMPUTE, .dropped_of = DX},
             {.name = "h", .like = OUT1, .dtype = VP_RULE_COMPUTE},
             {.name = "grad h", .like = OUT1, .dtype = VP_RULE_COMPUTE},
             {.name = "grad h scaled", .like = OUT1, .dtype = VP_RULE_COMPUTE}},
        .forward  = {CALL(LINEAR_FWD, IN0, P0, P1, OUT0), CALL(DROPOUT, IN0, L0),
                     CALL(LINEAR_FWD, L0, P2, NONE, L3), CALL(SCALE, L3, OUT1),
                     CALL(LINEAR_BWD_INPUT, OUT1, P3, OUT0)},
        .backward = {CALL(LINEAR_BWD_WEIGHT, OUT1, DY, DP3, NONE),
                     CALL(LINEAR_BWD_INPUT, DY, P3, L4), CALL(SCALE, L4, L5),
                     CALL(DROPOUT, IN0, L1), CALL(LINEAR_BWD_WEIGHT, L1, L5, DP2, NONE),
                     CALL(LINEAR_BWD_INPUT, L5, P2, L2), CALL(DROPOUT, L2, DX),
                     CALL(LINEAR_BWD_INPUT, DY, P0, DX)},
    },
    {
        .op         = VP_OP_ROPE,
        .attributes = rope,
        .out        = {VP_RULE_COMPUTE},
        .forward    = {CALL(ROPE_FWD, IN0, ANGLES, OUT0)},
        .backward   = {CALL(ROPE_BWD, DY, ANGLES, DX)},
    },
    {
        .op         = VP_OP_ATTENTION,
        .attributes = attention,
        .out        = {VP_RULE_COMPUTE, VP_RULE_F32},
        .forward    = {CALL(ATTENTION_FWD, IN0, IN1, IN2, IN3, OUT0, OUT1, NONE)},
        .backward   = {CALL(ATTENTION_BWD, DY, IN0, IN1, IN2, IN3, OUT0, OUT1, NONE, DX, DX1, DX2)},
    },
    {
        .op         = VP_OP_ACTIVATION,
        .attributes = activation,
        .out        = {VP_RULE_COMPUTE},
        .forward    = {CALL(ACTIVATION_FWD, IN0, OUT0)},
        .backward   = {CALL(ACTIVATION_BWD, DY, IN0, DX)},
    },
    {
        .op         = VP_OP_GLU,
        .attributes = glu,
        .out        = {VP_RULE_COMPUTE},
        .forward    = {CALL(GLU_FWD, IN0, IN1, OUT0)},
        .backward   = {CALL(GLU_BWD, DY, IN0, IN1, DX, DX1)},
    },
    {
        .op          = VP_OP_ADD,
        .attributes  = add,
        .out         = {VP_RULE_COMPUTE},
        .forward     = {CALL(ADD, IN0, IN1, OUT0)},
        .grad_passes = true,
    },
    {
        .op         = VP_OP_DROPOUT, /* the mask is drawn again, never stored */
        .attributes = dropout,
        .out        = {VP_RULE_COMPUTE},
        .forward    = {CALL(DROPOUT, IN0, OUT0)},
        .backward   = {CALL(DROPOUT, DY, DX)},
    },
    {
        .op =
            VP_OP_CROSS_ENTROPY, /* loss and gradient in one pass over the logits, in their place */
        .attributes        = cross_entropy,
        .out               = {VP_RULE_F32},
        .locals            = {{.name = "rows", .like = IN1, .dtype = VP_RULE_F32}},
        .backward          = {CALL(CROSS_ENTROPY, IN0, IN1, VP_REF_CONTROL, L0),
                              CALL(LOSS_SUM, L0, VP_REF_CONTROL)},
        .grad_replaces_in0 = true,
    },
};

/* Attention that keeps its matrix: backward reads it instead of making it again. */
static const vp_sem_row math_rows[] = {
    {
        .op         = VP_OP_ATTENTION,
        .attributes = attention_math,
        .out        = {VP_RULE_COMPUTE, VP_RULE_F32},
        .locals     = {{.name = "probs", .like = OUT1, .per_key = true, .dtype = VP_RULE_COMPUTE}},
        .forward    = {CALL(ATTENTION_FWD, IN0, IN1, IN2, IN3, OUT0, OUT1, L0)},
        .backward   = {CALL(ATTENTION_BWD, DY, IN0, IN1, IN2, IN3, OUT0, OUT1, L0, DX, DX1, DX2)},
    },
};

static const vp_sem_param_row norm_row = {
    .update = VP_N_KERNELS,
    .steps  = {CALL(GRAD_SUMSQ, VP_REF_GRAD, VP_REF_CONTROL)},
};

static const vp_sem_param_row clip_row = {
    .update = VP_N_KERNELS,
    .steps  = {CALL(CLIP_SCALE, VP_REF_CONTROL)},
};

/* An update is one kernel; operands that a precision or a shape does not have are left out. */
#define P      VP_REF_PARAM
#define G      VP_REF_GRAD
#define M      VP_REF_STATE0
#define V      VP_REF_STATE1
#define MASTER VP_REF_MASTER
#define TAIL   VP_REF_MASTER, VP_REF_CONTROL
static const vp_sem_param_row updates[] = {
    {.update = VP_K_ADAMW, .steps = {CALL(ADAMW, P, G, M, V, TAIL)}},
    {.update = VP_K_SGD, .steps = {CALL(SGD, P, G, TAIL)}},
    {.update = VP_K_MOMENTUM, .steps = {CALL(MOMENTUM, P, G, M, TAIL)}},
    {.update = VP_K_LION, .steps = {CALL(LION, P, G, M, TAIL)}},
    {.update = VP_K_ADAFACTOR, .steps = {CALL(ADAFACTOR, P, G, M, V, TAIL)}},
    {.update = VP_K_MUON, .steps = {CALL(MUON, P, G, M, VP_REF_SCRATCH, TAIL)}},
};

#define VPLAN(type) VPLAN_AS(type, type)
#define VPLAN_AS(type, as) \
    .name = "vplan", .executable = true, .chunks = true, .param = type, .compute = as, \
    .index = VP_DTYPE_I32, .norm = &norm_row, .clip = &clip_row, .updates = updates, \
    .n_updates = sizeof updates / sizeof *updates
#define ROWS(list) .rows = list, .n_rows = sizeof list / sizeof *list

const vp_semantics vp_semantics_vplan_fp32            = {VPLAN(VP_DTYPE_F32), ROWS(rows)};
const vp_semantics vp_semantics_vplan_fp32_math       = {VPLAN(VP_DTYPE_F32), ROWS(math_rows),
                                                         .base = &vp_semantics_vplan_fp32};
const vp_semantics vp_semantics_vplan_bf16            = {VPLAN(VP_DTYPE_BF16), ROWS(rows)};
const vp_semantics vp_semantics_vplan_bf16_math       = {VPLAN(VP_DTYPE_BF16), ROWS(math_rows),
                                                         .base = &vp_semantics_vplan_bf16};
const vp_semantics vp_semantics_vplan_bf16_grads      = {VPLAN(VP_DTYPE_BF16), ROWS(rows),
                                                         .gradients = VP_DTYPE_BF16};
const vp_semantics vp_semantics_vplan_bf16_grads_math = {VPLAN(VP_DTYPE_BF16), ROWS(math_rows),
                                                         .gradients = VP_DTYPE_BF16,
                                                         .base = &vp_semantics_vplan_bf16_grads};
const vp_semantics vp_semantics_vplan_fp16            = {VPLAN(VP_DTYPE_F16), ROWS(rows)};
const vp_semantics vp_semantics_vplan_fp16_math       = {VPLAN(VP_DTYPE_F16), ROWS(math_rows),
                                                         .base = &vp_semantics_vplan_fp16};
const vp_semantics vp_semantics_vplan_tf32 = {VPLAN_AS(VP_DTYPE_F32, VP_DTYPE_TF32), ROWS(rows)};
const vp_semantics vp_semantics_vplan_tf32_math = {
    VPLAN_AS(VP_DTYPE_F32, VP_DTYPE_TF32), ROWS(math_rows), .base = &vp_semantics_vplan_tf32};
