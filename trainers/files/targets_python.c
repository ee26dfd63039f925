/* trainers/files/targets_python.c: trainers that are told in Python: a module with the settings, and the
 * code that applies them. */
#include "trainers/files/target.h"

/* ---- torchtitan: a configuration from 0.3 on, TOML before ---- */

static const char recipe_py[] =
    "\"\"\"A configuration of torchtitan: yours, with these settings in it.\n"
    "\n"
    "BASE names yours, MODULE:FUNCTION, as torchtitan.models.llama3.config_registry:llama3_8b; it brings\n"
    "the model, its attention, the data and the optimizer's numbers.\n"
    "\"\"\"\n"
    "import importlib\n"
    "import os\n"
    "from dataclasses import dataclass\n"
    "\n"
    "from torchtitan.components.loss import ChunkedLossWrapper\n"
    "from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC\n"
    "\n"
    "SETTINGS = @SETTINGS@\n"
    "\n"
    "\n"
    "def is_recomputed(layer):\n"
    "    \"\"\"Whether layer, counted from 0, keeps only its input.\"\"\"\n"
    "    kind, _, rest = SETTINGS[\"activation_checkpoint\"].partition(\":\")\n"
    "    if kind == \"blocks\":\n"
    "        return layer in {int(i) for i in rest.split(\"+\")}\n"
    "    return layer % int(rest) == 0 if kind == \"every\" else layer < int(rest)\n"
    "\n"
    "\n"
    "class LayersAC(FullAC):\n"
    "    \"\"\"Recompute the layers that SETTINGS names, whole, and no other.\"\"\"\n"
    "\n"
    "    @dataclass(kw_only=True, slots=True)\n"
    "    class Config(FullAC.Config):\n"
    "        pass\n"
    "\n"
    "    def _wrap_block(self, module, *, base_fqn=None):\n"
    "        if not is_recomputed(int(base_fqn.rsplit(\".\", 1)[1])):\n"
    "            return module\n"
    "        return super()._wrap_block(module, base_fqn=base_fqn)\n"
    "\n"
    "\n"
    "def apply(config):\n"
    "    for section in (\"training\", \"parallelism\", \"optimizer\", \"compile\"):\n"
    "        for name, value in SETTINGS[section].items():\n"
    "            setattr(getattr(config, section), name, value)\n"
    "    word = SETTINGS[\"activation_checkpoint\"]\n"
    "    whole = {\"none\": None, \"full\": FullAC.Config(), \"selective\": SelectiveAC.Config()}\n"
    "    config.activation_checkpoint = whole[word] if word in whole else LayersAC.Config()\n"
    "    loss = getattr(config.loss, \"loss_fn\", config.loss)\n"
    "    config.loss = loss if SETTINGS[\"loss\"] == \"full\" else ChunkedLossWrapper.Config(loss_fn=loss)\n"
    "    return config\n"
    "\n"
    "\n"
    "def vplan():\n"
    "    module, _, function = os.environ[\"BASE\"].partition(\":\")\n"
    "    return apply(getattr(importlib.import_module(module), function)())\n";

static const vp_target_file torchtitan_files[] = {
    {&vp_dialect_torchtitan_recipe, "vplan_recipe.py", VP_FORMAT_PYTHON, .template = recipe_py,
     .since = "0.3"},
    {&vp_dialect_torchtitan, "torchtitan.toml", VP_FORMAT_TOML, .until = "0.3",
     .launch =
         "torchrun --nproc_per_node $world -m torchtitan.train --job.config_file torchtitan.toml"},
};

static const vp_told torchtitan_script[] = {
    {"world", "--nproc_per_node of torchrun, with the degrees in the file"},
    {"attention", "attn_backend of model_registry in your configuration"},
    {0},
};

