#include "trainers/fit/choose.h"

#include "base/units.h"
#include "trainers/files/emit.h"
#include "trainers/torch/world.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One way to say everything but the micro-batch. */
typedef struct variant {
    vp_settings settings;
    bool        is_asked, is_told; /* whether the target's files have words for it */
    bool        refused;           /* its step was not recorded */
    int64_t     too_large_from;    /* micro-batch; 0: none is known to be */
    int64_t     like;              /* the first variant that has as much at rest, itself for most */
    int64_t     rest_bytes; /* of the first: what is at rest is more than that; 0: not known */
    bool        is_tried, is_hopeless; /* as the leanest of those that recompute otherwise */
} variant;

typedef struct search {
    vp_arena                *arena;
    const vp_choose_request *r;
    vp_chosen               *out;
    variant                 *variants;
    int64_t                  n_variants, cap_variants, cap_all;
    int64_t                  n_trained; /* parameters */
    vp_err                   first_untold;
    vp_err                  *err;
} search;

/* ---- the space ---- */

/* Word i of an axis that is to be tried; false past the end. */
static bool word_at(search *x, const vp_axis *axis, int i, char *buf, size_t size)
{
    const char *pinned = x->r->pinned[axis->setting], *at = axis->words;

    if (pinned && strcmp(pinned, "any") != 0) {
        snprintf(buf, size, "%s", pinned);
        return i == 0;
    }
    if (i > 0 && axis->kind == VP_AXIS_ALIKE && !pinned)
        return false;
    while (i-- > 0) {
        at = strchr(at, '|');
        if (!at)
            return false;
        at++;
    }
    snprintf(buf, size, "%.*s", (int)strcspn(at, "|"), at);
    return true;
}

static const char *count_text(vp_arena *arena, int64_t n)
{
    return vp_arena_printf(arena, "%lld", (long long)n);
}

/* Whether the target's files have words for it. */
static bool can_be_told(search *x, variant *v)
{
    vp_emitted emitted;
    vp_err     why = {0};

    if (v->is_asked)
        return v->is_told;
    v->is_asked = true;
    v->is_told  = vp_emit(x->arena, x->r->target, &v->settings, NULL, &emitted, &why) == VP_OK;
    if (v->is_told) {
        vp_emitted_release(&emitted);
    } else {
        x->out->n_untold++;
        if (!x->first_untold.message[0])
            x->first_untold = why;
    }
    return v->is_told;
}

/* Whether a and b say the same but for these. */
static bool is_same_but(const vp_settings *a, const vp_settings *b, const vp_setting *others,
                        size_t n_others)
{
    for (int i = 0; i < VP_N_SETTINGS; i++) {
        bool counts = true;
        for (size_t k = 0; k < n_others; k++)
            counts = counts && i != (int)others[k];
        if (counts && a->value[i] != b->value[i] &&
            !(a->value[i] && b->value[i] && strcmp(a->value[i], b->value[i]) == 0))
            return false;
    }
    return true;
}

/* Weights, gradients and states of a and b take as much. */
static bool has_same_rest(const vp_settings *a, const vp_settings *b)
{
    static const vp_setting others[] = {VP_SETTING_MICRO_BATCH, VP_SETTING_ACCUMULATION,
                                        VP_SETTING_RECOMPUTE,   VP_SETTING_OFFLOAD_ACTIVATIONS,
                                        VP_SETTING_LOSS,        VP_SETTING_ATTENTION,
                                        VP_SETTING_ALLOCATOR};

    return is_same_but(a, b, others, sizeof others / sizeof *others);
}

/* Where reasons are wanted, those that cannot be told are counted and left out; else that is asked when one is tried. */
static vp_status add_variant(search *x, const vp_settings *s)
{
    variant   v  = {.settings = *s};
    vp_status st = VP_OK;

    if (x->r->wanted == VP_CHOOSE_ALL && !can_be_told(x, &v))
        goto out;
    while (v.like < x->n_variants && !has_same_rest(&x->variants[v.like].settings, s))
        v.like++;
    VP_TRY_ALLOC(x->err, vp_arena_grow(x->arena, (void **)&x->variants, x->n_variants,
                                       &x->cap_variants, sizeof *x->variants));
    x->variants[x->n_variants++] = v;
out:
    return st;
}

