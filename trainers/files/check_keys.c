/* trainers/files/check_keys.c: one file by its dialect's tables: keys that are not known, gone or not
 * there yet, values that are not what they look like, and rules between two keys. */
#include "base/options.h"
#include "base/text.h"
#include "trainers/files/check_internal.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *vp_value_text(const vp_value *v, char *buf, size_t buf_size)
{
    buf[0] = '\0';
    if (v->kind == VP_VALUE_BOOL) {
        snprintf(buf, buf_size, "%s", v->boolean ? "true" : "false");
    } else if (v->kind == VP_VALUE_NULL) {
        snprintf(buf, buf_size, "null");
    } else if (v->kind == VP_VALUE_LIST) {
        size_t n = 0;
        for (const vp_value *e = v->first; e && n + 1 < buf_size; e = e->next) {
            n += (size_t)snprintf(buf + n, buf_size - n, "%s%s", n ? "+" : "",
                                  e->text ? e->text : "");
        }
    } else if (v->kind == VP_VALUE_MAP) {
        snprintf(buf, buf_size, "%s", v->call ? v->call : "{...}");
    } else {
        snprintf(buf, buf_size, "%s", v->text ? v->text : "");
    }
    return buf;
}

static bool to_number(const char *text, double *x)
{
    char *end;

    if (!text[0] || strspn(text, "+-.0123456789eE_") != strlen(text))
        return false;
    *x = strtod(text, &end);
    return !*end;
}

bool vp_same_value(const char *a, const char *b)
{
    double x, y;

    if (to_number(a, &x) && to_number(b, &y))
        return x == y;
    if (strcasecmp(a, b) == 0 && (strcasecmp(a, "true") == 0 || strcasecmp(a, "false") == 0))
        return true;
    return strcmp(a, b) == 0;
}

const char *vp_file_version(const vp_checked *c, const vp_checked_file *file, const vp_dialect *d)
{
    return file->version && d == file->dialect ? file->version
                                               : vp_dialect_version(d, file->dialect, c->versions);
}

const vp_key *vp_file_key(const vp_checked *c, const vp_checked_file *file, const char *path,
                          const char **version)
{
    for (const vp_dialect *d = file->dialect; d; d = d->base)
        for (int i = 0; i < d->n_keys; i++)
            if (strcmp(d->keys[i].path, path) == 0) {
                if (version)
                    *version = vp_file_version(c, file, d);
                return &d->keys[i];
            }
    return NULL;
}

/* Whether text is one of words, "a|b|c". */
static bool among(const char *words, const char *text, bool any_case)
{
    while (*words) {
        size_t n = strcspn(words, "|");
        if (strlen(text) == n &&
            (any_case ? strncasecmp(words, text, n) : strncmp(words, text, n)) == 0)
            return true;
        words += n + (words[n] == '|');
    }
    return false;
}

/* What stands in a file that is named in its place is not left out. */
static bool is_in_another_file(const vp_value *root, const char *path)
{
    const char     *dot = strrchr(path, '.');
    char            above[256];
    const vp_value *v;

    snprintf(above, sizeof above, "%.*s", dot ? (int)(dot - path) : 0, path);
    v = vp_value_at(root, above);
    return v && v->kind == VP_VALUE_STRING;
}

bool vp_key_is_elsewhere(const vp_checked_file *file, const vp_key *k)
{
    return k && k->elsewhere && file->doc->format == VP_FORMAT_PYTHON;
}

/* Whether a key's default is that of a map which is not there. */
static bool is_without_map(const vp_checked_file *file, const vp_key *k)
{
    const char *dot = k->within ? strrchr(k->path, '.') : NULL;
    char        map[128];

    if (!dot)
        return false;
    snprintf(map, sizeof map, "%.*s", (int)(dot - k->path), k->path);
    return !vp_is_there(vp_value_at(file->doc->root, map));
}

