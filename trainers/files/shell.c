/* trainers/files/shell.c: commands and variables of a shell script, as far as the text alone says them
 * (POSIX 1003.1, Shell Command Language; arrays as bash has them). */
#include "trainers/files/shell.h"

#include "trainers/files/shell_reader.h"
#include "trainers/files/shell_words.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- commands ---- */

/* Words that stand before a command and are none of it; they open and close conditions. */
static bool take_reserved(vp_shell *s, const char *word)
{
    static const char *const opens[]  = {"if", "for", "while", "until", "case", "select", NULL};
    static const char *const closes[] = {"fi", "done", "esac", NULL};
    static const char *const others[] = {"then", "elif",     "else", "do",   "{",     "}",
                                         "!",    "function", "time", "exec", "nohup", NULL};

    s->depth += vp_shell_is_in(word, opens);
    s->in_case += strcmp(word, "case") == 0;
    if (vp_shell_is_in(word, closes) && s->depth > 0)
        s->depth--;
    if (strcmp(word, "esac") == 0 && s->in_case > 0)
        s->in_case--;
    return vp_shell_is_in(word, opens) || vp_shell_is_in(word, closes) ||
           vp_shell_is_in(word, others);
}

static vp_status open_command(vp_shell *s)
{
    if (!s->open) {
        s->open = vp_arena_alloc(s->arena, sizeof *s->open);
        if (!s->open)
            return vp_shell_no_memory(s);
        *s->open = (vp_shell_command){.line = vp_shell_line_of(s)};
    }
    return VP_OK;
}

static void keep_command(vp_shell *s, vp_shell_command *c, bool torn)
{
    c->torn                                 = torn;
    *(s->last ? &s->last->next : &s->first) = c;
    s->last                                 = c;
}

static vp_status read_commands(vp_shell *s);

/* The commands in words from..to of c, each behind c's words before n_before: srun, variables. *kept: there was one. */
static vp_status read_inside(vp_shell *s, const vp_shell_command *c, int64_t from, int64_t to,
                             int64_t n_before, bool *kept)
{
    vp_shell_piece   text   = {0};
    vp_err           inner  = {0};
    vp_shell         within = *s;
    vp_shell_command all;
    vp_status        st = VP_OK;

    *kept = false;
    for (int64_t i = from; i < to; i++) {
        const vp_shell_word *w = &c->words[i];
        for (const char *p = w->text; *p; p++)
            VP_TRY(vp_shell_add_letter(s, &text, *p, w->lines ? w->lines[p - w->text] : w->line,
                                       w->columns ? w->columns[p - w->text] : w->column));
        VP_TRY(vp_shell_add_letter(s, &text, i + 1 < to ? ' ' : '\n', w->line, w->column));
    }
    within.begin = within.p = within.line_start = text.text;
    within.end                                  = text.text + text.n - 1;
    within.at_line = text.line, within.at_column = text.column;
    within.first = within.last = within.open = NULL;
    within.n_brackets = within.in_case = 0;
    within.here[0]                     = '\0';
    within.n_inside++;
    within.err    = &inner;
    st            = read_commands(&within);
    s->n_expanded = within.n_expanded;
    if (st == VP_ERR_INPUT) /* quotes that a shell of its own would complain of */
        return VP_OK;
    VP_TRY(st);
    for (vp_shell_command *next, *one = within.first; one; one = next) {
        next      = one->next;
        all       = *one;
        all.words = NULL, all.n_words = all.cap_words = 0, all.next = NULL;
        for (int64_t i = 0; i < n_before; i++)
            VP_TRY(vp_shell_add_word(s, &all, c->words[i]));
        for (int64_t i = 0; i < one->n_words; i++)
            VP_TRY(vp_shell_add_word(s, &all, one->words[i]));
        *one = all;
        keep_command(s, one, one->torn);
        *kept = true;
    }
    s->variables = within.variables;
out:
    return st;
}

enum { MAX_INSIDE = 4 };

/* by: what ends it, '\n' or an operator. */
static vp_status end_command(vp_shell *s, char by)
{
    vp_shell_command *c    = s->open;
    bool              bare = c && c->n_words && c->words[0].text[0] == '-', kept = false;
    vp_status         st = VP_OK;

    s->open         = NULL;
    s->skips_a_word = false;
    if (!c || !c->n_words || (by == ')' && s->n_brackets == 0) || (bare && s->in_case))
        return VP_OK;
    if ((bare && !vp_shell_has_options(c)) || vp_shell_is_no_trainer(c))
        return VP_OK;
    int64_t text = s->n_inside < MAX_INSIDE ? vp_shell_text_of(c) : 0;
    bool    eval = text == 1;
    if (text)
        VP_TRY(read_inside(s, c, text, eval ? c->n_words : text + 1, eval ? 0 : text - 2, &kept));
    if (!kept)
        keep_command(s, c, bare && s->last && vp_shell_has_options(s->last) && by == '\n');
out:
    return st;
}

