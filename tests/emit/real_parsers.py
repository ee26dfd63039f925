"""Does each trainer's own parser take what `vplan emit` writes, with the values meant? Not part of CI: needs the trainers' packages.

    PYTHONPATH=FOLDER_OF_PACKAGES python tests/emit/real_parsers.py build/vplan [N [TARGET...]] > tests/emit/real_parsers.json

Settings are drawn with a fixed seed; a target whose package is missing is named as not checked. Values are read from the parser's own
objects, never from our files."""
import importlib.metadata
import json
import os
import random
import re
import subprocess
import sys
import tempfile

vplan = os.path.realpath(sys.argv[1])
N = int(sys.argv[2]) if len(sys.argv) > 2 else 40
os.environ.update(DISABLE_VERSION_CHECK="1", TRANSFORMERS_VERBOSITY="error", DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")
drawing = random.Random(1)  # of our own: parsers seed the module's
answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what the libraries print is not the answer


AXES = {"method": ["sft", "sft", "dpo", "reward", "grpo"], "completion": [64, 256], "generator": ["model", "vllm"], "micro_batch": [1, 2, 4, 16], "accumulation": [1, 2, 8], "seq": [512, 2048], "clip_norm": [1.0, 0.5, 0.0],
        "parallel": ["none", "ddp", "fsdp", "fsdp2", "zero1", "zero2", "zero3"], "gradient_sync": ["step", "each"],
        "precision": ["fp32", "bf16-mixed", "bf16-mixed", "bf16-amp", "bf16", "fp16-mixed", "fp16-amp", "fp16"],
        "optimizer": ["adamw_torch", "adamw_torch_fused", "sgd", "sgd_momentum", "adafactor", "adamw_8bit", "paged_adamw_8bit", "lion_8bit",
                      "galore_adamw:rank=8,targets=q_proj+v_proj", "apollo_adamw:rank=4,targets=all-linear"],
        "recompute": ["none", "full", "full:reentrant", "every:2", "first:3", "chunks:2", "selective"], "loss": ["full", "full", "chunked", "liger", "liger-all"],
        "attention": ["eager", "sdpa", "sdpa", "flash2", "flex"], "offload": ["none", "none", "optimizer", "optimizer+params", "activations"],
        "eval_batch": ["none", "none", 2, 16], "allocator": ["default", "expandable"], "tuning": ["full", "full", "lora", "qlora"],
        "quant": ["nf4", "nf4-dq"], "prepare": ["trainer", "on", "off"], "lora_r": [8, 64], "lora_alpha": [16, 32], "lora_dropout": [0.0, 0.05],
        "lora_targets": ["all-linear", "q_proj+v_proj"], "lora_save": ["none", "none", "embed_tokens+lm_head"]}


def draw():
    return {axis: drawing.choice(words) for axis, words in AXES.items()}


def counted(drawn):
    """Of what is drawn, what is about these weights and cards."""
    s = {k: v for k, v in drawn.items() if not (k.startswith("lora_") and drawn["tuning"] == "full") and not (k in ("quant", "prepare") and drawn["tuning"] != "qlora")}
    s = {k: v for k, v in s.items() if not (k in ("completion", "generator") and s["method"] != "grpo")}
    s["world"] = 1 if s["parallel"] == "none" else 2 if s["micro_batch"] < 4 else 8
    return s


def again(drawn, refusal):
    """The setting that the target cannot be told is drawn again, beside the others."""
    m = re.search(r"cannot be told (\w+) ", refusal)
    axis = "offload" if m and m[1].startswith("offload_") else m[1] if m and m[1] in AXES else drawing.choice(list(AXES))
    if " beside " in refusal and drawing.random() < 0.5:
        axis = drawing.choice([a for a in AXES if re.search(r"\b%s" % a, refusal[m.end():])] or [axis])
    return dict(drawn, **{axis: drawing.choice(AXES[axis])})


def version(package):
    return importlib.metadata.version(package)


def same(name, got, want):
    assert got == want, "%s is %r, meant %r" % (name, got, want)


FLASH = {"flash2": "flash_attention_2", "flash3": "flash_attention_3", "flex": "flex_attention"}
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def told(word):
    """An optimizer's word, what it is told by NAME=VALUE, and its targets."""
    name, _, rest = word.partition(":")
    values = ["momentum=0.9"] if name == "sgd_momentum" else [v for v in rest.split(",") if v and not v.startswith("targets=")]
    return {"sgd_momentum": "sgd"}.get(name, name), values, rest.partition("targets=")[2].split("+") if "targets=" in rest else None


def check_optimizer(a, s):
    """Of TrainingArguments; its own reader makes adamw_bnb_8bit of adamw_8bit."""
    name, values, targets = told(s["optimizer"])
    same("optim", str(getattr(a.optim, "value", a.optim)).replace("adamw_bnb_8bit", "adamw_8bit").replace("bnb_", ""), name)
    same("optim_args", (a.optim_args or "").replace(" ", ""), ",".join(values))
    if targets:
        got = a.optim_target_modules
        alike = targets == ["all-linear"] and got == "all-linear" or got == targets or isinstance(got, str) and all(re.fullmatch(got, "model.0.%s" % t) for t in targets)
        assert alike, "optim_target_modules is %r, meant %r" % (got, targets)


def check_args(a, s):
    """TrainingArguments and its children."""
    same("micro-batch", a.per_device_train_batch_size, s["micro_batch"])
    same("accumulation", a.gradient_accumulation_steps, s["accumulation"])
    same("max_grad_norm", a.max_grad_norm, s["clip_norm"])
    same("bf16", bool(a.bf16), s["precision"] in ("bf16-mixed", "bf16-amp"))
    same("fp16", bool(a.fp16), s["precision"] in ("fp16-mixed", "fp16-amp"))
    kind = s["recompute"].partition(":")[0]
    same("checkpointing", a.gradient_checkpointing, kind in ("full", "every"))
    kwargs = a.gradient_checkpointing_kwargs or {}
    if kind in ("full", "every"):
        same("use_reentrant", kwargs["use_reentrant"], s["recompute"] == "full:reentrant")
        same("every_n_layers", kwargs.get("every_n_layers"), int(s["recompute"][6:]) if kind == "every" else None)
    check_optimizer(a, s)
    check_evaluation(a, s)
    check_sync(a, s)


def check_lora(c, s):
    """peft's LoraConfig."""
    same("adapters", (c.r, c.lora_alpha, c.lora_dropout), (s["lora_r"], s["lora_alpha"], s["lora_dropout"]))
    targets = {c.target_modules} if isinstance(c.target_modules, str) else set(c.target_modules)
    same("targets", targets, set(s["lora_targets"].split("+")))
    same("trained whole", set(c.modules_to_save or []), set() if s["lora_save"] == "none" else set(s["lora_save"].split("+")))


def check_quantised(c, s):
    """transformers' BitsAndBytesConfig."""
    same("bits", (c.load_in_4bit, c.load_in_8bit), (True, False))
    same("packed as", (c.bnb_4bit_quant_type, c.bnb_4bit_use_double_quant), ("nf4", s["quant"] == "nf4-dq"))
    if s["parallel"].startswith("fsdp"):
        import torch as t
        same("stored as", c.bnb_4bit_quant_storage, {"bf16": t.bfloat16, "fp16": t.float16}.get(s["precision"][:4], t.float32))


def check_sync(a, s):
    """As Trainer makes Accelerate's plugin."""
    kwargs = a.accelerator_config.gradient_accumulation_kwargs or {}
    same("sync_each_batch", kwargs.get("sync_each_batch", False), s["gradient_sync"] == "each")


def check_evaluation(a, s):
    same("evaluates", str(getattr(a.eval_strategy, "value", a.eval_strategy)), "no" if s["eval_batch"] == "none" else "steps")
    same("evaluated at once", a.per_device_eval_batch_size, 1 if s["eval_batch"] == "none" else s["eval_batch"])


def weights(s):
    return {"bf16": "bfloat16", "bf16-amp": "bfloat16", "fp16": "float16", "fp16-amp": "float16"}.get(s["precision"], "float32")


def hf(folder, s):
    import yaml
    from transformers import HfArgumentParser, TrainingArguments
    parser = HfArgumentParser(TrainingArguments)
    d = json.load(open(folder + "/training_args.json"))
    same("YAML and JSON", yaml.safe_load(open(folder + "/training_args.yaml")), d)
    (a,) = parser.parse_dict(dict(d, use_cpu=True, output_dir=folder))
    check_args(a, s)
    alone = dict.fromkeys(("rope", "rms_norm", "swiglu", "cross_entropy"), False)
    m = json.load(open(folder + "/model_args.json"))
    same("weights", (m["dtype"], m["attn_implementation"], m["sequence_length"]), (weights(s), FLASH.get(s["attention"], s["attention"]), s["seq"]))
    same("layers", m.get("gradient_checkpointing_layers"), int(s["recompute"][6:]) if s["recompute"].startswith("first:") else None)
    if s["tuning"] == "qlora":
        from transformers import BitsAndBytesConfig
        check_quantised(BitsAndBytesConfig(**m["quantization_config"]), s)
        same("prepares", m.get("prepare_model_for_kbit_training"), {"trainer": None, "on": True, "off": False}[s["prepare"]])
    if s["tuning"] != "full":
        from peft import LoraConfig
        check_lora(LoraConfig(**json.load(open(folder + "/lora_config.json"))), s)
    same("Liger", (a.use_liger_kernel, a.liger_kernel_config), (s["loss"].startswith("liger"), dict(alone, fused_linear_cross_entropy=True) if s["loss"] == "liger" else None))
    accelerate(folder, s)
    if os.path.exists(folder + "/ds_config.json"):
        pair(folder, s, a)
    if not os.path.exists(folder + "/training_args.flags"):  # Liger's map has no form there
        return
    import shlex
    words = shlex.split(open(folder + "/training_args.flags").read(), comments=True)
    (b,) = parser.parse_args_into_dataclasses(words + ["--use_cpu", "true", "--output_dir", folder])
    check_args(b, s)



def pair(folder, s, args):
    """The Trainer's own comparison of its arguments with DeepSpeed's file, then DeepSpeed's."""
    import types
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig
    c = HfTrainerDeepSpeedConfig(json.load(open(folder + "/ds_config.json")))
    c.trainer_config_process(args)
    c.trainer_config_finalize(args, types.SimpleNamespace(config=types.SimpleNamespace(hidden_size=4096)), 100)
    deepspeed(folder, s, c.config)


def trl(folder, s):
    import yaml
    from transformers import HfArgumentParser
    from trl import DPOConfig, GRPOConfig, ModelConfig, RewardConfig, SFTConfig
    d = yaml.safe_load(open(folder + "/%s.yaml" % s["method"]))
    GRPOConfig.world_size = s["world"]      # a launcher's
    a, m = HfArgumentParser(({"sft": SFTConfig, "dpo": DPOConfig, "reward": RewardConfig, "grpo": GRPOConfig}[s["method"]], ModelConfig)).parse_dict(dict(d, use_cpu=True, output_dir=folder))
    check_args(a, s)
    if s["method"] == "grpo":       # no word of how long prompts are
        same("completions", (a.max_completion_length, a.use_vllm, a.beta, a.num_iterations), (s["completion"], s["generator"] == "vllm", 0.0, 1))
        same("engine", a.vllm_mode == "server" or not a.use_vllm, True)
    else:
        same("max_length", a.max_length, s["seq"])
    same("attention", m.attn_implementation, FLASH.get(s["attention"], s["attention"]))
    same("dtype", m.dtype, weights(s))
    from trl import get_peft_config
    adapters = get_peft_config(m)
    same("adapters", adapters is not None, s["tuning"] != "full")
    if adapters:
        check_lora(adapters, s)
    same("packed", m.load_in_4bit, s["tuning"] == "qlora")
    if s["tuning"] == "qlora":
        from trl import get_quantization_config
        check_quantised(get_quantization_config(m), s)
    same("offload", s["method"] != "grpo" and a.activation_offloading, "activations" in s["offload"])
    if s["method"] == "reward":
        same("centred", a.center_rewards_coefficient, None)
        same("task", not adapters or m.lora_task_type == "SEQ_CLS", True)
    if s["method"] == "dpo":
        same("pairs", (a.loss_type, a.precompute_ref_log_probs), (["sigmoid"], False))
    accelerate(folder, s)


def launched(folder):
    """The environment that `accelerate launch --config_file accelerate.yaml` starts a script in."""
    from unittest.mock import patch
    import accelerate.commands.launch as launch
    args = launch.launch_command_parser().parse_args(["--config_file", folder + "/accelerate.yaml", "train.py"])
    args, defaults, _ = launch._validate_launch_command(args)
    if args.use_deepspeed:
        args.deepspeed_fields_from_accelerate_config = ",".join(list(defaults.deepspeed_config) + ["mixed_precision"])     # as launch_command() does
        return launch.prepare_deepspeed_cmd_env(args)[1]
    if args.use_fsdp or args.multi_gpu:
        return launch.prepare_multi_gpu_env(args)
    with patch("torch.cuda.is_available", lambda: True):
        return launch.prepare_simple_launcher_cmd_env(args)[1]


def accelerate(folder, s):
    from unittest.mock import patch
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.utils import DeepSpeedPlugin, FullyShardedDataParallelPlugin
    c = load_config_from_file(folder + "/accelerate.yaml")
    same("processes", c.num_processes, s["world"])
    kind = {"none": "NO", "ddp": "MULTI_GPU", "fsdp": "FSDP", "fsdp2": "FSDP"}.get(s["parallel"], "DEEPSPEED")
    same("distributed_type", str(getattr(c.distributed_type, "value", c.distributed_type)), kind)
    with patch.dict(os.environ, launched(folder)):
        if kind != "DEEPSPEED":
            same("mixed_precision", os.environ["ACCELERATE_MIXED_PRECISION"], {"bf16-mixed": "bf16", "bf16-amp": "bf16", "fp16-mixed": "fp16", "fp16-amp": "fp16"}.get(s["precision"], "no"))
        if kind == "FSDP":
            with patch("accelerate.utils.dataclasses.is_cuda_available", lambda: True), patch("torch.cuda.current_device", lambda: 0):
                p = FullyShardedDataParallelPlugin()
            same("fsdp_version", p.fsdp_version, 2 if s["parallel"] == "fsdp2" else 1)
            same("offload", type(p.cpu_offload).__name__ == "CPUOffloadPolicy" if s["parallel"] == "fsdp2" else p.cpu_offload.offload_params, "params" in s["offload"])
            same("gathered again", p.reshard_after_forward if s["parallel"] == "fsdp2" else p.sharding_strategy.name, True if s["parallel"] == "fsdp2" else "FULL_SHARD")
            alone = not os.path.exists(folder + "/README.md") or " for accelerate " in open(folder + "/README.md").read()
            full = s["recompute"] == "full" and alone
            same("checkpointing", (p.activation_checkpointing, getattr(p, "activation_checkpointing_offload", False)), (full, full and s["offload"] == "activations"))
        if kind == "DEEPSPEED" and "zero_stage" in (c.deepspeed_config or {}):
            p = DeepSpeedPlugin()
            same("stage", p.zero_stage, int(s["parallel"][-1]))
            same("accumulation", p.gradient_accumulation_steps, s["accumulation"])
            same("clipping", p.gradient_clipping, s["clip_norm"])
            same("offload", (p.offload_optimizer_device, p.offload_param_device), ("cpu" if "optimizer" in s["offload"] else "none", "cpu" if "params" in s["offload"] else "none"))
            same("mixed_precision", os.environ["ACCELERATE_MIXED_PRECISION"], {"bf16-mixed": "bf16", "fp16-mixed": "fp16"}.get(s["precision"], "no"))


def deepspeed(folder, s, config=None):
    from deepspeed.runtime.config import DeepSpeedConfig
    c = DeepSpeedConfig(config or folder + "/ds_config.json")
    same("micro-batch", c.train_micro_batch_size_per_gpu, s["micro_batch"])
    same("accumulation", c.gradient_accumulation_steps, s["accumulation"])
    same("stage", int(c.zero_config.stage), int(s["parallel"][-1]) if s["parallel"].startswith("zero") else 0)
    same("clipping", c.gradient_clipping, s["clip_norm"])
    for name, o in ("optimizer", c.zero_config.offload_optimizer), ("params", c.zero_config.offload_param):
        same("offload of " + name, bool(o and str(getattr(o.device, "value", o.device)) == "cpu"), name in s["offload"])
    masters = c.bfloat16_config.bf16_master_weights_and_grads      # beside a Trainer, whose bf16 is false, weights of 16 bits stay as they were loaded
    same("16 bits", (c.bfloat16_config.enabled, c.float16_config.enabled), tuple(s["precision"].startswith(b) and (masters or s["precision"] != b) for b in ("bf16", "fp16")))
    same("masters in 16 bits", masters, s["precision"] == "bf16" and config is None and s["parallel"] != "none")


def axolotl(folder, s):
    """By validate_config, which knows the plugins' keys, for cards of the kind meant."""
    import yaml
    from axolotl.utils.config import prepare_plugins, validate_config
    from axolotl.utils.dict import DictDefault
    d = yaml.safe_load(open(folder + "/axolotl.yaml"))
    given = DictDefault(dict(d, datasets=[{"path": "x", "type": "alpaca"}], output_dir=folder, learning_rate=1e-4))
    prepare_plugins(given)
    c = validate_config(given, capabilities={"bf16": True, "n_gpu": s["world"], "compute_capability": "sm_90"}, env_capabilities={"torch_version": "2.11.0"})
    same("dropped keys", {k for k in d if d[k] is not None and k not in c}, set())
    same("micro-batch", c.micro_batch_size, s["micro_batch"])
    same("accumulation", c.gradient_accumulation_steps, s["accumulation"])
    same("sequence", c.sequence_len, s["seq"])
    same("packing", bool(c.sample_packing), False)
    same("checkpointing", (bool(c.gradient_checkpointing), bool(c.activation_offloading)), (s["recompute"] != "none", s["offload"] == "activations"))
    if s["recompute"] != "none":
        kwargs = c.gradient_checkpointing_kwargs
        same("kwargs", (kwargs["use_reentrant"], kwargs.get("every_n_layers")), (s["recompute"] == "full:reentrant", int(s["recompute"][6:]) if s["recompute"].startswith("every") else None))
    same("clipping", c.max_grad_norm, s["clip_norm"])
    same("attention", c.attn_implementation, FLASH.get(s["attention"], s["attention"]))
    same("precision", (bool(c.bf16), bool(c.fp16), bool(c.float32)), (s["precision"].startswith("bf16"), s["precision"].startswith("fp16"), weights(s) == "float32"))
    name, values, targets = told(s["optimizer"])
    same("optimizer", (str(getattr(c.optimizer, "value", c.optimizer)), (c.optim_args or ""), c.optim_target_modules if targets else None),
         (name, ",".join(values), ("all_linear" if targets == ["all-linear"] else targets) if targets else None))
    same("method", str(getattr(c.rl, "value", c.rl)), "dpo" if s["method"] == "dpo" else "None")
    same("Liger", (bool(c.liger_fused_linear_cross_entropy), bool(c.liger_rms_norm)), (s["loss"].startswith("liger"), s["loss"] == "liger-all"))
    same("loss in chunks", bool(c.chunked_cross_entropy), s["loss"] == "chunked")
    same("shards", (c.fsdp_version if c.fsdp_config else None, bool((c.fsdp_config or {}).get("offload_params"))), (2 if s["parallel"] == "fsdp2" else None, s["parallel"] == "fsdp2" and "params" in s["offload"]))
    same("evaluates", bool(c.val_set_size), s["eval_batch"] != "none")
    if s["eval_batch"] != "none":
        same("evaluated at once", c.eval_batch_size, s["eval_batch"])
    kwargs = (c.accelerator_config or {}).get("gradient_accumulation_kwargs", {})      # handed on to TrainingArguments as it is
    same("sync_each_batch", kwargs.get("sync_each_batch", False), s["gradient_sync"] == "each")
    same("adapter", (str(c.adapter), bool(c.load_in_4bit)), ({"full": "None"}.get(s["tuning"], s["tuning"]), s["tuning"] == "qlora"))
    if s["tuning"] != "full":
        same("adapters", (c.lora_r, c.lora_alpha, c.lora_dropout, bool(c.lora_target_linear)), (s["lora_r"], s["lora_alpha"], s["lora_dropout"], s["lora_targets"] == "all-linear"))
        same("trained whole", c.lora_modules_to_save or [], [] if s["lora_save"] == "none" else s["lora_save"].split("+"))
    if s["tuning"] == "qlora":
        same("packed as", c.bnb_config_kwargs["bnb_4bit_use_double_quant"], s["quant"] == "nf4-dq")
    if s["parallel"].startswith("zero"):
        deepspeed(folder, s, folder + "/ds_config.json")


def llamafactory(folder, s):
    import yaml
    from llamafactory.hparams import get_train_args
    d = yaml.safe_load(open(folder + "/llamafactory.yaml"))
    d.pop("deepspeed", None)
    import llamafactory.hparams.parser as parser
    parser.is_torch_bf16_gpu_available = lambda: True  # of the card that is meant, not of this machine
    alone = get_train_args(dict(model_name_or_path="x", stage="sft", do_train=True, finetuning_type="lora", lora_rank=24, output_dir=folder, dataset="x", template="llama3", use_cpu=True))
    same("lora_alpha where none is written", alone[3].lora_alpha, 48)
    model, data, args, tuning, _ = get_train_args(dict(d, use_cpu=True, output_dir=folder, dataset="x", template="llama3", report_to="none"))
    same("micro-batch", args.per_device_train_batch_size, s["micro_batch"])
    same("checkpointing off", model.disable_gradient_checkpointing, s["recompute"] == "none")
    same("cutoff", data.cutoff_len, s["seq"])
    same("stage", tuning.stage, s["method"])
    check_evaluation(args, s)
    check_optimizer(args, s)
    check_sync(args, s)
    same("precision", (args.bf16, args.fp16, tuning.pure_bf16), (s["precision"] in ("bf16-mixed", "bf16-amp"), s["precision"].startswith("fp16"), s["precision"] == "bf16"))
    same("clipping", args.max_grad_norm, s["clip_norm"])
    same("use_reentrant", model.use_reentrant_gc, s["recompute"] in ("full:reentrant", "none"))      # its default where nothing is checkpointed
    same("offload", model.use_unsloth_gc, s["offload"] == "activations")
    same("attention", str(getattr(model.flash_attn, "value", model.flash_attn)), {"eager": "disabled", "flash2": "fa2", "flash3": "fa3"}.get(s["attention"], s["attention"]))
    same("Liger", model.enable_liger_kernel, s["loss"] == "liger-all")
    same("packing", data.packing, False)
    same("tuning", (tuning.finetuning_type, model.quantization_bit), ("full" if s["tuning"] == "full" else "lora", 4 if s["tuning"] == "qlora" else None))
    if s["tuning"] != "full":
        same("adapters", (tuning.lora_rank, tuning.lora_alpha, tuning.lora_dropout), (s["lora_r"], s["lora_alpha"], s["lora_dropout"]))
        same("targets", tuning.lora_target, ["all"] if s["lora_targets"] == "all-linear" else s["lora_targets"].split("+"))
    if s["tuning"] == "qlora":
        same("packed as", (model.quantization_type, model.double_quantization), ("nf4", s["quant"] == "nf4-dq"))
    if s["parallel"].startswith("zero"):
        deepspeed(folder, s, folder + "/ds_config.json")


def lightning(folder, s):
    """LightningCLI's own reader of the trainer's section; the Trainer, without what needs a card."""
    import yaml
    from lightning.pytorch import Trainer
    from lightning.pytorch.cli import LightningArgumentParser
    parser = LightningArgumentParser()
    parser.add_lightning_class_args(Trainer, "trainer")
    c = parser.parse_path(folder + "/lightning.yaml").trainer
    d = yaml.safe_load(open(folder + "/lightning.yaml"))["trainer"]
    offload = "_offload" if "optimizer" in s["offload"] else ""
    same("strategy", c.strategy, {"none": "auto", "ddp": "ddp", "fsdp": "fsdp"}.get(s["parallel"], "deepspeed_stage_%s%s" % (s["parallel"][-1], offload)))
    same("precision", c.precision, {"fp32": "32-true", "bf16": "bf16-true", "fp16": "16-true", "fp16-mixed": "16-mixed"}.get(s["precision"], s["precision"]))
    same("cards", (c.devices, c.num_nodes), (s["world"], 1))
    same("accumulation", c.accumulate_grad_batches, s["accumulation"])
    same("clipping", c.gradient_clip_val, s["clip_norm"])
    t = Trainer(**dict(d, accelerator="cpu", devices=1, strategy="auto", precision="32-true" if s["precision"].startswith("fp16") else d["precision"], logger=False, enable_checkpointing=False))
    same("accumulation", t.accumulate_grad_batches, s["accumulation"])
    same("clipping", t.gradient_clip_val, s["clip_norm"])


def litgpt(folder, s):
    """The reader of `litgpt finetune_full --config`, what the recipe refuses, and what it counts."""
    import yaml
    from jsonargparse import ArgumentParser
    from litgpt.args import TrainArgs
    from litgpt.finetune.full import setup, validate_args
    parser = ArgumentParser()
    parser.add_function_arguments(setup)
    d = yaml.safe_load(open(folder + "/litgpt.yaml"))
    with open(folder + "/whole.yaml", "w") as f:
        yaml.safe_dump(dict(d, checkpoint_dir=folder), f)
    c = parser.parse_path(folder + "/whole.yaml")
    os.remove(folder + "/whole.yaml")
    same("precision", c.precision, {"fp32": "32-true", "bf16": "bf16-true", "fp16": "16-true", "fp16-mixed": "16-mixed"}.get(s["precision"], s["precision"]))
    same("cards", c.devices, s["world"])
    same("micro-batch", c.train.micro_batch_size, s["micro_batch"])
    same("sequence", c.train.max_seq_length, s["seq"])
    i = parser.instantiate_classes(c)
    validate_args(i.train, i.eval)
    same("clipping", c.train.max_norm, None)
    same("optimizer", c.optimizer["class_path"].rsplit(".", 1)[1], {"sgd": "SGD", "sgd_momentum": "SGD", "adamw_8bit": "AdamW8bit", "paged_adamw_8bit": "PagedAdamW8bit", "lion_8bit": "Lion8bit"}.get(s["optimizer"], "AdamW"))
    more = c.optimizer["init_args"]
    same("fused", (more.get("fused", False), more.get("momentum", 0)), (s["optimizer"] == "adamw_torch_fused", 0.9 if s["optimizer"] == "sgd_momentum" else 0))
    t = TrainArgs(**d["train"])
    same("accumulation", t.gradient_accumulation_iters(d["devices"], d["num_nodes"]), s["accumulation"])


def torchtitan(folder, s):
    from torchtitan.config import ConfigManager
    if os.path.exists(folder + "/torchtitan.toml"):  # 0.2
        c = ConfigManager().parse_args(["--job.config_file", folder + "/torchtitan.toml"])
    else:
        sys.path.insert(0, folder)
        sys.modules.pop("vplan_recipe", None)
        os.environ["BASE"] = "torchtitan.models.llama3.config_registry:llama3_debugmodel"
        c = ConfigManager().parse_args(["--module", "vplan_recipe", "--config", "vplan"])
        sys.path.pop(0)
        same("loss", type(c.loss).__qualname__, {"full": "CrossEntropyLoss.Config", "chunked": "ChunkedLossWrapper.Config"}[s["loss"]])
        same("checkpointing", type(c.activation_checkpoint).__qualname__,
             {"none": "NoneType", "full": "FullAC.Config", "selective": "SelectiveAC.Config", "every:2": "LayersAC.Config", "first:3": "LayersAC.Config"}[s["recompute"]])
        same("optimizer", c.optimizer.implementation, {"adamw_torch": "foreach", "adamw_torch_fused": "fused"}[s["optimizer"]])
        same("shards", c.parallelism.data_parallel_shard_degree, s["world"] if s["parallel"] == "fsdp2" else 1)
    same("micro-batch", c.training.local_batch_size, s["micro_batch"])
    same("global batch", c.training.global_batch_size, s["micro_batch"] * s["accumulation"] * s["world"])
    same("sequence", c.training.seq_len, s["seq"])
    same("precision", (c.training.dtype, c.training.mixed_precision_param), {"fp32": ("float32", "float32"), "bf16": ("bfloat16", "bfloat16")}.get(s["precision"], ("float32", "bfloat16")))
    same("clipping", c.training.max_norm, s["clip_norm"])
    same("offload", c.training.enable_cpu_offload, "params" in s["offload"])


def megatron(folder, s):
    """Its arguments are parsed and validated; the package holds megatron.core alone, megatron.training is in its repository."""
    words = [w for line in open(folder + "/megatron.args") if not line.startswith("#") for w in line.split()]
    os.environ.update(WORLD_SIZE=words[words.index("--nproc_per_node") + 1], CUDA_DEVICE_MAX_CONNECTIONS="1")
    from megatron.training.arguments import parse_args, validate_args
    sys.argv = words[words.index("pretrain_gpt.py"):] + "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --max-position-embeddings 4096".split()
    a = parse_args()
    validate_args(a)
    same("micro-batch", a.micro_batch_size, s["micro_batch"])
    same("global batch", a.global_batch_size, s["micro_batch"] * s["accumulation"] * s["world"])
    same("ranks", a.data_parallel_size, s["world"])
    same("sequence", a.seq_length, s["seq"])
    same("clipping", a.clip_grad, s["clip_norm"])
    same("shards", a.use_distributed_optimizer, s["parallel"] == "zero1")
    same("precision", (a.bf16, a.fp16), (s["precision"] == "bf16-mixed", s["precision"] == "fp16-mixed"))
    same("optimizer", a.optimizer, "sgd" if s["optimizer"] == "sgd" else "adam")
    same("offload", a.optimizer_cpu_offload, s["offload"] == "optimizer")
    same("checkpointing", (a.recompute_granularity, a.recompute_method, a.recompute_num_layers),
         {"none": (None, None, None), "full": ("full", "uniform", 1), "chunks:2": ("full", "uniform", 2), "first:3": ("full", "block", 3), "selective": ("selective", None, None)}[s["recompute"]])


def unsloth(folder, s):
    os.environ["UNSLOTH_ALLOW_CPU"] = "1"
    sys.path.insert(0, folder)
    sys.modules.pop("vplan_unsloth", None)
    import inspect
    import vplan_unsloth as m
    sys.path.pop(0)
    load, adapt = (inspect.signature(f).parameters for f in (m.FastLanguageModel.from_pretrained, m.FastLanguageModel.get_peft_model))
    assert set(m.LOAD) <= set(load) and set(m.ADAPT) <= set(adapt), "an argument that Unsloth does not have"
    a = m.arguments(output_dir=folder, use_cpu=True, **({"bf16": False} if m.SETTINGS["bf16"] else {}))
    same("micro-batch", a.per_device_train_batch_size, s["micro_batch"])
    same("accumulation", a.gradient_accumulation_steps, s["accumulation"])
    same("sequence", a.max_length, s["seq"])
    same("clipping", a.max_grad_norm, s["clip_norm"])
    check_optimizer(a, s)
    same("tuning", (m.LOAD and m.SETTINGS["full_finetuning"], m.SETTINGS["load_in_4bit"]), (s["tuning"] == "full", s["tuning"] == "qlora"))
    same("dtype", m.SETTINGS["dtype"], "torch." + weights(s))
    if s["tuning"] != "full":
        given = m.those(m.ADAPT)
        same("adapters", (given["r"], given["lora_alpha"], given["lora_dropout"]), (s["lora_r"], s["lora_alpha"], s["lora_dropout"]))
        same("targets", given["target_modules"], "all-linear" if s["lora_targets"] == "all-linear" else s["lora_targets"].split("+"))
    check_evaluation(a, s) if s["eval_batch"] != "none" else None
    same("checkpointing", m.SETTINGS["use_gradient_checkpointing"], {"none": False, "full": "unsloth" if s["offload"] == "activations" else True}[s["recompute"]])


def torch(folder, s):
    import importlib.util
    spec = importlib.util.spec_from_file_location("vplan_settings", folder + "/vplan_settings.py")
    m = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(m)
    same("micro-batch", m.SETTINGS["micro_batch"], s["micro_batch"])
    same("processes", m.SETTINGS["world"], s["world"])
    same("how they share", m.SETTINGS["parallel"], s["parallel"])
    os.environ["WORLD_SIZE"] = str(s["world"])  # as torchrun has it; another number is refused
    kind, _, n = s["recompute"].partition(":")
    same("layers", m.recomputed(7), {"none": set(), "full": set(range(7)), "every": {0, 2, 4, 6}, "first": {0, 1, 2}}[kind])
    import torch as t
    x = t.randn(3, 4, requires_grad=True)
    results = []
    for use in (False, True):  # the same gradients, with and without the policy
        t.manual_seed(1)
        model = t.nn.Sequential()
        model.layers = t.nn.ModuleList([t.nn.Linear(4, 4) for _ in range(7)])
        model.lora_A = t.nn.Linear(1, 1)  # as adapters are called
        if use and not m.SETTINGS["offload_activations"]:
            m.apply(model, t.optim.SGD(model.parameters(), lr=0.1))
        y = x
        for layer in model.layers:
            y = layer(y).tanh()
        results.append(t.autograd.grad(y.sum(), x)[0])
    assert t.equal(*results), "other gradients with the policy"
    os.environ["WORLD_SIZE"] = str(s["world"] + 1)
    try:
        m.apply(model, t.optim.SGD(model.parameters(), lr=0.1))
        raise AssertionError("takes another number of processes")
    except ValueError:
        pass
    finally:
        del os.environ["WORLD_SIZE"]


STUBBED = []


def stub(*names):
    """Stands in for what a trainer imports and its parser does not need: data, hubs, kernels."""
    import importlib.abc
    import importlib.machinery
    from unittest.mock import MagicMock

    class Stub(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path=None, target=None):
            return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] in names else None

        def create_module(self, spec):
            m = MagicMock(name=spec.name)
            m.__name__, m.__path__, m.__spec__, m.__version__ = spec.name, [], spec, "99.0"
            return m

        def exec_module(self, module):
            pass
    if names not in STUBBED:
        STUBBED.append(names)
        sys.meta_path.append(Stub())


