#!/bin/bash
# tests/test_trainer_estimate.sh: `vplan estimate --trainer torch` against whole training steps that PyTorch's own allocator counted
# (tests/golden/trainers/steps.csv and drawn_steps.csv), its JSON, and what it refuses. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
python3 - "${BUILD:-build}" <<'P'
import csv, json, os, resource, subprocess, sys, tempfile

sys.path[:0] = ["tests", "tests/oracles"]
from check import finish, ok

vplan = os.path.join(sys.argv[1], "vplan")
os.environ["VPLAN_NULL_ADDRESSES"] = "rising"         # as most rows were played
scratch = tempfile.mkdtemp()
PHASES = ["load"] + ["%s%d" % (n, i) for i in (1, 2) for n in ("forward", "backward", "step")]


def estimate(config, *options):
    path = os.path.join(scratch, "config.json")
    json.dump(config, open(path, "w"))
    p = subprocess.run([vplan, "estimate", path, *([] if "--trainer" in options else ["--trainer", "torch"]), "--json", *options], stdout=subprocess.PIPE)
    return p.returncode, json.loads(p.stdout)


def refused(what, config, options, code, words):
    rc, j = estimate(config, *options)
    message = j.get("error", {}).get("message", "")
    ok(rc == code and all(w in message for w in words), what, "%d %s" % (rc, message))


# ---- rows ----
allocated, reserved = [], []
rows = list(csv.DictReader(line for line in open("tests/golden/trainers/steps.csv") if not line.startswith("#")))
ok(len(rows) >= 20, "rows", len(rows))
for r in rows:
    name = " ".join(r[k] for k in ("model", "precision", "attention", "recompute", "optimizer", "micro_batch", "seq"))
    rc, j = estimate(json.loads(r["config"]), "--precision", r["precision"], "--attention", r["attention"], "--recompute",
                     r["recompute"], "--optimizer", r["optimizer"], "--micro-batch", r["micro_batch"], "--seq", r["seq"])
    if not ok(rc == 0, name, j.get("error")):
        continue
    phases = {p["name"]: p for p in j["phases"]}
    for p in phases.values():
        ok(sum(i["bytes"] for i in p["items"]) == p["allocated_bytes"], "%s: items of %s sum to it" % (name, p["name"]))
    ok(sum(i["bytes"] for i in j["items"]) == j["peak_bytes"] == j["allocated_peak_bytes"], "%s: items sum to the peak" % name)
    ok(phases["load"]["allocated_bytes"] == int(r["allocated_load"]), "%s: loading is exact" % name, phases["load"])
    worst = max(int(r["allocated_" + p]) for p in PHASES)
    allocated.append(abs(j["allocated_peak_bytes"] - worst) / worst)
    reserved.append(abs(j["reserved_peak_bytes"] - int(r["reserved"])) / int(r["reserved"]))
    ok(allocated[-1] <= 0.003, "%s: allocated" % name, "%+.4f %%" % (100 * (j["allocated_peak_bytes"] / worst - 1)))
    ok(reserved[-1] <= 0.02, "%s: reserved" % name, "%+.4f %%" % (100 * (j["reserved_peak_bytes"] / int(r["reserved"]) - 1)))
    for p in PHASES:
        there = int(r["allocated_" + p])
        ok(abs(phases[p]["allocated_bytes"] - there) <= 0.006 * there, "%s: %s" % (name, p), "%d for %d"
           % (phases[p]["allocated_bytes"], there))
middle = len(allocated) // 2
ok(sorted(allocated)[middle] <= 0.0001, "half of the rows are within a ten-thousandth", sorted(allocated))
ok(sorted(reserved)[middle] <= 0.005, "half of the rows' reserved bytes are within 0.5 %", sorted(reserved))

# ---- drawn rows: models, precisions, masks, optimizers and shapes by chance ----
import estimate_rows
path = "tests/golden/trainers/drawn_steps.csv"
drawn = [(row, estimate_rows.estimate(vplan, row)) for row in estimate_rows.read(path, scratch)]
for row, errors in drawn:
    name = " ".join([row["name"]] + row["options"])
    if ok(not isinstance(errors, str), name, errors):
        ok(abs(errors["peak"]) <= 0.003 and abs(errors["reserved"]) <= 0.01 and abs(errors["load"]) <= 1e-6, name, errors)
