#!/bin/sh
# The second act: GPT-2 124M trained in full inside a device memory smaller than its parameters and optimizer states alone; on this
# machine's CPU, whose memory plays both the device's and the host's. The same bits as without a limit.
set -eu
BUILD=${BUILD:-build}
text=/usr/share/common-licenses/GPL-3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
say() { printf '\n== %s\n' "$*"; }
what="gpt2 --device cpu --seq 256 --global-batch 2 --micro-batch 1"
budget=1342177280

say "Without a limit, GPT-2 124M takes this (vplan plan)"
# shellcheck disable=SC2086
"$BUILD/vplan" plan $what --budget 4GiB -o "$dir/plain.json" | sed -n '1,/^proof/p'

say "Inside 1.25 GiB it does not fit: parameters and states alone are 1.39 GiB"
# shellcheck disable=SC2086
if "$BUILD/vplan" plan $what --budget $budget > "$dir/over.txt"; then
    echo "demo: plain training should not fit the budget" >&2; exit 1
fi
head -1 "$dir/over.txt"

say "With host memory for what the update alone needs, it does"
# shellcheck disable=SC2086
"$BUILD/vplan" plan $what --budget $budget --host-memory 2GiB -o "$dir/offload.json" | sed -n '1,/least budget/p'

say "Both trained for real, on $text (vplan run)"
for plan in plain offload; do
    "$BUILD/vplan" run "$dir/$plan.json" --steps 3 --data "$text" --hash --json 2> /dev/null > "$dir/$plan.run"
done
python3 - "$dir" <<'PY'
import json, sys
plain, offload = (json.load(open(f"{sys.argv[1]}/{name}.run")) for name in ("plain", "offload"))
print(f"  {'':14s} {'predicted':>15s} {'executed':>15s}   {'loss of steps':s}")
for name, run in ("without a limit", plain), ("1.25 GiB", offload):
    for memory in run["memories"]:
        losses = " ".join(f"{step['loss']:.6f}" for step in run["steps"]) if memory["name"] == "device" else ""
        print(f"  {name + ', ' + memory['name']:28s} {memory['predicted_bytes']:>13,d} {memory['executed_bytes']:>13,d}   {losses}")
        if memory["predicted_bytes"] != memory["executed_bytes"]:
            sys.exit("demo: an arena is not as predicted")
same = plain["parameters_sha256"] == offload["parameters_sha256"] and [s["loss"] for s in plain["steps"]] == [s["loss"] for s in offload["steps"]]
print(f"\ndemo: the parameters after {len(plain['steps'])} steps are {'the same bits' if same else 'NOT THE SAME'}: sha256 {offload['parameters_sha256'][:16]}...")
sys.exit(0 if same else 1)
PY
