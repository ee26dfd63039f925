/* trainers/files/python_values.c: literals of Python, lists, dictionaries and calls with keyword arguments, and the names of
 * what stands above; what they are about is python_calls.c's. */
#include "trainers/files/python_reader.h"

#include "trainers/files/python_blocks.h"
#include "trainers/files/python_calls.h"
#include "trainers/files/python_configs.h"
#include "trainers/files/python_environ.h"
#include "trainers/files/python_filters.h"
#include "trainers/files/python_names.h"
#include "trainers/files/python_scan.h"
#include "trainers/files/python_texts.h"
#include "trainers/files/script_values.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static vp_status fail(vp_python_reader *r, const char *text)
{
    return VP_FAIL_AT(r->err, VP_ERR_INPUT, r->doc->name, r->line, NULL, "%s, column %d", text,
                      (int)(r->at - r->line_start) + 1);
}

/* Spaces and comments; inside brackets line ends too. */
void vp_python_skip(vp_python_reader *r, bool lines)
{
    while (r->at < r->end) {
        if (*r->at == '\n' && lines)
            r->line++, r->line_start = r->at + 1;
        else if (*r->at == '\\' && r->at + 1 < r->end && r->at[1] == '\n')
            r->at++, r->line++, r->line_start = r->at + 1;
        else if (*r->at == '#')
            while (r->at + 1 < r->end && r->at[1] != '\n')
                r->at++;
        else if (*r->at != ' ' && *r->at != '\t' && *r->at != '\r')
            break;
        r->at++;
    }
}

bool vp_python_at_word(const vp_python_reader *r, const char *word)
{
    size_t n = strlen(word);

    return (size_t)(r->end - r->at) >= n && memcmp(r->at, word, n) == 0 &&
           ((size_t)(r->end - r->at) == n ||
            (!isalnum((unsigned char)r->at[n]) && r->at[n] != '_'));
}

char *vp_python_take_name(vp_python_reader *r)
{
    const char *from = r->at;

    while (r->at < r->end && (isalnum((unsigned char)*r->at) || *r->at == '_' || *r->at == '.'))
        r->at++;
    char *name = vp_arena_alloc(r->doc->arena, (size_t)(r->at - from) + 1);
    if (name)
        memcpy(name, from, (size_t)(r->at - from));
    return name;
}

vp_status vp_python_read_string(vp_python_reader *r, vp_value *v)
{
    bool        is_raw = *r->at == 'r' || *r->at == 'R'; /* r"\d": as it stands */
    char        quote  = *(r->at += is_raw);
    bool        three  = r->end - r->at >= 3 && r->at[1] == quote && r->at[2] == quote;
    const char *stop;
    size_t      n  = 0;
    vp_status   st = VP_OK;

    r->at += three ? 3 : 1;
    for (stop = r->at; stop < r->end; stop++) {
        if (*stop == '\\' && stop + 1 < r->end)
            stop++;
        else if (three ? r->end - stop >= 3 && memcmp(stop, (char[]){quote, quote, quote}, 3) == 0
                       : *stop == quote || *stop == '\n')
            break;
    }
    if (stop >= r->end || *stop == '\n')
        VP_TRY(fail(r, "a string that does not end"));
    char *text = vp_arena_alloc(r->doc->arena, (size_t)(stop - r->at) + 1);
    VP_TRY_ALLOC(r->err, text);
    for (; r->at < stop; r->at++) {
        if (*r->at == '\\' && r->at + 1 < stop && !is_raw)
            r->at++;
        if (*r->at == '\n')
            r->line++, r->line_start = r->at + 1;
        text[n++] = *r->at;
    }
    r->at += three ? 3 : 1;
    v->kind = VP_VALUE_STRING, v->text = text, v->quoted = true;
out:
    return st;
}

vp_status vp_python_add(vp_python_reader *r, vp_value *parent, const char *key, vp_value **out)
{
    *out = vp_value_add(r->doc, parent, key);
    if (*out)
        return VP_OK;
    if (vp_arena_failed(r->doc->arena))
        return VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory");
    return fail(r, "more than 100,000 values");
}

