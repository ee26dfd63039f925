#include "trainers/torch/caching_allocator.h"

#include "base/checked.h"
#include "base/units.h"
#include "trainers/torch/torch_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h name these kMinBlockSize,
 * kSmallSize, kSmallBuffer, kMinLargeAlloc, kRoundLarge. */
#define ROUND_BYTES         ((int64_t)512)
#define SMALL_BYTES         (1 * VP_MIB) /* the largest request of the small pool */
#define SMALL_SEGMENT_BYTES (2 * VP_MIB)
#define OWN_SEGMENT_BYTES   (10 * VP_MIB) /* from here on a request gets a segment of its size */
#define LARGE_ROUND_BYTES   (2 * VP_MIB)

/* Older versions of torch 2 have not been compared. */
enum { OLDEST_MINOR = 7 };

/* No option: larger than any block. */
#define NEVER_BYTES ((int64_t)1 << 62)

/* What a card without an end calls its total, where addresses must be reserved: more than any
 * request. */
#define ENDLESS_BYTES ((int64_t)1 << VP_CACHING_REQUEST_BITS)

/* A free block lies in the bin of its size: one bin for each multiple of 512 below 32 KiB, then 32
 * for each power of two. In a bin, a tree by size and address. */
enum { BINS_PER_POWER_LOG2 = 5, BINS = 1536, BIN_WORDS = BINS / 64 };

/* A piece of a segment; those of one segment are linked by address. 64 bytes: one cache line. */
typedef struct block {
    int64_t  at, bytes;
    int64_t  asked_bytes;
    int64_t  searches;    /* of its kind of pool, when the block became free: its age */
    uint64_t uses;        /* the other streams it is used on, a bit each */
    uint32_t prev, next;  /* by address; 0: the segment's end */
    uint32_t left, right; /* in the tree it is in */
    uint8_t  stream;
    uint8_t  n_events; /* streams that must yet pass its last use */
    bool     large, used, mapped, expandable;
} block;

/* The free blocks of one stream and one kind. */
typedef struct pool {
    uint32_t roots[BINS];
    uint64_t words[BIN_WORDS]; /* which bins hold something  */
    uint32_t summary;          /* which words hold something */
    uint32_t unmapped;         /* addresses without memory, a tree by address */
} pool;

/* Blocks whose last use a stream must pass, in the order they were freed. */
typedef struct event_queue {
    uint32_t *blocks; /* a ring of cap */
    int64_t   head, tail, cap;
    int64_t   done;     /* the stream has passed all before this */
    int64_t   n_claims; /* recorded uses that will need a place */
} event_queue;

struct vp_caching_allocator {
    block                    *blocks; /* blocks[0] stands for none */
    int64_t                   n_blocks, cap_blocks;
    uint32_t                  spare; /* blocks that are nobody's, linked by next */
    int64_t                   n_spare;
    vp_caching_figures        figures;
    pool                     *pools[VP_CACHING_STREAMS][2]; /* [1]: large */
    int                       n_streams;                    /* that have pools */
    int64_t                   n_events;
    bool                      ages, rounds_up;
    int64_t                   searches[2];
    int64_t                   max_split_bytes, max_non_split_rounding_bytes, large_segment_bytes;
    int64_t                   others_bytes, next_at;
    vp_caching_allocator_opts opts;
    vp_caching_oom            oom;
    event_queue               queues[VP_CACHING_STREAMS];
};

/* ---- figures ---- */

static inline void add_to(vp_caching_figure *f, int64_t n)
{
    f->now += n;
    if (f->now > f->peak)
        f->peak = f->now;
}

static void device_memory(vp_caching_allocator *a, int64_t bytes)
{
    add_to(&a->figures.reserved_bytes, bytes);
    if (bytes > 0)
        a->figures.n_device_allocs++;
    else
        a->figures.n_device_frees++;
    if (a->opts.on_segment)
        a->opts.on_segment(a->opts.on_segment_context, bytes);
}

/* ---- blocks ---- */

