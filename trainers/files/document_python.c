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
#include "trainers/files/python_adapters.h"
#include "trainers/files/python_blocks.h"
#include "trainers/files/python_calls.h"
#include "trainers/files/python_changes.h"
#include "trainers/files/python_formats.h"
#include "trainers/files/python_lightning.h"
#include "trainers/files/python_names.h"
#include "trainers/files/python_reader.h"
#include "trainers/files/python_scan.h"
#include "trainers/files/python_trained.h"

#include "base/text.h"
#include "trainers/files/launch.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What makes fp32 what is not quantised, of peft's. */
#define PREPARES "prepare_model_for_kbit_training"

/* To the end of the line; a string that goes on takes the lines along on which it does. */
static void skip_line(vp_python_reader *r)
{
    while (r->at < r->end && *r->at != '\n') {
        const char *from = r->at, *newline;
        if (*r->at == '"' || *r->at == '\'')
            r->at = vp_piece_behind_string(r->at, r->end, &r->line);
        else if (*r->at == '#')
            while (r->at < r->end && *r->at != '\n')
                r->at++;
        else
            r->at++;
        newline       = memrchr(from, '\n', (size_t)(r->at - from));
        r->line_start = newline ? newline + 1 : r->line_start;
    }
}

/* The arguments that another call made before v, of the same name or of another trainer; NULL: none. */
static const vp_value *first_arguments(const vp_python_reader *r, const vp_value *v)
{
    if (!v->call || !vp_python_makes_arguments(v->call))
        return NULL;
    for (const vp_value *old = r->doc->root->first; old && old != v; old = old->next)
        if (old->call &&
            (strcmp(old->call, v->call) == 0 ||
             (vp_python_trains(old->call) && vp_python_trains(v->call))) &&
            old->line != v->line)
            return old;
    return NULL;
}

