#include "trainers/hf/hf_estimate.h"

#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "trainers/hf/hf_refuse.h"
#include "trainers/hf/hf_sizes.h"
#include "trainers/torch/optimizer_step.h"
#include "trainers/torch/world.h"

#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2 };

typedef struct run {
    const vp_model       *model;
    const vp_hf_request  *request;
    vp_hf_sizes           sizes;
    vp_recording         *recording;
    vp_caching_allocator *allocator;
    vp_ledger             ledger;
    vp_recorded          *step;
    vp_ledger_block      *copies; /* of what is trained, that stay */
    int64_t               n_copies;
    vp_optimizer_step    *optimizer;
    vp_world             *world; /* or NULL: one rank */
    vp_hf_estimate       *out;
    bool                  plain; /* a plain loop's recording is played */
    bool                  ties;  /* frozen tables are tied, and the untied recording is played */
    char                  names[VP_LEDGER_PHASES][24];
} run;

static void assume(vp_hf_estimate *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void assume(vp_hf_estimate *e, const char *fmt, ...)
{
    va_list args;

    if (e->n_assumptions == VP_HF_ASSUMPTIONS)
        return;
    va_start(args, fmt);
    vsnprintf(e->assumptions[e->n_assumptions++], sizeof *e->assumptions, fmt, args);
    va_end(args);
}

static bool has_adapters(const vp_hf_request *q)
{
    return strcmp(q->lora.targets, "none") != 0;
}

/* A plain loop, or Trainer's. */
static bool is_plain(const vp_hf_request *q)
{
    return strcmp(q->trainer, "torch") == 0;
}

/* TRL's head and loss are its own, so no other trainer's step stands in for it. */
static bool is_trl(const vp_hf_request *q)
{
    return strcmp(q->trainer, "trl") == 0;
}

static bool is_quantised(const vp_hf_request *q)
{
    return q->load && strcmp(q->load, "none") != 0;
}

static bool is_shared(const vp_hf_request *q)
{
    return q->world > 1 && q->parallel && strcmp(q->parallel, "none") != 0;
}

/* Ways that cut the weights compute with 16-bit ones, without autocast. */
static const char *computed_precision(const vp_hf_request *q)
{
    bool cut = is_shared(q) && !vp_world_replicates(q->parallel);

    return !cut ? q->precision : strcmp(q->precision, "bf16-mixed") == 0 ? "bf16" : q->precision;
}

/* Formats of 16 bits take the same bytes: fp16 is played from what was recorded in bf16; but eager
 * attention, where PyTorch's softmax reads fp16 and writes fp32 without a copy between. */
static const char *recorded_precision(const vp_hf_request *q)
{
    bool        same      = strcmp(q->attention, "eager") != 0 || is_quantised(q);
    const char *precision = computed_precision(q);

    return same && strcmp(precision, "fp16") == 0         ? "bf16"
           : same && strcmp(precision, "fp16-mixed") == 0 ? "bf16-mixed"
                                                          : precision;
}

/* Frozen tables that are tied are a line of the untied recording, if there is one. What is told apart only
 * where it makes a difference: a window that is shorter than the sequence; with sdpa, a mask whose rows
 * are no multiple of 8 elements; heads of more than 128. */
static void key_of(const run *r, char *buf, size_t size)
{
    const vp_hf_request *q      = r->request;
    const vp_hf_sizes   *s      = &r->sizes;
    bool                 window = s->window && r->out->seq >= s->window;
    bool                 sdpa   = strcmp(q->attention, "eager") != 0;
    int64_t              head = s->symbols.at[VP_SYM_d], target = s->symbols.at[VP_SYM_D];
    bool ragged = (q->padded || window || target) && (r->out->seq % 8 || target % 8);

    snprintf(buf, size,
             "task=%s precision=%s attention=%s mask=%d gqa=%d tied=%d recompute=%s lora=%s "
             "keep_output=0 lora_dropout=%d%s%s%s%s%s%s%s%s%s%s%s",
             r->out->task, recorded_precision(q), q->attention, q->padded, (int)s->heads,
             s->tied && !r->ties, q->recompute, q->lora.targets, q->lora.dropout > 0,
             q->lora.is_bf16 ? " adapter=bf16" : "", q->lora.is_dora ? " dora=1" : "",
             is_quantised(q) ? " quantised=" : "", is_quantised(q) ? q->load : "",
             s->without_dropout ? " dropout=0" : "", window ? " window=1" : "",
             sdpa && ragged ? " ragged=1" : "", head > 128 ? " wide=1" : "",
             is_quantised(q) && !is_trl(q) ? " upcast=1" : "",
             r->plain ? "" : " trainer=", r->plain ? "" : q->trainer);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Families whose file of this kind lies beside that of path, by name. */
static void list_families(const char *path, const char *kind, char *buf, size_t size)
{
    char            folder[PATH_MAX];
    char           *end;
    struct dirent **entries;
    size_t          n = 0;

    buf[0] = '\0';
    snprintf(folder, sizeof folder, "%s", path);
    end = strrchr(folder, '/');
    if (!end)
        return;
    *end          = '\0';
    int n_entries = scandir(folder, &entries, NULL, by_name);
    for (int i = 0; i < n_entries; i++) {
        const char *name   = entries[i]->d_name;
        int         length = (int)strcspn(name, "-.");
        if (length > 0 && n < size && strncmp(name + length, kind, strlen(kind)) == 0 &&
            name[length + (int)strlen(kind)] == '.')
            n += (size_t)snprintf(buf + n, size - n, "%s%.*s", n ? ", " : "", length, name);
        free(entries[i]);
    }
    if (n_entries >= 0)
        free(entries);
}

static vp_status find_recording(const run *r, char *path, size_t size, vp_err *err)
{
    char   name[120], known[600] = "";
    vp_err why = {0};

    const char *kind = is_trl(r->request)         ? "-trl"
                       : !r->plain                ? "-hf"
                       : is_quantised(r->request) ? "-qlora"
                       : has_adapters(r->request) ? "-lora"
                                                  : "";

    snprintf(name, sizeof name, "recordings/%s%s.rec", r->model->family, kind);
    if (r->model->family[strspn(r->model->family, "abcdefghijklmnopqrstuvwxyz0123456789_-")] ==
            '\0' &&
        vp_file_find_program(name, path, size, &why) == VP_OK)
        return VP_OK;
    if (vp_file_find_program("recordings/llama.rec", path, size, &why) != VP_OK)
        return VP_FAIL(err, VP_ERR_INPUT, "recorded training steps are missing: %s", why.message);
    list_families(path, kind, known, sizeof known);
    return VP_FAIL_AT(err, VP_ERR_INPUT, r->model->name, 0, "model_type",
                      "no training step of family \"%s\"%s%s was recorded; there are %s. For "
                      "yours: %svplan dryrun -- COMMAND, which plays your own script",
                      r->model->family,
                      is_quantised(r->request)   ? " with quantised weights"
                      : has_adapters(r->request) ? " with adapters"
                                                 : "",
                      is_trl(r->request) ? " by TRL's SFTTrainer"
                      : r->plain         ? ""
                                         : " by transformers' Trainer",
                      known,
                      is_trl(r->request) ? "--trainer hf --recompute full, whose whole logits take "
                                           "more; or "
                                         : "");
}

/* The task that a class of transformers has by its name; NULL: another. */
static const char *task_of_class(const char *name)
{
    static const char *const known[][2] = {
        {"ForCausalLM", "clm"},
        {"LMHeadModel", "clm"},
        {"ForMaskedLM", "mlm"},
        {"ForConditionalGeneration", "seq2seq"},
        {"ForImageClassification", "imgcls"},
        {"ForSequenceClassification", "seqcls"},
        {"ForTokenClassification", "tokcls"},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *at = strstr(name, known[i][0]);
        if (at && strlen(at) == strlen(known[i][0]))
            return known[i][1];
    }
    return NULL;
}

/* The task that is asked for, else the class's, else the first that was recorded. */
static vp_status choose_task(run *r, vp_err *err)
{
    const char *class_name = r->model->class_name, *key = "";
    char        word[24], recorded[100]                 = "";
    size_t      n = 0;

    snprintf(r->out->task, sizeof r->out->task, "%s",
             r->request->task                          ? r->request->task
             : class_name && task_of_class(class_name) ? task_of_class(class_name)
             : class_name                              ? class_name
                                                       : "");
    for (int64_t i = 0; (key = vp_recording_key(r->recording, i)); i++) {
        if (sscanf(key, "task=%23s", word) != 1)
            continue;
        if (!r->out->task[0])
            snprintf(r->out->task, sizeof r->out->task, "%s", word);
        if (strcmp(word, r->out->task) == 0)
            return VP_OK;
        if (!strstr(recorded, word) && n < sizeof recorded)
            n += (size_t)snprintf(recorded + n, sizeof recorded - n, "%s%s", n ? ", " : "", word);
    }
    return VP_FAIL(err, VP_ERR_INPUT,
                   "no training step of %s %s was recorded for the family %s, only of task %s",
                   r->request->task ? "task" : "class",
                   r->request->task ? r->out->task : class_name, r->model->family, recorded);
}

/* The sequence, and that the model has so many positions. */
static vp_status choose_seq(run *r, vp_err *err)
{
    int64_t positions =
        r->model->graph.max_seq ? r->model->graph.max_seq : r->sizes.symbols.at[VP_SYM_P];

    int64_t of_image = r->sizes.symbols.at[VP_SYM_S];

    r->out->seq = of_image ? of_image : r->request->seq;
    if (of_image && r->request->seq && r->request->seq != of_image)
        return VP_FAIL(err, VP_ERR_USAGE, "--seq %lld: an image of this model makes %lld tokens",
                       (long long)r->request->seq, (long long)of_image);
    if (!r->out->seq)
        r->out->seq =
            positions && positions < r->request->default_seq ? positions : r->request->default_seq;
    if (positions && r->out->seq > positions)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--seq %lld is longer than the %lld positions of this model",
                       (long long)r->out->seq, (long long)positions);
    return VP_OK;
}

/* The sequence that is learnt from the other one, where there are two. */
static vp_status choose_target(run *r, vp_err *err)
{
    int64_t target = r->request->target_seq;

    if (strcmp(r->out->task, "seq2seq") == 0)
        r->sizes.symbols.at[VP_SYM_D] = target ? target : r->out->seq;
    else if (target)
        return VP_FAIL(err, VP_ERR_USAGE, "--target-seq is for --task seq2seq, not for %s",
                       r->out->task);
    return VP_OK;
}

/* With one sample in a batch fewer tensors are copied: a program of its own where that was recorded. */
static vp_status find_program(run *r, const char *key, const vp_recorded_program **program,
                              vp_err *err)
{
    char      of_one[440];
    vp_status st = VP_OK;

    *program = NULL;
    snprintf(of_one, sizeof of_one, "%s one=1", key);
    if (r->request->batch == 1)
        VP_TRY(vp_recording_find(r->recording, of_one, program, err));
    if (*program)
        return VP_OK;
    VP_TRY(vp_recording_find(r->recording, key, program, err));
    if (*program && r->request->batch == 1)
        assume(r->out, "this step was recorded with several samples in a batch; with one PyTorch "
                       "makes fewer copies, up to 1 %% of the bytes");
out:
    return st;
}

static vp_status find_step(run *r, const vp_recorded_program **program, vp_err *err)
{
    char      path[PATH_MAX], key[400], untied[400];
    vp_status st = VP_OK;

    VP_TRY(find_recording(r, path, sizeof path, err));
    VP_TRY(vp_recording_open(path, &r->recording, err));
    VP_TRY(choose_task(r, err));
    VP_TRY(vp_hf_sizes_read(r->model, r->recording, &r->sizes, err));
    VP_TRY(vp_hf_check_config(r->model, r->recording, &r->sizes, err));
    VP_TRY(choose_seq(r, err));
    VP_TRY(choose_target(r, err));
    r->ties = r->sizes.tied && has_adapters(r->request);
    key_of(r, key, sizeof key);
    memcpy(untied, key, sizeof untied);
    VP_TRY(find_program(r, key, program, err));
    if (!*program && r->ties) {
        r->ties = false;
        key_of(r, key, sizeof key);
        VP_TRY(find_program(r, key, program, err));
    }
    if (!*program)
        VP_TRY(
            vp_hf_refuse(r->recording, r->model->family, key, untied, r->request->precision, err));
out:
    return st;
}

/* Trainer's own step where it was recorded, else a plain loop's: where both were they differ by 1 KiB, as
 * Trainer's count of targets is a tensor and its fp32 copy of the output goes before backward. */
static vp_status open_recording(run *r, const vp_recorded_program **program, vp_err *err)
{
    vp_err    why = {0};
    vp_status st  = VP_OK;

    r->plain = is_plain(r->request);
    if (is_trl(r->request)) {
        VP_TRY(find_step(r, program, err));
        assume(r->out, "TRL 1.16: every token of a sequence but the first is learnt from; with "
                       "padding or prompts left out its head takes less");
    } else if (r->plain || find_step(r, program, &why) != VP_OK) {
        vp_recording_free(r->recording);
        r->recording = NULL;
        r->plain     = true;
        VP_TRY(find_step(r, program, err));
        if (!is_plain(r->request))
            assume(r->out,
                   "Trainer's own step was not recorded with these settings: a plain loop's, "
                   "1 KiB lower where both were recorded, and Trainer's clipping");
    }
    if (r->sizes.defaults[0])
        assume(r->out, "not in the config, so as the class has it: %s", r->sizes.defaults);
    snprintf(r->out->versions, sizeof r->out->versions, "%s", vp_recording_versions(r->recording));
out:
    return st;
}

/* cuBLAS's workspace of one thread (CUDABlas, getChosenWorkspaceSize): 32 MiB on compute capability
 * 9.0, else 2 x 4 MiB and 8 x 16 KiB. */
static int64_t workspace_of(const vp_hf_request *q)
{
    if (q->workspace_bytes >= 0)
        return q->workspace_bytes;
    return q->capability >= 90 ? 32 * VP_MIB : 2 * 4096 * VP_KIB + 8 * 16 * VP_KIB;
}

static bool has_phase(const run *r, const char *phase)
{
    const char *name;

    for (int i = 0; (name = vp_recorded_phase(r->step, i)); i++)
        if (strcmp(name, phase) == 0)
            return true;
    return false;
}

static vp_status set_up(run *r, vp_err *err)
{
    const vp_hf_request       *q       = r->request;
    vp_caching_allocator_opts  opts    = {0};
    const vp_recorded_program *program = NULL;
    vp_symbols                *symbols = &r->sizes.symbols;
    vp_status                  st      = VP_OK;

    VP_TRY(open_recording(r, &program, err));
    if (symbols->at[VP_SYM_t] && q->capability < 80)
        VP_TRY(VP_FAIL(
            err, VP_ERR_INPUT,
            "%s: below compute capability 8.0 PyTorch has no grouped products of experts; what "
            "runs instead was not recorded",
            r->model->name));
    if (q->alloc_conf)
        VP_TRY(vp_caching_allocator_conf(q->alloc_conf, &opts, err));
    VP_TRY(vp_caching_allocator_new(&opts, &r->allocator, err));
    r->ledger.allocator   = r->allocator;
    symbols->at[VP_SYM_B] = q->batch;
    symbols->at[VP_SYM_S] = r->out->seq;
    symbols->at[VP_SYM_r] = q->lora.rank;
    VP_TRY(vp_symbols_complete(
        symbols,
        &(vp_symbol_card){
            .processors = q->processors,
            .threads    = q->capability == 75 ? 1024
                          : q->capability == 80 || q->capability == 90 || q->capability == 100 ? 2048
                                                                                               : 1536},
        err));
    VP_TRY(vp_recorded_new(program, symbols, r->sizes.n_layers, &r->ledger, &r->step, err));
    vp_recorded_workspace(r->step, workspace_of(q));
    if (q->keep_output && !has_phase(r, "output"))
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT,
                       "%s: this training step was not recorded with its output kept",
                       r->model->family));
    if (r->ties && !vp_recorded_tie(r->step))
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "%s was recorded with untied tables only",
                       r->model->family));
