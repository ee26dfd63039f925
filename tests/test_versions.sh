#!/bin/bash
# tests/test_versions.sh: --versions: named, of a Python environment, of a list of requirements; releases between those that
# were recorded, and those that were not. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}/vplan")" "$work" <<'P'
import json, os, shlex, sys

sys.path.insert(0, "tests")
from check import caller, finish, ok

vplan, work = sys.argv[1:3]
call = caller(vplan)
os.chdir(work)


def environment(name, folder, packages):
    for package in packages:
        os.makedirs(os.path.join(name, folder, package))
    return name


NEWEST = ("torch-2.15.0+cu132.dist-info", "transformers-5.24.0.dist-info", "peft-0.21.2.dist-info", "numpy-2.5.1.dist-info", "trl-1.16.0.dist-info")
environment("new", "lib/python3.13/site-packages", NEWEST)
os.mkdir("new/bin")
environment("old", "lib/python3.11/site-packages", ("torch-2.11.0.dist-info", "transformers-4.57.3.dist-info", "peft-0.18.1.dist-info"))
environment("odd", "lib/python3.11/site-packages", ("numpy-2.5.1.dist-info", "torch.dist-info", "attrs-25.1.0.dist-info"))
os.makedirs("empty")
with open("freeze.txt", "w") as f:
    f.write("# an environment\nnumpy==2.5.1\ntorch==2.15.0+cu132\n  Transformers[torch] == 5.24.0 ; python_version > '3.9'  # why\npeft>=0.2\n-e git+https://example.org/x\ntrl @ file:///x\n")
with open("ranges.txt", "w") as f:
    f.write("torch>=2.3\ntransformers~=5.0\nnumpy==2.5.1\n")

environment("two", "lib/python3.11/site-packages", NEWEST)
environment("two", "lib/python3.12/site-packages", ("torch-2.11.0.dist-info", "transformers-5.17.0.dist-info"))
environment("stale", "lib/python3.11/site-packages", ("torch-2.15.0.dist-info", "torch-2.11.0.dist-info", "transformers-5.24.0.dist-info"))
environment("half", "lib/python3.11/site-packages", ("transformers-5.24.0.dist-info",))
environment("a=b", "lib/python3.13/site-packages", NEWEST)
for name, text in (("bom.txt", "\ufefftorch==2.15.0\ntransformers==5.24.0\n"), ("marked.txt", "torch==2.15.0 ; sys_platform == 'linux'\ntorch==2.2.2 ; sys_platform == 'darwin'\ntransformers==5.24.0\n"),
                   ("wheel.txt", "torch @ https://example.org/torch-2.15.0.whl\ntransformers==5.24.0\n"), ("peft.txt", "transformers==5.24.0\npeft==0.21.2\n"), ("any.txt", "torch==2.*\ntransformers==5.24.0\n"),
                   ("long.txt", "torch==2.15.0\ntransformers==5." + 400 * "2" + "\n")):
    with open(name, "w", encoding="utf-8") as f:
        f.write(text)

ASK = ("estimate", "llama-3.2-1b", "--trainer", "hf", "--device", "h100", "--seq", "512", "--micro-batch", "2", "--precision", "bf16-mixed", "--json")


def asked(*words, of=ASK):
    code, out, err = call(*of, *words)
    j = json.loads(out)
    libraries = [a for a in j.get("assumptions", ()) if a.startswith("libraries: ")]
    return code, j, libraries[0] if libraries else None


# ---- the same three, named or found ----
named = asked("--versions", "torch=2.15.0,transformers=5.24.0,peft=0.21.2")
ok(named[0] == 0 and named[2] == "libraries: torch=2.15.0 transformers=5.24.0 peft=0.21.2", "torch 2.15 was recorded", named)
for path in ("new", "new/", "./new", "new/bin/python", "new/bin/python3.13", "new/lib/python3.13/site-packages", "freeze.txt", "bom.txt", "a=b", "two/bin/python3.11"):
    found = asked("--versions", path)
    ok(found[0] == 0 and found[2] == named[2] and found[1]["phases"] == named[1]["phases"], "libraries of %s" % path, found[2] or found[1])