const char *vp_effective(const vp_checked *c, const vp_checked_file *file, const char *path,
                         char *buf, size_t buf_size)
{
    const vp_value *v = vp_value_at(file->doc->root, path);
    const vp_key   *k;
    const char     *version;

    if (v && v->kind != VP_VALUE_NULL)
        return vp_value_text(v, buf, buf_size);
    k = vp_file_key(c, file, path, &version);
    if (v && k && k->words && among(k->words, "null", false))
        return vp_value_text(v, buf, buf_size);
    if (!k || !k->otherwise || file->doc->has_gap || vp_key_is_elsewhere(file, k) ||
        is_in_another_file(file->doc->root, path) || is_without_map(file, k))
        return NULL;
    if (k->was && vp_version_compare(version, k->changed) < 0) {
        snprintf(buf, buf_size, "%s", k->was);
        return buf;
    }
    if (!vp_version_within(version, k->since, k->until))
        return NULL;
    if (isdigit((unsigned char)k->otherwise[0]) && k->otherwise[1] == '*') {
        const char *one = vp_effective(c, file, k->otherwise + 2, buf, buf_size);
        if (one)
            snprintf(buf, buf_size, "%lld", (k->otherwise[0] - '0') * strtoll(one, NULL, 10));
        return one ? buf : NULL;
    }
    if (k->otherwise[0] == '!') {
        const char *one = vp_effective(c, file, k->otherwise + 1, buf, buf_size);
        return one ? (strcmp(one, "true") == 0 ? "false" : "true") : NULL;
    }
    snprintf(buf, buf_size, "%s", k->otherwise);
    return buf;
}

/* ---- values ---- */

/* Whether the key's parser makes of a text what it says. */
static bool reads_text(const vp_checked *c, const vp_checked_file *file, const vp_key *k)
{
    const char *version = file->dialect->version;

    if (file->dialect->text_is_number && file->doc->format != VP_FORMAT_PYTHON)
        return true;
    if (!k->reads_text)
        return false;
    vp_file_key(c, file, k->path, &version);
    return vp_version_compare(version, k->reads_text) >= 0;
}

/* Whether its own program reads it as options of HfArgumentParser's. */
static bool is_of_argparse(const vp_checked_file *file)
{
    return file->doc->format == VP_FORMAT_FLAGS && vp_check_is_run(file) &&
           (file->dialect->refuses || file->dialect->refused_by || file->dialect->flags);
}

static bool is_of_jsonargparse(const vp_checked_file *file)
{
    return file->dialect->exponents && file->dialect->text_is_number &&
           file->doc->format == VP_FORMAT_YAML;
}

static void check_number(vp_checked *c, const vp_checked_file *file, const vp_key *k,
                         const vp_value *v)
{
    char   text[128], shown[256], better[64];
    double x     = v->real;
    bool   whole = k->type == VP_KEY_INT;

    vp_value_text(v, text, sizeof text);
    vp_text_escape(text, shown, sizeof shown);
    if (v->kind == VP_VALUE_BOOL && file->dialect->bool_is_number) {
        vp_find(c, file, VP_NOTE, v, k->path, NULL, "%s is read as the number %d", shown,
                (int)v->boolean);
        return;
    }
    if (v->kind != VP_VALUE_INT && v->kind != VP_VALUE_REAL) {
        if (v->kind != VP_VALUE_STRING || !to_number(text, &x)) {
            vp_find(c, file, VP_ERROR, v, k->path, NULL, "%s is no %s", shown,
                    whole ? "whole number" : "number");
            return;
        }
        if (strspn(text, "0123456789") == strlen(text) && strlen(text) > 15) {
            vp_find(c, file, VP_ERROR, v, k->path, NULL, "%s: a number of %zu digits", shown,
                    strlen(text));
            return;
        }
        snprintf(better, sizeof better, whole ? "%.0f" : strchr(text, '.') ? "%.15g" : "%.1e", x);
        bool plain   = file->dialect->exponents && !v->quoted;
        bool is_read = reads_text(c, file, k) || plain;
        if (reads_text(c, file, k) && !plain)
            vp_find(c, file, VP_NOTE, v, k->path, better,
                    "%s is text here; its parser makes a number of it", shown);
        else if (v->quoted)
            vp_find(c, file, VP_ERROR, v, k->path, better, "\"%s\" is text, not a number", shown);
        else if (!is_read)
            vp_find(c, file, VP_ERROR, v, k->path, better,
                    "%s is text in YAML 1.1, which wants a dot and a sign in it", shown);
        if (!is_read)
            return;
    }
    if (whole && x != floor(x)) {
        vp_find(c, file, VP_ERROR, v, k->path, NULL, "%s is no whole number", shown);
        return;
    }
    bool is_real = v->kind == VP_VALUE_REAL ||
                   (v->kind == VP_VALUE_STRING && !v->quoted && strpbrk(text, ".eE"));
    /* int() of Python takes no 4.0 and no 1e3 */
    bool is_text = v->kind == VP_VALUE_STRING && reads_text(c, file, k) &&
                   !file->dialect->bool_is_number && strpbrk(text, ".eE");
    is_real = is_real || is_text;
    bool is_taken =
        file->dialect->bool_is_number || (file->dialect->maps_take_reals && strchr(k->path, '.'));
    if (whole && is_real && !is_taken && x > 0 && x < 1e12) {
        snprintf(better, sizeof better, "%.0f", x);
        bool is_strict = is_of_argparse(file) || is_of_jsonargparse(file) || is_text;
        vp_find(c, file, is_strict ? VP_ERROR : VP_WARNING, v, k->path, better,
                is_strict ? "%s is no whole number to its parser, which refuses it"
                          : "%s is a real number: what wants a whole one may refuse it",
                shown);
    }
    if (k->max > k->min && (x < k->min || x > k->max)) {
        if (k->max >= 1e6)
            vp_find(c, file, VP_ERROR, v, k->path, NULL, "%.40s: must be at %s %.15g", shown,
                    x < k->min ? "least" : "most", x < k->min ? k->min : k->max);
        else
            vp_find(c, file, VP_ERROR, v, k->path, NULL, "%s: must lie between %.15g and %.15g",
                    shown, k->min, k->max);
    }
}

