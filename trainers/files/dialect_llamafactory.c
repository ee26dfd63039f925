/* trainers/files/dialect_llamafactory.c: LLaMA-Factory's YAML, the dialect of its v0 trainer. Read in
 * LLaMA-Factory 0.9.5, which pins transformers <= 5.6; keys of its main branch of August 2026 too.
 *
 * Checkpointing is on, whatever gradient_checkpointing says: disable_gradient_checkpointing is the
 * switch; layers without a trained parameter are not checkpointed. Precision: bf16 is autocast over
 * fp32 weights in full tuning, over bf16 ones with adapters; pure_bf16 is neither. */
#include "trainers/files/target.h"

#define BIG                1e12
#define ARRAY(keys, field) .field = keys, .n_##field = sizeof keys / sizeof *keys

static const vp_key llamafactory_keys[] = {
    {"model_name_or_path", VP_KEY_TEXT},
    {"stage", VP_KEY_WORD, "sft", "pt|sft|rm|ppo|dpo|kto"},
    {"finetuning_type", VP_KEY_WORD, "lora", "lora|oft|freeze|full"},
    {"cutoff_len", VP_KEY_INT, "2048", .min = 1, .max = BIG},
    {"flash_attn", VP_KEY_WORD, "auto", "auto|disabled|sdpa|fa2|fa3",
     .formerly = "true=fa2 false=disabled off=disabled"},
    {"packing", VP_KEY_BOOL},
    {"neat_packing", VP_KEY_BOOL, "false"},
    {"pure_bf16", VP_KEY_BOOL, "false"},
    {"disable_gradient_checkpointing", VP_KEY_BOOL, "false"},
    {"gradient_checkpointing", VP_KEY_BOOL, .noop = true,
     .instead = "disable_gradient_checkpointing: true"},
    {"use_reentrant_gc", VP_KEY_BOOL, "true"},
    {"use_unsloth_gc", VP_KEY_BOOL, "false"},
    {"use_unsloth", VP_KEY_BOOL, "false"},
    {"enable_liger_kernel", VP_KEY_BOOL, "false"},
    {"upcast_layernorm", VP_KEY_BOOL, "false"},
    {"upcast_lmhead_output", VP_KEY_BOOL, "false"},
    {"quantization_bit", VP_KEY_INT, NULL, .min = 2, .max = 8},
    {"quantization_method", VP_KEY_WORD, "bnb", "bnb|gptq|awq|aqlm|quanto|eetq|hqq|mxfp4|fp8",
     .formerly = "bitsandbytes=bnb"},
    {"quantization_type", VP_KEY_WORD, "nf4", "fp4|nf4"},
    {"double_quantization", VP_KEY_BOOL, "true"},
    {"lora_rank", VP_KEY_INT, "8", .min = 1, .max = 1e6},
    {"lora_alpha", VP_KEY_INT, "2*lora_rank", .min = 1, .max = 1e6},
    {"lora_dropout", VP_KEY_REAL, "0.0", .min = 0, .max = 1},
    {"lora_target", VP_KEY_TEXT, "all"},
    {"overwrite_output_dir", VP_KEY_BOOL},
    {"warmup_ratio", VP_KEY_REAL, "0.0", .min = 0, .max = 1},
    {"val_size", VP_KEY_REAL, "0.0", .min = 0, .max = 1e12},
    {"predict_with_generate", VP_KEY_BOOL, "false"},
    {"use_badam", VP_KEY_BOOL, "false"},
    {"use_muon", VP_KEY_BOOL, "false"},
    {"use_adam_mini", VP_KEY_BOOL, "false"},
    {"use_galore", VP_KEY_BOOL, "false"},
    {"galore_target", VP_KEY_TEXT, "all"},
    {"galore_rank", VP_KEY_INT, "16", .min = 1, .max = 65536},
    {"galore_proj_type", VP_KEY_WORD, "std", "std|reverse_std|right|left|full"},
    {"galore_layerwise", VP_KEY_BOOL, "false"},
    /* until the preference methods shared their names */
    {"dpo_loss", VP_KEY_TEXT, .until = "0.8", .instead = "pref_loss"},
    {"dpo_beta", VP_KEY_REAL, .until = "0.8", .instead = "pref_beta"},
    {"dpo_ftx", VP_KEY_REAL, .until = "0.8", .instead = "pref_ftx"},
    {"kto_beta", VP_KEY_REAL, .until = "0.8", .instead = "pref_beta"},
    {"kto_ftx", VP_KEY_REAL, .until = "0.8", .instead = "pref_ftx"},
    {"orpo_beta", VP_KEY_REAL, .until = "0.8", .instead = "pref_beta"},
    /* of train_bash.py, before the command */
    {"checkpoint_dir", VP_KEY_ANY, .until = "0.7", .instead = "adapter_name_or_path"},
    {"resume_lora_training", VP_KEY_ANY, .until = "0.7", .instead = "create_new_adapter"},
    {"num_layer_trainable", VP_KEY_ANY, .until = "0.7", .instead = "freeze_trainable_layers"},
    {"name_module_trainable", VP_KEY_ANY, .until = "0.7", .instead = "freeze_trainable_modules"},
    {"max_source_length", VP_KEY_ANY, .until = "0.7", .instead = "cutoff_len"},
    {"max_target_length", VP_KEY_ANY, .until = "0.7", .instead = "cutoff_len"},
    {"dev_ratio", VP_KEY_ANY, .until = "0.7", .instead = "val_size"},
    {"prompt_template", VP_KEY_ANY, .until = "0.7", .instead = "template"},
    {"sft_packing", VP_KEY_ANY, .until = "0.7", .instead = "packing"},
    {"cache_path", VP_KEY_ANY, .until = "0.7", .instead = "tokenized_path"},
    {"lora_bf16_mode", VP_KEY_ANY, .until = "0.7", .instead = "pure_bf16"},
    {"hf_auth_token", VP_KEY_ANY, .until = "0.7", .instead = "hf_hub_token"},
    {"reserved_label_len", VP_KEY_ANY, .until = "0.8.3", .instead = "nothing"},
    {"split", VP_KEY_ANY, .until = "0.8.3", .instead = "split in dataset_info.json"},
    {"visual_inputs", VP_KEY_ANY, .until = "0.9.0", .instead = "nothing: the model says it"},
    {"image_dir", VP_KEY_ANY, .until = "0.9.2", .instead = "media_dir"},
    {"image_resolution", VP_KEY_ANY, .until = "0.9.2", .instead = "image_max_pixels"},
    {"video_resolution", VP_KEY_ANY, .until = "0.9.2", .instead = "video_max_pixels"},
    {"train_mm_proj_only", VP_KEY_ANY, .until = "0.9.2",
     .instead = "freeze_vision_tower and freeze_language_model"},
    {"new_special_tokens", VP_KEY_ANY, .until = "0.9.3", .instead = "add_special_tokens"},
    {"use_cache", VP_KEY_ANY, .until = "0.9.4", .instead = "use_kv_cache"},
    {"ray_run_name", VP_KEY_ANY, .until = "0.9.5", .instead = "nothing"},
    {"ray_storage_path", VP_KEY_ANY, .until = "0.9.5", .instead = "output_dir"},
    {"ray_storage_filesystem", VP_KEY_ANY, .until = "0.9.5", .instead = "nothing"},
    {"resources_per_worker", VP_KEY_ANY, .until = "0.9.5", .instead = "nothing"},
    {"placement_strategy", VP_KEY_ANY, .until = "0.9.5", .instead = "nothing"},
    {"kt_optimize_rule", VP_KEY_ANY, .until = "0.9.5", .instead = "nothing"},
    {"cpu_infer", VP_KEY_ANY, .until = "0.9.5", .instead = "nothing"},
    {"chunk_size", VP_KEY_ANY, .until = "0.9.5", .instead = "nothing"},
    {"mode", VP_KEY_ANY, .until = "0.9.5", .instead = "nothing"},
    {"use_apollo", VP_KEY_BOOL, "false"},
    {"apollo_target", VP_KEY_TEXT, "all"},
    {"apollo_rank", VP_KEY_INT, "16", .min = 1, .max = 65536},
    {"apollo_proj", VP_KEY_WORD, "random", "svd|random"},
    {"apollo_proj_type", VP_KEY_WORD, "std", "std|right|left"},
    {"apollo_scale_type", VP_KEY_WORD, "channel", "channel|tensor"},
    {"apollo_layerwise", VP_KEY_BOOL, "false"},
};

