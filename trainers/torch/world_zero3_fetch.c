/* Which weights are whole when under DeepSpeed's ZeRO 3 (0.19, runtime/zero/partitioned_param_coordinator.py and
 * AllGatherCoalescedHandle of partition_parameters.py). A first step only notes the order in which weights are used. From the
 * second on weights are fetched ahead of it, several joined in one buffer; what will be used again soon stays. */
#include "trainers/torch/world_zero3_fetch.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

enum { AHEAD = 50000000, MOST_WHOLE = 1000000000, REUSED = 1000000000 };

/* Modules of a layer that have no weights of their own, before whose use weights are fetched as well: it, its attention, its
 * feed-forward part. */
enum { EMPTY_MODULES = 3 };

typedef enum state { IS_CUT, IS_COMING, IS_WHOLE } state;

/* Weights that come together; the buffer goes when all of them have been used. */
typedef struct bucket {
    vp_ledger_block flat, wide;          /* of 16 bits; of fp32 adapters beside them */
    int64_t         unused, first, last; /* weights, and others between them */
    bool            has_come;
} bucket;

typedef struct fetched {
    state   state;
    int64_t bucket;      /* or -1 */
    int64_t last_popped; /* use for which it was last taken from the queue, or -1 */
} fetched;

struct vp_zero3_fetch {
    vp_world *w;
    fetched  *of; /* each weight */
    bucket   *buckets;
    int64_t   n_buckets;
    int64_t  *uses; /* weights in the order of use */
    int64_t   n_uses, capacity;
    int64_t   at, popped; /* uses so far; of them, and of those to come, taken from the queue */
    int64_t   n_whole;    /* elements */
};

bool vp_zero3_is_cut(const vp_world_weight *x)
{
    return x->elements > VP_ZERO3_PERSISTENT;
}

static int64_t padded(const vp_zero3_fetch *f, int64_t i)
{
    int64_t n = f->w->opts.ranks;

    return vp_ceil_div(f->w->weights[i].elements, n) * n;
}

static vp_status note_weight(vp_zero3_fetch *f, int64_t i, vp_err *err)
{
    vp_status st = VP_OK;

    if (!vp_zero3_is_cut(&f->w->weights[i]))
        return VP_OK;
    if (f->n_uses == f->capacity) {
        int64_t  n    = 2 * (f->capacity + 1);
        int64_t *more = realloc(f->uses, (size_t)n * sizeof *more);
        VP_TRY_ALLOC(err, more);
        f->uses     = more;
        f->capacity = n;
    }
    f->uses[f->n_uses++] = i;
out:
    return st;
}

static bool is_adapter(const vp_world *w, int64_t i)
{
    return w->has_frozen && i >= 0 && i < w->n_weights && w->weights[i].place >= 0;
}

/* peft has a module around a weight with its two adapters, which asks for the first one's weight, to cast to its format, so that DeepSpeed takes
 * that for one of the module's own (peft 0.21, lora/layer.py). It begins forward with the weight, back with the second adapter. */
static bool begins_module(const vp_world *w, int64_t i, bool backwards)
{
    return backwards ? is_adapter(w, i) && !is_adapter(w, i + 1)
                     : !is_adapter(w, i) && is_adapter(w, i + 1);
}

static int64_t of_module(const vp_world *w, int64_t i)
{
    return is_adapter(w, i) ? i - 1 : i + 1;
}

static vp_status note_use(vp_zero3_fetch *f, int64_t i, bool backwards, vp_err *err)
{
    vp_status st = VP_OK;

    if (begins_module(f->w, i, backwards))
        VP_TRY(note_weight(f, of_module(f->w, i), err));
    VP_TRY(note_weight(f, i, err));
out:
    return st;
}

static vp_status note(vp_zero3_fetch *f, int64_t u, bool backwards, vp_err *err)
{
    const vp_world_unit *unit = &f->w->units[u];
    vp_status            st   = VP_OK;

    for (int64_t k = 0; k < unit->n; k++)
        VP_TRY(note_use(f, unit->first + (backwards ? unit->n - 1 - k : k), backwards, err));
out:
    return st;
}

bool vp_zero3_asks_anew(const vp_world *w, int64_t i)
{
    return vp_zero3_is_cut(&w->weights[i]) || begins_module(w, i, true);
}

