/* trainers/fit/choose_first.c: between recomputing nothing and everything: the first N layers alone, by halving, and from there down as
 * long as what is allocated would fit. */
#include "trainers/fit/choose_internal.h"

#include "base/units.h"

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
static vp_status variant_of(vp_choose_search *x, int64_t full, int64_t *of_full, int64_t *out)
{
    vp_choose_variant v  = x->variants[full];
    vp_status         st = VP_OK;

    if (of_full[full] == 0) {
        v.settings.value[VP_SETTING_RECOMPUTE] = "first:1";
        v.is_asked = v.is_told = v.refused = v.is_tried = v.is_hopeless = false;
        v.too_large_from                                                = 0;
        VP_TRY_ALLOC(x->err, vp_arena_grow(x->arena, (void **)&x->variants, x->n_variants,
                                           &x->cap_variants, sizeof *x->variants));
        x->variants[x->n_variants] = v;
        of_full[full]              = x->n_variants++;
    }
    *out = of_full[full];
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
out:
    return st;
}

/* What c takes; or that it needs more than at_most_bytes (0: whatever it needs), or was not recorded, which more layers may be. */
static vp_status size(vp_choose_search *x, vp_choice *c, int64_t at_most_bytes)
{
    vp_fit_job job = x->r->job;
    vp_err     why = {0};

    job.at_most_bytes = at_most_bytes;
    job.terse         = true;
    vp_status st      = vp_fit_bytes_of(&job, &c->settings, &c->bytes, &why);
    x->out->n_sized += st == VP_OK || st == VP_ERR_NO_FIT;
    if (st == VP_OK)
        vp_choose_take_bytes(x, c);
    else if (st == VP_ERR_NO_FIT && at_most_bytes)
        c->beyond_bytes = at_most_bytes;
    else if (st == VP_ERR_INPUT)
        c->out = true;
    else
        *x->err = why;
    return c->sized || c->beyond_bytes || c->out ? VP_OK : st;
}

