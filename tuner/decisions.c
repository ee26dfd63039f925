/* Plans as text: one text, one plan. */
#include "tuner/tune_internal.h"

#include "base/text.h"

#include <assert.h>
#include <string.h>

static json_t *op_names(const vp_template *block, uint64_t set)
{
    json_t *names = json_array();

    assert(block->n_ops <= 64); /* each has a bit of the set */
    for (int i = 0; i < block->n_ops; i++)
        if (set >> i & 1)
            json_array_append_new(names, json_string(block->ops[i].name));
    return names;
}

static json_t *run_json(const vp_template *block, const vp_block_run *run)
{
    json_t *j = json_pack("{s:I, s:I, s:o}", "n_blocks", (json_int_t)run->n_blocks, "segment",
                          (json_int_t)run->segment, "recompute",
                          run->segment > 1 ? json_array() : op_names(block, run->recompute));

    if (j && run->offload)
        json_object_set_new(j, "offload", op_names(block, run->offload));
    return j;
}

static json_t *offload_json(const vp_template *block, const vp_offload *o)
{
    json_t *j =
        json_pack("{s:I, s:b, s:i, s:o}", "states", (json_int_t)o->states, "blocks", (int)o->blocks,
                  "slots", o->n_slots, "activations", op_names(block, o->activations));

    if (j && o->host_step)
        json_object_set_new(j, "host_step", json_true());
    return j;
}

const char *vp_decisions_text(vp_arena *arena, const vp_model *model, const vp_scenario *s)
{
    const vp_template *block  = &model->graph.templates[vp_block_template(&model->graph)];
    json_t            *blocks = json_array();

    assert(s->n_runs >= 0 && s->n_runs <= VP_MAX_RUNS && s->micro_batch > 0);
    for (int i = 0; i < s->n_runs; i++)
        json_array_append_new(blocks, run_json(block, &s->runs[i]));
    json_t *j = json_pack("{s:I, s:I, s:s, s:s, s:s, s:s, s:o}", "micro_batch",
                          (json_int_t)s->micro_batch, "loss_chunk_tokens",
                          (json_int_t)s->loss_chunk, "attention", vp_attention_name(s->attention),
                          "precision", vp_precision_name(s->recipe.precision), "gradients",
                          vp_gradients_name(s->recipe.gradients), "optimizer",
                          vp_optimizer_name(s->recipe.optimizer), "blocks", blocks);
    if (j && vp_offload_kind_of(&s->offload) != VP_OFFLOAD_NONE)
        json_object_set_new(j, "offload", offload_json(block, &s->offload));
    char       *dump = j ? json_dumps(j, JSON_COMPACT) : NULL;
    const char *text = dump ? vp_arena_strdup(arena, dump) : NULL;
    free(dump);
    json_decref(j);
    return text;
}

/* Attention, precision, gradients and optimizer: a study from before they were free says nothing of them,
 * and means the request's. */
static vp_status read_kinds(const vp_json_node *root, vp_scenario *s, vp_err *err)
{
    const char *text;
    vp_status   st = VP_OK;

    if (vp_json_has(root, "attention")) {
        VP_TRY(vp_json_string(root, "attention", &text, err));
        s->attention = vp_attention_by_name(text);
    }
    if (vp_json_has(root, "precision")) {
        VP_TRY(vp_json_string(root, "precision", &text, err));
        s->recipe.precision = vp_precision_by_name(text);
    }
    if (vp_json_has(root, "gradients")) {
        VP_TRY(vp_json_string(root, "gradients", &text, err));
        s->recipe.gradients = vp_gradients_by_name(text);
        if (s->recipe.gradients == VP_N_GRADIENTS ||
            (s->recipe.precision != VP_N_PRECISIONS &&
             !vp_precision_takes(s->recipe.precision, s->recipe.gradients)))
            VP_TRY(vp_json_fail(root, "gradients", err, "not beside this precision"));
    }
    if (vp_json_has(root, "optimizer")) {
        VP_TRY(vp_json_string(root, "optimizer", &text, err));
        if (vp_optimizer_by_name(text) == VP_N_OPTIMIZERS)
            VP_TRY(vp_json_fail(root, "optimizer", err, "no such optimizer"));
        if (vp_optimizer_by_name(text) != s->recipe.optimizer)
            vp_recipe_set_optimizer(&s->recipe, vp_optimizer_by_name(text));
    }
    if (s->attention == VP_N_ATTENTIONS || s->recipe.precision == VP_N_PRECISIONS)
        VP_TRY(
            vp_json_fail(root, NULL, err, "names an attention or a precision that there is not"));
out:
    return st;
}

/* Ops of a block by their names, of those in the set `of`; a key that is left out: none. */
static vp_status read_ops(const vp_json_node *node, const char *key, const vp_template *block,
                          uint64_t of, uint64_t *set, vp_err *err)
{
    vp_json_node names, name;
    const char  *text;
    int64_t      n;
    vp_status    st = VP_OK;

    *set = 0;
    if (!vp_json_has(node, key))
        return VP_OK;
    VP_TRY(vp_json_array(node, key, &names, &n, err));
    for (int64_t k = 0; k < n; k++) {
        int op = 0;
        VP_TRY(vp_json_element(&names, k, &name, err));
        VP_TRY(vp_json_as_string(&name, &text, err));
        while (op < block->n_ops && strcmp(block->ops[op].name, text) != 0)
            op++;
        assert(op <= 64);
        if (op == block->n_ops || !(of >> op & 1))
            VP_TRY(
                vp_json_fail(&name, NULL, err, "is no op of this model's block that may be here"));
        *set |= (uint64_t)1 << op;
    }
out:
    return st;
}

