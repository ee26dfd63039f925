/* trainers/files/python_options.c: options of a script's own command line: argparse's, and the parameters of functions that typer, click
 * or fire make a command of. Each has its default, what the command says in its place, or no value that is known. */
#include "trainers/files/python_names_internal.h"

#include "trainers/files/python_calls.h"
#include "trainers/files/script_values.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char *text_of(const vp_value *call, const char *key)
{
    const vp_value *v = vp_value_member(call, key);

    return v && v->kind == VP_VALUE_STRING && v->text ? v->text : "";
}

static bool is_on(const vp_value *call, const char *key)
{
    const vp_value *v = vp_value_member(call, key);

    return v && v->kind == VP_VALUE_BOOL && v->boolean;
}

static vp_status be_option(vp_python_reader *r, vp_value *v, const char *name, const char *type,
                           int line)
{
    vp_status st = VP_OK;

    VP_TRY(vp_names_be_default(r, v, &(vp_piece){name, name + strlen(name), 0}, type, line));
    vp_script_value_default(v);
out:
    return st;
}

/* An option's names of one dash, as it is called with them: "-b -bs". NULL: out of memory, where nobody knows them either. */
static const char *letters_of(vp_arena *arena, const vp_value *call)
{
    const char *all = "";

    for (const vp_value *m = call->first; m && all; m = m->next)
        if (isdigit((unsigned char)m->key[0]) && m->kind == VP_VALUE_STRING && m->quoted &&
            m->text[0] == '-' && m->text[1] != '-')
            all = vp_arena_printf(arena, "%s%s%s", all, *all ? " " : "", m->text);
    return all;
}

/* ---- argparse ---- */

/* Whether an option is stored as that attribute. *option: its name with the dashes, "" of one by place. */
static bool is_stored_as(const vp_value *call, const vp_piece *name, const char **option)
{
    const vp_value *dest = vp_value_member(call, "dest"), *first = NULL;
    char            attribute[160];

    for (const vp_value *m = call->first; m; m = m->next) {
        if (!isdigit((unsigned char)m->key[0]) || m->kind != VP_VALUE_STRING || !m->quoted)
            continue;
        if (!first || (strncmp(first->text, "--", 2) != 0 && strncmp(m->text, "--", 2) == 0))
            first = m;
    }
    if (!first)
        return false;
    *option = first->text[0] == '-' ? first->text : "";
    snprintf(attribute, sizeof attribute, "%s", first->text + strspn(first->text, "-"));
    for (char *p = attribute; *p; p++)
        *p = *p == '-' ? '_' : *p;
    return vp_piece_is(name, dest && dest->text ? dest->text : attribute);
}

/* What add_argument() is called with, and click.option(), each once. */
static vp_status read_options(vp_python_reader *r)
{
    static const char *const names[] = {"add_argument", "option"};
    vp_python_names         *x       = r->names;
    vp_value                *v;
    bool                     ok;
    vp_status                st = VP_OK;

    if (x->options)
        return VP_OK;
    x->options = vp_arena_alloc(r->doc->arena, sizeof *x->options);
    VP_TRY_ALLOC(r->err, x->options);
    x->options->kind = VP_VALUE_LIST;
    for (int i = 0; i < x->scan->n_calls; i++) {
        vp_piece whole  = x->scan->calls[i].name;
        bool     is_one = false;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            ptrdiff_t n = (ptrdiff_t)strlen(names[k]);
            is_one      = is_one ||
                     (whole.end - whole.at >= n && memcmp(whole.end - n, names[k], (size_t)n) == 0);
        }
        if (!is_one)
            continue;
        whole.end = x->scan->calls[i].brackets.end + 1;
        VP_TRY(vp_python_add(r, x->options, NULL, &v));
        VP_TRY(vp_names_read_piece(r, &whole, v, true, &ok));
        v->line = whole.line;
        if (!ok)
            vp_python_be_unread(v);
    }
out:
    return st;
}

/* The type of an option as it is called; "?": what a command makes of it the text does not say. */
static const char *type_of(const vp_value *call)
{
    const char     *action = text_of(call, "action"), *type = text_of(call, "type");
    const vp_value *given = vp_value_member(call, "type");

    if (strcmp(action, "store_true") == 0 || strcmp(action, "store_false") == 0)
        return action;
    if (vp_python_ends_in(action, "BooleanOptionalAction"))
        return "";
    if (vp_value_member(call, "action") && strcmp(action, "store") != 0)
        return VP_OPTION_UNKNOWN;
    if (vp_value_member(call, "nargs") &&
        !(strcmp(text_of(call, "nargs"), "?") == 0 && strstr(type, "bool")))
        return VP_OPTION_UNKNOWN;
    return !given ? "str" : given->kind == VP_VALUE_STRING && *type ? type : VP_OPTION_UNKNOWN;
}