/* Make sure that n more block_new() succeed. */
static bool blocks_reserve(vp_caching_allocator *a, int64_t n)
{
    int64_t cap = a->cap_blocks ? a->cap_blocks : 1024;
    block  *p;

    if (a->n_spare + a->cap_blocks - a->n_blocks >= n)
        return true;
    while (cap - a->n_blocks < n)
        cap *= 2;
    if (cap > UINT32_MAX)
        return false;
    p = realloc(a->blocks, (size_t)cap * sizeof *p);
    if (!p)
        return false;
    a->blocks     = p;
    a->cap_blocks = cap;
    return true;
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
    all[b].prev = prev;
    all[b].next = next;
    if (prev)
        all[prev].next = b;
    if (next)
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

/* ---- trees: treaps, so that no order of events makes them deep ---- */

static inline uint32_t priority(uint32_t b)
{
    b *= 0x9e3779b1u;
    return b ^ b >> 15;
}

static inline bool before(const block *x, const block *y)
{
    return x->bytes != y->bytes ? x->bytes < y->bytes : x->at < y->at;
}

static inline bool before_by_address(const block *x, const block *y)
{
    return x->at < y->at;
}

typedef bool (*order)(const block *x, const block *y);

static inline __attribute__((always_inline)) void tree_insert(block *all, uint32_t *at, uint32_t b,
                                                              order less)
{
    uint32_t *left = &all[b].left, *right = &all[b].right;
    uint32_t  t;

    while (*at && priority(*at) >= priority(b))
        at = less(&all[b], &all[*at]) ? &all[*at].left : &all[*at].right;
    t   = *at;
    *at = b;
    while (t) {
        if (less(&all[t], &all[b])) {
            *left = t;
            left  = &all[t].right;
            t     = *left;
        } else {
            *right = t;
            right  = &all[t].left;
            t      = *right;
        }
    }
    *left = *right = 0;
}

static inline __attribute__((always_inline)) void tree_remove(block *all, uint32_t *at, uint32_t b,
                                                              order less)
{
    uint32_t left = all[b].left, right = all[b].right;

    while (*at != b) {
        assert(*at); /* it is in this tree */
        at = less(&all[b], &all[*at]) ? &all[*at].left : &all[*at].right;
    }
    while (left && right) {
        if (priority(left) > priority(right)) {
            *at  = left;
            at   = &all[left].right;
            left = *at;
        } else {
            *at   = right;
            at    = &all[right].left;
            right = *at;
        }
    }
    *at = left ? left : right;
}

/* The first that does not come before key, or 0. */
static inline __attribute__((always_inline)) uint32_t tree_from(const block *all, uint32_t root,
                                                                const block *key, order less)
{
    uint32_t found = 0;

    while (root) {
        if (less(&all[root], key)) {
            root = all[root].right;
        } else {
            found = root;
            root  = all[root].left;
        }
    }
    return found;
}

/* ---- the free blocks of a pool ---- */

static inline unsigned bin_of(int64_t bytes)
{
    uint64_t units = (uint64_t)bytes / (uint64_t)ROUND_BYTES;
    unsigned shift;

    if (units < 2u << BINS_PER_POWER_LOG2)
        return (unsigned)units;
    shift = 63u - (unsigned)__builtin_clzll(units) - BINS_PER_POWER_LOG2;
    return (shift << BINS_PER_POWER_LOG2) + (unsigned)(units >> shift);
}

/* The first bin from here on that holds something; BINS when none does. */
static inline unsigned bin_next(const pool *p, unsigned bin)
{
    unsigned word = bin / 64;
    uint64_t bits;
    uint32_t rest;

    if (bin >= BINS)
        return BINS;
    bits = p->words[word] & ~(uint64_t)0 << bin % 64;
    if (!bits) {
        rest = p->summary & (uint32_t)(~(uint64_t)0 << (word + 1));
        if (!rest)
            return BINS;
        word = (unsigned)__builtin_ctz(rest);
        bits = p->words[word];
    }
    return word * 64 + (unsigned)__builtin_ctzll(bits);
}

static inline pool *pool_of(const vp_caching_allocator *a, const block *b)
{
    return a->pools[b->stream][b->large];
}

static inline void pool_put(vp_caching_allocator *a, uint32_t b)
{
    block   *x   = &a->blocks[b];
    pool    *p   = pool_of(a, x);
    unsigned bin = bin_of(x->bytes);

    x->searches = a->searches[x->large];
    tree_insert(a->blocks, &p->roots[bin], b, before);
    p->words[bin / 64] |= (uint64_t)1 << bin % 64;
    p->summary |= 1u << bin / 64;
}

static inline void pool_take(vp_caching_allocator *a, uint32_t b)
{
    pool    *p   = pool_of(a, &a->blocks[b]);
    unsigned bin = bin_of(a->blocks[b].bytes);

    tree_remove(a->blocks, &p->roots[bin], b, before);
    if (!p->roots[bin]) {
        p->words[bin / 64] &= ~((uint64_t)1 << bin % 64);
        if (!p->words[bin / 64])
            p->summary &= ~(1u << bin / 64);
    }
}

/* The first free block, by size and then address, of these bytes at this address or later. */
static inline uint32_t pool_from(const vp_caching_allocator *a, const pool *p, int64_t bytes,
                                 int64_t at)
{
    block    key   = {.bytes = bytes, .at = at};
    unsigned bin   = bin_of(bytes);
    uint32_t found = tree_from(a->blocks, p->roots[bin], &key, before);

    if (found)
        return found;
    bin = bin_next(p, bin + 1);
    if (bin == BINS)
        return 0;
    for (found = p->roots[bin]; a->blocks[found].left; found = a->blocks[found].left)
        ;
    return found;
}

static inline uint32_t pool_after(const vp_caching_allocator *a, const pool *p, uint32_t b)
{
    return pool_from(a, p, a->blocks[b].bytes, a->blocks[b].at + 1);
}

static uint32_t pool_largest(const vp_caching_allocator *a, const pool *p)
{
    unsigned word;
    uint32_t found;

    if (!p->summary)
        return 0;
    word  = 31u - (unsigned)__builtin_clz(p->summary);
    found = p->roots[word * 64 + 63 - (unsigned)__builtin_clzll(p->words[word])];
    while (a->blocks[found].right)
        found = a->blocks[found].right;
    return found;
}

static void unmapped_put(vp_caching_allocator *a, uint32_t b)
{
    tree_insert(a->blocks, &pool_of(a, &a->blocks[b])->unmapped, b, before_by_address);
}

static void unmapped_take(vp_caching_allocator *a, uint32_t b)
{
    tree_remove(a->blocks, &pool_of(a, &a->blocks[b])->unmapped, b, before_by_address);
}

/* ---- segments ---- */

static int64_t piece_bytes(const vp_caching_allocator *a, bool large)
{
    return large ? a->large_segment_bytes : SMALL_SEGMENT_BYTES;
}

/* Addresses for bytes above all those before, at a multiple of unit; 0 when there are no more. */
static int64_t addresses_new(vp_caching_allocator *a, int64_t bytes, int64_t unit)
{
    int64_t at  = vp_round_up(a->next_at, unit);
    int64_t end = vp_add(vp_add(at, bytes), SMALL_SEGMENT_BYTES); /* segments never touch */

    if (vp_overflowed(end))
        return 0;
    a->next_at = end;
    return at;
}

/* Those of the highest segment can be given out again: it is above all others then too. */
static void addresses_delete(vp_caching_allocator *a, const block *segment)
{
    if (segment->at + segment->bytes + SMALL_SEGMENT_BYTES == a->next_at)
        a->next_at = segment->at;
}

static int64_t device_free_bytes(const vp_caching_allocator *a)
{
    int64_t taken = a->figures.reserved_bytes.now + a->others_bytes;

    if (a->opts.device_total_bytes == VP_CACHING_DEVICE_UNLIMITED)
        return NEVER_BYTES - a->figures.reserved_bytes.now;
    return taken < a->opts.device_total_bytes ? a->opts.device_total_bytes - taken : 0;
}

/* Give a whole segment back. */
static void segment_free(vp_caching_allocator *a, uint32_t b)
{
    int64_t bytes = a->blocks[b].bytes;

    assert(alone(&a->blocks[b]) && !a->blocks[b].expandable);
    addresses_delete(a, &a->blocks[b]);
    pool_take(a, b);
    block_delete(a, b);
    a->figures.n_segments.now--;
    device_memory(a, -bytes);
}

/* Merge a neighbour into block b, when it is free too and backed by memory as b is. Returns the
 * bytes it had, or 0. b itself is in no tree. */
static inline int64_t merge(vp_caching_allocator *a, uint32_t b, uint32_t other)
{
    block *x = &a->blocks[b], *o = &a->blocks[other];

    if (!other || !available(o) || o->mapped != x->mapped)
        return 0;
    if (o->mapped)
        pool_take(a, other);
    else
        unmapped_take(a, other);
    if (x->prev == other) {
        x->at = o->at;
        splice(a->blocks, o->prev, b, x->next);
    } else {
        splice(a->blocks, x->prev, b, o->next);
    }
    x->bytes += o->bytes;
    block_delete(a, other);
    return o->bytes;
}

/* ---- expandable segments: a long range of addresses, backed piece by piece ---- */

/* Back the front of an unmapped block; it is then free. False when the device is full. */
static bool map(vp_caching_allocator *a, uint32_t b, int64_t bytes)
{
    block  *x    = &a->blocks[b];
    int64_t unit = piece_bytes(a, x->large);

    bytes = vp_round_up(bytes, unit);
    if (bytes > device_free_bytes(a))
        return false;
    unmapped_take(a, b);
    if (bytes < x->bytes) {
        uint32_t rest = block_new(a, x, x->at + bytes, x->bytes - bytes);

        splice(a->blocks, b, rest, x->next);
        unmapped_put(a, rest);
        x->bytes = bytes;
    }
    x->mapped = true;
    merge(a, b, x->prev);
    merge(a, b, x->next);
    pool_put(a, b);
    device_memory(a, bytes);
    return true;
}

/* Give back the whole pieces of a free block. */
static void unmap(vp_caching_allocator *a, uint32_t b)
{
    block  *x     = &a->blocks[b];
    int64_t unit  = piece_bytes(a, x->large);
    int64_t first = vp_round_up(x->at, unit); /* ranges begin at multiples of unit */
    int64_t end   = (x->at + x->bytes) / unit * unit;

    if (first >= end)
        return;
    pool_take(a, b);
    if (first > x->at) {
        uint32_t front = block_new(a, x, x->at, first - x->at);

        splice(a->blocks, x->prev, front, b);
        pool_put(a, front);
    }
    if (end < x->at + x->bytes) {
        uint32_t rear = block_new(a, x, end, x->at + x->bytes - end);

        splice(a->blocks, b, rear, x->next);
        pool_put(a, rear);
    }
    x->at     = first;
    x->bytes  = end - first;
    x->mapped = false;
    merge(a, b, x->prev);
    merge(a, b, x->next);
    unmapped_put(a, b);
    device_memory(a, first - end);
}

/* The lowest free address from which bytes can be had: a block of it, mapped or not. A new range
 * where there is none; 0 where there can be none. */
static uint32_t expandable_place(vp_caching_allocator *a, int stream, bool large, int64_t bytes)
{
    pool    *p     = a->pools[stream][large];
    block    first = {.stream = (uint8_t)stream, .large = large, .expandable = true};
    block    key   = {.at = 0};
    int64_t  unit  = piece_bytes(a, large);
    int64_t  total = a->opts.device_total_bytes;
    int64_t  range_bytes, at;
    uint32_t u, b;

    while ((u = tree_from(a->blocks, p->unmapped, &key, before_by_address))) {
        uint32_t start = a->blocks[u].prev;
        int64_t  have  = 0;

        if (!start || !available(&a->blocks[start]))
            start = u;
        for (b = start; b && available(&a->blocks[b]) && have < bytes; b = a->blocks[b].next)
            have += a->blocks[b].bytes;
        if (have >= bytes)
            return start;
        key.at = a->blocks[u].at + 1;
    }
    if (total == VP_CACHING_DEVICE_UNLIMITED)
        total = ENDLESS_BYTES;
    range_bytes = vp_round_up(total + total / 8, unit);
    at          = addresses_new(a, range_bytes, unit);
    if (!at)
        return 0;
    u = block_new(a, &first, at, range_bytes);
    unmapped_put(a, u);
    return u;
}

/* A free block of at least bytes, taken out of its pool; 0 when the device is full. What was
 * mapped by then stays. */
static uint32_t expand(vp_caching_allocator *a, int stream, bool large, int64_t bytes)
{
    uint32_t b = expandable_place(a, stream, large, bytes), next;
    int64_t  missing;

    if (!b)
        return 0;
    /* A request can exceed even a new range; the card then has not the memory for that either. */
    if (!a->blocks[b].mapped && !map(a, b, a->blocks[b].bytes < bytes ? a->blocks[b].bytes : bytes))
        return 0;
    while (a->blocks[b].bytes < bytes) {
        /* free and mapped blocks never touch, so the next one is unmapped; map() merges the two */
        next = a->blocks[b].next;
        assert(next && !a->blocks[next].mapped);
        missing = bytes - a->blocks[b].bytes;
        if (!map(a, next, a->blocks[next].bytes < missing ? a->blocks[next].bytes : missing))
            return 0;
        b = next;
    }
    pool_take(a, b);
    return b;
}

/* ---- streams ---- */

static void free_block(vp_caching_allocator *a, uint32_t b);

static void queue_run(vp_caching_allocator *a, event_queue *q, int64_t until)
{
    while (q->head < until) {
        uint32_t b = q->blocks[q->head++ % q->cap];

        q->n_claims--;
        a->n_events--;
        if (--a->blocks[b].n_events == 0)
            free_block(a, b);
    }
}

static void process_events(vp_caching_allocator *a)
{
    for (int s = 0; s < VP_CACHING_STREAMS; s++)
        queue_run(a, &a->queues[s], a->opts.streams_lag ? a->queues[s].done : a->queues[s].tail);
}

static void synchronize(vp_caching_allocator *a)
{
    for (int s = 0; s < VP_CACHING_STREAMS; s++)
        queue_run(a, &a->queues[s], a->queues[s].tail);
}

vp_status vp_caching_allocator_record_stream(vp_caching_allocator *a, vp_caching_block b,
                                             int stream, vp_err *err)
{
    event_queue *q;
    uint32_t    *ring;
    int64_t      cap;

    if (stream < 0 || stream >= VP_CACHING_STREAMS)
        return VP_FAIL(err, VP_ERR_INPUT, "stream %d: streams are 0 to %d", stream,
                       VP_CACHING_STREAMS - 1);
    assert(b < a->n_blocks && a->blocks[b].used);
    if (a->blocks[b].stream == stream || a->blocks[b].uses >> stream & 1)
        return VP_OK;
    q = &a->queues[stream];
    if (q->n_claims == q->cap) { /* so that a free never needs memory */
        cap  = q->cap ? 2 * q->cap : 64;
        ring = malloc((size_t)cap * sizeof *ring);
        if (!ring)
            return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
        for (int64_t i = q->head; i < q->tail; i++)
            ring[i % cap] = q->blocks[i % q->cap];
        free(q->blocks);
        q->blocks = ring;
        q->cap    = cap;
    }
    q->n_claims++;
    a->blocks[b].uses |= (uint64_t)1 << stream;
    return VP_OK;
}

void vp_caching_allocator_stream_done(vp_caching_allocator *a, int stream)
{
    assert(stream >= 0 && stream < VP_CACHING_STREAMS);
    a->queues[stream].done = a->queues[stream].tail;
}

/* ---- free ---- */

static inline void free_block(vp_caching_allocator *a, uint32_t b)
{
    vp_caching_figures *f     = &a->figures;
    block              *x     = &a->blocks[b];
    int64_t             split = 0;

    f->active_bytes.now -= x->bytes;
    f->requested_bytes.now -= x->asked_bytes;
    split -= merge(a, b, x->prev);
    split -= merge(a, b, x->next);
    pool_put(a, b);
    if (x->expandable)
        return;
    if (!alone(x))
        split += x->bytes;
    add_to(&f->inactive_split_bytes, split);
}

void vp_caching_allocator_free(vp_caching_allocator *a, vp_caching_block b)
{
    block *x = &a->blocks[b];

    if (!b)
        return;
    assert(b < a->n_blocks && x->used); /* given out, and not given back before */
    x->used = false;
    a->figures.allocated_bytes.now -= x->bytes;
    if (!x->uses) {
        free_block(a, b);
        return;
    }
    for (uint64_t uses = x->uses; uses; uses &= uses - 1) {
        event_queue *q = &a->queues[__builtin_ctzll(uses)];

        q->blocks[q->tail++ % q->cap] = b;
        x->n_events++;
        a->n_events++;
    }
    x->uses = 0;
}

/* ---- giving memory back ---- */

/* Above the threshold, segments that nothing is in, the oldest first, until enough is given back
 * or no more can be. */
static void collect_garbage(vp_caching_allocator *a)
{
    int64_t threshold_bytes =
        (int64_t)(a->opts.garbage_collection_threshold * (double)a->opts.allowed_bytes);
    int64_t  excess_bytes = a->figures.reserved_bytes.now - threshold_bytes;
    int64_t  freed_bytes = 0, ages = 0, n = 0;
    bool     freed = true;
    uint32_t b, after;

    if (excess_bytes <= 0 || a->opts.expandable_segments)
        return;
    for (int s = 0; s < a->n_streams; s++)
        for (b = a->pools[s][1] ? pool_from(a, a->pools[s][1], 0, 0) : 0; b;
             b = pool_after(a, a->pools[s][1], b))
            if (alone(&a->blocks[b])) {
                ages += a->searches[1] - a->blocks[b].searches;
                n++;
            }
    while (freed_bytes < excess_bytes && freed && n > 0) {
        double mean = (double)ages / (double)n;

        freed = false;
        for (int s = 0; s < a->n_streams; s++)
            for (b = a->pools[s][1] ? pool_from(a, a->pools[s][1], 0, 0) : 0; b; b = after) {
                int64_t age = a->searches[1] - a->blocks[b].searches;

                after = pool_after(a, a->pools[s][1], b);
                if (!alone(&a->blocks[b]) || (double)age < mean)
                    continue;
                freed = true;
                freed_bytes += a->blocks[b].bytes;
                ages -= age;
                n--;
                segment_free(a, b);
            }
    }
}

/* With max_split_size: blocks of that size and more, of this stream: the smallest that is large
 * enough by itself, else the largest ones until it is enough. Returns whether it is. */
static bool release_oversize(vp_caching_allocator *a, int stream, bool large, int64_t bytes)
{
    pool    *p           = a->pools[stream][large];
    int64_t  freed_bytes = 0;
    uint32_t b;

    if (a->max_split_bytes == NEVER_BYTES || a->opts.expandable_segments)
        return false;
    if (bytes < a->max_split_bytes)
        bytes = a->max_split_bytes;
    b = pool_from(a, p, bytes, 0);
    if (b) {
        segment_free(a, b);
        return true;
    }
    while (freed_bytes < bytes && (b = pool_largest(a, p)) &&
           a->blocks[b].bytes >= a->max_split_bytes) {
        freed_bytes += a->blocks[b].bytes;
        segment_free(a, b);
    }
    return freed_bytes >= bytes;
}

/* Every segment, or whole piece of an expandable one, that nothing is in. False: no host memory. */
static bool release_all(vp_caching_allocator *a)
{
    synchronize(a);
    for (int large = 1; large >= 0; large--)
        for (int s = 0; s < a->n_streams; s++) {
            pool    *p = a->pools[s][large];
            uint32_t b, after;

            for (b = p ? pool_from(a, p, 0, 0) : 0; b; b = after) {
                if (!blocks_reserve(a, 2))
                    return false;
                /* what unmap() puts into the pool has no whole piece: seen or not, it stays */
                after = pool_after(a, p, b);
                if (!a->blocks[b].expandable) {
                    if (alone(&a->blocks[b]))
                        segment_free(a, b);
                    continue;
                }
                unmap(a, b);
                if (alone(&a->blocks[b])) { /* its range of addresses goes too */
                    addresses_delete(a, &a->blocks[b]);
                    unmapped_take(a, b);
                    block_delete(a, b);
                }
            }
        }
    return true;
}

vp_status vp_caching_allocator_empty_cache(vp_caching_allocator *a, vp_err *err)
{
    return release_all(a) ? VP_OK : VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
}

/* ---- alloc ---- */

static int64_t rounded_bytes(const vp_caching_allocator *a, int64_t bytes)
{
    if (bytes < ROUND_BYTES)
        return ROUND_BYTES;
    if (a->rounds_up) {
        int     power    = 63 - __builtin_clzll((uint64_t)bytes);
        int     interval = power - 20;
        int64_t divisions =
            a->opts.roundup_power2_divisions[interval < 0 ? 0
                                             : interval < VP_CACHING_ROUNDUP_INTERVALS
                                                 ? interval
                                                 : VP_CACHING_ROUNDUP_INTERVALS - 1];

        /* Divisions are a power of two, and a step is 512 B at least. */
        if (divisions > 1 && bytes > ROUND_BYTES * divisions)
            return vp_round_up(bytes, ((int64_t)1 << power) / divisions);
    }
    return (bytes + ROUND_BYTES - 1) & -ROUND_BYTES;
}

/* How far a free block reaches when it grows into the unmapped one behind it. */
static int64_t reach_bytes(const vp_caching_allocator *a, uint32_t b)
{
    uint32_t next = a->blocks[b].next;

    return a->blocks[b].bytes + (next && !a->blocks[next].mapped ? a->blocks[next].bytes : 0);
}

/* A free block for bytes, taken out of its pool; 0 when none suits. */
static inline uint32_t find(vp_caching_allocator *a, const pool *p, bool large, int64_t bytes)
{
    uint32_t b, after;

    a->searches[large] += a->ages;
    b = pool_from(a, p, bytes, 0);
    if (!b)
        return 0;
    /* A block that can still grow counts as what it can become, so that the end of an expandable
     * segment is used last. */
    if (a->opts.expandable_segments)
        while ((after = pool_after(a, p, b)) && reach_bytes(a, after) < reach_bytes(a, b))
            b = after;
    if (bytes < a->max_split_bytes ? a->blocks[b].bytes >= a->max_split_bytes
                                   : a->blocks[b].bytes - bytes >= a->max_non_split_rounding_bytes)
        return 0;
    pool_take(a, b);
    return b;
}

/* A new block from the device; 0 when it may not or cannot be had. */
static uint32_t obtain(vp_caching_allocator *a, int stream, bool large, int64_t bytes,
                       int64_t segment_bytes)
{
    block   first = {.stream = (uint8_t)stream, .large = large, .mapped = true};
    int64_t at;

    if (a->opts.allowed_bytes &&
        segment_bytes > a->opts.allowed_bytes - a->figures.reserved_bytes.now)
        return 0;
    if (a->opts.expandable_segments)
        return expand(a, stream, large, bytes);
    if (segment_bytes > device_free_bytes(a))
        return 0;
    at = addresses_new(a, segment_bytes, ROUND_BYTES);
    if (!at)
        return 0;
    add_to(&a->figures.n_segments, 1);
    device_memory(a, segment_bytes);
    return block_new(a, &first, at, segment_bytes);
}

static vp_status out_of_memory(vp_caching_allocator *a, int64_t requested_bytes,
                               int64_t segment_bytes, vp_err *err)
{
    const vp_caching_figures *f       = &a->figures;
    bool                      endless = a->opts.device_total_bytes == VP_CACHING_DEVICE_UNLIMITED;
    char                      tried[32], allocated[32], unallocated[32], free_text[32];

    a->figures.n_ooms++;
    a->oom = (vp_caching_oom){
        .requested_bytes   = requested_bytes,
        .tried_bytes       = segment_bytes,
        .total_bytes       = a->opts.device_total_bytes,
        .free_bytes        = endless ? 0 : device_free_bytes(a),
        .allowed_bytes     = a->opts.allowed_bytes,
        .allocated_bytes   = f->allocated_bytes.now,
        .unallocated_bytes = f->reserved_bytes.now - f->allocated_bytes.now,
    };
    return VP_FAIL(err, VP_ERR_NO_FIT,
                   "CUDA out of memory: %s more would be needed and %s are free; %s are allocated, "
                   "%s reserved but not allocated",
                   vp_size_text(segment_bytes, tried, sizeof tried),
                   vp_size_text(a->oom.free_bytes, free_text, sizeof free_text),
                   vp_size_text(a->oom.allocated_bytes, allocated, sizeof allocated),
                   vp_size_text(a->oom.unallocated_bytes, unallocated, sizeof unallocated));
}

/* No free block suits. PyTorch's order: old segments above the threshold go; the device; oversize
 * blocks go, the device again; everything cached goes, the device again. *found is 0 when all was
 * in vain. */
static vp_status obtain_somehow(vp_caching_allocator *a, int stream, bool large, int64_t bytes,
                                int64_t segment_bytes, uint32_t *found, vp_err *err)
{
    if (a->ages)
        collect_garbage(a);
    *found = obtain(a, stream, large, bytes, segment_bytes);
    if (!*found && release_oversize(a, stream, large, bytes))
        *found = obtain(a, stream, large, bytes, segment_bytes);
    if (!*found) {
        /* a new range, a rest of it, and the split; each of the three attempts may leave some */
        if (!release_all(a) || !blocks_reserve(a, 4))
            return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
        a->figures.n_retries++;
        *found = obtain(a, stream, large, bytes, segment_bytes);
    }
    return VP_OK;
}

static vp_status pools_new(vp_caching_allocator *a, int stream, vp_err *err)
{
    if (stream < 0 || stream >= VP_CACHING_STREAMS)
        return VP_FAIL(err, VP_ERR_INPUT, "stream %d: streams are 0 to %d", stream,
                       VP_CACHING_STREAMS - 1);
    for (int large = 0; large < 2; large++)
        if (!a->pools[stream][large]) {
            a->pools[stream][large] = calloc(1, sizeof(pool));
            if (!a->pools[stream][large])
                return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
        }
    if (stream >= a->n_streams)
        a->n_streams = stream + 1;
    return VP_OK;
}

vp_status vp_caching_allocator_alloc(vp_caching_allocator *a, int stream, int64_t asked_bytes,
                                     vp_caching_block *out, vp_err *err)
{
    vp_status           st = VP_OK;
    vp_caching_figures *f  = &a->figures;
    int64_t             bytes, segment_bytes, rest_bytes;
    bool                large, was_split;
    uint32_t            b, rest;
    block              *x;

    *out = 0;
    if (asked_bytes < 0 || asked_bytes >> VP_CACHING_REQUEST_BITS)
        return VP_FAIL(err, VP_ERR_INPUT, "a request of %lld bytes", (long long)asked_bytes);
    if (stream < 0 || stream >= VP_CACHING_STREAMS || !a->pools[stream][1])
        VP_TRY(pools_new(a, stream, err));
    if (asked_bytes == 0)
        return VP_OK;
    if (!blocks_reserve(a, 16))
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    if (a->n_events)
        process_events(a);

    bytes         = rounded_bytes(a, asked_bytes);
    large         = bytes > SMALL_BYTES;
    segment_bytes = !large                      ? SMALL_SEGMENT_BYTES
                    : bytes < OWN_SEGMENT_BYTES ? a->large_segment_bytes
                                                : vp_round_up(bytes, LARGE_ROUND_BYTES);
    b             = find(a, a->pools[stream][large], large, bytes);
    if (!b) {
        VP_TRY(obtain_somehow(a, stream, large, bytes, segment_bytes, &b, err));
        if (!b)
            return out_of_memory(a, asked_bytes, segment_bytes, err);
    }

    /* What is left over is a free block if it is worth one: 512 B and more in the small pool and in
     * expandable segments, else more than 1 MiB, and never of a block of max_split_size. */
    x          = &a->blocks[b];
    was_split  = !alone(x);
    rest_bytes = x->bytes - bytes;
    if (!large || a->opts.expandable_segments
            ? rest_bytes >= ROUND_BYTES
            : bytes < a->max_split_bytes && rest_bytes > SMALL_BYTES) {
        rest     = block_new(a, x, x->at + bytes, rest_bytes);
        x->bytes = bytes;
        splice(a->blocks, b, rest, x->next);
        pool_put(a, rest);
        if (!x->expandable)
            add_to(&f->inactive_split_bytes, was_split ? -bytes : rest_bytes);
    } else if (was_split && !x->expandable) {
        f->inactive_split_bytes.now -= x->bytes;
    }
    x->used        = true;
    x->asked_bytes = asked_bytes;
    add_to(&f->allocated_bytes, x->bytes);
    add_to(&f->active_bytes, x->bytes);
    add_to(&f->requested_bytes, asked_bytes);
    *out = b;
out:
    return st;
}

/* ---- an allocator ---- */

vp_status vp_caching_allocator_opts_check(const vp_caching_allocator_opts *o, vp_err *err)
{
    const struct {
        const char *name;
        int64_t     bytes, least_bytes;
    } sizes[] = {
        {"device_total_bytes", o->device_total_bytes, 0},
        {"device_others_bytes", o->device_others_bytes, 0},
        {"allowed_bytes", o->allowed_bytes, 0},
        {"large_segment_size_mb", o->large_segment_bytes, OWN_SEGMENT_BYTES + 1},
        {"max_split_size_mb", o->max_split_bytes,
         o->large_segment_bytes ? o->large_segment_bytes : VP_CACHING_SEGMENT_DEFAULT_MB * VP_MIB},
        {"max_non_split_rounding_mb", o->max_non_split_rounding_bytes,
         o->large_segment_bytes ? o->large_segment_bytes : VP_CACHING_SEGMENT_DEFAULT_MB * VP_MIB},
    };
    double gc = o->garbage_collection_threshold;

    if (o->torch_minor < 0 || (o->torch_minor && o->torch_minor < OLDEST_MINOR))
        return VP_FAIL_AT(err, VP_ERR_INPUT, NULL, 0, "torch_minor",
                          "torch 2.%d: the rules are those of 2.%d and newer", o->torch_minor,
                          OLDEST_MINOR);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].bytes && (sizes[i].bytes < sizes[i].least_bytes || sizes[i].bytes < 0 ||
                               sizes[i].bytes >> VP_CACHING_REQUEST_BITS ||
                               sizes[i].bytes % (sizes[i].least_bytes ? VP_MIB : 1)))
            return VP_FAIL_AT(err, VP_ERR_INPUT, NULL, 0, sizes[i].name,
                              "%lld bytes: must be whole MiB, %lld bytes at least",
                              (long long)sizes[i].bytes, (long long)sizes[i].least_bytes);
    if (o->expandable_segments && o->large_segment_bytes % SMALL_SEGMENT_BYTES)
        return VP_FAIL_AT(err, VP_ERR_INPUT, NULL, 0, "large_segment_size_mb",
                          "expandable segments grow by multiples of 2 MiB, CUDA's pages");
    for (int i = 0; i < VP_CACHING_ROUNDUP_INTERVALS; i++) {
        int64_t d = o->roundup_power2_divisions[i];

        if (d < 0 || d & (d - 1))
            return VP_FAIL_AT(err, VP_ERR_INPUT, NULL, 0, "roundup_power2_divisions",
                              "%lld: must be a power of two", (long long)d);
    }
    if (!(gc >= 0 && gc < 1))
        return VP_FAIL_AT(err, VP_ERR_INPUT, NULL, 0, "garbage_collection_threshold",
                          "%g: must be between 0 and 1", gc);
    return VP_OK;
}

