#!/bin/bash
# tests/test_cuda_models.sh: the tests of whole models, through the CUDA backend in the emulator (tests/cuda_emulator): every golden's losses, gradients
# and parameters, some of the random plans of all families, precisions and optimizers, and plans that move a tensor of every block to the host and
# back, one stream after the other and in random orders that their events allow. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
plugin=$BUILD/tests/vplan-cuda-emulated.so
[ -e "$plugin" ] || { echo "SKIP: $plugin is not built"; exit 77; }
export VPLAN_TEST_BACKEND VPLAN_TEST_EVERY=${VPLAN_TEST_EVERY:-24} CMOCKA_MESSAGE_OUTPUT=TAP
VPLAN_TEST_BACKEND=$(realpath "$plugin")
[ "${VPLAN_LONG:-}" = 1 ] && VPLAN_TEST_EVERY=3
out=$(mktemp)
trap 'rm -f "$out"' EXIT
died=0
for test in test_golden test_plans; do
    "$BUILD/tests/$test" >> "$out" 2>&1 || { died=$((died + 1)); echo "FAIL: $test: exit $?"; }
done
for order in VPLAN_EMULATOR_STREAMS={0,1,2} "VPLAN_EMULATOR_STREAMS=3 VPLAN_EMULATOR_DEFER=1"; do
    # shellcheck disable=SC2086 -- two variables are two words
    env $order VPLAN_TEST_EVERY=5 "$BUILD/tests/test_copies" >> "$out" 2>&1 || { died=$((died + 1)); echo "FAIL: test_copies, $order: exit $?"; }
done
# Cases that only the CPU's backend has skip themselves; they are no part of this test.
failed=$(grep '^not ok ' "$out" | grep -cv '# *SKIP')
if [ "$died" != 0 ]; then
    grep -v '^ok' "$out" | tail -n 40
    [ "$failed" -gt 0 ] || failed=$died
fi
echo "$(grep -c '^ok [0-9]' "$out") passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
