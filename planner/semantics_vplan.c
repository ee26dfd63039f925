/* planner/semantics_vplan.c: what vplan's own runtime does: every micro-op is a kernel, in the precision's dtype. */
#include "planner/semantics.h"

#include <assert.h>

const vp_sem_row *vp_semantics_row(const vp_semantics *s, vp_op op)
{
    for (; s; s = s->base)
        for (int i = 0; i < s->n_rows; i++)
            if (s->rows[i].op == op)
                return &s->rows[i];
    assert(!"a semantics without a row for this op");
    return NULL;
}

#define CALL(kernel, ...) {VP_K_##kernel, NULL, 0, {__VA_ARGS__}}
#define IN0 VP_REF_IN0
#define IN1 VP_REF_IN1
#define IN2 VP_REF_IN2
#define IN3 VP_REF_IN3
#define OUT0 VP_REF_OUT0
#define OUT1 VP_REF_OUT1
#define OUT2 VP_REF_OUT2
#define P0 VP_REF_P0
#define P1 VP_REF_P1
#define L0 VP_REF_L0
#define DY VP_REF_G_OUT0
#define DX VP_REF_G_IN0
#define DX1 VP_REF_G_IN1
#define DX2 VP_REF_G_IN2
#define ADD VP_REF_ADD_IN0
#define DP0 VP_REF_G_P0
#define DP1 VP_REF_G_P1
#define NONE VP_REF_NONE
#define ANGLES VP_REF_ANGLES

static const vp_sem_row rows[] = {
    {
        .op       = VP_OP_EMBEDDING,
        .out      = {VP_RULE_COMPUTE},
        .forward  = {CALL(EMBEDDING_FWD, IN0, P0, P1, OUT0)},
        .backward = {CALL(EMBEDDING_BWD, IN0, DY, DP0, DP1)},
        .zero_grads_first = true,
    },
    {
        .op       = VP_OP_LAYERNORM,
        .out      = {VP_RULE_COMPUTE, VP_RULE_F32, VP_RULE_F32},
        .forward  = {CALL(LAYERNORM_FWD, IN0, P0, P1, OUT0, OUT1, OUT2)},
        .backward = {CALL(LAYERNORM_BWD, DY, IN0, P0, OUT1, OUT2, ADD, DX, DP0, DP1)},
    },
    {
        .op       = VP_OP_RMSNORM,
        .out      = {VP_RULE_COMPUTE, VP_RULE_F32},
        .forward  = {CALL(RMSNORM_FWD, IN0, P0, OUT0, OUT1)},
        .backward = {CALL(RMSNORM_BWD, DY, IN0, P0, OUT1, ADD, DX, DP0)},
    },
    {
        .op       = VP_OP_LINEAR,
        .out      = {VP_RULE_COMPUTE},
        .forward  = {CALL(LINEAR_FWD, IN0, P0, P1, OUT0)},
        .backward = {CALL(LINEAR_BWD_WEIGHT, IN0, DY, DP0, DP1), CALL(LINEAR_BWD_INPUT, DY, P0, DX)},
    },
    {
        .op       = VP_OP_ROPE,
        .out      = {VP_RULE_COMPUTE},
        .forward  = {CALL(ROPE_FWD, IN0, ANGLES, OUT0)},
        .backward = {CALL(ROPE_BWD, DY, ANGLES, DX)},
    },
    {
        .op       = VP_OP_ATTENTION,
        .out      = {VP_RULE_COMPUTE, VP_RULE_F32},
        .forward  = {CALL(ATTENTION_FWD, IN0, IN1, IN2, IN3, OUT0, OUT1, NONE)},
        .backward = {CALL(ATTENTION_BWD, DY, IN0, IN1, IN2, IN3, OUT0, OUT1, NONE, DX, DX1, DX2)},
    },
    {
        .op       = VP_OP_ACTIVATION,
        .out      = {VP_RULE_COMPUTE},
        .forward  = {CALL(ACTIVATION_FWD, IN0, OUT0)},
        .backward = {CALL(ACTIVATION_BWD, DY, IN0, DX)},
    },
    {
        .op       = VP_OP_GLU,
        .out      = {VP_RULE_COMPUTE},
        .forward  = {CALL(GLU_FWD, IN0, IN1, OUT0)},
        .backward = {CALL(GLU_BWD, DY, IN0, IN1, DX, DX1)},
    },
    {
        .op          = VP_OP_ADD,
        .out         = {VP_RULE_COMPUTE},
        .forward     = {CALL(ADD, IN0, IN1, OUT0)},
        .grad_passes = true,
    },
    {
        .op       = VP_OP_DROPOUT, /* the mask is drawn again, never stored */
        .out      = {VP_RULE_COMPUTE},
        .forward  = {CALL(DROPOUT, IN0, OUT0)},
        .backward = {CALL(DROPOUT, DY, DX)},
    },
    {
        .op       = VP_OP_CROSS_ENTROPY, /* loss and gradient in one pass over the logits, in their place */
        .out      = {VP_RULE_F32},
        .locals   = {{.name = "rows", .like = IN1, .dtype = VP_RULE_F32}},
        .backward = {CALL(CROSS_ENTROPY, IN0, IN1, VP_REF_CONTROL, L0), CALL(LOSS_SUM, L0, VP_REF_CONTROL)},
        .grad_replaces_in0 = true,
    },
};

/* Attention that keeps its matrix: backward reads it instead of making it again. */
static const vp_sem_row math_rows[] = {
    {
        .op       = VP_OP_ATTENTION,
        .out      = {VP_RULE_COMPUTE, VP_RULE_F32},
        .locals   = {{.name = "probs", .like = OUT1, .per_key = true, .dtype = VP_RULE_COMPUTE}},
        .forward  = {CALL(ATTENTION_FWD, IN0, IN1, IN2, IN3, OUT0, OUT1, L0)},
        .backward = {CALL(ATTENTION_BWD, DY, IN0, IN1, IN2, IN3, OUT0, OUT1, L0, DX, DX1, DX2)},
    },
};

#define VPLAN(type) \
    .name = "vplan", .executable = true, .chunks = true, .param = type, .compute = type, .index = VP_DTYPE_I32
#define ROWS(list) .rows = list, .n_rows = sizeof list / sizeof *list

const vp_semantics vp_semantics_vplan_fp32      = {VPLAN(VP_DTYPE_F32), ROWS(rows)};
const vp_semantics vp_semantics_vplan_fp32_math = {VPLAN(VP_DTYPE_F32), ROWS(math_rows), .base = &vp_semantics_vplan_fp32};
const vp_semantics vp_semantics_vplan_bf16      = {VPLAN(VP_DTYPE_BF16), ROWS(rows)};
const vp_semantics vp_semantics_vplan_bf16_math = {VPLAN(VP_DTYPE_BF16), ROWS(math_rows), .base = &vp_semantics_vplan_bf16};
