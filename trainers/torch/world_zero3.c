/* DeepSpeed's ZeRO 3 (0.19, runtime/zero/stage3.py, partitioned_param_coordinator.py) as `vplan emit` has it set up: buckets of
 * 5e8 elements, 5e7 fetched ahead, weights of up to 1e5 always whole, 1e9 at most whole or wanted again so soon. */
#include "trainers/torch/world_zero3_fetch.h"

#include "base/checked.h"

#include <string.h>

static bool keeps_weights(const vp_world *w)
{
    return strcmp(w->opts.offload, "params") != 0;
}

static bool keeps_states(const vp_world *w)
{
    return strcmp(w->opts.offload, "none") == 0;
}

/* A weight's part is made, in host memory where it will stay, then the weight goes. */
static vp_status cut(vp_world *w, vp_world_weight *x, vp_err *err)
{
    int64_t   bytes = vp_ceil_div(x->elements, w->opts.ranks) * w->opts.weight_bytes;
    vp_status st    = VP_OK;

    if (keeps_weights(w))
        st = vp_world_take(w, x->place >= 0 ? VP_OWNER_TEMPORARY : VP_OWNER_FROZEN, bytes,
                           &x->shard, err);
    vp_ledger_free(w->ledger, &x->whole);
    return st;
}

/* Of what is trained, which lies in one tensor. */
static int64_t part(const vp_world *w)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < w->n_weights; i++)
        if (w->weights[i].place >= 0)
            sum += vp_ceil_div(w->weights[i].elements, w->opts.ranks);
    return sum;
}

/* The model comes whole, or weight by weight, and is cut; parts of what is frozen stay where they are. */
static vp_status load_weights(vp_world *w, vp_err *err)
{
    int64_t   each = w->opts.weight_bytes;
    vp_status st   = VP_OK;

    for (int64_t i = 0; i < w->n_weights; i++) {
        vp_world_weight *x = &w->weights[i];
        VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, x->elements * each, &x->whole, err));
        if (w->opts.loads_in_parts)
            VP_TRY(cut(w, x, err));
    }
    for (int64_t i = 0; i < w->n_weights && !w->opts.loads_in_parts; i++)
        VP_TRY(cut(w, &w->weights[i], err));
    for (int64_t i = 0; i < w->n_weights; i++)
        if (w->weights[i].place >= 0) /* one tensor of them all follows */
            vp_ledger_free(w->ledger, &w->weights[i].shard);
out:
    return st;
}

/* What is small stays whole from the end of the first pass on, and is cut while the optimizer works: until the order of use is known
 * release_sub_module() lets go of it as well. */
static vp_status keep_small(vp_world *w, bool whole, vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t i = 0; i < w->n_weights; i++) {
        vp_world_weight *x = &w->weights[i];
        if (x->elements > VP_ZERO3_PERSISTENT)
            continue;
        if (!whole)
            vp_ledger_free(w->ledger, &x->whole);
        else if (!x->whole.block)
            VP_TRY(vp_world_take(w, x->place < 0 ? VP_OWNER_FROZEN : VP_OWNER_PARAMETER,
                                 x->elements * w->opts.weight_bytes, &x->whole, err));
    }
out:
    return st;
}

/* Each weight that is trained is made whole once, for autograd's node that its gradient comes to
 * (create_reduce_and_remove_grad_hooks()); of host memory its part comes to the card first. */
static vp_status look_at_each(vp_world *w, vp_err *err)
{
    vp_ledger_block whole = {0}, own = {0};
    int64_t         bytes;
    vp_status       st = VP_OK;

    for (int64_t place = 0, i; place < w->n_weights; place++) {
        for (i = 0; i < w->n_weights && w->weights[i].place != place; i++) {
        }
        if (i == w->n_weights)
            break;
        bytes = vp_ceil_div(w->weights[i].elements, w->opts.ranks) * w->opts.weight_bytes;
        if (!keeps_weights(w))
            VP_TRY(vp_world_take(w, VP_OWNER_GATHERED, bytes, &own, err));
        VP_TRY(vp_world_take(w, VP_OWNER_GATHERED, bytes * w->opts.ranks, &whole, err));
        vp_ledger_free(w->ledger, &whole);
        vp_ledger_free(w->ledger, &own);
    }
out:
    vp_ledger_free(w->ledger, &whole);
    vp_ledger_free(w->ledger, &own);
    return st;
}

