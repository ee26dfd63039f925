#include "cli/check_fit.h"

#include "cli/check_class.h"
#include "cli/check_instead.h"
#include "cli/check_unsaid.h"
#include "cli/priced_model.h"

#include "base/text.h"
#include "base/units.h"
#include "dryrun/dryrun_run.h"
#include "trainers/hf/hf_versions.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The target that these are files of: the one that was found, else the first that has such a file. */
static const vp_target *target_of(const vp_checked *c)
{
    const vp_target *t;

    for (int i = 0; !c->target && (t = vp_target_at(i)) != NULL; i++)
        for (int k = 0; k < t->n_files; k++)
            for (int f = 0; f < c->n_files; f++)
                if (c->files[f].doc && c->files[f].dialect &&
                    c->files[f].dialect == t->files[k].dialect)
                    return t;
    return c->target;
}

static bool is_on(const vp_value *v)
{
    static const char *const off[] = {"", "false", "none", "null", "0"};
    char                     text[64];

    if (!v || v->kind == VP_VALUE_NULL || v->kind == VP_VALUE_LIST || v->kind == VP_VALUE_MAP)
        return v && (v->n_children || v->call);
    vp_value_text(v, text, sizeof text);
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        if (strcasecmp(text, off[i]) == 0)
            return false;
    return true;
}

/* The first of the files' values that is one of these keys; NULL: none is written. */
static const vp_value *written(const vp_checked *c, const char *const *keys, size_t n)
{
    for (int f = 0; f < c->n_files; f++)
        for (size_t i = 0; c->files[f].doc && i < n; i++) {
            const vp_value *v = vp_value_at(c->files[f].doc->root, keys[i]);
            if (v)
                return v;
        }
    return NULL;
}

/* What makes of adapters others than those whose steps were recorded: what else is trained, or which layers; NULL:
 * nothing. */
static const char *other_adapters(vp_arena *arena, const vp_checked *c)
{
    static const char *const keys[]  = {"use_dora",
                                        "peft_use_dora",
                                        "layers_pattern",
                                        "layers_to_transform",
                                        "rank_pattern",
                                        "additional_target",
                                        "exclude_modules",
                                        "trainable_token_indices",
                                        "target_parameters",
                                        "lora_target_parameters",
                                        "layer_replication",
                                        "bias",
                                        "lora_bias",
                                        "peft_layers_to_transform",
                                        "use_bdlora",
                                        "use_qalora",
                                        "alora_invocation_tokens",
                                        "arrow_config",
                                        "velora_config",
                                        "monteclora_config",
                                        "kasa_config"};
    static const char *const saved[] = {"modules_to_save", "lora_modules_to_save"};
    static const char *const kinds[] = {"freeze", "oft"}; /* LLaMA-Factory's */
    const char              *tuning  = c->settings.value[VP_SETTING_TUNING];
    const char              *save    = c->settings.value[VP_SETTING_LORA_SAVE];
    const vp_value          *unread  = written(c, saved, save && strcmp(save, "none") != 0 ? 0 : 2);

    for (int f = 0; f < c->n_files; f++)
        for (size_t i = 0; c->files[f].doc && i < sizeof kinds / sizeof *kinds; i++) {
            const vp_value *v = vp_value_at(c->files[f].doc->root, "finetuning_type");
            if (v && v->text && strcmp(v->text, kinds[i]) == 0)
                return vp_arena_printf(arena,
                                       "not answered: finetuning_type %s in %s: no such training "
                                       "step was recorded",
                                       kinds[i], c->files[f].name);
        }
    if (tuning && strcmp(tuning, "full") == 0)
        return NULL;
    if (is_on(unread))
        return "not answered: modules_to_save trains what was not recorded";
    for (int f = 0; f < c->n_files; f++)
        for (size_t i = 0; c->files[f].doc && i < sizeof keys / sizeof *keys; i++) {
            const vp_value *v = vp_value_at(c->files[f].doc->root, keys[i]);
            if (is_on(v))
                return vp_arena_printf(arena, "not answered: %s in %s trains what was not recorded",
                                       keys[i], c->files[f].name);
        }
    return NULL;
}

