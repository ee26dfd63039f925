#!/usr/bin/env python3
"""Tokens a second that others have published for whole training runs, beside what `vplan plan` predicts without a profile.

    bench/published_speed.py [--check] [--commit SHA]

Each row is somebody's run: model, card, sequence, micro-batch, precision, tokens a second of one card, where it stands. vplan
plans the same model, sequence, micro-batch and precision on that card (--within 0) and computes again only what does not fit.
Nothing here sets an efficiency: those stand in devices/efficiency.c, from measurements of single kernels.

The ceiling is what no program passes: products and attention at the best rate that anybody has published for a single kernel on
that card (else the stated peak), and 32 bytes for each of a token's elements in a layer at the stated bandwidth.

--check: no results file; exit 1 unless no prediction is above its ceiling and the median is within 20 % of the published."""
import json
import os
import sys
import tempfile

import bench_common as common

LLM_C = "karpathy/llm.c f1e2ace, scripts/run_gpt2_%s.sh"
LLM_Q = "IST-DASLab/llmq b77d969, benchmarks/%s.md, BF16"
MPT = "mosaicml/llm-foundry 8c8dd48, scripts/train/benchmarking/README.md"
TINYLLAMA = "jzhang38/TinyLlama, README.md: 24k a second of each A100-40G, 16k tokens a card"
SPEEDRUN = "KellerJordan/modded-nanogpt, llm.c as its baseline: 19,560 steps of 524,288 tokens in 45 minutes on 8 cards"

# MPT is GPT-2's block of these sizes: width, heads, layers. Its runs are eager PyTorch of 2023 under FSDP, kernels unfused: slower
# than the planned programs by what that costs. Six of the many rows of its table, so that one program does not outvote the others
MPT_SIZES = {"mpt-125m": (768, 12, 12), "mpt-350m": (1024, 16, 24), "mpt-760m": (1536, 12, 24), "mpt-1b": (2048, 16, 24), "mpt-3b": (2560, 20, 32)}

MIXED = ("--precision", "bf16-mixed")
ROUNDED = ("--precision", "bf16", "--optimizer", "adamw-bf16")   # LLM.Q: bf16 weights and states, rounded stochastically

# (model, card, sequence, micro-batch, cards, settings, published tokens a second of one card, where)
ROWS = [
    ("gpt2", "a100-sxm-80gb", 1024, 64, 8, MIXED, 524288 / 0.300 / 8, LLM_C % "124M"),
    ("gpt2-medium", "a100-sxm-80gb", 1024, 64, 8, MIXED, 524288 / 0.820 / 8, LLM_C % "350M"),
    ("gpt2", "h100-sxm-80gb", 1024, 64, 8, MIXED, 19560 * 524288 / (45 * 60) / 8, SPEEDRUN),
    ("gpt2-xl", "h100-sxm-80gb", 1024, 16, 8, MIXED, 1048576 / 2.80 / 8, LLM_C % "1558M"),
    ("qwen2.5-0.5b", "h100-sxm-80gb", 1024, 32, 1, ROUNDED, 149000, LLM_Q % "H100x1"),
    ("qwen2.5-1.5b", "h100-sxm-80gb", 1024, 32, 1, ROUNDED, 58710, LLM_Q % "H100x1"),
    ("qwen2.5-3b", "h100-sxm-80gb", 1024, 16, 1, ROUNDED, 30958, LLM_Q % "H100x1"),
    ("qwen2.5-7b", "h100-sxm-80gb", 1024, 4, 1, ROUNDED, 13863, LLM_Q % "H100x1"),
    ("qwen2.5-0.5b", "rtx-4090-24gb", 1024, 16, 1, ROUNDED, 39842, LLM_Q % "4090x1"),
    ("qwen2.5-1.5b", "rtx-4090-24gb", 1024, 4, 1, ROUNDED, 14063, LLM_Q % "4090x1"),
    ("qwen2.5-0.5b", "rtx-5060-ti-16gb", 1024, 10, 1, ROUNDED, 13009, LLM_Q % "5060Ti"),
    ("qwen2.5-0.5b", "rtx-pro-6000-96gb", 1024, 32, 1, ROUNDED, 85991, LLM_Q % "Pro6000x1"),
    ("qwen2.5-1.5b", "rtx-pro-6000-96gb", 1024, 32, 1, ROUNDED, 32401, LLM_Q % "Pro6000x1"),
    ("qwen2.5-3b", "rtx-pro-6000-96gb", 1024, 16, 1, ROUNDED, 17186, LLM_Q % "Pro6000x1"),
    ("tinyllama-1.1b", "a100-sxm-40gb", 2048, 8, 16, ROUNDED, 24000, TINYLLAMA),
    ("mpt-125m", "a100-sxm-40gb", 2048, 26, 8, ROUNDED, 136334, MPT),
    ("mpt-350m", "a100-sxm-40gb", 2048, 16, 8, ROUNDED, 55995, MPT),
    ("mpt-760m", "a100-sxm-40gb", 2048, 12, 8, ROUNDED, 30173, MPT),
    ("mpt-1b", "a100-sxm-80gb", 2048, 14, 8, MIXED, 20513, MPT),
    ("mpt-1b", "h100-sxm-80gb", 2048, 14, 8, MIXED, 45455, MPT),
    ("mpt-3b", "h100-sxm-80gb", 1024, 20, 8, MIXED, 27046, MPT),
]

