#include "trainers/fit/language.h"

#include "trainers/fit/by_unsloth.h"

#include <string.h>

#define EVERY "every:2|every:3|every:4"

/* Words that converge alike: the same rule with its states kept otherwise; weights that are updated in
 * fp32. */
#define ADAMS "adamw_torch_fused|adamw_torch|adamw_8bit|paged_adamw_8bit"

#define ALLOCATORS "default|expandable"

#define PARALLELS "ddp|fsdp2|fsdp|zero1|zero2|zero3"

#define TRAINER_AXES(optimizers, allocators, ...) \
    { \
        {VP_SETTING_RECOMPUTE, VP_AXIS_FREE, "none|full|" EVERY}, \
            {VP_SETTING_ALLOCATOR, VP_AXIS_FREE, allocators}, \
            {VP_SETTING_OPTIMIZER, VP_AXIS_ALIKE, optimizers}, \
            {VP_SETTING_PRECISION, VP_AXIS_ALIKE, "bf16-mixed|fp32"}, \
            {VP_SETTING_ATTENTION, VP_AXIS_ALIKE, "sdpa|flash2|eager"}, \
            {VP_SETTING_LOSS, VP_AXIS_FIXED, "full|chunked|liger|liger-all"}, \
            {VP_SETTING_PARALLEL, VP_AXIS_FREE, PARALLELS}, \
            {VP_SETTING_GRADIENT_SYNC, VP_AXIS_FREE, "step|each"}, __VA_ARGS__ \
    }

static const vp_axis trainer_axes[] = TRAINER_AXES(ADAMS, ALLOCATORS, );

/* Its fine-tuning does not clip. */
static const vp_axis litgpt_axes[] =
    TRAINER_AXES(ADAMS, ALLOCATORS, {VP_SETTING_CLIP_NORM, VP_AXIS_FIXED, "0.0"});

/* Importing Unsloth says so. */
static const vp_axis unsloth_axes[] = TRAINER_AXES(ADAMS, "expandable", );

/* Under autocast Lightning does not clip what a fused optimizer unscales. */
static const vp_axis lightning_axes[] =
    TRAINER_AXES("adamw_torch|adamw_torch_fused|adamw_8bit|paged_adamw_8bit", ALLOCATORS, );

/* Transformer Engine's attention is told as flash2. */
static const vp_axis megatron_axes[] = {
    {VP_SETTING_RECOMPUTE, VP_AXIS_FREE, "none|full"},
    {VP_SETTING_ALLOCATOR, VP_AXIS_FREE, ALLOCATORS},
    {VP_SETTING_OPTIMIZER, VP_AXIS_ALIKE, "adamw_torch_fused|adamw_torch"},
    {VP_SETTING_PRECISION, VP_AXIS_ALIKE, "bf16-mixed|fp32"},
    {VP_SETTING_ATTENTION, VP_AXIS_ALIKE, "flash2|eager"},
    {VP_SETTING_LOSS, VP_AXIS_FIXED, "full"},
    {VP_SETTING_PARALLEL, VP_AXIS_FREE, "ddp|zero1"},
};

static const vp_axis torch_axes[] = {
    {VP_SETTING_RECOMPUTE, VP_AXIS_FREE, "none|full|" EVERY},
    {VP_SETTING_ALLOCATOR, VP_AXIS_FREE, ALLOCATORS},
    {VP_SETTING_OPTIMIZER, VP_AXIS_ALIKE, "adamw_torch_fused|adamw_torch"},
    {VP_SETTING_PRECISION, VP_AXIS_ALIKE, "bf16-mixed|fp32"},
    {VP_SETTING_ATTENTION, VP_AXIS_ALIKE, "sdpa|eager"},
    {VP_SETTING_LOSS, VP_AXIS_FIXED, "full"},
    {VP_SETTING_CLIP_NORM, VP_AXIS_FIXED, "0.0"}, /* the loop that was recorded does not clip */
    {VP_SETTING_PARALLEL, VP_AXIS_FREE, PARALLELS},
};

#define AXES(list) .axes = list, .n_axes = sizeof list / sizeof *list

