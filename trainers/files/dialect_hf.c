/* trainers/files/dialect_hf.c: transformers' TrainingArguments, what a script loads the model with, and peft's LoraConfig. Read in
 * transformers 4.57, 5.17 and 5.24.
 *
 * bf16 of Trainer is autocast: what the weights are, the loader says. Layer i is checkpointed where
 * i % every_n_layers == 0. From transformers 5.23 checkpointing is called activation_checkpointing;
 * 5.20.1 to 5.22 have only the old name. */
#include "trainers/files/target.h"

#define BIG 1e12

/* Trainer's _process_fsdp_args() takes the prefix off, where there is one. */
#define FSDP_VERSION .min = 1, .max = 2, .reads_text = "0"
#define FSDP_KEYS(at) \
    {at "fsdp_version", VP_KEY_INT,     "2",         .was = "1", \
     .changed = "5.10", .since = "5.0", FSDP_VERSION}, \
        FSDP_OTHER_KEYS(at)
#define FSDP_OTHER_KEYS(at) \
    {at "fsdp_cpu_offload", VP_KEY_BOOL, "false"}, \
        {at "fsdp_limit_all_gathers", VP_KEY_BOOL, .reads_text = "5.10"}, \
    { \
        at "fsdp_activation_checkpointing", VP_KEY_BOOL, "false", .reads_text = "5.10" \
    }
#define FSDP_KNOWN \
    "fsdp_min_num_params:i fsdp_transformer_layer_cls_to_wrap fsdp_auto_wrap_policy " \
    "fsdp_cpu_ram_efficient_loading:B fsdp_state_dict_type fsdp_reshard_after_forward " \
    "fsdp_forward_prefetch:B fsdp_backward_prefetch fsdp_use_orig_params:B " \
    "fsdp_sync_module_states:B fsdp_xla:b fsdp_xla_fsdp_v2:b " \
    "fsdp_xla_fsdp_settings fsdp_xla_fsdp_grad_ckpt:b"
#define FSDP_SECTION(at) \
    { \
        at, VP_STRANGERS_DROPPED, FSDP_KNOWN, .prefix = "fsdp_" \
    }
