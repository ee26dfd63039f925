#!/usr/bin/env python3
"""How long `vplan estimate --trainer` and `vplan plan --trainer` take as whole processes, over requests drawn from all built-in models.

    bench/trainer_time.py [--requests 400] [--seed 1] [--repeats 3] [--against BUILD] [--commit SHA]

A request is a model of `vplan models`, a command and settings, each drawn. It is run once; those whose processor time is among the
most are run again, and count by the least of all runs. --against runs each by another build too, in turns, and says which answers
are not the same bytes. Seconds are from the start of the process to its end; processor seconds are those of all its threads."""
import json
import os
import random
import subprocess
import tempfile
import time

import bench_common as common

PROMISED_S = {"estimate": 0.05, "estimate --max": 0.3, "plan": 0.3}
SLOWEST = 60      # are run again
LISTED = 15
DEVICES = ("3060", "4090", "3090", "l4", "a10", "a100-sxm-40gb", "a100-sxm-80gb", "a6000", "l40s", "h100", "h200", "5090", "b200", "t4")
PLANNED_FOR = ("hf", "hf", "hf", "trl", "trl", "axolotl", "llamafactory", "ms-swift", "unsloth", "lightning", "accelerate", "torch", "deepspeed", "torchtitan", "litgpt")
WAYS = ("fsdp2", "fsdp", "zero2", "zero3", "ddp")


def shared(draw):
    """Several cards, every other time."""
    world = draw.choice((1, 1, 2, 4, 8))
    return ([] if world == 1 else ["--world", str(world)]), world


def estimate(draw, model):
    trainer = draw.choice(("hf", "hf", "trl", "torch"))
    words = ["--trainer", trainer]
    tuned = draw.choice(("", "--qlora", "--qlora", "--lora"))
    words += [tuned] if tuned else []
    if tuned != "--qlora":
        words += draw.choice(([], ["--recompute", "full"], ["--recompute", "none"]))
    words += ["--accumulation", str(draw.choice((1, 4)))]
    world, n = shared(draw)
    words += world + (["--parallel", draw.choice(WAYS)] if n > 1 else [])
    words += draw.choice(([], ["--seq", str(draw.choice((256, 512, 1024, 2048)))]))
    if draw.random() < 0.5:
        words += ["--device", draw.choice(DEVICES)]
        if draw.random() < 0.4:
            return "estimate --max", words + ["--max", draw.choice(("micro-batch", "seq"))]
    if draw.random() < 0.5:
        words += ["--micro-batch", str(draw.choice((1, 2, 4, 16)))]
    return "estimate", words


def plan(draw, model):
    words = ["--trainer", draw.choice(PLANNED_FOR), "--device", draw.choice(DEVICES), "--seq", str(draw.choice((512, 1024, 2048, 4096, 8192))),
             "--global-batch", str(draw.choice((8, 16, 32, 64, 128)))]
    words += draw.choice(([], [], ["--qlora"], ["--qlora"], ["--lora"], ["--liger"]))
    world, n = shared(draw)
    words += world + (["--parallel", draw.choice(WAYS)] if n > 1 and draw.random() < 0.3 else [])
    return "plan", words


def drawn(args):
    """[(what is promised, [command, model, words ...]) ...]"""
    draw = random.Random(args.seed)
    models = [m["name"] for m in common.answer([common.program(args, "vplan"), "models", "--json"])["models"]]
    rows = []
    for _ in range(args.requests):
        model = draw.choice(models)
        kind, words = draw.choice((estimate, plan))(draw, model)
        rows.append((kind, [kind.split()[0], model, *words]))
    return rows


def run(build, words, home):
    """{seconds, cpu_s, code, answer} of one process."""
    with tempfile.TemporaryFile() as out:
        start_s = time.perf_counter()
        child = subprocess.Popen([os.path.join(build, "vplan"), *words, "--json"], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL,
                                 env=dict(os.environ, XDG_STATE_HOME=home))
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start_s
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        return {"seconds": seconds, "cpu_s": used.ru_utime + used.ru_stime, "code": child.returncode, "answer": out.read()}


def in_turns(builds, words, repeats, home):
    """[runs of each build]"""
    runs = [[] for _ in builds]
    for i in range(repeats):
        for k in range(len(builds)):
            k = (k + i) % len(builds)
            runs[k].append(run(builds[k], words, home))
    return runs


def least(runs, key):
    return min(r[key] for r in runs)


def summarise(rows, n_builds):
    for kind, promised_s in PROMISED_S.items():
        of_kind = [r for r in rows if r["kind"] == kind]
        for k in range(n_builds):
            cpu, wall = ([least(r["runs"][k], key) for r in of_kind] for key in ("cpu_s", "seconds"))
            print(f"{kind:14s} {'against' if k else 'build':8s} {len(of_kind):5d} requests, processor seconds: median {common.median(cpu):.3f}, 99 of 100 within {common.quantile(cpu, 0.99):.3f}, most {max(cpu):.3f}, "
                  f"sum {sum(cpu):.1f}; by the clock more than {promised_s} s: {sum(s > promised_s for s in wall)}, most {max(wall):.3f}")


def main():
    p = common.parser(__doc__)
    p.add_argument("--requests", type=int, default=400)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--repeats", type=int, default=3, help="runs of the slowest")
    p.add_argument("--against", help="folder of another build, run in turns with this one")
    args = p.parse_args()
    builds = [args.build] + ([args.against] if args.against else [])
    rows, load_before = [], common.load()
    with tempfile.TemporaryDirectory() as home:
        for kind, words in drawn(args):
            rows.append({"kind": kind, "words": words, "runs": in_turns(builds, words, 1, home)})
        slowest = sorted(rows, key=lambda r: -least(r["runs"][0], "cpu_s") / PROMISED_S[r["kind"]])
        for r in slowest[:SLOWEST]:
            for k, more in enumerate(in_turns(builds, r["words"], args.repeats - 1, home)):
                r["runs"][k] += more
    different = [r for r in rows if len({(x["code"], x["answer"]) for runs in r["runs"] for x in runs}) > 1]
    for r in sorted(slowest[:SLOWEST], key=lambda r: -least(r["runs"][0], "cpu_s") / PROMISED_S[r["kind"]])[:LISTED]:
        print("  ".join(f"{least(x, 'cpu_s'):.3f} {least(x, 'seconds'):.3f}" for x in r["runs"]), r["runs"][0][0]["code"], " ".join(r["words"]))
    summarise(rows, len(builds))
    for r in different:
        print("NOT THE SAME:", " ".join(r["words"]))
    results = [{"name": " ".join(r["words"]), "predicted": None, "measured": {"cpu_s": least(r["runs"][0], "cpu_s"), "exit_code": r["runs"][0][0]["code"],
                                                                            **({"against_cpu_s": least(r["runs"][1], "cpu_s"), "against_seconds": least(r["runs"][1], "seconds")} if args.against else {})},
                "raw_seconds": [x["seconds"] for x in r["runs"][0]]} for r in rows]
    print("written to", common.write_results(args, common.part_name("trainer-time", args, requests=400, seed=1, repeats=3), "cpu", {},
                                             dict(common.machine(), load_before=load_before, load_after=common.load()),
                                             {"requests": args.requests, "seed": args.seed, "same_answers": len(rows) - len(different) if args.against else None}, results))
    if different:
        common.fail(f"{len(different)} requests are not answered the same")


main()
