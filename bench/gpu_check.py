#!/usr/bin/env python3
"""One part of what only a GPU can show; a results file of its own. Started by tests/gpu_check.sh.

    bench/gpu_check.py ops|memory|speed|budgets|prediction --device NAME [--build DIR] [--out DIR] [--resume DIR] [--commit SHA] [--seconds N]

ops         the kernel, golden and plan tests on the card; losses and parameters of whole models beside the CPU's; bits of plans that
            differ in recompute; compute-sanitizer over a small run
memory      what the driver counts for the process, beside the plan's prediction, which needs no card
speed       a step beside PyTorch's, eager and compiled (bench/step_vs_torch.py)
budgets     plans at shrinking budgets: measured time and memory; random feasible plans near the card's limit
prediction  a tuned profile's predicted seconds beside measured ones

A row that a file under --resume has already is not measured again. A row that fails keeps its error, and the part's exit code is 1. After --seconds no
further row is begun."""
import glob
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

import bench_common as common

GIB = 1 << 30
TESTS = ("test_kernels", "test_kernels_attention", "test_kernels_optimizer", "test_golden", "test_plans")
# model, sequence, global batch, micro-batch, precision, steps
MEMORY = [("gpt2", 1024, 8, 8, "bf16-mixed", 3), ("gpt2", 1024, 8, 8, "fp32", 3), ("gpt2-medium", 1024, 8, 8, "bf16-mixed", 3),
          ("gpt2-xl", 1024, 4, 4, "bf16-mixed", 3), ("llama-3.2-1b", 4096, 2, 2, "bf16-mixed", 3), ("qwen2.5-0.5b", 2048, 4, 4, "bf16-mixed", 3),
          ("qwen3-0.6b", 2048, 4, 4, "bf16", 3), ("gemma-2-2b", 2048, 1, 1, "bf16", 3), ("pythia-410m", 2048, 4, 4, "bf16-mixed", 3),
          ("bert-base-uncased", 512, 16, 16, "bf16-mixed", 3), ("llama-3.2-3b", 4096, 1, 1, "bf16", 3)]
SPEED = [("gpt2", 1024, 16, "bf16-mixed", False), ("gpt2", 1024, 16, "bf16-mixed", True), ("llama-3.2-1b", 4096, 2, "bf16-mixed", False),
         ("llama-3.2-1b", 4096, 2, "bf16-mixed", True), ("gpt2", 1024, 8, "fp32", False)]
WHOLE = [("gpt2-tiny", 128, 8, "fp32", 1e-4), ("llama-tiny", 128, 8, "fp32", 1e-4), ("gpt2-tiny", 128, 8, "bf16-mixed", 3e-2), ("llama-tiny", 128, 8, "bf16-mixed", 3e-2)]


class Part:
    def __init__(self, args):
        self.args, self.rows, self.deadline = args, [], time.monotonic() + args.seconds
        self.known = {}
        for path in glob.glob(os.path.join(args.resume, f"*-gpu-{args.part}.json")) if args.resume else ():
            with open(path) as f:
                self.known.update((r["name"], r) for r in json.load(f)["rows"] if "error" not in r)

    def row(self, name, measure):
        """measure() gives {predicted, measured, raw_seconds}; what it raises is the row's error."""
        if name in self.known:
            self.rows.append(dict(self.known[name], resumed=True))
            return
        if time.monotonic() > self.deadline:
            print(f"{name}: no time left", flush=True)
            return
        begin = time.monotonic()
        try:
            row = dict({"name": name, "predicted": None, "measured": None, "raw_seconds": []}, **measure())
        except Exception as e:   # whatever it is, the other rows are worth having
            row = {"name": name, "predicted": None, "measured": None, "raw_seconds": [], "error": str(e)[-2000:]}
        row["took_s"] = round(time.monotonic() - begin, 1)
        self.rows.append(row)
        print(f"{name}: {row.get('error') or json.dumps(row['measured'])[:300]}", flush=True)

    def failed(self):
        return sum("error" in r for r in self.rows)


