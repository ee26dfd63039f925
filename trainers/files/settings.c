/* trainers/files/settings.c: a file of settings, or a plan, as words that are no trainer's. */
#include "trainers/files/settings.h"

#include "base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *key, *otherwise, *words;
} table[] = {
#define X(name, key, otherwise, words) {key, otherwise, words},
    VP_SETTING_TABLE(X)
#undef X
};

const char *vp_setting_key(vp_setting s)
{
    return table[s].key;
}

static const char *or_usual(const vp_settings *s, vp_setting setting)
{
    return s->value[setting] ? s->value[setting] : table[setting].otherwise;
}

vp_setting vp_setting_waits_for(vp_setting setting, const vp_settings *s)
{
    const char *tuning = or_usual(s, VP_SETTING_TUNING);
    bool        waits  = false;

    if (setting == VP_SETTING_COMPLETION || setting == VP_SETTING_GENERATOR)
        return strcmp(or_usual(s, VP_SETTING_METHOD), "grpo") == 0 ? VP_N_SETTINGS
                                                                   : VP_SETTING_METHOD;
    if (setting == VP_SETTING_QUANT || setting == VP_SETTING_PREPARE)
        waits = strcmp(tuning, "qlora") != 0;
    else if (setting >= VP_SETTING_LORA_R && setting <= VP_SETTING_LORA_SAVE)
        waits = strcmp(tuning, "full") == 0;
    return waits ? VP_SETTING_TUNING : VP_N_SETTINGS;
}

bool vp_setting_counts(vp_setting setting, const vp_settings *s)
{
    return vp_setting_waits_for(setting, s) == VP_N_SETTINGS;
}

const char *vp_setting_words(vp_setting s)
{
    return table[s].words;
}

const char *vp_setting_otherwise(vp_setting s)
{
    return table[s].otherwise;
}

static bool is_argument(const char *text, char letter)
{
    char  *end;
    double x;

    if (!text[0])
        return false;
    if (letter == 'N')
        return strspn(text, "0123456789") == strlen(text) && text[0] != '0' && strlen(text) < 13;
    if (letter == 'R') {
        x = strtod(text, &end);
        return !*end && strspn(text, "0123456789.eE+-") == strlen(text) && isfinite(x) && x >= 0;
    }
    const char *beside = letter == 'L' ? "+_.-" : letter == 'T' ? "_-.+=,:*|()[]?^$" : "_-"; /* W */
    for (const char *p = text; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr(beside, *p))
            return false;
    return strlen(text) < 200;
}

/* A pattern of n letters. */
static bool matches(const char *word, const char *pattern, size_t n, const char **argument)
{
    if (argument)
        *argument = NULL;
    if (n == 1 && pattern[0] == '*') {
        if (argument)
            *argument = word;
        return true;
    }
    if (n && strchr("NRWLT", pattern[n - 1]) && (n == 1 || pattern[n - 2] == ':')) {
        if (strncmp(word, pattern, n - 1) != 0 || !is_argument(word + n - 1, pattern[n - 1]))
            return false;
        if (argument)
            *argument = word + n - 1;
        return true;
    }
    return strncmp(word, pattern, n) == 0 && !word[n];
}

bool vp_word_is(const char *word, const char *pattern, const char **argument)
{
    return matches(word, pattern, strlen(pattern), argument);
}

bool vp_word_is_among(const char *word, const char *patterns, size_t n)
{
    for (const char *p = patterns, *end = patterns + n; p < end;) {
        const char *bar = memchr(p, '|', (size_t)(end - p));
        size_t      of  = (size_t)((bar ? bar : end) - p);
        if (matches(word, p, of, NULL))
            return true;
        p += of + 1;
    }
    return false;
}

