/* kernels/cuda/attention.cu: softmax attention for every shape that plan/op.h allows, in fp32
 * arithmetic without tensor cores.
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

static __device__ inline void store4(vp_bf16 *y, const float *x, bool aligned, int n)
{
    if (aligned) {
        uint32_t *words = reinterpret_cast<uint32_t *>(y);

        words[0] = (uint32_t)vp_to_bf16(x[0]).bits | (uint32_t)vp_to_bf16(x[1]).bits << 16;
        words[1] = (uint32_t)vp_to_bf16(x[2]).bits | (uint32_t)vp_to_bf16(x[3]).bits << 16;
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

/* ---- probabilities ---- */

/* Products q k' become what multiplier() times is a score. */
template <int R, typename T>
static __device__ inline void bare_scores(const shape<T> &s, float (&x)[R][EACH])
{
    if (s.cap > 0.0f) {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int c = 0; c < EACH; c++)
                x[r][c] = tanhf(x[r][c] * s.in_cap);
    }
}

template <typename T> static __device__ inline float multiplier(const shape<T> &s)
{
    return s.cap > 0.0f ? s.cap : s.scale;
}

/* exp(score - of), with one rounding in the difference wherever it is inlined. */
static __device__ inline float exp_score(float multiplier, float bare, float of)
{
    return expf(fmaf(multiplier, bare, -of));
}

/* Which of a thread's probabilities are kept: bit EACH r + c. The masks of head, query i and
 * keys 4 j4 .. 4 j4 + 3 are one block of random words, as vp_philox_attention_block() numbers
 * them. */
template <typename T>
static __device__ inline uint32_t kept_of_block(const shape<T> &s, const vp_device_rng &rng,
                                                int sample, int head, int i, int j4)
{
    vp_philox_block words = vp_rng_words(
        rng, sample,
        (uint64_t)((int64_t)head * s.seq + i) * (uint64_t)((s.seq + 3) / 4) + (uint64_t)j4);
    uint32_t bits = 0;

#pragma unroll
    for (int e = 0; e < 4; e++)
        bits |= (uint32_t)(words.x[e] >= s.drop_below) << e;
    return bits;
}

/* Rows are queries. A thread draws what its half of the warp needs of keys 4 tx .. 4 tx + 3:
 * four bits of each row; key tx + WIDE c is one of thread tx / 4 + WIDE / 4 c. */
template <int R, typename T>
static __device__ inline uint32_t kept_by_query(const shape<T> &s, int sample, int head, int i0,
                                                int j0)
{
    vp_device_rng rng = vp_rng_now(s.rng, s.control);
    int           tx = (int)threadIdx.x % WIDE, half = (int)threadIdx.x % VP_WARP / WIDE * WIDE;
    uint32_t      drawn = 0, kept = 0;

#pragma unroll 1
    for (int r = 0; r < R; r++)
        drawn |= kept_of_block(s, rng, sample, head, i0 + row_of(r), j0 / 4 + tx) << 4 * r;
#pragma unroll
    for (int c = 0; c < EACH; c++) {
        uint32_t of_column = __shfl_sync(0xffffffffu, drawn, half + tx / 4 + WIDE / 4 * c);

#pragma unroll
        for (int r = 0; r < R; r++)
            kept |= (of_column >> (4 * r + tx % 4) & 1u) << (EACH * r + c);
    }
    return kept;
}

/* Rows are keys: four of a thread's are a block. */
template <int R, typename T>
static __device__ inline uint32_t kept_by_key(const shape<T> &s, int sample, int head, int i0,
                                              int j0)
{
    vp_device_rng rng  = vp_rng_now(s.rng, s.control);
    uint32_t      kept = 0;

#pragma unroll 1
    for (int r = 0; r < R; r += 4)
#pragma unroll 1
        for (int c = 0; c < EACH; c++) {
            uint32_t bits =
                kept_of_block(s, rng, sample, head, i0 + column_of(c), (j0 + row_of(r)) / 4);

#pragma unroll
            for (int e = 0; e < 4; e++)
                kept |= (bits >> e & 1u) << (EACH * (r + e) + c);
        }
    return kept;
}

