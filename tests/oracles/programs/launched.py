#!/usr/bin/env python3
"""Whole runs of transformers' Trainer and TRL's trainers as rank 0 of several, for tests/golden/trainers/launched_worlds.csv.

    launched.py OUT.csv --vplan build/vplan --python PYTHON [--only COLUMN=VALUE ...] [--trace FILE.pickle]

Each row is what a person would start: the files that `vplan emit` writes for it, beside a checkpoint without weights, by `accelerate launch` under
`vplan dryrun`. Two steps; the peaks are those from loading to the end of the second. Rows that OUT.csv has stay, so that it resumes; one that
fails is said on standard error and left out. --trace: PyTorch's own events of one row, none written.
"""
import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import rows  # noqa: E402
import worlds  # noqa: E402,F401  some layers of models, and those with large tables

rows.MODELS["mistral-7b-4"] = dict(rows.MODELS["mistral-7b"], num_hidden_layers=4)

COLUMNS = ["model", "config", "trainer", "parallel", "world", "offload", "precision", "recompute", "optimizer", "micro_batch", "seq", "accumulation", "lora", "r", "load", "liger", "method"]
USUAL = dict(trainer="hf", world=4, offload="none", precision="bf16-mixed", recompute="full", optimizer="adamw_torch_fused", micro_batch=2, seq=1024, accumulation=1, lora="none", r=0, load="none",
             liger=0, method="sft")
