#!/usr/bin/env python3
"""GFLOP/s and GB/s of every kernel call of a training step, each timed alone.

    bench/bench_kernels.py [--model gpt2] [--seq 256] [--batch 4] [--threads 1,2] [--repeats 3] [--commit SHA]

The calls and how often a step makes them are read from a plan (nothing recomputed, one micro-step); vplan-run --profile
times each on memory of its own. GFLOP/s for products and attention, 2 m n k each, attention over the causal half as the
kernel needs it. GB/s counts every operand once, updated ones twice: what a kernel that missed no cache and hit none would
move, so a small call can exceed the memory's rate. The last lines say what the step would take if its calls took
exactly these times."""
import json
import tempfile

import bench_common as common

# Kernel: its whole-number attributes, floating-point operations (None: not counted), 4-byte elements moved (as
# vp_kernel_bytes_moved() in core/op.c counts them, but for the control block's 64 bytes).
KERNELS = {
    "embedding_fwd": ("rows cols vocab seq", None, lambda r, c, v, s: r + 3 * r * c),
    "embedding_bwd": ("rows cols vocab seq", None, lambda r, c, v, s: r + 5 * r * c),
    "layernorm_fwd": ("rows cols", None, lambda r, c: 2 * r * c + 2 * c + 2 * r),
    "layernorm_bwd": ("rows cols", None, lambda r, c: 4 * r * c + 5 * c + 2 * r),
    "linear_fwd": ("rows in out layout", lambda r, i, o, _: 2 * r * i * o, lambda r, i, o, _: r * i + i * o + o + r * o),
    "linear_bwd_input": ("rows in out layout", lambda r, i, o, _: 2 * r * i * o, lambda r, i, o, _: r * o + i * o + 2 * r * i),
    "linear_bwd_weight": ("rows in out layout", lambda r, i, o, _: 2 * r * i * o, lambda r, i, o, _: r * i + r * o + 2 * i * o + 2 * o),
    "attention_fwd": ("batch seq heads kv_heads head_dim", lambda b, s, a, k, d: 2 * b * a * s * s * d,
                      lambda b, s, a, k, d: b * s * ((2 * a + 2 * k) * d + a)),
    "attention_bwd": ("batch seq heads kv_heads head_dim", lambda b, s, a, k, d: 5 * b * a * s * s * d,
                      lambda b, s, a, k, d: b * s * ((4 * a + 4 * k) * d + a)),
    "gelu_tanh_fwd": ("count", None, lambda n: 2 * n),
    "gelu_tanh_bwd": ("count", None, lambda n: 3 * n),
    "add": ("count", None, lambda n: 3 * n),
    "dropout": ("batch count", None, lambda b, n: 2 * b * n),
    "cross_entropy": ("rows vocab", None, lambda r, v: 2 * r * v + 2 * r),
    "loss_sum": ("rows", None, lambda r: r),
    "copy": ("count", None, lambda n: 2 * n),
    "zero": ("count", None, lambda n: n),
    "grad_sumsq": ("count", None, lambda n: n),
    "clip_scale": ("", None, lambda: 0),
    "adamw": ("count decay", None, lambda n, _: 7 * n),
    "sgd": ("count decay", None, lambda n, _: 3 * n),
}


def attributes(step):
    if step["kernel"] not in KERNELS:
        common.fail(f"{step['kernel']}: not in the table of bench/bench_kernels.py yet")
    return tuple((name, step[name]) for name in KERNELS[step["kernel"]][0].split())


def calls_of(plan):
    """{(kernel, attributes): calls in one optimizer step}, in the order of their first appearance."""
    bucket, calls = plan["buckets"][0], {}
    for instance in bucket["instances"]:
        program = bucket["programs"][instance["program"]]
        for part in ("forward", "backward", "norm", "update"):
            micro_steps = bucket["n_micro_steps"] if part in ("forward", "backward") else 1
            for step in program[part]:
                call = step["kernel"], attributes(step)
                calls[call] = calls.get(call, 0) + (1 if step.get("first_only") else micro_steps)
    return calls


