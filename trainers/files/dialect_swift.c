/* trainers/files/dialect_swift.c: ms-swift's options. Read in ms-swift 4.6, which pins transformers below
 * 5.20. Checkpointing is on unless it is written off; warmup_ratio and torch_dtype are its own. */
#include "trainers/files/target.h"

#define BIG                1e12
#define ARRAY(keys, field) .field = keys, .n_##field = sizeof keys / sizeof *keys

static const vp_key swift_keys[] = {
    {"model", VP_KEY_TEXT},
    {"tuner_type", VP_KEY_TEXT, "lora"},
    {"train_type", VP_KEY_TEXT, .until = "4.0", .instead = "tuner_type"},
    {"torch_dtype", VP_KEY_WORD, NULL, "bfloat16|float16|float32"},
    {"attn_impl", VP_KEY_TEXT},
    {"max_length", VP_KEY_INT, NULL, .min = 1, .max = BIG},
    {"per_device_train_batch_size", VP_KEY_INT, "1", .min = 1, .max = BIG},
    {"gradient_accumulation_steps", VP_KEY_INT, NULL, .min = 1, .max = BIG},
    {"gradient_checkpointing", VP_KEY_BOOL, "true"},
    {"vit_gradient_checkpointing", VP_KEY_BOOL},
    {"warmup_ratio", VP_KEY_REAL, "0.0", .min = 0, .max = 1},
    {"group_by_length", VP_KEY_BOOL, "false"},
    {"logging_dir", VP_KEY_TEXT},
    {"packing", VP_KEY_BOOL, "false"},
    {"padding_free", VP_KEY_BOOL, "false"},
    {"lora_rank", VP_KEY_INT, "8", .min = 1, .max = 1e6},
    {"lora_alpha", VP_KEY_INT, "32", .min = 1, .max = 1e6},
    {"lora_dropout", VP_KEY_REAL, "0.05", .min = 0, .max = 1},
    {"target_modules", VP_KEY_LIST, "all-linear"},
    {"quant_bits", VP_KEY_INT, NULL, .min = 1, .max = 8},
    {"quant_method", VP_KEY_TEXT},
    {"sequence_parallel_size", VP_KEY_INT, "1", .min = 1, .max = 1e6},
};

static const vp_section swift_sections[] = {
    {"", VP_STRANGERS_KEPT,
     "dataset val_dataset template system model_type task_type model_revision adapters streaming "
     "split_dataset_ratio dataset_num_proc lazy_tokenize use_hf freeze_llm freeze_vit "
     "freeze_aligner truncation_strategy bnb_4bit_compute_dtype bnb_4bit_quant_type "
     "bnb_4bit_use_double_quant bnb_4bit_quant_storage use_galore galore_rank loss_scale "
     "create_checkpoint_symlink add_version router_aux_loss_coef"},
};

static const vp_saying swift_says[] = {
    {VP_ALWAYS, NULL, "model", "$model"},
    {VP_SETTING_MICRO_BATCH, "*", "per_device_train_batch_size", "$"},
    {VP_SETTING_ACCUMULATION, "*", "gradient_accumulation_steps", "$"},
    {VP_SETTING_SEQ, "*", "max_length", "$"},
    {VP_SETTING_PRECISION, "bf16-amp", "torch_dtype", "bfloat16"},
    {VP_SETTING_PRECISION, "bf16-amp", "bf16", "true"},
    {VP_SETTING_PRECISION, "bf16-mixed", "torch_dtype", "float32"},
    {VP_SETTING_PRECISION, "bf16-mixed", "bf16", "true"},
    {VP_SETTING_PRECISION, "fp32", "torch_dtype", "float32"},
    {VP_SETTING_PRECISION, "fp32", "bf16", "false"},
    {VP_SETTING_OPTIMIZER, "W", "optim", "$"},
    {VP_SETTING_RECOMPUTE, "none", "gradient_checkpointing", "false"},
    {VP_SETTING_RECOMPUTE, "full", "gradient_checkpointing", "true"},
    {VP_SETTING_LOSS, "full", "use_liger_kernel", "false"},
    {VP_SETTING_LOSS, "liger", "use_liger_kernel", "true"},
    {VP_SETTING_ATTENTION, "eager", "attn_impl", "eager"},
    {VP_SETTING_ATTENTION, "sdpa", "attn_impl", "sdpa"},
    {VP_SETTING_ATTENTION, "flash2", "attn_impl", "flash_attention_2"},
    {VP_SETTING_ATTENTION, "flash2", "attn_impl", "flash_attn", .read_only = true},
    {VP_SETTING_CLIP_NORM, "R", "max_grad_norm", "$"},
    {VP_SETTING_PARALLEL, "none", "deepspeed", "null"},
    {VP_SETTING_PARALLEL, "ddp", "deepspeed", "null"},
    {VP_SETTING_PARALLEL, "zero1", "deepspeed", "$file:ds_config.json"},
    {VP_SETTING_PARALLEL, "zero2", "deepspeed", "$file:ds_config.json"},
    {VP_SETTING_PARALLEL, "zero3", "deepspeed", "$file:ds_config.json"},
    {VP_SETTING_TUNING, "full", "tuner_type", "full"},
    {VP_SETTING_TUNING, "lora", "tuner_type", "lora"},
    {VP_SETTING_TUNING, "lora", "quant_bits", NULL},
    {VP_SETTING_TUNING, "qlora", "tuner_type", "lora"},
    {VP_SETTING_TUNING, "qlora", "quant_bits", "4"},
    {VP_ALWAYS, NULL, "quant_method", "bnb", "tuning=qlora"},
    {VP_SETTING_LORA_R, "N", "lora_rank", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_ALPHA, "N", "lora_alpha", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_DROPOUT, "R", "lora_dropout", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_TARGETS, "L", "target_modules", "$", "tuning=lora|qlora"},
    {VP_ALWAYS, NULL, "packing", "false"},
    {VP_ALWAYS, NULL, "padding_free", "false"},
};

static const vp_rule swift_rules[] = {
    {"quant_bits", "set", "tuner_type", "=full", VP_ERROR, "quantised weights cannot be trained",
     "--tuner_type lora"},
    {"fp16", "=true", "bf16", "=true", VP_ERROR, "fp16 and bf16 exclude each other", "--bf16 true"},
};

const vp_dialect vp_dialect_swift = {
    .name    = "ms-swift",
    .library = "ms-swift",
    .version = "4.6.0",
    ARRAY(swift_keys, keys),
    ARRAY(swift_sections, sections),
    ARRAY(swift_says, says),
    ARRAY(swift_rules, rules),
    .signs = "model dataset tuner_type train_type attn_impl target_modules torch_dtype lora_rank",
    .flag_signs     = "tuner_type train_type attn_impl",
    .programs       = "swift swift/cli/sft.py swift/cli/pt.py swift/cli/rlhf.py swift.cli.sft",
    .text_is_number = true, /* a file becomes a command line */
    .base           = &vp_dialect_transformers,
    .base_version   = "5.19.0",
};
