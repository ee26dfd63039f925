/* trainers/files/document_flags.c: the options of a command line, and of each command of a script. A
 * word that still holds a variable is text that nobody knows. */
#include "trainers/files/document.h"

#include "base/text.h"
#include "trainers/files/launch.h"
#include "trainers/files/shell.h"

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
    bool         in_wrapper; /* srun and the like: none of its words is the trainer's */
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
    const char *typed = vp_arena_strdup(t->doc->arena, name);
    VP_TRY_ALLOC(t->err, typed);
    for (char *p = name; *p; p++)
        if (*p == '-')
            *p = '_';
    const vp_value *before = vp_value_member(t->into->root, name);
    if (before && before->kind == VP_VALUE_MAP && !before->text)
        before = NULL;
    if (before && (!line || before->line == line))
        VP_TRY(vp_document_remark(t->doc, line, name, true, t->err,
                                  "--%s stands here twice: argparse takes the last without a word",
                                  vp_text_escape(typed, shown, sizeof shown)));
    else if (before)
        VP_TRY(vp_document_remark(t->doc, line, name, true, t->err,
                                  "--%s stands here and in line %d: argparse takes the last "
                                  "without a word",
                                  vp_text_escape(typed, shown, sizeof shown), before->line));
    /* a.b is a member, as jsonargparse and tyro have it */
    vp_value *v = strchr(name, '.') ? vp_value_make(t->into, name)
                                    : vp_value_add(t->into, t->into->root, name);
    if (!v && !vp_arena_failed(
                  t->doc->arena)) /* --data JSON --data.path x: members of a class that is named */
        v = vp_value_add(t->into, t->into->root, name);
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

/* NAME=VALUE, into a map of a document. */
static vp_status add_pair(taker *t, vp_document *doc, vp_value *map, const char *word, int line,
                          int column)
{
    const char *equals = strchr(word, '=');
    const char *name   = vp_arena_printf(doc->arena, "%.*s", (int)(equals - word), word);
    vp_value   *v;
    vp_status   st = VP_OK;

    VP_TRY_ALLOC(t->err, name);
    v = vp_value_add(doc, map, name);
    if (!v)
        VP_TRY(too_many(t, line));
    v->line = line, v->column = column;
    set_text(t, v, equals + 1, false);
out:
    return st;
}

static vp_status take_variable(taker *t, const char *word, int line, int column)
{
    vp_status st = VP_OK;

    VP_TRY(begin_launch(t));
    VP_TRY(add_pair(t, t->doc->launch, t->doc->launch->root, word, line, column));
out:
    return st;
}

/* NAME=VALUE before a program: of the environment in which it runs. */
static bool is_assignment(const char *word)
{
    const char *p = word;

    while (isalnum((unsigned char)*p) || *p == '_')
        p++;
    return p > word && !isdigit((unsigned char)*word) && *p == '=';
}

/* The same into a map beside the arguments, which is there with its first entry. */
static vp_status take_pair(taker *t, vp_value **map, const char *word, int line, int column)
{
    vp_status st = VP_OK;

    if (!*map)
        *map = vp_arena_alloc(t->doc->arena, sizeof **map);
    VP_TRY_ALLOC(t->err, *map);
    (*map)->kind = VP_VALUE_MAP;
    VP_TRY(add_pair(t, t->doc, *map, word, line, column));
out:
    return st;
}

/* trainer.lr=1, +a=b, model=llama behind a script: what Hydra's read so. */
static bool is_set(const char *word)
{
    const char *p = word + strspn(word, "+~");

    if (!isalpha((unsigned char)*p) && *p != '_')
        return false;
    while (isalnum((unsigned char)*p) || (*p && strchr("_./@-", *p)))
        p++;
    return *p == '=';
}

/* What ran so far was a wrapper of the command that follows. */
static void begin_anew(taker *t)
{
    *t->doc->root   = (vp_value){.kind = VP_VALUE_MAP, .line = 1, .column = 1};
    t->doc->remarks = t->doc->last_remark = NULL;
    t->doc->program                       = NULL;
    t->open                               = NULL;
    t->into                               = t->doc;
    t->in_wrapper                         = false;
}

/* A word of the program's name, its script or its subcommand. */
static vp_status take_program(taker *t, const char *word)
{
    const char *had = t->doc->program;

    if (had && strlen(had) > 400)
        return VP_OK;
    t->doc->program = had ? vp_arena_printf(t->doc->arena, "%s %s", had, word)
                          : vp_arena_strdup(t->doc->arena, word);
    return t->doc->program ? VP_OK : VP_FAIL(t->err, VP_ERR_NOMEM, "out of host memory");
}

