#!/bin/bash
# tests/test_cuda_headers.sh: the headers that the emulated CUDA backend is compiled with say what NVIDIA's say: every constant has its value and every
# function its type, in a file that is compiled against the toolkit's own. Skips where there is no toolkit. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
for root in ${CUDA_HOME:+"$CUDA_HOME"} /usr/local/cuda "$(dirname "$(command -v nvcc 2> /dev/null)" 2> /dev/null)/.." /usr; do
    [ -e "$root/include/cublasLt.h" ] && [ -e "$root/include/cuda_runtime_api.h" ] && break
    root=
done
[ -n "$root" ] || { echo "SKIP: no CUDA toolkit, so there are no headers to compare with"; exit 77; }
cxx=$(command -v g++ || command -v clang++) || { echo "SKIP: no C++ compiler"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL: $2"; fi; }

# Prototypes: from the first function on, each until its semicolon. Values: NAME = number, and constants that are numbers.
lists() { # include folder, to folder
    cat "$1"/cuda_runtime_api.h "$1"/cublasLt.h |
        awk '/^(cudaError_t|cublasStatus_t|const char|size_t) .*\(/ { inside = 1 } inside { print } /;/ { inside = 0 }' > "$2/header_calls.inc"
    cat "$1"/cuda_runtime_api.h "$1"/cublasLt.h |
        grep -oE '\b(cuda[A-Z]|CU[A-Z]+_)[A-Za-z0-9_]* *= *[0-9]+' | sed -E 's/ *= */, /; s/.*/VALUE(&)/' > "$2/header_values.inc"
    sed -nE 's/^#define +(cuda[A-Za-z]+) +(0x[0-9a-f]+)$/VALUE(\1, \2)/p' "$1"/cuda_runtime_api.h >> "$2/header_values.inc"
}
check() { "$cxx" -std=c++17 -fsyntax-only -I"$1" -isystem "$root/include" tests/cuda_emulator/header_check.cpp > "$work/said" 2>&1; }

lists tests/cuda_emulator/include "$work"
calls=$(grep -c ';' "$work/header_calls.inc") values=$(wc -l < "$work/header_values.inc")
[ "$calls" -ge 50 ] && [ "$values" -ge 100 ]; ok $? "the lists: $calls prototypes, $values values"
check "$work"; ok $? "the emulator's headers: $(head -20 "$work/said")"

# The comparison sees what it is for.
for change in 's/cudaErrorUnknown  *= 999/cudaErrorUnknown = 998/' 's/cudaMalloc(void \*\*devPtr, size_t size)/cudaMalloc(void **devPtr, int size)/' \
    's/CUDA_R_16BF = 14/CUDA_R_16BF = 15/' 's/void \*workspace, size_t workspaceSizeInBytes/void *workspace, int workspaceSizeInBytes/' \
    's/cudaStreamNonBlocking  0x01/cudaStreamNonBlocking  0x02/'; do
    mkdir -p "$work/wrong" "$work/lists"
    for f in cuda_runtime_api.h cublasLt.h; do sed "$change" tests/cuda_emulator/include/$f > "$work/wrong/$f"; done
    cat tests/cuda_emulator/include/cuda_runtime_api.h tests/cuda_emulator/include/cublasLt.h | cmp -s - <(cat "$work/wrong/cuda_runtime_api.h" "$work/wrong/cublasLt.h")
    [ $? = 1 ]; ok $? "'$change' changes nothing"
    lists "$work/wrong" "$work/lists"
    check "$work/lists"; [ $? != 0 ]; ok $? "'$change' is not seen"
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
