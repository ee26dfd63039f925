/* trainers/files/document_python.c: the literal part of a Python module: NAME = literal, and calls
 * with keyword arguments, whose arguments are members. Any other statement or argument is named as not
 * read. A call Thing.Config(a=1, b=Other(c=2)) is a map {a: 1, b: {c: 2}}, behind `return` or
 * `NAME =`; what it is called with joins the root, and so does what its `args` is called with, as of a
 * trainer with its TrainingArguments; what adapters and a model are called with is a part of its own
 * (vp_document.parts). `config.a.b = 1` is a.b of the configuration that the function
 * returns, args.a = 1 is a of what args was called with. What a name or an argument is given that is no
 * literal stays in the tree, as not read. The functions of a module that says SETTINGS only apply them, and
 * are not read. */
#include "trainers/files/document.h"
#include "trainers/files/python_calls.h"

#include "base/text.h"
#include "trainers/files/launch.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    vp_document *doc;
    const char  *at, *end, *line_start;
    int          line;
    bool         unread;    /* what was met is no literal: no error, but not read */
    bool         inside;    /* the statement stands in a function or behind a condition */
    int          indent;    /* of its first letter */
    const char  *arguments; /* the call that makes a trainer's, "TrainingArguments"; NULL: none */
    vp_err      *err;
} reader;

/* The member of a call that stands for `**names`, of which nothing is known. */
#define UNKNOWN_ARGUMENTS "**"

static vp_status fail(reader *r, const char *text)
{
    return VP_FAIL_AT(r->err, VP_ERR_INPUT, r->doc->name, r->line, NULL, "%s, column %d", text,
                      (int)(r->at - r->line_start) + 1);
}

/* Spaces and comments; inside brackets line ends too. */
static void skip(reader *r, bool lines)
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

static bool at_word(const reader *r, const char *word)
{
    size_t n = strlen(word);

    return (size_t)(r->end - r->at) >= n && memcmp(r->at, word, n) == 0 &&
           ((size_t)(r->end - r->at) == n ||
            (!isalnum((unsigned char)r->at[n]) && r->at[n] != '_'));
}

static char *take_name(reader *r)
{
    const char *from = r->at;

    while (r->at < r->end && (isalnum((unsigned char)*r->at) || *r->at == '_' || *r->at == '.'))
        r->at++;
    char *name = vp_arena_alloc(r->doc->arena, (size_t)(r->at - from) + 1);
    if (name)
        memcpy(name, from, (size_t)(r->at - from));
    return name;
}

static vp_status read_string(reader *r, vp_value *v)
{
    char        quote = *r->at;
    bool        three = r->end - r->at >= 3 && r->at[1] == quote && r->at[2] == quote;
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
        if (*r->at == '\n')
            r->line++, r->line_start = r->at + 1;
        if (*r->at == '\\' && r->at + 1 < stop)
            r->at++;
        text[n++] = *r->at;
    }
    r->at += three ? 3 : 1;
    v->kind = VP_VALUE_STRING, v->text = text, v->quoted = true;
out:
    return st;
}

static vp_status read_value(reader *r, vp_value *v, int depth);

static vp_status add(reader *r, vp_value *parent, const char *key, vp_value **out)
{
    *out = vp_value_add(r->doc, parent, key);
    if (*out)
        return VP_OK;
    if (vp_arena_failed(r->doc->arena))
        return VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory");
    return fail(r, "more than 100,000 values");
}

/* To the comma or bracket that ends an argument that is no literal. */
static void skip_argument(reader *r)
{
    vp_value ignored = {0};
    int      depth   = 0;

    for (; r->at < r->end; r->at++) {
        skip(r, true);
        if (r->at < r->end && (*r->at == '"' || *r->at == '\'')) {
            if (read_string(r, &ignored) != VP_OK)
                return;
            skip(r, true);
        }
        if (r->at >= r->end || (depth == 0 && strchr(",)]}", *r->at)))
            return;
        depth += strchr("([{", *r->at) ? 1 : strchr(")]}", *r->at) ? -1 : 0;
    }
}

