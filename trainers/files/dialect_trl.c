/* trainers/files/dialect_trl.c: the configs of TRL's SFTTrainer, DPOTrainer, RewardTrainer and GRPOTrainer, with ModelConfig, in one
 * table: what one of them has and another has not says judge_trl.c. Read in TRL 1.10 and 1.16, whose loss_type nll is the tiled one;
 * before, chunked_nll was, and nll the full one. */
#include "trainers/files/target.h"

#define BIG                1e12
#define ARRAY(keys, field) .field = keys, .n_##field = sizeof keys / sizeof *keys

/* ModelConfig's: a script gives SFTConfig none of them. */
#define MODEL_CONFIG .elsewhere = true

static const vp_key trl_keys[] = {
    {"gradient_checkpointing", VP_KEY_BOOL, "true"},
    {"bf16", VP_KEY_BOOL, "!fp16"}, /* trl/trainer/base_config.py */
    {"learning_rate", VP_KEY_REAL, "2.0e-05", .min = 0, .max = 100},
    {"logging_steps", VP_KEY_REAL, "10", .min = 0, .max = BIG},
    {"max_length", VP_KEY_INT, "1024", "null", .min = 1, .max = BIG,
     .costs = "samples are cut at 1,024 tokens"},
    {"packing", VP_KEY_BOOL, "false"},
    /* trl/trainer/sft_trainer.py sets it with transformers 4 too */
    {"gradient_checkpointing_kwargs.use_reentrant", VP_KEY_BOOL, "false"},
    /* SFTTrainer's own */
    {"gradient_checkpointing_kwargs.selective", VP_KEY_BOOL, "false", .since = "1.15"},
    {"accelerate_config", VP_KEY_TEXT}, /* of the command trl: named.c */
    {"packing_strategy", VP_KEY_WORD, "bfd", "bfd|bfd_split|wrapped|bfd-requeue"},
    {"padding_free", VP_KEY_BOOL, "false"},
    {"pad_to_multiple_of", VP_KEY_ANY},
    {"precompute_ref_log_probs", VP_KEY_BOOL, "false"},
    {"loss_type", VP_KEY_ANY,
     "nll"}, /* trainers of other methods have words of their own, and lists */
    {"activation_offloading", VP_KEY_BOOL, "false"},
    {"assistant_only_loss", VP_KEY_BOOL, "false"},
    {"model_name_or_path", VP_KEY_TEXT, MODEL_CONFIG},
    {"dtype", VP_KEY_WORD, "float32", "auto|float32|bfloat16|float16", MODEL_CONFIG},
    {"attn_implementation", VP_KEY_TEXT, MODEL_CONFIG},
    {"use_peft", VP_KEY_BOOL, "false", MODEL_CONFIG},
    {"lora_r", VP_KEY_INT, "16", .min = 1, .max = 1e6, MODEL_CONFIG},
    {"lora_alpha", VP_KEY_INT, "32", .min = 1, .max = 1e6, MODEL_CONFIG},
    {"lora_dropout", VP_KEY_REAL, "0.05", .min = 0, .max = 1, MODEL_CONFIG},
    {"lora_target_modules", VP_KEY_LIST, MODEL_CONFIG},
    {"lora_modules_to_save", VP_KEY_LIST, MODEL_CONFIG},
    {"lora_task_type", VP_KEY_WORD, "CAUSAL_LM",
     "CAUSAL_LM|SEQ_CLS|SEQ_2_SEQ_LM|TOKEN_CLS|QUESTION_ANS|FEATURE_EXTRACTION", MODEL_CONFIG},
    {"use_dora", VP_KEY_BOOL, "false", MODEL_CONFIG},
    {"use_rslora", VP_KEY_BOOL, "false", MODEL_CONFIG},
    {"load_in_8bit", VP_KEY_BOOL, "false", MODEL_CONFIG},
    {"load_in_4bit", VP_KEY_BOOL, "false", MODEL_CONFIG},
    {"bnb_4bit_quant_type", VP_KEY_WORD, "nf4", "nf4|fp4", MODEL_CONFIG},
    {"use_bnb_nested_quant", VP_KEY_BOOL, "false", MODEL_CONFIG},
    {"bnb_4bit_quant_storage", VP_KEY_TEXT, NULL, VP_STORAGES, MODEL_CONFIG},
    {"max_seq_length", VP_KEY_INT, .until = "0.20", .instead = "max_length"},
    {"torch_dtype", VP_KEY_TEXT, .until = "0.27", .instead = "dtype"},
    {"use_liger", VP_KEY_BOOL, .until = "0.18", .instead = "use_liger_kernel"},
    {"num_of_sequences", VP_KEY_INT, .until = "0.18", .instead = "nothing"},
    {"chars_per_token", VP_KEY_REAL, .until = "0.18", .instead = "nothing"},
    {"dataset_batch_size", VP_KEY_INT, .until = "0.18", .instead = "nothing"},
    {"use_flash_attention_2", VP_KEY_BOOL, .until = "0.20",
     .instead = "attn_implementation: flash_attention_2"},
    {"neftune_noise_alpha", VP_KEY_REAL},
    {"dataset_num_proc", VP_KEY_INT, .min = 1, .max = 4096},
    {"beta", VP_KEY_REAL}, /* DPO's is 0.1 by default, GRPO's 0 */
    {"center_rewards_coefficient", VP_KEY_REAL},
    /* GRPOConfig's */
    {"num_iterations", VP_KEY_INT, "1", .min = 1, .max = BIG},
    {"max_completion_length", VP_KEY_INT, "512", .min = 1, .max = BIG},
    {"num_generations", VP_KEY_INT, "8", .min = 2, .max = BIG},
    {"use_vllm", VP_KEY_BOOL, "false"},
    {"vllm_mode", VP_KEY_WORD, "colocate", "colocate|server"},
    {"vllm_gpu_memory_utilization", VP_KEY_REAL, "0.3", .min = 0, .max = 1},
    {"steps_per_generation", VP_KEY_INT, .min = 1, .max = BIG},
    {"generation_batch_size", VP_KEY_INT, .min = 1, .max = BIG},
    {"max_prompt_length", VP_KEY_INT, .min = 1, .max = BIG},
};

