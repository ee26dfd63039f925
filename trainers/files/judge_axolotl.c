/* trainers/files/judge_axolotl.c: what axolotl refuses before it loads anything and no rule can say: of more than two keys together,
 * of shapes, and of what is gone with FSDP1. Read in 0.19 to 0.21 (axolotl/utils/schemas/). */
#include "base/options.h"
#include "trainers/files/check_internal.h"

#include <stdlib.h>
#include <string.h>

#define MOST            4 /* conditions of a row */
#define QUANTISED_PAIRS "axolotl refuses pairs over quantised weights under FSDP2"
#define ONE_OF(other)   "and " other " exclude each other: axolotl refuses both"
#define PAIRS           "=dpo|kto|orpo|ipo"
#define EVALUATES       "asks for an evaluation of no samples: axolotl refuses it beside val_set_size: 0"
#define ENDLESS         "has no length that axolotl could count: it refuses it without max_steps"
#define TRAINED_WHOLE   "on is refused by axolotl beside "
#define MISTRALS        "is refused by axolotl beside tokenizer_use_mistral_common"
#define NO_STRANGERS    "is refused by axolotl beside trust_remote_code"
#define EIGHT_BITS      "=adamw_8bit|adamw_bnb_8bit"
#define NOT_BY_FSDP2    "does not go with FSDP2", "optimizer: adamw_torch_8bit"
#define NO_FSDP1 \
    "is of FSDP's first version, which axolotl has no more from 0.20 on: it refuses the file"