/* Whether any from this one on can be told; where none can they are left out. */
static bool is_any_told(search *x, int64_t first)
{
    for (int64_t v = first; v < x->n_variants; v++)
        if (can_be_told(x, &x->variants[v]))
            return true;
    x->n_variants = first;
    return false;
}

/* Axes that s leaves no choice of: which way of one card, and when gradients that nobody cuts are reduced. */
static bool is_no_choice(const search *x, const vp_axis *axis, const vp_settings *s)
{
    const char *parallel = s->value[VP_SETTING_PARALLEL];

    return (axis->setting == VP_SETTING_PARALLEL && x->r->world == 1) ||
           (axis->setting == VP_SETTING_GRADIENT_SYNC &&
            (x->r->world == 1 || !parallel || !vp_world_syncs_each(parallel)));
}

static vp_status walk(search *x, int axis, vp_settings *s)
{
    const vp_language *l = x->r->job.language;
    char               word[64];
    int64_t            before = x->n_variants;
    vp_status          st     = VP_OK;

    if (axis == l->n_axes)
        return add_variant(x, s);
    if (is_no_choice(x, &l->axes[axis], s))
        return walk(x, axis + 1, s);
    for (int i = 0; word_at(x, &l->axes[axis], i, word, sizeof word); i++) {
        vp_settings next                  = *s;
        next.value[l->axes[axis].setting] = vp_arena_strdup(x->arena, word);
        VP_TRY_ALLOC(x->err, next.value[l->axes[axis].setting]);
        VP_TRY(walk(x, axis + 1, &next));
        if (l->axes[axis].kind == VP_AXIS_FIXED && is_any_told(x, before))
            break;
    }
out:
    return st;
}

/* "torch=2.11.0 transformers=5.17.0" as {library: version}. */
static vp_status take_versions(search *x, const char *text)
{
    vp_status st = VP_OK;

    while (*text) {
        size_t n = strcspn(text, " "), k = strcspn(text, "=");
        char   name[64];
        if (k < n && k < sizeof name) {
            snprintf(name, sizeof name, "%.*s", (int)k, text);
            VP_TRY_ALLOC(x->err, json_object_set_new(x->out->versions, name,
                                                     json_stringn(text + k + 1, n - k - 1)) == 0);
        }
        text += n + (text[n] == ' ');
    }
out:
    return st;
}

/* A step of these settings that was recorded, whatever it recomputes and in whichever precision that is left open. */
static bool is_recorded(const search *x, const vp_settings *s, vp_fit_bytes *out)
{
    static const char *const recomputes[] = {"none", "full"}, *const open[] = {
                                                                  "bf16-mixed", "bf16-amp",
                                                                  "fp16-mixed", "fp16-amp", "fp32"};
    const char *pinned  = x->r->pinned[VP_SETTING_PRECISION];
    bool        is_open = !pinned || strcmp(pinned, "any") == 0;
    vp_fit_job  job     = x->r->job;

    job.loads_only    = true; /* says what was recorded, and how much is trained */
    job.terse         = true;
    job.at_most_bytes = 0;
    for (size_t p = 0; p < (is_open ? sizeof open / sizeof *open : 1); p++)
        for (size_t i = 0; i < sizeof recomputes / sizeof *recomputes; i++) {
            vp_settings one                 = *s;
            vp_err      ignored             = {0};
            one.value[VP_SETTING_RECOMPUTE] = recomputes[i];
            one.value[VP_SETTING_PRECISION] = is_open ? open[p] : pinned;
            if (vp_fit_bytes_of(&job, &one, out, &ignored) == VP_OK)
                return true;
        }
    return false;
}

