#!/usr/bin/env python3
"""How far predicted step times are from measured ones, in one process, in turns.

    bench/step_prediction.py [--model gpt2] [--seq 128] [--global-batch 2] [--groups 6] [--lanes 6] [--rounds 15] [--commit SHA]
    bench/step_prediction.py --host-memory SIZE [--groups 10] [--lanes 3] [--rounds 3] [--final-rounds 8] [...]

Plans of every micro-batch, recompute and loss, and the best within ever smaller budgets, in groups. Beside each group two more plans take turns, a step of each: the
smallest and the largest micro-batch without recompute. What kernel calls took inside their steps is a profile (`vplan tune` learns the same from its races), and
`vplan explain --profile` prices the group's plans with it: no plan is predicted from its own steps, and no factor is taken out. What remains is the model, and what the
machine's weather does between neighbouring steps.

With --host-memory every plan offloads: master weights, states, parameters, gradients, activations, updates by the host, in each kind by itself and as the planner
likes. All fit one budget, half way from the least with host memory to the least without, so that no plan fits that has all on the device. Copies go by the link that `vplan-run --profile` measures, beside each group. Last the plan that the planner chooses in that budget, with the profile learnt before, takes turns with the four that the
groups found fastest, a step's time over the anchors' of its group: how far it is from the fastest of these. That one is chosen by the same rounds, which speaks
against the planner's; choosing it by every second round and comparing in the others does not."""
import json
import math
import os
import random
import tempfile

import bench_common as common


def anchors(args, dir, budget):
    """Plans from whose steps the others' are predicted."""
    paths = [f"{dir}/anchor-{micro}.json" for micro in (1, args.global_batch)]
    for path, micro in zip(paths, (1, args.global_batch)):
        common.plan(args, path, budget, "--micro-batch", str(micro), "--recompute", "none", "--loss", "full")
    return paths


def link(args, dir):
    """What copies between the two memories carry here, now."""
    path = f"{dir}/nothing.json"
    with open(path, "w") as f:
        json.dump({"schema_version": 1, "device": "", "backend": "", "rows": []}, f)
    return json.loads(common.output([common.program(args, "vplan-run"), "--profile", path]))["link"]


