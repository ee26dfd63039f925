#include "cli/cli.h"

#include "core/text.h"
#include "core/units.h"

#include <stdlib.h>
#include <string.h>

/* Edit distance of two option names, for "did you mean". */
static int distance(const char *a, const char *b)
{
    int row[65], n = (int)strlen(b);

    if (strlen(a) > 64 || n > 64)
        return 99;
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0]       = i;
        for (int j = 1; j <= n; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            best     = best < row[j] + 1 ? best : row[j] + 1;
            best     = best < row[j - 1] + 1 ? best : row[j - 1] + 1;
            diagonal = row[j];
            row[j]   = best;
        }
    }
    return row[n];
}

static vp_status unknown_option(const char *word, const vp_option *options, int n, vp_err *err)
{
    const char *nearest = "--json";
    int         best    = distance(word, nearest);
    char        shown[128];

    for (int i = 0; i < n; i++)
        if (distance(word, options[i].name) < best) {
            best    = distance(word, options[i].name);
            nearest = options[i].name;
        }
    vp_text_escape(word, shown, sizeof shown);
    if (best <= 3)
        return VP_FAIL(err, VP_ERR_USAGE, "unknown option %s; did you mean %s?", shown, nearest);
    return VP_FAIL(err, VP_ERR_USAGE, "unknown option %s", shown);
}

static vp_status set_value(const vp_option *o, const char *text, vp_err *err)
{
    switch (o->kind) {
    case VP_OPTION_TEXT:
        *(const char **)o->value = text;
        return VP_OK;
    case VP_OPTION_SIZE:
        return vp_size_parse(text, o->value, err);
    case VP_OPTION_COUNT:
        return vp_count_parse(text, o->name, 1, INT64_C(1000000000000), o->value, err);
    case VP_OPTION_SEED:
        return vp_count_parse(text, o->name, 0, INT64_MAX, o->value, err);
    case VP_OPTION_REAL:
        return vp_real_parse(text, o->name, 0, 1e30, o->value, err);
    case VP_OPTION_FLAG:
        break;
    }
    return VP_OK;
}

vp_status vp_options_parse(int argc, char **argv, const vp_option *options, int n_options, const char **positional, int max_positional,
                           int *n_positional, char ***rest, vp_err *err)
{
    bool     *given = calloc((size_t)n_options + 1, sizeof *given);
    char      shown[128];
    bool      ended = false;
    vp_status st    = VP_OK;

    *n_positional = 0;
    if (rest)
        *rest = NULL;
    VP_TRY_ALLOC(err, given);
    for (int i = 0; i < argc; i++) {
        const char *word  = argv[i];
        const char *equal = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
        size_t      n     = equal ? (size_t)(equal - word) : strlen(word);
        int         k     = 0;

        if (!ended && strcmp(word, "--") == 0) {
            ended = true;
            if (rest) {
                *rest = argv + i + 1;
                break;
            }
            continue;
        }
        if (ended || word[0] != '-' || !word[1]) {
            if (*n_positional == max_positional)
                VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "one argument too many: %s", vp_text_escape(word, shown, sizeof shown)));
            positional[(*n_positional)++] = word;
            continue;
        }
        if (strcmp(word, "--json") == 0)
            continue;
        while (k < n_options && (strlen(options[k].name) != n || strncmp(options[k].name, word, n) != 0))
            k++;
        if (k == n_options)
            VP_TRY(unknown_option(word, options, n_options, err));
        if (given[k])
            VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "%s is given twice", options[k].name));
        given[k] = true;
        if (options[k].kind == VP_OPTION_FLAG) {
            if (equal)
                VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "%s takes no value", options[k].name));
            *(bool *)options[k].value = true;
            continue;
        }
        if (!equal && i + 1 == argc)
            VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "%s needs a value", options[k].name));
        VP_TRY(set_value(&options[k], equal ? equal + 1 : argv[++i], err));
    }
out:
    free(given);
    return st;
}
