/* trainers/files/dialect_deepspeed.c: DeepSpeed's JSON and accelerate's YAML. Read in DeepSpeed 0.19.8
 * and accelerate 1.15.
 *
 * Only micro-batch and accumulation are written, never their product: then the world cannot
 * contradict it. Bucket sizes count elements, not bytes. bf16.enabled means bf16 weights beside an
 * fp32 master copy: bf16-mixed. accelerate's FSDP2 holds trained parameters as fp32 shards. */
#include "trainers/files/target.h"

#define BIG                1e15
#define ARRAY(keys, field) .field = keys, .n_##field = sizeof keys / sizeof *keys

static const vp_key deepspeed_keys[] = {
    {"train_micro_batch_size_per_gpu", VP_KEY_INT, .min = 1, .max = BIG, .or_auto = true},
    {"gradient_accumulation_steps", VP_KEY_INT, .min = 1, .max = BIG, .or_auto = true},
    {"sequence_parallel_size", VP_KEY_INT, "1", .min = 1, .max = 1e6},
    {"train_batch_size", VP_KEY_INT, .min = 1, .max = BIG, .or_auto = true},
    {"gradient_clipping", VP_KEY_REAL, "1.0", .min = 0, .max = BIG, .or_auto = true},
    {"zero_optimization", VP_KEY_MAP},
    {"zero_optimization.stage", VP_KEY_INT, "0", .min = 0, .max = 3,
     .costs = "stage 0: every process holds all of weights, gradients and states"},
    {"zero_optimization.contiguous_gradients", VP_KEY_BOOL, "true"},
    {"zero_optimization.reduce_scatter", VP_KEY_BOOL, "true"},
    {"zero_optimization.reduce_bucket_size", VP_KEY_INT, "500000000", .min = 1, .max = BIG,
     .or_auto = true},
    {"zero_optimization.allgather_partitions", VP_KEY_BOOL, "true"},
    {"zero_optimization.allgather_bucket_size", VP_KEY_INT, "500000000", .min = 0, .max = BIG,
     .or_auto = true},
    {"zero_optimization.overlap_comm", VP_KEY_BOOL, .or_auto = true},
    {"zero_optimization.round_robin_gradients", VP_KEY_BOOL, "false"},
    {"zero_optimization.sub_group_size", VP_KEY_INT, "1000000000", .min = 0, .max = BIG,
     .or_auto = true},
    {"zero_optimization.stage3_prefetch_bucket_size", VP_KEY_INT, "50000000", .min = 0, .max = BIG,
     .or_auto = true},
    {"zero_optimization.stage3_param_persistence_threshold", VP_KEY_INT, "100000", .min = 0,
     .max = BIG, .or_auto = true},
    {"zero_optimization.stage3_max_live_parameters", VP_KEY_INT, "1000000000", .min = 0, .max = BIG,
     .or_auto = true},
    {"zero_optimization.stage3_max_reuse_distance", VP_KEY_INT, "1000000000", .min = 0, .max = BIG,
     .or_auto = true},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", VP_KEY_BOOL, "false",
     .or_auto = true},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", VP_KEY_BOOL, .until = "0.14",
     .instead = "stage3_gather_16bit_weights_on_model_save", .warned = true},
    {"zero_optimization.stage3_allgather_sequential", VP_KEY_BOOL, "false"},
    {"zero_optimization.offload_optimizer", VP_KEY_MAP},
    {"zero_optimization.offload_optimizer.device", VP_KEY_WORD, "none", "none|cpu|nvme"},
    {"zero_optimization.offload_optimizer.nvme_path", VP_KEY_TEXT},
    {"zero_optimization.offload_optimizer.pin_memory", VP_KEY_BOOL, "true"},
    {"zero_optimization.offload_optimizer.buffer_count", VP_KEY_INT, "4", .min = 0, .max = 1e6},
    {"zero_optimization.offload_optimizer.ratio", VP_KEY_REAL, "1.0", .min = 0, .max = 1},
    {"zero_optimization.offload_param", VP_KEY_MAP},
    {"zero_optimization.offload_param.device", VP_KEY_WORD, "none", "none|cpu|nvme"},
    {"zero_optimization.offload_param.nvme_path", VP_KEY_TEXT},
    {"zero_optimization.offload_param.pin_memory", VP_KEY_BOOL, "true"},
    {"zero_optimization.offload_param.buffer_count", VP_KEY_INT, "5", .min = 0, .max = 1e6},
    {"zero_optimization.offload_param.buffer_size", VP_KEY_INT, "100000000", .min = 0, .max = BIG},
    {"zero_optimization.offload_param.max_in_cpu", VP_KEY_INT, "1000000000", .min = 0, .max = BIG},
    {"zero_optimization.cpu_offload", VP_KEY_BOOL, "false"},
    {"zero_optimization.cpu_offload_params", VP_KEY_BOOL, "false"},
    {"zero_optimization.zero_hpz_partition_size", VP_KEY_INT, "1", .min = 0, .max = 1e6},
    {"bf16", VP_KEY_MAP},
    {"bf16.enabled", VP_KEY_BOOL, "false", .or_auto = true},
    {"bf16.bf16_master_weights_and_grads", VP_KEY_BOOL, "false", .since = "0.19"},
    {"bf16.bf16_optimizer_states", VP_KEY_BOOL, "false", .since = "0.19"},
    {"fp16", VP_KEY_MAP},
    {"fp16.enabled", VP_KEY_BOOL, "false", .or_auto = true},
    {"fp16.loss_scale", VP_KEY_REAL, "0", .min = 0, .max = BIG},
    {"fp16.min_loss_scale", VP_KEY_INT, "1", .min = 0, .max = BIG},
    {"fp16.initial_scale_power", VP_KEY_INT, "16", .min = 0, .max = 60},
    {"fp16.loss_scale_window", VP_KEY_INT, "1000", .min = 1, .max = BIG},
    {"fp16.opt_level", VP_KEY_TEXT, .until = "0.18", .instead = "nothing: apex is not used"},
    {"torch_autocast", VP_KEY_MAP},
    {"torch_autocast.enabled", VP_KEY_BOOL, "false"},
    {"data_types", VP_KEY_MAP},
    {"data_types.grad_accum_dtype", VP_KEY_WORD, NULL, "fp32|bf16|fp16"},
    {"data_types.param_dtype", VP_KEY_WORD, NULL, "fp32|bf16|fp16"},
    {"communication_data_type", VP_KEY_ANY},
    {"activation_checkpointing", VP_KEY_MAP},
    {"activation_checkpointing.partition_activations", VP_KEY_BOOL, "false"},
    {"activation_checkpointing.cpu_checkpointing", VP_KEY_BOOL, "false"},
    {"activation_checkpointing.contiguous_memory_optimization", VP_KEY_BOOL, "false"},
    {"activation_checkpointing.number_checkpoints", VP_KEY_INT, NULL, .min = 1, .max = 1e6},
    {"optimizer", VP_KEY_MAP},
    {"optimizer.type", VP_KEY_TEXT},
    {"optimizer.params", VP_KEY_MAP},
    {"optimizer.params.lr", VP_KEY_REAL, NULL, .min = 0, .max = 1e6, .or_auto = true},
    {"optimizer.params.betas", VP_KEY_ANY},
    {"optimizer.params.eps", VP_KEY_REAL, NULL, .min = 0, .max = 1, .or_auto = true},
    {"optimizer.params.weight_decay", VP_KEY_REAL, NULL, .min = 0, .max = 1e6, .or_auto = true},
    {"optimizer.params.torch_adam", VP_KEY_BOOL, "false"},
    {"optimizer.params.adam_w_mode", VP_KEY_BOOL, "true"},
    {"optimizer.params.max_grad_norm", VP_KEY_REAL},
    {"scheduler", VP_KEY_MAP},
    {"scheduler.type", VP_KEY_WORD, NULL,
     "LRRangeTest|OneCycle|WarmupLR|WarmupDecayLR|WarmupCosineLR"},
    {"scheduler.params", VP_KEY_MAP},
    {"scheduler.params.warmup_min_lr", VP_KEY_REAL, NULL, .min = 0, .max = 1e6, .or_auto = true},
    {"scheduler.params.warmup_max_lr", VP_KEY_REAL, NULL, .min = 0, .max = 1e6, .or_auto = true},
    {"scheduler.params.warmup_num_steps", VP_KEY_INT, NULL, .min = 0, .max = BIG, .or_auto = true},
    {"scheduler.params.total_num_steps", VP_KEY_INT, NULL, .min = 0, .max = BIG, .or_auto = true},
    {"scheduler.params.warmup_type", VP_KEY_WORD, "log", "log|linear"},
    {"zero_allow_untested_optimizer", VP_KEY_BOOL, "false"},
    {"zero_force_ds_cpu_optimizer", VP_KEY_BOOL, "true"},
    {"wall_clock_breakdown", VP_KEY_BOOL, "false"},
    {"memory_breakdown", VP_KEY_BOOL, "false"},
    {"steps_per_print", VP_KEY_REAL, .or_auto = true},
    /* whatever is in them: refused by their mere presence (_reject_removed_config_keys) */
    {"sparse_attention", VP_KEY_MAP, .until = "0.19.7", .instead = "nothing"},
    {"compression_training", VP_KEY_MAP, .until = "0.19.7", .instead = "nothing"},
    {"nebula", VP_KEY_MAP, .until = "0.19.7", .instead = "nothing: torch.save"},
    {"quantize_training", VP_KEY_MAP, .until = "0.19.7", .instead = "nothing"},
    {"zero_optimization.mics_shard_size", VP_KEY_INT, NULL, .min = -1, .max = BIG,
     .until = "0.19.7", .instead = "nothing"},
    {"zero_optimization.mics_hierarchical_params_gather", VP_KEY_BOOL, .until = "0.19.7",
     .instead = "nothing"},
    {"amp", VP_KEY_MAP, .until = "0.19.8", .instead = "torch_autocast"},
    {"sparse_gradients", VP_KEY_BOOL, .until = "0.19.8", .instead = "nothing"},
    {"eigenvalue", VP_KEY_MAP, .until = "0.19.8", .instead = "nothing"},
    {"elasticity", VP_KEY_MAP, .until = "0.19.8", .instead = "nothing"},
    {"graph_harvesting", VP_KEY_BOOL, .until = "0.19.8", .instead = "nothing"},
    {"curriculum_learning", VP_KEY_MAP, .until = "0.19.8", .instead = "data_efficiency"},
    {"progressive_layer_drop", VP_KEY_MAP, .until = "0.19.8", .instead = "nothing"},
    {"zero_optimization.zeropp_loco_param", VP_KEY_MAP, .until = "0.19.8", .instead = "nothing"},
    {"max_grad_norm", VP_KEY_REAL, .noop = true, .instead = "gradient_clipping"},
    {"compile", VP_KEY_MAP},
    {"compile.disable", VP_KEY_BOOL, .until = "0.15", .instead = "leave the section out"},
    {"compile.backend", VP_KEY_TEXT, .until = "0.15", .instead = "leave the section out"},
    {"compile.offload_activation", VP_KEY_BOOL, "false"},
    {"compile.offload_opt_states", VP_KEY_BOOL, "false"},
    {"compile.offload_parameters", VP_KEY_BOOL, "false"},
    {"aio.thread_count", VP_KEY_INT, .until = "0.16.4", .instead = "aio.intra_op_parallelism"},
};

