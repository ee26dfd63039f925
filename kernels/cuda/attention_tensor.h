/* kernels/cuda/attention_tensor.h: products of tiles by tensor cores, from compute capability 8.0 on:
 * mma.m16n8k8 on TF32 numbers with fp32 sums (PTX ISA, "Warp-level matrix instructions").
 *
 * A bf16 or fp16 number is a TF32 number, so q k' and dy v' of 16 bits are exact products. What is
 * computed in between, P o M and ds, is SPLIT: the TF32 number next to it and the one next to what is
 * left, 22 digits in two products, so that a result of 16 bits is still the one rounding of a sum in
 * fp32. In a call of tf32 every factor is the TF32 number next to it.
 *
 * A warp has 16 rows and all 64 columns. With g = lane / 4 and t = lane mod 4, a thread's x is what
 * the instruction leaves with it: of rows g and g + 8, columns 8 n + 2 t and 8 n + 2 t + 1. For the
 * second product these are its factors as they are: the sum over keys takes them in the order 0 2 4 6
 * 1 3 5 7 of each eight, and so are b's rows read. Rows in shared memory lie SLAB_LD or D + 4 floats
 * apart, so that the 32 numbers of a factor come from 32 banks. */
#ifndef VP_KERNELS_CUDA_ATTENTION_TENSOR_H
#define VP_KERNELS_CUDA_ATTENTION_TENSOR_H

#include "kernels/cuda/attention_probs.h"

/* The TF32 number next to x, of two as near the one away from zero: 10 bits behind the point. */
static __device__ inline float tf32_of(float x)
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
    uint32_t bits;

    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return __uint_as_float(bits);
#else
    uint32_t bits = __float_as_uint(x);

    return (bits & 0x7f800000u) == 0x7f800000u ? x : __uint_as_float((bits + 0x1000u) & ~0x1fffu);
#endif
}

/* d (16 x 8 N) += a[0] b + a[1] b ..., PARTS of a (16 x 8), b (8 x 8 N), each sum in this order. Of each eight columns
 * a thread has d's rows g and g + 8, columns 2 t and 2 t + 1; of each a rows g and g + 8 of column t, then of column
 * t + 4; of b rows t and t + 4 of column g: they lie SECOND floats apart, those of the next eight columns STEP. All
 * lanes of a warp. */
template <int STEP, int SECOND, int N, int PARTS>
static __device__ inline void multiply_add(float (&d)[2][2 * N], const float (&a)[PARTS][4],
                                           const float *b)
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
#pragma unroll
    for (int n = 0; n < N; n++) {
        const float v[2] = {b[n * STEP], b[n * STEP + SECOND]};

#pragma unroll
        for (int p = 0; p < PARTS; p++)
            asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, "
                "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                : "+f"(d[0][2 * n]), "+f"(d[0][2 * n + 1]), "+f"(d[1][2 * n]), "+f"(d[1][2 * n + 1])
                : "r"(__float_as_uint(a[p][0])), "r"(__float_as_uint(a[p][1])),
                  "r"(__float_as_uint(a[p][2])), "r"(__float_as_uint(a[p][3])),
                  "r"(__float_as_uint(v[0])), "r"(__float_as_uint(v[1])));
    }
#elif !defined(__CUDACC__)
    float v[N][2];

    for (int n = 0; n < N; n++) {
        v[n][0] = b[n * STEP];
        v[n][1] = b[n * STEP + SECOND];
    }
    vp_emulator_mma_tf32(N, PARTS, d[0], d[1], a[0], v[0]);
#endif
}