#define RECORDED   VP_LANGUAGE_RECORDED, VP_LANGUAGE_RECORDED, VP_LANGUAGE_RECORDED_BASIS
#define NOT_PLAYED "no run of it was compared with this: a guess"
#define WIDENED    0.10, 0.15, NOT_PLAYED
/* tests/emit/end_to_end.csv */
#define PLAYED     VP_LANGUAGE_RECORDED, VP_LANGUAGE_RECORDED, PLAYED_BASIS
#define PLAYED_LOW 0.05, VP_LANGUAGE_RECORDED, PLAYED_BASIS
#define PLAYED_BASIS \
    "15 runs of Accelerate's and Lightning's loops were within 0.2 % of a plain loop's bytes, one " \
    "of Lightning's 3.2 % below"

#define ITS_STEP(trainer) \
    "the training step of " trainer " itself was not recorded: bytes are those of transformers' " \
    "Trainer, with a wider interval"
#define ITS_LOOP(trainer) \
    "your loop is taken to be a plain one over transformers' modules, as " trainer \
    " leaves it to you"

#define ITS_MODULES(trainer) \
    trainer \
        "'s modules are its own and not modelled: bytes are assumed to be near those of a plain " \
        "loop over transformers' modules, with a wide interval"

/* MODEL_TYPE_TO_APPLY_LIGER_FN of Liger 0.8.5, and of LLaMA-Factory its own list (model_utils/liger_kernel.py). */
#define LIGERS \
    "deepseek_v2 deepseek_v3 exaone4 falcon_h1 gemma gemma2 gemma3 gemma3_text glm4 gpt_oss granite llama " \
    "llama4_text ministral mistral mixtral nemotron olmo2 olmo3 phi3 qwen2 qwen3 qwen3_moe " \
    "qwen3_next smollm3"
#define LIGERS_OF_LLAMAFACTORY \
    "gemma gemma2 gemma3 gemma3_text glm glm4 gpt_oss granite llama mistral mixtral olmo2 phi3 qwen2 qwen3 " \
    "qwen3_moe qwen3_next"

/* tests/golden/trainers/unsloth_runs.csv */
static const vp_nearer_step unsloths_step = {
    .bytes = vp_fit_by_unsloth,
    .low   = 0.20,
    .high  = 0.10,
    .basis = "dry runs of Unsloth's own on one card took 12 % less to 6 % more",
    .why   = "Unsloth's own step was not recorded: bytes are those of SFTTrainer's, which has no "
             "whole logits either, less the checkpoints that Unsloth moves to the host"};

/* Who prepares quantised weights: the train.py that is written for hf does, SFTTrainer does not. LLaMA-Factory (model_utils/checkpointing.py:
 * prepare_model_for_training), ms-swift (trainers/mixin.py) and Unsloth (unsloth_zoo/training_utils.py) leave what is not packed in 16
 * bits unless told; axolotl (loaders/model.py: _configure_embedding_dtypes) makes it fp32 and 16 bits again. A loop is its user's. */
