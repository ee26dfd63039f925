/* torch.distributed.fsdp.FullyShardedDataParallel (torch 2.11, _flat_param.py and _runtime_utils.py) as Accelerate 1.15 starts
 * it with what `vplan emit` writes: FULL_SHARD, a flat parameter for each layer and one for all that is left, use_orig_params,
 * BACKWARD_PRE, sync_module_states. Adapters have flat parameters of their own, as peft's fsdp_auto_wrap_policy() and so Trainer
 * wraps them: each is whole while it is used, one after the other.
 *
 * With CPUOffload(offload_params=True) a flat parameter's part, and room for its gradient, are pinned in host memory: the part
 * comes to the card to be gathered (pre_unshard()), and what is reduced stays there until backward ends (_offload_grad(),
 * prepare_gradient_for_optim()). */
#include "trainers/torch/world_internal.h"

#include "base/checked.h"

#include <stddef.h>
#include <string.h>

/* Streams whose memory is kept apart: 16-bit copies of shards, gathered weights, reduced gradients. */
enum { STREAM_CAST = 1, STREAM_GATHER, STREAM_REDUCE };

enum {
    ALIGNED   = 16, /* bytes of a weight in a flat parameter, as it is computed with */
    BROADCAST = 250 << 20
};

/* A flat parameter is that of unit u, a layer; of all units behind the layers it is the root's, which is told as unit
 * n_layers. */
static int64_t end_of(const vp_world *w, int64_t u)
{
    return u < w->n_layers ? u + 1 : w->n_units;
}

static bool is_adapter(const vp_world *w, const vp_world_weight *x)
{
    return w->opts.adapter_bytes && x->place >= 0;
}

static int64_t flat_elements(const vp_world *w, int64_t u)
{
    const vp_world_unit *last = &w->units[end_of(w, u) - 1];
    int64_t              sum = 0, aligned = ALIGNED / w->opts.weight_bytes;

    for (int64_t i = w->units[u].first; i < last->first + last->n; i++)
        sum += is_adapter(w, &w->weights[i]) ? 0 : vp_round_up(w->weights[i].elements, aligned);
    return sum;
}

static int64_t part(const vp_world *w, int64_t u)
{
    return vp_ceil_div(flat_elements(w, u), w->opts.ranks);
}

static bool is_offloaded(const vp_world *w)
{
    return strcmp(w->opts.offload, "params") == 0;
}

/* Rank 0's part of what was cut leaves the card; the host's optimizer steps over it where it is trained. */
static void move_to_host(vp_world *w, vp_ledger_block *shard, int64_t elements, bool is_trained)
{
    int64_t bytes = shard->bytes;

    vp_ledger_free(w->ledger, shard);
    vp_world_pin(w, bytes);
    vp_world_pin(w, bytes); /* its gradient, of what is frozen too */
    w->host_elements += is_trained ? elements : 0;
}

static bool is_mixed(const vp_world *w)
{
    return w->opts.weight_bytes != w->opts.master_bytes;
}

static vp_status alloc_on(vp_world *w, int stream, vp_owner owner, int64_t bytes,
                          vp_ledger_block *out, vp_err *err)
{
    vp_status st;

    w->ledger->stream = stream;
    st                = vp_world_take(w, owner, bytes, out, err);
    w->ledger->stream = 0;
    return st;
}

/* Beside the root's weights there is one of fp32, rotary frequencies, which is sent with those of its format. */
static bool has_buffer(const vp_world *w, int64_t from)
{
    return from == w->units[w->n_layers].first && w->opts.master_bytes == 4;
}

/* Rank 0's weights are sent to all, two buckets at once, each closed by the weight that fills it. */
static vp_status broadcast(vp_world *w, int64_t from, int64_t to, vp_err *err)
{
    vp_ledger_block buckets[2] = {0};
    int64_t         sum = 0, n = has_buffer(w, from), n_sent = 0;
    vp_status       st = VP_OK;

    for (int64_t i = from; i < to; i++) {
        n += !is_adapter(w, &w->weights[i]);
        sum += is_adapter(w, &w->weights[i]) ? 0 : w->weights[i].elements * w->opts.master_bytes;
        if (sum < BROADCAST && i + 1 < to)
            continue;
        if (n > 1) /* one alone is sent from where it is */
            VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, sum, &buckets[n_sent++ % 2], err));
        sum = n = 0;
    }
