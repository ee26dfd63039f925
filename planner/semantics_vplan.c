/* planner/semantics_vplan.c: what vplan's own runtime does, in fp32: every micro-op is a kernel. */
#include "planner/semantics.h"

#include <assert.h>

int64_t vp_dtype_bytes(vp_dtype d)
{
    static const int64_t bytes[] = {0, 4, 2, 1, 4, 8};
    return bytes[d];
}

const vp_sem_row *vp_semantics_row(const vp_semantics *s, vp_op op)
{
    for (int i = 0; i < s->n_rows; i++)
        if (s->rows[i].op == op)
            return &s->rows[i];
    assert(!"a semantics without a row for this op");
    return NULL;
}

#define CALL(kernel, ...) {VP_K_##kernel, NULL, 0, {__VA_ARGS__}}
#define IN0 VP_REF_IN0
#define IN1 VP_REF_IN1
#define OUT0 VP_REF_OUT0
#define OUT1 VP_REF_OUT1
#define OUT2 VP_REF_OUT2
#define P0 VP_REF_P0
#define P1 VP_REF_P1
#define L0 VP_REF_L0
#define DY VP_REF_G_OUT0
#define DX VP_REF_G_IN0
#define ADD VP_REF_ADD_IN0
#define DP0 VP_REF_G_P0
#define DP1 VP_REF_G_P1

static const vp_sem_row rows[] = {
    {
        .op       = VP_OP_EMBEDDING,
        .out      = {VP_RULE_F32},
        .forward  = {CALL(EMBEDDING_FWD, IN0, P0, P1, OUT0)},
        .backward = {CALL(EMBEDDING_BWD, IN0, DY, DP0, DP1)},
        .zero_grads_first = true,
    },
    {
        .op       = VP_OP_LAYERNORM,
        .out      = {VP_RULE_F32, VP_RULE_F32, VP_RULE_F32},
        .forward  = {CALL(LAYERNORM_FWD, IN0, P0, P1, OUT0, OUT1, OUT2)},
        .backward = {CALL(LAYERNORM_BWD, DY, IN0, P0, OUT1, OUT2, ADD, DX, DP0, DP1)},
    },
    {
        .op       = VP_OP_LINEAR,
        .out      = {VP_RULE_F32},
        .forward  = {CALL(LINEAR_FWD, IN0, P0, P1, OUT0)},
        .backward = {CALL(LINEAR_BWD_WEIGHT, IN0, DY, DP0, DP1), CALL(LINEAR_BWD_INPUT, DY, P0, DX)},
    },
    {
        .op       = VP_OP_ATTENTION,
        .out      = {VP_RULE_F32, VP_RULE_F32},
        .forward  = {CALL(ATTENTION_FWD, IN0, OUT0, OUT1)},
        .backward = {CALL(ATTENTION_BWD, DY, IN0, OUT0, OUT1, DX)},
    },
    {
        .op       = VP_OP_GELU_TANH,
        .out      = {VP_RULE_F32},
        .forward  = {CALL(GELU_TANH_FWD, IN0, OUT0)},
        .backward = {CALL(GELU_TANH_BWD, DY, IN0, DX)},
    },
    {
        .op          = VP_OP_ADD,
        .out         = {VP_RULE_F32},
        .forward     = {CALL(ADD, IN0, IN1, OUT0)},
        .grad_passes = true,
    },
    {
        .op       = VP_OP_DROPOUT, /* the mask is drawn again, never stored */
        .out      = {VP_RULE_F32},
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

const vp_semantics vp_semantics_vplan_fp32 = {
    .name = "vplan", .executable = true, .chunks = true, .param = VP_DTYPE_F32, .compute = VP_DTYPE_F32,
    .index = VP_DTYPE_I32, .rows = rows, .n_rows = sizeof rows / sizeof *rows,
};
