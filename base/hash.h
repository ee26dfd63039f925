/* base/hash.h: one number for many bytes, for tables in memory.
 *     slots[vp_hash(key, strlen(key)) % N_SLOTS]
 * FNV-1a of 64 bits (Fowler, Noll, Vo). Who chooses the bytes can make many alike: what is looked for by it is compared too. */
#ifndef VP_BASE_HASH_H
#define VP_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t vp_hash(const void *bytes, size_t n_bytes)
{
    const unsigned char *at   = bytes;
    uint64_t             hash = UINT64_C(14695981039346656037);

    for (size_t i = 0; i < n_bytes; i++)
        hash = (hash ^ at[i]) * UINT64_C(1099511628211);
    return hash;
}

#endif
