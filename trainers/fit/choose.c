#include "trainers/fit/choose_internal.h"

#include "base/beside.h"
#include "base/checked.h"
#include "base/units.h"
#include "trainers/hf/hf_trl.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- bytes ---- */

/* How many words differ from the first way that was tried, the allocator's left out; *last is one of them. */
static int other_words(const vp_choose_search *x, const vp_choice *c, vp_setting *last)
{
    int n = 0;

    for (int i = 0; i < VP_N_SETTINGS; i++) {
        const char *first = x->variants[0].settings.value[i], *own = c->settings.value[i];
        if (i == VP_SETTING_MICRO_BATCH || i == VP_SETTING_ACCUMULATION || !own ||
            (first && strcmp(first, own) == 0) || i == VP_SETTING_ALLOCATOR)
            continue;
        *last = (vp_setting)i;
        n++;
    }
    return n;
}

/* The one word that differs from the first way; of that one the whole message; "" where several differ, which such a
 * word will say. */
static const char *refusal_text(vp_choose_search *x, const vp_choice *c, const char *message)
{
    vp_setting one = 0;
    int        n   = other_words(x, c, &one);

    return n == 0 ? vp_arena_strdup(x->arena, message)
           : n == 1
               ? vp_arena_printf(x->arena, "%s %s", vp_setting_key(one), c->settings.value[one])
               : "";
}

static vp_status note_refusal(vp_choose_search *x, const vp_choice *c, const char *message)
{
    vp_chosen  *o   = x->out;
    const char *why = refusal_text(x, c, message);
    vp_setting  ignored;
    vp_status   st = VP_OK;

    VP_TRY_ALLOC(x->err, why);
    x->variants[c->variant].refused = true;
    for (int i = 0; i < o->n_refusals; i++)
        if (strcmp(o->refusals[i], why) == 0)
            goto out;
    if (why[0] && o->n_refusals < VP_MAX_REFUSALS)
        o->refusals[o->n_refusals++] = why;
    if (other_words(x, c, &ignored) == 0)
        x->whole = why;
    if (!o->refused_first)
        o->refused_first = vp_arena_strdup(x->arena, message);
out:
    return st;
}

/* Whether a step that has no estimate has one with a sample at a time: then it was too large to be
 * counted, and not a way that was not recorded. */
static bool is_only_too_large(vp_choose_search *x, const vp_choice *c)
{
    vp_settings  one = c->settings;
    vp_fit_bytes ignored;
    vp_err       why = {0};

    vp_fit_job job = x->r->job;

    job.terse                          = true;
    job.at_most_bytes                  = x->r->budget_bytes;
    one.value[VP_SETTING_MICRO_BATCH]  = "1";
    one.value[VP_SETTING_ACCUMULATION] = "1";
    return c->micro_batch > 1 && vp_fit_bytes_of(&job, &one, &ignored, &why) != VP_ERR_INPUT;
}

/* c needs more however the allocator is set: so do those that differ in that alone. */
static void note_needed(vp_choose_search *x, const vp_choice *c, int64_t bytes)
{
    const vp_setting allocator = VP_SETTING_ALLOCATOR;

    for (int64_t i = 0; i < x->out->n; i++) {
        vp_choice *other = &x->out->all[i];
        if (other->micro_batch == c->micro_batch && other->needed_bytes < bytes &&
            vp_choose_is_same_but(&other->settings, &c->settings, &allocator, 1))
            other->needed_bytes = bytes;
    }
}

/* A choice that has to be played, until it is more than the job allows. */
typedef struct play {
    vp_fit_job job;
    vp_choice *choice;
    bool       is_first; /* of this choice */
    vp_err     why;
    vp_status  st;
} play;

