#include "plan/workspace.h"

#include "base/checked.h"

#include <assert.h>
#include <stddef.h>

static int64_t tiles(int64_t rows)
{
    return vp_ceil_div(rows, VP_TILE_TOKENS);
}

static int64_t floats(int64_t a, int64_t b)
{
    return vp_mul(vp_mul(a, b), (int64_t)sizeof(float));
}

static int64_t doubles(int64_t n)
{
    return vp_mul(n, (int64_t)sizeof(double));
}

static int64_t cublaslt_bytes(const vp_call_shape *call)
{
    return call->compute_capability >= 90 ? VP_CUBLASLT_WORKSPACE_SM90 : VP_CUBLASLT_WORKSPACE;
}

int64_t vp_cuda_even_columns(int64_t out, int64_t padded)
{
    enum { VECTOR = 8 };

    return padded && out > VP_PADDED_TO && out % VECTOR ? out - out % VP_PADDED_TO : out;
}

int64_t vp_cuda_linear_sum_bytes(vp_kernel kernel, vp_dtype dtype, const vp_linear_ints *n)
{
    bool halves = vp_dtype_bytes(vp_dtype_of_operands(dtype)) == 2;

    if (vp_cuda_even_columns(n->out, n->padded) == n->out)
        return 0;
    if (kernel == VP_K_LINEAR_BWD_INPUT && halves)
        return vp_round_up(floats(n->rows, n->in), VP_ALIGN_BYTES);
    if (kernel == VP_K_LINEAR_BWD_WEIGHT && n->layout == VP_WEIGHT_OUT_IN)
        return vp_round_up(floats(VP_PADDED_TO, n->in), VP_ALIGN_BYTES);
    return 0;
}

static int64_t linear_bytes(const vp_call_shape *call)
{
    return vp_add(cublaslt_bytes(call), vp_cuda_linear_sum_bytes(call->kernel, call->dtype,
                                                                 vp_linear_ints_of(call->ints)));
}

int64_t vp_cuda_adafactor_sums(int64_t rows, int64_t cols, bool factored)
{
    if (!factored) /* two of each piece */
        return vp_mul(2, vp_ceil_div(vp_mul(rows, cols), VP_NORM_PIECE));
    return vp_round_up(
        vp_larger(vp_mul(vp_ceil_div(rows, VP_ADAFACTOR_TILE), cols), vp_mul(2, rows)), 2);
}

/* Ours: backward's row sums. */
static int64_t own_attention_bytes(const vp_call_shape *call)
{
    const vp_attention_ints *n = vp_attention_ints_of(call->ints);

    return call->kernel == VP_K_ATTENTION_BWD ? floats(vp_mul(n->batch, n->seq), n->heads) : 0;
}

/* cuDNN's attention of b samples, h query heads of kv key heads, s tokens, d elements: the
 * workspace that its graph API asks for.
 *
 *     forward          256 on sm_90, else 0
 *     backward         2 b h S K + 2 F + c      S, K: s rounded up to 128 and 64 on sm_90, both to
 *                      64 elsewhere; c: 256, else 128
 *     backward sm_100  4 F + 128, and 0 where kv = h
 *     F                2 b h s d rounded up to 128; 0 where kv = h
 *
 * The first term of backward is dS in bf16, which a second kernel multiplies by K: that is what
 * makes dQ repeat its bits. F is a gradient of keys or values for each query head. Asked of
 * cuDNN 9.19.0 without a device: equal to the byte on 10,320 shapes (s 2 to 131,072, d 8 to 256,
 * every layout, mask and window, h / kv 1 to 16); tests/test_cudnn_graphs.sh asks again. A cuDNN
 * that wants more is refused at run time, not given more. */
static int64_t cudnn_bytes(int compute_capability, bool backward, int64_t b, int64_t h, int64_t kv,
                           int64_t s, int64_t d)
{
    assert(kv > 0 && h % kv == 0);
    int64_t rows = vp_mul(b, h),
            each = kv == h ? 0 : vp_round_up(vp_mul(vp_mul(2, rows), vp_mul(s, d)), 128), scores;

    if (!backward)
        return compute_capability == 90 ? 256 : 0;
    if (compute_capability == 100)
        return each == 0 ? 0 : vp_add(vp_mul(4, each), 128);
    scores = vp_mul(vp_mul(2, rows), vp_mul(vp_round_up(s, compute_capability == 90 ? 128 : 64),
                                            vp_round_up(s, 64)));
    return vp_add(vp_add(scores, vp_mul(2, each)), compute_capability == 90 ? 256 : 128);
}

/* What cuDNN 9.19 takes: heads of a multiple of 8 elements, up to 256 forward and, for backward,
 * on sm_90, else up to 128. Its limits for a single token differ by version, and a CUDA grid's
 * second dimension ends at 65535: those are left to us. */