def torchtune(folder, s):
    """`tune validate`'s own check of every component, then the objects that the recipe builds of them."""
    stub("kagglehub", "bitsandbytes", "blobfile", "tiktoken", "sentencepiece")
    import torch as t
    from omegaconf import OmegaConf
    from torchtune import config, training
    c = OmegaConf.load(folder + "/torchtune.yaml")
    config.validate(c)
    same("micro-batch", c.batch_size, s["micro_batch"])
    same("accumulation", c.gradient_accumulation_steps, s["accumulation"])
    same("sequence", c.tokenizer.max_seq_len, s["seq"])
    same("clip_grad_norm", c.clip_grad_norm, s["clip_norm"])
    same("dtype", training.get_dtype(c.dtype, t.device("cpu")), {"fp32": t.float32, "bf16": t.bfloat16}[s["precision"]])
    same("checkpointing", c.enable_activation_checkpointing, s["recompute"] != "none")
    same("offload", c.enable_activation_offloading, "activations" in s["offload"])
    if s["optimizer"].endswith("adamw_8bit"):
        same("optimizer", c.optimizer._component_, "bitsandbytes.optim." + {"adamw_8bit": "AdamW8bit", "paged_adamw_8bit": "PagedAdamW8bit"}[s["optimizer"]])
    else:
        c.optimizer.setdefault("lr", 0.1)
        o = config.instantiate(c.optimizer, [t.nn.Parameter(t.zeros(2))])
        same("optimizer", type(o), t.optim.SGD if s["optimizer"] == "sgd" else t.optim.AdamW)
        same("fused", bool(o.param_groups[0].get("fused")), s["optimizer"] == "adamw_torch_fused")
    same("loss", type(config.instantiate(c.loss)).__name__, {"full": "CrossEntropyLoss", "chunked": "CEWithChunkedOutputLoss"}[s["loss"]])


