/* plan/plan_write.c: a plan becomes its file. docs/plan-file.md describes it, plan_read.c reads it. */
#include "plan/plan_internal.h"

#include "base/file.h"
#include "plan/digest.h"
#include "plan/profile.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void put(json_t *object, const char *key, json_t *value)
{
    if (object)
        json_object_set_new(object, key, value);
    else
        json_decref(value);
}

static void put_int(json_t *object, const char *key, int64_t value)
{
    put(object, key, json_integer((json_int_t)value));
}

/* What is on the device says nothing of it: as files were before there was another memory. */
static void put_memory(json_t *object, const char *key, vp_memory memory)
{
    if (memory != VP_MEMORY_DEVICE)
        put(object, key, json_string(vp_memory_name(memory)));
}

static json_t *arg_to_json(const vp_arg *a)
{
    char text[64];

    assert(a->space <= VP_SPACE_NONE);
    if (a->space == VP_SPACE_NONE)
        return json_string("-");
    assert(a->ahead >= -2 && a->ahead <= 1);
    int n =
        snprintf(text, sizeof text, "%c%lld", vp_plan_space_letters[a->space], (long long)a->idx);
    if (a->offset_bytes)
        n += snprintf(text + n, sizeof text - (size_t)n, "+%lld", (long long)a->offset_bytes);
    if (a->ahead)
        snprintf(text + n, sizeof text - (size_t)n, "%s", vp_plan_ahead_words[a->ahead + 2]);
    return json_string(text);
}

static json_t *step_to_json(const vp_step *s)
{
    const vp_kernel_info *info = vp_kernel_info_of(s->kernel);
    json_t               *j    = json_pack("{s:s, s:s}", "kernel", info->name, "name", s->name);
    json_t               *args = json_array();
    char                  algorithm[VP_ALGORITHM_TEXT + 1];

    assert(s->accumulate <= VP_ACC_ALWAYS && s->workspace_bytes >= 0);
    for (int k = 0; k < info->n_operands; k++)
        json_array_append_new(args, arg_to_json(&s->args[k]));
    put(j, "args", args);
    if (s->workspace_bytes) {
        put(j, "workspace", arg_to_json(&s->args[info->n_operands]));
        put_int(j, "workspace_bytes", s->workspace_bytes);
    }
    if (s->dtype != VP_DTYPE_F32)
        put(j, "dtype", json_string(vp_dtype_name(s->dtype)));
    vp_ints_write(j, s->kernel, s->ints);
    for (int k = 0; k < info->n_reals; k++)
        put(j, info->reals[k], json_real(s->reals[k]));
    if (s->stream != VP_STREAM_COMPUTE)
        put(j, "stream", json_string(vp_stream_name(s->stream)));
    if (s->accumulate != VP_ACC_NEVER)
        put(j, "accumulate", json_string(vp_plan_accumulate_words[s->accumulate]));
    if (s->first_only)
        put(j, "first_only", json_true());
    if (s->later_only)
        put(j, "later_only", json_true());
    if (s->window_of_instance)
        put(j, "window_of_instance", json_true());
    if (info->random)
        put_int(j, "rng_id", s->rng_id);
    put(j, "seconds", json_real(s->seconds));
    if (s->lost_s > 0)
        put(j, "lost_s", json_real(s->lost_s));
    if (vp_algorithm_is_set(&s->algorithm))
        put(j, "algorithm", json_string(vp_algorithm_text(&s->algorithm, algorithm)));
    return j;
}

static json_t *program_to_json(const vp_program *p)
{
    json_t *j       = json_pack("{s:s, s:I, s:I}", "name", p->name, "template",
                                (json_int_t)p->template_idx, "kept_bytes", (json_int_t)p->kept_bytes);
    json_t *buffers = json_array();

    for (int64_t i = 0; i < p->n_buffers; i++) {
        const vp_plan_buffer *b = &p->buffers[i];
        json_array_append_new(
            buffers, json_pack("{s:s, s:s, s:s, s:b, s:I, s:I}", "name", b->name, "component",
                               vp_component_name(b->component), "place",
                               vp_plan_place_words[b->place], "kept", (int)b->kept, "offset_bytes",
                               (json_int_t)b->offset_bytes, "bytes", (json_int_t)b->bytes));
        put_memory(json_array_get(buffers, (size_t)i), "memory", b->memory);
    }
    put(j, "buffers", buffers);
    for (int pass = 0; pass < VP_N_PASSES; pass++) {
        if (pass >= VP_PASS_LAST_FORWARD && p->n_steps[pass] == 0)
            continue;
        json_t *steps = json_array();
        for (int64_t i = 0; i < p->n_steps[pass]; i++)
            json_array_append_new(steps, step_to_json(&p->steps[pass][i]));
        put(j, vp_plan_pass_words[pass], steps);
    }
    return j;
}

