/* DeepSpeed's ZeRO 3 (0.19, runtime/zero/stage3.py, partitioned_param_coordinator.py) as `vplan emit` has it set up: buckets of
 * 5e8 elements, 5e7 fetched ahead, weights of up to 1e5 always whole, 1e9 at most whole or wanted again so soon. */
#include "trainers/torch/world_internal.h"

#include "base/checked.h"

#include <string.h>

enum { AHEAD = 50000000, PERSISTENT = 100000, REUSED = 1000000000 };

static bool keeps_weights(const vp_world *w)
{
    return strcmp(w->opts.offload, "params") != 0;
}

static bool keeps_states(const vp_world *w)
{
    return strcmp(w->opts.offload, "none") == 0;
}

/* Elements of a unit: all of them, or those that are cut. */
static int64_t elements(const vp_world *w, int64_t u)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < w->units[u].n; i++)
        sum += w->weights[w->units[u].first + i].elements;
    return sum;
}

static int64_t part(const vp_world *w)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < w->n_weights; i++)
        sum += vp_ceil_div(w->weights[i].elements, w->opts.ranks);
    return sum;
}

/* The model comes whole, or weight by weight, and is cut; what is small stays whole. */
static vp_status load_weights(vp_world *w, vp_err *err)
{
    int64_t   each = w->opts.weight_bytes;
    vp_status st   = VP_OK;

    for (int64_t i = 0; i < w->n_weights; i++) {
        vp_world_weight *x     = &w->weights[i];
        bool             stays = x->elements <= PERSISTENT;
        VP_TRY(vp_world_take(w, stays ? VP_OWNER_PARAMETER : VP_OWNER_TEMPORARY, x->elements * each,
                             &x->whole, err));
        if (!w->opts.loads_in_parts)
            continue;
        VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, vp_ceil_div(x->elements, w->opts.ranks) * each,
                             &x->shard, err));
        if (!stays)
            vp_ledger_free(w->ledger, &x->whole);
    }
    for (int64_t i = 0; i < w->n_weights; i++) {
        vp_ledger_free(w->ledger, &w->weights[i].shard); /* one tensor of them all follows */
        if (w->weights[i].elements > PERSISTENT)
            vp_ledger_free(w->ledger, &w->weights[i].whole);
    }
out:
    return st;
}

static vp_status load(vp_world *w, vp_err *err)
{
    int64_t         n = part(w), each = w->opts.weight_bytes;
    vp_ledger_block scratch = {0};
    vp_status       st      = VP_OK;

    VP_TRY(load_weights(w, err));
    if (keeps_weights(w))
        VP_TRY(vp_world_take(w, VP_OWNER_PARAMETER, n * each, &w->buffers[VP_ZERO_WEIGHTS], err));
    if (keeps_states(w)) {
        VP_TRY(vp_world_take(w, VP_OWNER_MASTER, 4 * n, &w->buffers[VP_ZERO_MASTER], err));
        VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, 4 * n, &scratch, err));
        vp_ledger_free(w->ledger, &scratch);
        w->trained[0] = 4 * n;
        w->n_trained  = 1;
    }
    if (!keeps_weights(w))
        vp_world_pin(w, n * each);
    if (!keeps_states(w)) { /* the master, and its gradient */
        vp_world_pin(w, 4 * n);
        vp_world_pin(w, 4 * n);
        w->host_elements = n;
    }
    VP_TRY(vp_world_take(w, VP_OWNER_BUCKET, VP_ZERO_BUCKET * each, &w->input, err));
    if (keeps_states(w))
        VP_TRY(vp_world_take(w, VP_OWNER_GRADIENT, n * each, &w->buffers[VP_ZERO_REDUCED], err));
out:
    vp_ledger_free(w->ledger, &scratch);
    return st;
}

/* The largest weight of a unit that is gathered. */
static int64_t largest(const vp_world *w, int64_t u)
{
    int64_t most = 0;

    for (int64_t i = 0; i < w->units[u].n; i++)
        if (w->weights[w->units[u].first + i].elements > most)
            most = w->weights[w->units[u].first + i].elements;
    return most;
}

static void release(vp_world *w, int64_t u)
{
    for (int64_t i = 0; i < w->units[u].n; i++)
        if (w->weights[w->units[u].first + i].elements > PERSISTENT)
            vp_ledger_free(w->ledger, &w->weights[w->units[u].first + i].whole);
    w->units[u].is_whole = false;
}

/* In the first forward and backward, before the order of use is known, a weight is whole only while it is used. Later a unit
 * comes whole, through buffers of what is fetched ahead. */
