#!/usr/bin/env python3
"""How far what `vplan tune` chooses is from the best of many plans run beside it, from a right and from a wrong profile.

    bench/tune_regret.py [--model gpt2] [--seq 128] [--global-batch 2] [--budgets 3] [--others 30] [--rounds 7] [--final-rounds 40] [--commit SHA]

At each budget (a tenth, a half and nine tenths of the way from the least that fits to what the fastest plan takes): tune; tune
again from the profile it measured with every call scaled by x0.5 to x2 at random; then at least `others` different plans that
fit (every preset, every pin of micro-batch and recompute, the best within ever smaller budgets, with and without the profile).

Runs of one plan one after the other differ by more than plans do, so plans take turns, a step of each, all alive in one process
(`vplan-run --compare`). Heats first: as many at a time as fit into memory, one of them in every heat, so that all can be compared;
a plan counts at every budget it fits. Then a final at each budget: the two chosen and the `finalists` others that the heats found
fastest. Regret is the chosen plan's time over the fastest of these others, less 1, by the final alone: choosing the fastest of
thirty by the same measurement would find the luckiest. For the same reason it is given by halves, too: the fastest of every second round, compared in the others. A step is compared with its round's; a plan's figure is the mean over the middle half
of its rounds; its standard error is that of the quartiles' distance.

The same heats judge predictions: of each other plan that was planned with the profile tune ended with, its predicted over its measured seconds, as it is
and without the factor that all have in common (the machine between the profile and the heat); and what recompute costs, predicted and measured."""
import json
import math
import os
import random
import sqlite3
import sys
import tempfile

import bench_common as common

def tune(args, path, study, budget, *options):
    return common.answer([common.program(args, "vplan"), "tune", *common.job(args), "--budget", str(budget), "--study", study, "--max-trials", str(args.max_trials),
                       "-o", path, "--force", "--json", *options])


def wrong_profile(study, path, rng):
    """The rows a study measured, as a profile file, each scaled by x0.5 to x2."""
    rows = {}
    with sqlite3.connect(study) as db:
        for kernel, shape, seconds in db.execute("SELECT kernel, shape, seconds FROM profile_row JOIN profile ON id = profile_id WHERE kind = 'measured' ORDER BY id"):
            ints = {k: v if k == "dtype" else int(v) for k, v in (pair.split("=") for pair in shape.split(",") if pair)}
            rows[kernel, shape] = {"kernel": kernel, **ints, "seconds": seconds * 2 ** rng.uniform(-1, 1)}
    with open(path, "w") as f:
        json.dump({"schema_version": 1, "device": "cpu", "backend": "from a study", "rows": list(rows.values())}, f)
    return path


def add_others(args, dir, pool, budget, floor, profile):
    """Plans within the budget into pool, {decisions: (name, path, device_bytes)}, until `others` of it fit the budget; at each
    budget every pin and the best within a few smaller budgets, whatever the pool holds already."""
    def add(name, limit, *options):
        path = f"{dir}/other-{len(pool)}.json"
        answer = common.plan(args, path, limit, *options)
        key = json.dumps(answer.get("decisions"), sort_keys=True)
        if answer.get("peak_bytes") is not None and answer["device_bytes"] <= budget and key not in pool:
            pool[key] = (name, path, answer["device_bytes"])

    def enough():
        return sum(bytes <= budget for _, _, bytes in pool.values()) >= args.others

    micros = [m for m in range(1, args.global_batch + 1) if args.global_batch % m == 0]
    for m in micros:
        for recompute in common.RECOMPUTE:
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


def choose(args, dir, label, budget):
    """What tune chooses at a budget, from no profile and from a wrong one, and the profile it measured."""
    study, wrong_study = f"{dir}/study-{label}.db", f"{dir}/wrong-{label}.db"
    profile = f"{dir}/profile-{label}.json"
    right = tune(args, f"{dir}/right-{label}.json", study, budget, "--save-profile", profile)
    scaled = wrong_profile(study, f"{dir}/wrong_profile-{label}.json", random.Random(args.seed))
    wrong = tune(args, f"{dir}/wrong-{label}.json", wrong_study, budget, "--profile", scaled)
    print(f"{label}: tuned, {len(right['trials'])} and {len(wrong['trials'])} trials", file=sys.stderr, flush=True)
    return right, wrong, profile


