/* trainers/files/shell.c: words, quotes, variables and commands of a shell script, as far as the text
 * alone says them (POSIX 1003.1, Shell Command Language; arrays as bash has them). */
#include "trainers/files/shell.h"

#include "trainers/files/shell_words.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Text whose every letter knows where it stands. */
typedef struct piece {
    char   *text;
    int    *line, *column;
    int64_t n, cap;
} piece;

typedef struct variable {
    const char      *name;
    bool             known;
    piece            text;  /* of a plain one */
    vp_shell_word   *words; /* of an array; NULL: a plain one */
    int64_t          n_words;
    struct variable *next;
} variable;

typedef struct shell {
    vp_arena         *arena;
    const char       *name;
    const char       *p, *end, *line_start;
    int               line;
    const char       *begin; /* of a command within a command, each of whose letters knows */
    const int        *at_line, *at_column; /* where it stands; NULL: by counting */
    bool              expands;             /* variables; else a list of words */
    variable         *variables;
    vp_shell_command *first, *last, *open; /* open: the one being read */
    int64_t           n_expanded;
    int               depth;        /* of conditions and loops */
    int               n_brackets;   /* of subshells */
    int               n_inside;     /* of commands that commands hold */
    int               in_case;      /* of case ... esac */
    bool              chained;      /* behind && or ||: runs or not */
    bool              skips_a_word; /* behind a redirection */
    char              here[64];     /* where a here-document ends; "": none is open */
    bool              here_tabs;
    vp_err           *err;
} shell;

static vp_status no_memory(const shell *s)
{
    return VP_FAIL(s->err, VP_ERR_NOMEM, "out of host memory");
}

static vp_status unended(const shell *s, const char *what, int line, int column)
{
    return VP_FAIL_AT(s->err, VP_ERR_INPUT, s->name, line, NULL, "%s that does not end, column %d",
                      what, column);
}

static vp_status add_letter(shell *s, piece *t, char c, int line, int column)
{
    if (++s->n_expanded > 4 * VP_SHELL_MAX_BYTES)
        return VP_FAIL_AT(s->err, VP_ERR_INPUT, s->name, line, NULL,
                          "variables that expand to more than 16 MiB");
    if (t->n == t->cap) {
        int64_t cap     = t->cap ? 2 * t->cap : 32;
        char   *text    = vp_arena_alloc(s->arena, (size_t)cap + 1);
        int    *lines   = vp_arena_array(s->arena, cap, sizeof *lines);
        int    *columns = vp_arena_array(s->arena, cap, sizeof *columns);
        if (!text || !lines || !columns)
            return no_memory(s);
        if (t->n) {
            memcpy(text, t->text, (size_t)t->n);
            memcpy(lines, t->line, (size_t)t->n * sizeof *lines);
            memcpy(columns, t->column, (size_t)t->n * sizeof *columns);
        }
        t->text = text, t->line = lines, t->column = columns, t->cap = cap;
    }
    t->text[t->n] = c, t->line[t->n] = line, t->column[t->n] = column;
    t->text[++t->n] = '\0';
    return VP_OK;
}

/* ---- the letters ---- */

static int column_of(const shell *s)
{
    return s->at_column ? s->at_column[s->p - s->begin] : (int)(s->p - s->line_start) + 1;
}

static int line_of(const shell *s)
{
    return s->at_line ? s->at_line[s->p - s->begin] : s->line;
}

static void step(shell *s)
{
    if (*s->p++ == '\n') {
        s->line++;
        s->line_start = s->p;
    }
}

static bool is_name_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool ends_a_word(const shell *s, char c)
{
    return isspace((unsigned char)c) || (c && strchr(s->expands ? ";|&<>()" : ";|&<>", c));
}

