#!/usr/bin/env python3
"""How far what `vplan tune` chooses is from the best of many plans run beside it, from a right and from a wrong profile.

    bench/tune_regret.py [--model gpt2] [--seq 128] [--global-batch 2] [--budgets 3] [--others 30] [--repeats 5] [--steps 4] [--commit SHA]

At each budget (a tenth, a half and nine tenths of the way from the least that fits to what the fastest plan takes): tune; tune
again from the profile it measured with every call scaled by x0.5 to x2 at random; then at least `others` different plans that
fit (every preset, every pin of micro-batch and recompute, the best within ever smaller budgets, with and without the profile).
All of them run in turns, `repeats` rounds of one process each, and a plan counts at every budget it fits. A run is the median of
its steps but the first, a plan the median of its runs; regret is the chosen plan's time over the best other's, less 1."""
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile

import bench_common as common

RECOMPUTE = ("none", "attention", "mlp", "full")


def call(args, command, allowed=(0,)):
    r = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if r.returncode not in allowed:
        common.fail(f"{' '.join(command)}: exit {r.returncode}: {r.stderr.strip()[-2000:]}")
    return json.loads(r.stdout) if r.stdout.strip() else {}


def job(args):
    return [args.model, "--device", "cpu", "--seq", str(args.seq), "--global-batch", str(args.global_batch)]


def plan(args, path, budget, *options):
    """What plan answers; its file at path unless it does not fit."""
    return call(args, [common.program(args, "vplan"), "plan", *job(args), "--budget", str(budget), "-o", path, "--force", "--json", *options], (0, 3))


def tune(args, path, study, budget, *options):
    return call(args, [common.program(args, "vplan"), "tune", *job(args), "--budget", str(budget), "--study", study, "--max-trials", str(args.max_trials),
                       "-o", path, "--force", "--json", *options])


def measured_profile(study, path, scale):
    """The rows a study measured, as a profile file; scale(row) multiplies its seconds."""
    rows = {}
    with sqlite3.connect(study) as db:
        for kernel, shape, seconds in db.execute("SELECT kernel, shape, seconds FROM profile_row JOIN profile ON id = profile_id WHERE kind = 'measured' ORDER BY id"):
            ints = {k: v if k == "dtype" else int(v) for k, v in (pair.split("=") for pair in shape.split(",") if pair)}
            rows[kernel, shape] = {"kernel": kernel, **ints, "seconds": seconds * scale()}
    with open(path, "w") as f:
        json.dump({"schema_version": 1, "device": "cpu", "backend": "from a study", "rows": list(rows.values())}, f)
    return path


def add_others(args, dir, pool, budget, floor, profile):
    """Plans within the budget into pool, {decisions: (name, path, device_bytes)}, until `others` of it fit the budget; at each
    budget every pin and the best within a few smaller budgets, whatever the pool holds already."""
    def add(name, limit, *options):
        path = f"{dir}/other-{len(pool)}.json"
        answer = plan(args, path, limit, *options)
        key = json.dumps(answer.get("decisions"), sort_keys=True)
        if answer.get("peak_bytes") is not None and answer["device_bytes"] <= budget and key not in pool:
            pool[key] = (name, path, answer["device_bytes"])

    def enough():
        return sum(bytes <= budget for _, _, bytes in pool.values()) >= args.others

    micros = [m for m in range(1, args.global_batch + 1) if args.global_batch % m == 0]
    for m in micros:
        for recompute in RECOMPUTE:
            add(f"micro-batch {m}, recompute {recompute}", budget, "--micro-batch", str(m), "--recompute", recompute, "--loss", "full", "--profile", profile)
    n_steps = 4
    while n_steps == 4 or not enough() and n_steps <= 256:
        for i in range(n_steps):
            limit = budget - (budget - floor) * i // n_steps
            if n_steps == 4 or not enough():
                add(f"best within {limit}", limit, "--profile", profile)
            for m in micros if not enough() else ():
                add(f"best within {limit}, micro-batch {m}", limit, "--micro-batch", str(m), "--profile", profile)
                add(f"best within {limit}, micro-batch {m}, assumed times", limit, "--micro-batch", str(m))
        n_steps *= 4


def run(args, path):
    steps = call(args, [common.program(args, "vplan"), "run", path, "--steps", str(args.steps), "--json"])["steps"]
    return common.median([s["seconds"] for s in steps[1:]])


def choose(args, dir, label, budget):
    """What tune chooses at a budget, from no profile and from a wrong one, and the profile it measured."""
    study, wrong_study = f"{dir}/study-{label}.db", f"{dir}/wrong-{label}.db"
    rng = random.Random(args.seed)
    right = tune(args, f"{dir}/right-{label}.json", study, budget)
    profile = measured_profile(study, f"{dir}/measured-{label}.json", lambda: 1)
    wrong_profile = measured_profile(study, f"{dir}/wrong_profile-{label}.json", lambda: 2 ** rng.uniform(-1, 1))
    wrong = tune(args, f"{dir}/wrong-{label}.json", wrong_study, budget, "--profile", wrong_profile)
    print(f"{label}: tuned, {len(right['trials'])} and {len(wrong['trials'])} trials", file=sys.stderr, flush=True)
    return right, wrong, profile


