/* trainers/files/document_toml.c: TOML 1.0 with the line of every key. The C libraries for it give
 * values without places. Dates stay the text they are: no trainer has a setting that is one. */
#include "trainers/files/document.h"

#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    vp_document *doc;
    const char  *at, *end, *line_start;
    int          line;
    vp_value   **opened; /* tables that have a [header] of their own */
    int64_t      n_opened, cap_opened;
    vp_err      *err;
} reader;

static vp_status fail(reader *r, const char *text)
{
    return VP_FAIL_AT(r->err, VP_ERR_INPUT, r->doc->name, r->line, NULL, "%s, column %d", text,
                      (int)(r->at - r->line_start) + 1);
}

static char peek(const reader *r, int ahead)
{
    return r->end - r->at > ahead ? r->at[ahead] : '\0';
}

static void skip_blank(reader *r)
{
    while (peek(r, 0) == ' ' || peek(r, 0) == '\t')
        r->at++;
}

static void next_line(reader *r)
{
    r->line++;
    r->line_start = ++r->at;
}

/* Spaces, comments and, where lines may end, the ends of lines. */
static void skip(reader *r, bool lines)
{
    for (;;) {
        skip_blank(r);
        if (peek(r, 0) == '#')
            while (r->at < r->end && *r->at != '\n')
                r->at++;
        if (peek(r, 0) == '\r' && peek(r, 1) == '\n')
            r->at++;
        if (!lines || r->at >= r->end || *r->at != '\n')
            return;
        next_line(r);
    }
}

static vp_status end_of_line(reader *r)
{
    skip(r, false);
    if (r->at < r->end && *r->at != '\n')
        return fail(r, "expected the end of the line");
    if (r->at < r->end)
        next_line(r);
    return VP_OK;
}

/* ---- strings ---- */

