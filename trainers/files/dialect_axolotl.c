/* trainers/files/dialect_axolotl.c: axolotl's YAML. Read in axolotl 0.19 to 0.21.
 *
 * Unknown keys are dropped without a word; a plugin's keys count only where `plugins` lists it. The
 * parser is pydantic's: a number as text becomes a number. Checkpointing is off unless asked for.
 * bf16: true loads bf16 weights, and autocast adds nothing to it unless they are fp32 (float32). */
#include "trainers/files/target.h"

#define BIG                1e12
#define ARRAY(keys, field) .field = keys, .n_##field = sizeof keys / sizeof *keys

static const vp_key axolotl_keys[] = {
    {"base_model", VP_KEY_TEXT},
    {"micro_batch_size", VP_KEY_INT, "1", .min = 1, .max = BIG},
    {"gradient_accumulation_steps", VP_KEY_INT, "1", .min = 1, .max = BIG},
    {"batch_size", VP_KEY_INT, NULL, .min = 1, .max = BIG},
    {"sequence_len", VP_KEY_INT, "512", .min = 1, .max = BIG,
     .costs = "samples are cut at 512 tokens"},
    {"eval_sequence_len", VP_KEY_INT, NULL, .min = 1, .max = BIG},
    {"sample_packing", VP_KEY_BOOL, "false"},
    {"eval_sample_packing", VP_KEY_BOOL},
    {"pad_to_sequence_len", VP_KEY_BOOL},
    {"bf16", VP_KEY_WORD, "false", "true|false|auto|full"},
    {"fp16", VP_KEY_BOOL, "false"},
    {"float32", VP_KEY_BOOL, "false"},
    {"bfloat16", VP_KEY_BOOL, "false"},
    {"float16", VP_KEY_BOOL, "false"},
    {"tf32", VP_KEY_WORD, NULL, "null|true|false|auto"},
    {"fp8", VP_KEY_BOOL, "false"},
    {"gradient_checkpointing", VP_KEY_WORD, "false", "true|false|offload|offload_disk",
     .costs = "every layer keeps all its activations for the backward pass"},
    {VP_SYNC_EACH, VP_KEY_BOOL, "false"},
    {"accelerator_config.gradient_accumulation_kwargs.num_steps", VP_KEY_INT},
    {"gradient_checkpointing_kwargs", VP_KEY_MAP},
    /* core/builders/base.py, _configure_gradient_checkpointing() */
    {"gradient_checkpointing_kwargs.use_reentrant", VP_KEY_BOOL, "false"},
    {"gradient_checkpointing_kwargs.every_n_layers", VP_KEY_INT, NULL, .min = 1, .max = 1e6,
     .since = "0.21", .instead = "leave it out: all layers"},
    {"activation_offloading", VP_KEY_WORD, "false", "true|false|legacy|disk|hidden_states"},
    {"layer_offloading", VP_KEY_BOOL, "false"},
    {"selective_checkpointing", VP_KEY_ANY},
    {"optimizer", VP_KEY_TEXT, "adamw_torch_fused",
     VP_HF_OPTIMIZERS
     "|optimi_adamw|ao_adamw_4bit|ao_adamw_8bit|ao_adamw_fp8|adopt_adamw|adamc|"
     "came_pytorch|muon|muon_8bit|scao|dion|sinkgd|polora|flash_adamw|flash_adam|flash_sgd|"
     "flash_sgdw|flash_lion|q_galore_adamw8bit"},
    {"lr_scheduler", VP_KEY_TEXT, NULL, VP_HF_SCHEDULES "|one_cycle|rex"},
    {"optim_args", VP_KEY_ANY},
    {"optim_target_modules", VP_KEY_LIST, .alone = "all_linear"},
    {"lr_groups", VP_KEY_ANY},
    {"embedding_lr", VP_KEY_REAL, .min = 0, .max = 100},
    {"embedding_lr_scale", VP_KEY_REAL, .min = 0, .max = BIG},
    {"learning_rate", VP_KEY_REAL, .min = 0, .max = 100},
    {"max_grad_norm", VP_KEY_REAL, "1.0", .min = 0, .max = BIG},
    {"weight_decay", VP_KEY_REAL, "0.0", .min = 0, .max = 100},
    {"num_epochs", VP_KEY_REAL, "1.0", .min = 0, .max = BIG},
    {"warmup_steps", VP_KEY_INT, .min = 0, .max = BIG},
    {"warmup_ratio", VP_KEY_REAL, .min = 0, .max = 1},
    {"attn_implementation", VP_KEY_TEXT},
    {"chat_template", VP_KEY_TEXT, NULL,
     "alpaca|chatml|mistral_v1|mistral_v2v3|mistral_v3_tekken|mistral_v7_tekken|gemma|cohere|llama3|llama3_2_vision|llama4|phi_3|phi_35|phi_4|deepseek_v2|deepseek_v3|jamba|jinja|qwen_25|qwen3|qwen3_5|falcon_h1|nemotron_h|tokenizer_default|exaone|exaone4|metharme|pixtral|llava|qwen2_vl|gemma3|gemma3n|gemma4|gemma4_unified|command_a|command_a_tool_use|command_a_rag|aya"},
    {"flash_attention", VP_KEY_BOOL, "false"},
    {"sdp_attention", VP_KEY_BOOL, "false"},
    {"eager_attention", VP_KEY_BOOL, "false"},
    {"flex_attention", VP_KEY_BOOL, "false"},
    {"xformers_attention", VP_KEY_BOOL, "false"},
    {"adapter", VP_KEY_WORD, NULL, "lora|qlora|llama-adapter|mixlora"},
    {"load_in_8bit", VP_KEY_BOOL, "false"},
    {"load_in_4bit", VP_KEY_BOOL, "false"},
    /* what the loader's own BitsAndBytesConfig is changed by */
    {"bnb_config_kwargs", VP_KEY_MAP},
    {"bnb_config_kwargs.bnb_4bit_use_double_quant", VP_KEY_BOOL, "true"},
    {"lora_r", VP_KEY_INT, NULL, .min = 1, .max = 1e6},
    {"lora_alpha", VP_KEY_INT, NULL, .min = 1, .max = 1e6},
    {"lora_dropout", VP_KEY_REAL, "0.0", .min = 0, .max = 1},
    {"lora_target_modules", VP_KEY_LIST},
    {"lora_modules_to_save", VP_KEY_LIST},
    {"lora_target_linear", VP_KEY_BOOL, "false"},
    {"unsloth_cross_entropy_loss", VP_KEY_BOOL, "false"},
    {"unsloth_lora_mlp", VP_KEY_BOOL, "false"},
    {"unsloth_lora_qkv", VP_KEY_BOOL, "false"},
    {"unsloth_lora_o", VP_KEY_BOOL, "false"},
    {"unsloth_rms_norm", VP_KEY_BOOL, "false"},
    {"unsloth_rope", VP_KEY_BOOL, "false"},
    {"chunked_cross_entropy", VP_KEY_BOOL, "false"},
    {"chunked_cross_entropy_num_chunks", VP_KEY_INT, "8", .min = 1, .max = 1e6},
    {"tiled_mlp", VP_KEY_BOOL, "false"},
    {"plugins", VP_KEY_LIST},
    {"liger_rope", VP_KEY_BOOL, "false"},
    {"liger_rms_norm", VP_KEY_BOOL, "false"},
    {"liger_glu_activation", VP_KEY_BOOL, "false"},
    {"liger_swiglu", VP_KEY_BOOL, .until = "0.5", .instead = "liger_glu_activation",
     .warned = true},
    {"liger_rms_norm_gated", VP_KEY_BOOL, "false"},
    {"liger_layer_norm", VP_KEY_BOOL, "false"},
    {"liger_use_token_scaling", VP_KEY_BOOL, "false"},
    {"liger_cross_entropy", VP_KEY_BOOL, "false"},
    {"liger_fused_linear_cross_entropy", VP_KEY_BOOL, "false"},
    {"cut_cross_entropy", VP_KEY_BOOL, "false"},
    {"deepspeed", VP_KEY_ANY, .opens = "deepspeed"},
    {"fsdp", VP_KEY_ANY},
    {"fsdp_version", VP_KEY_INT, NULL, .min = 1, .max = 2},
    {"fsdp_config", VP_KEY_MAP},
    {"fsdp_config.fsdp_version", VP_KEY_INT, NULL, .min = 1, .max = 2},
    {"fsdp_config.offload_params", VP_KEY_BOOL, "false"},
    {"fsdp_config.fsdp_offload_params", VP_KEY_BOOL},
    {"fsdp_config.reshard_after_forward", VP_KEY_BOOL, "true", .within = true},
    {"fsdp_config.activation_checkpointing", VP_KEY_BOOL, "false"},
    {"fsdp_config.cpu_ram_efficient_loading", VP_KEY_BOOL},
    {"fsdp_config.state_dict_type", VP_KEY_WORD, NULL,
     "FULL_STATE_DICT|LOCAL_STATE_DICT|SHARDED_STATE_DICT"},
    {"fsdp_config.auto_wrap_policy", VP_KEY_WORD, NULL, "TRANSFORMER_BASED_WRAP|SIZE_BASED_WRAP"},
    {"fsdp_config.transformer_layer_cls_to_wrap", VP_KEY_TEXT},
    {"rl", VP_KEY_TEXT, NULL, "dpo|gdpo|grpo|ipo|orpo|kto|simpo|ebft"},
    {"eval_batch_size", VP_KEY_INT, "1*micro_batch_size", .min = 1, .max = BIG},
    {"val_set_size", VP_KEY_REAL, "0.0", .min = 0, .max = BIG},
    {"test_datasets", VP_KEY_ANY},
    {"gc_steps", VP_KEY_INT, NULL, .min = -1, .max = BIG},
    {"gc_collect_steps", VP_KEY_INT, NULL, .min = -1, .max = BIG},
    {"torch_empty_cache_steps", VP_KEY_INT, NULL, .min = 1, .max = BIG},
    {"torch_compile", VP_KEY_WORD, NULL, "true|false|auto|null"},
    {"auto_find_batch_size", VP_KEY_BOOL, "false"},
    {"world_size", VP_KEY_INT},
    {"evaluation_strategy", VP_KEY_TEXT, .until = "0.5", .instead = "eval_strategy",
     .warned = true},
    {"max_packed_sequence_len", VP_KEY_INT, .until = "0.1", .instead = "sample_packing",
     .if_true = true},
    {"rope_scaling", VP_KEY_ANY, .until = "0.4",
     .instead = "overrides_of_model_config.rope_parameters", .if_true = true},
    {"noisy_embedding_alpha", VP_KEY_REAL, .until = "0.3", .instead = "neftune_noise_alpha",
     .warned = true},
    {"dpo_beta", VP_KEY_REAL, .until = "0.5", .instead = "rl_beta", .warned = true},
    {"s2_attention", VP_KEY_BOOL, .until = "0.17", .instead = "attn_implementation",
     .if_true = true},
    {"flash_attn_rms_norm", VP_KEY_BOOL, .until = "0.17", .instead = "liger_rms_norm",
     .if_true = true},
};

