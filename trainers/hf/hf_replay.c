#include "trainers/hf/hf_replay.h"

#include "base/beside.h"
#include "base/checked.h"
#include "base/text.h"
#include "base/units.h"
#include "trainers/hf/hf_find.h"
#include "trainers/hf/hf_fused.h"
#include "trainers/hf/hf_generate.h"
#include "trainers/hf/hf_host.h"
#include "trainers/hf/hf_loader.h"
#include "trainers/hf/hf_moved.h"
#include "trainers/hf/hf_refuse.h"
#include "trainers/hf/hf_resident.h"
#include "trainers/hf/hf_shelf.h"
#include "trainers/hf/hf_step.h"
#include "trainers/hf/hf_task.h"
#include "trainers/hf/hf_trained.h"
#include "trainers/hf/hf_world.h"
#include "trainers/torch/optimizer_step.h"
#include "trainers/torch/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* On a card that is full holes move from step to step: of 14 settings that were played one ended in its third. */
enum { STEPS = 2, STEPS_WITHIN_LIMIT = 6 };

typedef struct run {
    const vp_model           *model;
    const vp_hf_request      *request;
    vp_hf_found               found;
    vp_caching_allocator     *allocator;
    vp_ledger                 ledger;
    vp_recorded              *step;
    vp_hf_resident           *resident; /* or NULL: nothing stays besides */
    vp_hf_fused              *fused;    /* or NULL: the optimizer has a step of its own */
    vp_hf_moved              *moved; /* or NULL: it leaves weights and gradients where they are */
    vp_optimizer_step        *optimizer;
    vp_recorded_watch         adds;  /* to gradients of what stays */
    vp_world                 *world; /* or NULL: one rank */
    vp_world_opts             world_opts;
    const vp_recorded_loaded *loaded; /* by a world like it, or NULL */
    vp_hf_trained             trained;
    vp_hf_estimate           *out;
    bool                      resumes; /* it goes on from a checkpoint */
    char                      names[VP_LEDGER_PHASES][24];
} run;

static bool has_phase(const run *r, const char *phase)
{
    const char *name;

    for (int i = 0; (name = vp_recorded_phase(r->step, i)); i++)
        if (strcmp(name, phase) == 0)
            return true;
    return false;
}

/* Reserved bytes, and so needed ones, that are at_most_bytes with this share more. Of a share a byte more, for bytes are whole. */
static int64_t within_share(const vp_hf_request *q, double share)
{
    return share > 0 && q->at_most_bytes ? (int64_t)((double)q->at_most_bytes / (1 + share)) + 1
                                         : q->at_most_bytes;
}

/* Of this very step. */
static int64_t at_most(const run *r)
{
    const vp_hf_request *q = r->request;
    bool                 widens =
        r->out->stands_in && q->at_most_share > 0 && q->at_most_share < VP_HF_STAND_IN_SHARE;

    return within_share(q, widens ? VP_HF_STAND_IN_SHARE : q->at_most_share);
}

/* Nothing is allocated yet. */
static vp_status begin(run *r, vp_err *err)
{
    const vp_hf_request      *q    = r->request;
    vp_caching_allocator_opts opts = {.device_total_bytes = q->limit_bytes,
                                      .addresses_fall     = !q->addresses_rise};
    vp_status                 st   = VP_OK;

    if (q->alloc_conf)
        VP_TRY(vp_caching_allocator_conf(q->alloc_conf, &opts, err));
    VP_TRY(vp_caching_allocator_new(&opts, &r->allocator, err));
    r->ledger = (vp_ledger){.allocator            = r->allocator,
                            .counts_alone         = q->counts_alone,
                            .at_most_needed_bytes = within_share(q, q->least_share)};
    VP_TRY(vp_hf_step_new(&r->found, q, r->out->seq, &r->ledger, &r->step, err));
    vp_recorded_workspace(r->step, vp_hf_workspace_of(q));
    if (r->found.ties && !vp_recorded_tie(r->step))
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "%s was recorded with untied tables only",
                       r->model->family));
out:
    return st;
}

/* All blocks go with the allocator: nothing is given back one by one. */
static void end(run *r)
{
    vp_caching_allocator_destroy(r->allocator);
    r->allocator        = NULL;
    r->ledger.allocator = NULL;
    vp_hf_resident_free(r->resident);
    vp_hf_fused_free(r->fused);
    vp_hf_moved_free(r->moved);
    vp_optimizer_step_free(r->optimizer);
    free(r->trained.list);
    vp_world_free(r->world);
    vp_recorded_free(r->step);
    r->resident     = NULL;
    r->fused        = NULL;
    r->moved        = NULL;
    r->optimizer    = NULL;
    r->trained.list = NULL;
    r->world        = NULL;
    r->step         = NULL;
    r->loaded       = NULL;
}

