/* kernels/cuda/attention_tiles.h: softmax attention for every shape that plan/op.h allows, products
 * by ordinary or by tensor cores, all else in fp32: the mathematics, and what forward
 * (attention_fwd.cu) and backward (attention_bwd.cu) share: tiles of rows and columns, who sees whom.
 *
 *     s = scale q k',  t = c tanh(s / c) with softcap c > 0, else s
 *     P = softmax(t) over the keys seen,  y = (P o M) v,  lse = log sum exp t
 *
 * M is the dropout mask divided by 1 - p. Backward recomputes P from lse; with D = rowsum(dy o y)
 *
 *     dv = (P o M)' dy,  dP = M o (dy v'),  dt = P o (dP - D),  ds = dt o (1 - tanh^2(s / c)),
 *     dq = scale ds k,   dk = scale ds' q
 *
 * Dao et al. 2022, arXiv:2205.14135, as reordered in Dao 2023, arXiv:2307.08691; softcap: Gemma
 * Team 2024, arXiv:2408.00118, section 2. kernels/cpu/attention.c is the same mathematics,
 * kernels/reference/reference_attention.c every element by its formula.
 *
 * q (batch, seq, heads, d), k and v (batch, seq, kv_heads, d), laid out as vp_qkv_layout says; y,
 * dy (batch, seq, heads d); all of the call's dtype. lse (batch, heads, seq) float. probs (batch,
 * heads, seq, seq) of the call's dtype, or absent; lengths (batch) int32, or absent. d is 1 ..
 * VP_MAX_HEAD_DIM. A query head reads kv head head / (heads / kv_heads).
 *
 * A block computes the rows of one tile: 64 (or 32) queries and what they become, or keys and
 * theirs. It walks over the tiles of 64 columns, of the other kind, that its rows see anything of,
 * and does two things with each pair of tiles:
 *
 *     dots_of_rows   x = a b'       rows by columns, summed over the head's elements, SLAB of them
 *                    at a time in shared memory
 *     add_product    sum += x b     rows by d: sums in registers, x in shared memory, b a piece of
 *                    columns at a time
 *
 *     forward    rows queries    q k'; P v                           y, lse
 *                rows queries    q k' once more, with lse            probs, where the matrix is
 *                kept
 *     backward   rows keys       v dy', k q'; (P o M)' dy, ds' q     dk, dv: all query heads of the
 *                kv head, one after the other
 *                rows queries    dy v', q k'; ds k                   dq
 *
 * So backward makes seven products where five would do, and needs no atomics: each element is the
 * sum of one thread. The tiles that blocks share come out of the L2 cache; from memory each operand
 * moves about once.
 *
 * Which rows and columns of a pair of tiles a thread has, and how both products are made, is a layout,
 * L in what follows: cores<R> (attention_cores.h) or tensor<SPLIT> (attention_tensor.h). It has
 *
 *     R, EACH, ROWS, LANES           rows and columns of a thread, rows of a tile, threads of a row
 *     row_of(r), column_of(c)        where they are, and row_step(r), column_step(c) from the first
 *     sums<D>, element_of(w)         elements of a row of results, of D rounded up, and where
 *     dots_of_rows(), add_product()  the products, of what factor() makes of each number
 *     kept_by_query(), _by_key()     bits of the dropout mask
 *
 * Bits depend on shape and values alone: sums over d and over columns are in the layout's order, heads
 * upwards. s is one sum over the head's elements whichever of its operands makes the rows, and P =
 * exp(fma(scale, q k', -lse)) is one function: in fp32 forward keeps in probs to the bit what backward
 * would recompute, so keeping them moves no bit of the gradients either.
 * In bf16 kept probs are rounded. Keys beyond a sample's length are not read. A query that sees
 * no key has y = 0, lse = -infinity and no gradient. */
#ifndef VP_KERNELS_CUDA_ATTENTION_TILES_H
#define VP_KERNELS_CUDA_ATTENTION_TILES_H

#include "kernels/cuda/cuda_kernel.h"

enum {
    THREADS = 128,
    /* that a multiprocessor has room for: one computes while the other loads */
    TWO_BLOCKS = 2,
    COLS       = 64, /* columns of a tile */
    /* elements of a head that dots_of_rows() takes at once */
    SLAB = 32,
    /* rows that follow each other lie in different banks */
    SLAB_LD = SLAB + 4,
    TILE_LD = COLS + 4
};

/* Queries, keys, values or results of all heads: element c of head h in row r is at base[r ld +
 * h step + c]. */
template <typename T> struct part {
    T  *base;
    int ld, step;
};

/* What one call works on. fits() says why positions, heads and elements of a row need no more
 * than an int. */
