/* trainers/files/document_flags.c: the words of a command line, as a shell splits them. Variables
 * and commands are not expanded: a word that holds one is text that nobody knows. */
#include "trainers/files/document.h"

#include "base/text.h"
#include "trainers/files/launch.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Words that begin with two dashes are keys: with "=" or the next words as their value. */
typedef struct taker {
    vp_document *doc;
    vp_document *into; /* doc, or what stands before its script */
    vp_value    *open; /* the key that waits for its value */
    const char  *before;
    bool         in_launcher;
    vp_err      *err;
} taker;

static vp_status too_many(const taker *t, int line)
{
    if (vp_arena_failed(t->doc->arena))
        return VP_FAIL(t->err, VP_ERR_NOMEM, "out of host memory");
    return VP_FAIL_AT(t->err, VP_ERR_INPUT, t->doc->name, line, NULL, "more than 100,000 values");
}

/* {"use_reentrant": false} in one word: the arguments of transformers are read so. */
static bool set_json(taker *t, vp_value *v, const char *text)
{
    vp_document *inner  = NULL;
    vp_err       ignore = {0};

    if (text[0] != '{' ||
        vp_document_parse(t->doc->arena, t->doc->name, text, (int64_t)strlen(text), VP_FORMAT_JSON,
                          &inner, &ignore) != VP_OK)
        return false;
    v->kind = VP_VALUE_MAP, v->first = inner->root->first, v->last = inner->root->last;
    v->n_children = inner->root->n_children, v->index = inner->root->index;
    for (vp_value *m = v->first; m; m = m->next)
        m->line = v->line, m->column = v->column;
    return true;
}

static void set_text(taker *t, vp_value *v, const char *text, bool quoted)
{
    v->text   = text;
    v->quoted = false;
    if (set_json(t, v, text))
        return;
    vp_value_resolve(v);
    if (v->kind == VP_VALUE_STRING && text[0]) { /* argparse: float() takes 2e-5 */
        char *end;
        v->real = strtod(text, &end);
        if (!*end && strspn(text, "+-.0123456789eE") == strlen(text))
            v->kind = VP_VALUE_REAL;
    }
    v->quoted = quoted;
}

static vp_status take_key(taker *t, char *word, int line, int column)
{
    char     *equals = strchr(word, '=');
    char      shown[128];
    char     *name = word + 2;
    vp_status st   = VP_OK;

    if (equals)
        *equals = '\0';
    for (char *p = name; *p; p++)
        if (*p == '-')
            *p = '_';
    const vp_value *before = vp_value_member(t->into->root, name);
    if (before)
        VP_TRY(vp_document_remark(t->doc, line, name, true, t->err,
                                  "--%s stands here and in line %d: argparse takes the last "
                                  "without a word",
                                  vp_text_escape(name, shown, sizeof shown), before->line));
    /* a.b is a member, as jsonargparse and tyro have it */
    vp_value *v = strchr(name, '.') ? vp_value_make(t->into, name)
                                    : vp_value_add(t->into, t->into->root, name);
    if (!v)
        VP_TRY(too_many(t, line));
    v->kind = VP_VALUE_BOOL, v->boolean = true, v->text = "";
    v->line = line, v->column = column;
    t->open = v;
    if (equals) {
        set_text(t, v, equals + 1, false);
        t->open = NULL;
    }
out:
    return st;
}

/* What a launcher and the environment say goes to a document of its own. */
static vp_status begin_launch(taker *t)
{
    if (!t->doc->launch)
        t->doc->launch = vp_document_new(t->doc->arena, t->doc->name, VP_FORMAT_FLAGS);
    return t->doc->launch ? VP_OK : VP_FAIL(t->err, VP_ERR_NOMEM, "out of host memory");
}

static vp_status take_variable(taker *t, char *word, int line, int column)
{
    char     *equals = strchr(word, '=');
    vp_value *v;
    vp_status st = VP_OK;

    VP_TRY(begin_launch(t));
    *equals = '\0';
    v       = vp_value_add(t->doc->launch, t->doc->launch->root, word);
    if (!v)
        VP_TRY(too_many(t, line));
    v->line = line, v->column = column;
    set_text(t, v, equals + 1, false);
out:
    return st;
}

/* An option of the launcher's, its value, or the script, with which the launcher's own end. */
static vp_status take_of_launcher(taker *t, char *word, bool quoted, int line, int column)
{
    size_t    n  = strlen(word);
    vp_status st = VP_OK;

    if (word[0] == '-' && word[1] == '-' && isalpha((unsigned char)word[2])) {
        VP_TRY(take_key(t, word, line, column));
        if (t->open && vp_launch_is_switch(t->open->key))
            t->open = NULL;
    } else if (word[0] == '-' && !isdigit((unsigned char)word[1])) {
        t->open = NULL; /* -m: the next word is the script; -q */
    } else if (t->open && !(n > 3 && strcmp(word + n - 3, ".py") == 0)) {
        set_text(t, t->open, word, quoted);
        t->open = NULL;
    } else {
        t->in_launcher = false;
        t->into        = t->doc;
        t->open        = NULL;
    }
out:
    return st;
}

