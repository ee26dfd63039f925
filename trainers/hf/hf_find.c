#include "trainers/hf/hf_find.h"

#include "base/checked.h"
#include "base/file.h"
#include "trainers/hf/hf_attention.h"
#include "trainers/hf/hf_cudnn.h"
#include "trainers/hf/hf_layers.h"
#include "trainers/hf/hf_lengths.h"
#include "trainers/hf/hf_refuse.h"
#include "trainers/hf/hf_task.h"
#include "trainers/hf/hf_trl.h"
#include "trainers/hf/hf_versions.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_SIZE = 560 };

typedef struct search {
    const vp_model      *model;
    const vp_hf_request *request;
    vp_hf_pass           pass;
    vp_hf_estimate      *out;
    vp_hf_found         *found;
    const char          *attention;  /* what PyTorch takes on this card */
    const char          *folder;     /* of recordings, below theirs */
    bool                 unties;     /* of tied tables the untied recording is looked for */
    bool                 is_resized; /* pictures of another size than the config says */
    bool                 terse;      /* as the request's; so is what another step stands in for */
    vp_hf_request        moved;      /* the request, with other checkpoints */
} search;

/* Whether such steps were recorded in fp16 too: those of a class that looks for it, and clamps what is. */
static bool is_apart(const search *r, const char *precision)
{
    const char *key;
    char        words[80];

    snprintf(words, sizeof words, "precision=%s attention=%s ", precision, r->attention);
    for (int64_t i = 0; (key = vp_recording_key(r->found->recording, i)); i++)
        if (strstr(key, words) && !strstr(key, " quantised="))
            return true;
    return false;
}

/* Formats of 16 bits take the same bytes: fp16 is played from what was recorded in bf16; but eager
 * attention, where PyTorch's softmax reads fp16 and writes fp32 without a copy between, and products of 8-bit weights, which
 * read fp16. */
static const char *recorded_precision(const search *r)
{
    static const char *const same[][2] = {{"fp16", "bf16"}, {"fp16-mixed", "bf16-mixed"}};
    const vp_hf_request     *q         = r->request;
    bool                     quantised = vp_hf_is_quantised(q);
    bool differs = quantised ? strcmp(q->load, "int8") == 0 : strcmp(r->attention, "eager") == 0;
    const char *precision = vp_hf_computed_precision(q);

    if (differs || (!quantised && strncmp(precision, "fp16", 4) == 0 && is_apart(r, precision)))
        return precision;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (strcmp(precision, same[i][0]) == 0)
            return same[i][1];
    return strcmp(precision, "fp16-amp") == 0 && vp_hf_has_adapters(q) ? "bf16-amp" : precision;
}

static bool evaluates(const search *r)
{
    return r->pass != VP_HF_STEP;
}

/* Tokens of a sequence that layers see. */
static int64_t seen_tokens(const search *r)
{
    return r->out->seq + r->request->lora.virtual_tokens;
}

/* Whether masks tell pictures from texts: tokens of a picture look at each other both ways, within the window or, in other layers, beyond it. Both
 * masks are made whatever the length. */
static bool has_picture_masks(const search *r)
{
    return r->found->sizes.window && r->request->images;
}

static bool is_windowed(const search *r)
{
    return r->found->sizes.window && !r->request->images &&
           seen_tokens(r) >= r->found->sizes.window;
}

/* Padding is a mask's; but of a sound's text it is in the labels alone, and a sound is as long as others. */
static bool is_padded(const search *r)
{
    return r->request->padded && !vp_hf_hears(&r->found->sizes);
}

/* Keys of a prefix have no queries: sdpa gets a mask. */
static bool has_mask(const search *r)
{
    return is_padded(r) || r->request->packed || is_windowed(r) || has_picture_masks(r) ||
           vp_hf_has_prefix(r->request);
}

static bool is_fp32(const search *r)
{
    return strcmp(vp_hf_computed_precision(r->request), "fp32") == 0;
}

/* Whether the step was recorded with flash attention off: with a mask, and in fp32, it never runs. */
static bool is_without_flash(const search *r)
{
    return vp_hf_lacks_flash(r->request) && !has_mask(r);
}

/* What sdpa takes where flash attention cannot run: memory-efficient attention, which has no grouped heads; transformers
 * repeats them where there is a mask, and leaves them to sdpa where there is none (use_gqa_in_sdpa). Below 8.0 it has no
 * bf16 either (torch, sdp_utils.cpp: less_than_sm80_mem_efficient_dtypes). */
static bool is_grouped_alone(const search *r)
{
    return r->found->sizes.heads != VP_HF_HEADS_ALL && !has_mask(r) &&
           (vp_hf_lacks_flash(r->request) || is_fp32(r));
}

static bool is_math(const search *r)
{
    return is_grouped_alone(r) || (vp_hf_lacks_flash(r->request) && vp_hf_is_emulated(r->request));
}

