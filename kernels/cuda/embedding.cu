/* kernels/cuda/embedding.cu: table lookup plus learned positions, or either alone, and its
 * gradient.
 *
 *     y[n] = scale table[token[n]] + positions[n mod seq + position_offset]
 *
 *     d_table[token[n]] += scale dy[n],  d_positions[n mod seq + position_offset] += dy[n]
 *
 * With skip_padding the count is over the sample's tokens other than position_offset - 1. Such a
 * token has that position, which learns nothing. Row skip_row - 1 of the table learns nothing from
 * look-ups.
 *
 * tokens (rows) int32; y, dy (rows, cols), table (vocab, cols), positions (position_offset + seq,
 * cols) of the call's dtype; gradients float, always added to. With E bytes of an element, forward
 * moves 3 E rows cols bytes (E rows cols less without table or positions). Backward reads E rows
 * cols for each of the two gradients and reads and writes, 4 bytes an element, the rows of them
 * that occur.
 *
 * Backward without atomics on floats: each tile of 256 tokens is sorted once, by id and then row, and
 * the workspace says where each id first occurs and whether in one tile only (a minimum and a bit of whole
 * numbers, the same in any order). A block has 8 rows. Where an id comes first, its row of the table is
 * owned: by the warp of that row if no other tile has the id. Else the block looks the id up in all
 * tiles from there on, a thread in one, by halving; of those that have it a warp has one of 8 at a
 * time and sums its rows of dy in order. The tiles' sums are added one after the other, so cutting
 * the call at whole tiles moves no bit. Of a position, a thread adds the samples one after the other.
 * Same mathematics: kernels/cpu/embedding.c; reference: kernels/reference/reference.c. */
#include "kernels/cuda/cuda_span.h"

#include <limits.h>

enum { WARPS = VP_BLOCK / VP_WARP, LANE_TOKENS = VP_TILE_TOKENS / VP_WARP };

/* ---- forward ---- */

/* A row for a warp. padding: -1 where positions count all tokens, else the id that they leave
 * out. */
template <typename T, int W>
static __global__ void lookup_kernel(const int32_t *__restrict__ tokens,
                                     const T *__restrict__ table, const T *__restrict__ positions,
                                     T *__restrict__ y, int64_t rows, int64_t cols, int64_t seq,
                                     int64_t offset, int padding, float scale)
{
    int64_t n    = (int64_t)blockIdx.x * WARPS + threadIdx.x / VP_WARP, p;
    int     lane = (int)threadIdx.x % VP_WARP, token;

    if (n >= rows) /* the whole warp */
        return;
    token = tokens[n];
    p     = n % seq + offset;
    if (padding >= 0) {
        int counted = 0;

        for (int64_t i = n - n % seq + lane; i < n; i += VP_WARP)
            counted += tokens[i] != padding;
        counted = vp_warp_sum(counted);
        p       = token == padding ? padding : counted + offset;
    }
    if (table)
        table += token * cols;
    if (positions)
        positions += p * cols;
    y += n * cols;
#pragma unroll 4
    for (int64_t c = lane * W; c < cols; c += VP_WARP * W) {
        float x[W], q[W];

        if (table)
            vp_get<W>(table, c, x);
        if (positions)
            vp_get<W>(positions, c, q);
#pragma unroll
        for (int j = 0; j < W; j++)
            x[j] = !table      ? (positions ? q[j] : 0.0f)
                   : positions ? scale * x[j] + q[j]
                               : scale * x[j];
        vp_put<W>(y, c, x);
    }
}

static int padding_of(const vp_kernel_call *call)
{
    return call->embedding.skip_padding ? (int)call->embedding.position_offset - 1 : -1;
}