const vp_target vp_target_torchtitan = {
    .name    = "torchtitan",
    .summary = "torchtitan's configuration, a Python function; 0.2's TOML by "
               "--versions torchtitan=0.2.2",
    .files   = torchtitan_files,
    .n_files = sizeof torchtitan_files / sizeof *torchtitan_files,
    .script  = torchtitan_script,
    .launch  = "BASE=YOUR_MODULE:YOUR_FUNCTION torchrun --nproc_per_node $world -m "
               "torchtitan.train --module vplan_recipe --config vplan",
};

/* ---- Unsloth ---- */

static const char unsloth_py[] =
    "\"\"\"Settings of a run with Unsloth, and what applies them.\n"
    "\n"
    "    import vplan_unsloth\n"
    "    model, tokenizer = vplan_unsloth.load()\n"
    "    trainer = SFTTrainer(model=model, args=vplan_unsloth.arguments(output_dir=\"run\"), ...)\n"
    "\"\"\"\n"
    "from unsloth import FastLanguageModel  # before transformers and trl: it changes both\n"
    "\n"
    "import torch\n"
    "from trl import SFTConfig\n"
    "\n"
    "SETTINGS = @SETTINGS@\n"
    "\n"
    "LOAD = (\"model_name\", \"max_seq_length\", \"load_in_4bit\", \"load_in_8bit\", \"full_finetuning\",\n"
    "        \"float32_mixed_precision\", \"use_gradient_checkpointing\")\n"
    "ADAPT = (\"r\", \"lora_alpha\", \"lora_dropout\", \"target_modules\", \"modules_to_save\",\n"
    "         \"use_gradient_checkpointing\")\n"
    "TRAIN = (\"per_device_train_batch_size\", \"gradient_accumulation_steps\", \"optim\", \"max_grad_norm\",\n"
    "         \"bf16\", \"fp16\", \"packing\", \"eval_strategy\", \"per_device_eval_batch_size\")\n"
    "\n"
    "\n"
    "def those(names):\n"
    "    return {name: SETTINGS[name] for name in names if name in SETTINGS}\n"
    "\n"
    "\n"
    "def load(**more):\n"
    "    \"\"\"The model with its adapters, and its tokenizer; more goes to from_pretrained.\"\"\"\n"
    "    dtype = getattr(torch, SETTINGS[\"dtype\"].removeprefix(\"torch.\"))\n"
    "    model, tokenizer = FastLanguageModel.from_pretrained(**{\"dtype\": dtype, **those(LOAD), **more})\n"
    "    if not SETTINGS[\"full_finetuning\"]:\n"
    "        model = FastLanguageModel.get_peft_model(model, **those(ADAPT))\n"
    "    return model, tokenizer\n"
    "\n"
    "\n"
    "def arguments(**more):\n"
    "    \"\"\"SFTConfig's; more: output_dir, learning_rate, max_steps, ...\"\"\"\n"
    "    return SFTConfig(max_length=SETTINGS[\"max_seq_length\"], **{**those(TRAIN), **more})\n";

static const vp_target_file unsloth_files[] = {
    {&vp_dialect_unsloth, "vplan_unsloth.py", VP_FORMAT_PYTHON, .template = unsloth_py}};

static const vp_told unsloth_script[] = {
    {"world", "your launch line"},
    {"parallel=none|ddp", "your launch line: torchrun replicates the model"},
    {"loss=full|chunked", "Unsloth itself: its own fused cross-entropy"},
    {"attention=sdpa|flash2", "Unsloth itself: the fastest that is installed"},
    {"allocator=default", "Unsloth itself: importing it sets expandable_segments:True",
     .beside = true},
    VP_TOLD_UNPREPARED,
    {0},
};

const vp_target vp_target_unsloth = {
    .name    = "unsloth",
    .summary = "a Python module that loads Unsloth's model and makes TRL's SFTConfig",
    .files   = unsloth_files,
    .n_files = 1,
    .script  = unsloth_script,
    .launch  = "python YOUR_SCRIPT.py",
};