/* Why sdpa has no flash attention here. */
static const char *lacking(const search *r)
{
    return is_fp32(r) ? "in fp32"
           : vp_hf_lacks_flash(r->request) && !vp_hf_turns_flash_off(r->request)
               ? "below compute capability 8.0"
               : "with a mask";
}

/* Names the kernel that sdpa takes where it is not flash attention, and says why. */
static void choose_attention(search *r)
{
    bool lacks = vp_hf_lacks_flash(r->request) || is_fp32(r) || has_mask(r);

    if (evaluates(r))
        return;
    r->out->attention = r->request->attention;
    if (strcmp(r->attention, "eager") == 0 && strcmp(r->request->attention, "eager") != 0) {
        r->out->attention = "eager";
        vp_hf_assume(r->out, VP_HF_EAGER_ALONE, r->model->family);
    }
    if (!lacks || strncmp(r->attention, "sdpa", 4) != 0)
        return;
    r->out->attention = is_math(r) ? "sdpa:math" : "sdpa:efficient";
    if (is_grouped_alone(r))
        vp_hf_assume(r->out,
                     "sdpa %s%s; grouped heads without a mask run as math, which keeps sequence x "
                     "sequence scores of each head%s",
                     vp_hf_turns_flash_off(r->request) ? "without flash attention" : lacking(r),
                     vp_hf_turns_flash_off(r->request) ? "" : " has no flash attention",
                     vp_hf_is_emulated(r->request) ? "" : " (--padding mask: memory-efficient)");
    else if (is_math(r))
        vp_hf_assume(r->out, "sdpa below compute capability 8.0 has neither flash nor "
                             "memory-efficient attention in bf16: math");
    else if (!vp_hf_turns_flash_off(r->request))
        vp_hf_assume(r->out, "sdpa %s: memory-efficient attention, as there is no flash attention",
                     lacking(r));
}

/* As keys have it: the first layers of a model that has others besides. */
static const char *recompute_of(const search *r)
{
    return !vp_hf_first_recomputed(r->request) ? r->request->recompute
           : r->found->sizes.n_layers[1] == 0  ? "full"
                                               : "first";
}

/* One value a sequence, whose error is squared; RewardTrainer's loss is another. */
static bool is_regression(const search *r)
{
    return r->pass != VP_HF_SECOND && !vp_hf_is_reward(r->request) &&
           strcmp(r->out->task, "seqcls") == 0 && r->found->sizes.symbols.at[VP_SYM_C] == 1;
}

/* Frozen tables that are tied are a line of the untied recording, if there is one. What is told apart only
 * where it makes a difference: a window that is shorter than the sequence; with sdpa, a mask whose rows
 * are no multiple of 8 elements; heads of more than 128; heads of which a part is rotated, where that is a size. */
static void key_of(const search *r, char *buf, size_t size)
{
    const vp_hf_request *q      = r->request;
    const vp_hf_sizes   *s      = &r->found->sizes;
    bool                 window = is_windowed(r);
    bool                 sdpa   = strncmp(r->attention, "sdpa", 4) == 0;
    int64_t              head = s->symbols.at[VP_SYM_d], target = s->symbols.at[VP_SYM_D];
    int64_t              row = q->packed ? q->batch * r->out->seq : seen_tokens(r);
    bool        biased       = target && s->symbols.at[VP_SYM_W]; /* distances are a mask to sdpa */
    bool        ragged   = (has_mask(r) || biased) && (row % VP_MASKED_BY || target % VP_MASKED_BY);
    bool        usual    = q->of_usual_sizes;
    vp_hf_heads heads    = usual && s->heads == VP_HF_HEADS_ONE ? VP_HF_HEADS_GROUPED : s->heads;
    const char *dropouts = evaluates(r) ? "" : s->without_dropout ? "0" : s->dropouts;
    const char *saved    = vp_hf_saves_modules(q)               ? q->lora.save
                           : vp_hf_trains_head(q, r->out->task) ? "classifier"
                                                                : "";

    snprintf(buf, size,
             "task=%s precision=%s attention=%s mask=%d gqa=%d tied=%d recompute=%s lora=%s "
             "keep_output=0 lora_dropout=%d%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s",
             r->out->task, recorded_precision(r), r->attention, is_padded(r), (int)heads,
             s->tied && !r->unties, recompute_of(r), q->lora.targets, vp_hf_drops_out(q),
             vp_hf_has_adapters(q) && vp_hf_halves_adapters(q) ? " adapter=bf16" : "",
             q->lora.is_dora ? " dora=1" : "", saved[0] ? " save=" : "", saved,
             q->lora.tokens ? " tokens=1" : "", vp_hf_is_quantised(q) ? " quantised=" : "",
             vp_hf_is_quantised(q) ? q->load : "", dropouts[0] ? " dropout=" : "", dropouts,
             window ? " window=1" : "", sdpa && ragged ? " ragged=1" : "",
             head > 128 && !usual ? " wide=1" : "", vp_hf_upcasts(q) ? " upcast=1" : "",
             r->found->plain ? "" : " trainer=", r->found->plain ? "" : q->trainer,
             vp_hf_has_liger(q) ? " liger=" : "", vp_hf_has_liger(q) ? q->liger : "",
             r->pass == VP_HF_SECOND ? " eval=2"
             : evaluates(r)          ? " eval=1"
                                     : "",
             q->offloads && !evaluates(r) ? " offload=1" : "", vp_hf_freezes(q) ? " freeze=" : "",
             vp_hf_freezes(q) ? q->freeze : "",
             s->symbols.at[VP_SYM_q] && s->symbols.at[VP_SYM_q] < head ? " partial=1" : "",
             is_regression(r) ? " regression=1" : "", q->packed ? " packed=1" : "",
             r->is_resized ? " resized=1" : "", q->has_reference ? " beta=1" : "",
             q->images ? " images=1" : "");
}