/* To the comma or bracket that ends an argument that is no literal. */
static void skip_argument(vp_python_reader *r)
{
    vp_value ignored = {0};
    int      depth   = 0;

    for (; r->at < r->end; r->at++) {
        vp_python_skip(r, true);
        if (r->at < r->end && (*r->at == '"' || *r->at == '\'')) {
            if (vp_python_read_string(r, &ignored) != VP_OK)
                return;
            vp_python_skip(r, true);
        }
        if (r->at >= r->end || (depth == 0 && strchr(",)]}", *r->at)))
            return;
        depth += strchr("([{", *r->at) ? 1 : strchr(")]}", *r->at) ? -1 : 0;
    }
}

/* There is a value, and it is not known: no default stands in for it. */
void vp_python_be_unread(vp_value *v)
{
    v->kind = VP_VALUE_MAP, v->call = VP_VALUE_UNREAD, v->first = v->last = NULL;
    v->n_children = 0, v->index = NULL;
}

/* A name for what stands above. */
void vp_python_be_same(vp_value *v, const vp_value *known)
{
    vp_value own = *v;

    *v     = *known;
    v->key = own.key, v->next = own.next, v->line = own.line, v->column = own.column;
}

/* (4) is 4; (4,) is not. */
static void be_inner(vp_value *v, const vp_value *inner)
{
    vp_value outer = *v;

    *v      = *inner;
    v->key  = outer.key;
    v->next = outer.next;
}

/* The same in a tree of its own: a name that is used often means as many values as there would be. */
static vp_status copy_value(vp_python_reader *r, vp_value *v, const vp_value *known, int depth)
{
    const vp_value *stop = known->last;
    vp_value       *copy;
    vp_status       st = VP_OK;

    if (depth > VP_DOCUMENT_MAX_DEPTH || r->doc->n_values > VP_DOCUMENT_MAX_VALUES / 2) {
        vp_python_be_unread(v); /* data, not settings */
        return VP_OK;
    }
    vp_python_be_same(v, known);
    if (v->kind < VP_VALUE_LIST)
        return VP_OK;
    const vp_value *m = v->first;
    v->first = v->last = NULL, v->n_children = 0, v->index = NULL;
    for (; m; m = m == stop ? NULL : m->next) {
        if (m == v)
            continue; /* d["a"] = d */
        VP_TRY(vp_python_add(r, v, m->key, &copy));
        VP_TRY(copy_value(r, copy, m, depth + 1));
        copy->line = m->line, copy->column = m->column;
    }
out:
    return st;
}

/* What the script gave a name last, among what stands at the root; NULL: nothing. */
vp_value *vp_python_value_of(vp_python_reader *r, const char *name, const vp_value *but)
{
    const vp_python_name *x = vp_python_name_last(r, name, strlen(name));

    while (x && x->v == but)
        x = x->before;
    return x ? x->v : NULL;
}

static bool says_the_same(const vp_value *a, const vp_value *b)
{
    return a->kind == b->kind && a->kind < VP_VALUE_LIST && !a->call && !b->call && a->text &&
           b->text && strcmp(a->text, b->text) == 0;
}

vp_status vp_python_put(vp_python_reader *r, vp_value *map, const vp_value *m, bool certain)
{
    vp_value *own     = vp_value_member(map, m->key);
    bool      differs = !own || !says_the_same(own, m);
    vp_status st      = VP_OK;

    if (!own)
        VP_TRY(vp_python_add(r, map, m->key, &own));
    if (certain || differs)
        VP_TRY(copy_value(r, own, m, 1));
    if (!certain && differs)
        vp_python_be_unread(own);
    own->line = m->line, own->column = m->column;
out:
    return st;
}

/* Members of one map go into another. */
static vp_status copy_members(vp_python_reader *r, vp_value *into, const vp_value *from)
{
    vp_status st = VP_OK;

    for (const vp_value *m = from->first; m; m = m->next)
        VP_TRY(vp_python_put(r, into, m, true));
out:
    return st;
}

static vp_status read_items(vp_python_reader *r, vp_value *v, char close, int depth);

/* A piece of the text on one line. NULL: out of memory. */
static const char *on_one_line(vp_arena *arena, const char *from, const char *end)
{
    char *text = vp_arena_alloc(arena, (size_t)(end - from) + 1), *to = text;

    for (const char *p = from; text && p < end; p++)
        if (!isspace((unsigned char)*p))
            *to++ = *p;
        else if (to > text && to[-1] != ' ')
            *to++ = ' ';
    while (text && to > text && to[-1] == ' ')
        to--;
    if (text)
        *to = '\0';
    return text;
}

