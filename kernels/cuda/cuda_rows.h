/* kernels/cuda/cuda_rows.h: sums along a row, with the row in registers, and sums down the rows of
 * a tile of tokens.
 *
 * Along a row: n threads, whole warps or of one a power of two, hold K packs each of what they work on
 * at a time; a row that is longer is read again for each pass, from the caches. How many threads
 * and packs follows from the row's length alone, and so does the order of a sum: a thread's elements
 * upwards, then threads in a tree. A row of up to VP_ROW_PACKS warps' packs is a warp's, so that nobody
 * waits at a barrier. Norms' backward, which does both: cuda_norm.h.
 *
 * Down the rows: kernels/README.md wants one tile of 256 tokens added after the other.
 * vp_tile_sums_kernel() leaves the sum of each tile in the workspace, all tiles at once, and
 * vp_tiles_add_kernel() adds them to the accumulator in order. Which rows a thread adds follows
 * from their places in the tile. */
#ifndef VP_KERNELS_CUDA_ROWS_H
#define VP_KERNELS_CUDA_ROWS_H

#include "kernels/cuda/cuda_span.h"

enum {
    VP_ROW_MAX_THREADS = 512,
    VP_ROW_MAX_COLS    = 1 << 30,
    VP_ROW_PACKS       = 4 /* a thread's at most; so many elements where nothing is packed */
};

/* ---- along a row ---- */

/* Threads of a row, with up to `each` elements at a time. Single elements: the threads of a warp side by side. */
template <int W> static inline int vp_row_threads(int64_t cols, int each)
{
    int64_t n = W > 1 ? 1 : VP_WARP, threads = (cols + each - 1) / each;

    if (threads > VP_WARP)
        n = (threads + VP_WARP - 1) / VP_WARP * VP_WARP;
    while (n < threads)
        n *= 2;
    return (int)(n < VP_ROW_MAX_THREADS ? n : VP_ROW_MAX_THREADS);
}

/* The statement with K as the packs of W elements that a thread has of a row. */
#define VP_BY_PACKS(cols, W, K, ...) \
    do { \
        const int64_t of_a_lane = ((cols) + VP_WARP * (W)-1) / (VP_WARP * (W)); \
        if (of_a_lane <= 1) { \
            constexpr int K = (W) > 1 ? 1 : (int)VP_ROW_PACKS; \
            __VA_ARGS__; \
        } else if (of_a_lane == 2) { \
            constexpr int K = (W) > 1 ? 2 : (int)VP_ROW_PACKS; \
            __VA_ARGS__; \
        } else if (of_a_lane == 3) { \
            constexpr int K = (W) > 1 ? 3 : (int)VP_ROW_PACKS; \
            __VA_ARGS__; \
        } else { \
            constexpr int K = VP_ROW_PACKS; \
            __VA_ARGS__; \
        } \
    } while (0)

static inline int vp_row_block(int n)
{
    return n > VP_WARP ? n : VP_BLOCK;
}

/* Whether a row may be more than its threads hold; and the threads of one that is a warp's. */
template <int W, int K> constexpr bool vp_row_is_long = W == 1 || K == VP_ROW_PACKS;

template <int W, int K>
constexpr int vp_row_most_threads = vp_row_is_long<W, K> ? (int)VP_ROW_MAX_THREADS : (int)VP_BLOCK;

/* Blocks that there are registers for: 64 a thread, more for single elements. */
template <int W, int K> constexpr int vp_row_blocks = W == 1 ? 1 : K == VP_ROW_PACKS ? 2 : 4;

template <int W, int K> static __device__ inline int vp_row_threads_here(int n)
{
    return W > 1 && K > 1 && K < VP_ROW_PACKS ? (int)VP_WARP : n;
}

/* Where a thread works. A block of more rows than there are goes through all motions with cols =
 * 0. */
struct vp_row_place {
    int64_t row;
    int     cols, n, lane;

    /* Pack k of the chunk that begins at column `first`. */
    template <int W> __device__ inline int column(int first, int k) const
    {
        return first + (k * n + lane) * W;
    }
};

static __device__ inline vp_row_place vp_row_here(int64_t rows, int cols, int n)
{
    vp_row_place p;

    p.row  = (int64_t)blockIdx.x * (blockDim.x / n) + threadIdx.x / n;
    p.cols = p.row < rows ? cols : 0;
    p.n    = n;
    p.lane = (int)threadIdx.x % n;
    return p;
}

