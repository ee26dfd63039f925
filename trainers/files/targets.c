/* trainers/files/targets.c: which targets and dialects there are, and how their tables are asked. */
#include "trainers/files/target.h"
#include "trainers/files/told.h"

#include "base/options.h"
#include "base/text.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const vp_target *const targets[] = {
    &vp_target_hf,
    &vp_target_trl,
    &vp_target_axolotl,
    &vp_target_llamafactory,
    &vp_target_swift,
    &vp_target_unsloth,
    &vp_target_lightning,
    &vp_target_litgpt,
    &vp_target_torchtune,
    &vp_target_torchtitan,
    &vp_target_megatron,
    &vp_target_torch,
    /* files of theirs go with those above */
    &vp_target_accelerate,
    &vp_target_deepspeed,
};
enum { N_TARGETS = sizeof targets / sizeof *targets };

static const vp_dialect *const dialects[] = {
    &vp_dialect_transformers, &vp_dialect_trl,        &vp_dialect_model,
    &vp_dialect_lora,         &vp_dialect_fsdp,       &vp_dialect_accelerator,
    &vp_dialect_accelerate,   &vp_dialect_deepspeed,  &vp_dialect_axolotl,
    &vp_dialect_llamafactory, &vp_dialect_swift,      &vp_dialect_lightning,
    &vp_dialect_litgpt,       &vp_dialect_torchtune,  &vp_dialect_torchtitan_recipe,
    &vp_dialect_torchtitan,   &vp_dialect_unsloth,    &vp_dialect_megatron,
    &vp_dialect_torch,        &vp_dialect_swift_fsdp,
};
enum { N_DIALECTS = sizeof dialects / sizeof *dialects };

const vp_target *vp_target_at(int i)
{
    return i < N_TARGETS ? targets[i] : NULL;
}

const vp_dialect *vp_dialect_at(int i)
{
    return i < N_DIALECTS ? dialects[i] : NULL;
}

vp_status vp_target_named(const char *name, const vp_target **out, vp_err *err)
{
    const char *names[N_TARGETS];
    char        shown[128], all[400] = "";
    int         nearest;

    for (int i = 0; i < N_TARGETS; i++) {
        *out = targets[i];
        if (strcmp(targets[i]->name, name) == 0)
            return VP_OK;
        names[i] = targets[i]->name;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", names[i]);
    }
    *out    = NULL;
    nearest = vp_word_nearest(name, names, N_TARGETS);
    vp_text_escape(name, shown, sizeof shown);
    if (nearest >= 0)
        return VP_FAIL(err, VP_ERR_USAGE, "no target %s; did you mean %s?", shown, names[nearest]);
    return VP_FAIL(err, VP_ERR_USAGE, "no target %s: there are %s", shown, all);
}

bool vp_library_is_known(const char *name, const char **nearest)
{
    /* those that recordings and dry runs name, and dialects do not */
    const char       *names[48] = {"torch", "bitsandbytes", "liger-kernel", "flash-attn"};
    int               n         = 4, at;
    const vp_dialect *d;

    for (int i = 0; (d = vp_dialect_at(i)) != NULL && n < 48; i++)
        names[n++] = d->library;
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    at       = vp_word_nearest(name, names, n);
    *nearest = at >= 0 ? names[at] : NULL;
    return false;
}

vp_status vp_target_writes_for(const vp_target *t, json_t *versions, vp_err *err)
{
    for (int i = 0; i < t->n_files; i++) {
        const vp_dialect *of = t->files[i].dialect;
        for (const vp_dialect *d = of; d; d = of->base_version ? NULL : d->base) {
            const char *named = json_string_value(json_object_get(versions, d->library));
            if (named && d->oldest && vp_version_compare(named, d->oldest) < 0)
                return VP_FAIL(
                    err, VP_ERR_USAGE,
                    "%s %s: its keys are known from %s on; older ones differ in names, and "
                    "nobody here read which",
                    d->library, named, d->oldest);
            if (d->writes && !json_object_get(versions, d->library) &&
                json_object_set_new(versions, d->library, json_string(d->writes)))
                return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
        }
    }
    return VP_OK;
}

/* Whether what holds from one version on, or up to one, does of both. */
static bool is_alike(const char *a, const char *b, const char *since, const char *until)
{
    return vp_version_within(a, since, until) == vp_version_within(b, since, until);
}

