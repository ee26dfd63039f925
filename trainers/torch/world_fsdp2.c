/* torch.distributed.fsdp.fully_shard (torch 2.11, _fully_shard/_fsdp_param_group.py and _fsdp_collectives.py) on the units
 * that Accelerate 1.15 makes: each layer, the input's table, the last norm with the head, the rest. */
#include "trainers/torch/world_internal.h"

#include <string.h>

/* Buffers that are filled beside the computation are of other streams, whose memory is kept apart. */
enum { STREAM_GATHER = 1, STREAM_REDUCE };

static vp_status alloc_on(vp_world *w, int stream, vp_owner owner, int64_t bytes,
                          vp_ledger_block *out, vp_err *err)
{
    vp_status st;

    w->ledger->stream = stream;
    st                = vp_ledger_alloc(w->ledger, owner, bytes, out, err);
    w->ledger->stream = 0;
    return st;
}

static bool is_offloaded(const vp_world *w)
{
    return strcmp(w->opts.offload, "params") == 0;
}

/* It is computed with in fewer bits than it is kept in. */
static bool is_mixed(const vp_world_weight *x)
{
    return x->computed != x->kept;
}

/* Rank 0's part of a unit, in bytes. */
typedef struct part {
    int64_t gathered, cast; /* as it is computed with: all of it; what is kept in another format */
    int64_t reduced, kept;  /* what is trained, as it is computed with and as it is kept */
} part;

static part part_of(const vp_world *w, int64_t u)
{
    part sum = {0};

    for (int64_t i = 0; i < w->units[u].n; i++) {
        const vp_world_weight *x     = &w->weights[w->units[u].first + i];
        int64_t                bytes = x->part * x->computed;
        sum.gathered += bytes;
        sum.cast += is_mixed(x) ? bytes : 0;
        sum.reduced += x->place >= 0 ? bytes : 0;
        sum.kept += x->place >= 0 ? x->part * x->kept : 0;
    }
    return sum;
}

static vp_status whole_of(vp_world *w, vp_world_weight *x, vp_err *err)
{
    return vp_ledger_alloc(w->ledger, VP_OWNER_TEMPORARY, x->elements * x->kept, &x->whole, err);
}

/* A part of it is rank 0's from now on. */
static vp_status keep_part(vp_world *w, vp_world_weight *x, vp_err *err)
{
    bool      is_trained = x->place >= 0;
    vp_owner  owner      = is_trained      ? VP_OWNER_PARAMETER
                           : x->packed > 1 ? VP_OWNER_QUANTISED
                                           : VP_OWNER_FROZEN;
    vp_status st         = VP_OK;

    VP_TRY(vp_ledger_alloc(w->ledger, owner, x->part * x->kept, &x->shard, err));
    if (is_offloaded(w)) {
        vp_ledger_free(w->ledger, &x->shard);
        vp_world_pin(w, x->part * x->kept);
        vp_world_pin(w, is_trained ? x->part * x->kept : 0); /* its gradient */
        w->host_elements += is_trained ? x->part : 0;
    } else if (is_trained) {
        w->trained[x->place] = x->part * x->kept;
        w->n_trained++;
    }
out:
    return st;
}

/* A unit's weights come to the card whole, are cut, and go. */
static vp_status shard(vp_world *w, int64_t u, vp_err *err)
{
    vp_world_weight *x  = w->weights + w->units[u].first;
    int64_t          n  = w->units[u].n;
    vp_status        st = VP_OK;

    for (int64_t i = 0; i < n && !w->has_quantised; i++)
        VP_TRY(whole_of(w, &x[i], err));
    for (int64_t i = 0; i < n; i++)
        VP_TRY(keep_part(w, &x[i], err));
    for (int64_t i = 0; i < n && u < w->n_layers && !w->has_quantised; i++)
        vp_ledger_free(w->ledger, &x[i].whole);
out:
    return st;
}

static vp_status bring_and_cut(vp_world *w, int64_t from, int64_t to, vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t i = from; i < to; i++) {
        VP_TRY(whole_of(w, &w->weights[i], err));
        VP_TRY(keep_part(w, &w->weights[i], err));
        vp_ledger_free(w->ledger, &w->weights[i].whole);
    }
out:
    return st;
}

/* fsdp_cpu_ram_efficient_loading, which emit writes for Trainer: one by one in the order of the state dict, adapters behind their
 * weights. A head that is tied comes as the table did and has its part beside that one's until all is there. */
static vp_status load_each(vp_world *w, vp_err *err)
{
    const vp_world_unit *head = &w->units[w->head], *embed = &w->units[w->embed];
    const vp_world_unit *rest  = &w->units[w->rest];
    int64_t              table = w->opts.is_tied ? head->first : embed->first, n = w->opts.is_tied;
    vp_ledger_block      again = {0};
    vp_status            st    = VP_OK;

    VP_TRY(bring_and_cut(w, table, table + (n ? 1 : embed->n), err));
    VP_TRY(bring_and_cut(w, rest->first, rest->first + rest->n, err));
    VP_TRY(bring_and_cut(w, 0, embed->first, err));
    VP_TRY(bring_and_cut(w, head->first + n, head->first + head->n, err));
    if (w->opts.is_tied) {
        vp_world_weight *x = &w->weights[table];
        VP_TRY(whole_of(w, x, err));
        VP_TRY(vp_ledger_alloc(w->ledger, VP_OWNER_TEMPORARY, x->part * x->kept, &again, err));
        vp_ledger_free(w->ledger, &x->whole);
    }
out:
    vp_ledger_free(w->ledger, &again);
    return st;
}

