/* trainers/files/dialect_native.c: trainers with a language of their own: Lightning, litgpt, torchtune,
 * and a module for a plain loop of PyTorch. Read in Lightning 2.6.6, litgpt 0.5.13, torchtune 0.6.1.
 *
 * litgpt names the global batch, not the accumulation: it is micro-batch x accumulation x processes. */
#include "trainers/files/target.h"

#define BIG                1e12
#define ARRAY(keys, field) .field = keys, .n_##field = sizeof keys / sizeof *keys

/* Rows of one word that stand together are one group: this keeps them apart. */
#define APART "world!=0"

/* A class of torch.optim, by its name or as jsonargparse writes it: loops over tensors (foreach) unless fused is said. */
#define PLAIN(word, when) \
    {VP_SETTING_OPTIMIZER, word, "optimizer.init_args.fused", NULL, when, .read_only = true}, \
        {VP_SETTING_OPTIMIZER, word, "optimizer.init_args.amsgrad", NULL, when, .read_only = true}, \
    { \
        VP_SETTING_OPTIMIZER, word, "optimizer.init_args.momentum", NULL, when, .read_only = true \
    }
/* What of such a class is read. */
#define OPTIMIZER_MEMBERS \
    {"optimizer.class_path", VP_KEY_ANY}, {"optimizer.init_args.fused", VP_KEY_ANY}, \
        {"optimizer.init_args.amsgrad", VP_KEY_ANY}, \
    { \
        "optimizer.init_args.momentum", VP_KEY_ANY \
    }
#define OPTIMIZERS(name, word) \
    {VP_SETTING_OPTIMIZER, word, "optimizer", name, .read_only = true}, \
        {VP_SETTING_OPTIMIZER, word,  "optimizer.class_path", \
         "torch.optim." name,  APART, .read_only = true}, \
        PLAIN(word, APART)

/* ---- Lightning ---- */

static const vp_key lightning_keys[] = {
    {"trainer", VP_KEY_MAP},
    {"trainer.precision", VP_KEY_WORD, "32-true",
     "32-true|32|64-true|64|16-mixed|16-true|16|bf16-mixed|bf16-true|bf16|transformer-engine|"
     "transformer-engine-float16"},
    {"trainer.accumulate_grad_batches", VP_KEY_INT, "1", .min = 1, .max = BIG},
    {"trainer.gradient_clip_val", VP_KEY_REAL, NULL, .min = 0, .max = BIG},
    {"trainer.strategy", VP_KEY_ANY, "auto"},
    {"trainer.strategy.class_path", VP_KEY_ANY},
    {"trainer.strategy.init_args.sharding_strategy", VP_KEY_ANY},
    {"optimizer", VP_KEY_ANY},
    OPTIMIZER_MEMBERS,
    {"data.batch_size", VP_KEY_ANY}, /* of a data module of the user's own, by custom */
    {"data.init_args.batch_size", VP_KEY_ANY},
    {"trainer.devices", VP_KEY_ANY, "auto"},
    {"trainer.num_nodes", VP_KEY_INT, "1", .min = 1, .max = 1e6},
    {"trainer.accelerator", VP_KEY_WORD, "auto", "auto|gpu|cpu|cuda|mps|tpu|hpu"},
    {"trainer.gpus", VP_KEY_ANY, .until = "2.0", .instead = "trainer.accelerator and devices"},
    {"trainer.tpu_cores", VP_KEY_ANY, .until = "2.0", .instead = "trainer.accelerator and devices"},
    {"trainer.resume_from_checkpoint", VP_KEY_ANY, .until = "2.0", .instead = "--ckpt_path"},
    {"trainer.amp_backend", VP_KEY_ANY, .until = "2.0", .instead = "nothing"},
    {"trainer.amp_level", VP_KEY_ANY, .until = "2.0", .instead = "nothing"},
    {"trainer.auto_scale_batch_size", VP_KEY_ANY, .until = "2.0",
     .instead = "the callback BatchSizeFinder"},
    {"trainer.auto_lr_find", VP_KEY_ANY, .until = "2.0",
     .instead = "the callback LearningRateFinder"},
    {"trainer.replace_sampler_ddp", VP_KEY_ANY, .until = "2.0",
     .instead = "trainer.use_distributed_sampler"},
    {"trainer.track_grad_norm", VP_KEY_ANY, .until = "2.0", .instead = "nothing"},
    {"trainer.weights_save_path", VP_KEY_ANY, .until = "2.0",
     .instead = "trainer.default_root_dir"},
    {"trainer.multiple_trainloader_mode", VP_KEY_ANY, .until = "2.0", .instead = "nothing"},
    {"trainer.move_metrics_to_cpu", VP_KEY_ANY, .until = "2.0", .instead = "nothing"},
};

static const vp_section lightning_sections[] = {
    {"", VP_STRANGERS_KEPT, "seed_everything model data ckpt_path lr_scheduler"},
    {"trainer", VP_STRANGERS_REFUSED,
     "logger callbacks fast_dev_run max_epochs:i min_epochs:i max_steps:i min_steps:i max_time "
     "limit_train_batches:r limit_val_batches:r limit_test_batches:r limit_predict_batches:r "
     "overfit_batches:r val_check_interval check_val_every_n_epoch:i num_sanity_val_steps:i "
     "log_every_n_steps:i enable_checkpointing:b enable_progress_bar:b enable_model_summary:b "
     "gradient_clip_algorithm deterministic benchmark:b inference_mode:b use_distributed_sampler:b "
     "profiler detect_anomaly:b barebones:b plugins sync_batchnorm:b reload_dataloaders_every_n_epochs:i "
     "default_root_dir enable_autolog_hparams:b model_registry"},
};

#define ONE_OF(word, name) \
    { \
        VP_SETTING_PARALLEL, word, "trainer.strategy", name, .read_only = true \
    }
#define OTHER(word, name) \
    { \
        VP_SETTING_PARALLEL, word, "trainer.strategy", name, APART, .read_only = true \
    }
