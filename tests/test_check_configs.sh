#!/bin/bash
# tests/test_check_configs.sh: scripts that read settings from a file of their own, by yaml, json, toml or OmegaConf, and take them by names of
# their own: the values count, the file's keys are no trainer's. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}/vplan")" "$work" "$PWD" <<'P'
import json, os, sys

sys.path.insert(0, "tests")
from check import asker, finish, ok

vplan, work, root = sys.argv[1:4]
os.chdir(work)
check = asker(vplan, "check")
CARD = ("--device", "4090", "--seq", "512")


def write(name, text):
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    with open(name, "w") as f:
        f.write(text)
    return name


VALUES = {"model": {"name": "Qwen/Qwen2.5-0.5B", "dtype": "bfloat16"}, "lora": {"use": True, "r": 16, "targets": ["q_proj", "v_proj"]},
          "train": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "bf16": True, "gradient_checkpointing": True, "output_dir": "o"}, "batch_size": 64, "optimizer": "RMSprop"}
write("config.json", json.dumps(VALUES, indent=1))
write("config.yaml", json.dumps(VALUES))
write("config.toml", 'batch_size = 64\noptimizer = "RMSprop"\n[model]\nname = "Qwen/Qwen2.5-0.5B"\ndtype = "bfloat16"\n[lora]\nuse = true\nr = 16\ntargets = ["q_proj", "v_proj"]\n[train]\nper_device_train_batch_size = 2\ngradient_accumulation_steps = 4\nbf16 = true\ngradient_checkpointing = true\noutput_dir = "o"\n')
HEAD = "import argparse, json, os, sys, tomllib, torch, yaml\nfrom omegaconf import OmegaConf\nfrom easydict import EasyDict as edict\nfrom pathlib import Path\nfrom transformers import AutoModelForCausalLM, TrainingArguments, Trainer\nfrom peft import LoraConfig, get_peft_model\n"
KEYS = """def main(cfg):
    model = AutoModelForCausalLM.from_pretrained(cfg["model"]["name"], dtype=getattr(torch, cfg["model"]["dtype"]))
    if cfg["lora"]["use"]:
        model = get_peft_model(model, LoraConfig(r=cfg["lora"]["r"], target_modules=cfg["lora"]["targets"], lora_dropout=cfg["lora"].get("dropout", 0.1)))
    args = TrainingArguments(**cfg["train"], optim=cfg.get("optim", "adamw_torch"))
    Trainer(model, args, train_dataset=load(cfg["data"])).train()
"""
DOTS = """def main(cfg):
    model = AutoModelForCausalLM.from_pretrained(cfg.model.name, dtype=torch.bfloat16)
    lora = cfg.lora
    if lora.use:
        model = get_peft_model(model, LoraConfig(r=lora.r, target_modules=lora.targets, lora_dropout=lora.get("dropout", 0.1)))
    train = cfg.train
    args = TrainingArguments("o", per_device_train_batch_size=train.per_device_train_batch_size, gradient_accumulation_steps=train.gradient_accumulation_steps, bf16=train.bf16, gradient_checkpointing=cfg.train.gradient_checkpointing, optim="adamw_torch")
    Trainer(model, args, train_dataset=load(cfg)).train()
"""
WANT = {"micro_batch": 2, "accumulation": 4, "recompute": "full", "precision": "bf16-amp", "optimizer": "adamw_torch", "tuning": "lora", "lora_r": 16, "lora_dropout": 0.1, "lora_targets": "q_proj+v_proj"}


def means(*how):
    code, j, err = check(*CARD, *how)
    c = j.get("common", {})
    return code, {k: c.get(k) for k in WANT}, j.get("model"), j.get("fits"), j.get("fits_not_answered"), j.get("findings"), err


FUNCTION = "def load_config(path):\n    with open(path, 'r', encoding='utf-8') as f:\n        config = yaml.safe_load(f)\n    return config\n"
PARSER = "p = argparse.ArgumentParser()\np.add_argument('--config', '-c', type=str, default='config.yaml')\nargs = p.parse_args()\n"
for name, before, read, uses in (("a call", "", "yaml.safe_load(open('config.yaml'))", KEYS), ("with", "with open('config.yaml') as f:\n    c = yaml.load(f, Loader=yaml.FullLoader)\n", "c", KEYS), ("a function", FUNCTION, "load_config('config.yaml')", KEYS),
                                 ("a path", "HERE = Path(__file__).parent\n", "json.loads((HERE / 'config.json').read_text())", KEYS), ("toml", "", "tomllib.load(open('config.toml', 'rb'))", KEYS), ("an option", PARSER + FUNCTION, "load_config(args.config)", KEYS),
                                 ("OmegaConf", "", "OmegaConf.load('config.yaml')", DOTS), ("easydict", "", "edict(yaml.safe_load(open('config.yaml')))", DOTS), ("OmegaConf, by key", PARSER, "OmegaConf.load(args.config)", KEYS)):
    write("t.py", HEAD + before + uses + "cfg = %s\nmain(cfg)\n" % read)
    code, got, model, fits, why, findings, err = means("t.py")
    ok(code == 0 and got == WANT and model == "qwen2.5-0.5b" and fits is True, "read by " + name, (code, got, model, fits, why, findings, err))
    ok(any("is read here" in f["message"] for f in findings), "the file is said: " + name, findings)
    code, got, model, fits, why, findings, err = means("t.py", "config.toml" if name == "toml" else "config.json" if name == "a path" else "config.yaml")
    ok(code == 0 and got == WANT and fits is True, "and given: " + name, (code, got, model, fits, why, findings, err))