/* What a recording is of, as its file is named behind the family. part: of the same steps, in a file of its own. */
static void kind_of(const search *r, const char *part, char *buf, size_t size)
{
    const char *of = r->request->images                     ? "-images"
                     : evaluates(r)                         ? "-eval"
                     : vp_hf_has_liger(r->request)          ? "-liger"
                     : vp_hf_is_dpo(r->request)             ? "-dpo"
                     : vp_hf_is_reward(r->request)          ? "-reward"
                     : vp_hf_is_grpo(r->request)            ? "-grpo"
                     : vp_hf_is_trl(r->request)             ? "-trl"
                     : !r->found->plain                     ? "-hf"
                     : vp_hf_is_quantised(r->request)       ? "-qlora"
                     : vp_hf_has_other_adapters(r->request) ? "-peft"
                     : vp_hf_has_adapters(r->request)       ? "-lora"
                     : vp_hf_freezes(r->request)            ? "-freeze"
                                                            : "";

    snprintf(buf, size, "%s%s", of, part);
}

static bool has_recording(const search *r, const char *part, char *path, size_t size)
{
    const char *family = vp_hf_recorded_family(r->model);
    char        name[160], kind[40];
    vp_err      why = {0};

    kind_of(r, part, kind, sizeof kind);
    snprintf(name, sizeof name, "recordings/%s%s%s.rec", r->folder, family, kind);
    if (family[strspn(family, "abcdefghijklmnopqrstuvwxyz0123456789_-")])
        return false;
    return r->request->shelf ? vp_hf_shelf_find(r->request->shelf, name, path, size)
                             : vp_file_find_program(name, path, size, &why) == VP_OK;
}

/* Whether steps of this family were recorded with pictures alone. */
static bool sees_only(const search *r)
{
    vp_hf_request seeing = *r->request;
    search        other  = *r;
    char          path[PATH_MAX];

    seeing.images = 1;
    other.request = &seeing;
    return vp_model_field(r->model, "vision_config") &&
           has_recording(&other, "", path, sizeof path);
}

static vp_status find_recording(const search *r, const char *part, char *path, size_t size,
                                vp_err *err)
{
    char   kind[40], known[600] = "";
    vp_err why = {0};

    if (has_recording(r, part, path, size))
        return VP_OK;
    r->out->is_unrecorded = true;
    if (r->terse)
        return VP_FAIL(err, VP_ERR_INPUT, "%s: no such steps were recorded", r->model->family);
    if (r->request->images && !vp_model_field(r->model, "vision_config"))
        return VP_FAIL_AT(err, VP_ERR_USAGE, r->model->name, 0, "vision_config",
                          "--images: %s is a model of texts alone, without this part of a config",
                          r->model->family);
    if (!r->request->images && sees_only(r))
        return VP_FAIL_AT(err, VP_ERR_INPUT, r->model->name, 0, "model_type",
                          "%s was recorded with pictures, not with texts alone: --images N, as "
                          "many as a sample has",
                          r->model->family);
    kind_of(r, part, kind, sizeof kind);
    if (vp_file_find_program("recordings/llama.rec", path, size, &why) != VP_OK)
        return VP_FAIL(err, VP_ERR_INPUT, "recorded training steps are missing: %s", why.message);
    vp_hf_list_recorded(path, kind,
                        r->pass == VP_HF_SECOND ? " eval=2"
                        : evaluates(r)          ? " eval=1"
                                                : "",
                        known, sizeof known);
    return VP_FAIL_AT(err, VP_ERR_INPUT, r->model->name, 0, "model_type",
                      "no %s of family \"%s\"%s%s%s was recorded; there are %s. For "
                      "yours: %svplan dryrun -- COMMAND, which runs your own script",
                      r->pass == VP_HF_SECOND ? "pass of a second model"
                      : evaluates(r)          ? "evaluation"
                                              : "training step",
                      vp_hf_recorded_family(r->model),
                      vp_hf_is_quantised(r->request)         ? " with quantised weights"
                      : vp_hf_has_other_adapters(r->request) ? " with --peft"
                      : vp_hf_has_adapters(r->request)       ? " with adapters"
                      : vp_hf_freezes(r->request)            ? " with frozen parts"
                                                             : "",
                      vp_hf_has_liger(r->request)   ? " with Liger's kernels"
                      : vp_hf_is_dpo(r->request)    ? " by TRL's DPOTrainer"
                      : vp_hf_is_reward(r->request) ? " by TRL's RewardTrainer"
                      : vp_hf_is_grpo(r->request)   ? " by TRL's GRPOTrainer"
                      : vp_hf_is_trl(r->request)    ? " by TRL's SFTTrainer"
                      : r->found->plain             ? ""
                                                    : " by transformers' Trainer",
                      r->request->images         ? " with pictures"
                      : strstr(part, "-noflash") ? " without flash attention"
                                                 : "",
                      known,
                      strcmp(r->request->trainer, "trl") == 0 && !evaluates(r)
                          ? "--trainer hf --recompute full, whose whole logits take "
                            "more; or "
                          : "");
}

