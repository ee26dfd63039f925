#include "base/json.h"
#include "base/base_internal.h"
#include "base/file.h"
#include "base/text.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_STRING_BYTES = 64 * 1024, MAX_VALUES = 800000 };

/* Numbers that no double holds. Each stands in the document as a value of its own, told apart by
 * address; jansson has no such numbers. */
typedef enum special {
    NOT_A_NUMBER,
    PLUS_INFINITY,
    MINUS_INFINITY,
    OUT_OF_RANGE,
    N_SPECIALS
} special;

static const char *const special_names[] = {
    [NOT_A_NUMBER]   = "NaN",
    [PLUS_INFINITY]  = "Infinity",
    [MINUS_INFINITY] = "-Infinity",
    [OUT_OF_RANGE]   = "a number outside the range of double precision",
};

struct vp_json_doc {
    char   *name;
    char   *bytes; /* the text, byte-order mark included; kept to find lines again */
    int64_t n_bytes;
    int64_t n_bom_bytes;
    json_t *root;
    json_t *specials[N_SPECIALS];
};

typedef struct parser {
    vp_lex       lex;
    vp_json_doc *doc;
    int64_t      n_values;
    char         path[sizeof((vp_json_node *)0)->path];
} parser;

/* path with the member key added. What does not fit ends in "...": deterministic, so that the path
 * of a node and the path of the same value when the text is read again are the same characters. */
static void push_key(char *path, size_t path_size, const char *key)
{
    size_t n = strlen(path);

    assert(n < path_size);
    if (n && n + 1 < path_size) {
        path[n++] = '.';
        path[n]   = '\0';
    }
    vp_text_escape(key, path + n, path_size - n);
}

static void push_index(char *path, size_t path_size, int64_t idx)
{
    char   piece[32], *p = piece + sizeof piece;
    size_t n = strlen(path);

    assert(n < path_size && idx >= 0);
    *--p = '\0'; /* by hand: a plan has a hundred thousand elements */
    *--p = ']';
    do
        *--p = (char)('0' + idx % 10);
    while ((idx /= 10) > 0);
    *--p = '[';
    vp_text_escape(p, path + n, path_size - n);
}

/* The line on which the value at path begins in text that has been read once; 0 when not found. */
static bool find_line(vp_lex *lex, char *path, size_t path_size, const char *wanted, int *line)
{
    size_t  n        = strlen(path);
    int64_t idx      = 0;
    int     my_line  = lex->line;
    bool    is_array = lex->kind == VP_LEX_ARRAY;

    if (!strcmp(path, wanted)) {
        *line = my_line;
        return true;
    }
    if (!is_array && lex->kind != VP_LEX_OBJECT)
        return false;
    for (;; idx++) {
        if (vp_lex_next(lex, NULL) != VP_OK)
            return false;
        if (lex->kind == VP_LEX_COMMA && vp_lex_next(lex, NULL) != VP_OK)
            return false;
        if (lex->kind == VP_LEX_ARRAY_END || lex->kind == VP_LEX_OBJECT_END ||
            lex->kind == VP_LEX_END)
            return false;
        if (is_array) {
            push_index(path, path_size, idx);
        } else {
            my_line = lex->line;
            push_key(path, path_size, lex->text);
            if (vp_lex_next(lex, NULL) != VP_OK) /* the colon */
                return false;
            if (vp_lex_next(lex, NULL) != VP_OK)
                return false;
            if (!strcmp(path, wanted)) {
                *line = my_line; /* a member is looked for where its key stands */
                return true;
            }
        }
        if (find_line(lex, path, path_size, wanted, line))
            return true;
        path[n] = '\0';
    }
}

static int line_of(const vp_json_doc *doc, const char *wanted)
{
    vp_lex lex;
    char   path[sizeof((vp_json_node *)0)->path] = "";
    int    line                                  = 0;

    vp_lex_from_memory(&lex, doc->name, doc->bytes + doc->n_bom_bytes,
                       doc->n_bytes - doc->n_bom_bytes, doc->n_bom_bytes);
    lex.max_text_bytes = MAX_STRING_BYTES;
    if (vp_lex_next(&lex, NULL) == VP_OK)
        find_line(&lex, path, sizeof path, wanted, &line);
    vp_lex_release(&lex);
    return line;
}