bool vp_dialect_is_based_on(const vp_dialect *d, const vp_dialect *of)
{
    while (d && d != of)
        d = d->base;
    return d != NULL;
}

bool vp_dialect_is_alike(const vp_dialect *d, const char *a, const char *b)
{
    bool alike = true;

    if (vp_version_compare(a, b) == 0)
        return true;
    for (int i = 0; i < d->n_keys && alike; i++)
        alike = is_alike(a, b, d->keys[i].since, d->keys[i].until) &&
                is_alike(a, b, d->keys[i].changed, NULL);
    for (int i = 0; i < d->n_says && alike; i++)
        alike = is_alike(a, b, d->says[i].since, d->says[i].until);
    for (int i = 0; i < d->n_rules && alike; i++)
        alike = is_alike(a, b, d->rules[i].since, d->rules[i].until);
    return alike;
}

const char *vp_dialect_version(const vp_dialect *d, const vp_dialect *of, const json_t *versions)
{
    const json_t *v = json_object_get(versions, d->library);

    if (json_is_string(v))
        return json_string_value(v);
    return d != of && of->base_version ? of->base_version : d->version;
}

const vp_dialect *vp_dialect_below(const vp_dialect *first, const vp_dialect *d)
{
    if (d == &vp_dialect_transformers && first == d)
        return &vp_dialect_scripts;
    return d->base_says ? d->base : NULL;
}

bool vp_is_said(const vp_dialect *first, const char *key)
{
    for (const vp_dialect *d = first; d; d = vp_dialect_below(first, d))
        for (int i = 0; i < d->n_says; i++)
            if (strcmp(d->says[i].key, key) == 0)
                return true;
    return false;
}

bool vp_is_literal(const vp_dialect *d, const char *key, const char *text)
{
    for (int i = 0; i < d->n_says; i++)
        if (strcmp(d->says[i].key, key) == 0 && d->says[i].value &&
            strcmp(d->says[i].value, text) == 0)
            return true;
    return false;
}

const vp_key *vp_dialect_key(const vp_dialect *d, const char *path, const char *version)
{
    const vp_key *found = NULL;

    for (; d; d = d->base)
        for (int i = 0; i < d->n_keys; i++) {
            const vp_key *k = &d->keys[i];
            if (k->path[0] != path[0] || strcmp(k->path, path) != 0)
                continue;
            if (!version || vp_version_within(version, k->since, k->until))
                return k;
            found = k;
        }
    return found;
}

bool vp_target_file_holds(const vp_target *t, const vp_target_file *file, const vp_settings *s)
{
    const char *asked =
        file->dialect ? json_string_value(json_object_get(s->versions, file->dialect->library))
                      : NULL;

    return (asked ? vp_version_within(asked, file->since, file->until) : !file->until) &&
           vp_when_holds(file->when, s, t->name);
}

bool vp_when_holds(const char *when, const vp_settings *s, const char *target)
{
    while (when && *when) {
        size_t      n    = strcspn(when, ",");
        size_t      name = strcspn(when, "=!");
        bool        no   = when[name] == '!';
        const char *from = when + name + 1 + no, *value = NULL;
        bool        is_known = false;
        if (name == 6 && memcmp(when, "target", 6) == 0) {
            value    = target;
            is_known = true;
        }
        for (int i = 0; i < VP_N_SETTINGS && !is_known; i++)
            if (vp_setting_key(i)[0] == when[0] && strncmp(when, vp_setting_key(i), name) == 0 &&
                !vp_setting_key(i)[name]) {
                value    = s->value[i];
                is_known = true;
            }
        assert(is_known && "a condition of a table names no setting");
        if (value && vp_word_is_among(value, from, n - (size_t)(from - when)) == no)
            return false;
        when += n + (when[n] == ',');
    }
    return true;
}

const char *vp_saying_member(const vp_saying *say)
{
    static const char *const forms[] = {VP_HAS(""), VP_WITHOUT("")};

    for (size_t i = 0; say->value && i < sizeof forms / sizeof *forms; i++)
        if (strncmp(say->value, forms[i], strlen(forms[i])) == 0)
            return say->value + strlen(forms[i]);
    return NULL;
}