/* An option of the launcher's, its value, or the script, with which the launcher's own end. */
static vp_status take_of_launcher(taker *t, char *word, bool quoted, int line, int column)
{
    size_t    n  = strlen(word);
    vp_status st = VP_OK;

    if (word[0] == '-' && word[1] == '-' && isalpha((unsigned char)word[2])) {
        VP_TRY(take_key(t, word, line, column));
        if (t->into->root->last)
            t->into->root->last->is_option = true;
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
        VP_TRY(take_program(t, word));
    }
out:
    return st;
}

static bool is_unknown_words(const char *word)
{
    return word[0] == '$' || word[0] == '`';
}

/* --name or --name=value, in quotes or not: a text with a blank before the equals sign is a value (argparse). */
static bool is_key(const char *word)
{
    if (word[0] != '-' || word[1] != '-' || !isalpha((unsigned char)word[2]))
        return false;
    for (word += 2; isalnum((unsigned char)*word) || (*word && strchr("-_.", *word)); word++)
        ;
    return !*word || *word == '=';
}

/* A variable called so holds options, also behind a switch: --finetune $EXTRA_ARGS. */
static bool is_named_for_options(const char *word)
{
    return is_unknown_words(word) && (strcasestr(word, "arg") || strcasestr(word, "opt"));
}

/* $MORE_ARGS behind the script: options, or nothing. What the command's own caller adds is nobody's gap. */
static vp_status say_unknown(taker *t, const char *word, int line)
{
    const vp_remark *last = t->doc->last_remark;
    char             shown[128];
    vp_status        st = VP_OK;

    if (!t->doc->program || (!t->doc->root->first && !strstr(t->doc->program, ".py")) ||
        strncmp(word, "$@", 2) == 0 || strncmp(word, "$*", 2) == 0 || strcmp(word, "${@}") == 0)
        return VP_OK;
    vp_text_escape(word, shown, sizeof shown);
    if (last && last->is_gap && strlen(last->text) < 200) { /* several are one remark */
        char *more = vp_arena_printf(t->doc->arena, "%s, %s", shown, last->text);
        VP_TRY_ALLOC(t->err, more);
        t->doc->last_remark->text = more;
        return VP_OK;
    }
    VP_TRY(vp_document_remark(t->doc, line, NULL, false, t->err,
                              "%s: the text does not say what stands there; options in it are "
                              "missing from this answer",
                              shown));
    t->doc->last_remark->is_gap = t->doc->has_gap = true;
out:
    return st;
}

/* batch_size=8 behind a program that reads it with OmegaConf, or beside a file of another's, where nobody knows who does. */
static bool is_override(const taker *t, const char *word)
{
    const char *p = word;

    while (isalnum((unsigned char)*p) || *p == '_' || *p == '.')
        p++;
    return p > word && *p == '=' &&
           (vp_launch_takes_overrides(t->doc->program) || vp_launch_names_file(t->doc->program));
}

static vp_status say_others(taker *t, const char *word, int line)
{
    char      shown[128];
    vp_status st = VP_OK;

    VP_TRY(vp_document_remark(t->doc, line, NULL, false, t->err,
                              "%s: what the program makes of it is not known: what it changes in "
                              "the file before it is missing from this answer; written there it "
                              "counts",
                              vp_text_escape(word, shown, sizeof shown)));
    t->doc->last_remark->is_gap = t->doc->has_gap = true;
out:
    return st;
}

static vp_status take_override(taker *t, const char *word, int line, int column)
{
    char *option = vp_arena_printf(t->doc->arena, "--%s", word);

    if (!option)
        return VP_FAIL(t->err, VP_ERR_NOMEM, "out of host memory");
    if (vp_launch_takes_overrides(t->doc->program))
        return take_key(t, option, line, column);
    return say_others(t, word, line);
}

/* -b 8, behind a script: an option of its parser's, whose key keeps its dash. */
static bool is_letter(const taker *t, const char *word)
{
    return word[0] == '-' && isalpha((unsigned char)word[1]) && t->into == t->doc &&
           t->doc->program && strstr(t->doc->program, ".py");
}

static vp_status take_letter(taker *t, const char *word, int line, int column)
{
    vp_value *v  = vp_value_add(t->doc, t->doc->root, word);
    vp_status st = VP_OK;

    if (!v)
        VP_TRY(too_many(t, line));
    v->kind = VP_VALUE_BOOL, v->boolean = true, v->text = "";
    v->line = line, v->column = column, v->is_option = true;
    t->open = v;
out:
    return st;
}

