#!/bin/bash
# tests/test_worlds.sh: `vplan estimate --trainer torch --world N` against training steps of rank 0 under DDP, FSDP and ZeRO that PyTorch's own
# allocator counted (tests/golden/trainers/worlds.csv), parts by hand, and what it refuses. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
python3 - "${BUILD:-build}" <<'P'
import csv, json, os, subprocess, sys, tempfile

sys.path[:0] = ["tests"]
from check import finish, ok

vplan = os.path.join(sys.argv[1], "vplan")
scratch = tempfile.mkdtemp()
PHASES = ["load"] + ["%s%d" % (n, i) for i in (1, 2) for n in ("forward", "backward", "step")]


def estimate(config, *options):
    path = os.path.join(scratch, "config.json")
    json.dump(config, open(path, "w"))
    p = subprocess.run([vplan, "estimate", path, *(() if "--trainer" in options else ("--trainer", "torch")), "--json", *options], stdout=subprocess.PIPE)
    return p.returncode, json.loads(p.stdout)


def refused(what, code, words, config, *options):
    rc, j = estimate(config, *options)
    message = j.get("error", {}).get("message", "")
    ok(rc == code and all(w in message for w in words), what, "%d %s" % (rc, message))


# ---- what PyTorch fails at: positions that FSDP2 casts in forward and not where a layer is recomputed (played: tests/oracles/programs/worlds.py) ----
olmo = dict(model_type="olmo2", architectures=["Olmo2ForCausalLM"], hidden_size=2048, num_attention_heads=16, num_key_value_heads=16, intermediate_size=8192, vocab_size=100352,
            num_hidden_layers=4, max_position_embeddings=4096, tie_word_embeddings=False)
for words, code in (("--parallel fsdp2 --recompute full", 4), ("--parallel fsdp --recompute full", 0), ("--parallel fsdp2 --recompute none", 0), ("--parallel zero3 --recompute full", 0),
                    ("--parallel fsdp2 --recompute full --precision bf16", 0)):
    rc, j = estimate(olmo, "--trainer", "hf", "--world", "2", "--seq", "512", "--micro-batch", "2", *words.split())
    ok(rc == code and (rc == 0 or "CheckpointError" in j["error"]["message"]), "OLMo 2: " + words, (rc, j.get("error")))

# ---- rows ----
rows, adapted, synced, single, quantised, trained, parted, drawn, asked = [list(csv.DictReader(line for line in open("tests/golden/trainers/" + name) if not line.startswith("#")))
                         for name in ("worlds.csv", "adapted_worlds.csv", "synced_worlds.csv", "single_worlds.csv", "quantised_worlds.csv", "trained_worlds.csv", "parted_worlds.csv", "drawn_worlds.csv", "asked_worlds.csv")]
for r in synced:
    r["synced"] = "each micro-batch is reduced"
off = {}
for r in trained + asked:
    r["trainer"] = "hf"