static const vp_section deepspeed_sections[] = {
    {"", VP_STRANGERS_DROPPED,
     "_comment bfloat16 prescale_gradients:b gradient_predivide_factor:r "
     "disable_allgather:b dump_state:b disable_python_gc vocabulary_size flops_profiler autotuning "
     "csv_monitor wandb tensorboard comet monitor_config comms_logger aio checkpoint "
     "dataloader_drop_last:b pipeline data_efficiency "
     "hybrid_engine weight_quantization "
     "use_data_before_expert_parallelism tensor_parallel data_parallel_size:i "
     "seq_parallel_communication_data_type fp32_allreduce:b timers zenflow "
     "managed_gradient_accumulation gradient_allreduce_op keep_in_fp32_modules ddp_bf16 "
     "data_parallel_group log_level load_universal_checkpoint use_node_local_storage_checkpoint "
     "train_batch_size_per_gpu domino mpu"},
    /* monitor/config.py, comm/config.py, profiling/config.py and runtime/swap_tensor/aio_config.py of 0.19 */
    {"tensorboard", VP_STRANGERS_REFUSED, "enabled:b output_path job_name"},
    {"csv_monitor", VP_STRANGERS_REFUSED, "enabled:b output_path job_name"},
    {"wandb", VP_STRANGERS_REFUSED, "enabled:b group team project"},
    {"comet", VP_STRANGERS_REFUSED,
     "enabled:b samples_log_interval:i project workspace api_key experiment_name experiment_key online:b mode"},
    {"comms_logger", VP_STRANGERS_REFUSED, "enabled:b prof_all:b prof_ops verbose:b debug:b"},
    {"flops_profiler", VP_STRANGERS_DROPPED,
     "enabled:b recompute_fwd_factor:r profile_step:i module_depth:i top_modules:i detailed:b output_file"},
    {"aio", VP_STRANGERS_DROPPED,
     "block_size:i queue_depth:i intra_op_parallelism:i single_submit:b overlap_events:b use_gds:b"},
    {"zero_optimization", VP_STRANGERS_REFUSED,
     "use_multi_rank_bucket_allreduce:b compute_grad_norm:b load_from_fp32_weights:b elastic_checkpoint:b "
     "zenflow cpu_offload_param:b cpu_offload_use_pin_memory:b prefetch_bucket_size:i "
     "param_persistence_threshold:i model_persistence_threshold:i stage3_model_persistence_threshold "
     "max_live_parameters:i max_reuse_distance:i gather_16bit_weights_on_model_save:b "
     "module_granularity_threshold:i stage3_module_granularity_threshold "
     "use_all_reduce_for_fetch_params:b stage3_use_all_reduce_for_fetch_params allgather_sequential:b "
     "ignore_unused_parameters:b legacy_stage1:b parameter_alignment:b zero_quantized_weights:b "
     "zero_quantized_nontrainable_weights:b zero_quantized_gradients:b memory_efficient_linear:b "
     "pipeline_loading_checkpoint:b override_module_apply:b log_trace_cache_warnings:b "
     "enable_sanity_checks:b save_muon_momentum_buffer_in_memory:b leaf_module"},
    {"optimizer", VP_STRANGERS_DROPPED, "legacy_fusion"},
    /* of its Adam, Lamb, Lion, Adagrad and Muon, and of PyTorch's by name: what theirs do not take ends in a TypeError */
    {"optimizer.params", VP_STRANGERS_REFUSED,
     "bias_correction:b amsgrad:b set_grad_none:b fp32_optimizer_states fused foreach capturable "
     "differentiable maximize max_coeff:r min_coeff:r eps_inside_sqrt use_nesterov lr_decay "
     "initial_accumulator_value rho momentum:r muon_lr adam_lr ns_method nesterov:b dampening "
     "freeze_step:i cuda_aware comm_backend_name coeff_beta factor_max factor_min factor_threshold "
     "var_freeze_step var_update_scaler local_step_scaler local_step_clipper adamw_mode alpha "
     "centered"},
    {"scheduler", VP_STRANGERS_DROPPED, ""},
    {"scheduler.params", VP_STRANGERS_REFUSED,
     "last_batch_iteration:i warmup_min_ratio:r cos_min_ratio:r cycle_min_lr:r cycle_max_lr:r decay_lr_rate "
     "cycle_first_step_size cycle_second_step_size cycle_first_stair_count "
     "cycle_second_stair_count decay_step_size cycle_momentum cycle_min_mom cycle_max_mom "
     "decay_mom_rate lr_range_test_min_lr lr_range_test_step_size lr_range_test_step_rate "
     "lr_range_test_staircase"},
    {"zero_optimization.offload_optimizer", VP_STRANGERS_REFUSED,
     "pipeline_read:b pipeline_write:b fast_init:b super_offload:b cpuadam_cores_perc:r pipeline "
     "buffer_size"},
    {"zero_optimization.offload_param", VP_STRANGERS_REFUSED, ""},
    {"bf16", VP_STRANGERS_REFUSED, "immediate_grad_update:b check_grad_overflow:b"},
    {"fp16", VP_STRANGERS_REFUSED,
     "auto_cast:b hysteresis:i consecutive_hysteresis:b fp16_master_weights_and_grads:b"},
    {"activation_checkpointing", VP_STRANGERS_DROPPED, "synchronize_checkpoint_boundary profile"},
    {"data_types", VP_STRANGERS_DROPPED, "buffer_dtype"},
    {"torch_autocast", VP_STRANGERS_DROPPED, "dtype lower_precision_safe_modules"},
    {"compile", VP_STRANGERS_REFUSED,
     "deepcompile autoep_non_moe free_activation free_activation_threshold "
     "offload_activation_pin_memory double_buffer symmetric_memory debug_log sync_before_reduce "
     "sync_after_reduce sync_before_allgather sync_after_allgather keep_int_input_tensors "
     "keep_all_input_tensors passes"},
};

