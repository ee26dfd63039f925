#include "trainers/hf/hf_refuse.h"

#include "base/checked.h"
#include "trainers/hf/hf_request.h"
#include "trainers/hf/hf_sizes.h"
#include "trainers/hf/hf_trained.h"
#include "trainers/torch/optimizer_settings.h"
#include "trainers/torch/world.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Words of keys as people say them; a value that is not here is said as it is, behind the option. without: a word that is only in
 * some keys, where it is missing. */
static const struct {
    const char *word, *said;
} sayings[] = {
    {"attention=sdpa:flash", "--attention sdpa"},
    {"attention=sdpa:math", "--attention math"},
    {"attention=flash_attention_2", "--attention flash2"},
    {"mask=0", "no padding mask"},
    {"mask=1", "--padding mask"},
    {"gqa=0", "as many key and value heads as heads"},
    {"gqa=1", "fewer key and value heads than heads"},
    {"gqa=2", "one key and value head"},
    {"tied=0", "an output layer of its own"},
    {"tied=1", "an output layer tied to the input's table"},
    {"lora=none", "no adapters"},
    {"lora=ia3", "--peft ia3"},
    {"lora=prompt", "--peft prompt"},
    {"lora=prefix", "--peft prefix"},
    {"lora_dropout=0", "no dropout in adapters"},
    {"lora_dropout=1", "dropout in adapters"},
    {"adapter=bf16", "adapters in bf16"},
    {"dora=1", "DoRA"},
    {"tokens=1", "tokens that are trained beside adapters"},
    {"dropout=0", "dropouts that are all zero"},
    {"window=1", "a sequence as long as the model's attention window"},
    {"ragged=1", "a masked sequence (or one beyond the window) whose length is no multiple of 8"},
    {"wide=1", "attention heads of more than 128"},
    {"packed=1", "--packing"},
    {"regression=1", "one class (one is a regression)"},
    {"partial=1", "heads of which a part is rotated"},
    {"eval=2", "a second model's pass"},
    {"offload=1", "--offload activations"},
    {"upcast=1", "--prepare on"},
    {"freeze=embeddings", "--freeze embeddings"},
    {"freeze=layers", "--freeze layers:N"},
    {"freeze=vision", "--freeze vision"},
    {"images=1", "--images"},
    {"recompute=first", "--recompute first:N"},
    {"trainer=dpo", "--method dpo"},
    {"trainer=reward", "--method reward"},
    {"trainer=grpo", "--method grpo"},
    {"beta=1", "--resident reference"},
    {"liger=all", "--liger"},
    {"liger=loss", "--loss liger"},
};

/* Words that are in some keys only. */
static const struct {
    const char *word, *without;
} rare[] = {
    {"trainer=", "--trainer torch"},
    {"adapter=bf16", "adapters in fp32"},
    {"beta=1", "no --resident reference"},
    {"dora=1", "LoRA without DoRA"},
    {"save=", "adapters alone"},
    {"tokens=1", "no trained tokens"},
    {"quantised=", "no --load"},
    {"upcast=1", "--prepare off"},
    {"liger=", "no kernels of Liger"},
    {"packed=1", "no --packing"},
    {"regression=1", "several classes"},
    {"offload=1", "no --offload"},
    {"freeze=", "nothing frozen"},
    {"images=1", "texts alone"},
    {"dropout=", "dropouts as the model's class has them"},
    {"window=1", "a sequence shorter than the model's attention window"},
    {"ragged=1", "a length that is a multiple of 8"},
    {"wide=1", "attention heads of at most 128"},
    {"partial=1", "heads that are rotated as a whole"},
};

static bool has_word(const char *key, const char *word, size_t n)
{
    for (; *key; key += strcspn(key, " "), key += *key == ' ')
        if (strcspn(key, " ") == n && memcmp(key, word, n) == 0)
            return true;
    return false;
}

static bool begins_a_word(const char *key, const char *start)
{
    const char *at = strstr(key, start);

    while (at && at != key && at[-1] != ' ')
        at = strstr(at + 1, start);
    return at != NULL;
}