/* Beside adapters it is trained as it was loaded. */
static vp_status check_head(run *r, vp_err *err)
{
    const vp_hf_request *q = r->request;

    if (vp_hf_is_shared(q))
        return VP_FAIL(
            err, VP_ERR_INPUT,
            "adapters beside a head of classes under --parallel %s were not recorded; on "
            "one card they were",
            q->parallel);
    if (strcmp(q->precision, "fp16-amp") == 0)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--precision fp16-amp trains the head of classes beside adapters in fp16, "
                       "whose gradients PyTorch's GradScaler refuses to unscale; fp16-mixed trains "
                       "it in fp32");
    vp_hf_assume(r->out, "the head of classes is trained whole beside the adapters (peft's "
                         "task_type, or modules_to_save=[\"classifier\"])");
    return VP_OK;
}

static vp_status set_up(run *r, vp_err *err)
{
    const vp_hf_request *q  = r->request;
    vp_status            st = VP_OK;

    VP_TRY(vp_hf_check_ways(r->model, q, err));
    VP_TRY(vp_hf_find(r->model, q, VP_HF_STEP, r->out, &r->found, err));
    if (vp_hf_trains_head(q, r->out->task))
        VP_TRY(check_head(r, err));
    if (r->found.sizes.symbols.at[VP_SYM_t] && q->capability < 80)
        VP_TRY(VP_FAIL(
            err, VP_ERR_INPUT,
            "%s: below compute capability 8.0 PyTorch has no grouped products of experts; what "
            "runs instead was not recorded",
            r->model->name));
    VP_TRY(begin(r, err));
    if (q->keep_output && !has_phase(r, "output"))
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT,
                       "%s: this training step was not recorded with its output kept",
                       r->model->family));
out:
    return st;
}

/* Counting alone has no state of an allocator. */
static bool keeps_loaded(const vp_hf_request *q)
{
    return q->shelf && !q->counts_alone;
}

/* Several ranks: what the first one does besides. Where one like it has loaded before, it comes with what it loaded. */
static vp_status share(run *r, vp_err *err)
{
    const vp_hf_request *q  = r->request;
    vp_status            st = VP_OK;

    if (!vp_hf_is_shared(q))
        return VP_OK;
    r->world_opts = vp_hf_world_opts(r->model, q, &r->found, r->out);
    VP_TRY(vp_recorded_ready(r->step, err));
    if (keeps_loaded(q))
        r->loaded =
            vp_hf_shelf_loaded(q->shelf, q->alloc_conf, q->limit_bytes, r->step, &r->world_opts);
    if (!r->loaded)
        VP_TRY(vp_world_new(&r->world_opts, r->step, &r->ledger, &r->world, err));
out:
    return st;
}

static const char *phase_name(run *r, const char *word, int step, int64_t micro)
{
    char *name = r->names[r->ledger.n_phases];

    if (micro > 0)
        snprintf(name, sizeof r->names[0], "%s%d.%d", word, step, (int)micro + 1);
    else
        snprintf(name, sizeof r->names[0], step ? "%s%d" : "%s", word, step);
    return name;
}

/* After the second micro-step every further one is like it. */
static int64_t micro_steps(const run *r)
{
    return r->request->accumulation < 3 ? r->request->accumulation : 3;
}

/* Whether gradients are reduced, and go, with each micro-batch: the next one finds none. DeepSpeed has no other way for what it cuts,
 * and world_zero.c knows it. */
static bool starts_anew(const run *r)
{
    return r->fused || (r->request->syncs_each && r->world &&
                        vp_world_syncs_each(r->request->parallel, r->request->offload));
}

/* What a recording has by itself of the pass that is played, if anything: of a prefix's keys and values in all layers. */
static vp_status play_beside(run *r, const char *word, const char *pass, const char *phase,
                             vp_err *err)
{
    if (strcmp(word, pass) != 0 || !has_phase(r, phase))
        return VP_OK;
    return vp_recorded_play(r->step, phase, err);
}

/* The model's output goes before backward. */
static const char *output_of(const run *r, int64_t micro)
{
    return micro > 0 && !starts_anew(r) ? "output_more" : "output";
}

/* Whether it goes as soon as a cast of it is there. */
static bool returns_a_cast(const run *r)
{
    return r->world && r->world_opts.cast_bytes > 0;
}

