/* trainers/files/python_owners.c: what stands before a dot: cfg of cfg = Config(), args of a parser's, a parameter that is given one of
 * these. */
#include "trainers/files/python_configs.h"

#include <ctype.h>
#include <string.h>

/* HfArgumentParser((A, B)), TrlParser(A): the classes in the brackets. */
bool vp_names_parses_classes(const vp_scanned_call *call, vp_piece *classes)
{
    const vp_piece *name = &call->name;

    if (!memmem(name->at, (size_t)(name->end - name->at), "HfArgumentParser", 16) &&
        !vp_piece_is(name, "TrlParser"))
        return false;
    *classes = vp_piece_trim(call->brackets);
    if (classes->end - classes->at > 2 && strchr("([", *classes->at))
        classes->at++, classes->end--;
    return true;
}

/* Whether brackets hold nothing, or an empty list: the options that a parser is given are the command's, or none. */
static bool is_of_command(vp_piece brackets)
{
    brackets = vp_piece_trim(brackets);
    return brackets.at >= brackets.end || vp_piece_is(&brackets, "[]") ||
           vp_piece_is(&brackets, "''") || vp_piece_is(&brackets, "\"\"");
}

/* The dataclass in that place of HfArgumentParser((A, B)). */
static vp_owner owner_of_place(const vp_python_reader *r, int place)
{
    const vp_scan *s     = r->names->scan;
    vp_owner       found = {.kind = VP_OWNER_NOTHING};
    int            n     = 0;

    for (int i = 0; i < s->n_calls; i++) {
        vp_piece rest, one;
        if (!vp_names_parses_classes(&s->calls[i], &rest))
            continue;
        if (n++)
            return (vp_owner){.kind = VP_OWNER_NOTHING}; /* which of two nobody sees */
        for (int k = 0; vp_piece_next(&rest, &one); k++) {
            int class = k == place ? vp_names_block_named(s, &one, true) : -1;
            if (class >= 0)
                found = (vp_owner){.kind = VP_OWNER_CLASS, .class = class, .options = true};
        }
    }
    return found;
}

/* What a function returns, where it says so once. */
static vp_owner owner_of_value(const vp_python_reader *r, const vp_scanned_value *value, int depth);
static vp_owner owner_of_name(const vp_python_reader *r, const vp_piece *name, int line, int place,
                              int depth);

/* The place-th of what stands between commas; place < 0, or one value alone: all of it, whose place is then still to be taken. */
static vp_scanned_value at_place(const vp_scanned_value *value, int place)
{
    vp_scanned_value one  = *value;
    vp_piece         rest = vp_piece_trim(value->value), each;
    int              n    = 0;

    one.place = place;
    for (; place >= 0 && vp_piece_next(&rest, &each); n++)
        if (n == place)
            one.value = each, one.place = -1;
    if (n == 1)
        one.value = value->value, one.place = place;
    return one;
}

static vp_owner owner_returned(const vp_python_reader *r, int function, int place, int depth)
{
    const vp_scan          *s    = r->names->scan;
    const vp_scanned_value *only = NULL;
    int                     n    = 0;

    for (int i = 0; function >= 0 && i < s->n_values; i++)
        if (s->values[i].block == function && vp_piece_is(&s->values[i].name, "return"))
            only = &s->values[i], n++;
    if (n != 1 || !only->value.at)
        return (vp_owner){.kind = VP_OWNER_NOTHING};
    vp_scanned_value one = at_place(only, place);
    return owner_of_value(r, &one, depth);
}