static void join(char *buf, size_t size, const char *text)
{
    size_t n = strlen(buf);

    snprintf(buf + n, size - n, "%s%s", n ? ", " : "", text);
}

/* Formats of 16 bits are one in a recording; fp16 is said where fp16 was asked for. */
static void as_asked(char *text, size_t size, const char *precision)
{
    if (strncmp(precision, "fp16", 4) == 0 && strncmp(text, "precision=bf16", 14) == 0)
        snprintf(text, size, "precision=fp16%s",
                 strstr(text, "-mixed") ? "-mixed"
                 : strstr(text, "-amp") ? "-amp"
                                        : "");
}

/* In place of a format that nobody typed: what the cards do with the one that was. */
static bool is_cut(const char *precision)
{
    return strcmp(precision, VP_HF_CUT) == 0;
}

static void say(const char *word, size_t n, const char *precision, char *buf, size_t size)
{
    char text[240];

    snprintf(text, sizeof text, "%.*s", (int)n, word);
    if (is_cut(precision) && strncmp(text, "precision=", strlen("precision=")) == 0) {
        join(buf, size,
             strcmp(text, "precision=bf16") == 0
                 ? "weights that are cut over cards, which compute with 16-bit ones"
                 : "weights that are whole on each card");
        return;
    }
    as_asked(text, sizeof text, precision);
    for (size_t i = 0; i < sizeof sayings / sizeof *sayings; i++)
        if (strcmp(sayings[i].word, text) == 0) {
            join(buf, size, sayings[i].said);
            return;
        }
    if (strncmp(text, "dropout=", strlen("dropout=")) == 0) {
        char said[260];
        snprintf(said, sizeof said, "dropout by %s", text + strlen("dropout="));
        join(buf, size, said);
        return;
    }
    if (strncmp(text, "one", 3) == 0 || strncmp(text, "rest", 4) == 0)
        return;
    bool        is_lora = strncmp(text, "lora=", 5) == 0, saves = strncmp(text, "save=", 5) == 0;
    char       *value  = strchr(text, '=');
    const char *option = is_lora || saves                       ? "lora"
                         : strncmp(text, "quantised=", 10) == 0 ? "load"
                                                                : text;
    char        said[280];
    if (value)
        *value++ = '\0';
    snprintf(said, sizeof said, "--%s %s%s", option,
             is_lora ? "targets="
             : saves ? "save="
                     : "",
             value ? value : "");
    join(buf, size, said);
}

/* Whole and adapted models, plain and quantised weights are further from each other than two precisions; an evaluation and a second
 * model's pass further than all else. */
static int weight_of(const char *word)
{
    return strncmp(word, "eval=", 5) == 0                                           ? 100
           : strncmp(word, "lora=", 5) == 0 || strncmp(word, "quantised=", 10) == 0 ? 4
                                                                                    : 1;
}

/* Weights that nobody prepares are often those that cards cut, with adapters of their format. */
static bool is_of_cut_packed(const char *key)
{
    return begins_a_word(key, "quantised=") && begins_a_word(key, "adapter=bf16") &&
           !begins_a_word(key, "upcast=1");
}

/* What of a word that other has and key has not is said in the way of key; NULL: nothing. */
static const char *without(const char *word, const char *other, const char *said, const char *key)
{
    if (!begins_a_word(other, word) || begins_a_word(key, word))
        return NULL;
    if (strcmp(word, "upcast=1") != 0)
        return said;
    return is_of_cut_packed(key)              ? "packed weights that are cut over cards"
           : begins_a_word(key, "quantised=") ? said
                                              : NULL;
}

/* Of weights that are prepared nothing is said beside those that cannot be. */
static bool is_silent(const char *word, const char *other)
{
    return strncmp(word, "upcast=", strlen("upcast=")) == 0 &&
           (is_of_cut_packed(other) || !begins_a_word(other, "quantised="));
}

