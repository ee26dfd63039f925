/* trainers/files/dialect_torchtitan.c: torchtitan's recipes, Python functions that return a
 * Trainer.Config (from 0.3 on), and its TOML before. Read in torchtitan 0.3.0 (torchtitan/trainer.py,
 * config/configs.py, distributed/activation_checkpoint.py) and 0.2.2 (config/job_config.py).
 *
 * Both name the global batch, not the accumulation: it is micro-batch x accumulation x processes. */
#include "trainers/files/target.h"

#define BIG                1e12
#define ARRAY(keys, field) .field = keys, .n_##field = sizeof keys / sizeof *keys

/* ---- what a recipe and a TOML file have in common ---- */

#define KEYS_COMMON \
    {"training", VP_KEY_MAP}, {"training.max_norm", VP_KEY_REAL, "1.0", .min = 0, .max = BIG}, \
        {"training.dtype", VP_KEY_WORD, "float32", "bfloat16|float32"}, \
        {"training.mixed_precision_param", VP_KEY_WORD, "bfloat16", "bfloat16|float32"}, \
        {"training.enable_cpu_offload", VP_KEY_BOOL, "false"}, {"optimizer", VP_KEY_MAP}, \
        {"parallelism", VP_KEY_MAP}, {"parallelism.data_parallel_shard_degree", VP_KEY_INT, "-1"}, \
        {"parallelism.data_parallel_replicate_degree", VP_KEY_INT, "1"}, \
        {"parallelism.fsdp_reshard_after_forward", VP_KEY_WORD, "default", \
         "default|always|never"}, \
        {"parallelism.tensor_parallel_degree", VP_KEY_INT, "1"}, \
        {"parallelism.pipeline_parallel_degree", VP_KEY_INT, "1"}, \
        {"parallelism.context_parallel_degree", VP_KEY_INT, "1"}, {"compile", VP_KEY_MAP}, \
    { \
        "compile.enable", VP_KEY_BOOL, "false" \
    }

/* In samples; the last argument: what a row has besides. */
#define KEYS_IN_SAMPLES(...) \
    {"training.local_batch_size", VP_KEY_INT, "8", .min = 1, .max = BIG, __VA_ARGS__}, \
        {"training.global_batch_size", VP_KEY_INT, "-1", __VA_ARGS__}, \
    { \
        "training.seq_len", VP_KEY_INT, "2048", .min = 1, .max = BIG, __VA_ARGS__ \
    }