#define FSDP_SAYS(at) \
    {VP_SETTING_OFFLOAD_PARAMS, "cpu", at "fsdp_cpu_offload", "true", "parallel=fsdp|fsdp2", \
     .read_only = true}, \
        {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", \
         at "fsdp_cpu_offload",        "true", \
         "parallel=fsdp|fsdp2",        .read_only = true}, \
    { \
        VP_SETTING_RECOMPUTE, "full", at "fsdp_activation_checkpointing", "true", \
            .read_only = true \
    }

/* use_reentrant where nobody says it, until then; modeling_utils.py, gradient_checkpointing_enable(). */
#define REENTRANT_ONCE .was = "true", .changed = "5.0"
/* What a script calls of its model; peft's prepare_model_for_kbit_training() hands no use_reentrant on, for which
 * torch.utils.checkpoint takes True. */
#define ENABLED_KEYS(otherwise) \
    {"gradient_checkpointing_enable", VP_KEY_BOOL, otherwise}, \
    { \
        "gradient_checkpointing_enable_reentrant", VP_KEY_BOOL, "false", REENTRANT_ONCE \
    }
/* Trainer's own switch, where it is on, says once more how: both are said, first what runs without it. */
#define ENABLED_SAYS \
    {VP_SETTING_RECOMPUTE, "full:reentrant", "gradient_checkpointing_enable", "true", \
     .read_only = true}, \
        {VP_SETTING_RECOMPUTE, "full:reentrant", "gradient_checkpointing_enable_reentrant", \
         "true", .read_only = true}, \
        {VP_SETTING_RECOMPUTE, "full", "gradient_checkpointing_enable", "true", \
         .read_only = true}, \
    { \
        VP_SETTING_RECOMPUTE, "full:reentrant", "gradient_checkpointing_enable", "true", \
            .read_only = true \
    }

static const vp_key trainer_keys[] = {
    {"output_dir", VP_KEY_TEXT},
    {"per_device_train_batch_size", VP_KEY_INT, "8", .min = 1, .max = BIG,
     .costs = "8 samples a device at once"},
    {"per_device_eval_batch_size", VP_KEY_INT, "8", .min = 1, .max = BIG},
    {"gradient_accumulation_steps", VP_KEY_INT, "1", .min = 1, .max = BIG},
    /* Trainer looks at it since then; before, no batch but the last was reduced whatever it said */
    {VP_SYNC_EACH, VP_KEY_BOOL, "false", .since = "5.2"},
    {"accelerator_config.gradient_accumulation_kwargs.num_steps", VP_KEY_INT},
    {"gradient_checkpointing", VP_KEY_BOOL, "false",
     .costs = "every layer keeps all its activations for the backward pass"},
    {"gradient_checkpointing_kwargs", VP_KEY_MAP},
    {"gradient_checkpointing_kwargs.use_reentrant", VP_KEY_BOOL, "false", REENTRANT_ONCE},
    {"gradient_checkpointing_kwargs.every_n_layers", VP_KEY_INT, NULL, .min = 1, .max = 1e6,
     .since = "5.17", .instead = "leave it out: all layers"},
    {"gradient_checkpointing_kwargs.offload", VP_KEY_BOOL, "false", .since = "5.17"},
    ENABLED_KEYS(NULL), /* that a script calls, of a model it does not load */
    {"activation_checkpointing", VP_KEY_BOOL, .since = "5.23", .instead = "gradient_checkpointing"},
    {"activation_checkpointing_kwargs", VP_KEY_MAP, .since = "5.23",
     .instead = "gradient_checkpointing_kwargs"},
    {"activation_checkpointing_kwargs.use_reentrant", VP_KEY_BOOL, "false", .since = "5.23"},
    {"activation_checkpointing_kwargs.every_n_layers", VP_KEY_INT, NULL, .min = 1, .max = 1e6,
     .since = "5.23"},
    {"activation_checkpointing_kwargs.offload", VP_KEY_BOOL, "false", .since = "5.23"},
    {"bf16", VP_KEY_BOOL, "false"},
    {"fp16", VP_KEY_BOOL, "false"},
    {"bf16_full_eval", VP_KEY_BOOL, "false"},
    {"fp16_full_eval", VP_KEY_BOOL, "false"},
    {"tf32", VP_KEY_BOOL},
    {"optim", VP_KEY_WORD, "adamw_torch_fused", VP_HF_OPTIMIZERS},
    {"optim_args", VP_KEY_TEXT},
    {"optim_target_modules", VP_KEY_LIST, .alone = "all-linear", .pattern = true},
    {"max_grad_norm", VP_KEY_REAL, "1.0", .min = 0, .max = BIG},
    {"learning_rate", VP_KEY_REAL, "5.0e-05", .min = 0, .max = 100},
    {"weight_decay", VP_KEY_REAL, "0.0", .min = 0, .max = 100},
    {"adam_beta1", VP_KEY_REAL, "0.9", .min = 0, .max = 1},
    {"adam_beta2", VP_KEY_REAL, "0.999", .min = 0, .max = 1},
    {"adam_epsilon", VP_KEY_REAL, "1.0e-08", .min = 0, .max = 1},
    {"lr_scheduler_type", VP_KEY_WORD, "linear", VP_HF_SCHEDULES},
    {"warmup_steps", VP_KEY_REAL, "0", .min = 0, .max = BIG},
    {"num_train_epochs", VP_KEY_REAL, "3.0", .min = 0, .max = BIG},
    {"max_steps", VP_KEY_INT, "-1", .min = -1, .max = BIG},
    {"eval_strategy", VP_KEY_WORD, "no", "no|steps|epoch"},
    {"save_strategy", VP_KEY_WORD, "steps", "no|steps|epoch|best"},
    {"logging_strategy", VP_KEY_WORD, "steps", "no|steps|epoch"},
    {"logging_steps", VP_KEY_REAL, "500", .min = 0, .max = BIG},
    {"save_steps", VP_KEY_REAL, "500", .min = 0, .max = BIG},
    {"eval_steps", VP_KEY_REAL, .min = 0, .max = BIG},
    {"save_total_limit", VP_KEY_INT, .min = -1, .max = BIG}, /* -1 as 0: no limit */
    {"hub_strategy", VP_KEY_WORD, "every_save", "end|every_save|checkpoint|all_checkpoints"},
    {"seed", VP_KEY_INT, "42", .min = 0, .max = BIG},
    {"use_liger_kernel", VP_KEY_BOOL, "false"},
    {"liger_kernel_config", VP_KEY_MAP},
    {"liger_kernel_config.rope", VP_KEY_BOOL},
    {"liger_kernel_config.rms_norm", VP_KEY_BOOL},
    {"liger_kernel_config.swiglu", VP_KEY_BOOL},
    {"liger_kernel_config.cross_entropy", VP_KEY_BOOL},
    {"liger_kernel_config.fused_linear_cross_entropy", VP_KEY_BOOL, "true"},
    {"torch_compile", VP_KEY_BOOL, "false"},
    {"torch_empty_cache_steps", VP_KEY_INT, .min = 1, .max = BIG},
    {"auto_find_batch_size", VP_KEY_BOOL, "false"},
    {"eval_accumulation_steps", VP_KEY_INT, .min = 1, .max = BIG},
    {"dataloader_num_workers", VP_KEY_INT, "0", .min = 0, .max = 4096},
    {"dataloader_pin_memory", VP_KEY_BOOL, "true"},
    {"dataloader_prefetch_factor", VP_KEY_INT, .min = 1, .max = 1e6},
    {"dataloader_persistent_workers", VP_KEY_BOOL, "false"},
    {"ddp_bucket_cap_mb", VP_KEY_INT, .min = 1, .max = 1e6},
    {"ddp_find_unused_parameters", VP_KEY_BOOL},
    {"remove_unused_columns", VP_KEY_BOOL, "true"},
    {"skip_memory_metrics", VP_KEY_BOOL, "true"},
    {"use_cpu", VP_KEY_BOOL, "false"},
    {"do_train", VP_KEY_BOOL, "false"},
    {"do_eval", VP_KEY_BOOL, "false"},
    {"use_cache", VP_KEY_BOOL, "false", .since = "5.0"},
    {"report_to", VP_KEY_ANY, "none"},
    {"fsdp", VP_KEY_ANY},
    {"fsdp_config", VP_KEY_ANY, .opens = "fsdp_config", .opens_with = "fsdp"},
    {"accelerator_config", VP_KEY_ANY, .opens = "accelerator_config"},
    FSDP_KEYS("fsdp_config."),
    {"deepspeed", VP_KEY_ANY, .opens = "deepspeed"},
    {"train_sampling_strategy", VP_KEY_WORD, "random", "random|sequential|group_by_length",
     .since = "5.2", .instead = "group_by_length: true"},
    /* gone */
    {"evaluation_strategy", VP_KEY_TEXT, .until = "4.51", .instead = "eval_strategy"},
    {"warmup_ratio", VP_KEY_REAL, "0.0", .min = 0, .max = 1, .until = "5.15",
     .instead = "warmup_steps, which takes a share below 1"},
    {"group_by_length", VP_KEY_BOOL, "false", .until = "5.2",
     .instead = "train_sampling_strategy: group_by_length"},
    {"no_cuda", VP_KEY_BOOL, "false", .until = "5.0", .instead = "use_cpu"},
    {"use_mps_device", VP_KEY_BOOL, .until = "5.0", .instead = "nothing: it is found"},
    {"save_safetensors", VP_KEY_BOOL, "true", .until = "5.0", .instead = "nothing: always so"},
    {"half_precision_backend", VP_KEY_TEXT, .until = "5.0", .instead = "nothing: always autocast"},
    {"fp16_backend", VP_KEY_TEXT, .until = "5.0", .instead = "nothing: always autocast"},
    {"fp16_opt_level", VP_KEY_TEXT, .until = "5.0", .instead = "nothing: apex is not used"},
    {"per_gpu_train_batch_size", VP_KEY_INT, .until = "5.0",
     .instead = "per_device_train_batch_size"},
    {"per_gpu_eval_batch_size", VP_KEY_INT, .until = "5.0",
     .instead = "per_device_eval_batch_size"},
    {"overwrite_output_dir", VP_KEY_BOOL, .until = "5.0", .instead = "nothing"},
    {"logging_dir", VP_KEY_TEXT, .until = "5.15", .instead = "TENSORBOARD_LOGGING_DIR"},
    {"adafactor", VP_KEY_BOOL, .until = "5.0", .instead = "optim: adafactor"},
    {"sharded_ddp", VP_KEY_TEXT, .until = "4.35", .instead = "fsdp"},
    {"fsdp_min_num_params", VP_KEY_INT, .until = "5.0", .instead = "fsdp_config.min_num_params"},
    {"fsdp_transformer_layer_cls_to_wrap", VP_KEY_TEXT, .until = "5.0",
     .instead = "fsdp_config.transformer_layer_cls_to_wrap"},
    {"dispatch_batches", VP_KEY_BOOL, .until = "4.51",
     .instead = "accelerator_config.dispatch_batches"},
    {"split_batches", VP_KEY_BOOL, .until = "4.51", .instead = "accelerator_config.split_batches"},
    {"push_to_hub_model_id", VP_KEY_TEXT, .until = "5.0", .instead = "hub_model_id"},
    {"push_to_hub_token", VP_KEY_TEXT, .until = "5.1", .instead = "hub_token"},
    {"use_ipex", VP_KEY_BOOL, .until = "4.57", .instead = "nothing: PyTorch has it"},
    {"xpu_backend", VP_KEY_TEXT, .until = "4.51", .instead = "ddp_backend"},
    {"jit_mode_eval", VP_KEY_BOOL, .until = "5.0", .instead = "torch_compile"},
    {"torchdynamo", VP_KEY_TEXT, .until = "5.0", .instead = "torch_compile_backend"},
    {"tpu_num_cores", VP_KEY_INT, .until = "5.1", .instead = "nothing"},
    {"past_index", VP_KEY_INT, .until = "5.1", .instead = "nothing"},
    {"ray_scope", VP_KEY_TEXT, .until = "5.1", .instead = "nothing"},
    {"include_inputs_for_metrics", VP_KEY_BOOL, .until = "5.1", .instead = "include_for_metrics"},
    {"include_tokens_per_second", VP_KEY_BOOL, .until = "5.0",
     .instead = "include_num_input_tokens_seen"},
    {"mp_parameters", VP_KEY_TEXT, .until = "5.0", .instead = "nothing"},
    {"push_to_hub_organization", VP_KEY_TEXT, .until = "5.0", .instead = "hub_model_id"},
    {"tpu_metrics_debug", VP_KEY_BOOL, .until = "5.0", .instead = "debug"},
    {"use_legacy_prediction_loop", VP_KEY_BOOL, .until = "5.0", .instead = "nothing"},
    {"save_on_each_node", VP_KEY_BOOL, "false"},
};

#define TRAINER_KNOWN \
    "lr_scheduler_kwargs average_tokens_across_devices:b " \
    "label_smoothing_factor:r torch_compile_backend torch_compile_mode neftune_noise_alpha:r " \
    "logging_first_step:b log_on_each_node:b logging_nan_inf_filter:b include_num_input_tokens_seen " \
    "log_level log_level_replica disable_tqdm:b run_name project trackio_space_id " \
    "trackio_bucket_id trackio_static_space_id eval_delay:r prediction_loss_only:b eval_on_start:b " \
    "eval_do_concat_batches:b eval_use_gather_object:b include_for_metrics batch_eval_metrics:b " \
    "save_only_model:b enable_jit_checkpoint:b push_to_hub:b hub_token hub_private_repo:b hub_model_id " \
    "hub_always_push:b hub_revision load_best_model_at_end:b metric_for_best_model " \
    "greater_is_better:b ignore_data_skip:b restore_callback_states_from_checkpoint:b " \
    "full_determinism:b data_seed:i parallelism_config dataloader_drop_last:b " \
    "dataloader_multiprocessing_context dataloader_in_order:b label_names length_column_name " \
    "ddp_broadcast_buffers:b ddp_static_graph:b ddp_backend ddp_timeout:i debug do_predict:b " \
    "resume_from_checkpoint local_rank:i " VP_SEQ2SEQ_KNOWN

#define KWARGS_KNOWN "preserve_rng_state determinism_check debug early_stop context_fn"

static const vp_section trainer_sections[] = {
    {"", VP_STRANGERS_KEPT, TRAINER_KNOWN, .scripts = VP_SCRIPTS_HAVE},
    {"gradient_checkpointing_kwargs", VP_STRANGERS_REFUSED, KWARGS_KNOWN},
    {"activation_checkpointing_kwargs", VP_STRANGERS_REFUSED, KWARGS_KNOWN},
    {"liger_kernel_config", VP_STRANGERS_REFUSED, "geglu layer_norm glu_activation"},
    VP_SYNC_SECTIONS,
    FSDP_SECTION("fsdp_config"),
};

/* What people's scripts call the length that samples are cut or filled to. */
#define SCRIPTS_SEQ(key) \
    { \
        VP_SETTING_SEQ, "*", key, "$", .read_only = true, .of_command = true \
    }

#define OLD .until = "5.23"
#define NEW .since = "5.23"

static const vp_saying trainer_says[] = {
    {VP_ALWAYS, NULL, "model_name_or_path", "$model",
     .read_only = true},                                         /* as their scripts have it */
    {VP_SETTING_SEQ, "*", "block_size", "$", .read_only = true}, /* run_clm.py */
    {VP_SETTING_MICRO_BATCH, "*", "per_device_train_batch_size", "$"},
    SCRIPTS_SEQ("max_seq_length"), /* run_glue.py, run_qa.py */
    {VP_SETTING_ACCUMULATION, "*", "gradient_accumulation_steps", "$"},
    SCRIPTS_SEQ("model_max_length"), /* FastChat, LLaVA, Alpaca */
    VP_SYNC_BY_ACCELERATE(.since = "5.2"),
    SCRIPTS_SEQ("max_seq_len"), /* DeepSpeed-Chat */
    {VP_SETTING_PRECISION, "fp32", "bf16", "false"},
    {VP_SETTING_PRECISION, "fp32", "fp16", "false"},
    SCRIPTS_SEQ("max_length"), /* run_glue_no_trainer.py */
    {VP_SETTING_PRECISION, "bf16", "bf16", "false"},
    {VP_SETTING_PRECISION, "bf16", "fp16", "false"},
    {VP_SETTING_PRECISION, "fp16", "bf16", "false"},
    {VP_SETTING_PRECISION, "fp16", "fp16", "false"},
    {VP_SETTING_PRECISION, "bf16-mixed", "bf16", "true"},
    {VP_SETTING_PRECISION, "bf16-mixed", "fp16", "false"},
    {VP_SETTING_PRECISION, "bf16-amp", "bf16", "true"},
    {VP_SETTING_PRECISION, "bf16-amp", "fp16", "false"},
    {VP_SETTING_PRECISION, "fp16-mixed", "bf16", "false"},
    {VP_SETTING_PRECISION, "fp16-mixed", "fp16", "true"},
    {VP_SETTING_PRECISION, "fp16-amp", "bf16", "false",
     "tuning!=full"}, /* GradScaler takes no gradients in fp16 */
    {VP_SETTING_PRECISION, "fp16-amp", "fp16", "true", "tuning!=full"},
    {VP_SETTING_OPTIMIZER, "sgd_momentum", "optim", "sgd", .since = "5.6"},
    {VP_SETTING_OPTIMIZER, "sgd_momentum", "optim_args", "momentum=0.9", .since = "5.6"},
    {VP_SETTING_OPTIMIZER, "sgd_momentum", "optim", "sgd", .since = "5.6", .read_only = true},
    {VP_SETTING_OPTIMIZER, "sgd_momentum", "optim_args", "$with:momentum", .since = "5.6",
     .read_only = true},
    VP_PROJECTS("optim"),
    {VP_SETTING_OPTIMIZER, "W", "optim", "$"},
    {VP_SETTING_RECOMPUTE, "none", "gradient_checkpointing", "false", OLD},
    {VP_SETTING_RECOMPUTE, "every:N", "gradient_checkpointing", "true", .since = "5.17", OLD},
    {VP_SETTING_RECOMPUTE, "every:N", "gradient_checkpointing_kwargs.use_reentrant", "false",
     .since = "5.17", OLD},
    {VP_SETTING_RECOMPUTE, "every:N", "gradient_checkpointing_kwargs.every_n_layers", "$",
     .since = "5.17", OLD},
    {VP_SETTING_RECOMPUTE, "full", "gradient_checkpointing", "true", OLD},
    {VP_SETTING_RECOMPUTE, "full", "gradient_checkpointing_kwargs.use_reentrant", "false", OLD},
    {VP_SETTING_RECOMPUTE, "full", "gradient_checkpointing_kwargs.every_n_layers", NULL, OLD},
    {VP_SETTING_RECOMPUTE, "full:reentrant", "gradient_checkpointing", "true", OLD},
    {VP_SETTING_RECOMPUTE, "full:reentrant", "gradient_checkpointing_kwargs.use_reentrant", "true",
     OLD},
    {VP_SETTING_RECOMPUTE, "full:reentrant", "gradient_checkpointing_kwargs.every_n_layers", NULL,
     OLD},
    ENABLED_SAYS,
    /* Trainer leaves alone what train.py has switched on */
    {VP_SETTING_RECOMPUTE, "first:N", "gradient_checkpointing", NULL, "target=hf", OLD},
    {VP_SETTING_RECOMPUTE, "first:N", "activation_checkpointing", NULL, "target=hf", NEW},
    /* by use_reentrant=True too */
    {VP_SETTING_RECOMPUTE, "every:N", "gradient_checkpointing", "true", .since = "5.17", OLD,
     .read_only = true},
    {VP_SETTING_RECOMPUTE, "every:N", "gradient_checkpointing_kwargs.every_n_layers", "$",
     .since = "5.17", OLD, .read_only = true},
    {VP_SETTING_RECOMPUTE, "none", "activation_checkpointing", "false", NEW},
    {VP_SETTING_RECOMPUTE, "every:N", "activation_checkpointing", "true", NEW},
    {VP_SETTING_RECOMPUTE, "every:N", "activation_checkpointing_kwargs.use_reentrant", "false",
     NEW},
    {VP_SETTING_RECOMPUTE, "every:N", "activation_checkpointing_kwargs.every_n_layers", "$", NEW},
    {VP_SETTING_RECOMPUTE, "full", "activation_checkpointing", "true", NEW},
    {VP_SETTING_RECOMPUTE, "full", "activation_checkpointing_kwargs.use_reentrant", "false", NEW},
    {VP_SETTING_RECOMPUTE, "full", "activation_checkpointing_kwargs.every_n_layers", NULL, NEW},
    {VP_SETTING_RECOMPUTE, "full:reentrant", "activation_checkpointing", "true", NEW},
    {VP_SETTING_RECOMPUTE, "full:reentrant", "activation_checkpointing_kwargs.use_reentrant",
     "true", NEW},
    {VP_SETTING_RECOMPUTE, "full:reentrant", "activation_checkpointing_kwargs.every_n_layers", NULL,
     NEW},
    /* the old name counts where the new one is not there */
    {VP_SETTING_RECOMPUTE, "none", "activation_checkpointing", NULL, NEW, .read_only = true},
    {VP_SETTING_RECOMPUTE, "none", "gradient_checkpointing", "false", NEW, .read_only = true},
    {VP_SETTING_RECOMPUTE, "every:N", "activation_checkpointing", NULL, NEW, .read_only = true},
    {VP_SETTING_RECOMPUTE, "every:N", "gradient_checkpointing", "true", NEW, .read_only = true},
    {VP_SETTING_RECOMPUTE, "every:N", "gradient_checkpointing_kwargs.every_n_layers", "$", NEW,
     .read_only = true},
    {VP_SETTING_RECOMPUTE, "full", "activation_checkpointing", NULL, NEW, .read_only = true},
    {VP_SETTING_RECOMPUTE, "full", "gradient_checkpointing", "true", NEW, .read_only = true},
    {VP_SETTING_RECOMPUTE, "full", "gradient_checkpointing_kwargs.use_reentrant", "false", NEW,
     .read_only = true},
    {VP_SETTING_RECOMPUTE, "full", "gradient_checkpointing_kwargs.every_n_layers", NULL, NEW,
     .read_only = true},
    {VP_SETTING_RECOMPUTE, "full:reentrant", "activation_checkpointing", NULL, NEW,
     .read_only = true},
    {VP_SETTING_RECOMPUTE, "full:reentrant", "gradient_checkpointing", "true", NEW,
     .read_only = true},
    {VP_SETTING_RECOMPUTE, "full:reentrant", "gradient_checkpointing_kwargs.use_reentrant", "true",
     NEW, .read_only = true},
    {VP_SETTING_RECOMPUTE, "full:reentrant", "gradient_checkpointing_kwargs.every_n_layers", NULL,
     NEW, .read_only = true},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "none", "gradient_checkpointing_kwargs.offload", "false",
     "recompute=full|full:reentrant|every:N,target!=trl", .since = "5.17", OLD},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "cpu", "gradient_checkpointing_kwargs.offload", "true",
     "recompute=full|full:reentrant|every:N,target!=trl", .since = "5.17", OLD},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "none", "activation_checkpointing_kwargs.offload", "false",
     "recompute=full|full:reentrant|every:N,target!=trl", NEW},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "cpu", "activation_checkpointing_kwargs.offload", "true",
     "recompute=full|full:reentrant|every:N,target!=trl", NEW},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "none", "gradient_checkpointing_kwargs.offload", "false",
     "recompute=full|full:reentrant|every:N,target!=trl", NEW, .read_only = true},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "cpu", "gradient_checkpointing_kwargs.offload", "true",
     "recompute=full|full:reentrant|every:N,target!=trl", NEW, .read_only = true},
    {VP_SETTING_LOSS, "full", "use_liger_kernel", "false", "target!=trl"},
    {VP_SETTING_LOSS, "liger-all", "use_liger_kernel", "true", "target!=trl"},
    {VP_SETTING_LOSS, "liger-all", "liger_kernel_config", NULL, "target!=trl"},
    {VP_SETTING_LOSS, "liger", "use_liger_kernel", "true", "target!=trl"},
    {VP_SETTING_LOSS, "liger", "liger_kernel_config.rope", "false", "target!=trl"},
    {VP_SETTING_LOSS, "liger", "liger_kernel_config.rms_norm", "false", "target!=trl"},
    {VP_SETTING_LOSS, "liger", "liger_kernel_config.swiglu", "false", "target!=trl"},
    {VP_SETTING_LOSS, "liger", "liger_kernel_config.cross_entropy", "false", "target!=trl"},
    {VP_SETTING_LOSS, "liger", "liger_kernel_config.fused_linear_cross_entropy", "true",
     "target!=trl"},
    {VP_SETTING_CLIP_NORM, "R", "max_grad_norm", "$"},
    {VP_SETTING_PARALLEL, "zero1", "deepspeed", "$file:", .read_only = true},
    {VP_SETTING_PARALLEL, "zero2", "deepspeed", "$file:", .read_only = true},
    {VP_SETTING_PARALLEL, "zero3", "deepspeed", "$file:", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp", "$set", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp_config.fsdp_version", "2", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp", "fsdp", "$set", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp", "fsdp_config.fsdp_version", "1", .read_only = true},
    FSDP_SAYS("fsdp_config."),
    {VP_SETTING_OFFLOAD_PARAMS, "cpu", "fsdp", "full_shard auto_wrap offload",
     "parallel=fsdp|fsdp2", .read_only = true},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", "fsdp", "full_shard auto_wrap offload",
     "parallel=fsdp|fsdp2", .read_only = true},
    {VP_SETTING_OFFLOAD_PARAMS, "cpu", "fsdp", "full_shard offload auto_wrap",
     "parallel=fsdp|fsdp2", .read_only = true},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", "fsdp", "full_shard offload auto_wrap",
     "parallel=fsdp|fsdp2", .read_only = true},
    {VP_ALWAYS, NULL, "tf32", "null"},
    {VP_ALWAYS, VP_OFF, "torch_compile", "false"},
    {VP_ALWAYS, VP_OFF, "auto_find_batch_size", "false"},
    {VP_ALWAYS, VP_OFF, "liger_kernel_config", NULL, "loss!=liger|liger-all"},
    {VP_ALWAYS, VP_OFF, "fsdp", NULL, "parallel=none|ddp"},
    {VP_ALWAYS, VP_OFF, "fsdp_config", NULL, "parallel=none|ddp"},
    {VP_ALWAYS, VP_OFF, "deepspeed", NULL, "parallel=none|ddp"},
    VP_EVALUATION_BY_TRAINER,
    {VP_SETTING_EVAL_BATCH, "none", "evaluation_strategy", "no", .until = "4.51",
     .read_only = true},
    {VP_SETTING_EVAL_BATCH, "N", "evaluation_strategy", "steps", .until = "4.51",
     .read_only = true},
    {VP_SETTING_EVAL_BATCH, "N", "per_device_eval_batch_size", "$", .until = "4.51",
     .read_only = true},
    {VP_SETTING_EVAL_BATCH, "none", "evaluation_strategy", "no", .until = "4.51",
     .read_only = true},
    {VP_SETTING_EVAL_BATCH, "N", "evaluation_strategy", "epoch", .until = "4.51",
     .read_only = true},
    {VP_SETTING_EVAL_BATCH, "N", "per_device_eval_batch_size", "$", .until = "4.51",
     .read_only = true},
    {VP_ALWAYS, NULL, "per_device_eval_batch_size", "1", "eval_batch=none"},
    {VP_ALWAYS, NULL, "eval_accumulation_steps", "1"},
    {VP_ALWAYS, NULL, "dataloader_num_workers", "0"},
    {VP_ALWAYS, NULL, "dataloader_pin_memory", "true"},
};