/* A truth value in quotes: distutils', argparse's and pydantic's words. false: it is none. */
static bool check_truth(vp_checked *c, const vp_checked_file *file, const vp_key *k,
                        const vp_value *v)
{
    static const char yes[] = "true|t|yes|y|on|1", no[] = "false|f|no|n|off|0";
    bool              is_on = among(yes, v->text, true), is_read = reads_text(c, file, k);
    char              shown[256];

    /* HfArgumentParser's reader of options knows neither */
    if ((!is_on && !among(no, v->text, true)) ||
        (is_read && !file->dialect->bool_is_number && !file->dialect->exponents &&
         strncasecmp(v->text, "o", 1) == 0))
        return false;
    vp_find(c, file, is_read || file->dialect->hjson || is_on ? VP_WARNING : VP_ERROR, v, k->path,
            is_on ? "true" : "false", "\"%s\" is text, %s",
            vp_text_escape(v->text, shown, sizeof shown),
            is_read || file->dialect->hjson ? "which its parser turns into a truth value"
                                            : "and any text counts as true");
    return true;
}

/* A variable whose value the text does not show, or a name that its library gives: torch.bfloat16. */
static bool is_name_of_python(const vp_checked_file *file, const vp_key *k, const vp_value *v)
{
    bool is_name = file->doc->format == VP_FORMAT_PYTHON && v->kind == VP_VALUE_STRING &&
                   !v->quoted && (isalpha((unsigned char)v->text[0]) || v->text[0] == '_');

    return is_name && (k->type == VP_KEY_INT || k->type == VP_KEY_REAL || k->type == VP_KEY_BOOL ||
                       k->type == VP_KEY_LIST ||
                       (k->type == VP_KEY_WORD && k->words &&
                        !among(k->words, v->text, file->dialect->any_case)));
}

/* "a|b" as people read it, so that a screen can fold it: "a, b". */
static void list_words(const char *words, char *buf, size_t size)
{
    size_t n = 0;

    buf[0] = '\0';
    for (const char *p = words; *p && n < size; p += strcspn(p, "|"), p += *p == '|')
        n += (size_t)snprintf(buf + n, size - n, "%s%.*s", n ? ", " : "", (int)strcspn(p, "|"), p);
}

static bool is_nothing(const vp_value *v)
{
    return v->kind == VP_VALUE_NULL || (v->kind == VP_VALUE_BOOL && !v->boolean) ||
           ((v->kind == VP_VALUE_INT || v->kind == VP_VALUE_REAL) && v->real == 0);
}

enum { MAX_USUAL = 96 };

/* The words that are usual for a text: its key's, and those that a saying has for it. */
static int usual_words(vp_checked *c, const vp_checked_file *file, const vp_key *k,
                       const char **words)
{
    int n = 0;

    for (const char *p = k->words; p && *p && n < MAX_USUAL; p += strcspn(p, "|"), p += *p == '|') {
        words[n] = vp_arena_printf(c->arena, "%.*s", (int)strcspn(p, "|"), p);
        n += words[n] != NULL;
    }
    for (const vp_dialect *d = file->dialect; d; d = d->base)
        for (int i = 0; i < d->n_says && n < MAX_USUAL; i++) {
            const vp_saying *row = &d->says[i];
            if (row->value && row->setting != VP_ALWAYS && strcmp(row->key, k->path) == 0) {
                const char *word = strcmp(row->value, "$word") == 0 ? row->word : row->value;
                if (!strpbrk(word, "$*:") && strlen(word) > 1)
                    words[n++] = word;
            }
        }
    return n;
}