os.chdir("new")
ok(asked("--versions", "bin/python")[2] == named[2], "of an environment that one is in")
os.chdir("..")
code, out, err = call(*ASK[:-1], "--versions", "new")
ok("--versions new" in out.split("next ")[1], "the next command asks about the same", out)
code, j, libraries = asked("--versions", "old")
ok(code == 0 and libraries == "libraries: torch=2.11.0 transformers=4.57.6 peft=0.18.1", "of an older environment", (code, libraries))

# ---- a product's workspace comes and goes in torch 2.15, and stays in the ones before it ----
before = asked("--versions", "torch=2.11")[1]
for then, now, n in zip(before["phases"], named[1]["phases"], range(9)):
    less = then["end_bytes"] - now["end_bytes"] if "end_bytes" in then else then["allocated_bytes"] - now["allocated_bytes"]
    ok(less == 0 if n < 2 else 0 < less < 3 << 25, "torch 2.15 keeps less than 2.11: %s" % now["name"], less)

# ---- releases between ----
for text, code, known, says in (("torch=2.12,transformers=5.20", 0, "torch=2.11.0", True), ("torch=2.9.0", 0, "torch=2.11.0", True), ("torch=2.9", 0, "torch=2.9.1", False),
                                ("transformers=5.16", 4, None, False), ("transformers=5.99", 4, None, False), ("torch=2.8", 4, None, False), ("torch=3.1", 4, None, False),
                                ("torch=2.15,transformers=5.24.9", 0, "torch=2.15.0", True), ("transformers=4.57.1", 0, "transformers=4.57.6", True), ("transformers=4.56", 4, None, False),
                                ("peft=0.3", 0, "torch=2.11.0", True)):
    rc, j, libraries = asked("--versions", text)
    between = [a for a in j.get("assumptions", ()) if "%s: not recorded, but the step is the same" % text in a]
    ok(rc == code and (code or known in libraries), "versions %s" % text, (rc, j.get("error"), libraries))
    ok(bool(between) == says, "what was recorded in place of %s" % text, j.get("assumptions"))
adapted = asked("--versions", "peft=0.3", "--lora", "r=8")
ok(adapted[0] == 4 and "peft=0.3" in adapted[1]["error"]["message"], "what peft is matters to adapters", adapted)

# ---- of a family that was not recorded with them, a llama tells what they change ----
SMOL = ("estimate", "smollm3-3b", "--trainer", "hf", "--device", "h100", "--seq", "512", "--micro-batch", "2", "--precision", "bf16-mixed", "--json")
rc, j, libraries = asked("--versions", "torch=2.15", of=SMOL)
ok(rc == 0 and "torch=2.15.0" in libraries and any("not recorded with this release" in a for a in j["assumptions"]), "put together for torch 2.15", (rc, j.get("error"), libraries))
before = asked(of=SMOL)[1]
ok(0 < before["allocated_peak_bytes"] - j["allocated_peak_bytes"] < 3 << 25, "and the difference is a workspace or two", (before["allocated_peak_bytes"], j["allocated_peak_bytes"]))
rc, j, _ = asked("--versions", "transformers=4.57", of=("estimate", "gemma-2-2b", *ASK[2:]))
ok(rc == 4 and "5.17.0" in j["error"]["message"], "models of transformers 4 are others", (rc, j.get("error")))

# ---- a class without sdpa: eager attention runs, is what plan chooses, and sdpa is an error of the files ----
json.dump({"model_type": "gpt_neo", "architectures": ["GPTNeoForCausalLM"], "hidden_size": 768, "num_heads": 12, "num_layers": 12, "attention_types": [[["global", "local"], 6]],
           "max_position_embeddings": 2048, "vocab_size": 50257, "window_size": 256}, open("neo.json", "w"))