/* Words of one key that the other has not, as people say them, and how far that is. */
static int differences(const char *key, const char *other, const char *precision, char *buf,
                       size_t size)
{
    int distance = 0;

    buf[0] = '\0';
    for (const char *at = key; *at; at += strcspn(at, " "), at += *at == ' ') {
        size_t n = strcspn(at, " ");
        if (has_word(other, at, n))
            continue;
        distance += weight_of(at);
        if (!is_silent(at, other))
            say(at, n, precision, buf, size);
    }
    for (size_t i = 0; i < sizeof rare / sizeof *rare; i++) {
        const char *said = without(rare[i].word, other, rare[i].without, key);
        if (said)
            join(buf, size, said);
    }
    return distance;
}

static const char *nearest_of(const vp_recording *recording, const char *key, int *distance)
{
    const char *best = "", *have;
    char        text[600];

    *distance = 1000;
    for (int64_t i = 0; (have = vp_recording_key(recording, i)); i++) {
        int n = differences(have, key, "", text, sizeof text) +
                differences(key, have, "", text, sizeof text);
        if (n < *distance && !strstr(have, " one=1")) {
            *distance = n;
            best      = have;
        }
    }
    return best;
}

/* Where keys differ in the layers alone, of which those that do not repeat are recorded with their number: rest=2. */
static void say_layers(const char *best, char *asked, char *nearest, size_t size)
{
    const char *rest = strstr(best, "rest=");

    if (asked[0])
        return;
    snprintf(asked, size, "as many layers as this one has");
    if (!rest && !nearest[0])
        snprintf(nearest, size, "whole blocks of layers that repeat");
    else if (rest)
        snprintf(nearest, size, "%.*s behind whole blocks of layers that repeat",
                 (int)strcspn(rest + 5, " "), rest + 5);
}

vp_status vp_hf_refuse(const vp_recording *recording, const char *family, const char *key,
                       const char *other_key, const char *precision, int64_t known_seq, vp_err *err)
{
    char asked[600], nearest[600], length[60] = "";
    int  distance, other_distance;

    if (strcmp(precision, "fp16-amp") == 0 && has_word(key, "lora=none", strlen("lora=none")))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--precision fp16-amp trains weights in fp16, whose gradients PyTorch's "
                       "GradScaler refuses to unscale; what fp16: true means is --precision "
                       "fp16-mixed, weights in fp32");

    const char *best  = nearest_of(recording, key, &distance),
               *other = nearest_of(recording, other_key, &other_distance);

    if (other_distance < distance) {
        key  = other_key;
        best = other;
    }
    if (has_word(key, "eval=1", strlen("eval=1")) && !has_word(best, "eval=1", strlen("eval=1")))
        return VP_FAIL(
            err, VP_ERR_INPUT,
            "no evaluation of %s was recorded. For yours: vplan dryrun -- COMMAND, which "
            "runs your own script",
            family);
    if (strstr(key, "precision=fp16")) /* here the formats differ, and each is said as it is */
        precision = "";
    differences(key, best, precision, asked, sizeof asked);
    differences(best, key, precision, nearest, sizeof nearest);
    if (is_cut(precision) && strstr(key, "liger=")) /* beside what cards otherwise may cut */
        join(asked, sizeof asked, strstr(key, "liger=all") ? "--liger" : "--loss liger");
    if (!nearest[0] && strstr(best, " upcast=1") && !strstr(key, " upcast=1"))
        join(nearest, sizeof nearest, "them whole on each card");
    say_layers(best, asked, nearest, sizeof nearest);
    if (known_seq)
        snprintf(length, sizeof length, "; --seq %lld is covered", (long long)known_seq);
    return VP_FAIL(
        err, VP_ERR_INPUT,
        "%s with %s is not covered: no such %s was recorded. The nearest "
        "that was has %s%s. For yours: vplan dryrun -- COMMAND, which runs your own script",
        family, asked,
        has_word(key, "eval=2", strlen("eval=2"))   ? "pass of a second model"
        : has_word(key, "eval=1", strlen("eval=1")) ? "evaluation"
                                                    : "training step",
        nearest, length);
}