/* False: what c needs is known, or that it is more than at_most_bytes; 0 of them: whatever it is. Else *out is to be played. */
static bool has_to_play(vp_choose_search *x, vp_choice *c, int64_t at_most_bytes, play *out)
{
    const vp_choose_variant *first = &x->variants[x->variants[c->variant].like];
    vp_setting               other;

    c->out = c->out || x->variants[c->variant].refused;
    if (c->sized || c->out || (at_most_bytes && c->beyond_bytes >= at_most_bytes))
        return false;
    x->out->n_sized += c->beyond_bytes == 0;
    if (at_most_bytes && vp_max_i64(first->rest_bytes, c->needed_bytes) >= at_most_bytes) {
        c->beyond_bytes = at_most_bytes;
        return false;
    }
    *out                   = (play){.job = x->r->job, .choice = c, .is_first = !c->bytes};
    out->job.at_most_bytes = at_most_bytes;
    out->job.terse = out->job.terse || (x->out->refused_first && other_words(x, c, &other) > 0);
    if (!vp_choose_has_bytes(x, c)) /* here, since who plays it shares no arena */
        out->st = VP_FAIL(&out->why, VP_ERR_NOMEM, "out of host memory");
    return true;
}

static void play_it(void *with)
{
    play *p = with;

    if (p->choice->bytes)
        p->st = vp_fit_bytes_of(&p->job, &p->choice->settings, p->choice->bytes, &p->why);
}

/* What came of it. */
static vp_status take_play(vp_choose_search *x, const play *p)
{
    vp_choice         *c       = p->choice;
    vp_choose_variant *first   = &x->variants[x->variants[c->variant].like];
    int64_t            at_most = p->job.at_most_bytes;
    vp_status          st      = VP_OK;

    x->out->n_played += p->is_first && p->st != VP_ERR_INPUT;
    if (p->st == VP_OK) {
        vp_choose_take_bytes(x, c);
    } else if (p->st == VP_ERR_NO_FIT && at_most) {
        c->beyond_bytes = at_most;
        if (c->bytes->is_too_large_at_rest)
            first->rest_bytes = vp_max_i64(first->rest_bytes, at_most);
        if (c->bytes->is_needed_too_large)
            note_needed(x, c, at_most);
    } else if (p->st == VP_ERR_INPUT) {
        c->out = true;
        x->out->n_sized--;
        if (!is_only_too_large(x, c))
            VP_TRY(note_refusal(x, c, p->why.message));
    } else {
        *x->err = p->why;
        st      = p->st;
    }
out:
    return st;
}

/* Its bytes; where it needs more than at_most_bytes, that it does. 0: whatever it needs. */
static vp_status size_within(vp_choose_search *x, vp_choice *c, int64_t at_most_bytes)
{
    play p;

    if (!has_to_play(x, c, at_most_bytes, &p))
        return VP_OK;
    play_it(&p);
    return take_play(x, &p);
}

/* Both, each within what is known before: a second core may play one of them. NULL: none. */
static vp_status size_both(vp_choose_search *x, vp_choice *c[2], const int64_t at_most_bytes[2])
{
    vp_beside beside;
    play      p[2];
    bool      has_to[2];
    vp_status st = VP_OK;

    for (int i = 0; i < 2; i++)
        has_to[i] = c[i] && has_to_play(x, c[i], at_most_bytes[i], &p[i]);
    if (has_to[1])
        vp_beside_offer(&beside, play_it, &p[1]);
    if (has_to[0])
        play_it(&p[0]);
    if (has_to[1])
        vp_beside_finish(&beside);
    for (int i = 0; i < 2; i++)
        if (has_to[i])
            VP_TRY(take_play(x, &p[i]));
out:
    return st;
}

static vp_status size_choice(vp_choose_search *x, vp_choice *c)
{
    return size_within(x, c, 0);
}

static vp_status probe_choice(vp_choose_search *x, vp_choice *c)
{
    return size_within(x, c, x->r->budget_bytes);
}

/* c is too large: the least micro-batch of the same words that is. */
static vp_status halve(vp_choose_search *x, const vp_choice *c)
{
    int64_t   each = x->r->global_batch / x->r->world, list[VP_MAX_DIVISORS] = {0};
    int       n = 0, low = -1, high;
    vp_status st = VP_OK;

    for (int64_t m = 1; m <= c->micro_batch; m++)
        if (each % m == 0 && vp_choose_of(x, c->variant, m)) {
            assert(n < VP_MAX_DIVISORS); /* no number up to a million has more than 240 */
            list[n++] = m;
        }
    assert(n > 0); /* c is one of them */
    high = n - 1;
    for (int at = 0; high - low > 1; at = (low + high) / 2) { /* the least first: often none fits */
        vp_choice *one = vp_choose_of(x, c->variant, list[at]);
        VP_TRY(probe_choice(x, one));
        if (vp_choose_is_too_large(one))
            high = at;
        else
            low = at;
    }
    x->variants[c->variant].too_large_from = list[high];
out:
    return st;
}

