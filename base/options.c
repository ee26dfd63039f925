#include "base/options.h"

#include "base/units.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- words that were nearly right ---- */

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

int vp_word_distance(const char *a, const char *b)
{
    enum { MAX = 64 };
    int before[MAX + 1] = {0}, last[MAX + 1], row[MAX + 1]; /* rows i - 2, i - 1 and i */
    int n               = (int)strlen(b);

    if (strlen(a) > MAX || n > MAX)
        return 99;
    for (int j = 0; j <= n; j++)
        last[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            row[j] = least(last[j - 1] + (lower(a[i - 1]) != lower(b[j - 1])),
                           least(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                lower(a[i - 2]) == lower(b[j - 1]))
                row[j] = least(row[j], before[j - 2] + 1);
        }
        memcpy(before, last, sizeof before);
        memcpy(last, row, sizeof last);
    }
    return last[n];
}

int vp_word_nearest(const char *word, const char *const *words, int n)
{
    size_t n_letters = strlen(word) - strspn(word, "-");
    int    best      = n_letters < 3 ? 0 : n_letters < 9 ? (int)(n_letters / 3) : 3;
    int    nearest   = -1;

    assert(n >= 0);
    for (int i = 0; i < n; i++) {
        int d = vp_word_distance(word, words[i]);
        if (d <= best && (nearest < 0 || d < best)) {
            best    = d;
            nearest = i;
        }
    }
    return nearest;
}

/* ---- rows ---- */

const vp_option *vp_option_find(const vp_option_set *const *sets, int n_sets, const char *name)
{
    for (int s = 0; s < n_sets; s++)
        for (int i = 0; i < sets[s]->n; i++)
            if (strcmp(sets[s]->rows[i].name, name) == 0)
                return &sets[s]->rows[i];
    return NULL;
}

bool vp_option_word(const vp_option *option, int i, char *buf, size_t buf_size)
{
    const char *words = option->words ? option->words : "";
    int         n     = 0;

    assert(i >= 0 && buf_size > 0);

    for (; option->word_at && option->word_at(n); n++)
        if (n == i) {
            snprintf(buf, buf_size, "%s", option->word_at(n));
            return true;
        }
    for (; *words; n++) {
        size_t length = strcspn(words, "|");
        if (n == i) {
            snprintf(buf, buf_size, "%.*s", (int)length, words);
            return true;
        }
        words += length + (words[length] == '|');
    }
    return false;
}

const char *vp_option_value_text(const vp_option *option, char *buf, size_t buf_size)
{
    char   word[64];
    size_t n = 0;

    buf[0] = '\0';
    if (option->value || option->kind == VP_OPTION_FLAG) {
        snprintf(buf, buf_size, "%s", option->value ? option->value : "");
        return buf;
    }
    assert(option->kind == VP_OPTION_CHOICE); /* every other kind says what its value is called */
    for (int i = 0; vp_option_word(option, i, word, sizeof word) && n < buf_size; i++)
        n += (size_t)snprintf(buf + n, buf_size - n, "%s%s", i ? "|" : "", word);
    return buf;
}

/* ---- parsing ---- */

typedef struct parser {
    const vp_options_spec *spec;
    void *const           *values;
    vp_command_line       *line;
} parser;

enum { MAX_CHOICES = 64 };

/* text among the words of a choice, or which they are and which one is nearest. */
static vp_status check_choice(const vp_option *o, const char *text, vp_err *err)
{
    char        words[MAX_CHOICES][32], shown[64];
    const char *list[MAX_CHOICES], *near;
    vp_text     known = {0};
    int         n     = 0, nearest;
    vp_status   st    = VP_OK;

    if (o->open)
        return VP_OK;
    for (; n < MAX_CHOICES && vp_option_word(o, n, words[n], sizeof words[n]); n++) {
        if (strcmp(words[n], text) == 0)
            goto out;
        list[n] = words[n];
        vp_text_printf(&known, "%s%s", n ? ", " : "", words[n]);
    }
    assert(n > 0 && n < MAX_CHOICES); /* a choice has words, and room was there for all of them */
    VP_TRY_ALLOC(err, !known.failed);
    nearest = vp_word_nearest(text, list, n);
    vp_text_escape(text, shown, sizeof shown);
    if (n == 1)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "%s %s: this version has only %s", o->name, shown,
                       words[0]));
    near = nearest < 0 ? NULL : words[nearest];
    if (o->meant && o->meant(text))
        near = o->meant(text);
    bool says = near && strchr(near, ' ');
    VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "%s %s: one of %s%s%s%s", o->name, shown, known.data,
                   says   ? "; "
                   : near ? "; did you mean "
                          : "",
                   near ? near : "", near && !says ? "?" : ""));
