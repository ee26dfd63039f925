/* trainers/fit/choose_first.c: between recomputing nothing and everything: the first N layers alone, by halving, and then all fewer of
 * which what the allocator's pools need at their peaks would fit. */
#include "trainers/fit/choose_internal.h"

#include "base/beside.h"
#include "base/checked.h"
#include "base/units.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

/* Whoever recomputes first layers has their working set when all that the others kept is gone: no other layers of that number need less
 * (Megatron's block method recomputes the same). */

/* Layers of several kinds that take turns are recorded in whole rounds (gemma 3's have six). */
static const int64_t rounds[] = {1, 2, 4, 6};
enum { N_ROUNDS = sizeof rounds / sizeof *rounds };

/* The ends of a stack whose number of layers a recorded step may not have. */
enum { ENDS = 3 };

/* Settings that differ in what is recomputed: all, nothing, the first N of n_layers. */
typedef struct between {
    vp_choice *full, *none;
    int64_t    variant; /* of its first layers */
} between;

static int64_t layers_of(const vp_choose_search *x)
{
    return x->r->job.model->graph.n_instances - 2;
}

static bool recomputes(const vp_choose_search *x, int64_t v, const char *word)
{
    return strcmp(x->variants[v].settings.value[VP_SETTING_RECOMPUTE], word) == 0;
}

/* The variant that is v but for recomputing nothing; negative: there is none. */
static int64_t none_of(const vp_choose_search *x, int64_t v)
{
    const vp_setting recompute = VP_SETTING_RECOMPUTE;

    for (int64_t i = 0; i < x->n_variants; i++)
        if (recomputes(x, i, "none") &&
            vp_choose_is_same_but(&x->variants[i].settings, &x->variants[v].settings, &recompute,
                                  1))
            return i;
    return -1;
}

/* The variant of the first layers of variant full, which is made where there is none yet; negative: the trainer cannot be told, or no
 * such step was recorded. */
static vp_status variant_of(vp_choose_search *x, int64_t full, int64_t *out)
{
    vp_choose_variant v  = x->variants[full];
    vp_status         st = VP_OK;

    if (v.first_idx == 0) {
        v.settings.value[VP_SETTING_RECOMPUTE] = "first:1";
        v.is_asked = v.is_told = v.refused = v.is_tried = v.is_hopeless = false;
        v.too_large_from                                                = 0;
        VP_TRY_ALLOC(x->err, vp_arena_grow(x->arena, (void **)&x->variants, x->n_variants,
                                           &x->cap_variants, sizeof *x->variants));
        x->variants[x->n_variants]  = v;
        x->variants[full].first_idx = x->n_variants++;
    }
    *out = x->variants[full].first_idx;
    if (x->variants[*out].refused || !vp_choose_can_be_told(x, &x->variants[*out]))
        *out = -1;
out:
    return st;
}

static vp_status make_choice(const vp_choose_search *x, const between *b, int64_t n, vp_choice *out)
{
    vp_status st = VP_OK;

    *out             = (vp_choice){.settings    = b->full->settings,
                                   .order       = b->full->order,
                                   .variant     = b->variant,
                                   .micro_batch = b->full->micro_batch};
    const char *word = vp_arena_printf(x->arena, "first:%lld", (long long)n);
    VP_TRY_ALLOC(x->err, word);
    out->settings.value[VP_SETTING_RECOMPUTE] = word;
    out->settings.allocated_bytes = out->settings.reserved_bytes = -1;
    out->settings.device_bytes = out->settings.reserved_high_bytes = -1;
    VP_TRY(vp_fit_seconds_of(&x->r->job, &out->settings, x->n_trained, &out->seconds, x->err));
    out->settings.step_time_s = out->seconds;
    if (!b->full->is_priced)
        b->full->is_priced = vp_arena_array(x->arena, layers_of(x), sizeof *b->full->is_priced);
    VP_TRY_ALLOC(x->err, b->full->is_priced);
    b->full->is_priced[n] = true;
out:
    return st;
}

/* A choice that is played within so many bytes (0: whatever it needs), by whichever thread. */
typedef struct trial {
    vp_fit_job job;
    vp_choice  choice;
    bool       is_first; /* of this choice */
    vp_err     why;
    vp_status  st;
} trial;