/* One micro-step keeps no gradients while it goes forward: it may need less than smaller micro-batches. */
static bool is_one_micro_step(const vp_choose_search *x, const vp_choice *c)
{
    return c->micro_batch == x->r->global_batch / x->r->world;
}

/* The first variant that is v but for what is recomputed, how it is allocated and when gradients are reduced, of which there is one way
 * in one micro-step, and recomputes all; v where there is none. */
static int64_t leanest_of(const vp_choose_search *x, int64_t v)
{
    static const vp_setting others[] = {VP_SETTING_RECOMPUTE, VP_SETTING_ALLOCATOR,
                                        VP_SETTING_GRADIENT_SYNC};

    for (int64_t i = 0; i < x->n_variants; i++)
        if (strcmp(x->variants[i].settings.value[VP_SETTING_RECOMPUTE], "full") == 0 &&
            vp_choose_is_same_but(&x->variants[i].settings, &x->variants[v].settings, others, 3))
            return i;
    return v;
}

/* Whether one micro-step of the least micro-batch that recomputes all takes too much however the allocator is set: then every choice of v
 * is taken to. Asked where one answer is wanted and no reasons; it is a third of a play, and most ways end with it. */
static bool is_hopeless(vp_choose_search *x, int64_t v)
{
    vp_choose_variant *leanest = &x->variants[leanest_of(x, v)];
    vp_fit_job         job     = x->r->job;
    vp_settings        one     = leanest->settings;
    vp_fit_bytes       bytes;
    vp_err             ignored = {0};

    if (!leanest->is_tried) {
        job.at_most_bytes                = x->r->budget_bytes;
        job.counts_needed                = true; /* for each of the allocator's settings */
        job.terse                        = true;
        one.value[VP_SETTING_EVAL_BATCH] = "none";
        if (x->r->micro_batch)
            one.value[VP_SETTING_MICRO_BATCH] = vp_choose_count_text(x->arena, x->r->micro_batch);
        one.value[VP_SETTING_ACCUMULATION] = "1";
        leanest->is_tried                  = true;
        leanest->is_hopeless = vp_fit_bytes_of(&job, &one, &bytes, &ignored) == VP_ERR_NO_FIT;
    }
    return leanest->is_hopeless;
}

/* What is the leanest of all itself is tried without asking. */
static bool may_be_hopeless(const vp_choose_search *x)
{
    return (x->r->wanted == VP_CHOOSE_BEST && !x->r->known) ||
           (x->r->wanted == VP_CHOOSE_ANY && x->out->n_sized);
}

static vp_status try_choice(vp_choose_search *x, vp_choice *c)
{
    vp_choose_variant *v  = &x->variants[c->variant];
    vp_status          st = VP_OK;

    if (v->too_large_from && c->micro_batch >= v->too_large_from && !is_one_micro_step(x, c))
        goto out;
    if (may_be_hopeless(x) && is_hopeless(x, c->variant))
        goto out;
    if (!vp_choose_can_be_told(x, v))
        goto out;
    VP_TRY(probe_choice(x, c));
    if (vp_choose_is_too_large(c) && (x->r->wanted != VP_CHOOSE_ALL || x->something_fits))
        v->too_large_from = c->micro_batch; /* smaller ones come in their turn */
    else if (vp_choose_is_too_large(c))
        VP_TRY(halve(x, c));
out:
    return st;
}

/* What would fit with a GiB more: of each way the micro-batches from the least that is too large on. */
static vp_status find_richer(vp_choose_search *x)
{
    vp_chosen    *o      = x->out;
    const int64_t budget = x->r->budget_bytes + VP_GIB;
    vp_status     st     = VP_OK;

    for (int64_t v = 0; v < x->n_variants; v++) {
        int64_t m = x->variants[v].too_large_from;
        for (vp_choice *c; m && (c = vp_choose_of(x, v, m)) != NULL;) {
            VP_TRY(size_within(x, c, budget));
            if (!c->sized || c->bytes->high_bytes > budget)
                break;
            if ((!o->best || c->seconds < o->best->seconds) &&
                (!o->richer || c->seconds < o->richer->seconds))
                o->richer = c;
            do
                m++;
            while (m <= x->r->global_batch && !vp_choose_of(x, v, m));
        }
    }
out:
    return st;
}

