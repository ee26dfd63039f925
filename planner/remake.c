#include "planner/remake.h"

#include "planner/request.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the scenario that a plan says it is ---- */

typedef struct remaking {
    const vp_plan  *plan;
    vp_json_node    decisions, settings, fixed;
    const vp_model *model;
    vp_scenario     scenario;
} remaking;

/* Ops of a block by their names. */
static vp_status read_ops(const remaking *r, const vp_json_node *run, const char *key,
                          uint64_t *ops, vp_err *err)
{
    const vp_graph    *g = &r->model->graph;
    const vp_template *t = &g->templates[vp_block_template(g)];
    vp_json_node       list, name;
    const char        *text;
    int64_t            n;
    vp_status          st = VP_OK;

    *ops = 0;
    if (!vp_json_has(run, key))
        return VP_OK;
    VP_TRY(vp_json_array(run, key, &list, &n, err));
    for (int64_t i = 0; i < n; i++) {
        int op = 0;
        VP_TRY(vp_json_element(&list, i, &name, err));
        VP_TRY(vp_json_as_string(&name, &text, err));
        while (op < t->n_ops && strcmp(t->ops[op].name, text) != 0)
            op++;
        if (op == t->n_ops || op >= 64)
            VP_TRY(vp_json_fail(&name, NULL, err, "is no op of this model's blocks"));
        *ops |= UINT64_C(1) << op;
    }
out:
    return st;
}

static vp_status read_run(const remaking *r, const vp_json_node *at, vp_block_run *run, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(vp_json_int(at, "n_blocks", 1, INT32_MAX, &run->n_blocks, err));
    VP_TRY(vp_json_int(at, "segment", 1, vp_max_segment(r->model), &run->segment, err));
    if (run->n_blocks % run->segment != 0)
        VP_TRY(vp_json_fail(at, "segment", err, "does not divide n_blocks"));
    run->recompute = UINT64_MAX;
    if (run->segment == 1)
        VP_TRY(read_ops(r, at, "recompute", &run->recompute, err));
    VP_TRY(read_ops(r, at, "offload", &run->offload, err));
out:
    return st;
}

static vp_status read_runs(remaking *r, vp_err *err)
{
    vp_scenario *s = &r->scenario;
    vp_json_node runs, run;
    int64_t      n, n_blocks = 0;
    vp_status    st = VP_OK;

    VP_TRY(vp_json_array(&r->decisions, "blocks", &runs, &n, err));
    if (n < 1 || n > VP_MAX_RUNS)
        VP_TRY(vp_json_fail(&runs, NULL, err, "must be 1 to %d runs", VP_MAX_RUNS));
    for (s->n_runs = 0; s->n_runs < n; s->n_runs++) {
        VP_TRY(vp_json_element(&runs, s->n_runs, &run, err));
        VP_TRY(read_run(r, &run, &s->runs[s->n_runs], err));
        n_blocks += s->runs[s->n_runs].n_blocks;
    }
    if (n_blocks != r->model->graph.n_instances - 2)
        VP_TRY(vp_json_fail(&runs, NULL, err, "are %lld blocks, the model has %lld",
                            (long long)n_blocks, (long long)r->model->graph.n_instances - 2));
out:
    return st;
}

/* The places for activations are fixed buffers, "slot 2 of q_proj". */
static vp_status read_slots(remaking *r, vp_err *err)
{
    const vp_graph    *g  = &r->model->graph;
    const vp_template *t  = &g->templates[vp_block_template(g)];
    vp_offload        *o  = &r->scenario.offload;
    vp_status          st = VP_OK;

    for (int64_t i = 0; i < r->plan->n_fixed; i++) {
        const char *name = r->plan->fixed[i].name;
        int         slot, n = 0;
        if (sscanf(name, "slot %1d of %n", &slot, &n) != 1 || n == 0)
            continue;
        o->n_slots = slot > o->n_slots ? slot : o->n_slots;
        for (int op = 0; op < t->n_ops; op++)
            if (strcmp(t->ops[op].name, name + n) == 0)
                o->activations |= UINT64_C(1) << op;
    }
    if ((o->activations != 0) != (o->n_slots > 0) || o->n_slots > VP_MAX_ACTIVATION_SLOTS)
        VP_TRY(vp_json_fail(&r->fixed, NULL, err,
                            "their slots for activations are none that a plan has"));
    for (int i = 0; i < r->scenario.n_runs; i++)
        if ((r->scenario.runs[i].offload & ~o->activations) ||
            (o->activations && r->scenario.runs[i].segment > 1))
            VP_TRY(vp_json_fail(&r->decisions, "blocks", err,
                                "offload outputs that have no place in a slot"));
out:
    return st;
}

