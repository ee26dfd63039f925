#include "cli/cli.h"
#include "cli/estimate.h"
#include "cli/rows.h"
#include "cli/screen.h"
#include "cli/words.h"
#include "devices/device_here.h"

#include "base/file.h"
#include "base/output.h"
#include "base/text.h"
#include "base/units.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

vp_status vp_print_json(json_t *j, vp_err *err)
{
    vp_text   text = {0};
    vp_status st   = VP_OK;

    VP_TRY_ALLOC(err, j && vp_json_dump(j, &text));
    fwrite(text.data, 1, text.n_bytes, stdout);
    VP_TRY(vp_output_end(err));
out:
    vp_text_release(&text);
    json_decref(j);
    return st;
}

vp_status vp_output_check(const char *path, bool overwrite, const char *const *inputs, int n_inputs,
                          vp_err *err)
{
    vp_file_writer writer;
    struct stat    output, input;
    char           config[1200];
    vp_status      st = VP_OK;

    assert(path && n_inputs >= 0);
    for (int i = 0; i < n_inputs && stat(path, &output) == 0; i++) {
        if (!inputs[i] || stat(inputs[i], &input) != 0)
            continue;
        snprintf(config, sizeof config, "%s/config.json", inputs[i]);
        if (S_ISDIR(input.st_mode) && stat(config, &input) != 0)
            continue;
        if (output.st_dev == input.st_dev && output.st_ino == input.st_ino)
            VP_TRY(VP_FAIL_AT(err, VP_ERR_USAGE, path, 0, NULL,
                              "is an input too; write the answer elsewhere"));
    }
    VP_TRY(vp_file_begin(path, overwrite, &writer, err));
    vp_file_abort(&writer);
out:
    return st;
}

vp_status vp_parse_recompute(const char *text, vp_recompute *out, int64_t *n_segments, vp_err *err)
{
    static const char prefix[] = "segments:";
    char              shown[64];

    *n_segments = 0;
    *out        = vp_recompute_by_name(text);
    if (strncmp(text, prefix, sizeof prefix - 1) == 0) {
        *out = VP_RECOMPUTE_FULL;
        return vp_count_parse(text + sizeof prefix - 1, "--recompute segments:N", 1, 1 << 30,
                              n_segments, err);
    }
    if (*out == VP_N_RECOMPUTES)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--recompute %s: one of none, attention, mlp, full or segments:N",
                       vp_text_escape(text, shown, sizeof shown));
    return VP_OK;
}

vp_status vp_parse_loss(const char *text, int64_t *chunk, vp_err *err)
{
    char      shown[64];
    vp_status st = VP_OK;

    if (strcmp(text, "full") == 0) {
        *chunk = 0;
    } else if (strcmp(text, "chunked") == 0) {
        *chunk = VP_CHUNK_CHUNKED;
    } else if (strncmp(text, "chunked:", 8) == 0) {
        VP_TRY(vp_count_parse(text + 8, "--loss chunked:N", 1, 1 << 30, chunk, err));
        if (*chunk % VP_TILE_TOKENS != 0)
            VP_TRY(VP_FAIL(err, VP_ERR_USAGE,
                           "--loss chunked:%lld: N must be a multiple of %d tokens",
                           (long long)*chunk, VP_TILE_TOKENS));
    } else {
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--loss %s: full, chunked or chunked:N",
                       vp_text_escape(text, shown, sizeof shown)));
    }
out:
    return st;
}

/* One of n words, or "any" for n. */
static vp_status parse_word(const char *option, const char *text, const char *(*name_of)(int),
                            int n, bool any, int *out, vp_err *err)
{
    enum { MOST = 32 };
    const char *words[MOST];
    vp_text     known = {0};
    char        shown[64];
    int         nearest;
    vp_status   st = VP_OK;

    assert(n > 0 && n <= MOST);
    for (*out = 0; *out < n; ++*out)
        if (strcmp(name_of(*out), text) == 0)
            return VP_OK;
    if (any && strcmp(text, "any") == 0)
        return VP_OK;
    for (int i = 0; i < n; i++) {
        words[i] = name_of(i);
        vp_text_printf(&known, "%s%s", i ? ", " : "", words[i]);
    }
    VP_TRY_ALLOC(err, !known.failed);
    nearest = vp_word_nearest(text, words, n);
    VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "%s %s: one of %s%s%s%s%s", option,
                   vp_text_escape(text, shown, sizeof shown), known.data, any ? ", any" : "",
                   nearest < 0 ? "" : "; did you mean ", nearest < 0 ? "" : words[nearest],
                   nearest < 0 ? "" : "?"));