static void note_refused(vp_choose_search *x)
{
    x->out->n_refused = 0;
    for (int64_t i = 0; i < x->out->n; i++)
        x->out->n_refused += x->variants[x->out->all[i].variant].refused;
}

static vp_choice *least_sized(vp_chosen *o)
{
    vp_choice *least = NULL;

    for (int64_t i = 0; i < o->n; i++)
        if (o->all[i].sized && (!least || o->all[i].bytes->high_bytes < least->bytes->high_bytes))
            least = &o->all[i];
    return least;
}

/* Whether they differ in the allocator alone, which costs no time. */
static bool tells_nothing(const vp_choice *a, const vp_choice *b)
{
    return a->seconds == b->seconds;
}

/* What c has to need less than to be listed: of those that take as long one is, and no more than LISTED in all; 0: anything. */
static int64_t listed_at_most(const vp_chosen *o, const vp_choice *c)
{
    enum { LISTED = 1 + VP_MAX_ALTERNATIVES };
    const vp_choice *least[LISTED];
    int              n = 0;

    for (int64_t i = 0; i < o->n; i++) {
        const vp_choice *one = &o->all[i];
        int              at  = 0;
        while (one->sized && at < n && least[at]->seconds != one->seconds)
            at++;
        if (!one->sized ||
            (at == LISTED && one->bytes->high_bytes >= least[n - 1]->bytes->high_bytes) ||
            (at < n && one->bytes->high_bytes >= least[at]->bytes->high_bytes))
            continue;
        n += at == n && n < LISTED;
        at -= at == LISTED;
        for (; at > 0 && least[at - 1]->bytes->high_bytes > one->bytes->high_bytes; at--)
            least[at] = least[at - 1];
        least[at] = one;
    }
    for (int i = 0; i < n; i++)
        if (tells_nothing(least[i], c))
            return least[i]->bytes->high_bytes;
    return n < LISTED ? 0 : least[LISTED - 1]->bytes->high_bytes;
}

/* What a process has when a variant's model is loaded; the most where that is not known. */
static int64_t loaded_bytes(const vp_choose_search *x, int64_t v)
{
    vp_fit_job   job = x->r->job;
    vp_fit_bytes bytes;
    vp_err       ignored = {0};

    job.loads_only = job.terse = true;
    job.at_most_bytes          = 0;
    return vp_fit_bytes_of(&job, &x->variants[v].settings, &bytes, &ignored) == VP_OK
               ? bytes.allocated_bytes
               : INT64_MAX;
}

/* The class of variants that loads least of those that are left; negative: none is. */
static int64_t take_lightest(const vp_choose_search *x, int64_t *loaded)
{
    int64_t first = -1;

    for (int64_t v = 0; v < x->n_variants; v++)
        if (loaded[v] >= 0 && (first < 0 || loaded[v] < loaded[first]))
            first = v;
    if (first >= 0)
        loaded[first] = -1;
    return first;
}

/* Of these ways the least micro-batch, or one micro-step; the slowest first, which mostly needs less, and of those that take
 * as long all but the first behind all others: then it is known what they have to undercut. Returns how many. */
static int64_t list_to_size(const vp_choose_search *x, int64_t like, bool of_one_step,
                            vp_choice **list)
{
    const vp_chosen *o     = x->out;
    int64_t          least = x->r->micro_batch ? x->r->micro_batch : 1, n = 0;

    for (int is_equal = 0; is_equal < 2; is_equal++) {
        double last = -1;
        for (int64_t i = o->n - 1; i >= 0; i--) {
            vp_choice *c = &o->all[i];
            if (x->variants[c->variant].like != like ||
                !(of_one_step ? is_one_micro_step(x, c) : c->micro_batch == least))
                continue;
            if ((c->seconds == last) == is_equal)
                list[n++] = c;
            last = c->seconds;
        }
    }
    return n;
}