/* The factor M. */
template <typename T>
static __device__ inline float mask_of(const shape<T> &s, uint32_t kept, int r, int c)
{
    return has(kept, r, c) ? s.keep_scale : 0.0f;
}

/* Bare scores become P; 0 where a key is not seen. lse: of the query that is row r or column c. */
template <int R, bool ROWS_ARE_QUERIES, int N, typename T>
static __device__ inline void probabilities(const shape<T> &s, uint32_t seen, const float (&lse)[N],
                                            float (&x)[R][EACH])
{
    float by = multiplier(s);

#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < EACH; c++)
            x[r][c] =
                has(seen, r, c) ? exp_score(by, x[r][c], lse[ROWS_ARE_QUERIES ? r : c]) : 0.0f;
}

/* The row of the kept matrix that a query has, from key j0 on. */
template <typename T>
static __device__ inline T *row_of_probs(const shape<T> &s, int of_head, int i, int j0)
{
    return s.probs + ((int64_t)of_head * s.seq + i) * s.seq + j0;
}

/* P as forward kept it, zeros for keys not seen: through the tile, so that rows of the matrix
 * are read as they lie. */
template <int R, bool ROWS_ARE_QUERIES, typename T>
static __device__ inline void load_probs(const shape<T> &s, int of_head, int i0, int j0, int n_rows,
                                         int n_cols, float *tile, float (&x)[R][EACH])
{
    enum { ROWS = R * HIGH, KEYS = ROWS_ARE_QUERIES ? COLS : ROWS };
    const T *probs = row_of_probs(s, of_head, i0, j0);

    __syncthreads();
#pragma unroll 4
    for (int at = (int)threadIdx.x; at < ROWS * COLS; at += THREADS) {
        int i = at / KEYS, j = at % KEYS, r = ROWS_ARE_QUERIES ? i : j,
            c = ROWS_ARE_QUERIES ? j : i;

        tile[r * TILE_LD + c] =
            r < n_rows && c < n_cols ? vp_load(probs, (int64_t)i * s.seq + j) : 0.0f;
    }
    __syncthreads();
    read_tile(tile, x);
}

/* ---- forward ---- */

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

/* ---- backward ---- */

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

/* dy v' and q k', or their transposes; q k' only where it is wanted. D = 256: sums take so many
 * registers that dy v' waits in the tile, and none spills. */
template <int D, int R, typename T>
static __device__ inline void both_dots(const shape<T> &s, const rows<T> &dy, const rows<T> &v,
                                        const rows<T> &q, const rows<T> &k, float *loaded,
                                        float *tile, float (&of_values)[R][EACH],
                                        float (&x)[R][EACH])
{
    dots_of_rows(dy, v, s.d, s.aligned, loaded, of_values);
    zero(x);
    if (!s.probs || s.cap > 0.0f) {
        if (D > 128)
            write_tile(of_values, tile);
        dots_of_rows(q, k, s.d, s.aligned, loaded, x);
        if (D > 128)
            read_tile(tile, of_values);
    }
}

/* Of the query that is row r or column c of a tile of n; what is read beyond becomes nothing. */
template <bool ROWS_ARE_QUERIES, int N, typename T>
static __device__ inline void load_lse_and_delta(const shape<T> &s, int of_head, int i0, int n,
                                                 float (&lse)[N], float (&delta)[N])
{
#pragma unroll
    for (int e = 0; e < N; e++) {
        int64_t at = (int64_t)of_head * s.seq + i0 +
                     least(ROWS_ARE_QUERIES ? row_of(e) : column_of(e), n - 1);

        lse[e]   = s.lse[at];
        delta[e] = s.delta[at];
    }
}

/* Bare scores and dy v' become P o M and ds / scale. lse, delta: of the query that is row r or
 * column c. */
