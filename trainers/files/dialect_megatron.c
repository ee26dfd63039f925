/* trainers/files/dialect_megatron.c: Megatron-LM's options. Read in Megatron core 0.16.1 to 0.19.2, the list of options in 0.20.
 *
 * The file names the global batch, not the accumulation: it is micro-batch x accumulation x processes. */
#include "trainers/files/target.h"

#define BIG                1e12
#define ARRAY(keys, field) .field = keys, .n_##field = sizeof keys / sizeof *keys

static const vp_key megatron_keys[] = {
    {"nproc_per_node", VP_KEY_INT, NULL, .min = 1, .max = 1e6},
    {"script", VP_KEY_TEXT},
    {"micro_batch_size", VP_KEY_INT, NULL, .min = 1, .max = BIG},
    {"global_batch_size", VP_KEY_INT, NULL, .min = 1, .max = BIG},
    {"seq_length", VP_KEY_INT, NULL, .min = 1, .max = BIG},
    {"encoder_seq_length", VP_KEY_INT, NULL, .min = 1, .max = BIG},
    {"bf16", VP_KEY_FLAG, "false"},
    {"fp16", VP_KEY_FLAG, "false"},
    {"clip_grad", VP_KEY_REAL, "1.0", .min = 0, .max = BIG},
    {"optimizer", VP_KEY_TEXT, "adam"},
    {"use_distributed_optimizer", VP_KEY_FLAG, "false"},
    {"optimizer_cpu_offload", VP_KEY_FLAG, "false"},
    {"use_precision_aware_optimizer", VP_KEY_FLAG, "false"},
    {"optimizer_offload_fraction", VP_KEY_REAL, "1.0", .min = 0, .max = 1},
    {"recompute_granularity", VP_KEY_WORD, NULL, "full|selective"},
    {"recompute_method", VP_KEY_WORD, NULL, "uniform|block"},
    {"recompute_num_layers", VP_KEY_INT, NULL, .min = 1, .max = 1e6},
    {"recompute_modules", VP_KEY_ANY, "core_attn"},
    {"recompute_activations", VP_KEY_FLAG, "false"},
    {"checkpoint_activations", VP_KEY_FLAG, .until = "0.4",
     .instead = "recompute_granularity full"},
    {"attention_backend", VP_KEY_WORD, "auto", "auto|flash|fused|unfused|local"},
    {"use_flash_attn", VP_KEY_FLAG, "false"},
    {"tensor_model_parallel_size", VP_KEY_INT, "1", .min = 1, .max = 1e6},
    {"pipeline_model_parallel_size", VP_KEY_INT, "1", .min = 1, .max = 1e6},
    {"context_parallel_size", VP_KEY_INT, "1", .min = 1, .max = 1e6},
    {"sequence_parallel", VP_KEY_FLAG, "false"},
    {"distribute_saved_activations", VP_KEY_FLAG, "false"},
    {"cpu_offloading_num_layers", VP_KEY_INT, "0", .min = 0, .max = 1e6},
    /* judge_uncounted.c */
    {"expert_model_parallel_size", VP_KEY_INT, "1", .min = 1, .max = 1e6},
    {"num_experts", VP_KEY_INT, NULL, .min = 1, .max = 1e6},
    {"use_megatron_fsdp", VP_KEY_FLAG, "false"},
    {"use_custom_fsdp", VP_KEY_FLAG, .until = "0.16", .instead = "use_megatron_fsdp"},
    {"use_torch_fsdp2", VP_KEY_FLAG, "false"},
    {"data_parallel_sharding_strategy", VP_KEY_WORD, NULL,
     "no_shard|optim|optim_grads|optim_grads_params"},
    {"fp8_format", VP_KEY_WORD, NULL, "e4m3|hybrid"},
    {"fp4_format", VP_KEY_WORD, NULL, "e2m1"},
    {"main_grads_dtype", VP_KEY_WORD, "fp32", "fp32|bf16"},
    {"main_params_dtype", VP_KEY_WORD, "fp32", "fp32|fp16"},
    {"exp_avg_dtype", VP_KEY_WORD, "fp32", "fp32|fp16|bf16|fp8"},
    {"exp_avg_sq_dtype", VP_KEY_WORD, "fp32", "fp32|fp16|bf16|fp8"},
    {"fine_grained_activation_offloading", VP_KEY_FLAG, "false"},
    {"mlp_chunks_for_training", VP_KEY_INT, "1", .min = 1, .max = 1e6, .since = "0.18"},
    {"multi_latent_attention", VP_KEY_FLAG, "false"},
    {"mtp_num_layers", VP_KEY_INT, NULL, .min = 0, .max = 1e6},
    {"freeze_all_layers", VP_KEY_FLAG, "false", .since = "0.19"},
    /* gone */
    {"legacy_tokenizer", VP_KEY_FLAG, .until = "0.17", .instead = "nothing"},
    {"hybrid_attention_ratio", VP_KEY_REAL, .until = "0.17", .instead = "hybrid_layer_pattern"},
    {"hybrid_mlp_ratio", VP_KEY_REAL, .until = "0.17", .instead = "hybrid_layer_pattern"},
    {"use_legacy_models", VP_KEY_FLAG, .until = "0.18", .instead = "nothing: Megatron core's"},
    {"no_scatter_gather_tensors_in_pipeline", VP_KEY_FLAG, .until = "0.18", .instead = "nothing"},
    {"muon_use_nesterov", VP_KEY_FLAG, .until = "0.18", .instead = "muon_nesterov"},
    {"tiktoken_special_tokens", VP_KEY_ANY, .until = "0.18", .instead = "tokenizer_special_tokens"},
    /* choices of its parser */
    {"lr_decay_style", VP_KEY_WORD, NULL, "constant|linear|cosine|inverse-square-root|WSD"},
    {"normalization", VP_KEY_WORD, NULL, "LayerNorm|RMSNorm"},
    {"transformer_impl", VP_KEY_WORD, NULL, "local|transformer_engine|inference_optimized"},
    {"ckpt_format", VP_KEY_WORD, NULL, "torch|torch_dist|torch_dcp|fsdp_dtensor|zarr"},
    {"dataloader_type", VP_KEY_WORD, NULL, "single|cyclic|external"},
    {"weight_decay_incr_style", VP_KEY_WORD, NULL, "constant|linear|cosine"},
    {"position_embedding_type", VP_KEY_WORD, NULL,
     "learned_absolute|rope|yarn|mrope|relative|none"},
    {"fp8_recipe", VP_KEY_WORD, NULL, "tensorwise|delayed|mxfp8|blockwise|custom"},
    {"moe_token_dispatcher_type", VP_KEY_WORD, NULL, "allgather|alltoall|flex|alltoall_seq"},
    {"cuda_graph_impl", VP_KEY_WORD, NULL, "none|local|transformer_engine|full_iteration"},
    {"tokenizer_type", VP_KEY_TEXT, NULL,
     "BertWordPieceLowerCase|BertWordPieceCase|GPT2BPETokenizer|SentencePieceTokenizer|GPTSentencePieceTokenizer|HuggingFaceTokenizer|Llama2Tokenizer|TikTokenizer|MultimodalTokenizer|NullTokenizer|NullMultimodalTokenizer|SFTTokenizer"},
    {"lr", VP_KEY_REAL, NULL, .min = 0, .max = 100},
};