out:
    vp_ledger_free(w->ledger, &buckets[n_sent % 2]); /* the one before the last */
    vp_ledger_free(w->ledger, &buckets[(n_sent + 1) % 2]);
    return st;
}

static vp_owner owner_of(const vp_world *w, int64_t u)
{
    return !w->opts.adapter_bytes                ? VP_OWNER_PARAMETER
           : w->has_quantised && u < w->n_layers ? VP_OWNER_QUANTISED
                                                 : VP_OWNER_FROZEN;
}

/* An adapter is sent to all, cut, and the optimizer sees the part. */
static vp_status shard_adapter(vp_world *w, vp_world_weight *x, vp_err *err)
{
    vp_ledger_block flat  = {0};
    int64_t         whole = x->elements * x->kept, left = vp_ceil_div(x->elements, w->opts.ranks);
    vp_status       st = VP_OK;

    if (!w->has_quantised)
        VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, whole, &x->whole, err));
    VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, whole, &flat, err));
    VP_TRY(vp_world_take(w, VP_OWNER_PARAMETER, left * x->kept, &x->shard, err));
    if (is_offloaded(w)) {
        move_to_host(w, &x->shard, left, true);
    } else {
        w->trained[x->place] = left * x->kept;
        w->n_trained++;
    }
out:
    vp_ledger_free(w->ledger, &flat);
    vp_ledger_free(w->ledger, &x->whole);
    return st;
}

static vp_ledger_block *shard_of(vp_world *w, int64_t u)
{
    return &w->weights[w->units[u].first].shard;
}

/* Its weights come to the card, are joined, and rank 0's part of them stays. With use_orig_params the optimizer sees what of
 * each weight lies in that part: the first ones. */
static vp_status shard(vp_world *w, int64_t u, vp_err *err)
{
    const vp_world_unit *last = &w->units[end_of(w, u) - 1];
    int64_t              from = w->units[u].first, to = last->first + last->n, left = part(w, u);
    vp_ledger_block      flat = {0};
    vp_status            st   = VP_OK;

    if (from == to)
        return VP_OK;
    for (int64_t i = from; i < to; i++)
        if (is_adapter(w, &w->weights[i]))
            VP_TRY(shard_adapter(w, &w->weights[i], err));
    for (int64_t i = from; i < to && !w->has_quantised; i++)
        if (!is_adapter(w, &w->weights[i]))
            VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY,
                                 w->weights[i].elements * w->opts.master_bytes,
                                 &w->weights[i].whole, err));
    VP_TRY(broadcast(w, from, to, err));
    VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, flat_elements(w, u) * w->opts.master_bytes, &flat,
                         err));
    VP_TRY(vp_world_take(w, owner_of(w, u), left * w->opts.master_bytes, &w->weights[from].shard,
                         err));
    if (is_offloaded(w))
        move_to_host(w, shard_of(w, u), left, !w->opts.adapter_bytes);
    for (int64_t i = from; i < to && !w->opts.adapter_bytes && !is_offloaded(w); i++) {
        int64_t here = w->weights[i].elements < left ? w->weights[i].elements : left;
        if (here > 0)
            w->trained[w->n_trained++] = here * w->opts.master_bytes;
        left -= here;
    }
out:
    vp_ledger_free(w->ledger, &flat);
    for (int64_t i = from; i < to; i++) {
        vp_ledger_free(w->ledger, &w->weights[i].whole);
        vp_world_drop_loaded(w, &w->weights[i]);
    }
    return st;
}

static vp_status load(vp_world *w, vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t i = 0; i < w->n_weights && w->has_quantised; i++)
        if (is_adapter(w, &w->weights[i]))
            VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, w->weights[i].elements * w->weights[i].kept,
                                 &w->weights[i].whole, err));
    for (int64_t u = 0; u <= w->n_layers; u++)
        VP_TRY(shard(w, u, err));
out:
    return st;
}

static vp_ledger_block *whole(vp_world *w, int64_t u)
{
    return &w->weights[w->units[u].first].whole;
}

