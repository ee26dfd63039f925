#include "models/lora.h"

#include "base/text.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const char ALL[] = "all-linear", WEIGHT[] = ".weight";

/* The layer a weight belongs to: the word before ".weight", which ends at *end. */
static const char *module_of(const char *weight, size_t *end)
{
    size_t n = strlen(weight) - strlen(WEIGHT), first = n;

    assert(strlen(weight) > strlen(WEIGHT) && strcmp(weight + n, WEIGHT) == 0);
    while (first > 0 && weight[first - 1] != '.')
        first--;
    *end = n;
    return weight + first;
}

/* Of the output layer, and of what is tied, there are no adapters. */
static bool may_be_adapted(const vp_graph_op *op)
{
    return op->op == VP_OP_LINEAR && !op->chunked && op->param[0].used && !op->param[0].shared;
}

/* Whether the layer is the n characters at `name`. */
static bool is_named(const vp_template *t, const vp_graph_op *op, const char *name, size_t n)
{
    const char *weight = t->params[op->param[0].idx].name;
    size_t      end;
    const char *module = module_of(weight, &end);

    return (size_t)(weight + end - module) == n && memcmp(module, name, n) == 0;
}

static bool is_target(const vp_template *t, const vp_graph_op *op, const char *targets)
{
    if (!may_be_adapted(op))
        return false;
    if (strcmp(targets, ALL) == 0)
        return true;
    for (const char *at = targets; *at; at += strcspn(at, "+"), at += *at == '+')
        if (is_named(t, op, at, strcspn(at, "+")))
            return true;
    return false;
}

/* ---- refusals ---- */

static vp_status refuse_name(const vp_model *model, const char *name, size_t n, vp_err *err)
{
    const vp_graph *g    = &model->graph;
    vp_text         have = {0};
    char            shown[96];

    for (int64_t i = 0; i < g->n_templates; i++)
        for (int64_t k = 0; k < g->templates[i].n_ops; k++) {
            const vp_template *t = &g->templates[i];
            size_t             end;
            if (!may_be_adapted(&t->ops[k]))
                continue;
            const char *weight = t->params[t->ops[k].param[0].idx].name;
            const char *module = module_of(weight, &end);
            vp_text_printf(&have, "%s%.*s", have.n_bytes ? ", " : "", (int)(weight + end - module),
                           module);
        }
    vp_status st = VP_FAIL(err, VP_ERR_INPUT,
                           "adapters: %s has no linear layers named \"%.*s\"; it has %s, and "
                           "all-linear means all",
                           vp_text_escape(model->name, shown, sizeof shown), (int)n, name,
                           have.data ? have.data : "none");
    vp_text_release(&have);
    return st;
}

static vp_status check_targets(const vp_model *model, const char *targets, vp_err *err)
{
    const vp_graph *g = &model->graph;

    for (const char *at = targets; strcmp(targets, ALL) != 0 && *at;
         at += strcspn(at, "+"), at += *at == '+') {
        bool known = false;
        for (int64_t i = 0; i < g->n_templates; i++)
            for (int64_t k = 0; k < g->templates[i].n_ops; k++)
                known |= may_be_adapted(&g->templates[i].ops[k]) &&
                         is_named(&g->templates[i], &g->templates[i].ops[k], at, strcspn(at, "+"));
        if (!known)
            return refuse_name(model, at, strcspn(at, "+"), err);
    }
    return VP_OK;
}

/* ---- the transformation ---- */

static vp_param_ref add_matrix(vp_graph_builder *b, int template_idx, const vp_param *base,
                               const char *what, int64_t rows, int64_t cols, double std)
{
    size_t   end = strlen(base->name) - strlen(WEIGHT);
    vp_param p   = {.name  = vp_arena_printf(b->arena, "%.*s.%s.weight", (int)end, base->name, what),
                    .rank  = 2,
                    .shape = {rows, cols},
                    .init  = std > 0 ? VP_INIT_UNIFORM : VP_INIT_ZEROS,
                    .init_std     = std,
                    .decay        = true,
                    .block_matrix = base->block_matrix};

    return (vp_param_ref){.used = true, .idx = vp_graph_add_param(b, template_idx, p)};
}

/* A number that none of the template's random ops has. */
static int next_rng_id(const vp_template *t)
{
    int next = 0;

    for (int64_t k = 0; k < t->n_ops; k++)
        if (vp_op_info_of(t->ops[k].op)->random && t->ops[k].rng_id >= next)
            next = t->ops[k].rng_id + 1;
    return next;
}

static void adapt(vp_graph_builder *b, int template_idx, int64_t op_idx, const vp_lora *lora)
{
    vp_template *t      = &b->graph->templates[template_idx];
    vp_graph_op  op     = t->ops[op_idx];
    vp_param     base   = t->params[op.param[0].idx];
    bool         out_in = op.layout == VP_WEIGHT_OUT_IN;
    int64_t      in = base.shape[out_in ? 1 : 0], out = base.shape[out_in ? 0 : 1];

    op.op     = VP_OP_ADAPTED;
    op.scale  = vp_lora_scale(lora);
    op.p      = lora->dropout;
    op.rng_id = next_rng_id(t);
    /* A as torch.nn.Linear begins, uniform in +-1 / sqrt(in); B zero, so that nothing changes at first */
    op.param[2] =
        add_matrix(b, template_idx, &base, "lora_A", lora->rank, in, 1.0 / sqrt(3.0 * (double)in));
    op.param[3] = add_matrix(b, template_idx, &base, "lora_B", out, lora->rank, 0);
    op.out[1]   = vp_graph_add_tensor(
          b, template_idx, vp_tensor_rows(vp_arena_printf(b->arena, "%s.lora", op.name), lora->rank));
    if (vp_arena_failed(b->arena))
        return;
    t->params[op.param[0].idx].in_out = !out_in;
    t->tensors[op.out[1]].producer    = (int)op_idx;
    t->ops[op_idx]                    = op;
}

vp_status vp_lora_add(vp_model *model, const vp_lora *lora, vp_err *err)
{
    vp_graph        *g  = &model->graph;
    vp_graph_builder b  = {.arena = model->arena, .graph = g};
    vp_status        st = VP_OK;

    assert(lora->rank > 0);
    if (model->head != VP_HEAD_NEXT_TOKEN)
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT,
                       "adapters: %s has no causal language model's head; others are trained whole "
                       "beside adapters, which is not supported",
                       model->class_name));
    VP_TRY(check_targets(model, lora->targets, err));
    for (int i = 0; i < g->n_templates; i++) {
        for (int64_t k = 0; k < g->templates[i].n_params; k++)
            g->templates[i].params[k].frozen = true;
        for (int64_t k = 0; k < g->templates[i].n_ops; k++)
            if (is_target(&g->templates[i], &g->templates[i].ops[k], lora->targets))
                adapt(&b, i, k, lora);
    }
    VP_TRY_ALLOC(err, !vp_arena_failed(model->arena));
out:
    return st;
}
