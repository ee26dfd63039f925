#include "base/sha256.h"

#include "base/base_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

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
        if (at == 0 && n == 64) {
            n = n_bytes - n_bytes % 64;
            vp_sha256_blocks(h->state, p, n / 64);
        } else {
            assert(n > 0 && at + n <= sizeof h->block);
            memcpy(h->block + at, p, n);
            if (at + n == 64)
                vp_sha256_blocks(h->state, h->block, 1);
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