/* The same; of what is not in the text, the line of the nearest thing around it that is: a plan's list of
 * steps may stand elsewhere. */
static int line_near(const vp_json_doc *doc, const char *wanted)
{
    char path[sizeof((vp_json_node *)0)->path];
    int  line = line_of(doc, wanted);

    strcpy(path, wanted);
    for (size_t n = strlen(path); !line && n > 0; n--)
        if (path[n] == '.' || path[n] == '[') {
            path[n] = '\0';
            line    = line_of(doc, path);
        }
    return line;
}

static vp_status parse_value(parser *p, int depth, json_t **out, vp_err *err);

static vp_status parse_object(parser *p, int depth, json_t **out, vp_err *err)
{
    vp_status st     = VP_OK;
    json_t   *object = json_object(), *value = NULL;
    size_t    n_path = strlen(p->path);
    char     *key    = NULL, key_buf[64];
    char      shown[80];

    VP_TRY_ALLOC(err, object);
    VP_TRY(vp_lex_next(&p->lex, err));
    for (bool more = p->lex.kind != VP_LEX_OBJECT_END; more;) {
        if (p->lex.kind != VP_LEX_STRING) {
            st = vp_lex_unexpected(&p->lex,
                                   json_object_size(object) ? "a key after the comma"
                                                            : "a key in double quotes or \"}\"",
                                   err);
            goto out;
        }
        push_key(p->path, sizeof p->path, p->lex.text);
        if (json_object_get(object, p->lex.text)) {
            st = vp_lex_fail(&p->lex, err, "the key \"%s\" stands twice, first in line %d",
                             vp_text_escape(p->lex.text, shown, sizeof shown),
                             line_of(p->doc, p->path));
            goto out;
        }
        key = p->lex.n_text_bytes < sizeof key_buf ? key_buf : malloc(p->lex.n_text_bytes + 1);
        VP_TRY_ALLOC(err, key);
        memcpy(key, p->lex.text, p->lex.n_text_bytes + 1);
        VP_TRY(vp_lex_want(&p->lex, VP_LEX_COLON, "\":\" after the key", err));
        VP_TRY(vp_lex_next(&p->lex, err));
        VP_TRY(parse_value(p, depth + 1, &value, err));
        if (json_object_set_new_nocheck(object, key, value)) {
            value = NULL; /* jansson has released it */
            VP_TRY_ALLOC(err, value);
        }
        value = NULL;
        if (key != key_buf)
            free(key);
        key             = NULL;
        p->path[n_path] = '\0';
        VP_TRY(vp_lex_more(&p->lex, VP_LEX_OBJECT_END, "\",\" or \"}\" after a value",
                           "a key after the comma", &more, err));
    }
    assert(p->path[n_path] == '\0'); /* the path is this object's own again */
    *out   = object;
    object = NULL;
out:
    if (key != key_buf)
        free(key);
    json_decref(value);
    json_decref(object);
    return st;
}

static vp_status parse_array(parser *p, int depth, json_t **out, vp_err *err)
{
    vp_status st    = VP_OK;
    json_t   *array = json_array(), *value = NULL;
    size_t    n_path = strlen(p->path);

    VP_TRY_ALLOC(err, array);
    push_index(p->path, sizeof p->path, 0);
    VP_TRY(vp_lex_next(&p->lex, err));
    while (p->lex.kind != VP_LEX_ARRAY_END) {
        VP_TRY(parse_value(p, depth + 1, &value, err));
        if (json_array_append_new(array, value)) {
            value = NULL; /* jansson has released it */
            VP_TRY_ALLOC(err, value);
        }
        value           = NULL;
        p->path[n_path] = '\0';
        VP_TRY(vp_lex_next(&p->lex, err));
        if (p->lex.kind == VP_LEX_ARRAY_END)
            break;
        if (p->lex.kind != VP_LEX_COMMA) {
            st = vp_lex_unexpected(&p->lex, "\",\" or \"]\" after a value", err);
            goto out;
        }
        /* from the comma on, errors are about the next element */
        push_index(p->path, sizeof p->path, (int64_t)json_array_size(array));
        VP_TRY(vp_lex_next(&p->lex, err));
        if (p->lex.kind == VP_LEX_ARRAY_END) {
            st = vp_lex_unexpected(&p->lex, "a value after the comma", err);
            goto out;
        }
    }
    p->path[n_path] = '\0';
    *out            = array;
    array           = NULL;
out:
    json_decref(value);
    json_decref(array);
    return st;
}