#define WRITTEN(c, ...) \
    written(c, (const char *const[]){__VA_ARGS__}, \
            sizeof(const char *const[]){__VA_ARGS__} / sizeof(const char *))

/* A whole number that is written, from 1 to most, 1e3 too; 0: none is. */
static int64_t written_count(const vp_value *v, int64_t most)
{
    char   text[64], *end;
    double x;

    if (!v || v->kind == VP_VALUE_LIST || v->kind == VP_VALUE_MAP)
        return 0;
    x = strtod(vp_value_text(v, text, sizeof text), &end);
    return end != text && !*end && x >= 1 && x <= (double)most && x == floor(x) ? (int64_t)x : 0;
}

/* Trainer's keys, which those built on it have too. */
static vp_hf_loader_setting read_loader(const vp_checked *c)
{
    const vp_value *pins = WRITTEN(c, "dataloader_pin_memory");

    return (vp_hf_loader_setting){
        .workers  = written_count(WRITTEN(c, "dataloader_num_workers"), 4096),
        .prefetch = written_count(WRITTEN(c, "dataloader_prefetch_factor"), 1000000),
        .pins     = !pins || is_on(pins)};
}

/* What of Liger's kernels the files switch on that no word of the loss says: some of Trainer's map of them, whose kernels are
 * on unless it says otherwise, some of axolotl's keys, which count beside its plugin (integrations/liger/plugin.py), and a
 * switch beside a loss of the trainer's own. */
static void read_ligers(const vp_checked *c, vp_fit_job *job)
{
    static const char *const kernels[]  = {"liger_rope", "liger_rms_norm", "liger_glu_activation"};
    static const char *const switches[] = {
        "liger_kernel_config.rope", "liger_kernel_config.rms_norm", "liger_kernel_config.swiglu"};
    const char *loss     = c->settings.value[VP_SETTING_LOSS];
    bool        is_fused = loss && strcmp(loss, "liger") == 0;
    bool        is_dpo   = c->settings.value[VP_SETTING_METHOD] &&
                  strcmp(c->settings.value[VP_SETTING_METHOD], "dpo") == 0;
    bool on   = is_on(WRITTEN(c, "use_liger_kernel", "enable_liger_kernel"));
    bool maps = on && is_on(WRITTEN(c, "liger_kernel_config"));
    int  n    = 0;

    if (loss && strcmp(loss, "liger-all") == 0)
        return;
    if (maps) {
        const vp_value *fused = WRITTEN(c, "liger_kernel_config.fused_linear_cross_entropy");
        is_fused              = !fused || is_on(fused);
        for (int i = 0; i < 3; i++) {
            const vp_value *v = written(c, &switches[i], 1);
            n += !v || is_on(v);
        }
    } else if (on) {
        job->liger       = is_dpo ? NULL : "all";
        job->liger_least = is_dpo;
        return;
    } else if (is_on(WRITTEN(c, "plugins"))) {
        for (int i = 0; i < 3; i++)
            n += is_on(written(c, &kernels[i], 1)) || (i == 2 && is_on(WRITTEN(c, "liger_swiglu")));
        is_fused = is_fused || is_on(WRITTEN(c, "liger_fused_linear_cross_entropy"));
        if (!is_fused && is_on(WRITTEN(c, "liger_cross_entropy")))
            job->liger_least = true;
    }
    if (n == 3 && is_fused)
        job->liger = "all";
    else if (n)
        job->liger = is_fused ? "loss" : NULL, job->liger_least = true;
}

/* Documents of a batch in one row. TRL's wrapped packing cuts them to whole sequences instead. */
static bool is_packed(const vp_checked *c)
{
    const vp_value *how = WRITTEN(c, "packing_strategy");
    char            text[64];

    return is_on(WRITTEN(c, "packing", "sample_packing", "neat_packing")) &&
           !(how && strcmp(vp_value_text(how, text, sizeof text), "wrapped") == 0);
}