/* From an opening bracket to behind the one that closes it; quotes and escapes inside count. */
static vp_status skip_brackets(shell *s, char opens, char closes)
{
    int       line = line_of(s), column = column_of(s), depth = 0;
    char      quote = 0;
    vp_status st    = VP_OK;

    do {
        if (s->p >= s->end)
            VP_TRY(unended(s, "a bracket", line, column));
        char c = *s->p;
        if (c == '\\' && quote != '\'' && s->p + 1 < s->end)
            step(s);
        else if (quote)
            quote = c == quote ? 0 : quote;
        else if (c == '"' || c == '\'')
            quote = c;
        else if (c == opens)
            depth++;
        else if (c == closes)
            depth--;
        step(s);
    } while (depth > 0);
out:
    return st;
}

/* ---- words ---- */

typedef struct maker {
    piece word;
    bool  started, quoted;
    int   line, column;
} maker;

static vp_status add_word(shell *s, vp_shell_command *to, vp_shell_word word)
{
    if (!word.text || !vp_arena_grow(s->arena, (void **)&to->words, to->n_words, &to->cap_words,
                                     sizeof *to->words))
        return no_memory(s);
    to->words[to->n_words++] = word;
    return VP_OK;
}

static vp_status end_word(shell *s, maker *m, vp_shell_command *to)
{
    vp_status st = VP_OK;

    if (m->started) {
        bool        own    = m->word.n && m->word.text[0] == '-'; /* an option: where it stands */
        int         line   = own ? m->word.line[0] : m->line;
        int         column = own ? m->word.column[0] : m->column;
        const char *text   = m->word.n ? m->word.text : "";
        VP_TRY(add_word(s, to,
                        (vp_shell_word){.text    = vp_arena_strdup(s->arena, text),
                                        .quoted  = m->quoted,
                                        .line    = line,
                                        .column  = column,
                                        .lines   = m->word.line,
                                        .columns = m->word.column}));
    }
    *m = (maker){0};
out:
    return st;
}

static vp_status put(shell *s, maker *m, char c, int line, int column)
{
    if (!m->started)
        m->started = true, m->line = line, m->column = column;
    return add_letter(s, &m->word, c, line, column);
}

static variable *find_variable(const shell *s, const char *name, size_t n)
{
    for (variable *v = s->variables; v; v = v->next)
        if (strlen(v->name) == n && memcmp(v->name, name, n) == 0)
            return v;
    return NULL;
}

static vp_status put_array(shell *s, const variable *v, maker *m, vp_shell_command *to)
{
    vp_status st = VP_OK;

    for (int64_t i = 0; i < v->n_words; i++) {
        const vp_shell_word *w = &v->words[i];
        if (i)
            VP_TRY(end_word(s, m, to));
        if (!m->started)
            m->started = true, m->line = w->line, m->column = w->column;
        /* the quotes of "${A[@]}" are about A's words, not of them */
        m->quoted = w->quoted || (m->quoted && m->word.n);
        for (const char *p = w->text; *p; p++)
            VP_TRY(add_letter(s, &m->word, *p, w->lines ? w->lines[p - w->text] : w->line,
                              w->columns ? w->columns[p - w->text] : w->column));
    }
out:
    return st;
}

static vp_status put_text(shell *s, const piece *t, bool splits, maker *m, vp_shell_command *to)
{
    int64_t   whole = 0;
    vp_status st    = VP_OK;

    for (int64_t i = 0; i < t->n; i++) {
        if (i >= whole)
            whole = i + vp_shell_unknown_letters(t->text, t->n, i);
        if (splits && i >= whole && isspace((unsigned char)t->text[i]))
            VP_TRY(end_word(s, m, to));
        else
            VP_TRY(put(s, m, t->text[i], t->line[i], t->column[i]));
    }
out:
    return st;
}

/* The letters from..p as they stand there: what is not known. */
static vp_status put_raw(shell *s, const char *from, int line, int column, maker *m)
{
    vp_status st = VP_OK;

    for (; from < s->p; from++)
        VP_TRY(put(s, m, *from, line, column));
out:
    return st;
}

static const char *value_of(const void *of, const char *name, size_t n)
{
    const shell    *s = of;
    const variable *v = find_variable(s, name, n);

    return v && v->known && !v->words && v->text.n
               ? vp_arena_printf(s->arena, "%.*s", (int)v->text.n, v->text.text)
               : NULL;
}