def profile(args, calls, threads, dir):
    """{call: seconds}: one request for all of them. A call that the time limit cut is missing."""
    request = f"{dir}/request.json"
    with open(request, "w") as f:
        json.dump({"schema_version": 1, "device": "cpu", "backend": "", "rows": [dict(a, kernel=k, seconds=0) for k, a in calls]}, f)
    answer = json.loads(common.output([common.program(args, "vplan-run"), "--profile", request, "--threads", str(threads), "--seconds", str(args.seconds)]))
    return answer["backend"], {(r["kernel"], attributes(r)): r["seconds"] for r in answer["rows"]}


def row(call, n_calls, threads, seconds):
    kernel, pairs = call
    values = [v for _, v in pairs]
    flop, elements = KERNELS[kernel][1], KERNELS[kernel][2](*values)
    shape = " ".join(f"{k}={v}" for k, v in pairs)
    name = f"{kernel} {shape}, {threads} thread{'s' if threads > 1 else ''}".replace(" ,", ",")
    if not seconds:
        return {"name": name, "predicted": None, "measured": None, "raw_seconds": [], "error": "not reached within --seconds"}
    s = common.median(seconds)
    return {"name": name, "predicted": None, "raw_seconds": seconds, "measured": {
        "seconds_median": s, "seconds_min": min(seconds), "gflop_per_s": flop(*values) / s * 1e-9 if flop else None, "gb_per_s": 4 * elements / s * 1e-9 if elements else None,
        "calls_per_step": n_calls, "seconds_per_step": n_calls * s}}


def parse_args():
    p = common.parser(__doc__)
    p.add_argument("--model", default="gpt2")
    p.add_argument("--seq", type=int, default=256)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--threads", help="numbers, joined by commas (1 and all processors)")
    p.add_argument("--repeats", type=int, default=3, help="requests; each is the median of 3 to 9 calls")
    p.add_argument("--seconds", type=float, default=300, help="limit of one request")
    args = p.parse_args()
    args.threads = [int(n) for n in args.threads.split(",")] if args.threads else sorted({1, common.n_cpus()})
    if min(args.threads) < 1 or args.repeats < 1:
        p.error("--threads and --repeats: at least 1")
    return args


def print_table(threads, rows):
    total = sum(r["measured"]["seconds_per_step"] for r in rows if r["measured"])
    print(f"\n{threads} thread{'s' if threads > 1 else ''}\n{'call':67s} {'time':>10s} {'GFLOP/s':>8s} {'GB/s':>7s} {'calls':>6s} {'of step':>8s}")
    for r in rows:
        m, name = r["measured"], r["name"].rsplit(",", 1)[0]
        if not m:
            print(f"{name:67s} {r['error']}")
            continue
        rate = [f"{m[k]:.1f}" if m[k] else "-" for k in ("gflop_per_s", "gb_per_s")]
        print(f"{name:67s} {m['seconds_median'] * 1e3:7.3f} ms {rate[0]:>8s} {rate[1]:>7s} {m['calls_per_step']:6d} {m['seconds_per_step'] / total:8.1%}")
    print(f"all calls of a step: {total:.3f} s{'' if all(r['measured'] for r in rows) else ', those that were not timed left out'}", flush=True)
    return total


def main():
    args = parse_args()
    rows, load_before = [], common.load()
    with tempfile.TemporaryDirectory() as dir:
        common.output([common.program(args, "vplan"), "plan", args.model, "--device", "cpu", "--seq", str(args.seq), "--global-batch", str(args.batch),
                       "--micro-batch", str(args.batch), "--recompute", "none", "-o", f"{dir}/plan.json"])
        with open(f"{dir}/plan.json") as f:
            calls = calls_of(json.load(f))
        for threads in args.threads:
            seconds = {call: [] for call in calls}
            for _ in range(args.repeats):
                backend, timed = profile(args, calls, threads, dir)
                for call, s in timed.items():
                    seconds[call].append(s)
            of_these = [row(call, n, threads, seconds[call]) for call, n in calls.items()]
            total = print_table(threads, of_these)
            rows += of_these + [{"name": f"all calls of a step, {threads} thread{'s' if threads > 1 else ''}", "predicted": None,
                                 "measured": {"seconds_per_step": total}, "raw_seconds": []}]
    print("written to", common.write_results(
        args, common.part_name("kernels", args, model="gpt2", seq=256, batch=4, repeats=3), "cpu", {"vplan backend": backend}, dict(common.machine(), load_before=load_before, load_after=common.load()),
        {"model": args.model, "seq": args.seq, "batch": args.batch, "threads": args.threads, "repeats": args.repeats}, rows))


main()
