/* kernels/cuda/optimizer_state.h: what the optimizers share on the device: parameters and states in
 * the forms they are kept in.
 *     struct halve {
 *         vp_param<P> param;
 *         template <bool WHOLE> __device__ void operator()(const vp_span<WHOLE> &at) const
 *         {
 *             float x[VP_LANE_N];
 *             vp_param_load(param, at, x);
 *             ... x[j] *= 0.5f ...
 *             vp_param_store(param, key, at, x);
 *         }
 *     };
 *     vp_each_span(count, aligned, halve);        // in a kernel of vp_span_blocks(count) blocks of
 *     VP_BLOCK threads
 *
 * The forms, what is rounded how and which random bits an element has are those of
 * kernels/cpu/update.h; an 8-bit state is that of kernels/cpu/dynamic8.h. Updates round as the
 * CPU's do, product by product, so that an element updated by itself has the same bits on both,
 * whatever form it is kept in.
 *
 * A warp takes a span of 256 neighbouring elements at a time, each lane 4 of the first 128 and 4 of
 * the others:
 *
 *     element j of a lane, 0 <= j < 8, is number first + 128 (j / 4) + 4 lane + j mod 4
 *
 * So a warp's accesses are runs of 512 bytes of fp32 (16 a lane), 256 of bf16 (8) and 128 of
 * codes (4); a span is a block of an 8-bit state; and its random bits, one Philox block for 8
 * elements, are one block a lane. */
#ifndef VP_KERNELS_CUDA_OPTIMIZER_STATE_H
#define VP_KERNELS_CUDA_OPTIMIZER_STATE_H

#include "kernels/cuda/cuda_gradient.h"

#include <math.h>

/* The grid is bounded, so that what a block prepares (scalars, maps) serves several spans of a
 * large parameter: beyond 4096 blocks, several times what any device holds at once, they take
 * more spans each. */
enum { VP_SPAN = VP_STATE_BLOCK, VP_LANE_N = VP_SPAN / VP_WARP, VP_QUAD = 4, VP_SPAN_GRID = 4096 };

/* Blocks of VP_BLOCK threads for spans over count elements. */
static inline unsigned vp_span_blocks(int64_t count)
{
    unsigned blocks = vp_blocks(count, VP_SPAN * (VP_BLOCK / VP_WARP));
    return blocks < VP_SPAN_GRID ? blocks : (unsigned)VP_SPAN_GRID;
}

/* Whether every operand of the call may be moved 16 bytes at a time. */
static inline bool vp_operands_are_aligned16(const vp_kernel_call *call)
{
    bool aligned = true;

    for (int i = 0; i < VP_MAX_OPERANDS; i++)
        aligned = aligned && vp_is_aligned16(call->operand[i]);
    return aligned;
}

/* a b + c, and a b + c d, the products and the sum each rounded: never contracted. */
static __device__ inline float vp_product_sum(float a, float b, float c)
{
    return __fadd_rn(__fmul_rn(a, b), c);
}

static __device__ inline float vp_product_sum(float a, float b, float c, float d)
{
    return vp_product_sum(a, b, __fmul_rn(c, d));
}

/* ---- spans ---- */

/* Elements first .. first + 255 of a parameter. WHOLE: all are there and every operand is
 * aligned, so whole quads are moved at once; else those from end on, which is the parameter's,
 * are read as zero and not written. */
template <bool WHOLE> struct vp_span {
    int64_t first, end;
};

/* f(span) for each span of this warp, in the block of this number among the n_blocks that share
 * the parameter. */
template <typename F>
static __device__ inline void vp_each_span(int64_t count, bool aligned, unsigned block,
                                           unsigned n_blocks, const F &f)
{
    const int warps = VP_BLOCK / VP_WARP;
    int64_t   warp  = (int64_t)block * warps + threadIdx.x / VP_WARP;

    for (int64_t first = warp * VP_SPAN; first < count;
         first += (int64_t)n_blocks * warps * VP_SPAN) {
        if (aligned && first + VP_SPAN <= count)
            f(vp_span<true>{first, count});
        else
            f(vp_span<false>{first, count});
    }
}