static const vp_section axolotl_sections[] = {
    {"", VP_STRANGERS_DROPPED,
     "strict:b resume_from_checkpoint auto_resume_from_checkpoints:b resize_token_embeddings_to_32x:b "
     "mean_resizing_embeddings:b shrink_embeddings:b embeddings_skip_upcast:b reinit_weights:b trainer_cls "
     "trl vllm ebft qat quantization reward_model:b dynamic_checkpoint process_reward_model:b "
     "center_rewards_coefficient:r num_labels:i dpo_use_weighting:b dpo_label_smoothing:r "
     "precompute_ref_log_probs:b dpo_use_liger_kernel:b dpo_padding_free:b dpo_loss_type "
     "dpo_loss_weights datasets shuffle_merged_datasets:b "
     "shuffle_before_merging_datasets:b dataset_prepared_path dataset_shard_num:i dataset_shard_idx:i "
     "skip_prepare_dataset:b num_dataset_shards_to_save:i pretraining_dataset dataset_processes:i "
     "dataset_num_proc:i dataset_exact_deduplication:b dataset_keep_in_memory:b dataloader_pin_memory:b "
     "dataloader_num_workers:i dataloader_prefetch_factor:i dataloader_drop_last:b accelerator_config "
     "remove_unused_columns:b push_dataset_to_hub hf_use_auth_token:b device device_map local_rank:i ddp:b "
     "seed:i ddp_timeout:i ddp_bucket_cap_mb:i ddp_broadcast_buffers:b ddp_find_unused_parameters:b "
     "do_causal_lm_eval:b eval_causal_lm_metrics do_bench_eval:b bench_dataset bench_split "
     "metric_for_best_model greater_is_better:b loss_watchdog_threshold:r loss_watchdog_patience:i "
     "fp8_config fp8_enable_fsdp_float8_all_gather:b freeze_mm_modules:b unfrozen_parameters "
     "excess_length_strategy min_sample_len:i max_prompt_len:i sample_packing_group_size:i "
     "sample_packing_bin_size:i sample_packing_sequentially:b sample_packing_mp_start_method "
     "pad_to_multiple_of:i curriculum_sampling:b multipack_real_batches:b batch_flattening use_pose:b "
     "pose_split_on_token_ids pose_max_context_len:i pose_num_chunks:i pretrain_multipack_buffer_size:i "
     "pretrain_multipack_attn:b pretraining_sample_concatenation:b streaming:b "
     "streaming_multipack_buffer_size:i flex_attn_compile_kwargs flash_attn_cross_entropy:b "
     "flash_attn_fuse_mlp:b flash_optimum:b sage_attention:b gemma4_hybrid_attn_impl:b "
     "large_head_attention flash_attn_d512:b sdpa_varlen:b fused_attn_kernel:b experts_implementation "
     "ple_cpu_offload:b quantize_moe_experts:b scaling_softmax:b scaling_softmax_factor:r "
     "scaling_softmax_bias:r lora_mlp_kernel:b lora_qkv_kernel:b lora_o_kernel:b lora_embedding_kernel:b "
     "use_eaft:b eaft_alpha:r eaft_k:i tiled_mlp_num_shards:i tiled_mlp_use_original_mlp:b "
     "llama4_linearized_experts:b deepcompile:b fp32_norms:b fp32_norm_classes "
     "fsdp_final_state_dict_type val_set_size:r dp_shard_size:i dp_replicate_size:i "
     "sequence_parallel_degree:i context_parallel_size:i heads_k_stride:i ring_attn_func "
     "tensor_parallel_size:i special_tokens tokens added_tokens_overrides torch_compile_backend "
     "torch_compile_mode torch_compile_options max_steps:i eval_steps:r evals_per_epoch:i eval_strategy "
     "save_steps:r saves_per_epoch:i save_strategy save_total_limit:i save_first_step:b logging_steps:i "
     "early_stopping_patience:i load_best_model_at_end:b save_only_model:b use_tensorboard:b "
     "profiler_steps:i profiler_steps_start:i include_tokens_per_second:b include_tkps:b "
     "neftune_noise_alpha:r orpo_alpha:r simpo_gamma:r cpo_alpha:r kto_desirable_weight:r "
     "kto_undesirable_weight:r rl_beta:r max_memory gpu_memory_limit low_cpu_mem_usage:b "
     "chat_template_jinja chat_template_kwargs eot_tokens default_system_message "
     "fix_untrained_tokens is_preprocess:b preprocess_iterable:b is_falcon_derived_model:b "
     "is_llama_derived_model:b is_mistral_derived_model:b is_qwen_derived_model:b generate_samples:b "
     "num_generation_samples:i generation_max_new_tokens:i generation_temperature:r generation_top_p:r "
     "generation_top_k:i generation_prompt_ratio:r generation_do_sample:b eval_table_size:i "
     "eval_max_new_tokens:i dpo_use_logits_to_keep:b dpo_generate_during_eval:b dpo_norm_loss:b rpo_alpha:r "
     "overrides_of_model_config overrides_of_model_kwargs type_of_model revision_of_model "
     "model_type use_mlflow:b mlflow_tracking_uri mlflow_experiment_name mlflow_run_name "
     "hf_mlflow_log_artifacts:b lisa_n_layers:i lisa_step_interval:i lisa_layers_attribute use_wandb:b "
     "wandb_name wandb_run_id wandb_mode wandb_project wandb_entity wandb_watch wandb_log_model "
     "use_comet:b comet_api_key comet_workspace comet_project_name comet_experiment_key comet_mode "
     "comet_online:b comet_experiment_config gradio_title gradio_share:b gradio_server_name "
     "gradio_server_port:i gradio_max_new_tokens:i gradio_temperature:r use_ray:b ray_run_name "
     "ray_num_workers:i resources_per_worker use_otel_metrics:b otel_metrics_host otel_metrics_port:i "
     "use_trackio:b trackio_project_name trackio_run_name trackio_space_id base_model_config "
     "cls_model_config tokenizer_config tokenizer_use_fast:b tokenizer_legacy:b "
     "tokenizer_use_mistral_common:b tokenizer_type processor_type processor_kwargs "
     "tokenizer_save_jinja_files:b trust_remote_code:b experimental_skip_move_to_device:b use_kernels:b "
     "model_quantization_config model_quantization_config_kwargs use_onebitllms:b output_dir "
     "hub_model_id hub_strategy hub_revision save_safetensors:b image_size image_resize_algorithm "
     "role_boundaries lora_model_dir lora_fan_in_fan_out:b lora_target_parameters "
     "lora_rank_pattern lora_alpha_pattern peft_layers_to_transform "
     "peft_layers_pattern peft peft_use_dora:b peft_use_rslora:b peft_layer_replication "
     "peft_init_lora_weights peft_trainable_token_indices peft_ensure_weight_tying:b "
     "peft_autocast_adapter_dtype:b qlora_sharded_model_loading:b lora_on_cpu:b gptq:b "
     "loraplus_lr_ratio:r loraplus_lr_embedding:r merge_lora:b merge_method relora:b relora_prune_ratio:r "
     "relora_prune_method relora_cpu_offload:b relora_steps relora_warmup_steps "
     "train_on_inputs:b group_by_length:b "
     "torchdistx_path lr_scheduler_kwargs lr_quadratic_warmup:b "
     "cosine_min_lr_ratio:r cosine_constant_lr_ratio:r lr_div_factor:r adam_epsilon:r "
     "adam_epsilon2:r adam_beta1:r adam_beta2:r adam_beta3:r dion_lr:r dion_momentum:r dion_rank_fraction:r "
     "dion_rank_multiple_of:i qgalore_rank:i jagged_restart_steps:i jagged_restart_warmup_steps:i "
     "jagged_restart_anneal_steps:i "
     "liger_kernel_impl dense_mixer diffusion expert_parallel_size grokfast_alpha grokfast_lamb "
     "kd_trainer kd_ce_alpha kd_alpha kd_temperature kd_beta kd_normalize_topk llmcompressor "
     "lm_eval_tasks lm_eval_batch_size spectrum_top_fraction spectrum_model_name use_scattermoe "
     "use_sonicmoe expert_backend mora swanlab_project use_swanlab base_model_ignore_patterns "
     "adapter_lr model_revision model_config model_kwargs "
     /* of 0.20 and 0.21 */
     "balance_labels:b diffusion_lm dpo_ld_alpha:r eval_on_start:b export fa_varlen_kwargs_in_collator:b "
     "full_determinism:b label_balance_window_optim_steps:i logging_nan_inf_filter:b "
     "lora_fp32_gradients:b nf4_backend sync_profiler_start_step:i sync_profiler_steps:i "
     "torch_compile_regional:b use_dft:b mixlora_expert_lora_alpha:i mixlora_expert_lora_dropout:r "
     "mixlora_expert_lora_r:i mixlora_jitter_noise:r mixlora_num_experts:i "
     "mixlora_router_aux_loss_coef:r mixlora_router_init_range:r mixlora_top_k:i "
     "total_num_tokens:i total_supervised_tokens:i sample_packing_eff_est:r expert_parallel_backend "
     "expert_parallel_num_nvl_bytes expert_parallel_num_rdma_bytes "
     "expert_parallel_token_capacity expert_parallel_fallback_on_unsupported hatchery "
     "kd_online_server_base_url kd_online_topk kd_online_server kd_online_timeout "
     "kd_temperature_min nonexpert_quantization moe_grouped_backend moe_dequant_chunk_size "
     "moe_bnb_fast use_dsv4_kernels use_glm_dsa_kernels dsv4_fp8_nonexpert_mode "
     "dsv4_fp8_lora_kernel dsv4_shared_mlp_lora_kernel dsv4_bf16_all dsv4_fp4_grouped_mode "
     "gemma4_fp8_nonexpert gemma4_nf4_nonexpert nvfp4_merge_aware nvfp4_merge_aware_start_step "
     "lm_eval_post_train lm_eval_model nemo_gym_enabled nemo_gym_dir nemo_gym_auto_clone "
     "nemo_gym_config_paths nemo_gym_head_port nemo_gym_server_timeout nemo_gym_verify_timeout "
     "nemo_gym_run_timeout nemo_gym_datasets nemo_gym_auto_start nemo_gym_model_name "
     "nemo_gym_multi_turn nemo_gym_max_turns swanlab_experiment_name swanlab_description "
     "swanlab_mode swanlab_workspace swanlab_api_key swanlab_log_model swanlab_web_host "
     "swanlab_api_host swanlab_lark_webhook_url swanlab_lark_secret swanlab_log_completions "
     "swanlab_completion_log_interval swanlab_completion_max_buffer qgalore_update_proj_gap:i "
     "qgalore_scale:r qgalore_proj_type qgalore_proj_quant:b qgalore_proj_bits:i "
     "qgalore_proj_group_size:i qgalore_cos_threshold:r qgalore_gamma_proj:i qgalore_queue_size:i"},
    VP_SYNC_SECTIONS,
    {"gradient_checkpointing_kwargs", VP_STRANGERS_REFUSED,
     "preserve_rng_state determinism_check debug early_stop context_fn offload"},
    {"fsdp_config", VP_STRANGERS_DROPPED,
     "version:i sharding_strategy forward_prefetch:b backward_prefetch limit_all_gathers:b "
     "sync_module_states:b cpu_offload_pin_memory use_orig_params:b final_state_dict_type "
     "min_num_params:i mixed_precision_policy fsdp_sync_module_states:b "
     "fsdp_cpu_ram_efficient_loading:b fsdp_use_orig_params:b fsdp_state_dict_type "
     "fsdp_auto_wrap_policy fsdp_transformer_layer_cls_to_wrap fsdp_reshard_after_forward:b "
     "fsdp_activation_checkpointing:b fsdp_sharding_strategy fsdp_limit_all_gathers:b "
     "fsdp_final_state_dict_type fsdp_backward_prefetch fsdp_forward_prefetch:b"},
};