#define CLASSES(package) \
    {VP_SETTING_PARALLEL, "ddp", "trainer.strategy.class_path", package "DDPStrategy", \
     .read_only = true}, \
        {VP_SETTING_PARALLEL,    "fsdp", "trainer.strategy.class_path", \
         package "FSDPStrategy", APART,  .read_only = true}, \
        {VP_SETTING_PARALLEL, "fsdp", "trainer.strategy.init_args.sharding_strategy", NULL, APART, \
         .read_only = true}, \
        {VP_SETTING_PARALLEL, "fsdp", "trainer.strategy.class_path", package "FSDPStrategy", \
         .read_only = true}, \
    { \
        VP_SETTING_PARALLEL, "fsdp", "trainer.strategy.init_args.sharding_strategy", "FULL_SHARD", \
            .read_only = true \
    }

static const vp_saying lightning_says[] = {
    {VP_SETTING_PARALLEL, "none", "trainer.strategy", "auto"},
    {VP_SETTING_PARALLEL, "ddp", "trainer.strategy", "ddp"},
    {VP_SETTING_PARALLEL, "fsdp", "trainer.strategy", "fsdp"},
    {VP_SETTING_PARALLEL, "zero1", "trainer.strategy", "deepspeed_stage_1"},
    {VP_SETTING_PARALLEL, "zero2", "trainer.strategy", "deepspeed_stage_2",
     "offload_optimizer=none"},
    {VP_SETTING_PARALLEL, "zero2", "trainer.strategy", "deepspeed_stage_2_offload",
     "offload_optimizer=cpu"},
    {VP_SETTING_PARALLEL, "zero3", "trainer.strategy", "deepspeed_stage_3",
     "offload_optimizer=none,offload_params=none"},
    {VP_SETTING_PARALLEL, "zero3", "trainer.strategy", "deepspeed_stage_3_offload",
     "offload_optimizer=cpu,offload_params=cpu"},
    /* other spellings of the registered strategies (lightning/pytorch/strategies of 2.6) */
    ONE_OF("ddp", "ddp_find_unused_parameters_true"),
    OTHER("ddp", "ddp_find_unused_parameters_false"),
    ONE_OF("ddp", "ddp_spawn"),
    OTHER("ddp", "ddp_fork"),
    ONE_OF("ddp", "ddp_notebook"),
    ONE_OF("fsdp", "fsdp_cpu_offload"),
    ONE_OF("zero2", "deepspeed"),
    CLASSES(""),
    CLASSES("lightning.pytorch.strategies."),
    CLASSES("pytorch_lightning.strategies."),
    {VP_SETTING_MICRO_BATCH, "*", "data.batch_size", "$", .read_only = true},
    {VP_SETTING_MICRO_BATCH, "*", "data.init_args.batch_size", "$", APART, .read_only = true},
    {VP_SETTING_WORLD, "*", "trainer.devices", "$"},
    {VP_SETTING_WORLD, "*", "trainer.devices", "$count", .read_only = true},
    {VP_ALWAYS, NULL, "trainer.num_nodes", "1"},
    {VP_ALWAYS, NULL, "trainer.accelerator", "gpu"},
    {VP_SETTING_ACCUMULATION, "*", "trainer.accumulate_grad_batches", "$"},
    /* under autocast Lightning refuses to clip what a fused optimizer unscales itself */
    {VP_SETTING_CLIP_NORM, "R", "trainer.gradient_clip_val", "$", "optimizer!=adamw_torch_fused"},
    {VP_SETTING_CLIP_NORM, "R", "trainer.gradient_clip_val", "$",
     "optimizer=adamw_torch_fused,precision=fp32|bf16|fp16"},
    {VP_SETTING_CLIP_NORM, "R", "trainer.gradient_clip_val", "$",
     "optimizer=adamw_torch_fused,precision=bf16-mixed|fp16-mixed,parallel=zero1|zero2|zero3"},
    {VP_SETTING_CLIP_NORM, "0.0", "trainer.gradient_clip_val", "0.0",
     "optimizer=adamw_torch_fused,precision=bf16-mixed|fp16-mixed,parallel!=zero1|zero2|zero3"},
    {VP_SETTING_PRECISION, "fp32", "trainer.precision", "32-true"},
    {VP_SETTING_PRECISION, "bf16-mixed", "trainer.precision", "bf16-mixed"},
    {VP_SETTING_PRECISION, "bf16", "trainer.precision", "bf16-true"},
    {VP_SETTING_PRECISION, "fp16-mixed", "trainer.precision", "16-mixed"},
    {VP_SETTING_PRECISION, "fp16", "trainer.precision", "16-true"},
    {VP_SETTING_PRECISION, "fp32", "trainer.precision", "32", .read_only = true},
    {VP_SETTING_PRECISION, "bf16-mixed", "trainer.precision", "bf16", .read_only = true},
    {VP_SETTING_PRECISION, "fp16-mixed", "trainer.precision", "16", .read_only = true},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "none", "trainer.strategy", "deepspeed_stage_2",
     "parallel=zero2"},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", "trainer.strategy", "deepspeed_stage_2_offload",
     "parallel=zero2"},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "none", "trainer.strategy", "deepspeed_stage_3",
     "parallel=zero3,offload_params=none"},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", "trainer.strategy", "deepspeed_stage_3_offload",
     "parallel=zero3,offload_params=cpu"},
    {VP_SETTING_OFFLOAD_PARAMS, "none", "trainer.strategy", "deepspeed_stage_3",
     "parallel=zero3,offload_optimizer=none"},
    {VP_SETTING_OFFLOAD_PARAMS, "cpu", "trainer.strategy", "deepspeed_stage_3_offload",
     "parallel=zero3,offload_optimizer=cpu"},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", "trainer.strategy", "fsdp_cpu_offload",
     .read_only = true},
    {VP_SETTING_OFFLOAD_PARAMS, "cpu", "trainer.strategy", "fsdp_cpu_offload", .read_only = true},
    {VP_SETTING_CLIP_NORM, "0.0", "trainer.gradient_clip_val", NULL, .read_only = true},
    OPTIMIZERS("AdamW", "adamw_torch"),
    OPTIMIZERS("SGD", "sgd"),
    OPTIMIZERS("Adam", "adamw_torch"),
};

static const vp_rule lightning_rules[] = {
    {"trainer.precision", "=16|bf16|32|64", NULL, NULL, VP_WARNING,
     "is a spelling of Lightning 1: 16 means 16-mixed", "16-mixed, bf16-mixed or 32-true"},
};

