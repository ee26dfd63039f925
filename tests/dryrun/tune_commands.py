#!/usr/bin/env python3
# tests/dryrun/tune_commands.py: vplan tune -- CMD against dry runs of the whole space, on real PyTorch commands.
#     python3 tests/dryrun/tune_commands.py --vplan build/vplan --python PYTHON [--only NAME] [-o results.json]
# For each command and card: the returned setting fits in the exhaustive search, nothing that fits there is predicted to be
# faster, and its peaks are those of an independent dry run.
import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile

p = argparse.ArgumentParser()
p.add_argument("--vplan", default="build/vplan")
p.add_argument("--python", default="python3")
p.add_argument("--only")
p.add_argument("--cards")
p.add_argument("-o", dest="out")
a = p.parse_args()
here = os.path.dirname(os.path.abspath(__file__))
vplan = os.path.abspath(a.vplan)
scripts = os.path.join(here, "scripts")
loop = [a.python, os.path.join(scripts, "tunable.py")]
batches = {"--batch": [1, 2, 4, 8, 16, 32], "--accum": [32, 16, 8, 4, 2, 1]}
kept = lambda s: int(s["--batch"]) * int(s["--accum"]) == 32
more = dict(batches, **{"--ckpt": [0, 1], "--optim": ["foreach", "fused"]})
train = "--per_device_train_batch_size", "--gradient_accumulation_steps"
COMMANDS = {
    "plain loop": (loop + ["--batch", "4", "--accum", "8", "--ckpt", "0", "--optim", "foreach"], more,
                   ["--keep", "batch*accum=32"], kept),
    "gpt2": (loop + ["--model", "gpt2", "--batch", "4", "--accum", "8", "--ckpt", "0", "--attention", "eager"],
             dict(batches, **{"--ckpt": [0, 1], "--attention": ["eager", "sdpa"]}), ["--keep", "batch*accum=32"], kept),
    "lora": (loop + ["--model", "lora", "--batch", "4", "--accum", "8", "--ckpt", "1", "--optim", "foreach"], more,
             ["--keep", "batch*accum=32"], kept),
    "trainer": ([a.python, os.path.join(scripts, "trainer.py"), "out", "--per_device_train_batch_size", "4",
                 "--gradient_accumulation_steps", "4", "--gradient_checkpointing", "False", "--optim", "adamw_torch"], None, [],
                lambda s: int(s[train[0]]) * int(s[train[1]]) == 16),
}
KNOWN = {train[0]: [1, 2, 4, 8, 16], train[1]: [16, 8, 4, 2, 1], "--gradient_checkpointing": ["False", "True"],
         "--optim": ["adamw_torch", "adamw_torch_fused"]}
CARDS = [("l4", {"plain loop": "1300MiB", "gpt2": "1400MiB", "lora": "1000MiB", "trainer": "420MiB"}),
         ("h100-sxm-80gb", {"plain loop": "2000MiB", "gpt2": "1900MiB", "lora": "1500MiB", "trainer": "900MiB"}),
         ("t4-16gb", {"plain loop": "16GB", "gpt2": "900MiB", "lora": "700MiB", "trainer": "350MiB"})]
rows, failed = [], 0


def replaced(command, setting):
    command = list(command)
    for name, value in setting.items():
        if name in command:
            command[command.index(name) + 1] = str(value)
        else:
            command += [name, str(value)]
    return command


def dry(command, card, budget):
    with tempfile.TemporaryDirectory() as cwd:
        out = subprocess.run([vplan, "dryrun", "--json", "--no-owners", "--time", "--steps", "3", "--device", card, "--budget",
                              budget, "--"] + command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=cwd)
    return json.loads(out.stdout)


for name, (command, axes, keep, is_kept) in COMMANDS.items():
    if a.only and name != a.only:
        continue
    for card, budgets in CARDS:
        if a.cards and card not in a.cards.split(","):
            continue
        budget = budgets[name]
        with tempfile.TemporaryDirectory() as cwd:
            words = [vplan, "tune", "--json", "--device", card, "--budget", budget] + keep
            for axis, values in (axes or {}).items():
                words += ["--try", "%s=%s" % (axis, ",".join(str(v) for v in values))]
            out = subprocess.run(words + ["--"] + command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd)
        d = json.loads(out.stdout)
        space = axes or KNOWN
        settings = [s for s in (dict(zip(space, v)) for v in itertools.product(*space.values())) if is_kept(s)]
        runs = [(s, dry(replaced(command, s), card, budget)) for s in settings]
        fits = [(r["time"]["samples_per_s"], s, r) for s, r in runs if r["verdict"] == "fits" and not r.get("oom") and r.get("time")]
        wrong = []
        if d.get("best") is None:
            wrong += ["nothing was returned"] if fits else []
        else:
            mine = {k: str(v) for k, v in d["best"]["settings"].items()}
            same = [(f, r) for f, s, r in fits if {k: str(v) for k, v in s.items()} == mine]
            if not same:
                wrong.append("the returned setting does not fit in the exhaustive search")
            else:
                fastest = max(f for f, s, r in fits)
                if fastest > same[0][0] * (1 + 1e-9):
                    wrong.append("%.4g %% slower than the fastest that fits" % (100 * (fastest / same[0][0] - 1)))
                if (same[0][1]["allocated_peak_bytes"], same[0][1]["reserved_peak_bytes"]) != (
                        d["best"]["allocated_peak_bytes"], d["best"]["reserved_peak_bytes"]):
                    wrong.append("other peaks in an independent dry run")
        n = len(d.get("trials", []))
        row = {"command": name, "card": card, "budget": budget, "space": len(settings), "fit": len(fits), "trials": n,
               "best": (d.get("best") or {}).get("settings"), "allocated_peak_bytes": (d.get("best") or {}).get("allocated_peak_bytes"),
               "samples_per_s": (d.get("best") or {}).get("samples_per_s"), "seconds": d.get("timing", {}).get("seconds"),
               "had_samples_per_s": (d.get("had") or {}).get("samples_per_s"), "wrong": wrong}
        rows.append(row)
        failed += bool(wrong)
        print("%-11s %-14s %-8s %2d of %2d fit, %2d trials, %.0f s: %s %s" % (
            name, card, budget, len(fits), len(settings), n, row["seconds"] or 0, row["best"], "; ".join(wrong) or "right"), flush=True)
        if a.out:
            with open(a.out, "w") as f:
                json.dump({"schema_version": 1, "rows": rows}, f, indent=1)
                f.write("\n")
print("%d commands and cards, %d wrong" % (len(rows), failed))
sys.exit(failed != 0)
