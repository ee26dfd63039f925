/* torch.nn.parallel.DistributedDataParallel (torch/csrc/distributed/c10d/reducer.cpp, 2.11): gradients are copied
 * to buckets and back. */
#include "trainers/torch/world_internal.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_BUCKET = 1 << 20, BUCKET = 25 << 20, BROADCAST = 250 << 20 };

/* compute_bucket_assignment_by_size(): a bucket is closed by the tensor that fills it. */
static vp_status make_buckets(vp_world *w, const int64_t *bytes, int64_t n, int64_t first,
                              int64_t limit, vp_err *err)
{
    int64_t   sum = 0, k = 0;
    vp_status st = VP_OK;

    for (int64_t i = 0; i < w->n_weights; i++)
        vp_ledger_free(w->ledger, &w->reduced[i]);
    for (int64_t i = 0; i < n; i++) {
        sum += bytes[i];
        if (sum < (k ? limit : first) && i + 1 < n)
            continue;
        VP_TRY(vp_ledger_alloc(w->ledger, VP_OWNER_BUCKET, sum, &w->reduced[k++], err));
        sum = 0;
    }
out:
    return st;
}

/* The same as find_unused_parameters has them from the start, in the order of weights, the last one first; and a number for each weight
 * in which ranks count those that were used. */
static vp_status make_lasting_buckets(vp_world *w, const int64_t *bytes, int64_t n, vp_err *err)
{
    int64_t  *sums = calloc((size_t)n + 1, sizeof *sums);
    int64_t   k    = 0;
    vp_status st   = VP_OK;

    VP_TRY_ALLOC(err, sums);
    for (int64_t i = 0; i < n; i++) {
        sums[k] += bytes[i];
        k += sums[k] >= (k ? BUCKET : FIRST_BUCKET) || i + 1 == n;
    }
    for (int64_t i = k - 1; i >= 0; i--)
        VP_TRY(vp_ledger_alloc(w->ledger, VP_OWNER_BUCKET, sums[i], &w->reduced[i], err));
    VP_TRY(vp_ledger_alloc(w->ledger, VP_OWNER_BUCKET, 4 * n, &w->reduced[k], err));
out:
    free(sums);
    return st;
}

/* Whether weights of two owners are kept in one format: what is frozen beside quantised weights is as wide as adapters. */
static bool is_alike(const vp_world *w, vp_owner owner, vp_owner of, bool is_quantised)
{
    bool frozen_as_trained =
        is_quantised || !w->opts.adapter_bytes || w->opts.adapter_bytes == w->opts.weight_bytes;

    return owner == of ||
           (frozen_as_trained && owner != VP_OWNER_QUANTISED && of != VP_OWNER_QUANTISED);
}

/* Where in a model: before its layers, in them, behind them. */
static int place_of(const vp_recorded_weight *x)
{
    return x->layer == VP_WEIGHT_BEFORE ? 0 : x->layer == VP_WEIGHT_BEHIND ? 2 : 1;
}

/* A bucket's tensors are joined; one by itself is sent from where it lies (flatten_dense_tensors()). */
static vp_status send(vp_world *w, int64_t bytes, int64_t n_tensors, vp_ledger_block *before,
                      vp_ledger_block *bucket, vp_err *err)
{
    vp_ledger_free(w->ledger, before);
    *before = *bucket;
    *bucket = (vp_ledger_block){0};
    return n_tensors > 1 ? vp_ledger_alloc(w->ledger, VP_OWNER_TEMPORARY, bytes, bucket, err)
                         : VP_OK;
}