def call(command, timeout=480, ok=(0,), env=None):
    r = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout,
                       env=dict(os.environ, **(env or {})))
    if r.returncode not in ok:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit {r.returncode}: {(r.stderr or r.stdout).strip()[-1500:]}")
    return r


def answer(command, **options):
    return json.loads(call(command, **options).stdout)


def plan(args, path, model, seq, batch, *options, device=None):
    return answer([common.program(args, "vplan"), "plan", model, "--device", device or args.device, "--seq", str(seq), "--global-batch", str(batch),
                   "-o", path, "--force", "--json", *map(str, options)], ok=(0, 3))


def run(args, path, steps, *options):
    return answer([common.program(args, "vplan-run"), path, "--steps", str(steps), "--json", *options])


def steps_of(result):
    """Seconds of the steps that were replayed: the first loads, the second records."""
    seconds = [s["seconds"] for s in result["steps"]]
    return seconds[2:] or seconds


# ---- ops ----

def test_program(args, name):
    plugin = os.path.abspath(os.path.join(args.build, "vplan-cuda.so"))
    r = call([os.path.join(args.build, "tests", name)], ok=range(256), env={"VPLAN_TEST_BACKEND": plugin, "CMOCKA_MESSAGE_OUTPUT": "TAP"})
    lines = r.stdout.splitlines()
    bad = [line for line in lines if line.startswith("not ok")]
    if r.returncode != 0 or bad:
        raise RuntimeError(f"exit {r.returncode}: {bad[:5]} {r.stderr[-1200:]} {r.stdout[-300:]}")
    return {"measured": {"passed": sum(line.startswith("ok") for line in lines)}}


def whole_model(args, dir, model, seq, batch, precision, tolerance):
    options = ("--precision", precision)
    plan(args, f"{dir}/cpu.json", model, seq, batch, *options, device="cpu")
    plan(args, f"{dir}/gpu.json", model, seq, batch, *options)
    cpu, gpu = run(args, f"{dir}/cpu.json", 5), run(args, f"{dir}/gpu.json", 5)
    losses = [abs(a["loss"] - b["loss"]) for a, b in zip(cpu["steps"], gpu["steps"])]
    if not max(losses) <= tolerance:
        raise RuntimeError(f"losses differ by {max(losses)}: {cpu['steps']} and {gpu['steps']}")
    arena = gpu["memories"][0]
    if arena["executed_bytes"] != arena["predicted_bytes"]:
        raise RuntimeError(f"the arena is {arena['executed_bytes']} bytes, predicted {arena['predicted_bytes']}")
    return {"measured": {"largest_loss_difference": max(losses), "arena_bytes": arena["executed_bytes"]}}


def same_bits(args, dir, model, seq, batch, precision):
    sums = {}
    for recompute in ("none", "attention", "mlp", "full"):
        plan(args, f"{dir}/{recompute}.json", model, seq, batch, "--precision", precision, "--micro-batch", batch, "--recompute", recompute, "--loss", "full")
        for eager in ((), ("--eager",)):
            sums[recompute + " eager" * len(eager)] = run(args, f"{dir}/{recompute}.json", 4, *eager)["parameters_sha256"]
    if len(set(sums.values())) != 1:
        raise RuntimeError(f"parameters differ: {sums}")
    return {"measured": {"plans": len(sums), "parameters_sha256": next(iter(sums.values()))}}


def sanitizer(args, dir):
    plan(args, f"{dir}/small.json", "llama-tiny", 64, 2, "--precision", "bf16-mixed")
    r = call(["compute-sanitizer", "--error-exitcode", "9", common.program(args, "vplan-run"), f"{dir}/small.json", "--steps", "2", "--eager"])
    return {"measured": {"summary": (re.findall(r"ERROR SUMMARY.*", r.stdout + r.stderr) or ["-"])[-1]}}


