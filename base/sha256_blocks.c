/* SHA-256's compression function: in C, and by the processor's own instructions (SHA-NI), some eight
 * times as fast: a plan file of megabytes is digested in milliseconds each time it is read. */
#include "base/base_internal.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

static const uint32_t ROUNDS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotr(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void digest_block(uint32_t state[8], const unsigned char *p)
{
    uint32_t w[64], s[8];

    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (rotr(a, 7) ^ rotr(a, 18) ^ a >> 3) +
               (rotr(b, 17) ^ rotr(b, 19) ^ b >> 10);
    }
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i += 8) /* what is called a..h moves on, not what it holds */
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            uint32_t *a = &s[-k & 7], *b = &s[(1 - k) & 7], *c = &s[(2 - k) & 7],
                     *d = &s[(3 - k) & 7], *e = &s[(4 - k) & 7], *f = &s[(5 - k) & 7],
                     *g = &s[(6 - k) & 7], *last = &s[(7 - k) & 7];
            uint32_t t1 = *last + (rotr(*e, 6) ^ rotr(*e, 11) ^ rotr(*e, 25)) +
                          ((*e & *f) ^ (~*e & *g)) + ROUNDS[i + k] + w[i + k];
            *d += t1;
            *last = t1 + (rotr(*a, 2) ^ rotr(*a, 13) ^ rotr(*a, 22)) +
                    ((*a & *b) ^ (*a & *c) ^ (*b & *c));
        }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

void vp_sha256_blocks_c(uint32_t state[8], const unsigned char *p, size_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, p += 64)
        digest_block(state, p);
}

#if defined(__x86_64__)

bool vp_sha256_has_x86(void)
{
    unsigned a, b, c, d;

    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSSE3) || !(c & bit_SSE4_1))
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & 1u << 29; /* SHA */
}

/* The instructions keep a..h as ABEF and CDGH, the highest word first (Intel SDM, SHA256RNDS2). */
__attribute__((target("sha,sse4.1"))) void vp_sha256_blocks_x86(uint32_t             state[8],
                                                                const unsigned char *p,
                                                                size_t               n_blocks)
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i       low        = _mm_loadu_si128((const __m128i *)&state[0]); /* DCBA */
    __m128i       high       = _mm_loadu_si128((const __m128i *)&state[4]); /* HGFE */
    __m128i       cdab       = _mm_shuffle_epi32(low, 0xb1);
    __m128i       efgh       = _mm_shuffle_epi32(high, 0x1b);
    __m128i       abef       = _mm_alignr_epi8(cdab, efgh, 8);
    __m128i       cdgh       = _mm_blend_epi16(efgh, cdab, 0xf0);

    for (; n_blocks > 0; n_blocks--, p += 64) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i       w[4];

        for (int i = 0; i < 4; i++)
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(p + 16 * i)), big_endian);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) { /* four rounds each; w[i & 3] are their words */
            __m128i k = _mm_add_epi32(w[i & 3], _mm_loadu_si128((const __m128i *)&ROUNDS[4 * i]));
            cdgh      = _mm_sha256rnds2_epu32(cdgh, abef, k);
            abef      = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(k, 0x0e));
            /* the words of four groups on: s0 of these and the next, the ninth before, s1 */
            w[i & 3] = _mm_sha256msg2_epu32(
                _mm_add_epi32(_mm_sha256msg1_epu32(w[i & 3], w[(i + 1) & 3]),
                              _mm_alignr_epi8(w[(i + 3) & 3], w[(i + 2) & 3], 4)),
                w[(i + 3) & 3]);
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    low  = _mm_shuffle_epi32(abef, 0x1b); /* FEBA */
    high = _mm_shuffle_epi32(cdgh, 0xb1); /* DCHG */
    _mm_storeu_si128((__m128i *)&state[0], _mm_blend_epi16(low, high, 0xf0));
    _mm_storeu_si128((__m128i *)&state[4], _mm_alignr_epi8(high, low, 8));
}

#else

bool vp_sha256_has_x86(void)
{
    return false;
}

void vp_sha256_blocks_x86(uint32_t state[8], const unsigned char *p, size_t n_blocks)
{
    vp_sha256_blocks_c(state, p, n_blocks);
}

#endif

void vp_sha256_blocks(uint32_t state[8], const unsigned char *p, size_t n_blocks)
{
    static int has_x86 = -1;

    if (has_x86 < 0)
        has_x86 = vp_sha256_has_x86();
    (has_x86 ? vp_sha256_blocks_x86 : vp_sha256_blocks_c)(state, p, n_blocks);
}