out:
    return st;
}

/* Of an element of the model's weights. */
static int64_t weight_bytes(const char *precision)
{
    return strcmp(precision, "fp32") == 0 || strstr(precision, "-mixed") ? 4 : 2;
}

/* Of an element of what is trained, and of its gradient. */
static int64_t element_bytes(const vp_hf_request *q)
{
    bool halves = q->lora.is_bf16 || (is_trl(q) && is_quantised(q));

    return !has_adapters(q) ? weight_bytes(q->precision) : halves ? 2 : 4;
}

/* Several ranks: what the first one does besides. */
static vp_status share(run *r, vp_err *err)
{
    const vp_hf_request *q = r->request;

    if (!is_shared(q))
        return VP_OK;
    if (has_adapters(q) && !vp_world_replicates(q->parallel))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "adapters under --parallel %s are not known; --parallel ddp is",
                       q->parallel);
    return vp_world_new(&(vp_world_opts){.parallel       = q->parallel,
                                         .offload        = q->offload ? q->offload : "none",
                                         .ranks          = q->world,
                                         .weight_bytes   = weight_bytes(computed_precision(q)),
                                         .master_bytes   = weight_bytes(q->precision),
                                         .is_tied        = r->sizes.tied,
                                         .loads_in_parts = !is_plain(q),
                                         .device_bytes   = q->device_bytes},
                        r->step, &r->ledger, &r->world, err);
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

