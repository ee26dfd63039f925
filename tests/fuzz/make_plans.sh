#!/bin/sh
# tests/fuzz/make_plans.sh: corpus/plan/good-*.json anew from the vplan of $BUILD, after the plan file's format has changed.
# Tiny models, so that a plan is some kilobytes and an input is read, checked and unrolled in a millisecond.
set -eu
cd "$(dirname "$0")/../.."
vplan=${BUILD:-build}/vplan
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# plan NAME CONFIG WORDS...: one plan, without the white space
plan() {
    name=$1 config=$2
    shift 2
    "$vplan" plan "tests/fuzz/corpus/config/$config.json" --device cpu --budget 64MiB "$@" -o "$work/$name" > /dev/null
    python3 -c 'import json, sys; print(json.dumps(json.load(open(sys.argv[1])), separators=(",", ":")))' "$work/$name" > "tests/fuzz/corpus/plan/good-$name.json"
    rm "$work/$name"
}

mkdir -p tests/fuzz/corpus/plan
rm -f tests/fuzz/corpus/plan/good-*.json
printf '{"schema_version": 1, "dropout": 0.1, "optimizer": {"name": "sgd"}}\n' > "$work/recipe"
plan adamw good-gpt2 --seq 4 --global-batch 2 --micro-batch 2
plan micro-steps good-gpt2 --seq 4 --global-batch 5 --micro-batch 1 --recompute full
plan dropout good-gpt2-untied --seq 4 --global-batch 1 --recipe "$work/recipe" --loss chunked:256 --recompute attention
plan bf16-mixed llama-scaled --seq 4 --global-batch 1 --precision bf16-mixed --optimizer adamw-8bit
plan bf16 gemma2 --seq 4 --global-batch 1 --precision bf16 --optimizer lion --attention math
plan masked bert --seq 4 --global-batch 1 --optimizer adafactor
plan classes good-bert-sequence --seq 4 --global-batch 2 --micro-batch 1