def swift(folder, s):
    """Its arguments by its own parser; what it then looks up in the model's folder is not run, but its rule of precision."""
    stub("modelscope", "modelscope_hub", "cryptography", "qwen_vl_utils", "oss2", "json_repair", "sentencepiece", "tensorboard", "rouge", "jieba", "nltk", "addict", "fastapi",
         "uvicorn", "openai", "einops", "matplotlib", "scipy", "aiohttp", "transformers_stream_generator", "binpacking")
    import shlex
    import torch as t
    from swift.arguments import RLHFArguments, SftArguments
    from transformers import HfArgumentParser
    words = shlex.split(open(folder + "/swift.args").read(), comments=True)
    words = words[[w.startswith("--") for w in words].index(True):]
    a, rest = HfArgumentParser(RLHFArguments if s["method"] == "dpo" else SftArguments).parse_known_args(words)
    same("left over", rest, [])
    a.torch_dtype = getattr(t, a.torch_dtype)
    SftArguments._init_mixed_precision(a)
    same("micro-batch", a.per_device_train_batch_size, s["micro_batch"])
    same("accumulation", a.gradient_accumulation_steps, s["accumulation"])
    same("sequence", a.max_length, s["seq"])
    same("checkpointing", a.gradient_checkpointing, s["recompute"] != "none")
    check_optimizer(a, s)
    same("attention", a.attn_impl, FLASH.get(s["attention"], s["attention"]))
    same("max_grad_norm", a.max_grad_norm, s["clip_norm"])
    same("weights", a.torch_dtype, getattr(t, weights(s)))
    same("bf16", a.bf16, s["precision"].startswith("bf16"))
    same("fp16", a.fp16, s["precision"].startswith("fp16"))
    same("Liger", a.use_liger_kernel, s["loss"] == "liger-all")
    same("tuning", (a.tuner_type, a.quant_bits), ("full" if s["tuning"] == "full" else "lora", 4 if s["tuning"] == "qlora" else None))
    if s["tuning"] != "full":
        same("adapters", (a.lora_rank, a.lora_alpha, a.lora_dropout, a.target_modules), (s["lora_r"], s["lora_alpha"], s["lora_dropout"], s["lora_targets"].split("+")))
    if s["tuning"] == "qlora":
        same("packed as", (a.quant_method, a.bnb_4bit_use_double_quant), ("bnb", s["quant"] == "nf4-dq"))
    same("packing", (a.packing, a.padding_free), (False, False))
    if s["parallel"].startswith("zero"):
        deepspeed(folder, s, folder + "/ds_config.json")
    if s["method"] == "dpo":
        same("method", a.rlhf_type, "dpo")
    if s["eval_batch"] != "none":
        check_evaluation(a, s)