/* **name of a call or a dictionary: the members of a map that stands above or here, or, by the name "**", what nobody knows. */
static vp_status read_stars(vp_python_reader *r, vp_value *map, int depth)
{
    const char *from  = r->at;
    vp_value    known = {0}, *child;
    vp_status   st    = VP_OK;

    r->at += 2;
    vp_python_skip(r, true);
    vp_python_reader before = *r;
    VP_TRY(vp_python_read_value(r, &known, depth + 1));
    vp_python_skip(r, true);
    if (!r->unread && known.kind == VP_VALUE_MAP && !known.call && r->at < r->end &&
        strchr(",)}", *r->at)) {
        VP_TRY(copy_members(r, map, &known));
        goto out;
    }
    *r = before;
    skip_argument(r);
    VP_TRY(vp_python_add(r, map, VP_PYTHON_UNKNOWN, &child));
    vp_python_be_unread(child);
    child->line = before.line;
    child->text = on_one_line(r->doc->arena, from, r->at);
    VP_TRY_ALLOC(r->err, child->text);
out:
    return st;
}

/* Whether something in a dictionary is not known; of one that stands in another nobody looks for it. */
static bool has_unknown(const vp_value *v)
{
    return v->kind == VP_VALUE_MAP && !v->call && vp_value_member(v, VP_PYTHON_UNKNOWN);
}

static bool is_type(const vp_value *v, const void *user)
{
    return v == user;
}

/* dict(type=TrainingArguments, a=1), which a registry calls later on (mmengine, xtuner): TrainingArguments(a=1). */
static bool take_type(vp_value *v)
{
    const vp_value *type = vp_value_member(v, "type");
    const char     *dot  = type && type->text ? strrchr(type->text, '.') : NULL;
    const char     *name = dot ? dot + 1 : type ? type->text : NULL;

    if (!type || type->kind != VP_VALUE_STRING || type->quoted || !name ||
        !(isupper((unsigned char)*name) || strcmp(name, "from_pretrained") == 0))
        return false;
    v->call = type->text;
    vp_value_drop(v, is_type, type);
    return true;
}

/* dict(other, a=1): what is in the other, and what stands beside it. */
static vp_status settle_dict(vp_python_reader *r, vp_value *v)
{
    const vp_value *m  = v->first, *next;
    vp_status       st = VP_OK;

    for (; m; m = m->next)
        if (isdigit((unsigned char)m->key[0]) &&
            (strcmp(m->key, "0") != 0 || m->kind != VP_VALUE_MAP || m->call))
            return VP_OK; /* pairs, or what nobody knows */
    if (take_type(v))
        return VP_OK;
    m        = v->first;
    v->first = v->last = NULL, v->n_children = 0, v->index = NULL, v->call = NULL;
    for (; m; m = next) {
        next = m->next;
        if (strcmp(m->key, "0") == 0)
            VP_TRY(copy_members(r, v, m));
        else
            VP_TRY(vp_python_put(r, v, m, true));
    }
out:
    return st;
}

/* To the dot that what was read goes on with; of a chain in brackets on the next line too. */
static bool is_at_dot(vp_python_reader *r, int depth)
{
    vp_python_reader before = *r;

    vp_python_skip(r, depth > 1);
    if (r->end - r->at > 1 && *r->at == '.' && isalpha((unsigned char)r->at[1]))
        return true;
    *r = before;
    return false;
}

/* The format that a method of a model's gives its weights; "": it gives none; NULL: nobody knows. */
static const char *format_of(const char *method, const vp_value *arguments)
{
    static const char *const formats[][2] = {
        {".half", "float16"}, {".float", "float32"}, {".bfloat16", "bfloat16"}};
    const char *found = "";

    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(method, formats[i][0]) == 0)
            return formats[i][1];
    if (strcmp(method, ".to") != 0)
        return "";
    for (const vp_value *m = arguments->first; m; m = m->next) {
        bool is_name = m->kind == VP_VALUE_STRING && !m->quoted;
        if (is_name && strncmp(m->text, "torch.", 6) == 0)
            found = m->text + 6;
        else if (strcmp(m->key, "dtype") == 0 || (is_name && strstr(m->text, "dtype")))
            return NULL;
    }
    return found;
}

