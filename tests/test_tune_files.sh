#!/bin/bash
# tests/test_tune_files.sh: vplan tune -- CMD where the settings stand in files that CMD names: each trainer's, in YAML, JSON and TOML. The command is no
# PyTorch (tests/dryrun/scripts/from_file.py): it reads the file as that trainer would. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(realpath "${BUILD:-build}")
vplan=$build/vplan
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tmp" "$work/home" "$work/cwd"
export TMPDIR=$work/tmp HOME=$work/home
. tests/check.sh
[ -f "$build/null/libvplan-null.so" ] || { skip "$build/null/libvplan-null.so is not built"; finish; }
cp tests/dryrun/scripts/no_torch.py "$work/cwd/training.py"
cp tests/dryrun/scripts/from_file.py "$work/cwd/train.py"
cd "$work/cwd" || exit 1
tune() { "$vplan" tune --device l4 --budget 4300MiB --json "$@"; }

mine=$work/mine # an output folder that the files name: nobody writes there
cat > sft.yaml <<E
# what I train
model_name_or_path: gpt2
output_dir: $mine
per_device_train_batch_size: 4   # as much as fits
gradient_accumulation_steps: 16
gradient_checkpointing: true
optim: adamw_torch
learning_rate: 2.0e-5
max_length: 512
E
printf '{\n  "output_dir": "%s",\n  "per_device_train_batch_size": 4,\n  "gradient_accumulation_steps": 16,\n  "gradient_checkpointing": true,\n  "optim": "adamw_torch",\n  "bf16": true\n}\n' "$mine" > trainer.json
printf '{\n  "train_micro_batch_size_per_gpu": 4,\n  "gradient_accumulation_steps": 16,\n  "bf16": {"enabled": true},\n  "zero_optimization": {"stage": 2}\n}\n' > ds.json
printf 'compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n  zero3_init_flag: false\n' > accelerate.yaml
cat > axolotl.yml <<E
base_model: gpt2
datasets:
  path: data
output_dir: $mine
sequence_len: 512
micro_batch_size: 4
gradient_accumulation_steps: 16
gradient_checkpointing: true
optimizer: adamw_torch
bf16: true
E
cat > factory.yaml <<E
model_name_or_path: gpt2
stage: sft
finetuning_type: full
dataset: mine
cutoff_len: 512
output_dir: $mine
per_device_train_batch_size: 4
gradient_accumulation_steps: 16
disable_gradient_checkpointing: false
optim: adamw_torch
bf16: true
E
cat > lightning.yaml <<E
trainer:
  accumulate_grad_batches: 16
  precision: bf16-mixed
  default_root_dir: $mine
data:
  batch_size: 4
E
cat > titan.toml <<E
[job]
dump_folder = "$mine"
[model]
name = "llama3"
[optimizer]
name = "AdamW"
implementation = "foreach"
[training]
local_batch_size = 4
global_batch_size = 64
seq_len = 512
[activation_checkpoint]
mode = "full"
E

# ---- the same space as options: the best of it, which tests/test_tune_command.sh holds against a formula ----
ok "as options" exits 0 tune --try --batch=1,2,4,8,16,32,64 --try --accum=64,32,16,8,4,2,1 --keep 'batch*accum=64' --try --ckpt=0,1 --try --optim=a,b -- \
    python3 training.py --batch 4 --accum 16
cp "$work/out" "$work/as_options"
cat > "$work/same.py" <<'PY'
# The best by files is the best by options: same peak and speed. Where the files have not all axes (part): no slower than what they had.
import json, sys
a, d, whole = json.load(open(sys.argv[1])), json.load(open(sys.argv[2])), sys.argv[3] == "whole"
assert d["best"], d
if whole:
    assert d["best"]["allocated_peak_bytes"] == a["best"]["allocated_peak_bytes"], (d["best"], a["best"])
    assert abs(d["best"]["samples_per_s"] / a["best"]["samples_per_s"] - 1) < 1e-9, (d["best"], a["best"])
