/* kernels/cpu/gemm_bf16_x86.c: the classes of gemm_bf16.c that need instructions by name.
 *
 * | class       | panels of A, of B                                  | a step of the sum
 *               |
 * |-------------|----------------------------------------------------|--------------------------------------------------|
 * | AMX-BF16    | rows [k/32][32][32], pairs                         | tdpbf16ps: 32 of k
 *               |
 * | AVX512-BF16 | pairs, pairs                                       | vdpbf16ps: 2 of k
 * |
 * | AVX-512     | floats [k][32], floats                             | fused multiply-add: 1 of k
 *               |
 * | AVX2+FMA    | floats, floats                                     | the same, so its bits are
 *               those of AVX-512       |
 *
 * Pairs are [k/2][32 lines][2]: two neighbours in k lie together, as both bf16 instructions want
 * them. */
#include "kernels/cpu/gemm_bf16_internal.h"

#include <stddef.h>

#if !defined(__x86_64__)

const vp_gemm_bf16_kernels *vp_gemm_bf16_x86(vp_gemm_bf16_isa most, vp_gemm_bf16_isa *found)
{
    (void)most, (void)found;
    return NULL;
}

#else

#include <cpuid.h>
#include <immintrin.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define AVX2   __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma")))
#define BF16   __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx512bf16,fma")))
#define AMX \
    __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx512bf16,amx-tile,amx-bf16,fma")))

enum { LINES = VP_GEMM_BF16_LINES, UNIT = VP_GEMM_BF16_K_UNIT, UNIT_ELEMENTS = LINES * UNIT };

/* ---- packing with AVX-512 ---- */

/* The first n of 32 lanes. */
static inline __mmask32 lanes(int64_t n)
{
    return n >= 32 ? 0xffffffffu : n <= 0 ? 0 : (1u << n) - 1;
}

/* One unit of k, the first k of it there, of 32 lines that each are a stored row: 16 at a time,
 * turned around as a 16 x 16 matrix of pairs. x[i] goes in as 16 pairs of line i and comes out
 * as the ith pair of 16 lines. */