static vp_status begin_trial(const vp_choose_search *x, const vp_choice *c, int64_t at_most_bytes,
                             trial *out)
{
    *out                   = (trial){.job = x->r->job, .choice = *c, .is_first = !c->bytes};
    out->job.at_most_bytes = at_most_bytes;
    out->job.terse         = true;
    return vp_choose_has_bytes(x, &out->choice)
               ? VP_OK
               : VP_FAIL(x->err, VP_ERR_NOMEM, "out of host memory");
}

static void play_trial(void *with)
{
    trial *t = with;

    t->st = vp_fit_bytes_of(&t->job, &t->choice.settings, t->choice.bytes, &t->why);
}

/* What came of it: what it takes; or that it needs more, or was not recorded, which more layers may be. */
static vp_status take_trial(vp_choose_search *x, trial *t, vp_choice *out)
{
    int64_t at_most_bytes = t->job.at_most_bytes;

    x->out->n_played += t->is_first && t->st != VP_ERR_INPUT;
    x->out->n_sized += at_most_bytes && (t->st == VP_OK || t->st == VP_ERR_NO_FIT);
    if (t->st == VP_OK)
        vp_choose_take_bytes(x, &t->choice);
    else if (t->st == VP_ERR_NO_FIT && at_most_bytes)
        t->choice.beyond_bytes = at_most_bytes;
    else if (t->st == VP_ERR_INPUT)
        t->choice.out = true;
    else
        *x->err = t->why;
    *out = t->choice;
    return out->sized || out->beyond_bytes || out->out ? VP_OK : t->st;
}

static vp_status size(vp_choose_search *x, vp_choice *c, int64_t at_most_bytes)
{
    trial     t;
    vp_status st = VP_OK;

    VP_TRY(begin_trial(x, c, at_most_bytes, &t));
    play_trial(&t);
    VP_TRY(take_trial(x, &t, c));
out:
    return st;
}

static bool is_within(const vp_choice *c, int64_t at_most_bytes)
{
    return c->sized && c->bytes->high_bytes <= at_most_bytes;
}

/* The most layers, a multiple of each, that take less than so many seconds; 0: none do. */
static vp_status most_below(const vp_choose_search *x, const between *b, int64_t each,
                            double seconds, int64_t *out)
{
    int64_t   low = 0, high = (layers_of(x) - 1) / each + 1;
    vp_choice c;
    vp_status st = VP_OK;

    while (high - low > 1) {
        int64_t at = (low + high) / 2;
        VP_TRY(make_choice(x, b, at * each, &c));
        if (c.seconds < seconds)
            low = at;
        else
            high = at;
    }
    *out = low * each;
out:
    return st;
}

/* Of what is faster than so many seconds the most layers whose step was recorded, in rounds of each; 0: nothing is faster, or was
 * recorded, and then the variant is refused. */
static vp_status probe_most(vp_choose_search *x, const between *b, double seconds,
                            int64_t at_most_bytes, int64_t *each, int64_t *most, vp_choice *c)
{
    vp_choose_variant *v     = &x->variants[b->variant];
    bool               tried = false;
    vp_status          st    = VP_OK;

    for (int i = 0; i < N_ROUNDS; i++) {
        if (v->round && rounds[i] != v->round)
            continue;
        *each = rounds[i];
        VP_TRY(most_below(x, b, *each, seconds, most));
        for (int end = 0; end<ENDS && * most> 0; end++, *most -= *each) {
            tried = true;
            VP_TRY(make_choice(x, b, *most, c));
            VP_TRY(size(x, c, at_most_bytes));
            if (!c->out) {
                v->round = *each;
                goto out;
            }
        }
    }
    *most      = 0;
    v->refused = tried && !v->round;
out:
    return st;
}

/* Whether n layers take too much however the allocator is set. Of fewer layers each of its pools needs more, but what PyTorch reserves
 * for them may be less. */
