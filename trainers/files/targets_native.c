/* trainers/files/targets_native.c: what is written for trainers with a language of their own. */
#include "trainers/files/target.h"

static const vp_target_file lightning_files[] = {
    {&vp_dialect_lightning, "lightning.yaml", VP_FORMAT_YAML}};

static const vp_told lightning_script[] = {
    {"micro_batch", "batch_size of your data module"},
    {"seq", "your data module"},
    {"optimizer", "configure_optimizers of your module"},
    VP_TOLD_FIRST_LAYERS,
    {"recompute",
     "configure_model of your module, or FSDPStrategy's activation_checkpointing_policy"},
    {"offload_activations", "torch.autograd.graph.save_on_cpu in your module"},
    {"loss", "your module"},
    {"attention", "attn_implementation of from_pretrained"},
    {"tuning", "peft in your module"},
    {"quant", "BitsAndBytesConfig of from_pretrained"},
    VP_TOLD_PREPARATION("get_peft_model()"),
    VP_TOLD_BY_LORACONFIG,
    {0},
};

const vp_target vp_target_lightning = {
    .name    = "lightning",
    .summary = "LightningCLI's YAML: the trainer section",
    .files   = lightning_files,
    .n_files = 1,
    .script  = lightning_script,
    .launch  = "python YOUR_CLI.py fit --config lightning.yaml",
};

static const vp_target_file litgpt_files[] = {{&vp_dialect_litgpt, "litgpt.yaml", VP_FORMAT_YAML}};

static const vp_told litgpt_script[] = {
    {"attention=sdpa", "litgpt itself: scaled_dot_product_attention"},
    {"loss=full", "litgpt itself: chunked_cross_entropy over the full logits"},
    {0},
};

const vp_target vp_target_litgpt = {
    .name    = "litgpt",
    .summary = "litgpt's YAML",
    .files   = litgpt_files,
    .n_files = 1,
    .script  = litgpt_script,
    .launch  = "litgpt finetune_full --config litgpt.yaml",
};

static const vp_target_file torchtune_files[] = {
    {&vp_dialect_torchtune, "torchtune.yaml", VP_FORMAT_YAML}};

static const vp_told torchtune_script[] = {
    {"world", "--nproc_per_node of tune run"},
    {"parallel=none", "the recipe: full_finetune_single_device"},
    {"parallel=fsdp2", "the recipe: full_finetune_distributed"},
    {"attention=sdpa", "torchtune itself: scaled_dot_product_attention"},
    {0},
};

const vp_target vp_target_torchtune = {
    .name    = "torchtune",
    .summary = "torchtune's YAML; the project has ended",
    .files   = torchtune_files,
    .n_files = 1,
    .script  = torchtune_script,
    .launch  = "tune run --nproc_per_node $world full_finetune_distributed --config torchtune.yaml",
    .legacy  = true,
};

static const vp_target_file megatron_files[] = {
    {&vp_dialect_megatron, "megatron.args", VP_FORMAT_FLAGS}};

static const vp_told megatron_script[] = {
    {"loss=full", "Megatron itself: vocab-parallel cross-entropy over the full logits"},
    {0},
};

const vp_target vp_target_megatron = {
    .name    = "megatron",
    .summary = "Megatron-LM's options; the model's and the data's are yours to add",
    .files   = megatron_files,
    .n_files = 1,
    .script  = megatron_script,
    .launch  = "torchrun $(grep -v '^#' megatron.args) YOUR_MODEL_AND_DATA_OPTIONS",
};

