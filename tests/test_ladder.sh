#!/bin/bash
# tests/test_ladder.sh: vplan estimate --ladder: each rung is what estimate says of the same settings, and the literature's rules of
# thumb hold of it. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
python3 - "$(realpath "${BUILD:-build}/vplan")" <<'P'
import json, os, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok

vplan = sys.argv[1]


def call(line, code=0):
    p = subprocess.run([vplan] + line.split(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60)
    ok(code is None and p.returncode in (0, 3) or p.returncode == code, line, (p.returncode, p.stderr.decode()[-300:]))
    return p.stdout.decode()


def estimate(line, code=0):
    return json.loads(call("estimate %s --json" % line, code))


def ladder(line, code=0):
    return {r["name"]: r for r in estimate(line + " --ladder", code)["ladder"]}


def bytes_of(answer, component):
    return sum(i["bytes"] for i in answer["items"] if i["name"].split(":")[0].split(".")[0] == component)


LLAMA = "llama-2-7b --seq 2048"

# ---- every rung is an estimate ----

SAID = [("bf16-mixed", "--precision bf16-mixed"), ("recompute full", "--recompute full"), ("attention flash", "--attention flash"),
        ("loss in chunks", "--loss chunked"), ("gradients in bf16", "--gradients bf16"), ("8-bit optimizer states", "--optimizer adamw-8bit")]
rungs = ladder(LLAMA + " --device h200")
said = ["--precision fp32", "--attention math"]
for name, option in [("start", "")] + SAID:
    word = (option or "-").split()[0]
    said = [s for s in said if s and s.split()[0] != word] + [option]
    # gradients in bf16 stand on a precision of bf16: alone they change nothing
    one = [s for s in ("--precision fp32", "--attention math") if s.split()[0] != word] + [option if word != "--gradients" else ""]
    for kind, words in ("cumulative", said), ("alone", one):
        got, want = rungs[name][kind], subprocess.run([vplan] + ("estimate %s --device h200 --json %s" % (LLAMA, " ".join(words))).split(), stdout=subprocess.PIPE)
        want = json.loads(want.stdout)
        ok((got["peak_bytes"], got["device_bytes"]) == (want["peak_bytes"], want["device_bytes"]), "%s, %s" % (name, kind), (got, want["peak_bytes"]))
        ok(kind == "alone" or got["fits"] == want["fits"], "fits: " + name, (got, want["fits"]))

# ---- 7B in fp32 is 28 + 28 + 56 GB: 4 bytes a parameter of weights and of gradients, 8 of Adam's states. llama-2-7b has 6,738,415,616 ----

base = estimate(LLAMA + " --precision fp32")
ok(base["model"]["params_total"] == 6738415616, "parameters", base["model"])
ok([bytes_of(base, c) for c in ("parameters", "gradients", "optimizer_state")] == [26953662464, 26953662464, 53907324928], "28 + 28 + 56 GB", base["items"])
screen = call("estimate " + LLAMA + " --precision fp32")
ok("per param  4 weights + 4 gradients + 8 optimizer states = 16 bytes" in screen, "16 bytes a parameter", screen[-600:])
screen = " ".join(call("estimate " + LLAMA + " --precision bf16-mixed").split())
ok("2 weights + 4 gradients + 4 master weights + 8 optimizer states = 18 bytes; with gradients in bf16, as often counted, 16" in screen, "and 18", screen[-600:])

# ---- activations grow linearly with the batch and with the sequence; 32 accumulated 8 times takes the bytes of 32 ----

acts = [bytes_of(estimate("gpt2 --precision fp32 --seq 512 --micro-batch %d" % b), "activations") for b in (4, 8, 16)]
ok(abs((acts[2] - acts[1]) - 2 * (acts[1] - acts[0])) <= 4096 and acts[0] > 1 << 30, "linear in the batch", acts)
acts = [bytes_of(estimate("llama-3.2-1b --precision fp32 --seq %d" % s), "activations") for s in (1024, 2048, 4096)]
ok(abs((acts[2] - acts[1]) - 2 * (acts[1] - acts[0])) <= 1 << 20, "linear in the sequence, with flash attention", acts)
PINS = "plan gpt2 --device h100 --precision fp32 --seq 128 --micro-batch 32 --recompute none --loss full --global-batch %d --json"
one, eight = (json.loads(call(PINS % g)) for g in (32, 256))
# the batch lies there as a whole: 7 more micro-batches of 32 x 128 tokens and labels, 4 bytes each
ok(eight["peak_bytes"] - one["peak_bytes"] == 7 * 32 * 128 * 8, "32 accumulated 8 times", eight["peak_bytes"] - one["peak_bytes"])

# ---- what adds bytes in this case says so; what saves nothing says so ----

full = ladder(LLAMA + " --device h100 --recompute full")
# 6.7 G parameters: 2 more bytes each (bf16 beside the master weights) against half of what little is kept
ok(full["bf16-mixed"]["alone"]["device_bytes"] - full["start"]["alone"]["device_bytes"] > 8 << 30, "mixed precision adds to a 7B model that is checkpointed", full["bf16-mixed"])
screen = call("estimate %s --device h100 --recompute full --ladder" % LLAMA)
ok([l for l in screen.split("\n") if l.startswith("  bf16-mixed") and l.endswith("  adds")], "and says so", screen)
gain = {k: rungs["attention flash"][k]["device_bytes"] for k in ("alone", "cumulative")}
ok(rungs["start"]["alone"]["device_bytes"] - gain["alone"] > 8 << 30, "fused attention alone saves the matrices of 32 layers", gain)
ok(rungs["recompute full"]["cumulative"]["device_bytes"] - gain["cumulative"] < 1 << 29, "and under full checkpointing one layer's", gain)
ok("8-bit optimizer states" in rungs and rungs["8-bit optimizer states"]["alone"]["device_bytes"] < rungs["start"]["alone"]["device_bytes"] - 6 * 6.7e9 + 1e9, "8-bit states save 6 bytes a parameter", rungs)

# ---- recompute costs 20 to 30 % of a step (a third of what forward and backward take, at most); accumulation costs little ----

big = ladder("qwen2.5-7b --device h100 --precision bf16-mixed --attention flash --seq 2048 --micro-batch 16")
cost = big["recompute full"]["alone"]["step_time_s"] / big["start"]["alone"]["step_time_s"]
ok(1.2 <= cost <= 1.34, "recompute full costs 20 to 34 %", cost)
ok(1 <= big["gradient accumulation"]["alone"]["step_time_s"] / big["start"]["alone"]["step_time_s"] < 1.25, "accumulation costs launches and weights read again", big)

# ---- checkpointing "halves" the activations: in truth it leaves about a third (0.94 -> 0.31), for GPT-2 its inputs, head and one block ----

acts = [bytes_of(estimate("gpt2 --precision fp32 --seq 1024 --recompute " + r), "activations") for r in ("none", "full")]
ok(0.25 < acts[1] / acts[0] < 0.4, "checkpointing leaves a third, not half", acts)

# ---- the screen ----

screen = call("estimate qwen2.5-7b --device 4090 --seq 2048 --micro-batch 8 --ladder")
lines = screen.rstrip("\n").split("\n")
ok(max(map(len, lines)) <= 80 and lines[0].startswith("FITS: ") and lines[1].startswith("fits from "), "the answer first", lines[:2])
ok(len([l for l in lines if l.endswith("  fits")]) == 1, "the first rung that fits is marked", screen)
ok("--lora r=16,targets=all-linear" in screen and "--world 8 --parallel zero3" in screen, "what only another trainer has is named", screen)
beside = ladder("qwen2.5-7b --device 4090 --seq 2048 --micro-batch 8")
for name, option in ("LoRA r=16", "--lora r=16,targets=all-linear"), ("ZeRO-3, 8 cards", "--world 8 --parallel zero3 --precision bf16-mixed"):
    want = estimate("qwen2.5-7b --trainer hf --device 4090 --seq 2048 --micro-batch 1 --recompute full " + option, None)
    got = beside[name]["cumulative"]
    free = want.get("without_limit", want)       # rungs are of a card that never fills
    whole = want["device_bytes"] - want["reserved_peak_bytes"] + free["reserved_peak_bytes"]
    ok((got["peak_bytes"], got["device_bytes"]) == (free["allocated_peak_bytes"], whole), name + " is what estimate says of Trainer", (got, free, whole))
# one of 8 cards holds an eighth of 18 bytes a parameter, and a layer as a whole
ok(beside["ZeRO-3, 8 cards"]["cumulative"]["peak_bytes"] > 7.6e9 * 16 / 8, "ZeRO-3 divides the states", beside["ZeRO-3, 8 cards"])
command = " ".join(screen[screen.index("next       ") + 11:].replace("\\\n", " ").split())
ok(json.loads(call(command.split(None, 1)[1] + " --json"))["peak_bytes"], "and the next command fits", command)
none = estimate("llama-3.1-70b --device t4 --seq 2048 --ladder", 3)
ok(none["ladder"] and not any(r["cumulative"]["fits"] for r in none["ladder"]) and "bf16-mixed" not in [r["name"] for r in none["ladder"]], "nothing helps, and a T4 has no bf16", none["ladder"])
want = estimate("gpt2 --device t4 --precision fp16-mixed --attention math")
ok(ladder("gpt2 --device t4")["fp16-mixed"]["alone"]["peak_bytes"] == want["peak_bytes"], "but fp16", want["peak_bytes"])
ok(ladder("gpt2 --device h100 --gradients bf16")["start"]["alone"]["peak_bytes"] == estimate("gpt2 --device h100 --gradients bf16 --attention math")["peak_bytes"],
   "gradients in bf16 start beside bf16", "other bytes")
call("estimate gpt2 --device t4 --gradients bf16 --ladder", 2)
ok(all(r["alone"]["step_time_s"] is None and r["cumulative"]["fits"] is None for r in ladder("gpt2").values()), "no device, no seconds and no verdict", "said")
call("estimate gpt2 --ladder --max seq --device t4", 2)
finish()
P
