#include "trainers/files/told.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *vp_told_text(vp_arena *arena, const char *text, bool of_targets)
{
    const char *at = strstr(text, "targets="), *end = at ? at + strcspn(at, ",") : NULL;

    if (of_targets)
        return at ? vp_arena_printf(arena, "%.*s", (int)(end - at) - 8, at + 8) : "";
    if (!at)
        return text;
    if (at > text)
        return vp_arena_printf(arena, "%.*s%s", (int)(at - text) - 1, text, end);
    return *end ? end + 1 : end;
}

/* What transformers takes where optim_args does not say it (trainer_optimizer.py). */
static const struct {
    const char *name, *value;
} usual[] = {{"rank", "128"}, {"proj_type", "std"}, {"scale_type", "channel"}, {"proj", "random"}};

enum { N_USUAL = sizeof usual / sizeof *usual };

const char *vp_told_value(vp_arena *arena, const char *told, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = told; *p; p += *p == ',') {
        if (strncmp(p, name, n) == 0 && p[n] == '=')
            return vp_arena_printf(arena, "%.*s", (int)strcspn(p + n + 1, ","), p + n + 1);
        p += strcspn(p, ",");
    }
    for (int i = 0; i < N_USUAL; i++)
        if (strcmp(usual[i].name, name) == 0)
            return usual[i].value;
    return "";
}

/* All linear layers but the head, which has no module above it (find_all_linear_modules() of LLaMA-Factory). */
#define ALL_BUT_THE_HEAD ".*[.].*"

const char *vp_told_parts(vp_arena *arena, const char *told)
{
    char *text = vp_arena_strdup(arena, vp_told_text(arena, told, true));

    if (text && strcmp(text, ALL_BUT_THE_HEAD) == 0)
        return "all";
    for (char *p = text; p && *p; p++)
        if (*p == '+')
            *p = ',';
    return text;
}

/* transformers' _parse_optim_args(). */
static void drop_spaces(char *text)
{
    char *to = text;

    for (const char *from = text; *from; from++)
        if (*from != ' ')
            *to++ = *from;
    *to = '\0';
}

/* ---- targets: a list's members are parts of names, or patterns that a name matches as a whole; a text alone is such a pattern
 * (check_target_module_exists() in transformers/trainer_utils.py) ---- */

static bool is_part(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strchr("*?[(|^$\\{", p[i]))
            return false;
    return true;
}

const char *vp_told_pattern(vp_arena *arena, const char *targets)
{
    char *pattern = vp_arena_alloc(arena, 6 * strlen(targets) + 1), *to = pattern;

    if (!pattern)
        return NULL;
    for (const char *p = targets; *p; p += *p == '+') {
        size_t n     = strcspn(p, "+");
        bool   plain = is_part(p, n);
        to += sprintf(to, "%s%s", p > targets ? "|" : "", plain ? ".*" : "");
        for (; n > 0; n--, p++)
            to += sprintf(to, "%s%c", plain && *p == '.' ? "\\" : "", *p);
        to += sprintf(to, "%s", plain ? ".*" : "");
    }
    *to = '\0';
    return pattern;
}

/* Letters up to the first bar outside of brackets. */
static size_t choice_length(const char *p, size_t n)
{
    int depth = 0;

    for (size_t i = 0; i < n; i++) {
        if (p[i] == '\\')
            i++;
        else if (p[i] == '|' && depth == 0)
            return i;
        else
            depth += (p[i] == '(' || p[i] == '[') - (p[i] == ')' || p[i] == ']');
    }
    return n;
}

/* As a member of a list: ".*attn.*" is the part "attn". Never longer than it was. */
static char *put_choice(char *to, const char *p, size_t n)
{
    bool   is_any = n > 4 && strncmp(p, ".*", 2) == 0 && strncmp(p + n - 2, ".*", 2) == 0;
    size_t i      = 2;

    for (; is_any && i < n - 2; i++) {
        if (p[i] == '\\' && p[i + 1] == '.')
            i++;
        else if (p[i] == '.' || !is_part(p + i, 1))
            break;
    }
    if (!is_any || i != n - 2) {
        memmove(to, p, n);
        return to + n;
    }
    for (i = 2; i < n - 2; i++)
        if (p[i] != '\\')
            *to++ = p[i];
    return to;
}