/* from..p is $(...): of $((A * B)) what it comes to, where that is known. */
static vp_status put_sum(shell *s, const char *from, int line, int column, maker *m)
{
    char      text[32];
    int64_t   sum;
    vp_status st = VP_OK;

    if (s->p - from < 6 || from[2] != '(' || s->p[-2] != ')' ||
        !vp_shell_sum(from + 3, (size_t)(s->p - from - 5), value_of, s, &sum))
        return put_raw(s, from, line, column, m);
    snprintf(text, sizeof text, "%lld", (long long)sum);
    for (const char *p = text; *p; p++)
        VP_TRY(put(s, m, *p, line, column));
out:
    return st;
}

/* p stands on a dollar sign. */
static vp_status expand(shell *s, bool quoted, maker *m, vp_shell_command *to)
{
    const char *from = s->p, *name, *otherwise = NULL;
    int         line = line_of(s), column = column_of(s);
    size_t      n     = 0;
    bool        plain = true;
    vp_status   st    = VP_OK;

    step(s);
    if (s->p < s->end && *s->p == '(') {
        VP_TRY(skip_brackets(s, '(', ')'));
        return put_sum(s, from, line, column, m);
    }
    bool braces = s->p < s->end && *s->p == '{';
    name        = s->p + braces;
    while (name + n < s->end && is_name_letter(name[n]))
        n++;
    if (braces) {
        VP_TRY(skip_brackets(s, '{', '}'));
        const char *rest = name + n;
        size_t      left = (size_t)(s->p - 1 - rest);
        bool        all  = left == 3 && (!memcmp(rest, "[@]", 3) || !memcmp(rest, "[*]", 3));
        if (left >= 2 && (!memcmp(rest, ":-", 2) || !memcmp(rest, ":=", 2)))
            otherwise = rest + 2;
        else if (left && !all)
            plain = false;
    } else {
        while (s->p < name + n)
            step(s);
    }
    const variable *v = n && plain ? find_variable(s, name, n) : NULL;
    if (v && v->known && v->words)
        VP_TRY(put_array(s, v, m, to));
    else if (v && v->known)
        VP_TRY(put_text(s, &v->text, !quoted, m, to));
    else if (otherwise && !v && !memchr(otherwise, '$', (size_t)(s->p - 1 - otherwise)) &&
             !memchr(otherwise, '"', (size_t)(s->p - 1 - otherwise)))
        for (const char *p = otherwise; p < s->p - 1; p++)
            VP_TRY(put(s, m, *p, line, column));
    else
        VP_TRY(put_raw(s, from, line, column, m));
out:
    return st;
}

static vp_status read_quoted(shell *s, maker *m, vp_shell_command *to)
{
    char      quote = *s->p;
    int       line = line_of(s), column = column_of(s);
    vp_status st = VP_OK;

    if (!m->started)
        m->started = true, m->line = line, m->column = column;
    m->quoted = true;
    for (step(s); s->p < s->end && *s->p != quote;) {
        if (quote == '"' && *s->p == '\\' && s->p + 1 < s->end &&
            (strchr("\"\\`\n", s->p[1]) || s->p[1] == '$')) {
            step(s);
            if (*s->p != '\n')
                VP_TRY(put(s, m, *s->p, line_of(s), column_of(s)));
            step(s);
        } else if (quote == '"' && *s->p == '$' && s->expands) {
            VP_TRY(expand(s, true, m, to));
        } else {
            VP_TRY(put(s, m, *s->p, line_of(s), column_of(s)));
            step(s);
        }
    }
    if (s->p >= s->end)
        VP_TRY(unended(s, "a quote", line, column));
    step(s);
out:
    return st;
}

/* What another command would say: not known. */
static vp_status read_backquoted(shell *s, maker *m)
{
    const char *from = s->p;
    int         line = line_of(s), column = column_of(s);
    vp_status   st = VP_OK;

    for (step(s); s->p < s->end && *s->p != '`';)
        step(s);
    if (s->p >= s->end)
        VP_TRY(unended(s, "a quote", line, column));
    step(s);
    VP_TRY(put_raw(s, from, line, column, m));
out:
    return st;
}