CHECKS = {"hf": (hf, ["transformers", "accelerate"]), "trl": (trl, ["trl", "transformers"]), "accelerate": (accelerate, ["accelerate"]), "deepspeed": (deepspeed, ["deepspeed"]),
          "axolotl": (axolotl, ["axolotl"]), "llamafactory": (llamafactory, ["llamafactory"]), "lightning": (lightning, ["lightning"]), "litgpt": (litgpt, ["litgpt"]),
          "torchtitan": (torchtitan, ["torchtitan"]), "megatron": (megatron, ["megatron-core"]), "unsloth": (unsloth, ["unsloth", "trl"]), "torch": (torch, ["torch"]),
          "torchtune": (torchtune, ["torchtune", "torchao"]), "ms-swift": (swift, ["ms-swift", "transformers"])}
if len(sys.argv) > 3:  # these alone
    CHECKS = {t: CHECKS[t] for t in sys.argv[3:]}
NOT_ASKED = ("torchao",)  # libraries that no file is written for


def emitted(target, asked, folder, s):
    with open(folder + "/s.json", "w") as f:
        json.dump({"common": s, "model": {"name": "x"}}, f)
    command = [vplan, "emit", folder + "/s.json", "--for", target, "--versions", asked, "-o", folder + "/o"]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)


