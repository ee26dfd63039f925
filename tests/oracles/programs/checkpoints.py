#!/usr/bin/env python3
"""Whole runs of transformers' Trainer that load a model's file, save a checkpoint and go on from it: rows for `vplan estimate`'s phases
save and resume and for the host's memory.

    checkpoints.py OUT.csv [--null build/null] [--only NUMBER...]

Of each row: a file of weights in one format; a run that loads it in another, does two steps and saves; a run that goes on for two
more. The host's bytes are those of the process: anonymous ones that loading leaves, and by how much saving and going on push its
resident set up (VmHWM). The card is the stand-in's, of 80 GB.
"""
import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import play
import rows

COLUMNS = ["trainer", "model", "config", "stored", "precision", "recompute", "optimizer", "lora", "quantised", "micro_batch", "seq"]
MEASURED = ["host_load", "host_save", "host_resume", "save_allocated", "step_allocated", "step_reserved", "resume_allocated", "resume_reserved"]
LIST = [
    ("smollm2-135m", "float32", "bf16-mixed", "none", "adamw_torch_fused", "none", "none", 4, 512),
    ("smollm2-135m", "bfloat16", "bf16-mixed", "full", "adamw_torch", "none", "none", 4, 512),
    ("gpt2", "float32", "fp32", "none", "adamw_torch_fused", "none", "none", 2, 512),
    ("gpt2", "float32", "bf16", "none", "adamw_torch_forloop", "none", "none", 4, 768),
    ("qwen2.5-0.5b", "bfloat16", "bf16-mixed", "full", "adamw_torch_fused", "none", "none", 2, 1024),
    ("qwen2.5-0.5b", "bfloat16", "bf16", "none", "adamw_torch_fused", "none", "none", 2, 640),
    ("qwen2.5-0.5b", "bfloat16", "bf16-mixed", "none", "adamw_8bit", "none", "none", 2, 512),
    ("llama-3.2-1b", "bfloat16", "bf16-mixed", "full", "adafactor", "none", "none", 1, 1024),
    ("llama-3.2-1b", "bfloat16", "bf16", "none", "sgd_momentum", "none", "none", 2, 512),
    ("llama-3.2-1b", "bfloat16", "bf16-amp", "none", "adamw_torch_fused", "q_proj+v_proj", "none", 2, 512),
    ("qwen2.5-0.5b", "bfloat16", "bf16-amp", "full", "paged_adamw_8bit", "all-linear", "nf4-dq", 2, 512),
    ("smollm2-135m", "bfloat16", "bf16-mixed", "none", "lion_32bit", "none", "none", 2, 512),
]


def memory():
    text = open("/proc/self/status").read()
    return {k: 1024 * int(re.search(k + r":\s+(\d+)", text).group(1)) for k in ("RssAnon", "VmRSS", "VmHWM")}


def forget_peaks():
    import torch
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()


def format_of(precision):
    return "float32" if precision in ("fp32", "bf16-mixed", "fp16-mixed") else "bfloat16"


def write_file(row, folder):
    import torch
    import transformers
    fields = dict(rows.MODELS[row["model"]])
    c = transformers.AutoConfig.for_model(fields.pop("model_type"), **{k: v for k, v in fields.items() if k != "architectures"})
    c.dtype = getattr(torch, row["stored"])
    transformers.AutoModelForCausalLM.from_config(c, dtype=c.dtype).save_pretrained(folder)


def load(row, folder):
    import torch
    import transformers
    more = {}
    if row["quantised"] != "none":
        more["quantization_config"] = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16, bnb_4bit_use_double_quant=row["quantised"] == "nf4-dq")
    before = memory()["RssAnon"]
    m = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, format_of(row["precision"])), **more)
    host = memory()["RssAnon"] - before
    if row["quantised"] != "none":
        import peft
        m = peft.prepare_model_for_kbit_training(m)
    if row["lora"] != "none":
        import peft
        targets = row["lora"] if row["lora"] == "all-linear" else row["lora"].split("+")
        m = peft.get_peft_model(m, peft.LoraConfig(r=8, lora_alpha=16, target_modules=targets, task_type="CAUSAL_LM"))
        m.enable_input_require_grads()
    m.config.use_cache = False
    return m, host