/* The one value of this document that stands for such a number. */
static json_t *special_value(vp_json_doc *doc, special which)
{
    assert(which < N_SPECIALS);
    if (!doc->specials[which])
        doc->specials[which] = json_string_nocheck(special_names[which]);
    return json_incref(doc->specials[which]);
}

/* Whether a spelled integer lies in int64_t; jansson's integers do. */
static bool to_int64(const char *digits, int64_t *out)
{
    bool    negative = *digits == '-';
    int64_t v        = 0;

    for (digits += negative; *digits; digits++) {
        int digit = *digits - '0';
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, negative ? -digit : digit, &v))
            return false;
    }
    *out = v;
    return true;
}

static json_t *number_value(vp_json_doc *doc, const vp_lex *lex)
{
    int64_t whole;
    double  real;

    if (lex->kind == VP_LEX_INTEGER && to_int64(lex->text, &whole))
        return json_integer(whole);
    if (vp_decimal_to_double(lex->text, &real))
        return json_real(real);
    return special_value(doc, OUT_OF_RANGE);
}

/* The value whose first token is the current one. */
static vp_status parse_value(parser *p, int depth, json_t **out, vp_err *err)
{
    vp_status st    = VP_OK;
    json_t   *value = NULL;

    *out = NULL;
    if (++p->n_values > MAX_VALUES) {
        st = vp_lex_fail(&p->lex, err, "more than %d values in one document", MAX_VALUES);
        goto out;
    }
    switch (p->lex.kind) {
    case VP_LEX_OBJECT:
    case VP_LEX_ARRAY:
        if (depth >= MAX_DEPTH) {
            st = vp_lex_fail(&p->lex, err, "nested deeper than %d levels", MAX_DEPTH);
            goto out;
        }
        VP_TRY(p->lex.kind == VP_LEX_OBJECT ? parse_object(p, depth, &value, err)
                                            : parse_array(p, depth, &value, err));
        break;
    case VP_LEX_STRING:
        value = json_stringn_nocheck(p->lex.text, p->lex.n_text_bytes);
        break;
    case VP_LEX_INTEGER:
    case VP_LEX_REAL:
        value = number_value(p->doc, &p->lex);
        break;
    case VP_LEX_TRUE:
        value = json_true();
        break;
    case VP_LEX_FALSE:
        value = json_false();
        break;
    case VP_LEX_NULL:
        value = json_null();
        break;
    case VP_LEX_NAN:
        value = special_value(p->doc, NOT_A_NUMBER);
        break;
    case VP_LEX_INFINITY:
        value = special_value(p->doc, PLUS_INFINITY);
        break;
    case VP_LEX_MINUS_INFINITY:
        value = special_value(p->doc, MINUS_INFINITY);
        break;
    default:
        st = vp_lex_unexpected(&p->lex, "a value", err);
        goto out;
    }
    VP_TRY_ALLOC(err, value);
    *out = value;
out:
    return st;
}

/* Text in another encoding is named as such: its first bytes would only be "unexpected". */
static const char *other_encoding(const unsigned char *b, int64_t n)
{
    if (n >= 4 && ((b[0] == 0xff && b[1] == 0xfe && !b[2] && !b[3]) ||
                   (!b[0] && !b[1] && b[2] == 0xfe && b[3] == 0xff)))
        return "UTF-32";
    if (n >= 2 && ((b[0] == 0xff && b[1] == 0xfe) || (b[0] == 0xfe && b[1] == 0xff) ||
                   (b[0] && !b[1]) || (!b[0] && b[1])))
        return "UTF-16";
    return NULL;
}

