/* trainers/torch/caching_allocator_segments.c: memory of the device: segments, and ranges of
 * addresses that get memory piece by piece. */
#include "base/checked.h"
#include "trainers/torch/caching_allocator_index.h"
#include "trainers/torch/torch_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* What a card without an end calls its total, where addresses must be reserved: more than any
 * request. */
#define ENDLESS_BYTES ((int64_t)1 << VP_CACHING_REQUEST_BITS)

void vp_caching_device_memory(vp_caching_allocator *a, int64_t bytes)
{
    add_to(&a->figures.reserved_bytes, bytes);
    assert(bytes != 0 && a->figures.reserved_bytes.now >= a->figures.active_bytes.now);
    if (bytes > 0)
        a->figures.n_device_allocs++;
    else
        a->figures.n_device_frees++;
    if (a->opts.on_segment)
        a->opts.on_segment(a->opts.on_segment_context, bytes);
}

bool vp_caching_blocks_grow(vp_caching_allocator *a, int64_t n)
{
    int64_t cap = a->cap_blocks ? a->cap_blocks : 1024;
    block  *p;

    assert(n > 0 && (!a->blocks || a->n_blocks <= a->cap_blocks));
    while (cap - a->n_blocks < n)
        cap *= 2;
    if (cap > UINT32_MAX)
        return false;
    p = realloc(a->blocks, (size_t)cap * sizeof *p);
    if (!p)
        return false;
    a->blocks = p;
    for (int i = 0; a->opts.addresses_fall && i < 2; i++) {
        span *list = realloc(a->segments[i].list, (size_t)cap * sizeof *list);
        if (!list)
            return false;
        a->segments[i].list = list;
    }
    a->cap_blocks = cap;
    return true;
}

/* ---- segments ---- */

static int64_t piece_bytes(const vp_caching_allocator *a, bool large)
{
    return large ? a->large_segment_bytes : SMALL_SEGMENT_BYTES;
}

/* From here on a segment's addresses fall, and are multiples of it; they fall from the top. */
#define FALLING_BYTES (32 * VP_MIB)
#define TOP_AT        NEVER_BYTES

int64_t vp_caching_addresses_new(vp_caching_allocator *a, int64_t bytes, int64_t unit)
{
    int64_t at  = vp_round_up(a->next_at, unit);
    int64_t end = vp_add(vp_add(at, bytes), SMALL_SEGMENT_BYTES); /* segments never touch */

    assert(bytes > 0 && unit > 0 && at >= a->next_at);
    if (vp_overflowed(end))
        return 0;
    a->next_at = end;
    return at;
}

/* Where the addresses end that are given before place i. */
static int64_t edge_of(const spans *s, bool falls, int64_t i)
{
    if (i == 0)
        return falls ? TOP_AT : SMALL_SEGMENT_BYTES;
    return s->list[i - 1].at + (falls ? 0 : s->list[i - 1].bytes);
}

/* The address of a segment at place i of the list. */
static int64_t address_at(const spans *s, bool falls, int64_t bytes, int64_t i)
{
    int64_t edge = edge_of(s, falls, i);

    return falls ? (edge - bytes) / FALLING_BYTES * FALLING_BYTES : edge;
}

static bool has_room(const spans *s, bool falls, int64_t bytes, int64_t i)
{
    int64_t     at   = address_at(s, falls, bytes, i);
    const span *next = &s->list[i];

    return i == s->n || (falls ? at >= next->at + next->bytes : at + bytes <= next->at);
}

/* The place that a segment is given: the nearest to the list's beginning that has room. */
static int64_t place_of(const spans *s, bool falls, int64_t bytes)
{
    int64_t i = s->first_gap;

    while (!has_room(s, falls, bytes, i))
        i++;
    return i;
}

int64_t vp_caching_addresses_of_segment(vp_caching_allocator *a, int64_t bytes)
{
    bool    falls = bytes >= FALLING_BYTES;
    spans  *s     = &a->segments[falls];
    int64_t i, at;

    if (!a->opts.addresses_fall)
        return vp_caching_addresses_new(a, bytes, ROUND_BYTES);
    assert(s->n < a->cap_blocks); /* each is a block at least */
    i                  = place_of(s, falls, bytes);
    at                 = address_at(s, falls, bytes, i);
    const spans *other = &a->segments[!falls];
    const span  *near  = other->n ? &other->list[other->n - 1] : NULL;
    if (falls ? at < (near ? near->at + near->bytes : SMALL_SEGMENT_BYTES)
              : at + bytes > (near ? near->at : TOP_AT))
        return 0;
    memmove(&s->list[i + 1], &s->list[i], (size_t)(s->n - i) * sizeof *s->list);
    s->list[i] = (span){at, bytes};
    s->n++;
    while (s->first_gap < s->n &&
           !has_room(s, falls, falls ? FALLING_BYTES : SMALL_SEGMENT_BYTES, s->first_gap))
        s->first_gap++;
    return at;
}

