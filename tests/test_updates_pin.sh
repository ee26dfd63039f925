#!/bin/bash
# tests/test_updates_pin.sh: --updates backward beside host memory: every plan updates in backward, of micro-steps that are alike, and leaving offload
# free loses nothing against any kind that is named. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}")/vplan" "$work/recipe.json" <<'P'
import json, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok

vplan, recipe = sys.argv[1:]
json.dump({"schema_version": 1, "clip_norm": 0}, open(recipe, "w"))


def plan(batch, budget, *more):
    words = ["plan", "gpt2-tiny", "--device", "cpu", "--seq", "32", "--global-batch", str(batch), "--recipe", recipe, "--budget", "%dB" % budget,
             "--updates", "backward", "--host-memory", "64MiB", "--within", "0", "--json", *more]
    p = subprocess.run([vplan, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ok(p.returncode in (0, 3), " ".join(words), (p.returncode, p.stderr))
    return json.loads(p.stdout)


for batch in (4, 7):
    least = {kind: plan(batch, 1000, *kind)["proof"]["least_budget_bytes"]
             for kind in ((), ("--offload", "none"), ("--offload", "host-step"), ("--offload", "host-step+activations"))}
    ok(least[()] == min(least.values()), "free offload needs no more than any kind, of %d samples" % batch, least)
    for share in (1, 1.05, 1.1, 1.2, 1.4, 1.6):
        budget = int(least[()] * share)
        free, named = plan(batch, budget), plan(batch, budget, "--offload", "host-step")
        ok(free["decisions"]["updates"] == "backward", "in backward with offload free, %d B" % budget, free["decisions"])
        if named["best_step_time_s"]:
            ok(named["decisions"].get("updates") == "backward", "and by the host, %d B" % budget, named["decisions"])
            ok(named["best_step_time_s"] >= free["best_step_time_s"] * (1 - free["proof"]["gap"]) - 1e-12, "which is no faster", (free["proof"], named["proof"]))
two = plan(4, 64 << 20, "--micro-batch", "2")
ok(two["decisions"]["updates"] == "backward" and two["decisions"]["n_micro_steps"] == 2, "of two micro-steps", two["decisions"])
finish()
P
