#!/bin/bash
# tests/gpu_check.sh [--commit SHA] [--out DIR] [--resume DIR] [--seconds N] [--device NAME] [--rehearse] [PART...]: everything that needs a GPU, on the
# machine that has one.
#
# PART is first, ops, memory, speed, offload, budgets or prediction, the most valuable first (bench/gpu_check.py says what each does); without any it is first,
# which takes three minutes, `all` stands for the seven. A results file for each, DEVICE-DATE-gpu-PART.json, in --out ($OUT, else build/bench); rows that files
# there or under --resume (bench/results) have are not measured again. A part ends within --seconds (420; first: 180) and a tenth.
#
# It builds here. Where the libraries of the host programs are not installed, bring gpu-pack.tar.xz from a machine that has them (tests/gpu_pack.sh):
# then nothing is compiled, or vplan-cuda.so alone where the one in it does not run. $PYTHON_TORCH is the Python with PyTorch (python3).
# Exit 77 without a GPU; 1 where a row failed. --rehearse goes through all of it without one, on what $BUILD holds: it measures nothing.
set -u
cd "$(dirname "$0")/.." || exit 1
commit=unknown out=${OUT:-build/bench} resume=bench/results seconds="" device="" rehearse="" parts=()
while [ $# -gt 0 ]; do
    case $1 in
    --commit | --out | --resume | --seconds | --device)
        [ $# -gt 1 ] || { echo "tests/gpu_check.sh: $1 needs a value" >&2; exit 2; }
        printf -v "${1#--}" %s "$2"
        shift ;;
    --rehearse) rehearse=--rehearse ;;
    first | ops | memory | speed | offload | budgets | prediction) parts+=("$1") ;;
    all) parts+=(first ops memory speed offload budgets prediction) ;;
    *) echo "tests/gpu_check.sh: no part or option $1; parts: first, ops, memory, speed, offload, budgets, prediction, all" >&2; exit 2 ;;
    esac
    shift
done
[ ${#parts[@]} -gt 0 ] || parts=(first)

build=${BUILD:-build}

# The card's name in vplan's table, by what nvidia-smi calls it.
device_of() {
    "$build/vplan" devices --json | python3 -c '
import json, sys
print(*[d["name"] for d in json.load(sys.stdin)["devices"] if d.get("product") == sys.argv[1]][:1])' "$1"
}

unpack() {
    build=gpu-pack
    [ gpu-pack/unpacked -nt gpu-pack.tar.xz ] && return
    rm -rf gpu-pack
    python3 -m tarfile -e gpu-pack.tar.xz . && touch gpu-pack/unpacked
}

build_here() { # build_here CUDA_ARCHS
    if [ "$build" = gpu-pack ]; then
        "$build/vplan-run" --describe --backend cuda > /dev/null && return
        make --no-print-directory -j"$(nproc)" BUILD=gpu-pack CUDA_ARCHS="$1" gpu-pack/vplan-cuda.so
    else
        make --no-print-directory -j"$(nproc)" BUILD="$build" CUDA_ARCHS="$1" all test-programs
    fi
}

# Folders of CUDA's libraries that came with PyTorch: both sides of a comparison use the same.
libraries_of_python() {
    python3 -c '
import glob, os, sys
print(":".join(d for p in sys.path for d in sorted(glob.glob(p + "/nvidia/*/lib")) if glob.glob(d + "/libcublasLt.so.*") + glob.glob(d + "/libcudnn.so.*")))'
}

if [ -n "$rehearse" ]; then
    device=${device:-h100-sxm-80gb}
else
    card=$(nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader 2> /dev/null | head -n 1)
    [ -n "$card" ] || { echo "SKIP no NVIDIA GPU: nvidia-smi names none"; exit 77; }
    [ ! -e gpu-pack.tar.xz ] || unpack || exit 1
    found=$(libraries_of_python)
    [ -z "$found" ] || export LD_LIBRARY_PATH=$found${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    build_here "$(echo "${card##*, }" | tr -d .)" || { echo "the build failed" >&2; exit 1; }
    device=${device:-$(device_of "${card%, *}")}
    [ -n "$device" ] || { echo "no device is called $card: name one with --device (vplan devices)" >&2; exit 1; }
    described=$("$build/vplan-run" --describe --backend cuda) || exit 1
    echo "$card: $device; $described"
fi

failed=0
for part in "${parts[@]}"; do
    limit=${seconds:-$([ "$part" = first ] && echo 180 || echo 420)}
    printf '\n== %s\n' "$part"
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 timeout -k 10 $((limit + limit / 10 + 15)) python3 bench/gpu_check.py "$part" --device "$device" --build "$build" \
        --commit "$commit" --out "$out" --resume "$resume" --seconds "$limit" $rehearse || failed=1
done
exit $failed
