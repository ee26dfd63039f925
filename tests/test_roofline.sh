#!/bin/bash
# tests/test_roofline.sh: times without a profile are physically possible: bench/published_speed.py's runs of others beside our predictions; explain --roofline
# adds up to the step; the operations of a model are those that people count. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}")" "$work" <<'P'
import json, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok

build, work = sys.argv[1:3]


def run(*words, code=0):
    p = subprocess.run([build + "/vplan", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ok(p.returncode == code, "%s: exit %d" % (" ".join(words), code), p.stderr)
    return p.stdout


r = subprocess.run([sys.executable, "bench/published_speed.py", "--check", "--build", build], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
ok(r.returncode == 0, "published tokens a second: none above the ceiling, the median within 20 %", r.stdout)

# GPT-2 124M: 12 blocks of 12 x 768^2 weights and a head of 50,257 x 768; six operations for each, and 6 L C T of causal attention
job = ("gpt2", "--device", "h100", "--seq", "1024", "--global-batch", "64", "--precision", "bf16-mixed")
plan = json.loads(run("plan", *job, "-o", work + "/p.json", "--json"))
roof = json.loads(run("explain", work + "/p.json", "--roofline", "--json"))
per_token = 6 * (12 * 12 * 768**2 + 50257 * 768) + 6 * 12 * 768 * 1024
ok(roof["model_flop"] == per_token * 64 * 1024, "model FLOP", roof["model_flop"])
ok(abs(roof["mfu"] - roof["model_flop"] / roof["step_time_s"] / 989.4e12) < 1e-3, "MFU by hand", roof["mfu"])
ok(plan["mfu"] == roof["mfu"] and 0.3 < plan["mfu"] < 0.6, "plan says the same MFU", plan["mfu"])
ok(plan["tokens_per_s"] < 719e3, "below the sum of what single kernels reach", plan["tokens_per_s"])
ok(abs(sum(w["seconds"] for w in roof["works"]) - roof["step_time_s"]) < 1e-6, "the rows add up to the step", roof)
ok(abs(sum(w["share"] for w in roof["works"]) - 1) < 1e-9, "the shares to one")
bound = {w["work"]: w["bound"] for w in roof["works"]}
ok(bound["matrix products"] == "compute" and bound["optimizer"] == "memory", "what bounds them", bound)

# recompute makes more operations, not more of the model's
run("plan", *job, "--recompute", "full", "-o", work + "/full.json")
full = json.loads(run("explain", work + "/full.json", "--roofline", "--json"))
flop = lambda r: sum(w["flop"] for w in r["works"])
ok(full["model_flop"] == roof["model_flop"] and flop(full) > 1.15 * flop(roof) and full["mfu"] < roof["mfu"], "recompute is not the model's", flop(full) / flop(roof))

# on a card every screen says it; on the CPU nobody knows the peak
ok("% MFU" in run("plan", *job) and "% MFU" in run("explain", work + "/p.json"), "the screens say the MFU")
text = run("explain", work + "/p.json", "--roofline")
ok(all(len(line) <= 80 for line in text.splitlines()) and "MFU " in text, "the table in 80 columns", text)
run("plan", "gpt2-tiny", "--device", "cpu", "--budget", "8MB", "--seq", "128", "--global-batch", "8", "-o", work + "/cpu.json")
cpu = json.loads(run("explain", work + "/cpu.json", "--roofline", "--json"))
ok(cpu["mfu"] is None and cpu["peak_flop_per_s"] is None and cpu["model_flop"] > 0, "no MFU of a CPU", cpu)

# a device file is named again; no file is opened because a plan names it
card = json.loads(run("devices", "h100", "--json"))["devices"][0]
card["name"] = card["alias"] = "my-card"
json.dump(card, open(work + "/card.json", "w"))
run("plan", "gpt2", "--device", work + "/card.json", *job[3:], "-o", work + "/own.json")
run("explain", work + "/own.json", "--roofline", code=2)
own = json.loads(run("explain", work + "/own.json", "--roofline", "--device", work + "/card.json", "--json"))
ok(abs(own["mfu"] - roof["mfu"]) < 1e-9, "a device file", own["mfu"])
run("explain", work + "/own.json", "--roofline", "--buffers", code=2)
run("explain", work + "/own.json", "--device", "h100", code=2)
finish()
P
