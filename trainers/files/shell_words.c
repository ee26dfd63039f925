/* trainers/files/shell_words.c: what stands in words of a shell and is no variable: sums, what commands' words say about them, what
 * the queue sets of its own. */
#include "trainers/files/shell_words.h"

#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool vp_shell_is_in(const char *word, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(word, *list) == 0)
            return true;
    return false;
}

bool vp_shell_has_options(const vp_shell_command *c)
{
    for (int64_t i = 0; i < c->n_words; i++)
        if (strncmp(c->words[i].text, "--", 2) == 0 && c->words[i].text[2])
            return true;
    return false;
}

/* The word from which on a command is text that a shell reads again: behind eval, or behind bash -c. 0: none. */
int64_t vp_shell_text_of(const vp_shell_command *c)
{
    static const char *const shells[] = {"bash", "sh", "zsh", "dash", "ksh", NULL};

    if (!c->words[0].quoted && strcmp(c->words[0].text, "eval") == 0)
        return c->n_words > 1;
    for (int64_t i = 0; i + 2 < c->n_words; i++) {
        const char *base = strrchr(c->words[i].text, '/');
        const char *flag = c->words[i + 1].text;
        size_t      n    = strlen(flag);
        if (vp_shell_is_in(base ? base + 1 : c->words[i].text, shells) && n > 1 && flag[0] == '-' &&
            flag[1] != '-' && flag[n - 1] == 'c')
            return i + 2;
    }
    return 0;
}

/* [[ "$arg" == "--bf16="* ]], and what stands behind && within it: conditions, which begin or end so. */
static bool is_test(const vp_shell_command *c)
{
    static const char *const opens[] = {"[[", "[", "test", NULL}, *const closes[] = {"]]", "]",
                                                                                     NULL};
    const vp_shell_word *last = &c->words[c->n_words - 1];

    return (!c->words[0].quoted && vp_shell_is_in(c->words[0].text, opens)) ||
           (c->n_words > 1 && !last->quoted && vp_shell_is_in(last->text, closes));
}

/* Programs that name files and options, or show a command's, and train nothing. */
bool vp_shell_is_no_trainer(const vp_shell_command *c)
{
    static const char *const tools[] = {"echo", "printf", "cat",  "cp",    "mv",    "rm",  "ls",
                                        "find", "jq",     "sed",  "grep",  "awk",   "tar", "git",
                                        "pip",  "wget",   "curl", "mkdir", "rsync", NULL};

    return is_test(c) || (!c->words[0].quoted && vp_shell_is_in(c->words[0].text, tools));
}

/* Letters of $( ), ${ } or ` ` at i of a text, which nobody knows and which stay together; 0: none stands there. */
int64_t vp_shell_unknown_letters(const char *text, int64_t n, int64_t i)
{
    char opens  = i + 1 < n && text[i] == '$' ? text[i + 1] : '\0';
    char closes = opens == '(' ? ')' : opens == '{' ? '}' : text[i] == '`' ? '`' : '\0';
    int  depth  = 0;

    for (int64_t k = i + 1; closes && k < n; k++) {
        depth += text[k] == opens;
        depth -= text[k] == closes;
        if (text[k] == closes && depth <= 0)
            return k + 1 - i;
    }
    return 0;
}

/* ---- $((A * B)) ---- */

typedef struct sum {
    const char     *p, *end;
    vp_shell_lookup lookup;
    const void     *of;
    int             depth;
    bool            failed;
} sum;

enum { MAX_SUM = 1000000000, MAX_DEPTH = 64 };

static char next(sum *x)
{
    while (x->p < x->end && isspace((unsigned char)*x->p))
        x->p++;
    return x->p < x->end ? *x->p : '\0';
}

static int64_t fail(sum *x)
{
    x->failed = true;
    return 1;
}

static int64_t whole(sum *x, const char *text, size_t n)
{
    size_t digits = 0;

    while (digits < n && isdigit((unsigned char)text[digits]))
        digits++;
    /* 010 is 8 */
    return digits && digits == n && n < 10 && (n == 1 || text[0] != '0') ? strtoll(text, NULL, 10)
                                                                         : fail(x);
}

static int64_t terms(sum *x);