out:
    vp_text_release(&known);
    return st;
}

static const char *precision_word(int i)
{
    return vp_precision_name((vp_precision)i);
}
static const char *gradients_word(int i)
{
    return vp_gradients_name((vp_gradients)i);
}
static const char *optimizer_word(int i)
{
    return vp_optimizer_name((vp_optimizer)i);
}
static const char *attention_word(int i)
{
    return vp_attention_name((vp_attention_kind)i);
}

/* No precision is in fp8. Where people ask for it on a card that has none, that is the nearer
 * reason. */
static vp_status check_fp8(const char *text, const char *device_name, vp_err *err)
{
    vp_device device;
    vp_status st = VP_OK;

    if (!device_name || strncmp(text, "fp8", 3) != 0)
        return VP_OK;
    VP_TRY(vp_device_open(device_name, &device, err));
    VP_TRY(vp_device_supports(&device, VP_NEEDS_FP8, err));
out:
    return st;
}

vp_status vp_parse_precision(const char *text, bool any, const char *device_name, vp_precision *out,
                             vp_err *err)
{
    int       word = VP_N_PRECISIONS;
    vp_status st   = VP_OK;

    VP_TRY(check_fp8(text, device_name, err));
    VP_TRY(parse_word("--precision", text, precision_word, VP_N_PRECISIONS, any, &word, err));
    *out = (vp_precision)word;
out:
    return st;
}

vp_status vp_parse_gradients(const char *text, bool any, vp_gradients *out, vp_err *err)
{
    int       word = VP_N_GRADIENTS;
    vp_status st = parse_word("--gradients", text, gradients_word, VP_N_GRADIENTS, any, &word, err);

    *out = (vp_gradients)word;
    return st;
}

vp_status vp_check_gradients(const vp_recipe *recipe, vp_err *err)
{
    if (vp_precision_takes(recipe->precision, recipe->gradients))
        return VP_OK;
    return VP_FAIL(err, VP_ERR_USAGE,
                   "--gradients %s: not beside --precision %s; bf16-mixed and bf16 take it",
                   vp_gradients_name(recipe->gradients), vp_precision_name(recipe->precision));
}

vp_status vp_parse_optimizer(const char *text, bool any, vp_optimizer *out, vp_err *err)
{
    int       word = VP_N_OPTIMIZERS;
    vp_status st =
        parse_word("--optimizer", text, optimizer_word, VP_N_OPTIMIZERS, any, &word, err);

    *out = (vp_optimizer)word;
    return st;
}

vp_status vp_parse_attention(const char *text, bool any, vp_attention_kind *out, vp_err *err)
{
    int       word = VP_N_ATTENTIONS;
    vp_status st =
        parse_word("--attention", text, attention_word, VP_N_ATTENTIONS, any, &word, err);

    *out = (vp_attention_kind)word;
    return st;
}

vp_status vp_check_precision(const vp_device *device, vp_precision precision, vp_err *err)
{
    return vp_device_supports(device, vp_precision_needs(precision), err);
}

/* The card of this machine and what is free on it now; without one the CPU. */
static vp_status open_here(vp_device *device, int64_t *free_bytes, vp_err *err)
{
    bool      found;
    vp_status st = VP_OK;

    VP_TRY(vp_device_here(device, free_bytes, &found, err));
    if (found)
        return VP_OK;
    VP_TRY(vp_device_open("cpu", device, err));
    *free_bytes = device->usable_bytes;
out:
    return st;
}

vp_status vp_parse_budget(const char *device_name, const vp_amount *given, vp_device *device,
                          int64_t *budget_bytes, vp_err *err)
{
    char      have[32], want[32];
    int64_t   free_bytes;
    vp_status st = VP_OK;

    VP_TRY(device_name ? vp_device_open(device_name, device, err)
                       : open_here(device, &free_bytes, err));
    *budget_bytes = device_name ? device->usable_bytes : free_bytes;
    if (given->bytes || given->share > 0)
        *budget_bytes = vp_amount_of(given, *budget_bytes);
    if (*budget_bytes > device->usable_bytes)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--budget %s is more than the %s usable on %s",
                       vp_size_text(*budget_bytes, want, sizeof want),
                       vp_size_text(device->usable_bytes, have, sizeof have), device->name));
