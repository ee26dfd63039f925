#include "cli/cli.h"
#include "cli/names.h"
#include "cli/screen.h"

#include "base/units.h"

#include <stdio.h>
#include <string.h>

static const char *or_none(const char *text)
{
    return text ? text : "-";
}

/* The text of a config.json, as wide as a screen. */
static void print_folded(const char *text)
{
    for (int column = 0; *text; text++) {
        bool fold = text[0] == ',' && text[1] == ' ' &&
                    column + 2 + (int)strcspn(text + 1, ",") > VP_SCREEN_COLUMNS;
        column = fold ? 0 : column + 1;
        fputs(fold ? ",\n" : (char[]){*text, '\0'}, stdout);
        text += fold;
    }
    putchar('\n');
}

/* One model in full. */
static void print_model(const vp_zoo_entry *z, const vp_model *model)
{
    char count[32], positions[32], vocabulary[32];

    printf("%s: %s parameters\n", z->name, vp_count_text(model->n_params, count, sizeof count));
    printf("  %-12s %s\n", "family", model->family);
    printf("  %-12s %s\n", "positions",
           vp_count_text(model->graph.max_seq, positions, sizeof positions));
    printf("  %-12s %s\n", "vocabulary",
           vp_count_text(model->graph.vocab_size, vocabulary, sizeof vocabulary));
    printf("  %-12s %s\n", "Hub id", or_none(z->hub_id));
    vp_screen_entry(15, "  source", z->source);
    for (int64_t i = 0; i < model->n_assumptions; i++)
        vp_screen_entry(15, i ? "" : "  assumed", model->assumptions[i]);
    print_folded(z->config);
}

static vp_status add(json_t *list, const vp_zoo_entry *z, const vp_model *model, vp_err *err)
{
    json_t   *j  = json_pack("{s:s, s:s, s:I, s:I, s:I, s:s?, s:s, s:O}", "name", z->name, "family",
                             model->family, "params_total", (json_int_t)model->n_params, "max_seq",
                             (json_int_t)model->graph.max_seq, "vocab_size",
                             (json_int_t)model->graph.vocab_size, "hub_id", z->hub_id, "source",
                             z->source, "config", model->config);
    vp_status st = VP_OK;

    VP_TRY_ALLOC(err, j);
    VP_TRY_ALLOC(err, json_array_append_new(list, j) == 0);
out:
    return st;
}

/* An id that is too long for its column stands in a line of its own. */
static void print_row(const vp_zoo_entry *z, const vp_model *model)
{
    enum { WIDTH = 80 };
    const char *id = or_none(z->hub_id);
    char        count[32];
    int n = printf("%-18s %15s  %-8s", z->name, vp_count_text(model->n_params, count, sizeof count),
                   model->family);

    if (n + 1 + (int)strlen(id) > WIDTH)
        printf("\n%*s\n", WIDTH, id);
    else
        printf(" %s\n", id);
}

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    const char         *name;
    json_t             *list  = json_array();
    vp_model           *model = NULL;
    const vp_zoo_entry *z;
    vp_command_line     line;
    vp_status           st = VP_OK;

    VP_TRY_ALLOC(err, list);
    VP_TRY(vp_cli_parse(&vp_cmd_models, argc, argv, cli, NULL, &line, err));
    name = line.words[0] ? vp_built_in_name(line.words[0]) : NULL;
    if (line.words[0] && !name)
        VP_TRY(vp_built_in_missing(line.words[0], err));
    if (!cli->json && !name)
        printf("%-18s %15s  %-8s %s\n", "name", "parameters", "family", "Hub id of the same model");
    for (int i = 0; (z = vp_zoo_at(i)); i++) {
        if (name && strcmp(z->name, name) != 0)
            continue;
        VP_TRY(vp_model_open(z->name, &(vp_model_opts){0}, &model, err));
        VP_TRY(add(list, z, model, err));
        if (!cli->json && name)
            print_model(z, model);
        else if (!cli->json)
            print_row(z, model);
        vp_model_free(model);
        model = NULL;
    }
    if (!cli->json && !name)
        printf("The config.json of one and its source: vplan models NAME\n");
    if (cli->json) {
        st   = vp_print_json(json_pack("{s:i, s:o}", "schema_version", 1, "models", list), err);
        list = NULL;
    }
out:
    vp_model_free(model);
    json_decref(list);
    return st;
}

const vp_command vp_cmd_models = {
    .name      = "models",
    .summary   = "the models that need no file",
    .usage     = {"[NAME] [--json]"},
    .about     = {"The built-in models: parameters, family, the Hub id of the same model, and "
                      "where the numbers are from; of one, named like that or by its Hub id, the "
                      "config.json too."},
    .examples  = {"vplan models", "vplan models llama-3.1-8b"},
    .argument  = VP_TAKES_MODEL,
    .max_words = 1,
    .run       = run,
};