static const char torch_py[] =
    "\"\"\"Settings of a plain training loop, and what applies them.\n"
    "\n"
    "    import vplan_settings\n"
    "    vplan_settings.apply(model, optimizer)   # before the first step\n"
    "    with vplan_settings.autocast():          # around forward and loss\n"
    "        ...\n"
    "\n"
    "What SETTINGS[\"parallel\"] says is yours to do: DistributedDataParallel, fully_shard or DeepSpeed's\n"
    "engine around the model.\n"
    "\"\"\"\n"
    "import contextlib\n"
    "import os\n"
    "\n"
    "import torch\n"
    "from torch.utils.checkpoint import checkpoint\n"
    "\n"
    "SETTINGS = @SETTINGS@\n"
    "\n"
    "\n"
    "def recomputed(n_layers):\n"
    "    \"\"\"The layers, from 0, that keep only their input.\"\"\"\n"
    "    kind, _, rest = SETTINGS[\"recompute\"].partition(\":\")\n"
    "    if kind == \"blocks\":\n"
    "        return {int(i) for i in rest.split(\"+\")}\n"
    "    return {\"none\": set(), \"full\": set(range(n_layers))}.get(kind) if not rest else set(\n"
    "        range(0, n_layers, int(rest)) if kind == \"every\" else range(min(int(rest), "
    "n_layers)))\n"
    "\n"
    "\n"
    "def longest_list(model):\n"
    "    lists = [m for m in model.modules() if isinstance(m, torch.nn.ModuleList)]\n"
    "    if not lists:\n"
    "        raise ValueError(\"no ModuleList in the model: pass its layers\")\n"
    "    return max(lists, key=len)\n"
    "\n"
    "\n"
    "def apply(model, optimizer, layers=None, device=None):\n"
    "    \"\"\"Checkpoint the layers that SETTINGS names, cap the allocator, and raise after the "
    "second\n"
    "    step if the reserved peak is above the predicted one.\"\"\"\n"
    "    world = int(os.environ.get(\"WORLD_SIZE\", 1))\n"
    "    if world != SETTINGS[\"world\"]:\n"
    "        raise ValueError(f\"{world} processes; these settings are for {SETTINGS['world']}\")\n"
    "    if SETTINGS[\"tuning\"] != \"full\" and not any(\"lora_\" in n for n, _ in "
    "model.named_parameters()):\n"
    "        raise ValueError(\"these settings are LoRA's: give the model its adapters (peft, LoraConfig "
    "from SETTINGS) before apply()\")\n"
    "    layers = longest_list(model) if layers is None else layers\n"
    "    for i in sorted(recomputed(len(layers))):\n"
    "        forward = layers[i].forward\n"
    "\n"
    "        def run(*args, _forward=forward, **kwargs):\n"
    "            if not torch.is_grad_enabled():\n"
    "                return _forward(*args, **kwargs)\n"
    "            saved = (torch.autograd.graph.save_on_cpu(pin_memory=True) if "
    "SETTINGS[\"offload_activations\"]\n"
    "                     else contextlib.nullcontext())\n"
    "            with saved:\n"
    "                return checkpoint(_forward, *args, use_reentrant=False, **kwargs)\n"
    "\n"
    "        layers[i].forward = run\n"
    "    limit, expected = SETTINGS[\"limit_bytes\"], SETTINGS[\"reserved_peak_bytes\"]\n"
    "    if not torch.cuda.is_available():\n"
    "        return\n"
    "    if limit:\n"
    "        total = torch.cuda.get_device_properties(device).total_memory\n"
    "        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total), device)\n"
    "    steps = [0]\n"
    "\n"
    "    def after(*_):\n"
    "        steps[0] += 1\n"
    "        if steps[0] == 2 and expected:\n"
    "            peak = torch.cuda.max_memory_reserved(device)\n"
    "            if peak > expected:\n"
    "                raise MemoryError(f\"{peak} bytes reserved, {expected} were predicted\")\n"
    "\n"
    "    optimizer.register_step_post_hook(after)\n"
    "\n"
    "\n"
    "def autocast():\n"
    "    if SETTINGS[\"autocast\"] == \"none\":\n"
    "        return contextlib.nullcontext()\n"
    "    return torch.autocast(\"cuda\", dtype=getattr(torch, SETTINGS[\"autocast\"]))\n";

static const vp_target_file torch_files[] = {
    {&vp_dialect_torch, "vplan_settings.py", VP_FORMAT_PYTHON, .template = torch_py}};

static const vp_told torch_script[] = {
    {"loss", "your loss"},
    {0},
};

const vp_target vp_target_torch = {
    .name = "torch",
    .summary =
        "a Python module for a loop of yours: exact layers, offload, a cap, the peak asserted",
    .files   = torch_files,
    .n_files = 1,
    .script  = torch_script,
    .launch  = "torchrun --nproc_per_node $world YOUR_SCRIPT.py",
};