/* Weights in 8 bits, as peft prepares them beside adapters: files of Trainer's, and axolotl's, which is on it. */
static bool holds_bytes(const vp_checked *c)
{
    static const struct {
        const char *dialect, *key;
    } keys[] = {{"model_args", "quantization_config.load_in_8bit"},
                {"model_args", "load_in_8bit"},
                {"axolotl", "load_in_8bit"}};

    for (int f = 0; f < c->n_files; f++)
        for (size_t i = 0; c->files[f].doc && c->files[f].dialect && i < sizeof keys / sizeof *keys;
             i++)
            if (strcmp(c->files[f].dialect->name, keys[i].dialect) == 0 &&
                is_on(vp_value_at(c->files[f].doc->root, keys[i].key)))
                return true;
    return false;
}

/* Of weights in 8 bits no setting says whether peft prepares them. NULL: so it is read; else why not: a script casts weights itself. */
static const char *read_preparation(vp_arena *arena, const vp_checked *c, vp_fit_job *job)
{
    const char *said =
        job->in_bytes || vp_checked_is_quantised(c) ? vp_checked_preparation(c) : NULL;

    for (int f = 0; said && f < c->n_files; f++) {
        const vp_document *x = c->files[f].doc;
        if (x && x->casts && !c->files[f].is_part)
            return vp_arena_printf(
                arena,
                "not answered: %s:%d casts weights of a model by itself, and recorded were those that peft's prepare_model_for_kbit_training() casts, or none; vplan dryrun -- COMMAND runs it without a GPU",
                x->name, x->casts);
    }
    if (said && job->in_bytes)
        job->prepare = strcmp(said, "on") == 0 ? VP_HF_PREPARE_ON : VP_HF_PREPARE_OFF;
    return NULL;
}

/* A backend or a mode alone turn it on, too; Accelerate's files have a section of their own. */
static bool compiles(const vp_checked *c)
{
    static const char *const keys[] = {"torch_compile", "torch_compile_backend",
                                       "torch_compile_mode", "dynamo_config.dynamo_backend",
                                       "dynamo_backend"};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const vp_value *v = written(c, &keys[i], 1);
        if (is_on(v) && !(v->text && strcasecmp(v->text, "no") == 0))
            return true;
    }
    return false;
}

/* Trainers whose DPO is a class of TRL's. */
static bool has_pairs(const vp_target *target)
{
    static const char *const names[] = {"trl", "axolotl", "llamafactory", "ms-swift"};

    for (size_t i = 0; target && i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], target->name) == 0)
            return true;
    return false;
}

/* Beside supervised fine-tuning TRL's DPOTrainer, RewardTrainer and GRPOTrainer were recorded; NULL: the files train by what was. */
static const char *other_method(vp_arena *arena, const vp_checked *c, const vp_target *target)
{
    const char *said, *method = vp_checked_method(c, &said);
    bool        is_trl = target && strcmp(target->name, "trl") == 0;

    if (method && strcmp(method, "dpo") == 0 && is_on(WRITTEN(c, "precompute_ref_log_probs")))
        return "not answered: precompute_ref_log_probs: no step without the reference's pass was "
               "recorded";
    if (!method || (strcmp(method, "dpo") == 0 && has_pairs(target)) ||
        (is_trl && vp_setting_canonical(arena, VP_SETTING_METHOD, method)))
        return NULL;
    const vp_value *v = said ? written(c, &said, 1) : NULL;
    char            word[64];
    if (v && (v->kind != VP_VALUE_STRING || strcmp(v->text, method) == 0))
        v = NULL; /* it says that method by its name, or by being there */
    return vp_arena_printf(
        arena,
        "not answered: %s%s%s says %s, and no such step of %s was recorded; vplan "
        "dryrun -- COMMAND runs it without a GPU",
        said, v ? ": " : "", v ? vp_value_text(v, word, sizeof word) : "", method,
        target ? target->name : "it");
}