#define ZERO "parallel=zero1|zero2|zero3"

/* fp32 weights in autocast, as each version says it. */
#define MIXED(when) \
    {VP_SETTING_PRECISION, "bf16-mixed", "bf16.enabled", "true", when, .until = "0.19"}, \
        {VP_SETTING_PRECISION, "bf16-mixed", "fp16.enabled", "false", when, .until = "0.19"}, \
        {VP_SETTING_PRECISION, "bf16-mixed", "bf16.enabled", "true", when, .since = "0.19"}, \
        {VP_SETTING_PRECISION, "bf16-mixed", "bf16.bf16_optimizer_states", "false", when, \
         .since = "0.19"}, \
        {VP_SETTING_PRECISION, "bf16-mixed", "fp16.enabled", "false", when, .since = "0.19"}, \
        {VP_SETTING_PRECISION, "fp16-mixed", "bf16.enabled", "false", when}, \
    { \
        VP_SETTING_PRECISION, "fp16-mixed", "fp16.enabled", "true", when \
    }

/* engine.py, _configure_basic_optimizer(): FusedAdam, whose states and scratch are those of torch's fused AdamW, or torch's own. */
#define ADAM(type) \
    {VP_SETTING_OPTIMIZER, "adamw_torch_fused", "optimizer.type", type, .read_only = true}, \
        {VP_SETTING_OPTIMIZER, "adamw_torch_fused", "optimizer.params.torch_adam", "false", \
         .read_only = true}, \
        {VP_SETTING_OPTIMIZER, "adamw_torch", "optimizer.type", type, .read_only = true}, \
    { \
        VP_SETTING_OPTIMIZER, "adamw_torch", "optimizer.params.torch_adam", "true", \
            .read_only = true \
    }