/* A list of steps that an earlier program has, too, is written as that program's number: the updates of
 * blocks that differ in what they recompute are many and alike. */
static void share_lists(json_t *programs, size_t last)
{
    json_t *program = json_array_get(programs, last);

    for (int pass = 0; pass < VP_N_PASSES; pass++) {
        const char   *key   = vp_plan_pass_words[pass];
        const json_t *steps = json_object_get(program, key);
        for (size_t i = 0; i < last && json_array_size(steps) > 0; i++)
            if (json_equal(steps, json_object_get(json_array_get(programs, i), key))) {
                put_int(program, key, (int64_t)i);
                break;
            }
    }
}

static json_t *ints_to_json(const int64_t *x, int n)
{
    json_t *list = json_array();

    for (int k = 0; k < n; k++)
        json_array_append_new(list, json_integer((json_int_t)x[k]));
    return list;
}

static json_t *template_to_json(const vp_plan_template *t)
{
    json_t *params = json_array();

    for (int64_t i = 0; i < t->n_params; i++) {
        const vp_param *p     = &t->params[i].param;
        json_t         *shape = json_array();
        for (int d = 0; d < p->rank; d++)
            json_array_append_new(shape, json_integer((json_int_t)p->shape[d]));
        json_t *j = json_pack("{s:s, s:o, s:s, s:b, s:o}", "name", p->name, "shape", shape, "init",
                              vp_plan_init_words[p->init], "decay", (int)p->decay, "offset_bytes",
                              ints_to_json(t->params[i].offset_bytes, VP_N_REGIONS));
        if (p->block_matrix)
            put(j, "block_matrix", json_true());
        if (p->frozen)
            put(j, "frozen", json_true());
        if (p->in_out)
            put(j, "in_out", json_true());
        if (p->zero_row)
            put_int(j, "zero_row", p->zero_row);
        if (vp_init_has_std(p->init))
            put(j, "init_std", json_real(p->init_std));
        if (p->index_offset)
            put_int(j, "index_offset", p->index_offset);
        json_array_append_new(params, j);
    }
    return json_pack("{s:s, s:o}", "name", t->name, "parameters", params);
}

static void put_region_memories(json_t *object, const vp_plan_instance *x)
{
    json_t *list = json_array();
    bool    any  = false;

    for (int h = 0; h < VP_N_REGIONS; h++) {
        json_array_append_new(list, json_string(vp_memory_name(x->region_memory[h])));
        any |= x->region_memory[h] != VP_MEMORY_DEVICE;
    }
    if (any)
        put(object, "region_memory", list);
    else
        json_decref(list);
}