enum { LINE_SIZE = 600 }; /* of a key, and more */

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Whether a program of a file has the word in its key; an empty one they all have. */
static bool has_program(const char *folder, const char *name, const char *word)
{
    char  path[PATH_MAX + 300], line[LINE_SIZE];
    FILE *file;
    bool  has = !*word, starts = true;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = has ? NULL : fopen(path, "r");
    while (file && !has && fgets(line, sizeof line, file)) {
        has    = starts && strncmp(line, "program ", strlen("program ")) == 0 && strstr(line, word);
        starts = strchr(line, '\n') != NULL;
    }
    if (file)
        fclose(file);
    return has;
}

void vp_hf_list_recorded(const char *path, const char *kind, const char *word, char *buf,
                         size_t size)
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
            name[length + (int)strlen(kind)] == '.' && has_program(folder, name, word))
            n += (size_t)snprintf(buf + n, size - n, "%s%.*s", n ? ", " : "", length, name);
        free(entries[i]);
    }
    if (n_entries >= 0)
        free(entries);
}

/* ---- ways to train ---- */

/* What several cards do with adapters is known of some ways. */
static vp_status refuse_adapters(const vp_hf_request *q, vp_err *err)
{
    bool is_quantised = vp_hf_is_quantised(q), saves = vp_hf_saves_modules(q);

    if ((saves || q->lora.tokens) && vp_hf_is_shared(q))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--lora %s under --parallel %s is not known; on one card it is",
                       saves ? "save=" : "tokens=", q->parallel);
    if (saves && strcmp(q->precision, "fp16-amp") == 0)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--lora save= with --precision fp16-amp trains copies in fp16, whose "
                       "gradients PyTorch's GradScaler refuses to unscale; fp16-mixed trains them "
                       "in fp32");
    if (vp_hf_has_prefix(q) && strcmp(q->recompute, "none") != 0)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--peft prefix with --recompute %s does not run: peft refuses gradient "
                       "checkpointing (ValueError in 0.21.2)",
                       q->recompute);
    if (vp_hf_has_prefix(q) && q->keep_output)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--peft prefix with --keep-output was not recorded: the output has the keys "
                       "and values of all layers");
    if (vp_hf_has_prefix(q) && vp_mul(q->batch, q->lora.virtual_tokens) > VP_HF_MOST_LOOK_UPS)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--peft prefix: %lld samples of %lld virtual tokens; recorded were up to %d "
                       "in a batch, beyond which the gradient of their table is another kernel's",
                       (long long)q->batch, (long long)q->lora.virtual_tokens, VP_HF_MOST_LOOK_UPS);
    bool by_fsdp1 = vp_hf_is_shared(q) && vp_hf_has_adapters(q) && strcmp(q->parallel, "fsdp") == 0;

    if (by_fsdp1 && strcmp(q->precision, "bf16-amp") != 0)
        return VP_FAIL(
            err, VP_ERR_INPUT,
            "adapters under --parallel fsdp are known with --precision bf16-amp, not %s; "
            "--parallel fsdp2 and ddp know others",
            q->precision);
    if (by_fsdp1 && vp_hf_is_plain(q))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--trainer torch --parallel fsdp with adapters: how FSDP1 wraps them is the "
                       "loop's own; Trainer's way is known, by peft's fsdp_auto_wrap_policy "
                       "(--trainer hf)");
    if (vp_hf_freezes(q) && vp_hf_is_shared(q))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--freeze under --parallel %s was not recorded; on one card it was",
                       q->parallel);
    if (vp_hf_has_other_adapters(q) && vp_hf_is_shared(q))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--peft %s under --parallel %s was not recorded; on one card it was",
                       q->lora.targets, q->parallel);
    if (vp_hf_is_shared(q) && vp_hf_has_adapters(q) && !vp_world_adapts(q->parallel, is_quantised))
        return VP_FAIL(err, VP_ERR_INPUT, "%s under --parallel %s are not known; %s",
                       is_quantised ? "adapters of quantised weights" : "adapters", q->parallel,
                       is_quantised ? "those of ddp, fsdp and fsdp2 are"
                                    : "those of ddp, fsdp, fsdp2 and zero1 to zero3 are");
    if (vp_hf_cuts_quantised(q) && strcmp(q->load, "int8") == 0)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--load int8 --parallel %s was not recorded: sharded are the weights of "
                       "nf4 and nf4-dq; --parallel ddp keeps them whole",
                       q->parallel);
    if (vp_hf_cuts_quantised(q) && q->prepare == VP_HF_PREPARE_ON)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--prepare on --parallel %s does not run: prepare_model_for_kbit_training() "
                       "makes fp32 what is not packed, and FSDP cuts only what has one format; "
                       "leave it out",
                       q->parallel);
    if (vp_hf_cuts_quantised(q) && vp_hf_weight_bytes(vp_hf_meant_precision(q)) != 2)
        return VP_FAIL(
            err, VP_ERR_INPUT,
            "--load %s --parallel %s --precision %s was not recorded: weights that are sharded "
            "beside quantised ones are of 16 bits (--precision bf16-amp)",
            q->load, q->parallel, q->precision);
    if (vp_hf_cuts_quantised(q) && !vp_hf_halves_adapters(q))
        return VP_FAIL(
            err, VP_ERR_INPUT,
            "--precision %s --parallel %s was not recorded with fp32 adapters beside quantised weights "
            "that are sharded: --precision bf16-amp was, and --parallel ddp, which leaves "
            "them whole on each GPU",
            q->precision, q->parallel);
    return VP_OK;
}