/* The task that is asked for, else the class's, else the first that was recorded. A class of texts and images has the name of one of two
 * stacks, and is AutoModelForCausalLM's. */
static vp_status choose_task(search *r, vp_err *err)
{
    const char *class_name = r->model->class_name, *key = "";
    char        word[24], recorded[100]                 = "";
    size_t      n = 0;

    snprintf(r->out->task, sizeof r->out->task, "%s",
             vp_hf_is_reward(r->request)                     ? "seqcls"
             : r->request->task                              ? r->request->task
             : class_name && vp_hf_task_of_class(class_name) ? vp_hf_task_of_class(class_name)
             : class_name                                    ? class_name
                                                             : "");
    if (!r->request->task && strcmp(r->out->task, "seq2seq") == 0 &&
        vp_model_field(r->model, "vision_config"))
        snprintf(r->out->task, sizeof r->out->task, "clm");
    for (int64_t i = 0; (key = vp_recording_key(r->found->recording, i)); i++) {
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
                   "no training step of %s %s%s was recorded for the family %s, only of %s: --task "
                   "%.*s, or --class with a class of transformers' that learns it",
                   r->request->task ? "task" : "class",
                   r->request->task ? r->out->task : class_name,
                   vp_hf_has_adapters(r->request) ? " with adapters" : "", r->model->family,
                   recorded, (int)strcspn(recorded, ","), recorded);
}

/* Of a classifier that is trained, how many classes there are. */
static vp_status choose_labels(search *r, vp_err *err)
{
    const json_t *config     = r->model->config;
    const json_t *number     = json_object_get(config, "num_labels");
    int64_t      *classes    = &r->found->sizes.symbols.at[VP_SYM_C];
    bool          of_samples = strcmp(r->out->task, "seqcls") == 0;

    bool of_images = strcmp(r->out->task, "imgcls") == 0;

    if (r->pass == VP_HF_SECOND ||
        (!of_samples && !of_images && strcmp(r->out->task, "tokcls") != 0))
        return VP_OK;
    if (of_images && *classes == 1)
        return VP_FAIL_AT(err, VP_ERR_INPUT, r->model->name, 0, "id2label",
                          "a classifier of images was recorded with two classes or more; one is a "
                          "regression, whose training step is not known");
    if (vp_hf_is_reward(r->request)) {
        *classes = 1; /* which RewardTrainer makes of any model */
        return VP_OK;
    }
    if (!json_object_get(config, "id2label") && !json_is_integer(number))
        vp_hf_assume(r->out, "%lld classes, as the config names none (id2label)",
                     (long long)*classes);
    if (of_samples && r->request->batch > 1 && vp_hf_lacks_padding(r->model))
        vp_hf_assume(r->out, "pad_token_id is set before training: the config has none, and "
                             "transformers then stops at more than one sample");
    if (*classes < 1)
        return VP_FAIL_AT(err, VP_ERR_INPUT, r->model->name, 0, "id2label", "%lld classes are none",
                          (long long)*classes);
    return of_samples || of_images ? vp_hf_check_problem(r->model, r->request, *classes == 1, err)
                                   : VP_OK;
}

enum { MOST_BESIDE = 5 }; /* layers: gemma 3's repeat after six */

