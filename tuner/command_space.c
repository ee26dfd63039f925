#include "tuner/command_internal.h"

#include "base/text.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_AXES = 12, MAX_VALUES = 64, MAX_SETTINGS = 20000 };

/* ---- what an axis is called, and what that lets us assume ---- */

/* Whether name has word between separators: "batch" in "--per_device_train_batch_size". */
static bool has_word(const char *name, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = name; (p = strcasestr(p, word)); p++)
        if ((p == name || !isalpha((unsigned char)p[-1])) && !isalpha((unsigned char)p[n]))
            return true;
    return false;
}

static bool any_word(const char *name, const char *const *words)
{
    for (; *words; words++)
        if (has_word(name, *words))
            return true;
    return false;
}

static int truth(const char *value)
{
    static const char *const yes[] = {"1", "true", "yes", "on", "full"}, *const no[] = {
                                                                             "0", "false", "no",
                                                                             "off", "none"};

    for (int i = 0; i < 5; i++)
        if (strcasecmp(value, yes[i]) == 0)
            return 1;
    for (int i = 0; i < 5; i++)
        if (strcasecmp(value, no[i]) == 0)
            return 0;
    return -1;
}

double vp_axis_number(const vp_axis *axis, int value)
{
    char  *end;
    double x = value >= 0 ? strtod(axis->values[value], &end) : 0;

    return value >= 0 && end != axis->values[value] && !*end && isfinite(x) ? x : 0;
}

static vp_axis_kind kind_of(const vp_axis *axis)
{
    static const char *const sizes[] = {"batch",  "bs",     "batchsize", "mbs", "seq",   "seqlen",
                                        "length", "tokens", "block",     "bsz", "micro", NULL};
    static const char *const times[] = {"accum",      "accumulate", "accumulation",
                                        "grad_accum", "ga",         NULL};
    static const char *const saves[] = {"checkpointing", "checkpoint", "ckpt",
                                        "recompute",     "remat",      NULL};
    bool                     numbers = true, truths = axis->n == 2;

    for (int i = 0; i < axis->n; i++) {
        numbers = numbers && vp_axis_number(axis, i) > 0;
        truths  = truths && truth(axis->values[i]) >= 0;
    }
    if (truths && any_word(axis->name, saves) && truth(axis->values[0]) != truth(axis->values[1]))
        return VP_AXIS_SAVES;
    if (numbers && any_word(axis->name, times))
        return VP_AXIS_TIMES;
    return numbers && any_word(axis->name, sizes) ? VP_AXIS_SIZE : VP_AXIS_PLAIN;
}

/* ---- axes ---- */

const char *vp_command_value(char *const *command, const char *option, int *at)
{
    size_t n = strlen(option);

    for (int i = 0; command[i]; i++) {
        if (strncmp(command[i], option, n) != 0 || (command[i][n] && command[i][n] != '='))
            continue;
        if (at)
            *at = i;
        if (command[i][n] == '=')
            return command[i] + n + 1;
        if (command[i + 1] &&
            (command[i + 1][0] != '-' || isdigit((unsigned char)command[i + 1][1])))
            return command[i + 1];
        return "on";
    }
    return NULL;
}

static bool same_value(const char *a, const char *b)
{
    char  *ea, *eb;
    double x = strtod(a, &ea), y = strtod(b, &eb);

    if (ea != a && eb != b && !*ea && !*eb)
        return x == y;
    return strcmp(a, b) == 0 ||
           (truth(a) >= 0 && truth(a) == truth(b) && !isdigit((unsigned char)*a));
}

static void sort_values(vp_axis *axis)
{
    for (int i = 1; i < axis->n; i++)
        for (int k = i; k > 0; k--) {
            bool after = axis->kind == VP_AXIS_SAVES
                             ? truth(axis->values[k - 1]) > truth(axis->values[k])
                             : vp_axis_number(axis, k - 1) > vp_axis_number(axis, k);
            if (!after)
                break;
            const char *v       = axis->values[k];
            axis->values[k]     = axis->values[k - 1];
            axis->values[k - 1] = v;
        }
}