def ops(part, dir):
    for name in TESTS:
        part.row(name, lambda name=name: test_program(part.args, name))
    for model, seq, batch, precision, tolerance in WHOLE:
        part.row(f"{model} {precision}, CPU and GPU", lambda m=(model, seq, batch, precision, tolerance): whole_model(part.args, dir, *m))
    for model, seq, batch, precision in (("gpt2", 1024, 4, "bf16-mixed"), ("llama-tiny", 128, 8, "fp32"), ("qwen2.5-0.5b", 512, 2, "bf16")):
        part.row(f"{model} {precision}, same bits", lambda m=(model, seq, batch, precision): same_bits(part.args, dir, *m))
    part.row("compute-sanitizer", lambda: sanitizer(part.args, dir))


# ---- memory, budgets ----

def device_bytes(result):
    """What the process holds on the card: by the driver where it tells, else what is missing there, which counts others too."""
    last = result["device_memory"][-1]
    return last["used_bytes"] if last["used_bytes"] is not None else last["total_bytes"] - last["free_bytes"]


def measured_memory(args, path, planned, steps=3):
    result = run(args, path, steps)
    arena, used = result["memories"][0], device_bytes(result)
    if arena["executed_bytes"] != planned["peak_bytes"]:
        raise RuntimeError(f"the arena is {arena['executed_bytes']} bytes, predicted {planned['peak_bytes']}")
    seconds = steps_of(result)
    return {"predicted": {"device_bytes": planned["device_bytes"], "peak_bytes": planned["peak_bytes"], "seconds": planned["step_time_s"]},
            "measured": {"device_bytes": used, "outside_bytes": used - planned["peak_bytes"], "off": used / planned["device_bytes"] - 1, "seconds": common.median(seconds),
                         "points": result["device_memory"]}, "raw_seconds": seconds}


def memory(part, dir):
    def one(model, seq, batch, micro, precision, steps):
        planned = plan(part.args, f"{dir}/plan.json", model, seq, batch, "--micro-batch", micro, "--precision", precision)
        return measured_memory(part.args, f"{dir}/plan.json", planned, steps)
    for m in MEMORY:
        part.row("{} {} x {} {}".format(m[0], m[2], m[1], m[4]), lambda m=m: one(*m))


def budgets(part, dir):
    for model, seq, batch in (("gpt2", 1024, 32), ("llama-3.2-1b", 4096, 4)):
        most = plan(part.args, f"{dir}/most.json", model, seq, batch, "--precision", "bf16-mixed", "--recompute", "none", "--micro-batch", batch)["device_bytes"]
        for share in (1.0, 0.75, 0.5, 0.35, 0.25):
            def one(share=share):
                planned = plan(part.args, f"{dir}/plan.json", model, seq, batch, "--precision", "bf16-mixed", "--budget", int(most * share))
                if planned.get("peak_bytes") is None:
                    return {"measured": {"infeasible": True, "least": planned["proof"]["least_budget_bytes"]}}
                return measured_memory(part.args, f"{dir}/plan.json", planned, 5)
            part.row(f"{model} at {share:.0%} of {most} bytes", one)
    free = answer([common.program(part.args, "vplan-run"), "--describe", "--backend", "cuda"])["free_bytes"]
    draw = random.Random(1)
    for i in range(200):
        model, seq = draw.choice([("gpt2", 1024), ("gpt2-medium", 1024), ("qwen2.5-0.5b", 2048), ("pythia-410m", 2048), ("llama-3.2-1b", 2048)])
        batch = draw.choice([8, 16, 32, 64])
        def near(model=model, seq=seq, batch=batch):
            planned = plan(part.args, f"{dir}/plan.json", model, seq, batch, "--precision", draw.choice(["bf16-mixed", "bf16"]), "--budget", int(free * 0.97),
                           "--recompute", draw.choice(["none", "attention", "mlp", "full"]))
            if planned.get("peak_bytes") is None:
                return {"measured": {"infeasible": True}}
            return measured_memory(part.args, f"{dir}/plan.json", planned, 1)
        part.row(f"near the limit {i}: {model} {batch} x {seq}", near)


# ---- speed, prediction ----