const char *vp_list_text(vp_arena *arena, const vp_value *v)
{
    vp_text     text = {0};
    const char *kept;

    if (v->kind != VP_VALUE_LIST)
        return v->text ? v->text : "";
    for (const vp_value *e = v->first; e; e = e->next)
        vp_text_printf(&text, "%s%s", e == v->first ? "" : "+", e->text ? e->text : "");
    kept = text.failed ? NULL : vp_arena_strdup(arena, vp_text_string(&text));
    vp_text_release(&text);
    return kept;
}

/* Behind its last dot. */
static const char *last_part(const char *name, size_t n)
{
    const char *part = name;

    for (size_t i = 0; i < n; i++)
        if (name[i] == '.')
            part = name + i + 1;
    return part;
}

bool vp_list_has(const char *list, const char *name, const char **at, size_t *n)
{
    const char *last = last_part(name, strlen(name));

    for (const char *p = list; p && *p; p += *p == '+') {
        size_t      length = strcspn(p, "+");
        const char *part   = last_part(p, length);
        if (length - (size_t)(part - p) == strlen(last) && strncmp(part, last, strlen(last)) == 0) {
            if (at)
                *at = p, *n = length;
            return true;
        }
        p += length;
    }
    return false;
}

static double global_batch(const vp_settings *s)
{
    return strtod(s->value[VP_SETTING_MICRO_BATCH], NULL) *
           strtod(s->value[VP_SETTING_ACCUMULATION], NULL) *
           strtod(s->value[VP_SETTING_WORLD], NULL);
}

int vp_group_of(const vp_settings *s)
{
    const char *each  = s->value[VP_SETTING_EVAL_BATCH];
    double      batch = global_batch(s), judged = each ? strtod(each, NULL) : 0;
    int         n = 8;

    judged *= strtod(s->value[VP_SETTING_WORLD], NULL); /* "none": 0 */
    while (n > 1 && (fmod(batch, n) != 0 || fmod(judged, n) != 0))
        n--;
    return n > 1 ? n : 0;
}

const char *vp_saying_text(vp_arena *arena, const vp_settings *s, const vp_saying *say,
                           const char *argument)
{
    if (vp_saying_member(say))
        return vp_saying_member(say);
    if (strcmp(say->value, "$") == 0)
        return argument ? argument : s->value[say->setting];
    if (strcmp(say->value, "$told") == 0 || strcmp(say->value, "$targets") == 0)
        return vp_told_text(arena, argument, say->value[2] == 'a');
    if (strncmp(say->value, "$tells:", 7) == 0)
        return vp_told_value(arena, argument, say->value + 7);
    if (strcmp(say->value, "$parts") == 0)
        return vp_told_parts(arena, argument);
    if (strcmp(say->value, "$,") == 0) {
        char *list = vp_arena_strdup(arena, argument);
        for (char *p = list; p && *p; p++)
            if (*p == '+')
                *p = ',';
        return list;
    }
    if (strncmp(say->value, "$file:", 6) == 0)
        return say->value + 6;
    if (strcmp(say->value, "$word") == 0)
        return s->value[say->setting];
    if (strcmp(say->value, "$world") == 0)
        return s->value[VP_SETTING_WORLD];
    if (strcmp(say->value, "$limit") == 0 || strcmp(say->value, "$reserved") == 0) {
        /* what is asserted and capped is the upper end of the interval */
        int64_t most  = s->reserved_high_bytes >= 0 ? s->reserved_high_bytes : s->reserved_bytes;
        int64_t bytes = say->value[1] == 'r'  ? most
                        : s->device_bytes < 0 ? -1
                                              : s->device_bytes + (most - s->reserved_bytes);
        return bytes < 0 ? "null" : vp_arena_printf(arena, "%lld", (long long)bytes);
    }
    if (strcmp(say->value, "$model") == 0)
        return s->model ? s->model : "";
    if (strcmp(say->value, "$global") == 0)
        return vp_arena_printf(arena, "%.0f", global_batch(s));
    if (strcmp(say->value, "$each") == 0)
        return vp_arena_printf(arena, "%.0f",
                               strtod(s->value[VP_SETTING_MICRO_BATCH], NULL) *
                                   strtod(s->value[VP_SETTING_ACCUMULATION], NULL));
    if (strcmp(say->value, "$group") == 0)
        return vp_arena_printf(arena, "%d", vp_group_of(s));
    return say->value;
}