/* The word with an argument, "first:N", that a text begins as and is not, for its argument is none; NULL. */
static const char *mistaken_word(const vp_checked_file *file, const vp_key *k, const char *text)
{
    for (const vp_dialect *d = file->dialect; d; d = d->base)
        for (int i = 0; i < d->n_says; i++) {
            const vp_saying *row   = &d->says[i];
            const char      *colon = row->word ? strchr(row->word, ':') : NULL;
            if (colon && row->value && strcmp(row->value, "$word") == 0 &&
                strcmp(row->key, k->path) == 0 &&
                strncmp(text, row->word, (size_t)(colon + 1 - row->word)) == 0)
                return vp_word_is(text, row->word, NULL) ? NULL : row->word;
        }
    return NULL;
}

/* A text may be switched off by false; of one with usual words another that is nearly one of them was not meant. */
static void check_text(vp_checked *c, const vp_checked_file *file, const vp_key *k,
                       const vp_value *v, const char *shown)
{
    bool typed = file->doc->format == VP_FORMAT_JSON || file->doc->format == VP_FORMAT_YAML ||
                 file->doc->format == VP_FORMAT_TOML;
    const char *words[MAX_USUAL], *mistaken;
    int         n, nearest;

    if (typed && (v->kind == VP_VALUE_LIST || v->kind == VP_VALUE_MAP)) {
        vp_find(c, file, VP_ERROR, v, k->path, NULL, "is a %s, not a text",
                v->kind == VP_VALUE_LIST ? "list" : "map");
        return;
    }
    if (typed && v->kind != VP_VALUE_STRING && !is_nothing(v)) {
        vp_find(c, file, VP_ERROR, v, k->path, NULL, "%s is no text", shown);
        return;
    }
    if (v->kind != VP_VALUE_STRING)
        return;
    mistaken = mistaken_word(file, k, v->text);
    if (mistaken) {
        vp_find(c, file, VP_ERROR, v, k->path, NULL, "%s is no %s%s", shown, mistaken,
                strchr(mistaken, 'N') ? ", N a whole number from 1" : "");
        return;
    }
    n       = usual_words(c, file, k, words);
    nearest = vp_word_nearest(v->text, words, n);
    for (int i = 0; i < n; i++)
        if (strcasecmp(words[i], v->text) == 0)
            return;
    if (nearest >= 0 && vp_word_distance(v->text, words[nearest]) <= (strlen(v->text) >= 8 ? 2 : 1))
        vp_find(c, file, VP_ERROR, v, k->path, words[nearest],
                "%s is none of the words that are known", shown);
}

/* What an older version's word is called now; NULL: it is none. */
static const char *renamed_word(vp_checked *c, const vp_key *k, const char *text)
{
    size_t n = strlen(text);

    for (const char *p = k->formerly; p && *p; p += strcspn(p, " "), p += *p == ' ')
        if (strncasecmp(p, text, n) == 0 && p[n] == '=')
            return vp_arena_printf(c->arena, "%.*s", (int)strcspn(p + n + 1, " "), p + n + 1);
    return NULL;
}

/* The word of the key's that was meant; NULL: none is near. */
static const char *nearest_word(vp_checked *c, const vp_key *k, const char *text)
{
    const char *words[MAX_USUAL], *renamed = renamed_word(c, k, text);
    int         n = 0, nearest;

    if (renamed)
        return renamed;
    for (const char *p = k->words; p && *p && n < MAX_USUAL; p += strcspn(p, "|"), p += *p == '|') {
        words[n] = vp_arena_printf(c->arena, "%.*s", (int)strcspn(p, "|"), p);
        n += words[n] != NULL && strcmp(words[n], "null") != 0;
    }
    nearest = vp_word_nearest(text, words, n);
    return nearest >= 0 && vp_word_distance(text, words[nearest]) <= (strlen(text) >= 8 ? 2 : 1)
               ? words[nearest]
               : NULL;
}

static bool is_unread(const vp_value *v)
{
    return v->call && strcmp(v->call, VP_VALUE_UNREAD) == 0;
}

/* "<num-labels>": what a user is to fill in. */
static bool is_placeholder(const char *text)
{
    size_t n = strlen(text);

    return n > 2 && text[0] == '<' && text[n - 1] == '>';
}

