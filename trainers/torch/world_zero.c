/* DeepSpeed's ZeRO 1 and 2 (0.19, runtime/zero/stage_1_and_2.py) as `vplan emit` has them set up: buckets of 5e8 elements,
 * contiguous gradients, no overlap. The ranks' 16-bit weights lie in one tensor, of which each updates its part. */
#include "trainers/torch/world_internal.h"

#include "base/checked.h"

#include <string.h>

static bool is_offloaded(const vp_world *w)
{
    return strcmp(w->opts.offload, "none") != 0;
}

static int64_t elements_of(vp_world *w, int group)
{
    int64_t sum = 0;

    for (int64_t place = 0; place < w->n_weights; place++)
        if (vp_world_zero_group(w, place) == group)
            sum += vp_world_weight_at(w, place)->elements;
    return sum;
}

static int64_t part_of(vp_world *w, int group)
{
    return vp_ceil_div(elements_of(w, group), w->opts.ranks);
}

static int64_t part(vp_world *w)
{
    int64_t sum = 0;

    for (int group = 0; group < VP_ZERO_GROUPS; group++)
        sum += part_of(w, group);
    return sum;
}

/* Of the largest weight what lies in rank 0's part. */
static int64_t most_owned_elements(vp_world *w)
{
    return w->most_elements < part(w) ? w->most_elements : part(w);
}

/* Whole weights that begin in rank 0's part of a group. */
static int64_t owned_elements(vp_world *w)
{
    int64_t own[VP_ZERO_GROUPS] = {0}, sum[VP_ZERO_GROUPS] = {0};

    for (int group = 0; group < VP_ZERO_GROUPS; group++)
        own[group] = part_of(w, group);
    for (int64_t place = 0; place < w->n_weights; place++) {
        int group = vp_world_zero_group(w, place);
        if (sum[group] < own[group])
            sum[group] += vp_world_weight_at(w, place)->elements;
    }
    return sum[0] + sum[1];
}

static void drop_whole(vp_world *w, int group)
{
    for (int64_t place = 0; place < w->n_weights; place++)
        if (vp_world_zero_group(w, place) == group)
            vp_ledger_free(w->ledger, &vp_world_weight_at(w, place)->whole);
}

/* Each group is cut evenly. */
static void find_owners(vp_world *w)
{
    int64_t at[VP_ZERO_GROUPS] = {0}, own[VP_ZERO_GROUPS] = {0};

    for (int group = 0; group < VP_ZERO_GROUPS; group++)
        own[group] = part_of(w, group);
    for (int64_t place = 0; place < w->n_weights; place++) {
        vp_world_weight *x     = vp_world_weight_at(w, place);
        int              group = vp_world_zero_group(w, place);
        x->first_rank          = at[group] / own[group];
        x->owned = at[group] >= own[group] ? 0 : vp_min_i64(x->elements, own[group] - at[group]);
        at[group] += x->elements;
        x->last_rank = (at[group] - 1) / own[group];
    }
}

/* A group's weights are joined, in host memory where the card has no room; rank 0's part of them becomes wide. */
static vp_status join_group(vp_world *w, int group, vp_err *err)
{
    int64_t          each = w->opts.weight_bytes, n = part_of(w, group);
    vp_ledger_block *flat    = &w->buffers[group ? VP_ZERO_MORE_WEIGHTS : VP_ZERO_WEIGHTS];
    vp_ledger_block *master  = &w->buffers[group ? VP_ZERO_MORE_MASTER : VP_ZERO_MASTER];
    vp_ledger_block  scratch = {0};
    vp_status        st      = VP_OK;

    if (!n)
        return VP_OK;
    if (w->opts.device_bytes && (w->n_elements + n * w->opts.ranks) * each > w->opts.device_bytes)
        drop_whole(w, group);
    VP_TRY(vp_ledger_empty_cache(w->ledger, err));
    VP_TRY(vp_world_take(w, VP_OWNER_PARAMETER, n * w->opts.ranks * each, flat, err));
    drop_whole(w, group);
    VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, n * each, &scratch, err));
    if (is_offloaded(w))
        goto out;
    VP_TRY(vp_world_take(w, VP_OWNER_MASTER, 4 * n, master, err));
    w->trained[w->n_trained++] = 4 * n;