/* One word of the text, which expands to none, one or several words of the command. */
static vp_status read_word(shell *s, maker *m, vp_shell_command *to)
{
    vp_status st = VP_OK;

    while (s->p < s->end && !ends_a_word(s, *s->p)) {
        if (*s->p == '\\' && s->p + 1 < s->end) {
            step(s);
            if (*s->p == '\n' || (*s->p == '\r' && s->p + 1 < s->end && s->p[1] == '\n')) {
                while (*s->p != '\n')
                    step(s);
                step(s);
                continue;
            }
            VP_TRY(put(s, m, *s->p, line_of(s), column_of(s)));
            step(s);
        } else if (*s->p == '"' || *s->p == '\'') {
            VP_TRY(read_quoted(s, m, to));
        } else if (*s->p == '$' && s->expands) {
            VP_TRY(expand(s, false, m, to));
        } else if (*s->p == '`' && s->expands) {
            VP_TRY(read_backquoted(s, m));
        } else {
            VP_TRY(put(s, m, *s->p, line_of(s), column_of(s)));
            step(s);
        }
    }
out:
    return st;
}

/* ---- commands ---- */

/* Words that stand before a command and are none of it; they open and close conditions. */
static bool take_reserved(shell *s, const char *word)
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

static vp_status open_command(shell *s)
{
    if (!s->open) {
        s->open = vp_arena_alloc(s->arena, sizeof *s->open);
        if (!s->open)
            return no_memory(s);
        *s->open = (vp_shell_command){.line = line_of(s)};
    }
    return VP_OK;
}

static void keep_command(shell *s, vp_shell_command *c, bool torn)
{
    c->torn                                 = torn;
    *(s->last ? &s->last->next : &s->first) = c;
    s->last                                 = c;
}

static vp_status read_commands(shell *s);