/* The options of its parser besides (megatron/training/arguments.py, add_megatron_arguments()): a script's own stand beside them. */
static const vp_section megatron_sections[] = {
    {"", VP_STRANGERS_KEPT,
     "account_for_embedding_in_pipeline_split:b account_for_loss_in_pipeline_split:b "
     "accumulate_allreduce_grads_in_fp32:b activation_func_clamp_value:r "
     "activation_offload_fraction:r adam_beta1:r adam_beta2:r adam_eps:r add_qkv_bias:b "
     "adlr_autoresume:b adlr_autoresume_interval:i allow_ambiguous_pad_tokens:b "
     "app_tag_run_name app_tag_run_version apply_layernorm_1p:b "
     "apply_query_key_layer_scaling:b apply_residual_connection_post_layernorm:b "
     "apply_wd_to_qk_layernorm:b async_ckpt_cpu_priority:i async_ckpt_io_priority:i "
     "async_ckpt_use_cpu_shm:b async_save:b async_strategy attention_dropout:r "
     "attention_output_gate:b attention_softmax_in_fp32:b auto_detect_ckpt_format:b "
     "batch_invariant_backend batch_invariant_mode:b batch_size:i bert_embedder_type "
     "bert_load bert_no_binary_head:b biencoder_projection_dim:i "
     "biencoder_shared_query_context_model:b block_data_path cache_mla_latents:b "
     "calc_ft_timeouts:b calculate_per_token_loss:b chat_template check_for_large_grads:b "
     "check_for_spiky_loss:b check_weight_hash_across_dp_replicas_interval:i "
     "ckpt_assume_constant_structure:b ckpt_convert_format ckpt_convert_save "
     "ckpt_convert_update_legacy_dist_opt_format:b ckpt_drop_redundant_extra_state:b "
     "ckpt_fully_parallel_load:b ckpt_fully_parallel_load_exchange_algo "
     "ckpt_fully_parallel_load_per_rank_objects:b ckpt_fully_parallel_load_process_group "
     "ckpt_fully_parallel_save:b ckpt_fully_parallel_save_process_group "
     "ckpt_pg_tensors_cache_create:b ckpt_pg_tensors_cache_path ckpt_step:i "
     "classes_fraction:r config_logger_dir cp_comm_type "
     "cpu_offloading_retain_pinned_cpu_buffers:b create_all_gather_group:b "
     "cross_entropy_fusion_impl cross_entropy_loss_fusion:b "
     "cuda_graph_modules cuda_graph_scope cuda_graph_warmup_steps:i data_args_path "
     "data_cache_path data_parallel_random_init:b data_path data_per_class_fraction:r "
     "dataloader_defer_npy_index_mmap:b dataloader_fast_cache_load:b "
     "dataloader_inter_document_masking:b ddp_average_in_collective:b "
     "ddp_bucket_size:i ddp_num_buckets:i ddp_pad_buckets_for_high_nccl_busbw:b "
     "ddp_param_name_patterns_for_fp32_local_accumulation "
     "ddp_reduce_scatter_with_fp32_accumulation:b decode_only_cuda_graphs:b "
     "decoder_first_pipeline_num_layers:i decoder_last_pipeline_num_layers:i "
     "decoder_num_layers:i decoder_seq_length:i decoupled_lr:r decoupled_min_lr:r "
     "decrease_batch_size_if_needed:b defer_embedding_wgrad_compute:b "
     "delay_offload_until_cuda_graph:b delay_wgrad_compute:b "
     "delta_offload_bytes_across_pp_ranks:i deterministic_mode:b dino_bottleneck_size:i "
     "dino_freeze_last_layer:r dino_head_hidden_size:i dino_local_crops_number:i "
     "dino_local_img_size:i dino_norm_last_layer:b dino_teacher_temp:r "
     "dino_warmup_teacher_temp:r dino_warmup_teacher_temp_epochs:i "
     "disable_align_grad_reduce:b disable_bf16_reduced_precision_matmul:b "
     "disable_bias_linear:b disable_ckpt_load_validate_sharding_integrity:b "
     "disable_clone_scatter_output_in_embedding:b disable_dsa_indexer_rotate_activation:b "
     "disable_dsa_indexer_scoring_relu:b disable_flight_recorder_dump_on_timeout:b "
     "disable_flight_recorder_extra_dump_on_exec:b "
     "disable_flight_recorder_include_only_active:b disable_fp8_wgrad:b "
     "disable_gloo_process_groups:b disable_jit_fuser:b "
     "disable_log_loss_scale_to_tensorboard:b disable_mamba_mem_eff_path:b "
     "disable_manual_gc_eval:b disable_msc:b disable_pad_vocab_size:b "
     "disable_save_tokenizer_assets:b disable_straggler_on_startup:b "
     "disable_strict_fsdp_dtensor_load:b disable_symmetric_registration:b "
     "disable_tokenizer_sentencepiece_ignore_extra_whitespaces:b "
     "disable_tp_comm_bulk_dgrad:b disable_tp_comm_bulk_wgrad:b "
     "disable_tp_comm_overlap_ag:b disable_tp_comm_overlap_rs:b disable_tp_comm_split_ag:b "
     "disable_tp_comm_split_rs:b disable_use_tokenizer_model_from_checkpoint_args:b "
     "dist_ckpt_format dist_ckpt_optim_fully_reshardable:b dist_ckpt_save_pre_mcore_014:b "
     "dist_ckpt_strictness dist_ckpt_workers:i "
     "distrib_optim_fully_reshardable_mem_efficient:b distributed_backend "
     "distributed_timeout_minutes:i distributed_timeout_seconds_after_init:i "
     "dsa_indexer_head_dim:i dsa_indexer_k_norm_epsilon:r dsa_indexer_k_norm_fp32:b "
     "dsa_indexer_loss_coeff:r dsa_indexer_n_heads:i dsa_indexer_rope_interleaved:b "
     "dsa_indexer_skip_topk_offset:i dsa_indexer_topk:i dsa_indexer_topk_freq:i "
     "dsa_indexer_use_sparse_loss:b dsa_kernel_backend dump_param_to_param_group_map "
     "embedding_init_method_std:r embedding_path empty_unused_memory_level "
     "enable_chunked_prefill:b enable_cuda_graph:b enable_experimental:b "
     "enable_ft_package:b enable_full_sharding_in_hsdp:b enable_mhc_connections:b "
     "enable_msc:b encoder_num_layers:i end_weight_decay:r "
     "eod_mask_loss:b ep_overlap_early_attn_memory_release:b error_injection_rate:i "
     "error_injection_type eval_global_batch_size:i eval_interval:i eval_iters:i "
     "eval_micro_batch_size:i evidence_data_path exit_duration_in_mins:i exit_interval:i "
     "exit_on_missing_checkpoint:b exit_signal exit_signal_handler:b "
     "exit_signal_handler_for_dataloader:b exit_signal_handler_for_training:b "
     "experimental_attention_variant expert_tensor_parallel_num_weight_shards:i "
     "expert_tensor_parallel_size:i external_cuda_graph:b fake_process_group:b "
     "fault_injector_delay_start_iteration:i fault_injector_fault_delay:r "
     "fault_injector_fault_probabilities fault_injector_fault_types "
     "fault_injector_mtti_seconds:r fault_injector_num_ranks:i "
     "fault_injector_offset_seconds:r fault_injector_ranks fault_injector_seed:i "
     "ffn_hidden_size:i fim_data:b fim_eod_token fim_fragment_rate:r fim_middle_token "
     "fim_no_prefix fim_pad_token fim_prefix_token fim_rate:r fim_split_sample "
     "fim_spm_rate:r fim_suffix_token fine_grained_offloading_max_inflight_offloads:i "
     "finetune:b first_last_layers_bf16:b flash_attention_version flash_decode:b "
     "flight_recorder_dump_path flight_recorder_include_stack_trace:b "
     "flight_recorder_trace_buffer_size:i fp16_lm_cross_entropy:b "
     "fp32_residual_connection:b fp4_param_gather:b fp4_quantizer_factory fp4_recipe "
     "fp8_amax_compute_algo fp8_amax_history_len:i fp8_interval:i fp8_margin:i "
     "fp8_output_proj:b fp8_param_gather:b fp8_quantizer_factory "
     "fsdp_db_use_persist_buf_on_alloc_fail:b fsdp_double_buffer:b "
     "fsdp_manual_registration:b ft_num_warmup_iters:i full_validation:b "
     "fused_residual_rmsnorm:b gdp_cutedsl_kernel:b gdp_num_chunk_states_to_recompute:i "
     "gdp_num_householder:i glu_linear_offset:r gpu_sniff_test_interval:i "
     "grad_reduce_in_bf16:b group_query_attention:b grpo_clamp_eps_lower:r "
     "grpo_clamp_eps_upper:r grpo_entropy_term_weight:r "
     "grpo_filter_groups_with_same_reward:b grpo_group_size:i grpo_iterations:i "
     "grpo_kl_beta:r grpo_prompts_per_step:i gtp_expert_remat_nccl_ub:b "
     "gtp_remat_nccl_ub:b gtp_remat_opt_in_modules "
     "gtp_remat_reduce_scatter_with_fp32_accumulation:b head_lr_mult:r "
     "heterogeneous_layers_config_encoded_json heterogeneous_layers_config_path "
     "hidden_dropout:r hidden_size:i hierarchical_context_parallel_sizes "
     "high_priority_a2a_comm_stream:b high_priority_stream_groups "
     "hybrid_context_parallel:b hybrid_layer_pattern hybrid_override_pattern hysteresis:i "
     "ict_head_size:i ict_load img_h:i img_w:i indexer_batch_size:i indexer_log_interval:i "
     "inference_batch_times_seqlen_threshold:i inference_coordinator_port:i "
     "inference_cuda_graph_all_prefills:b inference_cuda_graph_max_tokens:i "
     "inference_cuda_graph_scope inference_disable_ep_consensus:b "
     "inference_disable_triton_nvls_kernels:b inference_dynamic_batching:b "
     "inference_dynamic_batching_async_sched_mode inference_dynamic_batching_block_size:i "
     "inference_dynamic_batching_buffer_size_gb:r "
     "inference_dynamic_batching_cuda_graph_mixed_prefill_count:i "
     "inference_dynamic_batching_cuda_graph_sizing_distribution "
     "inference_dynamic_batching_logprobs_mode "
     "inference_dynamic_batching_mamba_memory_ratio:r "
     "inference_dynamic_batching_max_requests:i inference_dynamic_batching_max_tokens:i "
     "inference_dynamic_batching_num_cuda_graphs:i "
     "inference_dynamic_batching_paused_buffer_size_gb:r "
     "inference_dynamic_batching_prefix_caching:b "
     "inference_dynamic_batching_prefix_caching_coordinator_policy "
     "inference_dynamic_batching_prefix_caching_eviction_policy "
     "inference_dynamic_batching_prefix_caching_mamba_gb:r "
     "inference_dynamic_batching_prefix_caching_routing_alpha:r "
     "inference_dynamic_batching_sampling_backend "
     "inference_dynamic_batching_track_generated_token_events:b "
     "inference_dynamic_batching_track_paused_request_events:b "
     "inference_dynamic_batching_unified_memory_level inference_fuse_tp_communication:b "
     "inference_grouped_gemm_backend inference_logging_step_interval:i "
     "inference_max_requests:i inference_max_seq_length:i "
     "inference_moe_disable_fused_quant_kernels:b inference_moe_token_dispatcher_type "
     "inference_rng_tracker:b inference_shards inference_text_gen_server_logging:b "
     "inference_use_synchronous_zmq_collectives:b inference_wandb_logging:b "
     "init_method_std:r init_method_xavier_uniform:b init_model_with_meta_device:b "
     "initial_loss_scale:r inprocess_active_world_size:i inprocess_barrier_timeout:r "
     "inprocess_completion_timeout:r inprocess_empty_cuda_cache:b inprocess_granularity "
     "inprocess_hard_timeout:r inprocess_heartbeat_interval:r "
     "inprocess_heartbeat_timeout:r inprocess_last_call_wait:r inprocess_max_iterations:i "
     "inprocess_monitor_process_interval:r inprocess_monitor_thread_interval:r "
     "inprocess_progress_watchdog_interval:r inprocess_restart:b inprocess_soft_timeout:r "
     "inprocess_termination_grace_time:r is_hybrid_model:b iter_per_epoch:i "
     "iterations_to_skip keep_fp8_transpose_cache:b kitchen_attention_backend "
     "kv_channels:i kv_lora_rank:i langrl_env_config lazy_mpu_init:b linear_attention_freq "
     "linear_conv_kernel_dim:i linear_key_head_dim:i linear_num_key_heads:i "
     "linear_num_value_heads:i linear_value_head_dim:i lion_beta1:r lion_beta2:r load "
     "load_main_params_from_ckpt:b local_rank:i log_device_memory_used:b log_energy:b "
     "log_interval:i log_max_attention_logit:b log_memory_interval:i "
     "log_memory_to_tensorboard:b log_num_zeros_in_grad:b log_params_norm:b log_progress:b "
     "log_straggler:b log_throughput:b log_timers_to_tensorboard:b "
     "log_validation_ppl_to_tensorboard:b log_world_size_to_tensorboard:b logging_level:i "
     "logits_load_decode_threads:i logits_load_dir logits_load_ignore_errors:b "
     "logits_load_kd_loss_alpha:r logits_load_msc_prefetch_depth:i "
     "logits_load_prefetch_factor:i logits_save_dir logits_save_dtype logits_save_top_k:i "
     "logits_save_top_p:r logits_save_top_p_min_k:i loss_scale:r loss_scale_window:r "
     "lr_decay_iters:i lr_decay_samples:i lr_warmup_fraction:r "
     "lr_warmup_init:r lr_warmup_iters:i lr_warmup_samples:i lr_wsd_decay_iters:i "
     "lr_wsd_decay_samples:i lr_wsd_decay_style make_vocab_size_divisible_by:i "
     "mamba_head_dim:i mamba_inference_conv_states_dtype mamba_inference_ssm_states_dtype "
     "mamba_num_groups:i mamba_num_heads:i mamba_state_dim:i "
     "mamba_training_ssm_states_dtype manual_gc:b manual_gc_interval:i mask_factor:r "
     "mask_prob:r mask_type max_position_embeddings:i max_seqlen_per_dp_cp_rank:i "
     "max_tokens_to_oom:i megatron_fsdp_enable_fine_grained_param_gather:b "
     "megatron_fsdp_grad_comm_dtype megatron_fsdp_main_grads_dtype "
     "megatron_fsdp_main_params_dtype megatron_fsdp_max_pool_double_buffer:b "
     "megatron_fsdp_version memory_snapshot_path merge_file mhc_init_gating_factor:r "
     "mhc_num_residual_streams:i mhc_recompute_layer_num:i mhc_sinkhorn_iterations:i "
     "microbatch_group_size_per_virtual_pipeline_stage:i mid_level_dataset_surplus:r "
     "min_loss_scale:r min_lr:r min_offloaded_tensor_size:i mla_down_proj_fusion:b "
     "mlp_chunks_for_prefill:i mock_data:b model_parallel_size:i "
     "moe_apply_probs_on_input:b moe_aux_loss_coeff moe_combine_bwd_dtype "
     "moe_deepep_num_sms:i moe_dispatch_fwd_dtype moe_enable_deepep:b "
     "moe_enable_routing_replay:b moe_expert_capacity_factor:r "
     "moe_expert_rank_capacity_factor:r moe_ffn_hidden_size:i moe_flex_dispatcher_backend "
     "moe_flex_dispatcher_num_sms:i moe_grouped_gemm:b moe_hybridep_num_blocks_permute:i "
     "moe_hybridep_num_blocks_unpermute:i moe_hybridep_num_sms:i "
     "moe_hybridep_num_sms_preprocessing:i moe_hybridep_pad_uneven_dispatch_inputs:b "
     "moe_input_jitter_eps:r moe_latent_size:i moe_layer_freq moe_layer_recompute:b "
     "moe_mlp_glu_interleave_size:i moe_ncclep_zero_copy:b "
     "moe_pad_expert_input_to_capacity:b moe_pad_experts_for_cuda_graph_inference:b "
     "moe_paged_stash:b moe_paged_stash_buffer_size_factor_cpu:r "
     "moe_paged_stash_buffer_size_factor_cuda:r moe_paged_stash_page_size:i "
     "moe_per_layer_logging:b moe_permute_fusion:b moe_permute_fusion_into_hybridep:b "
     "moe_router_bias_update_rate:r moe_router_dtype moe_router_enable_expert_bias:b "
     "moe_router_force_biased:r moe_router_force_load_balancing:b moe_router_fusion:b "
     "moe_router_group_topk:i moe_router_load_balancing_type moe_router_num_groups:i "
     "moe_router_padding_for_fp8:b moe_router_padding_for_quantization:b "
     "moe_router_pre_softmax:b moe_router_quantile_balancing_ema:r "
     "moe_router_score_function moe_router_topk:i moe_router_topk_scaling_factor:r "
     "moe_routing_trace_capture_hidden_states:b moe_routing_trace_capture_logits:b "
     "moe_routing_trace_dump_weights:b moe_routing_trace_max_training_iters:i "
     "moe_routing_trace_path moe_shared_expert_gate:b "
     "moe_shared_expert_glu_interleave_size:i moe_shared_expert_intermediate_size:i "
     "moe_shared_expert_overlap:b moe_single_grouped_bias:b moe_single_grouped_weight:b "
     "moe_token_drop_policy moe_upcycling_granularity:i "
     "moe_use_grouped_tensor:b moe_use_upcycling:b moe_z_loss_coeff:r mrope_section "
     "mscale:r mscale_all_dim:r mtp_detach_heads:b mtp_hsm:b mtp_hybrid_override_pattern "
     "mtp_loss_scaling_factor:r mtp_standalone:b mtp_use_repeated_layer:b "
     "multiple_validation_sets:b muon_coefficient_type muon_extra_scale_factor:r "
     "muon_fp32_matmul_prec muon_momentum:r muon_nesterov:b muon_no_split_qkv:b "
     "muon_num_ns_steps:i muon_scalar_optimizer muon_scale_mode muon_tp_mode "
     "muon_use_syrk:b mup_attn_scale_power:r mup_base_head_dim:r mup_base_hidden_size:i "
     "mup_embedding_mult:r mup_output_mult:r mup_width_mult:r "
     "nccl_all_reduce_for_prefill:b nccl_communicator_config_path no_align_grad_reduce:b "
     "no_align_param_gather:b no_barrier_with_level_1_timing:b no_bias_dropout_fusion:b "
     "no_bias_gelu_fusion:b no_bias_swiglu_fusion:b no_check_for_nan_in_loss_and_grad:b "
     "no_ckpt_fully_parallel_save:b no_ckpt_load_validate_sharding_integrity:b "
     "no_clone_scatter_output_in_embedding:b no_create_attention_mask_in_dataloader:b "
     "no_data_sharding:b no_dsa_indexer_rotate_activation:b no_dsa_indexer_scoring_relu:b "
     "no_flight_recorder_dump_on_timeout:b no_flight_recorder_extra_dump_on_exec:b "
     "no_flight_recorder_include_only_active:b no_fp8_wgrad:b "
     "no_gradient_accumulation_fusion:b no_gradient_reduce_div_fusion:b "
     "no_inference_disable_ep_consensus:b no_inference_dynamic_batching_prefix_caching:b "
     "no_inference_text_gen_server_logging:b "
     "no_inference_use_synchronous_zmq_collectives:b no_inference_wandb_logging:b "
     "no_initialization:b no_load_optim:b no_load_rng:b no_log_loss_scale_to_tensorboard:b "
     "no_manual_gc_eval:b no_masked_softmax_fusion:b no_mmap_bin_files:b no_one_logger:b "
     "no_overlap_p2p_communication:b no_pad_vocab_size:b no_persist_layer_norm:b "
     "no_pin_cpu_grads:b no_pin_cpu_params:b no_position_embedding:b "
     "no_rl_inference_logprobs_is_correction:b "
     "no_rl_offload_inference_model_weights_when_idle:b no_rl_partial_rollouts:b "
     "no_rl_persist_cuda_graphs:b no_rl_skip_bos_token:b no_rl_training_cuda_graphs:b "
     "no_rl_use_sequence_packing:b no_rl_verify_model_weights_swap:b no_rope_freq "
     "no_rope_fusion:b no_save_optim:b no_save_rng:b no_save_tokenizer_assets:b "
     "no_strict_fsdp_dtensor_load:b no_tokenizer_sentencepiece_ignore_extra_whitespaces:b "
     "no_tp_comm_bulk_dgrad:b no_tp_comm_bulk_wgrad:b no_tp_comm_overlap_ag:b "
     "no_tp_comm_overlap_rs:b no_tp_comm_split_ag:b no_tp_comm_split_rs:b "
     "no_use_layer_wise_param_layout:b no_use_tokenizer_model_from_checkpoint_args:b "
     "no_weight_decay_cond_type no_yarn_correction_range_round_to_int:b "
     "non_persistent_ckpt_type non_persistent_global_ckpt_dir "
     "non_persistent_local_ckpt_algo non_persistent_local_ckpt_dir "
     "non_persistent_save_interval:i norm_epsilon:r null_tokenizer_eod_id:i "
     "null_tokenizer_pad_id:i num_attention_heads:i num_channels:i num_classes:i "
     "num_dataset_builder_threads:i num_distributed_optimizer_instances:i num_layers:i "
     "num_layers_at_end_in_bf16:i num_layers_at_start_in_bf16:i "
     "num_layers_per_virtual_pipeline_stage:i num_query_groups:i num_speculative_tokens:i "
     "num_virtual_stages_per_pipeline_rank:i num_workers:i nvtx_ranges:b "
     "object_storage_cache_path offload_modules one_logger_async:b one_logger_project "
     "one_logger_run_name onnx_safe openai_gelu:b optimizer_cuda_graph:b otel_enabled:b "
     "otel_service_name otel_span_groups outer_dp_sharding_strategy "
     "output_bert_embeddings:b output_logit_dtype overlap_cpu_optimizer_d2h_h2d:b "
     "overlap_dispatch_backward_with_experts_wgrad:b overlap_grad_reduce:b "
     "overlap_moe_expert_parallel_comm:b overlap_p2p_communication_warmup_flush:b "
     "overlap_param_gather:b overlap_param_gather_with_optimizer_step:b "
     "override_ckpt_iteration:i override_opt_param_scheduler:b padded_vocab_size:i "
     "patch_dim:i per_dataset_sequences_path per_split_data_args_path perform_rl_step:b "
     "persistent_save_interval:i phase_transition_iterations "
     "pipeline_model_parallel_comm_backend pipeline_model_parallel_layout "
     "pretrained_checkpoint profile:b profile_ranks "
     "profile_step_end:i profile_step_start:i pytorch_profiler_collect_callstack:b "
     "pytorch_profiler_collect_chakra:b pytorch_profiler_collect_shapes:b q_lora_rank:i "
     "qk_clip:b qk_clip_alpha:r qk_clip_threshold:r qk_head_dim:i qk_l2_norm:b "
     "qk_layernorm:b qk_pos_emb_head_dim:i query_in_block_prob:r quick_geglu:b "
     "rampup_batch_size record_memory_history:b record_shapes:b refit_method "
     "relative_attention_max_distance:i relative_attention_num_buckets:i replication:b "
     "replication_factor:i replication_jump:i rerun_mode reset_attention_mask:b "
     "reset_position_ids:b result_rejected_tracker_filename "
     "retriever_report_topk_accuracies retriever_score_scaling:b "
     "reuse_grad_buf_for_mxfp8_param_ag:b rl_consumption_granularity "
     "rl_default_temperature:r rl_default_top_k:i rl_default_top_p:r "
     "rl_durable_rollout_bank:b rl_generation_lag:r "
     "rl_importance_sampling_truncation_coef:r rl_inference_expert_model_parallel_size:i "
     "rl_inference_expert_tensor_model_parallel_size:i "
     "rl_inference_logprobs_is_correction:b rl_inference_model_unified_memory_level "
     "rl_inference_parsers rl_inference_pipeline_model_parallel_size:i "
     "rl_inference_tensor_model_parallel_size:i rl_kv_cache_management_mode "
     "rl_max_inflight_requests:i rl_offload_inference_model_weights_when_idle:b "
     "rl_offload_optimizer_during_inference:b rl_partial_rollouts:b "
     "rl_persist_cuda_graphs:b rl_profile:b rl_profile_dir rl_prompts_per_eval:i "
     "rl_rollout_bank_dir rl_rollout_bank_max_bytes:i rl_sequence_packing_algo "
     "rl_sequence_packing_max_sequences_per_bin:i rl_skip_bos_token:b "
     "rl_submission_granularity rl_training_cuda_graphs:b rl_use_sequence_packing:b "
     "rl_verify_model_weights_swap:b rope_scaling_factor:r rope_type rotary_base:i "
     "rotary_interleaved:b rotary_percent:r rotary_scaling_factor:r "
     "rotary_seq_len_interpolation_factor:i run_workload_inspector_server:b sample_rate:r "
     "save save_activations_interval:i save_dgrads_interval:i save_interval:i "
     "save_params_interval:i save_retain_interval:i save_tokens_per_expert_interval:i "
     "save_wgrads_interval:i seed:i sft:b sft_tokenizer_prompt_format sgd_momentum:r "
     "sharp_enabled_group short_seq_prob:r skip_train:b softmax_type spec split "
     "squared_relu:b start_eval_at_iter:i start_weight_decay:r step_batch_size_schedule "
     "straggler_ctrlr_port:i straggler_minmax_count:i suggested_communication_unit_size:i "
     "swiglu:b swin_backbone_type symmetric_ar_type te_precision_config_file "
     "te_rng_tracker:b tensor_parallel_num_weight_shards:i tensorboard_dir "
     "tensorboard_log_interval:i tensorboard_queue_size:i test_data_path test_mode:b "
     "tiktoken_num_special_tokens:i tiktoken_pattern timing_log_level timing_log_option "
     "titles_data_path tokenizer_hf_no_include_special_tokens:b tokenizer_hf_no_use_fast:b "
     "tokenizer_metadata tokenizer_model tokenizer_sentencepiece_legacy:b "
     "tokenizer_special_tokens torch_fsdp2_no_reshard_after_forward:b "
     "tp_comm_bootstrap_backend tp_comm_overlap:b tp_comm_overlap_cfg "
     "tp_comm_overlap_rs_dgrad:b train_data_path train_iters:i train_samples:i "
     "train_sync_interval:i trust_remote_code:b "
     "untie_embeddings_and_output_weights:b use_checkpoint_args:b "
     "use_checkpoint_opt_param_scheduler:b use_cpu_initialization:b use_dist_ckpt:b "
     "use_fused_weighted_squared_relu:b use_gigatoken:b use_grouped_gemm_for_dense_mlp:b "
     "use_grouped_gemm_for_shared_expert:b use_kitchen_attention:b "
     "use_legacy_static_engine:b use_mcore_models:b use_mp_args_from_checkpoint_args:b "
     "use_mup:b use_nccl_ub:b use_one_sent_docs:b use_persistent_ckpt_worker:b "
     "use_pytorch_profiler:b use_ring_exchange_p2p:b use_rope_scaling:b "
     "use_rotary_position_embeddings:b use_same_sampling_seed_across_dp_ranks:b "
     "use_sharp:b use_te_activation_func:b use_torch_optimizer_for_cpu_offload:b "
     "use_tp_pp_dp_mapping:b use_transformer_engine_op_fuser:b v_head_dim:i "
     "valid_data_path validation_set_names verify_integrity:b vision_backbone_type "
     "vision_pretraining:b vision_pretraining_type vocab_extra_ids:i vocab_file "
     "vocab_size:i wandb_entity wandb_exp_name wandb_project wandb_save_dir warmup:i "
     "weight_decay:r wgrad_deferral_limit:i window_attn_skip_freq "
     "window_size yaml_cfg yarn_beta_fast:r yarn_beta_slow:r "
     "yarn_correction_range_round_to_int:b yarn_original_max_position_embeddings:i"}};