def in_turns(args, paths):
    """{path: seconds of each round}, every plan once a round in a drawn order."""
    rng, seconds = random.Random(args.seed), {path: [] for path in paths}
    for r in range(args.repeats):
        order = list(paths)
        rng.shuffle(order)
        for path in order:
            seconds[path].append(run(args, path))
        print(f"round {r + 1} of {args.repeats}, {len(paths)} plans", file=sys.stderr, flush=True)
    return seconds


def budget_rows(label, budget, chosen, others, seconds):
    """The two chosen plans, then every other plan within the budget, each against the best of these others."""
    plans  = [("chosen", chosen[0]["best"]["plan"]), ("chosen from a wrong profile", chosen[1]["best"]["plan"])]
    plans += [(name, path) for name, path, bytes in others if bytes <= budget]
    medians = [common.median(seconds[path]) for _, path in plans]
    best_other = min(medians[2:])
    rows = []
    for k, (name, path) in enumerate(plans):
        with open(path) as f:
            prediction = json.load(f)["prediction"]["step_time_s"]
        row = {"name": f"{label}: {name}", "predicted": prediction, "measured": medians[k], "raw_seconds": seconds[path], "over_best_other": medians[k] / best_other - 1}
        if k < 2:
            result = chosen[k]
            row.update(budget_bytes=budget, n_others=len(plans) - 2, n_trials=len(result["trials"]), regret_vs_best_preset=result["regret_vs_best_preset"],
                       stopped_because=result["stopped_because"], decisions=result["best"]["decisions"])
        rows.append(row)
    spread = common.median([max(seconds[path]) / min(seconds[path]) - 1 for _, path in plans])
    for k in range(2):
        print(f"{label} ({budget} bytes): {plans[k][0]}: {medians[k]:.6g} s, {100 * (medians[k] / best_other - 1):+.2f} % of the best of {len(plans) - 2} others; "
              f"{len(chosen[k]['trials'])} trials; runs of one plan differ by {100 * spread:.1f} %")
    return rows


def main():
    p = common.parser(__doc__)
    for name, default in (("seq", 128), ("global-batch", 2), ("budgets", 3), ("others", 30), ("repeats", 5), ("steps", 4), ("max-trials", 6), ("seed", 1)):
        p.add_argument(f"--{name}", type=int, default=default)
    p.add_argument("--model", default="gpt2")
    p.add_argument("--work", help="keep plans and studies in this folder; what tune finished there is not measured again")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        dir = args.work or scratch
        os.makedirs(dir, exist_ok=True)
        floor = plan(args, f"{dir}/floor.json", 1)["proof"]["least_budget_bytes"]
        # The fastest of all, by assumed times, and all that any plan could use.
        most = call(args, [common.program(args, "vplan"), "plan", *job(args), "--recompute", "none", "--loss", "full", "--micro-batch", str(args.global_batch),
                           "--json"])["device_bytes"]
        load_before, budgets, pool = common.load(), [], {}
        for i in range(args.budgets):
            part = 0.5 if args.budgets == 1 else 0.1 + 0.8 * i / (args.budgets - 1)
            budgets.append(int(floor + (most - floor) * part))
        labels = [f"budget {i + 1} of {args.budgets}" for i in range(args.budgets)]
        chosen = [choose(args, dir, label.replace(" ", "-"), budget) for label, budget in zip(labels, budgets)]
        for budget, (_, _, profile) in zip(budgets, chosen):
            add_others(args, dir, pool, budget, floor, profile)
        seconds = in_turns(args, [c["best"]["plan"] for right, wrong, _ in chosen for c in (right, wrong)] + [path for _, path, _ in pool.values()])
        rows = []
        for label, budget, (right, wrong, _) in zip(labels, budgets, chosen):
            rows += budget_rows(label, budget, (right, wrong), list(pool.values()), seconds)
        described = json.loads(common.output([common.program(args, "vplan-run"), "--describe"]))
        settings = {k: getattr(args, k) for k in ("model", "seq", "global_batch", "budgets", "others", "repeats", "steps", "max_trials", "seed")}
        part = common.part_name("tune_regret", args, model="gpt2", seq=128, global_batch=2, budgets=3, others=30, repeats=5, steps=4)
        path = common.write_results(args, part, "cpu", {"backend": described["description"]},
                                    {"machine": common.machine(), "load_before": load_before, "load_after": common.load()}, settings, rows)
    print(f"wrote {os.path.relpath(path)}")


main()
