/* trainers/files/dialect_swift.c: ms-swift's options. Read in ms-swift 4.6, which pins transformers below
 * 5.20. Checkpointing is on unless it is written off; warmup_ratio and torch_dtype are its own. */
#include "trainers/files/target.h"

#define BIG                1e12
#define ARRAY(keys, field) .field = keys, .n_##field = sizeof keys / sizeof *keys

/* swift/arguments/sft_args.py, _check_padding_free() */
#define FLASHES        "flash_attn|flash_attention_2|flash_attention_3|flash_attention_4"
#define PACKS_BY_FLASH "ms-swift refuses it without flash attention"

static const vp_key swift_keys[] = {
    {"model", VP_KEY_TEXT},
    {"tuner_type", VP_KEY_TEXT, "lora"},
    {"train_type", VP_KEY_TEXT, .until = "4.1", .instead = "tuner_type"},
    /* of ms-swift 2 */
    {"sft_type", VP_KEY_TEXT, .until = "3.0", .instead = "tuner_type"},
    {"model_id_or_path", VP_KEY_TEXT, .until = "3.0", .instead = "model"},
    {"template_type", VP_KEY_TEXT, .until = "3.0", .instead = "template"},
    {"custom_train_dataset_path", VP_KEY_ANY, .until = "3.0", .instead = "dataset"},
    {"batch_size", VP_KEY_INT, .until = "3.0", .instead = "per_device_train_batch_size"},
    {"eval_batch_size", VP_KEY_INT, .until = "3.0", .instead = "per_device_eval_batch_size"},
    {"dtype", VP_KEY_TEXT, .until = "3.0", .instead = "torch_dtype"},
    {"use_flash_attn", VP_KEY_ANY, .until = "3.0", .instead = "attn_impl flash_attn"},
    {"lora_target_modules", VP_KEY_ANY, .until = "3.0", .instead = "target_modules"},
    {"lora_dropout_p", VP_KEY_REAL, .until = "3.0", .instead = "lora_dropout"},
    {"quantization_bit", VP_KEY_INT, .until = "3.0", .instead = "quant_bits"},
    {"bnb_4bit_comp_dtype", VP_KEY_ANY, .until = "3.0", .instead = "bnb_4bit_compute_dtype"},
    {"custom_val_dataset_path", VP_KEY_ANY, .until = "3.0", .instead = "val_dataset"},
    {"dataset_test_ratio", VP_KEY_ANY, .until = "3.0", .instead = "split_dataset_ratio"},
    {"dataset_seed", VP_KEY_ANY, .until = "3.0", .instead = "data_seed"},
    {"preprocess_num_proc", VP_KEY_ANY, .until = "3.0", .instead = "dataset_num_proc"},
    {"only_save_model", VP_KEY_ANY, .until = "3.0", .instead = "save_only_model"},
    {"lora_modules_to_save", VP_KEY_ANY, .until = "3.0", .instead = "modules_to_save"},
    {"lora_target_regex", VP_KEY_ANY, .until = "3.0", .instead = "target_regex"},
    {"lora_lr_ratio", VP_KEY_ANY, .until = "3.0", .instead = "lorap_lr_ratio"},
    {"lora_bias_trainable", VP_KEY_ANY, .until = "3.0", .instead = "lora_bias"},
    {"additional_trainable_parameters", VP_KEY_ANY, .until = "3.0",
     .instead = "trainable_parameters"},
    {"neftune_alpha", VP_KEY_ANY, .until = "3.0", .instead = "neftune_noise_alpha"},
    {"neftune_backend", VP_KEY_ANY, .until = "3.0", .instead = "nothing"},
    {"use_loss_scale", VP_KEY_ANY, .until = "3.0", .instead = "loss_scale"},
    {"loss_scale_config_path", VP_KEY_ANY, .until = "3.0", .instead = "loss_scale"},
    {"loss_name", VP_KEY_ANY, .until = "3.0", .instead = "loss_type"},
    {"streaming_buffer_size", VP_KEY_ANY, .until = "3.0", .instead = "shuffle_buffer_size"},
    {"streaming_val_size", VP_KEY_ANY, .until = "3.0", .instead = "nothing"},
    {"ref_model_id_or_path", VP_KEY_ANY, .until = "3.0", .instead = "ref_model"},
    {"reward_model_id_or_path", VP_KEY_ANY, .until = "3.0", .instead = "reward_model"},
    {"add_output_dir_suffix", VP_KEY_ANY, .until = "3.0", .instead = "add_version"},
    {"push_hub_strategy", VP_KEY_ANY, .until = "3.0", .instead = "hub_strategy"},
    {"vit_use_gc", VP_KEY_ANY, .until = "3.0", .instead = "vit_gradient_checkpointing"},
    {"self_cognition_sample", VP_KEY_ANY, .until = "3.0", .instead = "dataset"},
    {"train_dataset_mix_ratio", VP_KEY_ANY, .until = "3.0", .instead = "dataset"},
    {"train_dataset_mix_ds", VP_KEY_ANY, .until = "3.0", .instead = "dataset"},
    {"train_dataset_sample", VP_KEY_ANY, .until = "3.0", .instead = "dataset NAME#COUNT"},
    {"val_dataset_sample", VP_KEY_ANY, .until = "3.0", .instead = "val_dataset NAME#COUNT"},
    {"model_cache_dir", VP_KEY_ANY, .until = "3.0", .instead = "model"},
    {"check_dataset_strategy", VP_KEY_ANY, .until = "3.0", .instead = "nothing"},
    {"check_model_is_latest", VP_KEY_ANY, .until = "3.0", .instead = "check_model"},
    {"show_dataset_sample", VP_KEY_ANY, .until = "3.0", .instead = "nothing"},
    {"test_oom_error", VP_KEY_ANY, .until = "3.0", .instead = "nothing"},
    {"deepspeed_config_path", VP_KEY_ANY, .until = "3.0", .instead = "deepspeed"},
    {"device_map_config", VP_KEY_ANY, .until = "3.0", .instead = "device_map"},
    {"device_map_config_path", VP_KEY_ANY, .until = "3.0", .instead = "device_map"},
    {"device_max_memory", VP_KEY_ANY, .until = "3.0", .instead = "max_memory"},
    {"gpu_memory_fraction", VP_KEY_ANY, .until = "3.0", .instead = "nothing"},
    {"train_backend", VP_KEY_ANY, .until = "3.0", .instead = "nothing"},
    {"rescale_image", VP_KEY_ANY, .until = "3.0", .instead = "max_pixels"},
    {"sft_beta", VP_KEY_ANY, .until = "2.5", .instead = "rpo_alpha"},
    /* of ms-swift 3 */
    {"config", VP_KEY_TEXT, .until = "4.1", .instead = "the file alone: swift sft FILE"},
    {"use_liger", VP_KEY_ANY, .until = "3.2", .instead = "use_liger_kernel"},
    {"tools_prompt", VP_KEY_ANY, .until = "3.4", .instead = "agent_template"},
    {"num_infer_workers", VP_KEY_ANY, .until = "3.4", .instead = "vllm_mode"},
    {"vllm_device", VP_KEY_ANY, .until = "3.4", .instead = "vllm_mode"},
    {"mini_batch_size", VP_KEY_ANY, .until = "3.4", .instead = "steps_per_generation"},
    {"fsdp_num", VP_KEY_ANY, .until = "3.7", .instead = "fsdp"},
    {"metric_warmup_step", VP_KEY_ANY, .until = "3.7", .instead = "nothing"},
    {"acc_steps", VP_KEY_ANY, .until = "3.7", .instead = "nothing"},
    {"packing_cache", VP_KEY_ANY, .until = "3.7", .instead = "nothing"},
    {"gc_collect_after_offload", VP_KEY_ANY, .until = "3.10", .instead = "nothing"},
    {"multi_turn_func", VP_KEY_ANY, .until = "3.10", .instead = "multi_turn_scheduler"},
    {"limit_mm_per_prompt", VP_KEY_ANY, .until = "3.10", .instead = "vllm_limit_mm_per_prompt"},
    {"gpu_memory_utilization", VP_KEY_ANY, .until = "3.10",
     .instead = "vllm_gpu_memory_utilization"},
    {"tensor_parallel_size", VP_KEY_ANY, .until = "3.10", .instead = "vllm_tensor_parallel_size"},
    {"torch_dtype", VP_KEY_WORD, NULL, "bfloat16|float16|float32"},
    {"bf16", VP_KEY_BOOL}, /* not written: by torch_dtype */
    {"fp16", VP_KEY_BOOL},
    {"attn_impl", VP_KEY_TEXT, NULL, "flash_attention_3|flash_attention_4|flex_attention"},
    {"max_length", VP_KEY_INT, NULL, .min = 1, .max = BIG},
    {"per_device_train_batch_size", VP_KEY_INT, "1", .min = 1, .max = BIG},
    {"gradient_accumulation_steps", VP_KEY_INT, NULL, .min = 1, .max = BIG},
    {"gradient_checkpointing", VP_KEY_BOOL, "true"},
    {"vit_gradient_checkpointing", VP_KEY_BOOL},
    {"warmup_ratio", VP_KEY_REAL, "0.0", .min = 0, .max = 1},
    {"group_by_length", VP_KEY_BOOL, "false"},
    {"logging_dir", VP_KEY_TEXT},
    {"rlhf_type", VP_KEY_WORD, NULL, "dpo|orpo|simpo|kto|cpo|rm|ppo|grpo|gkd"},
    {"split_dataset_ratio", VP_KEY_REAL, "0.0", .min = 0, .max = 1},
    {"packing", VP_KEY_BOOL, "false"},
    {"padding_free", VP_KEY_BOOL, "false"},
    {"lora_rank", VP_KEY_INT, "8", .min = 1, .max = 1e6},
    {"lora_alpha", VP_KEY_INT, "32", .min = 1, .max = 1e6},
    {"lora_dropout", VP_KEY_REAL, "0.05", .min = 0, .max = 1},
    {"target_modules", VP_KEY_LIST, "all-linear"},
    {"quant_bits", VP_KEY_WORD, NULL, "1|2|3|4|8|float8"},
    {"bnb_4bit_use_double_quant", VP_KEY_BOOL, "true"},
    {"sequence_parallel_size", VP_KEY_INT, "1", .min = 1, .max = 1e6},
    {"fsdp", VP_KEY_TEXT, .opens = "swift_fsdp"},
    {"use_ray", VP_KEY_BOOL, "false"},
    {"lazy_tokenize", VP_KEY_BOOL},
    {"num_labels", VP_KEY_INT},
    /* of its parser's choices */
    {"acc_strategy", VP_KEY_WORD, NULL, "token|seq"},
    {"task_type", VP_KEY_WORD, NULL,
     "causal_lm|seq_cls|embedding|reranker|generative_reranker|decision"},
    {"tuner_backend", VP_KEY_WORD, NULL, "peft|unsloth"},
    {"problem_type", VP_KEY_WORD, NULL,
     "regression|single_label_classification|multi_label_classification"},
    {"truncation_strategy", VP_KEY_WORD, NULL, "delete|left|right|split|null"},
    {"padding_side", VP_KEY_WORD, NULL, "left|right"},
    {"template_backend", VP_KEY_WORD, NULL, "swift|jinja"},
    {"stopping_strategy", VP_KEY_WORD, NULL, "first_exhausted|all_exhausted"},
    {"quant_method", VP_KEY_WORD, NULL, "bnb|hqq|eetq|quanto|fp8|gptq|awq"},
    {"bnb_4bit_compute_dtype", VP_KEY_WORD, NULL, "float16|bfloat16|float32|null"},
    {"bnb_4bit_quant_type", VP_KEY_WORD, NULL, "fp4|nf4"},
    {"packing_strategy", VP_KEY_WORD, NULL, "binpack|sequential"},
    {"lora_bias", VP_KEY_WORD, NULL, "none|all"},
    {"lora_dtype", VP_KEY_WORD, NULL, "float16|bfloat16|float32|null"},
    {"swanlab_mode", VP_KEY_WORD, NULL, "cloud|local"},
    {"vllm_mode", VP_KEY_WORD, NULL, "server|colocate"},
    {"scale_rewards", VP_KEY_WORD, NULL, "group|batch|none|gdpo"},
    {"importance_sampling_level", VP_KEY_WORD, NULL, "token|sequence|sequence_token"},
    {"advantage_estimator", VP_KEY_WORD, NULL, "grpo|rloo|reinforce_plus_plus"},
    {"completion_length_limit_scope", VP_KEY_WORD, NULL, "total|per_round"},
};

