#!/bin/sh
# The main job on a real model, end to end, on this machine's CPU: GPT-2 124M, 8 x 256 tokens, fp32, AdamW.
set -eu
BUILD=${BUILD:-build}
text=/usr/share/common-licenses/GPL-3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
say() { printf '\n== %s\n' "$*"; }
field() { python3 -c 'import json,sys; d = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2"; }

say "Where every byte goes: GPT-2 124M, 8 samples of 256 tokens at once (vplan estimate)"
"$BUILD/vplan" estimate gpt2 --seq 256 --micro-batch 8 | tee "$dir/estimate.txt"
"$BUILD/vplan" estimate gpt2 --seq 256 --micro-batch 8 --json > "$dir/estimate.json"
peak=$(field "$dir/estimate.json" 'd["peak_bytes"]')
budget=$((peak * 7 / 10))
available=$(($(awk '/^MemAvailable/ {print $2}' /proc/meminfo) * 1024))
if [ $((budget * 5 / 4)) -gt "$available" ]; then
    echo "demo: this machine has $available bytes of memory available; the demo needs $((budget * 5 / 4))" >&2
    exit 5
fi

say "The unconstrained peak is $peak bytes. The fastest plan inside 70 % of it, $budget bytes (vplan plan)"
if "$BUILD/vplan" estimate gpt2 --seq 256 --micro-batch 8 --budget "$budget" > "$dir/over.txt"; then
    echo "demo: plain training should not fit the budget" >&2; exit 1
fi
grep 'DOES NOT FIT' "$dir/over.txt"
"$BUILD/vplan" plan gpt2 --device cpu --budget "$budget" --seq 256 --global-batch 8 -o "$dir/plan.json"

more=$((budget + 256 * 1024 * 1024))
"$BUILD/vplan" plan gpt2 --device cpu --budget "$budget" --seq 256 --global-batch 8 --within 0 --json > "$dir/now.json"
"$BUILD/vplan" plan gpt2 --device cpu --budget "$more" --seq 256 --global-batch 8 --within 0 --json > "$dir/more.json"
python3 - "$dir" <<'PY'
import json, sys
now, more = (json.load(open(f"{sys.argv[1]}/{name}.json")) for name in ("now", "more"))
print(f"bound {now['proof']['bound_s']:.6f} s, gap {now['proof']['gap']:.1e}, {now['proof']['status']}, checked by {now['proof']['checked_by']}; "
      f"one more 256 MiB would save {1000 * (now['step_time_s'] - more['step_time_s']):.2f} ms a step")
PY

say "Training it for real, on $text (vplan run)"
"$BUILD/vplan" run "$dir/plan.json" --steps 4 --data "$text" --json 2>&1 >"$dir/run.json" | sed 's/^/  /'
python3 - "$dir/run.json" <<'PY'
import json, sys
run = json.load(open(sys.argv[1]))
memory, steps = run["memories"][0], run["steps"]
print(f"  {'':12s} {'predicted':>16s} {'measured':>16s}")
print(f"  {'arena':12s} {memory['predicted_bytes']:>16,d} {memory['executed_bytes']:>16,d}  bytes")
print(f"  {'process':12s} {run['process_predicted_bytes']:>16,d} {run['process_peak_bytes']:>16,d}  bytes")
fell = steps[-1]["loss"] < steps[0]["loss"]
exact = memory["predicted_bytes"] == memory["executed_bytes"]
print(f"\ndemo: arena {memory['predicted_bytes']} bytes predicted, {memory['executed_bytes']} executed, "
      f"loss {steps[0]['loss']:.4f} -> {steps[-1]['loss']:.4f}")
sys.exit(0 if fell and exact else 1)
PY