static vp_status allocates_more(const vp_choose_search *x, const between *b, int64_t n,
                                int64_t at_most_bytes, bool *out)
{
    vp_fit_job   job = x->r->job;
    vp_choice    c;
    vp_fit_bytes ignored;
    vp_err       why = {0};
    vp_status    st  = VP_OK;

    VP_TRY(make_choice(x, b, n, &c));
    job.at_most_bytes = at_most_bytes;
    job.counts_needed = job.terse = true;
    *out                          = vp_fit_bytes_of(&job, &c.settings, &ignored, &why) != VP_OK;
out:
    return st;
}

/* Of up to most layers, a multiple of each, the fewest that do not take too much so; most and each where all do. */
static vp_status fewest_allocated(const vp_choose_search *x, const between *b, int64_t each,
                                  int64_t most, int64_t at_most_bytes, int64_t *out)
{
    int64_t   low = 0, high = most / each + 1;
    vp_status st = VP_OK;

    while (high - low > 1) {
        /* the most first: often all allocate too much */
        int64_t at = high > most / each ? high - 1 : (low + high) / 2;
        bool    is_more;
        VP_TRY(allocates_more(x, b, at * each, at_most_bytes, &is_more));
        if (is_more && at == most / each)
            break;
        if (is_more)
            low = at;
        else
            high = at;
    }
    *out = high * each;
out:
    return st;
}

/* From fewest on and below low, the first number of layers that is within these bytes, if any is; two cores try one each. */
static vp_status fewest_within(vp_choose_search *x, const between *b, int64_t each, int64_t fewest,
                               int64_t low, int64_t at_most_bytes, vp_choice *best, vp_choice *less,
                               bool *is_found)
{
    vp_choice one, fewer = {.out = true};
    trial     two[2];
    vp_status st = VP_OK;

    if (fewest > each)
        VP_TRY(make_choice(x, b, fewest - each, &fewer));
    for (int64_t at = fewest; at < low; at += 2 * each) {
        const bool has_other = at + each < low;
        vp_beside  beside;
        for (int i = 0; i < 1 + has_other; i++) {
            VP_TRY(make_choice(x, b, at + i * each, &one));
            VP_TRY(begin_trial(x, &one, at_most_bytes, &two[i]));
        }
        if (has_other)
            vp_beside_offer(&beside, play_trial, &two[1]);
        play_trial(&two[0]);
        if (has_other)
            vp_beside_finish(&beside);
        for (int i = 0; i < 1 + has_other; i++, fewer = one) {
            VP_TRY(take_trial(x, &two[i], &one));
            if (!is_within(&one, at_most_bytes))
                continue;
            *best     = one;
            *less     = fewer;
            *is_found = true;
            goto out;
        }
    }
out:
    return st;
}

/* The fewest first layers by which b is faster than so many seconds and within these bytes; *less: the next fewer, which need more, or
 * were not recorded. is_found: there are such. */
static vp_status halve_layers(vp_choose_search *x, const between *b, double seconds,
                              int64_t at_most_bytes, bool halves, vp_choice *best, vp_choice *less,
                              bool *is_found)
{
    int64_t   each = 1, low = 0, high = 0, fewest;
    vp_choice c  = {0};
    vp_status st = VP_OK;

    *less     = (vp_choice){.out = true};
    *is_found = false;
    VP_TRY(probe_most(x, b, seconds, at_most_bytes, &each, &high, &c));
    if (high == 0 || (!is_within(&c, at_most_bytes) && c.bytes->is_needed_too_large))
        goto out;
    *is_found = is_within(&c, at_most_bytes);
    *best     = c;
    if (!*is_found) {
        low   = high;
        *less = c;
    }
    while (high - low > each) {
        int64_t at = low + (high - low) / each / 2 * each;
        VP_TRY(make_choice(x, b, at, &c));
        VP_TRY(size(x, &c, at_most_bytes));
        if (is_within(&c, at_most_bytes)) {
            high  = at;
            *best = c;
        } else {
            low   = at;
            *less = c;
        }
    }
    if (low == 0 || halves || (less->bytes && less->bytes->is_needed_too_large))
        goto out;
    VP_TRY(fewest_allocated(x, b, each, low - each, at_most_bytes, &fewest));
    VP_TRY(fewest_within(x, b, each, fewest, low, at_most_bytes, best, less, is_found));
out:
    return st;
}