const vp_dialect vp_dialect_lightning = {
    .name    = "lightning",
    .library = "lightning",
    .version = "2.6.6",
    ARRAY(lightning_keys, keys),
    ARRAY(lightning_sections, sections),
    ARRAY(lightning_says, says),
    ARRAY(lightning_rules, rules),
    .exponents      = true, /* jsonargparse reads numbers, in quotes too */
    .text_is_number = true,
    .nodes          = "trainer.num_nodes",
    .signs          = "trainer seed_everything trainer.accumulate_grad_batches",
    .flag_signs     = "trainer.accumulate_grad_batches trainer.strategy trainer.precision",
};

/* ---- litgpt ---- */

static const vp_key litgpt_keys[] = {
    {"checkpoint_dir", VP_KEY_TEXT},
    {"precision", VP_KEY_WORD, NULL,
     "32-true|16-true|16-mixed|bf16-true|bf16-mixed|64-true|32|16|bf16|64"},
    {"devices", VP_KEY_INT, "1", .min = 1, .max = 1e6, .or_auto = true},
    {"num_nodes", VP_KEY_INT, "1", .min = 1, .max = 1e6},
    {"train", VP_KEY_MAP},
    {"train.micro_batch_size", VP_KEY_INT, "4", .min = 1, .max = BIG},
    {"train.global_batch_size", VP_KEY_INT, "64", .min = 1, .max = BIG},
    {"train.max_seq_length", VP_KEY_INT, NULL, .min = 1, .max = BIG},
    {"train.max_norm", VP_KEY_REAL, NULL, .min = 0, .max = BIG},
    {"train.epochs", VP_KEY_INT, NULL, "null", .min = 1, .max = BIG},
    {"train.max_tokens", VP_KEY_INT, NULL, "null", .min = 1, .max = 1e18},
    {"train.lr_warmup_steps", VP_KEY_INT, "100", "null", .min = 0, .max = BIG},
    {"train.lr_warmup_fraction", VP_KEY_REAL, NULL, .min = 0, .max = 1},
    {"train.tie_embeddings", VP_KEY_BOOL},
    {"logger_name", VP_KEY_WORD, NULL, "csv|tensorboard|wandb|mlflow|litlogger"},
    {"quantize", VP_KEY_WORD, NULL, "bnb.nf4|bnb.nf4-dq|bnb.fp4|bnb.fp4-dq|bnb.int8-training"},
    {"lora_r", VP_KEY_INT, NULL, .min = 1, .max = 1e6},
    {"lora_alpha", VP_KEY_INT, NULL, .min = 1, .max = 1e6},
    {"lora_dropout", VP_KEY_REAL, NULL, .min = 0, .max = 1},
    {"optimizer", VP_KEY_ANY, "AdamW"},
    {"optimizer.class_path", VP_KEY_TEXT},
    {"optimizer.init_args", VP_KEY_MAP},
    {"optimizer.init_args.fused", VP_KEY_BOOL},
    {"optimizer.init_args.foreach", VP_KEY_BOOL},
    {"optimizer.init_args.amsgrad", VP_KEY_BOOL, "false"},
    {"optimizer.init_args.momentum", VP_KEY_REAL, "0.0", .min = 0, .max = 1},
    {"optimizer.init_args.centered", VP_KEY_BOOL, "false"},
    {"optimizer.init_args.betas", VP_KEY_ANY},
    {"optimizer.init_args.eps", VP_KEY_REAL, .min = 0, .max = 1},
    {"optimizer.init_args.min_8bit_size", VP_KEY_INT, .min = 0, .max = BIG},
    {"optimizer.init_args.optim_bits", VP_KEY_INT, .min = 8, .max = 32},
    {"optimizer.init_args.block_size", VP_KEY_INT, .min = 1, .max = BIG},
    {"model_name", VP_KEY_TEXT},
    {"data", VP_KEY_ANY},
    {"data.class_path", VP_KEY_TEXT, NULL,
     "litgpt.data.Alpaca|litgpt.data.Alpaca2k|litgpt.data.AlpacaGPT4|litgpt.data.Deita|litgpt.data.FLAN|litgpt.data.JSON|litgpt.data.LIMA|litgpt.data.LitData|litgpt.data.LongForm|litgpt.data.MicroLlama|litgpt.data.OpenWebText|litgpt.data.TextFiles|litgpt.data.TinyLlama|litgpt.data.TinyStories"},
};

static const vp_section litgpt_sections[] = {
    {"", VP_STRANGERS_REFUSED,
     "config model_config out_dir initial_checkpoint_dir resume eval log seed:i "
     "tokenizer_dir access_token lora_query:b lora_key:b lora_value:b lora_projection:b lora_mlp:b "
     "lora_head:b"},
    /* arguments of litgpt/data's classes; a class of the user's own has others */
    {"data", VP_STRANGERS_KEPT, "init_args"},
    {"data.init_args", VP_STRANGERS_KEPT,
     "mask_prompt:b val_split_fraction prompt_style ignore_index:i seed:i num_workers:i "
     "download_dir file_url file_name repo_id json_path data_path include_multiturn_conversations:b "
     "subsets use_starcoder:b split_names train_data_path val_data_path path"},
    {"optimizer", VP_STRANGERS_KEPT, "class_path init_args"},
    {"train", VP_STRANGERS_REFUSED,
     "save_interval:i log_interval:i max_steps:i "
     "max_time:r min_lr:r"},
    {"eval", VP_STRANGERS_REFUSED,
     "interval:i max_new_tokens:i max_iters:i initial_validation:b final_validation:b "
     "evaluate_example"},
    {"log", VP_STRANGERS_REFUSED,
     "project run group teamspace metadata log_model:b save_logs:b checkpoint_name"},
};

/* A class with what decides on its bytes: init_args has to be there. fused=False alone would turn foreach off as well (torch.optim). */
#define MEMBER(word, member, value, ...) \
    { \
        VP_SETTING_OPTIMIZER, word, "optimizer.init_args." member, value, ##__VA_ARGS__ \
    }
#define WRITTEN(word, path, member, value) \
    {VP_SETTING_OPTIMIZER, word, "optimizer.class_path", path}, MEMBER(word, member, value)
