#!/bin/bash
# tests/test_screens.sh: what people see. Each screen says what was asked, and what was chosen for them, in 80 columns. The last line
# counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}/vplan")" "$work" <<'P'
import json, os, re, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok

vplan, work = sys.argv[1:3]
os.chdir(work)
env = dict(os.environ, LC_ALL="C", OMP_NUM_THREADS="1")


def call(line, code=0):
    """What a command prints on standard output; nothing it prints is wider than a screen."""
    p = subprocess.run([vplan] + line.split(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=300, env=env)
    out, err = p.stdout.decode(), p.stderr.decode()
    wide = [l for l in out.split("\n") if len(l) > 80]
    ok("--json" in line or not wide, "80 columns: " + line, wide)
    ok(p.returncode == code, line, "exit %d: %s%s" % (p.returncode, err, out[-300:]))
    return out


def one(pattern, text, what):
    found = re.search(pattern, text, re.M)
    ok(found, what, text[:400])
    return found


# ---- the recipe stands at the head of every screen, with what was left free ----

T4 = "gpt2-large --device t4 --seq 1024 --global-batch 32"
out = call("plan %s --precision any --optimizer any" % T4)
one(r"^recipe     fp16-mixed, adamw(-bf16|-8bit)?, gradients fp32, attention flash$", out, "a T4 has no bf16, and SGD is asked for by name only")
one(r"^free       --precision, among fp32, fp16-mixed$", out, "what was free: the precision")
one(r"^           --optimizer, among adamw, adamw-bf16, adamw-8bit$", out, "what was free: the optimizer")
one(r"^    with fp16-mixed, adamw", out, "presets say their recipe where it is free")
answer = json.loads(call("plan %s --precision any --optimizer any --json" % T4.replace("t4", "h100")))
ok(answer["settings"]["precision"] == "bf16-mixed" and answer["settings"]["optimizer"].startswith("adamw"), "on an H100", answer["settings"])
ok(all(p["optimizer"].startswith("adamw") and p["precision"] != "bf16" for p in answer["presets"]), "presets are freed alike", answer["presets"])
out = call("plan %s --optimizer sgd" % T4)
one(r"^recipe     fp16-mixed, sgd, gradients fp32", out, "SGD by name")
ok("free  " not in out, "nothing was free", out)
H100 = T4.replace("t4", "h100")
out = call("plan %s --gradients any" % H100)
one(r"^recipe     bf16-mixed, adamw, gradients (fp32|bf16), attention flash$", out, "gradients are free by name only")
one(r"^free       --gradients, among fp32, bf16$", out, "what was free: gradients")
answer = json.loads(call("plan %s --gradients bf16 --json" % H100))
ok(answer["recipe"] == {"precision": "bf16-mixed", "gradients": "bf16", "optimizer": "adamw", "freed": []}, "gradients in bf16", answer["recipe"])
half, whole = [json.loads(call("estimate gpt2 --device h100 --seq 128 --gradients %s --json" % g)) for g in ("bf16", "fp32")]
held = [sum(i["bytes"] for i in e["items"] if i["name"].startswith("gradients")) for e in (half, whole)]
# 124,439,808 parameters, of 4 bytes or 2, each parameter's gradient on a multiple of 256 bytes
ok(held[1] == 4 * 124439808 and abs(held[0] - 2 * 124439808) < 148 * 256, "half the bytes", held)
call("plan %s --precision fp32 --gradients bf16" % H100, 2)
one(r"^free       --gradients, among fp32$", call("plan %s --precision fp32 --gradients any" % H100), "beside fp32 there is one way")
call("plan %s --trainer hf --gradients bf16" % H100, 2)
call("estimate gpt2 --device h100 --seq 128 --trainer hf --gradients bf16", 2)
ok("by Trainer" not in call("estimate gpt2 --device h100 --seq 128 --gradients bf16"), "Trainer has no such gradients", "by Trainer")
TINY = "gpt2-tiny --device cpu --seq 128 --global-batch 8 --budget 8MB"
call("plan %s --optimizer any -o plan.json" % TINY)
for line, code in (("estimate gpt2-tiny --optimizer lion", 0), ("explain plan.json", 0), ("run plan.json --steps 1 -q", 0), ("tune plan.json --max-trials 1 -q", 0),
                   ("plan gpt2-xl --device 4090 --seq 1024 --global-batch 32", 3)):
    one(r"^recipe     (fp32|bf16-mixed), \S+, gradients fp32", call(line, code), "recipe: " + line)

# ---- -v says on standard error what the answer was made from, and changes nothing of it ----
for line, told in (("plan gpt2-tiny --device t4 --seq 128 --global-batch 8", ("model: built in, gpt2-tiny", "device: t4", r"search: \d+ scenarios, \d+ strategies .* \d+ nodes")),
                   ("estimate gpt2 --trainer hf --device t4 --seq 128", ("recorded step of gpt2: task=clm precision=bf16-mixed attention=sdpa:efficient",))):
    plain, loud = [subprocess.run([vplan] + line.split() + more, capture_output=True, text=True, env=env) for more in ([], ["-v"])]
    ok(plain.stdout == loud.stdout and "detail:" not in plain.stderr, "the same answer: " + line)
    for words in told:
        one("^detail: " + words, loud.stderr, words)
call("estimate gpt2 -q -v", 2)

# ---- what is needed is bytes of the device everywhere, what lies outside the arena included ----


def size(text):
    """Bytes of a size as a screen has it."""
    number, unit = text.replace(",", "").split()
    return float(number) * {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[unit]


def needs(out):
    """Rows of the presets: (bytes, fits)."""
    return [(size(m.group(1)), m.group(2) == "fits") for m in re.finditer(r"^  \S.{30,36} +([\d.,]+ [KMG]?i?B) .*  (fits|does not fit)$", out, re.M)]


for line, code in (("plan %s --frontier" % T4, 0), ("plan gpt2-xl --device 4090 --seq 1024 --global-batch 32", 3),
                   ("plan llama-3.1-8b --device h100 --seq 2048 --global-batch 8 --precision fp32", 3)):
    out, answer = call(line, code), json.loads(call(line + " --json", code))
    said = one(r"^(FITS|DOES NOT FIT): ([\d.,]+) (?:GiB )?of ([\d.,]+ GiB), (?:short by )?([\d.,]+ [KMG]?i?B)", out, "the answer is the first line: " + line)
    least, budget = answer["proof"]["least_budget_bytes"], answer["budget_bytes"]
    ok(out.startswith(said.group(0)) and abs(size(said.group(3)) - budget) < 6e6, "of the budget: " + line, out)
    rows = needs(out)
    ok(len(rows) == len(answer["presets"]) >= 5, "presets: " + line, out)
    for (shown, fits), preset in zip(rows, answer["presets"]):
        ok(abs(shown - preset["device_bytes"]) < 6e6 and fits == (preset["device_bytes"] <= budget), "a preset needs bytes of the device", (shown, preset))
        ok(preset["device_bytes"] >= least, "no preset needs less than the least budget: " + line, (preset, least))
    if code == 3:
        ok(abs(size(said.group(4)) - (least - budget)) < 6e6, "short by what is missing: " + line, said.group(0))
        one(r"^binding .*(\n +.*)?512.0 MiB\s+outside the arena", out, "what binds says what lies outside")
    else:
        points = re.findall(r"^ +([\d.]+ GiB) +[\d.]+ s +[+]", out, re.M)
        ok([abs(size(n) - p["device_bytes"]) < 6e6 for n, p in zip(points, answer["frontier"])] == [True] * 16, "the frontier's plans", points)
        ok(all(0 <= p["budget_bytes"] - p["device_bytes"] < 8e7 for p in answer["frontier"]), "where memory is scarce a budget is used up", answer["frontier"])

fits = json.loads(call("estimate gpt2 --seq 256 --device t4 --precision fp32 --json"))
tight = "estimate gpt2 --seq 256 --device t4 --precision fp32 --budget %d" % (fits["device_bytes"] - 300000)
one(r"^DOES NOT FIT: ([\d.,]+) of \1 GiB, short by 293.0 KiB$", call(tight, 3), "short by what rounding hides")
one(r"^  all of it +%s GiB" % re.escape("%.2f" % (fits["device_bytes"] / 2 ** 30)), call("estimate gpt2 --seq 256 --device t4 --precision fp32"), "the table adds up to the answer")

# ---- what does not fit is told what would, each a command that does ----


def commands(out):
    """Lines to paste, put together again."""
    return [" ".join(c.replace("\\\n", " ").split()) for c in re.findall(r"^           (vplan (?:.*\\\n)*.*)$", out, re.M)]


SHOWN = [
    ("Qwen2.5-7B --device 4090 --seq 2048 --global-batch 8", ["--device", "--precision bf16 --gradients bf16 --optimizer adamw-8bit", "plan qwen2.5-3b"]),
    ("llama-3.1-8b --device h100 --seq 2048 --global-batch 8 --precision bf16-mixed", ["--precision bf16 --optimizer adamw-8bit", "--device", "plan llama-3.2-3b"]),
    ("gpt2-xl --device 4090 --seq 1024 --global-batch 32 --micro-batch 1 --loss full", ["--optimizer adamw-8bit", "--precision bf16", "plan gpt2-large"]),
    ("gpt2 --device t4 --budget 1GiB --seq 1024 --global-batch 4", ["--budget"]),
]
for line, wanted in SHOWN:
    out, answer = call("plan " + line, 3), json.loads(call("plan %s --json" % line, 3))
    told = commands(out)
    ok(told and [c["command"] for c in answer["changes"]] == told, "the screen and the document tell the same: " + line, (told, answer["changes"]))
    for word in wanted:
        ok(any(word in c for c in told), "%s is among what fits: %s" % (word, line), told)
    for command, change in zip(told, answer["changes"]):
        found = json.loads(call(command.split(None, 1)[1] + " --json"))
        needs = found["interval"]["high_bytes"] if "--trainer" in command else found["proof"]["least_budget_bytes"]
        ok(needs == change["needs_bytes"], "and needs what was said: " + command, (found["proof"], change))

# ---- what was looked for is no assumption, and what follows from other fields is no default ----

out = call("estimate gpt2 --device t4 --max seq")
one(r"^largest    --seq 1024, all positions of the model$", out, "--max seq says what it found")
ok("not given" not in out and "n_inner" not in out, "nothing false is assumed", out)
ok(not json.loads(call("estimate llama-3.2-1b --device h100 --max seq --json"))["assumptions"][0].startswith("head_dim"), "head_dim follows", "is listed")
one(r"^largest    --micro-batch (\d+)$", call("estimate gpt2 --device t4 --max micro-batch"), "--max micro-batch says what it found")
for words, unit in (("gpt2 --device t4 --seq 512", "micro-batch"), ("gpt2-tiny --device cpu --budget 2.6MB --micro-batch 1", "seq")):
    most = re.search(r"^largest    --%s (\d+)" % unit, call("estimate %s --max %s" % (words, unit)), re.M)
    for more, code in ((0, 0), (1, 3)):
        call("estimate %s --%s %d" % (words, unit, int(most.group(1)) + more), code)
one(r"^ +not even --micro-batch 1$", call("estimate gpt2-xl --device t4 --max micro-batch", 3), "not even one sample")
one(r"^ +not even --seq 1", call("estimate gpt2-xl --device t4 --max seq", 3), "not even one token")

# ---- memory that buys nothing is not used, unless it is asked for ----

FULL = T4 + " --precision fp32"  # where memory is dear: in 16 bits half a GiB buys more than 1 %
lean, fast = (json.loads(call("plan %s --json --within %s" % (FULL, within))) for within in ("1%", "0"))
default = json.loads(call("plan %s --json" % FULL))
ok(default == dict(json.loads(call("plan %s --json --within 0.1%%" % FULL)), timing=default["timing"]), "0.1 % is the default", "differs")
ok(fast["best_step_time_s"] == fast["step_time_s"] == lean["best_step_time_s"] == lean["fastest"]["step_time_s"] and lean["proof"]["bound_s"] == fast["proof"]["bound_s"], "the proof is about the best", lean["proof"])
ok(abs(lean["proof"]["gap"] - (lean["best_step_time_s"] - lean["proof"]["bound_s"]) / lean["best_step_time_s"]) < 1e-12, "gap is of the best", lean["proof"])
ok(fast["step_time_s"] < lean["step_time_s"] <= 1.01 * fast["step_time_s"] and lean["device_bytes"] < fast["device_bytes"] - (500 << 20), "memory for 1 % is kept", lean["device_bytes"])
ok(default["step_time_s"] <= 1.001 * fast["step_time_s"] and lean["device_bytes"] < default["device_bytes"] < fast["device_bytes"], "memory for 0.1 % is kept", default["device_bytes"])

# ---- what was not said: the number format of the card; shares of it ----
for device, precision in (("h100", "bf16-mixed"), ("4090", "bf16-mixed"), ("t4", "fp16-mixed"), ("cpu", "fp32")):
    doc = json.loads(call("plan gpt2-tiny --device %s --seq 128 --global-batch 8 --json" % device))
    ok(doc["recipe"] == {"precision": precision, "gradients": "fp32", "optimizer": "adamw", "freed": []}, "the default on " + device, doc["recipe"])
    ok(json.loads(call("estimate gpt2-tiny --device %s --json" % device))["settings"]["precision"] == precision, "and of estimate", device)
doc = json.loads(call("plan gpt2-tiny --device h100 --seq 128 --global-batch 8 --precision any --optimizer any --json"))
ok(doc["recipe"]["freed"] == ["precision", "optimizer"], "what was freed", doc["recipe"])
whole = json.loads(call("plan gpt2-tiny --device h100 --seq 128 --global-batch 8 --json"))["budget_bytes"]
for words, share, kept in (("--budget 80%", 0.8, 0), ("--reserve 15%", 0.85, 0.15), ("--budget 50% --reserve 10%", 0.4, 0.1)):
    doc = json.loads(call("plan gpt2-tiny --device h100 --seq 128 --global-batch 8 --json " + words))
    ok(abs(doc["budget_bytes"] - share * whole) <= 2 and abs(doc["reserve_bytes"] - kept * whole) <= 1, words, doc["budget_bytes"])
doc = json.loads(call("plan gpt2-tiny --device h100 --seq 128 --global-batch 8 --json --reserve 1GiB"))
ok(doc["budget_bytes"] == whole - (1 << 30) and doc["reserve_bytes"] == 1 << 30, "--reserve 1GiB", doc["budget_bytes"])
one(r"^reserve    1.00 GiB kept free$", call("plan gpt2-tiny --device h100 --seq 128 --global-batch 8 --reserve 1GiB"), "the reserve is shown")
ok(json.loads(call("estimate gpt2-tiny --device h100 --budget 80% --json"))["budget_bytes"] == whole * 4 // 5, "estimate --budget 80%", whole)
for trainer in ("vplan", "hf"):
    line = "estimate gpt2 --seq 128 --device h100 --trainer %s --reserve " % trainer
    ok(abs(json.loads(call(line + "15% --json"))["budget_bytes"] - 0.85 * whole) <= 2, "estimate --reserve 15% " + trainer, whole)
    text = call(line + "1GiB")
    one(r"^reserve    1.00 GiB kept free$", text, "the reserve is shown: " + trainer)
    ok("--reserve 1GiB" in text[text.index("\nnext"):], "and goes on to plan: " + trainer, text)
for words, said in (("--reserve 1GiB", "of which --device or --budget?"), ("--reserve 10%", "a share of which --device?"), ("--budget 1GiB --reserve 1GiB", "leave nothing")):
    p = subprocess.run([vplan, "estimate", "gpt2", *words.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ok(p.returncode == 2 and said in p.stderr, "estimate " + words, p.stderr)
ok("reserve " not in call("plan gpt2-tiny --device h100 --seq 128 --global-batch 8"), "nothing of a reserve where much is free", "said")
scarce = one(r"^reserve    [\d.]+ MiB are free, should context and libraries take more than the\n           assumed 512\.0 MiB; --reserve (4)% keeps 596\.5 MiB$", call("plan " + T4),
             "little is left for what nobody measured")
more = json.loads(call("plan %s --reserve %s%% --json" % (T4, scarce.group(1))))
ok(more["device_bytes"] + 512 * 1024 ** 2 <= 15632171008 and more["proof"]["status"] == "optimal", "and what it says keeps as much again", more["device_bytes"])
for words in ("--budget 0%", "--budget 101%", "--budget x%", "--reserve 100%", "--reserve 90% --budget 50%", "--budget 8 0%"):
    call("plan gpt2-tiny --device h100 --seq 128 --global-batch 8 " + words, 2)
call("estimate gpt2-tiny --budget 80%", 2)
call("plan gpt2-tiny --device cpu --budget 64MB --seq 16 --global-batch 2 -o tiny-plan.json")
ok(json.loads(call("run tiny-plan.json --steps 1 --json"))["parameters_sha256"] is None,
   "nothing is hashed unasked", "a hash")
ok(len(json.loads(call("run tiny-plan.json --steps 1 --json --hash"))["parameters_sha256"]) == 64, "--hash", "none")

out = call("plan " + T4)
one(r"^fastest    [\d.]+ s a step with 14\.5\d GiB: \d+.\d MiB more for [\d.]+ % of the time", out, "both are said")
ok("fastest" not in call("plan %s --within 0" % T4), "the old answer has nothing beside it", out)
for bad in ("-1%", "1x", "200%", "nan"):
    call("plan %s --within=%s" % (T4, bad), 2)
call("plan %s --within 1%% -o lean.json" % FULL)
ok(json.load(open("lean.json"))["proof"]["fastest_s"] == fast["step_time_s"], "the plan file says what its proof is about", "no fastest_s")
one(r"^FITS: %.2f of 14.56 GiB" % (lean["device_bytes"] / 2**30), call("explain lean.json"), "and can be read")

# ---- an answer that could not be written is no success; a reader that has seen enough is no fault ----

json.dump({}, open("empty.json", "w"))
RUN = "run plan.json --steps 1 -q"
bad = os.fsencode("caf\xe9.json".encode("latin-1"))
for line in (RUN, RUN + " --json", "plan %s" % TINY, "plan %s --json" % TINY, "estimate gpt2 --json", "devices", "explain plan.json --program", "help"):
    words = [vplan] + line.split()
    with open("/dev/full", "wb") as full:
        p = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env)
    ok(p.returncode == 7 and b"standard output cannot be written" in p.stderr, "onto a full disk: " + line, (p.returncode, p.stderr))
    p = subprocess.run(words, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env, preexec_fn=lambda: os.close(1))
    ok(p.returncode == 7 and b"standard output cannot be written" in p.stderr, "closed: " + line, (p.returncode, p.stderr))
    reading, writing = os.pipe()
    os.close(reading)
    p = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env)
    os.close(writing)
    ok(p.returncode == 0, "nobody reads any more: " + line, (p.returncode, p.stderr))
p = subprocess.run([os.fsencode(vplan), b"run", bad, b"--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env)
error = json.loads(p.stdout or "{}").get("error", {})
ok(p.returncode == error.get("exit", p.returncode) != 0 and "caf" in error.get("file", ""), "the error object of a name that is no UTF-8", (p.returncode, p.stdout))

# ---- a plan that was changed trains nothing, unless it is asked to ----

import random

random.seed(3)
whole = open("plan.json").read()
places = [m for m in re.finditer(r"(?<=[ \[])(-?\d+(?:\.\d+)?)(?=[,\n\]])", whole)]
ok(len(places) > 400, "numbers of a plan", len(places))
trains = [vplan + "-run", "changed.json", "--steps", "1", "-q"]
n_through = 0
for k in range(150):
    m = random.choice(places)
    new = random.choice([str(int(float(m.group(1))) + 1), "0", m.group(1) + "1"])
    if float(new) == float(m.group(1)):
        continue
    open("changed.json", "w").write(whole[:m.start()] + new + whole[m.end():])
    p = subprocess.run(trains, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env)
    n_through += p.returncode == 4 and b"is not as vplan wrote it" in p.stderr
    if p.returncode != 4:
        ok(False, "%s for %s at byte %d" % (new, m.group(1), m.start()), (p.returncode, p.stderr[-200:]))
ok(n_through > 5, "some pass every other check", n_through)
open("changed.json", "w").write(whole.replace('"lr": 0.001', '"lr": 0.002', 1))  # no step repeats it
call("run changed.json --steps 1 -q", 4)
call("run changed.json --steps 1 -q --unsigned")
call("run changed.json plan.json --steps 1 -q", 4)
json.dump(json.loads(whole), open("changed.json", "w"))
call("run changed.json --steps 1 -q")
json.dump({k: v for k, v in json.loads(whole).items() if k != "digest"}, open("changed.json", "w"))
call("run changed.json --steps 1 -q", 4)

env["OMP_NUM_THREADS"] = "100000"
call("run plan.json --steps 1 --unsigned")
env["OMP_NUM_THREADS"] = "1"

# what follows from recipe, parameter table and batch may not be said otherwise, signed or not

call("plan gpt2-tiny --device cpu --budget 64MB --seq 16 --global-batch 4 --micro-batch 2 -o derived.json")
signed = json.load(open("derived.json"))


def steps(plan, kernel, phase):
    return [s for p in plan["buckets"][0]["programs"] for s in p[phase] if s["kernel"] == kernel]


def contradicts(name, change, what):
    plan = json.loads(json.dumps(signed))
    change(plan)
    json.dump(plan, open("contradicts.json", "w"))
    error = json.loads(call("run contradicts.json --steps 1 --unsigned --json", 4))["error"]
    ok(what in error["message"] and error["field"].startswith("buckets[0].programs["), name, error)


first = lambda plan, kernel, phase, **values: steps(plan, kernel, phase)[0].update(values)
contradicts("an update of 2 of 16,384 elements", lambda p: first(p, "adamw", "update", count=2), "is not what the recipe does with this parameter")
contradicts("decay", lambda p: first(p, "adamw", "update", decay=0), "is not what the recipe does with this parameter")
contradicts("a norm of some of the gradient", lambda p: first(p, "grad_sumsq", "norm", count=64), "is not what the recipe does with this parameter")
contradicts("clipping", lambda p: first(p, "clip_scale", "norm", clip_norm=9.0), "clips otherwise than the recipe")
contradicts("dropout", lambda p: first(p, "attention_fwd", "forward", p=0.5), "drops another share")
contradicts("a shorter sequence", lambda p: first(p, "attention_fwd", "forward", seq=8, batch=4), "is not of the micro-batch and sequence")
contradicts("half of the tokens", lambda p: first(p, "embedding_fwd", "forward", rows=16), "is not of the micro-batch and sequence")
contradicts("another stream", lambda p: first(p, "adamw", "update", rng_id=140), "draws from another parameter's stream")
contradicts("the moments swapped", lambda p: first(p, "adamw", "update", args=["p0", "g0", "v0", "m0", "-", "f0"]), "takes its states in another order")
contradicts("another optimizer", lambda p: p["recipe"]["optimizer"].update(name="adamw-bf16"), "")
contradicts("no update at all", lambda p: p["buckets"][0]["programs"][0]["update"].pop(0), "is not updated once a step")
contradicts("the first micro-step only", lambda p: steps(p, "linear_fwd", "forward")[0].update(first_only=True), "runs in the first micro-step only")

# ---- each screen ends with what to do next, or with a file that was written ----

out = call("plan " + T4)
one(r"^blocks     0 to \d+: \d+ blocks recompute", out, "blocks by range")
one(r"^next       vplan plan gpt2-large --device t4 --seq 1024 --global-batch 32 \\\n +-o plan.json\Z", out.rstrip("\n"), "next: make the file")
one(r"^next       vplan run plan.json\Z", call("plan %s -o plan.json --force" % TINY).rstrip("\n"), "next: run it")
one(r"^more +--all: .*\nnext +vplan run plan.json\Z", call("explain plan.json").rstrip("\n"), "next: run it, or look closer")
out = call("plan gpt2-xl --device 4090 --seq 1024 --global-batch 32", 3)
ok(commands(out) and out.rstrip().endswith(commands(out)[-1].split()[-1]), "what fits stands last", out[-300:])
for model in ("llama-3.1-8b", "gemma-2-9b", "bert-base-uncased", "qwen3-4b"):
    for line, code in (("estimate %s --device h100 --precision bf16-mixed" % model, None), ("plan %s --device h100 --seq 512 --global-batch 8 --precision any --optimizer any" % model, None)):
        p = subprocess.run([vplan] + line.split(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
        ok(p.returncode in (0, 3) and all(len(l) <= 80 for l in p.stdout.decode().split("\n")), "80 columns: " + line, (p.returncode, p.stderr, [l for l in p.stdout.decode().split("\n") if len(l) > 80][:3]))
out = call("tune plan.json --max-trials 1 -q -o best.json")
one(r"^ +verdict +needs +predicted +alone +\+- +raced +\+-$", out, "what was measured alone and what in the race are two columns, each with its error")
one(r"^best       number \d+, ", out, "the best in a line")
one(r"^next       vplan run best.json\Z", out.rstrip("\n"), "next: run it")

# ---- names in a plan may come from anywhere: none acts on a terminal ----


def renamed(value):
    """The same with every name that a plan may choose ending in what turns text red, and around."""
    if isinstance(value, list):
        return [renamed(v) for v in value]
    if isinstance(value, dict):
        return {k: v + "\x1b[31mred\u202e" if k == "name" and isinstance(v, str) else renamed(v) for k, v in value.items()}
    return value


doc = json.load(open("plan.json"))
for part in "model", "templates", "buckets":
    red = {k: renamed(v) if k == part else v for k, v in doc.items() if k != "digest"}
    red["buckets"][0]["phases"] = doc["buckets"][0]["phases"]
    json.dump(red, open("red.json", "w"))
    for table in "", " --all", " --roofline", " --timeline", " --buffers", " --program":
        p = subprocess.run([vplan, "explain", "red.json"] + table.split(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
        out = p.stdout.decode()
        ok(p.returncode == 0 and out, "explain%s: names in %s" % (table, part), p.stderr)
        ok("\x1b" not in out and "\u202e" not in out, "explain%s: names in %s are shown, not obeyed" % (table, part), [l for l in out.split("\n") if "\x1b" in l][:2])
doc["decisions"]["loss_chunk_tokens"] = 100
json.dump({k: v for k, v in doc.items() if k != "digest"}, open("odd.json", "w"))
p = subprocess.run([vplan, "explain", "odd.json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
ok(p.returncode == 4 and b"odd.json: decisions.loss_chunk_tokens: is no multiple of 256" in p.stderr, "an odd chunk of the loss is an error of the file", (p.returncode, p.stderr))

# ---- what if: the plan's own blocks, with one thing changed ----

MIXED = "gpt2 --device t4 --seq 1024 --global-batch 16 --budget 4GiB"
made = json.loads(call("plan %s -o mixed.json --json" % MIXED))
ok(made["decisions"]["recompute"] == "mixed", "some blocks recompute, others do not", made["decisions"])
said = json.loads(call("explain mixed.json --json"))
rows = {w["change"]: w for w in said["what_if"]}
states = sum(i["bytes"] for i in said["items"] if i["name"].startswith("optimizer_state"))
ok(abs(states - 8 * 124439808) < 300 * 256, "AdamW's states are there", said["items"])
ok(rows["optimizer sgd"]["more_bytes"] == -states, "SGD takes the states away and nothing else", (rows["optimizer sgd"], states))
ok(rows["half the micro-batch"]["more_bytes"] < 0 < rows["twice the micro-batch"]["more_bytes"], "fewer samples at once take fewer bytes", rows)
ok(rows["loss in chunks"]["more_bytes"] <= 0, "chunks of the loss take no more", rows)
ok(rows["optimizer sgd"]["estimate"] is None and rows["recompute full"]["estimate"], "estimate has words for blocks that are alike", rows)
for kind in "none", "full":
    alone = json.loads(call("estimate gpt2 --device t4 --json " + rows["recompute " + kind]["estimate"], rows["recompute " + kind]["device_bytes"] > 15634661376 and 3 or 0))
    # beside three more micro-steps' tokens and labels, 4 bytes each
    ok(alone["device_bytes"] + 3 * 2 * 4 * 1024 * 4 == rows["recompute " + kind]["device_bytes"], "and estimate says as much: " + kind, (alone["device_bytes"], rows["recompute " + kind]))

# ---- what fits where a whole model does not: its adapters ----

out = call("plan qwen2.5-7b --device 4090 --seq 2048 --global-batch 8", 3)
one(r"LoRA of rank 16 on all-linear, all else frozen\n +vplan plan qwen2.5-7b --device 4090 --seq 2048 --global-batch 8 \\\n +--lora r=16,alpha=32,targets=all-linear\n", out, "adapters are offered")
call("plan qwen2.5-7b --device 4090 --seq 2048 --global-batch 8 --lora r=16,alpha=32,targets=all-linear")

# ---- what a plan copies, and what of it is not hidden, on the screen that says seconds and host bytes ----

out = call("plan llama-3.1-8b --device 4090 --seq 2048 --global-batch 16 --precision bf16-mixed --host-memory 200GiB -o offload.json")
one(r"^time .*\ncopies     \S+ m?s to the host, \S+ m?s to the device; kernels wait \S+ m?s", out, "copies beside the time")
timeline = call("explain offload.json --timeline")
ok(timeline[timeline.index("\ncopies"):] in out, "as the timeline has them", timeline)
ok("\ncopies " not in call("plan gpt2 --device 4090 --seq 256 --global-batch 2"), "none where nothing moves")

# ---- files of which nothing fits: the answer still says what to type, and that answers ----

with open("full.yaml", "w") as f:
    f.write("base_model: Qwen/Qwen2.5-7B\nmicro_batch_size: 4\ngradient_accumulation_steps: 2\nsequence_len: 4096\noptimizer: adamw_torch\nbf16: auto\ngradient_checkpointing: true\n")
out = call("check full.yaml --device 4090", 3)
next = one(r"^next       vplan (estimate qwen2.5-7b --trainer hf --device rtx-4090-24gb) \\\n +(--seq 4096 --micro-batch 1)\Z", out.rstrip("\n"), "nothing that converges alike fits: what else would")
one(r"^fits with  --qlora: ", call(" ".join(next.groups()) if next else "", 3), "adapters")

finish()
P
