/* kernels/cuda/attention_fwd.cu: attention forward: y and lse, and the matrix of probabilities where
 * it is kept. attention_tiles.h has the mathematics. Reference: vp_reference_attention_fwd(). */
#include "kernels/cuda/attention_launch.h"

/* A block for each tile of queries and head, the last tiles first: under a causal mask they see
 * most. */
template <typename T, int D, typename L>
__global__ void __launch_bounds__(THREADS, TWO_BLOCKS) attention_fwd_kernel(const shape<T> s)
{
    if (!L::template runs<T, D>())
        return;
    enum { ROWS = memory<L>::ROWS };
    VP_DYNAMIC_SHARED(float, loaded);
    float *tile    = loaded + memory<L>::LOADED;
    int    n_heads = s.batch * s.heads, of_head = (int)blockIdx.x % n_heads,
        sample = of_head / s.heads, head = of_head % s.heads;
    int kv = head / s.group, length = length_of(s, sample),
        i0      = ((s.seq - 1) / ROWS - (int)blockIdx.x / n_heads) * ROWS;
    int64_t row = (int64_t)sample * s.seq;
    reach   all = keys_of_tile(s, length, i0, ROWS);
    rows<T> q   = rows_of(s.q, row + i0, head, least(ROWS, s.seq - i0));
    float   sum[L::R][L::template sums<D>], row_max[L::R], row_sum[L::R], by = multiplier(s);

    zero(sum);
    fill(row_max, -INFINITY);
    fill(row_sum, 0.0f);
    for (int j0 = all.from; j0 < all.to; j0 += COLS) {
        int      n    = least(COLS, length - j0);
        uint32_t seen = seen_of_pair<L, true>(s, i0, j0, q.n, n), kept = ~0u;
        float    x[L::R][L::EACH];

        if (s.drop_below > 0)
            kept = L::kept_by_query(s, sample, head, i0, j0);
        L::dots_of_rows(q, rows_of(s.k, row + j0, kv, n), s.d, s.aligned, loaded, x);
        bare_scores(s, x);
#pragma unroll
        for (int r = 0; r < L::R; r++) {
            float max = row_max[r], keep;

#pragma unroll
            for (int c = 0; c < L::EACH; c++)
                if (has<L>(seen, r, c))
                    max = fmaxf(max, by * x[r][c]);
            max        = greatest_of_row<L>(max);
            keep       = max == row_max[r] ? 1.0f : expf(row_max[r] - max);
            row_max[r] = max;
            row_sum[r] *= keep;
#pragma unroll
            for (int n_sum = 0; n_sum < L::template sums<D>; n_sum++)
                sum[r][n_sum] *= keep;
#pragma unroll
            for (int c = 0; c < L::EACH; c++) {
                float p = has<L>(seen, r, c) ? exp_score(by, x[r][c], max) : 0.0f;

                row_sum[r] += p; /* of this thread's columns; together at the end */
                x[r][c] = p * mask_of<L>(s, kept, r, c);
            }
        }
        L::template add_product<D>(x, tile, rows_of(s.v, row + j0, kv, n), s.d, s.aligned, loaded,
                                   sum);
    }
#pragma unroll
    for (int r = 0; r < L::R; r++) {
        float of_row = sum_of_row<L>(row_sum[r]);

        /* 0: no key was seen. A NaN stays one. */
        row_sum[r] = of_row == 0.0f ? 0.0f : 1.0f / of_row;
        row_max[r] += logf(of_row); /* lse; nothing seen: -infinity */
        if (threadIdx.x % L::LANES == 0 && i0 + L::row_of(r) < s.seq)
            s.lse[(int64_t)of_head * s.seq + i0 + L::row_of(r)] = row_max[r];
    }
    store_sums<L, D>(s, s.y, row + i0, head, s.seq - i0, row_sum, sum);
}

/* The matrix that is kept, now that lse is known: a block for each pair of tiles, scores once
 * more. Zeros where a key is not seen. */