static const vp_saying megatron_says[] = {
    {VP_SETTING_WORLD, "*", "nproc_per_node", "$"},
    {VP_ALWAYS, NULL, "script", "pretrain_gpt.py"},
    {VP_SETTING_PARALLEL, "none", "use_distributed_optimizer", "false"},
    {VP_SETTING_PARALLEL, "ddp", "use_distributed_optimizer", "false"},
    {VP_SETTING_PARALLEL, "zero1", "use_distributed_optimizer", "true"},
    {VP_SETTING_MICRO_BATCH, "*", "micro_batch_size", "$"},
    {VP_SETTING_ACCUMULATION, "*", "global_batch_size", "$global"},
    {VP_SETTING_SEQ, "*", "seq_length", "$"},
    {VP_SETTING_SEQ, "*", "encoder_seq_length", "$",
     .read_only = true}, /* arguments.py takes one of them */
    {VP_SETTING_CLIP_NORM, "R", "clip_grad", "$"},
    {VP_SETTING_PRECISION, "fp32", "bf16", "false"},
    {VP_SETTING_PRECISION, "fp32", "fp16", "false"},
    {VP_SETTING_PRECISION, "bf16-mixed", "bf16", "true"},
    {VP_SETTING_PRECISION, "bf16-mixed", "fp16", "false"},
    {VP_SETTING_PRECISION, "fp16-mixed", "bf16", "false"},
    {VP_SETTING_PRECISION, "fp16-mixed", "fp16", "true"},
    {VP_SETTING_OPTIMIZER, "adamw_torch_fused", "optimizer", "adam"},
    {VP_SETTING_OPTIMIZER, "sgd", "optimizer", "sgd"},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "none", "optimizer_cpu_offload", "false"},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", "optimizer_cpu_offload", "true"},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", "use_precision_aware_optimizer", "true"},
    {VP_SETTING_RECOMPUTE, "none", "recompute_granularity", NULL},
    {VP_SETTING_RECOMPUTE, "full", "recompute_granularity", "full"},
    {VP_SETTING_RECOMPUTE, "full", "recompute_method", "uniform"},
    {VP_SETTING_RECOMPUTE, "full", "recompute_num_layers", "1"},
    {VP_SETTING_RECOMPUTE, "chunks:N", "recompute_granularity", "full"},
    {VP_SETTING_RECOMPUTE, "chunks:N", "recompute_method", "uniform"},
    {VP_SETTING_RECOMPUTE, "chunks:N", "recompute_num_layers", "$"},
    {VP_SETTING_RECOMPUTE, "first:N", "recompute_granularity", "full"},
    {VP_SETTING_RECOMPUTE, "first:N", "recompute_method", "block"},
    {VP_SETTING_RECOMPUTE, "first:N", "recompute_num_layers", "$"},
    {VP_SETTING_RECOMPUTE, "selective", "recompute_granularity", "selective"},
    {VP_ALWAYS, VP_OFF, "recompute_method", NULL, "recompute=none|selective"},
    {VP_ALWAYS, VP_OFF, "recompute_num_layers", NULL, "recompute=none|selective"},
    {VP_SETTING_ATTENTION, "flash2", "attention_backend", "flash"},
    {VP_SETTING_ATTENTION, "eager", "attention_backend", "unfused"},
    {VP_ALWAYS, NULL, "tensor_model_parallel_size", "1"},
    {VP_ALWAYS, NULL, "pipeline_model_parallel_size", "1"},
    {VP_ALWAYS, NULL, "context_parallel_size", "1"},
};

