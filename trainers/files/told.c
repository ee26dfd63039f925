#include "trainers/files/told.h"

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

/* transformers' _parse_optim_args(). */
static void drop_spaces(char *text)
{
    char *to = text;

    for (const char *from = text; *from; from++)
        if (*from != ' ')
            *to++ = *from;
    *to = '\0';
}

/* A list's members are parts of names or patterns; a text alone is a pattern that a name matches as a whole, so a plain one says
 * nothing here. */
static bool read_targets(const vp_value *v, char *text)
{
    if (strcmp(text, "all_linear") == 0)
        text[3] = '-';
    return v->kind == VP_VALUE_LIST || strcmp(text, "all-linear") == 0 || strpbrk(text, "*[(|^$");
}

bool vp_told_read(const vp_value *v, bool of_targets, char *text)
{
    if (of_targets)
        return v && read_targets(v, text);
    if (!v)
        text[0] = '\0';
    drop_spaces(text);
    return true;
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