CARD = ("--device", "h100", "--seq", "256")
with open("said.yaml", "w") as f:
    f.write("per_device_train_batch_size: 8\nbf16: true\n")
with open("sdpa.json", "w") as f:
    json.dump({"pretrained_model_name_or_path": "x", "attn_implementation": "sdpa"}, f, indent=1)
for model, words, lacks in (("neo.json", (), True), ("gemma-2-2b", (), False), ("gemma-2-2b", ("--versions", "transformers=5.20"), False), ("gemma-2-2b", ("--versions", "transformers=5.21"), True),
                            ("gemma-2-2b", ("--versions", "torch=2.15,transformers=5.24.0"), True)):
    name = " ".join((model, *words))
    rc, j, libraries = asked(*words, of=("estimate", model, "--trainer", "hf", *CARD, "--micro-batch", "2", "--json"))
    ok((rc == 0) == (libraries is not None) and (rc == 4 or any("no sdpa" in a for a in j["assumptions"]) == lacks) and (rc == 0 or name.endswith(("5.20", "5.21"))), name + ": what runs is said", (rc, j))
    code, out, err = call("plan", model, "--trainer", "hf", *CARD, "--global-batch", "4", "--json", *words)
    ok(code == 0 and json.loads(out)["common"]["attention"] == ("eager" if lacks else "sdpa"), name + ": plan's attention", (code, out[:300]))
    code, out, err = call("plan", model, "--trainer", "hf", *CARD, "--global-batch", "4", "--attention", "sdpa", "--json", *words)
    ok((code == 4 and "has none for" in json.loads(out)["error"]["message"]) == lacks, name + ": sdpa asked for", (code, out[:300]))
    code, out, err = call("check", "said.yaml", "--model", model, *CARD, "--json", *words)
    ok(code == 0 and json.loads(out)["common"].get("attention", "sdpa") == ("eager" if lacks else "sdpa"), name + ": check's attention where nobody says", (code, out[:300]))
    code, out, err = call("check", "said.yaml", "sdpa.json", "--model", model, *CARD, "--json", *words)
    found = [(f["file"], f["line"], f["severity"]) for f in json.loads(out)["findings"] if f["key"] == "attn_implementation"]
    ok(found == ([("sdpa.json", 3, "error")] if lacks else []) and code == (4 if lacks else 0), name + ": check finds sdpa", (code, found))

# ---- what is no list, environment or requirements ----
for path, code, words in (("nowhere", 2, "there is no nowhere"), ("torch", 2, "NAME=VERSION"), ("empty", 4, "no environment"), ("odd", 4, "no environment"), ("ranges.txt", 4, "no version of torch is pinned"), ("two", 4, "has both"), ("stale", 4, "torch has both"), ("marked.txt", 4, "torch has both 2.15.0 and 2.2.2"), ("wheel.txt", 4, "no version of torch is pinned"),
                          ("any.txt", 4, "no version of torch is pinned"), ("long.txt", 4, "transformers is not there"), ("half", 4, "torch is not there"), ("peft.txt", 4, "torch is not there"), ("", 2, "NAME=VERSION"), ("nowhere/bin/python", 2, "there is no")):
    rc, j, _ = asked("--versions", path)
    ok(rc == code and words in j["error"]["message"], "--versions %s" % path, (rc, j))

code, j, libraries = asked("--versions", "two/bin/python3.12")
ok(code == 0 and libraries == "libraries: torch=2.11.0 transformers=5.17.0 peft=0.21.2", "of the Python that was named", (code, libraries))

# ---- the other commands ----
PLAN = ("plan", "llama-3.2-1b", "--trainer", "hf", "--device", "4090", "--seq", "512", "--global-batch", "4", "--json")
for text, share in (("torch=2.11", 0.02), ("torch=2.8", 0.10)):         # which is not known: files are for it, the bytes are 2.11's
    code, out, err = call(*PLAN, "--versions", text)
    j = json.loads(out)
    over = (j["interval"]["high_bytes"] - j["device_bytes"]) / j["reserved_peak_bytes"]
    ok(code == 0 and abs(over - share) < 1e-6 and any("other libraries than were asked for" in a for a in j["assumptions"]) == (share > 0.02), "plan --versions " + text, (code, over, j["assumptions"]))
