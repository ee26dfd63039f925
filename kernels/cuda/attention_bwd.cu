/* kernels/cuda/attention_bwd.cu: attention backward: D, then dk and dv by tiles of keys, then dq by
 * tiles of queries. attention_tiles.h has the mathematics. Reference: vp_reference_attention_bwd(). */
#include "kernels/cuda/attention_launch.h"

/* delta[sample][head][i] = sum_c dy[c] y[c]: LANES threads to a row of one head, so that rows of
 * 64 bf16 keep all busy. Reads 2 rows d elements, writes rows floats. */
enum { LANES = 8 };

template <typename T> __global__ void attention_delta_kernel(const shape<T> s, int64_t n_rows)
{
    enum { N = vp_pack<T>::N };
    int64_t at  = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    float   sum = 0.0f;

    if (at < n_rows) {
        const T *y = s.y.base + at * s.d, *dy = s.dy.base + at * s.d;

        for (int c = (int)threadIdx.x % LANES * N; c < s.d; c += LANES * N) {
            vp_pack<T> a, b;

            if (s.aligned) {
                a = vp_load16(dy + c);
                b = vp_load16(y + c);
            } else {
#pragma unroll
                for (int e = 0; e < N; e++) {
                    a.x[e] = c + e < s.d ? vp_load(dy, c + e) : 0.0f;
                    b.x[e] = c + e < s.d ? vp_load(y, c + e) : 0.0f;
                }
            }
#pragma unroll
            for (int e = 0; e < N; e++)
                sum = fmaf(a.x[e], b.x[e], sum);
        }
    }
#pragma unroll
    for (int lane = LANES / 2; lane > 0; lane /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    if (at < n_rows && threadIdx.x % LANES == 0) {
        int64_t head = at % s.heads, row = at / s.heads;

        s.delta[(row / s.seq * s.heads + head) * s.seq + row % s.seq] = sum;
    }
}

/* dy v' and q k', or their transposes; q k' only where it is wanted. Where sums take so many registers that
 * some would spill, dy v' waits in the tile. */
template <int D, typename L, typename T>
static __device__ inline void both_dots(const shape<T> &s, const rows<T> &dy, const rows<T> &v,
                                        const rows<T> &q, const rows<T> &k, float *loaded,
                                        float *tile, float (&of_values)[L::R][L::EACH],
                                        float (&x)[L::R][L::EACH])
{
    L::dots_of_rows(dy, v, s.d, s.aligned, loaded, of_values);
    zero(x);
    if (!s.probs || s.cap > 0.0f) {
        if (D > L::MOST_WITHOUT_TILE)
            write_tile<L>(of_values, tile);
        L::dots_of_rows(q, k, s.d, s.aligned, loaded, x);
        if (D > L::MOST_WITHOUT_TILE)
            read_tile<L>(tile, of_values);
    }
}

/* lse or delta of the query that is row r or column c of a tile of n; what is read beyond becomes nothing. */
template <typename L, bool ROWS_ARE_QUERIES, int N, typename T>
static __device__ inline void load_of_queries(const shape<T> &s, const float *from, int of_head,
                                              int i0, int n, float (&to)[N])
{
    from += (int64_t)of_head * s.seq + i0;
#pragma unroll
    for (int e = 0; e < N; e++)
        to[e] = from[least(ROWS_ARE_QUERIES ? L::row_of(e) : L::column_of(e), n - 1)];
}

/* Bare scores and dy v' become P o M and ds / scale. delta and lse are read one after the other, each
 * where it is wanted: there are no registers for both. */
template <typename L, bool ROWS_ARE_QUERIES, typename T>
static __device__ inline void gradients(const shape<T> &s, int of_head, int i0, int j0, int n_rows,
                                        int n_cols, uint32_t kept, float *tile,
                                        float (&x)[L::R][L::EACH], float (&ds)[L::R][L::EACH])
{
    float of_query[ROWS_ARE_QUERIES ? L::R : L::EACH];
    int   n_queries = ROWS_ARE_QUERIES ? n_rows : n_cols;

    load_of_queries<L, ROWS_ARE_QUERIES>(s, s.delta, of_head, i0, n_queries, of_query);
#pragma unroll
    for (int c = 0; c < L::EACH; c++)
#pragma unroll
        for (int r = 0; r < L::R; r++)
            ds[r][c] =
                fmaf(mask_of<L>(s, kept, r, c), ds[r][c], -of_query[ROWS_ARE_QUERIES ? r : c]);
    if (s.cap > 0.0f) {
#pragma unroll
        for (int r = 0; r < L::R; r++)
#pragma unroll
            for (int c = 0; c < L::EACH; c++)
                ds[r][c] *= fmaf(-x[r][c], x[r][c], 1.0f);
    }
    if (s.probs) {
        load_probs<L, ROWS_ARE_QUERIES>(s, of_head, i0, j0, n_rows, n_cols, tile, x);
    } else {
        load_of_queries<L, ROWS_ARE_QUERIES>(s, s.lse, of_head, i0, n_queries, of_query);
        probabilities<L, ROWS_ARE_QUERIES>(
            s, seen_of_pair<L, ROWS_ARE_QUERIES>(s, i0, j0, n_rows, n_cols), of_query, x);
    }
#pragma unroll
    for (int r = 0; r < L::R; r++)
#pragma unroll
        for (int c = 0; c < L::EACH; c++) {
            ds[r][c] *= x[r][c];
            x[r][c] *= mask_of<L>(s, kept, r, c);
        }
}

/* dk and dv: a block for each tile of keys and kv head, the first tiles first: under a causal
 * mask most see them. */
template <typename T, int D, typename L>
__global__ void __launch_bounds__(THREADS, TWO_BLOCKS) attention_dkv_kernel(const shape<T> s)
{
    if (!L::template runs<T, D>())
        return;
    enum { ROWS = memory<L>::ROWS };
    VP_DYNAMIC_SHARED(float, loaded);
    float *tile    = loaded + memory<L>::LOADED;
    int    n_heads = s.batch * s.kv_heads, sample = (int)blockIdx.x % n_heads / s.kv_heads,
        kv         = (int)blockIdx.x % s.kv_heads;
    int     length = length_of(s, sample), j0 = (int)blockIdx.x / n_heads * ROWS;
    int64_t row = (int64_t)sample * s.seq;
    reach   all = queries_of_tile(s, length, j0, ROWS);
    rows<T> k   = rows_of(s.k, row + j0, kv, least(ROWS, length - j0));
    rows<T> v   = rows_of(s.v, row + j0, kv, least(ROWS, length - j0));
    float   dk[L::R][L::template sums<D>], dv[L::R][L::template sums<D>], alpha[L::R];

    zero(dk);
    zero(dv);
    for (int head = kv * s.group; head < (kv + 1) * s.group; head++)
        for (int i0 = all.from; i0 < all.to; i0 += COLS) {
            int      n = least(COLS, s.seq - i0), of_head = sample * s.heads + head;
            rows<T>  q = rows_of(s.q, row + i0, head, n), dy = rows_of(s.dy, row + i0, head, n);
            uint32_t kept = ~0u;
            float    x[L::R][L::EACH], ds[L::R][L::EACH];

            if (s.drop_below > 0)
                kept = L::kept_by_key(s, sample, head, i0, j0);
            both_dots<D, L>(s, v, dy, k, q, loaded, tile, ds, x);
            bare_scores(s, x);
            gradients<L, false>(s, of_head, i0, j0, k.n, n, kept, tile, x, ds);
            L::template add_product<D>(x, tile, dy, s.d, s.aligned, loaded, dv);
            L::template add_product<D>(ds, tile, q, s.d, s.aligned, loaded, dk);
        }
    fill(alpha, 1.0f);
    store_sums<L, D>(s, s.dv, row + j0, kv, s.seq - j0, alpha, dv);
    fill(alpha, s.scale);
    store_sums<L, D>(s, s.dk, row + j0, kv, s.seq - j0, alpha, dk);
}

/* dq: a block for each tile of queries and head, as forward. */
template <typename T, int D, typename L>
__global__ void __launch_bounds__(THREADS, TWO_BLOCKS) attention_dq_kernel(const shape<T> s)
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
    rows<T> dy  = rows_of(s.dy, row + i0, head, least(ROWS, s.seq - i0));
    float   dq[L::R][L::template sums<D>], alpha[L::R];

    zero(dq);
    for (int j0 = all.from; j0 < all.to; j0 += COLS) {
        int      n    = least(COLS, length - j0);
        rows<T>  k    = rows_of(s.k, row + j0, kv, n);
        uint32_t kept = ~0u;
        float    x[L::R][L::EACH], ds[L::R][L::EACH];

        if (s.drop_below > 0)
            kept = L::kept_by_query(s, sample, head, i0, j0);
        both_dots<D, L>(s, dy, rows_of(s.v, row + j0, kv, n), q, k, loaded, tile, ds, x);
        bare_scores(s, x);
        gradients<L, true>(s, of_head, i0, j0, q.n, n, kept, tile, x, ds);
        L::template add_product<D>(ds, tile, k, s.d, s.aligned, loaded, dq);
    }
    fill(alpha, s.scale);
    store_sums<L, D>(s, s.dq, row + i0, head, s.seq - i0, alpha, dq);
}

