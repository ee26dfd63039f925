#!/usr/bin/env python3
"""Steps of a plain loop that has something else on the card, peaks by phase: rows for `vplan estimate --resident`.

    residents.py OUT.csv [--null build/null]

The loop, of torch 2.11 under autocast where the precision says so: ema and mer keep a copy of each weight; ewc keeps two, the Fisher information and the old
weights, and adds (fisher * (weight - old) ** 2).sum() of each weight to the loss, outside autocast; reference and teacher are a second model that is asked without
gradients behind the model's forward pass, whose logits go before backward, or behind it. Card and rest as rows.py has them.
"""
import argparse
import contextlib
import csv
import gc
import json
import os
import sys

import loops
import play
import rows

SMOL, LLAMA, QWEN, GPT2 = (rows.MODELS[n] for n in ("smollm2-135m", "llama-3.2-1b", "qwen2.5-0.5b", "gpt2"))
GPT2_M, QWEN3, MISTRAL, PHI3, GEMMA2 = (rows.MODELS[n] for n in ("gpt2-medium", "qwen3-0.6b", "mistral-7b", "phi3-mini", "gemma2-2b"))
COLUMNS = ["resident", "model", "config", "second", "precision", "recompute", "optimizer", "micro_batch", "seq"]
ROWS = [
    ("ema", "smollm2-135m", SMOL, None, "fp32", "none", "adamw_torch", 4, 512),
    ("ema", "qwen2.5-0.5b", QWEN, None, "bf16-mixed", "full", "adamw_torch_fused", 2, 1024),
    ("mer", "smollm2-135m", SMOL, None, "bf16-mixed", "none", "sgd", 8, 256),
    ("ewc", "smollm2-135m", SMOL, None, "fp32", "none", "adamw_torch", 2, 512),
    ("ewc", "qwen2.5-0.5b", QWEN, None, "bf16-mixed", "full", "adamw_torch_fused", 2, 512),
    ("ewc", "gpt2", GPT2, None, "bf16-mixed", "none", "adamw_torch_fused", 4, 512),
    ("ewc", "llama-3.2-1b", LLAMA, None, "bf16", "full", "sgd_momentum", 2, 1024),
    ("reference", "smollm2-135m", SMOL, None, "bf16-mixed", "none", "adamw_torch_fused", 4, 512),
    ("reference", "llama-3.2-1b", LLAMA, None, "bf16", "full", "adamw_torch", 2, 1024),
    ("teacher", "smollm2-135m", SMOL, None, "bf16-mixed", "full", "adamw_torch_fused", 2, 1000),
    ("teacher", "qwen2.5-0.5b", QWEN, rows.MODELS["qwen2.5-1.5b"], "bf16", "none", "adamw_torch", 4, 512),
    ("teacher", "gpt2", GPT2, GPT2_M, "bf16-mixed", "none", "adamw_torch_fused", 4, 768),
    ("teacher", "smollm2-135m", SMOL, LLAMA, "fp32", "none", "sgd", 2, 512),
    ("reference", "gpt2", GPT2, None, "fp32", "none", "adamw_torch", 3, 640),
    ("reward", "smollm2-135m", SMOL, None, "bf16-mixed", "none", "adamw_torch_fused", 4, 512),
    ("reward", "qwen2.5-0.5b", QWEN, LLAMA, "bf16", "full", "adamw_torch", 2, 1024),
    ("reward", "llama-3.2-1b", LLAMA, QWEN, "bf16-amp", "full", "adamw_torch_fused", 4, 384),
    ("reward", "gpt2", GPT2, GPT2_M, "fp32", "none", "sgd", 4, 256),
    ("reward", "qwen3-0.6b", QWEN3, None, "bf16-mixed", "none", "adamw_torch_fused", 2, 768),
    ("reference", "qwen3-0.6b", QWEN3, MISTRAL, "bf16-amp", "full", "adamw_torch_fused", 2, 512),
    ("teacher", "smollm2-135m", SMOL, PHI3, "bf16-mixed", "none", "adamw_torch", 3, 384),
    ("teacher", "gemma2-2b", GEMMA2, None, "bf16", "full", "adamw_torch_fused", 2, 512),
]