/* What is gathered: rank 0's n elements as they are computed with. Nothing where they are kept so on the card. */
static vp_status bring(vp_world *w, int64_t n, int64_t kept, int64_t computed, vp_ledger_block *out,
                       vp_err *err)
{
    vp_ledger_block in = {0};
    vp_status       st = VP_OK;

    if (kept != computed || is_offloaded(w))
        VP_TRY(alloc_on(w, STREAM_CAST, VP_OWNER_GATHERED, n * computed, out, err));
    if (kept != computed && is_offloaded(w))
        VP_TRY(alloc_on(w, STREAM_CAST, VP_OWNER_GATHERED, n * kept, &in, err));
out:
    vp_ledger_free(w->ledger, &in);
    return st;
}

/* What is brought in the format that it is computed with has the weights' names until they are cut again (flat_param_to()). */
static vp_status unshard(vp_world *w, int64_t u, vp_err *err)
{
    vp_ledger_block cast = {0};
    int64_t         n    = part(w, u);
    vp_status       st   = VP_OK;

    if (!n || whole(w, u)->block)
        return VP_OK;
    VP_TRY(bring(w, n, w->opts.master_bytes, w->opts.weight_bytes, &cast, err));
    VP_TRY(alloc_on(w, STREAM_GATHER, VP_OWNER_GATHERED, n * w->opts.ranks * w->opts.weight_bytes,
                    whole(w, u), err));
    if (is_offloaded(w) && !is_mixed(w)) {
        *shard_of(w, u) = cast;
        cast            = (vp_ledger_block){0};
    }
out:
    vp_ledger_free(w->ledger, &cast);
    return st;
}

static void reshard(vp_world *w, int64_t u)
{
    vp_ledger_free(w->ledger, whole(w, u));
    if (is_offloaded(w))
        vp_ledger_free(w->ledger, shard_of(w, u));
}

/* Adapters of a layer, one after the other. */
static vp_status use_adapters(vp_world *w, int64_t u, vp_err *err)
{
    vp_ledger_block cast = {0}, all = {0};
    vp_status       st = VP_OK;

    for (int64_t i = w->units[u].first; i < w->units[u].first + w->units[u].n; i++) {
        const vp_world_weight *x = &w->weights[i];
        int64_t                n = vp_ceil_div(x->elements, w->opts.ranks);
        if (!is_adapter(w, x))
            continue;
        VP_TRY(bring(w, n, x->kept, x->computed, &cast, err));
        VP_TRY(alloc_on(w, STREAM_GATHER, VP_OWNER_GATHERED, n * w->opts.ranks * x->computed, &all,
                        err));
        vp_ledger_free(w->ledger, &cast);
    }
out:
    vp_ledger_free(w->ledger, &cast);
    vp_ledger_free(w->ledger, &all);
    return st;
}

static void drop_made_of(vp_world *w, int64_t u)
{
    vp_world_range range = vp_world_gradients_of(w, u);

    for (int64_t i = range.from; i < range.to; i++) {
        int64_t of = vp_world_unit_of_gradient(w, i);
        if (!w->made[i] || (of < w->n_layers ? of : w->n_layers) != u)
            continue;
        vp_ledger_free(w->ledger, w->made[i]);
        w->made[i] = NULL;
    }
}

/* The gradients of a table that is the head too are added up where the weights were cut out, as all of them are joined. */
static vp_status add_tied(vp_world *w, int64_t u, vp_ledger_block *sum, vp_err *err)
{
    const vp_world_unit *unit = &w->units[w->head];
    int64_t              most = 0;

    if (u < w->n_layers || !w->opts.is_tied)
        return VP_OK;
    for (int64_t i = unit->first; i < unit->first + unit->n; i++)
        most = w->weights[i].elements > most ? w->weights[i].elements : most;
    return alloc_on(w, STREAM_GATHER, VP_OWNER_BUCKET, most * w->opts.weight_bytes, sum, err);
}