extern "C" cudaError_t vp_cuda_embedding_fwd(const vp_kernel_call *call, cudaStream_t stream)
{
    const int32_t *tokens = (const int32_t *)call->operand[VP_EMBEDDING_FWD_TOKENS];
    int64_t        rows = call->embedding.rows, cols = call->embedding.cols;
    cudaError_t    e;

    VP_BY_DTYPE(call->dtype, T, const T *table = (const T *)call->operand[VP_EMBEDDING_FWD_TABLE],
                *positions = (const T *)call->operand[VP_EMBEDDING_FWD_POSITIONS];
                T *y       = (T *)call->operand[VP_EMBEDDING_FWD_Y];
                VP_BY_WIDTH(cols % vp_pack<T>::N == 0 && vp_is_aligned16(table) &&
                                vp_is_aligned16(positions) && vp_is_aligned16(y),
                            T, W,
                            e = VP_LAUNCH((lookup_kernel<T, W>), vp_blocks(rows, WARPS), VP_BLOCK,
                                          0, stream, tokens, table, positions, y, rows, cols,
                                          call->embedding.seq, call->embedding.position_offset,
                                          padding_of(call), (float)call->embedding_reals.scale)));
    return e;
}

/* ---- where things occur ---- */

/* The rows of the tiles, each tile's sorted by id and then row; in the call's workspace. */
struct sorted_rows {
    int32_t  *token;
    unsigned *first; /* of each id: its first row, in the upper bits, and ONE_TILE             */
    uint8_t  *place; /* in the tile, of the row that was sorted here                           */
    uint8_t  *after; /* how many rows of the same id follow                                    */
    uint8_t  *rank;  /* where this row was sorted to, in its tile                              */
};

enum { ONE_TILE = 1 };

static sorted_rows sorted_rows_in(void *workspace, int64_t rows, int64_t vocab)
{
    sorted_rows s;

    s.token = (int32_t *)workspace;
    s.first = (unsigned *)(s.token + rows);
    s.place = (uint8_t *)(s.first + vocab);
    s.after = s.place + rows;
    s.rank  = s.after + rows;
    return s;
}

static __global__ void nowhere_kernel(unsigned *first, int64_t vocab)
{
    for (int64_t v = (int64_t)blockIdx.x * VP_BLOCK + threadIdx.x; v < vocab;
         v += (int64_t)gridDim.x * VP_BLOCK)
        first[v] = UINT_MAX;
}

/* A block sorts a tile: a thread's rank is the number of lesser ids, and of equal ones before it. Of each id in
 * it one thread says so: whoever finds another tile there is not the only one, and says that behind its
 * own minimum. */
static __global__ void occurs_kernel(const int32_t *__restrict__ tokens, int64_t rows, int64_t skip,
                                     sorted_rows s)
{
    static_assert((int)VP_BLOCK == (int)VP_TILE_TOKENS, "a thread has a token");
    __shared__ int32_t ids[VP_TILE_TOKENS];
    const int          place = (int)threadIdx.x;
    const int64_t      tile = (int64_t)blockIdx.x * VP_TILE_TOKENS, n = tile + place;
    const int          n_here = (int)(rows - tile < VP_TILE_TOKENS ? rows - tile : VP_TILE_TOKENS);
    const int32_t      own    = n < rows ? tokens[n] : 0;
    int                less = 0, before = 0, same = 0;

    ids[place] = own;
    __syncthreads();
    if (n >= rows)
        return;
#pragma unroll 8
    for (int i = 0; i < n_here; i++) {
        less += ids[i] < own;
        same += ids[i] == own;
        before += ids[i] == own && i < place;
    }
    s.rank[n]                     = (uint8_t)(less + before);
    s.token[tile + less + before] = own;
    s.place[tile + less + before] = (uint8_t)place;
    s.after[tile + less + before] = (uint8_t)(same - before - 1);
    if (before == 0 && own != skip &&
        atomicMin(s.first + own, (unsigned)n * 2 + ONE_TILE) != UINT_MAX)
        atomicAnd(s.first + own, ~(unsigned)ONE_TILE);
}

/* How many of n ids, upwards, are less. */
static __device__ inline int count_less(const int32_t *ids, int n, int than)
{
    int count = 0;

    for (int step = VP_TILE_TOKENS; step > 0; step /= 2)
        if (count + step <= n && ids[count + step - 1] < than)
            count += step;
    return count;
}

/* Each lane has LANE_TOKENS tokens, one lane's after the other's, and a bit of `yes` for each:
 * how many are set before this lane's, and in all. */