static const vp_section llamafactory_sections[] = {
    {"", VP_STRANGERS_REFUSED,
     "template dataset eval_dataset dataset_dir media_dir train_on_prompt:b mask_history:b streaming:b "
     "buffer_size:i mix_strategy interleave_probs overwrite_cache:b preprocessing_batch_size:i "
     "preprocessing_num_workers:i max_samples:i eval_num_beams:i ignore_pad_token_for_loss:b "
     "eval_on_each_dataset:b tool_format default_system enable_thinking:b preserve_thinking:b "
     "tokenized_path data_shared_file_system:b freeze_trainable_layers:i freeze_trainable_modules "
     "freeze_extra_modules additional_target loraplus_lr_ratio:r loraplus_lr_embedding:r use_rslora:b "
     "use_dora:b pissa_init:b pissa_iter:i pissa_convert:b create_new_adapter:b module_dropout:r oft_rank:i "
     "oft_block_size:i oft_target pref_beta:r pref_ftx:r pref_bco_weight:r pref_loss dpo_label_smoothing:r "
     "kto_chosen_weight:r kto_rejected_weight:r simpo_gamma:r ppo_buffer_size:i ppo_epochs:i ppo_score_norm:b "
     "ppo_target:r ppo_whiten_rewards:b ref_model ref_model_adapters ref_model_quantization_bit:i "
     "reward_model reward_model_adapters reward_model_quantization_bit:i reward_model_type ld_alpha:r "
     "galore_update_interval:i galore_scale:r apollo_update_interval:i apollo_scale:r "
     "apollo_scale_front:b badam_mode "
     "badam_start_block:i badam_switch_mode badam_switch_interval:i badam_update_ratio:r "
     "badam_mask_mode badam_verbose:i use_swanlab:b swanlab_project swanlab_workspace "
     "swanlab_run_name swanlab_mode swanlab_api_key swanlab_logdir swanlab_lark_webhook_url "
     "swanlab_lark_secret use_llama_pro:b use_mca:b use_hyper_parallel:b "
     "hyper_parallel_args hyper_parallel_cp_size use_dft_loss:b use_asft_loss:b asft_alpha:r use_eaft_loss:b eaft_alpha:r "
     "freeze_vision_tower:b freeze_multi_modal_projector:b freeze_language_model:b compute_accuracy:b "
     "disable_shuffling:b early_stopping_steps:i plot_loss:b include_effective_tokens_per_second:b "
     "do_sample:b temperature:r top_p:r top_k:i num_beams:i max_length:i max_new_tokens:i repetition_penalty:r "
     "length_penalty:r skip_special_tokens:b adapter_name_or_path adapter_folder cache_dir "
     "use_fast_tokenizer:b resize_vocab:b split_special_tokens:b add_tokens add_special_tokens "
     "new_special_tokens_config init_special_tokens model_revision low_cpu_mem_usage:b rope_scaling "
     "shift_attn:b mixture_of_depths moe_aux_loss_coef:r train_from_scratch:b infer_backend "
     "offload_folder use_kv_cache:b use_v1_kernels:b infer_dtype hf_hub_token ms_hub_token "
     "om_hub_token print_param_status:b trust_remote_code:b quantization_device_map image_max_pixels:i "
     "image_min_pixels:i image_do_pan_and_scan:b crop_to_patches:b video_max_pixels:i video_min_pixels:i "
     "video_fps:r video_maxlen:i use_audio_in_video:b audio_sampling_rate:i use_kt:b kt_weight_path "
     "kt_expert_checkpoint_path kt_non_expert_weight_path kt_use_lora_experts:b kt_lora_expert_num:i "
     "kt_lora_expert_intermediate_size:i kt_config kt_cpu_activation ray_num_workers "
     "ray_init_kwargs master_addr master_port enable_torch_profiler profiler_output_dir "
     "profiler_wait_steps profiler_warmup_steps profiler_active_steps profiler_repeat "
     "profiler_record_shapes profiler_profile_memory profiler_with_stack profile_modules fp8 "
     "fp8_backend fp8_enable_fsdp_float8_all_gather generation_max_length "
     "generation_num_beams generation_config sortish_sampler "
     "export_dir export_size:i export_device "
     "export_quantization_bit:i export_quantization_dataset export_quantization_nsamples:i "
     "export_quantization_maxlen:i export_legacy_format:b export_hub_model_id vllm_maxlen:i "
     "vllm_gpu_util:r vllm_enforce_eager:b vllm_max_lora_rank:i vllm_config sglang_maxlen:i "
     "sglang_mem_fraction:r sglang_tp_size:i sglang_config sglang_lora_backend"},
};

