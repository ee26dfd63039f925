/* DeepSpeed's ZeRO 1 and 2 (0.19, runtime/zero/stage_1_and_2.py) as `vplan emit` has them set up: buckets of 5e8 elements,
 * contiguous gradients, no overlap. The ranks' 16-bit weights lie in one tensor, of which each updates its part. */
#include "trainers/torch/world_internal.h"

#include "base/checked.h"

#include <string.h>

static bool is_offloaded(const vp_world *w)
{
    return strcmp(w->opts.offload, "none") != 0;
}

static int64_t part(const vp_world *w)
{
    return vp_ceil_div(w->n_elements, w->opts.ranks);
}

/* Of the largest weight what lies in rank 0's part. */
static int64_t most_owned_elements(const vp_world *w)
{
    return w->most_elements < part(w) ? w->most_elements : part(w);
}

/* Whole weights that begin in rank 0's part. */
static int64_t owned_elements(vp_world *w)
{
    int64_t sum = 0, own = part(w);

    for (int64_t place = 0; place < w->n_weights && sum < own; place++)
        sum += vp_world_weight_at(w, place)->elements;
    return sum;
}

/* Weights come one by one, then lie in one tensor; rank 0's part of it becomes wide. */
static vp_status load(vp_world *w, vp_err *err)
{
    int64_t         each = w->opts.weight_bytes, n = part(w);
    vp_ledger_block scratch = {0};
    vp_status       st      = VP_OK;

    for (int64_t place = 0; place < w->n_weights; place++) {
        vp_world_weight *x = vp_world_weight_at(w, place);
        VP_TRY(vp_world_take(w, VP_OWNER_PARAMETER, x->elements * each, &x->whole, err));
    }
    if (w->opts.device_bytes && 2 * n * w->opts.ranks * each > w->opts.device_bytes)
        for (int64_t i = 0; i < w->n_weights;
             i++) /* joined in host memory where there is no room */
            vp_ledger_free(w->ledger, &w->weights[i].whole);
    VP_TRY(vp_ledger_empty_cache(w->ledger, err));
    VP_TRY(vp_world_take(w, VP_OWNER_PARAMETER, n * w->opts.ranks * each,
                         &w->buffers[VP_ZERO_WEIGHTS], err));
    for (int64_t i = 0; i < w->n_weights; i++)
        vp_ledger_free(w->ledger, &w->weights[i].whole);
    VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, n * each, &scratch, err));
    if (is_offloaded(w)) {
        vp_ledger_free(w->ledger, &scratch);
        VP_TRY(vp_world_take(w, VP_OWNER_BUCKET, w->most_elements * each,
                             &w->buffers[VP_ZERO_MASTER], err));
        vp_world_pin(w, n * each); /* a copy to send back; the master, and its gradient */
        vp_world_pin(w, 4 * n);
        vp_world_pin(w, 4 * n);
        w->host_elements = n;
    } else {
        VP_TRY(vp_world_take(w, VP_OWNER_MASTER, 4 * n, &w->buffers[VP_ZERO_MASTER], err));
        vp_ledger_free(w->ledger, &scratch);
        VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, 4 * n, &scratch, err));
        w->trained[0] = 4 * n;
        w->n_trained  = 1;
    }
out:
    vp_ledger_free(w->ledger, &scratch);
    return st;
}

/* ZeRO 1 without overlap leaves gradients where they are until backward is over. */
static bool waits(const vp_world *w)
{
    return w->form == &vp_world_zero1;
}

/* The last ones, of tables, are added up from parts, which go first. */
static bool is_put_at_end(const vp_world *w, int64_t i)
{
    return waits(w) || i >= w->first_of_layers + w->of_layer * w->n_layers;
}

/* The bucket is reduced, through a copy where several ranks own parts of it; what rank 0 owns is kept. Gradients come
 * from the model's end on, and from its beginning where they have waited. */
