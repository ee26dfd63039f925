/* trainers/files/edit_text.c: edits in the text of a file. Every edit is a patch: some bytes at some
 * place become others; they are made from the last to the first. */
#include "trainers/files/edit_internal.h"
#include "trainers/files/emit.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An option without a value, which is true. */
static bool is_bare(const vp_editor *e, const vp_value *v)
{
    return e->file->doc->format == VP_FORMAT_FLAGS && v->kind == VP_VALUE_BOOL && !v->text[0];
}

static vp_status replace(vp_editor *e, const vp_edit *x)
{
    size_t    key = vp_edit_place(e, x->at), at = key, end = vp_edit_line_end(e, key), stop;
    bool      is_whole_list = x->at->kind != VP_VALUE_LIST || !x->at->n_children || !x->keeps;
    vp_value  v             = {0};
    vp_text   text          = {0};
    vp_status st            = VP_OK;

    if (x->at->call && strcmp(x->at->call, VP_VALUE_UNREAD) == 0)
        VP_TRY(vp_edit_by_hand(e, x->at->line, x->path,
                               "no literal, or one of two values, is not followed"));
    if (!vp_edit_skip_key(e, x->path, &at, end))
        VP_TRY(vp_edit_by_hand(e, x->at->line, x->path, "it does not stand there itself"));
    if (is_bare(e, x->at)) { /* --gradient_checkpointing: what it is now stands behind it */
        for (at = key; at < e->n_bytes && !strchr(" \t\r\n\\", e->bytes[at]);)
            at++;
        VP_TRY(vp_edit_put(e, at, 0, vp_arena_printf(e->arena, " %s", x->to)));
        goto out;
    }
    if (!is_whole_list) {
        at = vp_edit_value_start(e, at);
        VP_TRY(vp_edit_list(e, x, at < e->n_bytes && e->bytes[at] == '['));
        goto out;
    }
    if (x->at->kind == VP_VALUE_MAP ||
        !vp_edit_value_end(e, at, end, vp_edit_is_in_flow(e, key), &stop))
        VP_TRY(vp_edit_by_hand(e, x->at->line, x->path, "its value takes several lines"));
    if (x->at->kind == VP_VALUE_LIST && (at == end || e->bytes[at] != '['))
        VP_TRY(vp_edit_by_hand(e, x->at->line, x->path, "its value is a list over several lines"));
    VP_TRY_ALLOC(e->err, vp_value_set(e->file->doc, &v, x->key, x->to));
    if (at > 0 && e->bytes[at - 1] == ':')
        vp_text_printf(&text, " ");
    if (e->file->doc->format == VP_FORMAT_FLAGS)
        vp_text_printf(&text, "%s", x->to);
    else
        vp_value_write(&v, e->file->doc->format, &text);
    VP_TRY_ALLOC(e->err, !text.failed);
    VP_TRY(vp_edit_put(e, at, stop - at, vp_arena_strdup(e->arena, text.data)));
out:
    vp_text_release(&text);
    return st;
}

/* The last line that a block of YAML takes: a map or a list whose members stand below its key. */
static int last_line(const vp_value *v)
{
    int line = v->line;

    for (const vp_value *m = v->first; m; m = m->next) {
        int below = last_line(m);
        line      = below > line ? below : line;
    }
    return line;
}

static const vp_value *last_scalar(const vp_value *v)
{
    const vp_value *last = v, *one;

    for (const vp_value *m = v->first; m; m = m->next)
        if ((one = last_scalar(m))->line >= last->line)
            last = one;
    return last;
}

/* Where the last line of a block's last value begins that goes on; *end: behind its text. False: it goes on in another line. */
static bool block_end(const vp_editor *e, const vp_value *v, size_t *end)
{
    const vp_value *last = last_scalar(v);
    size_t          at   = vp_edit_place(e, last), stop;

    *end = vp_edit_line_end(e, vp_edit_line_start(e, last_line(v)));
    return (!last->key || vp_edit_skip_key(e, last->key, &at, *end)) &&
           vp_edit_value_end(e, at, *end, vp_edit_is_in_flow(e, vp_edit_place(e, last)), &stop);
}