/* Nothing fits: of each way the least micro-batch, then one micro-step. What needs more than what is listed besides is not
 * worked out to its end; so what loads least comes first. */
static vp_status find_least(vp_choose_search *x)
{
    vp_chosen  *o      = x->out;
    int64_t    *loaded = vp_arena_array(x->arena, x->n_variants, sizeof *loaded), first;
    vp_choice **list   = vp_arena_array(x->arena, o->n + 1, sizeof *list);
    vp_status   st     = VP_OK;

    VP_TRY_ALLOC(x->err, loaded && list);
    for (int of_one_step = 0; of_one_step < 2; of_one_step++) {
        for (int64_t v = 0; v < x->n_variants; v++)
            loaded[v] = x->variants[v].like == v ? loaded_bytes(x, v) : -1;
        while ((first = take_lightest(x, loaded)) >= 0) {
            int64_t n = list_to_size(x, first, of_one_step, list);
            for (int64_t i = 0; i < n; i += 2) {
                vp_choice    *two[]     = {list[i], i + 1 < n ? list[i + 1] : NULL};
                const int64_t at_most[] = {listed_at_most(o, two[0]),
                                           two[1] ? listed_at_most(o, two[1]) : 0};
                VP_TRY(size_both(x, two, at_most));
            }
        }
    }
    o->least = least_sized(o);
    if (!o->least)
        VP_TRY(VP_FAIL(x->err, VP_ERR_INPUT, "%s",
                       o->refused_first ? o->refused_first
                                        : "every micro-batch is too large to be counted"));
out:
    return st;
}

static bool was_any_recorded(const vp_chosen *o)
{
    for (int64_t i = 0; i < o->n; i++)
        if (vp_choose_is_too_large(&o->all[i]))
            return true;
    return false;
}

/* Whether the slowest that was recorded fits, which mostly needs least: then the fastest that does is come to before micro-batches
 * that nobody would choose are played. Whatever comes of it, it is looked at again in its turn. */
static bool does_slowest_fit(const vp_choose_search *x)
{
    enum { TRIES = 16 };
    vp_fit_job job = x->r->job;

    job.terse         = true;
    job.at_most_bytes = x->r->budget_bytes;
    for (int64_t i = x->out->n - 1; i >= 0 && i >= x->out->n - TRIES; i--) {
        vp_fit_bytes bytes;
        vp_err       why = {0};
        vp_status    st  = vp_fit_bytes_of(&job, &x->out->all[i].settings, &bytes, &why);
        if (st != VP_ERR_INPUT)
            return st == VP_OK && bytes.high_bytes <= x->r->budget_bytes;
    }
    return false;
}

static bool asks_first(const vp_choose_request *r)
{
    return r->wanted != VP_CHOOSE_ANY && (r->job.language->first_by_files || r->first_by_code);
}

static vp_status find_best(vp_choose_search *x)
{
    const vp_choose_request *r  = x->r;
    vp_chosen               *o  = x->out;
    vp_status                st = VP_OK;

    x->something_fits = x->r->wanted == VP_CHOOSE_ALL && does_slowest_fit(x);
    for (int64_t i = 0; i < o->n && !o->best; i++) {
        vp_choice *c = &o->all[x->r->wanted == VP_CHOOSE_ANY ? o->n - 1 - i : i]; /* the leanest */
        VP_TRY(try_choice(x, c));
        if (c->sized && c->fits)
            o->best = c;
    }
    if (asks_first(r) && (o->best || r->wanted == VP_CHOOSE_ALL))
        VP_TRY(vp_choose_first_layers(x));
    if (x->r->wanted != VP_CHOOSE_ALL)
        goto out;
    VP_TRY(find_richer(x));
    if (o->best && asks_first(r))
        VP_TRY(vp_choose_richer_first_layers(x));
    if (!o->best && x->r->nothing_fits && was_any_recorded(o))
        VP_TRY(x->r->nothing_fits(x->r, x->err));
    if (!o->best)
        VP_TRY(find_least(x));
    if (!o->best && x->r->least_is_known)
        VP_TRY(x->r->least_is_known(x->r, o->least->bytes->high_bytes, x->err));
    note_refused(x);
out:
    return st;
}

/* Whether any way that the trainer can be told was recorded: what was not ends before it is played, and what was at its first
 * allocation. */