static vp_status note_recomputed(vp_zero3_fetch *f, int64_t u, vp_err *err)
{
    int64_t   first = f->w->units[u].first, i = first + f->w->units[u].n;
    bool      has_begun = false;
    vp_status st        = VP_OK;

    while (i-- > first) {
        VP_TRY(note_use(f, i, true, err));
        if (has_begun || !vp_zero3_asks_anew(f->w, i))
            continue;
        VP_TRY(note(f, u, false, err));
        has_begun = true;
    }
out:
    return st;
}

/* The order of use: forward, then back, layers that are computed anew once more before they are gone through. */
static vp_status note_all(vp_zero3_fetch *f, vp_err *err)
{
    const vp_world *w     = f->w;
    int64_t         input = w->opts.is_tied ? w->head : w->embed;
    vp_status       st    = VP_OK;

    if (w->opts.asks_for_head)
        VP_TRY(note(f, w->head, false, err));
    VP_TRY(note(f, input, false, err));
    VP_TRY(note(f, w->rest, false, err));
    for (int64_t u = 0; u < w->n_layers; u++)
        VP_TRY(note(f, u, false, err));
    if (!w->opts.asks_for_head)
        VP_TRY(note(f, w->head, false, err));
    VP_TRY(note(f, w->head, true, err));
    for (int64_t u = w->n_layers - 1; u >= 0; u--) {
        if (w->opts.is_recomputed)
            VP_TRY(note_recomputed(f, u, err));
        else
            VP_TRY(note(f, u, true, err));
    }
    if (!w->has_frozen || w->opts.is_recomputed) {
        VP_TRY(note(f, w->rest, true, err));
        VP_TRY(note(f, input, true, err));
    }
out:
    return st;
}

vp_status vp_zero3_fetch_new(vp_world *w, vp_zero3_fetch **out, vp_err *err)
{
    vp_zero3_fetch *f  = calloc(1, sizeof *f);
    vp_status       st = VP_OK;

    VP_TRY_ALLOC(err, f);
    f->w = w;
    VP_TRY(note_all(f, err));
    f->of      = calloc((size_t)w->n_weights + 1, sizeof *f->of);
    f->buckets = calloc((size_t)f->n_uses + 1, sizeof *f->buckets);
    VP_TRY_ALLOC(err, f->of && f->buckets);
    *out = f;
    f    = NULL;
out:
    vp_zero3_fetch_free(f);
    return st;
}

void vp_zero3_fetch_free(vp_zero3_fetch *f)
{
    if (!f)
        return;
    for (int64_t b = 0; b < f->n_buckets; b++) {
        vp_ledger_free(f->w->ledger, &f->buckets[b].flat);
        vp_ledger_free(f->w->ledger, &f->buckets[b].wide);
    }
    free(f->of);
    free(f->buckets);
    free(f->uses);
    free(f);
}

static vp_status take(vp_world *w, int64_t bytes, vp_ledger_block *out, vp_err *err)
{
    vp_status st;

    w->ledger->stream = VP_ZERO3_STREAM_GATHER;
    st                = vp_world_take(w, VP_OWNER_GATHERED, bytes, out, err);
    w->ledger->stream = 0;
    return st;
}

vp_status vp_zero3_fetch_alone(vp_world *w, int64_t elements, vp_ledger_block *out, vp_err *err)
{
    return elements > VP_ZERO3_PERSISTENT ? take(w, elements * w->opts.weight_bytes, out, err)
                                          : VP_OK;
}

vp_status vp_zero3_fetch_weight(vp_world *w, vp_world_weight *x, vp_err *err)
{
    return vp_zero3_is_cut(x) ? take(w, x->elements * x->computed, &x->whole, err) : VP_OK;
}

/* Weights of a bucket are cut out of what has come. */
static vp_status receive(vp_zero3_fetch *f, int64_t b, vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t i = f->buckets[b].first; i <= f->buckets[b].last; i++) {
        if (f->of[i].bucket != b || f->of[i].state != IS_COMING)
            continue;
        if (!f->w->weights[i].whole.block)
            VP_TRY(vp_zero3_fetch_weight(f->w, &f->w->weights[i], err));
        f->of[i].state = IS_WHOLE;
    }
    f->buckets[b].has_come = true;