/* All conditions of a row hold; the finding is at the first one's key, which somebody wrote. */
static const struct {
    struct {
        const char *key, *is; /* as in vp_rule */
    } when[MOST];
    const char *message, *instead, *since, *until;
    bool        of_several; /* cards */
    bool        aged; /* older versions take it: a warning where nobody says which one reads it */
} refused[] = {
    /* check_fsdp2_base_model_quant_rl() */
    {{{"load_in_4bit", "=true"}, {"rl", PAIRS}, {"fsdp_config", "set"}},
     QUANTISED_PAIRS,
     "deepspeed"},
    {{{"load_in_8bit", "=true"}, {"rl", PAIRS}, {"fsdp_config", "set"}},
     QUANTISED_PAIRS,
     "deepspeed"},
    /* check_rl_config_gradient_checkpointing() */
    {{{"gradient_checkpointing_kwargs.use_reentrant", "=true"},
      {"rl", "set"},
      {"adapter", "=qlora"}},
     "axolotl refuses it for pairs beside qlora on several cards",
     "use_reentrant: false",
     .of_several = true},
    /* check_fsdp_version() */
    {{{"fsdp", "set"}}, NO_FSDP1, "fsdp_version: 2 and fsdp_config", "0.20", .aged = true},
    {{{"fsdp_version", "=1"}}, NO_FSDP1, "fsdp_version: 2", "0.20", .aged = true},
    {{{"fsdp_config.fsdp_version", "=1"}}, NO_FSDP1, "fsdp_version: 2", "0.20", .aged = true},
    {{{"fsdp_config.sharding_strategy", "set"}},
     NO_FSDP1,
     "reshard_after_forward",
     "0.20",
     .aged = true},
    {{{"fsdp_config.fsdp_sharding_strategy", "set"}},
     NO_FSDP1,
     "reshard_after_forward",
     "0.20",
     .aged = true},
    {{{"fsdp_config.forward_prefetch", "set"}}, NO_FSDP1, NULL, "0.20", .aged = true},
    {{{"fsdp_config.fsdp_forward_prefetch", "set"}}, NO_FSDP1, NULL, "0.20", .aged = true},
    {{{"deepspeed", "set"}, {"fsdp", "set"}}, ONE_OF("fsdp"), "one of them", NULL, "0.20"},
    /* check_fsdp_offload_w_8bit_optimizer(), check_fsdp2_w_8bit_optimizer() */
    {{{"optimizer", "~8bit"},
      {"fsdp_config.offload_params", "=true"},
      {"fsdp_version", "!=2"},
      {"fsdp_config.fsdp_version", "!=2"}},
     "in 8 bits is refused by axolotl beside FSDP's offload",
     "optimizer: adamw_torch_fused",
     NULL,
     "0.20"},
    {{{"optimizer", EIGHT_BITS}, {"fsdp_config", "set"}, {"fsdp_version", "=2"}}, NOT_BY_FSDP2},
    {{{"optimizer", EIGHT_BITS}, {"fsdp", "set"}, {"fsdp_config", "unset"}, {"fsdp_version", "=2"}},
     NOT_BY_FSDP2},
    {{{"optimizer", EIGHT_BITS}, {"fsdp_config.fsdp_version", "=2"}, {"fsdp_version", "unset"}},
     NOT_BY_FSDP2},
    {{{"optimizer", EIGHT_BITS},
      {"fsdp_config", "set"},
      {"fsdp", "unset"},
      {"fsdp_version", "unset"}},
     NOT_BY_FSDP2,
     "0.20"},
    /* check_fsdp2_cpu_ram_efficient_loading_w_4bit() */
    {{{"fsdp_config.cpu_ram_efficient_loading", "=true"},
      {"load_in_4bit", "=true"},
      {"fsdp_version", "=2"}},
     "loads weights in 4 bits on the first card alone, and axolotl refuses it beside FSDP2",
     "cpu_ram_efficient_loading: false",
     "0.19",
     "0.20"},
    {{{"fsdp_config.cpu_ram_efficient_loading", "=true"},
      {"load_in_4bit", "=true"},
      {"qlora_sharded_model_loading", "=false"},
      {"qlora_sharded_model_loading", "set"}},
     "loads weights in 4 bits on the first card alone, and axolotl refuses it",
     "qlora_sharded_model_loading: true",
     "0.20"},
    /* check_saves() and check_evals() */
    {{{"save_steps", "set"}, {"save_strategy", "=epoch|no|best"}},
     "counts only with save_strategy: steps: axolotl refuses both",
     "save_strategy: steps"},
    {{{"save_steps", "set"}, {"saves_per_epoch", "set"}}, ONE_OF("saves_per_epoch"), "one of them"},
    {{{"eval_steps", ">0"}, {"eval_strategy", "=epoch|no"}},
     "counts only with eval_strategy: steps: axolotl refuses both",
     "eval_strategy: steps"},
    {{{"eval_steps", ">0"}, {"evals_per_epoch", ">0"}}, ONE_OF("evals_per_epoch"), "one of them"},
    {{{"evals_per_epoch", ">0"}, {"eval_strategy", "=epoch|no"}},
     "counts only with eval_strategy: steps, or none: axolotl refuses both",
     "eval_strategy: steps"},
    {{{"eval_steps", ">0"},
      {"val_set_size", "=0"},
      {"val_set_size", "set"},
      {"test_datasets", "unset"}},
     EVALUATES,
     "val_set_size: 0.05"},
    {{{"eval_strategy", "=steps|epoch"},
      {"val_set_size", "=0"},
      {"val_set_size", "set"},
      {"test_datasets", "unset"}},
     EVALUATES,
     "val_set_size: 0.05"},
    {{{"test_datasets", "set"}, {"val_set_size", ">0"}}, ONE_OF("val_set_size"), "val_set_size: 0"},
    {{{"early_stopping_patience", ">0"}, {"save_steps", "unset"}},
     "wants save_steps and eval_steps: axolotl refuses it without",
     "save_steps, a multiple of eval_steps"},
    {{{"early_stopping_patience", ">0"}, {"eval_steps", "unset"}, {"save_steps", "set"}},
     "wants save_steps and eval_steps: axolotl refuses it without",
     "eval_steps, which divides save_steps"},
    {{{"save_strategy", "=best"}, {"metric_for_best_model", "unset"}},
     "best is refused by axolotl without metric_for_best_model",
     "metric_for_best_model: eval_loss"},
    {{{"eval_table_size", ">0"}, {"sample_packing", "=true"}, {"eval_sample_packing", "!=false"}},
     "is refused by axolotl where evaluations are packed",
     "eval_sample_packing: false"},
    /* data without an end */
    {{{"pretraining_dataset", "set"}, {"max_steps", "unset"}}, ENDLESS, "max_steps"},
    {{{"pretraining_dataset", "set"}, {"val_set_size", ">0"}},
     ONE_OF("val_set_size"),
     "test_datasets"},
    {{{"streaming", "=true"}, {"max_steps", "unset"}}, ENDLESS, "max_steps"},
    {{{"streaming", "=true"}, {"val_set_size", ">0"}}, ONE_OF("val_set_size"), "test_datasets"},
    /* pairs and rewards: check_sample_packing_w_rl(), check_kto_config(), check_dpo(), check_simpo_warmup() */
    {{{"sample_packing", "=true"}, {"rl", "set"}},
     "is refused by axolotl beside rl",
     "sample_packing: false"},
    {{{"rl", "=kto"}, {"remove_unused_columns", "!=false"}},
     "kto wants remove_unused_columns: false: axolotl refuses it without",
     "remove_unused_columns: false"},
    {{{"dpo_loss_type", "set"}, {"rl", "!=dpo"}},
     "is of rl: dpo alone: axolotl refuses it",
     "rl: dpo"},
    {{{"warmup_ratio", ">0"}, {"rl", "=simpo"}},
     "is refused by axolotl beside simpo",
     "warmup_steps"},
    /* kernels and adapters */
    {{{"lora_mlp_kernel", "=true"}, {"adapter", "=lora"}, {"load_in_8bit", "=true"}},
     TRAINED_WHOLE "weights in 8 bits",
     "lora_mlp_kernel: false"},
    {{{"lora_qkv_kernel", "=true"}, {"adapter", "=lora"}, {"load_in_8bit", "=true"}},
     TRAINED_WHOLE "weights in 8 bits",
     "lora_qkv_kernel: false"},
    {{{"lora_o_kernel", "=true"}, {"adapter", "=lora"}, {"load_in_8bit", "=true"}},
     TRAINED_WHOLE "weights in 8 bits",
     "lora_o_kernel: false"},
    {{{"unfrozen_parameters", "set"}, {"gradient_checkpointing_kwargs.use_reentrant", "=true"}},
     "beside use_reentrant: true leaves parameters without a gradient: axolotl refuses it",
     "use_reentrant: false"},
    {{{"lr_groups", "set"}, {"loraplus_lr_ratio", ">0"}},
     ONE_OF("loraplus_lr_ratio"),
     "one of them"},
    {{{"optimizer", "=muon"}, {"deepspeed", "set"}},
     "muon is refused by axolotl under DeepSpeed",
     "fsdp_version: 2 and fsdp_config"},
    {{{"optimizer", "=muon"},
      {"fsdp", "set"},
      {"fsdp_version", "!=2"},
      {"fsdp_config.fsdp_version", "!=2"}},
     "muon is refused by axolotl under FSDP's first version",
     "fsdp_version: 2 and fsdp_config",
     NULL,
     "0.20"},
    {{{"optimizer", "=adamw_8bit|adamw_bnb_8bit|paged_adamw_8bit"}, {"tensor_parallel_size", ">1"}},
     "in 8 bits is refused by axolotl beside tensor_parallel_size",
     "optimizer: adamw_torch_fused"},
    {{{"deepcompile", "=true"}, {"deepspeed", "unset"}},
     "is of DeepSpeed alone: axolotl refuses it",
     "deepspeed"},
    {{{"max_memory", "set"}, {"gpu_memory_limit", "set"}},
     ONE_OF("gpu_memory_limit"),
     "one of them"},
    {{{"model_quantization_config", "set"}, {"load_in_4bit", "=true"}},
     ONE_OF("load_in_4bit"),
     "one of them"},
    {{{"model_quantization_config", "set"}, {"load_in_8bit", "=true"}},
     ONE_OF("load_in_8bit"),
     "one of them"},
    {{{"attn_implementation", "set"}, {"flash_attention", "=true"}},
     ONE_OF("flash_attention"),
     "attn_implementation alone"},
    {{{"attn_implementation", "set"}, {"sdp_attention", "=true"}},
     ONE_OF("sdp_attention"),
     "attn_implementation alone"},
    {{{"attn_implementation", "set"}, {"flex_attention", "=true"}},
     ONE_OF("flex_attention"),
     "attn_implementation alone"},
    {{{"attn_implementation", "set"}, {"eager_attention", "=true"}},
     ONE_OF("eager_attention"),
     "attn_implementation alone"},
    {{{"attn_implementation", "set"}, {"xformers_attention", "=true"}},
     ONE_OF("xformers_attention"),
     "attn_implementation alone"},
    /* check_lora_kernels_trust_remote_code() */
    {{{"lora_mlp_kernel", "=true"}, {"trust_remote_code", "=true"}, {"base_model", "!~diffusion"}},
     NO_STRANGERS,
     "lora_mlp_kernel: false"},
    {{{"lora_qkv_kernel", "=true"}, {"trust_remote_code", "=true"}, {"base_model", "!~diffusion"}},
     NO_STRANGERS,
     "lora_qkv_kernel: false"},
    {{{"lora_o_kernel", "=true"}, {"trust_remote_code", "=true"}, {"base_model", "!~diffusion"}},
     NO_STRANGERS,
     "lora_o_kernel: false"},
    /* check_falcon_fsdp(), check_mpt_checkpointing() */
    {{{"fsdp_config", "set"}, {"base_model", "~falcon"}},
     "is refused by axolotl for Falcon's models",
     "deepspeed"},
    {{{"gradient_checkpointing", "=true"}, {"base_model", "~mpt"}},
     "is refused by axolotl for MPT's models",
     "gradient_checkpointing: false"},
    /* EBFTValidationMixin */
    {{{"rl", "=ebft"}, {"ebft", "unset"}},
     "ebft is refused by axolotl without a section ebft",
     "ebft: {mode: structured}",
     "0.16"},
    {{{"torch_compile", "=true"},
      {"rl", "=ebft"},
      {"gradient_checkpointing", "=true"},
      {"ebft.mode", "=strided"}},
     "is refused by axolotl beside gradient_checkpointing where ebft is strided",
     "torch_compile: false",
     "0.16"},
    {{{"activation_offloading", "=true"},
      {"rl", "=ebft"},
      {"attn_implementation", "=flex_attention"},
      {"ebft.mode", "=strided"}},
     "is refused by axolotl beside flex_attention where ebft is strided",
     "activation_offloading: false",
     "0.16"},
    {{{"neftune_noise_alpha", "=0"}}, "0 is refused by axolotl: more than 0, or nothing", NULL},
    {{{"chat_template", "=jinja"}, {"chat_template_jinja", "unset"}},
     "jinja is refused by axolotl without chat_template_jinja",
     "chat_template_jinja"},
    {{{"chat_template", "set"}, {"tokenizer_use_mistral_common", "=true"}}, MISTRALS, NULL},
    {{{"special_tokens", "set"}, {"tokenizer_use_mistral_common", "=true"}}, MISTRALS, NULL},
    {{{"tokens", "set"}, {"tokenizer_use_mistral_common", "=true"}}, MISTRALS, NULL},
    {{{"batch_size", "set"},
      {"micro_batch_size", "unset"},
      {"gradient_accumulation_steps", "unset"}},
     "alone is refused by axolotl",
     "micro_batch_size with gradient_accumulation_steps"},
};

