#!/usr/bin/env python3
"""Estimates of published LoRA runs on one card, as they are and calibrated on one of the runs.

    bench/peft_calibration.py RUNS.csv [--vplan build/vplan]

RUNS.csv: the runs of PEFT's own method comparison (github.com/huggingface/peft, method_comparison/MetaMathQA) with columns peft_type, r,
target_modules, batch_size, max_seq_length, reserved_max_bytes: Llama-3.2-3B in bf16 on an L40S, the largest bytes that PyTorch had reserved.
Each run that is LoRA is predicted with nothing fitted; then what `estimate --measured` keeps of one of them is used for the others.
Samples there are cut at max_seq_length, so that the largest batch is taken to have it. Other methods than LoRA have no estimate and are counted.
"""
import argparse
import csv
import json
import os
import subprocess
import tempfile


def estimate(a, run, *options):
    words = [a.vplan, "estimate", "llama-3.2-3b", "--trainer", "hf", "--json", "--device", "l40s", "--precision", "bf16", "--micro-batch", run["batch_size"],
             "--seq", run["max_seq_length"], "--lora", "r=%s,targets=%s" % (run["r"], run["target_modules"]), *options]
    p = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return json.loads(p.stdout)


def said(j, run):
    """The error of the reserved bytes, with the cache that a calibration adds."""
    return (j["reserved_peak_bytes"] + j.get("calibration", {}).get("cache_bytes", 0)) / int(run["reserved_max_bytes"]) - 1


def main():
    p = argparse.ArgumentParser()
    p.add_argument("runs")
    p.add_argument("--vplan", default="build/vplan")
    a = p.parse_args()
    rows = list(csv.DictReader(x for x in open(a.runs) if x[0] != "#"))
    runs = [r for r in rows if r["peft_type"] == "LORA" and "bdlora" not in r["experiment"]]
    print("%d runs, of which %d are LoRA; others are not estimated" % (len(rows), len(runs)))
    for run in runs:
        print("%-40s nothing fitted: %+.2f %%" % (run["experiment"], 100 * said(estimate(a, run, "--calibration", "none"), run)))
    for by in runs:
        with tempfile.TemporaryDirectory() as folder:
            seen, kept = os.path.join(folder, "seen.txt"), os.path.join(folder, "calibration")
            with open(seen, "w") as f:
                f.write("reserved %s\n" % by["reserved_max_bytes"])
            estimate(a, by, "--measured", seen, "--calibration", kept)
            for run in runs:
                if run is not by:
                    print("%-40s calibrated on %s: %+.2f %%" % (run["experiment"], by["experiment"], 100 * said(estimate(a, run, "--calibration", kept), run)))


if __name__ == "__main__":
    main()