/* Build a document around bytes, which become its own even on failure. */
static vp_status parse_owned(const char *name, char *bytes, int64_t n_bytes, vp_json_doc **out,
                             vp_err *err)
{
    vp_status    st  = VP_OK;
    parser       p   = {.doc = NULL};
    vp_json_doc *doc = calloc(1, sizeof *doc);
    const char  *encoding;

    assert(bytes && n_bytes >= 0);
    *out = NULL;
    if (!doc)
        free(bytes);
    VP_TRY_ALLOC(err, doc);
    doc->bytes   = bytes;
    doc->n_bytes = n_bytes;
    doc->name    = malloc(strlen(name) + 1);
    VP_TRY_ALLOC(err, doc->name);
    strcpy(doc->name, name);
    if (n_bytes >= 3 && !memcmp(bytes, "\xef\xbb\xbf", 3))
        doc->n_bom_bytes = 3;
    encoding = other_encoding((const unsigned char *)bytes, n_bytes);
    if (encoding) {
        st = VP_FAIL_AT(err, VP_ERR_INPUT, name, 1, NULL, "is %s text; JSON is UTF-8", encoding);
        goto out;
    }
    p.doc = doc;
    vp_lex_from_memory(&p.lex, name, bytes + doc->n_bom_bytes, n_bytes - doc->n_bom_bytes,
                       doc->n_bom_bytes);
    p.lex.max_text_bytes = MAX_STRING_BYTES;
    p.lex.field          = p.path;
    VP_TRY(vp_lex_next(&p.lex, err));
    if (p.lex.kind == VP_LEX_END) {
        st = VP_FAIL_AT(err, VP_ERR_INPUT, name, 1, NULL,
                        n_bytes == doc->n_bom_bytes ? "is empty" : "holds nothing but white space");
        goto out;
    }
    VP_TRY(parse_value(&p, 0, &doc->root, err));
    p.path[0] = '\0';
    VP_TRY(vp_lex_next(&p.lex, err));
    if (p.lex.kind != VP_LEX_END) {
        st = vp_lex_unexpected(&p.lex, "nothing more after the value", err);
        goto out;
    }
    *out = doc;
    doc  = NULL;
out:
    vp_lex_release(&p.lex);
    vp_json_doc_free(doc);
    return st;
}

vp_status vp_json_read(const char *path, int64_t max_bytes, vp_json_doc **out, vp_err *err)
{
    vp_status st = VP_OK;
    char     *bytes;
    int64_t   n_bytes;

    *out = NULL;
    VP_TRY(vp_file_read(path, max_bytes, &bytes, &n_bytes, err));
    VP_TRY(parse_owned(strcmp(path, "-") ? path : "standard input", bytes, n_bytes, out, err));
out:
    return st;
}

vp_status vp_json_parse(const char *name, const char *bytes, int64_t n_bytes, vp_json_doc **out,
                        vp_err *err)
{
    vp_status st   = VP_OK;
    char     *copy = NULL;

    *out = NULL;
    assert(n_bytes >= 0);
    copy = malloc((size_t)n_bytes + 1);
    VP_TRY_ALLOC(err, copy);
    if (n_bytes)
        memcpy(copy, bytes, (size_t)n_bytes);
    copy[n_bytes] = '\0';
    VP_TRY(parse_owned(name, copy, n_bytes, out, err));
out:
    return st;
}

void vp_json_doc_free(vp_json_doc *doc)
{
    if (!doc)
        return;
    json_decref(doc->root);
    for (int i = 0; i < N_SPECIALS; i++)
        json_decref(doc->specials[i]);
    free(doc->bytes);
    free(doc->name);
    free(doc);
}

const char *vp_json_name(const vp_json_doc *doc)
{
    return doc->name;
}

bool vp_json_had_bom(const vp_json_doc *doc)
{
    return doc->n_bom_bytes > 0;
}

const char *vp_json_text(const vp_json_doc *doc, int64_t *n_bytes)
{
    *n_bytes = doc->n_bytes;
    return doc->bytes;
}

vp_json_node vp_json_root(const vp_json_doc *doc)
{
    return (vp_json_node){.doc = doc, .value = doc->root};
}

static const char *special_name(const vp_json_doc *doc, const json_t *value)
{
    for (int i = 0; value && i < N_SPECIALS; i++)
        if (value == doc->specials[i])
            return special_names[i];
    return NULL;
}