def heats(args, plans):
    """{path: (ln of its step over the first plan's, seconds)} of plans, [(path, bytes)]; the first runs in every heat."""
    available = next(int(line.split()[1]) * 1024 for line in open("/proc/meminfo") if line.startswith("MemAvailable"))
    result, waiting = {}, list(plans[1:])
    random.Random(args.seed).shuffle(waiting)
    while waiting:
        lanes = [plans[0]]
        while waiting and len(lanes) < args.lanes and sum(b for _, b in lanes) + waiting[-1][1] <= 0.75 * available:
            lanes.append(waiting.pop())
        found = common.race(args, [path for path, _ in lanes], args.rounds)
        for path, lane in found.items():
            result.setdefault(path, (lane.off - found[plans[0][0]].off, lane.seconds))
        print(f"a heat of {len(lanes)} plans, {len(waiting)} waiting", file=sys.stderr, flush=True)
    return result


def by_halves(final, path, finalists):
    """A plan over the fastest of the finalists, which is the one of every second round while the rest compare: the mean of both ways round. Choosing and comparing by the
    same rounds would flatter the finalist that was lucky in them."""
    def off(p, half):
        return common.middle(final[p].rounds[half::2])

    return sum(math.exp(off(path, 1 - half) - off(min(finalists, key=lambda p: off(p, half)), 1 - half)) - 1 for half in (0, 1)) / 2


def budget_rows(args, label, budget, chosen, others, heat):
    """The two chosen plans and the finalists, each against the fastest of the finalists; then the others that fit, by the heats."""
    fit = sorted((path for _, path, bytes in others if bytes <= budget), key=lambda path: heat[path][0])
    names = {path: name for name, path, _ in others}
    mine = [c["best"]["plan"] for c in chosen]
    final = common.race(args, list(dict.fromkeys(mine + fit[:args.finalists])), args.final_rounds)
    finalists = fit[:args.finalists]
    best = min(finalists, key=lambda path: final[path].off)
    rows = []
    for k, (name, path) in enumerate([("chosen", mine[0]), ("chosen from a wrong profile", mine[1])] + [(names[path], path) for path in fit]):
        row = {"name": f"{label}: {name}", "predicted": common.prediction_of(path)}
        if path in final:
            lane = final[path]
            row.update(measured=math.exp(common.middle([math.log(x) for x in lane.seconds])), raw_seconds=lane.seconds, over_best_other=math.exp(lane.off - final[best].off) - 1,
                       by_halves=by_halves(final, path, finalists), standard_error=math.hypot(lane.error, final[best].error), final=True)
        else:
            row.update(measured=math.exp(common.middle([math.log(x) for x in heat[path][1]])), raw_seconds=heat[path][1],
                       over_best_other=math.exp(heat[path][0] - heat[best][0]) - 1, final=False)
        if k < 2:
            result = chosen[k]
            row.update(budget_bytes=budget, n_others=len(fit), n_trials=len(result["trials"]), regret_vs_best_preset=result["regret_vs_best_preset"],
                       stopped_because=result["stopped_because"], decisions=result["best"]["decisions"])
            print(f"{label} ({budget} bytes): {name}: {row['measured']:.6g} s, {100 * row['over_best_other']:+.2f} % (standard error {100 * row['standard_error']:.2f}; by halves {100 * row['by_halves']:+.2f} %) of the "
                  f"fastest of {len(fit)} others, {names[best]}; {len(result['trials'])} trials", flush=True)
        rows.append(row)
    return rows


