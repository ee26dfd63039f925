/* kernels/cuda/attention_fwd.cu: attention forward: y and lse, and the matrix of probabilities where
 * it is kept. attention_tiles.h has the mathematics. Reference: vp_reference_attention_fwd(). */
#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/attention_probs.h"

/* A block for each tile of queries and head, the last tiles first: under a causal mask they see
 * most. */
template <typename T, int D, int R>
__global__ void __launch_bounds__(THREADS, TWO_BLOCKS) attention_fwd_kernel(const shape<T> s)
{
    enum { ROWS = memory<R>::ROWS };
    VP_DYNAMIC_SHARED(float, loaded);
    float *tile    = loaded + memory<R>::LOADED;
    int    n_heads = s.batch * s.heads, of_head = (int)blockIdx.x % n_heads,
        sample = of_head / s.heads, head = of_head % s.heads;
    int kv = head / s.group, length = length_of(s, sample),
        i0      = ((s.seq - 1) / ROWS - (int)blockIdx.x / n_heads) * ROWS;
    int64_t row = (int64_t)sample * s.seq;
    reach   all = keys_of_tile(s, length, i0, ROWS);
    rows<T> q   = rows_of(s.q, row + i0, head, least(ROWS, s.seq - i0));
    float   sum[R][D / WIDE], row_max[R], row_sum[R], by = multiplier(s);

    zero(sum);
    fill(row_max, -INFINITY);
    fill(row_sum, 0.0f);
    for (int j0 = all.from; j0 < all.to; j0 += COLS) {
        int      n    = least(COLS, length - j0);
        uint32_t seen = seen_of_pair<R, true>(s, i0, j0, q.n, n), kept = ~0u;
        float    x[R][EACH];

        if (s.drop_below > 0)
            kept = kept_by_query<R>(s, sample, head, i0, j0);
        dots_of_rows(q, rows_of(s.k, row + j0, kv, n), s.d, s.aligned, loaded, x);
        bare_scores(s, x);
#pragma unroll
        for (int r = 0; r < R; r++) {
            float max = row_max[r], keep;

#pragma unroll
            for (int c = 0; c < EACH; c++)
                if (has(seen, r, c))
                    max = fmaxf(max, by * x[r][c]);
#pragma unroll
            for (int lane = WIDE / 2; lane > 0; lane /= 2)
                max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, lane));
            keep       = max == row_max[r] ? 1.0f : expf(row_max[r] - max);
            row_max[r] = max;
            row_sum[r] *= keep;
#pragma unroll
            for (int n_sum = 0; n_sum < D / WIDE; n_sum++)
                sum[r][n_sum] *= keep;
#pragma unroll
            for (int c = 0; c < EACH; c++) {
                float p = has(seen, r, c) ? exp_score(by, x[r][c], max) : 0.0f;

                row_sum[r] += p; /* of this thread's columns; together at the end */
                x[r][c] = p * mask_of(s, kept, r, c);
            }
        }
        write_tile(x, tile);
        add_product<R, D>(tile, rows_of(s.v, row + j0, kv, n), s.d, s.aligned, loaded, sum);
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        float of_row = row_sum[r];

#pragma unroll
        for (int lane = WIDE / 2; lane > 0; lane /= 2)
            of_row += __shfl_xor_sync(0xffffffffu, of_row, lane);
        /* 0: no key was seen. A NaN stays one. */
        row_sum[r] = of_row == 0.0f ? 0.0f : 1.0f / of_row;
        row_max[r] += logf(of_row); /* lse; nothing seen: -infinity */
        if (threadIdx.x % WIDE == 0 && i0 + row_of(r) < s.seq)
            s.lse[(int64_t)of_head * s.seq + i0 + row_of(r)] = row_max[r];
    }
    store_sums<R, D>(s, s.y, row + i0, head, s.seq - i0, row_sum, sum);
}

/* The matrix that is kept, now that lse is known: a block for each pair of tiles, scores once
 * more. Zeros where a key is not seen. */
template <typename T, int R>
__global__ void __launch_bounds__(THREADS, TWO_BLOCKS) attention_probs_kernel(const shape<T> s)
{
    enum { ROWS = memory<R>::ROWS };
    VP_DYNAMIC_SHARED(float, loaded);
    int n_cols = (s.seq - 1) / COLS + 1, pairs = ((s.seq - 1) / ROWS + 1) * n_cols;
    int i0 = (int)blockIdx.x % pairs / n_cols * ROWS, j0 = (int)blockIdx.x % n_cols * COLS,
        of_head    = (int)blockIdx.x / pairs;
    int     sample = of_head / s.heads, head = of_head % s.heads, length = length_of(s, sample);
    int64_t row = (int64_t)sample * s.seq;
    reach   all = keys_of_tile(s, length, i0, ROWS);
    rows<T> q   = rows_of(s.q, row + i0, head, least(ROWS, s.seq - i0));
    float   x[R][EACH], lse[R];
    T      *to = row_of_probs(s, of_head, i0 + row_of(0), j0 + column_of(0));

    zero(x);
    if (j0 >= all.from && j0 < all.to) {
        int n = least(COLS, length - j0);

        dots_of_rows(q, rows_of(s.k, row + j0, head / s.group, n), s.d, s.aligned, loaded, x);
        bare_scores(s, x);
#pragma unroll
        for (int r = 0; r < R; r++)
            lse[r] = s.lse[(int64_t)of_head * s.seq + i0 + least(row_of(r), q.n - 1)];
        probabilities<R, true>(s, seen_of_pair<R, true>(s, i0, j0, q.n, n), lse, x);
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
        for (int c = 0; c < EACH; c++)
            if (row_of(r) < q.n && j0 + column_of(c) < s.seq)
                vp_store(to, WIDE * c, x[r][c]);
        to += (int64_t)rows_between(r, r + 1) * s.seq;
    }
}

/* ---- launcher ---- */

template <typename T, int D, int R>
static cudaError_t forward(const shape<T> &s, cudaStream_t stream)
{
    int64_t     n_tiles = (s.seq - 1) / COLS + 1;
    cudaError_t e       = VP_LAUNCH((attention_fwd_kernel<T, D, R>), (blocks_of<T, R>(s, s.heads)),
                                    THREADS, memory<R>::BYTES, stream, s);

    if (e == cudaSuccess && s.probs)
        e = VP_LAUNCH((attention_probs_kernel<T, 8>),
                      vp_blocks(n_tiles * n_tiles * s.batch * s.heads, 1), THREADS,
                      memory<8>::BYTES, stream, s);
    return e;
}

template <typename T> static cudaError_t run(const vp_kernel_call *call, cudaStream_t stream)
{
    shape<T> s;

    if (!fits(&call->attention))
        return cudaErrorInvalidValue;
    s = shape_of<T>(call);
    if (s.d <= 64)
        return forward<T, 64, 8>(s, stream);
    if (s.d <= 128)
        return forward<T, 128, 8>(s, stream);
    return forward<T, 256, 8>(s, stream);
}

extern "C" cudaError_t vp_cuda_attention_fwd(const vp_kernel_call *call, cudaStream_t stream)
{
    VP_BY_DTYPE(call->dtype, T, return run<T>(call, stream));
}
