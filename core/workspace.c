#include "core/workspace.h"

#include "core/checked.h"

static int64_t tiles(int64_t rows)
{
    return vp_ceil_div(rows, VP_TILE_TOKENS);
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
    return vp_round_up(vp_larger(vp_mul(vp_ceil_div(rows, VP_ADAFACTOR_TILE), cols), vp_mul(2, rows)), 2);
}

/* Ours: backward's row sums. */
static int64_t own_attention_bytes(const vp_call_shape *call)
{
    const int64_t *n = call->ints;

    return call->kernel == VP_K_ATTENTION_BWD ? floats(vp_mul(n[0], n[1]), n[2]) : 0;
}

/* cuDNN's attention of b samples, h query heads of kv key heads, s tokens, d elements: the workspace that its graph API asks for.
 *
 *     forward          256 on sm_90, else 0
 *     backward         2 b h S K + 2 F + c      S, K: s rounded up to 128 and 64 on sm_90, both to 64 elsewhere; c: 256, else 128
 *     backward sm_100  4 F + 128, and 0 where kv = h
 *     F                2 b h s d rounded up to 128; 0 where kv = h
 *
 * The first term of backward is dS in bf16, which a second kernel multiplies by K: that is what makes dQ repeat its bits. F is a
 * gradient of keys or values for each query head. Asked of cuDNN 9.19.0 without a device: equal to the byte on 10,320 shapes (s 2 to
 * 131,072, d 8 to 256, every layout, mask and window, h / kv 1 to 16); tests/test_cudnn_graphs.sh asks again. A cuDNN that wants
 * more is refused at run time, not given more. */
static int64_t cudnn_bytes(int sm, bool backward, int64_t b, int64_t h, int64_t kv, int64_t s, int64_t d)
{
    int64_t rows = vp_mul(b, h), each = kv == h ? 0 : vp_round_up(vp_mul(vp_mul(2, rows), vp_mul(s, d)), 128), scores;

    if (!backward)
        return sm == 90 ? 256 : 0;
    if (sm == 100)
        return each == 0 ? 0 : vp_add(vp_mul(4, each), 128);
    scores = vp_mul(vp_mul(2, rows), vp_mul(vp_round_up(s, sm == 90 ? 128 : 64), vp_round_up(s, 64)));
    return vp_add(vp_add(scores, vp_mul(2, each)), sm == 90 ? 256 : 128);
}

/* What cuDNN 9.19 takes: heads of a multiple of 8 elements, up to 256 forward and, for backward, on sm_90, else up to 128. Its limits
 * for a single token differ by version, and a CUDA grid's second dimension ends at 65535: those are left to us. */
vp_attention_engine vp_cuda_attention_engine(const vp_call_shape *call)
{
    const int64_t *n       = call->ints; /* batch seq heads kv_heads head_dim layout causal window probs */
    int64_t        longest = call->kernel == VP_K_ATTENTION_FWD || call->sm == 90 ? 256 : 128;
    bool           plain   = call->reals[1] == 0.0 && call->reals[2] == 0.0 && !call->lengths && n[8] == 0; /* p softcap */
    bool           shape   = n[0] >= 1 && n[0] <= 65535 && n[1] >= 2 && n[2] <= 65535 && n[3] >= 1 && n[2] % n[3] == 0 && n[4] >= 8 &&
                             n[4] % 8 == 0 && n[4] <= longest;

    return call->sm >= 80 && call->dtype == VP_DTYPE_BF16 && plain && shape ? VP_ATTENTION_CUDNN : VP_ATTENTION_OWN;
}

vp_attention_workspace vp_cuda_attention_workspace(const vp_call_shape *call, int64_t n_chunks)
{
    const int64_t         *n        = call->ints;
    bool                   backward = call->kernel == VP_K_ATTENTION_BWD;
    int64_t                parts    = n_chunks > n[0] ? n_chunks / n[0] : 1, b = parts > 1 ? 1 : n[0] / n_chunks;
    int64_t                h        = n[2] / parts;
    vp_attention_workspace w        = {
        .row_sum_bytes = backward ? vp_round_up(floats(vp_mul(b, h), n[1]), VP_CUDNN_ALIGN_BYTES) : 0,
        .library_bytes = cudnn_bytes(call->sm, backward, b, h, n[3] / parts, n[1], n[4]),
    };

    w.bytes = vp_add(w.row_sum_bytes, w.library_bytes);
    if (w.bytes != 0)
        w.bytes = vp_add(w.bytes, VP_CUDNN_ALIGN_BYTES - VP_ALIGN_BYTES); /* to begin at a multiple of the one in a place of the other */
    return w;
}

int64_t vp_cuda_attention_chunks(const vp_call_shape *call)
{
    int64_t batch = call->ints[0], kv_heads = call->ints[3], chunks;

    if (call->kernel != VP_K_ATTENTION_BWD)
        return 1;
    for (chunks = 1; chunks < batch * kv_heads; chunks++) {
        int64_t bytes;

        if (chunks <= batch ? batch % chunks != 0 : chunks % batch != 0 || kv_heads % (chunks / batch) != 0)
            continue;
        bytes = vp_cuda_attention_workspace(call, chunks).library_bytes;
        if (!vp_overflowed(bytes) && bytes <= VP_CUDNN_WORKSPACE_BYTES)
            break;
    }
    return chunks;
}

/* Enough for ours too, which runs where cuDNN is not installed. */
static int64_t attention_bytes(const vp_call_shape *call)
{
    int64_t own = own_attention_bytes(call);

    if (vp_cuda_attention_engine(call) == VP_ATTENTION_OWN)
        return own;
    return vp_larger(own, vp_cuda_attention_workspace(call, vp_cuda_attention_chunks(call)).bytes);
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
        return vp_larger(cublaslt_bytes(call->sm), floats(tiles(n[0]), n[2]));
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
        return vp_larger(cublaslt_bytes(call->sm),
                         vp_mul((int64_t)sizeof(double), vp_add(1, vp_ceil_div(vp_mul(n[0], n[1]), VP_NORM_PIECE))));
    case VP_K_GRAD_SUMSQ: /* a double of each piece */
        return vp_mul((int64_t)sizeof(double), vp_ceil_div(n[0], VP_SUMSQ_PIECE));
    default:
        return 0;
    }
}