/* NAME= or NAME+= at p; *n: letters of the name. */
static bool is_assignment(const vp_shell *s, size_t *n, bool *adds)
{
    *n = 0;
    while (s->p + *n < s->end && vp_shell_is_name_letter(s->p[*n]))
        ++*n;
    if (!*n || isdigit((unsigned char)*s->p) || s->p + *n >= s->end)
        return false;
    *adds = s->p[*n] == '+' && s->p + *n + 1 < s->end && s->p[*n + 1] == '=';
    return *adds || s->p[*n] == '=';
}

static vp_status skip_blanks(vp_shell *s, bool lines)
{
    while (s->p < s->end) {
        if (*s->p == '#') {
            while (s->p < s->end && *s->p != '\n')
                vp_shell_step(s);
        } else if (*s->p == '\\' && s->p + 1 < s->end && s->p[1] == '\n') {
            vp_shell_step(s);
            vp_shell_step(s);
        } else if (isspace((unsigned char)*s->p) && (lines || *s->p != '\n')) {
            vp_shell_step(s);
        } else {
            break;
        }
    }
    return VP_OK;
}

/* NAME=( words ): p stands behind the opening bracket. */
static vp_status read_array(vp_shell *s, vp_shell_command *words, int line, int column)
{
    vp_status st = VP_OK;

    for (;;) {
        vp_shell_maker m = {0};
        VP_TRY(skip_blanks(s, true));
        if (s->p >= s->end)
            VP_TRY(vp_shell_unended(s, "a bracket", line, column));
        if (*s->p == ')')
            break;
        if (vp_shell_ends_a_word(s, *s->p)) { /* an operator has no place here */
            vp_shell_step(s);
            continue;
        }
        VP_TRY(vp_shell_read_word(s, &m, words));
        VP_TRY(vp_shell_end_word(s, &m, words));
    }
    vp_shell_step(s);
out:
    return st;
}

/* A value is text, with the quotes taken off and nothing split. */
static vp_status read_value(vp_shell *s, vp_shell_piece *out, bool *known)
{
    vp_shell_command whole = {0};
    vp_shell_maker   m     = {0};
    vp_status        st    = VP_OK;

    while (s->p < s->end && !vp_shell_ends_a_word(s, *s->p)) {
        if (*s->p == '$') {
            VP_TRY(vp_shell_expand(s, true, &m, &whole));
        } else if (*s->p == '`') {
            VP_TRY(vp_shell_read_backquoted(s, &m));
        } else if (*s->p == '\\' && s->p + 1 < s->end) {
            vp_shell_step(s);
            if (*s->p != '\n')
                VP_TRY(vp_shell_put(s, &m, *s->p, vp_shell_line_of(s), vp_shell_column_of(s)));
            vp_shell_step(s);
        } else if (*s->p == '"' || *s->p == '\'') {
            VP_TRY(vp_shell_read_quoted(s, &m, &whole));
        } else {
            VP_TRY(vp_shell_put(s, &m, *s->p, vp_shell_line_of(s), vp_shell_column_of(s)));
            vp_shell_step(s);
        }
    }
    *known = !whole.n_words; /* an array as text has no one meaning here */
    *out   = m.word;
out:
    return st;
}

static vp_status set_variable(vp_shell *s, const char *name, size_t n, bool adds,
                              vp_shell_variable value)
{
    vp_shell_variable *v  = vp_shell_find_variable(s, name, n);
    vp_status          st = VP_OK;

    value.known = value.known && !s->depth && !s->chained;
    if (!v) {
        char *own = vp_arena_alloc(s->arena, n + 1);
        v         = vp_arena_alloc(s->arena, sizeof *v);
        if (!v || !own)
            return vp_shell_no_memory(s);
        memcpy(own, name, n);
        *v           = (vp_shell_variable){.name = own, .known = !adds, .next = s->variables};
        s->variables = v;
        adds         = false;
    }
    if (adds && v->known && value.known && v->words && value.words) {
        vp_shell_command all = {0};
        for (int64_t i = 0; i < v->n_words + value.n_words; i++) {
            const vp_shell_word *w = i < v->n_words ? &v->words[i] : &value.words[i - v->n_words];
            VP_TRY(vp_shell_add_word(s, &all, *w));
        }
        v->words = all.words, v->n_words = all.n_words;
    } else if (adds && v->known && value.known && !v->words && !value.words) {
        for (int64_t i = 0; i < value.text.n; i++)
            VP_TRY(vp_shell_add_letter(s, &v->text, value.text.text[i], value.text.line[i],
                                       value.text.column[i]));
    } else if (adds) {
        v->known = false;
    } else {
        v->known = value.known, v->text = value.text;
        v->words = value.words, v->n_words = value.n_words;
    }
out:
    return st;
}