def by_hand(said):
    """Settings that stay the user's own code's: no file says them."""
    return re.findall(r"(?m)^(?:by hand    |           )(\w+) \S+:(?: |$)", said)


def read_back(target, asked, folder, s, by_hand):
    """`vplan check` of the same files: no finding, and the same settings."""
    files = [folder + "/" + n for n in sorted(os.listdir(folder)) if n not in ("README.md", "train.py")]
    files = [f for f in files if not f.endswith(("training_args.json", "training_args.flags"))]      # the same as the YAML
    out = subprocess.run([vplan, "check", "--json", "--for", target, "--versions", asked, "--world", str(s["world"])] + files, stdout=subprocess.PIPE, universal_newlines=True)
    c = json.loads(out.stdout)
    bad = [f for f in c.get("findings", []) if f["severity"] != "note"]
    same("findings", [(f["key"], f["message"]) for f in bad], [])
    got, meant = c["common"], {k: v for k, v in s.items() if k not in by_hand + ["allocator", "prepare"]}       # those stand in a command, or a script
    if "offload_activations" in by_hand or "activations" not in got.get("offload", "") and s["recompute"] == "none":
        meant["offload"] = s["offload"].replace("activations", "none")
    if s["world"] == 1 and target == "deepspeed":      # stage 0 says no more
        meant.pop("parallel")
    wrong = {k: (got[k], v) for k, v in meant.items() if k in got and str(got[k]) != str(v)}
    same("read back", wrong, {})