code, out, err = call("plan", "llama-3.2-1b", "--trainer", "hf", "--device", "4090", "--seq", "512", "--global-batch", "8", "--lora", "r=8", "--versions", "new", "-o", "plan.json", "--json")
ok(code == 0 and json.load(open("plan.json"))["versions"]["transformers"].startswith("5.24"), "plan --versions new", (code, err))
code, out, err = call("emit", "plan.json", "--for", "hf", "--versions", "new", "--json")
ok(code == 0 and json.loads(out)["versions"]["transformers"] == "5.24.0", "emit --versions new", (code, out[:300], err))
# ---- what was asked for goes with the plan, to the check of what emit wrote ----
files = {}
for name, words in (("usual", ()), ("asked", ("--versions", "torch=2.15.0+cu130,transformers=5.24.0.dev1"))):
    call("plan", "llama-3.2-1b", "--trainer", "hf", "--device", "4090", "--seq", "512", "--global-batch", "8", "--lora", "r=8", *words, "-o", name + ".json")
    for target in ("hf", "axolotl", "torch"):
        code, out, err = call("emit", name + ".json", "--for", target, "-o", name + target)
        files[name, target] = open(name + target + "/README.md").read()
        typed = shlex.split(out.split("\ncheck ", 1)[1].split("\nrun ")[0].replace("\\\n", " "))
        code, out, err = call(*typed[1:], "--json")
        libraries = [a for a in json.loads(out).get("assumptions", ()) if a.startswith("libraries: ")]
        ok(("--versions" in typed) == (name == "asked") and libraries == ["libraries: torch=%s peft=0.21.2" % ("2.15.0 transformers=5.24.0" if name == "asked" else "2.11.0 transformers=5.17.0")],
           "check of what emit --for %s wrote counts with the plan's libraries, %s" % (target, name), (typed, libraries, err))
        ok(("torch 2.15.0" if name == "asked" else "torch 2.11.0") in files[name, target] or target == "torch", "and the files say which", files[name, target][:600])
j = json.load(open("asked.json"))
ok(j["versions"]["torch"] == "2.15.0" and j["versions_asked"] == {"torch": "2.15.0", "transformers": "5.24.0"}, "the plan's file says both", (j["versions"], j.get("versions_asked")))
code, out, err = call("emit", "usual.json", "--for", "hf", "--versions", "torch=2.15", "--json")
ok(code == 0 and "torch 2.11.0" in json.loads(out)["files"][0]["text"], "a prediction stays with the libraries it was made with", (code, out[:400]))
for text, words in (("torch=2.15,torch=2.11", "both 2.15 and 2.11"), ("Torch=2.15", "did you mean torch"), ("torch=", "NAME=VERSION"), ("torch=2.*", "NAME=VERSION"), ("torch=2.15x", "NAME=VERSION")):
    for of in (ASK, PLAN):
        code, out, err = call(*of, "--versions", text)
        ok(code == 2 and words in json.loads(out)["error"]["message"], "%s --versions %s" % (of[0], text), (code, out[:300]))
code, out, err = call(*ASK, "--versions", "torch=2.15,trl=1.16")
ok(code == 2 and "trl has no say" in json.loads(out)["error"]["message"], "a library that bytes are not known by is not passed over", (code, out[:300]))
said = [json.loads(call("check", "--versions", path, "--json", "--", "python", "train.py", "--per_device_train_batch_size", "2", "--activation_checkpointing", "True")[1]) for path in ("new", "old")]
found = [[f for f in j["findings"] if f["key"] == "activation_checkpointing"] for j in said]
ok(not found[0] and found[1], "check --versions: a key of transformers 5.23", found)
finish()
P