for r in rows + adapted + synced + single + quantised + trained + parted + drawn + asked:
    name = " ".join(r[k] for k in ("model", "parallel", "world", "offload", "precision", "recompute", "optimizer", "accumulation", "load", "lora_dropout", "liger", "synced") if k in r)
    options = [x for k in ("world", "parallel", "precision", "attention", "recompute", "optimizer", "micro_batch", "seq", "accumulation")
               for x in ("--" + k.replace("_", "-"), r[k])]
    options += ["--sync-each-batch"] if "synced" in r else []
    options += ["--lora", "r=%s,targets=%s%s" % (r["r"], r["lora"], ",dropout=0.1" * (r.get("lora_dropout") == "1")), "--load", r["load"]] if r.get("lora", "none") != "none" else []
    options += ["--liger"] if r.get("liger", "none") != "none" else []
    options += ["--trainer", "hf"] if "trainer" in r or r.get("lora", "none") != "none" and r["parallel"] == "fsdp" else []         # which wraps adapters
    rc, j = estimate(json.loads(r["config"]), *options, "--offload", r["offload"])
    if not ok(rc == 0, name, j.get("error")):
        continue
    ok(all(sum(i["bytes"] for i in p["items"]) == p["allocated_bytes"] for p in j["phases"]), "%s: items sum to each phase" % name)
    phases = {}
    for p in j["phases"]:        # "forward1.2" is of the second micro-batch
        phases[p["name"].split(".")[0]] = max(phases.get(p["name"].split(".")[0], 0), p["allocated_bytes"])
    ok((j["host_bytes"] > 0) == (r["offload"] != "none"), "%s: host memory" % name, j["host_bytes"])
    worst = max(int(r["allocated_" + p]) for p in PHASES)
    error = j["allocated_peak_bytes"] / worst - 1
    off.setdefault(r["parallel"], []).append(abs(error))
    recast = r in asked and r["parallel"] == "fsdp" and r["lora"] != "none" and r["liger"] != "none" and r["recompute"] == "full"         # what goes into a layer's last adapter, which is whole by then, is not cast as it is computed anew; the one card's step that stands in casts it
    most = 0.03 if recast and error > 0 else 0.002 if r in asked and r["load"] != "none" else 0.01 if r not in asked or r["model"] == "qwen3-0.6b" else 0.004
    ok(abs(error) <= most, "%s: allocated" % name, "%+.3f %%" % (100 * error))
    if r in trained:
        beyond = {p for p in PHASES[1:] if abs(phases[p] / int(r["allocated_" + p]) - 1) > 0.001}
        ok(abs(error) <= 0.001 and not beyond, "%s: Trainer's DDP" % name, (error, beyond, phases))
    if r in parted:
        ok(abs(error) <= 0.005, "%s: the first layers" % name, "%+.3f %%" % (100 * error))
    if r in drawn:
        ok(abs(error) <= 0.005, "%s: drawn" % name, "%+.3f %%" % (100 * error))
    wide = 0.003 if r in trained else 0.02 if r in quantised else 0.08 if r.get("load", "none") != "none" else {"ddp": 0.01, "fsdp": 0.01, "fsdp2": 0.10, "zero3": 0.17 if r.get("lora", "none") != "none" else 0.11 if r in parted else 0.06}.get(r["parallel"], 0.01)
    wide = 0.12 if (r["parallel"], r["offload"], r["precision"]) == ("fsdp", "params", "fp32") else wide         # a segment for a table's gradient more
    error = j["reserved_peak_bytes"] / int(r["reserved"]) - 1
    ok((-0.04 if r["parallel"] == "zero3" else -wide) <= error <= wide, "%s: reserved" % name, "%+.3f %%" % (100 * error))
    for p in PHASES if r["parallel"] == "zero3" or r in quantised else PHASES[1:]:
        there = int(r["allocated_" + p])
        ok(abs(phases[p] - there) <= (0.035 if r not in quantised else 0.004) * there, "%s: %s" % (name, p), "%d for %d" % (phases[p], there))
ok({r["world"] for r in rows} == {"2", "4", "8"} and len({r["model"] for r in rows}) >= 3 and set(off) >= {"ddp", "fsdp", "fsdp2", "zero1", "zero2", "zero3"},
   "worlds, models and ways", sorted(off))