/* TRL's steps were recorded on one card. Of several, runs of SFTTrainer were played by these ways, whole models and adapters
 * (launched_worlds.csv), and of DPOTrainer adapters, which DDP keeps whole on each card. */
static vp_status refuse_trl_ways(const vp_hf_request *q, vp_err *err)
{
    bool        is_adapted = vp_hf_has_adapters(q) || vp_hf_is_quantised(q);
    bool        is_sft     = !vp_hf_is_dpo(q);
    const char *known      = !is_sft                 ? is_adapted ? "ddp" : ""
                             : vp_hf_is_quantised(q) ? "ddp"
                             : is_adapted            ? "ddp fsdp2 zero2 zero3"
                                                     : "ddp fsdp2 zero1 zero2 zero3";

    if ((vp_hf_is_reward(q) || vp_hf_is_grpo(q)) && vp_hf_is_shared(q))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--method %s --parallel %s was not recorded; on one card it was", q->trainer,
                       q->parallel);
    if (!vp_hf_is_trl(q) || !vp_hf_is_shared(q))
        return VP_OK;
    if (is_sft && q->offload && strcmp(q->offload, "params") == 0)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--trainer trl --offload params: on several cards SFTTrainer is not known "
                       "with weights in host memory; --trainer hf knows that, with whole logits, "
                       "which take more");
    if (has_word(known, q->parallel, strlen(q->parallel)))
        return VP_OK;
    if (!is_sft)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--trainer trl --parallel %s: on several cards DPOTrainer is known with "
                       "adapters by ddp; of others: vplan dryrun --world %lld -- COMMAND, which "
                       "runs your own script",
                       q->parallel, (long long)q->world);
    return VP_FAIL(err, VP_ERR_INPUT,
                   "--trainer trl --parallel %s: on several cards SFTTrainer%s is known by %s; "
                   "--trainer hf knows more ways, with whole logits, which take more, and plan "
                   "--trainer trl takes those in its interval",
                   q->parallel, is_adapted ? " with adapters" : "", known);
}

/* FSDP2 casts what a layer is given before its forward pass, but not where the layer is recomputed (torch 2.11,
 * FSDPState._pre_forward): checkpoints then hold other formats. Most families give their rotary positions in the format of the hidden
 * states; these leave them in fp32. */
