/* kernels/cuda/attention_tiles.h: softmax attention for every shape that plan/op.h allows, in fp32
 * arithmetic without tensor cores: the mathematics, and what forward (attention_fwd.cu) and backward
 * (attention_bwd.cu) share: tiles of rows and columns, their products, who sees whom.
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
 * sum of one thread. A thread holds 8 rows by 4 columns of x: three 16-byte loads from shared
 * memory for each 32 multiplications and additions; 4 by 4 where sums of 8 rows would leave no
 * registers. The tiles that blocks share come out of the L2 cache; from memory each operand moves
 * about once.
 *
 * Bits depend on shape and values alone: sums over d and over columns run upwards, heads
 * upwards. s is one chain of fmaf() over the head's elements whichever of its operands makes the
 * rows, and P = exp(fma(scale, q k', -lse)) is one function: in fp32 forward keeps in probs to
 * the bit what backward would recompute, so keeping them moves no bit of the gradients either.
 * In bf16 kept probs are rounded. Keys beyond a sample's length are not read. A query that sees
 * no key has y = 0, lse = -infinity and no gradient. */
#ifndef VP_KERNELS_CUDA_ATTENTION_TILES_H
#define VP_KERNELS_CUDA_ATTENTION_TILES_H

#include "kernels/cuda/cuda_kernel.h"

enum {
    THREADS = 128,
    /* that a multiprocessor has room for: one computes while the other loads */
    TWO_BLOCKS = 2,
    /* threads side by side along the columns of a tile */
    WIDE = 16,
    HIGH = THREADS / WIDE,
    /* columns of a tile: column tx + WIDE c of thread tx */
    COLS = 64,
    EACH = COLS / WIDE,
    /* elements of a head that dots_of_rows() takes at once */
    SLAB = 32,
    /* rows that follow each other lie in different banks */
    SLAB_LD = SLAB + 4,
    TILE_LD = COLS + 4,
    PIECE   = 4096 /* floats of b that add_product() takes at once                           */
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

/* ---- which rows and columns of a tile a thread has ---- */

static __device__ inline int column_of(int c)
{
    return (int)threadIdx.x % WIDE + WIDE * c;
}

/* Four that follow each other, then the next four HIGH times further: half a warp has a row to
 * itself, the other half one whose place in shared memory is 16 banks away, and four keys share
 * a block of random words. */
static __device__ inline int row_of(int r)
{
    return (int)threadIdx.x / WIDE * 4 + (r / 4 * (4 * HIGH) + r % 4);
}

/* From row a to row b of a thread, the same for all of them. */
static __device__ inline int rows_between(int a, int b)
{
    return b / 4 * (4 * HIGH) + b % 4 - (a / 4 * (4 * HIGH) + a % 4);
}

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
template <int R, bool ROWS_ARE_QUERIES, typename T>
static __device__ inline uint32_t seen_of_pair(const shape<T> &s, int i0, int j0, int n_rows,
                                               int n_cols)
{
    int ahead = i0 - j0 + (ROWS_ARE_QUERIES ? row_of(0) - column_of(0) : column_of(0) - row_of(0));
    /* for constants to be compared with */
    int      lo = (s.causal ? 0 : 1 - s.window) - ahead, hi = s.window - ahead;
    uint32_t seen = 0;

    n_rows -= row_of(0);
    n_cols -= column_of(0);
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < EACH; c++) {
            int step =
                ROWS_ARE_QUERIES ? rows_between(0, r) - WIDE * c : WIDE * c - rows_between(0, r);

            if (lo <= step && step < hi && rows_between(0, r) < n_rows && WIDE * c < n_cols)
                seen |= 1u << (EACH * r + c);
        }
    return seen;
}

static __device__ inline bool has(uint32_t bits, int r, int c)
{
    return bits >> (EACH * r + c) & 1u;
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
 * d; zeros beyond either. */
template <int N_ROWS, int N_COLS, int LD, typename T>
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
                pack[step].x[e] = row + step * A_STEP < n ? pack[step].x[e] : 0.0f;
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
                y[e] = row + step * A_STEP < n && c + e < d ? vp_load(x, e) : 0.0f;
            x += (int64_t)A_STEP * r.ld;
            y += A_STEP * LD;
        }
    }
}

/* ---- products ---- */

/* Where a block's shared memory goes: what products load, then x. R: rows of a tile that one
 * thread has. */
template <int R> struct memory {
    enum {
        ROWS   = R * HIGH,
        LOADED = (ROWS + COLS) * SLAB_LD > PIECE ? (ROWS + COLS) * SLAB_LD : PIECE,
        FLOATS = LOADED + ROWS * TILE_LD,
        BYTES  = 4 * FLOATS /* at most 35 KiB */
    };
};