/* NAME=VALUE before a command, which gets it as a word of its own as well. */
static vp_status read_assignment(vp_shell *s, size_t n, bool adds)
{
    static vp_shell_word none = {0};
    const char          *name = s->p;
    int                  line = vp_shell_line_of(s), column = vp_shell_column_of(s);
    vp_shell_variable    value = {.known = true};
    vp_shell_command     words = {0};
    vp_shell_maker       m     = {0};
    vp_status            st    = VP_OK;

    while (s->p < name + n + 1 + adds)
        vp_shell_step(s);
    if (s->p < s->end && *s->p == '(') {
        vp_shell_step(s);
        VP_TRY(read_array(s, &words, line, column));
        value.words = words.words ? words.words : &none, value.n_words = words.n_words;
        VP_TRY(set_variable(s, name, n, adds, value));
        return VP_OK;
    }
    VP_TRY(read_value(s, &value.text, &value.known));
    VP_TRY(set_variable(s, name, n, adds, value));
    for (const char *p = name; p < name + n; p++)
        VP_TRY(vp_shell_put(s, &m, *p, line, column));
    VP_TRY(vp_shell_put(s, &m, '=', line, column));
    for (int64_t i = 0; i < value.text.n; i++)
        VP_TRY(vp_shell_put(s, &m, value.text.text[i], line, column));
    VP_TRY(open_command(s));
    VP_TRY(vp_shell_end_word(s, &m, s->open));
out:
    return st;
}

/* Whether only assignments stand in the command so far. */
static bool may_assign(const vp_shell *s)
{
    static const char *const before[] = {"export", "local", "declare", "readonly", "typeset",
                                         "env",    "-x",    "-a",      "-r",       NULL};

    for (int64_t i = 0; s->open && i < s->open->n_words; i++) {
        const char *w = s->open->words[i].text;
        if (!vp_shell_is_in(w, before) && !(isalpha((unsigned char)*w) || *w == '_'))
            return false;
        if (!vp_shell_is_in(w, before) && !strchr(w, '='))
            return false;
    }
    return true;
}

static void begin_redirection(vp_shell *s)
{
    bool here = s->end - s->p > 2 && s->p[0] == '<' && s->p[1] == '<' && s->p[2] != '<';

    while (s->p < s->end && *s->p && strchr("<>&|", *s->p))
        vp_shell_step(s);
    s->here_tabs = here && s->p < s->end && *s->p == '-';
    if (s->here_tabs)
        vp_shell_step(s);
    s->here[0]      = here ? '?' : '\0';
    s->here[1]      = '\0';
    s->skips_a_word = true;
}

/* The lines of a here-document, up to the one that ends it: they are no commands. */
static void skip_here(vp_shell *s)
{
    size_t n = strlen(s->here);

    while (s->p < s->end) {
        const char *line = s->p;
        while (line < s->end && s->here_tabs && *line == '\t')
            line++;
        bool last = (size_t)(s->end - line) >= n && memcmp(line, s->here, n) == 0 &&
                    (line + n == s->end || line[n] == '\n' || line[n] == '\r');
        while (s->p < s->end && *s->p != '\n')
            vp_shell_step(s);
        if (s->p < s->end)
            vp_shell_step(s);
        if (last)
            break;
    }
    s->here[0] = '\0';
}

static vp_status take_operator(vp_shell *s)
{
    char      c  = *s->p;
    vp_status st = VP_OK;

    if (c == '<' || c == '>') {
        begin_redirection(s);
        return VP_OK;
    }
    if (c == '&' && s->p + 1 < s->end && s->p[1] == '>') { /* &>file */
        vp_shell_step(s);
        begin_redirection(s);
        return VP_OK;
    }
    VP_TRY(end_command(s, c));
    if (c == '(')
        s->n_brackets++;
    else if (c == ')' && s->n_brackets > 0)
        s->n_brackets--;
    bool twice = (c == '&' || c == '|') && s->p + 1 < s->end && s->p[1] == c;
    s->chained = twice;
    vp_shell_step(s);
    if (twice)
        vp_shell_step(s);
    if (c == '\n' && s->here[0])
        skip_here(s);
out:
    return st;
}