/* Accelerate holds the tables until all is wrapped, and where weights were quantised on the card all that is there. */
static vp_status load(vp_world *w, vp_err *err)
{
    vp_status st = VP_OK;

    if (w->opts.loads_in_parts && !w->has_quantised && !is_offloaded(w))
        return load_each(w, err);
    for (int64_t i = 0; i < w->n_weights && w->has_quantised; i++)
        if (w->weights[i].place >= 0)
            VP_TRY(whole_of(w, &w->weights[i], err));
    for (int64_t u = 0; u < w->n_units; u++)
        VP_TRY(shard(w, u, err));
    for (int64_t i = 0; i < w->n_weights; i++) {
        vp_ledger_free(w->ledger, &w->weights[i].whole);
        vp_world_drop_loaded(w, &w->weights[i]);
    }
out:
    return st;
}

/* Shards of host memory come to the card, one after the other, in the format that is computed with. */
static vp_status copy_in(vp_world *w, int64_t u, vp_err *err)
{
    vp_world_weight *x  = w->weights + w->units[u].first;
    vp_ledger_block  in = {0};
    vp_status        st = VP_OK;

    for (int64_t i = 0; i < w->units[u].n; i++) {
        VP_TRY(alloc_on(w, STREAM_GATHER, VP_OWNER_GATHERED, x[i].part * x[i].kept,
                        is_mixed(&x[i]) ? &in : &x[i].whole, err));
        if (is_mixed(&x[i]))
            VP_TRY(alloc_on(w, STREAM_GATHER, VP_OWNER_GATHERED, x[i].part * x[i].computed,
                            &x[i].whole, err));
        vp_ledger_free(w->ledger, &in);
    }
out:
    vp_ledger_free(w->ledger, &in);
    return st;
}

/* The all-gather of a unit begins. */
static vp_status gather(vp_world *w, int64_t u, vp_err *err)
{
    vp_ledger_block flat = {0};
    vp_status       st   = VP_OK;

    if (w->units[u].is_whole || w->next == u || !w->units[u].n)
        return VP_OK;
    part of = part_of(w, u);
    if (is_offloaded(w))
        VP_TRY(copy_in(w, u, err));
    else
        VP_TRY(alloc_on(w, STREAM_GATHER, VP_OWNER_GATHERED, of.cast, &flat, err));
    VP_TRY(alloc_on(w, STREAM_GATHER, VP_OWNER_GATHERED, of.gathered * w->opts.ranks, &w->pending,
                    err));
    w->next = u;
out:
    vp_ledger_free(w->ledger, &flat);
    for (int64_t i = 0; is_offloaded(w) && i < w->units[u].n; i++)
        vp_ledger_free(w->ledger, &w->weights[w->units[u].first + i].whole);
    return st;
}

/* What was gathered is copied out, weight by weight. In forward the buffer lives until the next unit's has been copied out too: a
 * local of wait_for_unshard() still names it when its comm_ctx no longer does. */
static vp_status unshard(vp_world *w, int64_t u, vp_err *err)
{
    vp_world_weight *x  = w->weights + w->units[u].first;
    vp_status        st = VP_OK;

    if (w->units[u].is_whole || !w->units[u].n)
        return VP_OK;
    VP_TRY(gather(w, u, err));
    for (int64_t i = 0; i < w->units[u].n; i++)
        VP_TRY(vp_ledger_alloc(w->ledger, VP_OWNER_GATHERED,
                               x[i].part * w->opts.ranks * x[i].computed, &x[i].whole, err));
    w->units[u].is_whole = true;
    if (!w->is_backward) {
        vp_ledger_free(w->ledger, &w->gathered);
        w->gathered = w->pending;
        w->pending  = (vp_ledger_block){0};
    }
    vp_ledger_free(w->ledger, &w->pending);
    w->next = -1;
out:
    return st;
}

static void reshard(vp_world *w, int64_t u)
{
    for (int64_t i = 0; i < w->units[u].n; i++)
        vp_ledger_free(w->ledger, &w->weights[w->units[u].first + i].whole);
    w->units[u].is_whole = false;
}

/* Gradients of a unit that are there go; of a table's or the head's unit the largest one first with the whole
 * reduction, whose loop still names it. */