vp_status vp_names_option(vp_python_reader *r, const vp_piece *name, vp_value *v,
                          vp_python_meant *meant)
{
    const vp_scan  *s     = r->names->scan;
    const vp_value *found = NULL;
    const char     *option, *named = NULL;
    int             n  = 0;
    vp_status       st = VP_OK;

    *meant = VP_PYTHON_HIDDEN;
    if (s->sets_by_name)
        goto out;
    for (int i = 0; i < s->n_values; i++) { /* args.lr = ... */
        const vp_piece *own = &s->values[i].name;
        const char     *dot = memrchr(own->at, '.', (size_t)(own->end - own->at));
        if (dot && vp_piece_same(&(vp_piece){dot + 1, own->end, 0}, name) &&
            !(dot - own->at == 4 && memcmp(own->at, "self", 4) == 0))
            goto out;
    }
    VP_TRY(read_options(r));
    for (const vp_value *call = r->names->options->first; call; call = call->next)
        if (call->call && vp_python_ends_in(call->call, "add_argument") &&
            is_stored_as(call, name, &option))
            found = call, n++, named = option;
    if (n != 1)
        goto out;
    const vp_value *otherwise = vp_value_member(found, "default");
    const char     *type      = type_of(found);
    bool is_true = strcmp(type, "store_true") == 0, is_switch = strncmp(type, "store_", 6) == 0;
    if (otherwise) {
        vp_python_be_same(v, otherwise);
    } else if (is_switch) {
        v->kind = VP_VALUE_BOOL, v->boolean = !is_true, v->text = is_true ? "False" : "True";
    } else {
        bool is_required = vp_value_member(found, "required") || !*named;
        v->kind = VP_VALUE_NULL, v->text = "None";
        if (is_required)
            vp_python_be_unread(v);
    }
    VP_TRY(be_option(r, v, named, type, found->line));
    v->option_letters = letters_of(r->doc->arena, found);
    *meant            = VP_PYTHON_MEANT;
out:
    return st;
}

/* ---- click ---- */

/* The long name among an option's own, "--lora/--no-lora" as "--lora"; NULL: it has none. */
static const char *long_name_of(vp_arena *arena, const vp_value *call)
{
    for (const vp_value *m = call->first; m; m = m->next)
        if (isdigit((unsigned char)m->key[0]) && m->kind == VP_VALUE_STRING && m->quoted &&
            strncmp(m->text, "--", 2) == 0)
            return vp_arena_printf(arena, "%.*s", (int)strcspn(m->text, "/ "), m->text);
    return NULL;
}

/* Whether click hands this option on by that name: the one that has no dashes, else its long one. */
static bool is_handed_as(const vp_value *call, const char *longest, const vp_piece *name)
{
    char parameter[160];

    for (const vp_value *m = call->first; m; m = m->next)
        if (isdigit((unsigned char)m->key[0]) && m->kind == VP_VALUE_STRING && m->quoted &&
            m->text[0] != '-')
            return vp_piece_is(name, m->text);
    if (!longest)
        return false;
    snprintf(parameter, sizeof parameter, "%s", longest + 2);
    for (char *p = parameter; *p; p++)
        *p = *p == '-' ? '_' : (char)tolower((unsigned char)*p);
    return vp_piece_is(name, parameter);
}

static bool has_off_name(const vp_value *call)
{
    for (const vp_value *m = call->first; m; m = m->next)
        if (isdigit((unsigned char)m->key[0]) && m->kind == VP_VALUE_STRING && m->quoted &&
            strncmp(m->text, "--", 2) == 0 && strstr(m->text, "/--"))
            return true;
    return false;
}

/* click.Choice([...]) and click.Path() leave a text what it is; without a type the default's counts. */
static const char *click_type(const vp_value *type, const vp_value *otherwise)
{
    static const char *const own[][2] = {
        {"INT", "int"},       {"int", "int"},       {"FLOAT", "float"}, {"float", "float"},
        {"BOOL", "str2bool"}, {"bool", "str2bool"}, {"STRING", "str"},  {"str", "str"}};

    if (!type)
        return otherwise->kind == VP_VALUE_NULL || otherwise->call ? "str" : "";
    if (type->call)
        return strcmp(type->call, VP_VALUE_UNREAD) == 0 ? VP_OPTION_UNKNOWN : "str";
    for (size_t i = 0; type->text && i < sizeof own / sizeof *own; i++) {
        const char *dot = strrchr(type->text, '.');
        if (strcmp(dot ? dot + 1 : type->text, own[i][0]) == 0)
            return own[i][1];
    }
    return VP_OPTION_UNKNOWN;
}