/* AutoModel.from_pretrained(...).to("cuda"): of a model's methods those that give the model back. */
static vp_status read_methods(vp_python_reader *r, vp_value *v, int depth)
{
    static const char same[] = ".to .cuda .cpu .half .float .bfloat16 .train .eval .requires_grad_";
    vp_status         st     = VP_OK;

    while (!r->unread && is_at_dot(r, depth)) {
        vp_value method = {0}, format = {.kind = VP_VALUE_STRING, .key = "dtype"};
        char    *name = vp_python_take_name(r);
        VP_TRY_ALLOC(r->err, name);
        if (r->at >= r->end || *r->at != '(' || !strstr(same, name)) {
            r->unread = true;
            goto out;
        }
        method.call = name;
        format.line = r->line;
        VP_TRY(read_items(r, &method, ')', depth));
        format.text = format_of(name, &method);
        if (format.text && !format.text[0])
            continue;
        if (!format.text)
            vp_python_be_unread(&format);
        if (vp_value_member(v, "torch_dtype"))
            format.key = "torch_dtype";
        VP_TRY(vp_python_put(r, v, &format, true));
    }
out:
    return st;
}

/* What stands in brackets: elements, "key": value, or name=value. */
static vp_status read_items(vp_python_reader *r, vp_value *v, char close, int depth)
{
    int       n_places = 0;
    vp_status st       = VP_OK;

    v->kind = close == ']' || (close == ')' && !v->call) ? VP_VALUE_LIST : VP_VALUE_MAP;
    for (r->at++;; r->at++) {
        const char *key = NULL, *from;
        vp_value   *child, ignored = {0};
        vp_python_skip(r, true);
        if (r->at >= r->end)
            VP_TRY(fail(r, "the file ends inside brackets"));
        if (*r->at == close)
            break;
        if ((v->call || close == '}') && r->end - r->at > 2 && r->at[0] == '*' && r->at[1] == '*') {
            VP_TRY(read_stars(r, v, depth));
            if (r->at < r->end && *r->at == ',')
                continue;
            if (r->at < r->end && *r->at == close)
                break;
            r->unread = true;
            goto out;
        }
        int line = r->line, column = (int)(r->at - r->line_start) + 1;
        if (close == '}') {
            VP_TRY(vp_python_read_value(r, &ignored, depth + 1));
            vp_python_skip(r, true);
            if (r->unread || ignored.kind != VP_VALUE_STRING || r->at >= r->end || *r->at != ':') {
                r->unread = true;
                goto out;
            }
            key = ignored.text;
            r->at++;
        } else if (v->kind == VP_VALUE_MAP) { /* a call */
            vp_python_reader before = *r;
            from                    = vp_python_take_name(r);
            vp_python_skip(r, true);
            if (from && r->at + 1 < r->end && *r->at == '=' && r->at[1] != '=') {
                key = from;
                r->at++;
            } else { /* an argument by place: by its number */
                *r  = before;
                key = vp_arena_printf(r->doc->arena, "%d", n_places++);
            }
            VP_TRY_ALLOC(r->err, key);
        }
        vp_python_skip(r, true);
        vp_python_reader value = *r;
        VP_TRY(vp_python_add(r, v, key, &child));
        VP_TRY(vp_python_read_value(r, child, depth + 1));
        vp_python_skip(r, true);
        if (has_unknown(child))
            vp_python_be_unread(child);
        if ((v->call || close == '}') && key &&
            (r->unread || (r->at < r->end && *r->at != ',' && *r->at != close))) {
            *r = value;
            skip_argument(r);
            vp_python_be_unread(child);
        }
        if (r->unread)
            goto out;
        if (key)
            child->line = line, child->column = column;
        if (r->at < r->end && *r->at == close) {
            if (close == ')' && !v->call && v->first == child)
                be_inner(v, child);
            break;
        }
        if (r->at >= r->end || *r->at != ',') {
            r->unread = true;
            goto out;
        }
    }
    r->at++;
out:
    return st;
}

/* What stands behind the name of a map: ["a"]["b"]; false: the text does not say what that is. */
static vp_status read_members(vp_python_reader *r, const vp_value *map, vp_value *v, int depth,
                              bool *ok)
{
    vp_value  key;
    vp_status st = VP_OK;

    *ok = false;
    for (; r->at + 1 < r->end && *r->at == '[' && strchr("\"'", r->at[1]); *ok = map != NULL) {
        r->at++;
        key = (vp_value){0};
        VP_TRY(vp_python_read_string(r, &key));
        *ok = false;
        if (r->at >= r->end || *r->at != ']' || !map || map->kind != VP_VALUE_MAP || map->call ||
            has_unknown(map))
            goto out;
        r->at++;
        map = vp_value_member(map, key.text);
    }
    if (*ok)
        VP_TRY(copy_value(r, v, map, depth));
out:
    return st;
}

