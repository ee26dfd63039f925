/* DeepSpeed's ZeRO 3 (0.19, runtime/zero/stage3.py, partitioned_param_coordinator.py) as `vplan emit` has it set up: buckets of
 * 5e8 elements, 5e7 fetched ahead, weights of up to 1e5 always whole, 1e9 at most whole or wanted again so soon. */
#include "trainers/torch/world_zero3_fetch.h"

#include "base/checked.h"

#include <string.h>

enum { SUB_GROUP = 1000000000 }; /* elements (sub_group_size) */

static bool keeps_weights(const vp_world *w)
{
    return strcmp(w->opts.offload, "params") != 0;
}

static bool keeps_states(const vp_world *w)
{
    return strcmp(w->opts.offload, "none") == 0;
}

/* Of an element of what is trained, as it is computed with. */
static int64_t trained_bytes(const vp_world *w)
{
    return w->opts.adapter_bytes ? w->opts.adapter_bytes : w->opts.weight_bytes;
}

/* A weight's part is made, in host memory where it will stay, then the weight goes. */
static vp_status cut(vp_world *w, vp_world_weight *x, vp_err *err)
{
    int64_t   bytes = vp_ceil_div(x->elements, w->opts.ranks) * x->computed;
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

static vp_status make_and_cut(vp_world *w, int64_t from, int64_t to, bool adapters, vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t i = from; i < to; i++) {
        vp_world_weight *x = &w->weights[i];
        if ((w->has_frozen && x->place >= 0) != adapters)
            continue;
        VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, x->elements * x->computed, &x->whole, err));
        VP_TRY(cut(w, x, err));
    }
out:
    return st;
}

/* zero.Init(): weight by weight as modules are made, adapters behind them all. A head that will be tied is made and cut too. */
static vp_status make_each(vp_world *w, vp_err *err)
{
    const vp_world_unit *head = &w->units[w->head], *embed = &w->units[w->embed];
    const vp_world_unit *rest = &w->units[w->rest];
    int64_t              n    = w->opts.is_tied;
    vp_world_weight      again;
    vp_status            st = VP_OK;

    VP_TRY(make_and_cut(w, n ? head->first : embed->first,
                        n ? head->first + 1 : embed->first + embed->n, false, err));
    VP_TRY(make_and_cut(w, rest->first, rest->first + rest->n, false, err));
    VP_TRY(make_and_cut(w, 0, embed->first, false, err));
    VP_TRY(make_and_cut(w, head->first + n, head->first + head->n, false, err));
    again       = w->weights[head->first];
    again.shard = again.whole = (vp_ledger_block){0};
    if (n) {
        VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, again.elements * again.computed, &again.whole,
                             err));
        VP_TRY(cut(w, &again, err));
        vp_ledger_free(w->ledger, &again.shard);
    }
    VP_TRY(make_and_cut(w, 0, w->n_weights, true, err));
out:
    return st;
}

/* The model comes whole, or weight by weight, and is cut; parts of what is frozen stay where they are. */
static vp_status load_weights(vp_world *w, vp_err *err)
{
    vp_status st = VP_OK;

    if (w->opts.loads_in_parts)
        VP_TRY(make_each(w, err));
    for (int64_t i = 0; i < w->n_weights && !w->opts.loads_in_parts; i++)
        VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, w->weights[i].elements * w->weights[i].computed,
                             &w->weights[i].whole, err));
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
                                 x->elements * x->computed, &x->whole, err));
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
        bytes = vp_ceil_div(w->weights[i].elements, w->opts.ranks) * w->weights[i].computed;
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

/* What the optimizer steps over, one after the other: rank 0's parts of its groups, cut where they reach a size
 * (_create_fp16_sub_groups()). */
static void list_sub_groups(vp_world *w)
{
    int64_t n_trained = 0;

    for (int64_t i = 0; i < w->n_weights; i++)
        n_trained += w->weights[i].place >= 0;
    for (int group = 0; group < VP_ZERO_GROUPS; group++) {
        int64_t sum = 0;
        for (int64_t place = 0; place < n_trained; place++) {
            const vp_world_weight *x = vp_world_weight_at(w, place);
            if (vp_world_zero_group(w, place) == group)
                sum += vp_ceil_div(x->elements, w->opts.ranks);
            if (sum >= SUB_GROUP || (sum && place + 1 == n_trained)) {
                w->trained[w->n_trained++] = 4 * sum;
                sum                        = 0;
            }
        }
    }
}

/* Elements of the largest of them. */
static int64_t largest_sub_group(const vp_world *w)
{
    int64_t most = 0;

    for (int64_t i = 0; i < w->n_trained; i++)
        most = vp_max_i64(most, w->trained[i] / 4);
    return most;
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
        VP_TRY(vp_world_take(w, VP_OWNER_PARAMETER, n * trained_bytes(w),
                             &w->buffers[VP_ZERO_WEIGHTS], err));
    if (keeps_states(w)) {
        VP_TRY(vp_world_take(w, VP_OWNER_MASTER, 4 * n, &w->buffers[VP_ZERO_MASTER], err));
        list_sub_groups(w);
        VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, 4 * largest_sub_group(w), &scratch, err));
        vp_ledger_free(w->ledger, &scratch);
    }
    if (!keeps_weights(w))
        vp_world_pin(w, n * trained_bytes(w));
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

