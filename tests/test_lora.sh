#!/bin/bash
# tests/test_lora.sh: --lora in vplan's own plans: planned, estimated, run, tuned; what it does not have is refused with what does. The last
# line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
vplan="${BUILD:-build}/vplan"
. tests/check.sh

golden=tests/golden/lora/llama shape="--device cpu --budget 64MB --seq 32 --global-batch 2"
plan="$work/plan.json"
# shellcheck disable=SC2086
{
ok "a llama with adapters is planned" exits 0 "$vplan" plan $golden --lora r=4,alpha=8,targets=all-linear $shape -o "$plan" --json
# 2 blocks: q 4 (32 + 32), k and v 4 (32 + 16) each, o 256, gate, up and down 4 (32 + 56) each
ok "and says what is trained" json 'd["recipe"]["lora"] == {"r": 4, "alpha": 8.0, "dropout": 0.0, "rslora": False, "targets": "all-linear"}'
ok "its parameters are counted" exits 0 "$vplan" estimate $golden --trainer vplan --lora r=4,alpha=8,targets=all-linear --seq 32 --json
ok "trained ones apart" json 'd["model"]["params_trainable"] == 2 * (4 * 64 + 2 * 4 * 48 + 4 * 64 + 3 * 4 * 88)'
ok "it trains in the bytes that were planned" exits 0 "$vplan" run "$plan" --init $golden --steps 2 --verify --json --save "$work/adapters" --save-merged "$work/merged"
ok "to the byte" json 'd["memories"][0]["executed_bytes"] == d["memories"][0]["predicted_bytes"]'
ok "adapters go on where they were left" exits 0 "$vplan" run "$plan" --init $golden --adapters "$work/adapters" --steps 1 --json
ok "the merged model is one that vplan plans" exits 0 "$vplan" plan "$work/merged" $shape -o "$work/merged.json"
ok "and loads" exits 0 "$vplan" run "$work/merged.json" --init "$work/merged" --steps 1
ok "peft's own words come without targets" exits 0 "$vplan" plan gpt2-tiny --lora r=2 $shape --json
ok "c_attn of a GPT-2" json 'd["recipe"]["lora"]["targets"] == "c_attn"'
ok "a plan with adapters is explained" exits 0 "$vplan" explain "$plan" --buffers
ok "and tuned" exits 0 "$vplan" tune "$plan" --max-trials 1 -o "$work/tuned.json"

# what it does not have
ok "QLoRA is refused" exits 2 "$vplan" plan gpt2-tiny --qlora $shape
ok "with what has it" says "--trainer hf"
ok "DoRA is refused" exits 2 "$vplan" plan gpt2-tiny --lora r=4,dora $shape
ok "with what has it" says "--trainer hf"
ok "a dtype of their own is refused" exits 2 "$vplan" plan gpt2-tiny --lora r=4,dtype=bf16 $shape
ok "with where it is said" says "--precision"
ok "a module that is not there is named" exits 4 "$vplan" plan $golden --lora targets=q_proj+c_attn $shape
ok "with those that are" says "q_proj, k_proj, v_proj"
ok "classifiers are refused" exits 4 "$vplan" plan tests/golden/llama_sequence --lora r=4 $shape
ok "adapters for a plan without any are refused" exits 0 "$vplan" plan $golden $shape -o "$work/whole.json"
ok "by name" exits 4 "$vplan" run "$work/whole.json" --adapters "$work/adapters" --steps 1
ok "and say so" says "the plan has no adapters"
ok "a plan that was edited to train a frozen weight is refused" exits 4 "$vplan" run <(sed 's/"frozen": *true/"frozen": false/' "$plan") --steps 1
}
finish
