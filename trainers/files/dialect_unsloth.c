/* trainers/files/dialect_unsloth.c: what a script of Unsloth's calls FastLanguageModel.from_pretrained,
 * get_peft_model and TRL's SFTConfig with. Read in unsloth 2026.10.9 (unsloth/models/loader.py,
 * llama.py, _utils.py, rl.py), whose import gives TRL's SFTConfig defaults of its own: 4 samples, 2 of them
 * accumulated, adamw_8bit.
 *
 * use_gradient_checkpointing "unsloth" checkpoints every block and moves its input to the host; below
 * 512 tokens Unsloth takes that for True (apply_unsloth_gradient_checkpointing). */
#include "trainers/files/target.h"

#define BIG                1e12
#define ARRAY(keys, field) .field = keys, .n_##field = sizeof keys / sizeof *keys

static const vp_key unsloth_keys[] = {
    {"model_name", VP_KEY_TEXT},
    {"max_seq_length", VP_KEY_INT, "2048", .min = 1, .max = BIG,
     .costs = "samples are cut at 2,048 tokens"},
    {"dtype", VP_KEY_TEXT, "torch.bfloat16"}, /* on a card that has it */
    {"load_in_4bit", VP_KEY_BOOL, "true"},
    {"load_in_8bit", VP_KEY_BOOL, "false"},
    {"load_in_16bit", VP_KEY_BOOL, "false"},
    {"load_in_fp8", VP_KEY_ANY, "false"},
    {"full_finetuning", VP_KEY_BOOL, "false"},
    {"float32_mixed_precision", VP_KEY_BOOL},
    {"offload_embedding", VP_KEY_ANY},
    {"unsloth_tiled_mlp", VP_KEY_ANY, "false"},
    {"use_gradient_checkpointing", VP_KEY_WORD, "unsloth", "unsloth|true|false"},
    {"r", VP_KEY_INT, "16", .min = 1, .max = 1e6},
    {"lora_alpha", VP_KEY_INT, "16", .min = 1, .max = 1e6},
    {"lora_dropout", VP_KEY_REAL, "0.0", .min = 0, .max = 1},
    {"target_modules", VP_KEY_LIST, "q_proj+k_proj+v_proj+o_proj+gate_proj+up_proj+down_proj",
     .alone = "all-linear"}, /* in a list it would be a module's name */
    {"modules_to_save", VP_KEY_LIST},
    {"use_rslora", VP_KEY_BOOL, "false"},
    {"per_device_train_batch_size", VP_KEY_INT, "4", .min = 1, .max = BIG,
     .costs = "4 samples a device at once"},
    {"gradient_accumulation_steps", VP_KEY_INT, "2", .min = 1, .max = BIG},
    {"optim", VP_KEY_TEXT, "adamw_8bit", VP_HF_OPTIMIZERS},
    {"max_grad_norm", VP_KEY_REAL, "1.0", .min = 0, .max = BIG},
    {"bf16", VP_KEY_BOOL, "!fp16"}, /* where neither is written: unsloth/models/rl.py */
    {"fp16", VP_KEY_BOOL, "false"},
    {"packing", VP_KEY_BOOL, "false"},
    {"eval_strategy", VP_KEY_WORD, "no", "no|steps|epoch"},
    {"per_device_eval_batch_size", VP_KEY_INT, "4", .min = 1, .max = BIG},
};

static const vp_section unsloth_sections[] = {
    {"", VP_STRANGERS_KEPT,
     "SETTINGS LOAD ADAPT TRAIN model args trainer "
     /* the loader's */
     "token device_map rope_scaling fix_tokenizer trust_remote_code use_exact_model_name "
     "fast_inference gpu_memory_utilization float8_kv_cache random_state max_lora_rank "
     "disable_log_stats qat_scheme unsloth_vllm_standby revision resize_model_vocab auto_model "
     "auto_config whisper_language whisper_task torch_dtype attn_implementation num_labels "
     /* the adapters' */
     "bias loftq_config layers_to_transform layers_pattern init_lora_weights task_type "
     "temporary_location target_parameters ensure_weight_tying finetune_vision_layers "
     "finetune_language_layers finetune_attention_modules finetune_mlp_modules "
     /* those of TRL's trainers and their arguments */
     "tokenizer processing_class train_dataset eval_dataset data_collator formatting_func "
     "compute_metrics callbacks optimizers peft_config ref_model reward_funcs max_length "
     "max_prompt_length max_completion_length num_generations temperature beta loss_type epsilon "
     "epsilon_high delta dataset_text_field dataset_num_proc dataset_kwargs packing_strategy "
     "padding_free assistant_only_loss completion_only_loss eos_token pad_token model_init_kwargs "
     "embedding_learning_rate vllm_sampling_params importance_sampling_level mask_truncated_completions "
     "scale_rewards use_vllm vllm_mode"}};