/* The whole grid for one parameter. */
template <typename F>
static __device__ inline void vp_each_span(int64_t count, bool aligned, const F &f)
{
    vp_each_span(count, aligned, blockIdx.x, gridDim.x, f);
}

/* Where the lane's quad `half` begins in the span: 0 <= it < 256. */
static __device__ inline int vp_quad_offset(int half)
{
    return half * (VP_SPAN / 2) + (int)(threadIdx.x % VP_WARP) * VP_QUAD;
}

/* Four elements to an address that is a multiple of their size together. */
static __device__ inline void vp_store_quad(float *p, const float *x)
{
    *reinterpret_cast<float4 *>(p) = make_float4(x[0], x[1], x[2], x[3]);
}

template <typename T> static __device__ inline void vp_store_quad(T *p, const float *x)
{
    *reinterpret_cast<uint64_t *>(p) =
        (uint64_t)vp_word_of<T>(x[2], x[3]) << 32 | vp_word_of<T>(x[0], x[1]);
}

template <bool WHOLE, typename T>
static __device__ inline void vp_span_load(const T *p, const vp_span<WHOLE> &at, float *x)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int64_t i = at.first + vp_quad_offset(half);

        if (WHOLE) {
            vp_load_quad(p + i, x + VP_QUAD * half);
        } else {
#pragma unroll
            for (int j = 0; j < VP_QUAD; j++)
                x[VP_QUAD * half + j] = i + j < at.end ? vp_load(p, i + j) : 0.0f;
        }
    }
}

template <bool WHOLE>
static __device__ inline void vp_span_load(const vp_gradient &g, const vp_span<WHOLE> &at, float *x)
{
    if (g.bf16)
        vp_span_load(g.bf16, at, x);
    else
        vp_span_load(g.f32, at, x);
}

/* 16 bits: each to nearest even. */
template <bool WHOLE, typename T>
static __device__ inline void vp_span_store(T *p, const vp_span<WHOLE> &at, const float *x)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int64_t i = at.first + vp_quad_offset(half);

        if (WHOLE) {
            vp_store_quad(p + i, x + VP_QUAD * half);
        } else {
#pragma unroll
            for (int j = 0; j < VP_QUAD; j++)
                if (i + j < at.end)
                    vp_store(p, i + j, x[VP_QUAD * half + j]);
        }
    }
}

/* ---- stochastic rounding ---- */

/* What random bits are for: the `sample` of their counter. */
enum { VP_DRAW_PARAM, VP_DRAW_FIRST_STATE, VP_DRAW_SECOND_STATE };

/* A float that is a bf16: away from zero with the probability of the share cut off, random being
 * uniform in 0 .. 65535. A bf16 stays itself, so infinities do; a NaN becomes quiet. */