template <typename T> struct shape {
    int               batch, seq, heads, kv_heads, group, d;
    int               window; /* seq where there is none                               */
    bool              causal;
    bool              aligned; /* rows of every head start at multiples of 16 bytes     */
    const int32_t    *lengths;
    part<T>           q, k, v, y, dy, dq, dk, dv;
    float            *lse, *delta; /* delta: D                                              */
    T                *probs;
    float             scale, cap, in_cap; /* in_cap: scale / cap                            */
    uint64_t          drop_below; /* a probability whose word is less is dropped; 0: none  */
    float             keep_scale; /* 1 / (1 - p)                                           */
    vp_rng_stream     rng;
    const vp_control *control;
};

/* ---- who sees whom ---- */

static __device__ inline int least(int a, int b)
{
    return a < b ? a : b;
}

static __device__ inline int most(int a, int b)
{
    return a > b ? a : b;
}

template <typename T> static __device__ inline int length_of(const shape<T> &s, int sample)
{
    return s.lengths ? most(0, least(s.lengths[sample], s.seq)) : s.seq;
}

/* The columns that rows of a tile see, all together: from a multiple of COLS. */
struct reach {
    int from, to;
};

template <typename T>
static __device__ inline reach keys_of_tile(const shape<T> &s, int length, int i0, int rows)
{
    int from = most(0, i0 - s.window + 1), last = least(i0 + rows, s.seq) - 1;

    return {from - from % COLS, least(length, s.causal ? last + 1 : last + s.window)};
}

template <typename T>
static __device__ inline reach queries_of_tile(const shape<T> &s, int length, int j0, int rows)
{
    int from = s.causal ? j0 : most(0, j0 - s.window + 1), last = least(j0 + rows, length) - 1;

    return {from - from % COLS, j0 < length ? least(s.seq, last + s.window) : 0};
}

/* Query i sees key j < length where |i - j| < window, j <= i if causal: of a pair of tiles,
 * where lo <= i - j < hi, counted from the first ones. Bit EACH r + c: whether a thread's row r
 * and column c see each other. */
template <typename L, bool ROWS_ARE_QUERIES, typename T>
static __device__ inline uint32_t seen_of_pair(const shape<T> &s, int i0, int j0, int n_rows,
                                               int n_cols)
{
    int ahead =
        i0 - j0 +
        (ROWS_ARE_QUERIES ? L::row_of(0) - L::column_of(0) : L::column_of(0) - L::row_of(0));
    /* for constants to be compared with */
    int      lo = (s.causal ? 0 : 1 - s.window) - ahead, hi = s.window - ahead;
    uint32_t seen = 0;

    n_rows -= L::row_of(0);
    n_cols -= L::column_of(0);
#pragma unroll
    for (int r = 0; r < L::R; r++)
#pragma unroll
        for (int c = 0; c < L::EACH; c++) {
            int down = L::row_step(r), right = L::column_step(c),
                step = ROWS_ARE_QUERIES ? down - right : right - down;

            if (lo <= step && step < hi && down < n_rows && right < n_cols)
                seen |= 1u << (L::EACH * r + c);
        }
    return seen;
}

template <typename L> static __device__ inline bool has(uint32_t bits, int r, int c)
{
    return bits >> (L::EACH * r + c) & 1u;
}

/* ---- rows in shared memory ---- */

/* Rows of one head, in device memory. */
template <typename T> struct rows {
    const T *x;
    int      ld;
    int      n; /* those that follow count as zeros */
};

template <typename T>
static __device__ inline rows<T> rows_of(const part<T> &p, int64_t row, int head, int n)
{
    return {p.base + row * p.ld + (int64_t)head * p.step, p.ld, n};
}

/* N_ROWS rows of N_COLS floats, LD apart: rows first .. of r (r.n > 0), elements col .. of their
 * d, each as L multiplies it; zeros beyond either. */
template <typename L, int N_ROWS, int N_COLS, int LD, typename T>
static __device__ inline void load_rows(const rows<T> &r, int first, int col, int d, bool aligned,
                                        float *to)
{
    enum {
        N        = vp_pack<T>::N,
        TO_A_ROW = N_COLS / N,
        A_STEP   = THREADS / TO_A_ROW,
        STEPS    = N_ROWS / A_STEP
    };

    int row = (int)threadIdx.x / TO_A_ROW, c = col + (int)threadIdx.x % TO_A_ROW * N,
        n      = c < d ? r.n - first : 0;
    const T *x = r.x + (int64_t)(first + row) * r.ld + c;
    float   *y = to + row * LD + (int)threadIdx.x % TO_A_ROW * N;

    if (aligned) {
        vp_pack<T> pack[STEPS];

#pragma unroll
        /* nothing waits between the loads: those beyond read the first row's beginning */
        for (int step = 0; step < STEPS; step++) {
            pack[step] = vp_load16(row + step * A_STEP < n ? x : r.x);
            x += (int64_t)A_STEP * r.ld;
        }
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
#pragma unroll
            for (int e = 0; e < N; e++)
                pack[step].x[e] = row + step * A_STEP < n ? L::factor(pack[step].x[e]) : 0.0f;
#pragma unroll
            for (int e = 0; e < N; e += 4)
                *reinterpret_cast<float4 *>(y + step * A_STEP * LD + e) = make_float4(
                    pack[step].x[e], pack[step].x[e + 1], pack[step].x[e + 2], pack[step].x[e + 3]);
        }
    } else {
#pragma unroll 1
        for (int step = 0; step < STEPS; step++) {
#pragma unroll
            for (int e = 0; e < N; e++)
                y[e] = row + step * A_STEP < n && c + e < d ? L::factor(vp_load(x, e)) : 0.0f;
            x += (int64_t)A_STEP * r.ld;
            y += A_STEP * LD;
        }
    }
}

