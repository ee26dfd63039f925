/* trainers/files/document_json.c: JSON with the line of every key. base/json.h gives values without
 * places, and trainers read more than JSON: DeepSpeed takes comments and commas too many (Hjson).
 * These are read, and remarked on. */
#include "trainers/files/document.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    vp_document *doc;
    const char  *at, *end, *line_start;
    int          line;
    vp_err      *err;
} reader;

static vp_status fail(reader *r, const char *text)
{
    return VP_FAIL_AT(r->err, VP_ERR_INPUT, r->doc->name, r->line, NULL, "%s, column %d", text,
                      (int)(r->at - r->line_start) + 1);
}

static vp_status skip(reader *r)
{
    vp_status st = VP_OK;

    while (r->at < r->end) {
        char c = *r->at;
        if (c == '\n') {
            r->line++;
            r->line_start = ++r->at;
        } else if (c == ' ' || c == '\t' || c == '\r') {
            r->at++;
        } else if (c == '#' || (c == '/' && r->at + 1 < r->end && r->at[1] == '/')) {
            VP_TRY(vp_document_remark(r->doc, r->line, NULL, false, r->err,
                                      "a comment: only readers of Hjson, as DeepSpeed's own, "
                                      "take one; json.load does not"));
            while (r->at < r->end && *r->at != '\n')
                r->at++;
        } else {
            break;
        }
    }
out:
    return st;
}

static void put_utf8(char *out, size_t *n, unsigned code)
{
    if (code < 0x80) {
        out[(*n)++] = (char)code;
    } else if (code < 0x800) {
        out[(*n)++] = (char)(0xc0 | code >> 6);
        out[(*n)++] = (char)(0x80 | (code & 63));
    } else {
        out[(*n)++] = (char)(0xe0 | code >> 12);
        out[(*n)++] = (char)(0x80 | (code >> 6 & 63));
        out[(*n)++] = (char)(0x80 | (code & 63));
    }
}

static vp_status read_string(reader *r, const char **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char       *stop = r->at + 1;
    char             *text;
    size_t            n  = 0;
    vp_status         st = VP_OK;

    while (stop < r->end && *stop != '"' && *stop != '\n')
        stop += *stop == '\\' && stop + 1 < r->end ? 2 : 1;
    if (stop >= r->end || *stop != '"')
        VP_TRY(fail(r, "a string that does not end in its line"));
    text = vp_arena_alloc(r->doc->arena, (size_t)(stop - r->at) + 1);
    VP_TRY_ALLOC(r->err, text);
    for (r->at++; r->at < stop; r->at++) {
        const char *escape;
        unsigned    code = 0;
        if (*r->at != '\\') {
            text[n++] = *r->at;
        } else if (*++r->at == 'u') {
            char hex[5] = "";
            if (stop - r->at > 4)
                memcpy(hex, r->at + 1, 4);
            if (strspn(hex, "0123456789abcdefABCDEF") != 4)
                VP_TRY(fail(r, "\\u wants four hexadecimal digits"));
            code = (unsigned)strtoul(hex, NULL, 16);
            if (!code)
                VP_TRY(fail(r, "a NUL inside a string"));
            put_utf8(text, &n, code);
            r->at += 4;
        } else if (*r->at && (escape = strchr(from, *r->at))) {
            text[n++] = to[escape - from];
        } else {
            VP_TRY(fail(r, "an escape that JSON does not have"));
        }
    }
    r->at++;
    *out = text;
out:
    return st;
}

static vp_status read_word(reader *r, vp_value *v)
{
    const char *from = r->at;
    char        shown[64], text[160];
    vp_status   st = VP_OK;

    while (r->at < r->end && *r->at && !strchr(" \t\r\n,:{}[]\"", *r->at))
        r->at++;
    size_t n    = (size_t)(r->at - from);
    char  *word = vp_arena_alloc(r->doc->arena, n + 1);
    VP_TRY_ALLOC(r->err, word);
    memcpy(word, from, n);
    v->text = word;
    if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0) {
        v->kind    = VP_VALUE_BOOL;
        v->boolean = word[0] == 't';
        goto out;
    }
    if (strcmp(word, "null") == 0)
        goto out;
    char *end;
    bool  whole = strspn(word, "-0123456789") == n;
    v->kind     = whole ? VP_VALUE_INT : VP_VALUE_REAL;
    v->real     = strtod(word, &end);
    v->integer  = whole ? strtoll(word, NULL, 10) : 0;
    if (!n || *end || !strchr("-0123456789", word[0]) || strspn(word, "-+.0123456789eE") != n) {
        r->at = from;
        snprintf(text, sizeof text, "expected a value, found %s",
                 n ? vp_text_escape(word, shown, sizeof shown) : "something else");
        VP_TRY(fail(r, text));
    }
