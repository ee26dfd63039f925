/* trainers/files/edit_place.c: where keys and values stand in the text of a file. */
#include "trainers/files/edit_internal.h"

#include <ctype.h>
#include <string.h>

vp_status vp_edit_by_hand(vp_editor *e, int line, const char *key, const char *why)
{
    return VP_FAIL_AT(e->err, VP_ERR_INPUT, e->file->name, line, key,
                      "%s cannot be changed in place: %s; change it by hand", key, why);
}

size_t vp_edit_line_start(const vp_editor *e, int line)
{
    size_t at = 0;

    while (--line > 0 && at < e->n_bytes) {
        const char *end = memchr(e->bytes + at, '\n', e->n_bytes - at);
        at              = end ? (size_t)(end - e->bytes) + 1 : e->n_bytes;
    }
    return at;
}

/* Of the byte order mark, which the readers do not count. */
static size_t mark_size(const vp_editor *e)
{
    return e->n_bytes >= 3 && memcmp(e->bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

size_t vp_edit_place(const vp_editor *e, const vp_value *v)
{
    size_t at = vp_edit_line_start(e, v->line) + (size_t)(v->column > 0 ? v->column - 1 : 0);

    at += v->line == 1 ? mark_size(e) : 0;
    return at < e->n_bytes ? at : e->n_bytes;
}

size_t vp_edit_line_end(const vp_editor *e, size_t at)
{
    const char *end = memchr(e->bytes + at, '\n', e->n_bytes - at);

    return end ? (size_t)(end - e->bytes) : e->n_bytes;
}

bool vp_edit_is_first(const vp_editor *e, size_t at)
{
    while (at > 0 && (e->bytes[at - 1] == ' ' || e->bytes[at - 1] == '\t'))
        at--;
    return at == mark_size(e) || e->bytes[at - 1] == '\n';
}

size_t vp_edit_before_comment(const vp_editor *e, size_t at)
{
    size_t start = at;

    while (start > 0 && e->bytes[start - 1] != '\n')
        start--;
    for (size_t i = start; i < at && e->file->doc->format != VP_FORMAT_JSON; i++)
        if (e->bytes[i] == '#' && (i == start || isspace((unsigned char)e->bytes[i - 1])))
            return i;
    return at;
}

bool vp_edit_is_in_flow(const vp_editor *e, size_t at)
{
    for (size_t from = at + 1; at < from && at > 0;) {
        from = at;
        while (at > 0 && isspace((unsigned char)e->bytes[at - 1]))
            at--;
        at = vp_edit_before_comment(e, at);
    }
    return at > 0 && strchr("{,(", e->bytes[at - 1]);
}

size_t vp_edit_skip_spaces(const vp_editor *e, size_t at, size_t end)
{
    while (at < end && (e->bytes[at] == ' ' || e->bytes[at] == '\t'))
        at++;
    return at;
}

size_t vp_edit_value_start(const vp_editor *e, size_t at)
{
    while (at < e->n_bytes) {
        if (isspace((unsigned char)e->bytes[at]))
            at++;
        else if (e->bytes[at] == '#' && e->file->doc->format != VP_FORMAT_JSON)
            at = vp_edit_line_end(e, at);
        else
            break;
    }
    return at;
}

size_t vp_edit_skip_quoted(const vp_editor *e, size_t at, size_t end)
{
    char quote = e->bytes[at++];

    for (; at < end; at++) {
        if (e->bytes[at] == '\\' && quote == '"')
            at++;
        else if (e->bytes[at] == quote)
            return at + 1;
    }
    return end;
}

static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot ? dot + 1 : path;
}

bool vp_edit_skip_key(const vp_editor *e, const char *path, size_t *at, size_t end)
{
    const char *name = last_part(path);
    size_t      n    = strlen(name);
    bool        flag = e->file->doc->format == VP_FORMAT_FLAGS;

    if (e->file->doc->format == VP_FORMAT_TOML && end - *at >= strlen(path) &&
        memcmp(e->bytes + *at, path, strlen(path)) == 0)
        name = path, n = strlen(path); /* TOML's own a.b.c = value */
    if (*at < end && (e->bytes[*at] == '"' || e->bytes[*at] == '\''))
        ++*at;
    while (flag && *at < end && e->bytes[*at] == '-')
        ++*at;
    for (size_t i = 0; i < n; i++, ++*at) {
        char c = *at < end ? e->bytes[*at] : '\0';
        if (c != name[i] && !(flag && (c == '-' || c == '_') && (name[i] == '_' || name[i] == '-')))
            return false;
    }
    if (*at < end && (e->bytes[*at] == '"' || e->bytes[*at] == '\''))
        ++*at;
    *at = vp_edit_skip_spaces(e, *at, end);
    if (*at < end && (e->bytes[*at] == ':' || e->bytes[*at] == '='))
        *at = vp_edit_skip_spaces(e, *at + 1, end);
    else if (!flag)
        return false;
    return true;
}

bool vp_edit_value_end(const vp_editor *e, size_t at, size_t end, bool flow, size_t *out)
{
    vp_format format = e->file->doc->format;
    int       depth  = 0;

    if (at < end && strchr("|>&*!", e->bytes[at]) && format == VP_FORMAT_YAML)
        return false;
    if (at < end && (e->bytes[at] == '"' || e->bytes[at] == '\'')) {
        *out = vp_edit_skip_quoted(e, at, end);
        return *out < end || e->bytes[end - 1] == e->bytes[at];
    }
    for (*out = at; *out < end; ++*out) {
        char c = e->bytes[*out];
        if (c == '[' || c == '{' || c == '(')
            depth++;
        else if (depth && (c == ']' || c == '}' || c == ')'))
            depth--;
        else if (!depth && (c == ']' || c == '}' || c == ')' || c == ',') &&
                 (flow || format != VP_FORMAT_YAML) && format != VP_FORMAT_FLAGS)
            break;
        else if (!depth && c == '#' && *out > at && isspace((unsigned char)e->bytes[*out - 1]))
            break;
        else if (format == VP_FORMAT_FLAGS && isspace((unsigned char)c))
            break;
    }
    while (*out > at && isspace((unsigned char)e->bytes[*out - 1]))
        --*out;
    return depth == 0;
}

vp_status vp_edit_put(vp_editor *e, size_t at, size_t n_removed, const char *text)
{
    vp_status st = VP_OK;

    VP_TRY_ALLOC(e->err, text && vp_arena_grow(e->arena, (void **)&e->patches, e->n, &e->cap,
                                               sizeof *e->patches));
    e->patches[e->n] = (vp_patch){at, n_removed, text, (int)e->n};
    e->n++;
out:
    return st;
}