static vp_status find_known(vp_choose_search *x)
{
    vp_fit_job job   = x->r->job;
    vp_err     first = {0}, why;

    job.terse         = true;
    job.at_most_bytes = 1;
    for (int64_t i = 0; i < x->out->n; i++) {
        vp_choose_variant *v = &x->variants[x->out->all[i].variant];
        vp_fit_bytes       ignored;
        if (v->refused || !vp_choose_can_be_told(x, v))
            continue;
        why = (vp_err){0};
        if (vp_fit_bytes_of(&job, &x->out->all[i].settings, &ignored, &why) != VP_ERR_INPUT)
            return VP_OK;
        v->refused = true; /* its other micro-batches too */
        if (!first.message[0])
            first = why;
    }
    return VP_FAIL(x->err, VP_ERR_INPUT, "%s", first.message);
}

static bool is_alternative(const vp_chosen *o, const vp_choice *c)
{
    if (!c->sized || tells_nothing(c, o->best ? o->best : o->least))
        return false;
    for (int i = 0; i < o->n_alternatives; i++)
        if (tells_nothing(c, o->alternatives[i]))
            return false;
    return true;
}

/* Where nothing fits: what needs least. */
static void list_leanest(vp_chosen *o)
{
    while (o->n_alternatives < VP_MAX_ALTERNATIVES) {
        const vp_choice *least = NULL;
        for (int64_t i = 0; i < o->n; i++)
            if (is_alternative(o, &o->all[i]) &&
                (!least || o->all[i].bytes->high_bytes < least->bytes->high_bytes))
                least = &o->all[i];
        if (!least)
            return;
        o->alternatives[o->n_alternatives++] = least;
    }
}

/* The two next faster ones, which do not fit, and then the next slower ones. */
static vp_status list_alternatives(vp_choose_search *x)
{
    vp_chosen *o    = x->out;
    int64_t    from = o->best ? o->best - o->all : 0;
    vp_status  st   = VP_OK;

    if (!o->best) {
        list_leanest(o);
        return VP_OK;
    }
    for (int64_t i = from - 1; i >= 0 && o->n_alternatives < 2; i--) {
        while (i > 0 && o->all[i - 1].seconds == o->all[i].seconds)
            i--; /* the first of equals */
        VP_TRY(size_choice(x, &o->all[i]));
        if (is_alternative(o, &o->all[i]))
            o->alternatives[o->n_alternatives++] = &o->all[i];
    }
    for (int64_t i = from; i < o->n && o->n_alternatives < VP_MAX_ALTERNATIVES; i++) {
        if (tells_nothing(&o->all[i], o->best))
            continue;
        VP_TRY(size_choice(x, &o->all[i]));
        if (is_alternative(o, &o->all[i]))
            o->alternatives[o->n_alternatives++] = &o->all[i];
    }
out:
    return st;
}

/* What does not fit may do so all the same: of what is listed. */
static vp_status mark_tight(vp_choose_search *x)
{
    vp_chosen *o  = x->out;
    vp_status  st = VP_OK;

    for (int i = -1; i < o->n_alternatives; i++) {
        const vp_choice *listed = i < 0 ? o->least : o->alternatives[i];
        if (!listed || listed->fits)
            continue;
        vp_choice *c = &o->all[listed - o->all];
        VP_TRY(vp_fit_tightly(&x->r->job, &c->settings, c->bytes, x->r->budget_bytes, &c->is_tight,
                              &c->n_returns, x->err));
    }
out:
    return st;
}

/* Where another way than the first was recorded, the first is refused by the one word in which that differs, as others are, and not by
 * the whole message, which would be why there is none. */
static vp_status name_first(vp_choose_search *x)
{
    vp_chosen       *o    = x->out;
    const vp_choice *said = o->best ? o->best : o->least;
    vp_setting       one  = 0;
    vp_status        st   = VP_OK;

    for (int i = 0; i < o->n_refusals; i++)
        if (o->refusals[i] == x->whole && other_words(x, said, &one) == 1) {
            o->refusals[i] = vp_arena_printf(x->arena, "%s %s", vp_setting_key(one),
                                             x->variants[0].settings.value[one]);
            VP_TRY_ALLOC(x->err, o->refusals[i]);
        }
out:
    return st;
}