static vp_status read_offload(remaking *r, vp_err *err)
{
    vp_offload     *o = &r->scenario.offload;
    const char     *word;
    vp_offload_kind kind;
    vp_status       st = VP_OK;

    VP_TRY(vp_json_string(&r->decisions, "offload", &word, err));
    kind = vp_offload_by_name(word);
    if (kind == VP_N_OFFLOADS)
        VP_TRY(vp_json_fail(&r->decisions, "offload", err, "is no kind of offloading"));
    o->blocks    = vp_offload_streams(kind);
    o->host_step = vp_offload_steps(kind);
    if (vp_json_has(&r->decisions, "nvme"))
        VP_TRY(vp_json_bool(&r->decisions, "nvme", &o->nvme, err));
    if (o->nvme && o->host_step)
        VP_TRY(vp_json_fail(&r->decisions, "nvme", err,
                            "not where the host makes updates, in host memory"));
    if (vp_json_has(&r->decisions, "offloaded_instances"))
        VP_TRY(vp_json_int(&r->decisions, "offloaded_instances", 0, r->model->graph.n_instances,
                           &o->states, err));
    if (o->blocks && (!vp_may_stream(&r->model->graph) || o->states != r->model->graph.n_instances))
        VP_TRY(
            vp_json_fail(&r->decisions, "offload", err, "blocks of this plan cannot be streamed"));
    VP_TRY(read_slots(r, err));
    for (int i = 0; o->blocks && i < r->scenario.n_runs; i++)
        if (r->scenario.runs[i].segment > 1)
            VP_TRY(vp_json_fail(&r->decisions, "blocks", err,
                                "segments of several blocks are not streamed"));
    if (vp_offload_kind_of(o) != kind)
        VP_TRY(vp_json_fail(&r->decisions, "offload", err, "is not what is offloaded"));
    if ((o->blocks || o->activations) && vp_scenario_last_batch(&r->scenario))
        VP_TRY(vp_json_fail(&r->decisions, "micro_batch", err,
                            "a smaller last micro-step does not go with what is offloaded"));
out:
    return st;
}

/* What no request may ask for, no plan may hold: a sequence beyond the positions, thousands of chunks. */
static vp_status check_request(const remaking *r, vp_err *err)
{
    const vp_scenario *s       = &r->scenario;
    vp_plan_request    request = {.model        = r->model,
                                  .seq          = s->seq,
                                  .global_batch = s->global_batch,
                                  .recompute    = VP_RECOMPUTE_ANY,
                                  .loss_chunk   = s->loss_chunk};
    vp_status          st      = VP_OK;

    if (s->loss_chunk % VP_TILE_TOKENS != 0)
        VP_TRY(vp_json_fail(&r->decisions, "loss_chunk_tokens", err, "is no multiple of %d",
                            VP_TILE_TOKENS));
    vp_refusal refusal = vp_request_refusal(&request);
    if (refusal.reason == VP_REFUSED_LOSS_CHUNK)
        VP_TRY(vp_json_fail(&r->decisions, "loss_chunk_tokens", err, "makes too many chunks"));
    if (refusal.reason != VP_REFUSED_NOT)
        VP_TRY(vp_json_fail(&r->settings, "seq", err, "is more than this model takes"));
out:
    return st;
}

static vp_status read_scenario(remaking *r, vp_err *err)
{
    vp_scenario *s = &r->scenario;
    const char  *word;
    vp_status    st = VP_OK;

    *s = (vp_scenario){.recipe       = r->plan->recipe,
                       .seq          = r->plan->buckets[0].seq,
                       .global_batch = r->plan->global_batch,
                       .micro_batch  = r->plan->buckets[0].micro_batch};
    VP_TRY(vp_json_int(&r->decisions, "loss_chunk_tokens", 0, INT32_MAX, &s->loss_chunk, err));
    VP_TRY(vp_json_string(&r->settings, "attention", &word, err));
    s->attention = vp_attention_by_name(word);
    if (s->attention == VP_N_ATTENTIONS)
        VP_TRY(vp_json_fail(&r->settings, "attention", err, "is no kind of attention"));
    s->updates_at_end = !r->plan->updates_in_backward;
    VP_TRY(check_request(r, err));
    VP_TRY(read_runs(r, err));
    VP_TRY(read_offload(r, err));
out:
    return st;
}

vp_status vp_plan_scenario(const vp_plan *plan, const vp_json_node *root, const vp_model *model,
                           vp_scenario *out, vp_err *err)
{
    remaking  r = {.plan = plan, .model = model};
    int64_t   n_fixed;
    vp_status st = VP_OK;

    VP_TRY(vp_json_object(root, "decisions", &r.decisions, err));
    VP_TRY(vp_json_object(root, "settings", &r.settings, err));
    VP_TRY(vp_json_array(root, "fixed", &r.fixed, &n_fixed, err));
    VP_TRY(read_scenario(&r, err));
    *out = r.scenario;
out:
    return st;
}

/* ---- the plan that it makes ---- */

/* Programs go by the compute capability; what a call takes there moves no bit. */
static vp_device device_like(const vp_plan *plan)
{
    return (vp_device){.is_cpu                = plan->compute_capability == 0,
                       .usable_bytes          = INT64_MAX / 4,
                       .memory_bytes_per_s    = 1e12,
                       .fp32_flop_per_s       = 1e13,
                       .bf16_flop_per_s       = 1e14,
                       .host_link_bytes_per_s = 1e10,
                       .compute_capability    = (int)plan->compute_capability,
                       .multiprocessors       = 100,
                       .bf16                  = true};
}