static const vp_section trl_sections[] = {
    {"", VP_STRANGERS_KEPT,
     "model_init_kwargs trust_remote_code:b router_aux_loss_coef:r chat_template_path "
     "dataset_text_field dataset_kwargs eos_token truncation_mode shuffle_dataset:b eval_packing:b "
     "completion_only_loss:b pad_token model_revision lora_target_parameters "
     "dataset_name dataset_config dataset_train_split dataset_test_split dataset_streaming:b "
     "ignore_bias_buffers:b env datasets streaming test_split_size config "
     /* of DPO (judge_trl.c), with what it had before */
     "loss_weights ld_alpha:r f_divergence_type f_alpha_divergence_coef:r label_smoothing:r "
     "use_weighting:b discopop_tau:r disable_dropout:b sync_ref_model:b ref_model_mixup_alpha:r "
     "ref_model_sync_steps:i precompute_ref_batch_size:i "
     "rpo_alpha:r reference_free:b generate_during_eval:b "
     "use_logits_to_keep:b padding_value:i label_pad_token_id:i model_adapter_name "
     "ref_adapter_name force_use_ref_model:b ref_model_init_kwargs use_liger_loss:b "
     "is_encoder_decoder:b base_model_attribute_name tools "
     /* of GRPO, and of its script */
     "cast_lm_head_to_fp32:b num_generations_eval:i ds3_gather_for_generation:b temperature:r top_p:r "
     "top_k:i min_p:r generation_kwargs chat_template_kwargs repetition_penalty:r cache_implementation "
     "vllm_model_impl vllm_enable_sleep_mode:b vllm_structured_outputs_regex vllm_server_base_url "
     "vllm_server_host vllm_server_port:i vllm_server_timeout:r vllm_group_port:i "
     "vllm_max_model_length:i vllm_tensor_parallel_size:i epsilon:r delta:r "
     "epsilon_high:r sapo_temperature_neg:r sapo_temperature_pos:r vespo_k_pos:r vespo_lambda_pos:r "
     "vespo_k_neg:r vespo_lambda_neg:r importance_sampling_level reward_weights "
     "multi_objective_aggregation scale_rewards mask_truncated_completions:b top_entropy_quantile:r "
     "entropy_coef:r use_adaptive_entropy:b entropy_coef_min:r entropy_coef_max:r entropy_coef_delta:r "
     "entropy_target:r max_tool_calling_iterations:i vllm_importance_sampling_correction:b "
     "vllm_importance_sampling_mode vllm_importance_sampling_clip_max:r "
     "vllm_importance_sampling_clip_min:r vllm_importance_sampling_cap:r off_policy_mask_threshold:r "
     "use_bias_correction_kl:b log_completions:b log_multimodal:b num_completions_to_print:i "
     "log_unique_prompts:b log_completions_hub_repo use_transformers_continuous_batching:b "
     "transformers_continuous_batching_config use_transformers_paged:b reward_funcs "
     "reward_model_name_or_path",
     .scripts = VP_SCRIPTS_HAVE},
};