def write_profile(plans, path, link):
    """What calls took inside the steps of these lanes of a race, as a profile file."""
    rows = {}
    for plan in plans:
        for call in plan["kernel_calls"]:
            row = {k: v for k, v in call.items() if k not in ("calls", "seconds")}
            rows.setdefault(json.dumps(row), {**row, "seconds": call["seconds"] / call["calls"]})
    with open(path, "w") as f:
        json.dump({"schema_version": 1, "device": "cpu", "backend": "inside steps", "rows": list(rows.values()), "link": link}, f)
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
    kinds = ("optimizer", "host-step", "params", "params+host-step", "optimizer+activations", "host-step+activations", "params+activations")
    budget, n = (least + floor) // 2, args.groups * args.lanes
    pinned = [(f"offload {k}, micro-batch {m}, recompute {r}", budget, (*host, "--offload", k, "--micro-batch", str(m), "--recompute", r))
              for k in kinds for m in micros for r in common.RECOMPUTE if not ("activations" in k and r == "full")] # nothing would be left to move
    return pinned + [(f"best within {b}", b, host) for i in range(n) for b in [least + (budget - least) * i // n]], budget


def final(args, dir, budget, learnt, finalists):
    """What the planner chooses beside the fastest others: (its seconds over the fastest's, less 1; the same by halves; its rounds, theirs)."""
    path = f"{dir}/choice.json"
    planned = common.plan(args, path, budget, "--host-memory", args.host_memory, "--profile", learnt)
    if planned.get("peak_bytes") is None:
        common.fail(f"nothing fits {budget} bytes")
    lanes = common.race(args, [path, *finalists], args.final_rounds)
    own, others = lanes[path], [lanes[f] for f in finalists]
    regret = math.exp(own.off - min(o.off for o in others)) - 1
    halves = []
    for half in 0, 1:
        fastest = min(others, key=lambda o: common.middle(o.rounds[half::2]))
        halves.append(math.exp(common.middle(own.rounds[1 - half::2]) - common.middle(fastest.rounds[1 - half::2])) - 1)
    return regret, sum(halves) / 2, own, others


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
    for name, default in (("seq", 128), ("global-batch", 2), ("groups", None), ("lanes", None), ("rounds", None), ("final-rounds", 8), ("seed", 1)):
        p.add_argument(f"--{name}", type=int, default=default)
    p.add_argument("--model", default="gpt2")
    p.add_argument("--host-memory")
    args = p.parse_args()
    usual = {"groups": 10, "lanes": 3, "rounds": 3} if args.host_memory else {"groups": 6, "lanes": 6, "rounds": 15}
    for name, value in usual.items():
        setattr(args, name, getattr(args, name) or value)
    rows, seen = [], set()
    with tempfile.TemporaryDirectory() as dir:
        most = common.most_bytes(args)
        load_before, paces, chosen = common.load(), {}, None
        waiting, budget = offloaded(args, dir, most) if args.host_memory else (choices(args, dir, most), most)
        random.Random(args.seed).shuffle(waiting)
        beside = anchors(args, dir, most)
        first = race(args, beside)
        learnt = write_profile(first, f"{dir}/first.json", link(args, dir))
        while len(rows) < args.groups * args.lanes and (made := make(args, dir, waiting, learnt, seen)):
            lanes = race(args, [*beside, *made])
            rates = link(args, dir)
            learnt = write_profile(first, f"{dir}/first.json", rates)
            profile = write_profile(lanes[:len(beside)], f"{dir}/profile.json", rates)
            for (path, name), lane in zip(made.items(), lanes[len(beside):]):
                predicted = common.answer([common.program(args, "vplan"), "explain", path, "--profile", profile, "--json"])["step_time_s"]
                paces[path] = lane["median_s"] / sum(x["median_s"] for x in lanes[:len(beside)])
                rows.append({"name": name, "predicted": predicted, "measured": lane["median_s"], "off": predicted / lane["median_s"] - 1, "raw_seconds": lane["step_s"]})
            print(f"a group of {len(made)}: median {100 * common.median([r['off'] for r in rows[-len(made):]]):+.1f} % off", flush=True)
        if args.host_memory:
            chosen = final(args, dir, budget, learnt, sorted(paces, key=paces.get)[:4])
    off = sorted(abs(r["off"]) for r in rows)
    print(f"predicted step time of {len(rows)} plans: median {100 * common.median(off):.1f} % off, three in four within {100 * common.quantile(off, 0.75):.1f} %, "
          f"all within {100 * off[-1]:.1f} %")
    if chosen:
        regret, by_halves, own, others = chosen
        print(f"the planner's choice in {budget} bytes: {100 * regret:+.1f} % from the fastest of the others, standard error {100 * own.error:.1f}, by halves {100 * by_halves:+.1f} %")
        rows.append({"name": "choice", "regret": regret, "regret_by_halves": by_halves, "error": own.error, "raw_seconds": own.seconds,
                     "others_raw_seconds": [o.seconds for o in others]})
    settings = {k: getattr(args, k) for k in ("model", "seq", "global_batch", "groups", "lanes", "rounds", "final_rounds", "seed", "host_memory")}
    part = common.part_name("step-prediction-offload" if args.host_memory else "step-prediction", args, model="gpt2", seq=128, global_batch=2, final_rounds=8, **usual)
    described = json.loads(common.output([common.program(args, "vplan-run"), "--describe"]))
    path = common.write_results(args, part, "cpu", {"backend": described["description"]},
                                {"machine": common.machine(), "load_before": load_before, "load_after": common.load()}, settings, rows)
    print(f"wrote {os.path.relpath(path)}")


main()