/* ---- what both layouts of threads are given ---- */

/* Where a block's shared memory goes: what products load, then x. */
template <typename L> struct memory {
    enum {
        ROWS   = L::ROWS,
        LOADED = (ROWS + COLS) * SLAB_LD > L::PIECE ? (ROWS + COLS) * SLAB_LD : L::PIECE,
        FLOATS = LOADED + ROWS * TILE_LD,
        BYTES  = 4 * FLOATS /* at most 35 KiB */
    };
};

template <int N> static __device__ inline void fill(float (&x)[N], float value)
{
#pragma unroll
    for (int n = 0; n < N; n++)
        x[n] = value;
}

template <int R, int N> static __device__ inline void zero(float (&x)[R][N])
{
#pragma unroll
    for (int r = 0; r < R; r++)
        fill(x[r], 0.0f);
}

/* A tile for threads of the same warp to read. */
template <typename L>
static __device__ inline void write_tile(const float (&x)[L::R][L::EACH], float *tile)
{
    __syncwarp();
#pragma unroll
    for (int r = 0; r < L::R; r++)
#pragma unroll
        for (int c = 0; c < L::EACH; c++)
            tile[L::row_of(r) * TILE_LD + L::column_of(c)] = x[r][c];
    __syncwarp();
}

/* A thread's own part of it. */
template <typename L>
static __device__ inline void read_tile(const float *tile, float (&x)[L::R][L::EACH])
{
#pragma unroll
    for (int r = 0; r < L::R; r++)
#pragma unroll
        for (int c = 0; c < L::EACH; c++)
            x[r][c] = tile[L::row_of(r) * TILE_LD + L::column_of(c)];
}

/* The greatest, the sum, over the threads that share a row. */
template <typename L> static __device__ inline float greatest_of_row(float x)
{
#pragma unroll
    for (int lane = L::LANES / 2; lane > 0; lane /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lane));
    return x;
}

template <typename L> static __device__ inline float sum_of_row(float x)
{
#pragma unroll
    for (int lane = L::LANES / 2; lane > 0; lane /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, lane);
    return x;
}

/* N floats that follow each other, N 2 or 4; `left` of them are there. */
template <int N>
static __device__ inline void store_some(float *y, const float *x, bool aligned, int left)
{
    if (aligned && N == 4) {
        vp_pack<float> pack = {{x[0], x[1], x[2], x[3]}};
        vp_store16(y, pack);
    } else if (aligned) {
        *reinterpret_cast<float2 *>(y) = make_float2(x[0], x[1]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i < left)
                vp_store(y, i, x[i]);
    }
}

template <int N, typename T>
static __device__ inline void store_some(T *y, const float *x, bool aligned, int left)
{
    if (aligned) {
        uint32_t *words = reinterpret_cast<uint32_t *>(y);

#pragma unroll
        for (int i = 0; i < N; i += 2)
            words[i / 2] = vp_word_of<T>(x[i], x[i + 1]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i < left)
                vp_store(y, i, x[i]);
    }
}

/* Rows of sums, each times alpha[its row], into n rows of the operand. */
template <typename L, int D, typename T>
static __device__ inline void store_sums(const shape<T> &s, const part<T> &p, int64_t row, int head,
                                         int n, const float (&alpha)[L::R],
                                         const float (&sum)[L::R][L::template sums<D>])
{
    enum { N = L::SUMS_TOGETHER };

#pragma unroll
    for (int r = 0; r < L::R; r++) {
        T *y = p.base + (row + L::row_of(r)) * p.ld + (int64_t)head * p.step;

        if (L::row_of(r) >= n)
            continue;
#pragma unroll
        for (int w = 0; w < L::template sums<D>; w += N) {
            const int element = L::element_of(w);
            float     x[N];

#pragma unroll
            for (int i = 0; i < N; i++)
                x[i] = alpha[r] * sum[r][w + i];
            if (element < s.d)
                store_some<N>(y + element, x, s.aligned, s.d - element);
        }
    }
}

#endif