/* The program of a key; where layers repeat in blocks, and the model's are no whole ones, that with so many beside them. */
static vp_status find_of_layers(const search *r, const char *key,
                                const vp_recorded_program **program, vp_err *err)
{
    const vp_recorded_program *other;
    int64_t                    n_layers = r->found->sizes.n_layers[0];
    char                       beside[KEY_SIZE + 80];
    vp_status                  st = VP_OK;

    VP_TRY(vp_recording_find(r->found->recording, key, program, err));
    for (int n = 1; n <= MOST_BESIDE && !(*program && vp_recorded_repeats(*program, n_layers));
         n++) {
        snprintf(beside, sizeof beside, "%s rest=%d", key, n);
        VP_TRY(vp_recording_find(r->found->recording, beside, &other, err));
        if (other && vp_recorded_repeats(other, n_layers))
            *program = other;
    }
out:
    return st;
}

/* With one sample in a batch fewer tensors are copied: a program of its own where that was recorded. */
static vp_status find_program(search *r, const char *key, const vp_recorded_program **program,
                              vp_err *err)
{
    char                 of_one[KEY_SIZE + 40];
    const vp_hf_request *q        = r->request;
    bool                 is_alone = q->batch == 1 && !vp_hf_has_pairs(q) && !q->packed;
    vp_status            st       = VP_OK;

    *program = NULL;
    snprintf(of_one, sizeof of_one, "%s one=1", key);
    if (is_alone)
        VP_TRY(find_of_layers(r, of_one, program, err));
    if (*program)
        return VP_OK;
    VP_TRY(find_of_layers(r, key, program, err));
    if (*program && is_alone)
        vp_hf_assume(r->out,
                     "this step was recorded with several samples in a batch; with one PyTorch "
                     "makes fewer copies, up to 1 %% of the bytes");
out:
    return st;
}

/* By key, else by that of the untied recording. The first key that was tried is left in key, the last in other. */
static vp_status find_tied(search *r, char key[KEY_SIZE], char other[KEY_SIZE],
                           const vp_recorded_program **program, vp_err *err)
{
    bool      of_classes = vp_hf_has_classes(r->out->task); /* whose head is tied to no table */
    vp_status st         = VP_OK;

    /* of tied tables peft trains the same tokens in both */
    r->unties = r->found->sizes.tied &&
                (of_classes || (vp_hf_has_adapters(r->request) && !r->request->lora.tokens));
    r->found->ties = r->unties && !of_classes;
    key_of(r, key, KEY_SIZE);
    memcpy(other, key, KEY_SIZE);
    VP_TRY(find_program(r, key, program, err));
    if (*program || !r->unties)
        return VP_OK;
    r->unties = r->found->ties = false;
    key_of(r, other, KEY_SIZE);
    VP_TRY(find_program(r, other, program, err));
out:
    return st;
}

static void put_back(vp_hf_found *found)
{
    if (!found->is_borrowed)
        vp_recording_free(found->recording);
    found->recording = NULL;
}

enum { LEAST_TRAINED = 2 };

/* Layers that are frozen are a group of their own before the others, and so are the first ones that alone are recomputed. */
static vp_status part_layers(const search *r, vp_err *err)
{
    int64_t *n = r->found->sizes.n_layers, frozen = r->request->frozen_layers;
    int64_t  first = vp_hf_first_recomputed(r->request);

    if (first && n[1] == 0 && first < n[0]) {
        n[1] = n[0] - first;
        n[0] = first;
    }
    if (!frozen)
        return VP_OK;
    if (frozen > n[0] - LEAST_TRAINED)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--freeze layers:%lld: this model has %lld layers, of which %d or more are "
                       "trained in what was recorded",
                       (long long)frozen, (long long)n[0], LEAST_TRAINED);
    n[1] = n[0] - frozen;
    n[0] = frozen;
    return VP_OK;
}

/* Accelerate cuts the last norm and the head as one unit, which is gathered as that norm runs; beneath peft's model it finds no norm
 * (1.15, _find_final_norm), so nothing gathers a head of its own for a loss that takes its weight and never runs it. */
static vp_status refuse_lone_head(const search *r, vp_err *err)
{
    const vp_hf_request *q = r->request;

    if (!vp_hf_has_liger(q) || !vp_hf_has_adapters(q) || !vp_hf_is_shared(q) ||
        strcmp(q->parallel, "fsdp2") != 0 || r->found->sizes.tied)
        return VP_OK;
    return VP_FAIL(
        err, VP_ERR_INPUT,
        "--%s --parallel fsdp2 with adapters does not run where the head is not tied to "
        "the table: Accelerate 1.15 cuts such a head by itself beneath peft's model, and "
        "nothing gathers its weight for Liger's loss (mixed torch.Tensor and DTensor); "
        "--parallel zero3 runs, and fsdp2 without Liger",
        strcmp(q->liger, "all") == 0 ? "liger" : "loss liger");
}

