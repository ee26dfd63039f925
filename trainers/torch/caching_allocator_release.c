/* trainers/torch/caching_allocator_release.c: no free block suits: the device is asked for memory,
 * cached memory is given back, and where all is in vain it is an out-of-memory error. */
#include "base/checked.h"
#include "trainers/torch/caching_allocator_index.h"
#include "trainers/torch/torch_internal.h"

#include <assert.h>

/* ---- giving memory back ---- */

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
    assert(a->ages && ages >= 0); /* or nobody counted searches */
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
                vp_caching_segment_free(a, b);
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
    assert(a->max_split_bytes > 0 && bytes > 0);
    b = pool_from(a, p, bytes, 0);
    if (b) {
        vp_caching_segment_free(a, b);
        return true;
    }
    while (freed_bytes < bytes && (b = pool_largest(a, p)) &&
           a->blocks[b].bytes >= a->max_split_bytes) {
        freed_bytes += a->blocks[b].bytes;
        vp_caching_segment_free(a, b);
    }
    return freed_bytes >= bytes;
}

/* What holds whenever nothing is under way, looked at here, where it costs nothing beside the rest:
 * every event would pay a twentieth of its time for it. Free blocks touch their neighbours, which
 * could not have been merged with them, and are what is reserved and not in use. */
static void check_free_blocks(const vp_caching_allocator *a)
{
    int64_t free_bytes = 0;

    for (int large = 1; large >= 0; large--)
        for (int s = 0; s < a->n_streams; s++) {
            pool *p = a->pools[s][large];

            for (uint32_t b = p ? pool_from(a, p, 0, 0) : 0; b; b = pool_after(a, p, b)) {
                const block *x = &a->blocks[b], *prev = &a->blocks[x->prev],
                            *next = &a->blocks[x->next];

                assert(available(x) && x->mapped && x->stream == s && x->large == large);
                assert(x->bin == bin_of(x->bytes));
                assert(!x->prev || (prev->next == b && prev->at + prev->bytes == x->at));
                assert(!x->next || (next->prev == b && x->at + x->bytes == next->at));
                assert(!x->prev || !available(prev) || !prev->mapped);
                assert(!x->next || !available(next) || !next->mapped);
                free_bytes += x->bytes;
            }
        }
    assert(free_bytes == a->figures.reserved_bytes.now - a->figures.active_bytes.now);
}

/* Every segment, or whole piece of an expandable one, that nothing is in. False: no host memory. */
static bool release_all(vp_caching_allocator *a)
{
    vp_caching_synchronize(a);
    for (int large = 1; large >= 0; large--)
        for (int s = 0; s < a->n_streams; s++) {
            pool    *p = a->pools[s][large];
            uint32_t b, after;

            for (b = p ? pool_from(a, p, 0, 0) : 0; b; b = after) {
                if (!blocks_reserve(a, 2))
                    return false;
                /* what vp_caching_range_trim() puts into the pool has no whole piece: seen or not, it stays */
                after = pool_after(a, p, b);
                if (!a->blocks[b].expandable) {
                    if (alone(&a->blocks[b]))
                        vp_caching_segment_free(a, b);
                    continue;
                }
                vp_caching_range_trim(a, b);
            }
        }
    check_free_blocks(a);
    return true;
}

vp_status vp_caching_allocator_empty_cache(vp_caching_allocator *a, vp_err *err)
{
    return release_all(a) ? VP_OK : VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
}

/* ---- a new block, or an out-of-memory error ---- */

/* A new block from the device; 0 when it may not or cannot be had. */
static uint32_t obtain(vp_caching_allocator *a, int stream, bool large, int64_t bytes,
                       int64_t segment_bytes)
{
    block   first = {.stream = (uint8_t)stream, .large = large, .mapped = true};
    int64_t at;

    assert(bytes > 0 && segment_bytes >= bytes);
    if (a->opts.allowed_bytes &&
        segment_bytes > a->opts.allowed_bytes - a->figures.reserved_bytes.now)
        return 0;
    if (a->opts.expandable_segments) {
        vp_caching_round_grows(a, a->pools[stream][large], NULL);
        return vp_caching_expand(a, stream, large, bytes);
    }
    if (segment_bytes > vp_caching_device_free_bytes(a))
        return 0;
    at = vp_caching_addresses_of_segment(a, segment_bytes);
    if (!at)
        return 0;
    vp_caching_round_grows(a, a->pools[stream][large], &(rank){segment_bytes, at});
    add_to(&a->figures.n_segments, 1);
    vp_caching_device_memory(a, segment_bytes);
    return block_new(a, &first, at, segment_bytes);
}

static vp_status out_of_memory(vp_caching_allocator *a, int64_t requested_bytes,
                               int64_t segment_bytes, vp_err *err)
{
    const vp_caching_figures *f       = &a->figures;
    bool                      endless = a->opts.device_total_bytes == VP_CACHING_DEVICE_UNLIMITED;
    char                      tried[32], allocated[32], unallocated[32], free_text[32];

    assert(f->reserved_bytes.now >= f->allocated_bytes.now);
    a->figures.n_ooms++;
    a->oom = (vp_caching_oom){
        .requested_bytes   = requested_bytes,
        .tried_bytes       = segment_bytes,
        .total_bytes       = a->opts.device_total_bytes,
        .free_bytes        = endless ? 0 : vp_caching_device_free_bytes(a),
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
 * blocks go, the device again; everything cached goes, the device again. */
vp_status vp_caching_obtain(vp_caching_allocator *a, int stream, int64_t bytes, int64_t asked_bytes,
                            uint32_t *found, vp_err *err)
{
    bool    large         = bytes > SMALL_BYTES;
    int64_t segment_bytes = !large                      ? SMALL_SEGMENT_BYTES
                            : bytes < OWN_SEGMENT_BYTES ? a->large_segment_bytes
                                                        : vp_round_up(bytes, LARGE_ROUND_BYTES);

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
    assert(!*found || (available(&a->blocks[*found]) && a->blocks[*found].bytes >= bytes));
    return *found ? VP_OK : out_of_memory(a, asked_bytes, segment_bytes, err);
}
