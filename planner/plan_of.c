/* planner/plan_of.c: what was worked out becomes a plan, with what it says to people and scripts. */
#include "base/checked.h"
#include "base/text.h"
#include "base/units.h"
#include "devices/efficiency.h"
#include "planner/planner_internal.h"
#include "planner/process.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const char *keep(vp_arena *arena, const char *text)
{
    return vp_arena_strdup(arena, text);
}

static vp_status copy_template(vp_assembly *a, vp_plan *plan, int t, vp_err *err)
{
    const vp_template *from             = &a->graph.templates[t];
    vp_plan_template  *to               = &plan->templates[t];
    int64_t            at[VP_N_REGIONS] = {0};
    vp_status          st               = VP_OK;

    *to = (vp_plan_template){.name     = keep(plan->arena, from->name),
                             .n_params = from->n_params,
                             .params =
                                 vp_arena_array(plan->arena, from->n_params, sizeof *to->params)};
    VP_TRY_ALLOC(err, to->params);
    for (int64_t k = 0; k < from->n_params; k++) {
        to->params[k].param      = from->params[k];
        to->params[k].param.name = keep(plan->arena, from->params[k].name);
        for (int h = 0; h < VP_N_REGIONS; h++) {
            int64_t bytes =
                vp_plan_param_bytes(&a->scenario->recipe, &from->params[k], (vp_region)h);
            assert(!vp_overflowed(bytes) && at[h] % VP_ALIGN_BYTES == 0);
            to->params[k].offset_bytes[h] = bytes ? at[h] : 0;
            at[h] += vp_round_up(bytes, VP_ALIGN_BYTES);
        }
    }
out:
    return st;
}

/* What a program recomputes, in the names of the model's ops. */
static const char *program_name(vp_assembly *a, vp_arena *arena, int64_t k)
{
    const vp_template *t    = &a->graph.templates[a->template_of[k]];
    const char        *name = keep(arena, t->name);

    if (a->template_of[k] >= a->model->graph.n_templates && name) /* a segment */
        return vp_arena_printf(arena, "%s recomputing all", name);
    for (int i = 0, n = 0; name && i < t->n_ops; i++)
        if (a->lowered[k].again[i])
            name =
                vp_arena_printf(arena, "%s%s%s", name, n++ ? "," : " recomputing ", t->ops[i].name);
    for (int i = 0, n = 0; name && i < t->n_ops; i++)
        if (a->offload_of[k] >> i & 1)
            name =
                vp_arena_printf(arena, "%s%s%s", name, n++ ? "," : " offloading ", t->ops[i].name);
    return name;
}

static void *copy_of(vp_arena *arena, const void *from, int64_t n, size_t size)
{
    void *to = vp_arena_array(arena, n, size);

    if (to && n)
        memcpy(to, from, (size_t)n * size);
    return to;
}

static void copy_program(vp_assembly *a, vp_plan *plan, int64_t k)
{
    vp_program *p = &plan->buckets[0].programs[k];

    *p              = a->lowered[k].program;
    p->template_idx = a->template_of[k];
    p->name         = program_name(a, plan->arena, k);
    p->buffers      = copy_of(plan->arena, p->buffers, p->n_buffers, sizeof *p->buffers);
    for (int64_t i = 0; p->buffers && i < p->n_buffers; i++)
        p->buffers[i].name = keep(plan->arena, p->buffers[i].name);
    for (int pass = 0; pass < VP_N_PASSES; pass++) {
        p->steps[pass] =
            copy_of(plan->arena, p->steps[pass], p->n_steps[pass], sizeof *p->steps[pass]);
        for (int64_t i = 0; p->steps[pass] && i < p->n_steps[pass]; i++)
            p->steps[pass][i].name = keep(plan->arena, p->steps[pass][i].name);
    }
}