static __device__ inline int count_before_lane(unsigned yes, int *total)
{
    int lane = (int)threadIdx.x % VP_WARP, mine = 0, sum;

#pragma unroll
    for (int i = 0; i < LANE_TOKENS; i++)
        mine += yes >> i & 1;
    sum = mine;
#pragma unroll
    for (int d = 1; d < VP_WARP; d *= 2) {
        int below = __shfl_up_sync(0xffffffffu, sum, d);

        sum += lane >= d ? below : 0;
    }
    *total = __shfl_sync(0xffffffffu, sum, VP_WARP - 1);
    return sum - mine;
}

/* row_at[n]: the row of dy whose position is the n mod seq-th, in the sample of row n; -1: none.
 * A warp has a sample. */
static __global__ void positions_kernel(const int32_t *__restrict__ tokens, int64_t rows,
                                        int64_t seq, int padding, int *row_at)
{
    int64_t start = blockIdx.x * seq, end = start + seq < rows ? start + seq : rows, next = start;

    for (int64_t tile = start; tile < end; tile += VP_TILE_TOKENS) {
        int64_t  n   = tile + threadIdx.x * LANE_TOKENS;
        unsigned yes = 0;
        int      at, total;

#pragma unroll
        for (int i = 0; i < LANE_TOKENS; i++)
            yes |= (unsigned)(n + i < end && tokens[n + i] != padding) << i;
        at = count_before_lane(yes, &total);
#pragma unroll
        for (int i = 0; i < LANE_TOKENS; i++)
            if (yes >> i & 1)
                row_at[next + at++] = (int)(n + i);
        next += total;
    }
    for (int64_t n = next + threadIdx.x; n < end; n += VP_WARP)
        row_at[n] = -1;
}

/* ---- backward ---- */

/* Where the rows of a token are in one tile: `count` sorted rows from `at` on. */
struct run {
    int64_t at;
    int     tile, count;
};

/* Of the VP_BLOCK tiles from `tiles` on, those that have the token, upwards; how many. All threads. */
static __device__ inline int find_runs(const sorted_rows &s, int64_t rows, int64_t tiles, int token,
                                       int *of_warp, run *runs)
{
    int64_t at = (tiles + threadIdx.x) * VP_TILE_TOKENS, left = rows - at;
    int     n    = left <= 0 ? 0 : left < VP_TILE_TOKENS ? (int)left : VP_TILE_TOKENS;
    int     from = count_less(s.token + at, n, token),
        count    = from < n && s.token[at + from] == token ? s.after[at + from] + 1 : 0;
    int warp = (int)threadIdx.x / VP_WARP, lane = (int)threadIdx.x % VP_WARP, before = 0, total = 0;
    unsigned have = __ballot_sync(0xffffffffu, count > 0);

    if (lane == 0)
        of_warp[warp] = __popc(have);
    __syncthreads();
    for (int w = 0; w < WARPS; w++) {
        before += w < warp ? of_warp[w] : 0;
        total += of_warp[w];
    }
    if (count > 0)
        runs[before + __popc(have & ((1u << lane) - 1))] = {at + from, (int)(tiles + threadIdx.x),
                                                            count};
    __syncthreads();
    return total;
}

/* The sum of a run's rows of dy, one after the other, in columns c .. c + W - 1. */
template <typename T, int W>
static __device__ inline void sum_run(const T *dy, const uint8_t *place, const run &here,
                                      int64_t cols, int64_t c, float *sum)
{
    enum { AT_ONCE = 4 };
    const T *tile = dy + (int64_t)here.tile * VP_TILE_TOKENS * cols + c;

#pragma unroll
    for (int j = 0; j < W; j++)
        sum[j] = 0.0f;
    for (int i = 0; i < here.count; i += AT_ONCE) {
        vp_raw<T, W> x[AT_ONCE];

#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            if (i + u < here.count)
                x[u] = vp_fetch<W>(tile, place[here.at + i + u] * cols);
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            float v[W];

            if (i + u >= here.count)
                continue;
            vp_floats(x[u], v);
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += v[j];
        }
    }
}