/* x[r][c] = sum_e a[row r][e] b[column c][e] */
template <int R, typename T>
static __device__ inline void dots_of_rows(const rows<T> &a, const rows<T> &b, int d, bool aligned,
                                           float *loaded, float (&x)[R][EACH])
{
    float *of_a = loaded, *of_b = loaded + R * HIGH * SLAB_LD;

#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < EACH; c++)
            x[r][c] = 0.0f;
    for (int e0 = 0; e0 < d; e0 += SLAB) {
        int n = d - e0 < SLAB ? d - e0 : SLAB;

        __syncthreads();
        load_rows<R * HIGH, SLAB, SLAB_LD>(a, 0, e0, d, aligned, of_a);
        load_rows<COLS, SLAB, SLAB_LD>(b, 0, e0, d, aligned, of_b);
        __syncthreads();
#pragma unroll 1
        for (int e = 0; e < n; e += 4) {
            float4 y[EACH];

#pragma unroll
            for (int c = 0; c < EACH; c++)
                y[c] = *reinterpret_cast<const float4 *>(of_b + column_of(c) * SLAB_LD + e);
#pragma unroll
            for (int r = 0; r < R; r++) {
                float4 z = *reinterpret_cast<const float4 *>(of_a + row_of(r) * SLAB_LD + e);

#pragma unroll
                for (int c = 0; c < EACH; c++)
                    x[r][c] =
                        fmaf(z.w, y[c].w,
                             fmaf(z.z, y[c].z, fmaf(z.y, y[c].y, fmaf(z.x, y[c].x, x[r][c]))));
            }
        }
    }
}

static __device__ inline float component(const float4 &x, int i)
{
    return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

/* Where elements 4 w .. 4 w + 3 of a thread's sums lie in a row. */
static __device__ inline int element_of(int w)
{
    return 4 * ((int)threadIdx.x % WIDE + WIDE * w);
}

/* sum[r] += sum_j x[row r][j] b[j]; x has zeros in columns from b.n on. D: d, rounded up. */
template <int R, int D, typename T>
static __device__ inline void add_product(const float *x, const rows<T> &b, int d, bool aligned,
                                          float *loaded, float (&sum)[R][D / WIDE])
{
    enum { DEPTH = PIECE / D, QUADS = D / WIDE / 4 };

    for (int j0 = 0; j0 < b.n; j0 += DEPTH) {
        int n = b.n - j0 < DEPTH ? b.n - j0 : DEPTH;

        __syncthreads();
        load_rows<DEPTH, D, D>(b, j0, 0, d, aligned, loaded);
        __syncthreads();
#pragma unroll 1
        for (int j = 0; j < n; j += 4) {
            float4 a[R];

#pragma unroll
            for (int r = 0; r < R; r++)
                a[r] = *reinterpret_cast<const float4 *>(x + row_of(r) * TILE_LD + j0 + j);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int w = 0; w < QUADS; w++) {
                    float4 v =
                        *reinterpret_cast<const float4 *>(loaded + (j + i) * D + element_of(w));

#pragma unroll
                    for (int r = 0; r < R; r++) {
                        float f = component(a[r], i);

                        sum[r][4 * w]     = fmaf(f, v.x, sum[r][4 * w]);
                        sum[r][4 * w + 1] = fmaf(f, v.y, sum[r][4 * w + 1]);
                        sum[r][4 * w + 2] = fmaf(f, v.z, sum[r][4 * w + 2]);
                        sum[r][4 * w + 3] = fmaf(f, v.w, sum[r][4 * w + 3]);
                    }
                }
        }
    }
}

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

/* A tile for add_product() to read: only threads of the same warp read what one wrote. */
template <int R> static __device__ inline void write_tile(const float (&x)[R][EACH], float *tile)
{
    __syncwarp();
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < EACH; c++)
            tile[row_of(r) * TILE_LD + column_of(c)] = x[r][c];
    __syncwarp();
}

/* A thread's own part of it. */
template <int R> static __device__ inline void read_tile(const float *tile, float (&x)[R][EACH])
{
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < EACH; c++)
            x[r][c] = tile[row_of(r) * TILE_LD + column_of(c)];
}

static __device__ inline void store4(float *y, const float *x, bool aligned, int n)
{
    if (aligned) {
        vp_pack<float> pack = {{x[0], x[1], x[2], x[3]}};
        vp_store16(y, pack);
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (i < n)
                vp_store(y, i, x[i]);
    }
}

template <typename T>
static __device__ inline void store4(T *y, const float *x, bool aligned, int n)
{
    if (aligned) {
        uint32_t *words = reinterpret_cast<uint32_t *>(y);

        words[0] = vp_word_of<T>(x[0], x[1]);
        words[1] = vp_word_of<T>(x[2], x[3]);
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (i < n)
                vp_store(y, i, x[i]);
    }
}

/* Rows of sums, each times alpha[its row], into n rows of the operand. */
template <int R, int D, typename T>
static __device__ inline void store_sums(const shape<T> &s, const part<T> &p, int64_t row, int head,
                                         int n, const float (&alpha)[R],
                                         const float (&sum)[R][D / WIDE])
{
#pragma unroll
    for (int r = 0; r < R; r++) {
        T *y = p.base + (row + row_of(r)) * p.ld + (int64_t)head * p.step;

        if (row_of(r) >= n)
            continue;
#pragma unroll
        for (int w = 0; w < D / WIDE / 4; w++) {
            float x[4];

#pragma unroll
            for (int i = 0; i < 4; i++)
                x[i] = alpha[r] * sum[r][4 * w + i];
            if (element_of(w) < s.d)
                store4(y + element_of(w), x, s.aligned, s.d - element_of(w));
        }
    }
}

#endif
