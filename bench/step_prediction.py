#!/usr/bin/env python3
"""How far predicted step times are from measured ones, with a profile measured here a moment before.

    bench/step_prediction.py [--model gpt2] [--seq 128] [--global-batch 2] [--groups 10] [--lanes 4] [--rounds 3] [--commit SHA]

Plans of every micro-batch, recompute and loss, and the best within ever smaller budgets, in groups. Before each group two plans run in turns, the smallest and the largest
micro-batch without recompute; what each kernel call took inside their steps is the profile (`vplan tune` learns the same from its races). The group's plans are priced
with it and then take turns themselves, a step of each. Predicted over measured seconds is all that counts: no factor is taken out. What remains is the model and the
machine's weather between a profile and its group, some twenty seconds."""
import json
import os
import random
import tempfile

import bench_common as common


def profile(args, dir, budget, path):
    """What the calls of both micro-batches take inside a step, as a profile file."""
    rows, anchors = {}, [f"{dir}/anchor-{micro}.json" for micro in (1, args.global_batch)]
    for anchor, micro in zip(anchors, (1, args.global_batch)):
        common.plan(args, anchor, budget, "--micro-batch", str(micro), "--recompute", "none", "--loss", "full")
    for plan in common.answer([common.program(args, "vplan-run"), "--compare", *anchors, "--steps", str(2 * args.rounds), "--json"])["plans"]:
        for call in plan["kernel_calls"]:
            row = {k: v for k, v in call.items() if k != "calls"}
            rows.setdefault(json.dumps({k: v for k, v in row.items() if k != "seconds"}), {**row, "seconds": call["seconds"] / call["calls"]})
    with open(path, "w") as f:
        json.dump({"schema_version": 1, "device": "cpu", "backend": "inside steps", "rows": list(rows.values())}, f)
    return path


def choices(args, dir, most):
    """[(name, budget, pins)] of plans that differ."""
    floor = common.plan(args, f"{dir}/any.json", 1)["proof"]["least_budget_bytes"]
    micros = [m for m in range(1, args.global_batch + 1) if args.global_batch % m == 0]
    pinned = [(f"micro-batch {m}, recompute {r}, loss {l}", most, ("--micro-batch", str(m), "--recompute", r, "--loss", l))
              for m in micros for r in common.RECOMPUTE for l in ("full", "chunked")]
    n = args.groups * args.lanes - len(pinned)
    best = [(f"best within {b}, micro-batch {m}", b, ("--micro-batch", str(m)))
            for i in range(n) for m in [micros[i % len(micros)]] for b in [floor + (most - floor) * (i // len(micros)) * len(micros) // n]]
    return pinned + best


def main():
    p = common.parser(__doc__)
    for name, default in (("seq", 128), ("global-batch", 2), ("groups", 10), ("lanes", 4), ("rounds", 3), ("seed", 1)):
        p.add_argument(f"--{name}", type=int, default=default)
    p.add_argument("--model", default="gpt2")
    args = p.parse_args()
    rows, seen = [], set()
    with tempfile.TemporaryDirectory() as dir:
        most = common.most_bytes(args)
        waiting, load_before = choices(args, dir, most), common.load()
        random.Random(args.seed).shuffle(waiting)
        while waiting:
            made, learnt = {}, profile(args, dir, most, f"{dir}/profile.json")
            while waiting and len(made) < args.lanes:
                name, budget, pins = waiting.pop()
                path = f"{dir}/plan-{len(rows) + len(made)}.json"
                planned = common.plan(args, path, budget, *pins, "--profile", learnt)
                key = json.dumps(planned.get("decisions"), sort_keys=True)
                if planned.get("peak_bytes") is not None and key not in seen:
                    seen.add(key)
                    made[path] = name
            if not made:
                break
            raced = common.race(args, list(made), args.rounds)
            for path, name in made.items():
                predicted, measured = common.prediction_of(path), common.median(raced[path].seconds)
                rows.append({"name": name, "predicted": predicted, "measured": measured, "off": predicted / measured - 1, "raw_seconds": raced[path].seconds})
            print(f"a group of {len(made)}: median {100 * common.median([r['off'] for r in rows[-len(made):]]):+.1f} % off", flush=True)
    off = sorted(abs(r["off"]) for r in rows)
    print(f"predicted step time of {len(rows)} plans: median {100 * common.median(off):.1f} % off, three in four within {100 * common.quantile(off, 0.75):.1f} %, "
          f"all within {100 * off[-1]:.1f} %")
    settings = {k: getattr(args, k) for k in ("model", "seq", "global_batch", "groups", "lanes", "rounds", "seed")}
    part = common.part_name("step_prediction", args, model="gpt2", seq=128, global_batch=2, groups=10, lanes=4, rounds=3)
    described = json.loads(common.output([common.program(args, "vplan-run"), "--describe"]))
    path = common.write_results(args, part, "cpu", {"backend": described["description"]},
                                {"machine": common.machine(), "load_before": load_before, "load_after": common.load()}, settings, rows)
    print(f"wrote {os.path.relpath(path)}")


main()