# Best published rates of single kernels, FLOP/s: products (stas00/ml-engineering, MAMF table); attention forward and backward
# with heads of 64 and of 128 (flash2_a100_fwd_bwd_benchmark.png; arXiv:2407.08608, figures 5 and 6).
BEST = {
    "a100": {"product": 271.2e12, 64: (178e12, 178e12), 128: (205e12, 205e12)},
    "h100": {"product": 794.5e12, 64: (497e12, 474e12), 128: (648e12, 561e12)},
}


def config_of(model, dir):
    """The model's name, or the path of its config."""
    if model not in MPT_SIZES:
        return model
    width, heads, layers = MPT_SIZES[model]
    path = os.path.join(dir, model + ".json")
    with open(path, "w") as f:
        json.dump({"model_type": "gpt2", "n_embd": width, "n_head": heads, "n_layer": layers, "n_positions": 2048, "vocab_size": 50368,
                   "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}, f)
    return path


def sizes(config):
    """(width, head's width, layers) of a config."""
    width = config.get("n_embd") or config["hidden_size"]
    heads = config.get("n_head") or config["num_attention_heads"]
    return width, width // heads, config.get("n_layer") or config["num_hidden_layers"]


def ceiling(plan_file, device, tokens):
    """Tokens a second that no program passes."""
    with open(plan_file) as f:
        plan = json.load(f)
    width, head, layers = sizes(plan["model"]["config"])
    best = next((b for name, b in BEST.items() if device["name"].startswith(name)), None)
    peak = device["bf16_flop_per_s"]
    forward, backward = best[64 if head <= 64 else 128] if best else (peak, peak)
    seq = plan["settings"]["seq"]
    attention = 2.0 * layers * seq * width          # FLOP of a token's forward, causal
    explained = plan["explained"]["model_flop"] / tokens
    seconds = (explained - 3 * attention) / (best["product"] if best else peak) + attention / forward + 2 * attention / backward
    return 1 / (seconds + 32.0 * width * layers / device["memory_bytes_per_s"])


def predict(args, row, dir):
    model, card, seq, micro, _, settings, _, _ = row
    path = os.path.join(dir, "plan.json")
    vplan = common.program(args, "vplan")
    job = [config_of(model, dir), "--device", card, "--seq", str(seq), "--global-batch", str(8 * micro), "--micro-batch", str(micro)]
    answer = common.answer([vplan, "plan", *job, *settings, "--within", "0", "-o", path, "--force", "--json"], (0, 3))
    if answer["peak_bytes"] is None:
        common.fail(f"{model} on {card} does not fit")
    device = common.answer([vplan, "devices", card, "--json"])["devices"][0]
    with open(path) as f:
        plan = json.load(f)
    plan["explained"] = common.answer([vplan, "explain", path, "--roofline", "--json"])
    plan["settings"] = {"seq": seq}
    with open(path, "w") as f:
        json.dump(plan, f)
    return {"tokens_per_s": answer["tokens_per_s"], "mfu": answer["mfu"], "recompute": answer["decisions"]["recompute"],
            "ceiling_tokens_per_s": ceiling(path, device, 8 * micro * seq)}


def main():
    p = common.parser(__doc__)
    p.add_argument("--check", action="store_true", help="judge, record nothing")
    args = p.parse_args()
    rows, above, off = [], [], []
    with tempfile.TemporaryDirectory() as dir:
        for row in ROWS:
            model, card, seq, micro, cards, settings, published, where = row
            predicted = predict(args, row, dir)
            rows.append({"name": f"{model} on {card}, sequence {seq}, micro-batch {micro}, {settings[1]}", "predicted": predicted,
                         "measured": {"tokens_per_s": round(published), "cards": cards, "source": where}, "raw_seconds": []})
            off.append(predicted["tokens_per_s"] / published - 1)
            if predicted["tokens_per_s"] > predicted["ceiling_tokens_per_s"]:
                above.append(rows[-1]["name"])
            print(f"{rows[-1]['name']:<72} {published:9,.0f} {predicted['tokens_per_s']:9,.0f} {100 * off[-1]:+6.1f} %  "
                  f"ceiling {predicted['ceiling_tokens_per_s']:9,.0f}  MFU {100 * predicted['mfu']:.0f} %  {predicted['recompute']}", flush=True)
    middle = common.median([abs(x) for x in off])
    print(f"{len(rows)} rows, median |off| {100 * middle:.1f} %, median off {100 * common.median(off):+.1f} %, {len(above)} above the ceiling")
    if args.check:
        sys.exit(1 if above or middle > 0.2 or len(rows) < 12 else 0)
    print(common.write_results(args, "speed", "published", {}, {}, {"median_off": middle}, rows))


if __name__ == "__main__":
    main()