/* ---- launcher ---- */

/* Whose layouts: of dk and dv, of dq. */
template <typename T, int D, typename KV, typename Q>
static cudaError_t backward(const shape<T> &s, cudaStream_t stream)
{
    int64_t     n_rows = (int64_t)s.batch * s.seq * s.heads;
    cudaError_t e;

    e = VP_LAUNCH(attention_delta_kernel<T>, vp_blocks(n_rows, VP_BLOCK / LANES), VP_BLOCK, 0,
                  stream, s, n_rows);
    if (e == cudaSuccess)
        e = VP_LAUNCH((attention_dkv_kernel<T, D, KV>), (blocks_of<KV>(s, s.kv_heads)), THREADS,
                      memory<KV>::BYTES, stream, s);
    if (e == cudaSuccess)
        e = VP_LAUNCH((attention_dq_kernel<T, D, Q>), (blocks_of<Q>(s, s.heads)), THREADS,
                      memory<Q>::BYTES, stream, s);
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
    if (by_tensor) /* dk and dv of 128 elements would spill */
        return s.d <= 64 ? backward<T, 64, with_tensor_cores, with_tensor_cores>(s, stream)
                         : backward<T, 128, cores<4>, with_tensor_cores>(s, stream);
    if (s.d <= 64)
        return backward<T, 64, cores<8>, cores<8>>(s, stream);
    if (s.d <= 128)
        return backward<T, 128, cores<4>, cores<8>>(s, stream);
    return backward<T, 256, cores<4>, cores<4>>(s, stream);
}

extern "C" cudaError_t vp_cuda_attention_bwd(const vp_kernel_call *call, cudaStream_t stream)
{
    VP_BY_DTYPE(call->dtype, T, return run<T>(call, stream));
}
