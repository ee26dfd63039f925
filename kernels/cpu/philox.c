/* kernels/cpu/philox.c: see philox.h. */
#include "kernels/cpu/philox.h"

#include "kernels/cpu/cpu_internal.h"

#include <assert.h>

/* Multipliers and Weyl increments: Salmon et al. 2011, table 2 and section 3.3. */
static const uint32_t mul0 = 0xD2511F53u, mul1 = 0xCD9E8D57u;
static const uint32_t weyl0 = 0x9E3779B9u, weyl1 = 0xBB67AE85u;

enum { ROUNDS = 10, WIDTH = 16, MASK_BLOCKS = 256 };

void vp_philox_raw(vp_philox_key key, const uint32_t ctr[4], uint32_t out[4])
{
    uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3];

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t a = (uint64_t)mul0 * c0, b = (uint64_t)mul1 * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ key.k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ key.k1;
        c3 = (uint32_t)a;
        key.k0 += weyl0;
        key.k1 += weyl1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static vp_philox_key derive(uint64_t seed, uint32_t a, uint32_t b, uint32_t domain)
{
    vp_philox_key key    = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t      ctr[4] = {a, b, 0, domain};

    vp_philox_raw(key, ctr, ctr);
    return (vp_philox_key){ctr[0], ctr[1]};
}

vp_philox_key vp_philox_key_of(const vp_rng_stream *rng)
{
    return derive(rng->seed, rng->step, rng->op, 1);
}

vp_philox_key vp_philox_key_of_name(uint64_t seed, const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a: offset basis, then prime */

    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        hash = (hash ^ *c) * 0x100000001b3u;
    return derive(seed, (uint32_t)hash, (uint32_t)(hash >> 32), 2);
}

void vp_philox(vp_philox_key key, uint64_t sample, uint64_t block, uint32_t out[4])
{
    uint32_t ctr[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)sample,
                       (uint32_t)(sample >> 32)};

    vp_philox_raw(key, ctr, out);
}

/* WIDTH counters side by side, one per vector lane. Words are 64 bits wide here, upper halves zero
 * where they are multiplied: a vector unit multiplies 32 x 32 -> 64 in just that form. */
VP_PER_ISA(many_blocks,
           (vp_philox_key key, uint64_t sample, uint64_t first_block, int64_t n_blocks,
            uint32_t *word),
           (key, sample, first_block, n_blocks, word))
{
    for (int64_t b0 = 0; b0 < n_blocks; b0 += WIDTH) {
        uint64_t c0[WIDTH], c1[WIDTH], c2[WIDTH], c3[WIDTH];
        uint64_t k0 = key.k0, k1 = key.k1;
        int64_t  n = n_blocks - b0 < WIDTH ? n_blocks - b0 : WIDTH;

#pragma omp simd
        for (int l = 0; l < WIDTH; l++) {
            uint64_t block = first_block + (uint64_t)b0 + (uint64_t)l;
            c0[l]          = block & 0xffffffffu;
            c1[l]          = block >> 32;
            c2[l]          = sample & 0xffffffffu;
            c3[l]          = sample >> 32;
        }
        for (int round = 0; round < ROUNDS; round++) {
#pragma omp simd
            for (int l = 0; l < WIDTH; l++) {
                uint64_t a = mul0 * c0[l], b = mul1 * c2[l];
                c0[l] = (b >> 32) ^ c1[l] ^ k0;
                c1[l] = b & 0xffffffffu;
                c2[l] = (a >> 32) ^ c3[l] ^ k1;
                c3[l] = a & 0xffffffffu;
            }
            k0 = (k0 + weyl0) & 0xffffffffu;
            k1 = (k1 + weyl1) & 0xffffffffu;
        }
        for (int64_t l = 0; l < n; l++) {
            uint32_t *w = word + 4 * (b0 + l);
            w[0]        = (uint32_t)c0[l];
            w[1]        = (uint32_t)c1[l];
            w[2]        = (uint32_t)c2[l];
            w[3]        = (uint32_t)c3[l];
        }
    }
}

void vp_philox_blocks(vp_philox_key key, uint64_t sample, uint64_t first_block, int64_t n_blocks,
                      uint32_t *word)
{
    many_blocks(key, sample, first_block, n_blocks, word);
}

VP_PER_ISA(keep_or_drop,
           (const uint32_t *word, uint32_t least, float scale, int64_t n, float *mask),
           (word, least, scale, n, mask))
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        mask[i] = word[i] >= least ? scale : 0.0f;
}

void vp_philox_mask(vp_philox_key key, uint64_t sample, uint64_t first_block, int64_t n, double p,
                    float *mask)
{
    uint32_t word[4 * MASK_BLOCKS];
    double   least = p * 4294967296.0 + 0.5;
    float    scale = (float)(1.0 / (1.0 - p));

    assert(p >= 0.0 && p <= 1.0 && n >= 0);
    if (!(least < 4294967296.0)) {
        memset(mask, 0, (size_t)n * sizeof(float));
        return;
    }
    for (int64_t i = 0; i < n; i += 4 * MASK_BLOCKS) {
        int64_t n_here = n - i < 4 * MASK_BLOCKS ? n - i : 4 * MASK_BLOCKS;

        many_blocks(key, sample, first_block + (uint64_t)(i / 4), (n_here + 3) / 4, word);
        keep_or_drop(word, (uint32_t)least, scale, n_here, mask + i);
    }
}
