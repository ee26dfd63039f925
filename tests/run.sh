#!/bin/bash
# tests/run.sh PROGRAM-or-SCRIPT...: run tests, two at a time, and count their cases.
#     BUILD=build tests/run.sh build/tests/test_units tests/test_tables.sh
# A program finds the others of its build beside itself: build/asan/tests/test_units runs with BUILD=build/asan.
# A cmocka program says its cases in TAP; a script's last line is `N passed, N failed[, N skipped]`. Exit code 77 with
# a line SKIP is one skipped case. A test that dies, hangs, prints no count, stops before the last case it announced, or
# exits 1 without naming a failed case is a failed case itself. One line a test as it ends, its output in full if it
# failed; the last line counts all cases. Exit 1 if one failed.
#     VPLAN_TEST_JOBS      how many at a time (2)
#     VPLAN_TEST_SECONDS   after which a test is taken to hang (1200)
set -u
[ $# -gt 0 ] || { echo "usage: tests/run.sh PROGRAM-or-SCRIPT..." >&2; exit 2; }
cd "$(dirname "$0")/.." || exit 2
export BUILD=${BUILD:-build} CMOCKA_MESSAGE_OUTPUT=TAP LC_ALL=C
# Tests share the cores: threads that wait for each other sleep. Spinning, test_golden took 100 s beside others, and so 1.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
jobs=${VPLAN_TEST_JOBS:-2}
seconds=${VPLAN_TEST_SECONDS:-1200}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# The cases of a TAP stream: "passed failed skipped missing", missing being announced cases that never came.
count_tap() {
    awk '/^1\.\.[0-9]+/       { split($1, n, "[.]+"); announced += n[2]; next }
         /^(not )?ok [0-9]+.*# *SKIP/ { skipped++; next }
         /^ok [0-9]+/          { passed++; next }
         /^not ok [0-9]+/      { failed++ }
         END { seen = passed + failed + skipped
               if (announced) print passed + 0, failed + 0, skipped + 0, (announced > seen ? announced - seen : 0) }' "$1"
}

count_script() {
    tail -n 1 "$1" | sed -nE 's/^([0-9]+) passed, ([0-9]+) failed(, ([0-9]+) skipped)?$/\1 \2 0\4 0/p'
}

# run_one NUMBER TEST: leaves NUMBER.report to be printed, and NUMBER.count.
run_one() {
    local id=$1 test=$2 out=$work/$1.out err=$work/$1.err code counts why="" start took built=$BUILD name
    local passed=0 failed=0 skipped=0 missing=0 limit
    limit="env XDG_STATE_HOME=$work/$id.state timeout -k 10 $seconds"
    name=$(basename "$test")
    case $test in
    *.sh) ;;
    */tests/*) built=${test%%/tests/*} ;;
    esac
    [ "$built" = "$BUILD" ] || name=$(basename "$built")/$name
    start=$(date +%s%N)
    case $test in
    *.sh) $limit bash "$test" > "$out" 2>&1 < /dev/null; code=$?; : > "$err"; counts=$(count_script "$out") ;;
    *)    BUILD=$built $limit "$test" > "$out" 2> "$err" < /dev/null; code=$?; counts=$(count_tap "$out") ;;
    esac
    took=$(($(date +%s%N) - start))
    if [ $code = 77 ] && grep -q SKIP "$out" "$err"; then
        skipped=1
    else
        [ -z "$counts" ] || read -r passed failed skipped missing <<< "$counts"
        passed=$((10#$passed)) failed=$((10#$failed)) skipped=$((10#$skipped))
        if [ $code = 124 ] || [ $code = 137 ]; then why="ended after $seconds s"
        elif [ $code -ge 128 ]; then why="died of signal $((code - 128))"
        elif [ -z "$counts" ]; then why="exit $code, and no count of its cases"
        elif [ "$missing" -gt 0 ]; then why="exit $code, $missing of its cases never ran"
        elif [ $code != 0 ] && [ $failed = 0 ]; then why="exit $code, and no failed case"
        elif [ $code = 0 ] && [ $failed != 0 ]; then why="exit 0 in spite of failed cases"
        fi
        [ -z "$why" ] || failed=$((failed + 1))
    fi
    {
        printf '%-4s  %-32s %4d passed' "$([ $failed = 0 ] && echo ok || echo FAIL)" "$name" $passed
        [ $failed = 0 ] || printf ', %d failed' $failed
        [ $skipped = 0 ] || printf ', %d skipped' $skipped
        printf '  (%d.%d s)%s\n' $((took / 1000000000)) $((took / 100000000 % 10)) "${why:+ $why}"
        if [ $failed != 0 ]; then
            sed 's/^/      | /' "$out" "$err"
        else
            sed -nE 's/^not ok [0-9]+ # SKIP (.*)$/      skipped: \1/p; s/^SKIP:? (.*)$/      skipped: \1/p' "$out" "$err"
        fi
    } > "$work/$id.text"
    echo "$passed $failed $skipped" > "$work/$id.count"
    mv "$work/$id.text" "$work/$id.report"
}

print_reports() {
    local report
    for report in "$work"/*.report; do
        [ -e "$report" ] || continue
        cat "$report"
        rm "$report"
    done
}

n=0
for test in "$@"; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
        wait -n
        print_reports
    done
    n=$((n + 1))
    run_one $n "$test" &
done
while [ "$(jobs -rp | wc -l)" -gt 0 ]; do
    wait -n
    print_reports
done
wait
print_reports

passed=0 failed=0 skipped=0
for id in $(seq $n); do
    read -r p f s < "$work/$id.count" || { p=0 f=1 s=0; echo "FAIL  test $id left no count"; }
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
[ $skipped = 0 ] && echo "$passed passed, $failed failed" || echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
