#include "core/workspace.h"

#include "core/checked.h"
#include "core/plan.h"

#include <string.h>

static int64_t tiles(int64_t rows)
{
    return (rows + VP_TILE_TOKENS - 1) / VP_TILE_TOKENS;
}

static int64_t floats(int64_t a, int64_t b)
{
    return vp_mul(vp_mul(a, b), (int64_t)sizeof(float));
}

static int64_t cublaslt_bytes(int sm)
{
    return sm >= 90 ? VP_CUBLASLT_WORKSPACE_SM90 : VP_CUBLASLT_WORKSPACE;
}

int64_t vp_cuda_adafactor_sums(int64_t rows, int64_t cols, bool factored)
{
    if (!factored) /* two of each piece */
        return vp_mul(2, vp_ceil_div(vp_mul(rows, cols), VP_NORM_PIECE));
    return vp_round_up(vp_max_i64(vp_mul(vp_ceil_div(rows, VP_ADAFACTOR_TILE), cols), vp_mul(2, rows)), 2);
}

/* Ours: backward's row sums. */
static int64_t own_attention_bytes(const vp_call_shape *call)
{
    const int64_t *n = call->ints;

    return call->kernel == VP_K_ATTENTION_BWD ? floats(vp_mul(n[0], n[1]), n[2]) : 0;
}

vp_attention_engine vp_cuda_attention_engine(const vp_call_shape *call)
{
    (void)call;
    return VP_ATTENTION_OWN;
}

static int64_t attention_bytes(const vp_call_shape *call)
{
    return own_attention_bytes(call);
}

int64_t vp_workspace_bytes(const vp_call_shape *call)
{
    const int64_t *n = call->ints;

    if (call->sm == 0)
        return 0;
    switch (call->kernel) {
    case VP_K_LINEAR_FWD:
    case VP_K_LINEAR_BWD_INPUT:
        return cublaslt_bytes(call->sm);
    case VP_K_LINEAR_BWD_WEIGHT: /* the product, then the bias gradient's sum of each tile and column */
        return vp_max_i64(cublaslt_bytes(call->sm), floats(tiles(n[0]), n[2]));
    case VP_K_EMBEDDING_BWD: /* where each id first and last occurs, and every row's position */
        return floats(vp_add(vp_mul(2, n[2]), n[0]), 1);
    case VP_K_LAYERNORM_BWD: /* two sums of each tile and column */
        return floats(vp_mul(2, tiles(n[0])), n[1]);
    case VP_K_RMSNORM_BWD:
        return floats(tiles(n[0]), n[1]);
    case VP_K_ATTENTION_FWD:
    case VP_K_ATTENTION_BWD:
        return attention_bytes(call);
    case VP_K_ADAFACTOR: /* scalars; sums of each tile's columns, then two of each row at most; a float of each column and row */
        return vp_add(vp_mul((int64_t)sizeof(double), vp_add(VP_ADAFACTOR_SCALARS, vp_cuda_adafactor_sums(n[0], n[1], n[3] != 0))),
                      n[3] ? floats(vp_add(n[0], n[1]), 1) : 0);
    case VP_K_MUON: /* a double of each piece and one more, then the products */
        return vp_max_i64(cublaslt_bytes(call->sm),
                          vp_mul((int64_t)sizeof(double), vp_add(1, vp_ceil_div(vp_mul(n[0], n[1]), VP_NORM_PIECE))));
    case VP_K_GRAD_SUMSQ: /* a double of each piece */
        return vp_mul(2 * (int64_t)sizeof(double), vp_add(n[0], VP_SUMSQ_PIECE - 1) / VP_SUMSQ_PIECE);
    default:
        return 0;
    }
}

int64_t vp_step_workspace_bytes(int sm, const vp_step *step)
{
    int           lengths = vp_kernel_operand(step->kernel, "lengths"), window = vp_kernel_int(step->kernel, "window");
    int64_t       ints[VP_MAX_INTS], bytes;
    vp_call_shape call = {.sm = sm, .kernel = step->kernel, .dtype = step->dtype, .ints = ints, .reals = step->reals,
                          .lengths = lengths >= 0 && step->args[lengths].space != VP_SPACE_NONE};

    memcpy(ints, step->ints, sizeof ints);
    bytes = vp_workspace_bytes(&call);
    for (int w = 0; step->window_of_instance && w < 2; w++) { /* without a window, and with one: its width does not matter */
        ints[window] = w;
        bytes        = vp_max_i64(bytes, vp_workspace_bytes(&call));
    }
    return bytes;
}