/* Addresses that are given again to the next that fits. */
static void give_back(spans *s, int64_t at)
{
    int64_t i = s->n - 1;

    while (s->list[i].at != at)
        i--;
    s->n--;
    s->first_gap = vp_min_i64(s->first_gap, i);
    memmove(&s->list[i], &s->list[i + 1], (size_t)(s->n - i) * sizeof *s->list);
}

/* Those of the highest segment can be given out again: it is above all others then too. */
static void addresses_delete(vp_caching_allocator *a, const block *segment)
{
    if (a->opts.addresses_fall && !segment->expandable) {
        give_back(&a->segments[segment->bytes >= FALLING_BYTES], segment->at);
        return;
    }
    assert(segment->at + segment->bytes + SMALL_SEGMENT_BYTES <= a->next_at);
    if (segment->at + segment->bytes + SMALL_SEGMENT_BYTES == a->next_at)
        a->next_at = segment->at;
}

int64_t vp_caching_device_free_bytes(const vp_caching_allocator *a)
{
    int64_t taken = a->figures.reserved_bytes.now + a->others_bytes;

    if (a->opts.device_total_bytes == VP_CACHING_DEVICE_UNLIMITED)
        return NEVER_BYTES - a->figures.reserved_bytes.now;
    return taken < a->opts.device_total_bytes ? a->opts.device_total_bytes - taken : 0;
}

void vp_caching_segment_free(vp_caching_allocator *a, uint32_t b)
{
    int64_t bytes = a->blocks[b].bytes;

    assert(alone(&a->blocks[b]) && available(&a->blocks[b]) && !a->blocks[b].expandable);
    addresses_delete(a, &a->blocks[b]);
    pool_take(a, b);
    block_delete(a, b);
    a->figures.n_segments.now--;
    vp_caching_device_memory(a, -bytes);
}

/* ---- expandable segments: a long range of addresses, backed piece by piece ---- */

/* Back the front of an unmapped block; it is then free. False when the device is full. */
static bool map(vp_caching_allocator *a, uint32_t b, int64_t bytes)
{
    block  *x    = &a->blocks[b];
    int64_t unit = piece_bytes(a, x->large);

    assert(bytes > 0 && x->expandable && !x->mapped && x->at % unit == 0 && x->bytes % unit == 0);
    bytes = vp_round_up(bytes, unit);
    if (bytes > vp_caching_device_free_bytes(a))
        return false;
    assert(bytes <= x->bytes);
    unmapped_take(a, b);
    if (bytes < x->bytes) {
        uint32_t rest = block_new(a, x, x->at + bytes, x->bytes - bytes);

        splice(a->blocks, b, rest, x->next);
        unmapped_put(a, rest);
        x->bytes = bytes;
    }
    x->mapped = true;
    merge(a, pool_of(a, x), b, x->prev);
    merge(a, pool_of(a, x), b, x->next);
    pool_put(a, b);
    vp_caching_device_memory(a, bytes);
    return true;
}

/* Give back the whole pieces of a free block. */
static void unmap(vp_caching_allocator *a, uint32_t b)
{
    block  *x     = &a->blocks[b];
    int64_t unit  = piece_bytes(a, x->large);
    int64_t first = vp_round_up(x->at, unit); /* ranges begin at multiples of unit */
    int64_t end   = (x->at + x->bytes) / unit * unit;

    assert(x->expandable && x->mapped && available(x));
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
    merge(a, pool_of(a, x), b, x->prev);
    merge(a, pool_of(a, x), b, x->next);
    unmapped_put(a, b);
    vp_caching_device_memory(a, first - end);
}

void vp_caching_range_trim(vp_caching_allocator *a, uint32_t b)
{
    unmap(a, b);
    if (alone(&a->blocks[b])) {
        addresses_delete(a, &a->blocks[b]);
        unmapped_take(a, b);
        block_delete(a, b);
    }
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
    uint32_t u, b, *gap;

    assert(bytes > 0);
    while ((gap = tree_from(a->blocks, &p->unmapped, &key, before_by_address))) {
        u              = *gap;
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
    at          = vp_caching_addresses_new(a, range_bytes, unit);
    if (!at)
        return 0;
    u = block_new(a, &first, at, range_bytes);
    unmapped_put(a, u);
    return u;
}

uint32_t vp_caching_expand(vp_caching_allocator *a, int stream, bool large, int64_t bytes)
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
    assert(a->blocks[b].expandable && a->blocks[b].mapped);
    pool_take(a, b);
    return b;
}