static const vp_saying deepspeed_says[] = {
    {VP_SETTING_PARALLEL, "zero1", "zero_optimization.stage", "1"},
    {VP_SETTING_PARALLEL, "zero2", "zero_optimization.stage", "2"},
    {VP_SETTING_PARALLEL, "zero3", "zero_optimization.stage", "3"},
    {VP_SETTING_PARALLEL, "ddp", "zero_optimization.stage", "0", "target=deepspeed"},
    {VP_SETTING_PARALLEL, "none", "zero_optimization.stage", "0", "target=deepspeed"},
    {VP_SETTING_MICRO_BATCH, "*", "train_micro_batch_size_per_gpu", "$"},
    {VP_SETTING_ACCUMULATION, "*", "gradient_accumulation_steps", "$"},
    /* config.py, _set_batch_related_parameters() */
    {VP_SETTING_ACCUMULATION, "*", "train_batch_size", "$global", .read_only = true},
    {VP_SETTING_ACCUMULATION, "*", "gradient_accumulation_steps", NULL, .read_only = true},
    {VP_SETTING_CLIP_NORM, "R", "gradient_clipping", "$"},
    ADAM("AdamW"),
    ADAM("Adam"),
    ADAM("adamw"),
    ADAM("adam"),
    {VP_SETTING_PRECISION, "fp32", "bf16.enabled", "false", "target!=llamafactory"},
    {VP_SETTING_PRECISION, "fp32", "fp16.enabled", "false", "target!=llamafactory"},
    {VP_SETTING_PRECISION, "fp32", "bf16.enabled", "false",
     "target=llamafactory,tuning=full,parallel!=zero3"},
    {VP_SETTING_PRECISION, "fp32", "fp16.enabled", "false",
     "target=llamafactory,tuning=full,parallel!=zero3"},
    MIXED("target!=llamafactory"),
    MIXED("target=llamafactory,tuning=full"),
    /* it makes 16-bit weights and fp32 masters of what was loaded, be that 16 bits too */
    {VP_SETTING_PRECISION, "bf16-amp", "bf16.enabled", "true", "target!=deepspeed|llamafactory"},
    {VP_SETTING_PRECISION, "bf16-amp", "fp16.enabled", "false", "target!=deepspeed|llamafactory"},
    {VP_SETTING_PRECISION, "fp16-amp", "bf16.enabled", "false",
     "target!=deepspeed|llamafactory,tuning!=full"},
    {VP_SETTING_PRECISION, "fp16-amp", "fp16.enabled", "true",
     "target!=deepspeed|llamafactory,tuning!=full"},
    /* LLaMA-Factory loads what it trains whole as fp32, and what adapters are beside as 16 bits */
    {VP_SETTING_PRECISION, "bf16-amp", "bf16.enabled", "true", "target=llamafactory,tuning!=full"},
    {VP_SETTING_PRECISION, "bf16-amp", "fp16.enabled", "false", "target=llamafactory,tuning!=full"},
    {VP_SETTING_PRECISION, "fp16-amp", "bf16.enabled", "false", "target=llamafactory,tuning!=full"},
    {VP_SETTING_PRECISION, "fp16-amp", "fp16.enabled", "true", "target=llamafactory,tuning!=full"},
    /* the Trainer compares bf16.enabled with its own bf16, which would be false */
    {VP_SETTING_PRECISION, "bf16", "bf16.enabled", "true", ZERO ",target=deepspeed",
     .since = "0.19"},
    {VP_SETTING_PRECISION, "bf16", "bf16.bf16_master_weights_and_grads", "true",
     ZERO ",target=deepspeed", .since = "0.19"},
    {VP_SETTING_PRECISION, "bf16", "bf16.bf16_optimizer_states", "true", ZERO ",target=deepspeed",
     .since = "0.19"},
    {VP_SETTING_PRECISION, "bf16", "fp16.enabled", "false", ZERO ",target=deepspeed",
     .since = "0.19"},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "none", "zero_optimization.offload_optimizer.device", "none",
     ZERO},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", "zero_optimization.offload_optimizer.device", "cpu",
     ZERO},
    {VP_ALWAYS, NULL, "zero_optimization.offload_optimizer.pin_memory", "true",
     "offload_optimizer=cpu"},
    {VP_SETTING_OFFLOAD_PARAMS, "none", "zero_optimization.offload_param.device", "none",
     "parallel=zero3"},
    {VP_SETTING_OFFLOAD_PARAMS, "cpu", "zero_optimization.offload_param.device", "cpu",
     "parallel=zero3"},
    {VP_ALWAYS, NULL, "zero_optimization.offload_param.pin_memory", "true", "offload_params=cpu"},
    {VP_ALWAYS, NULL, "zero_optimization.overlap_comm", "true", "parallel=zero3"},
    {VP_ALWAYS, NULL, "zero_optimization.overlap_comm", "false", "parallel!=zero3"},
    {VP_ALWAYS, NULL, "zero_optimization.contiguous_gradients", "true"},
    {VP_ALWAYS, NULL, "zero_optimization.reduce_scatter", "true"},
    {VP_ALWAYS, NULL, "zero_optimization.reduce_bucket_size", "500000000"},
    {VP_ALWAYS, NULL, "zero_optimization.allgather_bucket_size", "500000000"},
    {VP_ALWAYS, NULL, "zero_optimization.sub_group_size", "1000000000", "parallel=zero3"},
    {VP_ALWAYS, NULL, "zero_optimization.stage3_prefetch_bucket_size", "50000000",
     "parallel=zero3"},
    {VP_ALWAYS, NULL, "zero_optimization.stage3_param_persistence_threshold", "100000",
     "parallel=zero3"},
    {VP_ALWAYS, NULL, "zero_optimization.stage3_max_live_parameters", "1000000000",
     "parallel=zero3"},
    {VP_ALWAYS, NULL, "zero_optimization.stage3_max_reuse_distance", "1000000000",
     "parallel=zero3"},
};

static const vp_rule deepspeed_rules[] = {
    {"bf16.enabled", "=true", "fp16.enabled", "=true", VP_ERROR, "bf16 and fp16 exclude each other",
     "\"fp16\": {\"enabled\": false}"},
    {"bf16.enabled", "=true", "torch_autocast.enabled", "=true", VP_WARNING,
     "bf16 weights under autocast as well: both take effect without a word", "one of them"},
    {"zero_optimization.offload_optimizer.device", "=cpu|nvme", "zero_optimization.stage", "=0",
     VP_ERROR, "at stage 0 nothing is offloaded, without a word", "\"stage\": 2"},
    {"zero_optimization.offload_param.device", "=cpu|nvme", "zero_optimization.stage", "<3",
     VP_ERROR, "below stage 3 parameters are not offloaded, without a word", "\"stage\": 3"},
    {"zero_optimization.offload_optimizer.device", "=nvme",
     "zero_optimization.offload_optimizer.nvme_path", "unset", VP_ERROR, "nvme without nvme_path",
     "\"nvme_path\": \"/a/local/disk\""},
    {"zero_optimization.offload_param.device", "=nvme", "zero_optimization.offload_param.nvme_path",
     "unset", VP_ERROR, "nvme without nvme_path", "\"nvme_path\": \"/a/local/disk\""},
    {"zero_optimization.offload_optimizer.ratio", "<1", "zero_optimization.stage", "!=3", VP_ERROR,
     "a ratio below 1 wants stage 3", "\"ratio\": 1.0"},
    {"zero_optimization.cpu_offload", "set", NULL, NULL, VP_WARNING, "is the old name",
     "\"offload_optimizer\": {\"device\": \"cpu\"}"},
    {"zero_optimization.cpu_offload_params", "set", NULL, NULL, VP_ERROR, "is gone",
     "\"offload_param\": {\"device\": \"cpu\"}"},
    {"bf16.bf16_optimizer_states", "=true", "bf16.bf16_master_weights_and_grads", "=false",
     VP_ERROR, "wants bf16_master_weights_and_grads", "\"bf16_master_weights_and_grads\": true"},
    {"bf16.bf16_optimizer_states", "=true", "zero_optimization.stage", "=0", VP_ERROR,
     "wants a ZeRO stage from 1", "\"stage\": 1"},
    {"activation_checkpointing.contiguous_memory_optimization", "=true",
     "activation_checkpointing.number_checkpoints", "unset", VP_ERROR,
     "wants number_checkpoints, the number of layers", "\"number_checkpoints\": 32"},
    {"activation_checkpointing", "set", NULL, NULL, VP_WARNING,
     "changes only models that call DeepSpeed's own checkpoint function; a model of transformers "
     "never does",
     "gradient_checkpointing in the trainer's arguments"},
    {"zero_optimization", "unset", "train_micro_batch_size_per_gpu", "set", VP_WARNING,
     "not written: stage 0, every process holds all states",
     "\"zero_optimization\": {\"stage\": 2}"},
    {"train_batch_size", "set", "train_micro_batch_size_per_gpu", "unset", VP_WARNING,
     "alone it leaves the micro-batch to the number of processes: bytes depend on the launch",
     "train_micro_batch_size_per_gpu and gradient_accumulation_steps"},
    {"optimizer.params.max_grad_norm", "set", NULL, NULL, VP_ERROR, "DeepSpeed refuses it there",
     "gradient_clipping, at the top of the file"},
    {"compile.offload_activation", "=true", "compile.offload_opt_states", "=true", VP_ERROR,
     "excludes the other offloads of compile", "one of them"},
    {"compile.offload_activation", "=true", "compile.offload_parameters", "=true", VP_ERROR,
     "excludes the other offloads of compile", "one of them"},
    {"fp16.min_loss_scale", "<1", NULL, NULL, VP_ERROR, "must be a whole number from 1", "1"},
};

