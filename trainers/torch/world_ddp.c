/* torch.nn.parallel.DistributedDataParallel (torch/csrc/distributed/c10d/reducer.cpp, 2.11): gradients are copied
 * to buckets and back. */
#include "trainers/torch/world_internal.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_BUCKET = 1 << 20, BUCKET = 25 << 20, BROADCAST = 250 << 20 };
enum { NF4_IN_A_BYTE = 2 };

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

/* Where in a model: the input's table and what else is before its layers, in them, behind them. What repeats of loading may begin within the
 * first layer. */
static int64_t place_of(const vp_recorded_weight *x)
{
    return x->layer == VP_WEIGHT_BEFORE   ? (x->rows ? -2 : -1)
           : x->layer == VP_WEIGHT_BEHIND ? INT64_MAX
                                          : x->layer;
}

/* The same where a tower is before the table, and adapters are in that. */
static int64_t place_behind_tower(const vp_recorded_weight *x)
{
    return x->is_idle ? -3 : x->layer == VP_WEIGHT_BEFORE ? -1 : place_of(x);
}

static int by_order(int64_t p, int64_t q, const vp_recorded_weight *x, const vp_recorded_weight *y)
{
    return p != q ? (p < q ? -1 : 1) : x < y ? -1 : x > y;
}

/* In the order of the model; of a layer its adapters, which are loaded behind all weights, last. */
static int by_place(const void *a, const void *b)
{
    const vp_recorded_weight *const *x = a, *const *y = b;

    return by_order(place_of(*x), place_of(*y), *x, *y);
}

static int by_place_behind_tower(const void *a, const void *b)
{
    const vp_recorded_weight *const *x = a, *const *y = b;

    return by_order(place_behind_tower(*x), place_behind_tower(*y), *x, *y);
}

static bool is_adapter(const vp_world *w, const vp_recorded_weight *x)
{
    return w->opts.adapter_rank && x->owner == VP_OWNER_PARAMETER;
}

/* Whether a pair of adapters is a weight's, by what they have. */
static bool is_pair_of(const vp_world *w, const vp_recorded_weight *x,
                       const vp_recorded_weight *const *pair)
{
    int64_t of_rank = w->opts.adapter_rank * w->opts.adapter_bytes;
    int64_t elements =
        x->owner == VP_OWNER_QUANTISED ? NF4_IN_A_BYTE * x->bytes : x->bytes / w->opts.weight_bytes;

    return elements == pair[0]->bytes / of_rank * (pair[1]->bytes / of_rank);
}

/* Of a layer's n weights, whose adapters come last: each pair of those goes behind the weight that it is of. */
static void put_pairs(const vp_world *w, const vp_recorded_weight **x, int64_t n)
{
    const vp_recorded_weight *pair[2];
    int64_t                   at = 0, i = 0;

    while (i < n && !is_adapter(w, x[i]))
        i++;
    for (; i + 1 < n; i += 2) {
        while (at < i && (is_adapter(w, x[at]) || !is_pair_of(w, x[at], &x[i])))
            at++;
        if (at == i)
            return;
        memcpy(pair, &x[i], sizeof pair);
        memmove(&x[at + 3], &x[at + 1], (size_t)(i - at - 1) * sizeof *x);
        memcpy(&x[at + 1], pair, sizeof pair);
        at += 3;
    }
}

/* Weights in the order of the model. */
static void put_in_order(const vp_world *w, const vp_recorded_weight **x, int64_t n)
{
    qsort(x, (size_t)n, sizeof *x,
          vp_recorded_idle_bytes(w->step) ? by_place_behind_tower : by_place);
    for (int64_t from = 0, to; from < n; from = to) {
        for (to = from + 1; to < n && place_of(x[to]) == place_of(x[from]);)
            to++;
        if (x[from]->layer >= 0)
            put_pairs(w, x + from, to - from);
    }
}

/* Tensors of one format that are sent at once; first: in the order of the model. */
typedef struct bucket {
    int64_t first, bytes, n_tensors;
} bucket;

static int by_first(const void *a, const void *b)
{
    const bucket *x = a, *y = b;

    return x->first < y->first ? -1 : x->first > y->first;
}

/* The buckets of each format, in the order of their first tensors (compute_bucket_assignment_by_size()). */
static int64_t list_buckets(const vp_world *w, const vp_recorded_weight *const *list, int64_t n,
                            bucket *out)
{
    static const vp_owner owners[]     = {VP_OWNER_PARAMETER, VP_OWNER_QUANTISED, VP_OWNER_FROZEN};
    bool                  is_quantised = vp_recorded_quantised_bytes(w->step) > 0;
    bool                  one_kind = is_alike(w, VP_OWNER_PARAMETER, VP_OWNER_FROZEN, is_quantised);
    int64_t               n_out    = 0;

    for (size_t k = 0; k < sizeof owners / sizeof *owners; k++) {
        bucket x = {0};
        if (owners[k] == VP_OWNER_FROZEN && one_kind)
            break; /* what is frozen went with what is trained */
        for (int64_t i = 0; i < n; i++) {
            vp_owner owner = list[i]->is_idle ? VP_OWNER_PARAMETER : list[i]->owner;
            if (is_alike(w, owner, owners[k], is_quantised)) {
                x.first = x.bytes ? x.first : i;
                x.bytes += list[i]->bytes;
                x.n_tensors++;
            }
            if (!x.bytes || (x.bytes < BROADCAST && i + 1 < n))
                continue;
            out[n_out++] = x;
            x            = (bucket){0};
        }
    }
    qsort(out, (size_t)n_out, sizeof *out, by_first);
    return n_out;
}