out:
    return st;
}

vp_precision vp_default_precision(const vp_device *device)
{
    return device->is_cpu               ? VP_PREC_FP32
           : device->bf16               ? VP_PREC_BF16_MIXED
           : vp_device_has_fp16(device) ? VP_PREC_FP16_MIXED
                                        : VP_PREC_FP32;
}

vp_status vp_parse_reserve(const vp_amount *reserve, const vp_device *device, int64_t *budget_bytes,
                           vp_err *err)
{
    int64_t kept_bytes = vp_amount_of(reserve, device->usable_bytes);
    char    want[32], have[32];

    if (kept_bytes >= *budget_bytes)
        return VP_FAIL(err, VP_ERR_USAGE, "--reserve: %s of %s leave nothing",
                       vp_size_text(kept_bytes, want, sizeof want),
                       vp_size_text(*budget_bytes, have, sizeof have));
    *budget_bytes -= kept_bytes;
    return VP_OK;
}

/* What the command line says of the recipe; a recipe file that says otherwise is contradicted,
 * not overruled. */
static vp_status apply_recipe_options(const vp_plan_options *o, vp_plan_request *r, vp_err *err)
{
    vp_optimizer optimizer = r->recipe.optimizer;
    vp_precision precision = r->recipe.precision;
    vp_gradients gradients = r->recipe.gradients;
    vp_status    st        = VP_OK;

    if (o->optimizer)
        VP_TRY(vp_parse_optimizer(o->optimizer, true, &optimizer, err));
    if (o->precision)
        VP_TRY(vp_parse_precision(o->precision, true, o->device, &precision, err));
    if (o->gradients)
        VP_TRY(vp_parse_gradients(o->gradients, true, &gradients, err));
    r->any_optimizer = optimizer == VP_N_OPTIMIZERS;
    r->any_precision = precision == VP_N_PRECISIONS;
    r->any_gradients = gradients == VP_N_GRADIENTS;
    if (o->recipe && optimizer != r->recipe.optimizer && !r->any_optimizer)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--optimizer %s contradicts the recipe, which says %s",
                       o->optimizer, vp_optimizer_name(r->recipe.optimizer)));
    if (o->recipe && precision != r->recipe.precision && !r->any_precision)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--precision %s contradicts the recipe, which says %s",
                       o->precision, vp_precision_name(r->recipe.precision)));
    if (o->recipe && gradients != r->recipe.gradients && !r->any_gradients)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--gradients %s contradicts the recipe, which says %s",
                       o->gradients, vp_gradients_name(r->recipe.gradients)));
    if (!r->any_optimizer && optimizer != r->recipe.optimizer)
        vp_recipe_set_optimizer(&r->recipe, optimizer);
    if (!r->any_precision)
        r->recipe.precision = precision;
    if (!r->any_gradients)
        r->recipe.gradients = gradients;
    if (r->any_precision && !vp_precision_takes(r->recipe.precision, r->recipe.gradients))
        r->recipe.precision = VP_PREC_BF16_MIXED; /* one to begin with */
    VP_TRY(vp_check_gradients(&r->recipe, err));
out:
    return st;
}