const vp_dialect vp_dialect_deepspeed = {
    .name    = "deepspeed",
    .library = "deepspeed",
    .version = "0.19.8",
    ARRAY(deepspeed_keys, keys),
    ARRAY(deepspeed_sections, sections),
    ARRAY(deepspeed_says, says),
    ARRAY(deepspeed_rules, rules),
    .signs      = "zero_optimization train_micro_batch_size_per_gpu train_batch_size bf16.enabled "
                  "fp16.enabled zero_allow_untested_optimizer",
    .flag_signs = "",
    .shards     = "sequence_parallel_size", /* runtime/config.py of 0.19, DeepSpeedConfig() */
    .hjson      = true,
    .maps_take_reals = true,
};

/* ---- accelerate ---- */

#define FSDP "parallel=fsdp|fsdp2"

static const vp_key accelerate_keys[] = {
    {"compute_environment", VP_KEY_WORD, "LOCAL_MACHINE", "LOCAL_MACHINE|AMAZON_SAGEMAKER"},
    {"distributed_type", VP_KEY_WORD, NULL,
     "NO|MULTI_CPU|MULTI_GPU|MULTI_NPU|MULTI_MLU|MULTI_SDAA|MULTI_MUSA|MULTI_XPU|MULTI_HPU|"
     "DEEPSPEED|FSDP|TP|XLA|MEGATRON_LM|MULTI_NEURON|TPU"},
    {"mixed_precision", VP_KEY_WORD, "no", "no|fp16|bf16|fp8"},
    {"dynamo_config.dynamo_backend", VP_KEY_WORD, NULL,
     "NO|EAGER|AOT_EAGER|INDUCTOR|AOT_TS_NVFUSER|NVPRIMS_NVFUSER|CUDAGRAPHS|OFI|FX2TRT|ONNXRT|"
     "TENSORRT|AOT_TORCHXLA_TRACE_ONCE|TORCHXLA_TRACE_ONCE|IPEX|TVM|HPU_BACKEND|NEURON"},
    {"num_processes", VP_KEY_INT, "1", .min = -1, .max = 1e7},
    {"num_machines", VP_KEY_INT, "1", .min = 1, .max = 1e6},
    {"machine_rank", VP_KEY_INT, "0", .min = 0, .max = 1e6},
    {"use_cpu", VP_KEY_BOOL, "false"},
    {"debug", VP_KEY_BOOL, "false"},
    {"gradient_accumulation_steps", VP_KEY_INT, .until = "0.1",
     .instead = "deepspeed_config."
                "gradient_accumulation_steps, or the script's own"},
    {"fsdp_config", VP_KEY_MAP},
    {"fsdp_config.fsdp_version", VP_KEY_INT, "1", .min = 1, .max = 2},
    {"fsdp_config.fsdp_reshard_after_forward", VP_KEY_WORD, NULL,
     "true|false|FULL_SHARD|SHARD_GRAD_OP|NO_SHARD|HYBRID_SHARD|HYBRID_SHARD_ZERO2"},
    {"fsdp_config.fsdp_sharding_strategy", VP_KEY_ANY},
    {"fsdp_config.fsdp_offload_params", VP_KEY_BOOL, "false"},
    {"fsdp_config.fsdp_auto_wrap_policy", VP_KEY_WORD, NULL,
     "TRANSFORMER_BASED_WRAP|SIZE_BASED_WRAP|NO_WRAP"},
    {"fsdp_config.fsdp_transformer_layer_cls_to_wrap", VP_KEY_TEXT},
    {"fsdp_config.fsdp_min_num_params", VP_KEY_INT, NULL, .min = 0, .max = BIG},
    {"fsdp_config.fsdp_backward_prefetch", VP_KEY_ANY},
    {"fsdp_config.fsdp_backward_prefetch_policy", VP_KEY_ANY, .until = "1.0",
     .instead = "fsdp_backward_prefetch"},
    {"fsdp_config.fsdp_forward_prefetch", VP_KEY_BOOL, "false"},
    {"fsdp_config.fsdp_use_orig_params", VP_KEY_BOOL, "true"},
    {"fsdp_config.fsdp_sync_module_states", VP_KEY_BOOL, "true"},
    {"fsdp_config.fsdp_cpu_ram_efficient_loading", VP_KEY_BOOL, "true"},
    {"fsdp_config.fsdp_state_dict_type", VP_KEY_WORD, NULL,
     "FULL_STATE_DICT|LOCAL_STATE_DICT|SHARDED_STATE_DICT"},
    {"fsdp_config.fsdp_activation_checkpointing", VP_KEY_BOOL, "false"},
    {"fsdp_config.fsdp_activation_checkpointing_offload", VP_KEY_BOOL, "false", .since = "1.15"},
    {"parallelism_config", VP_KEY_MAP},
    {"parallelism_config.parallelism_config_dp_replicate_size", VP_KEY_INT, "1", .min = 1,
     .max = 1e6},
    {"parallelism_config.parallelism_config_dp_shard_size", VP_KEY_INT, "1", .min = 1, .max = 1e6},
    {"parallelism_config.parallelism_config_tp_size", VP_KEY_INT, "1", .min = 1, .max = 1e6},
    {"parallelism_config.parallelism_config_cp_size", VP_KEY_INT, "1", .min = 1, .max = 1e6},
    {"parallelism_config.parallelism_config_sp_size", VP_KEY_INT, "1", .min = 1, .max = 1e6},
    {"deepspeed_config", VP_KEY_MAP},
    {"deepspeed_config.deepspeed_config_file", VP_KEY_TEXT, .opens = "deepspeed"},
    {"deepspeed_config.zero_stage", VP_KEY_INT, "2", .min = 0, .max = 3},
    {"deepspeed_config.gradient_accumulation_steps", VP_KEY_INT, NULL, .min = 1, .max = BIG,
     .or_auto = true},
    {"deepspeed_config.gradient_clipping", VP_KEY_REAL, NULL, .min = 0, .max = BIG,
     .or_auto = true},
    {"deepspeed_config.offload_optimizer_device", VP_KEY_WORD, "none", "none|cpu|nvme"},
    {"deepspeed_config.offload_param_device", VP_KEY_WORD, "none", "none|cpu|nvme"},
    {"deepspeed_config.offload_optimizer_nvme_path", VP_KEY_TEXT},
    {"deepspeed_config.offload_param_nvme_path", VP_KEY_TEXT},
    {"deepspeed_config.zero3_init_flag", VP_KEY_BOOL, "false"},
    {"deepspeed_config.zero3_save_16bit_model", VP_KEY_BOOL, "false"},
    {"fp16", VP_KEY_BOOL, .until = "0.12", .instead = "mixed_precision: fp16"},
};

