/* trainers/files/edit_text.c: edits in the text of a file. Every edit is a patch: some bytes at some
 * place become others; they are made from the last to the first. */
#include "trainers/files/edit.h"
#include "trainers/files/emit.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct patch {
    size_t      at, n_removed;
    const char *text;
    int         order; /* among patches of one place */
} patch;

typedef struct editor {
    vp_arena              *arena;
    const vp_checked_file *file;
    const char            *bytes;
    size_t                 n_bytes;
    patch                 *patches;
    int64_t                n, cap;
    vp_err                *err;
} editor;

static vp_status by_hand(editor *e, int line, const char *key, const char *why)
{
    return VP_FAIL_AT(e->err, VP_ERR_INPUT, e->file->name, line, key,
                      "%s cannot be changed in place: %s; change it by hand", key, why);
}

/* ---- where things stand ---- */

static size_t line_start(const editor *e, int line)
{
    size_t at = 0;

    while (--line > 0 && at < e->n_bytes) {
        const char *end = memchr(e->bytes + at, '\n', e->n_bytes - at);
        at              = end ? (size_t)(end - e->bytes) + 1 : e->n_bytes;
    }
    return at;
}

static size_t place_of(const editor *e, const vp_value *v)
{
    size_t at = line_start(e, v->line) + (size_t)(v->column > 0 ? v->column - 1 : 0);

    return at < e->n_bytes ? at : e->n_bytes;
}

static size_t line_end(const editor *e, size_t at)
{
    const char *end = memchr(e->bytes + at, '\n', e->n_bytes - at);

    return end ? (size_t)(end - e->bytes) : e->n_bytes;
}

static bool is_first_of_line(const editor *e, size_t at)
{
    while (at > 0 && (e->bytes[at - 1] == ' ' || e->bytes[at - 1] == '\t'))
        at--;
    return at == 0 || e->bytes[at - 1] == '\n';
}

/* Whether a key stands in braces: what is before it, spaces and lines apart, is one or a comma. */
static bool is_in_flow(const editor *e, size_t at)
{
    while (at > 0 && isspace((unsigned char)e->bytes[at - 1]))
        at--;
    return at > 0 && strchr("{,(", e->bytes[at - 1]);
}

static size_t skip_spaces(const editor *e, size_t at, size_t end)
{
    while (at < end && (e->bytes[at] == ' ' || e->bytes[at] == '\t'))
        at++;
    return at;
}

/* Behind the quoted text that begins at `at`; end where it does not end. */
static size_t skip_quoted(const editor *e, size_t at, size_t end)
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

/* Behind the key and what parts it from its value. False: another text stands there. */
static bool skip_key(const editor *e, const char *path, size_t *at, size_t end)
{
    const char *name = last_part(path);
    size_t      n    = strlen(name);
    bool        flag = e->file->doc->format == VP_FORMAT_FLAGS;

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
    *at = skip_spaces(e, *at, end);
    if (*at < end && (e->bytes[*at] == ':' || e->bytes[*at] == '='))
        *at = skip_spaces(e, *at + 1, end);
    else if (!flag)
        return false;
    return true;
}