/* A recording, and what it makes of the model. */
static vp_status open_recording(search *r, const char *part, vp_err *err)
{
    char      path[PATH_MAX];
    vp_status st = VP_OK;

    put_back(r->found);
    VP_TRY(find_recording(r, part, path, sizeof path, err));
    r->found->is_borrowed = r->request->shelf != NULL;
    VP_TRY(r->found->is_borrowed
               ? vp_hf_shelf_open(r->request->shelf, path, &r->found->recording, err)
               : vp_recording_open(path, &r->found->recording, err));
    VP_TRY(choose_task(r, err));
    VP_TRY(vp_hf_check_head(r->model, r->request, r->out->task, err));
    VP_TRY(vp_hf_sizes_read(r->model, r->found->recording, &r->found->sizes, err));
    VP_TRY(vp_hf_check_config(r->model, r->found->recording, &r->found->sizes, err));
    VP_TRY(vp_hf_check_layers(r->model, &r->found->sizes, err));
    VP_TRY(refuse_lone_head(r, err));
    VP_TRY(part_layers(r, err));
    VP_TRY(choose_labels(r, err));
    VP_TRY(
        vp_hf_choose_lengths(r->model, r->request, &r->found->sizes, r->out, &r->is_resized, err));
out:
    return st;
}

static const char *attention_of(const search *r)
{
    const char *asked = r->request->attention;

    return vp_hf_lacks_sdpa(r->model->family, asked, r->request->versions) ? "eager"
           : is_math(r) && !is_grouped_alone(r)                            ? "sdpa:math"
           : is_without_flash(r)                                           ? "sdpa:efficient"
           : vp_hf_turns_flash_off(r->request)                             ? "sdpa:flash"
                                                                           : asked;
}

/* A file of a kind's steps, and in it the program. */
static vp_status find_in_part(search *r, const char *part, char key[KEY_SIZE], char other[KEY_SIZE],
                              const vp_recorded_program **program, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(open_recording(r, part, err));
    r->attention = attention_of(r);
    VP_TRY(find_tied(r, key, other, program, err));
out:
    return st;
}

/* Dropout in adapters, flash-attn 2 and sdpa without flash attention have files of their own beside the others, as
 * FAMILY-lora-dropout-flash2.rec; what is in none of those is looked for in the plainer ones, which may have tasks that they have not.
 * Where it is in none at all, the first one is open. */
static vp_status find_in_parts(search *r, char key[KEY_SIZE], char other[KEY_SIZE],
                               const vp_recorded_program **program, vp_err *err)
{
    const vp_hf_request *q       = r->request;
    const char          *dropout = vp_hf_has_adapters(q) && vp_hf_drops_out(q) ? "-dropout" : "";
    const char          *kernels = strcmp(q->attention, "flash_attention_2") == 0 ? "-flash2"
                                   : vp_hf_lacks_flash(q)                         ? "-noflash"
                                                                                  : "";
    char                 parts[3][40] = {"", "", ""}, path[PATH_MAX];
    int                  last = -1, told = -1; /* told: whose nearest step is said */
    vp_err               why = {0};
    vp_status            st  = VP_OK;

    *program = NULL; /* of a search before this one */
    snprintf(parts[0], sizeof parts[0], "%s%s", dropout, kernels);
    snprintf(parts[1], sizeof parts[1], "%s", dropout);
    for (int i = 0; i < 3 && !*program; i++) {
        bool is_last = i == 2 || !*parts[i];
        if (i && strcmp(parts[i], parts[i - 1]) == 0)
            continue;
        if (!has_recording(r, parts[i], path, sizeof path) && (!is_last || last >= 0))
            continue;
        last = i;
        if (find_in_part(r, parts[i], key, other, program, &why) == VP_OK && told < 0)
            told = i;
    }
    if (told < 0) /* none has steps of this task, or is about this config */
        VP_TRY(find_in_part(r, parts[last], key, other, program, err));
    else if (!*program && *parts[told])
        VP_TRY(find_in_part(r, parts[told], key, other, program, err));
out:
    return st;
}

/* Where length alone keeps a step from being one that was recorded (a mask's rows of no multiple of 8, the attention window), the
 * nearest length with which it is one; 0: there is none. */
static int64_t known_seq(const search *r)
{
    vp_hf_request   other   = *r->request;
    vp_hf_estimate *out     = calloc(1, sizeof *out);
    vp_hf_found     found   = {0};
    vp_err          ignored = {0};
    int64_t         most    = is_windowed(r) ? r->found->sizes.window - 1 : r->out->positions;

    other.seq   = vp_round_up(r->out->seq, VP_MASKED_BY);
    other.terse = true;
    if (most && other.seq + other.lora.virtual_tokens > most)
        other.seq = (most - other.lora.virtual_tokens) / VP_MASKED_BY * VP_MASKED_BY;
    if (!out || other.seq <= 0 || other.seq == r->out->seq ||
        vp_hf_find(r->model, &other, r->pass, out, &found, &ignored) != VP_OK)
        other.seq = 0;
    vp_hf_found_release(&found);
    free(out);
    return other.seq;
}