static json_t *bucket_to_json(const vp_bucket *b)
{
    vp_phases phases    = vp_bucket_phases(b);
    json_t   *programs  = json_array();
    json_t   *instances = json_array(), *j;

    for (int64_t i = 0; i < b->n_programs; i++) {
        json_array_append_new(programs, program_to_json(&b->programs[i]));
        share_lists(programs, (size_t)i);
    }
    for (int64_t i = 0; i < b->n_instances; i++) {
        const vp_plan_instance *x = &b->instances[i];
        json_array_append_new(
            instances,
            json_pack("{s:I, s:I, s:I, s:I, s:o}", "program", (json_int_t)x->program_idx, "index",
                      (json_int_t)x->index, "chain", (json_int_t)x->chain_idx, "base_bytes",
                      (json_int_t)x->base_bytes[VP_MEMORY_DEVICE], "region_base_bytes",
                      ints_to_json(x->region_base_bytes, VP_N_REGIONS)));
        if (x->window)
            put_int(json_array_get(instances, (size_t)i), "window", x->window);
        if (x->base_bytes[VP_MEMORY_HOST_PINNED])
            put_int(json_array_get(instances, (size_t)i), "host_base_bytes",
                    x->base_bytes[VP_MEMORY_HOST_PINNED]);
        put_region_memories(json_array_get(instances, (size_t)i), x);
    }
    j = json_pack(
        "{s:I, s:f, s:I, s:I, s:[{s:s, s:I}, {s:s, s:I}, {s:s, s:I}, {s:s, s:I}], s:I, s:o, s:o}",
        "seq", (json_int_t)b->seq, "frequency", b->frequency, "micro_batch",
        (json_int_t)b->micro_batch, "n_micro_steps", (json_int_t)b->n_micro_steps, "phases", "name",
        vp_plan_phase_words[0], "repeat", (json_int_t)phases.first, "name", vp_plan_phase_words[1],
        "repeat", (json_int_t)phases.middle, "name", vp_plan_phase_words[2], "repeat",
        (json_int_t)phases.last, "name", vp_plan_phase_words[3], "repeat", (json_int_t)1,
        "peak_bytes", (json_int_t)b->peak_bytes, "programs", programs, "instances", instances);
    if (vp_bucket_ends_smaller(b))
        put_int(j, "last_micro_batch", b->last_micro_batch);
    if (b->host_peak_bytes)
        put_int(j, "host_peak_bytes", b->host_peak_bytes);
    if (b->pageable_bytes)
        put_int(j, "pageable_bytes", b->pageable_bytes);
    if (b->nvme_bytes)
        put_int(j, "nvme_bytes", b->nvme_bytes);
    return j;
}

static json_t *fixed_to_json(const vp_plan_fixed *f)
{
    json_t *j =
        json_pack("{s:s, s:s, s:b, s:I, s:I}", "name", f->name, "component",
                  vp_component_name(f->component), "per_micro_step", (int)f->per_micro_step,
                  "offset_bytes", (json_int_t)f->offset_bytes, "bytes", (json_int_t)f->bytes);
    json_t *inv_freq;

    put_memory(j, "memory", f->memory);
    if (f->angles.n == 0)
        return j;
    inv_freq = json_array();
    for (int64_t i = 0; i < f->angles.n; i++)
        json_array_append_new(inv_freq, json_real(f->angles.inv_freq[i]));
    put(j, "angles", json_pack("{s:o, s:f}", "inv_freq", inv_freq, "scale", f->angles.scale));
    return j;
}