static const vp_rule trainer_rules[] = {
    {"fp16", "=true", "bf16", "=true", VP_ERROR, "fp16 and bf16 exclude each other",
     "bf16 alone, on a card that has it"},
    {"fp16_full_eval", "=true", "bf16_full_eval", "=true", VP_ERROR,
     "fp16_full_eval and bf16_full_eval exclude each other", "bf16_full_eval alone"},
    {"logging_steps", "=0", "logging_strategy", "=steps", VP_ERROR, "0 steps are refused",
     "logging_strategy: no"},
    VP_PROJECTS_RULES("optim", "all-linear"),
    {"dataloader_prefetch_factor", "set", "dataloader_num_workers", "=0", VP_ERROR,
     "a prefetch factor without workers is refused", "dataloader_num_workers: 2"},
    {"gradient_checkpointing_kwargs", "set", "gradient_checkpointing", "=false", VP_WARNING,
     "has no effect while gradient_checkpointing is false", "gradient_checkpointing: true",
     .until = "5.23"},
    {"activation_checkpointing", "set", "gradient_checkpointing", "set", VP_WARNING,
     "gradient_checkpointing is its old name, and counts only where this one is null",
     "this one alone"},
    {"liger_kernel_config", "set", "use_liger_kernel", "=false", VP_WARNING,
     "has no effect while use_liger_kernel is false", "use_liger_kernel: true"},
    {"auto_find_batch_size", "=true", NULL, NULL, VP_WARNING,
     "starts again with a smaller batch at every out-of-memory error: the batch that runs is not "
     "the one that stands here",
     "auto_find_batch_size: false"},
    {"torch_empty_cache_steps", "=0", NULL, NULL, VP_ERROR, "must be a whole number from 1", "1"},
    {"deepspeed", "set", "fsdp", "set", VP_ERROR, "deepspeed and fsdp exclude each other",
     "one of them"},
    {"accelerator_config.gradient_accumulation_kwargs.num_steps", "set",
     "gradient_accumulation_steps", ">1", VP_ERROR,
     "Trainer refuses it beside gradient_accumulation_steps", "gradient_accumulation_steps alone"},
    {"gradient_checkpointing", "=true", "fsdp_config.fsdp_activation_checkpointing", "=true",
     VP_ERROR, "Trainer refuses it together with fsdp_config's own activation_checkpointing",
     "gradient_checkpointing: false"},
    {"skip_memory_metrics", "=false", NULL, NULL, VP_NOTE,
     "measures memory in every phase, and slows the run", "skip_memory_metrics: true"},
    {"optim", "=adamw_hf", NULL, NULL, VP_ERROR, "is gone from transformers 5", "adamw_torch_fused",
     .since = "5.0"},
};

