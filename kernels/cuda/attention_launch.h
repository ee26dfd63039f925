/* kernels/cuda/attention_launch.h: what a call of the backend is to attention's kernels: where each
 * operand's rows lie, whose cores multiply, and how many blocks there are. */
#ifndef VP_KERNELS_CUDA_ATTENTION_LAUNCH_H
#define VP_KERNELS_CUDA_ATTENTION_LAUNCH_H

#include "kernels/cuda/attention_cores.h"
#include "kernels/cuda/attention_tensor.h"

#include <assert.h>

/* A sequence of 2^30 tokens would take years; a row of 2^31 elements or 2^30 blocks, more memory
 * than there is. */
static bool fits(const vp_attention_ints *n)
{
    int64_t tiles = (n->seq - 1) / memory<cores<4>>::ROWS + 1,
            cols  = n->probs ? (n->seq - 1) / COLS + 1 : 1;

    return n->seq <= 1 << 30 && (n->heads + 2 * n->kv_heads) * n->head_dim <= INT32_MAX &&
           n->head_dim <= VP_MAX_HEAD_DIM && tiles * cols * n->batch * n->heads <= VP_MAX_GRID;
}

/* q, k and v, or their gradients, in the call's layout. */
template <typename T>
static void lay_out(const shape<T> &s, vp_qkv_layout layout, void *qs, void *ks, void *vs,
                    part<T> *q, part<T> *k, part<T> *v)
{
    int d = s.d, row = (s.heads + 2 * s.kv_heads) * d;
    T  *x = (T *)qs;

    switch (layout) {
    case VP_QKV_PACKED:
        *q = {x, row, d};
        *k = {x + (int64_t)s.heads * d, row, d};
        *v = {x + (int64_t)(s.heads + s.kv_heads) * d, row, d};
        break;
    case VP_QKV_PER_HEAD:
        *q = {x, row, 3 * d};
        *k = {x + d, row, 3 * d};
        *v = {x + 2 * d, row, 3 * d};
        break;
    case VP_QKV_APART:
        *q = {x, s.heads * d, d};
        *k = {(T *)ks, s.kv_heads * d, d};
        *v = {(T *)vs, s.kv_heads * d, d};
        break;
    }
}

template <typename T> static shape<T> shape_of(const vp_kernel_call *call)
{
    const vp_attention_ints *n       = &call->attention;
    bool                     forward = call->kernel == VP_K_ATTENTION_FWD;
    double                   p       = call->attention_reals.p;
    shape<T>                 s       = {};

    s.batch = (int)n->batch, s.seq = (int)n->seq, s.heads = (int)n->heads,
    s.kv_heads = (int)n->kv_heads, s.d = (int)n->head_dim;
    assert(s.seq > 0 && s.d > 0 && s.kv_heads > 0 && s.heads % s.kv_heads == 0);
    s.group      = s.heads / s.kv_heads;
    s.causal     = n->causal != 0;
    s.window     = n->window > 0 && n->window < n->seq ? (int)n->window : (int)n->seq;
    s.lengths    = (const int32_t *)VP_ATTENTION_OPERAND(call, LENGTHS);
    s.y          = {(T *)VP_ATTENTION_OPERAND(call, Y), s.heads * s.d, s.d};
    s.lse        = (float *)VP_ATTENTION_OPERAND(call, LSE);
    s.probs      = n->probs ? (T *)VP_ATTENTION_OPERAND(call, PROBS) : NULL;
    s.scale      = (float)call->attention_reals.scale;
    s.cap        = (float)call->attention_reals.softcap;
    s.in_cap     = call->attention_reals.softcap > 0.0
                       ? (float)(call->attention_reals.scale / call->attention_reals.softcap)
                       : 0.0f;
    s.drop_below = p > 0.0 ? vp_dropout_least(p) : 0;
    s.keep_scale = p < 1.0 ? (float)(1.0 / (1.0 - p)) : 0.0f;
    s.rng        = call->rng;
    s.control    = call->control;
    s.aligned    = s.d % vp_pack<T>::N == 0;
    /* those that rows are not read of start at multiples of 64 too */
    for (int i = 0; i < VP_MAX_OPERANDS; i++)
        s.aligned = s.aligned && vp_is_aligned16(call->operand[i]);
    lay_out(s, (vp_qkv_layout)n->layout, VP_ATTENTION_OPERAND(call, Q),
            VP_ATTENTION_OPERAND(call, K), VP_ATTENTION_OPERAND(call, V), &s.q, &s.k, &s.v);
    if (!forward) {
        s.dy    = {(T *)call->operand[VP_ATTENTION_BWD_DY], s.heads * s.d, s.d};
        s.delta = (float *)call->workspace;
        lay_out(s, (vp_qkv_layout)n->layout, call->operand[VP_ATTENTION_BWD_DQ],
                call->operand[VP_ATTENTION_BWD_DK], call->operand[VP_ATTENTION_BWD_DV], &s.dq,
                &s.dk, &s.dv);
    }
    return s;
}

/* A block for each tile of rows and head of each sample. */
template <typename L, typename T> static unsigned blocks_of(const shape<T> &s, int heads)
{
    return vp_blocks((int64_t)((s.seq + L::ROWS - 1) / L::ROWS) * s.batch * heads, 1);
}

/* Calls of 16 bits and of tf32 where the device's tensor cores take TF32, and heads are no longer than
 * registers hold sums of. */
static cudaError_t tensor_cores_take(const vp_kernel_call *call, bool *yes)
{
    int         device = 0, major = 0;
    cudaError_t e = cudaGetDevice(&device);

    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    *yes = major >= VP_TF32_CAPABILITY / 10 && call->dtype != VP_DTYPE_F32 &&
           call->attention.head_dim <= 128;
    return e;
}

#endif