static vp_status refuse_recomputed(const vp_model *model, const vp_hf_request *q, vp_err *err)
{
    static const char *const wide[]   = {"olmo", "olmo2", "olmo3", "ernie4_5"};
    bool                     by_fsdp2 = vp_hf_is_shared(q) && strcmp(q->parallel, "fsdp2") == 0;
    bool                     casts    = strcmp(vp_hf_computed_precision(q), q->precision) != 0;

    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (by_fsdp2 && casts && strcmp(q->recompute, "none") != 0 &&
            strcmp(model->family, wide[i]) == 0)
            return VP_FAIL(err, VP_ERR_INPUT,
                           "--recompute %s --parallel fsdp2 with --precision %s does not run: "
                           "FSDP2 casts %s's rotary positions, which are fp32, before a layer's "
                           "forward pass, but not where it is recomputed (CheckpointError in torch "
                           "2.11); --parallel fsdp runs",
                           q->recompute, q->precision, model->family);
    return VP_OK;
}

/* What several cards do with weights that a text never runs: DDP waits for their gradients unless it is to look for them, as Trainer has it do
 * beside adapters; FSDP and ZeRO cut them. */
static vp_status refuse_tower(const vp_model *model, const vp_hf_request *q, vp_err *err)
{
    bool looks = strcmp(q->trainer, "hf") == 0 && vp_hf_has_adapters(q) && vp_hf_is_shared(q) &&
                 strcmp(q->parallel, "ddp") == 0;

    if (q->images && vp_hf_is_shared(q))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--images with --parallel %s was not recorded; on one GPU it was. For "
                       "yours: vplan dryrun --world %lld -- COMMAND",
                       q->parallel, (long long)q->world);
    if (q->images && q->packed)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "--packing with --images does not run: SFTTrainer refuses to pack samples "
                       "with pictures (ValueError in TRL 1.16)");
    if (looks || !vp_hf_is_shared(q) || !vp_hf_has_tower(model))
        return VP_OK;
    return VP_FAIL(err, VP_ERR_INPUT,
                   "--parallel %s of %s was not recorded: its vision tower gets no gradients from "
                   "text; on one GPU it was. For yours: vplan dryrun --world %lld -- COMMAND",
                   q->parallel, model->family, (long long)q->world);
}

/* Adapters that are all matrices, all of which are stepped as such. */
static bool treats_adapters(const vp_hf_request *q)
{
    vp_optimizer_settings settings;
    vp_err                ignored = {0};

    if (!vp_hf_has_lora(q) || q->lora.is_dora || q->lora.tokens || vp_hf_saves_modules(q) ||
        vp_optimizer_settings_parse(q->optimizer, &settings, &ignored) != VP_OK)
        return false;
    return !settings.rank || strcmp(settings.targets, "all-linear") == 0;
}

static vp_status refuse_lost(const vp_hf_request *q, vp_err *err)
{
    if (q->syncs_each && vp_hf_is_shared(q) && vp_world_loses_each(q->parallel, q->offload))
        return VP_FAIL(
            err, VP_ERR_INPUT,
            "--sync-each-batch --parallel %s --offload %s trains on the last micro-batch "
            "alone: FSDP1 does not add up gradients in host memory; --parallel fsdp2 does",
            q->parallel, q->offload);
    return VP_OK;
}

/* Optimizers that treat matrices, or update in the backward pass. */
static vp_status refuse_optimizers(const vp_hf_request *q, vp_err *err)
{
    bool fused      = vp_optimizer_step_in_backward(q->optimizer);
    bool moves      = vp_optimizer_step_moves(q->optimizer);
    int  n          = (int)vp_optimizer_name_length(q->optimizer);
    const char *not = vp_hf_is_shared(q) ? "on several cards"
                      : vp_hf_has_adapters(q) && (fused || !treats_adapters(q))
                          ? "of these adapters"
                      : vp_hf_freezes(q)         ? "of a model of which parts are frozen"
                      : fused && vp_hf_is_trl(q) ? "by TRL's trainers"
                      : (fused || moves) && q->resident && strcmp(q->resident, "none") != 0
                          ? "beside something that stays"
                      : fused && strncmp(q->precision, "fp16", 4) == 0 ? "in fp16"
                                                                       : NULL;

    if (!vp_optimizer_step_asks_matrices(q->optimizer) && !fused)
        return VP_OK;
    if (not )
        return VP_FAIL(err, VP_ERR_INPUT,
                       "optimizer %.*s %s was not recorded; of a whole model on one card it was%s",
                       n, q->optimizer, not,
                       fused || !vp_hf_has_adapters(q) || vp_hf_is_shared(q)
                           ? ""
                           : ", and of LoRA's adapters alone with targets=all-linear");
    if (strcmp(q->optimizer, "muon") == 0 && !vp_hf_is_plain(q))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "optimizer muon: transformers' Trainer has none; a plain loop's is known: "
                       "--trainer torch");
    if (fused && q->accumulation > 1 && vp_optimizer_step_asks_matrices(q->optimizer))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "optimizer %.*s steps in the backward pass: Trainer refuses to accumulate "
                       "beside it",
                       n, q->optimizer);
    return VP_OK;
}

