/* trainers/torch/caching_allocator_index.h: the free blocks of a pool by size, and those without
 * memory by address. Every allocation and every free comes through here, so all of it is inline.
 *
 * A free block lies in the bin of its size, in a bin in a tree by size and address. A bitmap in two
 * levels says which bins hold something, so the best block is found in one bin or in the next one
 * that is not empty. */
#ifndef VP_TRAINERS_TORCH_CACHING_ALLOCATOR_INDEX_H
#define VP_TRAINERS_TORCH_CACHING_ALLOCATOR_INDEX_H

#include "trainers/torch/caching_allocator_state.h"

#include <assert.h>

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

/* What hangs there. */
static inline void tree_remove_at(block *all, uint32_t *at)
{
    uint32_t left = all[*at].left, right = all[*at].right;

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

static inline __attribute__((always_inline)) void tree_remove(block *all, uint32_t *at, uint32_t b,
                                                              order less)
{
    while (*at != b) {
        assert(*at); /* it is in this tree */
        at = less(&all[b], &all[*at]) ? &all[*at].left : &all[*at].right;
    }
    tree_remove_at(all, at);
}

/* Where the first that does not come before key hangs, or NULL. */
static inline __attribute__((always_inline)) uint32_t *tree_from(block *all, uint32_t *at,
                                                                 const block *key, order less)
{
    uint32_t *found = NULL;

    while (*at) {
        if (less(&all[*at], key)) {
            at = &all[*at].right;
        } else {
            found = at;
            at    = &all[*at].left;
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

/* p: its pool. */
static inline void pool_put_in(vp_caching_allocator *a, pool *p, uint32_t b)
{
    block   *x   = &a->blocks[b];
    unsigned bin = bin_of(x->bytes);

    x->searches = a->searches[x->large];
    x->bin      = (uint16_t)bin;
    tree_insert(a->blocks, &p->roots[bin], b, before);
    p->words[bin / 64] |= (uint64_t)1 << bin % 64;
    p->summary |= 1u << bin / 64;
}

/* The bin has one fewer. */
static inline void bin_left(pool *p, unsigned bin)
{
    p->words[bin / 64] &= ~((uint64_t)!p->roots[bin] << bin % 64);
    p->summary &= ~((uint32_t)!p->words[bin / 64] << bin / 64);
}

static inline void pool_take_from(vp_caching_allocator *a, pool *p, uint32_t b)
{
    tree_remove(a->blocks, &p->roots[a->blocks[b].bin], b, before);
    bin_left(p, a->blocks[b].bin);
}

/* What hangs there (pool_place()). */
static inline void pool_take_at(vp_caching_allocator *a, pool *p, uint32_t *at)
{
    unsigned bin = a->blocks[*at].bin;

    tree_remove_at(a->blocks, at);
    bin_left(p, bin);
}

static inline void pool_put(vp_caching_allocator *a, uint32_t b)
{
    pool_put_in(a, pool_of(a, &a->blocks[b]), b);
}

static inline void pool_take(vp_caching_allocator *a, uint32_t b)
{
    pool_take_from(a, pool_of(a, &a->blocks[b]), b);
}

/* Where the first block of the next bin that holds something hangs; NULL: there is none. */
static inline uint32_t *pool_first_behind(const vp_caching_allocator *a, pool *p, unsigned bin)
{
    uint32_t *found;

    bin = bin_next(p, bin + 1);
    if (bin == BINS)
        return NULL;
    for (found = &p->roots[bin]; a->blocks[*found].left; found = &a->blocks[*found].left)
        ;
    return found;
}

/* Where the first free block hangs, by size and then address, of at least these bytes, whose bin is known; NULL: there is none. */
static inline uint32_t *pool_best(const vp_caching_allocator *a, pool *p, int64_t bytes,
                                  unsigned bin)
{
    uint32_t *at = &p->roots[bin], *found = NULL;

    while (*at) {
        block *x = &a->blocks[*at];
        if (x->bytes < bytes) {
            at = &x->right;
        } else {
            found = at;
            at    = &x->left;
        }
    }
    return found ? found : pool_first_behind(a, p, bin);
}

/* Where the first free block hangs, by size and then address, of these bytes at this address or later; NULL: there is none. */
static inline uint32_t *pool_place(const vp_caching_allocator *a, pool *p, int64_t bytes,
                                   int64_t at)
{
    unsigned  bin   = bin_of(bytes);
    block     key   = {.bytes = bytes, .at = at};
    uint32_t *found = tree_from(a->blocks, &p->roots[bin], &key, before);

    return found ? found : pool_first_behind(a, p, bin);
}

/* The block itself; 0: there is none. */
static inline uint32_t pool_from(const vp_caching_allocator *a, pool *p, int64_t bytes, int64_t at)
{
    const uint32_t *found = pool_place(a, p, bytes, at);

    return found ? *found : 0;
}

static inline uint32_t pool_after(const vp_caching_allocator *a, pool *p, uint32_t b)
{
    return pool_from(a, p, a->blocks[b].bytes, a->blocks[b].at + 1);
}

static inline void unmapped_put(vp_caching_allocator *a, uint32_t b)
{
    assert(a->blocks[b].expandable && !a->blocks[b].mapped);
    tree_insert(a->blocks, &pool_of(a, &a->blocks[b])->unmapped, b, before_by_address);
}

static inline void unmapped_take(vp_caching_allocator *a, uint32_t b)
{
    tree_remove(a->blocks, &pool_of(a, &a->blocks[b])->unmapped, b, before_by_address);
}

/* ---- a block becomes free ---- */

/* Merge a neighbour into block b of pool p, when it is free too and backed by memory as b is. Returns
 * the bytes it had, or 0. b itself is in no tree. */
static inline int64_t merge(vp_caching_allocator *a, pool *p, uint32_t b, uint32_t other)
{
    block *x = &a->blocks[b], *o = &a->blocks[other];

    if (!available(o) || o->mapped != x->mapped)
        return 0;
    if (o->mapped)
        pool_take_from(a, p, other);
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

/* Nobody uses block b any more: it joins its free neighbours. */
static inline void free_block(vp_caching_allocator *a, uint32_t b)
{
    vp_caching_figures *f     = &a->figures;
    block              *x     = &a->blocks[b];
    pool               *p     = pool_of(a, x);
    int64_t             split = 0;

    f->active_bytes.now -= x->bytes;
    f->requested_bytes.now -= x->asked_bytes;
    split -= merge(a, p, b, x->prev);
    split -= merge(a, p, b, x->next);
    pool_put_in(a, p, b);
    if (x->expandable)
        return;
    if (!alone(x))
        split += x->bytes;
    add_to(&f->inactive_split_bytes, split);
}

#endif
