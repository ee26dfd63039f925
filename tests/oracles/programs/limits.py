#!/usr/bin/env python3
"""Settings that need more than a budget of reserved bytes and less of allocated ones, played by `vplan dryrun`: whether PyTorch finds
room by giving back its cache. Rows of tests/golden/limits/verdicts.csv.

    limits.py OUT.csv [--vplan build/vplan] [--rows 14] [--seed 9]

Three steps of Trainer on an H100 with so much memory; half of the rows, as far as they are found, are such that the estimate says fit.
"""
import argparse
import csv
import json
import os
import random
import subprocess
import sys

COLUMNS = ["model", "micro_batch", "seq", "recompute", "precision", "accumulation", "budget", "fits"]
MODELS = ["qwen2.5-0.5b", "gpt2", "smollm2-135m", "gpt2-medium"]
OUTSIDE = 512 << 20         # the context's, which both programs assume


def train(row):
    import torch
    import transformers
    import rows
    fields = dict(rows.MODELS[row["model"]])
    fields.pop("architectures", None)
    c = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    c.use_cache = False
    seq = int(row["seq"])
    with torch.device("cuda"):
        m = transformers.AutoModelForCausalLM.from_config(c, dtype=torch.bfloat16 if row["precision"] == "bf16" else torch.float32)

    class Data:
        def __len__(self):
            return 4096

        def __getitem__(self, i):
            t = torch.arange(seq) % 100
            return {"input_ids": t, "labels": t}
    args = transformers.TrainingArguments(
        output_dir="none", per_device_train_batch_size=int(row["micro_batch"]), gradient_accumulation_steps=int(row["accumulation"]), max_steps=3,
        save_strategy="no", bf16=row["precision"] == "bf16-mixed", report_to=[], disable_tqdm=True, logging_steps=1000,
        gradient_checkpointing=row["recompute"] == "full", gradient_checkpointing_kwargs={"use_reentrant": False})
    transformers.Trainer(m, args, train_dataset=Data()).train()


def estimate(vplan, row, *more):
    options = ["--trainer", "hf", "--device", "h100", "--json", *more]
    for k in COLUMNS[1:6]:
        options += ["--" + k.replace("_", "-"), str(row[k])]
    return json.loads(subprocess.run([vplan, "estimate", row["model"], *options], stdout=subprocess.PIPE).stdout)


def draw(rng, vplan):
    while True:
        row = dict(model=rng.choice(MODELS), micro_batch=rng.randint(1, 10), seq=rng.choice([256, 512]), recompute=rng.choice(["none", "full"]),
                   precision=rng.choice(["bf16", "bf16-mixed", "fp32"]), accumulation=rng.choice([1, 2, 4]))
        j = estimate(vplan, row)
        least, most = j["allocated_peak_bytes"], j["reserved_peak_bytes"]
        if most - least >= 80 << 20:
            row["budget"] = int(least + rng.uniform(0.3, 0.98) * (most - least)) + OUTSIDE
            return row, estimate(vplan, row, "--budget", str(row["budget"]))["fits"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--vplan", default="build/vplan")
    p.add_argument("--rows", type=int, default=14)
    p.add_argument("--seed", type=int, default=9)
    a = p.parse_args()
    if a.out.startswith("{"):
        return train(json.loads(a.out))
    rng, said = random.Random(a.seed), {True: 0, False: 0}
    with open(a.out, "w", newline="") as f:
        w = csv.DictWriter(f, COLUMNS, lineterminator="\n")
        w.writeheader()
        while sum(said.values()) < a.rows:
            row, fits = draw(rng, a.vplan)
            if said[fits] > a.rows // 2:
                continue
            said[fits] += 1
            run = subprocess.run([a.vplan, "dryrun", "--device", "h100", "--budget", str(row["budget"]), "--json", "--", sys.executable, os.path.abspath(__file__),
                                  json.dumps(row)], stdout=subprocess.PIPE)
            verdict = json.loads(run.stdout)["verdict"]
            print(row, fits, verdict, flush=True)
            w.writerow(dict(row, fits=int(verdict == "fits")))


if __name__ == "__main__":
    main()