rows = []
for target, (check, packages) in CHECKS.items():
    row = {"target": target, "versions": {}, "accepted": 0, "wrong": [], "not_expressible": 0}
    rows.append(row)
    try:
        row["versions"] = {p: version(p) for p in packages}
    except importlib.metadata.PackageNotFoundError as e:
        row["not_checked"] = "no package %s" % e
        continue
    versions = {p: v for p, v in row["versions"].items() if p not in NOT_ASKED}
    for p in ("transformers", "deepspeed", "accelerate"):
        try:
            versions[p] = version(p)
        except importlib.metadata.PackageNotFoundError:
            pass
    asked = ",".join("%s=%s" % (p, v.split("+")[0]) for p, v in versions.items())
    drawn, tries = draw(), 0
    words = {}
    while row["accepted"] + len(row["wrong"]) < N and tries < 400 * N and len(row["wrong"]) < 5:
        tries += 1
        s = counted(drawn)
        with tempfile.TemporaryDirectory() as folder:
            out = emitted(target, asked, folder, s)
            if out.returncode != 0:
                row["not_expressible"] += 1
                drawn = again(drawn, out.stderr)
                continue
            try:
                check(folder + "/o", s)
                read_back(target, asked, folder + "/o", s, by_hand(out.stdout))
                row["accepted"] += 1
                for k, v in s.items():
                    words.setdefault(k, set()).add(str(v))
            except ImportError as e:
                row["not_checked"] = str(e)[:200]
                break
            except (Exception, SystemExit) as e:
                row["wrong"].append({"settings": s, "error": "%s: %s" % (type(e).__name__, str(e)[:300])})
            drawn = draw()
    row["words"] = sum(map(len, words.values()))
answer.write(json.dumps({"schema_version": 1, "python": sys.version.split()[0], "rows": rows}, indent=1) + "\n")
answer.close()
sys.exit(any(r["wrong"] for r in rows))