/* What a value is: Config(...), parser.parse_args(), f() of a function that returns such a one, another name. */
static vp_owner owner_of_value(const vp_python_reader *r, const vp_scanned_value *value, int depth)
{
    const vp_scan *s     = r->names->scan;
    vp_owner       none  = {.kind = VP_OWNER_NOTHING};
    int            place = value->place, class;

    if (!value->value.at || depth > VP_NAMES_MAX_DEPTH)
        return none;
    vp_piece p = vp_piece_trim(value->value), name = {p.at, p.at, p.line};
    while (name.end < p.end &&
           (isalnum((unsigned char)*name.end) || *name.end == '_' || *name.end == '.'))
        name.end++;
    if (name.end == p.end) {
        vp_owner of = owner_of_name(r, &p, p.line, place, depth + 1);
        return of.kind == VP_OWNER_NOTHING && place < 0 && memchr(p.at, '.', (size_t)(p.end - p.at))
                   ? vp_names_config_of(r, p, depth + 1)
                   : of;
    }
    vp_piece    brackets = {name.end + 1, p.end, p.line};
    const char *closed   = *name.end == '(' ? vp_piece_find(&brackets, ")") : NULL;
    if (!closed || *name.end == '[')
        return place < 0 ? vp_names_config_of(r, p, depth + 1) : none;
    vp_piece tail    = vp_piece_trim((vp_piece){closed + 1, p.end, p.line});
    brackets.end     = closed;
    const char *dot  = memrchr(name.at, '.', (size_t)(name.end - name.at));
    vp_piece    last = {dot ? dot + 1 : name.at, name.end, name.line};
    if (vp_piece_is(&tail, "[0]") && place < 0)
        place = 0;
    else if (tail.at < tail.end)
        return place < 0 ? vp_names_config_of(r, p, depth + 1) : none;
    if ((vp_piece_is(&last, "parse_args") && place < 0) ||
        (vp_piece_is(&last, "parse_known_args") && place == 0))
        return r->names->parsers == 1 && is_of_command(brackets)
                   ? (vp_owner){.kind = VP_OWNER_OPTIONS}
                   : none;
    if (vp_piece_is(&last, "parse_args_into_dataclasses") ||
        vp_piece_is(&last, "parse_args_and_config"))
        return place >= 0 ? owner_of_place(r, place) : none;
    vp_owner config = place < 0 ? vp_names_config_made(r, &name, &brackets, depth) : none;
    if (config.kind != VP_OWNER_NOTHING || dot)
        return config;
    class = vp_names_block_named(s, &name, true);
    if (class >= 0 && place >= 0)
        return none;
    if (class >= 0)
        return (vp_owner){.kind = VP_OWNER_CLASS, .class = class, .called = brackets};
    return owner_returned(r, vp_names_block_named(s, &name, false), place, depth + 1);
}

/* That of a name; of several values that it has, the place-th. */
static vp_owner owner_of_name(const vp_python_reader *r, const vp_piece *name, int line, int place,
                              int depth)
{
    const vp_scan *s    = r->names->scan;
    vp_owner       none = {.kind = VP_OWNER_NOTHING};
    vp_piece       otherwise, annotation, given;
    bool           is_self;
    int            function = vp_names_function_at(s, line);

    if (depth > VP_NAMES_MAX_DEPTH)
        return none;
    for (;; function = vp_names_function_around(s, function)) {
        const vp_scanned_value *only = NULL;
        int                     n    = 0;
        for (int i = 0; i < s->n_values; i++)
            if (s->values[i].block == function && vp_piece_same(&s->values[i].name, name))
                only = &s->values[i], n++;
        int which = function < 0 ? -1
                                 : vp_names_parameter_of(s, function, name, &otherwise, &annotation,
                                                         &is_self);
        if (which >= 0) {
            if (is_self && !n)
                return (vp_owner){.kind = VP_OWNER_CLASS, .class = vp_names_class_of(s, function)};
            if (which == 0 && !n && s->blocks[function].decorated) {
                vp_owner handed = vp_names_config_handed(r, function);
                if (handed.kind != VP_OWNER_NOTHING)
                    return handed;
            }
            const vp_scanned_call *call = NULL;
            for (int i = 0; i < s->n_calls; i++)
                if (vp_names_is_call_of(s, function, &s->calls[i]))
                    call = &s->calls[i], n++;
            if (n != 1 || !call || s->blocks[function].is_mentioned ||
                !vp_names_argument(&call->brackets, name,
                                   which - (vp_names_class_of(s, function) >= 0), &given) ||
                !given.at)
                return none;
            return owner_of_value(r, &(vp_scanned_value){.value = given, .place = place},
                                  depth + 1);
        }
        if (n == 1 && only->value.at && (place < 0 || only->place < 0)) {
            vp_scanned_value one = *only;
            one.place            = only->place < 0 ? place : only->place;
            return owner_of_value(r, &one, depth + 1);
        }
        int class = n <= 1 && function < 0 ? vp_names_block_named(s, name, true) : -1;
        if (class >= 0)
            return (vp_owner){.kind = VP_OWNER_CLASS, .class = class};
        if (n || function < 0)
            return none;
    }
}

vp_owner vp_names_owner(const vp_python_reader *r, const vp_piece *name, int line, int depth)
{
    return owner_of_name(r, name, line, -1, depth);
}