/* d.get("a", otherwise) of a map that stands above. */
static vp_status take_get(vp_python_reader *r, vp_value *v, int depth)
{
    const vp_value *key = v->first, *otherwise = key ? key->next : NULL, *map, *found;
    vp_value        given = {.kind = VP_VALUE_NULL, .text = "None"};
    char           *owner;

    if (!v->call || !(vp_python_ends_in(v->call, ".get") || vp_python_ends_in(v->call, ".pop")) ||
        !key || !key->text || !key->quoted)
        return VP_OK;
    owner = vp_arena_printf(r->doc->arena, "%.*s", (int)(strlen(v->call) - 4), v->call);
    map   = owner ? vp_python_value_of(r, owner, v) : NULL;
    if (!map || map->kind != VP_VALUE_MAP || map->call || has_unknown(map) || depth > 8)
        return VP_OK;
    found = vp_value_member(map, key->text);
    found = found ? found : otherwise ? otherwise : &given;
    return copy_value(r, v, found, depth);
}

/* A name: torch.bfloat16, a constant from above, an attribute, a parameter, an option. */
static vp_status read_name(vp_python_reader *r, vp_value *v, const char *name, int depth)
{
    const vp_value *last = vp_python_value_of(r, name, v);
    vp_python_meant meant;
    vp_value        found = *v;
    vp_status       st    = VP_OK;

    VP_TRY(vp_python_names_value(r, name, last, &found, &meant));
    v->kind = VP_VALUE_STRING, v->text = name;
    if (r->at < r->end && *r->at == '[' && last && meant == VP_PYTHON_NOBODYS) {
        vp_python_reader before = *r;
        bool             ok;
        VP_TRY(read_members(r, last, v, depth, &ok));
        if (!ok)
            *r = before, v->kind = VP_VALUE_STRING, v->text = name;
        goto out;
    }
    if (meant == VP_PYTHON_MEANT) {
        vp_python_be_same(v, &found);
        goto out;
    }
    if (meant == VP_PYTHON_HIDDEN)
        goto out;
    if (last && ((last->call && vp_python_ends_in(last->call, "BitsAndBytesConfig")) ||
                 (!last->call && last->kind >= VP_VALUE_LIST)))
        VP_TRY(copy_value(r, v, last, depth));
    else if (last && last->call)
        vp_python_be_unread(v);
    else if (last && last->kind < VP_VALUE_LIST)
        v->kind = last->kind, v->text = last->text, v->quoted = last->quoted,
        v->boolean = last->boolean, v->asks_bf16 = last->asks_bf16, v->integer = last->integer,
        v->real = last->real, v->option = last->option, v->option_type = last->option_type,
        v->option_letters = last->option_letters, v->option_line = last->option_line;
out:
    return st;
}

static bool is_number(const vp_value *v)
{
    return !v->call && (v->kind == VP_VALUE_INT || v->kind == VP_VALUE_REAL);
}

/* getattr(torch, "bfloat16"): torch.bfloat16; int("4"), float(1): of what is known the number. */
static vp_status take_builtin(vp_python_reader *r, vp_value *v)
{
    const vp_value *first = vp_value_member(v, "0"), *second = vp_value_member(v, "1");
    bool            is_int = strcmp(v->call, "int") == 0, is_real = strcmp(v->call, "float") == 0;
    vp_value        made = {.key = v->key, .next = v->next, .line = v->line, .column = v->column};

    if (strcmp(v->call, "getattr") == 0 && v->n_children == 2 && first && second && !first->call &&
        first->kind == VP_VALUE_STRING && !first->quoted && strcmp(first->text, "torch") == 0 &&
        second->kind == VP_VALUE_STRING && second->quoted && !second->option && !second->call) {
        made.kind = VP_VALUE_STRING;
        made.text = vp_arena_printf(r->doc->arena, "torch.%s", second->text);
    } else if ((is_int || is_real) && v->n_children == 1 && first && !first->call &&
               !first->option && first->text &&
               (is_number(first) || (first->kind == VP_VALUE_STRING && first->quoted))) {
        made.text = first->text;
        vp_value_resolve(&made);
        if (made.kind != VP_VALUE_INT && !(made.kind == VP_VALUE_REAL && is_real))
            return VP_OK;
        made.kind = is_real ? VP_VALUE_REAL : VP_VALUE_INT;
    } else if (strcmp(v->call, "bool") == 0 && v->n_children == 1 && first && !first->option &&
               !first->call && (is_number(first) || first->kind == VP_VALUE_BOOL)) {
        made.kind    = VP_VALUE_BOOL;
        made.boolean = first->kind == VP_VALUE_BOOL ? first->boolean : first->real != 0;
        made.text    = made.boolean ? "True" : "False";
    } else {
        return VP_OK;
    }
    *v = made;
    return made.text ? VP_OK : VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory");
}

