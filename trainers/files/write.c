/* trainers/files/write.c: a document as text that its trainer's reader takes as it is meant. */
#include "trainers/files/emit.h"
#include "trainers/files/told.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_comment(vp_text *out, const char *comment)
{
    while (comment && *comment) {
        size_t n = strcspn(comment, "\n");
        vp_text_printf(out, n ? "# %.*s\n" : "#%.*s\n", (int)n, comment);
        comment += n + (comment[n] == '\n');
    }
}

/* A string between double quotes: JSON's and YAML's escapes are the same here. */
static void put_quoted(vp_text *out, const char *text)
{
    vp_text_printf(out, "\"");
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            vp_text_printf(out, "\\%c", *text);
        else if ((unsigned char)*text < 0x20)
            vp_text_printf(out, "\\u%04x", *text);
        else
            vp_text_append(out, text, 1);
    }
    vp_text_printf(out, "\"");
}

/* Whether YAML would read the word as something else than the string it is. */
static bool needs_quotes(const char *text)
{
    vp_value v = {.text = text};

    vp_value_resolve(&v);
    if (v.kind != VP_VALUE_STRING || !(isalnum((unsigned char)text[0]) || strchr("./_", text[0])))
        return true;
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && !strchr("._-/+:@", *text))
            return true;
        else if (*text == ':' && (!text[1] || text[1] == ' '))
            return true;
    return false;
}

/* A real number that YAML 1.1 reads as one: 2.0e-05, never 2e-05. */
static void put_real(vp_text *out, double x)
{
    char text[40];

    snprintf(text, sizeof text, "%.15g", x);
    char *e = strchr(text, 'e');
    if (strchr(text, '.') || !strpbrk(text, "0123456789"))
        vp_text_printf(out, "%s", text);
    else if (e)
        vp_text_printf(out, "%.*s.0%s", (int)(e - text), text, e);
    else
        vp_text_printf(out, "%s.0", text);
}

static void put_scalar(vp_text *out, const vp_value *v, vp_format format)
{
    bool python = format == VP_FORMAT_PYTHON;

    if (v->kind == VP_VALUE_NULL)
        vp_text_printf(out, python ? "None" : "null");
    else if (v->kind == VP_VALUE_BOOL)
        vp_text_printf(out, v->boolean ? (python ? "True" : "true") : (python ? "False" : "false"));
    else if (v->kind == VP_VALUE_INT)
        vp_text_printf(out, "%lld", (long long)v->integer);
    else if (v->kind == VP_VALUE_REAL)
        put_real(out, v->real);
    else if (python && !v->quoted)
        vp_text_printf(out, "%s", v->text); /* a name: torch.bfloat16 */
    else if (format == VP_FORMAT_YAML && !needs_quotes(v->text))
        vp_text_printf(out, "%s", v->text);
    else
        put_quoted(out, v->text);
}

static void put_json(vp_text *out, const vp_value *v, int depth, vp_format format)
{
    bool map = v->kind == VP_VALUE_MAP;

    if (!map && v->kind != VP_VALUE_LIST) {
        put_scalar(out, v, format);
        return;
    }
    vp_text_printf(out, map ? "{" : "[");
    for (const vp_value *m = v->first; m; m = m->next) {
        if (map)
            vp_text_printf(out, "\n%*s", depth * 4 + 4, "");
        if (map)
            put_quoted(out, m->key);
        if (map)
            vp_text_printf(out, ": ");
        put_json(out, m, depth + 1, format);
        if (m->next)
            vp_text_printf(out, map ? "," : ", ");
    }
    if (map && v->first)
        vp_text_printf(out, format == VP_FORMAT_PYTHON ? ",\n%*s" : "\n%*s", depth * 4, "");
    vp_text_printf(out, map ? "}" : "]");
}

static void put_yaml(vp_text *out, const vp_value *map, int depth)
{
    for (const vp_value *m = map->first; m; m = m->next) {
        vp_text_printf(out, "%*s%s:", depth * 2, "", m->key);
        if (m->kind == VP_VALUE_MAP && m->first) {
            vp_text_printf(out, "\n");
            put_yaml(out, m, depth + 1);
            continue;
        }
        if (m->kind == VP_VALUE_LIST && m->first) {
            vp_text_printf(out, "\n");
            for (const vp_value *e = m->first; e; e = e->next) {
                vp_text_printf(out, "%*s- ", depth * 2 + 2, "");
                put_json(out, e, 0, VP_FORMAT_YAML);
                vp_text_printf(out, "\n");
            }
            continue;
        }
        vp_text_printf(out, " ");
        put_json(out, m, 0, VP_FORMAT_YAML);
        vp_text_printf(out, "\n");
    }
}

static void put_shell(vp_text *out, const char *text)
{
    if (text[0] && strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/"
                                "+:=,@") == strlen(text)) {
        vp_text_printf(out, "%s", text);
        return;
    }
    vp_text_printf(out, "'");
    for (; *text; text++)
        if (*text == '\'')
            vp_text_printf(out, "'\\''");
        else
            vp_text_append(out, text, 1);
    vp_text_printf(out, "'");
}