#define ARRAY(keys, field) .field = keys, .n_##field = sizeof keys / sizeof *keys

const vp_dialect vp_dialect_transformers = {
    .name    = "training_args",
    .library = "transformers",
    .version = "5.24.0",
    .writes  = "5.22.0",
    .oldest  = "4.57",
    ARRAY(trainer_keys, keys),
    ARRAY(trainer_sections, sections),
    ARRAY(trainer_says, says),
    ARRAY(trainer_rules, rules),
    .signs = "per_device_train_batch_size gradient_accumulation_steps optim lr_scheduler_type "
             "num_train_epochs",
    /* of a script of Python what it calls */
    .programs = "TrainingArguments Seq2SeqTrainingArguments",
    .own      = "save_strategy eval_strategy evaluation_strategy logging_strategy save_total_limit "
                "overwrite_output_dir load_best_model_at_end optim",
    .sees_cards = VP_DATA_PARALLEL,
};

/* ---- the file that fsdp_config may name ---- */

static const vp_key     fsdp_keys[]     = {FSDP_KEYS("")};
static const vp_section fsdp_sections[] = {FSDP_SECTION("")};
static const vp_saying  fsdp_says[]     = {
         {VP_SETTING_PARALLEL, "fsdp2", "fsdp_version", "2", .read_only = true},
         {VP_SETTING_PARALLEL, "fsdp", "fsdp_version", "1", .read_only = true},
         FSDP_SAYS(""),
};

