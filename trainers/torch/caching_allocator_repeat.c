/* trainers/torch/caching_allocator_repeat.c: whether an allocator holds what it held a round of the same events before, and
 * whether a round, played once more, would do the same. */
#include "trainers/torch/caching_allocator_index.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS = 3 }; /* of a block */

int64_t vp_caching_allocator_n_allocs(const vp_caching_allocator *a)
{
    return a->n_allocs;
}

static int by_address(const void *x, const void *y)
{
    const int64_t *a = x, *b = y;

    return (*a > *b) - (*a < *b);
}

/* Numbers of blocks are of no matter; nor is the order of segments, which addresses give. */
static int64_t *put_block(int64_t *at, const block *b, int64_t since)
{
    *at++ = b->at;
    *at++ = b->bytes;
    *at++ = (b->used ? 1 + (b->searches < since ? 0 : b->searches - since + 1) : 0) << 10 |
            b->stream << 3 | b->large << 2 | b->mapped << 1 | b->expandable;
    return at;
}

vp_status vp_caching_allocator_state(const vp_caching_allocator *a, int64_t since,
                                     vp_caching_state *out, vp_err *err)
{
    struct head {
        int64_t  at;
        uint32_t block;
    } *heads           = NULL;
    bool     *is_spare = NULL;
    int64_t   n_heads  = 0, *at;
    vp_status st       = VP_OK;

    *out = (vp_caching_state){.n_allocs = a->n_allocs - since};
    if (a->ages || a->n_events)
        return VP_OK;
    heads      = calloc((size_t)a->n_blocks + 1, sizeof *heads);
    is_spare   = calloc((size_t)a->n_blocks + 1, sizeof *is_spare);
    out->words = malloc((size_t)(a->n_blocks + 1) * WORDS * sizeof *out->words);
    VP_TRY_ALLOC(err, heads && is_spare && out->words);
    for (uint32_t b = a->spare; b; b = a->blocks[b].next)
        is_spare[b] = true;
    for (uint32_t b = 1; b < a->n_blocks; b++)
        if (!is_spare[b] && !a->blocks[b].prev)
            heads[n_heads++] = (struct head){a->blocks[b].at, b};
    qsort(heads, (size_t)n_heads, sizeof *heads, by_address);
    at = out->words;
    for (int64_t i = 0; i < n_heads; i++)
        for (uint32_t b = heads[i].block; b; b = a->blocks[b].next)
            at = put_block(at, &a->blocks[b], since);
    out->n = at - out->words;
out:
    free(heads);
    free(is_spare);
    if (st != VP_OK)
        vp_caching_state_release(out);
    return st;
}

bool vp_caching_state_is_same(const vp_caching_state *x, const vp_caching_state *y)
{
    return x->words && y->words && x->n == y->n && x->n_allocs == y->n_allocs &&
           memcmp(x->words, y->words, (size_t)x->n * sizeof *x->words) == 0;
}

void vp_caching_state_release(vp_caching_state *s)
{
    free(s->words);
    s->words = NULL;
    s->n     = 0;
}

/* ---- a round once more ---- */

void vp_caching_allocator_begin_round(vp_caching_allocator *a)
{
    bool is_limited = a->opts.device_total_bytes != VP_CACHING_DEVICE_UNLIMITED;

    a->round = (event_round){
        .since          = a->n_allocs,
        .n_device_frees = a->figures.n_device_frees,
        .differs        = a->ages || a->n_events || a->opts.streams_lag ||
                   a->max_split_bytes != NEVER_BYTES || (a->opts.expandable_segments && is_limited),
    };
    for (int s = 0; s < a->n_streams; s++)
        for (int large = 0; large < 2 && a->pools[s][large]; large++)
            memset(a->pools[s][large]->last_taken, 0, sizeof a->pools[s][large]->last_taken);
}

/* A round once more has this memory from its beginning, where it is free. What the round was given before it was there, it is given
 * again, unless a new segment comes before the block that was taken for a request: it fits better, or as well and lies lower. An expandable one grows at its end, where it is free last (find()); and where there are holes, in these first. */
void vp_caching_round_grows(vp_caching_allocator *a, const pool *p, const rank *segment)
{
    const block *gap = &a->blocks[p->unmapped];

    if (!segment) {
        a->round.differs |= !p->unmapped || gap->left || gap->right;
        return;
    }
    for (unsigned bin = 0; bin <= bin_of(segment->bytes) && !a->round.differs; bin++) {
        const rank *last = &p->last_taken[bin];
        a->round.differs = last->bytes > segment->bytes ||
                           (last->bytes == segment->bytes && last->at > segment->at);
    }
}

bool vp_caching_allocator_repeat(vp_caching_allocator *a)
{
    if (a->round.differs || a->round.n_in_use || a->n_events ||
        a->figures.n_device_frees != a->round.n_device_frees)
        return false;
    a->n_allocs += a->n_allocs - a->round.since;
    return true;
}