static vp_status play(run *r, const char *word, int step, int64_t micro, vp_err *err)
{
    bool      more = micro > 0 && !starts_anew(r);
    char      phase[32];
    vp_status st = VP_OK;

    vp_ledger_begin(&r->ledger, phase_name(r, word, step, micro));
    snprintf(phase, sizeof phase, "%s%s", word, more ? "_more" : "");
    if (r->world && step)
        VP_TRY(vp_world_begin(r->world, word, starts_anew(r) || micro + 1 == micro_steps(r), err));
    if (strcmp(word, "backward") == 0) {
        VP_TRY(vp_hf_resident_backward(r->resident, err));
        vp_hf_fused_begin(r->fused);
    }
    VP_TRY(play_beside(r, word, "forward", more ? "prefix_more" : "prefix", err));
    VP_TRY(vp_recorded_play(r->step, phase, err));
    VP_TRY(play_beside(r, word, "backward", more ? "ending_more" : "ending", err));
    if (strcmp(word, "backward") == 0) {
        VP_TRY(vp_hf_fused_end(r->fused, err));
        VP_TRY(vp_hf_resident_backward_ends(r->resident, err));
    }
    if (strcmp(word, "forward") == 0 && has_phase(r, "reference"))
        VP_TRY(vp_recorded_play(r->step, more ? "reference_more" : "reference", err));
    if (strcmp(word, "forward") == 0)
        VP_TRY(vp_hf_resident_forward(r->resident, err));
    if (r->world && step)
        VP_TRY(vp_world_end(r->world, err));
    if (strcmp(word, "forward") == 0 && returns_a_cast(r)) {
        if (has_phase(r, output_of(r, micro)))
            VP_TRY(vp_recorded_play(r->step, output_of(r, micro), err));
        VP_TRY(vp_world_returned(r->world, err));
    }
    vp_ledger_end(&r->ledger);
out:
    return st;
}

static vp_status no_layer(void *user, const char *phase, int64_t i, vp_err *err)
{
    (void)user, (void)phase, (void)i, (void)err;
    return VP_OK;
}

/* A gradient that is added to one that is there already. */
static vp_status add_gradient(void *ledger, int64_t i, vp_ledger_block *block, vp_err *err)
{
    (void)i, (void)err;
    vp_ledger_free(ledger, block);
    return VP_OK;
}

/* Phases of the recording before the batch is there: the base, then what is put on top of it. */
static vp_status play_phases_of_loading(run *r, vp_err *err)
{
    const char *name;
    vp_status   st = VP_OK;

    for (int i = 0; (name = vp_recorded_phase(r->step, i)) && strcmp(name, "inputs") != 0; i++) {
        VP_TRY(vp_recorded_play(r->step, name, err));
        if (strcmp(name, "upcast") == 0) /* prepare_model_for_kbit_training() ends so */
            VP_TRY(vp_ledger_empty_cache(&r->ledger, err));
    }
out:
    return st;
}

/* Played once for all steps that load the same; what several ranks do then is another part of it. */
static vp_status load(run *r, vp_err *err)
{
    const vp_hf_request      *q      = r->request;
    const vp_recorded_loaded *loaded = NULL;
    vp_status                 st     = VP_OK;

    VP_TRY(vp_recorded_ready(r->step, err));
    if (keeps_loaded(q))
        loaded = vp_hf_shelf_loaded(q->shelf, q->alloc_conf, q->limit_bytes, r->step, NULL);
    if (loaded)
        return vp_recorded_loaded_give(loaded, r->step, NULL, &r->allocator, NULL, err);
    VP_TRY(play_phases_of_loading(r, err));
    if (keeps_loaded(q))
        VP_TRY(vp_hf_shelf_keep(q->shelf, q->alloc_conf, q->limit_bytes, r->step, NULL, NULL, err));
out:
    return st;
}

static vp_status load_shared(run *r, vp_err *err)
{
    const vp_hf_request *q  = r->request;
    vp_status            st = VP_OK;

    if (r->loaded)
        return vp_recorded_loaded_give(r->loaded, r->step, &r->world_opts, &r->allocator, &r->world,
                                       err);
    VP_TRY(load(r, err));
    VP_TRY(vp_world_load(r->world, err));
    if (keeps_loaded(q))
        VP_TRY(vp_hf_shelf_keep(q->shelf, q->alloc_conf, q->limit_bytes, r->step, r->world,
                                &r->world_opts, err));
out:
    return st;
}

static vp_status play_loading(run *r, vp_err *err)
{
    vp_status st = VP_OK;

    vp_ledger_begin(&r->ledger, phase_name(r, "load", 0, 0));
    VP_TRY(vp_hf_is_shared(r->request) ? load_shared(r, err) : load(r, err));
    VP_TRY(vp_hf_resident_load(r->model, r->request, r->step, r->out->seq, &r->ledger, &r->resident,
                               err));
    r->adds = (vp_recorded_watch){.user = &r->ledger, .layer = no_layer, .gradient = add_gradient};
    if (vp_hf_resident_has_gradients(r->resident))
        vp_recorded_watched(r->step, &r->adds);
    vp_ledger_end(&r->ledger);
out:
    return st;
}