/* There is a value, and it is not known: no default stands in for it. */
static void be_unread(vp_value *v)
{
    v->kind = VP_VALUE_MAP, v->call = VP_VALUE_UNREAD, v->first = v->last = NULL;
    v->n_children = 0, v->index = NULL;
}

/* A name for what stands above. */
static void be_same(vp_value *v, const vp_value *known)
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
static vp_status copy_value(reader *r, vp_value *v, const vp_value *known, int depth)
{
    const vp_value *stop = known->last;
    vp_value       *copy;
    vp_status       st = VP_OK;

    if (depth > VP_DOCUMENT_MAX_DEPTH || r->doc->n_values > VP_DOCUMENT_MAX_VALUES / 2) {
        be_unread(v); /* data, not settings */
        return VP_OK;
    }
    be_same(v, known);
    if (v->kind < VP_VALUE_LIST)
        return VP_OK;
    const vp_value *m = v->first;
    v->first = v->last = NULL, v->n_children = 0, v->index = NULL;
    for (; m; m = m == stop ? NULL : m->next) {
        if (m == v)
            continue; /* d["a"] = d */
        VP_TRY(add(r, v, m->key, &copy));
        VP_TRY(copy_value(r, copy, m, depth + 1));
        copy->line = m->line, copy->column = m->column;
    }
out:
    return st;
}

/* What the script gave a name last, among what stands at the root; NULL: nothing. */
static vp_value *value_of(const reader *r, const char *name, const vp_value *but)
{
    vp_value *last = NULL;

    for (vp_value *known = r->doc->root->first; known; known = known->next)
        last = strcmp(known->key, name) == 0 && known != but ? known : last;
    return last;
}

/* Members of one map go into another. */
static vp_status copy_members(reader *r, vp_value *into, const vp_value *from)
{
    vp_value *copy;
    vp_status st = VP_OK;

    for (const vp_value *m = from->first; m; m = m->next) {
        VP_TRY(add(r, into, m->key, &copy));
        VP_TRY(copy_value(r, copy, m, 1));
        copy->line = m->line, copy->column = m->column;
    }
out:
    return st;
}

/* **name of a call: the members of a map that stands above, or, by the name "**", what nobody knows. */
static vp_status read_stars(reader *r, vp_value *call)
{
    const char *from = r->at;
    vp_value   *child;
    vp_status   st = VP_OK;

    r->at += 2;
    skip(r, true);
    char *name = take_name(r);
    VP_TRY_ALLOC(r->err, name);
    skip(r, true);
    const vp_value *known = value_of(r, name, NULL);
    if (known && known->kind == VP_VALUE_MAP && !known->call && r->at < r->end &&
        (*r->at == ',' || *r->at == ')')) {
        VP_TRY(copy_members(r, call, known));
        goto out;
    }
    int line = r->line;
    skip_argument(r);
    VP_TRY(add(r, call, UNKNOWN_ARGUMENTS, &child));
    be_unread(child);
    child->line = line;
    child->text = vp_arena_printf(r->doc->arena, "%.*s", (int)(r->at - from), from);
    VP_TRY_ALLOC(r->err, child->text);
out:
    return st;
}

