#!/bin/bash
# tests/test_tables.sh: the tables of many plans, odd shapes among them, through the independent checker; a dozen of the plans run
# with every dead byte poisoned. VPLAN_LONG=1: ten times the random plans. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
python3 - "${BUILD:-build}/vplan" "$work" "${VPLAN_LONG:+400}" <<'P'
import json, os, random, subprocess, sys

sys.path.insert(0, "tests")
import check_tables
from check import count, finish, ok

vplan, work, n_random = sys.argv[1], sys.argv[2], int(sys.argv[3] or 40)
SEED = 20260521


def run(*words):
    r = subprocess.run([vplan] + list(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    return r.returncode, r.stdout.decode(), r.stderr.decode()


def write(name, value):
    with open("%s/%s" % (work, name), "w") as f:
        json.dump(value, f)
    return "%s/%s" % (work, name)


def config(name, **changes):
    c = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 512,
         "vocab_size": 256, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "initializer_range": 0.02}
    c.update(changes)
    return write(name + ".json", c)


recipes = {"none": None, "sgd": write("sgd.recipe", {"schema_version": 1, "optimizer": {"name": "sgd", "lr": 0.1, "weight_decay": 0.0}}),
           "dropout": write("dropout.recipe", {"schema_version": 1, "dropout": 0.1}),
           "unclipped": write("unclipped.recipe", {"schema_version": 1, "clip_norm": 0, "data": {"kind": "tokens-i32"}})}

# what, model, sequence, global batch, pins, recipe
cases = []
for recompute in "none", "attention", "mlp", "full":
    for micro in "1", "2", "4":
        cases.append(("tiny %s x%s" % (recompute, micro), "gpt2-tiny", 128, 4, ["--recompute", recompute, "--micro-batch", micro], "none"))
    for loss in "full", "chunked:256":
        cases.append(("tiny %s %s" % (recompute, loss), "gpt2-tiny", 128, 8, ["--recompute", recompute, "--micro-batch", "4", "--loss", loss], "dropout"))
odd = config("odd", n_embd=40, n_head=4, vocab_size=101, n_layer=3)
cases += [
    ("40 wide, 4 heads, 101 words", odd, 7, 3, [], "none"),
    ("the same in a sequence of one", odd, 1, 1, [], "none"),
    ("the same, recomputed", odd, 13, 6, ["--recompute", "full", "--micro-batch", "2"], "dropout"),
    ("untied", config("untied", tie_word_embeddings=False), 64, 4, ["--micro-batch", "2"], "none"),
    ("untied and chunked", config("untied2", tie_word_embeddings=False, vocab_size=1001), 300, 2, ["--loss", "chunked:256"], "sgd"),
    ("n_inner 52", config("inner", n_inner=52), 33, 2, ["--recompute", "mlp"], "none"),
    ("n_inner 8, narrower than the model", config("narrow", n_inner=8), 16, 2, ["--recompute", "mlp"], "none"),
    ("one layer", config("one", n_layer=1), 64, 2, ["--recompute", "full"], "none"),
    ("one layer, untied, sgd", config("one2", n_layer=1, tie_word_embeddings=False), 64, 2, [], "sgd"),
    ("one head", config("head", n_head=1), 64, 2, [], "dropout"),
    ("heads of one dimension", config("thin", n_embd=8, n_head=8), 20, 2, [], "none"),
    ("a vocabulary of one", config("mute", vocab_size=1), 20, 2, [], "none"),
    ("24 layers", config("deep", n_layer=24, n_embd=16), 32, 2, ["--recompute", "attention"], "none"),
    ("no clipping", "gpt2-tiny", 64, 6, ["--micro-batch", "3"], "unclipped"),
    ("a chunk that does not divide", odd, 200, 3, ["--micro-batch", "3", "--loss", "chunked:256"], "none"),
    ("states that the host steps", "gpt2-tiny", 64, 4, ["--host-memory", "1GiB", "--offload", "host-step"], "none"),
    ("and streamed blocks", config("deep", n_layer=24, n_embd=16), 32, 2, ["--host-memory", "1GiB", "--offload", "params+host-step"], "none"),
    ("states on a drive", config("deep", n_layer=24, n_embd=16), 32, 2, ["--host-memory", "1KiB", "--nvme", "1GiB", "--offload", "optimizer"], "none"),
    ("a chunk of all tokens", "gpt2-tiny", 128, 2, ["--micro-batch", "2", "--loss", "chunked:256"], "none"),
]
draw = random.Random(SEED)
for i in range(n_random):
    heads = draw.choice([1, 2, 3, 4, 5])
    path = config("random%d" % i, n_head=heads, n_embd=heads * draw.randint(1, 12) * draw.choice([1, 2, 4]), n_layer=draw.randint(1, 5),
                  vocab_size=draw.choice([5, 64, 101, 257, 999]), tie_word_embeddings=draw.random() < 0.6,
                  n_inner=draw.choice([None, 4, 37, 130]), scale_attn_weights=draw.random() < 0.8)
    seq, micro, n = draw.choice([1, 3, 16, 50, 128, 301]), draw.choice([1, 2, 3]), draw.choice([1, 2, 3])
    pins = ["--micro-batch", str(micro)]
    if draw.random() < 0.8:
        pins += ["--recompute", draw.choice(["none", "attention", "mlp", "full"])]
    if seq * micro > 256 and draw.random() < 0.7:
        pins += ["--loss", "chunked:%d" % draw.choice([256, 512])]
    cases.append(("random %d of seed %d" % (i, SEED), path, seq, micro * n, pins, draw.choice(list(recipes))))

plans, tested = {}, 0
for i, (what, model, seq, batch, pins, recipe) in enumerate(cases):
    plan = "%s/plan%d.json" % (work, i)
    words = ["plan", model, "--device", "cpu", "--seq", str(seq), "--global-batch", str(batch), "-o", plan, "--json"] + pins
    words += ["--recipe", recipes[recipe]] if recipes[recipe] else []
    what = "%s (vplan %s)" % (what, " ".join(words).replace(work, "DIR"))
    code, out, err = run(*words)
    if not ok(code == 0, what, "exit %d: %s" % (code, err)):
        continue
    answer = json.loads(out)
    if "--loss" in pins and "chunked:256" in pins:
        ok(answer["decisions"]["loss_chunk_tokens"] == 256, what, "the chunk pinned is not the chunk planned: %s" % answer["decisions"])
    for pin, key in ("--micro-batch", "micro_batch"), ("--recompute", "recompute"):
        if pin in pins:
            ok(str(answer["decisions"][key]) == pins[pins.index(pin) + 1], what, "pinned %s, planned %s" % (pin, answer["decisions"]))
    plans[i] = what, plan, answer
    tables = [run("explain", plan, table) for table in ("--buffers", "--program")]
    if not ok(tables[0][0] == tables[1][0] == 0, what, tables[0][2] + tables[1][2]):
        continue
    (_, buffers, _), (_, program, _) = tables
    try:
        # where copies run beside kernels the step is shorter than the sum of its seconds
        seconds = None if "--offload" in pins else answer["step_time_s"]
        check_tables.check("buffers", buffers, "program", program, answer["peak_bytes"], answer["host_peak_bytes"], seconds)
        ok(True, what)
    except check_tables.Wrong as e:
        ok(False, what, e)
    # The document that explain prints states the same figures.
    story = json.loads(run("explain", plan, "--json")[1])
    ok(story["peak_bytes"] == answer["peak_bytes"] and story["step_time_s"] == answer["step_time_s"]
       and sum(x["bytes"] for x in story["items"]) == answer["peak_bytes"], what, "explain and plan differ, or the items do not sum to the peak")
    # The checker itself is held to account on plans with and without accumulation, padding, recompute and states.
    if i in (1, 13, 22, 28, 33):
        tested += 1
        count(*check_tables.self_test(buffers, program, answer["peak_bytes"], answer["step_time_s"]))
ok(tested == 5 and len(plans) >= 40, "the number of plans", "%d, %d self-tests" % (len(plans), tested))

# ---- a plan, priced by another profile ----
what, plan, answer = plans[1]
timed = json.loads(run("run", plan, "--steps", "2", "--save-profile", work + "/here.json", "--json")[1])
here = json.load(open(work + "/here.json"))
each = [{**{k: v for k, v in c.items() if k not in ("calls", "seconds")}, "seconds": c["seconds"] / c["calls"]} for c in timed["kernel_calls"]]
ok(here["device"] == "cpu" and here["backend"] == timed["backend_description"] and here["rows"] == each, "run --save-profile", here["rows"][:3])
code, out, err = run("run", plan, "--steps", "2", "--save-profile", work + "/here.json")
ok(code == 2 and "--force" in err and json.load(open(work + "/here.json")) == here, "a profile is not replaced", "exit %d: %s" % (code, err))
before = open(plan, "rb").read()
code, out, err = run("run", plan, "--steps", "2", "--save-profile", plan, "--force")
ok(code == 2 and "is an input too" in err and open(plan, "rb").read() == before, "a profile never takes the plan's place", "exit %d: %s" % (code, err))
code, out, err = run("run", plan, "--steps", "2", "--save-profile", work + "/none/here.json")
ok(code == 7 and "step 1" not in out, "a profile that cannot be written ends before the first step", "exit %d: %s" % (code, out))
for words in ["--verify"], [plan]:
    code, out, err = run("run", plan, *words, "--save-profile", work + "/other.json")
    ok(code == 2 and not os.path.exists(work + "/other.json"), "no profile of a run with %s" % words[0], "exit %d: %s" % (code, err))
with open(work + "/there.json", "w") as f:
    json.dump({"schema_version": 1, "device": "cpu", "backend": "twice as slow", "rows": [{**r, "seconds": 2 * r["seconds"]} for r in here["rows"]]}, f)
code, out, err = run("explain", plan, "--profile", work + "/there.json", "--json")
ok(code == 0, "explain --profile", err)
story, called = json.loads(out), 2 * sum(c["seconds"] for c in timed["kernel_calls"])
ok(abs(story["step_time_s"] / called - 1) < 1e-6 and story["time_class"] == "measured" and story["planned_step_time_s"] == answer["step_time_s"],
   "explain --profile", "%s by the profile, its calls sum to %s; %s" % (story["step_time_s"], called, story["time_class"]))
program = run("explain", plan, "--program", "--profile", work + "/there.json")[1]
ok(abs(sum(float(row["seconds"]) for _, row in check_tables.rows("program", program, check_tables.PROGRAM)) / called - 1) < 1e-6,
   "explain --program --profile", "other seconds than the profile's")
with open(work + "/poor.json", "w") as f:
    json.dump({"schema_version": 1, "device": "cpu", "backend": "", "rows": []}, f)
code, out, err = run("explain", plan, "--profile", work + "/poor.json")
ok(code == 4 and "poor.json" in err and "which the plan calls" in err, "a profile without the plan's kernels", "exit %d: %s" % (code, err))

# ---- a dozen, executed ----
chosen = [1, 4, 12, 16, 19, 20, 23, 26, 27, 30, 31, 34] + list(range(36, len(cases), 8))
for k in chosen:
    if not ok(k in plans, "run of plan %d" % k, "there is no such plan"):
        continue
    what, plan, answer = plans[k]
    code, out, err = run("run", plan, "--steps", "2", "--verify", "--json", "--threads", "1")
    if not ok(code == 0, "run of " + what, "exit %d: %s" % (code, err)):
        continue
    ran = json.loads(out)
    m = ran["memories"][0]
    buffers = run("explain", plan, "--buffers")[1]
    padding = sum(int(row["bytes"]) for _, row in check_tables.rows("buffers", buffers, check_tables.BUFFERS) if row["component"] == "padding" and row["memory"] == "device")
    ok(m["predicted_bytes"] == m["executed_bytes"] == answer["peak_bytes"], "run of " + what, "predicted, executed: %s" % m)
    ok(m["never_written_bytes"] == 0, "run of " + what, "bytes never written: %s" % m)
    ok(m["padding_bytes"] == padding and m["touched_bytes"] == m["executed_bytes"] - padding, "run of " + what, "touched: %s; padding %d" % (m, padding))
    ok(len(ran["steps"]) == 2 and all(s["loss"] >= 0 and s["grad_norm"] >= 0 for s in ran["steps"]), "run of " + what, ran["steps"])
finish()
P