/* A setting that memory depends on and that is written as what the text does not say; NULL: none. Of the number of processes
 * --world says it, or a command. */
static const char *unread_of(const vp_checked *c, const vp_check_fit_options *o)
{
    for (int s = 0; s < VP_N_SETTINGS; s++)
        if (c->unread[s] && s != VP_SETTING_WORLD && s != VP_SETTING_LORA_ALPHA &&
            !(s == VP_SETTING_SEQ && o->seq))
            return c->unread[s];
    return NULL;
}

/* Of GRPO what no setting says: a coefficient that asks for a reference, and an engine that has a part of the same card. */
static vp_status read_grpo(vp_arena *arena, const vp_checked *c, vp_check_fit *x, vp_err *err)
{
    static const double USUAL = 0.3; /* vllm_gpu_memory_utilization of TRL 1.16 */
    const vp_value     *beta = WRITTEN(c, "beta"), *mode = WRITTEN(c, "vllm_mode"),
                   *share = WRITTEN(c, "vllm_gpu_memory_utilization");
    const char *method    = c->settings.value[VP_SETTING_METHOD],
               *by        = c->settings.value[VP_SETTING_GENERATOR];
    char      text[64], size[32];
    vp_status st = VP_OK;

    if (!method || strcmp(method, "grpo") != 0)
        return VP_OK;
    x->request.job.has_reference = beta && strtod(vp_value_text(beta, text, sizeof text), NULL) > 0;
    if (!by || strcmp(by, "vllm") != 0 ||
        (mode && strcmp(vp_value_text(mode, text, sizeof text), "server") == 0))
        return VP_OK;
    double  part  = share ? strtod(vp_value_text(share, text, sizeof text), NULL) : USUAL;
    int64_t bytes = (int64_t)(part * (double)x->device.usable_bytes);
    x->request.job.context_bytes += bytes;
    x->request.job.counts_engine = true;
    x->engine_share              = vp_arena_printf(arena, "%.9g%%", 100 * part);
    x->engine                    = vp_arena_printf(arena,
                                                   "vLLM: %s, %.0f %% of the card (vllm_gpu_memory_utilization), are "
                                                                      "its own, added here",
                                                   vp_size_text(bytes, size, sizeof size), 100 * part);
    VP_TRY_ALLOC(err, x->engine);
out:
    return st;
}

static vp_status fill_request(vp_arena *arena, const vp_checked *c, const vp_check_fit_options *o,
                              const vp_dryrun_context *outside, vp_check_fit *x, vp_err *err)
{
    vp_choose_request *r  = &x->request;
    vp_status          st = VP_OK;

    read_ligers(c, &r->job);
    vp_check_zero_find(arena, c, x->model, &x->zero);
    r->job.context_bytes       = outside->bytes + x->zero.more_bytes;
    r->job.context_least_bytes = outside->least_bytes - x->zero.less_bytes;
    VP_TRY(read_grpo(arena, c, x, err));
    r->job.prices   = vp_arena_array(arena, 1, sizeof *r->job.prices);
    r->versions     = c->versions;
    r->job.versions = vp_hf_versions_of(arena, c->versions);
    r->model_name   = o->model;
    r->seq          = o->seq ? o->seq : x->model->image_tokens;
    VP_TRY_ALLOC(err, r->job.prices && r->job.shelf);
out:
    return st;
}

static const char *unread_file(vp_arena *arena, const vp_checked *c)
{
    char shown[128];

    return vp_arena_printf(arena, "not answered: %s is named and was not read",
                           vp_text_escape(c->missing, shown, sizeof shown));
}

static const char *own_options(vp_arena *arena, const vp_checked *c)
{
    char shown[400];

    return vp_arena_printf(arena, "not answered: %s is not known",
                           vp_text_escape(c->own, shown, sizeof shown));
}

