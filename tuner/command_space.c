#include "tuner/command_internal.h"

#include "base/text.h"
#include "trainers/files/settings.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VALUES = 64, MAX_SETTINGS = 20000 };

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

/* Of two values of an axis the one that needs no more and is no slower: one kernel in the place of several, which keep what is
 * between them. */
static const struct {
    const char *word, *worse, *better;
} orders[] = {
    {"optim", "adamw_torch", "adamw_torch_fused"},
    {"optim", "foreach", "fused"},
    {"optimizer", "adamw_torch", "adamw_torch_fused"},
    {"optimizer", "foreach", "fused"},
    {"attn", "eager", "sdpa"},
    {"attention", "eager", "sdpa"},
};

/* Whether value i of an axis of two is better than the other. */
static bool is_better(const vp_axis *axis, int i)
{
    for (size_t k = 0; k < sizeof orders / sizeof *orders; k++)
        if (has_word(axis->name, orders[k].word) &&
            strcmp(axis->values[i], orders[k].better) == 0 &&
            strcmp(axis->values[1 - i], orders[k].worse) == 0)
            return true;
    return false;
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
    if (axis->n == 2 && (is_better(axis, 0) || is_better(axis, 1)))
        return VP_AXIS_BETTER;
    if (numbers && any_word(axis->name, times))
        return VP_AXIS_TIMES;
    return numbers && any_word(axis->name, sizes) ? VP_AXIS_SIZE : VP_AXIS_PLAIN;
}

/* ---- axes ---- */

static bool same_value(const char *a, const char *b)
{
    char  *ea, *eb;
    double x = strtod(a, &ea), y = strtod(b, &eb);

    if (ea != a && eb != b && !*ea && !*eb)
        return x == y;
    return strcmp(a, b) == 0 ||
           (truth(a) >= 0 && truth(a) == truth(b) && !isdigit((unsigned char)*a));
}

/* What needs less is later: of truth values the true one, else as they are given. */
static void sort_values(vp_axis *axis)
{
    if (axis->kind == VP_AXIS_SAVES && (truth(axis->values[0]) < 0 || truth(axis->values[1]) < 0))
        return;
    for (int i = 1; i < axis->n; i++)
        for (int k = i; k > 0; k--) {
            bool after = axis->kind == VP_AXIS_BETTER ? is_better(axis, k - 1)
                         : axis->kind == VP_AXIS_SAVES
                             ? truth(axis->values[k - 1]) > truth(axis->values[k])
                             : vp_axis_number(axis, k - 1) > vp_axis_number(axis, k);
            if (!after)
                break;
            const char *v       = axis->values[k];
            axis->values[k]     = axis->values[k - 1];
            axis->values[k - 1] = v;
        }
}

static vp_status read_values(vp_command_space *space, vp_axis *axis, const char *values,
                             vp_err *err)
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

/* Whether a command without this option has the value all the same. */
static bool is_had(const char *had, const char *value)
{
    return had ? same_value(had, value) || (strcmp(had, "on") == 0 && truth(value) == 1)
               : strcmp(value, "off") == 0;
}

vp_status vp_space_add_axis(vp_command_space *space, vp_axis axis, const char *values,
                            const char *had, char *const *command, vp_err *err)
{
    vp_status st = VP_OK;

    axis.had = -1;

    if (!space->axes)
        space->axes = vp_arena_array(space->arena, VP_COMMAND_MAX_AXES, sizeof *space->axes);
    VP_TRY_ALLOC(err, space->axes);
    if (space->n_axes == VP_COMMAND_MAX_AXES)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "more than %d --try", VP_COMMAND_MAX_AXES));
    for (int a = 0; a < space->n_axes; a++)
        if (strcmp(space->axes[a].name, axis.name) == 0)
            VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--try %s is given twice", axis.name));
    VP_TRY(read_values(space, &axis, values, err));
    axis.kind = axis.kind ? axis.kind : kind_of(&axis);
    if (axis.kind != VP_AXIS_PLAIN)
        sort_values(&axis);
    if (axis.place == VP_AXIS_OPTION)
        had = vp_command_value(command, axis.name, NULL);
    else if (axis.place == VP_AXIS_WORD && vp_command_word(command, axis.name, NULL))
        had = vp_command_word(command, axis.name, NULL);
    for (int i = 0; i < axis.n && (had || axis.place == VP_AXIS_OPTION); i++)
        if (is_had(had, axis.values[i]))
            axis.had = i;
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

/* A name that is no place in the command: a key of a file that it names, a setting that its files say, or a word name=value that a
 * command of such words leaves out. */
static vp_status find_in_files(const vp_command_space *space, vp_axis *axis, const char **had,
                               char *const *command, vp_err *err)
{
    bool by_default;

    axis->place = VP_AXIS_KEY;
    axis->file  = vp_command_files_key(space->files, axis->name, had);
    if (axis->file >= 0)
        return VP_OK;
    for (int s = 0; space->files && s < VP_N_SETTINGS; s++)
        if (strcmp(vp_setting_key((vp_setting)s), axis->name) == 0) {
            axis->place   = VP_AXIS_SETTING;
            axis->setting = s;
            *had          = vp_command_files_says(space->files, s, &by_default);
            return VP_OK;
        }
    if (vp_command_has_words(command)) {
        axis->place = VP_AXIS_WORD;
        return VP_OK;
    }
    return VP_FAIL(
        err, VP_ERR_USAGE,
        "--try %s: the command has no {%s}%s; an option of it is written with its dashes, "
        "--try --%s=...",
        axis->name, axis->name, space->files ? ", and no file that it names has such a key" : "",
        axis->name);
}