/* A number, a variable with or without its dollar sign, a bracket. */
static int64_t operand(sum *x)
{
    const char *value;
    size_t      n      = 0;
    bool        braces = false;
    int64_t     result;

    if (next(x) == '(') {
        x->p++;
        result = x->depth++ < MAX_DEPTH ? terms(x) : fail(x);
        if (next(x) != ')')
            return fail(x);
        x->p++;
        return result;
    }
    if (next(x) == '$') {
        x->p++;
        braces = x->p < x->end && *x->p == '{';
        x->p += braces;
    }
    while (x->p + n < x->end && (isalnum((unsigned char)x->p[n]) || x->p[n] == '_'))
        n++;
    if (!n)
        return fail(x);
    if (isdigit((unsigned char)x->p[0])) {
        result = whole(x, x->p, n);
    } else {
        value  = x->lookup(x->of, x->p, n);
        result = value ? whole(x, value, strlen(value)) : fail(x);
    }
    x->p += n;
    if (braces && next(x) != '}')
        return fail(x);
    x->p += braces;
    return result;
}

static int64_t factors(sum *x)
{
    int64_t result = operand(x);

    while (!x->failed && next(x) && strchr("*/%", *x->p)) {
        char    by    = *x->p++;
        int64_t other = operand(x);
        if (x->failed || (by != '*' && other == 0) || (by == '*' && other > MAX_SUM / 100000))
            return fail(x);
        result = by == '*' ? result * other : by == '/' ? result / other : result % other;
        if (result > MAX_SUM || result < -MAX_SUM)
            return fail(x);
    }
    return result;
}

static int64_t terms(sum *x)
{
    int64_t result = factors(x);

    while (!x->failed && (next(x) == '+' || next(x) == '-')) {
        char    by    = *x->p++;
        int64_t other = factors(x);
        result += by == '+' ? other : -other;
        if (result > MAX_SUM || result < -MAX_SUM)
            return fail(x);
    }
    return result;
}

bool vp_shell_sum(const char *text, size_t n, vp_shell_lookup lookup, const void *of, int64_t *out)
{
    sum x = {.p = text, .end = text + n, .lookup = lookup, .of = of};

    *out = terms(&x);
    return !x.failed && !next(&x);
}

/* ---- what commands print ---- */

/* cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd: where the script lies is where it runs, as far as a text can say. */
static bool is_folder(const char *text, size_t n, char *out, size_t size)
{
    static const char *const names[] = {"0", "BASH_SOURCE", "BASH_SOURCE[0]", NULL};
    static const char *const paths[] = {"realpath", "readlink", NULL};
    static const char *const more[]  = {"cd", "--", "-f", "-P", "-L", "1", "2", "/dev/null", NULL};
    int                      n_up    = 0,
        n_dirname  = 0; /* one level up each, but for a dirname that takes the script's name off */
    bool is_script = false, is_pwd = false, is_path = false;

    for (size_t i = 0, k; i < n; i += k + !k) {
        char word[64];
        for (k = 0; i + k < n && !isspace((unsigned char)text[i + k]) &&
                    !strchr("\"'$(){}`&;|>", text[i + k]);)
            k++;
        snprintf(word, sizeof word, "%.*s", (int)k, text + i);
        if (strspn(word, "/.") == strlen(word)) {
            for (const char *up = word; (up = strstr(up, "..")) != NULL; up += 2)
                n_up++;
            continue;
        }
        bool is_dirname = strcmp(word, "dirname") == 0, is_here = strcmp(word, "pwd") == 0;
        n_dirname += is_dirname;
        is_pwd    = is_pwd || is_here;
        is_script = is_script || vp_shell_is_in(word, names);
        is_path   = is_path || vp_shell_is_in(word, paths);
        if (!is_dirname && !is_here && !vp_shell_is_in(word, names) &&
            !vp_shell_is_in(word, paths) && !vp_shell_is_in(word, more))
            return false;
    }
    if (is_script ? !n_dirname : !is_pwd && !is_path)
        return false;
    n_up += n_dirname - is_script;
    snprintf(out, size, ".");
    for (; n_up > 0 && strlen(out) + 4 < size; n_up--)
        strcat(out, "/..");
    return true;
}

/* echo $CUDA_VISIBLE_DEVICES | tr ',' '\n' | wc -l, and awk's NF. */
static bool counts_cards(const char *text, size_t n, vp_shell_lookup lookup, const void *of,
                         char *out, size_t size)
{
    static const char name[] = "CUDA_VISIBLE_DEVICES";
    const char       *cards  = lookup(of, name, sizeof name - 1);
    int               count  = 1;

    if (!cards || !memmem(text, n, name, sizeof name - 1) || !memchr(text, ',', n) ||
        !(memmem(text, n, "wc -l", 5) || memmem(text, n, "{print NF}", 10)) || strchr(cards, '$'))
        return false;
    for (const char *p = cards; *p; p++)
        count += *p == ',';
    snprintf(out, size, "%d", count);
    return true;
}