/* Joined gradients, in whose place there is rank 0's part of their sum, or they stay whole until the last micro-step. */
static vp_status reduce_flat(vp_world *w, int64_t joint, bool is_mixed, vp_ledger_block *flat,
                             vp_ledger_block *reduced, vp_err *err)
{
    int64_t         each = w->opts.weight_bytes, n = vp_ceil_div(joint, w->opts.ranks);
    vp_ledger_block padded = {0}, kept = {0}, wide = {0};
    vp_status       st = VP_OK;

    if (!w->reduces) {
        if (reduced->block) /* added to what is there */
            vp_ledger_free(w->ledger, flat);
        else
            *reduced = *flat;
        *flat = (vp_ledger_block){0};
        return VP_OK;
    }
    if (!w->opts.syncs_each) /* the sum of whole ones */
        vp_ledger_free(w->ledger, reduced);
    if (n * w->opts.ranks > joint)
        VP_TRY(alloc_on(w, STREAM_REDUCE, VP_OWNER_BUCKET, n * w->opts.ranks * each, &padded, err));
    VP_TRY(alloc_on(w, STREAM_REDUCE, VP_OWNER_GRADIENT, n * each, &kept, err));
    if (is_mixed) {
        VP_TRY(alloc_on(w, STREAM_REDUCE, VP_OWNER_GRADIENT, 2 * n * each, &wide, err));
        vp_ledger_free(w->ledger, &kept);
        kept = wide;
        wide = (vp_ledger_block){0};
    }
    if (!reduced->block) { /* else it is added to what is there */
        *reduced = kept;
        kept     = (vp_ledger_block){0};
    }
out:
    vp_ledger_free(w->ledger, &padded);
    vp_ledger_free(w->ledger, &kept);
    vp_ledger_free(w->ledger, &wide);
    return st;
}

/* Gradients are joined; what was gathered goes, then they. What is frozen has none. */
static vp_status reduce(vp_world *w, int64_t u, vp_err *err)
{
    int64_t         joint = flat_elements(w, u);
    vp_ledger_block sum = {0}, flat = {0};
    vp_status       st = VP_OK;

    if (!joint)
        return VP_OK;
    if (w->opts.adapter_bytes) {
        reshard(w, u);
        return VP_OK;
    }
    VP_TRY(add_tied(w, u, &sum, err));
    if (sum.block)
        drop_made_of(w, u);
    VP_TRY(alloc_on(w, STREAM_GATHER, VP_OWNER_BUCKET, joint * w->opts.weight_bytes, &flat, err));
    vp_ledger_free(w->ledger, &sum);
    reshard(w, u);
    drop_made_of(w, u);
    VP_TRY(reduce_flat(w, joint, is_mixed(w), &flat, &w->reduced[u], err));
out:
    vp_ledger_free(w->ledger, &sum);
    vp_ledger_free(w->ledger, &flat);
    return st;
}

/* An adapter's, when backward has made them. */
static vp_status reduce_adapter(vp_world *w, int64_t i, vp_err *err)
{
    int64_t         elements = w->gradients[i] / w->opts.adapter_bytes;
    vp_ledger_block flat     = {0};
    vp_status       st       = VP_OK;

    VP_TRY(
        alloc_on(w, STREAM_GATHER, VP_OWNER_BUCKET, elements * w->opts.weight_bytes, &flat, err));
    vp_ledger_free(w->ledger, w->made[i]);
    w->made[i] = NULL;
    VP_TRY(reduce_flat(w, elements, w->opts.weight_bytes != w->opts.adapter_master_bytes, &flat,
                       &w->reduced[w->n_units + i], err));
out:
    vp_ledger_free(w->ledger, &flat);
    return st;
}

/* At the first forward pass each tensor that will come and go is made once, to know its size (init_flat_param_attributes()). */
static vp_status try_each(vp_world *w, vp_err *err)
{
    vp_ledger_block block = {0};
    vp_status       st    = VP_OK;

    for (int64_t k = 0; k <= w->n_layers; k++) {
        int64_t n     = part(w, k ? k - 1 : w->n_layers);
        int64_t all[] = {n * w->opts.weight_bytes, n * w->opts.ranks * w->opts.weight_bytes,
                         n * w->opts.ranks * w->opts.master_bytes};
        for (size_t i = is_mixed(w) ? 0 : 1; i < (is_mixed(w) ? 3 : 2); i++) {
            VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, all[i], &block, err));
            vp_ledger_free(w->ledger, &block);
        }
    }
    w->is_traced = true;