#define LACKS(word, member) \
    MEMBER(word, member, NULL), \
    { \
        VP_SETTING_OPTIMIZER, word, "optimizer.init_args.amsgrad", NULL \
    }
/* What an Adam takes and others end with an error for. */
#define NO_ADAM(word) \
    MEMBER(word, "fused", NULL), MEMBER(word, "amsgrad", NULL), MEMBER(word, "betas", NULL), \
        MEMBER(word, "eps", NULL)
#define NOT_TORCHS(word) MEMBER(word, "fused", NULL), MEMBER(word, "foreach", NULL)

/* As people write them: where pretraining does not add fused=True. */
#define IN_BITS_OR_PRETRAINED(word) \
    {VP_SETTING_OPTIMIZER, word, "quantize", NULL, .read_only = true}, \
    { \
        VP_SETTING_OPTIMIZER, word, "model_name", NULL, .read_only = true \
    }
#define BY_NAME(word, name) \
    {VP_SETTING_OPTIMIZER, word, "optimizer", name, .read_only = true}, IN_BITS_OR_PRETRAINED(word)
#define BY_PATH(word, name) BY_NAME(word, "torch.optim." name)
#define BY_CLASS(word, name) \
    {VP_SETTING_OPTIMIZER, word, "optimizer.class_path", "torch.optim." name, .read_only = true}, \
        MEMBER(word, "fused", NULL, .read_only = true), \
        MEMBER(word, "foreach", NULL, .read_only = true), \
        MEMBER(word, "amsgrad", "false", .read_only = true), \
        MEMBER(word, "momentum", "0", .read_only = true), \
        MEMBER(word, "centered", "false", .read_only = true), IN_BITS_OR_PRETRAINED(word)
#define READ_AS(form) \
    form("adamw_torch", "AdamW"), form("sgd", "SGD"), form("rmsprop", "RMSprop"), \
        form("adamw_torch", "Adam"), form("adagrad", "Adagrad")
/* Of other libraries; beside quantised weights litgpt takes its own. */
#define BY_WORD(word, path) \
    {VP_SETTING_OPTIMIZER, word, "optimizer", path, .read_only = true}, \
    { \
        VP_SETTING_OPTIMIZER, word, "quantize", NULL, .read_only = true \
    }
#define BY_BARE_CLASS(word, path) \
    {VP_SETTING_OPTIMIZER, word, "optimizer.class_path", path, .read_only = true}, \
    { \
        VP_SETTING_OPTIMIZER, word, "quantize", NULL, .read_only = true \
    }
#define BNB "bitsandbytes.optim."
#define OTHERS_AS(form) \
    form("adamw_bnb_32bit", BNB "AdamW"), form("paged_adamw_32bit", BNB "PagedAdamW"), \
        form("adamw_8bit", BNB "AdamW8bit"), form("paged_adamw_8bit", BNB "PagedAdamW8bit"), \
        form("lion_32bit", BNB "Lion"), form("paged_lion_32bit", BNB "PagedLion"), \
        form("lion_8bit", BNB "Lion8bit"), form("paged_lion_8bit", BNB "PagedLion8bit"), \
        form("adamw_torch_8bit", "torchao.optim.AdamW8bit"), \
        form("adamw_torch_4bit", "torchao.optim.AdamW4bit"), \
        form("grokadamw", "grokadamw.GrokAdamW")