/* What was compared. */
static vp_status count_space(vp_choose_search *x)
{
    vp_chosen *o     = x->out;
    int64_t    first = 0, priced = 0;
    vp_status  st = VP_OK;

    if (asks_first(x->r))
        VP_TRY(vp_choose_count_first(x, &first, &priced));
    o->n_space  = x->n_listed - o->n_refused + first;
    o->n_priced = x->n_listed - o->n_refused + priced;
out:
    return st;
}

/* What the same search found before; what was not recorded is asked again, and says why. */
static void take_known(vp_choose_search *x)
{
    for (int64_t i = 0; i < x->out->n; i++)
        for (int64_t k = 0; k < x->r->known->n; k++) {
            vp_choice       *c   = &x->out->all[i];
            const vp_choice *had = &x->r->known->all[k];
            if (had->out || had->micro_batch != c->micro_batch ||
                !vp_choose_is_same_but(&had->settings, &c->settings, NULL, 0))
                continue;
            c->bytes        = had->bytes;
            c->beyond_bytes = had->beyond_bytes;
            c->needed_bytes = had->needed_bytes;
            if (had->sized)
                vp_choose_take_bytes(x, c);
            break;
        }
}

vp_status vp_choose(vp_arena *arena, const vp_choose_request *request, vp_chosen *out, vp_err *err)
{
    vp_choose_search x  = {.arena = arena, .r = request, .out = out, .err = err};
    vp_status        st = VP_OK;

    assert(request->world >= 1 && request->global_batch % request->world == 0);
    *out = (vp_chosen){0};
    VP_TRY(vp_choose_list_variants(&x));
    VP_TRY(vp_choose_list(&x));
    if (request->known)
        take_known(&x);
    if (request->wanted == VP_CHOOSE_KNOWN) {
        VP_TRY(find_known(&x));
        goto out;
    }
    VP_TRY(find_best(&x));
    if (request->wanted != VP_CHOOSE_ALL)
        goto out;
    VP_TRY(list_alternatives(&x));
    VP_TRY(mark_tight(&x));
    VP_TRY(count_space(&x));
    VP_TRY(name_first(&x));
out:
    if (st != VP_OK)
        vp_chosen_release(out);
    return st;
}

void vp_chosen_release(vp_chosen *chosen)
{
    json_decref(chosen->versions);
    chosen->versions = NULL;
}

vp_status vp_choose_with_liger(vp_arena *arena, const vp_choose_request *request, vp_chosen *out,
                               vp_err *err)
{
    vp_choose_request r    = *request;
    const char       *loss = vp_language_liger(r.job.language, r.job.model->family);
    vp_err            why  = {0};

    *out = (vp_chosen){0};
    if (!loss)
        return VP_OK;
    r.pinned[VP_SETTING_LOSS] = loss;
    r.wanted                  = VP_CHOOSE_BEST;
    r.job.terse               = true;
    if (vp_choose(arena, &r, out, &why) != VP_OK)
        *out = (vp_chosen){0};
    return why.code == VP_ERR_NOMEM ? VP_FAIL(err, VP_ERR_NOMEM, "out of host memory") : VP_OK;
}

vp_status vp_choose_with_first(vp_arena *arena, const vp_choose_request *request,
                               const vp_chosen *known, vp_chosen *out, vp_err *err)
{
    vp_choose_request r     = *request;
    vp_err            why   = {0};
    const char       *first = NULL;

    *out = (vp_chosen){0};
    if (r.job.language->first_by_files)
        return VP_OK;
    r.wanted        = VP_CHOOSE_BEST;
    r.first_by_code = true;
    r.known         = known;
    r.job.terse     = true;
    if (vp_choose(arena, &r, out, &why) != VP_OK)
        *out = (vp_chosen){0};
    if (out->best &&
        !vp_word_is(out->best->settings.value[VP_SETTING_RECOMPUTE], "first:N", &first))
        out->best = NULL;
    return why.code == VP_ERR_NOMEM ? VP_FAIL(err, VP_ERR_NOMEM, "out of host memory") : VP_OK;
}

