/* trainers/torch/torch_internal.h: what the files of this folder call of each other. */
#ifndef VP_TRAINERS_TORCH_TORCH_INTERNAL_H
#define VP_TRAINERS_TORCH_TORCH_INTERNAL_H

#include "trainers/torch/caching_allocator.h"

/* VP_ERR_INPUT: PyTorch would refuse these options; err->field is its name of the setting. */
vp_status vp_caching_allocator_opts_check(const vp_caching_allocator_opts *o, vp_err *err);

/* ---- caching_allocator_segments.c ---- */

/* What the card has left. */
int64_t vp_caching_device_free_bytes(const vp_caching_allocator *a);

/* Addresses for bytes above all those before, at a multiple of unit; 0 when there are no more. */
int64_t vp_caching_addresses_new(vp_caching_allocator *a, int64_t bytes, int64_t unit);
/* Those of a segment; 0: there are none. */
int64_t vp_caching_addresses_of_segment(vp_caching_allocator *a, int64_t bytes);

/* A whole segment, that is one free block, goes back to the device. */
void vp_caching_segment_free(vp_caching_allocator *a, uint32_t b);

/* A free block of at least bytes of an expandable segment, taken out of its pool; 0 when the device
 * is full. Memory that was mapped by then stays. */
uint32_t vp_caching_expand(vp_caching_allocator *a, int stream, bool large, int64_t bytes);

/* The whole pieces of a free block of an expandable segment go back; where nothing of the range is
 * left in use, its addresses too. Needs two blocks reserved. */
void vp_caching_range_trim(vp_caching_allocator *a, uint32_t b);

/* ---- caching_allocator_streams.c ---- */

/* Blocks whose last use every stream has passed become free. */
void vp_caching_process_events(vp_caching_allocator *a);

/* All streams are waited for. */
void vp_caching_synchronize(vp_caching_allocator *a);

/* ---- caching_allocator_release.c ---- */

/* No free block suits: a new one for bytes, which asked_bytes were rounded up to. VP_ERR_NO_FIT, with the numbers of PyTorch's message:
 * all was in vain, and *found is 0. VP_ERR_NOMEM: of the host. */
vp_status vp_caching_obtain(vp_caching_allocator *a, int stream, int64_t bytes, int64_t asked_bytes,
                            uint32_t *found, vp_err *err);

#endif