/* The end of a value that begins at `at`. False: it goes on in another line, or is no plain one. */
static bool value_end(const editor *e, size_t at, size_t end, bool flow, size_t *out)
{
    vp_format format = e->file->doc->format;
    int       depth  = 0;

    if (at < end && strchr("|>&*!", e->bytes[at]) && format == VP_FORMAT_YAML)
        return false;
    if (at < end && (e->bytes[at] == '"' || e->bytes[at] == '\'')) {
        *out = skip_quoted(e, at, end);
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

/* ---- patches ---- */

static vp_status put(editor *e, size_t at, size_t n_removed, const char *text)
{
    vp_status st = VP_OK;

    VP_TRY_ALLOC(e->err, text && vp_arena_grow(e->arena, (void **)&e->patches, e->n, &e->cap,
                                               sizeof *e->patches));
    e->patches[e->n] = (patch){at, n_removed, text, (int)e->n};
    e->n++;
out:
    return st;
}

/* "key: value" of a format; rest: the path below the map that is there, whose other parts are made. */
static const char *pair_text(editor *e, const vp_edit *x, const char *rest, int indent, bool flow,
                             bool quoted)
{
    vp_format   format = e->file->doc->format;
    vp_value    v      = {0};
    vp_text     text   = {0};
    const char *kept;
    int         depth = 0;

    if (!vp_value_set(e->file->doc, &v, x->key, x->to))
        return NULL;
    if (format == VP_FORMAT_FLAGS) {
        kept = vp_arena_printf(e->arena, "--%s %s", rest, x->to);
        return kept;
    }
    for (const char *dot; (dot = strchr(rest, '.')) != NULL; rest = dot + 1, depth++) {
        if (format == VP_FORMAT_YAML && !flow)
            vp_text_printf(&text, "%.*s:\n%*s", (int)(dot - rest), rest, indent + 2 * (depth + 1),
                           "");
        else
            vp_text_printf(&text, quoted ? "\"%.*s\": {" : "%.*s: {", (int)(dot - rest), rest);
    }
    vp_text_printf(&text, quoted ? "\"%s\": " : format == VP_FORMAT_PYTHON ? "%s=" : "%s: ", rest);
    vp_value_write(&v, format, &text);
    while (depth-- > 0 && (format != VP_FORMAT_YAML || flow))
        vp_text_printf(&text, "}");
    kept = text.failed ? NULL : vp_arena_strdup(e->arena, text.data);
    vp_text_release(&text);
    return kept;
}

static vp_status replace(editor *e, const vp_edit *x)
{
    size_t    key = place_of(e, x->at), at = key, end = line_end(e, key), stop;
    vp_value  v    = {0};
    vp_text   text = {0};
    vp_status st   = VP_OK;

    if (!skip_key(e, x->path, &at, end))
        VP_TRY(by_hand(e, x->at->line, x->path, "it does not stand there itself"));
    if (x->at->kind == VP_VALUE_MAP || !value_end(e, at, end, is_in_flow(e, key), &stop))
        VP_TRY(by_hand(e, x->at->line, x->path, "its value takes several lines"));
    if (x->at->kind == VP_VALUE_LIST && (at == end || e->bytes[at] != '['))
        VP_TRY(by_hand(e, x->at->line, x->path, "its value is a list over several lines"));
    VP_TRY_ALLOC(e->err, vp_value_set(e->file->doc, &v, x->key, x->to));
    if (at > 0 && e->bytes[at - 1] == ':')
        vp_text_printf(&text, " ");
    if (e->file->doc->format == VP_FORMAT_FLAGS)
        vp_text_printf(&text, "%s", x->to);
    else
        vp_value_write(&v, e->file->doc->format, &text);
    VP_TRY_ALLOC(e->err, !text.failed);
    VP_TRY(put(e, at, stop - at, vp_arena_strdup(e->arena, text.data)));
out:
    vp_text_release(&text);
    return st;
}

/* A pair that has its line to itself goes with the line. */
static vp_status take_out(editor *e, const vp_edit *x)
{
    size_t    key = place_of(e, x->at), at = key, end = line_end(e, key), stop;
    vp_status st = VP_OK;

    if (!is_first_of_line(e, key) || !skip_key(e, x->path, &at, end) ||
        !value_end(e, at, end, is_in_flow(e, key), &stop))
        VP_TRY(by_hand(e, x->at->line, x->path, "it must go, and does not stand in a line alone"));
    if (e->file->doc->format != VP_FORMAT_YAML && (stop >= end || e->bytes[stop] != ','))
        VP_TRY(by_hand(e, x->at->line, x->path, "it must go, and is the last of its map"));
    at = line_start(e, x->at->line);
    VP_TRY(put(e, at, end - at + (end < e->n_bytes), ""));
out:
    return st;
}

/* The deepest map on the path that is there; *rest: the path below it. */
static const vp_value *container_of(const editor *e, const char *path, const char **rest)
{
    const vp_value *map = e->file->doc->root;
    char            part[256];

    *rest = path;
    for (const char *dot = strchr(path, '.'); dot; dot = strchr(dot + 1, '.')) {
        const vp_value *v;
        if ((size_t)(dot - path) >= sizeof part)
            break;
        memcpy(part, path, (size_t)(dot - path));
        part[dot - path] = '\0';
        v                = vp_value_at(e->file->doc->root, part);
        if (!v || v->kind != VP_VALUE_MAP)
            break;
        map   = v;
        *rest = dot + 1;
    }
    return map;
}

/* Before the map's first pair; of a file of lines at its end. */
static vp_status insert(editor *e, const vp_edit *x)
{
    const char     *rest;
    const vp_value *map    = container_of(e, x->path, &rest);
    vp_format       format = e->file->doc->format;
    const char     *pair;
    vp_status       st = VP_OK;

    if (!map->first)
        VP_TRY(by_hand(e, map->line, x->path, "the map that it belongs into is empty"));
    size_t at     = place_of(e, map->first);
    bool   quoted = e->bytes[at] == '"', alone = is_first_of_line(e, at);
    bool   flow   = format != VP_FORMAT_YAML || is_in_flow(e, at);
    size_t start  = line_start(e, map->first->line);
    int    indent = (int)(at - start);
    pair          = pair_text(e, x, rest, indent, flow, quoted);
    VP_TRY_ALLOC(e->err, pair);
    if (format == VP_FORMAT_FLAGS)
        VP_TRY(put(e, at, 0, vp_arena_printf(e->arena, "%s ", pair)));
    else if (format == VP_FORMAT_YAML && !flow && map == e->file->doc->root)
        VP_TRY(
            put(e, e->n_bytes, 0,
                vp_arena_printf(e->arena, "%s%s\n",
                                e->n_bytes && e->bytes[e->n_bytes - 1] != '\n' ? "\n" : "", pair)));
    else if (alone)
        VP_TRY(put(e, start, 0,
                   vp_arena_printf(e->arena, "%*s%s%s\n", indent, "", pair, flow ? "," : "")));
    else
        VP_TRY(put(e, at, 0, vp_arena_printf(e->arena, "%s, ", pair)));
out:
    return st;
}

static int from_the_last(const void *a, const void *b)
{
    const patch *p = a, *q = b;

    if (p->at != q->at)
        return p->at < q->at ? 1 : -1;
    return p->order < q->order ? 1 : -1;
}

static vp_status put_together(editor *e, vp_text *out)
{
    size_t from = 0;

    qsort(e->patches, (size_t)e->n, sizeof *e->patches, from_the_last);
    for (int64_t i = e->n - 1; i >= 0; i--) {
        const patch *p = &e->patches[i];
        if (p->at > from)
            vp_text_append(out, e->bytes + from, p->at - from);
        vp_text_append(out, p->text, strlen(p->text));
        from = p->at + p->n_removed > from ? p->at + p->n_removed : from;
    }
    if (from < e->n_bytes)
        vp_text_append(out, e->bytes + from, e->n_bytes - from);
    return out->failed ? VP_FAIL(e->err, VP_ERR_NOMEM, "out of host memory") : VP_OK;
}

vp_status vp_edits_apply(vp_arena *arena, const vp_edit *edits, int64_t n,
                         const vp_checked_file *file, const char *bytes, int64_t n_bytes,
                         vp_text *out, vp_err *err)
{
    editor e = {
        .arena = arena, .file = file, .bytes = bytes, .n_bytes = (size_t)n_bytes, .err = err};
    vp_status st = VP_OK;

    for (int64_t i = 0; i < n; i++) {
        if (edits[i].file != file)
            continue;
        if (file->doc->format == VP_FORMAT_FLAGS && strchr(edits[i].path, '.'))
            VP_TRY(by_hand(&e, edits[i].at ? edits[i].at->line : 0, edits[i].path,
                           "it stands inside an option's value"));
        if (!edits[i].to)
            VP_TRY(take_out(&e, &edits[i]));
        else if (edits[i].at)
            VP_TRY(replace(&e, &edits[i]));
        else
            VP_TRY(insert(&e, &edits[i]));
    }
    VP_TRY(put_together(&e, out));
out:
    return st;
}

/* ---- the difference ---- */

enum { LOOK_AHEAD = 40 };

static const char *line_after(const char *line)
{
    line += strcspn(line, "\n");
    return line + (*line == '\n');
}

static bool same_line(const char *a, const char *b)
{
    size_t n = strcspn(a, "\n");

    return n == strcspn(b, "\n") && memcmp(a, b, n) == 0;
}

/* How many lines of `in` come before one that is `line`; LOOK_AHEAD: none of those near. */
static int lines_before(const char *in, const char *line)
{
    for (int i = 0; i < LOOK_AHEAD && *in; i++, in = line_after(in))
        if (same_line(in, line))
            return i;
    return LOOK_AHEAD;
}

static const char *show(vp_text *out, char sign, const char *line, int number)
{
    vp_text_printf(out, "%5d %c %.*s\n", number, sign, (int)strcspn(line, "\n"), line);
    return line_after(line);
}

void vp_edits_diff(const char *name, const char *before, const char *after, vp_text *out)
{
    int line = 1;

    vp_text_printf(out, "%s\n", name);
    while (*before || *after) {
        if (*before && *after && same_line(before, after)) {
            before = line_after(before);
            after  = line_after(after);
            line++;
            continue;
        }
        int gone = *after ? lines_before(before, after) : LOOK_AHEAD;
        int come = *before ? lines_before(after, before) : LOOK_AHEAD;
        if (*before && (!*after || gone <= come)) {
            before = show(out, '-', before, line);
            line++;
            if (gone == LOOK_AHEAD && *after)
                after = show(out, '+', after, line - 1);
        } else {
            after = show(out, '+', after, line);
        }
    }
}