static const vp_section swift_sections[] = {
    {"", VP_STRANGERS_KEPT, .unless = "ignore_args_error",
     .known =
         "use_dora:b ray_exp_name decision_drop_instructions:r decision_shuffle_fields:b "
         "decision_state_as_text:r decision_subsample_options:i device_groups dataset "
         "val_dataset template system model_type model_revision adapters streaming:b "
         "dataset_num_proc:i use_hf:b freeze_llm:b freeze_vit:b freeze_aligner:b "
         "bnb_4bit_quant_storage "
         "use_galore:b galore_rank:i loss_scale create_checkpoint_symlink:b add_version:b "
         "router_aux_loss_coef:r model_name loss_type activation_cpu_offload "
         "adalora_beta1:r adalora_beta2:r adalora_deltaT:i adalora_init_r:i "
         "adalora_orth_reg_weight:r adalora_target_r:i adalora_tfinal:i adalora_tinit:i "
         "adapter_act adapter_length:i add_non_thinking_prefix:b "
         "advantage_reweight agent_template aligner_lr:r api_key async_generate:b base_url "
         "beta:r boft_block_num:i boft_block_size:i boft_dropout:r boft_n_butterfly_factor:i "
         "cache_files cached_dataset cached_val_dataset callbacks center_rewards_coefficient:r "
         "check_model:b chord_enable_phi_function:b chord_mu_decay_steps:i chord_mu_peak:r "
         "chord_mu_valley:r chord_mu_warmup_steps:i chord_sft_dataset "
         "chord_sft_per_device_train_batch_size:i cliprange:r cliprange_value:r columns "
         "commit_message context_manager cosine_max_len:i "
         "cosine_max_len_value_correct:r cosine_max_len_value_wrong:r "
         "cosine_min_len_value_correct:r cosine_min_len_value_wrong:r cpo_alpha:r "
         "custom_dataset_info custom_register_path data_range dataset_shuffle:b "
         "deepspeed_autotp_size:i delta:r desirable_weight:r device_map "
         "disable_auto_column_mapping:b disable_ignore_empty_think:b discopop_tau:r "
         "download_mode ds3_gather_for_generation:b dynamic_sample:b early_stop_interval:i "
         "easy_query_threshold enable_channel_loss:b enable_dft_loss:b "
         "enable_flattened_weight_sync:b enable_npu_model_patch:b enable_thinking:b "
         "engine_kwargs epsilon:r epsilon_high:r eval_backend eval_dataset eval_dataset_args "
         "eval_generation_config eval_limit:i eval_metric eval_num_proc eval_output_dir eval_url "
         "eval_use_evalscope:b exist_ok experts_impl external_plugins extra_eval_args "
         "fipo_clip_high_only:b fipo_clip_range:r fipo_decay_rate:r fipo_safety_threshold:r "
         "fourier_n_frequency:i fourier_scaling:r freeze_parameters freeze_parameters_ratio:r "
         "freeze_parameters_regex galore_cos_threshold:r galore_gamma_proj:i "
         "galore_optim_per_parameter:b galore_proj_bits:i galore_proj_group_size:i "
         "galore_proj_quant:b galore_proj_type galore_quantization:b galore_queue_size:i "
         "galore_scale:r galore_target_modules galore_update_proj_gap:i galore_with_embedding:b "
         "gamma:r generation_batch_size:i gkd_logits_topk:i group_size gym_env host hqq_axis:i "
         "ignore_args_error:b infer_backend init_strategy init_weights "
         "interleave_prob is_binary_loss_scale:b is_multimodal kl_coef:r kl_in_reward:b "
         "label_smoothing:r lam:r lang ld_alpha:r lisa_activated_layers:i lisa_step_interval:i "
         "llamapro_num_groups:i llamapro_num_new_blocks:i lmbda:r lmdeploy_cache_max_entry_count "
         "lmdeploy_quant_policy lmdeploy_session_len lmdeploy_tp lmdeploy_vision_batch_size "
         "load_args:b load_data_args:b load_from_cache_file:b local_dataset local_repo_path "
         "local_rollout_forward_batch_size:i log_completions:b log_entropy:b log_interval "
         "log_rollout_offpolicy_metrics:b logprobs:b lora_ga_batch_size:i "
         "lora_ga_direction lora_ga_iters:i lora_ga_max_length:i lora_ga_scale "
         "lora_ga_stable_gamma:i lorap_lr_ratio:r loss_weights max_batch_size "
         "max_completion_length:i max_epochs:i max_logprobs max_memory max_model_len:i "
         "max_new_tokens:i max_pixels:i max_resample_times:i max_shard_size max_turns:i "
         "mcore_adapter mcore_model merge_lora metric min_p:r missing_eos_penalty:r model_author "
         "model_kwargs modules_to_save move_model_batches:i mrl_dims multi_turn_scheduler "
         "n_best_to_keep new_special_tokens norm_bbox num_beams:i num_generations:i "
         "num_generations_eval:i num_iterations:i num_mini_batches:i "
         "num_ppo_epochs:i num_return_sequences num_sample_generations:i num_sampling_batch_size "
         "num_sampling_batches off_policy_sequence_mask_delta:r offload_model:b "
         "offload_optimizer:b offload_teacher_model:b optimizer orm_model output_file "
         "overlong_filter:b override_exist_file owned_by packing_length:i packing_num_proc:i "
         "port preserve_thinking:b prm_model prm_threshold "
         "quant_batch_size quant_n_samples real_tau:r ref_adapter_name ref_adapters "
         "ref_model ref_model_mixup_alpha:r ref_model_revision ref_model_sync_steps:i "
         "ref_model_type reference_free reft_args reft_intervention_type reft_layer_key "
         "reft_layers reft_rank:i repetition_max_penalty:r repetition_n_grams:i "
         "repetition_penalty:r reranker_use_activation response_length:i response_prefix "
         "result_path resume resume_only_model:b reward_adapters reward_funcs reward_model "
         "reward_model_plugin reward_model_revision reward_model_type reward_template "
         "reward_weights rlsd_lambda:r rlsd_lambda_decay_steps:i rlsd_lambda_warmup_steps:i "
         "rlsd_negative_only:b rlsd_reweight_clip_range:r rollout_importance_sampling_mode "
         "rollout_importance_sampling_threshold:r rope_scaling rpo_alpha:r safe_serialization:b "
         "sampler_engine sampler_type save_missing_weights sdar_gate_beta:r "
         "sdar_loss_coef:r seq_kd:b served_model_name server_name server_port sft_alpha:r "
         "sglang_context_length sglang_disable_cuda_graph sglang_disable_custom_all_reduce "
         "sglang_dp_size sglang_enable_dp_attention sglang_enable_ep_moe sglang_ep_size "
         "sglang_kv_cache_dtype sglang_mem_fraction_static sglang_pp_size sglang_quantization "
         "sglang_speculative_algorithm sglang_speculative_eagle_topk "
         "sglang_speculative_num_draft_tokens sglang_speculative_num_steps sglang_tp_size "
         "shuffle_buffer_size:i simpo_gamma:r sleep_level:i soft_cache_length:i "
         "soft_max_length:i ssl_certfile ssl_keyfile steps_per_generation:i stop_words "
         "stream:b strict:b structured_outputs_regex studio_title "
         "swanlab_email_language swanlab_exp_name swanlab_notification_method "
         "swanlab_project swanlab_receiver_email swanlab_secret swanlab_sender_email "
         "swanlab_smtp_port:i swanlab_smtp_server swanlab_token swanlab_webhook_url "
         "swanlab_workspace sync_ref_model:b target_parameters target_regex tau_neg:r tau_pos:r "
         "teacher_adapters teacher_deepspeed teacher_kl_coef:r teacher_model "
         "teacher_model_revision teacher_model_server teacher_model_type teacher_tag_key "
         "temperature:r template_mode test_convert_dtype test_convert_precision "
         "thread_count to_cached_dataset to_hf to_mcore to_ollama to_peft_format "
         "top_entropy_quantile:r top_k:i top_logprobs:i top_p:r train_dataloader_shuffle:b "
         "trainable_parameters trainable_parameters_regex undesirable_weight:r "
         "use_chat_template:b use_flash_ckpt:b use_gym_env:b use_logits_to_keep:b use_rslora:b "
         "use_swift_lora:b use_vllm:b val_dataset_sample val_dataset_shuffle:b vera_d_initial:r "
         "vera_dropout:r vera_projection_prng_key:i vera_rank:i verbose vf_coef:r vit_lr:r "
         "vllm_data_parallel_size:i vllm_disable_cascade_attn:b vllm_disable_custom_all_reduce:b "
         "vllm_enable_expert_parallel:b vllm_enable_lora:b vllm_enable_prefix_caching:b "
         "vllm_enforce_eager:b vllm_engine_kwargs vllm_gpu_memory_utilization:r "
         "vllm_limit_mm_per_prompt vllm_max_lora_rank:i vllm_max_model_len:i vllm_max_num_seqs:i "
         "vllm_mm_processor_cache_gb:r vllm_pipeline_parallel_size:i vllm_quantization "
         "vllm_reasoning_parser vllm_server_base_url vllm_server_group_port vllm_server_host "
         "vllm_server_pass_dataset:b vllm_server_port vllm_server_timeout:r "
         "vllm_speculative_config vllm_tensor_parallel_size:i vllm_use_async_engine:b "
         "wandb_log_unique_prompts:b whiten_rewards:b write_batch_size zero_hpz_partition_size:i"},
};