/* The model's output goes when the loss is there; where it is kept, when the next one is, or with the
 * step. */
static vp_status play_micro_step(run *r, int step, int64_t micro, vp_err *err)
{
    const char *output = output_of(r, micro);
    bool        kept   = r->request->keep_output;
    vp_status   st     = VP_OK;

    VP_TRY(play(r, "forward", step, micro, err));
    if (kept && micro == 1)
        VP_TRY(vp_recorded_play(r->step, "output", err));
    if (!kept && has_phase(r, output) && !returns_a_cast(r))
        VP_TRY(vp_recorded_play(r->step, output, err));
    VP_TRY(play(r, "backward", step, micro, err));
out:
    return st;
}

/* Whether a micro-step may be like the one before. What cards do in the last one is something else, what stays besides may change
 * from one to the next, and a kept output goes with the next. */
static bool may_repeat(const run *r, int64_t micro)
{
    return micro >= 2 && micro < micro_steps(r) && !r->world && !r->resident &&
           !r->request->keep_output && !r->ledger.counts_alone;
}

/* The micro-step before once more, where its events would find what they found then. What is reserved beyond the limit may be by now
 * beside less than was needed then. */
static bool repeats_micro_step(run *r, int step, int64_t micro)
{
    vp_ledger *l = &r->ledger;

    if (!may_repeat(r, micro) || l->reserves_more || !vp_caching_allocator_repeat(r->allocator))
        return false;
    vp_ledger_repeat(l, l->n_phases - 2, phase_name(r, "forward", step, micro));
    vp_ledger_repeat(l, l->n_phases - 2, phase_name(r, "backward", step, micro));
    return true;
}

static vp_status play_step(run *r, int step, vp_err *err)
{
    int64_t              n  = micro_steps(r);
    const vp_hf_trained *t  = &r->trained;
    vp_status            st = VP_OK;

    if (r->request->generates) {
        vp_ledger_begin(&r->ledger, phase_name(r, "generate", step, 0));
        VP_TRY(vp_recorded_multiplies(r->step, "forward", err));
        VP_TRY(vp_hf_generate(&r->found.sizes, r->request, r->out->seq, &r->ledger, err));
        vp_ledger_end(&r->ledger);
    }
    for (int64_t micro = 0; micro < n; micro++) {
        if (repeats_micro_step(r, step, micro))
            continue;
        if (may_repeat(r, micro + 1))
            vp_caching_allocator_begin_round(r->allocator);
        VP_TRY(play_micro_step(r, step, micro, err));
    }
    vp_ledger_begin(&r->ledger, phase_name(r, "step", step, 0));
    if (r->request->clips && t->n && !r->fused)
        VP_TRY(vp_clip_play(t->list, t->n, &r->ledger, err));
    if (r->world)
        VP_TRY(vp_world_step(r->world, err));
    VP_TRY(vp_optimizer_step_play(r->optimizer, err));
    if (r->world)
        VP_TRY(vp_world_stepped(r->world, err));
    vp_ledger_end(&r->ledger);
    if (r->request->keep_output)
        VP_TRY(vp_recorded_play(r->step, output_of(r, n - 1), err));
    vp_recorded_drop_gradients(r->step);
    vp_hf_resident_drop_gradients(r->resident);
    if (r->world)
        vp_world_drop_gradients(r->world);
out:
    return st;
}

/* Of the model whose linear layers are quantised: two in a byte, or one. What is not is fp32, but for biases, which are 16 bits: so
 * the model's count where it is within a thousandth. Else it is as it was loaded. */
static int64_t quantised_parameters(const run *r)
{
    int64_t each =
        vp_hf_upcasts(r->request) ? 4 : vp_hf_weight_bytes(vp_hf_computed_precision(r->request));
    int64_t in_a_byte = strcmp(r->request->load, "int8") == 0 ? 1 : 2;
    int64_t n =
        in_a_byte * vp_recorded_quantised_bytes(r->step) + vp_recorded_frozen_bytes(r->step) / each;
    int64_t expected = r->model->n_params;

    return llabs(n - expected) <= expected / 1000 ? expected : n;
}

/* A batch of an evaluation behind the steps: no gradients, no checkpoints, no dropout. Its recording's own model
 * is not loaded. */