const vp_dialect vp_dialect_fsdp = {
    .name    = "fsdp_config",
    .library = "transformers",
    .version = "5.24.0",
    .writes  = "5.22.0",
    .oldest  = "4.57",
    ARRAY(fsdp_keys, keys),
    ARRAY(fsdp_sections, sections),
    ARRAY(fsdp_says, says),
    .signs = "transformer_layer_cls_to_wrap fsdp_transformer_layer_cls_to_wrap",
    .only  = VP_FORMAT_JSON,
};

/* The file that accelerator_config may name. */
static const vp_key accelerator_keys[] = {
    {"gradient_accumulation_kwargs", VP_KEY_MAP},
    {"gradient_accumulation_kwargs.sync_each_batch", VP_KEY_BOOL, "false", .since = "5.2"},
    {"gradient_accumulation_kwargs.num_steps", VP_KEY_INT},
};
static const vp_section accelerator_sections[] = {
    {"", VP_STRANGERS_REFUSED, VP_ACCELERATOR_KNOWN},
    {"gradient_accumulation_kwargs", VP_STRANGERS_REFUSED, VP_ACCUMULATION_KNOWN},
};
static const vp_saying accelerator_says[] = {
    {VP_SETTING_GRADIENT_SYNC, "each", "gradient_accumulation_kwargs.sync_each_batch", "true",
     .since = "5.2", .read_only = true},
};

