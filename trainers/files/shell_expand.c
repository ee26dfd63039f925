/* trainers/files/shell_expand.c: one word of a script's text as words of its command: quotes, escapes, variables, what commands within
 * it print (POSIX 1003.1, Shell Command Language, 2.6). */
#include "trainers/files/shell_reader.h"

#include "trainers/files/shell_words.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

vp_status vp_shell_no_memory(const vp_shell *s)
{
    return VP_FAIL(s->err, VP_ERR_NOMEM, "out of host memory");
}

vp_status vp_shell_unended(const vp_shell *s, const char *what, int line, int column)
{
    return VP_FAIL_AT(s->err, VP_ERR_INPUT, s->name, line, NULL, "%s that does not end, column %d",
                      what, column);
}

vp_status vp_shell_add_letter(vp_shell *s, vp_shell_piece *t, char c, int line, int column)
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
            return vp_shell_no_memory(s);
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

int vp_shell_column_of(const vp_shell *s)
{
    return s->at_column ? s->at_column[s->p - s->begin] : (int)(s->p - s->line_start) + 1;
}

int vp_shell_line_of(const vp_shell *s)
{
    return s->at_line ? s->at_line[s->p - s->begin] : s->line;
}

void vp_shell_step(vp_shell *s)
{
    if (*s->p++ == '\n') {
        s->line++;
        s->line_start = s->p;
    }
}

bool vp_shell_is_name_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

bool vp_shell_ends_a_word(const vp_shell *s, char c)
{
    return isspace((unsigned char)c) || (c && strchr(s->expands ? ";|&<>()" : ";|&<>", c));
}

/* From an opening bracket to behind the one that closes it; quotes and escapes inside count. */
static vp_status skip_brackets(vp_shell *s, char opens, char closes)
{
    int       line = vp_shell_line_of(s), column = vp_shell_column_of(s), depth = 0;
    char      quote = 0;
    vp_status st    = VP_OK;

    do {
        if (s->p >= s->end)
            VP_TRY(vp_shell_unended(s, "a bracket", line, column));
        char c = *s->p;
        if (c == '\\' && quote != '\'' && s->p + 1 < s->end)
            vp_shell_step(s);
        else if (quote)
            quote = c == quote ? 0 : quote;
        else if (c == '"' || c == '\'')
            quote = c;
        else if (c == opens)
            depth++;
        else if (c == closes)
            depth--;
        vp_shell_step(s);
    } while (depth > 0);
out:
    return st;
}

/* ---- words ---- */

vp_status vp_shell_add_word(vp_shell *s, vp_shell_command *to, vp_shell_word word)
{
    if (!word.text || !vp_arena_grow(s->arena, (void **)&to->words, to->n_words, &to->cap_words,
                                     sizeof *to->words))
        return vp_shell_no_memory(s);
    to->words[to->n_words++] = word;
    return VP_OK;
}

vp_status vp_shell_end_word(vp_shell *s, vp_shell_maker *m, vp_shell_command *to)
{
    vp_status st = VP_OK;

    if (m->started) {
        bool        own    = m->word.n && m->word.text[0] == '-'; /* an option: where it stands */
        int         line   = own ? m->word.line[0] : m->line;
        int         column = own ? m->word.column[0] : m->column;
        const char *text   = m->word.n ? m->word.text : "";
        VP_TRY(vp_shell_add_word(s, to,
                                 (vp_shell_word){.text    = vp_arena_strdup(s->arena, text),
                                                 .quoted  = m->quoted,
                                                 .line    = line,
                                                 .column  = column,
                                                 .lines   = m->word.line,
                                                 .columns = m->word.column}));
    }
    *m = (vp_shell_maker){0};
out:
    return st;
}

vp_status vp_shell_put(vp_shell *s, vp_shell_maker *m, char c, int line, int column)
{
    if (!m->started)
        m->started = true, m->line = line, m->column = column;
    return vp_shell_add_letter(s, &m->word, c, line, column);
}

vp_shell_variable *vp_shell_find_variable(const vp_shell *s, const char *name, size_t n)
{
    for (vp_shell_variable *v = s->variables; v; v = v->next)
        if (strlen(v->name) == n && memcmp(v->name, name, n) == 0)
            return v;
    return NULL;
}

vp_status vp_shell_put_array(vp_shell *s, const vp_shell_variable *v, vp_shell_maker *m,
                             vp_shell_command *to)
{
    vp_status st = VP_OK;

    for (int64_t i = 0; i < v->n_words; i++) {
        const vp_shell_word *w = &v->words[i];
        if (i)
            VP_TRY(vp_shell_end_word(s, m, to));
        if (!m->started)
            m->started = true, m->line = w->line, m->column = w->column;
        /* the quotes of "${A[@]}" are about A's words, not of them */
        m->quoted = w->quoted || (m->quoted && m->word.n);
        for (const char *p = w->text; *p; p++)
            VP_TRY(vp_shell_add_letter(s, &m->word, *p, w->lines ? w->lines[p - w->text] : w->line,
                                       w->columns ? w->columns[p - w->text] : w->column));
    }
out:
    return st;
}