/* train/trainer_utils.py: _create_galore_optimizer(), _create_apollo_optimizer(): the classes that Trainer has too, by optim; NULL: the
 * default, which judge_llamafactory.c is about. */
#define BY_GALORE(word, optim, layerwise) \
    {VP_SETTING_OPTIMIZER, word ":T", "use_galore", "true", .read_only = true}, \
        {VP_SETTING_OPTIMIZER, word ":T", "galore_layerwise", layerwise, .read_only = true}, \
        {VP_SETTING_OPTIMIZER, word ":T", "optim", optim, .read_only = true}, \
        {VP_SETTING_OPTIMIZER, word ":T", "galore_rank", "$tells:rank", .read_only = true}, \
        {VP_SETTING_OPTIMIZER, word ":T", "galore_proj_type", "$tells:proj_type", \
         .read_only = true}, \
    { \
        VP_SETTING_OPTIMIZER, word ":T", "galore_target", "$parts", .read_only = true \
    }
#define BY_APOLLO(word, optim, layerwise) \
    {VP_SETTING_OPTIMIZER, word ":T", "use_apollo", "true", .read_only = true}, \
        {VP_SETTING_OPTIMIZER, word ":T", "apollo_layerwise", layerwise, .read_only = true}, \
        {VP_SETTING_OPTIMIZER, word ":T", "optim", optim, .read_only = true}, \
        {VP_SETTING_OPTIMIZER, word ":T", "apollo_rank", "$tells:rank", .read_only = true}, \
        {VP_SETTING_OPTIMIZER, word ":T", "apollo_proj", "$tells:proj", .read_only = true}, \
        {VP_SETTING_OPTIMIZER, word ":T", "apollo_proj_type", "$tells:proj_type", \
         .read_only = true}, \
        {VP_SETTING_OPTIMIZER, word ":T", "apollo_scale_type", "$tells:scale_type", \
         .read_only = true}, \
    { \
        VP_SETTING_OPTIMIZER, word ":T", "apollo_target", "$parts", .read_only = true \
    }
