#!/usr/bin/env python3
"""What the decomposition saves: GPT-2 at full length, one binary for each block and strategy in GLPK's branch and bound, beside `vplan plan`.

    bench/per_layer_ilp.py [--models gpt2,gpt2-medium] [--fractions 0.25,0.5,0.9] [--commit SHA]

One micro-batch and the loss at once are pinned; five segment lengths are left, and every strategy of every block. Sequence 1024 and
global batch 8 on an H200. Budgets lie at fractions of the way from the least that fits to what the fastest plan needs. The undivided program has 60 seconds and then says
"limit"; the decomposed answer's seconds are those of planning, its proof included. Only times are compared here."""
import json
import subprocess

import bench_common as common

SETTINGS = ["--device", "h200", "--precision", "fp32", "--seq", "1024", "--global-batch", "8", "--micro-batch", "2", "--loss", "full"]


def plan(args, model, *options):
    run = subprocess.run([common.program(args, "vplan"), "plan", model, *SETTINGS, *options, "--within", "0", "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, timeout=300)
    if run.returncode not in (0, 3):
        common.fail(f"vplan plan {model}: exit {run.returncode}: {run.stderr.strip()[-300:]}")
    return json.loads(run.stdout)


def measure(args, model, budget):
    a = plan(args, model, "--budget", str(budget), "--monolithic")
    m = a["monolithic"]
    return {"name": f"{model}, {budget} bytes", "predicted": None, "raw_seconds": [a["timing"]["seconds"], a["timing"]["monolithic_seconds"]], "measured": {
        "budget_bytes": budget, "decomposed_seconds": a["timing"]["seconds"], "decomposed_status": a["proof"]["status"], "gap": a["proof"]["gap"],
        "step_time_s": a["step_time_s"], "monolithic_seconds": a["timing"]["monolithic_seconds"], "monolithic": m}}


def main():
    p = common.parser(__doc__)
    p.add_argument("--models", default="gpt2,gpt2-medium")
    p.add_argument("--fractions", default="0.25,0.5,0.9")
    args = p.parse_args()
    rows, load_before = [], common.load()
    print(f"{'':14s}{'budget, bytes':>16s}{'decomposed':>12s}{'proof':>9s}{'undivided':>11s}{'':>12s}{'columns':>9s}{'rows':>6s}")
    for model in args.models.split(","):
        least, most = plan(args, model, "--budget", "1")["proof"]["least_budget_bytes"], plan(args, model)["device_bytes"]
        for fraction in args.fractions.split(","):
            rows.append(measure(args, model, least + int((most - least) * float(fraction))))
            r = rows[-1]["measured"]
            m = r["monolithic"]
            print(f"{model:14s}{r['budget_bytes']:>16,d}{r['decomposed_seconds']:>10.2f} s{r['decomposed_status']:>9s}{r['monolithic_seconds']:>9.2f} s"
                  f"{m['status']:>12s}{m['columns']:>9d}{m['rows']:>6d}{'  NOT EQUAL' if m['equal'] is False else ''}", flush=True)
    print("written to", common.write_results(args, "per-layer-ilp", "cpu", {}, dict(common.machine(), load_before=load_before, load_after=common.load()),
                                             {"planned_for": SETTINGS, "fractions": args.fractions}, rows))


main()