bool vp_value_is_unknown(const vp_checked_file *file, const vp_value *v, bool is_name)
{
    if (v->call)
        return is_name || is_unread(v);
    if (v->kind != VP_VALUE_STRING)
        return false;
    if (file->doc->format == VP_FORMAT_FLAGS)
        return strpbrk(v->text, "$`") != NULL || is_placeholder(v->text);
    return is_name && file->doc->format == VP_FORMAT_PYTHON && !v->quoted &&
           (isalpha((unsigned char)v->text[0]) || v->text[0] == '_');
}

/* Another of the files has a literal under this key: a script that reads its arguments from a file beside it. Nor does a word need what no
 * memory depends on and scripts work out as a rule. */
static bool is_said_elsewhere(const vp_checked *c, const vp_checked_file *file, const vp_key *k)
{
    for (int i = 0; i < c->n_files; i++) {
        const vp_checked_file *other = &c->files[i];
        if (other == file || !other->doc || !other->doc->root || !other->dialect)
            continue;
        const vp_value *v = vp_value_at(other->doc->root, k->path);
        if (v && !is_unread(v) && !is_name_of_python(other, k, v))
            return true;
    }
    return vp_listed("output_dir logging_steps save_steps eval_steps", k->path);
}

/* Whether a setting is read from the key, or the model's name, on which all of them lie. */
static bool tells_memory(const vp_dialect *d, const char *key)
{
    for (const vp_dialect *of = d; of; of = of->base)
        for (int i = 0; i < of->n_says; i++)
            if (of->says[i].key && strcmp(of->says[i].key, key) == 0)
                return true;
    return vp_listed("pretrained_model_name_or_path model_name_or_path model_name", key);
}

/* What a script takes where nobody says otherwise, and where that would be said. */
static void say_default(vp_checked *c, const vp_checked_file *file, const vp_key *k,
                        const vp_value *v, const char *shown)
{
    if (!tells_memory(file->dialect, k->path))
        return;
    if (strcmp(v->option_type, VP_OPTION_PARAMETER) == 0)
        vp_find(c, file, VP_NOTE, v, k->path, NULL,
                "%.80s is the default of %.80s in line %d, in a function that nothing here calls",
                shown, v->option, v->option_line);
    else
        vp_find(c, file, VP_NOTE, v, k->path, NULL,
                "%.80s is %sthe default of %.80s in line %d, which a command may change: "
                "vplan check -- COMMAND",
                shown, *v->option_type == '+' ? "by " : "", v->option, v->option_line);
}

