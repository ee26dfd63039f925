#!/bin/bash
# tests/test_unsloth.sh: scripts of Unsloth's, whose bytes come of another trainer's step, against whole runs of it
# (tests/golden/trainers/unsloth_runs.csv). The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}/vplan")" "$work" "$PWD/tests/golden/trainers/unsloth_runs.csv" <<'P'
import csv, json, os, shlex, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok

vplan, work, rows = sys.argv[1:4]
os.chdir(work)
SCRIPT = """from unsloth import FastLanguageModel
from trl import SFTTrainer, SFTConfig
model, tokenizer = FastLanguageModel.from_pretrained("%(model)s", max_seq_length = %(seq)s, load_in_4bit = %(quantised)s)
model = FastLanguageModel.get_peft_model(model, r = %(rank)s, lora_alpha = 16, lora_dropout = %(dropout)s, use_gradient_checkpointing = %(use)s,
    target_modules = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])
trainer = SFTTrainer(model = model, tokenizer = tokenizer, train_dataset = dataset, args = SFTConfig(optim = "%(optimizer)s",
    per_device_train_batch_size = %(micro_batch)s, gradient_accumulation_steps = %(accumulation)s))
"""
USE = {"unsloth": '"unsloth"', "true": "True", "false": "False"}


def check(row, *words):
    with open("train.py", "w") as f:
        f.write(SCRIPT % dict(row, quantised=row["bits"] == "4", use=USE[row["checkpoints"]]))
    p = subprocess.run((vplan, "check", "train.py", "--model", row["model"], "--device", row["device"], "--json") + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return json.loads(p.stdout)


missed, reserved = [], []
for row in csv.DictReader(line for line in open(rows) if line[0] != "#"):
    name = " ".join(row[k] for k in list(row)[:10])
    j = check(row)
    took, most = int(row["reserved"]), max(int(v) for k, v in row.items() if k.startswith("allocated_"))
    outside = j["device_bytes"] - j["reserved_peak_bytes"]
    nearer = "bytes are those of SFTTrainer" in " ".join(j["assumptions"])
    ok(nearer == (row["checkpoints"] != "false"), name + ": of the nearest step, or as Trainer's", j["assumptions"])
    ok(j["interval"]["low_bytes"] <= took + outside <= j["interval"]["high_bytes"], name + ": within its interval", (took + outside, j["interval"]))
    if nearer:
        missed.append(j["allocated_peak_bytes"] / most - 1)
        reserved.append(j["reserved_peak_bytes"] / took - 1)
said = "allocated %+.1f to %+.1f %%, reserved %+.1f to %+.1f %% of %d runs" % (*[100 * f(x) for x in (missed, reserved) for f in (min, max)], len(missed))
ok(len(missed) >= 8 and min(missed) > -0.02 and min(reserved) > -0.06 and max(missed + reserved) < 0.15, "as near as the answer says", said)
print(said)
# ---- what is faster is what the next line plans, edits, and check then finds ----
with open("train.py", "w") as f:
    f.write("""from unsloth import FastLanguageModel
from trl import SFTConfig, SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Meta-Llama-3.1-8B", max_seq_length=2048, load_in_4bit=True)
model = FastLanguageModel.get_peft_model(model, r=16, lora_alpha=16, lora_dropout=0, use_gradient_checkpointing="unsloth")
trainer = SFTTrainer(model=model, args=SFTConfig(per_device_train_batch_size=2, gradient_accumulation_steps=4, optim="adamw_8bit", output_dir="o"))
""")


def screen(*words):
    p = subprocess.run((vplan,) + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return p.returncode, p.stdout.decode().replace("\\\n", " ")


code, out = screen("check", "train.py", "--device", "3090")
faster = " ".join(out[out.index("faster "):].split("\nassumed")[0].split())
seconds, micro, accumulation = faster.split()[1], *faster.split("micro-batch ")[1].split(",")[0].split(" x ")
typed = [shlex.split(t) for t in out.split("next ")[-1].split("vplan ")[1:]]
ok(code == 0 and [t[0] for t in typed] == ["plan", "emit"], "faster, and how", (code, out))
for words in typed:
    ok(screen(*words, "--force")[0] == 0, "what is to be typed runs: " + words[0], words)
common = json.load(open("settings.json"))["common"]
ok((common["micro_batch"], common["accumulation"], common["offload"]) == (int(micro), int(accumulation), "activations"), "the plan is what was called faster", (faster, common))
code, out = screen("check", "train.py", "--device", "3090")
ok(code == 0 and seconds + " s a step" in out and "\nfaster" not in out, "and so is the script then", (faster, out))

finish()
P