/* Behind the bracket that closes the one at `at`, in whatever line. False: none does. */
static bool bracket_end(const vp_editor *e, size_t at, size_t *out)
{
    int depth = 0;

    for (size_t i = at; i < e->n_bytes; i++) {
        char c = e->bytes[i];
        if (c == '"' || c == '\'')
            i = vp_edit_skip_quoted(e, i, e->n_bytes) - 1;
        else if (c == '#' && e->file->doc->format != VP_FORMAT_JSON && i > at &&
                 isspace((unsigned char)e->bytes[i - 1]))
            i = vp_edit_line_end(e, i);
        else if (strchr("[{(", c))
            depth++;
        else if (strchr("]})", c) && --depth == 0) {
            *out = i + 1;
            return true;
        }
    }
    return false;
}

/* A member among others in brackets goes with the comma behind it, or, of the last one, before it; its line with it where it has
 * that to itself. */
static vp_status take_from_flow(vp_editor *e, const vp_edit *x, size_t key, size_t stop)
{
    size_t    from = key, to = stop, end = vp_edit_line_end(e, stop), next;
    vp_status st = VP_OK;

    while (to < e->n_bytes && isspace((unsigned char)e->bytes[to]))
        to++;
    if (to < e->n_bytes && e->bytes[to] == ',') {
        next = vp_edit_skip_spaces(e, ++to, e->n_bytes);
        if (vp_edit_is_first(e, key) && to <= end &&
            (next >= end || e->bytes[next] == '\r' || e->bytes[next] == '#'))
            from = vp_edit_line_start(e, x->at->line), to = end + (end < e->n_bytes);
        else
            to = next;
    } else {
        while (from > 0 && isspace((unsigned char)e->bytes[from - 1]))
            from--;
        to = stop;
        if (from == 0 || (e->bytes[from - 1] != ',' && !strchr("{([", e->bytes[from - 1])) ||
            vp_edit_before_comment(e, from) != from)
            VP_TRY(
                vp_edit_by_hand(e, x->at->line, x->path, "it must go, and is the last of its map"));
        from -= e->bytes[from - 1] == ',';
    }
    VP_TRY(vp_edit_put(e, from, to - from, ""));
out:
    return st;
}

/* An option of a command, with the line that it has to itself, or what parts it from the word before it. */
static vp_status take_option(vp_editor *e, size_t key, size_t stop)
{
    size_t from = key, end = vp_edit_line_end(e, stop), to = vp_edit_skip_spaces(e, stop, end);

    if (vp_edit_is_first(e, key) && to < end && e->bytes[to] == '\\' && to + 1 == end) {
        while (from > 0 && e->bytes[from - 1] != '\n')
            from--;
        return vp_edit_put(e, from, end + (end < e->n_bytes) - from, "");
    }
    while (from > 0 && (isspace((unsigned char)e->bytes[from - 1]) ||
                        (e->bytes[from - 1] == '\\' && e->bytes[from] == '\n')))
        from--;
    return vp_edit_put(e, from, stop - from, "");
}

/* A pair that has its line to itself goes with the line, and with those of what stands below it. */
static vp_status take_out(vp_editor *e, const vp_edit *x)
{
    vp_format format = e->file->doc->format;
    size_t    key = vp_edit_place(e, x->at), at = key, end = vp_edit_line_end(e, key), stop = key;
    bool      flow   = vp_edit_is_in_flow(e, key);
    bool      toml   = format == VP_FORMAT_TOML && !flow;
    bool      is_key = vp_edit_skip_key(e, x->path, &at, end);
    size_t    value  = is_key && x->at->n_children ? vp_edit_value_start(e, at) : at;
    bool      opens =
        is_key && format != VP_FORMAT_FLAGS && value < e->n_bytes && strchr("[{(", e->bytes[value]);
    bool is_block =
        is_key && format == VP_FORMAT_YAML && !opens && !flow && last_line(x->at) > x->at->line;
    bool      is_alias = is_key && format == VP_FORMAT_YAML && at < end && e->bytes[at] == '*';
    vp_status st       = VP_OK;

    if (!is_key || !(opens      ? bracket_end(e, value, &stop)
                     : is_block ? block_end(e, x->at, &end)
                     : is_alias ? (stop = end, true)
                                : vp_edit_value_end(e, at, end, flow, &stop)))
        VP_TRY(vp_edit_by_hand(e, x->at->line, x->path,
                               is_key ? "it must go, and its value takes several lines"
                                      : "it must go, and does not stand there itself"));
    if (format == VP_FORMAT_JSON || (format == VP_FORMAT_PYTHON && flow) ||
        (format == VP_FORMAT_YAML && flow) || (format == VP_FORMAT_TOML && flow)) {
        VP_TRY(take_from_flow(e, x, key, stop));
        goto out;
    }
    if (format == VP_FORMAT_FLAGS) {
        VP_TRY(take_option(e, key, stop));
        goto out;
    }
    if (!vp_edit_is_first(e, key) || !(format == VP_FORMAT_YAML || toml))
        VP_TRY(vp_edit_by_hand(e, x->at->line, x->path,
                               "it must go, and does not stand in a line alone"));
    end = is_block ? end : vp_edit_line_end(e, stop);
    at  = vp_edit_line_start(e, x->at->line);
    VP_TRY(vp_edit_put(e, at, end - at + (end < e->n_bytes), ""));
out:
    return st;
}