static const vp_saying swift_says[] = {
    {VP_ALWAYS, NULL, "model", "$model"},
    {VP_SETTING_METHOD, "sft", "rlhf_type", NULL},
    {VP_SETTING_METHOD, "dpo", "rlhf_type", "dpo"},
    {VP_SETTING_MICRO_BATCH, "*", "per_device_train_batch_size", "$"},
    {VP_SETTING_ACCUMULATION, "*", "gradient_accumulation_steps", "$"},
    {VP_SETTING_SEQ, "*", "max_length", "$"},
    {VP_SETTING_PRECISION, "bf16-amp", "torch_dtype", "bfloat16"},
    {VP_SETTING_PRECISION, "bf16-amp", "bf16", "true"},
    {VP_SETTING_PRECISION, "bf16-amp", "fp16", "false"},
    {VP_SETTING_PRECISION, "bf16-mixed", "torch_dtype", "float32"},
    {VP_SETTING_PRECISION, "bf16-mixed", "bf16", "true"},
    {VP_SETTING_PRECISION, "bf16-mixed", "fp16", "false"},
    {VP_SETTING_PRECISION, "fp16-mixed", "torch_dtype", "float32"},
    {VP_SETTING_PRECISION, "fp16-mixed", "bf16", "false"},
    {VP_SETTING_PRECISION, "fp16-mixed", "fp16", "true"},
    {VP_SETTING_PRECISION, "fp16-amp", "torch_dtype", "float16", "tuning!=full"},
    {VP_SETTING_PRECISION, "fp16-amp", "bf16", "false", "tuning!=full"},
    {VP_SETTING_PRECISION, "fp16-amp", "fp16", "true", "tuning!=full"},
    {VP_SETTING_PRECISION, "fp32", "torch_dtype", "float32"},
    {VP_SETTING_PRECISION, "fp32", "bf16", "false"},
    {VP_SETTING_PRECISION, "fp32", "fp16", "false"},
    /* where bf16 and fp16 are not written the weights' type decides, and fp32 weights get fp16 */
    {VP_SETTING_PRECISION, "bf16-amp", "torch_dtype", "bfloat16", .read_only = true},
    {VP_SETTING_PRECISION, "bf16-amp", "fp16", NULL, .read_only = true},
    {VP_SETTING_PRECISION, "bf16-mixed", "torch_dtype", "float32", .read_only = true},
    {VP_SETTING_PRECISION, "bf16-mixed", "bf16", "true", .read_only = true},
    {VP_SETTING_PRECISION, "fp16-amp", "torch_dtype", "float16", "tuning!=full", .read_only = true},
    {VP_SETTING_PRECISION, "fp16-amp", "bf16", NULL, "tuning!=full", .read_only = true},
    {VP_SETTING_PRECISION, "fp16-mixed", "torch_dtype", "float32", .read_only = true},
    {VP_SETTING_PRECISION, "fp16-mixed", "bf16", NULL, .read_only = true},
    {VP_SETTING_PRECISION, "fp16-mixed", "fp16", NULL, .read_only = true},
    {VP_SETTING_OPTIMIZER, "sgd_momentum", "optim", "sgd"},
    {VP_SETTING_OPTIMIZER, "sgd_momentum", "optim_args", "momentum=0.9"},
    {VP_SETTING_OPTIMIZER, "sgd_momentum", "optim", "sgd", .read_only = true},
    {VP_SETTING_OPTIMIZER, "sgd_momentum", "optim_args", "$with:momentum", .read_only = true},
    VP_PROJECTS("optim"),
    {VP_SETTING_OPTIMIZER, "W", "optim", "$"},
    {VP_SETTING_RECOMPUTE, "none", "gradient_checkpointing", "false"},
    {VP_SETTING_RECOMPUTE, "full", "gradient_checkpointing", "true"},
    {VP_SETTING_LOSS, "full", "use_liger_kernel", "false"},
    {VP_SETTING_LOSS, "liger-all", "use_liger_kernel", "true", "method=sft"},
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
    /* configurations that come with it */
    {VP_SETTING_PARALLEL, "ddp", "deepspeed", "zero0", .read_only = true},
    {VP_SETTING_PARALLEL, "zero1", "deepspeed", "zero1", .read_only = true},
    {VP_SETTING_PARALLEL, "zero2", "deepspeed", "zero2", .read_only = true},
    {VP_SETTING_PARALLEL, "zero3", "deepspeed", "zero3", .read_only = true},
    {VP_SETTING_PARALLEL, "zero2", "deepspeed", "zero2_offload", .read_only = true},
    {VP_SETTING_PARALLEL, "zero3", "deepspeed", "zero3_offload", .read_only = true},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", "deepspeed", "zero2_offload", .read_only = true},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "none", "deepspeed", "zero2", .read_only = true},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", "deepspeed", "zero3_offload", .read_only = true},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "none", "deepspeed", "zero3", .read_only = true},
    {VP_SETTING_OFFLOAD_PARAMS, "cpu", "deepspeed", "zero3_offload", .read_only = true},
    {VP_SETTING_OFFLOAD_PARAMS, "none", "deepspeed", "zero3", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp", "fsdp2", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp", "fsdp", "$file:", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp", "$file:", .read_only = true},
    {VP_SETTING_RECOMPUTE, "full", "fsdp", "fsdp2", .read_only = true},
    {VP_SETTING_TUNING, "full", "tuner_type", "full"},
    {VP_SETTING_TUNING, "lora", "tuner_type", "lora"},
    {VP_SETTING_TUNING, "lora", "quant_bits", NULL},
    {VP_SETTING_TUNING, "qlora", "tuner_type", "lora"},
    {VP_SETTING_TUNING, "qlora", "quant_bits", "4"},
    {VP_ALWAYS, NULL, "quant_method", "bnb", "tuning=qlora"},
    {VP_SETTING_QUANT, "nf4", "bnb_4bit_use_double_quant", "false", "tuning=qlora"},
    {VP_SETTING_QUANT, "nf4-dq", "bnb_4bit_use_double_quant", "true", "tuning=qlora"},
    {VP_SETTING_LORA_R, "N", "lora_rank", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_ALPHA, "N", "lora_alpha", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_DROPOUT, "R", "lora_dropout", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_TARGETS, "L", "target_modules", "$", "tuning=lora|qlora"},
    {VP_ALWAYS, NULL, "packing", "false"},
    {VP_ALWAYS, NULL, "padding_free", "false"},
    VP_EVALUATION_BY_TRAINER,
    {VP_ALWAYS, NULL, "split_dataset_ratio", "0.05", "eval_batch!=none"},
};