vp_status vp_python_forget_what_differs(vp_python_reader *r, const vp_value *first,
                                        const vp_value *second)
{
    char      name[128];
    vp_status st = VP_OK;

    for (vp_value *m = r->doc->root->first; m; m = m->next) {
        const vp_value *a = vp_value_member(first, m->key), *b = vp_value_member(second, m->key);
        bool            same =
            a && b && a->kind == b->kind && a->text && b->text && strcmp(a->text, b->text) == 0;
        if ((a || b) && !same)
            vp_python_be_unread(m);
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

/* **data_module beside a trainer's model and arguments: data sets and what collates them, as its name says. */
static bool is_data(const vp_value *call, const vp_value *v)
{
    return vp_python_trains_model(call->call) && strstr(v->text, "data") &&
           (vp_value_member(call, "args") || vp_value_member(call, "1"));
}

vp_status vp_python_say_gap(vp_python_reader *r, vp_document *of, const vp_value *call,
                            const vp_value *v)
{
    char      shown[160];
    bool      is_gap = !is_data(call, v);
    vp_status st     = vp_document_remark(
            r->doc, v->line, NULL, false, r->err, "%s: %s; %s in it are missing from this answer",
            vp_text_escape(v->text, shown, sizeof shown),
        is_gap ? "the text does not say what stands there" : "the data, as its name says",
        is_gap ? "arguments" : "other arguments");

    if (st == VP_OK && is_gap)
        r->doc->last_remark->is_gap = of->has_gap = true;
    return st;
}

/* dtype=model_args.dtype, quantization_config=get_quantization_config(model_args): of a model that is loaded as TRL's ModelConfig has
 * it, which the command says. */
static bool is_by_command(const vp_document *doc, const vp_value *call, const vp_value *m)
{
    static const char *const keys[] = {"dtype", "torch_dtype", "attn_implementation",
                                       "quantization_config"};
    bool                     unread =
        m->call || (m->kind == VP_VALUE_STRING && !m->quoted && strncmp(m->text, "torch.", 6) != 0);

    for (size_t i = 0; doc->takes_model && unread && vp_python_loads_model(call->call) &&
                       i < sizeof keys / sizeof *keys;
         i++)
        if (strcmp(m->key, keys[i]) == 0)
            return !vp_python_is_quantisation(m);
    return false;
}

/* The part that v is, behind those that there are: with the names and values of peft's and transformers' files. */
vp_status vp_python_add_part(vp_python_reader *r, const vp_value *v)
{
    vp_document  *doc  = r->doc;
    vp_document  *part = vp_document_new(doc->arena, doc->name, VP_FORMAT_PYTHON);
    vp_document **end  = &doc->parts;
    vp_value     *copy;
    vp_status     st = VP_OK;

    VP_TRY_ALLOC(r->err, part);
    while (*end)
        end = &(*end)->next;
    *end              = part;
    part->call        = v->call;
    part->may_run     = r->may_run;
    part->is_anothers = (r->imports & VP_PYTHON_OTHERS_LORA) && strcmp(v->call, "LoraConfig") == 0;
    part->root->line = v->line, part->root->column = r->indent;
    for (const vp_value *m = v->first; m; m = m->next) {
        if (strcmp(m->key, VP_PYTHON_UNKNOWN) == 0) {
            VP_TRY(vp_python_say_gap(r, part, v, m));
            continue;
        }
        if (is_by_command(doc, v, m))
            continue;
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
        vp_python_be_same(copy, m);
        copy->key  = key;
        copy->next = NULL;
        copy->line = m->line, copy->column = m->column;
        vp_python_name_as_files_do(copy);
        if (strcmp(key, "quantization_config") == 0 && copy->kind == VP_VALUE_MAP && copy->call &&
            !vp_python_is_quantisation(copy))
            vp_python_be_unread(copy); /* GPTQConfig(...): of another kind */
    }
    if (vp_python_ends_in(v->call, "LoraConfig") && !vp_value_member(part->root, "peft_type")) {
        copy = vp_value_add(part, part->root, "peft_type");
        VP_TRY_ALLOC(r->err, copy);
        copy->kind = VP_VALUE_STRING, copy->text = "LORA", copy->line = v->line;
    }
out:
    return st;
}

static vp_status add_deepspeed(vp_python_reader *r, const vp_value *v)
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
vp_status vp_python_join_root(vp_python_reader *r, const vp_value *map)
{
    vp_value *root = r->doc->root, *copy;
    vp_status st   = VP_OK;

    if (vp_python_makes_arguments(map->call)) {
        const char *dot = strrchr(map->call, '.');
        r->arguments    = dot ? dot + 1 : map->call;
    }
    for (vp_value *m = map->first; m; m = m->next) {
        if (vp_python_is_part(m)) {
            VP_TRY(vp_python_add_part(r, m));
            continue;
        }
        if (map->call && !vp_python_tells_settings(map->call)) {
            if (m->call && vp_python_makes_arguments(m->call) && !vp_python_is_quantisation(m))
                VP_TRY(vp_python_join_root(r, m));
            continue;
        }
        if (strcmp(m->key, VP_PYTHON_UNKNOWN) == 0) {
            if (map->call &&
                (vp_python_makes_arguments(map->call) || vp_python_is_unsloths(map->call)))
                VP_TRY(vp_python_say_gap(r, r->doc, map, m));
            continue;
        }
        if (isdigit((unsigned char)m->key[0])) { /* an argument by place */
            if (m->call && vp_python_trains(m->call))
                VP_TRY(vp_python_join_root(r, m));
            if (m != map->first || m->kind != VP_VALUE_STRING || !map->call ||
                !vp_python_is_unsloths(map->call) ||
                !vp_python_ends_in(map->call, ".from_pretrained"))
                continue;
            VP_TRY(vp_python_add(r, root, "model_name", &copy));
            vp_python_be_same(copy, m);
            copy->line = m->line;
            continue;
        }
        VP_TRY(vp_python_add(r, root, m->key, &copy));
        vp_value *after   = copy->next;
        *copy             = *m;
        copy->is_variable = !map->call;
        copy->given_to    = vp_python_arguments_class(r, map->call);
        copy->next        = after;
        if (m->call && strcmp(m->key, "args") == 0)
            VP_TRY(vp_python_join_root(r, m));
    }
out:
    return st;
}

/* `config.a` of a function's configuration, `args.a` of what args was called with: a of the root. */
static const char *without_owner(vp_python_reader *r, const char *name)
{
    const char           *dot = strchr(name, '.');
    const vp_python_name *x   = dot ? vp_python_name_last(r, name, (size_t)(dot - name)) : NULL;
    bool                  is_settings = x && x->v->call && vp_python_tells_settings(x->v->call);

    bool is_models = x && x->v->call && vp_python_ends_in(x->v->call, ".from_pretrained");

    return (strncmp(name, "config.", 7) == 0 && !is_models) || is_settings ? dot + 1 : name;
}

/* The names that a statement assigns to: "a", of "a, b" the last; NULL: it assigns nothing. *changes: what was there
 * before goes in, as in a += 1. *first: of two the other one. */
static const char *take_targets(vp_python_reader *r, bool *changes, bool *is_plain,
                                const char **first)
{
    const char *name = NULL, *key;
    ptrdiff_t   n = 0, n_names = 0;

    do {
        *first = n_names++ == 1 ? name : NULL;
        name   = vp_python_take_name(r);
        vp_python_skip(r, false);
    } while (name && name[0] && r->at < r->end && *r->at == ',' &&
             (r->at++, vp_python_skip(r, false), true));
    while (n < 3 && n < r->end - r->at && r->at[n] && strchr("+-*/%@&|^", r->at[n]))
        n++;
    if (!name || !name[0] || r->end - r->at < n + 2 || r->at[n] != '=' || r->at[n + 1] == '=')
        return NULL;
    *changes = n > 0;
    r->at += n + 1;
    key       = without_owner(r, name);
    *is_plain = key == name;
    return key;
}

/* Of a name that is given more values than these the first ones are like the last, or the name is none of a setting's. */
enum { MOST_BEFORE = 64 };

/* A second value of a name where it depends on a condition, or on which function runs, which of them counts. */
static bool is_one_of_two(vp_python_reader *r, const vp_value *v)
{
    const vp_python_name *x;

    if (!r->inside || v->kind >= VP_VALUE_LIST || strchr(v->key, '.'))
        return false;
    x = vp_python_name_last(r, v->key, strlen(v->key));
    for (int n = 0; x && n < MOST_BEFORE; x = x->before, n++) {
        const vp_value *old = x->v;
        if (old == v)
            continue;
        if (r->may_run && vp_python_is_quantisation(old))
            return true; /* None, of an else */
        if (old->kind < VP_VALUE_LIST &&
            (old->kind != v->kind || (old->text && v->text && strcmp(old->text, v->text) != 0)))
            return true;
    }
    return false;
}

/* Whether what a statement does to what stands above happens in any case. */
static bool is_certain(const vp_python_reader *r, const vp_value *above)
{
    return !r->conditional || r->indent + 1 <= above->column;
}

/* name.update({"a": 1}, b=2) of a map that stands above. */
static vp_status take_update(vp_python_reader *r, vp_value *map, const vp_value *v)
{
    vp_value  unknown = {.key = VP_PYTHON_UNKNOWN, .text = v->key, .line = v->line};
    bool      certain = is_certain(r, map);
    vp_status st      = VP_OK;

    vp_python_be_unread(&unknown);
    for (const vp_value *m = v->first; m; m = m->next) {
        bool by_place = isdigit((unsigned char)m->key[0]);
        if (by_place && (m->kind != VP_VALUE_MAP || m->call)) {
            VP_TRY(vp_python_put(r, map, &unknown, true));
        } else if (by_place) {
            for (const vp_value *own = m->first; own; own = own->next)
                VP_TRY(vp_python_put(r, map, own, certain));
        } else {
            VP_TRY(vp_python_put(r, map, m, certain));
        }
    }
    if (r->unread)
        VP_TRY(vp_python_put(r, map, &unknown, true));
out:
    return st;
}

/* A call whose result is thrown away: of a trainer's, what it is called with; others say nothing here. */
static vp_status read_call(vp_python_reader *r)
{
    vp_value        *v, *root = r->doc->root, *map = NULL;
    vp_python_reader before = *r;
    const char      *name   = vp_python_take_name(r);
    vp_status        st     = VP_OK;

    VP_TRY_ALLOC(r->err, name && (name = vp_python_imported(r, name)));
    if (vp_python_ends_in(name, ".update")) {
        map = vp_python_value_of(
            r, vp_arena_printf(r->doc->arena, "%.*s", (int)(strlen(name) - 7), name), NULL);
        if (!map || map->kind != VP_VALUE_MAP || map->call)
            goto out;
    }
    if (r->at >= r->end || *r->at != '(' ||
        !(map || vp_python_ends_in(name, "Trainer") || vp_python_ends_in(name, "Arguments") ||
          vp_python_ends_in(name, "Config") || vp_python_ends_in(name, ".add_adapter")))
        goto out;
    *r = before;
    VP_TRY(vp_python_add(r, root, name, &v));
    VP_TRY(vp_python_read_value(r, v, 1));
    vp_python_drop_last(r, v);
    if (map)
        VP_TRY(take_update(r, map, v));
    else if (vp_python_trains_model(v->call))
        VP_TRY(vp_python_take_trainer(r, v));
    else
        VP_TRY(vp_python_join_root(r, v));
    r->unread = false;
out:
    return st;
}

/* Behind `if x:` on the line, where a statement may stand. */
static void skip_condition(vp_python_reader *r)
{
    static const char *const words[] = {"if", "elif", "else", "for", "while", "with", "try"};
    const char              *stop    = NULL;
    bool                     is_one  = false;

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        is_one = is_one || vp_python_at_word(r, words[i]);
    if (is_one)
        stop = vp_piece_find(&(vp_piece){r->at, r->end, r->line}, ":\n");
    for (; stop && r->at < stop; r->at++)
        if (*r->at == '\n')
            r->line++, r->line_start = r->at + 1;
    if (stop && *stop == ':') {
        r->at++;
        vp_python_skip(r, false);
    }
}

/* os.environ["PYTORCH_ALLOC_CONF"] = "...": what a command's variable says. */
static vp_status add_variable(vp_python_reader *r, const char *key, const vp_value *value)
{
    vp_value *v;
    vp_status st = VP_OK;

    static const char *const names[] = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF",
                                        "CUDA_VISIBLE_DEVICES"};
    bool                     is_one  = false;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        is_one = is_one || strcmp(key, names[i]) == 0;
    if (!is_one)
        return VP_OK;
    if (!r->doc->launch)
        r->doc->launch = vp_document_new(r->doc->arena, r->doc->name, VP_FORMAT_FLAGS);
    VP_TRY_ALLOC(r->err, r->doc->launch);
    v = vp_value_add(r->doc->launch, r->doc->launch->root, key);
    VP_TRY_ALLOC(r->err, v);
    vp_python_be_same(v, value);
    v->line = r->line;
    VP_TRY(vp_launch_settle(r->doc, r->err));
out:
    return st;
}

/* name["key"] = value, of a map that stands above; false: the statement is another. */
static vp_status read_item(vp_python_reader *r, bool *is_one)
{
    vp_python_reader before = *r;
    vp_value        *map, *v, key = {0}, variable = {0}, given = {0};
    vp_status        st   = VP_OK;
    char            *name = vp_python_take_name(r);

    *is_one = false;
    VP_TRY_ALLOC(r->err, name);
    bool is_variable = strcmp(name, "os.environ") == 0;
    map              = is_variable ? NULL : vp_python_value_of(r, name, NULL);
    if ((!is_variable && (!map || map->call || map->kind != VP_VALUE_MAP)) || r->at + 1 >= r->end ||
        *r->at != '[' || !strchr("\"'", r->at[1]))
        goto out;
    r->at++;
    VP_TRY(vp_python_read_string(r, &key));
    if (r->at < r->end && *r->at == ']')
        r->at++;
    vp_python_skip(r, false);
    if (r->end - r->at < 2 || r->at[0] != '=' || r->at[1] == '=')
        goto out;
    r->at++;
    vp_python_skip(r, false);
    *is_one = true;
    if (is_variable) {
        if (r->at < r->end && strchr("\"'", *r->at) && !r->conditional) {
            VP_TRY(vp_python_read_string(r, &variable));
            VP_TRY(add_variable(r, key.text, &variable));
        }
        skip_line(r);
        goto out;
    }
    v      = &given;
    v->key = key.text;
    before = *r;
    VP_TRY(vp_python_read_value(r, v, 1));
    vp_python_skip(r, false);
    if (r->unread || (r->at < r->end && *r->at != '\n' && *r->at != ';')) {
        *r = before;
        skip_line(r);
        vp_python_be_unread(v);
    }
    VP_TRY(vp_python_put(r, map, v, is_certain(r, map)));
out:
    if (!*is_one)
        *r = before;
    return st;
}

/* Of `a, b = 1, 2` the second value behind the first, which v has: a list of both, where neither is a call. */
static vp_status read_second(vp_python_reader *r, vp_value *v)
{
    vp_value  one = *v, other = {.line = v->line}, *member;
    vp_status st = VP_OK;

    r->at++;
    vp_python_skip(r, false);
    VP_TRY(vp_python_read_value(r, &other, 1));
    vp_python_skip(r, false);
    r->unread = r->unread || one.call || other.call;
    if (r->unread)
        goto out;
    v->kind = VP_VALUE_LIST, v->first = v->last = NULL, v->n_children = 0, v->index = NULL;
    VP_TRY(vp_python_add(r, v, NULL, &member));
    vp_python_be_same(member, &one);
    member->next = NULL, member->key = NULL;
    VP_TRY(vp_python_add(r, v, NULL, &member));
    vp_python_be_same(member, &other);
out:
    return st;
}

/* major, minor = (8, 6): v, under the last of the two names, has both values. */
static vp_status take_pair(vp_python_reader *r, const char *first, vp_value *v)
{
    const vp_value two = *v;
    vp_value      *other;
    vp_status      st = VP_OK;

    vp_python_be_same(v, two.last);
    VP_TRY(vp_python_add(r, r->doc->root, first, &other));
    v->next         = other;
    vp_value *after = other->next;
    vp_python_be_same(other, two.first);
    other->next = after;
    other->line = v->line, other->column = v->column, other->is_variable = true;
    v->is_variable = true;
    if (is_one_of_two(r, v))
        vp_python_be_unread(v);
    if (is_one_of_two(r, other))
        vp_python_be_unread(other);
out:
    return st;
}

/* One line at its first letter: what is assigned or returned joins the root. */
static vp_status read_statement(vp_python_reader *r)
{
    vp_value        *v, *root = r->doc->root, ignored = {0};
    const char      *name = NULL, *first = NULL;
    vp_python_reader before  = *r;
    bool             changes = false, returns = vp_python_at_word(r, "return"), is_plain = false;
    int              line = r->line;
    vp_status        st   = VP_OK;

    if (*r->at == '"' || *r->at == '\'') { /* a docstring */
        VP_TRY(vp_python_read_string(r, &ignored));
        goto out;
    }
    if (returns)
        r->at += strlen("return"), name = "return", is_plain = true;
    else
        name = take_targets(r, &changes, &is_plain, &first);
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
    vp_python_skip(r, false);
    before = *r;
    VP_TRY(vp_python_add(r, root, name, &v));
    VP_TRY(vp_python_read_value(r, v, 1));
    vp_python_skip(r, false);
    if (first && !r->unread && r->at < r->end && *r->at == ',')
        VP_TRY(read_second(r, v));
    v->line        = line;
    v->column      = r->indent + 1;
    v->is_variable = is_plain;
    if (is_plain && v->kind == VP_VALUE_STRING && !v->quoted &&
        vp_python_ends_in(vp_python_imported(r, v->text), PREPARES)) /* prep = prepare_... */
        VP_TRY(vp_python_add_alias(r, PREPARES, name));
    if (r->unread || changes || (r->at < r->end && *r->at != '\n' && *r->at != ';')) {
        *r = before;
        skip_line(r);
        vp_python_be_unread(v);
        if (returns)
            vp_python_drop_last(r, v);
    } else if (first && v->kind == VP_VALUE_LIST && v->n_children == 2) {
        VP_TRY(take_pair(r, first, v));
    } else if (vp_python_is_part(v) && vp_python_is_reloaded(r, v)) {
        vp_python_drop_last(r, v); /* to merge adapters, to try what was trained */
    } else if (vp_python_is_part(v)) {
        VP_TRY(vp_python_add_part(r, v));
        for (vp_document *part = r->doc->parts; part; part = part->next)
            part->variable = part->next ? part->variable : v->key;
        vp_python_drop_last(r, v);
    } else if (vp_python_is_of_deepspeed(v) && !vp_value_member(v, VP_PYTHON_UNKNOWN)) {
        VP_TRY(add_deepspeed(r, v));
        vp_python_drop_last(r, v);
    } else if (v->call && vp_python_trains_model(v->call)) {
        vp_python_drop_last(r, v);
        VP_TRY(vp_python_take_trainer(r, v));
    } else if (vp_python_is_quantisation(v)) {
        if (r->may_run && vp_python_value_of(r, v->key, v))
            vp_python_be_unread(v);
        /* the model that is loaded with it has it, by its name */
    } else if ((v->call && vp_python_names_own(r, v->call)) ||
               (!v->call && vp_python_names_in_class(r, line, r->indent))) {
        vp_python_drop_last(r, v); /* it is asked for by the name of its owner */
    } else if (v->kind == VP_VALUE_MAP) {
        const vp_value *before_it = first_arguments(r, v);
        VP_TRY(vp_python_join_root(r, v));
        if (before_it)
            VP_TRY(vp_python_forget_what_differs(r, before_it, v));
    } else if (is_one_of_two(r, v)) {
        vp_python_be_unread(v);
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
static vp_status note_files(vp_python_reader *r, const char *from, int line)
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
            VP_TRY(vp_python_add(r, r->doc->files, NULL, &file));
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

static bool prepares_model(const vp_python_reader *r, const char *from)
{
    const char *p = from, *call;

    while ((call = vp_python_next_call(r, from, &p)))
        if (vp_python_ends_in(call, PREPARES))
            return true;
    return false;
}

/* The use_reentrant of a statement that switches checkpoints on, beside what says that it does: as its text has it, else True where
 * peft hands none on; else the default is for the library to say. */
static vp_status note_reentrant(vp_python_reader *r, vp_document *doc, const char *from,
                                bool prepares, const vp_value *beside)
{
    static const char key[] = "use_reentrant";
    const char       *said  = memmem(from, (size_t)(r->at - from), key, sizeof key - 1);
    const char       *after = said ? said + sizeof key - 1 : from;

    if (!said && !prepares)
        return VP_OK;
    after += said ? strspn(after, "\"'=: ") : 0;
    vp_value *v = vp_value_add(doc, doc->root, "gradient_checkpointing_enable_reentrant");
    if (!v)
        return VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory");
    v->kind = VP_VALUE_BOOL, v->boolean = !said || strncmp(after, "True", 4) == 0;
    v->text = v->boolean ? "true" : "false";
    v->line = beside->line, v->column = beside->column;
    if (said && !v->boolean && strncmp(after, "False", 5) != 0)
        vp_python_be_unread(v);
    return VP_OK;
}

/* Whether a text has the word; NULL is none. */
static bool is_word(const char *from, const char *end, const char *word)
{
    size_t n = word ? strlen(word) : 0;

    for (const char *p = from; n && (p = memmem(p, (size_t)(end - p), word, n)) != NULL; p++)
        if ((p == from || !(isalnum((unsigned char)p[-1]) || p[-1] == '_')) &&
            (p + n == end || !(isalnum((unsigned char)p[n]) || p[n] == '_')))
            return true;
    return false;
}

/* What switches checkpoints on in the model itself, whatever its trainer is told (transformers' modeling_utils.py; peft's
 * utils/other.py, where it is the default). Behind a condition of its own nobody knows whether; behind one about the trainer's
 * switch that says it. */
static vp_status note_checkpoints(vp_python_reader *r, const char *from, int line, bool is_switched)
{
    bool enables       = has_text(from, r->at, ".gradient_checkpointing_enable("),
         is_called     = prepares_model(r, from),
         prepares      = is_called && (!has_text(from, r->at, "use_gradient_checkpointing") ||
                                  has_text(from, r->at, "use_gradient_checkpointing=True"));
    vp_document *model = NULL;
    vp_value    *v;

    if (!r->doc->prepares && is_called)
        r->doc->prepares = line;
    /* peft calls it too, of a model whose checkpoints are on when it is given its adapters (PeftModel.__init__()) */
    if (has_text(from, r->at, "enable_input_require_grads") ||
        has_text(from, r->at, "requires_grad_(True)") || prepares || (enables && !r->doc->adapts))
        r->doc->requires_grads = line;
    for (vp_document *p = r->doc->parts; p; p = p->next)
        if (p->call && vp_python_loads_model(p->call) &&
            !(model && is_word(from, r->at, model->variable)))
            model = p;
    vp_document *doc   = model ? model : r->doc;
    vp_value    *known = vp_value_member(doc->root, "gradient_checkpointing_enable");
    if (!(enables || prepares) || is_switched || (known && known->kind == VP_VALUE_BOOL))
        return VP_OK;
    v = known ? known : vp_value_add(doc, doc->root, "gradient_checkpointing_enable");
    if (!v)
        return VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory");
    v->kind = VP_VALUE_BOOL, v->boolean = true, v->text = "true", v->call = NULL;
    v->line = line, v->column = r->indent + 1;
    if (r->conditional && !(model && r->indent <= model->root->column))
        vp_python_be_unread(v);
    return note_reentrant(r, doc, from, prepares && !enables, v);
}

/* param.data = param.data.to(torch.float32), as loops over a model's norms have it. */
static void note_casts(vp_python_reader *r, const char *from, int line)
{
    static const char *const casts[] = {".data.to(torch.float", ".data.to(torch.bfloat",
                                        "module.to(torch.float", "module.to(torch.bfloat"};

    for (size_t i = 0; i < sizeof casts / sizeof *casts && !r->doc->casts; i++)
        if (has_text(from, r->at, casts[i]))
            r->doc->casts = line;
}

/* def f(a=1, ...): what stands in the brackets are parameters, and no statements. */
static void skip_head(vp_python_reader *r)
{
    for (int last = vp_python_names_head(r, r->line); r->line < last && r->at < r->end; r->at++)
        if (*r->at == '\n')
            r->line++, r->line_start = r->at + 1;
    skip_line(r);
}

static vp_status read_line(vp_python_reader *r)
{
    bool      is_import;
    vp_status st = vp_python_read_import(r, &is_import);

    return st == VP_OK && !is_import ? read_statement(r) : st;
}

/* In a function that only lines call which do not run. */
static vp_status say_uncalled(vp_python_reader *r, const char *from, int line)
{
    static const char *const words[] = {"LoraConfig(", "get_peft_model(", "BitsAndBytesConfig("};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!r->doc->command && has_text(from, r->at, words[i]))
            return vp_document_remark(r->doc, line, NULL, false, r->err,
                                      "does not run: what calls its function stands where nothing "
                                      "runs");
    return VP_OK;
}

/* *reached: what of it runs, as it was read before; at NULL: it was not. *again: it may be read once more, and is to be, as functions do not
 * run that it was read with. */
static vp_status read_script(vp_document *doc, const char *bytes, int64_t n,
                             vp_python_reached **reached, bool *again, vp_err *err)
{
    vp_python_reader r     = {.doc        = doc,
                              .begin      = bytes,
                              .at         = bytes,
                              .end        = bytes + n,
                              .line_start = bytes,
                              .line       = 1,
                              .err        = err};
    vp_python_blocks open  = {.n = 0};
    bool             after = false; /* a semicolon, on the line of another statement */
    vp_status        st    = VP_OK;

    VP_TRY(vp_python_names_find(&r));
    VP_TRY(vp_python_trained_begin(&r));
    if (!*reached)
        *reached = vp_python_reached_new(&r);
    VP_TRY_ALLOC(err, *reached);
    for (;;) {
        vp_python_skip(&r, true);
        if (r.at >= r.end)
            break;
        bool        ours = r.at > r.line_start && vp_value_at(doc->root, "SETTINGS");
        const char *from = r.at;
        const int   line = r.line;
        r.indent         = (int)(r.at - r.line_start);
        if (!after)
            VP_TRY(vp_python_enter_line(&open, &r));
        vp_python_reach way    = vp_python_reach_of(&r, *reached, line);
        bool            is_off = vp_python_is_dead(&open);
        if (is_off || way == VP_REACH_NEVER) {
            skip_line(&r);
            for (int k = line; k <= r.line && k < (*reached)->n_lines; k++)
                (*reached)->lines[k] = VP_REACH_NEVER;
            if (is_off)
                VP_TRY(vp_python_say_dead(&open, &r, from, line));
            else
                VP_TRY(say_uncalled(&r, from, line));
            continue;
        }
        r.may_run = way == VP_REACH_MAYBE || vp_python_is_open(&open);
        if (r.may_run && line < (*reached)->n_lines)
            (*reached)->lines[line] = VP_REACH_MAYBE;
        if (!ours)
            skip_condition(&r);
        r.conditional = r.conditional || (r.at > from && vp_python_is_maybe(&open));
        r.inside      = after ? r.inside : from > r.line_start || r.at > from;
        after         = false;
        if (vp_python_at_word(&r, "class"))
            VP_TRY(vp_python_names_class(&r, line));
        if (vp_python_at_word(&r, "def") || vp_python_at_word(&r, "class"))
            skip_head(&r);
        else if (!ours && r.at < r.end && *r.at != '\n')
            VP_TRY(read_line(&r));
        if (!ours && r.at < r.end && *r.at == ';')
            r.at++, after = true;
        else if (r.at < r.end && *r.at != '\n') /* never in one place for ever */
            skip_line(&r);
        VP_TRY(vp_python_note_taken(&r, from));
        VP_TRY(note_files(&r, from, line));
        VP_TRY(vp_python_note_adapting(&r, from, line));
        VP_TRY(vp_python_note_trained(&r, from, line));
        vp_python_note_frozen(&r, from, line);
        VP_TRY(vp_python_note_lightning(&r, from, line));
        VP_TRY(vp_python_note_changes(&r, from, line));
        VP_TRY(vp_python_note_format(&r, from, line));
        note_casts(&r, from, line);
        if (strncmp(from, "def ", 4) != 0)
            VP_TRY(note_checkpoints(&r, from, line, vp_python_is_switched(&open)));
    }
    VP_TRY(vp_python_trained_end(&r));
    VP_TRY(vp_python_lightning_end(&r));
    VP_TRY(vp_python_say_adapters(&r));
    VP_TRY(vp_python_names_defaults(&r));
    *again = vp_python_reach_functions(&r, *reached) && *again;
    if (!*again)
        vp_python_settle(doc, r.arguments, r.trainer);
out:
    return st;
}

enum { MAX_READS = 4 };

vp_status vp_document_parse_python(vp_document *doc, const char *bytes, int64_t n, vp_err *err)
{
    vp_python_reached *reached = NULL;
    const vp_document  empty   = *doc;
    bool               again   = true;
    vp_status          st      = VP_OK;

    for (int i = 0; i < MAX_READS && again; i++) {
        if (i) {
            const vp_document *fresh = vp_document_new(empty.arena, empty.name, empty.format);
            VP_TRY_ALLOC(err, fresh);
            *doc      = empty;
            doc->root = fresh->root;
        }
        again = i + 1 < MAX_READS;
        VP_TRY(read_script(doc, bytes, n, &reached, &again, err));
    }
out:
    return st;
}