static const vp_saying litgpt_says[] = {
    {VP_SETTING_WORLD, "*", "devices", "$"},
    {VP_ALWAYS, NULL, "num_nodes", "1"},
    {VP_SETTING_MICRO_BATCH, "*", "train.micro_batch_size", "$"},
    {VP_SETTING_ACCUMULATION, "*", "train.global_batch_size", "$global"},
    {VP_SETTING_SEQ, "*", "train.max_seq_length", "$"},
    /* pretraining clips; fine-tuning, which is what is written, refuses the key */
    {VP_SETTING_CLIP_NORM, "0.0", "train.max_norm", NULL},
    {VP_SETTING_CLIP_NORM, "R", "train.max_norm", "$", .read_only = true},
    {VP_SETTING_PRECISION, "fp32", "precision", "32-true"},
    {VP_SETTING_PRECISION, "bf16-mixed", "precision", "bf16-mixed"},
    {VP_SETTING_PRECISION, "bf16", "precision", "bf16-true"},
    {VP_SETTING_PRECISION, "fp16-mixed", "precision", "16-mixed"},
    {VP_SETTING_PRECISION, "fp16", "precision", "16-true"},
    {VP_SETTING_PRECISION, "fp32", "precision", "32", .read_only = true},
    {VP_SETTING_PRECISION, "bf16-mixed", "precision", "bf16", .read_only = true},
    {VP_SETTING_PRECISION, "fp16-mixed", "precision", "16", .read_only = true},
    /* no key: every block under FSDP, none on one device */
    {VP_SETTING_RECOMPUTE, "none", "devices", "1", "world=1"},
    {VP_SETTING_RECOMPUTE, "full", "devices", "$world", "world!=1"},
    {VP_SETTING_PARALLEL, "none", "devices", "1", "world=1"},
    {VP_SETTING_PARALLEL, "fsdp", "devices", "$world", "world!=1"},
    /* of weights in 4 or 8 bits bitsandbytes' (litgpt/utils.py) */
    {VP_SETTING_OPTIMIZER, "paged_adamw_32bit", "quantize", "$set", .read_only = true},
    WRITTEN("adamw_torch", "torch.optim.AdamW", "foreach", "true"),
    LACKS("adamw_torch", "fused"),
    WRITTEN("adamw_torch_fused", "torch.optim.AdamW", "fused", "true"),
    LACKS("adamw_torch_fused", "foreach"),
    WRITTEN("adamw_torch_forloop", "torch.optim.AdamW", "foreach", "false"),
    LACKS("adamw_torch_forloop", "fused"),
    WRITTEN("sgd", "torch.optim.SGD", "foreach", "true"),
    NO_ADAM("sgd"),
    {VP_SETTING_OPTIMIZER, "sgd", "optimizer.init_args.momentum", NULL},
    WRITTEN("sgd_momentum", "torch.optim.SGD", "foreach", "true"),
    NO_ADAM("sgd_momentum"),
    {VP_SETTING_OPTIMIZER, "sgd_momentum", "optimizer.init_args.momentum", "0.9"},
    WRITTEN("rmsprop", "torch.optim.RMSprop", "foreach", "true"),
    NO_ADAM("rmsprop"),
    WRITTEN("adagrad", "torch.optim.Adagrad", "foreach", "true"),
    NO_ADAM("adagrad"),
    WRITTEN("adamw_bnb_32bit", "bitsandbytes.optim.AdamW", "optim_bits", "32"),
    NOT_TORCHS("adamw_bnb_32bit"),
    WRITTEN("paged_adamw_32bit", "bitsandbytes.optim.PagedAdamW", "optim_bits", "32"),
    NOT_TORCHS("paged_adamw_32bit"),
    WRITTEN("adamw_8bit", "bitsandbytes.optim.AdamW8bit", "min_8bit_size", "4096"),
    NOT_TORCHS("adamw_8bit"),
    WRITTEN("paged_adamw_8bit", "bitsandbytes.optim.PagedAdamW8bit", "min_8bit_size", "4096"),
    NOT_TORCHS("paged_adamw_8bit"),
    WRITTEN("lion_8bit", "bitsandbytes.optim.Lion8bit", "min_8bit_size", "4096"),
    NOT_TORCHS("lion_8bit"),
    WRITTEN("paged_lion_8bit", "bitsandbytes.optim.PagedLion8bit", "min_8bit_size", "4096"),
    NOT_TORCHS("paged_lion_8bit"),
    WRITTEN("adamw_torch_8bit", "torchao.optim.AdamW8bit", "block_size", "256"),
    NOT_TORCHS("adamw_torch_8bit"),
    READ_AS(BY_NAME),
    READ_AS(BY_PATH),
    READ_AS(BY_CLASS),
    OTHERS_AS(BY_WORD),
    OTHERS_AS(BY_BARE_CLASS),
    /* what a file tells torch's otherwise than it is written here */
    {VP_SETTING_OPTIMIZER, "adamw_torch_forloop", "optimizer.class_path", "torch.optim.AdamW",
     .read_only = true},
    {VP_SETTING_OPTIMIZER, "adamw_torch_forloop", "optimizer.init_args.fused", "false",
     .read_only = true},
    {VP_SETTING_OPTIMIZER, "adamw_torch_forloop", "optimizer.init_args.foreach", NULL,
     .read_only = true},
    {VP_SETTING_OPTIMIZER, "adamw_torch_forloop", "optimizer.init_args.amsgrad", "false",
     .read_only = true},
    {VP_SETTING_OPTIMIZER, "adamw_torch_forloop", "model_name", NULL, .read_only = true},
    {VP_SETTING_OPTIMIZER, "sgd_momentum", "optimizer.class_path", "torch.optim.SGD",
     .read_only = true},
    {VP_SETTING_OPTIMIZER, "sgd_momentum", "optimizer.init_args.momentum", "$nonzero",
     .read_only = true},
    /* its pretraining asks for the fused one; groups of one word do not stand together */
    {VP_SETTING_OPTIMIZER, "adamw_torch_fused", "model_name", "$set", .read_only = true},
    {VP_SETTING_OPTIMIZER, "adamw_torch_fused", "optimizer", "AdamW", .read_only = true},
    {VP_SETTING_OPTIMIZER, "sgd", "model_name", "$set", .read_only = true},
    {VP_SETTING_OPTIMIZER, "sgd", "optimizer", "SGD", .read_only = true},
    {VP_SETTING_OPTIMIZER, "adamw_torch_fused", "model_name", "$set", .read_only = true},
    {VP_SETTING_OPTIMIZER, "adamw_torch_fused", "optimizer", "torch.optim.AdamW",
     .read_only = true},
    {VP_SETTING_OPTIMIZER, "sgd", "model_name", "$set", .read_only = true},
    {VP_SETTING_OPTIMIZER, "sgd", "optimizer", "torch.optim.SGD", .read_only = true},
    {VP_SETTING_OPTIMIZER, "adamw_torch_fused", "model_name", "$set", .read_only = true},
    {VP_SETTING_OPTIMIZER, "adamw_torch_fused", "optimizer.class_path", "torch.optim.AdamW",
     .read_only = true},
    {VP_SETTING_OPTIMIZER, "adamw_torch_fused", "optimizer.init_args.fused", NULL,
     .read_only = true},
    {VP_SETTING_OPTIMIZER, "adamw_torch_fused", "optimizer.init_args.amsgrad", "false",
     .read_only = true},
};

#define TORCHS_OTHERS \
    "torch.optim.SGD|torch.optim.Adam|torch.optim.RMSprop|torch.optim.Adagrad|SGD|Adam|RMSprop|Adagrad"

/* validate_args() of litgpt/finetune/lora.py and full.py, and of pretrain.py, whose files name a model; a file to fine-tune has a
 * checkpoint. */
#define TUNING_REFUSES(key, is) \
    { \
        key, is, "checkpoint_dir", "set", VP_ERROR, "is refused by litgpt's fine-tuning", \
            "leave it out" \
    }
#define PRETRAINING_REFUSES(key, is) \
    { \
        key, is, "model_name", "set", VP_ERROR, "is refused by litgpt's pretraining", \
            "leave it out" \
    }