static vp_status read_name_or_number(vp_python_reader *r, vp_value *v, int depth)
{
    vp_status st = VP_OK;

    if (vp_python_at_word(r, "not")) {
        r->at += strlen("not");
        vp_python_skip(r, false);
        VP_TRY(vp_python_read_value(r, v, depth + 1));
        r->unread  = r->unread || v->kind != VP_VALUE_BOOL || v->option;
        v->boolean = !v->boolean;
        v->text    = v->boolean ? "True" : "False";
        goto out;
    }
    if (isdigit((unsigned char)*r->at) || *r->at == '-' || *r->at == '.') {
        const char *from = r->at;
        while (r->at < r->end && (isalnum((unsigned char)*r->at) || strchr("+-._", *r->at)) &&
               (!strchr("+-", *r->at) || r->at == from || strchr("eE", r->at[-1])))
            r->at++;
        char *text = vp_arena_alloc(r->doc->arena, (size_t)(r->at - from) + 1), *end;
        VP_TRY_ALLOC(r->err, text);
        memcpy(text, from, (size_t)(r->at - from));
        v->text = text;
        vp_value_resolve(v);
        v->real = v->kind == VP_VALUE_STRING ? strtod(text, &end) : v->real;
        if (v->kind == VP_VALUE_STRING && *end)
            r->unread = true;
        else if (v->kind == VP_VALUE_STRING)
            v->kind = VP_VALUE_REAL;
        goto out;
    }
    const char *from = r->at;
    bool        is_config;
    char       *name = vp_python_take_name(r);
    VP_TRY_ALLOC(r->err, name);
    VP_TRY(vp_python_read_config(r, from, r->line, v, &is_config));
    if (is_config)
        goto out;
    while (r->at < r->end && *name && is_at_dot(r, depth)) {
        const char *more = vp_python_take_name(r);
        VP_TRY_ALLOC(r->err, more && (name = vp_arena_printf(r->doc->arena, "%s%s", name, more)));
    }
    if (strcmp(name, "True") == 0 || strcmp(name, "False") == 0) {
        v->kind = VP_VALUE_BOOL, v->boolean = name[0] == 'T', v->text = name;
    } else if (strcmp(name, "None") == 0) {
        v->kind = VP_VALUE_NULL, v->text = name;
    } else if (r->at < r->end && *r->at == '(') {
        VP_TRY_ALLOC(r->err, v->call = vp_python_imported(r, name));
        VP_TRY(read_items(r, v, ')', depth));
        bool is_set;
        VP_TRY(vp_python_take_environ(r, v, &is_set));
        if (!is_set)
            VP_TRY(vp_python_convert_environ(r, v, &is_set));
        if (is_set)
            goto out;
        VP_TRY(vp_python_answer_card(r, v, name, &is_set));
        if (is_set)
            goto out;
        if (strcmp(name, "dict") == 0) /* {"a": 1}, written otherwise */
            VP_TRY(settle_dict(r, v));
        else if (vp_python_ends_in(name, ".get") || vp_python_ends_in(name, ".pop"))
            VP_TRY(take_get(r, v, depth));
        else if (vp_python_loads_model(v->call))
            VP_TRY(read_methods(r, v, depth));
        else if (strcmp(name, "getattr") == 0 || strcmp(name, "int") == 0 ||
                 strcmp(name, "float") == 0 || strcmp(name, "bool") == 0)
            VP_TRY(take_builtin(r, v));
        else
            VP_TRY(vp_python_names_returned(r, v));
    } else {
        VP_TRY(read_name(r, v, name, depth));
    }
out:
    return st;
}