static vp_status play_evaluation(run *r, vp_err *err)
{
    vp_hf_request  q     = *r->request;
    vp_hf_found    found = {0};
    vp_hf_estimate e     = {0};
    vp_recorded   *pass  = NULL;
    vp_status      st    = VP_OK;

    if (!q.eval_batch)
        return VP_OK;
    if (vp_hf_is_shared(&q) && !vp_world_replicates(q.parallel))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "an evaluation under --parallel %s is not known; under ddp it is",
                       q.parallel);
    q.batch        = q.eval_batch;
    q.recompute    = "none";
    q.lora.dropout = 0;
    VP_TRY(vp_hf_find(r->model, &q, VP_HF_EVALUATION, &e, &found, err));
    VP_TRY(vp_hf_step_new(&found, &q, e.seq, &r->ledger, &pass, err));
    vp_ledger_begin(&r->ledger, "evaluate");
    VP_TRY(vp_recorded_play(pass, "inputs", err));
    VP_TRY(vp_recorded_play(pass, "evaluate", err));
    VP_TRY(vp_recorded_play(pass, "output", err));
    vp_ledger_end(&r->ledger);
    for (int i = 0; i < e.n_assumptions; i++)
        vp_hf_assume(r->out, "%s", e.assumptions[i]);
out:
    vp_recorded_free(pass);
    vp_hf_found_release(&found);
    return st;
}

/* Whether vplan's own graph of the model ends in what the task learns, so that both have as many parameters. */
static bool is_of_task(const vp_model *model, const char *task)
{
    vp_head head = strcmp(task, "mlm") == 0      ? VP_HEAD_MASKED
                   : strcmp(task, "seqcls") == 0 ? VP_HEAD_SEQUENCE
                   : strcmp(task, "tokcls") == 0 ? VP_HEAD_TOKEN
                                                 : VP_HEAD_NEXT_TOKEN;

    return model->n_params && !model->is_priced_only && model->head == head;
}

/* The recording's parameters are the model's, or what was recorded is another model. */
static vp_status count_parameters(run *r, vp_err *err)
{
    const vp_hf_request *q = r->request;
    int64_t              n, bytes = 0, base, each = vp_hf_weight_bytes(vp_hf_computed_precision(q));
    const int64_t       *list = vp_recorded_parameters(r->step, &n);
    int64_t              idle = vp_recorded_idle_bytes(r->step) / vp_hf_adapter_bytes(q);

    for (int64_t i = 0; i < n; i++)
        bytes += list[i];
    if (vp_hf_has_adapters(q)) {
        base = vp_recorded_frozen_bytes(r->step) / each;
        if (vp_hf_is_quantised(q))
            base = quantised_parameters(r);
        r->out->n_trained = vp_hf_trained_elements(q, r->step);
        r->out->n_params  = base + r->out->n_trained + idle;
    } else {
        r->out->n_trained = bytes / each;
        r->out->n_params  = base =
            r->out->n_trained + (vp_hf_has_reference(q) ? 0
                                                        : vp_recorded_frozen_bytes(r->step) /
                                                              each); /* not its reference */
    }
    vp_hf_trained_assume_idle(r->model, q, idle, r->out);
    if (is_of_task(r->model, r->out->task) && base != r->model->n_params)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "%s: the recorded step of %s has %lld parameters at these sizes, this model "
                       "has %lld: a field of its config changes what runs",
                       r->model->name, r->model->family, (long long)base,
                       (long long)r->model->n_params);
    return VP_OK;
}

static void finish(run *r)
{
    vp_hf_estimate *e = r->out;

    e->n_phases = r->ledger.n_phases;
    for (int i = 0; i < e->n_phases; i++) {
        e->phases[i] = r->ledger.phases[i];
        if (e->phases[i].allocated_bytes > e->allocated_bytes) {
            e->allocated_bytes = e->phases[i].allocated_bytes;
            e->peak            = i;
        }
        if (e->phases[i].reserved_bytes > e->reserved_bytes)
            e->reserved_bytes = e->phases[i].reserved_bytes;
    }
}

static int64_t most_of_steps(const vp_hf_estimate *e)
{
    int64_t most = 0;

    for (int i = 0; i < e->n_phases; i++)
        if (strcmp(e->phases[i].name, "load") != 0)
            most = vp_max_i64(most, e->phases[i].allocated_bytes);
    return most;
}

/* What steps in host memory under DeepSpeed: whatever Trainer is told, accelerate 1.15 puts DeepSpeedCPUAdam in its place, but for Adagrad
 * and bitsandbytes' Lion in 32 bits, which have their like (utils/deepspeed.py, map_pytorch_optim_to_deepspeed()). */
static const char *stepped_on_host(const vp_hf_request *q)
{
    static const char *const own[]      = {"adagrad", "lion_32bit"};
    bool                     is_swapped = strncmp(q->parallel, "zero", 4) == 0 && q->offload &&
                      strcmp(q->offload, "none") != 0 && !vp_hf_is_plain(q);

    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        is_swapped = is_swapped && strcmp(q->optimizer, own[i]) != 0;
    return is_swapped ? "adamw_torch" : q->optimizer;
}