/* What its model of settings takes in one shape alone. */
static const struct {
    const char   *key;
    vp_value_kind kind;
    const char   *shape;
} shapes[] = {
    {"tokens", VP_VALUE_LIST, "list"},
    {"plugins", VP_VALUE_LIST, "list"},
    {"datasets", VP_VALUE_LIST, "list"},
    {"test_datasets", VP_VALUE_LIST, "list"},
    {"unfrozen_parameters", VP_VALUE_LIST, "list"},
    {"lora_modules_to_save", VP_VALUE_LIST, "list"},
    {"special_tokens", VP_VALUE_MAP, "map"},
    {"fsdp_config", VP_VALUE_MAP, "map"},
};

#define PLUGIN(name) "axolotl.integrations." name
#define BACKENDS \
    "eager flash_attention_2 flash_attention_3 flash_attention_4 flash_attention_torch flex_attention fp8 sage sdpa " \
    "varlen xformers"

static bool holds(const vp_checked *c, const vp_checked_file *file, size_t i)
{
    const char *world = c->settings.value[VP_SETTING_WORLD];

    if (!vp_check_holds(c, file, refused[i].when[0].key, "set"))
        return false;
    for (int k = 0; k < MOST && refused[i].when[k].key; k++)
        if (!vp_check_holds(c, file, refused[i].when[k].key, refused[i].when[k].is))
            return false;
    return !refused[i].of_several || (world && strcmp(world, "1") != 0);
}