const vp_dialect vp_dialect_accelerator = {
    .name    = "accelerator_config",
    .library = "transformers",
    .version = "5.24.0",
    .writes  = "5.22.0",
    .oldest  = "4.57",
    ARRAY(accelerator_keys, keys),
    ARRAY(accelerator_sections, sections),
    ARRAY(accelerator_says, says),
    .signs      = "gradient_accumulation_kwargs use_seedable_sampler",
    .flag_signs = "",
    .only       = VP_FORMAT_JSON,
};

/* The file that ms-swift's --fsdp names: both of Trainer's keys, and FSDP2 where it says no version. Keys that begin with
 * an underscore are its notes. */
static const vp_key swift_fsdp_keys[] = {
    {"fsdp", VP_KEY_ANY},
    {"fsdp_config", VP_KEY_MAP},
    {"fsdp_config.fsdp_activation_cpu_offload", VP_KEY_BOOL, "false"},
    {"fsdp_config.fsdp_version", VP_KEY_INT, "2", FSDP_VERSION},
    FSDP_OTHER_KEYS("fsdp_config."),
};
static const vp_section swift_fsdp_sections[] = {
    {"", VP_STRANGERS_DROPPED, "_description _requires _note _param_docs _comment"},
    {"fsdp_config", VP_STRANGERS_DROPPED, FSDP_KNOWN, .prefix = "fsdp_"},
};
static const vp_saying swift_fsdp_says[] = {
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp_config.fsdp_version", "2", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp", "fsdp_config.fsdp_version", "1", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp", "$set", .read_only = true},
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp_config.fsdp_version", NULL, .read_only = true},
    FSDP_SAYS("fsdp_config."),
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "cpu", "fsdp_config.fsdp_activation_cpu_offload", "true",
     .read_only = true},
    {VP_SETTING_OFFLOAD_PARAMS, "cpu", "fsdp", "full_shard auto_wrap offload", .read_only = true},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", "fsdp", "full_shard auto_wrap offload",
     .read_only = true},
};