/* What is said of several ranks, and what their hosts hold: states are fp32 there. */
static void finish_world(run *r)
{
    const vp_hf_request *q       = r->request;
    const char          *stepped = stepped_on_host(q);
    int64_t              elements;

    vp_world_host(r->world, &r->out->pinned_bytes, &elements);
    r->out->host_bytes = r->out->pinned_bytes + 4 * elements * vp_optimizer_step_states(stepped);
    if (strcmp(stepped, q->optimizer) != 0 &&
        strncmp(q->optimizer, "adamw_torch", strlen("adamw_torch")) != 0)
        vp_hf_assume(r->out,
                     "%s is not what trains: with offload accelerate puts DeepSpeedCPUAdam in its "
                     "place, whose two states in fp32 are counted in host memory",
                     q->optimizer);
    vp_hf_assume(
        r->out,
        strncmp(q->parallel, "zero", 4) == 0
            ? "DeepSpeed 0.19 with the settings that emit writes: buckets of 5e8 "
              "elements, overlap_comm at stage 3 only, its defaults besides"
        : strcmp(q->parallel, "ddp") == 0
            ? "several cards: PyTorch's DistributedDataParallel, buckets of 25 MiB, gradients "
              "copied to them"
        : strcmp(q->parallel, "fsdp") == 0
            ? "several cards: FSDP1 as Accelerate 1.15 starts it: FULL_SHARD, every layer wrapped, "
              "use_orig_params, backward_prefetch BACKWARD_PRE"
            : "several cards: fully_shard as Accelerate 1.15 calls it: every layer, the input's "
              "table, the head; resharded after forward");
    if (vp_hf_cuts_quantised(q))
        vp_hf_assume(
            r->out,
            "bnb_4bit_quant_storage bfloat16, so that packed weights are cut; transformers "
            "5.17 loads all of them on each card; steps alone allocate %.2f GiB",
            (double)most_of_steps(r->out) / VP_GIB);
    if (q->world > 1)
        vp_hf_assume(r->out,
                     "rank 0 of %lld, which has the largest part of what cannot be cut evenly",
                     (long long)q->world);
}

/* A checkpoint keeps a layer's input, in pinned memory, which PyTorch takes in powers of two. */
static void finish_offload(run *r)
{
    const vp_hf_request *q      = r->request;
    const vp_symbols    *s      = &r->found.sizes.symbols;
    int64_t              pinned = 1;
    int64_t n_kept   = vp_ceil_div(r->found.sizes.n_layers[0], vp_hf_every_recomputed(q));
    int64_t bytes_of = vp_hf_weight_bytes(vp_hf_computed_precision(q));
    int64_t bytes    = vp_mul(vp_mul(s->at[VP_SYM_N], s->at[VP_SYM_h]), bytes_of);

    while (pinned < bytes)
        pinned *= 2;
    r->out->pinned_bytes = r->out->host_bytes = vp_mul(n_kept, pinned);
}

/* Names of phases live as long as the program. */
static const char *keep_name(const char *name)
{
    static const char *const known[] = {
        "load",        "inputs",      "forward1",    "backward1",   "step1",     "forward1.2",
        "backward1.2", "forward1.3",  "backward1.3", "forward2",    "backward2", "step2",
        "forward2.2",  "backward2.2", "forward2.3",  "backward2.3", "evaluate",  "save",
        "generate1",   "generate2",   NULL};

    for (int i = 0; known[i]; i++)
        if (strcmp(known[i], name) == 0)
            return known[i];
    return "phase";
}

/* When the first step ends weights, all gradients and all states are there at once. Gradients are left out that go as they are
 * reduced (DeepSpeed), or as their parameter is updated. */
static vp_status check_rest(run *r, vp_err *err)
{
    const vp_hf_request *q = r->request;
    int64_t rest = vp_add(vp_optimizer_step_least_bytes(r->optimizer), r->ledger.needed_bytes);
    int64_t most = r->ledger.at_most_needed_bytes;
    int64_t n    = r->fused || (r->world && vp_world_joins(q->parallel)) ? 0 : r->trained.n;

    for (int64_t i = 0; i < n; i++)
        rest = vp_add(rest, r->trained.list[i].bytes);
    if (!most || rest <= most)
        return VP_OK;
    r->out->is_too_large_at_rest = true;
    return VP_FAIL(err, VP_ERR_NO_FIT, "more than %lld bytes stay allocated", (long long)most);
}

