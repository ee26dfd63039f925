/* kernels/cuda/rope.cu: rotary position embedding (Su et al. 2021, arXiv:2104.09864, section
 * 3.4.2), halves paired.
 *
 *     y[i]     = x[i] cos - x[i + n] sin
 *     y[i + n] = x[i + n] cos + x[i] sin      0 <= i < n = rotary_dim / 2, angle i of the row's
 *     position
 *
 * for every head that turns, see vp_qkv_layout; what is behind rotary_dim and heads that do not
 * turn are copied, or left where y is x. Position is the row modulo seq. Backward turns by the
 * negative angle: the same with sin negated.
 *
 * x, y (batch, seq, elements of a row) of the call's dtype; angles: cosines (seq, n), then
 * sines, float. Moves 2 E bytes for each element, E its size, but in place only of those that
 * turn; angles come out of the caches for all but one head. A thread has one pack of pairs, both
 * halves, so y may be x. Same mathematics: kernels/cpu/rope.c; reference: vp_reference_rope() in
 * kernels/reference/reference_attention.c. */
#include "kernels/cuda/cuda_span.h"

/* How heads lie in a row: groups of group_heads heads of d elements, of each group the first
 * n_turning turn. Of a head, a thread takes one of n_pairs packs of its first half with that of
 * its second, or one of the packs behind both. */
struct shape {
    int64_t    n_rows, n_turning, d, half;
    int64_t    n_pairs; /* packs of a half */
    vp_divisor n_items; /* what a head gives to do */
    vp_divisor heads, group_heads, seq;
    float      sign;
};

template <typename T, int W>
static __global__ void turn_kernel(shape s, const T *x, const float *__restrict__ angles, T *y)
{
    int64_t item = (int64_t)blockIdx.x * VP_BLOCK + threadIdx.x,
            head = vp_quotient(item, s.n_items), row = vp_quotient(head, s.heads), of_row, k, at;
    bool turns;

    if (row >= s.n_rows)
        return;
    k      = item - head * s.n_items.by;
    of_row = head - row * s.heads.by;
    turns  = of_row - vp_quotient(of_row, s.group_heads) * s.group_heads.by < s.n_turning;
    at     = head * s.d;
    if (x == y && (!turns || k >= s.n_pairs))
        return;
    if (k < s.n_pairs) {
        const float *cosine = angles + (row - vp_quotient(row, s.seq) * s.seq.by) * s.half + k * W,
                    *sine   = cosine + s.seq.by * s.half;
        float a[W], b[W], c[W], z[W], y0[W], y1[W];

        vp_get<W>(x, at + k * W, a);
        vp_get<W>(x, at + s.half + k * W, b);
        if (turns) {
            vp_get<W>(cosine, 0, c);
            vp_get<W>(sine, 0, z);
        }
#pragma unroll
        for (int j = 0; j < W; j++) {
            y0[j] = turns ? a[j] * c[j] - b[j] * (s.sign * z[j]) : a[j];
            y1[j] = turns ? b[j] * c[j] + a[j] * (s.sign * z[j]) : b[j];
        }
        vp_put<W>(y, at + k * W, y0);
        vp_put<W>(y, at + s.half + k * W, y1);
    } else {
        float a[W];

        at += 2 * s.half + (k - s.n_pairs) * W;
        vp_get<W>(x, at, a);
        vp_put<W>(y, at, a);
    }
}

static shape shape_of(const vp_kernel_call *call)
{
    int64_t heads = call->rope.heads, kv_heads = call->rope.kv_heads, of_row, group_heads;
    shape   s;

    s.n_rows = call->rope.batch * call->rope.seq;
    s.seq    = vp_divisor_of(call->rope.seq);
    s.d      = call->rope.head_dim;
    s.half   = call->rope.rotary_dim / 2;
    s.sign   = call->kernel == VP_K_ROPE_BWD ? -1.0f : 1.0f;
    switch (call->rope.layout) {
    case VP_QKV_PACKED: /* q, k, v */
        of_row = group_heads = heads + 2 * kv_heads;
        s.n_turning          = heads + kv_heads;
        break;
    case VP_QKV_PER_HEAD: /* q, k, v of each head */
        of_row      = 3 * heads;
        group_heads = 3;
        s.n_turning = 2;
        break;
    default: /* VP_QKV_APART */
        of_row = group_heads = s.n_turning = heads;
        break;
    }
    s.heads       = vp_divisor_of(of_row);
    s.group_heads = vp_divisor_of(group_heads);
    return s;
}

static cudaError_t turn(const vp_kernel_call *call, const void *from, const float *angles, void *to,
                        cudaStream_t stream)
{
    shape       s = shape_of(call);
    cudaError_t e;

    VP_BY_DTYPE(call->dtype, T, const T *x = (const T *)from; T *y = (T *)to;
                bool aligned = s.d % vp_pack<T>::N == 0 && s.half % vp_pack<T>::N == 0 &&
                               vp_is_aligned16(x) && vp_is_aligned16(y) && vp_is_aligned16(angles);
                VP_BY_WIDTH(aligned, T, W, s.n_pairs = s.half / W;
                            s.n_items = vp_divisor_of(s.n_pairs + (s.d - 2 * s.half) / W);
                            e         = VP_LAUNCH((turn_kernel<T, W>),
                                                  vp_blocks(s.n_rows * s.heads.by * s.n_items.by, VP_BLOCK),
                                                  VP_BLOCK, 0, stream, s, x, angles, y)));
    return e;
}

extern "C" cudaError_t vp_cuda_rope_fwd(const vp_kernel_call *call, cudaStream_t stream)
{
    return turn(call, call->operand[VP_ROPE_FWD_X],
                (const float *)call->operand[VP_ROPE_FWD_ANGLES], call->operand[VP_ROPE_FWD_Y],
                stream);
}

extern "C" cudaError_t vp_cuda_rope_bwd(const vp_kernel_call *call, cudaStream_t stream)
{
    return turn(call, call->operand[VP_ROPE_BWD_DY],
                (const float *)call->operand[VP_ROPE_BWD_ANGLES], call->operand[VP_ROPE_BWD_DX],
                stream);
}