/* The only word of a text. */
static bool is_alone(const char *word, const char *text, size_t n)
{
    while (n && isspace((unsigned char)*text))
        text++, n--;
    while (n && isspace((unsigned char)text[n - 1]))
        n--;
    return n == strlen(word) && memcmp(text, word, n) == 0;
}

/* expr 32 / $N \* 2, and echo "32 / $N" | bc: whole numbers both, without quotes and escapes. */
static bool is_sum(const char *text, size_t n, vp_shell_lookup lookup, const void *of, char *out,
                   size_t size)
{
    char    plain[128];
    size_t  from = 0, length = 0;
    int64_t result;

    while (from < n && isspace((unsigned char)text[from]))
        from++;
    const char *pipe = memchr(text, '|', n);
    size_t      end  = n;
    if (n - from > 5 && memcmp(text + from, "echo ", 5) == 0 && pipe) {
        end = (size_t)(pipe - text);
        if (!is_alone("bc", pipe + 1, n - end - 1))
            return false;
    } else if (n - from <= 5 || memcmp(text + from, "expr ", 5) != 0) {
        return false;
    }
    for (size_t i = from + 5; i < end && length + 1 < sizeof plain; i++)
        if (!strchr("\"'\\", text[i]))
            plain[length++] = text[i];
    if (!vp_shell_sum(plain, length, lookup, of, &result))
        return false;
    snprintf(out, size, "%lld", (long long)result);
    return true;
}

bool vp_shell_prints(const char *text, size_t n, vp_shell_lookup lookup, const void *of, char *out,
                     size_t size)
{
    size_t blanks = 0;

    while (blanks < n && isspace((unsigned char)text[blanks]))
        blanks++;
    out[0] = '\0';
    return (blanks < n && text[blanks] == '#' && !memchr(text, '\n', n)) ||
           is_folder(text, n, out, size) || counts_cards(text, n, lookup, of, out, size) ||
           is_sum(text, n, lookup, of, out, size);
}

/* ---- #SBATCH ---- */

/* What slurm sets of its own from what a script asks it for (man sbatch, of 24.05). */
static const struct {
    const char *option, *letter, *names;
} asked[] = {
    {"--nodes=", "-N ", "SLURM_NNODES SLURM_JOB_NUM_NODES"},
    {"--ntasks=", "-n ", "SLURM_NTASKS SLURM_NPROCS"},
    {"--ntasks-per-node=", NULL, "SLURM_NTASKS_PER_NODE"},
    {"--gpus-per-node=", NULL, "SLURM_GPUS_PER_NODE SLURM_GPUS_ON_NODE"},
    {"--gres=gpu:", NULL, "SLURM_GPUS_ON_NODE"},
};

/* The number that ends what an option is given: "4", "a100:4". 0: none does. */
static int number_of(const char *value, size_t n)
{
    size_t from = n;

    while (from && value[from - 1] != ':')
        from--;
    for (size_t i = from; i < n; i++)
        if (!isdigit((unsigned char)value[i]))
            return 0;
    return n > from && n - from < 7 ? (int)strtol(value + from, NULL, 10) : 0;
}

static bool begins_with(const char *text, size_t n, const char *with)
{
    return with && n > strlen(with) && memcmp(text, with, strlen(with)) == 0;
}

vp_status vp_shell_of_queue(vp_arena *arena, const char *bytes, int64_t n, const char **out,
                            vp_err *err)
{
    vp_text     text = {0};
    const char *end  = bytes + n;

    for (const char *p = bytes, *eol; p < end; p = eol + 1) {
        eol = memchr(p, '\n', (size_t)(end - p));
        eol = eol ? eol : end;
        if (!begins_with(p, (size_t)(eol - p), "#SBATCH "))
            continue;
        p += strlen("#SBATCH ");
        p += strspn(p, " ");
        for (size_t i = 0; i < sizeof asked / sizeof *asked && p < eol; i++) {
            size_t      left   = (size_t)(eol - p);
            const char *with   = begins_with(p, left, asked[i].option)   ? asked[i].option
                                 : begins_with(p, left, asked[i].letter) ? asked[i].letter
                                                                         : NULL;
            const char *value  = with ? p + strlen(with) : p;
            int         number = with ? number_of(value, strcspn(value, " #\t\r\n")) : 0;
            for (const char *name = asked[i].names; number && *name;) {
                size_t m = strcspn(name, " ");
                vp_text_printf(&text, "%.*s=%d\n", (int)m, name, number);
                name += m + (name[m] == ' ');
            }
        }
    }
    *out = vp_arena_strdup(arena, vp_text_string(&text));
    vp_text_release(&text);
    return *out ? VP_OK : VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
}
