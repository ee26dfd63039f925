#include "trainers/hf/hf_loader.h"

#include "base/checked.h"
#include "base/units.h"

/* A worker that is forked writes little of what it shares with the training process: 8.5 to 22.3 MB were its own. One that is
 * spawned, or forked from a server (Python's way from 3.14 on), imports torch and transformers again: 391 MB. Both of a dataset that
 * makes its samples as they are asked for (tests/oracles/loader.py). */
static const int64_t FORKED_BYTES  = 8 * VP_MIB;
static const int64_t SPAWNED_BYTES = 384 * VP_MIB;

enum { PAGE = 4096, PREFETCH = 2 };

/* Semaphores of the queues, a page of /dev/shm each: three of each worker's, eight besides. */
enum { PAGES_EACH = 3, PAGES_BESIDE = 8 };

/* Without workers Accelerate has the next batch beside the one that is used. */
enum { WITHOUT_WORKERS = 2 };

static int64_t power_of_two(int64_t bytes)
{
    int64_t p = 1;

    while (p < bytes)
        p *= 2;
    return p;
}

vp_hf_batch vp_hf_batch_of(const vp_recorded *step)
{
    vp_hf_batch b = {0};
    int64_t     bytes;

    for (int64_t i = 0; (bytes = vp_recorded_input(step, i)) > 0; i++) {
        b.bytes        = vp_add(b.bytes, bytes);
        b.paged_bytes  = vp_add(b.paged_bytes, vp_round_up(bytes, PAGE));
        b.pinned_bytes = vp_add(b.pinned_bytes, power_of_two(bytes));
    }
    return b;
}

/* So many batches are asked of all workers at once, and one that was given out asks for the next (_try_put_index()). The thread that
 * pins takes each out of shared memory as it comes, so what waits is pinned; until then it is shared. */
vp_hf_loader vp_hf_loader_of(const vp_hf_batch *batch, const vp_hf_loader_setting *s)
{
    int64_t prefetch = s->prefetch ? s->prefetch : PREFETCH;
    int64_t asked    = vp_mul(s->workers, prefetch);
    int64_t held     = s->workers ? vp_add(asked, 1) : WITHOUT_WORKERS;
    int64_t pages    = s->workers ? PAGE * (PAGES_BESIDE + PAGES_EACH * s->workers) : 0;

    return (vp_hf_loader){
        .n_batches    = held,
        .pinned_bytes = s->pins ? vp_mul(held, batch->pinned_bytes) : 0,
        .shared_least_bytes =
            pages + (s->workers && !s->pins ? vp_mul(held, batch->paged_bytes) : 0),
        .shared_bytes =
            s->workers ? vp_add(pages, vp_mul(s->pins ? asked : held, batch->paged_bytes)) : 0,
        .workers_low_bytes  = vp_mul(s->workers, FORKED_BYTES),
        .workers_high_bytes = vp_mul(s->workers, SPAWNED_BYTES)};
}