/* The versions that were asked for, else those of the recorded step: files are for what the bytes
 * are of. */
static vp_status find_versions(search *x, const vp_settings *s)
{
    vp_fit_bytes bytes;
    vp_status    st = VP_OK;

    x->out->versions = json_object();
    VP_TRY_ALLOC(x->err, x->out->versions);
    x->n_trained = x->r->job.model->n_params;
    if (is_recorded(x, s, &bytes)) {
        x->n_trained = bytes.n_trained;
        VP_TRY(take_versions(x, bytes.versions));
    }
    if (x->r->versions)
        VP_TRY_ALLOC(x->err, json_object_update(x->out->versions, (json_t *)x->r->versions) == 0);
out:
    return st;
}

static vp_status list_variants(search *x)
{
    const vp_choose_request *r  = x->r;
    vp_settings              s  = VP_SETTINGS_UNSAID;
    vp_status                st = VP_OK;

    s.model   = r->model_name;
    s.device  = r->job.device->name;
    s.trainer = r->target->name;
    for (int i = 0; i < VP_N_SETTINGS; i++)
        s.value[i] = r->pinned[i] && strcmp(r->pinned[i], "any") != 0 ? r->pinned[i] : NULL;
    s.value[VP_SETTING_MICRO_BATCH] = "1";
    s.value[VP_SETTING_SEQ]         = count_text(x->arena, r->seq);
    s.value[VP_SETTING_WORLD]       = count_text(x->arena, r->world);
    if (!s.value[VP_SETTING_PRECISION]) /* axes set these two */
        s.value[VP_SETTING_PRECISION] = "fp32";
    if (!s.value[VP_SETTING_OPTIMIZER])
        s.value[VP_SETTING_OPTIMIZER] = "adamw_torch_fused";
    VP_TRY(vp_settings_complete(x->arena, &s, NULL, x->err));
    s.n_assumed = 0;
    VP_TRY(find_versions(x, &s));
    s.versions = x->out->versions;
    VP_TRY(walk(x, 0, &s));
    if (!is_any_told(x, 0)) {
        assert(x->first_untold.message[0]);
        VP_TRY(VP_FAIL_AT(x->err, VP_ERR_INPUT, NULL, 0, x->first_untold.field, "%s",
                          x->first_untold.message));
    }
out:
    return st;
}

/* ---- seconds ---- */

static vp_status add_choice(search *x, int64_t v, int64_t micro_batch)
{
    const vp_choose_request *r    = x->r;
    vp_chosen               *o    = x->out;
    int64_t                  each = r->global_batch / r->world;
    vp_status                st   = VP_OK;

    VP_TRY_ALLOC(x->err,
                 vp_arena_grow(x->arena, (void **)&o->all, o->n, &x->cap_all, sizeof *o->all));
    vp_choice *c                               = &o->all[o->n];
    *c                                         = (vp_choice){.settings    = x->variants[v].settings,
                                                             .order       = o->n,
                                                             .variant     = v,
                                                             .micro_batch = micro_batch};
    c->settings.value[VP_SETTING_MICRO_BATCH]  = count_text(x->arena, micro_batch);
    c->settings.value[VP_SETTING_ACCUMULATION] = count_text(x->arena, each / micro_batch);
    VP_TRY(vp_fit_seconds_of(&r->job, &c->settings, x->n_trained, &c->seconds, x->err));
    c->settings.step_time_s = c->seconds;
    o->n++;
out:
    return st;
}

/* Of one micro-batch there is nothing to add up. */
static bool is_synced(const search *x, int64_t v)
{
    return strcmp(x->variants[v].settings.value[VP_SETTING_GRADIENT_SYNC], "each") == 0 &&
           !x->r->pinned[VP_SETTING_GRADIENT_SYNC];
}