/* The optimizer is made, then the batch is there. */
static vp_status play_inputs(run *r, vp_err *err)
{
    const vp_hf_request *q  = r->request;
    const vp_hf_trained *t  = &r->trained;
    vp_status            st = VP_OK;

    VP_TRY(vp_hf_trained_list(r->model, q, r->step, r->world, r->found.sizes.symbols.at[VP_SYM_h],
                              &r->trained, err));
    VP_TRY(vp_optimizer_step_new(q->optimizer, t->list, t->n, &r->ledger, &r->optimizer, err));
    VP_TRY(vp_hf_fused_new(r->step, r->optimizer, q->optimizer, &r->fused, err));
    VP_TRY(vp_hf_moved_new(r->step, r->optimizer, q->optimizer, t->list, t->n, &r->moved, err));
    vp_optimizer_step_on(r->optimizer, &r->found.sizes.symbols.card);
    vp_optimizer_step_group(r->optimizer, t->n_first);
    if (r->world && vp_world_joins(q->parallel))
        vp_optimizer_step_one_by_one(r->optimizer);
    if (!vp_hf_is_plain(q) && !r->moved)
        vp_optimizer_step_widen_tables(r->optimizer);
    vp_ledger_begin(&r->ledger, phase_name(r, "inputs", 0, 0));
    VP_TRY(vp_optimizer_step_begin(r->optimizer, err));
    VP_TRY(check_rest(r, err));
    if (r->resumes)
        VP_TRY(vp_optimizer_step_resume(r->optimizer, err));
    VP_TRY(vp_recorded_play(r->step, "inputs", err));
    vp_ledger_end(&r->ledger);
    r->out->batch = vp_hf_batch_of(r->step);
out:
    return st;
}

static bool asks_checkpoints(const vp_hf_request *q)
{
    return q->checkpoints && !q->loads_only && vp_hf_knows_checkpoints(q);
}

/* The second step, so often, or until it changes nothing: its phases are those of the last. */
static vp_status play_again(run *r, int n_first, vp_err *err)
{
    vp_caching_state before = {0}, after = {0};
    vp_status        st = VP_OK;

    for (int step = STEPS; step < STEPS_WITHIN_LIMIT; step++) {
        int64_t n_retries  = vp_caching_allocator_figures(r->allocator)->n_retries;
        int64_t n_allocs   = vp_caching_allocator_n_allocs(r->allocator);
        r->ledger.n_phases = n_first;
        VP_TRY(play_step(r, STEPS, err));
        r->out->n_returns = vp_caching_allocator_figures(r->allocator)->n_retries - n_retries;
        VP_TRY(vp_caching_allocator_state(r->allocator, n_allocs, &after, err));
        if (vp_caching_state_is_same(&before, &after))
            break;
        vp_caching_state_release(&before);
        before = after;
        after  = (vp_caching_state){0};
    }
out:
    vp_caching_state_release(&before);
    vp_caching_state_release(&after);
    return st;
}

static vp_status play_training(run *r, vp_err *err)
{
    vp_status st      = VP_OK;
    int       n_first = 0;

    VP_TRY(play_inputs(r, err));
    if (r->request->rests_only)
        goto out;
    if (!r->request->counts_needed)
        r->ledger.at_most_needed_bytes = r->ledger.at_most_reserved_bytes = at_most(r);
    for (int step = 1; step <= STEPS; step++) {
        n_first = r->ledger.n_phases;
        VP_TRY(play_step(r, step, err));
    }
    /* of sounds a third step reserves up to 3 % more, on one card */
    if (r->request->limit_bytes || (r->out->heard && !r->world))
        VP_TRY(play_again(r, n_first, err));
    VP_TRY(play_evaluation(r, err));
    if (asks_checkpoints(r->request)) {
        vp_ledger_begin(&r->ledger,
                        "save"); /* tensors are copied to the host: nothing is allocated */
        vp_ledger_end(&r->ledger);
        r->out->host = vp_hf_host_of(r->model, r->request, r->step, r->optimizer);
        vp_hf_host_assume(r->request, r->out);
    }
out:
    return st;
}

/* A run that goes on from a checkpoint, in an allocator of its own: its states are there before the first step, and so lie elsewhere.
 * It hangs on nothing that the first run does, and is played beside it. */
typedef struct resumed {
    run            r;
    vp_hf_estimate out;
    int            n_assumptions; /* of out, that were the first run's */
    vp_status      st;
    vp_err         err;
    vp_beside      beside;
    bool           is_offered;
} resumed;

static vp_status play_run(run *r, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(begin(r, err));
    VP_TRY(share(r, err));
    VP_TRY(play_loading(r, err));
    VP_TRY(play_inputs(r, err));
    for (int step = 1; step <= STEPS; step++)
        VP_TRY(play_step(r, step, err));
out:
    return st;
}

static void play_resumed(void *with)
{
    resumed *x = with;

    x->st = play_run(&x->r, &x->err);
    end(&x->r);
}