json_t *vp_plan_to_json(const vp_plan *plan)
{
    json_t *j = json_pack("{s:i, s:{s:s, s:s, s:I, s:I, s:O}, s:o, s:s, s:I, s:I, s:O, s:O, s:O}",
                          "schema_version", VP_PLAN_SCHEMA, "model", "name", plan->model_name,
                          "family", plan->family, "params_total", (json_int_t)plan->n_params,
                          "vocab_size", (json_int_t)plan->vocab_size, "config", plan->model_config,
                          "recipe", vp_recipe_to_json(&plan->recipe), "device", plan->device,
                          "budget_bytes", (json_int_t)plan->budget_bytes, "global_batch",
                          (json_int_t)plan->global_batch, "decisions", plan->decisions, "settings",
                          plan->settings, "assumptions", plan->assumptions);
    json_t *list = json_array();

    if (plan->algorithms_of)
        put(j, "algorithms_of", json_string(plan->algorithms_of));
    if (plan->compute_capability > 0)
        put_int(j, "compute_capability", plan->compute_capability);
    if (plan->updates_in_backward)
        put(j, "updates_in_backward", json_true());
    if (plan->mask_token >= 0)
        put_int(json_object_get(j, "model"), "mask_token", plan->mask_token);
    if (plan->n_token_types > 0)
        put_int(json_object_get(j, "model"), "n_token_types", plan->n_token_types);
    if (plan->n_classes > 0) {
        put_int(json_object_get(j, "model"), "n_classes", plan->n_classes);
        put(json_object_get(j, "model"), "label_place",
            json_string(vp_plan_label_place_words[plan->label_place]));
    }
    put(j, "prediction",
        json_pack("{s:I, s:I, s:o, s:f, s:s}", "peak_bytes", (json_int_t)plan->peak_bytes,
                  "outside_bytes", (json_int_t)plan->outside_bytes, "process_predicted_bytes",
                  vp_json_int_or_null(plan->process_predicted_bytes), "step_time_s",
                  plan->step_time_s, "time_class", plan->time_class));
    if (plan->host_peak_bytes)
        put_int(json_object_get(j, "prediction"), "host_peak_bytes", plan->host_peak_bytes);
    if (plan->outside_class)
        put(json_object_get(j, "prediction"), "outside_class", json_string(plan->outside_class));
    if (plan->outside_of)
        put(json_object_get(j, "prediction"), "outside_of", json_string(plan->outside_of));
    for (int64_t i = 0; i < plan->n_presets; i++) {
        const vp_preset_result *r = &plan->presets[i];
        json_array_append_new(list, json_pack("{s:s, s:I, s:f, s:b}", "name", r->name, "peak_bytes",
                                              (json_int_t)r->peak_bytes, "step_time_s",
                                              r->step_time_s, "fits", (int)r->fits));
    }
    json_t *proof = json_pack("{s:s, s:o, s:o, s:o}", "status", vp_proof_name(plan->proof), "gap",
                              vp_json_real_or_null(plan->proof_gap), "bound_s",
                              vp_json_real_or_null(plan->bound_s), "least_budget_bytes",
                              vp_json_int_or_null(plan->least_budget_bytes));
    if (proof && plan->fastest_s >= 0)
        json_object_set_new(proof, "fastest_s", json_real(plan->fastest_s));
    put(j, "proof", proof);
    put(j, "presets", list);
    list = json_array();
    for (int64_t i = 0; i < plan->n_fixed; i++) {
        json_array_append_new(list, fixed_to_json(&plan->fixed[i]));
    }
    put(j, "fixed", list);
    list = json_array();
    for (int64_t i = 0; i < plan->n_templates; i++)
        json_array_append_new(list, template_to_json(&plan->templates[i]));
    put(j, "templates", list);
    list = json_array();
    for (int64_t i = 0; i < plan->n_shared; i++)
        json_array_append_new(list, json_pack("{s:I, s:I}", "instance",
                                              (json_int_t)plan->shared[i].instance_idx, "parameter",
                                              (json_int_t)plan->shared[i].param_idx));
    put(j, "shared", list);
    list = json_array();
    for (int64_t i = 0; i < plan->n_buckets; i++)
        json_array_append_new(list, bucket_to_json(&plan->buckets[i]));
    put(j, "buckets", list);
    if (j && vp_plan_sign(j, &(vp_err){0}) != VP_OK) {
        json_decref(j);
        j = NULL;
    }
    return j;
}

/* What no reader would take is not written: a config.json may be as long and as deep as a file
 * may be, and a plan holds it and more. */
static vp_status check_readable(const vp_text *text, const char *path, vp_err *err)
{
    vp_json_doc *doc     = NULL;
    vp_plan     *plan    = NULL;
    vp_err       refused = {0};
    vp_status    st      = VP_OK;

    if (text->n_bytes > VP_PLAN_MAX_BYTES)
        return VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, NULL,
                          "is not written: it would be %zu bytes long, and at most %lld are read",
                          text->n_bytes, (long long)VP_PLAN_MAX_BYTES);
    st = vp_json_parse(path, text->data, (int64_t)text->n_bytes, &doc, &refused);
    if (st == VP_OK) {
        vp_json_node root = vp_json_root(doc);
        st                = vp_plan_from_json(&root, &plan, &refused);
    }
    if (st == VP_OK)
        assert(plan->is_signed);
    if (st != VP_OK)
        st = vp_fail(err, st, path, 0, refused.field,
                     "is not written, since it could not be read again: %s", refused.message);
    vp_plan_free(plan);
    vp_json_doc_free(doc);
    return st;
}

vp_status vp_plan_write(const vp_plan *plan, const char *path, bool overwrite, vp_err *err)
{
    json_t   *j    = vp_plan_to_json(plan);
    vp_text   text = {0};
    vp_status st   = VP_OK;

    VP_TRY_ALLOC(err, j);
    VP_TRY_ALLOC(err, vp_json_dump(j, &text));
    VP_TRY(check_readable(&text, path, err));
    VP_TRY(vp_file_write(path, text.data, text.n_bytes, overwrite, err));
out:
    vp_text_release(&text);
    json_decref(j);
    return st;
}