static const vp_rule swift_rules[] = {
    {"train_type", "set", NULL, NULL, VP_WARNING, "is deprecated since ms-swift 4.0", "tuner_type",
     .since = "4.0", .until = "4.1"},
    {"quant_bits", "set", "tuner_type", "=full", VP_ERROR, "quantised weights cannot be trained",
     "--tuner_type lora"},
    {"fp16", "=true", "bf16", "=true", VP_ERROR, "fp16 and bf16 exclude each other", "--bf16 true"},
    {"packing", "=true", "attn_impl", "!=" FLASHES, VP_ERROR, PACKS_BY_FLASH,
     "attn_impl flash_attention_2"},
    {"padding_free", "=true", "attn_impl", "!=" FLASHES, VP_ERROR, PACKS_BY_FLASH,
     "attn_impl flash_attention_2"},
    {"packing", "=true", "attn_impl", "unset", VP_ERROR, PACKS_BY_FLASH,
     "attn_impl flash_attention_2"},
    {"padding_free", "=true", "attn_impl", "unset", VP_ERROR, PACKS_BY_FLASH,
     "attn_impl flash_attention_2"},
    {"lazy_tokenize", "=true", "packing", "=true", VP_ERROR, "ms-swift refuses it beside packing",
     "lazy_tokenize false"},
    {"task_type", "=seq_cls", "num_labels", "unset", VP_ERROR,
     "seq_cls is refused by ms-swift without a number of classes", "num_labels 2"},
    {"fsdp", "set", "deepspeed", "set", VP_ERROR, "ms-swift refuses FSDP beside DeepSpeed", NULL},
    VP_PROJECTS_RULES("optim", "all-linear"),
};

const vp_dialect vp_dialect_swift = {
    .name       = "ms-swift",
    .library    = "ms-swift",
    .version    = "4.6.0",
    .no_scripts = true,
    ARRAY(swift_keys, keys),
    ARRAY(swift_sections, sections),
    ARRAY(swift_says, says),
    ARRAY(swift_rules, rules),
    .signs          = "tuner_type train_type attn_impl target_modules lora_rank quant_bits",
    .flag_signs     = "tuner_type attn_impl",
    .refuses        = true, /* unless ignore_args_error */
    .programs       = "swift swift/cli/sft.py swift/cli/pt.py swift/cli/rlhf.py swift.cli.sft",
    .text_is_number = true, /* a file becomes a command line */
    .base           = &vp_dialect_transformers,
    .base_version   = "5.19.0",
};