assert d["best"]["samples_per_s"] > d["had"]["samples_per_s"] > 0, (d["best"], d["had"])
assert all(t["verdict"] in ("ok", "oom-device") for t in d["trials"]), d["trials"]
assert d["best"]["files"] and all("/" not in f["diff"].split("\n", 1)[1] or "ds.json" in f["diff"] for f in d["best"]["files"]), d["best"]["files"]
PY
json_in() { cp "$1" "$work/out"; json "$2"; }
sums() { cat sft.yaml trainer.json ds.json accelerate.yaml axolotl.yml factory.yaml lightning.yaml titan.toml | sha256sum; }
before=$(sums)
files_of() { # NAME whole|part WORDS...: the answer, then a dry run of what -o wrote
    local name=$1 part=$2
    shift 2
    ok "$name: its file" exits 0 tune -o "best-$name" -- "$@"
    cp "$work/out" "$work/answer"
    ok "$name: the best" python3 "$work/same.py" "$work/as_options" "$work/answer" "$part"
    ok "$name: what -o wrote runs" exits 0 "$vplan" dryrun --device l4 --budget 4300MiB --steps 3 --time --json -- sh "best-$name/run.sh" --output_dir "$work/again"
    ok "$name: and is the answer to the byte" python3 -c "
import json
a, b = (json.load(open(f)) for f in ('$work/answer', '$work/out'))
assert all(a['best'][k] == b[k] for k in ('allocated_peak_bytes', 'reserved_peak_bytes', 'device_bytes')), (a['best'], b)"
    rm -rf "$mine"
}
ok "the user's folder is not there" [ ! -e "$mine" ]
for c in "trl whole sft.yaml" "hf whole trainer.json" "axolotl whole axolotl.yml" "llamafactory whole factory.yaml" \
    "torchtitan whole --job.config_file titan.toml" "lightning part fit --config lightning.yaml" "deepspeed part --deepspeed ds.json" \
    "accelerate part --config_file accelerate.yaml" \
    "pair part --deepspeed ds.json --per_device_train_batch_size 4 --gradient_accumulation_steps 16"; do
    set -- $c
    files_of "$1" "$2" python3 train.py "${@:3}"
done
ok "a file that another names is written, and named" grep -q "deepspeed_config_file: .*best-accelerate/ds.json" best-accelerate/accelerate.yaml
ok "options and file agree" sh -c 'n=$(sed -n "s/.*train_micro_batch_size_per_gpu\": \([0-9]*\).*/\1/p" best-pair/ds.json); grep -q -- "--per_device_train_batch_size $n " best-pair/run.sh'
ok "the user's files are as they were" [ "$before" = "$(sums)" ]
ok "comments stay" grep -q "# as much as fits" best-trl/sft.yaml
ok "a tuner alone" exits 0 tune -- python3 train.py sft.yaml
ok "writes into no folder of the user's" [ ! -e "$mine" ]
ok "nor is anything left" [ -z "$(ls -A "$work/tmp")" ]

# ---- words key=value behind a file beat it: LLaMA-Factory's and torchtune's command lines ----
sed 's/^per_device_train_batch_size: 4/per_device_train_batch_size: 2/; /^gradient_accumulation_steps/d' factory.yaml > beaten.yaml
files_of beaten whole python3 train.py beaten.yaml per_device_train_batch_size=4 gradient_accumulation_steps=16
ok "what the words say is what it had" json_in "$work/answer" 'd["had"]["settings"]["micro_batch"] == "4" and d["had"]["settings"]["accumulation"] == "16"'
ok "words that a changed file says go" json_in "$work/answer" '"=" not in " ".join(d["best"]["command"])'
ok "its lines are told from those on the disk" json_in "$work/answer" 'any("- per_device_train_batch_size: 2" in f["diff"] for f in d["best"]["files"])'
ok "a key that is such a word" exits 0 tune --try per_device_train_batch_size=2,8 -- python3 train.py beaten.yaml per_device_train_batch_size=4
ok "is an axis in its place" json 'd["best"]["command"][2:] == ["beaten.yaml", "per_device_train_batch_size=8"] and d["best"]["files"] == []'