static vp_status read_values(vp_space *space, vp_axis *axis, const char *values, vp_err *err)
{
    char     *rest = vp_arena_strdup(space->arena, values), *value;
    vp_status st   = VP_OK;

    axis->values = vp_arena_array(space->arena, MAX_VALUES, sizeof *axis->values);
    VP_TRY_ALLOC(err, rest && axis->values);
    while ((value = strsep(&rest, ","))) {
        if (!*value)
            VP_TRY(
                VP_FAIL(err, VP_ERR_USAGE, "--try %s=%s: a value is missing", axis->name, values));
        if (axis->n == MAX_VALUES)
            VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--try %s: more than %d values", axis->name,
                           MAX_VALUES));
        for (int i = 0; i < axis->n; i++)
            if (strcmp(axis->values[i], value) == 0)
                VP_TRY(
                    VP_FAIL(err, VP_ERR_USAGE, "--try %s: %s is given twice", axis->name, value));
        axis->values[axis->n++] = value;
    }
out:
    return st;
}

vp_status vp_space_add_axis(vp_space *space, const char *name, const char *values, bool option,
                            char *const *command, vp_err *err)
{
    vp_axis   axis = {.name = name, .option = option, .had = -1};
    vp_status st   = VP_OK;

    if (!space->axes)
        space->axes = vp_arena_array(space->arena, MAX_AXES, sizeof *space->axes);
    VP_TRY_ALLOC(err, space->axes);
    if (space->n_axes == MAX_AXES)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "more than %d --try", MAX_AXES));
    for (int a = 0; a < space->n_axes; a++)
        if (strcmp(space->axes[a].name, name) == 0)
            VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--try %s is given twice", name));
    VP_TRY(read_values(space, &axis, values, err));
    axis.kind = kind_of(&axis);
    if (axis.kind != VP_AXIS_PLAIN)
        sort_values(&axis);
    if (option) {
        const char *had = vp_command_value(command, name, NULL);
        for (int i = 0; i < axis.n; i++)
            if (had ? same_value(had, axis.values[i]) ||
                          (strcmp(had, "on") == 0 && truth(axis.values[i]) == 1)
                    : strcmp(axis.values[i], "off") == 0)
                axis.had = i;
    }
    space->axes[space->n_axes++] = axis;
out:
    return st;
}

/* Whether {name} stands in the command. */
static bool has_place(char *const *command, const char *name)
{
    char place[200];

    snprintf(place, sizeof place, "{%s}", name);
    for (; *command; command++)
        if (strstr(*command, place))
            return true;
    return false;
}

static vp_status add_try(vp_space *space, const char *text, char *const *command, vp_err *err)
{
    const char *equal = strchr(text, '=');
    char       *name;
    vp_status   st = VP_OK;

    if (!equal || equal == text || !equal[1])
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--try %.100s: NAME=V1,V2,... is wanted", text));
    name = vp_arena_printf(space->arena, "%.*s", (int)(equal - text), text);
    VP_TRY_ALLOC(err, name);
    if (name[0] != '-' && !has_place(command, name))
        VP_TRY(VP_FAIL(
            err, VP_ERR_USAGE,
            "--try %s: the command has no {%s}; an option of it is written with its dashes, "
            "--try --%s=...",
            name, name, name));
    VP_TRY(vp_space_add_axis(space, name, equal + 1, name[0] == '-', command, err));
out:
    return st;
}

/* ---- settings ---- */

vp_status vp_space_settings(vp_space *space, vp_err *err)
{
    int64_t   n  = 1;
    vp_status st = VP_OK;

    for (int a = 0; a < space->n_axes; a++)
        if ((n *= space->axes[a].n) > MAX_SETTINGS)
            VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "more than %d settings: name fewer values",
                           MAX_SETTINGS));
    space->values = vp_arena_array(space->arena, n * space->n_axes, sizeof *space->values);
    VP_TRY_ALLOC(err, space->values);
    space->n = n;
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i;
        for (int a = space->n_axes - 1; a >= 0; a--) {
            space->values[i * space->n_axes + a] = (int)(rest % space->axes[a].n);
            rest /= space->axes[a].n;
        }
    }
out:
    return st;
}

/* "--batch_size" and "batch_size" and "batch-size" are one name. */
static bool same_name(const char *axis, const char *name, size_t n)
{
    while (*axis == '-')
        axis++;
    while (n && *name == '-')
        name++, n--;
    for (; n && *axis; axis++, name++, n--)
        if (*axis != *name && !(strchr("-_", *axis) && strchr("-_", *name)))
            return false;
    return !n && !*axis;
}