/* ---- keys that are not there yet ---- */

/* Where new members go, and how they are written there. */
typedef struct place {
    const vp_value *map;  /* the deepest on the path that is there; NULL: none could be chosen */
    const char     *rest; /* the path below it */
    size_t          at;
    int             indent;
    bool            flow, quoted, alone;
    const char     *prefix; /* of TOML's dotted keys: "training." */
} place;

/* The deepest map on the path that is there; *rest: the path below it. */
static const vp_value *container_of(const vp_editor *e, const char *path, const char **rest)
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

/* How often a Python text calls name, comments apart; a call that is not literal was not read, and
 * may be the one that is meant. */
static int n_calls(const vp_editor *e, const char *name)
{
    size_t n     = strlen(name);
    int    count = 0;

    for (const char *p = e->bytes, *end = p + e->n_bytes; p + n < end; p++) {
        const char *behind = p + n;
        if (memcmp(p, name, n) != 0 ||
            (p > e->bytes && (isalnum((unsigned char)p[-1]) || p[-1] == '_')))
            continue;
        while (behind < end && (*behind == ' ' || *behind == '\t'))
            behind++;
        size_t start = (size_t)(p - e->bytes);
        while (start > 0 && e->bytes[start - 1] != '\n')
            start--;
        count += behind < end && *behind == '(' &&
                 !memchr(e->bytes + start, '#', (size_t)(p - e->bytes) - start);
    }
    return count;
}

static bool has_known_key(const vp_editor *e, const vp_value *map)
{
    for (const vp_value *m = map->first; m; m = m->next)
        if (vp_dialect_key(e->file->dialect, m->key, NULL))
            return true;
    return false;
}

/* Of a Python module: the one call or dictionary that has keys of the trainer's. */
static vp_status choose_call(vp_editor *e, const vp_edit *x, const vp_value **out)
{
    char      why[300];
    vp_status st = VP_OK;

    *out = NULL;
    for (const vp_value *v = e->file->doc->root->first; v; v = v->next) {
        if (v->kind != VP_VALUE_MAP || (*out && v->first == (*out)->first) || !has_known_key(e, v))
            continue;
        if (*out) {
            snprintf(why, sizeof why, "it belongs into %.80s in line %d or into %.80s in line %d",
                     (*out)->call ? (*out)->call : (*out)->key, (*out)->line,
                     v->call ? v->call : v->key, v->line);
            VP_TRY(vp_edit_by_hand(e, v->line, x->path, why));
        }
        *out = v;
    }
    if (!*out)
        VP_TRY(vp_edit_by_hand(e, 0, x->path,
                               "no call whose arguments are literal has keys beside it"));
    if ((*out)->call && n_calls(e, (*out)->call) > 1) {
        snprintf(why, sizeof why,
                 "the file calls %.80s %d times, and one may be meant as the other", (*out)->call,
                 n_calls(e, (*out)->call));
        VP_TRY(vp_edit_by_hand(e, (*out)->line, x->path, why));
    }
out:
    return st;
}

/* Whether its name does: that of an argument by place, or of torch_dtype, which counts as dtype, does not. */
static bool stands_there(const vp_editor *e, const vp_value *m)
{
    size_t at = vp_edit_place(e, m);

    return vp_edit_skip_key(e, m->key, &at, vp_edit_line_end(e, at));
}

/* The first member that others can be put before: a keyword, not an argument by place; a pair, not a
 * table with a header of its own. */