/* a if CONDITION else b: the one that the condition takes; where it is not decided, or this is none: the reader stays before it. */
static vp_status read_choice(vp_python_reader *r, vp_value *v, int depth)
{
    vp_python_reader before = *r;
    vp_value         own = *v, other = {0};
    vp_python_runs   runs;
    vp_status        st = VP_OK;

    vp_python_skip(r, depth > 1);
    if (!vp_python_at_word(r, "if"))
        goto back;
    const char *from = r->at + 2;
    int         open = 0, lines = 0;
    for (r->at = from; r->at < r->end && (open || !vp_python_at_word(r, "else"));) {
        if (strchr("\n#", *r->at) || lines)
            goto back;
        if (*r->at == '"' || *r->at == '\'') {
            r->at = vp_piece_behind_string(r->at, r->end, &lines);
            continue;
        }
        open += strchr("([{", *r->at) ? 1 : strchr(")]}", *r->at) ? -1 : 0;
        if (open < 0)
            goto back;
        r->at++;
    }
    if (r->at >= r->end)
        goto back;
    VP_TRY(vp_python_decide(r, from, r->at, &runs));
    if (runs == VP_PYTHON_MAYBE)
        goto back;
    r->at += strlen("else");
    vp_python_skip(r, depth > 1);
    other = (vp_value){.line = v->line, .column = v->column};
    VP_TRY(vp_python_read_value(r, &other, depth + 1));
    if (r->unread && runs == VP_PYTHON_RUNS)
        goto back;
    if (runs == VP_PYTHON_NEVER) {
        *v     = other;
        v->key = own.key, v->next = own.next, v->line = own.line, v->column = own.column;
    }
    return VP_OK;
back:
    *r = before;
out:
    return st;
}

/* The sign of a sum or product that the reader stands at, "//" as 'd'; '\0': none. */
static char sign_at(const vp_python_reader *r, size_t *n)
{
    char c = r->at < r->end ? *r->at : '\0', next = r->at + 1 < r->end ? r->at[1] : '\0';

    *n = c == '/' && next == '/' ? 2 : 1;
    if (!c || !strchr("+-*/", c) || (c == '*' && next == '*') || next == '=' ||
        (*n == 2 && r->at + 2 < r->end && r->at[2] == '='))
        return '\0';
    return *n == 2 ? 'd' : c;
}

/* What the command says of an option counts in a sum as its default would. */
static bool is_known_number(const vp_python_reader *r, vp_value *v)
{
    if (v->option && strcmp(v->option_type, VP_OPTION_PARAMETER) != 0 && r->doc->command)
        vp_script_value_given(r->doc->command, v);
    return is_number(v);
}

static bool fold(vp_value *a, char sign, const vp_value *b)
{
    bool   whole = a->kind == VP_VALUE_INT && b->kind == VP_VALUE_INT && sign != '/';
    double x = a->real, y = b->real, to;

    if ((sign == 'd' || sign == '/') && y == 0)
        return false;
    to = sign == '+'   ? x + y
         : sign == '-' ? x - y
         : sign == '*' ? x * y
         : sign == '/' ? x / y
                       : floor(x / y);
    if (!(fabs(to) < 1e15))
        return false;
    a->real = to, a->integer = (int64_t)to;
    a->kind = whole ? VP_VALUE_INT : VP_VALUE_REAL;
    return true;
}

/* batch_size // micro_batch_size: signs of one rank, from left to right; others leave it unread. */
static vp_status read_sum(vp_python_reader *r, vp_value *v, int depth)
{
    char      first = '\0', sign;
    vp_status st    = VP_OK;

    while (!r->unread && is_number(v)) {
        vp_python_reader before = *r;
        vp_value         other  = {.line = v->line, .column = v->column};
        size_t           n;
        vp_python_skip(r, depth > 1);
        sign = sign_at(r, &n);
        if (!sign) {
            *r = before;
            break;
        }
        bool is_sum = sign == '+' || sign == '-', was_sum = first == '+' || first == '-';
        r->at += n;
        vp_python_skip(r, depth > 1);
        if (r->at >= r->end || strchr("+-", *r->at)) {
            r->unread = true;
            break;
        }
        r->in_sum = true;
        st        = vp_python_read_value(r, &other, depth + 1);
        r->in_sum = before.in_sum;
        VP_TRY(st);
        if ((first && is_sum != was_sum) || !is_known_number(r, v) || !is_known_number(r, &other) ||
            !fold(v, sign, &other)) {
            r->unread = true;
            break;
        }
        if (other.option && !v->option)
            v->option = other.option, v->option_line = other.option_line,
            v->option_letters = other.option_letters;
        if (v->option)
            v->option_type = VP_OPTION_SUM;
        first   = sign;
        v->text = v->kind == VP_VALUE_INT
                      ? vp_arena_printf(r->doc->arena, "%lld", (long long)v->integer)
                      : vp_arena_printf(r->doc->arena, "%.17g", v->real);
        VP_TRY_ALLOC(r->err, v->text);
    }
out:
    return st;
}