out:
    vp_ledger_free(w->ledger, &scratch);
    return st;
}

/* Gradients that states are made for, of all groups at once. */
static vp_status make_states(vp_world *w, vp_err *err)
{
    vp_ledger_block scratch[VP_ZERO_GROUPS] = {{0}};
    vp_status       st                      = VP_OK;

    for (int group = 0; group < VP_ZERO_GROUPS; group++)
        if (part_of(w, group))
            VP_TRY(
                vp_world_take(w, VP_OWNER_TEMPORARY, 4 * part_of(w, group), &scratch[group], err));
out:
    for (int group = 0; group < VP_ZERO_GROUPS; group++)
        vp_ledger_free(w->ledger, &scratch[group]);
    return st;
}

/* Weights come one by one, then each group of them lies in one tensor. */
static vp_status load(vp_world *w, vp_err *err)
{
    int64_t   each = w->opts.weight_bytes, n = part(w);
    vp_status st = VP_OK;

    for (int64_t place = 0; place < w->n_weights; place++) {
        vp_world_weight *x = vp_world_weight_at(w, place);
        VP_TRY(vp_world_take(w, VP_OWNER_PARAMETER, x->elements * each, &x->whole, err));
    }
    find_owners(w);
    for (int group = 0; group < VP_ZERO_GROUPS; group++)
        VP_TRY(join_group(w, group, err));
    if (!is_offloaded(w))
        return make_states(w, err);
    VP_TRY(vp_world_take(w, VP_OWNER_BUCKET, w->most_elements * each, &w->buffers[VP_ZERO_MASTER],
                         err));
    vp_world_pin(w, n * each); /* a copy to send back; the master, and its gradient */
    vp_world_pin(w, 4 * n);
    vp_world_pin(w, 4 * n);
    w->host_elements = n;
out:
    return st;
}

/* ZeRO 1 without overlap leaves gradients where they are until backward is over. */
static bool waits(const vp_world *w)
{
    return w->form == &vp_world_zero1;
}

/* The last ones, of tables, are added up from parts, which go first; so is that which a loss makes of a head that is a table too. */
static bool is_put_at_end(const vp_world *w, int64_t i)
{
    return waits(w) || (i == 0 && w->opts.is_tied && w->opts.asks_for_head) ||
           i >= w->first_of_layers + w->of_layer * w->n_layers;
}

/* What rank 0 owns is kept; of a later micro-step it is added to what is there, behind the pass. */
static vp_status keep_owned(vp_world *w, vp_err *err)
{
    vp_ledger_block *kept = &w->buffers[w->adds_up ? VP_ZERO_ADDED : VP_ZERO_REDUCED];

    if (kept->block || is_offloaded(w))
        return VP_OK;
    return vp_world_take(w, VP_OWNER_GRADIENT, owned_elements(w) * w->opts.weight_bytes, kept, err);
}

static void empty_bucket(vp_world *w)
{
    w->filled     = 0;
    w->most_owned = 0;
    w->first_rank = w->opts.ranks;
    w->last_rank  = -1;
}

static void note_owners(vp_world *w, const vp_world_weight *x)
{
    w->first_rank = x->first_rank < w->first_rank ? x->first_rank : w->first_rank;
    w->last_rank  = vp_max_i64(w->last_rank, x->last_rank);
    w->most_owned = vp_max_i64(w->most_owned, x->owned);
}

static void note_all_owners(vp_world *w)
{
    w->first_rank = 0;
    w->last_rank  = w->opts.ranks - 1;
    w->most_owned = most_owned_elements(w);
}