static vp_status load(vp_world *w, vp_err *err)
{
    int64_t         n = part(w), each = w->opts.weight_bytes;
    vp_ledger_block scratch = {0};
    vp_status       st      = VP_OK;

    VP_TRY(load_weights(w, err));
    if (keeps_weights(w)) /* joined in host memory; what is cached goes first */
        VP_TRY(vp_ledger_empty_cache(w->ledger, err));
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
    VP_TRY(look_at_each(w, err));
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

/* Before the order of use is known a weight is whole only while it is used. */
static vp_status glance(vp_world *w, int64_t elements, vp_err *err)
{
    vp_status st = vp_zero3_fetch_alone(w, elements, &w->gathered, err);

    vp_ledger_free(w->ledger, &w->gathered);
    return st;
}

static vp_status use(vp_world *w, int64_t u, bool backwards, vp_err *err)
{
    return w->is_traced ? vp_zero3_fetch_use(w->fetch, u, backwards, err)
                        : glance(w, largest(w, u), err);
}

static void release(vp_world *w, int64_t u)
{
    if (w->is_traced)
        vp_zero3_fetch_release(w->fetch, u);
}

/* Asked for by the loss, the head's weight is one of the whole model's own from then on (register_external_parameter()): whole
 * from the loss to the end of the pass, and all through the passes behind that. */
static vp_status hold_head(vp_world *w, vp_err *err)
{
    const vp_world_unit *head = &w->units[w->head];
    vp_status            st   = VP_OK;

    for (int64_t i = head->first; i < head->first + head->n; i++)
        if (!w->weights[i].whole.block)
            VP_TRY(vp_zero3_fetch_alone(w, w->weights[i].elements, &w->weights[i].whole, err));
out:
    return st;
}

static vp_status begin(vp_world *w, vp_err *err)
{
    vp_status st = VP_OK;

    if (w->is_traced)
        VP_TRY(keep_small(w, true, err));
    if (w->is_backward && !w->is_traced && w->opts.asks_for_head)
        return hold_head(w, err);
    if (w->is_backward)
        return w->is_traced ? use(w, w->head, true, err) : VP_OK;
    if (!w->fetch)
        VP_TRY(vp_zero3_fetch_new(w, &w->fetch, err));
    vp_zero3_fetch_reset(w->fetch);
    if (w->is_traced && w->opts.asks_for_head)
        VP_TRY(use(w, w->head, false, err));
    VP_TRY(use(w, w->opts.is_tied ? w->head : w->embed, false, err));
    VP_TRY(use(w, w->rest, false, err));
out:
    return st;
}

static vp_status turn(vp_world *w, int64_t done, int64_t u, vp_err *err);

/* A layer's part of a forward pass begins, or that of what is behind the layers; of a backward pass likewise, where gradients do
 * not tell. */
static vp_status layer(vp_world *w, int64_t i, vp_err *err)
{
    if (w->is_backward && (!w->has_frozen || i == w->n_layers))
        return VP_OK;
    if (w->is_backward)
        return turn(w, i == 0 ? w->head : w->n_layers - i, w->n_layers - 1 - i, err);
    if (i > 0 || !w->opts.is_tied || !w->opts.asks_for_head)
        release(w, i > 0 ? i - 1 : w->opts.is_tied ? w->head : w->embed);
    if (i == 0)
        release(w, w->rest);
    if (i == w->n_layers && w->opts.asks_for_head)
        return w->is_traced ? VP_OK : hold_head(w, err);
    return use(w, i < w->n_layers ? i : w->head, false, err);
}

/* Backward of a unit is over, that of another begins; a layer may be computed anew before. */
static vp_status turn(vp_world *w, int64_t done, int64_t u, vp_err *err)
{
    vp_status st = VP_OK;

    if (done != w->head || !w->opts.asks_for_head)
        release(w, done);
    if (u < w->n_layers && w->opts.is_recomputed)
        VP_TRY(use(w, u, false, err));
    if (u >= w->n_layers)
        VP_TRY(use(w, w->rest, true, err));
    VP_TRY(use(w, u, true, err));
out:
    return st;
}

/* Of a weight's gradient that goes to host memory its part, and that in 64 bits for the norm. */
static vp_status send_off(vp_world *w, vp_err *err)
{
    vp_ledger_block narrow = {0}, wide = {0};
    int64_t         most;
    vp_status       st = VP_OK;

    for (int64_t u = 0; u < w->n_units && !w->is_measured; u++)
        w->most_gathered = vp_max_i64(w->most_gathered, largest(w, u));
    w->is_measured = true;
    most           = vp_ceil_div(w->most_gathered, w->opts.ranks);
    VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, most * w->opts.weight_bytes, &narrow, err));
    VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, 8 * most, &wide, err));