static void copy_instances(vp_assembly *a, vp_plan *plan)
{
    const vp_graph *g = &a->graph;
    vp_bucket      *b = &plan->buckets[0];
    int64_t base = a->stack_base, host_base = a->host_stack_base, at[VP_N_MEMORIES][VP_N_REGIONS];

    memcpy(at, a->region_base, sizeof at);

    for (int64_t i = 0; i < g->n_instances; i++) {
        int t           = g->instances[i].template_idx;
        b->instances[i] = (vp_plan_instance){.program_idx = a->program_of[i],
                                             .index       = g->instances[i].index,
                                             .chain_idx   = g->instances[i].chain_idx,
                                             .window      = g->instances[i].window,
                                             .base_bytes  = {[VP_MEMORY_DEVICE] = base}};
        assert(a->program_of[i] < a->n_programs && base <= a->figures.peak_bytes);
        int64_t moved = vp_layout_host_bytes(&a->lowered[a->program_of[i]].program);
        b->instances[i].base_bytes[VP_MEMORY_HOST_PINNED] = moved ? host_base : 0;
        base += a->lowered[a->program_of[i]].program.kept_bytes;
        host_base += vp_round_up(moved, VP_ALIGN_BYTES);
        for (int h = 0; h < VP_N_REGIONS; h++) {
            vp_memory m                          = a->held_bytes[t][h] > 0
                                                       ? vp_region_memory(a->scenario, g->n_instances, i, (vp_region)h)
                                                       : VP_MEMORY_DEVICE;
            b->instances[i].region_memory[h]     = m;
            b->instances[i].region_base_bytes[h] = at[m][h];
            at[m][h] += vp_layout_stays(a, i, (vp_region)h) ? a->held_bytes[t][h] : 0;
        }
    }
}

/* Whether two instances run alike: programs also differ by their places in the chain. */
static bool run_alike(const vp_assembly *a, int64_t program_a, int64_t program_b)
{
    return a->template_of[program_a] == a->template_of[program_b] &&
           a->recompute_of[program_a] == a->recompute_of[program_b] &&
           a->offload_of[program_a] == a->offload_of[program_b];
}

/* The names of ops in a list, or in a set. */
static json_t *ops_json(const vp_template *t, const bool *is_in, uint64_t ops)
{
    json_t *list = json_array();

    for (int o = 0; o < t->n_ops; o++)
        if (is_in ? is_in[o] : ops >> o & 1)
            json_array_append_new(list, json_string(t->ops[o].name));
    return list;
}

/* How the blocks run, in chain order: [{n_blocks, segment, recompute: [op, ...]}], and where there is
 * any, offload: [op, ...]. */
