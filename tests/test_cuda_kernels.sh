#!/bin/bash
# tests/test_cuda_kernels.sh: the kernels of the CUDA backend, thread by thread in the emulator, against float64: the programs that test the CPU's
# kernels, on the emulated plugin; then some of it again with blocks and threads in other orders, with work that runs only when waited for, and with
# fewer multiprocessors. VPLAN_LONG=1: every case. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build}
plugin=$build/tests/vplan-cuda-emulated.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CMOCKA_MESSAGE_OUTPUT=TAP VPLAN_TEST_BACKEND=$plugin VPLAN_EMULATOR_LEAKS=1
passed=0 failed=0
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL: $2"; fi; }

# Cases that only the CPU's backend has skip themselves; they are no part of this test.
run() { # what, program, least number of cases, environment...
    local what=$1 program=$2 least=$3 good bad code; shift 3
    env "$@" "$build/tests/$program" > "$work/out" 2> "$work/err"
    code=$?
    good=$(grep -E '^ok [0-9]+' "$work/out" | grep -cv '# *SKIP') bad=$(grep -cE '^not ok [0-9]+' "$work/out")
    bad=$((bad - $(grep -cE '^not ok [0-9]+ # SKIP' "$work/out")))
    passed=$((passed + good)) failed=$((failed + bad))
    [ "$code" = 0 ] && [ "$bad" = 0 ] && [ "$good" -ge "$least" ] && ! grep -q '^cuda emulator: left' "$work/err" && return
    failed=$((failed + 1))
    echo "FAIL: $program, $what: exit $code, $good cases"
    cat "$work/out"
    head -50 "$work/err"
}

[ "$(nm -D --defined-only "$plugin" | sed 's/.* //')" = vp_backend_open ]; ok $? "the plugin exports more than vp_backend_open: $(nm -D --defined-only "$plugin")"
every=${VPLAN_LONG:+1}
run "all" test_kernels 20 VPLAN_TEST_EVERY="${every:-1}"
run "all" test_kernels_random 2 VPLAN_TEST_EVERY="${every:-1}"
run "all, with cuDNN" test_kernels_attention 10 VPLAN_TEST_EVERY="${every:-23}"
run "all, without" test_kernels_attention 10 VPLAN_TEST_EVERY="${every:-19}" VPLAN_CUDNN=/none
run "all" test_kernels_embedding 1
run "all" test_kernels_passes 2 VPLAN_TEST_EVERY="${every:-1}"
run "all" test_kernels_rope 2 VPLAN_TEST_EVERY="${every:-1}"
run "all" test_kernels_tf32 2 VPLAN_TEST_EVERY="${every:-1}"
run "all" test_kernels_optimizer 10 VPLAN_TEST_EVERY="${every:-1}"
run "all" test_kernels_rounding 5 VPLAN_TEST_EVERY="${every:-1}"
run "device memory closed to the host" test_kernels 20 VPLAN_TEST_EVERY=29 VPLAN_EMULATOR_PROTECT=1

# Bits do not depend on the order of blocks and threads, on when work is done, or on how many multiprocessors there are.
for program in test_kernels:20:5 test_kernels_random:2:5 test_kernels_passes:2:5 test_kernels_attention:10:97 test_kernels_rope:2:5 test_kernels_optimizer:10:7 test_kernels_rounding:5:7; do
    IFS=: read -r name least n <<< "$program"
    run "in order" "$name" "$least" VPLAN_TEST_EVERY="$n" VPLAN_TEST_DIGEST="$work/order"
    run "backwards" "$name" "$least" VPLAN_TEST_EVERY="$n" VPLAN_TEST_DIGEST="$work/backwards" VPLAN_EMULATOR_ORDER=reverse
    run "shuffled" "$name" "$least" VPLAN_TEST_EVERY="$n" VPLAN_TEST_DIGEST="$work/shuffled" VPLAN_EMULATOR_ORDER=shuffle:5 VPLAN_EMULATOR_DEFER=1 \
        VPLAN_EMULATOR_MULTIPROCESSORS=3
    [ -s "$work/order" ] && cmp -s "$work/order" "$work/backwards" && cmp -s "$work/order" "$work/shuffled"; ok $? "$name: bits move with the order of blocks and threads"
done

# Updates of parameters and squares of gradients are collected: what comes behind tells that their launch failed, by their name, and nothing stays
# behind.
for kernel in lion grad_sumsq; do
    for behind in wait upload download fill memory run again another time record_begin record_end replay mark after release; do
        said=$(VPLAN_EMULATOR_FAIL=cudaLaunchKernel:1 "$build/tests/test_kernels_optimizer" failed-launch $kernel $behind 2>&1)
        [ $? = 0 ] && ! grep -q 'emulator: left' <<< "$said"; ok $? "a failed launch of $kernel is told by $behind: $said"
    done
done
# Copies beside kernels: as enqueued, in random orders, and with every call failing once, which is told and leaves nothing behind.
run "as enqueued" test_streams 6
for seed in 1 2 3; do run "in a random order" test_streams 7 VPLAN_EMULATOR_STREAMS=$seed; done
run "in a random order, when waited for" test_streams 7 VPLAN_EMULATOR_STREAMS=4 VPLAN_EMULATOR_DEFER=1
said=$(VPLAN_EMULATOR_LOG=$work/calls "$build/tests/test_streams" sequence 2>&1); ok $? "the sequence of copies and kernels: $said"
n=0
while read -r number call; do
    n=$((n + 1))
    said=$(VPLAN_EMULATOR_FAIL=$number "$build/tests/test_streams" sequence 2>&1)
    code=$?
    case $call in
    *Free* | *Destroy*) ok $((code != 0)) "$call fails: exit $code, $said" ;; # what it was to give back is left
    *) [ $code != 0 ] || [[ $call =~ ^(cudaDeviceGetPCIBusId|cudnn|nvml) ]] && [ $code -le 3 ] && ! grep -q 'emulator: left' <<< "$said"
       ok $? "call $number, $call, fails: exit $code, $said" ;;
    esac
done < <(sed -nE 's/^([0-9]+) (.*)$/\1 \2/p' "$work/calls")
[ $n -ge 60 ]; ok $? "only $n calls of the sequence are known"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
