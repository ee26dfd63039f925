/* trainers/files/script_values.c: what a command says in the place of a script's own option, as argparse makes a value of it. */
#include "trainers/files/script_values.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static void be_unknown(vp_value *v)
{
    v->kind = VP_VALUE_MAP, v->call = VP_VALUE_UNREAD, v->first = v->last = NULL;
    v->n_children = 0, v->index = NULL, v->option = NULL;
}

static void be_bool(vp_value *v, bool is)
{
    v->kind = VP_VALUE_BOOL, v->boolean = is, v->text = is ? "True" : "False";
    v->call = NULL, v->option = NULL;
}

static bool is_listed(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = list; *p; p += strcspn(p, " "), p += *p == ' ')
        if (strcspn(p, " ") == n && strncasecmp(p, word, n) == 0)
            return true;
    return false;
}

/* str2bool("yes"), as people write it. */
static void be_switched(vp_value *v, const char *word)
{
    if (is_listed("yes true t y 1 on", word))
        be_bool(v, true);
    else if (is_listed("no false f n 0 off none", word))
        be_bool(v, false);
    else
        be_unknown(v);
}

/* Types that leave a text what it is. */
static bool keeps_text(const char *type)
{
    const char *dot = strrchr(type, '.');

    return is_listed("str Path", dot ? dot + 1 : type);
}

/* What argparse makes of a word: by the option's type, of a dataclass's field by its default. */
static void be_given(vp_value *v, const vp_value *given)
{
    const char *type      = v->option_type;
    bool        is_text   = keeps_text(type) || (!*type && v->kind == VP_VALUE_STRING && v->quoted);
    bool        is_number = strcmp(type, "int") == 0 || strcmp(type, "float") == 0;

    if (strcmp(type, "store_true") == 0 || strcmp(type, "store_false") == 0) {
        be_bool(v, type[6] == 't');
        return;
    }
    if (strcmp(type, "bool") == 0) { /* bool("False") is true */
        be_bool(v, given->text && given->text[0]);
        return;
    }
    if (strstr(type, "bool") && given->text && given->kind < VP_VALUE_LIST) {
        be_switched(v, given->text[0] ? given->text : "true");
        return;
    }
    bool is_own = !*type || is_text || is_number;
    if (!is_own || !given->text || given->kind >= VP_VALUE_LIST ||
        (given->kind == VP_VALUE_BOOL && !given->text[0] && *type) ||
        (is_number && given->kind != VP_VALUE_INT && given->kind != VP_VALUE_REAL)) {
        be_unknown(v);
        return;
    }
    v->kind = is_text ? VP_VALUE_STRING : given->kind, v->text = given->text, v->quoted = is_text;
    v->boolean = given->boolean, v->integer = given->integer, v->real = given->real;
    v->call = NULL, v->option = NULL;
    if (v->kind == VP_VALUE_STRING)
        v->quoted = true;
}

void vp_script_value_default(vp_value *v)
{
    const char *type = v->option_type, *option = v->option;
    int         line = v->option_line;

    if (v->kind != VP_VALUE_STRING || !v->quoted || !*type || keeps_text(type) ||
        strcmp(type, VP_OPTION_PARAMETER) == 0)
        return;
    if (strcmp(type, "int") == 0 || strcmp(type, "float") == 0) {
        v->quoted = false;
        vp_value_resolve(v);
    } else if (strcmp(type, "bool") == 0) {
        be_bool(v, v->text[0] != '\0');
    } else if (strstr(type, "bool")) {
        be_switched(v, v->text);
    } else {
        be_unknown(v);
    }
    v->option = option, v->option_type = type, v->option_line = line;
}

/* Whether a list of names, "-b -bs", has one of these letters. */
static bool has_letter(const char *names, char letter)
{
    for (const char *p = names; *p; p += strcspn(p, " "), p += *p == ' ')
        if (p[1] == letter && (p[2] == ' ' || !p[2]))
            return true;
    return false;
}

/* What a command says of an option by a letter: -b 8, -b8; NULL: nothing. *unknown: it may have said something: -xb, or a letter of
 * an option whose letters nobody knows. */
static vp_value *given_by_letter(const vp_document *command, const vp_value *v, vp_value *attached,
                                 bool *unknown)
{
    bool      is_switch = strncmp(v->option_type, "store_", 6) == 0;
    vp_value *given     = NULL;

    for (vp_value *m = command->root->first; m; m = m->next) {
        const char *names = v->option_letters;
        if (m->key[0] != '-')
            continue;
        if (!names || strchr(m->key, '=')) {
            *unknown = true;
        } else if (is_listed(names, m->key)) {
            given = m;
        } else if (m->key[2] && has_letter(names, m->key[1]) && !is_switch) {
            *attached      = (vp_value){.kind = VP_VALUE_STRING, .key = m->key, .text = m->key + 2};
            attached->line = m->line;
            m->is_taken    = true;
            given          = attached;
            vp_value_resolve(attached);
        } else {
            for (const char *p = m->key + 1; *p; p++)
                *unknown = *unknown || has_letter(names, *p);
        }
    }
    return given;
}

void vp_script_value_given(const vp_document *command, vp_value *v)
{
    vp_value       *given = NULL, attached;
    const vp_value *less  = NULL;
    char            name[160], off[164];
    bool            unknown = false;

    if (!v->option || strcmp(v->option_type, VP_OPTION_PARAMETER) == 0 || !*v->option)
        return;
    if (v->option[0] == '$') { /* a variable, which may be set elsewhere than in the command */
        given = command->environment ? vp_value_member(command->environment, v->option + 1) : NULL;
        if (given && strchr(given->text, '$'))
            be_unknown(v);
        else if (given)
            be_given(v, given);
        return;
    }
    snprintf(name, sizeof name, "%s", v->option + strspn(v->option, "-"));
    for (char *p = name; *p; p++)
        *p = *p == '-' ? '_' : *p; /* as a command's keys are read */
    snprintf(off, sizeof off, "no_%s", name);
    given =
        v->option[1] == '-' || v->option[0] != '-' ? vp_value_member(command->root, name) : NULL;
    for (const vp_value *m = command->root->first; m; m = m->next)
        if (strlen(m->key) < strlen(name) && strncmp(m->key, name, strlen(m->key)) == 0)
            less = m; /* --batch of --batch_size, where it is one option's alone */
    vp_value *by_letter = given_by_letter(command, v, &attached, &unknown);
    if (by_letter && given)
        unknown = true, given = NULL; /* both: the last counts, and their order is lost */
    else if (by_letter)
        given = by_letter;
    if (given && !unknown)
        be_given(v, given), given->is_taken = true;
    else if (vp_value_member(command->root, off) && v->kind == VP_VALUE_BOOL)
        be_bool(v, false);
    else if (unknown || less || command->has_gap)
        be_unknown(v);
    else
        v->option = NULL; /* the command has no other */
}
