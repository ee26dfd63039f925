/* trainers/files/dialect_calls.c: what scripts give the classes of trainers, transformers' Trainer and TRL's. Read in
 * transformers 4.57 and 5.24, TRL 0.11, 0.12, 0.13, 0.15, 0.16 and 1.16. */
#include "trainers/files/target.h"

/* Arguments that became the configuration's. */
#define MOVED(name, config) \
    { \
        name, VP_KEY_ANY, .until = "0.13", .instead = config "(" name "=...)" \
    }
#define TOKENIZER(version) \
    { \
        "tokenizer", VP_KEY_ANY, .until = version, .instead = "processing_class" \
    }
#define KNOWN \
    "model args data_collator train_dataset eval_dataset processing_class compute_metrics " \
    "callbacks optimizers preprocess_logits_for_metrics "

static const vp_key trainer_keys[] = {TOKENIZER("5.0")};

static const vp_section trainer_sections[] = {
    {"", VP_STRANGERS_REFUSED, KNOWN "model_init compute_loss_func optimizer_cls_and_kwargs"}};

const vp_dialect vp_dialect_trainer_call = {
    .name       = "Trainer()",
    .library    = "transformers",
    .version    = "5.24.0",
    .writes     = "5.22.0",
    .oldest     = "4.57",
    .keys       = trainer_keys,
    .n_keys     = sizeof trainer_keys / sizeof *trainer_keys,
    .sections   = trainer_sections,
    .n_sections = 1,
};

#define SFT(name) MOVED(name, "SFTConfig")
static const vp_key sft_keys[] = {
    TOKENIZER("0.16"),
    {"max_seq_length", VP_KEY_ANY, .until = "0.13", .instead = "SFTConfig(max_length=...)"},
    SFT("dataset_text_field"),
    SFT("packing"),
    SFT("dataset_num_proc"),
    SFT("dataset_batch_size"),
    SFT("neftune_noise_alpha"),
    SFT("model_init_kwargs"),
    SFT("dataset_kwargs"),
    SFT("eval_packing"),
    {"num_of_sequences", VP_KEY_ANY, .until = "0.13", .instead = "nothing"},
    {"chars_per_token", VP_KEY_ANY, .until = "0.13", .instead = "nothing"},
    {"infinite", VP_KEY_ANY, .until = "0.13", .instead = "nothing"},
    {"model_init", VP_KEY_ANY, .until = "0.15", .instead = "model"},
};

static const vp_section sft_sections[] = {
    {"", VP_STRANGERS_REFUSED,
     KNOWN "compute_loss_func optimizer_cls_and_kwargs quantization_config peft_config "
           "formatting_func"}};

static const vp_saying sft_says[] = {
    {VP_SETTING_SEQ, "*", "max_seq_length", "$", .until = "0.13", .read_only = true}};

const vp_dialect vp_dialect_sft_call = {
    .name       = "SFTTrainer()",
    .library    = "trl",
    .version    = "1.16.0",
    .oldest     = "0.11",
    .keys       = sft_keys,
    .n_keys     = sizeof sft_keys / sizeof *sft_keys,
    .sections   = sft_sections,
    .n_sections = 1,
    .says       = sft_says,
    .n_says     = 1,
};

#define DPO(name) MOVED(name, "DPOConfig")
static const vp_key dpo_keys[] = {
    TOKENIZER("0.16"),
    DPO("beta"),
    DPO("label_smoothing"),
    DPO("loss_type"),
    DPO("label_pad_token_id"),
    DPO("padding_value"),
    DPO("truncation_mode"),
    DPO("max_length"),
    DPO("disable_dropout"),
    DPO("precompute_ref_log_probs"),
    DPO("dataset_num_proc"),
    DPO("model_init_kwargs"),
    {"max_prompt_length", VP_KEY_ANY, .until = "0.13", .instead = "DPOConfig(max_length=...)"},
    {"max_target_length", VP_KEY_ANY, .until = "0.13", .instead = "DPOConfig(max_length=...)"},
    {"is_encoder_decoder", VP_KEY_ANY, .until = "0.13", .instead = "nothing"},
    {"generate_during_eval", VP_KEY_ANY, .until = "0.13", .instead = "nothing"},
    {"ref_model_init_kwargs", VP_KEY_ANY, .until = "0.13", .instead = "nothing"},
    {"model_adapter_name", VP_KEY_ANY, .until = "0.13", .instead = "nothing"},
    {"ref_adapter_name", VP_KEY_ANY, .until = "0.13", .instead = "nothing"},
    {"reference_free", VP_KEY_ANY, .until = "0.13", .instead = "nothing"},
    {"force_use_ref_model", VP_KEY_ANY, .until = "0.13", .instead = "nothing"},
};

static const vp_section dpo_sections[] = {
    {"", VP_STRANGERS_REFUSED, KNOWN "ref_model model_init quantization_config peft_config"}};

static const vp_saying dpo_says[] = {
    {VP_SETTING_SEQ, "*", "max_length", "$", .until = "0.13", .read_only = true}};

const vp_dialect vp_dialect_dpo_call = {
    .name       = "DPOTrainer()",
    .library    = "trl",
    .version    = "1.16.0",
    .oldest     = "0.11",
    .keys       = dpo_keys,
    .n_keys     = sizeof dpo_keys / sizeof *dpo_keys,
    .sections   = dpo_sections,
    .n_sections = 1,
    .says       = dpo_says,
    .n_says     = 1,
};