static vp_status fetch(vp_world *w, int64_t u, vp_err *err)
{
    int64_t   each = w->opts.weight_bytes, n = elements(w, u);
    vp_status st = VP_OK;

    vp_ledger_free(w->ledger, &w->gathered);
    if (w->units[u].is_whole || !n)
        return VP_OK;
    if (!w->is_traced) {
        st = vp_world_take(w, VP_OWNER_GATHERED, largest(w, u) * each, &w->gathered, err);
        vp_ledger_free(w->ledger, &w->gathered);
        return st;
    }
    VP_TRY(vp_world_take(w, VP_OWNER_GATHERED, (n > AHEAD ? n : AHEAD) * each, &w->gathered, err));
    for (int64_t i = 0; i < w->units[u].n; i++) {
        vp_world_weight *x = &w->weights[w->units[u].first + i];
        if (x->elements > PERSISTENT)
            VP_TRY(vp_world_take(w, VP_OWNER_GATHERED, x->elements * each, &x->whole, err));
    }
    w->units[u].is_whole = true;
out:
    return st;
}

/* Not so many elements are used between a layer's forward and the turn to backward: it stays whole, as was seen of models
 * of up to 1.1e9. The input's table has no second use. */
static bool is_wanted_soon(const vp_world *w, int64_t u)
{
    int64_t sum = elements(w, w->head);

    for (int64_t i = u + 1; i < w->n_layers; i++)
        sum += elements(w, i);
    return w->is_traced && u != w->embed && sum < REUSED;
}

static vp_status begin(vp_world *w, vp_err *err)
{
    if (w->is_backward)
        return VP_OK;
    return fetch(w, w->opts.is_tied ? w->head : w->embed, err);
}

static vp_status forward_layer(vp_world *w, int64_t i, vp_err *err)
{
    int64_t before = i > 0 ? i - 1 : w->opts.is_tied ? w->head : w->embed;

    if (before == w->head ? !w->is_traced : !is_wanted_soon(w, before))
        release(w, before);
    return fetch(w, i < w->n_layers ? i : w->head, err);
}

static vp_status layer(vp_world *w, int64_t i, vp_err *err)
{
    int64_t u = w->n_layers - 1 - i;

    if (!w->is_backward)
        return forward_layer(w, i, err);
    release(w, i == 0 ? w->head : w->n_layers - i);
    return u >= 0 ? fetch(w, u, err) : VP_OK;
}

/* The bucket is reduced through a padded copy of it. */
static vp_status reduce(vp_world *w, vp_err *err)
{
    vp_ledger_block flat = {0};
    vp_status       st   = VP_OK;

    VP_TRY(vp_world_take(w, VP_OWNER_BUCKET, w->filled * w->opts.weight_bytes, &flat, err));
    w->filled = 0;
out:
    vp_ledger_free(w->ledger, &flat);
    return st;
}

static vp_status put(vp_world *w, int64_t i, vp_ledger_block *block, vp_err *err)
{
    int64_t   n  = w->gradients[i] / w->opts.weight_bytes;
    vp_status st = VP_OK;

    if (w->filled + n > VP_ZERO_BUCKET && w->filled)
        VP_TRY(reduce(w, err));
    w->filled += n;
    vp_ledger_free(w->ledger, block);
    w->made[i] = NULL;
out:
    return st;
}

/* The last ones, of tables, are added up from parts, which go first: put when all is over. */
static vp_status gradient(vp_world *w, int64_t i, vp_ledger_block *block, vp_err *err)
{
    int64_t   end = w->first_of_layers + w->of_layer * w->n_layers;
    int64_t   u = vp_world_unit_of_gradient(w, i), next = u;
    vp_status st = VP_OK;

    if (i >= end)
        return VP_OK;
    VP_TRY(put(w, i, block, err));
    if (i + 1 < w->n_gradients)
        next = vp_world_unit_of_gradient(w, i + 1);
    if (u != next) {
        release(w, u);
        VP_TRY(fetch(w, next, err));
    }
out:
    return st;
}

static vp_status end(vp_world *w, vp_err *err)
{
    vp_status st = VP_OK;

    if (!w->is_backward)
        return VP_OK;
    for (int64_t u = 0; u < w->n_units; u++)
        release(w, u);
    vp_ledger_free(w->ledger, &w->gathered);
    for (int64_t i = 0; i < w->n_gradients; i++)
        if (w->made[i])
            VP_TRY(put(w, i, w->made[i], err));
    if (w->filled)
        VP_TRY(reduce(w, err));
    w->is_traced = true;
out:
    return st;
}

static vp_status step(vp_world *w, vp_err *err)
{
    return keeps_states(w)
               ? vp_world_take(w, VP_OWNER_GRADIENT, 4 * part(w), &w->buffers[VP_ZERO_WIDE], err)
               : VP_OK;
}

const vp_world_form vp_world_zero3 = {.name     = "zero3",
                                      .offloads = "optimizer params",
                                      .load     = load,
                                      .begin    = begin,
                                      .layer    = layer,
                                      .gradient = gradient,
                                      .end      = end,
                                      .step     = step,
                                      .stepped  = vp_world_zero_stepped};