static const vp_section accelerate_sections[] = {
    {"", VP_STRANGERS_REFUSED,
     "gpu_ids main_process_ip main_process_port:i rdzv_backend same_network:b main_training_function "
     "enable_cpu_affinity:b fp8_config megatron_lm_config mpirun_config "
     "downcast_bf16 tpu_name tpu_zone tpu_use_cluster:b tpu_use_sudo:b command_file commands tpu_vm "
     "tpu_env dynamo_config ipex_config monitor_interval fp8_backend use_megatron_lm:b use_ipex "
     "ec2_instance_type iam_role_name image_uri profile region base_job_name pytorch_version "
     "transformers_version py_version sagemaker_inputs_file sagemaker_metrics_file "
     "additional_args dynamo_backend deepspeed_config_file "
     "fsdp_version log_dir"},
    {"fsdp_config", VP_STRANGERS_DROPPED, "fsdp_ignored_modules", .prefix = "fsdp_"},
    {"parallelism_config", VP_STRANGERS_DROPPED,
     "parallelism_config_cp_backend parallelism_config_cp_comm_strategy "
     "parallelism_config_sp_backend parallelism_config_sp_seq_length "
     "parallelism_config_sp_seq_length_is_variable parallelism_config_sp_attn_implementation"},
    {"dynamo_config", VP_STRANGERS_DROPPED,
     "dynamo_mode dynamo_use_dynamic:b dynamo_use_fullgraph:b "
     "dynamo_use_regional_compilation:b",
     .prefix = "dynamo_"},
    {"fp8_config", VP_STRANGERS_DROPPED,
     "fp8_backend fp8_use_autocast_during_eval:b fp8_margin:i fp8_interval:i fp8_format "
     "fp8_amax_history_len:i fp8_amax_history_length:i fp8_amax_compute_algo "
     "fp8_amax_compute_algorithm fp8_override_linear_precision fp8_opt_level "
     "fp8_optimization_level fp8_enable_fsdp_float8_all_gather:b fp8_pad_inner_dim:b "
     "fp8_use_mxfp8_block_scaling:b",
     .prefix = "fp8_"},
    {"mpirun_config", VP_STRANGERS_DROPPED, "mpirun_hostfile mpirun_ccl"},
    {"deepspeed_config", VP_STRANGERS_DROPPED,
     "deepspeed_multinode_launcher deepspeed_hostfile deepspeed_inclusion_filter "
     "deepspeed_exclusion_filter deepspeed_moe_layer_cls_names"},
};

#define BESIDE_TRAINER      "target!=accelerate", .read_only = true
#define BESIDE_TRAINER_ZERO "parallel=zero1|zero2|zero3," BESIDE_TRAINER