/* The first run has loaded: what it keeps of that is there for this one. */
static void offer_resumed(const run *first, resumed *x)
{
    if (!asks_checkpoints(first->request))
        return;
    x->out           = *first->out;
    x->n_assumptions = x->out.n_assumptions;
    x->r             = (run){.model   = first->model,
                             .request = first->request,
                             .found   = first->found,
                             .out     = &x->out,
                             .resumes = true};
    x->is_offered    = true;
    vp_beside_offer(&x->beside, play_resumed, x);
}

/* As one phase, and with what it assumes besides. */
static vp_status add_resumed(resumed *x, vp_hf_estimate *e, vp_err *err)
{
    vp_ledger_phase *most;

    if (!x->is_offered)
        return VP_OK;
    x->is_offered = false;
    vp_beside_finish(&x->beside);
    if (x->st != VP_OK) {
        *err = x->err;
        return x->st;
    }
    most = &e->phases[e->n_phases++];
    for (int i = 0; i < x->r.ledger.n_phases; i++) {
        const vp_ledger_phase *p        = &x->r.ledger.phases[i];
        int64_t                reserved = vp_max_i64(most->reserved_bytes, p->reserved_bytes);
        if (p->allocated_bytes > most->allocated_bytes)
            *most = *p;
        most->reserved_bytes = reserved;
    }
    most->name = "resume";
    for (int i = x->n_assumptions; i < x->out.n_assumptions; i++)
        vp_hf_assume(e, "%s", x->out.assumptions[i]);
    return VP_OK;
}

static void drop_resumed(resumed *x)
{
    if (x->is_offered && !vp_beside_take_back(&x->beside))
        vp_beside_finish(&x->beside);
}

vp_status vp_hf_replay(const vp_model *model, const vp_hf_request *request, vp_hf_estimate *out,
                       vp_err *err)
{
    run       r     = {.model = model, .request = request, .out = out};
    resumed   again = {.is_offered = false};
    vp_status st    = VP_OK;

    *out = (vp_hf_estimate){0};
    VP_TRY(set_up(&r, err));
    VP_TRY(share(&r, err));
    st                        = play_loading(&r, err);
    out->is_too_large_at_rest = st == VP_ERR_NO_FIT;
    if (st != VP_OK)
        goto out;
    VP_TRY(count_parameters(&r, err));
    offer_resumed(&r, &again);
    if (!request->loads_only)
        VP_TRY(play_training(&r, err));
    if (r.ledger.reserves_more)
        VP_TRY(VP_FAIL(err, VP_ERR_NO_FIT, "more than %lld bytes are reserved",
                       (long long)r.ledger.at_most_reserved_bytes));
    finish(&r);
    if (r.world)
        finish_world(&r);
    if (request->offloads)
        finish_offload(&r);
    if (r.optimizer)
        out->host_bytes = vp_add(out->host_bytes, vp_optimizer_step_host_bytes(r.optimizer));
    for (int i = 0; i < out->n_phases; i++)
        out->phases[i].name = keep_name(out->phases[i].name);
    VP_TRY(add_resumed(&again, out, err));
    if (strcmp(out->attention, "sdpa:flash") == 0)
        vp_hf_assume(out,
                     "sdpa: flash attention where PyTorch allows it, else memory-efficient, else "
                     "math; cuDNN's attention is off");
    if (request->compiles)
        vp_hf_assume(out,
                     "torch.compile: the eager step is counted; compiled ones, dry-run, took "
                     "1 to 48 %% less, and the interval is %.0f %% less to %.0f %% more",
                     100 * VP_HF_COMPILED_LOW, 100 * VP_HF_COMPILED_HIGH);
    vp_hf_trained_assume(request, out);
    if (out->positions && out->seq + request->lora.virtual_tokens > out->positions)
        vp_hf_assume(out,
                     "more tokens than the %lld positions the model was made for: rotary ones "
                     "are computed, so it runs",
                     (long long)out->positions);
    if (r.found.sizes.symbols.at[VP_SYM_t])
        vp_hf_assume(out,
                     "experts run in PyTorch's grouped products, as transformers has it: no size "
                     "depends on where tokens go");
    if (request->batch * out->seq > 65536)
        vp_hf_assume(out,
                     "beyond 65,536 tokens at once, layer norms and large sums run kernels whose "
                     "workspaces are not known");
    if (request->capability != 90)
        vp_hf_assume(
            out, "kernels' workspaces are those of compute capability 9.0, reductions excepted");
out:
    drop_resumed(&again);
    out->is_needed_too_large =
        st == VP_ERR_NO_FIT && request->at_most_bytes &&
        (out->is_too_large_at_rest || r.ledger.needed_bytes > r.ledger.at_most_needed_bytes);
    end(&r);
    vp_hf_found_release(&r.found);
    return st;
}