out:
    vp_text_release(&known);
    return st;
}

/* 24 is 24 bytes, by the rule, and hardly what was meant. */
static void note_small_size(const vp_option *o, const char *text, int64_t bytes,
                            vp_command_line *line)
{
    bool bare = text[strspn(text, "0123456789")] == '\0';

    if (bare && bytes < VP_MIB)
        snprintf(line->note, sizeof line->note, "%s %lld means %lld bytes; did you mean %lld%s?",
                 o->name, (long long)bytes, (long long)bytes, (long long)bytes,
                 bytes < 1024 ? "GiB" : "MiB");
}

static vp_status set_value(const vp_option *o, const char *text, char *values,
                           vp_command_line *line, vp_err *err)
{
    void     *at = values + o->at;
    vp_status st = VP_OK;

    assert(text || o->kind == VP_OPTION_FLAG);
    switch (o->kind) {
    case VP_OPTION_FLAG:
        *(bool *)at = true;
        break;
    case VP_OPTION_OUTPUT:
        if (strcmp(text, "-") == 0)
            VP_TRY(VP_FAIL(err, VP_ERR_USAGE,
                           "%s -: what it writes goes to a file, standard output has the answer; "
                           "name a file, like %s %s",
                           o->name, o->name, o->example));
        *(const char **)at = text;
        break;
    case VP_OPTION_CHOICE:
        VP_TRY(check_choice(o, text, err));
        *(const char **)at = text;
        break;
    case VP_OPTION_TEXT:
    case VP_OPTION_INPUT:
        *(const char **)at = text;
        break;
    case VP_OPTION_SIZE:
        VP_TRY(vp_size_parse(text, at, err));
        note_small_size(o, text, *(int64_t *)at, line);
        break;
    case VP_OPTION_AMOUNT:
        VP_TRY(vp_amount_parse(text, at, err));
        if (((vp_amount *)at)->share <= 0)
            note_small_size(o, text, ((vp_amount *)at)->bytes, line);
        break;
    case VP_OPTION_COUNT:
        VP_TRY(
            vp_count_parse(text, o->name, o->min, o->max ? o->max : VP_OPTION_MAX_COUNT, at, err));
        break;
    case VP_OPTION_REAL:
        VP_TRY(vp_real_parse(text, o->name, o->low, o->high != 0 ? o->high : 1e30, at, err));
        break;
    }
out:
    return st;
}

static vp_status unknown_option(const vp_options_spec *spec, const char *name, vp_err *err)
{
    enum { MAX = 128 };
    const char *names[MAX];
    int         n = 0, nearest;
    char        shown[128], hint[400];

    vp_text_escape(name, shown, sizeof shown);
    if (spec->hint && spec->hint(spec->hint_ctx, name, hint, sizeof hint))
        return VP_FAIL(err, VP_ERR_USAGE, "unknown option %s; %s", shown, hint);
    for (int s = 0; s < spec->n_sets; s++)
        for (int i = 0; i < spec->sets[s]->n && n < MAX; i++)
            names[n++] = spec->sets[s]->rows[i].name;
    assert(n < MAX); /* as many options as there are had room */
    nearest = vp_word_nearest(name, names, n);
    if (nearest >= 0)
        return VP_FAIL(err, VP_ERR_USAGE, "unknown option %s; did you mean %s?", shown,
                       names[nearest]);
    return VP_FAIL(err, VP_ERR_USAGE, "unknown option %s", shown);
}

/* Whether a word that follows o is an option itself, and no value of o. */
static bool is_option(const parser *p, const vp_option *o, const char *word)
{
    if (o->any_word && strcmp(word, "--") != 0)
        return false;
    return strncmp(word, "--", 2) == 0 || vp_option_find(p->spec->sets, p->spec->n_sets, word);
}

/* A value that is an option itself was forgotten: "-o --json" is no file "--json". */
static vp_status check_value_word(const parser *p, const vp_option *o, const char *word,
                                  vp_err *err)
{
    char shown[64];

    if (!word)
        return VP_FAIL(err, VP_ERR_USAGE, "%s needs a value", o->name);
    if (!is_option(p, o, word))
        return VP_OK;
    vp_text_escape(word, shown, sizeof shown);
    if (strcmp(word, "--") == 0)
        return VP_FAIL(err, VP_ERR_USAGE, "%s needs a value", o->name);
    return VP_FAIL(err, VP_ERR_USAGE,
                   "%s needs a value, and %s looks like an option; if it is meant, write %s=%s",
                   o->name, shown, o->name, shown);
}

