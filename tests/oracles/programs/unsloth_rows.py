#!/usr/bin/env python3
"""Whole runs of Unsloth's SFTTrainer on known models: tests/golden/trainers/unsloth_runs.csv.

    unsloth_rows.py OUT.csv [--null build/null] [--vplan build/vplan] [--work FOLDER]

Each row is a process: FastLanguageModel from a folder of zeros (`vplan dryrun --fake-weights`), adapters, three steps. Needs a Python with unsloth
and unsloth_zoo (`pip install --no-deps unsloth unsloth_zoo`), with what they require. Rows that OUT.csv has stay. Every token is learnt from; rows
of the table that were never trained, which Unsloth looks for and copies, are not looked for, for of zeros all are.
"""
import argparse
import csv
import glob
import json
import os
import subprocess
import sys

import play

# compute capability, multiprocessors, bytes, name
CARDS = {"t4": (75, 40, 15828320256, "Tesla T4"), "4090": (89, 128, 25252724736, "NVIDIA GeForce RTX 4090"),
         "a100-sxm-80gb": (80, 108, 85100000000, "NVIDIA A100-SXM4-80GB"), "h100": (90, 132, 84932978278, "NVIDIA H100 80GB HBM3")}
SETTING = ["device", "model", "bits", "checkpoints", "micro_batch", "seq", "optimizer", "rank", "accumulation", "dropout"]
MEASURED = ["load", "pass1", "step1", "pass2", "step2", "pass3", "step3"]
ROWS = """
4090,llama-3.2-3b,4,true,2,1024,adamw_8bit,16,1,0
4090,llama-3.2-1b,4,unsloth,2,2048,adamw_8bit,16,1,0
4090,llama-3.1-8b,4,unsloth,2,2048,adamw_8bit,16,1,0
a100-sxm-80gb,llama-3.2-3b,16,unsloth,2,1024,adamw_8bit,16,1,0
4090,qwen2.5-7b,4,unsloth,1,2048,adamw_8bit,16,4,0
a100-sxm-80gb,mistral-7b-v0.3,4,unsloth,4,2048,adamw_torch_fused,32,1,0
4090,llama-3.2-1b,16,true,2,2048,adamw_8bit,16,1,0
4090,qwen3-0.6b,16,false,2,1024,adamw_8bit,16,1,0
h100,llama-3.1-8b,16,unsloth,4,4096,adamw_8bit,16,1,0
a100-sxm-80gb,qwen3-8b,4,unsloth,2,2048,adamw_8bit,8,2,0
4090,gemma-2-2b,4,unsloth,2,1024,adamw_8bit,16,1,0
4090,qwen2.5-1.5b,4,true,4,1024,adamw_8bit,16,1,0
4090,llama-3.2-3b,4,false,2,1024,adamw_8bit,16,1,0
a100-sxm-80gb,gemma-2-9b,4,unsloth,2,2048,adamw_8bit,16,1,0
4090,mistral-7b-v0.3,4,true,2,2048,adamw_8bit,16,1,0
h100,qwen2.5-7b,16,unsloth,2,2048,adamw_8bit,16,1,0
t4,llama-3.2-1b,4,unsloth,2,2048,adamw_8bit,16,4,0
t4,llama-3.1-8b,4,unsloth,2,2048,adamw_8bit,16,4,0
t4,qwen2.5-1.5b,4,true,4,1024,adamw_8bit,16,1,0
4090,llama-3.2-1b,4,unsloth,2,2048,adamw_8bit,16,1,0.05
"""
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def tokenizer(folder):
    import tokenizers
    import transformers
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(["<eos>", "a", "<pad>", "<bos>"])}, unk_token="<eos>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>", pad_token="<pad>", unk_token="<eos>", bos_token="<bos>").save_pretrained(folder)


def open_nvrtc():
    """Which PyTorch compiles a kernel of the loss by; found as a dry run finds it."""
    import ctypes
    import torch
    sys.path.append(os.path.dirname(os.path.abspath(__file__)) + "/../../../dryrun/probe")
    import vplan_probe
    ctypes.CDLL(None).vplan_null_cudnn_open(b"", vplan_probe._cuda_libraries(torch)[1].encode())