static vp_status list_choices(search *x)
{
    int64_t   each = x->r->global_batch / x->r->world;
    vp_status st   = VP_OK;

    for (int64_t v = 0; v < x->n_variants; v++)
        for (int64_t m = 1; m <= each; m++)
            if (each % m == 0 && (!x->r->micro_batch || m == x->r->micro_batch) &&
                (m < each || !is_synced(x, v)))
                VP_TRY(add_choice(x, v, m));
    assert(x->out->n > 0);
out:
    return st;
}

/* Equals keep the language's order. */
static int by_seconds(const void *a, const void *b)
{
    const vp_choice *x = a, *y = b;

    if (x->seconds != y->seconds)
        return x->seconds < y->seconds ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

/* ---- bytes ---- */

/* How many words differ from the first way that was tried, the allocator's left out; *last is one of them. */
static int other_words(const search *x, const vp_choice *c, vp_setting *last)
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
static const char *refusal_text(search *x, const vp_choice *c, const char *message)
{
    vp_setting one = 0;
    int        n   = other_words(x, c, &one);

    return n == 0 ? vp_arena_strdup(x->arena, message)
           : n == 1
               ? vp_arena_printf(x->arena, "%s %s", vp_setting_key(one), c->settings.value[one])
               : "";
}

static vp_status note_refusal(search *x, const vp_choice *c, const char *message)
{
    vp_chosen  *o   = x->out;
    const char *why = refusal_text(x, c, message);
    vp_status   st  = VP_OK;

    VP_TRY_ALLOC(x->err, why);
    x->variants[c->variant].refused = true;
    for (int i = 0; i < o->n_refusals; i++)
        if (strcmp(o->refusals[i], why) == 0)
            goto out;
    if (why[0] && o->n_refusals < VP_MAX_REFUSALS)
        o->refusals[o->n_refusals++] = why;
    if (!o->refused_first)
        o->refused_first = vp_arena_strdup(x->arena, message);
out:
    return st;
}

/* Whether a step that has no estimate has one with a sample at a time: then it was too large to be
 * counted, and not a way that was not recorded. */
static bool is_only_too_large(search *x, const vp_choice *c)
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

static void take_bytes(search *x, vp_choice *c)
{
    c->sized                    = true;
    c->fits                     = c->bytes.high_bytes <= x->r->budget_bytes;
    c->settings.allocated_bytes = c->bytes.allocated_bytes;
    c->settings.reserved_bytes  = c->bytes.reserved_bytes;
    c->settings.device_bytes    = c->bytes.device_bytes;
    c->settings.reserved_high_bytes =
        c->bytes.reserved_bytes + (c->bytes.high_bytes - c->bytes.device_bytes);
}

/* c needs more however the allocator is set: so do those that differ in that alone. */
static void note_needed(search *x, const vp_choice *c, int64_t bytes)
{
    const vp_setting allocator = VP_SETTING_ALLOCATOR;

    for (int64_t i = 0; i < x->out->n; i++) {
        vp_choice *other = &x->out->all[i];
        if (other->micro_batch == c->micro_batch && other->needed_bytes < bytes &&
            is_same_but(&other->settings, &c->settings, &allocator, 1))
            other->needed_bytes = bytes;
    }
}

/* Its bytes; where it needs more than at_most_bytes, that it does. 0: whatever it needs. */
static vp_status size_within(search *x, vp_choice *c, int64_t at_most_bytes)
{
    vp_fit_job job = x->r->job;
    vp_err     why = {0};
    vp_setting other;
    vp_status  st = VP_OK;

    variant *first = &x->variants[x->variants[c->variant].like];

    c->out = c->out || x->variants[c->variant].refused;
    if (c->sized || c->out || (at_most_bytes && c->beyond_bytes >= at_most_bytes))
        goto out;
    x->out->n_sized += c->beyond_bytes == 0;
    if (at_most_bytes && first->rest_bytes >= at_most_bytes) {
        c->beyond_bytes = first->rest_bytes;
        goto out;
    }
    if (at_most_bytes && c->needed_bytes >= at_most_bytes) {
        c->beyond_bytes = at_most_bytes;
        goto out;
    }
    job.at_most_bytes = at_most_bytes;
    job.terse         = job.terse || (x->out->refused_first && other_words(x, c, &other) > 0);
    st                = vp_fit_bytes_of(&job, &c->settings, &c->bytes, &why);
    if (st == VP_OK) {
        take_bytes(x, c);
    } else if (st == VP_ERR_NO_FIT && at_most_bytes) {
        c->beyond_bytes = at_most_bytes;
        if (c->bytes.is_too_large_at_rest && at_most_bytes > first->rest_bytes)
            first->rest_bytes = at_most_bytes;
        if (c->bytes.is_needed_too_large)
            note_needed(x, c, at_most_bytes);
        st = VP_OK;
    } else if (st == VP_ERR_INPUT) {
        c->out = true;
        st     = VP_OK;
        x->out->n_sized--;
        if (!is_only_too_large(x, c))
            VP_TRY(note_refusal(x, c, why.message));
    } else {
        *x->err = why;
    }
out:
    return st;
}

static vp_status size_choice(search *x, vp_choice *c)
{
    return size_within(x, c, 0);
}

static vp_status probe_choice(search *x, vp_choice *c)
{
    return size_within(x, c, x->r->budget_bytes);
}

/* As far as it was looked at. */
static bool is_too_large(const vp_choice *c)
{
    return c->sized ? !c->fits : c->beyond_bytes > 0;
}

static vp_choice *choice_of(search *x, int64_t variant_idx, int64_t micro_batch)
{
    for (int64_t i = 0; i < x->out->n; i++)
        if (x->out->all[i].variant == variant_idx && x->out->all[i].micro_batch == micro_batch)
            return &x->out->all[i];
    return NULL;
}

/* c is too large: the least micro-batch of the same words that is. */
static vp_status halve(search *x, const vp_choice *c)
{
    int64_t   each = x->r->global_batch / x->r->world, list[VP_MAX_DIVISORS] = {0};
    int       n = 0, low = -1, high;
    vp_status st = VP_OK;

    for (int64_t m = 1; m <= c->micro_batch; m++)
        if (each % m == 0 && choice_of(x, c->variant, m)) {
            assert(n < VP_MAX_DIVISORS); /* no number up to a million has more than 240 */
            list[n++] = m;
        }
    assert(n > 0); /* c is one of them */
    high = n - 1;
    for (int at = 0; high - low > 1; at = (low + high) / 2) { /* the least first: often none fits */
        vp_choice *one = choice_of(x, c->variant, list[at]);
        VP_TRY(probe_choice(x, one));
        if (is_too_large(one))
            high = at;
        else
            low = at;
    }
    x->variants[c->variant].too_large_from = list[high];
out:
    return st;
}

/* One micro-step keeps no gradients while it goes forward: it may need less than smaller micro-batches. */
static bool is_one_micro_step(const search *x, const vp_choice *c)
{
    return c->micro_batch == x->r->global_batch / x->r->world;
}

/* The first variant that is v but for what is recomputed and how it is allocated, and recomputes all; v where there is none. */
static int64_t leanest_of(const search *x, int64_t v)
{
    static const vp_setting others[] = {VP_SETTING_RECOMPUTE, VP_SETTING_ALLOCATOR};

    for (int64_t i = 0; i < x->n_variants; i++)
        if (strcmp(x->variants[i].settings.value[VP_SETTING_RECOMPUTE], "full") == 0 &&
            is_same_but(&x->variants[i].settings, &x->variants[v].settings, others, 2))
            return i;
    return v;
}

/* Whether one micro-step of the least micro-batch that recomputes all allocates too much: then every choice of v is taken to. Asked
 * where one answer is wanted and no reasons; it is a third of a play, and most ways end with it. */
static bool is_hopeless(search *x, int64_t v)
{
    variant     *leanest = &x->variants[leanest_of(x, v)];
    vp_fit_job   job     = x->r->job;
    vp_settings  one     = leanest->settings;
    vp_fit_bytes bytes;
    vp_err       ignored = {0};

    if (!leanest->is_tried) {
        job.at_most_bytes                = x->r->budget_bytes;
        job.counts_needed                = true; /* for each of the allocator's settings */
        job.terse                        = true;
        one.value[VP_SETTING_EVAL_BATCH] = "none";
        if (x->r->micro_batch)
            one.value[VP_SETTING_MICRO_BATCH] = count_text(x->arena, x->r->micro_batch);
        one.value[VP_SETTING_ACCUMULATION] = "1";
        leanest->is_tried                  = true;
        leanest->is_hopeless = vp_fit_bytes_of(&job, &one, &bytes, &ignored) == VP_ERR_NO_FIT;
    }
    return leanest->is_hopeless;
}

/* What is the leanest of all itself is tried without asking. */
static bool may_be_hopeless(const search *x)
{
    return x->r->wanted == VP_CHOOSE_BEST || (x->r->wanted == VP_CHOOSE_ANY && x->out->n_sized);
}

static vp_status try_choice(search *x, vp_choice *c)
{
    variant  *v  = &x->variants[c->variant];
    vp_status st = VP_OK;

    if (v->too_large_from && c->micro_batch >= v->too_large_from && !is_one_micro_step(x, c))
        goto out;
    if (may_be_hopeless(x) && is_hopeless(x, c->variant))
        goto out;
    if (!can_be_told(x, v))
        goto out;
    VP_TRY(probe_choice(x, c));
    if (is_too_large(c) && x->r->wanted != VP_CHOOSE_ALL)
        v->too_large_from = c->micro_batch;
    else if (is_too_large(c))
        VP_TRY(halve(x, c));
out:
    return st;
}

/* What would fit with a GiB more: of each way the micro-batches from the least that is too large on. */
static vp_status find_richer(search *x)
{
    vp_chosen    *o      = x->out;
    const int64_t budget = x->r->budget_bytes + VP_GIB;
    vp_status     st     = VP_OK;

    for (int64_t v = 0; v < x->n_variants; v++) {
        int64_t m = x->variants[v].too_large_from;
        for (vp_choice *c; m && (c = choice_of(x, v, m)) != NULL;) {
            VP_TRY(size_within(x, c, budget));
            if (!c->sized || c->bytes.high_bytes > budget)
                break;
            if ((!o->best || c->seconds < o->best->seconds) &&
                (!o->richer || c->seconds < o->richer->seconds))
                o->richer = c;
            do
                m++;
            while (m <= x->r->global_batch && !choice_of(x, v, m));
        }
    }
out:
    return st;
}

static void note_refused(search *x)
{
    x->out->n_refused = 0;
    for (int64_t i = 0; i < x->out->n; i++)
        x->out->n_refused += x->variants[x->out->all[i].variant].refused;
}

static vp_choice *least_sized(vp_chosen *o)
{
    vp_choice *least = NULL;

    for (int64_t i = 0; i < o->n; i++)
        if (o->all[i].sized && (!least || o->all[i].bytes.high_bytes < least->bytes.high_bytes))
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
            (at == LISTED && one->bytes.high_bytes >= least[n - 1]->bytes.high_bytes) ||
            (at < n && one->bytes.high_bytes >= least[at]->bytes.high_bytes))
            continue;
        n += at == n && n < LISTED;
        at -= at == LISTED;
        for (; at > 0 && least[at - 1]->bytes.high_bytes > one->bytes.high_bytes; at--)
            least[at] = least[at - 1];
        least[at] = one;
    }
    for (int i = 0; i < n; i++)
        if (tells_nothing(least[i], c))
            return least[i]->bytes.high_bytes;
    return n < LISTED ? 0 : least[LISTED - 1]->bytes.high_bytes;
}