for way, most in (("ddp", 0.002), ("fsdp", 0.0005), ("fsdp2", 0.0005), ("zero1", 0.0001), ("zero2", 0.0001), ("zero3", 0.001)):
    ok(sorted(off[way])[len(off[way]) // 2] <= most, "half of the rows of " + way, sorted(off[way]))
allocated = sorted(x for list_ in off.values() for x in list_)
ok(len(allocated) >= 50 and allocated[len(allocated) * 95 // 100] <= 0.01, "95 in 100 are within 1 %", allocated[-5:])

# ---- what people start: the files that emit writes, by accelerate launch ----
launched = list(csv.DictReader(line for line in open("tests/golden/trainers/launched_worlds.csv") if not line.startswith("#")))
far = {}
for r in launched:
    name = " ".join(["launched"] + [r[k] for k in r if k not in ("config", "allocated", "reserved")])
    options = [x for k in ("trainer", "world", "parallel", "precision", "recompute", "optimizer", "micro_batch", "seq", "accumulation") for x in ("--" + k.replace("_", "-"), r[k])]
    options += ["--lora", "r=%s,targets=%s" % (r["r"], r["lora"]), "--load", r["load"]] if r["lora"] != "none" else []
    rc, j = estimate(json.loads(r["config"]), *options, "--offload", r["offload"].split("+")[-1], *["--liger"] * int(r["liger"]), *["--method", "dpo"] * (r["method"] == "dpo"))
    if not ok(rc == 0, name, j.get("error")):
        continue
    for what, there in (("allocated", j["allocated_peak_bytes"]), ("reserved", j["reserved_peak_bytes"])):
        far.setdefault(what, []).append(abs(there / int(r[what]) - 1))
        hole = r["parallel"] == "zero3" and (r["offload"] != "none" or r["lora"] != "none" and (r["recompute"] == "none" or r["trainer"] == "trl"))         # a block of logits, or of a layer's weights, that something small lies in, or not
        off_by_a_part = (r["model"], r["parallel"]) == ("mistral-7b-4", "zero3") and r["lora"] != "none" or (r["model"], r["parallel"]) == ("qwen3-0.6b", "fsdp2") and r["trainer"] == "trl"         # of four wide layers half a weight that is in its bucket yet; Qwen 3's norms of heads, as in Trainer's rows
        ok(far[what][-1] <= {"allocated": 0.014 if off_by_a_part else 0.006 if r["trainer"] == "trl" else 0.004, "reserved": 0.08 if hole else 0.03}[what], "%s: %s" % (name, what), "%+.3f %%" % (100 * (there / int(r[what]) - 1)))
ok(len(far["allocated"]) >= 50 and sorted(far["allocated"])[len(launched) // 2] <= 0.0005 and sorted(far["reserved"])[len(launched) // 2] <= 0.005, "half of what is launched", far)

# ---- whole models by use_reentrant=True were not played by several cards: those by False stand in, as they are ----
small = json.loads(launched[0]["config"])
(rc, j), (rc2, j2) = [estimate(small, "--trainer", "hf", "--world", "4", "--parallel", "zero3", "--precision", "bf16-mixed", "--seq", "256", "--recompute", x) for x in ("full", "full:reentrant")]
bytes_of = lambda answer: [(p["name"], p["allocated_bytes"], p["reserved_bytes"], p["items"]) for p in answer["phases"]]
ok(rc == rc2 == 0 and bytes_of(j) == bytes_of(j2) and any("those by False stand in" in a for a in j2["assumptions"]), "whole models by use_reentrant=True under ZeRO 3", (rc, rc2, j2.get("error")))

# ---- parts by hand: GPT-2's table has 50257 rows, of which rank 0 of 8 holds 6283; everything in 512-byte blocks ----
gpt2 = json.loads(next(r["config"] for r in rows if r["model"] == "gpt2"))
h, f, eighth = 768, 3072, lambda n: -(-n // 8)
weights = [6283 * h, eighth(1024) * h] + 12 * [eighth(n) for n in (h, h, 3 * h * h, 3 * h, h * h, h, h, h, h * f, f, f * h, h)] + [eighth(h)] * 2
least = sum(-(-4 * n // 512) * 512 for n in weights)
rc, j = estimate(gpt2, "--world", "8", "--parallel", "fsdp2", "--precision", "bf16-mixed", "--seq", "128")
held = {p["name"]: {i["name"]: i["bytes"] for i in p["items"]} for p in j["phases"]}
ok(least <= held["inputs"]["parameters"] <= least * 1.05, "shards of FSDP2", (held["inputs"], least))
elements = 124439808
rc, j = estimate(gpt2, "--world", "4", "--parallel", "zero2", "--precision", "bf16-mixed", "--seq", "128")
held = {p["name"]: {i["name"]: i["bytes"] for i in p["items"]} for p in j["phases"]}
ok(2 * elements <= held["inputs"]["parameters"] <= 2 * elements + (1 << 20) and elements <= held["inputs"]["master_parameters"] <= elements + (1 << 20),
   "ZeRO 2: 16-bit weights whole, a quarter of them in 32 bits", held["inputs"])
ok(held["step2"].get("optimizer_state", 0) in range(2 * elements, 2 * elements + (2 << 20)), "ZeRO 2: a quarter of the states", held["step2"])
# ---- micro-batches: a card of FSDP keeps the whole gradients of all layers until the last, or an eighth of them ----
COMMON = "--world", "8", "--parallel", "fsdp2", "--precision", "bf16-mixed", "--seq", "128", "--accumulation", "2"
(rc, kept), (rc2, each) = estimate(gpt2, *COMMON), estimate(gpt2, *COMMON, "--sync-each-batch")
at = lambda j: {p["name"]: {i["name"]: i["bytes"] for i in p["items"]} for p in j["phases"]}["forward1.2"].get("gradients", 0)
ok(at(kept) in range(2 * elements, 2 * elements + (5 << 20)) and at(each) in range(elements // 2, elements // 2 + (2 << 20)) and each["settings"]["sync_each_batch"],
   "gradients between micro-batches: 16-bit whole ones, or fp32 of an eighth", (at(kept), at(each)))
(rc, kept), (rc2, each) = estimate(gpt2, *COMMON[:3], "ddp", *COMMON[4:]), estimate(gpt2, *COMMON[:3], "ddp", *COMMON[4:], "--sync-each-batch")
ok(kept["phases"] == each["phases"], "DDP keeps them anyway")
rc, one = estimate(gpt2, "--precision", "bf16-mixed", "--seq", "128")
rc, two = estimate(gpt2, "--world", "2", "--precision", "bf16-mixed", "--seq", "128")
ok(two["settings"]["parallel"] == "ddp" and two["allocated_peak_bytes"] - one["allocated_peak_bytes"] in range(4 * elements - (16 << 20), 4 * elements + (16 << 20)),
   "DDP is what is meant without a word, and has the gradients twice", two["allocated_peak_bytes"] - one["allocated_peak_bytes"])
peaks = [estimate(gpt2, "--world", str(n), "--parallel", "fsdp2", "--precision", "bf16-mixed", "--seq", "128")[1]["allocated_peak_bytes"] for n in (2, 4, 8)]
ok(peaks[0] > peaks[1] > peaks[2], "more cards, fewer bytes each", peaks)

# ---- gradients that are added up: FSDP keeps whole ones until the last micro-batch ----
rc, j = estimate(gpt2, "--world", "8", "--parallel", "fsdp2", "--precision", "bf16-mixed", "--seq", "128", "--accumulation", "2")
held = {p["name"]: {i["name"]: i["bytes"] for i in p["items"]} for p in j["phases"]}
ok(held["forward1.2"]["gradients"] >= 2 * elements and held["step1"]["gradients"] < 1.1 * 4 * elements / 8, "FSDP2 over two micro-batches",
   (held["forward1.2"], held["step1"]))

# ---- what is refused ----
llama = json.loads(next(r["config"] for r in rows if r["model"] == "tinyllama-1.1b"))
refused("a way without cards", 2, ["--world"], gpt2, "--parallel", "ddp")
refused("one card in ways that were not played", 4, ["on one card is not known"], gpt2, "--parallel", "zero3")
refused("the same of FSDP", 4, ["--parallel fsdp2 --offload params on one card"], gpt2, "--parallel", "fsdp2", "--offload", "params")
refused("one card reduces nothing", 2, ["--parallel fsdp2"], gpt2, "--sync-each-batch", "--accumulation", "2")
refused("copies beside DeepSpeed's one card", 4, ["--resident ema"], gpt2, "--parallel", "zero2", "--resident", "ema")
refused("offload without a way", 2, ["--parallel zero2 or zero3"], gpt2, "--offload", "optimizer")
lone = "--world", "4", "--parallel", "fsdp2", "--trainer", "hf", "--lora", "r=8,targets=all-linear", "--seq", "512"
refused("Liger's loss of a head that FSDP2 cuts by itself", 4, ["--liger", "not tied", "zero3"], llama, *lone, "--liger")
refused("its loss alone", 4, ["--loss liger", "not tied"], llama, *lone, "--loss", "liger")
rc, j = estimate(dict(llama, tie_word_embeddings=True), *lone, "--liger")
ok(rc == 0, "a head that is the table is gathered with it", j.get("error"))
refused("gradients that FSDP1 would lose in host memory", 4, ["last micro-batch alone", "fsdp2"], gpt2, "--world", "2", "--parallel", "fsdp", "--offload", "params", "--accumulation", "2", "--sync-each-batch")
refused("offloading what the way does not", 2, ["--offload params", "ddp"], gpt2, "--world", "2", "--offload", "params")
refused("adapters of a loop's own under FSDP1", 4, ["fsdp_auto_wrap_policy", "--trainer hf"], llama, "--world", "2", "--parallel", "fsdp", "--qlora", "--precision", "bf16-amp")
for way in ("zero2", "zero3"):
    refused("adapters of quantised weights under " + way, 4, ["adapters", way], llama, "--world", "2", "--parallel", way, "--qlora")
refused("8-bit weights are not cut", 4, ["int8", "fsdp2"], llama, "--world", "2", "--parallel", "fsdp2", "--lora", "r=8", "--load", "int8")
refused("nor packed ones beside fp32", 4, ["nf4-dq", "bf16-mixed"], llama, "--world", "2", "--parallel", "fsdp2", "--qlora", "--precision", "bf16-mixed")
refused("a step that computes in bf16 beside fp32 adapters", 4, ["quantised weights that are sharded", "whole on each GPU"], llama, "--world", "2", "--parallel", "fsdp2", "--qlora", "--precision", "bf16")
# ---- with offload accelerate puts DeepSpeedCPUAdam in the place of nearly every optimizer: two states in fp32, and it is said ----
def offloaded(optimizer):
    out = subprocess.run([vplan, "estimate", "tinyllama-1.1b", "--trainer", "hf", "--optimizer", optimizer, "--parallel", "zero2", "--offload", "optimizer", "--device", "4090", "--seq", "512", "--json"], stdout=subprocess.PIPE).stdout
    j = json.loads(out)
    return j["host_bytes"], any("DeepSpeedCPUAdam" in a for a in j["assumptions"])
adam = offloaded("adamw_torch")
ok(not adam[1] and all(offloaded(o) == (adam[0], True) for o in ("sgd", "adamw_8bit", "adafactor", "lion_8bit")), "what steps in host memory", adam)
ok(offloaded("lion_32bit")[0] < adam[0] and not offloaded("lion_32bit")[1] and not offloaded("adagrad")[1], "Lion and Adagrad have their like", offloaded("lion_32bit"))
# ---- NF4 that is cut: 154 linear weights, half a byte a weight, come whole and are cut by 8; what they are scaled by stays whole ----
linears = 968884224
rc, j = estimate(llama, "--world", "8", "--parallel", "fsdp2", "--qlora", "--precision", "bf16-amp", "--seq", "128")
held = {p["name"]: {i["name"]: i["bytes"] for i in p["items"]} for p in j["phases"]}
ok(linears // 2 * 9 // 8 <= held["load"]["quantised_parameters"] <= linears // 2 * 9 // 8 + (3 << 20) and
   linears // 16 <= held["inputs"]["quantised_parameters"] <= linears // 16 + 154 * 512, "NF4 whole beside its eighth, then the eighth", held)
rc, two = estimate(llama, "--world", "2", "--parallel", "fsdp2", "--qlora", "--precision", "bf16-amp", "--seq", "128")
ok(held["inputs"]["buffers"] == {i["name"]: i["bytes"] for p in two["phases"] if p["name"] == "inputs" for i in p["items"]}["buffers"] >= linears // 64,
   "a byte for 64 weights, whatever the number of cards", held["inputs"])
rc, one = estimate(llama, "--trainer", "hf", "--world", "8", "--parallel", "fsdp", "--qlora", "--precision", "bf16-amp", "--seq", "128")
held1 = {p["name"]: {i["name"]: i["bytes"] for i in p["items"]} for p in one["phases"]}
ok(linears // 2 <= held1["load"]["quantised_parameters"] <= linears // 2 * 17 // 16 and held1["inputs"]["quantised_parameters"] in range(linears // 16, linears // 16 + (1 << 20)),
   "FSDP1 lets whole weights go layer by layer", held1)
ok(any("bnb_4bit_quant_storage" in x for x in j["assumptions"]), "what it takes for weights to be cut is said", j["assumptions"])
# ---- Accelerate makes what FSDP trains fp32, but not what is frozen beside adapters ----
elements = 1100048384
for more, each in (([], 4), (["--lora", "r=8,targets=all-linear"], 2)):
    rc, j = estimate(llama, "--world", "8", "--parallel", "fsdp2", "--precision", "bf16-amp", "--seq", "128", *more)
    held = {i["name"]: i["bytes"] for p in j["phases"] if p["name"] == "inputs" for i in p["items"]}["frozen_parameters" if more else "parameters"]
    ok(elements * each / 8 <= held <= elements * each / 8 * 1.04, "weights of %d bytes an element" % each, held)
# ---- one card: its part is all of it, in host memory where it is told to ----
ALONE = [vplan, "estimate", "llama-3.1-8b", "--trainer", "hf", "--device", "4090", "--micro-batch", "1", "--seq", "2048", "--recompute", "full", "--json"]
advised = {r["option"]: r for r in json.loads(subprocess.run(ALONE, stdout=subprocess.PIPE).stdout)["remedies"]}
for option in "--parallel zero3 --offload params", "--parallel zero2 --offload optimizer":
    there = json.loads(subprocess.run(ALONE + option.split(), stdout=subprocess.PIPE).stdout)
    ok(option in advised and advised[option]["fits"] == there["fits"] and advised[option]["device_bytes"] == there["device_bytes"] and there["settings"]["world"] == 1, option,
       (advised.get(option), there["device_bytes"]))
ok(advised["--parallel zero3 --offload params"]["fits"], "8B, all of it, on a card of 24 GB")
p = subprocess.run([vplan, "estimate", "gpt2", "--trainer", "vplan", "--world", "2", "--json"], stdout=subprocess.PIPE)
ok(p.returncode == 2 and "--trainer" in p.stdout.decode(), "several cards are a PyTorch trainer's", p.stdout)
p = subprocess.run([vplan, "estimate", "llama-3.2-1b", "--qlora", "--world", "2", "--parallel", "zero3", "--json"], stdout=subprocess.PIPE)
ok(p.returncode == 4 and "those of ddp, fsdp and fsdp2 are" in p.stdout.decode(), "a way that is not known is not blamed on a precision", p.stdout)
# ---- what is advised runs, and takes what was said, the communicator included ----
def said(*options):
    p = subprocess.run([vplan, "estimate", "llama-3.2-1b", "--trainer", "hf", "--seq", "2048", "--json", *options], stdout=subprocess.PIPE)
    return p.returncode, json.loads(p.stdout)


for options, device, way in ((["--world", "4", "--parallel", "ddp"], "4090", "--world 4 --parallel fsdp2"), (["--world", "2", "--parallel", "zero2"], "t4", "--world 4 --parallel zero2")):
    rc, j = said("--micro-batch", "2", "--device", device, *options)
    r = [x for x in j["remedies"] if x["option"] == way]
    rc, there = said("--micro-batch", "2", "--device", device, *way.split())
    ok(len(r) == 1 and there["device_bytes"] == r[0]["device_bytes"], "advised: " + way, (j["remedies"], there["device_bytes"]))
rc, j = said("--micro-batch", "2", "--device", "4090", "--budget", "18GiB", "--world", "4", "--parallel", "ddp")
ok(rc == 3 and j["fits_with"]["options"] == "--world 4 --parallel fsdp2 --micro-batch 1 --accumulation 2 --sync-each-batch" and not j["fits_with"]["trains_adapters"], "the same training on the cards there are comes before adapters", j["fits_with"])
for name, device, way, seq, want, what in (("llama-3.1-8b", "h100", "2 zero2", "1024", "--offload optimizer --micro-batch", "host memory, where the cards alone are not enough"),
                                           ("olmo-2-32b", "4090", "4 zero3", "4096", "--offload params", "parameters in host memory, where states are not enough"),
                                           ("llama-3.1-8b", "4090", "4 zero2", "4096", "--qlora --world 4 --parallel ddp", "adapters are on each card"),
                                           ("llama-3.1-70b", "h100", "8 fsdp2", "4096", "--offload params --liger", "Liger's kernels where cards cut the weights"),
                                           ("olmo-2-32b", "h200", "8 fsdp2", "4096", "--offload params --micro-batch 1 --accumulation 8 --sync-each-batch", "gradients that are reduced with each micro-batch"),
                                           ("olmo-7b", "4090", "2 fsdp", "1024", "--world 8 --parallel fsdp", "more cards, where nothing else is enough")):
    world, way = way.split()
    asked = {"--trainer": "hf", "--seq": seq, "--device": device, "--world": world, "--parallel": way}
    j = json.loads(subprocess.run([vplan, "estimate", name, "--json", *sum(asked.items(), ())], stdout=subprocess.PIPE).stdout)
    with_ = j["fits_with"]
    if not ok(with_ and with_["options"].startswith(want), what, with_):
        continue
    options = with_["options"].split()
    kept = [w for item in asked.items() if item[0] not in options for w in item]
    p = subprocess.run([vplan, "estimate", name, "--json", *kept, *options], stdout=subprocess.PIPE)
    there = json.loads(p.stdout)
    ok(p.returncode == 0 and there["device_bytes"] == with_["device_bytes"] and there["interval"]["high_bytes"] <= there["budget_bytes"], what + ": it does", (with_, there.get("device_bytes"), there.get("interval")))
rc, j = said("--micro-batch", "2", "--device", "4090", "--resident", "ema")
ok(not [x for x in j["remedies"] if "--world" in x["option"]], "a copy that stays is not cut", j["remedies"])
finish()
P
