/* trainers/fit/choose_space.c: what a search may try, and what each takes of time. */
#include "trainers/fit/choose_internal.h"

#include "trainers/files/emit.h"
#include "trainers/hf/hf_attention.h"
#include "trainers/torch/world.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the space ---- */

/* Transformers' class of the model has no such attention. */
static bool has_none(const vp_choose_search *x, vp_setting setting, const char *word)
{
    return setting == VP_SETTING_ATTENTION &&
           vp_hf_lacks_sdpa(x->r->job.model->family, word, x->r->job.versions);
}

/* Word i of an axis that is to be tried; false past the end. */
static bool word_at(const vp_choose_search *x, const vp_axis *axis, int i, char *buf, size_t size)
{
    const char *pinned = x->r->pinned[axis->setting];

    if (pinned && strcmp(pinned, "any") != 0) {
        snprintf(buf, size, "%s", pinned);
        return i == 0;
    }
    if (axis->kind == VP_AXIS_ALIKE && !pinned) { /* the first, or what its class then takes */
        snprintf(buf, size, "%.*s", (int)strcspn(axis->words, "|"), axis->words);
        if (has_none(x, axis->setting, buf))
            snprintf(buf, size, "eager");
        return i == 0;
    }
    for (const char *at = axis->words; *at; at += *at == '|') {
        snprintf(buf, size, "%.*s", (int)strcspn(at, "|"), at);
        at += strcspn(at, "|");
        if (!has_none(x, axis->setting, buf) && i-- == 0)
            return true;
    }
    return false;
}

const char *vp_choose_count_text(vp_arena *arena, int64_t n)
{
    return vp_arena_printf(arena, "%lld", (long long)n);
}

/* Whether the target's files have words for it. */
bool vp_choose_can_be_told(vp_choose_search *x, vp_choose_variant *v)
{
    if (v->is_asked)
        return v->is_told;
    v->is_asked = true;
    v->is_told  = vp_sayable_holds(x->r->sayable, x->r->target, &v->settings,
                                  x->first_untold.message[0] ? NULL : &x->first_untold);
    return v->is_told;
}

/* Whether a and b say the same but for these. */
bool vp_choose_is_same_but(const vp_settings *a, const vp_settings *b, const vp_setting *others,
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

    return vp_choose_is_same_but(a, b, others, sizeof others / sizeof *others);
}

/* Where reasons are wanted, those that cannot be told are counted and left out; else that is asked when one is tried. */
static vp_status add_variant(vp_choose_search *x, const vp_settings *s)
{
    vp_choose_variant v  = {.settings = *s};
    vp_status         st = VP_OK;

    if (x->r->wanted == VP_CHOOSE_ALL && !vp_choose_can_be_told(x, &v))
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
static bool is_any_told(vp_choose_search *x, int64_t first)
{
    for (int64_t v = first; v < x->n_variants; v++)
        if (vp_choose_can_be_told(x, &x->variants[v]))
            return true;
    x->n_variants = first;
    return false;
}

/* Axes that s leaves no choice of: which way of one card, and when gradients that nobody cuts are reduced. */
static bool is_no_choice(const vp_choose_search *x, const vp_axis *axis, const vp_settings *s)
{
    const char *parallel = s->value[VP_SETTING_PARALLEL];

    return (axis->setting == VP_SETTING_PARALLEL && x->r->world == 1) ||
           (axis->setting == VP_SETTING_GRADIENT_SYNC &&
            (x->r->world == 1 || !parallel ||
             !vp_world_syncs_each(parallel, s->value[VP_SETTING_OFFLOAD_PARAMS])));
}

static vp_status walk(vp_choose_search *x, int axis, vp_settings *s)
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
        if (l->axes[axis].kind == VP_AXIS_FIXED && !x->r->pinned[l->axes[axis].setting] &&
            is_any_told(x, before))
            break;
    }
out:
    return st;
}

/* "torch=2.11.0 transformers=5.17.0" as {library: version}. */
static vp_status take_versions(vp_choose_search *x, const char *text)
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
static bool is_recorded(const vp_choose_search *x, const vp_settings *s, vp_fit_bytes *out)
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
static vp_status find_versions(vp_choose_search *x, const vp_settings *s)
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

vp_status vp_choose_list_variants(vp_choose_search *x)
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
    s.value[VP_SETTING_SEQ]         = vp_choose_count_text(x->arena, r->seq);
    s.value[VP_SETTING_WORLD]       = vp_choose_count_text(x->arena, r->world);
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

static vp_status add_choice(vp_choose_search *x, int64_t v, int64_t micro_batch)
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
    c->settings.value[VP_SETTING_MICRO_BATCH]  = vp_choose_count_text(x->arena, micro_batch);
    c->settings.value[VP_SETTING_ACCUMULATION] = vp_choose_count_text(x->arena, each / micro_batch);
    VP_TRY(vp_fit_seconds_of(&r->job, &c->settings, x->n_trained, &c->seconds, x->err));
    c->settings.step_time_s = c->seconds;
    o->n++;
out:
    return st;
}

/* Of one micro-batch there is nothing to add up. */
static bool is_synced(const vp_choose_search *x, int64_t v)
{
    return strcmp(x->variants[v].settings.value[VP_SETTING_GRADIENT_SYNC], "each") == 0 &&
           !x->r->pinned[VP_SETTING_GRADIENT_SYNC];
}

static int by_seconds(const void *a, const void *b)
{
    const vp_choice *x = a, *y = b;

    if (x->seconds != y->seconds)
        return x->seconds < y->seconds ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

void vp_choose_sort(vp_chosen *o)
{
    qsort(o->all, (size_t)o->n, sizeof *o->all, by_seconds);
}

vp_status vp_choose_list(vp_choose_search *x)
{
    int64_t   each = x->r->global_batch / x->r->world;
    vp_status st   = VP_OK;

    for (int64_t v = 0; v < x->n_variants; v++)
        for (int64_t m = 1; m <= each; m++)
            if (each % m == 0 && (!x->r->micro_batch || m == x->r->micro_batch) &&
                (m < each || !is_synced(x, v)))
                VP_TRY(add_choice(x, v, m));
    assert(x->out->n > 0);
    x->n_listed = x->out->n;
    vp_choose_sort(x->out);
out:
    return st;
}

/* ---- a choice ---- */

vp_choice *vp_choose_of(vp_choose_search *x, int64_t variant_idx, int64_t micro_batch)
{
    for (int64_t i = 0; i < x->out->n; i++)
        if (x->out->all[i].variant == variant_idx && x->out->all[i].micro_batch == micro_batch)
            return &x->out->all[i];
    return NULL;
}

bool vp_choose_is_too_large(const vp_choice *c)
{
    return c->sized ? !c->fits : c->beyond_bytes > 0;
}

bool vp_choose_has_bytes(const vp_choose_search *x, vp_choice *c)
{
    if (!c->bytes)
        c->bytes = vp_arena_array(x->arena, 1, sizeof *c->bytes);
    return c->bytes;
}

void vp_choose_take_bytes(const vp_choose_search *x, vp_choice *c)
{
    c->sized                    = true;
    c->fits                     = c->bytes->high_bytes <= x->r->budget_bytes;
    c->settings.allocated_bytes = c->bytes->allocated_bytes;
    c->settings.reserved_bytes  = c->bytes->reserved_bytes;
    c->settings.device_bytes    = c->bytes->device_bytes;
    c->settings.reserved_high_bytes =
        c->bytes->reserved_bytes + (c->bytes->high_bytes - c->bytes->device_bytes);
}