static void drop_made(vp_world *w, int64_t u, bool all)
{
    vp_world_range range   = vp_world_gradients_of(w, u);
    int64_t        largest = -1;

    for (int64_t i = 0; i < w->n_gradients && !all && u >= w->n_layers; i++)
        if (w->made[i] && vp_world_unit_of_gradient(w, i) == u &&
            (largest < 0 || w->made[i]->bytes > w->made[largest]->bytes))
            largest = i;
    for (int64_t i = range.from; i < range.to; i++)
        if (i != largest && w->made[i] && vp_world_unit_of_gradient(w, i) == u) {
            vp_ledger_free(w->ledger, w->made[i]);
            w->made[i] = NULL;
        }
}

/* post_backward(): the unit's gradients are reduced to rank 0's part of them, which is added to what is
 * there. */
static vp_status reduce(vp_world *w, int64_t u, vp_err *err)
{
    part            of     = part_of(w, u);
    vp_ledger_block output = {0}, wide = {0};
    vp_status       st = VP_OK;

    reshard(w, u);
    if (!of.reduced || !w->reduces)
        return VP_OK;
    vp_ledger_free(w->ledger, &w->input);
    VP_TRY(vp_ledger_alloc(w->ledger, VP_OWNER_BUCKET, of.reduced * w->opts.ranks, &w->input, err));
    drop_made(w, u, false);
    VP_TRY(alloc_on(w, STREAM_REDUCE, VP_OWNER_GRADIENT, of.reduced, &output, err));
    if (of.kept != of.reduced) {
        VP_TRY(alloc_on(w, STREAM_REDUCE, VP_OWNER_GRADIENT, of.kept, &wide, err));
        vp_ledger_free(w->ledger, &output);
        output = wide;
    }
    drop_made(w, u, true);
    if (is_offloaded(w) || w->reduced[u].block) /* added to what is there */
        vp_ledger_free(w->ledger, &output);
    else
        w->reduced[u] = output;
out:
    return st;
}

/* With tied tables the head is needed from the first look-up on. */
static vp_status begin(vp_world *w, vp_err *err)
{
    vp_status st = VP_OK;

    if (w->is_backward)
        return VP_OK;
    VP_TRY(unshard(w, w->rest, err));
    VP_TRY(unshard(w, w->opts.is_tied ? w->head : w->embed, err));
out:
    return st;
}

static vp_status forward_layer(vp_world *w, int64_t i, vp_err *err)
{
    reshard(w, i > 0 ? i - 1 : w->embed);
    return unshard(w, i < w->n_layers ? i : w->head, err);
}

/* A unit's backward ends where that of the one before it in the model begins, which then gathers the one before
 * that. */
static vp_status backward_of(vp_world *w, int64_t done, int64_t u, vp_err *err)
{
    vp_status st = VP_OK;

    if (done != w->head || !w->opts.is_tied)
        VP_TRY(reduce(w, done, err));
    if (u < 0)
        return VP_OK;
    VP_TRY(unshard(w, u, err));
    if (u > 0 && u < w->n_layers)
        VP_TRY(gather(w, u - 1, err));
    if (u == 0 && !w->opts.is_tied)
        VP_TRY(gather(w, w->embed, err));
out:
    return st;
}

static vp_status layer(vp_world *w, int64_t i, vp_err *err)
{
    if (!w->is_backward)
        return forward_layer(w, i, err);
    return backward_of(w, i == 0 ? w->head : w->n_layers - i,
                       i < w->n_layers   ? w->n_layers - 1 - i
                       : w->opts.is_tied ? -1
                                         : w->embed,
                       err);
}

static vp_status gradient(vp_world *w, int64_t i, vp_ledger_block *block, vp_err *err)
{
    int64_t u    = vp_world_unit_of_gradient(w, i);
    int64_t last = w->first_of_layers + w->of_layer * w->n_layers - 1;
    int64_t next = i < last ? vp_world_unit_of_gradient(w, i + 1) : w->opts.is_tied ? -1 : w->embed;

    (void)block;
    return !w->has_frozen && i <= last && u != next ? backward_of(w, u, next, err) : VP_OK;
}

/* The head's backward begins, before which the last layer is fetched. */
static vp_status logits(vp_world *w, vp_err *err)
{
    return gather(w, w->n_layers - 1, err);
}

/* Units whose input has no gradient are reduced when all is done; then what was fetched for nothing goes. */
static vp_status end(vp_world *w, vp_err *err)
{
    vp_status st = VP_OK;

    if (w->is_backward) {
        VP_TRY(reduce(w, w->rest, err));
        VP_TRY(reduce(w, w->embed, err));
        if (w->opts.is_tied)
            VP_TRY(reduce(w, w->head, err));
        if (w->units[0].is_whole)
            VP_TRY(reduce(w, 0, err));
        vp_ledger_free(w->ledger, &w->input);
        vp_ledger_free(w->ledger, &w->pending);
        w->next = -1;
    }
    vp_ledger_free(w->ledger, &w->gathered);
out:
    return st;
}

const vp_world_form vp_world_fsdp2 = {.name           = "fsdp2",
                                      .cuts_frozen    = true,
                                      .cuts_quantised = true,
                                      .syncs_each     = true,
                                      .offloads       = "params",
                                      .load           = load,
                                      .begin          = begin,
                                      .layer          = layer,
                                      .logits         = logits,
                                      .gradient       = gradient,
                                      .end            = end};