static const vp_saying accelerate_says[] = {
    {VP_ALWAYS, NULL, "compute_environment", "LOCAL_MACHINE"},
    {VP_SETTING_PARALLEL, "none", "distributed_type", "NO"},
    {VP_SETTING_PARALLEL, "ddp", "distributed_type", "MULTI_GPU"},
    {VP_SETTING_PARALLEL, "fsdp", "distributed_type", "FSDP"},
    {VP_SETTING_PARALLEL, "fsdp", "fsdp_config.fsdp_version", "1"},
    {VP_SETTING_PARALLEL, "fsdp", "fsdp_config.fsdp_sharding_strategy", "FULL_SHARD"},
    /* what launch says of it where the file does not: FULL_SHARD, true (accelerate 1.15); other strategies are in
     * judge_uncounted.c */
    {VP_SETTING_PARALLEL, "fsdp", "distributed_type", "FSDP", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp", "fsdp_config.fsdp_version", "1", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp2", "distributed_type", "FSDP"},
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp_config.fsdp_version", "2"},
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp_config.fsdp_reshard_after_forward", "true"},
    {VP_SETTING_PARALLEL, "fsdp2", "distributed_type", "FSDP", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp_config.fsdp_version", "2", .read_only = true},
    {VP_SETTING_PARALLEL, "zero1", "distributed_type", "DEEPSPEED", "target=accelerate"},
    {VP_SETTING_PARALLEL, "zero1", "deepspeed_config.zero_stage", "1", "target=accelerate"},
    {VP_SETTING_PARALLEL, "zero1", "deepspeed_config.deepspeed_config_file", NULL,
     "target=accelerate"},
    {VP_SETTING_PARALLEL, "zero2", "distributed_type", "DEEPSPEED", "target=accelerate"},
    {VP_SETTING_PARALLEL, "zero2", "deepspeed_config.zero_stage", "2", "target=accelerate"},
    {VP_SETTING_PARALLEL, "zero2", "deepspeed_config.deepspeed_config_file", NULL,
     "target=accelerate"},
    {VP_SETTING_PARALLEL, "zero3", "distributed_type", "DEEPSPEED", "target=accelerate"},
    {VP_SETTING_PARALLEL, "zero3", "deepspeed_config.zero_stage", "3", "target=accelerate"},
    {VP_SETTING_PARALLEL, "zero3", "deepspeed_config.deepspeed_config_file", NULL,
     "target=accelerate"},
    {VP_SETTING_PARALLEL, "zero1", "distributed_type", "DEEPSPEED", .read_only = true},
    {VP_SETTING_PARALLEL, "zero1", "deepspeed_config.deepspeed_config_file", "$set",
     .read_only = true},
    {VP_SETTING_PARALLEL, "zero2", "distributed_type", "DEEPSPEED", .read_only = true},
    {VP_SETTING_PARALLEL, "zero2", "deepspeed_config.deepspeed_config_file", "$set",
     .read_only = true},
    {VP_SETTING_PARALLEL, "zero3", "distributed_type", "DEEPSPEED", .read_only = true},
    {VP_SETTING_PARALLEL, "zero3", "deepspeed_config.deepspeed_config_file", "$set",
     .read_only = true},
    {VP_SETTING_PARALLEL, "zero1", "distributed_type", "DEEPSPEED", "target!=accelerate"},
    {VP_SETTING_PARALLEL, "zero1", "deepspeed_config.deepspeed_config_file", "$file:ds_config.json",
     "target!=accelerate"},
    {VP_SETTING_PARALLEL, "zero2", "distributed_type", "DEEPSPEED", "target!=accelerate"},
    {VP_SETTING_PARALLEL, "zero2", "deepspeed_config.deepspeed_config_file", "$file:ds_config.json",
     "target!=accelerate"},
    {VP_SETTING_PARALLEL, "zero3", "distributed_type", "DEEPSPEED", "target!=accelerate"},
    {VP_SETTING_PARALLEL, "zero3", "deepspeed_config.deepspeed_config_file", "$file:ds_config.json",
     "target!=accelerate"},
    /* without a file of DeepSpeed's own; Trainer takes its plugin from the launcher (transformers 5.17, training_args.py) */
    {VP_SETTING_PARALLEL, "zero1", "distributed_type", "DEEPSPEED", BESIDE_TRAINER},
    {VP_SETTING_PARALLEL, "zero1", "deepspeed_config.zero_stage", "1", BESIDE_TRAINER},
    {VP_SETTING_PARALLEL, "zero1", "deepspeed_config.deepspeed_config_file", NULL, BESIDE_TRAINER},
    {VP_SETTING_PARALLEL, "zero2", "distributed_type", "DEEPSPEED", BESIDE_TRAINER},
    {VP_SETTING_PARALLEL, "zero2", "deepspeed_config.zero_stage", "2", BESIDE_TRAINER},
    {VP_SETTING_PARALLEL, "zero2", "deepspeed_config.deepspeed_config_file", NULL, BESIDE_TRAINER},
    {VP_SETTING_PARALLEL, "zero3", "distributed_type", "DEEPSPEED", BESIDE_TRAINER},
    {VP_SETTING_PARALLEL, "zero3", "deepspeed_config.zero_stage", "3", BESIDE_TRAINER},
    {VP_SETTING_PARALLEL, "zero3", "deepspeed_config.deepspeed_config_file", NULL, BESIDE_TRAINER},
    {VP_ALWAYS, NULL, "deepspeed_config.zero3_init_flag", "true", "parallel=zero3"},
    {VP_SETTING_WORLD, "*", "num_processes", "$"},
    {VP_ALWAYS, NULL, "num_machines", "1"},
    {VP_ALWAYS, NULL, "machine_rank", "0"},
    /* beside a DeepSpeed file the precision stands there, and both is an error at launch */
    {VP_SETTING_PRECISION, "fp32", "mixed_precision", "no", "parallel!=zero1|zero2|zero3"},
    {VP_SETTING_PRECISION, "bf16", "mixed_precision", "no",
     "parallel!=zero1|zero2|zero3,target!=accelerate"},
    {VP_SETTING_PRECISION, "fp16", "mixed_precision", "no",
     "parallel!=zero1|zero2|zero3,target!=accelerate"},
    {VP_SETTING_PRECISION, "bf16-mixed", "mixed_precision", "bf16", "parallel!=zero1|zero2|zero3"},
    {VP_SETTING_PRECISION, "bf16-amp", "mixed_precision", "bf16",
     "parallel!=zero1|zero2|zero3,target!=accelerate"},
    {VP_SETTING_PRECISION, "fp16-amp", "mixed_precision", "fp16",
     "parallel!=zero1|zero2|zero3,target!=accelerate,tuning!=full"},
    {VP_SETTING_PRECISION, "fp16-mixed", "mixed_precision", "fp16", "parallel!=zero1|zero2|zero3"},
    {VP_SETTING_PRECISION, "fp32", "mixed_precision", "no",
     "parallel=zero1|zero2|zero3,target=accelerate"},
    {VP_SETTING_PRECISION, "bf16-mixed", "mixed_precision", "bf16",
     "parallel=zero1|zero2|zero3,target=accelerate"},
    {VP_SETTING_PRECISION, "fp16-mixed", "mixed_precision", "fp16",
     "parallel=zero1|zero2|zero3,target=accelerate"},
    {VP_SETTING_ACCUMULATION, "*", "deepspeed_config.gradient_accumulation_steps", "$",
     "parallel=zero1|zero2|zero3,target=accelerate"},
    {VP_SETTING_CLIP_NORM, "R", "deepspeed_config.gradient_clipping", "$",
     "parallel=zero1|zero2|zero3,target=accelerate"},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "none", "deepspeed_config.offload_optimizer_device", "none",
     "parallel=zero1|zero2|zero3,target=accelerate"},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "none", "deepspeed_config.deepspeed_config_file", NULL,
     "parallel=zero1|zero2|zero3,target=accelerate"},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", "deepspeed_config.offload_optimizer_device", "cpu",
     "parallel=zero1|zero2|zero3,target=accelerate"},
    {VP_SETTING_OFFLOAD_PARAMS, "none", "deepspeed_config.offload_param_device", "none",
     "parallel=zero3,target=accelerate"},
    {VP_SETTING_OFFLOAD_PARAMS, "none", "deepspeed_config.deepspeed_config_file", NULL,
     "parallel=zero3,target=accelerate"},
    {VP_SETTING_OFFLOAD_PARAMS, "cpu", "deepspeed_config.offload_param_device", "cpu",
     "parallel=zero3,target=accelerate"},
    /* Trainer refuses another accumulation or norm than its own; its precision is the one that holds */
    {VP_SETTING_ACCUMULATION, "*", "deepspeed_config.gradient_accumulation_steps", "$",
     BESIDE_TRAINER_ZERO},
    {VP_SETTING_CLIP_NORM, "R", "deepspeed_config.gradient_clipping", "$", BESIDE_TRAINER_ZERO},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "none", "deepspeed_config.offload_optimizer_device", "none",
     BESIDE_TRAINER_ZERO},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "none", "deepspeed_config.deepspeed_config_file", NULL,
     BESIDE_TRAINER_ZERO},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", "deepspeed_config.offload_optimizer_device", "cpu",
     BESIDE_TRAINER_ZERO},
    {VP_SETTING_OFFLOAD_PARAMS, "none", "deepspeed_config.offload_param_device", "none",
     "parallel=zero3,target!=accelerate", .read_only = true},
    {VP_SETTING_OFFLOAD_PARAMS, "none", "deepspeed_config.deepspeed_config_file", NULL,
     "parallel=zero3,target!=accelerate", .read_only = true},
    {VP_SETTING_OFFLOAD_PARAMS, "cpu", "deepspeed_config.offload_param_device", "cpu",
     "parallel=zero3,target!=accelerate", .read_only = true},
    /* FSDP moves parameters, gradients and states together */
    {VP_SETTING_OFFLOAD_PARAMS, "none", "fsdp_config.fsdp_offload_params", "false",
     FSDP ",offload_optimizer=none"},
    {VP_SETTING_OFFLOAD_PARAMS, "cpu", "fsdp_config.fsdp_offload_params", "true",
     FSDP ",offload_optimizer=cpu"},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "none", "fsdp_config.fsdp_offload_params", "false",
     FSDP ",offload_params=none"},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", "fsdp_config.fsdp_offload_params", "true",
     FSDP ",offload_params=cpu"},
    {VP_SETTING_RECOMPUTE, "none", "fsdp_config.fsdp_activation_checkpointing", "false",
     FSDP ",target=accelerate"},
    {VP_SETTING_RECOMPUTE, "full", "fsdp_config.fsdp_activation_checkpointing", "true",
     FSDP ",target=accelerate"},
    /* beside Trainer it is a second switch of the same: off says nothing */
    {VP_SETTING_RECOMPUTE, "full", "fsdp_config.fsdp_activation_checkpointing", "true",
     FSDP ",target!=accelerate", .read_only = true},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "cpu", "fsdp_config.fsdp_activation_checkpointing_offload",
     "true", "parallel=fsdp2,recompute=full,target=accelerate", .since = "1.15"},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "none", "fsdp_config.fsdp_activation_checkpointing_offload",
     "false", "parallel=fsdp2,target=accelerate", .since = "1.15"},
    {VP_ALWAYS, NULL, "fsdp_config.fsdp_activation_checkpointing", "false",
     FSDP ",target!=accelerate"},
    {VP_ALWAYS, NULL, "fsdp_config.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP", FSDP},
    {VP_ALWAYS, NULL, "fsdp_config.fsdp_state_dict_type", "SHARDED_STATE_DICT", FSDP},
    {VP_ALWAYS, NULL, "fsdp_config.fsdp_cpu_ram_efficient_loading", "true", FSDP},
    {VP_ALWAYS, NULL, "fsdp_config.fsdp_use_orig_params", "true", "parallel=fsdp"},
    {VP_ALWAYS, NULL, "fsdp_config.fsdp_sync_module_states", "true", "parallel=fsdp"},
    {VP_ALWAYS, NULL, "fsdp_config.fsdp_backward_prefetch", "BACKWARD_PRE", "parallel=fsdp"},
    {VP_ALWAYS, NULL, "fsdp_config.fsdp_forward_prefetch", "false", "parallel=fsdp"},
    {VP_ALWAYS, NULL, "use_cpu", "false"},
    /* what a file for another way to share leaves: a precision beside a DeepSpeed file, FSDP1's keys beside FSDP2 */
    {VP_ALWAYS, VP_OFF, "deepspeed_config", NULL, "parallel!=zero1|zero2|zero3"},
    {VP_ALWAYS, VP_OFF, "fsdp_config.fsdp_sharding_strategy", NULL, "parallel=fsdp2"},
    {VP_ALWAYS, VP_OFF, "fsdp_config.fsdp_backward_prefetch", NULL, "parallel=fsdp2"},
    {VP_ALWAYS, VP_OFF, "fsdp_config.fsdp_use_orig_params", NULL, "parallel=fsdp2"},
};