#define SAYS_COMMON \
    {VP_SETTING_PARALLEL, "none", "parallelism.data_parallel_shard_degree", "1"}, \
        {VP_SETTING_PARALLEL, "none", "parallelism.data_parallel_replicate_degree", "1"}, \
        {VP_SETTING_PARALLEL, "fsdp2", "parallelism.data_parallel_shard_degree", "$world"}, \
        {VP_SETTING_PARALLEL, "fsdp2", "parallelism.data_parallel_replicate_degree", "1"}, \
        {VP_SETTING_PARALLEL, "ddp", "parallelism.data_parallel_shard_degree", "1"}, \
        {VP_SETTING_PARALLEL, "ddp", "parallelism.data_parallel_replicate_degree", "$world"}, \
        {VP_SETTING_WORLD, "*", "parallelism.data_parallel_shard_degree", "$", "parallel=fsdp2"}, \
        {VP_SETTING_WORLD, "*", "parallelism.data_parallel_replicate_degree", "$", \
         "parallel=ddp"}, \
        {VP_SETTING_WORLD, "1", "parallelism.data_parallel_shard_degree", "1", "parallel=none"}, \
        {VP_SETTING_MICRO_BATCH, "*", "training.local_batch_size", "$"}, \
        {VP_SETTING_ACCUMULATION, "*", "training.global_batch_size", "$global"}, \
        {VP_SETTING_SEQ, "*", "training.seq_len", "$"}, \
        {VP_SETTING_CLIP_NORM, "R", "training.max_norm", "$"}, \
        {VP_SETTING_PRECISION, "fp32", "training.dtype", "float32"}, \
        {VP_SETTING_PRECISION, "fp32", "training.mixed_precision_param", "float32"}, \
        {VP_SETTING_PRECISION, "bf16-mixed", "training.dtype", "float32"}, \
        {VP_SETTING_PRECISION, "bf16-mixed", "training.mixed_precision_param", "bfloat16"}, \
        {VP_SETTING_PRECISION, "bf16", "training.dtype", "bfloat16"}, \
        {VP_SETTING_PRECISION, "bf16", "training.mixed_precision_param", "bfloat16"}, \
        {VP_SETTING_OFFLOAD_PARAMS, "none", "training.enable_cpu_offload", "false", \
         "offload_optimizer=none"}, \
        {VP_SETTING_OFFLOAD_PARAMS, "cpu", "training.enable_cpu_offload", "true", \
         "offload_optimizer=cpu,parallel=fsdp2"}, \
        {VP_SETTING_OFFLOAD_OPTIMIZER, "none", "training.enable_cpu_offload", "false", \
         "offload_params=none"}, \
        {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", "training.enable_cpu_offload", "true", \
         "offload_params=cpu,parallel=fsdp2"}, \
        {VP_ALWAYS, NULL, "parallelism.fsdp_reshard_after_forward", "always", "parallel=fsdp2"}, \
        {VP_ALWAYS, NULL, "parallelism.tensor_parallel_degree", "1"}, \
        {VP_ALWAYS, NULL, "parallelism.pipeline_parallel_degree", "1"}, \
        {VP_ALWAYS, NULL, "parallelism.context_parallel_degree", "1"}, \
    { \
        VP_ALWAYS, VP_OFF, "compile.enable", "false" \
    }

/* ---- torchtitan 0.2 ---- */

static const vp_key torchtitan_keys[] = {
    KEYS_COMMON,
    KEYS_IN_SAMPLES(.noop = false),
    {"optimizer.name", VP_KEY_WORD, "AdamW", "Adam|AdamW"},
    {"optimizer.implementation", VP_KEY_WORD, "fused", "for-loop|foreach|fused"},
    {"activation_checkpoint", VP_KEY_MAP},
    {"activation_checkpoint.mode", VP_KEY_WORD, "selective", "selective|full|memory_budget|none"},
    {"activation_checkpoint.selective_ac_option", VP_KEY_TEXT, "2"},
    {"checkpoint.async_mode", VP_KEY_WORD, "disabled", "disabled|async|async_with_pinned_mem"},
    /* gone */
    {"training.batch_size", VP_KEY_INT, .until = "0.1", .instead = "training.local_batch_size"},
    {"training.compile", VP_KEY_BOOL, .until = "0.2", .instead = "compile.enable"},
    {"training.seed", VP_KEY_INT, .until = "0.2.1", .instead = "debug.seed"},
    {"training.deterministic", VP_KEY_BOOL, .until = "0.2.1", .instead = "debug.deterministic"},
    {"float8", VP_KEY_MAP, .until = "0.2", .instead = "quantize.linear.float8"},
    {"mx", VP_KEY_MAP, .until = "0.2", .instead = "quantize.linear.mx"},
    {"lr_scheduler.lr_min", VP_KEY_REAL, .until = "0.2", .instead = "lr_scheduler.min_lr_factor"},
    {"checkpoint.enable_checkpoint", VP_KEY_BOOL, .until = "0.2", .instead = "checkpoint.enable"},
    {"checkpoint.last_save_model_weights_only", VP_KEY_BOOL, .until = "0.2",
     .instead = "checkpoint.last_save_model_only"},
    {"checkpoint.model_weights_only", VP_KEY_BOOL, .until = "0.2",
     .instead = "checkpoint.last_save_model_only"},
    {"parallelism.enable_compiled_autograd", VP_KEY_BOOL, .until = "0.2.1", .instead = "nothing"},
    {"parallelism.pipeline_parallel_split_points", VP_KEY_ANY, .until = "0.2",
     .instead = "parallelism.module_fqns_per_model_part"},
    {"checkpoint.initial_load_model_weights_only", VP_KEY_BOOL, .until = "0.2",
     .instead = "checkpoint.initial_load_model_only"},
    {"checkpoint.interval_type", VP_KEY_ANY, .until = "0.1", .instead = "nothing: steps"},
    {"training.debug_moe_force_load_balance", VP_KEY_BOOL, .until = "0.2.1",
     .instead = "debug.moe_force_load_balance"},
    {"training.data_parallel_degree", VP_KEY_INT, .until = "0.1",
     .instead = "parallelism.data_parallel_shard_degree"},
    {"training.enable_float8_linear", VP_KEY_BOOL, .until = "0.1",
     .instead = "model.converters = [\"quantize.linear.float8\"]"},
    {"model.norm_type", VP_KEY_ANY, .until = "0.1", .instead = "nothing"},
    {"job.use_for_integration_test", VP_KEY_BOOL, .until = "0.2", .instead = "nothing"},
    {"job.print_args", VP_KEY_BOOL, .until = "0.2", .instead = "job.print_config"},
    {"memory_estimation.enabled", VP_KEY_BOOL, .until = "0.2",
     .instead = "memory_estimation.enable"},
};

/* A module that job.custom_config_module names has sections and keys of its own. */
#define TITAN_OWN .unless = "job.custom_config_module"

/* torchtitan/config/job_config.py of 0.2.2. */
static const vp_section torchtitan_sections[] = {
    {"", VP_STRANGERS_REFUSED,
     "job profiling metrics model lr_scheduler checkpoint quantize comm memory_estimation "
     "fault_tolerance experimental validation debug",
     TITAN_OWN},
    {"job", VP_STRANGERS_REFUSED,
     "config_file dump_folder description print_config save_config_file "
     "custom_config_module",
     TITAN_OWN},
    {"memory_estimation", VP_STRANGERS_REFUSED, "enable:b disable_fake_mode:b", TITAN_OWN},
    {"profiling", VP_STRANGERS_REFUSED,
     "enable_profiling:b save_traces_folder profile_freq:i profiler_active:i profiler_warmup:i "
     "enable_memory_snapshot:b save_memory_snapshot_folder",
     TITAN_OWN},
    {"metrics", VP_STRANGERS_REFUSED,
     "log_freq:i enable_tensorboard:b disable_color_printing:b save_tb_folder save_for_all_ranks:b "
     "enable_wandb:b",
     TITAN_OWN},
    {"model", VP_STRANGERS_REFUSED,
     "name flavor hf_assets_path tokenizer_path converters print_after_conversion", TITAN_OWN},
    {"optimizer", VP_STRANGERS_REFUSED,
     "lr:r beta1:r beta2:r eps:r weight_decay:r early_step_in_backward:b", TITAN_OWN},
    {"lr_scheduler", VP_STRANGERS_REFUSED,
     "warmup_steps:i total_steps:i decay_ratio:r decay_type min_lr_factor:r", TITAN_OWN},
    {"training", VP_STRANGERS_REFUSED,
     "dataset dataset_path steps:i mixed_precision_reduce gc_freq:i gc_debug:b dataloader",
     TITAN_OWN},
    {"parallelism", VP_STRANGERS_REFUSED,
     "disable_loss_parallel:b enable_async_tensor_parallel module_fqns_per_model_part "
     "pipeline_parallel_first_stage_less_layers pipeline_parallel_last_stage_less_layers "
     "pipeline_parallel_layers_per_stage:i pipeline_parallel_schedule "
     "pipeline_parallel_schedule_csv pipeline_parallel_microbatch_size:i "
     "pipeline_parallel_expert_parallel_overlap context_parallel_load_balancer "
     "context_parallel_rotate_method expert_parallel_degree:i expert_tensor_parallel_degree:i "
     "expert_parallel_comm_backend",
     TITAN_OWN},
    {"validation", VP_STRANGERS_REFUSED,
     "enable:b dataset dataset_path local_batch_size:i seq_len:i freq:i steps:i dataloader",
     TITAN_OWN},
    {"checkpoint", VP_STRANGERS_REFUSED,
     "enable:b enable_ft_dataloader_checkpoints folder interval:i initial_load_path "
     "initial_load_model_only:b initial_load_in_hf:b initial_load_in_hf_quantized "
     "last_save_model_only:b last_save_in_hf:b export_dtype keep_latest_k:i load_step:i "
     "exclude_from_loading enable_first_step_checkpoint:b create_seed_checkpoint:b load_only:b",
     TITAN_OWN},
    {"activation_checkpoint", VP_STRANGERS_REFUSED,
     "per_op_sac_force_recompute_mm_shapes_by_fqns early_stop:b memory_budget:r "
     "visualize_memory_budget_pareto preserve_rng_state:b determinism_check debug:b",
     TITAN_OWN},
    {"compile", VP_STRANGERS_REFUSED, "components backend", TITAN_OWN},
    {"quantize", VP_STRANGERS_REFUSED, "linear grouped_mm", TITAN_OWN},
    {"quantize.linear", VP_STRANGERS_REFUSED, "float8 mx", TITAN_OWN},
    {"quantize.linear.float8", VP_STRANGERS_REFUSED,
     "enable_fsdp_float8_all_gather precompute_float8_dynamic_scale_for_fsdp recipe_name "
     "filter_fqns emulate",
     TITAN_OWN},
    {"quantize.linear.mx", VP_STRANGERS_REFUSED,
     "mxfp8_dim1_cast_kernel_choice recipe_name filter_fqns", TITAN_OWN},
    {"quantize.grouped_mm", VP_STRANGERS_REFUSED, "float8 mx", TITAN_OWN},
    {"quantize.grouped_mm.float8", VP_STRANGERS_REFUSED, "fqns", TITAN_OWN},
    {"quantize.grouped_mm.mx", VP_STRANGERS_REFUSED, "recipe_name fqns", TITAN_OWN},
    {"comm", VP_STRANGERS_REFUSED,
     "init_timeout_seconds train_timeout_seconds trace_buf_size save_traces_folder "
     "save_traces_file_prefix mode",
     TITAN_OWN},
    {"validation", VP_STRANGERS_REFUSED,
     "enable dataset dataset_path local_batch_size seq_len freq steps dataloader", TITAN_OWN},
    {"debug", VP_STRANGERS_REFUSED,
     "seed deterministic deterministic_warn_only moe_force_load_balance", TITAN_OWN},
    {"experimental", VP_STRANGERS_REFUSED, "custom_import custom_args_module", TITAN_OWN},
};

static const vp_saying torchtitan_says[] = {
    SAYS_COMMON,
    {VP_SETTING_OPTIMIZER, "adamw_torch_fused", "optimizer.name", "AdamW"},
    {VP_SETTING_OPTIMIZER, "adamw_torch_fused", "optimizer.implementation", "fused"},
    {VP_SETTING_OPTIMIZER, "adamw_torch", "optimizer.name", "AdamW"},
    {VP_SETTING_OPTIMIZER, "adamw_torch", "optimizer.implementation", "foreach"},
    {VP_SETTING_RECOMPUTE, "none", "activation_checkpoint.mode", "none"},
    {VP_SETTING_RECOMPUTE, "full", "activation_checkpoint.mode", "full"},
    {VP_SETTING_RECOMPUTE, "selective", "activation_checkpoint.mode", "selective"},
    {VP_SETTING_RECOMPUTE, "selective", "activation_checkpoint.selective_ac_option", "op"},
    {VP_SETTING_RECOMPUTE, "every:N", "activation_checkpoint.mode", "selective"},
    {VP_SETTING_RECOMPUTE, "every:N", "activation_checkpoint.selective_ac_option", "$"},
};

const vp_dialect vp_dialect_torchtitan = {
    .name    = "torchtitan",
    .library = "torchtitan",
    .version = "0.2.2",
    ARRAY(torchtitan_keys, keys),
    ARRAY(torchtitan_sections, sections),
    ARRAY(torchtitan_says, says),
    .signs = "training.local_batch_size parallelism activation_checkpoint",
};

/* ---- recipes: 0.3 ---- */

static const vp_key recipe_keys[] = {
    KEYS_COMMON,
    /* after 0.3 in tokens */
    KEYS_IN_SAMPLES(.until = "0.4", .instead = "training.num_tokens_per_microbatch_per_dp_rank"),
    {"training.num_tokens_per_microbatch_per_dp_rank", VP_KEY_INT, .min = 1, .max = BIG,
     .since = "0.4", .instead = "training.local_batch_size"},
    {"training.num_tokens_per_train_step", VP_KEY_INT, .min = -1, .max = BIG, .since = "0.4",
     .instead = "training.global_batch_size"},
    {"training.max_context_length", VP_KEY_INT, .min = 1, .max = BIG, .since = "0.4",
     .instead = "training.seq_len"},
    {"optimizer.implementation", VP_KEY_WORD, "fused",
     "for-loop|foreach|fused|fused_opt_states_bf16"},
    {"activation_checkpoint", VP_KEY_TEXT, "selective", "null",
     .costs = "SelectiveAC keeps every second matrix product of a block, and its attention"},
    {"loss", VP_KEY_TEXT},
};

/* What the dataclasses of 0.3.0 have besides. */
static const vp_section recipe_sections[] = {
    {"", VP_STRANGERS_KEPT,
     "SETTINGS model_spec hf_assets_path dump_folder profiler metrics tokenizer dataloader "
     "lr_scheduler checkpoint comm validator debug override"},
    {"training", VP_STRANGERS_REFUSED,
     "steps disable_cuda_graphs mixed_precision_reduce gc_freq gc_debug"},
    {"parallelism", VP_STRANGERS_REFUSED,
     "enable_fsdp_symm_mem enable_sequence_parallel spmd_backend module_fqns_per_model_part "
     "pipeline_parallel_first_stage_less_layers pipeline_parallel_last_stage_less_layers "
     "pipeline_parallel_layers_per_stage pipeline_parallel_schedule "
     "pipeline_parallel_schedule_csv pipeline_parallel_microbatch_size "
     "context_parallel_load_balancer context_parallel_ptrr_mask_key expert_parallel_degree"},
    {"compile", VP_STRANGERS_REFUSED, "components backend enable_async_tensor_parallel"},
};

/* Our module writes vplan's words; a person's recipe calls the classes. */
static const vp_saying recipe_says[] = {
    SAYS_COMMON,
    {VP_SETTING_SEQ, "*", "training.max_context_length", "$", .since = "0.4", .read_only = true},
    {VP_SETTING_OPTIMIZER, "adamw_torch_fused", "optimizer.implementation", "fused"},
    {VP_SETTING_OPTIMIZER, "adamw_torch", "optimizer.implementation", "foreach"},
    {VP_SETTING_OPTIMIZER, "adamw_torch_forloop", "optimizer.implementation", "for-loop"},
    {VP_SETTING_RECOMPUTE, "none", "activation_checkpoint", "none"},
    {VP_SETTING_RECOMPUTE, "full", "activation_checkpoint", "full"},
    {VP_SETTING_RECOMPUTE, "selective", "activation_checkpoint", "selective"},
    {VP_SETTING_RECOMPUTE, "every:N", "activation_checkpoint", "$word"},
    {VP_SETTING_RECOMPUTE, "first:N", "activation_checkpoint", "$word"},
    {VP_SETTING_RECOMPUTE, "blocks:L", "activation_checkpoint", "$word"},
    {VP_SETTING_RECOMPUTE, "none", "activation_checkpoint", "null", .read_only = true},
    {VP_SETTING_RECOMPUTE, "full", "activation_checkpoint", "FullAC.Config", .read_only = true},
    {VP_SETTING_RECOMPUTE, "selective", "activation_checkpoint", "SelectiveAC.Config",
     .read_only = true},
    {VP_SETTING_LOSS, "full", "loss", "full"},
    {VP_SETTING_LOSS, "chunked", "loss", "chunked"},
    {VP_SETTING_LOSS, "full", "loss", "CrossEntropyLoss.Config", .read_only = true},
    {VP_SETTING_LOSS, "chunked", "loss", "ChunkedLossWrapper.Config", .read_only = true},
};

const vp_dialect vp_dialect_torchtitan_recipe = {
    .name    = "torchtitan recipe",
    .library = "torchtitan",
    .version = "0.3.0",
    ARRAY(recipe_keys, keys),
    ARRAY(recipe_sections, sections),
    ARRAY(recipe_says, says),
    .signs = "training.local_batch_size parallelism activation_checkpoint model_spec",
    .only  = VP_FORMAT_PYTHON,
};