vp_attention_engine vp_cuda_attention_engine(const vp_call_shape *call)
{
    const vp_attention_ints  *n = vp_attention_ints_of(call->ints);
    const vp_attention_reals *x = vp_attention_reals_of(call->reals);

    int64_t longest =
        call->kernel == VP_K_ATTENTION_FWD || call->compute_capability == 90 ? 256 : 128;
    bool plain = x->p == 0.0 && x->softcap == 0.0 && !call->lengths && n->probs == 0;
    bool shape = n->batch >= 1 && n->batch <= 65535 && n->seq >= 2 && n->heads <= 65535 &&
                 n->kv_heads >= 1 && n->heads % n->kv_heads == 0 && n->head_dim >= 8 &&
                 n->head_dim % 8 == 0 && n->head_dim <= longest;

    return call->compute_capability >= 80 && call->dtype == VP_DTYPE_BF16 && plain && shape
               ? VP_ATTENTION_CUDNN
               : VP_ATTENTION_OWN;
}

vp_attention_workspace vp_cuda_attention_workspace(const vp_call_shape *call, int64_t n_chunks)
{
    const vp_attention_ints *n        = vp_attention_ints_of(call->ints);
    bool                     backward = call->kernel == VP_K_ATTENTION_BWD;

    /* chunks are whole: of samples, or of one sample's key heads */
    assert(n_chunks >= 1 && (n_chunks <= n->batch ? n->batch % n_chunks == 0
                                                  : n_chunks % n->batch == 0 &&
                                                        n->kv_heads % (n_chunks / n->batch) == 0));
    int64_t                parts = n_chunks > n->batch ? n_chunks / n->batch : 1;
    int64_t                b = parts > 1 ? 1 : n->batch / n_chunks, h = n->heads / parts;
    vp_attention_workspace w = {
        .row_sum_bytes = backward ? vp_round_up(floats(vp_mul(b, h), n->seq), VP_ALIGN_BYTES) : 0,
        .library_bytes = cudnn_bytes(call->compute_capability, backward, b, h, n->kv_heads / parts,
                                     n->seq, n->head_dim),
    };

    w.bytes = vp_add(w.row_sum_bytes, w.library_bytes);
    return w;
}

/* Whether a call can be so many parts, each with a workspace of at most so many bytes. */
static bool may_be_parts(const vp_call_shape *call, int64_t chunks, int64_t most_bytes)
{
    const vp_attention_ints *n = vp_attention_ints_of(call->ints);
    int64_t                  bytes;

    if (chunks <= n->batch ? n->batch % chunks != 0
                           : chunks % n->batch != 0 || n->kv_heads % (chunks / n->batch) != 0)
        return false;
    bytes = vp_cuda_attention_workspace(call, chunks).library_bytes;
    return !vp_overflowed(bytes) && bytes <= most_bytes;
}

/* Blocks of a part: one for each head and VP_CUDNN_BLOCK_KEYS keys. */
static bool is_filled(const vp_attention_ints *n, int64_t chunks)
{
    return vp_mul(n->batch * n->heads / chunks, vp_ceil_div(n->seq, VP_CUDNN_BLOCK_KEYS)) >=
           VP_CUDNN_BLOCKS;
}

int64_t vp_cuda_attention_chunks(const vp_call_shape *call)
{
    const vp_attention_ints *n      = vp_attention_ints_of(call->ints);
    int64_t                  chunks = 1, fewer;

    if (call->kernel != VP_K_ATTENTION_BWD)
        return 1;
    while (chunks < n->batch * n->kv_heads && !may_be_parts(call, chunks, VP_CUDNN_WORKSPACE_BYTES))
        chunks++;
    if (call->compute_capability != 90 && call->compute_capability != 100)
        return chunks;
    for (fewer = chunks - 1; fewer >= 1 && !is_filled(n, chunks); fewer--)
        if (may_be_parts(call, fewer, VP_CUDNN_FILLING_BYTES))
            chunks = fewer;
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

/* ---- the table's rules ---- */

static const vp_none_ints *vp_none_ints_of(const int64_t *ints)
{
    (void)ints;
    return NULL;
}

/* clang-format off */
#define VP_RULES(NAME, name, set, randomness, what, flop, workspace) \
    static int64_t name##_workspace(const vp_call_shape *call) \
    { \
        const vp_##set##_ints *n = vp_##set##_ints_of(call->ints); \
        (void)n; \
        return workspace; \
    }
#include "plan/kernels.def"

static int64_t (*const workspaces[VP_N_KERNELS])(const vp_call_shape *call) = {
#define VP_RULES(NAME, name, set, randomness, what, flop, workspace) \
    [VP_K_##NAME] = name##_workspace,
#include "plan/kernels.def"
};
/* clang-format on */

int64_t vp_workspace_bytes(const vp_call_shape *call)
{
    assert(call->kernel >= 0 && call->kernel < VP_N_KERNELS);
    return call->compute_capability == 0 ? 0 : workspaces[call->kernel](call);
}