static vp_status play(run *r, const char *word, int step, int64_t micro, vp_err *err)
{
    char      phase[32];
    vp_status st = VP_OK;

    vp_ledger_begin(&r->ledger, phase_name(r, word, step, micro));
    snprintf(phase, sizeof phase, "%s%s", word, micro > 0 ? "_more" : "");
    if (r->world && step)
        VP_TRY(vp_world_begin(r->world, word, micro + 1 == micro_steps(r), err));
    VP_TRY(vp_recorded_play(r->step, phase, err));
    if (r->world && step)
        VP_TRY(vp_world_end(r->world, err));
    vp_ledger_end(&r->ledger);
out:
    return st;
}

static bool has_copies(const vp_hf_request *q)
{
    return q->resident && strcmp(q->resident, "none") != 0;
}

/* An average of the weights, or the weights before a step of meta-learning: a copy of what is trained, changed in place. */
static vp_status make_copies(run *r, vp_err *err)
{
    int64_t        n;
    const int64_t *bytes = vp_recorded_parameters(r->step, &n);
    vp_status      st    = VP_OK;

    r->copies = calloc((size_t)n + 1, sizeof *r->copies);
    VP_TRY_ALLOC(err, r->copies);
    for (; r->n_copies < n; r->n_copies++)
        VP_TRY(vp_ledger_alloc(&r->ledger, VP_OWNER_RESIDENT, bytes[r->n_copies],
                               &r->copies[r->n_copies], err));
out:
    return st;
}