# ---- what may change, by name ----
sed '/^gradient_checkpointing/d' sft.yaml > unsaid.yaml
ok "a setting that its file does not say" exits 0 tune --try recompute=none -- python3 train.py unsaid.yaml
ok "is told by the name that all versions know" json '"+ gradient_checkpointing: false" in d["best"]["files"][0]["diff"]' '"activation_checkpointing" not in str(d)'
ok "a key of a file" exits 0 tune --try data.batch_size=2,8,16 -- python3 train.py fit --config lightning.yaml
ok "is an axis" json 'd["best"]["settings"] == {"data.batch_size": "16"}' 'any("batch_size: 16" in f["diff"] for f in d["best"]["files"])'
ok "a setting in nobody's words" exits 0 tune --try recompute=none,full -- python3 train.py sft.yaml
ok "is what the file says" json 'd["best"]["settings"] == {"recompute": "none"}' 'any("+ gradient_checkpointing: false" in f["diff"] for f in d["best"]["files"])'
ok "a key that is not there" exits 2 tune --try data.batches=2,8 -- python3 train.py fit --config lightning.yaml
ok "says so" says "no file that it names has such a key"
ok "a file of nobody's" exits 2 sh -c "echo 'x: 1' > own.yaml; $vplan tune --device l4 -- python3 train.py own.yaml"
ok "asks for names" says "nor names a trainer's file of settings"
ok "for people" exits 0 "$vplan" tune --device l4 --budget 4300MiB -- python3 train.py sft.yaml
ok "the lines that change" says "+ per_device_train_batch_size: 16"
ok "and what writes them" sh -c "tail -2 $work/out | tr -s ' \\\\\n' ' ' | grep -q 'next vplan tune --device l4 --budget 4300MiB -o best -- python3 train.py sft.yaml'"

# ---- the study ----
export COUNT_RUNS=$work/runs
: > "$COUNT_RUNS"
ok "a study of files" exits 0 tune --study "$work/f.db" -- python3 train.py sft.yaml
n=$(wc -l < "$COUNT_RUNS")
ok "ran several" [ "$n" -gt 2 ]
ok "again" exits 0 tune --study "$work/f.db" -- python3 train.py sft.yaml
ok "runs nothing" [ "$(wc -l < "$COUNT_RUNS")" = "$n" ]
tune --study "$work/f.db" -- python3 train.py sft.yaml > answer.json 2> notes.txt
tune --study "$work/f.db" -- python3 train.py sft.yaml > answer.json 2> notes.txt
"$vplan" dryrun --device l4 --json -- python3 train.py sft.yaml > dry.json 2> /dev/null
ok "once more" exits 0 tune --study "$work/f.db" -- python3 train.py sft.yaml
ok "answers that lie beside it, or go there, are not the command's" [ "$(wc -l < "$COUNT_RUNS")" = $((n + 1)) -a -s answer.json ]
rm answer.json notes.txt dry.json
sed -i 's/max_length: 512/max_length: 256/' sft.yaml
ok "an edited file" exits 0 tune --study "$work/f.db" -- python3 train.py sft.yaml
ok "is another command" [ "$(wc -l < "$COUNT_RUNS")" -gt "$n" ]
# ---- files of one name, and -o where the user's own lie ----
mkdir a b
cp sft.yaml a/c.yaml
cp sft.yaml b/c.yaml
ok "two files of one name" exits 0 tune --max-trials 2 -o two -- python3 train.py a/c.yaml b/c.yaml
ok "are two" [ -f two/c.yaml -a -f two/2-c.yaml ]
ok "and both are named" grep -q "two/c.yaml two/2-c.yaml" two/run.sh
ok "one file by two names" exits 0 tune --max-trials 2 -- python3 train.py sft.yaml ./sft.yaml
ln -s sft.yaml link.yaml
was=$(sha256sum sft.yaml a/c.yaml)
for f in "-o . -- python3 train.py sft.yaml" "-o a --force -- python3 train.py a/c.yaml" "-o . --force -- python3 train.py a/../link.yaml"; do
    ok "an input as output: $f" exits 2 tune --max-trials 2 $f
    ok "is said: $f" says "is an input too"
done
ok "the inputs are as they were" [ "$was" = "$(sha256sum sft.yaml a/c.yaml)" ]
ok "no folder of a trial is left" [ -z "$(ls "$TMPDIR")" ]
finish