#define LIGER "axolotl.integrations.liger.LigerPlugin"
#define CUTS  "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"

/* Liger's loss, and its other kernels, all or none. */
#define LIGERS(word, others) \
    {VP_SETTING_LOSS, word, "chunked_cross_entropy", "false", "method=sft"}, \
        {VP_SETTING_LOSS, word, "plugins", VP_HAS(LIGER), "method=sft"}, \
        {VP_SETTING_LOSS, word, "liger_fused_linear_cross_entropy", "true", "method=sft"}, \
        {VP_SETTING_LOSS, word, "liger_rope", others, "method=sft"}, \
        {VP_SETTING_LOSS, word, "liger_rms_norm", others, "method=sft"}, \
    { \
        VP_SETTING_LOSS, word, "liger_glu_activation", others, "method=sft" \
    }

/* Its loss with some of its other kernels: without any one of them. What is said under one condition is one group. */
#define SOME(key, value, when) \
    { \
        VP_SETTING_LOSS, "liger", key, value, when, .read_only = true \
    }
/* What Liger is asked for, where the loss is none of its own. */
#define NO_LIGER(key, value) \
    { \
        VP_ALWAYS, VP_OFF, key, value, "loss!=liger|liger-all" \
    }
#define WITHOUT_ROPE "method=sft"
#define WITHOUT_NORM "target=axolotl,method=sft"
#define WITHOUT_MLP  "method=sft,target=axolotl"