static const vp_saying unsloth_says[] = {
    {VP_ALWAYS, NULL, "model_name", "$model"},
    {VP_SETTING_SEQ, "*", "max_seq_length", "$"},
    {VP_SETTING_MICRO_BATCH, "*", "per_device_train_batch_size", "$"},
    {VP_SETTING_ACCUMULATION, "*", "gradient_accumulation_steps", "$"},
    {VP_SETTING_PRECISION, "fp32", "dtype", "torch.float32"},
    {VP_SETTING_PRECISION, "fp32", "bf16", "false"},
    {VP_SETTING_PRECISION, "fp32", "fp16", "false"},
    {VP_SETTING_PRECISION, "bf16-mixed", "dtype", "torch.float32"},
    {VP_SETTING_PRECISION, "bf16-mixed", "float32_mixed_precision", "true"},
    {VP_SETTING_PRECISION, "bf16-mixed", "bf16", "true"},
    {VP_SETTING_PRECISION, "bf16-mixed", "fp16", "false"},
    {VP_SETTING_PRECISION, "bf16-amp", "dtype", "torch.bfloat16"},
    {VP_SETTING_PRECISION, "bf16-amp", "bf16", "true"},
    {VP_SETTING_PRECISION, "bf16-amp", "fp16", "false"},
    /* left to Unsloth: 16 bits, bf16 on cards that have it (loader.py); SFTConfig follows (rl.py) */
    {VP_SETTING_PRECISION, "bf16-amp", "dtype", NULL, "tuning!=full", .read_only = true},
    {VP_SETTING_PRECISION, "bf16-amp", "bf16", NULL, "tuning!=full", .read_only = true},
    {VP_SETTING_PRECISION, "bf16-amp", "fp16", NULL, "tuning!=full", .read_only = true},
    {VP_SETTING_PRECISION, "fp16-amp", "dtype", "torch.float16", "tuning!=full"},
    {VP_SETTING_PRECISION, "fp16-amp", "bf16", "false", "tuning!=full"},
    {VP_SETTING_PRECISION, "fp16-amp", "fp16", "true", "tuning!=full"},
    {VP_SETTING_OPTIMIZER, "W", "optim", "$", VP_NOT_TRAINERS},
    {VP_SETTING_CLIP_NORM, "R", "max_grad_norm", "$"},
    {VP_SETTING_RECOMPUTE, "none", "use_gradient_checkpointing", "false"},
    {VP_SETTING_RECOMPUTE, "full", "use_gradient_checkpointing", "true",
     "offload_activations=none"},
    {VP_SETTING_RECOMPUTE, "full", "use_gradient_checkpointing", "unsloth",
     "offload_activations=cpu"},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "none", "use_gradient_checkpointing", "false",
     "recompute=none"},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "none", "use_gradient_checkpointing", "true",
     "recompute=full"},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "cpu", "use_gradient_checkpointing", "unsloth",
     "recompute=full"},
    {VP_SETTING_TUNING, "full", "full_finetuning", "true"},
    {VP_SETTING_TUNING, "full", "load_in_4bit", "false"},
    {VP_SETTING_TUNING, "full", "full_finetuning", "true", .read_only = true},
    {VP_SETTING_TUNING, "lora", "full_finetuning", "false"},
    {VP_SETTING_TUNING, "lora", "load_in_4bit", "false"},
    {VP_SETTING_TUNING, "lora", "load_in_8bit", "false"},
    {VP_SETTING_TUNING, "qlora", "full_finetuning", "false"},
    {VP_SETTING_TUNING, "qlora", "load_in_4bit", "true"},
    {VP_SETTING_QUANT, "nf4-dq", "load_in_4bit", "true", "tuning=qlora"}, /* always so */
    {VP_SETTING_LORA_R, "N", "r", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_ALPHA, "N", "lora_alpha", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_DROPOUT, "R", "lora_dropout", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_TARGETS, "L", "target_modules", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_SAVE, "none", "modules_to_save", NULL, "tuning=lora|qlora"},
    {VP_SETTING_LORA_SAVE, "L", "modules_to_save", "$", "tuning=lora|qlora,lora_save!=none"},
    /* importing it says so (unsloth_zoo/__init__.py), whatever else is said */
    {VP_SETTING_ALLOCATOR, "expandable", "load_in_4bit", "true", .read_only = true},
    {VP_ALWAYS, NULL, "packing", "false"},
    {VP_SETTING_ALLOCATOR, "expandable", "load_in_4bit", "false", .read_only = true},
    VP_EVALUATION_BY_TRAINER,
};

static const vp_rule unsloth_rules[] = {
    {"load_in_4bit", "=true", "full_finetuning", "=true", VP_WARNING,
     "quantised weights cannot be trained: Unsloth loads 16 bits instead", "load_in_4bit = False"},
    {"load_in_4bit", "=true", "load_in_8bit", "=true", VP_ERROR, "4 and 8 bits exclude each other",
     "one of them"},
    {"fp16", "=true", "bf16", "=true", VP_ERROR, "fp16 and bf16 exclude each other",
     "bf16 alone, on a card that has it"},
    {"lora_dropout", ">0", NULL, NULL, VP_NOTE,
     "other than 0 leaves Unsloth's fused kernels unused: slower, and more is kept",
     "lora_dropout = 0"},
};

const vp_dialect vp_dialect_unsloth = {
    .name    = "unsloth",
    .library = "unsloth",
    .version = "2026.10.9",
    ARRAY(unsloth_keys, keys),
    ARRAY(unsloth_sections, sections),
    ARRAY(unsloth_says, says),
    ARRAY(unsloth_rules, rules),
    /* the class that loads the model is its own; its words are those of peft and transformers, too */
    .programs = "unsloth",
    .signs    = "full_finetuning",
    .only     = VP_FORMAT_PYTHON,
    /* SFTConfig is one of them; of the versions that it takes (its pyproject.toml) the one that its notebooks install */
    .base         = &vp_dialect_transformers,
    .base_version = "4.56.2",
};