template <int R, bool ROWS_ARE_QUERIES, int N, typename T>
static __device__ inline void gradients(const shape<T> &s, int of_head, int i0, int j0, int n_rows,
                                        int n_cols, uint32_t            kept, const float (&lse)[N],
                                        const float (&delta)[N], float *tile, float (&x)[R][EACH],
                                        float (&ds)[R][EACH])
{
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < EACH; c++)
            ds[r][c] = fmaf(mask_of(s, kept, r, c), ds[r][c], -delta[ROWS_ARE_QUERIES ? r : c]);
    if (s.cap > 0.0f) {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int c = 0; c < EACH; c++)
                ds[r][c] *= fmaf(-x[r][c], x[r][c], 1.0f);
    }
    if (s.probs)
        load_probs<R, ROWS_ARE_QUERIES>(s, of_head, i0, j0, n_rows, n_cols, tile, x);
    else
        probabilities<R, ROWS_ARE_QUERIES>(
            s, seen_of_pair<R, ROWS_ARE_QUERIES>(s, i0, j0, n_rows, n_cols), lse, x);
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < EACH; c++) {
            ds[r][c] *= x[r][c];
            x[r][c] *= mask_of(s, kept, r, c);
        }
}

/* dk and dv: a block for each tile of keys and kv head, the first tiles first: under a causal
 * mask most see them. */
template <typename T, int D, int R>
__global__ void __launch_bounds__(THREADS, TWO_BLOCKS) attention_dkv_kernel(const shape<T> s)
{
    enum { ROWS = memory<R>::ROWS };
    VP_DYNAMIC_SHARED(float, loaded);
    float *tile    = loaded + memory<R>::LOADED;
    int    n_heads = s.batch * s.kv_heads, sample = (int)blockIdx.x % n_heads / s.kv_heads,
        kv         = (int)blockIdx.x % s.kv_heads;
    int     length = length_of(s, sample), j0 = (int)blockIdx.x / n_heads * ROWS;
    int64_t row = (int64_t)sample * s.seq;
    reach   all = queries_of_tile(s, length, j0, ROWS);
    rows<T> k   = rows_of(s.k, row + j0, kv, least(ROWS, length - j0));
    rows<T> v   = rows_of(s.v, row + j0, kv, least(ROWS, length - j0));
    float   dk[R][D / WIDE], dv[R][D / WIDE], alpha[R];

    zero(dk);
    zero(dv);
    for (int head = kv * s.group; head < (kv + 1) * s.group; head++)
        for (int i0 = all.from; i0 < all.to; i0 += COLS) {
            int      n = least(COLS, s.seq - i0), of_head = sample * s.heads + head;
            rows<T>  q = rows_of(s.q, row + i0, head, n), dy = rows_of(s.dy, row + i0, head, n);
            uint32_t kept = ~0u;
            float    x[R][EACH], ds[R][EACH], lse[EACH], delta[EACH];

            if (s.drop_below > 0)
                kept = kept_by_key<R>(s, sample, head, i0, j0);
            both_dots<D>(s, v, dy, k, q, loaded, tile, ds, x);
            bare_scores(s, x);
            load_lse_and_delta<false>(s, of_head, i0, n, lse, delta);
            gradients<R, false>(s, of_head, i0, j0, k.n, n, kept, lse, delta, tile, x, ds);
            write_tile(x, tile);
            add_product<R, D>(tile, dy, s.d, s.aligned, loaded, dv);
            write_tile(ds, tile);
            add_product<R, D>(tile, q, s.d, s.aligned, loaded, dk);
        }
    fill(alpha, 1.0f);
    store_sums<R, D>(s, s.dv, row + j0, kv, s.seq - j0, alpha, dv);
    fill(alpha, s.scale);
    store_sums<R, D>(s, s.dk, row + j0, kv, s.seq - j0, alpha, dk);
}