static const vp_saying axolotl_says[] = {
    {VP_ALWAYS, NULL, "base_model", "$model"},
    {VP_SETTING_METHOD, "sft", "rl", NULL},
    {VP_SETTING_METHOD, "dpo", "rl", "dpo"},
    {VP_SETTING_MICRO_BATCH, "*", "micro_batch_size", "$"},
    {VP_SETTING_ACCUMULATION, "*", "gradient_accumulation_steps", "$"},
    {VP_SETTING_ACCUMULATION, "*", "batch_size", "$each", .read_only = true}, /* of one process */
    VP_SYNC_BY_ACCELERATE(),
    {VP_SETTING_SEQ, "*", "sequence_len", "$"},
    {VP_SETTING_PRECISION, "bf16-amp", "bf16", "true"},
    {VP_SETTING_PRECISION, "bf16-amp", "float32", "false"},
    {VP_SETTING_PRECISION, "bf16-amp", "fp16", "false"},
    {VP_SETTING_PRECISION, "bf16-mixed", "bf16", "true"},
    {VP_SETTING_PRECISION, "bf16-mixed", "float32", "true"},
    {VP_SETTING_PRECISION, "bf16-mixed", "fp16", "false"},
    {VP_SETTING_PRECISION, "fp32", "bf16", "false"},
    {VP_SETTING_PRECISION, "fp32", "float32", "true"},
    {VP_SETTING_PRECISION, "fp32", "fp16", "false"},
    {VP_SETTING_PRECISION, "fp16-mixed", "bf16", "false"},
    {VP_SETTING_PRECISION, "fp16-mixed", "float32", "true"},
    {VP_SETTING_PRECISION, "fp16-mixed", "fp16", "true"},
    {VP_SETTING_PRECISION, "fp16-amp", "bf16", "false", "tuning!=full"},
    {VP_SETTING_PRECISION, "fp16-amp", "float32", "false", "tuning!=full"},
    {VP_SETTING_PRECISION, "fp16-amp", "fp16", "true", "tuning!=full"},
    {VP_SETTING_PRECISION, "bf16-amp", "bf16", "auto", .read_only = true},
    {VP_SETTING_OPTIMIZER, "sgd_momentum", "optimizer", "sgd"},
    {VP_SETTING_OPTIMIZER, "sgd_momentum", "optim_args", "momentum=0.9"},
    {VP_SETTING_OPTIMIZER, "sgd_momentum", "optimizer", "sgd", .read_only = true},
    {VP_SETTING_OPTIMIZER, "sgd_momentum", "optim_args", "$with:momentum", .read_only = true},
    VP_PROJECTS("optimizer"),
    {VP_SETTING_OPTIMIZER, "W", "optimizer", "$", VP_NOT_TRAINERS},
    {VP_SETTING_RECOMPUTE, "full", "gradient_checkpointing", "offload", .read_only = true},
    {VP_SETTING_RECOMPUTE, "none", "gradient_checkpointing", "false"},
    {VP_SETTING_RECOMPUTE, "every:N", "gradient_checkpointing", "true", .since = "0.21"},
    {VP_SETTING_RECOMPUTE, "every:N", "gradient_checkpointing_kwargs.use_reentrant", "false",
     .since = "0.21"},
    {VP_SETTING_RECOMPUTE, "every:N", "gradient_checkpointing_kwargs.every_n_layers", "$",
     .since = "0.21"},
    {VP_SETTING_RECOMPUTE, "full", "gradient_checkpointing", "true"},
    {VP_SETTING_RECOMPUTE, "full", "gradient_checkpointing_kwargs.use_reentrant", "false"},
    {VP_SETTING_RECOMPUTE, "full", "gradient_checkpointing_kwargs.every_n_layers", NULL},
    {VP_SETTING_RECOMPUTE, "full:reentrant", "gradient_checkpointing", "true"},
    {VP_SETTING_RECOMPUTE, "full:reentrant", "gradient_checkpointing_kwargs.use_reentrant", "true"},
    {VP_SETTING_RECOMPUTE, "full:reentrant", "gradient_checkpointing_kwargs.every_n_layers", NULL},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "none", "activation_offloading", "false"},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "cpu", "activation_offloading", "true",
     "recompute=full|full:reentrant|every:N"},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "cpu", "gradient_checkpointing", "offload", .read_only = true},
    {VP_SETTING_LOSS, "full", "chunked_cross_entropy", "false"},
    {VP_SETTING_LOSS, "full", "liger_fused_linear_cross_entropy", NULL},
    {VP_SETTING_LOSS, "chunked", "chunked_cross_entropy", "true", "method=sft"},
    LIGERS("liger", "false"),
    LIGERS("liger-all", "true"),
    SOME("plugins", VP_HAS(LIGER), WITHOUT_ROPE),
    SOME("liger_fused_linear_cross_entropy", "true", WITHOUT_ROPE),
    SOME("liger_rope", "false", WITHOUT_ROPE),
    SOME("plugins", VP_HAS(LIGER), WITHOUT_NORM),
    SOME("liger_fused_linear_cross_entropy", "true", WITHOUT_NORM),
    SOME("liger_rms_norm", "false", WITHOUT_NORM),
    SOME("plugins", VP_HAS(LIGER), WITHOUT_MLP),
    SOME("liger_fused_linear_cross_entropy", "true", WITHOUT_MLP),
    SOME("liger_glu_activation", "false", WITHOUT_MLP),
    {VP_SETTING_ATTENTION, "eager", "attn_implementation", "eager", .since = "0.17"},
    {VP_SETTING_ATTENTION, "sdpa", "attn_implementation", "sdpa", .since = "0.17"},
    {VP_SETTING_ATTENTION, "flash2", "attn_implementation", "flash_attention_2", .since = "0.17"},
    {VP_SETTING_ATTENTION, "flash3", "attn_implementation", "flash_attention_3", .since = "0.17"},
    {VP_SETTING_ATTENTION, "flex", "attn_implementation", "flex_attention", .since = "0.17"},
    {VP_SETTING_ATTENTION, "flash2", "flash_attention", "true", .read_only = true},
    {VP_SETTING_ATTENTION, "sdpa", "sdp_attention", "true", .read_only = true},
    {VP_SETTING_ATTENTION, "eager", "eager_attention", "true", .read_only = true},
    {VP_SETTING_ATTENTION, "flex", "flex_attention", "true", .read_only = true},
    {VP_SETTING_CLIP_NORM, "R", "max_grad_norm", "$"},
    {VP_SETTING_PARALLEL, "none", "deepspeed", "null"},
    {VP_SETTING_PARALLEL, "none", "fsdp_config", NULL},
    {VP_SETTING_PARALLEL, "none", "fsdp", NULL},
    {VP_SETTING_PARALLEL, "ddp", "deepspeed", "null"},
    {VP_SETTING_PARALLEL, "ddp", "fsdp_config", NULL},
    {VP_SETTING_PARALLEL, "ddp", "fsdp", NULL},
    {VP_SETTING_PARALLEL, "zero1", "deepspeed", "$file:ds_config.json"},
    {VP_SETTING_PARALLEL, "zero2", "deepspeed", "$file:ds_config.json"},
    {VP_SETTING_PARALLEL, "zero3", "deepspeed", "$file:ds_config.json"},
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp_version", "2"},
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp_config.reshard_after_forward", "true"},
    /* the first version is never written; its keys have a prefix in older files. Without a number it is the first before 0.20, from which
     * on there is none (schemas/validation.py, check_fsdp_version_in_fsdp_config()); the list is the first's alone */
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp_config.fsdp_version", "2", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp", "fsdp", "$set", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp", "fsdp_version", NULL, .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp", "fsdp_config.fsdp_version", NULL, .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp", "$set", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp_version", "2", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp", "fsdp_version", "1", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp_config", "$set", .since = "0.20", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp", NULL, .since = "0.20", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp_version", NULL, .since = "0.20", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp_config.fsdp_version", NULL, .since = "0.20",
     .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp", "fsdp_config", "$set", .until = "0.20", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp", "fsdp", NULL, .until = "0.20", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp", "fsdp_version", NULL, .until = "0.20", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp", "fsdp_config.fsdp_version", NULL, .until = "0.20",
     .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp_config", "$set", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp_version", "2", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp", "fsdp_config.fsdp_version", "1", .read_only = true},
    {VP_SETTING_OFFLOAD_PARAMS, "cpu", "fsdp_config.fsdp_offload_params", "true",
     "parallel=fsdp|fsdp2", .read_only = true},
    {VP_SETTING_OFFLOAD_PARAMS, "cpu", "fsdp_config.offload_params", "true", "parallel=fsdp",
     .read_only = true},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", "fsdp_config.fsdp_offload_params", "true",
     "parallel=fsdp|fsdp2", .read_only = true},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", "fsdp_config.offload_params", "true", "parallel=fsdp",
     .read_only = true},
    {VP_SETTING_OFFLOAD_PARAMS, "none", "fsdp_config.offload_params", "false",
     "parallel=fsdp2,offload_optimizer=none"},
    {VP_SETTING_OFFLOAD_PARAMS, "cpu", "fsdp_config.offload_params", "true",
     "parallel=fsdp2,offload_optimizer=cpu"},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "none", "fsdp_config.offload_params", "false",
     "parallel=fsdp2,offload_params=none"},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", "fsdp_config.offload_params", "true",
     "parallel=fsdp2,offload_params=cpu"},
    {VP_ALWAYS, NULL, "fsdp_config.auto_wrap_policy", "TRANSFORMER_BASED_WRAP", "parallel=fsdp2"},
    {VP_ALWAYS, NULL, "fsdp_config.state_dict_type", "SHARDED_STATE_DICT", "parallel=fsdp2"},
    {VP_ALWAYS, NULL, "fsdp_config.cpu_ram_efficient_loading", "true", "parallel=fsdp2"},
    {VP_SETTING_TUNING, "full", "adapter", "null"},
    {VP_SETTING_TUNING, "full", "load_in_4bit", "false"},
    {VP_SETTING_TUNING, "lora", "adapter", "lora"},
    {VP_SETTING_TUNING, "lora", "load_in_4bit", "false"},
    {VP_SETTING_TUNING, "qlora", "adapter", "qlora"},
    {VP_SETTING_TUNING, "qlora", "load_in_4bit", "true"},
    {VP_SETTING_QUANT, "nf4", "bnb_config_kwargs.bnb_4bit_use_double_quant", "false",
     "tuning=qlora"},
    {VP_SETTING_QUANT, "nf4-dq", "bnb_config_kwargs.bnb_4bit_use_double_quant", "true",
     "tuning=qlora"},
    {VP_SETTING_LORA_R, "N", "lora_r", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_ALPHA, "N", "lora_alpha", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_DROPOUT, "R", "lora_dropout", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_SAVE, "none", "lora_modules_to_save", NULL, "tuning=lora|qlora"},
    {VP_SETTING_LORA_SAVE, "L", "lora_modules_to_save", "$", "tuning=lora|qlora,lora_save!=none"},
    {VP_SETTING_LORA_TARGETS, "all-linear", "lora_target_linear", "true", "tuning=lora|qlora"},
    {VP_SETTING_LORA_TARGETS, "L", "lora_target_modules", "$",
     "tuning=lora|qlora,lora_targets!=all-linear"},
    {VP_SETTING_LORA_TARGETS, "L", "lora_target_linear", "false",
     "tuning=lora|qlora,lora_targets!=all-linear"},
    {VP_SETTING_EVAL_BATCH, "N", "val_set_size", "0.05"},
    {VP_SETTING_EVAL_BATCH, "N", "eval_batch_size", "$"},
    {VP_SETTING_EVAL_BATCH, "N", "val_set_size", "$nonzero", .read_only = true},
    {VP_SETTING_EVAL_BATCH, "N", "eval_batch_size", "$", .read_only = true},
    {VP_SETTING_EVAL_BATCH, "none", "val_set_size", "0.0"},
    {VP_SETTING_EVAL_BATCH, "none", "test_datasets", NULL},
    {VP_SETTING_EVAL_BATCH, "N", "test_datasets", "$set", .read_only = true},
    {VP_SETTING_EVAL_BATCH, "N", "eval_batch_size", "$", .read_only = true},
    {VP_ALWAYS, VP_OFF, "load_in_8bit", "false"},
    {VP_ALWAYS, NULL, "sample_packing", "false"},
    {VP_ALWAYS, NULL, "pad_to_sequence_len", "true"},
    {VP_ALWAYS, VP_OFF, "tiled_mlp", "false"},
    {VP_ALWAYS, VP_OFF, "auto_find_batch_size", "false"},
    /* what cuts the weights in another way than is meant */
    {VP_ALWAYS, VP_OFF, "fsdp", NULL, "parallel!=fsdp"},
    {VP_ALWAYS, VP_OFF, "fsdp_version", NULL, "parallel!=fsdp|fsdp2"},
    {VP_ALWAYS, VP_OFF, "fsdp_config", NULL, "parallel!=fsdp|fsdp2"},
    {VP_ALWAYS, VP_OFF, "deepspeed", NULL, "parallel=fsdp|fsdp2"},
    {VP_ALWAYS, VP_OFF, "fsdp_config.fsdp_offload_params", NULL,
     "parallel=fsdp2,offload_params=none"},
    /* a loss that no setting says, the plugin of one that is on unless it is told otherwise, and an old name that does not stand beside
     * the new one */
    {VP_ALWAYS, VP_OFF, "plugins", VP_WITHOUT(CUTS)},
    {VP_ALWAYS, VP_OFF, "cut_cross_entropy", NULL},
    {VP_ALWAYS, VP_OFF, "liger_cross_entropy", NULL},
    {VP_ALWAYS, VP_OFF, "liger_swiglu", NULL},
    NO_LIGER("plugins", VP_WITHOUT(LIGER)),
    NO_LIGER("liger_fused_linear_cross_entropy", NULL),
    NO_LIGER("liger_rope", NULL),
    NO_LIGER("liger_rms_norm", NULL),
    NO_LIGER("liger_rms_norm_gated", NULL),
    NO_LIGER("liger_layer_norm", NULL),
    NO_LIGER("liger_glu_activation", NULL),
    NO_LIGER("liger_use_token_scaling", NULL),
};