class Data:
    def __init__(self, n, seq):
        self.n, self.seq = n, seq

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        import torch
        t = torch.ones(self.seq, dtype=torch.int64)
        return {"input_ids": t, "labels": t}


def train(row, base, out, resumes):
    import torch
    import transformers
    play.answer_values()
    play.choose_attention("sdpa:flash")
    torch.backends.cudnn.enabled = False
    m, host = load(row, base)
    seen = {"host_load": host}

    class Watch(transformers.TrainerCallback):
        def on_train_begin(self, *args, **kwargs):
            if resumes:
                seen["host_resume"] = memory()["VmHWM"] - self.rss
            forget_peaks()

        def on_step_end(self, args, state, control, **kwargs):
            s = torch.cuda.memory_stats()
            word = "resume" if resumes else "step"
            seen[word + "_allocated"] = max(seen.get(word + "_allocated", 0), s["allocated_bytes.all.peak"])
            seen[word + "_reserved"] = max(seen.get(word + "_reserved", 0), s["reserved_bytes.all.peak"])
            forget_peaks()
            self.rss = memory()["VmRSS"]

        def on_save(self, *args, **kwargs):
            seen["save_allocated"] = torch.cuda.memory_stats()["allocated_bytes.all.peak"]
            seen["host_save"] = memory()["VmHWM"] - self.rss

    watch = Watch()
    mixed = row["precision"] in ("bf16-mixed", "bf16-amp")
    args = transformers.TrainingArguments(
        output_dir=out, per_device_train_batch_size=row["micro_batch"], max_steps=4 if resumes else 2, save_steps=2, bf16=mixed, report_to=[], disable_tqdm=True,
        logging_steps=1000, gradient_checkpointing=row["recompute"] == "full", gradient_checkpointing_kwargs={"use_reentrant": False},
        optim={"sgd_momentum": "sgd"}.get(row["optimizer"], row["optimizer"]).replace("adamw_torch_forloop", "adamw_torch"),
        optim_args="momentum=0.9" if row["optimizer"] == "sgd_momentum" else "foreach=False" if row["optimizer"].endswith("forloop") else None)
    trainer = transformers.Trainer(m, args, train_dataset=Data(8 * row["micro_batch"], row["seq"]), callbacks=[watch])
    forget_peaks()
    watch.rss = memory()["VmRSS"]
    trainer.train(resume_from_checkpoint=resumes)
    return seen


def stage(row, word, folder):
    import transformers
    transformers.logging.set_verbosity_error()
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"         # one thread, whose order is no chance
    if word == "write":
        return write_file(row, folder + "/base")
    with open(folder + "/" + word + ".json", "w") as f:
        json.dump(train(row, folder + "/base", folder + "/out", word == "resume"), f)


def measure(row):
    folder = tempfile.mkdtemp()
    seen = {}
    try:
        for word in ("write", "train", "resume"):
            run = subprocess.run([sys.executable, "-W", "ignore", __file__, "-", "--stage", word, folder, json.dumps(row)], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True)
            if run.returncode:
                return {"failed": run.stderr.strip().splitlines()[-1]}
            if word != "write":
                seen.update({k: v for k, v in json.load(open(folder + "/" + word + ".json")).items() if word == "train" or "resume" in k})
        return seen
    finally:
        shutil.rmtree(folder)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--null", default="build/null")
    p.add_argument("--only", type=int, nargs="*")
    p.add_argument("--stage", nargs=3)
    a = p.parse_args()
    play.prepare(os.path.abspath(a.null), processors=132)
    if a.stage:
        return stage(json.loads(a.stage[2]), a.stage[0], a.stage[1])
    with open(a.out, "w", newline="") as f:
        w = csv.DictWriter(f, COLUMNS + MEASURED, lineterminator="\n")
        w.writeheader()
        for i, values in enumerate(LIST):
            row = dict(zip(["model"] + COLUMNS[3:], values), trainer="hf")
            if a.only and i not in a.only:
                continue
            seen = measure(row)
            print(i, row["model"], seen, flush=True)
            if "failed" not in seen:
                w.writerow(dict(row, config=json.dumps(rows.MODELS[row["model"]]), **seen))


if __name__ == "__main__":
    main()
