#!/bin/bash
# tests/test_challengers.sh: of random requests no pinned plan, no plan made again with what was chosen pinned and no point of the
# frontier beats the free plan by more than its gap, and none needs less than its least budget. VPLAN_LONG=1: 1,000 requests
# (VPLAN_CHALLENGES=N: N of them), else a few. A failure prints the command lines. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
python3 - "${BUILD:-build}" <<'P'
import json, os, random, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok

vplan = sys.argv[1] + "/vplan"
n = int(os.environ.get("VPLAN_CHALLENGES", 1000 if os.environ.get("VPLAN_LONG") else 8))
seed = int(os.environ.get("VPLAN_SEED", 17))
draw = random.Random(seed)
counts = {}


def run(words):
    """The answer of vplan plan; None: refused by name, as a chunk of more tokens than there are may be."""
    p = subprocess.run([vplan, "plan", *words, "--json", "--within", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if p.returncode == 2:
        return None
    if p.returncode not in (0, 3):
        ok(False, "vplan plan " + " ".join(words), p.stderr.decode())
        finish()
    return json.loads(p.stdout)


def random_request():
    models = {"gpt2-tiny": 128, "gpt2": 1024, "gpt2-large": 1024, "smollm2-135m": 2048, "opt-125m": 2048, "llama-3.2-1b": 8192, "gemma-2-2b": 8192}
    model = draw.choice(list(models))
    words = [model, "--seq", str(min(models[model], draw.choice([64, 100, 128, 256, 512, 1000, 1024, 4096]))), "--global-batch",
             str(draw.choice([1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 24, 31, 32, 48, 60, 64, 96, 97]))]
    device = draw.choice(["t4", "l4", "4090", "rtx-6000-ada-48gb", "h100", "h200"])
    words += ["--device", device, "--precision", "fp32" if device == "t4" else draw.choice(["fp32", "bf16-mixed", "bf16", "any"])]  # no bf16 there
    words += ["--optimizer", draw.choice(["adamw", "adamw-bf16", "sgd", "any"])]
    words += ["--attention", draw.choice(["flash", "flash", "math", "any"])]
    return words


def value(words, option):
    return words[words.index(option) + 1]


def challengers(words, free):
    """Options that pin something."""
    batch = int(value(words, "--global-batch"))
    divisors = [m for m in range(1, batch + 1) if batch % m == 0]
    yield "micro-batch", ["--micro-batch", str(draw.choice(divisors))]
    yield "micro-batch", ["--micro-batch", str(divisors[-1 - draw.randrange(min(2, len(divisors)))])]
    yield "recompute", ["--recompute", draw.choice(["none", "attention", "mlp", "full"])]
    yield "loss", ["--loss", draw.choice(["full", "chunked", "chunked:%d" % (256 * draw.randrange(1, 17))])]
    chosen = free["decisions"]
    again = ["--loss", "chunked:%d" % chosen["loss_chunk_tokens"] if chosen["loss_chunk_tokens"] else "full"]
    if batch % chosen["micro_batch"] == 0:
        again += ["--micro-batch", str(chosen["micro_batch"])]
    if chosen["recompute"] != "mixed":
        again += ["--recompute", chosen["recompute"]]
    yield "made again", again


def challenge(kind, words, free, seconds, least):
    """A challenger's seconds against the free plan's, within its gap and a nanosecond, for which its own sum is rounded."""
    counts[kind] = counts.get(kind, 0) + 1
    if seconds is not None:
        short = free["step_time_s"] - seconds
        ok(short <= free["proof"]["gap"] * free["step_time_s"] + 1e-9, "%s beats the free plan, seed %d: vplan plan %s" % (kind, seed, " ".join(words)),
           (free["step_time_s"], seconds, free["proof"]))
    if least:
        ok(least >= free["proof"]["least_budget_bytes"], "%s needs less than the least budget, seed %d: vplan plan %s" % (kind, seed, " ".join(words)),
           (free["proof"]["least_budget_bytes"], least))


for _ in range(n):
    words = random_request()
    asked = run(words)
    if asked is None:
        counts["refused"] = counts.get("refused", 0) + 1
        continue
    least = asked["proof"]["least_budget_bytes"]
    if asked["device_bytes"] is None or least is None:
        counts["does not fit"] = counts.get("does not fit", 0) + 1
        continue
    # near the least most is to be chosen
    budget = min(asked["budget_bytes"], int(least * (1 + draw.random() ** 3 * 3)))
    words += ["--budget", str(budget)]
    free = run(words + ["--frontier"])
    ok(free["proof"]["status"] in ("optimal", "gap") and free["proof"]["least_budget_bytes"] == least and free["device_bytes"] <= budget,
       "a free plan, seed %d: vplan plan %s" % (seed, " ".join(words)), free["proof"])
    if free["proof"]["gap"] is None:
        continue
    counts[free["proof"]["status"]] = counts.get(free["proof"]["status"], 0) + 1
    for point in free["frontier"]:
        challenge("a frontier's point", words, free, point["step_time_s"] if point["budget_bytes"] <= budget else None, point["budget_bytes"])
    for kind, pins in challengers(words, free):
        pinned = run(words + pins)
        if pinned is not None:
            challenge(kind, words + pins, free, pinned["step_time_s"], pinned["proof"]["least_budget_bytes"])

print(", ".join("%s: %d" % x for x in sorted(counts.items())))
ok(counts.get("optimal", 0) >= n // 2, "most requests have a plan that is optimal", counts)
finish()
P