static const vp_rule litgpt_rules[] = {
    TUNING_REFUSES("train.max_norm", ">0"),
    TUNING_REFUSES("train.max_tokens", ">0"),
    TUNING_REFUSES("train.lr_warmup_fraction", ">0"),
    TUNING_REFUSES("train.tie_embeddings", "set"),
    TUNING_REFUSES("model_name", "set"),
    {"train.epochs", "=null", "checkpoint_dir", "set", VP_ERROR,
     "is nothing, which litgpt's fine-tuning refuses, beside max_steps too", "train.epochs: 1"},
    PRETRAINING_REFUSES("train.epochs", ">0"),
    PRETRAINING_REFUSES("lora_r", "set"),
    PRETRAINING_REFUSES("quantize", "set"),
    {"train.max_tokens", "=null", "model_name", "set", VP_ERROR,
     "is nothing, which litgpt's pretraining refuses", "train.max_tokens: 3000000000"},
    {"train.lr_warmup_fraction", ">0", "train.lr_warmup_steps", "!=null", VP_ERROR,
     "is refused beside lr_warmup_steps, which is 100 where nothing is written",
     "train.lr_warmup_steps: null"},
    {"quantize", "set", "precision", "=bf16-mixed|16-mixed", VP_ERROR,
     "litgpt refuses it beside mixed precision", "precision: bf16-true"},
    {"precision", "=16|bf16|32|64", NULL, NULL, VP_WARNING,
     "is an old spelling, which Fabric takes for 16-mixed, bf16-mixed, 32-true, 64-true", NULL},
    {"optimizer.class_path", "set", "optimizer.init_args", "unset", VP_ERROR,
     "without init_args litgpt ends with a KeyError", "init_args: {}"},
    {"optimizer.init_args.foreach", "=true", "model_name", "set", VP_ERROR,
     "pretraining adds fused=True, and torch refuses both", "leave it out"},
    {"optimizer", "=" TORCHS_OTHERS, "quantize", "set", VP_ERROR,
     "beside quantised weights litgpt takes AdamW alone", "AdamW"},
    {"optimizer.class_path", "=" TORCHS_OTHERS, "quantize", "set", VP_ERROR,
     "beside quantised weights litgpt takes AdamW alone", "torch.optim.AdamW"},
};

const vp_dialect vp_dialect_litgpt = {
    .name    = "litgpt",
    .library = "litgpt",
    .version = "0.5.13",
    ARRAY(litgpt_keys, keys),
    ARRAY(litgpt_sections, sections),
    ARRAY(litgpt_says, says),
    ARRAY(litgpt_rules, rules),
    .exponents      = true, /* jsonargparse */
    .text_is_number = true,
    .nodes          = "num_nodes",
    .signs          = "checkpoint_dir train.micro_batch_size train.global_batch_size logger_name",
    .flag_signs     = "train.micro_batch_size train.global_batch_size",
    .programs       = "litgpt",
};

/* ---- torchtune ---- */

static const vp_key torchtune_keys[] = {
    {"seed", VP_KEY_INT, NULL, "null"},
    {"batch_size", VP_KEY_INT, NULL, .min = 1, .max = BIG},
    {"gradient_accumulation_steps", VP_KEY_INT, "1", .min = 1, .max = BIG},
    {"dtype", VP_KEY_WORD, NULL, "bf16|fp32"},
    {"clip_grad_norm", VP_KEY_REAL, NULL, .min = 0, .max = BIG},
    {"enable_activation_checkpointing", VP_KEY_BOOL, "false",
     .costs = "every layer keeps all its activations for the backward pass"},
    {"enable_activation_offloading", VP_KEY_BOOL, "false"},
    {"optimizer_in_bwd", VP_KEY_BOOL, "false"},
    {"fsdp_cpu_offload", VP_KEY_BOOL, "false"},
    {"compile", VP_KEY_BOOL, "false"},
    {"model", VP_KEY_MAP},
    {"model._component_", VP_KEY_TEXT},
    {"model.lora_dropout", VP_KEY_REAL, NULL, .min = 0, .max = 1},
    {"tokenizer", VP_KEY_MAP},
    {"tokenizer._component_", VP_KEY_TEXT},
    {"tokenizer.max_seq_len", VP_KEY_INT, NULL, .min = 1, .max = BIG},
    {"optimizer", VP_KEY_MAP},
    {"optimizer._component_", VP_KEY_TEXT},
    {"optimizer.fused", VP_KEY_BOOL, "false"},
    {"optimizer.foreach", VP_KEY_BOOL},
    {"loss", VP_KEY_MAP},
    {"loss._component_", VP_KEY_TEXT},
    {"loss.num_output_chunks", VP_KEY_INT, "8", .min = 1, .max = 1e6},
};

/* What a component takes is its own. */
static const vp_section torchtune_sections[] = {
    {"", VP_STRANGERS_KEPT,
     "model checkpointer dataset datasets dataset_val shuffle:b epochs:i max_steps_per_epoch:i lr_scheduler output_dir "
     "tensor_parallel_dim:i tensor_parallel_plan context_parallel_dim:i data_parallel_shard_dim:i "
     "data_parallel_replicate_dim:i custom_sharded_layers dataloader run_val_every_n_steps:i batch_size_val:i "
     "collate_fn low_cpu_ram:b teacher_model teacher_checkpointer kd_ratio:r kd_loss fake_quant_after_n_steps:i "
     "ac_mode ac_option resize_token_embeddings:b enable_async_checkpointing:b profile_memory:b "
     "save_every_n_steps:i fsdp_reshard_after_forward:b "
     "save_adapter_weights_only:b enable_fp8_training:b fp8_recipe_name cudnn_deterministic_mode quantizer "
     "config resume_from_checkpoint:b metric_logger log_every_n_steps:i log_peak_memory_stats:b log_level device "
     "profiler"},
    {"model", VP_STRANGERS_KEPT,
     "lora_attn_modules apply_lora_to_mlp:b apply_lora_to_output:b lora_rank:i lora_alpha:r "
     "use_dora:b quantize_base:b decoder_trainable encoder_trainable fusion_trainable vocab_size "
     "num_layers num_heads num_kv_heads embed_dim intermediate_dim max_seq_len attn_dropout "
     "norm_eps rope_base scale_factor num_classes image_size"},
    {"optimizer", VP_STRANGERS_KEPT, "lr weight_decay:r betas eps:r momentum:r nesterov:b"},
    {"tokenizer", VP_STRANGERS_KEPT,
     "path prompt_template merges_file special_tokens_path max_seq_len image_size"},
    {"loss", VP_STRANGERS_KEPT, "ignore_index mask_pre_projection reduction"},
    {"checkpointer", VP_STRANGERS_KEPT,
     "_component_ checkpoint_dir checkpoint_files model_type output_dir adapter_checkpoint "
     "recipe_checkpoint resume_from_checkpoint should_load_recipe_state keep_last_n_checkpoints"},
    {"profiler", VP_STRANGERS_KEPT,
     "_component_ enabled:b output_dir cpu:b cuda:b profile_memory:b with_stack:b record_shapes:b "
     "with_flops:b wait_steps:i warmup_steps:i active_steps:i num_cycles:i"},
    /* recipes/dev/async_grpo_full_finetune_distributed.py reads its settings apart */
    {"orchestration", VP_STRANGERS_KEPT, "num_inference_workers:i num_postprocessing_workers:i"},
    {"inference", VP_STRANGERS_KEPT, "batch_size:i"},
    {"training", VP_STRANGERS_KEPT,
     "batch_size:i clip_grad_norm:r enable_activation_checkpointing:b "
     "enable_activation_offloading:b"},
    {"metric_logger", VP_STRANGERS_KEPT,
     "_component_ log_dir filename project entity group name organize_logs:b output_dir"},
    {"lr_scheduler", VP_STRANGERS_KEPT,
     "_component_ num_warmup_steps:i num_training_steps num_cycles"},
    {"dataset", VP_STRANGERS_KEPT,
     "_component_ packed:b source split split_across_pack:b train_on_input:b new_system_prompt "
     "column_map data_files column conversation_column conversation_style max_seq_len add_eos "
     "packing name data_dir"},
};