/* Convolutions of BEiT and Whisper take pictures and sounds as they come (transformers 5.17), and Trainer hands them on in fp32, as processors make them. */
static vp_status refuse_wide_signals(const vp_model *model, const vp_hf_request *q, vp_err *err)
{
    bool narrow = strcmp(q->precision, "bf16") == 0 || strcmp(q->precision, "fp16") == 0;

    bool sees = strcmp(model->family, "beit") == 0;

    if (!narrow || vp_hf_is_plain(q) || !(sees || strcmp(model->family, "whisper") == 0))
        return VP_OK;
    return VP_FAIL(err, VP_ERR_INPUT,
                   "--precision %s: Trainer hands %s on in fp32, which %s with weights in "
                   "%s does not take (RuntimeError: Input type (float) and bias type should be the "
                   "same); --precision %s-amp or %s-mixed does",
                   q->precision, sees ? "pictures" : "sounds", model->family, q->precision,
                   q->precision, q->precision);
}

/* T5's layers look whether what is fp16 overflows, and clamp it (transformers 5.17, modeling_t5.py); autocast's values between layers are
 * fp32. */
static vp_status refuse_clamped(const vp_model *model, const vp_hf_request *q, vp_err *err)
{
    bool is_fp16 = strcmp(q->precision, "fp16") == 0 || strcmp(q->precision, "fp16-amp") == 0;

    if (!is_fp16 || (strcmp(model->family, "t5") != 0 && strcmp(model->family, "mt5") != 0))
        return VP_OK;
    return VP_FAIL(err, VP_ERR_INPUT,
                   "--precision %s: layers of %s with weights in fp16 clamp what overflows, which "
                   "takes 2 to 3 %% more and was not recorded; fp16-mixed was, and bf16",
                   q->precision, model->family);
}

/* Weights that are published in few bits by another method than bitsandbytes' (transformers 5.17, quantizers/auto.py:
 * merge_quantization_configs). */
static vp_status refuse_packed_twice(const vp_model *model, const vp_hf_request *q, vp_err *err)
{
    const char *method =
        json_string_value(vp_model_field(model, "quantization_config.quant_method"));

    if (!method || !vp_hf_is_quantised(q) || strncmp(method, "bitsandbytes", 12) == 0)
        return VP_OK;
    return VP_FAIL_AT(
        err, VP_ERR_INPUT, model->name, 0, "quantization_config",
        "--load %s does not run over weights that are published in %s: transformers "
        "takes no BitsAndBytesConfig beside that (ValueError in 5.17); over a copy in "
        "16 bits, whose config has none, it does%s",
        q->load, method,
        strcmp(method, "mxfp4") == 0 ? ", and --lora alone does, over Mxfp4Config(dequantize=True)"
                                     : "");
}

vp_status vp_hf_check_ways(const vp_model *model, const vp_hf_request *q, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(refuse_packed_twice(model, q, err));
    VP_TRY(refuse_adapters(q, err));
    VP_TRY(refuse_trl_ways(q, err));
    VP_TRY(refuse_recomputed(model, q, err));
    VP_TRY(refuse_tower(model, q, err));
    VP_TRY(refuse_wide_signals(model, q, err));
    VP_TRY(refuse_clamped(model, q, err));
    VP_TRY(refuse_lost(q, err));
    VP_TRY(refuse_optimizers(q, err));
out:
    return st;
}