/* dq: a block for each tile of queries and head, as forward. */
template <typename T, int D, int R>
__global__ void __launch_bounds__(THREADS, TWO_BLOCKS) attention_dq_kernel(const shape<T> s)
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
    rows<T> dy  = rows_of(s.dy, row + i0, head, least(ROWS, s.seq - i0));
    float   dq[R][D / WIDE], alpha[R];

    zero(dq);
    for (int j0 = all.from; j0 < all.to; j0 += COLS) {
        int      n    = least(COLS, length - j0);
        rows<T>  k    = rows_of(s.k, row + j0, kv, n);
        uint32_t kept = ~0u;
        float    x[R][EACH], ds[R][EACH], lse[R], delta[R];

        if (s.drop_below > 0)
            kept = kept_by_query<R>(s, sample, head, i0, j0);
        both_dots<D>(s, dy, rows_of(s.v, row + j0, kv, n), q, k, loaded, tile, ds, x);
        bare_scores(s, x);
        load_lse_and_delta<true>(s, of_head, i0, q.n, lse, delta);
        gradients<R, true>(s, of_head, i0, j0, q.n, n, kept, lse, delta, tile, x, ds);
        write_tile(ds, tile);
        add_product<R, D>(tile, k, s.d, s.aligned, loaded, dq);
    }
    fill(alpha, s.scale);
    store_sums<R, D>(s, s.dq, row + i0, head, s.seq - i0, alpha, dq);
}

/* ---- launchers ---- */

/* q, k and v, or their gradients, in the call's layout. */
template <typename T>
static void lay_out(const shape<T> &s, vp_qkv_layout layout, void *qs, void *ks, void *vs,
                    part<T> *q, part<T> *k, part<T> *v)
{
    int d = s.d, row = (s.heads + 2 * s.kv_heads) * d;
    T  *x = (T *)qs;

    switch (layout) {
    case VP_QKV_PACKED:
        *q = {x, row, d};
        *k = {x + (int64_t)s.heads * d, row, d};
        *v = {x + (int64_t)(s.heads + s.kv_heads) * d, row, d};
        break;
    case VP_QKV_PER_HEAD:
        *q = {x, row, 3 * d};
        *k = {x + d, row, 3 * d};
        *v = {x + 2 * d, row, 3 * d};
        break;
    case VP_QKV_APART:
        *q = {x, s.heads * d, d};
        *k = {(T *)ks, s.kv_heads * d, d};
        *v = {(T *)vs, s.kv_heads * d, d};
        break;
    }
}

template <typename T> static shape<T> shape_of(const vp_kernel_call *call)
{
    const vp_attention_ints *n       = &call->attention;
    bool                     forward = call->kernel == VP_K_ATTENTION_FWD;
    double                   p       = call->attention_reals.p;
    shape<T>                 s       = {};

    s.batch = (int)n->batch, s.seq = (int)n->seq, s.heads = (int)n->heads,
    s.kv_heads = (int)n->kv_heads, s.d = (int)n->head_dim;
    s.group      = s.heads / s.kv_heads;
    s.causal     = n->causal != 0;
    s.window     = n->window > 0 && n->window < n->seq ? (int)n->window : (int)n->seq;
    s.lengths    = (const int32_t *)VP_ATTENTION_OPERAND(call, LENGTHS);
    s.y          = {(T *)VP_ATTENTION_OPERAND(call, Y), s.heads * s.d, s.d};
    s.lse        = (float *)VP_ATTENTION_OPERAND(call, LSE);
    s.probs      = n->probs ? (T *)VP_ATTENTION_OPERAND(call, PROBS) : NULL;
    s.scale      = (float)call->attention_reals.scale;
    s.cap        = (float)call->attention_reals.softcap;
    s.in_cap     = call->attention_reals.softcap > 0.0
                       ? (float)(call->attention_reals.scale / call->attention_reals.softcap)
                       : 0.0f;
    s.drop_below = p > 0.0 ? vp_dropout_least(p) : 0;
    s.keep_scale = p < 1.0 ? (float)(1.0 / (1.0 - p)) : 0.0f;
    s.rng        = call->rng;
    s.control    = call->control;
    s.aligned    = s.d % vp_pack<T>::N == 0;
    /* those that rows are not read of start at multiples of 64 too */
    for (int i = 0; i < VP_MAX_OPERANDS; i++)
        s.aligned = s.aligned && vp_is_aligned16(call->operand[i]);
    lay_out(s, (vp_qkv_layout)n->layout, VP_ATTENTION_OPERAND(call, Q),
            VP_ATTENTION_OPERAND(call, K), VP_ATTENTION_OPERAND(call, V), &s.q, &s.k, &s.v);
    if (!forward) {
        s.dy    = {(T *)call->operand[VP_ATTENTION_BWD_DY], s.heads * s.d, s.d};
        s.delta = (float *)call->workspace;
        lay_out(s, (vp_qkv_layout)n->layout, call->operand[VP_ATTENTION_BWD_DQ],
                call->operand[VP_ATTENTION_BWD_DK], call->operand[VP_ATTENTION_BWD_DV], &s.dq,
                &s.dk, &s.dv);
    }
    return s;
}