static const vp_value *first_pair(const vp_editor *e, const vp_value *map)
{
    const vp_value *m = map->first;

    if (e->file->doc->format == VP_FORMAT_PYTHON)
        while (m && (isdigit((unsigned char)m->key[0]) || !stands_there(e, m)))
            m = m->next;
    if (e->file->doc->format == VP_FORMAT_TOML)
        while (m && (vp_edit_place(e, m) >= e->n_bytes || e->bytes[vp_edit_place(e, m)] == '[' ||
                     m->kind == VP_VALUE_MAP || (m->first && m->first->kind == VP_VALUE_MAP)))
            m = m->next;
    return m;
}

/* Behind the last line of YAML's document: at "..." in a line of its own, or at the file's end. */
static size_t document_end(const vp_editor *e, size_t from)
{
    for (size_t at = from; at < e->n_bytes; at = vp_edit_line_end(e, at) + 1)
        if (e->n_bytes - at >= 3 && memcmp(e->bytes + at, "...", 3) == 0 &&
            (at + 3 == e->n_bytes || isspace((unsigned char)e->bytes[at + 3])))
            return at;
    return e->n_bytes;
}

/* Of a table that has no pair, or only tables inside it: behind the line of its own header. */
static bool behind_header(const vp_editor *e, const vp_value *map, const char *path, size_t n,
                          size_t *out)
{
    size_t at = vp_edit_line_start(e, map->line > 0 ? map->line : 1);

    *out = vp_edit_line_end(e, at) + 1;
    return n > 0 && *out <= e->n_bytes && *out - at > n + 1 && e->bytes[at] == '[' &&
           memcmp(e->bytes + at + 1, path, n - 1) == 0 && e->bytes[at + n] == ']';
}

static vp_status find_place(vp_editor *e, const vp_edit *x, place *out)
{
    vp_format       format = e->file->doc->format;
    const vp_value *first;
    vp_status       st = VP_OK;

    *out     = (place){.prefix = ""};
    out->map = container_of(e, x->path, &out->rest);
    if (format == VP_FORMAT_PYTHON && out->map == e->file->doc->root && !e->file->is_part)
        VP_TRY(choose_call(e, x, &out->map));
    first = first_pair(e, out->map);
    if (!first && format == VP_FORMAT_TOML) {
        if (!behind_header(e, out->map, x->path, (size_t)(out->rest - x->path), &out->at))
            out->map = e->file->doc->root, out->rest = x->path; /* it gets a header */
        goto out;
    }
    if (!first)
        VP_TRY(vp_edit_by_hand(e, out->map->line, x->path,
                               format == VP_FORMAT_PYTHON
                                   ? "no argument with a name stands beside it"
                                   : "the map that it belongs into is empty"));
    out->at     = vp_edit_place(e, first);
    out->indent = first->column > 0 ? first->column - 1 : 0;
    out->quoted = out->at < e->n_bytes && (e->bytes[out->at] == '"' || e->bytes[out->at] == '\'');
    out->alone  = vp_edit_is_first(e, out->at);
    out->flow =
        format == VP_FORMAT_JSON || format == VP_FORMAT_PYTHON || vp_edit_is_in_flow(e, out->at);
    size_t n = (size_t)(out->rest - x->path);
    if (format == VP_FORMAT_TOML && n && e->n_bytes - out->at > n &&
        memcmp(e->bytes + out->at, x->path, n) == 0)
        out->prefix = vp_arena_printf(e->arena, "%.*s", (int)n, x->path);
out:
    return st;
}

/* "key: value" as the place wants it; a map's members in braces, or of YAML's blocks below it. */
static void put_pair(const vp_editor *e, vp_text *out, const vp_value *m, const place *p,
                     int indent)
{
    vp_format format = e->file->doc->format;
    bool      quoted = p->quoted || format == VP_FORMAT_JSON;
    bool      block  = format == VP_FORMAT_YAML && !p->flow;
    place     inner  = *p;

    inner.quoted = quoted || format == VP_FORMAT_PYTHON;
    inner.prefix = "";
    vp_text_printf(out, "%s", p->prefix);
    vp_text_printf(out, quoted ? "\"%s\"" : "%s", m->key);
    vp_text_printf(out, format == VP_FORMAT_TOML                ? " = "
                        : format == VP_FORMAT_PYTHON && !quoted ? "="
                        : block && m->kind == VP_VALUE_MAP      ? ":"
                                                                : ": ");
    if (m->kind != VP_VALUE_MAP) {
        vp_value_write(m, format, out);
        return;
    }
    vp_text_printf(out, block ? "" : "{");
    for (const vp_value *v = m->first; v; v = v->next) {
        if (block)
            vp_text_printf(out, "%s%*s", e->eol, indent + 2, "");
        put_pair(e, out, v, &inner, indent + 2);
        vp_text_printf(out, block || !v->next ? "" : ", ");
    }
    vp_text_printf(out, block ? "" : "}");
}

