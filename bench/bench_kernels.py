#!/usr/bin/env python3
"""GFLOP/s and GB/s of every kernel call of a training step, each timed alone.

    bench/bench_kernels.py [--model gpt2] [--seq 256] [--batch 4] [--precision fp32] [--threads 1,2] [--repeats 3] [--commit SHA]

The calls and how often a step makes them are read from a plan (nothing recomputed, one micro-step); vplan-run --profile
times each on memory of its own. GFLOP/s for products and attention, 2 m n k each, attention over the keys that a query
sees. GB/s counts every operand once, updated ones twice: what a kernel that missed no cache and hit none would
move, so a small call can exceed the memory's rate. The last lines say what the step would take if its calls took
exactly these times."""
import json
import tempfile

import bench_common as common

APART = 2  # of vp_qkv_layout in plan/op.h


def state_bytes(n, kind):
    return (4 * n, 2 * n, -(-n // 4) * 4 + -(-n // 256) * 4)[kind]


def row_of_heads(heads, kv_heads, dim, layout):
    return (heads if layout == APART else heads + 2 * kv_heads) * dim


def keys_seen(seq, causal, window):
    """Keys that a query sees, on the average over the sequence."""
    w = window if 0 < window < seq else seq
    return (w - w * w / (2 * seq)) if causal else (2 * w - 1 if w < seq else seq)


def update_bytes(e, n, states):
    """p read and written, g; a bf16 parameter's master too; states as they are kept, read and written."""
    return 2 * e * n + 4 * n + (8 * n if e == 2 else 0) + 2 * states


# Kernel: its whole-number attributes, floating-point operations (None: not counted), bytes moved where activations and
# parameters have e bytes an element (as vp_kernel_bytes_moved() in plan/op.c counts them, but for the control block's 64
# bytes and for operands that a call does not have).
LINEAR = "rows in out layout"
ROPE = "batch seq heads kv_heads head_dim rotary_dim layout"
ATTENTION = "batch seq heads kv_heads head_dim layout causal window probs"
KERNELS = {
    "embedding_fwd": ("rows cols vocab seq position_offset skip_padding", None, lambda e, r, c, v, s, o, d: 4 * r + e * 3 * r * c),
    "embedding_bwd": ("rows cols vocab seq position_offset skip_padding skip_row", None, lambda e, r, c, v, s, o, d, p: 4 * r + e * 5 * r * c),
    "layernorm_fwd": ("rows cols", None, lambda e, r, c: e * (2 * r * c + 2 * c) + 4 * 2 * r),
    "layernorm_bwd": ("rows cols", None, lambda e, r, c: e * (4 * r * c + c) + 4 * (4 * c + 2 * r)),
    "rmsnorm_fwd": ("rows cols groups unit_offset", None, lambda e, r, c, g, _: e * (2 * r * c * g + c) + 4 * r * g),
    "rmsnorm_bwd": ("rows cols groups unit_offset", None, lambda e, r, c, g, _: e * (4 * r * c * g + c) + 4 * (r * g + 2 * c)),
    "linear_fwd": (LINEAR, lambda r, i, o, _: 2 * r * i * o, lambda e, r, i, o, _: e * (r * i + i * o + o + r * o)),
    "linear_add_fwd": (LINEAR, lambda r, i, o, _: 2 * r * i * o, lambda e, r, i, o, _: e * (r * i + i * o + o + 2 * r * o)),
    "linear_bwd_input": (LINEAR, lambda r, i, o, _: 2 * r * i * o, lambda e, r, i, o, _: e * (r * o + i * o + 2 * r * i)),
    "linear_bwd_weight": (LINEAR, lambda r, i, o, _: 2 * r * i * o, lambda e, r, i, o, _: e * (r * i + r * o) + 4 * (2 * i * o + 2 * o)),
    "rope_fwd": (ROPE, None, lambda e, b, s, a, k, d, t, y: 2 * e * b * s * row_of_heads(a, k, d, y) + 4 * s * t),
    "rope_bwd": (ROPE, None, lambda e, b, s, a, k, d, t, y: 2 * e * b * s * row_of_heads(a, k, d, y) + 4 * s * t),
    "attention_fwd": (ATTENTION, lambda b, s, a, k, d, y, c, w, p: 4 * b * a * s * keys_seen(s, c, w) * d,
                      lambda e, b, s, a, k, d, y, c, w, p: e * b * s * (2 * a + 2 * k) * d + 4 * b * s * a + e * p * b * a * s * s),
    "attention_bwd": (ATTENTION, lambda b, s, a, k, d, y, c, w, p: 10 * b * a * s * keys_seen(s, c, w) * d,
                      lambda e, b, s, a, k, d, y, c, w, p: e * b * s * (4 * a + 4 * k) * d + 4 * b * s * a + e * p * b * a * s * s),
    "activation_fwd": ("count act", None, lambda e, n, _: e * 2 * n),
    "activation_bwd": ("count act", None, lambda e, n, _: e * 3 * n),
    "glu_fwd": ("rows cols act packed", None, lambda e, r, c, a, p: e * 3 * r * c),
    "glu_bwd": ("rows cols act packed", None, lambda e, r, c, a, p: e * 5 * r * c),
    "add": ("count", None, lambda e, n: e * 3 * n),
    "dropout": ("batch count", None, lambda e, b, n: e * 2 * b * n),
    "cross_entropy": ("rows vocab", None, lambda e, r, v: e * 2 * r * v + 4 * 2 * r),
    "loss_sum": ("rows", None, lambda e, r: 4 * r),
    "copy": ("count", None, lambda e, n: e * 2 * n),
    "zero": ("count", None, lambda e, n: 4 * n),
    "grad_sumsq": ("count", None, lambda e, n: 4 * n),
    "clip_scale": ("", None, lambda e: 0),
    "adamw": ("count decay state", None, lambda e, n, _, kind: update_bytes(e, n, 2 * state_bytes(n, kind))),
    "sgd": ("count decay", None, lambda e, n, _: update_bytes(e, n, 0)),
    "momentum": ("count decay state", None, lambda e, n, _, kind: update_bytes(e, n, state_bytes(n, kind))),
    "lion": ("count decay state", None, lambda e, n, _, kind: update_bytes(e, n, state_bytes(n, kind))),
    "adafactor": ("rows cols decay factored", None, lambda e, r, c, _, f: update_bytes(e, r * c, 4 * (r + c if f else r * c))),
    "muon": ("rows cols decay", lambda r, c, _: 10 * min(r, c) ** 2 * (2 * max(r, c) + min(r, c)),
             lambda e, r, c, _: update_bytes(e, r * c, 4 * r * c) + 8 * (r * c + min(r, c) ** 2)),
}


def attributes(step):
    """((name, value), ...): whole numbers in the table's order, then the dtype where it is not fp32."""
    if step["kernel"] not in KERNELS:
        common.fail(f"{step['kernel']}: not in the table of bench/bench_kernels.py yet")
    numbers = tuple((name, step[name]) for name in KERNELS[step["kernel"]][0].split())
    return numbers + ((("dtype", step["dtype"]),) if step.get("dtype", "fp32") != "fp32" else ())


def calls_of(plan):
    """{(kernel, attributes): calls in one optimizer step}, in the order of their first appearance."""
    bucket, calls = plan["buckets"][0], {}
    for instance in bucket["instances"]:
        program = bucket["programs"][instance["program"]]
        for part in ("forward", "backward", "norm", "update"):
            micro_steps = bucket["n_micro_steps"] if part in ("forward", "backward") else 1
            steps = program[part]
            while isinstance(steps, int):  # the list of an earlier program
                steps = bucket["programs"][steps][part]
            for step in steps:
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
    values = [v for name, v in pairs if name != "dtype"]
    flop, n_bytes = KERNELS[kernel][1], KERNELS[kernel][2](2 if dict(pairs).get("dtype") == "bf16" else 4, *values)
    shape = " ".join(f"{k}={v}" for k, v in pairs)
    name = f"{kernel} {shape}, {threads} thread{'s' if threads > 1 else ''}".replace(" ,", ",")
    if not seconds:
        return {"name": name, "predicted": None, "measured": None, "raw_seconds": [], "error": "not reached within --seconds"}
    s = common.median(seconds)
    return {"name": name, "predicted": None, "raw_seconds": seconds, "measured": {
        "seconds_median": s, "seconds_min": min(seconds), "gflop_per_s": flop(*values) / s * 1e-9 if flop else None, "gb_per_s": n_bytes / s * 1e-9 if n_bytes else None,
        "calls_per_step": n_calls, "seconds_per_step": n_calls * s}}


def parse_args():
    p = common.parser(__doc__)
    p.add_argument("--model", default="gpt2")
    p.add_argument("--seq", type=int, default=256)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--precision", default="fp32", help="the plan's")
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
                       "--micro-batch", str(args.batch), "--recompute", "none", "--precision", args.precision, "-o", f"{dir}/plan.json"])
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
        args, common.part_name("kernels", args, model="gpt2", seq=256, batch=4, precision="fp32", repeats=3), "cpu", {"vplan backend": backend}, dict(common.machine(), load_before=load_before, load_after=common.load()),
        {"model": args.model, "seq": args.seq, "batch": args.batch, "precision": args.precision, "threads": args.threads, "repeats": args.repeats}, rows))


main()