vp_status vp_parse_host(const vp_plan_options *o, const vp_device *device, vp_plan_request *r,
                        vp_err *err)
{
    vp_status st = VP_OK;

    r->offload = o->offload ? vp_offload_by_name(o->offload) : VP_OFFLOAD_ANY;
    if (r->offload != VP_OFFLOAD_NONE && r->offload != VP_OFFLOAD_ANY && !r->host_bytes)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--offload %s needs --host-memory SIZE", o->offload));
    if (vp_offload_steps(r->offload) && !vp_request_may_step(r))
        VP_TRY(
            VP_FAIL(err, VP_ERR_USAGE,
                    "--offload %s: not of %s in %s; the host makes updates that treat each element "
                    "by itself and have a master weight or a state",
                    o->offload, vp_optimizer_name(r->recipe.optimizer),
                    vp_precision_name(r->recipe.precision)));
    if (vp_offload_held(r->offload) == VP_OFFLOAD_OPTIMIZER && !r->any_optimizer &&
        !r->any_precision && vp_optimizer_n_states(r->recipe.optimizer) == 0 &&
        !vp_precision_has_master(r->recipe.precision))
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE,
                       "--offload %s: %s in %s has neither a master weight nor a state", o->offload,
                       vp_optimizer_name(r->recipe.optimizer),
                       vp_precision_name(r->recipe.precision)));
    if (r->n_segments && r->host_bytes && r->offload != VP_OFFLOAD_ANY &&
        (vp_offload_moves(r->offload) || vp_offload_streams(r->offload)))
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--offload %s: not of blocks in segments", o->offload));
    if (r->host_bytes && device->unified)
        VP_TRY(
            VP_FAIL(err, VP_ERR_USAGE,
                    "--host-memory: %s and its host share one memory; what would be offloaded lies "
                    "in the same bytes",
                    device->name));
    if (r->host_bytes && !device->is_cpu && device->host_link_bytes_per_s <= 0)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE,
                       "--host-memory: nothing is known of the link between %s and its host; give "
                       "host_link_bytes_per_s in a device file",
                       device->name));
out:
    return st;
}

vp_status vp_parse_updates(const vp_plan_options *o, const vp_device *device, vp_plan_request *r,
                           vp_err *err)
{
    const bool  any   = r->offload == VP_OFFLOAD_ANY && r->host_bytes && device->is_cpu;
    const bool  steps = any ? vp_request_may_step(r)
                            : vp_offload_steps(r->offload) && !vp_offload_streams(r->offload);
    const char *because =
        !vp_recipe_updates_alone(&r->recipe)
            ? "the recipe clips by the norm of all gradients, scales the loss, or has "
              "an optimizer that treats whole matrices (clip_norm 0 is no clipping)"
        : r->micro_batch && r->micro_batch != r->global_batch && !steps
            ? "gradients are accumulated over several micro-steps"
        : r->offload != VP_OFFLOAD_ANY && vp_offload_held(r->offload) != VP_OFFLOAD_NONE && !steps
            ? "updates fetch what lies in host memory"
            : NULL;

    if (!o->updates)
        return VP_OK;
    r->updates = strcmp(o->updates, "backward") == 0 ? VP_UPDATES_BACKWARD : VP_UPDATES_END;
    if (r->updates == VP_UPDATES_END)
        return VP_OK;
    if (because)
        return VP_FAIL(err, VP_ERR_USAGE, "--updates backward: not here; %s", because);
    if (!steps)
        r->micro_batch = r->global_batch;
    return VP_OK;
}

vp_status vp_plan_job_open(const char *model_name, const vp_plan_options *o, vp_plan_job *job,
                           vp_err *err)
{
    vp_plan_request *r  = &job->request;
    vp_status        st = VP_OK;

    *job = (vp_plan_job){.request = {.recipe       = vp_recipe_default(),
                                     .seq          = o->seq,
                                     .global_batch = o->global_batch,
                                     .micro_batch  = o->micro_batch,
                                     .recompute    = VP_RECOMPUTE_ANY,
                                     .loss_chunk   = VP_CHUNK_ANY,
                                     .host_bytes   = o->host_bytes,
                                     .gap          = 1e-5}};
    if (!o->seq)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, VP_SEQ_REQUIRED));
    if (!o->global_batch)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, VP_GLOBAL_BATCH_REQUIRED));
    if (o->attention)
        VP_TRY(vp_parse_attention(o->attention, true, &r->attention, err));
    if (o->recompute)
        VP_TRY(vp_parse_recompute(o->recompute, &r->recompute, &r->n_segments, err));
    if (o->loss)
        VP_TRY(vp_parse_loss(o->loss, &r->loss_chunk, err));
    if (o->recipe)
        VP_TRY(vp_recipe_read(o->recipe, &r->recipe, err));
    VP_TRY(vp_parse_budget(o->device, &o->budget, &job->device, &r->budget_bytes, err));
    if (!o->recipe)
        r->recipe.precision = vp_default_precision(&job->device);
    VP_TRY(apply_recipe_options(o, r, err));
    job->reserve_bytes = vp_amount_of(&o->reserve, job->device.usable_bytes);
    VP_TRY(vp_parse_reserve(&o->reserve, &job->device, &r->budget_bytes, err));
    VP_TRY(vp_check_precision(&job->device, r->recipe.precision, err));
    VP_TRY(vp_parse_host(o, &job->device, r, err));
    VP_TRY(vp_parse_updates(o, &job->device, r, err));
    if (o->profile)
        VP_TRY(vp_profile_read(o->profile, &job->profile, err));
    if (o->lora && r->recipe.lora.rank)
        VP_TRY(
            VP_FAIL(err, VP_ERR_USAGE, "--lora: the recipe says already which adapters there are"));
    if (o->lora)
        VP_TRY(vp_read_own_lora(o->lora, model_name, &r->recipe.lora, err));
    VP_TRY(vp_model_open(model_name,
                         &(vp_model_opts){.dropout    = r->recipe.dropout,
                                          .class_name = o->class_name,
                                          .lora       = &r->recipe.lora},
                         &job->model, err));
    r->model = job->model;
    if (job->profile)
        vp_device_calibrate(&job->device, job->profile);
    r->device  = &job->device;
    r->profile = job->profile;
    assert(!r->any_precision ||
           r->recipe.precision < VP_N_PRECISIONS); /* free, and yet one to begin with */
    VP_TRY(vp_say_refusal(vp_request_refusal(r), err));