static void check_value(vp_checked *c, const vp_checked_file *file, const vp_key *k,
                        const vp_value *v)
{
    char text[256], shown[512];
    char words[600];

    vp_value_text(v, text, sizeof text);
    if (file->doc->format == VP_FORMAT_FLAGS && v->kind == VP_VALUE_BOOL && v->text && v->text[0] &&
        k->type == VP_KEY_WORD) /* a command's words are text: no is not false */
        snprintf(text, sizeof text, "%s", v->text);
    vp_text_escape(text, shown, sizeof shown);
    if (v->kind == VP_VALUE_NULL || k->type == VP_KEY_ANY || strchr(text, '$') ||
        (file->doc->format == VP_FORMAT_FLAGS && is_placeholder(text)))
        return;
    if (is_name_of_python(file, k, v) || is_unread(v)) {
        if (!is_said_elsewhere(c, file, k))
            vp_find(c, file, VP_NOTE, v, k->path, NULL,
                    "not read: no literal; what it does to memory is not judged");
        return;
    }
    if (v->option)
        say_default(c, file, k, v, shown);
    if (v->call && k->type != VP_KEY_TEXT && k->type != VP_KEY_MAP) {
        vp_find(c, file, VP_NOTE, v, k->path, NULL, "not read: what %s() gives is not known here",
                shown);
        return;
    }
    if (strcmp(text, "auto") == 0 && v->kind == VP_VALUE_STRING &&
        (k->or_auto || file->dialect->hjson))
        return;
    if (v->kind == VP_VALUE_STRING && (strcmp(text, "None") == 0 || strcmp(text, "none") == 0) &&
        !(k->words && among(k->words, text, true)) && !(k->type == VP_KEY_TEXT && text[0] == 'n') &&
        !file->dialect->flags && file->doc->format != VP_FORMAT_FLAGS) {
        vp_find(c, file, VP_ERROR, v, k->path, "null", "is the text %s, not nothing", shown);
        return;
    }
    switch (k->type) {
    case VP_KEY_BOOL:
        if (v->kind == VP_VALUE_BOOL && v->text && strncasecmp(v->text, "o", 1) == 0 &&
            is_of_argparse(file))
            vp_find(c, file, VP_ERROR, v, k->path, v->boolean ? "true" : "false",
                    "%s is no truth value to argparse, which refuses it", v->text);
        if (v->kind == VP_VALUE_BOOL || (v->kind == VP_VALUE_INT && (v->integer & ~1LL) == 0))
            break;
        if (v->kind != VP_VALUE_STRING || !check_truth(c, file, k, v))
            vp_find(c, file, VP_ERROR, v, k->path, NULL, "%s is neither true nor false", shown);
        break;
    case VP_KEY_INT:
    case VP_KEY_REAL:
        check_number(c, file, k, v);
        break;
    case VP_KEY_WORD:
        if (k->words && !among(k->words, text, file->dialect->any_case) &&
            !(v->kind == VP_VALUE_STRING && file->dialect->text_is_number &&
              among(k->words, "true", false) && check_truth(c, file, k, v))) {
            bool a_no = v->kind == VP_VALUE_BOOL && !v->boolean &&
                        among(k->words, "no", file->dialect->any_case);
            list_words(k->words, words, sizeof words);
            /* accelerate takes false for no launcher at all, which no means; of a precision it wants a text */
            bool is_meant =
                a_no && file->dialect->any_case && strcmp(k->path, "mixed_precision") != 0;
            vp_find(c, file, is_meant ? VP_WARNING : VP_ERROR, v, k->path,
                    a_no ? "\"no\"" : nearest_word(c, k, text),
                    a_no ? "no without quotes is the truth value false%.0s%.0s"
                         : "%s is none of %s",
                    shown, words);
        }
        break;
    case VP_KEY_TEXT:
        check_text(c, file, k, v, shown);
        break;
    default:
        break;
    }
}

/* ---- keys ---- */

const char *vp_listed(const char *list, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = list; p && *p;) {
        const char *space = strchr(p, ' ');
        if (strncmp(p, name, n) == 0 && (!p[n] || p[n] == ' ' || p[n] == ':'))
            return p;
        p = space ? space + 1 : NULL;
    }
    return NULL;
}

/* The type behind a name in such a list. */
static vp_key_type listed_type(const char *at)
{
    at += strcspn(at, " :");
    switch (at[0] == ':' ? at[1] : '\0') {
    case 'b':
    case 'B':
        return VP_KEY_BOOL;
    case 'i':
        return VP_KEY_INT;
    case 'r':
        return VP_KEY_REAL;
    case 't':
        return VP_KEY_TEXT;
    default:
        return VP_KEY_ANY;
    }
}

static bool is_read_from_text(const char *at)
{
    at += strcspn(at, " :");
    return at[0] == ':' && at[1] == 'B';
}

/* The dialect's own key by which the trainer in question would read a key of another version. */
static void check_age(vp_checked *c, const vp_checked_file *file, const vp_key *k, const char *path,
                      const vp_value *v, const char *version)
{
    const char *library = file->dialect->library;

    for (const vp_dialect *d = file->dialect; d; d = d->base)
        for (int i = 0; i < d->n_keys; i++)
            if (&d->keys[i] == k)
                library = d->library;
    if (k->until && vp_version_compare(version, k->until) >= 0 && k->if_true && is_nothing(v))
        return;
    if (k->until && vp_version_compare(version, k->until) >= 0 && k->warned)
        vp_find(c, file, VP_WARNING, v, path, k->instead, "is deprecated since %s %s", library,
                k->until);
    else if (k->until && vp_version_compare(version, k->until) >= 0 &&
             (vp_check_is_own(file) || vp_check_is_argument(c, file, v)))
        vp_find(c, file, VP_ERROR, v, path, k->instead, "is gone since %s %s", library, k->until);
    else if (k->until && vp_version_compare(version, k->until) >= 0)
        vp_find(c, file, VP_WARNING, v, path, k->instead,
                "is gone since %s %s; a script with a parser of its own may have it", library,
                k->until);
    else if (k->since && vp_version_compare(version, k->since) < 0)
        vp_find(c, file, VP_ERROR, v, path, k->instead, "%s has it from %s on; this is %s", library,
                k->since, version);
}