static void free_copies(run *r)
{
    for (int64_t i = 0; i < r->n_copies; i++)
        vp_ledger_free(&r->ledger, &r->copies[i]);
    free(r->copies);
}

/* All phases before the batch is there: the base, then what is put on top of it. */
static vp_status play_loading(run *r, vp_err *err)
{
    const char *name;
    vp_status   st = VP_OK;

    vp_ledger_begin(&r->ledger, phase_name(r, "load", 0, 0));
    for (int i = 0; (name = vp_recorded_phase(r->step, i)) && strcmp(name, "inputs") != 0; i++) {
        VP_TRY(vp_recorded_play(r->step, name, err));
        if (strcmp(name, "upcast") == 0) /* prepare_model_for_kbit_training() ends so */
            VP_TRY(vp_caching_allocator_empty_cache(r->allocator, err));
    }
    if (r->world)
        VP_TRY(vp_world_load(r->world, err));
    if (has_copies(r->request))
        VP_TRY(make_copies(r, err));
    vp_ledger_end(&r->ledger);
out:
    return st;
}

/* The model's output goes when the loss is there; where it is kept, when the next one is, or with the
 * step. */
static vp_status play_micro_step(run *r, int step, int64_t micro, vp_err *err)
{
    const char *output = micro > 0 ? "output_more" : "output";
    bool        kept   = r->request->keep_output;
    vp_status   st     = VP_OK;

    VP_TRY(play(r, "forward", step, micro, err));
    if (kept && micro == 1)
        VP_TRY(vp_recorded_play(r->step, "output", err));
    if (!kept && has_phase(r, output))
        VP_TRY(vp_recorded_play(r->step, output, err));
    VP_TRY(play(r, "backward", step, micro, err));
out:
    return st;
}