/* "24 GB" without quotes is two words, and the second would be taken for a model. */
static vp_status check_parted_size(const vp_option *o, const char *text, const char *next,
                                   vp_err *err)
{
    char    whole[128];
    int64_t bytes;

    if (!next || strlen(next) < 2 || (o->kind != VP_OPTION_SIZE && o->kind != VP_OPTION_AMOUNT) ||
        strspn(text, "0123456789.") != strlen(text) || strlen(text) >= 64 || strlen(next) >= 64)
        return VP_OK;
    snprintf(whole, sizeof whole, "%s%s", text, next);
    if (strspn(next, "0123456789. ") > 0 || vp_size_parse(whole, &bytes, &(vp_err){0}) != VP_OK)
        return VP_OK;
    return VP_FAIL(err, VP_ERR_USAGE, "%s %s %s: a size is one word, like %s", o->name, text, next,
                   whole);
}

/* The option at argv[*i] and its value; *i moves to the last word of it. */
static vp_status parse_option(const parser *p, int argc, char **argv, int *i, vp_err *err)
{
    vp_command_line *line  = p->line;
    const char      *equal = strchr(argv[*i], '='), *text;
    const vp_option *o     = NULL;
    char             name[128];
    int              set;
    vp_status        st = VP_OK;

    snprintf(name, sizeof name, "%.*s", (int)strcspn(argv[*i], "="), argv[*i]);
    for (set = 0; set < p->spec->n_sets; set++)
        if ((o = vp_option_find(&p->spec->sets[set], 1, name)))
            break;
    if (!o)
        VP_TRY(unknown_option(p->spec, name, err));
    for (int k = 0; k < line->n_given; k++)
        if (line->given[k].option == o && !o->repeats)
            VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "%s is given twice", o->name));
    assert(set < p->spec->n_sets); /* of the set whose struct has its field */
    if (o->kind == VP_OPTION_FLAG) {
        if (equal)
            VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "%s takes no value", o->name));
        text = NULL;
    } else if (equal) {
        text = equal + 1;
    } else if (o->alone && (*i + 1 == argc || is_option(p, o, argv[*i + 1]))) {
        text = o->alone;
    } else {
        text = *i + 1 < argc ? argv[++*i] : NULL;
        VP_TRY(check_value_word(p, o, text, err));
        VP_TRY(check_parted_size(o, text, *i + 1 < argc ? argv[*i + 1] : NULL, err));
    }
    VP_TRY(set_value(o, text, p->values[set], line, err));
    if (line->n_given == VP_MAX_GIVEN)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "more than %d options", VP_MAX_GIVEN));
    line->given[line->n_given].option = o;
    line->given[line->n_given++].text = text;
out:
    return st;
}

/* A word more than there may be: of a command that takes another behind "--", mostly that one without it. */
static vp_status refuse_word(const vp_options_spec *spec, const vp_command_line *line,
                             const char *word, vp_err *err)
{
    char shown[128], first[128], hint[400];

    vp_text_escape(word, shown, sizeof shown);
    vp_text_escape(line->n_words ? line->words[0] : word, first, sizeof first);
    if (spec->word_hint && spec->word_hint(spec->hint_ctx, word, hint, sizeof hint))
        return VP_FAIL(err, VP_ERR_USAGE, "one argument too many: %s; %s", shown, hint);
    return spec->takes_rest ? VP_FAIL(err, VP_ERR_USAGE,
                                      "one argument too many: %s; a command of yours stands behind "
                                      "--, as in: -- %s ...",
                                      shown, first)
                            : VP_FAIL(err, VP_ERR_USAGE, "one argument too many: %s", shown);
}

vp_status vp_options_parse(const vp_options_spec *spec, int argc, char **argv, void *const *values,
                           vp_command_line *line, vp_err *err)
{
    parser    p     = {spec, values, line};
    bool      ended = false;
    vp_status st    = VP_OK;

    assert(spec->max_words <= VP_MAX_WORDS);
    *line = (vp_command_line){0};
    for (int s = 0; s < spec->n_sets; s++)
        for (int k = 0; k < spec->sets[s]->n; k++)
            if (spec->sets[s]->rows[k].preset)
                VP_TRY(set_value(&spec->sets[s]->rows[k], spec->sets[s]->rows[k].preset, values[s],
                                 line, err));
    for (int i = 0; i < argc; i++) {
        if (!ended && strcmp(argv[i], "--") == 0) {
            ended = true;
            if (spec->takes_rest) {
                line->rest = argv + i + 1;
                break;
            }
        } else if (!ended && argv[i][0] == '-' && argv[i][1]) {
            VP_TRY(parse_option(&p, argc, argv, &i, err));
        } else if (line->n_words == spec->max_words) {
            VP_TRY(refuse_word(spec, line, argv[i], err));
        } else {
            assert(line->n_words < VP_MAX_WORDS);
            line->words[line->n_words++] = argv[i];
        }
    }
out:
    return st;
}