static const vp_language languages[] = {
    {"hf", "hf", RECORDED, NULL, NULL, AXES(trainer_axes), .liger_families = LIGERS},
    {"trl", "hf", WIDENED, ITS_STEP("SFTTrainer"), "trl", AXES(trainer_axes),
     .prepare = VP_HF_PREPARE_OFF, .liger_families = LIGERS, .next_token = true},
    {"torch", "torch", RECORDED, NULL, NULL, AXES(torch_axes), .first_by_files = true},
    {"axolotl", "hf", WIDENED, ITS_STEP("axolotl"), NULL, AXES(trainer_axes),
     .prepare = VP_HF_PREPARE_OFF, .liger_families = LIGERS, .next_token = true},
    {"llamafactory", "hf", WIDENED, ITS_STEP("LLaMA-Factory"), NULL, AXES(trainer_axes),
     .prepare = VP_HF_PREPARE_OFF, .liger_families = LIGERS_OF_LLAMAFACTORY, .next_token = true},
    {"ms-swift", "hf", WIDENED, ITS_STEP("ms-swift"), NULL, AXES(trainer_axes),
     .prepare = VP_HF_PREPARE_OFF, .liger_families = LIGERS, .next_token = true},
    {"accelerate", "torch", PLAYED, ITS_LOOP("accelerate"), NULL, AXES(trainer_axes)},
    {"deepspeed", "torch", WIDENED, ITS_LOOP("DeepSpeed"), NULL, AXES(trainer_axes),
     .wraps = "at stage 0 DeepSpeed's engine keeps 16-bit weights and gradients and fp32 copies of "
              "the weights: such a step was not recorded. Known are its stages 1 to 3 on several "
              "cards, --world N, and --precision fp32. For yours: vplan dryrun -- COMMAND, which "
              "runs your own script"},
    {"lightning", "torch", PLAYED_LOW, ITS_LOOP("Lightning"), NULL, AXES(lightning_axes)},
    {"torchtitan", "torch", 0.15, 0.15,
     "4 steps of torchtitan 0.2's Llama model in a loop of ours, on one card, without its trainer and "
     "with flash attention, took as much to 6 % less",
     ITS_MODULES("torchtitan"), NULL, AXES(trainer_axes), .first_by_files = true,
     .is_foreign = true, .families = "llama qwen3", .next_token = true},
    {"litgpt", "torch", 0.10, 0.35,
     "6 steps of litgpt 0.5's modules in a loop of ours, on one card, took 2 % less to 20 % more",
     ITS_MODULES("litgpt"), NULL, AXES(litgpt_axes), .is_foreign = true,
     .families   = "llama mistral gemma gemma2 gpt_neox phi3 qwen2 qwen3 falcon olmo2",
     .next_token = true},
    {"torchtune", "torch", 0.40, 0.40, NOT_PLAYED, ITS_MODULES("torchtune"), NULL,
     AXES(trainer_axes), .is_foreign = true, .families = "llama mistral gemma gemma2 phi3 qwen2",
     .next_token = true},
    {"megatron", "torch", 0.60, 0.50, NOT_PLAYED, ITS_MODULES("Megatron"), NULL,
     AXES(megatron_axes), .first_by_files = true, .is_foreign = true},
    {"unsloth", "hf", 0.70, 0.15, NOT_PLAYED,
     "Unsloth's kernels and checkpoints, which take less, are not modelled: bytes are assumed to "
     "be no more than those of transformers' Trainer, with a wide interval; vplan dryrun -- "
     "COMMAND runs yours",
     NULL, AXES(unsloth_axes), .nearer = &unsloths_step, .prepare = VP_HF_PREPARE_OFF,
     .is_foreign = true,
     .families   = "llama mistral gemma gemma2 qwen2 qwen3 qwen3_moe cohere granite"},
};

vp_status vp_language_of(const vp_target *target, const vp_language **out, vp_err *err)
{
    for (size_t i = 0; i < sizeof languages / sizeof *languages; i++) {
        *out = &languages[i];
        if (strcmp(languages[i].target, target->name) != 0)
            continue;
        if (!languages[i].step_of)
            return VP_FAIL(
                err, VP_ERR_INPUT,
                "%s: %s, whose bytes vplan does not model; it does not answer with those "
                "of transformers' modules. For yours: vplan dryrun -- COMMAND, which runs your own "
                "script",
                target->name, languages[i].why);
        return VP_OK;
    }
    *out = NULL;
    return VP_FAIL(err, VP_ERR_INPUT, "%s: nothing is known of its training step", target->name);
}

vp_status vp_language_trains(const vp_language *l, const vp_model *model, const char *option,
                             vp_err *err)
{
    if (l->next_token && model->head != VP_HEAD_NEXT_TOKEN)
        return VP_FAIL(
            err, VP_ERR_INPUT,
            "%s trains models that predict the next token, and %s does not; %s hf trains "
            "it",
            l->target, model->class_name, option);
    return VP_OK;
}

bool vp_language_lists(const char *list, const char *word)
{
    for (const char *p = list; p && *p; p += strcspn(p, " "), p += *p == ' ')
        if (strcspn(p, " ") == strlen(word) && strncmp(p, word, strlen(word)) == 0)
            return true;
    return false;
}

const char *vp_language_liger(const vp_language *l, const char *family)
{
    return l->liger_families && (!family || vp_language_lists(l->liger_families, family))
               ? "liger-all"
               : NULL;
}

bool vp_language_is_liger(const char *loss)
{
    return loss && (strcmp(loss, "liger") == 0 || strcmp(loss, "liger-all") == 0);
}