/* Every key that goes below the same new member: made together, for a map stands there once. */
static vp_status new_members(vp_editor *e, const vp_edit *x, const place *p, vp_value **out,
                             bool *done)
{
    size_t       before = (size_t)(p->rest - x->path);
    size_t       n      = before + strcspn(p->rest, ".");
    vp_document *doc    = vp_document_new(e->arena, e->file->name, e->file->doc->format);
    vp_status    st     = VP_OK;

    *done = false;
    VP_TRY_ALLOC(e->err, doc);
    for (int64_t i = 0; i < e->n_edits; i++) {
        const vp_edit *y = &e->edits[i];
        if (y->file != e->file || y->at || !y->to || strncmp(y->path, x->path, n) != 0 ||
            (y->path[n] != '.' && y->path[n]))
            continue;
        if (y < x)
            *done = true;
        vp_value *v = vp_value_make(doc, y->path + before);
        VP_TRY_ALLOC(e->err, v && vp_value_set(doc, v, y->key, y->to));
    }
    *out = doc->root->first;
out:
    return st;
}

/* TOML's [a.b] with its pairs, then the tables inside it. */
static void put_table(const vp_editor *e, vp_text *out, const vp_value *map, const char *path)
{
    char inner[512];

    vp_text_printf(out, "%s[%s]%s", e->eol, path, e->eol);
    for (const vp_value *m = map->first; m; m = m->next)
        if (m->kind != VP_VALUE_MAP) {
            put_pair(e, out, m, &(place){.prefix = ""}, 0);
            vp_text_printf(out, "%s", e->eol);
        }
    for (const vp_value *m = map->first; m; m = m->next)
        if (m->kind == VP_VALUE_MAP) {
            snprintf(inner, sizeof inner, "%s.%s", path, m->key);
            put_table(e, out, m, inner);
        }
}

/* At the end of the file, which may lack its last line end. */
static void put_at_end(const vp_editor *e, size_t at, const char *text, int indent, vp_text *out)
{
    bool open = at > 0 && e->bytes[at - 1] != '\n';

    vp_text_printf(out, "%s%*s%s%s", open ? e->eol : "", indent, "", text, open ? "" : e->eol);
}

static vp_status put_new(vp_editor *e, const vp_edit *x, const place *p, const vp_value *m)
{
    vp_format format = e->file->doc->format;
    bool      root   = p->map == e->file->doc->root;
    vp_text   pair = {0}, text = {0};
    bool      own_line = p->alone && format != VP_FORMAT_FLAGS;
    size_t    at       = own_line ? p->at - (size_t)p->indent : p->at;
    vp_status st       = VP_OK;

    put_pair(e, &pair, m, p, p->indent);
    VP_TRY_ALLOC(e->err, !pair.failed);
    if (format == VP_FORMAT_TOML && m->kind == VP_VALUE_MAP && !p->flow) {
        const char *head =
            vp_arena_printf(e->arena, "%.*s%s", (int)(p->rest - x->path), x->path, m->key);
        VP_TRY_ALLOC(e->err, head);
        at = e->n_bytes;
        vp_text_printf(&text, "%s", at && e->bytes[at - 1] != '\n' ? e->eol : "");
        put_table(e, &text, m, head);
    } else if (format == VP_FORMAT_FLAGS) {
        vp_text_printf(&text, "--%s %s ", p->rest, x->to);
    } else if (format == VP_FORMAT_YAML && !p->flow && root) {
        at = document_end(e, p->at);
        put_at_end(e, at, pair.data, p->indent, &text);
    } else if (p->alone || (format == VP_FORMAT_TOML && !p->flow)) {
        vp_text_printf(&text, "%*s%s%s%s", p->indent, "", pair.data, p->flow ? "," : "", e->eol);
    } else {
        vp_text_printf(&text, "%s, ", pair.data);
    }
    VP_TRY_ALLOC(e->err, !text.failed);
    VP_TRY(vp_edit_put(e, at, 0, vp_arena_strdup(e->arena, text.data)));
out:
    vp_text_release(&pair);
    vp_text_release(&text);
    return st;
}