static const vp_saying trl_says[] = {
    {VP_ALWAYS, NULL, "model_name_or_path", "$model"},
    {VP_SETTING_SEQ, "*", "max_length", "$", "method!=grpo"},
    {VP_SETTING_COMPLETION, "N", "max_completion_length", "$", "method=grpo"},
    {VP_SETTING_GENERATOR, "model", "use_vllm", "false", "method=grpo"},
    {VP_SETTING_GENERATOR, "vllm", "use_vllm", "true", "method=grpo"},
    {VP_SETTING_PRECISION, "fp32", "dtype", "float32"},
    {VP_SETTING_PRECISION, "bf16-mixed", "dtype", "float32"},
    {VP_SETTING_PRECISION, "fp16-mixed", "dtype", "float32"},
    {VP_SETTING_PRECISION, "bf16-amp", "dtype", "bfloat16"},
    {VP_SETTING_PRECISION, "bf16", "dtype", "bfloat16"},
    {VP_SETTING_PRECISION, "fp16-amp", "dtype", "float16", "tuning!=full"},
    {VP_SETTING_PRECISION, "fp16", "dtype", "float16"},
    {VP_SETTING_METHOD, "sft", "packing", "false"},
    {VP_SETTING_METHOD, "dpo", "precompute_ref_log_probs", "false"},
    {VP_SETTING_METHOD, "reward", "center_rewards_coefficient", "null"},
    {VP_SETTING_METHOD, "grpo", "beta", "0.0"},
    {VP_ALWAYS, NULL, "vllm_mode", "server", "method=grpo,generator=vllm"},
    {VP_ALWAYS, NULL, "num_iterations", "1", "method=grpo"},
    {VP_ALWAYS, NULL, "num_generations", "$group", "method=grpo"},
    {VP_SETTING_LOSS, "full", "use_liger_kernel", "false", "method!=sft"},
    {VP_SETTING_LOSS, "chunked", "loss_type", "nll", "method=sft", .since = "1.16"},
    {VP_SETTING_LOSS, "chunked", "use_liger_kernel", "false", "method=sft", .since = "1.16"},
    {VP_SETTING_LOSS, "chunked", "loss_type", "chunked_nll", "method=sft", .since = "1.10",
     .until = "1.16"},
    {VP_SETTING_LOSS, "chunked", "use_liger_kernel", "false", "method=sft", .since = "1.10",
     .until = "1.16"},
    {VP_SETTING_LOSS, "full", "loss_type", "nll", "method=sft", .until = "1.16"},
    {VP_SETTING_LOSS, "full", "use_liger_kernel", "false", "method=sft", .until = "1.16"},
    {VP_SETTING_LOSS, "liger-all", "use_liger_kernel", "true", "method=sft", .until = "1.16"},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "none", "activation_offloading", "false", "method!=grpo"},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "cpu", "activation_offloading", "true", "method!=grpo"},
    {VP_SETTING_ATTENTION, "eager", "attn_implementation", "eager"},
    {VP_SETTING_ATTENTION, "sdpa", "attn_implementation", "sdpa"},
    {VP_SETTING_ATTENTION, "flash2", "attn_implementation", "flash_attention_2"},
    {VP_SETTING_ATTENTION, "flash3", "attn_implementation", "flash_attention_3"},
    {VP_SETTING_ATTENTION, "flex", "attn_implementation", "flex_attention"},
    {VP_SETTING_TUNING, "full", "use_peft", "false"},
    {VP_SETTING_TUNING, "full", "load_in_4bit", "false"},
    {VP_SETTING_TUNING, "lora", "use_peft", "true"},
    {VP_SETTING_TUNING, "lora", "load_in_4bit", "false"},
    {VP_SETTING_TUNING, "qlora", "use_peft", "true"},
    {VP_SETTING_TUNING, "qlora", "load_in_4bit", "true"},
    {VP_SETTING_LORA_R, "N", "lora_r", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_ALPHA, "N", "lora_alpha", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_DROPOUT, "R", "lora_dropout", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_TARGETS, "L", "lora_target_modules", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_SAVE, "none", "lora_modules_to_save", NULL, "tuning=lora|qlora"},
    {VP_SETTING_LORA_SAVE, "L", "lora_modules_to_save", "$", "tuning=lora|qlora,lora_save!=none"},
    {VP_ALWAYS, NULL, "lora_task_type", "SEQ_CLS", "method=reward,tuning=lora|qlora"},
    {VP_ALWAYS, NULL, "bnb_4bit_quant_type", "nf4", "tuning=qlora"},
    {VP_SETTING_QUANT, "nf4", "use_bnb_nested_quant", "false", "tuning=qlora"},
    {VP_SETTING_QUANT, "nf4-dq", "use_bnb_nested_quant", "true", "tuning=qlora"},
    VP_PACKED_AS_COMPUTED("bnb_4bit_quant_storage"),
    {VP_ALWAYS, NULL, "padding_free", "false", "method=sft|dpo"},
    {VP_ALWAYS, NULL, "pad_to_multiple_of", "null"},
    {VP_ALWAYS, VP_OFF, "load_in_8bit", "false"},
};