# which file, a command says
write("other/big.yaml", json.dumps(dict(VALUES, train=dict(VALUES["train"], per_device_train_batch_size=8))))
write("t.py", HEAD + PARSER + FUNCTION + KEYS + "main(load_config(args.config))\n")
write("argv.py", HEAD + KEYS + "main(yaml.safe_load(open(sys.argv[1])))\n")
for how, batch in ((("--", "python", "t.py", "--config", "other/big.yaml"), 8), (("--", "python", "t.py"), 2), (("--", "python", "argv.py", "other/big.yaml"), 8), (("argv.py", "other/big.yaml"), 8), (("argv.py", "other/big.yaml", "config.yaml"), None), (("argv.py",), None)):
    code, got, model, fits, why, findings, err = means(*how)
    ok(got["micro_batch"] == batch and fits is (True if batch else None), "%s" % (how,), (code, got, fits, why, findings, err))
write("t.py", HEAD + "p = argparse.ArgumentParser()\np.add_argument('--config', required=True)\np.add_argument('--deepspeed', default=None)\nargs = p.parse_args()\n" + FUNCTION + KEYS.replace("def main(cfg):", "def main(path):\n    cfg = load_config(path)") + "main(args.config)\n")
for how, batch in ((("--", "python", "t.py", "--config", "other/big.yaml"), 8), (("--", "python", "t.py", "--config", "other/big.yaml", "--deepspeed", "ds.json"), 8), (("t.py",), None)):
    code, got, model, fits, why, findings, err = means(*how)
    ok(got["micro_batch"] == batch and (fits is True or "deepspeed" in str(how) or batch is None), "required: %s" % (how,), (code, got, fits, why, findings, err))
# what no file says is no value
for change in ('cfg["train"]', 'cfg["trian"]'), ("'config.yaml'", "'absent.yaml'"), ('cfg["lora"]["r"]', 'cfg["lora"]["rank"]'), ("**cfg[\"train\"]", "**build(cfg)"):
    text = HEAD + KEYS + "main(yaml.safe_load(open('config.yaml')))\n"
    ok(change[0] in text, "%s is there" % (change,))
    code, got, model, fits, why, findings, err = means(write("t.py", text.replace(*change)))
    ok(fits is None and code == 0, "nobody says it: %s" % (change,), (code, got, fits, why, findings, err))
# what the script changes in it is not what the file says
for change in "cfg['train'].pop('output_dir')", "cfg.pop('train')", "cfg['train']['per_device_train_batch_size'] = 16", "cfg['lora']['r'] *= 2", "cfg.update(other)", "del cfg['lora']":
    text = HEAD + "cfg = yaml.safe_load(open('config.yaml'))\n%s\n" % change + KEYS.replace("def main(cfg):", "if True:")
    code, got, model, fits, why, findings, err = means(write("t.py", text))
    ok(fits is None and code == 0, "it is changed: " + change, (code, got, fits, why, findings, err))
# text in YAML is text to PyYAML, a number to OmegaConf
write("lr.yaml", "lr: 2e-5\nname: Qwen/Qwen2.5-0.5B\nbatch: ${more.batch}\nmore:\n  batch: 2\nenv: ${oc.env:X}\n")
LR = HEAD + "cfg = %s\nmodel = AutoModelForCausalLM.from_pretrained(cfg['name'], dtype=torch.float32)\nargs = TrainingArguments('o', learning_rate=cfg['lr'], bf16=True, per_device_train_batch_size=%s)\nTrainer(model, args, train_dataset=d).train()\n"
for read, batch, wrong, micro in (("yaml.safe_load(open('lr.yaml'))", "2", True, 2), ("OmegaConf.load('lr.yaml')", "cfg.batch", False, 2), ("OmegaConf.load('lr.yaml')", "cfg.env", False, None)):
    code, j, err = check(*CARD, write("lr.py", LR % (read, batch)))
    errors = [f for f in j["findings"] if f["severity"] == "error"]
    ok((code == 4) == wrong and (not wrong or "is text, not a number (lr.yaml, line 1)" in errors[0]["message"]) and j["common"].get("micro_batch") == micro, "%s, %s" % (read, batch), (code, j["common"], j["findings"], err))

