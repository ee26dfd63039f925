/* kernels/cuda/attention_probs.h: from products q k' to the probabilities P and the dropout mask M of
 * a pair of tiles, for forward and backward alike; P recomputed, or as forward kept it. */
#ifndef VP_KERNELS_CUDA_ATTENTION_PROBS_H
#define VP_KERNELS_CUDA_ATTENTION_PROBS_H

#include "kernels/cuda/attention_tiles.h"

/* Products q k' become what multiplier() times is a score. */
template <typename T, int R, int EACH>
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

/* The factor M. */
template <typename L, typename T>
static __device__ inline float mask_of(const shape<T> &s, uint32_t kept, int r, int c)
{
    return has<L>(kept, r, c) ? s.keep_scale : 0.0f;
}

/* Bare scores become P; 0 where a key is not seen. lse: of the query that is row r or column c. */
template <typename L, bool ROWS_ARE_QUERIES, int N, typename T>
static __device__ inline void probabilities(const shape<T> &s, uint32_t seen, const float (&lse)[N],
                                            float (&x)[L::R][L::EACH])
{
    float by = multiplier(s);

#pragma unroll
    for (int c = 0; c < L::EACH; c++)
#pragma unroll
        for (int r = 0; r < L::R; r++)
            x[r][c] =
                has<L>(seen, r, c) ? exp_score(by, x[r][c], lse[ROWS_ARE_QUERIES ? r : c]) : 0.0f;
}

/* The row of the kept matrix that a query has, from key j0 on. */
template <typename T>
static __device__ inline T *row_of_probs(const shape<T> &s, int of_head, int i, int j0)
{
    return s.probs + ((int64_t)of_head * s.seq + i) * s.seq + j0;
}

/* P as forward kept it, zeros for keys not seen: through the tile, so that rows of the matrix
 * are read as they lie. */
template <typename L, bool ROWS_ARE_QUERIES, typename T>
static __device__ inline void load_probs(const shape<T> &s, int of_head, int i0, int j0, int n_rows,
                                         int n_cols, float *tile, float (&x)[L::R][L::EACH])
{
    enum { ROWS = L::ROWS, KEYS = ROWS_ARE_QUERIES ? (int)COLS : (int)ROWS };
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
    read_tile<L>(tile, x);
}

#endif