/* The bucket is reduced, through a copy where several ranks own parts of it; what rank 0 owns is kept. */
static vp_status reduce(vp_world *w, vp_err *err)
{
    vp_ledger_block flat = {0};
    vp_status       st   = VP_OK;

    if (w->first_rank != w->last_rank)
        VP_TRY(vp_world_take(w, VP_OWNER_BUCKET, w->filled * w->opts.weight_bytes, &flat, err));
    vp_ledger_free(w->ledger, &flat);
    if (w->first_rank == 0)
        VP_TRY(keep_owned(w, err));
    if (is_offloaded(w) && w->most_owned) { /* the norm, then what goes to host memory */
        VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, 8 * w->most_owned, &flat, err));
        VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, 4 * w->most_owned, &flat, err));
    }
    w->done += w->filled;
    empty_bucket(w);
    if (w->large)
        vp_ledger_free(w->ledger, w->large);
    w->large = NULL;
out:
    vp_ledger_free(w->ledger, &flat);
    return st;
}

static vp_status set_up_bucket(vp_world *w, vp_err *err)
{
    w->done = 0;
    empty_bucket(w);
    w->adds_up = w->buffers[VP_ZERO_REDUCED].block != 0;
    return vp_world_take(w, VP_OWNER_BUCKET, VP_ZERO_BUCKET * w->opts.weight_bytes, &w->input, err);
}

/* A gradient is copied to the bucket and goes; one that is larger than a bucket waits for its own
 * reduction. */
static vp_status put(vp_world *w, int64_t i, vp_ledger_block *block, vp_err *err)
{
    int64_t                n  = w->gradients[i] / w->opts.weight_bytes;
    const vp_world_weight *of = vp_world_weight_of_gradient(w, i);
    vp_status              st = VP_OK;

    if (w->filled + n > VP_ZERO_BUCKET && w->filled)
        VP_TRY(reduce(w, err));
    w->filled += n;
    if (of)
        note_owners(w, of);
    else
        note_all_owners(w);
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
    if (!w->done && !w->filled && !waits(w)) {
        w->filled = w->n_elements < VP_ZERO_BUCKET ? w->n_elements : VP_ZERO_BUCKET;
        note_all_owners(w);
    }
    if (w->filled)
        VP_TRY(reduce(w, err));
    if (w->reduces || !waits(w))
        vp_ledger_free(w->ledger, &w->input);
    vp_ledger_free(w->ledger, &w->buffers[VP_ZERO_ADDED]);
out:
    return st;
}

/* The norm is taken in 64 bits, gradient by gradient; then rank 0's part becomes wide, group by group. What was kept of the
 * gradients is one tensor, which goes when the last group has its part. Of norms and biases that part is small, and left out. */
static vp_status step(vp_world *w, vp_err *err)
{
    int64_t         n       = part_of(w, 0);
    vp_ledger_block scratch = {0};
    vp_status       st      = VP_OK;

    if (is_offloaded(w))
        return VP_OK;
    VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, 8 * most_owned_elements(w), &scratch, err));
    VP_TRY(vp_world_take(w, VP_OWNER_TEMPORARY, n * w->opts.weight_bytes, &scratch, err));
    VP_TRY(vp_world_take(w, VP_OWNER_GRADIENT, 4 * n, &w->buffers[VP_ZERO_WIDE], err));
    if (!part_of(w, 1))
        vp_ledger_free(w->ledger, &w->buffers[VP_ZERO_REDUCED]);
out:
    vp_ledger_free(w->ledger, &scratch);
    return st;
}

static vp_status stepped(vp_world *w, vp_err *err)
{
    vp_ledger_free(w->ledger, &w->buffers[VP_ZERO_REDUCED]);
    return vp_world_zero_stepped(w, err);
}

const vp_world_form vp_world_zero1 = {.name         = "zero1",
                                      .is_flat      = true,
                                      .keeps_frozen = true,
                                      .offloads     = "optimizer",
                                      .load         = load,
                                      .gradient     = gradient,
                                      .end          = end,
                                      .step         = step,
                                      .stepped      = stepped};

const vp_world_form vp_world_zero2 = {.name         = "zero2",
                                      .is_flat      = true,
                                      .keeps_frozen = true,
                                      .offloads     = "optimizer",
                                      .load         = load,
                                      .gradient     = gradient,
                                      .end          = end,
                                      .step         = step,
                                      .stepped      = stepped};
