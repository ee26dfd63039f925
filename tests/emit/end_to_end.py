#!/usr/bin/env python3
"""What `vplan plan --trainer` chose and `vplan emit` wrote, played by `vplan dryrun` with the real libraries: PyTorch's own peak
against the stated interval and the card, and the next larger micro-batch, which the plan called too large.

    end_to_end.py VPLAN PYTHON OUT.csv [--only TRAINER]

PYTHON has torch, transformers and accelerate. Rows that OUT.csv has are kept. Each play takes ten seconds to a minute.
"""
import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracles", "programs"))
import rows

MODELS = {"gpt2": rows.GPT2, "gpt2-large": rows.GPT2_L, "smol-135m": rows.SMOL, "qwen-0.5b": rows.QWEN, "llama-1b": rows.LLAMA_1B, "tiny-1b": rows.TINY,
          "llama-7b": rows.LLAMA_7B, "mistral-7b": rows.MISTRAL}
CASES = [  # model, card, sequence, global batch, pins
    ("gpt2", "4090", 1024, 16, ""), ("smol-135m", "l4", 2048, 16, ""), ("qwen-0.5b", "4090", 1024, 16, ""), ("llama-1b", "a100-sxm-40gb", 1024, 16, ""),
    ("gpt2", "l4", 512, 64, "--precision bf16"), ("llama-1b", "4090", 1024, 16, "--precision bf16"), ("qwen-0.5b", "h100", 2048, 32, ""),
    ("gpt2-large", "a100-sxm-40gb", 1024, 16, ""), ("tiny-1b", "4090", 1024, 8, "--precision bf16"), ("smol-135m", "h100", 2048, 64, ""),
    ("gpt2-large", "4090", 1024, 16, "--recompute full"), ("tiny-1b", "a100-sxm-40gb", 2048, 8, "--recompute full"), ("gpt2", "4090", 1024, 16, "--precision fp32"),
    ("smol-135m", "4090", 1024, 64, "--precision bf16 --optimizer adamw_torch"), ("qwen-0.5b", "l4", 1024, 8, "--precision bf16"),
    ("llama-1b", "h100", 2048, 16, "--recompute none"), ("gpt2", "l4", 1024, 16, "--attention eager"), ("qwen-0.5b", "4090", 512, 32, "--recompute full"),
    ("gpt2-large", "h100", 1024, 64, "--optimizer adamw_torch"), ("smol-135m", "l4", 1024, 32, "--precision fp32"),
    ("llama-7b", "h100", 2048, 8, "--precision bf16"), ("mistral-7b", "h100", 2048, 8, "--precision bf16"),
    ("llama-1b", "4090", 1024, 16, "--lora r=16,alpha=32,targets=all-linear"), ("qwen-0.5b", "l4", 1024, 16, "--lora r=8,targets=q_proj+v_proj --precision bf16-amp"),
]
LARGE = {"llama-7b", "mistral-7b"}  # drawn on the host by the emitted script: more memory than a small machine has
FIELDS = ["trainer", "model", "card", "seq", "global_batch", "pins", "micro_batch", "accumulation", "recompute", "allocator", "predicted_reserved", "low", "high", "played_allocated",
          "played_reserved", "miss", "in_interval", "in_card", "next_micro_batch", "next_verdict"]
LOOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "plain_loop.py")


def run(words, **more):
    p = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def play(a, folder, trainer, card, config):
    script = [LOOP, folder, config] if trainer == "torch" else ["train.py"]
    env = dict(os.environ, HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")
    launch = open(os.path.join(folder, "README.md")).read()
    if "PYTORCH_ALLOC_CONF=expandable_segments:True" in launch:
        env["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    code, out, err = run([a.vplan, "dryrun", "--device", card, "--steps", "3", "--no-owners", "--json", "--", a.python] + script, cwd=folder, env=env)
    return json.loads(out) if out else {"verdict": "failed", "why": err[-400:]}


def emit(a, settings, trainer, folder):
    code, _, err = run([a.vplan, "emit", settings, "--for", trainer, "-o", folder, "--force"])
    if code:
        sys.exit("emit %s: %s" % (trainer, err))


def one(a, trainer, model, card, seq, batch, pins, work):
    config = os.path.join(work, model + ".json")
    json.dump(MODELS[model], open(config, "w"))
    settings, folder = os.path.join(work, "s.json"), os.path.join(work, "run")
    code, out, err = run([a.vplan, "plan", config, "--trainer", trainer, "--device", card, "--seq", str(seq), "--global-batch", str(batch), "--json", "-o", settings, "--force"] + pins.split())
    row = dict(trainer=trainer, model=model, card=card, seq=seq, global_batch=batch, pins=pins)
    if code:
        return dict(row, next_verdict="plan: exit %d %s" % (code, err.strip()[:120]))
    j = json.loads(out)
    emit(a, settings, trainer, folder)
    d = play(a, folder, trainer, card, config)
    outside = j["device_bytes"] - j["reserved_peak_bytes"]
    played = d.get("reserved_peak_bytes") or 0
    row.update(micro_batch=j["common"]["micro_batch"], accumulation=j["common"]["accumulation"], recompute=j["common"]["recompute"], allocator=j["common"]["allocator"],
               predicted_reserved=j["reserved_peak_bytes"], low=j["interval"]["low_bytes"] - outside, high=j["interval"]["high_bytes"] - outside,
               played_allocated=d.get("allocated_peak_bytes"), played_reserved=played, miss="%+.4f" % (played / j["reserved_peak_bytes"] - 1),
               in_interval=int(j["interval"]["low_bytes"] <= played + outside <= j["interval"]["high_bytes"]), in_card=int(d["verdict"] == "fits"))
    larger = [m for m in range(j["common"]["micro_batch"] + 1, batch + 1) if batch % m == 0]
    if not larger:
        return dict(row, next_micro_batch="", next_verdict="none larger")
    # the settings as they are but for the micro-batch, and without bytes: nothing caps the allocator but the card
    j["common"].update(micro_batch=larger[0], accumulation=batch // larger[0])
    for key in ("allocated_peak_bytes", "reserved_peak_bytes", "device_bytes", "interval"):
        j.pop(key)
    json.dump(j, open(settings, "w"))
    emit(a, settings, trainer, folder)
    return dict(row, next_micro_batch=larger[0], next_verdict=play(a, folder, trainer, card, config)["verdict"])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("vplan", type=os.path.abspath)
    p.add_argument("python")
    p.add_argument("out")
    p.add_argument("--only")
    a = p.parse_args()
    kept = list(csv.DictReader(line for line in open(a.out) if line[0] != "#")) if os.path.exists(a.out) else []
    done = {(r["trainer"], r["model"], r["card"], r["seq"], r["global_batch"], r["pins"]) for r in kept}
    for case in CASES:
        for trainer in ("torch", "hf"):
            key = (trainer,) + tuple(str(x) for x in case)
            if key in done or (a.only and trainer != a.only) or (trainer == "hf" and case[0] in LARGE):
                continue
            with tempfile.TemporaryDirectory() as work:
                kept.append(one(a, trainer, *case, work))
            with open(a.out, "w", newline="") as f:
                f.write("# made by tests/emit/end_to_end.py\n")
                out = csv.DictWriter(f, FIELDS, lineterminator="\n")
                out.writeheader()
                out.writerows(kept)
            print(kept[-1], flush=True)


main()
