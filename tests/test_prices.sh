#!/bin/bash
# tests/test_prices.sh: plan --prices: what one more GiB of device or host memory, or one more GB/s of link, saves is the difference of two plans
# that are made one after the other; what is ample has no price. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}")" "$work" <<'P'
import json, shlex, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok

build, work = sys.argv[1:3]
GIB = 1 << 30


def plan(device, case, budget, host, *more):
    words = ["plan", "gpt2", "--device", device, *case.split(), "--global-batch", "8", "--precision", "bf16-mixed", "--within", "0", "--budget", str(budget),
             "--host-memory", str(host), "--json", *more]
    p = subprocess.run([build + "/vplan", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ok(p.returncode == 0, " ".join(words), (p.returncode, p.stderr))
    return json.loads(p.stdout)


def near(a, b):
    return abs(a - b) <= 1e-12


SLOW = "devices/examples/example-24gb-pcie3.json"
faster = json.load(open(SLOW))
faster["host_link_bytes_per_s"] += 1e9
FAST = work + "/faster.json"
json.dump(faster, open(FAST, "w"))

bound = set()
SHORT, LONG = "--seq 512", "--seq 1024 --micro-batch 8"
for case, budget, host in ((SHORT, 17 * GIB // 10, 8 * GIB), (LONG, 7 * GIB // 2, GIB // 10), (SHORT, 20 * GIB, 8 * GIB)):
    here = plan(SLOW, case, budget, host, "--prices")
    base, prices = here["best_step_time_s"], here["shadow_prices"]
    richer = {"device_s_per_gib": plan(SLOW, case, budget + GIB, host) if budget + GIB < 22 * GIB else here, "host_s_per_gib": plan(SLOW, case, budget, host + GIB),
              "link_s_per_gb_per_s": plan(FAST, case, budget, host)}
    for name, other in richer.items():
        ok(near(prices[name], max(0, base - other["best_step_time_s"])), "%s at %d, %d" % (name, budget, host), (prices, base, other["best_step_time_s"]))
    ok(prices["binding"] == [n.split("_")[0] for n in richer if prices[n] > 0], "what has a price binds", prices)
    ok(here["shadow_price_s_per_gib"] == prices["device_s_per_gib"], "the device's price stands where it stood", prices)
    bound |= set(prices["binding"])
ok(bound == {"device", "host", "link"}, "each of them binds somewhere", bound)
ok(prices == {"device_s_per_gib": 0, "host_s_per_gib": 0, "link_s_per_gb_per_s": 0, "binding": []}, "what is ample has no price", prices)

# Of what may be pinned, where that has a limit of its own.
here = plan(SLOW, LONG, 7 * GIB // 2, 8 * GIB, "--prices", "--pinned-memory", str(GIB // 10))
base, prices = here["best_step_time_s"], here["shadow_prices"]
richer = plan(SLOW, LONG, 7 * GIB // 2, 8 * GIB, "--pinned-memory", str(GIB // 10 + GIB))
ok(here["host_pinned_bytes"] <= GIB // 10 and prices["pinned_s_per_gib"] > 0, "what may be pinned binds", (here["host_pinned_bytes"], prices))
ok(near(prices["pinned_s_per_gib"], base - richer["best_step_time_s"]), "its price is the difference of two plans", (prices, base, richer["best_step_time_s"]))
ok("pinned" in prices["binding"] and prices["host_s_per_gib"] == 0, "and the rest of the host's memory has none", prices)

p = subprocess.run([build + "/vplan", "plan", "gpt2", "--device", SLOW, "--seq", "512", "--global-batch", "8", "--budget", "1.1GiB", "--host-memory", "1000MB", "--json"],
                   stdout=subprocess.PIPE, text=True)
more = [c for c in json.loads(p.stdout)["changes"] if "host memory" in c["change"]]
ok(p.returncode == 3 and len(more) == 1 and more[0]["command"].count("--host-memory") == 1, "too little host memory: more of it is what fits", p.stdout)

# With a drive the least budget is that of plans which use it, too: where it is taken, and where host memory is enough.
for host in (64 << 20, 8 * GIB):
    least = plan(SLOW, SHORT, 20 * GIB, host, "--nvme", "8GiB")["proof"]["least_budget_bytes"]
    ok(plan(SLOW, SHORT, least, host, "--nvme", "8GiB")["device_bytes"] <= least, "the least with a drive fits: host memory %d" % host, least)
    p = subprocess.run([build + "/vplan", "plan", "gpt2", "--device", SLOW, *SHORT.split(), "--global-batch", "8", "--precision", "bf16-mixed", "--budget", str(least - 1),
                        "--host-memory", str(host), "--nvme", "8GiB", "--json"], stdout=subprocess.PIPE, text=True)
    ok(p.returncode == 3 and json.loads(p.stdout)["proof"]["least_budget_bytes"] == least, "a byte less does not, and says the same least", (p.returncode, least))

# What would fit is named with the reserve in it, and nothing that contradicts a recipe file.
def run(*words):
    p = subprocess.run([build + "/vplan", *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return p.returncode, json.loads(p.stdout or "{}")


json.dump({"schema_version": 1, "clip_norm": 0}, open(work + "/recipe.json", "w"))
told = 0
for words in ("gpt2 --device 4090 --seq 512 --global-batch 8 --budget 1500MiB --reserve 5%", "llama-3.2-1b --device t4 --seq 512 --global-batch 8 --reserve 300MiB --host-memory 500MiB",
              "gpt2-medium --device t4 --seq 512 --global-batch 4 --budget 4GiB --reserve 300MiB", "gpt2 --device 3070 --seq 512 --global-batch 4 --budget 1500MiB --reserve 10%",
              "llama-3.2-3b --device 4090 --seq 128 --global-batch 8 --recipe %s/recipe.json --host-memory 100GiB --pinned-memory 4KiB" % work):
    code, none = run("plan", *words.split())
    ok(code == 3 and none["changes"], "something would fit: " + words, code)
    for change in none["changes"]:
        told += change["command"] is None
        ok(change["command"] is None or run(*shlex.split(change["command"])[1:])[0] == 0, "the command fits: %s" % change["command"], change)
ok(told > 0, "what only the recipe file can say has no command", told)

unasked = plan(SLOW, SHORT, 20 * GIB, 8 * GIB)["shadow_prices"]
ok(unasked["host_s_per_gib"] is None and unasked["link_s_per_gb_per_s"] is None, "unasked, the device's alone", unasked)
p = subprocess.run([build + "/vplan", "plan", "gpt2", "--device", SLOW, "--seq", "512", "--global-batch", "8", "--precision", "bf16-mixed", "--budget", "1.7GiB",
                    "--host-memory", "8GiB", "--prices"], stdout=subprocess.PIPE, text=True)
ok(p.stdout.count("\nbinding    device memory") == 1 and "\nprices     one more GiB of the device saves" in p.stdout, "the screen says both", p.stdout)
ok(max(len(line) for line in p.stdout.splitlines()) <= 80, "80 columns", p.stdout)
finish()
P