vp_status vp_space_keep(vp_space *space, const char *expression, vp_err *err)
{
    const char *equal = strchr(expression, '='), *p = expression;
    double      factor         = 1, wanted;
    bool        used[MAX_AXES] = {false};
    char       *end;
    int64_t     kept = 0;
    vp_status   st   = VP_OK;

    wanted = equal ? strtod(equal + 1, &end) : 0;
    if (!equal || end == equal + 1 || *end)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--keep %.100s: NAME*NAME=NUMBER is wanted", expression));
    while (p < equal) {
        size_t n     = strcspn(p, "*=");
        double x     = strtod(p, &end);
        int    found = -1;

        for (int a = 0; a < space->n_axes; a++)
            if (same_name(space->axes[a].name, p, n))
                found = a;
        if (n && end == p + n)
            factor *= x;
        else if (found < 0)
            VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--keep %.100s: no --try names %.*s", expression,
                           (int)n, p));
        else
            used[found] = true;
        p += n + 1;
    }
    for (int64_t i = 0; i < space->n; i++) {
        const int *v       = space->values + i * space->n_axes;
        double     product = factor;

        for (int a = 0; a < space->n_axes; a++)
            if (used[a])
                product *= vp_axis_number(&space->axes[a], v[a]);
        if (fabs(product - wanted) <= 1e-9 * fabs(wanted))
            memmove(space->values + kept++ * space->n_axes, v,
                    (size_t)space->n_axes * sizeof *space->values);
    }
    space->n = kept;
    if (!kept)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--keep %.100s: no setting does", expression));
out:
    return st;
}

vp_status vp_space_tries(const vp_command_opts *opts, vp_space *space, vp_err *err)
{
    vp_status st = VP_OK;

    for (int i = 0; i < opts->n_tries; i++)
        VP_TRY(add_try(space, opts->tries[i], opts->command, err));
    VP_TRY(vp_space_settings(space, err));
out:
    return st;
}

/* ---- command lines ---- */

/* text with every {name} replaced. */
static char *filled(vp_arena *arena, const vp_axis *axes, int n_axes, const int *values,
                    const char *text)
{
    char place[200];

    for (int a = 0; a < n_axes; a++) {
        const char *at;

        if (axes[a].option)
            continue;
        snprintf(place, sizeof place, "{%s}", axes[a].name);
        while (text && (at = strstr(text, place)))
            text = vp_arena_printf(arena, "%.*s%s%s", (int)(at - text), text,
                                   axes[a].values[values[a]], at + strlen(place));
    }
    return text ? vp_arena_strdup(arena, text) : NULL;
}

/* Put an option's value into a command of *n words, which has room for two more. */
static void set_option(vp_arena *arena, char **words, int *n, const char *option, const char *value)
{
    int         at  = *n;
    const char *had = vp_command_value(words, option, &at);
    bool        off = strcmp(value, "off") == 0, on = strcmp(value, "on") == 0;

    if (had && strchr(words[at], '=')) {
        words[at] = vp_arena_printf(arena, "%s=%s", option, value);
        return;
    }
    if (had) { /* out with it and its value */
        int gone = had == words[at + 1] ? 2 : 1;
        if (!off && !on && gone == 2) {
            words[at + 1] = vp_arena_strdup(arena, value);
            return;
        }
        memmove(words + at, words + at + gone, (size_t)(*n - at - gone + 1) * sizeof *words);
        *n -= gone;
    }
    if (off)
        return;
    int more = on ? 1 : 2;
    memmove(words + at + more, words + at, (size_t)(*n - at + 1) * sizeof *words);
    words[at] = vp_arena_strdup(arena, option);
    if (!on)
        words[at + 1] = vp_arena_strdup(arena, value);
    *n += more;
}

char *const *vp_command_line_of(const vp_command_result *r, char *const *command,
                                const vp_setting *setting, vp_arena *arena)
{
    int n = 0;

    if (!setting->value)
        return command;
    while (command[n])
        n++;
    char **words = vp_arena_array(arena, n + 1 + 2 * r->n_axes, sizeof *words);
    if (!words)
        return NULL;
    for (int i = 0; i < n; i++)
        words[i] = filled(arena, r->axes, r->n_axes, setting->value, command[i]);
    for (int a = 0; a < r->n_axes; a++)
        if (r->axes[a].option)
            set_option(arena, words, &n, r->axes[a].name, r->axes[a].values[setting->value[a]]);
    return vp_arena_failed(arena) ? NULL : words;
}