const vp_dialect vp_dialect_swift_fsdp = {
    .name    = "swift_fsdp",
    .library = "ms-swift",
    .version = "4.6.0",
    ARRAY(swift_fsdp_keys, keys),
    ARRAY(swift_fsdp_sections, sections),
    ARRAY(swift_fsdp_says, says),
    .signs = "fsdp",
    .only  = VP_FORMAT_JSON,
};

/* ---- what the model is loaded with ---- */

static const vp_key model_keys[] = {
    {"pretrained_model_name_or_path", VP_KEY_TEXT},
    {"dtype", VP_KEY_WORD, "auto", "auto|float32|bfloat16|float16", .was = "float32",
     .changed = "5.0", .costs = "weights stay in the file's type"},
    {"attn_implementation", VP_KEY_TEXT},
    ENABLED_KEYS("false"),                                               /* that a script calls */
    {"gradient_checkpointing_layers", VP_KEY_INT, .min = 1, .max = 1e6}, /* train.py's own */
    {"prepare_model_for_kbit_training", VP_KEY_BOOL},                    /* likewise */
    {"sequence_length", VP_KEY_INT, .min = 1, .max = BIG},
    {"quantization_config", VP_KEY_MAP},
    {"quantization_config.load_in_4bit", VP_KEY_BOOL},
    {"quantization_config.load_in_8bit", VP_KEY_BOOL},
    {"quantization_config.bnb_4bit_quant_type", VP_KEY_WORD, "fp4", "nf4|fp4",
     .costs = "4-bit floats; NF4 takes the same bytes and is nearer to the weights"},
    {"quantization_config.bnb_4bit_use_double_quant", VP_KEY_BOOL, "false"},
    {"quantization_config.bnb_4bit_quant_storage", VP_KEY_WORD, "uint8", VP_STORAGES},
    {"quantization_config.bnb_4bit_compute_dtype", VP_KEY_WORD, "float32",
     "float32|bfloat16|float16"},
    {"torch_dtype", VP_KEY_TEXT, .until = "4.56", .instead = "dtype", .warned = true},
    /* from 5.0 on they reach the model's own class: TypeError */
    {"load_in_4bit", VP_KEY_BOOL, .until = "5.0",
     .instead = "quantization_config: BitsAndBytesConfig(load_in_4bit=True)"},
    {"load_in_8bit", VP_KEY_BOOL, .until = "5.0",
     .instead = "quantization_config: BitsAndBytesConfig(load_in_8bit=True)"},
    {"use_auth_token", VP_KEY_ANY, .until = "5.0", .instead = "token"},
    {"max_memory", VP_KEY_ANY},
    {"use_flash_attention_2", VP_KEY_BOOL, .until = "5.0",
     .instead = "attn_implementation: flash_attention_2"},
};

static const vp_section model_sections[] = {
    /* what they do not know goes to the model's configuration, which may have it */
    {"", VP_STRANGERS_KEPT,
     "config device_map device_mesh tp_size tqdm_class from_tf from_flax mirror offload_buffers state_dict proxies "
     "generation_config distributed_config use_kernels kernel_config key_mapping gguf_file "
     "adapter_kwargs trust_remote_code use_cache cache_dir token revision code_revision "
     "low_cpu_mem_usage use_safetensors offload_folder offload_state_dict force_download "
     "local_files_only ignore_mismatched_sizes subfolder variant tp_plan rope_scaling num_labels id2label "
     "label2id problem_type output_loading_info pad_token_id"},
    {"quantization_config", VP_STRANGERS_REFUSED,
     "quant_method llm_int8_threshold llm_int8_skip_modules "
     "llm_int8_enable_fp32_cpu_offload llm_int8_has_fp16_weight"},
};