/* Where the card itself rules the default out for this trainer: the error says that nobody gave it. */
static vp_status say_default(const vp_choose_request *request, const char *precision, vp_err *err)
{
    const char        *tuning = request->pinned[VP_SETTING_TUNING];
    vp_hf_trl_question q      = {.precision    = precision,
                                 .capability   = request->job.device->compute_capability,
                                 .is_quantised = tuning && strcmp(tuning, "qlora") == 0,
                                 .is_default   = true};
    vp_err             why    = {0};

    if (request->job.language->own && vp_hf_check_trl(&q, &why) != VP_OK)
        *err = why;
    return VP_ERR_INPUT;
}

/* Whether weights are held alike: "bf16-mixed" and "fp16-mixed" in fp32, "bf16-amp" and "fp16-amp" in 16 bits. */
static bool holds_alike(const char *a, const char *b)
{
    const char *ends[] = {strchr(a, '-'), strchr(b, '-')};

    return ends[0] && ends[1] && strcmp(ends[0], ends[1]) == 0;
}

/* Nothing fits in the default precision, and not all ways to share the model were recorded in it: another one
 * of the list that holds weights alike, in which something does, in place of *out. */
static vp_status choose_one_that_fits(vp_arena *arena, vp_choose_request *request,
                                      const char *const *list, int n, vp_chosen *out,
                                      const char **why_other, vp_err *err)
{
    const char *first = request->pinned[VP_SETTING_PRECISION];

    for (int i = 0; i < n; i++) {
        vp_choose_request r      = *request;
        vp_chosen         chosen = {0};
        vp_err            why    = {0};
        if (strcmp(list[i], first) == 0 || (!r.job.device->bf16 && list[i][0] == 'b') ||
            !holds_alike(list[i], first))
            continue;
        r.pinned[VP_SETTING_PRECISION] = list[i];
        r.wanted                       = VP_CHOOSE_BEST;
        r.nothing_fits                 = NULL;
        r.least_is_known               = NULL;
        bool fits = vp_choose(arena, &r, &chosen, &why) == VP_OK && chosen.best;
        vp_chosen_release(&chosen);
        if (!fits)
            continue;
        vp_chosen_release(out);
        request->pinned[VP_SETTING_PRECISION] = list[i];
        *why_other                            = vp_arena_printf(arena,
                                                                "--precision not given: %s; in %s nothing fits, of what was "
                                                                                           "recorded with it",
                                                                list[i], first);
        return *why_other ? vp_choose(arena, request, out, err)
                          : VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    }
    return VP_OK;
}

vp_status vp_choose_any_precision(vp_arena *arena, vp_choose_request *request, vp_chosen *out,
                                  const char **why_other, vp_err *err)
{
    static const char *const next[] = {"bf16-amp", "bf16-mixed", "fp16-amp", "fp16-mixed", "fp32"};
    enum { N_NEXT = sizeof next / sizeof *next };
    const char **word      = &request->pinned[VP_SETTING_PRECISION];
    const char  *precision = vp_setting_key(VP_SETTING_PRECISION), *told = NULL;
    const char  *first = *word;
    vp_err       why   = {0};
    vp_status    st    = vp_choose(arena, request, out, err);

    *why_other = NULL;
    if (st == VP_OK && !out->best && out->n_refused > 0)
        return choose_one_that_fits(arena, request, next, N_NEXT, out, why_other, err);
    for (int i = 0; i < N_NEXT && st == VP_ERR_INPUT; i++) {
        if (strcmp(next[i], first) == 0 || (!request->job.device->bf16 && next[i][0] == 'b'))
            continue;
        *word = next[i];
        why   = (vp_err){0};
        if (vp_choose(arena, request, out, &why) != VP_OK) {
            if (!told && strcmp(why.field, precision) != 0)
                told = vp_arena_strdup(arena, why.message);
            continue;
        }
        *why_other = vp_arena_printf(arena, "--precision not given: %s, for %s: %s", next[i], first,
                                     err->message);
        *err       = (vp_err){0};
        return *why_other ? VP_OK : VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    }
    if (told && strcmp(err->field, precision) == 0) {
        *err = (vp_err){0};
        return VP_FAIL(err, st, "%s", told);
    }
    return st == VP_ERR_INPUT ? say_default(request, first, err) : st;
}