static void judge_shapes(vp_checked *c, const vp_checked_file *file)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const vp_value *v = vp_value_at(file->doc->root, shapes[i].key);
        if (v && v->kind != VP_VALUE_NULL && v->kind != shapes[i].kind &&
            !(v->kind == VP_VALUE_BOOL && !v->boolean))
            vp_find(c, file, VP_ERROR, v, shapes[i].key, NULL, "is no %s: axolotl refuses it",
                    shapes[i].shape);
    }
}

/* A data set's type of other versions. */
static void judge_data(vp_checked *c, const vp_checked_file *file)
{
    const vp_value *sets = vp_value_at(file->doc->root, "datasets");

    for (const vp_value *v = sets && sets->kind == VP_VALUE_LIST ? sets->first : NULL; v;
         v                 = v->next) {
        const vp_value *type = v->kind == VP_VALUE_MAP ? vp_value_member(v, "type") : NULL;
        if (type && type->kind == VP_VALUE_STRING && strncmp(type->text, "sharegpt", 8) == 0)
            vp_find(c, file, VP_ERROR, type, "datasets.type", "type: chat_template",
                    "%.40s is gone: axolotl refuses it", type->text);
    }
}

static bool is_written(const vp_checked *c, const char *key)
{
    bool is = false;

    for (int f = 0; f < c->n_files && !is; f++) {
        const vp_value *v = c->files[f].doc ? vp_value_at(c->files[f].doc->root, key) : NULL;
        is                = v && v->kind != VP_VALUE_NULL;
    }
    return is;
}

