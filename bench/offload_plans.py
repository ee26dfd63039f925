#!/usr/bin/env python3
"""What offload costs in plans, and how well they are proven: published models within budgets below their own states.

    bench/offload_plans.py [--gap G] [--commit SHA]

Llama 3 from 1B to 70B on an H200, 405B on the card of devices/examples/example-2tib.json, and the same behind a link of 12 GB/s; sequence 4,096 (one
model also 32,768), 64 samples, bf16-mixed AdamW, 8 TiB of host memory, nothing pinned; within 0 % of the fastest. Then the least
budget with and without host memory. Seconds of a step are the device's stated rates: assumed. Of the whole command, its children
included, the clock and the CPU's seconds are taken: on a busy machine the second says more. No GPU is consulted."""
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
LEAST = [("llama-2-7b", "a100-sxm-80gb"), ("llama-2-13b", "a100-sxm-80gb"), ("llama-3.1-70b", "a100-sxm-80gb")]


def slow_link(card, dir):
    card.update(name="behind-12", alias=None, host_link_bytes_per_s=12e9 / 0.8)   # 12 GB/s arrive
    card = {k: v for k, v in card.items() if v is not None}
    card.get("sources", {}).pop("host_link_bytes_per_s", None)
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


def main():
    p = common.parser(__doc__)
    p.add_argument("--gap", default="1e-5")
    args = p.parse_args()
    rows, load_before = [], common.load()
    print(f"{'':44s} {'device':>9s} {'host':>9s} {'step':>9s} {'offload':>10s} {'gap':>8s} {'planned in':>10s} {'CPU':>7s}")
    with tempfile.TemporaryDirectory() as dir:
        large = f"{common.ROOT}/devices/examples/example-2tib.json"
        h200 = json.loads(common.output([common.program(args, "vplan"), "devices", "h200", "--json"]))["devices"][0]
        devices = {"h200": "h200", "h200" + SLOW: slow_link(h200, dir), "example-2tib": large,
                   "example-2tib" + SLOW: slow_link(json.load(open(large)), dir)}
        for model, seq, budget, device in CASES:
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
        for model, device in LEAST:
            fits = [plan(args, model, device, 2048, "--budget", "1GiB", *host)[2]["proof"]["least_budget_bytes"] for host in ([], HOST)]
            rows.append({"name": f"{model}, least budget, {device}", "predicted": None, "raw_seconds": [], "measured": {"alone_bytes": fits[0], "with_host_bytes": fits[1]}})
            print(f"{model + ', least budget':44s} {fits[0] / GIB:9.2f} GiB, with host memory {fits[1] / GIB:.2f}: {100 * (1 - fits[1] / fits[0]):.0f} % less", flush=True)
    print("written to", common.write_results(args, "offload-plans", "cpu", {}, dict(common.machine(), load_before=load_before, load_after=common.load()), {"gap": args.gap}, rows))


main()
