#!/usr/bin/env python3
"""`vplan estimate --trainer torch --world N` and other estimators' formulas on the same played ranks, as a table.

    bench/estimate_worlds.py [ROWS.csv] [--vplan build/vplan]

What is estimated is the peak of reserved bytes of rank 0 (what nvidia-smi shows of one card, less the context and NCCL). Formulas as in
estimate_peers.py, with the division by cards that their sources have; each over the rows that it takes: DeepSpeed's estimators know ZeRO 2
and 3, and no activations.
"""
import argparse
import csv
import json
import os
import subprocess
import tempfile

import estimate_peers
from estimate_peers import Run, line

ROWS = os.path.join(estimate_peers.GOLDEN, "worlds.csv")
STAGE = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp2": 3}


def deepspeed(r):                      # runtime/zero/stage_1_and_2.py and stage3.py: one node, no activations
    if r.parallel == "zero2":
        return 2 * r.P if r.offload != "none" else 2 * r.P + 18 * r.P / r.world
    if r.parallel != "zero3":
        return None
    largest = 4 * max(r.V * r.h, 4 * r.h * r.h + 3 * r.h * r.f)
    return largest + {"params": 0, "optimizer": 2, "none": 18}[r.offload] * r.P / r.world


def states(r, weights, gradients, optimizer):
    """Bytes of what is kept, cut by stage; what is offloaded is not on the card."""
    stage = STAGE[r.parallel]
    share = [n / (r.world if stage >= at else 1) for n, at in ((weights, 3), (gradients, 2), (optimizer, 1))]
    return r.P * ((share[0] if r.offload != "params" else 0) + share[1] + (share[2] if r.offload == "none" else 0))


def cookbook(r):                       # EleutherAI/cookbook calc_transformer_mem.py, with its buckets of 5e8 elements
    whole = r.P * ((4 if r.compute == 4 else 2) + 4 + (12 if r.adam else 8))
    buckets = 0 if not r.parallel.startswith("zero") else 2 * 5e8 * (3 if r.parallel == "zero3" else 1)
    return estimate_peers.cookbook(r) - whole + states(r, 4 if r.compute == 4 else 2, 4, 12 if r.adam else 8) + buckets


def llm_analysis(r):
    whole = r.P * (r.compute + 4 + (12 if r.adam else 8))
    return estimate_peers.llm_analysis(r) - whole + states(r, r.compute, 4, 12 if r.adam else 8)


def paper(r):                          # arXiv 1910.02054: 2 + 2 + 12 bytes a parameter, cut by stage
    return estimate_peers.zero_paper(r) - 16 * r.P + states(r, 2, 2, 12)


PEERS = [("DeepSpeed's ZeRO 2 and 3 estimators", deepspeed), ("EleutherAI cookbook", cookbook), ("llm-analysis", llm_analysis), ("ZeRO paper", paper)]


def estimate(vplan, r, scratch):
    path = os.path.join(scratch, "config.json")
    with open(path, "w") as f:
        f.write(r["config"])
    options = [x for k in ("world", "parallel", "offload", "precision", "attention", "recompute", "optimizer", "micro_batch", "seq", "accumulation")
               for x in ("--" + k.replace("_", "-"), r[k])]
    done = subprocess.run([vplan, "estimate", path, "--trainer", "torch", "--json"] + options, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def main():
    p = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    p.add_argument("rows", nargs="?", default=ROWS)
    p.add_argument("--vplan", default="build/vplan")
    a = p.parse_args()
    rows = list(csv.DictReader(x for x in open(a.rows) if not x.startswith("#")))
    errors, mine, allocated = {name: [] for name, _ in PEERS}, [], []
    with tempfile.TemporaryDirectory() as scratch:
        for r in rows:
            j, there = estimate(a.vplan, r, scratch), int(r["reserved"])
            mine.append(j["reserved_peak_bytes"] / there - 1)
            allocated.append(j["allocated_peak_bytes"] / max(int(v) for k, v in r.items() if k.startswith("allocated_")) - 1)
            run = Run(r, j["model"]["params_total"])
            run.parallel, run.world, run.offload = r["parallel"], int(r["world"]), r["offload"]
            for name, formula in PEERS:
                if formula(run) is not None:
                    errors[name].append(formula(run) / there - 1)
    print("%d ranks of %s\n" % (len(rows), os.path.basename(a.rows)))
    print("| estimator | median error | 95 % of rows | worst | under |\n|---|---:|---:|---:|---:|")
    print(line("**vplan**, allocated", allocated))
    print(line("**vplan**", mine))
    for name, _ in PEERS:
        print(line("%s (%d rows)" % (name, len(errors[name])), errors[name]))


if __name__ == "__main__":
    main()
