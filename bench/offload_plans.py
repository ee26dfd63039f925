#!/usr/bin/env python3
"""What offload costs in plans, and how well they are proven: published models within budgets below their own states.

    bench/offload_plans.py [--gap G] [--least-only | --fluid] [--commit SHA]

Llama 3 from 1B to 70B on an H200, 405B on the card of devices/examples/example-2tib.json, and the same behind a link of 12 GB/s; sequence 4,096 (one
model also 32,768), 64 samples, bf16-mixed AdamW, 8 TiB of host memory, nothing pinned; within 0 % of the fastest. Then, on an A100's
rates and PCIe 4 but with any memory, the least budget without host memory and with it, the seconds of a step there, and the least
budget with which a step takes 1.3 and 1.6 times what it takes without host memory in its least. Seconds of a step are the device's stated rates: assumed. Of the whole command, its children
included, the clock and the CPU's seconds are taken: on a busy machine the second says more. No GPU is consulted.

--fluid, instead of all that: how far each plan's step is from what no schedule of the same kernels and copies undercuts. One stream runs all kernels, one all copies
to the device, one all copies to the host, each one thing at a time: the step takes at least the longest of the three sums. It would take just that if copies were
divisible without end, waited for nothing and needed no place to arrive in. The rest is what blocks of whole copies, their windows and slots, the order of passes and
the update behind the norm cost; and the bytes of the slots, which the stack then has not. Other decisions than the plan's are not in this bound: the proof is about these."""
import csv
import json
import os
import resource
import subprocess
import tempfile
import time

import bench_common as common

GIB = 1 << 30
JOB = ["--global-batch", "64", "--precision", "bf16-mixed", "--within", "0"]
HOST = ["--host-memory", "8TiB"]
SLOW = " behind 12 GB/s"
CASES = [(model, seq, budget, device + link) for link in ("", SLOW)
         for model, seq, device, budgets in (("llama-3.2-1b", 4096, "h200", (20, 44, 76, 132)), ("llama-3.1-8b", 4096, "h200", (20, 44, 76, 132)),
                                             ("llama-3.1-8b", 32768, "h200", (20, 44, 76, 132)), ("llama-3.1-70b", 4096, "h200", (20, 44, 76, 132)),
                                             ("llama-3.1-405b", 4096, "example-2tib", (400, 800, 1400, 2000)))
         for budget in budgets]
LEAST = ("llama-2-7b", "llama-2-13b", "llama-3.1-70b")
LEAST_DEVICE, LEAST_SEQ, SLOWER = "a100-sxm-80gb", 4096, (1.3, 1.6)


def changed(card, dir, **figures):
    """A device file: the card with other figures, whose sources are no longer said."""
    card = {k: v for k, v in dict(card, name="changed", alias=None, **figures).items() if v is not None}
    for figure in figures:
        card.get("sources", {}).pop(figure, None)
    path = f"{dir}/{len(os.listdir(dir))}.json"
    with open(path, "w") as f:
        json.dump(card, f)
    return path


def plan(args, model, device, seq, *options):
    command = [common.program(args, "vplan"), "plan", model, "--device", device, "--seq", str(seq), *JOB, *options, "--json"]
    start_s, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    r = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    seconds, after = time.perf_counter() - start_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu_s, json.loads(r.stdout) if r.stdout else {"error": r.stderr}


def step_in(args, model, device, budget, *host):
    """Seconds, host bytes; None: does not fit."""
    a = plan(args, model, device, LEAST_SEQ, "--budget", f"{budget}B", *host)[2]
    return (a["step_time_s"], a["host_peak_bytes"]) if a.get("step_time_s") else (None, None)


def least_within(args, model, device, low, high, most_s):
    """The least budget, to 0.5 %, with which a step with host memory takes so long at most."""
    while high - low > high // 200:
        middle = (low + high) // 2
        step_s, _ = step_in(args, model, device, middle, *HOST)
        low, high = (low, middle) if step_s and step_s <= most_s else (middle, high)
    return high


def least_budgets(args, devices, rows):
    print(f"\n{'least budget, A100 with any memory':34s} {'alone':>9s} {'step':>8s} {'with host':>9s} {'step':>8s} {'host':>8s} {'less':>6s} {'longer':>7s}")
    for model in LEAST:
        alone, there = [plan(args, model, LEAST_DEVICE, LEAST_SEQ, "--budget", "1GiB", *host)[2]["proof"]["least_budget_bytes"] for host in ([], HOST)]
        (alone_s, _), (there_s, host) = step_in(args, model, devices["any"], alone), step_in(args, model, devices["any"], there, *HOST)
        m = {"alone_bytes": alone, "alone_step_s": alone_s, "with_host_bytes": there, "with_host_step_s": there_s, "host_bytes": host,
             "at_most": [{"times": f, "with_host_bytes": least_within(args, model, devices["any"], there, alone, f * alone_s)} for f in SLOWER]}
        rows.append({"name": f"{model} {LEAST_SEQ}, least budget, {LEAST_DEVICE} with any memory", "predicted": None, "raw_seconds": [], "measured": m})
        print(f"{model:34s} {alone / GIB:9.2f} {alone_s:6.1f} s {there / GIB:9.2f} {there_s:6.1f} s {host / GIB:8.1f} {100 * (1 - there / alone):4.0f} % {there_s / alone_s:6.2f} x"
              + "".join(f"; {x['times']} x: {x['with_host_bytes'] / GIB:.2f}, {100 * (1 - x['with_host_bytes'] / alone):.0f} % less" for x in m["at_most"]), flush=True)