static const vp_saying model_says[] = {
    {VP_ALWAYS, NULL, "pretrained_model_name_or_path", "$model"},
    {VP_SETTING_SEQ, "*", "sequence_length", "$"},
    {VP_SETTING_PRECISION, "fp32", "dtype", "float32"},
    {VP_SETTING_PRECISION, "bf16-mixed", "dtype", "float32"},
    {VP_SETTING_PRECISION, "fp16-mixed", "dtype", "float32"},
    {VP_SETTING_PRECISION, "bf16-amp", "dtype", "bfloat16"},
    {VP_SETTING_PRECISION, "bf16", "dtype", "bfloat16"},
    {VP_SETTING_PRECISION, "fp16-amp", "dtype", "float16", "tuning!=full"},
    {VP_SETTING_PRECISION, "fp16", "dtype", "float16"},
    {VP_SETTING_PRECISION, "fp32", "torch_dtype", "float32", .read_only = true},
    {VP_SETTING_PRECISION, "bf16-mixed", "torch_dtype", "float32", .read_only = true},
    {VP_SETTING_PRECISION, "fp16-mixed", "torch_dtype", "float32", .read_only = true},
    {VP_SETTING_PRECISION, "bf16-amp", "torch_dtype", "bfloat16", .read_only = true},
    {VP_SETTING_PRECISION, "bf16", "torch_dtype", "bfloat16", .read_only = true},
    {VP_SETTING_PRECISION, "fp16-amp", "torch_dtype", "float16", "tuning!=full", .read_only = true},
    {VP_SETTING_PRECISION, "fp16", "torch_dtype", "float16", .read_only = true},
    ENABLED_SAYS,
    {VP_SETTING_RECOMPUTE, "first:N", "gradient_checkpointing_layers", "$"},
    {VP_ALWAYS, VP_OFF, "gradient_checkpointing_layers", NULL, "recompute!=first:N"},
    {VP_SETTING_ATTENTION, "eager", "attn_implementation", "eager"},
    {VP_SETTING_ATTENTION, "sdpa", "attn_implementation", "sdpa"},
    {VP_SETTING_ATTENTION, "flash2", "attn_implementation", "flash_attention_2"},
    {VP_SETTING_ATTENTION, "flash3", "attn_implementation", "flash_attention_3"},
    {VP_SETTING_ATTENTION, "flex", "attn_implementation", "flex_attention"},
    {VP_SETTING_TUNING, "full", "quantization_config", NULL},
    {VP_SETTING_TUNING, "lora", "quantization_config.load_in_4bit", "false"},
    {VP_SETTING_TUNING, "qlora", "quantization_config.load_in_4bit", "true"},
    {VP_SETTING_TUNING, "qlora", "load_in_4bit", "true", .until = "5.0", .read_only = true},
    {VP_ALWAYS, NULL, "quantization_config.bnb_4bit_quant_type", "nf4", "tuning=qlora"},
    {VP_SETTING_QUANT, "nf4", "quantization_config.bnb_4bit_use_double_quant", "false",
     "tuning=qlora"},
    {VP_SETTING_QUANT, "nf4-dq", "quantization_config.bnb_4bit_use_double_quant", "true",
     "tuning=qlora"},
    {VP_SETTING_PREPARE, "trainer", "prepare_model_for_kbit_training", NULL, "tuning=qlora"},
    {VP_SETTING_PREPARE, "on", "prepare_model_for_kbit_training", "true", "tuning=qlora"},
    {VP_SETTING_PREPARE, "off", "prepare_model_for_kbit_training", "false", "tuning=qlora"},
    VP_PACKED_AS_COMPUTED("quantization_config.bnb_4bit_quant_storage"),
    {VP_ALWAYS, NULL, "quantization_config.bnb_4bit_compute_dtype", "bfloat16",
     "tuning=qlora,precision=bf16-mixed|bf16-amp|bf16"},
    {VP_ALWAYS, NULL, "quantization_config.bnb_4bit_compute_dtype", "float16",
     "tuning=qlora,precision=fp16-mixed|fp16-amp|fp16"},
    {VP_ALWAYS, NULL, "quantization_config.bnb_4bit_compute_dtype", "float32",
     "tuning=qlora,precision=fp32"},
};

static const vp_rule model_rules[] = {
    {"max_memory", "set", NULL, NULL, VP_NOTE,
     "layers beyond it go to other cards or the host: what is counted is all of them on one card"},
};

const vp_dialect vp_dialect_model = {
    .name    = "model_args",
    .library = "transformers",
    .version = "5.24.0",
    .writes  = "5.22.0",
    .oldest  = "4.57",
    ARRAY(model_keys, keys),
    ARRAY(model_sections, sections),
    ARRAY(model_says, says),
    ARRAY(model_rules, rules),
    .signs      = "pretrained_model_name_or_path sequence_length",
    .flag_signs = "",
};

/* ---- peft ---- */

/* peft/tuners/lora/config.py of 0.21.2; also adapter_config.json beside saved adapters. */
static const vp_key lora_keys[] = {
    {"peft_type", VP_KEY_TEXT},
    {"r", VP_KEY_INT, "8", .min = 1, .max = 1e6},
    {"lora_alpha", VP_KEY_INT, "8", .min = 1, .max = 1e6},
    {"lora_dropout", VP_KEY_REAL, "0.0", .min = 0, .max = 1},
    {"target_modules", VP_KEY_LIST, .alone = "all-linear"},
    {"modules_to_save", VP_KEY_LIST},
    {"use_dora", VP_KEY_BOOL, "false"},
    {"use_rslora", VP_KEY_BOOL, "false"},
    {"bias", VP_KEY_WORD, "none", "none|all|lora_only"},
    {"task_type", VP_KEY_WORD, NULL,
     "SEQ_CLS|SEQ_2_SEQ_LM|CAUSAL_LM|TOKEN_CLS|QUESTION_ANS|FEATURE_EXTRACTION"},
};

static const vp_section lora_sections[] = {
    {"", VP_STRANGERS_REFUSED,
     "auto_mapping peft_version base_model_name_or_path revision inference_mode:b "
     "exclude_modules fan_in_fan_out:b init_lora_weights layers_to_transform layers_pattern "
     "rank_pattern alpha_pattern megatron_config megatron_core trainable_token_indices "
     "loftq_config eva_config corda_config lora_ga_config velora_config alora_invocation_tokens "
     "use_qalora:b qalora_group_size:i monteclora_config layer_replication runtime_config lora_bias:b "
     "target_parameters use_bdlora arrow_config kasa_config ensure_weight_tying:b"}};

/* Whether the weights beneath are quantised, what loads them says. */
static const vp_saying lora_says[] = {
    {VP_SETTING_TUNING, "lora", "peft_type", "LORA"},
    {VP_SETTING_TUNING, "qlora", "peft_type", "LORA"},
    {VP_SETTING_LORA_R, "N", "r", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_ALPHA, "N", "lora_alpha", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_DROPOUT, "R", "lora_dropout", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_TARGETS, "L", "target_modules", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_SAVE, "none", "modules_to_save", NULL, "tuning=lora|qlora"},
    {VP_SETTING_LORA_SAVE, "L", "modules_to_save", "$", "tuning=lora|qlora,lora_save!=none"},
    {VP_ALWAYS, NULL, "bias", "none"},
    {VP_ALWAYS, VP_OFF, "use_dora", "false"},
};

static const vp_rule lora_rules[] = {
    {"target_modules", "=all-linear", "modules_to_save", "set", VP_NOTE,
     "modules_to_save train whole, as copies in the format the model was loaded in",
     "leave it out"},
};

const vp_dialect vp_dialect_lora = {
    .name    = "lora_config",
    .library = "peft",
    .version = "0.21.2",
    ARRAY(lora_keys, keys),
    ARRAY(lora_sections, sections),
    ARRAY(lora_says, says),
    ARRAY(lora_rules, rules),
    .signs      = "peft_type",
    .flag_signs = "",
};