static const vp_rule megatron_rules[] = {
    {"bf16", "=true", "fp16", "=true", VP_ERROR, "bf16 and fp16 exclude each other", "--bf16"},
    {"recompute_granularity", "=full", "recompute_method", "unset", VP_ERROR,
     "full wants a method: the model refuses it after the arguments passed",
     "--recompute-method uniform"},
    {"recompute_granularity", "=full", "recompute_num_layers", "unset", VP_ERROR,
     "full wants a number of layers", "--recompute-num-layers 1"},
    {"recompute_granularity", "=selective", "recompute_num_layers", "set", VP_ERROR,
     "selective acts on all layers", "no --recompute-num-layers"},
    {"recompute_method", "set", "recompute_granularity", "unset", VP_ERROR,
     "alone means nothing: no block is recomputed", "--recompute-granularity full"},
    {"optimizer_cpu_offload", "=true", "use_precision_aware_optimizer", "=false", VP_ERROR,
     "wants use-precision-aware-optimizer", "--use-precision-aware-optimizer"},
    {"sequence_parallel", "=true", "tensor_model_parallel_size", "=1", VP_WARNING,
     "has no effect with one tensor-parallel rank", "leave it out"},
    {"distribute_saved_activations", "=true", "sequence_parallel", "=true", VP_ERROR,
     "does not go with sequence-parallel", "leave it out"},
    {"cpu_offloading_num_layers", ">0", "recompute_granularity", "set", VP_ERROR,
     "does not go with recomputation", "one of them"},
    /* validate_args() */
    {"recompute_method", "set", "recompute_granularity", "=selective", VP_ERROR,
     "is refused with selective", "no --recompute-method"},
    {"use_torch_fsdp2", "=true", "use_distributed_optimizer", "=true", VP_ERROR,
     "does not go with the distributed optimizer", "no --use-distributed-optimizer"},
    {"use_torch_fsdp2", "=true", "no_gradient_accumulation_fusion", "unset", VP_ERROR,
     "is refused with gradient accumulation fusion", "--no-gradient-accumulation-fusion"},
    {"lr_warmup_fraction", "set", "lr_warmup_iters", ">0", VP_ERROR,
     "is refused beside lr-warmup-iters", "one of them"},
    {"train_samples", "set", "train_iters", "set", VP_ERROR, "is refused beside train-iters",
     "one of them"},
    {"weight_decay_incr_style", "=linear|cosine", "start_weight_decay", "unset", VP_ERROR,
     "wants start-weight-decay and end-weight-decay", "--start-weight-decay 0.01"},
    {"num_layers_per_virtual_pipeline_stage", "set", "pipeline_model_parallel_size", "=1", VP_ERROR,
     "wants more than one pipeline stage", "--pipeline-model-parallel-size 2"},
};

const vp_dialect vp_dialect_megatron = {
    .name    = "megatron",
    .library = "megatron-core",
    .version = "0.19.2",
    .oldest  = "0.16.1",
    ARRAY(megatron_keys, keys),
    ARRAY(megatron_sections, sections),
    ARRAY(megatron_says, says),
    ARRAY(megatron_rules, rules),
    /* micro_batch_size alone is many scripts' word */
    .signs = "global_batch_size seq_length recompute_granularity tensor_model_parallel_size "
             "num_layers hidden_size use_distributed_optimizer",
    .programs =
        "pretrain_gpt.py pretrain_llama.py pretrain_bert.py pretrain_t5.py pretrain_mamba.py",
    .flags  = true,
    .shards = "tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size",
};