/* The thread's elements of a chunk as memory has them, which is half the registers in 16 bits. */
template <int W, int K, typename T>
static __device__ inline void vp_row_fetch(const vp_row_place &p, const T *row, int first,
                                           vp_raw<T, W> *out)
{
#pragma unroll
    for (int k = 0; k < K; k++)
        if (p.column<W>(first, k) < p.cols)
            out[k] = vp_fetch<W>(row, p.column<W>(first, k));
}

/* f(k, c, v) of each pack of a chunk that the row has: its first column is c, its W numbers v, which are f's. */
template <int W, int K, typename T, typename F>
static __device__ inline void vp_row_each(const vp_row_place &p, int first, const vp_raw<T, W> *raw,
                                          F f)
{
#pragma unroll
    for (int k = 0; k < K; k++) {
        int   c = p.column<W>(first, k);
        float v[W];

        if (c >= p.cols)
            continue;
        vp_floats(raw[k], v);
        f(k, c, v);
    }
}

/* The compiler is not to keep the numbers that it has unpacked. */
template <typename T, int W, int K> static __device__ inline void vp_row_forget(vp_raw<T, W> *raw)
{
#pragma unroll
    for (int k = 0; k < K; k++)
        vp_opaque(raw[k]);
}

/* W columns of a parameter from c on; `absent` everywhere where there is none. */
template <int W, typename T>
static __device__ inline vp_raw<T, W> vp_row_parameter(const T *parameter, int c, float absent)
{
    return parameter ? vp_fetch<W>(parameter, c) : vp_raw_of<T, W>(absent);
}

/* The sum over the n threads of a row, to all of them. scratch: shared, VP_WARP floats. */
static __device__ inline float vp_row_sum(float x, int n, float *scratch)
{
    if (n > VP_WARP)
        return vp_block_sum(x, scratch);
#pragma unroll
    for (int lane = VP_WARP / 2; lane > 0; lane /= 2)
        if (lane < n)
            x += __shfl_xor_sync(0xffffffffu, x, lane);
    return x;
}

/* ---- down the rows of a tile ----
 *
 * sums (F::N_SUMS, n_tiles, cols): sums[s][t][c] is the sum of F's term s over the rows of tile t.
 * F has
 *
 *     enum { N_SUMS }
 *     template <int W> struct terms                                  what is read of a row at W
 *     columns
 *     f.read<W>(row, at, t)                                          at: row cols + c
 *     f.add<W>(t, sum)                                               sum[N_SUMS][W]
 *
 * A block takes `lanes` packs side by side of one tile; its VP_BLOCK / lanes groups of threads
 * take every so many-th row each, and their sums are added one after the other. */
template <typename F, int W>
static __global__ void vp_tile_sums_kernel(F f, int64_t rows, int64_t cols, int64_t tile_rows,
                                           int64_t n_tiles, int lanes, float *sums)
{
    enum { AT_ONCE = 4 };
    __shared__ float groups_sum[F::N_SUMS * VP_BLOCK * W];
    int64_t          n_strips = (cols + (int64_t)lanes * W - 1) / ((int64_t)lanes * W);
    int64_t          tile = blockIdx.x / n_strips, strip = blockIdx.x % n_strips * lanes * W;
    int              lane = (int)threadIdx.x % lanes, group = (int)threadIdx.x / lanes,
        n_groups = VP_BLOCK / lanes, width = lanes * W;
    int64_t c               = strip + (int64_t)lane * W,
            end             = (tile + 1) * tile_rows < rows ? (tile + 1) * tile_rows : rows;
    float sum[F::N_SUMS][W] = {{0.0f}};

    for (int64_t r = tile * tile_rows + group; r < end && c < cols; r += AT_ONCE * n_groups) {
        typename F::template terms<W> t[AT_ONCE];

#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            if (r + u * n_groups < end)
                f.template read<W>(r + u * n_groups, (r + u * n_groups) * cols + c, t[u]);
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            if (r + u * n_groups < end)
                f.template add<W>(t[u], sum);
    }
#pragma unroll
    for (int s = 0; s < F::N_SUMS; s++)
#pragma unroll
        for (int j = 0; j < W; j++)
            groups_sum[(s * n_groups + group) * width + lane * W + j] = sum[s][j];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < F::N_SUMS * width; i += VP_BLOCK) {
        int   s = i / width, column = i % width;
        float total = 0.0f;

        for (int g = 0; g < n_groups; g++)
            total += groups_sum[(s * n_groups + g) * width + column];
        if (strip + column < cols)
            sums[(s * n_tiles + tile) * cols + strip + column] = total;
    }
}

