#!/bin/bash
# tests/test_cuda_emulator.sh: the emulator that runs the CUDA backend without a GPU runs kernels as a device would, finds what a device would not
# forgive, multiplies as cuBLASLt's documentation says, makes any call fail that it is asked to, and names what is left at the end. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
dir=${BUILD:-build}/tests/cuda_emulator
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CMOCKA_MESSAGE_OUTPUT=TAP
passed=0 failed=0
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL: $2"; fi; }

# The cases of a program under an environment.
cases() { # what, environment..., program
    local what=$1 good bad; shift
    env "$@" > "$work/out" 2> "$work/err"
    local code=$?
    good=$(grep -cE '^ok [0-9]+' "$work/out") bad=$(grep -cE '^not ok [0-9]+' "$work/out")
    passed=$((passed + good)) failed=$((failed + bad))
    [ "$code" = 0 ] && [ "$bad" = 0 ] && [ "$good" -ge 8 ] || { failed=$((failed + 1)); echo "FAIL: $what: exit $code"; cat "$work/out" "$work/err"; }
}
cases "kernels" "$dir/emulator_test"
cases "kernels, work run when waited for" VPLAN_EMULATOR_DEFER=1 "$dir/emulator_test"
cases "kernels, device memory closed to the host" VPLAN_EMULATOR_PROTECT=1 "$dir/emulator_test"
cases "kernels, blocks and threads backwards" VPLAN_EMULATOR_ORDER=reverse "$dir/emulator_test"
cases "kernels, blocks and threads shuffled" VPLAN_EMULATOR_ORDER=shuffle:3 "$dir/emulator_test"
cases "kernels, streams in a random order" VPLAN_EMULATOR_STREAMS=5 "$dir/emulator_test"
cases "kernels, streams in a random order, work run when waited for" VPLAN_EMULATOR_STREAMS=6 VPLAN_EMULATOR_DEFER=1 "$dir/emulator_test"
cases "products" "$dir/cublaslt_test"
cases "products, work run when waited for" VPLAN_EMULATOR_DEFER=1 VPLAN_EMULATOR_PROTECT=1 "$dir/cublaslt_test"

# A list of calls: each fails once, by number and by name; what was created is destroyed where that call does not fail itself.
said=$(VPLAN_EMULATOR_LEAKS=1 "$dir/emulator_test" sequence 2>&1); ok $? "the sequence of calls"
n=$(sed -nE 's/^cuda emulator: ([0-9]+) calls$/\1/p' <<< "$said")
[ "${n:-0}" -ge 18 ] && [ "$(wc -l <<< "$said")" = 1 ]; ok $? "what the sequence leaves: $said"
for i in $(seq "${n:-0}"); do
    said=$(VPLAN_EMULATOR_FAIL=$i VPLAN_EMULATOR_LEAKS=1 "$dir/emulator_test" sequence 2>&1); [ $? = 3 ]; ok $? "call $i of $n fails: $said"
done
VPLAN_EMULATOR_FAIL=cudaGraphLaunch:1 "$dir/emulator_test" sequence 2> /dev/null; [ $? = 3 ]; ok $? "the first cudaGraphLaunch fails"
VPLAN_EMULATOR_FAIL=cudaGraphLaunch:2 "$dir/emulator_test" sequence 2> /dev/null; ok $? "there is no second cudaGraphLaunch"
for none in VPLAN_EMULATOR_DEVICES=0 VPLAN_EMULATOR_DEVICES=-1 VPLAN_EMULATOR_DRIVER=12080 VPLAN_EMULATOR_MEMORY=1000; do
    env $none "$dir/emulator_test" sequence 2> /dev/null; [ $? = 3 ]; ok $? "$none"
done

# A log: a line a call, in order, the failing one marked.
VPLAN_EMULATOR_LOG=$work/log VPLAN_EMULATOR_FAIL=cudaMalloc:1 "$dir/emulator_test" sequence 2> /dev/null
head -5 "$work/log" | diff - <(printf '%s\n' '1 cudaGetDeviceCount()' '2 cudaSetDevice(0)' '3 cudaStreamCreateWithFlags(1)' '4 cudaMalloc(1000) fails' \
    '5 cudaStreamDestroy(stream)') > "$work/diff"; ok $? "the log: $(cat "$work/diff")"

said=$(VPLAN_EMULATOR_LEAKS=1 "$dir/emulator_test" leak 2>&1)
for left in "1 of device memory, 1000 bytes" "1 of pinned host memory, 100 bytes" "1 of stream" "1 of event" "1 of graph" "1 of executable graph"; do
    grep -qxF "cuda emulator: left: $left" <<< "$said"; ok $? "'$left' is not named in: $said"
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
