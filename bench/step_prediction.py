#!/usr/bin/env python3
"""How far predicted step times are from measured ones, in one process, in turns.

    bench/step_prediction.py [--model gpt2] [--seq 128] [--global-batch 2] [--groups 6] [--lanes 6] [--rounds 15] [--host-memory SIZE] [--commit SHA]

Plans of every micro-batch, recompute and loss, and the best within ever smaller budgets, in groups. Beside each group two more plans take turns, a step of each: the
smallest and the largest micro-batch without recompute. What kernel calls took inside their steps is a profile (`vplan tune` learns the same from its races), and
`vplan explain --profile` prices the group's plans with it: no plan is predicted from its own steps, and no factor is taken out. What remains is the model, and what the
machine's weather does between neighbouring steps.

With --host-memory every plan offloads: master weights, states, parameters, gradients, activations, in each kind by itself and as the planner likes within budgets
below what it needs without. Copies take what copying 64 MiB takes here, timed before each group."""
import json
import os
import random
import tempfile
import time

import bench_common as common


def anchors(args, dir, budget):
    """Plans from whose steps the others' are predicted."""
    paths = [f"{dir}/anchor-{micro}.json" for micro in (1, args.global_batch)]
    for path, micro in zip(paths, (1, args.global_batch)):
        common.plan(args, path, budget, "--micro-batch", str(micro), "--recompute", "none", "--loss", "full")
    return paths


def copy_row():
    """Seconds of a copy of 64 MiB, as a row of a profile: copies of other sizes are scaled from it."""
    n, seconds = 64 << 20, []
    source, target = memoryview(bytearray(os.urandom(n))), memoryview(bytearray(n))
    for _ in range(9):
        start_s = time.perf_counter()
        target[:] = source
        seconds.append(time.perf_counter() - start_s)
    return {"kernel": "copy_start", "count": n, "copy": 0, "seconds": common.median(seconds)}


def write_profile(plans, path, copies=()):
    """What calls took inside the steps of these lanes of a race, as a profile file."""
    rows = {json.dumps(row): row for row in copies}
    for plan in plans:
        for call in plan["kernel_calls"]:
            row = {k: v for k, v in call.items() if k not in ("calls", "seconds")}
            rows.setdefault(json.dumps(row), {**row, "seconds": call["seconds"] / call["calls"]})
    with open(path, "w") as f:
        json.dump({"schema_version": 1, "device": "cpu", "backend": "inside steps", "rows": list(rows.values())}, f)
    return path


def race(args, paths):
    return common.answer([common.program(args, "vplan-run"), "--compare", *paths, "--steps", str(args.rounds), "--json"])["plans"]


def choices(args, dir, most):
    """[(name, budget, pins)] of plans that differ."""
    floor = common.plan(args, f"{dir}/any.json", 1)["proof"]["least_budget_bytes"]
    micros = [m for m in range(1, args.global_batch + 1) if args.global_batch % m == 0]
    pinned = [(f"micro-batch {m}, recompute {r}, loss {l}", most, ("--micro-batch", str(m), "--recompute", r, "--loss", l))
              for m in micros for r in common.RECOMPUTE for l in ("full", "chunked")]
    n = 2 * args.groups * args.lanes # many turn out to be the same plan
    best = [(f"best within {b}, micro-batch {m}", b, ("--micro-batch", str(m)))
            for i in range(n) for m in [micros[i % len(micros)]] for b in [floor + (most - floor) * (i // len(micros)) * len(micros) // n]]
    return pinned + best


def offloaded(args, dir, most):
    """The same of plans that have something in host memory."""
    host = ("--host-memory", args.host_memory)
    floor, least = (common.plan(args, f"{dir}/any.json", 1, *more)["proof"]["least_budget_bytes"] for more in ((), host))
    micros = [m for m in range(1, args.global_batch + 1) if args.global_batch % m == 0]
    kinds = ("optimizer", "params", "activations", "optimizer+activations", "params+activations")
    pinned = [(f"offload {k}, micro-batch {m}, recompute {r}", most, (*host, "--offload", k, "--micro-batch", str(m), "--recompute", r))
              for k in kinds for m in micros for r in common.RECOMPUTE]
    n = args.groups * args.lanes
    return pinned + [(f"best within {b}", b, host) for i in range(n) for b in [least + (floor - least) * i // n]]


def make(args, dir, waiting, learnt, seen):
    """{path: name} of the next group: plans that no group had."""
    made = {}
    while waiting and len(made) < args.lanes:
        name, budget, pins = waiting.pop()
        path = f"{dir}/plan-{len(seen)}.json"
        planned = common.plan(args, path, budget, *pins, "--profile", learnt)
        key = json.dumps(planned.get("decisions"), sort_keys=True)
        offloads = planned.get("host_peak_bytes") or not args.host_memory
        if planned.get("peak_bytes") is not None and offloads and key not in seen:
            seen.add(key)
            made[path] = name
    return made


def main():
    p = common.parser(__doc__)
    for name, default in (("seq", 128), ("global-batch", 2), ("groups", 6), ("lanes", 6), ("rounds", 15), ("seed", 1)):
        p.add_argument(f"--{name}", type=int, default=default)
    p.add_argument("--model", default="gpt2")
    p.add_argument("--host-memory")
    args = p.parse_args()
    rows, seen = [], set()
    with tempfile.TemporaryDirectory() as dir:
        most = common.most_bytes(args)
        waiting, load_before = (offloaded if args.host_memory else choices)(args, dir, most), common.load()
        random.Random(args.seed).shuffle(waiting)
        beside = anchors(args, dir, most)
        first = race(args, beside)
        learnt = write_profile(first, f"{dir}/first.json", [copy_row()])
        while len(rows) < args.groups * args.lanes and (made := make(args, dir, waiting, learnt, seen)):
            lanes = race(args, [*beside, *made])
            learnt = write_profile(first, f"{dir}/first.json", [copy_row()])
            profile = write_profile(lanes[:len(beside)], f"{dir}/profile.json")
            for (path, name), lane in zip(made.items(), lanes[len(beside):]):
                predicted = common.answer([common.program(args, "vplan"), "explain", path, "--profile", profile, "--json"])["step_time_s"]
                rows.append({"name": name, "predicted": predicted, "measured": lane["median_s"], "off": predicted / lane["median_s"] - 1, "raw_seconds": lane["step_s"]})
            print(f"a group of {len(made)}: median {100 * common.median([r['off'] for r in rows[-len(made):]]):+.1f} % off", flush=True)
    off = sorted(abs(r["off"]) for r in rows)
    print(f"predicted step time of {len(rows)} plans: median {100 * common.median(off):.1f} % off, three in four within {100 * common.quantile(off, 0.75):.1f} %, "
          f"all within {100 * off[-1]:.1f} %")
    settings = {k: getattr(args, k) for k in ("model", "seq", "global_batch", "groups", "lanes", "rounds", "seed", "host_memory")}
    part = common.part_name("step_prediction_offload" if args.host_memory else "step_prediction", args, model="gpt2", seq=128, global_batch=2, groups=6, lanes=6, rounds=15)
    described = json.loads(common.output([common.program(args, "vplan-run"), "--describe"]))
    path = common.write_results(args, part, "cpu", {"backend": described["description"]},
                                {"machine": common.machine(), "load_before": load_before, "load_after": common.load()}, settings, rows)
    print(f"wrote {os.path.relpath(path)}")


main()