/* A value as an error message shows it. */
static const char *describe(const vp_json_doc *doc, const json_t *value, char *buf, size_t buf_size)
{
    const char *name = special_name(doc, value);
    vp_text     text = {0};
    char        shown[64];

    if (name)
        return name;
    assert(value);
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_NULL:
        return "null";
    case JSON_STRING:
        snprintf(buf, buf_size, "the string \"%s\"",
                 vp_text_escape(json_string_value(value), shown, sizeof shown));
        return buf;
    case JSON_INTEGER:
        snprintf(buf, buf_size, "%lld", (long long)json_integer_value(value));
        return buf;
    case JSON_REAL:
        vp_text_printf(&text, "%.17g", json_real_value(value));
        snprintf(buf, buf_size, "%s", text.failed ? "another number" : text.data);
        vp_text_release(&text);
        return buf;
    }
    return "of no known type";
}

/* What node holds under key, or its own value for key NULL; NULL when there is none. */
static json_t *member_of(const vp_json_node *node, const char *key)
{
    if (!key)
        return node->value;
    return json_is_object(node->value) ? json_object_get(node->value, key) : NULL;
}

static vp_status fail_at(const vp_json_node *node, const char *key, vp_err *err,
                         const char *message)
{
    char path[sizeof node->path];
    int  line = 0;

    if (!err || err->code != VP_OK)
        return VP_ERR_INPUT; /* vp_fail() would keep nothing of what is looked for here */
    assert(node->doc && message);
    strcpy(path, node->path);
    if (key) {
        push_key(path, sizeof path, key);
        if (member_of(node, key))
            line = line_of(node->doc, path);
    }
    if (!line)
        line = line_near(node->doc, node->path);
    return VP_FAIL_AT(err, VP_ERR_INPUT, node->doc->name, line, path, "%s", message);
}

vp_status vp_json_fail(const vp_json_node *node, const char *key, vp_err *err, const char *fmt, ...)
{
    char    message[sizeof err->message];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    return fail_at(node, key, err, message);
}

/* "must be X" for a value that is there, "is missing" for one that is not. */
static vp_status mistyped(const vp_json_node *node, const char *key, const char *wanted,
                          vp_err *err)
{
    const json_t *value = member_of(node, key);
    char          shown[96];

    if (key && !json_is_object(node->value))
        return vp_json_fail(node, NULL, err, "must be an object, is %s",
                            describe(node->doc, node->value, shown, sizeof shown));
    if (!value)
        return vp_json_fail(node, key, err, "is missing; it must be %s", wanted);
    return vp_json_fail(node, key, err, "must be %s, is %s", wanted,
                        describe(node->doc, value, shown, sizeof shown));
}

bool vp_json_has(const vp_json_node *node, const char *key)
{
    const json_t *value = member_of(node, key);
    return value && !json_is_null(value);
}

static void make_member(const vp_json_node *node, const char *key, vp_json_node *out)
{
    vp_json_node made = *node; /* out may be node */

    made.value = member_of(node, key);
    if (key)
        push_key(made.path, sizeof made.path, key);
    *out = made;
}

vp_status vp_json_object(const vp_json_node *node, const char *key, vp_json_node *out, vp_err *err)
{
    if (!json_is_object(member_of(node, key)))
        return mistyped(node, key, "an object", err);
    make_member(node, key, out);
    return VP_OK;
}

vp_status vp_json_array(const vp_json_node *node, const char *key, vp_json_node *out, int64_t *n,
                        vp_err *err)
{
    const json_t *value = member_of(node, key);

    if (!json_is_array(value))
        return mistyped(node, key, "an array", err);
    *n = (int64_t)json_array_size(value);
    make_member(node, key, out);
    return VP_OK;
}

vp_status vp_json_element(const vp_json_node *array, int64_t idx, vp_json_node *out, vp_err *err)
{
    vp_json_node made = *array;
    int64_t      n    = (int64_t)json_array_size(array->value);

    if (!json_is_array(array->value))
        return mistyped(array, NULL, "an array", err);
    if (idx < 0 || idx >= n)
        return vp_json_fail(array, NULL, err, "has %lld elements; number %lld is missing",
                            (long long)n, (long long)idx);
    made.value = json_array_get(array->value, (size_t)idx);
    push_index(made.path, sizeof made.path, idx);
    *out = made;
    return VP_OK;
}