/* What stands as nothing, as a map without members or as no map at all where a map is meant; *n: how much of the path it is. */
static const vp_value *empty_above(const vp_editor *e, const char *path, size_t *n)
{
    char above[256];

    for (const char *dot = strchr(path, '.'); dot; dot = strchr(dot + 1, '.')) {
        *n = (size_t)(dot - path);
        snprintf(above, sizeof above, "%.*s", (int)*n, path);
        const vp_value *v = vp_value_at(e->file->doc->root, above);
        if (v && (v->kind != VP_VALUE_MAP || (!v->n_children && !v->call)))
            return v;
    }
    return NULL;
}

/* Into such a one all that goes below it. */
static vp_status fill_empty(vp_editor *e, const vp_edit *x, const vp_value *empty, size_t n)
{
    vp_format format = e->file->doc->format;
    size_t    at = vp_edit_place(e, empty), end = vp_edit_line_end(e, at), stop;
    bool      flow   = vp_edit_is_in_flow(e, at);
    place     braces = {.rest   = x->path + n + 1,
                        .flow   = true,
                        .quoted = format == VP_FORMAT_JSON || format == VP_FORMAT_PYTHON,
                        .prefix = ""};
    vp_text   text   = {0};
    vp_value *m;
    bool      done;
    vp_status st = VP_OK;

    if (!vp_edit_skip_key(e, empty->key, &at, end) || !vp_edit_value_end(e, at, end, flow, &stop))
        VP_TRY(vp_edit_by_hand(e, empty->line, x->path, "the map that it belongs into is empty"));
    vp_text_printf(&text, "%s{", e->bytes[at - 1] == ':' ? " " : "");
    for (int64_t i = 0, k = 0; i < e->n_edits; i++) {
        const vp_edit *y = &e->edits[i];
        if (y->file != e->file || y->at || !y->to || strncmp(y->path, x->path, n + 1) != 0)
            continue;
        if (y < x)
            goto out; /* with the first of them */
        braces.rest = y->path + n + 1;
        VP_TRY(new_members(e, y, &braces, &m, &done));
        if (!done)
            vp_text_printf(&text, k++ ? ", " : "");
        if (!done)
            put_pair(e, &text, m, &braces, 0);
    }
    vp_text_printf(&text, "}");
    VP_TRY_ALLOC(e->err, !text.failed);
    VP_TRY(vp_edit_put(e, at, stop - at, vp_arena_strdup(e->arena, text.data)));
out:
    vp_text_release(&text);
    return st;
}

/* Before the map's first pair; at the end of YAML's document, and of a TOML file for a new table. */
static vp_status insert(vp_editor *e, const vp_edit *x)
{
    vp_format       format = e->file->doc->format;
    const vp_value *empty;
    place           p;
    vp_value       *m    = NULL;
    bool            done = false;
    size_t          n;
    vp_status       st = VP_OK;

    empty = empty_above(e, x->path, &n);
    if (empty && (empty->call || (empty->kind != VP_VALUE_NULL && empty->kind != VP_VALUE_MAP)))
        VP_TRY(vp_edit_by_hand(e, empty->line, x->path, "what it belongs into is no map there"));
    if (empty && format != VP_FORMAT_TOML && format != VP_FORMAT_FLAGS) {
        VP_TRY(fill_empty(e, x, empty, n));
        goto out;
    }
    VP_TRY(find_place(e, x, &p));
    VP_TRY_ALLOC(e->err, p.prefix);
    VP_TRY(new_members(e, x, &p, &m, &done));
    if (!done)
        VP_TRY(put_new(e, x, &p, m));
out:
    return st;
}

static int from_the_last(const void *a, const void *b)
{
    const vp_patch *p = a, *q = b;

    if (p->at != q->at)
        return p->at < q->at ? 1 : -1;
    return p->order < q->order ? 1 : -1;
}

