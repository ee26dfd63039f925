#!/bin/bash
# tests/test_answers.sh: what several commands say of one question is the same: text and JSON, a budget of exactly what is needed, the
# largest that --max finds, each change that is advised, and the command that an answer ends with. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
python3 - "${BUILD:-build}" <<'P'
import json, os, random, re, shlex, subprocess, sys, tempfile

sys.path.insert(0, "tests")
from check import finish, ok

vplan = os.path.abspath(os.path.join(sys.argv[1], "vplan"))
os.chdir(tempfile.mkdtemp())
rng = random.Random(20)
UNIT = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def call(line):
    p = subprocess.run([vplan] + shlex.split(line), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return p.returncode, p.stdout


def answer(line):
    code, text = call(line + " -q --json")
    return code, json.loads(text)


def is_tight(j):
    """It fits because PyTorch's allocator gives its cache back where the card is full; device_bytes are then those on a card of this size."""
    return j.get("fits") and "without_limit" in j


def with_options(line, options):
    """The line with these options in place of its own of that name."""
    words, new = shlex.split(line), shlex.split(options)
    for i, word in enumerate(new):
        if word.startswith("--") and word in words:
            at = words.index(word)
            del words[at:at + (1 if i + 1 == len(new) or new[i + 1].startswith("--") else 2)]
    return shlex.join(words + new)


def next_of(text):
    """The command that a screen ends with; None: none, or one with a word to be replaced."""
    found = re.search(r"^next {7}(vplan .*(?:\n {10,}.*)*)", text, re.M)
    words = shlex.split(found.group(1).replace("\\\n", " ").split(";")[0]) if found else []
    return shlex.join(words[1:]) if words and not any(re.fullmatch("[A-Z]{3,}", w) for w in words) else None


def unclassed(part, where=""):
    """Where bytes stand without a class beside them; an interval is of bytes that have one."""
    if isinstance(part, list):
        return [w for i, x in enumerate(part) for w in unclassed(x, "%s[%d]" % (where, i))]
    if not isinstance(part, dict):
        return []
    own = [where] if "class" not in part and any(k.endswith("bytes") and x is not None for k, x in part.items()) else []
    return own + [w for k, x in part.items() if k != "interval" for w in unclassed(x, where + "." + k)]


def check(line):
    code, j = answer(line)
    if code not in (0, 3):
        return
    got, text = call(line)
    first = re.match(r"(FITS|DOES NOT FIT): ([\d.,]+)(?: (\w+))? of [\d.,]+ (\w+)", text)
    ok(got == code and first and (first.group(1) == "FITS") == j["fits"] == (code == 0), "text and JSON agree: " + line, text[:200])
    unit = UNIT[first.group(3) or first.group(4)]
    ok(abs(float(first.group(2).replace(",", "")) * unit - j["device_bytes"]) < 0.1 * unit, "as many bytes: " + line, (first.group(), j["device_bytes"]))
    ok(max(map(len, text.split("\n"))) <= 80, "80 columns: " + line, text)
    ok(sum(i["bytes"] for i in j["items"]) == j["peak_bytes"], "items sum to the peak: " + line)
    if j["trainer"] != "vplan":
        ok(not unclassed(j), "every number of bytes has its class: " + line, unclassed(j))
        for part in [j] + j["phases"]:
            ok(part["interval"]["low_bytes"] <= part["device_bytes"] <= part["interval"]["high_bytes"] and part["interval"]["probability"] == 0.95, "each phase has an interval: " + line, part)
    if j["fits"] and not is_tight(j):
        need = j["device_bytes"]
        less = answer(with_options(line, "--budget %d" % (need - 1)))
        ok(answer(with_options(line, "--budget %d" % need))[0] == 0 and (less[0] == 3 or is_tight(less[1])), "a budget of what it needs, and a byte less: " + line, need)
    for r in j.get("remedies", []):
        there = answer(with_options(line, r["option"]))
        ok(there[0] in (0, 3) and there[1]["device_bytes"] == r["device_bytes"] and there[1]["fits"] == r["fits"], "advised, typed: %s %s" % (line, r["option"]), there[1].get("error", r))
        ok((r["fits"] and not j["fits"]) or r["device_bytes"] <= 0.99 * j["device_bytes"], "advised is what saves a hundredth, or makes it fit: %s %s" % (line, r["option"]), (r, j["device_bytes"]))
    if j.get("fits_with"):
        there = answer(with_options(line, j["fits_with"]["options"]))
        ok(there[0] == 0 and there[1]["device_bytes"] == j["fits_with"]["device_bytes"], "fits with: " + line, (j["fits_with"], there[1].get("error")))
    ok(j["fits"] or j.get("fits_with") or not any(r["fits"] for r in j.get("remedies", [])), "a change that fits is named: " + line, j.get("remedies"))
    after = next_of(text)
    if after:
        for written in os.listdir("."):
            os.remove(written)
        there, said = call(after)
        ok(there == 0 or there == 3 and after.startswith("plan "), "the next command: %s: %s" % (line, after), said[:300])
    code, j = answer(line.split(" --micro-batch")[0] + " --max micro-batch")
    if code == 0:
        most = j["settings"]["micro_batch"]
        ok(answer(with_options(line, "--micro-batch %d" % most))[1]["device_bytes"] == j["device_bytes"] <= j["budget_bytes"], "--max fits: " + line, most)
        more = answer(with_options(line, "--micro-batch %d" % (most + 1)))
        said = " ".join(call(line.split(" --micro-batch")[0] + " --max micro-batch")[1].split())
        ok("%d does not fit" % (most + 1) not in said, "nothing is said of one more that estimate contradicts: " + line, said[:200])
        ok(more[0] != 0 or is_tight(more[1]), "and one more does not: " + line, most)


for line in ("llama-3.1-8b --trainer hf --device h100 --seq 4096 --world 8 --parallel fsdp2", "qwen2.5-7b --freeze layers:20 --device 4090 --seq 1024 --micro-batch 1",
             "llama-3.1-8b --trainer hf --device h100 --seq 2048 --micro-batch 1 --offload activations --recompute full", "gpt2 --trainer hf --device 4090 --micro-batch 4 --workers 4 --eval-batch 8", "qwen2.5-7b --peft ia3 --device 4090 --seq 1024 --micro-batch 1"):
    check("estimate " + line)
# ---- what was typed stands beside what is advised, so that says what QLoRA would otherwise choose; Liger's kernels have a loss of their own ----
for line in ("mistral-nemo-12b --trainer hf --seq 1024 --micro-batch 16 --recompute none --device l40s", "llama-3-8b --trainer hf --seq 512 --precision fp32 --device 4090",
             "codellama-7b --trainer torch --seq 333 --micro-batch 8 --precision bf16-mixed --recompute full --device h100", "qwen2.5-7b --trainer hf --seq 128 --precision fp16-mixed --device t4",
             "gemma-2-2b --trainer hf --seq 1024 --loss full --device a100-sxm-40gb", "qwen2.5-7b --lora --seq 2048 --loss full --recompute none --device 4090"):
    check("estimate " + line)
# ---- what was looked for and is nowhere: the next command finds it ----
code, text = call("estimate qwen2.5-7b --lora --device 4090 --seq 2048 --max micro-batch")
after = next_of(text)
ok(code == 3 and after and "--max micro-batch" in after and call(after)[0] == 0, "no batch fits, and then one does", (text[:300], after))
check("estimate qwen1.5-32b --trainer hf --device p100 --seq 4096 --recompute full --precision bf16-mixed --lora r=16,targets=all-linear --micro-batch 1")
models = "gpt2 gpt2-xl qwen2.5-0.5b qwen2.5-7b llama-3.2-1b llama-3.1-8b mistral-7b-v0.1 gemma-2-2b phi-3-mini-4k pythia-410m opt-1.3b smollm2-360m bert-base-uncased".split()
for _ in range(40):
    trainer = rng.choice(["", "hf", "hf", "torch", "trl"])
    line = "estimate %s%s --device %s --seq %d" % (rng.choice(models), trainer and " --trainer " + trainer, rng.choice("4090 t4 l4 a40 v100-sxm2-32gb h100 5090 b200".split()),
                                                  rng.choice([128, 512, 1024]))
    ways = [[], ["--optimizer sgd"], ["--recompute full"]] + ([["--loss chunked"]] if not trainer else [
        ["--qlora"], ["--lora r=16,targets=all-linear"], ["--world 4 --parallel fsdp2"], ["--world 2 --parallel ddp"], ["--accumulation 4"], ["--liger"], ["--optimizer adamw_8bit"]])
    line += "".join(" " + x for x in rng.choice(ways)) + rng.choice(["", "", " --budget 80%"])
    check(line + rng.choice(["", " --micro-batch 2"]))
finish()
P
