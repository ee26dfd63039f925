/* trainers/files/document_tree.c: the tree, and which reader a file gets. */
#include "trainers/files/document.h"

#include "trainers/files/launch.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

vp_document *vp_document_new(vp_arena *arena, const char *name, vp_format format)
{
    vp_document *doc = vp_arena_alloc(arena, sizeof *doc);

    if (!doc)
        return NULL;
    *doc      = (vp_document){.arena = arena, .name = name, .format = format};
    doc->root = vp_arena_alloc(arena, sizeof *doc->root);
    if (!doc->root)
        return NULL;
    *doc->root = (vp_value){.kind = VP_VALUE_MAP, .line = 1, .column = 1};
    return doc;
}

/* ---- members by key ---- */

/* Open addressing by FNV-1a; of one key the last member. */
struct vp_value_index {
    int64_t   n_slots; /* a power of two, at least twice the members */
    vp_value *slots[];
};

enum { MANY_MEMBERS = 32 };

static vp_value **slot_of(struct vp_value_index *index, const char *key, size_t n)
{
    for (int64_t at = (int64_t)(vp_hash(key, n) & (uint64_t)(index->n_slots - 1));;
         at         = (at + 1) & (index->n_slots - 1)) {
        const vp_value *v = index->slots[at];
        if (!v || (strncmp(v->key, key, n) == 0 && !v->key[n]))
            return &index->slots[at];
    }
}

/* Without memory for it the list is walked. */
static void build_index(vp_document *doc, vp_value *map)
{
    int64_t n = map->n_children * 4, n_slots = 1;
    size_t  size;

    while (n_slots < n)
        n_slots *= 2;
    size       = sizeof *map->index + (size_t)n_slots * sizeof *map->index->slots;
    map->index = vp_arena_alloc(doc->arena, size);
    if (!map->index)
        return;
    map->index->n_slots = n_slots;
    for (vp_value *v = map->first; v; v = v->next)
        *slot_of(map->index, v->key, strlen(v->key)) = v;
}

static void note_member(vp_document *doc, vp_value *map, vp_value *v)
{
    if (map->n_children <= MANY_MEMBERS || !v->key)
        return;
    if (!map->index || map->n_children * 2 > map->index->n_slots)
        build_index(doc, map);
    else
        *slot_of(map->index, v->key, strlen(v->key)) = v;
}

static void append(vp_value *parent, vp_value *v)
{
    if (parent->last)
        parent->last->next = v;
    else
        parent->first = v;
    parent->last = v;
    parent->n_children++;
}

vp_value *vp_value_add(vp_document *doc, vp_value *parent, const char *key)
{
    vp_value *v = NULL;

    if (doc->n_values >= VP_DOCUMENT_MAX_VALUES)
        return NULL;
    v = vp_arena_alloc(doc->arena, sizeof *v);
    if (!v)
        return NULL;
    doc->n_values++;
    *v = (vp_value){.key = key};
    append(parent, v);
    note_member(doc, parent, v);
    return v;
}

void vp_value_drop(vp_value   *map, bool (*drops)(const vp_value *v, const void *user),
                   const void *user)
{
    vp_value *v = map->first, *next;

    map->first = map->last = NULL;
    map->n_children = 0, map->index = NULL;
    for (; v; v = next) {
        next = v->next;
        if (drops(v, user))
            continue;
        v->next = NULL;
        append(map, v);
    }
}

vp_status vp_document_remark(vp_document *doc, int line, const char *key, bool is_error,
                             vp_err *err, const char *fmt, ...)
{
    vp_remark *r = vp_arena_alloc(doc->arena, sizeof *r);
    char       text[512];
    va_list    args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (r)
        *r = (vp_remark){.line     = line,
                         .key      = key,
                         .text     = vp_arena_strdup(doc->arena, text),
                         .is_error = is_error};
    if (!r || !r->text)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    if (doc->last_remark)
        doc->last_remark->next = r;
    else
        doc->remarks = r;
    doc->last_remark = r;
    return VP_OK;
}