out:
    return st;
}

void vp_plan_job_release(vp_plan_job *job)
{
    vp_model_free(job->model);
    vp_profile_free(job->profile);
}

/* Names of the ops in mask, " + " between them. */
static void append_ops(vp_text *t, const vp_template *block, uint64_t mask)
{
    for (int i = 0; i < block->n_ops; i++)
        if (mask >> i & 1)
            vp_text_printf(t, "%s%s", mask & (((uint64_t)1 << i) - 1) ? " + " : "",
                           block->ops[i].name);
}

/* The blocks of a run: "9 blocks recompute ln_1 + mlp.act", "22 blocks in segments of 2". */
static void append_run(vp_text *t, const vp_model *model, const vp_block_run *run)
{
    const vp_template *block = &model->graph.templates[vp_block_template(&model->graph)];

    assert(run->n_blocks > 0 && run->segment > 0 && block->n_ops <= 64);
    if (run->segment > 1) {
        vp_text_printf(t, "%lld blocks in segments of %lld", (long long)run->n_blocks,
                       (long long)run->segment);
        return;
    }
    vp_text_printf(t, "%lld block%s ", (long long)run->n_blocks,
                   run->n_blocks == 1 ? " recomputes" : "s recompute");
    if (run->recompute)
        append_ops(t, block, run->recompute);
    else
        vp_text_printf(t, "nothing");
    if (run->offload) {
        vp_text_printf(t, ", move ");
        append_ops(t, block, run->offload);
    }
}

/* Chunks of the loss, and what lies in host memory. */
static void append_rest(vp_text *t, const vp_model *model, const vp_scenario *s)
{
    char count[32];

    if (s->loss_chunk)
        vp_text_printf(t, ", loss in chunks of %s tokens",
                       vp_count_text(s->loss_chunk, count, sizeof count));
    else
        vp_text_printf(t, ", loss all at once");
    if (s->offload.blocks)
        vp_text_printf(
            t, ", optimizer states and the blocks' parameters and gradients in host memory");
    else if (s->offload.states)
        vp_text_printf(t, ", optimizer states of %lld of the chain's %lld parts in host memory",
                       (long long)s->offload.states, (long long)model->graph.n_instances);
    if (s->offload.host_step)
        vp_text_printf(t, ", stepped there");
    if (vp_scenario_updates_in_backward(s))
        vp_text_printf(t, ", updates in backward");
}

static void append_micro_steps(vp_text *t, const vp_scenario *s)
{
    vp_text_printf(t, "micro-batch %lld, gradient accumulation %lld", (long long)s->micro_batch,
                   (long long)vp_scenario_n_micro(s));
    if (vp_scenario_last_batch(s))
        vp_text_printf(t, ", the last of %lld", (long long)vp_scenario_last_batch(s));
}

