/* trainers/files/targets_transformers.c: what is written for trainers on transformers: which files
 * belong together, and the command that runs them. */
#include "trainers/files/target.h"

#define ZERO "parallel=zero1|zero2|zero3"

/* Runs as it stands on random tokens, so that the files can be tried before data is there; knows no
 * setting of its own. */
static const char train_py[] =
    "\"\"\"Train with the settings beside this file: training_args.json, model_args.json and, with "
    "adapters, lora_config.json.\n"
    "Replace `data` by your own; until then it is random @DATA@.\"\"\"\n"
    "import json\n"
    "import pathlib\n"
    "\n"
    "import torch\n"
    "from transformers import (AutoConfig, BitsAndBytesConfig, HfArgumentParser, Trainer, "
    "TrainingArguments,\n"
    "                          @CLASS@)\n"
    "from transformers.modeling_layers import GradientCheckpointingLayer\n"
    "\n"
    "here = pathlib.Path(__file__).parent\n"
    "(args,) = HfArgumentParser(TrainingArguments).parse_json_file(here / "
    "\"training_args.json\")\n"
    "loading = json.loads((here / \"model_args.json\").read_text())\n"
    "length = loading.pop(\"sequence_length\")\n"
    "gradient_checkpointing_layers = loading.pop(\"gradient_checkpointing_layers\", 0)\n"
    "prepares = loading.pop(\"prepare_model_for_kbit_training\", True)\n"
    "name = loading.pop(\"pretrained_model_name_or_path\")\n"
    "bits = loading.pop(\"quantization_config\", {\"load_in_4bit\": False})\n"
    "if bits[\"load_in_4bit\"]:\n"
    "    loading[\"quantization_config\"] = BitsAndBytesConfig(**bits)\n"
    "if pathlib.Path(name).suffix == \".json\" or not any(pathlib.Path(name).glob(\"*.safetensors\")) "
    "and pathlib.Path(name).is_dir():\n"
    "    if bits[\"load_in_4bit\"]:\n"
    "        raise SystemExit(f\"{name}: a config without weights, which cannot be held in 4 bits\")\n"
    "    config = AutoConfig.from_pretrained(name@CLASSES@)  # no weights here: drawn\n"
    "    config.dtype = getattr(torch, loading.pop(\"dtype\"))\n"
    "    model = @CLASS@.from_config(config, dtype=config.dtype, **loading)\n"
    "else:\n"
    "    model = @CLASS@.from_pretrained(name@CLASSES@, **loading)\n"
    "@PADDING@"
    "if (here / \"lora_config.json\").exists():\n"
    "    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training\n"
    "    if bits[\"load_in_4bit\"] and prepares and \"bnb_4bit_quant_storage\" not in bits:  # else FSDP cuts what is packed beside 16 bits\n"
    "        model = prepare_model_for_kbit_training(model, "
    "use_gradient_checkpointing=args.gradient_checkpointing,\n"
    "                                                "
    "gradient_checkpointing_kwargs=args.gradient_checkpointing_kwargs)\n"
    "    model = get_peft_model(model, LoraConfig(**json.loads((here / "
    "\"lora_config.json\").read_text())))\n"
    "if gradient_checkpointing_layers:  # Trainer leaves them so: training_args.json does not ask for checkpoints\n"
    "    model.gradient_checkpointing_enable({\"use_reentrant\": False})\n"
    "    layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]\n"
    "    for layer in layers[gradient_checkpointing_layers:]:\n"
    "        layer.gradient_checkpointing = False\n"
    "\n"
    "\n"
    "class data(torch.utils.data.Dataset):\n"
    "    def __len__(self):\n"
    "        return 1 << 20\n"
    "\n"
    "    def __getitem__(self, i):\n"
    "        @SAMPLE@, "
    "generator=torch.Generator().manual_seed(i))\n"
    "        return {@INPUTS@, \"labels\": @ANSWERS@}\n"
    "\n"
    "\n"
    "evaluated = data() if args.eval_strategy != \"no\" else None\n"
    "Trainer(model=model, args=args, train_dataset=data(), eval_dataset=evaluated).train()\n";