/* One option a line. A flag is there or not; a map goes as JSON in one word. */
static void put_flags(vp_text *out, const vp_value *map, const vp_dialect *dialect)
{
    for (const vp_value *m = map->first; m; m = m->next) {
        const vp_key *key  = dialect ? vp_dialect_key(dialect, m->key, NULL) : NULL;
        bool          flag = key && key->type == VP_KEY_FLAG;
        if (m->kind == VP_VALUE_NULL || (flag && !m->boolean))
            continue;
        if (strcmp(m->key, "script") == 0) { /* between the launcher's options and its own */
            vp_text_printf(out, "%s\n", m->text);
            continue;
        }
        vp_text_printf(out, "--");
        for (const char *p = m->key; *p; p++)
            vp_text_printf(out, "%c",
                           dialect && dialect->flags && strcmp(m->key, "nproc_per_node") != 0 &&
                                   *p == '_'
                               ? '-'
                               : *p);
        if (flag) {
            vp_text_printf(out, "\n");
            continue;
        }
        if (m->kind == VP_VALUE_LIST) {
            for (const vp_value *e = m->first; e; e = e->next) {
                vp_text_printf(out, " ");
                put_shell(out, e->text ? e->text : "");
            }
        } else if (m->kind == VP_VALUE_STRING) {
            vp_text_printf(out, " ");
            put_shell(out, m->text);
        } else {
            vp_text word = {0};
            put_json(&word, m, 0, VP_FORMAT_JSON);
            char *to = word.data; /* of a map: one line, without its indent */
            for (const char *p = word.data; p && *p; p++)
                if (*p == '\n')
                    p += strspn(p + 1, " ");
                else
                    *to++ = *p;
            if (to)
                *to = '\0';
            vp_text_printf(out, " ");
            put_shell(out, vp_text_string(&word));
            vp_text_release(&word);
        }
        vp_text_printf(out, "\n");
    }
}

static void put_toml(vp_text *out, const vp_value *map, const char *path)
{
    for (const vp_value *m = map->first; m; m = m->next) {
        if (m->kind == VP_VALUE_MAP || m->kind == VP_VALUE_NULL)
            continue;
        vp_text_printf(out, "%s = ", m->key);
        put_json(out, m, 0, VP_FORMAT_JSON);
        vp_text_printf(out, "\n");
    }
    for (const vp_value *m = map->first; m; m = m->next) {
        char inner[256];
        if (m->kind != VP_VALUE_MAP)
            continue;
        snprintf(inner, sizeof inner, "%s%s%s", path, path[0] ? "." : "", m->key);
        vp_text_printf(out, "\n[%s]\n", inner);
        put_toml(out, m, inner);
    }
}

void vp_document_write(const vp_document *doc, const vp_dialect *dialect, const char *comment,
                       vp_text *out)
{
    if (doc->format != VP_FORMAT_JSON)
        put_comment(out, comment);
    if (doc->format == VP_FORMAT_YAML)
        put_yaml(out, doc->root, 0);
    else if (doc->format == VP_FORMAT_FLAGS)
        put_flags(out, doc->root, dialect);
    else if (doc->format == VP_FORMAT_TOML)
        put_toml(out, doc->root, "");
    else
        put_json(out, doc->root, 0, doc->format);
    if (doc->format == VP_FORMAT_JSON)
        vp_text_printf(out, "\n");
}

/* ---- a value of a key's type ---- */

static bool set_list(vp_document *doc, vp_value *v, const char *text)
{
    v->kind = VP_VALUE_LIST;
    while (*text) {
        size_t    n    = strcspn(text, "+");
        vp_value *e    = vp_value_add(doc, v, NULL);
        char     *word = vp_arena_alloc(doc->arena, n + 1);
        if (!e || !word)
            return false;
        memcpy(word, text, n);
        *e = (vp_value){.kind = VP_VALUE_STRING, .text = word, .quoted = true};
        text += n + (text[n] == '+');
    }
    return true;
}

/* all-linear and all_linear */
static bool is_spelt_like(const char *a, const char *b)
{
    for (; *a && (*a == *b || (strchr("-_", *a) && strchr("-_", *b) && *b)); a++, b++)
        ;
    return !*a && !*b;
}

bool vp_value_set(vp_document *doc, vp_value *v, const vp_key *key, const char *text)
{
    bool is_alone = key->type == VP_KEY_LIST && key->alone && is_spelt_like(text, key->alone);
    bool is_list  = key->type == VP_KEY_LIST && !is_alone;
    bool is_one   = is_list && key->pattern && doc->format == VP_FORMAT_FLAGS;

    if (is_alone)
        text = key->alone;
    v->text = is_one ? vp_told_pattern(doc->arena, text) : text;
    if (!v->text)
        return false;
    if (is_list && !is_one)
        return set_list(doc, v, text);
    if (key->type == VP_KEY_TEXT || key->type == VP_KEY_WORD || key->type == VP_KEY_LIST)
        v->quoted =
            key->type != VP_KEY_WORD || (strcmp(text, "true") != 0 && strcmp(text, "false") != 0);
    vp_value_resolve(v);
    if (v->quoted && strcmp(text, "null") == 0)
        v->kind = VP_VALUE_NULL;
    if (key->type == VP_KEY_REAL && v->kind != VP_VALUE_NULL) {
        v->kind = VP_VALUE_REAL;
        v->real = strtod(text, NULL);
    }
    return true;
}

void vp_value_write(const vp_value *v, vp_format format, vp_text *out)
{
    put_json(out, v, 0, format);
}
