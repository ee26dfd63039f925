#include "trainers/hf/hf_matrices.h"

#include "trainers/torch/optimizer_settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A parameter of the graph. */
typedef struct known {
    const vp_param *param;
    int64_t         instance;  /* "{}" in its name */
    bool            is_linear; /* of an nn.Linear: GPT-2's Conv1D is none */
    bool            is_taken;
} known;

static bool is_linear(const vp_template *t, int64_t param)
{
    for (int64_t i = 0; i < t->n_ops; i++) {
        const vp_graph_op *op = &t->ops[i];
        if (op->op == VP_OP_LINEAR && op->layout == VP_WEIGHT_OUT_IN && op->param[0].used &&
            !op->param[0].shared && op->param[0].idx == param)
            return true;
    }
    return false;
}

static vp_status list_known(const vp_graph *g, known **out, int64_t *n, vp_err *err)
{
    known    *list;
    vp_status st = VP_OK;

    *out = NULL;
    *n   = 0;
    for (int64_t i = 0; i < g->n_instances; i++)
        *n += g->templates[g->instances[i].template_idx].n_params;
    list = calloc((size_t)*n + 1, sizeof *list);
    VP_TRY_ALLOC(err, list);
    *n = 0;
    for (int64_t i = 0; i < g->n_instances; i++) {
        const vp_template *t = &g->templates[g->instances[i].template_idx];
        for (int64_t j = 0; j < t->n_params; j++)
            list[(*n)++] = (known){.param     = &t->params[j],
                                   .instance  = g->instances[i].index,
                                   .is_linear = is_linear(t, j)};
    }
    *out = list;
out:
    return st;
}

/* "model.layers.3.mlp.up_proj" of "model.layers.{}.mlp.up_proj.weight". */
static void module_of(const known *k, char *name, size_t n)
{
    const char *from = k->param->name, *at = strstr(from, "{}");
    int64_t     index = k->instance + k->param->index_offset;

    if (at)
        snprintf(name, n, "%.*s%lld%s", (int)(at - from), from, (long long)index, at + 2);
    else
        snprintf(name, n, "%s", from);
    if (strlen(name) > strlen(".weight"))
        name[strlen(name) - strlen(".weight")] = '\0';
}

/* Muon is given the matrices of layers, others what is named to them of the linear layers. */
static bool is_matrix(const known *k, const vp_optimizer_settings *settings)
{
    char name[256];

    if (k->param->rank != 2)
        return false;
    if (!settings->rank)
        return strstr(k->param->name, "{}") != NULL;
    module_of(k, name, sizeof name);
    return k->is_linear && vp_optimizer_projects(settings, name);
}

/* Of one size the first is the first: a layer's come behind those of the layer before, here and there. Which of two of a size in one
 * layer is meant decides an order alone. */
static known *next_of(known *list, int64_t n, int64_t elements)
{
    for (int64_t i = 0; i < n; i++)
        if (!list[i].is_taken && list[i].param->n_elements == elements) {
            list[i].is_taken = true;
            return &list[i];
        }
    return NULL;
}

/* Of its config, for the model may have been opened without. NULL: the family has none. */
static vp_model *graph_of(const vp_model *model)
{
    vp_model_opts opts    = {.dropout_from_config = true, .class_name = model->class_name};
    char         *text    = json_dumps(model->config, 0);
    vp_json_doc  *doc     = NULL;
    vp_model     *out     = NULL;
    vp_err        ignored = {0};

    if (text && vp_json_parse(model->name, text, (int64_t)strlen(text), &doc, &ignored) == VP_OK) {
        vp_json_node config = vp_json_root(doc);
        if (vp_model_from_config(model->name, &config, &opts, &out, &ignored) != VP_OK)
            out = NULL;
    }
    vp_json_doc_free(doc);
    free(text);
    return out;
}

void vp_hf_adapter_matrices(int64_t rank, vp_trained *list, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        vp_trained *t    = &list[i];
        bool        is_a = i % 2 == 0;
        t->columns       = is_a ? t->bytes / t->element_bytes / rank : rank;
        t->is_matrix     = true;
    }
}

vp_status vp_hf_matrices(const vp_model *model, const char *optimizer, vp_trained *list, int64_t n,
                         vp_err *err)
{
    vp_optimizer_settings settings;
    vp_model             *with_graph = NULL;
    known                *of_graph   = NULL;
    int64_t               n_known = 0, n_matrices = 0;
    vp_status             st = VP_OK;

    VP_TRY(vp_optimizer_settings_parse(optimizer, &settings, err));
    with_graph = graph_of(model);
    if (with_graph)
        VP_TRY(list_known(&with_graph->graph, &of_graph, &n_known, err));
    for (int64_t i = 0; i < n; i++) {
        vp_trained *t = &list[i];
        known      *k = next_of(of_graph, n_known, t->bytes / t->element_bytes);
        if (!k)
            VP_TRY(VP_FAIL(err, VP_ERR_INPUT,
                           "optimizer %s: rows and columns of the matrices of %s are not known "
                           "here; those of families that vplan has a graph of are",
                           settings.name, model->name));
        t->columns   = k->param->rank == 2 ? k->param->shape[1] : 0;
        t->is_matrix = is_matrix(k, &settings);
        n_matrices += t->is_matrix;
    }
    if (!n_matrices && settings.rank)
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT,
                       "optimizer %s: no linear layer of %s that is trained is among the targets "
                       "%s",
                       settings.name, model->name, settings.targets));
out:
    free(of_graph);
    vp_model_free(with_graph);
    return st;
}