vp_status vp_caching_allocator_new(const vp_caching_allocator_opts *opts,
                                   vp_caching_allocator **out, vp_err *err)
{
    vp_status             st = VP_OK;
    vp_caching_allocator *a  = NULL;

    *out = NULL;
    VP_TRY(vp_caching_allocator_opts_check(opts, err));
    a = calloc(1, sizeof *a);
    VP_TRY_ALLOC(err, a);
    a->n_blocks = 1;
    VP_TRY_ALLOC(err, blocks_reserve(a, 64));
    a->blocks[0]                    = (block){0};
    a->opts                         = *opts;
    a->others_bytes                 = opts->device_others_bytes;
    a->next_at                      = SMALL_SEGMENT_BYTES;
    a->large_segment_bytes          = opts->large_segment_bytes ? opts->large_segment_bytes
                                                                : VP_CACHING_SEGMENT_DEFAULT_MB * VP_MIB;
    a->max_split_bytes              = opts->max_split_bytes ? opts->max_split_bytes : NEVER_BYTES;
    a->max_non_split_rounding_bytes = opts->max_non_split_rounding_bytes
                                          ? opts->max_non_split_rounding_bytes
                                          : a->large_segment_bytes;
    /* PyTorch counts ages only where garbage is collected. */
    a->ages = opts->allowed_bytes && opts->garbage_collection_threshold > 0;
    for (int i = 0; i < VP_CACHING_ROUNDUP_INTERVALS; i++)
        a->rounds_up |= opts->roundup_power2_divisions[i] > 1;
    *out = a;
    a    = NULL;
out:
    vp_caching_allocator_destroy(a);
    return st;
}

