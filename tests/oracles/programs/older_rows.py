#!/usr/bin/env python3
"""Whole training steps as rows.py plays them, on a card without flash attention: a T4, compute capability 7.5, 40 multiprocessors.

    older_rows.py OUT.csv [--null build/null] [--random N] [--seed S] [--models MODEL ... | --classes | --adapted MODEL ... | --trl MODEL ... | --recent]

16 bits are fp16 there, with no autocast or with it over fp32 weights; sdpa takes memory-efficient attention, or math. --models: these, whole,
by Trainer, in fp16-mixed, their batches padded. --classes: LoRA of classifiers, or whole ones, without padding. --adapted: adapters of these. --trl: SFTTrainer's LoRA of these, and steps of them whole. --recent: a list of what was recorded last.
"""
import argparse
import csv
import json
import os
import sys

import play
import rows

SMALL = ("smollm2-135m", "smollm2-360m", "qwen2.5-0.5b", "qwen2.5-1.5b", "llama-3.2-1b", "tinyllama-1.1b", "gpt2", "gpt2-medium", "bert-base", "llama-2-7b")
ADAPTED = ("smollm2-135m", "qwen2.5-0.5b", "llama-3.2-1b", "tinyllama-1.1b", "llama-3.1-8b", "qwen2-7b")


def of_older(row):
    """In fp16, with sdpa as it comes; None where that is not run there."""
    precision = {"bf16": "fp16", "bf16-mixed": "fp16-mixed", "fp32": "fp32"}.get(row[2])
    quantised = len(row) > 13 and row[13] != "none"
    precision = "fp16" if quantised else precision
    return precision and row[:2] + (precision, "sdpa:flash") + row[4:]


RECENT = [  # what was recorded last: without padding, by Trainer; adapters, rank, load behind
    ("falcon-7b", "fp16-amp", "none", "adamw_torch_fused", 2, 512, "query_key_value", 16, "none"),
    ("phi-2", "fp16-mixed", "none", "adamw_torch_fused", 2, 512, "none", 0, "none"),
    ("phi-2", "fp16-amp", "none", "adamw_torch_fused", 3, 768, "q_proj+v_proj+fc1+fc2", 8, "none"),
]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--null", default="build/null")
    p.add_argument("--random", type=int, default=30)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--models", nargs="+")
    p.add_argument("--classes", action="store_true")
    p.add_argument("--adapted", nargs="+")
    p.add_argument("--trl", nargs="+")
    p.add_argument("--recent", action="store_true")
    a = p.parse_args()
    play.prepare(os.path.abspath(a.null), processors=40, capability=75)
    import torch
    import transformers
    play.quiet()
    torch._C._cuda_getDeviceCount = lambda: 1
    torch.cuda._is_in_bad_fork = lambda: False
    drawn = [r + ("torch", "none", 0, "none") for r in rows.drawn(4 * a.random, a.seed, SMALL)]
    adapted = rows.drawn_with_adapters(4 * a.random, a.seed, ADAPTED)
    wanted = [x for pair in zip(drawn, adapted) for x in map(of_older, pair) if x][:a.random]
    if a.models:
        wanted = [r[:2] + ("fp16-mixed", "sdpa:flash") + r[4:7] + (-(-r[7] // 8) * 8, r[8], "mask", "hf", "none", 0, "none")
                  for r in rows.drawn(4 * a.random, a.seed, a.models) if r[5] in rows.OPTIMIZERS and r[4] == "none"][:a.random]
    if a.classes:
        wanted = [r[:2] + ("fp16-mixed",) + r[3:9] + ("none",) + (r[10:13] if i % 3 else (r[10], "none", 0)) + ("none",)
                  for i, r in enumerate(rows.drawn_of_classes(8 * a.random, a.seed, [m for m in rows.CLASSES if m[:2] != "t5"]))][:a.random]
    if a.adapted:
        drawn = [r for r in rows.drawn_again(40 * a.random, a.seed, a.adapted, False) if r[10] == "hf" and r[2] == "bf16-amp"]
        wanted = [r[:2] + ("fp16-amp",) + r[3:11] + ("all-linear",) + r[12:] for r in drawn if r[13] != "nf4"][:a.random]
    if a.trl:
        drawn = [r for r in rows.drawn_by_trl(40 * a.random, a.seed, a.trl, True) if r[2] == "bf16-mixed" and r[4] == "full" and r[11] != "q_proj+v_proj" and r[9] == "none"]
        wanted = [r[:2] + ("fp16-mixed",) + r[3:] for r in drawn][:a.random]
    if a.recent:
        wanted = [(name, dict(rows.NAMED, **rows.MODELS)[name], precision, "sdpa:flash", recompute, opt, batch, seq, "clm", "none", "hf", lora, rank, load)
                  for name, precision, recompute, opt, batch, seq, lora, rank, load in RECENT]
    with open(a.out, "w", newline="") as f:
        f.write("# made by tests/oracles/programs/older_rows.py: torch %s, transformers %s\n" % (torch.__version__.split("+")[0], transformers.__version__))
        out = csv.writer(f, lineterminator="\n")
        out.writerow(rows.COLUMNS + ["device", "reserved"] + ["allocated_" + x for x in rows.PHASES])
        for row in wanted:
            got = play.in_child(lambda: rows.measure(row))
            if "failed" in got:
                sys.stderr.write("%s: %s\n" % (row, got["failed"]))
                continue
            out.writerow([row[0], json.dumps(row[1]), *row[2:7], row[7] or "", *row[8:], "t4", got["reserved"]] + [got["allocated_" + x] for x in rows.PHASES])
            f.flush()


if __name__ == "__main__":
    main()