def run(row, folder, out):
    open_nvrtc()
    from unsloth import FastLanguageModel          # before transformers and trl: it changes both
    import datasets
    import torch
    import transformers
    import trl
    import loops
    loops.silence_triton()
    library = loops.expecting(torch)               # noqa: F841
    batch, seq, accumulation = (int(row[k]) for k in ("micro_batch", "seq", "accumulation"))
    got = {}

    def peak(name):
        got[name] = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    m, words = FastLanguageModel.from_pretrained(folder, max_seq_length=seq, load_in_4bit=row["bits"] == "4")
    m = FastLanguageModel.get_peft_model(m, r=int(row["rank"]), target_modules=TARGETS, lora_alpha=16, lora_dropout=float(row["dropout"]), bias="none",
                                         use_gradient_checkpointing={"unsloth": "unsloth", "true": True, "false": False}[row["checkpoints"]])
    for module in list(sys.modules.values()):
        if "fix_untrained_tokens" in getattr(module, "__dict__", {}):
            module.fix_untrained_tokens = lambda *args, **kwargs: None
    data = datasets.Dataset.from_dict({"input_ids": [[5] * seq] * (4 * batch * accumulation)})
    args = trl.SFTConfig(output_dir=folder + "/out", report_to="none", per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation, max_steps=3,
                         optim=row["optimizer"], max_length=seq, logging_steps=10, save_strategy="no", disable_tqdm=True)
    trainer = trl.SFTTrainer(model=m, processing_class=words, train_dataset=data, args=args)

    class Peaks(transformers.TrainerCallback):
        n = 0

        def on_train_begin(self, *args, **kwargs):
            peak("load")

        def on_pre_optimizer_step(self, *args, **kwargs):
            self.n += 1
            peak("pass%d" % self.n)

        def on_step_end(self, *args, **kwargs):
            peak("step%d" % self.n)
    trainer.add_callback(Peaks())
    trainer.train()
    got["reserved"] = torch.cuda.max_memory_reserved()
    json.dump(got, open(out, "w"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--null", default="build/null")
    p.add_argument("--vplan", default="build/vplan")
    p.add_argument("--work", default="/tmp/unsloth-rows")
    p.add_argument("--row", help="one of them, in this process")
    a = p.parse_args()
    if a.row:
        row = dict(zip(SETTING, a.row.split(",")))
        capability, processors, total, name = CARDS[row["device"]]
        os.environ["UNSLOTH_DISABLE_STATISTICS"] = "1"
        os.environ["UNSLOTH_COMPILE_LOCATION"] = a.work + "/compiled-" + row["device"]
        play.prepare(os.path.abspath(a.null), processors, capability, total, name)
        return run(row, a.work + "/" + row["model"], a.work + "/got.json")
    rows = [dict(zip(SETTING, line.split(","))) for line in ROWS.split()]
    have = list(csv.DictReader(line for line in open(a.out) if line[0] != "#")) if os.path.exists(a.out) else []
    for row in rows:
        if any(all(x[k] == row[k] for k in SETTING) for x in have):
            continue
        folder = a.work + "/" + row["model"]
        if not glob.glob(folder + "/tokenizer.json"):
            subprocess.check_call([a.vplan, "dryrun", "--fake-weights", row["model"], "--dtype", "bfloat16", "-o", folder, "--", sys.executable])
            tokenizer(folder)
        subprocess.check_call([sys.executable, "-W", "ignore", __file__, a.out, "--null", a.null, "--work", a.work, "--row", ",".join(row[k] for k in SETTING)])
        got = json.load(open(a.work + "/got.json"))
        have.append(dict(row, reserved=got["reserved"], **{"allocated_" + k: got[k] for k in MEASURED}))
        with open(a.out, "w") as f:
            f.write("# made by tests/oracles/programs/unsloth_rows.py: unsloth 2026.10.9, torch 2.11.0, transformers 5.17.0, trl 1.15.0, xformers 0.0.35\n")
            w = csv.DictWriter(f, SETTING + ["reserved"] + ["allocated_" + k for k in MEASURED], lineterminator="\n")
            w.writeheader()
            w.writerows(have)


if __name__ == "__main__":
    main()