static const vp_rule accelerate_rules[] = {
    {"deepspeed_config.deepspeed_config_file", "set", "deepspeed_config.zero_stage", "set",
     VP_ERROR, "with a DeepSpeed file zero_stage must stand there alone: an error at launch",
     "zero_optimization.stage of that file"},
    {"deepspeed_config.deepspeed_config_file", "set",
     "deepspeed_config.gradient_accumulation_steps", "set", VP_ERROR,
     "with a DeepSpeed file gradient_accumulation_steps must stand there alone: an error at launch",
     "that file's"},
    {"deepspeed_config.deepspeed_config_file", "set", "deepspeed_config.gradient_clipping", "set",
     VP_ERROR, "with a DeepSpeed file gradient_clipping must stand there alone: an error at launch",
     "that file's"},
    {"deepspeed_config.deepspeed_config_file", "set", "deepspeed_config.offload_optimizer_device",
     "set", VP_ERROR,
     "with a DeepSpeed file offload_optimizer_device must stand there alone: an error at launch",
     "that file's"},
    {"deepspeed_config.deepspeed_config_file", "set", "mixed_precision", "set", VP_ERROR,
     "with a DeepSpeed file mixed_precision must stand there alone: an error at launch",
     "bf16.enabled of that file"},
    {"fsdp_config.fsdp_sharding_strategy", "set", "fsdp_config.fsdp_version", "=2", VP_ERROR,
     "FSDP2 does not know it", "fsdp_reshard_after_forward: true"},
    {"fsdp_config.fsdp_reshard_after_forward",
     "=FULL_SHARD|SHARD_GRAD_OP|NO_SHARD|HYBRID_SHARD|HYBRID_SHARD_ZERO2",
     "fsdp_config.fsdp_version", "=2", VP_ERROR,
     "of FSDP2 it is true or false: the plugin refuses a strategy of FSDP1", "true"},
    {"fsdp_config.fsdp_backward_prefetch", "set", "fsdp_config.fsdp_version", "=2", VP_WARNING,
     "FSDP2 does not know it: without effect", "nothing"},
    {"fsdp_config.fsdp_use_orig_params", "set", "fsdp_config.fsdp_version", "=2", VP_WARNING,
     "FSDP2 does not know it: without effect", "nothing"},
    {"fsdp_config.fsdp_activation_checkpointing_offload", "=true",
     "fsdp_config.fsdp_activation_checkpointing", "=false", VP_ERROR,
     "wants fsdp_activation_checkpointing", "fsdp_activation_checkpointing: true"},
    {"fsdp_config.fsdp_activation_checkpointing_offload", "=true", "fsdp_config.fsdp_version",
     "!=2", VP_ERROR, "wants FSDP2", "fsdp_version: 2"},
    {"fsdp_config", "set", "distributed_type", "!=FSDP", VP_WARNING,
     "is not read while distributed_type is another", "distributed_type: FSDP"},
    {"deepspeed_config", "set", "distributed_type", "!=DEEPSPEED", VP_WARNING,
     "is not read while distributed_type is another", "distributed_type: DEEPSPEED"},
    {"deepspeed_config.offload_param_device", "=cpu|nvme", "deepspeed_config.zero_stage", "<3",
     VP_ERROR, "below stage 3 parameters are not offloaded", "zero_stage: 3"},
    {"parallelism_config.parallelism_config_cp_size", ">1",
     "parallelism_config.parallelism_config_sp_size", ">1", VP_ERROR,
     "context and sequence parallelism exclude each other", "one of them"},
    {"distributed_type", "=NO", "num_processes", ">1", VP_WARNING,
     "one process is started, whatever num_processes says", "distributed_type: MULTI_GPU"},
    {"num_processes", "=0", NULL, NULL, VP_ERROR,
     "0: no process would start; it is how many cards train, of all machines together"},
};

const vp_dialect vp_dialect_accelerate = {
    .name    = "accelerate",
    .library = "accelerate",
    .version = "1.15.0",
    ARRAY(accelerate_keys, keys),
    ARRAY(accelerate_sections, sections),
    ARRAY(accelerate_says, says),
    ARRAY(accelerate_rules, rules),
    .any_case   = true,
    .signs      = "distributed_type compute_environment num_processes num_machines",
    .flag_signs = "",
};