static vp_value *member(const vp_value *map, const char *key, size_t n)
{
    vp_value *found = NULL;

    if (map->index)
        return *slot_of(map->index, key, n);
    for (vp_value *v = map->first; v; v = v->next)
        if (v->key && strncmp(v->key, key, n) == 0 && !v->key[n])
            found = v;
    return found;
}

vp_value *vp_value_member(const vp_value *map, const char *key)
{
    return member(map, key, strlen(key));
}

void vp_value_prefix(vp_document *doc, vp_value *map, const char *prefix)
{
    for (vp_value *v = map->first; v; v = v->next) {
        if (strncmp(v->key, prefix, strlen(prefix)) == 0)
            continue;
        const char *key = vp_arena_printf(doc->arena, "%s%s", prefix, v->key);
        if (key)
            v->key = key;
    }
    map->index = NULL;
}

void vp_value_drop_last(vp_value *parent, const vp_value *v)
{
    vp_value *last = NULL;

    for (vp_value *o = parent->first; o != v; o = o->next)
        last = o;
    parent->last                           = last;
    *(last ? &last->next : &parent->first) = NULL;
    parent->n_children--;
    parent->index = NULL;
}

vp_value *vp_value_at(const vp_value *map, const char *path)
{
    size_t n_path = strlen(path);

    if (!map || map->kind != VP_VALUE_MAP)
        return NULL;
    for (size_t n = n_path; n > 0; n--) {
        vp_value *found;
        if (n < n_path && path[n] != '.')
            continue;
        found = member(map, path, n);
        if (found && n < n_path)
            found = vp_value_at(found, path + n + 1);
        if (found)
            return found;
    }
    return NULL;
}

vp_value *vp_value_make(vp_document *doc, const char *path)
{
    vp_value *at = doc->root;

    for (const char *dot; at; path = dot + 1) {
        char key[256];
        dot      = strchr(path, '.');
        size_t n = dot ? (size_t)(dot - path) : strlen(path);
        if (at->kind != VP_VALUE_MAP || n >= sizeof key)
            return NULL;
        memcpy(key, path, n);
        key[n]         = '\0';
        vp_value *next = vp_value_member(at, key);
        if (!next) {
            char *kept = vp_arena_strdup(doc->arena, key);
            next       = kept ? vp_value_add(doc, at, kept) : NULL;
            if (next && dot)
                next->kind = VP_VALUE_MAP;
        }
        at = next;
        if (!dot)
            break;
    }
    return at;
}

/* ---- scalars as PyYAML's safe loader types them ---- */

static bool one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(text, *words) == 0)
            return true;
    return false;
}

/* A number in base 10 to 60 whose text is known to be well formed, without its underscores. */
static bool take_int(vp_value *v)
{
    const char *t    = v->text;
    bool        less = *t == '-';
    char        digits[64];
    size_t      n    = 0;
    int         base = 10;
    char       *end;

    if (*t == '-' || *t == '+')
        t++;
    if (!isdigit((unsigned char)*t))
        return false;
    if (t[0] == '0' && (t[1] == 'x' || t[1] == 'X'))
        base = 16, t += 2;
    else if (t[0] == '0' && t[1] == 'b')
        base = 2, t += 2;
    else if (t[0] == '0' && t[1])
        base = 8, t += 1;
    for (; *t; t++) {
        if (*t == '_')
            continue;
        if (n + 1 >= sizeof digits)
            return false;
        digits[n++] = *t;
    }
    digits[n] = '\0';
    if (!n || !isxdigit((unsigned char)digits[0]))
        return false;
    errno             = 0;
    long long integer = strtoll(digits, &end, base);
    if (*end || errno)
        return false;
    v->kind    = VP_VALUE_INT;
    v->integer = less ? -integer : integer;
    v->real    = (double)v->integer;
    return true;
}