/* What the optimizer works on, in bytes. */
static const int64_t *trained(const run *r, int64_t *n)
{
    return r->world ? vp_world_trained(r->world, n) : vp_recorded_parameters(r->step, n);
}

static vp_status play_step(run *r, int step, vp_err *err)
{
    int64_t        n = micro_steps(r), n_trained;
    const int64_t *bytes;
    vp_status      st = VP_OK;

    for (int64_t micro = 0; micro < n; micro++)
        VP_TRY(play_micro_step(r, step, micro, err));
    vp_ledger_begin(&r->ledger, phase_name(r, "step", step, 0));
    bytes = trained(r, &n_trained);
    if (r->request->clips && n_trained)
        VP_TRY(vp_clip_play(bytes, n_trained, element_bytes(r->request), &r->ledger, err));
    if (r->world)
        VP_TRY(vp_world_step(r->world, err));
    VP_TRY(vp_optimizer_step_play(r->optimizer, err));
    if (r->world)
        VP_TRY(vp_world_stepped(r->world, err));
    vp_ledger_end(&r->ledger);
    if (r->request->keep_output)
        VP_TRY(vp_recorded_play(r->step, n > 1 ? "output_more" : "output", err));
    vp_recorded_drop_gradients(r->step);
    if (r->world)
        vp_world_drop_gradients(r->world);
out:
    return st;
}