/* --data JSON --data.path x: an argument of what another key names, which has its own. */
static bool is_of_named(vp_checked *c, const vp_checked_file *file, const vp_section *s,
                        const vp_value *v)
{
    const char *dot  = s->path[0] ? NULL : strchr(v->key, '.');
    const char *name = dot ? vp_arena_printf(c->arena, "%.*s", (int)(dot - v->key), v->key) : NULL;
    const vp_value *named = name ? vp_value_member(file->doc->root, name) : NULL;

    return named && named->kind == VP_VALUE_STRING &&
           (vp_file_key(c, file, name, NULL) || vp_check_known_at(file, "", name));
}

static void check_section(vp_checked *c, vp_checked_file *file, const vp_section *s)
{
    const vp_value *map = s->path[0] ? vp_value_at(file->doc->root, s->path) : file->doc->root;
    vp_text         own = {0};

    if (!map || map->kind != VP_VALUE_MAP)
        return;
    for (const vp_value *v = map->first; v; v = v->next) {
        const char *path =
            s->path[0] ? vp_arena_printf(c->arena, "%s.%s", s->path, v->key) : v->key;
        const char   *version;
        const vp_key *k = path ? vp_file_key(c, file, path, &version) : NULL;
        if (!path)
            continue;
        if (!k && file->doc->format == VP_FORMAT_PYTHON &&
            (isdigit((unsigned char)*v->key) || (v->is_variable && (v->call || v->first))))
            continue; /* an argument without a name: replace(old, ...); what a call made */
        const char *known = k ? NULL : vp_check_known_at(file, s->path, v->key);
        if (!k && !known &&
            (is_of_named(c, file, s, v) ||
             (file->doc->format == VP_FORMAT_FLAGS && vp_listed(file->dialect->options, v->key))))
            continue;
        if (!k && !known) {
            vp_check_stranger(c, file, s, path, v, &own);
            continue;
        }
        if (!k && file->doc->format == VP_FORMAT_PYTHON)
            continue; /* what is no literal there would be named for nothing */
        if (!k) {
            check_value(c, file,
                        &(vp_key){.path       = path,
                                  .type       = listed_type(known),
                                  .or_auto    = true,
                                  .reads_text = is_read_from_text(known) ? "0" : NULL},
                        v);
            continue;
        }
        if (!vp_version_within(version, k->since, k->until)) {
            check_age(c, file, k, path, v, version);
        } else if (k->noop) {
            bool is_off = v->kind == VP_VALUE_BOOL && !v->boolean;
            /* what is off there is the other way round where it counts; what is on needs no word */
            vp_find(c, file, is_off ? VP_ERROR : VP_WARNING, v, path,
                    is_off || v->kind != VP_VALUE_BOOL ? k->instead : NULL,
                    "is read and means nothing");
        } else {
            check_value(c, file, k, v);
        }
    }
    if (own.n_bytes)
        vp_find(c, file, VP_NOTE, vp_check_is_call(file) ? map : NULL, "", NULL,
                vp_check_is_call(file) ? "arguments that are not judged: %s"
                                       : "keys of the script's own, not judged: %s",
                own.data);
    vp_text_release(&own);
}

static bool has_section(const vp_checked_file *file, const char *path)
{
    for (const vp_dialect *d = file->dialect; d; d = d->base)
        for (int i = 0; i < d->n_sections; i++)
            if (strcmp(d->sections[i].path, path) == 0)
                return true;
    return false;
}

/* Maps that pass on what is in them, under whatever name. */
static bool passes_on(const char *name)
{
    return strstr(name, "kwargs") || strstr(name, "config") || strstr(name, "deepspeed") ||
           strstr(name, "arg");
}

/* Keys of the root that stand in a map of which nothing is known: one level too deep, as a wrong indent makes it. */
static void check_depth(vp_checked *c, const vp_checked_file *file)
{
    bool is_tree = file->doc->format == VP_FORMAT_JSON || file->doc->format == VP_FORMAT_YAML ||
                   file->doc->format == VP_FORMAT_TOML;

    for (const vp_value *map = is_tree ? file->doc->root->first : NULL; map; map = map->next) {
        if (map->kind != VP_VALUE_MAP || has_section(file, map->key) || passes_on(map->key))
            continue;
        for (const vp_value *v = map->first; v; v = v->next) {
            const char *path   = vp_arena_printf(c->arena, "%s.%s", map->key, v->key);
            bool        is_own = !path || vp_file_key(c, file, path, NULL);
            const char *home   = is_own ? NULL : vp_check_home_of(c, file, map->key, v->key);
            if (home && !home[0] && vp_file_key(c, file, v->key, NULL))
                vp_find(c, file, VP_WARNING, v, path, v->key,
                        "is read at the top of the file: within %s it is not", map->key);
        }
    }
}