template <typename T, typename L>
__global__ void __launch_bounds__(THREADS, TWO_BLOCKS) attention_probs_kernel(const shape<T> s)
{
    enum { ROWS = memory<L>::ROWS };
    VP_DYNAMIC_SHARED(float, loaded);
    int n_cols = (s.seq - 1) / COLS + 1, pairs = ((s.seq - 1) / ROWS + 1) * n_cols;
    int i0 = (int)blockIdx.x % pairs / n_cols * ROWS, j0 = (int)blockIdx.x % n_cols * COLS,
        of_head    = (int)blockIdx.x / pairs;
    int     sample = of_head / s.heads, head = of_head % s.heads, length = length_of(s, sample);
    int64_t row = (int64_t)sample * s.seq;
    reach   all = keys_of_tile(s, length, i0, ROWS);
    rows<T> q   = rows_of(s.q, row + i0, head, least(ROWS, s.seq - i0));
    float   x[L::R][L::EACH], lse[L::R];
    T      *to = row_of_probs(s, of_head, i0 + L::row_of(0), j0 + L::column_of(0));

    zero(x);
    if (j0 >= all.from && j0 < all.to) {
        int n = least(COLS, length - j0);

        L::dots_of_rows(q, rows_of(s.k, row + j0, head / s.group, n), s.d, s.aligned, loaded, x);
        bare_scores(s, x);
#pragma unroll
        for (int r = 0; r < L::R; r++)
            lse[r] = s.lse[(int64_t)of_head * s.seq + i0 + least(L::row_of(r), q.n - 1)];
        probabilities<L, true>(s, seen_of_pair<L, true>(s, i0, j0, q.n, n), lse, x);
    }
#pragma unroll
    for (int r = 0; r < L::R; r++) {
#pragma unroll
        for (int c = 0; c < L::EACH; c++)
            if (L::row_of(r) < q.n && j0 + L::column_of(c) < s.seq)
                vp_store(to, (int64_t)L::row_step(r) * s.seq + L::column_step(c), x[r][c]);
    }
}

/* ---- launcher ---- */

template <typename T, int D, typename L>
static cudaError_t forward(const shape<T> &s, cudaStream_t stream)
{
    int64_t     n_tiles = (s.seq - 1) / COLS + 1;
    cudaError_t e = VP_LAUNCH((attention_fwd_kernel<T, D, L>), (blocks_of<L>(s, s.heads)), THREADS,
                              memory<L>::BYTES, stream, s);

    if (e == cudaSuccess && s.probs)
        e = VP_LAUNCH((attention_probs_kernel<T, L>),
                      vp_blocks(n_tiles * n_tiles * s.batch * s.heads, 1), THREADS,
                      memory<L>::BYTES, stream, s);
    return e;
}

template <typename T> static cudaError_t run(const vp_kernel_call *call, cudaStream_t stream)
{
    typedef tensor<sizeof(T) == 2> with_tensor_cores;

    shape<T>    s;
    bool        by_tensor = false;
    cudaError_t e =
        fits(&call->attention) ? tensor_cores_take(call, &by_tensor) : cudaErrorInvalidValue;

    if (e != cudaSuccess)
        return e;
    s = shape_of<T>(call);
    if (by_tensor)
        return s.d <= 64 ? forward<T, 64, with_tensor_cores>(s, stream)
                         : forward<T, 128, with_tensor_cores>(s, stream);
    if (s.d <= 64)
        return forward<T, 64, cores<8>>(s, stream);
    if (s.d <= 128)
        return forward<T, 128, cores<8>>(s, stream);
    return forward<T, 256, cores<8>>(s, stream);
}

extern "C" cudaError_t vp_cuda_attention_fwd(const vp_kernel_call *call, cudaStream_t stream)
{
    VP_BY_DTYPE(call->dtype, T, return run<T>(call, stream));
}
