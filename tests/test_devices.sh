#!/bin/bash
# tests/test_devices.sh: vplan devices: what it prints of a card can be saved and used as a device file, every figure with its source;
# docs/device-file.md names every key, and its example is a device file; the card here is found. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}/vplan")" "$work" <<'P'
import json, os, re, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok

vplan, work = sys.argv[1:3]


def run(*words):
    p = subprocess.run([vplan, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


code, out, said = run("devices", "--json")
doc = json.loads(out)
cards = {d["name"]: d for d in doc["devices"]}
ok(code == 0 and doc["schema_version"] == 1 and len(cards) == len(doc["devices"]) > 30 and doc["devices"][0]["name"] == "cpu", "devices --json", said)


def available_bytes():
    return 1024 * next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemAvailable:"))


before = available_bytes()
usable = json.loads(run("devices", "cpu", "--json")[1])["devices"][0]["usable_bytes"]
low, high = sorted((before, available_bytes()))
ok(0.79 * low <= usable <= 0.81 * high, "the CPU's bytes are 80 % of what is available", (low, usable, high))

DESCRIPTIONS = {"schema_version", "name", "alias", "product", "bf16", "fp8", "sources"}
for name, d in cards.items():
    figures = {k for k, v in d.items() if k not in DESCRIPTIONS and v is not None}
    ok(set(d["sources"]) == figures and all(s["class"] in ("cited", "derived", "assumed") and s["source"] for s in d["sources"].values()),
       "%s: a class and a source for every figure" % name, d["sources"])

# ---- saved, a card is a device file of the same figures, and of the same plan ----
for name, d in cards.items():
    if name == "cpu":
        continue
    path = "%s/%s.json" % (work, name)
    with open(path, "w") as f:
        json.dump(d, f)
    code, out, said = run("devices", path, "--json")
    ok(code == 0 and json.loads(out)["devices"] == [d], "%s: saved and read" % name, said or out)
for name in "h200-sxm-141gb", "t4-16gb":
    words = ["plan", "gpt2", "--seq", "512", "--global-batch", "4", "--budget", "4GB", "--json", "--device"]
    a, b = (json.loads(run(*words, x)[1]) for x in (name, "%s/%s.json" % (work, name)))
    for x in a, b:
        x.pop("timing", None)
    ok(a == b and a["proof"]["status"] == "optimal", "%s: the plan from its device file" % name, (a, b))

# ---- what lies outside the arena, on whose authority ----
mine = dict(cards["t4-16gb"], name="mine", outside_bytes=448790528)
for source, shown, assumed in (({"class": "measured", "source": "by \x1b[31mhand"}, "outside    428.0 MiB outside the arena, measured: by \\x1b[31mhand", False),
                               ({"class": "assumed", "source": "a guess"}, "assumed    context and libraries on mine: 428.0 MiB, not measured", True)):
    with open(work + "/mine.json", "w") as f:
        json.dump(dict(mine, sources=dict(mine["sources"], outside_bytes=source)), f)
    code, out, said = run("estimate", "gpt2-tiny", "--device", work + "/mine.json")
    ok(code == 0 and shown in out and ("not measured" in " ".join(out.split())) == assumed, "estimate says %s" % source["class"], out)

# ---- formats that a card, or vplan, does not train in ----
for device, precision, status, why in (("t4", "bf16-mixed", 4, "they begin with 8.0"), ("t4", "bf16", 4, "they begin with 8.0"),
                                       ("a100-sxm-80gb", "fp8", 4, "its compute capability is 8.0, and they begin with 8.9"),
                                       ("3090", "fp8-mixed", 4, "they begin with 8.9"), ("cpu", "fp8", 4, "the CPU backend has no fp8"),
                                       ("t4", "tf32", 4, "they begin with 8.0"), ("cpu", "tf32", 4, "the CPU backend has no tf32"),
                                       ("h100-sxm-80gb", "fp8", 2, "one of fp32, bf16-mixed, bf16"), ("t4", "fp16", 2, "one of fp32, bf16-mixed, bf16"),
                                       ("h100-sxm-80gb", "int8", 2, "one of fp32, bf16-mixed, bf16")):
    for words in ("estimate", "gpt2"), ("plan", "gpt2", "--seq", "128", "--global-batch", "1"), ("tune", "gpt2", "--seq", "128", "--global-batch", "1"):
        code, out, said = run(*words, "--device", device, "--precision", precision)
        ok(code == status and why in said, "%s on %s in %s" % (words[0], device, precision), "exit %d: %s" % (code, said))

# ---- TF32: fp32's bytes, and fp32's plan but for the rate of its products ----
report = {p: json.loads(run("plan", "gpt2", "--seq", "1024", "--global-batch", "8", "--device", "a100-sxm-80gb", "--precision", p,
                            "--micro-batch", "8", "--recompute", "none", "--loss", "full", "--json")[1]) for p in ("fp32", "tf32", "bf16-mixed")}
ok(report["tf32"]["peak_bytes"] == report["fp32"]["peak_bytes"] and report["tf32"]["recipe"]["precision"] == "tf32",
   "tf32 takes fp32's bytes", {p: r["peak_bytes"] for p, r in report.items()})
ok(report["bf16-mixed"]["step_time_s"] < report["tf32"]["step_time_s"] < 0.5 * report["fp32"]["step_time_s"],
   "tf32 is twice as fast as fp32, and slower than bf16", {p: r["step_time_s"] for p, r in report.items()})

# ---- for people ----
code, out, said = run("devices")
ok(code == 0 and all(name in out for name in cards), "devices", out)
code, out, said = run("devices", "h200")
out = " ".join(out.split())  # sources are broken at spaces
ok(code == 0 and all(" ".join(d["source"].split()) in out and d["class"] in out for d in cards["h200-sxm-141gb"]["sources"].values()), "devices h200", out)
for words in ["devices"], ["devices", "h200"], ["models"], ["models", "qwen2.5-7b"], ["targets"], ["targets", "torch"]:
    ok(max(len(x) for x in run(*words)[1].split("\n")) <= 80, "%s: a line is longer than 80 columns" % " ".join(words))

# ---- which cards would do: every one that a plan says fits, with the bytes that the plan says, and no other ----

code, out, said = run("devices", "--fits", "gpt2-xl", "--seq", "1024", "--global-batch", "4", "--json")
doc = json.loads(out)
would = {x["device"]: x["needs_bytes"] for x in doc["fits"]}
ok(code == 0 and [x["usable_bytes"] for x in doc["fits"]] == sorted(x["usable_bytes"] for x in doc["fits"]), "smallest first", doc)
for name in "rtx-4090-24gb", "h100-sxm-80gb", "t4-16gb", doc["fits"][0]["device"]:
    plan = json.loads(run("plan", "gpt2-xl", "--device", name, "--seq", "1024", "--global-batch", "4", "--json")[1])
    fits = plan["peak_bytes"] is not None
    ok(fits == (name in would) and (not fits or plan["proof"]["least_budget_bytes"] == would[name]), "the least on " + name, (plan["proof"], would.get(name)))
code, out, said = run("devices", "--fits", "gpt2-xl", "--seq", "1024", "--global-batch", "4")
ok(code == 0 and out.startswith("FITS: ") and "vplan plan gpt2-xl --device " + doc["fits"][0]["device"] in out, "devices --fits", out)
pinned = json.loads(run("devices", "--fits", "gpt2-xl", "--seq", "1024", "--global-batch", "4", "--micro-batch", "4", "--json")[1])
name = pinned["fits"][0]["device"]
plan = json.loads(run("plan", "gpt2-xl", "--device", name, "--seq", "1024", "--global-batch", "4", "--micro-batch", "4", "--json")[1])
ok(pinned["fits"][0]["needs_bytes"] == plan["proof"]["least_budget_bytes"] > would.get(name, 0), "a micro-batch is kept", (pinned["fits"][0], plan["proof"]))
code, out, said = run("estimate", "gpt2-xl", "--seq", "1024", "--precision", "bf16-mixed", "--micro-batch", "4")
following = " ".join(out[out.index("\nnext "):].replace("\\\n", " ").split()[1:]).split()
code, out, said = run(*following[1:])
ok(following[:3] == ["vplan", "devices", "--fits"] and code == 0 and "global batch 4, micro-batch 4" in out and "bf16-mixed" in out, "what estimate offers is of what it was asked", (following, out, said))
ok(run("devices", "--micro-batch", "4")[0] == 2, "a micro-batch of no model")
code, out, said = run("devices", "--fits", "llama-3.1-405b")
ok(code == 3 and out.startswith("DOES NOT FIT: ") and "0 of " in out, "no card holds 405B", out)
for words in ["--seq", "4"], ["4090", "--fits", "gpt2"], ["--fits", "gpt2", "--optimizer", "any-other"], ["--fits", "no-such-model"]:
    ok(run("devices", *words)[0] in (2, 4), " ".join(words) + " is refused", run("devices", *words))

# ---- the document ----
text = open("docs/device-file.md").read()
for key in cards["h200-sxm-141gb"]:
    ok("`%s`" % key in text, "docs/device-file.md", "says nothing of " + key)
examples = re.findall(r"```json\n(.*?)```", text, re.S)
ok(examples, "docs/device-file.md", "no example")
for i, example in enumerate(examples):
    with open(work + "/example.json", "w") as f:
        f.write(example)
    code, out, said = run("devices", work + "/example.json")
    ok(code == 0, "docs/device-file.md: example %d" % (i + 1), said)
for name in sorted(os.listdir("devices/examples")):
    if name.endswith(".json"):
        code, out, said = run("plan", "gpt2-tiny", "--device", "devices/examples/" + name, "--seq", "16", "--global-batch", "4", "--json")
        ok(code == 0, "devices/examples/" + name, said)
        code, out, said = run("plan", "gpt2-tiny", "--device", "devices/examples/" + name, "--seq", "16", "--global-batch", "4", "--host-memory", "1GiB")
        ok(code == 2 and "share one memory" in said if "unified" in name else code == 0, "devices/examples/" + name + " with host memory", (code, said))
text = open("docs/profile-file.md").read()
with open(work + "/profile.json", "w") as f:
    f.write(re.search(r"```json\n(.*?)```", text, re.S).group(1))
code, out, said = run("plan", "gpt2-tiny", "--device", "l4", "--seq", "16", "--global-batch", "4", "--profile", work + "/profile.json", "--json")
ok(code == 0, "docs/profile-file.md: the example", said)
if code == 0:
    doc = json.loads(out)
    pieces = -(-doc["peak_bytes"] // (2 << 20))
    ok(doc["outside_class"] == "measured" and doc["device_bytes"] == pieces * (2 << 20) + 309750029, "the arena in pieces of 2 MiB, and what was measured", doc)

# ---- the card of this machine, as its driver's library names it: here the stand-in's ----
STAND_IN = os.path.join(os.path.dirname(vplan), "null")


def plan_here(**driver):
    environment = dict(os.environ, LD_LIBRARY_PATH=STAND_IN, **driver)
    environment.update({} if "CUDA_VISIBLE_DEVICES" in driver else {"CUDA_VISIBLE_DEVICES": "0"})
    p = subprocess.run([vplan, "plan", "gpt2-tiny", "--seq", "16", "--global-batch", "4", "--json"], stdout=subprocess.PIPE, env=environment)
    return p.returncode, json.loads(p.stdout)


# ---- a name that several cards have: one that holds as much as the others is taken, else all are named ----
ONE = ("plan", "gpt2", "--trainer", "torch", "--seq", "128", "--global-batch", "2", "--device")
code, out, said = run(*ONE, "a100-80gb")
ok(code == 0 and "on a100-sxm-80gb" in out and "a100-80gb is taken as a100-sxm-80gb" in " ".join(said.split()) and "a100-pcie-80gb" in said, "a100-80gb: the faster of two that hold as much", (code, said))
for name, which in (("a100", ("a100-pcie-40gb", "a100-sxm-80gb")), ("v100-16gb", ("v100-pcie-16gb", "v100-sxm2-16gb"))):
    code, out, said = run(*ONE, name)
    ok(code == 2 and "means several cards" in said and all(w in said for w in which), "%s: some of which hold more" % name, (code, said))
    ok("nvidia-smi -L" in said, "%s: and how to tell" % name, said)
code, out, said = run(*ONE, "h100-80gb")
ok(code == 0 and "on h100-sxm-80gb" in out and "taken as h100-sxm-80gb, the usual one" in " ".join(said.split()) and "h100-pcie-80gb" in said, "h100-80gb is what h100 is", (code, said))
ok(run(*ONE, "Tesla V100-SXM2-16GB")[0] == 0, "as the driver names it", "refused")

h200, free = cards["h200-sxm-141gb"], 20000000000
code, doc = plan_here(VPLAN_NULL_NAME=h200["product"])
ok(code == 0 and (doc["settings"]["device"], doc["budget_bytes"]) == (h200["name"], h200["usable_bytes"]), "the card here, all that is usable", doc)
code, doc = plan_here(VPLAN_NULL_NAME=h200["product"], VPLAN_NULL_TOTAL_BYTES=str(free))
ok(code == 0 and (doc["settings"]["device"], doc["budget_bytes"]) == (h200["name"], free), "the card here, what is free", doc)
code, doc = plan_here(VPLAN_NULL_NAME="NVIDIA Abacus")
ok(code == 5 and "NVIDIA Abacus, is not in our table" in doc["error"]["message"], "a card here that the table lacks", doc)
for hidden in "-1", "7", "GPU-0123":
    code, doc = plan_here(VPLAN_NULL_NAME=h200["product"], CUDA_VISIBLE_DEVICES=hidden)
    ok(code == 0 and doc["settings"]["device"] == "cpu", "no card is visible: CUDA_VISIBLE_DEVICES=" + hidden, doc)
finish()
P