out:
    return st;
}

static vp_status read_value(reader *r, vp_value *v, int depth);

static vp_status read_key(reader *r, const vp_value *map, const char **key)
{
    const vp_value *o;
    char            shown[128];
    int             line = r->line;
    vp_status       st   = VP_OK;

    if (*r->at != '"')
        VP_TRY(fail(r, "expected a key in double quotes"));
    VP_TRY(read_string(r, key));
    o = vp_value_member(map, *key);
    if (o)
        VP_TRY(vp_document_remark(r->doc, line, *key, true, r->err, "%s stands here and in line %d",
                                  vp_text_escape(*key, shown, sizeof shown), o->line));
    VP_TRY(skip(r));
    if (r->at >= r->end || *r->at != ':')
        VP_TRY(fail(r, "expected : behind the key"));
    r->at++;
    VP_TRY(skip(r));
out:
    return st;
}

/* What stands between braces, or between brackets. */
static vp_status read_members(reader *r, vp_value *v, char close, int depth)
{
    bool      comma = false;
    vp_status st    = VP_OK;

    v->kind = close == '}' ? VP_VALUE_MAP : VP_VALUE_LIST;
    for (r->at++;;) {
        const char *key = NULL;
        VP_TRY(skip(r));
        if (r->at >= r->end)
            VP_TRY(fail(r, close == '}' ? "the file ends inside an object"
                                        : "the file ends inside an array"));
        if (*r->at == close)
            break;
        int line = r->line, column = (int)(r->at - r->line_start) + 1;
        if (close == '}')
            VP_TRY(read_key(r, v, &key));
        vp_value *child = vp_value_add(r->doc, v, key);
        if (!child && vp_arena_failed(r->doc->arena))
            VP_TRY(VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory"));
        if (!child)
            VP_TRY(fail(r, "more than 100,000 values"));
        VP_TRY(read_value(r, child, depth + 1));
        if (key)
            child->line = line, child->column = column;
        VP_TRY(skip(r));
        comma = r->at < r->end && *r->at == ',';
        if (comma)
            r->at++;
        else if (r->at < r->end && *r->at != close)
            VP_TRY(fail(r, close == '}' ? "expected , or }" : "expected , or ]"));
    }
    if (comma)
        VP_TRY(vp_document_remark(r->doc, r->line, NULL, false, r->err,
                                  "a comma before %c: json.load refuses it", close));
    r->at++;
out:
    return st;
}

static vp_status read_value(reader *r, vp_value *v, int depth)
{
    vp_status st = VP_OK;

    v->line = r->line, v->column = (int)(r->at - r->line_start) + 1;
    if (depth > VP_DOCUMENT_MAX_DEPTH)
        VP_TRY(fail(r, "nested deeper than 64"));
    if (r->at >= r->end)
        VP_TRY(fail(r, "the file ends where a value belongs"));
    if (*r->at == '{' || *r->at == '[') {
        VP_TRY(read_members(r, v, *r->at == '{' ? '}' : ']', depth));
    } else if (*r->at == '"') {
        VP_TRY(read_string(r, &v->text));
        v->kind   = VP_VALUE_STRING;
        v->quoted = true;
    } else {
        VP_TRY(read_word(r, v));
    }
out:
    return st;
}

vp_status vp_document_parse_json(vp_document *doc, const char *bytes, int64_t n, vp_err *err)
{
    reader r = {
        .doc = doc, .at = bytes, .end = bytes + n, .line_start = bytes, .line = 1, .err = err};
    vp_status st = VP_OK;

    VP_TRY(skip(&r));
    VP_TRY(read_value(&r, doc->root, 0));
    VP_TRY(skip(&r));
    if (r.at < r.end)
        VP_TRY(fail(&r, "something stands behind the end of the document"));
out:
    return st;
}
