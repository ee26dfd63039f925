#!/bin/bash
# tests/test_segments.sh: --recompute segments:N, in estimate, plan and tune. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
BUILD=${BUILD:-build} WORK=$work python3 - <<'P'
import json, os, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok

vplan, work = os.path.abspath(os.environ["BUILD"]) + "/vplan", os.environ["WORK"]


def call(words, code=0):
    r = subprocess.run([vplan] + words.split(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=work)
    ok(r.returncode == code, "%s: exit %d" % (words, code), (r.returncode, r.stderr))
    return r.stdout + (r.stderr if code else "")


def layers(n):
    name = "layers%d.json" % n
    with open("%s/%s" % (work, name), "w") as f:
        json.dump({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 32, "n_layer": n, "n_head": 2, "n_positions": 512, "vocab_size": 256,
                   "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "initializer_range": 0.02}, f)
    return name


# ---- bytes: where the head is the peak, a segment more is one input more, 1,024 x 768 numbers of 4 bytes ----

peak = {n: json.loads(call("estimate gpt2 --seq 1024 --recompute segments:%d --json" % n))["peak_bytes"] for n in (3, 4, 5, 6, 12)}
full = json.loads(call("estimate gpt2 --seq 1024 --recompute full --json"))["peak_bytes"]
ok(all(full - peak[n] == (12 - n) * 1024 * 768 * 4 for n in peak), "an input for each segment", (full, peak))
ok("12 blocks in segments of 3" in " ".join(call("estimate gpt2 --recompute segments:4").split()), "4 of 12 blocks", "said")
out = " ".join(call("estimate %s --recompute segments:2" % layers(5)).split())
ok("3 blocks in segments of 3; 2 blocks in segments of 2" in out, "5 blocks in 2 segments", out)
deep = [json.loads(call("estimate %s --recompute segments:2 --json" % layers(n)))["peak_bytes"] for n in range(2, 11)]
ok(deep == sorted(deep) and deep[0] < deep[-1], "more depth never needs fewer", deep)
call("estimate %s --device h200 --recompute segments:2 --ladder" % layers(4))

# ---- depth: what k segments of k blocks need beside parameters and states grows with k, the square root of depth; nothing falls with depth ----

beside = []
for k in range(2, 11):
    d = json.loads(call("estimate %s --seq 512 --recompute segments:%d --json" % (layers(k * k), k)))
    held = sum(i["bytes"] for i in d["items"] if i["name"] in ("parameters", "gradients") or i["name"].startswith("optimizer_state"))
    ok(held == 16 * d["model"]["params_total"], "%d layers hold 16 bytes a parameter" % (k * k), held)
    beside.append(d["peak_bytes"] - held)
steps = [b - a for a, b in zip(beside, beside[1:])]
ok(min(steps) > 0 and max(steps) < 1.05 * min(steps), "beside what is held, a segment more of a block more takes as much each time", beside)
least = preset = 0
for n in range(2, 101):
    d = json.loads(call("plan %s --device cpu --seq 512 --global-batch 1 --precision fp32 --budget 1KB --json" % layers(n), 3))
    named = {p["name"]: p["peak_bytes"] for p in d["presets"]}
    segments = [b for name, b in named.items() if name.startswith("segments")] or [named["recompute full, micro-batch 1"]]
    ok(d["proof"]["least_budget_bytes"] >= least, "%d layers never need less than fewer do" % n, (d["proof"]["least_budget_bytes"], least))
    ok(segments[0] >= preset, "nor does the preset of segments", (n, segments[0], preset))
    least, preset = d["proof"]["least_budget_bytes"], segments[0]

# ---- segments of several lengths in one plan, single blocks among them: run with the same bits as one that recomputes nothing ----

mixed = None
for n in (23, 29, 31):
    least = json.loads(call("plan %s --device cpu --seq 256 --global-batch 1 --precision fp32 --loss full --budget 1KB --json" % layers(n), 3))["proof"]["least_budget_bytes"]
    call("plan %s --device cpu --seq 256 --global-batch 1 --precision fp32 --loss full --within 0 --budget %d -o mixed.json --force" % (layers(n), least))
    with open(work + "/mixed.json") as f:
        lengths = {b["segment"] for b in json.load(f)["decisions"]["blocks"]}
    if len(lengths) > 1:
        mixed = n
        call("plan %s --device cpu --seq 256 --global-batch 1 --precision fp32 --loss full --recompute none -o none.json --force" % layers(n))
        runs = [json.loads(call("run %s --steps 2 --json" % name)) for name in ("mixed.json", "none.json")]
        ok([s["loss"] for s in runs[0]["steps"]] == [s["loss"] for s in runs[1]["steps"]], "the bits of segments of %s" % sorted(lengths), runs)
        ok(runs[0]["memories"][0]["executed_bytes"] == least, "in the least bytes", (least, runs[0]["memories"]))
ok(mixed, "some least plan has segments of several lengths", mixed)
call("plan %s --device cpu --seq 64 --global-batch 1 --precision fp32 --recompute segments:10 -o long.json --force" % layers(100))
call("explain long.json")

# ---- a plan: as estimated, and run with the bits of one that recomputes nothing ----

PLAN = "plan %s --device cpu --seq 64 --global-batch 4 --micro-batch 2 --precision fp32 --recompute %s -o %s --json"
loss = {}
for kind in "none", "segments:2", "segments:3", "segments:6":
    plan = json.loads(call(PLAN % (layers(6), kind, "plan.json --force --loss full")))
    with open(work + "/plan.json") as f:
        blocks = json.load(f)["decisions"]["blocks"]
    if kind != "none":
        n = int(kind[9:])
        ok([(b["n_blocks"], b["segment"]) for b in blocks] == [(6, 6 // n)], kind, blocks)
    run = json.loads(call("run plan.json --steps 3 --json"))
    loss[kind] = [(s["loss"], s["grad_norm"]) for s in run["steps"]]
    ok(run["memories"][0]["executed_bytes"] == plan["peak_bytes"], "the bytes of " + kind, run["memories"])
ok(len(set(map(str, loss.values()))) == 1 and len(loss["none"]) == 3, "the same bits", loss)
least = json.loads(call(PLAN % (layers(6), "segments:3", "small.json --budget 1KB"), 3))["proof"]["least_budget_bytes"]
json.loads(call(PLAN % (layers(6), "segments:3", "small.json --budget %d" % least)))
call(PLAN % (layers(6), "segments:3", "less.json --budget %d" % (least - 1)), 3)

# ---- refused by name ----

for n, why in (("1", "2 segments or more"), ("5", "of one length"), ("7", "6 blocks"), ("0", "between 1"), ("x", "not a whole number")):
    out = call("plan %s --device cpu --seq 64 --global-batch 4 --recompute segments:%s" % (layers(6), n), 2)
    ok(why in out, "a plan of segments:%s" % n, out)
ok("at most 64" in call("estimate %s --recompute segments:1" % layers(65), 2), "and an estimate", "said")
ok("segments" in call("plan gpt2 --device h200 --seq 64 --global-batch 4 --recompute segments:3 --host-memory 8GB --offload params", 2), "beside streamed blocks", "said")
finish()
P
