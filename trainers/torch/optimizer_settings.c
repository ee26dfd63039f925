#include "trainers/torch/optimizer_settings.h"

#include "base/text.h"
#include "base/units.h"

#include <regex.h>
#include <stdio.h>
#include <string.h>

/* What transformers 5.17 reads of optim_args for those that project; which bytes hang on it. */
typedef enum key { KEY_RANK, KEY_PROJ_TYPE, KEY_SCALE_TYPE, KEY_PROJ, KEY_TARGETS, KEY_OTHER } key;

static const struct {
    const char *name;
    key         key;
    bool        apollos;
} keys[] = {
    {"rank", KEY_RANK, false},
    {"targets", KEY_TARGETS, false},
    {"proj_type", KEY_PROJ_TYPE, false},
    {"update_proj_gap", KEY_OTHER, false},
    {"scale", KEY_OTHER, false},
    {"proj", KEY_PROJ, true},
    {"scale_type", KEY_SCALE_TYPE, true},
};

enum { N_KEYS = sizeof keys / sizeof *keys, RANK = 128, MAX_RANK = 65536 };

static const char *const sides[] = {
    [VP_PROJECT_STD]     = "std",
    [VP_PROJECT_REVERSE] = "reverse_std",
    [VP_PROJECT_LEFT]    = "left",
    [VP_PROJECT_RIGHT]   = "right",
};

size_t vp_optimizer_name_length(const char *word)
{
    return strcspn(word, ":");
}

static bool is_apollo(const vp_optimizer_settings *s)
{
    return strncmp(s->name, "apollo_", strlen("apollo_")) == 0;
}

static bool projects(const vp_optimizer_settings *s)
{
    return is_apollo(s) || s->by_svd;
}

static vp_status unknown_value(const vp_optimizer_settings *s, const char *name, const char *value,
                               const char *known, vp_err *err)
{
    char shown[80];

    return VP_FAIL(err, VP_ERR_INPUT, "optimizer %s: %s %s is not counted; %s", s->name, name,
                   vp_text_escape(value, shown, sizeof shown), known);
}

static vp_status take(vp_optimizer_settings *s, int which, const char *value, vp_err *err)
{
    const char *name = keys[which].name;

    switch (keys[which].key) {
    case KEY_RANK:
        return vp_count_parse(value, "rank", 1, MAX_RANK, &s->rank, err);
    case KEY_PROJ_TYPE:
        for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
            if (strcmp(value, sides[i]) == 0) {
                s->projection = (vp_projection)i;
                return VP_OK;
            }
        return unknown_value(s, name, value, "std, reverse_std, left and right are", err);
    case KEY_SCALE_TYPE:
        s->by_tensor = strcmp(value, "tensor") == 0;
        if (!s->by_tensor && strcmp(value, "channel") != 0)
            return unknown_value(s, name, value, "channel and tensor are", err);
        return VP_OK;
    case KEY_PROJ:
        if (strcmp(value, "random") != 0)
            return unknown_value(s, name, value, "random is", err);
        return VP_OK;
    case KEY_TARGETS:
        if (!*value || strlen(value) >= sizeof s->targets)
            return unknown_value(s, name, value, "all-linear, or modules joined by +", err);
        snprintf(s->targets, sizeof s->targets, "%s", value);
        return VP_OK;
    case KEY_OTHER:
        break;
    }
    return VP_OK;
}

/* "key=value" in text, of n letters. */
static vp_status take_one(vp_optimizer_settings *s, const char *text, size_t n, vp_err *err)
{
    char        one[VP_OPTIMIZER_TARGETS + 40], shown[80];
    const char *names[N_KEYS];
    char       *value;
    int         n_names = 0;
    vp_text     list    = {0};
    vp_status   st      = VP_OK;

    if (n >= sizeof one)
        return VP_FAIL(err, VP_ERR_INPUT, "optimizer %s: what it is told is too long", s->name);
    snprintf(one, sizeof one, "%.*s", (int)n, text);
    value = strchr(one, '=');
    if (!value)
        return VP_FAIL(err, VP_ERR_INPUT, "optimizer %s: %s is not KEY=VALUE", s->name,
                       vp_text_escape(one, shown, sizeof shown));
    *value++ = '\0';
    for (int i = 0; i < N_KEYS && projects(s); i++) {
        if (keys[i].apollos && !is_apollo(s))
            continue;
        if (strcmp(keys[i].name, one) == 0)
            return take(s, i, value, err);
        names[n_names++] = keys[i].name;
    }
    if (!n_names)
        return VP_FAIL(err, VP_ERR_INPUT, "optimizer %s is told nothing here: %s", s->name,
                       vp_text_escape(one, shown, sizeof shown));
    for (int i = 0; i < n_names; i++)
        vp_text_printf(&list, "%s%s", i ? ", " : "", names[i]);
    VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "optimizer %s: %s is none of its keys, which are %s", s->name,
                   vp_text_escape(one, shown, sizeof shown), list.data));
out:
    vp_text_release(&list);
    return st;
}

vp_status vp_optimizer_settings_parse(const char *word, vp_optimizer_settings *out, vp_err *err)
{
    size_t    length = vp_optimizer_name_length(word);
    vp_status st     = VP_OK;

    *out = (vp_optimizer_settings){.rank = 0};
    snprintf(out->name, sizeof out->name, "%.*s", (int)length, word);
    out->by_svd = strncmp(word, "galore_", strlen("galore_")) == 0;
    out->rank   = projects(out) ? RANK : 0;
    for (const char *at = word + length; *at;) {
        size_t n = strcspn(++at, ",");
        VP_TRY(take_one(out, at, n, err));
        at += n;
    }
    if (projects(out) && !out->targets[0])
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT,
                       "optimizer %s: of which linear layers? %s:targets=all-linear, or their "
                       "names joined by +, as optim_target_modules says, without which Trainer "
                       "ends",
                       out->name, out->name));
    if (is_apollo(out) && out->projection != VP_PROJECT_STD && !out->by_tensor)
        VP_TRY(VP_FAIL(
            err, VP_ERR_INPUT,
            "optimizer %s with proj_type %s ends with an error: it scales channels of "
            "the longer side (RuntimeError: sizes of tensors must match); scale_type=tensor "
            "runs",
            out->name, sides[out->projection]));
out:
    return st;
}

static bool matches_all(const char *pattern, const char *module)
{
    char    whole[VP_OPTIMIZER_TARGETS + 8];
    regex_t compiled;
    bool    found;

    snprintf(whole, sizeof whole, "^(%s)$", pattern);
    if (regcomp(&compiled, whole, REG_EXTENDED | REG_NOSUB) != 0)
        return false;
    found = regexec(&compiled, module, 0, NULL, 0) == 0;
    regfree(&compiled);
    return found;
}

bool vp_optimizer_projects(const vp_optimizer_settings *s, const char *module)
{
    char one[VP_OPTIMIZER_TARGETS];

    if (strcmp(s->targets, "all-linear") == 0)
        return true;
    for (const char *at = s->targets; *at; at += *at == '+') {
        size_t n = strcspn(at, "+");
        snprintf(one, sizeof one, "%.*s", (int)n, at);
        if (n && (strstr(module, one) || matches_all(one, module)))
            return true;
        at += n;
    }
    return false;
}