static const vp_saying torchtune_says[] = {
    {VP_SETTING_MICRO_BATCH, "*", "batch_size", "$"},
    {VP_SETTING_ACCUMULATION, "*", "gradient_accumulation_steps", "$"},
    {VP_SETTING_SEQ, "*", "tokenizer.max_seq_len", "$"},
    {VP_SETTING_PRECISION, "bf16", "dtype", "bf16"},
    {VP_SETTING_PRECISION, "fp32", "dtype", "fp32"},
    {VP_SETTING_RECOMPUTE, "none", "enable_activation_checkpointing", "false"},
    {VP_SETTING_RECOMPUTE, "full", "enable_activation_checkpointing", "true"},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "none", "enable_activation_offloading", "false"},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "cpu", "enable_activation_offloading", "true",
     "recompute=full"},
    {VP_SETTING_OPTIMIZER, "adamw_torch_fused", "optimizer._component_", "torch.optim.AdamW"},
    {VP_SETTING_OPTIMIZER, "adamw_torch_fused", "optimizer.fused", "true"},
    {VP_SETTING_OPTIMIZER, "adamw_torch", "optimizer._component_", "torch.optim.AdamW"},
    {VP_SETTING_OPTIMIZER, "adamw_torch", "optimizer.fused", "false"},
    {VP_SETTING_OPTIMIZER, "adamw_8bit", "optimizer._component_", "bitsandbytes.optim.AdamW8bit"},
    {VP_SETTING_OPTIMIZER, "paged_adamw_8bit", "optimizer._component_",
     "bitsandbytes.optim.PagedAdamW8bit"},
    {VP_SETTING_OPTIMIZER, "sgd", "optimizer._component_", "torch.optim.SGD"},
    {VP_SETTING_LOSS, "full", "loss._component_", "torch.nn.CrossEntropyLoss"},
    {VP_SETTING_LOSS, "chunked", "loss._component_",
     "torchtune.modules.loss.CEWithChunkedOutputLoss"},
    {VP_ALWAYS, NULL, "loss.num_output_chunks", "8", "loss=chunked"},
    {VP_SETTING_CLIP_NORM, "R", "clip_grad_norm", "$"},
    {VP_SETTING_OFFLOAD_PARAMS, "none", "fsdp_cpu_offload", "false", "offload_optimizer=none"},
    {VP_SETTING_OFFLOAD_PARAMS, "cpu", "fsdp_cpu_offload", "true",
     "offload_optimizer=cpu,parallel=fsdp2"},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "none", "fsdp_cpu_offload", "false", "offload_params=none"},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "cpu", "fsdp_cpu_offload", "true",
     "offload_params=cpu,parallel=fsdp2"},
    {VP_SETTING_PARALLEL, "fsdp2", "fsdp_cpu_offload", "true", .read_only = true},
    {VP_ALWAYS, VP_OFF, "optimizer_in_bwd", "false"},
    {VP_ALWAYS, VP_OFF, "compile", "false"},
};

#define NO_COMPONENT "names no _component_: the recipe ends when it builds it"
#define COMPONENT    "_component_: the function's dotted name"

static const vp_rule torchtune_rules[] = {
    {"optimizer_in_bwd", "=true", "gradient_accumulation_steps", ">1", VP_ERROR,
     "steps in the backward pass: there is nothing to accumulate", "optimizer_in_bwd: false"},
    {"optimizer_in_bwd", "=true", "clip_grad_norm", "set", VP_ERROR,
     "steps before the norm is known", "clip_grad_norm: null"},
    {"model", "set", "model._component_", "unset", VP_ERROR, NO_COMPONENT, COMPONENT},
    {"optimizer", "set", "optimizer._component_", "unset", VP_ERROR, NO_COMPONENT, COMPONENT},
    {"loss", "set", "loss._component_", "unset", VP_ERROR, NO_COMPONENT, COMPONENT},
    {"enable_activation_offloading", "=true", "enable_activation_checkpointing", "=false",
     VP_WARNING, "moves every saved tensor to the host; meant to go with checkpointing",
     "enable_activation_checkpointing: true"},
};

const vp_dialect vp_dialect_torchtune = {
    .name    = "torchtune",
    .library = "torchtune",
    .version = "0.6.1",
    ARRAY(torchtune_keys, keys),
    ARRAY(torchtune_sections, sections),
    ARRAY(torchtune_says, says),
    ARRAY(torchtune_rules, rules),
    .signs = "enable_activation_checkpointing checkpointer loss._component_ optimizer._component_ "
             "enable_activation_offloading model._component_ tokenizer._component_ "
             "checkpointer._component_",
    .flag_signs = "",
    .programs = "full_finetune_single_device full_finetune_distributed lora_finetune_single_device "
                "lora_finetune_distributed lora_dpo_single_device lora_dpo_distributed "
                "full_dpo_distributed qat_distributed qat_lora_finetune_distributed "
                "knowledge_distillation_single_device knowledge_distillation_distributed",
};

/* ---- a plain loop of PyTorch ---- */

