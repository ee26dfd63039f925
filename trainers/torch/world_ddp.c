/* torch.nn.parallel.DistributedDataParallel (torch/csrc/distributed/c10d/reducer.cpp, 2.11): gradients are copied
 * to buckets and back. */
#include "trainers/torch/world_internal.h"

enum { FIRST_BUCKET = 1 << 20, BUCKET = 25 << 20, BROADCAST = 250 << 20 };

/* compute_bucket_assignment_by_size(): a bucket is closed by the tensor that fills it. Those that are not kept
 * go one before the other. */
static vp_status make_buckets(vp_world *w, const int64_t *bytes, int64_t n, int64_t first,
                              int64_t limit, bool kept, vp_err *err)
{
    int64_t   sum = 0, k = 0;
    vp_status st = VP_OK;

    for (int64_t i = 0; i < w->n_weights; i++)
        vp_ledger_free(w->ledger, &w->reduced[i]);
    for (int64_t i = 0; i < n; i++) {
        sum += bytes[i];
        if (sum < (k ? limit : first) && i + 1 < n)
            continue;
        VP_TRY(vp_ledger_alloc(w->ledger, kept ? VP_OWNER_BUCKET : VP_OWNER_TEMPORARY, sum,
                               &w->reduced[k], err));
        if (!kept)
            vp_ledger_free(w->ledger, &w->reduced[k]);
        k++;
        sum = 0;
    }
out:
    return st;
}

/* Rank 0's weights are sent to all, then there is one bucket for all gradients. */
static vp_status load(vp_world *w, vp_err *err)
{
    const int64_t *bytes = vp_recorded_parameters(w->step, &w->n_trained);
    vp_status      st    = VP_OK;

    for (int64_t i = 0; i < w->n_trained; i++)
        w->trained[i] = bytes[i];
    VP_TRY(make_buckets(w, bytes, w->n_trained, BROADCAST, BROADCAST, false, err));
    VP_TRY(make_buckets(w, bytes, w->n_trained, INT64_MAX, INT64_MAX, true, err));
out:
    return st;
}

/* After the first step the buckets are made anew, in the order in which gradients came. */
static vp_status begin(vp_world *w, vp_err *err)
{
    if (w->n_steps != 1 || w->is_backward || w->filled)
        return VP_OK;
    w->filled = w->n_gradients;
    return make_buckets(w, w->gradients, w->n_gradients, FIRST_BUCKET, BUCKET, true, err);
}

const vp_world_form vp_world_ddp = {.name          = "ddp",
                                    .replicates    = true,
                                    .keeps_reduced = true,
                                    .offloads      = "",
                                    .load          = load,
                                    .begin         = begin};