/* What has no default: forgotten in a file that says nearly all that people write; others are a part of one, or leave data and rate to
 * their user, as those that emit writes. */
static void judge_missing(vp_checked *c, const vp_checked_file *file)
{
    static const struct {
        const char *key, *or_key, *such_as;
    } needed[]                       = {{"base_model", NULL, NULL},
                                        {"datasets", "pretraining_dataset", NULL}, /* nemo_gym brings its own */
                                        {"learning_rate", NULL, "learning_rate: 0.0002"}};
    static const char *const usual[] = {"base_model", "datasets",         "learning_rate",
                                        "optimizer",  "micro_batch_size", "num_epochs",
                                        "output_dir", "lr_scheduler"};
    enum { N_NEEDED = sizeof needed / sizeof *needed, N_USUAL = sizeof usual / sizeof *usual };
    int n = 0;

    for (int i = 0; i < N_USUAL; i++)
        n += is_written(c, usual[i]);
    bool is_whole = n >= N_USUAL - 3;
    if (!is_whole && !is_written(c, "base_model"))
        return;
    for (int i = 0; i < N_NEEDED; i++) {
        const char *key = needed[i].key, *other = needed[i].or_key;
        if (!is_written(c, key) &&
            !(other && (is_written(c, other) || is_written(c, "nemo_gym_datasets"))))
            vp_find(c, file, is_whole ? VP_ERROR : VP_NOTE, vp_value_at(file->doc->root, key), key,
                    needed[i].such_as, "is missing: axolotl refuses a file without %s%s%s", key,
                    other ? " or " : "", other ? other : "");
    }
}

/* Keys that nothing is no value of. */
static void judge_nothing(vp_checked *c, const vp_checked_file *file)
{
    static const char *const keys[] = {"output_dir", "sequence_len", "num_epochs"};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const vp_value *v = vp_value_at(file->doc->root, keys[i]);
        if (v && v->kind == VP_VALUE_NULL)
            vp_find(c, file, VP_ERROR, v, keys[i], NULL,
                    "is empty: axolotl refuses it; a value, or leave the line out");
    }
}

static bool is_found(const vp_checked *c, const vp_checked_file *file, const vp_value *v)
{
    for (int64_t i = 0; i < c->n_findings; i++)
        if (c->findings[i].line == v->line && c->findings[i].severity == VP_ERROR &&
            strcmp(c->findings[i].key, v->key) == 0 && strcmp(c->findings[i].file, file->name) == 0)
            return true;
    return false;
}

/* validate_attn_implementation(): a word of these, or the path of a kernel on the hub. */
static void judge_backend(vp_checked *c, const vp_checked_file *file, const char *version)
{
    const vp_value *v = vp_value_at(file->doc->root, "attn_implementation");

    if (v && v->kind == VP_VALUE_STRING && !strchr(v->text, '/') && !strchr(v->text, '$') &&
        !vp_listed(BACKENDS, v->text) && vp_version_within(version, "0.17", NULL) &&
        !is_found(c, file, v))
        vp_find(c, file, VP_ERROR, v, "attn_implementation", NULL,
                "%.40s is none that axolotl knows: it refuses it", v->text);
}

