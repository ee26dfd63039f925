#include "cli/cli.h"

#include "core/text.h"
#include "core/units.h"

#include <stdio.h>
#include <string.h>

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    const char *name = NULL;
    json_t     *list = json_array();
    int         n;
    bool        found = false;
    char        shown[96], count[32];
    vp_status   st = VP_OK;

    VP_TRY_ALLOC(err, list);
    VP_TRY(vp_options_parse(argc, argv, NULL, 0, &name, 1, &n, NULL, err));
    for (int i = 0; vp_zoo_at(i); i++) {
        const vp_zoo_entry *z = vp_zoo_at(i);
        vp_model           *model;
        if (name && strcmp(name, z->name) != 0)
            continue;
        found = true;
        VP_TRY(vp_model_open(z->name, &(vp_model_opts){0}, &model, err));
        json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:I, s:I, s:s, s:O}", "name", z->name, "family", model->family, "params_total",
                                              (json_int_t)model->n_params, "max_seq", (json_int_t)model->graph.max_seq, "vocab_size",
                                              (json_int_t)model->graph.vocab_size, "source", z->source, "config", model->config));
        if (!cli->json)
            printf("%-12s %15s parameters  %s  %s\n", z->name, vp_count_text(model->n_params, count, sizeof count), model->family, z->source);
        vp_model_free(model);
    }
    if (name && !found)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "no built-in model %s; vplan models lists them", vp_text_escape(name, shown, sizeof shown)));
    if (cli->json) {
        st   = vp_print_json(json_pack("{s:i, s:o}", "schema_version", 1, "models", list), err);
        list = NULL;
    }
out:
    json_decref(list);
    return st;
}

const vp_command vp_cmd_models = {"models", "[NAME] [--json]", "the models that need no file", run};