void vp_check_keys(vp_checked *c, vp_checked_file *file)
{
    check_depth(c, file);
    for (const vp_dialect *d = file->dialect; d; d = d->base)
        for (int i = 0; i < d->n_sections; i++) {
            bool again = false; /* the root of a base is the root of its child */
            for (const vp_dialect *e = file->dialect; e != d; e = e->base)
                for (int k = 0; k < e->n_sections; k++)
                    again = again || strcmp(e->sections[k].path, d->sections[i].path) == 0;
            if (!again)
                check_section(c, file, &d->sections[i]);
        }
}

/* ---- rules ---- */

bool vp_check_holds(const vp_checked *c, const vp_checked_file *file, const char *path,
                    const char *is)
{
    const vp_value *v = vp_value_at(file->doc->root, path);
    char            buf[512];
    const char     *text;
    double          x;

    if (is[0] == 'u' && file->doc->format == VP_FORMAT_FLAGS &&
        (vp_value_member(file->doc->root, "config") || (file->doc->has_gap && c->missing)))
        return false; /* the file that the command names may say it */
    if (strcmp(is, "set") == 0 || strcmp(is, "unset") == 0)
        return (v && v->kind != VP_VALUE_NULL) == (is[0] == 's');
    text = vp_effective(c, file, path, buf, sizeof buf);
    if (text && strcmp(text, "auto") == 0)
        return false;
    if (is[0] == '~' || (is[0] == '!' && is[1] == '~'))
        return (text && strstr(text, strchr(is, '~') + 1)) == (is[0] == '~');
    if (!text)
        return is[0] == '!';
    if (is[0] == '<' || is[0] == '>')
        return to_number(text, &x) &&
               (is[0] == '<' ? x < strtod(is + 1, NULL) : x > strtod(is + 1, NULL));
    bool no = is[0] == '!';
    for (const char *p = is + 1 + no; *p;) {
        size_t n = strcspn(p, "|");
        char   one[128];
        snprintf(one, sizeof one, "%.*s", (int)n, p);
        if (vp_same_value(text, one) || (file->dialect->any_case && !strcasecmp(text, one)))
            return !no;
        p += n + (p[n] == '|');
    }
    return no;
}

static void check_rule(vp_checked *c, vp_checked_file *file, const vp_rule *r)
{
    const vp_value *v;

    if (!vp_check_holds(c, file, r->key, r->is) ||
        (r->other && !vp_check_holds(c, file, r->other, r->other_is)))
        return;
    v = vp_value_at(file->doc->root, r->key);
    if (!v && r->severity == VP_NOTE && strcmp(r->is, "unset") != 0)
        return;                            /* what nobody wrote is no note */
    if (!v && strcmp(r->is, "unset") != 0) /* by a default: where the other stands */
        v = r->other ? vp_value_at(file->doc->root, r->other) : NULL;
    if (!v && strcmp(r->is, "unset") != 0)
        return;
    vp_find(c, file, r->severity, v, r->key, r->instead, "%s", r->message);
}

/* What no rule of a dialect can say. */
static const struct {
    const vp_dialect *of;
    void (*judge)(vp_judged *x);
} judges[] = {
    {&vp_dialect_trl, vp_judge_trl},
    {&vp_dialect_transformers, vp_judge_trainer},
    {&vp_dialect_llamafactory, vp_judge_llamafactory},
    {&vp_dialect_swift, vp_judge_swift},
    {&vp_dialect_torchtune, vp_judge_torchtune},
    {&vp_dialect_megatron, vp_judge_megatron},
};

void vp_check_rules(vp_checked *c, vp_checked_file *file)
{
    for (const vp_dialect *d = file->dialect; d; d = d->base_says ? d->base : NULL) {
        const char *version = vp_file_version(c, file, d);
        for (int i = 0; i < d->n_rules; i++)
            if (vp_version_within(version, d->rules[i].since, d->rules[i].until) &&
                (!d->rules[i].own || vp_check_is_own(file)))
                check_rule(c, file, &d->rules[i]);
        for (size_t i = 0; i < sizeof judges / sizeof *judges; i++)
            if (judges[i].of == d)
                judges[i].judge(&(vp_judged){c, file});
    }
    vp_judge_yaml(&(vp_judged){c, file});
}