static const vp_rule trl_rules[] = {
    {"lora_r", "set", "use_peft", "=false", VP_WARNING,
     "has no effect while use_peft is false: all weights train", "use_peft: true"},
    {"load_in_4bit", "=true", "load_in_8bit", "=true", VP_ERROR, "4 and 8 bits exclude each other",
     "one of them"},
    {"load_in_4bit", "=true", "use_peft", "=false", VP_ERROR, "quantised weights cannot be trained",
     "use_peft: true"},
    {"load_in_4bit", "=true", "fp16", "=true", VP_ERROR,
     "TRL makes adapters of quantised weights bf16, which fp16's GradScaler does not unscale",
     "bf16: true", .since = "1.16"},
    {"loss_type", "=chunked_nll", NULL, NULL, VP_WARNING, "is a deprecated spelling of nll",
     "loss_type: nll", .since = "1.16"},
    {"use_liger_kernel", "=true", NULL, NULL, VP_WARNING,
     "is deprecated in TRL 1.16, and its fused cross-entropy is refused",
     "model_init_kwargs: {use_kernels: true}", .since = "1.16"},
    {"padding_free", "=true", "attn_implementation", "!=flash_attention_2|flash_attention_3",
     VP_WARNING, "without a padding mask only flash attention keeps samples apart",
     "attn_implementation: flash_attention_2"},
    {"assistant_only_loss", "=true", "use_liger_kernel", "=true", VP_WARNING,
     "Liger's loss drops the mask of the assistant's tokens without a word: the loss is over the "
     "whole sample",
     "use_liger_kernel: false"},
};

const vp_dialect vp_dialect_trl = {
    .name    = "sft",
    .library = "trl",
    .version = "1.16.0",
    .oldest  = "1.10",
    ARRAY(trl_keys, keys),
    ARRAY(trl_sections, sections),
    ARRAY(trl_says, says),
    ARRAY(trl_rules, rules),
    .signs = "max_length max_seq_length use_peft lora_target_modules attn_implementation packing "
             "dtype torch_dtype model_name_or_path activation_offloading loss_type",
    /* scripts of everybody's have the others */
    .flag_signs = "use_peft activation_offloading assistant_only_loss padding_free",
    .programs =
        "SFTConfig DPOConfig RewardConfig GRPOConfig ORPOConfig CPOConfig KTOConfig GKDConfig PRMConfig trl trl.scripts.sft scripts/sft.py scripts/dpo.py scripts/kto.py scripts/grpo.py scripts/reward.py",
    /* TrlParser hands what it does not know to accelerate launch, whose parser ends with an error; a script run by itself ends with
     * one of HfArgumentParser's (cli/commands/training.py, scripts/utils.py) */
    .text_is_number =
        true, /* TrlParser makes a file's values defaults of options, which argparse reads */
    .refused_by = "trl trl.scripts.sft trl.scripts.dpo trl.scripts.grpo trl.scripts.reward",
    .own        = "save_strategy eval_strategy evaluation_strategy logging_strategy "
                  "save_total_limit overwrite_output_dir load_best_model_at_end optim use_peft "
                  "assistant_only_loss padding_free activation_offloading",
    .base       = &vp_dialect_transformers,
    .base_says  = true,
    .sees_cards = VP_DATA_PARALLEL,
};
