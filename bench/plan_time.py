#!/usr/bin/env python3
"""How long `vplan plan` takes as a whole process, and how good its answer is proven to be.

    bench/plan_time.py [--models gpt2,gpt2-medium,...] [--no-built-in] [--budgets 6] [--repeats 3] [--gap G] [--commit SHA]

GPT-2 at sequence 1024 and global batch 8 on an H200, default recipe, nothing pinned. For each model budgets in equal steps
from the floor (the least_budget_bytes that an impossible request is answered with) to what the fastest plan of the whole
card needs. Then every built-in model of a published size in bf16-mixed, 64 samples of 512 tokens, the whole card, whether it
fits or not. Last a large plan with offload: llama-3.1-8b on an RTX 4090 with 200 GiB of host memory. Beside each plan what `vplan explain`
of it and `vplan estimate` of the model take. The clock runs from the start of the process to its end; the plan file has been written and fsync'd by then. No
GPU is consulted."""
import ctypes
import json
import os
import subprocess
import tempfile
import threading
import time

import bench_common as common

DEVICE, SEQ, BATCH = "h200", 1024, 8
OFFLOAD = ("--seq", "2048", "--global-batch", "16", "--precision", "bf16-mixed", "--host-memory", "200GiB")
BUILT_IN = ("--seq", "512", "--global-batch", "64", "--precision", "bf16-mixed")
MODELS = "gpt2,gpt2-medium,gpt2-large,gpt2-xl"
LIMIT_S = 300
GAPS = (1e-5, 1e-4)


def plan(args, model, dir, budget=None, job=("--seq", str(SEQ), "--global-batch", str(BATCH), "--precision", "fp32"), device=DEVICE):
    """One process: {seconds, plan_file_bytes, answer or error}."""
    path = f"{dir}/plan.json"
    if os.path.exists(path):
        os.unlink(path)
    command = [common.program(args, "vplan"), "plan", model, "--device", device, *job, "-o", path, "--json"]
    command += ["--budget", str(budget)] if budget is not None else []
    command += ["--gap", str(args.gap)] if args.gap is not None else []
    with open(f"{dir}/out", "w+") as out, open(f"{dir}/err", "w+") as err:
        start_s = time.perf_counter()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        guard = threading.Timer(LIMIT_S, child.kill)   # wait(timeout) would look only every 50 ms
        guard.start()
        child.wait()
        seconds = time.perf_counter() - start_s
        guard.cancel()
        out.seek(0)
        err.seek(0)
        result = {"seconds": seconds, "plan_file_bytes": os.path.getsize(path) if os.path.exists(path) else None}
        if child.returncode not in (0, 3):
            result["error"] = f"exit {child.returncode}{f' (more than {LIMIT_S} s)' if seconds >= LIMIT_S else ''}: {err.read().strip()[-500:]}"
        else:
            result["answer"] = json.load(out)
            result["estimate_s"] = seconds_of([common.program(args, "vplan"), "estimate", model, "--device", device, *job[:2], "--json"], (0, 3))
            result["explain_s"] = seconds_of([common.program(args, "vplan"), "explain", path, "--json"], (0,)) if os.path.exists(path) else None
        return result


def seconds_of(command, codes):
    """One process, its start included."""
    start_s = time.perf_counter()
    code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=LIMIT_S).returncode
    if code not in codes:
        common.fail(f"exit {code}: {' '.join(command)}")
    return time.perf_counter() - start_s


def median_of(runs, key):
    there = [r[key] for r in runs if r.get(key) is not None]
    return common.median(there) if there else None