out:
    return st;
}

/* What lies in host memory comes first as this rank's parts. */
static vp_status copy_in(vp_zero3_fetch *f, int64_t bytes, vp_ledger_block *out, vp_err *err)
{
    bool is_offloaded = strcmp(f->w->opts.offload, "params") == 0;

    return is_offloaded ? take(f->w, bytes / f->w->opts.ranks, out, err) : VP_OK;
}

/* A weight comes by itself: what it comes in is the weight. */
static vp_status fetch_one(vp_zero3_fetch *f, int64_t i, vp_err *err)
{
    int64_t         bytes = padded(f, i) * f->w->weights[i].computed;
    vp_ledger_block part  = {0};
    vp_status       st    = VP_OK;

    VP_TRY(take(f->w, bytes, &f->w->weights[i].whole, err));
    VP_TRY(copy_in(f, bytes, &part, err));
    f->n_whole += f->w->weights[i].elements;
out:
    vp_ledger_free(f->w->ledger, &part);
    return st;
}

/* Weights of one format in one buffer. */
static vp_status fetch_flat(vp_zero3_fetch *f, int64_t bytes, vp_ledger_block *out, vp_err *err)
{
    vp_ledger_block parts = {0};
    vp_status       st    = VP_OK;

    if (!bytes)
        return VP_OK;
    VP_TRY(take(f->w, bytes, out, err));
    VP_TRY(copy_in(f, bytes, &parts, err));
out:
    vp_ledger_free(f->w->ledger, &parts);
    return st;
}

static void drop_bucket(vp_zero3_fetch *f, bucket *b)
{
    vp_ledger_free(f->w->ledger, &b->flat);
    vp_ledger_free(f->w->ledger, &b->wide);
}

/* The next ones in the order of use, until there are enough of them. */
static vp_status fetch_ahead(vp_zero3_fetch *f, vp_err *err)
{
    int64_t   most = MOST_WHOLE - f->n_whole < AHEAD ? MOST_WHOLE - f->n_whole : AHEAD;
    int64_t   sum = 0, bytes = 0, n = 0, b = f->n_buckets, first = INT64_MAX, last = 0, newest = 0;
    int64_t   wide_bytes = 0;
    vp_status st         = VP_OK;

    for (; f->popped < f->n_uses && sum < most; f->popped++) {
        int64_t  i     = f->uses[f->popped];
        fetched *x     = &f->of[i];
        x->last_popped = f->popped;
        if (x->state != IS_CUT)
            continue;
        x->state  = IS_COMING;
        x->bucket = b;
        sum += f->w->weights[i].elements;
        if (f->w->weights[i].computed == f->w->opts.weight_bytes)
            bytes += padded(f, i) * f->w->weights[i].computed;
        else
            wide_bytes += padded(f, i) * f->w->weights[i].computed;
        newest = i;
        first  = i < first ? i : first;
        last   = i > last ? i : last;
        n++;
    }
    if (n == 0)
        return VP_OK;
    f->buckets[f->n_buckets++] = (bucket){.unused = n, .first = first, .last = last};
    if (n == 1)
        return fetch_one(f, newest, err);
    f->n_whole += sum;
    VP_TRY(fetch_flat(f, bytes, &f->buckets[b].flat, err));
    VP_TRY(fetch_flat(f, wide_bytes, &f->buckets[b].wide, err));
out:
    return st;
}

/* It comes by itself, or out of the bucket that it has come in. */
static vp_status make_whole(vp_zero3_fetch *f, int64_t i, vp_err *err)
{
    fetched  *x  = &f->of[i];
    vp_status st = VP_OK;

    if (x->state == IS_CUT) {
        VP_TRY(fetch_one(f, i, err));
        x->state = IS_WHOLE;
    } else if (x->bucket >= 0) {
        bucket *b = &f->buckets[x->bucket];
        if (!b->has_come)
            VP_TRY(receive(f, x->bucket, err));
        x->bucket = -1;
        if (--b->unused == 0)
            drop_bucket(f, b);
    }
out:
    return st;
}