static vp_status put_together(vp_editor *e, vp_text *out)
{
    size_t from = 0;

    if (e->n) /* of none there are no patches to point to */
        qsort(e->patches, (size_t)e->n, sizeof *e->patches, from_the_last);
    for (int64_t i = e->n - 1; i >= 0; i--) {
        const vp_patch *p = &e->patches[i];
        if (p->at > from)
            vp_text_append(out, e->bytes + from, p->at - from);
        vp_text_append(out, p->text, strlen(p->text));
        from = p->at + p->n_removed > from ? p->at + p->n_removed : from;
    }
    if (from < e->n_bytes)
        vp_text_append(out, e->bytes + from, e->n_bytes - from);
    return out->failed ? VP_FAIL(e->err, VP_ERR_NOMEM, "out of host memory") : VP_OK;
}

/* Behind a quoted text or a comment of JSON's that begins at `at`; `at`: none does. */
static size_t behind_quoted(const char *text, size_t at, size_t n)
{
    size_t from = at;

    if (text[at] == '"') {
        for (at++; at < n && text[at] != '"'; at++)
            at += text[at] == '\\';
        return at < n ? at + 1 : n;
    }
    if (text[at] != '/' || at + 1 >= n || !strchr("/*", text[at + 1]))
        return from;
    const char *end = text[at + 1] == '/' ? memchr(text + at, '\n', n - at)
                                          : memmem(text + at + 2, n - at - 2, "*/", 2);
    return !end ? n : (size_t)(end - text) + (text[at + 1] == '/' ? 0 : 2);
}

/* A comma before a closing bracket, which json.load refuses, goes: the file is for its reader. */
static vp_status drop_commas(vp_editor *e, vp_text *out)
{
    vp_text     plain = {0};
    const char *text  = vp_text_string(out);
    size_t      comma = SIZE_MAX, from = 0;
    vp_status   st = VP_OK;

    for (size_t at = 0; at < out->n_bytes;) {
        size_t behind = behind_quoted(text, at, out->n_bytes);
        if (behind > at) {
            comma = text[at] == '"' ? SIZE_MAX : comma;
            at    = behind;
            continue;
        }
        if (comma != SIZE_MAX && (text[at] == '}' || text[at] == ']')) {
            vp_text_append(&plain, text + from, comma - from);
            from = comma + 1;
        }
        if (!strchr(" \t\r\n", text[at]))
            comma = text[at] == ',' ? at : SIZE_MAX;
        at++;
    }
    if (from) {
        vp_text_append(&plain, text + from, out->n_bytes - from);
        vp_text_release(out);
        *out  = plain;
        plain = (vp_text){0};
    }
    if (out->failed || plain.failed)
        st = VP_FAIL(e->err, VP_ERR_NOMEM, "out of host memory");
    vp_text_release(&plain);
    return st;
}

/* A part of a script stands in the script's text. */
bool vp_edit_is_of(const vp_edit *x, const vp_checked_file *file)
{
    return x->file == file || (x->file && x->file->is_part && x->file > file &&
                               strcmp(x->file->name, file->name) == 0);
}

vp_status vp_edits_apply(vp_arena *arena, const vp_edit *edits, int64_t n,
                         const vp_checked_file *file, const char *bytes, int64_t n_bytes,
                         vp_text *out, vp_err *err)
{
    vp_editor e = {
        .arena = arena, .file = file, .bytes = bytes, .n_bytes = (size_t)n_bytes, .err = err};
    const char *end = memchr(bytes, '\n', (size_t)n_bytes);
    vp_status   st  = VP_OK;

    e.edits   = edits;
    e.n_edits = n;
    e.eol     = end && end > bytes && end[-1] == '\r' ? "\r\n" : "\n";
    for (int64_t i = 0; i < n; i++) {
        if (!vp_edit_is_of(&edits[i], file))
            continue;
        e.file = edits[i].file;
        if (file->doc->is_notebook)
            VP_TRY(vp_edit_by_hand(&e, edits[i].at ? edits[i].at->line : 0, edits[i].path,
                                   "a notebook is no text of Python but JSON around it"));
        if (file->doc->format == VP_FORMAT_FLAGS && strchr(edits[i].path, '.')) {
            VP_TRY(vp_edit_option(&e, &edits[i]));
            continue;
        }
        if (!edits[i].to)
            VP_TRY(take_out(&e, &edits[i]));
        else if (edits[i].at)
            VP_TRY(replace(&e, &edits[i]));
        else
            VP_TRY(insert(&e, &edits[i]));
    }
    VP_TRY(put_together(&e, out));
    if (e.n && file->doc->format == VP_FORMAT_JSON && file->dialect && !file->dialect->hjson)
        VP_TRY(drop_commas(&e, out));
out:
    return st;
}