/* All weights are sent to all ranks, those that are frozen too, in buckets of each format; two are on their way at once. */
static vp_status broadcast(vp_world *w, vp_err *err)
{
    static const vp_owner owners[] = {VP_OWNER_PARAMETER, VP_OWNER_QUANTISED, VP_OWNER_FROZEN};
    vp_recorded_weight   *list     = NULL;
    vp_ledger_block       before = {0}, bucket = {0};
    bool                  is_quantised = vp_recorded_quantised_bytes(w->step) > 0;
    int64_t               n, sum, n_tensors;
    vp_status             st = VP_OK;

    VP_TRY(vp_recorded_weights(w->step, VP_WEIGHTS_THERE, &list, &n, err));
    for (size_t k = 0; k < sizeof owners / sizeof *owners; k++) {
        sum = n_tensors = 0;
        for (int64_t i = 0; i < 3 * n; i++) {
            const vp_recorded_weight *x = &list[i % n];
            if (place_of(x) == i / n && is_alike(w, x->owner, owners[k], is_quantised)) {
                sum += x->bytes;
                n_tensors++;
            }
            if (!sum || (sum < BROADCAST && i + 1 < 3 * n))
                continue;
            VP_TRY(send(w, sum, n_tensors, &before, &bucket, err));
            sum = n_tensors = 0;
        }
        if (owners[k] == VP_OWNER_QUANTISED &&
            is_alike(w, VP_OWNER_PARAMETER, VP_OWNER_FROZEN, is_quantised))
            break; /* what is frozen went with what is trained */
    }
out:
    vp_ledger_free(w->ledger, &before);
    vp_ledger_free(w->ledger, &bucket);
    free(list);
    return st;
}

/* Rank 0's weights are sent to all, then there is one bucket for all gradients. The head of tied tables is no weight of its own. */
static vp_status load(vp_world *w, vp_err *err)
{
    int64_t        n;
    const int64_t *bytes   = vp_recorded_parameters(w->step, &n);
    int64_t       *trained = realloc(w->trained, ((size_t)n + 1) * sizeof *trained);
    vp_status      st      = VP_OK;

    VP_TRY_ALLOC(
        err,
        trained); /* more than there are gradients in backward: Liger's loss makes its head's in forward */
    w->trained = trained;
    for (int64_t i = 0; i < n; i++)
        if (bytes[i])
            w->trained[w->n_trained++] = bytes[i];
    VP_TRY(broadcast(w, err));
    VP_TRY(w->opts.finds_unused
               ? make_lasting_buckets(w, w->trained, w->n_trained, err)
               : make_buckets(w, w->trained, w->n_trained, INT64_MAX, INT64_MAX, err));
out:
    return st;
}

enum { CAST, CLONE };

/* The gradient of tied tables is there first and whole last: the look-up, which is the first thing forward, adds to it. */
static void put_tied_last(vp_world *w)
{
    int64_t i = 0, table = w->n_trained ? w->trained[0] : 0;

    if (!w->opts.is_tied || !vp_recorded_tables(w->step))
        return;
    while (i < w->n_gradients && w->gradients[i] != table)
        i++;
    if (i == w->n_gradients)
        return;
    memmove(&w->gradients[i], &w->gradients[i + 1],
            (size_t)(w->n_gradients - i - 1) * sizeof *w->gradients);
    w->gradients[w->n_gradients - 1] = table;
}

/* After the first step the buckets are made anew, in the order in which gradients were whole. The output is gone before backward. */
static vp_status begin(vp_world *w, vp_err *err)
{
    vp_ledger_free(w->ledger, &w->buffers[CAST]);
    vp_ledger_free(w->ledger, &w->buffers[CLONE]);
    if (w->opts.finds_unused || w->n_steps != 1 || w->is_backward || w->filled)
        return VP_OK;
    w->filled = w->n_gradients;
    put_tied_last(w);
    return make_buckets(w, w->gradients, w->n_gradients, FIRST_BUCKET, BUCKET, err);
}

static vp_status clone(vp_world *w, vp_err *err)
{
    return w->opts.clone_bytes
               ? vp_world_take(w, VP_OWNER_TEMPORARY, w->opts.clone_bytes, &w->buffers[CLONE], err)
               : VP_OK;
}

static vp_status end(vp_world *w, vp_err *err)
{
    if (w->is_backward)
        return VP_OK;
    return w->opts.cast_bytes
               ? vp_world_take(w, VP_OWNER_TEMPORARY, w->opts.cast_bytes, &w->buffers[CAST], err)
               : clone(w, err);
}

const vp_world_form vp_world_ddp = {.name          = "ddp",
                                    .replicates    = true,
                                    .keeps_reduced = true,
                                    .offloads      = "",
                                    .load          = load,
                                    .begin         = begin,
                                    .end           = end,
                                    .returned      = clone};