/* utils/schemas/validation.py: check_cross_entropy_conflicts(). */
#define ONE_LOSS(a, b) \
    { \
        a, "=true", b, "=true", VP_ERROR, "and " b ": axolotl refuses more than one loss", \
            "one of them" \
    }

/* What a plugin alone reads: lost without it where it is on. */
#define OF_PLUGIN(key, is_without, plugin) \
    {key, \
     "=true", \
     "plugins", \
     is_without, \
     VP_ERROR, \
     "counts only with its plugin: dropped", \
     "plugins: [" plugin "]"}, \
    { \
        key, "=false", "plugins", is_without, VP_NOTE, \
            "counts only with its plugin: off either way" \
    }
#define OF_LIGER(key) OF_PLUGIN(key, "!~liger", LIGER)

/* axolotl/utils/schemas/validation.py, check_deprecated_unsloth_fields() */
#define OF_UNSLOTH(key) \
    { \
        key, "=true", NULL, NULL, VP_ERROR, \
            "axolotl refuses it: it has no code of Unsloth's any more", \
            "lora_mlp_kernel, lora_qkv_kernel, lora_o_kernel" \
    }

/* core/trainers/mixins/optimizer.py: groups by learning rate; those of optimizers that project are made by Trainer. */
#define GROUPS(key) \
    {key, \
     "set", \
     "optimizer", \
     "=adamw_torch|rmsprop|adagrad", \
     VP_NOTE, \
     "makes groups that are stepped one after the other: what a step makes is counted as of one, which takes more", \
     NULL}, \
    { \
        key, "set", "optimizer", \
            "=" VP_LAYERWISE "|galore_adamw|galore_adamw_8bit|galore_adafactor|apollo_adamw", \
            VP_WARNING, "has no effect: this optimizer has groups of its own", NULL \
    }