/* [-+]? digits '.' digits? ([eE][-+] digits)?, or '.' digits: PyYAML wants the dot and the sign. */
static bool take_real(vp_value *v)
{
    const char *t = v->text;
    char        plain[80];
    size_t      n     = 0;
    bool        digit = false;

    if (*t == '-' || *t == '+')
        plain[n++] = *t++;
    if (one_of(t, (const char *const[]){".inf", ".Inf", ".INF", NULL})) {
        v->kind = VP_VALUE_REAL;
        v->real = v->text[0] == '-' ? -INFINITY : INFINITY;
        return true;
    }
    for (; (isdigit((unsigned char)*t) || *t == '_') && n < 60; t++) {
        digit = digit || *t != '_';
        if (*t != '_')
            plain[n++] = *t;
    }
    if (*t != '.' || n >= 60)
        return false;
    plain[n++] = *t++;
    for (; (isdigit((unsigned char)*t) || *t == '_') && n < 60; t++) {
        digit = digit || *t != '_';
        if (*t != '_')
            plain[n++] = *t;
    }
    if (!digit || n >= 60)
        return false;
    if (*t == 'e' || *t == 'E') {
        plain[n++] = *t++;
        if (*t != '-' && *t != '+')
            return false;
        plain[n++] = *t++;
        if (!isdigit((unsigned char)*t))
            return false;
        while (isdigit((unsigned char)*t) && n < 70)
            plain[n++] = *t++;
    }
    if (*t)
        return false;
    plain[n] = '\0';
    v->kind  = VP_VALUE_REAL;
    v->real  = strtod(plain, NULL);
    return true;
}

void vp_value_resolve(vp_value *v)
{
    static const char *const nulls[]  = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const trues[]  = {"yes",  "Yes", "YES", "true", "True",
                                         "TRUE", "on",  "On",  "ON",   NULL};
    static const char *const falses[] = {"no",    "No",  "NO",  "false", "False",
                                         "FALSE", "off", "Off", "OFF",   NULL};

    v->kind = VP_VALUE_STRING;
    if (v->quoted)
        return;
    if (one_of(v->text, nulls)) {
        v->kind = VP_VALUE_NULL;
    } else if (one_of(v->text, trues) || one_of(v->text, falses)) {
        v->kind    = VP_VALUE_BOOL;
        v->boolean = one_of(v->text, trues);
    } else if (!take_int(v)) {
        take_real(v);
    }
}

/* ---- reading ---- */

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && strcmp(name + n - m, end) == 0;
}

static bool is_of_windows(const char *name)
{
    return ends_in(name, ".bat") || ends_in(name, ".cmd") || ends_in(name, ".ps1");
}

static vp_format format_of(const char *name, const char *bytes, int64_t n)
{
    static const struct {
        const char *end;
        vp_format   format;
    } ends[] = {
        {".json", VP_FORMAT_JSON},   {".yaml", VP_FORMAT_YAML},      {".yml", VP_FORMAT_YAML},
        {".args", VP_FORMAT_FLAGS},  {".sh", VP_FORMAT_FLAGS},       {".flags", VP_FORMAT_FLAGS},
        {".py", VP_FORMAT_PYTHON},   {".ipynb", VP_FORMAT_NOTEBOOK}, {".toml", VP_FORMAT_TOML},
        {".slurm", VP_FORMAT_FLAGS}, {".sbatch", VP_FORMAT_FLAGS},   {".bash", VP_FORMAT_FLAGS},
        {".zsh", VP_FORMAT_FLAGS}};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_in(name, ends[i].end))
            return ends[i].format;
    if (n > 2 && bytes[0] == '#' && bytes[1] == '!') { /* a script of any name says who runs it */
        const char *end = memchr(bytes, '\n', (size_t)n);
        int64_t     m   = end ? end - bytes : n;
        return memmem(bytes, (size_t)m, "python", 6) ? VP_FORMAT_PYTHON : VP_FORMAT_FLAGS;
    }
    while (n > 0 && isspace((unsigned char)*bytes))
        bytes++, n--;
    if (n > 0 && (*bytes == '{' || *bytes == '['))
        return VP_FORMAT_JSON;
    return n > 1 && bytes[0] == '-' && bytes[1] == '-' ? VP_FORMAT_FLAGS : VP_FORMAT_YAML;
}