/* Of the model whose linear layers are quantised: two in a byte. What is not is fp32, but for biases, which are 16 bits: so
 * the model's count where it is within a thousandth. SFTTrainer leaves it as it was loaded. */
static int64_t quantised_parameters(const run *r)
{
    int64_t each = is_trl(r->request) ? weight_bytes(computed_precision(r->request)) : 4;
    int64_t n = 2 * vp_recorded_quantised_bytes(r->step) + vp_recorded_frozen_bytes(r->step) / each;
    int64_t expected = r->model->n_params;

    return llabs(n - expected) <= expected / 1000 ? expected : n;
}

/* The recording's parameters are the model's, or what was recorded is another model. */
static vp_status count_parameters(run *r, vp_err *err)
{
    const vp_hf_request *q = r->request;
    int64_t              n, bytes = 0, base, each = weight_bytes(computed_precision(q));
    const int64_t       *list = vp_recorded_parameters(r->step, &n);

    for (int64_t i = 0; i < n; i++)
        bytes += list[i];
    if (has_adapters(q)) {
        base = vp_recorded_frozen_bytes(r->step) / each;
        if (is_quantised(q))
            base = quantised_parameters(r);
        r->out->n_trained = bytes / element_bytes(q);
        r->out->n_params  = base + r->out->n_trained;
    } else {
        r->out->n_params = r->out->n_trained = base = bytes / each;
    }
    bool same_class =
        r->model->head == (strcmp(r->out->task, "mlm") == 0 ? VP_HEAD_MASKED : VP_HEAD_NEXT_TOKEN);
    if (r->model->n_params && same_class && base != r->model->n_params)
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

/* What is said of several ranks, and what their hosts hold: states are fp32 there. */
static void finish_world(run *r)
{
    const vp_hf_request *q = r->request;
    int64_t              elements;

    vp_world_host(r->world, &r->out->pinned_bytes, &elements);
    r->out->host_bytes =
        r->out->pinned_bytes + 4 * elements * vp_optimizer_step_states(q->optimizer);
    assume(r->out,
           strncmp(q->parallel, "zero", 4) == 0
               ? "several cards: DeepSpeed 0.19 with the settings that emit writes: buckets of 5e8 "
                 "elements, overlap_comm at stage 3 only, its defaults besides"
           : strcmp(q->parallel, "ddp") == 0
               ? "several cards: PyTorch's DistributedDataParallel, buckets of 25 MiB, gradients "
                 "copied to them"
               : "several cards: fully_shard as Accelerate 1.15 calls it: every layer, the input's "
                 "table, the head; resharded after forward");
    assume(r->out, "rank 0 of %lld, which has the largest part of what cannot be cut evenly",
           (long long)q->world);
}

/* Names of phases live as long as the program. */
static const char *keep_name(const char *name)
{
    static const char *const known[] = {
        "load",        "inputs",      "forward1",    "backward1",   "step1",     "forward1.2",
        "backward1.2", "forward1.3",  "backward1.3", "forward2",    "backward2", "step2",
        "forward2.2",  "backward2.2", "forward2.3",  "backward2.3", NULL};

    for (int i = 0; known[i]; i++)
        if (strcmp(known[i], name) == 0)
            return known[i];
    return "phase";
}

/* The optimizer is made, then the batch is there. */
static vp_status play_inputs(run *r, vp_err *err)
{
    const vp_hf_request *q = r->request;
    int64_t              n;
    const int64_t       *bytes = trained(r, &n);
    vp_status            st    = VP_OK;

    VP_TRY(vp_optimizer_step_new(q->optimizer, bytes, n, element_bytes(q), &r->ledger,
                                 &r->optimizer, err));
    if (!is_plain(q))
        vp_optimizer_step_widen(r->optimizer, vp_recorded_tables(r->step));
    vp_optimizer_step_width(r->optimizer, r->sizes.symbols.at[VP_SYM_h]);
    vp_ledger_begin(&r->ledger, phase_name(r, "inputs", 0, 0));
    VP_TRY(vp_optimizer_step_begin(r->optimizer, err));
    VP_TRY(vp_recorded_play(r->step, "inputs", err));
    vp_ledger_end(&r->ledger);
out:
    return st;
}

vp_status vp_hf_estimate_run(const vp_model *model, const vp_hf_request *request,
                             vp_hf_estimate *out, vp_err *err)
{
    run       r  = {.model = model, .request = request, .out = out};
    vp_status st = VP_OK;

    *out = (vp_hf_estimate){0};
    VP_TRY(set_up(&r, err));
    VP_TRY(share(&r, err));
    VP_TRY(play_loading(&r, err));
    VP_TRY(count_parameters(&r, err));
    VP_TRY(play_inputs(&r, err));
    for (int step = 1; step <= STEPS; step++)
        VP_TRY(play_step(&r, step, err));
    finish(&r);
    if (r.world)
        finish_world(&r);
    for (int i = 0; i < out->n_phases; i++)
        out->phases[i].name = keep_name(out->phases[i].name);
    if (strcmp(request->attention, "sdpa:flash") == 0)
        assume(out, "sdpa: flash attention where PyTorch allows it, else memory-efficient, else "
                    "math; cuDNN's attention is off");
    if (strcmp(request->optimizer, "adafactor") == 0)
        assume(out,
               "adafactor: rows and columns by the model's width; 0.1 %% of the bytes at most");
    if (r.sizes.symbols.at[VP_SYM_t])
        assume(out, "experts run in PyTorch's grouped products, as transformers has it: no size "
                    "depends on where tokens go");
    if (request->batch * out->seq > 65536)
        assume(out, "beyond 65,536 tokens at once, layer norms and large sums run kernels whose "
                    "scratch is not known");
    if (request->capability != 90)
        assume(out, "kernels' scratch is that of compute capability 9.0, but for sums");
out:
    free_copies(&r);
    vp_optimizer_step_free(r.optimizer);
    vp_world_free(r.world);
    vp_recorded_free(r.step);
    vp_caching_allocator_destroy(r.allocator);
    vp_recording_free(r.recording);
    return st;
}