static vp_status take(taker *t, char *word, bool quoted, int line, int column)
{
    vp_status st = VP_OK;

    const char *before = t->before;
    t->before          = word;
    if (t->in_launcher)
        return take_of_launcher(t, word, quoted, line, column);
    if (!t->open && vp_launch_is_variable(word))
        return take_variable(t, word, line, column);
    if (!t->open && vp_launch_is_launcher(before, word)) {
        VP_TRY(begin_launch(t));
        t->in_launcher             = true;
        t->into                    = t->doc->launch;
        t->doc->launch->starts_all = !strstr(word, "torch"); /* torchrun's default is one */
    } else if (word[0] == '-' && word[1] == '-' && isalpha((unsigned char)word[2]) && !quoted) {
        VP_TRY(take_key(t, word, line, column));
    } else if (!quoted && strlen(word) > 3 && strcmp(word + strlen(word) - 3, ".py") == 0 &&
               t->open && (t->open->kind != VP_VALUE_BOOL || t->open->text[0])) {
        t->open = NULL; /* the launcher's options end */
    } else if (!t->open) {
        /* the program, its script: no key */
    } else if (t->open->kind == VP_VALUE_BOOL && !t->open->text[0]) {
        set_text(t, t->open, word, quoted);
    } else { /* a second value: a list */
        if (t->open->kind != VP_VALUE_LIST) {
            vp_value  first = *t->open;
            vp_value *v;
            t->open->kind = VP_VALUE_LIST;
            v             = vp_value_add(t->doc, t->open, NULL);
            if (!v)
                VP_TRY(too_many(t, line));
            first.key = NULL, first.next = NULL;
            *v = first;
        }
        vp_value *v = vp_value_add(t->doc, t->open, NULL);
        if (!v)
            VP_TRY(too_many(t, line));
        v->line = line, v->column = column;
        set_text(t, v, word, quoted);
    }
out:
    return st;
}

static bool ends_a_word(char c)
{
    return isspace((unsigned char)c) || (c && strchr(";|&<>", c));
}

vp_status vp_document_parse_flags(vp_document *doc, const char *bytes, int64_t n, vp_err *err)
{
    taker       t = {.doc = doc, .into = doc, .err = err};
    const char *p = bytes, *end = bytes + n, *line_start = bytes;
    int         line = 1;
    vp_status   st   = VP_OK;

    while (p < end) {
        if (*p == '\n') {
            line++;
            line_start = ++p;
            continue;
        }
        if (*p == '\\' && p + 1 < end && p[1] == '\n') {
            line++;
            line_start = p += 2;
            continue;
        }
        if (ends_a_word(*p)) {
            p++;
            continue;
        }
        if (*p == '#') {
            while (p < end && *p != '\n')
                p++;
            continue;
        }
        int    at_line = line, column = (int)(p - line_start) + 1;
        bool   quoted = false;
        size_t m      = 0;
        /* a quoted word may span lines: find its end first */
        const char *q     = p;
        char        quote = 0;
        while (q < end && (quote || !ends_a_word(*q))) {
            if (*q == '\\' && quote != '\'' && q + 1 < end)
                q++;
            else if (quote && *q == quote)
                quote = 0;
            else if (!quote && (*q == '"' || *q == '\''))
                quote = *q;
            q++;
        }
        if (quote)
            VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, doc->name, line, NULL,
                              "a quote that does not end, column %d", column));
        char *word = vp_arena_alloc(doc->arena, (size_t)(q - p) + 1);
        VP_TRY_ALLOC(err, word);
        for (quote = 0; p < q; p++) {
            if (*p == '\n')
                line++, line_start = p + 1;
            if (*p == '\\' && quote != '\'' && p + 1 < q) {
                if (p[1] == '\n')
                    line++, line_start = p + 2;
                else
                    word[m++] = p[1];
                p++;
            } else if (quote && *p == quote) {
                quote = 0;
            } else if (!quote && (*p == '"' || *p == '\'')) {
                quote  = *p;
                quoted = true;
            } else {
                word[m++] = *p;
            }
        }
        VP_TRY(take(&t, word, quoted, at_line, column));
    }
    if (doc->launch)
        VP_TRY(vp_launch_settle(doc->launch, err));
out:
    return st;
}

vp_status vp_document_of_words(vp_arena *arena, const char *name, const char *const *words,
                               int64_t n, vp_document **out, vp_err *err)
{
    vp_document *doc = vp_document_new(arena, name, VP_FORMAT_FLAGS);
    taker        t   = {.doc = doc, .into = doc, .err = err};
    vp_status    st  = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, doc);
    for (int64_t i = 0; i < n; i++) {
        char *word = vp_arena_strdup(arena, words[i]);
        VP_TRY_ALLOC(err, word);
        VP_TRY(take(&t, word, false, 0, 0));
    }
    if (doc->launch)
        VP_TRY(vp_launch_settle(doc->launch, err));
    *out = doc;
out:
    return st;
}
