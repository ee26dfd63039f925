/* trainers/torch/caching_allocator_state.h: what an allocator holds, for the files that change it:
 *
 *     caching_allocator_state.h      blocks, pools, queues, figures
 *     caching_allocator_index.h      the free blocks of a pool, by size
 *     caching_allocator_segments.c   memory of the device: segments, ranges of addresses
 *     caching_allocator_streams.c    blocks that another stream may still use
 *     caching_allocator_repeat.c     whether a round of events left what the one before it left
 *     caching_allocator_release.c    giving memory back, and what happens when none is left
 *     caching_allocator.c            an allocation, a free
 *
 * each of which calls those above it. Its names without vp_ are for these files alone. */
#ifndef VP_TRAINERS_TORCH_CACHING_ALLOCATOR_STATE_H
#define VP_TRAINERS_TORCH_CACHING_ALLOCATOR_STATE_H

#include "base/units.h"
#include "trainers/torch/caching_allocator.h"

#include <assert.h>

/* c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h name these kMinBlockSize,
 * kSmallSize, kSmallBuffer, kMinLargeAlloc, kRoundLarge. */
#define ROUND_BYTES         ((int64_t)512)
#define SMALL_BYTES         (1 * VP_MIB) /* the largest request of the small pool */
#define SMALL_SEGMENT_BYTES (2 * VP_MIB)
#define OWN_SEGMENT_BYTES   (10 * VP_MIB) /* from here on a request gets a segment of its size */
#define LARGE_ROUND_BYTES   (2 * VP_MIB)

/* No option: larger than any block. */
#define NEVER_BYTES ((int64_t)1 << 62)

/* A free block lies in the bin of its size: one bin for each multiple of 512 below 32 KiB, then 32
 * for each power of two. In a bin, a tree by size and address. */
enum { BINS_PER_POWER_LOG2 = 5, BINS = 1536, BIN_WORDS = BINS / 64 };

/* A piece of a segment; those of one segment are linked by address. 64 bytes: one cache line. */
typedef struct block {
    int64_t at, bytes;
    int64_t asked_bytes;
    /* free: searches of its kind of pool when it became so, its age; in use: the allocation that made it */
    int64_t  searches;
    uint64_t uses;        /* the other streams it is used on, a bit each */
    uint32_t prev, next;  /* by address; 0: the segment's end */
    uint32_t left, right; /* in the tree it is in */
    uint16_t bin;         /* free and mapped: where its pool has it */
    uint8_t  stream;
    uint8_t  n_events; /* streams that must yet pass its last use */
    bool     large, used, mapped, expandable;
} block;

/* Where a block is in the order in which free ones are taken. */
typedef struct rank {
    int64_t bytes, at;
} rank;

/* The free blocks of one stream and one kind. */
typedef struct pool {
    uint32_t roots[BINS];
    uint64_t words[BIN_WORDS]; /* which bins hold something  */
    uint32_t summary;          /* which words hold something */
    uint32_t unmapped;         /* addresses without memory, a tree by address */
    rank     last_taken
        [BINS]; /* of blocks that a bin's requests took in this round, the last in order */
} pool;

/* Blocks whose last use a stream must pass, in the order they were freed. */
typedef struct event_queue {
    uint32_t *blocks; /* a ring of cap */
    int64_t   head, tail, cap;
    int64_t   done;     /* the stream has passed all before this */
    int64_t   n_claims; /* recorded uses that will need a place */
} event_queue;

/* Addresses of segments, in the order in which they are given. */
typedef struct span {
    int64_t at, bytes;
} span;

typedef struct spans {
    span   *list; /* room for as many as there are blocks */
    int64_t n;
    int64_t first_gap; /* before those ahead of it there is no room for a segment */
} spans;

/* Events since vp_caching_allocator_begin_round(). */
typedef struct event_round {
    int64_t since, n_device_frees; /* n_allocs and device frees when it began */
    int64_t n_in_use;              /* blocks that it made and has not freed */
    /* the same events once more might find other blocks; also where no round was begun */
    bool differs;
} event_round;

struct vp_caching_allocator {
    vp_caching_figures figures; /* first: vp_caching_allocator_figures() */
    block   *blocks; /* blocks[0] stands for none: in use for ever, its neighbours mean nothing */
    int64_t  n_blocks, cap_blocks;
    uint32_t spare; /* blocks that are nobody's, linked by next */
    int64_t  n_spare;
    pool    *pools[VP_CACHING_STREAMS][2]; /* [1]: large */
    int      n_streams;                    /* that have pools */
    int64_t  n_events;
    int64_t  n_allocs; /* so far */
    bool     ages, rounds_up;
    int64_t  searches[2];
    int64_t  max_split_bytes, max_non_split_rounding_bytes, large_segment_bytes;
    int64_t  others_bytes, next_at;
    spans    segments[2]; /* where addresses fall: small ones rising, large ones falling */
    vp_caching_allocator_opts opts;
    vp_caching_oom            oom;
    event_queue               queues[VP_CACHING_STREAMS];
    event_round               round;
};

/* ---- figures ---- */

static inline void add_to(vp_caching_figure *f, int64_t n)
{
    f->now += n;
    if (f->now > f->peak)
        f->peak = f->now;
}

/* A pool gets memory from the device: a segment, or NULL: more of an expandable one. */
void vp_caching_round_grows(vp_caching_allocator *a, const pool *p, const rank *segment);

/* Bytes that came from the device, or with a minus went back. */
void vp_caching_device_memory(vp_caching_allocator *a, int64_t bytes);

/* ---- blocks ---- */

/* Room for n blocks more than there are. False: no host memory. */
bool vp_caching_blocks_grow(vp_caching_allocator *a, int64_t n);

/* Make sure that n more block_new() succeed. False: no host memory. */
static inline bool blocks_reserve(vp_caching_allocator *a, int64_t n)
{
    return a->n_spare + a->cap_blocks - a->n_blocks >= n || vp_caching_blocks_grow(a, n);
}

static inline uint32_t block_new(vp_caching_allocator *a, const block *from, int64_t at,
                                 int64_t bytes)
{
    uint32_t b = a->spare;

    if (b) {
        a->spare = a->blocks[b].next;
        a->n_spare--;
    } else {
        assert(a->n_blocks < a->cap_blocks); /* blocks_reserve() */
        b = (uint32_t)a->n_blocks++;
    }
    a->blocks[b] = (block){.at         = at,
                           .bytes      = bytes,
                           .stream     = from->stream,
                           .large      = from->large,
                           .mapped     = from->mapped,
                           .expandable = from->expandable};
    return b;
}

static inline void block_delete(vp_caching_allocator *a, uint32_t b)
{
    a->blocks[b].next = a->spare;
    a->spare          = b;
    a->n_spare++;
}

/* Put block b between prev and next, which are neighbours; either may be 0. */
static inline void splice(block *all, uint32_t prev, uint32_t b, uint32_t next)
{
    all[b].prev    = prev;
    all[b].next    = next;
    all[prev].next = b;
    all[next].prev = b;
}

static inline bool alone(const block *b)
{
    return !b->prev && !b->next;
}

static inline bool available(const block *b)
{
    return !b->used && !b->n_events;
}

#endif