out:
    vp_ledger_free(w->ledger, &narrow);
    vp_ledger_free(w->ledger, &wide);
    return st;
}

/* The bucket is reduced through a padded copy of it. */
static vp_status reduce(vp_world *w, vp_err *err)
{
    vp_ledger_block flat = {0};
    vp_status       st   = VP_OK;

    w->ledger->stream = VP_ZERO3_STREAM_REDUCE;
    VP_TRY(vp_world_take(w, VP_OWNER_BUCKET, w->filled * w->opts.weight_bytes, &flat, err));
    if (!keeps_states(w))
        VP_TRY(send_off(w, err));
    w->filled = 0;
out:
    vp_ledger_free(w->ledger, &flat);
    w->ledger->stream = 0;
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

/* The weight is whole while its gradient is made; where tables are tied the recorded step has the sum apart from its two parts
 * instead, which here is added to the first. The last gradients, of tables, are added up from parts, which go first: put
 * when all is over. */
static vp_status gradient(vp_world *w, int64_t i, vp_ledger_block *block, vp_err *err)
{
    int64_t   end = w->first_of_layers + w->of_layer * w->n_layers;
    int64_t   u = vp_world_unit_of_gradient(w, i), next = u;
    vp_status st = VP_OK;

    if (w->has_frozen)
        return put(w, i, block, err);
    if (!w->is_traced && (i < end || !w->opts.is_tied) && (i > 0 || !w->opts.asks_for_head))
        VP_TRY(glance(w, w->gradients[i] / w->opts.weight_bytes, err));
    if (i >= end)
        return VP_OK;
    VP_TRY(put(w, i, block, err));
    if (i + 1 < w->n_gradients)
        next = vp_world_unit_of_gradient(w, i + 1);
    if (u != next)
        VP_TRY(turn(w, u, next, err));
out:
    return st;
}

/* Tables that look up what has no gradient stay whole until backward is over. */
static vp_status end(vp_world *w, vp_err *err)
{
    int64_t   input = largest(w, w->opts.is_tied ? w->head : w->embed), more = largest(w, w->rest);
    vp_status st = VP_OK;

    if (!w->is_backward) {
        if (!w->is_traced && w->opts.asks_for_head)
            vp_zero3_fetch_reset(w->fetch);
        return VP_OK;
    }
    if (!w->is_traced && (!w->has_frozen || w->opts.is_recomputed)) {
        if (!w->opts.is_tied || !w->opts.asks_for_head) /* else it is whole */
            VP_TRY(vp_zero3_fetch_alone(w, input, &w->gathered, err));
        VP_TRY(vp_zero3_fetch_alone(w, more, &w->pending, err));
    }
    for (int64_t i = 0; i < w->n_gradients; i++)
        if (w->made[i])
            VP_TRY(put(w, i, w->made[i], err));
    if (w->filled)
        VP_TRY(reduce(w, err));
    w->is_traced = true;
out:
    vp_ledger_free(w->ledger, &w->gathered);
    vp_ledger_free(w->ledger, &w->pending);
    vp_zero3_fetch_reset(w->fetch);
    return st;
}

/* Gradients are joined, then made wide. */
static vp_status step(vp_world *w, vp_err *err)
{
    int64_t         each  = w->opts.weight_bytes;
    vp_ledger_block joint = {0};
    vp_status       st    = VP_OK;

    VP_TRY(keep_small(w, false, err));
    if (!keeps_states(w))
        return VP_OK;
    if (each < 4)
        VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, part(w) * each, &joint, err));
    VP_TRY(vp_world_take(w, VP_OWNER_GRADIENT, 4 * part(w), &w->buffers[VP_ZERO_WIDE], err));
out:
    vp_ledger_free(w->ledger, &joint);
    return st;
}

static vp_status stepped(vp_world *w, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(vp_world_zero_stepped(w, err));
    VP_TRY(keep_small(w, true, err));
out:
    return st;
}

const vp_world_form vp_world_zero3 = {.name        = "zero3",
                                      .is_flat     = true,
                                      .cuts_frozen = true,
                                      .offloads    = "optimizer params",
                                      .load        = load,
                                      .begin       = begin,
                                      .layer       = layer,
                                      .gradient    = gradient,
                                      .end         = end,
                                      .step        = step,
                                      .stepped     = stepped};