/* out = t[0] + t[1] + ..., or out + t[0] + ... where the call accumulates, to what a bf16 out was last
 * and rounded once; t[i] is the sum of the per_tile parts of a tile, upwards. An absent out is skipped.
 * Row y of the grid is one sum and its out. A warp has a tile of some columns at a time; they wait until the
 * first warp has added them in their order, while the others fetch the next. */
enum { VP_ADD_TILES = 32 };

template <typename T>
static __global__ void __launch_bounds__(VP_ADD_TILES *VP_WARP, 1)
    vp_tiles_add_kernel(const float *__restrict__ sums, int64_t n_parts, int per_tile, int64_t cols,
                        T *out0, T *out1, bool accumulate)
{
    __shared__ float waiting[2][VP_ADD_TILES][VP_WARP];
    const bool       rounds = sizeof(T) < sizeof(float);
    T               *out    = blockIdx.y == 0 ? out0 : out1;
    const int        warp = (int)threadIdx.x / VP_WARP, lane = (int)threadIdx.x % VP_WARP;
    const int64_t    c    = (int64_t)blockIdx.x * VP_WARP + lane;
    const bool       adds = warp == 0 && c < cols;
    float            acc;

    if (!out)
        return;
    sums += blockIdx.y * n_parts * cols + c;
    acc = adds && accumulate && !rounds ? vp_load(out, c) : 0.0f;
    for (int64_t first = 0, turn = 0; first < n_parts;
         first += VP_ADD_TILES * per_tile, turn ^= 1) {
        int64_t part = first + (int64_t)warp * per_tile,
                end  = part + per_tile < n_parts ? part + per_tile : n_parts;
        float tile   = 0.0f;

        if (c < cols)
#pragma unroll 8
            for (; part < end; part++)
                tile += sums[part * cols];
        waiting[turn][warp][lane] = tile;
        __syncthreads();
        if (!adds)
            continue;
#pragma unroll 8
        for (int k = 0; k < VP_ADD_TILES; k++)
            if (first + (int64_t)k * per_tile < n_parts)
                acc += waiting[turn][k][lane];
    }
    if (adds)
        vp_store(out, c, accumulate && rounds ? acc + vp_load(out, c) : acc);
}

/* sums: one for each of out0 and out1 that is not NULL behind the first. */
template <typename T>
static cudaError_t vp_tiles_add_launch(const float *sums, int64_t n_parts, int per_tile,
                                       int64_t cols, T *out0, T *out1, bool accumulate,
                                       cudaStream_t stream)
{
    return VP_LAUNCH(vp_tiles_add_kernel<T>, dim3(vp_blocks(cols, VP_WARP), out1 ? 2 : 1),
                     VP_ADD_TILES * VP_WARP, 0, stream, sums, n_parts, per_tile, cols, out0, out1,
                     accumulate);
}

/* Both kernels. narrow: a tile has many more rows than VP_TILE_TOKENS and few columns. The
 * workspace has room for N_SUMS floats of each tile and column; aligned: as VP_BY_WIDTH(). */
template <typename T, typename F, typename G>
static cudaError_t vp_tile_sums_launch(const vp_kernel_call *call, F f, int64_t rows, int64_t cols,
                                       int64_t tile_rows, bool narrow, bool aligned, G *out0,
                                       G *out1, cudaStream_t stream)
{
    int64_t     n_tiles = (rows + tile_rows - 1) / tile_rows;
    float      *sums    = (float *)call->workspace;
    cudaError_t e;

    VP_BY_WIDTH(aligned, T, W,
                int lanes = W == 1   ? VP_WARP
                            : narrow ? 4
                                     : 8;
                e         = VP_LAUNCH((vp_tile_sums_kernel<F, W>),
                                      (unsigned)(n_tiles * vp_blocks(cols, lanes * W)), VP_BLOCK, 0, stream,
                                      f, rows, cols, tile_rows, n_tiles, lanes, sums));
    return e != cudaSuccess
               ? e
               : vp_tiles_add_launch(sums, n_tiles, 1, cols, out0, out1, call->accumulate, stream);
}

#endif