/* The commands in words from..to of c, each behind c's words before n_before: srun, variables. *kept: there was one. */
static vp_status read_inside(shell *s, const vp_shell_command *c, int64_t from, int64_t to,
                             int64_t n_before, bool *kept)
{
    piece            text   = {0};
    vp_err           inner  = {0};
    shell            within = *s;
    vp_shell_command all;
    vp_status        st = VP_OK;

    *kept = false;
    for (int64_t i = from; i < to; i++) {
        const vp_shell_word *w = &c->words[i];
        for (const char *p = w->text; *p; p++)
            VP_TRY(add_letter(s, &text, *p, w->lines ? w->lines[p - w->text] : w->line,
                              w->columns ? w->columns[p - w->text] : w->column));
        VP_TRY(add_letter(s, &text, i + 1 < to ? ' ' : '\n', w->line, w->column));
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
            VP_TRY(add_word(s, &all, c->words[i]));
        for (int64_t i = 0; i < one->n_words; i++)
            VP_TRY(add_word(s, &all, one->words[i]));
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
static vp_status end_command(shell *s, char by)
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
static bool is_assignment(const shell *s, size_t *n, bool *adds)
{
    *n = 0;
    while (s->p + *n < s->end && is_name_letter(s->p[*n]))
        ++*n;
    if (!*n || isdigit((unsigned char)*s->p) || s->p + *n >= s->end)
        return false;
    *adds = s->p[*n] == '+' && s->p + *n + 1 < s->end && s->p[*n + 1] == '=';
    return *adds || s->p[*n] == '=';
}

static vp_status skip_blanks(shell *s, bool lines)
{
    while (s->p < s->end) {
        if (*s->p == '#') {
            while (s->p < s->end && *s->p != '\n')
                step(s);
        } else if (*s->p == '\\' && s->p + 1 < s->end && s->p[1] == '\n') {
            step(s);
            step(s);
        } else if (isspace((unsigned char)*s->p) && (lines || *s->p != '\n')) {
            step(s);
        } else {
            break;
        }
    }
    return VP_OK;
}

/* NAME=( words ): p stands behind the opening bracket. */
static vp_status read_array(shell *s, vp_shell_command *words, int line, int column)
{
    vp_status st = VP_OK;

    for (;;) {
        maker m = {0};
        VP_TRY(skip_blanks(s, true));
        if (s->p >= s->end)
            VP_TRY(unended(s, "a bracket", line, column));
        if (*s->p == ')')
            break;
        if (ends_a_word(s, *s->p)) { /* an operator has no place here */
            step(s);
            continue;
        }
        VP_TRY(read_word(s, &m, words));
        VP_TRY(end_word(s, &m, words));
    }
    step(s);
out:
    return st;
}

/* A value is text, with the quotes taken off and nothing split. */
static vp_status read_value(shell *s, piece *out, bool *known)
{
    vp_shell_command whole = {0};
    maker            m     = {0};
    vp_status        st    = VP_OK;

    while (s->p < s->end && !ends_a_word(s, *s->p)) {
        if (*s->p == '$') {
            VP_TRY(expand(s, true, &m, &whole));
        } else if (*s->p == '`') {
            VP_TRY(read_backquoted(s, &m));
        } else if (*s->p == '\\' && s->p + 1 < s->end) {
            step(s);
            if (*s->p != '\n')
                VP_TRY(put(s, &m, *s->p, line_of(s), column_of(s)));
            step(s);
        } else if (*s->p == '"' || *s->p == '\'') {
            VP_TRY(read_quoted(s, &m, &whole));
        } else {
            VP_TRY(put(s, &m, *s->p, line_of(s), column_of(s)));
            step(s);
        }
    }
    *known = !whole.n_words; /* an array as text has no one meaning here */
    *out   = m.word;
out:
    return st;
}

static vp_status set_variable(shell *s, const char *name, size_t n, bool adds, variable value)
{
    variable *v  = find_variable(s, name, n);
    vp_status st = VP_OK;

    value.known = value.known && !s->depth && !s->chained;
    if (!v) {
        char *own = vp_arena_alloc(s->arena, n + 1);
        v         = vp_arena_alloc(s->arena, sizeof *v);
        if (!v || !own)
            return no_memory(s);
        memcpy(own, name, n);
        *v           = (variable){.name = own, .known = !adds, .next = s->variables};
        s->variables = v;
        adds         = false;
    }
    if (adds && v->known && value.known && v->words && value.words) {
        vp_shell_command all = {0};
        for (int64_t i = 0; i < v->n_words + value.n_words; i++) {
            const vp_shell_word *w = i < v->n_words ? &v->words[i] : &value.words[i - v->n_words];
            VP_TRY(add_word(s, &all, *w));
        }
        v->words = all.words, v->n_words = all.n_words;
    } else if (adds && v->known && value.known && !v->words && !value.words) {
        for (int64_t i = 0; i < value.text.n; i++)
            VP_TRY(add_letter(s, &v->text, value.text.text[i], value.text.line[i],
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
static vp_status read_assignment(shell *s, size_t n, bool adds)
{
    static vp_shell_word none = {0};
    const char          *name = s->p;
    int                  line = line_of(s), column = column_of(s);
    variable             value = {.known = true};
    vp_shell_command     words = {0};
    maker                m     = {0};
    vp_status            st    = VP_OK;

    while (s->p < name + n + 1 + adds)
        step(s);
    if (s->p < s->end && *s->p == '(') {
        step(s);
        VP_TRY(read_array(s, &words, line, column));
        value.words = words.words ? words.words : &none, value.n_words = words.n_words;
        VP_TRY(set_variable(s, name, n, adds, value));
        return VP_OK;
    }
    VP_TRY(read_value(s, &value.text, &value.known));
    VP_TRY(set_variable(s, name, n, adds, value));
    for (const char *p = name; p < name + n; p++)
        VP_TRY(put(s, &m, *p, line, column));
    VP_TRY(put(s, &m, '=', line, column));
    for (int64_t i = 0; i < value.text.n; i++)
        VP_TRY(put(s, &m, value.text.text[i], line, column));
    VP_TRY(open_command(s));
    VP_TRY(end_word(s, &m, s->open));
out:
    return st;
}

/* Whether only assignments stand in the command so far. */
static bool may_assign(const shell *s)
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

static void begin_redirection(shell *s)
{
    bool here = s->end - s->p > 2 && s->p[0] == '<' && s->p[1] == '<' && s->p[2] != '<';

    while (s->p < s->end && *s->p && strchr("<>&|", *s->p))
        step(s);
    s->here_tabs = here && s->p < s->end && *s->p == '-';
    if (s->here_tabs)
        step(s);
    s->here[0]      = here ? '?' : '\0';
    s->here[1]      = '\0';
    s->skips_a_word = true;
}

/* The lines of a here-document, up to the one that ends it: they are no commands. */
static void skip_here(shell *s)
{
    size_t n = strlen(s->here);

    while (s->p < s->end) {
        const char *line = s->p;
        while (line < s->end && s->here_tabs && *line == '\t')
            line++;
        bool last = (size_t)(s->end - line) >= n && memcmp(line, s->here, n) == 0 &&
                    (line + n == s->end || line[n] == '\n' || line[n] == '\r');
        while (s->p < s->end && *s->p != '\n')
            step(s);
        if (s->p < s->end)
            step(s);
        if (last)
            break;
    }
    s->here[0] = '\0';
}

static vp_status take_operator(shell *s)
{
    char      c  = *s->p;
    vp_status st = VP_OK;

    if (c == '<' || c == '>') {
        begin_redirection(s);
        return VP_OK;
    }
    if (c == '&' && s->p + 1 < s->end && s->p[1] == '>') { /* &>file */
        step(s);
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
    step(s);
    if (twice)
        step(s);
    if (c == '\n' && s->here[0])
        skip_here(s);
out:
    return st;
}

static vp_status take_word(shell *s)
{
    vp_shell_command aside = {0}, *to = s->skips_a_word ? &aside : s->open;
    maker            m = {0};
    int64_t          before;
    vp_status        st = VP_OK;

    before = to->n_words;
    VP_TRY(read_word(s, &m, to));
    bool number = s->p < s->end && (*s->p == '>' || *s->p == '<') && m.word.n == 1 && !m.quoted &&
                  isdigit((unsigned char)m.word.text[0]);
    if (!number) /* 2>file */
        VP_TRY(end_word(s, &m, to));
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

static vp_status read_commands(shell *s)
{
    size_t    n;
    bool      adds;
    vp_status st = VP_OK;

    while (s->p < s->end) {
        VP_TRY(skip_blanks(s, false));
        if (s->p >= s->end)
            break;
        if (*s->p == '\n' || ends_a_word(s, *s->p)) {
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
static vp_status take_variables(shell *s)
{
    vp_status st = VP_OK;

    for (const vp_shell_command *c = s->first; c; c = c->next)
        if (vp_shell_has_options(c))
            return VP_OK;
    for (const variable *v = s->variables; v; v = v->next) {
        maker m = {0};
        if (!v->known)
            continue;
        VP_TRY(open_command(s));
        VP_TRY(v->words ? put_array(s, v, &m, s->open) : put_text(s, &v->text, true, &m, s->open));
        VP_TRY(end_word(s, &m, s->open));
        if (vp_shell_has_options(s->open) && s->open->words[0].text[0] == '-')
            VP_TRY(end_command(s, '\n'));
        s->open = NULL;
    }
out:
    return st;
}

static shell shell_of(vp_arena *arena, const char *name, const char *bytes, int64_t n, vp_err *err)
{
    return (shell){.arena      = arena,
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
    shell       s;
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
    shell     s  = shell_of(arena, name, bytes, n, err);
    vp_status st = VP_OK;

    *out = (vp_shell_command){.line = 1};
    for (;;) {
        maker m = {0};
        VP_TRY(skip_blanks(&s, true));
        if (s.p >= s.end)
            break;
        if (ends_a_word(&s, *s.p)) {
            step(&s);
            continue;
        }
        VP_TRY(read_word(&s, &m, out));
        VP_TRY(end_word(&s, &m, out));
    }
out:
    return st;
}