/* @click.option("--batch-size", default=4) above the function. */
static vp_status click_value(vp_python_reader *r, const vp_scanned_block *f, const vp_piece *name,
                             vp_value *v, bool *ok)
{
    const vp_value *found   = NULL;
    const char     *longest = NULL;
    vp_status       st      = VP_OK;

    *ok = false;
    VP_TRY(read_options(r));
    for (const vp_value *call = r->names->options->first; call; call = call->next) {
        const char *own = call->call && vp_python_ends_in(call->call, "option")
                              ? long_name_of(r->doc->arena, call)
                              : NULL;
        if (own && call->line >= f->decorated && call->line < f->line &&
            is_handed_as(call, own, name))
            found = call, longest = own;
    }
    if (!found)
        goto out;
    const vp_value *otherwise = vp_value_member(found, "default"),
                   *type      = vp_value_member(found, "type");
    bool is_switch            = is_on(found, "is_flag") || has_off_name(found);
    bool is_unknown           = is_on(found, "multiple") || is_on(found, "count") ||
                      vp_value_member(found, "flag_value") || vp_value_member(found, "callback") ||
                      vp_value_member(found, "nargs");
    if (is_on(found, "multiple")) {
        vp_python_be_unread(v);
    } else if (otherwise) {
        vp_python_be_same(v, otherwise);
    } else if (is_switch) {
        v->kind = VP_VALUE_BOOL, v->boolean = false, v->text = "False";
    } else {
        v->kind = VP_VALUE_NULL, v->text = "None";
        if (is_on(found, "required"))
            vp_python_be_unread(v);
    }
    VP_TRY(be_option(r, v, longest,
                     is_unknown  ? VP_OPTION_UNKNOWN
                     : is_switch ? ""
                                 : click_type(type, v),
                     found->line));
    v->option_letters = letters_of(r->doc->arena, found);
    *ok               = true;
out:
    return st;
}

/* ---- typer, fire ---- */

/* typer.Option(4, "--bs"), within Annotated[int, ...] too: false: the piece has none. */
static vp_status read_typer(vp_python_reader *r, const vp_piece *in, vp_value *call, bool *is_one)
{
    static const char *const makes[] = {"Option(", "Argument("};
    vp_status                st      = VP_OK;

    *is_one = false;
    for (size_t i = 0; in->at && i < sizeof makes / sizeof *makes && !*is_one; i++) {
        size_t      n     = strlen(makes[i]);
        const char *found = memmem(in->at, (size_t)(in->end - in->at), makes[i], n);
        int         line  = in->line;
        if (!found)
            continue;
        for (const char *p = in->at; p < found; p++)
            line += *p == '\n';
        vp_piece    inner = {found + n, in->end, line};
        const char *close = vp_piece_find(&inner, ")");
        vp_piece    whole = {found, close ? close + 1 : in->end, line};
        VP_TRY(vp_names_read_piece(r, &whole, call, true, is_one));
        *is_one = call->kind == VP_VALUE_MAP && call->call != NULL;
    }
out:
    return st;
}

vp_status vp_names_command_option(vp_python_reader *r, const vp_scanned_block *f,
                                  const vp_piece *name, const vp_piece *annotation,
                                  const vp_piece *otherwise, vp_value *v, bool *ok)
{
    vp_value    call = {.key = "", .line = name->line}, own = *v;
    const char *longest = NULL;
    bool        is_one, in_brackets = false;
    vp_status   st = VP_OK;

    *ok = false;
    if (f->decorated && !otherwise->at) {
        VP_TRY(click_value(r, f, name, v, ok));
        if (*ok)
            goto out;
    }
    VP_TRY(read_typer(r, otherwise, &call, &is_one));
    in_brackets = is_one;
    if (!is_one)
        VP_TRY(read_typer(r, annotation, &call, &is_one));
    if (is_one) {
        if (vp_python_ends_in(call.call, "Argument"))
            goto out; /* by its place, which no key of a command says */
        longest = long_name_of(r->doc->arena, &call);
    }
    if (in_brackets) {
        const vp_value *given = vp_value_member(&call, "default");
        given                 = given ? given : vp_value_member(&call, "0");
        if (!given || (given->kind == VP_VALUE_STRING && given->quoted && given->text[0] == '-'))
            vp_python_be_unread(v);
        else
            vp_python_be_same(v, given);
        v->key = own.key, v->next = own.next, v->line = own.line, v->column = own.column;
    } else if (otherwise->at) {
        bool known;
        VP_TRY(vp_names_read_piece(r, otherwise, v, false, &known));
        if (!known)
            goto out;
    } else {
        vp_python_be_unread(v);
    }
    if (v->option) { /* a constant that is one itself */
        *ok = true;
        goto out;
    }
    VP_TRY(be_option(
        r, v,
        longest ? longest
                : vp_arena_printf(r->doc->arena, "%.*s", (int)(name->end - name->at), name->at),
        "", name->line));
    v->option_letters = is_one ? letters_of(r->doc->arena, &call) : NULL;
    *ok               = true;
out:
    return st;
}