static const vp_target_file hf_files[] = {
    {&vp_dialect_transformers, "training_args.yaml", VP_FORMAT_YAML},
    {&vp_dialect_transformers, "training_args.json", VP_FORMAT_JSON},
    /* its parser takes no map of Liger's kernels on the command line */
    {&vp_dialect_transformers, "training_args.flags", VP_FORMAT_FLAGS, "loss!=liger"},
    {&vp_dialect_model, "model_args.json", VP_FORMAT_JSON},
    {&vp_dialect_lora, "lora_config.json", VP_FORMAT_JSON, "tuning=lora|qlora"},
    {&vp_dialect_accelerate, "accelerate.yaml", VP_FORMAT_YAML},
    {&vp_dialect_deepspeed, "ds_config.json", VP_FORMAT_JSON, ZERO},
    {NULL, "train.py", VP_FORMAT_PYTHON, .template = train_py},
};

static const vp_told hf_script[] = {
    {"recompute=first:N", "train.py does it; a script of yours by " VP_FIRST_LAYERS,
     .beside = true},
    {0},
};

const vp_target vp_target_hf = {
    .name = "hf",
    .summary =
        "transformers' Trainer: TrainingArguments as YAML, JSON and flags, and accelerate's file",
    .files   = hf_files,
    .n_files = sizeof hf_files / sizeof *hf_files,
    .script  = hf_script,
    .launch  = "accelerate launch --config_file accelerate.yaml train.py",
};

static const vp_target_file trl_files[] = {
    {&vp_dialect_trl, "sft.yaml", VP_FORMAT_YAML, "method=sft"},
    {&vp_dialect_trl, "dpo.yaml", VP_FORMAT_YAML, "method=dpo",
     .launch = "accelerate launch --config_file accelerate.yaml --module trl.scripts.dpo --config "
               "dpo.yaml --dataset_name YOUR_PAIRS --output_dir out"},
    {&vp_dialect_trl, "reward.yaml", VP_FORMAT_YAML, "method=reward",
     .launch = "accelerate launch --config_file accelerate.yaml --module trl.scripts.reward "
               "--config reward.yaml --dataset_name YOUR_PAIRS --output_dir out"},
    {&vp_dialect_trl, "grpo.yaml", VP_FORMAT_YAML, "method=grpo",
     .launch = "accelerate launch --config_file accelerate.yaml --module trl.scripts.grpo --config "
               "grpo.yaml --dataset_name YOUR_PROMPTS --reward_funcs YOUR_MODULE.FUNCTION "
               "--output_dir out"},
    {&vp_dialect_accelerate, "accelerate.yaml", VP_FORMAT_YAML},
    {&vp_dialect_deepspeed, "ds_config.json", VP_FORMAT_JSON, ZERO},
};

static const vp_told trl_script[] = {
    /* of others a file says it */
    {"seq", "by GRPO the longest of your prompts, and its completion behind it"},
    VP_TOLD_PREPARATION("SFTTrainer gets it, in a script of yours: trl.scripts.sft does not"),
    {0},
};

const vp_target vp_target_trl = {
    .name = "trl",
    .summary =
        "TRL's SFTTrainer, DPOTrainer, RewardTrainer or GRPOTrainer: its config with ModelConfig in "
        "one YAML, and accelerate's file",
    .files   = trl_files,
    .n_files = sizeof trl_files / sizeof *trl_files,
    .script  = trl_script,
    .launch  = "accelerate launch --config_file accelerate.yaml --module trl.scripts.sft --config "
               "sft.yaml --dataset_name YOUR_DATASET --output_dir out",
};

static const vp_target_file accelerate_files[] = {
    {&vp_dialect_accelerate, "accelerate.yaml", VP_FORMAT_YAML},
};

static const vp_told accelerate_script[] = {
    {"micro_batch", "the batch_size of your DataLoader"},
    {"accumulation", "Accelerator(gradient_accumulation_steps=...)"},
    {"gradient_sync=each", "GradientAccumulationPlugin(sync_each_batch=True)"},
    {"eval_batch=N", "the batch_size of your evaluation's DataLoader"},
    {"seq", "what your data is cut to"},
    {"optimizer", "the optimizer you make"},
    VP_TOLD_FIRST_LAYERS,
    {"recompute", "model.gradient_checkpointing_enable(...)"},
    {"offload_activations", "torch.autograd.graph.save_on_cpu in your loop"},
    {"loss", "your loss"},
    {"attention", "attn_implementation of from_pretrained"},
    {"clip_norm", "accelerator.clip_grad_norm_"},
    {"tuning", "peft in your code"},
    {"quant", "BitsAndBytesConfig of from_pretrained; FSDP cuts its weights with "
              "bnb_4bit_quant_storage of their compute dtype"},
    VP_TOLD_PREPARATION("get_peft_model()"),
    VP_TOLD_BY_LORACONFIG,
    {0},
};