static int by_none(const void *a, const void *b)
{
    const between *x = a, *y = b;

    if (x->none->seconds != y->none->seconds)
        return x->none->seconds < y->none->seconds ? -1 : 1;
    return x->full->order < y->full->order ? -1 : 1;
}

static vp_status keep(vp_choose_search *x, const vp_choice *c, int64_t *order)
{
    vp_chosen *o  = x->out;
    vp_status  st = VP_OK;

    VP_TRY_ALLOC(x->err,
                 vp_arena_grow(x->arena, (void **)&o->all, o->n, &x->cap_all, sizeof *o->all));
    o->all[o->n]       = *c;
    o->all[o->n].order = *order = o->n;
    o->n++;
out:
    return st;
}

static const vp_choice *of_order(const vp_chosen *o, int64_t order)
{
    for (int64_t i = 0; i < o->n; i++)
        if (o->all[i].order == order)
            return &o->all[i];
    return NULL;
}

/* Whether the allocator could not be set so that c is within these bytes; first:N of its settings allocate more. */
static bool needs_more(const vp_choose_search *x, const vp_choice *c, int64_t at_most_bytes)
{
    const vp_choose_variant *like = &x->variants[x->variants[c->variant].like];

    return like->rest_bytes >= at_most_bytes || c->needed_bytes >= at_most_bytes ||
           (c->beyond_bytes >= at_most_bytes && c->bytes && c->bytes->is_needed_too_large);
}

/* What was kept with the same settings; NULL. */
static vp_choice *kept_as(vp_chosen *o, const vp_choice *c)
{
    for (int64_t i = 0; i < o->n; i++)
        if (o->all[i].micro_batch == c->micro_batch &&
            vp_choose_is_same_but(&o->all[i].settings, &c->settings, NULL, 0))
            return &o->all[i];
    return NULL;
}

/* What may be within these bytes; *list is the arena's. */
static vp_status list_between(vp_choose_search *x, int64_t at_most_bytes, between **list,
                              int64_t *n)
{
    const int64_t n_choices = x->out->n;
    vp_status     st        = VP_OK;

    *n    = 0;
    *list = vp_arena_array(x->arena, n_choices + 1, sizeof **list);
    VP_TRY_ALLOC(x->err, *list);
    for (int64_t i = 0; i < n_choices; i++) {
        between b    = {.full = &x->out->all[i]};
        int64_t none = -1;
        if (recomputes(x, b.full->variant, "full") && !x->variants[b.full->variant].refused)
            none = none_of(x, b.full->variant);
        b.none = none < 0 ? NULL : vp_choose_of(x, none, b.full->micro_batch);
        if (!b.none || needs_more(x, b.full, at_most_bytes))
            continue;
        VP_TRY(variant_of(x, b.full->variant, &b.variant));
        if (b.variant >= 0)
            (*list)[(*n)++] = b;
    }
    qsort(*list, (size_t)*n, sizeof **list, by_none);
out:
    return st;
}
/* A search among the first layers: in so many bytes, for what takes less than so many seconds. */
typedef struct quest {
    int64_t at_most_bytes;
    double  seconds;
    bool halves; /* and nothing else: fewer layers that take less than more of them are not found */
    bool is_found;
    vp_choice best,
        less; /* less: the next fewer layers, which need more; out where there are none */
} quest;

static vp_status search_first(vp_choose_search *x, const between *list, int64_t n, quest *q)
{
    vp_status st = VP_OK;

    for (int64_t i = 0; i < n; i++) {
        vp_choice one, fewer;
        bool      is_found;
        if (list[i].none->seconds >= q->seconds || x->variants[list[i].variant].refused)
            continue;
        VP_TRY(halve_layers(x, &list[i], q->seconds, q->at_most_bytes, q->halves, &one, &fewer,
                            &is_found));
        if (!is_found)
            continue;
        q->is_found = true;
        q->best = one, q->less = fewer;
        q->seconds = one.seconds;
    }
out:
    return st;
}

