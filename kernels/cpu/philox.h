/* kernels/cpu/philox.h: Philox4x32-10, the counter-based generator behind every random number.
 *     vp_philox_key key = vp_philox_key_of(&call->rng);
 *     vp_philox(key, sample, element / 4, word);       word[element % 4] is this element's
 *
 * Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3". The output is
 * a function of (key, counter) alone: no state, so neither recompute nor order nor threads move
 * a number. */
#ifndef VP_KERNELS_CPU_PHILOX_H
#define VP_KERNELS_CPU_PHILOX_H

#include "plan/op.h"

#include <stdint.h>

typedef struct vp_philox_key {
    uint32_t k0, k1;
} vp_philox_key;

/* The raw generator: ctr and out are four words, little end first. out may be ctr. */
void vp_philox_raw(vp_philox_key key, const uint32_t ctr[4], uint32_t out[4]);

/* (seed, step, op) is twice as wide as a key, so it is hashed by one round of the generator itself:
 * the key is the first two words of Philox(key = seed, counter = (step, op, 0, 1)). */
vp_philox_key vp_philox_key_of(const vp_rng_stream *rng);

/* The same for the parameter drawn as name: counter = (FNV-1a 64 of name, 0, 2). */
vp_philox_key vp_philox_key_of_name(uint64_t seed, const char *name);

/* Four words of counter (block, sample), 64 bits each. */
void vp_philox(vp_philox_key key, uint64_t sample, uint64_t block, uint32_t out[4]);

/* Dropout: element e of the sample is dropped where its word is less than round(p * 2^32).
 * mask[i] = 0 or 1 / (1 - p) for elements 4 * first_block + i, 0 <= i < n. 0 <= p; p >= 1 drops
 * all. */
void vp_philox_mask(vp_philox_key key, uint64_t sample, uint64_t first_block, int64_t n, double p,
                    float *mask);

/* n_blocks blocks from first_block on, 4 words each, into word. */
void vp_philox_blocks(vp_philox_key key, uint64_t sample, uint64_t first_block, int64_t n_blocks,
                      uint32_t *word);

/* The block that holds the mask of attention probability (head, query i, keys 4 j4 .. 4 j4 + 3):
 * every row of the probability matrix starts on a block of its own. */
static inline uint64_t vp_philox_attention_block(int64_t seq, int64_t head, int64_t i, int64_t j4)
{
    return (uint64_t)(head * seq + i) * (uint64_t)((seq + 3) / 4) + (uint64_t)j4;
}

#endif