/* A block for each tile of rows and head of each sample. */
template <typename T, int R> static unsigned blocks_of(const shape<T> &s, int heads)
{
    return vp_blocks((int64_t)((s.seq + memory<R>::ROWS - 1) / memory<R>::ROWS) * s.batch * heads,
                     1);
}

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

/* R: of dk and dv, of dq. */
template <typename T, int D, int R_KV, int R_Q>
static cudaError_t backward(const shape<T> &s, cudaStream_t stream)
{
    int64_t     n_rows = (int64_t)s.batch * s.seq * s.heads;
    cudaError_t e;

    e = VP_LAUNCH(attention_delta_kernel<T>, vp_blocks(n_rows, VP_BLOCK / LANES), VP_BLOCK, 0,
                  stream, s, n_rows);
    if (e == cudaSuccess)
        e = VP_LAUNCH((attention_dkv_kernel<T, D, R_KV>), (blocks_of<T, R_KV>(s, s.kv_heads)),
                      THREADS, memory<R_KV>::BYTES, stream, s);
    if (e == cudaSuccess)
        e = VP_LAUNCH((attention_dq_kernel<T, D, R_Q>), (blocks_of<T, R_Q>(s, s.heads)), THREADS,
                      memory<R_Q>::BYTES, stream, s);
    return e;
}

/* A sequence of 2^30 tokens would take years; a row of 2^31 elements or 2^30 blocks, more memory
 * than there is. */
static bool fits(const vp_attention_ints *n)
{
    int64_t tiles = (n->seq - 1) / memory<4>::ROWS + 1,
            cols  = n->probs ? (n->seq - 1) / COLS + 1 : 1;

    return n->seq <= 1 << 30 && (n->heads + 2 * n->kv_heads) * n->head_dim <= INT32_MAX &&
           n->head_dim <= VP_MAX_HEAD_DIM && tiles * cols * n->batch * n->heads <= VP_MAX_GRID;
}

template <typename T> static cudaError_t run(const vp_kernel_call *call, cudaStream_t stream)
{
    bool     is_forward = call->kernel == VP_K_ATTENTION_FWD;
    shape<T> s;

    if (!fits(&call->attention))
        return cudaErrorInvalidValue;
    s = shape_of<T>(call);
    if (s.d <= 64)
        return is_forward ? forward<T, 64, 8>(s, stream) : backward<T, 64, 8, 8>(s, stream);
    if (s.d <= 128)
        return is_forward ? forward<T, 128, 8>(s, stream) : backward<T, 128, 4, 8>(s, stream);
    return is_forward ? forward<T, 256, 8>(s, stream) : backward<T, 256, 4, 4>(s, stream);
}

extern "C" cudaError_t vp_cuda_attention_fwd(const vp_kernel_call *call, cudaStream_t stream)
{
    VP_BY_DTYPE(call->dtype, T, return run<T>(call, stream));
}

extern "C" cudaError_t vp_cuda_attention_bwd(const vp_kernel_call *call, cudaStream_t stream)
{
    VP_BY_DTYPE(call->dtype, T, return run<T>(call, stream));
}