RUNS = """
model=llama-3.2-1b parallel=zero2 accumulation=2
model=llama-3.2-1b parallel=zero2 world=2 recompute=none
model=llama-3.2-1b parallel=zero2 offload=optimizer
model=llama-3.2-1b parallel=zero2 offload=optimizer accumulation=2
model=llama-3.2-1b parallel=zero1 world=2 recompute=none accumulation=2
model=llama-3.2-1b parallel=zero3 lora=all-linear r=16 precision=bf16-amp accumulation=2 micro_batch=1 seq=512 recompute=none
model=llama-3.2-1b parallel=zero3 lora=all-linear r=16 precision=bf16-amp accumulation=2
model=llama-3.2-1b parallel=zero3 lora=q_proj+v_proj r=16 precision=bf16-amp recompute=none
model=llama-3.2-1b parallel=zero3 accumulation=2
model=llama-3.2-1b parallel=zero3 offload=optimizer+params
model=tinyllama-1.1b parallel=zero2 liger=1
model=qwen2.5-0.5b parallel=zero2 world=2 recompute=none seq=512 liger=1
model=mistral-7b-4 parallel=zero2 world=2 micro_batch=4 seq=512 liger=1
model=qwen3-0.6b parallel=zero2 micro_batch=4 lora=q_proj+v_proj r=8 precision=bf16-amp liger=1
model=tinyllama-1.1b parallel=zero3 liger=1
model=qwen2.5-0.5b parallel=zero3 world=2 recompute=none seq=512 liger=1
model=qwen3-0.6b parallel=zero3 liger=1
model=mistral-7b-4 parallel=zero3 world=8 micro_batch=4 seq=512 liger=1
model=smollm2-360m parallel=zero3 world=2 recompute=none micro_batch=4 seq=768 lora=all-linear r=16 precision=bf16-amp liger=1
model=tinyllama-1.1b parallel=zero3 world=8 recompute=none lora=all-linear r=16 precision=bf16-amp liger=1
model=mistral-7b parallel=zero3 micro_batch=1 seq=512
model=llama-3.2-1b parallel=fsdp2 lora=all-linear r=16 precision=bf16-amp accumulation=2
model=llama-3.2-1b parallel=fsdp lora=all-linear r=16 precision=bf16-amp accumulation=2
model=llama-3.2-1b parallel=fsdp accumulation=2
model=llama-3.2-1b parallel=fsdp2 accumulation=2
model=qwen3-0.6b parallel=fsdp2 world=2 accumulation=2
model=llama-3.2-1b parallel=zero2 lora=q_proj+v_proj r=8 precision=bf16-amp
model=qwen2.5-0.5b parallel=zero3 world=8 lora=all-linear r=8 precision=bf16-amp seq=512
model=qwen2.5-0.5b parallel=fsdp2 world=2 lora=q_proj+v_proj r=8 precision=bf16-amp seq=512
model=llama-3.2-1b trainer=trl parallel=ddp world=2 lora=all-linear r=16 precision=bf16-amp
model=llama-3.2-1b trainer=trl parallel=ddp world=2 lora=all-linear r=16 precision=bf16-amp load=nf4-dq
model=qwen2.5-0.5b trainer=trl parallel=ddp world=4 lora=q_proj+v_proj r=8 precision=bf16-amp recompute=none accumulation=2 seq=512
model=qwen2.5-0.5b trainer=trl parallel=ddp world=4 lora=all-linear r=16 precision=bf16-amp load=nf4-dq accumulation=2 seq=512
model=llama-3.2-1b trainer=trl method=dpo parallel=ddp world=2 micro_batch=1 seq=512 lora=all-linear r=16 precision=bf16-amp
model=llama-3.2-1b trainer=trl method=dpo parallel=ddp world=4 micro_batch=1 seq=512 lora=all-linear r=16 precision=bf16-amp load=nf4-dq
model=llama-3.2-1b trainer=trl parallel=zero3
model=llama-3.2-1b trainer=trl parallel=zero2
model=llama-3.2-1b trainer=trl parallel=zero3 precision=bf16-amp lora=all-linear r=16
model=tinyllama-1.1b trainer=trl parallel=zero3
model=tinyllama-1.1b trainer=trl parallel=zero2
model=llama-3.2-1b trainer=trl parallel=fsdp2 precision=bf16-amp lora=all-linear r=16
model=qwen2.5-0.5b trainer=trl parallel=zero3 world=2 recompute=none seq=512
model=qwen2.5-0.5b trainer=trl parallel=zero2 world=2 recompute=none seq=512
model=llama-3.2-1b trainer=trl parallel=zero2 precision=bf16-amp lora=all-linear r=16
model=llama-3.2-1b trainer=trl parallel=zero1 world=2
model=tinyllama-1.1b trainer=trl parallel=zero3 accumulation=2
model=llama-3.2-1b trainer=trl parallel=zero2 offload=optimizer
model=mistral-7b-4 trainer=trl parallel=zero3 world=8 micro_batch=4 seq=512
model=tinyllama-1.1b trainer=trl parallel=zero3 world=2 precision=bf16-amp seq=512 accumulation=2 lora=all-linear r=8
model=llama-3.2-1b parallel=zero3 precision=bf16-amp recompute=full:reentrant lora=all-linear r=16
model=llama-3.2-1b trainer=trl parallel=zero3 precision=bf16-amp recompute=none micro_batch=1 lora=all-linear r=16
model=qwen2.5-0.5b trainer=trl parallel=zero3 world=8 precision=bf16-amp seq=512 lora=q_proj+v_proj r=8
model=qwen2.5-0.5b trainer=trl parallel=fsdp2 world=2 precision=bf16-amp recompute=none seq=512 lora=q_proj+v_proj r=8
model=mistral-7b-4 trainer=trl parallel=zero3 world=2 precision=bf16-amp seq=512 lora=all-linear r=16
model=qwen3-0.6b trainer=trl parallel=fsdp2 world=2 precision=bf16-amp recompute=none seq=512 lora=q_proj+v_proj r=8
model=qwen3-0.6b trainer=trl parallel=zero3 precision=bf16-amp lora=all-linear r=16
model=llama-3.2-1b parallel=zero3 recompute=full:reentrant
"""
# What is measured, before the script that emit writes: peaks so far whenever a phase may have ended.
PROBE = '''
import json, os
import torch, transformers
PEAKS = {"allocated": 0, "reserved": 0}
def note(*_, **__):
    m = torch.cuda.memory_stats()
    for k in PEAKS:
        PEAKS[k] = max(PEAKS[k], m[k + "_bytes.all.peak"])
    if os.environ.get("RANK", "0") == "0":
        json.dump(PEAKS, open(os.environ["PEAKS"], "w"))
class Probe(transformers.TrainerCallback):
    on_train_begin = on_substep_end = on_pre_optimizer_step = on_step_end = note
    def on_train_end(self, *_, **__):
        keep()
        os._exit(0)         # scripts of TRL save what they have
def keep():
    pass
init = transformers.Trainer.__init__
def with_probe(self, *args, **kwargs):
    init(self, *args, **kwargs)
    self.add_callback(Probe())
transformers.Trainer.__init__ = with_probe
torch.cuda.reset_peak_memory_stats = lambda *_: None         # DeepSpeed does, as it logs
'''
TRACED = '''
import torch
torch.cuda.memory._record_memory_history(enabled="all", stacks="python", max_entries=2000000)
'''
KEEP = '''
def keep():
    import pickle
    pickle.dump(torch.cuda.memory._snapshot()["device_traces"][0], open(os.environ["TRACE"], "wb"))
'''
# A text of TRL's data is longer than what is kept of it.
WORDS = '''
import sys, tokenizers, transformers
words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<eos>": 0, "a": 1}, unk_token="<eos>"))
words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>", pad_token="<eos>", unk_token="<eos>").save_pretrained(sys.argv[1])
'''


def runs(lines):
    for line in lines:
        given = dict(word.split("=", 1) for word in line.split())
        row = {k: type(USUAL[k])(given[k]) if k in USUAL and k in given else given.get(k, USUAL.get(k)) for k in COLUMNS}
        yield dict(row, config=json.dumps(dict(rows.NAMED, **rows.MODELS)[row["model"]]))


def common_of(row):
    """As emit takes it."""
    out = {k: row[k] for k in ("micro_batch", "accumulation", "world", "seq", "precision", "parallel", "optimizer", "recompute", "offload", "method")}
    out.update(tuning="full" if row["lora"] == "none" else "lora" if row["load"] == "none" else "qlora", loss="liger" if row["liger"] else "chunked" if row["trainer"] == "trl" and row["method"] == "sft" else "full", attention="sdpa", clip_norm=1.0)
    if row["lora"] != "none":
        out.update(lora_r=row["r"], lora_alpha=32, lora_targets=row["lora"], lora_dropout=0.0)
    if row["load"] != "none":
        out["quant"] = row["load"]
    return out