const vp_target vp_target_accelerate = {
    .name    = "accelerate",
    .summary = "accelerate's own file for a loop of yours: DDP, FSDP, FSDP2 or DeepSpeed's plugin",
    .files   = accelerate_files,
    .n_files = 1,
    .script  = accelerate_script,
    .launch  = "accelerate launch --config_file accelerate.yaml YOUR_SCRIPT.py",
};

static const vp_target_file deepspeed_files[] = {
    {&vp_dialect_deepspeed, "ds_config.json", VP_FORMAT_JSON},
};

static const vp_told deepspeed_script[] = {
    {"world", "--num_gpus of the launcher"},
    {"eval_batch=N", "the batch_size of your evaluation's DataLoader"},
    {"seq", "what your data is cut to"},
    {"optimizer", "the optimizer you give to deepspeed.initialize"},
    VP_TOLD_FIRST_LAYERS,
    {"recompute", "model.gradient_checkpointing_enable(...)"},
    {"offload_activations", "torch.autograd.graph.save_on_cpu in your loop"},
    {"loss", "your loss"},
    {"attention", "attn_implementation of from_pretrained"},
    {"tuning", "peft in your code"},
    {"quant", "BitsAndBytesConfig of from_pretrained"},
    VP_TOLD_PREPARATION("get_peft_model()"),
    VP_TOLD_BY_LORACONFIG,
    {0},
};

const vp_target vp_target_deepspeed = {
    .name    = "deepspeed",
    .summary = "DeepSpeed's JSON for a loop of yours",
    .files   = deepspeed_files,
    .n_files = 1,
    .script  = deepspeed_script,
    .launch  = "deepspeed --num_gpus $world YOUR_SCRIPT.py --deepspeed_config ds_config.json",
};

static const vp_target_file axolotl_files[] = {
    {&vp_dialect_axolotl, "axolotl.yaml", VP_FORMAT_YAML},
    {&vp_dialect_deepspeed, "ds_config.json", VP_FORMAT_JSON, ZERO},
};

static const vp_told launched_world[] = {
    {"world", "the launcher's number of processes"},
    VP_TOLD_UNPREPARED,
    {0},
};

const vp_target vp_target_axolotl = {
    .name    = "axolotl",
    .summary = "axolotl's YAML, and DeepSpeed's JSON for ZeRO",
    .files   = axolotl_files,
    .n_files = sizeof axolotl_files / sizeof *axolotl_files,
    .script  = launched_world,
    .launch  = "AXOLOTL_DO_NOT_TRACK=1 axolotl train axolotl.yaml --launcher torchrun -- "
               "--nproc_per_node=$world",
};

static const vp_target_file swift_files[] = {
    {&vp_dialect_swift, "swift.args", VP_FORMAT_FLAGS, "method=sft"},
    {&vp_dialect_swift, "swift.args", VP_FORMAT_FLAGS, "method=dpo",
     .launch = "NPROC_PER_NODE=$world swift rlhf $(grep -v '^#' swift.args) --dataset YOUR_PAIRS"},
    {&vp_dialect_deepspeed, "ds_config.json", VP_FORMAT_JSON, ZERO},
};

const vp_target vp_target_swift = {
    .name    = "ms-swift",
    .summary = "ms-swift's options, and DeepSpeed's JSON for ZeRO",
    .files   = swift_files,
    .n_files = sizeof swift_files / sizeof *swift_files,
    .script  = launched_world,
    .launch  = "NPROC_PER_NODE=$world swift sft $(grep -v '^#' swift.args) --dataset YOUR_DATASET",
};

static const vp_target_file llamafactory_files[] = {
    {&vp_dialect_llamafactory, "llamafactory.yaml", VP_FORMAT_YAML},
    {&vp_dialect_deepspeed, "ds_config.json", VP_FORMAT_JSON, ZERO},
};

const vp_target vp_target_llamafactory = {
    .name    = "llamafactory",
    .summary = "LLaMA-Factory's YAML, and DeepSpeed's JSON for ZeRO",
    .files   = llamafactory_files,
    .n_files = sizeof llamafactory_files / sizeof *llamafactory_files,
    .script  = launched_world,
    .launch  = "FORCE_TORCHRUN=1 NPROC_PER_NODE=$world llamafactory-cli train llamafactory.yaml",
};