static vp_status use(vp_zero3_fetch *f, int64_t i, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(make_whole(f, i, err));
    if (f->at >= f->popped) {
        f->popped            = f->at + 1;
        f->of[i].last_popped = f->at;
    }
    VP_TRY(fetch_ahead(f, err));
    f->at++;
out:
    return st;
}

/* It was passed over when later ones were fetched, or is used again soon. */
static bool stays(const vp_zero3_fetch *f, int64_t i)
{
    int64_t sum = 0;

    if (f->of[i].last_popped >= f->at)
        return true;
    for (int64_t k = f->at; k < f->n_uses && sum < REUSED; k++) {
        if (f->uses[k] == i)
            return true;
        sum += f->w->weights[f->uses[k]].elements;
    }
    return false;
}

static void release(vp_zero3_fetch *f, int64_t i)
{
    if (f->of[i].state != IS_WHOLE || stays(f, i))
        return;
    vp_ledger_free(f->w->ledger, &f->w->weights[i].whole);
    f->of[i].state = IS_CUT;
    f->n_whole -= f->w->weights[i].elements;
}

vp_status vp_zero3_fetch_enter(vp_zero3_fetch *f, vp_err *err)
{
    vp_status st = VP_OK;

    for (int k = 0; k < EMPTY_MODULES; k++)
        VP_TRY(fetch_ahead(f, err));
out:
    return st;
}

static vp_status use_any(vp_zero3_fetch *f, int64_t i, vp_err *err)
{
    return vp_zero3_is_cut(&f->w->weights[i]) ? use(f, i, err) : fetch_ahead(f, err);
}

static vp_status use_weight(vp_zero3_fetch *f, int64_t i, bool backwards, vp_err *err)
{
    vp_status st = VP_OK;

    if (begins_module(f->w, i, backwards))
        VP_TRY(use_any(f, of_module(f->w, i), err));
    VP_TRY(use_any(f, i, err));
out:
    return st;
}

vp_status vp_zero3_fetch_use_weight(vp_zero3_fetch *f, int64_t i, vp_err *err)
{
    return use_weight(f, i, true, err);
}

vp_status vp_zero3_fetch_keep(vp_zero3_fetch *f, int64_t u, vp_err *err)
{
    const vp_world_unit *unit = &f->w->units[u];
    vp_status            st   = VP_OK;

    for (int64_t i = unit->first; i < unit->first + unit->n; i++)
        if (vp_zero3_is_cut(&f->w->weights[i]))
            VP_TRY(make_whole(f, i, err));
out:
    return st;
}

void vp_zero3_fetch_release_weight(vp_zero3_fetch *f, int64_t i)
{
    release(f, i);
}

vp_status vp_zero3_fetch_use(vp_zero3_fetch *f, int64_t u, bool backwards, vp_err *err)
{
    const vp_world_unit *unit   = &f->w->units[u];
    int64_t              before = -1;
    vp_status            st     = VP_OK;

    if (u < f->w->n_layers)
        VP_TRY(vp_zero3_fetch_enter(f, err));
    for (int64_t k = 0; k < unit->n; k++) {
        int64_t i = unit->first + (backwards ? unit->n - 1 - k : k);
        if (before >= 0 && vp_zero3_is_cut(&f->w->weights[i]))
            release(f, before);
        VP_TRY(use_weight(f, i, backwards, err));
        if (vp_zero3_is_cut(&f->w->weights[i]))
            before = i;
    }
out:
    return st;
}

void vp_zero3_fetch_release(vp_zero3_fetch *f, int64_t u)
{
    for (int64_t k = 0; k < f->w->units[u].n; k++)
        release(f, f->w->units[u].first + k);
}

void vp_zero3_fetch_reset(vp_zero3_fetch *f)
{
    for (int64_t i = 0; i < f->w->n_weights; i++) {
        if (vp_zero3_is_cut(&f->w->weights[i]))
            vp_ledger_free(f->w->ledger, &f->w->weights[i].whole);
        f->of[i] = (fetched){.bucket = -1, .last_popped = -1};
    }
    for (int64_t b = 0; b < f->n_buckets; b++)
        drop_bucket(f, &f->buckets[b]);
    f->n_buckets = f->at = f->popped = f->n_whole = 0;
}