static vp_status find_step(search *r, const vp_recorded_program **program, vp_err *err)
{
    char      key[KEY_SIZE], other[KEY_SIZE];
    vp_status st = VP_OK;

    if (r->request->capability < 80 && strcmp(r->request->attention, "flash_attention_2") == 0)
        VP_TRY(
            VP_FAIL_AT(err, VP_ERR_INPUT, NULL, 0, VP_HF_REFUSED_BY_CARD "attention",
                       "flash_attention_2 takes compute capability 8.0 or more, and this card has "
                       "%d.%d",
                       r->request->capability / 10, r->request->capability % 10));
    VP_TRY(find_in_parts(r, key, other, program, err));
    r->out->is_unrecorded = !*program;
    if (!*program && r->terse)
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "%s: no such step was recorded", r->model->family));
    if (!*program)
        VP_TRY(vp_hf_refuse(r->found->recording, r->model->family, other, key,
                            strcmp(vp_hf_computed_precision(r->request), r->request->precision) != 0
                                ? VP_HF_CUT
                                : r->request->precision,
                            known_seq(r), err));
    if (r->pass == VP_HF_STEP)
        snprintf(r->out->step, sizeof r->out->step, "%s: %s", r->model->family, other);
out:
    return st;
}

/* Of an evaluation no other trainer's stands in: Accelerate copies the logits to fp32, TRL makes none. */
static vp_status find_evaluation(search *r, vp_err *err)
{
    vp_status st = VP_OK;

    r->found->plain = vp_hf_is_plain(r->request);
    VP_TRY(find_step(r, &r->found->program, err));
    if (!vp_hf_is_trl(r->request) && !r->found->plain)
        vp_hf_assume(r->out, "evaluation: its loss only; with compute_metrics Trainer keeps all "
                             "logits on the card, up to 4 bytes x tokens x vocabulary");
out:
    return st;
}

/* Where another step stands in for it nobody reads why it is not there. */
static vp_status find_own_step(search *r)
{
    vp_err ignored = {0};

    r->terse     = true;
    vp_status st = find_step(r, &r->found->program, &ignored);
    r->terse     = r->request->terse;
    return st;
}

/* SFTTrainer adds the loss that spreads tokens over experts, whatever output_router_logits says; its backward pass is a phase of its
 * own, which several cards' rules know nothing of. */
static vp_status weigh_routers(search *r, vp_err *err)
{
    if (!r->found->sizes.symbols.at[VP_SYM_E])
        return VP_OK;
    if (vp_hf_is_shared(r->request))
        return VP_FAIL(
            err, VP_ERR_INPUT,
            "%s by TRL on several cards was not recorded, whose SFTTrainer adds a loss "
            "on the routers of experts; on one card it was, and --trainer hf has several",
            r->model->family);
    vp_hf_assume(r->out, "TRL adds the loss on routers, as router_aux_loss_coef is not 0");
    return VP_OK;
}

/* Trainer's own step where it was recorded, else a plain loop's: where both were they differ by 1 KiB, as
 * Trainer's count of targets is a tensor and its fp32 copy of the output goes before backward. */
static vp_status find_training(search *r, vp_err *err)
{
    vp_status st = VP_OK;

    r->found->plain = vp_hf_is_plain(r->request);
    if (vp_hf_is_trl(r->request)) {
        VP_TRY(vp_hf_refuse_other_heads(r->model, r->request, err));
        VP_TRY(vp_hf_trl_runs(r->request, err));
        VP_TRY(find_step(r, &r->found->program, err));
        VP_TRY(weigh_routers(r, err));
        vp_hf_trl_assume(r->request, r->out);
    } else if (r->request->images) {
        VP_TRY(find_step(r, &r->found->program, err));
    } else if (vp_hf_has_liger(r->request)) {
        VP_TRY(find_step(r, &r->found->program, err));
        vp_hf_assume(r->out,
                     "Liger's kernels have no scratch beside what Python allocates for them");
    } else if (r->found->plain || find_own_step(r) != VP_OK ||
               !vp_hf_knows_versions(r->request, r->found)) {
        r->found->plain = true;
        VP_TRY(find_step(r, &r->found->program, err));
        if (!vp_hf_is_plain(r->request))
            vp_hf_assume(r->out,
                         "Trainer's own step was not recorded with these settings: a plain loop's, "
                         "1 KiB lower where both were recorded, and Trainer's clipping");
    }
    if (vp_hf_is_quantised(r->request) && r->found->sizes.symbols.at[VP_SYM_E])
        vp_hf_assume(
            r->out, "experts are no linear layers: transformers leaves their weights in 16 bits%s",
            vp_hf_upcasts(r->request) ? ", and prepare_model_for_kbit_training makes them fp32"
                                      : "");
out:
    return st;
}