/* A plugin that is nearly one of axolotl's own: older versions went on without it, and dropped its keys. */
static void judge_plugins(vp_checked *c, const vp_checked_file *file)
{
    static const char *const own[] = {
        PLUGIN("context_parallel.ContextParallelPlugin"),
        PLUGIN("cut_cross_entropy.CutCrossEntropyPlugin"),
        PLUGIN("densemixer.DenseMixerPlugin"),
        PLUGIN("diffusion.DiffusionPlugin"),
        PLUGIN("expert_parallel.ExpertParallelPlugin"),
        PLUGIN("grokfast.GrokfastPlugin"),
        PLUGIN("hatchery.HatcheryPlugin"),
        PLUGIN("kd.KDPlugin"),
        PLUGIN("kernels.KernelsPlugin"),
        PLUGIN("liger.LigerPlugin"),
        PLUGIN("llm_compressor.LLMCompressorPlugin"),
        PLUGIN("lm_eval.LMEvalPlugin"),
        PLUGIN("mixlora.MixLoraPlugin"),
        PLUGIN("nemo_gym.NemoGymPlugin"),
        PLUGIN("spectrum.SpectrumPlugin"),
        PLUGIN("swanlab.SwanLabPlugin"),
    };
    enum { N_OWN = sizeof own / sizeof *own };
    const vp_value *list = vp_value_at(file->doc->root, "plugins");

    for (const vp_value *v = list && list->kind == VP_VALUE_LIST ? list->first : NULL; v;
         v                 = v->next) {
        int near =
            v->kind == VP_VALUE_STRING && v->text ? vp_word_nearest(v->text, own, N_OWN) : -1;
        int off = near >= 0 ? vp_word_distance(v->text, own[near]) : 0;
        if (off > 0 && off <= 2)
            vp_find(c, file, VP_ERROR, v, "plugins", own[near], "there is no plugin %.80s",
                    v->text);
    }
}

/* check_grpo_batch_size_divisibility(): whole groups of completions of one prompt. */
static void judge_groups(vp_checked *c, const vp_checked_file *file)
{
    const char *words[] = {"trl.num_generations", "micro_batch_size", "gradient_accumulation_steps",
                           "trl.generation_batch_size"};
    int64_t     n[4]    = {0};
    char        text[64];
    const vp_value *at    = vp_value_at(file->doc->root, words[0]);
    const char     *cards = c->settings.value[VP_SETTING_WORLD];
    int64_t         world = cards ? strtoll(cards, NULL, 10) : 1, all;

    if (!at || !vp_check_holds(c, file, "rl", "=grpo"))
        return;
    for (int i = 0; i < 4; i++) {
        const char *said = vp_effective(c, file, words[i], text, sizeof text);
        n[i]             = said ? strtoll(said, NULL, 10) : 0;
        if (n[i] < 0 || n[i] > 1000000)
            return;
    }
    if (n[0] < 2) {
        vp_find(c, file, VP_ERROR, at, words[0], "trl.num_generations: 8",
                "a group has 2 completions or more: axolotl refuses fewer");
        return;
    }
    if (world < 1 || world > 1000000 || (!n[3] && (!n[1] || !n[2])))
        return;
    all = n[3] ? n[3] : n[1] * n[2] * world;
    if (all % n[0] == 0)
        return;
    if (n[3])
        vp_find(c, file, VP_ERROR, at, words[0], NULL,
                "%lld completions of a prompt are no part of the %lld that generation_batch_size "
                "says: axolotl refuses it",
                (long long)n[0], (long long)all);
    else
        vp_find(c, file,
                c->world || (cards && !c->by_default[VP_SETTING_WORLD]) ? VP_ERROR : VP_NOTE, at,
                words[0], NULL,
                "%lld completions of a prompt are no part of the %lld of a step (%lld x "
                "accumulation %lld x processes %lld), which axolotl refuses%s",
                (long long)n[0], (long long)all, (long long)n[1], (long long)n[2], (long long)world,
                c->world || (cards && !c->by_default[VP_SETTING_WORLD])
                    ? ""
                    : "; --world N says on how many");
}

void vp_judge_axolotl(vp_checked *c)
{
    bool named = json_object_get(c->versions, vp_dialect_axolotl.library) != NULL;

    for (int f = 0; f < c->n_files; f++) {
        const vp_checked_file *file = &c->files[f];
        if (!file->doc || file->dialect != &vp_dialect_axolotl)
            continue;
        const char *version = vp_file_version(c, file, &vp_dialect_axolotl);
        for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
            if (vp_version_within(version, refused[i].since, refused[i].until) && holds(c, file, i))
                vp_find(c, file, refused[i].aged && !named ? VP_WARNING : VP_ERROR,
                        vp_value_at(file->doc->root, refused[i].when[0].key),
                        refused[i].when[0].key, refused[i].instead, "%s", refused[i].message);
        judge_missing(c, file);
        judge_nothing(c, file);
        judge_shapes(c, file);
        judge_data(c, file);
        judge_plugins(c, file);
        judge_backend(c, file, version);
        judge_groups(c, file);
    }
}
