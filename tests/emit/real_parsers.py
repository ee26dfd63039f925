"""Does each trainer's own parser take what `vplan emit` writes, with the values meant? Not part of CI: needs the trainers' packages.

    PYTHONPATH=FOLDER_OF_PACKAGES python tests/emit/real_parsers.py build/vplan [N [TARGET...]] > tests/emit/real_parsers.json

Settings are drawn with a fixed seed; a target whose package is missing is named as not checked. Values are read from the parser's own
objects, never from our files."""
import importlib.metadata
import json
import os
import random
import subprocess
import sys
import tempfile

vplan = os.path.realpath(sys.argv[1])
N = int(sys.argv[2]) if len(sys.argv) > 2 else 40
os.environ.update(DISABLE_VERSION_CHECK="1", TRANSFORMERS_VERBOSITY="error", DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")
random.seed(1)
answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what the libraries print is not the answer


def draw():
    pick = random.choice
    parallel = pick(["none", "ddp", "fsdp", "fsdp2", "zero1", "zero2", "zero3"])
    return {"micro_batch": pick([1, 2, 4, 16]), "accumulation": pick([1, 2, 8]), "world": 1 if parallel == "none" else pick([2, 8]), "seq": pick([512, 2048]), "parallel": parallel,
            "precision": pick(["fp32", "bf16-mixed", "bf16-mixed", "bf16-amp", "bf16", "fp16-mixed"]), "optimizer": pick(["adamw_torch", "adamw_torch_fused", "sgd", "adafactor", "adamw_8bit"]),
            "recompute": pick(["none", "full", "every:2", "chunks:2", "selective"]), "loss": pick(["full", "chunked", "liger", "liger-all"]), "attention": pick(["eager", "sdpa", "flash2"]),
            "offload": pick(["none", "none", "optimizer", "optimizer+params", "activations"]), "clip_norm": pick([1.0, 0.5]),
            "method": pick(["sft", "sft", "dpo"]), "eval_batch": pick(["none", "none", 2, 16]),
            "gradient_sync": pick(["step", "each"]) if parallel.startswith("fsdp") else "step"}


def version(package):
    return importlib.metadata.version(package)


def same(name, got, want):
    assert got == want, "%s is %r, meant %r" % (name, got, want)


def check_args(a, s):
    """TrainingArguments and its children."""
    same("micro-batch", a.per_device_train_batch_size, s["micro_batch"])
    same("accumulation", a.gradient_accumulation_steps, s["accumulation"])
    same("max_grad_norm", a.max_grad_norm, s["clip_norm"])
    same("bf16", bool(a.bf16), s["precision"] in ("bf16-mixed", "bf16-amp"))
    same("fp16", bool(a.fp16), s["precision"] == "fp16-mixed")
    same("checkpointing", a.gradient_checkpointing, s["recompute"] != "none")
    if s["recompute"].startswith("every:"):
        same("every_n_layers", a.gradient_checkpointing_kwargs["every_n_layers"], int(s["recompute"][6:]))
    same("optim", str(getattr(a.optim, "value", a.optim)).replace("bnb_", ""), s["optimizer"])
    check_evaluation(a, s)
    check_sync(a, s)


def check_sync(a, s):
    """As Trainer makes Accelerate's plugin."""
    kwargs = a.accelerator_config.gradient_accumulation_kwargs or {}
    same("sync_each_batch", kwargs.get("sync_each_batch", False), s["gradient_sync"] == "each")


def check_evaluation(a, s):
    same("evaluates", str(getattr(a.eval_strategy, "value", a.eval_strategy)), "no" if s["eval_batch"] == "none" else "steps")
    same("evaluated at once", a.per_device_eval_batch_size, 1 if s["eval_batch"] == "none" else s["eval_batch"])


def hf(folder, s):
    import yaml
    from transformers import HfArgumentParser, TrainingArguments
    parser = HfArgumentParser(TrainingArguments)
    d = json.load(open(folder + "/training_args.json"))
    same("YAML and JSON", yaml.safe_load(open(folder + "/training_args.yaml")), d)
    (a,) = parser.parse_dict(dict(d, use_cpu=True, output_dir=folder))
    check_args(a, s)
    alone = dict.fromkeys(("rope", "rms_norm", "swiglu", "cross_entropy"), False)
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
    from trl import DPOConfig, ModelConfig, SFTConfig
    d = yaml.safe_load(open(folder + "/%s.yaml" % s["method"]))
    a, m = HfArgumentParser(({"sft": SFTConfig, "dpo": DPOConfig}[s["method"]], ModelConfig)).parse_dict(dict(d, use_cpu=True, output_dir=folder))
    check_args(a, s)
    same("max_length", a.max_length, s["seq"])
    same("attention", m.attn_implementation, {"flash2": "flash_attention_2"}.get(s["attention"], s["attention"]))
    same("dtype", m.dtype, "bfloat16" if s["precision"] in ("bf16", "bf16-amp") else "float32")
    same("offload", a.activation_offloading, "activations" in s["offload"])
    if s["method"] == "dpo":
        same("pairs", (a.loss_type, a.precompute_ref_log_probs), (["sigmoid"], False))
    accelerate(folder, s)


def accelerate(folder, s):
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.utils import FullyShardedDataParallelPlugin
    import yaml
    c = load_config_from_file(folder + "/accelerate.yaml")
    same("processes", c.num_processes, s["world"])
    kind = {"none": "NO", "ddp": "MULTI_GPU", "fsdp": "FSDP", "fsdp2": "FSDP"}.get(s["parallel"], "DEEPSPEED")
    same("distributed_type", str(getattr(c.distributed_type, "value", c.distributed_type)), kind)
    if kind == "FSDP":
        f = yaml.safe_load(open(folder + "/accelerate.yaml"))["fsdp_config"]
        same("fsdp_version", f["fsdp_version"], 2 if s["parallel"] == "fsdp2" else 1)
        p = FullyShardedDataParallelPlugin(fsdp_version=f["fsdp_version"], cpu_offload=f["fsdp_offload_params"], activation_checkpointing=f.get("fsdp_activation_checkpointing", False),
                                           **({"reshard_after_forward": f["fsdp_reshard_after_forward"]} if s["parallel"] == "fsdp2" else {"reshard_after_forward": f["fsdp_sharding_strategy"]}))
        same("offload", bool(getattr(p.cpu_offload, "offload_params", p.cpu_offload)) if s["parallel"] == "fsdp" else type(p.cpu_offload).__name__ == "CPUOffloadPolicy", "params" in s["offload"])
    if kind == "DEEPSPEED" and "zero_stage" in (c.deepspeed_config or {}):
        same("stage", c.deepspeed_config["zero_stage"], int(s["parallel"][-1]))


def deepspeed(folder, s, config=None):
    from deepspeed.runtime.config import DeepSpeedConfig
    c = DeepSpeedConfig(config or folder + "/ds_config.json")
    same("micro-batch", c.train_micro_batch_size_per_gpu, s["micro_batch"])
    same("accumulation", c.gradient_accumulation_steps, s["accumulation"])
    same("stage", int(c.zero_config.stage), int(s["parallel"][-1]) if s["parallel"].startswith("zero") else 0)
    same("clipping", c.gradient_clipping, s["clip_norm"])
    o = c.zero_config.offload_optimizer
    same("offload", bool(o and str(getattr(o.device, "value", o.device)) == "cpu"), "optimizer" in s["offload"])


def axolotl(folder, s):
    import yaml
    from axolotl.utils.schemas.config import AxolotlInputConfig
    d = yaml.safe_load(open(folder + "/axolotl.yaml"))
    c = AxolotlInputConfig(**dict(d, datasets=[{"path": "x", "type": "alpaca"}], output_dir=folder, learning_rate=1e-4))
    dropped = {k for k in set(d) - set(AxolotlInputConfig.model_fields) if not k.startswith("liger_")}
    same("dropped keys", dropped, set())
    same("micro-batch", c.micro_batch_size, s["micro_batch"])
    same("sequence", c.sequence_len, s["seq"])
    same("checkpointing", bool(c.gradient_checkpointing), s["recompute"] != "none")
    same("method", str(getattr(c.rl, "value", c.rl)), "dpo" if s["method"] == "dpo" else "None")
    if s["eval_batch"] != "none":
        same("evaluated at once", c.eval_batch_size, s["eval_batch"])
    kwargs = (c.accelerator_config or {}).get("gradient_accumulation_kwargs", {})      # handed on to TrainingArguments as it is
    same("sync_each_batch", kwargs.get("sync_each_batch", False), s["gradient_sync"] == "each")


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


def lightning(folder, s):
    import yaml
    from lightning.pytorch import Trainer
    d = yaml.safe_load(open(folder + "/lightning.yaml"))["trainer"]
    if s["parallel"] not in ("none", "ddp"):
        d["strategy"] = "auto"  # needs a GPU
    t = Trainer(**dict(d, accelerator="cpu", devices=1, strategy="auto", precision="32-true" if s["precision"].startswith("fp16") else d["precision"], logger=False, enable_checkpointing=False))
    same("accumulation", t.accumulate_grad_batches, s["accumulation"])
    same("clipping", t.gradient_clip_val, s["clip_norm"])


def litgpt(folder, s):
    import yaml
    from litgpt.args import TrainArgs
    d = yaml.safe_load(open(folder + "/litgpt.yaml"))
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
             {"none": "NoneType", "full": "FullAC.Config", "selective": "SelectiveAC.Config", "every:2": "LayersAC.Config"}[s["recompute"]])
        same("optimizer", c.optimizer.implementation, {"adamw_torch": "foreach", "adamw_torch_fused": "fused"}[s["optimizer"]])
        same("shards", c.parallelism.data_parallel_shard_degree, s["world"] if s["parallel"] == "fsdp2" else 1)
    same("micro-batch", c.training.local_batch_size, s["micro_batch"])
    same("global batch", c.training.global_batch_size, s["micro_batch"] * s["accumulation"] * s["world"])
    same("sequence", c.training.seq_len, s["seq"])


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
    same("offload", a.optimizer_cpu_offload, s["offload"] == "optimizer")
    same("checkpointing", (a.recompute_granularity, a.recompute_method, a.recompute_num_layers),
         {"none": (None, None, None), "full": ("full", "uniform", 1), "chunks:2": ("full", "uniform", 2), "selective": ("selective", None, None)}[s["recompute"]])


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
    same("optim", str(a.optim.value).replace("bnb_", ""), s["optimizer"])
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
    same("layers", m.recomputed(7), {"none": set(), "full": set(range(7)), "every": {0, 2, 4, 6}}[kind])
    import torch as t
    x = t.randn(3, 4, requires_grad=True)
    results = []
    for use in (False, True):  # the same gradients, with and without the policy
        t.manual_seed(1)
        model = t.nn.Sequential()
        model.layers = t.nn.ModuleList([t.nn.Linear(4, 4) for _ in range(7)])
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
    if s["optimizer"] == "adamw_8bit":
        same("optimizer", c.optimizer._component_, "bitsandbytes.optim.AdamW8bit")
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
    same("optim", a.optim.replace("bnb_", ""), s["optimizer"])
    same("max_grad_norm", a.max_grad_norm, s["clip_norm"])
    same("weights", a.torch_dtype, t.bfloat16 if s["precision"] == "bf16-amp" else t.float32)
    same("bf16", a.bf16, s["precision"].startswith("bf16"))
    same("fp16", a.fp16, s["precision"] == "fp16-mixed")
    same("Liger", a.use_liger_kernel, s["loss"] == "liger-all")
    same("tuning", a.tuner_type, "full")
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
rows = []
for target, (check, packages) in CHECKS.items():
    row = {"target": target, "versions": {}, "accepted": 0, "wrong": [], "not_expressible": 0}
    rows.append(row)
    try:
        row["versions"] = {p: version(p) for p in packages}
    except importlib.metadata.PackageNotFoundError as e:
        row["not_checked"] = "no package %s" % e
        continue
    versions = dict(row["versions"])
    for p in ("transformers", "deepspeed", "accelerate"):
        try:
            versions[p] = version(p)
        except importlib.metadata.PackageNotFoundError:
            pass
    asked = ",".join("%s=%s" % (p, v.split("+")[0]) for p, v in versions.items())
    tries = 0
    while row["accepted"] + len(row["wrong"]) < N and tries < 12000:
        tries += 1
        s = draw()
        with tempfile.TemporaryDirectory() as folder:
            with open(folder + "/s.json", "w") as f:
                json.dump({"common": s, "model": {"name": "x"}}, f)
            out = subprocess.run([vplan, "emit", folder + "/s.json", "--for", target, "--versions", asked, "-o", folder + "/o"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            if out.returncode != 0:
                row["not_expressible"] += 1
                continue
            try:
                check(folder + "/o", s)
                row["accepted"] += 1
            except ImportError as e:
                row["not_checked"] = str(e)[:200]
                break
            except (Exception, SystemExit) as e:
                row["wrong"].append({"settings": s, "error": "%s: %s" % (type(e).__name__, str(e)[:300])})
                if len(row["wrong"]) >= 5:
                    break
answer.write(json.dumps({"schema_version": 1, "python": sys.version.split()[0], "rows": rows}, indent=1) + "\n")
answer.close()
sys.exit(any(r["wrong"] for r in rows))