static vp_status reduce(vp_world *w, vp_err *err)
{
    int64_t         each = w->opts.weight_bytes, all = w->n_elements;
    int64_t         first = waits(w) ? w->done : all - w->done - w->filled;
    vp_ledger_block flat  = {0};
    vp_status       st    = VP_OK;

    if (first / part(w) != (first + w->filled - 1) / part(w))
        VP_TRY(vp_world_take(w, VP_OWNER_BUCKET, w->filled * each, &flat, err));
    vp_ledger_free(w->ledger, &flat);
    if (first < part(w) && !w->buffers[VP_ZERO_REDUCED].block && !is_offloaded(w))
        VP_TRY(vp_world_take(w, VP_OWNER_GRADIENT, owned_elements(w) * each,
                             &w->buffers[VP_ZERO_REDUCED], err));
    if (is_offloaded(w)) /* the norm in 64 bits, before the copy to host memory */
        VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, 8 * most_owned_elements(w), &flat, err));
    w->done += w->filled;
    w->filled = 0;
    if (w->large)
        vp_ledger_free(w->ledger, w->large);
    w->large = NULL;
out:
    vp_ledger_free(w->ledger, &flat);
    return st;
}

static vp_status set_up_bucket(vp_world *w, vp_err *err)
{
    w->done = w->filled = 0;
    return vp_world_take(w, VP_OWNER_BUCKET, VP_ZERO_BUCKET * w->opts.weight_bytes, &w->input, err);
}

/* A gradient is copied to the bucket and goes; one that is larger than a bucket waits for its own
 * reduction. */
static vp_status put(vp_world *w, int64_t i, vp_ledger_block *block, vp_err *err)
{
    int64_t   n  = w->gradients[i] / w->opts.weight_bytes;
    vp_status st = VP_OK;

    if (w->filled + n > VP_ZERO_BUCKET && w->filled)
        VP_TRY(reduce(w, err));
    w->filled += n;
    if (n > VP_ZERO_BUCKET)
        w->large = block;
    else
        vp_ledger_free(w->ledger, block);
    w->made[i] = NULL;
out:
    return st;
}

static vp_status gradient(vp_world *w, int64_t i, vp_ledger_block *block, vp_err *err)
{
    vp_status st = VP_OK;

    if (!w->input.block)
        VP_TRY(set_up_bucket(w, err));
    if (!is_put_at_end(w, i))
        VP_TRY(put(w, i, block, err));
out:
    return st;
}

/* Gradients that were added to others were made without a word. */
static vp_status end(vp_world *w, vp_err *err)
{
    vp_status st = VP_OK;

    if (!w->is_backward)
        goto out;
    if (!w->input.block)
        VP_TRY(set_up_bucket(w, err));
    for (int64_t k = 0; k < w->n_gradients && (w->reduces || !waits(w)); k++) {
        int64_t i = waits(w) ? w->n_gradients - 1 - k : k;
        if (w->made[i] && is_put_at_end(w, i))
            VP_TRY(put(w, i, w->made[i], err));
    }
    if (!w->done && !w->filled && !waits(w))
        w->filled = w->n_elements < VP_ZERO_BUCKET ? w->n_elements : VP_ZERO_BUCKET;
    if (w->filled)
        VP_TRY(reduce(w, err));
    if (w->reduces || !waits(w))
        vp_ledger_free(w->ledger, &w->input);
out:
    return st;
}

/* The norm is taken in 64 bits, gradient by gradient; then rank 0's part becomes wide. */
static vp_status step(vp_world *w, vp_err *err)
{
    int64_t         n       = part(w);
    vp_ledger_block scratch = {0};
    vp_status       st      = VP_OK;

    if (is_offloaded(w))
        return VP_OK;
    VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, 8 * most_owned_elements(w), &scratch, err));
    VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, n * w->opts.weight_bytes, &scratch, err));
    VP_TRY(vp_world_take(w, VP_OWNER_GRADIENT, 4 * n, &w->buffers[VP_ZERO_WIDE], err));
    vp_ledger_free(w->ledger, &w->buffers[VP_ZERO_REDUCED]);
out:
    vp_ledger_free(w->ledger, &scratch);
    return st;
}

const vp_world_form vp_world_zero1 = {.name         = "zero1",
                                      .is_flat      = true,
                                      .keeps_frozen = true,
                                      .offloads     = "optimizer",
                                      .load         = load,
                                      .gradient     = gradient,
                                      .end          = end,
                                      .step         = step,
                                      .stepped      = vp_world_zero_stepped};

const vp_world_form vp_world_zero2 = {.name         = "zero2",
                                      .is_flat      = true,
                                      .keeps_frozen = true,
                                      .offloads     = "optimizer",
                                      .load         = load,
                                      .gradient     = gradient,
                                      .end          = end,
                                      .step         = step,
                                      .stepped      = vp_world_zero_stepped};