vp_status vp_document_parse(vp_arena *arena, const char *name, const char *bytes, int64_t n_bytes,
                            vp_format format, vp_document **out, vp_err *err)
{
    return vp_document_parse_run(arena, name, bytes, n_bytes, format, &(vp_document_run){0}, out,
                                 err);
}

vp_status vp_document_parse_run(vp_arena *arena, const char *name, const char *bytes,
                                int64_t n_bytes, vp_format format, const vp_document_run *run,
                                vp_document **out, vp_err *err)
{
    vp_document *doc = vp_document_new(arena, name, format);
    vp_status    st  = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, doc);
    doc->command    = run->command;
    doc->capability = run->capability;
    doc->config     = run->config;
    doc->config_of  = run->config_of;
    if (n_bytes >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0)
        bytes += 3, n_bytes -= 3;
    if (format == VP_FORMAT_BY_NAME)
        doc->format = format_of(name, bytes, n_bytes);
    const char *nul = memchr(bytes, '\0', (size_t)n_bytes);
    if (nul) {
        int line = 1;
        for (const char *p = bytes; p < nul; p++)
            line += *p == '\n';
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, name, line, NULL, "a NUL byte: not a text file"));
    }
    if (format == VP_FORMAT_BY_NAME && is_of_windows(name))
        VP_TRY(
            VP_FAIL_AT(err, VP_ERR_INPUT, name, 1, NULL,
                       "a script of Windows' shells, which are not read; give its command: vplan "
                       "check -- COMMAND"));
    switch (doc->format) {
    case VP_FORMAT_JSON:
        VP_TRY(vp_document_parse_json(doc, bytes, n_bytes, err));
        break;
    case VP_FORMAT_FLAGS:
        VP_TRY(vp_document_parse_flags(doc, bytes, n_bytes, err));
        break;
    case VP_FORMAT_PYTHON:
        VP_TRY(vp_document_parse_python(doc, bytes, n_bytes, err));
        break;
    case VP_FORMAT_NOTEBOOK:
        VP_TRY(vp_document_parse_notebook(doc, bytes, n_bytes, err));
        break;
    case VP_FORMAT_TOML:
        VP_TRY(vp_document_parse_toml(doc, bytes, n_bytes, err));
        break;
    default:
        VP_TRY(vp_document_parse_yaml(doc, bytes, n_bytes, err));
        break;
    }
    if (!doc->launch)
        VP_TRY(vp_launch_of_comment(doc, bytes, n_bytes, err));
    if (doc->root->kind != VP_VALUE_MAP)
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, name, doc->root->line, NULL,
                          "expected keys and values, not a %s",
                          doc->root->kind == VP_VALUE_LIST ? "list" : "single value"));
    *out = doc;
out:
    return st;
}

vp_status vp_document_read(vp_arena *arena, const char *path, vp_format format, vp_document **out,
                           vp_err *err)
{
    return vp_document_read_run(arena, path, format, &(vp_document_run){0}, out, err);
}

vp_status vp_document_read_run(vp_arena *arena, const char *path, vp_format format,
                               const vp_document_run *run, vp_document **out, vp_err *err)
{
    char     *bytes = NULL;
    int64_t   n     = 0;
    vp_status st    = VP_OK;

    *out = NULL;
    VP_TRY(vp_file_read(path, VP_DOCUMENT_MAX_BYTES, &bytes, &n, err));
    VP_TRY(vp_document_parse_run(arena, path, bytes, n, format, run, out, err));
out:
    free(bytes);
    return st;
}