/* All weights are sent to all ranks, those that are frozen too, in buckets of each format; two are on their way at once. A bucket's tensors are
 * joined; one by itself is sent from where it lies (flatten_dense_tensors()). */
static vp_status broadcast(vp_world *w, vp_err *err)
{
    vp_recorded_weight        *list   = NULL;
    const vp_recorded_weight **order  = NULL;
    bucket                    *all    = NULL;
    vp_ledger_block            before = {0}, here = {0};
    int64_t                    n, n_buckets;
    vp_status                  st = VP_OK;

    VP_TRY(vp_recorded_weights(w->step, VP_WEIGHTS_THERE, &list, &n, err));
    all   = calloc((size_t)n + 1, sizeof *all);
    order = calloc((size_t)n + 1, sizeof *order);
    VP_TRY_ALLOC(err, all && order);
    for (int64_t i = 0; i < n; i++)
        order[i] = &list[i];
    put_in_order(w, order, n);
    n_buckets = list_buckets(w, order, n, all);
    for (int64_t i = 0; i < n_buckets; i++) {
        vp_ledger_free(w->ledger, &before);
        before = here;
        here   = (vp_ledger_block){0};
        if (all[i].n_tensors > 1)
            VP_TRY(vp_ledger_alloc(w->ledger, VP_OWNER_TEMPORARY, all[i].bytes, &here, err));
    }
out:
    vp_ledger_free(w->ledger, &before);
    vp_ledger_free(w->ledger, &here);
    free(all);
    free(order);
    free(list);
    return st;
}

/* Buckets of all that is to be trained, of what no gradient comes to as well: DDP looks for such at the end of each backward pass. */
static vp_status make_buckets_of_all(vp_world *w, vp_err *err)
{
    vp_recorded_weight *list  = NULL;
    int64_t            *bytes = NULL, n = 0, n_all = 0;
    vp_status           st = VP_OK;

    VP_TRY(vp_recorded_weights(w->step, VP_WEIGHTS_ALL, &list, &n_all, err));
    bytes = calloc((size_t)n_all + 1, sizeof *bytes);
    VP_TRY_ALLOC(err, bytes);
    for (int64_t i = 0; i < n_all; i++)
        if (list[i].owner == VP_OWNER_PARAMETER || list[i].is_idle)
            bytes[n++] = list[i].bytes;
    VP_TRY(make_lasting_buckets(w, bytes, n, err));
out:
    free(bytes);
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
    VP_TRY(w->opts.finds_unused && vp_recorded_idle_bytes(w->step) ? make_buckets_of_all(w, err)
           : w->opts.finds_unused
               ? make_lasting_buckets(w, w->trained, w->n_trained, err)
               : make_buckets(w, w->trained, w->n_trained, INT64_MAX, INT64_MAX, err));
out:
    return st;
}

enum { CAST, CLONE, STATES, STATES_CLONE, OUTPUTS };

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
    for (int i = 0; i < OUTPUTS; i++)
        vp_ledger_free(w->ledger, &w->buffers[i]);
    if (w->opts.finds_unused || w->n_steps != 1 || w->is_backward || w->filled)
        return VP_OK;
    w->filled = w->n_gradients;
    put_tied_last(w);
    return make_buckets(w, w->gradients, w->n_gradients, FIRST_BUCKET, BUCKET, err);
}

static vp_status take_output(vp_world *w, int which, int64_t bytes, vp_err *err)
{
    return bytes ? vp_world_take(w, VP_OWNER_TEMPORARY, bytes, &w->buffers[which], err) : VP_OK;
}

static vp_status clone(vp_world *w, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(take_output(w, CLONE, w->opts.clone_bytes, err));
    VP_TRY(take_output(w, STATES_CLONE, w->opts.states_bytes, err));
out:
    return st;
}

static vp_status end(vp_world *w, vp_err *err)
{
    vp_status st = VP_OK;

    if (w->is_backward)
        return VP_OK;
    VP_TRY(take_output(w, STATES, w->opts.states_bytes, err));
    st = w->opts.cast_bytes ? take_output(w, CAST, w->opts.cast_bytes, err) : clone(w, err);
out:
    return st;
}

const vp_world_form vp_world_ddp = {.name          = "ddp",
                                    .replicates    = true,
                                    .keeps_reduced = true,
                                    .offloads      = "",
                                    .load          = load,
                                    .begin         = begin,
                                    .end           = end,
                                    .returned      = clone};
