#!/usr/bin/env python3
"""`vplan estimate --trainer torch` and eleven other estimators' formulas on the same played training steps, as a table.

    bench/estimate_peers.py [ROWS.csv ...] [--vplan build/vplan]

What is estimated is the peak of reserved bytes (what nvidia-smi shows, less the context), on one card, full fine-tuning. The formulas are
re-implemented from their sources as of 2026, each with the inputs that it takes: most know nothing of the attention kernel, the logits or
the allocator, and two nothing of the batch. "under" is the share of rows that are estimated more than 2 % too low: a run that was said to
fit and does not.
"""
import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "oracles"))
import estimate_rows  # noqa: E402

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "trainers")
ROWS = [os.path.join(GOLDEN, f) for f in ("steps.csv", "drawn_steps.csv")]


class Run:
    """A row by the names that formulas use."""

    def __init__(self, r, params):
        c = json.loads(r["config"])

        def of(*keys):
            return next((c[k] for k in keys if c.get(k)), None)
        self.P = params
        self.h = of("hidden_size", "n_embd", "dim")
        self.L = of("num_hidden_layers", "n_layer", "n_layers", "num_layers")
        self.a = of("num_attention_heads", "n_head", "n_heads", "num_heads")
        self.k = of("num_key_value_heads") or self.a
        self.f = of("intermediate_size", "n_inner", "ffn_dim", "hidden_dim") or 4 * self.h
        self.V = of("vocab_size") or len(c.get("id2label", {})) or 2
        self.b = int(r["micro_batch"])
        self.s = int(r["seq"]) if r["seq"] else (c["image_size"] // c["patch_size"]) ** 2 + 1
        self.full = r["recompute"] == "full"
        self.eager = r["attention"] == "eager"
        self.adam = r["optimizer"].startswith("adamw")
        self.momentum = r["optimizer"] == "sgd_momentum"
        self.weights = 4 if r["precision"] in ("fp32", "bf16-mixed") else 2        # bytes of a parameter
        self.compute = 4 if r["precision"] == "fp32" else 2                        # bytes of an activation
        self.sbh = self.s * self.b * self.h
        self.states = self.P * (2 * self.weights + (2 if self.adam else 1 if self.momentum else 0) * self.weights)


def accelerate(r):                     # commands/estimate.py, "training with Adam": four times the weights in the dtype's row
    return r.P * (16 if r.weights == 4 else 8)


def deepspeed_zero2(r):                # runtime/zero/stage_1_and_2.py, one GPU, no offload: 2 P + 18 P
    return 20 * r.P


def deepspeed_zero3(r):                # stage3.py: 18 P and the largest layer, of which the embedding is one
    return 18 * r.P + 4 * max(r.V * r.h, 4 * r.h * r.h + 3 * r.h * r.f)


def zero_paper(r):                     # arXiv 1910.02054: 16 P and 12 h b s L elements of 16 bits, square root of them checkpointed
    return 16 * r.P + (2 * r.sbh * r.L if r.full else 2 * 12 * r.sbh * r.L)


def cookbook(r):                       # EleutherAI/cookbook calc_transformer_mem.py
    states = r.P * ((4 if r.compute == 4 else 2) + 4 + (12 if r.adam else 8))
    return states + r.L * r.sbh * (34 + (0 if r.full else 5 * r.a * r.s / r.h))


def megatron(r):                       # training/theoretical_memory_usage.py: its branch without sequence parallelism, 5 % on top
    return 18 * r.P + 1.05 * 34 * r.sbh * r.L + 4 * r.sbh * (1 + r.V / r.h)


def llm_analysis(r):                   # attention, MLP, two layer norms in fp32, masks of a byte; logits twice
    attention = r.compute * (5 * r.sbh + (2 * r.a * r.s * r.s * r.b if r.eager else 2 * r.sbh + 4 * r.a * r.s * r.b))
    layer = attention + r.compute * (r.sbh + 2 * r.s * r.b * r.f) + 2 * 4 * r.sbh
    return r.P * (r.compute + 4 + (12 if r.adam else 8)) + r.L * (2 * r.sbh if r.full else layer) + 2 * 2 * r.V * r.b * r.s


def gpu_poor(r):                       # src/App.js: three states of Adam with the gradients, all of attention's matrices; 650 MB
    attention = 8 * r.sbh * r.compute + r.b * r.a * r.s * r.s * (2 * r.compute + 4)
    layer = attention + r.compute * (2 * r.sbh + 6 * r.b * r.s * r.f) + r.b * r.s * 8 + 6 * r.sbh * r.compute
    p = 2 * r.V * r.h + r.L * (4 * r.h * r.h + 3 * r.h * r.f)
    return p * r.weights * (4 if r.adam else 2) + r.L * layer * (0.15 if r.full else 1) + 650e6


def unsloth(r):                        # studio VRAM_ESTIMATION.md: per layer, 1.25 on top; attention's matrix where eager; 1.4 GB
    kv = r.k * r.h // r.a
    layer = (r.s * r.b * (r.h + 2 * kv) + 2 * r.s * r.b + 2 * r.s * r.b * r.f) * 2 * 1.25
    eager = 12 * 2 * r.b * r.a * r.s * r.s * r.L if r.eager else 0
    gradients = max(r.P * r.weights, 0.15 * r.P * r.weights)
    return r.P * (r.weights + (6 if r.adam else 4)) + gradients + layer * (2 if r.full else r.L) + eager + 1.4e9


def training_hub(r):                   # Red Hat: weights, gradients and Adam 4 + 4 + 8; tokens x 4 L h and 8/3 x 4 V; expected x 1.1
    return 1.1 * (16 * r.P + r.s * r.b * 4 * r.L * r.h + r.s * r.b * r.V * 4 * 8 / 3)


def llama_factory(r):                  # the table of its README: 18 GB a billion parameters under autocast, 8 in pure bf16
    return r.P * (18 if r.weights == 4 else 8)


def transformers_docs(r):              # "anatomy of a model's training memory": 6 + 8 + 4 bytes a parameter, 4 without a mixed copy
    return r.P * ((6 if r.compute != r.weights else r.weights) + (8 if r.adam else 4 if r.momentum else 0) + 4)


PEERS = [("accelerate estimate-memory", accelerate), ("DeepSpeed, ZeRO-2 estimator", deepspeed_zero2),
         ("DeepSpeed, ZeRO-3 estimator", deepspeed_zero3), ("ZeRO paper", zero_paper), ("EleutherAI cookbook", cookbook),
         ("Megatron-LM report_theoretical_memory", megatron), ("llm-analysis", llm_analysis), ("gpu_poor", gpu_poor),
         ("Unsloth Studio", unsloth), ("training_hub", training_hub), ("LLaMA-Factory's table", llama_factory),
         ("transformers' documentation", transformers_docs)]


def line(name, errors):
    size = sorted(abs(e) for e in errors)
    return "| %s | %.1f %% | %.1f %% | %.0f %% | %.0f %% |" % (
        name, 100 * estimate_rows.percentile(size, 0.5), 100 * estimate_rows.percentile(size, 0.95), 100 * size[-1],
        100 * sum(e < -0.02 for e in errors) / len(errors))


def main():
    p = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    p.add_argument("rows", nargs="*", default=ROWS)
    p.add_argument("--vplan", default="build/vplan")
    a = p.parse_args()
    errors, mine, refused = {name: [] for name, _ in PEERS}, [], 0
    with tempfile.TemporaryDirectory() as scratch:
        for path in a.rows:
            rows = list(csv.DictReader(x for x in open(path) if not x.startswith("#")))
            for r, row in zip(rows, estimate_rows.read(path, scratch)):
                command = [a.vplan, "estimate", row["model"], "--trainer", "torch", "--json"] + row["options"]
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                if done.returncode:
                    refused += 1
                    continue
                j, there = json.loads(done.stdout), int(r["reserved"])
                mine.append(j["reserved_peak_bytes"] / there - 1)
                run = Run(r, j["model"]["params_total"])
                for name, formula in PEERS:
                    errors[name].append(formula(run) / there - 1)
    print("%d training steps of %s; %d refused by vplan\n" % (len(mine), ", ".join(map(os.path.basename, a.rows)), refused))
    print("| estimator | median error | 95 % of rows | worst | under |\n|---|---:|---:|---:|---:|")
    print(line("**vplan**", mine))
    for name, _ in sorted(PEERS, key=lambda x: estimate_rows.percentile([abs(e) for e in errors[x[0]]], 0.5)):
        print(line(name, errors[name]))


if __name__ == "__main__":
    main()
