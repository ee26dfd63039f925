/* kernels/cuda/attention_cores.h: products of tiles by a multiprocessor's ordinary cores, in full fp32.
 *
 * A thread holds R rows by 4 columns of x: for R = 8 three 16-byte loads from shared memory for each 32
 * multiplications and additions; R = 4 where sums of 8 rows would leave no registers. Sums run upwards:
 * one chain of fmaf() for each element. */
#ifndef VP_KERNELS_CUDA_ATTENTION_CORES_H
#define VP_KERNELS_CUDA_ATTENTION_CORES_H

#include "kernels/cuda/attention_probs.h"

static __device__ inline float component(const float4 &x, int i)
{
    return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

template <int N_ROWS> struct cores {
    enum {
        R                 = N_ROWS,
        LANES             = 16, /* threads side by side along the columns of a tile */
        HIGH              = THREADS / LANES,
        ROWS              = R * HIGH,
        EACH              = COLS / LANES, /* columns of a thread: tx + LANES c           */
        PIECE             = 4096,         /* floats of b that add_product() takes at once */
        SUMS_TOGETHER     = 4,
        MOST_WITHOUT_TILE = 128 /* elements of a head: see both_dots() */
    };
    template <int D> static constexpr int sums = D / LANES;

    static __device__ inline int column_step(int c)
    {
        return LANES * c;
    }

    static __device__ inline int column_of(int c)
    {
        return (int)threadIdx.x % LANES + column_step(c);
    }

    static __device__ inline int row_step(int r)
    {
        return r / 4 * (4 * HIGH) + r % 4;
    }

    /* Four that follow each other, then the next four HIGH times further: half a warp has a row to
     * itself, the other half one whose place in shared memory is 16 banks away, and four keys share
     * a block of random words. */
    static __device__ inline int row_of(int r)
    {
        return (int)threadIdx.x / LANES * 4 + row_step(r);
    }

    /* Where elements w .. w + 3 of a thread's sums lie in a row. */
    static __device__ inline int element_of(int w)
    {
        return 4 * ((int)threadIdx.x % LANES) + LANES * w;
    }

    static __device__ inline float factor(float x)
    {
        return x;
    }

    /* Whether devices of the architecture that is compiled for run it, see tensor_cores_take(). */
    template <typename T, int D> static __device__ constexpr bool runs()
    {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        return sizeof(T) == sizeof(float) || D > 128 || R == 4;
#else
        return true;
#endif
    }

    /* x[r][c] = sum_e a[row r][e] b[column c][e] */
    template <typename T>
    static __device__ inline void dots_of_rows(const rows<T> &a, const rows<T> &b, int d,
                                               bool aligned, float *loaded, float (&x)[R][EACH])
    {
        float *of_a = loaded, *of_b = loaded + ROWS * SLAB_LD;

        zero(x);
        for (int e0 = 0; e0 < d; e0 += SLAB) {
            int n = d - e0 < SLAB ? d - e0 : SLAB;

            __syncthreads();
            load_rows<cores, ROWS, SLAB, SLAB_LD>(a, 0, e0, d, aligned, of_a);
            load_rows<cores, COLS, SLAB, SLAB_LD>(b, 0, e0, d, aligned, of_b);
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

    /* sum[r] += sum_j x[row r][j] b[j], by way of the tile; x has zeros in columns from b.n on. D: d,
     * rounded up. */
    template <int D, typename T>
    static __device__ inline void add_product(const float (&x)[R][EACH], float *tile,
                                              const rows<T> &b, int d, bool aligned, float *loaded,
                                              float (&sum)[R][sums<D>])
    {
        enum { DEPTH = PIECE / D };

        write_tile<cores>(x, tile);
        for (int j0 = 0; j0 < b.n; j0 += DEPTH) {
            int n = b.n - j0 < DEPTH ? b.n - j0 : DEPTH;

            __syncthreads();
            load_rows<cores, DEPTH, D, D>(b, j0, 0, d, aligned, loaded);
            __syncthreads();
#pragma unroll 1
            for (int j = 0; j < n; j += 4) {
                float4 a[R];

#pragma unroll
                for (int r = 0; r < R; r++)
                    a[r] = *reinterpret_cast<const float4 *>(tile + row_of(r) * TILE_LD + j0 + j);
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int w = 0; w < sums<D>; w += 4) {
                        float4 v =
                            *reinterpret_cast<const float4 *>(loaded + (j + i) * D + element_of(w));

#pragma unroll
                        for (int r = 0; r < R; r++) {
                            float f = component(a[r], i);

                            sum[r][w]     = fmaf(f, v.x, sum[r][w]);
                            sum[r][w + 1] = fmaf(f, v.y, sum[r][w + 1]);
                            sum[r][w + 2] = fmaf(f, v.z, sum[r][w + 2]);
                            sum[r][w + 3] = fmaf(f, v.w, sum[r][w + 3]);
                        }
                    }
            }
        }
    }

    /* Rows are queries. A thread draws what its half of the warp needs of keys 4 tx .. 4 tx + 3:
     * four bits of each row; key tx + LANES c is one of thread tx / 4 + LANES / 4 c. */
    template <typename T>
    static __device__ inline uint32_t kept_by_query(const shape<T> &s, int sample, int head, int i0,
                                                    int j0)
    {
        vp_device_rng rng = vp_rng_now(s.rng, s.control);
        int      tx = (int)threadIdx.x % LANES, half = (int)threadIdx.x % VP_WARP / LANES * LANES;
        uint32_t drawn = 0, kept = 0;

#pragma unroll 1
        for (int r = 0; r < R; r++)
            drawn |= kept_of_block(s, rng, sample, head, i0 + row_of(r), j0 / 4 + tx) << 4 * r;
#pragma unroll
        for (int c = 0; c < EACH; c++) {
            uint32_t of_column = __shfl_sync(0xffffffffu, drawn, half + tx / 4 + LANES / 4 * c);

#pragma unroll
            for (int r = 0; r < R; r++)
                kept |= (of_column >> (4 * r + tx % 4) & 1u) << (EACH * r + c);
        }
        return kept;
    }

    /* Rows are keys: four of a thread's are a block. */
    template <typename T>
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
};

#endif
