#!/bin/bash
# tests/test_plan_trainer.sh: `vplan plan MODEL --trainer T`: its document; its bytes are estimate's; nothing that fits is faster, by
# brute force over the space; the least budget and the next GiB are true; what it writes goes through emit and check. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
python3 - "${BUILD:-build}" <<'P'
import glob, json, os, re, shlex, shutil, subprocess, sys, tempfile, time

sys.path.insert(0, "tests")
from check import finish, ok

vplan = os.path.abspath(os.path.join(sys.argv[1], "vplan"))
os.chdir(tempfile.mkdtemp())
GIB = 1 << 30


def call(*words):
    p = subprocess.run((vplan,) + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def plan(model, *words):
    code, out, err = call("plan", model, "--json", *words)
    return code, json.loads(out) if out else {}, err


BASE = ("--trainer", "torch", "--device", "4090", "--seq", "1024", "--global-batch", "64")

# ---- the documented document ----
code, j, err = plan("gpt2", *BASE, "-o", "s.json")
KEYS = {"schema_version", "kind", "trainer", "versions", "model", "device", "settings", "common", "allocated_peak_bytes", "reserved_peak_bytes", "device_bytes", "interval",
        "step_time_s", "tokens_per_s", "compared", "proof", "alternatives", "assumptions"}
ok(code == 0 and KEYS <= set(j), "plan --trainer --json", (code, err, KEYS - set(j)))
ok(j["schema_version"] == 1 and j["kind"] == "settings" and j["trainer"] == "torch" and j["device"] == "rtx-4090-24gb", "its head", j)
ok(json.load(open("s.json")) == j, "-o writes the same document", "another")
c = j["common"]
ok(c["micro_batch"] * c["accumulation"] * c["world"] == 64 and c["seq"] == 1024 and {"precision", "optimizer", "recompute", "loss", "attention", "offload"} <= set(c), "common", c)
ok(j["settings"]["micro_batch"] == c["micro_batch"], "the trainer's own names", j["settings"])
ok(abs(j["tokens_per_s"] - 64 * 1024 / j["step_time_s"]) < 1, "tokens_per_s", j["tokens_per_s"])
ok(j["interval"]["low_bytes"] <= j["device_bytes"] <= j["interval"]["high_bytes"] <= j["budget_bytes"], "the interval", j["interval"])
ok(0 < len(j["alternatives"]) <= 5 and all({"settings", "device_bytes", "step_time_s"} <= set(a) for a in j["alternatives"]), "alternatives", j["alternatives"])
ok(all(not a["fits"] for a in j["alternatives"] if a["step_time_s"] < j["step_time_s"]), "what is faster does not fit", j["alternatives"])
ok("plan" in j["assumptions"][0] or any("seconds" in a for a in j["assumptions"]), "seconds are assumed", j["assumptions"])

# ---- brute force: every micro-batch and recompute by itself ----
best = None
for m in (1, 2, 4, 8, 16, 32, 64):
    for r in ("none", "full"):
        code, one, _ = plan("gpt2", *BASE, "--micro-batch", str(m), "--recompute", r)
        p = subprocess.run((vplan, "estimate", "gpt2", "--trainer", "torch", "--device", "4090", "--seq", "1024", "--json", "--precision", "bf16-mixed", "--optimizer", "adamw_torch_fused",
                            "--micro-batch", str(m), "--accumulation", str(64 // m), "--recompute", r), stdout=subprocess.PIPE)
        e = json.loads(p.stdout)
        if code == 0 and one["common"]["allocator"] == "default":
            ok(one["device_bytes"] == e["device_bytes"] and one["allocated_peak_bytes"] == e["allocated_peak_bytes"], "bytes of %d, %s are estimate's" % (m, r), (one["device_bytes"], e["device_bytes"]))
        if code == 0 and (best is None or one["step_time_s"] < best["step_time_s"]):
            best = one
ok(best["common"] == c and best["step_time_s"] == j["step_time_s"], "brute force finds the same", (best["common"], c))

# ---- the first layers alone: brute force over every number of them finds the same, and one fewer does not fit; one more GiB is near it ----
def fastest(words, layers, *budget):
    """The fastest that fits of all ways to recompute, each pinned."""
    pinned = [plan(*words, *budget, "--recompute", r) for r in ["none", "full", "every:2"] + ["first:%d" % n for n in range(1, layers)]]
    return min((one for status, one, _ in pinned if status == 0), key=lambda one: one["step_time_s"])


# the last five: fewer layers reserve less than all of them; a micro-batch of which all are too large; a GiB buys another micro-batch, or first layers after all
for model, device, layers, more in (("llama-3.2-1b", "4090", 16, "2048 16 bf16"), ("smollm2-360m", "4090", 32, "2048 64 bf16-mixed"), ("llama-3.2-1b", "a100-sxm-40gb", 16, "4096 8 bf16-mixed"),
                                    ("qwen3-1.7b", "h200", 28, "1024 16 bf16 20096811481"), ("gpt2-medium", "h200", 24, "512 2 bf16-amp 4124207498"), ("smollm2-135m", "h200", 30, "2048 16 bf16-amp 7752470201"),
                                    ("llama-3.2-1b", "h200", 16, "1536 8 bf16-amp 6498248527 --qlora"), ("llama-3.2-1b", "h200", 16, "1024 4 bf16 14285182268")):
    seq, batch, precision, budget, own = (more.split() + [None] * 2)[:5]
    words = (model, "--trainer", "torch", "--device", device, "--seq", seq, "--global-batch", batch, "--precision", precision) + ((own,) if own else ())
    code, free, _ = plan(*words, *(("--budget", budget) if budget else ()))
    best = fastest(words, layers, *(("--budget", budget) if budget else ()))
    ok(code == 0 and best["step_time_s"] == free["step_time_s"], "the first layers of %s" % model, (free["common"], best["common"]))
    # micro-batches x two settings of the allocator x (none, full, every:2 where it was recorded, each number of first layers)
    ways = 2 * sum(int(batch) % m == 0 for m in range(1, int(batch) + 1))
    ok(free["compared"] in (ways * (2 + layers - 1), ways * (3 + layers - 1)), "the settings compared", (free["compared"], ways, layers))
    ok(free["played"] <= free["priced"] <= free["compared"] and free["played"] <= free["proof"]["sized"], "of which so many were priced and played", [free[k] for k in ("played", "priced", "compared")])
    if budget:
        richer, said = fastest(words, layers, "--budget", str(int(budget) + 2**30)), free["next_gib"]
        # which is halved: fewer layers may reserve less
        ok(said and richer["step_time_s"] <= said["step_time_s"] < free["step_time_s"] and said["step_time_s"] <= 1.03 * richer["step_time_s"], "a GiB more of %s" % model, (said, richer["common"]))

code, j, err = plan("qwen3-1.7b", "--trainer", "torch", "--device", "h200", "--seq", "4096", "--global-batch", "16", "--precision", "bf16", "--budget", "24838623416")
ok(code == 0 and j["common"]["recompute"] == "first:26" and j["interval"]["high_bytes"] <= 24838623416, "first layers fit where nothing else does", (code, j.get("common"), err))

# ---- a number of layers of which no step was recorded is refused by that number ----
for model, first, seq, why in (("llama-3.2-1b", "first:1", "512", "of 16 layers: recorded steps have more layers that are recomputed"), ("llama-3.2-1b", "first:17", "512", ": the model has 16 layers"),
                               ("qwen2.5-0.5b", "first:23", "512", "of 24 layers: recorded steps have more layers that are not recomputed"),
                               ("gemma-2-2b", "first:3", "8192", "of 26 layers, which take turns: recorded steps have whole rounds of them that are recomputed")):
    for words in (("plan", model, "--global-batch", "1"), ("estimate", model, "--micro-batch", "1")):
        code, _, err = call(*words, "--trainer", "torch", "--seq", seq, "--device", "h200", "--precision", "bf16", "--recompute", first)
        ok(code == 4 and "--recompute %s%s%s" % (first, " " * (why[0] != ":"), why) in " ".join(err.split()), "%s: %s of %s" % (words[0], first, model), (code, err))

# ---- nothing fits; the least that would ----
code, none, _ = plan("gpt2", *BASE, "--budget", "2GiB")
least = none["proof"]["least_budget_bytes"]
ok(code == 3 and none["proof"]["status"] == "infeasible" and none["device_bytes"] is None, "infeasible", (code, none["proof"]))
# ---- what would fit: each change is a command, and its answer is what was said ----
seen = set()
for words in ("llama-3.1-8b --trainer hf --device h100 --seq 4096 --global-batch 64", "qwen2.5-7b --trainer trl --device 4090 --seq 2048 --global-batch 12",
              "gpt2-medium --trainer torch --device t4 --seq 1024 --global-batch 16 --precision fp32 --recompute none --micro-batch 16",
              "gpt2-large --trainer hf --device 3060 --seq 512 --global-batch 4",
              "llama-3.2-1b --trainer hf --device t4 --seq 512 --global-batch 4", "llama-3.1-8b --trainer hf --device 4080 --seq 1024 --global-batch 4 --lora r=8,targets=all-linear", "llama-3.1-8b --trainer hf --device t4 --seq 8192 --global-batch 3 --qlora",
              "llama-3.1-70b --trainer hf --device h100 --world 8 --seq 4096 --global-batch 64",
              "qwen2.5-1.5b --trainer hf --device 3060 --seq 512 --global-batch 8 --reserve 10%",
              "llama-3.2-3b --trainer trl --device t4 --seq 8192 --global-batch 2 --lora r=8,targets=all-linear"):
    code, out, err = call("plan", *words.split(), "--json")
    none_fits = json.loads(out)
    ok(code == 3 and none_fits["changes"], "something would: %s" % words, (code, err))
    listed = [none_fits["least"]] + none_fits["alternatives"]
    ok(len({a["step_time_s"] for a in listed}) == len(listed), "of settings that take as long one is listed", listed)
    ok([a["interval"]["high_bytes"] for a in listed] == sorted(a["interval"]["high_bytes"] for a in listed), "from the leanest on", listed)
    ok(all(call("plan", *words.split(), "--json")[1] == out for _ in range(3)), "whichever thread looked at what", words)
    code, screen, err = call("plan", *words.split())
    ok(code == 3 and "what fits" in screen and max(map(len, screen.split("\n"))) <= 80, "on the screen", screen)
    for change in none_fits["changes"]:
        command = shlex.split(change["command"])
        code, out, err = call(*command[1:], "--json")
        d = json.loads(out)
        ok(code == 0 and d["interval"]["high_bytes"] == change["needs_bytes"] and d["step_time_s"] == change["step_time_s"] and not d["changes"],
           change["command"], (code, change, err, d.get("interval"), d.get("step_time_s")))
        ok(" ".join(change["command"].split()) in " ".join(screen.replace("\\\n", " ").split()), "it stands there", change["command"])
        seen.update(w for w in command if w.startswith("--") and w not in words)
        seen.add(change["change"].split(",")[0])
ok("micro-batch" in seen and {"--world", "--qlora", "--lora", "--precision", "--optimizer", "--offload"} <= seen, "of all kinds", seen)
# a card without flash attention is no measure of those that have it: the smallest is smaller than the T4
LONG = ("llama-3.2-3b", "--trainer", "trl", "--seq", "8192", "--global-batch", "2", "--lora", "r=8,targets=all-linear", "--device")
smallest = [c["command"] for c in plan(*LONG, "t4")[1]["changes"] if "smallest card" in c["change"]]
fits = {d: plan(*LONG, d)[0] == 0 for d in ("rtx-2080-ti-11gb", "rtx-3080-10gb", "rtx-3060-12gb")}
ok(len(smallest) == 1 and "--device rtx-3060-12gb" in smallest[0] and fits == {"rtx-2080-ti-11gb": False, "rtx-3080-10gb": False, "rtx-3060-12gb": True}, "cards with flash attention", (smallest, fits))
# every card of the table was tried: the context of the card asked for is not another's, one without flash attention may be the smallest, none alike is passed over
cards = {d["name"]: d["usable_bytes"] for d in json.loads(call("devices", "--json")[1])["devices"] if d["name"] != "cpu"}
for words in ("tinyllama-1.1b --trainer torch --seq 1024 --global-batch 32 --reserve 10% --device rtx-3070-8gb", "qwen2.5-1.5b --trainer torch --seq 2048 --global-batch 32 --device p100-16gb"):
    named = [shlex.split(c["command"]) for c in plan(*words.split())[1]["changes"] if "smallest card" in c["change"]]
    which = named[0][named[0].index("--device") + 1] if len(named) == 1 else None
    ok(which in cards and not [d for d in cards if cards[d] < cards[which] and plan(*words.split()[:-1], d)[0] == 0], "no smaller one does than " + str(which), named)
# ---- libraries that were recorded: bytes are theirs, in plan and in check, as estimate's ----
for v, is_known in (("4.57", True), ("5.17", True), ("4.50", False)):
    code, of, _ = plan("gpt2", "--trainer", "hf", "--device", "4090", "--seq", "512", "--global-batch", "8", "--versions", "transformers=%s,trl=1.16" % v)
    chosen = of["common"]
    said = json.loads(call("estimate", "gpt2", "--trainer", "hf", "--seq", "512", "--micro-batch", str(chosen["micro_batch"]), "--accumulation", str(chosen["accumulation"]), "--recompute", chosen["recompute"],
                           "--precision", chosen["precision"], "--optimizer", chosen["optimizer"], "--device", "4090", "--json", *(("--versions", "transformers=" + v) if is_known else ()))[1])
    ok(code == 0 and (of["allocated_peak_bytes"], of["reserved_peak_bytes"]) == (said["allocated_peak_bytes"], said["reserved_peak_bytes"]), "bytes of transformers " + v, (code, of["allocated_peak_bytes"], said))
    ok(any("not recorded: bytes are of the libraries" in a for a in of["assumptions"]) == (not is_known), "and where they are of others it is said: " + v, of["assumptions"])
    open("old.yaml", "w").write("output_dir: o\nper_device_train_batch_size: %d\ngradient_accumulation_steps: %d\nbf16: true\n" % (chosen["micro_batch"], chosen["accumulation"]))
    code, out, err = call("check", "--json", "old.yaml", "--for", "hf", "--model", "gpt2", "--seq", "512", "--device", "4090", "--versions", "transformers=" + v)
    ok(json.loads(out)["allocated_peak_bytes"] == said["allocated_peak_bytes"], "and check's", (code, out, err))
# full is by use_reentrant=False whatever the libraries, and may be called as estimate calls that
full, by_false = [plan("gpt2", "--trainer", "hf", "--device", "4090", "--seq", "512", "--global-batch", "8", "--versions", "transformers=4.57", "--recompute", word)[1] for word in ("full", "full:non-reentrant")]
said = json.loads(call("estimate", "gpt2", "--trainer", "hf", "--seq", "512", "--micro-batch", str(full["common"]["micro_batch"]), "--accumulation", str(full["common"]["accumulation"]), "--recompute", "full:non-reentrant",
                       "--precision", full["common"]["precision"], "--optimizer", full["common"]["optimizer"], "--device", "4090", "--json", "--versions", "transformers=4.57")[1])
ok(full["common"] == by_false["common"] and full["allocated_peak_bytes"] == by_false["allocated_peak_bytes"] == said["allocated_peak_bytes"]
   and full["settings"]["gradient_checkpointing_kwargs"] == {"use_reentrant": False}, "full:non-reentrant", (full.get("settings"), by_false.get("error"), said.get("allocated_peak_bytes")))
# ---- trainers of next tokens have no step of a masked model ----
for trainer in ("trl", "axolotl", "llamafactory", "ms-swift"):
    code, _, err = call("plan", "roberta-large", "--trainer", trainer, "--device", "4090", "--seq", "256", "--global-batch", "8")
    ok(code == 4 and "predict the next token" in err and "--trainer hf" in err, "roberta by " + trainer, (code, err))
# ---- plan counts what estimate counts: Trainer's clipping too, where a plain loop's step stands in (its norms begin a segment here) ----
MEDIUM = ("gpt2-medium", "--trainer", "hf", "--device", "4090", "--seq", "512", "--micro-batch", "4", "--recompute", "full", "--precision", "bf16-mixed", "--optimizer", "adamw_torch_fused")
code, planned, _ = plan(*MEDIUM, "--global-batch", "4")
said = json.loads(call("estimate", *MEDIUM, "--json")[1])
ok(code == 0 and all(planned[k] == said[k] for k in ("allocated_peak_bytes", "reserved_peak_bytes", "device_bytes")), "plan's bytes and estimate's", (planned["reserved_peak_bytes"], said["reserved_peak_bytes"]))
# ---- what is at rest is no measure of the others where a way's interval is wider ----
NARROW = ("qwen2.5-7b", "--trainer", "hf", "--device", "a100-pcie-40gb", "--seq", "128", "--global-batch", "24", "--lora", "r=8,targets=all-linear", "--budget", "16094MiB")
code, free, _ = plan(*NARROW)
pinned = plan(*NARROW, "--recompute", "full", "--micro-batch", "1")[1]
ok(code == 0 and (free["step_time_s"], free["interval"]) == (pinned["step_time_s"], pinned["interval"]), "near the limit", (code, free["common"], pinned["common"]))
# ---- what is in host memory takes time: a host reads and writes 28 bytes of each parameter, 4e10 a second where that was not measured; copies go beside kernels ----
TWO = ("llama-3.2-1b", "--trainer", "hf", "--device", "h100", "--world", "2", "--seq", "2048", "--global-batch", "4", "--micro-batch", "1", "--parallel", "fsdp2", "--recompute", "full", "--sync-each-batch")
seconds = [plan(*TWO, *more)[1]["step_time_s"] for more in ((), ("--offload", "params"))]
update, link = 28 * 1235814400 / 4e10, 4 * (2 * 2 + 2) * 1235814400 / 2 / 5.5e10
ok(update < seconds[1] - seconds[0] < update + link + 0.01, "updates by the host, after backward", (seconds, update, link))
ok(plan("gpt2", *BASE, "--budget", str(least))[0] == 0 and plan("gpt2", *BASE, "--budget", str(least - 1))[0] == 3, "the least budget", least)

# ---- what does not fit and may all the same; on whole cards both were played by PyTorch's allocator (tests/emit/end_to_end.csv), and ran ----
BF16 = ("--trainer", "hf", "--device", "4090", "--seq", "1024", "--global-batch", "64", "--precision", "bf16", "--optimizer", "adamw_torch")
code, x, _ = plan("smollm-135m", *BF16, "--recompute", "none", "--budget", "23.1GiB")
said = {a["common"]["micro_batch"]: (a["fits"], a["tight"]) for a in x["alternatives"]}
ok(code == 0 and x["least"] is None and said[16] == (False, True) and said[32] == (False, False), "tight as predicted, and not at the upper end", said)
code, x, _ = plan("smollm-135m", *BF16, "--recompute", "none")
ok(code == 0 and x["common"]["micro_batch"] == 16 and x["interval"]["high_bytes"] <= x["budget_bytes"] < 1.02 * x["interval"]["high_bytes"], "on the whole card it fits at the upper end too", (x["common"], x["interval"]))
LARGE = ("--trainer", "hf", "--device", "4090", "--seq", "1024", "--global-batch", "16", "--micro-batch", "16", "--recompute", "full")
code, x, _ = plan("gpt2-large", *LARGE)
least = x["least"]
ok(code == 3 and least["tight"] and least["common"]["allocator"] == "expandable" and least["device_bytes"] > x["budget_bytes"], "tight as PyTorch gives back its cache", least)
ok(least["interval"]["high_bytes"] == x["proof"]["least_budget_bytes"], "the least and the least budget", (least, x["proof"]))
out = call("plan", "gpt2-large", *LARGE)[1]
ok("; tight" in out and "\ntight " in out, "the screen says so", out)
open("full.yaml", "w").write("output_dir: out\nper_device_train_batch_size: 16\ngradient_checkpointing: true\nbf16: true\noptim: adamw_torch_fused\n")
FULL = ("full.yaml", "--model", "gpt2-large", "--device", "4090", "--seq", "1024", "--", "PYTORCH_ALLOC_CONF=expandable_segments:True", "python", "train.py")
code, out, err = call("check", "--json", *FULL)
j2 = json.loads(out)
ok(code == 3 and j2["tight"] and j2["device_bytes"] == least["device_bytes"], "and check", (code, j2, err))
ok("\ntight      it may fit all the same: PyTorch finds room" in call("check", *FULL)[1], "on its screen", call("check", *FULL)[1])

# ---- files that ask for torch.compile: the eager step, in a wider interval ----
seen = {}
for name, text in (("eager", ""), ("torch_compile", "torch_compile: true\n"), ("a mode alone", "torch_compile_mode: max-autotune\n"), ("off", "torch_compile: false\n")):
    open("compiled.yaml", "w").write("output_dir: out\nper_device_train_batch_size: 4\nbf16: true\n" + text)
    x = json.loads(call("check", "--json", "compiled.yaml", "--model", "gpt2", "--device", "4090", "--seq", "1024")[1])
    seen[name] = (x["device_bytes"], x["interval"]["low_bytes"], any("torch.compile" in a for a in x["assumptions"]))
ok(seen["eager"] == seen["off"] and seen["torch_compile"] == seen["a mode alone"] and seen["eager"][0] == seen["torch_compile"][0] and seen["torch_compile"][1] < 0.8 * seen["eager"][1] and seen["torch_compile"][2] and not seen["off"][2], "torch.compile in files", seen)

# ---- one GiB more ----
code, tight, _ = plan("gpt2", *BASE, "--budget", "8GiB")
more = plan("gpt2", *BASE, "--budget", "9GiB")[1]
ok((tight["next_gib"]["step_time_s"] if tight["next_gib"] else tight["step_time_s"]) == more["step_time_s"] < tight["step_time_s"], "the next GiB", (tight["next_gib"], more["step_time_s"]))

# ---- pins ----
code, x, _ = plan("gpt2", *BASE, "--precision", "any", "--optimizer", "any", "--attention", "any")
ok(code == 0 and x["step_time_s"] <= j["step_time_s"] and x["compared"] > j["compared"], "what is left open is tried", (x["compared"], j["compared"]))
code, x, _ = plan("gpt2", *BASE, "--optimizer", "adamw_torch", "--precision", "fp32")
ok(code == 0 and x["common"]["optimizer"] == "adamw_torch" and x["common"]["precision"] == "fp32", "pins", x.get("common"))

# ---- padding is no word of a trainer's files: it goes along beside them ----
HF = ("--trainer", "hf", "--device", "4090", "--seq", "1024", "--global-batch", "8", "--micro-batch", "8", "--attention", "eager")
seen = []
for padding in "none", "mask":
    code, x, err = plan("gpt2", *HF, "--padding", padding, "-o", padding + ".json")
    ok(code == 0 and x["padding"] == padding, "the document says padding " + padding, (code, err, x.get("padding")))
    code, out, err = call("emit", padding + ".json", "--for", "hf", "-o", padding)
    said = " ".join(out.replace("\\\n", " ").split())
    ok(code == 0 and ("--padding mask" in said) == (padding == "mask"), "emit passes it on to check", out)
    ok(("with a mask over padding" in open(padding + "/training_args.yaml").read()) == (padding == "mask"), "and into what it predicts", padding)
    check = said[said.index("vplan check"):said.index(" run cd")].split()[1:]
    code, out, err = call(*check, "--json")
    ok(code == 0 and json.loads(out)["device_bytes"] == x["device_bytes"], "the files of padding %s have its bytes" % padding, (code, err))
    seen.append(x["allocated_peak_bytes"])
ok(seen[0] < seen[1], "padding takes bytes", seen)
open("odd.json", "w").write(json.dumps({**x, "padding": "some"}))
code, out, err = call("emit", "odd.json", "--for", "hf")
ok(code == 4 and "padding" in err and "none or mask" in err, "an odd word of padding", (code, err))

# ---- emit writes it, check reads it ----
code, out, err = call("emit", "s.json", "--for", "torch", "-o", "run", "--json")
ok(code == 0 and json.loads(out)["common"] == c, "emit takes it", err)
code, out, err = call("check", "--json", "run/vplan_settings.py")
read = json.loads(out)["common"]
ok(code == 0 and all(read[k] == c[k] for k in ("micro_batch", "accumulation", "seq", "precision", "optimizer", "recompute")), "check reads it", (code, read))

# ---- several cards: every way of sharing is compared; files agree and are read back as the same ----
ways = set()
for target, way, files in (("hf", None, None), ("hf", "fsdp2", ["accelerate.yaml"]), ("hf", "zero3", ["accelerate.yaml", "ds_config.json"]), ("hf", "zero2", ["accelerate.yaml", "ds_config.json"]),
                           ("hf", "ddp", ["accelerate.yaml"])):
    pin = ["--parallel", way] if way else []
    started = time.time()
    code, out, err = call("plan", "gpt2", "--trainer", target, "--device", "4090", "--seq", "1024", "--global-batch", "64", "--world", "4", *pin, "-o", "w.json", "--force", "--json")
    took = time.time() - started
    if not ok(code == 0, "%s on four cards, %s" % (target, way), (code, err)):
        continue
    j = json.loads(out)
    c = j["common"]
    ok(c["world"] == 4 and c["micro_batch"] * c["accumulation"] * 4 == 64 and c["parallel"] == (way or c["parallel"]), "samples and way", c)
    ok(j["interval"]["high_bytes"] <= j["budget_bytes"], "it fits at the upper end", j["interval"])
    ways |= {c["parallel"]} | {a["common"]["parallel"] for a in j["alternatives"]}
    if not way:
        continue
    code, out, err = call("emit", "w.json", "--for", target, "-o", "w-" + way, "--force")
    ok(code == 0, "emit for " + way, err)
    names = ["training_args.yaml", "model_args.json"] + files
    code, out, err = call("check", *["w-%s/%s" % (way, f) for f in names], "--model", "gpt2", "--device", "4090", "--seq", "1024", "--json")
    read = json.loads(out)
    same = ("micro_batch", "accumulation", "world", "parallel", "precision", "optimizer", "recompute")
    ok(code == 0 and not [f for f in read["findings"] if f["severity"] == "error"] and all(str(read["common"][k]) == str(c[k]) for k in same), "check reads %s back" % way,
       (code, read.get("common"), c))
    ok(read["device_bytes"] == j["device_bytes"] and read["fits"], "the same bytes of " + way, (read["device_bytes"], j["device_bytes"]))
ok(len(ways) >= 4, "ways that were compared", ways)
code, out, err = call("estimate", "gpt2", "--trainer", "hf", "--device", "4090", "--seq", "1024", "--micro-batch", "1", "--world", "8", "--parallel", "fsdp2", "--json")
eight = json.loads(out)
ok(eight["interval"]["high_bytes"] > eight["device_bytes"] and any("NCCL" in a for a in eight["assumptions"]), "what NCCL takes is said", eight["assumptions"])

# ---- refused ----
for words, want, code_want in (("--trainer", "torchtitan"), "llama qwen3", 4), (("--trainer", "hff"), "hf", 2), (("--world", "3", "--trainer", "torch"), "multiple", 2), (("--world", "2"), "--trainer", 2), \
        (("--trainer", "torch", "--micro-batch", "3"), "divide", 2), (("--trainer", "torch", "--recipe", "r.json"), "--recipe", 2), (("--trainer", "torch", "--frontier"), "--frontier", 2), \
        (("--trainer", "torch", "--recompute", "some"), "none", 2), (("--trainer", "torch", "--optimizer", "adamw_8bit"), "adamw_8bit", 4), (("--trainer", "hf", "--world", "2", "--parallel", "fsdp3"), "fsdp2", 2), \
        (("--trainer", "torch", "--device", "cpu"), "CUDA", 2), (("--trainer", "unsloth"), "no model of the family gpt2", 4), (("--trainer", "hf", "--offload", "optimizer", "--parallel", "fsdp2"), "zero2 (optimizer)", 4), \
        (("--trainer", "hf", "--optimizer", "adam8bit"), "adamw_8bit", 4):
    options = ["--device", "4090"] if "--device" not in words else []
    code, out, err = call("plan", "gpt2", "--seq", "1024", "--global-batch", "64", *options, *words)
    ok(code == code_want and want in err, " ".join(words), (code, err))
# ---- trainers with modules of their own: assumed, in an interval that says how wide and why ----
for target, low, high in (("torchtitan", 15, 15), ("litgpt", 10, 35), ("torchtune", 40, 40), ("megatron", 60, 50), ("unsloth", 70, 15)):
    for words in (), ("--world", "4"):
        code, j, err = plan("llama-3.2-1b", "--trainer", target, "--device", "h100", "--seq", "512", "--global-batch", "16", *words, "-o", "own.json", "--force")
        said = " ".join(j.get("assumptions", []))
        r = j.get("reserved_peak_bytes") or 0
        ok(code == 0 and "not modelled" in said and "interval: -%d to +%d %%" % (low, high) in said and "ranks that were dry-run" not in said, "%s %s: assumed" % (target, words), (code, err, said))
        ok(j["interval"]["high_bytes"] >= j["device_bytes"] + int(high / 100 * r) - 1 and j["interval"]["high_bytes"] <= j["budget_bytes"], "and widened", j["interval"])
        if words and target in ("torchtune", "unsloth"):
            continue  # its command says how cards share
        code, out, err = call("emit", "own.json", "--for", target, "-o", "own-" + target, "--force")
        files = sorted(glob.glob("own-%s/*" % target))
        code, out, err = call("check", *[f for f in files if not f.endswith(".md")], "--for", target, "--model", "llama-3.2-1b", "--device", "h100", "--seq", "512", *(words or ("--world", "1")), "--json")
        k = json.loads(out)
        ok(code == 0 and k["fits"] and k["device_bytes"] == j["device_bytes"] and "not modelled" in " ".join(k["assumptions"]), "%s %s: check says the same" % (target, words), (code, err, k.get("fits_not_answered"), k.get("device_bytes"), j["device_bytes"], k.get("findings")))
# adapters by Unsloth: SFTTrainer's step, and its checkpoints in host memory; a T4 has none of bf16, of flash attention and of TRL's loss
code, j, err = plan("llama-3.2-1b", "--trainer", "unsloth", "--qlora", "--device", "t4", "--seq", "2048", "--global-batch", "8", "--micro-batch", "4", "--recompute", "full", "-o", "kept.json", "--force")
code, k, err = plan("llama-3.2-1b", "--trainer", "unsloth", "--qlora", "--device", "t4", "--seq", "2048", "--global-batch", "8", "--micro-batch", "4", "--offload", "activations", "--recompute", "full", "-o", "own.json", "--force")
moved = (16 - 1 - 2) * 4 * 2048 * 2048 * 2     # of 16 layers but the last, less two that are staged: tokens x width x 2 B
ok(code == 0 and "SFTTrainer" in " ".join(k["assumptions"]) and j["allocated_peak_bytes"] - k["allocated_peak_bytes"] == moved, "Unsloth's checkpoints", (code, err, j.get("allocated_peak_bytes"), k.get("allocated_peak_bytes")))
code, out, err = call("emit", "own.json", "--for", "unsloth", "-o", "own-sloth", "--force")
text = open("own-sloth/vplan_unsloth.py").read()
ok('"target_modules": "all-linear"' in text and '"use_gradient_checkpointing": "unsloth"' in text, "the file says so, no list of one word", text)
code, out, err = call("check", "own-sloth/vplan_unsloth.py", "--model", "llama-3.2-1b", "--device", "t4", "--json")
ok(json.loads(out)["allocated_peak_bytes"] == k["allocated_peak_bytes"], "and check takes it for the same", (out[:300], err))
# what nobody gave is not to blame: adapters are what these trainers' files have no words for
for target in "litgpt", "torchtitan", "torchtune", "megatron":
    code, out, err = call("plan", "llama-3.2-1b", "--trainer", target, "--lora", "r=8,targets=all-linear", "--device", "4090", "--seq", "512", "--global-batch", "8")
    ok(code == 4 and "tuning lora" in err and "precision" not in err, "%s has no adapters" % target, (code, err))
    code, out, err = call("plan", "llama-3.2-1b", "--trainer", target, "--precision", "bf16-amp", "--device", "4090", "--seq", "512", "--global-batch", "8")
    ok(code == 4 and "precision bf16-amp" in err, "%s: a precision that was given is named" % target, (code, err))
for option in ("--html", "p.html"), ("--svg", "p.svg"), ("--within", "1%"), ("--gap", "0.01"), ("--all",), ("--prices",), ("--prove",), ("--monolithic",), ("--host-memory", "8GiB"), ("--updates", "end"):
    code, out, err = call("plan", "gpt2", *BASE, *option)
    ok(code == 2 and option[0] in err and "vplan's own plans" in err and not os.path.exists(option[-1]), "%s is vplan's own" % option[0], (code, err))
code, out, err = call("plan", "gpt2", *BASE[:2], "--device", "4090", "--seq", "4096", "--global-batch", "8")
ok(code == 2 and "positions" in err, "a sequence too long", (code, err))
for trainer in (), ("--trainer", "hf"):
    code, out, err = call("plan", "smollm2-135m", *trainer, "--device", "4090", "--seq", "9000", "--global-batch", "1")
    ok(code == 0 and "8192 positions the model" in " ".join(out.split()), "a sequence longer than the model was made for", (code, out, err))
# whose head has a bias: its step by SFTTrainer was not recorded
json.dump(dict(model_type="phi", architectures=["PhiForCausalLM"], hidden_size=1024, intermediate_size=4096, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=16,
               vocab_size=51200, max_position_embeddings=2048, hidden_act="gelu_new", resid_pdrop=0.0), open("phi.json", "w"))
code, j, err = plan("phi.json", "--trainer", "trl", *BASE[2:])
ok(code == 0 and j["common"]["loss"] == "chunked" and any("upper bound" in a for a in j["assumptions"]) and any("SFTTrainer" in a for a in j["assumptions"]), "trl: assumed, and said so", (code, err))
ok(j["interval"]["high_bytes"] > 1.1 * j["device_bytes"] > 2 * j["interval"]["low_bytes"], "trl: a wide interval", j.get("interval"))
code, j, err = plan("qwen2.5-0.5b", "--trainer", "trl", "--precision", "bf16", "--attention", "eager", *BASE[2:])
ok(code == 0 and any("put together" in a for a in j["assumptions"]) and any("steps put together" in a for a in j["assumptions"]) and
   j["interval"]["high_bytes"] > 1.09 * j["device_bytes"] > 1.15 * j["interval"]["low_bytes"], "trl: put together, and said so", (code, err, j.get("interval")))
# a step that SFTTrainer's recordings lack, and that nothing is put together for, is refused as estimate refuses it; another trainer's stands in where there are none
for words, known, stands_in in (("gpt2 --precision fp32", False, False), ("qwen2.5-0.5b --attention eager", True, False), ("phi.json", True, True)):
    code, j, err = plan(*words.split(), "--trainer", "trl", *BASE[2:])
    est = call("estimate", *words.split(), "--trainer", "trl", "--device", "4090", "--seq", "1024", "--micro-batch", "1")
    ok(code == (0 if known else 4) and est[0] == (4 if stands_in else code) and (known or "was recorded" in err), "trl, plan and estimate: " + words, (code, err, est))
# ---- adapters: frozen weights of 16 bits unasked, as estimate --trainer hf has them ----
code, j, err = plan("llama-3.1-8b", "--trainer", "hf", "--lora", "r=16", "--device", "4090", "--seq", "1024", "--global-batch", "16", "--micro-batch", "2", "--recompute", "full")
e = json.loads(call("estimate", "llama-3.1-8b", "--trainer", "hf", "--lora", "r=16", "--device", "4090", "--seq", "1024", "--micro-batch", "2", "--accumulation", "8", "--recompute", "full", "--json")[1])
ok(code == 0 and j["common"]["precision"] == "bf16-amp" and j["device_bytes"] == e["device_bytes"], "LoRA of 8B on 24 GB", (code, j["common"], j.get("device_bytes"), e["device_bytes"]))
# ---- TRL: its own recorded step where there is one, to the byte what estimate and check say ----
for words in ("qwen2.5-0.5b", "llama-3.2-1b --recompute full", "qwen3-0.6b --recompute none --lora r=8", "llama-3.1-8b --qlora", "llama-3.2-1b --padding mask --recompute full"):
    on = (*words.split(), "--trainer", "trl", "--device", "a100-sxm-80gb", "--seq", "1024")
    code, j, err = plan(*on, "--global-batch", "16", "--micro-batch", "2", "-o", "trl.json", "--force")
    if not ok(code == 0, "trl: " + words, err):
        continue
    c = j["common"]
    e = json.loads(call("estimate", *on, "--json", "--micro-batch", "2", "--accumulation", "8", "--precision", c["precision"], "--optimizer", c["optimizer"],
                        *(() if "--recompute" in on else ("--recompute", c["recompute"])))[1])
    ok(all(j[k] == e[k] for k in ("device_bytes", "allocated_peak_bytes", "reserved_peak_bytes")) and j["interval"]["high_bytes"] == e["interval"]["high_bytes"], "trl: estimate's bytes: " + words,
       (j["device_bytes"], e.get("device_bytes"), j["interval"], e.get("interval")))
    ok(c["loss"] == "chunked" and not any("upper bound" in a or "itself was not recorded" in a for a in j["assumptions"]), "trl: its own step: " + words, j["assumptions"])
    if "mask" in on:
        continue
    code, out, err = call("emit", "trl.json", "--for", "trl", "-o", "trl", "--force")
    code, out, err = call("check", "trl/sft.yaml", "trl/accelerate.yaml", "--for", "trl", "--model", on[0], "--device", "a100-sxm-80gb", "--json")
    k = json.loads(out)
    ok(code == 0 and k.get("device_bytes") == j["device_bytes"] and k["interval"] == j["interval"] and not any("itself was not recorded" in a for a in k["assumptions"]), "trl: check's bytes: " + words,
       (code, k.get("device_bytes"), j["device_bytes"], k.get("assumptions"), err))
code, out, err = call("plan", "llama-3.1-70b", "--trainer", "megatron", "--device", "4090", "--seq", "2048", "--global-batch", "16")
ok(code == 3 and out.strip().split("\n")[-2].startswith("what fits  none of"), "nothing would: it is said", out[-300:])

# ---- nothing fits, and no change alone is enough: two together, each a command that plans ----
for name, trainer, least, words in (("llama-3.1-70b", "hf", 3, ("--qlora", "--world 8", "plan llama-3.1-8b")), ("llama-3.1-8b", "torchtune", 2, ("--trainer hf", "--device b200")),
                                    ("llama-3.1-70b", "litgpt", 1, ("--world",)), ("llama-3.1-8b", "lightning", 1, ("--device",))):
    code, out, err = call("plan", name, "--trainer", trainer, "--device", "4090", "--seq", "2048", "--global-batch", "16")
    proposed = [line.split(None, 1)[1] for line in out.replace("\\\n", "").split("\n") if line.split()[:2] == ["vplan", "plan"]]
    ok(code == 3 and len(proposed) >= least and all(any(w in c for c in proposed) for w in words), "together: %s, %s" % (name, trainer), out[-900:])
    ok(all(len(line) <= 80 for line in out.split("\n")), "80 columns", [line for line in out.split("\n") if len(line) > 80])
    for command in proposed:
        code, out, err = call(*command.split())
        ok(code == 0, "it fits: " + command, err or out[:300])

code, out, err = call("plan", "gpt2", *BASE)
ok(code == 0 and all(len(line) <= 80 for line in out.split("\n")), "80 columns", [line for line in out.split("\n") if len(line) > 80])

# ---- check: does it fit, and which lines to change ----
def check(*words):
    code, out, err = call("check", "--json", *words)
    return code, json.loads(out) if out else {}, err


def write(name, text):
    with open(name, "w") as f:
        f.write(text)
    return name


ON = ("--model", "gpt2", "--device", "4090", "--seq", "1024")
TEXT = "output_dir: out # where\nper_device_train_batch_size: 64 # all of it\ngradient_accumulation_steps: 1\nbf16: true\noptim: adamw_torch\n"
code, j, err = check(write("mine.yaml", TEXT), *ON)
e = json.loads(subprocess.run((vplan, "estimate", "gpt2", "--trainer", "torch", "--device", "4090", "--seq", "1024", "--json", "--precision", "bf16-mixed", "--micro-batch", "64"), stdout=subprocess.PIPE).stdout)
ok(code == 3 and j["fits"] is False and abs(j["device_bytes"] / e["device_bytes"] - 1) < 0.02 and j["peak_phase"], "check: does not fit", (code, j.get("device_bytes"), err))
lines = {c["key"]: c for c in j["changes"]}
ok(lines["per_device_train_batch_size"]["line"] == 2 and lines["per_device_train_batch_size"]["from"] == "64" and {"file", "line", "key", "from", "to", "saves_bytes", "costs_seconds"} <= set(j["changes"][0]), "the lines", lines)
for c in sorted(j["changes"], key=lambda c: -(c["line"] or 0)):
    text = open("mine.yaml").read().split("\n")
    if c["line"]:
        text[c["line"] - 1] = text[c["line"] - 1].replace(c["key"] + ": " + c["from"], c["key"] + ": " + c["to"])
    else:
        text.insert(len(text) - 1, c["key"] + ": " + c["to"])
    write("mine.yaml", "\n".join(text))
code, after, err = check("mine.yaml", *ON)
ok(code == 0 and after["fits"] and not after["changes"], "with the lines changed it fits", (code, after.get("changes"), err))
ok(j["device_bytes"] - sum(c["saves_bytes"] for c in j["changes"]) == after["device_bytes"], "the lines' bytes add up", (j["changes"], after["device_bytes"]))
ok(abs(j["step_time_s"] + sum(c["costs_seconds"] for c in j["changes"]) - after["step_time_s"]) < 1e-9, "and their seconds", after["step_time_s"])
# the change that saves most is the first line, what takes more the last: each is the best of those that are left, and made by itself the first saves what is said
def apart(changes):
    """The changes, each with the lines that say it: micro-batch and accumulation are one."""
    made = []
    for c in changes:
        if made and c["saves_bytes"] == c["costs_seconds"] == 0 and c["key"].startswith("gradient_accumulation"):
            made[-1].append(c)
        else:
            made.append([c])
    return made


def changed(text, lines):
    rows = text.split("\n")
    for c in sorted(lines, key=lambda c: -(c["line"] or 0)):
        if c["line"]:
            rows[c["line"] - 1] = rows[c["line"] - 1].replace("%s: %s" % (c["key"], c["from"]), "%s: %s" % (c["key"], c["to"]))
        else:
            rows.insert(len(rows) - 1, "%s: %s" % (c["key"], c["to"]))
    return "\n".join(rows)


LORA8 = "base_model: x\nmicro_batch_size: 8\ngradient_accumulation_steps: 2\nbf16: true\nsequence_len: 2048\nadapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n"
LESS = "output_dir: o\nper_device_train_batch_size: 16\ngradient_accumulation_steps: 2\nbf16: true\noptim: adamw_torch_fused\ngradient_checkpointing: true\nlearning_rate: 2.0e-5\n"
for text, model, card, takes in ((LORA8, "llama-3.1-8b", "4090", False), (LORA8.replace("size: 8", "size: 4"), "qwen2.5-7b", "4090", False), (LESS, "qwen2.5-0.5b", "4090", True)):
    code, j, err = check(write("most.yaml", text), "--model", model, "--device", card, "--seq", "2048" if "base_model" in text else "1024")
    made, total = apart(j["changes"]), j["device_bytes"]
    saves = [one[0]["saves_bytes"] for one in made]
    ok(code == 3 and len(made) >= 2 and saves == sorted(saves, reverse=True) and (saves[-1] < 0) == takes, "what saves most is first: %s on %s" % (model, card), (code, j["changes"]))
    alone = []
    for one in made:
        if any(c["file"] == "environment" for c in one):
            continue
        code, k, err = check(write("one.yaml", changed(text, one)), "--model", model, "--device", card, "--seq", "2048" if "base_model" in text else "1024")
        alone.append(total - k["device_bytes"])
    ok(alone[0] == saves[0] == max(alone), "alone no other line saves more", (alone, saves))
write("mine.yaml", TEXT)
code, out, err = call("plan", "gpt2", "--trainer", "hf", *ON[2:], "--global-batch", "64", "--optimizer", "adamw_torch", "-o", "h.json")
code, out, err = call("emit", "h.json", "--for", "hf", "--edit", "mine.yaml", "--force")
code, after, err = check("mine.yaml", *ON)
ok(code == 0 and after["fits"] and "# all of it" in open("mine.yaml").read(), "plan, emit --edit, check", (code, after, err))
code, j, err = check(*ON, "--", "python", "train.py", "--per_device_train_batch_size", "64", "--bf16", "True", "--optim", "adamw_torch")
ok(code == 3 and any(c["key"] == "per_device_train_batch_size" for c in j["changes"]), "a command line", (code, j.get("changes"), err))
code, j, err = check("mine.yaml", *ON[:4])
ok(code == 0 and j["fits"] is None and "seq" in j["fits_not_answered"], "no sequence: not answered", j.get("fits_not_answered"))
code, j, err = check(write("wrong.yaml", TEXT + "fp16: true\n"), *ON)
ok(code == 4 and any(f["severity"] == "error" for f in j["findings"]), "what contradicts itself is 4, fit or not", (code, j["findings"]))
# ---- what the card cannot do, and what a trainer fills in itself ----
T4 = ("--model", "gpt2", "--device", "t4", "--seq", "128")
code, j, err = check(write("b16.yaml", "per_device_train_batch_size: 4\nbf16: true\n"), *T4)
ok([(f["line"], f["key"]) for f in j["findings"] if f["severity"] == "warning"] == [(2, "bf16")], "bf16 on a T4 is emulated", (code, j["findings"]))
code, j, err = check(write("f16.yaml", "per_device_train_batch_size: 4\nfp16: true\n"), *T4)
ok(code == 0 and j["fits"], "fp16 on a T4", (code, j["findings"]))
# frozen weights are fp16 there, adapters fp32 under autocast: the loader says it, or axolotl and LLaMA-Factory do it unasked
AX16 = "base_model: x\nsequence_len: 512\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\nadapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\nfp16: true\nbf16: false\noptimizer: adamw_torch_fused\n"
LF16 = "stage: sft\nfinetuning_type: lora\nlora_rank: 16\nlora_target: all\ncutoff_len: 512\nfp16: true\nper_device_train_batch_size: 2\n"
for name, text in ("ax16.yaml", AX16), ("lf16.yaml", LF16):
    code, j, err = check(write(name, text), "--model", "llama-3.2-1b", "--device", "t4")
    ok(code == 0 and j["fits"] and j["common"]["precision"] == "fp16-amp", "adapters on a T4: " + name, (code, j.get("common"), j.get("fits_not_answered")))
code, j, err = check(write("full16.yaml", LF16.replace("finetuning_type: lora\nlora_rank: 16\nlora_target: all", "finetuning_type: full")), "--model", "gpt2", "--device", "t4")
ok(j["common"]["precision"] == "fp16-mixed", "the whole model on a T4", j["common"])
code, j, err = check(write("hf16.yaml", "per_device_train_batch_size: 2\nfp16: true\n"), write("load.json", '{"pretrained_model_name_or_path": "a/b", "dtype": "float16"}'), write("adapter_config.json", '{"peft_type": "LORA", "r": 16, "target_modules": ["q_proj", "v_proj"]}'))
ok(j["common"]["precision"] == "fp16-amp", "weights that a script loads in fp16", (code, j["common"], j["findings"]))
# vplan dryrun of Trainer(fp16=True) over Llama 3.2 1B in fp16, adapters of rank 16 on q_proj and v_proj, 2 samples of 256 tokens, on a T4
j = json.loads(call("estimate", "llama-3.2-1b", "--trainer", "hf", "--lora", "r=16,targets=q_proj+v_proj", "--device", "t4", "--seq", "256", "--micro-batch", "2", "--json")[1])
ok(j["settings"]["precision"] == "fp16-amp" and abs(j["allocated_peak_bytes"] - 4371695616) <= 4096 and j["reserved_peak_bytes"] == 4544528384, "as played", (j["settings"], j["allocated_peak_bytes"], j["reserved_peak_bytes"]))
for version, said in (("4.57", True), ("5.17", False), ("5.17.0", False)):
    j = json.loads(call("plan", "gpt2", "--trainer", "hf", "--device", "t4", "--seq", "128", "--global-batch", "4", "--versions", "transformers=" + version, "--json")[1])
    ok(any("files are for transformers=" in x for x in j["assumptions"]) == said, "bytes of other libraries than the files' are said to be: " + version, j["assumptions"])
LF = "stage: sft\nfinetuning_type: lora\nlora_rank: 16\nlora_target: all\ncutoff_len: 512\nbf16: true\nper_device_train_batch_size: 4\n"
code, j, err = check(write("lf.yaml", LF), "--model", "llama-3.2-1b", "--device", "4090")
ok(j["fits"] and j["common"]["lora_alpha"] == 32 and j["common"]["precision"] == "bf16-amp", "LLaMA-Factory's alpha is twice the rank", (code, j.get("common"), j.get("fits_not_answered")))
code, out, err = call("plan", "gpt2", "--trainer", "torch", "--device", "t4", "--seq", "512", "--global-batch", "8", "--json")
ok(code == 0 and json.loads(out)["common"]["precision"] == "fp32" and "--precision not given: fp32" in out, "a precision that can be answered: a T4", err)
code, out, err = call("plan", "llama-3.2-1b", "--trainer", "llamafactory", "--lora", "r=16", "--device", "4090", "--seq", "512", "--global-batch", "8", "--json")
ok(code == 0 and json.loads(out)["common"]["precision"] == "bf16-amp", "a precision that can be told: LLaMA-Factory's LoRA", err)
code, out, err = call("plan", "gpt2", "--trainer", "torch", "--device", "t4", "--seq", "512", "--global-batch", "8", "--precision", "fp16-mixed")
ok(code == 4 and "fp16-mixed" in err, "what was asked for is not changed", (code, err))
code, out, err = call("plan", "gpt2", "--trainer", "hf", "--device", "4090", "--seq", "1024", "--global-batch", "999983", "--json")
ok(code == 0 and json.loads(out)["common"]["micro_batch"] == 1, "a micro-batch beyond counting is too large", (code, err))
a, b = check("f16.yaml", *T4)[1], check("f16.yaml", *T4, "--", "PYTORCH_ALLOC_CONF=expandable_segments:True", "python", "train.py")[1]
ok(any("PYTORCH_ALLOC_CONF" in x for x in a["assumptions"]) and not any("PYTORCH_ALLOC_CONF" in x for x in b["assumptions"]) and b["common"]["allocator"] == "expandable" and b["device_bytes"] < a["device_bytes"], "files and the command's environment", (a["assumptions"], b))
code, j, err = check(*ON, "--", "PYTORCH_ALLOC_CONF=expandable_segments:True", "python", "train.py", "--per_device_train_batch_size", "64", "--bf16", "True", "--optim", "adamw_torch")
ok(code == 3 and j["changes"] and not [c for c in j["changes"] if "ALLOC_CONF" in c["key"]], "what is on already is no change", (code, j.get("changes")))
# ---- between the middle and the upper end ----
need = json.loads(call("estimate", "gpt2", "--trainer", "hf", "--device", "4090", "--json")[1])
budget = str((need["device_bytes"] + need["interval"]["high_bytes"]) // 2)
code, out, err = call("estimate", "gpt2", "--trainer", "hf", "--device", "4090", "--budget", budget)
ok(code == 0 and "interval" in out and "but not at the" in out, "fits, but not at the upper end", (code, out[:400], err))
code, out, err = call("estimate", "gpt2", "--trainer", "hf", "--device", "4090", "--budget", str(need["interval"]["high_bytes"]))
ok(code == 0 and "but not at the" not in out, "fits at both ends", out[:400])
# ---- samples whose length nobody said ----
PADDED = ("qwen2.5-0.5b", "--trainer", "hf", "--seq", "1024", "--micro-batch", "16", "--device", "h100")
full, mask = [json.loads(call("estimate", *PADDED, *more, "--json")[1]) for more in ((), ("--padding", "mask"))]
said = [x for x in full["assumptions"] if x.startswith("no padding: ")]
gib = lambda x: "%.2f GiB" % (x / 2**30)
ok(len(said) == 1 and gib(mask["device_bytes"]) in said[0] and not [x for x in mask["assumptions"] if "no padding" in x], "what padding would take is said", (said, mask["device_bytes"]))
code, out, err = call("estimate", *PADDED, "--budget", str(full["device_bytes"]))
ok(mask["device_bytes"] > full["device_bytes"] and code == 0 and re.search(r"^padded     batches with padding may not fit: " + gib(mask["device_bytes"]), out, re.M) and all(len(x) <= 80 for x in out.split("\n")), "padding decides", out[:400])
ok(not re.search("^padded ", call("estimate", *PADDED, "--budget", str(mask["device_bytes"]))[1], re.M), "padding that fits", "said")
ok("no padding" not in call("estimate", "qwen2.5-0.5b", "--trainer", "hf", "--micro-batch", "1", "--device", "h100")[1], "one sample has no padding", "said")
for words in (("estimate", "--micro-batch", "4"), ("plan", "--global-batch", "32")):         # a mask over 500 tokens was not recorded, and takes as much as one over 504
    said = [[x for x in json.loads(call(words[0], "qwen2.5-0.5b", "--trainer", "hf", "--device", "4090", "--seq", seq, *words[1:], "--json")[1])["assumptions"] if x.startswith("no padding: ")] for seq in ("500", "504")]
    ok(said[0] == said[1] and "batches with padding take" in said[0][0], "padding of a length that is no multiple of 8, by " + words[0], said)
write("padded.yaml", "output_dir: out\nper_device_train_batch_size: 16\nbf16: true\n")
code, j, err = check("padded.yaml", "--model", PADDED[0], *PADDED[3:5], *PADDED[7:])
ok([x for x in j["assumptions"] if x.startswith("no padding: ")], "check says it too", j["assumptions"])
code, k, err = check("padded.yaml", "--model", PADDED[0], *PADDED[3:5], *PADDED[7:], "--padding", "mask")
ok([x for x in j["assumptions"] if gib(k["interval"]["high_bytes"]) in x], "with the number that --padding mask has", (j["assumptions"], k["interval"]))
PLANNED = ("plan", "qwen2.5-0.5b", "--trainer", "hf", "--device", "4090", "--seq", "1024", "--global-batch", "32")
code, out, err = call(*PLANNED)
planned = json.loads(call(*PLANNED, "--json")[1])
write("padded.yaml", "output_dir: out\nper_device_train_batch_size: %d\ngradient_accumulation_steps: %d\nbf16: true\n" % (planned["common"]["micro_batch"], planned["common"]["accumulation"]))
code, k, err = check("padded.yaml", "--model", PADDED[0], *PADDED[3:5], "--device", "4090", "--padding", "mask")
ok([x for x in planned["assumptions"] if x.startswith("no padding: ") and gib(k["interval"]["high_bytes"]) in x] and re.search(r"^padded     batches with padding may not fit: " + gib(k["interval"]["high_bytes"]), out, re.M), "plan says it of what it chose", (planned["assumptions"], k["interval"]))
ok("no padding" not in call(*PLANNED, "--padding", "mask")[1], "plan with padding", "said")
code, out, err = call("estimate", "gpt2", "--trainer", "hf", "--device", "t4", "--max", "micro-batch")
ok(re.search(r"^largest    --micro-batch (\d+); (\d+) does not beside all", out, re.M), "the largest, and what does not fit", out[:400])
ok(check("mine.yaml", "--model", "gpt2", "--device", "4O90")[0] == 2 and check("mine.yaml", "--model", "gpt2-xxl", "--device", "4090")[0] in (2, 4), "no such card, no such model", "taken")
code, out, err = call("check", "mine.yaml", *ON)
ok(code == 0 and out.count("FITS") == 1 and all(len(line) <= 80 for line in out.split("\n")), "on a screen", out)
# ---- adapters over 4 bits: plan, check and the file say one thing ----
Q = ("plan", "qwen2.5-7b", "--trainer", "hf", "--qlora", "--device", "a100-sxm-40gb", "--seq", "1024", "--global-batch", "16")
code, out, err = call(*Q, "-o", "q.json", "--json")
q = json.loads(out)
ok(code == 0 and q["versions"]["transformers"] == "5.17.0", "versions of the step that was recorded", q["versions"])
ok(any("-2 to +2 % of the reserved" in x for x in q["assumptions"]) and q["interval"]["high_bytes"] - q["device_bytes"] == int(0.02 * q["reserved_peak_bytes"]), "the interval as it is said", q["assumptions"])
code, out, err = call("emit", "q.json", "--for", "hf", "-o", "qrun")
code, j, err = check("qrun/training_args.yaml", "qrun/model_args.json", "qrun/lora_config.json", "--device", "a100-sxm-40gb")
ok(code == 0 and all(j[k] == q[k] for k in ("device_bytes", "allocated_peak_bytes", "reserved_peak_bytes", "interval", "step_time_s")), "plan and check of what was emitted", (code, j, q))
# ---- --qlora is one thing: NF4 with double quantisation, in plan, estimate and the files ----
ok(q["common"]["tuning"] == "qlora" and q["common"]["quant"] == "nf4-dq" and json.load(open("qrun/model_args.json"))["quantization_config"]["bnb_4bit_use_double_quant"] is True, "plan and emit", q["common"])
code, out, err = call("estimate", "qwen2.5-7b", "--qlora", "--device", "a100-sxm-40gb", "--seq", "1024", "--micro-batch", str(q["common"]["micro_batch"]), "--accumulation", str(q["common"]["accumulation"]), "--recompute", q["common"]["recompute"], "--json")
e = json.loads(out)
ok(code == 0 and all(e[k] == q[k] for k in ("allocated_peak_bytes", "device_bytes")), "plan and estimate", (code, {k: (e.get(k), q[k]) for k in ("allocated_peak_bytes", "device_bytes")}, err))
# ---- whose files prepare what is not quantised: hf's train.py; others leave it as it was loaded, and take the step of that way ----
FEW = ("--qlora", "--device", "4090", "--seq", "512", "--micro-batch", "2", "--recompute", "full", "--precision", "bf16-amp")
ways = {w: json.loads(call("estimate", "llama-3.2-1b", "--trainer", "hf", "--prepare", w, "--json", *FEW)[1])["allocated_peak_bytes"] for w in ("on", "off")}
BY_TRL = ("trl", "unsloth")     # SFTTrainer's own step, which is no way of Trainer's
for trainer, way in (("hf", "on"), ("llamafactory", "off"), ("axolotl", "off"), ("ms-swift", "off"), ("unsloth", "off"), ("trl", "off")):
    code, j, err = plan("llama-3.2-1b", "--trainer", trainer, "--global-batch", "2", *FEW)
    ok(code == 0 and sum("prepare_model_for_kbit_training" in a for a in j["assumptions"]) == 1 and any("in fp32, as" in a for a in j["assumptions"]) == (way == "on"), "%s: prepared %s, which is said" % (trainer, way), (code, err, j.get("assumptions")))
    ok(j.get("allocated_peak_bytes") == ways[way] or trainer in BY_TRL, "%s: the step of that way" % trainer, (j.get("allocated_peak_bytes"), ways))
ok(ways["on"] > ways["off"], "prepared ones take more", ways)
# ---- over several cards that cut it: the same bytes, and what has to be written for weights to be cut ----
SHARED = ("--qlora", "--world", "2", "--parallel", "fsdp2", "--device", "4090", "--seq", "1024")
for trainer, file, key in (("hf", "model_args.json", "quantization_config"), ("trl", "sft.yaml", None)):
    code, out, err = call("plan", "llama-3.1-8b", "--trainer", trainer, *SHARED, "--global-batch", "16", "-o", "cut.json", "--force", "--json")
    cut = json.loads(out)
    code, out, err = call("emit", "cut.json", "--for", trainer, "-o", "cut-" + trainer)
    text = open("cut-%s/%s" % (trainer, file)).read()
    ok(code == 0 and (json.loads(text)[key].get("bnb_4bit_quant_storage") == "bfloat16" if key else "\nbnb_4bit_quant_storage: bfloat16\n" in text), "packed weights that FSDP cuts: " + trainer, text)
    files = ["cut-%s/%s" % (trainer, x) for x in os.listdir("cut-" + trainer) if x.endswith((".json", ".yaml")) and x != "training_args.yaml"]
    code, out, err = call("check", *files)
    ok(code == 0 and "0 warnings" in out, "and they agree", out + err)
    write("cut-%s/%s" % (trainer, file), "\n".join(line for line in text.split("\n") if "quant_storage" not in line))
    code, out, err = call("check", *files)
    ok("1 warning" in out and "bnb_4bit_quant_storage: bfloat16" in out and file in out, "without it they are told: " + trainer, out + err)
    if trainer == "hf":
        c = cut["common"]
        code, out, err = call("estimate", "llama-3.1-8b", "--trainer", "hf", *SHARED, "--micro-batch", str(c["micro_batch"]), "--accumulation", str(c["accumulation"]), "--recompute", c["recompute"], "--json", *(["--alloc-conf", "expandable_segments:True"] if c.get("allocator") == "expandable" else []), *(["--sync-each-batch"] if c.get("gradient_sync") == "each" else []))
        e = json.loads(out)
        ok(code == 0 and e["allocated_peak_bytes"] == cut["allocated_peak_bytes"], "plan and estimate of cards that cut packed weights", (code, err, c))
call("plan", "llama-3.1-8b", "--trainer", "hf", *SHARED[:3], "--parallel", "ddp", *SHARED[5:], "--global-batch", "16", "-o", "ddp.json")
call("emit", "ddp.json", "--for", "hf", "-o", "ddp")
ok("bnb_4bit_quant_storage" not in open("ddp/model_args.json").read(), "cards that keep them whole leave it out", "")
# scales of 4 B for 64 weights, or of 1 B and 4 B for 64 x 256: 0.0466 B of 6.5e9 weights, less the scales that are taken out for one layer at a time
plain = json.load(open("qrun/model_args.json"))
plain["quantization_config"]["bnb_4bit_use_double_quant"] = False
write("qrun/model_args.json", json.dumps(plain))
code, j, err = check("qrun/training_args.yaml", "qrun/model_args.json", "qrun/lora_config.json", "--device", "a100-sxm-40gb")
ok(j["common"]["quant"] == "nf4" and j["allocated_peak_bytes"] > q["allocated_peak_bytes"] + 290e6, "plain NF4 takes more", (code, j.get("common"), j.get("allocated_peak_bytes"), q["allocated_peak_bytes"]))
call("plan", "qwen2.5-7b", "--trainer", "hf", "--qlora", "--device", "a100-sxm-40gb", "--seq", "1024", "--global-batch", "16", "-o", "q2.json")
settings = json.load(open("q2.json"))
for name, want in (("nf4", ("hf", "trl", "axolotl", "llamafactory", "ms-swift")), ("nf4-dq", ("hf", "trl", "axolotl", "llamafactory", "ms-swift", "unsloth"))):
    common = {"micro_batch": 1, "seq": 512, "precision": "bf16-amp", "optimizer": "adamw_torch", "recompute": "full", "tuning": "qlora", "quant": name, "lora_r": 8, "lora_alpha": 16, "lora_dropout": 0.0, "lora_targets": "all-linear"}
    write("nf4.json", json.dumps({"schema_version": 1, "kind": "settings", "model": "Qwen/Qwen2.5-7B", "common": common}))
    for target in ("hf", "trl", "axolotl", "llamafactory", "ms-swift", "unsloth"):
        code, out, err = call("emit", "nf4.json", "--for", target, *(("--versions", "trl=1.10") if target == "trl" else ()))
        ok(("quant" in err) == (target not in want), "%s of %s" % (name, target), (code, err))
# ---- the commands that a fitting answer ends with: estimate -> plan -> emit ----
def next_command(out):
    return shlex.split(re.sub(r"\\\n", " ", out[out.index("\nnext ") + len("\nnext "):]))[1:]


for asked in (("gpt2", "--trainer", "torch", "--device", "4090", "--seq", "256", "--micro-batch", "4", "--accumulation", "2"),
              ("qwen2.5-7b", "--qlora", "--device", "4090", "--seq", "1024", "--micro-batch", "2"),
              ("llama-3.2-1b", "--trainer", "hf", "--device", "h100", "--seq", "512", "--micro-batch", "2", "--world", "4", "--parallel", "fsdp2", "--recompute", "full")):
    code, out, err = call("estimate", *asked)
    first = next_command(out)
    batch = int(first[first.index("--global-batch") + 1])
    each = {w: int(asked[asked.index(w) + 1]) if w in asked else 1 for w in ("--micro-batch", "--accumulation", "--world")}
    ok(code == 0 and first[0] == "plan" and batch == each["--micro-batch"] * each["--accumulation"] * each["--world"], "estimate's next command", (out, err))
    code, out, err = call(*first)
    ok(code == 0 and next_command(out)[:2] == ["emit", "settings.json"], "plan after estimate", (first, out[:200], err))
    code, out, err = call(*first[:-2])
    ok(code == 0 and next_command(out) == first, "plan without -o ends with itself and -o", out[-300:])
    os.remove("settings.json")
code, out, err = call("estimate", "llama-3.2-1b", "--trainer", "hf", "--device", "h100", "--seq", "512", "--micro-batch", "2", "--resident", "ema")
ok(code == 0 and next_command(out)[0] == "estimate", "plan has no --resident: no command that it would refuse", out)

# ---- DeepSpeed's engine on one card: no borrowed bytes ----
code, out, err = call("plan", "gpt2", "--trainer", "deepspeed", "--device", "4090", "--seq", "256", "--global-batch", "4", "--precision", "bf16-mixed")
ok(code == 4 and "stage 0" in err and "--world N" in err, "16 bits at stage 0 are refused", (code, out, err))
code, out, err = call("plan", "gpt2", "--trainer", "deepspeed", "--device", "4090", "--seq", "256", "--global-batch", "4", "--json")
ok(code == 0 and json.loads(out)["common"]["precision"] == "fp32" and "stage 0" in out, "fp32 in its place, which is said", (code, out, err))
code, out, err = call("plan", "gpt2", "--trainer", "hf", "--device", "4090", "--seq", "256", "--global-batch", "8", "--world", "2", "--parallel", "fsdp", "--json")
ok(code == 0 and json.loads(out)["common"]["parallel"] == "fsdp" and "BACKWARD_PRE" in out, "FSDP1 where it is asked for, with what emit writes of it", (code, out, err))
code, out, err = call("plan", "gpt2", "--trainer", "hf", "--device", "4090", "--seq", "256", "--global-batch", "8", "--world", "2", "--lora", "r=8", "--parallel", "fsdp", "--precision", "fp16-mixed")
ok(code == 4 and "fsdp2" in err and "bf16-amp" in err, "adapters under FSDP1 name what is known", (code, out, err))
code, out, err = call("plan", "llama-3.2-1b", "--trainer", "hf", "--device", "4090", "--seq", "256", "--global-batch", "8", "--world", "2", "--lora", "r=8,targets=all-linear", "--parallel", "fsdp", "--json")
ok(code == 0 and json.loads(out)["common"]["tuning"] == "lora" and "BACKWARD_PRE" in out, "adapters under FSDP1", (code, out, err))

# ---- a card without bf16: fp16 unasked, in estimate as in plan ----
for trainer, words, want in (("hf", (), "fp16-mixed"), ("hf", ("--lora", "r=8"), "fp16-amp"), ("hf", ("--qlora",), "fp16-amp"), ("trl", (), "fp16-mixed"), ("torch", ("--qlora",), "fp16")):
    asked = ("qwen2.5-0.5b", "--trainer", trainer, "--device", "t4", "--seq", "256") + words
    e, p = json.loads(call("estimate", *asked, "--micro-batch", "1", "--json")[1]), plan(*asked, "--global-batch", "4")[1]
    ok(e["settings"]["precision"] == want == p["common"]["precision"], "%s %s on a T4" % (trainer, words), (e.get("settings"), p.get("common")))
# TRL's adapters over quantised weights are bf16, which a GradScaler of fp16 does not take; its loss adds products of bf16 up in fp32, which no card below 8.0 does
for model in "llama-3.2-1b", "qwen2.5-0.5b":
    for precision, reason in ((), "from compute capability 8.0 on"), (("--precision", "bf16-amp"), "from compute capability 8.0 on"), (("--precision", "fp16"), "GradScaler"):
        for on, batch in ("plan", ("--global-batch", "4")), ("estimate", ("--micro-batch", "4")):
            code, out, err = call(on, model, "--trainer", "trl", "--qlora", "--device", "t4", "--seq", "256", *batch, *precision)
            ok(code == 4 and reason in " ".join(err.split()) and "--trainer hf" in err, "%s: QLoRA by TRL on a T4, %s %s" % (on, model, precision), (code, out, err))
    code, out, err = call("estimate", model, "--trainer", "trl", "--lora", "r=8", "--precision", "bf16-amp", "--device", "t4", "--seq", "256")
    ok(code == 4 and "fp16 does" in " ".join(err.split()), "nor LoRA in bf16", (code, out, err))
    asked = (model, "--trainer", "trl", "--lora", "r=8", "--device", "t4", "--seq", "256", "--precision", "fp16-mixed")
    e, p = json.loads(call("estimate", *asked, "--micro-batch", "4", "--json")[1]), plan(*asked, "--micro-batch", "4", "--recompute", "full", "--global-batch", "4")[1]
    ok(e["reserved_peak_bytes"] == p["reserved_peak_bytes"], "estimate and plan of TRL's own step on a T4", (e["settings"], p))
code, out, err = call("estimate", "gpt2", "--trainer", "hf", "--device", "t4", "--precision", "bf16-mixed")
ok(code == 4 and "--attention math" in err, "nor has memory-efficient attention bf16 there", (code, out, err))
code, out, err = call("estimate", "gpt2", "--trainer", "hf", "--device", "t4", "--precision", "fp16-amp")
ok(code == 4 and "fp16-mixed, weights in fp32" in err, "fp16 weights that are trained", err)

# ---- a family without a graph or seconds: the findings are there, and what can be asked instead ----
CONFIGS = {m["name"]: m["config"] for m in json.loads(call("models", "--json")[1])["models"]}
write("t5.json", json.dumps(dict(CONFIGS["t5-small"], num_decoder_layers=2)))  # stacks that differ
write("mpt.json", '{"model_type": "mpt",\n "hidden_size": 64}')
write("broken.json", '{"model_type": "gpt2",\n "n_embd": "x"}')
write("unsized.json", '{"model_type": "cohere",\n "hidden_size": 64}')
write("co.yaml", "per_device_train_batch_size: 4\nbf16: true\nfp16: true\n")
for name, said in (("t5.json", "not say precision"), ("mpt.json", 'no training step of family "mpt" was recorded'), ("unsized.json", "is missing: a size")):
    code, j, err = check("co.yaml", "--model", name, "--device", "4090", "--seq", "128")
    ok(code == 4 and [f["line"] for f in j["findings"] if f["severity"] == "error"] == [3] and said in j["fits_not_answered"], "check without a graph: " + name, (code, j))
    code, out, err = call("plan", name, "--trainer", "hf", "--device", "4090", "--seq", "128", "--global-batch", "4")
    ok(code == 4 and (said if name != "t5.json" else "no seconds yet") in " ".join(err.split()), "plan without a graph: " + name, (code, err))
code, out, err = call("check", "co.yaml", "--model", "broken.json", "--device", "4090")
ok(code == 4 and "broken.json:2: n_embd" in err, "a config that is wrong is an error", (code, out, err))

# ---- a family that is priced without a graph of its own: seconds are those of one that has a graph, where blocks and sizes are the same ----
SIZES = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 4096}
BERT = {k: v for k, v in SIZES.items() if k != "num_key_value_heads"}
GEMMA = dict(SIZES, num_attention_heads=4, num_key_value_heads=2, head_dim=256, sliding_window=4096, tie_word_embeddings=True)


def seconds(family, sizes, recompute, *words):
    write("m.json", json.dumps(dict(sizes, model_type=family)))
    code, j, err = plan("m.json", "--trainer", "hf", "--device", "a100-sxm-80gb", "--seq", "1024", "--global-batch", "8", "--micro-batch", "8", "--precision", "bf16-mixed",
                        "--recompute", recompute, *words)
    ok(code == 0 and j["step_time_s"] > 0, "%s is planned" % family, (code, err))
    return j["step_time_s"], sum("vplan runs no such model" in a for a in j["assumptions"])


PAIRS = [("granite", dict(SIZES, tie_word_embeddings=False), "llama", dict(SIZES, tie_word_embeddings=False), 0.001),
         ("smollm3", dict(SIZES, tie_word_embeddings=True), "llama", dict(SIZES, tie_word_embeddings=True), 0.001),
         ("gpt_neo", {"hidden_size": 1024, "num_layers": 8, "num_heads": 16, "vocab_size": 32000, "max_position_embeddings": 4096, "window_size": 256, "activation_function": "gelu_new",
                      "attention_types": [[["global", "local"], 4]], "resid_dropout": 0.0, "embed_dropout": 0.0, "attention_dropout": 0.0},
          "gpt2", {"n_embd": 1024, "n_layer": 8, "n_head": 16, "vocab_size": 32000, "n_positions": 4096}, 0.08),  # GPT-2 has dropouts besides
         ("xlm-roberta", dict(BERT, max_position_embeddings=1026, type_vocab_size=1, pad_token_id=1, architectures=["XLMRobertaForMaskedLM"]),
          "roberta", dict(BERT, max_position_embeddings=1026, type_vocab_size=1, pad_token_id=1, architectures=["RobertaForMaskedLM"]), 0.05)]  # and RoBERTa
for family, sizes, known, known_sizes, within in PAIRS:
    for recompute in ("none", "full"):
        (mine, says), (theirs, not_said) = seconds(family, sizes, recompute), seconds(known, known_sizes, recompute, *(["--attention", "eager"] if known == "gpt2" else []))
        ok(abs(mine / theirs - 1) <= within and says == 1 and not_said == 0, "seconds of %s are those of %s, recompute %s" % (family, known, recompute), (mine, theirs, says))
gemma3, gemma2 = seconds("gemma3_text", GEMMA, "full")[0], seconds("gemma2", GEMMA, "full")[0]
ok(1 < gemma3 / gemma2 < 1.15, "Gemma 3's blocks are Gemma 2's, its heads are normed besides", (gemma3, gemma2))
# one expert of one is a dense layer; of eight, a token sees two: the products of two, and the bytes of all
moe = [seconds("mixtral", dict(SIZES, num_local_experts=n, num_experts_per_tok=k), "full")[0] for n, k in ((1, 1), (2, 1), (8, 2))]
dense = [seconds("mistral", dict(SIZES, intermediate_size=f), "full")[0] for f in (2816, 5632)]
ok(abs(moe[0] / dense[0] - 1) < 0.02, "one expert is a dense layer", (moe, dense))
ok(moe[0] < moe[1] < moe[2] and dense[1] < moe[2], "others' weights are read and updated too", (moe, dense))
for model, words in (("gemma-3-4b", ()), ("qwen3.5-0.8b", ()), ("granite-3.3-2b", ()), ("mixtral-8x7b", ("--world", "8", "--parallel", "fsdp2")), ("qwen3-30b-a3b", ("--lora",)), ("starcoder2-3b", ("--qlora",)), ("smollm3-3b", ("--qlora",)),
                     ("falcon-7b", ("--lora",)), ("stablelm-3b", ()), ("gpt-neo-1.3b", ()), ("phi-2", ("--qlora",)), ("xlm-roberta-large", ()), ("aya-23-8b", ()), ("olmo-7b", ()), ("distilbert-base-uncased", ()),
                     ("gemma-3-270m", ())):
    code, j, err = plan(model, "--trainer", "hf", "--device", "h200", "--seq", "512", "--global-batch", "16", *words)
    ok(code in (0, 3) and j.get("kind") == "settings" and j["model"]["params_total"] > 5e7, "%s %s is planned" % (model, words), (code, err))
    if code == 0:
        b = j["common"]
        e = json.loads(call("estimate", model, "--trainer", "hf", "--device", "h200", "--seq", "512", "--json", "--precision", b["precision"], "--optimizer", b["optimizer"], "--micro-batch", str(b["micro_batch"]),
                            "--accumulation", str(b["accumulation"]), "--recompute", b["recompute"], *words)[1])
        ok(b["allocator"] != "default" or e["device_bytes"] == j["device_bytes"], "bytes of %s are estimate's" % model, (e.get("device_bytes"), j["device_bytes"]))
code, j, err = plan("gemma-3-27b", "--trainer", "hf", "--device", "3060", "--seq", "512", "--global-batch", "16")
ok(code == 3 and any("gemma-3-4b" in json.dumps(c) for c in j["changes"]), "the smaller model of the family", (code, j.get("changes")))
code, j, err = check(write("gr.yaml", "per_device_train_batch_size: 128\nbf16: true\ngradient_checkpointing: true\n"), "--model", "granite-3.3-2b", "--device", "a100-sxm-80gb", "--seq", "512")
ok(j["fits"] is False and j["changes"], "check answers for it, with lines to change", (code, j))

# ---- two stacks, and images: products and attention are those of transformers' modules ----
# forward and backward of a micro-batch by torch.utils.flop_counter (torch 2.11, transformers 5.17, on meta tensors, where sdpa is its two products): products, attention. Fused attention makes one of its products
# once more in backward: 7 in place of 6. On this card nothing else takes time. BERT's and ViT's heads score all tokens here, and transformers' the first: 0.6 % with the pooler's product, 0.9 % with 1,000 classes.
# Of Whisper half of the second stack's own attention is masked, and that to what is heard is priced as products.
rates = {"bf16_flop_per_s": 1e10, "fp32_flop_per_s": 1e18, "memory_bytes_per_s": 1e17}
write("slow.json", json.dumps(dict({"schema_version": 1, "name": "slow", "usable_bytes": 800000000000, "compute_capability": 90, "multiprocessors": 132, "fp16_flop_per_s": 1e10}, **rates,
                                   sources={k: {"class": "measured", "source": "for this test"} for k in rates})))
for model, words, products, attends, within in (("t5-small", ("--seq", "512", "--global-batch", "4"), 743297777664, 115964116992, 0.001), ("t5-base", ("--seq", "512", "--global-batch", "4"), 2738444304384, 347892350976, 0.001),
                                                ("whisper-small", ("--seq", "448", "--global-batch", "4"), 5133501333504, 1381384323072, -0.016), ("whisper-large-v3-turbo", ("--seq", "448", "--global-batch", "4"), 25021950197760, 4638155735040, -0.002),
                                                ("vit-base-patch16-224", ("--global-batch", "8"), 806878347264, 34335719424, 0.012),
                                                ("bert-base-uncased", ("--class", "BertForSequenceClassification", "--seq", "512", "--global-batch", "4"), 1043691245568, 115964116992, 0.007)):
    code, j, err = plan(model, "--trainer", "hf", "--device", "slow.json", "--recompute", "none", "--precision", "bf16-mixed", "--micro-batch", words[-1], *words)
    counted = (products + 7 / 6 * attends) / 1e10
    ok(code == 0 and min(0, within) <= j["step_time_s"] / counted - 1 <= max(0, within), "%s: seconds are those of its products" % model, (code, j.get("step_time_s"), counted, err))
for model, loads, has, words in (("t5-small", "AutoModelForSeq2SeqLM", '"input_ids": ids, "labels": ids', ("--seq", "128")), ("bart-base", "AutoModelForSeq2SeqLM", '"input_ids": ids, "labels": ids', ("--seq", "128")),
                                ("whisper-small", "AutoModelForSpeechSeq2Seq", '"input_features": heard, "labels": ids', ("--seq", "128")), ("vit-base-patch16-224", "AutoModelForImageClassification", '"pixel_values": pixels', ())):
    code, j, err = plan(model, "--trainer", "hf", "--device", "t4", "--global-batch", "16", *words, "-o", "two.json", "--force")
    ok(code == 0 and j["common"]["seq"] == (128 if words else 197), "%s is planned" % model, (code, j.get("common"), err))
    e = json.loads(call("estimate", model, "--trainer", "hf", "--device", "t4", "--json", "--micro-batch", str(j["common"]["micro_batch"]), "--accumulation", str(j["common"]["accumulation"]),
                        "--precision", j["common"]["precision"], "--recompute", j["common"]["recompute"], *words)[1])
    ok(j["common"]["allocator"] != "default" or e["device_bytes"] == j["device_bytes"], "bytes of %s are estimate's" % model, (e.get("device_bytes"), j["device_bytes"]))
    ok(any("--target-seq" in a or "frames" in a for a in j["assumptions"]) == bool(words), "what is taken of a target is said", j["assumptions"])
    call("emit", "two.json", "--for", "hf", "-o", "two", "--force")
    script = open("two/train.py").read()
    ok(loads + ".from_pretrained(" in script and has in script and "@" not in script, "%s: its script" % model, script)
    try:
        compile(script, "train.py", "exec")
        why = None
    except SyntaxError as e:
        why = e
    ok(not why, "%s: its script is Python" % model, why)
    code, read, err = check("two/training_args.yaml", "two/model_args.json", "two/accelerate.yaml", "two/train.py", "--model", model, "--device", "t4")
    ok(code == 0 and read["device_bytes"] == j["device_bytes"], "%s is read again" % model, (code, read.get("device_bytes"), j["device_bytes"], read.get("fits_not_answered")))
    code, _, err = plan(model, "--trainer", "trl", "--device", "t4", "--seq", "197", "--global-batch", "16")
    ok(code == 4 and "next token" in " ".join(err.split()), "%s is not SFTTrainer's" % model, (code, err))
code, _, err = plan("vit-base-patch16-224", "--trainer", "hf", "--device", "t4", "--seq", "128", "--global-batch", "16")
ok(code == 2 and "197 tokens" in err, "an image has as many tokens as it has", (code, err))

# ---- adapters of other kinds are no LoRA of the recorded kind ----
write("ta.yaml", "per_device_train_batch_size: 4\nbf16: true\n")
write("model_args.json", '{"pretrained_model_name_or_path": "Qwen/Qwen2.5-0.5B", "dtype": "float32"}')
PEFT = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"], "bias": "none", "use_dora": False, "modules_to_save": None, "rank_pattern": {}, "layers_to_transform": None}
for more in ({}, {"use_dora": True}, {"modules_to_save": ["score"]}, {"layers_to_transform": [1]}, {"rank_pattern": {"q_proj": 64}}, {"bias": "all"}):
    write("adapter_config.json", json.dumps(dict(PEFT, **more)))
    code, j, err = check("adapter_config.json", "ta.yaml", "model_args.json", "--for", "hf", "--device", "4090", "--seq", "512", "--model", "qwen2.5-0.5b")
    ok(code == 0 and (j["fits"] is True if not more else j["fits"] is None and (list(more)[0] in j["fits_not_answered"] or "score" in str(more) and "score" in j["fits_not_answered"])), "an adapter with %s" % more, (code, j.get("fits"), j.get("fits_not_answered"), err))

# ---- checkpoints in host memory, and of every second layer: planned, written, read again ----
for words, key, said in ((("--offload", "activations", "--recompute", "full"), "offload", True), (("--recompute", "every:2"), "every_n_layers", 2)):
    code, j = plan("llama-3.2-1b", "--trainer", "hf", "--device", "h100", "--seq", "512", "--global-batch", "8", *words, "-o", "kept.json", "--force")[:2]
    code, out, err = call("emit", "kept.json", "--for", "hf", "-o", "kept", "--force")
    args = json.load(open("kept/training_args.json"))
    ok(code == 0 and args["gradient_checkpointing"] is True and args["gradient_checkpointing_kwargs"].get(key) == said, "gradient_checkpointing_kwargs: %s" % key, (args, err))
    code, back, err = check("kept/training_args.json", "kept/model_args.json", "--for", "hf", "--device", "h100", "--seq", "512", "--model", "llama-3.2-1b")
    ok(code == 0 and back["fits"] is True and all(back["common"][k] == j["common"][k] for k in ("recompute", "offload")), "read again: %s" % key, (code, back.get("common"), j.get("common"), back.get("fits_not_answered"), err))

# ---- whole modules beside adapters: planned, written, read again ----
taken = {}
for save in (None, "lm_head", "embed_tokens+lm_head"):
    words = "r=8,targets=all-linear" + ",save=%s" % save * bool(save)
    code, j = plan("llama-3.2-1b", "--trainer", "hf", "--qlora", "--lora", words, "--device", "4090", "--seq", "512", "--global-batch", "8", "--micro-batch", "8", "--recompute", "full", "-o", "saved.json", "--force")[:2]
    taken[save] = j["allocated_peak_bytes"]
    code, out, err = call("emit", "saved.json", "--for", "hf", "-o", "saved", "--force")
    said = json.load(open("saved/lora_config.json")).get("modules_to_save")
    ok(code == 0 and said == (save.split("+") if save else None), "modules_to_save of %s" % save, (said, err))
    code, j, err = check("saved/lora_config.json", "saved/training_args.json", "saved/model_args.json", "--for", "hf", "--device", "4090", "--seq", "512", "--model", "llama-3.2-1b")
    ok(code == 0 and j["fits"] is True and j["common"].get("lora_save", "none") == (save or "none"), "read again: %s" % save, (code, j.get("common"), j.get("fits_not_answered"), err))
# a trained copy of the head in fp32: itself, its gradient, two states; the table is a copy too, with its input frozen beside it
ok(taken["lm_head"] - taken[None] > 3 * 128256 * 2048 * 4 and taken["embed_tokens+lm_head"] - taken["lm_head"] > 3 * 128256 * 2048 * 4, "copies and their states", taken)

write("adapter_config.json", json.dumps(dict(PEFT, base_model_name_or_path="Qwen/Qwen2.5-0.5B")))
code, j, err = check("adapter_config.json", "ta.yaml", "--for", "hf", "--device", "4090", "--seq", "512", "--", "python", "train.py", "--bf16", "True")
ok("qwen2.5-0.5b" in err and "name no model" not in json.dumps(j), "saved adapters name their model", (code, j.get("fits_not_answered"), err))

# ---- evaluations between steps, and pairs: planned, written, read back; in the bytes of both ----
PAIRS = {"trl": "dpo.yaml", "axolotl": "axolotl.yaml", "llamafactory": "llamafactory.yaml", "ms-swift": "swift.args"}
for target, file in PAIRS.items():
    asked = ("--trainer", target, "--device", "4090", "--seq", "512", "--global-batch", "8", "--micro-batch", "2", "--recompute", "full")
    seen = {}
    for more in ((), ("--eval-batch", "16"), ("--method", "dpo"), ("--method", "dpo", "--eval-batch", "4")):
        code, j, err = plan("qwen2.5-0.5b", *asked, *more, "-o", "p.json", "--force")
        if not ok(code == 0, "%s %s" % (target, more), (code, err)):
            continue
        want = {"method": "dpo" if "dpo" in more else "sft", "eval_batch": {"16": 16, "4": 4}.get(more[-1] if more else "", "none")}
        ok({k: j["common"][k] for k in want} == want, "common says it", j["common"])
        seen[more] = j["device_bytes"]
        call("emit", "p.json", "--for", target, "-o", "p", "--force")
        written = "p/" + (file if "dpo" in more or target != "trl" else "sft.yaml")
        code, read, err = check(written, "--for", target, "--device", "4090", "--seq", "512", "--model", "qwen2.5-0.5b", "--world", "1")
        ok(code == 0 and {k: read["common"].get(k) for k in want} == want and read["device_bytes"] == j["device_bytes"] and not [f for f in read["findings"] if f["severity"] != "note"],
           "%s is read back, with its bytes" % written, (more, code, read.get("common"), read.get("device_bytes"), j["device_bytes"], read.get("findings"), err))
    ok(seen[()] <= seen[("--eval-batch", "16")] and seen[()] < seen[("--method", "dpo")], "evaluations take no less, pairs more", seen)
for more, want in ((("--method", "reward"), {"method": "reward"}), (("--method", "reward", "--lora", "r=8,targets=all-linear"), {"method": "reward", "lora_targets": "all-linear"}), (("--method", "grpo"), {"method": "grpo", "completion": 256, "generator": "model"}),
                   (("--method", "grpo", "--vllm", "--target-seq", "100", "--lora", "r=8"), {"method": "grpo", "completion": 100, "generator": "vllm"})):
    code, j, err = plan("qwen2.5-0.5b", "--trainer", "trl", "--device", "4090", "--seq", "512", "--global-batch", "12", *more, "-o", "p.json", "--force")
    if not ok(code == 0, "trl %s" % (more,), (code, err)):
        continue
    ok({k: j["common"].get(k) for k in want} == want, "common says it", j["common"])
    shutil.rmtree("p", ignore_errors=True)
    call("emit", "p.json", "--for", "trl", "-o", "p", "--force")
    written = "p/%s.yaml" % want["method"]
    text = open(written).read()
    ok(("lora_task_type: SEQ_CLS" in text) == (want["method"] == "reward" and "lora_targets" in want), "adapters of a head of classes", text)
    ok(want["method"] == "reward" or "num_generations: 6\n" in text and "max_length" not in text, "whole groups, and nothing that GRPOConfig has not", text)
    code, read, err = check(written, "--for", "trl", "--device", "4090", "--seq", "512", "--model", "qwen2.5-0.5b", "--world", "1")
    ok(code == 0 and {k: read["common"].get(k) for k in want} == want and read["device_bytes"] == j["device_bytes"] and not [f for f in read["findings"] if f["severity"] != "note"],
       "%s is read back, with its bytes" % written, (more, code, read.get("common"), read.get("device_bytes"), j["device_bytes"], read.get("findings"), err))
for words, why in (("--method", "grpo", "--global-batch", "11"), "whole groups"), (("--method", "grpo", "--global-batch", "1"), "whole groups"), (("--target-seq", "64", "--global-batch", "8"), "is for --method grpo"), (("--vllm", "--global-batch", "8"), "is for --method grpo"), \
                  (("--method", "grpo", "--target-seq", "512", "--global-batch", "8"), "the prompt has one"):
    code, _, err = plan("qwen2.5-0.5b", "--trainer", "trl", "--device", "4090", "--seq", "512", *words)
    ok(code == 2 and why in " ".join(err.split()), "%s" % (words,), (code, err))
for words in ("--target-seq", "64"), ("--vllm",):
    code, _, err = plan("gpt2", "--device", "4090", "--seq", "512", "--global-batch", "8", *words)
    ok(code == 2 and words[0] + " is for a plan with --trainer" in err, "not of vplan's own: %s" % words[0], (code, err))
for target, words, can in ("hf", ("--method", "grpo"), "these can: trl"), ("hf", ("--method", "dpo"), "these can: trl, axolotl, llamafactory, ms-swift"), ("litgpt", ("--eval-batch", "4"), "these can: hf, trl"):
    code, _, err = plan("llama-3.2-1b", "--trainer", target, "--device", "4090", "--seq", "512", "--global-batch", "8", *words)
    ok(code == 4 and can in " ".join(err.split()), "%s has no word for %s" % (target, words), (code, err))
code, _, err = plan("gpt2", "--device", "4090", "--seq", "512", "--global-batch", "8", "--eval-batch", "4")
ok(code == 2 and "--eval-batch is for a plan with --trainer" in err, "not of vplan's own", (code, err))
write("ax.yaml", "base_model: Qwen/Qwen2.5-0.5B\nmicro_batch_size: 2\nsequence_len: 512\nval_set_size: 0.1\n")
code, j, err = check("ax.yaml")
ok(j["common"]["eval_batch"] == 2, "axolotl evaluates as many at once as it trains", j["common"])
write("ax.yaml", "base_model: Qwen/Qwen2.5-0.5B\nmicro_batch_size: 2\nsequence_len: 512\nval_set_size: 0.0\neval_batch_size: 4\n")
code, j, err = check("ax.yaml")
ok(j["common"]["eval_batch"] == "none", "nothing to evaluate on", j["common"])

SHARES = ("phi-3-mini-4k", "--trainer", "torch", "--device", "3060", "--seq", "7", "--global-batch", "48", "--world", "8")
shared = plan(*SHARES)[1]
apart  = {p: plan(*SHARES, "--parallel", p)[1] for p in ("ddp", "fsdp", "fsdp2", "zero1", "zero2", "zero3")}
ok(shared["step_time_s"] == min(x["step_time_s"] for x in apart.values() if x["device_bytes"]) and apart["ddp"]["device_bytes"] is None, "a plain loop's cards share as any do", {p: x["step_time_s"] for p, x in apart.items()})
compared = {p: plan("llama-3.2-1b", "--trainer", "hf", "--device", "h100", "--seq", "512", "--global-batch", "32", "--world", "2", "--parallel", p)[1]["compared"] for p in ("ddp", "zero2", "fsdp2")}
ok(compared["ddp"] == compared["zero2"] < compared["fsdp2"], "when gradients are reduced is a choice where it changes what is held", compared)

# ---- gradients that FSDP's cards add up: whole until the last micro-batch, or reduced with each; whoever can be told the other way ----
EIGHT = ("--device", "h100", "--world", "8", "--parallel", "fsdp2", "--seq", "4096", "--global-batch", "64", "--micro-batch", "1")
files = {"hf": ("training_args.yaml", "accelerate.yaml"), "trl": ("sft.yaml", "accelerate.yaml"), "axolotl": ("axolotl.yaml",)}
for target, names in files.items():
    asked = ("--trainer", target, *EIGHT, "--budget", "68GiB")
    code, j, err = plan("llama-3.1-8b", *asked, "-o", "each.json", "--force")
    if not ok(code == 0 and j["common"]["gradient_sync"] == "each" and j["common"]["recompute"] == "none", "%s: what costs least is told first" % target, (code, j.get("common"), err)):
        continue
    call("emit", "each.json", "--for", target, "-o", "each", "--force")
    there = [os.path.join("each", n) for n in names if os.path.exists(os.path.join("each", n))]
    code, read, err = check(*there, "--for", target, "--device", "h100", "--seq", "4096", "--model", "llama-3.1-8b", "--world", "8")
    ok(code == 0 and read["common"]["gradient_sync"] == "each" and read["device_bytes"] == j["device_bytes"], target + " is read back, with its bytes", (code, read.get("common"), read.get("findings"), err))
    if target == "hf":
        text = open("each/training_args.yaml").read()
        write("each/whole.yaml", text.replace("sync_each_batch: true", "sync_each_batch: false"))
        code, whole, err = check("each/whole.yaml", "each/accelerate.yaml", "--for", target, "--device", "h100", "--seq", "4096", "--model", "llama-3.1-8b", "--budget", "68GiB")
        ok(code == 3 and whole["device_bytes"] - read["device_bytes"] > 8 << 30, "whole gradients", (code, whole["device_bytes"], read["device_bytes"]))
        ok(any(c["key"].endswith("sync_each_batch") and c["saves_bytes"] > 8 << 30 for c in whole["changes"]), "the line that it takes", whole["changes"])
        code, old, err = check("each/training_args.yaml", "--for", "hf", "--versions", "transformers=5.0")
        ok(any(f["key"].endswith("sync_each_batch") and "5.2" in f["message"] for f in old["findings"]), "Trainer did not look at it before 5.2", old["findings"])
code, _, err = plan("llama-3.1-8b", "--trainer", "ms-swift", *[w for w in EIGHT if w not in ("--parallel", "fsdp2")], "--sync-each-batch")
ok(code == 4 and "these can: hf, trl" in " ".join(err.split()), "who cannot be told", (code, err))

# ---- one card: DeepSpeed's, written and read again ----
ONE = ("--trainer", "hf", "--device", "4090", "--seq", "1024", "--global-batch", "1")
code, j, err = plan("llama-3.1-8b", *ONE, "--offload", "params", "-o", "one.json", "--force")
ok(code == 0 and j["common"]["parallel"] == "zero3" and j["common"]["world"] == 1 and j["step_time_s"] > 28 * 8.03e9 / 4e10, "8B, all of it, on one card", (code, j.get("common"), err))
call("emit", "one.json", "--for", "hf", "-o", "one", "--force")
code, read, err = check("one/training_args.yaml", "one/accelerate.yaml", "one/ds_config.json", "--for", "hf", "--device", "4090", "--seq", "1024", "--model", "llama-3.1-8b")
ok(code == 0 and read["common"]["parallel"] == "zero3" and read["device_bytes"] == j["device_bytes"], "read back, with its bytes", (code, read.get("common"), read.get("device_bytes"), j["device_bytes"], read.get("findings")))
code, j, err = plan("llama-3.1-8b", *ONE)
ok(code == 3 and [c for c in j["changes"] if "--offload params" in c["command"]], "it is proposed", (code, j["changes"]))
code, _, err = plan("llama-3.1-8b", *ONE, "--sync-each-batch")
ok(code == 2 and "--world N" in err, "one card reduces nothing", (code, err))
code, _, err = plan("llama-3.1-8b", *ONE, "--offload", "params", "--parallel", "fsdp2")
ok(code == 4 and "zero3 (params)" in " ".join(err.split()), "FSDP of one card is not known", (code, err))
for words, wanted in ((("--parallel", "zero3"), 4), (("--parallel", "fsdp2"), 4), (("--parallel", "zero1"), 4), (("--parallel", "ddp"), 2), (("--world", "2", "--parallel", "ddp", "--offload", "params"), 2)):
    code, _, err = plan("gpt2", "--trainer", "hf", "--device", "4090", "--seq", "1024", "--global-batch", "8", *words)
    asked, _, said = call("estimate", "gpt2", "--trainer", "hf", "--device", "4090", "--seq", "1024", "--micro-batch", "1", *words)
    ok(code == asked == wanted and err == said and words[-1] in err, "%s: refused as estimate refuses it" % " ".join(words), (code, err, said))
for words, says in ((("--parallel", "zero2"), "zero2,"), (("--offload", "optimizer"), "zero2, optimizer in host memory,"), (("--offload", "params"), "zero3, weights and optimizer in host memory,"),
                    (("--offload", "activations"), "checkpoints in host memory,"), (("--world", "2", "--parallel", "fsdp2", "--offload", "params"), "fsdp2, weights and optimizer in host memory,")):
    model = "llama-3.2-1b" if "activations" in words else "gpt2"
    code, out, err = call("plan", model, "--trainer", "hf", "--device", "h100", "--seq", "512", "--global-batch", "8", *words)
    ok(code == 0 and says in " ".join(out[out.index("\nplan "):out.index("\nmemory ")].split()), "%s: the plan's line says it" % " ".join(words), (code, out[:600], err))

# ---- the class that was asked for goes with the files to check ----
asked = ("bert-base-uncased", "--class", "BertForSequenceClassification", "--trainer", "hf", "--device", "t4", "--padding", "mask", "--seq", "256", "--global-batch", "64")
code, out, err = call("plan", *asked, "-o", "classes.json")
code, out, err = call("emit", "classes.json", "--for", "hf", "-o", "classes")
again = next_command(out.replace("\ncheck ", "\nnext  ").split("\nrun ")[0])
code, out, err = call(*again, "--json")
read, j = json.loads(out or "{}"), json.load(open("classes.json"))
ok("BertForSequenceClassification" in again and code == 0 and read["device_bytes"] == j["device_bytes"], "a classifier, written and read again", (again, code, read.get("device_bytes"), j["device_bytes"]))
code, out, err = call("plan", "gpt2", "--trainer", "hf", "--device", "t4", "--seq", "256", "--global-batch", "8", "-o", "classes.json", "--force")
ok("--class" not in call("emit", "classes.json", "--for", "hf", "-o", "classes", "--force")[1], "not the class that the config names", "")

# ---- SFTTrainer's adapters and DPOTrainer on several cards: by ddp, and what knows other ways ----
for words, said in ((("--qlora",), ("known by ddp", "--trainer hf knows more", "plan --trainer trl")), (("--method", "dpo", "--lora"), ("with adapters by ddp", "vplan dryrun --world 2 -- COMMAND")),
                    (("--method", "dpo"), ("with adapters by ddp", "vplan dryrun --world 2 -- COMMAND"))):
    code, _, err = call("estimate", "llama-3.2-1b", "--trainer", "trl", "--device", "h100", "--seq", "512", "--micro-batch", "1", "--world", "2", "--parallel", "fsdp2", *words)
    ok(code == 4 and all(w in " ".join(err.split()) for w in said), "estimate of %s on two cards" % " ".join(words), (code, err))
    code, j, err = plan("llama-3.2-1b", "--trainer", "trl", "--device", "h100", "--seq", "512", "--global-batch", "8", "--world", "2", *words)
    ok(code == (4 if words == ("--method", "dpo") else 0) and (code == 0 or said[1] in " ".join(err.split())), "and the plan", (code, err))

# ---- a precision that nobody gave is not blamed on them ----
T4 = ("--trainer", "trl", "--device", "t4", "--seq", "512")
for words in ("plan", "llama-3.2-1b", *T4, "--global-batch", "4", "--qlora"), ("estimate", "llama-3.2-1b", *T4, "--micro-batch", "1", "--qlora"):
    code, _, err = call(*words)
    ok(code == 4 and "vplan: --precision is not given, and bf16-amp, the default for this card, does not run here" in err, "%s: it is the default" % words[0], (code, err))
    code, _, err = call(*words, "--precision", "bf16-amp")
    ok(code == 4 and "vplan: --precision bf16-amp does not run here" in err and "not given" not in err, "%s: it was given" % words[0], (code, err))
# ---- nor does nothing fit because of it: where the first precision was recorded with fewer ways to share, another is taken ----
words = ("plan", "pythia-1b", "--trainer", "hf", "--world", "4", "--device", "4070", "--seq", "512", "--global-batch", "16", "--json")
code, out, err = call(*words)
free = json.loads(out)
shared = [json.loads(call(*words, "--parallel", p)[1]) for p in ("ddp", "fsdp", "fsdp2", "zero1", "zero2", "zero3")]
fits = [j for j in shared if j["step_time_s"] is not None]
ok(code == 0 and fits and all(free["step_time_s"] <= j["step_time_s"] for j in fits), "no way of sharing that is pinned fits where the free plan does not, or is faster", (code, free["settings"], [j["step_time_s"] for j in fits]))
ok(shared[0]["step_time_s"] is None and any("--precision not given: " in x and "nothing fits" in x for x in free["assumptions"]), "and why another precision is said", free["assumptions"])
same = json.loads(call(*words, "--precision", free["common"]["precision"])[1])
ok(same["settings"] == free["settings"] and same["interval"] == free["interval"] and not free["changes"], "as if it had been asked for", (same["settings"], free["settings"], free["changes"]))

# ---- a row that is longer than its column goes on in the next line, and says all ----
code, out, err = call("plan", "qwen2.5-1.5b", "--trainer", "hf", "--device", "t4", "--seq", "2048", "--global-batch", "64", "--world", "2", "--parallel", "fsdp2", "-o", "long.json", "--force")
rows = re.search(r"^nearest: .*\n((?:  .*\n)+)", out, re.M)
ok(rows and re.search(r"^  \d+ x \d+, [^\n]*,\n     ?\w[\w ]*(?: \d[\d,.]* [KMG]?iB)", rows.group(1), re.M) and all(len(l) <= 80 for l in rows.group(1).split("\n")), "nearest, in two lines", (code, out, err))

# ---- Liger's kernels: asked for; proposed where they make it fit, and where they make it faster ----
LONG = ("--qlora", "--device", "4090", "--seq", "8192", "--global-batch", "8")
wide = LONG[:2] + ("h200",) + LONG[3:]
for target, files, key in (("hf", ("training_args.yaml", "model_args.json", "lora_config.json"), "use_liger_kernel"), ("axolotl", ("axolotl.yaml",), "liger_fused_linear_cross_entropy"),
                           ("llamafactory", ("llamafactory.yaml",), "enable_liger_kernel"), ("ms-swift", None, "use_liger_kernel")):
    code, j, err = plan("llama-3.1-8b", "--trainer", target, *LONG)
    liger = [c for c in j["changes"] if "--liger" in c["command"].split()]
    if not ok(code == 3 and len(liger) == 1, target + ": Liger's kernels are among the changes", (code, j.get("changes"), err)):
        continue
    code, out, err = call(*liger[0]["command"].split()[1:], "-o", "liger.json", "--force", "--json")
    j = json.loads(out)
    ok(code == 0 and j["common"]["loss"] == "liger-all" and j["interval"]["high_bytes"] == liger[0]["needs_bytes"], target + ": and it fits with them", (code, j.get("common"), err))
    call("emit", "liger.json", "--for", target, "-o", "liger-" + target, "--force")
    there = [os.path.join("liger-" + target, n) for n in sorted(os.listdir("liger-" + target)) if n != "README.md" and not n.endswith(".py") and (not files or n in files)]
    code, read, err = check(*there, "--for", target, "--device", "4090", "--seq", "8192", "--model", "llama-3.1-8b")
    ok(code == 0 and read["common"]["loss"] == "liger-all" and read["device_bytes"] == j["device_bytes"], target + ": read back, with its bytes", (code, read.get("common"), read.get("device_bytes"), j["device_bytes"], err))
    call("plan", "llama-3.1-8b", "--trainer", target, *LONG[:1], "--device", "h200", *LONG[3:], "--loss", "full", "--micro-batch", "1", "-o", "whole.json", "--force")
    call("emit", "whole.json", "--for", target, "-o", "whole-" + target, "--force")
    there = [f.replace("liger-", "whole-", 1) for f in there]
    code, read, err = check(*there, "--for", target, "--device", "4090", "--seq", "8192", "--model", "llama-3.1-8b")
    ok(code == 3 and any(c["key"].endswith(key) and c["to"] == "true" for c in read["changes"]) and any(c["saves_bytes"] > 8 << 30 for c in read["changes"]), target + ": the lines that switch them on", (code, read.get("changes"), err))
    code, out, err = call("check", *there, "--for", target, "--device", "4090", "--seq", "8192", "--model", "llama-3.1-8b")
    ok(code == 3 and "\ninstall    liger-kernel" in out, target + ": which takes an installation", out)
ALONE = ("--qlora", "--device", "h200", "--seq", "2048")
code, j, err = plan("qwen2.5-7b", "--trainer", "hf", *ALONE, "--global-batch", "4", "--micro-batch", "2", "--recompute", "full", "--liger")
estimated = json.loads(call("estimate", "qwen2.5-7b", "--trainer", "hf", *ALONE, "--micro-batch", "2", "--accumulation", "2", "--recompute", "full", "--liger", "--json")[1])
ok(code == 0 and abs(j["reserved_peak_bytes"] - estimated["reserved_peak_bytes"]) <= 4 << 20, "as estimate --liger has it", (code, j.get("reserved_peak_bytes"), estimated["reserved_peak_bytes"], err))
words = ("qwen2.5-7b", "--trainer", "hf", "--qlora", "--device", "4090", "--seq", "2048", "--global-batch", "16")
code, j, err = plan(*words)
f = j["faster"]
ok(code == 0 and f and f["step_time_s"] < 0.99 * j["step_time_s"] and j["common"]["loss"] == "full", "faster with what is to be installed", (code, f, err))
code, out, err = call(*f["command"].split()[1:], "--json")
with_it = json.loads(out)
ok(code == 0 and with_it["step_time_s"] == f["step_time_s"] and with_it["common"] == f["common"] and not with_it["faster"], "the command that says so", (code, with_it.get("common"), f))
open_ = plan(*words, "--loss", "any")[1]
ok(open_["step_time_s"] == f["step_time_s"] and open_["compared"] > j["compared"], "any loss: the same, compared with all others", (open_["step_time_s"], open_["compared"]))
ok("\nfaster     --liger: " in call("plan", *words)[1], "for people too")
# what was loaded before is taken over whole: also where Liger's loss makes a gradient that is none of backward's
TWO = ("llama-3.2-1b", "--trainer", "hf", "--device", "h100", "--seq", "512", "--global-batch", "32", "--world", "2", "--parallel", "ddp", "--liger", "--micro-batch", "16")
takes = [plan(*TWO, *more)[1]["device_bytes"] for more in ((), ("--recompute", "none"))]
alone = json.loads(call("estimate", *TWO[:7], *TWO[9:], "--recompute", "none", "--json")[1])["device_bytes"]
ok(takes == [alone, alone], "DDP with Liger's kernels: as a plan has it, as a pinned one, as an estimate", (takes, alone))
for more, want, text in ((("--trainer", "torch", "--liger"), 4, "no switch for Liger's kernels"), (("--trainer", "trl", "--liger"), 4, "its words here: chunked"), (("--trainer", "hf", "--loss", "full", "--liger"), 2, "beside --liger"),
                         (("--liger",), 2, "--liger is for a plan with --trainer")):
    code, _, err = call("plan", "llama-3.2-1b", *more, "--device", "h200", "--seq", "1024", "--global-batch", "4")
    ok(code == want and text in " ".join(err.split()), "refused: " + " ".join(more), (code, err))
for more, words in (((), ["--qlora", "--liger"]), (("--lora", "r=16,targets=all-linear"), ["--liger"])):
    code, j, err = plan("llama-3.1-8b", "--trainer", "hf", *more, *LONG[1:])
    commands = [c["command"] for c in j["changes"] if "--liger" in c["command"].split()]
    ok(code == 3 and commands and all(w in commands[0].split() for w in words), "with adapters, and over NF4, where less does not do: " + " ".join(more), (code, j["changes"]))
    for command in commands:
        ok(call(*command.split()[1:])[0] == 0, "and it fits: " + command)
code, j, err = plan("gpt2", "--trainer", "hf", "--device", "4090", "--seq", "1024", "--global-batch", "8")
ok(code == 0 and j["faster"] is None, "Liger has nothing for GPT-2", (code, j.get("faster"), err))

# ---- who prepares quantised weights: the bytes are estimate's; a script that does not is planned as it is, and edited; train.py does what is asked, as Python runs it ----
SCRIPT = """import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
m = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", dtype=torch.bfloat16, quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True))
%sm = get_peft_model(m, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear"))
Trainer(model=m, args=TrainingArguments("o", per_device_train_batch_size=32, bf16=True, optim="adamw_torch_fused")).train()
"""
STANDS_IN = """import sys
from unittest.mock import MagicMock
for name in "torch", "torch.utils", "torch.utils.data", "transformers", "transformers.modeling_layers", "peft":
    sys.modules[name] = MagicMock()
sys.modules["torch"].utils.data.Dataset = object
sys.modules["transformers"].HfArgumentParser.return_value.parse_json_file.return_value = (MagicMock(eval_strategy="no"),)
import runpy
runpy.run_path(sys.argv[1])
loaded = sys.modules["transformers"].AutoModelForCausalLM.from_pretrained.call_args
print(sys.modules["peft"].prepare_model_for_kbit_training.call_count, sorted(loaded.kwargs))
"""
open("stands_in.py", "w").write(STANDS_IN)
QLORA = ("qwen2.5-0.5b", "--device", "4090", "--seq", "2048")
for prepare, calls in (("on", "m = prepare_model_for_kbit_training(m, use_gradient_checkpointing=False)\n"), ("off", "")):
    code, j, err = plan(*QLORA, "--trainer", "hf", "--global-batch", "32", "--qlora", "--prepare", prepare, "-o", "prepared.json", "--force")
    c = j["common"]
    e = json.loads(call("estimate", *QLORA, "--trainer", "hf", "--qlora", "--prepare", prepare, "--micro-batch", str(c["micro_batch"]), "--accumulation", str(c["accumulation"]), "--recompute", c["recompute"],
                        "--precision", c["precision"], "--optimizer", c["optimizer"], "--json")[1])
    ok(code == 0 and c["prepare"] == prepare and j["device_bytes"] == e["device_bytes"], "--prepare %s: bytes are estimate's" % prepare, (code, c, j["device_bytes"], e.get("device_bytes"), err))
    if prepare == "off":
        ok(j["device_bytes"] < prepared, "not prepared it takes less", (j["device_bytes"], prepared))
    prepared = j["device_bytes"]
    code, _, err = call("emit", "prepared.json", "--for", "hf", "-o", "prepared", "--force")
    p = subprocess.run((sys.executable, "stands_in.py", "prepared/train.py"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    ok(code == 0 and p.stdout.decode().split(None, 1) == ["1" if prepare == "on" else "0", "['attn_implementation', 'dtype', 'quantization_config']\n"], "train.py, run: prepared " + prepare, (p.stdout, p.stderr[-300:]))
    read = json.loads(call("check", *["prepared/" + f for f in ("training_args.json", "model_args.json", "lora_config.json")], "--model", "qwen2.5-0.5b", "--device", "4090", "--json")[1])
    ok(read["common"]["prepare"] == prepare and read["device_bytes"] == j["device_bytes"], "read back: prepared " + prepare, (read["common"], read["device_bytes"], read["findings"]))
    open("script.py", "w").write(SCRIPT % calls)
    code, out, err = call("check", "script.py", "--device", "4090", "--seq", "2048")
    typed = [t.split() for t in out.replace("\\\n", " ").split("next ")[-1].split("vplan ")[1:]]
    ok(code == 3 and [t[0] for t in typed] == ["plan", "emit"] and typed[0][typed[0].index("--prepare") + 1] == prepare, "a script that is prepared %s gets its next lines" % prepare, (code, out[-900:], err))
    for words in typed:
        code, _, err = call(*words, "--force")
        ok(code == 0, "and they run: " + words[0], (code, err))
    read = json.loads(call("check", "script.py", "--device", "4090", "--seq", "2048", "--json")[1])
    ok(read["fits"] and read["common"]["prepare"] == prepare, "and what they leave fits", (read["fits"], read["common"]))
    other = json.load(open("settings.json"))
    other["common"]["prepare"] = "off" if prepare == "on" else "on"
    json.dump(other, open("other.json", "w"))
    code, _, err = call("emit", "other.json", "--for", "hf", "--edit", "script.py", "--force")
    ok(code == 4 and "no word for prepare" in err, "what the script calls no key changes", (code, err))
for words, want, text in ((("--trainer", "hf", "--prepare", "on"), 2, "--qlora"), (("--trainer", "hf", "--qlora", "--prepare", "yes"), 2, "on or off"), (("--prepare", "on"), 2, "for a plan with --trainer"),
                          (("--trainer", "axolotl", "--qlora", "--prepare", "on"), 4, "these can: hf"), (("--trainer", "trl", "--qlora", "--prepare", "on"), 0, "")):
    code, _, err = call("plan", *QLORA, "--global-batch", "8", *words)
    ok(code == want and text in err, "--prepare: " + " ".join(words), (code, err))
# a call that switches checkpoints on stays: no line of the script turns them off again
open("script.py", "w").write(SCRIPT % "m = prepare_model_for_kbit_training(m)\n")
code, out, err = call("check", "script.py", "--device", "4090", "--seq", "2048")
typed = [t.split() for t in out.replace("\\\n", " ").split("next ")[-1].split("vplan ")[1:]]
promised = out[out.index("with all of them "):].split(" GiB")[0].split()[-1]
ok(code == 3 and "gradient_checkpointing" not in out[out.index("lines to change"):out.index("assumed")] and len(typed) == 2, "checkpoints by a call", (code, out))
ok([call(*t, "--force")[0] for t in typed] == [0, 0] and call("check", "script.py", "--device", "4090", "--seq", "2048")[1].split("FITS: ")[-1].startswith(promised), "are as many bytes as was promised", promised)

finish()
P