ok(len(drawn) >= 200 and len({row["name"] for row, _ in drawn}) >= 25, "rows and models", len(drawn))
for key, half, most in (("peak", 0, 0.001), ("reserved", 0, 0.001)):
    size = sorted(abs(errors[key]) for _, errors in drawn if not isinstance(errors, str))
    ok(size[len(size) // 2] <= half and size[len(size) * 95 // 100] <= most, "half of the drawn rows' %s, and 95 in 100" % key, size[-20:])

# ---- a card without flash attention: memory-efficient attention, or math where heads are grouped and nothing is masked ----
older = [(row, estimate_rows.estimate(vplan, row)) for row in estimate_rows.read("tests/golden/trainers/older_steps.csv", scratch)]
for row, errors in older:
    name = " ".join([row["name"], row["trainer"]] + row["options"])
    if ok(not isinstance(errors, str), name, errors):
        ok(abs(errors["peak"]) <= 0.001 and abs(errors["reserved"]) <= 0.01 and abs(errors["load"]) <= 1e-6, name, errors)
ok(len(older) >= 40 and sum("fp16" in " ".join(row["options"]) for row, _ in older) >= 25, "rows of a T4", len(older))
for name, card, flags, attention in (("llama-3.2-1b", "t4", "fp16", "math"), ("llama-2-7b", "t4", "fp16", "efficient"),
                                     ("llama-3.2-1b", "l4", "fp32", "math"), ("llama-2-7b", "l4", "fp32", "efficient"),
                                     ("llama-3.2-1b", "l4", "fp32 --padding mask", "efficient"),
                                     ("llama-3.2-1b", "l4", "bf16-mixed --padding mask", "efficient"),
                                     ("llama-3.2-1b", "l4", "fp32 --attention eager", "eager"), ("llama-3.2-1b", "l4", "bf16-mixed", "flash")):
    p = subprocess.run([vplan, "estimate", name, "--trainer", "torch", "--seq", "512", "--device", card, "--precision"] + flags.split(),
                       stdout=subprocess.PIPE, text=True)
    ok("attention " + ("" if attention == "eager" else "sdpa:") + attention + "," in " ".join(p.stdout.split()),
       "what runs is said: %s, %s on %s" % (attention, flags, card), p.stdout)

# ---- a family that transformers has no sdpa of runs eager attention unasked ----
neo = dict(model_type="gpt_neo", hidden_size=64, num_layers=2, num_heads=4, vocab_size=500, max_position_embeddings=128, window_size=128,
           attention_types=[[["global", "local"], 1]])
for precision in ("fp32", "bf16-mixed", "bf16"):
    unasked, asked = [estimate(neo, "--seq", "64", "--precision", precision, *o)[1] for o in ([], ["--attention", "eager"])]
    ok(unasked["phases"] == asked["phases"], "gpt_neo in %s: eager is what runs" % precision, [p["allocated_bytes"] for p in unasked["phases"]])
ok(any("no sdpa for gpt_neo" in a for a in unasked["assumptions"]), "and that is said", unasked["assumptions"])

# ---- drawn rows of Trainer and of adapters: its own step with clipping, LoRA and QLoRA, optimizers of bitsandbytes ----
adapted = [(row, estimate_rows.estimate(vplan, row)) for row in estimate_rows.read("tests/golden/trainers/adapted_steps.csv", scratch)]
for row, errors in adapted:
    name = " ".join([row["name"], row["trainer"]] + row["options"])
    if ok(not isinstance(errors, str), name, errors):
        ok(abs(errors["peak"]) <= 0.001 and abs(errors["reserved"]) <= 0.005 and abs(errors["load"]) <= 1e-6, name, errors)
text = [" ".join([row["trainer"]] + row["options"]) for row, _ in adapted]
for words in ("hf ", "torch ", "targets=all-linear", "--load nf4", "8bit", "adagrad"):
    ok(any(words in x for x in text), "rows: %s" % words)

# ---- drawn rows of families that were recorded later, of TRL's SFTTrainer, and of a seed that nothing was looked at with ----
for path, least, models in (("family_steps.csv", 89, 18), ("trl_steps.csv", 76, 15), ("challenge_steps.csv", 18, 8), ("eval_steps.csv", 39, 15), ("liger_steps.csv", 17, 6), ("adapted_liger_steps.csv", 19, 6), ("dpo_steps.csv", 8, 4), ("judged_steps.csv", 51, 17), ("grpo_steps.csv", 35, 7), ("decoder_steps.csv", 114, 19), ("packed_steps.csv", 4, 2), ("int8_steps.csv", 2, 1), ("feature_steps.csv", 15, 4), ("dropout_steps.csv", 33, 14), ("beside_steps.csv", 18, 5), ("flash2_steps.csv", 19, 11), ("checkpoint_steps.csv", 8, 3), ("parted_steps.csv", 24, 10), ("reentrant_steps.csv", 28, 12), ("fallen_steps.csv", 60, 25), ("mixed_steps.csv", 127, 25), ("head_steps.csv", 54, 15), ("efficient_steps.csv", 16, 7), ("wide_steps.csv", 7, 1), ("t5_steps.csv", 38, 2), ("optimizer_steps.csv", 24, 7), ("matrix_steps.csv", 36, 9), ("fused_steps.csv", 17, 5), ("narrow_steps.csv", 16, 8), ("peft_steps.csv", 60, 10), ("frozen_steps.csv", 30, 10), ("allocator_steps.csv", 24, 8), ("later_steps.csv", 21, 8), ("windowed_steps.csv", 20, 5), ("again_steps.csv", 49, 17), ("asked_steps.csv", 126, 26), ("versions_steps.csv", 62, 15), ("prepared_steps.csv", 28, 14), ("filled_steps.csv", 62, 18), ("gemma4_steps.csv", 25, 3), ("common_steps.csv", 159, 38), ("encoder_steps.csv", 47, 20), ("encoder_adapted_steps.csv", 81, 28), ("encoder_eval_steps.csv", 3, 2)):
    more = [(row, estimate_rows.estimate(vplan, row)) for row in estimate_rows.read("tests/golden/trainers/" + path, scratch)]
    ok(len(more) >= least and len({row["name"] for row, _ in more}) >= models, "rows of %s" % path, len(more))
    for row, errors in more:
        name = " ".join([row["name"], row["trainer"]] + row["options"])
        if ok(not isinstance(errors, str), name, errors):
            known = path == "fallen_steps.csv" and row["name"] == "qwen2.5-0.5b" and "r=32,targets=all-linear" in row["options"] and "nf4" in row["options"]         # 17 KB; why is not known
            # 384 tokens: for so few bitsandbytes multiplies by the packed weights of a small model, and makes none of 16 bits; a segment of 20 MiB is said too many
            fused = path == "prepared_steps.csv" and row["name"] == "smollm2-360m" and "adamw_8bit" in row["options"] and "r=64,targets=all-linear" in row["options"]
            # Adafactor keeps rows and columns of a convolution by its last two sizes, 16 x 16 here; they are taken as the model's width
            if path == "mixed_steps.csv" and row["name"] == "vit-base-patch16-224" and "adafactor" in row["options"]:
                ok(0.003 < abs(errors["peak"]) <= 0.004 and abs(errors["reserved"]) <= 0.001, name, errors)
                continue
            # whole, without checkpoints, 3,072 tokens: 1.6 % of the reserved bytes are said too many; why is not known
            spare = path == "common_steps.csv" and row["name"] == "gpt-oss-20b" and row["trainer"] == "trl" and "1536" in row["options"] and "--lora" not in row["options"]
            ok(abs(errors["peak"]) <= 0.001 and (abs(errors["reserved"]) <= 0.006) != (fused or spare) and abs(errors["reserved"]) <= 0.026 and (abs(errors["load"]) <= 1e-6) != known, name, errors)
            ok(abs(errors.get("evaluate", 0)) <= 0.0001, name + ": evaluation", errors)

# ---- SFTTrainer on a T4 ----
older = [(row, estimate_rows.estimate(vplan, row)) for row in estimate_rows.read("tests/golden/trainers/older_trl_steps.csv", scratch)]
for row, errors in older:
    name = " ".join([row["name"], row["trainer"]] + row["options"])
    if ok(not isinstance(errors, str), name, errors):
        ok(abs(errors["peak"]) <= 1e-5 and abs(errors["reserved"]) <= 0.001 and abs(errors["load"]) <= 4e-6, name, errors)
ok(len(older) >= 14 and len({row["name"] for row, _ in older}) >= 8, "rows of TRL on a T4", len(older))

# ---- not recorded with these settings: put together, and said so ----
composed = [(row, estimate_rows.estimate(vplan, row)) for row in estimate_rows.read("tests/golden/trainers/composed_steps.csv", scratch)]
for row, errors in composed:
    ok(not isinstance(errors, str), "put together: " + " ".join([row["name"], row["trainer"]] + row["options"]), errors)
answered = [errors for _, errors in composed if not isinstance(errors, str)]
within = {key: sum(abs(e[key]) <= most for e in answered) / len(answered) for key, most in (("peak", 0.03), ("reserved", 0.10))}
ok(len(answered) >= 170 and len({row["name"] for row, _ in composed}) >= 22, "rows put together", len(answered))
ok(within["peak"] >= 0.95 and within["reserved"] >= 0.95, "put together: 95 of 100 within 3 % of the allocated peak and the 10 % of reserved bytes that the answer says", within)
newer = [(row, estimate_rows.estimate(vplan, row)) for row in estimate_rows.read("tests/golden/trainers/composed_versions_steps.csv", scratch)]
for row, errors in newer:
    name = "put together, of a newer release: " + " ".join([row["name"], row["trainer"]] + row["options"])
    if ok(not isinstance(errors, str), name, errors):
        ok(abs(errors["peak"]) <= 0.012 and abs(errors["reserved"]) <= 0.035, name, errors)
ok(len(newer) >= 62 and len({row["name"] for row, _ in newer}) >= 24, "rows of a newer release", len(newer))
ok(sum(abs(e["peak"]) <= 0.001 for e in answered) > len(answered) / 2, "put together: most are within 0.1 %", sorted(abs(e["peak"]) for e in answered)[len(answered) // 2])
words = "granite-3.3-2b --trainer trl --precision bf16-amp --attention eager --padding mask --lora r=16,targets=all-linear --micro-batch 2 --seq 512 --recompute full".split()
p = subprocess.run([vplan, "estimate", *words, "--json"], stdout=subprocess.PIPE)
j = json.loads(p.stdout)
ok(p.returncode == 0 and any("put together" in a and "attention" in a for a in j["assumptions"]) and j["class"] == "assumed" and {i["class"] for x in j["phases"] for i in x["items"]} == {"assumed"},
   "put together: its numbers are assumed", j)
ok(all(sum(i["bytes"] for i in x["items"]) == x["allocated_bytes"] <= x["reserved_bytes"] and min(i["bytes"] for i in x["items"]) > 0 for x in j["phases"]) and
   max(x["reserved_bytes"] for x in j["phases"] if x["name"] != "resume") == j["reserved_peak_bytes"] and
   max(x["allocated_bytes"] for x in j["phases"] if x["name"] != "resume") == j["allocated_peak_bytes"], "put together: owners sum to each phase's peak", j["phases"])
ok(j["interval"]["low_bytes"] < 0.91 * j["reserved_peak_bytes"] + (j["device_bytes"] - j["reserved_peak_bytes"]) and j["interval"]["high_bytes"] >= j["device_bytes"] + 0.0999 * j["reserved_peak_bytes"], "put together: its interval", j["interval"])
p = subprocess.run([vplan, "estimate", "gemma-3-1b", "--trainer", "trl", "--seq", "504", "--precision", "bf16", "--micro-batch", "8", "--recompute", "full", "--json"], stdout=subprocess.PIPE)
ok(p.returncode == 0 and json.loads(p.stdout)["peak_phase"] != "resume", "put together: the peak is of the run itself", p.stdout[:300])
for what, words in (("a trainer's loss beside layers of two products", "pythia-1b --trainer trl --precision bf16"), ("a reference of another family", "starcoder2-3b --trainer trl --method dpo --precision bf16-mixed"),
                    ("a mask beside a window's", "phi-3-mini-4k --trainer hf --seq 4000 --padding mask --lora r=8,targets=all-linear,dropout=0.1 --attention eager --precision fp32"),
                    ("norms behind blocks", "olmo-2-1b --trainer trl --precision bf16"), ("a tower", "gemma-3-4b --trainer hf --precision bf16 --attention eager --recompute full")):
    p = subprocess.run([vplan, "estimate", *words.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ok(p.returncode == 4 and "was recorded" in p.stderr, "nothing is put together of " + what, p.stdout[:200] or p.stderr)
for what, more in (("several cards", "--world 2 --parallel fsdp2 --trainer hf --attention eager --recompute none --padding mask --precision bf16-mixed --load nf4"), ("dropout beside experts' adapters", "")):
    p = subprocess.run([vplan, "estimate", *(["granite-3.3-2b", "--lora", "r=8,targets=all-linear", *more.split()] if more else "mixtral-8x7b --trainer hf --lora r=8,targets=all-linear,dropout=0.1".split())],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ok(p.returncode == 4, "nothing is put together of " + what, p.stderr)

# ---- SFTTrainer adds a loss on routers, unless its weight is 0: of experts on one card ----
oss = dict(model_type="gpt_oss", architectures=["GptOssForCausalLM"], hidden_size=256, intermediate_size=256, head_dim=64, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=4,
           num_local_experts=8, num_experts_per_tok=2, vocab_size=1000, max_position_embeddings=4096, sliding_window=128, layer_types=["sliding_attention", "full_attention"] * 2,
           tie_word_embeddings=False, router_aux_loss_coef=0.9)
path = os.path.join(scratch, "oss.json")
for what, weight, words, code, answer in (("by TRL", 0.9, "--trainer trl", 0, "loss on routers"), ("whose loss weighs nothing", 0, "--trainer trl", 4, "router_aux_loss_coef"),
                                        ("by Trainer, which has no such loss", 0, "--trainer hf", 0, "interval"), ("on two cards", 0.9, "--trainer trl --world 2 --parallel ddp", 4, "several cards")):
    with open(path, "w") as f:
        json.dump(dict(oss, router_aux_loss_coef=weight), f)
    p = subprocess.run([vplan, "estimate", path, "--precision", "bf16-amp", "--lora", "r=8,targets=all-linear", "--seq", "256", "--micro-batch", "2"] + words.split(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    ok(p.returncode == code and answer in " ".join(p.stdout.split()), "experts %s" % what, (p.returncode, p.stdout[-300:]))

# ---- adapters of experts, whole models at and beyond the window ----
recent = [(row, estimate_rows.estimate(vplan, row)) for row in estimate_rows.read("tests/golden/trainers/recent_steps.csv", scratch)]
for row, errors in recent:
    name = " ".join([row["name"], row["trainer"]] + row["options"])
    if ok(not isinstance(errors, str), name, errors):
        ok(abs(errors["peak"]) <= 0.0004 and abs(errors["reserved"]) <= 0.001 and abs(errors["load"]) <= 1e-6, name, errors)
ok(len(recent) >= 13 and len({row["name"] for row, _ in recent}) >= 7, "rows recorded last", len(recent))

# ---- the allocator: told, advised where it is enough, refused where it is none of PyTorch's ----
QWEN = ("estimate", "qwen2.5-1.5b", "--trainer", "hf", "--device", "h200", "--seq", "1024", "--micro-batch", "8", "--json")
EXPANDABLE = "expandable_segments:True"
def said(*words):
    p = subprocess.run((vplan,) + words, stdout=subprocess.PIPE)
    return p.returncode, json.loads(p.stdout)
_, whole = said(*QWEN)
_, less = said(*QWEN, "--alloc-conf", EXPANDABLE)
ok(less["settings"]["alloc_conf"] == EXPANDABLE and less["reserved_peak_bytes"] < 0.97 * whole["reserved_peak_bytes"], "segments that expand leave fewer holes", less["settings"])
code, advised = said(*QWEN, "--budget", str(whole["allocated_peak_bytes"] + 2**20))
ok(code == 3, "no room for context", code)
code, advised = said(*QWEN, "--budget", str(less["interval"]["high_bytes"] + 2**20))
ok(code == 3 and advised["fits_with"]["options"].strip() == "--alloc-conf " + EXPANDABLE and advised["fits_with"]["device_bytes"] == less["device_bytes"], "what costs nothing is advised first", advised["fits_with"])
ok("--alloc-conf " + EXPANDABLE not in [r["option"] for r in less["remedies"]], "what is on already is not advised", less["remedies"])
for conf, words in (("expandable:True", "expandable: "), ("per_process_memory_fraction:0.5", "--budget"), ("max_split_size_mb", "expected ':'"), ("backend:cudaMallocAsync", "not modelled")):
    code, j = said(*QWEN, "--alloc-conf", conf)
    ok(code == 2 and "--alloc-conf" in j["error"]["message"] and words in j["error"]["message"], "--alloc-conf " + conf, (code, j))
code, j = said("estimate", "gpt2", "--trainer", "vplan", "--alloc-conf", EXPANDABLE, "--json")
ok(code == 2 and "--trainer" in j["error"]["message"], "of PyTorch's trainers alone", (code, j))

# ---- a sequence that is no multiple of 16 is halved to whole eights ----
code, j = said("estimate", "gemma-7b", "--qlora", "--device", "4090", "--seq", "8184", "--json")
ok(code == 3 and "--seq 2040" in j["fits_with"]["options"], "8,184 tokens, 2,040 fit", (code, j["fits_with"]))

# ---- adapters over sequences as long as the attention window ----
for words in ("gemma-2-9b --trainer hf --qlora", "gemma-2-9b --trainer hf --lora r=16", "gemma-2-2b --trainer trl --qlora", "mistral-7b-v0.1 --trainer trl --qlora", "mistral-7b-v0.1 --trainer hf --qlora",
              "phi-3-mini-4k --trainer hf --qlora", "phi-3-mini-4k --trainer trl --qlora"):
    code, j = said("estimate", *words.split(), "--device", "h200", "--seq", "4096", "--micro-batch", "1", "--json")
    ok(code == 0 and any("memory-efficient" in a for a in j["assumptions"]), "4,096 tokens: " + words, (code, j.get("error")))

# ---- heads of which a part is rotated: how much of them is a size of the config, where either of transformers' releases has it ----
part = dict(model_type="phi3", hidden_size=1024, num_attention_heads=8, num_key_value_heads=2, intermediate_size=2048, vocab_size=4096, num_hidden_layers=4, max_position_embeddings=4096, pad_token_id=0,
            tie_word_embeddings=True)
AS_MOST = ["--seq", "1024", "--micro-batch", "2", "--lora", "r=8,targets=all-linear", "--precision", "bf16-amp", "--recompute", "none"]
ours, theirs, half = (estimate(dict(part, **more), *AS_MOST)[1] for more in (dict(partial_rotary_factor=0.75), dict(rope_parameters={"partial_rotary_factor": 0.75}), dict(partial_rotary_factor=0.5)))
ok(ours.get("phases") and ours["phases"] == theirs["phases"], "a share of a head, above or in rope_parameters", (ours.get("error"), theirs.get("error")))
ok(ours.get("phases") != half.get("phases"), "another share is another step", half.get("error"))
for value in (1.5, 0, "0.75"):
    refused("a share that is none: %r" % value, dict(part, partial_rotary_factor=value), AS_MOST, 4, ["no share"])

# ---- a mask of ones that OPT makes itself holds no padding: flash attention runs, as in other families ----
plain, masked = [said("estimate", "opt-125m", "--trainer", "hf", "--seq", "1000", "--micro-batch", "4", "--padding", p, "--json")[1] for p in ("none", "mask")]
ok(masked["peak_bytes"] - plain["peak_bytes"] > 12 * 4 * 1000 * 768, "a mask keeps more of each of 12 layers than flash attention does", (plain["peak_bytes"], masked["peak_bytes"]))

# ---- TF32 is how products of fp32 are made, which takes no other bytes ----
wide, narrow = [said("estimate", "gpt2", "--trainer", "hf", "--seq", "512", "--precision", p, "--json")[1] for p in ("fp32", "tf32")]
ok(narrow["phases"] == wide["phases"] and narrow["settings"]["precision"] == "fp32" and any("tf32" in a for a in narrow["assumptions"]), "tf32 is fp32 in bytes", narrow.get("error"))

# ---- torch.compile: the eager step, in an interval that holds every compiled one that was played ----
COMPILED = ("estimate", "gpt2", "--trainer", "hf", "--seq", "1024", "--micro-batch", "8", "--json")
_, eager = said(*COMPILED)
_, wide = said(*COMPILED, "--compile")
for j in (wide, eager):
    j["wide"] = [p.pop("interval") for p in j["phases"]]
ok(wide["settings"]["compile"] and wide["device_bytes"] == eager["device_bytes"] and wide["phases"] == eager["phases"] and any("torch.compile" in a for a in wide["assumptions"]), "--compile counts the eager step", wide["assumptions"])
ok(all(x["low_bytes"] < y["low_bytes"] and x["high_bytes"] >= y["high_bytes"] for x, y in zip(wide["wide"], eager["wide"])), "in each phase's interval too", wide["wide"])
low, high = (wide["interval"][end] / wide["reserved_peak_bytes"] - 1 for end in ("low_bytes", "high_bytes"))
with open("tests/oracles/compiled.csv") as f:
    pairs = list(csv.DictReader(line for line in f if line[0] != "#"))
shares = [int(r["compiled_reserved"]) / int(r["eager_reserved"]) - 1 for r in pairs]
ok("took %.0f to %.0f %% less" % (-100 * max(shares), -100 * min(shares)) in " ".join(wide["assumptions"]), "what was played is said as it is", (shares, wide["assumptions"]))
ok(len(pairs) >= 18 and low <= min(shares) and max(shares) <= high <= 0.2, "pairs that were played are in it", (low, min(shares), max(shares), high))

# ---- models that vplan has no graph of: as many parameters as transformers 5.17 builds of their config ----
COUNTS = {"distilbert-base-uncased": 66985530, "t5-small": 60506624, "t5-base": 222903552, "t5-large": 737668096, "vit-base-patch16-224": 86567656,
          "vit-large-patch16-224": 304326632, "mixtral-8x7b": 46702792704, "mixtral-8x22b": 140620634112, "qwen3-30b-a3b": 30532122624, "qwen1.5-moe-a2.7b": 14315784192, "qwen3.5-0.8b": 752393024, "qwen3.5-2b": 1881825088, "qwen3.5-4b": 4205751296, "qwen3.5-9b": 8953803264, "qwen3.5-27b": 26895998464, "gemma-3-270m": 268098176,
          "gemma-3-1b": 999885952, "gemma-3-4b": 4300079472, "qwen2.5-vl-3b": 3754622976, "qwen2.5-vl-7b": 8292166656, "qwen3-vl-2b": 2127532032, "qwen3-vl-4b": 4437815808, "llava-1.5-7b": 7063427072, "llava-1.5-13b": 13351494656, "gemma-3-12b": 12187325040, "gemma-3-27b": 27432406640,
          "gemma-4-31b": 31273086512, "gemma-4-e4b": 7941100832, "gemma-4-e2b": 5104297504,
          "starcoder2-3b": 3030371328, "starcoder2-7b": 7173923840, "granite-3.3-2b": 2533539840, "granite-3.3-8b": 8170864640,
          "smollm3-3b": 3075098624, "falcon-7b": 6921720704, "stablelm-3b": 2795443200, "gpt-neo-125m": 125198592, "gpt-neo-1.3b": 1315575808,
          "gpt-neo-2.7b": 2651307520, "phi-1.5": 1418270720, "phi-2": 2779683840, "xlm-roberta-base": 278295186, "xlm-roberta-large": 560142482, "aya-23-8b": 8028033024, "olmo-7b": 6888095744,
          "modernbert-base": 149655232, "modernbert-large": 395881664, "olmo-3-7b": 7298011136, "glm-4-9b": 9400279040, "ernie-4.5-0.3b": 360748032,
          "flan-t5-small": 76961152, "flan-t5-base": 247577856, "flan-t5-large": 783150080, "flan-t5-xl": 2849757184, "flan-t5-xxl": 11135332352,         # with the heads of their own that the files have
          "deberta-v3-small": 141896450, "deberta-v3-base": 184423682, "deberta-v3-large": 435063810, "bart-base": 139420416, "bart-large": 406291456, "electra-base": 109483778,
          "gpt-oss-20b": 20914757184, "dinov2-base": 86583554,
          "bloom-560m": 559214592, "bloom-1b1": 1065314304, "bloom-1b7": 1722408960, "bloom-3b": 3002557440, "bloom-7b1": 7069016064, "gpt-j-6b": 6050882784,
          "whisper-tiny": 37760640, "whisper-base": 72593920, "whisper-small": 241734912, "whisper-medium": 763857920, "whisper-large-v2": 1543304960,
          "whisper-large-v3": 1543490560, "whisper-large-v3-turbo": 808878080, "distil-large-v3": 756405760}
_, j = said("models", "--json")
recorded = {m["name"]: m["params_total"] for m in j["models"] if not m["has_graph"]}
ok(recorded == COUNTS, "counts of what is only recorded", set(recorded.items()) ^ set(COUNTS.items()))
bloom = next(m["config"] for m in j["models"] if m["name"] == "bloom-560m")
named = {"hidden_size": "n_embed", "n_head": "num_attention_heads", "n_layer": "num_hidden_layers"}
peaks = []
for name, config in (("said.json", bloom), ("named.json", {named.get(k, k): x for k, x in bloom.items()}), ("both.json", dict(bloom, hidden_size=64, n_embed=1024))):
    with open(os.path.join(scratch, name), "w") as f:
        json.dump(config, f)
    peaks.append(said("estimate", os.path.join(scratch, name), "--trainer", "hf", "--micro-batch", "2", "--seq", "512", "--json")[1].get("peak_bytes"))
ok(peaks[0] and len(set(peaks)) == 1, "the names that Bloom's class reads as well, n_embed before hidden_size", peaks)
p = subprocess.run((vplan, "estimate", "mixtral-8x7b", "--device", "h200", "--seq", "512"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
ok(p.returncode == 3 and "as with --trainer hf" in p.stderr and "trainer hf" in p.stdout, "without --trainer: by Trainer", (p.returncode, p.stderr))
code, j = said("estimate", "mixtral-8x7b", "--json")
ok(code == 4 and j["error"]["field"] == "model_type", "a script has asked for vplan's own step", (code, j))
stacks = next(m["config"] for m in said("models", "--json")[1]["models"] if m["name"] == "t5-small")
with open(os.path.join(scratch, "stacks.json"), "w") as f:
    json.dump(dict(stacks, num_decoder_layers=2), f)
for words in (("plan", "mixtral-8x7b", "--device", "h100", "--seq", "64", "--global-batch", "8"), ("plan", os.path.join(scratch, "stacks.json"), "--trainer", "hf", "--device", "h100", "--seq", "64", "--global-batch", "8")):
    code, j = said(*words, "--json")
    ok(code == 4 and j["error"]["field"] == "model_type", "no plan without a graph", (code, j))
config = {k: v for k, v in next(m["config"] for m in said("models", "--json")[1]["models"] if m["name"] == "vit-base-patch16-224").items() if k != "num_labels"}
with open(os.path.join(scratch, "vit.json"), "w") as f:
    json.dump(dict(config, id2label={str(i): str(i) for i in range(1000)}), f)
ok(said("estimate", os.path.join(scratch, "vit.json"), "--trainer", "hf", "--json")[1]["model"]["params_total"] == COUNTS["vit-base-patch16-224"], "classes by name or by number")

# ---- Gemma 3 with its tower of images, trained on texts: a config as published says what the class has otherwise. peft adapts the tower's layers too, which get no gradient ----
tower = dict(model_type="gemma3", architectures=["Gemma3ForConditionalGeneration"], image_token_index=262144, mm_tokens_per_image=256,
             text_config=dict(model_type="gemma3_text", hidden_size=2560, intermediate_size=10240, num_hidden_layers=34, sliding_window=1024, rope_scaling={"factor": 8.0, "rope_type": "linear"}),
             vision_config=dict(model_type="siglip_vision_model", hidden_size=1152, image_size=896, intermediate_size=4304, num_attention_heads=16, num_hidden_layers=27, patch_size=14, vision_use_head=False))
on_texts, on_tower = 34 * 16 * (2 * (2560 + 2048) + 2 * (2560 + 1024) + 3 * (2560 + 10240)), 27 * 16 * (4 * (1152 + 1152) + 2 * (1152 + 4304))
QLORA = "--qlora", "--precision", "bf16-amp", "--recompute", "full", "--seq", "512", "--micro-batch", "2", "--device", "4090"
rc, j = estimate(tower, *QLORA)
ok(rc == 0 and (j["model"]["params_total"], j["model"]["params_trainable"]) == (4300079472 + on_texts + on_tower, on_texts), "adapters on texts and on the tower", j.get("error") or j["model"])
ok(any("{:,}".format(on_tower) in a and "no gradient" in a for a in j["assumptions"]) and any("text_config.num_attention_heads 8" in a for a in j["assumptions"]), "both are said", j["assumptions"])
for what, part, words in (("another tower", dict(vision_config=dict(tower["vision_config"], hidden_size=768)), ["vision_config.hidden_size", "1152"]),
                          ("no tower at all", dict(vision_config={}), ["vision_config.hidden_size", "is missing"]), ("a table without the image's token", dict(image_token_index=300000), ["300000 is none of 262208"]),
                          ("a size that is none", dict(text_config=dict(tower["text_config"], hidden_size="wide")), ["text_config.hidden_size", "is no size"]),
                          ("a choice of the layers'", dict(text_config=dict(tower["text_config"], attention_bias=True)), ["text_config.attention_bias"])):
    rc, j = estimate(dict(tower, **part), *QLORA)
    said_of = " ".join(str(j.get("error", {}).get(k)) for k in ("field", "message"))
    ok(rc == 4 and all(w in said_of for w in words), what, (rc, said_of))

# ---- Gemma 4: layers that attend to all have wider heads, fewer for keys, which in 31B are values too; of E4B and E2B the last ones have keys of others ----
gemma4 = {row["model"]: json.loads(row["config"]) for row in csv.DictReader(line for line in open("tests/golden/trainers/gemma4_steps.csv") if not line.startswith("#"))}
dense, small, smaller = (gemma4["gemma-4-" + n] for n in ("31b", "e4b", "e2b"))
LORA = "--lora", "--precision", "bf16-amp", "--recompute", "full", "--micro-batch", "2", "--device", "h200-sxm-141gb"
def of_texts(c, *without, **fields):
    return dict(c, text_config=dict({k: x for k, x in c["text_config"].items() if k not in without}, **fields))
full = [i for i in range(60) if i % 6 == 5]
saved = of_texts(dense, "global_head_dim", "num_global_key_value_heads", per_layer_config={str(i): {"head_dim": 512, "num_key_value_heads": 4} for i in full})
for seq in "512", "1280":
    (_, j), (_, k) = estimate(dense, *LORA, "--seq", seq), estimate(saved, *LORA, "--seq", seq)
    ok(j.get("reserved_peak_bytes", 0) == k.get("reserved_peak_bytes", 1) and j["model"]["params_total"] == k["model"]["params_total"], "as published and as transformers saves it", (j.get("error"), k.get("error")))
of_31b = 16 * (50 * (2 * (5376 + 8192) + 2 * (5376 + 4096)) + 10 * (2 * (5376 + 16384) + 5376 + 2048) + 60 * 3 * (5376 + 21504))
ok(j["model"]["params_trainable"] == of_31b, "adapters on layers of both kinds", (j["model"], of_31b))
for what, config, words in (("heads that flash attention takes", of_texts(dense, global_head_dim=256), ["global_head_dim", "256"]),
                            ("a table of other layers", of_texts(saved, per_layer_config={str(i - 1): {"head_dim": 512, "num_key_value_heads": 4} for i in full}), ["per_layer_config"]),
                            ("a table of some layers", of_texts(saved, per_layer_config={"5": {"head_dim": 512, "num_key_value_heads": 4}}), ["per_layer_config"]),
                            ("other layers attend to all", of_texts(dense, layer_types=["full_attention"] * 60), ["layer_types"]),
                            ("values of their own", of_texts(dense, attention_k_eq_v=False), ["attention_k_eq_v"]),
                            ("inputs of each layer", of_texts(dense, hidden_size_per_layer_input=256), ["hidden_size_per_layer_input"]),
                            ("another tower", dict(dense, vision_config=small["vision_config"]), ["vision_config"]),
                            ("a tower of sounds that is another", dict(small, audio_config=dict(small["audio_config"], num_hidden_layers=6)), ["audio_config.num_hidden_layers"]),
                            ("a second table of another size", of_texts(small, vocab_size_per_layer_input=1024), ["vocab_size_per_layer_input"]),
                            ("layers that nobody says", of_texts(smaller, "layer_types"), ["layer_types"]),
                            ("rounds that are none", of_texts(small, num_kv_shared_layers=17), ["whole groups of 6"])):
    rc, j = estimate(config, *LORA, "--seq", "256")
    said_of = " ".join(str(j.get("error", {}).get(k)) for k in ("field", "message"))
    ok(rc == 4 and all(w in said_of for w in words), what, (rc, said_of))

refused("a tower over several cards", tower, [*QLORA, "--world", "2", "--parallel", "fsdp2"], 4, ["vision tower", "dryrun --world 2"])
refused("a tower over several cards by a plain loop, which looks for no weight without a gradient", tower, [*QLORA, "--world", "2"], 4, ["vision tower"])

# ---- every optimizer that transformers has a name for is answered, or refused with its reason ----
OPTIMIZERS = """adamw_torch adamw_torch_fused adamw_torch_xla adamw_torch_npu_fused adafactor adamw_anyprecision adamw_torch_4bit adamw_torch_8bit ademamix sgd
    adagrad adamw_bnb_8bit adamw_8bit ademamix_8bit lion_8bit lion_32bit paged_adamw_32bit paged_adamw_8bit paged_ademamix_32bit paged_ademamix_8bit
    paged_lion_32bit paged_lion_8bit rmsprop rmsprop_bnb rmsprop_bnb_8bit rmsprop_bnb_32bit galore_adamw galore_adamw_8bit galore_adafactor
    galore_adamw_layerwise galore_adamw_8bit_layerwise galore_adafactor_layerwise lomo adalomo grokadamw schedule_free_radam schedule_free_adamw
    schedule_free_sgd apollo_adamw apollo_adamw_layerwise stable_adamw""".split()
answers = {}
OWN = {"adamw": "adamw_torch", "adamw-8bit": "adamw_8bit", "sgd-momentum": "sgd_momentum", "lion": "lion_32bit"}  # by vplan's names
for name in OPTIMIZERS + list(OWN) + ["sgd_momentum", "adamw-bf16", "muon"]:
    told = name + ":targets=all-linear" * name.startswith(("galore_", "apollo_"))
    p = subprocess.run([vplan, "estimate", "smollm2-135m", "--trainer", "torch" if name == "muon" else "hf", "--precision", "bf16-mixed", "--seq", "64", "--optimizer", told, "--json"], stdout=subprocess.PIPE)
    answers[name] = (p.returncode, json.loads(p.stdout))
    ok(p.returncode == 0 or p.returncode == 4 and "is not covered: " in answers[name][1]["error"]["message"], "optimizer %s" % name, answers[name][1].get("error"))
ok(sum(rc == 0 for rc, _ in answers.values()) >= 36, "most optimizers are answered", [n for n in answers if answers[n][0]])
ok(all(answers[own][1]["items"] == answers[theirs][1]["items"] for own, theirs in OWN.items()), "vplan's names mean the same", list(OWN))
states = {n: i["bytes"] for n, (rc, j) in answers.items() if rc == 0 for i in j["items"] if i["name"] == "optimizer_state"}
ok(abs(states["ademamix"] / states["adamw_torch"] - 1.5) < 0.01 and abs(states["adamw_torch"] / states["schedule_free_sgd"] - 2) < 0.02, "states: two of AdamW, three of AdEMAMix, one of schedule-free SGD", states)
# A run of grokadamw 0.1.2 on a CPU: optimizer.pt is 4.0 times the parameters, and resident memory 8.0 times them more when it is read.
hosts, count = {n: j["host_bytes"] for n, (rc, j) in answers.items() if rc == 0}, answers["grokadamw"][1]["model"]["params_total"]
ok([n for n in hosts if hosts[n]] == ["grokadamw"] and hosts["grokadamw"] == 3 * 4 * count, "the host holds states of grokadamw alone", hosts)
ok(answers["grokadamw"][1]["host"]["resume_bytes"] == 2 * 4 * 4 * count, "and to resume parameters besides, twice", answers["grokadamw"][1]["host"])
ok([n for n in hosts if "finds none of them" in str(answers[n][1]["assumptions"])] == ["grokadamw"], "whose resumed run does not find them", answers["grokadamw"][1]["assumptions"])
wide, narrow = [subprocess.run([vplan, "estimate", "smollm2-135m", "--trainer", "hf", "--precision", p, "--optimizer", "rmsprop_bnb", "--json"], stdout=subprocess.PIPE) for p in ("bf16-mixed", "bf16")]
ok(wide.returncode == 0 and narrow.returncode == 4 and "no kernel" in json.loads(narrow.stdout)["error"]["message"], "bitsandbytes' RMSprop of bf16 gradients fails", narrow.stdout[:300])

# ---- adapters of GPT-Neo: one sample a batch was not recorded by itself, and its second step is another in the cache ----
for row in estimate_rows.read("tests/golden/trainers/neo_steps.csv", scratch):
    errors, alone = estimate_rows.estimate(vplan, row), row["options"][row["options"].index("--micro-batch") + 1] == "1"
    name = " ".join([row["name"], row["trainer"]] + row["options"])
    if ok(not isinstance(errors, str), name, errors):
        ok(abs(errors["peak"]) <= 0.001 and abs(errors["reserved"]) <= (0.02 if alone else 0.0001), name, errors)

# ---- pictures: of one sample PyTorch's modules make fewer copies than what was recorded ----
pictures = [(row, estimate_rows.estimate(vplan, row)) for row in estimate_rows.read("tests/golden/trainers/picture_steps.csv", scratch)]
for row, errors in pictures:
    alone = row["options"][row["options"].index("--micro-batch") + 1] == "1"
    name = " ".join([row["name"], row["trainer"]] + row["options"])
    if ok(not isinstance(errors, str), name, errors):
        ok(abs(errors["peak"]) <= (0.0025 if alone else 0.001) and abs(errors["reserved"]) <= (0.026 if alone else 0.01) and abs(errors["load"]) <= 1e-6, name, errors)
        ok(abs(errors.get("evaluate", 0)) <= 0.0002, name + ": evaluation", errors)
ok(len(pictures) >= 109 and len({row["name"] for row, _ in pictures}) >= 11, "rows of pictures", len(pictures))

# ---- texts with pictures: a tower in front of the layers ----
seeing = [(row, estimate_rows.estimate(vplan, row)) for row in estimate_rows.read("tests/golden/trainers/vision_steps.csv", scratch)]
for row, errors in seeing:
    name = " ".join([row["name"], row["trainer"]] + row["options"])
    if ok(not isinstance(errors, str), name, errors):
        one_by_one = "--image-size" in row["options"] and "sdpa:flash" in row["options"]         # windows, of which small holes are left in another order
        by_trl = row["trainer"] == "trl"
        holes = (0.007 if "nf4-dq" in row["options"] else 0.005) if by_trl and one_by_one else 0.002 if one_by_one else 0.001 if by_trl and "mask" in row["options"] else 0.0005
        ok(abs(errors["peak"]) <= 0.0005 and abs(errors["reserved"]) <= holes and abs(errors["load"]) <= 1e-6, name, errors)
ok(len(seeing) >= 94 and len({row["name"] for row, _ in seeing}) >= 9, "rows of texts with pictures", len(seeing))
llava = dict(model_type="llava", architectures=["LlavaForConditionalGeneration"], image_token_index=32000, vision_config=dict(model_type="clip_vision_model", hidden_size=1024, image_size=336,
             intermediate_size=4096, num_attention_heads=16, num_hidden_layers=24, patch_size=14, projection_dim=768), text_config=dict(model_type="llama", max_position_embeddings=4096, vocab_size=32064))
with_picture = ["--trainer", "hf", "--precision", "bf16-amp", "--images", "1", "--micro-batch", "2"]
rc, j = estimate(llava, *with_picture, "--seq", "1024", "--lora", "r=16,targets=all-linear", "--freeze", "vision")
ok(rc == 0 and j["settings"]["images"] == 1 and j["settings"]["freeze"] == "vision" and j["model"]["params_trainable"] == 39976960 and any("576 of the 1024" in a for a in j["assumptions"]), "a tower frozen has no adapters", (rc, j.get("error")))
adapted = estimate(llava, *with_picture, "--seq", "1024", "--lora", "r=16,targets=all-linear")[1]
ok(adapted["model"]["params_trainable"] > 39976960 and adapted["allocated_peak_bytes"] > j["allocated_peak_bytes"], "and one that is not has", adapted["model"])
ok(estimate(llava, *with_picture, "--seq", "1024")[1]["model"]["params_trainable"] < 7063427072, "the tower's last layer gets no gradient")
refused("a picture and no room for a text", llava, with_picture + ["--seq", "576"], 2, ["576 tokens each", "--seq"])
frozen = with_picture + ["--recompute", "full", "--lora", "r=16,targets=all-linear", "--freeze", "vision"]
rc, j = estimate(tower, *frozen, "--seq", "1024")
ok(rc == 0 and j["model"]["params_trainable"] == on_texts and any("memory-efficient" in a for a in j["assumptions"]) and any("256 of the 1024" in a for a in j["assumptions"]), "Gemma 3's pictures, with masks that tell them from texts", (rc, j.get("error"), j.get("assumptions")))
adapted = estimate(tower, *frozen[:-2], "--seq", "1024")[1]
ok(adapted["model"]["params_trainable"] == on_texts + on_tower and adapted["allocated_peak_bytes"] > j["allocated_peak_bytes"] and not any("get no gradient" in a for a in adapted["assumptions"]), "its tower's adapters all have gradients", adapted.get("error"))
ok(estimate(tower, *frozen, "--seq", "2048")[0] == 0, "beyond its window too")
by_trl = [x.replace("hf", "trl") for x in frozen]
rc, j = estimate(tower, *by_trl, "--seq", "1024")
ok(rc == 0 and any("pictures are learnt from" in a for a in j["assumptions"]) and any("256 of the 1024" in a for a in j["assumptions"]), "SFTTrainer with pictures", (rc, j.get("error")))
ok(estimate(llava, *by_trl, "--seq", "1024")[0] == 0, "and of LLaVA")
nf4 = [estimate(tower, *options, "--load", "nf4-dq", "--seq", "1024")[1] for options in (by_trl, by_trl[:-2])]
ok(all(x.get("allocated_peak_bytes", 1 << 60) < j["allocated_peak_bytes"] for x in nf4) and nf4[0]["allocated_peak_bytes"] < nf4[1]["allocated_peak_bytes"], "over NF4 it takes less, the more so where its tower is frozen", [x.get("error") for x in nf4])
refused("SFTTrainer's packing of pictures", llava, by_trl + ["--seq", "1024", "--packing", "2"], 4, ["SFTTrainer refuses"])
refused("a length that masks are padded for", tower, frozen + ["--seq", "1021"], 4, ["a length that is a multiple of 8"])
refused("texts alone of a model recorded with pictures", llava, ["--trainer", "hf"], 4, ["--images N"])
refused("pictures of a model of texts", dict(model_type="llama", hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, vocab_size=128256, max_position_embeddings=8192), with_picture, 2, ["texts alone"])
refused("pictures of another size", llava, with_picture + ["--image-size", "300x300"], 2, ["--image-size"])
refused("a size of no pictures", llava, ["--trainer", "hf", "--image-size", "300x300"], 2, ["--images N"])
refused("sides that are none", llava, with_picture + ["--image-size", "300"], 2, ["WIDTHxHEIGHT"])
tower = dict(depth=32, hidden_act="silu", hidden_size=1280, intermediate_size=3420, num_heads=16, in_chans=3, out_hidden_size=2048, patch_size=14, spatial_merge_size=2, temporal_patch_size=2,
             window_size=112, fullatt_block_indexes=[7, 15, 23, 31])
qwen = dict(model_type="qwen2_5_vl", architectures=["Qwen2_5_VLForConditionalGeneration"], hidden_act="silu", hidden_size=2048, intermediate_size=11008, num_hidden_layers=36, num_attention_heads=16,
            num_key_value_heads=2, vocab_size=151936, max_position_embeddings=128000, tie_word_embeddings=True, vision_config=tower)
frozen = with_picture + ["--recompute", "full", "--seq", "2048", "--lora", "r=8,targets=all-linear", "--freeze", "vision"]
rc, j = estimate(qwen, *frozen, "--image-size", "1024x768", "--attention", "flash2")
ok(rc == 0 and j["settings"]["image_size"] == "1024x768" and j["model"]["params_total"] == 3754622976 + 14966784 and any("1036 x 756" in a for a in j["assumptions"]) and any("999 of the 2048" in a for a in j["assumptions"]), "pictures of whole tokens", (rc, j.get("error"), j.get("assumptions")))
ok(estimate(qwen, *frozen, "--image-size", "1024x768")[1]["allocated_peak_bytes"] <= 1.001 * j["allocated_peak_bytes"], "window after window is below the peak")
ok(estimate(dict({k: x for k, x in qwen.items() if k in ("model_type", "architectures", "tie_word_embeddings", "vision_config")}, text_config={k: x for k, x in qwen.items() if k not in ("architectures", "vision_config")}), *frozen, "--image-size", "1024x768", "--attention", "flash2")[1]["allocated_peak_bytes"] == j["allocated_peak_bytes"], "a config whose text has a part of its own is the same")
eyes = dict(depth=24, hidden_size=1024, intermediate_size=4096, num_heads=16, in_channels=3, out_hidden_size=2560, patch_size=16, spatial_merge_size=2, temporal_patch_size=2, num_position_embeddings=2304,
            hidden_act="gelu_pytorch_tanh", deepstack_visual_indexes=[5, 11, 17])
qwen3 = dict(model_type="qwen3_vl", architectures=["Qwen3VLForConditionalGeneration"], tie_word_embeddings=True, vision_config=eyes,
             text_config=dict(model_type="qwen3_vl_text", hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8, head_dim=128, vocab_size=151936, max_position_embeddings=262144, tie_word_embeddings=True))
rc, j = estimate(qwen3, *frozen, "--image-size", "1000x770")
ok(rc == 0 and j["model"]["params_total"] - j["model"]["params_trainable"] == 4437815808 and any("992 x 768" in a for a in j["assumptions"]) and any("744 of the 2048" in a for a in j["assumptions"]), "Qwen3-VL's tokens of 32 x 32", (rc, j.get("error"), j.get("assumptions")))
refused("features of other layers of its tower", dict(qwen3, vision_config=dict(eyes, deepstack_visual_indexes=[4, 8, 12])), frozen + ["--image-size", "1024x768"], 4, ["was recorded with [5, 11, 17]"])
refused("Qwen3-VL with a tower that is trained", qwen3, frozen[:-2] + ["--image-size", "1024x768"], 4, ["--freeze vision"])
refused("pictures of no size", qwen, frozen + ["--attention", "flash2"], 2, ["--image-size WxH"])
refused("a tower with other windows", dict(qwen, vision_config=dict(tower, window_size=224)), frozen + ["--image-size", "1024x768"], 4, ["was recorded with 112"])
refused("a frozen tower of no pictures", llava, ["--trainer", "hf", "--freeze", "vision"], 2, ["--images N"])
refused("pictures on several cards", llava, with_picture + ["--seq", "1024", "--world", "2"], 4, ["--parallel ddp", "one GPU"])
dino = dict(model_type="dinov2", architectures=["Dinov2ForImageClassification"], hidden_size=384, num_hidden_layers=12, num_attention_heads=6, mlp_ratio=4, image_size=518, patch_size=14,
            id2label={"0": "cat", "1": "dog"})
rc, j = estimate(dino, "--micro-batch", "2")
ok(rc == 0 and j["settings"]["seq"] == 37 * 37 + 1 and any("--seq 257" in a for a in j["assumptions"]) and any("cuDNN" in a for a in j["assumptions"]), "DINOv2's pictures are the config's unless told", (rc, j.get("error")))
ok(estimate(dino, "--micro-batch", "2", "--seq", "257")[1]["allocated_peak_bytes"] < j["allocated_peak_bytes"], "smaller pictures take less")
refused("a picture of no whole patches", dino, ["--seq", "300"], 2, ["--seq 300", "257"])
refused("pictures of one colour", dict(dino, num_channels=1), [], 4, ["recorded with 3", "with 1"])
beit = dict(model_type="beit", architectures=["BeitForImageClassification"], hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, image_size=224, patch_size=16,
            use_relative_position_bias=True, id2label={"0": "cat", "1": "dog"})
refused("Trainer's pictures are wider than BEiT's weights", beit, ["--trainer", "hf", "--precision", "bf16"], 4, ["fp32", "bf16-mixed"])
ok(estimate(beit, "--trainer", "torch", "--precision", "bf16")[0] == 0, "a plain loop's are as wide as those")
refused("a BEiT without a table of distances", dict(beit, use_relative_position_bias=False), [], 4, ["recorded with true", "with false"])
refused("a stochastic depth", dict(dino, drop_path_rate=0.1), [], 4, ["drop_path_rate"])
refused("a BEiT without scales of its layers, which are 2 L h parameters fewer", dict(beit, layer_scale_init_value=0.0), [], 4, ["above 0"])
ok(estimate(dict(beit, layer_scale_init_value=1e-5))[0] == 0, "how large the scales are at first changes nothing")
refused("a regression of images", dict(beit, id2label={"0": "much"}), [], 4, ["regression"])
# ---- sounds: --seq is what is written of one, and every sample is heard as long ----
sounds = [(row, estimate_rows.estimate(vplan, row)) for row in estimate_rows.read("tests/golden/trainers/sound_steps.csv", scratch)]
for row, errors in sounds:
    name = " ".join([row["name"], row["trainer"]] + row["options"])
    if ok(not isinstance(errors, str), name, errors):
        ok(abs(errors["peak"]) <= 2e-6 and abs(errors["reserved"]) <= 0.0015 and abs(errors["load"]) <= 1e-6 and abs(errors.get("evaluate", 0)) <= 2e-6, name, errors)
ok(len(sounds) >= 52 and len({row["name"] for row, _ in sounds}) >= 7, "rows of sounds", len(sounds))
whisper = dict(model_type="whisper", architectures=["WhisperForConditionalGeneration"], d_model=384, encoder_layers=4, decoder_layers=4, encoder_attention_heads=6, decoder_attention_heads=6,
               encoder_ffn_dim=1536, decoder_ffn_dim=1536, vocab_size=51865, num_mel_bins=80, max_source_positions=1500, max_target_positions=448, pad_token_id=50257)
rc, j = estimate(whisper, "--trainer", "hf", "--micro-batch", "2")
ok(rc == 0 and j["settings"]["seq"] == 448 and j["model"]["params_total"] == 37760640 and any("3000 frames of 80 bands" in a for a in j["assumptions"]), "Whisper writes as much as it has positions unless told", (rc, j.get("error")))
same = [estimate(whisper, "--trainer", "hf", "--micro-batch", "2", "--seq", "100", *more)[1]["allocated_peak_bytes"] for more in ([], ["--padding", "mask"], ["--target-seq", "100"])]
ok(len(set(same)) == 1, "padding of what is written is in its labels", same)
ok(estimate(whisper, "--trainer", "torch", "--precision", "fp16", "--micro-batch", "8", "--seq", "100")[1]["allocated_peak_bytes"] > 1.01 * estimate(whisper, "--trainer", "torch", "--precision", "bf16", "--micro-batch", "8", "--seq", "100")[1]["allocated_peak_bytes"],
   "the first stack clamps what is fp16")
code, j = said("estimate", "t5-small", "--trainer", "torch", "--precision", "fp16", "--seq", "512", "--json")
ok(code == 4 and "clamp" in j["error"]["message"] and said("estimate", "t5-small", "--trainer", "torch", "--precision", "fp16-mixed", "--seq", "512", "--json")[0] == 0, "T5 in fp16 is no bf16", (code, j.get("error")))
# DDP clones what a model returns, two stacks' first states too: runs of Seq2SeqTrainer as rank 0 of 2 that vplan dryrun counted
for name, words, peak, within in (("whisper-small", ("--precision", "fp16-mixed", "--seq", "225"), 12477557760, 0.0002), ("t5-small", ("--precision", "bf16-mixed", "--seq", "512"), 6686423040, 0.01)):
    code, j = said("estimate", name, "--trainer", "hf", "--world", "2", "--device", "a100-sxm-80gb", "--micro-batch", "8", *words, "--json")
    ok(code == 0 and abs(j["allocated_peak_bytes"] / peak - 1) < within, "%s on two cards" % name, (code, j.get("allocated_peak_bytes"), peak))
refused("more than 448 tokens", whisper, ["--seq", "449"], 2, ["longer than the 448 positions"])
refused("two lengths of what is written", whisper, ["--seq", "100", "--target-seq", "50"], 2, ["both are the tokens that are written", "1500"])
refused("a spectrum that is masked", dict(whisper, apply_spec_augment=True), [], 4, ["was recorded with false"])
refused("layers that chance leaves out", dict(whisper, decoder_layerdrop=0.1), [], 4, ["was recorded with 0.0"])
refused("Trainer's sounds are wider than their weights", whisper, ["--trainer", "hf", "--precision", "bf16"], 4, ["fp32", "bf16-mixed"])
refused("several labels an image", dict(dino, problem_type="multi_label_classification"), [], 4, ["one label a sample"])

# ---- the table of trainers/hf/README.md ----
board = subprocess.run([sys.executable, "tests/oracles/scoreboard.py", "--vplan", vplan, "--readme", "trainers/hf/README.md"], stdout=subprocess.PIPE, text=True)
ok(board.returncode == 0, "the scoreboard is what it was", board.stdout)

# ---- classifiers of texts and of tokens; a batch of one sample has fewer copies than what was recorded ----
classes = [(row, estimate_rows.estimate(vplan, row)) for row in estimate_rows.read("tests/golden/trainers/class_steps.csv", scratch)]
for row, errors in classes:
    name = " ".join([row["name"]] + row["options"])
    if ok(not isinstance(errors, str), name, errors):
        ok(abs(errors["peak"]) <= 0.003 and abs(errors["reserved"]) <= 0.01 and errors["load"] == 0, name, errors)
ok(len(classes) >= 20 and len({row["name"] for row, _ in classes}) >= 6, "rows of classifiers", len(classes))
exact = [errors for _, errors in classes if not isinstance(errors, str) and errors["peak"] == errors["reserved"] == 0]
ok(10 * len(exact) >= 7 * len(classes), "seven in ten of them are exact", len(exact))
bert = dict(model_type="bert", architectures=["BertForSequenceClassification"], hidden_size=128, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=512, vocab_size=30522, max_position_embeddings=512, type_vocab_size=2)
small = ("--seq", "64", "--micro-batch", "2", "--padding", "mask", "--precision", "fp32")
two, named, many = [estimate(dict(bert, **more), *small)[1] for more in ({}, {"num_labels": 2}, {"num_labels": 66})]
ok(any("2 classes, as the config names none" in a for a in two["assumptions"]), "two classes are assumed, and that is said", two["assumptions"])
ok(two["model"]["params_total"] == named["model"]["params_total"] == many["model"]["params_total"] - 64 * (128 + 1), "classes count", many["model"])
both = estimate(dict(bert, num_labels=66, id2label={"0": "no", "1": "yes"}), *small)[1]
ok(both["model"]["params_total"] == many["model"]["params_total"] and both["phases"] == many["phases"], "of id2label and num_labels the latter counts", both["model"])
for more, words in (({"chunk_size_feed_forward": 64}, "64 tokens at a time"), ({"output_hidden_states": True}, "every layer gave"), ({"output_attentions": True}, "every layer gave")):
    refused("what no recorded step does: %s" % more, dict(bert, **more), small, 4, [words])
for more, words in (({"num_labels": 1}, "regression"), ({"id2label": {"0": "much"}}, "regression"),
                    ({"problem_type": "multi_label_classification"}, "one label a sample")):
    refused("a classifier of another loss: %s" % more, dict(bert, **more), small, 4, [words])

# ---- what stays besides: copies, EWC's loss in autograd, a second model that is asked in each step; a plain loop of each ----
stays = [(row, estimate_rows.estimate(vplan, row)) for row in estimate_rows.read("tests/golden/trainers/residents.csv", scratch)]
kinds = {row["options"][-1].split("=")[0] for row, _ in stays}
ok(len(stays) >= 22 and kinds == {"ema", "mer", "ewc", "reference", "teacher", "reward"}, "rows of residents", kinds)
NEARLY = {("llama-3.2-1b", "reward"), ("qwen3-0.6b", "reward"), ("gemma2-2b", "teacher")}         # a phase of each is not exact
for row, errors in stays:
    name = " ".join([row["name"]] + row["options"])
    near = (row["name"], row["options"][-1].split("=")[0]) in NEARLY
    if ok(not isinstance(errors, str), name, errors):
        ok(abs(errors["peak"]) <= (1e-4 if near else 2e-6) and all(abs(e) <= (2e-3 if near else 2e-6) for e in errors.values()), name, errors)
llama_path = os.path.join(scratch, "llama.json")
json.dump(json.loads(rows[0]["config"]), open(llama_path, "w"))
trl = json.loads(subprocess.run([vplan, "estimate", llama_path, "--trainer", "trl", "--json"], stdout=subprocess.PIPE).stdout)
unasked = trl.get("settings", {})
ok((unasked.get("seq"), unasked.get("recompute"), unasked.get("precision")) == (1024, "full", "bf16-mixed"), "trl: SFTConfig's defaults", unasked)
for name in ("llama-3.1-8b", "llama-3.2-1b", "qwen3-0.6b"):
    whole, frozen = [json.loads(subprocess.run([vplan, "estimate", name, "--trainer", "trl", "--json", *o], stdout=subprocess.PIPE).stdout).get("model", {}) for o in ((), ("--qlora",))]
    ok(frozen and frozen["params_total"] - frozen["params_trainable"] == whole["params_total"], "trl: QLoRA of a built-in model has its parameters", (name, whole, frozen))

# ---- an evaluation between steps, whose logits are more than a step's with one sample ----
def phases_with(*options):
    p = subprocess.run([vplan, "estimate", llama_path, "--trainer", "hf", "--seq", "1024", "--json", *options] + ["--micro-batch", "1"] * ("--micro-batch" not in options), stdout=subprocess.PIPE)
    return json.loads(p.stdout)


alone, small, large = phases_with(), phases_with("--eval-batch", "1"), phases_with("--eval-batch", "8", "--device", "h100", "--budget", "24GiB")
ok("evaluate" not in [p["name"] for p in alone["phases"]], "no evaluation unasked")
ok(large["peak_phase"] == "evaluate" and small["peak_phase"] != "evaluate", "eight samples of an evaluation decide", (small["peak_phase"], large["peak_phase"]))
# fp32 logits, copied by Accelerate and again by the loss, which makes log-softmax of them: 8 x 1024 x 128256 x 4 bytes each
logits = [i["bytes"] for p in large["phases"] if p["name"] == "evaluate" for i in p["items"] if i["name"] == "logits_and_loss"]
ok(logits and logits[0] >= 2 * 8 * 1024 * 128256 * 4, "an evaluation's logits", logits)
ok(any(r["option"] == "--eval-batch 1" for r in large["remedies"]) and "--eval-batch 1" in large["fits_with"]["options"],
   "a smaller evaluation is what is advised", (large["remedies"], large["fits_with"]))
for options, words in ((("--attention", "math"), "no such evaluation"), (("--world", "2", "--parallel", "zero3"), "under --parallel zero3")):
    ok(words in phases_with("--eval-batch", "2", *options).get("error", {}).get("message", ""), "refused: %s" % words)
p = subprocess.run([vplan, "estimate", "llama-3.2-1b", "--trainer", "torch", "--seq", "512", "--eval-batch", "2"], stderr=subprocess.PIPE, text=True)
ok("llama with --trainer torch is not covered: no such evaluation" in p.stderr, "an evaluation of a plain loop's", p.stderr)
ok("evaluate" in [p["name"] for p in phases_with("--eval-batch", "2", "--world", "2")["phases"]], "an evaluation under DDP")

# ---- TRL's DPOTrainer: the reference is a second model, or the same one without its adapters ----
def by_dpo(*options):
    p = subprocess.run([vplan, "estimate", llama_path, "--trainer", "trl", "--micro-batch", "2", "--seq", "512", "--json", *options], stdout=subprocess.PIPE)
    return json.loads(p.stdout)


whole, alone = by_dpo("--method", "dpo"), by_dpo("--padding", "mask")
frozen = [i["bytes"] for i in whole["items"] if i["name"] == "frozen_parameters"]
there = [i["bytes"] for i in whole["items"] if i["name"] == "parameters"]
ok(frozen == there and whole["model"]["params_total"] == alone["model"]["params_total"], "DPO: a second model as large as the first", (frozen, there))
adapted = by_dpo("--method", "dpo", "--lora", "r=8,targets=all-linear", "--precision", "bf16-amp")
frozen = [i["bytes"] for i in adapted["items"] if i["name"] == "frozen_parameters"]
ok(frozen and frozen[0] < 1.01 * 2 * (adapted["model"]["params_total"] - adapted["model"]["params_trainable"]), "DPO under adapters has one model", frozen)
ok((adapted["settings"]["method"], adapted["settings"]["padding"], adapted["trainer"]) == ("dpo", "mask", "trl"), "DPO's settings", adapted["settings"])
for options, words in ((("--trainer", "hf", "--method", "dpo"), "--trainer trl"), (("--trainer", "trl", "--method", "dpo", "--world", "2"), "with adapters by ddp"),
                       (("--trainer", "trl", "--method", "dpo", "--padding", "none"), "no padding mask")):
    p = subprocess.run([vplan, "estimate", llama_path, *options, "--json"], stdout=subprocess.PIPE)
    ok(p.returncode in (2, 4) and words in json.loads(p.stdout)["error"]["message"], "DPO refused: %s" % (options,), p.stdout[:300])

# ---- TRL's RewardTrainer: a head of one value a sequence on any decoder, under a mask; it turns dropout off ----
reward, kept = by_dpo("--method", "reward"), by_dpo("--method", "reward", "--padding", "none")
hidden, vocab = (json.load(open(llama_path))[k] for k in ("hidden_size", "vocab_size"))
tied = json.load(open(llama_path))["tie_word_embeddings"]
ok(reward["model"]["params_total"] == alone["model"]["params_total"] + hidden * (1 - (0 if tied else vocab)), "a reward's head in place of the table's", reward["model"])
ok((reward["settings"]["method"], reward["settings"]["padding"], reward["settings"]["task"], reward["trainer"]) == ("reward", "mask", "seqcls", "trl"), "a reward's settings", reward["settings"])
dropped, adapted = [by_dpo("--method", "reward", "--lora", "r=8" + more, "--precision", "bf16-amp") for more in (",dropout=0.05", "")]
ok(dropped["peak_bytes"] == adapted["peak_bytes"] and any("which it turns off" in a for a in dropped["assumptions"]), "RewardTrainer has no dropout", dropped.get("assumptions"))
judge = dict(json.load(open(llama_path)), architectures=["LlamaForSequenceClassification"], id2label={"0": "good"})
for options, words in (("--precision bf16", "bf16-amp it runs"), ("--trainer trl --method reward --world 2", "--method reward --parallel ddp")):
    refused("a head of one value: " + options, judge, options.split(), 4, [words])
refused("several labels a sample", dict(judge, id2label={"0": "a", "1": "b"}, problem_type="multi_label_classification"), [], 4, ["one label a sample"])

# ---- TRL's GRPOTrainer: completions that vLLM makes, or the model itself: what generate() took by vplan dryrun (torch 2.11, transformers 5.17, TRL 1.16) ----
server, own = by_dpo("--method", "grpo", "--vllm", "--target-seq", "384"), by_dpo("--method", "grpo", "--target-seq", "384")
ok((server["settings"]["method"], server["settings"]["target_seq"], server["settings"]["padding"], server["trainer"]) == ("grpo", 384, "mask", "trl"), "GRPO's settings", server["settings"])
ok([p["name"] for p in own["phases"] if p["name"] not in {p["name"] for p in server["phases"]}] == ["generate1", "generate2"], "the model makes completions itself", own["phases"])
cache = [i["bytes"] for p in own["phases"] for i in p["items"] if p["name"] == "generate1" and i["name"] == "kv_cache"]
shape = json.load(open(llama_path))
heads = shape["num_key_value_heads"] * shape.get("head_dim", shape["hidden_size"] // shape["num_attention_heads"])
whole = 2 * 4 * shape["num_hidden_layers"] * own["settings"]["micro_batch"] * 511 * heads         # keys and values in fp32, as the weights are
ok(cache and 0.98 * whole * 128 / 511 <= cache[0] <= 1.05 * whole, "keys and values of each token", (cache, whole))
short, long = [by_dpo("--method", "grpo", "--vllm", "--target-seq", n, "--recompute", "none") for n in ("64", "448")]
forward = [[p["allocated_bytes"] for p in j["phases"] if p["name"] == "forward1"] for j in (short, long)]
ok(forward[0] < forward[1], "the head is asked of the completion alone", forward)
ok(any("256 of a sequence's tokens" in a for a in by_dpo("--method", "grpo")["assumptions"]), "a completion of TRL's own length")
code, j = said("estimate", "llama-3.2-1b", "--method", "grpo", "--vllm", "--device", "4090", "--lora", "r=8", "--target-seq", "256", "--max", "seq", "--json")
ok(code == 0 and j["settings"]["seq"] > 264, "the longest sequence that has the completion", j.get("error"))
odd = by_dpo("--method", "grpo", "--vllm", "--target-seq", "128", "--accumulation", "8")
alone = subprocess.run([vplan, "estimate", llama_path, "--method", "grpo", "--micro-batch", "1", "--seq", "512", "--json"], stdout=subprocess.PIPE)
ok("error" not in odd and "error" not in json.loads(alone.stdout), "a completion a micro-batch", alone.stdout[:300])
judged = by_dpo("--method", "grpo", "--vllm", "--target-seq", "384", "--resident", "reference")
ok([i["bytes"] for i in judged["items"] if i["name"] == "frozen_parameters"] == there and judged["model"]["params_total"] == server["model"]["params_total"] and judged["settings"]["resident"] == "reference",
   "a reference as large as the model", judged["settings"])
for options, code, words in (("--eval-batch 4", 4, "with --method grpo is not covered"), ("--resident reference --recompute none", 4, "--resident reference"), ("--resident reference --lora r=8", 2, "takes nothing of its own"), ("--target-seq 512 --seq 512", 2, "the prompt has one at least"), ("--world 2", 4, "--method grpo --parallel ddp"), ("--packing 2", 2, "packing")):
    refused("GRPO: " + options, shape, ["--trainer", "trl", "--method", "grpo"] + options.split(), code, [words])
refused("vLLM beside no trainer of completions", shape, ["--vllm"], 2, ["--method grpo"])
generated = list(csv.DictReader(line for line in open("tests/golden/trainers/generated.csv") if not line.startswith("#")))
for row in generated:
    options = [x for k in ("precision", "optimizer", "micro_batch", "accumulation", "seq", "target_seq") for x in ("--" + k.replace("_", "-"), row[k])]
    options += ["--lora", "r=%(rank)s,targets=%(lora)s" % row, "--load", row["load"]] if row["lora"] != "none" else []
    p = subprocess.run([vplan, "estimate", row["model"], "--method", "grpo", "--json"] + options, stdout=subprocess.PIPE, env=dict(os.environ, VPLAN_NULL_ADDRESSES="rising"))
    name, j = " ".join([row["model"]] + options), json.loads(p.stdout)
    if ok("error" not in j, "completions of " + name, j.get("error")):
        steps = [p for p in j["phases"] if p["name"] not in ("save", "resume")]
        got = dict({p["name"]: p["allocated_bytes"] for p in steps}, allocated=max(p["allocated_bytes"] for p in steps), reserved=max(p["reserved_bytes"] for p in steps))
        for what, within in (("generate1", 0.02), ("generate2", 0.02), ("allocated", 0.02), ("reserved", 0.03)):
            ok(abs(got[what] / int(row[what]) - 1) <= within, "%s: %s" % (name, what), (got[what], row[what]))
ok(len(generated) >= 7, "rows of completions", len(generated))
ok([sum("95 of 100" in a for a in j["assumptions"]) for j in (server, own)] == [1, 0], "few runs are no share of a hundred", own["assumptions"])

# ---- gpt-oss: MXFP4 weights are made 16 bits; other quantised files are none that are trained ----
oss = json.loads(next(csv.DictReader(line for line in open("tests/golden/trainers/decoder_steps.csv") if not line.startswith("#")))["config"])
adapt = ("--trainer", "hf", "--lora", "r=8,targets=q_proj+k_proj+v_proj+o_proj", "--seq", "512", "--recompute", "full")
code, j = estimate(dict(oss, quantization_config={"quant_method": "mxfp4"}), *adapt)
ok(code == 0 and any("MXFP4" in a for a in j["assumptions"]) and j["settings"]["lora"]["targets"] == "all-linear", "MXFP4 is made 16 bits, and that is said", j.get("error"))
refused("weights of another quantisation", dict(oss, quantization_config={"quant_method": "fp8"}), adapt, 4, ["quantised beforehand"])
refused("layers that take turns otherwise", dict(oss, layer_types=["full_attention"] * 24), adapt, 4, ["layer_types"])

# ---- EXAONE 4: three layers of four have a window; what leaves its own layers unsaid has them so ----
exaone = dict(model_type="exaone4", architectures=["Exaone4ForCausalLM"], hidden_size=1024, intermediate_size=2048, num_attention_heads=16, num_key_value_heads=4,
              num_hidden_layers=8, vocab_size=32000, max_position_embeddings=8192, sliding_window=4096)
for more in ({}, {"layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 2}, {"sliding_window_pattern": 4}):
    code, j = estimate(dict(exaone, **more), "--seq", "512")
    ok(code == 0, "EXAONE 4 with %s" % more, j.get("error"))
code, j = estimate(dict(exaone, sliding_window=None, tie_word_embeddings=True, layer_types=["full_attention"] * 8), "--seq", "8192")
ok(code == 0, "EXAONE 4 without windows", j.get("error"))
refused("EXAONE 4 with windows everywhere", dict(exaone, layer_types=["sliding_attention"] * 8), ["--seq", "512"], 4, ["this layer_types"])
refused("EXAONE 4 with other turns", dict(exaone, sliding_window_pattern=2), ["--seq", "512"], 4, ["this sliding_window_pattern"])

# ---- what a trainer's files say of both is what check judges by ----
for lines, options in (("use_liger_kernel: true\nper_device_train_batch_size: 4", ("--micro-batch", "4", "--liger")),
                       ("eval_strategy: steps\nper_device_train_batch_size: 1\ngradient_checkpointing: true", ("--micro-batch", "1", "--recompute", "full", "--eval-batch", "8")),
                       ("eval_strategy: \"no\"\nper_device_train_batch_size: 1", ("--micro-batch", "1")),
                       ("eval_strategy: epoch\nper_device_eval_batch_size: 2\nper_device_train_batch_size: 1", ("--micro-batch", "1", "--eval-batch", "2"))):
    path = os.path.join(scratch, "files.yaml")
    open(path, "w").write(lines + "\nbf16: true\n")
    p = subprocess.run([vplan, "check", path, "--for", "hf", "--model", "qwen2.5-0.5b", "--device", "4090", "--seq", "512", "--json"], stdout=subprocess.PIPE)
    want = json.loads(subprocess.run([vplan, "estimate", "qwen2.5-0.5b", "--trainer", "hf", "--device", "4090", "--seq", "512", "--json", *options], stdout=subprocess.PIPE).stdout)
    ok(json.loads(p.stdout).get("device_bytes") == want["device_bytes"], "check: %s" % (options,), (json.loads(p.stdout).get("device_bytes"), want["device_bytes"]))

# ---- TRL's packing: a batch is one row; with flash-attn 2 nothing has a term of S S, with sdpa a mask over all of the row has ----
def packed(way, batch):
    p = subprocess.run([vplan, "estimate", llama_path, "--trainer", "trl", "--micro-batch", str(batch), "--seq", "512", "--packing", "4", "--attention", way, "--json"], stdout=subprocess.PIPE)
    return next(x["allocated_bytes"] for x in json.loads(p.stdout)["phases"] if x["name"] == "backward2")


more = {way: packed(way, 16) - 2 * packed(way, 8) + packed(way, 1) for way in ("flash_attention_2", "sdpa")}
ok(more["sdpa"] > more["flash_attention_2"], "packing: sdpa's mask", more)
ok(by_dpo("--packing", "9")["settings"]["packing"] == 9 and by_dpo()["settings"].get("packing") is None, "packing is said")
for options, words in ((("--trainer", "hf"), "--trainer trl"), (("--trainer", "trl", "--padding", "mask"), "--padding"), (("--trainer", "trl", "--eval-batch", "2"), "--eval-batch"),
                       (("--trainer", "trl", "--device", "t4", "--attention", "flash_attention_2"), "8.0"), (("--trainer", "trl", "--method", "dpo"), "SFTTrainer")):
    p = subprocess.run([vplan, "estimate", llama_path, *options, "--packing", "2", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    ok(p.returncode in (2, 4) and words in json.loads(p.stdout)["error"]["message"], "packing refused: %s" % (options,), p.stdout[:300])

# ---- Liger's kernels, its loss in tiles: 4 x 1024 tokens, 128256 rows of 2048: 63 times the width, so 128 rows a tile ----
plain, liger = phases_with("--micro-batch", "4"), phases_with("--micro-batch", "4", "--liger")
logits = [i["bytes"] for i in liger["items"] if i["name"] == "logits_and_loss"]
ok(sum(logits) <= 2 * 128 * 128256 + 2**20 and liger["peak_bytes"] < plain["peak_bytes"], "Liger makes no more logits than a tile's", logits)
ok("--liger" in [r["option"] for r in plain["remedies"]] and "--liger" not in [r["option"] for r in liger["remedies"]], "Liger is advised where it is not on")
for options, words in ((("--loss", "full"), "--liger has Liger's loss"), (("--trainer", "trl"), "--trainer hf"), (("--task", "mlm"), "task")):
    p = subprocess.run([vplan, "estimate", llama_path, *(("--trainer", "hf") if "--trainer" not in options else ()), "--liger", *options, "--json"], stdout=subprocess.PIPE)
    ok(p.returncode in (2, 4) and words in json.loads(p.stdout)["error"]["message"], "Liger refused: %s" % (options,), p.stdout[:300])

p = subprocess.run([vplan, "estimate", llama_path, "--trainer", "trl", "--world", "2", "--parallel", "fsdp", "--json"], stdout=subprocess.PIPE)
ok(p.returncode == 4 and b"is known by ddp fsdp2 zero1 zero2 zero3" in p.stdout, "trl: several cards by FSDP1", p.stdout[:200])
small_llama = json.load(open(llama_path))
refused("trl: several cards, weights in host memory", small_llama, ["--trainer", "trl", "--seq", "256", "--world", "2", "--parallel", "zero3", "--offload", "params"], 4, ["weights in host memory"])
for words, forced in (("--recompute full", True), ("--recompute none", False)):
    code, j = estimate(small_llama, "--trainer", "trl", "--seq", "256", "--world", "4", "--parallel", "zero3", "--precision", "bf16-amp", "--lora", "r=8,targets=all-linear", *words.split())
    ok(code == 0 and any("switch on for adapters under ZeRO 3" in a for a in j["assumptions"]) == forced and not any("those by False stand in" in a for a in j["assumptions"]), "trl, ZeRO 3, adapters, %s: who asks for use_reentrant" % words, (code, j.get("error"), j.get("assumptions")))
# runs of TRL's own script as rank 0 of 4, played by PyTorch's allocator (tests/emit/end_to_end.csv)
SMOL = dict(json.load(open(llama_path)), hidden_size=576, num_attention_heads=9, num_key_value_heads=3, head_dim=64, intermediate_size=1536, vocab_size=49152,
            num_hidden_layers=30, max_position_embeddings=8192, tie_word_embeddings=True)
smol_path = os.path.join(scratch, "smol.json")
json.dump(SMOL, open(smol_path, "w"))
p = subprocess.run([vplan, "estimate", smol_path, "--trainer", "trl", "--world", "4", "--parallel", "ddp", "--device", "4090", "--seq", "1024", "--micro-batch", "8",
                    "--accumulation", "2", "--recompute", "none", "--json"], stdout=subprocess.PIPE)
j = json.loads(p.stdout)
ok(p.returncode == 0 and abs(j["allocated_peak_bytes"] / 11042681856 - 1) < 0.001 and abs(j["reserved_peak_bytes"] / 11232346112 - 1) < 0.012, "trl: DDP of 4", j)
TINY = dict(json.load(open(llama_path)), hidden_size=2048, num_attention_heads=32, num_key_value_heads=4, head_dim=64, intermediate_size=5632, vocab_size=32000,
            num_hidden_layers=22, max_position_embeddings=4096, tie_word_embeddings=False)
json.dump(TINY, open(smol_path, "w"))
p = subprocess.run([vplan, "estimate", smol_path, "--trainer", "trl", "--device", "4090", "--precision", "bf16", "--seq", "1024", "--micro-batch", "4", "--accumulation", "2", "--recompute", "none", "--json"],
                   stdout=subprocess.PIPE)
j = json.loads(p.stdout)
ok(p.returncode == 0 and abs(j["allocated_peak_bytes"] / 17457007616 - 1) < 0.001 and abs(j["reserved_peak_bytes"] / 18167627776 - 1) < 0.01, "trl: weights in 16 bits", j)
p = subprocess.run([vplan, "estimate", "qwen2.5-0.5b", "--trainer", "trl", "--world", "4", "--parallel", "fsdp2", "--device", "4090", "--seq", "1024", "--micro-batch", "4",
                    "--accumulation", "4", "--recompute", "none", "--json"], stdout=subprocess.PIPE)
j = json.loads(p.stdout)
ok(p.returncode == 0 and abs(j["allocated_peak_bytes"] / 9545319424 - 1) < 0.001 and abs(j["reserved_peak_bytes"] / 10972299264 - 1) < 0.012, "trl: FSDP2 of 4", j)

# ---- adapters: a step of peft 0.21.2 that PyTorch's allocator counted (torch 2.11.0, H100), and one that a T4 measured ----
llama = json.loads(rows[0]["config"])
rc, j = estimate(llama, "--precision", "bf16", "--lora", "r=16,targets=all-linear", "--micro-batch", "2", "--seq", "1024")
got = {p["name"]: p["allocated_bytes"] for p in j.get("phases", [])}
ok((got.get("forward1"), got.get("backward2")) == (10374306304, 11013904384), "LoRA: bytes of forward and backward", got)
ok(j["model"]["params_trainable"] == 11272192, "LoRA: what is trained", j["model"])
smol = dict(llama, num_key_value_heads=32, vocab_size=49152, num_hidden_layers=24, max_position_embeddings=8192)
rc, j = estimate(smol, "--precision", "fp16", "--attention", "eager", "--recompute", "full", "--keep-output", "--micro-batch", "4",
                 "--seq", "1024", "--device", "t4", "--load", "nf4", "--lora", "r=32,targets=q_proj+k_proj+v_proj+o_proj")
ok(abs(j.get("allocated_peak_bytes", 0) / 2**20 / 5297.271484375 - 1) < 0.0002, "QLoRA: the peak of a T4", j.get("allocated_peak_bytes"))
p = subprocess.run([vplan, "estimate", os.path.join(scratch, "config.json"), "--qlora", "--device", "4090", "--seq", "512", "--max",
                    "micro-batch", "--attention", "sdpa", "--json"], stdout=subprocess.PIPE)
j = json.loads(p.stdout)
message = j.get("error", {}).get("message", "")
ok(j.get("trainer") == "hf" and j["settings"]["micro_batch"] > 8 and j["fits"] or "recorded" in message, "--qlora is Trainer's", message)
opt = dict(model_type="opt", architectures=["OPTForCausalLM"], hidden_size=768, word_embed_proj_dim=768, num_attention_heads=12,
           ffn_dim=3072, num_hidden_layers=12, vocab_size=50272, max_position_embeddings=2048, dropout=0.1, attention_dropout=0.0)
rc, j = estimate(opt, "--precision", "bf16-mixed", "--attention", "eager", "--recompute", "full", "--optimizer", "adamw_torch_fused",
                 "--micro-batch", "4", "--seq", "2048", "--padding", "mask", "--lora", "r=16,targets=all-linear")
got = {p["name"]: sum(i["bytes"] for i in p["items"] if i["name"] != "cublas_workspace") for p in j.get("phases", [])}
ok((got.get("load"), got.get("forward2"), got.get("backward2")) == (512845824, 5182639616, 5976214528), "LoRA: OPT, whose table is tied",
   (got, j.get("error")))
# OPT 350M, whose norms are behind the sums and whose tokens are narrower than its layers, has recordings of its own
narrow = dict(opt, hidden_size=1024, word_embed_proj_dim=512, num_attention_heads=16, ffn_dim=4096, num_hidden_layers=24, do_layer_norm_before=False)
json.dump(narrow, open(os.path.join(scratch, "narrow.json"), "w"))
for words in (("hf",), ("trl", "--lora", "r=16,dropout=0.05", "--load", "nf4", "--padding", "mask"), ("hf", "--precision", "bf16-mixed", "--eval-batch", "8")):
    p = subprocess.run([vplan, "estimate", os.path.join(scratch, "narrow.json"), "--seq", "512", "--json", "--trainer", *words], stdout=subprocess.PIPE)
    rc, j = p.returncode, json.loads(p.stdout)
    ok(rc == 0 and j["model"]["params_total"] == (331196416 + (1572864 if "--lora" in words else 0)), "OPT 350M %s" % (words,), j.get("error", j.get("model")))
refused("norms behind the sums of tokens as wide as layers", dict(narrow, word_embed_proj_dim=1024), ["--seq", "512"], 4, ["another width of tokens"])
refused("narrower tokens of a model whose norms are before", dict(narrow, do_layer_norm_before=True), ["--seq", "512"], 4, ["one size for this"])
rc, j = estimate({k: x for k, x in opt.items() if k != "word_embed_proj_dim"}, "--seq", "512")
ok(rc == 0, "OPT's tokens are as wide as its layers unless a config says otherwise", j.get("error"))
refused("a module that there is none of", llama, ["--seq", "256", "--lora", "targets=c_attn"], 4, ["c_attn", "q_proj"])
refused("a word that is none", llama, ["--seq", "256", "--lora", "rank=4"], 2, ["rank=4"])
p = subprocess.run([vplan, "estimate", "smollm3-3b", "--trainer", "hf", "--lora", "r=16,dropout=0.05"], stderr=subprocess.PIPE, text=True)
ok(p.returncode == 4 and p.stderr.endswith("--lora r=16,dropout=0.05,targets=all-linear\n"), "what to type where peft has no targets", p.stderr)
p = subprocess.run([vplan, "estimate", "deberta-v3-base", "--class", "DebertaV2ForMaskedLM", "--trainer", "hf", "--lora", "r=16"], stderr=subprocess.PIPE, text=True)
ok(p.returncode == 4 and "only of seqcls, tokcls: --task seqcls, or --class" in p.stderr, "adapters of a masked model are of classes", p.stderr)
for words in (("--optimizer", "galore_adamw:targets=mlp"), ("--optimizer", "galore_adamw_layerwise:targets=all-linear")):
    p = subprocess.run([vplan, "estimate", "smollm2-135m", "--trainer", "hf", "--lora", "r=16,targets=all-linear", *words], stderr=subprocess.PIPE, text=True)
    ok(p.returncode == 4 and "was not recorded" in p.stderr, "GaLore of some adapters, or layerwise", p.stderr)
refused("activations that nobody recomputes", llama, ["--seq", "256", "--offload", "activations", "--recompute", "none"], 2, ["--recompute full"])
refused("activations of several cards", llama, ["--seq", "256", "--offload", "activations", "--world", "2"], 4, ["one card"])
refused("layers that are no whole groups", dict(llama, num_hidden_layers=5), ["--seq", "256", "--recompute", "every:2", "--precision", "bf16-mixed"], 4, ["groups of 2"])
refused("the whole of another module", llama, ["--seq", "256", "--lora", "targets=all-linear,save=q_proj"], 4, ["q_proj", "embed_tokens and lm_head"])
refused("copies in fp16 under a scaler", llama, ["--seq", "256", "--lora", "targets=all-linear,save=lm_head", "--precision", "fp16-amp"], 4, ["GradScaler", "fp16-mixed"])
refused("copies on several cards", llama, ["--seq", "256", "--lora", "targets=all-linear,save=lm_head", "--world", "2"], 4, ["save=", "one card"])
refused("tokens that are no number", llama, ["--seq", "256", "--lora", "targets=all-linear,tokens=1.5"], 2, ["tokens=1.5"])

# ---- adapters of classifiers: peft trains the head whole beside them ----
classes = dict(model_type="bert", architectures=["BertForSequenceClassification"], hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072,
               vocab_size=30522, max_position_embeddings=512, type_vocab_size=2, id2label={"0": "no", "1": "yes", "2": "maybe"})
as_tutorials = ["--seq", "128", "--micro-batch", "16", "--precision", "bf16-mixed", "--lora"]
rc, j = estimate(classes, *as_tutorials, "r=8,targets=query+value")
# of 12 layers' query and value A and B of 8 x 768; a head of 3 rows of 768 and a bias
ok(rc == 0 and j["model"]["params_trainable"] == 12 * 2 * 2 * 8 * 768 + 3 * 768 + 3 and any("head of classes is trained" in x for x in j["assumptions"]), "a head beside adapters", (rc, j.get("error"), j.get("model")))
wide = estimate(dict(classes, id2label={str(i): "label %d" % i for i in range(300)}), *as_tutorials, "r=8,targets=query+value")[1]
ok(wide["model"]["params_trainable"] - j["model"]["params_trainable"] == 297 * 769, "its rows are the classes", wide["model"])
refused("a head beside adapters on several cards", classes, as_tutorials + ["r=8,targets=query+value", "--world", "2", "--parallel", "ddp"], 4, ["head of classes", "one card"])
refused("a head in fp16 under a scaler", classes, as_tutorials[:4] + ["--precision", "fp16-amp", "--lora", "r=8,targets=query+value"], 4, ["GradScaler", "fp16-mixed"])
distil = dict(model_type="distilbert", architectures=["DistilBertForSequenceClassification"], dim=768, hidden_dim=3072, n_layers=6, n_heads=12, vocab_size=30522,
              max_position_embeddings=512)
refused("all-linear of DistilBERT", distil, as_tutorials + ["r=8,targets=all-linear"], 4, ["pre_classifier", "TypeError"])
# a masked model has no pre_classifier: of 6 layers' four of 768 x 768 and two of 768 x 3072, and the vocabulary's transform of 768 x 768
rc, j = estimate(dict(distil, architectures=["DistilBertForMaskedLM"]), *as_tutorials, "r=8,targets=all-linear")
ok(rc == 0 and j["model"]["params_trainable"] == 6 * (4 * 2 * 8 * 768 + 2 * 8 * (768 + 3072)) + 2 * 8 * 768, "all-linear of a masked DistilBERT", (rc, j.get("error"), j.get("model")))
for model in ("deberta-v3-base", "electra-base", "bert-base-uncased"):
    code, j = said("estimate", model, "--trainer", "trl", "--json")
    ok(code == 4 and "predict the next token" in j["error"]["message"], "TRL trains no encoder: " + model, j)
# transformers 5.17, quantizers/auto.py: "The model is quantized with Mxfp4Config but you are passing a BitsAndBytesConfig config"
for trainer in ("hf", "trl"):
    code, j = said("estimate", "gpt-oss-20b", "--qlora", "--trainer", trainer, "--json")
    ok(code == 4 and all(x in j["error"]["message"] for x in ("mxfp4", "BitsAndBytesConfig", "ValueError", "--lora")), "NF4 over MXFP4 by " + trainer, j)
rc, j = estimate(distil, *as_tutorials, "r=8,targets=v_lin+q_lin")
ok(rc == 0 and j["model"]["params_trainable"] == 6 * 2 * 2 * 8 * 768 + 768 * 769 + 2 * 769, "DistilBERT's head is two layers", (rc, j.get("error"), j.get("model")))
vit = dict(model_type="vit", architectures=["ViTForImageClassification"], hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, image_size=224,
           patch_size=16, id2label={"0": "cat", "1": "dog"})
refused("layers as transformers 4 named them", vit, ["--micro-batch", "16", "--lora", "r=16,targets=query+value"], 4, ["query", "q_proj"])
refused("4 bits that are trained", llama, ["--seq", "256", "--load", "nf4"], 2, ["--lora"])

# ---- quantised weights that peft prepares, or nobody: what is not quantised is fp32 or 16 bits wide ----
FOUR = ("estimate", "llama-3.1-8b", "--load", "nf4", "--lora", "r=8,targets=all-linear", "--precision", "bf16-amp", "--recompute", "full", "--seq", "512", "--micro-batch", "2", "--json")
for trainer, own in (("torch", "on"), ("hf", "on"), ("trl", "off")):
    unasked, on, off = [said(*FOUR, "--trainer", trainer, *o)[1] for o in ((), ("--prepare", "on"), ("--prepare", "off"))]
    frozen = [sum(i["bytes"] for i in j["items"] if i["name"] == "frozen_parameters") for j in (on, off)]
    # two tables of 128,256 rows of 4,096, and 65 norms
    ok(frozen[0] - frozen[1] == 2 * (2 * 128256 * 4096 + 65 * 4096), "%s: what is not packed is twice as wide" % trainer, frozen)
    ok(unasked["phases"] == {"on": on, "off": off}[own]["phases"] and unasked["settings"]["lora"]["prepare"] == own, "%s: unasked %s" % (trainer, own), unasked["settings"])
    ok(all(j["settings"]["lora"]["dtype"] == ("bf16" if trainer == "trl" else "fp32") for j in (on, off)), "%s: the adapters' format" % trainer, off["settings"])
for words, want, text in ((("--lora", "r=8", "--prepare", "off"), 2, "--load nf4"), (("--trainer", "vplan", "--prepare", "on"), 2, "--trainer hf"), (("--qlora", "--prepare", "maybe"), 2, "--prepare"),
                          (("--qlora", "--prepare", "on", "--world", "2", "--parallel", "fsdp2"), 4, "--prepare on --parallel fsdp2"), (("--qlora", "--lora", "r=8,dora,targets=all-linear", "--prepare", "off"), 4, "--prepare on")):
    code, j = said("estimate", "llama-3.2-1b", *words, "--json")
    ok(code == want and text in j["error"]["message"], "--prepare: " + " ".join(words), (code, j.get("error")))

# ---- two sequences: t5-base, as PyTorch's allocator counted it (torch 2.11.0, H100), less cuBLAS's workspaces ----
t5 = dict(model_type="t5", architectures=["T5ForConditionalGeneration"], d_model=768, d_kv=64, d_ff=3072, num_layers=12,
          num_decoder_layers=12, num_heads=12, vocab_size=32128, relative_attention_num_buckets=32, dropout_rate=0.1)
two = ["--precision", "fp32", "--attention", "eager", "--recompute", "full", "--micro-batch", "2", "--seq", "256", "--target-seq", "64"]
rc, j = estimate(t5, *two, "--optimizer", "adamw_torch_fused")
got = {p["name"]: sum(i["bytes"] for i in p["items"] if i["name"] != "cublas_workspace") for p in j.get("phases", [])}
want = [891614208, 967416320, 1891368960, 3572884992, 2750841856, 3673156096, 3571312128]
ok([got.get(p) for p in PHASES] == want, "T5: bytes of each phase", (got, j.get("error")))
rc, more = estimate(t5, *two[:-1], "128", "--optimizer", "adamw_torch_fused")
ok(rc == 0 and more["allocated_peak_bytes"] > j.get("allocated_peak_bytes", 0), "T5: more targets take more", more.get("error"))
refused("targets of a model that has none", rows and json.loads(rows[0]["config"]), ["--seq", "256", "--target-seq", "64"], 2, ["seq2seq"])
gated = dict(t5, d_ff=2048, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
rc, j = estimate(gated, "--seq", "256", "--precision", "fp32")
# a table and a head; of each of 24 layers q, k, v and o, two layers in and one out; 12 times q, k, v and o between the stacks; norms; distances
ok(rc == 0 and j["model"]["params_total"] == 2 * 32128 * 768 + 24 * (4 * 768 * 768 + 3 * 768 * 2048) + 12 * 4 * 768 * 768 + (24 * 2 + 12 + 2) * 768 + 2 * 32 * 12, "Flan-T5's head is its own",
   (rc, j.get("error"), j.get("model")))
same = estimate(dict(gated, model_type="mt5", architectures=["MT5ForConditionalGeneration"]), "--seq", "256", "--precision", "fp32")[1]
ok(same.get("phases") == j["phases"], "mT5 is the same", same.get("error"))
refused("gated layers and a tied head", dict(gated, tie_word_embeddings=True), ["--seq", "256"], 4, ["tied"])
refused("another gate", dict(gated, feed_forward_proj="gated-silu"), ["--seq", "256"], 4, ["gated-gelu"])
deberta = dict(model_type="deberta-v2", architectures=["DebertaV2ForSequenceClassification"], hidden_size=768, num_hidden_layers=6, num_attention_heads=12, intermediate_size=3072, vocab_size=128100,
               max_position_embeddings=512, type_vocab_size=0, relative_attention=True, position_buckets=256, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type="p2c|c2p",
               position_biased_input=False, pooler_dropout=0)
rc, j = estimate(deberta, "--seq", "256", "--trainer", "hf")
ok(rc == 0 and any("no sdpa" in x for x in j["assumptions"]), "DeBERTa attends eagerly", j.get("error"))
ok(estimate(dict(deberta, pos_att_type=["p2c", "c2p"]), "--seq", "256", "--trainer", "hf")[1].get("phases") == j["phases"], "a list of words as older configs write it", j.get("error"))
for key, value in (("conv_kernel_size", 3), ("share_att_key", False), ("pos_att_type", "p2c"), ("type_vocab_size", 2), ("position_biased_input", True), ("cls_dropout", 0.2)):
    refused("another DeBERTa: %s" % key, dict(deberta, **{key: value}), ["--seq", "256"], 4, ["was recorded with"])
rc, j = estimate(deberta, "--seq", "128", "--precision", "bf16-mixed", "--lora", "r=8")         # peft takes query_proj and value_proj
ok(rc == 0 and j["model"]["params_trainable"] == 6 * 2 * 2 * 8 * 768 + 2 * 768 + 2, "LoRA of DeBERTa, and its head", (rc, j.get("error"), j.get("model")))
refused("a DeBERTa whose tables are narrower than its layers", dict(deberta, embedding_size=512), ["--seq", "256"], 4, ["512 and 768"])
refused("DeBERTa without distances said", {k: x for k, x in deberta.items() if k != "relative_attention"}, ["--seq", "256"], 4, ["is missing"])
refused("a classifier of DeBERTa whose output is kept", deberta, ["--seq", "256", "--keep-output"], 4, ["output"])
# positions that no token has: two of XLM-RoBERTa's and MPNet's, whose count begins behind the padding token; two more of BART's table than the config says
encoder = dict(model_type="xlm-roberta", architectures=["XLMRobertaForMaskedLM"], hidden_size=768, num_hidden_layers=2, num_attention_heads=12, intermediate_size=3072, vocab_size=1000,
               max_position_embeddings=514, type_vocab_size=1, pad_token_id=1)
mpnet = dict(model_type="mpnet", architectures=["MPNetForMaskedLM"], hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, vocab_size=30527,
             max_position_embeddings=514, relative_attention_num_buckets=32, pad_token_id=1)
bart = dict(model_type="bart", architectures=["BartForConditionalGeneration"], d_model=768, encoder_layers=6, decoder_layers=6, encoder_attention_heads=12, decoder_attention_heads=12,
            encoder_ffn_dim=3072, decoder_ffn_dim=3072, vocab_size=50265, max_position_embeddings=1024, dropout=0.1, attention_dropout=0.1, activation_dropout=0.1)
for config, most in ((encoder, 512), (mpnet, 512), (bart, 1024)):
    j = estimate(config, "--trainer", "hf", "--precision", "bf16-mixed")[1]
    ok(j.get("settings", {}).get("seq") == most, "%s: the longest sequence" % config["model_type"], j.get("settings", j.get("error")))
    refused("%s: a longer one" % config["model_type"], config, ["--trainer", "hf", "--precision", "bf16-mixed", "--seq", str(most + 1)], 2, ["%d positions" % most])
albert = dict(model_type="albert", architectures=["AlbertForSequenceClassification"], hidden_size=768, embedding_size=128, num_hidden_layers=12, num_attention_heads=12,
              intermediate_size=3072, vocab_size=30000, max_position_embeddings=512, type_vocab_size=2, num_hidden_groups=1, inner_group_num=1, num_labels=4)
electra = dict(model_type="electra", architectures=["ElectraForPreTraining"], hidden_size=256, embedding_size=128, num_hidden_layers=12, num_attention_heads=4, intermediate_size=1024,
               vocab_size=30522, max_position_embeddings=512, type_vocab_size=2, num_labels=4)
# as transformers counts them
for config, options, want in ((mpnet, [], 109518527), (bart, [], 139420416), (albert, [], 11686660), (electra, ["--task", "seqcls"], 13549828),
                              (dict(electra, hidden_size=768, embedding_size=768, num_attention_heads=12, intermediate_size=3072), ["--task", "seqcls"], 109485316)):
    rc, j = estimate(config, "--trainer", "hf", "--precision", "bf16-mixed", "--seq", "128", *options)
    ok(rc == 0 and j["model"]["params_total"] == want, "parameters of %s" % config["model_type"], (rc, j.get("error"), j.get("model")))
refused("layers left out by chance", dict(bart, encoder_layerdrop=0.05), ["--seq", "256"], 4, ["was recorded with"])
refused("ALBERT with two kinds of layers", dict(albert, num_hidden_groups=2), ["--seq", "256"], 4, ["was recorded with"])
refused("a decoder whose length is not said", {k: x for k, x in t5.items() if k != "num_decoder_layers"}, two, 4, ["needs this size"])
refused("a T5 whose output is kept", t5, two + ["--keep-output"], 4, ["output"])

# ---- mixtures of experts, as PyTorch's allocator counted them (torch 2.11.0, transformers 5.17.0, H100), less cuBLAS's workspaces ----
moe = dict(model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], hidden_size=1024, intermediate_size=2816, moe_intermediate_size=512,
           num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=4, head_dim=64, num_experts=32, num_experts_per_tok=4,
           vocab_size=64000, tie_word_embeddings=False, max_position_embeddings=8192)
mixtral = dict(model_type="mixtral", architectures=["MixtralForCausalLM"], hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
               num_attention_heads=32, num_key_value_heads=8, num_local_experts=8, num_experts_per_tok=2, vocab_size=32000,
               max_position_embeddings=32768, sliding_window=None, tie_word_embeddings=False)
for config, options, want in (
        (moe, ["--precision", "fp32", "--attention", "eager", "--recompute", "full", "--seq", "1024"],
         [3067724800, 3659684352, 6180119552, 15338636288, 9795131904, 12315567104, 15338636288]),
        (mixtral, ["--precision", "bf16-mixed", "--micro-batch", "2", "--seq", "512"],
         [186811171840, 211229383168, 373639137280, 934055871488, 584849627648, 747261478912, 934055871488])):
    rc, j = estimate(config, *options)
    got = {p["name"]: sum(i["bytes"] for i in p["items"] if i["name"] != "cublas_workspace") for p in j.get("phases", [])}
    ok(rc == 0 and all(abs(got[p] - n) <= 1e-5 * n for p, n in zip(PHASES, want)), "experts: %s" % config["model_type"], (got, j.get("error")))
refused("experts in some layers only", dict(moe, mlp_only_layers=[0]), ["--seq", "256"], 4, ["with [0]"])
refused("every second layer of experts", dict(moe, decoder_sparse_step=2), ["--seq", "256"], 4, ["with 2 its"])
refused("a loss on the router", dict(moe, output_router_logits=True), ["--seq", "256"], 4, ["with true"])
refused("a card without grouped products", moe, ["--seq", "256", "--device", "t4"], 4, ["8.0"])

# ---- what is refused, by name ----
llama, gpt2 = json.loads(rows[0]["config"]), next(json.loads(r["config"]) for r in rows if r["model"] == "gpt2")
small = ["--seq", "256"]
refused("another activation", dict(llama, hidden_act="gelu"), small, 4, ["silu", "gelu"])
under_deepspeed = [json.loads(subprocess.run([vplan, "estimate", "gpt2", "--trainer", "hf", "--seq", "512", "--micro-batch", "4", "--recompute", "none", "--world", "4", "--parallel",
                                              way, "--precision", p, "--json"], stdout=subprocess.PIPE).stdout)["reserved_peak_bytes"]
                   for way in ("zero2", "zero3") for p in ("bf16-amp", "bf16-mixed")]
ok(under_deepspeed[0] == under_deepspeed[1] and under_deepspeed[2] == under_deepspeed[3], "no autocast under DeepSpeed, fp32 weights beside the model", under_deepspeed)
for key in ("hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size", "num_attention_heads"):
    refused("without " + key, {k: v for k, v in llama.items() if k != key}, small, 4, ["is missing"])
refused("a size that is an object", dict(llama, intermediate_size={"a": 1}), small, 4, ["is no size"])
refused("a size in quotes", dict(llama, num_hidden_layers="12"), small, 4, ['"12" is no size'])
refused("heads that do not divide the width", {k: v for k, v in dict(llama, num_attention_heads=15).items() if k != "head_dim"}, small, 4, ["no whole number", "num_attention_heads"])
refused("a size that is true", dict(llama, num_hidden_layers=True), small, 4, ["is no size"])
refused("biases of the feed-forward layers alone", dict(llama, mlp_bias=True), small, 4, ["true", "not known"])
refused("no dropout in one place where there was some in three", dict(gpt2, resid_pdrop=0.0), small, 4, ["dropout"])
refused("scaling that changes as it runs", dict(llama, rope_scaling={"rope_type": "dynamic", "factor": 2.0}), small, 4, ["dynamic"])
refused("an attention nobody recorded", llama, small + ["--attention", "flash3"], 4, ["flash3", "nearest"])
refused("fp32, which flash-attn 2 has no kernels for", llama, small + ["--attention", "flash2", "--precision", "fp32"], 4, ["fp32", "nearest"])
for what, words, said in (("a masked sequence that is no multiple of 8", "--seq 250", ["multiple of 8", "--seq 256 is covered", "vplan dryrun"]),
                          ("one that has no room for more", "--seq 511", ["--seq 512 is covered"]), ("a length and another setting", "--seq 250 --attention flash3", ["flash3", "vplan dryrun"])):
    p = subprocess.run([vplan, "estimate", "bert-base-uncased", "--trainer", "torch", "--padding", "mask", *words.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ok(p.returncode == 4 and all(w in p.stderr for w in said), what, p.stderr)
refused("more cards than there are", llama, small + ["--world", "99999999"], 2, ["65,536"])
refused("an optimizer nobody knows", llama, small + ["--optimizer", "adamw_torch_9bit"], 4, ["adamw_torch_9bit"])
refused("a class of another head", dict(llama, architectures=["LlamaForTokenClassification"]), small, 4, ["class"])
p = subprocess.run([vplan, "estimate", "gpt2", "--trainer", "vplan", "--accumulation", "2", "--json"], stdout=subprocess.PIPE)
ok(p.returncode == 2, "an option of theirs for vplan's own step", p.stdout)
for option, trainer in ((["--accumulation", "2"], "hf"), (["--world", "2"], "hf"), (["--packing", "4"], "trl"), (["--accumulation", "2", "--method", "sft"], "trl"),
                        (["--loss", "chunked"], "vplan")):
    p = subprocess.run([vplan, "estimate", "llama-3.2-1b", "--json", *option], stdout=subprocess.PIPE)
    ok(p.returncode == 0 and json.loads(p.stdout)["trainer"] == trainer, "the trainer that has " + option[0], p.stdout[:300])

for name, trainer, words in (("phi-3-mini-4k", "trl", ["no such evaluation", "--trainer hf"]), ("granite-3.3-2b", "hf", ["no evaluation of family", "llama"])):         # of another trainer; and none
    p = subprocess.run([vplan, "estimate", name, "--trainer", trainer, "--seq", "512", "--eval-batch", "8", "--json"], stdout=subprocess.PIPE)
    message = json.loads(p.stdout).get("error", {}).get("message", "")
    ok(p.returncode == 4 and all(w in message for w in words) and not any(w in message for w in ("second model", "--eval 1")), "no evaluation of " + name, message)
for name in ("bert-base-uncased", "modernbert-base", "t5-small"):         # that plan says so of too
    p = subprocess.run([vplan, "estimate", name, "--trainer", "trl", "--json"], stdout=subprocess.PIPE)
    message = json.loads(p.stdout).get("error", {}).get("message", "")
    ok(p.returncode == 4 and "predict the next token" in message and "--trainer hf" in message, name + " by TRL", message)

# ---- under a mask PyTorch takes cuDNN's attention first on 9.x and 10.x, whose output lies as queries do: whole runs by Trainer with 4 layers, as
# `vplan dryrun` counted them with the real cuDNN (torch 2.11, transformers 5.17, cuDNN 9.19), bf16-mixed, padding; queries that torch.cat() made, and not ----
os.environ["VPLAN_NULL_ADDRESSES"] = "falling"         # as dryrun has them
for name, card, batch, seq, allocated_bytes, reserved_bytes in (
        ("pythia-410m", "h100", 4, 1024, 5283162624, 6167724032),
        ("phi-2", "h100", 4, 1024, 14205553664, 15493758976),
        ("phi-3-mini-4k", "h100", 4, 512, 11225221120, 12886999040),
        ("glm-4-9b", "h100", 2, 1024, 33912754176, 38361104384),
        ("glm-4-9b", "a100-sxm-80gb", 2, 1024, 33795571712, 38268829696),
        ("pythia-410m", "5090", 4, 512, 3627981312, 3877634048),
        ("pythia-410m", "b200", 4, 512, 3644762624, 3894411264),
        ("falcon-7b", "h100", 4, 512, 20157839360, 23706206208)):
    config = dict(json.loads(subprocess.run([vplan, "models", name, "--json"], stdout=subprocess.PIPE).stdout)["models"][0]["config"], num_hidden_layers=4)
    rc, j = estimate(config, "--trainer", "hf", "--precision", "bf16-mixed", "--padding", "mask", "--device", card, "--seq", str(seq), "--micro-batch", str(batch), "--recompute", "none")
    j = j.get("without_limit", j)
    off = j["allocated_peak_bytes"] / allocated_bytes - 1, j["reserved_peak_bytes"] / reserved_bytes - 1
    ok(abs(off[0]) < 1e-4 and abs(off[1]) < 0.005, "%s under a mask on %s" % (name, card), off)
os.environ["VPLAN_NULL_ADDRESSES"] = "rising"

# ---- cuBLAS's workspace, as torch 2.11 takes it with a first product: 32 MiB on 9.0 alone, not on what came later; cuBLASLt's 1 MiB beside ----
for card, workspace in (("h100", 33554432), ("a100-sxm-80gb", 8519680), ("b200", 8519680), ("b300", 8519680), ("5090", 8519680), ("t4", 8519680)):
    rc, j = estimate(gpt2, "--seq", "256", "--precision", "fp32", "--device", card)
    got = [i["bytes"] for x in j["phases"] if x["name"] == "forward1" for i in x["items"] if i["name"] == "cublas_workspace"]
    ok(rc == 0 and got == [workspace + (1 << 20)], "cuBLAS's workspace on " + card, got)

# ---- where nothing helps a larger card is named: of a 5090 too, whose compute capability is above those of the largest ----
for options, larger in (("mixtral-8x7b --trainer torch --device 5090 --micro-batch 1", "b300-sxm-288gb"), ("qwen2.5-72b --trainer hf --device 5090 --seq 512 --micro-batch 1 --lora", "b200-sxm-180gb")):
    p = subprocess.run([vplan, "estimate", *options.split()], stdout=subprocess.PIPE, text=True)
    ok(p.returncode == 3 and "--device %s" % larger in p.stdout.split("\nnext")[-1], "a larger card than a 5090", p.stdout[-300:])

# ---- fits, accumulation, time ----
rc, j = estimate(llama, "--precision", "bf16", "--device", "h100", *small)
ok(rc == 0 and j["fits"] is True and j["device_bytes"] > j["reserved_peak_bytes"], "fits, context counted", j.get("device_bytes"))
ok(all(p["device_bytes"] - p["reserved_bytes"] == j["device_bytes"] - j["reserved_peak_bytes"] > 0 for p in j["phases"]),
   "the card's bytes of each phase are the reserved ones and the context")
i, r = j["interval"], j["reserved_peak_bytes"]
ok(i["low_bytes"] < j["device_bytes"] < i["high_bytes"] and i["probability"] == 0.95 and
   i["high_bytes"] == j["device_bytes"] + r * 2 // 100, "an interval about the card's bytes", i)
budget = j["device_bytes"] - j["reserved_peak_bytes"] + j["allocated_peak_bytes"]
rc, j = estimate(llama, "--precision", "bf16", "--device", "h100", "--budget", str(budget - 1), *small)
ok(rc == 3 and j["fits"] is False and "without_limit" not in j, "one byte less than what is allocated does not", rc)
def changed(config, options, more):
    """The options with those of `more`, each in its place."""
    new, words = list(options), more.split()
    if words[:1] == ["--qlora"]:         # chooses the precision
        new[:2], words = ["--qlora"], words[1:]
    for name, value in zip(words[::2], words[1::2]):
        if name in new:
            new[new.index(name) + 1] = value
        else:
            new += [name, value]
    return estimate(config, *new)


for options in (["--precision", "bf16", "--seq", "1024", "--micro-batch", "8"], ["--precision", "fp32", "--seq", "2048", "--micro-batch", "6"],
                ["--precision", "bf16", "--seq", "4096", "--micro-batch", "4", "--lora", "r=8"],
                *(["--precision", "bf16", "--seq", str(s), "--micro-batch", "8"] for s in range(1152, 2048, 128))):
    options += ["--device", "t4"]
    rc, j = estimate(llama, *options)
    with_ = j.get("fits_with") or {}
    rc, there = changed(llama, options, with_.get("options", ""))
    ok(with_ and rc == 0 and there["fits"] and there["device_bytes"] == with_["device_bytes"], "what fits does: %s" % options, (with_, rc))
    ok(there["interval"]["high_bytes"] <= there["budget_bytes"], "surely: %s" % options, there["interval"])
    ok("--seq" in with_.get("options", "") or there["settings"]["micro_batch"] * there["settings"]["accumulation"] == int(options[5]),
       "as many samples a step", there.get("settings"))
rc, j = estimate(dict(llama, num_hidden_layers=600, hidden_size=8192), "--precision", "bf16", "--seq", "1024", "--device", "t4")
ok(rc == 3 and j["fits_with"] is None, "nothing fits: none is named", j.get("fits_with"))
rc, j = estimate(llama, "--precision", "bf16", "--device", "h100", *small)
ok(j["fits_with"] is None, "it fits: nothing is advised", j.get("fits_with"))
path = os.path.join(scratch, "config.json")
text = subprocess.run([vplan, "estimate", path, "--device", "4090", "--seq", "512"], stdout=subprocess.PIPE, text=True).stdout
lines = {line.split("  ")[0].strip(): line for line in text.split("\n")}
j = json.loads(subprocess.run([vplan, "estimate", path, "--device", "4090", "--seq", "512", "--trainer", "hf", "--micro-batch", "1", "--json"],
                              stdout=subprocess.PIPE, text=True).stdout)
ok("by vplan" in lines and "by Trainer %.2f GiB" % (j["device_bytes"] / 2**30) in text, "without --trainer both runtimes are answered for",
   text[:300])

# ---- copies that stay: of what is trained, 4 bytes of each in fp32; of adapters only theirs ----
plain = estimate(llama, "--precision", "fp32", "--seq", "512")[1]
for words in (["--resident", "ema"], ["--resident", "mer"]):
    j = estimate(llama, "--precision", "fp32", "--seq", "512", *words)[1]
    items = {i["name"]: i["bytes"] for i in j.get("items", [])}
    ok(items.get("resident_copies") == items.get("parameters") and j["peak_bytes"] - plain["peak_bytes"] == items["parameters"],
       "a copy of the weights: %s" % words, (items, plain["peak_bytes"]))
j = estimate(llama, "--precision", "bf16", "--seq", "512", "--lora", "r=8", "--resident", "ema")[1]
items = {i["name"]: i["bytes"] for i in j.get("items", [])}
ok(items.get("resident_copies") == items.get("parameters") == 4 * j["model"]["params_trainable"], "a copy of the adapters", items)
for word, code, more in (("reward=opt-125m", 4, []), ("reward", 4, ["--world", "2"]), ("emu", 2, []), ("ema=gpt2", 2, []), ("teacher=", 2, []), ("ewc", 4, ["--accumulation", "2"]),
                         ("teacher=opt-125m", 4, []), ("ewc", 4, ["--world", "2"]), ("reference", 2, ["--lora", "r=8"])):
    refused("resident %s" % word, llama, ["--seq", "256", "--resident", word, *more], code, [word.split("=")[0] if "opt" not in word else "opt"])
codes = [subprocess.run([vplan, "estimate", "llama-3.2-1b", "--trainer", t, "--loss", loss], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
         for t in ("trl", "hf") for loss in ("full", "chunked", "chunked:256")]
ok(codes == [4, 0, 4, 0, 4, 4], "--loss: what each trainer does, and nothing else", codes)
cut = os.path.join(scratch, "cut.txt")
open(cut, "w").write("512 10\n1008 5\n1024 5\n")
short = [vplan, "estimate", "llama-3.2-1b", "--trainer", "trl", "--device", "4090"]
p = subprocess.run(short + ["--length-histogram", cut], stdout=subprocess.PIPE, text=True)
ok("holds worse than the longest, of 1024" in " ".join(p.stdout.split()), "lengths: a shorter batch that takes more decides", p.stdout[:400])
j = json.loads(subprocess.run(short + ["--length-histogram", cut, "--json"], stdout=subprocess.PIPE).stdout)
each = {seq: json.loads(subprocess.run(short + ["--seq", str(seq), "--padding", "mask", "--json"], stdout=subprocess.PIPE).stdout)["device_bytes"]
        for seq in (512, j["lengths"]["deciding"], 1024)}
ok(j["device_bytes"] == max(each.values()) == each[j["lengths"]["deciding"]] > each[1024], "lengths: the worst of the batches is the answer", (j["device_bytes"], each))
other = [vplan, "estimate", "llama-3.2-1b", "--trainer", "torch", "--device", "t4", "--length-histogram", cut, "--json"]
open(cut, "w").write("100 50\n512 20\n1000 3\n")
with_ = json.loads(subprocess.run(other, stdout=subprocess.PIPE).stdout)["fits_with"]
p = subprocess.run(other + with_["options"].split(), stdout=subprocess.PIPE)
ok(p.returncode == 0 and json.loads(p.stdout)["device_bytes"] == with_["device_bytes"], "lengths: what fits does, where the change leaves another length to decide", (with_, p.returncode))
open(cut, "w").write("512 10\n1008 5\n1024 5\n")
most = json.loads(subprocess.run(short + ["--length-histogram", cut, "--max", "micro-batch", "--json"], stdout=subprocess.PIPE).stdout)
ok(most["fits"] and most["settings"]["micro_batch"] >= 1, "lengths: the largest batch fits at every length", most["settings"])
p = subprocess.run([vplan, "estimate", "gpt2", "--trainer", "hf", "--ladder"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
ok(p.returncode == 2 and "--ladder" in p.stderr, "--ladder is not dropped in silence", p.stderr)
# ---- what was not recorded: only what differs is said, in the words that were typed ----
for words, asked, nearest in (("llama-3.1-8b --qlora --precision bf16-mixed", "--precision bf16-mixed", "--precision bf16-amp"), ("gemma-4-31b --qlora --recompute none", "--recompute none", "--recompute full"),
                              ("gpt2 --qlora --precision bf16-mixed", "--precision bf16-mixed", "--precision bf16-amp")):
    p = subprocess.run([vplan, "estimate", "--trainer", "trl", *words.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ok(p.returncode == 4 and "with %s is not covered" % asked in p.stderr and "The nearest that was has %s. " % nearest in p.stderr, "refused: " + words, p.stderr)
p = subprocess.run([vplan, "estimate", "mixtral-8x7b", "--trainer", "hf", "--seq", "512", *"--lora r=8,targets=all-linear,dropout=0.05".split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
ok(p.returncode == 4 and "dropout in adapters" in p.stderr and "dropouts as" not in p.stderr, "dropout of adapters is not the config's", p.stderr)
beyond = dict(model_type="gemma3_text", hidden_size=640, num_attention_heads=4, num_key_value_heads=1, head_dim=256, intermediate_size=2048, vocab_size=1024, num_hidden_layers=15,
              max_position_embeddings=4096, sliding_window=512)
refused("layers that leave another number behind whole blocks", beyond, ["--seq", "1024", "--lora", "r=8,targets=all-linear", "--precision", "bf16-amp", "--recompute", "full"], 4,
        ["15 layers", "whole groups of 6 layers"])
p = subprocess.run([vplan, "estimate", "qwen1.5-moe-a2.7b", "--trainer", "trl", "--lora", "r=8,targets=all-linear,dropout=0.1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
ok(p.returncode == 4 and "--trainer hf" in p.stderr and "qwen2" in p.stderr, "TRL's own step of a family that was not recorded", p.stderr)

# ---- dropouts that a class has not unless told are a step of their own, each set of them; those of a class are there as a whole or not at all ----
phi = dict(model_type="phi", architectures=["PhiForCausalLM"], hidden_size=2048, intermediate_size=8192, num_hidden_layers=4, num_attention_heads=32, num_key_value_heads=32, vocab_size=51200,
           max_position_embeddings=2048, hidden_act="gelu_new")
without, some = [estimate(dict(phi, **more), "--precision", "bf16", "--seq", "512", "--micro-batch", "2")[1] for more in ({}, {"resid_pdrop": 0.1})]
forward = [next(p["allocated_bytes"] for p in j["phases"] if p["name"] == "forward1") for j in (without, some)]
ok(forward[1] > forward[0], "phi-2's dropout keeps masks", forward)
refused("another set of dropouts", dict(phi, embd_pdrop=0.1), ["--seq", "512"], 4, ["dropout by embd_pdrop", "as the model's class"])
refused("others in place of a class's", dict(model_type="opt", hidden_size=768, ffn_dim=3072, num_hidden_layers=4, num_attention_heads=12, vocab_size=50272, word_embed_proj_dim=768,
                                             max_position_embeddings=2048, dropout=0.0, attention_dropout=0.1), ["--seq", "512"], 4, ["in place of them"])

# ---- what tells layers apart, and fields that no recording was made with ----
olmo = dict(model_type="olmo", hidden_size=2048, intermediate_size=8192, num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=16, vocab_size=50304, tie_word_embeddings=False)
refused("OLMo's clipping", dict(olmo, clip_qkv=8.0), ["--seq", "512"], 4, ["without clip_qkv"])
ok(estimate(dict(olmo, clip_qkv=None), "--seq", "512")[0] == 0, "OLMo without it")
smollm3 = dict(model_type="smollm3", hidden_size=2048, intermediate_size=11008, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4, vocab_size=128256, tie_word_embeddings=True)
refused("SmolLM3's window", dict(smollm3, use_sliding_window=True, sliding_window=256), ["--seq", "512"], 4, ["use_sliding_window"])
refused("SmolLM3 that is rotated in all layers", dict(smollm3, no_rope_layers=[1] * 8), ["--seq", "512"], 4, ["no_rope_layers"])
for more in ({}, {"use_sliding_window": False, "no_rope_layers": [1, 1, 1, 0] * 2, "layer_types": ["full_attention"] * 8}):
    ok(estimate(dict(smollm3, **more), "--precision", "bf16-mixed", "--seq", "512")[0] == 0, "SmolLM3 as published %s" % sorted(more))
gemma3 = dict(model_type="gemma3_text", hidden_size=1152, intermediate_size=6912, num_hidden_layers=12, num_attention_heads=4, num_key_value_heads=1, head_dim=256, vocab_size=262144, sliding_window=512,
              tie_word_embeddings=True)
of_gemma3 = ["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(12)]
ok(estimate(dict(gemma3, layer_types=of_gemma3), "--precision", "bf16-mixed", "--seq", "1024")[0] == 0, "Gemma 3 with its layers named", estimate(dict(gemma3, layer_types=of_gemma3), "--precision", "bf16-mixed", "--seq", "1024")[1].get("error"))
refused("Gemma 3 that attends to all", dict(gemma3, layer_types=["full_attention"] * 12), ["--seq", "1024"], 4, ["this layer_types"])
refused("Gemma 3 with names of too few layers", dict(gemma3, layer_types=of_gemma3[:6]), ["--seq", "1024"], 4, ["12 entries"])
refused("Gemma 3 of another pattern", dict(gemma3, sliding_window_pattern=4), ["--seq", "1024"], 4, ["this sliding_window_pattern"])
modern = dict(model_type="modernbert", architectures=["ModernBertForMaskedLM"], hidden_size=768, intermediate_size=1152, num_hidden_layers=7, num_attention_heads=12, vocab_size=50368, classifier_pooling="mean")
of_modern = ["full_attention" if i % 3 == 0 else "sliding_attention" for i in range(7)]
for more in ({}, {"global_attn_every_n_layers": 3}, {"layer_types": of_modern}):
    ok(estimate(dict(modern, **more), "--precision", "bf16-mixed", "--seq", "512")[0] == 0, "ModernBERT as published %s" % sorted(more))
refused("ModernBERT that attends to all in other layers", dict(modern, layer_types=of_modern[1:] + of_modern[:1]), ["--seq", "512"], 4, ["this layer_types"])
refused("ModernBERT of another pattern", dict(modern, global_attn_every_n_layers=2), ["--seq", "512"], 4, ["this global_attn_every_n_layers"])
qwen2 = dict(model_type="qwen2", hidden_size=896, intermediate_size=4864, num_hidden_layers=4, num_attention_heads=14, num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True)
refused("Qwen's window", dict(qwen2, use_sliding_window=True, sliding_window=256, max_window_layers=2), ["--seq", "512"], 4, ["use_sliding_window"])
ok(estimate(dict(qwen2, use_sliding_window=True, sliding_window=256, max_window_layers=4), "--seq", "512")[0] == 0, "a window of layers that there are none of")
of_delta = (["linear_attention"] * 3 + ["full_attention"]) * 2
delta = dict(model_type="qwen3_5", architectures=["Qwen3_5ForConditionalGeneration"], vision_config={"model_type": "qwen3_5"}, tie_word_embeddings=True,
             text_config=dict(hidden_size=2560, intermediate_size=9216, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4, head_dim=256, linear_num_key_heads=16,
                              linear_num_value_heads=32, vocab_size=248320, tie_word_embeddings=True, layer_types=of_delta, rope_parameters={"rope_type": "default", "partial_rotary_factor": 0.25}))
rc, j = estimate(delta, "--precision", "bf16", "--seq", "1000")
whole = j["reserved_peak_bytes"] if rc == 0 else j
ok(rc == 0 and any("flash-linear-attention and causal-conv1d" in a for a in j["assumptions"]) and any("text alone" in a and "no tower" in a for a in j["assumptions"]),
   "Qwen 3.5's text, and which kernels its linear attention has", j)
rc, j = estimate(dict(delta["text_config"], model_type="qwen3_5_text", architectures=["Qwen3_5ForCausalLM"]), "--precision", "bf16", "--seq", "1000")
ok(rc == 0 and j["reserved_peak_bytes"] == whole, "the same as a config of texts", (j, whole))
for what, part, words in (("heads of linear attention that were not recorded", dict(linear_key_head_dim=64), ["recorded with 128"]), ("layers in another order", dict(layer_types=of_delta[::-1]), ["this layer_types"]),
                          ("value heads that are no multiple of key heads", dict(linear_num_key_heads=24), ["32 value heads", "24 key heads"]),
                          ("layers that attend in other places", dict(layer_types=None, full_attention_interval=2), ["full_attention_interval"])):
    refused("Qwen 3.5, " + what, dict(delta, text_config=dict(delta["text_config"], **part)), ["--precision", "bf16", "--seq", "512"], 4, words)
refused("Qwen 3.5 cut over cards", delta, ["--precision", "bf16", "--seq", "512", "--world", "2", "--parallel", "fsdp2"], 4, ["not all alike"])
refused("Qwen 3.5 put together from a Llama's", delta, ["--precision", "bf16", "--seq", "512", "--attention", "eager"], 4, ["eager"])
moe = dict(model_type="mixtral", hidden_size=1024, intermediate_size=2048, num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=4, vocab_size=32000, num_local_experts=4, tie_word_embeddings=False)
refused("more experts for a token than there are", dict(moe, num_experts_per_tok=5), ["--precision", "bf16-mixed", "--seq", "512"], 4, ["does not run", "topk"])

# ---- a family without sdpa runs eager attention on every card; fp16 where it was recorded, and a refusal that says the formats apart ----
for card in ("h100", "t4"):
    j = json.loads(subprocess.run([vplan, "estimate", "gpt-neo-125m", "--trainer", "hf", "--device", card, "--micro-batch", "1", "--json"], stdout=subprocess.PIPE).stdout)
    ok(j.get("fits") and any("so eager" in x for x in j["assumptions"]), "GPT-Neo on %s" % card, j.get("error", j.get("assumptions")))
p = subprocess.run([vplan, "estimate", "llama-3.2-1b", "--lora", "--attention", "eager", "--device", "t4", "--micro-batch", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
ok(p.returncode == 4 and "--precision fp16-amp is not" in p.stderr and "nearest that was has --precision bf16" in p.stderr, "formats that differ are said apart", p.stderr)

# ---- what is printed to be typed runs; where plan would refuse (options that it lacks, an optimizer that a plain loop is
# not told) it is the largest batch ----
for words, has_plan in (("--trainer hf --liger --seq 512 --micro-batch 1", True), ("--trainer hf --loss liger --seq 512 --micro-batch 1", True), ("--trainer hf --eval-batch 4 --seq 256 --micro-batch 1", True),
                        ("--trainer trl --method dpo --seq 256 --micro-batch 1", False), ("--trainer hf --seq 256 --micro-batch 1 --accumulation 2 -q", True),
                        ("--trainer trl --packing 4 --attention fa2 --seq 256 --micro-batch 1", False), ("--trainer torch --optimizer adamw_8bit --seq 256 --micro-batch 1", False),
                        ("--trainer hf --optimizer sgd_momentum --seq 256 --micro-batch 1", True), ("--trainer hf --precision bf16 --device t4 --seq 256 --micro-batch 1", True),
                        ("--trainer hf --precision fp16-mixed --device t4 --seq 256 --micro-batch 1", True), ("--trainer hf --padding mask --seq 256 --micro-batch 2", True),
                        ("--trainer hf --seq 256 --micro-batch 1 --world 2 --parallel zero2 --offload optimizer", True)):
    card = () if "--device" in words else ("--device", "4090")
    p = subprocess.run([vplan, "estimate", "smollm2-135m", *card, *words.split()], stdout=subprocess.PIPE, text=True)
    following = " ".join(p.stdout[p.stdout.find("\nnext ") + 5:].replace("\\\n", " ").split()) if "\nnext " in p.stdout else ""
    ok(p.returncode == 0 and following.startswith("vplan plan" if has_plan else "vplan estimate"), "next: plan only where it answers: " + words, following)
    q = subprocess.run([vplan, *following.split()[1:-2 if has_plan else None]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ok(q.returncode == 0 and following.endswith("-o settings.json" if has_plan else "--max micro-batch"), "and it does: " + words, (following, q.stderr))
for words, want in (("--lora r=8,targets=all-linear,r=16", "r=16"), ("--lora rslora,r=8,rslora", "rslora"), ("--qlora --load none", "--load none"), ("--qlora --load int8", "--load int8")):
    p = subprocess.run([vplan, "estimate", "smollm2-135m", "--trainer", "hf", *words.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ok(p.returncode == 2 and want in p.stderr, "contradicts itself: " + words, (p.returncode, p.stderr))
fewer = [vplan, "estimate", "llama-3.2-1b", "--device", "4080", "--seq", "512", "--micro-batch", "2"]
j = json.loads(subprocess.run(fewer + ["--trainer", "trl", "--method", "dpo", "--json"], stdout=subprocess.PIPE).stdout)
ok("--world" not in j["fits_with"]["options"] and j["remedies"] and not any("--world" in r["option"] for r in j["remedies"]), "DPO: no more cards are advised than it takes", j["remedies"])
quantised = [json.loads(subprocess.run(fewer + ["--trainer", "trl", "--method", "dpo", *more, "--json"], stdout=subprocess.PIPE).stdout) for more in ((), j["fits_with"]["options"].split())]
ok(quantised[1]["fits"] and quantised[1]["device_bytes"] == j["fits_with"]["device_bytes"] and quantised[1]["settings"]["precision"] == "bf16-amp",
   "DPO over quantised weights is in bf16", quantised[1]["settings"])
p = subprocess.run(fewer + ["--trainer", "trl", "--qlora", "--precision", "fp16-amp", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
ok(p.returncode == 4 and b"GradScaler" in p.stdout, "TRL's fp16 over quantised weights is refused", p.stdout[:300])
none = [vplan, "estimate", "olmo-7b", "--trainer", "hf", "--device", "l4", "--budget", "4GiB", "--seq", "512", "--micro-batch", "2"]
text = " ".join(subprocess.run(none, stdout=subprocess.PIPE, text=True).stdout.split())
ok("or adapters, whose step was not recorded" in text, "adapters that nobody tried are no dead end", text[:300])
both = [json.loads(subprocess.run(fewer + ["--trainer", "hf", "--liger", "--json", *more], stdout=subprocess.PIPE).stdout).get("device_bytes") for more in ((), ("--loss", "liger"))]
ok(both[0] and both[0] == both[1], "--liger beside --loss liger is --liger", both)

# ---- peft's methods other than LoRA: their own words, what they do not go with, virtual tokens beside those of the dataset ----
for words, code, said in (("ia3", 0, []), ("prompt:tokens=20", 0, []), ("prefix:tokens=20", 0, []), ("prompt", 2, ["how many"]), ("prompt:tokens=0", 2, ["1 to 3072"]),
                          ("prefix:tokens=1", 2, ["2 to 3072"]), ("prompt:tokens=5x", 2, ["5x"]), ("ia3:tokens=5", 2, ["ia3", "prompt"]), ("lora", 2, ["--lora"]),
                          ("ia3 --lora r=8", 2, ["one of the two"]), ("ia3 --qlora", 2, ["one of the two"]), ("ia3 --load nf4", 4, ["quantised"]),
                          ("prefix:tokens=20 --recompute full", 4, ["peft refuses"]), ("prefix:tokens=20 --keep-output", 4, ["keys"]),
                          ("prefix:tokens=20 --micro-batch 200", 4, ["3072"]), ("ia3 --world 2", 4, ["one card"]), ("ia3 --eval-batch 2", 4, ["evaluation", "--peft ia3"]),
                          ("prompt:tokens=20 --trainer trl", 4, ["--peft prompt"]), ("prompt:tokens=20 --trainer vplan", 2, ["--peft"]), ("prompt:tokens=20 --seq 131072", 0, [])):
    usual = [] if "--trainer" in words else ["--trainer", "torch"]
    usual += [] if "--seq" in words else ["--seq", "256"]
    p = subprocess.run([vplan, "estimate", "llama-3.2-1b", "--precision", "bf16", "--json", "--peft"] + words.split() + usual, stdout=subprocess.PIPE)
    j = json.loads(p.stdout)
    ok(p.returncode == code and all(w in j.get("error", {}).get("message", "") for w in said), "--peft %s" % words, (p.returncode, j.get("error")))
for words, method in (("ia3", {"method": "ia3"}), ("prefix:tokens=9", {"method": "prefix", "tokens": 9})):
    p = subprocess.run([vplan, "estimate", "llama-3.2-1b", "--peft", words, "--seq", "256", "--json"], stdout=subprocess.PIPE)
    j = json.loads(p.stdout)
    trained = 16 * (2 * 512 + 8192) if words == "ia3" else 9 * 16 * 2 * 512
    ok(j["trainer"] == "hf" and j["settings"]["peft"] == method and "lora" not in j["settings"] and j["model"]["params_trainable"] == trained, "--peft %s is Trainer's" % words, j["model"])
full = subprocess.run([vplan, "estimate", "gpt2", "--trainer", "torch", "--peft", "prompt:tokens=24", "--json"], stdout=subprocess.PIPE)
ok(json.loads(full.stdout)["settings"]["seq"] == 1000, "unasked, virtual tokens have their positions", full.stdout[:200])

# ---- a sequence beyond the positions of the config: an error where they are a table, said where they are rotary ----
for model, positions, learns in (("gpt2", 1024, True), ("opt-125m", 2048, True), ("bert-base-uncased", 512, True), ("roberta-base", 512, True), ("distilbert-base-uncased", 512, True),
                                 ("gpt-neo-125m", 2048, True), ("smollm2-135m", 8192, False), ("pythia-160m", 2048, False), ("olmo-7b", 2048, False), ("starcoder2-3b", 16384, False),
                                 ("phi-2", 2048, False), ("qwen3-0.6b", 40960, False)):
    for seq in positions, positions + 8:
        p = subprocess.run([vplan, "estimate", model, "--trainer", "hf", "--seq", str(seq), "--micro-batch", "1", "--json"], stdout=subprocess.PIPE)
        j = json.loads(p.stdout)
        said = [a for a in j.get("assumptions", []) if "positions the model was made for" in a]
        ok((p.returncode == 2 and "positions" in j["error"]["message"]) if learns and seq > positions else (p.returncode == 0 and len(said) == (seq > positions)),
           "%s of %d positions, %d tokens" % (model, positions, seq), (p.returncode, j.get("error"), said))
p = subprocess.run([vplan, "estimate", "gpt2", "--trainer", "torch", "--peft", "prompt:tokens=24", "--seq", "1008", "--json"], stdout=subprocess.PIPE)
ok(p.returncode == 2 and "virtual tokens" in p.stdout.decode(), "virtual tokens beyond a table", p.stdout[:200])

# ---- parts of a model that are frozen ----
for words, code, said in (("embeddings", 0, []), ("layers:8", 0, []), ("layers:14", 0, []), ("layers:15", 4, ["16 layers", "2 or more"]), ("layers:0", 2, ["layers:N"]), ("layers", 2, ["layers:N"]), ("layers:2x", 2, ["layers:N"]),
                          ("head", 2, ["embeddings"]), ("layers:2 --lora r=8", 2, ["leave one"]), ("layers:2 --peft ia3", 2, ["leave one"]), ("layers:2 --world 2", 4, ["one card"]),
                          ("layers:2 --eval-batch 2", 4, ["evaluation", "--freeze"]), ("layers:2 --liger", 4, ["--freeze"])):
    p = subprocess.run([vplan, "estimate", "llama-3.2-1b", "--trainer", "hf", "--precision", "bf16", "--seq", "256", "--micro-batch", "2", "--json", "--freeze"] + words.split(), stdout=subprocess.PIPE)
    j = json.loads(p.stdout)
    ok(p.returncode == code and all(w in j.get("error", {}).get("message", "") for w in said), "--freeze %s" % words, (p.returncode, j.get("error")))
    if code == 0:
        of_table, of_layer = 128256 * 2048, 2048 * (2 * 2048 + 2 * 512 + 3 * 8192 + 2)
        frozen = of_table + of_layer * int(words.partition(":")[2] or 0)
        ok(j["model"]["params_total"] - j["model"]["params_trainable"] == frozen and j["settings"]["freeze"] == words, "what --freeze %s leaves" % words, j["model"])
p = subprocess.run([vplan, "estimate", "llama-3.2-1b", "--freeze", "layers:8", "--seq", "256"], stdout=subprocess.PIPE, text=True)
ok("the embeddings and the first 8 layers" in p.stdout, "what is frozen is said", p.stdout)

# ---- a decoder with a head of classes and no padding token does not run with several samples, and that is said ----
for more, batch, said in (({}, 2, True), ({}, 1, False), ({"pad_token_id": 0}, 2, False)):
    rc, j = estimate(dict({k: v for k, v in llama.items() if k != "pad_token_id"}, architectures=["LlamaForSequenceClassification"], num_labels=3, **more), "--trainer", "hf", "--precision", "bf16-amp", "--seq", "256", "--micro-batch", str(batch))
    ok(rc == 0 and any("pad_token_id is set" in a for a in j["assumptions"]) == said, "a head of classes, %s, %d samples" % (more, batch), (rc, j.get("error"), j.get("assumptions")))

# ---- libraries ----
for text, code in (("torch=2.11,transformers=5.17", 0), ("torch=2.11.0", 0), ("torch=2.1", 4), ("torch=2.11,transformers=4.57", 0), ("transformers=5.24", 0), ("transformers=4.5", 4), ("transformers=4.57.6,peft=0.21", 0),
                   ("jax=1", 2), ("torch=", 2)):
    rc, j = estimate(llama, "--precision", "bf16", "--seq", "512", "--versions", text)
    ok(rc == code and (rc != 4 or "2.11.0" in j["error"]["message"]), "versions %s" % text, (rc, j.get("error")))
    ok(code != 4 or "5.17.0" in j["error"]["message"] and "4.57.6" in j["error"]["message"], "what is known besides %s" % text, j.get("error"))
# the recording's own program, less the second copy of the frequencies, and a mask of 8 bytes for each of 1,024 tokens
now, before = [estimate(llama, "--precision", "bf16", "--recompute", "full:reentrant", "--seq", "512", "--micro-batch", "2", *v)[1] for v in ((), ("--versions", "transformers=4.57"))]
ok(before["allocated_peak_bytes"] - now["allocated_peak_bytes"] == 8 * 1024 - 512 and before["phases"][0]["allocated_bytes"] == now["phases"][0]["allocated_bytes"] - 512,
   "transformers 4.57: what is otherwise", (before["allocated_peak_bytes"], now["allocated_peak_bytes"]))
ok("libraries: torch=2.11.0 transformers=4.57.6 peft=0.18.1" in before["assumptions"] and "libraries: torch=2.11.0 transformers=5.17.0 peft=0.21.2" in now["assumptions"],
   "the versions that an answer stands for", before["assumptions"])
for words in ("a mask of ones", "use_reentrant=True, transformers 4's own default", "torch_dtype"):
    ok(any(words in x for x in before["assumptions"]) and not any(words in x for x in now["assumptions"]), "a default that was another: %s" % words, before["assumptions"])
# gradient checkpointing is by use_reentrant=True there unless somebody says otherwise
OLD = ("--seq", "512", "--micro-batch", "2", "--versions", "transformers=4.57")
for precision in ("bf16-mixed", "bf16"):
    unsaid, by_true, by_false = [estimate(llama, "--precision", precision, "--recompute", word, *OLD)[1] for word in ("full", "full:reentrant", "full:non-reentrant")]
    ok(unsaid["phases"] == by_true["phases"] and unsaid["settings"]["recompute"] == "full:reentrant" and unsaid["phases"] != by_false["phases"] and by_false["settings"]["recompute"] == "full",
       "transformers 4.57 in %s: checkpoints by use_reentrant=True" % precision, [x.get("error") for x in (unsaid, by_true, by_false)])
# where those by True were not recorded, and on several cards, those by False stand in, and that is said
opt = dict(model_type="opt", hidden_size=128, num_attention_heads=4, ffn_dim=512, vocab_size=512, num_hidden_layers=4, max_position_embeddings=512, word_embed_proj_dim=128)
for config, words in ((opt, ()), (llama, ("--world", "2", "--parallel", "ddp")), (llama, ("--attention", "eager"))):
    by_false, by_true = [estimate(config, "--precision", "bf16", "--recompute", word, "--seq", "256", "--micro-batch", "2", *words)[1] for word in ("full", "full:reentrant")]
    text = [a for a in by_true.get("assumptions", ()) if "use_reentrant=True were not recorded" in a]
    same = [[(p["allocated_bytes"], p["reserved_bytes"]) for p in x.get("phases", ())] for x in (by_false, by_true)]
    ok(same[0] and same[0] == same[1] and len(text) == 1 and by_true["interval"]["high_bytes"] > by_false["interval"]["high_bytes"],
       "what stands in for use_reentrant=True, %s %s" % (config["model_type"], words), (by_true.get("error"), text))
by_true = estimate(llama, "--precision", "bf16", "--recompute", "full:reentrant", "--seq", "256", "--micro-batch", "2")[1]
ok(not any("stand in" in a for a in by_true["assumptions"]), "nothing stands in where it was recorded", by_true["assumptions"])
rc, j = estimate(llama, "--precision", "bf16", "--recompute", "full:re", "--seq", "256")
ok(rc == 4 and "full:reentrant" in j["error"]["message"], "full: and another word", (rc, j))
ok(any("use_cache" in x for x in estimate(llama, "--precision", "bf16-mixed", "--seq", "512", "--versions", "transformers=4.57")[1]["assumptions"]), "without checkpoints the cache is named")
for words in (("--world", "2", "--parallel", "ddp"), ("--recompute", "every:2"), ("--attention", "eager", "--recompute", "full")):
    rc, j = estimate(llama, "--precision", "bf16", "--seq", "512", "--versions", "transformers=4.57", *words)
    ok(rc == 4 and "--versions" in j["error"]["message"] and "5.17.0" in j["error"]["message"], "with 4.57 not played: %s" % (words,), (rc, j.get("error")))

# ---- what was measured: nothing is off of an estimate's own figures; what differs is named where it begins ----
def with_measured(figures):
    path = os.path.join(scratch, "seen.txt")
    open(path, "w").write("# seen\n" + "".join("%s %d\n" % x for x in figures.items()))
    return estimate(llama, "--precision", "bf16", "--device", "h100", "--seq", "512", "--measured", path)[1]


j = estimate(llama, "--precision", "bf16", "--device", "h100", "--seq", "512")[1]
highest = {name: max(p["allocated_bytes"] for p in j["phases"] if p["name"].startswith(name)) for name in ("load", "forward", "backward", "step")}
figures = dict(highest, reserved=j["reserved_peak_bytes"], process=j["device_bytes"])
got = with_measured(figures)["measured"]
ok(got["likely"] is None and all(got[x]["off_bytes"] == 0 for x in figures), "measured as estimated: nothing is off", got)
more = j["peak_bytes"] // 4
for changed_, words in (({"load": more, "forward": more, "backward": more, "step": more, "reserved": more}, "weights"), ({"step": more}, "optimizer"),
                        ({"backward": more, "reserved": more}, "logits"), ({"reserved": more}, "cache"),
                        ({"forward": more, "backward": more, "reserved": more}, "activations")):
    got = with_measured({x: n + changed_.get(x, 0) for x, n in figures.items() if x != "process"})["measured"]
    ok(words in (got["likely"] or ""), "measured: %s" % words, got["likely"])
bad = with_measured({"allocated": 5 << 30, "reserved": 4 << 30})
ok(bad.get("error", {}).get("field") == "reserved" or "allocated" in bad["error"]["message"], "more allocated than reserved is not what was seen", bad)
got = with_measured({"reserved": 10 << 30, "process": (10 << 30) + 123456789})
ok(got["device_bytes"] == got["reserved_peak_bytes"] + 123456789 and any("123456789" in x for x in got["assumptions"]),
   "the context is as measured, and named", got["assumptions"])
for text, words in (("load\n", [":1", "load"]), ("weights 3\n", [":1", "none of"]), ("# x\n", ["nothing"]), ("step 1GiB\nstep 1GiB\n", [":2", "twice"]),
                    ("reserved 2GiB\nprocess 1GiB\n", ["less"])):
    p = subprocess.run([vplan, "estimate", "gpt2", "--trainer", "torch", "--measured", "-"], input=text, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, text=True)
    ok(p.returncode == 4 and all(w in p.stderr for w in words), "nothing measured: %r" % text, p.stderr)

# ---- samples of different lengths: three of 512 tokens, one of 1,024, in batches of 2 drawn by chance ----
def with_lengths(text, *options):
    path = os.path.join(scratch, "lengths.txt")
    open(path, "w").write(text)
    return estimate(llama, "--precision", "bf16", "--length-histogram", path, *options)


rc, j = with_lengths("# tokens, samples\n1024\n512, 2\n512\n", "--micro-batch", "2")
got = j.get("lengths", {})
# the longest of two is 512 in 9 of 16; neighbours: 512 512, 512 1024 are 3,072 tokens for 2,560
for key, want in (("samples", 4), ("shortest", 512), ("longest", 1024), ("mean", 640), ("longest_of_batch", 512 * 9 / 16 + 1024 * 7 / 16),
                  ("share_of_longest", 7 / 16), ("padding", 1 - 640 / 736), ("padding_bucketed", 1 - 2560 / 3072)):
    ok(abs(got.get(key, -1) - want) < 1e-9, "lengths: %s" % key, (got.get(key), want))
there = [estimate(llama, "--precision", "bf16", "--micro-batch", "2", "--seq", seq, "--padding", mask)[1]["device_bytes"]
         for seq, mask in (("1024", "mask"), ("736", "mask"), ("1024", "none"))]
ok([j["device_bytes"], got["typical"]["device_bytes"], got["packed"]["device_bytes"]] == there, "lengths: the longest batch decides", (got, there))
rc, j = with_lengths("1024\n512 3\n", "--micro-batch", "2", "--seq", "512")
ok((j["settings"]["seq"], j["lengths"]["padding"]) == (512, 0), "lengths are cut to --seq", j.get("lengths"))
for text, words in (("512\nmany\n", [":2", "no length"]), ("", ["holds no length"]), ("0\n", [":1"]), ("5 5 5\n", [":1"]), ("9 -1\n", [":1"])):
    p = subprocess.run([vplan, "estimate", "gpt2", "--trainer", "torch", "--length-histogram", "-"], input=text, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, text=True)
    ok(p.returncode == 4 and all(w in p.stderr for w in words), "no lengths: %r" % text, p.stderr)

# ---- a full card: settings between allocated and reserved bytes, whose verdict PyTorch's own allocator gave (tests/oracles/programs/limits.py) ----
del os.environ["VPLAN_NULL_ADDRESSES"]         # these were played as a card's driver gives addresses
limits = list(csv.DictReader(open("tests/golden/limits/verdicts.csv")))
# played, one has 0.02 % of its card left, and is refused; one reserves less than its card though the drawing thought more
REFUSED, UNRETURNED = ("gpt2", "3007922566"), ("qwen2.5-0.5b", "11466497744")
for r in limits:
    options = [w for k in ("micro_batch", "seq", "recompute", "precision", "accumulation", "budget") for w in ("--" + k.replace("_", "-"), r[k])]
    command = [vplan, "estimate", r["model"], "--trainer", "hf", "--device", "h100"] + options
    j = json.loads(subprocess.run(command + ["--json"], stdout=subprocess.PIPE).stdout)
    which = (r["model"], r["budget"])
    ok(j["fits"] == (r["fits"] == "1" and which != REFUSED), "verdict: " + " ".join(command[2:]), (r["fits"], j["device_bytes"]))
    ok(("cache_returns_per_step" in j) == (j["fits"] and which != UNRETURNED) and j["fits"] == (j["device_bytes"] <= int(r["budget"])), "and its bytes: " + " ".join(command[2:]), j["device_bytes"])
    if j["fits"] and which != UNRETURNED:
        ok("giving back its cache" in " ".join(subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout.split()), "people are told so", r)
ok({r["fits"] for r in limits} == {"0", "1"} and len(limits) >= 12, "both verdicts", len(limits))

once = estimate(llama, "--precision", "bf16-mixed", *small)[1]
more = estimate(llama, "--precision", "bf16-mixed", "--accumulation", "4", *small)[1]
ok(more["allocated_peak_bytes"] >= once["allocated_peak_bytes"], "gradients that are kept do not make the peak lower")
huge = dict(llama, hidden_size=8192, num_attention_heads=64, head_dim=128, intermediate_size=28672, num_hidden_layers=80,
            tie_word_embeddings=False)
spent = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])  # of processors: others may be busy beside
best = 1e9
for _ in range(5):
    start = spent()
    rc, j = estimate(huge, "--precision", "bf16", "--seq", "4096")
    best = min(best, spent() - start)
ok(rc == 0 and best < 0.25, "80 layers at once", "%.3f s" % best)
# ---- where nothing makes it fit the next command is one that helps: the same on a card that holds it, or on the largest, which says what fits there ----
def screen(*words):
    p = subprocess.run([vplan, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    typed = p.stdout.replace("\\\n", " ").rpartition("\nnext ")[2].split("\n")[0].split()
    ok(p.returncode in (0, 3) and max(map(len, p.stdout.split("\n"))) <= 80, "80 columns: " + " ".join(words), (p.returncode, p.stderr, [l for l in p.stdout.split("\n") if len(l) > 80]))
    return p.returncode, p.stdout, typed[1:]


NOTHING = "none of the changes"
FOLLOWED = ((("llama-3.1-8b", "--trainer", "hf", "--device", "t4", "--lora", "r=16"), "fits"), (("llama-2-70b", "--trainer", "trl", "--device", "4090", "--qlora", "--lora", "r=16", "--budget", "10GiB"), "fits"),
            (("llama-3.1-405b", "--trainer", "trl", "--device", "t4"), "changes"), (("llama-3.1-405b", "--trainer", "torch", "--device", "t4", "--lora", "r=16"), "models"), (("llama-2-70b", "--trainer", "torch", "--device", "4090", "--micro-batch", "64", "--seq", "4096", "--qlora"), "changes"))
for words, end in FOLLOWED:
    code, out, typed = screen("estimate", *words)
    ok(code == 3 and NOTHING in out and typed[:2] == ["estimate", words[0]] and "--budget" not in typed, "next: another card for " + " ".join(words), typed)
    code, out, typed = screen(*typed)
    ok({"fits": code == 0, "changes": code == 3 and "fits with  --" in out.replace("\n", " "), "models": code == 3 and NOTHING in out.replace("\n           ", " ") and typed == ["models"]}[end], "and there it is answered: " + " ".join(words), (code, typed, out))
# figures of any size stand in their columns
for words in (("llama-3.1-405b", "--trainer", "trl", "--device", "4090", "--micro-batch", "4096", "--seq", "131072", "--lora", "r=16"), ("llama-3.1-405b", "--device", "h200", "--micro-batch", "4096", "--seq", "131072"),
              ("llama-3.1-405b", "--device", "h200", "--micro-batch", "4096", "--seq", "131072", "--all"), ("llama-3.1-8b", "--trainer", "hf", "--device", "h200", "--micro-batch", "64", "--seq", "131072", "--all")):
    screen("estimate", *words)
finish()
P