/* Names that mean one of a setting's words: vplan's own, and those of estimate's options. */
static const struct {
    vp_setting  setting;
    const char *from, *to;
} synonyms[] = {
    {VP_SETTING_OPTIMIZER, "adamw", "adamw_torch_fused"},
    {VP_SETTING_OPTIMIZER, "adamw-8bit", "adamw_8bit"},
    {VP_SETTING_OPTIMIZER, "adamw_bnb_8bit", "adamw_8bit"},
    {VP_SETTING_OPTIMIZER, "sgd-momentum", "sgd_momentum"},
    {VP_SETTING_OPTIMIZER, "lion", "lion_32bit"},
    {VP_SETTING_ATTENTION, "flash", "sdpa"},
    {VP_SETTING_ATTENTION, "math", "sdpa:math"},
    {VP_SETTING_ATTENTION, "flash_attention_2", "flash2"},
    {VP_SETTING_ATTENTION, "flash_attention_3", "flash3"},
    {VP_SETTING_ATTENTION, "flex_attention", "flex"},
    {VP_SETTING_PRECISION, "bf16-true", "bf16"},
    {VP_SETTING_PRECISION, "16-mixed", "fp16-mixed"},
};

const char *vp_setting_synonym(vp_setting s, const char *text)
{
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++)
        if (synonyms[i].setting == s && strcmp(synonyms[i].from, text) == 0)
            return synonyms[i].to;
    return text;
}

const char *vp_setting_canonical(vp_arena *arena, vp_setting s, const char *text)
{
    const char *words = table[s].words;
    char        word[64];

    text = vp_setting_synonym(s, text);
    while (*words) {
        size_t      n = strcspn(words, "|");
        const char *argument;
        snprintf(word, sizeof word, "%.*s", (int)n, words);
        if (vp_word_is(text, word, &argument)) {
            if (strcmp(word, "R") == 0) {
                double x = strtod(text, NULL);
                return x == floor(x) && x < 1e15 ? vp_arena_printf(arena, "%.1f", x)
                                                 : vp_arena_printf(arena, "%.15g", x);
            }
            return vp_arena_strdup(arena, text);
        }
        words += n + (words[n] == '|');
    }
    return NULL;
}

/* ---- a settings file ---- */

static const char *const common_keys[] = {
#define X(name, key, otherwise, words) key,
    VP_SETTING_TABLE(X)
#undef X
        "offload",
    NULL};

static vp_status take(vp_arena *arena, const vp_json_node *common, vp_setting s, vp_settings *out,
                      vp_err *err)
{
    const json_t *value = json_object_get(common->value, table[s].key);
    char          number[64], shown[128];
    const char   *text = number;
    vp_status     st   = VP_OK;

    if (!value || json_is_null(value))
        goto out;
    if (json_is_integer(value))
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(number, sizeof number, "%.17g", json_real_value(value));
    else if (json_is_string(value))
        text = json_string_value(value);
    else
        VP_TRY(vp_json_fail(common, table[s].key, err, "expected a number or a word"));
    out->value[s] = vp_setting_canonical(arena, s, text);
    if (!out->value[s])
        VP_TRY(vp_json_fail(common, table[s].key, err, "%s is none of %s%s",
                            vp_text_escape(text, shown, sizeof shown), table[s].words,
                            strchr(table[s].words, 'N') ? ", N a whole number from 1" : ""));
out:
    return st;
}

/* "optimizer+params", or none. */
static vp_status take_offload(const vp_json_node *common, vp_settings *out, vp_err *err)
{
    static const struct {
        const char *word;
        vp_setting  setting;
    } parts[] = {{"optimizer", VP_SETTING_OFFLOAD_OPTIMIZER},
                 {"params", VP_SETTING_OFFLOAD_PARAMS},
                 {"activations", VP_SETTING_OFFLOAD_ACTIVATIONS}};
    const char *text;
    char        shown[128];
    vp_status   st = VP_OK;

    if (!vp_json_has(common, "offload"))
        goto out;
    VP_TRY(vp_json_string(common, "offload", &text, err));
    for (int i = 0; i < 3; i++)
        out->value[parts[i].setting] = "none";
    for (const char *p = text; *p && strcmp(text, "none") != 0;) {
        size_t n     = strcspn(p, "+");
        bool   found = false;
        for (int i = 0; i < 3; i++)
            if (strlen(parts[i].word) == n && memcmp(parts[i].word, p, n) == 0) {
                out->value[parts[i].setting] = "cpu";
                found                        = true;
            }
        if (!found)
            VP_TRY(vp_json_fail(common, "offload", err,
                                "%s is not none, or some of optimizer, params and activations "
                                "joined by +",
                                vp_text_escape(text, shown, sizeof shown)));
        p += n + (p[n] == '+');
    }
out:
    return st;
}