/* What lies in host memory. Blocks in segments are neither streamed nor do they move anything. */
static vp_status read_offload(const vp_json_node *root, const vp_model *model, vp_scenario *s,
                              vp_err *err)
{
    const vp_template *block       = &model->graph.templates[vp_block_template(&model->graph)];
    int64_t            n_instances = model->graph.n_instances, slots;
    vp_offload        *o           = &s->offload;
    bool               segments    = false;
    vp_json_node       node;
    vp_status          st = VP_OK;

    if (!vp_json_has(root, "offload"))
        return VP_OK;
    VP_TRY(vp_json_object(root, "offload", &node, err));
    VP_TRY(vp_json_int(&node, "states", 0, n_instances, &o->states, err));
    VP_TRY(vp_json_bool(&node, "blocks", &o->blocks, err));
    if (vp_json_has(&node, "host_step"))
        VP_TRY(vp_json_bool(&node, "host_step", &o->host_step, err));
    VP_TRY(vp_json_int(&node, "slots", 0, VP_MAX_ACTIVATION_SLOTS, &slots, err));
    VP_TRY(read_ops(&node, "activations", block, UINT64_MAX, &o->activations, err));
    o->n_slots = (int)slots;
    for (int i = 0; i < s->n_runs; i++)
        segments |= s->runs[i].segment > 1;
    if ((o->blocks && (o->states < n_instances || !vp_may_stream(&model->graph))) ||
        (o->host_step && o->states == 0) || (o->activations != 0) != (slots > 0) ||
        (segments && (o->blocks || o->activations)))
        VP_TRY(vp_json_fail(&node, NULL, err, "is no offload of this model"));
out:
    return st;
}

static vp_status read_run(const vp_json_node *node, const vp_model *model, vp_block_run *run,
                          vp_err *err)
{
    const vp_template *block = &model->graph.templates[vp_block_template(&model->graph)];
    uint64_t           may   = vp_recompute_set(model, VP_RECOMPUTE_FULL);
    vp_status          st    = VP_OK;

    VP_TRY(vp_json_int(node, "n_blocks", 1, 1000000, &run->n_blocks, err));
    VP_TRY(vp_json_int(node, "segment", 1, vp_max_segment(model), &run->segment, err));
    VP_TRY(read_ops(node, "recompute", block, may, &run->recompute, err));
    VP_TRY(read_ops(node, "offload", block, UINT64_MAX, &run->offload, err));
    if (run->n_blocks % run->segment != 0 || (run->segment > 1 && (run->recompute || run->offload)))
        VP_TRY(vp_json_fail(node, NULL, err, "is no way to run blocks"));
    if (run->segment > 1)
        run->recompute = UINT64_MAX; /* of a segment everything */
out:
    return st;
}

vp_status vp_decisions_read(const vp_plan_request *request, const char *text, vp_scenario *out,
                            vp_err *err)
{
    const vp_model *model = request->model;
    vp_json_doc    *doc   = NULL;
    vp_json_node    runs, run;
    int64_t         n, n_blocks = 0;
    vp_status       st = VP_OK;

    *out = (vp_scenario){.recipe         = request->recipe,
                         .seq            = request->seq,
                         .global_batch   = request->global_batch,
                         .updates_at_end = request->updates == VP_UPDATES_END};
    VP_TRY(vp_json_parse("decisions", text, (int64_t)strlen(text), &doc, err));
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_json_int(&root, "micro_batch", 1, out->global_batch, &out->micro_batch, err));
    VP_TRY(vp_json_int(&root, "loss_chunk_tokens", 0, INT64_C(1) << 40, &out->loss_chunk, err));
    VP_TRY(read_kinds(&root, out, err));
    VP_TRY(vp_json_array(&root, "blocks", &runs, &n, err));
    if (n > VP_MAX_RUNS || out->loss_chunk % VP_TILE_TOKENS != 0)
        VP_TRY(vp_json_fail(&root, NULL, err, "are no plan of this request"));
    for (out->n_runs = 0; out->n_runs < n; out->n_runs++) {
        VP_TRY(vp_json_element(&runs, out->n_runs, &run, err));
        VP_TRY(read_run(&run, model, &out->runs[out->n_runs], err));
        n_blocks += out->runs[out->n_runs].n_blocks;
    }
    VP_TRY(read_offload(&root, model, out, err));
    for (int i = 0; i < out->n_runs; i++)
        if (out->runs[i].offload & ~out->offload.activations)
            VP_TRY(vp_json_fail(&root, "blocks", err, "move what has no place in the slots"));
    if (n_blocks != model->graph.n_instances - 2)
        VP_TRY(vp_json_fail(&root, "blocks", err, "has %lld blocks, the model %lld",
                            (long long)n_blocks, (long long)model->graph.n_instances - 2));
out:
    vp_json_doc_free(doc);
    return st;
}