/* What stands in brackets: elements, "key": value, or name=value. */
static vp_status read_items(reader *r, vp_value *v, char close, int depth)
{
    int       n_places = 0;
    vp_status st       = VP_OK;

    v->kind = close == ']' || (close == ')' && !v->call) ? VP_VALUE_LIST : VP_VALUE_MAP;
    for (r->at++;; r->at++) {
        const char *key = NULL, *from;
        vp_value   *child, ignored = {0};
        skip(r, true);
        if (r->at >= r->end)
            VP_TRY(fail(r, "the file ends inside brackets"));
        if (*r->at == close)
            break;
        if (v->call && r->end - r->at > 2 && r->at[0] == '*' && r->at[1] == '*') {
            VP_TRY(read_stars(r, v));
            if (r->at < r->end && *r->at == ',')
                continue;
            if (r->at < r->end && *r->at == close)
                break;
            r->unread = true;
            goto out;
        }
        int line = r->line, column = (int)(r->at - r->line_start) + 1;
        if (close == '}') {
            VP_TRY(read_value(r, &ignored, depth + 1));
            skip(r, true);
            if (r->unread || ignored.kind != VP_VALUE_STRING || r->at >= r->end || *r->at != ':') {
                r->unread = true;
                goto out;
            }
            key = ignored.text;
            r->at++;
        } else if (v->kind == VP_VALUE_MAP) { /* a call */
            reader before = *r;
            from          = take_name(r);
            skip(r, true);
            if (from && r->at + 1 < r->end && *r->at == '=' && r->at[1] != '=') {
                key = from;
                r->at++;
            } else { /* an argument by place: by its number */
                *r  = before;
                key = vp_arena_printf(r->doc->arena, "%d", n_places++);
            }
            VP_TRY_ALLOC(r->err, key);
        }
        skip(r, true);
        reader value = *r;
        VP_TRY(add(r, v, key, &child));
        VP_TRY(read_value(r, child, depth + 1));
        skip(r, true);
        if (v->call && key && (r->unread || (r->at < r->end && !strchr(",)", *r->at)))) {
            *r = value;
            skip_argument(r);
            be_unread(child);
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

static vp_status read_name_or_number(reader *r, vp_value *v, int depth)
{
    vp_status st = VP_OK;

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
    char *name = take_name(r);
    VP_TRY_ALLOC(r->err, name);
    if (strcmp(name, "True") == 0 || strcmp(name, "False") == 0) {
        v->kind = VP_VALUE_BOOL, v->boolean = name[0] == 'T', v->text = name;
    } else if (strcmp(name, "None") == 0) {
        v->kind = VP_VALUE_NULL, v->text = name;
    } else if (r->at < r->end && *r->at == '(') {
        v->call = name;
        VP_TRY(read_items(r, v, ')', depth));
        if (strcmp(name, "dict") == 0 && !vp_value_member(v, "0") &&
            !vp_value_member(v, UNKNOWN_ARGUMENTS))
            v->call = NULL; /* {"a": 1}, written otherwise */
    } else {                /* a name: torch.bfloat16, or a constant from above */
        const vp_value *last = value_of(r, name, v);
        v->kind = VP_VALUE_STRING, v->text = name;
        if (last && ((last->call && vp_python_ends_in(last->call, "BitsAndBytesConfig")) ||
                     (!last->call && last->kind >= VP_VALUE_LIST)))
            VP_TRY(copy_value(r, v, last, depth));
        else if (last && last->call)
            be_unread(v);
        else if (last && last->kind < VP_VALUE_LIST)
            v->kind = last->kind, v->text = last->text, v->quoted = last->quoted,
            v->boolean = last->boolean, v->integer = last->integer, v->real = last->real;
    }
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
    if (*r->at == '"' || *r->at == '\'')
        VP_TRY(read_string(r, v));
    else if (*r->at == '[')
        VP_TRY(read_items(r, v, ']', depth));
    else if (*r->at == '{')
        VP_TRY(read_items(r, v, '}', depth));
    else if (*r->at == '(')
        VP_TRY(read_items(r, v, ')', depth));
    else if (isalnum((unsigned char)*r->at) || *r->at == '_' || *r->at == '-' || *r->at == '.')
        VP_TRY(read_name_or_number(r, v, depth));
    else
        r->unread = true;
out:
    return st;
}

/* To the end of the line. */
static void skip_line(reader *r)
{
    while (r->at < r->end && *r->at != '\n')
        r->at++;
}

/* The arguments that another call made before v, of the same name or of another trainer; NULL: none. */
static const vp_value *first_arguments(const reader *r, const vp_value *v)
{
    for (const vp_value *old = r->doc->root->first; old && old != v; old = old->next)
        if (old->call && v->call && vp_python_makes_arguments(v->call) &&
            (strcmp(old->call, v->call) == 0 ||
             (vp_python_trains(old->call) && vp_python_trains(v->call))) &&
            old->line != v->line)
            return old;
    return NULL;
}

/* Which of two sets of arguments the trainer gets is not followed: what they say differently, nobody knows. */
static vp_status forget_what_differs(reader *r, const vp_value *first, const vp_value *second)
{
    char      name[128];
    vp_status st = VP_OK;

    for (vp_value *m = r->doc->root->first; m; m = m->next) {
        const vp_value *a = vp_value_member(first, m->key), *b = vp_value_member(second, m->key);
        bool            same =
            a && b && a->kind == b->kind && a->text && b->text && strcmp(a->text, b->text) == 0;
        if ((a || b) && !same)
            be_unread(m);
    }
    if (strcmp(first->call, second->call) == 0) {
        VP_TRY(vp_document_remark(
            r->doc, second->line, second->key, false, r->err,
            "a second %s(), beside that of line %d: where they differ nothing is "
            "known, for which of them the trainer gets is not followed",
            vp_text_escape(second->call, name, sizeof name), first->line));
        goto out;
    }
    VP_TRY(vp_document_remark(
        r->doc, second->line, NULL, false, r->err,
        "%s(): a second trainer's arguments, beside those of line %d: where they differ nothing is "
        "known, for one training is judged",
        vp_text_escape(second->call, name, sizeof name), first->line));
    r->doc->last_remark->is_gap = true;
out:
    return st;
}

/* What a call is given besides, nobody sees: no default is one. */
static vp_status say_gap(reader *r, const vp_value *v)
{
    char      shown[160];
    vp_status st = vp_document_remark(r->doc, v->line, NULL, false, r->err,
                                      "%s: the text does not say what stands there; arguments in "
                                      "it are missing from this answer",
                                      vp_text_escape(v->text, shown, sizeof shown));

    if (st == VP_OK)
        r->doc->last_remark->is_gap = true;
    return st;
}

/* The part that v is, behind those that there are: with the names and values of peft's and transformers' files. */
static vp_status add_part(reader *r, const vp_value *v)
{
    vp_document  *doc  = r->doc;
    vp_document  *part = vp_document_new(doc->arena, doc->name, VP_FORMAT_PYTHON);
    vp_document **end  = &doc->parts;
    vp_value     *copy;
    vp_status     st = VP_OK;

    VP_TRY_ALLOC(r->err, part);
    while (*end)
        end = &(*end)->next;
    *end             = part;
    part->call       = v->call;
    part->root->line = v->line, part->root->column = r->indent;
    for (const vp_value *m = v->first; m; m = m->next) {
        if (strcmp(m->key, UNKNOWN_ARGUMENTS) == 0) {
            VP_TRY(say_gap(r, m));
            continue;
        }
        bool is_name = isdigit((unsigned char)m->key[0]) && vp_python_loads_model(v->call);
        if (isdigit((unsigned char)m->key[0]) && (!is_name || m != v->first))
            continue;
        bool is_dtype = vp_python_loads_model(v->call) &&
                        strcmp(m->key, "torch_dtype") == 0; /* its older name */
        copy = vp_value_add(part, part->root,
                            is_name    ? "pretrained_model_name_or_path"
                            : is_dtype ? "dtype"
                                       : m->key);
        VP_TRY_ALLOC(r->err, copy);
        const char *key = copy->key;
        be_same(copy, m);
        copy->key  = key;
        copy->next = NULL;
        copy->line = m->line, copy->column = m->column;
        vp_python_name_as_files_do(copy);
    }
    if (!vp_python_loads_model(v->call) && !vp_value_member(part->root, "peft_type")) {
        copy = vp_value_add(part, part->root, "peft_type");
        VP_TRY_ALLOC(r->err, copy);
        copy->kind = VP_VALUE_STRING, copy->text = "LORA", copy->line = v->line;
    }
out:
    return st;
}

static vp_status add_deepspeed(reader *r, const vp_value *v)
{
    vp_document  *part = vp_document_new(r->doc->arena, r->doc->name, VP_FORMAT_PYTHON);
    vp_document **end  = &r->doc->parts;
    vp_status     st   = VP_OK;

    VP_TRY_ALLOC(r->err, part);
    while (*end)
        end = &(*end)->next;
    *end            = part;
    part->call      = v->key;
    part->program   = "deepspeed";
    *part->root     = *v;
    part->root->key = NULL, part->root->next = NULL;
out:
    return st;
}

/* Members of a call's, at the root too: what they are about is known by their names. */
static vp_status join_root(reader *r, const vp_value *map)
{
    vp_value *root = r->doc->root, *copy;
    vp_status st   = VP_OK;

    if (vp_python_makes_arguments(map->call)) {
        const char *dot = strrchr(map->call, '.');
        r->arguments    = dot ? dot + 1 : map->call;
    }
    for (vp_value *m = map->first; m; m = m->next) {
        if (vp_python_is_part(m)) {
            VP_TRY(add_part(r, m));
            continue;
        }
        if (strcmp(m->key, UNKNOWN_ARGUMENTS) == 0) {
            if (vp_python_makes_arguments(map->call) || strncmp(map->call, "Fast", 4) == 0)
                VP_TRY(say_gap(r, m));
            continue;
        }
        if (isdigit((unsigned char)m->key[0])) { /* an argument by place */
            if (m->call && vp_python_ends_in(m->call, "Arguments"))
                VP_TRY(join_root(r, m));
            continue;
        }
        VP_TRY(add(r, root, m->key, &copy));
        vp_value *after   = copy->next;
        *copy             = *m;
        copy->is_variable = !map->call;
        copy->next        = after;
        if (m->call && strcmp(m->key, "args") == 0)
            VP_TRY(join_root(r, m));
    }
out:
    return st;
}

/* `config.a` of a function's configuration, `args.a` of what args was called with: a of the root. */
static const char *without_owner(const reader *r, const char *name)
{
    const char     *dot   = strchr(name, '.');
    const vp_value *owner = NULL;

    for (const vp_value *v = dot ? r->doc->root->first : NULL; v; v = v->next)
        if (strncmp(v->key, name, (size_t)(dot - name)) == 0 && !v->key[dot - name])
            owner = v;
    return strncmp(name, "config.", 7) == 0 || (owner && owner->call) ? dot + 1 : name;
}

/* The names that a statement assigns to: "a", of "a, b" the last; NULL: it assigns nothing. *changes: what was there
 * before goes in, as in a += 1. */
static const char *take_targets(reader *r, bool *changes, bool *is_plain)
{
    const char *name;
    ptrdiff_t   n = 0;

    do {
        name = take_name(r);
        skip(r, false);
    } while (name && name[0] && r->at < r->end && *r->at == ',' && (r->at++, skip(r, false), true));
    while (n < 3 && n < r->end - r->at && r->at[n] && strchr("+-*/%@&|^", r->at[n]))
        n++;
    if (!name || !name[0] || r->end - r->at < n + 2 || r->at[n] != '=' || r->at[n + 1] == '=')
        return NULL;
    *changes = n > 0;
    r->at += n + 1;
    *is_plain = !strchr(name, '.');
    return without_owner(r, name);
}

/* A second value of a name where it depends on a condition, or on which function runs, which of them counts. */
static bool is_one_of_two(const reader *r, const vp_value *v)
{
    if (!r->inside || v->kind >= VP_VALUE_LIST || strchr(v->key, '.'))
        return false;
    for (const vp_value *old = r->doc->root->first; old && old != v; old = old->next)
        if (strcmp(old->key, v->key) == 0 && old->kind < VP_VALUE_LIST &&
            (old->kind != v->kind || (old->text && v->text && strcmp(old->text, v->text) != 0)))
            return true;
    return false;
}

/* A call whose result is thrown away: of a trainer's, what it is called with; others say nothing here. */
static vp_status read_call(reader *r)
{
    vp_value *v, *root = r->doc->root;
    reader    before = *r;
    char     *name   = take_name(r);
    vp_status st     = VP_OK;

    VP_TRY_ALLOC(r->err, name);
    if (r->at >= r->end || *r->at != '(' ||
        !(vp_python_ends_in(name, "Trainer") || vp_python_ends_in(name, "Arguments") ||
          vp_python_ends_in(name, "Config")))
        goto out;
    *r = before;
    VP_TRY(add(r, root, name, &v));
    VP_TRY(read_value(r, v, 1));
    r->unread = false;
    vp_value_drop_last(root, v);
    VP_TRY(join_root(r, v));
out:
    return st;
}

/* Behind `if x:` on the line, where a statement may stand. */
static void skip_condition(reader *r)
{
    static const char *const words[] = {"if", "elif", "else", "for", "while", "with", "try"};
    bool                     is_one  = false;
    int                      depth   = 0;

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        is_one = is_one || at_word(r, words[i]);
    for (; is_one && r->at < r->end && *r->at != '\n'; r->at++) {
        depth += strchr("([{", *r->at) ? 1 : strchr(")]}", *r->at) ? -1 : 0;
        if (*r->at == ':' && depth == 0) {
            r->at++;
            skip(r, false);
            return;
        }
    }
}

/* os.environ["PYTORCH_ALLOC_CONF"] = "...": how PyTorch allocates, as a command's variable says it. */
static vp_status add_variable(reader *r, const char *key, const vp_value *value)
{
    vp_value *v;
    vp_status st = VP_OK;

    if (strcmp(key, "PYTORCH_ALLOC_CONF") != 0 && strcmp(key, "PYTORCH_CUDA_ALLOC_CONF") != 0)
        return VP_OK;
    if (!r->doc->launch)
        r->doc->launch = vp_document_new(r->doc->arena, r->doc->name, VP_FORMAT_FLAGS);
    VP_TRY_ALLOC(r->err, r->doc->launch);
    v = vp_value_add(r->doc->launch, r->doc->launch->root, key);
    VP_TRY_ALLOC(r->err, v);
    be_same(v, value);
    v->line = r->line;
    VP_TRY(vp_launch_settle(r->doc, r->err));
out:
    return st;
}

/* name["key"] = value, of a map that stands above; false: the statement is another. */
static vp_status read_item(reader *r, bool *is_one)
{
    reader    before = *r;
    vp_value *map, *v, key = {0}, variable = {0};
    vp_status st   = VP_OK;
    char     *name = take_name(r);

    *is_one = false;
    VP_TRY_ALLOC(r->err, name);
    bool is_variable = strcmp(name, "os.environ") == 0;
    map              = is_variable ? NULL : value_of(r, name, NULL);
    if ((!is_variable && (!map || map->call || map->kind != VP_VALUE_MAP)) || r->at + 1 >= r->end ||
        *r->at != '[' || !strchr("\"'", r->at[1]))
        goto out;
    r->at++;
    VP_TRY(read_string(r, &key));
    if (r->at < r->end && *r->at == ']')
        r->at++;
    skip(r, false);
    if (r->end - r->at < 2 || r->at[0] != '=' || r->at[1] == '=')
        goto out;
    r->at++;
    skip(r, false);
    *is_one = true;
    if (is_variable) {
        if (r->at < r->end && strchr("\"'", *r->at)) {
            VP_TRY(read_string(r, &variable));
            VP_TRY(add_variable(r, key.text, &variable));
        }
        skip_line(r);
        goto out;
    }
    VP_TRY(add(r, map, key.text, &v));
    before = *r;
    VP_TRY(read_value(r, v, 1));
    skip(r, false);
    if (r->unread || (r->at < r->end && *r->at != '\n' && *r->at != ';')) {
        *r = before;
        skip_line(r);
        be_unread(v);
    }
out:
    if (!*is_one)
        *r = before;
    return st;
}

/* One line at its first letter: what is assigned or returned joins the root. */
static vp_status read_statement(reader *r)
{
    vp_value   *v, *root = r->doc->root, ignored = {0};
    const char *name    = NULL;
    reader      before  = *r;
    bool        changes = false, returns = at_word(r, "return"), is_plain = false;
    int         line = r->line;
    vp_status   st   = VP_OK;

    if (*r->at == '"' || *r->at == '\'') { /* a docstring */
        VP_TRY(read_string(r, &ignored));
        goto out;
    }
    if (returns)
        r->at += strlen("return"), name = "return";
    else
        name = take_targets(r, &changes, &is_plain);
    if (!name) {
        bool is_item;
        *r = before;
        VP_TRY(read_item(r, &is_item));
        if (is_item)
            goto out;
        VP_TRY(read_call(r));
        skip_line(r);
        goto out;
    }
    skip(r, false);
    before = *r;
    VP_TRY(add(r, root, name, &v));
    VP_TRY(read_value(r, v, 1));
    skip(r, false);
    v->line        = line;
    v->is_variable = is_plain;
    if (r->unread || changes || (r->at < r->end && *r->at != '\n' && *r->at != ';')) {
        *r = before;
        skip_line(r);
        be_unread(v);
        if (returns)
            vp_value_drop_last(root, v);
    } else if (vp_python_is_part(v)) {
        VP_TRY(add_part(r, v));
        vp_value_drop_last(root, v);
    } else if (vp_python_is_of_deepspeed(v)) {
        VP_TRY(add_deepspeed(r, v));
        vp_value_drop_last(root, v);
    } else if (vp_python_is_quantisation(v)) {
        /* the model that is loaded with it has it, by its name */
    } else if (v->kind == VP_VALUE_MAP) {
        const vp_value *first = first_arguments(r, v);
        VP_TRY(join_root(r, v));
        if (first)
            VP_TRY(forget_what_differs(r, first, v));
    } else if (is_one_of_two(r, v)) {
        be_unread(v);
    }
out:
    return st;
}

/* Whether text[0..n) ends as a settings file does, "ds_config.json", which a script may read by itself. */
static bool is_settings_file(const char *text, size_t n)
{
    static const char *const ends[] = {"args.json",         "config.json",    "arguments.json",
                                       "args.yaml",         "config.yaml",    "arguments.yaml",
                                       "training_args.yml", "deepspeed.json", NULL};

    for (int i = 0; ends[i]; i++)
        if (n >= strlen(ends[i]) &&
            memcmp(text + n - strlen(ends[i]), ends[i], strlen(ends[i])) == 0)
            return true;
    return false;
}

/* parse_json_file(here / "training_args.json"), json.loads(Path("ds_config.json").read_text()): what such a
 * statement names in quotes is a settings file. A model's own config.json has no settings. */
static vp_status note_files(reader *r, const char *from, int line)
{
    static const char *const reads[] = {"parse_json_file(", "parse_yaml_file(", "json.load",
                                        "yaml.safe_load(", NULL};
    bool                     is_one  = false;
    vp_status                st      = VP_OK;

    for (int i = 0; reads[i] && !is_one; i++)
        is_one = memmem(from, (size_t)(r->at - from), reads[i], strlen(reads[i]));
    for (const char *p = from; is_one && p < r->at; p++) {
        const char *end;
        vp_value   *file;
        if (*p != '"' && *p != '\'')
            continue;
        end = memchr(p + 1, *p, (size_t)(r->at - p - 1));
        if (!end)
            break;
        if (is_settings_file(p + 1, (size_t)(end - p - 1)) &&
            !(end - p - 1 == 11 && memcmp(p + 1, "config.json", 11) == 0)) {
            if (!r->doc->files)
                r->doc->files = vp_arena_alloc(r->doc->arena, sizeof *r->doc->files);
            VP_TRY_ALLOC(r->err, r->doc->files);
            r->doc->files->kind = VP_VALUE_LIST;
            VP_TRY(add(r, r->doc->files, NULL, &file));
            file->kind = VP_VALUE_STRING, file->line = line;
            VP_TRY_ALLOC(r->err, file->text = vp_arena_printf(r->doc->arena, "%.*s",
                                                              (int)(end - p - 1), p + 1));
        }
        p = end;
    }
out:
    return st;
}

static bool has_text(const char *from, const char *end, const char *text)
{
    return memmem(from, (size_t)(end - from), text, strlen(text));
}

/* What switches checkpoints on in the model itself, whatever its trainer is told (transformers' modeling_utils.py; peft's
 * utils/other.py, where it is the default), in the block that loads the model or around it. */
static vp_status note_checkpoints(reader *r, const char *from, int line)
{
    bool enables  = has_text(from, r->at, ".gradient_checkpointing_enable("),
         prepares = has_text(from, r->at, "prepare_model_for_kbit_training(") &&
                    (!has_text(from, r->at, "use_gradient_checkpointing") ||
                     has_text(from, r->at, "use_gradient_checkpointing=True"));
    vp_document *model = NULL;
    vp_value    *v;

    for (vp_document *p = r->doc->parts; p; p = p->next)
        if (p->call && vp_python_loads_model(p->call))
            model = p;
    if (!(enables || prepares) || !model || r->indent > model->root->column ||
        vp_value_member(model->root, "gradient_checkpointing_enable"))
        return VP_OK;
    v = vp_value_add(model, model->root, "gradient_checkpointing_enable");
    if (!v)
        return VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory");
    v->kind = VP_VALUE_BOOL, v->boolean = true, v->text = "true";
    v->line = line, v->column = r->indent + 1;
    return VP_OK;
}

vp_status vp_document_parse_python(vp_document *doc, const char *bytes, int64_t n, vp_err *err)
{
    reader r = {
        .doc = doc, .at = bytes, .end = bytes + n, .line_start = bytes, .line = 1, .err = err};
    bool      after = false; /* a semicolon, on the line of another statement */
    vp_status st    = VP_OK;

    for (;;) {
        skip(&r, true);
        if (r.at >= r.end)
            break;
        bool        ours = r.at > r.line_start && vp_value_at(doc->root, "SETTINGS");
        const char *from = r.at;
        const int   line = r.line;
        r.indent         = (int)(r.at - r.line_start);
        if (!ours)
            skip_condition(&r);
        bool is_certain = r.at == from && strncmp(from, "def ", 4) != 0;
        r.inside        = after ? r.inside : from > r.line_start || r.at > from;
        after           = false;
        if (!ours && r.at < r.end && *r.at != '\n')
            VP_TRY(read_statement(&r));
        if (!ours && r.at < r.end && *r.at == ';')
            r.at++, after = true;
        else if (r.at < r.end && *r.at != '\n') /* never in one place for ever */
            skip_line(&r);
        VP_TRY(note_files(&r, from, line));
        if (is_certain)
            VP_TRY(note_checkpoints(&r, from, line));
    }
    vp_python_settle(doc, r.arguments);
out:
    return st;
}