static __device__ inline float vp_round_stochastically(float x, uint32_t random)
{
    uint32_t bits    = __float_as_uint(x),
             special = (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : bits;

    return __uint_as_float(((bits & 0x7f800000u) == 0x7f800000u ? special : bits + random) &
                           0xffff0000u);
}

/* Every element of the lane, in the span from `first` on, by its own 16 bits: half e mod 8 of
 * Philox block e / 8. Whole warps. In each half of the span two neighbouring lanes' quads have
 * one Philox block between them: the even lane computes that of the first half, the odd one that
 * of the second, and each hands its neighbour the two words that are the neighbour's. */
static __device__ inline void vp_span_round(const uint32_t *key, uint32_t use, int64_t first,
                                            float *x)
{
    int             lane  = (int)(threadIdx.x % VP_WARP);
    bool            odd   = lane % 2 != 0;
    uint64_t        block = (uint64_t)first / 8 + (uint64_t)(lane / 2 + (odd ? VP_SPAN / 16 : 0));
    vp_philox_block own   = vp_philox(key, (uint32_t)block, (uint32_t)(block >> 32), use, 0);
    uint32_t        a     = __shfl_xor_sync(0xffffffffu, odd ? own.x[0] : own.x[2], 1);
    uint32_t        b     = __shfl_xor_sync(0xffffffffu, odd ? own.x[1] : own.x[3], 1);
    const uint32_t  word[VP_LANE_N / 2] = {odd ? a : own.x[0], odd ? b : own.x[1],
                                          odd ? own.x[2] : a, odd ? own.x[3] : b};

#pragma unroll
    for (int j = 0; j < VP_LANE_N; j++)
        x[j] = vp_round_stochastically(x[j], word[j / 2] >> 16 * (j % 2) & 0xffffu);
}

/* ---- parameters ---- */

/* p and master of a call. What the update is made to is the master where there is one: p is then
 * its copy, of 16 bits the nearest. A bf16 p without a master is rounded stochastically; fp16 has one. */
template <typename P> struct vp_param {
    P     *p;
    float *master; /* or NULL */
};

template <typename P> static inline vp_param<P> vp_param_of(void *p, void *master)
{
    vp_param<P> a;

    a.p      = static_cast<P *>(p);
    a.master = static_cast<float *>(master);
    return a;
}

template <bool WHOLE, typename P>
static __device__ inline void vp_param_load(const vp_param<P> &a, const vp_span<WHOLE> &at,
                                            float *x)
{
    if (a.master)
        vp_span_load(a.master, at, x);
    else
        vp_span_load(a.p, at, x);
}

template <bool WHOLE, typename P>
static __device__ inline void vp_param_store(const vp_param<P> &a, const uint32_t *key,
                                             const vp_span<WHOLE> &at, float *x)
{
    if (a.master)
        vp_span_store(a.master, at, x);
    else if (sizeof(P) == sizeof(vp_bf16)) /* fp16 does not come here */
        vp_span_round(key, VP_DRAW_PARAM, at.first, x);
    vp_span_store(a.p, at, x);
}

/* ---- 8-bit states ---- */

/* The map of kernels/cpu/dynamic8.h, the same numbers, arranged for lanes that each look up
 * another one. Magnitudes fall into pieces: 0 whose nearest value is zero, 1 to 7 the decades, 8
 * whose nearest value is 1. In a piece the rank of a magnitude a among the values, zero's being
 * 0, is a slope + shift without its fraction, but `low` at least and `last` at most. Which piece
 * is found by a's exponent: no power of two is followed by two borders before the next one. */
struct vp_dynamic8 {
    struct alignas(16) {
        float slope, shift, low, last;
    } piece[9];
    struct alignas(8) {
        int   piece;
        float next; /* magnitudes from here on are of the next piece */
    } exponent[32]; /* of 2^-31 and less, 2^-30 .. 2^0 */
    float value[256];
};

static constexpr vp_dynamic8 vp_dynamic8_made(bool is_signed)
{
    vp_dynamic8 map          = {};
    double      of_rank[256] = {}, ten = 1e6; /* 10^(6-k) */
    float       from[10] = {};                /* of each piece; the last is never reached */
    int         rank = 1, n = is_signed ? 1 : 2;

    for (int k = 0; k < 7; k++, n *= 2, ten /= 10.0) {
        int first = rank;

        for (int j = 0; j < n; j++)
            of_rank[rank++] = (0.1 + 0.9 * (j + 0.5) / n) / ten;
        from[1 + k]            = (float)((of_rank[first - 1] + of_rank[first]) / 2.0);
        map.piece[1 + k].slope = (float)(ten / 0.9 * n);
        map.piece[1 + k].shift = (float)(first - n / 9.0);
        map.piece[1 + k].low   = 1.0f;
        /* half a part of room below the next whole number */
        map.piece[1 + k].last = (float)(rank - 0.5);
    }
    of_rank[rank]      = 1.0;
    from[8]            = (float)((of_rank[rank - 1] + 1.0) / 2.0);
    from[9]            = INFINITY;
    map.piece[8].shift = map.piece[8].last = (float)rank;
    for (int r = 0; r <= rank; r++) {
        map.value[is_signed ? 127 + r : r] = (float)of_rank[r];
        if (is_signed && r > 0 && r <= 127)
            map.value[127 - r] = (float)-of_rank[r];
    }
    float power = 0x1p-31f;
    for (int e = 0, at = 0; e < 32; e++, power *= 2.0f) {
        while (from[at + 1] <= power)
            at++;
        map.exponent[e].piece = at;
        map.exponent[e].next  = from[at + 1];
    }
    return map;
}

/* Made by the compiler; without a sign, with one. */
static __device__ const vp_dynamic8 vp_dynamic8_maps[2] = {vp_dynamic8_made(false),
                                                           vp_dynamic8_made(true)};

/* To shared memory. By the whole block; __syncthreads() is the caller's. */
static __device__ inline void vp_dynamic8_load(vp_dynamic8 *map, bool is_signed)
{
    const uint32_t *from = reinterpret_cast<const uint32_t *>(&vp_dynamic8_maps[is_signed]);
    uint32_t       *to   = reinterpret_cast<uint32_t *>(map);

#pragma unroll
    for (int i = 0; i < (int)(sizeof *map / sizeof *to); i += VP_BLOCK)
        if (i + (int)threadIdx.x < (int)(sizeof *map / sizeof *to))
            to[i + threadIdx.x] = from[i + threadIdx.x];
}

/* What a block is divided by: |x| / scale = factor |x| / divisor. The factor is a power of two
 * that keeps the divisor far from the ends of the range, so that one inverse serves all
 * elements. A scale of infinity makes zeros of finite numbers, as a division would. */
struct vp_dynamic8_scale {
    float factor, divisor, inverse;
};

static __device__ inline vp_dynamic8_scale vp_dynamic8_scale_of(float scale)
{
    vp_dynamic8_scale s;
    bool              usable = scale > 0.0f && scale < INFINITY; /* else zeros, or a NaN */

    s.factor  = scale == INFINITY  ? 0.0f
                : !usable          ? 1.0f
                : scale < 0x1p-32f ? 0x1p96f
                : scale > 0x1p64f  ? 0x1p-96f
                                   : 1.0f;
    s.divisor = usable ? scale * s.factor : 1.0f;
    s.inverse = 1.0f / s.divisor;
    return s;
}

/* The code of x. The quotient is corrected by its remainder (Markstein 1990): a / divisor
 * rounded, but for a last bit in rare cases. */
template <bool IS_SIGNED>
static __device__ inline uint32_t vp_dynamic8_code(const vp_dynamic8 &map, float x,
                                                   const vp_dynamic8_scale &s)
{
    float a = fabsf(x) * s.factor, q = __fmul_rn(a, s.inverse), r;
    int   e, at, rank;

    q = fmaf(fmaf(-q, s.divisor, a), s.inverse, q);
    e = (int)(__float_as_uint(q) >> 23) - (127 - 31);
    /* beside a NaN or an infinity it may be any: such a block decodes to no finite number */
    e    = (e < 0 ? 0 : e) & 31;
    at   = map.exponent[e].piece + (q >= map.exponent[e].next ? 1 : 0);
    r    = vp_product_sum(q, map.piece[at].slope, map.piece[at].shift);
    rank = (int)fmaxf(fminf(r, map.piece[at].last), map.piece[at].low);
    if (IS_SIGNED)
        return (uint32_t)(x < 0.0f ? 127 - (rank < 127 ? rank : 127) : 127 + rank);
    return (uint32_t)(x > 0.0f && rank == 0 ? 1 : rank);
}

/* ---- states ---- */

struct vp_state {
    void  *at;
    float *scale; /* VP_STATE_BLOCK8: behind the codes, one for each block */
};

static __device__ inline vp_state vp_state_of(void *operand, int64_t count)
{
    vp_state s;

    s.at = operand;
    s.scale =
        reinterpret_cast<float *>(static_cast<unsigned char *>(operand) + (count + 3) / 4 * 4);
    return s;
}

/* map is read for VP_STATE_BLOCK8 only. */
template <int KIND, bool WHOLE>
static __device__ inline void vp_state_load(const vp_state &s, const vp_dynamic8 *map,
                                            const vp_span<WHOLE> &at, float *x)
{
    if (KIND == VP_STATE_F32) {
        vp_span_load(static_cast<const float *>(s.at), at, x);
    } else if (KIND == VP_STATE_BF16) {
        vp_span_load(static_cast<const vp_bf16 *>(s.at), at, x);
    } else {
        const uint8_t *code  = static_cast<const uint8_t *>(s.at);
        float          scale = s.scale[at.first / VP_STATE_BLOCK];

#pragma unroll
        for (int half = 0; half < 2; half++) {
            int64_t  i    = at.first + vp_quad_offset(half);
            uint32_t four = 0;

            if (WHOLE)
                four = *reinterpret_cast<const uint32_t *>(code + i);
#pragma unroll
            for (int j = 0; j < VP_QUAD; j++) {
                if (!WHOLE)
                    four |= i + j < at.end ? (uint32_t)code[i + j] << 8 * j : 0u;
                x[VP_QUAD * half + j] =
                    WHOLE || i + j < at.end ? map->value[four >> 8 * j & 0xffu] * scale : 0.0f;
            }
        }
    }
}

/* Whole warps. x is read only: the parameter's update goes by the state before it is rounded. */
template <int KIND, bool IS_SIGNED, bool WHOLE>
static __device__ inline void vp_state_store(const vp_state &s, const vp_dynamic8 *map,
                                             const uint32_t *key, const vp_span<WHOLE> &at,
                                             const float *x)
{
    if (KIND == VP_STATE_F32) {
        vp_span_store(static_cast<float *>(s.at), at, x);
    } else if (KIND == VP_STATE_BF16) {
        float y[VP_LANE_N];

#pragma unroll
        for (int j = 0; j < VP_LANE_N; j++)
            y[j] = x[j];
        vp_span_round(key, IS_SIGNED ? VP_DRAW_FIRST_STATE : VP_DRAW_SECOND_STATE, at.first, y);
        vp_span_store(static_cast<vp_bf16 *>(s.at), at, y);
    } else {
        uint8_t *code = static_cast<uint8_t *>(s.at);
        int      best = 0;

        /* Without the sign bit floats are ordered as whole numbers, NaNs last: the scale of a
         * block with a NaN is one. */
#pragma unroll
        for (int j = 0; j < VP_LANE_N; j++) {
            int bits = (int)(__float_as_uint(x[j]) & 0x7fffffffu);
            best     = bits > best ? bits : best;
        }
        const float             scale = __uint_as_float((uint32_t)vp_warp_max(best));
        const vp_dynamic8_scale by    = vp_dynamic8_scale_of(scale);
        if (threadIdx.x % VP_WARP == 0)
            s.scale[at.first / VP_STATE_BLOCK] = scale;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int64_t  i    = at.first + vp_quad_offset(half);
            uint32_t four = 0;

#pragma unroll
            for (int j = 0; j < VP_QUAD; j++) {
                uint32_t c = vp_dynamic8_code<IS_SIGNED>(*map, x[VP_QUAD * half + j], by);

                four |= c << 8 * j;
                if (!WHOLE && i + j < at.end)
                    code[i + j] = (uint8_t)c;
            }
            if (WHOLE)
                *reinterpret_cast<uint32_t *>(code + i) = four;
        }
    }
}

#endif