def prediction_rows(pool, heat):
    """How far predicted seconds are from measured ones, and the cost of recompute."""
    plans = {name: (common.prediction_of(path), heat[path]) for name, path, _ in pool if "assumed" not in name}
    off = {name: math.log(predicted / math.exp(common.middle([math.log(x) for x in seconds]))) for name, (predicted, (_, seconds)) in plans.items()}
    relative = {name: math.log(predicted) - ratio for name, (predicted, (ratio, _)) in plans.items()}   # the heats' common plan takes the weather out
    common_off = common.median(list(relative.values()))
    rows = [{"name": "step time", "n_plans": len(plans), "median_off": common.median([abs(math.exp(x) - 1) for x in off.values()]),
             "median_off_without_common_factor": common.median([abs(math.exp(x - common_off) - 1) for x in relative.values()]),
             "largest_off_without_common_factor": max(abs(math.exp(x - common_off) - 1) for x in relative.values())}]
    print(f"predicted step time of {len(plans)} plans: median {100 * rows[0]['median_off']:.1f} % off, {100 * rows[0]['median_off_without_common_factor']:.1f} % "
          f"without the common factor (at most {100 * rows[0]['largest_off_without_common_factor']:.1f} %)")
    for name, (predicted, (ratio, _)) in plans.items():
        none = name.rsplit(" ", 1)[0] + " none"
        if "recompute" in name and name != none and none in plans:
            rows.append({"name": f"slowdown: {name}", "predicted": predicted / plans[none][0], "measured": math.exp(ratio - plans[none][1][0])})
            print(f"{name}: x {rows[-1]['predicted']:.3f} predicted, x {rows[-1]['measured']:.3f} measured, {100 * (rows[-1]['predicted'] / rows[-1]['measured'] - 1):+.1f} %")
    return rows


def main():
    p = common.parser(__doc__)
    for name, default in (("seq", 128), ("global-batch", 2), ("budgets", 3), ("others", 30), ("rounds", 7), ("final-rounds", 40), ("finalists", 4), ("lanes", 8),
                          ("max-trials", 6), ("seed", 1)):
        p.add_argument(f"--{name}", type=int, default=default)
    p.add_argument("--model", default="gpt2")
    p.add_argument("--work", help="keep plans and studies in this folder; what tune finished there is not measured again")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        dir = args.work or scratch
        os.makedirs(dir, exist_ok=True)
        floor = common.plan(args, f"{dir}/floor.json", 1)["proof"]["least_budget_bytes"]
        most = common.most_bytes(args)
        load_before, budgets, pool = common.load(), [], {}
        for i in range(args.budgets):
            part = 0.5 if args.budgets == 1 else 0.1 + 0.8 * i / (args.budgets - 1)
            budgets.append(int(floor + (most - floor) * part))
        labels = [f"budget {i + 1} of {args.budgets}" for i in range(args.budgets)]
        chosen = [choose(args, dir, label.replace(" ", "-"), budget) for label, budget in zip(labels, budgets)]
        for budget, (_, _, profile) in zip(budgets, chosen):
            add_others(args, dir, pool, budget, floor, profile)
        mine = {c["best"]["plan"]: c["best"]["peak_bytes"] for right, wrong, _ in chosen for c in (right, wrong)}
        heat = heats(args, list(mine.items()) + [(path, bytes) for _, path, bytes in pool.values()])
        rows = []
        for label, budget, (right, wrong, _) in zip(labels, budgets, chosen):
            rows += budget_rows(args, label, budget, (right, wrong), list(pool.values()), heat)
        rows += prediction_rows(list(pool.values()), heat)
        described = json.loads(common.output([common.program(args, "vplan-run"), "--describe"]))
        settings = {k: getattr(args, k) for k in ("model", "seq", "global_batch", "budgets", "others", "rounds", "final_rounds", "finalists", "lanes", "max_trials", "seed")}
        part = common.part_name("tune_regret", args, model="gpt2", seq=128, global_batch=2, budgets=3, others=30, rounds=7, final_rounds=40)
        path = common.write_results(args, part, "cpu", {"backend": described["description"]},
                                    {"machine": common.machine(), "load_before": load_before, "load_after": common.load()}, settings, rows)
    print(f"wrote {os.path.relpath(path)}")


main()