/* Groups of one word do not stand together. */
#define BY_THEIR_OWN(layers, layerwise) \
    BY_GALORE("galore_adamw_8bit" layers, "adamw_8bit", layerwise), \
        BY_GALORE("galore_adamw" layers, "adamw_torch", layerwise), \
        BY_GALORE("galore_adamw_8bit" layers, "adamw_bnb_8bit", layerwise), \
        BY_GALORE("galore_adamw" layers, NULL, layerwise), \
        BY_GALORE("galore_adamw_8bit" layers, "paged_adamw_8bit", layerwise), \
        BY_APOLLO("apollo_adamw" layers, "adamw_torch", layerwise), \
        BY_GALORE("galore_adafactor" layers, "adafactor", layerwise), \
        BY_APOLLO("apollo_adamw" layers, NULL, layerwise)

/* Trainer's own way, where theirs is off. */
#define BY_TRAINER(name) \
    VP_PROJECTS_BY("optim", name), {VP_SETTING_OPTIMIZER, name ":T", "use_galore", "false"}, \
    { \
        VP_SETTING_OPTIMIZER, name ":T", "use_apollo", "false" \
    }

static const vp_saying llamafactory_says[] = {
    {VP_ALWAYS, NULL, "model_name_or_path", "$model"},
    {VP_SETTING_METHOD, "sft", "stage", "sft"},
    {VP_SETTING_METHOD, "dpo", "stage", "dpo"},
    {VP_ALWAYS, NULL, "do_train", "true"},
    {VP_SETTING_MICRO_BATCH, "*", "per_device_train_batch_size", "$"},
    {VP_SETTING_ACCUMULATION, "*", "gradient_accumulation_steps", "$"},
    VP_SYNC_BY_ACCELERATE(),
    {VP_SETTING_SEQ, "*", "cutoff_len", "$"},
    /* what trains is made fp32 (model/adapter.py, init_adapter()); beside adapters the rest keeps the checkpoint's format, and
     * nothing is in autocast: judge_llamafactory.c */
    {VP_SETTING_PRECISION, "fp32", "bf16", "false", "tuning=full,parallel!=zero3"},
    {VP_SETTING_PRECISION, "fp32", "fp16", "false", "tuning=full,parallel!=zero3"},
    {VP_SETTING_PRECISION, "fp32", "pure_bf16", "false", "tuning=full,parallel!=zero3"},
    /* 16-bit weights in autocast: its parser takes both */
    {VP_SETTING_PRECISION, "bf16-amp", "bf16", "true", "parallel!=zero3", .read_only = true},
    {VP_SETTING_PRECISION, "bf16-amp", "fp16", "false", "parallel!=zero3", .read_only = true},
    {VP_SETTING_PRECISION, "bf16-amp", "pure_bf16", "true", "parallel!=zero3", .read_only = true},
    {VP_SETTING_PRECISION, "bf16-mixed", "bf16", "true", "tuning=full"},
    {VP_SETTING_PRECISION, "bf16-mixed", "fp16", "false", "tuning=full"},
    {VP_SETTING_PRECISION, "bf16-mixed", "pure_bf16", "false", "tuning=full"},
    {VP_SETTING_PRECISION, "bf16-amp", "bf16", "true", "tuning!=full"},
    {VP_SETTING_PRECISION, "bf16-amp", "fp16", "false", "tuning!=full"},
    {VP_SETTING_PRECISION, "bf16-amp", "pure_bf16", "false", "tuning!=full"},
    {VP_SETTING_PRECISION, "bf16", "bf16", "false", "parallel!=zero3"},
    {VP_SETTING_PRECISION, "bf16", "fp16", "false", "parallel!=zero3"},
    {VP_SETTING_PRECISION, "bf16", "pure_bf16", "true", "parallel!=zero3"},
    {VP_SETTING_PRECISION, "fp16-mixed", "bf16", "false", "tuning=full"},
    {VP_SETTING_PRECISION, "fp16-mixed", "fp16", "true", "tuning=full"},
    {VP_SETTING_PRECISION, "fp16-mixed", "pure_bf16", "false", "tuning=full"},
    {VP_SETTING_PRECISION, "fp16-amp", "bf16", "false", "tuning!=full"},
    {VP_SETTING_PRECISION, "fp16-amp", "fp16", "true", "tuning!=full"},
    {VP_SETTING_PRECISION, "fp16-amp", "pure_bf16", "false", "tuning!=full"},
    {VP_SETTING_OPTIMIZER, "sgd_momentum", "optim", "sgd"},
    {VP_SETTING_OPTIMIZER, "sgd_momentum", "optim_args", "momentum=0.9"},
    {VP_SETTING_OPTIMIZER, "sgd_momentum", "use_galore", "false"},
    {VP_SETTING_OPTIMIZER, "sgd_momentum", "use_apollo", "false"},
    {VP_SETTING_OPTIMIZER, "sgd_momentum", "optim", "sgd", .read_only = true},
    {VP_SETTING_OPTIMIZER, "sgd_momentum", "optim_args", "$with:momentum", .read_only = true},
    BY_THEIR_OWN("", "false"),
    BY_THEIR_OWN("_layerwise", "true"),
    BY_TRAINER("galore_adamw"),
    BY_TRAINER("galore_adamw_layerwise"),
    BY_TRAINER("galore_adamw_8bit"),
    BY_TRAINER("galore_adamw_8bit_layerwise"),
    BY_TRAINER("galore_adafactor"),
    BY_TRAINER("galore_adafactor_layerwise"),
    BY_TRAINER("apollo_adamw"),
    BY_TRAINER("apollo_adamw_layerwise"),
    {VP_SETTING_OPTIMIZER, "W", "optim", "$"},
    {VP_SETTING_OPTIMIZER, "W", "use_galore", "false"},
    {VP_SETTING_OPTIMIZER, "W", "use_apollo", "false"},
    {VP_SETTING_RECOMPUTE, "none", "disable_gradient_checkpointing", "true"},
    {VP_SETTING_RECOMPUTE, "full", "disable_gradient_checkpointing", "false"},
    {VP_SETTING_RECOMPUTE, "full", "use_reentrant_gc", "false"},
    {VP_SETTING_RECOMPUTE, "full:reentrant", "disable_gradient_checkpointing", "false",
     "parallel!=fsdp2"},
    {VP_SETTING_RECOMPUTE, "full:reentrant", "use_reentrant_gc", "true", "parallel!=fsdp2"},
    /* model_utils/checkpointing.py sets it to False, whatever is asked for */
    {VP_SETTING_RECOMPUTE, "full", "disable_gradient_checkpointing", "false", "parallel=fsdp2",
     .read_only = true},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "none", "use_unsloth_gc", "false"},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "cpu", "use_unsloth_gc", "true",
     "recompute=full|full:reentrant"},
    {VP_SETTING_LOSS, "full", "enable_liger_kernel", "false"},
    {VP_SETTING_LOSS, "liger-all", "enable_liger_kernel", "true", "method=sft"},
    {VP_SETTING_ATTENTION, "eager", "flash_attn", "disabled"},
    {VP_SETTING_ATTENTION, "sdpa", "flash_attn", "sdpa"},
    {VP_SETTING_ATTENTION, "flash2", "flash_attn", "fa2"},
    {VP_SETTING_ATTENTION, "flash3", "flash_attn", "fa3"},
    {VP_SETTING_CLIP_NORM, "R", "max_grad_norm", "$"},
    {VP_SETTING_PARALLEL, "none", "deepspeed", "null"},
    {VP_SETTING_PARALLEL, "ddp", "deepspeed", "null"},
    {VP_SETTING_PARALLEL, "zero1", "deepspeed", "$file:ds_config.json"},
    {VP_SETTING_PARALLEL, "zero2", "deepspeed", "$file:ds_config.json"},
    {VP_SETTING_PARALLEL, "zero3", "deepspeed", "$file:ds_config.json"},
    {VP_SETTING_TUNING, "full", "finetuning_type", "full"},
    {VP_SETTING_TUNING, "full", "quantization_bit", "null"},
    {VP_SETTING_TUNING, "lora", "finetuning_type", "lora"},
    {VP_SETTING_TUNING, "lora", "quantization_bit", "null"},
    {VP_SETTING_TUNING, "qlora", "finetuning_type", "lora"},
    {VP_SETTING_TUNING, "qlora", "quantization_bit", "4"},
    {VP_SETTING_LORA_R, "N", "lora_rank", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_ALPHA, "N", "lora_alpha", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_DROPOUT, "R", "lora_dropout", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_TARGETS, "all-linear", "lora_target", "all", "tuning=lora|qlora"},
    {VP_SETTING_LORA_TARGETS, "L", "lora_target", "$,",
     "tuning=lora|qlora,lora_targets!=all-linear"},
    {VP_SETTING_QUANT, "nf4", "double_quantization", "false", "tuning=qlora"},
    {VP_SETTING_QUANT, "nf4-dq", "double_quantization", "true", "tuning=qlora"},
    {VP_ALWAYS, NULL, "packing", "false"},
    {VP_ALWAYS, VP_OFF, "upcast_layernorm", "false"},
    {VP_ALWAYS, VP_OFF, "use_badam", "false"},
    {VP_ALWAYS, VP_OFF, "use_muon", "false"},
    {VP_ALWAYS, VP_OFF, "use_adam_mini", "false"},
    VP_EVALUATION_BY_TRAINER,
    {VP_ALWAYS, NULL, "per_device_eval_batch_size", "1", "eval_batch=none"},
    {VP_ALWAYS, NULL, "val_size", "0.05", "eval_batch!=none"},
    {VP_ALWAYS, NULL, "eval_accumulation_steps", "1"},
};