def fluid(args, name, model, device, seq, budget, dir):
    """A plan's step, and what its streams do in it."""
    path = f"{dir}/plan.json"
    a = plan(args, model, device, seq, "--budget", f"{budget}GiB", "--gap", args.gap, *HOST, "-o", path, "--force")[2]
    if not a.get("step_time_s"):
        return {"name": name, "predicted": None, "measured": None, "raw_seconds": [], "error": str(a.get("error") or "does not fit")}
    rows = csv.DictReader(common.output([common.program(args, "vplan"), "explain", path, "--program"]).splitlines())
    busy = {"compute": 0.0, "to_device": 0.0, "to_host": 0.0, "host": 0.0}
    for r in rows:
        busy[r["stream"]] += float(r["seconds"])
    with open(path) as f:
        slots = sum(b["bytes"] for b in json.load(f)["fixed"] if b["component"] == "staging" and "slot" in b["name"])
    longest = max(busy, key=busy.get)
    m = {"step_s": a["step_time_s"], "busy_s": busy, "fluid_s": busy[longest], "longest": longest, "over": a["step_time_s"] / busy[longest] - 1,
         "slot_bytes": slots, "device_bytes": a["device_bytes"], "offload": a["decisions"].get("offload"), "gap": a["proof"]["gap"]}
    print(f"{name:44s} {m['step_s']:9.1f} {busy['compute']:9.1f} {busy['to_device']:9.1f} {busy['to_host']:9.1f} {100 * m['over']:7.2f} % {slots / GIB:7.2f} {m['offload']}", flush=True)
    return {"name": name, "predicted": None, "measured": m, "raw_seconds": []}


def main():
    p = common.parser(__doc__)
    p.add_argument("--fluid", action="store_true", help="each plan beside its own kernels and copies at their shortest")
    p.add_argument("--least-only", action="store_true", help="the least budgets alone")
    p.add_argument("--gap", default="1e-5")
    args = p.parse_args()
    rows, load_before = [], common.load()
    print(f"{'seconds; GiB of slots':44s} {'step':>9s} {'kernels':>9s} {'to device':>9s} {'to host':>9s} {'over':>9s} {'slots':>7s} offload" if args.fluid else
          f"{'':44s} {'device':>9s} {'host':>9s} {'step':>9s} {'offload':>10s} {'gap':>8s} {'planned in':>10s} {'CPU':>7s}")
    with tempfile.TemporaryDirectory() as dir:
        large = f"{common.ROOT}/devices/examples/example-2tib.json"
        h200, a100 = [json.loads(common.output([common.program(args, "vplan"), "devices", name, "--json"]))["devices"][0] for name in ("h200", LEAST_DEVICE)]
        slow = {"host_link_bytes_per_s": 12e9 / 0.8}   # 12 GB/s arrive
        devices = {"h200": "h200", "h200" + SLOW: changed(h200, dir, **slow), "example-2tib": large,
                   "example-2tib" + SLOW: changed(json.load(open(large)), dir, **slow), "any": changed(a100, dir, usable_bytes=4096 * GIB)}
        if args.fluid:
            rows = [fluid(args, f"{model} {seq} in {budget} GiB, {device}", model, devices[device], seq, budget, dir) for model, seq, budget, device in CASES]
        for model, seq, budget, device in [] if args.least_only or args.fluid else CASES:
            seconds, cpu_s, a = plan(args, model, devices[device], seq, "--budget", f"{budget}GiB", "--gap", args.gap, *HOST)
            name = f"{model} {seq} in {budget} GiB, {device}"
            if "proof" not in a:
                rows.append({"name": name, "predicted": None, "measured": None, "raw_seconds": [], "error": str(a)})
                continue
            m = {"status": a["proof"]["status"], "gap": a["proof"]["gap"], "device_bytes": a["device_bytes"], "host_bytes": a["host_peak_bytes"], "step_s": a["step_time_s"],
                 "offload": a["decisions"].get("offload"), "least_budget_bytes": a["proof"]["least_budget_bytes"], "seconds": round(seconds, 3), "cpu_seconds": round(cpu_s, 3)}
            rows.append({"name": name, "predicted": None, "measured": m, "raw_seconds": [round(seconds, 3)]})
            if m["step_s"] is None:
                print(f"{name:44s} does not fit: {m['least_budget_bytes'] / GIB:.1f} GiB at least {seconds:22.2f} s {cpu_s:5.2f} s", flush=True)
            else:
                print(f"{name:44s} {m['device_bytes'] / GIB:9.2f} {m['host_bytes'] / GIB:9.2f} {m['step_s']:7.1f} s {m['offload']:>10s} {m['gap']:8.0e} {seconds:8.2f} s {cpu_s:5.2f} s", flush=True)
        if not args.fluid:
            least_budgets(args, devices, rows)
    print("written to", common.write_results(args, "offload-plans" + "-least" * args.least_only + "-fluid" * args.fluid, "cpu", {}, dict(common.machine(), load_before=load_before, load_after=common.load()), {"gap": args.gap}, rows))


main()