static bool is_within(const vp_choice *c, int64_t at_most_bytes)
{
    return c->sized && c->bytes.high_bytes <= at_most_bytes;
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

/* Whether c allocates too much however the allocator is set. Fewer layers allocate more, but what PyTorch reserves for them may be less. */
static bool allocates_more(const vp_choose_search *x, const vp_choice *c, int64_t at_most_bytes)
{
    vp_fit_job   job = x->r->job;
    vp_fit_bytes ignored;
    vp_err       why = {0};

    job.at_most_bytes = at_most_bytes;
    job.counts_needed = job.terse = true;
    return vp_fit_bytes_of(&job, &c->settings, &ignored, &why) != VP_OK;
}

/* The fewest first layers by which b is faster than so many seconds and within these bytes; *less: the next fewer, which need more, or
 * were not recorded. is_found: there are such. */
static vp_status halve_layers(vp_choose_search *x, const between *b, double seconds,
                              int64_t at_most_bytes, vp_choice *best, vp_choice *less,
                              bool *is_found)
{
    int64_t   each = 1, low = 0, high = 0;
    vp_choice c  = {0};
    vp_status st = VP_OK;

    *less = (vp_choice){.out = true};
    VP_TRY(probe_most(x, b, seconds, at_most_bytes, &each, &high, &c));
    *is_found = high > 0 && is_within(&c, at_most_bytes);
    *best     = c;
    while (*is_found && high - low > each) {
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
    for (c = *less; *is_found && low > each && !c.out && !allocates_more(x, &c, at_most_bytes);) {
        low -= each;
        VP_TRY(make_choice(x, b, low, &c));
        VP_TRY(size(x, &c, at_most_bytes));
        if (is_within(&c, at_most_bytes))
            *best = c;
    }
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
    o->n_between--;
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

static vp_status list_between(vp_choose_search *x, between *list, int64_t *of_full, int64_t *n)
{
    const int64_t n_choices = x->out->n;
    vp_status     st        = VP_OK;

    *n = 0;
    for (int64_t i = 0; i < n_choices; i++) {
        between b    = {.full = &x->out->all[i]};
        int64_t none = -1;
        if (recomputes(x, b.full->variant, "full") && !x->variants[b.full->variant].refused)
            none = none_of(x, b.full->variant);
        b.none = none < 0 ? NULL : vp_choose_of(x, none, b.full->micro_batch);
        if (!b.none || vp_choose_is_too_large(b.full))
            continue;
        VP_TRY(variant_of(x, b.full->variant, of_full, &b.variant));
        if (b.variant >= 0)
            list[(*n)++] = b;
    }
    qsort(list, (size_t)*n, sizeof *list, by_none);
out:
    return st;
}

/* Beside the best: what the next fewer layers need, and what one more GiB would buy. */
static vp_status keep_beside(vp_choose_search *x, const between *b, vp_choice *less, double seconds,
                             int64_t *richer_order)
{
    vp_choice richer, ignored_less;
    int64_t   ignored;
    bool      is_found = false;
    vp_status st       = VP_OK;

    if (less->out)
        return VP_OK;
    VP_TRY(size(x, less, 0));
    VP_TRY(halve_layers(x, b, seconds, x->r->budget_bytes + VP_GIB, &richer, &ignored_less,
                        &is_found));
    if (is_found)
        VP_TRY(keep(x, &richer, richer_order));
    if (less->sized && !(is_found && richer.seconds == less->seconds))
        VP_TRY(keep(x, less, &ignored));
out:
    return st;
}

static void note_refused(vp_choose_search *x, const between *list, int64_t n)
{
    vp_chosen *o = x->out;

    for (int64_t i = 0; i < n; i++)
        if (!x->variants[list[i].variant].refused)
            o->n_between += layers_of(x) - 1;
    for (int64_t i = 0; i < n; i++)
        if (x->variants[list[i].variant].refused && o->n_refusals < VP_MAX_REFUSALS) {
            o->refusals[o->n_refusals++] = "recompute first:N";
            return;
        }
}

vp_status vp_choose_first_layers(vp_choose_search *x)
{
    vp_chosen  *o      = x->out;
    const char *pinned = x->r->pinned[VP_SETTING_RECOMPUTE];
    between    *list = vp_arena_array(x->arena, o->n + 1, sizeof *list), *of_best = NULL;
    int64_t    *of_full = vp_arena_array(x->arena, x->n_variants + 1, sizeof *of_full);
    int64_t     n = 0, best_order = o->best->order, richer_order = -1;
    double      seconds = o->best->seconds;
    vp_choice   best = {0}, less = {.out = true};
    vp_status   st = VP_OK;

    VP_TRY_ALLOC(x->err, list && of_full);
    if ((pinned && strcmp(pinned, "any") != 0) || layers_of(x) < 2)
        goto out;
    memset(of_full, 0, (size_t)(x->n_variants + 1) * sizeof *of_full);
    VP_TRY(list_between(x, list, of_full, &n));
    for (int64_t i = 0; i < n; i++) {
        vp_choice one, fewer;
        bool      is_found;
        if (list[i].none->seconds >= seconds || x->variants[list[i].variant].refused)
            continue;
        VP_TRY(halve_layers(x, &list[i], seconds, x->r->budget_bytes, &one, &fewer, &is_found));
        if (!is_found)
            continue;
        best = one, less = fewer, of_best = &list[i];
        seconds = one.seconds;
    }
    note_refused(x, list, n);
    if (of_best && x->r->wanted == VP_CHOOSE_ALL)
        VP_TRY(keep_beside(x, of_best, &less, seconds, &richer_order));
    if (of_best)
        VP_TRY(keep(x, &best, &best_order));
    vp_choose_sort(o);
    o->best   = of_order(o, best_order);
    o->richer = richer_order < 0 ? NULL : of_order(o, richer_order);
out:
    return st;
}
