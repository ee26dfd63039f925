#!/bin/bash
# tests/test_checkpoints.sh: what saving a checkpoint and going on from it take of the card and of its host, against whole runs of
# transformers' Trainer (tests/golden/checkpoints/runs.csv, made by tests/oracles/programs/checkpoints.py). The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
python3 - "${BUILD:-build}" <<'P'
import csv, json, os, subprocess, sys, tempfile

sys.path.insert(0, "tests")
from check import finish, ok

vplan = os.path.join(sys.argv[1], "vplan")
scratch = tempfile.mkdtemp()
CLASSES = {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}
MB = 1000 * 1000


def estimate(config, *options):
    path = os.path.join(scratch, "config.json")
    json.dump(config, open(path, "w"))
    p = subprocess.run([vplan, "estimate", path, "--trainer", "hf", "--device", "h100", "--json", *options], stdout=subprocess.PIPE)
    return json.loads(p.stdout)


def near(what, have, want, share, rest=0):
    ok(abs(have - want) <= share * want + rest, what, "%d for %d" % (have, want))


rows = list(csv.DictReader(open("tests/golden/checkpoints/runs.csv")))
ok(len(rows) >= 12, "rows", len(rows))
for r in rows:
    config = json.loads(r["config"])
    config.update(dtype=r["stored"], architectures=[CLASSES[config["model_type"]]])
    options = ["--precision", r["precision"], "--recompute", r["recompute"], "--optimizer", r["optimizer"], "--micro-batch", r["micro_batch"], "--seq", r["seq"]]
    if r["lora"] != "none":
        options += ["--lora", "r=8,targets=" + r["lora"], "--load", r["quantised"]]
    name = " ".join([r["model"], r["stored"]] + options)
    j = estimate(config, *options)
    if not ok("host" in j, name, j.get("error")):
        continue
    phases = {p["name"]: p for p in j["phases"]}
    for p in phases.values():
        ok(sum(i["bytes"] for i in p["items"]) == p["allocated_bytes"], "%s: items of %s sum to it" % (name, p["name"]))
    near(name + ": saving, allocated", phases["save"]["allocated_bytes"], int(r["save_allocated"]), 0.001)
    near(name + ": a resumed run, allocated", phases["resume"]["allocated_bytes"], int(r["resume_allocated"]), 0.003)
    # from_pretrained() quantises in another order than was recorded, which leaves other holes: in new runs too
    near(name + ": a resumed run, reserved", phases["resume"]["reserved_bytes"], int(r["resume_reserved"]), 0.002 if r["quantised"] == "none" else 0.17)
    host = j["host"]       # a process's own figures: modules that are imported, pages that come late
    near(name + ": the host while it loads", host["load_bytes"], int(r["host_load"]) - 19 * MB, 0.005, 8 * MB if r["quantised"] == "none" else 50 * MB)
    near(name + ": the host to save", host["save_bytes"], int(r["host_save"]), 0.005, 30 * MB)
    near(name + ": the host to resume", host["resume_bytes"], int(r["host_resume"]), 0.005, 60 * MB)

# ---- rules, by hand ----
GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
WEIGHTS = 124439808
unsaid, same, other = (estimate(dict(GPT2, **more), "--precision", "bf16")["host"] for more in ({}, {"dtype": "bfloat16"}, {"torch_dtype": "float32"}))
ok(same["load_bytes"] == 0 and other["load_bytes"] == unsaid["load_bytes"] == 2 * WEIGHTS, "weights that are cast lie in the host's memory", (unsaid, same, other))
ok(same["save_bytes"] == 2 * WEIGHTS, "a checkpoint's weights as they are on the card", same)
wide = estimate(dict(GPT2, dtype="float32"), "--precision", "bf16-mixed", "--optimizer", "adamw_torch")["host"]
ok(wide["load_bytes"] == 0 and wide["save_bytes"] == 4 * WEIGHTS and wide["resume_bytes"] == 8 * WEIGHTS, "fp32 master weights and two states", wide)
adapters = estimate(GPT2, "--lora", "r=8,targets=c_attn")["host"]
ok(adapters["save_bytes"] == 4 * 12 * 8 * (768 + 2304), "adapters are saved without the model", adapters)
frozen = estimate(dict(GPT2, torch_dtype="float32"), "--precision", "bf16", "--freeze", "layers:4")["host"]
ok(frozen["load_bytes"] == frozen["save_bytes"] == 2 * WEIGHTS, "what is frozen is loaded and saved too", frozen)
large = json.loads(subprocess.run([vplan, "estimate", "llama-2-70b", "--trainer", "hf", "--json"], stdout=subprocess.PIPE).stdout)["host"]
ok(large["save_bytes"] == 50 * 1000 * MB, "a file of a checkpoint has 50 GB at most", large)
for options in (["--trainer", "torch"], ["--trainer", "hf", "--world", "2", "--parallel", "fsdp2"]):
    j = json.loads(subprocess.run([vplan, "estimate", "llama-3.2-1b", *options, "--json"], stdout=subprocess.PIPE).stdout)
    ok(j["host"] is None and not {"save", "resume"} & {p["name"] for p in j["phases"]}, "not known: " + " ".join(options), j["host"])
text = subprocess.run([vplan, "estimate", "llama-3.2-1b", "--trainer", "hf", "--device", "h100"], stdout=subprocess.PIPE, text=True).stdout
ok("while it loads" in text and "to resume" in text, "people are told of the host", text)
finish()
P