/* What the question lacks; NULL: a card and a model are named. */
static const char *unasked(vp_arena *arena, const vp_checked *c, const vp_check_fit_options *o)
{
    char shown[128];

    if (c->others)
        return vp_arena_printf(arena, "not answered: %s; a dry run counts it without a GPU",
                               vp_text_escape(c->others, shown, sizeof shown));
    if (!o->device)
        return o->model ? "not checked; add --device CARD"
                        : "not checked; add --model MODEL --device CARD";
    if (o->model)
        return NULL;
    if (c->missing)
        return unread_file(arena, c);
    if (o->named)
        return vp_arena_printf(arena,
                               "not checked: %s is not built in; add --model with its "
                               "config.json, of a family in vplan models",
                               vp_text_escape(o->named, shown, sizeof shown));
    for (int f = 0; f < c->n_files; f++) {
        const vp_value *v =
            c->files[f].doc && c->files[f].dialect == &vp_dialect_model
                ? vp_value_at(c->files[f].doc->root, "pretrained_model_name_or_path")
                : NULL;
        if (v && v->kind != VP_VALUE_NULL)
            return vp_arena_printf(arena,
                                   "not checked: which model line %d of %s loads the text does not "
                                   "say; add --model MODEL",
                                   v->line, c->files[f].name);
    }
    return "not checked: the files name no model; add --model MODEL";
}

/* Switches that no setting has, and whose value the text does not say. */
static const char *unread_switch(vp_arena *arena, const vp_checked *c)
{
    static const char *const keys[] = {"packing", "sample_packing", "neat_packing",
                                       "torch_compile"};

    for (int f = 0; f < c->n_files; f++)
        for (size_t i = 0; c->files[f].doc && c->files[f].dialect && i < sizeof keys / sizeof *keys;
             i++) {
            const vp_value *v = vp_value_at(c->files[f].doc->root, keys[i]);
            if (v && (v->call || (v->kind == VP_VALUE_STRING && strpbrk(v->text, "$`"))))
                return vp_arena_printf(arena, "not answered: what %s in %s says is not known",
                                       keys[i], c->files[f].name);
        }
    return NULL;
}

/* A model that is loaded with what may pack its weights, and nobody reads how. */
static const char *unread_packing(vp_arena *arena, const vp_checked *c)
{
    static const char *const keys[] = {"quantization_config", "quantization_config.load_in_4bit",
                                       "quantization_config.load_in_8bit"};

    for (int f = 0; f < c->n_files; f++)
        for (size_t i = 0; c->files[f].doc && c->files[f].dialect == &vp_dialect_model &&
                           i < sizeof keys / sizeof *keys;
             i++) {
            const vp_value *v = vp_value_at(c->files[f].doc->root, keys[i]);
            bool            is_known =
                !v || v->kind == VP_VALUE_NULL || v->kind == VP_VALUE_BOOL ||
                (v->kind == VP_VALUE_MAP && !(v->call && strcmp(v->call, VP_VALUE_UNREAD) == 0));
            if (!is_known)
                return vp_arena_printf(arena, "not answered: what %s in %s says is not known",
                                       keys[i], c->files[f].name);
        }
    return NULL;
}

/* What the files say and nobody knows in bytes; NULL: nothing. */
static const char *unknown(vp_arena *arena, const vp_checked *c, const vp_check_fit_options *o,
                           const vp_model *model)
{
    char        shown[128];
    const char *gap = c->gap ? c->gap : unread_of(c, o), *why;

    if (c->missing)
        return unread_file(arena, c);
    if (c->uncounted)
        return vp_arena_printf(arena, "not answered: what %s takes is not counted",
                               vp_text_escape(c->uncounted, shown, sizeof shown));
    if (c->own)
        return own_options(arena, c);
    if (gap)
        return vp_arena_printf(arena, "not answered: what %s says is not known",
                               vp_text_escape(gap, shown, sizeof shown));
    why = other_adapters(arena, c);
    why = why ? why : unread_packing(arena, c);
    why = why ? why : unread_switch(arena, c);
    return why ? why : vp_check_other_class(arena, c, model);
}