/* A pattern of several choices is as many members, unless one of them is a whole name: as a member it would be a part. */
static char *put_member(char *to, const char *p, size_t n)
{
    size_t length;

    for (size_t i = 0; choice_length(p, n) < n && i < n; i += length + 1) {
        length = choice_length(p + i, n - i);
        if (is_part(p + i, length)) {
            memmove(to, p, n);
            return to + n;
        }
    }
    for (size_t i = 0; i < n; i += length + 1) {
        length = choice_length(p + i, n - i);
        if (i > 0)
            *to++ = '+';
        to = put_choice(to, p + i, length);
    }
    return to;
}

static bool is_all(const char *text)
{
    return strcmp(text, "all-linear") == 0 || strcmp(text, "all_linear") == 0;
}

/* What the word of an optimizer cannot hold, or Python alone reads so. */
static bool is_uncounted(const char *pattern)
{
    for (const char *p = pattern; *p; p++)
        if (*p == ',' || *p == '+' || (*p == '(' && p[1] == '?') ||
            (*p == '\\' && isalnum((unsigned char)p[1])))
            return true;
    return false;
}

vp_told_targets vp_told_judge(const vp_value *v)
{
    if (v->kind == VP_VALUE_LIST) {
        for (const vp_value *e = v->first; e; e = e->next)
            if (e->kind == VP_VALUE_STRING && is_uncounted(e->text))
                return VP_TOLD_UNCOUNTED;
        return VP_TOLD_COUNTED;
    }
    if (v->kind != VP_VALUE_STRING)
        return VP_TOLD_UNKNOWN;
    for (const char *p = strchr(v->text, '$'); p; p = strchr(p + 1, '$'))
        if (isalnum((unsigned char)p[1]) || (p[1] && strchr("_{(@", p[1])))
            return VP_TOLD_UNKNOWN;
    if (is_all(v->text))
        return VP_TOLD_COUNTED;
    if (is_part(v->text, strlen(v->text)))
        return VP_TOLD_WHOLE_NAME;
    return is_uncounted(v->text) ? VP_TOLD_UNCOUNTED : VP_TOLD_COUNTED;
}

static bool read_targets(const vp_value *v, char *text)
{
    char  *to      = text;
    size_t n       = 0;
    bool   is_list = v->kind == VP_VALUE_LIST;

    if (vp_told_judge(v) != VP_TOLD_COUNTED)
        return false;
    if (is_all(text)) {
        text[3] = '-';
        return true;
    }
    for (const char *p = text; *p; p += n) {
        if (*p == '+')
            *to++ = *p++;
        n  = is_list ? strcspn(p, "+") : strlen(p);
        to = put_member(to, p, n);
    }
    *to = '\0';
    return true;
}

bool vp_told_read(const vp_value *v, bool of_targets, char *text, size_t size)
{
    if (of_targets)
        return v && read_targets(v, text);
    if (!v || v->kind == VP_VALUE_MAP)
        text[0] = '\0';
    for (const vp_value *e = v && v->kind == VP_VALUE_MAP ? v->first : NULL; e; e = e->next) {
        size_t n = strlen(text);
        snprintf(text + n, size - n, "%s%s=%s", n ? "," : "", e->key, e->text ? e->text : "");
    }
    drop_spaces(text);
    return true;
}

void vp_told_read_parts(char *text, size_t size)
{
    char *to = text;

    drop_spaces(text);
    if (strcmp(text, "all") == 0) {
        snprintf(text, size, ALL_BUT_THE_HEAD);
        return;
    }
    for (; *to; to++)
        if (*to == ',')
            *to = '+';
    if (is_all(text) || !is_part(text, strlen(text)))
        text[0] = '\0';
}

void vp_told_add(char *told, size_t n, const char *name, const char *value)
{
    size_t n_told = strlen(told);

    for (int i = 0; i < N_USUAL; i++)
        if (strcmp(usual[i].name, name) == 0 && strcmp(usual[i].value, value) == 0)
            return;
    snprintf(told + n_told, n - n_told, "%s%s=%s", n_told ? "," : "", name, value);
}

void vp_told_add_targets(char *told, size_t n, const char *targets)
{
    size_t n_told = strlen(told);

    snprintf(told + n_told, n - n_told, "%stargets=%s", n_told ? "," : "", targets);
}

bool vp_told_of(const char *text, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = text; *p; p += strcspn(p, ",")) {
        p += strspn(p, ", ");
        if (strncmp(p, name, n) == 0 && p[n] == '=')
            return strtod(p + n + 1, NULL) != 0;
    }
    return false;
}