void vp_scenario_text(vp_text *t, const vp_model *model, const vp_scenario *s)
{
    const char *kind = vp_scenario_recompute_name(s, model);

    assert(s->n_runs >= 0 && s->n_runs <= VP_MAX_RUNS);
    append_micro_steps(t, s);
    vp_text_printf(t, ", ");
    if (strcmp(kind, "mixed") != 0)
        vp_text_printf(t, "recompute %s", kind);
    for (int i = 0; strcmp(kind, "mixed") == 0 && i < s->n_runs; i++) {
        vp_text_printf(t, "%s", i ? "; " : "");
        append_run(t, model, &s->runs[i]);
    }
    append_rest(t, model, s);
}

void vp_print_scenario(const char *label, const vp_model *model, const vp_scenario *s)
{
    vp_text t     = {0};
    int64_t first = 0;

    if (strcmp(vp_scenario_recompute_name(s, model), "mixed") != 0) {
        vp_scenario_text(&t, model, s);
        vp_screen_line(label, "%s", vp_text_string(&t));
        vp_text_release(&t);
        return;
    }
    append_micro_steps(&t, s);
    append_rest(&t, model, s);
    vp_screen_line(label, "%s", vp_text_string(&t));
    for (int i = 0; i < s->n_runs; i++) {
        vp_text_release(&t);
        vp_text_printf(&t, s->runs[i].n_blocks > 1 ? "%lld to %lld: " : "%lld: ", (long long)first,
                       (long long)(first + s->runs[i].n_blocks - 1));
        append_run(&t, model, &s->runs[i]);
        vp_screen_line(i ? "" : "blocks", "%s", vp_text_string(&t));
        first += s->runs[i].n_blocks;
    }
    vp_text_release(&t);
}

const char *vp_overhead_class_text(const vp_plan *plan, char *buf, size_t buf_size)
{
    char shown[300];
    bool assumed = !plan->outside_class || strcmp(plan->outside_class, "assumed") == 0;

    if (assumed || !plan->outside_of || !plan->outside_of[0])
        snprintf(buf, buf_size, "%s", assumed ? "assumed" : plan->outside_class);
    else
        snprintf(buf, buf_size, "%s: %s", plan->outside_class,
                 vp_text_escape(plan->outside_of, shown, sizeof shown));
    return buf;
}

void vp_overhead_to_answer(const vp_plan *plan, json_t *answer)
{
    if (!answer)
        return;
    json_object_set_new(answer, "outside_bytes", json_integer((json_int_t)plan->outside_bytes));
    json_object_set_new(answer, "outside_class",
                        plan->outside_class ? json_string(plan->outside_class) : json_null());
}

json_t *vp_proof_json(const vp_plan *plan)
{
    bool checked = plan->proof == VP_PROOF_OPTIMAL || plan->proof == VP_PROOF_GAP;

    return json_pack("{s:s, s:o, s:o, s:o, s:o}", "status", vp_proof_name(plan->proof), "gap",
                     vp_json_real_or_null(plan->proof_gap), "bound_s",
                     vp_json_real_or_null(plan->bound_s), "least_budget_bytes",
                     vp_json_int_or_null(plan->least_budget_bytes), "checked_by",
                     checked ? json_string("vplan") : json_null());
}

json_t *vp_presets_json(const vp_plan_answer *a)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < a->n_presets; i++) {
        const vp_candidate *c = &a->presets[i].candidate;
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:I, s:f, s:b, s:s, s:s, s:s}", "name", a->presets[i].name,
                            "peak_bytes", (json_int_t)c->figures.peak_bytes, "device_bytes",
                            (json_int_t)c->figures.device_bytes, "step_time_s",
                            c->figures.step_time_s, "fits", (int)c->fits, "precision",
                            vp_precision_name(c->scenario.recipe.precision), "gradients",
                            vp_gradients_name(c->scenario.recipe.gradients), "optimizer",
                            vp_optimizer_name(c->scenario.recipe.optimizer)));
    }
    return list;
}

json_t *vp_items_json(const vp_itemised *x)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < x->n_items; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:I, s:s}", "name", x->items[i].name, "bytes",
                                        (json_int_t)x->items[i].bytes, "class", x->items[i].class));
    return list;
}

json_t *vp_phases_json(const vp_itemised *x)
{
    json_t *list = json_array();

    for (int p = 0; p < VP_N_PHASES; p++)
        json_array_append_new(list, json_pack("{s:s, s:I}", "name", x->phases[p].name, "peak_bytes",
                                              (json_int_t)x->phases[p].peak_bytes));
    return list;
}