/* Block n_strips g + s: columns s VP_WARP W .. of the table's rows whose ids come first in rows WARPS g .. */
template <typename T, int W>
static __global__ void __launch_bounds__(VP_BLOCK, 3)
    table_kernel(const int32_t *__restrict__ tokens, const T *__restrict__ dy, sorted_rows s,
                 float *d_table, int64_t rows, int64_t cols, unsigned n_strips, float scale)
{
    enum { STRIP = VP_WARP * W };
    __shared__ float sums[WARPS][STRIP];
    __shared__ run   runs[VP_BLOCK];
    __shared__ int   of_warp[WARPS], in_tiles[WARPS]; /* the id that is in several, or -1 */
    const int        warp = (int)threadIdx.x / VP_WARP, lane = (int)threadIdx.x % VP_WARP;
    const int64_t    strip = blockIdx.x % n_strips * STRIP, begin = blockIdx.x / n_strips * WARPS,
                  row = begin + warp;
    /* the columns summed, and the one added to */
    const int64_t  c = strip + lane * W, own = strip + threadIdx.x;
    const bool     adds  = (int)threadIdx.x < STRIP && own < cols;
    const int      token = row < rows ? tokens[row] : 0;
    const unsigned first = row < rows ? s.first[token] : UINT_MAX;
    const bool    owns = row < rows && first >> 1 == row; /* so of skip_row, which occurs nowhere */
    const int64_t tile = row / VP_TILE_TOKENS;
    float         sum[W];

    if (lane == 0)
        in_tiles[warp] = owns && !(first & ONE_TILE) ? token : -1;
    if (owns && first & ONE_TILE && c < cols) {
        const int64_t at   = tile * VP_TILE_TOKENS + s.rank[row];
        const run     here = {at, (int)tile, s.after[at] + 1};
        float         acc[W];

        vp_get<W>(d_table, token * cols + c, acc);
        sum_run<T, W>(dy, s.place, here, cols, c, sum);
#pragma unroll
        for (int j = 0; j < W; j++)
            acc[j] += scale * sum[j];
        vp_put<W>(d_table, token * cols + c, acc);
    }
    __syncthreads();
    for (int owner = 0; owner < WARPS; owner++) {
        const int id  = in_tiles[owner];
        float     acc = 0.0f;

        if (id < 0)
            continue;
        if (adds)
            acc = d_table[id * cols + own];
        for (int64_t tiles = begin / VP_TILE_TOKENS; tiles * VP_TILE_TOKENS < rows;
             tiles += VP_BLOCK) {
            int n_runs = find_runs(s, rows, tiles, id, of_warp, runs);

            for (int r = 0; r < n_runs; r += WARPS) {
                if (r + warp < n_runs && c < cols) {
                    sum_run<T, W>(dy, s.place, runs[r + warp], cols, c, sum);
#pragma unroll
                    for (int j = 0; j < W; j++)
                        sums[warp][lane * W + j] = sum[j];
                }
                __syncthreads();
                /* a tile without the id must not even add 0 to -0: a call of its own would not */
                for (int w = 0; adds && w < WARPS && r + w < n_runs; w++)
                    acc += scale * sums[w][threadIdx.x];
                __syncthreads();
            }
        }
        if (adds)
            d_table[id * cols + own] = acc;
    }
}

/* Block p: row p of d_positions, which begins at the one of position_offset. row_at: as
 * positions_kernel() says, or NULL: row n is at n. */
template <typename T, int W>
static __global__ void position_rows_kernel(const T *__restrict__ dy,
                                            const int *__restrict__ row_at, float *d_positions,
                                            int64_t rows, int64_t cols, int64_t seq)
{
    enum { AT_ONCE = 4 };

    for (int64_t c = (int64_t)threadIdx.x * W; c < cols; c += (int64_t)blockDim.x * W) {
        float acc[W];

        vp_get<W>(d_positions, blockIdx.x * cols + c, acc);
        for (int64_t n = blockIdx.x; n < rows; n += AT_ONCE * seq) {
            float   x[AT_ONCE][W];
            int64_t row[AT_ONCE];

#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                int64_t at = n + u * seq;

                row[u] = at >= rows ? -1 : row_at ? row_at[at] : at;
                if (row[u] >= 0)
                    vp_get<W>(dy, row[u] * cols + c, x[u]);
            }
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++)
                if (row[u] >= 0)
#pragma unroll
                    for (int j = 0; j < W; j++)
                        acc[j] += x[u][j];
        }
        vp_put<W>(d_positions, blockIdx.x * cols + c, acc);
    }
}