AVX512 static inline __attribute__((always_inline)) void turn(__m512i x[16])
{
    __m512i t[16];

    for (int i = 0; i < 16; i += 4) {
        t[i]     = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
        t[i + 2] = _mm512_unpacklo_epi32(x[i + 2], x[i + 3]);
        t[i + 3] = _mm512_unpackhi_epi32(x[i + 2], x[i + 3]);
    }
    /* x[i + c]: in each 128 bits, pair c of that quarter of 4 lines */
    for (int i = 0; i < 16; i += 4) {
        x[i]     = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        x[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        x[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        x[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int c = 0; c < 4; c++) { /* and the 128-bit quarters themselves, 4 x 4 of them */
        t[c]      = _mm512_shuffle_i32x4(x[c], x[c + 4], 0x88);
        t[c + 4]  = _mm512_shuffle_i32x4(x[c], x[c + 4], 0xdd);
        t[c + 8]  = _mm512_shuffle_i32x4(x[c + 8], x[c + 12], 0x88);
        t[c + 12] = _mm512_shuffle_i32x4(x[c + 8], x[c + 12], 0xdd);
    }
    for (int c = 0; c < 4; c++) {
        x[c]      = _mm512_shuffle_i32x4(t[c], t[c + 8], 0x88);
        x[c + 8]  = _mm512_shuffle_i32x4(t[c], t[c + 8], 0xdd);
        x[c + 4]  = _mm512_shuffle_i32x4(t[c + 4], t[c + 12], 0x88);
        x[c + 12] = _mm512_shuffle_i32x4(t[c + 4], t[c + 12], 0xdd);
    }
}

AVX512 static void unit_pairs_from_lines(uint16_t *to, const uint16_t *x, int64_t ld,
                                         int64_t n_lines, int64_t k)
{
    __mmask32 of_k = lanes(k);

    for (int half = 0; half < LINES; half += 16) {
        __m512i v[16];

        for (int i = 0; i < 16; i++)
            v[i] = half + i < n_lines ? _mm512_maskz_loadu_epi16(of_k, x + (half + i) * ld)
                                      : _mm512_setzero_si512();
        turn(v);
        for (int i = 0; i < 16; i++)
            _mm512_storeu_si512(to + i * 2 * LINES + 2 * half, v[i]);
    }
}

/* Row i of a unit stored by k, or zeros. */
AVX512 static inline __attribute__((always_inline)) __m512i k_row(const uint16_t *x, int64_t ld,
                                                                  __mmask32 of_lines, int64_t i,
                                                                  int64_t k)
{
    return i < k ? _mm512_maskz_loadu_epi16(of_lines, x + i * ld) : _mm512_setzero_si512();
}

AVX512 static void unit_pairs_from_k(uint16_t *to, const uint16_t *x, int64_t ld, int64_t n_lines,
                                     int64_t k)
{
    /* unpack works within 128 bits: its low half has lines 0-3 8-11 16-19 24-27, its high half
     * the others. */
    const __m512i first    = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    const __m512i second   = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    __mmask32     of_lines = lanes(n_lines);

    for (int i = 0; i < UNIT; i += 2) {
        __m512i x0 = k_row(x, ld, of_lines, i, k), x1 = k_row(x, ld, of_lines, i + 1, k);
        __m512i lo = _mm512_unpacklo_epi16(x0, x1), hi = _mm512_unpackhi_epi16(x0, x1);

        _mm512_storeu_si512(to + i * LINES, _mm512_permutex2var_epi64(lo, first, hi));
        _mm512_storeu_si512(to + i * LINES + LINES, _mm512_permutex2var_epi64(lo, second, hi));
    }
}

AVX512 static void pack_pairs(void *panel, const uint16_t *x, int64_t ld, bool k_rows,
                              int64_t n_lines, int64_t k)
{
    uint16_t *to = panel;

    for (int64_t u = 0; u < k; u += UNIT, to += UNIT_ELEMENTS) {
        if (k_rows)
            unit_pairs_from_k(to, x + u * ld, ld, n_lines, k - u);
        else
            unit_pairs_from_lines(to, x + u, ld, n_lines, k - u);
    }
}

/* ---- AMX ---- */

/* A tile's rows: 16 of A or of C; for B 16 pairs of k. All are 64 bytes wide. */
static const struct {
    uint8_t  palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t  n_rows[16];
} __attribute__((aligned(64))) tile_config = {
    .palette   = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .n_rows    = {16, 16, 16, 16, 16, 16, 16, 16},
};

AMX static void pack_amx_a(void *panel, const uint16_t *x, int64_t ld, bool k_rows, int64_t n_lines,
                           int64_t k)
{
    uint16_t *to = panel;

    if (!k_rows) {
        for (int64_t l = 0; l < n_lines; l++)
            for (int64_t u = 0; u < k; u += UNIT)
                _mm512_storeu_si512(to + u * LINES + l * UNIT,
                                    _mm512_maskz_loadu_epi16(lanes(k - u), x + l * ld + u));
        return;
    }
    for (int64_t u = 0; u < k; u += UNIT, to += UNIT_ELEMENTS) {
        const uint16_t *from     = x + u * ld;
        __mmask32       of_lines = lanes(n_lines);

        for (int high = 0; high < 2; high++) {
            __m512i v[16];

            for (int i = 0; i < 16; i++) {
                __m512i x0 = k_row(from, ld, of_lines, 2 * i, k - u);
                __m512i x1 = k_row(from, ld, of_lines, 2 * i + 1, k - u);
                v[i]       = high ? _mm512_unpackhi_epi16(x0, x1) : _mm512_unpacklo_epi16(x0, x1);
            }
            turn(v);
            /* Element i of the unpacked is line 8 (i / 4) + i % 4, or four more. */
            for (int i = 0; i < 16; i++)
                _mm512_storeu_si512(to + (8 * (i / 4) + i % 4 + 4 * high) * UNIT, v[i]);
        }
    }
}

/* Tiles 0 1 / 2 3: the quarters of C. 4 5: the halves of A. 6 7: the halves of B. */
AMX static void multiply_amx(const void *panel_a, const void *panel_b, int64_t k, const float *in,
                             int64_t ld_in, float *out, int64_t ld_out)
{
    const uint16_t *a = panel_a, *b = panel_b;

    /* GCC's tile loads do not tell it that they read memory. */
    __asm__ volatile("" ::: "memory");
    if (in) {
        _tile_loadd(0, in, ld_in * 4);
        _tile_loadd(1, in + 16, ld_in * 4);
        _tile_loadd(2, in + 16 * ld_in, ld_in * 4);
        _tile_loadd(3, in + 16 * ld_in + 16, ld_in * 4);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t u = 0; u < k; u += UNIT, a += UNIT_ELEMENTS, b += UNIT_ELEMENTS) {
        _tile_loadd(6, b, 4 * LINES);
        _tile_loadd(4, a, 2 * UNIT);
        _tile_loadd(7, b + LINES, 4 * LINES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a + 16 * UNIT, 2 * UNIT);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, out, ld_out * 4);
    _tile_stored(1, out + 16, ld_out * 4);
    _tile_stored(2, out + 16 * ld_out, ld_out * 4);
    _tile_stored(3, out + 16 * ld_out + 16, ld_out * 4);
}

AMX static void begin_amx(void)
{
    _tile_loadconfig(&tile_config);
}

/* Back to the initial state, so that a context switch has no tiles to save. */
AMX static void end_amx(void)
{
    _tile_release();
}

/* 32 bf16 as floats: the lower 16, and with high the upper. */
BF16 static inline __attribute__((always_inline)) __m512 half_as_floats(__m512i x, int high)
{
    __m256i half = high ? _mm512_extracti64x4_epi64(x, 1) : _mm512_castsi512_si256(x);

    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* vcvtne2ps2bf16 takes denormals for zeros. That is the way of this class: vdpbf16ps and
 * tdpbf16ps do so too. */
BF16 static void round_bf16(const float *tile, const uint16_t *bias, bool add, uint16_t *c,
                            int64_t ldc, int64_t n_rows, int64_t n_cols)
{
    __mmask32    of_cols = lanes(n_cols);
    __m512i      x       = bias ? _mm512_maskz_loadu_epi16(of_cols, bias) : _mm512_setzero_si512();
    __m512       x_lo = half_as_floats(x, 0), x_hi = half_as_floats(x, 1);
    const __m512 b_lo = x_lo, b_hi = x_hi;

    for (int64_t r = 0; r < n_rows; r++, c += ldc) {
        __m512 lo = _mm512_loadu_ps(tile + r * LINES), hi = _mm512_loadu_ps(tile + r * LINES + 16);

        if (add && bias) {
            lo = _mm512_add_ps(lo, b_lo);
            hi = _mm512_add_ps(hi, b_hi);
        }
        if (add) {
            x    = _mm512_maskz_loadu_epi16(of_cols, c);
            x_lo = half_as_floats(x, 0);
            x_hi = half_as_floats(x, 1);
        }
        lo = _mm512_add_ps(lo, x_lo);
        hi = _mm512_add_ps(hi, x_hi);
        _mm512_mask_storeu_epi16(c, of_cols, (__m512i)_mm512_cvtne2ps_pbh(hi, lo));
    }
}

/* ---- AVX512-BF16 ---- */

BF16 static void multiply_bf16(const void *panel_a, const void *panel_b, int64_t k, const float *in,
                               int64_t ld_in, float *out, int64_t ld_out)
{
    enum { ROWS = 8 };

    for (int64_t r = 0; r < LINES; r += ROWS) {
        const uint16_t *a = (const uint16_t *)panel_a + 2 * r, *b = panel_b;
        __m512          sum[ROWS][2];

        for (int i = 0; i < ROWS; i++)
            for (int h = 0; h < 2; h++)
                sum[i][h] =
                    in ? _mm512_loadu_ps(in + (r + i) * ld_in + 16 * h) : _mm512_setzero_ps();
        for (int64_t p = 0; p < k; p += 2, a += 2 * LINES, b += 2 * LINES) {
            __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + LINES);

            for (int i = 0; i < ROWS; i++) {
                int32_t pair;
                __m512i va;

                __builtin_memcpy(&pair, a + 2 * i, sizeof pair);
                va        = _mm512_set1_epi32(pair);
                sum[i][0] = _mm512_dpbf16_ps(sum[i][0], (__m512bh)va, (__m512bh)b0);
                sum[i][1] = _mm512_dpbf16_ps(sum[i][1], (__m512bh)va, (__m512bh)b1);
            }
        }
        for (int i = 0; i < ROWS; i++)
            for (int h = 0; h < 2; h++)
                _mm512_storeu_ps(out + (r + i) * ld_out + 16 * h, sum[i][h]);
    }
}

/* ---- AVX-512 and AVX2: widened, fused multiply-add ---- */

AVX512 static void pack_floats_avx512(void *panel, const uint16_t *x, int64_t ld, bool k_rows,
                                      int64_t n_lines, int64_t k)
{
    uint16_t pairs[UNIT_ELEMENTS];
    float   *to = panel;

    for (int64_t u = 0; u < k; u += UNIT) {
        if (k_rows)
            unit_pairs_from_k(pairs, x + u * ld, ld, n_lines, k - u);
        else
            unit_pairs_from_lines(pairs, x + u, ld, n_lines, k - u);
        for (int i = 0; i < UNIT_ELEMENTS; i += 2 * LINES, to += 2 * LINES)
            for (int h = 0; h < 2; h++) {
                __m512i v = _mm512_loadu_si512(pairs + i + LINES * h);
                _mm512_storeu_si512(to + 16 * h, _mm512_slli_epi32(v, 16));
                _mm512_storeu_si512(to + LINES + 16 * h,
                                    _mm512_slli_epi32(_mm512_srli_epi32(v, 16), 16));
            }
    }
}

AVX512 static void multiply_avx512(const void *panel_a, const void *panel_b, int64_t k,
                                   const float *in, int64_t ld_in, float *out, int64_t ld_out)
{
    enum { ROWS = 8 };

    for (int64_t r = 0; r < LINES; r += ROWS) {
        const float *a = (const float *)panel_a + r, *b = panel_b;
        __m512       sum[ROWS][2];

        for (int i = 0; i < ROWS; i++)
            for (int h = 0; h < 2; h++)
                sum[i][h] =
                    in ? _mm512_loadu_ps(in + (r + i) * ld_in + 16 * h) : _mm512_setzero_ps();
        for (int64_t p = 0; p < k; p++, a += LINES, b += LINES) {
            __m512 b0 = _mm512_loadu_ps(b), b1 = _mm512_loadu_ps(b + 16);

            for (int i = 0; i < ROWS; i++) {
                __m512 va = _mm512_set1_ps(a[i]);
                sum[i][0] = _mm512_fmadd_ps(va, b0, sum[i][0]);
                sum[i][1] = _mm512_fmadd_ps(va, b1, sum[i][1]);
            }
        }
        for (int i = 0; i < ROWS; i++)
            for (int h = 0; h < 2; h++)
                _mm512_storeu_ps(out + (r + i) * ld_out + 16 * h, sum[i][h]);
    }
}

AVX2 static void pack_floats_avx2(void *panel, const uint16_t *x, int64_t ld, bool k_rows,
                                  int64_t n_lines, int64_t k)
{
    uint16_t pairs[UNIT_ELEMENTS] = {0};
    float   *to                   = panel;

    for (int64_t u = 0; u < k; u += UNIT) {
        vp_gemm_bf16_pack_pairs(pairs, k_rows ? x + u * ld : x + u, ld, k_rows, n_lines,
                                k - u < UNIT ? k - u : UNIT);
        for (int i = 0; i < UNIT_ELEMENTS; i += 2 * LINES, to += 2 * LINES)
            for (int h = 0; h < 4; h++) {
                __m256i v = _mm256_loadu_si256((const __m256i *)(pairs + i + 16 * h));
                _mm256_storeu_si256((__m256i *)(to + 8 * h), _mm256_slli_epi32(v, 16));
                _mm256_storeu_si256((__m256i *)(to + LINES + 8 * h),
                                    _mm256_slli_epi32(_mm256_srli_epi32(v, 16), 16));
            }
    }
}

AVX2 static void multiply_avx2(const void *panel_a, const void *panel_b, int64_t k, const float *in,
                               int64_t ld_in, float *out, int64_t ld_out)
{
    enum { ROWS = 4 };

    for (int64_t c = 0; c < LINES; c += 16)
        for (int64_t r = 0; r < LINES; r += ROWS) {
            const float *a = (const float *)panel_a + r, *b = (const float *)panel_b + c;
            __m256       sum[ROWS][2];

            for (int i = 0; i < ROWS; i++)
                for (int h = 0; h < 2; h++)
                    sum[i][h] = in ? _mm256_loadu_ps(in + (r + i) * ld_in + c + 8 * h)
                                   : _mm256_setzero_ps();
            for (int64_t p = 0; p < k; p++, a += LINES, b += LINES) {
                __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + 8);

                for (int i = 0; i < ROWS; i++) {
                    __m256 va = _mm256_set1_ps(a[i]);
                    sum[i][0] = _mm256_fmadd_ps(va, b0, sum[i][0]);
                    sum[i][1] = _mm256_fmadd_ps(va, b1, sum[i][1]);
                }
            }
            for (int i = 0; i < ROWS; i++)
                for (int h = 0; h < 2; h++)
                    _mm256_storeu_ps(out + (r + i) * ld_out + c + 8 * h, sum[i][h]);
        }
}

/* ---- which of them ---- */

static const vp_gemm_bf16_kernels classes[] = {
    [VP_GEMM_BF16_AVX2] =
        {
            .name          = "AVX2+FMA",
            .element_bytes = 4,
            .mac_per_cycle = 14,
            .pack_a        = pack_floats_avx2,
            .pack_b        = pack_floats_avx2,
            .multiply      = multiply_avx2,
        },
    [VP_GEMM_BF16_AVX512] =
        {
            .name          = "AVX-512",
            .element_bytes = 4,
            .mac_per_cycle = 28,
            .pack_a        = pack_floats_avx512,
            .pack_b        = pack_floats_avx512,
            .multiply      = multiply_avx512,
        },
    [VP_GEMM_BF16_AVX512_BF16] =
        {
            .name          = "AVX512-BF16",
            .element_bytes = 2,
            .mac_per_cycle = 30,
            .pack_a        = pack_pairs,
            .pack_b        = pack_pairs,
            .multiply      = multiply_bf16,
            .round         = round_bf16,
        },
    [VP_GEMM_BF16_AMX] =
        {
            .name          = "AMX-BF16",
            .element_bytes = 2,
            .mac_per_cycle = 400,
            .pack_a        = pack_amx_a,
            .pack_b        = pack_pairs,
            .multiply      = multiply_amx,
            .round         = round_bf16,
            .begin         = begin_amx,
            .end           = end_amx,
        },
};

/* The kernel gives a process the tiles' state only when asked (Linux 5.16 and later). Once is
 * enough for every thread, asking again does no harm; no where a thread's signal stack could not
 * hold the state. */
static bool amx_is_granted(void)
{
#if defined(__linux__)
    /* asm/prctl.h; the number of the state in XCR0 */
    enum { REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XTILEDATA) == 0;
#else
    return false;
#endif
}

static vp_gemm_bf16_isa best_here(vp_gemm_bf16_isa most)
{
    enum { EDX_AMX_BF16 = 1 << 22, EDX_AMX_TILE = 1 << 24 }; /* of CPUID leaf 7 */
    unsigned a, b, c, d = 0;

    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        most < VP_GEMM_BF16_AVX2)
        return VP_GEMM_BF16_BASELINE;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512bw") ||
        most < VP_GEMM_BF16_AVX512)
        return VP_GEMM_BF16_AVX2;
    if (!__builtin_cpu_supports("avx512bf16") || most < VP_GEMM_BF16_AVX512_BF16)
        return VP_GEMM_BF16_AVX512;
    if (most < VP_GEMM_BF16_AMX || !__get_cpuid_count(7, 0, &a, &b, &c, &d) ||
        !(d & EDX_AMX_BF16) || !(d & EDX_AMX_TILE) || !amx_is_granted())
        return VP_GEMM_BF16_AVX512_BF16;
    return VP_GEMM_BF16_AMX;
}

const vp_gemm_bf16_kernels *vp_gemm_bf16_x86(vp_gemm_bf16_isa most, vp_gemm_bf16_isa *found)
{
    *found = best_here(most);
    return *found == VP_GEMM_BF16_BASELINE ? NULL : &classes[*found];
}

#endif