def change(path, **values):
    known = json.load(open(path))
    json.dump(dict(known, **values), open(path, "w"))


def finish_hf(a, at, row, probe):
    """Its script, two steps long; the command's words behind accelerate's own."""
    change(at("run", "model_args.json"), pretrained_model_name_or_path=at("weights"))
    change(at("run", "training_args.json"), save_strategy="no", max_steps=2, **({"liger_kernel_config": None} if row["liger"] else {}))         # all of Liger's kernels; emit has its loss
    script = open(at("run", "train.py")).read()
    open(at("run", "train.py"), "w").write(probe + script)
    return ["train.py"]


def finish_trl(a, at, row, probe):
    """TRL's own script over texts that fill the sequence."""
    name = row["method"] + ".yaml"
    settings = open(at("run", name)).read().replace('model_name_or_path: ""', "model_name_or_path: " + at("weights"))
    open(at("run", name), "w").write(settings + "max_steps: 2\nsave_strategy: 'no'\nreport_to: none\n")
    subprocess.run([a.python, "-c", WORDS, at("weights")], check=True)
    os.mkdir(at("data"))
    text = " a" * (row["seq"] + 8)
    sample = {"text": text} if row["method"] == "sft" else {"prompt": "a", "chosen": text, "rejected": text}
    open(at("data", "train.jsonl"), "w").write((json.dumps(sample) + "\n") * 64 * row["micro_batch"] * row["accumulation"])
    open(at("run", "start.py"), "w").write(probe + "import runpy\nrunpy.run_module('trl.scripts.%s', run_name='__main__', alter_sys=True)\n" % row["method"])
    return ["start.py", "--config", name, "--dataset_name", at("data"), "--output_dir", at("out")]


def play(a, row):
    with tempfile.TemporaryDirectory() as folder:
        at = lambda *names: os.path.join(folder, *names)
        json.dump(json.loads(row["config"]), open(at("config.json"), "w"))
        json.dump({"common": common_of(row)}, open(at("settings.json"), "w"))
        dtype = "float32" if row["precision"] in ("fp32", "bf16-mixed") else "bfloat16"
        subprocess.run([a.vplan, "dryrun", "--fake-weights", at("config.json"), "--dtype", dtype, "-o", at("weights"), "--", a.python], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        p = subprocess.run([a.vplan, "emit", at("settings.json"), "--for", row["trainer"], "-o", at("run")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if p.returncode:
            return p.stdout.decode()
        probe = (TRACED if a.trace else "") + PROBE + (KEEP if a.trace else "")
        words = {"hf": finish_hf, "trl": finish_trl}[row["trainer"]](a, at, row, probe)
        launcher = os.path.join(os.path.dirname(subprocess.run([a.python, "-c", "import sys; print(sys.executable)"], stdout=subprocess.PIPE).stdout.decode().strip()), "accelerate")
        p = subprocess.run([a.vplan, "dryrun", "--device", "h100-sxm-80gb", "--padding", "none", "--json", "--no-owners", "--", a.python, launcher, "launch", "--config_file", "accelerate.yaml", *words],
                           cwd=at("run"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, PEAKS=at("peaks.json"), TRACE=a.trace or ""))
        return json.load(open(at("peaks.json"))) if p.returncode == 0 else p.stderr.decode()[-1500:]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--vplan", default="build/vplan")
    p.add_argument("--python", default="python3")
    p.add_argument("--only", nargs="*", default=[])
    p.add_argument("--runs", help="settings as in RUNS, a line each, in their place")
    p.add_argument("--trace")
    a = p.parse_args()
    a.vplan, only = os.path.abspath(a.vplan), dict(x.split("=", 1) for x in a.only)
    said = [k for k in COLUMNS if k != "config"]
    name = lambda row: tuple(str(row[k]) for k in said)
    had = {name(r) for r in csv.DictReader(x for x in open(a.out) if x[0] != "#")} if os.path.exists(a.out) else set()
    with open(a.out, "a", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        if not had and not a.trace:
            versions = "import importlib.metadata as m; print(', '.join(n + ' ' + m.version(n).split('+')[0] for n in ('torch', 'transformers', 'peft', 'trl', 'accelerate', 'deepspeed')))"
            f.write("# made by tests/oracles/programs/launched.py: %s\n" % subprocess.run([a.python, "-c", versions], stdout=subprocess.PIPE).stdout.decode().strip())
            out.writerow(COLUMNS + ["allocated", "reserved"])
        for row in runs((open(a.runs).read() if a.runs else RUNS).strip().splitlines()):
            if name(row) in had or any(str(row[k]) != x for k, x in only.items()):
                continue
            got = play(a, row)
            if isinstance(got, str):
                sys.stderr.write("%s\n%s\n" % (name(row), got))
            elif a.trace:
                return
            else:
                out.writerow([row[k] for k in COLUMNS] + [got["allocated"], got["reserved"]])
                f.flush()


if __name__ == "__main__":
    main()