static int64_t bytes_of(const json_t *root, const char *key)
{
    const json_t *v = json_object_get(root, key);

    return json_is_integer(v) ? json_integer_value(v) : -1;
}

static const char *text_of(vp_arena *arena, const json_t *v, const char *member)
{
    v = json_is_object(v) && member ? json_object_get(v, member) : v;
    return json_is_string(v) ? vp_arena_strdup(arena, json_string_value(v)) : NULL;
}

/* model.class, by which a script loads it, and model.labels of a classifier. */
static vp_status take_class(vp_arena *arena, const vp_json_node *root, vp_settings *out,
                            vp_err *err)
{
    const json_t *model = json_object_get(root->value, "model");
    const json_t *named = json_is_object(model) ? json_object_get(model, "class") : NULL,
                 *n     = json_is_object(model) ? json_object_get(model, "labels") : NULL;
    vp_status st        = VP_OK;

    out->model_class = text_of(arena, named, NULL);
    for (const char *p = out->model_class; p && *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_')
            VP_TRY(vp_json_fail(root, "model.class", err, "is no name of a class"));
    if (named && !json_is_null(named) && !out->model_class)
        VP_TRY(vp_json_fail(root, "model.class", err, "must be the name of a class"));
    if (n && !json_is_null(n) &&
        (!json_is_integer(n) || json_integer_value(n) < 1 || json_integer_value(n) > 1000000))
        VP_TRY(vp_json_fail(root, "model.labels", err, "must be a number from 1 to 1,000,000"));
    out->n_labels = json_integer_value(n);
out:
    return st;
}

/* What the data is like: no trainer's file says it, bytes depend on it. */
static vp_status take_padding(const vp_json_node *root, vp_settings *out, vp_err *err)
{
    const char *text;
    vp_status   st = VP_OK;

    if (!vp_json_has(root, "padding"))
        goto out;
    VP_TRY(vp_json_string(root, "padding", &text, err));
    out->padded = strcmp(text, "mask") == 0;
    if (!out->padded && strcmp(text, "none") != 0)
        VP_TRY(vp_json_fail(root, "padding", err, "expected none or mask"));
out:
    return st;
}

/* Of libraries: 5.17 is a text, since 5.10 is no 5.1. */
static vp_status take_versions(const vp_json_node *root, const char *key, json_t **out, vp_err *err)
{
    vp_json_node list;
    const char  *library, *text;
    json_t      *version;
    vp_status    st = VP_OK;

    if (!vp_json_has(root, key))
        goto out;
    VP_TRY(vp_json_object(root, key, &list, err));
    json_object_foreach (list.value, library, version)
        VP_TRY(vp_json_string(&list, library, &text, err));
    *out = list.value;
out:
    return st;
}

static vp_status from_settings(vp_arena *arena, const vp_json_node *root, vp_settings *out,
                               vp_err *err)
{
    vp_json_node common;
    vp_status    st = VP_OK;

    const json_t *version = json_object_get(root->value, "schema_version");
    if (version && (!json_is_integer(version) || json_integer_value(version) != 1))
        VP_TRY(vp_json_fail(root, "schema_version", err, "this vplan reads settings of version 1"));
    VP_TRY(vp_json_object(root, "common", &common, err));
    VP_TRY(vp_json_only_keys(&common, common_keys, err));
    VP_TRY(take_offload(&common, out, err));
    for (int s = 0; s < VP_N_SETTINGS; s++)
        VP_TRY(take(arena, &common, (vp_setting)s, out, err));
    out->document = json_incref(root->value);
    VP_TRY(take_versions(root, "versions", &out->versions, err));
    VP_TRY(take_versions(root, "versions_asked", &out->asked, err));
    out->trainer = text_of(arena, json_object_get(root->value, "trainer"), NULL);
    out->device  = text_of(arena, json_object_get(root->value, "device"), NULL);
    out->model   = text_of(arena, json_object_get(root->value, "model"), "name");
    VP_TRY(take_class(arena, root, out, err));
    VP_TRY(take_padding(root, out, err));
    out->allocated_bytes = bytes_of(root->value, "allocated_peak_bytes");
    out->reserved_bytes  = bytes_of(root->value, "reserved_peak_bytes");
    out->device_bytes    = bytes_of(root->value, "device_bytes");
    int64_t high         = bytes_of(json_object_get(root->value, "interval"), "high_bytes");
    if (high >= out->device_bytes && out->device_bytes >= 0 && out->reserved_bytes >= 0)
        out->reserved_high_bytes = out->reserved_bytes + (high - out->device_bytes);
    if (json_is_number(json_object_get(root->value, "step_time_s")))
        out->step_time_s = json_number_value(json_object_get(root->value, "step_time_s"));
out:
    return st;
}

/* ---- a plan file ---- */

/* What a plan's blocks do, in words that some trainer has; a mix of sets has none. */
static vp_status recompute_of(vp_arena *arena, const vp_plan *plan, const char *file,
                              vp_settings *out, vp_err *err)
{
    const json_t *d    = plan->decisions;
    const char   *text = json_string_value(json_object_get(d, "recompute"));
    char          shown[256];

    out->value[VP_SETTING_RECOMPUTE] =
        text ? vp_setting_canonical(arena, VP_SETTING_RECOMPUTE, text) : NULL;
    if (!out->value[VP_SETTING_RECOMPUTE])
        return VP_FAIL_AT(err, VP_ERR_INPUT, file, 0, "decisions.recompute",
                          "no trainer's file can be told what this plan's blocks do (%s): plan "
                          "again with --recompute none or full",
                          vp_text_escape(text ? text : "not in one word", shown, sizeof shown));
    return VP_OK;
}

static vp_status from_plan(vp_arena *arena, const vp_json_node *root, const char *file,
                           vp_settings *out, vp_err *err)
{
    vp_plan         *plan = NULL;
    char             text[64];
    const vp_bucket *b;
    vp_status        st = VP_OK;

    VP_TRY(vp_plan_from_json(root, &plan, err));
    b = &plan->buckets[0];
    snprintf(text, sizeof text, "%lld", (long long)b->micro_batch);
    out->value[VP_SETTING_MICRO_BATCH] = vp_arena_strdup(arena, text);
    snprintf(text, sizeof text, "%lld", (long long)b->n_micro_steps);
    out->value[VP_SETTING_ACCUMULATION] = vp_arena_strdup(arena, text);
    snprintf(text, sizeof text, "%lld", (long long)b->seq);
    out->value[VP_SETTING_SEQ]       = vp_arena_strdup(arena, text);
    const char *precision            = vp_precision_name(plan->recipe.precision);
    const char *optimizer            = vp_optimizer_name(plan->recipe.optimizer);
    out->value[VP_SETTING_PRECISION] = vp_setting_canonical(arena, VP_SETTING_PRECISION, precision);
    out->value[VP_SETTING_OPTIMIZER] = vp_setting_canonical(arena, VP_SETTING_OPTIMIZER, optimizer);
    if (!out->value[VP_SETTING_PRECISION] || !out->value[VP_SETTING_OPTIMIZER])
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, file, 0, "recipe",
                          "no trainer's word for precision %s with optimizer %s", precision,
                          optimizer));
    snprintf(text, sizeof text, "%.15g", plan->recipe.clip_norm);
    out->value[VP_SETTING_CLIP_NORM] = vp_setting_canonical(arena, VP_SETTING_CLIP_NORM, text);
    VP_TRY(recompute_of(arena, plan, file, out, err));
    const char *attention = json_string_value(json_object_get(plan->settings, "attention"));
    int64_t     chunk = json_integer_value(json_object_get(plan->decisions, "loss_chunk_tokens"));
    snprintf(text, sizeof text, "chunked:%lld", (long long)chunk);
    out->value[VP_SETTING_LOSS] = chunk ? vp_arena_strdup(arena, text) : "full";
    if (attention)
        out->value[VP_SETTING_ATTENTION] =
            vp_setting_canonical(arena, VP_SETTING_ATTENTION, attention);
    out->trainer = "vplan";
    out->model   = vp_arena_strdup(arena, plan->model_name);
    out->device  = vp_arena_strdup(arena, plan->device);