/* Of the newest libraries, or of those that are asked for; where these run another program it is in a folder of its own. */
static vp_status find_with_versions(search *r, vp_err *err)
{
    static const char *const folders[] = {"", "torch-2.15/", "transformers-4/"};
    vp_hf_estimate           empty     = *r->out;
    vp_status                first     = VP_OK;

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        vp_err    why = {0};
        vp_status st;
        put_back(r->found);
        *r->found = (vp_hf_found){.as = -1};
        *r->out   = empty;
        r->folder = folders[i];
        st        = r->pass != VP_HF_STEP ? find_evaluation(r, &why) : find_training(r, &why);
        if (st == VP_OK)
            st = vp_hf_choose_versions(r->request, i == 0, r->found, r->out, &why);
        if (st == VP_OK)
            return VP_OK;
        if (i == 0) {
            first = st;
            *err  = why;
        }
        if (first == VP_ERR_USAGE || !r->request->versions)
            break;
    }
    return first;
}

/* What several cards do with checkpoints by use_reentrant=True is known of adapters under ZeRO 3. */
static bool knows_reentrant(const vp_hf_request *q)
{
    return !vp_hf_is_shared(q) || (strcmp(q->parallel, "zero3") == 0 && vp_hf_has_adapters(q));
}

/* Checkpoints by use_reentrant=True were recorded for fewer settings than those by False, which stand in. */
static vp_status find_by_checkpoints(search *r, vp_err *err)
{
    const vp_hf_request *asked = r->request;
    vp_status            st    = VP_ERR_INPUT;

    if (!vp_hf_is_reentrant(asked))
        return find_with_versions(r, err);
    r->moved           = *asked;
    r->moved.recompute = "full:reentrant";
    r->request         = &r->moved;
    if (vp_hf_forces_reentrant(asked))
        vp_hf_assume(r->out,
                     "checkpoints by use_reentrant=True, which TRL's trainers switch on for "
                     "adapters under ZeRO 3");
    if (knows_reentrant(asked))
        st = find_with_versions(r, err);
    if (st != VP_OK) {
        r->moved.recompute = "full";
        st                 = find_with_versions(r, err);
        r->out->stands_in  = r->out->stands_in || st == VP_OK;
        if (st == VP_OK)
            vp_hf_assume(r->out, "checkpoints by use_reentrant=True were not recorded with these "
                                 "settings: those by False stand in; by True 0.6 %% less to "
                                 "2.6 %% more is allocated, 3 %% less to 7 %% more reserved");
    }
    r->request = asked;
    return st;
}

vp_status vp_hf_find(const vp_model *model, const vp_hf_request *request, vp_hf_pass pass,
                     vp_hf_estimate *out, vp_hf_found *found, vp_err *err)
{
    search    r  = {.model   = model,
                    .request = request,
                    .pass    = pass,
                    .out     = out,
                    .found   = found,
                    .terse   = request->terse};
    vp_status st = VP_OK;

    *found = (vp_hf_found){0};
    VP_TRY(find_by_checkpoints(&r, err));
    found->copies_attention =
        pass == VP_HF_STEP && vp_hf_copies_attention(model, request, r.attention, has_mask(&r));
    out->is_unrecorded = false;
    choose_attention(&r);
    if (found->copies_attention)
        vp_hf_assume(out,
                     "cuDNN's attention, which PyTorch takes first on this card under a mask: by "
                     "rule, a copy of each layer's output more than was recorded");
    if (request->load && strcmp(request->load, "int8") == 0)
        vp_hf_assume(out, "8-bit weights: no column of what goes into a product is an outlier "
                          "(values of 6 and more); each one that is takes 2 bytes a token more");
    if (vp_hf_is_emulated(request) && pass == VP_HF_STEP)
        vp_hf_assume(out, "bf16 below compute capability 8.0 is emulated by PyTorch: its bytes are "
                          "the same, its products are at best as fast as fp32's");
    if (found->sizes.symbols.at[VP_SYM_z] && pass == VP_HF_STEP)
        vp_hf_assume(out, "linear attention by flash-linear-attention and causal-conv1d, both "
                          "installed and tuned; PyTorch's own loops take a third more without "
                          "checkpoints, up to 11 %% more with them");
    if (found->sizes.has_longrope && pass == VP_HF_STEP)
        vp_hf_assume(out, "longrope takes its frequencies anew in each pass, which was not "
                          "recorded: 512 bytes");
    if (found->sizes.defaults[0])
        vp_hf_assume(out, "not in the config, so as the class has it: %s", found->sizes.defaults);
out:
    return st;
}

void vp_hf_found_release(vp_hf_found *found)
{
    put_back(found);
    *found = (vp_hf_found){0};
}