/* Layers that are computed anew in a backward pass of their own are never told that it is over: what is whole then stays so until the
 * pass of all ends. */
static bool keeps_all(const vp_world *w)
{
    return w->is_backward && w->opts.is_reentrant;
}

static void release(vp_world *w, int64_t u)
{
    if (w->is_traced && !keeps_all(w))
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
            VP_TRY(vp_zero3_fetch_weight(w, &w->weights[i], err));
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
    w->back_unit = w->back = -1;
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

/* DeepSpeed's linear layers keep what goes into them also where the weight is frozen (0.19, linear.py:
 * LinearFunctionForZeroStage3), for which PyTorch's let go of it. */
static vp_status keep_inputs(vp_world *w, int64_t u, vp_err *err)
{
    vp_status st = VP_OK;

    for (int k = 0; k < VP_WORLD_KEPT; k++)
        if (w->opts.kept_bytes[k])
            VP_TRY(vp_world_take(w, VP_OWNER_ACTIVATION, w->opts.kept_bytes[k],
                                 &w->kept[u * VP_WORLD_KEPT + k], err));
out:
    return st;
}

static void drop_inputs(vp_world *w, int64_t u)
{
    for (int64_t k = VP_WORLD_KEPT; u < w->n_layers && k-- > 0;)
        vp_ledger_free(w->ledger, &w->kept[u * VP_WORLD_KEPT + k]);
}

/* A layer's part of a forward pass begins, or that of what is behind the layers; in a backward pass gradients tell. */
static vp_status layer(vp_world *w, int64_t i, vp_err *err)
{
    vp_status st = VP_OK;

    if (w->is_backward)
        return VP_OK;
    if (i > 0 || !w->opts.is_tied || !w->opts.asks_for_head)
        release(w, i > 0 ? i - 1 : w->opts.is_tied ? w->head : w->embed);
    if (i == 0)
        release(w, w->rest);
    if (i == w->n_layers && w->opts.asks_for_head)
        return w->is_traced ? VP_OK : hold_head(w, err);
    if (i < w->n_layers && !w->opts.is_recomputed)
        VP_TRY(keep_inputs(w, i, err));
    st = use(w, i < w->n_layers ? i : w->head, false, err);
out:
    return st;
}

/* Backward of a layer goes on to the weight before, of those that are cut. */
static vp_status use_before(vp_world *w, vp_err *err)
{
    vp_status st = VP_OK;

    while (w->back > w->units[w->back_unit].first) {
        w->back--;
        if (w->is_traced)
            VP_TRY(vp_zero3_fetch_use_weight(w->fetch, w->back, err));
        if (vp_zero3_asks_anew(w, w->back))
            return VP_OK;
    }
    w->back = -1;
out:
    return st;
}

/* The layer is computed anew before its backward pass. In a first pass a weight is let go of as soon as its module has run, but what
 * autograd keeps of it for its backward pass is there: checkpoints keep all that is saved by detach(), which holds what was gathered
 * (torch 2.11, utils/checkpoint.py, pack_hook()). */
static vp_status recompute(vp_world *w, int64_t u, vp_err *err)
{
    const vp_world_unit *unit = &w->units[u];
    vp_status            st   = VP_OK;

    VP_TRY(keep_inputs(w, u, err));
    if (w->is_traced)
        return keeps_all(w) ? vp_zero3_fetch_keep(w->fetch, u, err) : use(w, u, false, err);
    for (int64_t i = unit->first; i < unit->first + unit->n; i++)
        if (!w->weights[i].whole.block)
            VP_TRY(vp_zero3_fetch_weight(w, &w->weights[i], err));
out:
    return st;
}

/* Backward of a layer begins with its last weight. */
static vp_status begin_layer(vp_world *w, int64_t u, vp_err *err)
{
    vp_status st = VP_OK;

    w->back_unit = u;
    w->back      = w->units[u].first + w->units[u].n;
    if (keeps_all(w)) {
        w->back = w->back_end = -1;
        return recompute(w, u, err);
    }
    if (w->is_traced)
        VP_TRY(vp_zero3_fetch_enter(w->fetch, err));
    VP_TRY(use_before(w, err));
    w->back_end = w->back;
    if (w->opts.is_recomputed)
        VP_TRY(recompute(w, u, err));
    else if (!w->is_traced)
        VP_TRY(glance(w, largest(w, u), err));
out:
    return st;
}

/* The weight in use has been gone through: what was kept of it goes, and it. */
static vp_status leave(vp_world *w, vp_err *err)
{
    if (w->is_traced)
        vp_zero3_fetch_release_weight(w->fetch, w->back);
    else
        vp_ledger_free(w->ledger, &w->weights[w->back].whole);
    return use_before(w, err);
}

/* Backward of a unit is over, that of another begins. */
static vp_status turn(vp_world *w, int64_t done, int64_t u, vp_err *err)
{
    vp_status st = VP_OK;

    while (done == w->back_unit && w->back >= 0)
        VP_TRY(leave(w, err));
    drop_inputs(w, done);
    if (done != w->head || !w->opts.asks_for_head)
        release(w, done);
    if (u < w->n_layers)
        return begin_layer(w, u, err);
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
    int64_t   n  = w->gradients[i] / trained_bytes(w);
    vp_status st = VP_OK;

    if (w->filled + n > VP_ZERO_BUCKET && w->filled)
        VP_TRY(reduce(w, err));
    w->filled += n;
    vp_ledger_free(w->ledger, block);
    w->made[i] = NULL;
out:
    return st;
}

/* Of an adapter's gradient: the weights behind it have been gone through. Where a recorded step's layers repeat is between any two of
 * their gradients, so that the first one tells that backward is at the layers. */
static vp_status gradient_of_adapter(vp_world *w, int64_t i, vp_ledger_block *block, vp_err *err)
{
    int64_t   u = vp_world_unit_of_gradient(w, i), at = w->units[u].first + w->units[u].n - 1;
    int64_t   nth = (i - w->first_of_layers) % w->of_layer;
    vp_status st  = VP_OK;

    if (u != w->back_unit)
        VP_TRY(turn(w, w->head, u, err));
    for (; at > w->units[u].first && (w->weights[at].place < 0 || nth-- > 0); at--) {
    }
    while (w->back > at)
        VP_TRY(leave(w, err));
    VP_TRY(put(w, i, block, err));
    if (u > 0 && (i + 1 - w->first_of_layers) % w->of_layer == 0)
        VP_TRY(turn(w, u, u - 1, err));
out:
    return st;
}

/* Where it was let go of before, a weight is whole once more for its gradient, until that is in the bucket. What autograd kept of it goes as its
 * gradient is there. */
static vp_status hold(vp_world *w, int64_t i, bool is_of_layer, vp_ledger_block *out, vp_err *err)
{
    bool      is_there = is_of_layer && w->opts.is_recomputed && w->back == w->back_end;
    vp_status st       = VP_OK;

    if (!is_there)
        VP_TRY(vp_zero3_fetch_alone(w, w->gradients[i] / w->opts.weight_bytes, out, err));
    if (is_of_layer && !is_there)
        vp_ledger_free(w->ledger, &w->weights[w->back].whole);
out:
    return st;
}

/* The weight is whole while its gradient is made; where tables are tied the recorded step has the sum apart from its two parts
 * instead, which here is added to the first. The last gradients, of tables, are added up from parts, which go first: put
 * when all is over, as is the gradient of a tied table that the loss has made, to which that of the look-up is added. */
static vp_status gradient(vp_world *w, int64_t i, vp_ledger_block *block, vp_err *err)
{
    int64_t         end = w->first_of_layers + w->of_layer * w->n_layers;
    int64_t         u = vp_world_unit_of_gradient(w, i), next = u;
    bool            is_cut = w->gradients[i] / w->opts.weight_bytes > VP_ZERO3_PERSISTENT;
    bool            is_of_layer;
    vp_ledger_block whole = {0};
    vp_status       st    = VP_OK;

    if (w->has_frozen)
        return gradient_of_adapter(w, i, block, err);
    if (u < w->n_layers &&
        u != w->back_unit) /* nothing behind the layers has a gradient of its own */
        VP_TRY(turn(w, w->head, u, err));
    is_of_layer = u == w->back_unit && w->back >= 0 && is_cut && i < end;
    if (!w->is_traced && (i < end || !w->opts.is_tied) && (i > 0 || !w->opts.asks_for_head))
        VP_TRY(hold(w, i, is_of_layer, &whole, err));
    if (i >= end)
        goto out;
    if (i > 0 || !w->opts.is_tied || !w->opts.asks_for_head)
        VP_TRY(put(w, i, block, err));
    vp_ledger_free(w->ledger, &whole);
    if (is_of_layer)
        VP_TRY(leave(w, err));
    if (i + 1 < w->n_gradients)
        next = vp_world_unit_of_gradient(w, i + 1);
    if (u != next)
        VP_TRY(turn(w, u, next, err));
out:
    vp_ledger_free(w->ledger, &whole);
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
    for (int64_t u = 0; u < w->n_layers; u++)
        drop_inputs(w, u);
    w->is_traced = true;
out:
    vp_ledger_free(w->ledger, &w->gathered);
    vp_ledger_free(w->ledger, &w->pending);
    vp_zero3_fetch_reset(w->fetch);
    return st;
}

/* Gradients of a group are joined, then made wide. */
static vp_status step(vp_world *w, vp_err *err)
{
    int64_t         each = w->opts.weight_bytes, n = largest_sub_group(w);
    vp_ledger_block joint = {0};
    vp_status       st    = VP_OK;

    VP_TRY(keep_small(w, false, err));
    if (!keeps_states(w))
        return VP_OK;
    if (each < 4)
        VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, n * each, &joint, err));
    VP_TRY(vp_world_take(w, VP_OWNER_GRADIENT, 4 * n, &w->buffers[VP_ZERO_WIDE], err));
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