static const vp_rule axolotl_rules[] = {
    OF_UNSLOTH("unsloth_cross_entropy_loss"),
    OF_UNSLOTH("unsloth_lora_mlp"),
    OF_UNSLOTH("unsloth_lora_qkv"),
    OF_UNSLOTH("unsloth_lora_o"),
    OF_UNSLOTH("unsloth_rms_norm"),
    OF_UNSLOTH("unsloth_rope"),
    {"bf16", "=true", "fp16", "=true", VP_ERROR, "bf16 and fp16 exclude each other", "fp16: false"},
    {"adapter", "=qlora", "load_in_4bit", "=false", VP_ERROR, "qlora wants 4-bit weights",
     "load_in_4bit: true"},
    {"adapter", "=qlora", "load_in_8bit", "=true", VP_ERROR, "qlora does not take 8-bit weights",
     "load_in_8bit: false"},
    {"adapter", "=lora|qlora", "lora_r", "unset", VP_ERROR, "an adapter without a rank",
     "lora_r: 16"},
    {"lora_r", "set", "adapter", "unset", VP_WARNING,
     "trains no adapter while adapter names none: all weights are trained", "adapter: lora"},
    {"load_in_4bit", "=true", "adapter", "=lora", VP_WARNING,
     "packs nothing beside lora: the weights are loaded whole, and made fp32", "adapter: qlora"},
    {"load_in_4bit", "=true", "adapter", "unset", VP_ERROR, "quantised weights cannot be trained",
     "adapter: qlora"},
    {"load_in_8bit", "=true", "adapter", "unset", VP_ERROR, "quantised weights cannot be trained",
     "adapter: lora"},
    {"batch_size", "set", "gradient_accumulation_steps", "set", VP_ERROR,
     "and gradient_accumulation_steps exclude each other", "micro_batch_size with accumulation"},
    {"gradient_checkpointing", "=offload", NULL, NULL, VP_WARNING, "is a deprecated spelling",
     "gradient_checkpointing: true and activation_offloading: true"},
    {"gradient_checkpointing", "=offload_disk", NULL, NULL, VP_WARNING, "is a deprecated spelling",
     "gradient_checkpointing: true and activation_offloading: disk"},
    {"activation_offloading", "=true|legacy|disk|hidden_states", "gradient_checkpointing", "=false",
     VP_ERROR, "wants gradient_checkpointing", "gradient_checkpointing: true"},
    {"selective_checkpointing", "set", "gradient_checkpointing", "=false", VP_ERROR,
     "wants gradient_checkpointing", "gradient_checkpointing: true"},
    {"gradient_checkpointing_kwargs", "set", "gradient_checkpointing", "=false", VP_WARNING,
     "has no effect while gradient_checkpointing is false", "gradient_checkpointing: true"},
    OF_LIGER("liger_rope"),
    OF_LIGER("liger_rms_norm"),
    OF_LIGER("liger_rms_norm_gated"),
    OF_LIGER("liger_layer_norm"),
    OF_LIGER("liger_use_token_scaling"),
    OF_LIGER("liger_glu_activation"),
    OF_LIGER("liger_cross_entropy"),
    OF_LIGER("liger_fused_linear_cross_entropy"),
    {"liger_swiglu", "set", "liger_glu_activation", "set", VP_ERROR,
     "is the old name of liger_glu_activation: axolotl refuses both", "liger_glu_activation alone"},
    ONE_LOSS("liger_cross_entropy", "liger_fused_linear_cross_entropy"),
    ONE_LOSS("chunked_cross_entropy", "liger_fused_linear_cross_entropy"),
    ONE_LOSS("chunked_cross_entropy", "liger_cross_entropy"),
    ONE_LOSS("cut_cross_entropy", "liger_fused_linear_cross_entropy"),
    ONE_LOSS("cut_cross_entropy", "liger_cross_entropy"),
    ONE_LOSS("cut_cross_entropy", "chunked_cross_entropy"),
    OF_PLUGIN("cut_cross_entropy", "!~cut_cross_entropy", CUTS),
    {"deepspeed", "set", "fsdp_config", "set", VP_ERROR, "deepspeed and fsdp_config together",
     "one of them"},
    {"fsdp", "set", NULL, NULL, VP_WARNING, "is deprecated", "fsdp_version and fsdp_config", NULL,
     "0.20"},
    VP_PROJECTS_RULES("optimizer", "all_linear"),
    {"optim_target_modules", "=all-linear", NULL, NULL, VP_ERROR,
     "axolotl takes a list, or the word all_linear", "all_linear"},
    {"optimizer", "=ao_adamw_4bit", NULL, NULL, VP_ERROR,
     "axolotl ends with an error: Unhandled optimizer", "adamw_torch_4bit"},
    {"optimizer", "=ao_adamw_8bit", NULL, NULL, VP_ERROR,
     "axolotl ends with an error: Unhandled optimizer", "adamw_torch_8bit"},
    GROUPS("lr_groups"),
    GROUPS("embedding_lr"),
    GROUPS("embedding_lr_scale"),
    {"warmup_steps", ">0", "warmup_ratio", ">0", VP_ERROR, "and warmup_ratio exclude each other",
     "one of them"},
    {"micro_batch_size", "unset", "base_model", "set", VP_WARNING, "not written: 1 sample",
     "micro_batch_size: 1"},
    {"auto_find_batch_size", "=true", NULL, NULL, VP_WARNING,
     "starts again with a smaller batch at every out-of-memory error",
     "auto_find_batch_size: false"},
};

const vp_dialect vp_dialect_axolotl = {
    .name       = "axolotl",
    .library    = "axolotl",
    .version    = "0.21.0",
    .no_scripts = true,
    ARRAY(axolotl_keys, keys),
    ARRAY(axolotl_sections, sections),
    ARRAY(axolotl_says, says),
    ARRAY(axolotl_rules, rules),
    .signs      = "base_model micro_batch_size sequence_len adapter sample_packing num_epochs",
    .flag_signs = "",
    .programs   = "axolotl axolotl.cli.train",
    .options =
        "launcher cloud sweep debug debug_text_only debug_num_examples prompter shard", /* axolotl/cli/main.py, args.py */
    .text_is_number = true,
    .bool_is_number = true,
    .sees_cards     = VP_DATA_PARALLEL,
};
