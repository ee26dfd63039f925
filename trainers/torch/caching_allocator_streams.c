/* trainers/torch/caching_allocator_streams.c: a block that is used on other streams than its own
 * is free once each of them has passed its last use there. */
#include "trainers/torch/caching_allocator_index.h"
#include "trainers/torch/torch_internal.h"

#include <assert.h>
#include <stdlib.h>

static void queue_run(vp_caching_allocator *a, event_queue *q, int64_t until)
{
    assert(until <= q->tail && q->tail - q->head <= q->cap);
    while (q->head < until) {
        uint32_t b = q->blocks[q->head++ % q->cap];

        assert(q->n_claims > 0 && a->n_events > 0 && a->blocks[b].n_events > 0 &&
               !a->blocks[b].used);
        q->n_claims--;
        a->n_events--;
        if (--a->blocks[b].n_events == 0)
            free_block(a, b);
    }
}

void vp_caching_process_events(vp_caching_allocator *a)
{
    for (int s = 0; s < VP_CACHING_STREAMS; s++)
        queue_run(a, &a->queues[s], a->opts.streams_lag ? a->queues[s].done : a->queues[s].tail);
}

void vp_caching_synchronize(vp_caching_allocator *a)
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
    assert(q->n_claims <= q->cap);
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
    assert(a->queues[stream].done <= a->queues[stream].tail);
    a->queues[stream].done = a->queues[stream].tail;
}