/* A text, or a format of PyTorch's, that no option gives but the environment's. */
static bool is_plain(const vp_value *v)
{
    return v->kind == VP_VALUE_STRING && !v->call && (!v->option || v->option[0] == '$') &&
           v->text && (v->quoted || strncmp(v->text, "torch.", 6) == 0);
}

/* dtype == torch.bfloat16, where both sides are known: True or False. */
static vp_status read_equal(vp_python_reader *r, vp_value *v, int depth)
{
    vp_python_reader before = *r;
    vp_value         other  = {.line = v->line, .column = v->column};
    vp_status        st     = VP_OK;

    vp_python_skip(r, depth > 1);
    bool is_not = r->end - r->at > 1 && r->at[0] == '!' && r->at[1] == '=';
    if (!is_not && !(r->end - r->at > 1 && r->at[0] == '=' && r->at[1] == '=')) {
        *r = before;
        goto out;
    }
    r->at += 2;
    vp_python_skip(r, depth > 1);
    r->in_sum = true;
    st        = vp_python_read_value(r, &other, depth + 1);
    r->in_sum = before.in_sum;
    VP_TRY(st);
    bool is_known = !r->unread && is_plain(v) && is_plain(&other) && v->kind == other.kind;
    r->unread     = !is_known;
    if (is_known) {
        v->boolean = (strcmp(v->text, other.text) == 0) != is_not;
        v->kind = VP_VALUE_BOOL, v->quoted = false, v->text = v->boolean ? "True" : "False";
        if (other.option && !v->option)
            v->option = other.option, v->option_line = other.option_line;
        v->option_type = v->option ? VP_OPTION_SUM : v->option_type;
    }
out:
    return st;
}

static vp_status read_braces(vp_python_reader *r, vp_value *v, int depth)
{
    bool      is_filter;
    vp_status st = vp_python_read_filter(r, v, &is_filter);

    return st == VP_OK && !is_filter ? read_items(r, v, '}', depth) : st;
}

vp_status vp_python_read_value(vp_python_reader *r, vp_value *v, int depth)
{
    vp_status st = VP_OK;

    v->line = r->line, v->column = (int)(r->at - r->line_start) + 1;
    if (depth > VP_DOCUMENT_MAX_DEPTH)
        VP_TRY(fail(r, "nested deeper than 64"));
    if (r->at >= r->end)
        VP_TRY(fail(r, "the file ends where a value belongs"));
    if (vp_python_at_text(r))
        VP_TRY(vp_python_read_text(r, v, depth));
    else if (*r->at == '[')
        VP_TRY(read_items(r, v, ']', depth));
    else if (*r->at == '{')
        VP_TRY(read_braces(r, v, depth));
    else if (*r->at == '(')
        VP_TRY(read_items(r, v, ')', depth));
    else if (isalnum((unsigned char)*r->at) || *r->at == '_' || *r->at == '-' || *r->at == '.')
        VP_TRY(read_name_or_number(r, v, depth));
    else
        r->unread = true;
    for (vp_value other; !r->unread && v->kind == VP_VALUE_MAP && !v->call;) { /* a | b */
        vp_python_reader before = *r;
        vp_python_skip(r, false);
        if (r->at >= r->end || *r->at != '|') {
            *r = before;
            break;
        }
        r->at++;
        vp_python_skip(r, false);
        other = (vp_value){0};
        VP_TRY(vp_python_read_value(r, &other, depth + 1));
        if (other.kind == VP_VALUE_MAP && !other.call)
            VP_TRY(copy_members(r, v, &other));
        else
            r->unread = true;
    }
    if (!r->unread && !r->in_sum)
        VP_TRY(read_sum(r, v, depth));
    if (!r->unread && !r->in_sum)
        VP_TRY(vp_python_join_texts(r, v, depth));
    if (!r->unread && !r->in_sum)
        VP_TRY(read_equal(r, v, depth));
    if (!r->unread && !r->in_sum)
        VP_TRY(read_choice(r, v, depth));
out:
    return st;
}