static bool put_utf8(vp_text *out, unsigned long code)
{
    char   bytes[5];
    size_t n = 0;

    if (!code || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return false;
    if (code < 0x80) {
        bytes[n++] = (char)code;
    } else if (code < 0x800) {
        bytes[n++] = (char)(0xc0 | code >> 6);
    } else if (code < 0x10000) {
        bytes[n++] = (char)(0xe0 | code >> 12);
        bytes[n++] = (char)(0x80 | (code >> 6 & 63));
    } else {
        bytes[n++] = (char)(0xf0 | code >> 18);
        bytes[n++] = (char)(0x80 | (code >> 12 & 63));
        bytes[n++] = (char)(0x80 | (code >> 6 & 63));
    }
    if (code >= 0x80)
        bytes[n++] = (char)(0x80 | (code & 63));
    vp_text_append(out, bytes, n);
    return true;
}

static vp_status read_escape(reader *r, bool many_lines, vp_text *out)
{
    static const char from[] = "btnfr\"\\", to[] = "\b\t\n\f\r\"\\";
    const char       *known;
    char              hex[9] = "";
    int               n      = peek(r, 1) == 'u' ? 4 : 8;

    if (many_lines && (peek(r, 1) == '\n' || peek(r, 1) == '\r')) { /* the line goes on */
        r->at++;
        while (r->at < r->end && isspace((unsigned char)*r->at)) {
            if (*r->at == '\n')
                next_line(r);
            else
                r->at++;
        }
        return VP_OK;
    }
    if (peek(r, 1) && (known = strchr(from, peek(r, 1)))) {
        vp_text_append(out, &to[known - from], 1);
        r->at += 2;
        return VP_OK;
    }
    if (peek(r, 1) != 'u' && peek(r, 1) != 'U')
        return fail(r, "an escape that TOML does not have");
    for (int i = 0; i < n; i++)
        hex[i] = peek(r, 2 + i);
    if ((int)strspn(hex, "0123456789abcdefABCDEF") != n || !put_utf8(out, strtoul(hex, NULL, 16)))
        return fail(r, "an escape that is no character");
    r->at += 2 + n;
    return VP_OK;
}

/* Basic and literal strings, of one line or of many. */
static vp_status read_string(reader *r, const char **out)
{
    char      quote = *r->at;
    bool      many  = peek(r, 1) == quote && peek(r, 2) == quote;
    vp_text   text  = {0};
    vp_status st    = VP_OK;

    r->at += many ? 3 : 1;
    if (many && peek(r, 0) == '\r')
        r->at++;
    if (many && peek(r, 0) == '\n')
        next_line(r);
    for (;;) {
        if (r->at >= r->end || (!many && *r->at == '\n'))
            VP_TRY(fail(r, many ? "a string that does not end"
                                : "a string that does not end in its line"));
        if (*r->at == quote && (!many || (peek(r, 1) == quote && peek(r, 2) == quote)))
            break;
        if (*r->at == '\\' && quote == '"') {
            VP_TRY(read_escape(r, many, &text));
            continue;
        }
        vp_text_append(&text, r->at, 1);
        if (*r->at == '\n')
            next_line(r);
        else
            r->at++;
    }
    r->at += many ? 3 : 1;
    while (many && peek(r, 0) == quote) { /* up to two quotes more belong to the text */
        vp_text_append(&text, r->at, 1);
        r->at++;
    }
    *out = vp_arena_strdup(r->doc->arena, vp_text_string(&text));
    VP_TRY_ALLOC(r->err, *out && !text.failed);
out:
    vp_text_release(&text);
    return st;
}

/* ---- scalars ---- */

static bool is_date(const char *w)
{
    return (isdigit((unsigned char)w[0]) && isdigit((unsigned char)w[1]) && w[2] == ':') ||
           (strspn(w, "0123456789") == 4 && w[4] == '-' && isdigit((unsigned char)w[5]));
}

/* An underscore stands between two digits. */
static bool without_underscores(const char *word, char *buf, size_t size)
{
    size_t n = 0;

    for (const char *p = word; *p; p++) {
        if (*p == '_' &&
            (p == word || !isxdigit((unsigned char)p[-1]) || !isxdigit((unsigned char)p[1])))
            return false;
        if (*p == '_')
            continue;
        if (n + 1 >= size)
            return false;
        buf[n++] = *p;
    }
    buf[n] = '\0';
    return n > 0;
}

static bool take_int(const char *w, vp_value *v)
{
    const char *digits = w + (*w == '-' || *w == '+');
    int         base   = 10;
    char       *end;

    if (digits[0] == '0' && digits[1])
        base = digits[1] == 'x' ? 16 : digits[1] == 'o' ? 8 : digits[1] == 'b' ? 2 : 0;
    if (!base || (base != 10 && digits != w))
        return false;
    digits += base == 10 ? 0 : 2;
    if (!isxdigit((unsigned char)*digits))
        return false;
    errno      = 0;
    v->integer = strtoll(digits, &end, base);
    if (*end || errno)
        return false;
    v->integer = *w == '-' ? -v->integer : v->integer;
    v->real    = (double)v->integer;
    v->kind    = VP_VALUE_INT;
    return true;
}

static bool take_real(const char *w, vp_value *v)
{
    const char *digits = w + (*w == '-' || *w == '+');
    const char *dot    = strchr(digits, '.');
    char       *end;

    v->kind = VP_VALUE_REAL;
    if (strcmp(digits, "inf") == 0 || strcmp(digits, "nan") == 0) {
        v->real = digits[0] == 'n' ? NAN : *w == '-' ? -INFINITY : INFINITY;
        return true;
    }
    if (!isdigit((unsigned char)*digits) || strspn(digits, "0123456789.eE+-") != strlen(digits) ||
        (digits[0] == '0' && isdigit((unsigned char)digits[1])) ||
        (dot && !isdigit((unsigned char)dot[1])))
        return false;
    v->real = strtod(w, &end);
    return !*end && isfinite(v->real);
}

static vp_status read_word(reader *r, vp_value *v)
{
    const char *from = r->at;
    char        plain[80], shown[64], text[160];
    vp_status   st = VP_OK;

    while (r->at < r->end && !strchr(" \t\r\n,]}#", *r->at))
        r->at++;
    size_t n    = (size_t)(r->at - from);
    char  *word = vp_arena_alloc(r->doc->arena, n + 1);
    VP_TRY_ALLOC(r->err, word);
    memcpy(word, from, n);
    v->text = word;
    if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0) {
        v->kind    = VP_VALUE_BOOL;
        v->boolean = word[0] == 't';
    } else if (n > 7 && is_date(word)) {
        v->kind   = VP_VALUE_STRING;
        v->quoted = true;
    } else if (!without_underscores(word, plain, sizeof plain) ||
               (!take_int(plain, v) && !take_real(plain, v))) {
        r->at = from;
        snprintf(text, sizeof text, "expected a value, found %s; text stands in quotes",
                 n ? vp_text_escape(word, shown, sizeof shown) : "nothing");
        VP_TRY(fail(r, text));
    } else if (v->kind == VP_VALUE_INT) { /* 0x1F and 4_096 as every reader of settings has them */
        v->text = vp_arena_printf(r->doc->arena, "%lld", (long long)v->integer);
        VP_TRY_ALLOC(r->err, v->text);
    }
out:
    return st;
}