/* What a process has when a variant's model is loaded; the most where that is not known. */
static int64_t loaded_bytes(const search *x, int64_t v)
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
static int64_t take_lightest(const search *x, int64_t *loaded)
{
    int64_t first = -1;

    for (int64_t v = 0; v < x->n_variants; v++)
        if (loaded[v] >= 0 && (first < 0 || loaded[v] < loaded[first]))
            first = v;
    if (first >= 0)
        loaded[first] = -1;
    return first;
}

/* Nothing fits: of each way the least micro-batch, then one micro-step. What needs more than what is listed besides is not
 * worked out to its end; so what loads least comes first, and of that the slowest, which mostly needs less. */
static vp_status find_least(search *x)
{
    vp_chosen *o      = x->out;
    int64_t   *loaded = vp_arena_array(x->arena, x->n_variants, sizeof *loaded), first;
    int64_t    least  = x->r->micro_batch ? x->r->micro_batch : 1;
    vp_status  st     = VP_OK;

    VP_TRY_ALLOC(x->err, loaded);
    for (int is_last = 0; is_last < 2; is_last++) {
        for (int64_t v = 0; v < x->n_variants; v++)
            loaded[v] = x->variants[v].like == v ? loaded_bytes(x, v) : -1;
        while ((first = take_lightest(x, loaded)) >= 0)
            for (int64_t i = o->n - 1; i >= 0; i--) {
                vp_choice *c = &o->all[i];
                if (x->variants[c->variant].like == first &&
                    (is_last ? is_one_micro_step(x, c) : c->micro_batch == least))
                    VP_TRY(size_within(x, c, listed_at_most(o, c)));
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
        if (is_too_large(&o->all[i]))
            return true;
    return false;
}

static vp_status find_best(search *x)
{
    vp_chosen *o  = x->out;
    vp_status  st = VP_OK;

    for (int64_t i = 0; i < o->n && !o->best; i++) {
        vp_choice *c = &o->all[x->r->wanted == VP_CHOOSE_ANY ? o->n - 1 - i : i]; /* the leanest */
        VP_TRY(try_choice(x, c));
        if (c->sized && c->fits)
            o->best = c;
    }
    if (x->r->wanted != VP_CHOOSE_ALL)
        goto out;
    VP_TRY(find_richer(x));
    if (!o->best && x->r->nothing_fits && was_any_recorded(o))
        VP_TRY(x->r->nothing_fits(x->r, x->err));
    if (!o->best)
        VP_TRY(find_least(x));
    note_refused(x);
out:
    return st;
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
                (!least || o->all[i].bytes.high_bytes < least->bytes.high_bytes))
                least = &o->all[i];
        if (!least)
            return;
        o->alternatives[o->n_alternatives++] = least;
    }
}