vp_status vp_json_int(const vp_json_node *node, const char *key, int64_t min, int64_t max,
                      int64_t *out, vp_err *err)
{
    const json_t *value = member_of(node, key);
    int64_t       v;
    char          shown[96];

    assert(min <= max);
    if (json_is_integer(value)) {
        v = json_integer_value(value);
    } else if (json_is_real(value) && json_real_value(value) == floor(json_real_value(value))) {
        double real = json_real_value(value);
        if (!(fabs(real) < 0x1p53))
            return vp_json_fail(
                node, key, err, "must be a whole number between %lld and %lld, is %s",
                (long long)min, (long long)max, describe(node->doc, value, shown, sizeof shown));
        v = (int64_t)real;
    } else {
        return mistyped(node, key, "a whole number", err);
    }
    if (v < min || v > max)
        return vp_json_fail(node, key, err, "must be between %lld and %lld, is %lld",
                            (long long)min, (long long)max, (long long)v);
    *out = v;
    return VP_OK;
}

vp_status vp_json_real(const vp_json_node *node, const char *key, double min, double max,
                       double *out, vp_err *err)
{
    const json_t *value = member_of(node, key);
    vp_status     st    = VP_OK;
    vp_text       text  = {0};
    char          shown[96];
    double        v;

    assert(min <= max);
    if (!json_is_number(value))
        return mistyped(node, key, "a number", err);
    v = json_number_value(value);
    if (v < min || v > max) {
        vp_text_printf(&text, "must be between %g and %g, is %s", min, max,
                       describe(node->doc, value, shown, sizeof shown));
        VP_TRY_ALLOC(err, text.data);
        st = fail_at(node, key, err, text.data);
        goto out;
    }
    *out = v;
out:
    vp_text_release(&text);
    return st;
}

vp_status vp_json_bool(const vp_json_node *node, const char *key, bool *out, vp_err *err)
{
    const json_t *value = member_of(node, key);

    if (!json_is_boolean(value))
        return mistyped(node, key, "true or false", err);
    *out = json_is_true(value);
    return VP_OK;
}

vp_status vp_json_string(const vp_json_node *node, const char *key, const char **out, vp_err *err)
{
    const json_t *value = member_of(node, key);

    if (!json_is_string(value) || special_name(node->doc, value))
        return mistyped(node, key, "a string", err);
    *out = json_string_value(value);
    return VP_OK;
}

vp_status vp_json_as_int(const vp_json_node *node, int64_t min, int64_t max, int64_t *out,
                         vp_err *err)
{
    return vp_json_int(node, NULL, min, max, out, err);
}

vp_status vp_json_as_real(const vp_json_node *node, double min, double max, double *out,
                          vp_err *err)
{
    return vp_json_real(node, NULL, min, max, out, err);
}

vp_status vp_json_as_string(const vp_json_node *node, const char **out, vp_err *err)
{
    return vp_json_string(node, NULL, out, err);
}

vp_status vp_json_only_keys(const vp_json_node *node, const char *const *keys, vp_err *err)
{
    const char *key;
    json_t     *value;

    if (!json_is_object(node->value))
        return mistyped(node, NULL, "an object", err);
    json_object_foreach (node->value, key, value) {
        int i = 0;
        while (keys[i] && strcmp(keys[i], key))
            i++;
        if (!keys[i])
            return vp_json_fail(node, key, err, "is no field known here");
    }
    return VP_OK;
}

static int append_piece(const char *bytes, size_t n_bytes, void *data)
{
    vp_text *t = data;

    vp_text_append(t, bytes, n_bytes);
    return t->failed ? -1 : 0;
}

json_t *vp_json_real_or_null(double x)
{
    return x < 0 ? json_null() : json_real(x);
}

json_t *vp_json_text_or_null(const char *text)
{
    char    shown[4096];
    json_t *j = text[0] ? json_string(text) : json_null();

    return j ? j : json_string(vp_text_escape(text, shown, sizeof shown));
}

json_t *vp_json_int_or_null(int64_t x)
{
    return x < 0 ? json_null() : json_integer((json_int_t)x);
}

bool vp_json_dump(const json_t *value, vp_text *out)
{
    locale_t c_locale = vp_c_locale(), before;
    int      failed;

    if (!c_locale)
        return false;
    before = uselocale(c_locale);
    failed = json_dump_callback(value, append_piece, out,
                                JSON_INDENT(2) | JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY);
    uselocale(before);
    freelocale(c_locale);
    vp_text_append(out, "\n", 1);
    return !failed && !out->failed;
}