template <bool SPLIT> struct tensor {
    enum {
        R                 = 2,
        LANES             = 4, /* threads that share a row */
        ROWS              = 16 * (THREADS / VP_WARP),
        EACH              = COLS / LANES,
        PIECE             = 64 * (64 + 4), /* or 32 (128 + 4), which is less */
        SUMS_TOGETHER     = 2,
        MOST_WITHOUT_TILE = 64 /* elements of a head: see both_dots() */
    };
    template <int D> static constexpr int sums = D / LANES;

    static __device__ inline int column_step(int c)
    {
        return c / 2 * 8 + c % 2;
    }

    static __device__ inline int column_of(int c)
    {
        return (int)threadIdx.x % 4 * 2 + column_step(c);
    }

    static __device__ inline int row_step(int r)
    {
        return 8 * r;
    }

    static __device__ inline int row_of(int r)
    {
        return (int)threadIdx.x / VP_WARP * 16 + (int)threadIdx.x % VP_WARP / 4 + row_step(r);
    }

    /* Where elements w and w + 1 of a thread's sums lie in a row. */
    static __device__ inline int element_of(int w)
    {
        return column_of(w);
    }

    static __device__ inline float factor(float x)
    {
        return SPLIT ? x : tf32_of(x);
    }

    template <typename T, int D> static __device__ constexpr bool runs()
    {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
        return false;
#else
        return true;
#endif
    }

    /* x[r][c] = sum_e a[row r][e] b[column c][e] */
    template <typename T>
    static __device__ inline void dots_of_rows(const rows<T> &a, const rows<T> &b, int d,
                                               bool aligned, float *loaded, float (&x)[R][EACH])
    {
        int          g = (int)threadIdx.x % VP_WARP / 4, t = (int)threadIdx.x % 4;
        float       *of_a = loaded, *of_b = loaded + ROWS * SLAB_LD;
        const float *at_a = of_a + row_of(0) * SLAB_LD + t, *at_b = of_b + g * SLAB_LD + t;

        zero(x);
        for (int e0 = 0; e0 < d; e0 += SLAB) {
            __syncthreads();
            load_rows<tensor, ROWS, SLAB, SLAB_LD>(a, 0, e0, d, aligned, of_a);
            load_rows<tensor, COLS, SLAB, SLAB_LD>(b, 0, e0, d, aligned, of_b);
            __syncthreads();
#pragma unroll
            for (int e = 0; e < SLAB; e += 8) {
                const float u[1][4] = {
                    {at_a[e], at_a[8 * SLAB_LD + e], at_a[e + 4], at_a[8 * SLAB_LD + e + 4]}};

                multiply_add<8 * SLAB_LD, 4, COLS / 8>(x, u, at_b + e);
            }
        }
    }

    /* sum[r] += sum_j x[row r][j] b[j]; x has zeros in columns from b.n on. D: d, rounded up. */
    template <int D, typename T>
    static __device__ inline void add_product(const float (&x)[R][EACH], float *, const rows<T> &b,
                                              int d, bool aligned, float *loaded,
                                              float (&sum)[R][sums<D>])
    {
        enum { LD = D + 4, DEPTH = PIECE / LD / 8 * 8 };
        int          g = (int)threadIdx.x % VP_WARP / 4, t = (int)threadIdx.x % 4;
        const float *at_b = loaded + 2 * t * LD + g;

#pragma unroll
        for (int j0 = 0; j0 < COLS; j0 += DEPTH) {
            if (j0 >= b.n) /* all of the block */
                break;
            __syncthreads();
            load_rows<tensor, DEPTH, D, LD>(b, j0, 0, d, aligned, loaded);
            __syncthreads();
#pragma unroll
            for (int j = 0; j < DEPTH; j += 8) {
                const int c = (j0 + j) / 8 * 2;
                float     u[1 + SPLIT][4];

#pragma unroll
                for (int i = 0; i < 4; i++) {
                    u[0][i] = tf32_of(x[i % 2][c + i / 2]);
                    if (SPLIT)
                        u[SPLIT][i] = tf32_of(x[i % 2][c + i / 2] - u[0][i]);
                }
                multiply_add<8, LD, D / 8>(sum, u, at_b + j * LD);
            }
        }
    }

    /* Rows are queries. The four threads of a row draw every fourth block of four keys for each
     * other: block 4 i + t in bits 4 i .. of the first row, 16 + 4 i .. of the second. */
    template <typename T>
    static __device__ inline uint32_t kept_by_query(const shape<T> &s, int sample, int head, int i0,
                                                    int j0)
    {
        vp_device_rng rng = vp_rng_now(s.rng, s.control);
        int      t = (int)threadIdx.x % 4, quad = (int)threadIdx.x % VP_WARP - t, at = t % 2 * 2;
        uint32_t drawn = 0, kept = 0, even, odd;

#pragma unroll 1
        for (int i = 0; i < 8; i++)
            drawn |= kept_of_block(s, rng, sample, head, i0 + row_of(i / 4), j0 / 4 + i % 4 * 4 + t)
                     << 4 * i;
        even = __shfl_sync(0xffffffffu, drawn, quad + t / 2);     /* of columns 0 .. 7, 16 .. 23 */
        odd  = __shfl_sync(0xffffffffu, drawn, quad + t / 2 + 2); /* of the others               */
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int c = 0; c < EACH; c++)
                kept |= ((c / 2 % 2 ? odd : even) >> (16 * r + 4 * (c / 4) + at + c % 2) & 1u)
                        << (EACH * r + c);
        return kept;
    }

    /* Rows are keys, of which those of four threads are a block. Each of the four draws every fourth
     * of their 16 queries, for both rows: query 4 i + g mod 4 in bits 4 i .. and 16 + 4 i ... */
    template <typename T>
    static __device__ inline uint32_t kept_by_key(const shape<T> &s, int sample, int head, int i0,
                                                  int j0)
    {
        vp_device_rng rng  = vp_rng_now(s.rng, s.control);
        int           lane = (int)threadIdx.x % VP_WARP, of_four = lane / 4 % 4;
        uint32_t      drawn = 0, kept = 0;

#pragma unroll 1
        for (int i = 0; i < 8; i++)
            drawn |= kept_of_block(s, rng, sample, head, i0 + column_of(i % 4 * 4 + of_four),
                                   (j0 + row_of(i / 4)) / 4)
                     << 4 * i;
#pragma unroll
        for (int from = 0; from < 4; from++) {
            uint32_t of_query =
                __shfl_sync(0xffffffffu, drawn, lane / 16 * 16 + from * 4 + lane % 4);

#pragma unroll
            for (int i = 0; i < 8; i++)
                kept |= (of_query >> (4 * i + of_four) & 1u) << (EACH * (i / 4) + i % 4 * 4 + from);
        }
        return kept;
    }
};

#endif