static const vp_key torch_keys[] = {
    {"world", VP_KEY_INT, "1", .min = 1, .max = 1e6},
    {"parallel", VP_KEY_WORD, "none", "none|ddp|fsdp|fsdp2|zero1|zero2|zero3"},
    {"micro_batch", VP_KEY_INT, NULL, .min = 1, .max = BIG},
    {"accumulation", VP_KEY_INT, "1", .min = 1, .max = BIG},
    {"sequence", VP_KEY_INT, NULL, .min = 1, .max = BIG},
    {"weights", VP_KEY_WORD, NULL, "float32|bfloat16|float16"},
    {"autocast", VP_KEY_WORD, "none", "none|bfloat16|float16"},
    {"recompute", VP_KEY_TEXT, "none"},
    {"offload_activations", VP_KEY_BOOL, "false"},
    {"optimizer", VP_KEY_WORD, NULL, "adamw_torch|adamw_torch_fused|adamw_torch_forloop|sgd"},
    {"attention", VP_KEY_WORD, NULL, "eager|sdpa|sdpa:flash|sdpa:efficient|sdpa:math|sdpa:cudnn"},
    {"clip_norm", VP_KEY_REAL, "1.0", .min = 0, .max = BIG},
    {"tuning", VP_KEY_WORD, "full", "full|lora|qlora"},
    {"quant", VP_KEY_WORD, "nf4-dq", "nf4|nf4-dq"},
    {"lora_r", VP_KEY_INT, NULL, .min = 1, .max = 1e6},
    {"lora_alpha", VP_KEY_INT, NULL, .min = 1, .max = 1e6},
    {"lora_dropout", VP_KEY_REAL, NULL, .min = 0, .max = 1},
    {"lora_targets", VP_KEY_LIST},
    {"lora_save", VP_KEY_LIST},
    {"limit_bytes", VP_KEY_INT, NULL, .min = 1, .max = 1e15},
    {"reserved_peak_bytes", VP_KEY_INT, NULL, .min = 1, .max = 1e15},
};

static const vp_section torch_sections[] = {
    {"", VP_STRANGERS_KEPT, "SETTINGS here layers wanted saved hook step handle"}};

static const vp_saying torch_says[] = {
    {VP_SETTING_PARALLEL, "W", "parallel", "$word"},
    {VP_SETTING_WORLD, "*", "world", "$"},
    {VP_SETTING_MICRO_BATCH, "*", "micro_batch", "$"},
    {VP_SETTING_ACCUMULATION, "*", "accumulation", "$"},
    {VP_SETTING_SEQ, "*", "sequence", "$"},
    {VP_SETTING_PRECISION, "fp32", "weights", "float32"},
    {VP_SETTING_PRECISION, "fp32", "autocast", "none"},
    {VP_SETTING_PRECISION, "bf16-mixed", "weights", "float32"},
    {VP_SETTING_PRECISION, "bf16-mixed", "autocast", "bfloat16"},
    {VP_SETTING_PRECISION, "bf16-amp", "weights", "bfloat16"},
    {VP_SETTING_PRECISION, "bf16-amp", "autocast", "bfloat16"},
    {VP_SETTING_PRECISION, "bf16", "weights", "bfloat16"},
    {VP_SETTING_PRECISION, "bf16", "autocast", "none"},
    {VP_SETTING_PRECISION, "fp16", "weights", "float16"},
    {VP_SETTING_PRECISION, "fp16", "autocast", "none"},
    {VP_SETTING_RECOMPUTE, "none", "recompute", "none"},
    {VP_SETTING_RECOMPUTE, "full", "recompute", "full"},
    {VP_SETTING_RECOMPUTE, "every:N", "recompute", "$word"},
    {VP_SETTING_RECOMPUTE, "first:N", "recompute", "$word"},
    {VP_SETTING_RECOMPUTE, "blocks:L", "recompute", "$word"},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "none", "offload_activations", "false"},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "cpu", "offload_activations", "true", "recompute!=none"},
    {VP_SETTING_OPTIMIZER, "adamw_torch", "optimizer", "$word"},
    {VP_SETTING_OPTIMIZER, "adamw_torch_fused", "optimizer", "$word"},
    {VP_SETTING_OPTIMIZER, "sgd", "optimizer", "$word"},
    {VP_SETTING_ATTENTION, "eager", "attention", "$word"},
    {VP_SETTING_ATTENTION, "sdpa", "attention", "$word"},
    {VP_SETTING_ATTENTION, "sdpa:flash", "attention", "$word"},
    {VP_SETTING_ATTENTION, "sdpa:efficient", "attention", "$word"},
    {VP_SETTING_ATTENTION, "sdpa:math", "attention", "$word"},
    {VP_SETTING_CLIP_NORM, "R", "clip_norm", "$"},
    {VP_SETTING_TUNING, "full", "tuning", "$word"},
    {VP_SETTING_TUNING, "lora", "tuning", "$word"},
    {VP_SETTING_TUNING, "qlora", "tuning", "$word"},
    {VP_SETTING_QUANT, "nf4", "quant", "$word", "tuning=qlora"},
    {VP_SETTING_QUANT, "nf4-dq", "quant", "$word", "tuning=qlora"},
    {VP_SETTING_LORA_R, "N", "lora_r", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_ALPHA, "N", "lora_alpha", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_DROPOUT, "R", "lora_dropout", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_TARGETS, "L", "lora_targets", "$", "tuning=lora|qlora"},
    {VP_SETTING_LORA_SAVE, "none", "lora_save", NULL, "tuning=lora|qlora"},
    {VP_SETTING_LORA_SAVE, "L", "lora_save", "$", "tuning=lora|qlora,lora_save!=none"},
    {VP_ALWAYS, NULL, "limit_bytes", "$limit"},
    {VP_ALWAYS, NULL, "reserved_peak_bytes", "$reserved"},
};

const vp_dialect vp_dialect_torch = {
    .name    = "torch",
    .library = "torch",
    .version = "2.11",
    ARRAY(torch_keys, keys),
    ARRAY(torch_sections, sections),
    ARRAY(torch_says, says),
    .signs      = "limit_bytes reserved_peak_bytes autocast micro_batch",
    .flag_signs = "",
};
