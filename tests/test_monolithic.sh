#!/bin/bash
# tests/test_monolithic.sh: the undivided integer program (every block for itself, any order, glp_intopt) against the decomposed planner: GPT-2
# shapes of 1 to 4 blocks through `vplan plan --monolithic`, and random problems through both modes of vplan-solve, small ones also against
# every sequence there is. Optima are equal to the nanosecond, infeasible is agreed on. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
python3 - "${BUILD:-build}" <<'P'
import itertools, json, os, random, subprocess, sys, tempfile
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, "tests")
from check import finish, ok

build = sys.argv[1]
vplan, solver = build + "/vplan", build + "/vplan-solve"
long_run = "VPLAN_LONG" in os.environ


def in_twos(function, cases):
    with ThreadPoolExecutor(2) as pool:
        return list(zip(cases, pool.map(function, cases)))


# ---- random problems ----

def random_problem(seed):
    """As a model's: keeping more is mostly cheaper, half of the items share their beta with another. Sizes small enough for ties, or large."""
    r = random.Random(seed)
    unit, ns = r.choice((1, 256 * r.randrange(1, 100000))), r.choice((1, r.randrange(1, 1000000)))
    programs, low, high = [], None, 0
    segments = r.random() < .5  # items of several blocks among them
    for _ in range(r.randint(1, 3)):
        items = []
        for s in range(r.randint(1, 5)):
            k = r.randrange(r.choice((8, 40)))
            beta = r.choice(items)[1] if items and r.random() < .5 else r.randrange(40) * unit + (r.randrange(3) if unit > 1 else 0)
            cost = (80 - k) * ns + r.randrange(20) * ns // 3 if r.random() < .8 else r.randrange(60) * ns
            more = r.randrange(3) if segments and r.random() < .5 else 0
            items.append((k * unit + (r.randrange(3) if unit > 1 else 0), beta, cost * (1 + more), more))
        items.sort(key=lambda x: (-x[1], x[0]))
        n, base, end = r.randint(1, 5), r.randrange(30) * unit, r.randrange(40) * unit
        programs.append({"n_blocks": n, "base_bytes": base, "end_bytes": end, "const_ns": r.randrange(30) * ns, "k_bytes": [x[0] for x in items],
                         "beta_bytes": [x[1] for x in items], "cost_ns": [x[2] for x in items], "n_more": [x[3] for x in items]})
        for k, beta, _, more in items:
            need = base + -(-n // (1 + more)) * k + max(end, beta)
            low, high = min(need, low if low is not None else need), max(need, high)
    return {"budget_bytes": max(0, low - low // 16 + r.randrange(high - low + low // 8 + 1)), "upper_ns": 2**63 - 1, "gap": 0.0, "max_nodes": 1000000,
            "max_pivots": 10**9, "max_memory_bytes": 0, "programs": programs}


def cost_of(p, program, sequence):
    """By the definition, item by item (-1: the one before goes on); None where they are not of all blocks, or do not fit."""
    g, kept = p["programs"][program], p["programs"][program]["base_bytes"]
    sequence = [s for s in sequence if s >= 0]
    if sum(1 + g["n_more"][s] for s in sequence) != g["n_blocks"]:
        return None
    for s in sequence:
        kept += g["k_bytes"][s]
        if kept + g["beta_bytes"][s] > p["budget_bytes"]:
            return None
    return None if kept + g["end_bytes"] > p["budget_bytes"] else g["const_ns"] + sum(g["cost_ns"][s] for s in sequence)


def solve(p, *options):
    run = subprocess.run([solver, *options], input=json.dumps(p).encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100)
    return json.loads(run.stdout) if run.returncode == 0 else {"error": run.stderr.decode(), "status": "exit %d" % run.returncode, "found": False}


def both(seed):
    p = random_problem(seed)
    return p, solve(p, "--monolithic"), solve(p)


n_infeasible = n_brute = 0
for seed, (p, whole, parts) in in_twos(both, range(1, 2001 if long_run else 201)):
    name = "random problem %d" % seed
    if whole["status"] == "infeasible":
        n_infeasible += 1
        ok(not whole["found"] and not parts["found"], name, "infeasible, but the decomposed search found %s" % parts)
        continue
    if not ok(whole["status"] == "optimal" and whole["found"] and parts["found"], name, "%s, decomposed %s" % (whole, parts["found"])):
        continue
    g = p["programs"][parts["program_idx"]]
    decomposed = g["const_ns"] + sum(n * c for n, c in zip(parts["counts"], g["cost_ns"]))
    here = cost_of(p, whole["program_idx"], whole["items"])
    ok(here == whole["cost_ns"] == decomposed, name, "undivided %s, of its sequence %s, decomposed %s" % (whole["cost_ns"], here, decomposed))
    if sum((1 + len(g["k_bytes"])) ** g["n_blocks"] for g in p["programs"]) <= 700:
        n_brute += 1
        costs = (cost_of(p, i, q) for i, g in enumerate(p["programs"]) for q in itertools.product(range(-1, len(g["k_bytes"])), repeat=g["n_blocks"]))
        best = min(c for c in costs if c is not None)
        ok(best == here, name, "undivided %s, the best of all sequences %s" % (here, best))
ok(n_infeasible >= 5 and n_brute >= 50, "the random problems are of every kind", "%d infeasible, %d small" % (n_infeasible, n_brute))

# a problem beyond the limit is refused, with its size
large = random_problem(1)
large["programs"] = [dict(large["programs"][0], n_blocks=20000, k_bytes=[1], beta_bytes=[1], cost_ns=[1], n_more=[0])]
answer = solve(large, "--monolithic")
ok(answer["status"] == "refused" and answer["n_columns"] == 20001 and not answer["found"], "20,001 columns", answer)
# limits end the search
hard = dict(random_problem(2), max_nodes=0, max_pivots=0)
ok(solve(hard, "--monolithic")["status"] in ("limit", "optimal", "infeasible"), "no work allowed", solve(hard, "--monolithic"))
run = subprocess.run([solver, "--no-such"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
ok(run.returncode == 2 and not run.stdout, "an unknown option of vplan-solve", run)

# ---- GPT-2 shapes ----

folder = tempfile.TemporaryDirectory()


def plan(model, pins, budget, *options):
    run = subprocess.run([vplan, "plan", model, "--device", "cpu", "--budget", str(budget), *pins.split(), *options, "--within", "0", "--json"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100)
    return json.loads(run.stdout) if run.returncode in (0, 3) else {"error": run.stderr.decode()}


def case(x):
    layers, width, pins, step = x
    model = "%s/gpt2-%d-%d.json" % (folder.name, layers, width)
    if step is None:   # the budgets between which anything changes
        return plan(model, pins, 1)["proof"]["least_budget_bytes"], plan(model, pins, 1 << 30)["device_bytes"]
    return plan(model, pins, step, "--monolithic")


PINS = ["--seq 256 --global-batch 4 --micro-batch 2 --loss full", "--seq 200 --global-batch 4 --loss full",
        "--seq 512 --global-batch 2 --micro-batch 2 --loss chunked:256"]
shapes = [(layers, width, pins) for layers in (1, 2, 3, 4) for width in (48, 128) for pins in PINS]
for layers, width, _ in shapes:
    with open("%s/gpt2-%d-%d.json" % (folder.name, layers, width), "w") as f:
        json.dump({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": width, "n_layer": layers, "n_head": width // 16, "vocab_size": 500,
                   "n_positions": 512, "tie_word_embeddings": True}, f)
cases = []
for (layers, width, pins, _), (least, most) in in_twos(case, [s + (None,) for s in shapes]):
    cases += [(layers, width, pins, b) for b in (least - 1, least, least + (most - least) // 5, least + (most - least) // 2)]
counts = {}
for x, a in in_twos(case, cases):
    name, m = "gpt2 of %d blocks, width %d, %s, budget %d" % x, a.get("monolithic")
    if not ok(m and m["status"] in ("optimal", "infeasible") and m["equal"] is True and m["note"] is None, name, m or a):
        continue
    counts[m["status"]] = counts.get(m["status"], 0) + 1
    if m["status"] == "infeasible":
        ok(a["proof"]["status"] == "infeasible" and m["step_time_s"] is None, name, a["proof"])
    else:
        ok(round(m["step_time_s"] * 1e9) == round(m["decomposed_step_time_s"] * 1e9) and a["step_time_s"] <= m["decomposed_step_time_s"], name, m)
ok(counts.get("optimal", 0) >= 50 and counts.get("infeasible", 0) >= 10, "the shapes are of both kinds", counts)
print("%d random problems, %d infeasible, %d against all sequences; GPT-2 shapes: %s" % (2000 if long_run else 200, n_infeasible, n_brute, counts))
finish()
P