def budgets_of(args, model, dir):
    """Bytes from the floor to unconstrained; None and a reason where the planner did not say."""
    impossible, free = plan(args, model, dir, 1), plan(args, model, dir)
    for r in (impossible, free):
        if "error" in r:
            return None, r["error"]
    floor, most = impossible["answer"]["proof"]["least_budget_bytes"], (free["answer"].get("fastest") or {}).get("device_bytes")
    if most is None:   # not even the whole card holds it
        return None, f"does not fit {DEVICE}: needs {floor} bytes"
    return [floor + (most - floor) * i // (args.budgets - 1) for i in range(args.budgets)], None


def library_sizes(solver):
    return {k: v for k, v in solver.items() if "librar" in k or "strateg" in k} or None


def built_in(args):
    """But for those that are small for tests."""
    names = [m["name"] for m in common.answer([common.program(args, "vplan"), "models", "--json"])["models"] if m["has_graph"]]
    return [name for name in names if not name.endswith("-tiny")]


def measure(args, name, runs, budget):
    bad = next((r["error"] for r in runs if "error" in r), None)
    raw = [r["seconds"] for r in runs]
    if bad:
        return {"name": name, "predicted": None, "measured": None, "raw_seconds": raw, "error": bad, "budget_bytes": budget}
    a = runs[0]["answer"]
    budget = a["budget_bytes"]
    without_clock = [{k: v for k, v in r["answer"].items() if k != "timing"} for r in runs]
    solver = a.get("solver") or {}
    return {"name": name, "predicted": None, "raw_seconds": raw, "measured": {
        "seconds_median": common.median(raw), "seconds_max": max(raw), "budget_bytes": budget, "device_bytes": a["device_bytes"], "step_time_s": a["step_time_s"],
        "decisions": a["decisions"], "status": a["proof"]["status"], "gap": a["proof"]["gap"], "checked_by": a["proof"]["checked_by"],
        "nodes": solver.get("nodes"), "pivots": solver.get("pivots"), "programs": solver.get("programs"), "certificate_bytes": solver.get("certificate_bytes"),
        "note": solver.get("note"), "library": library_sizes(solver), "plan_file_bytes": runs[0]["plan_file_bytes"], "explain_seconds_median": median_of(runs, "explain_s"),
        "estimate_seconds_median": median_of(runs, "estimate_s"), "same_answer_each_time": all(x == without_clock[0] for x in without_clock)}}


def glpk_version():
    """Of the library that vplan-solve finds too."""
    try:
        glpk = ctypes.CDLL("libglpk.so.40")
    except OSError:
        return {}
    glpk.glp_version.restype = ctypes.c_char_p
    return {"glpk": glpk.glp_version().decode()}


def shown(value, form):
    return "-" if value is None else form.format(value)


def print_row(r):
    m = r["measured"]
    if not m:
        print(f"{r['name']:26s} {shown(r.get('budget_bytes'), '{:>15,d}')}  {r['error']}", flush=True)
        return
    print(f"{r['name']:26s} {m['budget_bytes']:>15,d} {shown(m['step_time_s'], '{:.4f} s'):>10s} {m['seconds_median']:7.3f} s {shown(m['explain_seconds_median'], '{:.3f} s'):>9s} {shown(m['estimate_seconds_median'], '{:.3f} s'):>9s} {m['status']:>10s} "
          f"{shown(m['gap'], '{:.1e}'):>8s} {shown(m['nodes'], '{:d}'):>7s} {shown(m['certificate_bytes'], '{:,d}'):>12s}"
          f"{'' if m['same_answer_each_time'] else '  NOT THE SAME ANSWER EACH TIME'}"
          f"{'  library ' + json.dumps(m['library']) if m['library'] else ''}", flush=True)


def parse_args():
    p = common.parser(__doc__)
    p.add_argument("--models", default=MODELS)
    p.add_argument("--no-built-in", dest="built_in", action="store_false", help="without the built-in models")
    p.add_argument("--budgets", type=int, default=6)
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--gap", type=float, help="asked of vplan plan, if not its default")
    args = p.parse_args()
    if args.budgets < 2 or args.repeats < 1:
        p.error("--budgets: at least 2; --repeats: at least 1")
    return args


def main():
    args = parse_args()
    rows, load_before = [], common.load()
    print(f"{'':26s} {'budget, bytes':>15s} {'step':>10s} {'plan':>9s} {'explain':>9s} {'estimate':>9s} {'status':>10s} {'gap':>8s} {'nodes':>7s} {'certificate':>12s}")
    with tempfile.TemporaryDirectory() as dir:
        for model in args.models.split(","):
            budgets, why = budgets_of(args, model, dir)
            if budgets is None:
                rows.append({"name": f"{model}, budgets", "predicted": None, "measured": None, "raw_seconds": [], "error": why})
                print_row(rows[-1])
            for i, budget in enumerate(budgets or []):
                rows.append(measure(args, f"{model}, budget {i + 1} of {args.budgets}", [plan(args, model, dir, budget) for _ in range(args.repeats)], budget))
                print_row(rows[-1])
        for model in built_in(args) if args.built_in else []:
            rows.append(measure(args, f"{model}, whole card", [plan(args, model, dir, job=BUILT_IN) for _ in range(args.repeats)], None))
            print_row(rows[-1])
    with tempfile.TemporaryDirectory() as dir:
        if args.built_in:
            runs = [plan(args, "llama-3.1-8b", dir, job=OFFLOAD, device="4090") for _ in range(args.repeats)]
            rows.append(measure(args, "llama-3.1-8b, offload", runs, None))
            print_row(rows[-1])
    good = [r["measured"] for r in rows if r["measured"]]
    print(f"\n{len(good)} of {len(rows)} answered, the slowest in {max((m['seconds_max'] for m in good), default=float('nan')):.3f} s; "
          + f"{sum(m['status'] == 'infeasible' for m in good)} do not fit; " + "; ".join(f"{sum(m['gap'] is not None and m['gap'] <= g for m in good)} certified to a gap of {g:.0e} or less" for g in GAPS))
    print("written to", common.write_results(
        args, common.part_name("plan-time", args, models=MODELS, built_in=True, budgets=6, repeats=3, gap=None), "cpu", glpk_version(), dict(common.machine(), load_before=load_before, load_after=common.load()),
        {"planned_for": DEVICE, "seq": SEQ, "global_batch": BATCH, "repeats": args.repeats, "gap": args.gap}, rows))
    if len(good) < len(rows):
        common.fail(f"{len(rows) - len(good)} planning runs failed")


main()