def speed(part, dir):
    here = os.path.dirname(os.path.abspath(__file__))
    for model, seq, batch, precision, compiled in SPEED:
        def one(model=model, seq=seq, batch=batch, precision=precision, compiled=compiled):
            out = tempfile.mkdtemp(dir=dir)
            call([sys.executable, f"{here}/step_vs_torch.py", "--python", part.args.python, "--build", part.args.build, "--out", out, "--commit", part.args.commit,
                  "--device", part.args.device, "--model", model, "--seq", str(seq), "--batch", str(batch), "--precision", precision]
                 + ["--compile"] * compiled)
            with open(glob.glob(f"{out}/*.json")[0]) as f:
                result = json.load(f)
            rows = {r["name"]: r for r in result["rows"]}
            tokens = seq * batch
            return {"predicted": rows["vplan step"]["predicted"], "raw_seconds": rows["vplan step"]["raw_seconds"],
                    "measured": {"vplan_tokens_per_s": tokens / rows["vplan step"]["measured"]["seconds_median"],
                                 "torch_tokens_per_s": tokens / rows["torch step"]["measured"]["seconds_median"],
                                 "torch_raw_seconds": rows["torch step"]["raw_seconds"], "libraries": result["libraries"],
                                 "torch_bytes": rows["torch step"]["measured"]["device_bytes"], **rows["ratio vplan / torch"]["measured"]}}
        part.row(f"{model} {batch} x {seq} {precision}{' beside compiled' * compiled}", one)
    for model, seq, batch, precision, compiled in SPEED:
        def kernels(model=model, seq=seq, batch=batch, precision=precision):
            plan(part.args, f"{dir}/plan.json", model, seq, batch, "--precision", precision, "--micro-batch", batch, "--recompute", "none")
            result = run(part.args, f"{dir}/plan.json", 3, "--eager")
            return {"measured": {"eager_step_s": result["steps"][-1]["seconds"], "kernels": result["kernels"]}}
        if not compiled:
            part.row(f"{model} {batch} x {seq} {precision}: where the time goes, each call waited for", kernels)


def prediction(part, dir):
    for model, seq, batch in (("gpt2", 1024, 8), ("llama-3.2-1b", 2048, 2)):
        def tuned(model=model, seq=seq, batch=batch):
            most = plan(part.args, f"{dir}/most.json", model, seq, batch, "--precision", "bf16-mixed")["device_bytes"]
            r = answer([common.program(part.args, "vplan"), "tune", model, "--device", part.args.device, "--seq", str(seq), "--global-batch", str(batch),
                        "--precision", "bf16-mixed", "--budget", str(int(most * 0.7)), "--study", f"{dir}/{model}.db", "--json"], ok=(0, 6))
            trials = [{k: t[k] for k in ("verdict", "predicted_s", "measured_s", "predicted_bytes", "executed_bytes")} for t in r["trials"]]
            done = [t for t in trials if t["verdict"] == "ok"]
            return {"measured": {"trials": trials, "median_off": common.median([abs(t["predicted_s"] / t["measured_s"] - 1) for t in done]) if done else None}}
        part.row(f"tune {model} {batch} x {seq}", tuned)


PARTS = {f.__name__: f for f in (ops, memory, speed, budgets, prediction)}


def main():
    p = common.parser(__doc__)
    p.add_argument("part", choices=sorted(PARTS))
    p.add_argument("--device", required=True, help="the card here by its name in vplan devices")
    p.add_argument("--python", default=sys.executable, help="the Python with torch")
    p.add_argument("--resume", help="folder of earlier results")
    p.add_argument("--seconds", type=float, default=420)
    args = p.parse_args()
    part = Part(args)
    described = answer([common.program(args, "vplan-run"), "--describe", "--backend", "cuda"])
    with tempfile.TemporaryDirectory() as dir:
        PARTS[args.part](part, dir)
    path = common.write_results(args, f"gpu-{args.part}", args.device, {"backend": described["description"]}, {"machine": common.machine(), "card": described},
                                {"seconds": args.seconds}, part.rows)
    print(f"{args.part}: {len(part.rows)} rows, {part.failed()} failed; wrote {path}")
    sys.exit(1 if part.failed() else 0)


main()
