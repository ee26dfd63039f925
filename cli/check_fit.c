#include "cli/check_fit.h"

#include "cli/check_class.h"
#include "cli/check_lines.h"
#include "cli/check_own.h"
#include "cli/check_played.h"
#include "cli/check_unsaid.h"
#include "cli/cmd_plan_trainer.h"
#include "cli/devices_fit.h"
#include "cli/loader_text.h"
#include "cli/priced_model.h"
#include "cli/screen.h"
#include "cli/words.h"

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
                                        "peft_layers_to_transform"};
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

static bool says(const char *value, const char *word)
{
    return value && strcmp(value, word) == 0;
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
        job->prepare = says(said, "on") ? VP_HF_PREPARE_ON : VP_HF_PREPARE_OFF;
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

/* Of the methods beside supervised fine-tuning one was recorded, TRL's DPOTrainer; NULL: the files train by what was. */
static const char *other_method(vp_arena *arena, const vp_checked *c, const vp_target *target)
{
    const char *said, *method = vp_checked_method(c, &said);

    if (method && strcmp(method, "dpo") == 0 && is_on(WRITTEN(c, "precompute_ref_log_probs")))
        return "not answered: precompute_ref_log_probs: no step without the reference's pass was "
               "recorded";
    if (!method || (strcmp(method, "dpo") == 0 && has_pairs(target)))
        return NULL;
    return vp_arena_printf(arena,
                           "not answered: %s says %s, and no such step of %s was recorded; vplan "
                           "dryrun -- COMMAND runs it without a GPU",
                           said, method, target ? target->name : "it");
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

static vp_status fill_request(vp_arena *arena, const vp_checked *c, const vp_check_fit_options *o,
                              const vp_dryrun_context *outside, vp_check_fit *x, vp_err *err)
{
    vp_choose_request *r  = &x->request;
    vp_status          st = VP_OK;

    read_ligers(c, &r->job);
    vp_check_zero_find(arena, c, x->model, &x->zero);
    r->job.context_bytes       = outside->bytes + x->zero.more_bytes;
    r->job.context_least_bytes = outside->least_bytes - x->zero.less_bytes;
    r->job.prices              = vp_arena_array(arena, 1, sizeof *r->job.prices);
    r->versions                = c->versions;
    r->job.versions            = vp_hf_versions_of(arena, c->versions);
    r->model_name              = o->model;
    r->seq                     = o->seq;
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

/* Everything that can be missing is a reason, not an error. */
static vp_status set_up(vp_arena *arena, vp_checked *c, const vp_check_fit_options *o,
                        vp_check_fit *x, vp_err *err)
{
    vp_choose_request *r     = &x->request;
    const char        *model = o->model, *device = o->device;
    char               shown[128];
    vp_dryrun_context  outside;
    bool               no_graph;
    vp_err             why = {0};
    vp_status          st  = VP_OK;

    r->model_name = model;
    r->seq        = o->seq;
    if (c->others) {
        x->why = vp_arena_printf(arena, "not answered: %s; a dry run counts it without a GPU",
                                 vp_text_escape(c->others, shown, sizeof shown));
        VP_TRY_ALLOC(err, x->why);
        goto out;
    }
    if (!device) {
        x->why = model ? "not checked; add --device CARD"
                       : "not checked; add --model MODEL --device CARD";
        goto out;
    }
    if (!model) {
        x->why = c->missing ? unread_file(arena, c)
                 : o->named
                     ? vp_arena_printf(arena,
                                       "not checked: %s is not built in; add --model with its "
                                       "config.json, of a family in vplan models",
                                       vp_text_escape(o->named, shown, sizeof shown))
                     : "not checked: the files name no model; add --model MODEL";
        VP_TRY_ALLOC(err, x->why);
        goto out;
    }
    VP_TRY(vp_parse_budget(device, &o->budget, &x->device, &r->budget_bytes, err));
    if (x->device.is_cpu)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--device cpu: other trainers' bytes are a CUDA card's"));
    VP_TRY(
        vp_calibration_path(o->calibration, x->calibration_path, sizeof x->calibration_path, err));
    VP_TRY(vp_calibration_outside(x->calibration_path, &x->device, &outside, &x->calibration, err));
    r->job.shelf = vp_hf_shelf_new();
    if (vp_model_to_price(model, &(vp_model_opts){.dropout_from_config = true}, r->job.shelf,
                          &x->model, &no_graph, &why) != VP_OK &&
        !no_graph) {
        *err = why;
        st   = why.code;
        goto out;
    }
    if (no_graph) {
        x->why = vp_arena_printf(arena, "not answered: %s", why.message);
        VP_TRY_ALLOC(err, x->why);
        goto out;
    }
    VP_TRY(vp_check_take_unsaid(c, o, x->model, err));
    x->why = c->missing     ? unread_file(arena, c)
             : c->uncounted ? vp_arena_printf(arena, "not answered: what %s takes is not counted",
                                              vp_text_escape(c->uncounted, shown, sizeof shown))
             : c->own       ? own_options(arena, c)
             : c->gap       ? vp_arena_printf(arena, "not answered: what %s says is not known",
                                              vp_text_escape(c->gap, shown, sizeof shown))
             : unread_of(c, o)
                 ? vp_arena_printf(arena, "not answered: what %s says is not known",
                                   vp_text_escape(unread_of(c, o), shown, sizeof shown))
                 : other_adapters(arena, c);
    if (!x->why)
        x->why = vp_check_other_class(arena, c, x->model);
    if (x->why)
        goto out;
    r->target = target_of(c);
    x->loader = read_loader(c);
    x->why    = other_method(arena, c, r->target);
    if (x->why)
        goto out;
    if (!r->target) {
        x->why = "not answered: whose files these are is not known; --for TARGET says it";
        goto out;
    }
    if (vp_language_of(r->target, &r->job.language, &why) != VP_OK) {
        x->why = vp_arena_printf(arena, "not answered: %s", why.message);
        VP_TRY_ALLOC(err, x->why);
        goto out;
    }
    r->job.model    = x->model;
    r->job.device   = &x->device;
    r->job.padded   = o->padding && strcmp(o->padding, "mask") == 0;
    r->job.packed   = is_packed(c);
    r->job.compiles = compiles(c);
    r->job.of_files = true;
    r->job.in_bytes = holds_bytes(c);
    x->why          = read_preparation(arena, c, &r->job);
    if (x->why)
        goto out;
    if (r->job.in_bytes && !(c->settings.value[VP_SETTING_TUNING] &&
                             strcmp(c->settings.value[VP_SETTING_TUNING], "lora") == 0)) {
        x->why = "not answered: weights in 8 bits are counted beside LoRA's adapters, and these "
                 "files train none";
        goto out;
    }
    VP_TRY(fill_request(arena, c, o, &outside, x, err));
out:
    return st;
}

/* In the files' own keys what would be written for another word: "fp16: true, bf16: false". NULL: they have none. */
static const char *in_their_keys(vp_checked *c, vp_setting setting, const char *word)
{
    vp_settings wanted = {0};
    vp_edit    *edits;
    int64_t     n;
    vp_text     text = {0};
    vp_err      none = {0};
    const char *said = NULL;

    wanted.value[setting] = word;
    if (!word || vp_edits_list(c, &wanted, &edits, &n, &none) != VP_OK)
        return NULL;
    for (int64_t i = 0; i < n; i++)
        if (edits[i].file && edits[i].setting == setting)
            vp_text_printf(&text, "%s%s: %s", text.n_bytes ? ", " : "", edits[i].path,
                           edits[i].to ? edits[i].to : "(take it out)");
    said = text.n_bytes && !text.failed ? vp_arena_strdup(c->arena, text.data) : NULL;
    vp_text_release(&text);
    return said;
}

/* "; lora_target_linear: true says it", in the files' own keys. */
static const char *targets_in_their_keys(vp_checked *c)
{
    const char *keys = in_their_keys(c, VP_SETTING_LORA_TARGETS, "all-linear");
    const char *said = keys ? vp_arena_printf(c->arena, "; %s says it", keys) : NULL;

    return said ? said : "";
}

/* What ends in an error on this card is one of the files' own, beside no verdict. */
static vp_status say_refused(vp_checked *c, const vp_check_fit *x, vp_err *err)
{
    const vp_mended         *m = &x->mended;
    const char *const       *v = m->settings.value;
    const vp_hf_trl_question q = {.precision    = v[VP_SETTING_PRECISION],
                                  .capability   = x->device.compute_capability,
                                  .is_quantised = v[VP_SETTING_TUNING] &&
                                                  strcmp(v[VP_SETTING_TUNING], "qlora") == 0};

    if (m->refused == VP_N_SETTINGS)
        return VP_OK;
    return vp_check_refused(
        c, (vp_setting)m->refused, m->why,
        in_their_keys(c, (vp_setting)m->refused,
                      m->refused == VP_SETTING_PRECISION ? vp_hf_trl_instead(&q) : NULL),
        err);
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
        VP_TRY(say_refused(c, x, err));
        x->why =
            vp_arena_printf(arena, "not answered: %s%s", x->mended.why,
                            strstr(x->mended.why, "say seq") ? "; --seq N says it"
                            : strstr(x->mended.why, "say micro_batch")
                                ? "; give what does too: vplan check FILE... -- COMMAND"
                            : strstr(x->mended.why, "say lora_targets") ? targets_in_their_keys(c)
                                                                        : "");
        VP_TRY_ALLOC(err, x->why);
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

/* Files cannot say which allocator PyTorch takes, the command's environment does. "" where it was said. */
static const char *allocator_text(const vp_mended *m, char *buf, size_t size)
{
    char bytes[32];

    buf[0] = '\0';
    if (m->expandable_bytes >= 0)
        snprintf(buf, size,
                 "no PYTORCH_ALLOC_CONF; with expandable_segments:True before the command %s",
                 vp_size_text(m->expandable_bytes, bytes, sizeof bytes));
    return buf;
}

/* What was taken where the files say nothing. */
static json_t *assumptions_json(const vp_check_fit *x)
{
    const vp_settings *s    = &x->mended.settings;
    json_t            *list = json_array();
    char               text[160];

    for (int i = 0; list && i < s->n_assumed; i++)
        json_array_append_new(list, json_string(s->assumed[i]));
    if (list && allocator_text(&x->mended, text, sizeof text)[0])
        json_array_append_new(list, json_string(text));
    if (list && x->mended.now.why)
        json_array_append_new(list, json_string(x->mended.now.why));
    for (int i = 0; list && i < x->mended.now.n_assumptions; i++)
        json_array_append_new(list, json_string(x->mended.now.assumptions[i]));
    for (int i = 0; list && i < x->zero.n_lines; i++)
        json_array_append_new(list, json_string(x->zero.lines[i]));
    if (list && x->loader.workers)
        json_array_append_new(list, json_string(vp_loader_assumed));
    if (list && *x->calibration.card)
        json_array_append_new(list,
                              vp_calibration_said(&x->calibration, x->calibration_path, false));
    return list;
}

/* By what DeepSpeed's file has smaller than was recorded. */
static bool fits_with_less(const vp_check_fit *x)
{
    return !x->mended.fits &&
           x->mended.now.high_bytes - x->zero.less_bytes <= x->request.budget_bytes;
}

void vp_check_fit_json(const vp_check_fit *x, json_t *answer)
{
    const vp_mended *m = &x->mended;

    if (x->why) {
        json_object_update_new(answer, json_pack("{s:n, s:n, s:n, s:s}", "fits", "device_bytes",
                                                 "peak_phase", "fits_not_answered", x->why));
        return;
    }
    json_object_update_new(
        answer,
        json_pack("{s:b, s:b, s:I, s:s, s:I, s:{s:I, s:I, s:f}, s:I, s:I, s:f}", "fits",
                  (int)m->fits, "tight", (int)(m->is_tight || fits_with_less(x)), "device_bytes",
                  (json_int_t)m->now.device_bytes, "peak_phase", m->now.peak_phase, "budget_bytes",
                  (json_int_t)x->request.budget_bytes, "interval", "low_bytes",
                  (json_int_t)m->now.low_bytes, "high_bytes", (json_int_t)m->now.high_bytes,
                  "probability", VP_LANGUAGE_PROBABILITY, "allocated_peak_bytes",
                  (json_int_t)m->now.allocated_bytes, "reserved_peak_bytes",
                  (json_int_t)m->now.reserved_bytes, "step_time_s", m->now_s));
    json_object_set_new(answer, "assumptions", assumptions_json(x));
    if (x->loader.workers)
        json_object_set_new(answer, "loader", vp_loader_json(&m->now.batch, &x->loader));
    if (*x->calibration.card)
        json_object_set_new(answer, "calibration",
                            vp_calibration_json(&x->calibration, x->calibration_path, false));
    json_object_set_new(answer, "fits_on",
                        m->cards ? json_pack("{s:I, s:s, s:I}", "world", (json_int_t)m->cards,
                                             "parallel", m->cards_parallel, "device_bytes",
                                             (json_int_t)m->cards_bytes)
                                 : json_null());
    if (m->other)
        json_object_set_new(answer, "or",
                            json_pack("{s:s, s:I}", "precision", m->other, "device_bytes",
                                      (json_int_t)m->other_bytes));
    vp_check_lines_json(m, json_object_get(answer, "changes"));
}

static void add_word(vp_words *w, const char *option, const char *value)
{
    w->words[w->n++] = option;
    if (value)
        w->words[w->n++] = value;
}

/* The adapters that the files train, as plan --lora has them. */
static const char *lora_text(vp_arena *arena, const char *const *v)
{
    bool saves = v[VP_SETTING_LORA_SAVE] && !says(v[VP_SETTING_LORA_SAVE], "none");

    return vp_arena_printf(arena, "r=%s,alpha=%s,dropout=%s,targets=%s%s%s", v[VP_SETTING_LORA_R],
                           v[VP_SETTING_LORA_ALPHA], v[VP_SETTING_LORA_DROPOUT],
                           v[VP_SETTING_LORA_TARGETS], saves ? ",save=" : "",
                           saves ? v[VP_SETTING_LORA_SAVE] : "");
}

/* The plan of what the files mean: all that converges otherwise as they say it. */
static void plan_words(const vp_check_fit *x, const vp_command_line *line, vp_arena *arena,
                       vp_words *w)
{
    const vp_choose_request *r      = &x->request;
    const char *const       *v      = x->mended.settings.value;
    bool                     adapts = v[VP_SETTING_TUNING] && !says(v[VP_SETTING_TUNING], "full");

    *w = (vp_words){0};
    add_word(w, r->model_name, NULL);
    add_word(w, "--trainer", r->target->name);
    add_word(w, "--device", x->device.name);
    for (int i = 0; i < line->n_given; i++)
        if (strcmp(line->given[i].option->name, "--budget") == 0 ||
            strcmp(line->given[i].option->name, "--calibration") == 0 ||
            strcmp(line->given[i].option->name, "--versions") == 0)
            add_word(w, line->given[i].option->name, line->given[i].text);
    add_word(w, "--seq", vp_arena_printf(arena, "%lld", (long long)r->seq));
    add_word(w, "--global-batch", vp_arena_printf(arena, "%lld", (long long)r->global_batch));
    add_word(w, "--precision", v[VP_SETTING_PRECISION]);
    add_word(w, "--optimizer", v[VP_SETTING_OPTIMIZER]);
    if (r->pinned[VP_SETTING_RECOMPUTE])
        add_word(w, "--recompute", r->pinned[VP_SETTING_RECOMPUTE]);
    if (!says(v[VP_SETTING_ATTENTION], "sdpa"))
        add_word(w, "--attention", v[VP_SETTING_ATTENTION]);
    if (x->mended.takes_liger)
        add_word(w, "--liger", NULL);
    else if (vp_language_is_liger(v[VP_SETTING_LOSS]))
        add_word(w, "--loss", v[VP_SETTING_LOSS]);
    if (r->world > 1) {
        add_word(w, "--world", v[VP_SETTING_WORLD]);
        add_word(w, "--parallel",
                 says(v[VP_SETTING_PARALLEL], "none") ? "ddp" : v[VP_SETTING_PARALLEL]);
    }
    if (says(v[VP_SETTING_OFFLOAD_ACTIVATIONS], "cpu"))
        add_word(w, "--offload", "activations");
    if (says(v[VP_SETTING_METHOD], "dpo"))
        add_word(w, "--method", "dpo");
    if (v[VP_SETTING_EVAL_BATCH] && !says(v[VP_SETTING_EVAL_BATCH], "none"))
        add_word(w, "--eval-batch", v[VP_SETTING_EVAL_BATCH]);
    if (r->job.padded && !says(v[VP_SETTING_METHOD], "dpo"))
        add_word(w, "--padding", "mask");
    if (says(v[VP_SETTING_TUNING], "qlora"))
        add_word(w, "--qlora", NULL);
    if (v[VP_SETTING_PREPARE] && !says(v[VP_SETTING_PREPARE], "trainer"))
        add_word(w, "--prepare", v[VP_SETTING_PREPARE]);
    if (adapts)
        add_word(w, "--lora", lora_text(arena, v));
    add_word(w, "-o", "settings.json");
}

/* To what plan clips, for which it has no option. */
static const char *plans_norm(const vp_language *l)
{
    for (int i = 0; i < l->n_axes; i++)
        if (l->axes[i].setting == VP_SETTING_CLIP_NORM)
            return l->axes[i].words;
    return vp_setting_otherwise(VP_SETTING_CLIP_NORM);
}

/* Whether plan has no option for something that the files say. */
static bool is_beyond_plan(const vp_check_fit *x)
{
    const char *const *v = x->mended.settings.value;

    return x->request.job.in_bytes || x->request.job.liger || x->request.job.liger_least ||
           x->request.job.compiles || says(v[VP_SETTING_QUANT], "nf4") ||
           says(v[VP_SETTING_OFFLOAD_OPTIMIZER], "cpu") ||
           says(v[VP_SETTING_OFFLOAD_PARAMS], "cpu") ||
           !says(v[VP_SETTING_CLIP_NORM], plans_norm(x->request.job.language));
}

/* No file says what the environment is to hold, a command behind -- does: the same question with it. */
static void print_environment(const vp_check_fit *x, const vp_command_line *line, const char *label)
{
    vp_text  command = {0};
    vp_words words;
    char   **rest = line->rest;

    for (int64_t i = 0; i < x->mended.n_lines; i++) {
        const vp_edit *e = &x->mended.lines[i].edit;
        if (e->file || !e->to)
            continue;
        vp_changed_words(line, NULL, NULL, 0, &words);
        vp_quote_words("check", &words, &command);
        vp_text_printf(&command, " -- %s=%s", e->path, e->to);
        for (; rest && *rest; rest++)
            if (strncmp(*rest, e->path, strlen(e->path)) != 0) {
                vp_text_printf(&command, " ");
                vp_text_quoted(&command, *rest);
            }
        vp_screen_command(label, vp_text_string(&command));
        break;
    }
    vp_text_release(&command);
}

/* What to type to have the lines changed, or what is faster; nothing where plan would refuse it, or plan something else. */
static void print_next(const vp_check_fit *x, const vp_checked *c, const vp_command_line *line)
{
    vp_text  command = {0};
    vp_words words;
    bool     writes_beside = false;

    plan_words(x, line, c->arena, &words);
    if (c->n_errors || is_beyond_plan(x) || vp_arena_failed(c->arena) ||
        !vp_plan_answers(words.n, (char **)words.words)) {
        print_environment(x, line, "next");
        return;
    }
    vp_quote_words("plan", &words, &command);
    vp_screen_command("next", vp_text_string(&command));
    vp_text_release(&command);
    for (int i = 0; i < c->n_files; i++) {
        const vp_checked_file *file = &c->files[i];
        if (!file->doc || !file->dialect || !file->is_file || file->doc->given)
            continue; /* what its command says no file has */
        vp_text_printf(&command, "vplan emit settings.json --for %s ", x->request.target->name);
        if (vp_check_lines_stand(c, file, &x->mended.chosen.best->settings)) {
            vp_text_printf(&command, "--edit ");
            vp_text_quoted(&command, file->name);
        } else if (!writes_beside) {
            vp_text_printf(&command, "-o FOLDER");
            writes_beside = true;
        } else {
            vp_text_release(&command);
            continue;
        }
        vp_screen_command("", vp_text_string(&command));
        vp_text_release(&command);
    }
    print_environment(x, line, "");
}

/* What adapters fit on is said by their plan; of what plan has no option for, by the same question of a card that holds the least. */
static void print_for_adapters(const vp_check_fit *x, const vp_checked *c,
                               const vp_command_line *line)
{
    const vp_mended *m       = &x->mended;
    vp_text          command = {0};
    vp_words         words;
    vp_device        card;
    vp_option_change set[] = {{"--device", card.name, false, false},
                              {"--budget", NULL, false, true}};

    plan_words(x, line, c->arena, &words);
    words.n -= 2; /* nothing is there to write yet */
    if (!c->n_errors && !is_beyond_plan(x) && vp_plan_answers(words.n, (char **)words.words)) {
        vp_quote_words("plan", &words, &command);
    } else if (vp_devices_larger(m->chosen.least ? m->chosen.least->bytes->high_bytes
                                                 : m->now.high_bytes,
                                 x->request.budget_bytes, x->device.compute_capability, &card)) {
        vp_changed_words(line, NULL, set, sizeof set / sizeof *set, &words);
        vp_quote_words("check", &words, &command);
        for (char **rest = line->rest; rest && *rest; rest++) {
            vp_text_printf(&command, rest == line->rest ? " -- " : " ");
            vp_text_quoted(&command, *rest);
        }
    }
    if (command.n_bytes)
        vp_screen_command("next", vp_text_string(&command));
    vp_text_release(&command);
}

/* What to type where nothing of what the files mean fits: it tries what trains otherwise, adapters above
 * all. */
static void print_otherwise(const vp_check_fit *x, const vp_checked *c, const vp_command_line *line)
{
    const vp_choose_request *r       = &x->request;
    const char *const       *v       = x->mended.settings.value;
    vp_text                  command = {0};

    if (v[VP_SETTING_TUNING] && !says(v[VP_SETTING_TUNING], "full")) {
        print_for_adapters(x, c, line);
        return;
    }
    /* SFTTrainer's own step is not known under ZeRO */
    bool is_own = r->job.language->own && !(r->world > 1 && v[VP_SETTING_PARALLEL] &&
                                            strncmp(v[VP_SETTING_PARALLEL], "zero", 4) == 0);
    vp_text_printf(
        &command, "vplan estimate %s --trainer %s --device %s --seq %lld --micro-batch 1",
        r->model_name, is_own ? r->job.language->own : "hf", x->device.name, (long long)r->seq);
    if (r->world > 1)
        vp_text_printf(&command, " --world %lld --parallel %s", (long long)r->world,
                       says(v[VP_SETTING_PARALLEL], "none") ? "ddp" : v[VP_SETTING_PARALLEL]);
    vp_screen_command("next", vp_text_string(&command));
    vp_text_release(&command);
}

static void print_tight(const vp_mended *m, int64_t budget_bytes)
{
    if (m->now.device_bytes <= budget_bytes)
        vp_screen_line("tight", "it may fit all the same, if nothing takes more than is predicted");
    else if (m->n_returns)
        vp_screen_line("tight",
                       "it may fit all the same: PyTorch finds room by giving back its cache, "
                       "%lld times a step, which takes time",
                       (long long)m->n_returns);
    else
        vp_screen_line("tight", "it may fit all the same: PyTorch finds room by giving back its "
                                "cache in the first step");
}

static bool is_faster(const vp_mended *m)
{
    return m->chosen.best && m->chosen.best->seconds < 0.98 * m->now_s;
}

void vp_check_fit_answer(const vp_check_fit *x)
{
    const vp_mended *m = &x->mended;
    char             speed[64], time[32];

    snprintf(speed, sizeof speed, "%s a step (assumed)", vp_time_text(m->now_s, time, sizeof time));
    vp_screen_answer(m->now.high_bytes, x->request.budget_bytes, m->fits ? speed : NULL);
}

void vp_check_fit_print(const vp_check_fit *x, const vp_checked *c, const vp_command_line *line)
{
    const vp_mended *m = &x->mended;
    char             bytes[2][32], time[32], text[160], phase[48];

    if (x->why) {
        vp_screen_line("fit", "%s", x->why);
        if (c->missing)
            vp_check_missing_print(c, line);
        else if (c->own && x->model)
            vp_check_own_print(x, c, line);
        else if (!vp_check_whose_print(c, line) &&
                 (!c->n_unjudged || !vp_check_played_print(c, line, "next")) &&
                 !vp_check_again_print(x->why, line) && !c->n_unjudged &&
                 !vp_check_played_print(c, line, "next"))
            vp_check_any_print(line);
        return;
    }
    if (c->n_errors) /* which come first */
        vp_check_fit_answer(x);
    vp_screen_line("peak", "%s allocated, in %s; %s reserved by PyTorch",
                   vp_size_text(m->now.allocated_bytes, bytes[0], sizeof bytes[0]),
                   vp_screen_phase(m->now.peak_phase, phase, sizeof phase),
                   vp_size_text(m->now.reserved_bytes, bytes[1], sizeof bytes[1]));
    vp_loader_print(&m->now.batch, &x->loader, x->request.world > 1);
    if (m->other)
        vp_screen_line(
            "or",
            "%s as %s: the files do not say in which format weights are loaded, and %s is "
            "counted",
            vp_size_text(m->other_bytes, bytes[0], sizeof bytes[0]), m->other,
            m->settings.value[VP_SETTING_PRECISION]);
    if (m->is_tight)
        print_tight(m, x->request.budget_bytes);
    else if (fits_with_less(x))
        vp_screen_line("tight",
                       "it may fit all the same: DeepSpeed's file has smaller buckets than "
                       "are counted");
    if (!m->fits)
        vp_check_lines_print(m);
    else if (is_faster(m))
        vp_screen_line("faster", "%s a step fits too: micro-batch %s x %s, recompute %s",
                       vp_time_text(m->chosen.best->seconds, time, sizeof time),
                       m->chosen.best->settings.value[VP_SETTING_MICRO_BATCH],
                       m->chosen.best->settings.value[VP_SETTING_ACCUMULATION],
                       m->chosen.best->settings.value[VP_SETTING_RECOMPUTE]);
    if (m->now.why)
        vp_screen_line("assumed", "%s", m->now.why);
    for (int i = 0; i < m->now.n_assumptions; i++)
        vp_screen_line("assumed", "%s", m->now.assumptions[i]);
    for (int i = 0; i < x->zero.n_lines; i++)
        vp_screen_line("assumed", "%s", x->zero.lines[i]);
    if (allocator_text(m, text, sizeof text)[0])
        vp_screen_line("assumed", "%s", text);
    if (x->loader.workers)
        vp_screen_line("assumed", "%s", vp_loader_assumed);
    if (m->chosen.best && (!m->fits || is_faster(m)))
        print_next(x, c, line);
    else if (!m->fits)
        print_otherwise(x, c, line);
    else
        vp_check_played_print(c, line, "next");
}