def fields(config):
    return config["model_type"], {k: v for k, v in config.items() if k not in ("model_type", "architectures")}


def measure(row):
    import torch
    kind, name, config, second, precision, recompute, opt, batch, seq = row
    torch.backends.cudnn.enabled = False
    play.choose_attention("sdpa:flash")
    v = dict(task="clm", precision=precision, attention="sdpa:flash", lora="none", recompute=recompute, quantised="none", upcast=0, trainer="torch",
             mask=0, keep_output=0, r=0, lora_dropout=0, liger=0)
    peaks = {}

    def end(phase):
        s = torch.cuda.memory_stats()
        peaks["allocated_" + phase] = s["allocated_bytes.all.peak"]
        peaks["reserved"] = max(peaks.get("reserved", 0), s["reserved_bytes.all.peak"])
        torch.cuda.reset_peak_memory_stats()
    m = play.make_model(v, fields(config))
    other = None
    if kind in ("reference", "teacher"):
        other = play.make_model(dict(v, recompute="none"), fields(second or config)).eval()
    elif kind == "reward":
        family, of = fields(second or config)
        other = play.make_model(dict(v, recompute="none", task="seqcls"), (family, dict(of, num_labels=1, pad_token_id=of.get("pad_token_id") or 0))).eval()
    params = list(m.parameters())
    copies = [[p.detach().clone() for p in params] for _ in range({"ema": 1, "mer": 1, "ewc": 2}.get(kind, 0))]
    gc.collect()
    end("load")
    opt = rows.optimizer(opt, params, m)
    inputs = play.batch(v, dict(B=batch, S=seq))
    unlabelled = {k: x for k, x in inputs.items() if k != "labels"}

    def autocast():
        return torch.autocast("cuda", dtype=torch.bfloat16) if loops.has_autocast(v) else contextlib.nullcontext()
    for step in (1, 2):
        with autocast():
            out = m(**inputs)
        loss = out.loss
        out = logits = None
        if kind == "ewc":
            penalty = 0
            for p, fisher, old in zip(params, *copies):
                penalty = penalty + (fisher * (p - old) ** 2).sum()
            loss = loss + penalty
            penalty = None
        if other is not None:
            with torch.no_grad(), autocast():
                logits = other(**unlabelled).logits
            if kind == "reference":
                logits = None
        end("forward%d" % step)
        loss.backward()
        loss = logits = None
        end("backward%d" % step)
        opt.step()
        end("step%d" % step)
        opt.zero_grad(set_to_none=True)
        torch.cuda.reset_peak_memory_stats()
    return peaks


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--null", default="build/null")
    a = p.parse_args()
    play.prepare(os.path.abspath(a.null), processors=132)
    import torch
    import transformers
    play.quiet()
    torch._C._cuda_getDeviceCount = lambda: 1
    done = sum(not x.startswith("#") for x in open(a.out)) - 1 if os.path.exists(a.out) else 0
    with open(a.out, "a" if done > 0 else "w", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        if done <= 0:
            f.write("# made by tests/oracles/programs/residents.py: torch %s, transformers %s\n" % (torch.__version__.split("+")[0], transformers.__version__))
            out.writerow(COLUMNS + ["reserved"] + ["allocated_" + p for p in rows.PHASES])
        for row in ROWS[max(done, 0):]:
            got = play.in_child(lambda row=row: measure(row))
            if "failed" in got:
                sys.exit("%s: %s" % (row[:2], got["failed"]))
            out.writerow([*row[:2], json.dumps(row[2]), json.dumps(row[3]) if row[3] else "", *row[4:], got["reserved"]] +
                         [got["allocated_" + p] for p in rows.PHASES])
            f.flush()


if __name__ == "__main__":
    main()