static json_t *blocks_json(vp_assembly *a)
{
    const vp_graph *g    = &a->graph;
    json_t         *list = json_array();

    for (int64_t i = 1; i < g->n_instances - 1;) {
        int64_t            k = a->program_of[i], n = 0;
        const vp_template *t = &g->templates[a->template_of[k]];
        for (; i < g->n_instances - 1 && run_alike(a, a->program_of[i], k); i++)
            n++;
        int64_t segment = t->n_ops / g->templates[a->model->graph.instances[1].template_idx].n_ops;
        json_t *row =
            json_pack("{s:I, s:I, s:o}", "n_blocks", (json_int_t)(n * segment), "segment",
                      (json_int_t)segment, "recompute", ops_json(t, a->lowered[k].again, 0));
        if (row && a->offload_of[k])
            json_object_set_new(row, "offload", ops_json(t, NULL, a->offload_of[k]));
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *decisions_json(vp_assembly *a)
{
    const vp_scenario *s = a->scenario;
    json_t            *j = json_pack(
                   "{s:I, s:I, s:s, s:o, s:I, s:s}", "micro_batch", (json_int_t)s->micro_batch,
                   "n_micro_steps", (json_int_t)vp_scenario_n_micro(s), "recompute",
                   vp_scenario_recompute_name(s, a->model), "blocks", blocks_json(a), "loss_chunk_tokens",
                   (json_int_t)s->loss_chunk, "offload", vp_offload_name(vp_offload_kind_of(&s->offload)));

    if (j && vp_scenario_last_batch(s))
        json_object_set_new(j, "last_micro_batch",
                            json_integer((json_int_t)vp_scenario_last_batch(s)));
    if (j && vp_scenario_updates_in_backward(s))
        json_object_set_new(j, "updates", json_string("backward"));
    if (j && s->offload.nvme)
        json_object_set_new(j, "nvme", json_true());
    if (j && s->offload.states)
        json_object_set_new(j, "offloaded_instances", json_integer((json_int_t)s->offload.states));
    return j;
}

static json_t *settings_json(const vp_scenario *s, const vp_device *device)
{
    return json_pack(
        "{s:s, s:s, s:I, s:I, s:s, s:s, s:s, s:f}", "trainer", "vplan", "device", device->name,
        "seq", (json_int_t)s->seq, "global_batch", (json_int_t)s->global_batch, "precision",
        vp_precision_name(s->recipe.precision), "optimizer", vp_optimizer_name(s->recipe.optimizer),
        "attention", vp_attention_name(s->attention), "dropout", s->recipe.dropout);
}

/* A round figure, by which a reader scales to a drive of theirs; no plan's seconds have it in them. */
static const double DRIVE_BYTES_PER_S = 5e9;

static json_t *assumptions_json(const vp_assembly *a)
{
    const vp_model    *model  = a->model;
    const vp_scenario *s      = a->scenario;
    const vp_cost     *cost   = a->cost;
    const vp_device   *device = cost->device;
    json_t            *list   = json_array();
    bool others = cost->profile && cost->profile->outside.measured_by != VP_OVERHEAD_NOT_MEASURED;
    char shown[128], size[32];

    for (int64_t i = 0; i < model->n_assumptions; i++)
        json_array_append_new(list, json_string(model->assumptions[i]));
    if (s->seq > model->graph.max_seq)
        json_array_append_new(
            list, json_sprintf("more tokens than the %lld positions the model was made for: rotary "
                               "ones are computed, so it runs",
                               (long long)model->graph.max_seq));
    if (!device->is_cpu && device->sources[VP_FIGURE_OUTSIDE].class_ == VP_CLASS_ASSUMED)
        json_array_append_new(
            list,
            json_sprintf("context and libraries on %s: %s, not measured%s%s", device->name,
                         vp_size_text(device->outside_bytes, size, sizeof size),
                         others ? "; the profile's are of another device, " : "",
                         others ? vp_text_escape(cost->profile->outside.device, shown, sizeof shown)
                                : ""));
    if (!device->is_cpu && s->offload.host_step &&
        device->sources[VP_FIGURE_HOST_UPDATE].class_ != VP_CLASS_MEASURED)
        json_array_append_new(
            list, json_sprintf("updates by the host: %.0f GB/s of its memory, not measured",
                               vp_host_bytes_per_s(device) / 1e9));
    if (a->figures.nvme_bytes)
        json_array_append_new(
            list,
            json_sprintf(
                "master weights and states on a local drive: %s read and written each step, "
                "which takes one of %.0f GB/s %s at least; the seconds here are the link's "
                "alone, and vplan run refuses the plan",
                vp_size_text(a->figures.nvme_bytes, size, sizeof size), DRIVE_BYTES_PER_S / 1e9,
                vp_time_text(2 * (double)a->figures.nvme_bytes / DRIVE_BYTES_PER_S, shown,
                             sizeof shown)));
    return list;
}

vp_status vp_plan_of_assembly(vp_assembly *a, vp_plan *plan, vp_err *err)
{
    const vp_graph         *g     = &a->graph;
    const vp_scenario      *s     = a->scenario;
    vp_arena               *arena = plan->arena;
    vp_bucket              *bucket;
    const vp_figure_source *outside = &a->cost->device->sources[VP_FIGURE_OUTSIDE];
    vp_status               st      = VP_OK;

    plan->model_name          = keep(arena, a->model->name);
    plan->family              = keep(arena, a->model->family);
    plan->model_config        = json_incref(a->model->config);
    plan->n_params            = a->model->n_params;
    plan->vocab_size          = g->vocab_size;
    plan->recipe              = s->recipe;
    plan->updates_in_backward = vp_scenario_updates_in_backward(s);
    plan->device              = keep(arena, a->cost->device->name);
    plan->compute_capability  = a->cost->device->compute_capability;
    plan->global_batch        = s->global_batch;
    plan->decisions           = decisions_json(a);
    plan->settings            = settings_json(s, a->cost->device);
    plan->assumptions         = assumptions_json(a);
    plan->n_templates         = g->n_templates;
    plan->templates           = vp_arena_array(arena, g->n_templates, sizeof *plan->templates);
    plan->n_shared            = g->n_shared;
    plan->shared              = vp_arena_array(arena, g->n_shared, sizeof *plan->shared);
    plan->mask_token          = g->mask_token;
    plan->n_token_types       = g->n_token_types;
    plan->n_classes           = g->n_classes;
    plan->label_place         = g->label_place;
    plan->n_fixed             = a->n_fixed;
    plan->fixed               = vp_arena_array(arena, a->n_fixed, sizeof *plan->fixed);
    plan->control_idx         = VP_FIXED_CONTROL;
    plan->tokens_idx          = VP_FIXED_TOKENS;
    plan->labels_idx          = VP_FIXED_LABELS;
    plan->types_idx           = a->types;
    plan->lengths_idx         = a->lengths;
    plan->n_buckets           = 1;
    plan->buckets             = vp_arena_array(arena, 1, sizeof *plan->buckets);
    VP_TRY_ALLOC(err,
                 !vp_arena_failed(arena) && plan->decisions && plan->settings && plan->assumptions);
    bucket              = &plan->buckets[0];
    *bucket             = vp_layout_bucket(s);
    bucket->n_programs  = a->n_programs;
    bucket->n_instances = g->n_instances;
    bucket->programs    = vp_arena_array(arena, a->n_programs, sizeof *bucket->programs);
    bucket->instances   = vp_arena_array(arena, g->n_instances, sizeof *bucket->instances);
    bucket->peak_bytes  = a->figures.peak_bytes;
    VP_TRY_ALLOC(err, !vp_arena_failed(arena));
    memcpy(plan->fixed, a->fixed, sizeof *a->fixed * (size_t)a->n_fixed);
    for (int64_t i = 0; i < g->n_shared; i++)
        plan->shared[i] = (vp_plan_shared){g->shared[i].instance_idx, g->shared[i].param_idx};
    for (int t = 0; t < g->n_templates; t++)
        VP_TRY(copy_template(a, plan, t, err));
    for (int64_t k = 0; k < a->n_programs; k++)
        copy_program(a, plan, k);
    copy_instances(a, plan);
    assert(a->figures.device_bytes >= a->figures.peak_bytes);
    plan->peak_bytes      = a->figures.peak_bytes;
    plan->host_peak_bytes = bucket->host_peak_bytes = a->figures.host_bytes;
    bucket->pageable_bytes                          = a->figures.pageable_bytes;
    bucket->nvme_bytes                              = a->figures.nvme_bytes;
    plan->outside_bytes = a->figures.device_bytes - a->figures.peak_bytes;
    if (!a->cost->device->is_cpu) {
        plan->outside_class = vp_figure_class_name(outside->class_);
        plan->outside_of    = keep(arena, outside->text);
    }
    plan->budget_bytes            = a->figures.device_bytes;
    plan->process_predicted_bytes = a->cost->device->is_cpu ? vp_process_bytes(plan) : -1;
    plan->step_time_s             = a->figures.step_time_s;
    plan->algorithms_of = a->has_algorithm ? keep(arena, a->cost->profile->backend) : NULL;
    plan->time_class    = a->cost->all_measured && !s->offload.nvme ? "measured" : "assumed";
    plan->proof         = VP_PROOF_FALLBACK;
    plan->proof_gap = plan->bound_s = plan->fastest_s = -1;
    plan->least_budget_bytes                          = -1;
    VP_TRY_ALLOC(err, !vp_arena_failed(arena));
out:
    return st;
}