/* ---- arguments of a trainer's that a script has others of ---- */

static const vp_scanned_call *parser_of(const vp_scan *s)
{
    for (int i = 0; i < s->n_calls; i++) {
        const vp_piece *name = &s->calls[i].name;
        if (memmem(name->at, (size_t)(name->end - name->at), "HfArgumentParser", 16) ||
            memmem(name->at, (size_t)(name->end - name->at), "TrlParser", 9))
            return &s->calls[i];
    }
    return NULL;
}

/* What a class of the script's own is made of, where that is a trainer's arguments: "TrainingArguments"; NULL. */
static const char *arguments_of(const vp_python_reader *r, const vp_scanned_block *b)
{
    vp_piece rest = b->brackets, base;

    while (b->is_class && rest.at && vp_piece_next(&rest, &base)) {
        const char *name =
            vp_arena_printf(r->doc->arena, "%.*s", (int)(base.end - base.at), base.at);
        const char *dot = name ? strrchr(name, '.') : NULL;
        if (name && vp_python_trains(name))
            return dot ? dot + 1 : name;
    }
    return NULL;
}

/* HfArgumentParser((ScriptArguments, trl.SFTConfig)), or of a name for such a tuple: SFTConfig; NULL: its classes are none of a
 * trainer's. */
static const char *parsed_by(vp_python_reader *r, vp_piece classes, bool by_name)
{
    const vp_scan *s     = r->names->scan;
    const char    *found = NULL;
    vp_piece       rest  = vp_piece_trim(classes), one;

    if (rest.end - rest.at > 2 && strchr("([", *rest.at))
        rest.at++, rest.end--;
    while (!found && vp_piece_next(&rest, &one)) {
        const char *name = vp_arena_printf(r->doc->arena, "%.*s", (int)(one.end - one.at), one.at);
        const char *dot  = name ? strrchr(name, '.') : NULL;
        int class        = vp_names_block_named(s, &one, true);
        if (class >= 0)
            found = arguments_of(r, &s->blocks[class]);
        else if (name && vp_python_trains(name))
            found = dot ? dot + 1 : name;
        for (int k = 0; by_name && !found && k < s->n_values; k++)
            if (vp_piece_same(&s->values[k].name, &one) && s->values[k].value.at)
                found = parsed_by(r, s->values[k].value, false);
    }
    return found;
}

vp_status vp_python_names_defaults(vp_python_reader *r)
{
    const vp_scan         *s      = r->names ? r->names->scan : NULL;
    const vp_scanned_call *parser = s ? parser_of(s) : NULL;
    vp_status              st     = VP_OK;

    if (!parser)
        return VP_OK;
    r->doc->parsed = parsed_by(r, parser->brackets, true);
    for (int i = 0; i < s->n_values; i++) {
        const vp_scanned_value *a     = &s->values[i];
        vp_value                found = {.key = "", .line = a->name.line}, *v;
        bool                    ok;
        if (a->block < 0 || !a->value.at || a->place >= 0 ||
            a->indent != s->blocks[a->block].body || !arguments_of(r, &s->blocks[a->block]))
            continue;
        VP_TRY(vp_names_read_piece(r, &a->value, &found, true, &ok));
        const vp_value *own = ok && found.call && vp_python_ends_in(found.call, "field")
                                  ? vp_value_member(&found, "default")
                                  : NULL;
        if (!ok || (found.call && !own))
            continue;
        own = own ? own : &found;
        if (own->kind >= VP_VALUE_LIST || own->kind == VP_VALUE_NULL || own->call ||
            (own->kind == VP_VALUE_STRING && !own->quoted))
            continue;
        if (!r->doc->defaults)
            VP_TRY_ALLOC(r->err, r->doc->defaults = vp_arena_alloc(r->doc->arena, sizeof *v));
        r->doc->defaults->kind = VP_VALUE_MAP;
        VP_TRY(vp_python_add(
            r, r->doc->defaults,
            vp_arena_printf(r->doc->arena, "%.*s", (int)(a->name.end - a->name.at), a->name.at),
            &v));
        vp_python_be_same(v, own);
        v->line = a->name.line;
    }
out:
    return st;
}