static vp_status add_try(vp_command_space *space, const char *text, char *const *command,
                         vp_err *err)
{
    const char *equal = strchr(text, '='), *had = NULL;
    vp_axis     axis = {0};
    char       *name;
    vp_status   st = VP_OK;

    if (!equal || equal == text || !equal[1])
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--try %.100s: NAME=V1,V2,... is wanted", text));
    name = vp_arena_printf(space->arena, "%.*s", (int)(equal - text), text);
    VP_TRY_ALLOC(err, name);
    axis.name  = name;
    axis.place = name[0] == '-' ? VP_AXIS_OPTION : VP_AXIS_BRACES;
    if (name[0] != '-' && !has_place(command, name)) {
        if (vp_command_word(command, name, NULL))
            axis.place = VP_AXIS_WORD;
        else
            VP_TRY(find_in_files(space, &axis, &had, command, err));
    }
    VP_TRY(vp_space_add_axis(space, axis, equal + 1, had, command, err));
out:
    return st;
}

/* ---- settings ---- */

vp_status vp_space_settings(vp_command_space *space, vp_err *err)
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

vp_status vp_space_keep(vp_command_space *space, const char *expression, vp_err *err)
{
    const char *equal = strchr(expression, '='), *p = expression;
    double      factor                    = 1, wanted;
    bool        used[VP_COMMAND_MAX_AXES] = {false};
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

void vp_space_learn(vp_command_space *space, const char *arguments)
{
    json_t     *all = json_loads(arguments, 0, NULL), *value;
    const char *name;

    for (int a = 0; a < space->n_axes; a++) {
        vp_axis *axis = &space->axes[a];
        if (axis->place != VP_AXIS_OPTION || axis->had >= 0)
            continue;
        json_object_foreach (all, name, value)
            for (int i = 0; i < axis->n && same_name(axis->name, name, strlen(name)); i++)
                if (same_value(json_string_value(value), axis->values[i]))
                    axis->had = i;
    }
    json_decref(all);
}

vp_status vp_space_tries(const vp_command_opts *opts, vp_command_space *space, vp_err *err)
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

        if (axes[a].place != VP_AXIS_BRACES)
            continue;
        snprintf(place, sizeof place, "{%s}", axes[a].name);
        while (text && (at = strstr(text, place)))
            text = vp_arena_printf(arena, "%.*s%s%s", (int)(at - text), text,
                                   axes[a].values[values[a]], at + strlen(place));
    }
    return text ? vp_arena_strdup(arena, text) : NULL;
}

static vp_status set_words(const vp_command_result *r, const vp_command_setting *setting,
                           vp_arena *arena, char **words, int *n, vp_err *err)
{
    vp_status st = VP_OK;

    for (int a = 0; a < r->n_axes; a++) {
        const char *value = r->axes[a].values[setting->value[a]];
        if (r->axes[a].place == VP_AXIS_OPTION)
            vp_command_set_option(arena, words, n, r->axes[a].name, value);
        else if (r->axes[a].place == VP_AXIS_WORD)
            vp_command_set_word(arena, words, n, r->axes[a].name, value);
        else if (r->axes[a].place == VP_AXIS_VARIABLE && strcmp(value, "default") != 0)
            VP_TRY(vp_command_set_variable(arena, words, n, r->axes[a].name, value, err));
    }
out:
    return st;
}

vp_status vp_command_with(const vp_command_result *r, char *const *command,
                          const vp_command_setting *setting, const vp_file_places *places,
                          vp_arena *arena, char *const **out, vp_file_change **changes,
                          int *n_changes, vp_err *err)
{
    int       n  = 0;
    vp_status st = VP_OK;

    *n_changes = 0, *changes = NULL;
    while (command[n])
        n++;
    char **words =
        vp_arena_array(arena, n + 3 + 2 * r->n_axes + VP_COMMAND_MAX_EDITED_WORDS, sizeof *words);
    VP_TRY_ALLOC(err, words);
    for (int i = 0; i < n; i++)
        words[i] = setting->value ? filled(arena, r->axes, r->n_axes, setting->value, command[i])
                                  : vp_arena_strdup(arena, command[i]);
    VP_TRY_ALLOC(err, !vp_arena_failed(arena));
    if (r->files)
        VP_TRY(vp_command_files_change(r->files, r->axes, setting->value ? r->n_axes : 0,
                                       setting->value, places, arena, words, &n, changes, n_changes,
                                       err));
    if (setting->value)
        VP_TRY(set_words(r, setting, arena, words, &n, err));
    VP_TRY_ALLOC(err, !vp_arena_failed(arena));
    *out = words;
out:
    return st;
}

char *const *vp_command_line_of(const vp_command_result *r, char *const *command,
                                const vp_command_setting *setting, vp_arena *arena)
{
    char *const    *words;
    vp_file_change *changes;
    int             n;
    vp_err          err = {0};

    if (!setting->value)
        return command;
    return vp_command_with(r, command, setting, &(vp_file_places){0}, arena, &words, &changes, &n,
                           &err) == VP_OK
               ? words
               : NULL;
}