void vp_caching_allocator_destroy(vp_caching_allocator *a)
{
    if (!a)
        return;
    for (int s = 0; s < VP_CACHING_STREAMS; s++) {
        free(a->pools[s][0]);
        free(a->pools[s][1]);
        free(a->queues[s].blocks);
    }
    free(a->blocks);
    free(a);
}

void vp_caching_allocator_others(vp_caching_allocator *a, int64_t bytes)
{
    assert(bytes >= 0);
    a->others_bytes = bytes;
}

void vp_caching_allocator_reset_peaks(vp_caching_allocator *a)
{
    vp_caching_figure *all[] = {
        &a->figures.allocated_bytes, &a->figures.active_bytes,         &a->figures.reserved_bytes,
        &a->figures.requested_bytes, &a->figures.inactive_split_bytes, &a->figures.n_segments,
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        all[i]->peak = all[i]->now;
}

const vp_caching_figures *vp_caching_allocator_figures(const vp_caching_allocator *a)
{
    return &a->figures;
}

const vp_caching_oom *vp_caching_allocator_oom(const vp_caching_allocator *a)
{
    return &a->oom;
}

void vp_caching_allocator_place(const vp_caching_allocator *a, vp_caching_block b, int64_t *address,
                                int64_t *bytes)
{
    assert(b && b < a->n_blocks && a->blocks[b].used);
    *address = a->blocks[b].at;
    *bytes   = a->blocks[b].bytes;
}
