/* What the options of plan and tune ask for: words, device, budget, recipe, pins. */
#include "cli/cli.h"
#include "cli/estimate.h"
#include "cli/meant.h"
#include "cli/names.h"
#include "cli/rows.h"
#include "cli/words.h"
#include "devices/device_here.h"
#include "planner/outline_store.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

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
    nearest = vp_word_nearest(vp_value_meant(text) ? vp_value_meant(text) : text, words, n);
    VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "%s %s: one of %s%s%s%s%s", option,
                   vp_text_escape(text, shown, sizeof shown), known.data, any ? ", any" : "",
                   nearest < 0 ? "" : "; did you mean ", nearest < 0 ? "" : words[nearest],
                   nearest < 0 ? "" : "?"));
out:
    vp_text_release(&known);
    return st;
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
    VP_TRY(parse_word("--precision", text, vp_word_of_precision, VP_N_PRECISIONS, any, &word, err));
    *out = (vp_precision)word;
out:
    return st;
}

vp_status vp_parse_gradients(const char *text, bool any, vp_gradients *out, vp_err *err)
{
    int       word = VP_N_GRADIENTS;
    vp_status st =
        parse_word("--gradients", text, vp_word_of_gradients, VP_N_GRADIENTS, any, &word, err);

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
        parse_word("--optimizer", text, vp_word_of_optimizer, VP_N_OPTIMIZERS, any, &word, err);

    *out = (vp_optimizer)word;
    return st;
}

vp_status vp_parse_attention(const char *text, bool any, vp_attention_kind *out, vp_err *err)
{
    int       word = VP_N_ATTENTIONS;
    vp_status st =
        parse_word("--attention", text, vp_word_of_attention, VP_N_ATTENTIONS, any, &word, err);

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
    if (r->pinned_bytes && !r->host_bytes)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE,
                       "--pinned-memory needs --host-memory SIZE, of which it is "
                       "the part that may be pinned"));
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
                                     .pinned_bytes = o->pinned_bytes,
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
    r->reserve         = o->reserve;
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
    VP_TRY(vp_model_with_graph(model_name,
                               &(vp_model_opts){.dropout    = r->recipe.dropout,
                                                .class_name = o->class_name,
                                                .lora       = &r->recipe.lora},
                               &job->model, NULL, err));
    VP_TRY_ALLOC(err, r->outlines = vp_outline_store_new(job->model));
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
    vp_outline_store_free(job->request.outlines);
    vp_model_free(job->model);
    vp_profile_free(job->profile);
}
