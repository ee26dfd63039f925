/* base/sha256.h: SHA-256 (FIPS 180-4), for naming what was trained.
 *     vp_sha256 h = vp_sha256_begin();
 *     vp_sha256_add(&h, data, n_bytes);
 *     vp_sha256_hex(&h, text);              // ends it */
#ifndef VP_BASE_SHA256_H
#define VP_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct vp_sha256 {
    uint32_t      state[8];
    uint64_t      n_bytes;
    unsigned char block[64];
} vp_sha256;

vp_sha256 vp_sha256_begin(void);
void      vp_sha256_add(vp_sha256 *h, const void *data, size_t n_bytes);
void      vp_sha256_hex(vp_sha256 *h, char text[65]);

#endif
