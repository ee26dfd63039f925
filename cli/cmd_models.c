#include "cli/cli.h"
#include "cli/names.h"
#include "cli/priced_model.h"
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

/* What its graph says, or without one its config and the recorded step. */
typedef struct sizes {
    int64_t params, positions, vocabulary; /* -1: it has none */
} sizes;

static sizes sizes_of(const vp_zoo_entry *z, const vp_model *model)
{
    const json_t *positions  = vp_model_text_field(model, "max_position_embeddings"),
                 *vocabulary = vp_model_text_field(model, "vocab_size");

    if (vp_zoo_has_graph(z))
        return (sizes){model->n_params, model->graph.max_seq, model->graph.vocab_size};
    return (sizes){vp_hf_parameters(model, NULL), positions ? json_integer_value(positions) : -1,
                   vocabulary ? json_integer_value(vocabulary) : -1};
}

static void print_count(const char *label, int64_t n)
{
    char text[32];

    if (n >= 0)
        printf("  %-12s %s\n", label, vp_count_text(n, text, sizeof text));
}

/* One model in full. */
static void print_model(const vp_zoo_entry *z, const vp_model *model, sizes s)
{
    char count[32];

    printf("%s: %s parameters\n", z->name, vp_count_text(s.params, count, sizeof count));
    printf("  %-12s %s\n", "family", model->family);
    print_count("positions", s.positions);
    print_count("vocabulary", s.vocabulary);
    printf("  %-12s %s\n", "Hub id", or_none(z->hub_id));
    if (!vp_zoo_has_graph(z))
        printf("  %-12s %s\n", "known to",
               "other trainers alone: vplan estimate, plan --trainer hf, check");
    vp_screen_entry(15, "  source", z->source);
    for (int64_t i = 0; i < model->n_assumptions; i++)
        vp_screen_entry(15, i ? "" : "  assumed", model->assumptions[i]);
    print_folded(z->config);
}

static vp_status add(json_t *list, const vp_zoo_entry *z, const vp_model *model, sizes s,
                     vp_err *err)
{
    json_t *j = json_pack(
        "{s:s, s:s, s:I, s:o, s:o, s:s?, s:s, s:b, s:O}", "name", z->name, "family", model->family,
        "params_total", (json_int_t)s.params, "max_seq", vp_json_int_or_null(s.positions),
        "vocab_size", vp_json_int_or_null(s.vocabulary), "hub_id", z->hub_id, "source", z->source,
        "has_graph", (int)vp_zoo_has_graph(z), "config", model->config);
    vp_status st = VP_OK;

    VP_TRY_ALLOC(err, j);
    VP_TRY_ALLOC(err, json_array_append_new(list, j) == 0);
out:
    return st;
}

/* An id that is too long for its column stands in a line of its own. */
static void print_row(const vp_zoo_entry *z, const vp_model *model, sizes s)
{
    enum { WIDTH = 80, COUNT_ENDS = 34 };
    const char *id = or_none(z->hub_id);
    char        count[32];
    int         n = printf("%s", z->name);

    n += printf(" %*s  %-8s", COUNT_ENDS - n - 1, vp_count_text(s.params, count, sizeof count),
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
    int                 n_recorded = 0;
    vp_status           st         = VP_OK;

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
        vp_model_opts opts = {.config_only = !vp_zoo_has_graph(z)};
        VP_TRY(vp_model_open(z->name, &opts, &model, err));
        n_recorded += opts.config_only;
        sizes s = sizes_of(z, model);
        VP_TRY(add(list, z, model, s, err));
        if (!cli->json && name)
            print_model(z, model, s);
        else if (!cli->json)
            print_row(z, model, s);
        vp_model_free(model);
        model = NULL;
    }
    if (!cli->json && !name)
        printf("The last %d are known to vplan estimate, plan and check of other trainers alone.\n"
               "The config.json of one and its source: vplan models NAME\n",
               n_recorded);
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
    .summary   = "the built-in models",
    .usage     = {"[NAME] [--json]"},
    .about     = {"The built-in models: parameters, family, the Hub id of the same model, and "
                      "where the numbers are from; of one, named like that or by its Hub id, the "
                      "config.json too."},
    .examples  = {"vplan models", "vplan models llama-3.1-8b"},
    .argument  = VP_TAKES_MODEL,
    .max_words = 1,
    .run       = run,
};
