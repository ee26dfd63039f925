#include "base/sha256.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const uint32_t K[64] = {
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

static void digest_block(vp_sha256 *h, const unsigned char *p)
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
    memcpy(s, h->state, sizeof s);
    for (int i = 0; i < 64; i += 8) /* what is called a..h moves on, not what it holds */
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            uint32_t *a = &s[-k & 7], *b = &s[(1 - k) & 7], *c = &s[(2 - k) & 7],
                     *d = &s[(3 - k) & 7], *e = &s[(4 - k) & 7], *f = &s[(5 - k) & 7],
                     *g = &s[(6 - k) & 7], *last = &s[(7 - k) & 7];
            uint32_t t1 = *last + (rotr(*e, 6) ^ rotr(*e, 11) ^ rotr(*e, 25)) +
                          ((*e & *f) ^ (~*e & *g)) + K[i + k] + w[i + k];
            *d += t1;
            *last = t1 + (rotr(*a, 2) ^ rotr(*a, 13) ^ rotr(*a, 22)) +
                    ((*a & *b) ^ (*a & *c) ^ (*b & *c));
        }
    for (int i = 0; i < 8; i++)
        h->state[i] += s[i];
}

vp_sha256 vp_sha256_begin(void)
{
    return (vp_sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void vp_sha256_add(vp_sha256 *h, const void *data, size_t n_bytes)
{
    const unsigned char *p = data;

    while (n_bytes) {
        size_t at = (size_t)(h->n_bytes % 64), n = 64 - at < n_bytes ? 64 - at : n_bytes;
        assert(n > 0 && at + n <= sizeof h->block);
        if (at == 0 && n == 64) {
            digest_block(h, p);
        } else {
            memcpy(h->block + at, p, n);
            if (at + n == 64)
                digest_block(h, h->block);
        }
        h->n_bytes += n;
        p += n;
        n_bytes -= n;
    }
}

void vp_sha256_hex(vp_sha256 *h, char text[65])
{
    static const unsigned char padding[64] = {0x80};
    uint64_t                   n_bits      = h->n_bytes * 8;
    size_t                     at          = (size_t)(h->n_bytes % 64);
    unsigned char              length[8];

    vp_sha256_add(h, padding, at < 56 ? 56 - at : 120 - at);
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(n_bits >> (56 - 8 * i));
    vp_sha256_add(h, length, 8);
    assert(h->n_bytes % 64 == 0); /* padding and length fill the last block */
    for (int i = 0; i < 8; i++)
        snprintf(text + 8 * i, 9, "%08x", h->state[i]);
}