/* A model of which bytes alone are known: whether it fits is answered, and how long a step takes is not. */
static vp_status open_unpriced(vp_arena *arena, const vp_check_fit_options *o, vp_check_fit *x,
                               const char *why, vp_err *err)
{
    vp_choose_request *r       = &x->request;
    vp_err             ignored = {0};
    vp_status          st      = VP_OK;

    if (vp_model_open(o->model, &(vp_model_opts){.config_only = true}, &x->model, &ignored) ==
            VP_OK &&
        (x->model->n_params = vp_hf_parameters(x->model, r->job.shelf)) > 0) {
        r->job.no_seconds = true;
        goto out;
    }
    vp_model_free(x->model);
    x->model = NULL;
    x->why   = vp_arena_printf(arena, "not answered: %s", why);
    VP_TRY_ALLOC(err, x->why);
out:
    return st;
}

/* The card, what is known of it, and the model's graph; without one x->why says so. */
static vp_status open_both(vp_arena *arena, const vp_check_fit_options *o, vp_check_fit *x,
                           vp_dryrun_context *outside, vp_err *err)
{
    vp_choose_request *r = &x->request;
    bool               no_graph;
    vp_err             why = {0};
    vp_status          st  = VP_OK;

    VP_TRY(vp_parse_budget(o->device, &o->budget, &x->device, &r->budget_bytes, err));
    if (x->device.is_cpu)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--device cpu: other trainers' bytes are a CUDA card's"));
    VP_TRY(
        vp_calibration_path(o->calibration, x->calibration_path, sizeof x->calibration_path, err));
    VP_TRY(vp_calibration_outside(x->calibration_path, &x->device, outside, &x->calibration, err));
    r->job.shelf  = vp_hf_shelf_new();
    x->class_name = o->class_name;
    if (vp_model_to_price(
            o->model, &(vp_model_opts){.dropout_from_config = true, .class_name = o->class_name},
            r->job.shelf, &x->model, &no_graph, &why) != VP_OK &&
        !no_graph) {
        *err = why;
        st   = why.code;
        goto out;
    }
    if (no_graph)
        VP_TRY(open_unpriced(arena, o, x, why.message, err));
out:
    return st;
}

/* The model as the class that the files load it as, where such a step was recorded; else it stays what it is. */
static vp_status open_class(vp_arena *arena, const vp_checked *c, const vp_check_fit_options *o,
                            vp_check_fit *x, vp_err *err)
{
    vp_model_opts opts  = {.dropout_from_config = true};
    vp_model     *other = NULL;
    vp_err        why   = {0};
    bool          no_graph;
    vp_status     st = VP_OK;

    if (!o->class_name)
        opts.class_name = vp_check_class(arena, c, x->model, &opts.n_labels);
    if (!opts.class_name)
        goto out;
    st = vp_model_to_price(o->model, &opts, x->request.job.shelf, &other, &no_graph, &why);
    if (st == VP_ERR_NOMEM) {
        *err = why;
        goto out;
    }
    if (st == VP_OK && vp_hf_parameters(other, x->request.job.shelf) > 0) {
        vp_model *own = x->model;
        x->model = other, other = own;
        x->class_name = opts.class_name;
    }
    st = VP_OK;
out:
    vp_model_free(other);
    return st;
}