/* The two next faster ones, which do not fit, and then the next slower ones. */
static vp_status list_alternatives(search *x)
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
static vp_status mark_tight(search *x)
{
    vp_chosen *o  = x->out;
    vp_status  st = VP_OK;

    for (int i = -1; i < o->n_alternatives; i++) {
        const vp_choice *listed = i < 0 ? o->least : o->alternatives[i];
        if (!listed || listed->fits)
            continue;
        vp_choice *c = &o->all[listed - o->all];
        VP_TRY(vp_fit_tightly(&x->r->job, &c->settings, &c->bytes, x->r->budget_bytes, &c->is_tight,
                              &c->n_returns, x->err));
    }
out:
    return st;
}

vp_status vp_choose(vp_arena *arena, const vp_choose_request *request, vp_chosen *out, vp_err *err)
{
    search    x  = {.arena = arena, .r = request, .out = out, .err = err};
    vp_status st = VP_OK;

    assert(request->world >= 1 && request->global_batch % request->world == 0);
    *out = (vp_chosen){0};
    VP_TRY(list_variants(&x));
    VP_TRY(list_choices(&x));
    qsort(out->all, (size_t)out->n, sizeof *out->all, by_seconds);
    VP_TRY(find_best(&x));
    if (request->wanted != VP_CHOOSE_ALL)
        goto out;
    VP_TRY(list_alternatives(&x));
    VP_TRY(mark_tight(&x));
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