vp_status vp_plan_remake(const vp_plan *plan, const vp_json_node *root, vp_plan **out, vp_err *err)
{
    vp_device     device = device_like(plan);
    vp_cost       cost   = {.device = &device};
    vp_model_opts opts   = {.dropout = plan->recipe.dropout, .lora = &plan->recipe.lora};
    vp_model     *made   = NULL;
    vp_scenario   scenario;
    vp_json_node  model, config;
    vp_status     st = VP_OK;

    *out = NULL;
    if (plan->n_buckets != 1)
        VP_TRY(vp_json_fail(root, "buckets", err, "are %lld; a plan has one",
                            (long long)plan->n_buckets));
    VP_TRY(vp_json_object(root, "model", &model, err));
    VP_TRY(vp_json_object(&model, "config", &config, err));
    VP_TRY(vp_model_from_config(plan->model_name, &config, &opts, &made, err));
    VP_TRY(vp_plan_scenario(plan, root, made, &scenario, err));
    VP_TRY(vp_assemble(made, &scenario, &cost, out, err));
out:
    vp_model_free(made);
    return st;
}

/* ---- the two of them ---- */

/* What moves no bit: where things lie, which the plan's checker looks at, and what it takes. */
static bool is_free(const char *key)
{
    static const char *const keys[] = {
        "seconds",         "algorithm",  "offset_bytes", "base_bytes", "region_base_bytes",
        "host_base_bytes", "bytes",      "kept_bytes",   "peak_bytes", "host_peak_bytes",
        "pageable_bytes",  "nvme_bytes", "device"};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

/* Where two values first differ, in at ("buckets[0].seq"). False: nowhere. */
static bool differ(const json_t *a, const json_t *b, char *at, size_t at_size);

static bool differ_at(const json_t *a, const json_t *b, char *at, size_t at_size, const char *fmt,
                      ...) __attribute__((format(printf, 5, 6)));
static bool differ_at(const json_t *a, const json_t *b, char *at, size_t at_size, const char *fmt,
                      ...)
{
    size_t  n = strlen(at);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(at + n, at_size - n, fmt, ap);
    va_end(ap);
    if (differ(a, b, at, at_size))
        return true;
    at[n] = '\0';
    return false;
}

static bool differ(const json_t *a, const json_t *b, char *at, size_t at_size)
{
    const char *key;
    json_t     *value;

    if (json_is_object(a) && json_is_object(b)) {
        json_object_foreach ((json_t *)(uintptr_t)b, key, value)
            if (!is_free(key) && !json_object_get(a, key))
                return differ_at(NULL, value, at, at_size, ".%s", key);
        json_object_foreach ((json_t *)(uintptr_t)a, key, value)
            if (!is_free(key) && differ_at(value, json_object_get(b, key), at, at_size, ".%s", key))
                return true;
        return false;
    }
    if (json_is_array(a) && json_is_array(b)) {
        for (size_t i = 0; i < json_array_size(a) || i < json_array_size(b); i++)
            if (differ_at(json_array_get(a, i), json_array_get(b, i), at, at_size, "[%zu]", i))
                return true;
        return false;
    }
    return a != b && (!a || !b || !json_equal(a, b)); /* what both leave out is the same */
}

/* The value at a place that differ() has named, NULL: none. */
static const json_t *value_at(const json_t *j, const char *at)
{
    char key[64];

    while (j && *at) {
        size_t n = strcspn(at, ".[");
        if (*at == '[') {
            j  = json_array_get(j, (size_t)strtoul(at + 1, NULL, 10));
            at = strchr(at, ']') + 1;
        } else if (*at == '.') {
            at++;
        } else {
            snprintf(key, sizeof key, "%.*s", (int)n, at);
            j = json_object_get(j, key);
            at += n;
        }
    }
    return j;
}

vp_status vp_plan_check_remade(const vp_plan *plan, const vp_json_node *root, vp_err *err)
{
    static const char *const executed[] = {"model",   "decisions",          "settings",
                                           "fixed",   "templates",          "shared",
                                           "buckets", "updates_in_backward"};
    vp_plan                 *again      = NULL;
    json_t                  *have = NULL, *want = NULL;
    vp_json_node             at = *root;
    vp_status                st = VP_OK;

    VP_TRY(vp_plan_remake(plan, root, &again, err));
    VP_TRY_ALLOC(err, (have = vp_plan_to_json(plan)) && (want = vp_plan_to_json(again)));
    for (size_t i = 0; i < sizeof executed / sizeof *executed; i++) {
        at.path[0] = '\0';
        if (!differ_at(json_object_get(have, executed[i]), json_object_get(want, executed[i]),
                       at.path, sizeof at.path, "%s", executed[i]))
            continue;
        const json_t *value = value_at(want, at.path);
        char         *text  = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;
        st = vp_json_fail(&at, NULL, err, "is not what the plan's own model and recipe make, %s",
                          text && strlen(text) < 60 ? text
                          : value                   ? "something else"
                                                    : "nothing");
        free(text);
        VP_TRY(st);
    }
out:
    json_decref(have);
    json_decref(want);
    vp_plan_free(again);
    return st;
}