/* ---- keys and tables ---- */

static vp_status read_part(reader *r, const char **out)
{
    const char *from = r->at;
    char       *word;
    vp_status   st = VP_OK;

    if (peek(r, 0) == '"' || peek(r, 0) == '\'') {
        if (peek(r, 1) == peek(r, 0) && peek(r, 2) == peek(r, 0))
            VP_TRY(fail(r, "a key takes no more than one line"));
        VP_TRY(read_string(r, out));
        goto out;
    }
    while (r->at < r->end && (isalnum((unsigned char)*r->at) || *r->at == '_' || *r->at == '-'))
        r->at++;
    if (r->at == from)
        VP_TRY(fail(r, "expected a key"));
    word = vp_arena_alloc(r->doc->arena, (size_t)(r->at - from) + 1);
    VP_TRY_ALLOC(r->err, word);
    memcpy(word, from, (size_t)(r->at - from));
    *out = word;
out:
    return st;
}

static vp_status add_child(reader *r, vp_value *map, const char *key, vp_value **out)
{
    vp_status st = VP_OK;

    *out = vp_value_add(r->doc, map, key);
    if (!*out && vp_arena_failed(r->doc->arena))
        VP_TRY(VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory"));
    if (!*out)
        VP_TRY(fail(r, "more than 100,000 values"));
    (*out)->line   = r->line;
    (*out)->column = (int)(r->at - r->line_start) + 1;
out:
    return st;
}

/* Into the table called key, made where it is not there; of an array of tables its last. */
static vp_status descend(reader *r, vp_value **map, const char *key)
{
    char      text[300], shown[200];
    vp_value *v  = vp_value_member(*map, key);
    vp_status st = VP_OK;

    if (!v) {
        VP_TRY(add_child(r, *map, key, &v));
        v->kind = VP_VALUE_MAP;
    }
    if (v->kind == VP_VALUE_LIST && v->last && v->last->kind == VP_VALUE_MAP)
        v = v->last;
    if (v->kind != VP_VALUE_MAP) {
        snprintf(text, sizeof text, "%s is no table: line %d gives it a value",
                 vp_text_escape(key, shown, sizeof shown), v->line);
        VP_TRY(fail(r, text));
    }
    *map = v;
out:
    return st;
}

/* a.b.c: everything but the last part is gone into; that is left in *last. */
static vp_status read_path(reader *r, vp_value **map, const char **last)
{
    int       depth = 0;
    vp_status st    = VP_OK;

    for (;;) {
        skip_blank(r);
        VP_TRY(read_part(r, last));
        skip_blank(r);
        if (peek(r, 0) != '.')
            break;
        r->at++;
        if (++depth > VP_DOCUMENT_MAX_DEPTH)
            VP_TRY(fail(r, "nested deeper than 64"));
        VP_TRY(descend(r, map, *last));
    }
out:
    return st;
}

static vp_status read_value(reader *r, vp_value *v, int depth);

static vp_status read_pair(reader *r, vp_value *map, int depth)
{
    int         line = r->line, column;
    const char *key;
    vp_value   *v, *twice;
    char        text[300], shown[200];
    vp_status   st = VP_OK;

    skip_blank(r);
    column = (int)(r->at - r->line_start) + 1;
    VP_TRY(read_path(r, &map, &key));
    if ((twice = vp_value_member(map, key)) != NULL) {
        snprintf(text, sizeof text, "%s stands here and in line %d",
                 vp_text_escape(key, shown, sizeof shown), twice->line);
        VP_TRY(fail(r, text));
    }
    if (peek(r, 0) != '=')
        VP_TRY(fail(r, "expected = behind the key"));
    r->at++;
    skip_blank(r);
    VP_TRY(add_child(r, map, key, &v));
    VP_TRY(read_value(r, v, depth + 1));
    v->line = line, v->column = column;
out:
    return st;
}

static vp_status read_list(reader *r, vp_value *v, int depth)
{
    vp_value *e;
    vp_status st = VP_OK;

    v->kind = VP_VALUE_LIST;
    for (r->at++;;) {
        skip(r, true);
        if (r->at >= r->end)
            VP_TRY(fail(r, "the file ends inside an array"));
        if (*r->at == ']')
            break;
        VP_TRY(add_child(r, v, NULL, &e));
        VP_TRY(read_value(r, e, depth + 1));
        skip(r, true);
        if (peek(r, 0) == ',')
            r->at++;
        else if (peek(r, 0) != ']')
            VP_TRY(fail(r, "expected , or ]"));
    }
    r->at++;
out:
    return st;
}

static vp_status read_inline_table(reader *r, vp_value *v, int depth)
{
    vp_status st = VP_OK;

    v->kind = VP_VALUE_MAP;
    r->at++;
    skip_blank(r);
    while (peek(r, 0) != '}') {
        VP_TRY(read_pair(r, v, depth));
        skip_blank(r);
        if (peek(r, 0) == ',')
            r->at++;
        else if (peek(r, 0) != '}')
            VP_TRY(fail(r, "expected , or } in the same line"));
        skip_blank(r);
    }
    r->at++;
out:
    return st;
}

static vp_status read_value(reader *r, vp_value *v, int depth)
{
    if (depth > VP_DOCUMENT_MAX_DEPTH)
        return fail(r, "nested deeper than 64");
    switch (peek(r, 0)) {
    case '[':
        return read_list(r, v, depth);
    case '{':
        return read_inline_table(r, v, depth);
    case '"':
    case '\'':
        v->kind   = VP_VALUE_STRING;
        v->quoted = true;
        return read_string(r, &v->text);
    default:
        return read_word(r, v);
    }
}

static vp_status open_once(reader *r, vp_value *table, const char *name)
{
    char      text[300], shown[200];
    vp_status st = VP_OK;

    for (int64_t i = 0; i < r->n_opened; i++)
        if (r->opened[i] == table) {
            snprintf(text, sizeof text, "the table %s stands here and in line %d",
                     vp_text_escape(name, shown, sizeof shown), table->line);
            VP_TRY(fail(r, text));
        }
    VP_TRY_ALLOC(r->err, vp_arena_grow(r->doc->arena, (void **)&r->opened, r->n_opened,
                                       &r->cap_opened, sizeof *r->opened));
    r->opened[r->n_opened++] = table;
out:
    return st;
}

/* [a.b], or [[a.b]]: one more element of an array of tables. */
static vp_status read_header(reader *r, vp_value **table)
{
    bool        array = peek(r, 1) == '[';
    const char *name;
    vp_value   *list;
    vp_status   st = VP_OK;

    r->at += array ? 2 : 1;
    *table = r->doc->root;
    VP_TRY(read_path(r, table, &name));
    if (peek(r, 0) != ']' || (array && peek(r, 1) != ']'))
        VP_TRY(fail(r, array ? "expected ]] behind the table's name"
                             : "expected ] behind the table's name"));
    if (array) {
        list = vp_value_member(*table, name);
        if (!list) {
            VP_TRY(add_child(r, *table, name, &list));
            list->kind = VP_VALUE_LIST;
        }
        if (list->kind != VP_VALUE_LIST)
            VP_TRY(fail(r, "the table is no array of tables"));
        VP_TRY(add_child(r, list, NULL, table));
        (*table)->kind = VP_VALUE_MAP;
        r->at++;
    } else {
        VP_TRY(descend(r, table, name));
        VP_TRY(open_once(r, *table, name));
        (*table)->line = r->line;
    }
    r->at++;
out:
    return st;
}

vp_status vp_document_parse_toml(vp_document *doc, const char *bytes, int64_t n, vp_err *err)
{
    reader r = {
        .doc = doc, .at = bytes, .end = bytes + n, .line_start = bytes, .line = 1, .err = err};
    vp_value *table = doc->root;
    vp_status st    = VP_OK;

    for (;;) {
        skip(&r, true);
        if (r.at >= r.end)
            break;
        if (*r.at == '[')
            VP_TRY(read_header(&r, &table));
        else
            VP_TRY(read_pair(&r, table, 0));
        VP_TRY(end_of_line(&r));
    }
out:
    return st;
}