out:
    vp_plan_free(plan);
    return st;
}

vp_status vp_settings_read(vp_arena *arena, const char *path, vp_settings *out, vp_err *err)
{
    vp_json_doc *doc = NULL;
    vp_json_node root;
    vp_status    st = VP_OK;

    *out = VP_SETTINGS_UNSAID;
    VP_TRY(vp_json_read(path, (int64_t)64 << 20, &doc, err));
    root = vp_json_root(doc);
    if (!json_is_object(root.value))
        VP_TRY(vp_json_fail(&root, NULL, err, "expected an object"));
    if (vp_json_has(&root, "common"))
        VP_TRY(from_settings(arena, &root, out, err));
    else if (vp_json_has(&root, "buckets") || vp_json_has(&root, "programs") ||
             vp_json_has(&root, "templates"))
        VP_TRY(from_plan(arena, &root, path, out, err));
    else
        VP_TRY(vp_json_fail(&root, NULL, err,
                            "neither settings (an object `common`) nor a plan of vplan's"));
out:
    vp_json_doc_free(doc);
    if (st != VP_OK)
        vp_settings_release(out);
    return st;
}

void vp_settings_release(vp_settings *s)
{
    json_decref(s->document);
    s->document = s->versions = NULL;
}

vp_status vp_settings_complete(vp_arena *arena, vp_settings *s, const char *file, vp_err *err)
{
    vp_status st = VP_OK;

    for (int i = 0; i < VP_N_SETTINGS; i++) {
        vp_setting waits_for = vp_setting_waits_for((vp_setting)i, s);
        if (s->value[i] && waits_for == VP_N_SETTINGS)
            continue;
        if (s->value[i])
            VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, file, 0, table[i].key,
                              "common.%s is given, and common.%s is %s", table[i].key,
                              table[waits_for].key, or_usual(s, waits_for)));
        if (waits_for != VP_N_SETTINGS)
            continue;
        if (!table[i].otherwise)
            VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, file, 0, table[i].key,
                              "common.%s must be given: %s", table[i].key, table[i].words));
        s->value[i] = table[i].otherwise;
        s->assumed[s->n_assumed] =
            vp_arena_printf(arena, "%s is not given: %s", table[i].key, table[i].otherwise);
        VP_TRY_ALLOC(err, s->assumed[s->n_assumed]);
        s->n_assumed++;
    }
    if (s->value[VP_SETTING_COMPLETION] && strtoll(s->value[VP_SETTING_COMPLETION], NULL, 10) >=
                                               strtoll(s->value[VP_SETTING_SEQ], NULL, 10))
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, file, 0, table[VP_SETTING_COMPLETION].key,
                          "completions of %s tokens leave no prompt in sequences of %s, which "
                          "count both",
                          s->value[VP_SETTING_COMPLETION], s->value[VP_SETTING_SEQ]));
out:
    return st;
}

json_t *vp_settings_common_json(const vp_settings *s)
{
    json_t *j       = json_object();
    char    off[48] = "";
    bool    said    = false;

    for (int i = 0; j && i < VP_N_SETTINGS; i++) {
        const char *v = s->value[i];
        if (i == VP_SETTING_OFFLOAD_OPTIMIZER || i == VP_SETTING_OFFLOAD_PARAMS ||
            i == VP_SETTING_OFFLOAD_ACTIVATIONS) {
            said = said || v;
            if (v && strcmp(v, "cpu") == 0)
                snprintf(off + strlen(off), sizeof off - strlen(off), "%s%s", off[0] ? "+" : "",
                         table[i].key + strlen("offload_"));
            continue;
        }
        if (!v)
            continue;
        if (is_argument(v, 'N'))
            json_object_set_new(j, table[i].key, json_integer(strtoll(v, NULL, 10)));
        else if (strcmp(table[i].words, "R") == 0)
            json_object_set_new(j, table[i].key, json_real(strtod(v, NULL)));
        else
            json_object_set_new(j, table[i].key, json_string(v));
    }
    if (j && said)
        json_object_set_new(j, "offload", json_string(off[0] ? off : "none"));
    return j;
}