static vp_status take_word(vp_shell *s)
{
    vp_shell_command aside = {0}, *to = s->skips_a_word ? &aside : s->open;
    vp_shell_maker   m = {0};
    int64_t          before;
    vp_status        st = VP_OK;

    before = to->n_words;
    VP_TRY(vp_shell_read_word(s, &m, to));
    bool number = s->p < s->end && (*s->p == '>' || *s->p == '<') && m.word.n == 1 && !m.quoted &&
                  isdigit((unsigned char)m.word.text[0]);
    if (!number) /* 2>file */
        VP_TRY(vp_shell_end_word(s, &m, to));
    if (s->skips_a_word) {
        if (s->here[0] == '?')
            snprintf(s->here, sizeof s->here, "%s", aside.n_words ? aside.words[0].text : "");
        s->skips_a_word = false;
    } else if (before == 0 && to->n_words == 1 && !to->words[0].quoted &&
               take_reserved(s, to->words[0].text)) {
        to->n_words = 0;
    }
out:
    return st;
}

static vp_status read_commands(vp_shell *s)
{
    size_t    n;
    bool      adds;
    vp_status st = VP_OK;

    while (s->p < s->end) {
        VP_TRY(skip_blanks(s, false));
        if (s->p >= s->end)
            break;
        if (*s->p == '\n' || vp_shell_ends_a_word(s, *s->p)) {
            VP_TRY(take_operator(s));
            continue;
        }
        VP_TRY(open_command(s));
        if (!s->skips_a_word && may_assign(s) && is_assignment(s, &n, &adds))
            VP_TRY(read_assignment(s, n, adds));
        else
            VP_TRY(take_word(s));
    }
    VP_TRY(end_command(s, '\n'));
out:
    return st;
}

/* A file of settings alone, for a script that reads it: what its variables hold. */
static vp_status take_variables(vp_shell *s)
{
    vp_status st = VP_OK;

    for (const vp_shell_command *c = s->first; c; c = c->next)
        if (vp_shell_has_options(c))
            return VP_OK;
    for (const vp_shell_variable *v = s->variables; v; v = v->next) {
        vp_shell_maker m = {0};
        if (!v->known)
            continue;
        VP_TRY(open_command(s));
        VP_TRY(v->words ? vp_shell_put_array(s, v, &m, s->open)
                        : vp_shell_put_text(s, &v->text, true, &m, s->open));
        VP_TRY(vp_shell_end_word(s, &m, s->open));
        if (vp_shell_has_options(s->open) && s->open->words[0].text[0] == '-')
            VP_TRY(end_command(s, '\n'));
        s->open = NULL;
    }
out:
    return st;
}

static vp_shell shell_of(vp_arena *arena, const char *name, const char *bytes, int64_t n,
                         vp_err *err)
{
    return (vp_shell){.arena      = arena,
                      .name       = name,
                      .p          = bytes,
                      .end        = bytes + n,
                      .line       = 1,
                      .line_start = bytes,
                      .err        = err};
}

vp_status vp_shell_read(vp_arena *arena, const char *name, const char *bytes, int64_t n,
                        vp_shell_command **first, vp_err *err)
{
    const char *asked;
    vp_shell    s;
    vp_status   st = VP_OK;

    *first = NULL;
    VP_TRY(vp_shell_of_queue(arena, bytes, n, &asked, err));
    s         = shell_of(arena, name, asked, (int64_t)strlen(asked), err);
    s.expands = true;
    VP_TRY(read_commands(&s));
    s.p = s.line_start = bytes, s.end = bytes + n, s.line = 1;
    VP_TRY(read_commands(&s));
    VP_TRY(take_variables(&s));
    *first = s.first;
out:
    return st;
}

vp_status vp_shell_words(vp_arena *arena, const char *name, const char *bytes, int64_t n,
                         vp_shell_command *out, vp_err *err)
{
    vp_shell  s  = shell_of(arena, name, bytes, n, err);
    vp_status st = VP_OK;

    *out = (vp_shell_command){.line = 1};
    for (;;) {
        vp_shell_maker m = {0};
        VP_TRY(skip_blanks(&s, true));
        if (s.p >= s.end)
            break;
        if (vp_shell_ends_a_word(&s, *s.p)) {
            vp_shell_step(&s);
            continue;
        }
        VP_TRY(vp_shell_read_word(&s, &m, out));
        VP_TRY(vp_shell_end_word(&s, &m, out));
    }
out:
    return st;
}