# ---- Hydra puts several files together ----
HYDRA = "import hydra, torch\nfrom omegaconf import DictConfig, OmegaConf\nfrom transformers import AutoModelForCausalLM, TrainingArguments, Trainer\nfrom peft import LoraConfig, get_peft_model\n@hydra.main(version_base=None, config_path='conf', config_name='%s')\ndef main(cfg: DictConfig) -> None:\n    model = AutoModelForCausalLM.from_pretrained(cfg.model.name, dtype=getattr(torch, cfg.model.dtype))\n    if cfg.lora.r > 0:\n        model = get_peft_model(model, LoraConfig(r=cfg.lora.r, target_modules='all-linear'))\n    args = TrainingArguments('o', **OmegaConf.to_container(cfg.trainer.args), seed=cfg.seed)\n    Trainer(model, args, train_dataset=d).train()\nif __name__ == '__main__':\n    main()\n"
write("conf/config.yaml", "defaults:\n  - model: small\n  - trainer: base\n  - _self_\n  - optional local: null\n  - experiment: null\nseed: 1\nbatch: 4\nlora:\n  r: 0\ntrainer:\n  args:\n    bf16: true\n")
write("conf/model/small.yaml", "name: Qwen/Qwen2.5-0.5B\ndtype: float32\n")
write("conf/model/large.yaml", "defaults:\n  - small\nname: Qwen/Qwen2.5-1.5B\n")
write("conf/trainer/base.yaml", "args:\n  per_device_train_batch_size: ${batch}\n  gradient_checkpointing: false\n  bf16: false\n")
write("conf/trainer/ckpt.yaml", "defaults:\n  - base\nargs:\n  gradient_checkpointing: true\n")
write("conf/experiment/lora.yaml", "# @package _global_\ndefaults:\n  - override /trainer: ckpt\nlora:\n  r: 8\nbatch: 2\n")
write("hydra_it.py", HYDRA % "config")
for words, want in (("", ("qwen2.5-0.5b", 4, "none", "full", "bf16-mixed", True)), ("model=large batch=1 model.dtype=bfloat16", ("qwen2.5-1.5b", 1, "none", "full", "bf16-amp", True)), ("+experiment=lora", None), ("experiment=lora", ("qwen2.5-0.5b", 2, "full", "lora", "bf16-mixed", True)),
                    ("experiment=lora lora.r=0 trainer.args.per_device_train_batch_size=1 model.dtype=bfloat16", ("qwen2.5-0.5b", 1, "full", "full", "bf16-amp", True)), ("trainer=ckpt +trainer.args.optim=sgd", ("qwen2.5-0.5b", 4, "full", "full", "bf16-mixed", True)), ("trainer=absent", (None, None, None, None, None, None)), ("trainer.args.per_device_train_batch_size=$BS", ("qwen2.5-0.5b", None, "none", "full", "bf16-mixed", None))):
    code, j, err = check(*CARD, "--", "python", "hydra_it.py", *words.split())
    got = (j["model"], *(j["common"].get(k) for k in ("micro_batch", "recompute", "tuning", "precision")), j["fits"])
    if words == "trainer=absent":
        ok(got[-1] is None and got[1] is None, "Hydra: a group that is not there", (got, j["findings"]))
    elif want:
        ok(code == 0 and got == want, "Hydra: " + words, (code, got, j.get("fits_not_answered"), j["findings"], err))
code, j, err = check(*CARD, "hydra_it.py", "conf/config.yaml")
ok(code == 0 and j["common"]["micro_batch"] == 4 and j["fits"] is True, "Hydra: given", (code, j["common"], j["findings"], err))
write("conf/late.yaml", "defaults:\n  - _self_\n  - model: small\n  - trainer: base\nseed: 1\nbatch: 4\nlora:\n  r: 0\ntrainer:\n  args:\n    bf16: true\n")
write("hydra_it.py", HYDRA % "late")
code, j, err = check(*CARD, "hydra_it.py")
ok(code == 0 and j["common"]["precision"] == "fp32", "Hydra: what comes behind _self_ wins", (code, j["common"], j["findings"], err))

# ---- alone such a file is nobody's: a trainer's defaults are none of it ----
OWN = "model_family: llama2-7b\nLoRA:\n  r: 0\ndata_path: x\nbatch_size: 16\ngradient_accumulation_steps: 1\nnum_epochs: 5\nlr: 1e-5\nsave_dir: out_${lr}\nweight_decay: 0.01\nseed: 42\n"
for text, target in ((OWN, None), ("defaults:\n- base_model\nname_or_path: x\nblock_name: LlamaDecoderLayer\nattn_implementation: flash_attention_2\n", None), (OWN.replace("batch_size", "per_device_train_batch_size"), "hf"), ("gradient_accumulation_steps: 1\nweight_decay: 0.01\nseed: 42\nbf16: true\nmodel_family: x\n", "hf")):
    code, j, err = check("--device", "h100", "--model", "llama-2-7b", "--seq", "512", write("own.yaml", text))
    ok(j.get("target") == target and (target or (code == 4 and j.get("fits") is None and "of a script's own, and what they do the script says" in str(j["findings"]))), "alone: " + text[:40], (code, j.get("target"), j.get("fits"), j["findings"], err))

finish()
P