vp_status vp_shell_put_text(vp_shell *s, const vp_shell_piece *t, bool splits, vp_shell_maker *m,
                            vp_shell_command *to)
{
    int64_t   whole = 0;
    vp_status st    = VP_OK;

    for (int64_t i = 0; i < t->n; i++) {
        if (i >= whole)
            whole = i + vp_shell_unknown_letters(t->text, t->n, i);
        if (splits && i >= whole && isspace((unsigned char)t->text[i]))
            VP_TRY(vp_shell_end_word(s, m, to));
        else
            VP_TRY(vp_shell_put(s, m, t->text[i], t->line[i], t->column[i]));
    }
out:
    return st;
}

/* The letters from..p as they stand there: what is not known. */
static vp_status put_raw(vp_shell *s, const char *from, int line, int column, vp_shell_maker *m)
{
    vp_status st = VP_OK;

    for (; from < s->p; from++)
        VP_TRY(vp_shell_put(s, m, *from, line, column));
out:
    return st;
}

static const char *value_of(const void *of, const char *name, size_t n)
{
    const vp_shell          *s = of;
    const vp_shell_variable *v = vp_shell_find_variable(s, name, n);

    return v && v->known && !v->words && v->text.n
               ? vp_arena_printf(s->arena, "%.*s", (int)v->text.n, v->text.text)
               : NULL;
}

/* Text that stands nowhere in the script. */
static vp_status put_made(vp_shell *s, const char *text, int line, int column, vp_shell_maker *m)
{
    vp_status st = VP_OK;

    for (; *text; text++)
        VP_TRY(vp_shell_put(s, m, *text, line, column));
out:
    return st;
}

/* from..p is $(...) or `...` with the command at..end in it: what that prints where the text says it, else itself. */
static vp_status put_output(vp_shell *s, const char *from, const char *at, const char *end,
                            int line, int column, vp_shell_maker *m)
{
    char prints[256];

    if (!vp_shell_prints(at, (size_t)(end - at), value_of, s, prints, sizeof prints))
        return put_raw(s, from, line, column, m);
    return put_made(s, prints, line, column, m);
}

/* from..p is $(...): of $((A * B)) what it comes to, where that is known. */
static vp_status put_sum(vp_shell *s, const char *from, int line, int column, vp_shell_maker *m)
{
    char    text[32];
    int64_t sum;

    if (s->p - from < 6 || from[2] != '(' || s->p[-2] != ')' ||
        !vp_shell_sum(from + 3, (size_t)(s->p - from - 5), value_of, s, &sum))
        return put_output(s, from, from + 2, s->p - 1, line, column, m);
    snprintf(text, sizeof text, "%lld", (long long)sum);
    return put_made(s, text, line, column, m);
}

/* What stands in ${A:-text}, from..s->p - 1, in place of a variable that is not set. */
static vp_status put_otherwise(vp_shell *s, const char *from, bool quoted, vp_shell_maker *m,
                               vp_shell_command *to)
{
    vp_shell  within = *s;
    vp_status st     = VP_OK;

    within.p = from, within.end = s->p - 1;
    while (within.p < within.end) {
        char c = *within.p;
        if (c == '"' || (!quoted && c == '\'')) {
            VP_TRY(vp_shell_read_quoted(&within, m, to));
        } else if (c == '$') {
            VP_TRY(vp_shell_expand(&within, quoted, m, to));
        } else if (c == '`') {
            VP_TRY(vp_shell_read_backquoted(&within, m));
        } else {
            if (!quoted && isspace((unsigned char)c))
                VP_TRY(vp_shell_end_word(&within, m, to));
            else
                VP_TRY(vp_shell_put(&within, m, c, vp_shell_line_of(&within),
                                    vp_shell_column_of(&within)));
            vp_shell_step(&within);
        }
    }
    s->n_expanded = within.n_expanded;
out:
    return st;
}

/* ${#A[@]}: of how many words an array is, where that is known. */
static const char *length_of(const vp_shell *s, const char *name, size_t n)
{
    const vp_shell_variable *v;

    if (n < 5 || name[0] != '#' ||
        (memcmp(name + n - 3, "[@]", 3) && memcmp(name + n - 3, "[*]", 3)))
        return NULL;
    v = vp_shell_find_variable(s, name + 1, n - 4);
    return v && v->known && v->words ? vp_arena_printf(s->arena, "%lld", (long long)v->n_words)
                                     : NULL;
}

