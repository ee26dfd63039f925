/* trainers/torch/caching_allocator.c: an allocation and a free as PyTorch does them, and the
 * allocator itself. */
#include "base/checked.h"
#include "trainers/torch/caching_allocator_index.h"
#include "trainers/torch/torch_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Older versions of torch 2 have not been compared. */
enum { OLDEST_MINOR = 7 };

/* ---- free ---- */

void vp_caching_allocator_free(vp_caching_allocator *a, vp_caching_block b)
{
    block *x = &a->blocks[b];

    if (!b)
        return;
    assert(b < a->n_blocks && x->used); /* given out, and not given back before */
    bool is_of_round = x->searches >= a->round.since;
    x->used          = false;
    a->round.n_in_use -= is_of_round;
    a->round.differs |= !is_of_round;
    a->figures.allocated_bytes.now -= x->bytes;
    if (!x->uses) {
        free_block(a, b);
        return;
    }
    for (uint64_t uses = x->uses; uses; uses &= uses - 1) {
        event_queue *q = &a->queues[__builtin_ctzll(uses)];

        assert(q->tail - q->head < q->n_claims &&
               q->n_claims <= q->cap); /* record_stream() made room */
        q->blocks[q->tail++ % q->cap] = b;
        x->n_events++;
        a->n_events++;
    }
    x->uses = 0;
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

static inline void note_taken(rank *last, const block *x)
{
    if (x->bytes > last->bytes || (x->bytes == last->bytes && x->at > last->at))
        *last = (rank){x->bytes, x->at};
}

/* A free block for bytes, whose bin is known, taken out of its pool; 0 when none suits. */
static inline uint32_t find(vp_caching_allocator *a, pool *p, bool large, int64_t bytes,
                            unsigned bin)
{
    uint32_t *at, *after, b;

    a->searches[large] += a->ages;
    at = pool_best(a, p, bytes, bin);
    if (!at)
        return 0;
    /* A block that can still grow counts as what it can become, so that the end of an expandable
     * segment is used last. */
    if (a->opts.expandable_segments && reach_bytes(a, *at) > a->blocks[*at].bytes)
        while ((after = pool_place(a, p, a->blocks[*at].bytes, a->blocks[*at].at + 1)) &&
               reach_bytes(a, *after) < reach_bytes(a, *at))
            at = after;
    b = *at;
    if (bytes < a->max_split_bytes ? a->blocks[b].bytes >= a->max_split_bytes
                                   : a->blocks[b].bytes - bytes >= a->max_non_split_rounding_bytes)
        return 0;
    pool_take_at(a, p, at);
    return b;
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
    int64_t             bytes, rest_bytes;
    bool                large, was_split;
    uint32_t            b, rest;
    unsigned            bin;
    block              *x;
    pool               *p;

    *out = 0;
    if ((uint64_t)asked_bytes >> VP_CACHING_REQUEST_BITS)
        return VP_FAIL(err, VP_ERR_INPUT, "a request of %lld bytes", (long long)asked_bytes);
    if (stream < 0 || stream >= VP_CACHING_STREAMS || !a->pools[stream][1])
        VP_TRY(pools_new(a, stream, err));
    if (asked_bytes == 0)
        return VP_OK;
    if (!blocks_reserve(a, 16))
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    if (a->n_events)
        vp_caching_process_events(a);

    bytes = rounded_bytes(a, asked_bytes);
    large = bytes > SMALL_BYTES;
    p     = a->pools[stream][large];
    bin   = bin_of(bytes);
    b     = find(a, p, large, bytes, bin);
    if (!b) {
        VP_TRY(vp_caching_obtain(a, stream, bytes, asked_bytes, out, err));
        b = *out;
    }

    /* What is left over is a free block if it is worth one: 512 B and more in the small pool and in
     * expandable segments, else more than 1 MiB, and never of a block of max_split_size. */
    x          = &a->blocks[b];
    was_split  = !alone(x);
    rest_bytes = x->bytes - bytes;
    if (!a->round.differs)
        note_taken(&p->last_taken[bin], x);
    if (!large || a->opts.expandable_segments
            ? rest_bytes >= ROUND_BYTES
            : bytes < a->max_split_bytes && rest_bytes > SMALL_BYTES) {
        rest     = block_new(a, x, x->at + bytes, rest_bytes);
        x->bytes = bytes;
        splice(a->blocks, b, rest, x->next);
        pool_put_in(a, p, rest);
        if (!x->expandable)
            add_to(&f->inactive_split_bytes, was_split ? -bytes : rest_bytes);
    } else if (was_split && !x->expandable) {
        f->inactive_split_bytes.now -= x->bytes;
    }
    x->used        = true;
    x->asked_bytes = asked_bytes;
    x->searches    = a->n_allocs++;
    a->round.n_in_use++;
    add_to(&f->allocated_bytes, x->bytes);
    add_to(&f->active_bytes, x->bytes);
    add_to(&f->requested_bytes, asked_bytes);
    assert(f->allocated_bytes.now <= f->active_bytes.now &&
           f->active_bytes.now <= f->reserved_bytes.now);
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
    a->opts     = *opts;
    a->round    = (event_round){.differs = true};
    VP_TRY_ALLOC(err, blocks_reserve(a, 64));
    a->blocks[0]                    = (block){.used = true};
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

static void *copy_of(const void *from, size_t used_bytes, size_t bytes)
{
    void *to = malloc(bytes);

    if (to)
        memcpy(to, from, used_bytes);
    return to;
}

vp_status vp_caching_allocator_copy(const vp_caching_allocator *a, vp_caching_allocator **out,
                                    vp_err *err)
{
    vp_caching_allocator *b  = copy_of(a, sizeof *a, sizeof *a);
    vp_status             st = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, b);
    b->blocks = NULL;
    for (int i = 0; i < 2; i++)
        b->segments[i].list = NULL;
    for (int s = 0; s < VP_CACHING_STREAMS; s++) {
        b->pools[s][0] = b->pools[s][1] = NULL;
        b->queues[s].blocks             = NULL;
    }
    b->blocks = copy_of(a->blocks, (size_t)a->n_blocks * sizeof *b->blocks,
                        (size_t)a->cap_blocks * sizeof *b->blocks);
    VP_TRY_ALLOC(err, b->blocks);
    for (int i = 0; a->segments[0].list && i < 2; i++)
        VP_TRY_ALLOC(err, b->segments[i].list =
                              copy_of(a->segments[i].list, (size_t)a->segments[i].n * sizeof(span),
                                      (size_t)a->cap_blocks * sizeof(span)));
    for (int s = 0; s < VP_CACHING_STREAMS; s++) {
        size_t ring_bytes = (size_t)a->queues[s].cap * sizeof *a->queues[s].blocks;

        for (int large = 0; a->pools[s][0] && large < 2; large++) {
            b->pools[s][large] = copy_of(a->pools[s][large], sizeof(pool), sizeof(pool));
            VP_TRY_ALLOC(err, b->pools[s][large]);
        }
        if (ring_bytes)
            VP_TRY_ALLOC(err, b->queues[s].blocks =
                                  copy_of(a->queues[s].blocks, ring_bytes, ring_bytes));
    }
    *out = b;
    b    = NULL;
out:
    vp_caching_allocator_destroy(b);
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
    for (int i = 0; i < 2; i++)
        free(a->segments[i].list);
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