static vp_status take(taker *t, char *word, bool quoted, int line, int column)
{
    vp_status st = VP_OK;

    const char *before = t->before;
    t->before          = word;
    if (t->doc->program && t->into == t->doc && !t->open && is_set(word))
        VP_TRY(take_pair(t, &t->doc->overrides, word, line, column));
    if (is_assignment(word) && (t->in_wrapper || !t->doc->program) && !t->open) {
        VP_TRY(take_pair(t, &t->doc->environment, word, line, column));
        if (!vp_launch_is_variable(word))
            return VP_OK;
    }
    if (t->in_wrapper && (vp_launch_is_program(word) || vp_launch_is_launcher(before, word)))
        begin_anew(t);
    if (t->in_wrapper)
        return vp_launch_is_variable(word) ? take_variable(t, word, line, column) : VP_OK;
    if (strcmp(word, "--") == 0) {
        begin_anew(t);
        return VP_OK;
    }
    if (t->in_launcher)
        return take_of_launcher(t, word, quoted, line, column);
    if (!t->open && vp_launch_is_variable(word))
        return take_variable(t, word, line, column);
    if (!t->open && vp_launch_is_launcher(before, word)) {
        VP_TRY(begin_launch(t));
        t->in_launcher               = true;
        t->doc->launch->has_launcher = true;
        t->into                      = t->doc->launch;
        /* torchrun's default is one, and so is tune run's */
        t->doc->launch->starts_all = !strstr(word, "torch") && strcmp(word, "run") != 0;
        VP_TRY(take_program(t, word));
    } else if (is_key(word)) {
        VP_TRY(take_key(t, word, line, column));
        if (t->into->root->last)
            t->into->root->last->is_option = true;
    } else if (!quoted && is_letter(t, word)) {
        VP_TRY(take_letter(t, word, line, column));
    } else if (is_override(t, word)) {
        VP_TRY(take_override(t, word, line, column));
    } else if (is_named_for_options(word) && t->into == t->doc && t->doc->root->first) {
        VP_TRY(say_unknown(t, word, line));
        t->open = NULL;
    } else if (!quoted && strlen(word) > 3 && strcmp(word + strlen(word) - 3, ".py") == 0 &&
               t->open && (t->open->kind != VP_VALUE_BOOL || t->open->text[0])) {
        t->open = NULL; /* the launcher's options end */
    } else if (!t->open && is_unknown_words(word) && t->doc->program && !strstr(word, ".py")) {
        VP_TRY(say_unknown(t, word, line));
    } else if (!t->open) {
        t->in_wrapper = !t->doc->program && vp_launch_is_wrapper(word);
        VP_TRY(take_program(t, word));
    } else if (is_unknown_words(word) && (t->open->kind != VP_VALUE_BOOL || t->open->text[0])) {
        VP_TRY(say_unknown(t, word, line));
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

/* The words of one command. exported: what the script told all of its commands before. */
static vp_status take_command(vp_document *doc, const vp_shell_command *exported,
                              const vp_shell_command *c, vp_err *err)
{
    taker     t  = {.doc = doc, .into = doc, .err = err};
    vp_status st = VP_OK;

    for (int64_t i = 0; exported && i < exported->n_words; i++) {
        const vp_shell_word *w    = &exported->words[i];
        char                *text = vp_arena_strdup(doc->arena, w->text);
        VP_TRY_ALLOC(err, text);
        VP_TRY(take_pair(&t, &t.doc->environment, text, w->line, w->column));
        if (vp_launch_is_variable(text))
            VP_TRY(take_variable(&t, text, w->line, w->column));
    }
    for (int64_t i = 0; c && i < c->n_words; i++) {
        const vp_shell_word *w = &c->words[i];
        VP_TRY(take(&t, w->text, w->quoted, w->line, w->column));
    }
    VP_TRY(vp_launch_take_handed(doc, err));
    if (doc->launch)
        VP_TRY(vp_launch_settle(doc, err));
out:
    return st;
}

/* export NAME=VALUE: kept for the commands that follow. */
static vp_status keep_exports(vp_document *doc, const vp_shell_command *c, vp_shell_command *to,
                              vp_err *err)
{
    for (int64_t i = 1; i < c->n_words; i++) {
        if (!is_assignment(c->words[i].text))
            continue;
        if (!vp_arena_grow(doc->arena, (void **)&to->words, to->n_words, &to->cap_words,
                           sizeof *to->words))
            return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
        to->words[to->n_words++] = c->words[i];
    }
    return VP_OK;
}

/* Options on a line of their own: the shell takes the first for a program's name. */
static vp_status say_torn(vp_document *doc, const vp_shell_command *c, vp_err *err)
{
    const char *word = c->words[0].text;
    char        shown[128];
    vp_status   st = VP_OK;

    while (*word == '-')
        word++;
    VP_TRY(vp_document_remark(doc, c->words[0].line, word, true, err,
                              "%s begins a command of its own, which the shell does not find: the "
                              "line before does not end in a backslash",
                              vp_text_escape(c->words[0].text, shown, sizeof shown)));
    doc->last_remark->is_torn = true;
out:
    return st;
}

/* A file of Windows: what ends in a backslash goes on with the CR alone, and that is a part of the last word. */
static vp_status say_line_ends(vp_document *doc, const char *bytes, int64_t n, vp_err *err)
{
    const char *end = memchr(bytes, '\n', (size_t)n);

    if (!end || end == bytes || end[-1] != '\r')
        return VP_OK;
    return vp_document_remark(doc, 1, NULL, true, err,
                              "the line ends in CR LF, as Windows has it: bash takes the CR for a "
                              "part of the word before it; sed -i 's/\\r$//' mends it");
}

static bool is_bare(const vp_shell_command *c)
{
    return c->words[0].text[0] == '-';
}

/* python train.py: all that it says stands in its script. */
static bool runs_script(const char *program)
{
    const char *slash = program ? memrchr(program, '/', strcspn(program, " ")) : NULL;
    const char *first = slash ? slash + 1 : program;

    if (!program || strncmp(first, "python", 6) != 0)
        return false;
    for (const char *p = program; *p; p += strcspn(p, " "), p += *p == ' ') {
        size_t n = strcspn(p, " ");
        if (n > 3 && strncmp(p + n - 3, ".py", 3) == 0)
            return true;
    }
    return false;
}

/* Each command with options is a document; they hang together by `next`. */
static vp_status read_script(vp_document *doc, const char *bytes, int64_t n, vp_err *err)
{
    vp_shell_command *c, exported = {0};
    vp_document      *at = NULL, *one;
    vp_status         st = VP_OK;

    VP_TRY(vp_shell_read(doc->arena, doc->name, bytes, n, &c, err));
    for (; c; c = c->next) {
        if (strcmp(c->words[0].text, "export") == 0) {
            VP_TRY(keep_exports(doc, c, &exported, err));
            continue;
        }
        if (c->torn && at && at->program) {
            VP_TRY(say_torn(at, c, err));
            continue;
        }
        if (c->torn && at && is_bare(c)) { /* a list of options, and no command */
            VP_TRY(take_command(at, NULL, c, err));
            continue;
        }
        one = at ? vp_document_new(doc->arena, doc->name, VP_FORMAT_FLAGS) : doc;
        VP_TRY_ALLOC(err, one);
        VP_TRY(take_command(one, &exported, c, err));
        VP_TRY(say_line_ends(one, bytes, n, err));
        one->root->line = c->line;
        if (!one->root->first && !(one->launch && one->program) &&
            !vp_launch_names_file(one->program) &&
            !runs_script(one->program)) { /* mkdir, echo: nothing said */
            if (one == doc) {
                *doc->root  = (vp_value){.kind = VP_VALUE_MAP, .line = 1, .column = 1};
                doc->launch = NULL, doc->program = NULL;
                doc->environment = doc->overrides = NULL;
                doc->remarks = doc->last_remark = NULL;
            }
            continue;
        }
        if (at)
            at->next = one;
        at = one;
    }
    VP_TRY(vp_shell_here(doc->arena, bytes, n, &doc->written, err));
    for (at = doc->next; at; at = at->next)
        at->written = doc->written;
out:
    return st;
}

static bool is_script(const vp_document *doc, const char *bytes, int64_t n)
{
    static const char *const ends[] = {".sh", ".slurm", ".sbatch", ".bash", ".zsh"};
    const char              *end    = strrchr(doc->name, '.');

    for (size_t i = 0; end && i < sizeof ends / sizeof *ends; i++)
        if (strcmp(end, ends[i]) == 0)
            return true;
    return n > 2 && bytes[0] == '#' && bytes[1] == '!';
}

vp_status vp_document_parse_flags(vp_document *doc, const char *bytes, int64_t n, vp_err *err)
{
    vp_shell_command words;
    vp_status        st = VP_OK;

    if (is_script(doc, bytes, n))
        return read_script(doc, bytes, n, err);
    VP_TRY(vp_shell_words(doc->arena, doc->name, bytes, n, &words, err));
    VP_TRY(take_command(doc, NULL, &words, err));
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
    VP_TRY(vp_launch_take_handed(doc, err));
    if (doc->launch)
        VP_TRY(vp_launch_settle(doc, err));
    *out = doc;
out:
    return st;
}