/* ---- launches ---- */

/* Threads for the columns of a position's row, W each. */
static int threads_for(int64_t cols, int width)
{
    int64_t n = (cols + (int64_t)VP_WARP * width - 1) / ((int64_t)VP_WARP * width) * VP_WARP;

    return n < VP_BLOCK ? (int)n : VP_BLOCK;
}

template <typename T, int W>
static cudaError_t table_gradient(const vp_kernel_call *call, cudaStream_t stream)
{
    const int32_t *tokens = (const int32_t *)call->operand[VP_EMBEDDING_BWD_TOKENS];
    int64_t        rows = call->embedding_bwd.rows, cols = call->embedding_bwd.cols,
            vocab        = call->embedding_bwd.vocab;
    unsigned    n_strips = vp_blocks(cols, VP_WARP * W);
    sorted_rows s        = sorted_rows_in(call->workspace, rows, vocab);
    cudaError_t e =
        VP_LAUNCH(nowhere_kernel, vp_blocks(vocab, VP_BLOCK), VP_BLOCK, 0, stream, s.first, vocab);

    if (e == cudaSuccess)
        e = VP_LAUNCH(occurs_kernel, vp_blocks(rows, VP_BLOCK), VP_BLOCK, 0, stream, tokens, rows,
                      call->embedding_bwd.skip_row - 1, s);
    if (e == cudaSuccess)
        e = VP_LAUNCH((table_kernel<T, W>), vp_blocks(rows, WARPS) * n_strips, VP_BLOCK, 0, stream,
                      tokens, (const T *)call->operand[VP_EMBEDDING_BWD_DY], s,
                      (float *)call->operand[VP_EMBEDDING_BWD_D_TABLE], rows, cols, n_strips,
                      (float)call->embedding_reals.scale);
    return e;
}

template <typename T, int W>
static cudaError_t position_gradient(const vp_kernel_call *call, cudaStream_t stream)
{
    int64_t rows = call->embedding_bwd.rows, cols = call->embedding_bwd.cols,
            seq = call->embedding_bwd.seq, offset = call->embedding_bwd.position_offset;
    /* where the table's gradient, which is done, had its keys */
    int        *row_at = padding_of(call) >= 0 ? (int *)call->workspace : NULL;
    cudaError_t e      = cudaSuccess;

    if (row_at)
        e = VP_LAUNCH(positions_kernel, vp_blocks(rows, seq), VP_WARP, 0, stream,
                      (const int32_t *)call->operand[VP_EMBEDDING_BWD_TOKENS], rows, seq,
                      padding_of(call), row_at);
    if (e == cudaSuccess)
        e = VP_LAUNCH(
            (position_rows_kernel<T, W>), (unsigned)(rows < seq ? rows : seq), threads_for(cols, W),
            0, stream, (const T *)call->operand[VP_EMBEDDING_BWD_DY], row_at,
            (float *)call->operand[VP_EMBEDDING_BWD_D_POSITIONS] + offset * cols, rows, cols, seq);
    return e;
}

extern "C" cudaError_t vp_cuda_embedding_bwd(const vp_kernel_call *call, cudaStream_t stream)
{
    cudaError_t e = cudaSuccess;

    if (call->embedding_bwd.rows > INT_MAX)
        return cudaErrorInvalidValue;
    VP_BY_DTYPE(call->dtype, T,
                bool aligned = call->embedding_bwd.cols % vp_pack<T>::N == 0 &&
                               vp_is_aligned16(call->operand[VP_EMBEDDING_BWD_DY]) &&
                               vp_is_aligned16(call->operand[VP_EMBEDDING_BWD_D_TABLE]) &&
                               vp_is_aligned16(call->operand[VP_EMBEDDING_BWD_D_POSITIONS]);
                VP_BY_WIDTH(aligned, T, W,
                            if (call->operand[VP_EMBEDDING_BWD_D_TABLE]) e =
                                table_gradient<T, W>(call, stream);
                            if (e == cudaSuccess && call->operand[VP_EMBEDDING_BWD_D_POSITIONS]) e =
                                position_gradient<T, W>(call, stream)));
    return e;
}
