#!/bin/bash
# tests/gpu_check.sh [--commit SHA] [--out DIR] [--resume DIR] [--seconds N] [PART...]: everything that needs a GPU, on the machine that has one.
#
# PART is ops, memory, speed, budgets or prediction (bench/gpu_check.py says what each does); without any all of them, in this order, the most
# valuable first. A results file for each, DEVICE-DATE-gpu-PART.json, in --out (build/bench); rows that files under --resume (bench/results) have are
# not measured again.
#
# It builds here. Where the libraries of the host programs are not installed, bring a folder gpu-pack/ from a machine that has them (tests/gpu_pack.sh):
# then only vplan-cuda.so is compiled, against the CUDA libraries of this machine. Exit 77 without a GPU; 1 where a row failed.
set -u
cd "$(dirname "$0")/.." || exit 1
commit=unknown out="" resume=bench/results seconds=420 parts=()
while [ $# -gt 0 ]; do
    case $1 in
    --commit) commit=$2; shift ;;
    --out) out=$2; shift ;;
    --resume) resume=$2; shift ;;
    --seconds) seconds=$2; shift ;;
    ops | memory | speed | budgets | prediction) parts+=("$1") ;;
    *) echo "tests/gpu_check.sh: no part $1: ops, memory, speed, budgets or prediction" >&2; exit 2 ;;
    esac
    shift
done
[ ${#parts[@]} -gt 0 ] || parts=(ops memory speed budgets prediction)

card=$(nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader 2> /dev/null | head -n 1)
[ -n "$card" ] || { echo "SKIP no NVIDIA GPU: nvidia-smi names none"; exit 77; }
arch=$(echo "${card##*, }" | tr -d .)
case $card in
*H200*) device=h200-sxm-141gb ;;
*H100*) device=h100-sxm-80gb ;;
*) device=$(build/vplan devices --json 2> /dev/null | python3 -c '
import json, sys
words = sys.argv[1].split(",")[0].lower().replace("nvidia", "").replace("geforce", "").split()
names = [d["name"] for d in json.load(sys.stdin)["devices"] if all(w in d["name"] for w in words)]
print(names[0] if names else "")' "$card") ;;
esac
[ -n "$device" ] || { echo "no device file for $card: vplan devices" >&2; exit 1; }

build=build
if [ -d gpu-pack ]; then
    build=gpu-pack
    export LD_LIBRARY_PATH=$PWD/gpu-pack/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    make --no-print-directory -j"$(nproc)" BUILD=gpu-pack CUDA_ARCHS="$arch" gpu-pack/vplan-cuda.so || exit 1
else
    make --no-print-directory -j"$(nproc)" CUDA_ARCHS="$arch" all test-programs || exit 1
fi
echo "$card: $device; $("$build/vplan-run" --describe --backend cuda)"
failed=0
for part in "${parts[@]}"; do
    printf '\n== %s\n' "$part"
    PYTHONDONTWRITEBYTECODE=1 timeout -k 10 $((seconds + 60)) python3 bench/gpu_check.py "$part" --device "$device" --build "$build" --commit "$commit" \
        --out "${out:-$build/bench}" --resume "$resume" --seconds "$seconds" || failed=1
done
exit $failed