/* hparams/finetuning_args.py, hparams/parser.py */
#define NOT_BOTH(one, other) \
    { \
        one, "=true", other, "=true", VP_ERROR, \
            "LLaMA-Factory takes one of GaLore, APOLLO and BAdam", "one of them" \
    }
#define NOT_BESIDE_LORA(key) \
    { \
        key, "=true", "finetuning_type", "=lora", VP_ERROR, \
            "LLaMA-Factory refuses it beside LoRA", "finetuning_type: full" \
    }
#define NOT_BY_DEEPSPEED(key) \
    { \
        key, "=true", "deepspeed", "set", VP_ERROR, "LLaMA-Factory refuses it beside DeepSpeed", \
            "deepspeed: null" \
    }

#define OF_LORA(key, is) \
    { \
        key, is, "finetuning_type", "=full|freeze", VP_ERROR, \
            "is refused by LLaMA-Factory without lora", "finetuning_type: lora" \
    }

static const vp_rule llamafactory_rules[] = {
    NOT_BOTH("use_galore", "use_apollo"),
    NOT_BOTH("use_galore", "use_badam"),
    NOT_BOTH("use_apollo", "use_badam"),
    NOT_BESIDE_LORA("use_galore"),
    NOT_BESIDE_LORA("use_apollo"),
    NOT_BESIDE_LORA("use_badam"),
    NOT_BY_DEEPSPEED("use_galore"),
    NOT_BY_DEEPSPEED("use_apollo"),
    VP_PROJECTS_RULES("optim", "all-linear"),
    {"quantization_bit", "set", "finetuning_type", "!=lora|oft", VP_ERROR,
     "quantised weights are trained with lora or oft only", "finetuning_type: lora"},
    {"quantization_bit", "=3|5|6|7", NULL, NULL, VP_ERROR, "bitsandbytes has 4 and 8 bits",
     "quantization_bit: 4"},
    {"fp16", "=true", "bf16", "=true", VP_ERROR, "fp16 and bf16 exclude each other", "bf16: true"},
    {"lora_rank", "set", "finetuning_type", "=full|freeze", VP_WARNING,
     "has no effect while finetuning_type is not lora", "finetuning_type: lora"},
    {"adapter_name_or_path", "set", "finetuning_type", "=full|freeze", VP_ERROR,
     "LLaMA-Factory takes adapters with lora only", "finetuning_type: lora"},
    {"adapter_name_or_path", "~,", "quantization_bit", "set", VP_ERROR,
     "quantised weights take one adapter only: LLaMA-Factory refuses several", "one adapter"},
    {"val_size", ">0", "eval_dataset", "set", VP_ERROR,
     "and eval_dataset exclude each other: LLaMA-Factory refuses both", "one of them"},
    {"streaming", "=true", "max_samples", "set", VP_ERROR,
     "and max_samples exclude each other: LLaMA-Factory refuses both", "max_steps"},
    {"mask_history", "=true", "train_on_prompt", "=true", VP_ERROR,
     "and train_on_prompt exclude each other: LLaMA-Factory refuses both", "one of them"},
    {"mask_history", "=true", "stage", "!=sft", VP_ERROR, "goes with stage sft only", "stage: sft"},
    {"train_on_prompt", "=true", "stage", "!=sft", VP_ERROR, "goes with stage sft only",
     "stage: sft"},
    {"neat_packing", "=true", "stage", "!=sft", VP_ERROR, "goes with stage sft only",
     "packing: true"},
    {"interleave_probs", "set", "mix_strategy", "=concat", VP_ERROR,
     "is refused by LLaMA-Factory while mix_strategy is concat", "mix_strategy: interleave_under"},
    {"interleave_probs", "set", "mix_strategy", "unset", VP_ERROR,
     "is refused by LLaMA-Factory while mix_strategy is concat", "mix_strategy: interleave_under"},
    {"stage", "=ppo", "reward_model", "unset", VP_ERROR,
     "ppo is refused by LLaMA-Factory without reward_model", "reward_model"},
    {"load_best_model_at_end", "=true", "stage", "=rm|ppo", VP_ERROR,
     "is refused by LLaMA-Factory in this stage", "load_best_model_at_end: false"},
    OF_LORA("pissa_init", "=true"),
    OF_LORA("use_dora", "=true"),
    OF_LORA("use_rslora", "=true"),
    OF_LORA("loraplus_lr_ratio", ">0"),
    {"pissa_init", "=true", "quantization_bit", "set", VP_ERROR,
     "is refused by LLaMA-Factory of quantised weights", "pissa_init: false"},
    {"use_llama_pro", "=true", "finetuning_type", "=full", VP_ERROR,
     "is refused by LLaMA-Factory of full tuning", "finetuning_type: lora"},
    {"resize_vocab", "=true", "quantization_bit", "set", VP_ERROR,
     "is refused by LLaMA-Factory of quantised weights", "resize_vocab: false"},
    {"infer_backend", "=vllm|sglang", "do_train", "=true", VP_ERROR,
     "is refused by LLaMA-Factory where it trains", "infer_backend: huggingface"},
    {"use_unsloth_gc", "=true", "disable_gradient_checkpointing", "=true", VP_ERROR,
     "has no effect while checkpointing is off", "disable_gradient_checkpointing: false"},
    {"predict_with_generate", "=true", "stage", "!=sft", VP_ERROR, "goes with stage sft only",
     "stage: sft"},
    {"do_train", "=false", "stage", "set", VP_WARNING,
     "is not true: the trainer reads the file and trains nothing", "do_train: true"},
    {"use_unsloth", "=true", "deepspeed", "set", VP_WARNING, "does not go with ZeRO-3",
     "use_unsloth: false"},
};

const vp_dialect vp_dialect_llamafactory = {
    .name    = "llamafactory",
    .library = "llamafactory",
    .version = "0.9.5",
    ARRAY(llamafactory_keys, keys),
    ARRAY(llamafactory_sections, sections),
    ARRAY(llamafactory_says, says),
    ARRAY(llamafactory_rules, rules),
    .signs        = "stage finetuning_type cutoff_len template dataset lora_rank lora_target "
                    "model_name_or_path",
    .flag_signs   = "finetuning_type template",
    .programs     = "llamafactory-cli lmf",
    .no_scripts   = true,
    .but_with     = "finetuning_type", /* a notebook's dict(...), which is dumped */
    .exponents    = true,              /* OmegaConf's reader */
    .base         = &vp_dialect_transformers,
    .base_version = "5.6.0",
};