/* p stands on a dollar sign. */
vp_status vp_shell_expand(vp_shell *s, bool quoted, vp_shell_maker *m, vp_shell_command *to)
{
    const char *from = s->p, *name, *otherwise = NULL;
    int         line = vp_shell_line_of(s), column = vp_shell_column_of(s);
    size_t      n     = 0;
    bool        plain = true;
    vp_status   st    = VP_OK;

    vp_shell_step(s);
    if (s->p < s->end && *s->p == '(') {
        VP_TRY(skip_brackets(s, '(', ')'));
        return put_sum(s, from, line, column, m);
    }
    bool braces = s->p < s->end && *s->p == '{';
    name        = s->p + braces;
    while (name + n < s->end && vp_shell_is_name_letter(name[n]))
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
            vp_shell_step(s);
    }
    const vp_shell_variable *v     = n && plain ? vp_shell_find_variable(s, name, n) : NULL;
    bool                     empty = v && v->known && !v->words && !v->text.n;
    const char              *made  = braces && !n ? length_of(s, name, (size_t)(s->p - 1 - name))
                                     : !v && plain && n == 3 && !memcmp(name, "PWD", 3) ? "."
                                                                                        : NULL;
    if (otherwise && (!v || empty))
        VP_TRY(put_otherwise(s, otherwise, quoted, m, to));
    else if (v && v->known && v->words)
        VP_TRY(vp_shell_put_array(s, v, m, to));
    else if (v && v->known)
        VP_TRY(vp_shell_put_text(s, &v->text, !quoted, m, to));
    else if (made)
        VP_TRY(put_made(s, made, line, column, m));
    else
        VP_TRY(put_raw(s, from, line, column, m));
out:
    return st;
}

vp_status vp_shell_read_quoted(vp_shell *s, vp_shell_maker *m, vp_shell_command *to)
{
    char      quote = *s->p;
    int       line = vp_shell_line_of(s), column = vp_shell_column_of(s);
    vp_status st = VP_OK;

    if (!m->started)
        m->started = true, m->line = line, m->column = column;
    m->quoted = true;
    for (vp_shell_step(s); s->p < s->end && *s->p != quote;) {
        if (quote == '"' && *s->p == '\\' && s->p + 1 < s->end &&
            (strchr("\"\\`\n", s->p[1]) || s->p[1] == '$')) {
            vp_shell_step(s);
            if (*s->p != '\n')
                VP_TRY(vp_shell_put(s, m, *s->p, vp_shell_line_of(s), vp_shell_column_of(s)));
            vp_shell_step(s);
        } else if (quote == '"' && *s->p == '$' && s->expands) {
            VP_TRY(vp_shell_expand(s, true, m, to));
        } else if (quote == '"' && *s->p == '`' && s->expands) {
            VP_TRY(vp_shell_read_backquoted(s, m));
        } else {
            VP_TRY(vp_shell_put(s, m, *s->p, vp_shell_line_of(s), vp_shell_column_of(s)));
            vp_shell_step(s);
        }
    }
    if (s->p >= s->end)
        VP_TRY(vp_shell_unended(s, "a quote", line, column));
    vp_shell_step(s);
out:
    return st;
}

/* What another command would say: not known. */
vp_status vp_shell_read_backquoted(vp_shell *s, vp_shell_maker *m)
{
    const char *from = s->p;
    int         line = vp_shell_line_of(s), column = vp_shell_column_of(s);
    vp_status   st = VP_OK;

    for (vp_shell_step(s); s->p < s->end && *s->p != '`';)
        vp_shell_step(s);
    if (s->p >= s->end)
        VP_TRY(vp_shell_unended(s, "a quote", line, column));
    vp_shell_step(s);
    VP_TRY(put_output(s, from, from + 1, s->p - 1, line, column, m));
out:
    return st;
}

/* One word of the text, which expands to none, one or several words of the command. */
vp_status vp_shell_read_word(vp_shell *s, vp_shell_maker *m, vp_shell_command *to)
{
    vp_status st = VP_OK;

    while (s->p < s->end && !vp_shell_ends_a_word(s, *s->p)) {
        if (*s->p == '\\' && s->p + 1 == s->end) { /* the line that it goes on with is not there */
            vp_shell_step(s);
        } else if (*s->p == '\\') {
            vp_shell_step(s);
            if (*s->p == '\n' || (*s->p == '\r' && s->p + 1 < s->end && s->p[1] == '\n')) {
                while (*s->p != '\n')
                    vp_shell_step(s);
                vp_shell_step(s);
                continue;
            }
            VP_TRY(vp_shell_put(s, m, *s->p, vp_shell_line_of(s), vp_shell_column_of(s)));
            vp_shell_step(s);
        } else if (*s->p == '"' || *s->p == '\'') {
            VP_TRY(vp_shell_read_quoted(s, m, to));
        } else if (*s->p == '$' && s->expands) {
            VP_TRY(vp_shell_expand(s, false, m, to));
        } else if (*s->p == '`' && s->expands) {
            VP_TRY(vp_shell_read_backquoted(s, m));
        } else {
            VP_TRY(vp_shell_put(s, m, *s->p, vp_shell_line_of(s), vp_shell_column_of(s)));
            vp_shell_step(s);
        }
    }
out:
    return st;
}