out:
    return st;
}

/* The root is whole from the first look-up to the end of backward, which begins with fetching the last layer. Gradients of the
 * step before stay until the root is. */
static vp_status begin(vp_world *w, vp_err *err)
{
    vp_status st = VP_OK;

    w->is_told = false;
    if (w->is_backward)
        return w->n_layers ? unshard(w, w->n_layers - 1, err) : VP_OK;
    if (!w->is_traced)
        VP_TRY(try_each(w, err));
    for (int64_t i = 0; w->done < w->n_steps && i < w->n_units + w->n_gradients; i++)
        vp_ledger_free(w->ledger, &w->reduced[i]);
    w->done = w->n_steps;
    VP_TRY(unshard(w, w->n_layers, err));
out:
    return st;
}

static vp_status layer(vp_world *w, int64_t i, vp_err *err)
{
    int64_t   u  = w->is_backward ? w->n_layers - 1 - i : i;
    vp_status st = VP_OK;

    if (w->is_backward && w->opts.adapter_bytes && (i == 0 || w->is_told))
        return u >= 0 && u < w->n_layers ? use_adapters(w, u, err) : VP_OK;
    if (w->is_backward && i > 0 && whole(w, u + 1)->block)
        VP_TRY(reduce(w, u + 1, err));
    if (!w->is_backward && i > 0)
        reshard(w, i - 1);
    if (u >= 0 && u < w->n_layers) {
        VP_TRY(unshard(w, u, err));
        VP_TRY(use_adapters(w, u, err));
    }
    if (w->is_backward && u > 0)
        VP_TRY(unshard(w, u - 1, err));
out:
    return st;
}

/* Adapters are units of their own, so that a layer fetches the next one ahead only when its last adapter but one is done, and goes
 * itself with the last. Where gradients are added to others there is no word of them, and layers tell. */
static vp_status gradient_of_adapter(vp_world *w, int64_t i, vp_err *err)
{
    int64_t   u   = vp_world_unit_of_gradient(w, i);
    int64_t   nth = i < w->first_of_layers ? 0 : (i - w->first_of_layers) % w->of_layer;
    vp_status st  = VP_OK;

    w->is_told = true;
    VP_TRY(reduce_adapter(w, i, err));
    if (u < w->n_layers && u > 0 && nth == w->of_layer - 2)
        VP_TRY(unshard(w, u - 1, err));
    if (u < w->n_layers && nth == w->of_layer - 1)
        VP_TRY(reduce(w, u, err));
out:
    return st;
}

/* The first layer has no layer before it that would tell of its end; the tables' gradients follow. */
static vp_status gradient(vp_world *w, int64_t i, vp_ledger_block *block, vp_err *err)
{
    bool is_last = i == w->first_of_layers + w->of_layer * w->n_layers - 1;

    (void)block;
    if (w->opts.adapter_bytes)
        return gradient_of_adapter(w, i, err);
    return is_last && w->n_layers ? reduce(w, 0, err) : VP_OK;
}

static vp_status end(vp_world *w, vp_err *err)
{
    bool      has_first = w->n_layers && whole(w, 0)->block;
    bool      leaves    = w->is_backward && w->reduces && is_offloaded(w);
    vp_status st        = VP_OK;

    if (w->is_backward && has_first) /* gradients that were added to others came without a word */
        VP_TRY(reduce(w, 0, err));
    if (w->is_backward)
        VP_TRY(reduce(w, w->n_layers, err));
    for (int64_t i = 0; leaves && i < w->n_units + w->n_gradients; i++)
        vp_ledger_free(w->ledger, &w->reduced[i]);
out:
    return st;
}

const vp_world_form vp_world_fsdp1 = {.name           = "fsdp",
                                      .cuts_frozen    = true,
                                      .cuts_quantised = true,
                                      .casts_adapters = true,
                                      .by_layers      = true,
                                      .keeps_reduced  = true,
                                      .syncs_each     = true,
                                      .loses_each     = true,
                                      .offloads       = "params",
                                      .load           = load,
                                      .begin          = begin,
                                      .layer          = layer,
                                      .gradient       = gradient,
                                      .end            = end};