static void note_refused(vp_choose_search *x, const between *list, int64_t n)
{
    vp_chosen *o = x->out;

    for (int64_t i = 0; i < n; i++)
        if (x->variants[list[i].variant].refused && o->n_refusals < VP_MAX_REFUSALS) {
            o->refusals[o->n_refusals++] = "recompute first:N";
            return;
        }
}

static bool is_asked(const vp_choose_search *x)
{
    const char *pinned = x->r->pinned[VP_SETTING_RECOMPUTE];

    return (!pinned || strcmp(pinned, "any") == 0) && layers_of(x) >= 2;
}

/* Nothing else fits: of these only the least micro-batches, and of them such whose first layers may all the same. */
static int64_t leave_least(const vp_choose_search *x, between *list, int64_t n)
{
    int64_t least = x->r->micro_batch ? x->r->micro_batch : 1, left = 0;

    for (int64_t i = 0; i < n; i++)
        if (list[i].full->beyond_bytes && list[i].full->micro_batch == least)
            list[left++] = list[i];
    return left;
}

vp_status vp_choose_first_layers(vp_choose_search *x)
{
    vp_chosen *o = x->out;
    quest      q = {.at_most_bytes = x->r->budget_bytes,
                    .halves        = !o->best || x->r->wanted == VP_CHOOSE_BEST,
                    .seconds       = o->best ? o->best->seconds : DBL_MAX};
    between   *list;
    int64_t    n = 0, best_order = o->best ? o->best->order : -1, ignored;
    vp_status  st = VP_OK;

    if (!is_asked(x))
        goto out;
    VP_TRY(list_between(x, q.at_most_bytes, &list, &n));
    if (!o->best)
        n = leave_least(x, list, n);
    VP_TRY(search_first(x, list, n, &q));
    note_refused(x, list, n);
    if (!q.is_found)
        goto out;
    if (x->r->wanted == VP_CHOOSE_ALL && !q.less.out) {
        VP_TRY(size(x, &q.less, 0));
        if (q.less.sized)
            VP_TRY(keep(x, &q.less, &ignored));
    }
    VP_TRY(keep(x, &q.best, &best_order));
    vp_choose_sort(o);
    o->best = of_order(o, best_order);
out:
    return st;
}

vp_status vp_choose_richer_first_layers(vp_choose_search *x)
{
    vp_chosen *o = x->out;
    quest      q = {.at_most_bytes = x->r->budget_bytes + VP_GIB,
                    .halves        = true,
                    .seconds       = o->richer ? o->richer->seconds : o->best->seconds};
    between   *list;
    int64_t    n = 0, best_order = o->best->order, richer_order;
    int64_t    n_sized = o->n_sized, n_played = o->n_played;
    vp_choice *kept;
    vp_status  st = VP_OK;

    if (!is_asked(x))
        goto out;
    VP_TRY(list_between(x, q.at_most_bytes, &list, &n));
    VP_TRY(search_first(x, list, n, &q));
    o->n_sized  = n_sized; /* beyond the budget */
    o->n_played = n_played;
    if (!q.is_found)
        goto out;
    kept         = kept_as(o, &q.best);
    richer_order = kept ? kept->order : -1;
    if (!kept)
        VP_TRY(keep(x, &q.best, &richer_order));
    vp_choose_sort(o);
    o->best   = of_order(o, best_order);
    o->richer = of_order(o, richer_order);
out:
    return st;
}

vp_status vp_choose_count_first(vp_choose_search *x, int64_t *n_space, int64_t *n_priced)
{
    vp_status st = VP_OK;

    for (int64_t i = 0; is_asked(x) && i < x->out->n; i++) {
        const vp_choice *full = &x->out->all[i];
        int64_t          v;
        if (!recomputes(x, full->variant, "full") || none_of(x, full->variant) < 0 ||
            x->variants[full->variant].refused)
            continue;
        VP_TRY(variant_of(x, full->variant, &v));
        if (v < 0)
            continue;
        *n_space += (layers_of(x) - 1) / vp_max_i64(x->variants[v].round, 1);
        for (int64_t n = 1; full->is_priced && n < layers_of(x); n++)
            *n_priced += full->is_priced[n];
    }
out:
    return st;
}