/* Whose step it is, and what the files say of it beside the settings; x->why where that is not known. */
static vp_status fill_job(vp_arena *arena, const vp_checked *c, const vp_check_fit_options *o,
                          vp_check_fit *x, vp_err *err)
{
    vp_choose_request *r        = &x->request;
    const char        *v        = c->settings.value[VP_SETTING_TUNING];
    const char        *parallel = c->settings.value[VP_SETTING_PARALLEL];
    vp_err             why      = {0};
    vp_status          st       = VP_OK;

    r->target = target_of(c);
    x->loader = read_loader(c);
    x->why    = other_method(arena, c, r->target);
    if (x->why)
        goto out;
    if (r->job.no_seconds && parallel && strncmp(parallel, "zero", 4) == 0) {
        x->why = "not answered: what DeepSpeed's buckets take beside such a model is not known";
        goto out;
    }
    if (!r->target) {
        x->why = "not answered: whose files these are is not known; --for TARGET says it";
        goto out;
    }
    if (vp_language_of(r->target, &r->job.language, &why) != VP_OK) {
        x->why = vp_arena_printf(arena, "not answered: %s", why.message);
        VP_TRY_ALLOC(err, x->why);
        goto out;
    }
    r->job.model  = x->model;
    r->job.device = &x->device;
    /* classes of tokens were recorded with a mask, as the collator for them makes one */
    r->job.padded   = o->padding ? strcmp(o->padding, "mask") == 0
                                 : !o->class_name && x->class_name && x->model->head == VP_HEAD_TOKEN;
    r->job.packed   = is_packed(c);
    r->job.compiles = compiles(c);
    r->job.of_files = true;
    r->job.in_bytes = holds_bytes(c);
    x->why          = read_preparation(arena, c, &r->job);
    if (!x->why && r->job.in_bytes && !(v && strcmp(v, "lora") == 0))
        x->why = "not answered: weights in 8 bits are counted beside LoRA's adapters, and these "
                 "files train none";
out:
    return st;
}

/* Everything that can be missing is a reason, not an error. */
static vp_status set_up(vp_arena *arena, vp_checked *c, const vp_check_fit_options *o,
                        vp_check_fit *x, vp_err *err)
{
    vp_dryrun_context outside;
    vp_status         st = VP_OK;

    x->request.model_name = o->model;
    x->request.seq        = o->seq;
    x->why                = unasked(arena, c, o);
    VP_TRY_ALLOC(err, x->why || (!c->others && o->device && o->model));
    if (x->why)
        goto out;
    VP_TRY(open_both(arena, o, x, &outside, err));
    if (x->why)
        goto out;
    VP_TRY(open_class(arena, c, o, x, err));
    VP_TRY(vp_check_take_unsaid(c, o, x->model, err));
    x->why = unknown(arena, c, o, x->model);
    if (!x->why)
        VP_TRY(fill_job(arena, c, o, x, err));
    if (!x->why)
        VP_TRY(fill_request(arena, c, o, &outside, x, err));
out:
    return st;
}

/* "; lora_target_linear: true says it", in the files' own keys. */
static const char *targets_in_their_keys(vp_checked *c)
{
    const char *keys = vp_check_in_their_keys(c, VP_SETTING_LORA_TARGETS, "all-linear");
    const char *said = keys ? vp_arena_printf(c->arena, "; %s says it", keys) : NULL;

    return said ? said : "";
}

vp_status vp_check_fit_find(vp_arena *arena, vp_checked *c, const vp_check_fit_options *o,
                            vp_check_fit *x, vp_err *err)
{
    vp_status st = VP_OK;

    *x = (vp_check_fit){0};
    VP_TRY(set_up(arena, c, o, x, err));
    if (x->why)
        goto out;
    if (x->model->graph.max_seq)
        VP_TRY(
            vp_check_positions(c, x->model->graph.max_seq, x->model->graph.learns_positions, err));
    VP_TRY(vp_mend(arena, c, &x->request, &x->mended, err));
    if (x->mended.why) {
        x->why =
            vp_arena_printf(arena, "not answered: %s%s", x->mended.why,
                            strstr(x->mended.why, "say seq") ? "; --seq N says it"
                            : strstr(x->mended.why, "say micro_batch")
                                ? "; give what does too: vplan check FILE... -- COMMAND"
                            : strstr(x->mended.why, "say lora_targets") ? targets_in_their_keys(c)
                                                                        : "");
        VP_TRY_ALLOC(err, x->why);
        VP_TRY(vp_check_instead_find(arena, c, x, err));
    } else {
        VP_TRY(vp_check_quicker_find(c, x, err));
    }
out:
    return st;
}

void vp_check_fit_release(vp_check_fit *x)
{
    vp_mended_release(&x->mended);
    vp_hf_shelf_free(x->request.job.shelf);
    vp_model_free(x->model);
}
